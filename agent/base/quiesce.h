/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quiesce.h - to take something away from threads that use it without a lock: who uses it says so first, who takes it away waits until nobody does.
 *
 *     user: any thread, any signal handler              owner: one thread at a time
 *
 *     t = quiesce_enter(&inside, &thing);               old = quiesce_set(&thing, NULL);      // or the next thing
 *     if (t) ... uses t ...                             if (quiesce_wait(&inside, &ms) == 0)
 *     quiesce_leave(&inside);                               ... frees old ...                 // else it must stay
 *
 * `inside` is a uint32_t, 0 at first, shared by all users: they are counted, and may be nested. What else they reach they read by quiesce_read().
 * Where an addition to a shared line is too dear, each thread has one of its own, never nested: quiesce_enter_own(), quiesce_leave_own(); the owner
 * calls quiesce_prepare() before the thing is there, and quiesce_fence() between quiesce_set() and the waits.
 *
 * Memory order. User and owner each write one place and then read the other's. If both could read what was there before, the owner would free what
 * the user goes on to use; and processors do so, x86-64 too: a write waits in a buffer while later reads are done. Release and acquire allow that.
 *
 *     shared   All four are sequentially consistent. In their one order either the user's addition comes before the owner's
 *              read, which sees it, or the owner's write before the user's read, which finds NULL or the next thing.
 *     own      The user's two are kept in order by the compiler alone (an exchange takes 5 ns more). The owner's membarrier(2)
 *              makes each processor that runs one of our threads pass a full barrier. A user that read before its barrier had
 *              written before it, and the owner sees that; one that reads after it sees what the owner has set. Where there
 *              is no membarrier, the user exchanges.
 *     leaving  is a release, and the read that finds 0 an acquire: uses happen before what the owner does next.
 */
#ifndef PROBING_AGENT_QUIESCE_H
#define PROBING_AGENT_QUIESCE_H

#include <stdint.h>

/* (a) quiesce_fence() does the users' part of the ordering. */
extern uint32_t quiesce_light;

#define quiesce_read(thing)       __atomic_load_n(thing, __ATOMIC_SEQ_CST)
#define quiesce_set(thing, value) ({ __atomic_exchange_n(thing, value, __ATOMIC_SEQ_CST); })
#define quiesce_enter(inside, thing)                                                               \
    ((void)__atomic_fetch_add(inside, 1, __ATOMIC_SEQ_CST), quiesce_read(thing))
#define quiesce_enter_own(inside, thing) (quiesce_announce(inside), quiesce_read(thing))

static inline void quiesce_announce(uint32_t *inside) {
    if (__builtin_expect(__atomic_load_n(&quiesce_light, __ATOMIC_RELAXED), 1)) {
        __atomic_store_n(inside, 1, __ATOMIC_RELAXED);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    } else {
        __atomic_exchange_n(inside, 1, __ATOMIC_SEQ_CST);
    }
}

static inline void quiesce_leave(uint32_t *inside) {
    __atomic_fetch_sub(inside, 1, __ATOMIC_RELEASE);
}

static inline void quiesce_leave_own(uint32_t *inside) {
    __atomic_store_n(inside, 0, __ATOMIC_RELEASE);
}

/* Nobody is inside who has not seen what was set last. */
static inline int quiesce_idle(const uint32_t *inside) {
    return __atomic_load_n(inside, __ATOMIC_SEQ_CST) == 0;
}

/* Waits for that, at most *ms, which it counts down. 0 or -ETIMEDOUT. */
int quiesce_wait(const uint32_t *inside, int *ms);
/* Before anything is there for users with words of their own: whether membarrier serves. */
void quiesce_prepare(void);
/* 0; -errno: the kernel has begun to refuse membarrier, and who is inside cannot be known. */
int quiesce_fence(void);

#endif
