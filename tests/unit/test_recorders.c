/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that records in threads of the program, as it is in the agent: the sampling handler, spans and events (producer.c), and
 * PyTorch (torch_thread.c), while recordings begin and end and their memory is really unmapped. No thread touches it then, and everything
 * that was accepted is in the trace. Run it under TSan, too.
 */
#include "agent/base/quiesce.h"
#include "agent/core/producer.h"
#include "agent/core/state.h"
#include "agent/core/steps.h"
#include "agent/sampler/handler.h"
#include "agent/torch/torch_thread.h"
#include "trace_reader.h"

/* Some names occur in two of these files, which are compiled as one here. */
#include "agent/base/memory.c"
#include "agent/base/quiesce.c"
#include "agent/sampler/handler.c"
#include "agent/sampler/sampler_threads.c"
#define thread_ends producer_thread_ends
#define key         producer_key
#include "agent/core/producer.c"
#undef thread_ends
#undef key
#pragma GCC diagnostic ignored "-Wshadow"
#include "agent/torch/torch_thread.c"
#pragma GCC diagnostic warning "-Wshadow"

#define WORKERS  3
#define ROUNDS   40
#define ROUND_MS 8

struct agent_word agent_word;

void agent_wake(void) {}

void agent_begin_now(void) {}

uint64_t steps_current(void) {
    return 0;
}

int capture_python(struct capture *c UNUSED, const struct pywalk *pw UNUSED,
                   const uint64_t states[CAPTURE_STATES] UNUSED, uint64_t sp UNUSED,
                   uint64_t ident UNUSED) {
    return 0;
}

int capture_store(struct capture *c UNUSED, struct capture_dict *d UNUSED,
                  const struct pywalk *pw UNUSED, struct ring *ring UNUSED,
                  const struct capture_check *check UNUSED, uint64_t *stack) {
    *stack = 0;
    return 0;
}

size_t unwind_walk(struct unwind *u UNUSED, const struct cfi_memory *mem UNUSED,
                   const struct unwind_regs *regs UNUSED, struct unwind_memo *memo UNUSED,
                   uint64_t *pcs UNUSED, size_t max UNUSED, int *cut UNUSED) {
    return 0;
}

void unwind_warm(const struct unwind *u UNUSED, const struct unwind_memo *memo UNUSED) {}

void unwind_free(struct unwind *u UNUSED) {}

int modmap_refresh(struct modmap *m UNUSED) {
    return 0;
}

void sampled_close(struct sampled *t UNUSED) {}

int threads_is_ours(uint32_t tid UNUSED, int perhaps UNUSED) {
    return 0;
}

int threads_main_ended(void) {
    return 0;
}

static void *no_python(void) {
    return NULL;
}

/* ---- the program's threads ---- */

static uint32_t done;     /* (a) */
static uint64_t accepted; /* (a) records that producer_emit() took */
static uint64_t events;   /* (a) of PyTorch that were taken */
static struct worker {
    pthread_t thread;
    uint32_t tid; /* (a) 0: it has not begun */
} workers[WORKERS];

static void records(unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        if (PRODUCER_EMIT(span_end, .ts = sys_now(), .id = i) == 0)
            __atomic_fetch_add(&accepted, 1, __ATOMIC_RELAXED);
        uint64_t now;
        struct torch_thread *l = torch_thread_here();
        uint8_t *p = l ? torch_thread_begin(l, &now) : NULL;
        if (p) {
            torch_thread_done(l, torch_thread_head(l, p, now, TORCH_EXIT, 0));
            __atomic_fetch_add(&events, 1, __ATOMIC_RELAXED);
        }
    }
}

static void *works(void *worker) {
    struct worker *w = worker;
    __atomic_store_n(&w->tid, (uint32_t)gettid(), __ATOMIC_RELEASE);
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
        records(20);
        usleep(100); /* where TSan hands out signals */
    }
    return NULL;
}

static void *brief(void *unused) {
    records(3);
    return unused;
}

