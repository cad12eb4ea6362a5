/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python.h - finds the CPython of this process, without calling into it.
 *
 * The addresses come from dlsym on what is loaded (never by linking to libpython); the version from Py_Version,
 * Py_GetVersion() or _Py_DebugOffsets. Nothing here takes the GIL.
 */
#ifndef PROBING_AGENT_PYTHON_H
#define PROBING_AGENT_PYTHON_H

#include "agent/pywalk/pywalk.h"

struct agent_python {
    struct pywalk_target target;
    uint64_t eval_start, eval_end; /* _PyEval_EvalFrameDefault, 0 if not known */
    uint64_t cold_start, cold_end; /* its part that the compiler put elsewhere, 0 if none */
    void *handle;                  /* for dlsym: a handle of libpython or of the program itself */
};

/* 0; -ENOENT no CPython is loaded; -EAGAIN there is one but it is not initialised yet (ask again
 * later); -ENOTSUP its version is not known. Any thread; not async-signal-safe. */
int agent_python_find(struct agent_python *py);

#endif
