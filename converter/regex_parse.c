/* SPDX-License-Identifier: Apache-2.0 */
#include "regex_parts.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REGEX_NODES  2000
#define REGEX_DEPTH  100
#define REGEX_REPEAT 1000

struct re_node {
    enum re_kind kind;
    int a, b;             /* nodes; a class' first range and their number; a group's number is b */
    int min, max, short_; /* of a repetition; max -1: without end */
    uint32_t c;           /* a character; of a class 1: all others */
    int no_case;
};

struct re_parser {
    const char *p, *why;
    struct regex *re;
    struct re_node node[REGEX_NODES];
    int nnodes, depth, no_case, err;
};

/* ---- parsing ---- */

static int re_fail(struct re_parser *r, const char *why) {
    if (!r->err) {
        r->err = -EINVAL;
        r->why = why;
    }
    return 0;
}

static int re_node(struct re_parser *r, enum re_kind kind, int a, int b) {
    if (r->nnodes == REGEX_NODES)
        return re_fail(r, "it is too long");
    r->node[r->nnodes] = (struct re_node){.kind = kind, .a = a, .b = b, .no_case = r->no_case};
    return r->nnodes++;
}

static void re_add_range(struct re_parser *r, uint32_t first, uint32_t last) {
    if (r->re->nranges == REGEX_RANGES)
        re_fail(r, "it is too long");
    else
        r->re->range[r->re->nranges++] = (struct re_range){first, last};
}

/* Adds the ranges of \d, \w, \s and of their opposites. Returns 0 if c is none of these. */
static int re_add_named(struct re_parser *r, char c) {
    static const struct re_range digits[] = {{'0', '9'}},
                                 words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                                 blanks[] = {{'\t', '\r'}, {' ', ' '}};
    int lower = tolower((unsigned char)c);
    const struct re_range *of = lower == 'd' ? digits : lower == 'w' ? words : blanks;
    int n = lower == 'd' ? 1 : lower == 'w' ? 4 : 2;
    uint32_t from = 0;

    if (!strchr("dws", lower))
        return 0;
    for (int i = 0; i < n; i++) {
        if (c == lower)
            re_add_range(r, of[i].first, of[i].last);
        else if (from < of[i].first)
            re_add_range(r, from, of[i].first - 1);
        from = of[i].last + 1;
    }
    if (c != lower)
        re_add_range(r, from, 0x10ffff);
    return 1;
}

static uint32_t re_escaped(struct re_parser *r, uint32_t c) {
    static const char letters[] = "ntrfv", means[] = "\n\t\r\f\v";
    const char *at = c < 0x80 && c ? strchr(letters, (int)c) : NULL;

    if (at)
        return (unsigned char)means[at - letters];
    if (c < 0x80 && (isalnum((int)c) || !c))
        re_fail(r, c >= '1' && c <= '9' ? "references to groups are not known"
                                        : "there is no such escape");
    return c;
}

/* Adds the class at "[:alpha:]". Returns 0 if there is none. */
static int re_add_posix(struct re_parser *r) {
    static const struct {
        const char *name;
        int (*is)(int);
    } all[] = {{"[:alpha:]", isalpha}, {"[:digit:]", isdigit},  {"[:alnum:]", isalnum},
               {"[:space:]", isspace}, {"[:upper:]", isupper},  {"[:lower:]", islower},
               {"[:punct:]", ispunct}, {"[:xdigit:]", isxdigit}};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t n = strlen(all[i].name);
        if (strncmp(r->p, all[i].name, n) != 0)
            continue;
        for (int c = 0; c < 0x80; c++)
            if (all[i].is(c))
                re_add_range(r, (uint32_t)c, (uint32_t)c);
        r->p += n;
        return 1;
    }
    return 0;
}

