/* SPDX-License-Identifier: Apache-2.0 */
/*
 * converter/stackset.h and callsites.h with a database: the rows of a stack are its frames, whatever its depth; and a later conversion into the same
 * database finds each function, frame and stack of the earlier ones again, also after stacks were deleted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "converter/stackset.h"
#include "converter/tables.h"

#define FUNCTIONS 40
#define FRAMES    (3 * FUNCTIONS)
#define STACKS    300
#define DEEPEST   700

static struct stack {
    uint32_t n, frames[DEEPEST];
    uint32_t id, leaf;
} stacks[STACKS];
static uint64_t seed;

static uint32_t any(uint32_t n) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % n;
}

/* Function k has the lines 3k + 1 to 3k + 3, so that each frame's function is known from its number. Every third function is native. */
static void put_frames(struct callsites *cs) {
    char name[16];

    for (uint32_t k = 0; k < FUNCTIONS; k++) {
        snprintf(name, sizeof name, "f%u", k);
        uint32_t f = k % 3 ? callsites_function(cs, CALLSITE_PYTHON, name, "a.py", k, NULL)
                           : callsites_function(cs, CALLSITE_NATIVE, name, NULL, 0, "lib.so");
        assert_int_equal(f, k + 1);
        for (uint32_t line = 1; line <= 3;
             line++) /* a native function's file, where known, is its frames' own */
            assert_int_equal(callsites_frame(cs, f, line, k % 2 || k % 3 ? NULL : "a.c"),
                             3 * k + line);
    }
}

static uint32_t function_of(uint32_t frame) {
    return (frame - 1) / 3;
}

/* No two are the same: their outermost frames count. Many share the frames between, as real ones do, and recurse. */
static void make_stacks(void) {
    static const uint32_t depths[] = {2, 3, 15, 16, 17, 31, 32, 33, 64, DEEPEST};

    for (uint32_t i = 0; i < STACKS; i++) {
        struct stack *s = &stacks[i];
        s->n = i < 10 ? depths[i] : 2 + any(any(5) ? 60 : DEEPEST - 1);
        for (uint32_t k = 0; k < s->n; k++)
            s->frames[k] = any(9) ? 1 + (k * 7 + i / 50) % FRAMES : 1 + any(FRAMES);
        s->frames[s->n - 1] = 1 + i % FRAMES;
        s->frames[s->n - 2] = 1 + i / FRAMES;
        s->leaf = s->n;
        for (uint32_t k = s->n; k-- > 0;)
            s->leaf = function_of(s->frames[k]) % 3 ? k : s->leaf;
    }
}

static uint32_t put(struct stackset *s, const struct stack *stack) {
    uint32_t frames[DEEPEST], leaf;

    memcpy(frames, stack->frames, stack->n * sizeof *frames);
    uint32_t id = stackset_put(s, frames, stack->n, &leaf);
    assert_int_equal(leaf, stack->leaf);
    for (uint32_t k = 0; k < stack->n; k++) {
        int again = 0;
        for (uint32_t m = 0; m < k; m++)
            again |= function_of(stack->frames[m]) == function_of(stack->frames[k]);
        assert_int_equal(frames[k], stack->frames[k] | (again ? STACKSET_AGAIN : 0));
    }
    return id;
}

/* The stack as stock SQLite reads it: its parts from the innermost on, and the frames of each; a negative one is of a function that was there before. */
static void assert_stored(sqlite3 *db, const struct stack *s) {
    static const char sql[] =
        "SELECT abs(f.value), f.value < 0, stack.depth, stack.frame, stack.leaf"
        " FROM stack, json_each(stack.parts) p JOIN part ON part.id = p.value, json_each(part.frames) f"
        " WHERE stack.id = ? ORDER BY p.key, f.key";
    sqlite3_stmt *st;
    uint32_t n = 0, used[FUNCTIONS] = {0};

    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    sqlite3_bind_int64(st, 1, s->id);
    for (; sqlite3_step(st) == SQLITE_ROW; n++) {
        assert_true(n < s->n);
        assert_int_equal(sqlite3_column_int64(st, 0), s->frames[n]);
        assert_int_equal(sqlite3_column_int64(st, 1), used[function_of(s->frames[n])]);
        used[function_of(s->frames[n])] = 1;
        assert_int_equal(sqlite3_column_int64(st, 2), s->n);
        assert_int_equal(sqlite3_column_int64(st, 3), s->frames[0]);
        if (s->leaf == s->n)
            assert_int_equal(sqlite3_column_type(st, 4), SQLITE_NULL);
        else
            assert_int_equal(sqlite3_column_int64(st, 4), s->leaf);
    }
    assert_int_equal(n, s->n);
    assert_int_equal(sqlite3_finalize(st), SQLITE_OK);
}

