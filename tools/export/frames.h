/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames.h - for formats with tables of frames and of files: makes every stack have at least one frame, and numbers the files, with their
 * build ids.
 *
 *     struct export_frames f;
 *     int rc = export_frames_open(&f, x);
 *     has = calloc(f.max_frame + 1, 1);                          // numbers of frames, functions and stacks go from 1 to f.max_...
 *     rc = export_frames_of(&f, sample.stack, &frame, &n);              // frame[0] is the outermost; n > 0
 *     rc = export_frames_file(&f, frame[0]->module, &file);             // file.number, .is_new, .build_id
 *     export_frames_close(&f);
 */
#ifndef PROBING_TOOLS_EXPORT_FRAMES_H
#define PROBING_TOOLS_EXPORT_FRAMES_H

#include "protobuf.h"
#include "stacks.h"

struct export_frames {
    int64_t max_frame, max_function, max_stack; /* with the ones below */

    /* Private: */
    struct export *x;
    struct export_stacks *stacks;
    struct export_frame
        none; /* stands for a stack that could not be read, or of which no frame is shown */
    struct pb_names files;
    sqlite3_stmt *build_id;
};

/* 0 or -errno; export_frames_close() in any case. */
int export_frames_open(struct export_frames *f, struct export *x);
void export_frames_close(struct export_frames *f);
int export_frames_of(struct export_frames *f, int64_t stack,
                     const struct export_frame *const **frame, size_t *n);
/* The number of a stack: its own, and one for those that could not be read. */
int64_t export_frames_stack(const struct export_frames *f, int64_t stack);

struct export_file {
    uint32_t number; /* 1, 2, ...; 0: the path is empty */
    int is_new;
    const char *build_id; /* of a new one; "": none is known. Valid until the next call */
};
int export_frames_file(struct export_frames *f, const char *path, struct export_file *out);

#endif
