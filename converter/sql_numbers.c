/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_numbers.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

static int numbers_is(sqlite3_value *v) {
    int type = sqlite3_value_type(v);

    return type == SQLITE_INTEGER || type == SQLITE_FLOAT;
}

/* ---- of one row ---- */

enum { CBRT, COT, EVEN, FACTORIAL, ISNAN, ISINF, ISFINITE, BIT_COUNT };
static void numbers_of_one(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double x = sqlite3_value_double(v[0]), made = 0;
    int64_t whole = sqlite3_value_int64(v[0]), result = 1;

    (void)n;
    if (sqlite3_value_type(v[0]) == SQLITE_NULL)
        return;
    switch ((intptr_t)sqlite3_user_data(ctx)) {
    case CBRT:
        sqlite3_result_double(ctx, cbrt(x));
        return;
    case COT:
        sqlite3_result_double(ctx, 1 / tan(x));
        return;
    case EVEN: /* away from 0 */
        made = ceil(fabs(x) / 2) * 2;
        sqlite3_result_double(ctx, x < 0 ? -made : made);
        return;
    case FACTORIAL:
        if (whole < 0 || whole > 20) {
            sqlite3_result_error(ctx, "factorial: 0 to 20", -1);
            return;
        }
        for (int64_t i = 2; i <= whole; i++)
            result *= i;
        break;
    case ISNAN: /* SQLite has NULL in place of those */
        result = 0;
        break;
    case ISINF:
        result = isinf(x) != 0;
        break;
    case ISFINITE:
        result = isfinite(x) != 0;
        break;
    case BIT_COUNT:
        result = __builtin_popcountll((unsigned long long)whole);
        break;
    }
    sqlite3_result_int64(ctx, result);
}

enum { GCD, LCM, XOR };
static void numbers_of_two(sqlite3_context *ctx, int n, sqlite3_value **v) {
    int64_t x = sqlite3_value_int64(v[0]), y = sqlite3_value_int64(v[1]);
    intptr_t what = (intptr_t)sqlite3_user_data(ctx);

    (void)n;
    if (sqlite3_value_type(v[0]) == SQLITE_NULL || sqlite3_value_type(v[1]) == SQLITE_NULL)
        return;
    uint64_t a = x < 0 ? 0 - (uint64_t)x : (uint64_t)x, b = y < 0 ? 0 - (uint64_t)y : (uint64_t)y,
             c = a, d = b;
    while (d) {
        uint64_t rest = c % d;
        c = d;
        d = rest;
    }
    if (what == LCM)
        sqlite3_result_int64(ctx, c ? (int64_t)(a / c * b) : 0);
    else
        sqlite3_result_int64(ctx, what == GCD ? (int64_t)c : x ^ y);
}

static void numbers_trunc(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double unit = pow(10, sqlite3_value_int(v[1]));

    (void)n;
    if (numbers_is(v[0]) && numbers_is(v[1]))
        sqlite3_result_double(ctx, trunc(sqlite3_value_double(v[0]) * unit) / unit);
}

/* nvl2(x, then, else); with user data nanvl(x, else). */
static void numbers_instead(sqlite3_context *ctx, int n, sqlite3_value **v) {
    (void)n;
    if (sqlite3_user_data(ctx))
        sqlite3_result_value(ctx, v[0]); /* there is no NaN */
    else
        sqlite3_result_value(ctx, v[sqlite3_value_type(v[0]) == SQLITE_NULL ? 2 : 1]);
}

static void numbers_type(sqlite3_context *ctx, int n, sqlite3_value **v) {
    static const char *const names[] = {[SQLITE_INTEGER] = "Int64",
                                        [SQLITE_FLOAT] = "Float64",
                                        [SQLITE_TEXT] = "Utf8",
                                        [SQLITE_BLOB] = "Binary",
                                        [SQLITE_NULL] = "Null"};

    (void)n;
    sqlite3_result_text(ctx, names[sqlite3_value_type(v[0])], -1, SQLITE_STATIC);
}

/* ---- aggregates of pairs ---- */

struct pairs {
    double x, y, xx, yy, xy; /* means; sums of products of the differences from them */
    int64_t n;
};
enum { CORR, COVAR_SAMP, COVAR_POP, SLOPE, INTERCEPT, R2, REGR_COUNT };

static void pairs_step(sqlite3_context *ctx, int n, sqlite3_value **v) {
    struct pairs *p = sqlite3_aggregate_context(ctx, sizeof *p);

    (void)n;
    if (!p) {
        sqlite3_result_error_nomem(ctx);
        return;
    }
    if (!numbers_is(v[0]) || !numbers_is(v[1]))
        return;
    double x = sqlite3_value_double(v[1]), y = sqlite3_value_double(v[0]), dx = x - p->x,
           dy = y - p->y;
    p->n++;
    p->x += dx / (double)p->n;
    p->y += dy / (double)p->n;
    p->xx += dx * (x - p->x);
    p->yy += dy * (y - p->y);
    p->xy += dx * (y - p->y);
}

