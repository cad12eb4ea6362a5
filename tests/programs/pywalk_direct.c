/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pywalk_direct (a shared object): pywalk on its own thread, loaded by test_pywalk_direct.py through ctypes.
 *
 * direct_open() first. direct_stack() and direct_time() walk the calling thread. direct_start() makes a timer interrupt the
 * calling thread; the handler walks it each time and counts what it saw, until direct_stop().
 */
#include "agent/pywalk/pywalk.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX    2000

static struct pywalk direct, far;
static struct pywalk_frame frames[MAX];
static uint64_t own; /* the sampled thread's state */
static timer_t timer;

/* What the handler counts; Python reads it after direct_stop(). */
static struct stats {
    uint64_t samples, good, empty, cut, torn, fault, mixed, base;
    uint64_t chain_a, chain_b; /* samples in which a frame of that chain was seen */
} stats;

/* Code objects by the chain that they belong to. */
static uint64_t chain_codes[2][16], base_code;

static uint64_t own_tstate(void) {
    static struct pywalk_thread threads[64];
    int n = pywalk_threads(&direct, threads, 64, NULL);

    for (int i = 0; i < n; i++)
        if (threads[i].ident == (uint64_t)pthread_self())
            return threads[i].tstate;
    return 0;
}

EXPORT int direct_open(uint32_t version, uint64_t runtime, uint64_t head, uint64_t current,
                       uint64_t code_type) {
    struct pywalk_target t = {version, runtime, head, current, code_type, 0};
    int rc = pywalk_init(&direct, (struct pywalk_mem){pywalk_read_direct, NULL}, &t);

    if (rc == 0)
        rc = pywalk_init(&far, (struct pywalk_mem){pywalk_read_process, (void *)(intptr_t)getpid()},
                         &t);
    return rc;
}

/* Writes the stack as lines "name\tfile\tline\n". It is read in both ways, which must agree. */
EXPORT int direct_stack(char *buf, size_t size) {
    static struct pywalk_frame again[MAX];
    static struct pywalk_code code;
    uint64_t tstate = own_tstate(), a = 0, b = 0;
    int cut, n = pywalk_frames(&direct, tstate, frames, MAX, &cut);
    size_t at = 0;

    if (n < 0 || pywalk_frames(&far, tstate, again, MAX, &cut) != n ||
        memcmp(frames, again, (size_t)n * sizeof *frames) != 0)
        return n < 0 ? n : -EBADMSG;
    for (int i = 0; i < n && at < size; i++) {
        int rc = pywalk_code(&direct, frames[i].code, &code);
        if (rc != 0 || pywalk_code_identity(&direct, frames[i].code, &a) != 0 ||
            pywalk_code_identity(&far, frames[i].code, &b) != 0 || a != b)
            return rc != 0 ? rc : -EBADMSG;
        at += (size_t)snprintf(buf + at, size - at, "%s\t%s\t%d\n", code.name, code.file,
                               pywalk_frame_line(&direct, &code, frames[i].lasti));
    }
    return n;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Measures the ns of a walk, as the best of 30 rounds: read directly; with the frames' identities; by process_vm_readv. */
EXPORT int direct_time(int loops, double ns[3]) {
    uint64_t tstate = own_tstate(), h = 0, sum = 0;
    int cut, n = 0;

    for (int round = 0; round < 90; round++) {
        int way = round % 3;
        double t = now();
        for (int i = 0; i < loops; i++) {
            n = pywalk_frames(way == 2 ? &far : &direct, tstate, frames, MAX, &cut);
            for (int k = 0; k < n && way == 1; k++) {
                pywalk_code_identity(&direct, frames[k].code, &h);
                sum += h;
            }
        }
        t = (now() - t) / loops;
        if (round < 3 || t < ns[way])
            ns[way] = t;
    }
    return sum != 0 ? n : -1;
}

static int chain_of(uint64_t code, int chain) {
    for (int i = 0; i < 16; i++)
        if (chain_codes[chain][i] == code)
            return 1;
    return 0;
}

static void on_timer(int sig) {
    int saved = errno, cut = 0, n = pywalk_frames(&direct, own, frames, MAX, &cut), seen[2] = {0};

    (void)sig;
    stats.samples++;
    if (n < 0) {
        if (n == -EFAULT)
            stats.fault++;
        else
            stats.torn++;
    } else if (n == 0) {
        stats.empty++;
    } else if (cut) {
        stats.cut++;
    } else {
        stats.good++;
        for (int i = 0; i < n; i++) {
            seen[0] |= chain_of(frames[i].code, 0);
            seen[1] |= chain_of(frames[i].code, 1);
        }
        stats.chain_a += (uint64_t)seen[0];
        stats.chain_b += (uint64_t)seen[1];
        stats.mixed += (uint64_t)(seen[0] && seen[1]);
        stats.base += frames[n - 1].code == base_code;
    }
    errno = saved;
}

/* chains: 2 x 16 ids of code objects, 0 for none; base: the module's code object. */
EXPORT int direct_start(long period_ns, const uint64_t *chains, uint64_t base) {
    struct sigaction sa = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    struct sigevent ev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMAX - 1};
    struct itimerspec when = {{0, period_ns}, {0, period_ns}};

    memset(&stats, 0, sizeof stats);
    memcpy(chain_codes, chains, sizeof chain_codes);
    for (int i = 0; i < 32; i++)
        if (chain_codes[i / 16][i % 16] == 0)
            chain_codes[i / 16][i % 16] = 1;
    base_code = base;
    own = own_tstate();
    ev._sigev_un._tid = gettid();
    if (own == 0 || sigaction(SIGRTMAX - 1, &sa, NULL) != 0 ||
        timer_create(CLOCK_MONOTONIC, &ev, &timer) != 0 ||
        timer_settime(timer, 0, &when, NULL) != 0)
        return -errno;
    return 0;
}

EXPORT void direct_stop(uint64_t out[10]) {
    timer_delete(timer);
    memcpy(out, &stats, sizeof stats);
}
