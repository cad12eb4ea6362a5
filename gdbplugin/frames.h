/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames.h - the frames of one thread: frames_read() while it stands still (or may be running), then, when nobody waits any
 * more, frames_merge() puts the two kinds into one order. Private to stacks.c.
 *
 *     struct frames_reader r;
 *     rc = frames_open(&r, &origin, native, flags);
 *     rc = frames_read(&r, &origin.v[i], &thread);
 *     ... the process goes on ...
 *     frames_merge(&r, &thread);
 *     frames_close(&r);
 */
#ifndef PROBING_INSPECT_FRAMES_H
#define PROBING_INSPECT_FRAMES_H

#include "python.h"
#include "stacks.h"

struct known_code;
struct frames_reader {
    struct origin *s;
    struct native *native; /* NULL: no native frames */
    unsigned flags;
    struct python *py;
    int npy;
    struct known_code **codes;
    struct native_frame *nframes;
    struct pywalk_frame *pframes;
    size_t values; /* of locals that may still be read */
};

int frames_open(struct frames_reader *r);
void frames_close(struct frames_reader *r);
/* Why Python frames could not be read, for people. */
const char *frames_why(const struct origin *s, int rc);
/* Fills in t->frames and what Python knows of the thread. 0; -ENOMEM; or the -errno of the Python that could not be
 * read: the rest is there. */
int frames_read(struct frames_reader *r, const struct origin_thread *src, struct stack_thread *t);
/* -ENOMEM, and then t is as it was. */
int frames_merge(const struct frames_reader *r, struct stack_thread *t);
void frames_free(struct stack_thread *t);

#endif
