/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_sample.h - inside load: registers the virtual table `probing_load`, which reads what *now says.
 */
#ifndef PROBING_CONVERTER_LOAD_SAMPLE_H
#define PROBING_CONVERTER_LOAD_SAMPLE_H

#include "load_state.h"

int load_sample_register(sqlite3 *db, struct load_now *now);
/* Where no rows are wanted: all samples come, and what they name is inserted. An SQLite result code. */
int load_sample_pass(struct load *l);

#endif
