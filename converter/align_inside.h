/* SPDX-License-Identifier: Apache-2.0 */
/*
 * align_inside.h - what the parts of align.h share, for these alone: align.c (whose trace it is, its anchors), align_collectives.c (the
 * instants that machines share), align_solve.c (lines through them), align_result.c (from lines to UTC), align_inputs.c (all of it
 * for files).
 */
#ifndef PROBING_CONVERTER_ALIGN_INSIDE_H
#define PROBING_CONVERTER_ALIGN_INSIDE_H

#include "align.h"
#include "clock_fit.h"

/* An instant that others have seen, too: of the same key. The lowest bits of a key are its sort. */
enum { MATCH_EXIT = 0, MATCH_SENT = 1, MATCH_RECEIVED = 2, MATCH_SORT = 3 };
struct match {
    uint64_t key;
    int64_t at; /* CLOCK_MONOTONIC of the boot */
    uint32_t boot;
};

struct anchor {
    int64_t mono, real, boottime;
    uint64_t bracket;
};

struct boot {
    struct align_boot out;
    struct anchor *anchor; /* by time, thinned out, when solved */
    size_t nanchors, cap;
    struct clock_fit fit;   /* onto the reference's CLOCK_MONOTONIC; n 0: none */
    unsigned in;            /* the group whose reference that is */
    struct clock_map map;   /* the result: to UTC */
    int64_t until;          /* ns UTC: of the rows of that; 0: not known */
    struct clock_map given; /* align_known() */
    int suspended;          /* between two anchors the machine was */
    size_t seen;            /* its matches */
};

struct trace_of {
    uint32_t boot;
    uint64_t run; /* hash of what its run is called on all machines */
    int64_t rank;
    uint64_t process_ts;  /* when its first process record was written */
    uint64_t pid, start;  /* of its process, monotonic */
    int64_t start_utc;    /* by its own clock */
    uint64_t first, last; /* monotonic: times of its data, by hints; 0: there is none */
    uint32_t attempt;     /* of the run's processes with this rank, the how many-th */
    uint64_t bytes;       /* of the file */
    size_t file,
        copy; /* where it lies; file + 1 of the one that is the same recording, and counts */
};

struct align {
    struct boot *boot;
    size_t nboots, boots_cap;
    unsigned groups; /* the highest of the database */
    struct keys boot_ids;
    struct trace_of *trace;
    size_t ntraces, traces_cap;
    struct match *match;
    size_t nmatches, matches_cap;
    uint64_t limit; /* keys above are left out */
    struct align_move *move;
    size_t nmoves;
    struct reader_kept **kept; /* by file, NULL: none */
    size_t nkept;
    int attempts; /* told apart */
};

#define MATCHES_MAX (2u << 20)

/* How long the machine slept between two anchors, ns: what BOOTTIME gained on MONOTONIC. */
static inline int64_t align_slept(const struct anchor *a, const struct anchor *b) {
    int64_t gained = b->boottime - b->mono - (a->boottime - a->mono);

    return a->boottime && b->boottime && gained > 1000000 ? gained : 0;
}

#define ALIGN_APART 1000000000 /* ns between anchors that are kept */

/* qsort's order of anchors: by their monotonic time. */
int align_by_mono(const void *x, const void *y);
/* Makes space for one more element of `size` bytes. 0 or -ENOMEM. */
int align_grow(void **p, size_t n, size_t *cap, size_t size);
/* h, with the bytes mixed in. */
uint64_t align_mix(uint64_t h, const void *p, size_t n);
/* What the boot's clock shows at `mono`, as the CLOCK_MONOTONIC of its group's reference. */
static inline int64_t align_to_reference(const struct boot *b, int64_t mono) {
    return mono + (int64_t)clock_fit_at(&b->fit, mono);
}

/* align_moves.c: groups of the database that can be laid on another one now. 0 or -ENOMEM. */
int align_find_moves(struct align *a);
/* The one with a mapping of the database that others were compared with; NULL: none. */
struct boot *align_reference_of(struct align *a, unsigned group);
/* align_solve.c: fits and groups. 0 or -ENOMEM. */
int align_fit(struct align *a);

#endif
