/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/torch_thread.h"

#include <cpuid.h>
#include <pthread.h>

#include "agent/core/steps.h"

#define TORCH_THREADS 1024u
#define KEPT          32u /* structs of ended threads that are kept before one is used again */
#define TRIES         20
#define BRACKET_NS    2000u        /* two clocks read within that time count as read at once */
#define SETTLE_NS     20000000u    /* the counter's rate is measured over at least that */
#define AGAIN_NS      10000000000u /* and anew after that */

uint64_t torch_thread_tick;
__thread struct torch_thread *torch_thread_mine;
uint32_t torch_threads_unseen;

static struct torch_thread *threads[TORCH_THREADS]; /* (a) never freed */
static struct live *open_live;                      /* (a) */
static uint32_t generations;
static uint64_t
    early; /* (a) calls and marks in a forked child before its recording, + 1; 0: it has begun */
static pthread_key_t key;
static uint64_t anchor_ns, anchor_tsc, measured;

/* Reads both clocks at one time: a thread that lost its processor between the readings tries again. Returns 0 if all tries failed. */
static int both(uint64_t *ns, uint64_t *tsc) {
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = sys_now(), c = __rdtsc(), after = sys_now();
        if (after - before < BRACKET_NS) {
            *ns = before + (after - before) / 2;
            *tsc = c;
            return 1;
        }
    }
    return 0;
}

static void end_batch(struct torch_thread *l) {
    if (l->fields) {
        ring_trim(l->ring, l->fields, (size_t)(l->at - l->base));
        ring_commit(l->fields);
        if (ring_used(l->ring) > l->ring->size / 4)
            agent_wake(); /* a loop of tiny modules fills the ring in some ten ms */
    }
    l->fields = NULL;
    l->at = l->end = l->base = NULL;
}

/* Leaves the ring, which is drained and then free for another thread. */
static void leave_ring(struct torch_thread *l) {
    if (l->ring) {
        end_batch(l);
        live_ring_leave(l->ring);
    }
    l->ring = NULL;
}

static void thread_ends(void *arg) {
    struct torch_thread *l = arg;
    if (quiesce_enter_own(&l->busy, &agent_word.torch) == l->generation && l->generation) {
        leave_ring(l);
        l->generation = 0;
    } /* else only torch_threads_close() may touch it */
    torch_thread_mine = NULL;
    quiesce_leave_own(&l->busy);
    __atomic_store_n(&l->taken, 0, __ATOMIC_RELEASE);
}

__attribute__((constructor)) static void prepare(void) {
    pthread_key_create(&key, thread_ends);
}

/* The i-th of these structs, made if there is none yet; NULL: no memory. */
static struct torch_thread *make(unsigned i) {
    struct torch_thread *l = torch_thread_at(i), *other;
    if (l || !(l = sys_pages(sizeof *l)))
        return l;
    other = sys_swap(&threads[i], NULL, l);
    if (other)
        sys_pages_free(l, sizeof *l);
    return other ? other : l;
}

/* A struct for the calling thread. Backward may still run what an ended thread has made (torch.nn.DataParallel: each forward pass
 * in threads of its own), so the structs of ended threads are used again only when there are many of them, in turn. */
static struct torch_thread *take(void) {
    static uint32_t turn; /* (a) */
    uint32_t generation = __atomic_load_n(&agent_word.torch, __ATOMIC_RELAXED), from;
    struct torch_thread *l;
    unsigned n = 0;
    for (; (l = torch_thread_at(n)); n++)
        if (__atomic_load_n(&l->owned, __ATOMIC_RELAXED) != generation &&
            !sys_swap(&l->taken, 0, 1))
            return l;
    from = n >= KEPT ? __atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED) : 0;
    for (unsigned i = 0; n >= KEPT && i < n; i++)
        if (!sys_swap(&threads[(from + i) % n]->taken, 0, 1))
            return threads[(from + i) % n];
    for (; n < TORCH_THREADS && (l = make(n)); n++)
        if (!sys_swap(&l->taken, 0, 1))
            return l;
    return NULL;
}

