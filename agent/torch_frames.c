/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_frames.c - whether a module's call is in progress on this thread, by its Python frames: asked once for each
 * thread when recording has begun, because a call that began before that was not seen.
 */
#include <string.h>

#include "torch_py.h"
#include "torch_step.h"

#define FRAMES 4096

/* Whether the frame runs nn.Module's own code for calls. */
static int is_call(void *frame) {
    void *code = tpy.PyObject_GetAttrString(frame, "f_code");
    void *name = code ? tpy.PyObject_GetAttrString(code, "co_name") : NULL;
    void *file = code ? tpy.PyObject_GetAttrString(code, "co_filename") : NULL;
    const char *n = name ? tpy.PyUnicode_AsUTF8(name) : NULL;
    const char *f = file ? tpy.PyUnicode_AsUTF8(file) : NULL;
    static const char module_py[] = "torch/nn/modules/module.py";
    size_t len = f ? strlen(f) : 0;
    int yes = n && len >= sizeof module_py - 1 && strstr(n, "call_impl") &&
              !strcmp(f + len - (sizeof module_py - 1), module_py);
    if (file)
        tpy.Py_DecRef(file);
    if (name)
        tpy.Py_DecRef(name);
    if (code)
        tpy.Py_DecRef(code);
    return yes;
}

int torch_frames_inside(void) {
    void *frame = tpy.PyEval_GetFrame(), *back; /* borrowed */
    int inside = 0, owned = 0;
    for (int i = 0; frame && i < FRAMES && !inside; i++) {
        inside = is_call(frame);
        back = tpy.PyObject_GetAttrString(frame, "f_back");
        if (owned)
            tpy.Py_DecRef(frame);
        owned = 1;
        frame = back;
        if (frame == tpy.None)
            break;
    }
    if (frame && owned)
        tpy.Py_DecRef(frame);
    if (tpy.PyErr_Occurred())
        tpy.PyErr_Clear();
    return inside;
}
