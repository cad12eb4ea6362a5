/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/gil.h"

#include "agent/base/loaded.h"
#include "agent/base/quiesce.h"
#include "agent/core/python.h"
#include "agent/core/threads.h"
#include "agent/python/capi.h"
#include "writer/sys.h"

#define MOST        16
#define HANDLERS    100 /* fork handlers that we register, at most */
#define WORKS       8
#define PATIENCE_NS SYS_SECOND
#define MAIN_MS     100
#define RENEWED_MS  2000
#define PATIENCE_MS 500

struct work {
    void (*fn)(void *), *arg, (*end)(void *);
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* never held while waiting for the GIL */
static struct {
    struct work work[MOST];
    unsigned n;
    int waits; /* a thread of ours was started and waits for the GIL */
} queue;

/*
 * ---- fork ----
 *
 * A forked child inherits the GIL's state. os.fork() creates the GIL anew, but a fork() by other C code does not: if a thread of ours held the GIL or
 * waited for it, the child would wait for that thread for ever. So the forking thread first waits until no thread of ours is inside, and if
 * it holds the GIL, releases it meanwhile, as it does between two bytecodes. When an evaluation takes longer, the next forks do not wait for it again.
 */
static uint32_t inside; /* number of our threads that wait for the GIL or hold it (quiesce.h) */
static uint32_t making; /* number of our threads that make their thread state (come_in()) */
static uint32_t forks;  /* number of threads in fork(): meanwhile no thread of ours enters */
static __thread uint32_t forking; /* this thread is in fork() */
static int patience; /* ms that forks may still wait; inexact when two threads fork at once */
static __thread uint32_t visits; /* this thread is inside */

/* Whether this fork is os.fork()'s, which holds the import lock; others hold that only for moments. The caller holds the GIL. */
static int is_os_fork(void) {
    struct capi_state state;
    capi_enter(&state);
    void *held = py.PyObject_CallMethod(capi_module("_imp"), "lock_held", NULL);
    int is = held == py.True;
    capi_unref(held);
    capi_leave(&state);
    return is;
}

static void before_fork(void) {
    int saved = errno, has_gil, ms = PATIENCE_MS;
    void *(*current)(void) = py.PyThreadState_GetUnchecked ? py.PyThreadState_GetUnchecked
                                                           : py._PyThreadState_UncheckedGet;
    __atomic_fetch_add(&forks, !forking, __ATOMIC_SEQ_CST);
    forking = 1;
    quiesce_wait(&making, &ms);
    if (!quiesce_idle(&inside) && !visits && patience > 0 && capi_usable()) {
        void *thread = current ? current() : NULL;
        has_gil = thread && thread == py.PyGILState_GetThisThreadState();
        if (!has_gil || !is_os_fork()) {
            thread = has_gil ? py.PyEval_SaveThread() : NULL;
            quiesce_wait(&inside, &patience);
            if (thread)
                py.PyEval_RestoreThread(thread);
        }
    }
    errno = saved;
}

static void after_fork(void) {
    __atomic_fetch_sub(&forks, forking, __ATOMIC_SEQ_CST);
    forking = 0;
}

/*
 * Handlers that run before a fork run in reverse order of registration. Ours must wait for a visit to end before a library's handler takes a lock that the
 * evaluated code, which holds the GIL, may wait for. So ours is registered again when libraries were loaded since and, as they may register theirs later, at
 * the 1st, 2nd, 4th, 8th ... visit. None is ever unregistered: glibc does that with exit()'s lock held, and a child that is forked meanwhile could never exit.
 */
static void be_first(void) {
    static uint32_t visited, made;
    static uint64_t loaded;
    uint64_t was = loaded;
    loaded = loaded_fingerprint(NULL);
    if (made < HANDLERS && (loaded != was || !(visited & (visited + 1))))
        made += !pthread_atfork(before_fork, NULL, NULL);
    visited++;
}

/* PyThreadState_New() takes a lock of CPython's without holding the GIL. Until 3.11 the child of os.fork() takes this lock before CPython initialises it again,
 * and would hang if a thread of ours held it at the fork: so no fork begins meanwhile. Returns 1 if a state was made, which must be released once more. */
static int come_in(void) {
    void *(*volatile first)(size_t) = malloc; /* a thread's first one takes system calls: */
    free(first(1));                           /* Python must not end between check and entry */
    while (quiesce_enter(&making, &forks))
        quiesce_leave(&making), sys_sleep(SYS_MS);
    int makes = py.version < 0x030c0000 && py.PyInterpreterState_Main;
    __atomic_fetch_add(&inside, 1, __ATOMIC_SEQ_CST);
    makes = makes && capi_usable() && py.PyThreadState_New(py.PyInterpreterState_Main());
    quiesce_leave(&making);
    visits = 1, patience = PATIENCE_MS;
    return makes;
}

static int find(void (*fn)(void *), const void *arg) {
    for (unsigned i = 0; i < queue.n; i++)
        if (queue.work[i].fn == fn && queue.work[i].arg == arg)
            return (int)i;
    return -1;
}

static struct work take(unsigned i) {
    struct work w = queue.work[i];
    memmove(&queue.work[i], &queue.work[i + 1], (--queue.n - i) * sizeof *queue.work);
    return w;
}

static void *visit(void *unused);

/* Starts a thread for the queued work, unless one waits already. The caller holds the lock. */
static int send_thread(void) {
    int err = queue.n && !queue.waits ? thread_spawn(NULL, "probing-gil", 0, visit, NULL) : 0;
    queue.waits |= queue.n && !err;
    return err;
}

static void end(const struct work *w) {
    if (w->fn && w->end)
        w->end(w->arg);
}

struct visit {
    struct work work;
    int arrived;
};

/* Also runs when CPython, while it finalises, ends the thread by pthread_exit(). */
static void leave(void *visit) {
    struct visit *v = visit;
    quiesce_leave(&inside);
    end(&v->work);
    while (!v->arrived) { /* this thread never got the GIL, and no other will */
        struct work next = {.fn = NULL};
        pthread_mutex_lock(&lock);
        if (queue.n)
            next = take(0);
        queue.waits = next.fn != NULL;
        pthread_mutex_unlock(&lock);
        if (!next.fn)
            break;
        end(&next);
    }
}

/*
 * In a forked child of 3.8 os.fork() creates the GIL and the thread states anew, after our fork handler has run and before it returns. A thread of ours
 * that asks for the GIL meanwhile waits for the old GIL, and the program hangs. The last thing that os.fork() replaces is a lock: once CPython's
 * pointer to that lock has changed since the fork, the GIL may be asked for. A pending call would tell us, too, but while atexit functions
 * run Py_AddPendingCall() of 3.8 prints an error, which crashes in a thread without the GIL.
 */
static void *const *renewed; /* where CPython's pointer to that lock is; NULL: not 3.8 */
static void *of_parent; /* in a child: that pointer's value at the fork; NULL: no need to wait */

void gil_open(void) {
    static int installed;
    struct agent_python found;
    if (!__atomic_exchange_n(&installed, 1, __ATOMIC_RELAXED))
        pthread_atfork(before_fork, after_fork, NULL);
    if (renewed || (capi_loaded() && py.version >> 16 != 0x0308))
        return;
    /* Python may not be initialised yet; then it has not forked either. */
    if (agent_python_find(&found, 1) == 0 && found.found.target.version >> 16 == 0x0308)
        renewed = capi_at((void *)(uintptr_t)found.found.target.runtime, CAPI_XID_MUTEX_3_8);
}

static int begin_threads(void *unused UNUSED) {
    py.PyEval_InitThreads();
    return 0;
}

/*
 * Before 3.7 there is no GIL until the first thread is started. A foreign thread that creates the GIL does so while the main thread runs, or
 * returns from a system call: one of 60 evals in a program that sleeps again and again killed that program ("take_gil: NULL tstate"). So the
 * main thread creates it. A main thread that does not get to that, because it sleeps for longer, does no harm.
 */
static void wait_for_main(void) {
    void *old = of_parent;
    for (int ms = 0; old && __atomic_load_n(renewed, __ATOMIC_ACQUIRE) == old && ms < RENEWED_MS;
         ms++)
        sys_sleep(SYS_MS); /* lasts all of RENEWED_MS only where C code called fork() */
    of_parent = NULL;
    if (py.version >> 16 == 0x0306 && capi_usable() && !py.PyEval_ThreadsInitialized() &&
        py.Py_AddPendingCall(begin_threads, NULL) == 0)
        for (int ms = 0; ms < MAIN_MS && !py.PyEval_ThreadsInitialized(); ms++)
            sys_sleep(SYS_MS);
}

/*
 * Turns off tracing for this thread. From 3.12 on a profiler is told what all threads do, and the program's profiler would count our work (cProfile
 * mixes threads up). And inside a pending call CPython runs no other pending call; one that is queued meanwhile keeps the eval_breaker set. 3.11 then
 * never gets past the entry of a Python function that is traced or profiled (by the program, or by variables.c): it checks the breaker, finds
 * nothing that it may do, and checks again, for ever.
 */
static void *stop_tracing(int here) {
    here = here && py.PyThreadState_EnterTracing && py.PyThreadState_Get;
    void *thread = here ? py.PyThreadState_Get() : NULL;
    if (thread)
        py.PyThreadState_EnterTracing(thread);
    return thread;
}

static void *visit(void *unused UNUSED) {
    struct visit v = {.arrived = 0};
    wait_for_main();
    be_first();
    int made = come_in();
    pthread_cleanup_push(leave, &v);
    if (capi_usable()) { /* checked as late as possible: PyGILState_Ensure() crashes once Python has ended */
        int gil = py.PyGILState_Ensure();
        stop_tracing(py.version >= 0x030c0000);
        pthread_mutex_lock(&lock);
        v.arrived = 1;
        queue.waits = 0;
        if (queue.n)
            v.work = take(0);
        send_thread();
        pthread_mutex_unlock(&lock);
        if (v.work.fn)
            v.work.fn(v.work.arg);
        if (made)
            py.PyGILState_Release(0); /* PyGILState_LOCKED: the GIL is kept */
        py.PyGILState_Release(gil);
    }
    pthread_cleanup_pop(1);
    return NULL;
}

int gil_ask(void (*fn)(void *), void *arg, void (*at_end)(void *)) {
    gil_open(); /* not called yet in a process that only answers requests and records nothing */
    pthread_mutex_lock(&lock);
    int err = find(fn, arg) >= 0 ? -EALREADY : queue.n == MOST ? -EBUSY : 0;
    if (!err) {
        queue.work[queue.n++] = (struct work){fn, arg, at_end};
        err = send_thread();
        if (err)
            queue.n--;
    }
    pthread_mutex_unlock(&lock);
    return err;
}

int gil_take_back(void (*fn)(void *), void *arg) {
    pthread_mutex_lock(&lock);
    int i = find(fn, arg);
    if (i >= 0)
        take((unsigned)i);
    pthread_mutex_unlock(&lock);
    return i >= 0;
}

/* ---- in the main thread ---- */

static struct {
    uint32_t queued; /* (a) CPython has our call in its queue */
    uint64_t since;  /* (a) ns; when it was queued, or a thread of ours was asked to do its work */
    void (*works[WORKS])(void); /* (a) the functions that it is to run */
} pending;

static void run_works(void *unused UNUSED) {
    struct capi_state state;
    capi_enter(&state);
    void *untraced = stop_tracing(py.version >> 16 == 0x030b);
    for (unsigned i = 0; i < WORKS; i++) {
        void (*work)(void) = __atomic_exchange_n(&pending.works[i], NULL, __ATOMIC_ACQ_REL);
        if (!work)
            continue;
        work();
        py.PyErr_Clear();
    }
    if (untraced)
        py.PyThreadState_LeaveTracing(untraced);
    capi_leave(&state);
}

static int has_works(void) {
    for (unsigned i = 0; i < WORKS; i++)
        if (__atomic_load_n(&pending.works[i], __ATOMIC_SEQ_CST))
            return 1;
    return 0;
}

/* Puts our call into CPython's queue unless it is there already. Returns 0; else the call could not be queued now. */
static int queue_call(int (*call)(void *)) {
    if (__atomic_exchange_n(&pending.queued, 1, __ATOMIC_SEQ_CST))
        return 0;
    __atomic_store_n(&pending.since, sys_now(), __ATOMIC_RELAXED);
    int rc =
        quiesce_enter(&inside, &forks) ? -1 : py.Py_AddPendingCall(call, NULL); /* takes a lock */
    quiesce_leave(&inside);
    if (rc)
        __atomic_store_n(&pending.queued, 0, __ATOMIC_SEQ_CST);
    return rc;
}

/* `queued` stays set until all work is done: a second call that is queued meanwhile would have to wait for this one (stop_tracing()). */
static int on_main_thread(void *unused) {
    run_works(unused);
    __atomic_store_n(&pending.queued, 0, __ATOMIC_SEQ_CST);
    if (has_works())
        queue_call(on_main_thread);
    return 0;
}

int gil_pending(void (*work)(void)) {
    unsigned place = 0;
    if (!capi_usable()) /* without an interpreter Py_AddPendingCall() would follow a null pointer */
        return -EAGAIN;
    while (place < WORKS && __atomic_load_n(&pending.works[place], __ATOMIC_SEQ_CST) != work)
        place++;
    for (unsigned i = 0; place == WORKS && i < WORKS; i++) /* other threads look for places, too */
        if (!sys_swap(&pending.works[i], NULL, work))
            place = i;
    if (place == WORKS)
        return -ENOSPC;
    /* While 3.8 finalises, Py_AddPendingCall() prints an error, for which it needs the GIL; we may not hold it. */
    int thread = py.version >> 16 == 0x0308, rc = 0;
    if (!thread && !__atomic_load_n(&pending.queued, __ATOMIC_SEQ_CST)) {
        rc = queue_call(on_main_thread);
    } else if (thread ||
               sys_now() - __atomic_load_n(&pending.since, __ATOMIC_RELAXED) > PATIENCE_NS) {
        __atomic_store_n(&pending.since, sys_now(), __ATOMIC_RELAXED);
        rc = gil_ask(run_works, NULL, NULL);
    }
    return rc && rc != -EALREADY ? -EAGAIN : 0;
}

void gil_after_fork(void) {
    pthread_mutex_init(&lock, NULL);
    memset(&queue, 0, sizeof queue);
    memset(&pending, 0, sizeof pending);
    forks = making = forking = 0;
    inside = visits;
    of_parent = renewed ? *renewed : NULL;
}
