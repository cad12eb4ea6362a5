/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inputs.h - finds the trace files that the arguments of a command line stand for.
 *
 *     struct inputs in = {0};
 *     int err = inputs_add(&in, "trace.zst", INPUTS_SIBLINGS);
 *     for (i = 0; i < in.n; i++) ... in.file[i].path ...
 *     inputs_free(&in);
 *
 * A file stands for itself and, with INPUTS_SIBLINGS, for the traces of the other processes of its run (in FILE.d/). A directory stands for
 * every .zst file in it and below it, except for leftovers of earlier runs (NAME.zst.old...), hidden files and symlinks to directories. "-"
 * is stdin. A file that is given twice, under whatever name, is taken once. A directory below one that was named, which may not be read, is
 * an input, too: opening it fails, which is reported as for files.
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
    int found;         /* found in a directory: the user did not name it */
    int recording;     /* set by the caller: its process is still writing it */
};

struct inputs {
    struct input *file;
    size_t n, cap;
    struct keys seen; /* device and inode */
};

/* Returns 0; -ENOENT or another error of inspecting `path` (nothing was added); -ENODATA: a directory without a .zst file in it; -ENOMEM. */
int inputs_add(struct inputs *in, const char *path, int flags);
const char *inputs_strerror(int err); /* what such an error means; static, or of strerror() */
void inputs_free(struct inputs *in);

#endif
