/* SPDX-License-Identifier: Apache-2.0 */
#include "time_read.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define TIME_READ_LONGEST 200 /* bytes of a format */

/* Reads digits as a fraction of a second. Returns what follows them, or NULL. */
static const char *time_read_fraction(const char *text, double *fraction) {
    const char *p = text;

    for (double digit = 0.1; isdigit((unsigned char)*p); digit /= 10)
        *fraction += (*p++ - '0') * digit;
    return p > text ? p : NULL;
}

/* Writes a pattern of PostgreSQL as a format of strptime(). Returns 0 or -EINVAL. */
static int time_read_pattern(const char *pattern, char *out, size_t size) {
    static const char *const all[][2] = {
        {"YYYY", "%Y"}, {"YY", "%y"}, {"MONTH", "%B"}, {"MON", "%b"}, {"MM", "%m"},
        {"DDD", "%j"},  {"DD", "%d"}, {"DAY", "%A"},   {"DY", "%a"},  {"HH24", "%H"},
        {"HH12", "%I"}, {"HH", "%I"}, {"MI", "%M"},    {"SS", "%S"},  {"MS", "%f"},
        {"US", "%f"},   {"AM", "%p"}, {"PM", "%p"}};
    size_t n = 0, i;

    for (const char *p = pattern; *p;) {
        for (i = 0; i < sizeof all / sizeof *all; i++)
            if (strncasecmp(p, all[i][0], strlen(all[i][0])) == 0)
                break;
        if (n + 3 > size)
            return -EINVAL;
        if (i < sizeof all / sizeof *all) {
            memcpy(out + n, all[i][1], 2);
            n += 2;
            p += strlen(all[i][0]);
        } else {
            out[n++] = *p++;
        }
    }
    out[n] = 0;
    return 0;
}

/* Returns the length of the field for a fraction at `p`, 0 if there is none. *point: whether the point belongs to it. */
static size_t time_read_is_fraction(const char *p, int *point) {
    size_t n = 1;

    *point = p[n] == '.';
    n += (size_t)*point;
    n += strchr("369", p[n]) && p[n] ? 1 : 0;
    return p[n] == 'f' ? n + 1 : 0;
}

int time_read(const char *text, const char *format, double *out) {
    struct tm tm = {.tm_mday = 1, .tm_year = 70};
    char form[TIME_READ_LONGEST], piece[TIME_READ_LONGEST];
    double fraction = 0;
    size_t n = 0, field;
    int point = 0;

    if (strchr(format, '%') ? snprintf(form, sizeof form, "%s", format) >= (int)sizeof form
                            : time_read_pattern(format, form, sizeof form) < 0)
        return -EINVAL;
    for (const char *p = form; text; p++) {
        field = *p == '%' ? time_read_is_fraction(p, &point) : 0;
        if (*p && !field) {
            piece[n++] = *p;
            if (*p == '%' && p[1])
                piece[n++] = *++p;
            continue;
        }
        piece[n] = 0;
        n = 0;
        text = *piece ? strptime(text, piece, &tm) : text;
        if (!*p)
            break;
        if (text && point && *text == '.')
            text = time_read_fraction(text + 1, &fraction);
        else if (text && !point)
            text = time_read_fraction(text, &fraction);
        p += field - 1;
    }
    if (!text || text[strspn(text, " ")])
        return -EINVAL;
    long ahead = tm.tm_gmtoff; /* timegm() clears it, and takes February 30 for March 2 */
    int day = tm.tm_mday;
    *out = (double)(timegm(&tm) - ahead) + fraction;
    return tm.tm_mday == day ? 0 : -EINVAL;
}

enum { TIME_READ_STAMP, TIME_READ_DATE, TIME_READ_TRY };

/* to_timestamp(text, format, ...): the first of the formats that fits. */
static void time_read_sql(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *text = n ? (const char *)sqlite3_value_text(v[0]) : NULL;
    intptr_t way = (intptr_t)sqlite3_user_data(ctx);
    double t;

    if (n < 2) {
        sqlite3_result_error(ctx, "a text and its format are needed: strptime(x, '%Y-%m-%d')", -1);
        return;
    }
    for (int i = 1; text && i < n; i++) {
        const char *format = (const char *)sqlite3_value_text(v[i]);
        if (!format)
            return;
        if (time_read(text, format, &t) != 0)
            continue;
        sqlite3_result_double(ctx, way == TIME_READ_DATE ? floor(t / 86400) * 86400 : t);
        return;
    }
    if (text && way != TIME_READ_TRY) {
        char *why =
            sqlite3_mprintf("no time of the form '%s': %.40s", sqlite3_value_text(v[1]), text);
        sqlite3_result_error(ctx, why ? why : "no memory", -1);
        sqlite3_free(why);
    }
}

int time_read_register(sqlite3 *db) {
    static const struct {
        const char *name;
        int args;
        intptr_t way;
    } all[] = {{"to_timestamp", -1, TIME_READ_STAMP},
               {"strptime", -1, TIME_READ_STAMP},
               {"str_to_date", 2, TIME_READ_STAMP},
               {"to_date", -1, TIME_READ_DATE},
               {"try_strptime", -1, TIME_READ_TRY}};
    int rc = SQLITE_OK;

    for (size_t i = 0; rc == SQLITE_OK && i < sizeof all / sizeof *all; i++)
        rc = sqlite3_create_function_v2(db, all[i].name, all[i].args,
                                        SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
                                        (void *)all[i].way, time_read_sql, NULL, NULL, NULL);
    return rc;
}
