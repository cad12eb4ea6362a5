/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_attach.h - `probing record -p PID -d 30 -o flame.svg`: records a running process for some time, and makes the requested output.
 *
 *     struct attach a = {.pid = pid, .duration = 30, .output = "flame.svg", .native = 1};
 *     return record_attach(&a);
 *
 * The agent is injected, left to record, and told to stop; Ctrl-C, SIGTERM and the end of the process end the recording early, and what was
 * recorded until then is written. The name of the output decides its kind: .zst the trace, .db or .sqlite a database, .svg a flame graph,
 * .html a report, .folded or .txt collapsed stacks. The trace is deleted when it was only an intermediate step.
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

/* Returns the exit code. */
int record_attach(const struct attach *a);

#endif
