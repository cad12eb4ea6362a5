/* SPDX-License-Identifier: Apache-2.0 */
/* A program of threads, metrics, collectives, triggers, spans and values whose recording goes on in other files: every view answers as of a recording in one file. */
#include "converter/arrow_read.h"
#include "two_recordings.h"

#define MS      1000000ull
#define TICK    (10 * MS)
#define TICKS   1000
#define THREADS 5

static struct {
    uint64_t now, seed, ids, step;
    unsigned turned; /* 1: the new file has yet to be told of what is there */
    struct {
        uint64_t tid, ident;
        char name[24];
    } thread[THREADS]; /* tid 0: none */
    uint64_t span[4];
    unsigned spans;
    struct {
        uint64_t number, began, seq;
    } call; /* in flight; number 0: none */
    uint64_t calls, seqs, trigger, tick;
    char debug[8]; /* value of an environment variable */
    int groups;
} g;

static unsigned any(unsigned n) {
    g.seed = g.seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(g.seed >> 33) % n;
}

#define BOTH(name, ...) recordings_emit(TRACE_##name, WRITER_VALUES(name, __VA_ARGS__))
#define TEXT(s)                                                                                    \
    (struct writer_value) {                                                                        \
        .p = (s), .n = strlen(s)                                                                   \
    }

/* ---- what is said again in each file ---- */

static void tell_thread(struct writer *w, unsigned i, int alive) {
    if (g.thread[i].tid)
        WRITER_EMIT(w, thread, .ts = g.now, .tid = g.thread[i].tid, .name = TEXT("python3"),
                    .ident = g.thread[i].ident, .state = (uint64_t)alive,
                    .python_name = TEXT(g.thread[i].name));
}

static void tell_facts(struct writer *w) {
    WRITER_EMIT(w, fact, .ts = g.now, .kind = TEXT("env"), .key = TEXT("NCCL_DEBUG"),
                .value = TEXT(g.debug));
    WRITER_EMIT(w, fact, .ts = g.now, .kind = TEXT("env"), .key = TEXT("OMP_NUM_THREADS"),
                .value = TEXT("4"));
    WRITER_EMIT(w, fact, .ts = g.now, .kind = TEXT("version"), .key = TEXT("torch"),
                .value = TEXT("2.1"));
    WRITER_EMIT(w, fact, .ts = g.now, .kind = TEXT("system"), .key = TEXT("kernel"),
                .value = TEXT("6.1"));
    WRITER_EMIT(w, fact, .ts = g.now, .kind = TEXT("limit"), .key = TEXT("memory.max"),
                .value = TEXT("max"));
}

static void tell_groups(struct writer *w) {
    static const uint64_t ranks[] = {
        0}; /* with others, the converter would look for a hang in each database */

    if (g.groups)
        for (unsigned i = 1; i <= 2; i++)
            WRITER_EMIT(w, process_group, .ts = g.now, .pg = i, .name = TEXT(i > 1 ? "1" : "0"),
                        .backend = TEXT("gloo"), .rank = 0, .size = 1,
                        .ranks = {.p = ranks, .n = 1},
                        .desc = TEXT(i > 1 ? "mesh_tp" : "default_pg"));
}

static void recording_describe(struct writer *w) {
    struct synthetic s = {.rank = 0, .pid = SYNTHETIC_TID};

    synthetic_process_at(w, &s, g.now);
    synthetic_clock(w, g.now);
    WRITER_EMIT(w, config, .ts = g.now, .key = TEXT("probing.sample_rate"), .value = TEXT("0.01"));
    tell_facts(w);
    tell_groups(w);
}

/* What the agent's other threads do not say before they have seen that there is a new file. */
static void tell_rest(void) {
    g.turned = 0;
    for (unsigned i = 0; i < THREADS; i++)
        tell_thread(to.parts, i, 1);
}

/* ---- the program ---- */

static void begin_thread(unsigned i) {
    static const char *const names[] = {"MainThread", "loader", "pin_memory", "watch", "autograd"};

    g.thread[i].tid = i ? SYNTHETIC_TID + 1 + any(6) : SYNTHETIC_TID;
    for (unsigned k = 0; k < THREADS; k++)
        if (k != i && g.thread[k].tid == g.thread[i].tid) {
            g.thread[i].tid = 0;
            return;
        }
    g.thread[i].ident = 0x7000 + g.now / TICK;
    snprintf(g.thread[i].name, sizeof g.thread[i].name, "%s", names[i]);
    tell_thread(to.whole, i, 1);
    tell_thread(to.parts, i, 1);
}

static void end_thread(unsigned i) {
    tell_thread(to.whole, i, 0);
    tell_thread(to.parts, i, 0);
    g.thread[i].tid = 0;
}

static void rename_thread(unsigned i) {
    snprintf(g.thread[i].name, sizeof g.thread[i].name, "request %u", any(100));
    tell_thread(to.whole, i, 1);
    tell_thread(to.parts, i, 1);
}

