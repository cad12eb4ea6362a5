/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_thread.h - writes what a thread does in PyTorch into the thread's own ring, as compact batches (traces/torch_events.h).
 *
 *     struct torch_thread *l = torch_thread_here();                  // NULL: nothing is recorded
 *     at = torch_thread_enter(l, TORCH_ENTER, name_id); ...; torch_thread_exit(l, at, 0);
 *
 * A batch is one ring record that stays open while its events are appended; its length is stored after each of them, and the finisher of a
 * dead process keeps what is there (ring.c), so nothing is lost with a killed process. It ends when it is full or 100 ms old. The intervals
 * that are open then are repeated in the next batch (TORCH_OPEN), so that the loss of a batch does not affect others.
 *
 * Only the thread itself writes into its struct; no function here calls Python, takes a lock or needs the GIL. The end of the recording
 * waits until no thread is `busy` (torch_threads_close). Cost of an event: about 10 ns with its time.
 */
#ifndef PROBING_AGENT_TORCH_THREAD_H
#define PROBING_AGENT_TORCH_THREAD_H

#include <x86intrin.h>

#include "agent/base/quiesce.h"
#include "agent/core/state.h"
#include "traces/torch_events.h"
#include "traces/varint.h"

#define TORCH_DEPTH  256u
#define TORCH_BATCH  4000u /* bytes of events */
#define TORCH_EVENT  48u   /* the most that one event takes */
#define TORCH_OLD_NS 100000000u
#define TORCH_OWNERS (1u << 16) /* sequence numbers whose owners are remembered, a power of two */
#define TORCH_CALLS  (1u << 14) /* calls whose parents are remembered */
#define TORCH_NODE   9u         /* words that are read of an autograd node */

enum { TORCH_MARK_OPTIMIZER, TORCH_MARK_LOADER, TORCH_MARKS };

struct node;
struct cuda_thread;

/* An interval that has begun and not ended. */
struct torch_thread_open {
    uint64_t start;
    uint32_t id;   /* name or span */
    uint32_t call; /* number of the forward call, or of the one whose backward it is */
    uint32_t tid;  /* the thread that made the call, 0: this one */
    uint8_t kind;  /* enum torch_event */
};

/* A forward call, by which a node of the graph is assigned to its module and the modules around it. */
struct torch_thread_call {
    uint32_t call, parent, id; /* parent 0: none */
};

struct torch_thread {
    uint32_t busy; /* (a) it is between torch_thread_begin and the end of an event (quiesce.h) */
    uint32_t generation; /* of the recording that it belongs to */
    uint32_t edition;    /* of recording and dictionary epoch: names are written once in each */
    uint32_t taken;      /* (a) a thread uses it */
    uint32_t tid;
    uint32_t unseen; /* backward passes in progress on this thread that are only traced */
    uint64_t self;   /* pthread_self(), by which Python knows the thread */

    struct ring *ring; /* from here to `torch_id` all is zeroed when a recording begins */
    uint64_t *fields;  /* of the open record, NULL: none */
    uint8_t *base, *at, *end;
    uint64_t last, began, shown; /* times of the last event, the batch, torch_thread_show(), ns */
    uint64_t anchor_ns, anchor_tsc;

    uint32_t depth; /* entries of open[] in use; deeper calls are not recorded */
    struct torch_thread_open open[TORCH_DEPTH];
    uint32_t next_call; /* numbers begin at 1 */

    /* Forward calls: torch_slot.c, under the GIL. */
    struct node *top;  /* innermost module call in progress */
    struct node *root; /* the outermost */
    uint32_t muted;    /* the calls within the outermost one are not recorded */
    uint32_t inside;   /* recording began within a module's call: until it ends none is outermost */
    uint32_t passes;   /* backward passes in progress on this thread */
    uint32_t stepped;  /* (a) an optimizer has stepped in one of them, by a hook */
    uint32_t asked;    /* it was asked whether the thread that counts has left */
    uint32_t beside;   /* optimizer steps here while another thread's steps counted */
    uint64_t beside_from; /* steps counted at the first; if unchanged, that thread may be done */
    struct torch_thread_mark {
        uint32_t open, depth; /* calls in progress, and the depth of the outermost */
    } marks[TORCH_MARKS];     /* Optimizer.step, the DataLoader's __next__ */
    uint32_t call;            /* number of the innermost recorded forward call, or 0 */

    /* Backward: torch_back.c. */
    uint32_t back_call;                 /* the call whose backward runs, or 0 */
    const struct torch_thread *back_of; /* the thread that made that call */
    const struct torch_thread *maker;   /* the other thread whose nodes ran here last */
    uint32_t back_depth;                /* depth at which the intervals of this pass begin */
    uint64_t sequence;                  /* numbers below this have their owners set */
    uint64_t torch_id;                  /* (a) PyTorch's number of the thread, 0: not known */
    uint32_t owned;   /* (a) the recording that `owners` is of; stays when the thread ends */
    uint64_t *owners; /* low 32 bits of the number << 32 | call; NULL: not kept */
    struct torch_thread_call *calls;
    uint32_t engine_pass; /* passes that had ended when this thread of the engine last ran a node */
    struct torch_thread_node {
        uint64_t sequence, thread;
        uint32_t state;         /* enum in torch_back.c; 0: none */
    } node;                     /* the one that the engine evaluates on this thread; */
    uint64_t words[TORCH_NODE]; /* its first words, until the places of its numbers are known */

    struct cuda_thread *cuda; /* (a) torch_cuda.c; NULL: no GPU yet. Stays with the thread */
};

