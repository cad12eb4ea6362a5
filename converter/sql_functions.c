/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_functions.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "interval.h"
#include "when.h"

/* ---- times ---- */

/* The timestamp in `v`. 1: there is one; 0: NULL, or an error was set. */
static int time_of(sqlite3_context *ctx, sqlite3_value *v, double *out) {
    struct when w;

    switch (sqlite3_value_type(v)) {
    case SQLITE_INTEGER:
    case SQLITE_FLOAT:
        *out = sqlite3_value_double(v);
        if (fabs(*out) < 1e11) /* the year 5138 */
            return 1;
        sqlite3_result_error(ctx, "a timestamp is seconds since the epoch: this one is too large",
                             -1);
        return 0;
    case SQLITE_TEXT:
        if (when_parse((const char *)sqlite3_value_text(v), &w) == 0 && w.from == WHEN_UTC) {
            *out = (double)(w.ns / 1000000000) + (double)(w.ns % 1000000000) / 1e9;
            return 1;
        }
        sqlite3_result_error(
            ctx, "no timestamp: seconds since the epoch, or 'YYYY-MM-DD HH:MM:SS' in UTC", -1);
        return 0;
    }
    sqlite3_result_null(ctx);
    return 0;
}

struct now {
    int known;
    double at;
};

static void do_now(sqlite3_context *ctx, int n, sqlite3_value **v) {
    struct now *now = sqlite3_user_data(ctx);
    sqlite3_stmt *st = NULL;

    (void)n, (void)v;
    if (!now->known) {
        struct timespec ts;
        clock_gettime(CLOCK_REALTIME, &ts);
        now->at = (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
        if (sqlite3_prepare_v2(sqlite3_context_db_handle(ctx),
                               "SELECT max(end_ts) / 1e9 FROM main.trace_file", -1, &st,
                               NULL) == SQLITE_OK &&
            sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) != SQLITE_NULL)
            now->at = sqlite3_column_double(st, 0);
        sqlite3_finalize(st);
        now->known = 1;
    }
    sqlite3_result_double(ctx, now->at);
}

static void to_timestamp(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double t;

    (void)n;
    if (time_of(ctx, v[0], &t))
        sqlite3_result_double(ctx, t);
}

/* to_timestamp_millis(x): how many of them are a second. */
static void to_timestamp_of(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double parts = (double)(intptr_t)sqlite3_user_data(ctx);

    (void)n;
    if (sqlite3_value_type(v[0]) == SQLITE_TEXT)
        to_timestamp(ctx, n, v);
    else if (sqlite3_value_type(v[0]) != SQLITE_NULL)
        sqlite3_result_double(ctx, sqlite3_value_double(v[0]) / parts);
}

enum field { YEAR, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE, SECOND, DOW, DOY, EPOCH, NFIELDS };
static const char *const field_names[NFIELDS] = {
    "year", "quarter", "month", "week", "day", "hour", "minute", "second", "dow", "doy", "epoch"};

/* "hour", "HOURS". NFIELDS: no such field, and an error was set. */
static enum field field_of(sqlite3_context *ctx, sqlite3_value *v) {
    const char *name = (const char *)sqlite3_value_text(v);
    size_t n = name ? strlen(name) : 0;

    if (n > 1 && (name[n - 1] == 's' || name[n - 1] == 'S'))
        n--;
    for (int f = 0; f < NFIELDS; f++) {
        if (n && strlen(field_names[f]) == n && sqlite3_strnicmp(name, field_names[f], (int)n) == 0)
            return (enum field)f;
    }
    sqlite3_result_error(ctx,
                         "no such part of a time: year, quarter, month, week, day, hour, minute, "
                         "second (date_part: dow, doy, epoch too)",
                         -1);
    return NFIELDS;
}

