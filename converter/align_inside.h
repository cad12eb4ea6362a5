/* SPDX-License-Identifier: Apache-2.0 */
/*
 * align_inside.h - shared by the files that implement align.h, and by no other: align.c (the processes and anchors of the traces),
 * align_collectives.c (the instants that machines share), align_solve.c (the lines through them), align_moves.c (groups of a database that
 * move), align_result.c (from the lines to UTC), align_inputs.c (all of that for a list of files).
 */
#ifndef PROBING_CONVERTER_ALIGN_INSIDE_H
#define PROBING_CONVERTER_ALIGN_INSIDE_H

#include "align.h"
#include "clock_fit.h"

/* An instant that other boots may have recorded too, under the same key. The lowest bits of a key are its kind. */
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
    struct anchor *anchor; /* sorted by time, and thinned out, once solved */
    size_t nanchors, cap;
    struct clock_fit fit;   /* its line onto the reference's CLOCK_MONOTONIC; n 0: none */
    unsigned in;            /* number of that reference's group */
    int refused;            /* 1: its matches with the present reference are by chance */
    struct clock_map map;   /* the result: to UTC */
    int64_t until;          /* end of its rows in the database, ns UTC; 0: not known */
    struct clock_map given; /* the mapping that align_known() declared */
    int suspended;          /* 1: the machine was suspended between two anchors */
    size_t seen;            /* number of its matches */
};

struct trace_of {
    uint32_t boot;
    uint64_t run; /* hash of the name of its run, which is the same on all machines */
    int64_t rank;
    uint64_t process_ts;  /* when its first process record was written */
    uint64_t pid, start;  /* of its process; start on CLOCK_MONOTONIC */
    uint64_t mark;        /* reader_mark(), if there is no process record; else 0 */
    int64_t start_utc;    /* start in ns UTC by its own clock; 0: it has no anchor */
    uint64_t first, last; /* times of its data by the hints, CLOCK_MONOTONIC; 0: no data */
    uint32_t attempt;     /* number of its process among the run's processes with this rank */
    uint64_t bytes;       /* size of the trace */
    size_t file,
        copy; /* index of its file; copy: 1 + index of the file with the longer copy of the same recording, 0: none */
};

struct align {
    struct boot *boot;
    size_t nboots, boots_cap;
    unsigned groups; /* highest group number of the database */
    struct keys boot_ids;
    struct trace_of *trace;
    size_t ntraces, traces_cap;
    struct match *match;
    size_t nmatches, matches_cap;
    uint64_t limit; /* matches with higher keys are left out */
    struct align_move *move;
    size_t nmoves;
    struct reader_kept **kept; /* one for each file; NULL: none */
    size_t nkept;
    int attempts; /* 1: trace_of.attempt is set */
};

#define MATCHES_MAX (2u << 20)

/* Times later than this, 73 years after the machine booted, are not used, so that differences of times do not overflow. */
#define ALIGN_TIME_MAX (1ull << 61)

/* Returns for how many ns the machine slept between two anchors: by how much BOOTTIME advanced further than MONOTONIC. */
static inline int64_t align_slept(const struct anchor *a, const struct anchor *b) {
    int64_t gained = b->boottime - b->mono - (a->boottime - a->mono);

    return a->boottime && b->boottime && gained > 1000000 ? gained : 0;
}

#define ALIGN_APART 1000000000 /* minimum distance in ns between anchors that are kept */

/* Comparison function for qsort(): orders anchors by their monotonic time. */
int align_by_mono(const void *x, const void *y);
/* Makes space for one more element of `size` bytes. Returns 0 or -ENOMEM. */
int align_grow(void **p, size_t n, size_t *cap, size_t size);
/* Returns h with the n bytes at p mixed in. */
uint64_t align_mix(uint64_t h, const void *p, size_t n);
/* Converts `mono`, a time of the boot's CLOCK_MONOTONIC, to the CLOCK_MONOTONIC of its group's reference. */
static inline int64_t align_to_reference(const struct boot *b, int64_t mono) {
    return mono + (int64_t)clock_fit_at(&b->fit, mono);
}

/* align_moves.c: finds the groups of the database that can now be mapped onto another group. Returns 0 or -ENOMEM. */
int align_find_moves(struct align *a);
/* align_moves.c: returns the reference of the group, if it has a mapping in the database; else NULL. */
struct boot *align_reference_of(struct align *a, unsigned group);
/* align_solve.c: computes the fits and the groups. Returns 0 or -ENOMEM. */
int align_fit(struct align *a);

#endif
