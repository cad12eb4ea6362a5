/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_functions.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "interval.h"
#include "sql_aggregates.h"
#include "sql_calendar.h"
#include "sql_casts.h"
#include "sql_lists.h"
#include "sql_mode.h"
#include "sql_numbers.h"
#include "sql_ordered.h"
#include "sql_picks.h"
#include "sql_regex.h"
#include "sql_series.h"
#include "sql_texts.h"
#include "time_format.h"
#include "time_read.h"
#include "when.h"

/* ---- times ---- */

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
    if (sql_casts_time(ctx, v[0], &t))
        sqlite3_result_double(ctx, t);
}

/* to_timestamp_millis(x) and its like: the user data is the number of units in a second. */
static void to_timestamp_of(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double parts = (double)(intptr_t)sqlite3_user_data(ctx);

    (void)n;
    if (sqlite3_value_type(v[0]) == SQLITE_TEXT)
        to_timestamp(ctx, n, v);
    else if (sqlite3_value_type(v[0]) != SQLITE_NULL)
        sqlite3_result_double(ctx, sqlite3_value_double(v[0]) / parts);
}

/* epoch_ms(ts) and its like: the other way. */
static void epoch_of(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double t;

    (void)n;
    if (!sql_casts_time(ctx, v[0], &t))
        return;
    t *= (double)(intptr_t)sqlite3_user_data(ctx);
    if (fabs(t) < 9.2e18)
        sqlite3_result_int64(ctx, llround(t));
    else
        sqlite3_result_error(ctx, "epoch_ns: this time has more nanoseconds than 64 bits hold", -1);
}

static void to_date(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double t;

    (void)n;
    if (sql_casts_time(ctx, v[0], &t))
        sqlite3_result_double(ctx, floor(t / 86400) * 86400);
}

enum field {
    YEAR,
    QUARTER,
    MONTH,
    WEEK,
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    MILLISECOND,
    MICROSECOND,
    DOW,
    ISODOW,
    DOY,
    ISOYEAR,
    EPOCH,
    NFIELDS
};
static const char *const field_names[NFIELDS] = {
    "year",        "quarter",     "month", "week",   "day", "hour",    "minute", "second",
    "millisecond", "microsecond", "dow",   "isodow", "doy", "isoyear", "epoch"};

/* Parses a field name, such as "hour" or "HOURS". Returns NFIELDS, after setting an error, when there is no such field. */
static enum field field_of(sqlite3_context *ctx, sqlite3_value *v) {
    const char *name = (const char *)sqlite3_value_text(v);
    size_t n = name ? strlen(name) : 0;

