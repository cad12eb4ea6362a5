/* SPDX-License-Identifier: Apache-2.0 */
/* A trace of PyTorch that grows: what came since the last conversion is added, and the rows are those of one conversion of everything. */
#include <sqlite3.h>
#include <unistd.h>

#include "converter/append.h"
#include "converter/convert.h"
#include "torch_program.h"

static char dir[] = "/tmp/test_torch_append.XXXXXX", trace[64], added[64];

static int setup(void **state) {
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(trace, sizeof trace, "%s/t.zst", dir);
    snprintf(added, sizeof added, "%s/added.db", dir);
    return 0;
}

static int teardown(void **state) {
    char cmd[64];

    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static void program_emit(unsigned record, const struct writer_value *v) {
    assert_int_equal(writer_emit(g.w, record, v), 0);
}

static void program_drain(void) {
    assert_int_equal(writer_drain(g.w, WRITER_FLUSH), 0);
}

static void number_of(sqlite3 *db, const char *sql, int64_t *out) {
    sqlite3_stmt *st;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    *out = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
}

/* Converts into `added`; or everything into a database without a name, with the same clocks. */
static sqlite3 *convert_trace(int all) {
    struct inputs in = {0};
    struct convert_options opt = {.out = all ? NULL : added,
                                  .append = !all,
                                  .cache = !all,
                                  .clocks = all ? added : NULL,
                                  .threads = 1};
    struct convert_result res;

    assert_int_equal(inputs_add(&in, trace, 0), 0);
    if (convert(&in, &opt, &res) != 0)
        fail_msg("%s", res.error);
    inputs_free(&in);
    return res.db;
}

static void compare(void) {
    static const char *const tables[] = {"torch_call",         "torch_step",  "torch_module",
                                         "torch_module_total", "memory_step", "thread"};
    sqlite3 *db = convert_trace(1);
    char sql[512];
    int64_t n;

    snprintf(sql, sizeof sql, "ATTACH '%s' AS added", added);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        snprintf(
            sql, sizeof sql,
            "SELECT (SELECT count(*) FROM (SELECT * FROM main.%1$s EXCEPT SELECT * FROM added.%1$s)) +"
            " (SELECT count(*) FROM (SELECT * FROM added.%1$s EXCEPT SELECT * FROM main.%1$s)) +"
            " abs((SELECT count(*) FROM main.%1$s) - (SELECT count(*) FROM added.%1$s))",
            tables[i]);
        number_of(db, sql, &n);
        if (n)
            fail_msg("%s: %d rows differ in state %u", tables[i], (int)n, g.states);
    }
    sqlite3_close(db);
}

/* Adds what is there so far; counts rows that disappear, from the second time on. */
static void program_turn(void) {
    sqlite3 *db;

    synthetic_clock(g.w, g.now);
    assert_int_equal(writer_drain(g.w, WRITER_FLUSH), 0);
    sqlite3_close(convert_trace(0));
    if (g.states++ == 0) {
        assert_int_equal(sqlite3_open(added, &db), SQLITE_OK);
        assert_int_equal(
            sqlite3_exec(
                db,
                "CREATE TABLE gone(n); CREATE TRIGGER goes AFTER DELETE ON torch_call BEGIN INSERT INTO gone VALUES(1); END",
                NULL, NULL, NULL),
            SQLITE_OK);
        sqlite3_close(db);
    }
    if (any(3) == 0)
        compare();
}

static void begin(unsigned seed, unsigned late) {
    struct synthetic s = {.rank = 0};

    program_start(seed, late);
    unlink(trace);
    unlink(added);
    assert_int_equal(
        writer_open(&g.w, &(struct writer_options){.trace_path = trace, .run_dir = dir}), 0);
    synthetic_process(g.w, &s);
    synthetic_clock(g.w, g.now);
    for (unsigned i = 0; i < THREADS; i++)
        synthetic_thread(g.w, i);
    program_names();
}

