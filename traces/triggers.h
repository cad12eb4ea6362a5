/* SPDX-License-Identifier: Apache-2.0 */
/*
 * triggers.h - the setting `triggers`: which events make the agent take the stacks of all threads, and how sensitive they are.
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

#define TRIGGER_STALL 300 /* default of `stall`, in seconds */

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
    unsigned on;            /* bit TRIGGER_...: it is on */
    double slow_step, hang; /* thresholds, in medians of a step */
    double stall;           /* hang:300s: threshold in seconds, for when there is no median yet */
};

/* Returns "slow_step", ...: a static string. */
const char *trigger_name(enum trigger_kind kind);
/* Returns 0, or -EINVAL with *out unchanged and `why` saying which part is wrong (TRIGGERS_RANGE says what is allowed). */
int triggers_parse(const char *text, struct triggers *out, char *why, size_t n);
/* The same check, with the type that settings.def needs. */
int triggers_check(const char *text, char *why, size_t n);

#endif
