/* SPDX-License-Identifier: Apache-2.0 */
/*
 * last_calls.h - questions about the last calls of PyTorch's modules: SELECT step, module, duration FROM torch_trace ORDER BY step DESC, seq LIMIT 10.
 * Of a training of an hour there are millions of calls, and none of them but those of the last steps can be in the answer.
 *
 *     n = last_calls_most("SELECT ...");              // the LIMIT; 0: the SQL is not plainly of that form
 *     if (!last_calls_suffice(db, "SELECT ...")) ...  // of a database with those of the last steps (converter/vtab.h): it has to have all
 *
 * They suffice where as many calls as are asked for are of later steps than any call that is not there.
 */
#ifndef PROBING_TOOLS_LAST_CALLS_H
#define PROBING_TOOLS_LAST_CALLS_H

#include <sqlite3.h>

int last_calls_most(const char *sql);
int last_calls_suffice(sqlite3 *db, const char *sql);

#endif
