/* SPDX-License-Identifier: Apache-2.0 */
/*
 * new_file.h - a file that appears when it is whole: it is written under another name first.
 *
 *     if (new_file_allowed("out.svg", OUTPUT_PICTURE, argv, argc) != TOOL_OK) ...
 *     int rc = new_file("out.svg", draw, &picture);     // int draw(void *ctx, FILE *out): 0 or -errno
 *
 * What lay under the name stays until then (converter/output.h says whether it may be replaced), and for good when something
 * fails, or a signal ends the command. It shows what was recorded (command lines, paths, variables): it is as open to others as the
 * most private of the inputs that were given to new_file_allowed(), and its owner's alone where one of them is no file (a process).
 */
#ifndef PROBING_TOOLS_NEW_FILE_H
#define PROBING_TOOLS_NEW_FILE_H

#include <stdio.h>

#include "../converter/output.h"

/* 0 or -errno. */
int new_file(const char *path, int (*write)(void *ctx, FILE *out), void *ctx);

/* Whether `path` may be written: what is there may be replaced, and is none of the inputs. TOOL_OK, or TOOL_FAILED and said. */
int new_file_allowed(const char *path, enum output_kind kind, char *const *inputs, int n);

#endif
