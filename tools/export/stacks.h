/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stacks.h - the frames of stacks; the names of each frame are looked up once.
 *
 *     struct export_stacks *stacks;
 *     int rc = export_stacks_open(&stacks, x);
 *     const struct export_frame *const *frame;
 *     size_t n;
 *     rc = export_stack(stacks, sample.stack, &frame, &n);      // frame[0] is the outermost
 *     export_stacks_close(stacks);
 *
 * Frames have small numbers from 1 on (those of table frame), and so have functions (table function), so that formats with tables of their
 * own can use them as indices. With x->python native frames are left out.
 */
#ifndef PROBING_TOOLS_EXPORT_STACKS_H
#define PROBING_TOOLS_EXPORT_STACKS_H

#include "export.h"

struct export_frame {
    int64_t id, function;
    const char *name;        /* of the function */
    const char *file;        /* source file; "" if not known */
    const char *module;      /* for native code: the ELF file, else "" */
    int64_t line, firstline; /* 0: not known */
    int native;
};

/* The text for a stack without frames. */
#define EXPORT_UNREAD "(stack could not be read)"

struct export_stacks;
/* Returns 0 or -errno. Call export_stacks_close() in any case. */
int export_stacks_open(struct export_stacks **out, struct export *x);
void export_stacks_close(struct export_stacks *s);
/* Gives the frames of a stack, outermost first, valid until the next call; none for stack 0 (not read). Returns 0 or -errno. */
int export_stack(struct export_stacks *s, int64_t stack, const struct export_frame *const **frames,
                 size_t *n);
/* The highest number of a frame, of a function, of a stack. */
int64_t export_frames_max(const struct export_stacks *s);
int64_t export_functions_max(const struct export_stacks *s);
int64_t export_stacks_max(const struct export_stacks *s);
/* Returns in a word where a frame is: the base name of its file, else of its module; "" when neither is known. */
const char *export_place(const struct export_frame *f);

#endif
