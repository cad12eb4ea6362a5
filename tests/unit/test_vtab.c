/* SPDX-License-Identifier: Apache-2.0 */
/* vtab: columns are those of records.def, values those of the trace, and a bound on time leaves whole blocks unread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

#include "converter/vtab.h"
#include "synthetic.h"

static char dir[] = "/tmp/test_vtab.XXXXXX", path[64];
static struct vtab_shared shared;
static const struct vtab_shared *const now = &shared;
static sqlite3 *db;

static int setup(void **state) {
    struct synthetic s = {.samples = 2000, .stacks = 4, .depth = 3, .native = 2, .flush = 100};

    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/t.zst", dir);
    return synthetic_trace(path, dir, &s);
}

static int teardown(void **state) {
    (void)state;
    unlink(path);
    return rmdir(dir);
}

/* Opens a new reader, so that no block has been read yet. */
static int open_db(void **state) {
    (void)state;
    assert_int_equal(reader_open(&shared.reader, path), 0);
    assert_non_null(shared.epochs = epochs_new(shared.reader));
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    return vtab_register(db, &now);
}

static int close_db(void **state) {
    (void)state;
    sqlite3_close(db);
    epochs_free(shared.epochs);
    reader_close(shared.reader);
    return 0;
}

static const char *sql(const char *query) {
    static char text[8192];
    sqlite3_stmt *st;
    size_t n = 0;

    if (sqlite3_prepare_v2(db, query, -1, &st, NULL) != SQLITE_OK)
        return sqlite3_errmsg(db);
    text[0] = 0;
    while (sqlite3_step(st) == SQLITE_ROW)
        for (int i = 0; i < sqlite3_column_count(st); i++) {
            const char *v = (const char *)sqlite3_column_text(st, i);
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", v ? v : "-",
                                  i + 1 < sqlite3_column_count(st) ? "|" : "\n");
        }
    return sqlite3_finalize(st) == SQLITE_OK ? text : sqlite3_errmsg(db);
}

static void table(const char *record) {
    char create[128];
    snprintf(create, sizeof create,
             "CREATE VIRTUAL TABLE temp.\"%s\" USING probing_trace('%s', '%s')", record, path,
             record);
    assert_int_equal(sqlite3_exec(db, create, NULL, NULL, NULL), SQLITE_OK);
}

/* Every record type is an SQL table with its fields in their order. */
static void columns(void **state) {
    (void)state;
    for (unsigned id = 1; id <= TRACE_MAX_ID; id++) {
        const struct trace_record *rec = trace_record_by_id(id);
        char query[128];
        const char *p;
        if (!rec)
            continue;
        table(rec->name);
        snprintf(query, sizeof query, "SELECT name FROM pragma_table_info('%s')", rec->name);
        p = sql(query);
        for (unsigned i = 0; i < rec->nfields; i++) {
            size_t n = strlen(rec->fields[i].name);
            assert_memory_equal(p, rec->fields[i].name, n);
            assert_int_equal(p[n], '\n');
            p += n + 1;
        }
        assert_int_equal(*p, 0);
    }
}

static void values(void **state) {
    (void)state;
    table("sample");
    table("stack");
    table("process");
    table("thread");
    table("network");
    table("frame");
    assert_string_equal(sql("SELECT count(*), min(ts), max(ts), count(DISTINCT stack) FROM sample"),
                        "2000|10001000000|12000000000|4\n");
    assert_string_equal(sql("SELECT host, python, rank, pid FROM process"),
                        "node7|51053296|0|77\n");
    assert_string_equal(sql("SELECT tid, name FROM thread"), "4200|MainThread\n");
    assert_string_equal(sql("SELECT DISTINCT interface FROM network"), "eth0\n");
    assert_string_equal(sql("SELECT name, file, line FROM frame WHERE id = 2"),
                        "function_1|/src/file_1.py|15\n");
    assert_string_equal(sql("SELECT id, python, native, flags FROM stack WHERE id = 1"),
                        "1|[1,6,7]|[5242880,5242944]|1\n");
    /* references hold in their epoch: the hidden column says which */
    assert_string_equal(sql("SELECT count(*) FROM sample s JOIN stack k ON k.epoch = s.epoch AND "
                            "k.id = s.stack"),
                        "2000\n");
}

static size_t blocks_read(void) {
    size_t n = 0;
    for (size_t i = 0; i < reader_blocks(shared.reader); i++)
        n += reader_block(shared.reader, i)->state != READER_UNREAD;
    return n;
}

static void time_bounds(void **state) {
    static const struct {
        const char *where;
        unsigned rows, blocks; /* at most: the first block is read when a trace is opened */
    } cases[] = {
        {"ts BETWEEN 10901000000 AND 11000000000", 100, 3},
        {"ts > 11900000000", 100, 6},
        {"ts >= 11900000000", 101, 9},
        {"ts < 10002000000", 1, 10},
        {"ts <= 10002000000", 2, 10},
        {"ts = 11500000000", 1, 12},
        {"ts > 11899999999.5 AND ts < 1.19000000001e10", 1, 14},
        {"ts < -5", 0, 14},
        {"ts > 9223372036854775807", 0, 14},
        {"ts > 'text'", 0, 99}, /* texts are greater than numbers: nothing is skipped for them */
    };
    char query[128], want[16];

    (void)state;
    table("sample");
    assert_true(reader_blocks(shared.reader) > 20);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(query, sizeof query, "SELECT count(*) FROM sample WHERE %s", cases[i].where);
        snprintf(want, sizeof want, "%u\n", cases[i].rows);
        assert_string_equal(sql(query), want);
        assert_true(blocks_read() <= cases[i].blocks);
    }
}

static void errors(void **state) {
    (void)state;
    assert_non_null(strstr(sql("CREATE VIRTUAL TABLE a USING probing_trace('x')"), "usage"));
    assert_non_null(
        strstr(sql("CREATE VIRTUAL TABLE a USING probing_trace('x', 'nothing')"), "no record"));
}

/* Without a shared reader (the loadable extension) a table opens its file. */
static void own_file(void **state) {
    (void)state;
    assert_int_equal(vtab_register(db, NULL), SQLITE_OK);
    table("sample");
    assert_string_equal(sql("SELECT count(*) FROM sample"), "2000\n");
    assert_non_null(
        strstr(sql("CREATE VIRTUAL TABLE temp.b USING probing_trace('/nowhere.zst', 'sample')"),
               "No such"));
    assert_non_null(strstr(sql("CREATE VIRTUAL TABLE temp.b USING probing_trace('/', \"sample\")"),
                           "directory"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(columns, open_db, close_db),
        cmocka_unit_test_setup_teardown(values, open_db, close_db),
        cmocka_unit_test_setup_teardown(time_bounds, open_db, close_db),
        cmocka_unit_test_setup_teardown(errors, open_db, close_db),
        cmocka_unit_test_setup_teardown(own_file, open_db, close_db),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
