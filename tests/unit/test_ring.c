/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h: order and completeness with a concurrent reader and nested signal handlers (run it under TSan, too); full rings, wrapping, dead
 * producers, and wrong lengths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "writer/ring.h"

#define SIZE 4096u

static struct ring *new_ring(uint64_t size) {
    struct ring *r = aligned_alloc(128, sizeof *r + size);
    assert_non_null(r);
    memset(r, 0, sizeof *r + size);
    ring_init(r, size);
    return r;
}

static int put(struct ring *r, unsigned type, uint64_t a, uint64_t b) {
    uint64_t *f = ring_reserve(r, type, 2, 0);
    if (!f)
        return 0;
    f[0] = a;
    f[1] = b;
    ring_commit(f);
    return 1;
}

static struct ring_cursor cursor_at_tail(struct ring *r, int dead) {
    return (struct ring_cursor){.ring = r, .pos = r->tail, .dead = dead};
}

static void test_fill_wrap_and_release(void **state) {
    (void)state;
    struct ring *r = new_ring(SIZE);
    uint64_t in = 0, out = 0;
    assert_int_equal(sizeof *r, 128);
    for (int round = 0; round < 100; round++) {
        uint64_t before = in;
        while (put(r, 7, in, ~in))
            in++;
        assert_true(in > before);
        assert_int_equal(r->dropped, (uint64_t)round + 1);
        assert_true(ring_used(r) > SIZE - 48);
        struct ring_cursor c = cursor_at_tail(r, 0);
        const uint64_t *rec;
        unsigned n = 0;
        while (n < 37 + (unsigned)round && (rec = ring_next(&c))) {
            assert_int_equal(ring_rec_type(rec), 7);
            assert_int_equal(ring_rec_nfields(rec), 2);
            assert_int_equal(rec[1], out);
            assert_true(rec[2] == ~out);
            if (n == 5) { /* unread and read again */
                ring_unread(&c, rec);
                assert_ptr_equal(ring_next(&c), rec);
            }
            out++;
            n++;
        }
        ring_release(r, c.pos);
        assert_int_equal(c.bad, 0);
    }
    free(r);
}

static void test_variable_fields(void **state) {
    (void)state;
    struct ring *r = new_ring(SIZE);
    const uint64_t list[] = {5, 6, 7};
    size_t used = 0;
    uint64_t *f = ring_reserve(r, 9, 3, 8 + 24);
    f[0] = 1;
    ring_put_bytes(f, 3, 1, "hello", 5, &used);
    ring_put_bytes(f, 3, 2, list, 3 * sizeof(uint64_t), &used);
    assert_int_equal(used, 32);
    struct ring_cursor c = cursor_at_tail(r, 0);
    assert_null(ring_next(&c)); /* not committed */
    ring_commit(f);
    const uint64_t *rec = ring_next(&c);
    assert_non_null(rec);
    assert_int_equal(ring_rec_len(rec), 8 + 24 + 32);
    assert_int_equal(rec[2] & 0xffffffff, 5);
    assert_memory_equal((const char *)rec + (rec[2] >> 32), "hello", 5);
    assert_int_equal(rec[3] & 0xffffffff, 24);
    assert_memory_equal((const char *)rec + (rec[3] >> 32), list, 24);
    /* A record that asked for too little space is cut, and the next record is complete. */
    used = 0;
    f = ring_reserve(r, 9, 1, 8);
    uint64_t *g = ring_reserve(r, 9, 1, 0);
    g[0] = 42;
    ring_put_bytes(f, 1, 0, "0123456789abcdef", 16, &used);
    assert_int_equal(f[0] & 0xffffffff, 8);
    assert_int_equal(g[0], 42);
    assert_int_equal(ring_rec_nfields(g - 1), 1);
    assert_null(ring_reserve(r, 9, 1, SIZE)); /* larger than the ring */
    assert_null(ring_reserve(r, 9, 1, SIZE_MAX - 7));
    free(r);
}

/* A producer that died: busy records, and places without a header, are skipped. */
static void test_dead_producer(void **state) {
    (void)state;
    struct ring *r = new_ring(SIZE);
    const uint64_t *rec;
    put(r, 1, 1, 0);
    ring_reserve(r, 2, 3, 0)[0] = 99; /* busy for ever */
    put(r, 1, 2, 0);
    __atomic_fetch_add(&r->head, 40, __ATOMIC_RELEASE); /* head moved, no header yet */
    put(r, 1, 3, 0);                                    /* a handler's, in that instant */
    __atomic_fetch_add(&r->head, 16, __ATOMIC_RELEASE);
    struct ring_cursor c = cursor_at_tail(r, 0);
    assert_int_equal(ring_next(&c)[1], 1);
    assert_null(ring_next(&c)); /* alive: wait for the busy one */
    c.dead = 1;
    assert_int_equal(ring_next(&c)[1], 2);
    rec = ring_next(&c);
    assert_non_null(rec);
    assert_int_equal(rec[1], 3);
    assert_null(ring_next(&c));
    assert_int_equal(c.bad, 0);
    assert_true(c.pos == r->head);
    free(r);
}

