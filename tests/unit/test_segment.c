/* SPDX-License-Identifier: Apache-2.0 */
/* Traces in segments: each one can be read alone, and together they have every record once, also if the process is killed at any moment. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "trace_reader.h"
#include "writer/internal.h"
#include "writer/writer.h"

#define STACKS 300
#define ROUNDS 25

static char dir[64], trace[128];
static struct shared {
    char live_path[4096];
    uint32_t segments;  /* (a) segments begun besides the first */
    uint64_t committed; /* (a) */
} * sh;

static int setup(void **state) {
    (void)state;
    strcpy(dir, "/tmp/test_segment.XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(trace, sizeof trace, "%s/t.zst", dir);
    sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return sh == MAP_FAILED ? -1 : 0;
}

static int teardown(void **state) {
    char cmd[128];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static const char *segment_name(unsigned n) {
    static char name[160];
    snprintf(name, sizeof name, "%s/t.%u.zst", dir, n);
    return name;
}

static void put_stack(struct ring *r, uint64_t n) {
    uint64_t *f, pcs[2] = {n, ~n};
    size_t used = 0;
    while (!(f = ring_reserve(r, TRACE_stack, TRACE_stack_NFIELDS, sizeof pcs)))
        sched_yield();
    f[TRACE_stack_key] = n + 1;
    ring_put_bytes(f, TRACE_stack_NFIELDS, TRACE_stack_native, pcs, 2 * sizeof(uint64_t), &used);
    ring_commit(f);
}

static void put_sample(struct ring *r, uint64_t n) {
    uint64_t *f;
    while (!(f = ring_reserve(r, TRACE_sample, TRACE_sample_NFIELDS, 0)))
        sched_yield();
    f[TRACE_sample_ts] = n * 1000;
    f[TRACE_sample_tid] = 7;
    f[TRACE_sample_stack] =
        n % STACKS + 1; /* its key: a stack is defined once, in the first segment */
    f[TRACE_sample_cpu_us] = n;
    f[TRACE_sample_count] = 1;
    ring_commit(f);
}

struct seen {
    uint64_t next; /* sample that must come */
    uint64_t stack[STACKS + 1];
    unsigned nstacks, processes;
    char reason[16];
};

static void see(void *ctx, const struct trace_block_header *h, int type,
                const struct trace_value *v) {
    struct seen *s = ctx;
    (void)h;
    if (type == TRACE_stack) {
        struct trace_value list = v[TRACE_stack_native];
        uint64_t prev = 0, id = v[TRACE_stack_id].u;
        assert_int_equal(id, ++s->nstacks);
        trace_list_next(&list, &prev, &s->stack[id]);
    } else if (type == TRACE_sample) {
        uint64_t id = v[TRACE_sample_stack].u;
        assert_int_equal(v[TRACE_sample_cpu_us].u, s->next);
        assert_true(id >= 1 && id <= s->nstacks);
        assert_int_equal(s->stack[id], s->next % STACKS);
        s->next++;
    } else if (type == TRACE_end) {
        snprintf(s->reason, sizeof s->reason, "%.*s", (int)v[TRACE_end_reason].n,
                 (const char *)v[TRACE_end_reason].p);
    }
}

/* Reads segments 1 to n and the last one, each with a new reader. Returns the number of samples in all of them. */
static uint64_t read_all(unsigned n, const char *last_reason, uint64_t *lost) {
    struct seen s = {0};
    for (unsigned i = 1; i <= n + 1; i++) {
        struct read_trace t;
        s.nstacks = 0;
        s.reason[0] = 0;
        t = read_trace(i <= n ? segment_name(i) : trace, see, &s);
        assert_int_equal(t.by_type[TRACE_schema], 1);
        assert_string_equal(s.reason, i <= n ? "rotated" : last_reason);
        assert_true(t.seek_frames > 0);
        for (unsigned k = 0; k < TRACE_NLOST; k++)
            *lost += k == TRACE_LOST_ring_full
                         ? 0
                         : t.lost[k]; /* put_sample() tries until there is room */
    }
    return s.next;
}

static void each_stands_alone(void **state) {
    struct writer *w;
    struct writer_options o = {.trace_path = trace, .run_dir = dir, .nrings = 2};
    uint64_t n = 0, lost = 0;
    (void)state;
    assert_int_equal(writer_open(&w, &o), 0);
    struct ring *r = live_ring_get(writer_live(w), 7);
    for (unsigned i = 0; i < STACKS; i++)
        put_stack(r, i);
    for (unsigned seg = 1; seg <= 3; seg++) {
        for (unsigned i = 0; i < 1000; i++)
            put_sample(r, n++);
        if (seg == 2)
            live_lose(writer_live(w), TRACE_LOST_torn, 5);
        assert_int_equal(writer_next_segment(w, segment_name(seg)), 0);
        assert_int_equal(writer_live(w)->segment, seg);
        assert_int_equal(writer_segment_bytes(w), 0);
        assert_string_equal(writer_live(w)->trace_path, trace);
        for (unsigned i = 0; i < 10; i++)
            put_sample(r, n++);
    }
    /* If the name is taken, that file is left alone, and recording goes on. */
    assert_int_equal(writer_next_segment(w, segment_name(1)), -EEXIST);
    put_sample(r, n++);
    assert_int_equal(writer_live(w)->segment, 3);
    assert_int_equal(writer_next_segment(w, segment_name(4)), 0);
    assert_int_equal(writer_close(w, "exit"), 0);
    assert_int_equal(read_all(4, "exit", &lost), n);
    assert_int_equal(lost, 5);
    for (unsigned i = 1; i <= 4; i++)
        unlink(segment_name(i));
    unlink(trace);
}

static struct writer *child_writer;

static void *produce(void *unused) {
    struct ring *r = live_ring_get(writer_live(child_writer), 7);
    (void)unused;
    for (uint64_t n = 0;; n++) {
        if (n < STACKS)
            put_stack(r, n);
        put_sample(r, n);
        __atomic_store_n(&sh->committed, n + 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void child(void) {
    struct writer_options o = {.trace_path = trace, .run_dir = dir, .nrings = 2, .ring_size = 8192};
    pthread_t t;
    if (writer_open(&child_writer, &o))
        _exit(1);
    strcpy(sh->live_path, writer_live_path(child_writer));
    if (pthread_create(&t, NULL, produce, NULL))
        _exit(1);
    for (unsigned n = 1;; n++) {
        if (writer_drain(child_writer, n % 3 ? 0 : WRITER_FLUSH))
            _exit(1);
        if (n % 4 == 0 && writer_next_segment(child_writer, segment_name(n / 4)))
            _exit(1);
    }
}

static void killed_anywhere(void **state) {
    unsigned seed = (unsigned)time(NULL), most = 0;
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct writer_finished done;
        uint64_t lost = 0;
        unsigned segments = 0;
        memset(sh, 0, sizeof *sh);
        pid_t pid = fork();
        if (pid == 0)
            child();
        /* Waits until something was recorded: otherwise there is rightly no trace. */
        while (!__atomic_load_n(&sh->committed, __ATOMIC_ACQUIRE) &&
               waitpid(pid, NULL, WNOHANG) == 0)
            usleep(100);
        usleep((useconds_t)(rand_r(&seed) % 20000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        uint64_t committed = __atomic_load_n(&sh->committed, __ATOMIC_ACQUIRE);
        assert_int_equal(writer_finish(sh->live_path, "killed", 0, &done), 0);
        while (access(segment_name(segments + 1), F_OK) == 0)
            segments++;
        /* Killed between link and unlink: the closed file has both names. */
        struct stat a = {0}, b;
        assert_int_equal(stat(trace, &b), 0);
        if (segments && stat(segment_name(segments), &a) == 0 && a.st_ino == b.st_ino)
            unlink(segment_name(segments--));
        uint64_t n = read_all(segments, "killed", &lost);
        assert_int_equal(lost, 0);
        assert_true(n == committed ||
                    n == committed + 1); /* committed, and killed before it said so */
        most = segments > most ? segments : most;
        for (unsigned i = 1; i <= segments; i++)
            unlink(segment_name(i));
        unlink(trace);
        char next[200];
        snprintf(next, sizeof next, "%s.next", trace);
        unlink(next);
    }
    assert_true(most > 0);
}

/* With a smaller bound ids begin anew more often, and everything is resolved all the same. */
static void bounded(void **state) {
    struct writer *w;
    struct writer_options o = {.trace_path = trace, .run_dir = dir, .nrings = 2};
    (void)state;
    assert_int_equal(writer_open(&w, &o), 0);
    writer_bound(w, 100);
    struct ring *r = live_ring_get(writer_live(w), 7);
    for (unsigned i = 0; i < 250; i++)
        put_stack(r, i);
    assert_int_equal(writer_drain(w, WRITER_FLUSH), 0);
    assert_int_equal(writer_live(w)->epoch, 2);
    /* Another file with the temporary name stays; what a killed process has left there is removed. */
    char next[200], text[8] = "";
    snprintf(next, sizeof next, "%s.next", trace);
    FILE *f = fopen(next, "w");
    assert_true(f && fputs("mine", f) >= 0 && fclose(f) == 0);
    assert_int_equal(writer_next_segment(w, segment_name(1)), -EEXIST);
    assert_true((f = fopen(next, "r")) && fgets(text, sizeof text, f) && fclose(f) == 0);
    assert_string_equal(text, "mine");
    assert_int_equal(truncate(next, 0), 0);
    assert_int_equal(writer_next_segment(w, segment_name(1)), 0);
    assert_int_equal(writer_close(w, "exit"), 0);
    /* The new file has the stacks of the two epochs that are in use. */
    struct read_trace t = read_trace(trace, NULL, NULL);
    assert_int_equal(t.by_type[TRACE_stack], 150);
    unlink(segment_name(1));
    unlink(trace);
}

/* Where there is no trace file, only a live file, there is nothing to be rotated; recording goes on. */
static void without_a_file(void **state) {
    struct writer_options o = {.run_dir = dir, .nrings = 2};
    struct writer *w;
    (void)state;
    assert_int_equal(writer_open(&w, &o), 0);
    struct ring *r = live_ring_get(writer_live(w), 7);
    put_sample(r, 0);
    uint64_t was = w->live->trace_bytes;
    assert_int_equal(writer_next_segment(w, segment_name(1)), -ENOTSUP);
    assert_int_equal(access(segment_name(1), F_OK), -1);
    assert_int_equal(writer_live(w)->segment, 0);
    assert_int_equal(w->live->trace_bytes, was); /* nothing was drained */
    put_sample(r, 1);
    assert_int_equal(writer_drain(w, WRITER_FLUSH), 0);
    assert_int_equal(writer_next_segment(w, segment_name(1)), -ENOTSUP);
    assert_int_equal(writer_close(w, "exit"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_stands_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_file, setup, teardown),
        cmocka_unit_test_setup_teardown(killed_anywhere, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
