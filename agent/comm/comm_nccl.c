/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_nccl.c - finds when the GPU begins NCCL's operations and when it has finished them: by a CUDA event in the stream before the
 * operation, and one after it. The call of the backend itself only enqueues the operation.
 *
 * NCCL's functions (ncclAllReduce() and so on; their C interface is stable) are wrapped by ours: the entries in libtorch_cuda's GOT are overwritten. NCCL
 * starts a group's operations when its outermost ncclGroupEnd() returns, so the second event is recorded after that. A thread of the agent queries the events,
 * because the program's threads are often blocked in the driver, above all when something hangs. To convert the GPU's times to our clock, that thread now and
 * then records an event (the anchor) in a stream of its own and waits for it. The thread lives as long as the recording.
 */
#include <dlfcn.h>

#include "agent/base/loaded.h"
#include "agent/comm/comm.h"
#include "agent/core/meta.h"
#include "agent/core/threads.h"
#include "agent/gpu/cuda_api.h"
#include "agent/gpu/cuda_events.h"

#define POLL_NS   10000000u  /* between queries while an operation is in flight */
#define ANCHOR_NS SYS_SECOND /* between anchors: clocks drift; a float of ms is exact only so far */
#define CLOSE_NS  50000u     /* most time for a good anchor: it is as exact as it was quick */
#define LATE_NS   3000000u   /* an anchor that takes longer is not used */
#define TRIES     5          /* to get a good anchor; after that, any that is not late is used */
#define SETTLE_NS 200000000u /* wait for operations that are nearly done at the recording's end */
#define STACK     (256u << 10)
#define GROUPED   32 /* most operations that end when their group ends; others end early */
#define CONTEXTS  EVENTS_CONTEXTS

/* clang-format off */
#define CALLS(X) /* name; which argument the stream is, from 0 */ \
    X(AllReduce, 6) X(Bcast, 5) X(Broadcast, 6) X(Reduce, 7) X(AllGather, 5) X(ReduceScatter, 6) X(Send, 5) X(Recv, 5) \
    X(AlltoAll, 5) X(Gather, 6) X(Scatter, 6) X(GroupStart, -1) X(GroupEnd, -1) X(CommAbort, -1)
/* clang-format on */
#define NUMBER(name, stream) CALL_##name,
enum { CALLS(NUMBER) NCALLS };

/* As many arguments as any of the functions has: a function that has fewer never uses the rest. */
typedef uint64_t (*function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                             uint64_t);
static function originals[NCALLS];

enum { NOT, BEGUN, ENQUEUED }; /* comm_op.gpu */
enum state { IDLE, RUNS, ENDING };
static struct {
    uint32_t state;  /* (a) our thread's state; the program's threads record events while it RUNS */
    uint32_t asked;  /* (a) futex: rounds of the thread that were asked for */
    uint32_t asleep; /* (a) the thread sleeps, because nothing was in flight */
    uint32_t forked; /* in a forked child there is no CUDA */
    int found;       /* the libraries: 1: wrapped; 0: not loaded yet; -1: not to be wrapped */
} g;
static __thread struct {
    unsigned depth, n;
    struct comm_op *op[GROUPED];
} group;

/* ---- the program's threads ---- */

static void before(void *stream, uint64_t communicator) {
    struct comm_op *op = comm_wrap_current();
    void *context = NULL;
    if (!op || op->gpu || __atomic_load_n(&g.state, __ATOMIC_ACQUIRE) != RUNS ||
        cuda.CtxGetCurrent(&context) || !context || (op->context && op->context != context))
        return;
    op->context = context; /* the slot's events belong to this context for ever */
    if ((!op->start && events_create(NULL, &op->start)) ||
        (!op->end && events_create(NULL, &op->end)) || events_mark(NULL, op->start, stream))
        return;
    op->stream = stream;
    op->communicator = communicator;
    __atomic_fetch_add(&op->open, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&op->gpu, BEGUN, __ATOMIC_RELAXED);
}

/* Gives up an operation whose end will not be known. now: when it was aborted (ns), or 0. */
static void drop(struct comm_op *op, uint32_t from, uint64_t now) {
    if (sys_swap(&op->gpu, from, NOT) != from)
        return; /* the recording has ended meanwhile */
    op->flags |= now ? COMM_INCOMPLETE : COMM_UNSEEN;
    comm_release(op, now);
}

static void enqueued(struct comm_op *op) {
    if (events_mark(NULL, op->end, op->stream))
        drop(op, BEGUN, 0);
    else if (sys_swap(&op->gpu, BEGUN, ENQUEUED) == BEGUN &&
             __atomic_exchange_n(&g.asleep, 0, __ATOMIC_SEQ_CST))
        sys_kick(&g.asked);
}

