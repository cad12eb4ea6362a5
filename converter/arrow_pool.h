/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_pool.h - reusable memory for the buffers of Arrow arrays: a reader that takes batch after batch and releases each one pays for
 * fresh pages (a third of the whole time) only once.
 *
 *     struct arrow_pool *pool = arrow_pool_new();
 *     size_t cap;
 *     void *p = arrow_pool_take(pool, 4096, &cap);      // 64-byte aligned, cap >= 4096 bytes; NULL: no memory
 *     arrow_pool_give(p);                               // by any thread, also after arrow_pool_free(); NULL is allowed
 *     arrow_pool_free(pool);                            // nothing can be taken any more; the memory goes with the last buffer that is given back
 *
 * A pool keeps at most ARROW_POOL_IDLE unused bytes. Any thread.
 */
#ifndef PROBING_CONVERTER_ARROW_POOL_H
#define PROBING_CONVERTER_ARROW_POOL_H

#include <stddef.h>

#define ARROW_POOL_IDLE ((size_t)32 << 20)

struct arrow_pool;

struct arrow_pool *arrow_pool_new(void);
void arrow_pool_free(struct arrow_pool *pool);
void *arrow_pool_take(struct arrow_pool *pool, size_t n, size_t *cap);
void arrow_pool_give(void *buffer);

#endif
