/* SPDX-License-Identifier: Apache-2.0 */
#include "regex.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "regex_parts.h"

int regex_compile(const char *pattern, int flags, struct regex **out, const char **why) {
    struct regex *re = calloc(1, sizeof *re);

    *out = NULL;
    *why = "there is no memory";
    int err = re ? re_parse(pattern, flags, re, why) : -ENOMEM;
    if (!err) {
        size_t n = (size_t)re->nsteps;
        re->seen = calloc(n, sizeof *re->seen);
        re->lists[0].thread = malloc(n * sizeof *re->lists[0].thread);
        re->lists[1].thread = malloc(n * sizeof *re->lists[1].thread);
        err = re->seen && re->lists[0].thread && re->lists[1].thread ? 0 : -ENOMEM;
    }
    if (err)
        regex_free(re);
    else
        *out = re;
    return err;
}

void regex_free(struct regex *re) {
    if (!re)
        return;
    free(re->seen);
    free(re->lists[0].thread);
    free(re->lists[1].thread);
    free(re);
}

int regex_groups(const struct regex *re) {
    return re->groups < REGEX_GROUPS ? re->groups : REGEX_GROUPS - 1;
}

/* ---- matching ---- */

static int re_is_word(unsigned char c) {
    return isalnum(c) || c == '_';
}

/* Adds the step and all that it leads to without a character, the preferred way first. */
static void re_follow(struct regex *re, struct re_threads *to, int at, const char *text, size_t n,
                      size_t pos, size_t slot[REGEX_SLOTS]) {
    const struct re_step *s = &re->step[at];
    size_t old;

    if (re->seen[at] == re->now)
        return;
    re->seen[at] = re->now;
    int before = pos > 0 && re_is_word((unsigned char)text[pos - 1]),
        after = pos < n && re_is_word((unsigned char)text[pos]);
    switch (s->kind) {
    case RE_JUMP:
        re_follow(re, to, s->x, text, n, pos, slot);
        return;
    case RE_SPLIT:
        re_follow(re, to, s->x, text, n, pos, slot);
        re_follow(re, to, s->y, text, n, pos, slot);
        return;
    case RE_SAVE:
        old = slot[s->x];
        slot[s->x] = pos;
        re_follow(re, to, at + 1, text, n, pos, slot);
        slot[s->x] = old;
        return;
    case RE_BEGIN:
    case RE_END:
    case RE_WORD:
    case RE_NO_WORD:
        if (s->kind == RE_BEGIN ? pos == 0
            : s->kind == RE_END ? pos == n
                                : (before != after) == (s->kind == RE_WORD))
            re_follow(re, to, at + 1, text, n, pos, slot);
        return;
    default:
        to->thread[to->n].at = at;
        memcpy(to->thread[to->n++].slot, slot, REGEX_SLOTS * sizeof *slot);
    }
}

static int re_in_class(const struct regex *re, const struct re_step *s, uint32_t c) {
    for (int i = 0; i < s->y; i++)
        if (c >= re->range[s->x + i].first && c <= re->range[s->x + i].last)
            return 1;
    return 0;
}

static int re_takes(const struct regex *re, const struct re_step *s, uint32_t c) {
    uint32_t other = c;

    if (s->no_case && c < 0x80 && isalpha((int)c))
        other = c ^ 0x20;
    if (s->kind == RE_ANY)
        return c != '\n';
    if (s->kind == RE_CHAR)
        return s->c == c || s->c == other;
    return (re_in_class(re, s, c) || re_in_class(re, s, other)) != (int)s->c;
}

int regex_search(struct regex *re, const char *text, size_t n, size_t from,
                 size_t at[REGEX_SLOTS]) {
    struct re_threads *now = &re->lists[0], *next = &re->lists[1], *other;
    size_t none[REGEX_SLOTS], pos = from;
    int found = 0;

    for (int i = 0; i < REGEX_SLOTS; i++)
        none[i] = REGEX_NOWHERE;
    now->n = 0;
    memset(re->seen, 0, (size_t)re->nsteps * sizeof *re->seen);
    re->now = 1;
    for (;;) {
        if (!found) /* a match that begins here comes after those that have begun */
            re_follow(re, now, 0, text, n, pos, none);
        if (!now->n && (found || pos >= n))
            return found;
        const char *p = text + pos;
        uint32_t c = pos < n ? re_code(&p) : 0;
        size_t end = (size_t)(p - text);
        re->now++;
        next->n = 0;
        for (int i = 0; i < now->n; i++) {
            struct re_thread *t = &now->thread[i];
            const struct re_step *s = &re->step[t->at];
            if (s->kind == RE_DONE) {
                memcpy(at, t->slot, sizeof t->slot);
                found = 1;
                break; /* those that follow are not preferred */
            }
            if (pos < n && re_takes(re, s, c))
                re_follow(re, next, t->at + 1, text, n, end, t->slot);
        }
        if (pos >= n)
            return found;
        other = now;
        now = next;
        next = other;
        pos = end;
    }
}
