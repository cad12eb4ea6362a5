/* SPDX-License-Identifier: Apache-2.0 */
/* converter/schema: what each view makes of rows that are written here, so that every number of its answer is known: ties, NULLs, first rows, several files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "converter/sql_functions.h"
#include "converter/tables.h"

/* Three processes: trace 1 is rank 0, trace 2 rank 1, and the recording of rank 2 is in two files, traces 3 and 4. */
static const char traces[] =
    "INSERT INTO trace_file(id, file, host, boot_id, pid, ppid, rank, process_ts, start_ts, end_ts,"
    " program, run, command, python, agent, period_ns, periods, lost, complete, bytes, blocks,"
    " records, clock, clock_anchors, clock_group, attempt, first_id, last_id)"
    " SELECT column1, 'f' || column1, column2, 'boot ' || column2, column3, 1, column4, S(1), S(column5),"
    " S(column6), column7, 'r', 'train ' || column1, '3.11', '0.1', 10000000, 1, column1, 1, 0, 0, 0, 'none', 0, 1, 0,"
    " K(column1, 0), K(column1, 0xffffffffff)"
    " FROM (VALUES(1, 'a', 10, 0, 1, 9, NULL), (2, 'b', 20, 1, 1.5, 9, NULL), (3, 'c', 30, 2, 1, 10, 3),"
    " (4, 'c', 30, 2, 10, 20, 3))";

/* K(trace, n): the id of the trace's n-th row. */
static void row_id(sqlite3_context *c, int n, sqlite3_value **v) {
    (void)n;
    sqlite3_result_int64(c, sqlite3_value_int64(v[0]) << 40 | sqlite3_value_int64(v[1]));
}

/* S(seconds): in ns. */
static void in_ns(sqlite3_context *c, int n, sqlite3_value **v) {
    (void)n;
    if (sqlite3_value_type(v[0]) != SQLITE_NULL)
        sqlite3_result_int64(c, (int64_t)(sqlite3_value_double(v[0]) * 1e9 + .5));
}

static void run(sqlite3 *db, const char *sql) {
    char *error = NULL;

    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK)
        fail_msg("%s: %s", sql, error);
}

/* A query's rows, each between blanks, their columns between commas; a NULL is nothing. */
static void says(sqlite3 *db, const char *sql, const char *expected) {
    sqlite3_stmt *st;
    char said[4096] = "";
    size_t at = 0;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    while (sqlite3_step(st) == SQLITE_ROW && at < sizeof said - 256)
        for (int i = 0; i < sqlite3_column_count(st); i++) {
            const char *text = (const char *)sqlite3_column_text(st, i);
            at += (size_t)snprintf(said + at, sizeof said - at, "%s%.200s",
                                   i    ? ","
                                   : at ? " "
                                        : "",
                                   text ? text : "");
        }
    sqlite3_finalize(st);
    if (strcmp(said, expected) != 0)
        fail_msg("%s\n  says  %s\n  truth %s", sql, said, expected);
}

/* stored: as in the database of a conversion, where what views say of all rows is stored when they are there. */
static sqlite3 *made(int stored) {
    sqlite3 *db;

    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(sql_functions_register(db), SQLITE_OK);
    assert_int_equal(stored ? tables_make(db) : tables_make_live(db, NULL), SQLITE_OK);
    sqlite3_create_function(db, "K", 2, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, row_id, NULL,
                            NULL);
    sqlite3_create_function(db, "S", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, in_ns, NULL,
                            NULL);
    run(db, traces);
    return db;
}

/* Rates: none in the first row, none between rows of one moment, none from another process; over the files of one recording they go on. */
static void processor(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db,
        "INSERT INTO cpu VALUES(K(1, 1), S(1), 100000, 50000, 3, 5, 6, 7, 8, 1000, 500),"
        " (K(1, 2), S(3), 1100000, 250000, 4, 15, 16, 17, 18, 2000, 1000),"
        " (K(1, 3), S(3), 1200000, 250000, 4, 15, 16, 17, 18, 2000, 1000),"
        " (K(2, 1), S(11), 7000000, 9000000, 1, 0, 0, 0, 0, 0, 0),"
        " (K(3, 1), S(1), 0, 0, 1, 0, 0, 0, 0, 0, 0), (K(3, 2), S(8), 1000000, 2000000, 1, 0, 0, 0, 0, 0, 0),"
        " (K(4, 1), S(12), 2000000, 6000000, 1, 0, 0, 0, 0, 0, 0)");
    says(db,
         "SELECT trace_id, pid, rank, timestamp, cpu_percent, user_percent, system_percent,"
         " user_seconds, system_seconds FROM cpu_utilization WHERE trace_id <> 3 ORDER BY 1, 4, 8",
         "1,10,0,1.0,,,,0.1,0.05 1,10,0,3.0,60.0,50.0,10.0,1.1,0.25 1,10,0,3.0,,,,1.2,0.25"
         " 2,20,1,11.0,,,,7.0,9.0 4,30,2,12.0,125.0,25.0,100.0,2.0,6.0");
    says(db,
         "SELECT threads, voluntary_switches, involuntary_switches, minor_faults, major_faults,"
         " agent_seconds FROM cpu_utilization WHERE trace_id = 1 AND timestamp = 1",
         "3,5,6,7,8,0.0015");
    sqlite3_close(db);
}

static void input_and_output(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db,
        "INSERT INTO io(id, ts, rchar, wchar, syscr, syscw, read_bytes, write_bytes) VALUES"
        " (K(1, 1), S(1), 10, 20, 30, 40, 50, 60), (K(1, 2), S(3), 110, 220, 31, 41, 350, 460), (K(1, 3), S(3), 111, 220, 31, 41, 350, 460),"
        " (K(2, 1), S(11), 1, 2, 3, 4, 5, 6),"
        " (K(3, 1), S(1), 0, 0, 0, 0, 0, 0), (K(3, 2), S(8), 10, 20, 0, 0, 30, 40), (K(4, 1), S(12), 50, 100, 0, 0, 150, 200)");
    says(
        db,
        "SELECT trace_id, pid, rank, timestamp, rchar, wchar, syscr, syscw, read_bytes, write_bytes, rchar_rate,"
        " wchar_rate, read_rate, write_rate FROM io_statistics WHERE trace_id <> 3 ORDER BY 1, 4, 5",
        "1,10,0,1.0,10,20,30,40,50,60,,,, 1,10,0,3.0,110,220,31,41,350,460,50.0,100.0,150.0,200.0"
        " 1,10,0,3.0,111,220,31,41,350,460,,,, 2,20,1,11.0,1,2,3,4,5,6,,,, 4,30,2,12.0,50,100,0,0,150,200,10.0,20.0,30.0,40.0");
    sqlite3_close(db);
}

