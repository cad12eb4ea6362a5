/* SPDX-License-Identifier: Apache-2.0 */
/* dict_inside.h - what dictionaries are made of, for dict.c and dict_kept.c alone; everybody else uses dict.h. */
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

/* id -> entry: ids of a whole dictionary are 1, 2, 3 ..., so that they are looked up nowhere; a damaged one has holes. */
struct table {
    size_t dense;    /* entry i of these is that of id i + 1 */
    struct keys ids; /* of those behind the first hole: their entries follow, in this order */
    uint8_t *entries;
    size_t cap;
};

struct dict {
    struct epochs *es;
    size_t next, end; /* in its order: what is yet to be read */
    uint32_t epoch;
    int used;
    uint64_t stamp;
    struct table t[NTABLES];
    struct dict_block {
        uint8_t *p;
        size_t n;
    } * blocks;            /* copies that the entries point into */
    size_t nblocks, bytes; /* bytes: of them and the tables */
    const uint8_t *taken;  /* and into these blocks, of epochs_take() */
    size_t ntaken, kept;   /* kept: bytes that it began with */
};

struct epochs {
    struct reader *r;
    uint64_t want;        /* record types */
    int as_asked;         /* a dictionary is read as far as what is asked of it lies */
    int no_memory;        /* for that */
    const uint8_t *given; /* strings, each with a struct said before it */
    size_t ngiven;
    const void *taken; /* of epochs_take() */
    size_t ntaken;
    int (*take)(
        struct dict *
            d); /* the empty dictionary gets what that has of it. 0; -ENOMEM: it is to be cleared */
    struct keys asked; /* {epoch, id} of those in said */
    uint8_t *said;
    size_t nsaid, said_cap;
    struct reader_data data;
    struct dict d[KEPT];
    uint64_t clock;
    struct place { /* the dictionary blocks, by epoch and place in the file */
        uint32_t epoch;
        size_t block;
    } * order;
    size_t norder;
    uint32_t *distinct;
    size_t ndistinct;
};

#endif