static void behind(void) {
    struct comm_op *op = comm_wrap_current();
    if (!op || op->gpu != BEGUN || (group.n && group.op[group.n - 1] == op))
        return;
    if (group.depth && group.n < GROUPED)
        group.op[group.n++] = op;
    else
        enqueued(op);
}

/* Called before a communicator is aborted: its operations then end on the GPU as if they were complete, and the trace would not show who was waited for. */
static void given_up(uint64_t communicator) {
    struct comm_op *op;
    int mode = CUDA_CAPTURE_RELAXED;
    if (__atomic_load_n(&g.state, __ATOMIC_ACQUIRE) != RUNS ||
        cuda.ThreadExchangeStreamCaptureMode(&mode))
        return;
    for (unsigned i = 0; (op = comm_op_at(i)); i++)
        if (__atomic_load_n(&op->gpu, __ATOMIC_ACQUIRE) == ENQUEUED &&
            op->communicator == communicator && cuda.EventQuery(op->end) == CUDA_NOT_READY)
            drop(op, ENQUEUED, sys_now());
    cuda.ThreadExchangeStreamCaptureMode(&mode);
}

static uint64_t call(unsigned i, int stream, const uint64_t *a) {
    if (stream > 0) /* the communicator is the argument before it */
        before((void *)(uintptr_t)a[stream], a[stream - 1]);
    else if (i == CALL_CommAbort)
        given_up(a[0]);
    uint64_t rc = originals[i](a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
    if (stream > 0) {
        behind();
    } else if (i == CALL_GroupStart) {
        group.depth++;
    } else if (i == CALL_GroupEnd && group.depth && !--group.depth) {
        for (unsigned k = 0; k < group.n; k++)
            enqueued(group.op[k]);
        group.n = 0;
    }
    return rc;
}

#define WRAPPER(name, stream)                                                                      \
    static uint64_t wrapped_##name(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,     \
                                   uint64_t f, uint64_t h, uint64_t i) {                           \
        return call(CALL_##name, stream, (uint64_t[]){a, b, c, d, e, f, h, i});                    \
    }
CALLS(WRAPPER)
#define WRAPPED(name, stream) {"nccl" #name, wrapped_##name},

/* ---- our thread ---- */

/* A point in time of a context's GPU, known on our clock, too. */
static struct anchor {
    void *context, *event, *other, *stream; /* other: event for the next measurement */
    uint64_t ns, next;                      /* time of `event`, or 0: not known; of the next try */
} anchors[CONTEXTS];

/* Measures the anchor again. The last one stays if the GPU does not answer in time. */
static void measure(struct anchor *a) {
    for (int i = 0; i < TRIES; i++) {
        uint64_t from = sys_now(), took;
        int rc = cuda.EventRecord(a->other, a->stream);
        while (!rc && (rc = cuda.EventQuery(a->other)) == CUDA_NOT_READY &&
               sys_now() - from < LATE_NS)
            rc = 0;
        took = sys_now() - from;
        if (rc || (i + 1 < TRIES && took > CLOSE_NS))
            continue;
        void *was = a->event;
        a->event = a->other;
        a->other = was;
        a->ns = from + took / 2;
        break;
    }
    a->next = sys_now() + ANCHOR_NS;
}

static struct anchor *anchor_of(void *context) {
    static __thread void *current;
    struct anchor *a = anchors;
    int mode = CUDA_CAPTURE_RELAXED; /* our thread's: permitted while others capture a graph */
    if (current != context &&
        (cuda.ThreadExchangeStreamCaptureMode(&mode) || cuda.CtxSetCurrent(context)))
        return NULL;
    current = context;
    while (a < anchors + CONTEXTS && a->context && a->context != context)
        a++;
    if (a == anchors + CONTEXTS)
        return NULL;
    if (!a->context && (events_create(NULL, &a->event) || events_create(NULL, &a->other) ||
                        cuda.StreamCreate(&a->stream, CUDA_STREAM_NON_BLOCKING)))
        return NULL;
    a->context = context;
    if (sys_now() >= a->next)
        measure(a);
    return a->ns ? a : NULL;
}

/* Queries an operation. Returns 1 when it is over, or nothing more will be known about it. */
static int is_over(struct comm_op *op) {
    float ms = 0, since = 0;
    /* The call must have returned, too. */
    if (__atomic_load_n(&op->open, __ATOMIC_ACQUIRE) != 1)
        return 0;
    struct anchor *a = anchor_of(op->context);
    int rc = cuda.EventQuery(op->end);
    if (rc == CUDA_NOT_READY)
        return 0;
    if (rc || !a || cuda.EventElapsedTime(&ms, op->start, op->end) ||
        cuda.EventElapsedTime(&since, a->event, op->start)) {
        drop(op, ENQUEUED, 0);
        return 1;
    }
    if (sys_swap(&op->gpu, ENQUEUED, NOT) != ENQUEUED)
        return 1;
    uint64_t begin = a->ns + (uint64_t)(int64_t)((double)since * 1e6), now = sys_now();
    uint64_t end = begin + (uint64_t)((double)ms * 1e6);
    end = end < now ? end : now;
    op->enter = begin > op->enter && begin < end ? begin : op->enter;
    op->last = end > op->enter ? end : op->enter;
    comm_release(op, op->last);
    return 1;
}

/* Returns how many operations are not over. query: asks for each of them first, on our thread. */
static unsigned left_over(int query) {
    struct comm_op *op;
    unsigned left = 0;
    for (unsigned i = 0; (op = comm_op_at(i)); i++)
        if (__atomic_load_n(&op->gpu, __ATOMIC_SEQ_CST) == ENQUEUED)
            left += !query || !is_over(op);
    return left;
}

static void *run(void *unused UNUSED) {
    for (uint32_t asked = 0;; asked = __atomic_load_n(&g.asked, __ATOMIC_ACQUIRE)) {
        unsigned left = left_over(1);
        if (__atomic_load_n(&g.state, __ATOMIC_ACQUIRE) == ENDING || events_error)
            break;
        if (left) {
            sys_sleep(POLL_NS);
            continue;
        }
        __atomic_store_n(&g.asleep, 1, __ATOMIC_SEQ_CST);
        if (!left_over(1))
            sys_wait(&g.asked, asked, UINT64_MAX);
    }
    __atomic_store_n(&g.state, IDLE, __ATOMIC_RELEASE);
    return NULL;
}

/* ---- the service thread ---- */

/* Wraps NCCL's functions. Returns 1; 0: the libraries are not loaded yet; -1: NCCL is linked into torch's own library, or somebody else has wrapped it. */
static int install(void) {
    static const struct {
        const char *name;
        function to;
    } list[] = {CALLS(WRAPPED)};
    void *torch, *nccl, **place;
    int patched = 0;
    if (loaded_find("libtorch_cuda.so", &torch))
        return 0;
    if (loaded_find("libnccl.so", &nccl))
        return -1;
    for (unsigned i = 0; i < NCALLS; i++) {
        void *original = dlsym(nccl, list[i].name);
        if (!original || !(place = loaded_import(torch, list[i].name, original)))
            continue;
        originals[i] = original;
        patched += !loaded_patch(place, list[i].to);
    }
    dlerror(); /* clear our error, so that the program does not see it */
    return patched ? 1 : -1;
}

int comm_nccl_round(struct writer *w, uint64_t now) {
    static uint64_t next;
    char why[160];
    if (now < next)
        return g.found;
    next = now + SYS_SECOND;
    if (g.forked || g.found < 0 || events_error || __atomic_load_n(&g.state, __ATOMIC_ACQUIRE))
        return g.found;
    if (!g.found && (g.found = install()) < 0)
        meta_note(w, 1, "comm",
                  "NCCL's operations end with the call: NCCL is not a library of its own");
    if (g.found != 1 || cuda_api_load(why, sizeof why))
        return g.found;
    __atomic_store_n(&g.state, RUNS, __ATOMIC_RELEASE);
    if (thread_spawn(NULL, "probing-nccl", STACK, run, NULL)) {
        __atomic_store_n(&g.state, IDLE, __ATOMIC_RELEASE);
        g.found = -1;
    }
    return g.found;
}

void comm_nccl_quit(struct writer *w UNUSED, int stays UNUSED) {
    uint64_t until = sys_now() + SETTLE_NS;
    while (__atomic_load_n(&g.state, __ATOMIC_ACQUIRE) == RUNS && left_over(0) && sys_now() < until)
        sys_sleep(SYS_MS);
    if (sys_swap(&g.state, RUNS, ENDING) != RUNS)
        return;
    sys_kick(&g.asked);
    /* A thread that does not return from the driver stays ENDING: no other thread is started. */
    while (__atomic_load_n(&g.state, __ATOMIC_ACQUIRE) == ENDING && sys_now() < until + SETTLE_NS)
        sys_sleep(SYS_MS);
}

void comm_nccl_drop(struct comm_op *op) {
    drop(op, BEGUN, 0);
    drop(op, ENQUEUED, 0);
}

void comm_nccl_after_fork(void) {
    g.state = IDLE;
    g.forked = 1;
}
