/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_events.h - how long the GPU was at something: a CUDA event in the current stream at its begin, another at its end, and the
 * time between the two, read later.
 *
 *     uint32_t h = events_begin(c, &what);       // 0: none, counted why
 *     ...
 *     events_end(c, h);                          // or events_end_at_pass(), events_drop()
 *     events_read(c, most);                      // now and then: writes torch_cuda records of what the GPU has done
 *
 * Nothing here waits: an event is asked whether it has come to pass (cuEventQuery), the oldest first, and asked again later. The times are the
 * stream's: from when all that was launched before the begin was done. Events are made when they are first needed, kept and used again, at most
 * EVENTS_PAIRS pairs for a thread and context. They are never destroyed: at the end of a recording they wait for the next one.
 *
 * A thread has one struct cuda_thread. A pair belongs to the CUDA context (so, the device) that was current at its begin; what ends
 * under another one has no time. Nothing is recorded into a stream that is being captured into a CUDA graph, and what is asked
 * while another stream is captured is asked in the relaxed mode, which such a capture does not mind. An event in the default stream
 * is what a kernel there is: a barrier for streams that were made blocking (torch's are not).
 *
 * No GIL, no lock, no allocation but the driver's own. Only the thread itself begins and ends; anyone whose current context is the pair's may read.
 */
#ifndef PROBING_AGENT_CUDA_EVENTS_H
#define PROBING_AGENT_CUDA_EVENTS_H

#include "agent/base/limit.h"

#define EVENTS_PAIRS    1024u  /* a power of two */
#define EVENTS_CONTEXTS 8u     /* contexts of one thread */
#define EVENTS_ALL      16384u /* pairs of all threads */
#define EVENTS_DEPTH    256u   /* intervals of a thread within each other */
#define EVENTS_NAMES    16384u /* a power of two; names beyond share a place in the limit's table */
#define EVENTS_READ     8u     /* pairs that are read at the end of one call, at most */

enum events_stage { STAGE_FORWARD = 0, STAGE_BACKWARD = 1, STAGE_STEP = 5 }; /* records.def */

struct events_what {
    uint64_t ts, call; /* as in torch_cuda (records.def); ts: ns */
    uint32_t tid;
    uint8_t stage;
};

struct events_pair {
    void *start, *end;
    struct events_what what;
    uint32_t pass; /* ended with that backward pass, 0: by `end` */
    uint32_t used; /* (a) */
};

/* The pairs of one context. */
struct events_context {
    void *context; /* (a) */
    int device;
    uint32_t made, hint;
    uint32_t head, tail; /* (a) of queue: ended and not read, in that order */
    uint16_t queue[EVENTS_PAIRS];
    struct events_pair pair[EVENTS_PAIRS];
};

/* What a thread needs for the GPU's times and memory; made when it first does. */
struct cuda_thread {
    uint32_t generation; /* (a) of the recording that the pairs belong to */
    uint32_t reading;    /* (a) somebody reads */
    uint32_t ncontexts;  /* (a) */
    uint64_t read_at;    /* (a) when the queues were last read_at at, ns */
    struct limit times, memory;
    uint32_t back[EVENTS_DEPTH]; /* pairs of the backward intervals that are open, by depth */
    uint32_t step;               /* pair of the step in progress */
    uint64_t step_begin;         /* ns of CLOCK_MONOTONIC */
    struct limit_name forward[EVENTS_NAMES], backward[EVENTS_NAMES], memories[EVENTS_NAMES];
    struct events_context contexts[EVENTS_CONTEXTS];
};

/* Why a pair was not measured, or was: for the note at the end. (a), since the recording began. */
struct events_counts {
    uint64_t read, full, captured, elsewhere;
};
extern struct events_counts events_counts;
/* (a) What the driver said that ended it all: 0 nothing, CUDA_DEINITIALIZED the program's end. */
extern int32_t events_error;

uint32_t events_begin(struct cuda_thread *c, const struct events_what *what);
void events_end(struct cuda_thread *c, uint32_t h);
/* It ended when that backward pass did: events_pass(). */
void events_end_at_pass(struct cuda_thread *c, uint32_t h, uint32_t pass);
void events_drop(struct cuda_thread *c, uint32_t h);
/* What it is can still be said. */
struct events_what *events_what(struct cuda_thread *c, uint32_t h);

/* A backward pass has ended on this thread, and its current stream waits for all that the pass launched. pass: not 0. */
void events_pass(struct cuda_thread *c, uint32_t pass);

/* An event of one's own: made in the context that is current, recorded into a stream of it (so, not while that is captured). pairs:
 * the context's, or NULL. 0 or -errno. Any thread. */
int events_create(struct events_context *pairs, void **event);
int events_mark(struct events_context *pairs, void *event, void *stream);

/* Reads at most `most` pairs of the context that is current. Returns how many. Any thread. */
unsigned events_read(struct cuda_thread *c, unsigned most);
/* How many have ended and are not read. Any thread. */
unsigned events_waiting(const struct cuda_thread *c);
/* Nothing of it is wanted any more: the events stay. 0, or -EBUSY: somebody reads. Its own thread. */
int events_forget(struct cuda_thread *c, uint32_t generation);

#endif
