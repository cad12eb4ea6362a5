/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eval.c - evaluates Python source that a client sends to the mailbox: one request at a time, each in a thread of its own; the reply is sent when it
 * ends. When the client has left, the mailbox is freed for the next client and the late result is thrown away.
 *
 * The thread masks all signals and waits for the GIL (gil.h); agent/python/eval.py does everything else. An evaluation that is given up
 * before its thread has the GIL never runs.
 */
#include <stdio.h>
#include <sys/prctl.h>

#include "agent/core/part.h"
#include "agent/core/state.h"
#include "agent/python/capi.h"
#include "agent/python/gil.h"

static const char eval_py[] = {
#include "agent/python/eval.py.inc"
    0};

#define EVAL_MAX     8 /* evaluations that have not ended, at most */
#define EVAL_OPTIONS 128

struct eval {
    char options[EVAL_OPTIONS]; /* "eval", "input", ..., as evaluate() in eval.py says */
    size_t len;
    uint32_t refs;        /* (a) references held by: the mailbox, its thread, interrupts */
    uint32_t done;        /* (a) */
    uint32_t interrupted; /* (a) KeyboardInterrupt is to be raised once user code runs */
    /* Under the GIL: */
    unsigned long ident;
    int in_python; /* user code runs: an exception may be raised in it */
    int sent;      /* an exception was sent to it */
    int status;
    size_t reply_len;
    char reply[LIVE_MAIL];
    char source[]; /* ends with a NUL */
};
static unsigned running; /* (a) number of evaluations that have not ended */
/* Functions of eval.py, NULL until load() has run; used under the GIL. They survive a fork as the heap does. */
static CAPI_KEPT void *evaluate, *recover, *swallow;

/* Sets the answer to a line of text. */
static void say(struct eval *e, int status, const char *text) {
    e->status = status;
    e->reply_len = (size_t)snprintf(e->reply, sizeof e->reply, "%s", text);
}

/* Makes the functions on first use. Holds the GIL. */
static int load(void) {
    if (evaluate)
        return 0;
    void *names = capi_run(eval_py); /* never released */
    recover = names ? py.PyDict_GetItemString(names, "recover") : NULL;
    swallow = names ? py.PyDict_GetItemString(names, "swallow") : NULL;
    evaluate = recover && swallow ? py.PyDict_GetItemString(names, "evaluate") : NULL;
    return evaluate ? 0 : -ENOEXEC;
}

/* Raises KeyboardInterrupt in the evaluation's thread, at its next bytecode, if an interruption was asked for. Under the GIL. */
static void raise_interrupt(void *arg) {
    struct eval *e = arg;
    if (e->in_python && __atomic_exchange_n(&e->interrupted, 0, __ATOMIC_ACQ_REL)) {
        py.PyThreadState_SetAsyncExc(e->ident, py.KeyboardInterrupt);
        e->sent = 1;
    }
}

/*
 * KeyboardInterrupt may be raised at any bytecode, in our own Python code too. So in_python marks the code in which it may be raised, and
 * recover(), where it can no longer be raised, cleans up what was interrupted (sys.stdout is still replaced).
 *
 * Whether it was raised is not known, and it cannot be cancelled: CPython keeps the eval_breaker of the whole interpreter set until some
 * exception is raised, even after PyThreadState_SetAsyncExc(NULL). That makes every call in every thread slower for good, and 3.11 never gets
 * past the call of a traced function (gil.c). So a second one is sent, and swallow() waits until it is raised.
 */
static void *call_guarded(struct eval *e, void *options, void *source, void *limit) {
    e->ident = (unsigned long)pthread_self(); /* as PyThread_get_thread_ident() */
    e->in_python = 1;
    raise_interrupt(e);
    void *answer = py.PyObject_CallFunctionObjArgs(evaluate, options, source, limit, NULL);
    e->in_python = 0;
    py.PyErr_Clear();
    if (e->sent) {
        py.PyThreadState_SetAsyncExc(e->ident, py.KeyboardInterrupt);
        capi_unref(py.PyObject_CallFunctionObjArgs(swallow, NULL));
        py.PyErr_Clear();
    }
    return answer ? answer : py.PyObject_CallFunctionObjArgs(recover, limit, NULL);
}

static void call(struct eval *e) {
    CAPI_AUTO void *options = py.PyBytes_FromStringAndSize(e->options, (ssize_t)strlen(e->options));
    CAPI_AUTO void *source = py.PyBytes_FromStringAndSize(e->source, (ssize_t)e->len);
    CAPI_AUTO void *limit = py.PyLong_FromLong(LIVE_MAIL - 1);
    CAPI_AUTO void *answer =
        options && source && limit ? call_guarded(e, options, source, limit) : NULL;
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
}

