/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_write.h - writes files that appear under their names only when they are complete.
 *
 *     char temporary[PATH_MAX];
 *     int fd = pack_file_new("out.zst", temporary);      // mode 0600, in the same directory
 *     rc = pack_process(&p, process, fd);
 *     rc = pack_file_done(fd, rc, temporary, "out.zst", 0);
 */
#ifndef PROBING_TOOLS_PACK_WRITE_H
#define PROBING_TOOLS_PACK_WRITE_H

#include <limits.h>

#include "pack.h"

/* Creates a file in the directory of `path`, and stores its name. Returns its descriptor or -errno. Deletes what a killed pack has left in that directory. */
int pack_file_new(const char *path, char temporary[PATH_MAX]);
/* Gives the file its name, once its contents are on the disk, and makes the name durable too; the name must be free unless `replace`. rc:
 * the error so far, or 0. Closes fd. Returns 0 or -errno; after an error the file is deleted. */
int pack_file_done(int fd, int rc, const char *temporary, const char *path, int replace);

/*
 * Replaces each input by a packed file of the same name. The segments of a process become one file, under the name of the last of them, and
 * the others are deleted once that is on the disk. A file that is damaged, still being recorded, written by others or a copy stays as it
 * is, and is reported and counted (all->failed). all: level, symbols, say, tick. failed_at: the path for which an error is returned.
 * Returns 0 or -errno; then nothing is lost.
 */
int pack_replace(struct pack *all, const struct inputs *in, const char **failed_at);

#endif
