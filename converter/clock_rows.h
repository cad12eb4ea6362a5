/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock_rows.h - tables clock_boot and clock_knot: the boots of the machines whose traces are in a database, and how their times relate
 * (align.h). Boots that the database already has keep their mapping, and what they now have in common with others is added to their
 * matches. The exception: boots that could not be compared before and now can; their mapping and all their times change (retime.h).
 *
 *     rc = clock_rows_write(db, align, line, sizeof line);   // an SQLite result code
 *     rc = clock_rows_take(db, "other.db", align);           // copies the rows of the boots of `align` that another database has
 *     rc = clock_rows_map(db, key, &map);                    // a boot's mapping
 */
#ifndef PROBING_CONVERTER_CLOCK_ROWS_H
#define PROBING_CONVERTER_CLOCK_ROWS_H

#include <sqlite3.h>

#include "align.h"

/* line: a sentence for people if the times of some machines cannot be compared, or their time of day is wrong; else "". */
int clock_rows_write(sqlite3 *db, const struct align *align, char *line, size_t size);
int clock_rows_take(sqlite3 *db, const char *from, const struct align *align);
/* Replaces what *map holds. Returns SQLITE_NOTFOUND, and leaves *map as it was, if the database does not have the boot. */
int clock_rows_map(sqlite3 *db, const char *key, struct clock_map *map);

#endif