/* Each interface has a row before of its own. */
static void network(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db,
        "INSERT INTO network(id, ts, interface, rx_bytes, tx_bytes, rx_packets, tx_packets, rx_errors, tx_errors) VALUES"
        " (K(1, 1), S(1), 'eth0', 100, 200, 3, 4, 5, 6), (K(1, 2), S(1), 'lo', 7, 7, 1, 1, 0, 0), (K(1, 3), S(3), 'eth0', 300, 600, 30, 40, 50, 60),"
        " (K(1, 4), S(3), 'lo', 7, 9, 1, 1, 0, 0), (K(2, 1), S(11), 'lo', 1, 1, 1, 1, 0, 0), (K(3, 1), S(8), 'eth0', 0, 0, 0, 0, 0, 0), (K(3, 2), S(8), 'lo', 4, 4, 0, 0, 0, 0),"
        " (K(4, 1), S(12), 'eth0', 40, 80, 0, 0, 0, 0), (K(4, 2), S(12), 'lo', 8, 12, 0, 0, 0, 0)");
    says(
        db,
        "SELECT trace_id, pid, rank, timestamp, interface, rx_bytes, tx_bytes, rx_packets, tx_packets, rx_errors, tx_errors, rx_rate, tx_rate"
        " FROM network_statistics WHERE trace_id = 1 ORDER BY 4, 5",
        "1,10,0,1.0,eth0,100,200,3,4,5,6,, 1,10,0,1.0,lo,7,7,1,1,0,0,, 1,10,0,3.0,eth0,300,600,30,40,50,60,100.0,200.0 1,10,0,3.0,lo,7,9,1,1,0,0,0.0,1.0");
    says(
        db,
        "SELECT trace_id, interface, rx_rate, tx_rate FROM network_statistics WHERE trace_id IN (2, 4) ORDER BY 1, 2",
        "2,lo,, 4,eth0,10.0,20.0 4,lo,1.0,2.0");
    sqlite3_close(db);
}

/* What the process has of the GPUs: of all of them, by the readings that belong to that second, its own alone. */
static void memory_and_gpu(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db,
        "INSERT INTO memory_sample VALUES(K(1, 1), S(2), 1000000, 2000000, 3, 4, 5, 6), (K(2, 1), S(2), 7000000, 8000000, 0, 0, 0, 0)");
    run(db,
        "INSERT INTO memory_step VALUES(K(1, 2), S(2.5), 17, 3000000, 4000000, 5000000, 6000000), (K(1, 3), S(2.75), 18, 1, 1, NULL, NULL)");
    run(db,
        "INSERT INTO gpu VALUES(K(1, 4), S(2), 0, 'u0', 'H', 10, 20, 30000000, 40000000, 1500000, 6500, 70, 80),"
        " (K(1, 5), S(2.09), 1, 'u1', 'H', 11, 21, 31000000, 41000000, 500000, 7500, 71, 81), (K(1, 6), S(2.091), 1, 'u1', 'H', 0, 0, 0, 0, 16000000, 0, 0, 0),"
        " (K(1, 7), S(1.999), 0, 'u0', 'H', 0, 0, 0, 0, 32000000, 0, 0, 0), (K(2, 2), S(2.01), 0, 'v', 'H', 0, 0, 0, 0, NULL, 0, 0, 0)");
    says(
        db,
        "SELECT trace_id, pid, rank, timestamp, memory_mb, rss, vms, shared, data, swap, peak FROM memory_usage ORDER BY 1",
        "1,10,0,2.0,1.0,1000000,2000000,3,4,5,6 2,20,1,2.0,7.0,7000000,8000000,0,0,0,0");
    says(
        db,
        "SELECT trace_id, pid, rank, timestamp, step, rss_mb, vms_mb, gpu_mb, gpu_reserved_mb, rss, vms FROM memory ORDER BY 1, 4",
        "1,10,0,2.0,,1.0,2.0,2.0,,1000000,2000000 1,10,0,2.5,17,3.0,4.0,5.0,6.0,3000000,4000000 1,10,0,2.75,18,1.0e-06,1.0e-06,,,1,1"
        " 2,20,1,2.0,,7.0,8.0,,,7000000,8000000");
    says(
        db,
        "SELECT trace_id, pid, rank, timestamp, device, gpu_util, memory_util, memory_used_mb, memory_total_mb, process_memory_mb, power_w, temperature,"
        " sm_clock_mhz, name, uuid FROM gpu_metrics WHERE timestamp IN (2, 2.09) ORDER BY 5",
        "1,10,0,2.0,0,10,20,30.0,40.0,1.5,6.5,70,80,H,u0 1,10,0,2.09,1,11,21,31.0,41.0,0.5,7.5,71,81,H,u1");
    sqlite3_close(db);
}

static void spans_and_events(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db,
        "INSERT INTO thread(id, trace, tid, name, start_ts, samples, running, cpu_us) VALUES(K(1, 1), 1, 10, 'MainThread', S(1), 0, 0, 0), (K(2, 1), 2, 10, 'other', S(1), 0, 0, 0)");
    run(db,
        "INSERT INTO span VALUES(K(1, 1), S(2), NULL, 10, 'outer'), (K(1, 2), S(3), K(1, 1), 10, 'inner'), (K(1, 3), S(4), K(1, 9), 11, 'open')");
    run(db, "INSERT INTO span_end VALUES(K(1, 1), S(4.5), 3), (K(1, 2), S(3.25), 2)");
    run(db,
        "INSERT INTO event VALUES(K(1, 11), S(3.5), K(1, 2), 7, 10, 'e'), (K(2, 11), S(3.5), NULL, NULL, 20, 'bare')");
    run(db,
        "INSERT INTO event_value VALUES(K(1, 1), K(1, 11), 'n', 2), (K(1, 2), K(1, 11), NULL, 'text'), (K(1, 3), K(1, 11), 'up', 9e999), (K(1, 4), K(1, 11), 'down', -9e999)");
    says(
        db,
        "SELECT timestamp, name, duration, parent, thread, tid, failed, span_id = K(1, 1), parent_id = K(1, 1), trace_id, pid, rank FROM spans ORDER BY 1",
        "2.0,outer,2.5,,MainThread,10,1,1,,1,10,0 3.0,inner,0.25,outer,MainThread,10,0,0,1,1,10,0 4.0,open,,,,11,,0,0,1,10,0");
    says(
        db,
        "SELECT timestamp, name, step, data, span, tid, event_id = K(1, 11), span_id = K(1, 2), trace_id, pid, rank FROM events ORDER BY rank",
        "3.5,e,7,{\"n\":2,\"\":\"text\",\"up\":1e999,\"down\":-1e999},inner,10,1,1,1,10,0 3.5,bare,,{},,20,0,,2,20,1");
    says(
        db,
        "SELECT timestamp, event, name, value, step, event_id = K(1, 11), trace_id, pid, rank FROM event_values ORDER BY 3",
        "3.5,e,,text,7,1,1,10,0 3.5,e,down,-Inf,7,1,1,10,0 3.5,e,n,2,7,1,1,10,0 3.5,e,up,Inf,7,1,1,10,0");
    sqlite3_close(db);
}

