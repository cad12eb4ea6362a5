/* SPDX-License-Identifier: Apache-2.0 */
#include "interval.h"

#include <ctype.h>
#include <errno.h>
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
                 {"h", 3600},
                 {"day", 86400},
                 {"d", 86400},
                 {"week", 604800},
                 {"w", 604800},
                 {"month", 2592000},
                 {"year", 31536000}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t k = strlen(units[i].name);
        if (n >= k && strncasecmp(p, units[i].name, k) == 0 &&
            (n == k || (n == k + 1 && k > 2 && (p[k] == 's' || p[k] == 'S'))))
            return units[i].seconds;
    }
    return 0;
}

int interval_parse(const char *p, size_t n, double *seconds) {
    const char *end = p + n;
    double sum = 0;
    int parts = 0;

    while (p < end) {
        char *next;
        size_t k = 0;
        while (p < end && isspace((unsigned char)*p))
            p++;
        if (p == end)
            break;
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
        sum += value * unit;
        p += k;
        parts++;
    }
    *seconds = sum;
    return parts ? 0 : -EINVAL;
}
