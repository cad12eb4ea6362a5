// SPDX-License-Identifier: Apache-2.0
// A library that does the least that a profiler of this kind can do: a thread wakes at fixed times and sends a signal to the
// thread that called ticker_start(), whose handler does nothing. Of what our sampler costs, this is the machine's part.
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint32_t on;
static uint64_t period, answers;
static pid_t target;
static int signo;

static void handler(int sig) {
    (void)sig;
    __atomic_fetch_add(&answers, 1, __ATOMIC_RELAXED);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *tick(void *unused) {
    (void)unused;
    prctl(PR_SET_NAME, "ticker");
    prctl(PR_SET_TIMERSLACK, 1);
    for (uint64_t next = now();;) {
        if (!__atomic_load_n(&on, __ATOMIC_ACQUIRE)) {
            syscall(SYS_futex, &on, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
            next = now();
            continue;
        }
        uint64_t gap = __atomic_load_n(&period, __ATOMIC_RELAXED);
        while (gap && next <= now())
            next += gap;
        struct timespec t = {(time_t)(next / 1000000000u), (long)(next % 1000000000u)};
        syscall(SYS_futex, &on, FUTEX_WAIT_BITSET_PRIVATE, 1, &t, NULL, FUTEX_BITSET_MATCH_ANY);
        if (!__atomic_load_n(&on, __ATOMIC_ACQUIRE))
            continue;
        syscall(SYS_tgkill, getpid(), target, signo);
    }
    return NULL;
}

// Once, switched off at first. 0 or an errno. The handler stays.
int ticker_start(void) {
    struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigset_t all, old;
    pthread_t thread;
    signo = SIGRTMAX - 2;
    target = (pid_t)syscall(SYS_gettid);
    if (sigaction(signo, &sa, NULL))
        return errno;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&thread, NULL, tick, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!rc)
        pthread_detach(thread);
    return rc;
}

// Switches it on, with a signal every `ns` nanoseconds, or off (0).
void ticker_switch(uint64_t ns) {
    __atomic_store_n(&period, ns, __ATOMIC_RELAXED);
    __atomic_store_n(&on, ns != 0, __ATOMIC_RELEASE);
    syscall(SYS_futex, &on, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

// Signals that the handler has seen so far.
uint64_t ticker_answers(void) {
    return __atomic_load_n(&answers, __ATOMIC_RELAXED);
}