/* Threads that end at any moment of a recording. */
static void *starts_others(void *unused) {
    pthread_t thread;
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE))
        if (pthread_create(&thread, NULL, brief, NULL) == 0)
            pthread_join(thread, NULL);
    return unused;
}

/* ---- the agent's ---- */

static struct handler shared = {.this_tstate = no_python};
static uint64_t sampled;                                    /* as the handler counts */
static struct { uint64_t samples, records, events; } found; /* in the traces */

static void count(void *unused, const struct trace_block_header *h, int type,
                  const struct trace_value *v) {
    (void)unused;
    (void)h;
    found.samples += type == TRACE_sample;
    found.records += type == TRACE_span_end;
    if (type == TRACE_torch_calls) {
        const uint8_t *p = v[TRACE_torch_calls_events].p, *end = p + v[TRACE_torch_calls_events].n;
        unsigned varints = 0;
        for (; p < end; p++)
            varints += !(*p & 0x80);
        found.events += varints / 2;
    }
}

static void sample(struct request **requests, uint64_t until) {
    while (sys_now() < until) {
        for (unsigned i = 0; i < WORKERS; i++) {
            struct request *r = requests[i];
            int was = handler_withdraw(r);
            if (was == -EBUSY)
                continue;
            r->tick = sys_now() / 1000 * 1000;
            r->count = 1;
            handler_post(r);
        }
        sys_sleep(SYS_MS);
        torch_threads_round();
    }
}

static void recording(const char *dir, unsigned number) {
    struct request *requests[WORKERS];
    struct writer *w;
    char trace[128];
    snprintf(trace, sizeof trace, "%s/%u.zst", dir, number);
    const struct writer_options options = {
        .trace_path = trace, .run_dir = dir, .large_ring = 1 << 20};
    assert_int_equal(writer_open(&w, &options), 0);
    struct live *live = shared.live = writer_live(w);
    producer_open(live);
    torch_threads_open(live);
    assert_int_equal(handler_arm(&shared), 0);
    for (unsigned i = 0; i < WORKERS; i++) {
        assert_non_null(requests[i] = request_new(workers[i].tid, (uint64_t)workers[i].thread));
        /* Rings of the brief threads that have ended are free once they are read. */
        while (!(requests[i]->ring = live_ring_get(live, workers[i].tid)))
            assert_int_equal(writer_drain(w, 0), 0);
    }
    sample(requests, sys_now() + ROUND_MS * SYS_MS);
    assert_int_equal(writer_drain(w, 0), 0);
    sample(requests, sys_now() + ROUND_MS * SYS_MS);
    /* In the order in which the parts' halt functions and the service thread do it. */
    handler_disarm();
    for (unsigned i = 0; i < WORKERS; i++)
        handler_withdraw(requests[i]);
    assert_int_equal(handler_wait(5000), 0);
    assert_int_equal(torch_threads_close(5000), 0);
    producer_close();
    assert_int_equal(producer_wait(5000), 0);
    for (unsigned i = 0; i < WORKERS; i++)
        request_free(requests[i]);
    sampled += live->samples;
    assert_int_equal(writer_close(w, "stop"), 0); /* the live file is mapped no more */
    read_trace(trace, count, NULL);
    unlink(trace);
}

static void recordings_come_and_go(void **state) {
    char dir[] = "/tmp/test_recorders.XXXXXX";
    pthread_t starter;
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(memory_init(), 0);
    for (unsigned i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, works, &workers[i]), 0);
    for (unsigned i = 0; i < WORKERS; i++)
        while (!__atomic_load_n(&workers[i].tid, __ATOMIC_ACQUIRE))
            sys_sleep(SYS_MS);
    assert_int_equal(pthread_create(&starter, NULL, starts_others, NULL), 0);
    for (unsigned n = 0; n < ROUNDS; n++)
        recording(dir, n);
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    pthread_join(starter, NULL);
    for (unsigned i = 0; i < WORKERS; i++)
        pthread_join(workers[i].thread, NULL);
    assert_int_equal(rmdir(dir), 0);
    assert_true(sampled > ROUNDS && accepted > ROUNDS && events > ROUNDS);
    assert_int_equal(found.samples, sampled);
    assert_int_equal(found.records, accepted);
    assert_int_equal(found.events, events);
}

