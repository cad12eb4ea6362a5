/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the inspect library that stop a process and call functions in it, tried on a child. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gdbplugin/inject.h"
#include "gdbplugin/stop.h"
#include "traces/proc.h"

/* What the child and the test share. */
static volatile struct {
    uint64_t turns, signals, woken;
    int ready, quit, started;
} * shared;

static void on_signal(int sig) {
    (void)sig;
    shared->signals++;
}

static void *turn(void *arg) {
    (void)arg;
    __atomic_fetch_add(&shared->started, 1, __ATOMIC_SEQ_CST);
    while (!shared->quit)
        shared->turns++;
    return NULL;
}

static void *doze(void *arg) {
    struct timespec t = {0, 300000000};

    (void)arg;
    __atomic_fetch_add(&shared->started, 1, __ATOMIC_SEQ_CST);
    while (!shared->quit) {
        if (nanosleep(&t, NULL) == 0)
            shared->woken++;
    }
    return NULL;
}

/* call_function() makes the child call this. */
static uint64_t add_up(uint64_t a, uint64_t b) {
    return a * 1000 + b + strlen("xyz");
}
static uint64_t measure(uint64_t string, uint64_t unused) {
    (void)unused;
    return strlen((const char *)(uintptr_t)string);
}
static uint64_t *volatile nowhere = (uint64_t *)8;
static uint64_t crash(void) {
    return *nowhere;
}
static uint64_t wait_for_quit(void) {
    while (!shared->quit) {
    }
    return 99;
}

static pid_t child;

static int start_child(void **state) {
    pthread_t t;

    (void)state;
    shared->quit = shared->started = 0;
    child = fork();
    if (child == 0) {
        struct sigaction sa = {.sa_handler = on_signal};
        sigaction(SIGUSR1, &sa, NULL);
        pthread_create(&t, NULL, turn, NULL);
        pthread_create(&t, NULL, doze, NULL);
        while (shared->started < 2)
            usleep(1000);
        shared->ready = 1;
        while (!shared->quit)
            pause();
        _exit(0);
    }
    while (!shared->ready)
        usleep(1000);
    return 0;
}

static int end_child(void **state) {
    (void)state;
    shared->ready = 0;
    kill(child, SIGKILL);
    /* A failed test may have left some of its threads traced: the child does not end before these are reaped. */
    pid_t one;
    while ((one = waitpid(-1, NULL, __WALL)) > 0 && one != child)
        ;
    return one == child ? 0 : -1;
}

static void test_stop(void **state) {
    uint64_t before;
    struct stop s;

    (void)state;
    assert_int_equal(stop_seize(&s, child, 20000), 0);
    assert_int_equal(s.n, 3);
    before = shared->turns;
    usleep(20000);
    assert_true(shared->turns == before);
    /* memory is read, over a page's end too; what is not there is not */
    uint64_t a = 0, b = 0;
    assert_int_equal(stop_read(&s, (uintptr_t)&shared, &a, sizeof a), 0);
    assert_true(a == (uintptr_t)shared);
    assert_int_equal(stop_read(&s, 8, &b, sizeof b), -EFAULT);
    stop_release(&s);
    stop_release(&s);
    while (shared->turns == before)
        usleep(1000);
    assert_int_equal(stop_seize(&s, 1 << 22, 100), -ESRCH);
}

/* A thread that gets no processor in time is not stopped, but stays attached: the next attempt finds it stopped. */
static void test_stop_after_one_that_came_too_late(void **state) {
    struct stop s;
    char by[32];
    int late = 0;

    (void)state;
    for (int i = 0; i < 1000 && late < 5; i++) {
        int rc = stop_seize(&s, child, 0);
        late += rc == -ETIMEDOUT;
        if (rc == 0)
            stop_release(&s);
        else
            assert_int_equal(rc, -ETIMEDOUT);
        if (i % 2) /* its stop has come meanwhile, or not */
            usleep(10000);
        assert_int_equal(stop_seize(&s, child, 20000), 0);
        assert_int_equal(s.n, 3);
        stop_release(&s);
    }
    assert_int_equal(late, 5);
    uint64_t before = shared->turns;
    while (shared->turns == before)
        usleep(1000);
    assert_int_equal(proc_status(child, 0, "TracerPid", by, sizeof by), 0);
    assert_string_equal(by, "0");
}

