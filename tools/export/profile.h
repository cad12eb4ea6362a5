/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile.h - adds up the samples by thread, step and stack, process by process, in a table of fixed size, for formats whose readers add up
 * repeated entries (pprof, OTLP).
 *
 *     static int put(void *ctx, const struct export_process *p, const struct profile_row *row, size_t n) {
 *         ...                                    // n > 0 rows of this process; called again when the table was full. 0 or -errno
 *     }
 *     int rc = profile_rows(x, put, ctx);        // 0 or -errno
 */
#ifndef PROBING_TOOLS_EXPORT_PROFILE_H
#define PROBING_TOOLS_EXPORT_PROFILE_H

#include "export.h"

struct profile_row {
    const struct export_thread *thread;
    int64_t stack; /* 0: it could not be read */
    int64_t step;  /* -1: none was in progress */
    int64_t count, wall,
        cpu; /* count in ticks, wall: the same in ns, cpu: the part of that on a CPU */
};

int profile_rows(struct export *x,
                 int (*put)(void *ctx, const struct export_process *p,
                            const struct profile_row *row, size_t n),
                 void *ctx);

#endif
