/* SPDX-License-Identifier: Apache-2.0 */
/* A training whose recording goes on in other files: in whatever order these are converted, the answers are those of a recording in one file. */
#include "two_recordings.h"

#include "torch_program.h"

static void program_emit(unsigned record, const struct writer_value *v) {
    recordings_emit(record, v);
}

static void program_drain(void) {
    recordings_drain();
}

static void recording_describe(struct writer *w) {
    struct synthetic s = {.rank = 0};

    synthetic_process_at(w, &s, g.now);
    synthetic_clock(w, g.now);
    for (unsigned i = 0; i < THREADS; i++)
        synthetic_thread(w, i);
}

static void program_turn(void) {
    static uint64_t number;

    program_end();
    number++;
    recordings_emit(TRACE_comm, WRITER_VALUES(comm, .ts = g.now, .number = number, .pg = 1,
                                              .seq = number, .op = synthetic_s("all_reduce"),
                                              .duration = 700, .src = -1, .dst = -1));
    g.now += 1000; /* so that no two files begin at the same time */
    recordings_turn();
}

static void begin(unsigned seed, unsigned late) {
    program_start(seed, late);
    g.apart =
        1; /* a file without the end of a step does not tell whose calls are the step's, nor what has ended before it */
    recordings_begin();
    program_names();
}

static void end(void) {
    while (g.t[ENGINE].n)
        ends(&g.t[ENGINE]);
    program_end();
    synthetic_clock(to.whole, g.now);
    synthetic_clock(to.parts, g.now);
    recordings_close();
}

/* What the answers must be the same in; ids and traces are not. Times are in ns: sums of seconds depend on their order. */
static const char *const answers[] = {
    "SELECT number, source, ts, duration, forward, backward, optimizer, data, forwards, backwards, optimizers, told FROM %s.torch_step",
    "SELECT c.ts, c.duration, h.tid, c.stage, m.name, m.type, c.call, c.depth, c.flags, c.step, c.seq, c.call_tid,"
    " (SELECT q.ts FROM %s.torch_call q WHERE q.id = c.id - c.parent) FROM %s.torch_call c"
    " JOIN %s.thread h ON h.id = (c.id >> 40 << 40) + c.thread JOIN %s.torch_module m ON m.id = (c.id >> 40 << 40) + c.module",
    "SELECT m.name, c.stage, sum(c.calls), sum(c.timed), sum(c.ns), sum(c.self_ns), max(c.longest) FROM %s.torch_module_total c"
    " JOIN %s.torch_module m ON m.id = c.module GROUP BY 1, 2",
    "SELECT module, stage, calls, seconds, self_seconds, mean, longest, type, rank, pid FROM %s.torch_modules",
    "SELECT step, timestamp, duration, communication, other, complete FROM %s.steps",
    "SELECT ts, step, rss FROM %s.memory_step",
};

static void compare(const char *name, const char *how) {
    sqlite3 *db = recordings_both(name);

    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        int64_t n = recordings_differ(db, answers[i]);
        if (n)
            fail_msg("%s, %u files: %d rows differ in: %s", how, to.files + 1, (int)n, answers[i]);
    }
    sqlite3_close(db);
}

static void test_training(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= recordings_seeds(); seed++) {
        begin(seed, 8);
        train(&g.t[LEADER], 60, TORCH_BY_OPTIMIZER);
        end();
        recordings_compare(any, compare);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),
    };

    return cmocka_run_group_tests(tests, recordings_setup, recordings_teardown);
}