static void test_signals_are_not_lost(void **state) {
    (void)state;
    shared->signals = 0;
    for (int i = 1; i <= 50; i++) {
        struct stop s;
        kill(child, SIGUSR1);
        assert_int_equal(stop_seize(&s, child, 20000), 0);
        stop_release(&s);
        for (int k = 0; k < 20000 && shared->signals < (uint64_t)i; k++)
            usleep(1000);
        assert_true(shared->signals == (uint64_t)i);
    }
}

static void test_stacks(void **state) {
    static struct native_frame f[NATIVE_MAX];
    struct native_name name;
    int complete, spinning = 0;
    struct proc_maps maps;
    struct native *n;
    struct stop s;

    (void)state;
    assert_int_equal(proc_maps_read(child, &maps), 0);
    struct native_source source = {
        &maps, {pywalk_read_process, (void *)(intptr_t)child}, child, NULL};
    assert_int_equal(native_open(&n, &source, NATIVE_DEBUG), 0);
    assert_int_equal(stop_seize(&s, child, 20000), 0);
    for (size_t i = 0; i < s.n; i++) {
        int k = native_walk(n, (struct pywalk_mem){stop_read, &s}, s.v[i].tid, &s.v[i].regs, 1, f,
                            NATIVE_MAX, &complete);
        assert_true(k >= 2 && complete);
        for (int j = 0; j < k; j++) {
            native_name(n, f[j].probe, &name);
            if (strcmp(name.symbol, "turn") == 0) {
                spinning++;
                assert_string_equal(name.module, "test_inspect_process");
            }
        }
    }
    assert_int_equal(spinning, 1);
    stop_release(&s);
    native_close(n);
    proc_maps_free(&maps);
}

/* Calls on each of the three threads: one spins, one sleeps in nanosleep, one in pause. */
static void test_call(void **state) {
    struct call *c = malloc(sizeof *c);
    struct proc_maps maps;
    struct preflight pre;
    char *why = NULL;

    (void)state;
    assert_int_equal(proc_maps_read(child, &maps), 0);
    assert_int_equal(preflight(&pre, child, &maps, 8 /* INSPECT_FORCE */, &why), 0);
#ifdef __SANITIZE_ADDRESS__ /* puts its own dlopen in front */
    assert_true(pre.dlopen);
#else
    /* libc's own: a sanitizer puts another in front */
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    assert_true(pre.dlopen == (uintptr_t)dlsym(libc, "dlopen"));
    dlclose(libc);
#endif
    shared->signals = 0;
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < 3; i++) {
            uint64_t result = 0, at = 0;
            struct stop s;

            assert_int_equal(stop_seize(&s, child, 20000), 0);
            assert_int_equal(call_begin(c, &s, i, &pre.code), 0);
            assert_int_equal(call_function(c, (uintptr_t)add_up, 7, 5, 20000, &result), 0);
            assert_int_equal(result, 7008);
            assert_int_equal(call_string(c, "/some/path", &at), 0);
            assert_int_equal(call_function(c, (uintptr_t)measure, at, 0, 20000, &result), 0);
            assert_int_equal(result, 10);
            assert_int_equal(call_function(c, (uintptr_t)crash, 0, 0, 20000, &result), -EFAULT);
            if (i == 0)
                kill(child, SIGUSR1);
            assert_int_equal(call_end(c), 0);
            stop_release(&s);
        }
    }
    /* it goes on as before, with its signals */
    uint64_t turns = shared->turns, woken = shared->woken;
    for (int k = 0;
         k < 5000 && (shared->turns == turns || shared->woken == woken || !shared->signals); k++)
        usleep(1000);
    assert_true(shared->turns > turns && shared->woken > woken && shared->signals > 0);
    assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
    proc_maps_free(&maps);
    free(c);
}

