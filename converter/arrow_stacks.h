/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_stacks.h - the names of callsites, as indices into the dictionaries of columns. They are looked up once for each function, line and
 * stack, however many samples have it.
 *
 *     struct arrow_stacks s;
 *     arrow_stacks_init(&s);
 *     uint32_t site = ...;                                   // a callsite in s.sites, from the resolver
 *     const struct arrow_frame *f = arrow_stacks_frame(&s, frame);   // NULL: no memory
 *     int64_t id = arrow_stacks_id(&s, site);                // a hash of what is on the stack: the same in every trace and process
 */
#ifndef PROBING_CONVERTER_ARROW_STACKS_H
#define PROBING_CONVERTER_ARROW_STACKS_H

#include "arrow_names.h"
#include "callsites.h"

/* Indices of the name, the file (-1: none) and "name (file:line)"; only those whose dictionary was set are filled in. */
struct arrow_frame {
    uint64_t hash;
    int64_t line; /* 0: not known */
    int32_t func, file, text;
    uint8_t known, native;
};

struct arrow_stacks {
    struct callsites sites;
    struct arrow_frame *frames; /* indexed by frame id */
    size_t nframes;
    uint64_t *ids; /* indexed by callsite, for the first `made` callsites */
    size_t nids;
    uint32_t made;
    struct arrow_names *func, *file,
        *text; /* the columns' dictionaries, borrowed; NULL: not asked for */
};

void arrow_stacks_init(struct arrow_stacks *s);
void arrow_stacks_free(struct arrow_stacks *s);
/* Returns the names of a frame, valid until the next call. Frame 0 means no frame: it has no names and line 0. Returns NULL: no memory, or
 * 2 GiB of names. */
const struct arrow_frame *arrow_stacks_frame(struct arrow_stacks *s, uint32_t frame);
/* Returns an id of 63 bits; 0: no memory. */
int64_t arrow_stacks_id(struct arrow_stacks *s, uint32_t site);

#endif
