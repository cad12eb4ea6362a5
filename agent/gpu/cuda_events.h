/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_events.h - measures how long the GPU works on something: records a CUDA event in the current stream at the begin, another at the
 * end, and reads the time between the two later.
 *
 *     uint32_t h = events_begin(c, &what);       // 0: not measured; the reason is counted
 *     ...
 *     events_end(c, h);                          // or events_end_at_pass(), events_drop()
 *     events_read(c, most);                      // regularly: writes torch_cuda records of what the GPU has done
 *
 * Nothing here waits: events are queried (cuEventQuery), the oldest first, and those that have not completed are queried again later. The times are
 * the stream's: they begin when all work that was launched before is done. Events are created when they are first needed, and reused, at most
 * EVENTS_PAIRS pairs for a thread and context. They are never destroyed: after a recording they are kept for the next one.
 *
 * A thread has one struct cuda_thread. A pair belongs to the CUDA context (so, the device) that was current at its begin; an interval that
 * ends under another context gets no time. Nothing is recorded into a stream that is being captured into a CUDA graph, and while another
 * stream is captured, the driver is called in the relaxed mode, which such a capture permits. An event in the default stream acts as a
 * kernel there does: it is a barrier for streams that were created as blocking (torch's are not).
 *
 * Needs no GIL, takes no lock, allocates only in the driver. Only the thread itself begins and ends; any thread whose current context is the pair's may read.
 */
#ifndef PROBING_AGENT_CUDA_EVENTS_H
#define PROBING_AGENT_CUDA_EVENTS_H

#include "agent/base/limit.h"

#define EVENTS_PAIRS    1024u  /* a power of two */
#define EVENTS_CONTEXTS 8u     /* contexts of one thread */
#define EVENTS_ALL      16384u /* pairs of all threads */
#define EVENTS_DEPTH    256u   /* nested intervals of a thread */
#define EVENTS_NAMES    16384u /* a power of two; more names share places in the limit's tables */
#define EVENTS_READ     8u     /* most pairs that are read at the end of one call */

enum events_stage { STAGE_FORWARD = 0, STAGE_BACKWARD = 1, STAGE_STEP = 5 }; /* records.def */

struct events_what {
    uint64_t ts, call; /* as in torch_cuda (records.def); ts: ns */
    uint32_t tid;
    uint8_t stage;
};

struct events_pair {
    void *start, *end;
    struct events_what what;
    uint32_t pass; /* backward pass whose end is the pair's end; 0: `end` is */
    uint32_t used; /* (a) */
};

/* The pairs of one context. */
struct events_context {
    void *context; /* (a) */
    int device;
    uint32_t made, hint;
    uint32_t head, tail; /* (a) of `queue`: pairs that have ended and are not read, in order */
    uint16_t queue[EVENTS_PAIRS];
    struct events_pair pair[EVENTS_PAIRS];
};

/* A thread's data for the GPU's times and memory; made when the thread first needs it. */
struct cuda_thread {
    uint32_t generation; /* (a) number of the recording that the pairs belong to */
    uint32_t reading;    /* (a) a thread is reading the pairs */
    uint32_t ncontexts;  /* (a) */
    uint64_t read_at;    /* (a) when the queues were last read, ns */
    struct limit times, memory;
    uint32_t back[EVENTS_DEPTH]; /* handles of the open backward intervals' pairs, by depth */
    uint32_t step;               /* handle of the pair of the step in progress */
    uint64_t step_begin;         /* ns of CLOCK_MONOTONIC */
    struct limit_name forward[EVENTS_NAMES], backward[EVENTS_NAMES], memories[EVENTS_NAMES];
    struct events_context contexts[EVENTS_CONTEXTS];
};

/* Numbers of pairs that were read, or were not for each reason, for the note at the end. (a), since the recording began. */
struct events_counts {
    uint64_t read, full, captured, elsewhere;
};
extern struct events_counts events_counts;
/* (a) The driver's error that has ended all measuring; 0: none; CUDA_DEINITIALIZED: the program is ending. */
extern int32_t events_error;

uint32_t events_begin(struct cuda_thread *c, const struct events_what *what);
void events_end(struct cuda_thread *c, uint32_t h);
/* Ends a pair at the end of that backward pass: events_pass(). */
void events_end_at_pass(struct cuda_thread *c, uint32_t h, uint32_t pass);
void events_drop(struct cuda_thread *c, uint32_t h);
/* Returns the pair's description, which may still be changed. */
struct events_what *events_what(struct cuda_thread *c, uint32_t h);

/* To be called when a backward pass has ended on this thread, whose current stream waits for all that the pass launched. pass: not 0. */
void events_pass(struct cuda_thread *c, uint32_t pass);

/* Single events: events_create() creates one in the current context, events_mark() records it into a stream of that context (which fails while
 * that stream is captured). pairs: those of the context, or NULL. Return 0 or -errno. Any thread. */
int events_create(struct events_context *pairs, void **event);
int events_mark(struct events_context *pairs, void *event, void *stream);

/* Reads at most `most` pairs of the context that is current. Returns the number of pairs done with. Any thread. */
unsigned events_read(struct cuda_thread *c, unsigned most);
/* Returns the number of pairs that have ended and are not read. Any thread. */
unsigned events_waiting(const struct cuda_thread *c);
/* Drops all pairs that are in use, for another recording; keeps the events. Returns 0, or -EBUSY while a thread reads. Only on its own thread. */
int events_forget(struct cuda_thread *c, uint32_t generation);

#endif
