/* SPDX-License-Identifier: Apache-2.0 */
#include "blank.h"

#include <stdint.h>
#include <string.h>

/* The first byte of a page: a leaf of a table, and of an index or a table WITHOUT ROWID. */
enum { NO_PAGE = 0, TABLE_LEAF = 0x0d, INDEX_LEAF = 0x0a };

#define HEADER 100 /* bytes of the file's header, which the first page's own follows */

static int begins(const struct schema_statement *s, const char *with) {
    return s->len > strlen(with) && memcmp(s->text, with, strlen(with)) == 0;
}

static int ends(const struct schema_statement *s, const char *with) {
    size_t n = strlen(with);

    return s->len > n && memcmp(s->text + s->len - n, with, n) == 0;
}

/* How often the word is in the statement, be it in a comment. */
static int count(const struct schema_statement *s, const char *word) {
    const char *p = s->text, *end = s->text + s->len;
    int n = 0;

    while ((p = memmem(p, (size_t)(end - p), word, strlen(word)))) {
        p += strlen(word);
        n++;
    }
    return n;
}

static int is_view(const struct schema_statement *s) {
    return s->is_wanted && begins(s, "CREATE VIEW ");
}

/* Returns the kind of the table's page; NO_PAGE: SQLite makes it. A key that is no INTEGER PRIMARY KEY has an index of its own, too. */
static int page_of_table(const struct schema_statement *s) {
    if (!s->is_wanted || !begins(s, "CREATE TABLE ") || count(s, "UNIQUE"))
        return NO_PAGE;
    if (ends(s, ") WITHOUT ROWID;"))
        return INDEX_LEAF;
    return ends(s, ");") && count(s, "PRIMARY KEY") == count(s, "INTEGER PRIMARY KEY") ? TABLE_LEAF
                                                                                       : NO_PAGE;
}

/* Returns the statement of the table that an index is of, if it has a page here; NULL: it has none. */
static const struct schema_statement *table_of(const struct schema_part *p,
                                               const struct schema_statement *s) {
    const char *on = s->name + s->name_len;

    if (!s->is_wanted || !begins(s, "CREATE INDEX ") || memcmp(on, " ON ", 4) != 0)
        return NULL;
    for (const struct schema_statement *t = p->v; t < s; t++)
        if (t->page && memcmp(t->name, on + 4, t->name_len) == 0 && on[4 + t->name_len] == '(')
            return t;
    return NULL;
}

/* Finds out which statements have a page; an index comes after its table. Returns how many pages there are, with the first. */
static unsigned find_pages(struct schema_part *p) {
    unsigned pages = 1;

    for (size_t i = 0; i < p->n; i++) {
        struct schema_statement *s = &p->v[i];
        s->page = page_of_table(s);
        s->of = s->page ? NULL : table_of(p, s);
        s->page = s->of ? INDEX_LEAF : s->page;
        pages += s->page != NO_PAGE;
    }
    return pages;
}

static void put16(uint8_t *p, unsigned v) {
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, unsigned v) {
    put16(p, v >> 16);
    put16(p + 2, v);
}

/* Its cells would begin at the end of the page. */
static void put_leaf(uint8_t *p, int kind, unsigned page_size) {
    p[0] = (uint8_t)kind;
    put16(p + 5, page_size);
}

void *blank_image(struct schema_part *p, unsigned page_size, size_t *n) {
    unsigned pages = find_pages(p);

    *n = (size_t)pages * page_size;
    uint8_t *image = sqlite3_malloc64(*n), *at = image;
    if (!image)
        return NULL;
    memset(image, 0, *n);
    memcpy(image, "SQLite format 3", 16);
    put16(image + 16, page_size);
    image[18] = image[19] = 1; /* a rollback journal, no WAL */
    image[21] = 64;            /* three numbers that are always these */
    image[22] = image[23] = 32;
    put32(image + 24,
          1); /* number of changes; again at 92 by whom the number of pages was written */
    put32(image + 28, pages);
    put32(image + 40, 1); /* number of changes to the schema */
    put32(image + 44, 4); /* schema format */
    put32(image + 56, 1); /* UTF-8 */
    put32(image + 92, 1);
    put32(image + 96, (unsigned)sqlite3_libversion_number());
    put_leaf(image + HEADER, TABLE_LEAF, page_size);
    for (size_t i = 0; i < p->n; i++)
        if (p->v[i].page)
            put_leaf(at += page_size, p->v[i].page, page_size);
    return image;
}

/* Returns whether the database has these pages and nothing in them. */
static int is_blank(struct schema_part *p, sqlite3 *db) {
    sqlite3_stmt *st = NULL;
    unsigned pages = find_pages(p), has = 0;

    if (sqlite3_prepare_v2(db,
                           "SELECT page_count FROM pragma_page_count()"
                           " WHERE NOT EXISTS (SELECT 1 FROM sqlite_master)",
                           -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        has = (unsigned)sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return has == pages;
}

static void bind(sqlite3_stmt *st, int i, const char *text, size_t n) {
    sqlite3_bind_text(st, i, text, (int)n, SQLITE_STATIC);
}

int blank_list(struct schema_part *p, sqlite3 *db) {
    static const char insert[] = "INSERT INTO sqlite_master VALUES(?1, ?2, ?3, ?4, ?5)";
    sqlite3_stmt *st = NULL;
    int root = 1, rc = SQLITE_OK;

    if (!is_blank(p, db))
        return schema_part_make(p, db);
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 0, NULL);
    sqlite3_exec(db, "PRAGMA writable_schema = ON", NULL, NULL, NULL);
    int is_open = sqlite3_prepare_v2(db, insert, -1, &st, NULL) == SQLITE_OK;
    for (size_t i = 0; is_open && rc == SQLITE_OK && i < p->n; i++) {
        const struct schema_statement *s = &p->v[i], *table = s->of ?: s;
        int view = is_view(s);
        if (!s->page && !view)
            continue;
        bind(st, 1, view ? "view" : s->of ? "index" : "table", view ? 4 : 5);
        bind(st, 2, s->name, s->name_len);
        bind(st, 3, table->name, table->name_len);
        sqlite3_bind_int(st, 4, view ? 0 : ++root);
        bind(st, 5, s->text, s->len - (s->text[s->len - 1] == ';'));
        sqlite3_step(st);
        rc = sqlite3_reset(st);
    }
    sqlite3_finalize(st);
    sqlite3_exec(db, "PRAGMA writable_schema = RESET", NULL, NULL, NULL);
    for (size_t i = 0; is_open && i < p->n; i++)
        p->v[i].is_wanted &= !p->v[i].page && !is_view(&p->v[i]);
    return rc == SQLITE_OK ? schema_part_make(p, db) : rc;
}
