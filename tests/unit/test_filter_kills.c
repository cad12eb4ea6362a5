/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filter_kills() under filters that the kernel applies: it finds what filter_judge() reads in the same filter, leaves nothing behind, and returns
 * in one process only. Each filter is set in a child process, because nothing takes it away again.
 */
#include <errno.h>
#include <gnu/libc-version.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "traces/filter.h"
#include "traces/proc.h"

#define END   0xffffu
#define ERROR (SECCOMP_RET_ERRNO | EPERM)

/* Pairs of a system call's number and what is done at it; END. The calls in between that are not in it are allowed. */
struct rule {
    unsigned number, action;
};

static size_t program_of(const struct rule *r, struct sock_filter *f) {
    size_t n = 0;
    f[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (; r->number != END; r++) {
        f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, r->number, 0, 1);
        f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, r->action);
    }
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    return n;
}

static int set_filter(const struct rule *r) {
    struct sock_filter f[256];
    struct sock_fprog prog = {(unsigned short)program_of(r, f), f};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

static void handler(int signo) {
    (void)signo;
    _exit(0); /* in the hidden child it would look as if nothing had been killed */
}

/* What filter_kills() said in a process with the filter; "-" for NULL. `more`: a second filter, set after it was called with this `known`. */
static void in_kernel(const struct rule *r, int known, const struct rule *more, char *said,
                      size_t size) {
    int pipes[2], status;
    ssize_t n;
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t before, after;
        sigemptyset(&before);
        sigaddset(&before, SIGUSR2);
        signal(SIGSYS, handler);
        sigprocmask(SIG_SETMASK, &before, NULL);
        if (set_filter(r))
            _exit(77);
        const char *call = filter_kills(known);
        if (more)
            call = set_filter(more) ? "no second filter" : filter_kills(0);
        if (!call)
            call = "-";
        sigprocmask(SIG_SETMASK, NULL, &after);
        if (memcmp(&before, &after, 8))
            call = "another signal mask";
        else if (waitpid(-1, NULL, __WALL | WNOHANG) != -1 || errno != ECHILD)
            call = "a child was left";
        if (write(pipes[1], call, strlen(call)) <
            0) /* `write` is one of the calls of the filters: then the exit code tells */
            _exit(1);
        _exit(0);
    }
    close(pipes[1]);
    size_t have = 0;
    while ((n = read(pipes[0], said + have, size - 1 - have)) > 0)
        have += (size_t)n;
    said[have] = 0;
    close(pipes[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status == 77 << 8)
        skip(); /* no seccomp here */
    if (status)
        snprintf(said, size, "status %d", status);
}

static void assert_said(const struct rule *r, const char *want) {
    char said[64];
    in_kernel(r, 0, NULL, said, sizeof said);
    assert_string_equal(said, want);
}

/* Calls that filter_kills() or this test makes before anything is found out. */
static int is_needed(unsigned number) {
    static const unsigned needed[] = {
        SYS_restart_syscall, SYS_openat,   SYS_read,       SYS_close,          SYS_newfstatat,
        SYS_lseek,           SYS_readlink, SYS_getdents64, SYS_mmap,           SYS_munmap,
        SYS_mprotect,        SYS_brk,      SYS_clone,      SYS_clone3,         SYS_wait4,
        SYS_waitid,          SYS_unlinkat, SYS_getpid,     SYS_rt_sigaction,   SYS_rt_sigreturn,
        SYS_gettid,          SYS_geteuid,  SYS_exit_group, SYS_rt_sigprocmask, SYS_write,
    };
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (needed[i] == number)
            return 1;
    return 0;
}

static void the_kernel_agrees(void **state) {
    static const unsigned actions[] = {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD,
                                       SECCOMP_RET_TRAP, ERROR};
    unsigned found = 0;
    (void)state;
    for (unsigned number = 0; number < 500; number++) {
        struct sock_filter f[8];
        struct rule r[] = {{number, SECCOMP_RET_KILL_PROCESS}, {END, 0}};
        const char *name = filter_judge(f, program_of(r, f));
        if (!name || is_needed(number)) {
            if (!name && number % 50 == 0) /* of those that the agent never makes, a few */
                assert_said(r, "-");
            continue;
        }
        for (size_t k = 0; k < sizeof actions / sizeof *actions; k++) {
            r[0].action = actions[k];
            assert_said(r, actions[k] == ERROR ? "-" : name);
        }
        found++;
    }
    assert_true(found > 30);
    /* Of several the first that is tried is named; those that come before it return errors. */
    assert_said((const struct rule[]){{SYS_membarrier, ERROR},
                                      {SYS_getrusage, SECCOMP_RET_TRAP},
                                      {SYS_futex, ERROR},
                                      {END, 0}},
                "getrusage");
    /* A child whose exit() is refused ends all the same. */
    assert_said((const struct rule[]){{SYS_exit, ERROR}, {END, 0}}, "-");
}

static void the_hidden_child(void **state) {
    (void)state;
    if (atoi(gnu_get_libc_version() + 2) < 34)
        skip(); /* pthread_create() does not use clone3 there */
    /* Older containers' filters do not know clone3: pthread_create() then uses clone, and so does this. */
    assert_said((const struct rule[]){{SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS}, {END, 0}}, "-");
    assert_said((const struct rule[]){{SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS},
                                      {SYS_membarrier, SECCOMP_RET_KILL_PROCESS},
                                      {END, 0}},
                "membarrier");
    assert_said((const struct rule[]){{SYS_clone, ERROR}, {END, 0}}, "-");
    assert_said((const struct rule[]){{SYS_clone3, ERROR}, {END, 0}}, "clone");
    assert_said((const struct rule[]){{SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS},
                                      {SYS_clone, ERROR},
                                      {END, 0}},
                "clone");
}

/* Filters that were judged are not tried again, unless there is one more. */
static void known_filters(void **state) {
    static const struct rule kills[] = {{SYS_membarrier, SECCOMP_RET_KILL_PROCESS}, {END, 0}};
    static const struct rule allows[] = {{SYS_reboot, ERROR}, {END, 0}};
    char said[64], text[4096];
    (void)state;
    in_kernel(kills, 1, NULL, said, sizeof said);
    assert_string_equal(said, "-");
    assert_null(filter_kills(0)); /* this process has none */
    proc_read_file("/proc/thread-self/status", text, sizeof text);
    if (!strstr(text, "\nSeccomp_filters:\t"))
        skip(); /* before Linux 5.9 */
    in_kernel(allows, 0, kills, said, sizeof said);
    assert_string_equal(said, "membarrier");
    in_kernel(kills, 1, allows, said, sizeof said);
    assert_string_equal(said, "membarrier");
    in_kernel(kills, 0, allows, said, sizeof said); /* it was not passed */
    assert_string_equal(said, "membarrier");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_agrees),
        cmocka_unit_test(the_hidden_child),
        cmocka_unit_test(known_filters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
