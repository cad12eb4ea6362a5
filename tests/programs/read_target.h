/* SPDX-License-Identifier: Apache-2.0 */
/* read_target.h - a pywalk_read_fn of the process `target` that writes all it reads to `record`, for fuzz_*.c to replay. */
#ifndef PROBING_TESTS_READ_TARGET_H
#define PROBING_TESTS_READ_TARGET_H

#include <stdio.h>
#include <sys/types.h>

#include "agent/pywalk/pywalk.h"

static FILE *record; /* NULL: nothing is written */
static pid_t target;

/* For each piece: u64 address, u64 length, the bytes. */
static int read_target(void *ctx, uint64_t addr, void *buf, size_t n) {
    int rc = pywalk_read_process((void *)(intptr_t)target, addr, buf, n);
    uint64_t head[2] = {addr, n};
    (void)ctx;
    if (record != NULL && rc == 0) {
        fwrite(head, sizeof head, 1, record);
        fwrite(buf, n, 1, record);
    }
    return rc;
}

#endif
