/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_attach.h - `probing record -p PID -d 30 -o flame.svg`: a process that runs already is recorded for some time, and what
 * was asked for is made of it.
 *
 *     struct attach a = {.pid = pid, .duration = 30, .output = "flame.svg", .native = 1};
 *     return record_attach(&a);
 *
 * The agent is injected, waited for and told to stop; Ctrl-C and SIGTERM end the wait early, and so does the end of the process: what
 * there is by then is written. By the name of the output: .zst the trace, .db or .sqlite a database, .svg a flame graph, .html a report, .folded or
 * .txt collapsed stacks. A trace that is only the way there is removed.
 */
#ifndef PROBING_TOOLS_RECORD_ATTACH_H
#define PROBING_TOOLS_RECORD_ATTACH_H

struct attach {
    int pid;
    double duration;    /* seconds; 0: until Ctrl-C */
    const char *output; /* NULL: trace-PID.zst */
    double hz;          /* 0: the default */
    int native, quiet;
};

/* The exit code. */
int record_attach(const struct attach *a);

#endif
