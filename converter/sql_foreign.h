/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_foreign.h - refuses the syntax of other engines that SQLite lacks, and says what to write instead. SQLite would read some of it as a different
 * query without an error (in `FROM a ANTI JOIN b` it takes ANTI for an alias of a), and report the rest as a syntax error that does not help.
 *
 *     err = sql_foreign(token, prev, begins, why, size);      // 0; -EINVAL: "ANTI JOIN is not known: write ... WHERE NOT EXISTS (...)"
 */
#ifndef PROBING_CONVERTER_SQL_FOREIGN_H
#define PROBING_CONVERTER_SQL_FOREIGN_H

#include "sql_tokens.h"

/* prev: the token before `t`; begins: `t` begins a statement. Returns 0, or -EINVAL with a sentence in `why`. */
int sql_foreign(struct token t, struct token prev, int begins, char *why, size_t size);

#endif