/* The last value of each variable in a step, also where it is the smaller one, or is in another file; of several usual names the first one. */
static void variables_by_step(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db,
        "INSERT INTO variable VALUES(K(1, 1), S(2), 1, 0, 'f', 'loss', 5), (K(1, 2), S(3), 1, 1, 'f', 'loss', 4.5), (K(1, 3), S(2.5), 1, 0, 'f', 'total_loss', 9),"
        " (K(1, 4), S(2.5), 1, 0, 'f', 'lr', 'text'), (K(1, 5), S(4), NULL, 1, 'f', 'loss', 1), (K(2, 1), S(2), 1, 0, 'f', 'self.epoch', 3), (K(2, 2), S(2), 1, 0, 'f', 'top1', 1e999),"
        " (K(3, 1), S(9), 5, 0, 'f', 'epoch', 2), (K(4, 1), S(11), 5, 0, 'f', 'epoch', 1), (K(4, 2), S(12), 6, 0, 'f', 'learning_rate', 0.5)");
    says(
        db,
        "SELECT timestamp, step, func, name, value, number, at, trace_id, pid, rank FROM variables WHERE trace_id = 1 AND timestamp < 3 ORDER BY 1, 4",
        "2.0,1,f,loss,5,5,step,1,10,0 2.5,1,f,lr,text,,step,1,10,0 2.5,1,f,total_loss,9,9,step,1,10,0");
    says(
        db,
        "SELECT timestamp, value, at FROM variables WHERE trace_id = 1 AND timestamp >= 3 ORDER BY 1",
        "3.0,4.5,return 4.0,1,return");
    says(
        db,
        "SELECT timestamp, step, epoch, loss, accuracy, lr, data, trace_id, pid, rank FROM training_logs ORDER BY rank, step",
        "3.0,1,,4.5,,text,{\"loss\":4.5,\"lr\":\"text\",\"total_loss\":9},1,10,0 2.0,1,3,,Inf,,{\"self.epoch\":3,\"top1\":1e999},2,20,1"
        " 11.0,5,1,,,,{\"epoch\":1},4,30,2 12.0,6,,,,0.5,{\"learning_rate\":0.5},4,30,2");
    sqlite3_close(db);
}

/* What ended a process is told once, by itself or by its recorder, in whichever file. */
static void triggers_and_failures(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db,
        "UPDATE trace_file SET end_reason = 'killed', signal = iif(id = 1, 9, NULL), program = iif(id = 1, 1, program) WHERE id <> 3");
    run(db,
        "INSERT INTO thread(id, trace, tid, name, start_ts, samples, running, cpu_us) VALUES(K(1, 1), 1, 10, 'first', S(1), 0, 0, 0), (K(1, 2), 1, 10, 'second', S(2), 0, 0, 0),"
        " (K(1, 3), 1, 11, 'x', S(1), 0, 0, 0)");
    run(db,
        "INSERT INTO sample(id, ts, thread, cpu_us, count, flags) VALUES(K(1, 1), S(3), 1, 0, 0, 0), (K(1, 2), S(3), 1, 0, 0, 0), (K(1, 3), S(3), 3, 0, 0, 3), (K(1, 4), S(3), 2, 0, 1, 0),"
        " (K(2, 1), S(3), 1, 0, 0, 0)");
    run(db,
        "INSERT INTO trigger_event VALUES(K(1, 1), S(3.5), 'slow_step', 10, 4, S(3), 'took', 'text'), (K(1, 2), S(7.9), 'term', 10, NULL, NULL, '', NULL),"
        " (K(2, 1), S(8.5), 'term', 20, NULL, NULL, 'SIGTERM', NULL), (K(3, 1), S(9), 'fatal', 30, NULL, NULL, 'SIGSEGV at 0', NULL)");
    run(db,
        "UPDATE trace_file SET end_ts = S(9.5) WHERE id = 4"); /* its last file began with the fatal signal */
    says(
        db,
        "SELECT timestamp, rank, kind, detail, step, tid, thread, stacks, text, trigger_id = K(1, 1), trace_id, pid FROM triggers WHERE rank = 0 ORDER BY 1",
        "3.5,0,slow_step,took,4,10,second,2,text,1,1,10 7.9,0,term,,,10,second,0,,0,1,10 9.0,0,killed,by signal 9 (SIGKILL),,,,0,,,1,10");
    says(db, "SELECT rank, kind FROM triggers WHERE rank > 0 ORDER BY 1", "1,term 2,fatal");
    says(
        db,
        "SELECT nth, timestamp, rank, host, kind, detail, run, trace_id, pid FROM failures ORDER BY nth",
        "1,7.9,0,a,term,,r,1,10 2,8.5,1,b,term,SIGTERM,r,2,20 3,9.0,0,a,killed,by signal 9 (SIGKILL),r,1,10 4,9.0,2,c,fatal,SIGSEGV at 0,r,3,30");
    says(db, "SELECT id, signal FROM trace ORDER BY 1", "1,9 2,15 3, 4,11");
    sqlite3_close(db);
}

