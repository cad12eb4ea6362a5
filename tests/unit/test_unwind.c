/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's unwinder compared with glibc's backtrace(), and its reads of memory that does not exist. The agent is no library: its sources
 * are part of this program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <alloca.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/base/known.h"
#include "agent/base/loaded.c"
#include "agent/base/memory.c"
#include "agent/unwind/cfi.c"
#include "agent/unwind/cfi_program.c"
#include "agent/unwind/modmap.c"
#include "agent/unwind/rules.c"
#include "agent/unwind/unwind.c"

/* Sanitizers add frames of their own, and replace backtrace(). */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define DEPTH    256
#define NOINLINE __attribute__((noinline))

static struct unwind unwinder;
static struct guard guard;
static volatile int sink;

static struct unwind_regs regs_of(const ucontext_t *uc) {
    const greg_t *g = uc->uc_mcontext.gregs;
    return (struct unwind_regs){.pc = (uint64_t)g[REG_RIP],
                                .sp = (uint64_t)g[REG_RSP],
                                .bp = (uint64_t)g[REG_RBP],
                                .bx = (uint64_t)g[REG_RBX],
                                .known = UNWIND_BP | UNWIND_BX};
}

/* Both walks begin at the same place; the frames above this one must agree. */
static NOINLINE void compare(void) {
    void *theirs[DEPTH];
    uint64_t ours[DEPTH];
    ucontext_t uc;
    struct cfi_memory mem = {.read = guard_read, .ctx = &guard, .direct = 1};
    int cut;
    assert_int_equal(getcontext(&uc), 0);
    struct unwind_regs regs = regs_of(&uc);
    int n = backtrace(theirs, DEPTH);
    assert_int_equal(unwind_walk(&unwinder, &mem, &regs, NULL, ours, DEPTH, &cut), n);
    assert_int_equal(cut, 0);
    for (int i = 1; i < n; i++)
        assert_int_equal(ours[i], (uint64_t)(uintptr_t)theirs[i]);
    sink++;
}

static NOINLINE void nested(int n) {
    if (n)
        nested(n - 1);
    else
        compare();
    sink++;
}

/* A frame of unknown size, whose CFA is found by rbp. */
static NOINLINE void with_alloca(int n) {
    volatile char *p = alloca((size_t)n * 16 + 1);
    p[0] = 1;
    nested(n);
    sink += p[0];
}

/* An aligned frame, whose CFA is found by an expression. */
static NOINLINE void realigned(int n) {
    volatile char a[64] __attribute__((aligned(64)));
    volatile char *p = alloca((size_t)n * 16 + 1);
    a[0] = p[0] = 1;
    with_alloca(n);
    sink += a[0] + p[0];
}

static int by_qsort(const void *a, const void *b) {
    if (sink == -1)
        return 0;
    realigned(3);
    return *(const int *)a - *(const int *)b;
}

static void on_signal(int signo) {
    sink += signo;
    nested(2);
}

static void same_as_backtrace(void **state) {
    int three[] = {3, 1, 2};
    (void)state;
    if (SANITIZED)
        skip();
    for (int i = 0; i < 30; i++) {
        nested(i);
        with_alloca(i);
        realigned(i);
    }
    qsort(three, 3, sizeof three[0], by_qsort); /* through libc's frames */
}

static void through_a_signal_frame(void **state) {
    (void)state;
    if (SANITIZED)
        skip();
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    signal(SIGUSR1, SIG_DFL);
}

/* ---- with the last walk at hand ---- */

static struct unwind_memo memo;
static unsigned walks, shared;

static uint32_t rnd(void) {
    static uint32_t x = 2463534242u;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return x;
}

/* The same stack twice: with the memo of the last walk, wherever that was, and without a memo. */
static NOINLINE void both_ways(void) {
    static uint64_t with[DEPTH], without[DEPTH];
    ucontext_t uc;
    struct cfi_memory mem = {.read = guard_read, .ctx = &guard, .direct = 1};
    int cut, cut_with;
    assert_int_equal(getcontext(&uc), 0);
    struct unwind_regs regs = regs_of(&uc);
    size_t max = rnd() % 16 ? DEPTH : rnd() % 20 + 1;
    size_t n = unwind_walk(&unwinder, &mem, &regs, NULL, without, max, &cut);
    unwind_warm(&unwinder, &memo);
    assert_int_equal(unwind_walk(&unwinder, &mem, &regs, &memo, with, max, &cut_with), n);
    assert_int_equal(cut_with, cut);
    assert_memory_equal(with, without, n * sizeof *with);
    assert_int_equal(memo.n, n);
    walks++;
    shared += cut == 0;
}

