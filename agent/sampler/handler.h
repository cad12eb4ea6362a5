/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handler.h - the sampling signal: sent by the sampler thread to a thread that runs, whose handler then records its own stack.
 *
 * Each sampled thread has one request. The sampler fills it in and posts it; from then on it belongs to the handler, until it is IDLE again.
 *
 *     IDLE --post--> POSTED --handler--> BUSY --handler--> IDLE
 *                      \--withdraw (sampler: no answer until the next tick)--> IDLE
 *
 * A withdrawn request's signal may still be pending (the thread blocks it): `queued` is set, and no second one is sent. Requests are
 * never unmapped, so that a late signal finds one: it may be another thread's by then (`ident`).
 *
 * The handler is async-signal-safe: no lock, no allocation, no thread-local storage of ours; about 2 KiB of stack, all else lies in the
 * request. Other signals wait meanwhile.
 */
#ifndef PROBING_AGENT_HANDLER_H
#define PROBING_AGENT_HANDLER_H

#include <ucontext.h>

#include "agent/base/memory.h"
#include "agent/core/python.h"
#include "agent/sampler/capture.h"
#include "agent/unwind/unwind.h"

#define HANDLER_REQUESTS 4096u
#define HANDLER_STACK    3072u /* half as much again as has been seen */

/*
 * Whether a handler that was given `uc` may use the stack. An alternate one may be of MINSIGSTKSZ: the signal's frame alone
 * nearly fills it, and what lies below is somebody's.
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
    uint32_t queued; /* (a) a signal is on its way */
    uint32_t narrow; /* (a) its stack was too small: set by the handler, cleared by the sampler */
    uint32_t index, tid;
    uint64_t ident;                  /* (a) pthread_self() of the thread */
    uint64_t interp;                 /* its interpreter state */
    uint64_t states[CAPTURE_STATES]; /* (a) its states, as listed: one for each interpreter */
    struct ring *ring;
    /* filled in by the sampler */
    uint64_t tick;     /* ns of CLOCK_MONOTONIC, whole us */
    uint64_t cpu;      /* the thread's CPU clock then, ns */
    uint64_t count;    /* ticks it stands for: more than one when the thread waited for a CPU */
    uint64_t cpu_base; /* the same at its last recorded sample */
    /* the handler's own */
    struct guard guard;      /* native stack and unwind tables: they stay while frames need them */
    struct unwind_memo memo; /* the native stack as it was the last time */
    struct capture capture;
};

/* What handler and sampler share; one in a process. */
struct handler {
    struct live *live;
    struct capture_dict *dict;
    struct unwind *unwind;
    struct pywalk pw;           /* reads directly */
    struct pywalk far;          /* may read what has been freed */
    void *(*this_tstate)(void); /* PyGILState_GetThisThreadState */
};

/* Makes `h` known to the handler (kept by reference until handler_wait) and installs it for SIGURG, or where the target uses
 * that, the highest free real-time signal. 0; -EBUSY: no signal is free. */
int handler_arm(struct handler *h);
/* After handler_disarm(): the signal gets back the action it had, unless somebody else has taken it, or one of ours may
 * still be on its way and would kill. */
void handler_uninstall(void);
/* Nothing is recorded from now on; the sigaction stays. Async-signal-safe. */
void handler_disarm(void);
/* In a forked child: disarmed, and no handler runs, though one did in another thread of the parent. Async-signal-safe. */
void handler_after_fork(void);
/* Waits until no handler runs, in any thread, that began before what was taken away last (quiesce.h). 0 or -ETIMEDOUT. */
int handler_wait(int ms);
/* Looks whether the signal is still ours (the target may have set a handler of its own over it) and else moves on to the next free
 * one. Call it before a round of handler_post(). 0 or -EBUSY. */
int handler_check(void);
/* Its number. Async-signal-safe. */
int handler_signo(void);

/* A request for a thread: IDLE, without a ring; the handler's, never freed. NULL: no memory, or all taken. These, too: sampler thread. */
struct request *request_new(uint32_t tid, uint64_t ident);
/* The thread is gone: its ring is orphaned, the request is for another one. */
void request_free(struct request *s);
/* Hands the filled request over and sends the signal. 0; -ESRCH: the thread is gone; -EAGAIN: too many signals are queued for this user. */
int handler_post(struct request *s);
/* Its signal, which the thread turned out to block, is pending no more; nor is anybody else's. */
void handler_unpend(struct request *s);
/* Takes an unanswered request back. 1: it had not been answered; 0: nothing was posted; -EBUSY: the handler is at work. */
int handler_withdraw(struct request *s);

/*
 * Records the stack of the calling thread, any thread, as it was at the ucontext_t `uc` (of another signal's handler), as a
 * sample with ts `tick` (ns, whole us) and count 0. 0; -ESRCH not armed; -ENOMEM no memory or no ring. Async-signal-safe.
 */
int handler_here(uint64_t tick, const void *uc);

/* Writes the sample record. CPU time since the thread's last sample is taken from, and noted in, the request. 0 or -ENOBUFS. Async-signal-safe. */
int request_record(struct request *s, struct live *live, struct ring *ring, uint64_t ts,
                   uint64_t stack, uint64_t pc, uint64_t cpu_us, uint64_t count, unsigned flags);
/* CPU time since the last recorded sample, whole us, now counted as recorded. */
uint64_t request_take_cpu(struct request *s, uint64_t cpu);

#endif
