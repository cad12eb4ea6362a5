/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/watch.h"

#include "agent/comm/comm.h"
#include "agent/core/python.h"
#include "agent/gpu/gpu.h"
#include "agent/python/capi.h"
#include "agent/trigger/trigger.h"

#define SOON 20000000u

void watch_open(struct agent *a) {
    comm_open();
    trigger_open(a);
}

void watch_python(struct agent *a, const struct agent_python *python) {
    if (!capi_load(python))
        trigger_python(a);
}

void watch_round(struct agent *a, uint64_t now) {
    comm_round(a->writer, now);
    trigger_round(a, now);
}

void watch_metrics(struct agent *a) {
    gpu_metrics(a->writer);
}

uint64_t watch_wait(uint64_t wait) {
    if (wait > SOON && comm_wanted())
        wait = SOON;
    return trigger_wait(wait);
}

void watch_close(struct agent *a) {
    trigger_close(a);
    comm_close(a->writer);
}

void watch_leave(void) {
    comm_leave();
}