/* Two threads' stacks at one trigger; of two samples of one thread then the first counts, and a stack that could not be read is nothing. The files of one recording are one process. */
static void stacks_of_a_trigger(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db,
        "INSERT INTO thread(id, trace, tid, name, start_ts, samples, running, cpu_us) VALUES(K(3, 1), 3, 30, 'main', S(1), 0, 0, 0), (K(4, 2), 4, 31, 'loader', S(1), 0, 0, 0),"
        " (K(1, 1), 1, 30, 'stranger', S(1), 0, 0, 0), (K(4, 3), 4, 32, 'unread', S(1), 0, 0, 0)");
    run(db,
        "INSERT INTO frame VALUES(1, 1, 11, 'a.py', 0, 'inner', NULL), (2, 2, 12, NULL, 1, 'outer', 'lib.so')");
    run(db, "INSERT INTO part VALUES(1, '[1,2]'), (2, '[2]')");
    run(db,
        "INSERT INTO stack VALUES(1, 2, 1, 0, 'inner', 'a.py', 11, 0, '[1]'), (2, 1, 2, NULL, 'outer', 'lib.so', 12, 1, '[2]')");
    run(db,
        "INSERT INTO sample(id, ts, thread, stack, cpu_us, count, flags) VALUES(K(3, 0), S(8), 1, 1, 0, 0, 3), (K(3, 1), S(9), 1, 1, 0, 0, 3), (K(3, 2), S(9), 1, 2, 0, 0, 0), (K(4, 1), S(9), 2, 2, 0, 0, 0),"
        " (K(4, 2), S(9), 2, 1, 0, 1, 0), (K(4, 3), S(9), 3, NULL, 0, 0, 0), (K(1, 1), S(9), 1, 1, 0, 0, 0)");
    run(db, "INSERT INTO trigger_event VALUES(K(4, 5), S(9.5), 'hang', 30, NULL, S(9), '', NULL)");
    says(
        db,
        "SELECT kind, rank, tid, thread, is_cause, depth, func, file, lineno, frame_type, state, gil, stack_id, trace_id, pid FROM trigger_stacks ORDER BY tid, depth",
        "hang,2,30,main,1,0,inner,a.py,11,Python,running,1,1,4,30 hang,2,30,main,1,1,outer,lib.so,12,Native,running,1,1,4,30"
        " hang,2,31,loader,0,0,outer,lib.so,12,Native,idle,0,2,4,30 hang,2,32,unread,0,,,,,,idle,0,,4,30");
    says(db, "SELECT stacks FROM triggers WHERE kind = 'hang'", "3");
    sqlite3_close(db);
}

/* Stacks of 18 frames are stored in parts, the innermost of which is the short one. A recursion is counted once. A change of the period holds from its moment on. */
static void samples_and_stacks(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db, "UPDATE trace_file SET periods = 2 WHERE id = 1");
    run(db, "INSERT INTO period VALUES(1, 0, 10000000), (1, S(5), 20000000), (2, 0, 70000000)");
    run(db,
        "INSERT INTO thread(id, trace, tid, name, samples, running, cpu_us) VALUES(K(1, 1), 1, 10, 'main', 7, 3, 0), (K(2, 1), 2, 20, 'main', 3, 0, 0)");
    run(db,
        "INSERT INTO function(id, type, name, file, firstline, module) VALUES(1, 0, 'py', 'a.py', 10, NULL), (2, 1, 'c', NULL, NULL, 'lib.so')");
    run(db,
        "INSERT INTO frame VALUES(1, 1, 11, 'a.py', 0, 'py', NULL), (2, 2, NULL, NULL, 1, 'c', 'lib.so')");
    run(db,
        "INSERT INTO part VALUES(1, '[2,1]'), (2, '[-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-2]')");
    run(db, "INSERT INTO stack VALUES(1, 18, 2, 1, 'c', 'lib.so', NULL, 1, '[1,2]')");
    run(db,
        "INSERT INTO sample VALUES(K(1, 1), S(4.5), 1, 1, 9000, 2, 3), (K(1, 2), S(5), 1, 1, 1000, 3, 4), (K(1, 3), S(6), 1, NULL, 0, 2, 1), (K(2, 1), S(4.5), 1, 1, 0, 3, 0)");
    says(
        db,
        "SELECT timestamp, trace_id, pid, rank, tid, thread, func, file, lineno, frame_type, state, gil, cpu_seconds, count, seconds, stack_id, sample_id & 255, outside FROM samples ORDER BY 2, 1",
        "4.5,1,10,0,10,main,c,lib.so,,Native,running,1,0.009,2,0.02,1,1,0 5.0,1,10,0,10,main,c,lib.so,,Native,idle,0,0.001,3,0.06,1,2,1"
        " 6.0,1,10,0,10,main,,,,,running,0,0.0,2,0.04,,3,0 4.5,2,20,1,20,main,c,lib.so,,Native,idle,0,0.0,3,0.03,1,1,0");
    says(
        db,
        "SELECT depth, frame, first, leaf FROM stack_frame WHERE depth < 3 OR depth > 16 ORDER BY 1",
        "0,2,1,0 1,1,1,1 2,1,0,0 17,2,0,0");
    says(db, "SELECT count(*), min(depth), max(depth), count(DISTINCT depth) FROM stack_frame",
         "18,0,17,18");
    says(
        db,
        "SELECT trace_id, rank, timestamp, depth, func, file, lineno, frame_type, module, count, seconds, state, gil, tid, thread FROM backtrace WHERE depth IN (0, 1, 2) ORDER BY 1, 3, 4",
        "1,0,4.5,0,c,lib.so,,Native,lib.so,2,0.02,running,1,10,main 1,0,4.5,1,py,a.py,11,Python,,2,0.02,running,1,10,main 1,0,4.5,2,py,a.py,11,Python,,0,0.0,running,1,10,main"
        " 1,0,5.0,0,c,lib.so,,Native,lib.so,3,0.06,idle,0,10,main 1,0,5.0,1,py,a.py,11,Python,,3,0.06,idle,0,10,main 1,0,5.0,2,py,a.py,11,Python,,0,0.0,idle,0,10,main"
        " 2,1,4.5,0,c,lib.so,,Native,lib.so,3,0.03,idle,0,20,main 2,1,4.5,1,py,a.py,11,Python,,3,0.03,idle,0,20,main 2,1,4.5,2,py,a.py,11,Python,,0,0.0,idle,0,20,main");
    says(db, "SELECT func, sum(seconds), count(*) FROM backtrace GROUP BY 1 ORDER BY 1",
         "c,0.11,6 py,0.11,48");
    run(db,
        "INSERT INTO function_total VALUES(0, 1, 2, S(2), 1, S(1), 500000, 8, S(8), S(3), 4, S(4), S(1.5)), (0, 2, 5, S(5), 1, S(1), 0, 5, S(5), S(1), 0, 0, 0),"
        " (1, 2, 9, S(9), 9, S(9), 0, 9, S(9), S(9), 0, 0, 0)");
    says(
        db,
        "SELECT func, file, self, total, seconds, total_seconds, share, total_share, running, cpu_seconds, on_cpu, waiting, round(cpu_share, 3), python_self, python_seconds, python_on_cpu FROM hot_functions",
        "c,lib.so,5,5,5.0,5.0,0.5,0.5,1,0.0,1.0,4.0,0.333,,, py,a.py,2,8,2.0,8.0,0.2,0.8,1,0.5,1.0,1.0,0.333,4,4.0,1.5");
    sqlite3_close(db);
}

