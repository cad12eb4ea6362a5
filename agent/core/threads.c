/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/threads.h"

#include <dlfcn.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>

#include "agent/core/state.h"

#define MOST          24
#define EXEC_MS       100
#define STARTER_STACK (64u << 10)

struct start {
    void *(*run)(void *);
    void *arg;
    const char *name;
    uint32_t life;
    uint32_t taken; /* (a) */
};

static struct {
    uint32_t made, begun; /* (a) numbers of our threads created and running, until they end */
    uint32_t ids[MOST];   /* (a) kernel ids of our running threads; 0: free */
    uint32_t main_ends;   /* (a) the main thread is about to end */
    uint32_t main_ended;  /* (a) */
    int outlived;         /* other threads went on after the main thread; service thread only */
} ours;
/* Not on the heap: a thread's first free() would reserve a malloc arena, 64 MiB of address space, which most of our threads do not need. */
static struct start starts[MOST];
static uint32_t life; /* (a) counts forks: a thread that forked is not ours in the child */
static pthread_key_t key;
/* glibc takes a thread's static thread-local storage, which some libraries have much of, out of its stack. Returns its size and some KB more. */
static size_t (*reserved)(const pthread_attr_t *);

static int swap_id(uint32_t from, uint32_t to) {
    for (unsigned i = 0; i < MOST; i++)
        if (sys_swap(&ours.ids[i], from, to) == from)
            return 1;
    return 0;
}

