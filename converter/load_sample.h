/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_sample.h - inside load: registers the virtual table `probing_load`, which reads *l.
 */
#ifndef PROBING_CONVERTER_LOAD_SAMPLE_H
#define PROBING_CONVERTER_LOAD_SAMPLE_H

#include "load.h"

int load_sample_register(sqlite3 *db, struct load *l);

#endif
