/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/step_memory.h"

#include "agent/core/producer.h"
#include "agent/core/steps.h"
#include "agent/torch/torch_cuda.h"

static uint32_t busy; /* (a) a thread reads */
static struct {
    uint64_t seen, left, cost; /* last credit; ns to spend; ns that the last one took */
    unsigned first;            /* how many of the first steps were read */
} budget;

/* Whether there is time for a reading. */
static int due(uint64_t now) {
    uint64_t more = now > budget.seen ? (now - budget.seen) / STEP_MEMORY_SHARE : 0;
    if (budget.seen && budget.left < STEP_MEMORY_SAVED)
        budget.left =
            budget.left + more < STEP_MEMORY_SAVED ? budget.left + more : STEP_MEMORY_SAVED;
    budget.seen = now;
    return budget.first < STEP_MEMORY_FIRST || budget.left >= budget.cost;
}

/* gpu: -1 in it where nothing is known; where something is, it is always recorded. */
static void record(const struct step *s, const struct cuda_memory *gpu) {
    uint64_t began = sys_now(), vms, page = (uint64_t)sysconf(_SC_PAGESIZE);
    char text[128], *rss;
    if (!due(began) && gpu->allocated < 0)
        return;
    size_t n =
        proc_read_file("/proc/self/statm", text, sizeof text); /* in pages: virtual, resident */
    uint64_t ns = sys_now() - began;
    budget.first += budget.first < STEP_MEMORY_FIRST;
    budget.left -= budget.left < ns ? budget.left : ns;
    /* A reading that took longer than can be saved up had lost its processor meanwhile: it costs no more than that. */
    budget.cost = ns < STEP_MEMORY_SAVED ? ns : STEP_MEMORY_SAVED;
    if (!n)
        return;
    vms = strtoull(text, &rss, 10);
    PRODUCER_EMIT(memory_step, .ts = s->end, .step = s->number,
                  .rss = strtoull(rss, NULL, 10) * page, .vms = vms * page,
                  .gpu_allocated = gpu->allocated, .gpu_reserved = gpu->reserved);
}

/* In the thread that trains. Where two threads do, a step that ends while the other thread reads gets no record. */
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

void step_memory_open(void) {
    budget.seen = budget.left = budget.cost = budget.first = 0;
    sys_unlock(&busy);
    steps_on_end(at_step);
}
