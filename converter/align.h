/* SPDX-License-Identifier: Apache-2.0 */
/*
 * align.h - gives the traces of many machines a common time.
 *
 *     struct align *a = align_new();
 *     align_trace(a, reader, 1) ...;                             // each trace once: reads its process and its clock anchors
 *     if (align_wanted(a))
 *         align_collectives(a, nth, reader, epochs, 0, UINT64_MAX) ...;  // nth: 0, 1, ... in the order of the align_trace() calls
 *     align_solve(a);
 *     align_apply(a, nth, &meta);                                // meta.clock is now the aligned one
 *     align_free(a);
 *
 * All processes of one boot share one CLOCK_MONOTONIC and therefore one mapping, made from the anchors of all their traces. Different boots
 * are compared by their collectives: a collective that no rank leaves before all have entered (all_reduce, barrier, ...) ends on all ranks
 * at the same instant, apart from the jitter of the network. So the exits of one collective on two boots are one instant read from two
 * clocks, and clock_fit.h fits a line through many such points. One boot is the reference. The others are mapped onto its CLOCK_MONOTONIC;
 * a boot that shares no collective with the reference is mapped by way of boots that do. Boots that only send to and receive from each
 * other are bounded from both sides, because no message is received before it is sent. The result differs from UTC by the median of what
 * all their times of day differ by: neither one clock that is wrong by years nor steps of the time of day matter. A boot that shares
 * nothing with another one keeps the mapping of its own anchors; its method and an uncertainty of -1 say so.
 *
 * Memory: about 100 MB at most. Where there are more collectives than fit, a subset is used, the same one on all boots. One thread at a
 * time. Functions return 0 or -ENOMEM. Pointers that they return belong to the alignment and live as long as it does.
 */
#ifndef PROBING_CONVERTER_ALIGN_H
#define PROBING_CONVERTER_ALIGN_H

#include "inputs.h"
#include "meta.h"
#include "when.h"

enum align_method { ALIGN_NONE, ALIGN_ANCHORS, ALIGN_MESSAGES, ALIGN_COLLECTIVES };

/* Times of day of aligned machines that differ by more than this many ns are reported. */
#define ALIGN_WRONG (3600ll * 1000000000)

struct align_boot {
    char *boot_id, *host; /* UTF-8, "" when not known */
    char *key;            /* identifies it: meta_boot() */
    unsigned traces;
    enum align_method method;
    int reference;  /* 1: the other boots of its group are mapped onto this one */
    unsigned group; /* number, from 1, of the group of boots whose times can be compared */
    size_t matches; /* number of instants shared with other boots that were used */
    int64_t
        offset; /* ns by which its time of day is ahead of the aligned time (median over its anchors); 0: no anchors */
    double drift;    /* of its CLOCK_MONOTONIC against the reference's, as a fraction */
    double residual; /* median distance of a match from the line, in ns */
    double
        uncertainty; /* of the line, with that of the boots that it was computed from, in ns; -1: not known */
    uint32_t known; /* id of its row in the database that is extended; 0: none */
    int extended; /* the database has it, mapped by its anchors only; anchors that came since count too */
    int shared; /* the database has it, and it has matches now, which determine its mapping */
    const struct clock_map *map; /* its mapping to UTC */
    int64_t from,
        to; /* first and last match (without matches: anchor), aligned ns UTC; 0, 0: none */
};

/* SQL expression: the boot's key (meta_boot()) of a row of table trace_file, as clock_boot.boot_id has it. */
#define ALIGN_KEY                                                                                  \
    "coalesce(nullif(boot_id, ''), iif(recording LIKE 'part %', substr(recording, 6), recording))"

struct align;

/*
 * Does all steps but align_solve() for a list of files. Returns NULL when there is no memory. Sets first[i] to the number of the first
 * trace of file i, and first[n] to the number of traces. A file that cannot be opened has no traces. tick() is as in convert.h and is
 * called after each file. For a part of the time (when.h) only the collectives and clock anchors around that part are read, unless this
 * leaves a boot without a collective. stored: indexes for reader_open_stored(), borrowed as long as the alignment lives.
 */