static int re_class(struct re_parser *r) {
    int node = re_node(r, RE_CLASS, r->re->nranges, 0), first = 1;

    r->node[node].c = *r->p == '^';
    r->p += *r->p == '^';
    for (; *r->p && (*r->p != ']' || first) && !r->err; first = 0) {
        if (*r->p == '[' && re_add_posix(r))
            continue;
        if (*r->p == '\\' && re_add_named(r, r->p[1])) {
            r->p += 2;
            continue;
        }
        uint32_t a = re_code(&r->p), b;
        a = a == '\\' ? re_escaped(r, re_code(&r->p)) : a;
        b = a;
        if (*r->p == '-' && r->p[1] && r->p[1] != ']') {
            r->p++;
            b = re_code(&r->p);
            b = b == '\\' ? re_escaped(r, re_code(&r->p)) : b;
        }
        if (b < a)
            re_fail(r, "a range is the wrong way round");
        re_add_range(r, a, b);
    }
    if (*r->p++ != ']')
        return r->p--, re_fail(r, "a ] is missing");
    r->node[node].b = r->re->nranges - r->node[node].a;
    return node;
}

static int re_either(struct re_parser *r);

static int re_group(struct re_parser *r) {
    int no_case = r->no_case, number = 0, inner;

    if (*r->p == '?') {
        if (strncmp(r->p, "?i)", 3) == 0) {
            r->no_case = 1;
            r->p += 3;
            return re_node(r, RE_EMPTY, 0, 0);
        }
        if (strncmp(r->p, "?:", 2) != 0 && strncmp(r->p, "?i:", 3) != 0)
            return re_fail(r, "looking ahead and named groups are not known");
        r->no_case |= r->p[1] == 'i';
        r->p += r->p[1] == 'i' ? 3 : 2;
    } else {
        number = ++r->re->groups;
    }
    inner = re_either(r);
    r->no_case = no_case;
    if (*r->p != ')')
        return re_fail(r, "a ) is missing");
    r->p++;
    return number && number < REGEX_GROUPS ? re_node(r, RE_GROUP, inner, number) : inner;
}

static int re_atom(struct re_parser *r) {
    uint32_t c = re_code(&r->p);
    int node;

    switch (c) {
    case '(':
        return re_group(r);
    case '[':
        return re_class(r);
    case '.':
        return re_node(r, RE_ANY, 0, 0);
    case '^':
        return re_node(r, RE_BEGIN, 0, 0);
    case '$':
        return re_node(r, RE_END, 0, 0);
    case '*':
    case '+':
    case '?':
        return re_fail(r, "there is nothing to repeat");
    case '\\':
        if (!*r->p)
            return re_fail(r, "it ends with a backslash");
        if (strchr("bBAz", *r->p)) {
            char what = *r->p++;
            return re_node(r,
                           what == 'b'   ? RE_WORD
                           : what == 'B' ? RE_NO_WORD
                           : what == 'A' ? RE_BEGIN
                                         : RE_END,
                           0, 0);
        }
        node = re_node(r, RE_CLASS, r->re->nranges, 0);
        if (re_add_named(r, *r->p)) {
            r->p++;
            r->node[node].b = r->re->nranges - r->node[node].a;
            return node;
        }
        c = re_escaped(r, re_code(&r->p));
    }
    node = re_node(r, RE_CHAR, 0, 0);
    r->node[node].c = c;
    return node;
}

/* Reads {2}, {2,} or {2,5} at the '{'. Returns 0 if it is something else: then the '{' is a character. */
static int re_count(struct re_parser *r, int *min, int *max) {
    char *p = (char *)(uintptr_t)r->p + 1;

    if (!isdigit((unsigned char)*p))
        return 0;
    long a = strtol(p, &p, 10), b = a;
    if (*p == ',')
        b = isdigit((unsigned char)p[1]) ? strtol(p + 1, &p, 10) : (p++, -1);
    if (*p != '}')
        return 0;
    if (a > REGEX_REPEAT || b > REGEX_REPEAT || (b >= 0 && b < a))
        re_fail(r, "a repetition is from 0 to 1000 times");
    *min = (int)a;
    *max = (int)b;
    r->p = p + 1;
    return 1;
}