/* Each view of what processes said: the last word counts, whatever file it is in, and `since` when it has held. */
static void facts(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db,
        "INSERT INTO fact VALUES(K(1, 1), S(1), 'env', 'A', 'old'), (K(1, 2), S(2), 'env', 'A', 'new'), (K(1, 3), S(1), 'system', 'kernel', '6'), (K(1, 4), S(1), 'system', 'cpus', '8'),"
        " (K(1, 5), S(1), 'limit', 'cpu.max', '2'), (K(1, 6), S(3), 'version', 'torch', '2.6'), (K(1, 7), S(8), 'end', 'exit_code', '3'), (K(1, 8), S(8), 'end', 'cause', 'why'),"
        " (K(3, 1), S(1), 'env', 'B', 'x'), (K(3, 2), S(2), 'env', 'B', 'y'), (K(3, 3), S(3), 'env', 'B', 'y'), (K(4, 1), S(10), 'env', 'B', 'y'), (K(4, 2), S(10), 'env', 'C', 'only')");
    says(db, "SELECT trace_id, rank, key, value, pid, host, since FROM environment ORDER BY 1, 3",
         "1,0,A,new,10,a,2.0 3,2,B,y,30,c,2.0 3,2,C,only,30,c,10.0");
    says(
        db, "SELECT trace_id, rank, name, version, pid, host, since FROM versions ORDER BY 1, 3",
        "1,0,agent,0.1,10,a,1.0 1,0,kernel,6,10,a,1.0 1,0,python,3.11,10,a,1.0 1,0,torch,2.6,10,a,3.0 2,1,agent,0.1,20,b,1.5 2,1,python,3.11,20,b,1.5"
        " 3,2,agent,0.1,30,c,1.0 3,2,python,3.11,30,c,1.0");
    says(db, "SELECT trace_id, rank, source, key, value, pid, host, since FROM machine ORDER BY 4",
         "1,0,limit,cpu.max,2,10,a,1.0 1,0,system,cpus,8,10,a,1.0 1,0,system,kernel,6,10,a,1.0");
    says(
        db,
        "SELECT id, end_cause, exit_code, program, duration, period, children_lost FROM trace ORDER BY 1",
        "1,why,3,1,8.0,0.01,0 2,,,2,7.5,0.01,0 3,,,3,9.0,0.01,0 4,,,3,10.0,0.01,0");
    says(db, "SELECT run, traces, processes, ranks, hosts, started, ended, command, lost FROM runs",
         "r,4,3,3,3,1.0,20.0,train 1,10");
    sqlite3_close(db);
}

static void what_was_lost_and_said(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db,
        "INSERT INTO child VALUES(K(1, 1), S(2), 3, 2, 1, 50, S(0.5)), (K(2, 1), S(2), 1, 0, 0, 2, S(0.25))");
    run(db,
        "INSERT INTO lost VALUES(1, 'ring_full', 4), (1, 'unresolved_stack', 1), (1, 'cut_off_bytes', 9), (1, 'missing_blocks', 1), (1, 'none', 0)");
    run(db,
        "INSERT INTO note VALUES(K(1, 1), S(1), 0, 'p', 'a'), (K(1, 2), S(2), 1, 'p', 'b'), (K(2, 1), S(3), 2, 'q', 'c'), (K(2, 2), S(4), 7, 'q', 'd')");
    run(db, "INSERT INTO setting VALUES(K(2, 1), S(1), 'rate', '100')");
    run(db,
        "INSERT INTO module VALUES(K(2, 1), S(1), S(3), '/lib/x.so', 'ab', 4096, 8192, 16, 1), (K(1, 1), S(2), NULL, '/lib/y.so', '', 1, 2, 3, NULL)");
    says(db,
         "SELECT timestamp, trace_id, ended, failed, gone, ticks, seconds FROM children ORDER BY 2",
         "2.0,1,3,2,1,50,0.5 2.0,2,1,0,0,2,0.25");
    says(db, "SELECT id, children_lost FROM trace WHERE id < 3 ORDER BY 1", "1,6 2,1");
    says(
        db, "SELECT trace_id, reason, count, unit FROM loss ORDER BY reason",
        "1,cut_off_bytes,9,bytes 1,missing_blocks,1,blocks 1,ring_full,4,records 1,unresolved_stack,1,samples");
    says(db, "SELECT timestamp, trace_id, level, part, text FROM notes ORDER BY 1",
         "1.0,1,info,p,a 2.0,1,warning,p,b 3.0,2,error,q,c 4.0,2,7,q,d");
    says(db, "SELECT timestamp, trace_id, key, value FROM config", "1.0,2,rate,100");
    says(
        db,
        "SELECT timestamp, unloaded, trace_id, pid, path, build_id, start, \"end\", bias, symbols FROM modules_loaded ORDER BY 1",
        "1.0,3.0,2,20,/lib/x.so,ab,4096,8192,16,1 2.0,,1,10,/lib/y.so,,1,2,3,");
    sqlite3_close(db);
}

/* The launcher is the parent of a worker on its machine; what a process said of itself goes first. */
static void roles_of_processes(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db, "UPDATE trace_file SET role = 'worker', ppid = 20, host = 'b' WHERE id = 1");
    run(db, "UPDATE trace_file SET ppid = 10, host = 'b' WHERE id = 3");
    run(db,
        "UPDATE trace_file SET ppid = 20, pid = 31 WHERE id = 4"); /* on another machine than process 20 */
    run(db,
        "INSERT INTO process_info(id, ts, pid, start_ts) VALUES(K(1, 1), S(1), 10, S(1)), (K(2, 1), S(1), 20, S(1)), (K(3, 1), S(1), 30, S(1)), (K(4, 1), S(1), 31, S(1))");
    says(db, "SELECT trace_id, role FROM process ORDER BY 1", "1,worker 2,launcher 3,child 4,main");
    sqlite3_close(db);
}

/* A thread of a recording in two files is one row, unless another thread has got its number since. */
static void threads(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db,
        "INSERT INTO thread VALUES(K(1, 1), 1, 10, 'm', 77, S(1), NULL, 5, 2, 1500000, 'c1'), (K(3, 1), 3, 30, 'old name', 78, S(1), NULL, 10, 4, 1000000, 'c3'),"
        " (K(4, 1), 4, 30, 'name', 78, S(2), S(19), 20, 5, 2000000, 'c4'), (K(3, 2), 3, 31, 'gone', 79, S(2), S(3), 1, 1, 0, 'g'), (K(4, 2), 4, 31, 'next', 80, S(11), NULL, 2, 2, 0, 'n')");
    says(
        db,
        "SELECT trace_id, pid, rank, tid, name, ident, start, \"end\", samples, running, cpu_seconds, thread_id & 255, comm FROM threads ORDER BY 1, 4, 7",
        "1,10,0,10,m,77,1.0,,5,2,1.5,1,c1 3,30,2,30,name,78,1.0,19.0,30,9,3.0,1,c4 3,30,2,31,gone,79,2.0,3.0,1,1,0.0,2,g 3,30,2,31,next,80,11.0,,2,2,0.0,2,n");
    sqlite3_close(db);
}

