/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inputs.h - which trace files a command line means.
 *
 *     struct inputs in = {0};
 *     int err = inputs_add(&in, "trace.zst", INPUTS_SIBLINGS);
 *     for (i = 0; i < in.n; i++) ... in.file[i].path ...
 *     inputs_free(&in);
 *
 * A file stands for itself and, with INPUTS_SIBLINGS, for the traces of the other processes of its
 * run (FILE.d/); a directory for every .zst in it and in what lies below (but for what earlier runs left, NAME.zst.old...,
 * hidden ones and symlinks to directories); "-" for stdin. A file that is there twice, by whatever name, is taken once.
 */
#ifndef PROBING_CONVERTER_INPUTS_H
#define PROBING_CONVERTER_INPUTS_H

#include <stddef.h>
#include <stdint.h>

#include "keys.h"

enum { INPUTS_SIBLINGS = 1 };

struct input {
    char *path;
    uint64_t dev, ino; /* 0, 0: stdin */
    int found;         /* in a directory: nobody named it */
    int recording;     /* for the caller: its process still writes it */
};

struct inputs {
    struct input *file;
    size_t n, cap;
    struct keys seen; /* device and inode */
};

/* 0; -ENOENT and other errors of looking at `path` (nothing was added); -ENODATA: a directory without
 * a .zst in it; -ENOMEM. */
int inputs_add(struct inputs *in, const char *path, int flags);
const char *inputs_strerror(int err); /* what such an error means; static, or as strerror() */
void inputs_free(struct inputs *in);

#endif
