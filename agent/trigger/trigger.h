/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trigger.h - event-triggered sampling: after an event, the stacks of all threads are written to the trace, which is then
 * flushed to disk. traces/triggers.h names the kinds of events.
 *
 *     struct trigger *t = trigger_new(TRIGGER_exception);      // NULL: off, not recording, or too many already
 *     if (t) { trigger_say(t, "ValueError: ..."); t->step = 7; trigger_post(t, 500); }
 *
 * The service thread does the work: it writes the record, asks the sampler for a burst (one sample of each thread), and flushes. The
 * posting thread may wait for that, for a bounded time, so that its stack stays as it is. trigger_new, trigger_say and trigger_post are
 * async-signal-safe. There are at most TRIGGER_MOST triggers of a kind in one recording.
 */
#ifndef PROBING_AGENT_TRIGGER_H
#define PROBING_AGENT_TRIGGER_H

#include "agent/core/part.h"
#include "traces/triggers.h"

#define TRIGGER_MOST    16 /* bursts of a kind in one recording */
#define TRIGGER_TEXT    8192
#define TRIGGER_WAIT_MS 1900 /* longest wait of a dying thread, when the sampler gets no CPU */

struct trigger {
    uint32_t state;  /* (a) trigger.c */
    uint32_t except; /* thread whose stack is recorded already, or 0 */
    enum trigger_kind kind;
    uint32_t id, tid;
    uint64_t ts, tick; /* ns; `tick`: time of the stacks that belong to it */
    int64_t step;
    char detail[256]; /* one line */
    char text[TRIGGER_TEXT];
};

/* Returns a new trigger with id, tid, ts, tick and step filled in, or NULL (see above). */
struct trigger *trigger_new(enum trigger_kind kind);
/* Hands the trigger over to the service thread: the caller must not use it afterwards. Waits until the stacks are on disk, for at most wait_ms. */
void trigger_post(struct trigger *t, int wait_ms);
/* Append to the trigger's line, `detail`. Async-signal-safe. */
void trigger_say(struct trigger *t, const char *text);
void trigger_say_number(struct trigger *t, uint64_t number, unsigned base);
/* Returns whether that kind is on. Callable from any thread and any signal handler. */
int trigger_is_on(enum trigger_kind kind);
/* The parsed setting `triggers`. Written by the service thread. */
extern struct triggers trigger_config;

/* ---- service thread ---- */

/* Writes a trigger record; for a trigger that was posted already, a second record with the same id adds to the first. */
void trigger_emit(struct writer *w, const struct trigger *t);

/* ---- the kinds of triggers ---- */

/* trigger_fatal.c: handlers of fatal signals, chained to the handlers that exist. Installs those that are missing. Service thread only. */
void trigger_fatal_install(void);
void trigger_fatal_remove(void);
/* trigger_exception.c: to be run as a pending call (gil.h). */
void trigger_exception_install(void);
/* trigger_step.c */
void trigger_step_open(void);
void trigger_step_round(struct writer *w, uint64_t now);
/* Returns the ns until the step in progress may have become slow or hang; UINT64_MAX: no check is needed. */
uint64_t trigger_step_wait(uint64_t now);

#endif
