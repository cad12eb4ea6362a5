/* SPDX-License-Identifier: Apache-2.0 */
/* agent/sampler/sampler_running.c: when a thread that has blocked our signal is taken to accept it again. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "agent/sampler/sampler_running.c"

#define PERIOD SYS_MS

static uint64_t clock_now; /* of the thread */

int sampled_cpu(const struct sampled *t UNUSED, uint64_t *ns) {
    *ns = clock_now;
    return 0;
}

int handler_signo(void) {
    return SIGURG;
}

int sampled_open(uint32_t tid, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%u/%s", tid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Stubs of functions that only sampled_read_running() calls. */
int capture_store(struct capture *c UNUSED, struct capture_dict *d UNUSED,
                  const struct pywalk *pw UNUSED, struct ring *r UNUSED,
                  const struct capture_check *check UNUSED, uint64_t *key UNUSED) {
    return -ENOSYS;
}

int request_record(struct request *s UNUSED, struct live *live UNUSED, struct ring *ring UNUSED,
                   uint64_t ts UNUSED, uint64_t stack UNUSED, uint64_t pc UNUSED,
                   uint64_t us UNUSED, uint64_t count UNUSED, unsigned flags UNUSED) {
    return -ENOSYS;
}

uint64_t request_take_cpu(struct request *s UNUSED, uint64_t cpu) {
    return cpu;
}

void sampled_flush(struct sampler_table *s UNUSED, struct sampled *t UNUSED) {}

static void check(int blocked, unsigned shut) {
    static struct sampler_table *s;
    static struct request request;
    struct sampled *t = s ? &s->thread[0] : NULL;
    if (!s) {
        s = sys_pages(sizeof *s);
        t = &s->thread[0];
        s->period = PERIOD;
        t->request = &request;
        t->tid = (uint32_t)gettid();
    }
    assert_int_equal(!!(sampled_signals(s, t) & SAMPLED_BLOCKED), blocked);
    assert_int_equal(t->shut, shut);
}

/* A thread that waits for the GIL or a processor is found open at each tick, hardly runs, and blocks the signal once it does run. */
static void open_in_one_wait_counts_once(void **state) {
    sigset_t set;
    (void)state;
    sigemptyset(&set);
    sigaddset(&set, SIGURG);
    check(0, 0);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    clock_now = 10 * PERIOD;
    check(1, SHUT_CHECKS);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    for (unsigned i = 0; i < 2 * SHUT_CHECKS; i++, clock_now += PERIOD / 256)
        check(0, SHUT_CHECKS - 1);
    for (unsigned i = 2; i <= SHUT_CHECKS; i++) {
        clock_now += PERIOD;
        check(0, SHUT_CHECKS - i);
    }
    clock_now += PERIOD;
    check(0, 0);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* believed too soon: longer now */
    check(1, 3 * SHUT_CHECKS);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    clock_now += PERIOD;
    check(0, 3 * SHUT_CHECKS - 1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    check(1, 3 * SHUT_CHECKS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_in_one_wait_counts_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
