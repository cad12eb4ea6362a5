/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python.h - finds the CPython of this process, without calling into it.
 *
 * dlsym says which object it is (never by linking to libpython), the rest is read from its image (pywalk/find.h). Nothing here takes
 * the GIL.
 */
#ifndef PROBING_AGENT_PYTHON_H
#define PROBING_AGENT_PYTHON_H

#include "agent/pywalk/find.h"

struct agent_python {
    struct pywalk_found found;
    void *handle; /* for dlsym: a handle of libpython or of the program itself */
};

/* 0; -ENOENT no CPython is loaded; -EAGAIN there is one but it is not initialised yet (ask again later; `early`: it need not be);
 * -ENOTSUP its version is not known. Any thread; not async-signal-safe. */
int agent_python_find(struct agent_python *py, int early);

#endif