/* Trees of calls: two functions that look alike on the stack, frames whose CFA depends on rbp, aligned frames, and the kernel's. */
static NOINLINE void wander(unsigned depth, unsigned seed);

static NOINLINE void wander_twin(unsigned depth, unsigned seed) {
    wander(depth, seed + 1);
    sink++;
}

static NOINLINE void wander_other_twin(unsigned depth, unsigned seed) {
    wander(depth, seed + 2);
    sink += 2;
}

static NOINLINE void wander_alloca(unsigned depth, unsigned seed) {
    volatile char *p = alloca((seed % 8) * 16 + 1);
    p[0] = 1;
    wander(depth, seed);
    sink += p[0];
}

static NOINLINE void wander_aligned(unsigned depth, unsigned seed) {
    volatile char a[64] __attribute__((aligned(64)));
    volatile char *p = alloca((seed % 4) * 16 + 1);
    a[0] = p[0] = 1;
    wander(depth, seed);
    sink += a[0] + p[0];
}

static unsigned depth_of_signal;

static void wander_in_handler(int signo) {
    sink += signo;
    wander(depth_of_signal, rnd());
}

static NOINLINE void wander(unsigned depth, unsigned seed) {
    for (unsigned i = 0; i < 3 && walks < 60000; i++) {
        if (depth == 0 || rnd() % 8 == 0) {
            both_ways();
            continue;
        }
        switch (rnd() % 16) {
        case 0:
            wander_alloca(depth - 1, seed);
            break;
        case 1:
            wander_aligned(depth - 1, seed);
            break;
        case 2:
            if (rnd() % 8 == 0) {
                depth_of_signal = depth - 1;
                raise(SIGUSR2);
            }
            break;
        default:
            if (rnd() % 2)
                wander_twin(depth - 1, seed);
            else
                wander_other_twin(depth - 1, seed);
        }
    }
    sink++;
}

static void the_last_walk_helps_and_changes_nothing(void **state) {
    struct sigaction sa = {.sa_handler = wander_in_handler, .sa_flags = SA_NODEFER};
    (void)state;
    sigaction(SIGUSR2, &sa, NULL);
    while (walks < 60000)
        wander(rnd() % 40, 0);
    signal(SIGUSR2, SIG_DFL);
    assert_true(shared > walks / 2); /* most went to the stack's end */
    /* The list of modules has lost one: what was known before must not be used. */
    memo.generation++;
    both_ways();
}

/* A frame that is in the memo and not on the stack any more: the caller's address is another one. */
static void a_changed_stack_is_walked_anew(void **state) {
    struct cfi_memory mem = {.read = guard_read, .ctx = &guard, .direct = 1};
    uint64_t pcs[DEPTH], again[DEPTH];
    ucontext_t uc;
    int cut;
    (void)state;
    if (SANITIZED)
        skip();
    assert_int_equal(getcontext(&uc), 0);
    struct unwind_regs regs = regs_of(&uc);
    size_t n = unwind_walk(&unwinder, &mem, &regs, &memo, pcs, DEPTH, &cut);
    assert_int_equal(cut, 0);
    /* Only the memo has this: if it is used without being checked, the walk shows it. */
    struct unwind_frame *f = memo.frame[memo.now];
    f[2].pc += 1;
    assert_int_equal(unwind_walk(&unwinder, &mem, &regs, &memo, again, DEPTH, &cut), n);
    assert_memory_equal(again, pcs, n * sizeof *pcs);
    /* And the memo then has the stack as it is. */
    f = memo.frame[memo.now];
    for (size_t i = 1; i < n; i++)
        assert_true(f[i].sp > f[i - 1].sp && f[i].pc == pcs[i]);
}

/* ---- a sleeping thread, read from outside ---- */

static int tid_of_sleeper;
static int wake_up[2];

