/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schema_part.h - selects those tables and views of schema/ that an SQL text can refer to. SQLite parses the whole schema of a database
 * when it opens it, which takes longer than a short answer, and most questions name just one of fifty views.
 *
 *     struct schema_part p = {0};
 *     rc = schema_part_add(&p, text, n);                             // statements of schema/
 *     schema_part_want(&p, "SELECT max(rss) FROM memory_usage", SCHEMA_VIEWS);   // wants memory_usage, the views that it reads, and all tables
 *     rc = schema_part_make(&p, db);
 *     schema_part_free(&p);
 *
 * A name is wanted when it occurs as a word in the text, whatever the word means there, or in a view that is wanted. A text that may refer
 * to names that do not occur in it (by sqlite_master, by a pragma, by a function that takes SQL) wants everything. Functions return SQLite
 * result codes.
 */
#ifndef PROBING_CONVERTER_SCHEMA_PART_H
#define PROBING_CONVERTER_SCHEMA_PART_H

#include <sqlite3.h>
#include <stddef.h>

enum { SCHEMA_TABLES = 1, SCHEMA_VIEWS = 2 };
#define SCHEMA_HASHES 64

struct schema_part {
    struct schema_statement {
        const char *text, *name; /* borrowed */
        size_t len, name_len;
        int kind; /* an index has the kind of its table; 0: it was dropped */
        int is_wanted;
        size_t next; /* of a name with the same hash: v[next - 1]; 0: none */
    } * v;
    size_t n, first[SCHEMA_HASHES]; /* by the hash of the name, likewise */
};

/* Adds the statements in the n bytes at `text`, somewhere behind which there must be a NUL. A DROP TABLE removes a table that was added before. */
int schema_part_add(struct schema_part *p, const char *text, size_t n);
/* Marks as wanted: of `kinds` what `sql` can refer to (NULL: everything), and everything of the other kinds. */
void schema_part_want(struct schema_part *p, const char *sql, int kinds);
/* Unmarks what the database has already. *n: how many are still wanted. */
int schema_part_missing(struct schema_part *p, sqlite3 *db, size_t *n);
int schema_part_make(const struct schema_part *p, sqlite3 *db);
void schema_part_free(struct schema_part *p);

#endif
