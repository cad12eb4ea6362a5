/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/pyspan.h"

#include "agent/core/producer.h"
#include "agent/python/pyvalue.h"

#define NAMES_MAX 4096 /* span objects that are kept; further names get a new one each time */

struct span {
    struct py_object head;
    void *name; /* str, which keeps its UTF-8 form */
};

struct entry {
    struct py_object head;
    struct entry *parent; /* may be NULL */
    struct span *span;
    uint64_t id;
    uint32_t generation; /* of the recording that it belongs to */
    int open;
};

static CAPI_KEPT void *span_type, *entry_type;
static CAPI_KEPT void *spans;       /* name -> Span */
static CAPI_KEPT void *variable;    /* the context variable; NULL before 3.7 */
static __thread struct entry *here; /* without a context variable: the innermost entry; owned */
static unsigned open_entries;       /* (a) number of open entries; 0: __exit__ need not search */
static uint64_t ids;                /* (a) */
static CAPI_KEPT void *wrap;        /* the decorator, supplied by the package */

uint64_t pyspan_next_id(void) {
    return __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED);
}

/* ---- which entry is innermost ---- */

/* A borrowed reference: the context of this thread or task holds it. */
static struct entry *innermost(void) {
    void *value = NULL;
    if (!variable)
        return here;
    if (py.PyContextVar_Get(variable, NULL, &value)) {
        py.PyErr_Clear();
        return NULL;
    }
    if (!value)
        return NULL;
    py.Py_DecRef(value);
    return capi_type(value) == entry_type ? value : NULL;
}

/* Does not steal the caller's reference to e. */
static void set_innermost(struct entry *e) {
    CAPI_AUTO void *old = variable ? py.PyContextVar_Set(variable, e ? (void *)e : py.None) : here;
    if (!variable)
        here = capi_ref(e);
    else if (!old)
        py.PyErr_Clear();
}

uint64_t pyspan_current(void) {
    uint32_t now = producer_generation();
    if (!__atomic_load_n(&open_entries, __ATOMIC_RELAXED))
        return 0;
    for (struct entry *e = innermost(); e; e = e->parent)
        if (e->open && e->generation == now)
            return e->id;
    return 0;
}

/* ---- records ---- */

static uint64_t record_begin(void *name, uint64_t parent, uint32_t *generation) {
    uint64_t id = pyspan_next_id();
    size_t n;
    const char *text = pyvalue_utf8(name, &n);
    struct producer *p = producer_enter();
    if (!p)
        return 0;
    *generation = p->generation;
    int rc = WRITER_PUT(p->ring, span, .ts = sys_now(), .id = id, .parent = parent, .tid = p->tid,
                        .name = value_bytes(text, n < PYVALUE_TEXT ? n : PYVALUE_TEXT));
    producer_leave(p);
    return rc ? 0 : id;
}

static void record_end(uint64_t id, uint32_t generation, int raised) {
    producer_emit(generation, TRACE_span_end,
                  WRITER_VALUES(span_end, .ts = sys_now(), .id = id, .flags = (uint64_t)raised));
}

/* ---- Entry ---- */

static void entry_dealloc(void *self) {
    struct entry *e = self;
    /* A loop, because releasing a long chain of entries by recursion would need too deep a stack. */
    while (e) {
        struct entry *parent = e->parent;
        if (e->open)
            __atomic_fetch_sub(&open_entries, 1, __ATOMIC_RELAXED);
        py.Py_DecRef(e->span);
        py.PyObject_Free(e);
        py.Py_DecRef(entry_type);
        if (parent && parent->head.refcount != 1) {
            py.Py_DecRef(parent);
            parent = NULL;
        }
        e = parent;
    }
}

static void begin(struct span *s) {
    struct entry *parent = innermost(), *e;
    uint32_t generation = 0;
    while (parent && !parent->open) /* closed entries are of no use: the chain would only grow */
        parent = parent->parent;
    capi_ref(parent);
    int goes_on = parent && parent->generation == producer_generation();
    uint64_t id = record_begin(s->name, goes_on ? parent->id : 0, &generation);
    e = id ? py.PyType_GenericAlloc(entry_type, 0) : NULL;
    if (!e) {
        capi_unref(parent);
        py.PyErr_Clear();
        return;
    }
    e->span = capi_ref(s);
    e->parent = parent;
    e->id = id;
    e->generation = generation;
    e->open = 1;
    __atomic_fetch_add(&open_entries, 1, __ATOMIC_RELAXED);
    set_innermost(e);
    py.Py_DecRef(e);
}

/* Ends the innermost open entry of this span, which normally is the innermost of all spans. */
static void end(struct span *s, int raised) {
    struct entry *e = innermost(), *back;
    while (e && (!e->open || e->span != s))
        e = e->parent;
    if (!e)
        return;
    e->open = 0;
    __atomic_fetch_sub(&open_entries, 1, __ATOMIC_RELAXED);
    record_end(e->id, e->generation, raised);
    for (back = innermost(); back && !back->open;)
        back = back->parent;
    set_innermost(back);
}

