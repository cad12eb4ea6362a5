/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/base/quiesce.h"
#include "agent/base/values.h"
#include "agent/core/children.h"
#include "agent/core/state.h"
#include "agent/core/threads.h"

#define SERVICE_STACK   (256u << 10)
#define PRELOAD_WAIT_MS 2000 /* a hanging file system must not hold up the target's start */
#define START_WAIT_MS   10000
#define EXIT_WAIT_MS    3000

struct agent probing_agent = {.fork_lock = PTHREAD_MUTEX_INITIALIZER};

static void futex_wake(uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void agent_set_phase(enum agent_phase phase) {
    struct agent_word *word = probing_agent.word;
    __atomic_store_n(&word->phase, phase, __ATOMIC_RELEASE);
    futex_wake(&word->phase);
}

enum agent_phase agent_wait_phase(enum agent_phase phase, int timeout_ms) {
    struct agent_word *word = probing_agent.word;
    uint64_t deadline = values_now() + (uint64_t)timeout_ms * 1000000u, now;
    uint32_t is;
    while ((is = __atomic_load_n(&word->phase, __ATOMIC_ACQUIRE)) == phase &&
           (now = values_now()) < deadline) {
        struct timespec left = {(time_t)((deadline - now) / 1000000000u),
                                (long)((deadline - now) % 1000000000u)};
        syscall(SYS_futex, &word->phase, FUTEX_WAIT, is, &left, NULL, 0);
    }
    return (enum agent_phase)is;
}

void agent_wake(void) {
    struct agent_word *word = probing_agent.word;
    if (!word)
        return;
    struct live *l = quiesce_enter(&word->wakers, &word->live);
    if (l) {
        __atomic_fetch_add(&l->wake, 1, __ATOMIC_RELEASE);
        futex_wake(&l->wake);
    }
    quiesce_leave(&word->wakers);
}

int agent_spawn_service(void) {
    threads_watch_main();
    return thread_spawn(NULL, "probing-svc", SERVICE_STACK, service_main, NULL);
}

static int make_word(void) {
    if (probing_agent.word)
        return 0;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return -errno;
    madvise(page, 4096, MADV_WIPEONFORK); /* where there is none (before 4.14) the pid must do */
    probing_agent.word = page;
    return 0;
}

/* Whether some copy of the agent (another file, from another injection) records this process: its
 * live file is mapped. */
static int recorded_already(void) {
    char buf[8192 + 1], mark[32];
    size_t have = 0;
    int found = 0, fd = open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    snprintf(mark, sizeof mark, "/%u-", (unsigned)getpid());
    for (ssize_t r; !found && (r = read(fd, buf + have, sizeof buf - 1 - have)) > 0;) {
        have += (size_t)r;
        buf[have] = 0;
        char *line = buf, *nl;
        for (; (nl = strchr(line, '\n')); line = nl + 1) {
            *nl = 0;
            char *base = strrchr(line, '/');
            size_t len = base ? strlen(base) : 0;
            found |=
                len > 5 && !strcmp(base + len - 5, ".live") && !strncmp(base, mark, strlen(mark));
        }
        have -= (size_t)(line - buf);
        memmove(buf, line, have);
        if (have == sizeof buf - 1)
            have = 0;
    }
    close(fd);
    return found;
}

static int begin(struct agent *a, const char *conf, const char *how) {
    int err;
    config_load(&a->config, conf);
    snprintf(a->how, sizeof a->how, "%s", how);
    err = fork_install();
    if (err)
        return err;
    a->word->error = 0;
    __atomic_store_n(&a->word->stop, AGENT_STOP_NONE, __ATOMIC_RELAXED);
    return agent_spawn_service();
}

int probing_agent_start(const char *conf, const char *how) {
    struct agent *a = &probing_agent;
    int saved = errno, err = make_word();
    uint32_t from = err ? AGENT_OFF : __atomic_load_n(&a->word->phase, __ATOMIC_ACQUIRE);
    if (err)
        goto out;
    if (from ==
        AGENT_STOPPING) /* who asked for the end gets its answer a moment before it is over */
        from = agent_wait_phase(AGENT_STOPPING, START_WAIT_MS);
    err = -EALREADY;
    if ((from != AGENT_OFF && from != AGENT_STOPPED) || recorded_already() ||
        !__atomic_compare_exchange_n(&a->word->phase, &from, AGENT_STARTING, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        goto out;
    __atomic_store_n(&a->word->pid, (uint32_t)syscall(SYS_getpid), __ATOMIC_RELEASE);
    err = begin(a, conf, how);
    if (err) {
        agent_set_phase(AGENT_STOPPED);
        goto out;
    }
    switch (
        agent_wait_phase(AGENT_STARTING, strcmp(how, "inject") ? PRELOAD_WAIT_MS : START_WAIT_MS)) {
    case AGENT_RUNNING:
        break;
    case AGENT_STARTING:
        err = -ETIMEDOUT; /* the thread goes on trying */
        break;
    default:
        err = a->word->error;
    }
out:
    errno = saved;
    return err;
}

void probing_agent_stop(const char *reason, int timeout_ms) {
    struct agent_word *word = probing_agent.word;
    int saved = errno;
    uint32_t none = AGENT_STOP_NONE, waiting = AGENT_WAITING, phase;
    if (!word || __atomic_load_n(&word->pid, __ATOMIC_ACQUIRE) != (uint32_t)syscall(SYS_getpid))
        return;
    if (__atomic_compare_exchange_n(&word->phase, &waiting, AGENT_STOPPED, 0, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        children_settle(CHILDREN_ENDED);
        futex_wake(&word->phase); /* a young child: nothing has been made yet */
        goto out;
    }
    phase = waiting;
    if (phase == AGENT_OFF || phase == AGENT_STOPPED)
        goto out;
    if (__atomic_compare_exchange_n(&word->stop, &none, AGENT_STOP_WRITING, 0, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED)) {
        size_t i = 0;
        for (; reason[i] && i + 1 < sizeof word->reason; i++)
            word->reason[i] = reason[i];
        word->reason[i] = 0;
        __atomic_store_n(&word->stop, AGENT_STOP_ASKED, __ATOMIC_RELEASE);
    }
    agent_wake();
    uint64_t deadline = values_now() + (uint64_t)timeout_ms * 1000000u, now;
    while (phase != AGENT_STOPPED && (now = values_now()) < deadline)
        phase = agent_wait_phase((enum agent_phase)phase, (int)((deadline - now) / 1000000u) + 1);
out:
    errno = saved;
}

int probing_agent_threads(void) {
    struct agent_word *word = probing_agent.word;
    int ours = word && __atomic_load_n(&word->pid, __ATOMIC_ACQUIRE) == (uint32_t)getpid();
    return ours ? threads_count() : 0;
}

void probing_agent_exec(void) {
    struct agent_word *word = probing_agent.word;
    if (word && __atomic_load_n(&word->pid, __ATOMIC_ACQUIRE) == (uint32_t)syscall(SYS_getpid))
        children_settle(CHILDREN_EXEC);
}

/* exit() ends here: by return from main, sys.exit, an uncaught exception. */
__attribute__((destructor)) static void at_exit(void) {
    probing_agent_stop("exit", EXIT_WAIT_MS);
}
