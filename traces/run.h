/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - which run a trace belongs to, and which file a run writes to. The one rule, however a recording is started
 * (probing-record, PROBING=1, probing.enable(), an injection):
 *
 *   1. A run is its first process and all that it starts. Its identity, `run`, is HOST-PID-START of that process; what it
 *      starts inherits it (PROBING_RUN, and memory across fork). `job` is what a launcher calls a job of several nodes:
 *      TORCHELASTIC_RUN_ID, PMIX_NAMESPACE or SLURM_JOB_ID. Two traces are of one run where `run` or `job` is the same.
 *   2. The first process writes FILE, every other one of the run FILE.d/HOST[-rRANK]-PID.zst.
 *   3. What an earlier run has left under FILE and FILE.d is moved to FILE.old and FILE.old.d (.old.2, ... when
 *      those are taken). Nothing is ever deleted.
 *   4. What may still be written, or is no trace, stays: then the new run takes FILE-2 (before .zst), FILE-3, ...
 *   5. With a directory all write DIR/HOST[-rRANK]-PID.zst, and runs lie side by side.
 *
 * Who writes a trace holds a lock (flock) on it: that is how another run knows.
 *
 *     struct run_id me;
 *     run_self(me.run, sizeof me.run);
 *     run_job(me.job, env);
 *     char file[4096] = "/x/trace.zst";
 *     int rc = run_take(file, sizeof file, &me, finish, arg);      // RUN_FIRST: file is ours (and may be another name now)
 */
#ifndef PROBING_TRACES_RUN_H
#define PROBING_TRACES_RUN_H

#include <stddef.h>
#include <stdint.h>

#define RUN_ID 160

struct run_id {
    char run[RUN_ID], job[RUN_ID]; /* "" when not known */
};

/* HOST-PID-START of the calling process: the same each time. */
void run_self(char *buf, size_t n);
/* What the launchers call the job, by env(name, buf, n): 1 when it is set; "" when none does. */
void run_job(char job[RUN_ID], int (*env)(const char *name, char *buf, size_t n));
/* Whether both are of one run: rule 1. */
int run_same(const struct run_id *a, const struct run_id *b);

/* Which recording of which process the trace (or the copy, or the beginning of one) at `path` is, and its size. 0 or -ENOENT. */
int run_recording(const char *path, char buf[RUN_ID], uint64_t *size);
/* The same of an open file. */
int run_recording_of(int fd, char buf[RUN_ID], uint64_t *size);

enum { RUN_FIRST, RUN_JOINED };
/*
 * Makes way for a run's first process. `finish`, which may be NULL, is called with each name before what lies there is judged:
 * it completes the traces of killed processes. RUN_FIRST; RUN_JOINED: FILE is of the same run, so this process writes
 * to FILE.d; -ENAMETOOLONG; -ENOSPC: no name is left. Processes that come together look one after the other (flock on the
 * folder). Blocks where another one looks, or is about to write its first block: for two seconds at most, each.
 */
int run_take(char *file, size_t n, const struct run_id *me, void (*finish)(const char *, void *),
             void *arg);

/* HOST[-rRANK]-PID: what a process's trace is named. */
void run_process_name(const char *host, int rank, unsigned pid, char *buf, size_t size);
/*
 * The n-th choice (1, 2, ... at most RUN_TRIES) for a process's trace, where `base` is FILE, or DIR with is_dir; is_main: it
 * writes FILE itself. Makes the directory when it is missing. 0; -ENAMETOOLONG; -ENOSPC: all choices are used up; or mkdir's
 * -errno.
 */
#define RUN_TRIES 1000
int run_trace_name(const char *base, int is_dir, const char *host, int rank, unsigned pid,
                   int is_main, unsigned n, char *buf, size_t size);

#endif