/* ---- Span ---- */

static void span_dealloc(void *self) {
    struct span *s = self;
    void *type = capi_type(self);
    capi_unref(s->name);
    py.PyObject_Free(self);
    py.Py_DecRef(type);
}

static void *span_enter(void *self, void *unused UNUSED) {
    if (producer_recording())
        begin(self);
    return capi_ref(self);
}

static void *span_exit(void *self, void *args) {
    if (__atomic_load_n(&open_entries, __ATOMIC_RELAXED))
        end(self, py.PyTuple_Size(args) > 0 && py.PyTuple_GetItem(args, 0) != py.None);
    return capi_ref(py.None);
}

/* @probing.span("name"): the package makes the wrapper. */
static void *span_call(void *self, void *args, void *kwargs UNUSED) {
    if (!wrap || py.PyTuple_Size(args) != 1)
        return capi_error(py.TypeError, "probing.span(name) decorates one function");
    return py.PyObject_CallFunctionObjArgs(wrap, self, py.PyTuple_GetItem(args, 0), NULL);
}

/* For generators, whose body runs in whatever context their caller has: _begin() returns a token for _end(), and the span never becomes a parent. */
static void *span_begin(void *self, void *unused UNUSED) {
    uint32_t generation = 0;
    uint64_t id = 0;
    if (producer_recording())
        id = record_begin(((struct span *)self)->name, pyspan_current(), &generation);
    return py.PyLong_FromUnsignedLongLong(id ? (uint64_t)generation << 40 | id : 0);
}

static void *span_end(void *self UNUSED, void *args) {
    void *token = py.PyTuple_Size(args) == 2 ? py.PyTuple_GetItem(args, 0) : NULL;
    if (!token)
        return capi_error(py.TypeError, "_end(token, raised)");
    uint64_t v = (uint64_t)capi_int(token);
    if (py.PyErr_Occurred())
        return NULL;
    if (v)
        record_end(v & ((1ull << 40) - 1), (uint32_t)(v >> 40),
                   py.PyTuple_GetItem(args, 1) == py.True);
    return capi_ref(py.None);
}

/* span(name): the one object of this name. */
void *pyspan_make(void *module UNUSED, void *args, void *kwargs) {
    void *name = kwargs ? py.PyDict_GetItemString(kwargs, "name") : NULL;
    if (py.PyTuple_Size(args) == 1 && !kwargs)
        name = py.PyTuple_GetItem(args, 0);
    struct span *s = name ? py.PyDict_GetItem(spans, name) : NULL;
    size_t n;
    if (s)
        return capi_ref(s);
    if (!pyvalue_utf8(name, &n))
        return capi_error(py.TypeError, "probing.span(name): name must be a str");
    s = py.PyType_GenericAlloc(span_type, 0);
    if (!s)
        return NULL;
    s->name = capi_ref(name);
    if (py.PyObject_Size(spans) < NAMES_MAX && py.PyDict_SetItem(spans, name, s)) {
        py.Py_DecRef(s);
        return NULL;
    }
    return s;
}

void *pyspan_set_wrap(void *module UNUSED, void *fn) {
    capi_unref(wrap);
    wrap = capi_ref(fn);
    return capi_ref(py.None);
}

static void *get_name(void *self, void *unused UNUSED) {
    void *name = ((struct span *)self)->name; /* none: made by calling its type */
    return capi_ref(name ? name : py.None);
}

int pyspan_init(void) {
    static struct py_method span_methods[] = {
        {"__enter__", span_enter, PY_NOARGS, NULL}, {"__exit__", span_exit, PY_VARARGS, NULL},
        {"_begin", span_begin, PY_NOARGS, NULL},    {"_end", span_end, PY_VARARGS, NULL},
        {"_name", get_name, PY_NOARGS, NULL},       {0}};
    static struct py_slot span_slots[] = {
        {PY_TP_DEALLOC, span_dealloc}, {PY_TP_METHODS, span_methods}, {PY_TP_CALL, span_call}, {0}};
    static struct py_spec span_spec = {"_probing.Span", sizeof(struct span), 0, PY_TPFLAGS,
                                       span_slots};
    static struct py_slot entry_slots[] = {{PY_TP_DEALLOC, entry_dealloc}, {0}};
    static struct py_spec entry_spec = {"_probing.Entry", sizeof(struct entry), 0, PY_TPFLAGS,
                                        entry_slots};
    capi_keep();
    if (!span_type)
        span_type = py.PyType_FromSpec(&span_spec);
    if (!entry_type)
        entry_type = py.PyType_FromSpec(&entry_spec);
    if (!spans)
        spans = py.PyDict_New();
    if (!variable && py.PyContextVar_New && py.PyContextVar_Get && py.PyContextVar_Set)
        variable = py.PyContextVar_New("probing_span", NULL);
    if (!span_type || !entry_type || !spans)
        return -1;
    py.PyErr_Clear();
    return 0;
}