static void test_a_call_that_does_not_return(void **state) {
    struct call *c = malloc(sizeof *c);
    struct proc_maps maps;
    struct call_code code = {0};
    uint64_t result = 0, turns;
    struct stop s;

    (void)state;
    assert_int_equal(proc_maps_read(child, &maps), 0);
    assert_int_equal(call_find_restorer(child, &maps, proc_maps_library(&maps, "libc.so.6")->start,
                                        &code.restorer),
                     0);
    assert_int_equal(stop_seize(&s, child, 20000), 0);
    assert_int_equal(call_begin(c, &s, 0, &code), 0);
    assert_int_equal(call_function(c, (uintptr_t)wait_for_quit, 0, 0, 50, &result), -ETIMEDOUT);
    stop_release_others(&s, 0);
    assert_int_equal(call_function(c, 0, 0, 0, 50, &result), -ETIMEDOUT);
    assert_int_equal(call_end(c), 0);
    stop_release(&s);
    /* left alone, the function goes on on its thread, and so do the others */
    turns = shared->turns;
    while (shared->turns == turns)
        usleep(1000);
    /* and one, in the middle of that one, that does in the end */
    assert_int_equal(stop_seize(&s, child, 20000), 0);
    assert_int_equal(call_begin(c, &s, 0, &code), 0);
    assert_int_equal(call_function(c, (uintptr_t)wait_for_quit, 0, 0, 50, &result), -ETIMEDOUT);
    shared->quit = 1;
    assert_int_equal(call_function(c, 0, 0, 0, 5000, &result), 0);
    assert_int_equal(result, 99);
    assert_int_equal(call_end(c), 0);
    stop_release(&s);
    proc_maps_free(&maps);
    free(c);
}

/* Returns whether the child's main thread has a SIGTRAP pending. */
static int has_trap(void) {
    char pending[32] = "";

    return proc_status(child, child, "SigPnd", pending, sizeof pending) == 0 &&
           strtoull(pending, NULL, 16) & 1u << (SIGTRAP - 1);
}

/* A thread is being stepped when its time is over: the last step's SIGTRAP may be reported only after the stop that ends the stepping. Here it
 * always is: on one processor, a SIGTRAP is sent before the thread runs again. */
static void test_a_step_that_is_not_over(void **state) {
    struct call *c = malloc(sizeof *c);
    struct proc_maps maps;
    struct call_code code = {0};
    cpu_set_t before, one;
    siginfo_t si;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    sched_setaffinity(0, sizeof one, &one);
    sched_setaffinity(child, sizeof one, &one);
    assert_int_equal(proc_maps_read(child, &maps), 0);
    assert_int_equal(call_find_restorer(child, &maps, proc_maps_library(&maps, "libc.so.6")->start,
                                        &code.restorer),
                     0);
    for (int round = 0, sent = 0; round < 1000 && sent < 10; round++) {
        uint64_t result = 0;
        struct stop s;

        assert_int_equal(stop_seize(&s, child, 20000), 0);
        if (call_begin(c, &s, 0, &code) == 0) {
            assert_int_equal(call_function(c, (uintptr_t)wait_for_quit, 0, 0, 1, &result),
                             -ETIMEDOUT);
            if (ptrace(PTRACE_GETSIGINFO, child, NULL, &si) != 0) { /* it does not stand */
                syscall(SYS_tgkill, child, child, SIGTRAP);
                sent++;
            }
            assert_int_equal(call_end(c), 0);
        }
        stop_release(&s);
        while (has_trap() && waitpid(child, NULL, WNOHANG) == 0)
            usleep(1000);
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
    }
    sched_setaffinity(0, sizeof before, &before);
    proc_maps_free(&maps);
    free(c);
}

