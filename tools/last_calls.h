/* SPDX-License-Identifier: Apache-2.0 */
/*
 * last_calls.h - recognizes questions about the last calls of PyTorch's modules: SELECT step, module, duration FROM torch_trace ORDER BY
 * step DESC, seq LIMIT 10. An hour of training has millions of calls, of which only those of the last steps can be in such an answer.
 *
 *     n = last_calls_most("SELECT ...");              // the LIMIT; 0: the SQL is not simply of that form
 *     if (!last_calls_suffice(db, "SELECT ...")) ...  // db has the calls of the last steps only (converter/vtab.h): these are not enough
 *
 * They suffice when at least as many calls as the LIMIT asks for belong to later steps than any call that is missing.
 */
#ifndef PROBING_TOOLS_LAST_CALLS_H
#define PROBING_TOOLS_LAST_CALLS_H

#include <sqlite3.h>

int last_calls_most(const char *sql);
int last_calls_suffice(sqlite3 *db, const char *sql);

#endif
