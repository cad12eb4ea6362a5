/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.h - memory of a source by the page: for whoever follows many pointers at one moment.
 *
 *     struct cache *c = cache_open(source_mem);              // NULL: no memory
 *     pw.mem = (struct pywalk_mem){cache_read, c};
 *     free(c);
 *
 * What was read once stays as it was: use it for one look at a process, and for no longer.
 */
#ifndef PROBING_INSPECT_CACHE_H
#define PROBING_INSPECT_CACHE_H

#include "agent/pywalk/pywalk.h"

struct cache;

struct cache *cache_open(struct pywalk_mem mem);
/* A pywalk_read_fn. */
int cache_read(void *cache, uint64_t addr, void *buf, size_t n);

#endif
