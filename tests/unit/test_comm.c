/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which operation in flight a backend's thread finds for what it executes, while other threads look, too, and operations begin and end.
 * (tests/e2e/test_comm.py tests it with torch.) The agent is no library: its source is part of this program; nothing else of it is used.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>

#include "agent/comm/comm.c"

struct torch_lib torch_lib;
struct capi py;
uint64_t steps_last_sign;
struct comm_layout comm_layout;

int producer_recording(void) {
    return 1;
}
uint32_t producer_generation(void) {
    return 1;
}
int producer_emit(uint32_t recording UNUSED, unsigned type UNUSED,
                  const struct writer_value *v UNUSED) {
    return 0;
}
int gil_pending(void (*call)(void) UNUSED) {
    return 0;
}
int torch_lib_load(void) {
    return -ENOENT;
}
int loaded_find(const char *name UNUSED, void **handle UNUSED) {
    return -ENOENT;
}
int meta_note(struct writer *w UNUSED, unsigned level UNUSED, const char *part UNUSED,
              const char *fmt UNUSED, ...) {
    return 0;
}
void comm_python_names(void) {}
void comm_python_measure(void) {}
int comm_wrap_install(enum comm_backend backend UNUSED, void *handle UNUSED) {
    return 0;
}
int comm_nccl_round(struct writer *w UNUSED, uint64_t now UNUSED) {
    return 0;
}
void comm_nccl_quit(struct writer *w UNUSED, int stays UNUSED) {}
void comm_nccl_drop(struct comm_op *op UNUSED) {}
void comm_nccl_after_fork(void) {}
void comm_observe_end(void) {}

enum { THREADS = 3, OPERATIONS = 20000, IN_FLIGHT = 12 };

static uint32_t called, executed, completed, missed; /* (a) numbers of operations */

static struct comm_op *call(const char *title) {
    struct comm_op *op = comm_begin();
    assert_non_null(op);
    op->title = title;
    op->op = "barrier";
    op->tickets = 1;
    op->open = 2;
    comm_publish(op);
    return op;
}

static void complete(struct comm_op *op) {
    comm_release(op, 1);
    comm_release(op, 0);
}

static const void *no_tensor(const void *record UNUSED) {
    return NULL;
}

/* A thread of the backend: takes the next operation that was called, as from a queue, and completes what it finds for it. */
static void *backend(void *unused) {
    for (uint32_t n; (n = __atomic_load_n(&executed, __ATOMIC_ACQUIRE)) < OPERATIONS;) {
        if (n == __atomic_load_n(&called, __ATOMIC_ACQUIRE)) {
            sched_yield();
            continue;
        }
        if (sys_swap(&executed, n, n + 1) != n)
            continue;
        struct comm_op *op = comm_executing(NULL, "gloo:barrier", NULL, no_tensor);
        if (op)
            comm_release(op, 1);
        else
            __atomic_fetch_add(&missed, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&completed, 1, __ATOMIC_RELEASE);
    }
    return unused;
}

static void test_each_thread_finds_an_operation(void **state UNUSED) {
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, backend, NULL), 0);
    for (uint32_t i = 0; i < OPERATIONS; i++) {
        while (i - __atomic_load_n(&completed, __ATOMIC_ACQUIRE) >= IN_FLIGHT)
            sched_yield();
        struct comm_op *op = call("gloo:barrier");
        __atomic_store_n(&called, i + 1, __ATOMIC_RELEASE);
        comm_release(op, 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(missed, 0);
    for (unsigned i = 0; i < COMM_OPS; i++)
        assert_int_equal(comm_op_at(i)->state, 0);
}

static void test_nothing_is_found_for_another_name(void **state UNUSED) {
    struct comm_op *op = call("gloo:barrier");
    assert_null(comm_executing(NULL, "gloo:send", NULL, no_tensor));
    assert_ptr_equal(comm_executing(NULL, "gloo:barrier", NULL, no_tensor), op);
    assert_null(comm_executing(NULL, "gloo:barrier", NULL, no_tensor));
    complete(op);
}

static struct comm_op *late;

/* While a thread looks, the two that it has seen go to others, and one more is called. */
static const void *meanwhile(const void *record UNUSED) {
    static struct comm_op *taken[2];
    for (int i = 0; i < 2; i++)
        assert_non_null(taken[i] = comm_executing(NULL, "gloo:barrier", NULL, no_tensor));
    if (record) /* the first place is free again */
        complete(taken[0]);
    late = call("gloo:barrier");
    complete(taken[1]);
    if (!record)
        complete(taken[0]);
    return NULL;
}

static void test_one_that_was_called_meanwhile_is_found(void **state UNUSED) {
    for (int i = 0; i < 2; i++) {
        used = 0; /* as at the start: no place was ever taken */
        call("gloo:barrier");
        call("gloo:barrier");
        struct comm_op *found = comm_executing(NULL, "gloo:barrier", i ? &used : NULL, meanwhile);
        assert_ptr_equal(found, late);
        assert_ptr_equal(late, comm_op_at(i ? 0 : 2));
        complete(late);
    }
}

/* Sends to a peer and receives from it are numbered each on their own, 1, 2, 3 ..., by which both sides' records are paired; with more peers than there are places, the others get no number. */
static void test_each_pair_has_its_numbers(void **state UNUSED) {
    static struct comm_group g;
    enum { PLACES = sizeof g.pair / sizeof *g.pair, PEERS = PLACES / 2 + 20 };
    uint64_t counts[PEERS][2] = {{0}}, seed = 1;
    unsigned taken = 0, refused_ones = 0;
    for (unsigned i = 0; i < 40 * PLACES; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned peer = (unsigned)(seed >> 33) % PEERS, received = (unsigned)(seed >> 63);
        uint64_t is = comm_pair_count(&g, (int)peer, received ? 4 : 0),
                 *was = &counts[peer][received];
        if (*was || taken < PLACES) {
            taken += !*was;
            assert_int_equal(is, ++*was);
        } else {
            assert_int_equal(is, 0);
            refused_ones++;
        }
    }
    assert_true(taken == PLACES && refused_ones > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_pair_has_its_numbers),
        cmocka_unit_test(test_each_thread_finds_an_operation),
        cmocka_unit_test(test_one_that_was_called_meanwhile_is_found),
        cmocka_unit_test(test_nothing_is_found_for_another_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
