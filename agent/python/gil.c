/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/gil.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "agent/core/threads.h"
#include "agent/python/capi.h"

#define MOST 16

struct work {
    void (*fn)(void *), *arg, (*end)(void *);
};

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* for a few instructions; never with the GIL asked for */
static struct work queue[MOST];
static unsigned queued;
static int waits; /* a thread is on its way to the GIL */

static int find(void (*fn)(void *), const void *arg) {
    for (unsigned i = 0; i < queued; i++)
        if (queue[i].fn == fn && queue[i].arg == arg)
            return (int)i;
    return -1;
}

static struct work take(unsigned i) {
    struct work w = queue[i];
    memmove(&queue[i], &queue[i + 1], (--queued - i) * sizeof *queue);
    return w;
}

static void *visit(void *unused);

/* A thread for what is queued; the lock is held. */
static int send_thread(void) {
    int err = queued && !waits ? thread_spawn(NULL, "probing-gil", 0, visit, NULL) : 0;
    waits |= queued && !err;
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

/* Runs also when CPython, on its way down, ends the thread by pthread_exit(). */
static void leave(void *visit) {
    struct visit *v = visit;
    end(&v->work);
    while (!v->arrived) { /* nobody will */
        struct work next = {.fn = NULL};
        pthread_mutex_lock(&lock);
        if (queued)
            next = take(0);
        waits = next.fn != NULL;
        pthread_mutex_unlock(&lock);
        if (!next.fn)
            break;
        end(&next);
    }
}

static void *visit(void *unused) {
    struct visit v = {.arrived = 0};
    (void)unused;
    pthread_cleanup_push(leave, &v);
    if (capi_usable()) {
        int gil = py.PyGILState_Ensure();
        pthread_mutex_lock(&lock);
        v.arrived = 1;
        waits = 0;
        if (queued)
            v.work = take(0);
        send_thread();
        pthread_mutex_unlock(&lock);
        if (v.work.fn)
            v.work.fn(v.work.arg);
        py.PyGILState_Release(gil);
    }
    pthread_cleanup_pop(1);
    return NULL;
}

int gil_ask(void (*fn)(void *), void *arg, void (*at_end)(void *)) {
    int err;
    pthread_mutex_lock(&lock);
    err = find(fn, arg) >= 0 ? -EALREADY : queued == MOST ? -EBUSY : 0;
    if (!err) {
        queue[queued++] = (struct work){fn, arg, at_end};
        err = send_thread();
        if (err)
            queued--;
    }
    pthread_mutex_unlock(&lock);
    return err;
}

int gil_take_back(void (*fn)(void *), void *arg) {
    int i;
    pthread_mutex_lock(&lock);
    i = find(fn, arg);
    if (i >= 0)
        take((unsigned)i);
    pthread_mutex_unlock(&lock);
    return i >= 0;
}

void gil_after_fork(void) {
    pthread_mutex_init(&lock, NULL);
    queued = 0;
    waits = 0;
}
