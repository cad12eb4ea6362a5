/* SPDX-License-Identifier: Apache-2.0 */
/* agent/core/threads.h: the agent's own threads are counted and known as such, get no signal, and keep no process alive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "agent/core/threads.c"

static uint32_t woken; /* (a) */

void agent_wake(void) {
    __atomic_fetch_add(&woken, 1, __ATOMIC_RELAXED);
}

struct probe {
    sem_t begun, ends;
    uint32_t tid;
    int blocked, fd;
    char name[16];
};

static void *stay(void *arg) {
    struct probe *p = arg;
    sigset_t set;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    p->blocked = sigismember(&set, SIGTERM) && sigismember(&set, SIGPROF);
    prctl(PR_GET_NAME, p->name, 0, 0, 0);
    p->tid = (uint32_t)gettid();
    p->fd = dup(STDERR_FILENO);
    sem_post(&p->begun);
    wait_for(&p->ends);
    return NULL;
}

static void probe_init(struct probe *p) {
    sem_init(&p->begun, 0, 0);
    sem_init(&p->ends, 0, 0);
}

static void until_count(int n) {
    while (threads_count() != n)
        sys_sleep(SYS_MS);
}

static void counted_and_known(void **state) {
    static struct probe p[MOST];
    pthread_t main_thread = pthread_self();
    (void)state;
    for (unsigned i = 0; i < MOST; i++) {
        probe_init(&p[i]);
        assert_int_equal(thread_spawn(NULL, "probing-test", 0, stay, &p[i]), 0);
    }
    for (unsigned i = 0; i < MOST; i++)
        wait_for(&p[i].begun);
    assert_int_equal(threads_count(), MOST);
    for (unsigned i = 0; i < MOST; i++) {
        assert_true(p[i].blocked);
        assert_string_equal(p[i].name, "probing-test");
        assert_true(threads_is_ours(p[i].tid, 0));
        close(p[i].fd);
    }
    assert_false(threads_is_ours((uint32_t)gettid(), 1));
    assert_true(pthread_equal(main_thread, pthread_self()));
    for (unsigned i = 0; i < MOST; i++)
        sem_post(&p[i].ends);
    until_count(0);
    assert_false(threads_is_ours(p[0].tid, 1));
}

/* A thread that has not begun to run: any thread except the main one may be it. */
static void perhaps(void **state) {
    (void)state;
    __atomic_fetch_add(&ours.made, 1, __ATOMIC_SEQ_CST);
    assert_true(threads_is_ours(4000000, 1));
    assert_false(threads_is_ours(4000000, 0));
    assert_false(threads_is_ours((uint32_t)getpid(), 1));
    __atomic_fetch_sub(&ours.made, 1, __ATOMIC_SEQ_CST);
}

static void *ends_early(void *unused) {
    (void)unused;
    pthread_exit(NULL);
}

static void *nothing(void *unused) {
    return unused;
}

/* CPython ends a thread that asks for the GIL while Python ends. Places are given back in whatever way a thread ends, and also if it cannot be
 * started. */
