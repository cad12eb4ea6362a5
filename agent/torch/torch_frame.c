/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/torch_frame.h"

#include <string.h>

#include "agent/python/capi.h"
#include "agent/python/variables_frame.h"

#define FRAMES 4096
#define NEAR   8 /* frames to the optimizer's decorator */

static int seen; /* no module's call was in progress as recording began */

/* Whether the frame runs that function (or one whose name has it in it) of torch's own. */
static int is_of(void *frame, const char *func, const char *source) {
    CAPI_AUTO void *code = variable_code(frame);
    CAPI_AUTO void *name = capi_attr(code, "co_name"), *file = capi_attr(code, "co_filename");
    const char *n = name ? capi_utf8(name) : NULL;
    const char *f = file ? capi_utf8(file) : NULL;
    size_t len = f ? strlen(f) : 0, want = strlen(source);
    return n && len >= want && strstr(n, func) && !strcmp(f + len - want, source);
}

/* Calls fn for this frame and the frames around it, `most` at most, until it returns non-NULL. Returns that, or NULL. */
static const void *first_frame(void *frame, unsigned most, const void *(*fn)(void *frame)) {
    const void *said = NULL;
    capi_ref(frame);
    for (unsigned i = 0; frame && !said && i < most; i++, frame = variable_back(frame))
        said = fn(frame);
    capi_unref(frame);
    py.PyErr_Clear();
    return said;
}

/* Reads the variable `name` of the function `func` from its frame: a new reference, or NULL. */
static void *value_of(struct variable *v, const char *name, const char *func, void *frame) {
    CAPI_AUTO void *code = variable_code(frame);
    return code && (v->n || !variable_init(v, name, func)) ? variable_read(v, frame, code) : NULL;
}

/* The innermost frames of all threads, by thread: a new reference, or NULL. */
static void *all_frames(void) {
    CAPI_AUTO void *current = capi_attr(capi_module("sys"), "_current_frames");
    return capi_call(current);
}

/* ---- calls of modules ---- */

static const void *in_call(void *frame) {
    return is_of(frame, "call_impl", "torch/nn/modules/module.py") ? frame : NULL;
}

void frame_seen(void) {
    CAPI_AUTO void *frames = all_frames();
    void *frame;
    ssize_t i = 0;
    seen = frames != NULL;
    while (seen && py.PyDict_Next(frames, &i, NULL, &frame))
        seen = !first_frame(frame, FRAMES, in_call);
}

void frame_forget(void) {
    seen = 0;
}

int frame_call(void) {
    return first_frame(py.PyEval_GetFrame(), FRAMES, in_call) != NULL;
}

/* If all calls were seen to begin, a call that is found is that of a bound method, m.__call__(x), which uses no slot. */
int frame_inside(void) {
    return !seen && frame_call();
}

static const void *outermost;

static const void *in_outermost(void *frame) {
    static struct variable self;
    if (in_call(frame)) {
        CAPI_AUTO void *module = value_of(&self, "self", "_call_impl", frame);
        outermost = module ? module : outermost;
    }
    return NULL;
}

const void *frame_whole(void) {
    outermost = NULL;
    first_frame(py.PyEval_GetFrame(), FRAMES, in_outermost);
    return outermost;
}

/* ---- optimizers ---- */

/* The optimizer, if this is the frame of its decorator: wrapper(*args, **kwargs), 1.13 to 2.14. */
static const void *in_optimizer(void *frame) {
    static struct variable args;
    if (!is_of(frame, "wrapper", "torch/optim/optimizer.py"))
        return NULL;
    CAPI_AUTO void *value = value_of(&args, "args", "wrapper", frame);
    return value && capi_type(value) == py.Tuple_Type && py.PyTuple_Size(value) > 0
               ? py.PyTuple_GetItem(value, 0)
               : NULL;
}

const void *frame_optimizer(void) {
    struct capi_state state; /* a step may end by an exception */
    if (!capi_usable())
        return NULL;
    capi_enter(&state);
    const void *self = first_frame(py.PyEval_GetFrame(), NEAR, in_optimizer);
    capi_leave(&state);
    return self;
}

static const void *in_compiled(void *frame) {
    return is_of(frame, "use_grad", "torch/optim/optimizer.py") ? frame : NULL;
}

int frame_compiled(void) {
    return first_frame(py.PyEval_GetFrame(), NEAR, in_compiled) != NULL;
}

const void *frame_code(void) {
    CAPI_AUTO void *code = variable_code(py.PyEval_GetFrame());
    return code;
}

/* ---- threads ---- */

int frame_left(uint64_t thread) {
    struct capi_state state;
    if (!capi_usable())
        return 0;
    capi_enter(&state);
    void *frames = all_frames(), *id = py.PyLong_FromUnsignedLongLong(thread);
    int left = frames && id && !py.PyDict_GetItem(frames, id);
    capi_unref(frames);
    capi_unref(id);
    capi_leave(&state);
    return left;
}
