/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_show.h - SHOW TABLES, DESCRIBE t and their like as SELECTs on information_schema, for sql_dialect.h.
 *
 *     const char *sql = sql_show(token, &last, &table);   // NULL: it is something else
 *     if (table.p)
 *         sql_show_table(f, table);                       // " WHERE table_name = 't' COLLATE NOCASE"
 */
#ifndef PROBING_CONVERTER_SQL_SHOW_H
#define PROBING_CONVERTER_SQL_SHOW_H

#include <stdio.h>

#include "sql_tokens.h"

/* Returns the SQL that answers a statement which begins with SHOW or DESCRIBE at `t`, or NULL if it is neither. *last: the statement's last token; *table: the
 * table it asks about, else kind END. */
const char *sql_show(struct token t, struct token *last, struct token *table);
void sql_show_table(FILE *f, struct token t);

#endif
