/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_recordings.h - the same program recorded twice, in one file and in several (rotation): the databases must give the same answers.
 *
 *     static void recording_describe(struct writer *w) ...   // the includer has it: writes what each file begins with
 *     recordings_begin(); recordings_emit(record, values) ...; recordings_turn() ...; recordings_close();
 *     recordings_compare(any, compare);                      // makes the databases, and calls compare(name of one, how it was made) for each
 *     db = recordings_both(name); n = recordings_differ(db, select);   // number of rows that differ; %s in the SELECT stands for the database
 *     cmocka_run_group_tests(tests, recordings_setup, recordings_teardown)
 */
#ifndef PROBING_TESTS_TWO_RECORDINGS_H
#define PROBING_TESTS_TWO_RECORDINGS_H

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "converter/convert.h"
#include "synthetic.h"

#define MOST_FILES 64

static void recording_describe(struct writer *w);

static char recordings[] = "/tmp/test_two_recordings.XXXXXX";

static struct {
    struct writer *whole, *parts; /* the same records, in one file and in several */
    unsigned files;               /* of the latter, less one */
} to;

static int recordings_setup(void **state) {
    char path[128];

    (void)state;
    if (!mkdtemp(recordings))
        return -1;
    snprintf(path, sizeof path, "mkdir %s/1 %s/2", recordings, recordings);
    return system(path);
}

static int recordings_teardown(void **state) {
    char cmd[64];

    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", recordings);
    return system(cmd);
}

/* ---- the two recordings ---- */

static void recordings_emit(unsigned record, const struct writer_value *v) {
    assert_int_equal(writer_emit(to.whole, record, v), 0);
    assert_int_equal(writer_emit(to.parts, record, v), 0);
}

static void recordings_drain(void) {
    assert_int_equal(writer_drain(to.whole, WRITER_FLUSH), 0);
    assert_int_equal(writer_drain(to.parts, WRITER_FLUSH), 0);
}

/* The second recording goes on in another file. */
static void recordings_turn(void) {
    char path[96];

    recordings_drain();
    if (to.files + 2 > MOST_FILES)
        return;
    snprintf(path, sizeof path, "%s/part.%u.zst", recordings, ++to.files);
    assert_int_equal(writer_next_segment(to.parts, path), 0);
    recording_describe(to.parts);
}

static struct writer *recordings_open(const char *name, unsigned run) {
    char path[96], run_dir[64];
    struct writer *w;

    snprintf(path, sizeof path, "%s/%s", recordings, name);
    snprintf(run_dir, sizeof run_dir, "%s/%u", recordings, run);
    assert_int_equal(
        writer_open(&w, &(struct writer_options){.trace_path = path, .run_dir = run_dir}), 0);
    recording_describe(w);
    return w;
}

static void recordings_begin(void) {
    char cmd[128];

    snprintf(cmd, sizeof cmd, "rm -f %s/*.zst %s/*.db", recordings, recordings);
    assert_int_equal(system(cmd), 0);
    to.files = 0;
    to.whole = recordings_open("whole.zst", 1);
    to.parts = recordings_open("part.zst", 2);
}

static void recordings_close(void) {
    assert_int_equal(writer_close(to.whole, "exit"), 0);
    assert_int_equal(writer_close(to.parts, "exit"), 0);
    assert_true(to.files >= 3);
}

/* ---- databases ---- */

/* Adds files to the database. */
static void recordings_add(const char *db, const char *const *names, unsigned n) {
    struct inputs in = {0};
    char path[96], out[96];
    struct convert_options opt = {.out = out, .append = 1, .threads = 1};
    struct convert_result res;

    snprintf(out, sizeof out, "%s/%s", recordings, db);
    for (unsigned i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", recordings, names[i]);
        assert_int_equal(inputs_add(&in, path, 0), 0);
    }
    if (convert(&in, &opt, &res) != 0)
        fail_msg("%s", res.error);
    inputs_free(&in);
}

/* Opens whole.db, as main, with the other database as parts. */
static sqlite3 *recordings_both(const char *name) {
    char path[96];
    sqlite3 *db;

    snprintf(path, sizeof path, "%s/whole.db", recordings);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    char *sql = sqlite3_mprintf("ATTACH '%s/%s' AS parts", recordings, name);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_free(sql);
    return db;
}

static int64_t recordings_number(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return n;
}

/* Returns how many rows the SELECT, in which up to four %s stand for the database, has in one of them alone, or more often. */
static int64_t recordings_differ(sqlite3 *db, const char *select) {
    char *whole = sqlite3_mprintf(select, "main", "main", "main", "main");
    char *parts = sqlite3_mprintf(select, "parts", "parts", "parts", "parts");
    char *sql = sqlite3_mprintf(
        "SELECT (SELECT count(*) FROM (%s EXCEPT %s)) + (SELECT count(*) FROM (%s EXCEPT %s))"
        " + abs((SELECT count(*) FROM (%s)) - (SELECT count(*) FROM (%s)))",
        whole, parts, parts, whole, whole, parts);
    int64_t n = recordings_number(db, sql);

    sqlite3_free(whole);
    sqlite3_free(parts);
    sqlite3_free(sql);
    return n;
}

/* Converts the files all at once, and one after the other, each in an order that any(n), a random number below n, tells. */
static void recordings_compare(unsigned (*any)(unsigned n),
                               void (*compare)(const char *name, const char *how)) {
    static char text[MOST_FILES][24];
    const char *names[MOST_FILES] = {NULL};
    unsigned n = to.files + 1;

    for (unsigned i = 0; i < n; i++) {
        snprintf(text[i], sizeof text[i], i ? "part.%u.zst" : "part.zst", i);
        names[i] = text[i];
    }
    recordings_add("whole.db", (const char *const[]){"whole.zst"}, 1);
    recordings_add("once.db", names, n);
    compare("once.db", "at once");
    for (unsigned i = n - 1; i > 0; i--) {
        unsigned k = any(i + 1);
        const char *one = names[i];
        names[i] = names[k];
        names[k] = one;
    }
    for (unsigned i = 0; i < n; i++)
        recordings_add("one.db", &names[i], 1);
    compare("one.db", "one by one");
    for (unsigned i = 0; i < n; i += 2) /* these are there */
        recordings_add("one.db", &names[i], 1);
    compare("one.db", "again");
}

/* More with SEEDS=40. */
static unsigned recordings_seeds(void) {
    return getenv("SEEDS") ? (unsigned)atoi(getenv("SEEDS")) : 1;
}

#endif
