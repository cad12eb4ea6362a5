/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_memory.c - records the process's memory at the ends of steps, in a record each: resident and virtual size, and what torch's
 * allocator has on the GPU. Runs in the thread that trains.
 *
 * /proc/self/statm is opened each time, because a descriptor kept open would be one of the program's: 2 us with warm caches, 37 us (measured) right after an
 * optimizer has displaced them. So reading is limited to 1 / SHARE of the time: steps of 40 ms and more have a record, shorter ones now and then; the first
 * FIRST steps have one whatever it costs. Only values that were read at that step's end are recorded.
 */
#include "agent/core/part.h"
#include "agent/core/producer.h"
#include "agent/core/steps.h"
#include "agent/torch/torch_cuda.h"

#define SHARE 1000
#define FIRST 25
#define SAVED 50000u /* ns that can be saved up, at most */

static uint32_t busy; /* (a) a thread reads */
static struct {
    uint64_t seen, left, cost; /* time of last credit; ns to spend; ns that the last reading took */
    unsigned first;            /* how many of the first steps were read */
} budget;

/* Whether there is time for a reading. */
static int due(uint64_t now) {
    uint64_t more = now > budget.seen ? (now - budget.seen) / SHARE : 0;
    if (budget.seen && budget.left < SAVED)
        budget.left = budget.left + more < SAVED ? budget.left + more : SAVED;
    budget.seen = now;
    return budget.first < FIRST || budget.left >= budget.cost;
}

/* Writes the record. Values in `gpu` are -1 if not known; if they are known, there is always a record. */
static void record(const struct step *s, const struct cuda_memory *gpu) {
    uint64_t began = sys_now(), vms, page = (uint64_t)sysconf(_SC_PAGESIZE);
    char text[128], *rss;
    if (!due(began) && gpu->allocated < 0)
        return;
    size_t n =
        proc_read_file("/proc/self/statm", text, sizeof text); /* in pages: virtual, resident */
    uint64_t ns = sys_now() - began;
    budget.first += budget.first < FIRST;
    budget.left -= budget.left < ns ? budget.left : ns;
    /* A reading that took longer than SAVED lost its processor meanwhile, so its cost is taken to be SAVED. */
    budget.cost = ns < SAVED ? ns : SAVED;
    if (!n)
        return;
    vms = strtoull(text, &rss, 10);
    PRODUCER_EMIT(memory_step, .ts = s->end, .step = s->number,
                  .rss = strtoull(rss, NULL, 10) * page, .vms = vms * page,
                  .gpu_allocated = gpu->allocated, .gpu_reserved = gpu->reserved);
}

/* Runs in the thread that trains. If two threads train, a step that ends while the other thread is reading gets no record. */
static void at_step(const struct step *s) {
    struct cuda_memory gpu;
    if (!producer_recording())
        return;
    if (!__atomic_load_n(&cuda_on, __ATOMIC_RELAXED) || cuda_memory_step(s, &gpu))
        gpu = (struct cuda_memory){-1, -1, -1};
    if (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE))
        return;
    record(s, &gpu);
    sys_unlock(&busy);
}

static void begin(struct writer *w UNUSED) {
    budget.seen = budget.left = budget.cost = budget.first = 0;
    sys_unlock(&busy);
    steps_on_end(at_step);
}

const struct agent_part step_memory_part = {.open = begin};
