/* SPDX-License-Identifier: Apache-2.0 */
/* writer_finish(): all records that a killed process has committed are in its trace, once and in order. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "trace_reader.h"
#include "writer/writer.h"

#define NTHREADS 3
#define ROUNDS   50

static char dir[64], trace[128];

/* Shared memory of the child and the test. */
struct shared {
    uint64_t committed[NTHREADS]; /* samples committed, by thread */
    uint64_t emitted;             /* records of writer_emit() */
    uint32_t ready;
    char live_path[4096];
};
static struct shared *sh;

static int setup(void **state) {
    (void)state;
    strcpy(dir, "/tmp/test_finish.XXXXXX");
    sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sh == MAP_FAILED || !mkdtemp(dir))
        return -1;
    snprintf(trace, sizeof trace, "%s/t.zst", dir);
    return 0;
}

static int teardown(void **state) {
    char cmd[128];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static void put_sample(struct ring *r, uint64_t thread, uint64_t n, uint64_t stack) {
    uint64_t *f;
    while (!(f = ring_reserve(r, TRACE_sample, TRACE_sample_NFIELDS, 0)))
        sched_yield();
    f[TRACE_sample_ts] = 1000000000 + n * 1000;
    f[TRACE_sample_tid] = thread;
    f[TRACE_sample_stack] = stack;
    f[TRACE_sample_cpu_us] = n;
    ring_commit(f);
}

static void put_stack(struct ring *r, uint64_t key, uint64_t thread, uint64_t n) {
    uint64_t *f, pcs[2] = {thread, n};
    size_t used = 0;
    while (!(f = ring_reserve(r, TRACE_stack, TRACE_stack_NFIELDS, sizeof pcs)))
        sched_yield();
    f[TRACE_stack_key] = key;
    ring_put_bytes(f, TRACE_stack_NFIELDS, TRACE_stack_native, pcs, 2 * sizeof(uint64_t), &used);
    ring_commit(f);
}

static struct writer *child_writer;

static void *produce(void *arg) {
    uint64_t thread = (uint64_t)(uintptr_t)arg;
    struct ring *r = live_ring_get(writer_live(child_writer), (uint32_t)thread);
    for (uint64_t n = 0;; n++) {
        uint64_t key = (thread + 1) << 32 | (n / 100 % 1000 + 1);
        if (n % 100 == 0)
            put_stack(r, key, thread, n / 100 % 1000);
        put_sample(r, thread, n, key);
        __atomic_store_n(&sh->committed[thread], n + 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* Never returns: it writes at full speed until it is killed. */
static void child(uint64_t ring_size) {
    pthread_t t;
    struct writer_options o = {
        .trace_path = trace, .run_dir = dir, .nrings = 8, .ring_size = ring_size};
    if (writer_open(&child_writer, &o))
        _exit(1);
    strcpy(sh->live_path, writer_live_path(child_writer));
    for (uintptr_t i = 0; i < NTHREADS; i++)
        if (pthread_create(&t, NULL, produce, (void *)i))
            _exit(1);
    __atomic_store_n(&sh->ready, 1, __ATOMIC_RELEASE);
    for (uint64_t n = 0;; n++) {
        struct writer_value v[TRACE_clock_NFIELDS] = {{.u = n}, {.u = n}};
        if (writer_emit(child_writer, TRACE_clock, v) ||
            writer_drain(child_writer, n % 3 ? 0 : WRITER_FLUSH))
            _exit(1);
        __atomic_store_n(&sh->emitted, n + 1, __ATOMIC_RELEASE);
    }
}

struct seen {
    uint64_t next[NTHREADS], clocks, nstacks;
    uint64_t stack_thread[NTHREADS * 1000 + 1], stack_n[NTHREADS * 1000 + 1];
    char reason[16];
};

static void see_end(void *ctx, const struct trace_block_header *h, int type,
                    const struct trace_value *v) {
    struct seen *s = ctx;
    (void)h;
    if (type == TRACE_end)
        snprintf(s->reason, sizeof s->reason, "%.*s", (int)v[TRACE_end_reason].n,
                 (const char *)v[TRACE_end_reason].p);
}

static void see(void *ctx, const struct trace_block_header *h, int type,
                const struct trace_value *v) {
    struct seen *s = ctx;
    see_end(ctx, h, type, v);
    if (type == TRACE_stack) {
        struct trace_value list = v[TRACE_stack_native];
        uint64_t prev = 0;
        assert_int_equal(v[TRACE_stack_id].u, ++s->nstacks);
        assert_true(s->nstacks <= NTHREADS * 1000);
        assert_int_equal(list.n, 2);
        trace_list_next(&list, &prev, &s->stack_thread[s->nstacks]);
        trace_list_next(&list, &prev, &s->stack_n[s->nstacks]);
    } else if (type == TRACE_sample) {
        uint64_t thread = v[TRACE_sample_tid].u, id = v[TRACE_sample_stack].u;
        assert_true(thread < NTHREADS);
        assert_int_equal(v[TRACE_sample_cpu_us].u, s->next[thread]);
        assert_true(id >= 1 && id <= s->nstacks);
        assert_int_equal(s->stack_thread[id], thread);
        assert_int_equal(s->stack_n[id], s->next[thread] / 100 % 1000);
        s->next[thread]++;
    } else if (type == TRACE_clock) {
        assert_int_equal(v[TRACE_clock_ts].u, s->clocks++);
    }
}

static void test_killed_in_mid_write(void **state) {
    (void)state;
    static struct seen s;
    uint64_t total = 0, recovered = 0;
    unsigned seed = (unsigned)time(NULL);

    print_message("seed %u\n", seed);
    for (int round = 0; round < ROUNDS; round++) {
        struct writer_finished done;
        memset(sh, 0, sizeof *sh);
        unlink(trace);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            child(round % 2 ? 8192 : 65536);
        for (int i = 0; i < 5000 && !__atomic_load_n(&sh->ready, __ATOMIC_ACQUIRE); i++)
            usleep(1000);
        usleep((useconds_t)(rand_r(&seed) % 30000));
        kill(pid, SIGSTOP);
        assert_int_equal(writer_finish(sh->live_path, "killed", 0, &done), -EBUSY);
        kill(pid, SIGKILL);
        if (round % 5) /* else it is a zombie when it is finished */
            waitpid(pid, NULL, 0);
        int rc = -EBUSY;
        for (int i = 0; i < 1000 && rc == -EBUSY; i++) { /* the kill takes its time */
            rc = writer_finish(sh->live_path, "killed", 0, &done);
            if (rc == -EBUSY)
                usleep(1000);
        }
        assert_int_equal(rc, 0);
        waitpid(pid, NULL, WNOHANG);
        assert_int_equal(access(sh->live_path, F_OK), -1);
        memset(&s, 0, sizeof s);
        struct read_trace t = read_trace(trace, see, &s);
        for (int i = 0; i < NTHREADS; i++) {
            assert_true(s.next[i] == sh->committed[i] || s.next[i] == sh->committed[i] + 1);
            total += s.next[i];
        }
        assert_true(s.clocks == sh->emitted || s.clocks == sh->emitted + 1);
        assert_string_equal(s.reason, "killed");
        assert_true(t.seek_frames > 0);
        assert_int_equal(t.bytes, done.trace_bytes);
        assert_int_equal(t.by_type[TRACE_schema], 1);
        assert_int_equal(t.lost[TRACE_LOST_unresolved], 0);
        assert_int_equal(t.lost[TRACE_LOST_damaged], 0);
        recovered += done.recovered;
    }
    print_message("%llu records, %llu of them from rings\n", (unsigned long long)total,
                  (unsigned long long)recovered);
    assert_true(recovered > 0);
}

/* The two places where a kill is delicate, made by hand. `mode` 0: a group of blocks is in the file but not committed; 1: it is committed, but
 * the rings' tails have not moved; 2: as 0, but the file ends within the group (a torn tail). */
static void killed_at(int mode) {
    struct writer_finished done;
    static struct seen s;
    memset(sh, 0, sizeof *sh);
    unlink(trace);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct writer_options o = {
            .trace_path = trace, .run_dir = dir, .nrings = 1, .ring_size = 8192};
        if (writer_open(&child_writer, &o))
            _exit(1);
        struct live *l = writer_live(child_writer);
        strcpy(sh->live_path, writer_live_path(child_writer));
        struct ring *r = live_ring_get(l, 0);
        put_stack(r, 7, 0, 0);
        for (uint64_t i = 0; i < 10; i++)
            put_sample(r, 0, i, 7);
        writer_drain(child_writer, WRITER_FLUSH);
        for (uint64_t i = 10; i < 20; i++)
            put_sample(r, 0, i, 7);
        char *before = malloc(l->file_size);
        memcpy(before, l, l->file_size);
        writer_drain(child_writer, WRITER_FLUSH);
        uint64_t bytes = l->trace_bytes, next = r->next, next_at = r->next_at;
        memcpy(l, before, l->file_size);
        r->next = next;
        r->next_at = next_at;
        if (mode == 1)
            l->trace_bytes = bytes;
        if (mode == 2 && truncate(trace, (off_t)bytes - 20))
            _exit(1);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    assert_int_equal(writer_finish(sh->live_path, "killed", 0, &done), 0);
    assert_int_equal(done.recovered, mode == 1 ? 0 : 10);
    memset(&s, 0, sizeof s);
    struct read_trace t = read_trace(trace, see, &s);
    assert_int_equal(s.next[0], 20);
    assert_int_equal(t.by_type[TRACE_end], 1);
    assert_true(t.seek_frames > 0);
    assert_true(done.last_ts >= 1000000000 + 19 * 1000);
}

/* The process is killed early. mode 0: before its trace existed; 1: before the recording had begun (both leave nothing); 2: as 0, but by now
 * another file has the trace's name; 3: when the recording had begun: the live file says who the process was; 4: so it does where somebody has removed
 * the trace meanwhile, with the process record: its last records must not be of a process that nobody knows. */
static void killed_as_it_begins(int mode) {
    struct writer_finished done;
    struct stat st;
    unlink(trace);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct writer_options o = {.trace_path = trace, .run_dir = dir, .nrings = 1};
        if (writer_open(&child_writer, &o))
            _exit(1);
        strcpy(sh->live_path, writer_live_path(child_writer));
        if (mode == 0 || mode == 2)
            unlink(trace);
        if (mode == 3)
            strcpy(writer_live(child_writer)->how, "fork");
        if (mode == 4) {
            struct ring *r = live_ring_get(writer_live(child_writer), 0);
            put_stack(r, 7, 0, 0);
            put_sample(r, 0, 0, 7);
            writer_drain(child_writer, WRITER_FLUSH);
            put_stack(r, 8, 0, 1);
            put_sample(r, 0, 1, 8);
            unlink(trace);
        }
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    if (mode == 2) {
        int fd = open(trace, O_WRONLY | O_CREAT, 0600);
        assert_int_equal(write(fd, "foreign", 7), 7);
        close(fd);
    }
    assert_int_equal(writer_finish(sh->live_path, "killed", 0, &done), 0);
    assert_int_equal(access(sh->live_path, F_OK), -1);
    assert_int_equal(stat(trace, &st), mode < 2 ? -1 : 0);
    if (mode == 2)
        assert_int_equal(st.st_size, 7);
    if (mode > 2) {
        static struct seen s;
        memset(&s, 0, sizeof s);
        struct read_trace t = read_trace(trace, see_end, &s);
        assert_int_equal(done.recovered, mode == 4 ? 2 : 0);
        assert_int_equal(t.by_type[TRACE_process], 1);
        assert_int_equal(t.by_type[TRACE_end], 1);
        assert_string_equal(s.reason, "killed");
    }
}

static void test_killed_as_it_begins(void **state) {
    (void)state;
    for (int mode = 0; mode < 5; mode++)
        killed_as_it_begins(mode);
}

static void test_killed_between_commit_steps(void **state) {
    (void)state;
    for (int mode = 0; mode < 3; mode++)
        killed_at(mode);
}

/* The trace was closed, but the live file not yet removed: no second end is written; the trace may also be damaged. */
static void test_killed_after_close(void **state) {
    (void)state;
    static struct seen s;
    struct writer_finished done;
    char keep[256];
    for (int damage = 0; damage < 3; damage++) {
        unlink(trace);
        pid_t pid = fork();
        if (pid == 0) {
            struct writer_options o = {.trace_path = trace, .run_dir = dir, .nrings = 1};
            if (writer_open(&child_writer, &o))
                _exit(1);
            strcpy(sh->live_path, writer_live_path(child_writer));
            snprintf(keep, sizeof keep, "%s/keep.live", dir);
            struct ring *r = live_ring_get(writer_live(child_writer), 0);
            put_stack(r, 7, 0, 0);
            for (uint64_t i = 0; i < 10; i++)
                put_sample(r, 0, i, 7);
            if (link(sh->live_path, keep))
                _exit(1);
            _exit(writer_close(child_writer, "exit") != 0);
        }
        int status;
        waitpid(pid, &status, 0);
        assert_int_equal(status, 0);
        snprintf(keep, sizeof keep, "%s/keep.live", dir);
        if (damage == 1) { /* the seek table is torn */
            size_t n;
            free(slurp(trace, &n));
            assert_int_equal(truncate(trace, (off_t)n - 5), 0);
        } else if (damage == 2) { /* the trace is gone altogether */
            assert_int_equal(unlink(trace), 0);
        }
        assert_int_equal(writer_finish(keep, "killed", 0, &done), 0);
        assert_int_equal(access(keep, F_OK), -1);
        memset(&s, 0, sizeof s);
        struct read_trace t = read_trace(trace, see, &s);
        assert_int_equal(t.by_type[TRACE_end], 1);
        assert_true(t.seek_frames > 0);
        assert_int_equal(s.next[0], damage == 2 ? 0 : 10);
        assert_string_equal(s.reason, damage == 2 ? "killed" : "exit");
    }
}

/* Killed after the dictionaries had outgrown an epoch: keys of both epochs are resolved. */
static void see_epochs(void *ctx, const struct trace_block_header *h, int type,
                       const struct trace_value *v) {
    uint64_t *late = ctx;
    if (type == TRACE_sample && v[TRACE_sample_cpu_us].u >= 1000000) {
        /* key 5 of epoch 0 and key 5 of epoch 1, defined in that order in each */
        assert_int_equal(h->epoch, v[TRACE_sample_cpu_us].u - 1000000);
        late[h->epoch] = v[TRACE_sample_stack].u;
    }
}

static void test_killed_in_second_epoch(void **state) {
    (void)state;
    struct writer_finished done;
    uint64_t late[2] = {0};
    int status;
    unlink(trace);
    pid_t pid = fork();
    if (pid == 0) {
        struct writer_options o = {.trace_path = trace, .run_dir = dir, .nrings = 1};
        if (writer_open(&child_writer, &o))
            _exit(1);
        struct live *l = writer_live(child_writer);
        strcpy(sh->live_path, writer_live_path(child_writer));
        struct ring *r = live_ring_get(l, 0);
        for (uint64_t key = 1; l->epoch == 0; key++) {
            put_stack(r, key, 0, key);
            if (key % 500 == 0)
                writer_drain(child_writer, 0);
        }
        for (uint64_t key = 1; key <= 10; key++)
            put_stack(r, 1ull << 32 | key, 1, key);
        writer_drain(child_writer, WRITER_FLUSH);
        put_sample(r, 0, 1000000, 5);              /* epoch 0's */
        put_sample(r, 0, 1000001, 1ull << 32 | 5); /* epoch 1's */
        _exit(0);
    }
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(writer_finish(sh->live_path, "killed", 0, &done), 0);
    assert_int_equal(done.recovered, 2);
    struct read_trace t = read_trace(trace, see_epochs, late);
    assert_int_equal(t.max_epoch, 1);
    assert_int_equal(t.lost[TRACE_LOST_unresolved], 0);
    assert_int_equal(late[0], 5);
    assert_true(late[1] >= 5); /* definitions in flight at the change came before */
}

static void make_dead(void) {
    unlink(trace);
    pid_t pid = fork();
    if (pid == 0) {
        struct writer_options o = {.trace_path = trace, .run_dir = dir, .nrings = 1};
        if (writer_open(&child_writer, &o))
            _exit(1);
        strcpy(sh->live_path, writer_live_path(child_writer));
        struct ring *r = live_ring_get(writer_live(child_writer), 0);
        put_stack(r, 7, 0, 0);
        for (uint64_t i = 0; i < 10; i++)
            put_sample(r, 0, i, 7);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
}

static void spill(const char *path, const uint8_t *p, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), n);
    close(fd);
}

/* A process that died of wild writes may have damaged its live file: whatever that contains, finishing comes to an end and leaves a trace. */
static void test_corrupt_live_file(void **state) {
    (void)state;
    struct writer_finished done;
    size_t live_n, trace_n, used = sizeof(struct live) + 4096;
    unsigned finished = 0;
    char path[256];
    uint64_t seed = (uint64_t)time(NULL);

    print_message("seed %llu\n", (unsigned long long)seed);
    make_dead();
    uint8_t *live = slurp(sh->live_path, &live_n), *old = slurp(trace, &trace_n);
    uint8_t *copy = malloc(live_n);
    assert_non_null(copy);
    snprintf(path, sizeof path, "%s/corrupt.live", dir);
    uint64_t rings = ((struct live *)live)->rings_off, stride = ((struct live *)live)->ring_stride;
    for (unsigned i = 0; i < 400; i++) {
        memcpy(copy, live, live_n);
        for (unsigned k = 0; k <= i % 8; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            uint64_t r = seed >> 33;
            /* Damages the two rings' headers and first kilobyte, or the live file's own fields. */
            size_t at = i % 3 ? rings + r % 2 * stride + r / 2 % 1200 : r % (used - 2 * LIVE_MAIL);
            if (at >= offsetof(struct live, trace_path) && at < offsetof(struct live, command))
                continue; /* not to be led to other files */
            copy[at] ^= (uint8_t)(1u << (seed >> 20 & 7));
        }
        spill(path, copy, live_n);
        spill(trace, old, trace_n);
        int rc = writer_finish(path, "killed", 0, &done);
        if (rc == 0) {
            read_trace(trace, NULL, NULL);
            finished++;
        }
        unlink(path);
    }
    assert_true(finished > 100);
    unlink(sh->live_path);
    free(live);
    free(old);
    free(copy);
}

/* The damage made the trace's name that of another file, which must not be changed. */
static void test_the_name_of_another_file(void **state) {
    (void)state;
    static const char text[] = "not a trace";
    struct writer_finished done;
    size_t n;

    make_dead();
    for (size_t size = 1; size < sizeof text; size += sizeof text - 2) {
        spill(trace, (const uint8_t *)text, size);
        assert_int_equal(writer_finish(sh->live_path, "killed", 0, &done), -ESTALE);
        uint8_t *now = slurp(trace, &n);
        assert_int_equal(n, size);
        assert_memory_equal(now, text, n);
        free(now);
    }
    unlink(sh->live_path);
    unlink(trace);
}

static void test_refusals(void **state) {
    (void)state;
    struct writer_finished done;
    make_dead();
    int fd = open(sh->live_path, O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(writer_finish(sh->live_path, "killed", 0, &done), -EAGAIN);
    close(fd);
    /* There is no room: the live file stays, and a later attempt succeeds with everything. */
    struct rlimit old, none = {100, RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    none.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    int rc = writer_finish(sh->live_path, "killed", 0, &done);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(rc, -EFBIG);
    assert_int_equal(access(sh->live_path, F_OK), 0);
    assert_int_equal(writer_finish(sh->live_path, "killed", 0, &done), 0);
    assert_int_equal(done.recovered, 11);
    assert_int_equal(read_trace(trace, NULL, NULL).by_type[TRACE_sample], 10);
    assert_int_equal(writer_finish(sh->live_path, "killed", 0, &done), -ENOENT);
    /* Not a live file; a symbolic link; a file that others can read. */
    char bad[256], link_path[256];
    snprintf(bad, sizeof bad, "%s/bad.live", dir);
    snprintf(link_path, sizeof link_path, "%s/link.live", dir);
    FILE *f = fopen(bad, "w");
    fputs("nonsense", f);
    fclose(f);
    chmod(bad, 0644);
    assert_int_equal(writer_finish(bad, "killed", 0, &done), -EPERM);
    chmod(bad, 0600);
    assert_int_equal(writer_finish(bad, "killed", 0, &done), -EBADMSG);
    assert_int_equal(symlink(bad, link_path), 0);
    assert_int_equal(writer_finish(link_path, "killed", 0, &done), -ELOOP);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_in_mid_write),
        cmocka_unit_test(test_killed_between_commit_steps),
        cmocka_unit_test(test_killed_as_it_begins),
        cmocka_unit_test(test_killed_after_close),
        cmocka_unit_test(test_killed_in_second_epoch),
        cmocka_unit_test(test_corrupt_live_file),
        cmocka_unit_test(test_the_name_of_another_file),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
