/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_mode.h"

#include <stdlib.h>
#include <string.h>

#include "keys.h"

enum { MODE_NUMBERS, MODE_TEXTS, MODE_BLOBS, MODE_KINDS };

/* The values so far, by kind. Memory is that of the distinct ones. */
struct mode {
    struct mode_kind {
        struct keys keys;
        struct mode_value {
            int64_t times, first; /* first: number of values before */
            sqlite3_value *value;
        } * v; /* v[id of its key - 1] */
        size_t cap;
    } kind[MODE_KINDS];
    int64_t n;
};

/* Equal numbers have the same bits, whether they are whole numbers or not. */
static uint64_t mode_bits(sqlite3_value *v) {
    double x = sqlite3_value_double(v);
    sqlite3_int64 whole = sqlite3_value_int64(v);
    uint64_t bits;

    if (sqlite3_value_type(v) == SQLITE_INTEGER && (sqlite3_int64)x == whole)
        x = (double)whole;
    else if (sqlite3_value_type(v) == SQLITE_INTEGER) /* it has more digits than a double */
        return (uint64_t)whole ^ 0x7ff8000000000001u;
    x += 0.0; /* no negative zero */
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static int mode_count(struct mode *m, sqlite3_value *v) {
    int type = sqlite3_value_type(v), is_number = type == SQLITE_INTEGER || type == SQLITE_FLOAT;
    struct mode_kind *k = &m->kind[is_number             ? MODE_NUMBERS
                                   : type == SQLITE_TEXT ? MODE_TEXTS
                                                         : MODE_BLOBS];
    uint64_t number = is_number ? mode_bits(v) : 0;
    const void *key = is_number ? &number : sqlite3_value_blob(v);
    size_t n = is_number ? sizeof number : (size_t)sqlite3_value_bytes(v);
    int is_new;
    uint32_t id = keys_put(&k->keys, key ? key : "", n, &is_new);

    if (id > k->cap) {
        size_t cap = k->cap ? 2 * k->cap : 64;
        void *more = realloc(k->v, cap * sizeof *k->v);
        if (!more)
            return SQLITE_NOMEM;
        k->v = more;
        k->cap = cap;
    }
    if (!id)
        return SQLITE_NOMEM;
    if (is_new)
        k->v[id - 1] = (struct mode_value){.first = m->n, .value = sqlite3_value_dup(v)};
    k->v[id - 1].times++;
    m->n++;
    return k->v[id - 1].value ? SQLITE_OK : SQLITE_NOMEM;
}

static void mode_step(sqlite3_context *ctx, int n, sqlite3_value **v) {
    struct mode *m = sqlite3_aggregate_context(ctx, sizeof *m);

    (void)n;
    if (!m || (sqlite3_value_type(v[0]) != SQLITE_NULL && mode_count(m, v[0]) != SQLITE_OK))
        sqlite3_result_error_nomem(ctx);
}

static void mode_final(sqlite3_context *ctx) {
    struct mode *m = sqlite3_aggregate_context(ctx, 0);
    const struct mode_value *best = NULL;

    for (int i = 0; m && i < MODE_KINDS; i++)
        for (uint32_t k = 0; k < m->kind[i].keys.n && k < m->kind[i].cap; k++) {
            const struct mode_value *v = &m->kind[i].v[k];
            if (!best || v->times > best->times ||
                (v->times == best->times && v->first < best->first))
                best = v;
        }
    if (best &&
        best->value) /* NULL: there was no memory for a copy, which mode_step() has reported */
        sqlite3_result_value(ctx, best->value);
    for (int i = 0; m && i < MODE_KINDS; i++) {
        for (uint32_t k = 0; k < m->kind[i].keys.n && k < m->kind[i].cap; k++)
            sqlite3_value_free(m->kind[i].v[k].value);
        free(m->kind[i].v);
        keys_free(&m->kind[i].keys);
    }
}

int sql_mode_register(sqlite3 *db) {
    return sqlite3_create_function_v2(db, "mode", 1,
                                      SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS, NULL,
                                      NULL, mode_step, mode_final, NULL);
}
