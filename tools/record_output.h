/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_output.h - decides where the traces of one probing-record run go, and handles them before and after the run.
 *
 *     struct record_output o;
 *     output_resolve(&o, "trace.zst", session);    makes the names
 *     output_prepare(&o, &run);                    moves old traces out of the way
 *     ... the program runs ...
 *     output_collect(&o);                          finishes traces of dead processes, adds up totals
 *
 * With a FILE, the program's own process writes FILE, and all other processes of the run write FILE.d/...; with a directory, all write into
 * it (agent/core/agent.h). Errors are printed by tool_fail() where they are found.
 */
#ifndef PROBING_TOOLS_RECORD_OUTPUT_H
#define PROBING_TOOLS_RECORD_OUTPUT_H

#include <limits.h>

#include "../traces/records.h"
#include "../traces/run.h"

struct record_output {
    char name[PATH_MAX + 16]; /* as the user wrote it, for messages */
    int joined; /* the run began elsewhere (on another node, in another rank), and FILE belongs to another process */
    char main[PATH_MAX]; /* absolute path of FILE, "" with a directory */
    /* absolute path of FILE.d or of the directory, without a slash at the end */
    char dir[PATH_MAX];
    char value[PATH_MAX + 2]; /* value of PROBING_TRACE */
    const char *session;
    int symbols; /* output_collect() adds the names of native code to the traces */
    int child,
        signal; /* the program's process id, and the signal that killed it (0: none); set before output_collect() */
    int status;               /* without a signal: its exit code, which is written to its trace */
    char why[PATH_MAX + 300]; /* one line: why there is no recording */

    /* Filled in by output_collect(). */
    unsigned processes;     /* number of processes that left a trace of this session */
    unsigned recovered;     /* how many of these traces were finished from live files */
    unsigned damaged;       /* number of traces that could not be read to their end */
    unsigned running;       /* number of processes that are still recording, and left alone */
    char running_text[200]; /* which they are: "123 (python x.py), 124" */
    uint64_t samples, records, bytes, lost[TRACE_NLOST + 1], children; /* as in trace_count.h */
    /* number of recorded values */
    uint64_t variables;
    /* the variables without a value, else the first warning about a variable */
    char variable_note[500];
    unsigned unsampled;       /* number of traces of processes in which no stacks are sampled */
    char unsampled_text[200]; /* the first of these, and why */
    int exact;                /* 1: samples and lost were read from all traces */
    char cause[160];          /* why a process was killed, if known; else "" */
    int cause_pid;
    unsigned in_dir; /* number of traces in `dir` */
    int full;        /* 1: a trace has no block, and its file system no free space */
    int has_main;    /* 1: `main` exists */
};

/* Makes the names from the value of -o. Returns 0, or -1 (see `why`). `session` is borrowed. */
int output_resolve(struct record_output *o, const char *name, const char *session);
/* Finishes leftovers of earlier runs, makes way for FILE by the rule of traces/run.h (`me`: PROBING_RUN and the launcher's job), and checks
 * that it is writable. When several launches find no FILE at the same instant, one of them gets the name and the others the next name.
 * Returns 0, or -1 (see `why`). */
int output_prepare(struct record_output *o, const struct run_id *me);
/*
 * Call after the program's end: finishes the traces of dead processes, gives other processes that are just ending a moment, moves the
 * earliest trace to FILE if there is no FILE, and adds up the totals. It never fails: what could not be done is printed on stderr.
 */
void output_collect(struct record_output *o);

#endif
