/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/python.h"

#include "agent/base/loaded.h"
#include "agent/pywalk/find.h"
#include "agent/pywalk/image.h"
#include "writer/sys.h"

#include <dlfcn.h>

static uint64_t symbol(const struct agent_python *py, const char *name) {
    return (uint64_t)(uintptr_t)dlsym(py->handle, name);
}

static uint32_t find_version(const struct agent_python *py) {
    const unsigned long *hex = dlsym(py->handle, "Py_Version"); /* 3.11 and later */
    if (hex)
        return (uint32_t)*hex;
    const char *(*get)(void) = dlsym(py->handle, "Py_GetVersion"), *text, *end;
    text = get ? get() : ""; /* "3.8.18 (default, ...": it formats a constant, no more */
    return pywalk_parse_version(text, strlen(text), &end);
}

static void find_eval(struct agent_python *py) {
    Dl_info info;
    const ElfW(Sym) *sym = NULL;
    void *eval = dlsym(py->handle, "_PyEval_EvalFrameDefault");
    if (!eval || !dladdr1(eval, &info, (void **)&sym, RTLD_DL_SYMENT) || !sym)
        return;
    py->eval_start = (uint64_t)(uintptr_t)eval;
    py->eval_end = py->eval_start + sym->st_size;
    struct pywalk_mem mem = {pywalk_read_process, (void *)(intptr_t)getpid()};
    struct pywalk_image image;
    if (pywalk_image_open(&image, mem, (uint64_t)(uintptr_t)info.dli_fbase) != 0 ||
        pywalk_cold_part(&image, py->eval_start, py->eval_end, &py->cold_start, &py->cold_end) != 0)
        py->cold_start = py->cold_end = 0;
}

int agent_python_find(struct agent_python *py) {
    memset(py, 0, sizeof *py);
    py->handle = RTLD_DEFAULT;
    /* A libpython that the program (not Python itself) loaded with RTLD_LOCAL is in no global scope. */
    if (!symbol(py, "PyCode_Type") &&
        (loaded_find("libpython", &py->handle) || !symbol(py, "PyCode_Type")))
        return -ENOENT;
    struct pywalk_target *t = &py->target;
    t->version = find_version(py);
    if (t->version < 0x03060000 || t->version >= 0x04000000)
        return -ENOTSUP;
    int (*initialized)(void) = dlsym(py->handle, "Py_IsInitialized");
    if (!initialized || !initialized())
        return -EAGAIN;
    t->code_type = symbol(py, "PyCode_Type");
    if (t->version < 0x03070000) {
        void *(*head)(void) = dlsym(py->handle, "PyInterpreterState_Head");
        t->interp_head = head ? (uint64_t)(uintptr_t)head() : 0;
        t->current = symbol(py, "_PyThreadState_Current");
        if (!t->interp_head)
            return -EAGAIN;
    } else {
        t->runtime = symbol(py, "_PyRuntime");
        struct pywalk_mem mem = {pywalk_read_process, (void *)(intptr_t)getpid()};
        if (!t->runtime || pywalk_free_threaded(mem, t))
            return -ENOTSUP;
    }
    if (t->version < 0x030b0000) { /* later ones keep it in the thread state */
        int off = pywalk_find_pthread_tid_off();
        t->pthread_tid_off = off > 0 ? (uint64_t)off : 0;
    }
    find_eval(py);
    return 0;
}
