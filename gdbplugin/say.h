/* SPDX-License-Identifier: Apache-2.0 */
/*
 * say.h - the lines that tell people why something could not be done, each with what to do about it.
 * Every function returns a malloc()ed line without a newline, or NULL.
 */
#ifndef PROBING_INSPECT_SAY_H
#define PROBING_INSPECT_SAY_H

#include <sys/types.h>

#include "stop.h"

char *say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Why this process may not be read or traced. */
char *say_not_permitted(pid_t pid);
/* Why stop_seize() or stop_borrow() failed. */
char *say_stop(pid_t pid, int rc, const struct stop *s);

#endif
