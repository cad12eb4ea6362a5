/* SPDX-License-Identifier: Apache-2.0 */
/* converter/schema: what the views of collectives, hangs, steps and modules make of rows that are known, and which processes belong to one run and one attempt. */
#include "views.h"

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
        "INSERT INTO event(id, ts, name) VALUES(K(1, 1), S(1), 'probing.role'), (K(2, 1), S(1), 'probing.role'), (K(2, 2), S(2), 'probing.role'), (K(2, 3), S(3), 'other')");
    run(db,
        "INSERT INTO event_value VALUES(K(1, 1), K(1, 1), 'role', 'learner'), (K(2, 1), K(2, 1), 'role', 'actor'), (K(2, 2), K(2, 1), 'tp', 5), (K(2, 3), K(2, 2), 'dp', '2/8'), (K(2, 4), K(2, 2), 'ep', 3), (K(2, 5), K(2, 3), 'role', 'none')");
    says(
        db,
        "SELECT trace_id, rank, role, dimension, \"index\", size, source, host, pid FROM roles ORDER BY 1, 4",
        "1,0,learner,,,,set_role,a,10 1,0,learner,dp,3,4,group,a,10 1,0,learner,tensor_and_data,0,2,group,a,10 1,0,learner,tp,1,2,group,a,10 2,1,actor,dp,2,8,set_role,b,20 2,1,actor,ep,3,,set_role,b,20 3,2,,pp,0,8,group,c,30");
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
        " (K(1, 25), S(7), NULL, 1, 0, 17, 5, NULL, 0, 4, NULL, 0, NULL), (K(1, 26), S(5), S(1), 1, 3, 3, NULL, NULL, 0, 0, 5, 3, NULL), (K(1, 27), S(5), S(1), 1, 3, 3, NULL, NULL, 0, 0, 5, 3, NULL)");
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
        "2.0,a,500.0,,0,1,10 2.0,net forward,2000.0,5,0,1,10 2.25,fc forward,500.0,5,0,1,10 3.0,sp,500.0,,0,1,10 4.0,fc backward,250.0,5,0,1,10 5.0,optimizer step,1000.0,5,0,1,10 5.0,optimizer step,1000.0,5,0,1,10 5.5,a,250.0,,0,1,10");
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

/* Three ranks in group w that came to its first call. From 5 s on ranks 0 and 1 wait in the second one, to the end at 20 s, unless `rows` change that. */
static void hangs(const char *rows, const char *truth) {
    sqlite3 *db = made(1);

    run(db,
        "DELETE FROM trace_file WHERE id = 4; UPDATE trace_file SET program = NULL, end_ts = S(20), end_reason = 'killed', world_size = 3");
    run(db, "INSERT INTO group_rank VALUES(5, 0, 0), (5, 1, 1), (5, 2, 2), (6, 0, 1), (6, 1, 2)");
    run(db,
        "INSERT INTO process_group SELECT id, 7, 'w', 'gloo', id - 1, 3, 5, NULL FROM trace_file");
    run(db,
        "INSERT INTO comm SELECT K(id, 1), S(2), pid, 7, 1, 'all_reduce', 100, 'f32', S(0.5), 0, NULL, NULL, 0 FROM trace_file");
    run(db,
        "INSERT INTO comm SELECT K(id, 2), S(4 + id), pid, 7, 2, 'all_reduce', 100, 'f32', S(16 - id), 0, NULL, NULL, 1 FROM trace_file WHERE id < 3");
    run(db, rows);
    assert_int_equal(tables_finish(db, 0, 0), SQLITE_OK);
    says(
        db,
        "SELECT rank, state, cause, \"group\", seq, op, since, waited, waiting, '(' || waiters || ')', size, level, trace_id, does FROM hangs",
        truth);
    sqlite3_close(db);
}

