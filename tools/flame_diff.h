/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flame_diff.h - draws the samples of two recordings, A and B, as one flame graph: the width is time in B, the colour shows how each
 * frame's share of the time changed. A change is grey when it is less than three times the variation within the recordings.
 *
 *     struct flame_diff d = {.side = {{.db = a, .name = "before.db", .rank = -1}, {.db = b, .name = "after.db", .rank = -1}}};
 *     int code = flame_diff_draw(&d);          // prints what was wrong
 *
 * Processes are not distinguished; threads are distinguished by their names.
 */
#ifndef PROBING_TOOLS_FLAME_DIFF_H
#define PROBING_TOOLS_FLAME_DIFF_H

#include "flame_fold.h"

struct flame_diff {
    struct flame_diff_side {
        sqlite3 *db;
        const char *name; /* name for people */
        const char *run;  /* NULL: all */
        int64_t rank;     /* -1: all */
    } side[2];
    struct fold
        fold; /* which samples of both, and which frames: cpu, python, all_frames, idle, thread, pid */
    const char *output, *title; /* NULL: standard output; and "B against A" */
    int icicle;
};

/* Returns TOOL_OK; TOOL_PARTIAL: one side has no samples; or TOOL_FAILED. */
int flame_diff_draw(struct flame_diff *d);

#endif