/* ns per tick of the time stamp counter, << 32; 0: clock_gettime() is used instead. */
extern uint64_t torch_thread_tick; /* (a) */
extern __thread struct torch_thread *torch_thread_mine;
/* (a) The sum of `unseen` of all threads: while there are such passes, nodes on the engine's own threads may be theirs, and are not recorded either. */
extern uint32_t torch_threads_unseen;

/* The thread's struct, made ready for the recording in progress; NULL: no recording is in progress (any more), or there is no memory. */
struct torch_thread *torch_thread_slow(void);
static inline struct torch_thread *torch_thread_here(void) {
    struct torch_thread *l = torch_thread_mine;
    uint32_t generation = __atomic_load_n(&agent_word.torch, __ATOMIC_RELAXED);
    if (__builtin_expect(l && l->generation == generation && generation, 1))
        return l;
    return torch_thread_slow();
}

static inline uint64_t torch_thread_clock(const struct torch_thread *l) {
    uint64_t tick = __atomic_load_n(&torch_thread_tick, __ATOMIC_RELAXED);
    if (!tick)
        return sys_now();
    return l->anchor_ns + (uint64_t)(((unsigned __int128)(__rdtsc() - l->anchor_tsc) * tick) >> 32);
}

/* Ends the batch and begins another. Returns 0: no space, or the recording is over. The caller has set `busy`. */
int torch_thread_roll(struct torch_thread *l, uint64_t *now);
/* Ends the batch unless one has been ended so within TORCH_OLD_NS: only then do those see it who read the recording of a live process. NULL: nothing. */
void torch_thread_show(struct torch_thread *l);

/* Returns where the next event goes, or NULL (it is lost, and counted). Call torch_thread_head next, then put further values, then torch_thread_done. */
static inline uint8_t *torch_thread_begin(struct torch_thread *l, uint64_t *now) {
    if (quiesce_enter_own(&l->busy, &agent_word.torch) == l->generation) {
        *now = torch_thread_clock(l);
        if (__builtin_expect(l->at < l->end && *now - l->began < TORCH_OLD_NS, 1))
            return l->at;
        if (torch_thread_roll(l, now))
            return l->at;
    } else {
        *now = 0;
    }
    quiesce_leave_own(&l->busy);
    return NULL;
}

static inline uint8_t *torch_thread_head(struct torch_thread *l, uint8_t *p, uint64_t now,
                                         unsigned kind, uint64_t arg) {
    if (now < l->last) /* another processor's counter may be a little behind */
        now = l->last;
    p = varint_put(p, kind | arg << 4);
    p = varint_put(p, now - l->last);
    l->last = now;
    return p;
}

/* Stores the length of the batch so far. */
static inline void torch_thread_store(struct torch_thread *l) {
    __atomic_store_n(&l->fields[TRACE_torch_calls_events],
                     (uint64_t)(8 + 8 * TRACE_torch_calls_NFIELDS) << 32 |
                         (uint64_t)(l->at - l->base),
                     __ATOMIC_RELEASE);
}

static inline void torch_thread_done(struct torch_thread *l, uint8_t *p) {
    l->at = p;
    torch_thread_store(l);
    quiesce_leave_own(&l->busy);
}

static inline void torch_thread_push(struct torch_thread *l, uint64_t now, unsigned kind,
                                     uint32_t id, uint32_t call, uint32_t tid) {
    l->open[l->depth++] = (struct torch_thread_open){
        .start = now, .id = id, .call = call, .tid = tid, .kind = (uint8_t)kind};
}

/* A forward call or a span begins. Returns its depth, for torch_thread_exit. The caller has checked l->depth < TORCH_DEPTH. */
static inline uint32_t torch_thread_enter(struct torch_thread *l, unsigned kind, uint32_t id) {
    uint64_t now;
    uint32_t at = l->depth, call = kind == TORCH_SPAN ? 0 : l->next_call;
    uint8_t *p = torch_thread_begin(l, &now);
    torch_thread_push(l, now, kind, id, call, 0);
    l->next_call += call != 0; /* before the batch's length is stored: that may be the last store */
    if (p)
        torch_thread_done(l, torch_thread_head(l, p, now, kind, id));
    return at;
}

/* Ends the interval at depth `at`, and those within it that were not ended (a switched greenlet). */
static inline void torch_thread_exit(struct torch_thread *l, uint32_t at, unsigned flags) {
    uint64_t now;
    for (; l->depth > at; l->depth--) {
        uint8_t *p = torch_thread_begin(l, &now);
        if (p)
            torch_thread_done(
                l, torch_thread_head(l, p, now, TORCH_EXIT, l->depth == at + 1 ? flags : 0));
    }
}

/* ---- for the life of the recording: service thread ---- */

/* Recording begins. */
void torch_threads_open(struct live *live);
/* Ends all writing and commits what was written. Waits at most ms for threads that are writing. Returns 0; -errno: a thread may still
 * be writing, so the live file must stay mapped. */
int torch_threads_close(int ms);
/* To be called now and then: measures the time stamp counter's rate. */
void torch_threads_round(void);
/* In a forked child. Async-signal-safe. */
void torch_threads_after_fork(void);
/* The i-th of these structs, to find a call's owner: NULL after the last. Any thread. */
struct torch_thread *torch_thread_at(unsigned i);
/* Allocates the tables of owners and calls. Returns 0 or -ENOMEM. Called by the thread itself. */
int torch_thread_own(struct torch_thread *l);

#endif
