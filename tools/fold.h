/* SPDX-License-Identifier: Apache-2.0 */
/* fold.h - selects the samples of a database for a flame graph, and what of their stacks is shown (flame_fold.h, flame_sums.h). */
#ifndef PROBING_TOOLS_FOLD_H
#define PROBING_TOOLS_FOLD_H

#include <stdint.h>

/* SQL: the name of the group of a thread h of trace t. Trailing digits of a name are dropped, because threads of pools are numbered:
 * pt_main_thread-3, Thread-12. Main threads of helper processes are a group of their own, because they wait for work, while those of other
 * processes do the program's work. */
#define FOLD_GROUP                                                                                        \
    "CASE WHEN t.role IN ('launcher', 'dataloader') THEN t.role || ': ' ELSE '' END || CASE"              \
    " WHEN h.tid = t.pid THEN 'main thread' WHEN coalesce(h.name, '') = '' THEN 'threads without a name'" \
    " ELSE 'thread ' || rtrim(h.name, '0123456789') END"

/* SQL: the row of the thread ?1, if it is a thread that is wanted; ?2 as in fold.thread. */
#define FOLD_THREADS                                                                                    \
    " FROM thread h JOIN trace_file t ON t.id = h.trace WHERE h.id = ?1 AND (?2 IS NULL OR h.name = ?2" \
    " OR CAST(h.tid AS TEXT) = ?2 OR (?2 = 'main' AND h.tid = t.pid))"

struct fold {
    /* Which samples: */
    int cpu;        /* only those on a CPU */
    int python;     /* only Python frames */
    int all_frames; /* plumbing too */
    int idle; /* also threads that wait for work: those off a CPU, except for the main thread of a process that trains */
    int split;          /* each process gets a frame of its own */
    int lines;          /* the line of the innermost Python function becomes a frame of its own */
    const char *thread; /* name, tid or "main"; NULL: all */
    int64_t pid, rank;  /* -1: all */
    const char *run;    /* NULL: all */

    /* Filled in: */
    double tick;        /* seconds for each unit of weight */
    uint64_t weight;    /* sum of all weights that were added */
    unsigned processes; /* number of processes that have samples */
    char command[400];  /* of the first of them, as are its host, rank and pid */
    char host[100];
    int64_t first_rank, first_pid;
    double seconds; /* from the first to the last time of the traces */
};

#endif
