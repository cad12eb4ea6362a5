/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/pymodule.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/values.h"
#include "agent/core/producer.h"
#include "agent/core/settings.h"
#include "agent/core/state.h"
#include "agent/core/steps.h"
#include "agent/python/capi.h"
#include "agent/python/gil.h"
#include "agent/python/pyspan.h"
#include "agent/python/pyvalue.h"

static void *none(void) {
    return capi_ref(py.None);
}

/* ---- what the program tells ---- */

/* step([number]) */
static void *do_step(void *self, void *args) {
    int64_t number = -1;
    int overflow;
    (void)self;
    if (!producer_recording())
        return none();
    if (py.PyTuple_Size(args) > 0 && py.PyTuple_GetItem(args, 0) != py.None) {
        number = py.PyLong_AsLongLongAndOverflow(py.PyTuple_GetItem(args, 0), &overflow);
        if (py.PyErr_Occurred())
            return NULL;
        if (number < 0) {
            py.PyErr_SetString(py.ValueError, "probing.step(number): number must be 0 or more");
            return NULL;
        }
    }
    steps_manual(number);
    return none();
}

static void record_value(struct producer *p, uint64_t event, const char *key, size_t nkey,
                         const struct pyvalue *v) {
    size_t used = 0, extra = ((nkey + 7) & ~(size_t)7) + ((v->n + 7) & ~(size_t)7);
    uint64_t *f = ring_reserve(p->ring, TRACE_event_value, TRACE_event_value_NFIELDS, extra);
    if (!f)
        return;
    f[TRACE_event_value_event] = event;
    ring_put_bytes(f, TRACE_event_value_NFIELDS, TRACE_event_value_key, key, nkey, &used);
    pyvalue_put(f, TRACE_event_value_NFIELDS, TRACE_event_value_kind, v, &used);
    ring_commit(f);
}

/* One value of an event. What cannot be described is described as such: an event never raises. */
static void take_value(uint64_t event, uint32_t generation, void *key, void *value) {
    struct pyvalue v;
    struct producer *p;
    char name[PYVALUE_TEXT];
    size_t n = pyvalue_text(key, name, sizeof name);
    if (pyvalue_take(value, &v)) {
        py.PyErr_Clear();
        v.kind = PYVALUE_STR;
        v.n = (size_t)snprintf(v.text, sizeof v.text, "<value cannot be described>");
    }
    if (v.kind == PYVALUE_COMING) { /* variables.c waits for those; an event does not */
        capi_unref(v.coming);
        v.kind = PYVALUE_STR;
        v.n = (size_t)snprintf(v.text, sizeof v.text, "<value on a GPU>");
    }
    p = producer_enter();
    if (!p)
        return;
    if (p->generation == generation)
        record_value(p, event, name, n, &v);
    producer_leave(p);
}

/* event(name, **values) */
static void *do_event(void *self, void *args, void *kwargs) {
    struct producer *p;
    const char *name;
    uint64_t id = 0, *f, span;
    uint32_t generation;
    size_t n, used = 0;
    (void)self;
    if (!producer_recording())
        return none();
    if (py.PyTuple_Size(args) != 1 || !(name = pyvalue_utf8(py.PyTuple_GetItem(args, 0), &n))) {
        py.PyErr_SetString(py.TypeError, "probing.event(name, key=value, ...): name is a str");
        return NULL;
    }
    if (n > PYVALUE_TEXT)
        n = PYVALUE_TEXT;
    span = pyspan_current();
    p = producer_enter();
    if (!p)
        return none();
    generation = p->generation;
    f = ring_reserve(p->ring, TRACE_event, TRACE_event_NFIELDS, (n + 7) & ~(size_t)7);
    if (f) {
        id = pyspan_next_id();
        f[TRACE_event_ts] = values_now();
        f[TRACE_event_id] = id;
        f[TRACE_event_span] = span;
        f[TRACE_event_step] = steps_current();
        f[TRACE_event_tid] = p->tid;
        ring_put_bytes(f, TRACE_event_NFIELDS, TRACE_event_name, name, n, &used);
        ring_commit(f);
    }
    producer_leave(p);
    if (id && kwargs) {
        ssize_t at = 0;
        void *key, *value;
        while (py.PyDict_Next(kwargs, &at, &key, &value))
            take_value(id, generation, key, value);
    }
    return none();
}

/* ---- settings, and the recording itself ---- */

