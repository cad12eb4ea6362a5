/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/python.h"

#include "agent/base/loaded.h"
#include "agent/base/memory.h"
#include "writer/sys.h"

#include <dlfcn.h>

int agent_python_find(struct agent_python *py, int early) {
    struct pywalk_mem mem = pywalk_process(getpid());
    struct pywalk_target *t = &py->found.target;
    Dl_info info;
    memset(py, 0, sizeof *py);
    py->handle = RTLD_DEFAULT;
    /* A libpython that a program other than Python loaded with RTLD_LOCAL is not in the global scope. */
    if (!dlsym(py->handle, "PyCode_Type") &&
        (loaded_find("libpython", &py->handle) || !dlsym(py->handle, "PyCode_Type")))
        return -ENOENT;
    /* No other function of CPython is called. For example, Py_GetVersion() rewrites its text in a static buffer, so that another thread that
     * reads it at that moment (for sys.version at the start, or an extension that checks the version) may find it empty. */
    int (*initialized)(void) = dlsym(py->handle, "Py_IsInitialized");
    if (!initialized || (!early && !initialized()))
        return -EAGAIN;
    if (memory_uses_file())
        mem = (struct pywalk_mem){memory_read, NULL};
    /* Found by a function (of 3.6 and later), because data of libpython may have been copied into the program (copy relocation). */
    if (!dladdr(dlsym(py->handle, "_PyEval_EvalFrameDefault"), &info))
        return -ENOTSUP;
    int off, rc = pywalk_find_image(mem, (uint64_t)(uintptr_t)info.dli_fbase, &py->found);
    if (rc || t->version >= 0x04000000 || pywalk_free_threaded(mem, t))
        return rc == -EAGAIN || rc == -EFAULT ? -EAGAIN : -ENOTSUP;
    if (t->version < 0x030b0000 && !early) { /* 3.11 and later keep the tid in the thread state */
        off = pywalk_find_pthread_tid_off();
        if (off < 0) /* no thread could be started now, or the C library is unknown */
            return off == -ENOENT ? -ENOTSUP : -EAGAIN;
        t->pthread_tid_off = (uint64_t)off;
    }
    return 0;
}
