/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tasks.h - asyncio's tasks, read and written down: text for people, a tree of who awaits whom; or a JSON list, each task
 * with who awaits it. probing-backtrace(1) documents the JSON.
 *
 *     char *text = tasks_read(py, npy, json);       // while the process stands still
 */
#ifndef PROBING_INSPECT_TASKS_H
#define PROBING_INSPECT_TASKS_H

#include "python.h"

/* malloc()ed, NULL without memory. Where there can be no tasks the text says why, and the JSON is an empty list. */
char *tasks_read(const struct python *py, int npy, int json);

#endif