static void ended(void *s) {
    if (((struct start *)s)->life != __atomic_load_n(&life, __ATOMIC_RELAXED))
        return;
    swap_id((uint32_t)gettid(), 0);
    __atomic_fetch_sub(&ours.begun, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_sub(&ours.made, 1, __ATOMIC_SEQ_CST);
}

static void *run(void *arg) {
    struct start *from = arg, s = *from;
    __atomic_store_n(&from->taken, 0, __ATOMIC_RELEASE);
    prctl(PR_SET_NAME, s.name, 0, 0, 0);
    swap_id(0, (uint32_t)gettid());
    __atomic_fetch_add(&ours.begun, 1, __ATOMIC_SEQ_CST);
    pthread_cleanup_push(ended, &s); /* CPython may end a thread that asks for the GIL */
    s.run(s.arg);
    pthread_cleanup_pop(1);
    return NULL;
}

/* Creates a thread. Returns 0, and s then belongs to the new thread; or an errno, and s stays the caller's. */
static int create(pthread_t *join, size_t stack, struct start *s) {
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, saved;
    int err = pthread_attr_init(&attr);
    if (err)
        return err;
    __atomic_fetch_add(&ours.made, 1, __ATOMIC_SEQ_CST);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    pthread_attr_setdetachstate(&attr, join ? PTHREAD_CREATE_JOINABLE : PTHREAD_CREATE_DETACHED);
    if (stack)
        pthread_attr_setstacksize(&attr, stack + (reserved ? reserved(&attr) : 0));
    /* While another thread is in execve(), which may still fail, the kernel creates no thread. A forked child has no other: there it is a limit that
     * forbids it, and the program must not wait. */
    for (int i = 0; (err = pthread_create(&thread, &attr, run, s)) == EAGAIN && i < EXEC_MS &&
                    !proc_is_alone();
         i++)
        sys_sleep(SYS_MS);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    pthread_attr_destroy(&attr);
    if (err)
        __atomic_fetch_sub(&ours.made, 1, __ATOMIC_SEQ_CST);
    else if (join)
        *join = thread;
    return err;
}

/* ---- tables of file descriptors ---- */

/* A new thread shares its creator's table. So once the service thread has a table of its own, a starter thread, which still shares the
 * program's table, creates the threads that are to share it. */
static __thread struct threads_starter *starter;

static void wait_for(sem_t *sem) {
    while (sem_wait(sem))
        ;
}

static void *starter_main(void *arg) {
    struct threads_starter *t = arg;
    for (wait_for(&t->asked); t->start; wait_for(&t->asked)) {
        t->err = create(NULL, t->stack, t->start);
        sem_post(&t->answered);
    }
    return NULL;
}

static int ask_starter(size_t stack, struct start *s) {
    starter->stack = stack;
    starter->start = s;
    sem_post(&starter->asked);
    wait_for(&starter->answered);
    return starter->err;
}

int threads_own_files(void) {
    if (syscall(SYS_close_range, 0u, UINT_MAX, CLOSE_RANGE_UNSHARE))
        return -errno;
    /* Occupy 0 to 2, so that what a library prints from our thread goes nowhere. */
    for (int i = 0; i < 3; i++)
        (void)!open("/", O_PATH | O_CLOEXEC);
    return 0;
}

int threads_split_files(struct threads_starter *t) {
    sem_init(&t->asked, 0, 0);
    sem_init(&t->answered, 0, 0);
    int err = thread_spawn(&t->thread, "probing-start", STARTER_STACK, starter_main, t);
    if (err)
        return err;
    starter = t;
    err = threads_own_files();
    if (err)
        threads_join_starter(t);
    return err;
}

void threads_join_starter(struct threads_starter *t) {
    t->start = NULL;
    sem_post(&t->asked);
    pthread_join(t->thread, NULL);
    starter = NULL;
}

int thread_spawn(pthread_t *join, const char *name, size_t stack, void *(*fn)(void *), void *arg) {
    struct start *s = starts;
    while (s < starts + MOST && sys_swap(&s->taken, 0, 1))
        s++;
    if (s == starts + MOST)
        return -ENOMEM;
    *s = (struct start){fn, arg, name, __atomic_load_n(&life, __ATOMIC_RELAXED), 1};
    int err = starter && !join ? ask_starter(stack, s) : create(join, stack, s);
    if (err)
        __atomic_store_n(&s->taken, 0, __ATOMIC_RELEASE);
    return -err;
}

int threads_count(void) {
    return (int)__atomic_load_n(&ours.made, __ATOMIC_SEQ_CST);
}

/* ---- which threads are left ---- */

static void main_thread_ends(void *unused UNUSED) {
    __atomic_store_n(&ours.main_ends, 1, __ATOMIC_RELEASE);
    agent_wake();
}

__attribute__((constructor)) static void make_key(void) {
    pthread_key_create(&key, main_thread_ends);
    reserved = dlsym(RTLD_DEFAULT, "__pthread_get_minstack"); /* not within a fork */
}

void threads_watch_main(void) {
    if (syscall(SYS_gettid) == syscall(SYS_getpid))
        pthread_setspecific(key, &key);
}

enum threads_left threads_left(int *status) {
    uint32_t before = __atomic_load_n(&ours.begun, __ATOMIC_SEQ_CST);
    char text[1024], *state, *code;
    proc_read_file("/proc/self/stat", text, sizeof text);
    if (!(state = proc_stat_field(text, 3)) || !(code = proc_stat_field(text, 52)))
        return THREADS_MAIN;
    *status = atoi(code);
    if (*state != 'Z' && *state != 'X')
        return __atomic_load_n(&ours.main_ends, __ATOMIC_ACQUIRE) ? THREADS_ENDING : THREADS_MAIN;
    __atomic_store_n(&ours.main_ended, 1, __ATOMIC_RELEASE);
    /* The kernel counts the dead main thread until the process is gone. A thread of ours that begins or ends during this check counts as
     * the program's, until the next check. */
    if (strtoul(proc_stat_field(text, 20), NULL, 10) - 1 > before ||
        before != __atomic_load_n(&ours.begun, __ATOMIC_SEQ_CST)) {
        ours.outlived = 1;
        return THREADS_OTHERS;
    }
    if (ours.outlived) /* the last thread's exit code counts; it is not known: take 0 */
        *status = 0;
    return THREADS_OURS;
}

int threads_is_ours(uint32_t tid, int perhaps) {
    /* A thread that was created but does not run yet is not in `ids`; it is not the main thread. This is read first: it may run meanwhile. */
    int unsaid = __atomic_load_n(&ours.made, __ATOMIC_SEQ_CST) !=
                 __atomic_load_n(&ours.begun, __ATOMIC_SEQ_CST);
    return swap_id(tid, tid) || (perhaps && unsaid && tid != (uint32_t)getpid());
}

int threads_main_ended(void) {
    return (int)__atomic_load_n(&ours.main_ended, __ATOMIC_ACQUIRE);
}

static void *leave(void *unused UNUSED) {
    exit(0);
}

/* A status other than 0: without glibc, the main thread ended by the exit system call, or a seccomp filter killed it alone. So no exit(). */
void threads_exit(int status) {
    if (!status) {
        /* On a new thread, because atexit handlers may need a stack of normal size. */
        if (!thread_spawn(NULL, "probing-exit", 0, leave, NULL))
            for (;;)
                pause();
        exit(0);
    }
    if (WIFSIGNALED(status)) {
        sigset_t just = {0};
        signal(WTERMSIG(status), SIG_DFL);
        sigaddset(&just, WTERMSIG(status));
        pthread_sigmask(SIG_UNBLOCK, &just, NULL); /* our threads block all signals */
        raise(WTERMSIG(status));
    }
    for (;;)
        syscall(SYS_exit_group, WEXITSTATUS(status));
}

void threads_after_fork(void) {
    __atomic_fetch_add(&life, 1, __ATOMIC_RELAXED);
    memset(&ours, 0, sizeof ours);
    memset(starts, 0, sizeof starts);
}
