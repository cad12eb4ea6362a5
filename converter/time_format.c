/* SPDX-License-Identifier: Apache-2.0 */
#include "time_format.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};

struct when_text {
    struct tm tm;
    int64_t seconds;
    int us;
};

static int hour12(const struct when_text *w) {
    return w->tm.tm_hour % 12 ? w->tm.tm_hour % 12 : 12;
}

/* Returns a number that strftime() formats independently of the locale. */
static int number_of(const struct when_text *w, char what) {
    char format[] = {'%', what, 0}, text[32];

    return strftime(text, sizeof text, format, &w->tm) ? atoi(text) : 0;
}

/* ---- strftime ---- */

static int put_strftime(FILE *f, const struct when_text *w, const char *format);

/* Returns the specifiers that a shorthand stands for. */
static const char *longer(char c) {
    switch (c) {
    case 'c':
        return "%a %b %e %H:%M:%S %Y";
    case 'D':
    case 'x':
        return "%m/%d/%y";
    case 'F':
        return "%Y-%m-%d";
    case 'R':
        return "%H:%M";
    case 'T':
    case 'X':
        return "%H:%M:%S";
    case 'r':
        return "%I:%M:%S %p";
    case 'v':
        return "%e-%b-%Y";
    case '+':
        return "%Y-%m-%dT%H:%M:%S%.f+00:00";
    }
    return NULL;
}

/* Gets a number of the time, its digits, and the fill character. Returns 1 when the specifier is no number. */
static int number_at(const struct when_text *w, char c, int *digits, char *fill, int64_t *value) {
    const struct tm *tm = &w->tm;

    *digits = 2;
    *fill = strchr("ekl", c) ? ' ' : '0';
    switch (c) {
    case 'Y':
        *digits = 4;
        *value = tm->tm_year + 1900;
        return 0;
    case 'C':
        *value = (tm->tm_year + 1900) / 100;
        return 0;
    case 'y':
        *value = tm->tm_year % 100;
        return 0;
    case 'm':
        *value = tm->tm_mon + 1;
        return 0;
    case 'd':
    case 'e':
        *value = tm->tm_mday;
        return 0;
    case 'H':
    case 'k':
        *value = tm->tm_hour;
        return 0;
    case 'I':
    case 'l':
        *value = hour12(w);
        return 0;
    case 'M':
        *value = tm->tm_min;
        return 0;
    case 'S':
        *value = tm->tm_sec;
        return 0;
    case 'j':
        *digits = 3;
        *value = tm->tm_yday + 1;
        return 0;
    case 'G':
        *digits = 4;
        *value = number_of(w, c);
        return 0;
    case 'U':
    case 'W':
    case 'V':
    case 'g':
        *value = number_of(w, c);
        return 0;
    case 'u':
    case 'w':
        *digits = 1;
        *value = number_of(w, c);
        return 0;
    case 's':
        *digits = 1;
        *value = w->seconds;
        return 0;
    }
    return 1;
}

static void put_digits(FILE *f, int64_t value, int digits, char fill) {
    if (fill == '0')
        fprintf(f, "%0*lld", digits, (long long)value);
    else
        fprintf(f, "%*lld", fill ? digits : 1, (long long)value);
}

/* Writes a fraction of a second with `digits` digits. 0: nanoseconds as in chrono: all nine digits or, after a point, as many as needed. */
static void put_parts(FILE *f, int us, int digits, int point) {
    char text[16];

    snprintf(text, sizeof text, "%06d000", us);
    if (!digits && point)
        digits = us == 0 ? 0 : us % 1000 ? 6 : 3;
    else if (!digits)
        digits = 9;
    fprintf(f, "%s%.*s", point && digits ? "." : "", digits, text);
}

/* Writes %f, %.f, %.3f or %3f at `p`. NULL: it is none of these. */
static const char *put_fraction(FILE *f, const struct when_text *w, const char *p) {
    int point = *p == '.', digits = 0;

    p += point;
    if (*p == '3' || *p == '6' || *p == '9')
        digits = *p++ - '0';
    if (*p != 'f')
        return NULL;
    put_parts(f, w->us, digits, point);
    return p + 1;
}

