/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What several processes do with the files of one trace, where one of them is stopped (or killed) after each of its system calls in turn: a rotation,
 * the finisher of a process that recorded nothing, a writer that begins, and a pack that ends.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/pack_write.h"
#include "trace_reader.h"
#include "traces/run.h"
#include "writer/writer.h"

#define SAMPLES 100 /* each recording puts so many into its ring at a time */

static char dir[64], trace[128], old[160];
static struct shared {
    char live[4096];
    int rc; /* of the child's work */
} * sh;

static int setup(void **state) {
    (void)state;
    strcpy(dir, "/tmp/test_stepped.XXXXXX");
    sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sh == MAP_FAILED || !mkdtemp(dir))
        return -1;
    snprintf(trace, sizeof trace, "%s/t.zst", dir);
    snprintf(old, sizeof old, "%s/t.1.zst", dir);
    return 0;
}

static int teardown(void **state) {
    char cmd[128];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static void clear(void) {
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s/*", dir);
    assert_int_equal(system(cmd), 0);
}

/* ---- one process, system call by system call ---- */

/* Starts a process that calls work(), and stops it before. */
static pid_t start(void (*work)(void)) {
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        work();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    assert_int_equal(
        ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)),
        0);
    return pid;
}

/* Lets it make n system calls. Returns 0 when it has come to the end of its work before, by raise(SIGSTOP). */
static int make_calls(pid_t pid, unsigned n) {
    for (unsigned stops = 0; stops < 2 * n;) {
        int status;
        assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSTOPPED(status));
        if (WSTOPSIG(status) == SIGSTOP)
            return 0;
        assert_int_equal(WSTOPSIG(status), SIGTRAP | 0x80);
        stops++;
    }
    return 1;
}

static void go_on(pid_t pid) {
    int status, sig = 0;
    do { /* past the stop at its end */
        assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, (void *)(uintptr_t)sig), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        sig = WIFSTOPPED(status) && WSTOPSIG(status) != SIGSTOP ? WSTOPSIG(status) : 0;
    } while (WIFSTOPPED(status));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- recordings ---- */

static struct writer *writer;

static int open_writer(const char *path) {
    return writer_open(&writer,
                       &(struct writer_options){
                           .trace_path = path, .run_dir = dir, .nrings = 1, .ring_size = 16384});
}

static void put_samples(void) {
    static uint64_t n;
    static struct ring *r;
    r = r ? r : live_ring_get(writer_live(writer), 7);
    for (unsigned i = 0; i < SAMPLES; i++, n++) {
        struct writer_value v[TRACE_sample_NFIELDS] = {
            [TRACE_sample_ts] = {.u = 1000 + n}, [TRACE_sample_cpu_us] = {.u = n}};
        if (writer_put(r, TRACE_sample, v))
            _exit(1);
    }
}

/* Runs fn in a process of its own, which leaves its live file. */
static void in_dead_process(void (*fn)(void), char live[4096]) {
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (open_writer(trace))
            _exit(1);
        strcpy(sh->live, writer_live_path(writer));
        fn();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    strcpy(live, sh->live);
}

static void nothing(void) {}

struct seen {
    uint64_t samples, sum;
    char reason[16];
};

static void see(void *ctx, const struct trace_block_header *h, int type,
                const struct trace_value *v) {
    struct seen *s = ctx;
    (void)h;
    if (type == TRACE_sample) {
        s->samples++;
        s->sum += v[TRACE_sample_cpu_us].u;
    } else if (type == TRACE_end) {
        snprintf(s->reason, sizeof s->reason, "%.*s", (int)v[TRACE_end_reason].n,
                 (const char *)v[TRACE_end_reason].p);
    }
}

/* ---- killed in a rotation ---- */

#define LOST 5 /* before each of the two rotations */

static void rotate(void) {
    char first[160];
    if (open_writer(trace))
        _exit(1);
    strcpy(sh->live, writer_live_path(writer));
    strcpy(writer_live(writer)->how, "preload");
    snprintf(first, sizeof first, "%s/t.0.zst", dir);
    for (int i = 0; i < 2; i++) {
        put_samples();
        live_lose(writer_live(writer), TRACE_LOST_torn, LOST);
        if (i)
            raise(SIGSTOP);
        if (writer_next_segment(writer, i ? old : first))
            _exit(1);
    }
    raise(SIGSTOP);
}

