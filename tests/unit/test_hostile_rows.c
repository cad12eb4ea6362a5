/* SPDX-License-Identifier: Apache-2.0 */
/* Traces that say what no recording says: times from one end of 64 bits to the other, numbers that are none, threads without end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#include "converter/convert.h"
#include "converter/torch_state.h"
#include "synthetic.h"
#include "traces/torch_events.h"
#include "traces/varint.h"
#include <sqlite3.h>

static char dir[] = "/tmp/test_hostile_rows.XXXXXX";

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

/* ---- traces ---- */

static struct writer *begin(const char *name, unsigned rank) {
    static const uint64_t ranks[2] = {0, 1};
    char path[128], boot[40];
    struct writer *w;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    snprintf(boot, sizeof boot, "8c1f1c3e-0000-4000-8000-00000000000%u", rank);
    assert_int_equal(writer_open(&w, &(struct writer_options){.trace_path = path, .run_dir = dir}),
                     0);
    struct writer_value process[TRACE_process_NFIELDS] = {
        [TRACE_process_ts] = synthetic_u(SYNTHETIC_MONO),
        [TRACE_process_start_ts] = synthetic_u(SYNTHETIC_MONO - 5000),
        [TRACE_process_host] = synthetic_s("node"),
        [TRACE_process_boot_id] = synthetic_s(boot),
        [TRACE_process_pid] = synthetic_u(77 + rank),
        [TRACE_process_rank] = {.i = rank},
        [TRACE_process_local_rank] = {.i = 0},
        [TRACE_process_world_size] = {.i = 2},
        [TRACE_process_job] = synthetic_s("slurm:7")};
    writer_emit(w, TRACE_process, process);
    synthetic_clock(w, SYNTHETIC_MONO);
    synthetic_clock(w, SYNTHETIC_MONO + 2000000000);
    struct writer_value group[TRACE_process_group_NFIELDS] = {
        [TRACE_process_group_ts] = synthetic_u(SYNTHETIC_MONO),
        [TRACE_process_group_pg] = synthetic_u(1),
        [TRACE_process_group_name] = synthetic_s("0"),
        [TRACE_process_group_rank] = {.i = rank},
        [TRACE_process_group_size] = {.i = 2},
        [TRACE_process_group_ranks] = {.p = ranks, .n = 2}};
    writer_emit(w, TRACE_process_group, group);
    return w;
}

static void end(struct writer *w) {
    assert_int_equal(writer_close(w, "exit"), 0);
}

static void comm(struct writer *w, uint64_t ts, uint64_t number, uint64_t seq, const char *op) {
    struct writer_value v[TRACE_comm_NFIELDS] = {
        [TRACE_comm_ts] = synthetic_u(ts),  [TRACE_comm_number] = synthetic_u(number),
        [TRACE_comm_pg] = synthetic_u(1),   [TRACE_comm_seq] = synthetic_u(seq),
        [TRACE_comm_op] = synthetic_s(op),  [TRACE_comm_duration] = synthetic_u(1000),
        [TRACE_comm_src] = {.i = -1},       [TRACE_comm_dst] = {.i = -1},
        [TRACE_comm_flags] = synthetic_u(0)};
    writer_emit(w, TRACE_comm, v);
}

/* Everything that carries a number which becomes part of a row id, numbered from `first` on. */
static void numbered(struct writer *w, uint64_t first, const char *name) {
    const uint64_t ts = SYNTHETIC_MONO + 1000;
    uint8_t events[32], *p = events;
    struct writer_value span[] = {synthetic_u(ts), synthetic_u(first), synthetic_u(0),
                                  synthetic_u(77), synthetic_s(name)};
    struct writer_value inner[] = {synthetic_u(ts), synthetic_u(first + 1), synthetic_u(first),
                                   synthetic_u(77), synthetic_s(name)};
    struct writer_value span_end[] = {synthetic_u(ts + 9), synthetic_u(first), synthetic_u(0)};
    struct writer_value event[] = {synthetic_u(ts), synthetic_u(first + 2), synthetic_u(first),
                                   synthetic_u(0),  synthetic_u(77),        synthetic_s(name)};
    struct writer_value value[TRACE_event_value_NFIELDS] = {synthetic_u(first + 2),
                                                            synthetic_s(name), synthetic_u(3)};
    struct writer_value trigger[TRACE_trigger_NFIELDS] = {
        [TRACE_trigger_ts] = synthetic_u(ts),
        [TRACE_trigger_id] = synthetic_u(first),
        [TRACE_trigger_kind] = synthetic_s("hang"),
        [TRACE_trigger_step] = {.i = -1},
        [TRACE_trigger_detail] = synthetic_s(name)};
    struct writer_value module[TRACE_torch_name_NFIELDS] = {
        [TRACE_torch_name_key] = synthetic_u(first),
        [TRACE_torch_name_number] = synthetic_u(first),
        [TRACE_torch_name_name] = synthetic_s(name),
        [TRACE_torch_name_type] = synthetic_s(name)};
    struct writer_value calls[TRACE_torch_calls_NFIELDS] = {synthetic_u(ts), synthetic_u(77),
                                                            synthetic_u(1)};

    value[TRACE_event_value_text] = synthetic_s(name);
    comm(w, ts, first, 1, "send");
    writer_emit(w, TRACE_span, span);
    writer_emit(w, TRACE_span, inner);
    writer_emit(w, TRACE_span_end, span_end);
    writer_emit(w, TRACE_event, event);
    writer_emit(w, TRACE_event_value, value);
    writer_emit(w, TRACE_trigger, trigger);
    writer_emit(w, TRACE_torch_name, module);
    p = varint_put(p, TORCH_ENTER | first << 4);
    p = varint_put(p, 1);
    p = varint_put(p, TORCH_EXIT);
    p = varint_put(p, 1);
    calls[TRACE_torch_calls_events] = (struct writer_value){.p = events, .n = (size_t)(p - events)};
    writer_emit(w, TRACE_torch_calls, calls);
}

