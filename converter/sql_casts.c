/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_casts.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "time_format.h"
#include "when.h"

#define ONE_DAY 86400

int sql_casts_time(sqlite3_context *ctx, sqlite3_value *v, double *out) {
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
        if (when_text((const char *)sqlite3_value_text(v), out) == 0)
            return 1;
        sqlite3_result_error(
            ctx, "no timestamp: seconds since the epoch, or 'YYYY-MM-DD HH:MM:SS' in UTC", -1);
        return 0;
    }
    sqlite3_result_null(ctx);
    return 0;
}

/* Sets the function's result to the time as a text, without the zeros at the end of its fraction. */
static void put_time(sqlite3_context *ctx, double t, const char *format) {
    char *text = NULL, *end;
    int64_t us = llround(t * 1e6);

    if (time_format(us, format, &text) < 0) {
        sqlite3_result_error_nomem(ctx);
        return;
    }
    end = strrchr(text, '.');
    for (char *p = text + strlen(text); end && p > end && (p[-1] == '0' || p[-1] == '.'); p--)
        p[-1] = 0;
    sqlite3_result_text(ctx, text, -1, free);
}

static void time_as_text(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double t;

    (void)n;
    if (sql_casts_time(ctx, v[0], &t))
        put_time(ctx, t, sqlite3_user_data(ctx));
}

/* Parses a time of day such as '12:00' or '12:00:00.25'. Returns it in seconds, or -1. */
static double clock_of(const char *text) {
    unsigned h, m;
    double s = 0;
    int n = 0, end;

    if (sscanf(text, "%2u:%2u%n", &h, &m, &n) < 2)
        return -1;
    if (text[n] == ':') {
        if (sscanf(text + n, ":%lf%n", &s, &end) < 1)
            return -1;
        n += end;
    }
    return text[n] || h > 23 || m > 59 || !(s >= 0 && s < 60) ? -1 : h * 3600 + m * 60 + s;
}

static void time_of_day(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *text =
        sqlite3_value_type(v[0]) == SQLITE_TEXT ? (const char *)sqlite3_value_text(v[0]) : NULL;
    double t = text ? clock_of(text) : -1;

    (void)n;
    if (t < 0 && !sql_casts_time(ctx, v[0], &t))
        return;
    put_time(ctx, t - floor(t / ONE_DAY) * ONE_DAY, "%H:%M:%S%.6f");
}

static void to_boolean(sqlite3_context *ctx, int n, sqlite3_value **v) {
    static const char *const words[] = {"false", "f", "no",  "n", "off", "0",
                                        "true",  "t", "yes", "y", "on",  "1"};
    const size_t many = sizeof words / sizeof *words;
    const char *text;

    (void)n;
    switch (sqlite3_value_type(v[0])) {
    case SQLITE_NULL:
        return;
    case SQLITE_TEXT:
        text = (const char *)sqlite3_value_text(v[0]);
        for (size_t i = 0; text && i < many; i++)
            if (strcasecmp(text, words[i]) == 0) {
                sqlite3_result_int(ctx, i >= many / 2);
                return;
            }
        if (!sqlite3_user_data(ctx))
            sqlite3_result_error(ctx, "no truth value: true, false, yes, no, on, off, 1 or 0", -1);
        return;
    default:
        sqlite3_result_int(ctx, sqlite3_value_double(v[0]) != 0);
    }
}

/* Returns the number that a text names in words, as in 'inf' and '-Infinity', or 0. */
static double infinity_of(const char *text) {
    int minus = *text == '-';

    text += minus;
    return strcasecmp(text, "inf") && strcasecmp(text, "infinity") ? 0
           : minus                                                 ? -INFINITY
                                                                   : INFINITY;
}

/* The operand of a cast to a number: SQLite's own CAST makes 0 of a text that is none. `way` is a set of these. */
enum { CAST_WHOLE = 1, CAST_TRY = 2 };
static void cast_number(sqlite3_context *ctx, int n, sqlite3_value **v) {
    intptr_t way = (intptr_t)sqlite3_user_data(ctx);
    int was = sqlite3_value_type(v[0]);
    char text[41] = "";

    (void)n;
    if (was == SQLITE_NULL)
        return;
    if (was == SQLITE_TEXT) /* before it is converted */
        sqlite3_snprintf(sizeof text, text, "%s", sqlite3_value_text(v[0]));
    int type = sqlite3_value_numeric_type(v[0]);
    if (way & CAST_WHOLE ? type == SQLITE_INTEGER ||
                               (was == SQLITE_FLOAT && fabs(sqlite3_value_double(v[0])) < 9.2e18)
                         : type == SQLITE_INTEGER || type == SQLITE_FLOAT) {
        sqlite3_result_value(ctx, v[0]);
        return;
    }
    double endless = !(way & CAST_WHOLE) ? infinity_of(text) : 0;
    if (endless != 0) {
        sqlite3_result_double(ctx, endless);
    } else if (!(way & CAST_TRY)) {
        char *why = sqlite3_mprintf(
            "no %s: '%s' (TRY_CAST gives NULL)", way & CAST_WHOLE ? "whole number" : "number",
            was == SQLITE_TEXT ? text : (const char *)sqlite3_value_text(v[0]));
        sqlite3_result_error(ctx, why ? why : "no number", -1);
        sqlite3_free(why);
    }
}

static void try_timestamp(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double t;

    (void)n;
    if (sqlite3_value_type(v[0]) != SQLITE_TEXT)
        sqlite3_result_value(ctx, v[0]);
    else if (when_text((const char *)sqlite3_value_text(v[0]), &t) == 0)
        sqlite3_result_double(ctx, t);
}

static void round_to(sqlite3_context *ctx, int n, sqlite3_value **v) {
    double x = sqlite3_value_double(v[0]);
    int places = sqlite3_value_int(v[1]);
    double unit = pow(10, abs(places));

    (void)n;
    if (sqlite3_value_type(v[0]) != SQLITE_NULL && sqlite3_value_type(v[1]) != SQLITE_NULL)
        sqlite3_result_double(ctx, places < 0 ? round(x / unit) * unit : round(x * unit) / unit);
}

int sql_casts_register(sqlite3 *db) {
    static char moment[] = "%Y-%m-%d %H:%M:%S%.6f", day[] = "%Y-%m-%d";
    static const struct {
        const char *name;
        int args;
        void (*run)(sqlite3_context *, int, sqlite3_value **);
        void *arg;
    } all[] = {{"time_text", 1, time_as_text, moment},
               {"date_text", 1, time_as_text, day},
               {"time_of_day", 1, time_of_day, NULL},
               {"to_boolean", 1, to_boolean, NULL},
               {"try_boolean", 1, to_boolean, moment},
               {"round_to", 2, round_to, NULL},
               {"try_timestamp", 1, try_timestamp, NULL},
               {"as_number", 1, cast_number, NULL},
               {"as_int", 1, cast_number, (void *)(intptr_t)CAST_WHOLE},
               {"try_number", 1, cast_number, (void *)(intptr_t)CAST_TRY},
               {"try_int", 1, cast_number, (void *)(intptr_t)(CAST_WHOLE | CAST_TRY)}};
    int rc = SQLITE_OK;

    for (size_t i = 0; rc == SQLITE_OK && i < sizeof all / sizeof *all; i++)
        rc = sqlite3_create_function_v2(db, all[i].name, all[i].args,
                                        SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
                                        all[i].arg, all[i].run, NULL, NULL, NULL);
    return rc;
}
