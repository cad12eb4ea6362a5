/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_sample.h - inside load: registers the virtual table `probing_load`, which reads the trace named by *now.
 */
#ifndef PROBING_CONVERTER_LOAD_SAMPLE_H
#define PROBING_CONVERTER_LOAD_SAMPLE_H

#include "load_state.h"

int load_sample_register(sqlite3 *db, struct load_now *now);
/* Used when no rows of table sample are wanted: reads all samples, and inserts the functions, frames and stacks that they name. Returns an
 * SQLite result code. */
int load_sample_pass(struct load *l);

#endif