static NOINLINE void sleeping(void) {
    char c;
    __atomic_store_n(&tid_of_sleeper, gettid(), __ATOMIC_RELEASE);
    assert_int_equal(read(wake_up[0], &c, 1), 1);
    sink++;
}

static void *sleeper(void *arg) {
    sleeping();
    sink++;
    return arg;
}

static void a_sleeping_thread(void **state) {
    pthread_t thread;
    static struct pywalk_page kept[32];
    struct pywalk_pages pages = {{memory_read, NULL}, 32, kept};
    struct cfi_memory mem = {.read = pywalk_pages_read, .ctx = &pages};
    struct unwind_regs regs = {0};
    uint64_t pcs[DEPTH];
    char path[64], text[256];
    int cut, tid, in_sleeping = 0, in_sleeper = 0;
    (void)state;
    if (SANITIZED)
        skip();
    assert_int_equal(pipe(wake_up), 0);
    assert_int_equal(pthread_create(&thread, NULL, sleeper, NULL), 0);
    while (!(tid = __atomic_load_n(&tid_of_sleeper, __ATOMIC_ACQUIRE)))
        usleep(1000);
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    for (int i = 0; i < 5000 && !regs.sp; i++) { /* until it sleeps in read() */
        int fd = open(path, O_RDONLY);
        ssize_t n = read(fd, text, sizeof text - 1);
        close(fd);
        text[n > 0 ? n : 0] = 0;
        if (text[0] == '0')
            sscanf(text, "%*s %*s %*s %*s %*s %*s %*s %lx %lx", &regs.sp, &regs.pc);
        usleep(1000);
    }
    assert_true(regs.sp != 0);
    pywalk_pages_forget(&pages);
    size_t n = unwind_walk(&unwinder, &mem, &regs, NULL, pcs, DEPTH, &cut);
    for (size_t i = 1; i < n; i++) {
        in_sleeping += pcs[i] - (uint64_t)(uintptr_t)sleeping < 200;
        in_sleeper += pcs[i] - (uint64_t)(uintptr_t)sleeper < 200;
    }
    if (memmem((void *)(uintptr_t)read, 64, "\x55\x48\x89\xe5", 4)) {
        /* A libc with frame pointers (Ubuntu): its caller is found by rbp alone, which is not known. The unwinder does not guess. */
        assert_int_equal(n, 1);
        assert_int_equal(cut, 1);
    } else {
        assert_int_equal(cut, 0); /* down to clone() */
        assert_true(in_sleeping > 0);
        assert_true(in_sleeper > 0); /* they may lie within 200 bytes of each other */
    }
    assert_int_equal(write(wake_up[1], "x", 1), 1);
    pthread_join(thread, NULL);
}

/* ---- what is not there ---- */

static void garbage_ends_the_walk(void **state) {
    struct cfi_memory mem = {.read = guard_read, .ctx = &guard, .direct = 1};
    struct unwind_regs regs = {.pc = (uint64_t)(uintptr_t)compare + 40,
                               .known = UNWIND_BP | UNWIND_BX};
    uint64_t pcs[DEPTH];
    int cut;
    (void)state;
    static const uint64_t bad[] = {
        0, 8, 0x1000, ~7ull, 0x8000000000000000ull, 0xdeadbeefdeadbee8ull};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        regs.sp = regs.bp = bad[i];
        assert_int_equal(unwind_walk(&unwinder, &mem, &regs, NULL, pcs, DEPTH, &cut), 1);
        assert_int_equal(cut, 1);
    }
    assert_true(modmap_refresh(&unwinder.map) >= 0); /* the list of now */
    regs.pc = 0x12345;                               /* in no module */
    regs.sp = (uint64_t)(uintptr_t)&regs;
    assert_int_equal(unwind_walk(&unwinder, &mem, &regs, NULL, pcs, DEPTH, &cut), 1);
    assert_int_equal(cut, 1);
    assert_int_equal(unwinder.map.missed, 1);
    /* The list was searched for it: it is not searched again for its neighbours, but it is for others. */
    assert_int_equal(modmap_refresh(&unwinder.map), 0);
    assert_int_equal(unwinder.map.missed, 0);
    regs.pc = 0x12355;
    unwind_walk(&unwinder, &mem, &regs, NULL, pcs, DEPTH, &cut);
    assert_int_equal(unwinder.map.missed, 0);
    regs.pc = 0x92345;
    unwind_walk(&unwinder, &mem, &regs, NULL, pcs, DEPTH, &cut);
    assert_int_equal(unwinder.map.missed, 1);
}

