/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain_file.h - opens a file that a trace or a core dump names, for reading.
 *
 *     int fd = plain_file_open("/usr/lib/libx.so");   // or -errno
 *
 * The name is not trusted, since whoever wrote the trace chose it. So each part of the path is checked before it is entered or
 * opened. Only a regular file of an ordinary file system is opened: no device, FIFO or file of /proc and /sys (opening some of
 * them has side effects), and no automount is triggered.
 */
#ifndef PROBING_TRACES_PLAIN_FILE_H
#define PROBING_TRACES_PLAIN_FILE_H

#include <stddef.h>
#include <stdint.h>

int plain_file_open(const char *path);

/* Reads n bytes at off of an open file. *have: number of bytes read, fewer at the end of the file or before an error. Returns 0 or -errno. */
int plain_file_read(int fd, uint64_t off, void *buf, size_t n, size_t *have);

#endif
