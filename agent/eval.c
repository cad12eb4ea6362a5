/* SPDX-License-Identifier: Apache-2.0 */
#include "eval.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "../writer/live.h"
#include "python.h"
#include "state.h"

static const char eval_py[] = {
#include "agent/eval.py.inc"
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
    void (*ErrClear)(void);
    void (*DecRef)(void *);
};

struct eval {
    char *source;
    size_t len;
    uint32_t state; /* (a) */
    int status;
    size_t reply_len;
    char reply[LIVE_MAIL];
};
enum { EVAL_RUNS, EVAL_DONE, EVAL_ABANDONED };

static unsigned running; /* (a) threads that have not ended */
static void
    *evaluate; /* the Python function, once made; under the GIL. Survives fork as the heap does */

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

/* Makes the function evaluate() on first use. Holds the GIL. */
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
    evaluate = a->DictGet(names, "evaluate"); /* borrowed from names, which stays for ever */
    return evaluate ? 0 : -ENOEXEC;
}

static void call(struct eval *e, const struct api *a) {
    void *source = a->BytesNew(e->source, (ssize_t)e->len), *limit = a->LongNew(LIVE_MAIL - 1);
    void *answer = source && limit ? a->Call(evaluate, source, limit, NULL) : NULL;
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
    if (answer)
        a->DecRef(answer);
    if (limit)
        a->DecRef(limit);
    if (source)
        a->DecRef(source);
}

static void evaluate_request(struct eval *e) {
    struct agent_python py;
    struct api a;
    int err = agent_python_find(&py);
    if (err == -EAGAIN || (!err && find_api(&a, py.handle)) || err) {
        say(e, err ? err : -ENOTSUP,
            err == -EAGAIN   ? "Python is not initialised in this process (yet, or any more)"
            : err == -ENOENT ? "there is no Python in this process"
                             : "this version of Python is not known");
        return;
    }
    if (!a.IsInitialized() || (a.IsFinalizing && a.IsFinalizing())) {
        say(e, -ESHUTDOWN, "Python is shutting down");
        return;
    }
    int gil = a.Ensure(); /* may end this thread when Python shuts down meanwhile: see finish() */
    err = load(&a);
    if (err) {
        a.ErrClear();
        say(e, err, "the evaluator could not be loaded");
    } else {
        call(e, &a);
    }
    a.Release(gil);
}

static void destroy(struct eval *e) {
    free(e->source);
    free(e);
}

/* Runs also when CPython ends the thread by pthread_exit(). */
static void finish(void *arg) {
    struct eval *e = arg;
    uint32_t runs = EVAL_RUNS;
    __atomic_fetch_sub(&running, 1, __ATOMIC_RELAXED);
    if (!__atomic_compare_exchange_n(&e->state, &runs, EVAL_DONE, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        destroy(e); /* abandoned */
    agent_wake();
}

static void *eval_main(void *arg) {
    struct eval *e = arg;
    prctl(PR_SET_NAME, "probing-eval", 0, 0, 0);
    say(e, -ESHUTDOWN, "Python is shutting down");
    pthread_cleanup_push(finish, e);
    evaluate_request(e);
    pthread_cleanup_pop(1);
    return NULL;
}

int eval_start(struct eval **out, const char *source, size_t len) {
    struct eval *e = NULL;
    pthread_t thread;
    pthread_attr_t attr;
    int err = -EBUSY;
    if (__atomic_add_fetch(&running, 1, __ATOMIC_RELAXED) > EVAL_MAX)
        goto out;
    err = -ENOMEM;
    e = calloc(1, sizeof *e);
    if (!e || !(e->source = malloc(len + 1)))
        goto out;
    memcpy(e->source, source, len);
    e->source[len] = 0;
    e->len = len;
    err = -pthread_attr_init(&attr);
    if (err)
        goto out;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    err = -pthread_create(&thread, &attr, eval_main, e); /* our caller's signal mask: all blocked */
    pthread_attr_destroy(&attr);
out:
    if (err) {
        __atomic_fetch_sub(&running, 1, __ATOMIC_RELAXED);
        if (e)
            destroy(e);
        e = NULL;
    }
    *out = e;
    return err;
}

int eval_done(const struct eval *e) {
    return __atomic_load_n(&e->state, __ATOMIC_ACQUIRE) == EVAL_DONE;
}

int eval_status(const struct eval *e, const char **reply, size_t *n) {
    *reply = e->reply;
    *n = e->reply_len;
    return e->status;
}

void eval_free(struct eval *e) {
    destroy(e);
}

void eval_abandon(struct eval *e) {
    uint32_t runs = EVAL_RUNS;
    if (!__atomic_compare_exchange_n(&e->state, &runs, EVAL_ABANDONED, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        destroy(e); /* it has just ended */
}

int eval_threads(void) {
    return (int)__atomic_load_n(&running, __ATOMIC_RELAXED);
}

void eval_after_fork(void) {
    __atomic_store_n(&running, 0, __ATOMIC_RELAXED);
}