static void evaluate_request(void *arg) {
    struct eval *e = arg;
    prctl(PR_SET_NAME, "probing-eval", 0, 0, 0);
    int err = load();
    if (err) {
        py.PyErr_Clear();
        say(e, err, "the evaluator could not be loaded");
    } else {
        call(e);
    }
}

static void unref(void *arg) {
    struct eval *e = arg;
    if (!__atomic_sub_fetch(&e->refs, 1, __ATOMIC_ACQ_REL))
        free(e);
}

static void finish(void *arg) {
    struct eval *e = arg;
    __atomic_fetch_sub(&running, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&e->done, 1, __ATOMIC_RELEASE);
    unref(e);
    agent_wake();
}

/* Hands e to a thread that takes the GIL; where there is no usable Python, e ends at once with an error text as its reply. */
static int begin(struct eval *e) {
    int err = capi_load(NULL);
    if (err) {
        say(e, err,
            err == -EAGAIN   ? "Python is not initialised in this process (yet, or any more)"
            : err == -ENOENT ? "there is no CPython in this process"
                             : "this Python is not supported (free-threaded, or not known)");
        finish(e);
        return 0;
    }
    say(e, -ESHUTDOWN, "Python is shutting down");
    return gil_ask(evaluate_request, e, finish);
}

/* Starts an evaluation of copies of options and source. Returns 0; -ENOMEM; -EAGAIN: no thread could be started; -EBUSY: EVAL_MAX have not ended. */
static int start(struct eval **out, const char *options, const char *source, size_t len) {
    struct eval *e = calloc(1, sizeof *e + len + 1);
    *out = NULL;
    if (!e)
        return -ENOMEM;
    snprintf(e->options, sizeof e->options, "%s", options);
    memcpy(e->source, source, len);
    e->len = len;
    e->refs = 2;
    int err = __atomic_add_fetch(&running, 1, __ATOMIC_RELAXED) <= EVAL_MAX ? begin(e) : -EBUSY;
    if (err) {
        __atomic_fetch_sub(&running, 1, __ATOMIC_RELAXED);
        e->refs = 1;
        unref(e);
    } else {
        *out = e;
    }
    return err;
}

/* ---- the mailbox: service thread ---- */

static struct eval *current; /* the evaluation in progress, or NULL */
static uint32_t client;      /* which client it is for: live->mail.lock at its start */

/* Has the evaluation interrupted soon, without waiting for that; C code is not interrupted. */
static void interrupt(struct eval *e) {
    if (__atomic_load_n(&e->done, __ATOMIC_ACQUIRE))
        return;
    __atomic_store_n(&e->interrupted, 1, __ATOMIC_RELEASE);
    __atomic_fetch_add(&e->refs, 1, __ATOMIC_RELAXED);
    if (gil_ask(raise_interrupt, e, unref))
        unref(e);
}

/* Gives up the current evaluation. One that still runs is freed when it ends. */
static void drop(void) {
    if (gil_take_back(evaluate_request, current))
        finish(current);
    unref(current);
    current = NULL;
}

/* MAIL_EVAL carries only source, MAIL_ASK a line of options before it. */
static int request(struct live *l, enum mail_kind kind, const char *source, size_t len) {
    char options[EVAL_OPTIONS] = "eval";
    if (kind != MAIL_EVAL && kind != MAIL_ASK)
        return 0;
    if (kind == MAIL_ASK) {
        const char *end = memchr(source, '\n', len);
        size_t n = end ? (size_t)(end - source) : len;
        if (!end || n >= sizeof options) {
            live_mail_text(l, -EINVAL, "want a line of options");
            return 1;
        }
        memcpy(options, source, n);
        options[n] = 0;
        source = end + 1;
        len -= n + 1;
    }
    int err = start(&current, options, source, len);
    client = __atomic_load_n(&l->mail.lock, __ATOMIC_ACQUIRE);
    if (err == -EBUSY)
        live_mail_text(l, err, "earlier evaluations still wait for the interpreter (GIL)");
    else if (err)
        live_mail_text(l, err, "no thread could be started for the evaluation");
    return 1;
}

static int serve(struct live *l) {
    if (!current)
        return 0;
    if (__atomic_load_n(&current->done, __ATOMIC_ACQUIRE)) {
        live_mail_reply(l, current->status, current->reply, current->reply_len);
        drop();
    } else if (__atomic_load_n(&l->mail.lock, __ATOMIC_ACQUIRE) != client) {
        interrupt(current); /* the client has left */
        drop();
        live_mail_text(l, -ETIMEDOUT, "");
    } else if (__atomic_exchange_n(&l->mail_cancel, 0, __ATOMIC_ACQ_REL)) {
        interrupt(current);
    }
    return current != NULL;
}

static int ended(struct live *l UNUSED) {
    int was = current != NULL;
    if (was)
        drop();
    return was;
}

static void child(void) {
    current = NULL;
    running = 0;
}

const struct agent_part eval_part = {
    .child = child,
    .request = request,
    .attend = serve,
    .ended = ended,
};
