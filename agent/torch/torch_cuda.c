/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/torch_cuda.h"

#include "agent/core/meta.h"
#include "agent/core/producer.h"
#include "agent/python/capi.h"
#include "agent/python/gil.h"

_Static_assert(EVENTS_DEPTH >= TORCH_DEPTH, "each open interval has a place for its pair");

#define FIND_NS  1000000000u /* between searches for libcuda */
#define READ_NS  2000000u    /* between two readings of the events, at calls without a time */
#define SEEN_NS  1000000u    /* between searches for a context */
#define LEFT_NS  50000000u   /* events unread for so long are read by the main thread */
#define PAIR_NS  5000u /* first guesses of the cost of a pair of events, and of the statistics */
#define STATS_NS 15000u
#define WHY      160

uint32_t cuda_on, cuda_waits;

/* For the service thread only, except what is atomic. */
static struct {
    int found; /* 1: the functions are there; -1: they never will be */
    enum torch_amount times, memory;
    uint32_t context; /* (a) a thread had one: a forked child then leaves CUDA alone */
    uint32_t refused; /* (a) torch lacks the memory statistics */
    unsigned noted, noted_memory, noted_error;
    uint64_t next_find;
} g;
static uint32_t all; /* (a) which of CUDA_TIMES, CUDA_MEMORY have no limit */

static int is_on(uint32_t what) {
    return (__atomic_load_n(&cuda_on, __ATOMIC_RELAXED) & what) != 0;
}

/* ---- threads ---- */

/* This thread's struct, made ready for this recording; NULL: no memory, or a thread still reads what the last recording left. */
static struct cuda_thread *mine(struct torch_thread *l) {
    struct cuda_thread *c = l->cuda;
    if (__builtin_expect(c && c->generation == l->generation, 1))
        return c;
    if (!c && !(c = sys_pages(sizeof *c)))
        return NULL;
    if (events_forget(c, l->generation))
        return NULL;
    limit_start(&c->times, PAIR_NS, l->tid);
    limit_start(&c->memory, STATS_NS, l->tid + 1);
    __atomic_store_n(&l->cuda, c, __ATOMIC_RELEASE);
    return c;
}

/* The driver reported an error: the program is ending, or has crashed its GPU. Turns off what can no longer be recorded. */
static void give_up(void) {
    uint32_t left = events_error == CUDA_DEINITIALIZED ? 0 : CUDA_MEMORY;
    __atomic_fetch_and(&cuda_on, left, __ATOMIC_RELAXED);
}

void cuda_look(uint64_t now) {
    static uint64_t next; /* under the GIL */
    void *context = NULL;
    if (now < next)
        return;
    next = now + SEEN_NS;
    if (!cuda_memory_initialised() || cuda.CtxGetCurrent(&context) || !context)
        return;
    __atomic_store_n(&g.context, 1, __ATOMIC_RELEASE);
    if (cuda_memory_find())
        __atomic_store_n(&g.refused, 1, __ATOMIC_RELAXED);
    uint32_t bits = __atomic_exchange_n(&cuda_waits, 0, __ATOMIC_ACQ_REL);
    if (g.refused)
        bits &= ~(uint32_t)CUDA_MEMORY;
    __atomic_store_n(&cuda_on, bits, __ATOMIC_RELEASE);
}

/* ---- times ---- */

uint32_t cuda_begin(struct torch_thread *l, enum events_stage stage, uint32_t call, uint32_t name) {
    struct cuda_thread *c = is_on(CUDA_TIMES) && l->fields ? mine(l) : NULL;
    struct events_what what = {l->last, call, l->tid, (uint8_t)stage};
    if (!c)
        return 0;
    struct limit_name *n = stage == STAGE_FORWARD ? c->forward : c->backward;
    if (!(all & CUDA_TIMES) && !limit_due(&c->times, &n[name & (EVENTS_NAMES - 1)], l->last))
        return 0;
    uint64_t from = torch_thread_clock(l);
    uint32_t pair = events_begin(c, &what);
    limit_spent(&c->times, torch_thread_clock(l) - from);
    return pair;
}

void cuda_end(struct torch_thread *l, uint32_t pair) {
    struct cuda_thread *c = l->cuda;
    if (!c || (!pair && (!is_on(CUDA_TIMES) || l->last - c->read_at < READ_NS ||
                         c->generation != l->generation || !events_waiting(c))))
        return;
    uint64_t from = torch_thread_clock(l);
    if (pair)
        events_end(c, pair);
    __atomic_store_n(&c->read_at, from, __ATOMIC_RELAXED);
    events_read(c, EVENTS_READ);
    limit_spent(&c->times, torch_thread_clock(l) - from);
    if (__builtin_expect(events_error != 0, 0))
        give_up();
}

