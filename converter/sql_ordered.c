/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_ordered.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sql_picks.h"

#define ORDERED_KEYS  16
#define ORDERED_FIRST 3 /* of the arguments, x is number 2, MORE number 3, and the keys follow */

struct ordered_row {
    sqlite3_value *x, *key[ORDERED_KEYS];
    size_t nth; /* rows with the same keys stay in their order */
};

struct ordered {
    struct ordered_row *row; /* sqlite3_malloc */
    size_t n, cap;
    char what, order[2 * ORDERED_KEYS + 2];
    int keys, distinct;
    sqlite3_value *more;
};

/* Compares two values, of which one may be NULL. how: two letters of ORDER. */
static int ordered_two(sqlite3_value *a, sqlite3_value *b, const char *how) {
    int na = sqlite3_value_type(a) == SQLITE_NULL, nb = sqlite3_value_type(b) == SQLITE_NULL;

    if (na || nb)
        return (na - nb) * (how[1] == 'f' ? -1 : 1);
    return sql_picks_order(a, b) * (how[0] == 'd' ? -1 : 1);
}

static int ordered_by_keys(const void *a, const void *b, void *arg) {
    const struct ordered_row *x = a, *y = b;
    const struct ordered *o = arg;
    int order = 0;

    for (int i = 0; !order && i < o->keys; i++)
        order = ordered_two(x->key[i], y->key[i], o->order + 2 * i);
    return order ? order : (x->nth > y->nth) - (x->nth < y->nth);
}

static int ordered_by_value(const void *a, const void *b, void *arg) {
    const struct ordered_row *x = a, *y = b;

    (void)arg;
    int order = ordered_two(x->x, y->x, "al");
    return order ? order : (x->nth > y->nth) - (x->nth < y->nth);
}

static int ordered_begin(struct ordered *o, int n, sqlite3_value **v) {
    const char *what = (const char *)sqlite3_value_text(v[0]),
               *order = (const char *)sqlite3_value_text(v[1]);

    o->what = !what                       ? 0
              : strcmp(what, "last") == 0 ? 'z'
                                          : *what; /* list begins with the same letter */
    o->distinct = order && *order == 'D';
    order = order ? order + o->distinct : "";
    o->keys = n - ORDERED_FIRST - 1;
    o->more = sqlite3_value_dup(v[ORDERED_FIRST]);
    if (!o->what || strcspn(order, " ") != 2 * (size_t)o->keys)
        return SQLITE_MISUSE;
    memcpy(o->order, order, 2 * (size_t)o->keys);
    return o->more ? SQLITE_OK : SQLITE_NOMEM;
}

static void ordered_free_row(struct ordered *o, size_t i) {
    sqlite3_value_free(o->row[i].x);
    for (int k = 0; k < o->keys; k++)
        sqlite3_value_free(o->row[i].key[k]);
}

static void ordered_step(sqlite3_context *ctx, int n, sqlite3_value **v) {
    struct ordered *o;

    if (n <= ORDERED_FIRST || n > ORDERED_FIRST + 1 + ORDERED_KEYS) {
        sqlite3_result_error(ctx, "ordered(what, order, x, more, key...): at most 16 keys", -1);
        return;
    }
    if (!(o = sqlite3_aggregate_context(ctx, sizeof *o))) {
        sqlite3_result_error_nomem(ctx);
        return;
    }
    int rc = o->what ? SQLITE_OK : ordered_begin(o, n, v);
    if (rc == SQLITE_OK && o->n == o->cap) {
        size_t cap = o->cap ? o->cap * 2 : 16;
        struct ordered_row *more = sqlite3_realloc64(o->row, cap * sizeof *more);
        rc = more ? SQLITE_OK : SQLITE_NOMEM;
        o->row = more ? more : o->row;
        o->cap = more ? cap : o->cap;
    }
    if (rc != SQLITE_OK) {
        sqlite3_result_error_code(ctx, rc);
        return;
    }
    if (o->what == 't' && sqlite3_value_type(v[2]) == SQLITE_NULL)
        return;
    struct ordered_row *row = &o->row[o->n];
    *row = (struct ordered_row){.x = sqlite3_value_dup(v[2]), .nth = o->n};
    int there = row->x != NULL;
    for (int i = 0; i < o->keys; i++)
        there &= (row->key[i] = sqlite3_value_dup(v[ORDERED_FIRST + 1 + i])) != NULL;
    if (there) {
        o->n++;
        return;
    }
    /* SQLite calls ordered_final() after the error, too: a row without all of its values must not be compared. */
    ordered_free_row(o, o->n);
    sqlite3_result_error_nomem(ctx);
}