static void reset(struct torch_thread *l, uint32_t generation) {
    memset(&l->ring, 0,
           offsetof(struct torch_thread, torch_id) - offsetof(struct torch_thread, ring));
    __atomic_store_n(&l->owned, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&l->torch_id, 0, __ATOMIC_RELEASE);
    l->inside = l->next_call = 1;
    l->tid = (uint32_t)syscall(SYS_gettid);
    l->self = (uint64_t)pthread_self();
    l->edition = generation << 16;
    l->generation = generation;
}

struct torch_thread *torch_thread_slow(void) {
    struct torch_thread *l = torch_thread_mine;
    uint32_t generation = __atomic_load_n(&agent_word.torch, __ATOMIC_ACQUIRE);
    if (!generation) {
        uint64_t n = __atomic_load_n(&early, __ATOMIC_RELAXED), seen = n;
        while (n && (seen = sys_swap(&early, n, n + 1)) != n)
            n = seen;
        if (n == 1) /* a forked child that trains neither execs nor ends at once */
            agent_begin_now();
        return NULL;
    }
    if (!l) {
        if (!(l = take()))
            return NULL;
        if (pthread_setspecific(key, l)) {
            __atomic_store_n(&l->taken, 0, __ATOMIC_RELEASE);
            return NULL;
        }
        torch_thread_mine = l;
    }
    int current = quiesce_enter_own(&l->busy, &agent_word.torch) == generation;
    if (current) { /* else only torch_threads_close() may touch it */
        reset(l, generation);
        struct live *live = __atomic_load_n(&open_live, __ATOMIC_RELAXED);
        l->ring = live_ring_get_large(live, l->tid);
        if (!l->ring)
            live_lose(live, TRACE_LOST_no_ring, 1);
    }
    quiesce_leave_own(&l->busy);
    return current ? l : NULL;
}

static uint8_t *put_open(uint8_t *p, const struct torch_thread_open *o, uint64_t now) {
    p = varint_put(p, TORCH_OPEN | (uint64_t)o->kind << 4);
    p = varint_put(p, now > o->start ? now - o->start : 0);
    p = varint_put(p, o->id);
    p = varint_put(p, o->call);
    return varint_put(p, o->tid);
}

void torch_thread_show(struct torch_thread *l) {
    if (!l || l->last - l->shown < TORCH_OLD_NS)
        return;
    if (quiesce_enter_own(&l->busy, &agent_word.torch) == l->generation) {
        l->shown = l->last;
        end_batch(l);
    }
    quiesce_leave_own(&l->busy);
}

int torch_thread_roll(struct torch_thread *l, uint64_t *now) {
    size_t size = TORCH_BATCH + l->depth * TORCH_EVENT;
    uint8_t *p;
    if (!l->ring) { /* all rings are taken: counted when that was found */
        *now = l->last;
        return 0;
    }
    end_batch(l);
    /* Both clocks are read at nearly one time: else the batch is off by as long as the thread was off its processor. */
    if (!both(now, &l->anchor_tsc)) {
        *now = sys_now();
        l->anchor_tsc = __rdtsc();
    }
    l->anchor_ns = *now;
    l->began = l->last = *now;
    const struct live *live = __atomic_load_n(&open_live, __ATOMIC_RELAXED);
    if (live)
        l->edition = l->generation << 16 ^ __atomic_load_n(&live->epoch, __ATOMIC_ACQUIRE);
    if (!(l->fields = ring_reserve(l->ring, TRACE_torch_calls, TRACE_torch_calls_NFIELDS, size)))
        return 0;
    l->fields[TRACE_torch_calls_ts] = *now;
    l->fields[TRACE_torch_calls_tid] = l->tid;
    l->fields[TRACE_torch_calls_call] = l->next_call;
    l->fields[TRACE_torch_calls_step] = steps_current();
    l->base = p = (uint8_t *)(l->fields + TRACE_torch_calls_NFIELDS);
    l->end = p + size - TORCH_EVENT;
    for (uint32_t i = 0; i < l->depth; i++)
        p = put_open(p, &l->open[i], *now);
    l->at = p;
    torch_thread_store(l);
    ring_open(l->fields);
    return 1;
}