static void killed_in_a_rotation(void **state) {
    unsigned calls = 0, goes_on = 1, both = 0, left = 0;
    char temporary[160];
    (void)state;
    snprintf(temporary, sizeof temporary, "%s.next", trace);
    for (; goes_on; calls++) {
        struct writer_finished done;
        struct seen s = {0};
        struct stat a, b;
        uint64_t lost = 0;
        pid_t pid = start(rotate);
        goes_on = (unsigned)make_calls(pid, calls);
        end(pid);
        assert_int_equal(writer_finish(sh->live, "killed", 0, &done), 0);
        char first[160];
        snprintf(first, sizeof first, "%s/t.0.zst", dir);
        /* Killed between link() and rename(), the file has both names. */
        int two = stat(old, &a) == 0 && stat(trace, &b) == 0 && a.st_ino != b.st_ino;
        const char *files[] = {first, two ? old : trace, trace};
        for (int i = 0; i < 2 + two; i++)
            lost += read_trace(files[i], see, &s).lost[TRACE_LOST_torn];
        assert_int_equal(lost, 2 * LOST);
        assert_int_equal(s.samples, 2 * SAMPLES);
        assert_int_equal(s.sum, 2 * SAMPLES * (2 * SAMPLES - 1) / 2);
        assert_string_equal(s.reason, "killed");
        /* Of the new file nothing stays, unless it was killed before the live file said that there is one. */
        assert_true(stat(temporary, &a) < 0 || a.st_size == 0);
        left += stat(temporary, &a) == 0;
        both += (unsigned)two;
        clear();
    }
    print_message("%u system calls, the new file was there after %u\n", calls, both);
    assert_true(both > 1 && both < calls && left < 10);
}

/* ---- a rotation in which something fails ---- */

static void rotate_once(void) {
    if (open_writer(trace))
        _exit(1);
    put_samples();
    raise(SIGSTOP);
    sh->rc = writer_next_segment(writer, old);
    raise(SIGSTOP);
    put_samples();
    writer_close(writer, "exit");
}

/* Lets the next system call fail, if it has to do with files. Returns 0 when there is none. */
static int fail_call(pid_t pid) {
    struct user_regs_struct r;
    int status;
    for (int stop = 0; stop < 2; stop++) {
        assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSTOPPED(status));
        if (WSTOPSIG(status) == SIGSTOP)
            return 0;
        assert_int_equal(ptrace(PTRACE_GETREGS, pid, NULL, &r), 0);
        if (r.orig_rax == SYS_brk || (r.orig_rax == SYS_mmap && r.r10 & MAP_ANONYMOUS) ||
            r.orig_rax == SYS_munmap || r.orig_rax == SYS_madvise || r.orig_rax == SYS_tgkill)
            return 1; /* malloc(), AddressSanitizer's too, which ends the process then; raise() */
        if (!stop)
            r.orig_rax = (unsigned long long)-1; /* the kernel does nothing */
        else
            r.rax = (unsigned long long)-EIO;
        assert_int_equal(ptrace(PTRACE_SETREGS, pid, NULL, &r), 0);
    }
    return 1;
}

/* Whatever fails, no file has two names; and where the rotation has not failed by it, the two files have all that was recorded. */
static void each_call_of_a_rotation_fails(void **state) {
    unsigned calls = 0, failed = 0, left = 0;
    (void)state;
    for (;; calls++) {
        struct seen s = {0};
        struct stat a, b;
        char temporary[160];
        pid_t pid = start(rotate_once);
        if (!make_calls(pid, calls) || !fail_call(pid)) {
            end(pid);
            clear();
            break;
        }
        go_on(pid);
        int two = stat(old, &b) == 0;
        assert_int_equal(stat(trace, &a), 0);
        assert_true(a.st_nlink == 1 && (!two || b.st_nlink == 1));
        assert_int_equal(two, sh->rc == 0);
        snprintf(temporary, sizeof temporary, "%s.next", trace);
        left += access(temporary, F_OK) == 0; /* where it is the removal that fails */
        failed += !two;
        if (two) { /* else the trace goes on behind a seek table */
            read_trace(old, see, &s);
            read_trace(trace, see, &s);
            assert_int_equal(s.samples, 2 * SAMPLES);
        }
        clear();
    }
    print_message("%u system calls, the rotation failed with %u of them\n", calls, failed);
    assert_true(failed > 10 && left <= 3);
}

/* ---- what a process that recorded nothing has left is removed, and nothing else ---- */

static char empty[4096], full[4096]; /* live files of two dead processes with one trace's name */

static void finish_empty(void) {
    raise(SIGSTOP);
    sh->rc = writer_finish(empty, "killed", 0, NULL);
    raise(SIGSTOP);
}

static void another_finisher_at_any_time(void **state) {
    unsigned calls = 0, goes_on = 1;
    (void)state;
    for (; goes_on; calls++) {
        struct seen s = {0};
        in_dead_process(nothing, empty);
        unlink(trace);
        in_dead_process(put_samples, full);
        pid_t pid = start(finish_empty);
        goes_on = (unsigned)make_calls(pid, calls);
        int rc = writer_finish(full, "killed", 0, NULL);
        assert_true(rc == 0 || rc == -EAGAIN);
        go_on(pid);
        assert_int_equal(sh->rc, 0);
        if (rc) /* the other one was just looking at the file */
            assert_int_equal(writer_finish(full, "killed", 0, NULL), 0);
        read_trace(trace, see, &s);
        assert_int_equal(s.samples, SAMPLES);
        clear();
    }
    assert_true(calls > 10);
}

