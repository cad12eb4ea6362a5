/* SPDX-License-Identifier: Apache-2.0 */
/* The writer when the disk is full, the file too large or the directory gone: the recording stops, the process goes on, the trace so far can be
 * read, and the loss is reported. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "trace_reader.h"
#include "writer/writer.h"

static char dir[64], trace[256];

static int setup(void **state) {
    (void)state;
    strcpy(dir, "/tmp/test_disk.XXXXXX");
    /* Like the agent's threads, with all signals masked. */
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state) {
    char cmd[128];
    (void)state;
    snprintf(cmd, sizeof cmd, "%s/small", dir);
    umount2(cmd, MNT_DETACH); /* when a test has failed half-way */
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static struct writer *open_writer(struct ring **r) {
    struct writer *w = NULL;
    assert_int_equal(
        writer_open(&w, &(struct writer_options){.trace_path = trace, .run_dir = dir, .nrings = 1}),
        0);
    *r = live_ring_get(writer_live(w), 1);
    return w;
}

/* Puts n samples that can hardly be compressed. */
static void put_samples(struct ring *r, unsigned n) {
    static uint64_t s = 88172645463325252u;
    while (n--) {
        uint64_t *f = ring_reserve(r, TRACE_sample, TRACE_sample_NFIELDS, 0);
        assert_non_null(f);
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        f[TRACE_sample_ts] = s >> 20;
        f[TRACE_sample_pc] = s;
        f[TRACE_sample_cpu_us] = s >> 10;
        ring_commit(f);
    }
}

static uint64_t end_disk;

static void see_end(void *ctx, const struct trace_block_header *h, int type,
                    const struct trace_value *v) {
    (void)ctx;
    (void)h;
    if (type == TRACE_end)
        end_disk = v[TRACE_end_reason].n == 4 && memcmp(v[TRACE_end_reason].p, "disk", 4) == 0;
}

/* Fills the trace until the writer fails; then the writer must go on emptying the rings. Returns the number of samples put. */
static unsigned fill(struct writer *w, struct ring *r, int error) {
    unsigned put = 0, n = 0;
    int status;
    do {
        assert_true(n++ < 1000);
        put_samples(r, 500);
        put += 500;
        status = writer_drain(w, WRITER_FLUSH);
    } while (status == 0);
    assert_int_equal(status, error);
    for (int i = 0; i < 10; i++) {
        put_samples(r, 1500); /* more than the ring holds, all in all */
        put += 1500;
        assert_int_equal(writer_drain(w, 0), error);
    }
    return put;
}

static void check_trace(unsigned put, int told) {
    end_disk = 0;
    struct read_trace t = read_trace(trace, see_end, NULL);
    assert_int_equal(end_disk, told);
    assert_true(t.by_type[TRACE_sample] > 0);
    if (told) {
        assert_int_equal(t.by_type[TRACE_sample] + t.lost[TRACE_LOST_write_error], put);
        assert_int_equal(t.lost[TRACE_LOST_ring_full], 0);
        assert_true(t.seek_frames > 0);
    }
}

static void test_file_size_limit(void **state) {
    (void)state;
    struct rlimit old, small;
    struct ring *r;
    snprintf(trace, sizeof trace, "%s/limit.zst", dir);
    for (int room = 0; room < 2; room++) {
        unlink(trace);
        struct writer *w = open_writer(&r);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
        small = (struct rlimit){50000, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        unsigned put = fill(w, r, -EFBIG);
        assert_int_equal(writer_live(w)->lost[TRACE_LOST_write_error] > 0, 1);
        if (room) /* later there is room for the small last block */
            setrlimit(RLIMIT_FSIZE, &old);
        else /* not even for that */
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){writer_live(w)->trace_bytes, old.rlim_max});
        uint64_t bytes = writer_live(w)->trace_bytes;
        int rc = writer_close(w, "exit");
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(rc, -EFBIG);
        check_trace(put, room);
        if (!room) {
            struct stat st;
            assert_int_equal(stat(trace, &st), 0);
            assert_int_equal(st.st_size, bytes); /* cut back to the last whole block */
        }
    }
}

static void test_full_disk(void **state) {
    (void)state;
    char mnt[128], filler[160];
    struct ring *r;
    snprintf(mnt, sizeof mnt, "%s/small", dir);
    assert_int_equal(mkdir(mnt, 0700), 0);
    if (mount("tmpfs", mnt, "tmpfs", 0, "size=300k") < 0) {
        print_message("no tmpfs can be mounted here: %s\n", strerror(errno));
        skip();
    }
    snprintf(trace, sizeof trace, "%s/t.zst", mnt);
    struct writer *w = open_writer(&r);
    unsigned put = fill(w, r, -ENOSPC);
    int rc = writer_close(w, "exit"); /* a page was left over by the cut: room for the last block */
    if (rc == -ENOSPC)
        check_trace(put, 1);
    unlink(trace);

    /* The disk is full from the beginning, then there is room again. */
    snprintf(filler, sizeof filler, "%s/filler", mnt);
    int fd = open(filler, O_WRONLY | O_CREAT, 0600);
    char block[4096] = {1};
    w = open_writer(&r);
    while (write(fd, block, sizeof block) > 0)
        ;
    close(fd);
    put_samples(r, 100);
    int first = writer_drain(w, WRITER_FLUSH);
    uint64_t bytes = writer_live(w)->trace_bytes;
    unlink(filler);
    put_samples(r, 100);
    int second = writer_drain(w, WRITER_FLUSH);
    int closed = writer_close(w, "exit");
    end_disk = 0;
    struct read_trace t = read_trace(trace, see_end, NULL);
    umount(mnt);
    assert_int_equal(rc, -ENOSPC);
    assert_int_equal(first, -ENOSPC);
    assert_int_equal(second, -ENOSPC); /* sticky */
    assert_int_equal(closed, -ENOSPC);
    assert_int_equal(bytes, 0);
    assert_int_equal(t.by_type[TRACE_sample], 0);
    assert_int_equal(t.by_type[TRACE_schema], 1);
    assert_int_equal(t.lost[TRACE_LOST_write_error], 201); /* and the first schema record */
    assert_int_equal(end_disk, 1);
}

static void test_vanished_directory(void **state) {
    (void)state;
    char sub[128], moved[128];
    struct ring *r;
    snprintf(sub, sizeof sub, "%s/sub", dir);
    snprintf(moved, sizeof moved, "%s/moved", dir);
    snprintf(trace, sizeof trace, "%s/t.zst", sub);
    assert_int_equal(mkdir(sub, 0700), 0);
    struct writer *w = open_writer(&r);
    put_samples(r, 100);
    assert_int_equal(writer_drain(w, WRITER_FLUSH), 0);
    /* Renamed: the file is the same. */
    assert_int_equal(rename(sub, moved), 0);
    put_samples(r, 100);
    assert_int_equal(writer_drain(w, WRITER_FLUSH), 0);
    assert_int_equal(rename(moved, sub), 0);
    assert_int_equal(unlink(trace), 0);
    assert_int_equal(rmdir(sub), 0);
    put_samples(r, 100);
    assert_int_equal(writer_drain(w, WRITER_FLUSH), -ENOENT);
    assert_int_equal(writer_live(w)->lost[TRACE_LOST_write_error], 100);
    assert_int_equal(writer_drain(w, 0), -ENOENT);
    assert_int_equal(writer_close(w, "exit"), -ENOENT);
    assert_int_equal(access(trace, F_OK), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_size_limit),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_vanished_directory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
