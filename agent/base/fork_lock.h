/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork_lock.h - a lock that a thread of the agent holds while it does something that a fork() must not copy half done: opens or closes
 * files, or loads a library. In the child no thread would finish that work, and the dynamic loader would refuse calls or wait for ever.
 *
 *     pthread_mutex_lock(&fork_lock.mutex) ... pthread_mutex_unlock(&fork_lock.mutex);      // a thread of ours
 *     pthread_atfork(fork_lock_take, fork_lock_leave, fork_lock_renew);                  // fork's handlers
 *
 * The forking thread may itself hold what the agent's thread waits for. So it waits FORK_LOCK_TRIES ms at most; after that the child leaks.
 */
#ifndef PROBING_AGENT_FORK_LOCK_H
#define PROBING_AGENT_FORK_LOCK_H

#include <pthread.h>

#include "writer/sys.h"

#define FORK_LOCK_TRIES 200 /* ms */

/* There is one lock in the agent, and one in the first stub that an injection leaves; later stubs use that stub's lock. */
extern struct fork_lock {
    pthread_mutex_t mutex;
    uintptr_t
        holder; /* (a) the thread that holds the lock during fork(), or 0; only the holder writes it */
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

/* To be called in the child, where no thread holds the lock. */
static inline void fork_lock_renew(void) {
    fork_lock = (struct fork_lock){PTHREAD_MUTEX_INITIALIZER, 0};
}

#endif
