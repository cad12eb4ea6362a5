/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/agent.h"

#include <dlfcn.h>
#include <sys/resource.h>

#include "agent/base/fork_lock.h"
#include "agent/base/memory.h"
#include "agent/base/quiesce.h"
#include "agent/core/children.h"
#include "agent/core/part.h"
#include "agent/core/producer.h"
#include "agent/core/report.h"
#include "agent/core/role.h"
#include "agent/core/settings.h"
#include "agent/core/state.h"
#include "agent/core/steps.h"
#include "agent/core/threads.h"
#include "traces/filter.h"

#define SERVICE_STACK   (256u << 10)
#define SPACE           (512ull << 20) /* of address space: a recording takes a fifth of it */
#define DATA_SPACE      (64ull << 20)  /* a recording takes an eighth of it */
#define PRELOAD_WAIT_MS 2000 /* a hanging file system must not hold up the target's start */
#define START_WAIT_MS   10000

struct agent probing_agent;
struct agent_word agent_word;

void agent_set_phase(enum agent_phase phase) {
    __atomic_store_n(&agent_word.phase, phase, __ATOMIC_RELEASE);
    sys_wake(&agent_word.phase);
}

enum agent_phase agent_wait_phase(enum agent_phase phase, int timeout_ms) {
    uint64_t deadline = sys_now() + (uint64_t)timeout_ms * SYS_MS;
    uint32_t is;
    while ((is = __atomic_load_n(&agent_word.phase, __ATOMIC_ACQUIRE)) == phase &&
           !sys_wait(&agent_word.phase, is, deadline))
        ;
    return (enum agent_phase)is;
}

void agent_begin_now(void) {
    if (sys_swap(&agent_word.phase, AGENT_WAITING, AGENT_STARTING) == AGENT_WAITING)
        sys_wake(&agent_word.phase);
}

void agent_wake(void) {
    struct live *l = quiesce_enter(&agent_word.wakers, &agent_word.live);
    if (l)
        sys_kick(&l->wake);
    quiesce_leave(&agent_word.wakers);
}

/* Returns whether agent_word belongs to this very process, not to the parent of a fork or vfork. */
static int word_here(void) {
    return __atomic_load_n(&agent_word.pid, __ATOMIC_ACQUIRE) == (uint32_t)syscall(SYS_getpid);
}

/* Starts the service thread with all signals masked; the phase is STARTING or WAITING. Returns 0 or -errno. Fork's child handler may call it. */
static int spawn_service(void) {
    threads_watch_main();
    quiesce_prepare(); /* free while there is one thread; later the kernel waits for 10 to 40 ms */
    return thread_spawn(NULL, "probing-svc", SERVICE_STACK, service_main, NULL);
}

/* Names the resource limit (address space or writable data) that the program might hit because of the agent, or returns NULL. */
static const char *lacks_space(void) {
    unsigned long long all, data, page = (unsigned long long)sysconf(_SC_PAGESIZE);
    struct rlimit most, of_data;
    char text[256];
    if (getrlimit(RLIMIT_AS, &most) || getrlimit(RLIMIT_DATA, &of_data) ||
        (most.rlim_cur & of_data.rlim_cur) == RLIM_INFINITY ||
        !proc_read_file("/proc/thread-self/statm", text, sizeof text) ||
        sscanf(text, "%llu %*u %*u %*u %*u %llu", &all, &data) != 2)
        return NULL;
    if (most.rlim_cur < all * page + SPACE)
        return "ulimit -v";
    return of_data.rlim_cur < data * page + DATA_SPACE ? "ulimit -d" : NULL;
}

/*
 * ---- fork: a child leaves its parent's recording alone and begins one of its own ----
 *
 * The child's memory is a copy in which the agent's threads do not exist. The handler resets what they left, and starts a service thread that waits a
 * while before it creates any file, because most children exec or exit at once. The service thread holds the fork lock while it opens or closes things, so
 * that the copy is consistent; the forking thread waits for the lock for a limited time, after which the child leaks.
 */
static void child(void) {
    struct agent *a = &probing_agent;
    int saved = errno;
    if (fork_lock_mine() && a->writer)
        writer_abandon(a->writer);
    fork_lock_renew();
    a->writer = NULL;
    a->asked = 0;
    int barred = a->wanted && (a->no_forks || filter_kills(0) || lacks_space());
    if (!barred)
        memory_init();
    threads_after_fork();
    producer_after_fork();
    role_after_fork();
    steps_after_fork();
    settings_after_fork();
    PARTS_CALL(child);
    if (a->wanted) {
        memset(&agent_word, 0, sizeof agent_word); /* the kernel may not have wiped it */
        strcpy(a->how, "fork");
        __atomic_store_n(&agent_word.phase, AGENT_WAITING, __ATOMIC_RELAXED);
        __atomic_store_n(&agent_word.pid, (uint32_t)syscall(SYS_getpid), __ATOMIC_RELEASE);
        children_born();
        if (barred || spawn_service()) {
            children_settle(CHILDREN_FAILED);
            agent_set_phase(AGENT_STOPPED);
        }
    }
    errno = saved;
}

/* ---- start and stop ---- */

