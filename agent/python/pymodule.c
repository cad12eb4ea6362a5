/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pymodule.c - `_probing`, the agent's side of `import probing` (agent/python_api/probing).
 *
 * The agent is its own extension module: the package asks the import machinery for libprobing-agent.so under the name _probing, which
 * is the very object that is loaded already (preload, inject), or loads it (PROBING=1, probing.enable()). When the
 * package was imported before the agent was loaded, the agent calls the package's _arrived().
 */
#include <stdio.h>

#include "agent/core/agent.h"
#include "agent/core/part.h"
#include "agent/core/producer.h"
#include "agent/core/settings.h"
#include "agent/core/state.h"
#include "agent/core/steps.h"
#include "agent/python/capi.h"
#include "agent/python/gil.h"
#include "agent/python/pyspan.h"
#include "agent/python/pyvalue.h"
#include "agent/python/variables.h"

#define ROLE      "probing.role" /* the event of probing.set_role() */
#define TOLD_MOST 16

/* ---- what the program records ---- */

/* step([number]) */
static void *do_step(void *self UNUSED, void *args) {
    int64_t number = -1;
    if (!producer_recording())
        return capi_ref(py.None);
    if (py.PyTuple_Size(args) > 0 && py.PyTuple_GetItem(args, 0) != py.None) {
        number = capi_int(py.PyTuple_GetItem(args, 0));
        if (py.PyErr_Occurred())
            return NULL;
        if (number < 0)
            return capi_error(py.ValueError, "probing.step(number): number must be 0 or more");
    }
    void (*manual)(int64_t) = __atomic_load_n(&steps_manual, __ATOMIC_ACQUIRE);
    if (manual)
        manual(number);
    return capi_ref(py.None);
}

struct one_value {
    size_t n;
    char key[PYVALUE_TEXT];
    struct pyvalue v;
};

/* The values given to the last probing.set_role(). A thread that uses them sets the pointer to NULL meanwhile. */
static struct told {
    unsigned n;
    struct one_value at[TOLD_MOST];
} * told;
static uint32_t told_in; /* the segment that the role was written into last */

/* Describes one value of an event. A value that cannot be described gets a text that says so: an event never raises an exception. */
static void describe(struct one_value *one, void *key, void *value) {
    one->n = pyvalue_text(key, one->key, sizeof one->key);
    if (pyvalue_take(value, &one->v)) {
        py.PyErr_Clear();
        one->v.kind = PYVALUE_STR;
        one->v.n = (size_t)snprintf(one->v.text, sizeof one->v.text, "<value cannot be described>");
    }
    if (one->v.kind == PYVALUE_COMING) { /* variables.c waits for such values; an event does not */
        capi_unref(one->v.coming);
        one->v.kind = PYVALUE_STR;
        one->v.n = (size_t)snprintf(one->v.text, sizeof one->v.text, "<value on a GPU>");
    }
}

static struct record_event_value value_of(uint64_t event, const struct one_value *one) {
    struct record_event_value r = {.event = event, .key = value_bytes(one->key, one->n)};
    pyvalue_put(&r.kind_value, &one->v);
    return r;
}

static void keep_role(void *kwargs) {
    struct told *t = calloc(1, sizeof *t);
    ssize_t at = 0;
    void *key, *value;
    while (t && t->n < TOLD_MOST && kwargs && py.PyDict_Next(kwargs, &at, &key, &value))
        describe(&t->at[t->n++], key, value);
    if (t)
        free(__atomic_exchange_n(&told, t, __ATOMIC_ACQ_REL));
}

