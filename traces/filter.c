/* SPDX-License-Identifier: Apache-2.0 */
#include "traces/filter.h"

#include <errno.h>
#include <gnu/libc-version.h>
#include <linux/audit.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "traces/hash.h"
#include "traces/proc.h"

#ifndef PTRACE_SECCOMP_GET_FILTER
#define PTRACE_SECCOMP_GET_FILTER 0x420c
#endif

struct call {
    long number;
    const char *name;
};
#define CALL(name)                                                                                 \
    { SYS_##name, #name }
/* Calls that a Python program may never make by itself. Each fails or does nothing with the arguments of filter_kills(); the last one ends the child. */
static const struct call calls[] = {
    /* clang-format off */
    CALL(prctl), CALL(process_vm_readv), CALL(membarrier), CALL(close_range), CALL(rt_tgsigqueueinfo), CALL(sched_setattr),
    CALL(sched_getaffinity), CALL(sched_yield), CALL(rt_sigpending), CALL(rt_sigprocmask), CALL(rt_sigtimedwait), CALL(clock_gettime),
    CALL(clock_nanosleep), CALL(futex), CALL(set_robust_list), CALL(rseq), CALL(madvise), CALL(mremap), CALL(fallocate), CALL(ftruncate),
    CALL(flock), CALL(pwrite64), CALL(pread64), CALL(fstatfs), CALL(statfs), CALL(link), CALL(rename), CALL(unlink), CALL(mkdir), CALL(rmdir),
    CALL(access), CALL(faccessat2), CALL(readlinkat), CALL(getcwd), CALL(uname), CALL(sysinfo), CALL(getrusage), CALL(getppid), CALL(getrandom),
    CALL(prlimit64), CALL(poll), CALL(write), CALL(fcntl), CALL(tgkill), CALL(memfd_create), CALL(exit),
    /* clang-format on */
};
/* Calls that cannot be tried, or must be allowed if a child could be made at all: loading libraries, starting threads, running on. */
static const struct call others[] = {
    /* clang-format off */
    CALL(restart_syscall), CALL(openat), CALL(read), CALL(close), CALL(newfstatat), CALL(lseek), CALL(readlink), CALL(getdents64),
    CALL(mmap), CALL(munmap), CALL(mprotect), CALL(brk), CALL(clone), CALL(clone3), CALL(wait4), CALL(waitid), CALL(unlinkat),
    CALL(rt_sigaction), CALL(rt_sigreturn), CALL(getpid), CALL(gettid), CALL(geteuid), CALL(exit_group),
    /* clang-format on */
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Makes a child by the system call that pthread_create() uses, which must be allowed anyway; a filter cannot see the arguments of clone3. */
static long make_child(void) {
    struct clone_args none = {0};
    long pid = -1;
    errno = ENOSYS;
    if (atoi(gnu_get_libc_version() + 2) >= 34) /* 2.34 */
        pid = syscall(SYS_clone3, &none, sizeof none);
    return pid < 0 && errno == ENOSYS ? syscall(SYS_clone, 0L, 0L, 0L, 0L, 0L) : pid;
}

const char *filter_kills(int known) {
    static uint32_t passed;
    char text[4096];
    sigset_t all, mask;
    int status = 0;
    /* Not by proc_read_file(), which calls pread(): the program need not be allowed to call that, as it must openat, read and close. */
    int fd = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
    ssize_t have = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[have > 0 ? have : 0] = 0;
    if (fd >= 0)
        close(fd);
    const char *mode = strstr(text, "\nSeccomp:\t"), *n = strstr(text, "\nSeccomp_filters:\t");
    uint32_t *at, is = mode ? (uint32_t)strtoul(mode + 10, NULL, 10) : 0;
    is |= is && n ? (uint32_t)strtoul(n + 18, NULL, 10) << 2
                  : 0; /* number of filters; none before Linux 5.9 */
    if (known)
        passed = is;
    if (!is || known || (is == passed && is >> 2))
        return NULL;
    at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return "mmap";
    sigfillset(&all); /* also SIGSYS, so that it ends the child even if the program handles it */
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    long pid = make_child(); /* no signal at its end: the program's wait() does not see it */
    if (!pid) {
        syscall(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0); /* no core file */
        for (; *at < COUNT(calls); ++*at)
            syscall(calls[*at].number, -1L, 0L, 0L, 0L, 0L, 0L);
        for (;;) /* only reached when a filter made `exit` fail */
            syscall(SYS_exit_group, 0);
    }
    while (pid > 0 && waitpid((pid_t)pid, &status, __WALL) < 0 && errno == EINTR)
        ;
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    const char *call = pid < 0 ? "clone" : WIFEXITED(status) ? NULL : calls[*at].name;
    munmap(at, sizeof *at);
    passed = call ? 0 : is;
    return call;
}

/* ---- judging a filter that was read ---- */

/* What the accumulator holds before an instruction, if it is the same on all paths to it. */
struct before {
    uint32_t a;
    uint8_t reached, known;
};

static void reach(struct before *to, uint32_t a, uint8_t known) {
    if (!to->reached)
        *to = (struct before){a, 1, known};
    else if (!known || to->a != a)
        to->known = 0;
}

/* Whether some path through the program, for this call number, ends in a signal. Jumps only go forward, so one pass is enough. Values
 * loaded from the arguments, the scratch memory or X may be anything. */
static int kills(const struct sock_filter *f, size_t n, uint32_t number, struct before *before) {
    memset(before, 0, (n + 1) * sizeof *before);
    before[0].reached = 1;
    for (size_t i = 0; i < n; i++) {
        uint32_t a = before[i].a, k = f[i].k, code = f[i].code, holds;
        uint8_t known = before[i].known;
        size_t yes = i + 1 + f[i].jt, no = i + 1 + f[i].jf;
        if (!before[i].reached)
            continue;
        switch (BPF_CLASS(code)) {
        case BPF_RET:
            a = BPF_RVAL(code) == BPF_K ? k : known ? a : SECCOMP_RET_KILL_THREAD;
            if ((int32_t)(a & SECCOMP_RET_ACTION_FULL) < (int32_t)SECCOMP_RET_ERRNO)
                return 1; /* in the kernel's order, below ERRNO: kill process, kill thread, trap */
            continue;
        case BPF_JMP:
            if (BPF_OP(code) == BPF_JA) {
                yes = no = i + 1 + k;
            } else if (known && BPF_SRC(code) == BPF_K) {
                holds = BPF_OP(code) == BPF_JEQ   ? a == k
                        : BPF_OP(code) == BPF_JGT ? a > k
                        : BPF_OP(code) == BPF_JGE ? a >= k
                                                  : a & k;
                yes = no = holds ? yes : no;
            }
            reach(&before[yes < n ? yes : n], a, known);
            reach(&before[no < n ? no : n], a, known);
            continue;
        case BPF_LD:
            known =
                code == (BPF_LD | BPF_W | BPF_ABS) && (k == offsetof(struct seccomp_data, nr) ||
                                                       k == offsetof(struct seccomp_data, arch));
            a = k == offsetof(struct seccomp_data, nr) ? number : AUDIT_ARCH_X86_64;
            break;
        case BPF_ALU:
            known = known && code == (BPF_ALU | BPF_AND | BPF_K);
            a &= k;
            break;
        case BPF_MISC:
            known = known && BPF_MISCOP(code) == BPF_TAX;
            break;
        default: /* stores to X or the scratch memory */
            break;
        }
        reach(&before[i + 1], a, known);
    }
    return 0;
}

const char *filter_judge(const struct sock_filter *code, size_t n) {
    struct before *before = calloc(n + 1, sizeof *before);
    const char *name = before ? NULL : "malloc";
    for (size_t i = 0; before && !name && i < COUNT(others) + COUNT(calls); i++) {
        const struct call *c = i < COUNT(others) ? &others[i] : &calls[i - COUNT(others)];
        if (kills(code, n, (uint32_t)c->number, before))
            name = c->name;
    }
    free(before);
    return name;
}

int filter_judge_thread(pid_t tid, struct filter_seen *seen, const char **call) {
    struct sock_filter *code = malloc(BPF_MAXINSNS * sizeof *code);
    int err = code ? 0 : -ENOMEM;
    for (long k = 0; !err && !*call; k++) {
        long n = ptrace(PTRACE_SECCOMP_GET_FILTER, tid, (void *)k, code);
        if (n < 0) {
            err = errno == ENOENT && k > 0 ? 0 : -errno;
            break;
        }
        uint64_t hash = hash_bytes(HASH_START, code, (size_t)n * sizeof *code);
        unsigned i = 0;
        while (i < seen->n && seen->hash[i] != hash)
            i++;
        if (i < seen->n)
            continue;
        *call = filter_judge(code, (size_t)n);
        if (i < COUNT(seen->hash))
            seen->hash[seen->n++] = hash;
    }
    free(code);
    return err;
}
