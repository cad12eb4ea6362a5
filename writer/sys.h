/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys.h - system services that the recorder uses everywhere: clocks, futexes, locks, file numbers, pages; also includes /proc access
 * (traces/proc.h) and the system headers that nearly every file of the writer and the agent needs. Everything that
 * includes the writer uses these. Any thread; all but sys_lock() are async-signal-safe. They leave errno undefined.
 */
#ifndef PROBING_WRITER_SYS_H
#define PROBING_WRITER_SYS_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../traces/proc.h"

#define UNUSED     __attribute__((unused)) /* a parameter that only the function's type requires */
#define SYS_MS     1000000ull              /* in ns */
#define SYS_SECOND 1000000000ull

/* ---- time, ns ---- */

static inline uint64_t sys_clock(clockid_t id) {
    struct timespec t = {0, 0};
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * SYS_SECOND + (uint64_t)t.tv_nsec;
}

/* CLOCK_MONOTONIC, the clock of all times in a trace. */
static inline uint64_t sys_now(void) {
    return sys_clock(CLOCK_MONOTONIC);
}

static inline struct timespec sys_timespec(uint64_t ns) {
    return (struct timespec){(time_t)(ns / SYS_SECOND), (long)(ns % SYS_SECOND)};
}

static inline void sys_sleep(uint64_t ns) {
    struct timespec t = sys_timespec(ns);
    nanosleep(&t, NULL);
}

/* ---- words that several threads change ---- */

/* Sets *place to `to` if it is `from`. Returns its previous value. Sequentially consistent. */
#define sys_swap(place, from, to)                                                                  \
    ({                                                                                             \
        __typeof__(*(place)) was_ = (from);                                                        \
        __atomic_compare_exchange_n(place, &was_, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
        was_;                                                                                      \
    })

/* Sleeps while *word is `value`, until sys_wake() or the time `until` (CLOCK_MONOTONIC; UINT64_MAX: forever). May return early. Returns
 * -ETIMEDOUT once `until` has passed, else 0. The word may lie in memory shared between processes. */
static inline int sys_wait(uint32_t *word, uint32_t value, uint64_t until) {
    struct timespec t = sys_timespec(until);
    if (until != UINT64_MAX && sys_now() >= until)
        return -ETIMEDOUT;
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value, until == UINT64_MAX ? NULL : &t, NULL,
            FUTEX_BITSET_MATCH_ANY);
    return 0;
}

static inline void sys_wake(uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Changes the word and wakes all that sleep on it. */
static inline void sys_kick(uint32_t *word) {
    __atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
    sys_wake(word);
}

/* A spin lock, 0 when free. Only for a few instructions, between peer threads, and never where a signal handler may take it. */
static inline void sys_lock(uint32_t *lock) {
    while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE))
        sched_yield();
}

static inline void sys_unlock(uint32_t *lock) {
    __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}

/* ---- files ---- */

/* Gives the open file a number above those that programs expect to get and close in loops, unless the limit is too low. Returns its number. */
static inline int sys_high_fd(int fd) {
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 700);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

/* ---- memory ---- */

static inline size_t sys_round8(size_t n) {
    return (n + 7) & ~(size_t)7;
}

/* Returns zeroed private pages, which the kernel allocates when they are first written to; NULL without memory. */
static inline void *sys_pages(size_t n) {
    void *p =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* p may be NULL. */
static inline void sys_pages_free(void *p, size_t n) {
    if (p)
        munmap(p, n);
}

#endif
