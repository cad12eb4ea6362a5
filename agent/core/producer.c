/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/producer.h"

#include "agent/base/quiesce.h"
#include "agent/core/state.h"

static uint32_t generation;  /* (a) */
static struct producer *all; /* (a) every node ever made; none is freed */
static pthread_key_t key;
static __thread struct producer *mine;

static void thread_ends(void *arg) {
    struct producer *p = arg;
    struct live *l = quiesce_enter_own(&p->inside, &agent_word.open);
    if (l && p->ring && p->generation == __atomic_load_n(&generation, __ATOMIC_RELAXED))
        live_ring_leave(p->ring);
    p->ring = NULL;
    quiesce_leave_own(&p->inside);
    mine = NULL;
    __atomic_store_n(&p->gone, 1, __ATOMIC_RELEASE);
}

__attribute__((constructor)) static void make_key(void) {
    pthread_key_create(&key, thread_ends);
}

static struct producer *adopt(void) {
    struct producer *p = __atomic_load_n(&all, __ATOMIC_ACQUIRE);
    for (; p; p = p->next)
        if (__atomic_load_n(&p->gone, __ATOMIC_RELAXED) && sys_swap(&p->gone, 1, 0))
            return p;
    p = calloc(1, sizeof *p);
    if (p) {
        p->next = __atomic_load_n(&all, __ATOMIC_RELAXED);
        while (
            !__atomic_compare_exchange_n(&all, &p->next, p, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
            ;
    }
    return p;
}

/* Returns the calling thread's node, which is made at the thread's first record. */
static struct producer *my_node(void) {
    struct producer *p;
    if (!(p = adopt()))
        return NULL;
    if (pthread_setspecific(key, p)) {
        __atomic_store_n(&p->gone, 1, __ATOMIC_RELEASE);
        return NULL;
    }
    p->tid = (uint32_t)syscall(SYS_gettid);
    mine = p;
    return p;
}

/* Takes a ring of the recording in progress for the thread. Called between enter and leave. */
static int take_ring(struct producer *p, struct live *l, uint32_t now) {
    p->tid = (uint32_t)syscall(SYS_gettid);
    p->ring = live_ring_get(l, p->tid);
    if (p->ring) {
        p->live = l;
        p->generation = now;
        p->woke = UINT64_MAX;
        return 0;
    }
    uint64_t ts = sys_now();
    if (ts - p->complained >= 1000000000u) {
        p->complained = ts;
        live_lose(l, TRACE_LOST_no_ring, 1);
    }
    return -ENOBUFS;
}

int producer_recording(void) {
    return quiesce_read(&agent_word.open) != NULL;
}

struct producer *producer_enter(void) {
    struct producer *p = mine;
    if (!producer_recording() || (!p && !(p = my_node())))
        return NULL;
    struct live *l = quiesce_enter_own(&p->inside, &agent_word.open);
    uint32_t now = __atomic_load_n(&generation, __ATOMIC_RELAXED);
    if (l && ((p->ring && p->generation == now) || !take_ring(p, l, now)))
        return p;
    /* Not producer_leave(): p->ring may belong to a recording that has ended. */
    quiesce_leave_own(&p->inside);
    return NULL;
}

void producer_leave(struct producer *p) {
    struct ring *r = p->ring;
    uint64_t tail = r ? __atomic_load_n(&r->tail, __ATOMIC_RELAXED) : 0;
    int half =
        r && __atomic_load_n(&r->head, __ATOMIC_RELAXED) - tail > r->size / 2 && p->woke != tail;
    quiesce_leave_own(&p->inside);
    if (half) {
        p->woke = tail;
        agent_wake();
    }
}

int producer_emit(uint32_t recording, unsigned type, const struct writer_value *v) {
    struct producer *p = producer_enter();
    int is_it = p && (!recording || p->generation == recording);
    int rc = is_it ? writer_put(p->ring, type, v) : -ESRCH;
    if (p)
        producer_leave(p);
    return rc;
}

void producer_note(unsigned level, const char *part, const char *text) {
    PRODUCER_EMIT(note, .ts = sys_now(), .level = level, .part = value_text(part),
                  .text = value_bytes(text, strnlen(text, 500)));
}

void producer_open(struct live *live) {
    quiesce_prepare();
    __atomic_fetch_add(&generation, 1, __ATOMIC_SEQ_CST);
    quiesce_set(&agent_word.open, live);
}

void producer_close(void) {
    quiesce_set(&agent_word.open, NULL);
}

int producer_wait(int ms) {
    int rc = quiesce_fence();
    for (struct producer *p = __atomic_load_n(&all, __ATOMIC_ACQUIRE); p && !rc; p = p->next)
        rc = quiesce_wait(&p->inside, &ms);
    return rc;
}

void producer_after_fork(void) {
    producer_close();
    for (struct producer *p = all; p; p = p->next) {
        p->inside = 0;
        p->ring = NULL;
        if (p != mine)
            p->gone = 1;
    }
}

uint32_t producer_generation(void) {
    return __atomic_load_n(&generation, __ATOMIC_RELAXED);
}
