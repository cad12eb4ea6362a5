/* SPDX-License-Identifier: Apache-2.0 */
/* stackset, callsites, queue: stacks and functions are kept once each, in memory that does not grow with them without limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <malloc.h>
#include <string.h>

#include "converter/bind.h"
#include "converter/stackset.h"

#define DEPTH   17 /* a part of 16, and one of the innermost frame */
#define NFRAMES 64
#define MANY    2359296u
#define MOST    ((size_t)64 << 20) /* bytes of both sets, at most */

static void fill(struct callsites *cs) {
    char name[16];

    callsites_init(cs);
    for (unsigned i = 0; i < NFRAMES; i++) {
        snprintf(name, sizeof name, "f%u", i);
        uint32_t f = callsites_function(cs, CALLSITE_PYTHON, name, "a.py", i + 1, NULL);
        assert_int_equal(callsites_frame(cs, f, i + 1, NULL), i + 1);
    }
}

/* Makes the k-th of many different stacks: its digits, and one frame more. */
static void make(uint32_t frames[DEPTH], uint32_t k) {
    for (int i = 0; i < DEPTH; i++, k /= NFRAMES)
        frames[i] = 1 + k % NFRAMES;
}

static uint32_t put(struct stackset *s, uint32_t k) {
    uint32_t frames[DEPTH], leaf;

    make(frames, k);
    return stackset_put(s, frames, DEPTH, &leaf);
}

static size_t table_bytes(const struct known_table *t) {
    return t->slots ? (t->mask + 1) * sizeof *t->slots : 0;
}

static size_t bytes(const struct known *set) {
    return table_bytes(&set->now) + table_bytes(&set->before);
}

static void each_once(void **state) {
    struct callsites cs;
    struct stackset s;
    struct queue q;

    (void)state;
    queue_init(&q);
    fill(&cs);
    assert_int_equal(stackset_init(&s, &cs, &q), 0);
    for (uint32_t k = 0; k < 10000; k++)
        assert_int_equal(put(&s, k), k + 1);
    for (uint32_t k = 10000; k-- > 0;)
        assert_int_equal(put(&s, k), k + 1);
    assert_int_equal(s.nstacks, 10000);
    stackset_free(&s);
    callsites_free(&cs);
    queue_free(&q);
}

/* More stacks than are remembered: memory is bounded, and a million are still told apart. */
static void memory_is_bounded(void **state) {
    struct callsites cs;
    struct stackset s;
    struct queue q;
    size_t most = 0;

    (void)state;
    queue_init(&q);
    fill(&cs);
    assert_int_equal(stackset_init(&s, &cs, &q), 0);
    for (uint32_t k = 0; k < MANY; k++) {
        assert_int_equal(put(&s, k), k + 1);
        size_t now = bytes(&s.stacks) + bytes(&s.parts);
        most = now > most ? now : most;
        if (k % 1000 == 0)
            assert_int_equal(queue_drain(&q, NULL, 0), SQLITE_OK);
        if (k == 999999)
            assert_int_equal(put(&s, 0), 1);
    }
    assert_true(most <= MOST);
    assert_int_equal(put(&s, MANY - 1), MANY);
    stackset_free(&s);
    callsites_free(&cs);
    queue_free(&q);
}

/* A function whose row was made is recognized again, although its name is not kept. */
static void names_are_not_kept(void **state) {
    static char name[4000];
    struct callsites cs;
    struct queue q;

    (void)state;
    memset(name, 'x', sizeof name - 1);
    queue_init(&q);
    assert_int_equal(callsites_init_rows(&cs, &q), 0);
    size_t before = mallinfo2().uordblks;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < 20000; i++) {
            name[snprintf(name, 16, "f%08u", i)] = '_';
            uint32_t f = callsites_function(&cs, i & 1, name, "a.py", i, "m");
            assert_int_equal(f, i + 1);
            assert_int_equal(callsites_frame(&cs, f, i, NULL), i + 1);
            assert_int_equal(callsites_type_of(&cs, f), i & 1);
            if (i % 100 == 0)
                assert_int_equal(queue_drain(&q, NULL, 0), SQLITE_OK);
        }
    assert_true(mallinfo2().uordblks - before < 8u << 20);
    callsites_free(&cs);
    queue_free(&q);
}

