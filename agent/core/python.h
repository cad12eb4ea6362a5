/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python.h - finds the CPython of this process, without calling into it.
 *
 * dlsym() finds the object that contains CPython (the agent is not linked to libpython); all else is read from the object's image
 * (pywalk/find.h). Nothing here takes the GIL.
 */
#ifndef PROBING_AGENT_PYTHON_H
#define PROBING_AGENT_PYTHON_H

#include "agent/pywalk/find.h"

struct agent_python {
    struct pywalk_found found;
    void *handle; /* handle for dlsym(), of libpython or of the program itself */
};

/* Returns 0; -ENOENT when no CPython is loaded; -EAGAIN when it is not initialised yet (call again later; with `early` it need not be);
 * -ENOTSUP when its version is not supported. Callable from any thread; not async-signal-safe. */
int agent_python_find(struct agent_python *py, int early);

#endif
