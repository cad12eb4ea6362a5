/* SPDX-License-Identifier: Apache-2.0 */
/* agent/core/children.h: each forked child that leaves no trace is counted once, by how it ended, with the time that it lived. */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>

#include "trace_reader.h"

#include "writer/sys.h"

/* A thread for which `held` is set stops before an exchange, until the test lets it go on. */
static sem_t there, go_on;
static __thread int held;
static int hold(void) {
    if (held && !sem_post(&there))
        sem_wait(&go_on);
    return held = 0;
}
static inline uint32_t swap(uint32_t *place, uint32_t from, uint32_t to) {
    return sys_swap(place, from, to);
}
static pthread_t thread; /* that thread; 0: none */
static int let_go(void) {
    if (thread) {
        sem_post(&go_on);
        pthread_join(thread, NULL);
    }
    thread = 0;
    return 0;
}
#undef sys_swap
#define sys_swap(place, from, to) (hold(), swap(place, from, to))
#define munmap(p, n)              (munmap(p, n), let_go()) /* it may go on at the worst time */

#include "agent/core/children.c"
#include "agent/core/settings.c"

#define PERIOD (10 * SYS_MS)
#define LATER  (sys_now() + LATE_NS + SYS_MS)

static char dir[64], trace[96];
static struct writer *w;
static struct trace_value sums[TRACE_children_NFIELDS];
static unsigned records;

enum act { ENDS, FAILS, RECORDS, DIES, LIVES, EXECS, HAS_A_CHILD };

