/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/eval.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/core/python.h"
#include "agent/core/state.h"
#include "agent/core/threads.h"
#include "writer/live.h"

static const char eval_py[] = {
#include "agent/python/eval.py.inc"
    0};

/* The part of CPython's API that is used: functions of the stable ABI, found by name. */
struct api {
    int (*Ensure)(void);
    void (*Release)(int);
    int (*IsInitialized)(void);
    int (*IsFinalizing)(void);
    void *(*RunString)(const char *, int, void *, void *);
    void *(*GetBuiltins)(void);
    void *(*DictNew)(void);
    void *(*DictGet)(void *, const char *);
    int (*DictSet)(void *, const char *, void *);
    void *(*BytesNew)(const char *, ssize_t);
    int (*BytesGet)(void *, char **, ssize_t *);
    void *(*LongNew)(long);
    void *(*Call)(void *, ...);
    int (*SetAsyncExc)(unsigned long, void *);
    void **KeyboardInterrupt;
    void (*ErrClear)(void);
    void (*DecRef)(void *);
};

struct eval {
    char options[EVAL_OPTIONS];
    char *source;
    size_t len;
    uint32_t refs; /* (a) who asked, its thread, threads that interrupt it */
    uint32_t done; /* (a) */
    /* Under the GIL: */
    struct api api;
    unsigned long ident;
    int in_python; /* user code runs: an exception may be sent there */
    int status;
    size_t reply_len;
    char reply[LIVE_MAIL];
};
static unsigned running; /* (a) threads that have not ended */
/* The Python functions, once made; under the GIL. They survive fork as the heap does. */
static void *evaluate, *recover;

static int find_api(struct api *a, void *handle) {
    const struct {
        const char *name;
        void *to;
    } names[] = {
        {"PyGILState_Ensure", &a->Ensure},
        {"PyGILState_Release", &a->Release},
        {"Py_IsInitialized", &a->IsInitialized},
        {"PyRun_String", &a->RunString},
        {"PyEval_GetBuiltins", &a->GetBuiltins},
        {"PyDict_New", &a->DictNew},
        {"PyDict_GetItemString", &a->DictGet},
        {"PyDict_SetItemString", &a->DictSet},
        {"PyBytes_FromStringAndSize", &a->BytesNew},
        {"PyBytes_AsStringAndSize", &a->BytesGet},
        {"PyLong_FromLong", &a->LongNew},
        {"PyObject_CallFunctionObjArgs", &a->Call},
        {"PyThreadState_SetAsyncExc", &a->SetAsyncExc},
        {"PyExc_KeyboardInterrupt", &a->KeyboardInterrupt},
        {"PyErr_Clear", &a->ErrClear},
        {"Py_DecRef", &a->DecRef},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *p = dlsym(handle, names[i].name);
        if (!p)
            return -ENOTSUP;
        memcpy(names[i].to, &p, sizeof p);
    }
    void *p = dlsym(handle, "Py_IsFinalizing"); /* 3.13 */
    if (!p)
        p = dlsym(handle, "_Py_IsFinalizing"); /* 3.7 to 3.12 */
    memcpy(&a->IsFinalizing, &p, sizeof p);
    return 0;
}

/* Sets the answer to a line of text. */
static void say(struct eval *e, int status, const char *text) {
    e->status = status;
    e->reply_len = (size_t)snprintf(e->reply, sizeof e->reply, "%s", text);
}

/* Makes the functions on first use. Holds the GIL. */
static int load(const struct api *a) {
    void *names, *done;
    if (evaluate)
        return 0;
    names = a->DictNew();
    if (!names || a->DictSet(names, "__builtins__", a->GetBuiltins()))
        return -ENOMEM;
    done = a->RunString(eval_py, 257 /* Py_file_input */, names, names);
    if (!done)
        return -ENOEXEC;
    a->DecRef(done);
    recover = a->DictGet(names, "recover"); /* borrowed from names, which stays for ever */
    evaluate = recover ? a->DictGet(names, "evaluate") : NULL;
    return evaluate ? 0 : -ENOEXEC;
}

/*
 * An interruption may strike at any bytecode, in our own Python code too. So the code that it may strike is marked, and
 * whatever it broke off (sys.stdout stands replaced) is put right by recover(), where it can strike no more.
 */
static void *call_guarded(struct eval *e, void *options, void *source, void *limit) {
    const struct api *a = &e->api;
    void *answer;
    e->ident = (unsigned long)pthread_self(); /* as PyThread_get_thread_ident() */
    e->in_python = 1;
    answer = a->Call(evaluate, options, source, limit, NULL);
    e->in_python = 0;
    a->SetAsyncExc(e->ident, NULL);
    if (!answer) {
        a->ErrClear();
        answer = a->Call(recover, limit, NULL);
    }
    return answer;
}

