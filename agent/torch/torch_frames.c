/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_frames.c - what only the thread's Python frames tell: whether a module's call is in progress, asked once for each
 * thread when recording has begun, because a call that began before that was not seen; and which optimizer steps.
 */
#include <string.h>

#include "agent/python/capi.h"
#include "agent/python/variables_frame.h"
#include "agent/torch/torch_step.h"

#define FRAMES 4096
#define NEAR   8

/* Whether the frame runs that function (or one whose name has it in it) of torch's own. */
static int is_of(void *frame, const char *func, const char *source) {
    void *code = py.PyObject_GetAttrString(frame, "f_code");
    void *name = code ? py.PyObject_GetAttrString(code, "co_name") : NULL;
    void *file = code ? py.PyObject_GetAttrString(code, "co_filename") : NULL;
    const char *n = name ? capi_utf8(name) : NULL;
    const char *f = file ? capi_utf8(file) : NULL;
    size_t len = f ? strlen(f) : 0, want = strlen(source);
    int yes = n && len >= want && strstr(n, func) && !strcmp(f + len - want, source);
    capi_unref(file);
    capi_unref(name);
    capi_unref(code);
    return yes;
}

int torch_frames_inside(void) {
    void *frame = py.PyEval_GetFrame(), *back; /* borrowed */
    int inside = 0, owned = 0;
    for (int i = 0; frame && i < FRAMES && !inside; i++) {
        inside = is_of(frame, "call_impl", "torch/nn/modules/module.py");
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

/* Its decorator's frame: wrapper(*args, **kwargs), 1.13 to 2.14. */
static const void *optimizer(void) {
    static struct variable args;
    const void *self = NULL;
    void *frame = capi_ref(py.PyEval_GetFrame());
    if (!args.n && variable_init(&args, "args", "wrapper"))
        frame = NULL;
    for (int i = 0; frame && i < NEAR && !self; i++) {
        void *code = variable_code(frame), *value = NULL, *back;
        if (code && is_of(frame, "wrapper", "torch/optim/optimizer.py"))
            value = variable_read(&args, frame, code);
        if (value && capi_type(value) == py.Tuple_Type && py.PyTuple_Size(value) > 0)
            self = py.PyTuple_GetItem(value, 0);
        capi_unref(value);
        capi_unref(code);
        back = variable_back(frame);
        py.Py_DecRef(frame);
        frame = back;
    }
    capi_unref(frame);
    if (py.PyErr_Occurred())
        py.PyErr_Clear();
    return self;
}

const void *torch_frames_optimizer(void) {
    const void *self;
    if (!capi_usable())
        return NULL;
    int held = py.PyGILState_Check(), gil = held ? 0 : py.PyGILState_Ensure();
    void *type, *value, *trace;
    py.PyErr_Fetch(&type, &value, &trace); /* a step may end by an exception */
    self = optimizer();
    py.PyErr_Restore(type, value, trace);
    if (!held)
        py.PyGILState_Release(gil);
    return self;
}