/* Writes what stands behind a '%'. Returns the place after it, or NULL when it is unknown. */
static const char *put_one(FILE *f, const struct when_text *w, const char *p) {
    const char *more = put_fraction(f, w, p);
    int digits;
    char fill, asked = strchr("-_0", *p) && *p ? *p++ : 0;
    int64_t value;

    if (more)
        return more;
    if (number_at(w, *p, &digits, &fill, &value) == 0) {
        put_digits(f, value, digits, asked == '-' ? 0 : asked == '_' ? ' ' : asked ? '0' : fill);
        return p + 1;
    }
    if ((more = longer(*p))) {
        put_strftime(f, w, more);
        return p + 1;
    }
    switch (*p) {
    case 'a':
        fprintf(f, "%.3s", days[w->tm.tm_wday]);
        break;
    case 'A':
        fputs(days[w->tm.tm_wday], f);
        break;
    case 'b':
    case 'h':
        fprintf(f, "%.3s", months[w->tm.tm_mon]);
        break;
    case 'B':
        fputs(months[w->tm.tm_mon], f);
        break;
    case 'p':
        fputs(w->tm.tm_hour < 12 ? "AM" : "PM", f);
        break;
    case 'P':
        fputs(w->tm.tm_hour < 12 ? "am" : "pm", f);
        break;
    case 'Z':
        fputs("UTC", f);
        break;
    case 'z':
        fputs("+0000", f);
        break;
    case ':':
        if (p[1] != 'z')
            return NULL;
        fputs("+00:00", f);
        p++;
        break;
    case 't':
    case 'n':
        fputc(*p == 't' ? '\t' : '\n', f);
        break;
    case '%':
        fputc('%', f);
        break;
    default:
        return NULL;
    }
    return p + 1;
}

static int put_strftime(FILE *f, const struct when_text *w, const char *format) {
    for (const char *p = format; *p;) {
        if (*p != '%')
            fputc(*p++, f);
        else if (!(p = put_one(f, w, p + 1)))
            return -EINVAL;
    }
    return 0;
}

/* ---- PostgreSQL ---- */

enum pattern {
    PG_YEAR,
    PG_YEAR3,
    PG_YEAR2,
    PG_YEAR1,
    PG_ISO_YEAR,
    PG_MONTH_NAME,
    PG_MONTH_SHORT,
    PG_MONTH,
    PG_DAY_NAME,
    PG_DAY_SHORT,
    PG_YEARDAY,
    PG_DAY,
    PG_ISO_DAY,
    PG_WEEKDAY,
    PG_HOUR24,
    PG_HOUR12,
    PG_MINUTE,
    PG_DAY_SECONDS,
    PG_SECOND,
    PG_MILLI,
    PG_MICRO,
    PG_FRACTION,
    PG_HALF,
    PG_QUARTER,
    PG_WEEK,
    PG_ISO_WEEK,
    PG_MONTH_WEEK,
    PG_ZONE,
    PG_OFFSET,
    PG_JULIAN
};

static const struct {
    const char *text; /* longer ones come first */
    enum pattern what;
} patterns[] = {
    {"YYYY", PG_YEAR},    {"IYYY", PG_ISO_YEAR}, {"MONTH", PG_MONTH_NAME}, {"SSSS", PG_DAY_SECONDS},
    {"HH24", PG_HOUR24},  {"HH12", PG_HOUR12},   {"YYY", PG_YEAR3},        {"MON", PG_MONTH_SHORT},
    {"DDD", PG_YEARDAY},  {"DAY", PG_DAY_NAME},  {"FF1", PG_FRACTION},     {"FF2", PG_FRACTION},
    {"FF3", PG_FRACTION}, {"FF4", PG_FRACTION},  {"FF5", PG_FRACTION},     {"FF6", PG_FRACTION},
    {"YY", PG_YEAR2},     {"MM", PG_MONTH},      {"MI", PG_MINUTE},        {"MS", PG_MILLI},
    {"DD", PG_DAY},       {"DY", PG_DAY_SHORT},  {"HH", PG_HOUR12},        {"SS", PG_SECOND},
    {"US", PG_MICRO},     {"AM", PG_HALF},       {"PM", PG_HALF},          {"WW", PG_WEEK},
    {"IW", PG_ISO_WEEK},  {"ID", PG_ISO_DAY},    {"TZ", PG_ZONE},          {"OF", PG_OFFSET},
    {"Y", PG_YEAR1},      {"D", PG_WEEKDAY},     {"Q", PG_QUARTER},        {"W", PG_MONTH_WEEK},
    {"J", PG_JULIAN}};

/* Writes a name in the case of the pattern: all capitals, capitalized, or small. */
static void put_cased(FILE *f, const char *name, int n, int width, const char *pattern) {
    int upper = isupper((unsigned char)pattern[0]) != 0,
        all = isupper((unsigned char)pattern[0]) && isupper((unsigned char)pattern[1]), i;

    for (i = 0; name[i] && (n == 0 || i < n); i++) {
        int c = (unsigned char)name[i];
        fputc(all || (upper && i == 0) ? toupper(c) : tolower(c), f);
    }
    for (; i < width; i++)
        fputc(' ', f);
}

