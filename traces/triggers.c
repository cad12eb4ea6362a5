/* SPDX-License-Identifier: Apache-2.0 */
#include "triggers.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "decimal.h"

#define LEAST 1.1
#define MOST  1000.0

static const struct {
    const char *name;
    double threshold;
} kinds[TRIGGER_KINDS] = {
#define X(name, threshold) {#name, threshold},
    TRIGGERS(X)
#undef X
};

const char *trigger_name(enum trigger_kind kind) {
    return kind < TRIGGER_KINDS ? kinds[kind].name : "";
}

/* Parses an item of n bytes: "hang", "hang:20", "hang:60s". Returns 0 or -EINVAL. */
static int take(const char *item, size_t n, struct triggers *t) {
    const char *colon = memchr(item, ':', n);
    size_t len = colon ? (size_t)(colon - item) : n;
    char number[32];
    uint64_t millionths;
    for (unsigned k = 0; k < TRIGGER_KINDS; k++) {
        if (strlen(kinds[k].name) != len || memcmp(kinds[k].name, item, len))
            continue;
        t->on |= 1u << k;
        if (!colon)
            return 0;
        if (kinds[k].threshold == 0 || n - len - 1 >= sizeof number)
            return -EINVAL;
        memcpy(number, colon + 1, n - len - 1);
        number[n - len - 1] = 0;
        char *seconds = k == TRIGGER_hang ? strchr(number, 's') : NULL;
        if (seconds && !seconds[1]) { /* hang:60s */
            *seconds = 0;
            if (decimal_parse(number, 1, 86400, 1e6, &millionths) || !millionths)
                return -EINVAL;
            t->stall = (double)millionths / 1e6;
            return 0;
        }
        if (decimal_parse(number, LEAST, MOST, 1e6, &millionths) || !millionths)
            return -EINVAL;
        *(k == TRIGGER_hang ? &t->hang : &t->slow_step) = (double)millionths / 1e6;
        return 0;
    }
    return -EINVAL;
}

int triggers_parse(const char *text, struct triggers *out, char *why, size_t n) {
    struct triggers t = {0, kinds[TRIGGER_slow_step].threshold, kinds[TRIGGER_hang].threshold,
                         TRIGGER_STALL};
    if (!strcmp(text, "on") || !strcmp(text, "1")) {
        t.on = (1u << TRIGGER_KINDS) - 1;
    } else if (strcmp(text, "off") && strcmp(text, "0")) {
        const char *p = text;
        for (;; p++) {
            size_t len = strcspn(p, ",");
            if (take(p, len, &t)) {
                snprintf(why, n, "'%.*s' is none of these", (int)(len < 60 ? len : 60), p);
                return -EINVAL;
            }
            p += len;
            if (!*p)
                break;
        }
    }
    *out = t;
    return 0;
}

int triggers_check(const char *text, char *why, size_t n) {
    struct triggers t;
    return triggers_parse(text, &t, why, n);
}
