/* SPDX-License-Identifier: Apache-2.0 */
/*
 * modules.h - which file was mapped at an address, and when: the module records of one trace.
 *
 *     struct modules m = {0};
 *     modules_load(&m, reader, epochs, symbols, &recorded);
 *     struct module *mod = modules_at(&m, pc, ts);   // NULL: none was known there
 *     modules_free(&m);
 *
 * Two libraries may have lain at one address one after the other: the answer then depends on the
 * time. modules_generation() numbers the spans of time between such changes (nearly always there is
 * one span), so that callers may remember answers per (address, generation). One thread at a time.
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
    int asked;         /* the resolver's: an address of it was named, in this trace */
    int had;           /* load.c's: 1 + what was known of its symbols before; 0: nothing */
};

struct modules {
    struct module *m; /* by start, then load */
    size_t n, cap;
    uint64_t *bounds; /* times at which an address changed hands */
    size_t nbounds;
    uint64_t reach; /* the longest range: how far back a search must look */
};

/* 0 or -ENOMEM; damaged blocks are left out. */
int modules_load(struct modules *m, struct reader *r, struct epochs *es, struct symbols *s,
                 const struct recorded *rec);
/* pc: a run-time address; ts: ns of CLOCK_MONOTONIC. NULL: none was known there; else one of m. */
struct module *modules_at(const struct modules *m, uint64_t pc, uint64_t ts);
uint32_t modules_generation(const struct modules *m, uint64_t ts);
void modules_free(struct modules *m);

#endif
