/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/eval.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "agent/core/state.h"
#include "agent/python/capi.h"
#include "agent/python/gil.h"
#include "writer/live.h"

static const char eval_py[] = {
#include "agent/python/eval.py.inc"
    0};

struct eval {
    char options[EVAL_OPTIONS];
    char *source;
    size_t len;
    uint32_t refs;        /* (a) who asked, its thread, who interrupts it */
    uint32_t begun, done; /* (a) */
    /* Under the GIL: */
    unsigned long ident;
    int in_python; /* user code runs: an exception may be sent there */
    int status;
    size_t reply_len;
    char reply[LIVE_MAIL];
};
static unsigned running; /* (a) those that have not ended */
/* The Python functions, once made; under the GIL. They survive fork as the heap does. */
static void *evaluate, *recover;

/* Sets the answer to a line of text. */
static void say(struct eval *e, int status, const char *text) {
    e->status = status;
    e->reply_len = (size_t)snprintf(e->reply, sizeof e->reply, "%s", text);
}

/* Makes the functions on first use. Holds the GIL. */
static int load(void) {
    void *names, *done;
    if (evaluate)
        return 0;
    names = py.PyDict_New();
    if (!names || py.PyDict_SetItemString(names, "__builtins__", py.PyEval_GetBuiltins()))
        return -ENOMEM;
    done = py.PyRun_String(eval_py, 257 /* Py_file_input */, names, names);
    if (!done)
        return -ENOEXEC;
    py.Py_DecRef(done);
    recover =
        py.PyDict_GetItemString(names, "recover"); /* borrowed from names, which stays for ever */
    evaluate = recover ? py.PyDict_GetItemString(names, "evaluate") : NULL;
    return evaluate ? 0 : -ENOEXEC;
}

/*
 * An interruption may strike at any bytecode, in our own Python code too. So the code that it may strike is marked, and
 * whatever it broke off (sys.stdout stands replaced) is put right by recover(), where it can strike no more.
 */
static void *call_guarded(struct eval *e, void *options, void *source, void *limit) {
    void *answer;
    e->ident = (unsigned long)pthread_self(); /* as PyThread_get_thread_ident() */
    e->in_python = 1;
    answer = py.PyObject_CallFunctionObjArgs(evaluate, options, source, limit, NULL);
    e->in_python = 0;
    py.PyThreadState_SetAsyncExc(e->ident, NULL);
    if (!answer) {
        py.PyErr_Clear();
        answer = py.PyObject_CallFunctionObjArgs(recover, limit, NULL);
    }
    return answer;
}

static void call(struct eval *e) {
    void *options = py.PyBytes_FromStringAndSize(e->options, (ssize_t)strlen(e->options));
    void *source = py.PyBytes_FromStringAndSize(e->source, (ssize_t)e->len),
         *limit = py.PyLong_FromLong(LIVE_MAIL - 1);
    void *answer = options && source && limit ? call_guarded(e, options, source, limit) : NULL;
    char *text;
    ssize_t n;
    if (answer && !py.PyBytes_AsStringAndSize(answer, &text, &n)) {
        e->reply_len = (size_t)n < sizeof e->reply ? (size_t)n : sizeof e->reply;
        memcpy(e->reply, text, e->reply_len);
        e->status = 0;
    } else {
        py.PyErr_Clear();
        say(e, -EIO, "the evaluation itself failed (out of memory, or deep recursion)");
    }
    void *const ours[] = {answer, limit, source, options};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (ours[i])
            py.Py_DecRef(ours[i]);
}

static void evaluate_request(void *arg) {
    struct eval *e = arg;
    int err;
    prctl(PR_SET_NAME, "probing-eval", 0, 0, 0);
    __atomic_store_n(&e->begun, 1, __ATOMIC_RELEASE);
    err = load();
    if (err) {
        py.PyErr_Clear();
        say(e, err, "the evaluator could not be loaded");
    } else {
        call(e);
    }
}

static void unref(void *arg) {
    struct eval *e = arg;
    if (__atomic_sub_fetch(&e->refs, 1, __ATOMIC_ACQ_REL))
        return;
    free(e->source);
    free(e);
}

static void finish(void *arg) {
    struct eval *e = arg;
    __atomic_fetch_sub(&running, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&e->done, 1, __ATOMIC_RELEASE);
    unref(e);
    agent_wake();
}

/* KeyboardInterrupt in the evaluation's thread, at its next bytecode. */
static void interrupt(void *arg) {
    struct eval *e = arg;
    if (e->in_python)
        py.PyThreadState_SetAsyncExc(e->ident, py.KeyboardInterrupt);
}

/* Hands e to a thread that takes the GIL, or answers it. */
static int begin(struct eval *e) {
    int err = capi_load(NULL);
    if (err) {
        say(e, err,
            err == -EAGAIN   ? "Python is not initialised in this process (yet, or any more)"
            : err == -ENOENT ? "there is no Python in this process"
                             : "this version of Python is not known");
        finish(e);
        return 0;
    }
    say(e, -ESHUTDOWN, "Python is shutting down");
    return gil_ask(evaluate_request, e, finish);
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
    err = __atomic_add_fetch(&running, 1, __ATOMIC_RELAXED) <= EVAL_MAX ? begin(e) : -EBUSY;
    if (err) {
        __atomic_fetch_sub(&running, 1, __ATOMIC_RELAXED);
        e->refs = 1;
        unref(e);
    } else {
        *out = e;
    }
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
    if (eval_done(e) || !__atomic_load_n(&e->begun, __ATOMIC_ACQUIRE))
        return;
    __atomic_fetch_add(&e->refs, 1, __ATOMIC_RELAXED);
    if (gil_ask(interrupt, e, unref))
        unref(e);
}

void eval_free(struct eval *e) {
    if (gil_take_back(evaluate_request, e))
        finish(e);
    unref(e);
}

void eval_after_fork(void) {
    __atomic_store_n(&running, 0, __ATOMIC_RELAXED);
}
