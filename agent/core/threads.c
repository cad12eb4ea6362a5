/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/core/state.h"

#define MOST   24
#define LARGER 16 /* the libraries' thread-local data may leave no room in a small stack */

struct start {
    void *(*run)(void *);
    void *arg;
    const char *name;
    uint32_t life;
};

static uint32_t made, begun; /* (a) threads of ours: created; running. Both until they end */
static uint32_t ours[MOST];  /* (a) their ids, 0: free */
static uint64_t forked;      /* pthread_self() of the thread that made this process, if one did */
static uint32_t life;        /* (a) counts forks: a thread that forked is not ours in the child */
static uint32_t main_ends;   /* (a) the main thread is on its way out */
static uint32_t main_ended;  /* (a) */
static int outlived;         /* service thread: others went on when the main thread had ended */
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int usable;

static int swap_id(uint32_t from, uint32_t to) {
    for (unsigned i = 0; i < MOST; i++) {
        uint32_t expected = from;
        if (__atomic_compare_exchange_n(&ours[i], &expected, to, 0, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            return 1;
    }
    return 0;
}

static void ended(void *s) {
    if (((struct start *)s)->life != __atomic_load_n(&life, __ATOMIC_RELAXED))
        return;
    swap_id((uint32_t)gettid(), 0);
    __atomic_fetch_sub(&begun, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_sub(&made, 1, __ATOMIC_SEQ_CST);
}

static void *run(void *arg) {
    struct start s = *(struct start *)arg;
    free(arg);
    prctl(PR_SET_NAME, s.name, 0, 0, 0);
    swap_id(0, (uint32_t)gettid());
    __atomic_fetch_add(&begun, 1, __ATOMIC_SEQ_CST);
    pthread_cleanup_push(ended, &s); /* CPython may end a thread that asks for the GIL */
    s.run(s.arg);
    pthread_cleanup_pop(1);
    return NULL;
}

int thread_spawn(pthread_t *join, const char *name, size_t stack, void *(*fn)(void *), void *arg) {
    struct start *s = malloc(sizeof *s);
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, saved;
    int err = s ? pthread_attr_init(&attr) : ENOMEM;
    if (err) {
        free(s);
        return -err;
    }
    *s = (struct start){fn, arg, name, __atomic_load_n(&life, __ATOMIC_RELAXED)};
    __atomic_fetch_add(&made, 1, __ATOMIC_SEQ_CST);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    pthread_attr_setdetachstate(&attr, join ? PTHREAD_CREATE_JOINABLE : PTHREAD_CREATE_DETACHED);
    if (stack)
        pthread_attr_setstacksize(&attr, stack);
    err = pthread_create(&thread, &attr, run, s);
    if (err == EINVAL && stack) {
        pthread_attr_setstacksize(&attr, stack * LARGER);
        err = pthread_create(&thread, &attr, run, s);
    }
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    pthread_attr_destroy(&attr);
    if (err) {
        __atomic_fetch_sub(&made, 1, __ATOMIC_SEQ_CST);
        free(s);
    } else if (join) {
        *join = thread;
    }
    return -err;
}

int threads_count(void) {
    return (int)__atomic_load_n(&made, __ATOMIC_SEQ_CST);
}

/* ---- who is left ---- */

static void main_thread_ends(void *unused) {
    (void)unused;
    __atomic_store_n(&main_ends, 1, __ATOMIC_RELEASE);
    agent_wake();
}

static void make_key(void) {
    usable = !pthread_key_create(&key, main_thread_ends);
}

void threads_watch_main(void) {
    pthread_once(&once, make_key);
    if (usable && syscall(SYS_gettid) == syscall(SYS_getpid))
        pthread_setspecific(key, &key);
}

int threads_read_stat(const char *path, char *state, unsigned *threads, int *code) {
    char buf[1024], *p;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, buf, sizeof buf - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return -EIO;
    buf[n] = 0;
    p = strrchr(buf, ')');
    if (!p || sscanf(p, ") %c", state) != 1)
        return -EIO;
    for (int field = 2; p && field < 52; field++) {
        if (field == 20)
            *threads = (unsigned)strtoul(p, NULL, 10);
        p = strchr(p + 1, ' ');
    }
    *code = p ? atoi(p) : 0;
    return 0;
}

enum threads_left threads_left(int *status) {
    uint32_t before = __atomic_load_n(&begun, __ATOMIC_SEQ_CST);
    unsigned threads = 0;
    char state = 0;
    if (threads_read_stat("/proc/self/stat", &state, &threads, status))
        return THREADS_MAIN;
    if (state != 'Z' && state != 'X')
        return __atomic_load_n(&main_ends, __ATOMIC_ACQUIRE) ? THREADS_ENDING : THREADS_MAIN;
    __atomic_store_n(&main_ended, 1, __ATOMIC_RELEASE);
    /* The dead main thread is counted until the process is gone. One of ours that ends or begins meanwhile counts as another's,
     * until the next time. */
    if (threads - 1 > before || before != __atomic_load_n(&begun, __ATOMIC_SEQ_CST)) {
        outlived = 1;
        return THREADS_OTHERS;
    }
    if (outlived) /* of several threads the last one's code counts, as far as is known 0 */
        *status = 0;
    return THREADS_OURS;
}

int threads_is_ours(uint32_t tid) {
    /* One that has begun to exist and not to run has not said its id; it is not the main thread. */
    return swap_id(tid, tid) ||
           (tid != (uint32_t)getpid() &&
            __atomic_load_n(&made, __ATOMIC_SEQ_CST) != __atomic_load_n(&begun, __ATOMIC_SEQ_CST));
}

uint32_t threads_forked(uint64_t ident) {
    return ident == forked ? (uint32_t)getpid() : 0;
}

int threads_main_ended(void) {
    return (int)__atomic_load_n(&main_ended, __ATOMIC_ACQUIRE);
}

static void *leave(void *unused) {
    (void)unused;
    exit(0);
}

/* A main thread that ended by the bare system call has a code, and glibc had no part in it. */
void threads_exit(int status) {
    if (!status) {
        if (!thread_spawn(NULL, "probing-exit", 0, leave,
                          NULL)) /* handlers may want a whole stack */
            for (;;)
                pause();
        exit(0);
    }
    for (;;)
        syscall(SYS_exit_group, status >> 8);
}

void threads_after_fork(void) {
    __atomic_fetch_add(&life, 1, __ATOMIC_RELAXED);
    memset(ours, 0, sizeof ours);
    forked = (uint64_t)pthread_self();
    made = begun = main_ends = main_ended = 0;
    outlived = 0;
}
