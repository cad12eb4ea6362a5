/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safety.h - may a function be called in this process now? Judged by where each thread stands.
 *
 *     why = safety_stack(names, n, complete, buf, sizeof buf);   // NULL, or "in malloc"
 *
 * A call of dlopen needs malloc, the loader and pthread_create. While a thread is inside one of these it may hold a lock or have
 * changed a list by half: the call could hang or corrupt the process. Then nothing is called, the process runs on, and the
 * caller tries again later. Pure functions on stacks that were read already.
 */
#ifndef PROBING_INSPECT_SAFETY_H
#define PROBING_INSPECT_SAFETY_H

#include <stddef.h>

#include "native.h"

/* Whether it matters where in this file (its base name) a thread stands: the C library's, the loader's. */
int safety_names_matter(const char *module);

/* Why nothing may be called while a thread has this stack (innermost first): "in malloc"; or NULL. */
const char *safety_stack(const struct native_name *names, size_t n, char *buf, size_t cap);

/* Whether this thread itself could carry the call: the walk reached the thread's start, no signal handler is
 * running. NULL, or why not. */
const char *safety_carrier(const struct native_name *names, size_t n, int complete);

#endif
