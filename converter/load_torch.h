/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_torch.h - inserts torch_name and torch_calls records into the tables torch_module, torch_call and torch_step.
 *
 *     rc = load_torch(&load);          // an SQLite result code; call it before the threads are written
 *
 * The records are read twice: first for the steps, because rows of any thread carry the number of the step in progress. A row gets its id
 * when its interval begins and is inserted when the interval ends. For a trace without an end, the state at the beginning of one of the
 * last blocks is stored (torch_state.h, table torch_read): --append continues from there, and rows from before that block stay.
 */
#ifndef PROBING_CONVERTER_LOAD_TORCH_H
#define PROBING_CONVERTER_LOAD_TORCH_H

#include "load_state.h"

int load_torch(struct load *l);

#endif