static void threads(void) {
    unsigned i = 1 + any(THREADS - 1);

    if (!g.thread[i].tid)
        begin_thread(i);
    else if (any(2))
        end_thread(i);
    else
        rename_thread(i);
}

static void samples(int burst) {
    g.tick = g.now / 1000 * 1000;
    for (unsigned i = 0; i < THREADS; i++)
        if (g.thread[i].tid)
            BOTH(sample, .ts = g.tick, .tid = g.thread[i].tid, .stack = 0x900000 + any(10),
                 .cpu_us = burst ? 0 : any(900), .count = !burst, .flags = any(2));
}

static void metrics(void) {
    uint64_t n = g.now / TICK;

    BOTH(cpu, .ts = g.now, .user_us = n * 500 + any(400), .system_us = n * 200, .threads = 5,
         .agent_us = n, .handler_us = n);
    BOTH(memory, .ts = g.now, .rss = 1000000 + any(1000), .vms = 3000000);
    BOTH(io, .ts = g.now, .rchar = n * 10, .wchar = n * 30, .read_bytes = n * 4096,
         .write_bytes = n * 512);
    for (unsigned i = 0; i < 3; i++)
        if (i < 2 || any(3)) /* the third comes and goes */
            BOTH(network, .ts = g.now, .interface = TEXT(i ? i > 1 ? "veth1" : "eth0" : "lo"),
                 .rx_bytes = n * 100 * (i + 1), .tx_bytes = n * 50);
    BOTH(children, .ts = g.now, .ended = 1, .ticks = 2, .lived = MS);
}

static void value(uint64_t event, const char *key, double number) {
    BOTH(event_value, .event = event, .key = TEXT(key), .kind = 2, .number = number);
}

static void words(void) {
    uint64_t parent = g.spans ? g.span[g.spans - 1] : 0;

    if (g.spans && any(2)) {
        BOTH(span_end, .ts = g.now, .id = g.span[--g.spans], .flags = any(2));
    } else if (g.spans < 4) {
        g.span[g.spans++] = ++g.ids;
        BOTH(span, .ts = g.now, .id = g.ids, .parent = parent, .tid = SYNTHETIC_TID,
             .name = TEXT(any(2) ? "fetch" : "save"));
    }
    g.ids++;
    BOTH(event, .ts = g.now + 1, .id = g.ids, .span = parent, .step = g.step, .tid = SYNTHETIC_TID,
         .name = TEXT("note"));
}

static void role(unsigned tp) {
    BOTH(event, .ts = g.now + 2, .id = ++g.ids, .tid = SYNTHETIC_TID, .name = TEXT("probing.role"));
    BOTH(event_value, .event = g.ids, .key = TEXT("role"), .kind = 3,
         .text = TEXT(tp ? "actor" : "critic"));
    value(g.ids, "dp", tp);
}

/* A call is told of when it is over. While it is in flight it may be told of as not complete, as at a trigger. */
static void calls(int at_trigger) {
    if (!g.call.number) {
        if (at_trigger)
            return;
        g.call.number = ++g.calls;
        g.call.seq = ++g.seqs;
        g.call.began = g.now;
        return;
    }
    BOTH(comm, .ts = g.call.began, .number = g.call.number, .tid = SYNTHETIC_TID, .pg = 1,
         .seq = g.call.seq, .op = TEXT("all_reduce"), .bytes = 4096, .dtype = TEXT("float32"),
         .duration = g.now - g.call.began, .host = MS, .src = -1, .dst = -1,
         .flags = at_trigger ? 1 : 0);
    if (!at_trigger)
        g.call.number = 0;
}

static void tell_trigger(const char *text) {
    BOTH(trigger, .ts = g.tick + 3, .id = g.trigger, .kind = TEXT("hang"), .tid = SYNTHETIC_TID,
         .step = (int64_t)g.step, .tick = g.tick, .detail = TEXT("no step for 1 s"),
         .text = TEXT(text));
}

static void variables(void) {
    for (unsigned i = 0; i < 2; i++)
        BOTH(variable, .ts = g.now + i, .step = g.step, .at = 0, .func = TEXT("train"),
             .name = TEXT(i ? "acc" : "loss"), .kind = 2, .number = 1.0 / (1 + any(9)));
    if (any(3) == 0)
        g.step++;
}

static void run(void) {
    uint64_t told = 0, tick = 0; /* the trigger of which more is to be said, and its stacks */

    begin_thread(0);
    for (unsigned i = 0; i < TICKS; i++, g.now += TICK - MS) {
        samples(0);
        g.now += MS;
        if (any(12) == 0)
            threads();
        if (i % 50 == 7)
            metrics();
        if (any(9) == 0)
            words();
        if (any(5) == 0)
            calls(0);
        if (any(4) == 0)
            variables();
        if (i == 100 || i == 500)
            role(i == 500);
        if (i == 20) {
            g.groups = 1;
            tell_groups(to.whole);
            tell_groups(to.parts);
        }
        if (i == 700) {
            strcpy(g.debug, "INFO");
            BOTH(fact, .ts = g.now, .kind = TEXT("env"), .key = TEXT("NCCL_DEBUG"),
                 .value = TEXT(g.debug));
        }
        if (told && any(20) == 0) {
            uint64_t now = g.tick;
            g.tick = tick;
            tell_trigger("it goes on");
            g.tick = now;
            told = 0;
        } else if (!told && any(80) == 0) {
            samples(1);
            told = ++g.trigger;
            tick = g.tick;
            tell_trigger("");
            calls(1);
        }
        if (any(20) == 0)
            recordings_drain();
        if (g.turned && any(4) == 0)
            tell_rest();
        if (!g.turned && any(50) == 0) {
            recordings_turn();
            g.turned = 1;
        }
    }
}