    if (n > 1 && (name[n - 1] == 's' || name[n - 1] == 'S'))
        n--;
    for (int f = 0; f < NFIELDS; f++) {
        if (n && strlen(field_names[f]) == n && sqlite3_strnicmp(name, field_names[f], (int)n) == 0)
            return (enum field)f;
    }
    sqlite3_result_error(
        ctx,
        "no such part of a time: year, quarter, month, week, day, hour, minute, "
        "second, millisecond, microsecond (date_part: dow, isodow, doy, isoyear, epoch too)",
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
    case MILLISECOND: /* with those of the seconds */
    case MICROSECOND:
        value = llround((tm.tm_sec + t - floor(t)) * (f == MILLISECOND ? 1e3 : 1e6));
        break;
    case DOW:
        value = tm.tm_wday;
        break;
    case ISODOW:
        value = tm.tm_wday ? tm.tm_wday : 7;
        break;
    case ISOYEAR:
        strftime(week, sizeof week, "%G", &tm);
        value = atoi(week);
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
    if (f != NFIELDS && sql_casts_time(ctx, v[1], &t))
        part(ctx, f, t);
}

/* year(ts) and its like: the user data is the field. */
static void one_part(sqlite3_context *ctx, int n, sqlite3_value **v) {
    enum field f = (enum field)(intptr_t)sqlite3_user_data(ctx);
    double t;

    (void)n;
    if (sql_casts_time(ctx, v[0], &t))
        part(ctx, f, t);
}

static void date_trunc(sqlite3_context *ctx, int n, sqlite3_value **v) {
    enum field f = field_of(ctx, v[0]);
    double t;

    (void)n;
    if (f == NFIELDS || !sql_casts_time(ctx, v[1], &t))
        return;
    if (f > MICROSECOND) {
        sqlite3_result_error(
            ctx,
            "date_trunc: year, quarter, month, week, day, hour, minute, second, millisecond or microsecond",
            -1);
        return;
    }
    if (f > SECOND) {
        double unit = f == MILLISECOND ? 1e3 : 1e6;
        /* a double is not exact to 1e-7 s: .123 must not become .122 */
        sqlite3_result_double(ctx, floor(t * unit + 1e-3) / unit);
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

/* to_char(ts, 'YYYY-MM-DD'), to_char(ts, '%Y-%m-%d'). */
static void to_char(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *format = (const char *)sqlite3_value_text(v[1]);
    char *text;
    double t;

    (void)n;
    if (!format || !sql_casts_time(ctx, v[0], &t))
        return;
    int err = time_format(llround(t * 1e6), format, &text);
    if (err == -EINVAL) {
        char *why = sqlite3_mprintf(
            "to_char: no format of a time: %.60s (such as 'YYYY-MM-DD HH24:MI:SS' or '%%Y-%%m-%%d')",
            format);
        sqlite3_result_error(ctx, why ? why : "to_char: no format of a time", -1);
        sqlite3_free(why);
    } else if (err) {
        sqlite3_result_error_nomem(ctx);
    } else {
        sqlite3_result_text(ctx, text, -1, free);
    }
}

/* interval('5 minutes') returns seconds, for programs that cannot parse INTERVAL '5 minutes'. */
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
        {"to_char", 2, to_char, 0},
        {"date_format", 2, to_char, 0},
        {"year", 1, one_part, YEAR},
        {"month", 1, one_part, MONTH},
        {"day", 1, one_part, DAY},
        {"hour", 1, one_part, HOUR},
        {"minute", 1, one_part, MINUTE},
        {"second", 1, one_part, SECOND},
        {"quarter", 1, one_part, QUARTER},
        {"week", 1, one_part, WEEK},
        {"dayofweek", 1, one_part, DOW},
        {"isodow", 1, one_part, ISODOW},
        {"dayofyear", 1, one_part, DOY},
        {"dayofmonth", 1, one_part, DAY},
        {"weekofyear", 1, one_part, WEEK},
        {"millisecond", 1, one_part, MILLISECOND},
        {"microsecond", 1, one_part, MICROSECOND},
        {"datepart", 2, date_part, 0},
        {"datetrunc", 2, date_trunc, 0},
        {"epoch_ms", 1, epoch_of, 1000},
        {"epoch_us", 1, epoch_of, 1000000},
        {"epoch_ns", 1, epoch_of, 1000000000},
        {"to_date", 1, to_date, 0},
        {"epoch", 1, to_timestamp, 0},
        {"to_unixtime", 1, to_timestamp, 0},
        {"from_unixtime", 1, to_timestamp, 0},
        {"to_timestamp_seconds", 1, to_timestamp_of, 1},
        {"to_timestamp_millis", 1, to_timestamp_of, 1000},
        {"to_timestamp_micros", 1, to_timestamp_of, 1000000},
        {"to_timestamp_nanos", 1, to_timestamp_of, 1000000000},
    };
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
    struct now *now = sqlite3_malloc(sizeof *now);
    int rc;

    if (!now)
        return SQLITE_NOMEM;
    now->known = 0;
    /* now() is declared constant for a connection, so that a range from now() is computed once, not for each row. SQLite frees `now`, even
     * when this fails. */
    rc = sqlite3_create_function_v2(db, "now", 0, SQLITE_UTF8 | SQLITE_DETERMINISTIC, now, do_now,
                                    NULL, NULL, sqlite3_free);
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof scalars / sizeof *scalars; i++)
        rc = sqlite3_create_function_v2(db, scalars[i].name, scalars[i].args, flags,
                                        (void *)scalars[i].arg, scalars[i].run, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sql_aggregates_register(db);
    if (rc == SQLITE_OK)
        rc = sql_picks_register(db);
    if (rc == SQLITE_OK)
        rc = sql_mode_register(db);
    if (rc == SQLITE_OK)
        rc = sql_casts_register(db);
    if (rc == SQLITE_OK)
        rc = sql_calendar_register(db);
    if (rc == SQLITE_OK)
        rc = sql_numbers_register(db);
    if (rc == SQLITE_OK)
        rc = sql_texts_register(db);
    if (rc == SQLITE_OK)
        rc = sql_ordered_register(db);
    if (rc == SQLITE_OK)
        rc = sql_regex_register(db);
    if (rc == SQLITE_OK)
        rc = sql_lists_register(db);
    if (rc == SQLITE_OK)
        rc = time_read_register(db);
    return rc == SQLITE_OK ? sql_series_register(db) : rc;
}
