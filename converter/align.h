/* SPDX-License-Identifier: Apache-2.0 */
/*
 * align.h - one time for the traces of many machines.
 *
 *     struct align *a = align_new();
 *     align_trace(a, reader, 1) ...;                             // each trace once: whose it is, its clock anchors
 *     if (align_wanted(a))
 *         align_collectives(a, nth, reader, epochs, 0, UINT64_MAX) ...;  // nth: as align_trace() was called, 0, 1, ...
 *     align_solve(a);
 *     align_apply(a, nth, &meta);                                // meta.clock is the aligned one now
 *     align_free(a);
 *
 * All processes of one boot share one CLOCK_MONOTONIC, and so one mapping, made of the anchors of all their traces. Between
 * boots collectives tell: those that nobody leaves before all have come (all_reduce, barrier, ...) are left by all at the same
 * instant but for the network's jitter. So the exits of the same collective on two boots are one instant on two clocks, and
 * clock_fit.h makes a line of many. One boot is the reference, the others are laid on its CLOCK_MONOTONIC, those that share no
 * collective with it by way of those that do; boots that only send to and receive from each other are bound from both sides:
 * no message is received before it is sent. The result is as far from UTC as the median of all their times of day: one clock
 * that is wrong by years does not matter, steps of the time of day do not either.
 * Boots that share nothing with others keep their own anchors, and say so (method, uncertainty -1).
 *
 * Memory: at most some 100 MB; where there are more collectives, some are taken, the same ones of all boots. One thread at a time.
 * Functions return 0 or -ENOMEM; pointers to something are the alignment's and live as long.
 */
#ifndef PROBING_CONVERTER_ALIGN_H
#define PROBING_CONVERTER_ALIGN_H

#include "inputs.h"
#include "meta.h"
#include "when.h"

enum align_method { ALIGN_NONE, ALIGN_ANCHORS, ALIGN_MESSAGES, ALIGN_COLLECTIVES };

/* ns that times of day of machines which are aligned may lie apart before it is said. */
#define ALIGN_WRONG (3600ll * 1000000000)

struct align_boot {
    char *boot_id, *host; /* UTF-8, "" when not known */
    unsigned traces;
    enum align_method method;
    int reference;  /* the others of its group are laid on it */
    unsigned group; /* of boots whose times may be compared, from 1 */
    size_t matches; /* instants shared with others that were used */
    int64_t
        offset; /* ns that its time of day is ahead of the aligned time (median over its anchors); 0 without anchors */
    double drift;       /* of its CLOCK_MONOTONIC against the reference's, parts of one */
    double residual;    /* median distance of a match from the line, ns */
    double uncertainty; /* of the line, ns; -1: not known */
    uint32_t known;     /* its row in the database that is added to; 0: none */
    int extended; /* it is known, and its anchors, some of which may have come since, are what is said of it */
    int shared;                  /* it is known, and has matches now: they are */
    const struct clock_map *map; /* the mapping itself */
    int64_t from,
        to; /* of the matches (else of the anchors), aligned ns UTC; 0, 0: there are none */
};

struct align;

/*
 * All of that but align_solve() for a list of files: NULL when there is no memory. first[i] (n + 1 of them) becomes
 * the number of the first trace of file i. What cannot be opened has none. tick() as in convert.h, called after each file.
 * Of a part of the time (when.h) only the collectives and clock anchors around it are read, unless that leaves a boot without a collective.
 */
struct align *align_inputs(const struct inputs *in, size_t *first, const struct when *since,
                           const struct when *until, int (*tick)(void *ctx, double part),
                           void *ctx);

/* What opening the file found out (reader.h), for whoever converts it; it lives as long as the alignment. NULL: not kept. */
const struct reader_kept *align_kept(const struct align *a, size_t file);

struct align *align_new(void);
void align_free(struct align *a);
/* all: all its clock anchors; else the first block's, and align_anchors() adds those that matter from lo to hi (CLOCK_MONOTONIC). */
int align_trace(struct align *a, struct reader *r, int all);
int align_anchors(struct align *a, size_t nth, struct reader *r, uint64_t lo, uint64_t hi);
/* Whether there is anything to align: there is more than one boot. */
int align_wanted(const struct align *a);
/* lo, hi: only what was recorded then. */
int align_collectives(struct align *a, size_t nth, struct reader *r, struct epochs *es, uint64_t lo,
                      uint64_t hi);
/* Before align_solve(): a boot that a database has, the number of its row and its group there, and (knot) a point of its mapping, by time.
 * It keeps that mapping, others are laid on it; but where two groups of the database have something in common now, one of them moves. */
int align_known(struct align *a, uint32_t id, const char *boot_id, unsigned group, int knot,
                int64_t mono, int64_t utc);
/* And what is reported of it: how it was made; uncertainty as in struct align_boot. */
void align_known_how(struct align *a, const char *boot_id, const char *method, double uncertainty);
/* Until when (ns UTC) the database has rows of it: a mapping that has nothing but the boot's own anchors goes on there with those that came since. */
void align_known_until(struct align *a, const char *boot_id, int64_t utc);
int align_solve(struct align *a);

/*
 * Boots that a database has in two groups, and that have something in common now: the times of one group become those of the other, by one
 * mapping for all its boots, so that they stay to each other as they were. Who has rows with these times changes them.
 */
struct align_move {
    unsigned from, to;           /* groups */
    struct clock_map map;        /* from ns UTC as they were to ns UTC as they are: clock_utc() */
    const struct align_boot *by; /* the boot that has something in common with the other group */
};
size_t align_moves(const struct align *a);
struct align_move *align_move(const struct align *a, size_t i);
/* The mapping of a boot of the group that moves, after it: `was` is the one before. 0 or -ENOMEM; *out is the caller's. */
int align_moved(struct align_move *m, struct clock_map *was, struct clock_map *out);
/* Only the anchors that the trace itself has count in meta.clock_anchors and its uncertainty. */
/* What identifies a recording, and stays when it grows. */
void align_recording(const struct align *a, size_t nth, char buf[160]);
/* Another trace is the same recording, and at least as long: this one is not to count. The file that it lies in, from 1; 0: none. */
size_t align_copy_of(const struct align *a, size_t nth);
int align_apply(const struct align *a, size_t nth, struct meta *m);
/* From when to when there is data, ns UTC, aligned; 0, 0: there is none. */
void align_span(struct align *a, int64_t *first, int64_t *last);
size_t align_boots(const struct align *a);
const struct align_boot *align_boot(const struct align *a, size_t i);
const struct align_boot *align_boot_of(const struct align *a, size_t nth);
const char *align_method_name(enum align_method m);

#endif