/* ---- a signal of an earlier recording comes while its request is given out anew ---- */

#define LATE_ROUNDS 2000u

static struct {
    pthread_t thread;
    uint32_t tid, blocks, goes_on; /* (a) the last two: numbers of rounds */
} late;

static void wait_for(const uint32_t *word, uint32_t value) {
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value)
        sched_yield();
}

static void *is_late(void *unused) {
    sigset_t every;
    sigfillset(&every);
    __atomic_store_n(&late.tid, (uint32_t)gettid(), __ATOMIC_RELEASE);
    for (uint32_t n = 1; n <= LATE_ROUNDS; n++) {
        pthread_sigmask(SIG_BLOCK, &every, NULL);
        __atomic_store_n(&late.blocks, n, __ATOMIC_RELEASE);
        wait_for(&late.goes_on, n);
        pthread_sigmask(SIG_UNBLOCK, &every, NULL);
    }
    __atomic_store_n(&late.blocks, LATE_ROUNDS + 1, __ATOMIC_RELEASE);
    return unused;
}

static void forget(struct request *r) {
    handler_disarm();
    handler_withdraw(r);
    assert_int_equal(handler_wait(5000), 0);
    request_free(r);
}

static void late_signals_meet_new_requests(void **state) {
    (void)state;
    assert_int_equal(pthread_create(&late.thread, NULL, is_late, NULL), 0);
    for (uint32_t n = 1; n <= LATE_ROUNDS; n++) {
        wait_for(&late.blocks, n);
        assert_int_equal(handler_arm(&shared), 0);
        struct request *r = request_new(late.tid, (uint64_t)late.thread);
        assert_non_null(r);
        assert_int_equal(handler_post(r), 0);
        forget(r);
        assert_int_equal(handler_arm(&shared), 0);
        __atomic_store_n(&late.goes_on, n, __ATOMIC_RELEASE);
        /* The signal comes before, during or after what follows. */
        for (uint32_t i = 0; i < n % 256 * 8; i++)
            __builtin_ia32_pause();
        assert_ptr_equal(r, request_new(late.tid, (uint64_t)late.thread));
        wait_for(&late.blocks, n + 1);
        forget(r);
    }
    pthread_join(late.thread, NULL);
}

/* Where a handler does not end, perhaps only for long, its thread gets another request. No other thread may get the ring that the handler may write to yet. */
static void a_ring_has_one_thread(void **state) {
    char dir[] = "/tmp/test_recorders.XXXXXX", trace[64];
    struct sampled t = {.tid = 1};
    struct writer *w;
    struct ring *r;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(trace, sizeof trace, "%s/t.zst", dir);
    const struct writer_options options = {.trace_path = trace, .run_dir = dir, .nrings = 4};
    assert_int_equal(writer_open(&w, &options), 0);
    struct request *old = t.request = request_new(1, 1);
    struct ring *its = old->ring = live_ring_get(writer_live(w), 1);
    old->state = REQUEST_BUSY;
    sampled_new_request(&t);
    assert_ptr_not_equal(t.request, old);
    assert_int_equal(writer_drain(w, 0), 0);
    while ((r = live_ring_get(writer_live(w), 2)))
        assert_ptr_not_equal(r, its);
    request_free(t.request); /* the thread has ended */
    assert_int_equal(writer_drain(w, 0), 0);
    assert_ptr_equal(live_ring_get(writer_live(w), 3), its);
    assert_int_equal(writer_close(w, "stop"), 0);
    unlink(trace);
    assert_int_equal(rmdir(dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recordings_come_and_go),
        cmocka_unit_test(late_signals_meet_new_requests),
        cmocka_unit_test(a_ring_has_one_thread),
    };
    alarm(240);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
