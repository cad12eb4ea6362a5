/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/step_memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/values.h"
#include "agent/core/producer.h"
#include "agent/core/steps.h"
#include "agent/torch/torch_cuda.h"

static struct {
    int fd;
    uint64_t dev, ino;
} statm = {-1, 0, 0}; /* /proc/self/statm */
static uint32_t busy; /* (a) a thread reads */
static struct {
    uint64_t seen, left,
        cost; /* until when credit was given; ns to spend; what the last one cost */
} budget;

/* Resident and virtual size in pages. The file stays open, 1 us a time instead of 4, and is looked at whether it is still ours:
 * the target may close all that it finds. */
static int read_statm(uint64_t *rss, uint64_t *vms) {
    static const char path[] = "/proc/self/statm";
    char buf[128], *end;
    struct stat st;
    if (statm.fd >= 0 && (fstat(statm.fd, &st) || st.st_dev != statm.dev || st.st_ino != statm.ino))
        statm.fd = -1;
    if (statm.fd < 0) {
        int fd = open(path, O_RDONLY | O_CLOEXEC), high;
        if (fd < 0)
            return -1;
        high = fcntl(fd, F_DUPFD_CLOEXEC, VALUES_FD_BASE);
        if (high >= 0) {
            close(fd);
            fd = high;
        }
        if (fstat(fd, &st)) {
            close(fd);
            return -1;
        }
        statm.dev = st.st_dev;
        statm.ino = st.st_ino;
        statm.fd = fd;
    }
    ssize_t n = pread(statm.fd, buf, sizeof buf - 1, 0);
    if (n <= 0)
        return -1;
    buf[n] = 0;
    *vms = strtoull(buf, &end, 10);
    *rss = strtoull(end, NULL, 10);
    return 0;
}

/* Whether there is time for one. */
static int due(uint64_t now) {
    uint64_t more = now > budget.seen ? (now - budget.seen) / STEP_MEMORY_SHARE : 0;
    if (!budget.seen)
        budget.left = STEP_MEMORY_FIRST;
    else if (budget.left < STEP_MEMORY_SAVED)
        budget.left =
            budget.left + more < STEP_MEMORY_SAVED ? budget.left + more : STEP_MEMORY_SAVED;
    budget.seen = now;
    return budget.left >= budget.cost;
}

static void spent(uint64_t ns) {
    budget.left -= budget.left < ns ? budget.left : ns;
    /* One that took longer than can be saved up was kept waiting for its processor: no reason to give up. */
    budget.cost = ns < STEP_MEMORY_SAVED ? ns : STEP_MEMORY_SAVED;
}

/* gpu: -1 in it where nothing is known; what is known is always recorded. */
static void record(const struct step *s, const struct cuda_memory *gpu) {
    uint64_t rss, vms, began = values_now(), page;
    struct producer *p;
    if (!due(began) && gpu->allocated < 0)
        return;
    p = read_statm(&rss, &vms) ? NULL : producer_enter();
    spent(values_now() - began);
    if (!p)
        return;
    page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t *f = ring_reserve(p->ring, TRACE_memory_step, TRACE_memory_step_NFIELDS, 0);
    if (f) {
        f[TRACE_memory_step_ts] = s->end;
        f[TRACE_memory_step_step] = s->number;
        f[TRACE_memory_step_rss] = rss * page;
        f[TRACE_memory_step_vms] = vms * page;
        f[TRACE_memory_step_gpu_allocated] = (uint64_t)gpu->allocated;
        f[TRACE_memory_step_gpu_reserved] = (uint64_t)gpu->reserved;
        ring_commit(f);
    }
    producer_leave(p);
}

/* In the thread that trains; where two do, one of them at a time, and the other has no record. */
static void at_step(const struct step *s, void *unused) {
    struct cuda_memory gpu;
    (void)unused;
    if (!producer_recording())
        return;
    if (!__atomic_load_n(&cuda_on, __ATOMIC_RELAXED) || cuda_memory_step(s, &gpu))
        gpu = (struct cuda_memory){-1, -1, -1};
    if (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE))
        return;
    record(s, &gpu);
    __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
}

static void forget(void) {
    struct stat st;
    if (statm.fd >= 0 && !fstat(statm.fd, &st) && st.st_dev == statm.dev && st.st_ino == statm.ino)
        close(statm.fd);
    statm.fd = -1;
    budget.seen = budget.cost = 0;
}

void step_memory_open(void) {
    forget(); /* in a forked child it tells of the parent */
    __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
    steps_on_end(at_step, NULL);
}

void step_memory_close(void) {
    while (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE))
        __builtin_ia32_pause();
    forget();
    __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
}
