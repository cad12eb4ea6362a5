/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/process_part.h"

#include "agent/base/values.h"
#include "agent/core/meta.h"
#include "agent/process/metrics.h"
#include "agent/process/modules.h"

#define MODULES_NS 1000000000u

static struct metrics files = {.files = {[0 ... METRICS_NFILES - 1] = {.fd = -1}}};
static struct modules *modules;
static uint64_t next_modules;

static void open(struct writer *w) {
    next_modules = 0;
    metrics_init(&files);
    metrics_open(&files);
    if (modules_new(&modules))
        meta_note(w, 2, "modules", "no memory: native frames will have no names");
}

static void round_of(struct writer *w, uint64_t now) {
    if (now < next_modules || !modules)
        return;
    next_modules = now + MODULES_NS;
    modules_take(modules, w, 0);
}

/* What was loaded in this second may be what crashed. */
static void triggered(struct writer *w, uint64_t before) {
    (void)before;
    round_of(w, next_modules);
}

static void take_metrics(struct writer *w) {
    uint64_t ns = values_clock(CLOCK_THREAD_CPUTIME_ID); /* the service thread's own */
    PARTS_SUM(ns, cpu_ns);
    metrics_take(&files, w, ns / 1000,
                 __atomic_load_n(&writer_live(w)->handler_ns, __ATOMIC_RELAXED) / 1000);
}

static void close_all(struct writer *w) {
    if (modules)
        modules_take(modules, w, 0);
}

static void free_all(void) {
    metrics_close(&files);
    modules_free(modules);
    modules = NULL;
}

static void child(int whole) {
    if (whole)
        metrics_close(&files);
    metrics_init(&files);
    modules = NULL;
}

const struct agent_part process_part = {
    .name = "process",
    .open = open,
    .round = round_of,
    .metrics = take_metrics,
    .triggered = triggered,
    .close = close_all,
    .free = free_all,
    .child = child,
};
