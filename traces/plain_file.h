/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain_file.h - opens a file that a trace or a core dump names, for reading.
 *
 *     int fd = plain_file_open("/usr/lib/libx.so");   // or -errno
 *
 * Whoever wrote the trace chose the name. So each part of it is checked before it is entered or opened: only a regular file
 * of an ordinary file system is, no device, FIFO or file of /proc and /sys (to open some is to do something), and nothing is
 * mounted for it.
 */
#ifndef PROBING_TRACES_PLAIN_FILE_H
#define PROBING_TRACES_PLAIN_FILE_H

#include <stddef.h>
#include <stdint.h>

int plain_file_open(const char *path);

/* The n bytes at off of an open file; *have: as many of them as there are, or could be read before an error. 0 or -errno. */
int plain_file_read(int fd, uint64_t off, void *buf, size_t n, size_t *have);

#endif
