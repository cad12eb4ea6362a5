/* SPDX-License-Identifier: Apache-2.0 */
/*
 * producer.h - how a thread of the target writes records: a ring of its own, for as long as it lives.
 *
 *     PRODUCER_EMIT(note, .ts = now, ...);             // one record; or several, or what depends on the thread:
 *
 *     struct producer *p = producer_enter();           // NULL: nothing is being recorded
 *     if (p) {
 *         WRITER_PUT(p->ring, event, .ts = now, ...);  // or ring_reserve() ... ring_commit() (ring.h)
 *         producer_leave(p);
 *     }
 *
 * Between the two the live file stays mapped: the end of the recording waits for whoever is inside (producer_wait). So be quick there:
 * no Python call, no lock, no allocation. About 10 ns for the pair; leave wakes the service thread when the ring is half full. Enter
 * may not be nested in one thread, and is not async-signal-safe (the thread's first one allocates). A thread that gets no ring,
 * because all are taken, is counted once a second as lost (no_ring).
 */
#ifndef PROBING_AGENT_PRODUCER_H
#define PROBING_AGENT_PRODUCER_H

#include "writer/writer.h"

struct producer {
    uint32_t inside;     /* (a) this thread is between enter and leave */
    uint32_t generation; /* of the recording that `ring` belongs to */
    struct live *live;
    struct ring *ring; /* valid between enter and leave */
    uint32_t tid;      /* kernel thread id */
    uint32_t gone; /* (a) its thread has ended: the next new thread takes it over, ring and all */
    uint64_t woke; /* where the ring's tail was when the service thread was last woken */
    uint64_t complained;
    struct producer *next;
};

/* Whether records would be kept now: one load. Any thread. In the order of quiesce.h: where it says yes, the recording's end sees what this
 * thread has written by an atomic exchange before. */
int producer_recording(void);
struct producer *producer_enter(void);
void producer_leave(struct producer *p);
/* Into the recording of that number (producer_generation()), or with 0 into any. 0; -ESRCH it is not being recorded; -ENOSPC dropped and
 * counted. Not inside. */
int producer_emit(uint32_t recording, unsigned type, const struct writer_value *v);
#define PRODUCER_EMIT(name, ...) producer_emit(0, TRACE_##name, WRITER_VALUES(name, __VA_ARGS__))

/* A note record from a thread of the target: level 0 info, 1 warning, 2 error; cut to 500 bytes. Not inside. */
void producer_note(unsigned level, const char *part, const char *text);

/* service.c: recording begins (the live file is there); it ends: nobody new gets in. */
void producer_open(struct live *live);
void producer_close(void);
/* Waits until nobody is inside any more, at most ms. 0; -errno: somebody may be, the live file must stay mapped. */
int producer_wait(int ms);
/* In a forked child: nobody is inside, nothing is being recorded. */
void producer_after_fork(void);
/* Counts recordings of this process, from 1: so it is known whether something belongs to the recording in progress. */
uint32_t producer_generation(void);

#endif