static void part(sqlite3_context *ctx, enum field f, double t) {
    time_t whole = (time_t)floor(t);
    struct tm tm;
    char week[8];

    gmtime_r(&whole, &tm);
    int64_t value = 0;
    switch (f) {
    case YEAR:
        value = tm.tm_year + 1900;
        break;
    case QUARTER:
        value = tm.tm_mon / 3 + 1;
        break;
    case MONTH:
        value = tm.tm_mon + 1;
        break;
    case WEEK: /* ISO 8601 */
        strftime(week, sizeof week, "%V", &tm);
        value = atoi(week);
        break;
    case DAY:
        value = tm.tm_mday;
        break;
    case HOUR:
        value = tm.tm_hour;
        break;
    case MINUTE:
        value = tm.tm_min;
        break;
    case SECOND:
        value = tm.tm_sec;
        break;
    case DOW:
        value = tm.tm_wday;
        break;
    case DOY:
        value = tm.tm_yday + 1;
        break;
    case EPOCH:
        sqlite3_result_double(ctx, t);
        return;
    case NFIELDS:
        return;
    }
    sqlite3_result_int64(ctx, value);
}

static void date_part(sqlite3_context *ctx, int n, sqlite3_value **v) {
    enum field f = field_of(ctx, v[0]);
    double t;

    (void)n;
    if (f != NFIELDS && time_of(ctx, v[1], &t))
        part(ctx, f, t);
}

/* year(ts) and its like: the field is the function's own. */
static void one_part(sqlite3_context *ctx, int n, sqlite3_value **v) {
    enum field f = (enum field)(intptr_t)sqlite3_user_data(ctx);
    double t;

    (void)n;
    if (time_of(ctx, v[0], &t))
        part(ctx, f, t);
}

static void date_trunc(sqlite3_context *ctx, int n, sqlite3_value **v) {
    enum field f = field_of(ctx, v[0]);
    double t;

    (void)n;
    if (f == NFIELDS || !time_of(ctx, v[1], &t))
        return;
    if (f > SECOND) {
        sqlite3_result_error(
            ctx, "date_trunc: year, quarter, month, week, day, hour, minute or second", -1);
        return;
    }
    time_t whole = (time_t)floor(t);
    struct tm tm;
    gmtime_r(&whole, &tm);
    if (f < SECOND)
        tm.tm_sec = 0;
    if (f < MINUTE)
        tm.tm_min = 0;
    if (f < HOUR)
        tm.tm_hour = 0;
    if (f == WEEK)
        tm.tm_mday -= (tm.tm_wday + 6) % 7; /* to Monday; timegm() takes days below 1 */
    else if (f < DAY)
        tm.tm_mday = 1;
    if (f == QUARTER)
        tm.tm_mon -= tm.tm_mon % 3;
    if (f == YEAR)
        tm.tm_mon = 0;
    sqlite3_result_double(ctx, (double)timegm(&tm));
}

static void date_bin(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double width = sqlite3_value_double(v[0]), t;

    (void)n;
    if (!(width > 0)) {
        sqlite3_result_error(ctx, "date_bin: the width must be more than 0 seconds", -1);
        return;
    }
    if (time_of(ctx, v[1], &t))
        sqlite3_result_double(ctx, floor(t / width) * width);
}

/* ---- percentiles: all values of a group ---- */

enum {
    OF_VALUES = -1
}; /* as a percentile's largest value: 1, and the answer is one of the values */
struct values {
    double *v; /* sqlite3_malloc */
    size_t n, cap;
    double share; /* 0..1 */
    int of_values;
};

static void values_step(sqlite3_context *ctx, int n, sqlite3_value **v) {
    struct values *all = sqlite3_aggregate_context(ctx, sizeof *all);
    intptr_t most =
        (intptr_t)sqlite3_user_data(ctx); /* what stands for the largest value: 100 or 1 */
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
        if (all->of_values) /* the first that so large a share is not above */
            at = fmax(ceil(all->share * (double)all->n) - 1, 0);
        size_t i = (size_t)at, k = i + 1 < all->n ? i + 1 : i;
        sqlite3_result_double(ctx, all->v[i] + (at - (double)i) * (all->v[k] - all->v[i]));
    }
    if (all)
        sqlite3_free(all->v);
}

/* All whole numbers of a group in ascending order, each once: "0-2,7,9-11". */
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