/* Two groups over ranks 0 and 1: group w, and one without a name whose list of ranks is not known. */
static const char calls[] =
    "INSERT INTO process_group VALUES(1, 7, 'w', 'gloo', 0, 2, 5, NULL), (2, 7, 'w', 'gloo', 1, 2, 5, NULL);"
    "INSERT INTO group_rank VALUES(5, 0, 0), (5, 1, 1), (6, 0, 4), (6, 1, 9);"
    "INSERT INTO comm VALUES(K(1, 1), S(2), 10, 7, 1, 'all_reduce', 100, 'f32', S(1), S(0.5), NULL, NULL, 2), (K(2, 1), S(2.5), 20, 7, 1, 'all_reduce', 100, 'f32', S(0.25), 0, NULL, NULL, 0),"
    " (K(1, 2), S(4), 10, 7, 2, 'barrier', 0, 'f32', S(1), 0, NULL, NULL, 0), (K(2, 2), S(4.5), 20, 7, 2, 'barrier', 0, 'f32', S(0.5), 0, NULL, NULL, 0),"
    " (K(1, 3), S(6), 10, 7, 3, 'all_reduce', 50, 'f32', S(3), 0, NULL, NULL, 1), (K(1, 4), S(7), 10, 7, 4, 'send', 10, 'f32', S(1), 0, NULL, 1, 0),"
    " (K(2, 4), S(7), 20, 7, 4, 'recv', 10, 'f32', S(1), 0, 0, NULL, 8), (K(1, 5), S(8), 10, 7, 5, 'gather', 10, 'f32', S(1), 0, NULL, 1, 6), (K(4, 1), S(11), 30, 3, 1, 'reduce', 8, 'i64', S(1), 0, 3, 0, 5)";

static void communication(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db, calls);
    says(
        db,
        "SELECT timestamp, rank, \"group\", seq, op, bytes, exit, duration, latency_ms, src_rank, dst_rank, host_ms, complete, completion, waited FROM comm_metrics ORDER BY 1, 2",
        "2.0,0,w,1,all_reduce,100,3.0,1.0,1000.0,,,500.0,1,call,1.0 2.5,1,w,1,all_reduce,100,2.75,0.25,250.0,,,0.0,1,seen,0.25 4.0,0,w,2,barrier,0,5.0,1.0,1000.0,,,0.0,1,seen,1.0"
        " 4.5,1,w,2,barrier,0,5.0,0.5,500.0,,,0.0,1,seen,0.5 6.0,0,w,3,all_reduce,50,,,,,,0.0,0,none,3.0 7.0,0,w,4,send,10,8.0,1.0,1000.0,0,1,0.0,1,seen,1.0"
        " 7.0,1,w,4,recv,10,8.0,1.0,1000.0,0,1,0.0,1,failed,1.0 8.0,0,w,5,gather,10,9.0,1.0,1000.0,,1,0.0,1,raised,1.0 11.0,2,group 3,1,reduce,8,,,,3,0,0.0,0,none,1.0");
    says(
        db,
        "SELECT enter = timestamp, backend, group_size, dtype, trace_id, pid, tid, run, clock_group, attempt FROM comm_metrics WHERE timestamp IN (2, 11)",
        "1,gloo,2,f32,1,10,10,r,1,0 1,,,i64,4,30,30,r,1,0");
    run(db,
        "UPDATE trace_file SET rank = NULL; UPDATE process_group SET list = 6"); /* then the group's list tells the rank, or else the place in the group */
    says(
        db,
        "SELECT rank, src_rank, dst_rank FROM comm_metrics WHERE op IN ('send', 'recv') ORDER BY op",
        "9,4,1 4,0,9");
    sqlite3_close(db);
}

/* Who came last and for how long the others waited, and who is missing; barriers, messages and what raised are left out where the views say so. */
static void collectives(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db, calls);
    says(
        db,
        "SELECT \"group\", seq, op, arrived, size, complete, first_enter, last_enter, exit, skew_ms, last_rank, shortest_rank, shortest_ms, longest_ms, bytes, dtype, missing, run, attempt"
        " FROM collectives ORDER BY seq, op",
        "w,1,all_reduce,2,2,2,2.0,2.5,3.0,500.0,1,1,250.0,1000.0,200,f32,,r,0 group 3,1,reduce,1,,0,11.0,11.0,,0.0,2,,,,8,i64,,r,0 w,2,barrier,2,2,2,4.0,4.5,5.0,500.0,1,1,500.0,1000.0,0,f32,,r,0"
        " w,3,all_reduce,1,2,0,6.0,6.0,,0.0,0,,,,50,f32,1,r,0");
    says(
        db,
        "SELECT rank, collectives, came_last, share, was_shortest, imposed_seconds, waited_seconds, run, others_waited FROM stragglers",
        "1,2,2,1.0,2,1.0,0.0,r,0.5 0,2,0,0.0,0,,1.0,r,0");
    run(db,
        "UPDATE trace_file SET clock_group = id"); /* clocks that cannot be compared tell nothing of it */
    says(
        db,
        "SELECT seq, skew_ms, last_rank, shortest_rank FROM collectives WHERE arrived = 2 ORDER BY 1",
        "1,,,1 2,,,1");
    says(db, "SELECT count(*) FROM stragglers", "0");
    sqlite3_close(db);
}

/* Collectives in flight together: the time in which several wait for one rank counts once, and only as long as clocks and durations agree. */
static void waits_that_overlap(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db,
        "INSERT INTO process_group VALUES(1, 7, 'w', 'gloo', 0, 2, 5, NULL), (2, 7, 'w', 'gloo', 1, 2, 5, NULL)");
    run(db,
        "INSERT INTO comm VALUES(K(1, 1), S(2), 10, 7, 1, 'a', 0, '', S(3), 0, NULL, NULL, 0), (K(2, 1), S(4), 20, 7, 1, 'a', 0, '', S(1), 0, NULL, NULL, 0)," /* 2 to 4 */
        " (K(1, 2), S(3), 10, 7, 2, 'a', 0, '', S(3), 0, NULL, NULL, 0), (K(2, 2), S(5), 20, 7, 2, 'a', 0, '', S(1), 0, NULL, NULL, 0)," /* 3 to 5 */
        " (K(1, 3), S(7), 10, 7, 3, 'a', 0, '', S(3), 0, NULL, NULL, 0), (K(2, 3), S(8), 20, 7, 3, 'a', 0, '', S(2.5), 0, NULL, NULL, 0)," /* 0.5 by the durations */
        " (K(1, 4), S(9), 10, 7, 4, 'a', 0, '', S(1), 0, NULL, NULL, 0), (K(2, 4), S(9.5), 20, 7, 4, 'a', 0, '', S(2), 0, NULL, NULL, 0)"); /* the last was not the shortest */
    says(
        db,
        "SELECT rank, came_last, was_shortest, imposed_seconds, waited_seconds, others_waited FROM stragglers",
        "1,4,3,5.5,0.0,3.5 0,0,1,,5.5,0");
    sqlite3_close(db);
}