static int is_live_file(void *ctx, char *line) {
    const char *mark = ctx, *base = strrchr(line, '/');
    size_t len = base ? strlen(base) : 0;
    return len > 5 && !strcmp(base + len - 5, ".live") && !strncmp(base, mark, strlen(mark));
}

/* Returns whether another copy of the agent (another file, from another injection) records this process: then its live file is mapped. */
static int recorded_already(void) {
    char mark[32];
    snprintf(mark, sizeof mark, "/%u-", (unsigned)getpid());
    return proc_maps_each(is_live_file, mark) > 0;
}

static int begin(struct agent *a, const char *conf, const char *how) {
    static int installed; /* whether the fork handlers are installed */
    memory_init();
    config_load(&a->config, conf);
    snprintf(a->how, sizeof a->how, "%s", how);
    int err = installed ? 0 : -pthread_atfork(fork_lock_take, fork_lock_leave, child);
    if (err)
        return err;
    installed = 1;
    a->no_forks = dlsym(RTLD_DEFAULT, "__tsan_init") != NULL;
    agent_word.error = 0;
    __atomic_store_n(&agent_word.stop, AGENT_STOP_NONE, __ATOMIC_RELAXED);
    return spawn_service();
}

const char *probing_agent_refusal(void) {
    return probing_agent.barred;
}

int probing_agent_start(const char *conf, const char *how) {
    struct agent *a = &probing_agent;
    int saved = errno, err;
    const char *call = filter_kills(!strcmp(how, "inject")); /* inject.c has checked that already */
    uint32_t from = __atomic_load_n(&agent_word.phase, __ATOMIC_ACQUIRE);
    const char *limit = call ? NULL : lacks_space();
    a->barred[0] = 0;
    if (call || limit) {
        const char *what = call ? "a seccomp filter would end it for a system call"
                                : "too little space",
                   *of = call ? call : limit,
                   *why = call ? "the agent's threads make it"
                               : "recording would take it from the program";
        snprintf(a->barred, sizeof a->barred, "%s (%s): %s", what, of, why);
        if (!strcmp(how, "preload"))
            report(getenv("PROBING_REPORT"), what, of, why);
    }
    err = call ? -ENOSYS : limit ? -ENOMEM : 0;
    if (err)
        goto out;
    madvise(&agent_word, sizeof agent_word, MADV_WIPEONFORK); /* Linux 4.14; before, pid must do */
    if (from == AGENT_STOPPING) /* the client that asked for the end is answered before STOPPED */
        from = agent_wait_phase(AGENT_STOPPING, START_WAIT_MS);
    err = -EALREADY;
    if ((from != AGENT_OFF && from != AGENT_STOPPED) || recorded_already() ||
        sys_swap(&agent_word.phase, from, AGENT_STARTING) != from)
        goto out;
    __atomic_store_n(&agent_word.pid, (uint32_t)syscall(SYS_getpid), __ATOMIC_RELEASE);
    err = begin(a, conf, how);
    if (err) {
        agent_set_phase(AGENT_STOPPED);
        goto out;
    }
    from =
        agent_wait_phase(AGENT_STARTING, strcmp(how, "inject") ? PRELOAD_WAIT_MS : START_WAIT_MS);
    if (from != AGENT_RUNNING) /* while STARTING, the service thread goes on trying */
        err = from == AGENT_STARTING ? -ETIMEDOUT : agent_word.error;
out:
    errno = saved;
    return err;
}

void probing_agent_stop(const char *reason, int status, int timeout_ms) {
    int saved = errno;
    if (!word_here())
        return;
    uint32_t phase = sys_swap(&agent_word.phase, AGENT_WAITING, AGENT_STOPPED);
    if (phase == AGENT_WAITING) {
        children_settle(CHILDREN_ENDED);
        sys_wake(&agent_word.phase); /* a young child has created no file yet */
        goto out;
    }
    if (phase == AGENT_OFF || phase == AGENT_STOPPED)
        goto out;
    if (sys_swap(&agent_word.stop, AGENT_STOP_NONE, AGENT_STOP_WRITING) == AGENT_STOP_NONE) {
        strncpy(agent_word.reason, reason, sizeof agent_word.reason - 1);
        agent_word.status = status;
        __atomic_store_n(&agent_word.stop, AGENT_STOP_ASKED, __ATOMIC_RELEASE);
    }
    agent_wake();
    uint64_t deadline = sys_now() + (uint64_t)timeout_ms * SYS_MS, now;
    while (phase != AGENT_STOPPED && (now = sys_now()) < deadline)
        phase = agent_wait_phase((enum agent_phase)phase, (int)((deadline - now) / 1000000u) + 1);
out:
    errno = saved;
}

int probing_agent_threads(void) {
    return word_here() ? threads_count() : 0;
}

void probing_agent_exec(void) {
    if (word_here())
        children_settle(CHILDREN_EXEC);
}

static void exited(int status, void *unused UNUSED) {
    probing_agent_stop("exit", status, EXIT_WAIT_MS);
}

/* Runs in exit(): after a return from main, sys.exit() or an uncaught exception. A destructor is not told the exit status, but a function that
 * it registers with on_exit() is called next, and gets it. */
__attribute__((destructor)) static void at_exit(void) {
    if (on_exit(exited, NULL))
        probing_agent_stop("exit", -1, EXIT_WAIT_MS);
}