static void call(struct eval *e) {
    const struct api *a = &e->api;
    void *options = a->BytesNew(e->options, (ssize_t)strlen(e->options));
    void *source = a->BytesNew(e->source, (ssize_t)e->len), *limit = a->LongNew(LIVE_MAIL - 1);
    void *answer = options && source && limit ? call_guarded(e, options, source, limit) : NULL;
    char *text;
    ssize_t n;
    if (answer && !a->BytesGet(answer, &text, &n)) {
        e->reply_len = (size_t)n < sizeof e->reply ? (size_t)n : sizeof e->reply;
        memcpy(e->reply, text, e->reply_len);
        e->status = 0;
    } else {
        a->ErrClear();
        say(e, -EIO, "the evaluation itself failed (out of memory, or deep recursion)");
    }
    void *const ours[] = {answer, limit, source, options};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (ours[i])
            a->DecRef(ours[i]);
}

static void evaluate_request(struct eval *e) {
    struct agent_python py;
    struct api *a = &e->api;
    int err = agent_python_find(&py);
    if (err == -EAGAIN || (!err && find_api(a, py.handle)) || err) {
        say(e, err ? err : -ENOTSUP,
            err == -EAGAIN   ? "Python is not initialised in this process (yet, or any more)"
            : err == -ENOENT ? "there is no Python in this process"
                             : "this version of Python is not known");
        return;
    }
    if (!a->IsInitialized() || (a->IsFinalizing && a->IsFinalizing())) {
        say(e, -ESHUTDOWN, "Python is shutting down");
        return;
    }
    int gil = a->Ensure(); /* may end this thread when Python shuts down meanwhile: see finish() */
    err = load(a);
    if (err) {
        a->ErrClear();
        say(e, err, "the evaluator could not be loaded");
    } else {
        call(e);
    }
    a->Release(gil);
}

static void unref(struct eval *e) {
    if (__atomic_sub_fetch(&e->refs, 1, __ATOMIC_ACQ_REL))
        return;
    free(e->source);
    free(e);
}

/* Runs also when CPython ends the thread by pthread_exit(). */
static void finish(void *arg) {
    struct eval *e = arg;
    __atomic_fetch_sub(&running, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&e->done, 1, __ATOMIC_RELEASE);
    unref(e);
    agent_wake();
}

static void *eval_main(void *arg) {
    struct eval *e = arg;
    say(e, -ESHUTDOWN, "Python is shutting down");
    pthread_cleanup_push(finish, e);
    evaluate_request(e);
    pthread_cleanup_pop(1);
    return NULL;
}

static void finish_interrupt(void *arg) {
    __atomic_fetch_sub(&running, 1, __ATOMIC_RELAXED);
    unref(arg);
}

/* KeyboardInterrupt in the evaluation's thread, at its next bytecode. The evaluation is under way, so its api is
 * filled in once the GIL is ours and in_python is set. */
static void *interrupt_main(void *arg) {
    struct eval *e = arg;
    struct agent_python py;
    struct api a;
    pthread_cleanup_push(finish_interrupt, e);
    if (!agent_python_find(&py) && !find_api(&a, py.handle) && a.IsInitialized() &&
        !(a.IsFinalizing && a.IsFinalizing())) {
        int gil = a.Ensure();
        if (e->in_python)
            a.SetAsyncExc(e->ident, *a.KeyboardInterrupt);
        a.Release(gil);
    }
    pthread_cleanup_pop(1);
    return NULL;
}

/* A thread for e, which takes over one reference. 0 or -errno. */
static int spawn(struct eval *e, const char *name, void *(*entry)(void *)) {
    int err = -EBUSY;
    if (__atomic_add_fetch(&running, 1, __ATOMIC_RELAXED) <= EVAL_MAX)
        err = thread_spawn(NULL, name, 0, entry, e);
    if (err) {
        __atomic_fetch_sub(&running, 1, __ATOMIC_RELAXED);
        unref(e);
    }
    return err;
}

int eval_start(struct eval **out, const char *options, const char *source, size_t len) {
    struct eval *e = calloc(1, sizeof *e);
    int err = -ENOMEM;
    *out = NULL;
    if (!e || !(e->source = malloc(len + 1))) {
        free(e);
        return err;
    }
    snprintf(e->options, sizeof e->options, "%s", options);
    memcpy(e->source, source, len);
    e->source[len] = 0;
    e->len = len;
    e->refs = 2;
    err = spawn(e, "probing-eval", eval_main);
    if (err)
        unref(e);
    else
        *out = e;
    return err;
}

int eval_done(const struct eval *e) {
    return (int)__atomic_load_n(&e->done, __ATOMIC_ACQUIRE);
}

int eval_status(const struct eval *e, const char **reply, size_t *n) {
    *reply = e->reply;
    *n = e->reply_len;
    return e->status;
}

void eval_interrupt(struct eval *e) {
    if (eval_done(e))
        return;
    __atomic_fetch_add(&e->refs, 1, __ATOMIC_RELAXED);
    spawn(e, "probing-intr", interrupt_main);
}

void eval_free(struct eval *e) {
    unref(e);
}

void eval_after_fork(void) {
    __atomic_store_n(&running, 0, __ATOMIC_RELAXED);
}
