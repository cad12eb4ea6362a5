/* SPDX-License-Identifier: Apache-2.0 */
/* Processes with many files: what was open at the end of the first one is one thing in the database. And ranks with many processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <unistd.h>

#include "converter/convert.h"
#include "synthetic.h"
#include <sqlite3.h>

static char dir[] = "/tmp/test_goes_on.XXXXXX";

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

/* ---- traces; all times are seconds since the first one ---- */

static uint64_t at(double seconds) {
    return SYNTHETIC_MONO + (uint64_t)(seconds * 1e9);
}

/* A trace of a process that began at `start`, and is recorded from `from` on. */
static struct writer *begin_process(const char *name, int64_t rank, uint64_t pid, unsigned boot,
                                    double start, double from) {
    static const uint64_t ranks[2] = {0, 1};
    char path[128], boot_id[40];
    struct writer *w;

    snprintf(boot_id, sizeof boot_id, "8c1f1c3e-0000-4000-8000-%012u", boot);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(writer_open(&w, &(struct writer_options){.trace_path = path, .run_dir = dir}),
                     0);
    struct writer_value process[TRACE_process_NFIELDS] = {
        [TRACE_process_ts] = synthetic_u(at(from)),
        [TRACE_process_start_ts] = synthetic_u(at(start)),
        [TRACE_process_host] = synthetic_s("node"),
        [TRACE_process_boot_id] = synthetic_s(boot_id),
        [TRACE_process_pid] = synthetic_u(pid),
        [TRACE_process_rank] = {.i = rank},
        [TRACE_process_local_rank] = {.i = rank},
        [TRACE_process_world_size] = {.i = 2},
        [TRACE_process_run] = synthetic_s("node-1-1"),
        [TRACE_process_job] = synthetic_s("slurm:1")};
    writer_emit(w, TRACE_process, process);
    synthetic_clock(w, at(from));
    struct writer_value group[TRACE_process_group_NFIELDS] = {
        [TRACE_process_group_ts] = synthetic_u(at(from)),
        [TRACE_process_group_pg] = synthetic_u(1),
        [TRACE_process_group_name] = synthetic_s("0"),
        [TRACE_process_group_rank] = {.i = rank},
        [TRACE_process_group_size] = {.i = 2},
        [TRACE_process_group_ranks] = {.p = ranks, .n = 2}};
    writer_emit(w, TRACE_process_group, group);
    return w;
}

static struct writer *begin(const char *name, int64_t rank, double from) {
    return begin_process(name, rank, 77 + (uint64_t)rank, 1, -1, from);
}

static void end(struct writer *w, double to, const char *reason) {
    static struct writer *volatile abandoned[32]; /* what writer_abandon() leaves is no leak */
    static unsigned n;
    struct writer_value memory[TRACE_memory_NFIELDS] = {synthetic_u(at(to))};
    struct writer_value v[TRACE_end_NFIELDS] = {synthetic_u(at(to)), synthetic_s(reason)};

    writer_emit(w, TRACE_memory, memory);
    synthetic_clock(w, at(to));
    writer_drain(w, WRITER_FLUSH);
    writer_emit(w, TRACE_end, v);
    writer_drain(w, WRITER_FLUSH);
    writer_abandon(w);
    assert_true(n < sizeof abandoned / sizeof *abandoned);
    abandoned[n++] = w;
}

static void span(struct writer *w, double ts, uint64_t id, uint64_t parent, const char *name) {
    struct writer_value v[] = {synthetic_u(at(ts)), synthetic_u(id), synthetic_u(parent),
                               synthetic_u(77), synthetic_s(name)};
    writer_emit(w, TRACE_span, v);
}

static void span_end(struct writer *w, double ts, uint64_t id) {
    struct writer_value v[] = {synthetic_u(at(ts)), synthetic_u(id), synthetic_u(0)};
    writer_emit(w, TRACE_span_end, v);
}

static void event(struct writer *w, double ts, uint64_t id, uint64_t in) {
    struct writer_value v[] = {synthetic_u(at(ts)), synthetic_u(id), synthetic_u(in),
                               synthetic_u(0),      synthetic_u(77), synthetic_s("event")};
    writer_emit(w, TRACE_event, v);
}

static void comm(struct writer *w, double ts, uint64_t number, uint64_t flags) {
    struct writer_value v[TRACE_comm_NFIELDS] = {[TRACE_comm_ts] = synthetic_u(at(ts)),
                                                 [TRACE_comm_number] = synthetic_u(number),
                                                 [TRACE_comm_pg] = synthetic_u(1),
                                                 [TRACE_comm_seq] = synthetic_u(number),
                                                 [TRACE_comm_op] = synthetic_s("all_reduce"),
                                                 [TRACE_comm_duration] = synthetic_u(1000000000),
                                                 [TRACE_comm_src] = {.i = -1},
                                                 [TRACE_comm_dst] = {.i = -1},
                                                 [TRACE_comm_flags] = synthetic_u(flags)};
    writer_emit(w, TRACE_comm, v);
}

/* ---- databases ---- */

/* Converts the NULL-terminated names within dir into, or adds them to, the database. */
static void converted(const char *db, int add, const char *const *names) {
    struct inputs in = {0};
    char path[128], out[128];
    struct convert_options opt = {.out = out, .append = add, .threads = 1};
    struct convert_result res;

    snprintf(out, sizeof out, "%s/%s", dir, db);
    for (; *names; names++) {
        snprintf(path, sizeof path, "%s/%s", dir, *names);
        assert_int_equal(inputs_add(&in, path, 0), 0);
    }
    if (convert(&in, &opt, &res) != 0)
        fail_msg("%s", res.error);
    inputs_free(&in);
}

