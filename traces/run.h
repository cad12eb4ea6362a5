/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - which run a trace belongs to, and which file a process of a run writes to. One rule for all ways to start a recording
 * (probing-record, PROBING=1, probing.enable(), an injection):
 *
 *   1. A run is its first process and all processes that it starts. Its identity, `run`, is HOST-PID-START of the first process, in a
 *      container HOST-PID-START-NAMESPACE; the others inherit it (PROBING_RUN, and memory across fork). `job` is a launcher's name for a job of several nodes:
 *      TORCHELASTIC_RUN_ID, PMIX_NAMESPACE or SLURM_JOB_ID. Two traces are of one run where `run` or `job` is the same.
 *   2. The first process writes FILE, every other one of the run FILE.d/HOST[-rRANK]-PID.zst.
 *   3. What an earlier run has left under FILE and FILE.d is moved to FILE.old and FILE.old.d (.old.2, ... when
 *      those are taken). Nothing is ever deleted.
 *   4. A file that may still be written, or is no trace, stays; the new run takes FILE-2 (before .zst), FILE-3, ... then.
 *   5. When FILE is a directory, all processes write DIR/HOST[-rRANK]-PID.zst, and traces of several runs lie side by side.
 *
 * The writer of a trace holds a lock (flock) on it, which tells other runs that it may still be written.
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

/* Stores HOST-PID-START[-NAMESPACE] of the calling process; always the same text for one process. */
void run_self(char *buf, size_t n);
/* Stores the launcher's name of the job, "" when none is set. Variables are read by env(name, buf, n), which returns 1 when one is set. */
void run_job(char job[RUN_ID], int (*env)(const char *name, char *buf, size_t n));
/* Whether both belong to one run (rule 1). */
int run_same(const struct run_id *a, const struct run_id *b);

/* Identifies the process and the recording that wrote the trace (or a copy or the beginning of one) at `path`; stores its size. 0 or -ENOENT. */
int run_recording(const char *path, char buf[RUN_ID], uint64_t *size);
/* The same for an open file. */
int run_recording_of(int fd, char buf[RUN_ID], uint64_t *size);

enum { RUN_FIRST, RUN_JOINED };
/*
 * Takes FILE for a run's first process. `finish`, which may be NULL, is called with each candidate name before the file there is judged: it
 * completes the traces of killed processes. Returns RUN_FIRST; RUN_JOINED: FILE is of the same run, so this process writes to FILE.d;
 * -ENOTSUP: it is a device, a pipe or a socket; -ENAMETOOLONG; or -ENOSPC: no name is left. Processes that call this at the same time take turns (flock on the folder). It blocks, for at
 * most two seconds each time, while another one looks, or is about to write its first block.
 */
int run_take(char *file, size_t n, const struct run_id *me, void (*finish)(const char *, void *),
             void *arg);

/* Makes HOST[-rRANK]-PID, the name of a process's trace. */
void run_process_name(const char *host, int rank, unsigned pid, char *buf, size_t size);
/*
 * Makes the n-th candidate (1, 2, ... at most RUN_TRIES) for the name of a process's trace. `base` is FILE, or DIR
 * with is_dir; is_main: the process writes FILE itself. Creates the directory when it is missing. Returns 0;
 * -ENAMETOOLONG; -ENOSPC: all candidates are used up; or mkdir's -errno.
 */
#define RUN_TRIES 1000
int run_trace_name(const char *base, int is_dir, const char *host, int rank, unsigned pid,
                   int is_main, unsigned n, char *buf, size_t size);

#endif
