/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_output.h - where the traces of one probing-record run go, and what is done with them
 * before and after.
 *
 *     struct record_output o;
 *     output_resolve(&o, "trace.zst", session);    names
 *     output_prepare(&o, &run);                    old traces out of the way
 *     ... the program runs ...
 *     output_collect(&o);                          dead processes finished, totals taken
 *
 * With a FILE, the program's own process writes FILE and all others of the run FILE.d/...; with a
 * directory all write into it (agent/core/agent.h). Errors are said by tool_fail() where they are found.
 */
#ifndef PROBING_TOOLS_RECORD_OUTPUT_H
#define PROBING_TOOLS_RECORD_OUTPUT_H

#include <limits.h>

#include "../traces/records.h"
#include "../traces/run.h"

struct record_output {
    char name[PATH_MAX + 16]; /* as the user wrote it: for messages */
    int joined; /* the run began elsewhere (another node, another rank): FILE is another process's */
    char main[PATH_MAX];      /* absolute FILE, "" with a directory */
    char dir[PATH_MAX];       /* absolute FILE.d or directory, no slash at the end */
    char value[PATH_MAX + 2]; /* for PROBING_TRACE */
    const char *session;
    int symbols; /* output_collect() puts the names of native code into the traces */
    int child,
        signal; /* the program's process id, and what killed it (0: nothing); set before output_collect() */
    int status;               /* else its exit code, which goes into its trace */
    char why[PATH_MAX + 300]; /* one line: there is no recording, since ... */

    /* Filled in by output_collect(). */
    unsigned processes;     /* that left a trace of this session */
    unsigned recovered;     /* of them finished from their live files */
    unsigned damaged;       /* traces that could not be read to their end */
    unsigned running;       /* processes still recording: left alone */
    char running_text[200]; /* who they are: "123 (python x.py), 124" */
    uint64_t samples, records, bytes, lost[TRACE_NLOST + 1], children; /* as in trace_count.h */
    uint64_t variables;                                                /* values recorded */
    char variable_note[500];  /* which had no value, else the first warning about one */
    unsigned unsampled;       /* traces of processes in which no stacks are sampled */
    char unsampled_text[200]; /* the first of them, and why */
    int exact;                /* samples and lost were read from all traces */
    char cause[160];          /* why a process was killed, where that is known; "" */
    int cause_pid;
    unsigned in_dir; /* traces in `dir` */
    int full;        /* a trace has no block, and its file system no place for one */
    int has_main;    /* `main` exists */
};

/* Makes the names from -o's value. 0, or -1 (`why`). `session` is borrowed. */
int output_resolve(struct record_output *o, const char *name, const char *session);
/* Finishes leftovers of earlier runs, makes way for FILE by the rule of traces/run.h (`me`: PROBING_RUN and the launcher's job),
 * checks that it can write. Of launches at one instant, when there is no FILE yet, one has the name and the others the next. 0, or -1 (`why`). */
int output_prepare(struct record_output *o, const struct run_id *me);
/*
 * After the program's end: finishes the traces of dead processes, gives other processes that are just ending
 * a moment, moves the earliest trace to FILE if there is no FILE, and adds up.
 * Never fails: what could not be done is said on stderr.
 */
void output_collect(struct record_output *o);

#endif