void cuda_back_begin(struct torch_thread *l) {
    uint32_t at = l->depth - 1;
    const struct torch_thread_open *o = &l->open[at];
    uint32_t pair = cuda_begin(l, STAGE_BACKWARD, o->call, o->id);
    if (!l->cuda || l->cuda->generation != l->generation)
        return;
    if (l->cuda->back[at]) /* of an interval that was not ended by itself */
        events_drop(l->cuda, l->cuda->back[at]);
    l->cuda->back[at] = pair;
}

void cuda_back_end(struct torch_thread *l, uint32_t depth, uint32_t pass) {
    struct cuda_thread *c = l->cuda;
    uint32_t pair = c && c->generation == l->generation ? c->back[depth] : 0;
    if (!pair)
        return;
    c->back[depth] = 0;
    if (pass)
        events_end_at_pass(c, pair, pass);
    else
        cuda_end(l, pair);
}

void cuda_pass(struct torch_thread *l, uint32_t pass) {
    struct cuda_thread *c = is_on(CUDA_TIMES) ? mine(l) : NULL;
    if (!c || !pass)
        return;
    uint64_t from = torch_thread_clock(l);
    events_pass(c, pass);
    limit_spent(&c->times, torch_thread_clock(l) - from);
}

void cuda_step(struct torch_thread *l, uint64_t number, uint64_t begun, uint64_t ended) {
    struct cuda_thread *c = is_on(CUDA_TIMES) && l->fields ? mine(l) : NULL;
    struct events_what what = {ended, number, l->tid, STAGE_STEP};
    if (!c)
        return;
    uint64_t from = torch_thread_clock(l);
    if (c->step && c->step_begin == begun) {
        *events_what(c, c->step) = what;
        events_end(c, c->step);
        events_read(c, EVENTS_READ);
    } else if (c->step) { /* it began before something that was not seen */
        events_drop(c, c->step);
    }
    c->step = (all & CUDA_TIMES) || limit_rare(&c->times, l->last) ? events_begin(c, &what) : 0;
    c->step_begin = ended;
    limit_spent_rare(&c->times, torch_thread_clock(l) - from);
    if (__builtin_expect(events_error != 0, 0))
        give_up();
}

/* ---- memory ---- */

static void write_memory(const struct events_what *what, int device, const struct cuda_memory *m) {
    PRODUCER_EMIT(torch_memory, .ts = what->ts, .tid = what->tid, .call = what->call,
                  .stage = what->stage, .device = device, .allocated = m->allocated,
                  .max_allocated = m->peak, .reserved = m->reserved);
}

/* Reads the memory of the current device; without a context CUDA is asked nothing more, so that no context is created. */
static int read_memory(int *device, struct cuda_memory *m) {
    void *context = NULL;
    if (cuda.CtxGetCurrent(&context)) { /* the GPU has crashed, or the program is ending */
        __atomic_fetch_and(&cuda_on, CUDA_TIMES, __ATOMIC_RELAXED);
        return -ENODATA;
    }
    return !context || cuda.CtxGetDevice(device) ? -ENODATA : cuda_memory_read(*device, m);
}

void cuda_memory_call(struct torch_thread *l, uint32_t call, uint32_t name, uint64_t ts) {
    struct cuda_thread *c = is_on(CUDA_MEMORY) && l->fields ? mine(l) : NULL;
    struct events_what what = {ts, call, l->tid, STAGE_FORWARD};
    struct cuda_memory m;
    int device;
    if (!c || py.PyErr_Occurred() ||
        (!(all & CUDA_MEMORY) &&
         !limit_due(&c->memory, &c->memories[name & (EVENTS_NAMES - 1)], l->last)))
        return;
    uint64_t from = torch_thread_clock(l);
    if (!read_memory(&device, &m))
        write_memory(&what, device, &m);
    limit_spent(&c->memory, torch_thread_clock(l) - from);
}

int cuda_memory_step(const struct step *s, struct cuda_memory *m) {
    struct torch_thread *l = is_on(CUDA_MEMORY) ? torch_thread_here() : NULL;
    struct cuda_thread *c = l ? mine(l) : NULL;
    struct events_what what = {s->end, s->number, l ? l->tid : 0, STAGE_STEP};
    struct capi_state state;
    int device;
    if (!c || !capi_usable() || (!(all & CUDA_MEMORY) && !limit_rare(&c->memory, s->end)))
        return -ENODATA;
    uint64_t from = torch_thread_clock(l);
    capi_enter(&state);
    int err = read_memory(&device, m);
    capi_leave(&state);
    if (!err)
        write_memory(&what, device, m);
    limit_spent_rare(&c->memory, torch_thread_clock(l) - from);
    return err ? -ENODATA : 0;
}

/* ---- service thread ---- */

