/* SPDX-License-Identifier: Apache-2.0 */
/* convert: stacks, threads, times and sums of a trace, as they come out of the database. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "converter/clock.h"
#include "converter/convert.h"
#include "converter/text.h"
#include "converter/threads.h"
#include "synthetic.h"
#include <sqlite3.h>

static char dir[] = "/tmp/test_convert.XXXXXX";

static int setup(void **state) {
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state) {
    char cmd[64];

    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static const char *path_of(const char *name) {
    static char path[4][128];
    static int i;
    i = (i + 1) & 3;
    snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}

static char said[1024];

static void say(void *ctx, const char *file, const char *line) {
    (void)ctx;
    snprintf(said, sizeof said, "%s: %s", file, line);
}

static struct convert_result result;

/* Converts the NULL-terminated names within dir. Returns the result of convert(). */
static int run(const char *db, int force, const char *const *names) {
    struct inputs in = {0};
    char out[128];
    struct convert_options opt = {.out = out, .force = force, .say = say};

    snprintf(out, sizeof out, "%s", path_of(db));
    said[0] = 0;
    for (; *names; names++)
        assert_int_equal(inputs_add(&in, path_of(*names), INPUTS_SIBLINGS), 0);
    int err = convert(&in, &opt, &result);
    inputs_free(&in);
    return err;
}

