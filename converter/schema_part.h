/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schema_part.h - of the tables and views of schema/ those that a text of SQL can be about. SQLite parses all that a database has when
 * it is opened, which takes longer than a short answer, and most questions name one view of fifty.
 *
 *     struct schema_part p = {0};
 *     rc = schema_part_add(&p, text, n);                             // statements of schema/
 *     schema_part_want(&p, "SELECT max(rss) FROM memory_usage", SCHEMA_VIEWS);   // memory_usage, the views that it reads, all tables
 *     rc = schema_part_make(&p, db);
 *     schema_part_free(&p);
 *
 * A name is wanted when it stands in the text as a word, whatever that word is there, or in a view that is wanted. A text that may ask
 * for names that do not stand in it (of sqlite_master, by a pragma, by a function that has SQL of its own) is about all.
 * SQLite result codes.
 */
#ifndef PROBING_CONVERTER_SCHEMA_PART_H
#define PROBING_CONVERTER_SCHEMA_PART_H

#include <sqlite3.h>
#include <stddef.h>

enum { SCHEMA_TABLES = 1, SCHEMA_VIEWS = 2 };

struct schema_part {
    struct schema_statement {
        const char *text, *name; /* borrowed */
        size_t len, name_len;
        int kind; /* an index is its table's; 0: it was dropped */
        int is_wanted;
    } * v;
    size_t n;
};

/* Its n bytes, somewhere behind which is a NUL. DROP TABLE takes away what was made before. */
int schema_part_add(struct schema_part *p, const char *text, size_t n);
/* Of `kinds` what `sql` can be about, NULL: all; of the others all. */
void schema_part_want(struct schema_part *p, const char *sql, int kinds);
/* What the database has already is wanted no more. *n: how many still are. */
int schema_part_missing(struct schema_part *p, sqlite3 *db, size_t *n);
int schema_part_make(const struct schema_part *p, sqlite3 *db);
void schema_part_free(struct schema_part *p);

#endif
