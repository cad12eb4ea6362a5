/* SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGES 1024
#define PAGE  4096u

struct cache {
    struct pywalk_mem mem;
    struct {
        uint64_t page; /* its address; 0: empty */
        uint8_t bytes[PAGE];
    } v[PAGES];
};

struct cache *cache_open(struct pywalk_mem mem) {
    struct cache *c = malloc(sizeof *c);

    if (!c)
        return NULL;
    c->mem = mem;
    for (size_t i = 0; i < PAGES; i++)
        c->v[i].page = 0;
    return c;
}

int cache_read(void *cache, uint64_t addr, void *buf, size_t n) {
    struct cache *c = cache;
    uint8_t *to = buf;

    while (n > 0) {
        uint64_t page = addr & ~(uint64_t)(PAGE - 1);
        size_t at = addr & (PAGE - 1), some = PAGE - at < n ? PAGE - at : n;
        size_t slot = (page / PAGE) % PAGES;

        if (page == 0)
            return -EFAULT;
        if (c->v[slot].page != page) {
            c->v[slot].page = 0;
            /* A core may hold a part of a page. */
            if (c->mem.read(c->mem.ctx, page, c->v[slot].bytes, PAGE) == 0)
                c->v[slot].page = page;
            else if (c->mem.read(c->mem.ctx, addr, to, some) != 0)
                return -EFAULT;
        }
        if (c->v[slot].page == page)
            memcpy(to, c->v[slot].bytes + at, some);
        to += some;
        addr += some;
        n -= some;
    }
    return 0;
}