static void pairs_final(sqlite3_context *ctx) {
    static const struct pairs none;
    const struct pairs *p = sqlite3_aggregate_context(ctx, 0);
    double made = NAN; /* NULL in SQLite, as is 0 / 0 */

    p = p ? p : &none;
    switch ((intptr_t)sqlite3_user_data(ctx)) {
    case CORR:
        made = p->xy / sqrt(p->xx * p->yy);
        break;
    case COVAR_SAMP:
        made = p->n > 1 ? p->xy / (double)(p->n - 1) : NAN;
        break;
    case COVAR_POP:
        made = p->xy / (double)p->n;
        break;
    case SLOPE:
        made = p->xy / p->xx;
        break;
    case INTERCEPT:
        made = p->y - p->xy / p->xx * p->x;
        break;
    case R2:
        made = p->xx > 0 && p->yy == 0 ? 1 : p->xy * p->xy / (p->xx * p->yy);
        break;
    case REGR_COUNT:
        sqlite3_result_int64(ctx, p->n);
        return;
    }
    sqlite3_result_double(ctx, made);
}

/* ---- aggregates of one column ---- */

struct gathered {
    uint64_t bits;
    double product, logs;
    int64_t n, yes;
};
enum { BIT_AND, BIT_OR, BIT_XOR, PRODUCT, GEOMEAN, COUNT_IF };

static void gather_step(sqlite3_context *ctx, int n, sqlite3_value **v) {
    struct gathered *g = sqlite3_aggregate_context(ctx, sizeof *g);
    intptr_t what = (intptr_t)sqlite3_user_data(ctx);

    (void)n;
    if (!g) {
        sqlite3_result_error_nomem(ctx);
        return;
    }
    if (!numbers_is(v[0]))
        return;
    double x = sqlite3_value_double(v[0]);
    uint64_t bits = (uint64_t)sqlite3_value_int64(v[0]);
    g->yes += x != 0;
    g->product = (g->n ? g->product : 1) * x;
    g->logs += what == GEOMEAN ? log(x) : 0;
    g->bits = !g->n             ? bits
              : what == BIT_AND ? g->bits & bits
              : what == BIT_OR  ? g->bits | bits
                                : g->bits ^ bits;
    g->n++;
}

static void gather_final(sqlite3_context *ctx) {
    const struct gathered *g = sqlite3_aggregate_context(ctx, 0);
    intptr_t what = (intptr_t)sqlite3_user_data(ctx);

    if (what == COUNT_IF)
        sqlite3_result_int64(ctx, g ? g->yes : 0);
    else if (!g || !g->n)
        sqlite3_result_null(ctx);
    else if (what == PRODUCT || what == GEOMEAN)
        sqlite3_result_double(ctx, what == PRODUCT ? g->product : exp(g->logs / (double)g->n));
    else
        sqlite3_result_int64(ctx, (int64_t)g->bits);
}

int sql_numbers_register(sqlite3 *db) {
    typedef void run(sqlite3_context *, int, sqlite3_value **);
    static const struct {
        const char *name;
        int args;
        run *each, *step;
        void (*final)(sqlite3_context *);
        intptr_t arg;
    } all[] = {{"cbrt", 1, numbers_of_one, NULL, NULL, CBRT},
               {"cot", 1, numbers_of_one, NULL, NULL, COT},
               {"even", 1, numbers_of_one, NULL, NULL, EVEN},
               {"factorial", 1, numbers_of_one, NULL, NULL, FACTORIAL},
               {"isnan", 1, numbers_of_one, NULL, NULL, ISNAN},
               {"isinf", 1, numbers_of_one, NULL, NULL, ISINF},
               {"isfinite", 1, numbers_of_one, NULL, NULL, ISFINITE},
               {"bit_count", 1, numbers_of_one, NULL, NULL, BIT_COUNT},
               {"gcd", 2, numbers_of_two, NULL, NULL, GCD},
               {"lcm", 2, numbers_of_two, NULL, NULL, LCM},
               {"xor", 2, numbers_of_two, NULL, NULL, XOR},
               {"trunc", 2, numbers_trunc, NULL, NULL, 0},
               {"nvl2", 3, numbers_instead, NULL, NULL, 0},
               {"nanvl", 2, numbers_instead, NULL, NULL, 1},
               {"arrow_typeof", 1, numbers_type, NULL, NULL, 0},
               {"corr", 2, NULL, pairs_step, pairs_final, CORR},
               {"covar_samp", 2, NULL, pairs_step, pairs_final, COVAR_SAMP},
               {"covar_pop", 2, NULL, pairs_step, pairs_final, COVAR_POP},
               {"regr_slope", 2, NULL, pairs_step, pairs_final, SLOPE},
               {"regr_intercept", 2, NULL, pairs_step, pairs_final, INTERCEPT},
               {"regr_r2", 2, NULL, pairs_step, pairs_final, R2},
               {"regr_count", 2, NULL, pairs_step, pairs_final, REGR_COUNT},
               {"bit_and", 1, NULL, gather_step, gather_final, BIT_AND},
               {"bit_or", 1, NULL, gather_step, gather_final, BIT_OR},
               {"bit_xor", 1, NULL, gather_step, gather_final, BIT_XOR},
               {"product", 1, NULL, gather_step, gather_final, PRODUCT},
               {"geomean", 1, NULL, gather_step, gather_final, GEOMEAN},
               {"count_if", 1, NULL, gather_step, gather_final, COUNT_IF},
               {"countif", 1, NULL, gather_step, gather_final, COUNT_IF}};
    int rc = SQLITE_OK;

    for (size_t i = 0; rc == SQLITE_OK && i < sizeof all / sizeof *all; i++)
        rc = sqlite3_create_function_v2(
            db, all[i].name, all[i].args, SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
            (void *)all[i].arg, all[i].each, all[i].step, all[i].final, NULL);
    return rc;
}
