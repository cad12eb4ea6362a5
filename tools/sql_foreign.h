/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_foreign.h - what other engines have and SQLite not, and what is to be written instead: of some SQLite makes another question without an error
 * (in `FROM a ANTI JOIN b` ANTI is a name for a), of the others a syntax error that helps nobody.
 *
 *     err = sql_foreign(token, prev, begins, why, size);      // 0; -EINVAL: "ANTI JOIN is not known: write ... WHERE NOT EXISTS (...)"
 */
#ifndef PROBING_TOOLS_SQL_FOREIGN_H
#define PROBING_TOOLS_SQL_FOREIGN_H

#include "sql_tokens.h"

/* `prev` stands before `t`; begins: a statement does. */
int sql_foreign(struct token t, struct token prev, int begins, char *why, size_t size);

#endif
