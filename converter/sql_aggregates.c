/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_aggregates.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- percentiles: all values of a group ---- */

enum {
    OF_VALUES = -1
}; /* in place of a percentile's largest value: that is 1, and the result must be one of the values */
struct values {
    double *v; /* sqlite3_malloc */
    size_t n, cap;
    double share; /* share: 0..1 */
    int of_values;
};

static void values_step(sqlite3_context *ctx, int n, sqlite3_value **v) {
    struct values *all = sqlite3_aggregate_context(ctx, sizeof *all);
    intptr_t most = (intptr_t)sqlite3_user_data(ctx); /* the largest value of p: 100 or 1 */
    int type = sqlite3_value_type(v[0]);

    if (!all) {
        sqlite3_result_error_nomem(ctx);
        return;
    }
    double share =
        n < 2 ? 0.5 : sqlite3_value_double(v[1]) / (most == OF_VALUES ? 1 : (double)most);
    if (!(share >= 0 && share <= 1)) {
        sqlite3_result_error(ctx,
                             most == 100 ? "percentile(x, p): p is 0 to 100"
                                         : "percentile_cont(x, p): p is 0 to 1",
                             -1);
        return;
    }
    all->share = share;
    all->of_values = most == OF_VALUES;
    if (type != SQLITE_INTEGER && type != SQLITE_FLOAT)
        return;
    if (all->n == all->cap) {
        size_t cap = all->cap ? all->cap * 2 : 64;
        double *more = sqlite3_realloc64(all->v, cap * sizeof *more);
        if (!more) {
            sqlite3_result_error_nomem(ctx);
            return;
        }
        all->v = more;
        all->cap = cap;
    }
    all->v[all->n++] = sqlite3_value_double(v[0]);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void values_final(sqlite3_context *ctx) {
    struct values *all = sqlite3_aggregate_context(ctx, 0);

    if (!all || !all->n) {
        sqlite3_result_null(ctx);
    } else {
        qsort(all->v, all->n, sizeof *all->v, by_value);
        double at = all->share * (double)(all->n - 1);
        /* the first value that at least this share of the values does not exceed */
        if (all->of_values)
            at = fmax(ceil(all->share * (double)all->n) - 1, 0);
        size_t i = (size_t)at, k = i + 1 < all->n ? i + 1 : i;
        double low = all->v[i], share = at - (double)i;
        /* without a share of the next value: with an infinity, 0 times the difference would be no number */
        sqlite3_result_double(ctx,
                              share > 0 && all->v[k] > low ? low + share * (all->v[k] - low) : low);
    }
    if (all)
        sqlite3_free(all->v);
}

/* Returns all whole numbers of a group in ascending order, each once: "0-2,7,9-11". */
static void ranges_final(sqlite3_context *ctx) {
    struct values *all = sqlite3_aggregate_context(ctx, 0);
    size_t n = all ? all->n : 0, used = 0, k;
    char *text = n ? sqlite3_malloc64(n * 24) : NULL;

    if (!n)
        sqlite3_result_null(ctx);
    else if (!text)
        sqlite3_result_error_nomem(ctx);
    else
        qsort(all->v, n, sizeof *all->v, by_value);
    for (size_t i = 0; text && i < n; i = k) {
        for (k = i + 1; k < n && all->v[k] - all->v[k - 1] <= 1; k++)
            ;
        double first = all->v[i], last = all->v[k - 1];
        used += (size_t)sprintf(text + used, "%s%lld", i ? "," : "", (long long)first);
        if (last > first)
            used += (size_t)sprintf(text + used, "%c%lld", last - first > 1 ? '-' : ',',
                                    (long long)last);
    }
    if (text)
        sqlite3_result_text64(ctx, text, used, sqlite3_free, SQLITE_UTF8);
    if (all)
        sqlite3_free(all->v);
}

/* ---- variance, by Welford's recurrence ---- */

struct moments {
    double mean, squares; /* sum of squared differences from the mean */
    int64_t n;
};
enum { OF_SAMPLE = 0, OF_POPULATION = 1, ROOT = 2 };

static void moments_step(sqlite3_context *ctx, int n, sqlite3_value **v) {
    struct moments *m = sqlite3_aggregate_context(ctx, sizeof *m);
    int type = sqlite3_value_type(v[0]);

    (void)n;
    if (!m) {
        sqlite3_result_error_nomem(ctx);
        return;
    }
    if (type != SQLITE_INTEGER && type != SQLITE_FLOAT)
        return;
    double x = sqlite3_value_double(v[0]), d = x - m->mean;
    m->n++;
    m->mean += d / (double)m->n;
    m->squares += d * (x - m->mean);
}

static void moments_final(sqlite3_context *ctx) {
    const struct moments *m = sqlite3_aggregate_context(ctx, 0);
    intptr_t way = (intptr_t)sqlite3_user_data(ctx);
    int64_t by = m ? m->n - !(way & OF_POPULATION) : 0;

    if (by <= 0)
        sqlite3_result_null(ctx);
    else
        sqlite3_result_double(ctx,
                              way & ROOT ? sqrt(m->squares / (double)by) : m->squares / (double)by);
}

int sql_aggregates_register(sqlite3 *db) {
    static const struct {
        const char *name;
        int args;
        intptr_t most;
    } percentiles[] = {{"median", 1, 1},
                       {"approx_median", 1, 1},
                       {"percentile", 2, 100},
                       {"percentile_cont", 2, 1},
                       {"quantile_cont", 2, 1},
                       {"quantile", 2, 1},
                       {"approx_quantile", 2, 1},
                       {"approx_percentile_cont", 2, 1},
                       {"approx_percentile", 2, 1},
                       {"percentile_disc", 2, OF_VALUES},
                       {"quantile_disc", 2, OF_VALUES}};
    static const intptr_t whole = 1;
    static const struct {
        const char *name;
        intptr_t way;
    } variances[] = {
        {"stddev", ROOT},   {"stddev_samp", ROOT},   {"stddev_pop", ROOT | OF_POPULATION},
        {"var", OF_SAMPLE}, {"var_samp", OF_SAMPLE}, {"var_pop", OF_POPULATION}};
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
    int rc = SQLITE_OK;

    for (size_t i = 0; rc == SQLITE_OK && i < sizeof percentiles / sizeof *percentiles; i++)
        rc = sqlite3_create_function_v2(db, percentiles[i].name, percentiles[i].args, flags,
                                        (void *)percentiles[i].most, NULL, values_step,
                                        values_final, NULL);
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof variances / sizeof *variances; i++)
        rc = sqlite3_create_function_v2(db, variances[i].name, 1, flags, (void *)variances[i].way,
                                        NULL, moments_step, moments_final, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_create_function_v2(db, "ranges", 1, flags, (void *)whole, NULL, values_step,
                                        ranges_final, NULL);
    return rc;
}
