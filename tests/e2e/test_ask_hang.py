# SPDX-License-Identifier: Apache-2.0
"""`probing ask hang` on simulated jobs whose truth is known and on programs that stand still (of real jobs: test_hang.py)."""
import os
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest
from ask_helpers import ALL_KILLED, AT_LAST, CAME, CHILD, DIES, FAILS, MADE_ANEW, MOMENT, ONE_MORE, OTHERS, RAISES, TERMED, ask, edited, in_segments
from conftest import kill_group
from inject_helpers import wait_until


def test_hang(build, run, simulated_job):
    answer, tables = ask(build, run, "hang", simulated_job("--hang", "3:6") / "out.db")
    assert re.match(r"all_reduce number \d+ of group default_pg: rank 3 never came, 7 of 8 wait since 1[678]\.\d s", answer), answer
    assert [(r["waits_for"], r["waiting"], r["level"]) for r in tables[0]] == [("3", "0-2,4-7", 0)]
    assert [(r["rank"], r["state"]) for r in tables[1]] == [(3, "never came")] and tables[1][0]["last_call"].startswith("all_reduce number ")
    assert {r["rank"] for r in tables[2]} == {3} and "main" in [r["func"] for r in tables[2]]
    answer, _ = ask(build, run, "hang", simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50") / "out.db", code=1)
    assert "nothing hangs" in answer


def test_a_hang_that_ctrl_c_ended(build, run, simulated_job, tmp_path):
    """Who ends a job that hangs by Ctrl-C wants to know where the rank was, not what it did on its way out: torch's excepthook, and what is destroyed."""
    out = """CREATE TEMP TABLE f AS SELECT first_id, last_id, end_ts, pid FROM trace_file WHERE rank = 3;
      CREATE TEMP TABLE t AS SELECT id - (SELECT first_id FROM f) AS thread FROM thread WHERE trace = (SELECT first_id >> 40 FROM f) AND tid = (SELECT pid FROM f);
      INSERT INTO trigger_event(id, ts, kind, tid, detail) SELECT last_id, end_ts - 20000000, 'exception', pid, 'KeyboardInterrupt' FROM f;
      INSERT INTO sample SELECT max(x.id) + 1, (SELECT end_ts - 5000000 FROM f), (SELECT thread FROM t), (SELECT s.stack FROM sample s JOIN trace_file o ON s.id BETWEEN o.first_id AND o.last_id
        WHERE o.rank = 5 AND s.stack NOT NULL ORDER BY s.id LIMIT 1), 0, 1, 1 FROM sample x WHERE x.id >> 40 = (SELECT first_id >> 40 FROM f);"""
    said = [ask(build, run, "hang", db)[0] for db in (simulated_job("--hang", "3:6") / "out.db", edited(simulated_job("--hang", "3:6") / "out.db", tmp_path, out + MADE_ANEW))]
    assert "rank 3 is in Numbers.__getitem__ (train.py:56)" in said[0] and "rank 3 is in Numbers.__getitem__ (train.py:56)" in said[1], said


def test_many_that_wait_do_not_fill_the_screen(build, run, simulated_job):
    """Data parallel groups of 48 ranks, of which none follows the other: the table has a part of their list, and how many they are."""
    tables = ask(build, run, "hang", simulated_job("--ranks", 96, "--tp", 2, "--minutes", 0.1, "--no-world", "--hang", "4:2") / "out.db")[1]
    dp, = [row for row in tables[0] if row["group"] == "dp0"]
    assert re.fullmatch(r"0,2,6,8,(\d+,)+\.\.\.", dp["waiting"]) and 70 < len(dp["waiting"]) < 90 and dp["of"] == "47 of 48" and dp["waits_for"] == "4", tables[0]


@pytest.mark.parametrize("options, said", [(["--hang", "3:6"], "rank 3 never came"), (["--kill", "3:6"], "rank 3 died"), (["--kill", "3:6", "--raise"], "rank 3 had ended")])
@pytest.mark.parametrize("other, part", [(1, 0.6)] + [pytest.param(*p, marks=pytest.mark.slow) for p in [(1, 0.97), (7, 0.6), (0, None)]])
def test_hang_beside_a_torn_trace(build, run, simulated_job, tmp_path, options, said, other, part):
    """A trace that is cut off or missing does not say what its rank waited in. (Such a rank was once named first, as one that never came,
    or that had died.)"""
    job = tmp_path / "job"
    shutil.copytree(str(simulated_job(*options)), str(job), ignore=shutil.ignore_patterns("*.db"))
    trace = next(job.glob("*/*-r%d-*.zst" % other))
    if part is None:
        trace.unlink()
    else:
        os.truncate(str(trace), int(trace.stat().st_size * part))
    run([build.tool("probing-convert"), "-q", job, tmp_path / "out.db"], check=0 if part is None else 1)
    answer, tables = ask(build, run, "hang", tmp_path / "out.db")
    assert re.match(r"all_reduce number \d+ of group default_pg: %s" % said, answer), answer
    assert tables[0][0]["waits_for"] == "3" and {r["state"] for r in tables[0][1:]} <= {"cut off", "not recorded"}
    if options[0] == "--hang":  # and the answer says so
        assert answer.endswith("; what rank %d did is not known (%s)" % (other, "no trace here" if part is None else "trace cut off"))
        assert [(r["rank"], r["state"]) for r in tables[1]] == [(3, "never came"), (other, "not recorded" if part is None else "cut off")]
    # If it is the only rank that may not have come, nothing more can be said.
    if part == 0.97 and options[0] == "--hang":
        trace = next(job.glob("*/*-r3-*.zst"))
        os.truncate(str(trace), int(trace.stat().st_size * part))
        run([build.tool("probing-convert"), "-qf", job, tmp_path / "out.db"], check=1)
        answer, _ = ask(build, run, "hang", tmp_path / "out.db")
        assert "ranks 1,3 may have come or not (their traces are damaged, and without an end)" in answer


# Each recording goes on in another file (rotation) just before its process ends, so that nothing but the end lies in that one.
ENDS_IN_ANOTHER_FILE = """CREATE TEMP TABLE y AS SELECT * FROM trace_file; UPDATE y SET id = id + 200, first_id = id + 200 << 40, last_id = (id + 201 << 40) - 1, start_ts = end_ts;
INSERT INTO trace_file SELECT * FROM y; UPDATE trace_file SET program = iif(id > 200, id - 200, id), end_reason = iif(id > 200, end_reason, 'rotated'), signal = iif(id > 200, signal, NULL), end_ts = end_ts - (id < 200), finish_ts = iif(id > 200, finish_ts, NULL);
UPDATE fact SET id = id + (200 << 40) WHERE kind = 'end'; INSERT INTO process_group SELECT trace + 200, pg, name, backend, rank, size, list, desc FROM process_group;"""


ENDS = [
    # gloo's neighbours notice that the rank died, one rank does not; they live on for seconds
    (ALL_KILLED + DIES + FAILS % (0, "2, 4"), [(3, "dead", 1, 5)], "rank 3 died at TIME (killed by signal 9 (SIGKILL)), 5 of 8 wait"),
    (ALL_KILLED + DIES + FAILS % (0, "0, 1, 2, 4, 5, 6, 7"), [(3, "dead", 1, 7)], "rank 3 died"),
    # an exception that follows from that is no cause; one that is raised while all ranks live may be one
    (ALL_KILLED + DIES + FAILS % (4, "2, 4"), [(3, "dead", 1, 5), (2, "raised", 0, 5), (4, "raised", 0, 5)], "rank 3 died"),
    (ALL_KILLED + FAILS % (4, "2"), [(3, "never came", 1, 6), (2, "raised", 1, 6)], "rank 3 never came"),
    # all are killed one after the other: that a call fails at the last moment of some ranks means nothing
    (ALL_KILLED + DIES + FAILS % (0, "2, 4") + AT_LAST, [(3, "never came", 1, 5)], "rank 3 never came"),
    # rank 3 is killed in the call, alone; and together with all others
    (ALL_KILLED + DIES + CAME + FAILS % (0, "2, 4"), [(3, "dead", 1, 5)], "rank 3 died at TIME (killed by signal 9 (SIGKILL)), 5 of 8 wait"),
    (ALL_KILLED + CAME, [(None, "all came", 1, 8)], "all 8 ranks came and it does not complete"),
    # two died, one after the other: the first is named
    (ALL_KILLED + DIES.replace("= 3", "IN (0, 3)") + "UPDATE trace_file SET end_ts = end_ts + 20000000 WHERE rank = 0; DELETE FROM comm WHERE flags & 1 AND id >> 40 ="
     " (SELECT id FROM trace_file WHERE rank = 0);" + FAILS % (0, "2, 4"), [(3, "dead", 1, 4), (0, "dead", 1, 4)], "ranks 0,3 died at TIME (rank 3 first: killed by "),
    # the call raised in all others, or ended there and what they did next raised: nobody waits any more, but the rank that died is still
    # the cause; also if it died in the call
    (ALL_KILLED + DIES + RAISES % (3e8, "RuntimeError: closed", OTHERS) + FAILS % (4, OTHERS), [(3, "dead", 1, 7)],
     "rank 3 died at TIME (killed by signal 9 (SIGKILL)), and the call failed in 7 of 8 at TIME (RuntimeError: closed): rank 3 was in "),
    (ALL_KILLED + DIES + CAME + FAILS % (4, OTHERS), [(3, "dead", 1, 0)] + [(r, "raised", 0, 0) for r in (0, 1, 2, 4, 5, 6, 7)],
     "rank 3 died at TIME (killed by signal 9 (SIGKILL)), and the call failed in 7 of 8 at TIME: rank 3 was in "),
    # several calls at a time: all fail because of the first
    (ALL_KILLED + DIES + RAISES % (3e8, "RuntimeError: closed", OTHERS) + FAILS % (8, OTHERS) + ONE_MORE, [(3, "dead", 1, 7)], "SECOND: rank 3 died at TIME (killed by signal 9 (SIGKILL)), and the call"),
    # a timeout, caused by a rank that never came and lives on
    (ALL_KILLED + RAISES % (21e8, "RuntimeError: Timed out", OTHERS) + FAILS.replace("200000000", "2000000000") % (4, OTHERS), [(3, "never came", 1, 7)],
     "rank 3 never came, and the call failed in 7 of 8 at TIME after 2.0 s (RuntimeError: Timed out): rank 3 was in "),
    (ALL_KILLED + RAISES % (21e8, "RuntimeError: Timed out", "2") + FAILS.replace("200000000", "2000000000") % (0, OTHERS), [(3, "never came", 1, 7)],
     "rank 3 never came, and the call failed in 7 of 8 at TIME after 2.0 s (RuntimeError: Timed out): rank 3 was in "),
    # a timeout of the others, to whom rank 3 came later; and one of which all ranks came in time
    (ALL_KILLED + CAME + RAISES % (21e8, "RuntimeError: Timed out", OTHERS) + FAILS.replace("200000000", "2000000000") % (8, OTHERS)
     + "UPDATE comm SET flags = 8, duration = 100000, ts = ts + 3000000000 WHERE id IN (SELECT last_id FROM trace_file WHERE rank = 3);",
     [(3, "late", 1, 7)], "rank 3 came 1.0 s too late, and the call failed in 7 of 8 at TIME after 2.0 s (RuntimeError: Timed out): rank 3 was in "),
    (ALL_KILLED + CAME + FAILS.replace("200000000", "2000000000") % (8, OTHERS) + "UPDATE comm SET flags = 8, duration = 2000000000 WHERE id IN (SELECT last_id FROM trace_file WHERE rank = 3);", [], "nothing hangs"),
    # an operation that all ranks refuse at once is no hang
    (ALL_KILLED + FAILS % (4, OTHERS), [], "nothing hangs"),
    # an exception ended the rank, long before its interpreter is finalized
    (ALL_KILLED + RAISES % (1e8, "ValueError: loss is nan", "3"), [(3, "ended", 1, 7)], "rank 3 had ended at TIME (exception ValueError: loss is nan), 7 of 8 wait since"),
    (ALL_KILLED + RAISES % (1e8, "ValueError: loss is nan", "3") + RAISES % (3e8, "RuntimeError: closed", OTHERS) + FAILS % (0, OTHERS), [(3, "ended", 1, 7)],
     "rank 3 had ended at TIME (exception ValueError: loss is nan), and the call failed in 7 of 8 at TIME (RuntimeError: closed)"),
    # a stranger ends a rank that has a child (which does not make it "several" processes), and then its launcher ends all others
    (ALL_KILLED + DIES + CHILD % 3 + TERMED % (9e7, "1", "f.rank = 3") + TERMED % (3e8, "f.ppid", "f.rank <> 3") + "UPDATE trace_file SET end_ts = %s + 300000001 WHERE rank <> 3;" % MOMENT,
     [(3, "dead", 1, 7)], "rank 3 died at TIME (term SIGTERM sent by pid 1), 7 of 8 wait"),
    # a rank ends a worker of its own, as data loaders do: that is not the launcher ending the job
    (ALL_KILLED + DIES + CHILD % 0 + TERMED % (-1e9, "f.ppid", "f.pid = 7") + FAILS % (0, "2, 4") + TERMED % (3e8, "f.ppid", "f.rank IN (2, 4)")
     + "UPDATE trace_file SET end_ts = %s + 350000000 WHERE rank <> 3 AND pid <> 7;" % MOMENT, [(3, "dead", 1, 5)], "rank 3 died at TIME (killed by signal 9 (SIGKILL)), 5 of 8 wait"),
    # all are told to end; as the first of them close their connections, the call ends in two more: they waited until then, and nobody had
    # died
    (ALL_KILLED + TERMED % (38e8, "f.ppid", "f.rank >= 0") + FAILS.replace("200000000", "3850000000") % (0, "2, 4"), [(3, "never came", 1, 7)],
     "rank 3 never came, 7 of 8 wait since 4.0 s before the end"),
    # rank 3 left, and the call ends in all others: in two of them at once, in the rest when they are told to end because of it
    (ALL_KILLED + "UPDATE trace_file SET end_ts = %s + 300000000, end_reason = 'exit' WHERE rank = 3;" % MOMENT + TERMED % (38e8, "f.ppid", "f.rank <> 3")
     + FAILS % (0, "2, 4") + FAILS.replace("200000000", "3850000000") % (0, "0, 1, 5, 6, 7"), [(3, "ended", 1, 5)], "rank 3 had ended (no exception was recorded; its process was gone at TIME), 5 of 8 wait"),
    # rank 3 left before its work was done, and the call ends in all others at that moment
    (ALL_KILLED + "UPDATE trace_file SET end_ts = %s + 100000000, end_reason = 'exit' WHERE rank = 3; INSERT INTO fact SELECT last_id, 1, 'end', 'exit_code', '3' FROM trace_file WHERE rank = 3;"
     % MOMENT + FAILS % (0, OTHERS), [(3, "ended", 1, 7)], "rank 3 had ended at TIME (exit with code 3), and the call failed in 7 of 8 at TIME"),
    # the same if nobody was told to end, or if that was not recorded
    (ALL_KILLED + AT_LAST.replace("<> 3", "= 0") + FAILS.replace("200000000", "3850000000") % (0, "2, 4"), [(3, "never came", 1, 7)], "rank 3 never came, 7 of 8 wait"),
]


# Most of the time goes into planning the views that find hangs: `make test` has every third, and every eighth in two files.
@pytest.mark.parametrize("script, hangs, said, files", [pytest.param(*end, files, marks=pytest.mark.slow if n % (3, 8)[files - 1] else ())
                                                        for n, end in enumerate(ENDS) for files in (1, 2)])
def test_hang_of_one_that_died(build, run, simulated_job, tmp_path, sql, script, hangs, said, files):
    signal = "UPDATE trace_file SET signal = 9 WHERE rank IS NOT NULL;"
    db = edited(simulated_job("--hang", "3:6") / "out.db", tmp_path, script + signal + (files - 1) * ENDS_IN_ANOTHER_FILE + MADE_ANEW)
    assert sql(db, "SELECT rank, state, cause, waiting FROM hangs") == hangs
    answer, tables = ask(build, run, "hang", db, code=int(not hangs))
    assert said.replace("SECOND: ", "") in re.sub(r"\d\d:\d\d:\d\d\.\d{3}", "TIME", answer), answer
    if said.startswith("SECOND"):
        assert answer.startswith("all_reduce number %d of group" % sql(db, "SELECT min(seq) FROM comm WHERE flags & 8")[0][0]), answer


def test_what_a_process_that_lives_has_not_written_down_yet(build, run, simulated_job, tmp_path):
    """A call is over in all other ranks of a job that is at work, and the rank's own recording ends just before it: it will be there a second later, so nothing hangs (and nothing failed)."""
    program = subprocess.Popen([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", sys.executable, "-uc", "import os, time\nprint(os.getpid())\ntime.sleep(600)"],
                               stdout=subprocess.PIPE, start_new_session=True)
    try:
        with open("/proc/sys/kernel/random/boot_id") as f:
            lives = "UPDATE trace_file SET end_reason = NULL, finish_ts = NULL, boot_id = '%s', pid = %d, end_ts = end_ts - (rank = 3) * 3950000000;" % (f.read().strip(), int(program.stdout.readline()))
        for flags, said in ((0, "nothing hangs"), (8, "rank 3 never came, and the call failed in 7 of 8"), (1, "rank 3 never came, 7 of 8 wait")):
            db = edited(simulated_job("--hang", "3:6") / "out.db", tmp_path, ALL_KILLED + (FAILS % (flags, OTHERS) if flags != 1 else "") + lives + MADE_ANEW)
            assert said in ask(build, run, "hang", db, code=int(flags == 0))[0]
    finally:
        kill_group(program)


# Programs whose threads wait for each other for ever: two locks taken in opposite order; and a lock that another thread held at a fork.
LOCKS = """import threading
a, b, both = threading.Lock(), threading.Lock(), threading.Barrier(2)
def takes(one, other):
    with one:
        both.wait()
        with other: pass  # stands
threads = [threading.Thread(target=takes, args=pair, name=name) for pair, name in (((a, b), "first"), ((b, a), "second"))]
def join():
    for t in threads: t.join()
for t in threads: t.start()
join()
"""
FORK = """import multiprocessing, threading
lock, held = threading.Lock(), threading.Event()
def holds():
    with lock:
        held.set()
        threading.Event().wait()
def child():
    with lock: pass  # stands
threading.Thread(target=holds, name="holder").start()
held.wait()
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
"""


def stand_still(program, said):
    """Returns which threads the answer says to stand where, if it says that of the whole program."""
    found = re.findall(r"([\w-]+(?: \([\w.]+\))?) in [^;]*?(\w+) \(%s:(\d+)\)" % program.name, said) if "has done nothing since " in said else []
    return {(func, program.read_text().split("\n")[int(line) - 1].endswith("# stands")) for _, func, line in found}


@pytest.mark.parametrize("program, stands", [(LOCKS, {("join", False), ("takes", True)}), (FORK, {("<module>", False), ("holds", False), ("child", True)})], ids=["locks", "fork"])
def test_threads_that_wait_for_each_other(build, run, tmp_path, program, stands):
    """No collective hangs, yet the program does: it is said since when nothing has run, and where each thread waits; of a live program, and of its trace when it was killed."""
    script, trace = tmp_path / "stuck.py", tmp_path / "t.zst"
    script.write_text(program)
    stands = {(re.escape(f) if f != "<module>" else "module", s) for f, s in stands}
    recorder = subprocess.Popen([build.tool("probing-record"), "-q", "-o", trace, sys.executable, script], start_new_session=True)

    def said():
        paths = [p for p in (trace, tmp_path / "t.zst.d") if p.exists()]
        return run([build.tool("probing"), "ask", "hang", "--answer"] + paths, check=None).stdout if paths else ""

    def is_said():
        return {(f.strip("<>"), s) for f, s in stand_still(script, said().replace("<module>", "module"))} == stands

    try:
        wait_until(is_said)
    finally:
        kill_group(recorder)
    wait_until(is_said)
    assert said().startswith("no call of torch.distributed is incomplete, but process "), said()


@pytest.mark.parametrize("change", ["UPDATE trace_file SET end_reason = 'exit'", "UPDATE sample SET cpu_us = 200 WHERE count", "UPDATE cpu SET user_us = user_us + (ts - (SELECT min(ts) FROM cpu)) / 10000"])
def test_what_is_at_work_does_not_hang(build, run, tmp_path, change):
    """Nor does what ended by itself. Who wakes up at each tick waits for something that comes, and where other threads use the CPU the main thread may well wait for them."""
    program, trace, db = tmp_path / "sleeps.py", tmp_path / "t.zst", tmp_path / "t.db"
    program.write_text("import os, time\ntime.sleep(4)\nos.kill(os.getpid(), 9)\n")
    run([build.tool("probing-record"), "-q", "-o", trace, sys.executable, program], check=None)
    run([build.tool("probing-convert"), "-q", trace, db])
    assert re.match(r"no call .* is incomplete, but process \d+ has done nothing since (?![0-2]\.)\d+\.\d s before its end .*: MainThread in <module> \(sleeps.py:2\)$", ask(build, run, "hang", db)[0])
    assert "nothing hangs" in ask(build, run, "hang", edited(db, tmp_path, change), code=1)[0]


ENDS_WITHOUT_A_SAMPLE = """CREATE TEMP TABLE y AS SELECT id FROM trace_file ORDER BY end_ts DESC LIMIT 1; DELETE FROM sample WHERE id >> 40 = (SELECT id FROM y);
UPDATE trace_file SET end_ts = (SELECT max(end_ts) + 1000000 FROM trace_file WHERE id <> y.id) FROM y WHERE y.id = trace_file.id;"""


def test_what_stands_still_in_a_file_that_has_just_begun(build, run, tmp_path):
    """The recording goes on in another file some three seconds after the start, in which the process, which is killed, then stands for a second only; or so shortly that no sample is there."""
    program, db = tmp_path / "sleeps.py", tmp_path / "t.db"
    program.write_text("import os, threading, time\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\ntime.sleep(4.5)\nos.kill(os.getpid(), 9)\n")
    run([build.tool("probing-record"), "-q", "--set", "retention_days=0.0003", "-o", str(tmp_path / "t") + "/", sys.executable, program], check=None)
    run([build.tool("probing-convert"), "-q", tmp_path / "t", db])
    for changed in (db, edited(db, tmp_path, ENDS_WITHOUT_A_SAMPLE)):
        said = ask(build, run, "hang", changed)[0]
        assert re.match(r"no call .* is incomplete, but process \d+ has done nothing since [2-5]\.\d s before its end .*: MainThread in <module> \(sleeps.py:3\); .* in Condition.wait ", said), said


def test_ranks_that_wait_in_another_file(build, run, simulated_job, tmp_path):
    """All ranks wait in init_process_group. Those whose recording went on in another file meanwhile were also named as not being in it."""
    db = edited(simulated_job("--hang", "3:6") / "out.db", tmp_path, "UPDATE frame SET name = 'init_process_group', file = 'distributed_c10d.py' WHERE name = '<module>'")
    in_segments(db)
    with sqlite3.connect(str(db)) as c:
        c.executescript("DELETE FROM comm;" + MADE_ANEW)
    c.close()
    answer, _ = ask(build, run, "hang", db)
    assert re.fullmatch(r"no call is incomplete, but ranks 0-7 wait in init_process_group since \S+ s before their end( at least)? \(\S+\): all ranks have come to it; the store .*", answer), answer
    answer, _ = ask(build, run, "hang", edited(db, tmp_path, "UPDATE trace_file SET world_size = 9"))
    assert answer.startswith("no call is incomplete, but ranks 0-7 wait in init_process_group, which is over when all ranks have come, since ") and "not in it" not in answer


def test_a_circle(build, run, simulated_job, tmp_path):
    """Ranks 2 and 3 each receive from the other first. Those that wait for them in a collective are not in that circle, though they came to wait before it."""
    facing = "DELETE FROM comm WHERE flags & 1 AND id >> 40 IN (SELECT id FROM trace_file WHERE rank = 2);" \
             "INSERT INTO comm SELECT f.last_id - 5, c.ts + 10000000, f.pid, c.pg, 1, 'recv', 8, 'float32', f.end_ts - c.ts - 10000000, 0, 5 - f.rank, NULL, 1" \
             " FROM trace_file f, (SELECT pg, min(ts) AS ts FROM comm WHERE flags & 1) c WHERE f.rank IN (2, 3);"
    answer, tables = ask(build, run, "hang", edited(simulated_job("--hang", "3:6") / "out.db", tmp_path, facing + MADE_ANEW))
    assert re.match(r"a circle, all wait for each other: recv number 1 of group default_pg: rank [23] waits in another, 1 of 8 \(rank [23]\) wait since ", answer), answer
    assert sorted((r["op"], r["waiting"], r["waits_for"]) for r in tables[0][:2]) == [("recv", "2", "3"), ("recv", "3", "2")] and tables[0][2]["waiting"] == "0,1,4-7", tables[0]


@pytest.mark.parametrize("order, hangs", [("init_process_group train", 0), ("train init_process_group", 1)])
def test_an_attempt_that_was_given_up_hangs_no_more(build, run, tmp_path, order, hangs):
    """Ranks that waited in init_process_group until the launcher started them again do not hang any more."""
    script = tmp_path / "distributed_c10d.py"
    script.write_text("import sys, time\ndef init_process_group():\n    time.sleep(3)\ndef train():\n    time.sleep(3)\nglobals()[sys.argv[1]]()\n")
    attempts = "; ".join("RANK=0 WORLD_SIZE=1 %s %s %s" % (sys.executable, script, what) for what in order.split())
    run([build.tool("probing-record"), "-q", "-o", str(tmp_path / "d") + "/", "--", "sh", "-c", attempts])
    answer, _ = ask(build, run, "hang", tmp_path / "d", code=None)
    assert ("waits in init_process_group" in answer) == bool(hangs), answer


@pytest.mark.parametrize("flags, where", [(1, ", in "), (8, ", and later was in ")])
def test_where_a_rank_brought_another_shape(build, run, simulated_job, tmp_path, flags, where):
    """Its last stack shows where it made the call only if it is still in it; the call may also have raised there, and the rank gone on."""
    came = CAME.replace("c.bytes", "70 * c.bytes").replace("NULL, NULL, 1", "NULL, NULL, %d" % flags)
    answer, _ = ask(build, run, "hang", edited(simulated_job("--hang", "3:6") / "out.db", tmp_path, came + MADE_ANEW))
    said = re.match(r"all_reduce number \d+ of group default_pg: rank 3 brought (\d+) bytes, others (\d+)(,.* in )[\w.]+ \(.+\.py:\d+\).*: the shapes differ, 7 of 8 wait", answer)
    assert said and int(said.group(1)) == 70 * int(said.group(2)) and said.group(3) == where, answer


# From a moment on, the main threads of a simulated job are in one function. It is seen at two lines of its caller, as where it waits with a timeout.
STAYS = """CREATE TABLE moment AS SELECT id AS trace, start_ts + 4000000000 AS at FROM trace_file; DELETE FROM comm WHERE ts > (SELECT min(at) FROM moment); DELETE FROM collective; DELETE FROM hang;
INSERT INTO function VALUES (900000, 0, '{func}', '/x/distributed_c10d.py', 1, NULL), (900001, 0, 'main', '/x/train.py', 1, NULL);
INSERT INTO frame VALUES (900000, 900000, 5, '/x/distributed_c10d.py', 0, '{func}', NULL), (900001, 900001, 8, '/x/train.py', 0, 'main', NULL), (900002, 900001, 9, '/x/train.py', 0, 'main', NULL);
INSERT INTO part VALUES (900000, '[900000,900001]'), (900001, '[900000,900002]');
INSERT INTO stack SELECT id, 2, 900000, 0, '{func}', '/x/distributed_c10d.py', 5, 0, '[' || id || ']' FROM part WHERE id >= 900000;
UPDATE sample SET stack = 900000 + (id & 1), cpu_us = 0 WHERE ts > (SELECT at FROM moment WHERE trace = id >> 40);
UPDATE cpu SET user_us = 1, system_us = 1 WHERE ts > (SELECT at FROM moment WHERE trace = id >> 40);
UPDATE trace_file SET end_reason = 'killed';"""
# The same, but the second rank's trace is a file in which the first one went on.
GOES_ON = """UPDATE thread SET tid = (SELECT pid FROM trace_file WHERE id = 1); UPDATE moment SET at = 0 WHERE trace = 2;
UPDATE trace_file SET program = 1, rank = 0, pid = (SELECT pid FROM trace_file WHERE id = 1), end_reason = iif(id = 1, 'rotated', 'killed');
UPDATE trace_file SET start_ts = start_ts + 20000000000, end_ts = end_ts + 20000000000 WHERE id = 2; UPDATE sample SET ts = ts + 20000000000 WHERE id >> 40 = 2;
UPDATE cpu SET ts = ts + 20000000000 WHERE id >> 40 = 2;"""
# And long before, it was told to end, in the first of the files, and went on.
TOLD_BEFORE = "INSERT INTO trigger_event SELECT last_id, start_ts + 1000000000, 'term', pid, NULL, NULL, 'SIGTERM sent by pid ' || ppid, NULL FROM trace_file WHERE id = 1;"
# And as it came there, its process had still worked for three seconds.
WORKS_ON = "UPDATE cpu SET user_us = (ts - (SELECT at FROM moment WHERE trace = id >> 40)) / 1000 WHERE ts BETWEEN (SELECT at FROM moment WHERE trace = id >> 40) AND (SELECT at + 3000000000 FROM moment WHERE trace = id >> 40);"


@pytest.mark.parametrize("func, files, works", [("new_group", 1, 0), ("new_group", 2, 0), ("acquire", 2, 0), ("acquire", 1, 3)])
def test_since_when_it_hangs(build, run, simulated_job, tmp_path, sql, func, files, works):
    """That is said however many samples lie between, and whatever files."""
    stays = STAYS.format(func=func)
    if files == 2:
        stays = stays.replace("DELETE FROM comm", GOES_ON + TOLD_BEFORE + "DELETE FROM comm", 1)
    db = edited(simulated_job("--ranks", "2", "--hz", "50", "--layers", "1") / "out.db", tmp_path, stays + WORKS_ON * bool(works))
    answer, _ = ask(build, run, "hang", db)
    after = sql(db, "SELECT (SELECT max(ts) FROM sample) - m.at, (SELECT max(end_ts) FROM trace_file) - m.at FROM moment m WHERE at ORDER BY at")
    who, said = re.search(r"but (ranks? [0-9,]+) .* since (\d+\.\d) s before \w+ end \(", answer).groups()
    assert who == ("rank 0" if files == 2 else "ranks 0,1")
    # In a call of torch.distributed: since when the first of them waits; else, since when all do nothing. Samples come at 50 Hz, CPU times each second.
    since, early = (after[0][0], 0) if func == "new_group" else (after[-1][1], works)
    assert abs(since / 1e9 - early - float(said)) < 0.1 + bool(works), (answer, after)
    assert sql(db, "SELECT count(*) FROM sample s JOIN moment m ON m.trace = s.id >> 40 AND s.ts > m.at GROUP BY m.trace ORDER BY 1")[0][0] > 500
    if works:  # what the question leaves behind is in no other question's way
        assert re.search(r"\n== Why does it hang.*\n%s\n\n== Who died first.*\nrank 0 " % re.escape(answer), run([build.tool("probing"), "ask", "all", "--answer", db]).stdout)
