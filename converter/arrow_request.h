/* SPDX-License-Identifier: Apache-2.0 */
/* arrow_request.h - what a stream of arrow_read.h is asked for. */
#ifndef PROBING_CONVERTER_ARROW_REQUEST_H
#define PROBING_CONVERTER_ARROW_REQUEST_H

#include <stddef.h>
#include <stdint.h>

enum {
    PROBING_ALONE = 1, /* only the named files, without their .d directories */
    PROBING_GLOBAL =
        2, /* trace_id is made from the recording and does not depend on what else is read; else 1, 2 ... */
};

struct probing_request {
    const char *const *paths; /* traces or directories of them; or one database */
    size_t npaths;
    const char *table, *sql;    /* exactly one of them is set */
    const char *const *columns; /* NULL: the default columns */
    size_t ncolumns;
    int64_t from, until; /* ns UTC: from <= time < until */
    const int64_t *ranks;
    size_t nranks; /* 0: all */
    const char *
        clocks; /* a database with aligned clocks (probing_align()); NULL: each trace's own anchors are used */
    uint32_t flags,
        batch; /* batch: minimum number of rows, except in the last batch; 0: the default */
};

#endif
