/* SPDX-License-Identifier: Apache-2.0 */
/*
 * modules.h - finds which file was mapped at an address at a given time, from the module records of one trace.
 *
 *     struct modules m = {0};
 *     modules_load(&m, reader, epochs, symbols, &recorded);
 *     struct module *mod = modules_at(&m, pc, ts);   // NULL: no module is known there
 *     modules_free(&m);
 *
 * Two libraries may have been mapped at the same address, one after the other, so the answer depends on the time. modules_generation()
 * numbers the periods between such changes (nearly always there is just one period), so that callers can cache answers per (address,
 * generation). One thread at a time.
 */
#ifndef PROBING_CONVERTER_MODULES_H
#define PROBING_CONVERTER_MODULES_H

#include "dict.h"
#include "recorded.h"
#include "symbols.h"

struct module {
    char *path;     /* UTF-8 */
    char *build_id; /* hex */
    uint64_t start, end, bias;
    uint64_t load, unload; /* monotonic ns; unload UINT64_MAX: never */
    struct symbols_file *file;
    uint32_t recorded; /* the file's number in the trace's own symbols (recorded.h), 0: none */
    int asked;         /* set by the resolver: an address in it was looked up in this trace */
    int had;           /* set by load.c: 1 + column `symbols` of its row before; 0: it had none */
};

struct modules {
    struct module *m; /* sorted by start, then by load */
    size_t n, cap;
    uint64_t *bounds; /* times at which an address range was mapped to another file */
    size_t nbounds;
    uint64_t reach; /* length of the longest range: how far back a search must look */
};

/* Returns 0 or -ENOMEM; skips damaged blocks. */
int modules_load(struct modules *m, struct reader *r, struct epochs *es, struct symbols *s,
                 const struct recorded *rec);
/* pc: a run-time address; ts: ns of CLOCK_MONOTONIC. Returns an element of m, or NULL when no module is known there. */
struct module *modules_at(const struct modules *m, uint64_t pc, uint64_t ts);
uint32_t modules_generation(const struct modules *m, uint64_t ts);
void modules_free(struct modules *m);

#endif
