/* SPDX-License-Identifier: Apache-2.0 */
#include "interval.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

double interval_unit(const char *p, size_t n) {
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"nanosecond", 1e-9},
                 {"ns", 1e-9},
                 {"microsecond", 1e-6},
                 {"us", 1e-6},
                 {"millisecond", 1e-3},
                 {"ms", 1e-3},
                 {"second", 1},
                 {"sec", 1},
                 {"s", 1},
                 {"minute", 60},
                 {"min", 60},
                 {"m", 60},
                 {"hour", 3600},
                 {"hr", 3600},
                 {"hrs", 3600},
                 {"h", 3600},
                 {"day", 86400},
                 {"d", 86400},
                 {"week", 604800},
                 {"w", 604800},
                 {"month", 2592000},
                 {"quarter", 7776000},
                 {"year", 31536000}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t k = strlen(units[i].name);
        if (n >= k && strncasecmp(p, units[i].name, k) == 0 &&
            (n == k || (n == k + 1 && k > 2 && (p[k] == 's' || p[k] == 'S'))))
            return units[i].seconds;
    }
    return 0;
}

/* Returns how many months are in the unit of n bytes at p, or 0 if it is a shorter one. */
static int months_in(const char *p, size_t n) {
    double unit = interval_unit(p, n);

    return unit == 31536000 ? 12 : unit == 7776000 ? 3 : unit == 2592000;
}

/* Reads a time of day, "01:30" or "-01:30:05.5", as a length. Returns its number of bytes, or 0 if it is none. */
static int clock_length(const char *p, size_t n, double *seconds) {
    char text[24];
    unsigned h, m;
    double s = 0;
    int minus = n && *p == '-', used = 0, more = 0;

    n = n < sizeof text ? n : sizeof text - 1; /* what follows it may be long */
    memcpy(text, p, n);
    text[n] = 0;
    if (!isdigit((unsigned char)text[minus]) ||
        sscanf(text + minus, "%4u:%2u%n", &h, &m, &used) < 2 || m > 59)
        return 0;
    used += minus;
    if (text[used] == ':' && isdigit((unsigned char)text[used + 1]) &&
        sscanf(text + used, ":%lf%n", &s, &more) == 1)
        used += more;
    *seconds = (minus ? -1 : 1) * (h * 3600 + m * 60 + s);
    return s < 60 ? used : 0;
}

int interval_parse(const char *p, size_t n, double *seconds) {
    return interval_split(p, n, NULL, seconds);
}

int interval_split(const char *p, size_t n, double *months, double *seconds) {
    const char *end = p + n;
    double sum = 0;
    int parts = 0;

    if (months)
        *months = 0;

    while (p < end) {
        char *next;
        size_t k = 0;
        while (p < end && isspace((unsigned char)*p))
            p++;
        if (p == end)
            break;
        double clock;
        int used = clock_length(p, (size_t)(end - p), &clock);
        if (used) {
            sum += clock;
            p += used;
            parts++;
            continue;
        }
        double value = strtod(p, &next);
        if (next == p || next > end)
            return -EINVAL;
        for (p = next; p < end && isspace((unsigned char)*p); p++)
            ;
        while (p + k < end && isalpha((unsigned char)p[k]))
            k++;
        double unit = interval_unit(p, k);
        if (unit == 0)
            return -EINVAL;
        int whole = months && value == (double)(int)value ? months_in(p, k) : 0;
        if (whole)
            *months += value * whole;
        else
            sum += value * unit;
        p += k;
        parts++;
    }
    *seconds = sum;
    return parts ? 0 : -EINVAL;
}