/* Returns the first column of all rows. */
static const char *asked(const char *name, const char *sql) {
    static char text[4096];
    char path[128];
    sqlite3 *db;
    sqlite3_stmt *st;
    size_t n = 0;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    for (text[0] = 0; sqlite3_step(st) == SQLITE_ROW;)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s\n",
                              (const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    sqlite3_close(db);
    return text;
}

/* ---- tests ---- */

/* Spans end in the next file, or in the one after it, and have in it what they had begun. The process then becomes another program, with its own spans. */
static void spans(void **state) {
    static const char *const all[] = {"s3.zst", "s1.zst", "s2.zst", "s4.zst", NULL};
    static const char spans[] = "SELECT json_array(name, duration, parent) FROM spans ORDER BY"
                                " timestamp",
                      events[] = "SELECT json_array(name, span) FROM events ORDER BY timestamp",
                      whole[] = "[\"whole\",70.0,null]\n[\"epoch\",20.0,\"whole\"]\n"
                                "[\"epoch\",10.0,\"whole\"]\n[\"open\",null,\"whole\"]\n"
                                "[\"program\",4.0,null]\n",
                      within[] = "[\"event\",\"epoch\"]\n[\"event\",\"whole\"]\n"
                                 "[\"event\",\"program\"]\n";

    (void)state;
    struct writer *w = begin("s1.zst", 0, 0);
    span(w, 5, 1, 0, "whole");
    span(w, 10, 2, 1, "epoch");
    end(w, 20, "rotated");
    w = begin("s2.zst", 0, 21);
    event(w, 25, 3, 2);
    span_end(w, 30, 2);
    span(w, 31, 4, 1, "epoch");
    span_end(w, 41, 4);
    end(w, 50, "rotated");
    w = begin("s3.zst", 0, 51);
    event(w, 60, 5, 1);
    span(w, 61, 6, 1, "open");
    span_end(w, 75, 1);
    end(w, 80, "exec");
    w = begin("s4.zst", 0, 81);
    span(w, 82, 1, 0, "program");
    event(w, 83, 2, 1);
    span_end(w, 86, 1);
    end(w, 90, "exit");
    converted("s.db", 0, all);
    assert_string_equal(asked("s.db", spans), whole);
    assert_string_equal(asked("s.db", events), within);
    /* file by file, in any order */
    converted("added.db", 0, (const char *const[]){"s2.zst", NULL});
    assert_string_equal(asked("added.db", spans), "[\"epoch\",10.0,null]\n");
    for (const char *const *file = all; *file; file++)
        converted("added.db", 1, (const char *const[]){*file, NULL});
    assert_string_equal(asked("added.db", spans), whole);
    assert_string_equal(asked("added.db", events), within);
}

/* A rank waits for another one, goes on in another file, and the other dies long after that. */
static void a_hang(void **state) {
    static const char hangs[] =
        "SELECT json_array(rank, state, waiting, waiters, round(waited, 3)) FROM hangs";

    (void)state;
    struct writer *w = begin("h0a.zst", 0, 0);
    comm(w, 1, 1, 0);
    comm(w, 10, 2, 1);
    end(w, 100, "rotated");
    w = begin("h0b.zst", 0, 101);
    end(w, 300, "killed");
    w = begin("h1.zst", 1, 0);
    comm(w, 1, 1, 0);
    end(w, 200, "killed");
    converted("h.db", 0, (const char *const[]){"h0b.zst", "h0a.zst", "h1.zst", NULL});
    assert_string_equal(asked("h.db", "SELECT seq FROM comm_metrics WHERE NOT complete"), "2\n");
    assert_string_equal(asked("h.db", hangs), "[1,\"dead\",1,\"0\",290.0]\n");
}

/* Two machines with one rank each, which their launcher starts three times. Processes that a rank starts, too, make no difference to which of its own
 * collectives are those of the other rank: all are, and they tell that the clocks agree. */
static void a_rank_that_starts_processes(void **state) {
    static const char clocks[] =
        "SELECT json_array(method, matches, uncertainty < 1e-3, abs(\"offset\") < 1e-3)"
        " FROM clock_alignment WHERE NOT reference";
    char name[16];

    (void)state;
    for (unsigned rank = 0; rank < 2; rank++)
        for (unsigned start = 0; start < 3; start++) {
            double from = 1000 * start;
            snprintf(name, sizeof name, "r%u%u.zst", rank, start);
            struct writer *w = begin_process(name, rank, 100 + start, rank, from, from + 1);
            for (unsigned i = 1; i <= 50; i++)
                comm(w, from + 1 + i * (1 + start / 10.0), i, 0);
            end(w, from + 100, "exit");
            if (rank)
                continue;
            snprintf(name, sizeof name, "p%u.zst", start);
            end(begin_process(name, rank, 200 + start, rank, from + 5, from + 6), from + 50,
                "exit");
        }
    converted("r.db", 0,
              (const char *const[]){"r00.zst", "p0.zst", "r01.zst", "p1.zst", "r02.zst", "p2.zst",
                                    "r10.zst", "r11.zst", "r12.zst", NULL});
    assert_string_equal(asked("r.db", clocks), "[\"collectives\",150,1,1]\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans),
        cmocka_unit_test(a_hang),
        cmocka_unit_test(a_rank_that_starts_processes),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
