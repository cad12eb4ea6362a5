/* SPDX-License-Identifier: Apache-2.0 */
/* pywalk_line.h - the executing line, by a table in our own memory: for test_pywalk.c and pywalk_dump.c. */
#ifndef PROBING_TESTS_PYWALK_LINE_H
#define PROBING_TESTS_PYWALK_LINE_H

#include "agent/pywalk/pywalk.h"

static inline int pywalk_line(uint32_t version, const uint8_t *table, size_t len, int firstline,
                              int32_t lasti) {
    struct pywalk pw = {.mem = {pywalk_read_direct, NULL}, .version = version};
    static struct pywalk_code code;

    code.firstline = firstline;
    code.linetable = (uint64_t)(uintptr_t)table;
    code.linetable_len = (uint32_t)len;
    return pywalk_frame_line(&pw, &code, lasti);
}

#endif