/* Writes the role again into each new segment, whose file has to stand alone. The id is taken before the role, so a role set meanwhile has a higher id. */
static void tell_role(struct writer *w, uint64_t now) {
    uint32_t segment = __atomic_load_n(&writer_live(w)->segment, __ATOMIC_RELAXED);
    struct told *none = NULL, *t;
    if (segment == told_in)
        return;
    told_in = segment;
    uint64_t id = pyspan_next_id();
    if (!(t = __atomic_exchange_n(&told, NULL, __ATOMIC_ACQ_REL)))
        return;
    WRITER_EMIT(w, event, .ts = now, .id = id, .name = value_text(ROLE), .tid = (uint64_t)getpid());
    for (unsigned i = 0; i < t->n; i++) {
        struct record_event_value r = value_of(id, &t->at[i]);
        writer_emit(w, TRACE_event_value, &r.event_value);
    }
    if (!__atomic_compare_exchange_n(&told, &none, t, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        free(t); /* a new role was set meanwhile */
}

/* event(name, **values) */
static void *do_event(void *self UNUSED, void *args, void *kwargs) {
    const char *name;
    size_t n;
    if (!producer_recording())
        return capi_ref(py.None);
    if (py.PyTuple_Size(args) != 1 || !(name = pyvalue_utf8(py.PyTuple_GetItem(args, 0), &n)))
        return capi_error(py.TypeError, "probing.event(name, key=value, ...): name is a str");
    if (n == sizeof ROLE - 1 && !memcmp(name, ROLE, n))
        keep_role(kwargs);
    uint64_t span = pyspan_current();
    struct producer *p = producer_enter();
    if (!p)
        return capi_ref(py.None);
    uint32_t generation = p->generation;
    uint64_t id = pyspan_next_id();
    int rc = WRITER_PUT(p->ring, event, .ts = sys_now(), .id = id,
                        .name = value_bytes(name, n < PYVALUE_TEXT ? n : PYVALUE_TEXT),
                        .span = span, .step = steps_current(), .tid = p->tid);
    producer_leave(p);
    if (!rc && kwargs) {
        ssize_t at = 0;
        void *key, *value;
        while (py.PyDict_Next(kwargs, &at, &key, &value)) {
            struct one_value one;
            describe(&one, key, value);
            struct record_event_value r = value_of(id, &one);
            producer_emit(generation, TRACE_event_value, &r.event_value);
        }
    }
    return capi_ref(py.None);
}

/* ---- settings, and the recording itself ---- */

/* config_get(key) -> str or None */
static void *do_config_get(void *self UNUSED, void *key) {
    char name[128], text[SETTING_TEXT_MAX];
    pyvalue_text(key, name, sizeof name);
    int id = setting_find(name);
    /* Three more keys, for code that starts a recording: the run's identity, why the process may not be recorded, and what was wrong with the
     * settings (a line for each complaint). */
    if (!strcmp(name, "run"))
        return py.PyUnicode_DecodeFSDefault(config_run());
    if (!strcmp(name, "barred"))
        return py.PyUnicode_DecodeFSDefault(probing_agent.barred);
    if (!strcmp(name, "complaints")) {
        char lines[CONFIG_COMPLAINTS * sizeof probing_agent.config.complaints[0]];
        size_t n = 0;
        for (unsigned i = 0; i < probing_agent.config.ncomplaints; i++)
            n += (size_t)snprintf(lines + n, sizeof lines - n, "%s\n",
                                  probing_agent.config.complaints[i]);
        return py.PyUnicode_DecodeFSDefault(n ? lines : "");
    }
    if (id < 0)
        return capi_ref(py.None);
    settings_text((enum setting_id)id, text, sizeof text);
    return py.PyUnicode_DecodeFSDefault(text);
}

/* config_set(key, value) -> None, or what is wrong with it */
static void *do_config_set(void *self UNUSED, void *args) {
    char name[128], text[SETTING_TEXT_MAX + 1], why[SETTING_WHY];
    if (py.PyTuple_Size(args) != 2)
        return capi_ref(py.None);
    pyvalue_text(py.PyTuple_GetItem(args, 0), name, sizeof name);
    pyvalue_text(py.PyTuple_GetItem(args, 1), text, sizeof text);
    if (!settings_set(name, text, why, sizeof why)) {
        agent_wake();
        return capi_ref(py.None);
    }
    return py.PyUnicode_FromString(why);
}

static void *do_config_all(void *self UNUSED, void *unused UNUSED) {
    static char json[65536]; /* protected by the GIL */
    settings_json(json, sizeof json);
    return py.PyUnicode_DecodeFSDefault(json);
}

static void *do_recording(void *self UNUSED, void *unused UNUSED) {
    return capi_ref(producer_recording() ? py.True : py.False);
}

/* The original os._exit(). It is replaced for processes without libprobing-preload.so, which would seem to have been killed otherwise. */
static capi_function *exit_was;

static void *leave(void *self, void *args, ssize_t n, void *names) {
    int given = n > 0 || names; /* in `args`, arguments given by name follow the positional ones */
    probing_agent_stop("_exit", given ? (int)capi_long(*(void **)args, -1) : -1, EXIT_WAIT_MS);
    return exit_was(self, args, n, names);
}

/* Replaces os._exit(). With the GIL. */
static void see_exit(void) {
    if (!exit_was &&
        !(exit_was = capi_replace(capi_module("posix"), "_exit", PY_FASTCALL | PY_KEYWORDS, leave)))
        exit_was = capi_replace(capi_module("posix"), "_exit", PY_FASTCALL, leave); /* in 3.6 */
}

/* start(conf) -> 0 or -errno */
static void *do_start(void *self UNUSED, void *conf) {
    CAPI_AUTO void *bytes = py.PyObject_CallMethod(capi_module("os"), "fsencode", "O", conf);
    char *text;
    if (!bytes || py.PyBytes_AsStringAndSize(bytes, &text, NULL))
        return NULL;
    see_exit();
    void *saved = py.PyEval_SaveThread();
    int err = probing_agent_start(*text ? text : NULL, "python");
    py.PyEval_RestoreThread(saved);
    return py.PyLong_FromLong(err);
}

/* stop(): waits until the trace is closed. */
static void *do_stop(void *self UNUSED, void *unused UNUSED) {
    void *saved = py.PyEval_SaveThread();
    probing_agent_stop("stop", -1, 10000);
    py.PyEval_RestoreThread(saved);
    return capi_ref(py.None);
}

/* trace() -> path of the trace being written, or None */
static void *do_trace(void *self UNUSED, void *unused UNUSED) {
    char path[4096] = "";
    struct producer *p = producer_enter();
    if (p) {
        snprintf(path, sizeof path, "%s", p->live->trace_path);
        producer_leave(p);
    }
    return *path ? py.PyUnicode_DecodeFSDefault(path) : capi_ref(py.None);
}

static struct py_method methods[] = {
    {"span", pyspan_make, PY_VARARGS | PY_KEYWORDS,
     "span(name): a context manager and decorator; the time inside is recorded."},
    {"set_wrap", pyspan_set_wrap, PY_ONE, NULL},
    {"step", do_step, PY_VARARGS,
     "step(number=None): a training step has ended. Only where nothing else tells: an optimizer's step is seen by itself."},
    {"event", do_event, PY_VARARGS | PY_KEYWORDS,
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

/* Called only by the import machinery, with the GIL. Returns a new module object, or NULL with an error set. */
PROBING_EXPORT void *PyInit__probing(void) {
    static struct py_module_def def = {.base = {.refcount = 1},
                                       .name = "_probing",
                                       .doc = "The agent of Probing (import probing)",
                                       .size = -1,
                                       .methods = methods};
    int err = capi_load(NULL) || pyspan_init();
    return err ? NULL : py.PyModule_Create2(&def, 1013 /* PYTHON_API_VERSION */);
}

/* ---- the package was there first ---- */

/* Calls probing._arrived(), which then imports _probing as usual. With the GIL. */
static void tell_package(void *unused UNUSED) {
    void *modules = py.PyImport_GetModuleDict(); /* borrowed */
    void *package = modules ? py.PyDict_GetItemString(modules, "probing") : NULL;
    CAPI_AUTO void *arrived = capi_attr(package, "_arrived");
    capi_unref(capi_call(arrived));
    see_exit();
    py.PyErr_Clear();
}

/* ---- the part: `import probing` and variables ---- */

static void begin(struct writer *w UNUSED) {
    told_in = 0;
    gil_open();
    variables_open();
}

static void python(const struct agent_python *found) {
    if (!capi_load(found) && !strcmp(probing_agent.how, "inject"))
        gil_ask(tell_package, NULL, NULL); /* our package may have been imported before this */
}

static void child(void) {
    variables_after_fork();
    gil_after_fork();
}

const struct agent_part python_part = {
    .open = begin,
    .python = python,
    .round = tell_role,
    .close = variables_close,
    .child = child,
};
