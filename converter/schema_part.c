/* SPDX-License-Identifier: Apache-2.0 */
#include "schema_part.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "sql_schemas.h"

static int is_name(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* Returns the place after blanks and comments. */
static const char *skip_blank(const char *p, const char *end) {
    for (;;) {
        while (p < end && isspace((unsigned char)*p))
            p++;
        if (end - p < 2 || strncmp(p, "--", 2) != 0)
            return p;
        p = (const char *)memchr(p, '\n', (size_t)(end - p)) ?: end;
    }
}

/* Returns the place after the semicolon that ends the statement, ignoring those in texts, quoted names and comments. */
static const char *end_of(const char *p, const char *end) {
    char quote = 0;

    for (; p < end; p++) {
        if (!quote)
            p += strcspn(p, "'\"-;");
        if (p >= end)
            break;
        if (quote)
            quote = *p == quote ? 0 : quote;
        else if (*p == '\'' || *p == '"')
            quote = *p;
        else if (end - p >= 2 && strncmp(p, "--", 2) == 0)
            p = (const char *)memchr(p, '\n', (size_t)(end - p)) ?: end - 1;
        else if (*p == ';')
            return p + 1;
    }
    return end;
}

/* Returns the word at *p, and moves *p past it. */
static const char *take_word(const char **p, const char *end, size_t *n) {
    const char *word = skip_blank(*p, end), *q = word;

    while (q < end && is_name(*q))
        q++;
    *n = (size_t)(q - word);
    *p = q;
    return word;
}

static int is(const char *word, size_t n, const char *what) {
    return n == strlen(what) && strncasecmp(word, what, n) == 0;
}

static void drop(struct schema_part *p, const struct schema_statement *s) {
    for (size_t i = 0; i < p->n; i++)
        if (p->v[i].name_len == s->name_len && strncmp(p->v[i].name, s->name, s->name_len) == 0)
            p->v[i].kind = 0;
}

/* Of names of which SQLite compares the letters without their case. */
static size_t hash_of(const char *name, size_t n) {
    return n ? (n * 7 + (name[0] & 31u) * 3 + (name[n - 1] & 31u) + (name[n / 2] & 31u)) %
                   SCHEMA_HASHES
             : 0;
}

int schema_part_add(struct schema_part *p, const char *text, size_t n) {
    const char *end = text + n;

    while ((text = skip_blank(text, end)) < end) {
        const char *next = end_of(text, end), *at = text;
        size_t verb_len, kind_len;
        const char *verb = take_word(&at, next, &verb_len), *kind = take_word(&at, next, &kind_len);
        struct schema_statement s = {.text = text, .len = (size_t)(next - text)};
        s.name = take_word(&at, next, &s.name_len);
        s.kind = is(kind, kind_len, "VIEW") ? SCHEMA_VIEWS : SCHEMA_TABLES;
        text = next;
        if (is(verb, verb_len, "DROP")) {
            drop(p, &s);
            continue;
        }
        if ((p->n & (p->n - 1)) == 0) {
            void *more = realloc(p->v, (p->n ? p->n * 2 : 1) * sizeof *p->v);
            if (!more)
                return SQLITE_NOMEM;
            p->v = more;
        }
        size_t *first = &p->first[hash_of(s.name, s.name_len)];
        s.next = *first;
        p->v[p->n++] = s;
        *first = p->n;
    }
    return SQLITE_OK;
}

/* Returns the statement of this name that comes after s (NULL: the first one) in its chain, or NULL. */
static struct schema_statement *next_of(const struct schema_part *p, const char *name, size_t n,
                                        const struct schema_statement *s) {
    for (size_t i = s ? s->next : p->first[hash_of(name, n)]; i; i = p->v[i - 1].next)
        if (p->v[i - 1].name_len == n && strncasecmp(p->v[i - 1].name, name, n) == 0)
            return &p->v[i - 1];
    return NULL;
}

/* Marks what the words of the text name as wanted, and what the texts of wanted views name. */
static void want_words(struct schema_part *p, const char *text, size_t n) {
    for (const char *end = text + n, *word; text < end; text++) {
        if (!is_name(*text))
            continue;
        for (word = text; text < end && is_name(*text);)
            text++;
        struct schema_statement *s = NULL;
        while ((s = next_of(p, word, (size_t)(text - word), s))) {
            if (s->is_wanted || !s->kind)
                continue;
            s->is_wanted = 1;
            if (s->kind == SCHEMA_VIEWS)
                want_words(p, s->text, s->len);
        }
    }
}

static int is_about_all(const char *sql) {
    return strcasestr(sql, "sqlite_") || strcasestr(sql, "pragma") || strcasestr(sql, "replay");
}

void schema_part_want(struct schema_part *p, const char *sql, int kinds) {
    const char *more;

    for (unsigned i = 0; sql && (more = sql_schemas_reads(i)); i++)
        if (sql_schemas_names(sql, i) && is_about_all(more))
            sql = NULL;
    if (sql && is_about_all(sql))
        sql = NULL;
    for (size_t i = 0; i < p->n; i++)
        p->v[i].is_wanted = p->v[i].kind && (!sql || !(p->v[i].kind & kinds));
    if (!sql)
        return;
    want_words(p, sql, strlen(sql));
    for (unsigned i = 0; (more = sql_schemas_reads(i)); i++)
        if (sql_schemas_names(sql, i))
            want_words(p, more, strlen(more));
}

int schema_part_missing(struct schema_part *p, sqlite3 *db, size_t *n) {
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, "SELECT name FROM main.sqlite_master", -1, &st, NULL);

    while (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(st, 0);
        struct schema_statement *s = NULL;
        while (name && (s = next_of(p, name, strlen(name), s)))
            s->is_wanted = 0;
    }
    rc = rc == SQLITE_OK ? sqlite3_finalize(st) : rc;
    *n = 0;
    for (size_t i = 0; i < p->n; i++)
        *n += p->v[i].is_wanted != 0;
    return rc;
}

int schema_part_make(const struct schema_part *p, sqlite3 *db) {
    int rc = SQLITE_OK;

    for (size_t i = 0; rc == SQLITE_OK && i < p->n; i++) {
        if (!p->v[i].is_wanted)
            continue;
        char *sql = sqlite3_mprintf("%.*s", (int)p->v[i].len, p->v[i].text);
        rc = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
        sqlite3_free(sql);
    }
    return rc;
}

void schema_part_free(struct schema_part *p) {
    free(p->v);
    *p = (struct schema_part){0};
}
