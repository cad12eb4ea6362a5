/* SPDX-License-Identifier: Apache-2.0 */
/* kept_numbers: another program gives functions, frames and stacks the numbers that they have in the database, and ignores saved numbers that do
 * not fit it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "converter/bind.h"
#include "converter/kept_numbers.h"
#include "converter/tables.h"

struct program {
    struct queue q;
    struct callsites cs;
    struct stackset s;
    struct kept_numbers k;
};

static void begin(struct program *p, sqlite3 *db) {
    queue_init(&p->q);
    assert_int_equal(callsites_init_rows(&p->cs, &p->q), 0);
    assert_int_equal(stackset_init(&p->s, &p->cs, &p->q), 0);
    assert_int_equal(kept_numbers_load(&p->k, db, &p->cs, &p->s), SQLITE_OK);
}

static void end(struct program *p, sqlite3 *db) {
    assert_int_equal(queue_drain(&p->q, db, 0), SQLITE_OK);
    assert_int_equal(kept_numbers_save(&p->k, db, &p->cs, &p->s), SQLITE_OK);
    stackset_free(&p->s);
    callsites_free(&p->cs);
    queue_free(&p->q);
}

/* Puts the stack of n frames of functions from `first` on, every other one native; a native one whose number is divisible by 3 has a file of its
 * own. */
static uint32_t put(struct program *p, unsigned first, unsigned n) {
    uint32_t frames[64], leaf;
    char name[16];

    for (unsigned i = 0; i < n; i++) {
        int native = (first + i) % 2;
        snprintf(name, sizeof name, "f%u", first + i);
        uint32_t f = callsites_function(&p->cs, native ? CALLSITE_NATIVE : CALLSITE_PYTHON, name,
                                        native ? NULL : "a.py", 1, native ? "lib.so" : NULL);
        assert_true(f);
        frames[i] = callsites_frame(&p->cs, f, 7, native && (first + i) % 3 == 0 ? "a.c" : NULL);
        assert_true(frames[i]);
    }
    return stackset_put(&p->s, frames, n, &leaf);
}

static sqlite3 *new_database(void) {
    sqlite3 *db;

    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(tables_make(db), SQLITE_OK);
    return db;
}

static sqlite3_int64 number(sqlite3 *db, const char *sql) {
    sqlite3_int64 n = -1;

    assert_int_equal(sql_number(db, sql, &n), SQLITE_OK);
    return n;
}

static void run(sqlite3 *db, const char *sql) {
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
}

/* 40 programs, one after the other: each stack keeps the number that the first program gave it, and makes one row. */
static void numbers_stay(void **state) {
    sqlite3 *db = new_database();

    (void)state;
    for (unsigned i = 1; i <= 40; i++) {
        struct program p;
        begin(&p, db);
        assert_int_equal(p.k.rows > 0, i > 1);
        for (unsigned k = 1; k <= i; k++) {
            assert_int_equal(put(&p, k, 20 + k), k);
            assert_int_equal(p.cs.types[p.cs.nfunctions], CALLSITE_NATIVE);
        }
        assert_true(callsites_has(&p.cs, CALLSITE_PYTHON, "f2", "a.py", 1));
        assert_false(callsites_has(&p.cs, CALLSITE_PYTHON, "f3", "a.py", 1));
        end(&p, db);
        assert_int_equal(number(db, "SELECT count(*) FROM stack"), i);
        assert_int_equal(number(db, "SELECT count(*) FROM function"), 19 + 2 * i);
        assert_int_equal(number(db, "SELECT count(*) FROM frame"), 19 + 2 * i);
    }
    /* The rows are merged into one meanwhile, and a program that brings nothing new makes none. */
    sqlite3_int64 rows = number(db, "SELECT count(*) FROM trace_read");
    assert_true(rows > 1 && rows < 33);
    struct program p;
    begin(&p, db);
    assert_int_equal(put(&p, 3, 23), 3);
    end(&p, db);
    assert_int_equal(number(db, "SELECT count(*) FROM trace_read"), rows);
    sqlite3_close(db);
}

/* Saved numbers that contradict the tables, or themselves, are ignored. */
static void others_are_not_believed(void **state) {
    static const char *const damage[] = {
        "DELETE FROM stack WHERE id = 2",
        "INSERT INTO function(id, type, name) VALUES(1000, 0, 'x')",
        "UPDATE trace_read SET addresses = substr(addresses, 1, length(addresses) - 1)",
        "UPDATE trace_read SET addresses = x''",
        "UPDATE trace_read SET addresses = zeroblob(length(addresses))",
        /* the last frame is of function 0 */
        "UPDATE trace_read SET addresses = CAST(substr(addresses, 1, length(addresses) - 4) || zeroblob(4) AS BLOB)",
        "DELETE FROM trace_read WHERE trace = 0"};

    (void)state;
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        sqlite3 *db = new_database();
        for (unsigned k = 1; k <= 2; k++) {
            struct program p;
            begin(&p, db);
            assert_int_equal(put(&p, k, 20), k);
            end(&p, db);
        }
        run(db, damage[i]);
        struct program p;
        begin(&p, db);
        assert_int_equal(p.k.rows, 0);
        assert_int_equal(p.cs.nfunctions + p.cs.nframes + p.s.nstacks + p.s.nparts, 0);
        assert_false(callsites_has(&p.cs, CALLSITE_PYTHON, "f2", "a.py", 1));
        assert_int_equal(put(&p, 5, 10), 1);
        queue_drain(&p.q, NULL, 0);
        stackset_free(&p.s);
        callsites_free(&p.cs);
        queue_free(&p.q);
        sqlite3_close(db);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_stay),
        cmocka_unit_test(others_are_not_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
