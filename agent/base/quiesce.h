/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quiesce.h - takes an object away from threads that use it without a lock: a user announces itself first, and the owner waits until nobody uses it.
 *
 *     user: any thread, any signal handler              owner: one thread at a time
 *
 *     t = quiesce_enter(&inside, &thing);               old = quiesce_set(&thing, NULL);      // or the next thing
 *     if (t) ... uses t ...                             if (quiesce_wait(&inside, &ms) == 0)
 *     quiesce_leave(&inside);                               ... frees old ...                 // else it must stay
 *
 * `inside` is a uint32_t, initially 0, that counts all users; they may be nested. Users read other objects of the owner with quiesce_read().
 * Where an atomic addition to a shared cache line costs too much, each thread has an `inside` of its own, never nested: quiesce_enter_own(),
 * quiesce_leave_own(). The owner then calls quiesce_prepare() before the object exists, and quiesce_fence() between quiesce_set() and the waits.
 *
 * Memory order. The user and the owner each write one variable and then read the other's. If both reads could return the old values, the owner would free what
 * the user goes on to use. Processors allow this, even x86-64 (a store waits in the store buffer while later loads execute), and so do release and acquire.
 *
 *     shared   All four accesses are sequentially consistent. In their total order, either the user's addition precedes the owner's
 *              read, which sees it, or the owner's write precedes the user's read, which finds NULL or the next object.
 *     own      Only the compiler keeps the user's two accesses in order (an exchange would take 5 ns more). The owner's membarrier(2)
 *              makes each processor that runs a thread of this process execute a full barrier. A user that read before that barrier
 *              had written before it, too, and the owner sees the write; a user that reads after it sees what the owner has set.
 *              Without membarrier(2), the user does an exchange.
 *     leaving  is a release, and the read that finds 0 is an acquire: all uses happen before what the owner does next.
 */
#ifndef PROBING_AGENT_QUIESCE_H
#define PROBING_AGENT_QUIESCE_H

#include <stdint.h>

/* (a) Whether quiesce_fence() uses membarrier(2), so that users need no barrier of their own. */
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

/* Returns whether no user is inside that might not have seen the value that was set last. */
static inline int quiesce_idle(const uint32_t *inside) {
    return __atomic_load_n(inside, __ATOMIC_SEQ_CST) == 0;
}

/* Waits until quiesce_idle(), for at most *ms milliseconds, which it counts down. Returns 0 or -ETIMEDOUT. */
int quiesce_wait(const uint32_t *inside, int *ms);
/* Finds out whether membarrier(2) works. Call it before there are objects for users that have an `inside` of their own. */
void quiesce_prepare(void);
/* Returns 0, or -errno when the kernel has begun to refuse membarrier(2): then it cannot be known who is inside. */
int quiesce_fence(void);

#endif
