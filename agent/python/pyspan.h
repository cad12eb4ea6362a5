/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyspan.h - probing.span("name"): context manager and decorator.
 *
 * A Span is no more than a name: there is one object for each name, which can be entered again and again, nested, in any thread or task. Each `with` that is
 * recorded creates an Entry, which a context variable holds (so that each asyncio task sees its own; before 3.7: each thread); the entry refers to the one
 * around it. While nothing is recorded, no entry is created, and __exit__ finds nothing to end.
 */
#ifndef PROBING_AGENT_PYSPAN_H
#define PROBING_AGENT_PYSPAN_H

#include "agent/python/capi.h"

/* Creates the types. Returns 0, or -1 with a Python error set. */
int pyspan_init(void);
/* Functions of the module: span(name), and set_wrap(fn), through which the package supplies the decorator. */
void *pyspan_make(void *module, void *args, void *kwargs);
void *pyspan_set_wrap(void *module, void *fn);
/* id of the calling thread's or task's innermost span that is recorded, 0 = none. With the GIL. */
uint64_t pyspan_current(void);
/* The next id for a span or event of this recording. */
uint64_t pyspan_next_id(void);

#endif
