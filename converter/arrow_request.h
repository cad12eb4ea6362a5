/* SPDX-License-Identifier: Apache-2.0 */
/* arrow_request.h - what a stream of arrow_read.h is asked for. */
#ifndef PROBING_CONVERTER_ARROW_REQUEST_H
#define PROBING_CONVERTER_ARROW_REQUEST_H

#include <stddef.h>
#include <stdint.h>

enum {
    PROBING_ALONE = 1, /* the files alone, without their .d directories */
    PROBING_GLOBAL =
        2, /* trace_id: by what the recording is, the same whatever it is read with; else 1, 2 ... */
};

struct probing_request {
    const char *const *paths; /* traces or directories of them; or one database */
    size_t npaths;
    const char *table, *sql;    /* one of them */
    const char *const *columns; /* NULL: the usual ones */
    size_t ncolumns;
    int64_t from, until; /* ns UTC: from <= time < until */
    const int64_t *ranks;
    size_t nranks; /* 0: all */
    const char *
        clocks; /* a database with the alignment of clocks (probing_align()); NULL: each trace's own anchors */
    uint32_t flags,
        batch; /* batch: rows at least, unless it is the last; 0: as many as are usual */
};

#endif
