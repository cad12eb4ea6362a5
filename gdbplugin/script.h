/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script.h - what the methods that go through the interpreter share: the Python text that loads the stub, the
 * process's Python, and the wait for the text to be run.
 */
#ifndef PROBING_INSPECT_SCRIPT_H
#define PROBING_INSPECT_SCRIPT_H

#include "agent/pywalk/find.h"
#include "agent/pywalk/pywalk.h"
#include "inject.h"

#define SCRIPT_MAX 400

/*
 * A line that loads the stub by the interpreter's own import of a C extension, keeps every exception to itself and
 * leaves no name behind. 0, or -ENOTSUP with in->why: a path that cannot be quoted.
 */
int script_make(struct inject *in, char *buf, size_t n);
/* The Python of the process. 0, or -ENOTSUP with in->why. */
int script_python(struct inject *in, struct pywalk_found *py);
/* The state of the main thread of the main interpreter: 0 when there is none. */
uint64_t script_main_thread(struct inject *in, const struct pywalk_target *t);
/* Polls taken(ctx) (1: the text is being run) and then for the stub; 0, or -EAGAIN: not taken within ms. */
int script_wait(struct inject *in, int (*taken)(void *), void *ctx, int ms);

#endif