static int setup(void **state) {
    struct setting_value rate = {.u = PERIOD, .text = "0.01"};
    (void)state;
    strcpy(dir, "/tmp/test_children.XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(trace, sizeof trace, "%s/t.zst", dir);
    settings_init(SETTING_sample_rate, &rate);
    struct writer_options o = {.trace_path = trace, .run_dir = dir, .nrings = 1};
    if (writer_open(&w, &o))
        return -1;
    children_open();
    return own ? 0 : -1;
}

static int teardown(void **state) {
    char cmd[128];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

/* Forks a child, which is born when this returns, and does its act when `go` is closed. */
static pid_t child(enum act act, int *go) {
    int born[2], wait[2];
    char byte;
    assert_int_equal(pipe(born), 0);
    assert_int_equal(pipe(wait), 0);
    pid_t pid = fork();
    if (!pid) {
        alarm(60);
        close(wait[1]);
        children_born();
        (void)!write(born[1], "b", 1);
        (void)!read(wait[0], &byte, 1);
        if (act == HAS_A_CHILD && !fork()) {
            children_born();
            children_settle(CHILDREN_ENDED);
            _exit(0);
        }
        if (act == HAS_A_CHILD)
            while (waitpid(-1, NULL, 0) > 0)
                ;
        if (act == DIES)
            raise(SIGKILL);
        if (act == EXECS)
            execl("/bin/sleep", "sleep", "1000", NULL);
        if (act == LIVES)
            pause();
        children_settle(act == FAILS     ? CHILDREN_FAILED
                        : act == RECORDS ? CHILDREN_RECORDED
                                         : CHILDREN_ENDED);
        _exit(0);
    }
    close(wait[0]);
    assert_int_equal(read(born[0], &byte, 1), 1);
    close(born[0]);
    close(born[1]);
    *go = wait[1];
    return pid;
}

static void run(enum act act) {
    int go;
    pid_t pid = child(act, &go);
    close(go);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void add_up(void *unused, const struct trace_block_header *h, int type,
                   const struct trace_value *v) {
    (void)unused;
    (void)h;
    records += type == TRACE_children;
    if (type == TRACE_children)
        for (unsigned i = 0; i < TRACE_children_NFIELDS; i++)
            sums[i].u += v[i].u;
}

/* Ends the recording, and checks what its trace says of its children. */
static void finish(uint64_t ended, uint64_t failed, uint64_t gone) {
    children_round(w, UINT64_MAX);
    assert_null(own);
    assert_int_equal(writer_close(w, "exit"), 0);
    memset(sums, 0, sizeof sums);
    records = 0;
    read_trace(trace, add_up, NULL);
    assert_int_equal(sums[TRACE_children_ended].u, ended);
    assert_int_equal(sums[TRACE_children_failed].u, failed);
    assert_int_equal(sums[TRACE_children_gone].u, gone);
}

static void each_by_its_end(void **state) {
    uint64_t before = sys_now();
    (void)state;
    run(ENDS);
    run(ENDS);
    run(FAILS);
    for (int i = 0; i < 3; i++) /* more than fail: nothing counts them */
        run(RECORDS);
    uint64_t born = sys_now(); /* or a moment later */
    run(DIES);
    /* The dead one is young still, and may only have had no processor. (On a busy machine it may be old by now, therefore not sys_now().) */
    children_round(w, born + 150 * SYS_MS);
    assert_int_equal(written.gone, 0);
    children_round(w, LATER);
    assert_int_equal(written.gone, 1);
    run(ENDS);
    uint64_t most = 7 * (sys_now() - before);
    finish(3, 1, 1);
    assert_in_range(sums[TRACE_children_lived].u, 1, most);
}

/* A child that was stopped for so long that it was given up counts as gone once at most, whatever it does afterwards. */
static void given_up(void **state) {
    int go;
    pid_t pid = child(ENDS, &go);
    (void)state;
    assert_int_equal(sys_swap(&own->young[0].pid, (uint32_t)pid, 0), (uint32_t)pid);
    close(go);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    finish(0, 0, 0);
}

static void another_program(void **state) {
    int go, lives;
    pid_t pid = child(EXECS, &go), other;
    (void)state;
    close(go);
    other = child(LIVES, &lives);
    while (own->young[0].pid) /* until it has exec'ed: then it is no child of ours any more */
        children_round(w, LATER);
    assert_int_equal(own->young[1].pid, (uint32_t)other);
    kill(pid, SIGKILL);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(waitpid(other, NULL, 0), other);
    close(lives);
    finish(0, 0, 1);
}

static void more_than_there_are_places(void **state) {
    int go[YOUNG + 20];
    pid_t pid[YOUNG + 20];
    (void)state;
    for (unsigned i = 0; i < YOUNG + 20; i++)
        pid[i] = child(ENDS, &go[i]);
    for (unsigned i = 0; i < YOUNG; i++)
        assert_int_not_equal(own->young[i].pid, 0);
    for (unsigned i = 0; i < YOUNG + 20; i++)
        close(go[i]); /* later ones hold copies of the earlier ones' */
    for (unsigned i = 0; i < YOUNG + 20; i++)
        assert_int_equal(waitpid(pid[i], NULL, 0), pid[i]);
    for (unsigned i = 0; i < YOUNG; i++)
        assert_int_equal(own->young[i].pid, 0);
    finish(YOUNG + 20, 0, 0);
}

/* A waiting child's own child is counted in the page that the waiting child is in. */
static void grandchildren(void **state) {
    (void)state;
    run(HAS_A_CHILD);
    finish(2, 0, 0);
}

/* Fractions of a tick are carried over. */
static void ticks(void **state) {
    (void)state;
    for (unsigned i = 0; i < 10; i++) {
        add(&own->ended, 1);
        add(&own->ns, PERIOD / 4 * 3);
        children_round(w, sys_now());
        children_round(w, sys_now()); /* nothing new: no record */
    }
    finish(10, 0, 0);
    assert_int_equal(records, 10);
    assert_int_equal(sums[TRACE_children_ticks].u, 7);
    assert_int_equal(sums[TRACE_children_lived].u, PERIOD / 4 * 30);
}

/* Says that the process is about to exec, and loses its CPU within that. */
static void *execs(void *unused) {
    held = 1;
    children_settle(CHILDREN_EXEC);
    return unused;
}

/* A child's recording begins while one of its threads is about to exec. */
static void execs_while_the_recording_begins(void **state) {
    (void)state;
    sem_init(&there, 0, 0);
    sem_init(&go_on, 0, 0);
    children_born();
    assert_int_equal(pthread_create(&thread, NULL, execs, NULL), 0);
    sem_wait(&there);
    children_settle(CHILDREN_RECORDED);
    children_open();
    let_go();
    finish(0, 0, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(each_by_its_end),
        TEST(given_up),
        TEST(another_program),
        TEST(more_than_there_are_places),
        TEST(grandchildren),
        TEST(ticks),
        TEST(execs_while_the_recording_begins),
    };
    alarm(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