/* ---- databases ---- */

/* Converts the NULL-terminated names within dir into a database without a name. */
static sqlite3 *converted(const char *const *names) {
    struct inputs in = {0};
    struct convert_options opt = {.threads = 1};
    struct convert_result res;
    char path[128];

    for (; *names; names++) {
        snprintf(path, sizeof path, "%s/%s", dir, *names);
        assert_int_equal(inputs_add(&in, path, 0), 0);
    }
    if (convert(&in, &opt, &res) != 0)
        fail_msg("%s", res.error);
    inputs_free(&in);
    return res.db;
}

/* Appends the first column of all rows of a query. */
static void append(char *text, size_t size, sqlite3 *db, const char *sql) {
    sqlite3_stmt *st;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    while (sqlite3_step(st) == SQLITE_ROW) {
        size_t n = strlen(text);
        snprintf(text + n, size - n, "%s\n", (const char *)sqlite3_column_text(st, 0));
    }
    sqlite3_finalize(st);
}

/* Describes the rows of the first trace that have ids from numbers. */
static void describe(sqlite3 *db, char *text, size_t size) {
    static const char *const queries[] = {
        "SELECT json_array('comm', id, ts, seq, duration, flags) FROM comm WHERE id >> 40 = 1",
        "SELECT json_array('span', span_id, parent_id, name, duration) FROM spans WHERE span_id >> 40 = 1",
        "SELECT json_array('event', event_id, name, span, data) FROM events WHERE event_id >> 40 = 1",
        "SELECT json_array('trigger', trigger_id, detail) FROM triggers WHERE trigger_id >> 40 = 1",
        "SELECT json_array('module', id, name, type) FROM torch_module WHERE id >> 40 = 1",
        "SELECT json_array('call', row_id, module) FROM torch_trace WHERE trace_id = 1",
        "SELECT json_array('total', module, calls) FROM torch_modules WHERE trace_id = 1"};

    *text = 0;
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++)
        append(text, size, db, queries[i]);
    sqlite3_close(db);
}

/* ---- tests ---- */

/* Clocks that seem to have run for centuries cannot be compared, and that is all. */
static void times_from_end_to_end(void **state) {
    char text[256] = "";

    (void)state;
    for (unsigned rank = 0; rank < 2; rank++) {
        struct writer *w = begin(rank ? "ends1.zst" : "ends0.zst", rank);
        for (uint64_t i = 0; i < 60; i++)
            comm(w, (i < 30 ? 1ull << 63 : 7ull << 60) + 1000000 * i, i + 1, i + 1, "all_reduce");
        end(w);
    }
    sqlite3 *db = converted((const char *const[]){"ends0.zst", "ends1.zst", NULL});
    append(text, sizeof text, db, "SELECT method FROM clock_alignment ORDER BY 1");
    append(text, sizeof text, db, "SELECT count(*) FROM comm");
    assert_string_equal(text, "anchors\nanchors\n120\n");
    sqlite3_close(db);
}

/* Whatever the numbers of a trace are, it has no rows among those of another, and the others are converted. */
static void numbers_that_are_none(void **state) {
    static const uint64_t firsts[] = {1 - (1ull << 40), (1ull << 40) + 1, INT64_MAX - 2, 1ull << 63,
                                      UINT64_MAX - 3};
    static char alone[4096], beside[4096];
    char name[32];

    (void)state;
    struct writer *w = begin("good.zst", 0);
    numbered(w, 1, "good");
    end(w);
    describe(converted((const char *const[]){"good.zst", NULL}), alone, sizeof alone);
    assert_non_null(strstr(alone, "[\"event\",1099511627779,\"good\",\"good\""));
    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
        snprintf(name, sizeof name, "bad%zu.zst", i);
        w = begin(name, 1);
        numbered(w, firsts[i], "bad");
        end(w);
        describe(converted((const char *const[]){"good.zst", name, NULL}), beside, sizeof beside);
        assert_string_equal(alone, beside);
        describe(converted((const char *const[]){name, "good.zst", NULL}), beside, sizeof beside);
        assert_null(strstr(beside, "good"));
    }
}

/* A server has a thread for each request. What is kept of one that has no open call is small. */
static void threads_that_have_ended(void **state) {
    struct torch_state t = {0};
    const uint64_t n = 5000;
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;

    (void)state;
    for (uint64_t tid = 1; tid <= n; tid++) {
        struct torch_open *o = torch_state_thread(&t, tid);
        assert_non_null(o);
        assert_ptr_equal(torch_state_thread(&t, tid), o);
    }
    assert_int_equal(t.nthreads, n);
    assert_true(mallinfo2().uordblks + mallinfo2().hblkhd - before < n * 500);
    torch_state_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_from_end_to_end),
        cmocka_unit_test(numbers_that_are_none),
        cmocka_unit_test(threads_that_have_ended),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