/* Returns how many rows disappeared, for each row that is there at the end. */
static double finish(void) {
    sqlite3 *db;
    int64_t gone = 0, rows = 0;

    program_end();
    program_turn();
    assert_int_equal(sqlite3_open(added, &db), SQLITE_OK);
    number_of(db, "SELECT count(*) FROM gone", &gone);
    number_of(db, "SELECT count(*) FROM torch_call", &rows);
    sqlite3_close(db);
    synthetic_clock(g.w, g.now);
    assert_int_equal(writer_close(g.w, "exit"), 0);
    sqlite3_close(convert_trace(0));
    compare();
    assert_true(rows > 100 && g.states > 3);
    return (double)gone / (double)rows;
}

/* More with SEEDS=40. */
static unsigned seeds(void) {
    return getenv("SEEDS") ? (unsigned)atoi(getenv("SEEDS")) : 1;
}

static void test_training(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= seeds(); seed++) {
        begin(seed, 8);
        train(&g.t[LEADER], 60, 0);
        double gone = finish();
        assert_true(gone <
                    g.states / 4.0); /* all that is there each time would be half of the states */
    }
}

/* Events of other threads are written long after, also events before ends of steps that are already known. */
static void test_late(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= seeds(); seed++) {
        begin(seed, 60);
        train(&g.t[LEADER], 50, 0);
        finish();
    }
}

/* The root module's calls count as steps, until an optimizer's step shows that they were evaluation. */
static void test_evaluation(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= seeds(); seed++) {
        begin(seed, 8);
        train(&g.t[LEADER], 10 + any(30), TORCH_BY_ROOT);
        if (any(3))
            g.number = 0;
        train(&g.t[LEADER], 40, 0);
        finish();
    }
}

/* Calls with gradients may belong to the first step, or be steps of a training by hand. */
static void test_passes(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= 2 * seeds(); seed++) {
        begin(seed, 8);
        train(&g.t[LEADER], any(20), TORCH_BY_PASS);
        if (any(2))
            train(&g.t[LEADER], any(20), TORCH_BY_ROOT);
        train(&g.t[LEADER], 1 + any(20), TORCH_BY_PASS);
        if (any(3))
            g.number = 0;
        train(&g.t[LEADER], 40, any(2) ? TORCH_BY_ROOT : TORCH_BY_OPTIMIZER);
        finish();
    }
}

/* From here on another thread leads; the program counts. */
static void test_leaders(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= seeds(); seed++) {
        begin(seed, 12);
        train(&g.t[LEADER], 20, 0);
        train(&g.t[OTHER], 20, 0);
        for (unsigned i = 0; i < 20; i++) {
            forward(&g.t[LEADER], 0);
            counted(&g.t[LEADER], TORCH_BY_MARK);
        }
        finish();
    }
}

static int count(void *n) {
    ++*(int *)n;
    return 0;
}

/* What the database has is not read again for each answer: in a day's steps, the first ones tell that they count. */
static void test_many_steps(void **state) {
    enum {
        STEPS = 20000,
        WORK = 20000
    }; /* of SQLite's machine: a look at each step took ten times as many */
    struct append a;
    sqlite3 *db;
    int n = 0;

    (void)state;
    begin(1, 8);
    train(&g.t[LEADER], 60, 0);
    program_turn(); /* it goes on */
    assert_int_equal(sqlite3_open(added, &db), SQLITE_OK);
    char *sql = sqlite3_mprintf(
        "INSERT INTO torch_step SELECT (SELECT max(id) FROM torch_step) + value, value, 1, value, 0, 0, 0, 0, 0, 0, 0, 0, NULL"
        " FROM (WITH n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < %d) SELECT value FROM n)",
        (int)STEPS);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_free(sql);
    sqlite3_progress_handler(db, 100, count, &n);
    assert_int_equal(append_load(&a, db, 0), SQLITE_OK);
    assert_in_range(n, 0, WORK / 100);
    assert_int_equal(a.names.n, 1);
    assert_true(a.trace[0].at.blocks > 0); /* it can be gone on with */
    append_free(&a);
    sqlite3_close(db);
    assert_int_equal(writer_close(g.w, "exit"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),   cmocka_unit_test(test_late),
        cmocka_unit_test(test_evaluation), cmocka_unit_test(test_passes),
        cmocka_unit_test(test_leaders),    cmocka_unit_test(test_many_steps)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