static void test_lies_are_noticed(void **state) {
    (void)state;
    const uint64_t lies[] = {
        (1ull << 48) | (5ull << 32) | 8,           /* too short for its field */
        (1ull << 48) | (5ull << 32) | 20,          /* not a multiple of 8 */
        (1ull << 48) | (5ull << 32) | 0x7ffffff8u, /* beyond the end of the ring */
        (1ull << 48) | (5ull << 32) | 64,          /* beyond the head */
    };
    for (unsigned i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct ring *r = new_ring(SIZE);
        put(r, 1, 1, 0);
        ((uint64_t *)r->data)[0] = lies[i];
        struct ring_cursor c = cursor_at_tail(r, 0);
        assert_null(ring_next(&c));
        assert_int_equal(c.bad, 1);
        free(r);
    }
    struct ring *r = new_ring(SIZE);
    r->head = SIZE * 3;
    struct ring_cursor c = cursor_at_tail(r, 1);
    assert_null(ring_next(&c));
    assert_int_equal(c.bad, 1);
    free(r);
}

/* ---- producer, nested handlers and reader at once ---- */

#define RECORDS 200000u

static struct ring *shared;
static uint64_t handler_puts, handler_fails;
static pthread_t producer_thread;

static void on_signal(int sig) {
    (void)sig;
    if (put(shared, 2, handler_puts, ~handler_puts))
        handler_puts++;
    else
        handler_fails++;
}

static void *producer(void *arg) {
    uint64_t *fails = arg;
    for (uint64_t i = 0; i < RECORDS;) {
        uint64_t list[3] = {i, i + 1, i + 2};
        size_t used = 0;
        if (i == RECORDS / 2 && !__atomic_load_n(&handler_puts, __ATOMIC_RELAXED)) {
            sched_yield(); /* until a handler has written, too: on a busy machine none may come */
            continue;
        }
        uint64_t *f = ring_reserve(shared, 1, 2, sizeof list);
        if (!f) {
            ++*fails;
            sched_yield();
            continue;
        }
        f[0] = i;
        ring_put_bytes(f, 2, 1, list, (i % 4) * sizeof(uint64_t), &used); /* of different lengths */
        ring_commit(f);
        i++;
    }
    return NULL;
}

static int finished;

static void *pesterer(void *arg) {
    (void)arg;
    while (!__atomic_load_n(&finished, __ATOMIC_ACQUIRE)) {
        pthread_kill(producer_thread, SIGUSR1);
        nanosleep(&(struct timespec){0, 20000}, NULL);
    }
    return NULL;
}

static void test_concurrent(void **state) {
    (void)state;
    pthread_t pester;
    uint64_t fails = 0, next = 0, next_nested = 0;
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    shared = new_ring(SIZE);
    assert_int_equal(sigaction(SIGUSR1, &sa, NULL), 0);
    assert_int_equal(pthread_create(&producer_thread, NULL, producer, &fails), 0);
    assert_int_equal(pthread_create(&pester, NULL, pesterer, NULL), 0);
    struct ring_cursor c = cursor_at_tail(shared, 0);
    while (next < RECORDS) {
        const uint64_t *rec = ring_next(&c);
        assert_int_equal(c.bad, 0);
        if (!rec) {
            sched_yield();
        } else if (ring_rec_type(rec) == 1) {
            assert_int_equal(rec[1], next);
            const uint64_t *list = (const uint64_t *)((const char *)rec + (rec[2] >> 32));
            assert_int_equal(rec[2] & 0xffffffff, next % 4 * 8);
            for (unsigned i = 0; i < next % 4; i++)
                assert_int_equal(list[i], next + i);
            next++;
        } else {
            assert_int_equal(ring_rec_type(rec), 2);
            assert_int_equal(rec[1], next_nested);
            assert_true(rec[2] == ~next_nested);
            next_nested++;
        }
        if (ring_used(shared) > SIZE / 4)
            ring_release(shared, c.pos);
    }
    __atomic_store_n(&finished, 1, __ATOMIC_RELEASE);
    pthread_join(pester, NULL);
    pthread_join(producer_thread, NULL);
    for (const uint64_t *rec; (rec = ring_next(&c));)
        assert_int_equal(rec[1], next_nested++);
    assert_int_equal(next_nested, handler_puts);
    assert_true(handler_puts > 0);
    assert_int_equal(shared->dropped, fails + handler_fails);
    ring_release(shared, c.pos);
    assert_int_equal(ring_used(shared), 0);
    for (unsigned i = 0; i < SIZE; i++) /* all that was given back is clear */
        assert_int_equal(shared->data[i], 0);
    free(shared);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fill_wrap_and_release),
        cmocka_unit_test(test_variable_fields),
        cmocka_unit_test(test_dead_producer),
        cmocka_unit_test(test_lies_are_noticed),
        cmocka_unit_test(test_concurrent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
