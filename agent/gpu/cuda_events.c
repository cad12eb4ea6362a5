/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/gpu/cuda_events.h"

#include "agent/core/producer.h"
#include "agent/gpu/cuda_api.h"

#define TRIES   32u /* places that are tried for a free pair */
#define PASSES  32u
#define DEVICES 16u
#define MASK    (EVENTS_PAIRS - 1)

struct events_counts events_counts;
int32_t events_error;

static uint32_t made_all; /* (a) pairs of all threads */
static char gone[1];      /* its address stands for a context that was destroyed */

/* Events at the ends of backward passes, for each device: a thread of autograd's engine learns only at the next pass that one is over. */
static struct pass {
    uint32_t number; /* (a) number of the pass; 0: being written */
    void *context, *event;
} passes[DEVICES][PASSES];

static void count(uint64_t *what) {
    __atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

/* Handles an error of the driver. pairs: the context concerned, or NULL. */
static void refused(struct events_context *pairs, int rc) {
    if (rc >= CUDA_CAPTURE_FIRST && rc <= CUDA_CAPTURE_LAST) {
        count(&events_counts.captured);
    } else if (rc == CUDA_INVALID_CONTEXT || rc == CUDA_INVALID_HANDLE ||
               rc == CUDA_CONTEXT_IS_DESTROYED) {
        if (pairs)
            __atomic_store_n(&pairs->context, gone, __ATOMIC_RELEASE);
    } else if (rc != CUDA_OUT_OF_MEMORY) {
        sys_swap(&events_error, 0, rc);
    }
}

static int checked(struct events_context *pairs, int rc) {
    if (rc)
        refused(pairs, rc);
    return rc ? -EIO : 0;
}

/* Switches to the mode in which a capture of another stream does not forbid this thread to query or create events. Returns the former mode, or -1. */
static int relaxed_mode(void) {
    int mode = CUDA_CAPTURE_RELAXED;
    return cuda.ThreadExchangeStreamCaptureMode(&mode) ? -1 : mode;
}

static void former_mode(int mode) {
    if (mode >= 0)
        cuda.ThreadExchangeStreamCaptureMode(&mode);
}

/* ---- contexts and streams ---- */

static struct events_context *context_of(struct cuda_thread *c, const void *context) {
    uint32_t n = __atomic_load_n(&c->ncontexts, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < n; i++)
        if (__atomic_load_n(&c->contexts[i].context, __ATOMIC_RELAXED) == context)
            return &c->contexts[i];
    return NULL;
}

/* Returns the pairs of the context that is current on this thread; NULL when there are none. */
static struct events_context *context_here(struct cuda_thread *c) {
    void *context = NULL;
    int device = -1;
    if (events_error || checked(NULL, cuda.CtxGetCurrent(&context)) || !context)
        return NULL;
    struct events_context *pairs = context_of(c, context);
    if (pairs || c->ncontexts == EVENTS_CONTEXTS)
        return pairs;
    if (cuda.CtxGetDevice(&device) || device < 0 || device > INT8_MAX)
        return NULL;
    pairs = &c->contexts[c->ncontexts];
    pairs->device = device;
    pairs->context = context;
    __atomic_store_n(&c->ncontexts, c->ncontexts + 1, __ATOMIC_RELEASE);
    return pairs;
}

int events_mark(struct events_context *pairs, void *event, void *stream) {
    int capturing = 0, rc = cuda.StreamIsCapturing(stream, &capturing);
    if (rc)
        return checked(pairs, rc);
    if (capturing) {
        count(&events_counts.captured);
        return -EBUSY;
    }
    int mode = relaxed_mode();
    rc = cuda.EventRecord(event, stream);
    former_mode(mode);
    return checked(pairs, rc);
}

/* Records an event in the current stream. The default stream is NULL, and cannot be used while certain others are captured: that is
 * an error here, without further effect. */
static int record(struct events_context *pairs, void *event) {
    struct cuda_stream s = cuda.current_stream((int8_t)pairs->device);
    return events_mark(pairs, event, cuda.stream(&s));
}

/* ---- pairs ---- */

int events_create(struct events_context *pairs, void **event) {
    int mode = relaxed_mode(), rc = cuda.EventCreate(event, 0);
    former_mode(mode);
    *event = rc ? NULL : *event;
    return checked(pairs, rc);
}

/* Returns the next free pair: pairs that were used longest ago come first. */
static struct events_pair *take(struct events_context *pairs) {
    struct events_pair *p;
    for (uint32_t k = 0; k < TRIES && k < pairs->made; k++) {
        p = &pairs->pair[pairs->hint++ % pairs->made];
        if (!__atomic_load_n(&p->used, __ATOMIC_ACQUIRE))
            return p;
    }
    if (pairs->made == EVENTS_PAIRS) {
        count(&events_counts.full);
        return NULL;
    }
    p = &pairs->pair[pairs->made];
    if (__atomic_fetch_add(&made_all, 1, __ATOMIC_RELAXED) >= EVENTS_ALL)
        count(&events_counts.full);
    else if (!events_create(pairs, &p->start) && !events_create(pairs, &p->end))
        return &pairs->pair[pairs->made++];
    __atomic_fetch_sub(&made_all, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void let_go(struct events_pair *p) {
    p->pass = 0;
    __atomic_store_n(&p->used, 0, __ATOMIC_RELEASE);
}

/* A handle h is: index of the context << 16 | (index of the pair + 1). */
static struct events_context *context_by(struct cuda_thread *c, uint32_t h) {
    return &c->contexts[h >> 16];
}
static struct events_pair *pair_by(struct cuda_thread *c, uint32_t h) {
    return &context_by(c, h)->pair[(h & 0xffff) - 1];
}

uint32_t events_begin(struct cuda_thread *c, const struct events_what *what) {
    struct events_context *pairs = context_here(c);
    struct events_pair *p = pairs ? take(pairs) : NULL;
    if (!p || record(pairs, p->start))
        return 0;
    p->what = *what;
    p->pass = 0;
    __atomic_store_n(&p->used, 1, __ATOMIC_RELAXED);
    return (uint32_t)(pairs - c->contexts) << 16 | (uint32_t)(p - pairs->pair + 1);
}

static void enqueue(struct events_context *pairs, const struct events_pair *p) {
    uint32_t tail = pairs->tail; /* never full: the queue has a place for each pair */
    pairs->queue[tail & MASK] = (uint16_t)(p - pairs->pair);
    __atomic_store_n(&pairs->tail, tail + 1, __ATOMIC_RELEASE);
}

void events_end(struct cuda_thread *c, uint32_t h) {
    struct events_context *pairs = context_by(c, h);
    struct events_pair *p = pair_by(c, h);
    int here = context_here(c) == pairs;
    if (!here)
        count(&events_counts.elsewhere);
    if (here && !record(pairs, p->end))
        enqueue(pairs, p);
    else
        let_go(p);
}

void events_end_at_pass(struct cuda_thread *c, uint32_t h, uint32_t pass) {
    struct events_context *pairs = context_by(c, h);
    struct events_pair *p = pair_by(c, h);
    if ((unsigned)pairs->device >= DEVICES ||
        __atomic_load_n(&passes[pairs->device][pass % PASSES].number, __ATOMIC_ACQUIRE) != pass) {
        count(&events_counts.elsewhere); /* its device is not the one the pass was called on */
        let_go(p);
    } else {
        p->pass = pass;
        enqueue(pairs, p);
    }
}

void events_drop(struct cuda_thread *c, uint32_t h) {
    let_go(pair_by(c, h));
}

struct events_what *events_what(struct cuda_thread *c, uint32_t h) {
    return &pair_by(c, h)->what;
}

void events_pass(struct cuda_thread *c, uint32_t pass) {
    struct events_context *pairs = context_here(c);
    if (!pairs || (unsigned)pairs->device >= DEVICES)
        return;
    struct pass *e = &passes[pairs->device][pass % PASSES];
    if (e->event && e->context != pairs->context)
        return; /* the event belongs to a context that was destroyed */
    __atomic_store_n(&e->number, 0, __ATOMIC_RELEASE);
    if (!e->event && events_create(pairs, &e->event))
        return;
    e->context = pairs->context;
    if (!record(pairs, e->event))
        __atomic_store_n(&e->number, pass, __ATOMIC_RELEASE);
}

/* ---- reading ---- */

/* Writes the record of a pair. Returns 0 when the thread's ring is too full now. */
static int write_record(const struct events_pair *p, int device, float ms) {
    struct producer *to = producer_enter();
    if (!to)
        return 1;
    int fits = ring_used(to->ring) <= to->ring->size / 4 * 3;
    if (fits && !WRITER_PUT(to->ring, torch_cuda, .ts = p->what.ts, .tid = p->what.tid,
                            .call = p->what.call, .stage = p->what.stage, .device = device,
                            .duration = ms > 0 ? (uint64_t)((double)ms * 1e6 + 0.5) : 0))
        count(&events_counts.read);
    producer_leave(to);
    return fits;
}

/* Reads a pair. Returns 1 when it is not needed any more; 0 when it has not ended yet, or could not be written. */
static int read_one(struct events_context *pairs, struct events_pair *p) {
    struct pass *e = NULL;
    void *end = p->end;
    float ms = 0;
    if (p->pass) {
        e = &passes[pairs->device][p->pass % PASSES];
        if (__atomic_load_n(&e->number, __ATOMIC_ACQUIRE) != p->pass) {
            count(&events_counts.elsewhere); /* reused: the GPU is far behind */
            return 1;
        }
        end = e->event;
    }
    int rc = cuda.EventQuery(end);
    if (!rc)
        rc = cuda.EventElapsedTime(&ms, p->start, end);
    if (rc == CUDA_NOT_READY)
        return 0;
    if (rc) {
        refused(pairs, rc);
        return !(rc >= CUDA_CAPTURE_FIRST && rc <= CUDA_CAPTURE_LAST);
    }
    if (e && __atomic_load_n(&e->number, __ATOMIC_ACQUIRE) != p->pass)
        return 1; /* the event was reused meanwhile */
    return write_record(p, pairs->device, ms);
}

unsigned events_read(struct cuda_thread *c, unsigned most) {
    void *context = NULL;
    struct events_context *pairs;
    unsigned n = 0;
    if (events_error || cuda.CtxGetCurrent(&context) || !context ||
        !(pairs = context_of(c, context)))
        return 0;
    if (__atomic_exchange_n(&c->reading, 1, __ATOMIC_ACQUIRE))
        return 0;
    uint32_t head = pairs->head, tail = __atomic_load_n(&pairs->tail, __ATOMIC_ACQUIRE);
    int mode = head != tail && most ? relaxed_mode() : -1;
    while (head != tail && n < most) {
        struct events_pair *p = &pairs->pair[pairs->queue[head & MASK]];
        if (!read_one(pairs, p))
            break;
        let_go(p);
        __atomic_store_n(&pairs->head, ++head, __ATOMIC_RELEASE);
        n++;
    }
    former_mode(mode);
    __atomic_store_n(&c->reading, 0, __ATOMIC_RELEASE);
    return n;
}

unsigned events_waiting(const struct cuda_thread *c) {
    uint32_t n = __atomic_load_n(&c->ncontexts, __ATOMIC_ACQUIRE), sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (__atomic_load_n(&c->contexts[i].context, __ATOMIC_RELAXED) != gone)
            sum += __atomic_load_n(&c->contexts[i].tail, __ATOMIC_ACQUIRE) -
                   __atomic_load_n(&c->contexts[i].head, __ATOMIC_RELAXED);
    return sum;
}

int events_forget(struct cuda_thread *c, uint32_t generation) {
    if (__atomic_exchange_n(&c->reading, 1, __ATOMIC_ACQUIRE))
        return -EBUSY;
    for (struct events_context *pairs = c->contexts; pairs < c->contexts + c->ncontexts; pairs++) {
        __atomic_store_n(&pairs->head, pairs->tail, __ATOMIC_RELEASE);
        for (uint32_t k = 0; k < pairs->made; k++)
            let_go(&pairs->pair[k]);
    }
    memset(c->back, 0, sizeof c->back);
    c->step = 0;
    __atomic_store_n(&c->generation, generation, __ATOMIC_RELEASE);
    __atomic_store_n(&c->reading, 0, __ATOMIC_RELEASE);
    return 0;
}
