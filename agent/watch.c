/* SPDX-License-Identifier: Apache-2.0 */
#include "watch.h"

#include "comm.h"
#include "pyapi.h"
#include "python.h"

#define SOON 20000000u

void watch_open(struct agent *a) {
    (void)a;
    comm_open();
}

void watch_python(struct agent *a, const struct agent_python *py) {
    (void)a;
    pyapi_load(py->handle, py->target.version);
}

void watch_round(struct agent *a, uint64_t now) {
    comm_round(a->writer, now);
}

void watch_metrics(struct agent *a) {
    (void)a;
}

uint64_t watch_wait(uint64_t wait) {
    return wait > SOON && comm_wanted() ? SOON : wait;
}

void watch_close(struct agent *a) {
    comm_close(a->writer);
}