static void places_are_given_back(void **state) {
    pthread_t thread;
    (void)state;
    for (unsigned i = 0; i < 5 * MOST; i++) {
        assert_int_equal(
            thread_spawn(&thread, "probing-test", 65536, i % 2 ? ends_early : nothing, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    until_count(0);
    for (unsigned i = 0; i < MOST; i++)
        starts[i].taken = 1; /* all are on their way */
    assert_int_equal(thread_spawn(&thread, "probing-test", 0, nothing, NULL), -ENOMEM);
    memset(starts, 0, sizeof starts);
    assert_int_equal(threads_count(), 0);
}

#define STACK (256u << 10)
static __thread volatile char
    large[200 << 10]; /* each thread has one, and glibc puts it onto the thread's stack */

static void *use_all(void *unused) {
    volatile char stack[STACK - (16u << 10)];
    for (size_t i = sizeof stack; i >= 4096; i -= 4096)
        stack[i - 1] = large[i % sizeof large] = 1;
    return unused;
}

/* A thread has the stack that was asked for, however much thread-local storage the program and its libraries have. (The first
 * test: glibc would reuse a larger stack of an earlier one.) */
static void the_stack_is_whole(void **state) {
    pthread_t thread;
    (void)state;
    assert_int_equal(thread_spawn(&thread, "probing-test", STACK, use_all, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void *of_its_own(void *arg) {
    struct probe *other = arg;
    struct threads_starter t;
    int err = threads_split_files(&t);
    if (err)
        return (void *)(intptr_t)err;
    other->fd = -1;
    int mine = open("/", O_PATH | O_CLOEXEC); /* the lowest number: nobody else has it */
    err = thread_spawn(NULL, "probing-test", 0, stay, other);
    wait_for(&other->begun);
    threads_join_starter(&t);
    return (void *)(intptr_t)(err ? err : mine);
}

/* The service thread's files are its own; those of threads that it starts are the program's. */
static void files(void **state) {
    struct probe other;
    pthread_t thread;
    void *result;
    int pipe_of[2];
    (void)state;
    probe_init(&other);
    assert_int_equal(thread_spawn(&thread, "probing-test", 0, of_its_own, &other), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    if ((intptr_t)result == -EPERM || (intptr_t)result == -ENOSYS)
        skip(); /* before Linux 5.9 */
    assert_true((intptr_t)result >= 0);
    assert_true(fcntl(other.fd, F_GETFD) >= 0); /* that one's is in the program's table */
    assert_int_equal(close(other.fd), 0);
    assert_int_equal(pipe(pipe_of), 0);
    assert_true(pipe_of[0] <= other.fd); /* the service thread's took no number of these */
    close(pipe_of[0]);
    close(pipe_of[1]);
    sem_post(&other.ends);
    until_count(0);
}

/* ---- who is left ---- */

static int answer[2];

static void *watch(void *unused) {
    unsigned seen = 0;
    int status = -1;
    enum threads_left left;
    while ((left = threads_left(&status)) != THREADS_OURS) {
        seen |= 1u << left;
        sys_sleep(SYS_MS);
    }
    int said[4] = {(int)seen, status, threads_main_ended(), (int)woken};
    (void)!write(answer[1], said, sizeof said);
    threads_exit(status);
    return unused;
}

/* exit() has called its handlers, as it does when glibc ends the process. */
static void by_exit(void) {
    _exit(3);
}

static void *another(void *ms) {
    sys_sleep((uint64_t)(uintptr_t)ms * SYS_MS);
    return NULL;
}

enum { ALONE, WITH_ANOTHER, BY_SYSTEM_CALL };

/* A process whose main thread ends while ours does not. Returns its status, and in `said` what our thread saw. */
static int process(int how, int said[4]) {
    pthread_t thread;
    int status;
    assert_int_equal(pipe(answer), 0);
    pid_t pid = fork();
    if (!pid) {
        alarm(60);
        woken = 0;
        atexit(by_exit);
        threads_after_fork();
        threads_watch_main();
        if (thread_spawn(NULL, "probing-test", 0, watch, NULL))
            _exit(99);
        while (ours.begun != 1)
            sys_sleep(SYS_MS);
        if (how == WITH_ANOTHER && pthread_create(&thread, NULL, another, (void *)300))
            _exit(98);
        if (how == BY_SYSTEM_CALL)
            syscall(SYS_exit, 5);
        pthread_exit(NULL);
    }
    close(answer[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(read(answer[0], said, 4 * sizeof *said), 4 * sizeof *said);
    close(answer[0]);
    return status;
}

static void ours_alone_are_left(void **state) {
    int said[4];
    (void)state;
    assert_int_equal(process(ALONE, said), 3 << 8);
    assert_false(said[0] & 1 << THREADS_OTHERS);
    assert_int_equal(said[2], 1); /* the main thread is known to have ended, */
    assert_int_equal(said[3], 1); /* and woke us */
    assert_int_equal(process(WITH_ANOTHER, said), 3 << 8);
    assert_true(said[0] & 1 << THREADS_OTHERS);
    assert_int_equal(process(BY_SYSTEM_CALL, said), 5 << 8);
    assert_int_equal(said[1], 5 << 8);
    assert_int_equal(said[3], 0);
}

static void *forks(void *status) {
    pid_t pid = fork();
    if (!pid) {
        threads_after_fork();
        return NULL; /* goes on as the child's only thread: its end is glibc's affair, and none of ours */
    }
    waitpid(pid, status, 0);
    return NULL;
}

static int in_child;
static void at_the_end(void) {
    if (in_child)
        _exit(threads_count() == 0 && ours.begun == 0 ? 7 : 8);
}

static void note_child(void) {
    in_child = 1;
}

/* In the child of a fork by one of our threads, that thread is the program's. */
static void a_thread_that_forked(void **state) {
    pthread_t thread;
    int status = -1;
    (void)state;
    pthread_atfork(NULL, NULL, note_child);
    atexit(at_the_end);
    assert_int_equal(thread_spawn(&thread, "probing-test", 0, forks, &status), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(status, 7 << 8);
    until_count(0);
}

/* Creates a thread where the user's limit of processes forbids it. Returns how often the calling thread slept meanwhile, or the negative of an errno. */
static long sleeps_at_the_limit(void) {
    struct rlimit none = {0, 0};
    struct rusage before, after;
    if (setrlimit(RLIMIT_NPROC, &none) || (!getuid() && setuid(65534)))
        return -EPERM;
    getrusage(RUSAGE_SELF, &before);
    int err = thread_spawn(NULL, "probing-test", 0, nothing, NULL);
    getrusage(RUSAGE_SELF, &after);
    return err == -EAGAIN ? after.ru_nvcsw - before.ru_nvcsw : err ? err : -EEXIST;
}

/* No thread of a forked child is in execve(), so there is nothing to wait for: the program goes on at once. */
static void a_child_at_the_limit(void **state) {
    long said = 0;
    (void)state;
    assert_int_equal(pipe(answer), 0);
    pid_t pid = fork();
    if (!pid) {
        threads_after_fork();
        said = sleeps_at_the_limit();
        (void)!write(answer[1], &said, sizeof said);
        syscall(SYS_exit_group, 0);
    }
    close(answer[1]);
    assert_int_equal(read(answer[0], &said, sizeof said), sizeof said);
    close(answer[0]);
    waitpid(pid, NULL, 0);
    if (said == -EPERM)
        skip(); /* in a user namespace without that user */
    assert_in_range(said, 0, EXEC_MS / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stack_is_whole),
        cmocka_unit_test(counted_and_known),
        cmocka_unit_test(perhaps),
        cmocka_unit_test(places_are_given_back),
        cmocka_unit_test(files),
        cmocka_unit_test(ours_alone_are_left),
        cmocka_unit_test(a_thread_that_forked),
        cmocka_unit_test(a_child_at_the_limit),
    };
    alarm(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
