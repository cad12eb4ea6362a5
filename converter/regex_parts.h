/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regex_parts.h - what the two halves of regex.h share: regex_parse.c makes a program of a pattern, regex.c runs it.
 *
 *     const char *p = text;
 *     uint32_t c = re_code(&p);       // the character at p, which is advanced
 */
#ifndef PROBING_CONVERTER_REGEX_PARTS_H
#define PROBING_CONVERTER_REGEX_PARTS_H

#include <stdint.h>

#include "regex.h"

#define REGEX_STEPS  5000
#define REGEX_RANGES 2000

enum re_kind {
    RE_EMPTY,
    RE_CHAR,
    RE_ANY,
    RE_CLASS,
    RE_BEGIN,
    RE_END,
    RE_WORD,
    RE_NO_WORD,
    RE_JOIN,
    RE_EITHER,
    RE_REPEAT,
    RE_GROUP,
    /* only in the program */
    RE_SPLIT,
    RE_JUMP,
    RE_SAVE,
    RE_DONE
};

struct re_step {
    enum re_kind kind;
    int x, y; /* of a SPLIT: the preferred way, and the other one; of a class, see re_node */
    uint32_t c;
    int no_case;
};

struct re_range {
    uint32_t first, last;
};

struct re_thread {
    int at;
    size_t slot[REGEX_SLOTS];
};
struct re_threads {
    struct re_thread *thread;
    int n;
};

struct regex {
    struct re_step step[REGEX_STEPS];
    struct re_range range[REGEX_RANGES];
    int nsteps, nranges, groups;
    unsigned *seen, now; /* by step: the position at which it was added last */
    struct re_threads lists[2];
};

static inline uint32_t re_code(const char **p) {
    unsigned char c = (unsigned char)*(*p)++;
    int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;
    uint32_t code = more == 3 ? c & 7 : more == 2 ? c & 15 : more ? c & 31 : c;

    for (; more && (**p & 0xc0) == 0x80; more--)
        code = code << 6 | (*(*p)++ & 0x3f);
    return code;
}

/* Makes the program in *re, which is zeroed. Returns 0, -ENOMEM or -EINVAL with the reason in *why. */
int re_parse(const char *pattern, int flags, struct regex *re, const char **why);

#endif