/* config_get(key) -> str or None */
static void *do_config_get(void *self, void *key) {
    char name[128], text[SETTING_TEXT_MAX];
    int id;
    (void)self;
    pyvalue_text(key, name, sizeof name);
    id = setting_find(name);
    /* Two that are no settings, for _start.py: the run, and what was wrong with the settings, a line each. */
    if (!strcmp(name, "run"))
        return py.PyUnicode_FromString(config_run());
    if (!strcmp(name, "complaints")) {
        char lines[CONFIG_COMPLAINTS * sizeof probing_agent.config.complaints[0]];
        size_t n = 0;
        for (unsigned i = 0; i < probing_agent.config.ncomplaints; i++)
            n += (size_t)snprintf(lines + n, sizeof lines - n, "%s\n",
                                  probing_agent.config.complaints[i]);
        return py.PyUnicode_FromString(n ? lines : "");
    }
    if (id < 0)
        return none();
    settings_text((enum setting_id)id, text, sizeof text);
    return py.PyUnicode_FromString(text);
}

/* config_set(key, value) -> None, or what is wrong with it */
static void *do_config_set(void *self, void *args) {
    char name[128], text[SETTING_TEXT_MAX + 1], why[SETTING_WHY];
    (void)self;
    if (py.PyTuple_Size(args) != 2)
        return none();
    pyvalue_text(py.PyTuple_GetItem(args, 0), name, sizeof name);
    pyvalue_text(py.PyTuple_GetItem(args, 1), text, sizeof text);
    if (!settings_set(name, text, why, sizeof why)) {
        agent_wake();
        return none();
    }
    return py.PyUnicode_FromString(why);
}

static void *do_config_all(void *self, void *unused) {
    static char json[65536]; /* with the GIL */
    (void)self;
    (void)unused;
    settings_json(json, sizeof json);
    return py.PyUnicode_FromString(json);
}

static void *do_recording(void *self, void *unused) {
    (void)self;
    (void)unused;
    return capi_ref(producer_recording() ? py.True : py.False);
}

/* start(conf) -> 0 or -errno */
static void *do_start(void *self, void *conf) {
    size_t n;
    const char *text = pyvalue_utf8(conf, &n); /* kept in conf, which our caller holds */
    int err;
    (void)self;
    void *saved = py.PyEval_SaveThread();
    err = probing_agent_start(text && n ? text : NULL, "python");
    py.PyEval_RestoreThread(saved);
    return py.PyLong_FromLong(err);
}

/* stop(): waits until the trace is closed. */
static void *do_stop(void *self, void *unused) {
    (void)self;
    (void)unused;
    void *saved = py.PyEval_SaveThread();
    probing_agent_stop("stop", 10000);
    py.PyEval_RestoreThread(saved);
    return none();
}

/* trace() -> path of the trace being written, or None */
static void *do_trace(void *self, void *unused) {
    char path[4096] = "";
    struct producer *p = producer_enter();
    (void)self;
    (void)unused;
    if (p) {
        snprintf(path, sizeof path, "%s", p->live->trace_path);
        producer_leave(p);
    }
    return *path ? py.PyUnicode_FromString(path) : none();
}

static struct py_method methods[] = {
    {"step", do_step, PY_VARARGS,
     "step(number=None): a training step has ended. Only where nothing else tells: an optimizer's step is seen by itself."},
    {"event", (void *(*)(void *, void *))(void *)do_event, PY_VARARGS | PY_KEYWORDS,
     "event(name, **values): something worth knowing, into the events table."},
    {"config_get", do_config_get, PY_ONE, NULL},
    {"config_set", do_config_set, PY_VARARGS, NULL},
    {"config_all", do_config_all, PY_NOARGS, NULL},
    {"recording", do_recording, PY_NOARGS,
     "is_recording(): whether this process is being recorded now."},
    {"start", do_start, PY_ONE, NULL},
    {"stop", do_stop, PY_NOARGS, NULL},
    {"trace", do_trace, PY_NOARGS, NULL},
    {0},
};

PROBING_EXPORT void *PyInit__probing(void) {
    static struct py_module_def def = {.base = {.refcount = 1},
                                       .name = "_probing",
                                       .doc = "The agent of Probing (import probing)",
                                       .size = -1,
                                       .methods = methods};
    void *module;
    if (capi_load(NULL))
        return NULL;
    module = py.PyModule_Create2(&def, 1013 /* PYTHON_API_VERSION */);
    if (module && pyspan_init(module)) {
        py.Py_DecRef(module);
        module = NULL;
    }
    return module;
}

/* ---- the package was there first ---- */

/* probing._arrived(): it then imports _probing as ever. With the GIL. */
static void tell_package(void *unused) {
    (void)unused;
    void *modules = py.PyImport_GetModuleDict(); /* borrowed */
    void *package = modules ? py.PyDict_GetItemString(modules, "probing") : NULL;
    void *arrived = package ? py.PyObject_GetAttrString(package, "_arrived") : NULL;
    void *done = arrived ? py.PyObject_CallFunctionObjArgs(arrived, NULL) : NULL;
    capi_unref(done);
    capi_unref(arrived);
    py.PyErr_Clear();
}

void pymodule_attach(void) {
    gil_ask(tell_package, NULL, NULL);
}
