/* SPDX-License-Identifier: Apache-2.0 */
#include "when.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "../traces/records.h"

#define SECOND 1000000000ll

int when_duration(const char *text, int64_t *ns) {
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"ns", 1},         {"us", 1e3},      {"ms", 1e6},      {"s", 1e9},
                 {"", 1e9},         {"sec", 1e9},     {"second", 1e9},  {"seconds", 1e9},
                 {"m", 60e9},       {"min", 60e9},    {"mins", 60e9},   {"minute", 60e9},
                 {"minutes", 60e9}, {"h", 3600e9},    {"hour", 3600e9}, {"hours", 3600e9},
                 {"d", 86400e9},    {"day", 86400e9}, {"days", 86400e9}};
    char *end;

    if (!isdigit((unsigned char)*text) && *text != '.')
        return -EINVAL;
    double n = strtod(text, &end);
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].name) == 0 && n * units[i].ns < 9e18) {
            *ns = (int64_t)(n * units[i].ns);
            return 0;
        }
    return -EINVAL;
}

/* Reads the digits after a point as nanoseconds. */
static const char *fraction(const char *p, int64_t *ns) {
    int64_t scale = SECOND / 10;

    for (*ns = 0; isdigit((unsigned char)*p); p++, scale /= 10)
        *ns += (*p - '0') * scale;
    return p;
}

static int zone(const char *p, int64_t *seconds) {
    int h, m = 0, n = 0;

    *seconds = 0;
    if (*p == 0)
        return 0;
    p += *p == ' ';
    if (strcasecmp(p, "Z") == 0 || strcasecmp(p, "UTC") == 0 || strcasecmp(p, "GMT") == 0)
        return 0;
    if ((*p != '+' && *p != '-') ||
        (sscanf(p + 1, "%2d:%2d%n", &h, &m, &n) < 2 && sscanf(p + 1, "%2d%2d%n", &h, &m, &n) < 2 &&
         sscanf(p + 1, "%2d%n", &h, &n) < 1) ||
        p[1 + n] || h < 0 || m < 0 || h > 15 || m > 59)
        return -EINVAL;
    *seconds = (*p == '-' ? -1 : 1) * (h * 3600 + m * 60);
    return 0;
}

/* Parses a date, with or without a time of day: whole seconds since the epoch, and *part nanoseconds more. */
static int calendar(const char *text, int64_t *seconds, int64_t *part) {
    struct tm tm = {0};
    const char *p = strptime(text, "%Y-%m-%d", &tm);
    int64_t off;

    *part = 0;
    if (!p)
        return -EINVAL;
    if (*p == 'T' || (*p == ' ' && isdigit((unsigned char)p[1]))) {
        const char *q = strptime(p + 1, "%H:%M:%S", &tm);
        p = q ? q : strptime(p + 1, "%H:%M", &tm);
        if (p && q && *p == '.')
            p = fraction(p + 1, part);
    }
    if (!p || zone(p, &off) != 0)
        return -EINVAL;
    int day = tm.tm_mday;
    *seconds = (int64_t)timegm(&tm) - off;
    return tm.tm_mday == day ? 0 : -EINVAL; /* the 30th of February */
}

/* Parses an absolute time, in the same way. */
static int absolute(const char *text, int64_t *seconds, int64_t *part) {
    char *end;

    if (calendar(text, seconds, part) == 0)
        return 0;
    *seconds = strtoll(text, &end, 10);
    if (end == text || *seconds < 0 || *seconds > INT64_MAX / SECOND - 1)
        return -EINVAL;
    *part = 0;
    const char *p = *end == '.' ? fraction(end + 1, part) : end;
    return *p ? -EINVAL : 0;
}

int64_t when_add(int64_t a, int64_t b) {
    int64_t c;

    return !__builtin_add_overflow(a, b, &c) ? c : a < 0 ? INT64_MIN : INT64_MAX;
}

int when_parse(const char *text, struct when *w) {
    int64_t seconds, part;

    if (*text == '+' || *text == '-') {
        w->from = *text == '+' ? WHEN_AFTER_FIRST : WHEN_BEFORE_LAST;
        return when_duration(text + 1, &w->ns);
    }
    w->from = WHEN_UTC;
    if (absolute(text, &seconds, &part) != 0)
        return -EINVAL;
    /* nanoseconds go from 1677 to 2262: a year before or after stands for the beginning or end of all time */
    if (__builtin_mul_overflow(seconds, SECOND, &w->ns))
        w->ns = seconds < 0 ? INT64_MIN : INT64_MAX;
    w->ns = when_add(w->ns, part);
    return 0;
}

int when_text(const char *text, double *out) {
    int64_t seconds, part;

    if (absolute(text, &seconds, &part) != 0)
        return -EINVAL;
    *out = (double)seconds + (double)part / 1e9;
    return 0;
}

int64_t when_utc(const struct when *w, int64_t first, int64_t last) {
    return w->from == WHEN_UTC           ? w->ns
           : w->from == WHEN_AFTER_FIRST ? when_add(first, w->ns)
                                         : when_add(last, -w->ns);
}

#define BIT(type) (1ull << TRACE_##type)

int when_kinds(const char *list, uint64_t *types, char bad[32]) {
    static const struct {
        const char *name;
        uint64_t types;
    } kinds[] = {
        {"samples", BIT(sample)},
        {"torch", BIT(torch_calls) | BIT(torch_cuda) | BIT(torch_memory)},
        {"comm", BIT(comm)},
        {"metrics", BIT(cpu) | BIT(memory) | BIT(io) | BIT(network) | BIT(gpu) | BIT(memory_step)},
        {"program", BIT(span) | BIT(span_end) | BIT(event) | BIT(event_value)},
        {"variables", BIT(variable)},
        {"triggers", BIT(trigger)}};

    *types = 0;
    for (;;) {
        size_t n = strcspn(list, ","), i = 0;
        while (i < sizeof kinds / sizeof *kinds &&
               (strlen(kinds[i].name) != n || memcmp(kinds[i].name, list, n) != 0))
            i++;
        if (i == sizeof kinds / sizeof *kinds) {
            snprintf(bad, 32, "%.*s", (int)(n < 31 ? n : 31), list);
            return -EINVAL;
        }
        *types |= kinds[i].types;
        if (!list[n])
            return 0;
        list += n + 1;
    }
}

int when_is_column(const char *name) {
    static const char *const times[] = {"timestamp", "start",         "end",         "enter",
                                        "exit",      "started",       "ended",       "finished",
                                        "unloaded",  "process_start", "first_enter", "last_enter"};

    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (strcmp(name, times[i]) == 0)
            return 1;
    return 0;
}

int when_seconds(double seconds, int64_t *ns) {
    if (!(fabs(seconds) < 9.2e9))
        return -EDOM;
    *ns = (int64_t)seconds * 1000000000 + llrint((seconds - trunc(seconds)) * 1e9);
    return 0;
}
