/* SPDX-License-Identifier: Apache-2.0 */
/* dict_inside.h - the structs of dictionaries, for dict.c and dict_kept.c only; all other files use dict.h. */
#ifndef PROBING_CONVERTER_DICT_INSIDE_H
#define PROBING_CONVERTER_DICT_INSIDE_H

#include "dict.h"
#include "keys.h"

#define KEPT    2
#define DICT_ID 48 /* bytes that an id takes in `struct keys` */

enum { STRINGS, FRAMES, STACKS, MODULES, NATIVE_FILES, NTABLES };

struct dict_text {
    const uint8_t *p;
    uint32_t n;
};

static const size_t dict_entry_size[NTABLES] = {
    sizeof(struct dict_text), sizeof(struct dict_frame), sizeof(struct dict_stack),
    sizeof(struct dict_module), sizeof(struct dict_native_file)};

/* Maps an id to its entry. The ids of an undamaged dictionary are 1, 2, 3 ... and need no look-up; a damaged one has gaps. */
struct table {
    size_t dense;    /* the first `dense` entries have the ids 1, 2, 3 ...: entry i that of i + 1 */
    struct keys ids; /* the ids after the first gap; their entries follow in this order */
    uint8_t *entries;
    size_t cap;
};

struct dict {
    struct epochs *es;
    size_t next, end; /* the part of es->order that is still to be read */
    uint32_t epoch;
    int used;
    uint64_t stamp;
    struct table t[NTABLES];
    struct dict_block {
        uint8_t *p;
        size_t n;
    } * blocks;            /* copies that the entries point into */
    size_t nblocks, bytes; /* bytes: of the blocks and the tables */
    const uint8_t *taken;  /* the blocks given to epochs_take(), which entries point into too */
    size_t ntaken, kept;   /* kept: the bytes that it started with */
};

struct epochs {
    struct reader *r;
    uint64_t want;        /* record types that are read */
    int as_asked;         /* dictionaries are read only as far as what is asked for */
    int no_memory;        /* there was none for as_asked */
    const uint8_t *given; /* the strings given to epochs_give(), each preceded by a struct said */
    size_t ngiven;
    const void *taken; /* given to epochs_take() */
    size_t ntaken;
    int (*take)(
        struct dict *
            d); /* fills the empty dictionary from `taken`. Returns 0, or -ENOMEM: the dictionary must be cleared */
    struct keys asked; /* {epoch, id} of the strings in `said` */
    uint8_t *said;
    size_t nsaid, said_cap;
    struct reader_data data;
    struct dict d[KEPT];
    uint64_t clock;
    struct place { /* the dictionary blocks, sorted by epoch and place in the file */
        uint32_t epoch;
        size_t block;
    } * order;
    size_t norder;
    uint32_t *distinct;
    size_t ndistinct;
};

#endif