static void record(unsigned seed) {
    struct synthetic s = {.depth = 3};

    memset(&g, 0, sizeof g);
    g.seed = seed;
    g.now = SYNTHETIC_MONO;
    strcpy(g.debug, "WARN");
    recordings_begin();
    synthetic_dictionary(to.whole, &s);
    synthetic_dictionary(to.parts, &s);
    run();
    if (g.call
            .number) /* for how long it had waited is said from the end on, which the two have apart */
        calls(0);
    synthetic_clock(to.whole, g.now);
    synthetic_clock(to.parts, g.now);
    recordings_close();
}

/* ---- the views ---- */

/* What each file has of its own: the process as it is described again, losses, and views that other views are made by. */
static const char of_files[] =
    "('trace', 'process', 'config', 'modules_loaded', 'loss', 'runs', 'clock_alignment', 'thread_files', 'last_facts', 'cpu_before', 'io_before',"
    " 'network_before', 'stack_frame', 'stack_text', 'memory_allocations', 'hangs_made', 'hangs_late_made')";

/* Ids are not compared; nor, with samples, the names of threads: a file does not know how a thread is called later. */
static const char columns[] =
    "SELECT group_concat('\"' || name || '\"') FROM pragma_table_info('%q') WHERE name NOT GLOB '*_id'"
    " AND NOT (name = 'thread' AND '%q' IN ('samples', 'backtrace', 'trigger_stacks'))";

static void compare(const char *name, const char *how) {
    sqlite3 *db = recordings_both(name);
    sqlite3_stmt *views;
    char *sql = sqlite3_mprintf("SELECT name FROM main.sqlite_master WHERE type = 'view'"
                                " AND name NOT IN %s ORDER BY name",
                                of_files);
    unsigned n = 0, differing = 0;

    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &views, NULL), SQLITE_OK);
    sqlite3_free(sql);
    for (; sqlite3_step(views) == SQLITE_ROW; n++) {
        const char *view = (const char *)sqlite3_column_text(views, 0);
        sqlite3_stmt *st;
        sql = sqlite3_mprintf(columns, view, view);
        assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
        sqlite3_free(sql);
        assert_int_equal(sqlite3_step(st), SQLITE_ROW);
        char *select = sqlite3_mprintf("SELECT %s FROM %%s.%s", sqlite3_column_text(st, 0), view);
        sqlite3_finalize(st);
        int64_t differ = recordings_differ(db, select);
        if (differ)
            print_message("%s, %u files: %d rows differ in: %s\n", how, to.files + 1, (int)differ,
                          select);
        differing += differ != 0;
        sqlite3_free(select);
    }
    sqlite3_finalize(views);
    assert_int_equal(differing, 0);
    assert_true(n > 25);
    sqlite3_close(db);
}

static void test_views(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= recordings_seeds(); seed++) {
        record(seed);
        recordings_compare(any, compare);
    }
}

/* A data set, Arrow and Spark know a trace by a number, so no two files may have the same. */
static void test_numbers_of_files(void **state) {
    static char text[MOST_FILES][96];
    const char *paths[MOST_FILES], *wanted[] = {"recording"};
    struct probing_request rq = {.paths = paths,
                                 .table = "traces",
                                 .columns = wanted,
                                 .ncolumns = 1,
                                 .from = INT64_MIN,
                                 .until = INT64_MAX};
    struct ArrowArrayStream stream;
    struct ArrowArray array = {0};
    char error[512];
    int64_t number[MOST_FILES];
    size_t n = 0;

    (void)state;
    record(1);
    for (unsigned i = 0; i <= to.files; i++) {
        snprintf(text[i], sizeof text[i], i ? "%s/part.%u.zst" : "%s/part.zst", recordings, i);
        paths[rq.npaths++] = text[i];
    }
    assert_int_equal(probing_stream(&rq, &stream, NULL, error, sizeof error), 0);
    while (stream.get_next(&stream, &array) == 0 && array.release) {
        const int64_t *values = (const int64_t *)array.children[0]->buffers[1];
        for (int64_t i = 0; i < array.length; i++)
            number[n++] = values[i];
        array.release(&array);
    }
    stream.release(&stream);
    assert_int_equal(n, rq.npaths);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(number[i], number[k]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_numbers_of_files),
    };

    return cmocka_run_group_tests(tests, recordings_setup, recordings_teardown);
}