static void dimensions(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db,
        "INSERT INTO process_group VALUES(1, 1, 'a', 'gloo', 1, 2, 5, 'mesh_tp'), (1, 2, 'b', 'gloo', 0, 4, 6, 'mesh_default'), (1, 3, 'c', 'gloo', 3, 4, 7, 'DATA_PARALLEL_GROUP'),"
        " (1, 4, 'd', 'gloo', NULL, 4, 7, 'mesh_x'), (1, 5, 'e', 'gloo', 0, 2, 7, 'TENSOR_AND_DATA_PARALLEL_GROUP'), (1, 6, 'f', 'gloo', 0, 2, 7, 'meshwork'),"
        " (3, 1, 'a', 'gloo', 0, 8, 9, 'mesh_pp'), (4, 1, 'a', 'gloo', 0, 8, 9, 'mesh_pp')");
    run(db,
        "INSERT INTO event(id, ts, name) VALUES(K(2, 1), S(1), 'probing.role'), (K(2, 2), S(2), 'probing.role'), (K(2, 3), S(3), 'other')");
    run(db,
        "INSERT INTO event_value VALUES(K(2, 1), K(2, 1), 'role', 'actor'), (K(2, 2), K(2, 1), 'tp', 5), (K(2, 3), K(2, 2), 'dp', '2/8'), (K(2, 4), K(2, 2), 'ep', 3), (K(2, 5), K(2, 3), 'role', 'none')");
    says(
        db,
        "SELECT trace_id, rank, role, dimension, \"index\", size, source, host, pid FROM roles ORDER BY 1, 4",
        "1,0,,dp,3,4,group,a,10 1,0,,tensor_and_data,0,2,group,a,10 1,0,,tp,1,2,group,a,10 2,1,actor,dp,2,8,set_role,b,20 2,1,actor,ep,3,,set_role,b,20 3,2,,pp,0,8,group,c,30");
    sqlite3_close(db);
}

/* Steps end in another file than they began in; the parts of a step and `other` are its duration. */
static void steps_and_modules(void **state) {
    sqlite3 *db = made(0);

    (void)state;
    run(db,
        "INSERT INTO thread(id, trace, tid, name, samples, running, cpu_us) VALUES(K(1, 1), 1, 10, 'main', 0, 0, 0)");
    run(db,
        "INSERT INTO torch_step VALUES(K(1, 1), S(2), S(4), 5, 0, S(1), S(0.5), S(0.25), S(0.125), 1, 2, 3, S(6)), (K(1, 2), S(6), NULL, 6, 2, 0, 0, 0, 0, 0, 0, 0, NULL), (K(1, 3), S(7), S(1), 6, 3, 0, 0, 0, 0, 0, 0, 0, S(8)),"
        " (K(1, 4), S(8), S(1), 7, 1, 0, 0, 0, 0, 0, 0, 0, S(9)), (K(4, 1), S(9), S(2), 3, 0, 0, 0, 0, 0, 0, 0, 0, S(11))");
    run(db,
        "INSERT INTO comm(id, ts, pg, seq, op, duration, host, flags) VALUES(K(1, 1), S(2), 1, 1, 'a', S(0.5), 0, 0), (K(1, 2), S(5.5), 1, 2, 'a', S(0.25), 0, 0), (K(1, 3), S(6), 1, 3, 'a', S(8), 0, 1),"
        " (K(2, 1), S(3), 1, 1, 'a', S(16), 0, 0), (K(3, 1), S(9.5), 1, 1, 'a', S(0.75), 0, 0), (K(4, 1), S(10.5), 1, 2, 'a', S(0.125), 0, 0), (K(4, 2), S(11), 1, 2, 'a', S(32), 0, 0)");
    run(db,
        "INSERT INTO torch_cuda VALUES(K(1, 0), 5, 5, S(6), 1, S(3)), (K(1, 1), 4, 0, S(2.25), 1, S(0.5))");
    run(db,
        "INSERT INTO torch_memory VALUES(K(1, 0), 5, 5, S(6), 1, 1000000, 2000000, 3000000), (K(1, 1), 4, 0, S(2.25), 1, 4000000, 5000000, 6000000), (K(1, 0), 7, 5, S(9), 2, 7000000, 8000000, 9000000)");
    says(
        db,
        "SELECT trace_id, step, timestamp, duration, forward, backward, optimizer, data, communication, other, forwards, backwards, optimizers, source, complete, \"end\" FROM steps ORDER BY 1, 3",
        "1,5,2.0,4.0,1.0,0.5,0.25,0.125,0.75,2.125,1,2,3,optimizer,1,6.0 1,6,6.0,,0.0,0.0,0.0,0.0,0.0,,0,0,0,mark,0, 1,,7.0,1.0,0.0,0.0,0.0,0.0,0.0,1.0,0,0,0,evaluation,1,8.0"
        " 1,7,8.0,1.0,0.0,0.0,0.0,0.0,0.0,1.0,0,0,0,root,1,9.0 4,3,9.0,2.0,0.0,0.0,0.0,0.0,0.875,2.0,0,0,0,optimizer,1,11.0");
    says(
        db,
        "SELECT step, rank, pid, cuda_duration, allocated, max_allocated, cached, device FROM steps WHERE step IN (5, 6, 7) ORDER BY 1",
        "5,0,10,3.0,1.0,2.0,3.0,1 6,0,10,,,,, 7,0,10,,7.0,8.0,9.0,2");
    run(db,
        "INSERT INTO torch_module VALUES(K(1, 16), 'net forward', 'net', 'Net'), (K(1, 17), 'fc forward', 'fc', 'Linear'), (K(1, 18), 'fc backward', 'fc', 'Linear'), (K(1, 3), 'optimizer step', 'optimizer step', NULL)");
    run(db,
        "INSERT INTO torch_call VALUES(K(1, 21), S(2), S(2), 1, 0, 16, 3, NULL, 0, 0, 5, 0, NULL), (K(1, 23), S(2.25), S(0.5), 1, 0, 17, 4, 2, 1, 2, 5, 1, NULL), (K(1, 24), S(4), S(0.25), 1, 1, 18, 4, NULL, 0, 1, 5, 2, 99),"
        " (K(1, 25), S(7), NULL, 1, 0, 17, 5, NULL, 0, 4, NULL, 0, NULL), (K(1, 26), S(5), S(1), 1, 3, 3, NULL, NULL, 0, 0, 5, 3, NULL)");
    says(
        db,
        "SELECT timestamp, step, seq, module, stage, duration, parent, depth, thread, type, recomputed, failed, call, tid, row_id & 255, parent_id & 255, call_tid, phase FROM torch_trace ORDER BY 1",
        "2.0,5,0,net,forward,2.0,,0,main,Net,0,0,3,10,21,,10,step 2.25,5,1,fc,forward,0.5,net,1,main,Linear,1,0,4,10,23,21,10,step 4.0,5,2,fc,backward,0.25,,0,main,Linear,0,1,4,10,24,,99,step"
        " 7.0,,0,fc,forward,,,0,main,Linear,0,0,5,10,25,,10,evaluation");
    says(
        db,
        "SELECT module, rank, pid, trace_id, allocated, max_allocated, cached, cuda_duration, device FROM torch_trace WHERE call = 4 ORDER BY stage",
        "fc,0,10,1,,,,, fc,0,10,1,4.0,5.0,6.0,0.5,1");
    run(db,
        "INSERT INTO torch_module_total VALUES(1, K(1, 17), 0, 3, 2, S(3), S(2), S(2.5), 2, S(1)), (1, K(1, 18), 1, 1, 0, 0, 0, S(9), 0, 0), (3, K(3, 17), 0, 2, 2, S(2), S(1), S(1.25), 0, 0), (4, K(4, 20), 0, 3, 2, S(6), S(4), S(5), 1, S(2))");
    run(db,
        "INSERT INTO torch_module VALUES(K(3, 17), 'fc forward', 'fc', 'Linear'), (K(4, 20), 'fc forward', 'fc', 'Linear')");
    says(
        db,
        "SELECT trace_id, rank, pid, module, type, stage, calls, seconds, self_seconds, mean, longest, cuda_calls, cuda_mean FROM torch_modules ORDER BY 1, 6 DESC",
        "1,0,10,fc,Linear,forward,3,3.0,2.0,1.5,2.5,2,0.5 1,0,10,fc,Linear,backward,1,,,,,0, 3,2,30,fc,Linear,forward,5,8.0,5.0,2.0,5.0,1,2.0");
    run(db,
        "INSERT INTO span VALUES(K(1, 1), S(3), NULL, 10, 'sp'), (K(1, 2), S(3), NULL, 10, 'open'); INSERT INTO span_end VALUES(K(1, 1), S(3.5), 0)");
    says(
        db,
        "SELECT timestamp, operation_name, duration_ms, step, rank, trace_id, pid FROM profiling_data WHERE trace_id = 1 ORDER BY 1, 2",
        "2.0,a,500.0,,0,1,10 2.0,net forward,2000.0,5,0,1,10 2.25,fc forward,500.0,5,0,1,10 3.0,sp,500.0,,0,1,10 4.0,fc backward,250.0,5,0,1,10 5.0,optimizer step,1000.0,5,0,1,10 5.5,a,250.0,,0,1,10");
    says(db, "SELECT count(*) FROM memory_allocations", "0");
    sqlite3_close(db);
}

