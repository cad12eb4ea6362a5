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
    /* A libpython that the program (not Python itself) loaded with RTLD_LOCAL is in no global scope. */
    if (!dlsym(py->handle, "PyCode_Type") &&
        (loaded_find("libpython", &py->handle) || !dlsym(py->handle, "PyCode_Type")))
        return -ENOENT;
    /* Nothing else of CPython is called: Py_GetVersion() makes its text anew in one static buffer, so that another thread that
     * reads it meanwhile (sys.version at the start, an extension's check of it) finds an empty one. */
    int (*initialized)(void) = dlsym(py->handle, "Py_IsInitialized");
    if (!initialized || (!early && !initialized()))
        return -EAGAIN;
    if (memory_uses_file())
        mem = (struct pywalk_mem){memory_read, NULL};
    /* It is in the object that its code is in (of 3.6 and later); its data may have been copied into the program. */
    if (!dladdr(dlsym(py->handle, "_PyEval_EvalFrameDefault"), &info))
        return -ENOTSUP;
    int off, rc = pywalk_find_image(mem, (uint64_t)(uintptr_t)info.dli_fbase, &py->found);
    if (rc || t->version >= 0x04000000 || pywalk_free_threaded(mem, t))
        return rc == -EAGAIN || rc == -EFAULT ? -EAGAIN : -ENOTSUP;
    if (t->version < 0x030b0000 && !early) { /* later ones keep it in the thread state */
        off = pywalk_find_pthread_tid_off();
        if (off < 0) /* no thread to be had just now, or a C library that is not known */
            return off == -ENOENT ? -ENOTSUP : -EAGAIN;
        t->pthread_tid_off = (uint64_t)off;
    }
    return 0;
}
