/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resume.h - whether a trace that has grown since it was converted can be gone on with behind what was read then, so that its rows stay:
 * nothing that came since changes what they say.
 *
 *     struct resume now;
 *     resume_of(&now, reader, &meta, &modules);      // what is kept with the rows (table trace_read), of all that is in the trace
 *     if (resume_begins(&was, reader)) ...           // the same blocks as then, and more; nothing of them is read for that
 *     if (resume_fits(&was, &rows, reader, &meta, &modules, &callsites)) ... // and what is known by now of processes, threads, files agrees with then
 *
 * Where one of them says no, the trace is converted anew as a whole: a file that was replaced, a number of a thread that was given out
 * again before what was read then ended, names that came later than what they name.
 */
#ifndef PROBING_CONVERTER_RESUME_H
#define PROBING_CONVERTER_RESUME_H

#include "callsites.h"
#include "meta.h"
#include "modules.h"

/* The columns of trace_read. */
struct resume {
    uint64_t blocks, digest; /* blocks 0: it cannot be gone on with */
    uint64_t last;           /* the latest time in them */
    uint64_t eval;
    uint64_t modules, modules_digest, modules_last;
    uint64_t names;
};

/* What the database says besides. */
struct resume_rows {
    uint64_t lost[TRACE_NLOST];
    uint64_t periods;
    const uint64_t *tids; /* of its threads, in the order of their rows */
    size_t threads;
    int has_bare; /* native code whose file was not known */
};

void resume_of(struct resume *now, const struct reader *r, const struct meta *m,
               const struct modules *mods);
int resume_begins(const struct resume *was, const struct reader *r);
/* Threads that were made up then are made up again, in their order. Whoever resolves samples now must not be in it. */
int resume_fits(const struct resume *was, const struct resume_rows *rows, const struct reader *r,
                struct meta *m, const struct modules *mods, const struct callsites *cs);

#endif
