/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_heads.h - the names of a result's columns, where sql_dialect() and sql_select() have changed the text.
 *
 *     char *memory;
 *     for (const char *typed = sql; ...; typed = sql_heads_after(typed)) {       // each statement, as it is prepared from the changed text
 *         ... names[i] = sqlite3_column_name(st, i) ...
 *         if (sql_heads(typed, names, n, &memory) == 0)       // SELECT x::int: "x::int", and not "CAST(as_int(x) AS INTEGER)"
 *             ... free(memory);                               // names are valid until then
 *     }
 *
 * A column without AS has the text of its expression for a name. In SQLite that is the text that it was given, which nobody has typed, and
 * which changes from version to version: a program that reads JSON or CSV could not rely on it.
 */
#ifndef PROBING_CONVERTER_SQL_HEADS_H
#define PROBING_CONVERTER_SQL_HEADS_H

/* Replaces those of the n names that are expressions by what was typed. typed: where the statement begins, as a person wrote it. *memory:
 * malloc'ed, or NULL. Returns 0 or -ENOMEM. */
int sql_heads(const char *typed, const char **names, int n, char **memory);
/* Returns where the next statement begins. */
const char *sql_heads_after(const char *typed);

#endif