/* ---- life ---- */

static int counter_is_steady(void) {
    unsigned a, b, c, d = 0;
    char name[16];
    size_t n = proc_read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                              name, sizeof name);
    return n >= 3 && !memcmp(name, "tsc", 3) && __get_cpuid(0x80000007, &a, &b, &c, &d) &&
           (d >> 8 & 1);
}

void torch_threads_open(struct live *live) {
    quiesce_prepare();
    if (!counter_is_steady() || !both(&anchor_ns, &anchor_tsc))
        anchor_tsc = 0;
    measured = sys_now();
    __atomic_store_n(&torch_thread_tick, 0, __ATOMIC_RELAXED);
    if (++generations == 0)
        generations = 1;
    __atomic_store_n(&open_live, live, __ATOMIC_RELAXED);
    if (early)
        live_lose(live, TRACE_LOST_no_ring, __atomic_exchange_n(&early, 0, __ATOMIC_RELAXED) - 1);
    quiesce_set(&agent_word.torch, generations);
}

void torch_threads_round(void) {
    uint64_t ns, tsc;
    if (!anchor_tsc || !both(&ns, &tsc) || ns - anchor_ns < SETTLE_NS || tsc <= anchor_tsc)
        return;
    if (torch_thread_tick && ns - measured < AGAIN_NS && measured - anchor_ns > AGAIN_NS)
        return;
    measured = ns;
    __atomic_store_n(&torch_thread_tick,
                     (uint64_t)(((unsigned __int128)(ns - anchor_ns) << 32) / (tsc - anchor_tsc)),
                     __ATOMIC_RELAXED);
}

int torch_threads_close(int ms) {
    struct torch_thread *l;
    int err = 0;
    if (!quiesce_set(&agent_word.torch, 0))
        return 0;
    int fence = quiesce_fence();
    for (unsigned i = 0; (l = torch_thread_at(i)); i++) {
        if (fence || quiesce_wait(&l->busy, &ms)) {
            err = -EBUSY;
            continue;
        }
        if (l->generation == generations) /* switched on again, the thread takes another ring */
            leave_ring(l);
        l->fields = NULL;
    }
    __atomic_store_n(&open_live, NULL, __ATOMIC_RELAXED);
    return err;
}

void torch_threads_after_fork(void) {
    agent_word.torch = 0;
    open_live = NULL;
    early = 1;
    torch_threads_unseen = torch_thread_mine ? torch_thread_mine->unseen : 0;
    for (unsigned i = 0; i < TORCH_THREADS && threads[i]; i++) {
        struct torch_thread *l = threads[i];
        l->busy = 0;
        l->ring = NULL;
        l->fields = NULL;
        l->generation = 0;
        if (l != torch_thread_mine)
            l->taken = l->unseen = 0;
    }
}

struct torch_thread *torch_thread_at(unsigned i) {
    return i < TORCH_THREADS ? __atomic_load_n(&threads[i], __ATOMIC_ACQUIRE) : NULL;
}

int torch_thread_own(struct torch_thread *l) {
    size_t owners = TORCH_OWNERS * sizeof *l->owners, calls = TORCH_CALLS * sizeof *l->calls;
    uint8_t *p = sys_pages(owners + calls);
    if (!p)
        return -ENOMEM;
    l->calls = (struct torch_thread_call *)(p + owners);
    __atomic_store_n(&l->owners, (uint64_t *)p, __ATOMIC_RELEASE);
    return 0;
}