static void test_proc(void **state) {
    struct proc_maps maps;
    char buf[256], st = 0;
    uint64_t mine, its;
    pid_t *tids;

    (void)state;
    assert_int_equal(proc_maps_read(getpid(), &maps), 0);
    assert_non_null(proc_maps_library(&maps, "libc.so.6"));
    assert_ptr_equal(proc_maps_library(&maps, "libc.so*"), proc_maps_library(&maps, "libc.so.6"));
    assert_null(proc_maps_library(&maps, "libc.so"));
    /* a copy that is only data, at a lower address, as LLDB makes it to read symbols */
    const struct proc_map *libc = proc_maps_library(&maps, "libc.so.6");
    struct proc_map copy = *libc;
    struct proc_maps more = {0};
    copy.start = 0x1000;
    copy.end = 0x2000;
    assert_int_equal(proc_maps_add(&more, &copy), 0);
    assert_int_equal(proc_maps_library(&more, "libc.so.6")->start, 0x1000);
    for (size_t i = 0; i < maps.n; i++)
        assert_int_equal(proc_maps_add(&more, &maps.v[i]), 0);
    assert_int_equal(proc_maps_library(&more, "libc.so.6")->start, libc->start);
    proc_maps_free(&more);
    assert_string_equal(proc_maps_at(&maps, (uintptr_t)buf)->path, "[stack]");
    assert_null(proc_maps_at(&maps, 1));
    proc_maps_free(&maps);
    assert_int_equal(proc_status(getpid(), 0, "Pid", buf, sizeof buf), 0);
    assert_int_equal(atoi(buf), getpid());
    assert_int_equal(proc_status(getpid(), 0, "Pi", buf, sizeof buf), -ENOENT);
    pthread_setname_np(pthread_self(), "a) S (b");
    assert_int_equal(proc_task(getpid(), getpid(), buf, sizeof buf, &st), 0);
    assert_string_equal(buf, "a) S (b");
    assert_int_equal(st, 'R');
    assert_int_equal(proc_tids(child, &tids), 3);
    assert_int_equal(tids[0], child);
    free(tids);
    assert_int_equal(proc_tids(-1, &tids), -ESRCH);
    assert_null(tids);
    assert_true(proc_is_running(child) && !proc_is_running(-1));
    assert_int_equal(proc_began(getpid(), &mine), 0);
    assert_int_equal(proc_began(child, &its), 0);
    assert_true(mine > 0 && its >= mine);
    assert_int_equal(proc_began(-1, &its), -ENOENT);
    assert_true(proc_namespace(0, "pid") && proc_same_namespace(child, "pid"));
    assert_int_equal(proc_namespace(getpid(), "mnt"), proc_namespace(0, "mnt"));
    assert_int_equal(proc_has_mapped(child, "/libc.so"), 1);
    assert_int_equal(proc_has_mapped(child, "/no such file"), 0);
    assert_int_equal(proc_has_mapped(-1, "/libc.so"), -ENOENT);
}

static void test_shared(void **state) {
    char link[64], name[256];
    FILE *f = tmpfile();

    (void)state;
    assert_non_null(f);
    assert_int_equal(ftruncate(fileno(f), 4096), 0);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fileno(f));
    ssize_t n = readlink(link, name, sizeof name - 1);
    assert_true(n > 0);
    name[n] = 0;
    *strstr(name, " (deleted)") = 0;
    assert_int_equal(proc_has_shared(getpid(), name), 0);
    void *const places[] = {NULL, (void *)0x12340000}; /* beside the libraries, and far below */
    for (unsigned i = 0; i < 2; i++) {
        void *p = mmap(places[i], 4096, PROT_READ,
                       MAP_SHARED | (places[i] ? MAP_FIXED_NOREPLACE : 0), fileno(f), 0);
        assert_ptr_not_equal(p, MAP_FAILED);
        assert_int_equal(proc_has_shared(getpid(), name), 1);
        assert_int_equal(proc_has_mapped(getpid(), name), 1);
        munmap(p, 4096);
    }
    assert_int_equal(proc_has_shared(getpid(), name), 0);
    assert_int_equal(proc_has_shared(-1, name), -ENOENT);
    fclose(f);
}