/* Runs in the main thread, between two bytecodes: reads the events that other threads, or it itself, have left unread. */
static void read_all(void) {
    struct torch_thread *l;
    uint64_t now = sys_now();
    if (!is_on(CUDA_TIMES))
        return;
    for (unsigned i = 0; (l = torch_thread_at(i)); i++) {
        struct cuda_thread *c = __atomic_load_n(&l->cuda, __ATOMIC_ACQUIRE);
        if (c && __atomic_load_n(&c->generation, __ATOMIC_ACQUIRE) == agent_word.torch &&
            events_waiting(c)) {
            __atomic_store_n(&c->read_at, now, __ATOMIC_RELAXED);
            events_read(c, EVENTS_PAIRS / 2);
        }
    }
}

/* Whether pairs of events wait to be read; *old: whether one has waited so long that the main thread must be asked. */
static int has_waiting(uint64_t now, int *old) {
    const struct torch_thread *l;
    int some = 0;
    for (unsigned i = 0; (l = torch_thread_at(i)); i++) {
        const struct cuda_thread *c = __atomic_load_n(&l->cuda, __ATOMIC_ACQUIRE);
        if (!c || __atomic_load_n(&c->generation, __ATOMIC_ACQUIRE) != agent_word.torch ||
            !events_waiting(c))
            continue;
        some = 1;
        uint64_t read_at = __atomic_load_n(&c->read_at, __ATOMIC_RELAXED);
        *old |= now > read_at && now - read_at > LEFT_NS;
    }
    return some;
}

static void find(struct writer *w, uint64_t now) {
    char why[WHY];
    if (now < g.next_find)
        return;
    g.next_find = now + FIND_NS;
    int err = cuda_api_load(why, sizeof why);
    g.found = !err ? 1 : err == -ENOENT ? 0 : -1;
    if (why[0])
        meta_note(w, 1, "cuda", "%s", why);
}

static void say(struct writer *w) {
    int32_t error = __atomic_load_n(&events_error, __ATOMIC_RELAXED);
    if (error && error != CUDA_DEINITIALIZED && !g.noted_error++)
        meta_note(w, 1, "cuda", "no GPU times any more: the CUDA driver says error %d", error);
    if (__atomic_load_n(&g.refused, __ATOMIC_RELAXED) && g.memory && !g.noted_memory++)
        meta_note(w, 1, "cuda", "no GPU memory: this torch has no _cuda_memoryStats");
}

/* What is to be recorded has changed, or may begin. */
static void apply(void) {
    uint32_t bits =
        (g.times && cuda.current_stream ? CUDA_TIMES : 0) | (g.memory ? CUDA_MEMORY : 0);
    __atomic_store_n(
        &all, (g.times == TORCH_ALL ? CUDA_TIMES : 0) | (g.memory == TORCH_ALL ? CUDA_MEMORY : 0),
        __ATOMIC_RELAXED);
    if (!bits || g.found != 1) {
        __atomic_store_n(&cuda_waits, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&cuda_on, 0, __ATOMIC_RELEASE);
    } else if (cuda_on != bits) {
        __atomic_store_n(&cuda_waits, bits, __ATOMIC_RELEASE); /* cuda_look() puts it in force */
    }
}

void cuda_open(void) {
    memset(&events_counts, 0, sizeof events_counts);
    g.noted = g.noted_memory = g.noted_error = 0;
    g.next_find = 0;
}

void cuda_setting(enum torch_amount times, enum torch_amount memory) {
    g.times = times;
    g.memory = memory;
    if (g.found == 1)
        apply();
}

uint64_t cuda_round(struct writer *w, uint64_t now) {
    int old = 0;
    if (!g.found)
        find(w, now);
    if (g.found != 1)
        return 0;
    if (!g.noted++) /* of this recording */
        apply();
    if (!__atomic_load_n(&g.context, __ATOMIC_ACQUIRE))
        return 0;
    say(w);
    if (!is_on(CUDA_TIMES) || !has_waiting(now, &old))
        return 0;
    if (old)
        gil_pending(read_all);
    return LEFT_NS;
}

void cuda_close(struct writer *w) {
    const struct torch_thread *l;
    uint64_t left = 0;
    int was = is_on(CUDA_TIMES);
    __atomic_store_n(&cuda_waits, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&cuda_on, 0, __ATOMIC_RELEASE);
    for (unsigned i = 0; (l = torch_thread_at(i)); i++)
        left += l->cuda && l->cuda->generation == l->generation ? events_waiting(l->cuda) : 0;
    if (w && g.noted)
        say(w); /* what has come since the last round */
    if (w && (was || events_counts.read))
        meta_note(
            w, events_counts.full != 0, "cuda",
            "GPU times: %lu read; not taken or not read: %lu for want of events, %lu while a graph was captured, %lu "
            "that ended under another context, %lu at the end",
            events_counts.read, events_counts.full, events_counts.captured, events_counts.elsewhere,
            left);
    g.noted = 0;
}

void cuda_after_fork(void) {
    cuda_on = cuda_waits = 0;
    g.noted = 0;
    if (g.context)
        g.found = -1;
}
