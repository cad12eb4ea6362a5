/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part.h - a part is a feature of the agent: a table of functions that the core calls, listed in agent/parts.c. The core includes
 * no header of a part; a new part needs a folder and a line in that list.
 *
 *     const struct agent_part gpu_part = {.metrics = gpu_metrics, .leave = gpu_leave};
 *
 * A function that is NULL is skipped. The parts are called in the order of the list, on the service thread unless said otherwise.
 * No function fails: what cannot be done is noted in the trace (meta.h). In the order of a recording's life:
 *
 *   open        The recording begins: the writer is open, threads of the program may write already. The fork lock is held
 *   python      CPython has been found and is initialised
 *   round       Called in each round of the service thread
 *   metrics     Called at the interval of the setting `metrics`, and once at the end
 *   wait        Returns the ns until the part wants the next round, or UINT64_MAX
 *   triggered   A trigger's stacks are being recorded: writes the operations in progress that began before `before` (ns)
 *   flush       A client is about to read the trace: records that the part holds back go into the rings
 *   quit        The recording ends: threads of the program are to write no more. w: NULL where nothing can be written; `stays`: the
 *               process goes on, so all that the part put into the program is to be taken out again
 *   halt        Stops the part's own threads and signal handlers from writing. Returns 0; -EBUSY: some may still access the live file,
 *               which then stays mapped for ever. Also called when the trace can no longer be written. The fork lock is held
 *   close       Writes the last records; no other thread writes. Not called where writing has failed. The fork lock is held
 *   free        The trace is closed or given up: frees what the part keeps for a recording. The fork lock is held
 *   leave       The trace is closed and the process goes on: takes out what the part put into the program
 *   child       Called in a forked child, within fork() itself. Async-signal-safe
 *   cpu_ns      Returns the CPU time of the part's threads and handlers in this recording, ns
 *   request     Takes a request of the mailbox: returns 1 when it is for this part, which replies now or later
 *   attend      Called before the mailbox is read: sends replies that are ready. Returns 1 while a request is in progress
 *   ended       The recording has ended: returns 1 when a request was still in progress, to which the part will not reply
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

/* All parts, lower layers first, then a NULL (agent/parts.c). */
extern const struct agent_part *const agent_parts[];

/* PARTS_CALL(round, w, now) calls one function of every part that has it; PARTS_SUM adds up the values that they return. */
#define PARTS_CALL(hook, ...)     PARTS_DO(hook, (*p_)->hook(__VA_ARGS__))
#define PARTS_SUM(sum, hook, ...) PARTS_DO(hook, (sum) += (*p_)->hook(__VA_ARGS__))
#define PARTS_DO(hook, what)                                                                       \
    do                                                                                             \
        for (const struct agent_part *const *p_ = agent_parts; *p_; p_++)                          \
            if ((*p_)->hook)                                                                       \
                what;                                                                              \
    while (0)

#endif