static int map_of(const char *text, struct proc_map *m, char *line) {
    strcpy(line, text);
    return proc_map_line(line, m);
}

static void test_map_line(void **state) {
    static const char *const bad[] = {"",
                                      "400000",
                                      "400000-41f000",
                                      "400000-41f000 r--p",
                                      "400000-41f000 r--p 0 fe:00",
                                      "400000-41g000 r--p 0 fe:00 12 /a",
                                      "-41f000 r--p 0 fe:00 12 /a",
                                      "400000-41f000 toolonger 0 fe:00 12 /a",
                                      "400000-41f000  0 fe:00 12 /a",
                                      "400000-41f000 r--p 0 fe 12 /a",
                                      "400000-41f000 r--p 0 fe:00 1a /a"};
    char line[256];
    struct proc_map m;

    (void)state;
    assert_int_equal(map_of("7fff0a000000-7fff0a001000 r-xp 0001e000 fe:0a 396513        "
                            "             /usr/lib/with a blank.so",
                            &m, line),
                     0);
    assert_true(m.start == 0x7fff0a000000 && m.end == 0x7fff0a001000 && m.offset == 0x1e000);
    assert_true(m.inode == 396513 && !m.deleted && strcmp(m.perms, "r-xp") == 0);
    assert_string_equal(m.path, "/usr/lib/with a blank.so");
    assert_int_equal(map_of("400000-41f000 rw-p 00000000 00:00 0 /a (deleted)", &m, line), 0);
    assert_true(m.deleted && strcmp(m.path, "/a") == 0);
    assert_int_equal(map_of("400000-41f000 rw-p 00000000 00:00 0 ", &m, line), 0);
    assert_string_equal(m.path, "");
    assert_int_equal(map_of("ffffffffff600000-ffffffffff601000 --xp 0 00:00 0", &m, line), 0);
    assert_true(m.start == 0xffffffffff600000 && !*m.path);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(map_of(bad[i], &m, line), -EBADMSG);
}

static void test_maps(void **state) {
    struct proc_maps maps;

    (void)state;
    assert_int_equal(
        proc_maps_parse("1000-2abc r--p 0000f000 fe:01 1234 /usr/lib/a b.so (deleted)\n"
                        "7ffedcba9000-7ffedcbaf000 rw-p 00000000 00:00 0 [stack]\n",
                        &maps),
        0);
    assert_int_equal(maps.n, 2);
    assert_true(maps.v[0].start == 0x1000 && maps.v[0].end == 0x2abc);
    assert_true(maps.v[0].offset == 0xf000 && maps.v[0].inode == 1234 && maps.v[0].deleted);
    assert_string_equal(maps.v[0].path, "/usr/lib/a b.so");
    assert_true(maps.v[1].start == 0x7ffedcba9000 && maps.v[1].end == 0x7ffedcbaf000);
    assert_ptr_equal(proc_maps_at(&maps, 0x7ffedcba9000), &maps.v[1]);
    assert_true(proc_maps_at(&maps, 0x2abb) == &maps.v[0] && !proc_maps_at(&maps, 0x2abc));
    proc_maps_free(&maps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map_line),
        cmocka_unit_test(test_maps),
        cmocka_unit_test(test_shared),
        cmocka_unit_test_setup_teardown(test_stop, start_child, end_child),
        cmocka_unit_test_setup_teardown(test_stop_after_one_that_came_too_late, start_child,
                                        end_child),
        cmocka_unit_test_setup_teardown(test_signals_are_not_lost, start_child, end_child),
        cmocka_unit_test_setup_teardown(test_stacks, start_child, end_child),
        cmocka_unit_test_setup_teardown(test_call, start_child, end_child),
        cmocka_unit_test_setup_teardown(test_a_call_that_does_not_return, start_child, end_child),
        cmocka_unit_test_setup_teardown(test_a_step_that_is_not_over, start_child, end_child),
        cmocka_unit_test_setup_teardown(test_proc, start_child, end_child),
    };

    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    alarm(120); /* a hang must end */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