/* Returns the rows of a query as text: columns separated by '|', rows by newlines. */
static const char *sql(const char *db, const char *query) {
    static char text[4096];
    sqlite3 *h;
    sqlite3_stmt *st;
    size_t n = 0;

    assert_int_equal(sqlite3_open_v2(path_of(db), &h, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    if (sqlite3_prepare_v2(h, query, -1, &st, NULL) != SQLITE_OK)
        fail_msg("%s: %s", query, sqlite3_errmsg(h));
    text[0] = 0;
    while (sqlite3_step(st) == SQLITE_ROW)
        for (int i = 0; i < sqlite3_column_count(st); i++) {
            const char *v = (const char *)sqlite3_column_text(st, i);
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", v ? v : "-",
                                  i + 1 < sqlite3_column_count(st) ? "|" : "\n");
        }
    sqlite3_finalize(st);
    sqlite3_close(h);
    return text;
}

static int files_in_dir(const char *part) {
    DIR *d = opendir(dir);
    int n = 0;

    for (struct dirent *e; (e = readdir(d));)
        n += strstr(e->d_name, part) != NULL;
    closedir(d);
    return n;
}

/* Everything in the trace is in the tables, with right sums. */
static void sums(void **state) {
    struct synthetic s = {.samples = 5000, .threads = 4, .stacks = 6, .depth = 5, .rank = 3};

    (void)state;
    assert_int_equal(synthetic_trace(path_of("a.zst"), dir, &s), 0);
    assert_int_equal(run("a.db", 0, (const char *[]){"a.zst", NULL}), 0);
    assert_string_equal(said, "");
    assert_int_equal(result.traces, 1);
    assert_int_equal(result.samples, 5000);
    assert_int_equal(result.damaged + result.open + result.failed + result.lost, 0);
    assert_string_equal(sql("a.db", "SELECT count(*), min(timestamp), max(timestamp) FROM samples"),
                        "5000|1700000000.001|1700000001.25\n");
    assert_string_equal(sql("a.db", "SELECT tid, name, samples FROM threads ORDER BY tid"),
                        "4200|MainThread|1250\n4201|worker-1|1250\n4202|worker-2|1250\n"
                        "4203|worker-3|1250\n");
    /* the sums made while loading are those of the rows */
    assert_string_equal(sql("a.db", "SELECT sum(self), sum(share) FROM hot_functions"),
                        "5000|1.0\n");
    assert_string_equal(
        sql("a.db",
            "SELECT count(*) FROM hot_functions h WHERE self != (SELECT count(*) FROM "
            "samples s WHERE s.func = h.func) OR total != (SELECT count(*) FROM backtrace b "
            "WHERE b.func = h.func)"),
        "0\n");
    assert_string_equal(sql("a.db", "SELECT round(sum(seconds), 6), round(sum(cpu_seconds), 6) = "
                                    "(SELECT round(sum(cpu_seconds), 6) FROM samples) FROM "
                                    "hot_functions"),
                        "5.0|1\n");
    assert_string_equal(sql("a.db", "SELECT sum(total) = (SELECT count(*) FROM backtrace) FROM "
                                    "hot_functions"),
                        "1\n");
    assert_string_equal(
        sql("a.db", "SELECT rank, world_size, local_rank, python, command, clock, "
                    "complete, period, end_reason FROM trace"),
        "3|8|-|3.11.2|python3 train.py --name 'it'\\''s me'|anchors|1|0.001|exit\n");
    /* what lies between the samples is there, too */
    assert_string_equal(sql("a.db", "SELECT count(*), min(rss), max(rss) FROM memory_usage"),
                        "5|100000000|100004000\n");
    assert_string_equal(sql("a.db", "SELECT interface, count(*), max(rx_bytes) FROM "
                                    "network_statistics GROUP BY 1"),
                        "eth0|5|400000\n");
    /* each stack is five frames, the outer ones shared */
    assert_string_equal(sql("a.db", "SELECT min(n), max(n) FROM (SELECT count(*) n FROM backtrace "
                                    "GROUP BY sample_id)"),
                        "5|5\n");
    assert_string_equal(sql("a.db", "SELECT func, file, lineno, frame_type FROM backtrace WHERE "
                                    "depth = 4 GROUP BY 1, 2, 3, 4"),
                        "function_10|/src/file_3.py|105|Python\n");
}

/* Several traces in one database: ids do not collide, and the same file is taken once. */
static void merge(void **state) {
    struct synthetic s = {.samples = 300, .threads = 2, .rank = 0};
    char link_name[128];

    (void)state;
    assert_int_equal(synthetic_trace(path_of("m.zst"), dir, &s), 0);
    assert_int_equal(mkdir(path_of("m.zst.d"), 0777), 0);
    s.rank = 1;
    s.pid = 78;
    s.samples = 500;
    assert_int_equal(synthetic_trace(path_of("m.zst.d/node7-r1-78.zst"), dir, &s), 0);
    snprintf(link_name, sizeof link_name, "%s", path_of("again.zst"));
    assert_int_equal(link(path_of("m.zst"), link_name), 0);
    assert_int_equal(run("m.db", 0, (const char *[]){"m.zst", "again.zst", "m.zst.d", NULL}), 0);
    assert_int_equal(result.traces, 2);
    assert_string_equal(sql("m.db",
                            "SELECT trace_id, pid, rank, count(*), count(DISTINCT sample_id), "
                            "min(sample_id) >> 40, max(sample_id) >> 40 FROM samples GROUP BY 1"),
                        "1|77|0|300|300|1|1\n2|78|1|500|500|2|2\n");
    assert_string_equal(sql("m.db", "SELECT sum(self) FROM hot_functions"), "800\n");
    assert_string_equal(sql("m.db", "SELECT trace_id, sum(samples) FROM threads GROUP BY 1"),
                        "1|300\n2|500\n");
    assert_string_equal(sql("m.db", "SELECT trace_id, count(*) FROM memory_usage GROUP BY 1"),
                        "1|1\n2|1\n");
    /* equal functions of both are one */
    assert_string_equal(sql("m.db", "SELECT count(*) = count(DISTINCT func) FROM hot_functions"),
                        "1\n");
}

/* An existing database stays unless --force is given; a failure leaves no file. */
static void replacing(void **state) {
    struct synthetic s = {.samples = 10};
    struct stat before, after;
    FILE *f;

    (void)state;
    assert_int_equal(synthetic_trace(path_of("r.zst"), dir, &s), 0);
    assert_non_null(f = fopen(path_of("r.db"), "w"));
    fputs("precious", f);
    fclose(f);
    for (int force = 0; force < 2; force++) { /* not ours: not even with --force */
        assert_int_equal(run("r.db", force, (const char *[]){"r.zst", NULL}), -EEXIST);
        assert_non_null(strstr(result.error, "not replaced"));
        assert_int_equal(stat(path_of("r.db"), &after), 0);
        assert_int_equal(after.st_size, 8);
    }
    unlink(path_of("r.db"));
    assert_int_equal(run("r.db", 0, (const char *[]){"r.zst", NULL}), 0);
    assert_int_equal(stat(path_of("r.db"), &before), 0);
    assert_int_equal(run("r.db", 0, (const char *[]){"r.zst", NULL}), -EEXIST);
    assert_non_null(strstr(result.error, "--force"));
    /* nothing usable: the old one stays even with --force */
    assert_int_equal(symlink("/dev/null", path_of("null.zst")), 0);
    assert_int_equal(run("r.db", 1, (const char *[]){"null.zst", NULL}), -ENODATA);
    assert_int_equal(stat(path_of("r.db"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    /* a journal of the old database must not meet the new one */
    assert_non_null(f = fopen(path_of("r.db-journal"), "w"));
    fclose(f);
    assert_int_equal(run("r.db", 1, (const char *[]){"r.zst", NULL}), 0);
    assert_int_equal(access(path_of("r.db-journal"), F_OK), -1);
    assert_string_equal(sql("r.db", "SELECT count(*) FROM samples"), "10\n");
    assert_int_equal(files_in_dir(".tmp-"), 0);
}

static int stop_at_once(void *ctx, double part) {
    (void)ctx, (void)part;
    return 1;
}

static void interrupted(void **state) {
    struct synthetic s = {.samples = 50000, .flush = 500};
    struct inputs in = {0};
    char out[128];
    struct convert_options opt = {.out = out, .tick = stop_at_once};

    (void)state;
    snprintf(out, sizeof out, "%s", path_of("i.db"));
    assert_int_equal(synthetic_trace(path_of("i.zst"), dir, &s), 0);
    assert_int_equal(inputs_add(&in, path_of("i.zst"), 0), 0);
    assert_int_equal(convert(&in, &opt, &result), -EINTR);
    inputs_free(&in);
    assert_int_equal(access(out, F_OK), -1);
    assert_int_equal(files_in_dir(".tmp-"), 0);
}

/* The rows of a block are sorted by time, in whatever order the rings were drained (5 times each here). */
static void sorted(void **state) {
    struct synthetic s = {.samples = 4000, .threads = 7, .flush = 5 * 7 * SYNTHETIC_RUN};

    (void)state;
    assert_int_equal(synthetic_trace(path_of("s.zst"), dir, &s), 0);
    assert_int_equal(run("s.db", 0, (const char *[]){"s.zst", NULL}), 0);
    assert_string_equal(sql("s.db", "SELECT count(*) FROM (SELECT timestamp - lag(timestamp) OVER "
                                    "(ORDER BY sample_id) AS d FROM samples) WHERE d < 0"),
                        "0\n");
}

static void clocks(void **state) {
    struct clock_map m = {0};

    (void)state;
    assert_int_equal(clock_utc(&m, 5), 5); /* no anchor: as it is */
    clock_add(&m, 2000, 1000000, 0);
    clock_add(&m, 1000, 500000, 10); /* out of order; taken 5 ns after 1000 */
    clock_ready(&m);
    assert_int_equal(m.uncertainty, 10);
    assert_int_equal(clock_utc(&m, 1005), 500000);
    assert_int_equal(clock_utc(&m, 1000), 499995);
    assert_int_equal(clock_utc(&m, 2000), 1000000);
    assert_int_equal(clock_utc(&m, 2100), 1000100);
    assert_in_range(clock_utc(&m, 1502), 749000, 750500); /* half way */
    clock_free(&m);
    /* times of the real size keep their nanoseconds */
    clock_add(&m, 1000000000000, 1700000000000000001, 0);
    clock_add(&m, 1010000000000, 1700000010000000001, 0);
    clock_ready(&m);
    assert_int_equal(clock_utc(&m, 1009999999999), 1700000010000000000);
    clock_free(&m);
    /* nonsense does not trap */
    clock_add(&m, 0, UINT64_MAX, UINT64_MAX);
    clock_add(&m, UINT64_MAX / 2, 0, 0);
    clock_add(&m, 7, 1ull << 63, 3);
    clock_ready(&m);
    for (int i = 0; i < 64; i++)
        clock_utc(&m, 1ull << i);
    clock_free(&m);
}

static void texts(void **state) {
    static const struct {
        const char *in;
        size_t n;
        const char *out;
    } cases[] = {{"plain", 5, "plain"},
                 {"gr\xc3\xbc\xc3\x9f", 6, "grüß"},
                 {"a\xff"
                  "b",
                  3,
                  "a\xef\xbf\xbd"
                  "b"},
                 {"cut\xe2\x82", 5, "cut\xef\xbf\xbd\xef\xbf\xbd"},
                 {"\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
                 {"n\0l", 3, "n\xef\xbf\xbdl"},
                 {"\xf0\x9f\x90\x8d", 4, "\xf0\x9f\x90\x8d"}};
    char version[32], *p;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        p = text_utf8(cases[i].in, cases[i].n, NULL);
        assert_string_equal(p, cases[i].out);
        free(p);
    }
    p = text_command("a\0\0b c\0d'e\0", 11);
    assert_string_equal(p, "a '' 'b c' 'd'\\''e'");
    free(p);
    /* a title that was written over the arguments */
    p = text_command("ray::Train worker\0\0\0\0\0", 22);
    assert_string_equal(p, "ray::Train worker");
    free(p);
    p = text_command("a\0b\0\0\0", 6);
    assert_string_equal(p, "a b '' ''");
    free(p);
    text_python(0x030d00c2, version);
    assert_string_equal(version, "3.13.0rc2");
    text_python(0, version);
    assert_string_equal(version, "");
}

static const char *name_at(struct threads *t, uint64_t tid, uint64_t ts) {
    return threads_text(t, threads_at(t, tid, ts)->name);
}

/* A tid that is used again is another thread. */
static void tids(void **state) {
    struct threads t;

    (void)state;
    threads_init(&t);
    assert_int_equal(threads_record(&t, 10, 5, "first", NULL, 1, 1), 0);
    assert_int_equal(threads_record(&t, 15, 5, "renamed", NULL, 0, 1), 0);
    assert_int_equal(threads_record(&t, 20, 5, NULL, NULL, 0, 0), 0);
    assert_int_equal(threads_record(&t, 30, 5, "second", NULL, 2, 1), 0);
    assert_int_equal(t.n, 2);
    assert_string_equal(name_at(&t, 5, 12), "renamed");
    assert_string_equal(name_at(&t, 5, 25), "second");
    assert_string_equal(name_at(&t, 5, 12), "renamed");
    assert_string_equal(name_at(&t, 5, 99), "second");
    assert_null(name_at(&t, 6, 1)); /* nobody announced it */
    assert_int_equal(t.n, 3);
    threads_free(&t);
}

/* Names that come and go: each thread has its last name, and names that no thread has any more take no memory. */
static void threads_that_are_renamed(void **state) {
    struct threads t;
    char name[32], comm[32];

    (void)state;
    threads_init(&t);
    for (unsigned round = 0; round < 200; round++)
        for (unsigned i = 0; i < 1000; i++) {
            snprintf(name, sizeof name, "request-%u-%u", round, i);
            snprintf(comm, sizeof comm, i % 3 ? "%s" : "pool", name);
            assert_int_equal(threads_record(&t, round, i, name, comm, 0, 1), 0);
        }
    assert_int_equal(t.n, 1000);
    assert_true(t.texts_cap < 100000);
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "request-199-%u", i);
        assert_string_equal(name_at(&t, i, 1), name);
        assert_string_equal(threads_text(&t, threads_at(&t, i, 1)->comm), i % 3 ? name : "pool");
    }
    threads_free(&t);
}

/* A stack of which nothing is shown (all its code is the agent's) is still a stack; only one without a definition is unresolved. */
static void stacks_without_frames(void **state) {
    struct writer *w;
    uint64_t pcs[2] = {0x700010, 0x700020};
    struct writer_value module[TRACE_module_NFIELDS] = {
        [TRACE_module_key] = synthetic_u(1),
        [TRACE_module_path] = synthetic_s("/opt/lib/libprobing-agent.so"),
        [TRACE_module_start] = synthetic_u(0x700000),
        [TRACE_module_end] = synthetic_u(0x710000),
        [TRACE_module_bias] = synthetic_u(0x700000),
        [TRACE_module_ts] = synthetic_u(SYNTHETIC_MONO)};
    struct writer_value stack[TRACE_stack_NFIELDS] = {
        [TRACE_stack_key] = synthetic_u(5), [TRACE_stack_native] = {.p = pcs, .n = 2}};
    struct writer_value sample[TRACE_sample_NFIELDS] = {
        [TRACE_sample_ts] = synthetic_u(SYNTHETIC_MONO + 1),
        [TRACE_sample_tid] = synthetic_u(SYNTHETIC_TID),
        [TRACE_sample_stack] = synthetic_u(5),
        [TRACE_sample_count] = synthetic_u(1)};
    struct synthetic s = {.samples = 1};

    (void)state;
    assert_int_equal(writer_open(&w, &(struct writer_options){.trace_path = path_of("agent.zst"),
                                                              .run_dir = dir}),
                     0);
    synthetic_process(w, &s);
    writer_emit(w, TRACE_module, module);
    writer_emit(w, TRACE_stack, stack);
    for (int i = 0; i < 3; i++)
        assert_int_equal(writer_emit(w, TRACE_sample, sample), 0);
    assert_int_equal(writer_close(w, "exit"), 0);
    assert_int_equal(run("agent.db", 0, (const char *[]){"agent.zst", NULL}), 0);
    assert_string_equal(sql("agent.db", "SELECT count(*), count(stack_id) FROM samples"), "3|0\n");
    assert_string_equal(sql("agent.db", "SELECT lost, (SELECT count(*) FROM loss) FROM trace"),
                        "0|0\n");
}

/* The sampler may still be at its last tick, or be held up in it, when the process writes that it ends: nobody else did so for it. */
static void a_tick_behind_the_end(void **state) {
    struct writer *w;
    struct synthetic s = {.samples = 1};
    struct writer_value sample[TRACE_sample_NFIELDS] = {
        [TRACE_sample_ts] = synthetic_u(sys_now() + 10 * SYS_SECOND),
        [TRACE_sample_tid] = synthetic_u(SYNTHETIC_TID),
        [TRACE_sample_count] = synthetic_u(1)};

    (void)state;
    assert_int_equal(writer_open(&w, &(struct writer_options){.trace_path = path_of("behind.zst"),
                                                              .run_dir = dir}),
                     0);
    synthetic_process(w, &s);
    assert_int_equal(writer_emit(w, TRACE_sample, sample), 0);
    assert_int_equal(writer_close(w, "exit"), 0);
    assert_int_equal(run("behind.db", 0, (const char *[]){"behind.zst", NULL}), 0);
    assert_string_equal(sql("behind.db", "SELECT finished IS NULL, end_reason FROM trace"),
                        "1|exit\n");
}

/* A thread that had lost its CPU within the handler is read from outside, and completes its own sample later. */
static void a_thread_with_two_stacks_at_a_trigger(void **state) {
    struct writer *w;
    struct synthetic s = {.samples = 1, .threads = 2};
    struct writer_value trigger[TRACE_trigger_NFIELDS] = {
        [TRACE_trigger_ts] = synthetic_u(SYNTHETIC_MONO + 3),
        [TRACE_trigger_id] = synthetic_u(1),
        [TRACE_trigger_kind] = synthetic_s("term"),
        [TRACE_trigger_tid] = synthetic_u(SYNTHETIC_TID),
        [TRACE_trigger_step] = {.i = -1},
        [TRACE_trigger_tick] = synthetic_u(SYNTHETIC_MONO)};

    (void)state;
    assert_int_equal(
        writer_open(&w, &(struct writer_options){.trace_path = path_of("two.zst"), .run_dir = dir}),
        0);
    synthetic_process(w, &s);
    synthetic_thread(w, 0);
    synthetic_thread(w, 1);
    writer_emit(w, TRACE_trigger, trigger);
    for (unsigned i = 0; i < 3; i++) {
        struct writer_value sample[TRACE_sample_NFIELDS] = {
            [TRACE_sample_ts] = synthetic_u(SYNTHETIC_MONO),
            [TRACE_sample_tid] = synthetic_u(SYNTHETIC_TID + i % 2),
            [TRACE_sample_flags] = synthetic_u(i ? 1 : 5)};
        assert_int_equal(writer_emit(w, TRACE_sample, sample), 0);
    }
    assert_int_equal(writer_close(w, "exit"), 0);
    assert_int_equal(run("two.db", 0, (const char *[]){"two.zst", NULL}), 0);
    assert_string_equal(sql("two.db", "SELECT stacks FROM triggers"), "2\n");
    assert_string_equal(sql("two.db", "SELECT count(*), count(DISTINCT tid) FROM trigger_stacks"),
                        "2|2\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums),
        cmocka_unit_test(merge),
        cmocka_unit_test(replacing),
        cmocka_unit_test(interrupted),
        cmocka_unit_test(sorted),
        cmocka_unit_test(clocks),
        cmocka_unit_test(texts),
        cmocka_unit_test(tids),
        cmocka_unit_test(threads_that_are_renamed),
        cmocka_unit_test(stacks_without_frames),
        cmocka_unit_test(a_tick_behind_the_end),
        cmocka_unit_test(a_thread_with_two_stacks_at_a_trigger),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
