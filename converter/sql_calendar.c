/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_calendar.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "interval.h"
#include "sql_casts.h"

#define ONE_DAY 86400
#define Y2000   946684800.0 /* Saturday, 2000-01-01 */
#define MONDAY  (Y2000 + 2.0 * ONE_DAY)
#define MONTHS_MOST                                                                                \
    1e6 /* what is added to a time, so that years stay numbers that struct tm can hold */
#define PER_MONTH 0 /* in place of the seconds of a part that is counted in months */

static struct tm split(double t) {
    time_t whole = (time_t)floor(t);
    struct tm tm;

    gmtime_r(&whole, &tm);
    return tm;
}

static int64_t months_of(double t) {
    struct tm tm = split(t);

    return ((int64_t)tm.tm_year + 1900) * 12 + tm.tm_mon;
}

static int days_in(int year, int month) {
    static const char days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

    return days[month] + (month == 1 && ((year % 4 == 0 && year % 100 != 0) || year % 400 == 0));
}

/* Returns the time that many months later; a day that the month does not have is its last one. */
static double add_months(double t, int64_t months) {
    struct tm tm = split(t);
    int64_t month = ((int64_t)tm.tm_year + 1900) * 12 + tm.tm_mon + months;
    int year = (int)(month >= 0 ? month / 12 : (month - 11) / 12), most;

    tm.tm_mon = (int)(month - (int64_t)year * 12);
    tm.tm_year = year - 1900;
    most = days_in(year, tm.tm_mon);
    tm.tm_mday = tm.tm_mday < most ? tm.tm_mday : most;
    return (double)timegm(&tm) + (t - floor(t));
}

/* Gets a length of time: seconds, or a text, in which months are counted by themselves. Returns 1, or 0 with an error or NULL as the result. */
static int length_of(sqlite3_context *ctx, sqlite3_value *v, double *months, double *seconds) {
    const char *text;

    *months = 0;
    *seconds = sqlite3_value_double(v);
    if (sqlite3_value_type(v) == SQLITE_NULL)
        return 0;
    if (sqlite3_value_numeric_type(v) != SQLITE_TEXT)
        return 1;
    text = (const char *)sqlite3_value_text(v);
    if (text && interval_split(text, strlen(text), months, seconds) == 0 &&
        fabs(*months) < MONTHS_MOST)
        return 1;
    sqlite3_result_error(ctx, "no interval (such as '5 minutes', '1 hour 30 min')", -1);
    return 0;
}

/* date_add(ts, length[, sign]); the user data is the sign where none is given. */
static void date_add(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double t, months, seconds, sign = (double)(intptr_t)sqlite3_user_data(ctx);

    if (n == 3)
        sign = sqlite3_value_double(v[2]);
    if (!sql_casts_time(ctx, v[0], &t) || !length_of(ctx, v[1], &months, &seconds))
        return;
    if (!(fabs(sign * months) < MONTHS_MOST)) {
        sqlite3_result_error(ctx, "date_add: this is longer than all time that there is", -1);
        return;
    }
    t = months != 0 ? add_months(t, (int64_t)(sign * months)) : t;
    sqlite3_result_double(ctx, t + sign * seconds);
}

/* The parts of a time that differences are counted in: seconds, or PER_MONTH and a number of months. */
static int unit_of(sqlite3_context *ctx, sqlite3_value *v, double *seconds, int *months) {
    static const struct {
        const char *name;
        int months;
    } longer[] = {{"month", 1}, {"quarter", 3}, {"year", 12}, {"decade", 120}, {"century", 1200}};
    const char *name = (const char *)sqlite3_value_text(v);
    size_t n = name ? strlen(name) : 0;

    *seconds = n ? interval_unit(name, n) : 0;
    *months = 0;
    for (size_t i = 0; n && i < sizeof longer / sizeof *longer; i++)
        if (sqlite3_strnicmp(name, longer[i].name, (int)strlen(longer[i].name)) == 0) {
            *months = longer[i].months;
            *seconds = PER_MONTH;
            return 1;
        }
    if (*seconds > 0)
        return 1;
    sqlite3_result_error(
        ctx,
        "no such part of a time: year, quarter, month, week, day, hour, minute, second, millisecond",
        -1);
    return 0;
}

static double bin_of(double t, double width, double origin) {
    return floor((t - origin) / width);
}

/* date_diff(FIELD, a, b) */
static void date_diff(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double a, b, seconds;
    int months;

    (void)n;
    if (!unit_of(ctx, v[0], &seconds, &months) || !sql_casts_time(ctx, v[1], &a) ||
        !sql_casts_time(ctx, v[2], &b))
        return;
    if (months)
        sqlite3_result_int64(ctx, months_of(b) / months - months_of(a) / months);
    else
        sqlite3_result_int64(ctx,
                             (int64_t)(bin_of(b, seconds, MONDAY) - bin_of(a, seconds, MONDAY)));
}

/* datediff(b, a): in days, the later one first. */
static void days_between(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double a, b;

    (void)n;
    if (sql_casts_time(ctx, v[0], &b) && sql_casts_time(ctx, v[1], &a))
        sqlite3_result_int64(ctx, (int64_t)(bin_of(b, ONE_DAY, 0) - bin_of(a, ONE_DAY, 0)));
}

