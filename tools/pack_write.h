/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_write.h - files that appear under their names when they are whole.
 *
 *     char temporary[PATH_MAX];
 *     int fd = pack_file_new("out.zst", temporary);      // 0600, beside it
 *     rc = pack_process(&p, process, fd);
 *     rc = pack_file_done(fd, rc, temporary, "out.zst", 0);
 */
#ifndef PROBING_TOOLS_PACK_WRITE_H
#define PROBING_TOOLS_PACK_WRITE_H

#include <limits.h>

#include "pack.h"

/* A new file beside `path`, and its name. Its descriptor or -errno. */
int pack_file_new(const char *path, char temporary[PATH_MAX]);
/* It gets its name once it is on the disk, and so is the name; the name must be free unless `replace`. rc: what has gone wrong so far. Closes fd.
 * 0 or -errno; then the file is gone. */
int pack_file_done(int fd, int rc, const char *temporary, const char *path, int replace);

/*
 * Each input becomes a packed one of the same name; a process's segments become one, under the name of the last of them, and the others go
 * once that is on the disk. What is damaged, still recorded, written by others or a copy stays as it is, and is said and counted
 * (all->failed). all: level, symbols, say, tick. failed_at: the path at which a negative result arose. 0 or -errno: nothing is lost then.
 */
int pack_replace(struct pack *all, const struct inputs *in, const char **failed_at);

#endif
