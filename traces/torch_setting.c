/* SPDX-License-Identifier: Apache-2.0 */
#include "torch_setting.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "decimal.h"
#include "exprs.h"

#define RATE_MIN 0.001

static int is_word(const char *s, size_t n, const char *word) {
    return n == strlen(word) && !strncmp(s, word, n);
}

static int parse_rate(const char *s, size_t n, uint32_t *rate) {
    char text[32];
    uint64_t v;
    if (n >= sizeof text)
        return -EINVAL;
    memcpy(text, s, n);
    text[n] = 0;
    if (decimal_parse(text, RATE_MIN, 1, DECIMAL_MILLION, &v) || !v)
        return -EINVAL;
    *rate = (uint32_t)v;
    return 0;
}

static int parse_switch(const char *s, size_t n, int *out) {
    *out = is_word(s, n, "on") || is_word(s, n, "1");
    return *out || is_word(s, n, "off") || is_word(s, n, "0") ? 0 : -EINVAL;
}

static int parse_amount(const char *s, size_t n, enum torch_amount *out) {
    static const struct {
        const char *word;
        enum torch_amount amount;
    } words[] = {{"auto", TORCH_AUTO}, {"on", TORCH_AUTO},  {"1", TORCH_AUTO},
                 {"all", TORCH_ALL},   {"off", TORCH_NONE}, {"0", TORCH_NONE}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_word(s, n, words[i].word)) {
            *out = words[i].amount;
            return 0;
        }
    return -EINVAL;
}

static int add_expr(struct torch_setting *t, const char *s, size_t n) {
    size_t have = strlen(t->exprs);
    if (have + n + 2 > sizeof t->exprs)
        return -EINVAL;
    snprintf(t->exprs + have, sizeof t->exprs - have, "%s%.*s", have ? "," : "", (int)n, s);
    return 0;
}

/* Parses one item. *in_exprs: the previous item belongs to exprs, which this one may continue. */
static int parse_item(const char *s, size_t n, struct torch_setting *t, int *in_exprs, char *why,
                      size_t size) {
    const char *eq = memchr(s, '=', n);
    size_t key = eq ? (size_t)(eq - s) : 0, len = eq ? n - key - 1 : 0;
    int err = -EINVAL;
    if (!eq && *in_exprs)
        return add_expr(t, s, n);
    *in_exprs = 0;
    if (!eq) {
        err = parse_switch(s, n, &t->on);
        if (err && !(err = parse_rate(s, n, &t->rate)))
            t->on = 1;
    } else if (is_word(s, key, "rate")) {
        err = parse_rate(eq + 1, len, &t->rate);
    } else if (is_word(s, key, "layer_rate")) {
        err = parse_rate(eq + 1, len, &t->layer_rate);
    } else if (is_word(s, key, "backward")) {
        err = parse_switch(eq + 1, len, &t->backward);
    } else if (is_word(s, key, "cuda")) {
        err = parse_amount(eq + 1, len, &t->cuda);
    } else if (is_word(s, key, "memory")) {
        err = parse_amount(eq + 1, len, &t->memory);
    } else if (is_word(s, key, "exprs")) {
        *in_exprs = 1;
        err = len ? add_expr(t, eq + 1, len) : 0;
    }
    if (err)
        snprintf(why, size, "%.*s is none of these", (int)(n < 80 ? n : 80), s);
    return err;
}

int torch_setting_parse(const char *text, struct torch_setting *t, char *why, size_t n) {
    int err = 0, in_exprs = 0;
    *t = (struct torch_setting){.on = 1,
                                .rate = DECIMAL_MILLION,
                                .layer_rate = DECIMAL_MILLION,
                                .backward = 1,
                                .cuda = TORCH_AUTO,
                                .memory = TORCH_AUTO};
    for (const char *s = text; !err && *s;) {
        size_t len = strcspn(s, ",");
        if (len)
            err = parse_item(s, len, t, &in_exprs, why, n);
        s += len + (s[len] == ',');
    }
    return err;
}

int torch_setting_check(const char *text, char *why, size_t n) {
    struct torch_setting t;
    struct exprs x = {.n = 0};
    int err = torch_setting_parse(text, &t, why, n);
    return err ? err : exprs_parse(t.exprs, &x, why, n);
}