/* ---- a writer that begins ---- */

static void record(void) {
    raise(SIGSTOP);
    sh->rc = open_writer(trace);
    raise(SIGSTOP);
    if (sh->rc == -EEXIST) /* it was taken away: the agent asks for a name again, too */
        sh->rc = open_writer(trace);
    if (!sh->rc) {
        put_samples();
        sh->rc = writer_close(writer, "exit");
    }
}

static void a_finisher_while_a_writer_begins(void **state) {
    unsigned calls = 0, goes_on = 1;
    (void)state;
    for (; goes_on; calls++) {
        struct seen s = {0};
        in_dead_process(nothing, empty);
        unlink(trace);
        pid_t pid = start(record);
        goes_on = (unsigned)make_calls(pid, calls);
        assert_int_equal(writer_finish(empty, "killed", 0, NULL), 0);
        go_on(pid);
        assert_int_equal(sh->rc, 0);
        read_trace(trace, see, &s);
        assert_int_equal(s.samples, SAMPLES);
        clear();
    }
    assert_true(calls > 10);
}

/* Another run takes the name before the file is locked: it gets it, and each of the two writes a file of its own. */
static void another_run_while_a_writer_begins(void **state) {
    const struct run_id me = {"other-1-1", ""};
    unsigned calls = 0, goes_on = 1, is_free = 1;
    (void)state;
    for (; goes_on && is_free; calls++) {
        char file[4096];
        struct seen s = {0};
        pid_t pid = start(record);
        goes_on = (unsigned)make_calls(pid, calls);
        strcpy(file, trace);
        assert_int_equal(run_take(file, sizeof file, &me, NULL, NULL), RUN_FIRST);
        assert_int_equal(open_writer(file), 0);
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(WRITER_EMIT(writer, clock, .ts = i), 0);
        is_free = !strcmp(file, trace);
        go_on(pid);
        assert_int_equal(writer_close(writer, "exit"), 0);
        struct read_trace t = read_trace(file, see, &s);
        assert_int_equal(s.samples, 0);
        assert_int_equal(t.by_type[TRACE_clock], 2);
        if (!is_free) {
            assert_int_equal(sh->rc, 0);
            read_trace(trace, see, &s);
            assert_int_equal(s.samples, SAMPLES);
        } else {
            assert_int_equal(sh->rc, -EEXIST);
        }
        clear();
    }
    print_message("the name is free up to system call %u\n", calls - 1);
    assert_true(calls > 10 && !is_free);
}

/* ---- a packed trace gets its name ---- */

static void finish_pack(void) {
    char temporary[PATH_MAX];
    uint8_t begin[TRACE_HINT_SIZE];
    int fd = pack_file_new(trace, temporary);
    trace_hint_put(begin, &(struct trace_hint){.raw = 1});
    if (fd < 0 || write(fd, begin, sizeof begin) != (ssize_t)sizeof begin)
        _exit(1);
    raise(SIGSTOP);
    sh->rc = pack_file_done(fd, 0, temporary, trace, 0);
    raise(SIGSTOP);
}

/* Another pack deletes what killed ones have left in the folder, and nothing else. */
static void another_pack_at_any_time(void **state) {
    unsigned calls = 0, goes_on = 1;
    (void)state;
    for (; goes_on; calls++) {
        char other[160], temporary[PATH_MAX];
        pid_t pid = start(finish_pack);
        goes_on = (unsigned)make_calls(pid, calls);
        /* It looks into a folder again when it is called by another name than last time. */
        snprintf(other, sizeof other, "%s/%sother.zst", dir, calls % 2 ? "./" : "");
        int fd = pack_file_new(other, temporary);
        assert_true(fd >= 0);
        close(fd);
        go_on(pid);
        assert_int_equal(sh->rc, 0);
        assert_int_equal(access(trace, F_OK), 0);
        clear();
    }
    assert_true(calls > 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(killed_in_a_rotation, setup, teardown),
        cmocka_unit_test_setup_teardown(each_call_of_a_rotation_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(another_finisher_at_any_time, setup, teardown),
        cmocka_unit_test_setup_teardown(a_finisher_while_a_writer_begins, setup, teardown),
        cmocka_unit_test_setup_teardown(another_run_while_a_writer_begins, setup, teardown),
        cmocka_unit_test_setup_teardown(another_pack_at_any_time, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