static int re_repeated(struct re_parser *r) {
    int inner = re_atom(r), min, max, outer;

    while (!r->err && *r->p) {
        min = *r->p == '+';
        max = *r->p == '?' ? 1 : -1;
        if (strchr("*+?", *r->p))
            r->p++;
        else if (*r->p != '{' || !re_count(r, &min, &max))
            break;
        outer = re_node(r, RE_REPEAT, inner, 0);
        r->node[outer].min = min;
        r->node[outer].max = max;
        r->node[outer].short_ = *r->p == '?';
        r->p += *r->p == '?';
        inner = outer;
    }
    return inner;
}

static int re_either(struct re_parser *r) {
    int left = -1, joined;

    if (++r->depth > REGEX_DEPTH)
        return re_fail(r, "too many groups lie within each other");
    for (;;) {
        joined = re_node(r, RE_EMPTY, 0, 0);
        while (!r->err && *r->p && *r->p != '|' && *r->p != ')') {
            int next = re_repeated(r);
            joined = re_node(r, RE_JOIN, joined, next);
        }
        left = left < 0 ? joined : re_node(r, RE_EITHER, left, joined);
        if (r->err || *r->p != '|')
            break;
        r->p++;
    }
    r->depth--;
    return left;
}

/* ---- the program ---- */

static int re_emit(struct re_parser *r, enum re_kind kind, int x, int y) {
    struct regex *re = r->re;

    if (re->nsteps == REGEX_STEPS)
        return re_fail(r, "it is too long");
    re->step[re->nsteps] = (struct re_step){.kind = kind, .x = x, .y = y};
    return re->nsteps++;
}

static void re_compile(struct re_parser *r, int n) {
    const struct re_node *node = &r->node[n];
    struct re_step *step = r->re->step;
    int split, jump,
        out = -1 - n; /* out: stands for the place behind a repetition until it is known */

    if (r->err)
        return;
    switch (node->kind) {
    case RE_EMPTY:
        break;
    case RE_JOIN:
        re_compile(r, node->a);
        re_compile(r, node->b);
        break;
    case RE_EITHER:
        split = re_emit(r, RE_SPLIT, r->re->nsteps + 1, 0);
        re_compile(r, node->a);
        jump = re_emit(r, RE_JUMP, 0, 0);
        step[split].y = r->re->nsteps;
        re_compile(r, node->b);
        step[jump].x = r->re->nsteps;
        break;
    case RE_GROUP:
        re_emit(r, RE_SAVE, 2 * node->b, 0);
        re_compile(r, node->a);
        re_emit(r, RE_SAVE, 2 * node->b + 1, 0);
        break;
    case RE_REPEAT:
        for (int i = 0; i < node->min && !r->err; i++)
            re_compile(r, node->a);
        for (int i = node->min; !r->err && (node->max < 0 ? i == node->min : i < node->max); i++) {
            split = re_emit(r, RE_SPLIT, 0, 0);
            re_compile(r, node->a);
            if (node->max < 0)
                re_emit(r, RE_JUMP, split, 0);
            step[split].x = node->short_ ? out : split + 1;
            step[split].y = node->short_ ? split + 1 : out;
        }
        /* the ways out of all the turns are known only now */
        for (int i = 0; i < r->re->nsteps && !r->err; i++)
            if (step[i].kind == RE_SPLIT && step[i].x == out)
                step[i].x = r->re->nsteps;
            else if (step[i].kind == RE_SPLIT && step[i].y == out)
                step[i].y = r->re->nsteps;
        break;
    default:
        split = re_emit(r, node->kind, node->a, node->b);
        step[split].c = node->c;
        step[split].no_case = node->no_case;
    }
}

int re_parse(const char *pattern, int flags, struct regex *re, const char **why) {
    struct re_parser *r = calloc(1, sizeof *r);

    if (!r)
        return -ENOMEM;
    r->p = pattern;
    r->re = re;
    r->no_case = flags & REGEX_NO_CASE;
    int all = re_either(r);
    if (*r->p == ')')
        re_fail(r, "a ( is missing");
    re_emit(r, RE_SAVE, 0, 0);
    re_compile(r, all);
    re_emit(r, RE_SAVE, 1, 0);
    re_emit(r, RE_DONE, 0, 0);
    int err = r->err;
    *why = r->why;
    free(r);
    return err;
}