struct align *align_inputs(const struct inputs *in, const struct reader_stored *stored,
                           size_t nstored, size_t *first, const struct when *since,
                           const struct when *until, int (*tick)(void *ctx, double part),
                           void *ctx);

/* Returns what opening the file found out (reader.h), so that the file need not be indexed again when it is converted; NULL: it was not
 * kept. It lives as long as the alignment. */
const struct reader_kept *align_kept(const struct align *a, size_t file);

struct align *align_new(void);
void align_free(struct align *a);
/* With `all`, takes all clock anchors of the trace. Otherwise takes those of its first block; align_anchors() then adds the ones that
 * matter for the time from lo to hi (CLOCK_MONOTONIC). */
int align_trace(struct align *a, struct reader *r, int all);
int align_anchors(struct align *a, size_t nth, struct reader *r, uint64_t lo, uint64_t hi);
/* Returns 1 when there is something to align, that is, more than one boot. */
int align_wanted(const struct align *a);
/* Takes only collectives recorded from lo to hi. */
int align_collectives(struct align *a, size_t nth, struct reader *r, struct epochs *es, uint64_t lo,
                      uint64_t hi);
/* Before align_solve(): declares a boot that a database has, with the id of its row, its group, and, if knot is 1, a point of its mapping (in the
 * order of time). The boot keeps that mapping, and others are mapped onto it; but where two groups of the database have something in common now,
 * one of them moves. Returns 0 or -ENOMEM. */
int align_known(struct align *a, uint32_t id, const char *key, unsigned group, int knot,
                int64_t mono, int64_t utc);
/* Declares how that mapping was made (align_method_name()), and its uncertainty as in struct align_boot. */
void align_known_how(struct align *a, const char *key, const char *method, double uncertainty);
/* Declares until when (ns UTC) the database has rows of that boot: a mapping made of nothing but the boot's own anchors is extended from there by the anchors
 * that came since. */
void align_known_until(struct align *a, const char *key, int64_t utc);
int align_solve(struct align *a);

/*
 * A group of boots of the database that moves, because it now has something in common with another group: the times of this group become
 * those of the other, by one mapping for all its boots, so that the offsets between them stay the same. Whoever stored rows with the old
 * times has to change them.
 */
struct align_move {
    unsigned from, to;           /* groups */
    struct clock_map map;        /* clock_utc() maps an old time to the new one, both in ns UTC */
    const struct align_boot *by; /* the boot that has something in common with the other group */
};
size_t align_moves(const struct align *a);
struct align_move *align_move(const struct align *a, size_t i);
/* Computes into *out the mapping that a boot of the moving group has after the move; `was` is its mapping before. Returns 0 or -ENOMEM; the
 * caller owns *out. */
int align_moved(struct align_move *m, struct clock_map *was, struct clock_map *out);
/* Writes the text that identifies the recording and stays the same while it grows: meta_recording(). */
void align_recording(const struct align *a, size_t nth, char buf[META_RECORDING]);
/* Returns 1 + the index of the file with another trace of the same recording that is at least as long, so that this one must not count; 0: none. */
size_t align_copy_of(const struct align *a, size_t nth);
/* Only the anchors that the trace itself has count in meta.clock_anchors and its uncertainty. */
int align_apply(const struct align *a, size_t nth, struct meta *m);
/* Sets the first and the last time of the data, in aligned ns UTC; 0, 0: there is no data. */
void align_span(struct align *a, int64_t *first, int64_t *last);
size_t align_boots(const struct align *a);
const struct align_boot *align_boot(const struct align *a, size_t i);
const struct align_boot *align_boot_of(const struct align *a, size_t nth);
const char *align_method_name(enum align_method m);

#endif