/* A program that makes functions without end: memory is bounded, and functions that are used again and again keep their number. */
static void functions_without_end(void **state) {
    struct callsites cs;
    struct queue q;
    char name[32];
    uint32_t train = 0, line = 0;

    (void)state;
    queue_init(&q);
    assert_int_equal(callsites_init_rows(&cs, &q), 0);
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    for (uint32_t i = 0; i < 1000000; i++) {
        if (i % 100000 == 0) {
            uint32_t f = callsites_function(&cs, CALLSITE_PYTHON, "train", "a.py", 1, NULL);
            uint32_t l = callsites_frame(&cs, f, 2, NULL);
            assert_true(f && l && (!train || (f == train && l == line)));
            train = f;
            line = l;
        }
        snprintf(name, sizeof name, "f%u", i);
        uint32_t f = callsites_function(&cs, i & 1, name, "a.py", i, "m");
        assert_true(f && callsites_frame(&cs, f, i, NULL));
        assert_int_equal(callsites_type_of(&cs, f), i & 1);
        if (i % 1000 == 0)
            assert_int_equal(queue_drain(&q, NULL, 0), SQLITE_OK);
    }
    assert_true(mallinfo2().uordblks + mallinfo2().hblkhd - before < 45u << 20);
    callsites_free(&cs);
    queue_free(&q);
}

static int64_t number(sqlite3 *db, const char *sql) {
    sqlite3_int64 n;

    assert_int_equal(sql_number(db, sql, &n), SQLITE_OK);
    return n;
}

/* A trace's sums are added only after the old rows of that trace were deleted from the database, however early the sums are known. */
static void sums_wait_for_their_trace(void **state) {
    struct callsites cs;
    struct queue q;
    sqlite3 *db;

    (void)state;
    queue_init(&q);
    assert_int_equal(callsites_init_rows(&cs, &q), 0);
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(
            db,
            "CREATE TABLE stack_total(trace, stack, samples, count, running, cpu_us, ns, running_ns,"
            " PRIMARY KEY(trace, stack));"
            "CREATE TABLE function(id, type, name, file, firstline, module);"
            "CREATE TABLE frame(id, function, line, file, type, name, module)",
            NULL, NULL, NULL),
        SQLITE_OK);
    for (int64_t trace = 1; trace <= 3; trace++)
        assert_int_equal(queue_put(&q, QUEUE_TOTAL, (int64_t[]){trace, 7, trace, 1, 1, 1, 1, 1}, 8),
                         0);
    uint32_t f = callsites_function(&cs, CALLSITE_NATIVE, "", NULL, 0, "lib");
    assert_int_equal(callsites_frame(&cs, f, 0, "a.c"), 1);
    assert_int_equal(queue_drain(&q, db, 1), SQLITE_OK);
    assert_int_equal(number(db, "SELECT sum(samples) FROM stack_total"), 1);
    assert_int_equal(
        number(
            db,
            "SELECT count(*) FROM function WHERE id = 1 AND type = 1 AND name = '' AND file IS NULL"
            " AND firstline IS NULL AND module = 'lib'"),
        1);
    assert_int_equal(
        number(
            db,
            "SELECT count(*) FROM frame WHERE id = 1 AND function = 1 AND line IS NULL AND file = 'a.c' AND type = 1 AND name = '' AND module = 'lib'"),
        1);
    assert_int_equal(queue_drain(&q, db, 3), SQLITE_OK);
    assert_int_equal(number(db, "SELECT sum(samples) FROM stack_total"), 4);
    assert_int_equal(queue_drain(&q, db, 2), SQLITE_OK);
    assert_int_equal(queue_drain(&q, db, 2), SQLITE_OK);
    assert_int_equal(number(db, "SELECT sum(samples) FROM stack_total"), 6);
    queue_end(&q); /* else SQLite would not close it */
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    callsites_free(&cs);
    queue_free(&q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_once), cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(names_are_not_kept), cmocka_unit_test(functions_without_end),
        cmocka_unit_test(sums_wait_for_their_trace)};

    return cmocka_run_group_tests_name("stackset", tests, NULL, NULL);
}