static void who_keeps_others_waiting(void **state) {
    (void)state;
    hangs("DELETE FROM comm WHERE flags & 1", "");
    hangs("", "2,never came,1,w,2,all_reduce,5.0,15.0,2,(0,1),3,0,3,?");
    /* where it is: the innermost function of its main thread's last sample, and who called it in the user's code */
    hangs(
        "INSERT INTO thread(id, trace, tid, samples, running, cpu_us) VALUES(K(3, 1), 3, 30, 0, 0, 0), (K(3, 2), 3, 31, 0, 0, 0);"
        "INSERT INTO frame VALUES(1, 1, 11, '/usr/lib/python3.11/socket.py', 0, 'recv', NULL), (2, 2, 3, '/home/u/train.py', 0, 'load', NULL), (3, 3, 1, '/home/u/other.py', 0, 'other', NULL);"
        "INSERT INTO part VALUES(1, '[1,2]'), (2, '[3]'); INSERT INTO stack VALUES(1, 2, 1, 0, '', '', 0, 0, '[1]'), (2, 1, 3, 0, '', '', 0, 0, '[2]');"
        "INSERT INTO sample VALUES(K(3, 1), S(18), 1, 2, 0, 1, 0), (K(3, 2), S(19), 1, 1, 0, 1, 0), (K(3, 3), S(19.5), 1, NULL, 0, 1, 0), (K(3, 4), S(19.5), 2, 2, 0, 1, 0)",
        "2,never came,1,w,2,all_reduce,5.0,15.0,2,(0,1),3,0,3,recv (socket.py:11), called by load (train.py:3)");
    hangs("UPDATE trace_file SET end_ts = S(4) WHERE id = 3",
          "2,dead,1,w,2,all_reduce,5.0,15.0,2,(0,1),3,0,3,?");
    hangs("UPDATE trace_file SET end_ts = S(4), end_reason = 'exit' WHERE id = 3",
          "2,ended,1,w,2,all_reduce,5.0,15.0,2,(0,1),3,0,3,?");
    hangs("UPDATE trace_file SET end_ts = S(4), end_reason = NULL WHERE id = 3",
          "2,silent,1,w,2,all_reduce,5.0,15.0,2,(0,1),3,0,3,?");
    hangs(
        "UPDATE trace_file SET end_ts = S(4), end_reason = NULL WHERE id = 3; INSERT INTO lost VALUES(3, 'cut_off_bytes', 9)",
        "2,cut off,1,w,2,all_reduce,5.0,15.0,2,(0,1),3,0,3,?");
    hangs(
        "DELETE FROM trace_file WHERE id = 3; DELETE FROM comm WHERE id >> 40 = 3; DELETE FROM process_group WHERE trace = 3",
        "2,not recorded,1,w,2,all_reduce,5.0,15.0,2,(0,1),3,0,,?");
    hangs(
        "INSERT INTO comm VALUES(K(3, 2), S(7), 30, 7, 2, 'barrier', 0, '', S(13), 0, NULL, NULL, 1)",
        "2,other call,1,w,2,all_reduce,5.0,15.0,2,(0,1),3,0,3,barrier in ?");
    hangs(
        "INSERT INTO comm VALUES(K(3, 2), S(7), 30, 7, 2, 'all_reduce', 50, '', S(13), 0, NULL, NULL, 1)",
        "2,other size,1,w,2,all_reduce,5.0,15.0,2,(0,1),3,0,3,50 bytes, others 100, in ?");
    hangs(
        "INSERT INTO comm VALUES(K(3, 2), S(7), 30, 7, 2, 'all_reduce', 100, '', S(13), 0, NULL, NULL, 1)",
        ",all came,1,w,2,all_reduce,5.0,15.0,3,(0,1,2),3,0,,?");
    hangs(
        "INSERT INTO process_group VALUES(2, 8, 'x', 'gloo', 0, 2, 6, NULL), (3, 8, 'x', 'gloo', 1, 2, 6, NULL); DELETE FROM comm WHERE id = K(2, 2);"
        "INSERT INTO comm VALUES(K(2, 2), S(6), 20, 8, 1, 'broadcast', 1, '', S(14), 0, NULL, NULL, 1)",
        "2,never came,1,w,2,all_reduce,5.0,15.0,1,(0),3,0,3,? 2,never came,1,x,1,broadcast,6.0,14.0,1,(1),2,0,3,? 1,waits itself,0,w,2,all_reduce,5.0,15.0,1,(0),3,0,2,broadcast number 1 of group x in ?");
    hangs(
        "DELETE FROM comm WHERE flags & 1; INSERT INTO comm VALUES(K(1, 2), S(5), 10, 7, 2, 'recv', 1, '', S(15), 0, 1, NULL, 1)",
        "1,never came,1,w,2,recv,5.0,15.0,1,(0),3,0,2,?");
    hangs(
        "DELETE FROM comm WHERE flags & 1; INSERT INTO comm VALUES(K(1, 2), S(5), 10, 7, 2, 'recv', 1, '', S(15), 0, NULL, NULL, 1)",
        ",from anybody,1,w,2,recv,5.0,15.0,1,(0),3,0,,?");
    hangs(
        "DELETE FROM comm WHERE flags & 1; INSERT INTO comm VALUES(K(1, 2), S(5), 10, 7, 2, 'send', 1, '', S(15), 0, NULL, 2, 1)",
        "2,never came,1,w,2,send,5.0,15.0,1,(0),3,0,3,?");
    hangs(
        "UPDATE comm SET flags = 4, duration = S(3) WHERE flags & 1; INSERT INTO comm VALUES(K(3, 2), S(9), 30, 7, 2, 'all_reduce', 100, '', S(0.5), 0, NULL, NULL, 4)",
        "2,late,1,w,2,all_reduce,5.0,3.0,2,(0,1),3,0,3,?");
    hangs("UPDATE comm SET flags = 4, duration = S(3) WHERE flags & 1",
          "2,never came,1,w,2,all_reduce,5.0,3.0,2,(0,1),3,0,3,?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(communication),      cmocka_unit_test(collectives),
        cmocka_unit_test(waits_that_overlap), cmocka_unit_test(dimensions),
        cmocka_unit_test(steps_and_modules),  cmocka_unit_test(attempts),
        cmocka_unit_test(runs_that_met),      cmocka_unit_test(who_keeps_others_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
