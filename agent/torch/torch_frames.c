/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_frames.c - whether a module's call is in progress on this thread, by its Python frames: asked once for each
 * thread when recording has begun, because a call that began before that was not seen.
 */
#include <string.h>

#include "agent/python/capi.h"
#include "agent/torch/torch_step.h"

#define FRAMES 4096

/* Whether the frame runs nn.Module's own code for calls. */
static int is_call(void *frame) {
    void *code = py.PyObject_GetAttrString(frame, "f_code");
    void *name = code ? py.PyObject_GetAttrString(code, "co_name") : NULL;
    void *file = code ? py.PyObject_GetAttrString(code, "co_filename") : NULL;
    const char *n = name ? capi_utf8(name) : NULL;
    const char *f = file ? capi_utf8(file) : NULL;
    static const char module_py[] = "torch/nn/modules/module.py";
    size_t len = f ? strlen(f) : 0;
    int yes = n && len >= sizeof module_py - 1 && strstr(n, "call_impl") &&
              !strcmp(f + len - (sizeof module_py - 1), module_py);
    capi_unref(file);
    capi_unref(name);
    capi_unref(code);
    return yes;
}

int torch_frames_inside(void) {
    void *frame = py.PyEval_GetFrame(), *back; /* borrowed */
    int inside = 0, owned = 0;
    for (int i = 0; frame && i < FRAMES && !inside; i++) {
        inside = is_call(frame);
        back = py.PyObject_GetAttrString(frame, "f_back");
        if (owned)
            py.Py_DecRef(frame);
        owned = 1;
        frame = back;
        if (frame == py.None)
            break;
    }
    if (frame && owned)
        py.Py_DecRef(frame);
    if (py.PyErr_Occurred())
        py.PyErr_Clear();
    return inside;
}
