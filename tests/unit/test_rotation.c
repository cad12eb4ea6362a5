/* SPDX-License-Identifier: Apache-2.0 */
/* agent/core/rotation.h: when a segment ends, what it is called, which segments are deleted, and that a trace goes on if it cannot be divided. */
#include <sys/stat.h>

#include "trace_reader.h"

#include "writer/internal.h"

#include "agent/core/meta.c"
#include "agent/core/rotation.c"
#include "agent/core/settings.c"

struct fork_lock fork_lock = {PTHREAD_MUTEX_INITIALIZER, 0};
static char dir[64], trace[96];
static struct writer *w;
static struct rotation r;

static void set(enum setting_id id, const char *text) {
    char why[SETTING_WHY];
    assert_int_equal(settings_set(setting_at(id)->key, text, why, sizeof why), 0);
}

static int setup(void **state) {
    (void)state;
    strcpy(dir, "/tmp/test_rotation.XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(trace, sizeof trace, "%s/t.zst", dir);
    set(SETTING_segment_size, "64K");
    set(SETTING_retention_days, "0");
    struct writer_options o = {.trace_path = trace, .run_dir = "/tmp", .nrings = 1};
    return writer_open(&w, &o);
}

static int teardown(void **state) {
    char cmd[160];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s %s.moved", dir, dir);
    return system(cmd);
}

/* Writes more than a segment holds, with contents that cannot be compressed. */
static void fill(void) {
    static uint64_t x = 88172645463325252u;
    char text[400];
    for (unsigned n = 0; n < 600; n++) {
        for (unsigned i = 0; i < sizeof text; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            text[i] = (char)('0' + x % 64);
        }
        assert_int_equal(WRITER_EMIT(w, note, .ts = sys_now(), .part = value_text("test"),
                                     .text = value_bytes(text, sizeof text)),
                         0);
    }
    assert_int_equal(writer_drain(w, WRITER_FLUSH), 0);
}

static int there(const char *format, unsigned pid, unsigned n) {
    char path[160];
    int folder = snprintf(path, sizeof path, "%s/", dir);
    snprintf(path + folder, sizeof path - (size_t)folder, format, pid, n);
    return access(path, F_OK) == 0;
}

static char said[600];
static void notes(void *unused, const struct trace_block_header *h, int type,
                  const struct trace_value *v) {
    (void)unused;
    (void)h;
    if (type == TRACE_note && !memcmp(v[TRACE_note_part].p, "rotation", 8))
        snprintf(said, sizeof said, "%.*s", (int)v[TRACE_note_text].n,
                 (const char *)v[TRACE_note_text].p);
}

static const char *close_and_read(void) {
    said[0] = 0;
    assert_int_equal(writer_close(w, "exit"), 0);
    read_trace(trace, notes, NULL);
    return said;
}

static void of_the_first_process(void **state) {
    unsigned pid = (unsigned)getpid();
    (void)state;
    rotation_open(&r, "node", 3, trace, 1);
    assert_int_equal(rotation_round(&r, w), 0); /* nothing is full */
    assert_false(there("t.zst.d", 0, 0));
    for (unsigned n = 1; n <= 3; n++) {
        fill();
        assert_int_equal(rotation_round(&r, w), 1);
        assert_int_equal(rotation_round(&r, w), 0); /* the new one is not full */
        assert_true(there("t.zst.d/node-r3-%u.%u.zst", pid, n));
    }
    assert_string_equal(close_and_read(), "");
}

/* Somebody has deleted the folder of the segments, with the segments in it: the next ones are made in a new folder. */
static void folder_is_gone(void **state) {
    unsigned pid = (unsigned)getpid();
    char cmd[160];
    (void)state;
    rotation_open(&r, "node", -1, trace, 1);
    for (unsigned n = 1; n <= 3; n++) {
        fill();
        assert_int_equal(rotation_round(&r, w), 1);
        assert_true(there("t.zst.d/node-%u.%u.zst", pid, n));
        snprintf(cmd, sizeof cmd, "rm -r %s.d", trace);
        assert_int_equal(system(cmd), 0);
    }
    assert_string_equal(close_and_read(), "");
}

static void of_another_process(void **state) {
    (void)state;
    assert_true(snprintf(said, sizeof said, "%s/t.1.zst", dir) > 0);
    fclose(fopen(said, "w")); /* an earlier recording's: it stays, and this one is the second */
    rotation_open(&r, "node", -1, trace, 0);
    fill();
    assert_int_equal(rotation_round(&r, w), 1);
    assert_true(there("t.2.zst", 0, 0));
    struct stat st;
    assert_true(stat(said, &st) == 0 && st.st_size == 0);
    assert_string_equal(close_and_read(), "");
}

static void not_without_a_limit(void **state) {
    (void)state;
    set(SETTING_segment_size, "0");
    rotation_open(&r, "node", -1, trace, 0);
    fill();
    assert_int_equal(rotation_round(&r, w), 0);
    assert_false(there("t.1.zst", 0, 0));
    close_and_read();
}

static void old_ones_go(void **state) {
    struct timespec times[2] = {{.tv_sec = time(NULL) - 2 * 86400},
                                {.tv_sec = time(NULL) - 2 * 86400}};
    (void)state;
    rotation_open(&r, "node", -1, trace, 0);
    for (unsigned n = 1; n <= 4; n++) {
        char path[160];
        fill();
        assert_int_equal(rotation_round(&r, w), 1);
        snprintf(path, sizeof path, "%s/t.%u.zst", dir, n);
        if (n == 2)
            assert_int_equal(unlink(path), 0); /* somebody has moved it away */
        else if (n < 4)
            assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    set(SETTING_retention_days, "3");
    rotation_round(&r, w);
    assert_true(there("t.1.zst", 0, 0));
    set(SETTING_retention_days, "1");
    rotation_round(&r, w);
    assert_true(there("t.1.zst", 0, 0)); /* looked at again after a while alone */
    r.next_check = 0;
    rotation_round(&r, w);
    assert_false(there("t.1.zst", 0, 0));
    assert_false(there("t.3.zst", 0, 0));
    assert_true(there("t.4.zst", 0, 0)); /* ended just now */
    assert_non_null(strstr(close_and_read(), "t.3.zst: it ended more than 1 days ago"));
}

/* What the live file does not take of max_memory, less 4 MiB for everything else, is for the dictionaries: 86 bytes for each entry. */
static void the_memory_is_divided(void **state) {
    static const char *const sizes[] = {"16M", "17M", "18M", "24M", "64M", "1T"};
    unsigned limited = 0;
    (void)state;
    close_and_read();
    rotation_open(&r, "node", -1, trace, 0);
    for (unsigned large = 1 << 18; large <= 8 << 20; large *= 2) {
        struct writer_options o = {
            .trace_path = trace, .run_dir = "/tmp", .nrings = 1, .large_ring = large};
        unlink(trace);
        assert_int_equal(writer_open(&w, &o), 0);
        uint64_t others = writer_live(w)->file_size + (4 << 20);
        uint32_t most = w->bound; /* that of a new writer: there is no space for more */
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            set(SETTING_max_memory, sizes[i]);
            uint64_t all = settings_number(SETTING_max_memory);
            rotation_round(&r, w);
            if (all <= others) {
                assert_int_equal(w->bound, 1024); /* or each record would begin an epoch */
                continue;
            }
            uint64_t used = others + w->bound * 86ull;
            assert_true(w->bound <= most && used <= all);
            assert_true(w->bound == most || all - used < 86);
            limited += w->bound < most;
        }
        assert_int_equal(w->bound, most);
        close_and_read();
    }
    assert_true(limited > 2);
    set(SETTING_max_memory, "0");
}

/* The folder has been renamed: nothing can be created in it. */
static void where_it_cannot(void **state) {
    char moved[80], command[200];
    (void)state;
    rotation_open(&r, "node", -1, trace, 1);
    fill();
    snprintf(moved, sizeof moved, "%s.moved", dir);
    assert_int_equal(rename(dir, moved), 0);
    assert_int_equal(rotation_round(&r, w), 0);
    assert_int_equal(r.off, 1);
    assert_int_equal(rename(moved, dir), 0);
    fill();
    assert_int_equal(rotation_round(&r, w), 0); /* and is not tried again, though it could */
    assert_false(there("t.zst.d", 0, 0));
    snprintf(command, sizeof command,
             "the trace goes on in one file: %s.d: No such file or directory", trace);
    assert_string_equal(close_and_read(), command);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(of_the_first_process),  TEST(folder_is_gone), TEST(of_another_process),
        TEST(not_without_a_limit),   TEST(old_ones_go),    TEST(where_it_cannot),
        TEST(the_memory_is_divided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
