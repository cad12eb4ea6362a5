/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_picks.h"

#include <stdint.h>
#include <string.h>

enum { PICK_LEAST = -1, PICK_GREATEST = 1 };

int sql_picks_order(sqlite3_value *a, sqlite3_value *b) {
    int ta = sqlite3_value_type(a), tb = sqlite3_value_type(b);
    int na = ta == SQLITE_INTEGER || ta == SQLITE_FLOAT,
        nb = tb == SQLITE_INTEGER || tb == SQLITE_FLOAT;

    if (na != nb || (!na && ta != tb))
        return na ? -1 : nb ? 1 : ta == SQLITE_TEXT ? -1 : 1;
    if (na && ta == tb && ta == SQLITE_INTEGER) {
        int64_t x = sqlite3_value_int64(a), y = sqlite3_value_int64(b);
        return (x > y) - (x < y);
    }
    if (na) {
        double x = sqlite3_value_double(a), y = sqlite3_value_double(b);
        return (x > y) - (x < y);
    }
    const void *x = sqlite3_value_blob(a), *y = sqlite3_value_blob(b);
    int n = sqlite3_value_bytes(a), m = sqlite3_value_bytes(b);
    int order = x && y ? memcmp(x, y, (size_t)(n < m ? n : m)) : 0;
    return order ? order : (n > m) - (n < m);
}

static void pick_one(sqlite3_context *ctx, int n, sqlite3_value **v) {
    intptr_t way = (intptr_t)sqlite3_user_data(ctx);
    sqlite3_value *best = NULL;

    for (int i = 0; i < n; i++)
        if (sqlite3_value_type(v[i]) != SQLITE_NULL &&
            (!best || sql_picks_order(v[i], best) * way > 0))
            best = v[i];
    if (best)
        sqlite3_result_value(ctx, best);
}

/* The value of the row that was picked, and the value it was picked by (arg_max). */
struct picked {
    sqlite3_value *value, *by;
};
enum { PICK_FIRST = 2, PICK_LAST = 3 };

static void picked_free(struct picked *p) {
    sqlite3_value_free(p->value);
    sqlite3_value_free(p->by);
    p->value = p->by = NULL;
}

static void pick_step(sqlite3_context *ctx, int n, sqlite3_value **v) {
    intptr_t way = (intptr_t)sqlite3_user_data(ctx);
    struct picked *p = sqlite3_aggregate_context(ctx, sizeof *p);

    if (!p) {
        sqlite3_result_error_nomem(ctx);
        return;
    }
    if (n == 2 && (sqlite3_value_type(v[1]) == SQLITE_NULL ||
                   (p->by && sql_picks_order(v[1], p->by) * way <= 0)))
        return;
    if (way == PICK_FIRST && p->value)
        return;
    picked_free(p);
    p->value = sqlite3_value_dup(v[0]);
    p->by = n == 2 ? sqlite3_value_dup(v[1]) : NULL;
    if (!p->value || (n == 2 && !p->by))
        sqlite3_result_error_nomem(ctx);
}

static void pick_final(sqlite3_context *ctx) {
    struct picked *p = sqlite3_aggregate_context(ctx, 0);

    if (p && p->value)
        sqlite3_result_value(ctx, p->value);
    if (p)
        picked_free(p);
}

int sql_picks_register(sqlite3 *db) {
    static const struct {
        const char *name;
        int args;
        intptr_t way;
    } of_rows[] = {
        {"arg_max", 2, PICK_GREATEST}, {"max_by", 2, PICK_GREATEST}, {"argmax", 2, PICK_GREATEST},
        {"arg_min", 2, PICK_LEAST},    {"min_by", 2, PICK_LEAST},    {"argmin", 2, PICK_LEAST},
        {"first", 1, PICK_FIRST},      {"any_value", 1, PICK_FIRST}, {"last", 1, PICK_LAST}};
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
    int rc = sqlite3_create_function_v2(db, "greatest", -1, flags, (void *)(intptr_t)PICK_GREATEST,
                                        pick_one, NULL, NULL, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_create_function_v2(db, "least", -1, flags, (void *)(intptr_t)PICK_LEAST,
                                        pick_one, NULL, NULL, NULL);
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof of_rows / sizeof *of_rows; i++)
        rc = sqlite3_create_function_v2(db, of_rows[i].name, of_rows[i].args, flags,
                                        (void *)of_rows[i].way, NULL, pick_step, pick_final, NULL);
    return rc;
}