/* Of the same ranks started again: a process that begins when all of the rank's have ended is the next attempt. Its collectives are counted anew. */
static void attempts(void **state) {
    sqlite3 *db = made(1);

    (void)state;
    run(db,
        "UPDATE trace_file SET program = NULL, process_ts = start_ts, clock_group = 1; UPDATE trace_file SET rank = 0, host = 'a', boot_id = 'x'");
    run(db,
        "UPDATE trace_file SET start_ts = S(1), end_ts = S(5), process_ts = S(1), pid = 1 WHERE id = 1");
    run(db,
        "UPDATE trace_file SET start_ts = S(4), end_ts = S(6), process_ts = S(4), pid = 2 WHERE id = 2"); /* with the first at one time */
    run(db,
        "UPDATE trace_file SET start_ts = S(6), end_ts = S(7), process_ts = S(6), pid = 3 WHERE id = 3"); /* begins as that one ends: not after it */
    run(db,
        "UPDATE trace_file SET start_ts = S(8), end_ts = S(9), process_ts = S(8), pid = 4 WHERE id = 4");
    assert_int_equal(tables_finish(db, 0, 0), SQLITE_OK);
    says(db, "SELECT id, attempt FROM trace_file ORDER BY 1", "1,0 2,0 3,0 4,1");
    sqlite3_close(db);
}

/* Runs of two nodes are one when they had a group in common at the same time and have different ranks of it; one that came later has a run of its own. */
static void runs_that_met(void **state) {
    sqlite3 *db = made(1);

    (void)state;
    run(db, "UPDATE trace_file SET program = NULL, process_ts = start_ts, run = 'run ' || id");
    run(db,
        "UPDATE trace_file SET start_ts = S(1), end_ts = S(5), rank = id - 1 WHERE id < 3; UPDATE trace_file SET start_ts = S(6), end_ts = S(9), rank = id - 3 WHERE id > 2");
    run(db,
        "INSERT INTO process_group SELECT id, 1, 'g', 'gloo', rank, 2, 5, NULL FROM trace_file");
    assert_int_equal(tables_finish(db, 0, 0), SQLITE_OK);
    says(db, "SELECT id, run FROM trace_file ORDER BY 1", "1,run 1 2,run 1 3,run 3 4,run 3");
    says(db, "SELECT run, traces, ranks FROM runs ORDER BY 1", "run 1,2,2 run 3,2,2");
    sqlite3_close(db);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processor),
        cmocka_unit_test(input_and_output),
        cmocka_unit_test(network),
        cmocka_unit_test(memory_and_gpu),
        cmocka_unit_test(spans_and_events),
        cmocka_unit_test(variables_by_step),
        cmocka_unit_test(triggers_and_failures),
        cmocka_unit_test(stacks_of_a_trigger),
        cmocka_unit_test(samples_and_stacks),
        cmocka_unit_test(facts),
        cmocka_unit_test(what_was_lost_and_said),
        cmocka_unit_test(roles_of_processes),
        cmocka_unit_test(threads),
        cmocka_unit_test(communication),
        cmocka_unit_test(collectives),
        cmocka_unit_test(waits_that_overlap),
        cmocka_unit_test(dimensions),
        cmocka_unit_test(steps_and_modules),
        cmocka_unit_test(attempts),
        cmocka_unit_test(runs_that_met),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
