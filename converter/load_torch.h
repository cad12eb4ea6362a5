/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_torch.h - torch_name and torch_calls records into the tables torch_module, torch_call and torch_step.
 *
 *     rc = load_torch(&load);          // an SQLite result code; before the threads are written
 *
 * The records are read twice: steps first, because any thread's rows carry the number of the step in progress. A row gets its
 * id when its interval begins and is inserted when it ends. Of a trace without an end the state at the beginning of a late block is kept
 * (torch_state.h, table torch_read): --append goes on from there, and rows of what is before it stay.
 */
#ifndef PROBING_CONVERTER_LOAD_TORCH_H
#define PROBING_CONVERTER_LOAD_TORCH_H

#include "load_state.h"

int load_torch(struct load *l);

#endif
