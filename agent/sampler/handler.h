/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handler.h - the sampling signal: the sampler thread sends it to a running thread, whose signal handler then records its own stack.
 *
 * Each sampled thread has one request. The sampler fills it in and posts it; from then on it belongs to the handler, until it is IDLE again.
 *
 *     IDLE --post--> POSTED --handler--> BUSY --handler--> IDLE
 *                      \--withdraw (sampler: no answer until the next tick)--> IDLE
 *
 * The signal of a withdrawn request may still be pending (the thread blocks it): then `queued` is set, and no second signal is sent.
 * Requests are never unmapped, so a late signal finds a valid one, which may belong to another thread by then (`ident`).
 *
 * The handler is async-signal-safe: no lock, no allocation, no thread-local storage of ours; it takes about 2 KiB of stack, all other data is
 * in the request. Other signals are blocked meanwhile.
 */
#ifndef PROBING_AGENT_HANDLER_H
#define PROBING_AGENT_HANDLER_H

#include <ucontext.h>

#include "agent/base/memory.h"
#include "agent/core/python.h"
#include "agent/sampler/capture.h"
#include "agent/unwind/unwind.h"

#define HANDLER_REQUESTS 4096u
#define HANDLER_STACK    3072u /* bytes; 1.5 times the most that has been seen */

/*
 * Returns whether the signal handler that got `uc` has enough stack. An alternate stack may have only MINSIGSTKSZ bytes: the signal
 * frame alone nearly fills it, and the memory below it belongs to something else.
 */
static inline __attribute__((always_inline)) int handler_has_room(const void *uc) {
    const stack_t *alternate = &((const ucontext_t *)uc)->uc_stack;
    uint64_t below = (uint64_t)__builtin_frame_address(0) - (uint64_t)(uintptr_t)alternate->ss_sp;
    return below >= alternate->ss_size || below >= HANDLER_STACK;
}

enum request_state { REQUEST_IDLE, REQUEST_POSTED, REQUEST_BUSY };
enum { SAMPLE_ON_CPU = 1, SAMPLE_GIL = 2, SAMPLE_OUTSIDE = 4 }; /* records.def, sample.flags */

struct request {
    uint32_t state;  /* (a) enum request_state */
    uint32_t queued; /* (a) a signal was sent and has not arrived */
    uint32_t narrow; /* (a) the stack was too small: set by the handler, cleared by the sampler */
    uint32_t inside; /* (a) the thread is in the handler */
    uint32_t index, tid;
    uint64_t ident;                  /* (a) pthread_self() of the thread */
    uint64_t interp;                 /* its interpreter state */
    uint64_t states[CAPTURE_STATES]; /* (a) its thread states, one for each interpreter */
    struct ring *ring;
    /* filled in by the sampler */
    uint64_t tick;     /* time of the sample, ns of CLOCK_MONOTONIC, a multiple of 1 us */
    uint64_t cpu;      /* the thread's CPU clock at that time, ns */
    uint64_t count;    /* ticks that the sample stands for: over 1 if the thread waited for a CPU */
    uint64_t cpu_base; /* the thread's CPU clock at its last recorded sample, ns */
    /* used by the handler only */
    struct guard guard;      /* pages of the native stack */
    struct unwind_memo memo; /* the native stack at the last sample */
    struct capture capture;
};

/* State that the handler and the sampler share; one in a process. */
struct handler {
    struct live *live;
    struct capture_dict *dict;
    struct unwind *unwind;
    struct pywalk pw;           /* reads memory directly */
    struct pywalk far;          /* reads by system call: for memory that may have been freed */
    void *(*this_tstate)(void); /* PyGILState_GetThisThreadState */
};

/* Gives `h` to the handler (which uses it until handler_wait()), and installs the handler for SIGURG or, where the target uses that,
 * for the highest free real-time signal. Returns 0; -EBUSY when no signal is free. */
int handler_arm(struct handler *h);
/* After handler_disarm(): restores the default action of the signal, unless the program has taken the signal, or a signal of ours may
 * still be pending and would kill. */
void handler_uninstall(void);
/* Makes the handler record nothing from now on; it stays installed. Async-signal-safe. */
void handler_disarm(void);
/* To be called in a forked child: disarms, and forgets the handlers that ran in other threads of the parent. Async-signal-safe. */
void handler_after_fork(void);
/* Waits, for at most `ms`, until no thread runs a handler that may still use what was taken away last (quiesce.h). Returns 0 or -ETIMEDOUT. */
int handler_wait(int ms);
/* Checks that the signal is still ours (the target may have set a handler of its own for it), else takes the next free signal.
 * Call it before a round of handler_post(). Returns 0 or -EBUSY. */
int handler_check(void);
/* Returns the signal's number. Async-signal-safe. */
int handler_signo(void);

/* Returns a request for a thread, IDLE and without a ring; NULL: no memory, or all are taken. This and the next four functions: sampler thread only. */
struct request *request_new(uint32_t tid, uint64_t ident);
/* Frees the request of a thread that is gone: its ring is orphaned, and another thread may get the request. */
void request_free(struct request *s);
/* Hands the filled-in request to the handler and sends the signal. Returns 0; -ESRCH: the thread is gone; -EAGAIN: the user has too many queued signals. */
int handler_post(struct request *s);
/* Discards the request's pending signal, which the thread turned out to block, and with it the pending sampling signals of all threads. */
void handler_unpend(struct request *s);
/* Takes back an unanswered request. Returns 1 when it had not been answered; 0 when none was posted; -EBUSY while the handler works on it. */
int handler_withdraw(struct request *s);

/*
 * Records the stack of the calling thread (any thread) as given by `uc`, the ucontext_t of another signal's handler, as a sample with ts
 * `tick` (ns, a multiple of 1 us) and count 0. Returns 0; -ESRCH: not armed; -ENOMEM: no memory or no ring. Async-signal-safe.
 */
int handler_here(uint64_t tick, const void *uc);

/* Writes a sample record for the thread of request `s`. Returns 0 or -ENOBUFS. Async-signal-safe. */
int request_record(struct request *s, struct live *live, struct ring *ring, uint64_t ts,
                   uint64_t stack, uint64_t pc, uint64_t cpu_us, uint64_t count, unsigned flags);
/* Returns the CPU time since the thread's last recorded sample, in whole us, and counts it as recorded. */
uint64_t request_take_cpu(struct request *s, uint64_t cpu);

#endif
