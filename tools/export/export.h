/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.h - `probing export --format F`: writes a recording as a file for viewers by others. This header has what every format is given,
 * and says how to add a format.
 *
 * A format is one function in a file of its own and a line in formats.def. The function gets the opened database, what was asked for, the
 * processes and threads that took part (few, in memory) and an open stream; it reads everything else row by row:
 *
 *     static int write_mine(struct export *x) {
 *         sqlite3_stmt *st = NULL;
 *         int rc = export_prepare(x, "SELECT ... WHERE s.ts BETWEEN :from AND :to", &st);
 *         while (rc == 0 && (rc = export_step(x, st)) > 0) {       // 1: a row, 0: no more, -errno: stopped (by a signal, an error)
 *             fprintf(x->out, ...);                                // write errors stay in the stream, where its opener checks for them
 *             rc = 0;
 *         }
 *         sqlite3_finalize(st);
 *         return rc;                                               // 0 or -errno; export_wrong() may have said more
 *     }
 *     const struct export_format export_mine = {"mine", ".mine", "what it is for, in a few words", 0, write_mine};
 *
 * Also needed: its line in formats.def and in the man page, and its test in tests/e2e/test_export*.py.
 *
 * What is exported is selected before the function is called: x->process holds only the selected processes (SQL: temp.export_trace has
 * the `id` of each of their traces, and the number of the `process` that it belongs to), x->from and x->to the time. Names come from recorded programs: they may hold any byte, and each format must escape them.
 * Memory may grow with the number of processes, threads, functions and distinct stacks, but never with the number of rows.
 *
 * For samples, single or added up, see samples.h; for the frames of a stack stacks.h; for everything with a time, for timelines, events.h.
 */
#ifndef PROBING_TOOLS_EXPORT_EXPORT_H
#define PROBING_TOOLS_EXPORT_EXPORT_H

#include <sqlite3.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../progress.h"

/* A recorded process, in one trace or, when it has gone on in other files (rotation), in several. */
struct export_process {
    int64_t id;                              /* trace_file.id, of several the least */
    int64_t pid, rank, world_size;           /* rank, world_size -1: not known */
    const char *host, *command, *role, *run; /* "" where not known */
    int64_t start, end;                      /* ns UTC, of the part that is exported */
    int64_t period;                          /* ns of a tick, at the end; 0: it was not sampled */
};

struct export_thread {
    int64_t id; /* EXPORT_THREAD() */
    const struct export_process *process;
    int64_t tid;
    const char *name; /* "" where not known */
    int is_main;
};

struct export_format;

struct export {
    sqlite3 *db;
    FILE *out;

    /* What was asked for: */
    const char *title; /* NULL: the recorded command */
    const char *table; /* --table, for formats of rows; NULL: not given */
    int64_t from, to;  /* ns UTC, from <= time <= to; INT64_MIN, INT64_MAX: all */
    int cpu;           /* only samples taken while the thread was on a CPU */
    int python;        /* only Python frames */

    /* Who took part, in the order of their ids: */
    struct export_process *process;
    size_t nprocesses;
    struct export_thread *thread;
    size_t nthreads;
    /* export_events() gives only the events of this one; NULL: of all */
    const struct export_process *only;
    int part_of_ranks;   /* there are other processes, which were not selected */
    int64_t first, last; /* of all processes, ns UTC; 0 when there are none */

    /* Private: */
    struct progress progress;
    uint64_t rows;
    char why[300];
};

struct export_format {
    const char *name; /* --format NAME */
    const char
        *suffix; /* of a file's name that stands for it where --format is not given; NULL: none */
    const char *what;
    int binary; /* is not written to a terminal */
    int (*write)(struct export *x);
};

#define EXPORT_FORMAT(name) extern const struct export_format export_##name;
#include "formats.def"
#undef EXPORT_FORMAT

/* The formats, NULL at the end. */
extern const struct export_format *const export_formats[];
const struct export_format *export_format_of(const char *name);
/* Returns the format that the name of a file ends with, or NULL. */
const struct export_format *export_format_by_suffix(const char *path);

/* Selects the processes. */
struct export_choice {
    const char *ranks; /* "0,3-5"; NULL: all, including those without a rank */
    const char *run;   /* NULL: all */
    int64_t pid;       /* -1: all */
};
/* Finds who took part; x->db, from and to must be set. Returns 0; -errno (see x->why); -EINVAL: `ranks` is not a list of ranks. Call
 * export_end() in any case. */
int export_begin(struct export *x, const struct export_choice *choice);
void export_end(struct export *x);

/* ---- for formats ---- */

/* SQL: the number of the thread that a row of table thread (SQL, too) is of, in the trace t. Each file of a process has its own row of it. */
#define EXPORT_THREAD(row)                                                                         \
    "CASE WHEN t.program IS NULL THEN " row                                                        \
    " ELSE (SELECT m.thread FROM temp.export_thread m WHERE m.id = " row ") END"

/* Prepares the SQL, and binds :from, :to, :cpu and :only (a process, or NULL) where it has them. Returns 0 or -errno. */
int export_prepare(struct export *x, const char *sql, sqlite3_stmt **out);
/* Steps to the next row; also draws progress and checks for signals. Returns 1; 0: no more; -errno (-EINTR: a signal). */
int export_step(struct export *x, sqlite3_stmt *st);
/* Returns the text of a column, "" for NULL; valid until the next step. */
const char *export_text(sqlite3_stmt *st, int column);
/* Notes what is wrong, for the single line printed at the end, and returns rc. */
int export_wrong(struct export *x, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Look up by id; NULL: it is not exported. */
const struct export_process *export_process(const struct export *x, int64_t id);
const struct export_thread *export_thread(const struct export *x, int64_t id);
/* Names for people: "rank 3: train.py (pid 12 on node1)", "main thread", "thread loader". Return buf. */
const char *export_process_name(const struct export_process *p, char *buf, size_t n);
const char *export_thread_name(const struct export_thread *t, char *buf, size_t n);

#endif