/* date_sub(FIELD, a, b) */
static void whole_parts(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double a, b, seconds;
    int months;

    (void)n;
    if (!unit_of(ctx, v[0], &seconds, &months) || !sql_casts_time(ctx, v[1], &a) ||
        !sql_casts_time(ctx, v[2], &b))
        return;
    if (!months) {
        sqlite3_result_int64(ctx, (int64_t)trunc((b - a) / seconds));
        return;
    }
    int64_t between = months_of(b) - months_of(a);
    if (between > 0 && add_months(a, between) > b)
        between--;
    else if (between < 0 && add_months(a, between) < b)
        between++;
    sqlite3_result_int64(ctx, between / months);
}

static void age(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double a, b;

    (void)n;
    if (sql_casts_time(ctx, v[0], &a) && sql_casts_time(ctx, v[1], &b))
        sqlite3_result_double(ctx, a - b);
}

/* date_bin(WIDTH, ts[, ORIGIN]); with user data, time_bucket(), whose bins begin elsewhere. */
static void date_bin(sqlite3_context *ctx, int n, sqlite3_value **v) {
    int bucket = sqlite3_user_data(ctx) != NULL;
    double months, width, t, origin = 0;

    if (!length_of(ctx, v[0], &months, &width))
        return;
    if (bucket)
        origin = months != 0 ? Y2000 : MONDAY;
    if (!(months > 0 ? width == 0 && months == floor(months) : months == 0 && width > 0)) {
        sqlite3_result_error(
            ctx, "date_bin: the width must be more than 0 seconds, or whole months", -1);
        return;
    }
    if (!sql_casts_time(ctx, v[1], &t) || (n == 3 && !sql_casts_time(ctx, v[2], &origin)))
        return;
    if (months == 0) {
        sqlite3_result_double(ctx, origin + bin_of(t, width, origin) * width);
        return;
    }
    double bin = floor((double)(months_of(t) - months_of(origin)) / months);
    double begin = add_months(origin, (int64_t)(bin * months));
    sqlite3_result_double(ctx,
                          begin <= t ? begin : add_months(origin, (int64_t)((bin - 1) * months)));
}

static void make_time(sqlite3_context *ctx, int n, sqlite3_value **v) {
    static const int least[] = {0, 1, 1, 0, 0, 0}, most[] = {9999, 12, 31, 23, 59, 59};
    int part[6] = {0};
    double seconds = n > 5 ? sqlite3_value_double(v[5]) : 0;

    for (int i = 0; i < n; i++) {
        if (sqlite3_value_type(v[i]) == SQLITE_NULL)
            return;
        part[i] = sqlite3_value_int(v[i]);
        if (part[i] < least[i] || part[i] > most[i] ||
            (i == 2 && part[2] > days_in(part[0], part[1] - 1))) {
            sqlite3_result_error(
                ctx, n > 3 ? "make_timestamp: no such time" : "make_date: no such day", -1);
            return;
        }
    }
    struct tm tm = {.tm_year = part[0] - 1900,
                    .tm_mon = part[1] - 1,
                    .tm_mday = part[2],
                    .tm_hour = part[3],
                    .tm_min = part[4]};
    sqlite3_result_double(ctx, (double)timegm(&tm) + seconds);
}

static void last_day(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double t;

    (void)n;
    if (!sql_casts_time(ctx, v[0], &t))
        return;
    struct tm tm = split(t), day = {.tm_year = tm.tm_year,
                                    .tm_mon = tm.tm_mon,
                                    .tm_mday = days_in(tm.tm_year + 1900, tm.tm_mon)};
    sqlite3_result_double(ctx, (double)timegm(&day));
}

static void name_of(sqlite3_context *ctx, int n, sqlite3_value **v) {
    static const char *const names[] = {
        "Sunday",  "Monday",    "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday",
        "January", "February",  "March",   "April",     "May",      "June",   "July",
        "August",  "September", "October", "November",  "December"};
    double t;

    (void)n;
    if (!sql_casts_time(ctx, v[0], &t))
        return;
    struct tm tm = split(t);
    sqlite3_result_text(ctx, names[sqlite3_user_data(ctx) ? 7 + tm.tm_mon : tm.tm_wday], -1,
                        SQLITE_STATIC);
}

int sql_calendar_register(sqlite3 *db) {
    static const struct {
        const char *name;
        int args;
        void (*run)(sqlite3_context *, int, sqlite3_value **);
        intptr_t arg;
    } all[] = {{"date_add", 2, date_add, 1},
               {"date_add", 3, date_add, 1},
               {"date_sub", 2, date_add, -1},
               {"date_sub", 3, whole_parts, 0},
               {"datesub", 3, whole_parts, 0},
               {"date_diff", 3, date_diff, 0},
               {"datediff", 3, date_diff, 0},
               {"datediff", 2, days_between, 0},
               {"age", 2, age, 0},
               {"date_bin", 2, date_bin, 0},
               {"date_bin", 3, date_bin, 0},
               {"time_bucket", 2, date_bin, 1},
               {"time_bucket", 3, date_bin, 1},
               {"make_date", 3, make_time, 0},
               {"make_timestamp", 6, make_time, 0},
               {"last_day", 1, last_day, 0},
               {"dayname", 1, name_of, 0},
               {"monthname", 1, name_of, 1}};
    int rc = SQLITE_OK;

    for (size_t i = 0; rc == SQLITE_OK && i < sizeof all / sizeof *all; i++)
        rc = sqlite3_create_function_v2(db, all[i].name, all[i].args,
                                        SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
                                        (void *)all[i].arg, all[i].run, NULL, NULL, NULL);
    return rc;
}