/* Keeps the first of all rows that have the same value. */
static void ordered_each_once(struct ordered *o) {
    size_t kept = 0;

    qsort_r(o->row, o->n, sizeof *o->row, ordered_by_value, o);
    for (size_t i = 0; i < o->n; i++) {
        if (kept && ordered_two(o->row[kept - 1].x, o->row[i].x, "al") == 0)
            ordered_free_row(o, i);
        else
            o->row[kept++] = o->row[i];
    }
    o->n = kept;
}

/* Writes a value as JSON. */
static void ordered_json(sqlite3_str *s, sqlite3_value *v) {
    const unsigned char *p;

    switch (sqlite3_value_type(v)) {
    case SQLITE_INTEGER:
        sqlite3_str_appendf(s, "%lld", sqlite3_value_int64(v));
        break;
    case SQLITE_FLOAT:
        sqlite3_str_appendf(s, "%!.15g", sqlite3_value_double(v));
        break;
    case SQLITE_TEXT:
        sqlite3_str_appendchar(s, 1, '"');
        for (p = sqlite3_value_text(v); p && *p; p++) {
            if (*p == '"' || *p == '\\')
                sqlite3_str_appendchar(s, 1, '\\');
            if (*p < 0x20)
                sqlite3_str_appendf(s, "\\u%04x", *p);
            else
                sqlite3_str_appendchar(s, 1, (char)*p);
        }
        sqlite3_str_appendchar(s, 1, '"');
        break;
    default:
        sqlite3_str_appendall(s, "null");
    }
}

static void ordered_text(sqlite3_context *ctx, const struct ordered *o) {
    const char *by = (const char *)sqlite3_value_text(o->more);
    sqlite3_str *s = sqlite3_str_new(sqlite3_context_db_handle(ctx));

    sqlite3_str_appendall(s, o->what == 'l' ? "[" : "");
    for (size_t i = 0; i < o->n; i++) {
        sqlite3_str_appendall(s, !i ? "" : o->what == 'l' ? "," : by ? by : "");
        const char *text = o->what == 'l' ? NULL : (const char *)sqlite3_value_text(o->row[i].x);
        if (o->what == 'l')
            ordered_json(s, o->row[i].x);
        else
            sqlite3_str_append(s, text ? text : "", sqlite3_value_bytes(o->row[i].x));
    }
    sqlite3_str_appendall(s, o->what == 'l' ? "]" : "");
    int err = sqlite3_str_errcode(s);
    char *text = sqlite3_str_finish(s);
    if (err)
        sqlite3_result_error_code(ctx, err);
    else
        sqlite3_result_text(ctx, text ? text : "", -1, SQLITE_TRANSIENT);
    sqlite3_free(text);
}

static void ordered_final(sqlite3_context *ctx) {
    struct ordered *o = sqlite3_aggregate_context(ctx, 0);
    size_t at;

    if (!o || !o->n) {
        if (o)
            sqlite3_value_free(o->more);
        if (o)
            sqlite3_free(o->row);
        return; /* NULL */
    }
    if (o->distinct)
        ordered_each_once(o);
    qsort_r(o->row, o->n, sizeof *o->row, ordered_by_keys, o);
    at = o->what == 'f' ? 0 : o->what == 'n' ? (size_t)sqlite3_value_int64(o->more) - 1 : SIZE_MAX;
    if (strchr("lt", o->what))
        ordered_text(ctx, o);
    else if (at < o->n || o->what == 'z')
        sqlite3_result_value(ctx, o->row[o->what == 'z' ? o->n - 1 : at].x);
    for (size_t i = 0; i < o->n; i++)
        ordered_free_row(o, i);
    sqlite3_value_free(o->more);
    sqlite3_free(o->row);
}

int sql_ordered_register(sqlite3 *db) {
    return sqlite3_create_function_v2(db, "ordered", -1,
                                      SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS, NULL,
                                      NULL, ordered_step, ordered_final, NULL);
}
