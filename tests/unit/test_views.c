/* SPDX-License-Identifier: Apache-2.0 */
/* converter/schema: what the views of processes, samples, metrics and what the program said make of rows that are known: ties, NULLs, first rows, several files. */
#include "views.h"

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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
