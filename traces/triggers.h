/* SPDX-License-Identifier: Apache-2.0 */
/*
 * triggers.h - the setting `triggers`: at what the stacks of all threads are taken, and how sensitive that is.
 *
 *     struct triggers t;
 *     if (triggers_parse("slow_step:2.5,fatal", &t, why, sizeof why)) error(why);
 *     t.on == (1 << TRIGGER_slow_step | 1 << TRIGGER_fatal), t.slow_step == 2.5, t.stall == TRIGGER_STALL
 *
 * Pure: nothing allocates, nothing depends on the locale. Any thread.
 */
#ifndef PROBING_TRACES_TRIGGERS_H
#define PROBING_TRACES_TRIGGERS_H

#include <stddef.h>

#define TRIGGER_STALL 300 /* s, default */

/* X(name, default threshold in medians or 0) */
#define TRIGGERS(X)                                                                                \
    X(slow_step, 3)                                                                                \
    X(hang, 10)                                                                                    \
    X(exception, 0)                                                                                \
    X(fatal, 0)                                                                                    \
    X(term, 0)

enum trigger_kind {
#define X(name, threshold) TRIGGER_##name,
    TRIGGERS(X)
#undef X
        TRIGGER_KINDS
};

#define TRIGGERS_RANGE                                                                             \
    "on, off, or some of slow_step[:N],hang[:N],hang:Ns,exception,fatal,term with N, in medians "  \
    "of a step, from 1.1 to 1000; Ns: seconds, from 1 to 86400"

struct triggers {
    unsigned on;            /* bit TRIGGER_... */
    double slow_step, hang; /* medians of a step */
    double stall;           /* seconds: hang:300s, for before there is a median */
};

/* "slow_step", ...: static. */
const char *trigger_name(enum trigger_kind kind);
/* 0; -EINVAL, `why` says which part is wrong (TRIGGERS_RANGE what is allowed), *out is untouched. */
int triggers_parse(const char *text, struct triggers *out, char *why, size_t n);
/* The same for settings.def. */
int triggers_check(const char *text, char *why, size_t n);

#endif
