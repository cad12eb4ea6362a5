/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/variables_frame.h"

#include "agent/python/capi.h"
#include "agent/python/pyvalue.h"

int variable_init(struct variable *v, const char *name, const char *func) {
    memset(v, 0, sizeof *v);
    v->is_module = !strcmp(func, "<module>");
    v->func = py.PyUnicode_FromString(func);
    for (const char *p = name; v->func && *p && v->n < VARIABLE_PATH;) {
        size_t len = strcspn(p, ".");
        v->path[v->n] = py.PyUnicode_FromStringAndSize(p, (ssize_t)len);
        if (!v->path[v->n])
            return -1;
        v->n++;
        p += len + (p[len] == '.');
    }
    return v->func && v->n ? 0 : -1;
}

void variable_free(struct variable *v) {
    capi_unref(v->func);
    capi_unref(v->code);
    for (unsigned i = 0; i < v->n; i++)
        capi_unref(v->path[i]);
    memset(v, 0, sizeof *v);
}

int variable_is_of(const struct variable *v, void *code) {
    static const char *const names[] = {"co_name", "co_qualname"};
    int same = code == v->code;
    for (int i = 0; !same && v->func && i < (py.version >= 0x030b0000 ? 2 : 1); i++) {
        CAPI_AUTO void *name = capi_attr(code, names[i]);
        same = name && !py.PyUnicode_Compare(name, v->func);
    }
    return same;
}

/* Finds the variable's slot in frames of this code. */
static void find_slot(struct variable *v, void *code) {
    CAPI_AUTO void *found = capi_call(pyvalue_helper("place"), code, v->path[0]);
    long said = capi_long(found, -2);
    v->slot = said >> 1;
    v->in_cell = said & 1;
}

int variable_found(struct variable *v, void *code) {
    if (v->code == code)
        return 0;
    capi_unref(v->code);
    v->code = capi_ref(code);
    find_slot(v, code);
    return 1;
}

int variable_in(const struct variable *v, void *code) {
    struct variable copy = *v;
    if (code != v->code && !v->is_module)
        find_slot(&copy, code);
    return v->is_module || copy.slot >= 0;
}

long variable_assigned(const struct variable *v, void *frame, void *then) {
    void *ask = pyvalue_helper(then ? "assigned_by_now" : "assigned_after");
    CAPI_AUTO void *said =
        capi_call(ask, frame, v->path[v->n - 1], v->n > 1 ? py.True : py.False, then);
    return capi_long(said, 0);
}

/* The frame's array of local variables, cells and free variables, 3.6 to 3.11. */
static void **locals_of(void *frame) {
    if (py.version >= 0x030b0000)
        return capi_at(*(void **)capi_at(frame, CAPI_F_FRAME_3_11), CAPI_LOCALS_3_11);
    return capi_at(frame, py.version >= 0x030a0000   ? CAPI_LOCALS_3_10
                          : py.version >= 0x03070000 ? CAPI_LOCALS_3_7
                                                     : CAPI_LOCALS_3_6);
}

static void *read_slot(struct variable *v, void *frame, void *code) {
    variable_found(v, code);
    if (v->slot < 0)
        return NULL;
    void *value = locals_of(frame)[v->slot];
    return value && v->in_cell ? py.PyCell_Get(value) : capi_ref(value);
}

static void *read_local(struct variable *v, void *frame, void *code) {
    if (v->is_module) {
        CAPI_AUTO void *names = py.PyObject_GetAttrString(frame, "f_globals");
        return capi_ref(names ? py.PyDict_GetItem(names, v->path[0]) : NULL);
    }
    if (!py.PyFrame_GetVar)
        return read_slot(v, frame, code);
    void *value = py.PyFrame_GetVar(frame, v->path[0]);
    if (!value)
        py.PyErr_Clear(); /* NameError: not assigned yet */
    return value;
}

void *variable_read(struct variable *v, void *frame, void *code) {
    void *value = read_local(v, frame, code);
    for (unsigned i = 1; value && i < v->n; i++) {
        void *next = py.PyObject_GetAttr(value, v->path[i]);
        py.Py_DecRef(value);
        value = next;
    }
    return value;
}

void *variable_code(void *frame) {
    return capi_attr(frame, "f_code");
}

void *variable_back(void *frame) {
    CAPI_AUTO void *back = capi_attr(frame, "f_back");
    py.Py_DecRef(frame);
    return back == py.None ? NULL : capi_ref(back);
}
