/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork_lock.h - held by a thread of ours while it does what a fork() of the program would copy half done: opens or closes files, or
 * loads a library. The child has no thread that would come to the end of it, and its loader refuses or waits for ever.
 *
 *     pthread_mutex_lock(&fork_lock.mutex) ... pthread_mutex_unlock(&fork_lock.mutex);      // a thread of ours
 *     pthread_atfork(fork_lock_take, fork_lock_leave, fork_lock_renew);                  // fork's handlers
 *
 * Who forks may himself hold what our thread waits for, so he waits only so long; then the child leaks instead.
 */
#ifndef PROBING_AGENT_FORK_LOCK_H
#define PROBING_AGENT_FORK_LOCK_H

#include <pthread.h>

#include "writer/sys.h"

#define FORK_LOCK_TRIES 200 /* ms */

/* One in the agent, one in the first stub that an injection leaves, which the later ones use. */
extern struct fork_lock {
    pthread_mutex_t mutex;
    uintptr_t
        holder; /* (a) who holds it on the way through fork(), 0: nobody; the holder alone writes it */
} fork_lock;

static inline void fork_lock_take(void) {
    int saved = errno, busy = 1;
    for (int i = 0; i < FORK_LOCK_TRIES && (busy = pthread_mutex_trylock(&fork_lock.mutex)); i++)
        sys_sleep(SYS_MS);
    if (!busy)
        __atomic_store_n(&fork_lock.holder, (uintptr_t)pthread_self(), __ATOMIC_RELAXED);
    errno = saved;
}

static inline int fork_lock_mine(void) {
    return __atomic_load_n(&fork_lock.holder, __ATOMIC_RELAXED) == (uintptr_t)pthread_self();
}

static inline void fork_lock_leave(void) {
    if (!fork_lock_mine())
        return;
    __atomic_store_n(&fork_lock.holder, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&fork_lock.mutex);
}

/* In the child, where nobody holds it. */
static inline void fork_lock_renew(void) {
    fork_lock = (struct fork_lock){PTHREAD_MUTEX_INITIALIZER, 0};
}

#endif
