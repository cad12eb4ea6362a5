/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trigger.h - event-triggered sampling: something happens, and the stacks of all threads enter the trace, which is then
 * flushed to disk. traces/triggers.h names the kinds.
 *
 *     struct trigger *t = trigger_new(TRIGGER_exception);      // NULL: off, not recording, or too many already
 *     if (t) { trigger_say(t, "ValueError: ..."); t->step = 7; trigger_post(t, 500); }
 *
 * The service thread does the work: it asks the sampler for a burst, writes the record, flushes. Who posts may wait for
 * that (so that the thread stays where it is), for a bounded time. trigger_new, trigger_say and trigger_post are
 * async-signal-safe. At most TRIGGER_MOST of a kind in one recording.
 */
#ifndef PROBING_AGENT_TRIGGER_H
#define PROBING_AGENT_TRIGGER_H

#include "agent/core/part.h"
#include "traces/triggers.h"

#define TRIGGER_MOST    16 /* bursts of a kind in one recording */
#define TRIGGER_TEXT    8192
#define TRIGGER_WAIT_MS 1900 /* of who dies, at most: where the sampler gets no CPU */

struct trigger {
    uint32_t state;  /* (a) trigger.c */
    uint32_t except; /* thread whose stack is recorded already, or 0 */
    enum trigger_kind kind;
    uint32_t id, tid;
    uint64_t ts, tick; /* ns; tick: of its stacks */
    int64_t step;
    char detail[256]; /* one line */
    char text[TRIGGER_TEXT];
};

/* tid, ts, tick and step are filled in. */
struct trigger *trigger_new(enum trigger_kind kind);
/* Hands it over. Waits until the stacks are on disk, at most wait_ms; 0: does not wait. It is not the caller's any more. */
void trigger_post(struct trigger *t, int wait_ms);
/* Appends to its line. Async-signal-safe. */
void trigger_say(struct trigger *t, const char *text);
void trigger_say_number(struct trigger *t, uint64_t number, unsigned base);
/* Whether that kind is on. Any thread, any signal context. */
int trigger_is_on(enum trigger_kind kind);
/* What the setting says. Written by the service thread. */
extern struct triggers trigger_config;

/* ---- service thread ---- */

/* Says more about a trigger that was posted: another record of its id. */
void trigger_emit(struct writer *w, const struct trigger *t);

/* ---- its parts ---- */

/* trigger_fatal.c: handlers for what kills, chained to what is there; installs those that are missing. Service thread. */
void trigger_fatal_install(void);
void trigger_fatal_remove(void);
/* trigger_exception.c: a pending call (gil.h). */
void trigger_exception_install(void);
/* trigger_step.c */
void trigger_step_open(void);
void trigger_step_round(struct writer *w, uint64_t now);
/* ns until a step may have become slow or hang; UINT64_MAX: no wish. */
uint64_t trigger_step_wait(uint64_t now);

#endif
