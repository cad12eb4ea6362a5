/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resume.h - decides whether the conversion of a trace that has grown can be continued after the blocks that were read before, so that
 * their rows stay: this requires that nothing recorded since then changes what these rows say.
 *
 *     struct resume now;
 *     resume_of(&now, reader, &meta, &modules, NULL);   // describes all that is in the trace; it is stored with the rows (table trace_read)
 *     if (resume_begins(&was, reader)) ...           // the first blocks are the same as then; tested without reading them
 *     if (resume_fits(&was, &rows, reader, &meta, &modules, &callsites)) ... // what is now known of processes, threads, files agrees with then
 *
 * When one of them says no, the whole trace is converted anew. Reasons are: the file was replaced, a thread id was reused before the end of
 * what was read then, or names arrived after the records that they name.
 */
#ifndef PROBING_CONVERTER_RESUME_H
#define PROBING_CONVERTER_RESUME_H

#include "callsites.h"
#include "meta.h"
#include "modules.h"

/* Corresponds to the columns of trace_read. */
struct resume {
    uint64_t blocks, digest; /* blocks 0: it cannot be continued */
    uint64_t last;           /* latest time in these blocks */
    uint64_t eval;
    uint64_t modules, modules_digest, modules_last;
    uint64_t names;
};

/* What the rest of the database says of the trace. */
struct resume_rows {
    uint64_t lost[TRACE_NLOST];
    uint64_t periods;
    const uint64_t *tids; /* thread ids of the trace's threads, in the order of their rows */
    size_t threads;
    int has_bare; /* 1: the trace has native code of which the file was not known */
};

/* was: what resume_fits() said yes to; NULL: nothing. */
void resume_of(struct resume *now, const struct reader *r, const struct meta *m,
               const struct modules *mods, const struct resume *was);
int resume_begins(const struct resume *was, const struct reader *r);
/* Also creates the threads that were made up in the earlier conversion again, in the same order. No other thread may be resolving samples
 * of this trace. */
int resume_fits(const struct resume *was, const struct resume_rows *rows, const struct reader *r,
                struct meta *m, const struct modules *mods, const struct callsites *cs);

#endif