static void put_pattern(FILE *f, const struct when_text *w, enum pattern what, const char *text,
                        int bare) {
    static const int tens[] = {100000, 10000, 1000, 100, 10, 1};
    const struct tm *tm = &w->tm;
    int year = tm->tm_year + 1900, weekday = tm->tm_wday;
    char fill = bare ? 0 : '0';

    switch (what) {
    case PG_YEAR:
        put_digits(f, year, 4, fill);
        break;
    case PG_YEAR3:
        put_digits(f, year % 1000, 3, fill);
        break;
    case PG_YEAR2:
        put_digits(f, year % 100, 2, fill);
        break;
    case PG_YEAR1:
        put_digits(f, year % 10, 1, fill);
        break;
    case PG_ISO_YEAR:
        put_digits(f, number_of(w, 'G'), 4, fill);
        break;
    case PG_MONTH_NAME:
        put_cased(f, months[tm->tm_mon], 0, bare ? 0 : 9, text);
        break;
    case PG_MONTH_SHORT:
        put_cased(f, months[tm->tm_mon], 3, 0, text);
        break;
    case PG_MONTH:
        put_digits(f, tm->tm_mon + 1, 2, fill);
        break;
    case PG_DAY_NAME:
        put_cased(f, days[weekday], 0, bare ? 0 : 9, text);
        break;
    case PG_DAY_SHORT:
        put_cased(f, days[weekday], 3, 0, text);
        break;
    case PG_YEARDAY:
        put_digits(f, tm->tm_yday + 1, 3, fill);
        break;
    case PG_DAY:
        put_digits(f, tm->tm_mday, 2, fill);
        break;
    case PG_ISO_DAY:
        put_digits(f, weekday ? weekday : 7, 1, fill);
        break;
    case PG_WEEKDAY:
        put_digits(f, weekday + 1, 1, fill);
        break;
    case PG_HOUR24:
        put_digits(f, tm->tm_hour, 2, fill);
        break;
    case PG_HOUR12:
        put_digits(f, hour12(w), 2, fill);
        break;
    case PG_MINUTE:
        put_digits(f, tm->tm_min, 2, fill);
        break;
    case PG_DAY_SECONDS:
        put_digits(f, tm->tm_hour * 3600 + tm->tm_min * 60 + tm->tm_sec, 1, fill);
        break;
    case PG_SECOND:
        put_digits(f, tm->tm_sec, 2, fill);
        break;
    case PG_MILLI:
        put_digits(f, w->us / 1000, 3, '0');
        break;
    case PG_MICRO:
        put_digits(f, w->us, 6, '0');
        break;
    case PG_FRACTION:
        put_digits(f, w->us / tens[text[2] - '1'], text[2] - '0', '0');
        break;
    case PG_HALF:
        put_cased(f, tm->tm_hour < 12 ? "AM" : "PM", 0, 0, text);
        break;
    case PG_QUARTER:
        put_digits(f, tm->tm_mon / 3 + 1, 1, fill);
        break;
    case PG_WEEK:
        put_digits(f, tm->tm_yday / 7 + 1, 2, fill);
        break;
    case PG_ISO_WEEK:
        put_digits(f, number_of(w, 'V'), 2, fill);
        break;
    case PG_MONTH_WEEK:
        put_digits(f, (tm->tm_mday - 1) / 7 + 1, 1, fill);
        break;
    case PG_ZONE:
        put_cased(f, "UTC", 0, 0, text);
        break;
    case PG_OFFSET:
        fputs("+00", f);
        break;
    case PG_JULIAN: /* of the day that began at midnight */
        put_digits(
            f, (w->seconds - (tm->tm_hour * 3600 + tm->tm_min * 60 + tm->tm_sec)) / 86400 + 2440588,
            1, fill);
        break;
    }
}

static int put_patterns(FILE *f, const struct when_text *w, const char *p) {
    int any = 0;

    while (*p) {
        int bare = strncasecmp(p, "FM", 2) == 0;
        size_t i = 0, n = sizeof patterns / sizeof *patterns;
        const char *at = p + 2 * bare;
        while (i < n && strncasecmp(at, patterns[i].text, strlen(patterns[i].text)) != 0)
            i++;
        if (i < n) {
            put_pattern(f, w, patterns[i].what, at, bare);
            p = at + strlen(patterns[i].text);
            any = 1;
        } else if (*p == '"') {
            for (p++; *p && *p != '"'; p++)
                fputc(*p, f);
            p += *p == '"';
        } else {
            fputc(*p++, f);
        }
    }
    return any ? 0 : -EINVAL;
}

int time_format(int64_t us, const char *format, char **out) {
    struct when_text w = {.us = (int)(us % 1000000)};
    size_t size;
    int err = 0;

    if (w.us < 0)
        w.us += 1000000;
    w.seconds = (us - w.us) / 1000000;
    time_t whole = (time_t)w.seconds;
    gmtime_r(&whole, &w.tm);
    *out = NULL;
    FILE *f = open_memstream(out, &size);
    if (!f)
        return -ENOMEM;
    err = strchr(format, '%') ? put_strftime(f, &w, format) : put_patterns(f, &w, format);
    if (fclose(f) != 0 && !err)
        err = -ENOMEM;
    if (err) {
        free(*out);
        *out = NULL;
    }
    return err;
}
