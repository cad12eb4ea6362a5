/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.h - small helpers for filling records: values for writer_emit(), the clock, and where the agent's
 * file descriptors lie. Any thread, any signal context.
 */
#ifndef PROBING_AGENT_VALUES_H
#define PROBING_AGENT_VALUES_H

#include <string.h>
#include <time.h>

#include "writer/writer.h"

#define VALUES_FD_BASE 400 /* descriptors of the agent lie from here on, where there is room */

static inline uint64_t values_clock(clockid_t id) {
    struct timespec ts = {0, 0};
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t values_now(void) {
    return values_clock(CLOCK_MONOTONIC);
}

static inline struct writer_value value_u(uint64_t u) {
    return (struct writer_value){.u = u};
}

static inline struct writer_value value_i(int64_t i) {
    return (struct writer_value){.i = i};
}

static inline struct writer_value value_bytes(const void *p, size_t n) {
    return (struct writer_value){.p = p, .n = n};
}

static inline struct writer_value value_text(const char *s) {
    return value_bytes(s, strlen(s));
}

#endif
