/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part.h - what a feature of the agent offers to the core: one table of functions, listed in agent/parts.c. The core includes
 * no header of a feature; a new one is a folder and a line in that list.
 *
 *     const struct agent_part gpu_part = {.metrics = gpu_metrics, .leave = gpu_leave};
 *
 * A function that is NULL is left out. They are called in the order of the list, by the service thread where nothing else is said;
 * none of them fails: what cannot be done is noted in the trace (meta.h). In the order of a recording's life:
 *
 *   open        it begins: the writer is open, threads of the program may write already. The fork lock is held
 *   python      CPython has been found and is initialised
 *   round       a round of the service thread
 *   metrics     at the interval of the setting `metrics`, and once at the end
 *   wait        ns until it wants the next round; UINT64_MAX: no wish
 *   triggered   a trigger's stacks are being recorded: writes what it has in progress that began before `before` (ns)
 *   flush       somebody reads the trace now: what the part keeps back goes into the rings
 *   quit        it ends, threads of the program are to write no more. w: NULL where nothing can be written; `stays`: the
 *               process goes on, so all that was put into it is taken out again
 *   halt        the part's own threads and signal handlers write no more. 0; -EBUSY: some are not out of the live file's memory,
 *               which then stays mapped for ever. Also when the trace can no longer be written. The fork lock is held
 *   close       nobody else writes: the last records. Not where writing has failed. The fork lock is held
 *   free        the trace is closed, or given up: what the part keeps for a recording goes. The fork lock is held
 *   leave       the trace is closed and the process goes on: what was put into it is taken out
 *   child       in a forked child, in fork() itself. Async-signal-safe
 *   cpu_ns      CPU time of these in this recording, ns
 *   request     a request of the mailbox: 1 when it is this part's, which replies now or later
 *   attend      before the mailbox is read: replies what is ready. 1 while a request is in progress
 *   ended       the recording has ended: 1 when a request was still in progress; nobody will reply to it
 */
#ifndef PROBING_AGENT_PART_H
#define PROBING_AGENT_PART_H

#include "writer/writer.h"

struct agent_python;

struct agent_part {
    void (*open)(struct writer *w);
    void (*python)(const struct agent_python *py);
    void (*round)(struct writer *w, uint64_t now);
    void (*metrics)(struct writer *w);
    uint64_t (*wait)(uint64_t now);
    void (*triggered)(struct writer *w, uint64_t before);
    void (*flush)(void);
    void (*quit)(struct writer *w, int stays);
    int (*halt)(void);
    void (*close)(struct writer *w);
    void (*free)(void);
    void (*leave)(void);
    void (*child)(void);
    uint64_t (*cpu_ns)(void);
    int (*request)(struct live *l, enum mail_kind kind, const char *text, size_t len);
    int (*attend)(struct live *l);
    int (*ended)(struct live *l);
};

/* agent/parts.c: all of them, from below to above, and a NULL. */
extern const struct agent_part *const agent_parts[];

/* Calls one function of every part that has it: PARTS_CALL(round, w, now); PARTS_SUM adds up what they return. */
#define PARTS_CALL(hook, ...)     PARTS_DO(hook, (*p_)->hook(__VA_ARGS__))
#define PARTS_SUM(sum, hook, ...) PARTS_DO(hook, (sum) += (*p_)->hook(__VA_ARGS__))
#define PARTS_DO(hook, what)                                                                       \
    do                                                                                             \
        for (const struct agent_part *const *p_ = agent_parts; *p_; p_++)                          \
            if ((*p_)->hook)                                                                       \
                what;                                                                              \
    while (0)

#endif