/* While the loader is at work its list is not read; it is read soon after, even if no walk has missed a module. */
static void a_busy_loader_is_asked_again(void **state) {
    static struct modmap fresh;
    (void)state;
    for (int have = 0; have < 2; have++) {
        _r_debug.r_state = RT_ADD;
        assert_int_equal(modmap_refresh(&fresh), -EAGAIN);
        assert_int_equal(fresh.missed, 1);
        assert_int_equal(fresh.view != NULL, have);
        _r_debug.r_state = RT_CONSISTENT;
        assert_int_equal(modmap_refresh(&fresh), !have);
        assert_int_equal(fresh.missed, 0);
    }
    munmap(fresh.view, fresh.view->bytes);
}

static void unmapped_memory_is_an_error(void **state) {
    static struct pywalk_page kept[32];
    struct pywalk_pages pages = {{memory_read, NULL}, 32, kept};
    uint8_t *p = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t buf[8192];
    uint64_t at = (uint64_t)(uintptr_t)p;
    (void)state;
    assert_true(p != MAP_FAILED);
    munmap(p + 8192, 4096);
    for (size_t i = 0; i < 8192; i++)
        p[i] = (uint8_t)(i * 7);
    guard_forget(&guard);
    pywalk_pages_forget(&pages);
    assert_int_equal(guard_read(&guard, at + 100, buf, 8000), 0);
    assert_memory_equal(buf, p + 100, 8000);
    assert_int_equal(pywalk_pages_read(&pages, at + 100, buf, 8000), 0);
    assert_memory_equal(buf, p + 100, 8000);
    assert_int_equal(guard_read(&guard, at + 8190, buf, 4), -EFAULT);
    assert_int_equal(pywalk_pages_read(&pages, at + 8190, buf, 4), -EFAULT);
    assert_int_equal(guard_read(&guard, ~0ull - 2, buf, 8), -EFAULT);
    assert_int_equal(pywalk_pages_read(&pages, ~0ull - 2, buf, 8), -EFAULT);
    munmap(p, 8192);
    guard_forget(&guard);
    assert_int_equal(guard_read(&guard, at, buf, 8), -EFAULT);
}

/* Code runs where a library was, which has been unloaded since the list of modules was read; a thread has read the library's table before. */
static void the_table_of_an_unloaded_library(void **state) {
    static struct unwind stale;
    union {
        struct modmap_view view;
        uint8_t space[sizeof(struct modmap_view) + sizeof(struct modmap_module)];
    } list = {.view.n = 1};
    struct cfi_memory mem = {.read = guard_read, .ctx = &guard, .direct = 1};
    uint64_t pcs[2], code = 0x10000000;
    struct unwind_regs regs = {.pc = code, .sp = (uint64_t)(uintptr_t)&regs};
    void *table = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int cut = 0;
    (void)state;
    assert_true(table != MAP_FAILED);
    list.view.module[0] = (struct modmap_module){code, code + 4096, (uint64_t)(uintptr_t)table};
    stale.map.view = &list.view;
    guard_forget(&guard);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(unwind_walk(&stale, &mem, &regs, NULL, pcs, 2, &cut), 1);
        assert_int_equal(cut, 1);
        munmap(table, 4096);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_backtrace),
        cmocka_unit_test(through_a_signal_frame),
        cmocka_unit_test(the_last_walk_helps_and_changes_nothing),
        cmocka_unit_test(a_changed_stack_is_walked_anew),
        cmocka_unit_test(a_sleeping_thread),
        cmocka_unit_test(garbage_ends_the_walk),
        cmocka_unit_test(a_busy_loader_is_asked_again),
        cmocka_unit_test(unmapped_memory_is_an_error),
        cmocka_unit_test(the_table_of_an_unloaded_library),
    };
    if (memory_init() || modmap_refresh(&unwinder.map) != 1)
        return 1;
    return cmocka_run_group_tests_name("unwind", tests, NULL, NULL);
}
