/* SPDX-License-Identifier: Apache-2.0 */
/* A training whose recording goes on in other files: in whatever order these are converted, the answers are those of a recording in one file. */
#include <sqlite3.h>
#include <unistd.h>

#include "converter/convert.h"
#include "torch_program.h"

#define MOST_FILES 64

static char dir[] = "/tmp/test_torch_rotation.XXXXXX";

static struct {
    struct writer *whole, *parts; /* the same records, in one file and in several */
    unsigned files;               /* of the latter */
} to;

static int setup(void **state) {
    char path[96];

    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "mkdir %s/1 %s/2", dir, dir);
    return system(path);
}

static int teardown(void **state) {
    char cmd[64];

    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

/* ---- the two recordings ---- */

static void program_emit(unsigned record, const struct writer_value *v) {
    assert_int_equal(writer_emit(to.whole, record, v), 0);
    assert_int_equal(writer_emit(to.parts, record, v), 0);
}

static void program_drain(void) {
    assert_int_equal(writer_drain(to.whole, WRITER_FLUSH), 0);
    assert_int_equal(writer_drain(to.parts, WRITER_FLUSH), 0);
}

/* What each file begins with. */
static void describe(struct writer *w) {
    struct synthetic s = {.rank = 0};

    synthetic_process_at(w, &s, g.now);
    synthetic_clock(w, g.now);
    for (unsigned i = 0; i < THREADS; i++)
        synthetic_thread(w, i);
}

static void program_turn(void) {
    char path[96];

    program_end();
    program_drain();
    if (to.files + 2 > MOST_FILES)
        return;
    g.now += 1000; /* so that no two files begin at the same time */
    snprintf(path, sizeof path, "%s/part.%u.zst", dir, ++to.files);
    assert_int_equal(writer_next_segment(to.parts, path), 0);
    describe(to.parts);
}

static struct writer *open_trace(const char *name, unsigned run) {
    char path[96], run_dir[64];
    struct writer *w;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    snprintf(run_dir, sizeof run_dir, "%s/%u", dir, run);
    assert_int_equal(
        writer_open(&w, &(struct writer_options){.trace_path = path, .run_dir = run_dir}), 0);
    describe(w);
    return w;
}

static void begin(unsigned seed, unsigned late) {
    char cmd[96];

    snprintf(cmd, sizeof cmd, "rm -f %s/*.zst %s/*.db", dir, dir);
    assert_int_equal(system(cmd), 0);
    program_start(seed, late);
    g.apart =
        1; /* a file without the end of a step does not tell whose calls are the step's, nor what has ended before it */
    to.files = 0;
    to.whole = open_trace("whole.zst", 1);
    to.parts = open_trace("part.zst", 2);
    program_names();
}

static void end(void) {
    while (g.t[ENGINE].n)
        ends(&g.t[ENGINE]);
    program_end();
    synthetic_clock(to.whole, g.now);
    synthetic_clock(to.parts, g.now);
    assert_int_equal(writer_close(to.whole, "exit"), 0);
    assert_int_equal(writer_close(to.parts, "exit"), 0);
    assert_true(to.files >= 3);
}

/* ---- databases ---- */

/* Adds files to the database. */
static void add(const char *db, const char *const *names, unsigned n) {
    struct inputs in = {0};
    char path[96], out[96];
    struct convert_options opt = {.out = out, .append = 1, .threads = 1};
    struct convert_result res;

    snprintf(out, sizeof out, "%s/%s", dir, db);
    for (unsigned i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        assert_int_equal(inputs_add(&in, path, 0), 0);
    }
    if (convert(&in, &opt, &res) != 0)
        fail_msg("%s", res.error);
    inputs_free(&in);
}

static int64_t number(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return n;
}

/* What the answers must be the same in; ids and traces are not. Times are in ns: sums of seconds depend on their order. */
static const char *const answers[] = {
    "SELECT number, source, ts, duration, forward, backward, optimizer, data, forwards, backwards, optimizers, told FROM %s.torch_step",
    "SELECT c.ts, c.duration, h.tid, c.stage, m.name, m.type, c.call, c.depth, c.flags, c.step, c.seq, c.call_tid,"
    " (SELECT q.ts FROM %s.torch_call q WHERE q.id = c.id - c.parent) FROM %s.torch_call c"
    " JOIN %s.thread h ON h.id = (c.id >> 40 << 40) + c.thread JOIN %s.torch_module m ON m.id = (c.id >> 40 << 40) + c.module",
    "SELECT m.name, c.stage, sum(c.calls), sum(c.timed), sum(c.ns), sum(c.self_ns), max(c.longest) FROM %s.torch_module_total c"
    " JOIN %s.torch_module m ON m.id = c.module GROUP BY 1, 2",
    "SELECT ts, step, rss FROM %s.memory_step",
};

/* Compares the answers of the database with those of the whole recording. */
static void compare(const char *name, const char *how) {
    char path[96];
    sqlite3 *db;

    snprintf(path, sizeof path, "%s/whole.db", dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    char *sql = sqlite3_mprintf("ATTACH '%s/%s' AS parts", dir, name);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_free(sql);
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        char *whole = sqlite3_mprintf(answers[i], "main", "main", "main", "main");
        char *parts = sqlite3_mprintf(answers[i], "parts", "parts", "parts", "parts");
        sql = sqlite3_mprintf(
            "SELECT (SELECT count(*) FROM (%s EXCEPT %s)) + (SELECT count(*) FROM (%s EXCEPT %s))"
            " + abs((SELECT count(*) FROM (%s)) - (SELECT count(*) FROM (%s)))",
            whole, parts, parts, whole, whole, parts);
        int64_t n = number(db, sql);
        sqlite3_free(whole);
        sqlite3_free(parts);
        sqlite3_free(sql);
        if (n)
            fail_msg("%s, %u files: %d rows differ in: %s", how, to.files + 1, (int)n, answers[i]);
    }
    sqlite3_close(db);
}

/* Converts the files all at once, and one after the other, each in an order that the seed tells. */
static void compare_all(void) {
    static char text[MOST_FILES][24];
    const char *names[MOST_FILES] = {NULL};
    unsigned n = to.files + 1;

    for (unsigned i = 0; i < n; i++) {
        snprintf(text[i], sizeof text[i], i ? "part.%u.zst" : "part.zst", i);
        names[i] = text[i];
    }
    add("whole.db", (const char *const[]){"whole.zst"}, 1);
    add("once.db", names, n);
    compare("once.db", "at once");
    for (unsigned i = n - 1; i > 0; i--) {
        unsigned k = any(i + 1);
        const char *one = names[i];
        names[i] = names[k];
        names[k] = one;
    }
    for (unsigned i = 0; i < n; i++)
        add("one.db", &names[i], 1);
    compare("one.db", "one by one");
    for (unsigned i = 0; i < n; i += 2) /* these are there */
        add("one.db", &names[i], 1);
    compare("one.db", "again");
}

/* More with SEEDS=40. */
static unsigned seeds(void) {
    return getenv("SEEDS") ? (unsigned)atoi(getenv("SEEDS")) : 1;
}

static void test_training(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= seeds(); seed++) {
        begin(seed, 8);
        train(&g.t[LEADER], 60, TORCH_BY_OPTIMIZER);
        end();
        compare_all();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
