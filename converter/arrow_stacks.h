/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_stacks.h - names for callsites, as indices into the dictionaries of columns: looked up once for each function, line and
 * stack, however many samples have it.
 *
 *     struct arrow_stacks s;
 *     arrow_stacks_init(&s);
 *     uint32_t site = ...;                                   // from s.sites, by the resolver
 *     const struct arrow_frame *f = arrow_stacks_frame(&s, frame);   // NULL: no memory
 *     int64_t id = arrow_stacks_id(&s, site);                // by what is on the stack: the same in every trace and process
 */
#ifndef PROBING_CONVERTER_ARROW_STACKS_H
#define PROBING_CONVERTER_ARROW_STACKS_H

#include "arrow_names.h"
#include "callsites.h"

/* Indices: name, file (-1: none), "name (file:line)"; only those whose dictionary was given are made. */
struct arrow_frame {
    uint64_t hash;
    int64_t line; /* 0: not known */
    int32_t func, file, text;
    uint8_t known, native;
};

struct arrow_stacks {
    struct callsites sites;
    struct arrow_frame *frames; /* by frame id */
    size_t nframes;
    uint64_t *ids; /* by callsite, of the first `made` */
    size_t nids;
    uint32_t made;
    struct arrow_names *func, *file,
        *text; /* the columns' dictionaries, borrowed; NULL: not asked for */
};

void arrow_stacks_init(struct arrow_stacks *s);
void arrow_stacks_free(struct arrow_stacks *s);
/* Frame 0 is none: without names, line 0. Valid until the next call. NULL: no memory, or 2 GiB of names. */
const struct arrow_frame *arrow_stacks_frame(struct arrow_stacks *s, uint32_t frame);
/* 63 bits; 0: no memory. */
int64_t arrow_stacks_id(struct arrow_stacks *s, uint32_t site);

#endif
