/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flame_diff.h - the samples of two recordings, A and B, as one flame graph: width is time in B, colour how each frame's share of the time
 * changed. What changed by less than three times what it varies by within the recordings is grey.
 *
 *     struct flame_diff d = {.side = {{.db = a, .name = "before.db", .rank = -1}, {.db = b, .name = "after.db", .rank = -1}}};
 *     int code = flame_diff_draw(&d);          // said what was wrong
 *
 * Processes are not told apart; threads are by their names.
 */
#ifndef PROBING_TOOLS_FLAME_DIFF_H
#define PROBING_TOOLS_FLAME_DIFF_H

#include "flame_fold.h"

struct flame_diff {
    struct flame_diff_side {
        sqlite3 *db;
        const char *name; /* as people know it */
        const char *run;  /* NULL: all */
        int64_t rank;     /* -1: all */
    } side[2];
    struct fold
        fold; /* which samples of both, and which frames: cpu, python, all_frames, idle, thread, pid */
    const char *output, *title; /* NULL: standard output; "B against A" */
    int icicle;
};

/* TOOL_OK; TOOL_PARTIAL: one side has no samples; TOOL_FAILED */
int flame_diff_draw(struct flame_diff *d);

#endif