static int64_t number(sqlite3 *db, const char *sql) {
    return tables_number(db, sql);
}

/* Puts the stacks `from` to `to`, in another order each time, in one conversion. */
static void convert(sqlite3 *db, uint32_t from, uint32_t to) {
    struct callsites cs;
    struct stackset s;
    struct queue q;

    queue_init(&q);
    assert_int_equal(callsites_init_rows(&cs, &q), 0);
    assert_int_equal(stackset_init(&s, &cs, &q), 0);
    assert_int_equal(callsites_read(&cs, db), SQLITE_OK);
    assert_int_equal(stackset_read(&s, db), SQLITE_OK);
    put_frames(&cs);
    uint32_t n = to - from, step = n % 7 ? 7 : 11;
    for (uint32_t i = 0, k = any(n); i < n; i++, k = (k + step) % n) {
        struct stack *stack = &stacks[from + k];
        uint32_t was = stack->id, most = s.nstacks;
        stack->id = put(&s, stack);
        assert_int_equal(stack->id, was ? was : most + 1);
        assert_int_equal(put(&s, stack), stack->id);
        if (any(40) == 0)
            assert_int_equal(queue_drain(&q, db, 0), SQLITE_OK);
    }
    assert_int_equal(queue_drain(&q, db, 0), SQLITE_OK);
    queue_end(&q);
    stackset_free(&s);
    callsites_free(&cs);
    queue_free(&q);
}

static void found_again(void **state) {
    sqlite3 *db;

    (void)state;
    for (seed = 1; seed <= 3; seed++) {
        uint64_t own = seed;
        memset(stacks, 0, sizeof stacks);
        make_stacks();
        assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
        assert_int_equal(tables_make(db), SQLITE_OK);
        convert(db, 0, 100);
        convert(db, 0, 200);
        assert_int_equal(number(db, "SELECT count(*) FROM stack"), 200);
        int64_t parts = number(db, "SELECT count(*) FROM part");
        convert(db, 0, 200); /* all is known */
        assert_int_equal(number(db, "SELECT count(*) FROM stack"), 200);
        assert_int_equal(number(db, "SELECT count(*) FROM part"), parts);
        assert_int_equal(number(db, "SELECT count(*) FROM function"), FUNCTIONS);
        assert_int_equal(number(db, "SELECT count(*) FROM frame"), FRAMES);
        assert_int_equal(number(db, "SELECT count(DISTINCT frames) FROM part"),
                         parts); /* each once */
        /* A trace was read anew and has other names now: its stacks are gone, and numbers are missing. */
        assert_int_equal(
            sqlite3_exec(db, "DELETE FROM stack WHERE id % 5 = 1 AND id < 190", NULL, NULL, NULL),
            SQLITE_OK);
        for (uint32_t i = 0; i < 200; i++)
            if (stacks[i].id % 5 == 1 && stacks[i].id < 190)
                stacks[i].id = 0;
        convert(db, 0, STACKS);
        assert_int_equal(number(db, "SELECT count(*) FROM stack"), STACKS);
        for (uint32_t i = 0; i < STACKS; i++)
            assert_stored(db, &stacks[i]);
        /* What does not fit is found out. */
        assert_int_equal(
            sqlite3_exec(db, "UPDATE stack SET parts = '[999999]' WHERE id = 2", NULL, NULL, NULL),
            SQLITE_OK);
        struct callsites cs;
        struct stackset s;
        struct queue q;
        queue_init(&q);
        assert_int_equal(callsites_init_rows(&cs, &q), 0);
        assert_int_equal(stackset_init(&s, &cs, &q), 0);
        assert_int_equal(stackset_read(&s, db), SQLITE_CORRUPT);
        stackset_free(&s);
        callsites_free(&cs);
        queue_free(&q);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
        seed = own;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(found_again)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
