/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cfi_cursor.h - reading the numbers that .eh_frame is made of, through a small window that moves forward. For the cfi files.
 *
 *     struct cfi_cursor c;
 *     cfi_cursor_set(&c, mem, at, end);
 *     a = cfi_take_uleb(&c); b = cfi_take_u(&c, 4);
 *     if (c.status) ...
 *
 * The status is sticky: after an error (-EBADMSG: over the end, -EFAULT, -ENOTSUP: an unknown encoding) all that is taken
 * is 0, so whoever reads looks once. A cursor lives on the stack; nothing here locks or allocates: async-signal-safe.
 */
#ifndef PROBING_AGENT_CFI_CURSOR_H
#define PROBING_AGENT_CFI_CURSOR_H

#include "agent/unwind/cfi.h"

struct cfi_cursor {
    const struct cfi_memory *mem;
    uint64_t at, end; /* next byte; first byte not to be read */
    uint64_t base;    /* address of window[0] */
    uint32_t have;
    int status;
    uint8_t window[64];
};

void cfi_cursor_set(struct cfi_cursor *c, const struct cfi_memory *mem, uint64_t at, uint64_t end);
/* n bytes, at most a window. */
void cfi_take(struct cfi_cursor *c, void *buf, size_t n);
/* Numbers of n bytes (1 to 8), and in LEB128. */
uint64_t cfi_take_u(struct cfi_cursor *c, size_t n);
/* cfi_take_u(c, 1): most of what is read are single bytes that are in the window. */
static inline uint8_t cfi_take_byte(struct cfi_cursor *c) {
    uint64_t i = c->at - c->base;
    if (!c->status && i < c->have && c->at < c->end) {
        c->at++;
        return c->window[i];
    }
    return (uint8_t)cfi_take_u(c, 1);
}
int64_t cfi_take_s(struct cfi_cursor *c, size_t n);
uint64_t cfi_take_uleb(struct cfi_cursor *c);
int64_t cfi_take_sleb(struct cfi_cursor *c);
/* A pointer in one of the DW_EH_PE encodings. `data`: base of datarel. */
uint64_t cfi_take_encoded(struct cfi_cursor *c, uint8_t enc, uint64_t data);

#endif
