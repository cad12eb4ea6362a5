/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork.c - a forked child leaves its parent's recording alone and begins one of its own.
 *
 * The child's memory is a copy in which the agent's threads do not exist. The handler disarms
 * what they left, and starts a service thread that waits a while before it makes any file: most children
 * exec or exit at once. The fork lock is held by the service thread while it opens or closes things, so that
 * the copy is whole; whoever forks waits for it only so long, and then the child leaks instead.
 */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/core/children.h"
#include "agent/core/part.h"
#include "agent/core/producer.h"
#include "agent/core/role.h"
#include "agent/core/settings.h"
#include "agent/core/state.h"
#include "agent/core/steps.h"
#include "agent/core/threads.h"

#define LOCK_TRIES 200 /* ms */

/* Who holds the fork lock on the way through fork(); 0 = nobody. Written by the holder only. */
static uintptr_t holder;

static int held_by_me(void) {
    return __atomic_load_n(&holder, __ATOMIC_RELAXED) == (uintptr_t)pthread_self();
}

static void prepare(void) {
    int saved = errno;
    for (int i = 0; i < LOCK_TRIES; i++) {
        struct timespec ms = {0, 1000000};
        if (!pthread_mutex_trylock(&probing_agent.fork_lock)) {
            __atomic_store_n(&holder, (uintptr_t)pthread_self(), __ATOMIC_RELAXED);
            break;
        }
        nanosleep(&ms, NULL);
    }
    errno = saved;
}

static void parent(void) {
    if (held_by_me()) {
        __atomic_store_n(&holder, 0, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&probing_agent.fork_lock);
    }
}

static void child(void) {
    struct agent *a = &probing_agent;
    int saved = errno, whole = held_by_me();
    holder = 0;
    pthread_mutex_init(&a->fork_lock, NULL);
    if (whole && a->writer)
        writer_abandon(a->writer);
    a->writer = NULL;
    a->asked = 0;
    threads_after_fork();
    producer_after_fork();
    role_after_fork();
    steps_after_fork();
    settings_after_fork();
    PARTS_CALL(child, whole);
    if (a->wanted) {
        memset(a->word, 0, sizeof *a->word); /* where the kernel did not wipe it */
        strcpy(a->how, "fork");
        __atomic_store_n(&a->word->phase, AGENT_WAITING, __ATOMIC_RELAXED);
        __atomic_store_n(&a->word->pid, (uint32_t)syscall(SYS_getpid), __ATOMIC_RELEASE);
        children_born();
        if (agent_spawn_service()) {
            children_settle(CHILDREN_FAILED);
            agent_set_phase(AGENT_STOPPED);
        }
    }
    errno = saved;
}

int fork_install(void) {
    static int installed;
    int err = 0;
    if (!installed) {
        err = -pthread_atfork(prepare, parent, child);
        installed = !err;
    }
    return err;
}
