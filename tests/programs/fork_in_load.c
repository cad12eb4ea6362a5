/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that is preloaded, and forks while another thread is within the dynamic loader. The first thread, other than the main one,
 * that walks the loader's list (dl_iterate_phdr), or allocates while the list is being changed, is held there until the main thread, in
 * fork_then(), has forked or waits in fork's handlers. In a program with one thread, the other thread is the agent's.
 *
 *     arm();
 *     held()                       // whether a thread is being held, or was
 *     fork_then(a, b)              // forks a child that loads library a and opens b, which is loaded already; returns its status (waitpid)
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t each);

void arm(void);
int held(void);
int fork_then(const char *fresh, const char *known);

enum { NOBODY, HELD, GOES_ON };
static unsigned state, forking, armed;

void arm(void) {
    __atomic_store_n(&armed, 1, __ATOMIC_SEQ_CST);
}

static int main_waits(void) {
    char text[512] = "", path[64], *p;
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", getpid(), getpid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof text - 1) < 0)
        text[0] = 0;
    close(fd);
    p = strrchr(text, ')');
    return p && p[1] && p[2] == 'S';
}

static void hold(void) {
    const struct timespec step = {.tv_nsec = 100000};
    unsigned nobody = NOBODY;
    if (!armed || syscall(SYS_gettid) == getpid() ||
        !__atomic_compare_exchange_n(&state, &nobody, HELD, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return;
    while (__atomic_load_n(&state, __ATOMIC_SEQ_CST) == HELD &&
           !(__atomic_load_n(&forking, __ATOMIC_SEQ_CST) && main_waits()))
        nanosleep(&step, NULL);
    __atomic_store_n(&state, GOES_ON, __ATOMIC_SEQ_CST);
}

int held(void) {
    return __atomic_load_n(&state, __ATOMIC_SEQ_CST) != NOBODY;
}

int fork_then(const char *fresh, const char *known) {
    int status = -1;
    __atomic_store_n(&forking, 1, __ATOMIC_SEQ_CST);
    pid_t pid = fork();
    if (pid == 0) {
        armed = 0;
        alarm(100); /* it would wait for ever */
        _exit(!dlopen(fresh, RTLD_NOW) ? 1 : !dlopen(known, RTLD_NOW) ? 2 : 0);
    }
    __atomic_store_n(&state, GOES_ON, __ATOMIC_SEQ_CST);
    waitpid(pid, &status, 0);
    return status;
}

void *malloc(size_t n) {
    if (_r_debug.r_state != RT_CONSISTENT)
        hold();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t each) {
    if (_r_debug.r_state != RT_CONSISTENT)
        hold();
    return __libc_calloc(n, each);
}

struct walk {
    int (*fn)(struct dl_phdr_info *, size_t, void *);
    void *arg;
};

static int each(struct dl_phdr_info *info, size_t size, void *arg) {
    struct walk *w = arg;
    hold();
    return w->fn(info, size, w->arg);
}

int dl_iterate_phdr(int (*fn)(struct dl_phdr_info *, size_t, void *), void *arg) {
    static int (*next)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
    struct walk w = {fn, arg};
    if (!next)
        next = dlsym(RTLD_NEXT, "dl_iterate_phdr");
    return next(each, &w);
}