/* interval('5 minutes'): seconds; for who cannot be taught the syntax of INTERVAL '5 minutes'. */
static void interval(sqlite3_context *ctx, int argc, sqlite3_value **v) {
    const char *text = (const char *)sqlite3_value_text(v[0]);
    double seconds;

    (void)argc;
    if (!text)
        return;
    if (interval_parse(text, strlen(text), &seconds) == 0)
        sqlite3_result_double(ctx, seconds);
    else
        sqlite3_result_error(ctx, "no interval (such as '5 minutes', '1 hour 30 min')", -1);
}

/* ---- texts ---- */

/* Whether both are there: *a, *b. */
static int two_texts(sqlite3_value **v, const char **a, const char **b) {
    *a = (const char *)sqlite3_value_text(v[0]);
    *b = (const char *)sqlite3_value_text(v[1]);
    return *a && *b;
}

static void starts_with(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *text, *begin;

    (void)n;
    if (two_texts(v, &text, &begin))
        sqlite3_result_int(ctx, strncmp(text, begin, strlen(begin)) == 0);
}

static void contains(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *text, *part;

    (void)n;
    if (two_texts(v, &text, &part))
        sqlite3_result_int(ctx, strstr(text, part) != NULL);
}

/* split_part('a/b/c', '/', 2): 'b'; -1 is the last, '' where there is none. */
static void split_part(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *text, *by, *end;
    int64_t nth = sqlite3_value_int64(v[2]), parts = 1;

    (void)n;
    if (!two_texts(v, &text, &by) || sqlite3_value_type(v[2]) == SQLITE_NULL)
        return;
    size_t len = strlen(by);
    for (const char *p = text; len && (p = strstr(p, by)); p += len)
        parts++;
    if (nth < 0)
        nth += parts + 1;
    if (nth < 1 || nth > parts) {
        sqlite3_result_text(ctx, "", 0, SQLITE_STATIC);
        return;
    }
    while (--nth)
        text = strstr(text, by) + len;
    end = len ? strstr(text, by) : NULL;
    sqlite3_result_text(ctx, text, end ? (int)(end - text) : -1, SQLITE_TRANSIENT);
}

int sql_functions_register(sqlite3 *db) {
    static const struct {
        const char *name;
        int args;
        void (*run)(sqlite3_context *, int, sqlite3_value **);
        intptr_t arg;
    } scalars[] = {
        {"to_timestamp", 1, to_timestamp, 0},
        {"interval", 1, interval, 0},
        {"date_part", 2, date_part, 0},
        {"date_trunc", 2, date_trunc, 0},
        {"date_bin", 2, date_bin, 0},
        {"year", 1, one_part, YEAR},
        {"month", 1, one_part, MONTH},
        {"day", 1, one_part, DAY},
        {"hour", 1, one_part, HOUR},
        {"minute", 1, one_part, MINUTE},
        {"second", 1, one_part, SECOND},
        {"time_bucket", 2, date_bin, 0},
        {"quarter", 1, one_part, QUARTER},
        {"week", 1, one_part, WEEK},
        {"epoch", 1, to_timestamp, 0},
        {"to_unixtime", 1, to_timestamp, 0},
        {"from_unixtime", 1, to_timestamp, 0},
        {"to_timestamp_seconds", 1, to_timestamp_of, 1},
        {"to_timestamp_millis", 1, to_timestamp_of, 1000},
        {"to_timestamp_micros", 1, to_timestamp_of, 1000000},
        {"to_timestamp_nanos", 1, to_timestamp_of, 1000000000},
        {"starts_with", 2, starts_with, 0},
        {"contains", 2, contains, 0},
        {"split_part", 3, split_part, 0},
    };
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
    struct now *now = sqlite3_malloc(sizeof *now);
    int rc;

    if (!now)
        return SQLITE_NOMEM;
    now->known = 0;
    /* Constant in a connection: so a range from now() is found once, not in each row. SQLite frees `now`, also when this fails. */
    rc = sqlite3_create_function_v2(db, "now", 0, SQLITE_UTF8 | SQLITE_DETERMINISTIC, now, do_now,
                                    NULL, NULL, sqlite3_free);
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof scalars / sizeof *scalars; i++)
        rc = sqlite3_create_function_v2(db, scalars[i].name, scalars[i].args, flags,
                                        (void *)scalars[i].arg, scalars[i].run, NULL, NULL, NULL);
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
