/* SPDX-License-Identifier: Apache-2.0 */
/*
 * new_file.h - writes a file under another name first, so that it appears only when it is complete.
 *
 *     if (new_file_allowed("out.svg", OUTPUT_PICTURE, argv, argc) != TOOL_OK) ...
 *     int rc = new_file("out.svg", draw, &picture);     // int draw(void *ctx, FILE *out): 0 or -errno
 *
 * A file that had the name before stays until then (converter/output.h says whether it may be replaced), and stays for good when something
 * fails or a signal ends the command. The new file shows what was recorded (command lines, paths, variables), so it is only as open to
 * others as the most private input given to new_file_allowed(), and accessible to its owner only where one of the inputs is not a file (but
 * a process).
 */
#ifndef PROBING_TOOLS_NEW_FILE_H
#define PROBING_TOOLS_NEW_FILE_H

#include <stdio.h>

#include "../converter/output.h"

/* Returns 0 or -errno. */
int new_file(const char *path, int (*write)(void *ctx, FILE *out), void *ctx);

/* Checks that `path` may be written: an existing file there may be replaced, and is not one of the inputs. Returns TOOL_OK, or TOOL_FAILED
 * after printing why. */
int new_file_allowed(const char *path, enum output_kind kind, char *const *inputs, int n);

#endif
