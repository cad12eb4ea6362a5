/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quiesce.h: nobody uses memory that its owner has seen unused: the store-load litmus test, with both kinds, and the same with memory that
 * is really unmapped, from threads and from a signal handler. Run it under TSan, too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "agent/base/quiesce.c"

/* ---- litmus: user and owner cross, many times at nearly the same instant ---- */

#define CROSSINGS 64u

enum kind { SHARED, OWN, EXCHANGE, RELEASED };

/* The padding keeps the places from sharing a cache line. */
static struct crossing {
    uint32_t inside;
    char a[124];
    void *thing;
    char b[120];
    int uses, unused;
    char c[120];
} crossing[CROSSINGS];

static enum kind kind;
static uint32_t round_no, done; /* (a) */
static uint32_t rounds;

/* Spins, so that both threads go on at the same instant; if the other thread has no processor, yields. */
static void wait_for(const uint32_t *word, uint32_t value) {
    for (unsigned i = 0; __atomic_load_n(word, __ATOMIC_ACQUIRE) < value; i++) {
        __builtin_ia32_pause();
        if (i > 20000)
            sched_yield();
    }
}

static void use(struct crossing *c) {
    switch (kind) {
    case SHARED:
        c->uses = quiesce_enter(&c->inside, &c->thing) != NULL;
        break;
    case RELEASED: /* what stood here before: the test's own proof that it can tell */
        __atomic_store_n(&c->inside, 1, __ATOMIC_RELEASE);
        c->uses = __atomic_load_n(&c->thing, __ATOMIC_ACQUIRE) != NULL;
        break;
    default:
        c->uses = quiesce_enter_own(&c->inside, &c->thing) != NULL;
    }
}

static void *user(void *unused) {
    for (uint32_t r = 1; r <= rounds; r++) {
        wait_for(&round_no, r);
        for (unsigned i = 0; i < CROSSINGS; i++)
            use(&crossing[i]);
        __atomic_store_n(&done, r, __ATOMIC_RELEASE);
    }
    return unused;
}

static void take(struct crossing *c) {
    if (kind == RELEASED) {
        __atomic_store_n(&c->thing, NULL, __ATOMIC_RELEASE);
        c->unused = __atomic_load_n(&c->inside, __ATOMIC_ACQUIRE) == 0;
        return;
    }
    (void)quiesce_set(&c->thing, NULL);
    if (kind != SHARED && quiesce_fence())
        return;
    c->unused = quiesce_idle(&c->inside);
}

/* Returns how often the owner saw nobody although somebody was there. */
static unsigned cross(enum kind k, uint32_t n) {
    pthread_t t;
    unsigned bad = 0;
    kind = k;
    rounds = n;
    round_no = done = 0;
    pthread_create(&t, NULL, user, NULL);
    for (uint32_t r = 1; r <= n; r++) {
        for (unsigned i = 0; i < CROSSINGS; i++) {
            crossing[i].inside = 0;
            crossing[i].thing = crossing;
            crossing[i].uses = crossing[i].unused = 0;
        }
        __atomic_store_n(&round_no, r, __ATOMIC_SEQ_CST);
        for (unsigned i = 0; i < CROSSINGS; i++)
            take(&crossing[i]);
        wait_for(&done, r);
        for (unsigned i = 0; i < CROSSINGS; i++)
            bad += crossing[i].uses && crossing[i].unused;
    }
    pthread_join(t, NULL);
    return bad;
}

static void test_litmus(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    const uint32_t n = 300;
#else
    const uint32_t n = 4000;
    print_message("release and acquire: %u of %u\n", cross(RELEASED, n), n * CROSSINGS);
#endif
    assert_int_equal(cross(SHARED, n), 0);
    assert_int_equal(cross(EXCHANGE, n), 0);
    quiesce_prepare();
    if (!quiesce_light)
        print_message("no membarrier here\n");
    assert_int_equal(cross(OWN, n / 2), 0);
}

/* ---- the same with pages that are taken away: a thread that uses one that is gone dies of it ---- */

#define USERS 3u
#define PAGES 300

struct page {
    uint64_t number, again;
    char rest[4080];
};

static struct page *page; /* (a) */
static uint32_t inside, own[USERS], stop;
static uint64_t uses_seen, torn;

static void look(const struct page *p) {
    if (p && p->number != p->again)
        __atomic_fetch_add(&torn, 1, __ATOMIC_RELAXED);
    if (p)
        __atomic_fetch_add(&uses_seen, 1, __ATOMIC_RELAXED);
}

static void on_signal(int signo) {
    (void)signo;
    look(quiesce_enter(&inside, &page));
    look(quiesce_read(&page));
    quiesce_leave(&inside);
}

static void *page_user(void *word) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        look(quiesce_enter_own((uint32_t *)word, &page));
        quiesce_leave_own(word);
        on_signal(0);
    }
    return NULL;
}

static struct page *page_new(uint64_t number) {
    struct page *p =
        mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    p->number = p->again = number;
    return p;
}

static void test_pages(void **state) {
    (void)state;
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    pthread_t t[USERS];
    quiesce_prepare();
    sigaction(SIGUSR1, &sa, NULL);
    for (unsigned i = 0; i < USERS; i++)
        pthread_create(&t[i], NULL, page_user, &own[i]);
    for (uint64_t n = 1; n <= PAGES || __atomic_load_n(&uses_seen, __ATOMIC_RELAXED) < PAGES; n++) {
        int ms = 10000;
        pthread_kill(t[n % USERS], SIGUSR1);
        struct page *old = quiesce_set(&page, n % 4 ? page_new(n) : NULL);
        assert_int_equal(quiesce_fence(), 0);
        for (unsigned i = 0; i < USERS; i++)
            assert_int_equal(quiesce_wait(&own[i], &ms), 0);
        assert_int_equal(quiesce_wait(&inside, &ms), 0);
        if (old) {
            old->number = 0; /* TSan sees a use that nothing orders; else the fault does */
            munmap(old, sizeof *old);
        }
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < USERS; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(torn, 0);
}

static void test_wait_gives_up(void **state) {
    (void)state;
    uint32_t word = 0;
    int ms = 3;
    void *thing = &word;
    assert_ptr_equal(quiesce_enter(&word, &thing), &word);
    assert_ptr_equal(quiesce_enter(&word, &thing), &word); /* nested */
    quiesce_leave(&word);
    assert_int_equal(quiesce_wait(&word, &ms), -ETIMEDOUT);
    quiesce_leave(&word);
    assert_int_equal(quiesce_wait(&word, &ms), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_litmus),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_wait_gives_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
