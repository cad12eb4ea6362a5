/* SPDX-License-Identifier: Apache-2.0 */
/* fold.h - which samples of a database a flame graph is of, and what of their stacks is shown (flame_fold.h, flame_sums.h). */
#ifndef PROBING_TOOLS_FOLD_H
#define PROBING_TOOLS_FOLD_H

#include <stdint.h>

/* SQL: the name of the group that a thread h of the trace t is in. Threads of pools are numbered by their names: pt_main_thread-3,
 * Thread-12. Main threads of helper processes wait for work, those of others do the program's. */
#define FOLD_GROUP                                                                                        \
    "CASE WHEN t.role IN ('launcher', 'dataloader') THEN t.role || ': ' ELSE '' END || CASE"              \
    " WHEN h.tid = t.pid THEN 'main thread' WHEN coalesce(h.name, '') = '' THEN 'threads without a name'" \
    " ELSE 'thread ' || rtrim(h.name, '0123456789') END"

/* SQL: the rows of the thread ?1, if it is one of those that are wanted: ?2 as in fold.thread. */
#define FOLD_THREADS                                                                                    \
    " FROM thread h JOIN trace_file t ON t.id = h.trace WHERE h.id = ?1 AND (?2 IS NULL OR h.name = ?2" \
    " OR CAST(h.tid AS TEXT) = ?2 OR (?2 = 'main' AND h.tid = t.pid))"

struct fold {
    /* Which samples: */
    int cpu;        /* only those on a CPU */
    int python;     /* only Python frames */
    int all_frames; /* plumbing too */
    int idle; /* also threads that wait for work: off a CPU, and no main thread of a process that trains */
    int split; /* each process has a frame of its own */
    int lines; /* the line that the innermost Python function is at, as a frame of its own */
    const char *thread; /* name, tid or "main"; NULL: all */
    int64_t pid, rank;  /* -1: all */
    const char *run;    /* NULL: all */

    /* Filled in: */
    double tick;        /* seconds a unit of weight stands for */
    uint64_t weight;    /* all that was added */
    unsigned processes; /* that have samples */
    char command[400];  /* of the first of them, its host, rank and pid */
    char host[100];
    int64_t first_rank, first_pid;
    double seconds; /* from the first to the last of the traces */
};

#endif
