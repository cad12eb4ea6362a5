/* SPDX-License-Identifier: Apache-2.0 */
/*
 * producer.h - how a thread of the target writes records: each thread has a ring of its own, for as long as it lives.
 *
 *     PRODUCER_EMIT(note, .ts = now, ...);             // one record. Several records, or ones that depend on the thread:
 *
 *     struct producer *p = producer_enter();           // NULL: nothing is being recorded
 *     if (p) {
 *         WRITER_PUT(p->ring, event, .ts = now, ...);  // or ring_reserve() ... ring_commit() (ring.h)
 *         producer_leave(p);
 *     }
 *
 * Between enter and leave ("inside") the live file stays mapped: the end of the recording waits for the threads inside (producer_wait). So be
 * quick there: no Python call, no lock, no allocation. The pair takes about 10 ns; leave wakes the service thread when the ring is half full.
 * Enter must not be nested in one thread, and is not async-signal-safe (a thread's first call allocates). A thread that gets no ring, because
 * all are taken, is counted as lost (no_ring), once a second.
 */
#ifndef PROBING_AGENT_PRODUCER_H
#define PROBING_AGENT_PRODUCER_H

#include "writer/writer.h"

struct producer {
    uint32_t inside;     /* (a) 1 while this thread is between enter and leave */
    uint32_t generation; /* number of the recording that `ring` belongs to */
    struct live *live;
    struct ring *ring; /* valid between enter and leave */
    uint32_t tid;      /* kernel thread id */
    uint32_t gone;     /* (a) the thread has ended: the next new thread takes over node and ring */
    uint64_t woke;     /* the ring's tail when this thread last woke the service thread */
    uint64_t complained; /* when no_ring was last counted, ns */
    struct producer *next;
};

/* Returns whether records would be kept now. Costs one load. Callable from any thread. Memory order as in quiesce.h: when it returns true, the
 * end of the recording sees what this thread has written before by an atomic exchange. */
int producer_recording(void);
struct producer *producer_enter(void);
void producer_leave(struct producer *p);
/* Writes a record into the recording of that number (producer_generation()), or with 0 into any. Returns 0; -ESRCH when that recording is not in
 * progress; -ENOSPC when the record was dropped and counted. Must not be called inside. */
int producer_emit(uint32_t recording, unsigned type, const struct writer_value *v);
#define PRODUCER_EMIT(name, ...) producer_emit(0, TRACE_##name, WRITER_VALUES(name, __VA_ARGS__))

/* Writes a note record from a thread of the target. level: 0 info, 1 warning, 2 error; the text is cut to 500 bytes. Must not be called inside. */
void producer_note(unsigned level, const char *part, const char *text);

/* For service.c: the recording begins (the live file exists); the recording ends, so that no thread gets inside any more. */
void producer_open(struct live *live);
void producer_close(void);
/* Waits until no thread is inside, for at most `ms` milliseconds. Returns 0, or -errno when one may be: then the live file must stay mapped. */
int producer_wait(int ms);
/* To be called in a forked child: no thread is inside, nothing is being recorded. */
void producer_after_fork(void);
/* Returns the number of this process's current or last recording, from 1: it tells whether something belongs to the recording in progress. */
uint32_t producer_generation(void);

#endif
