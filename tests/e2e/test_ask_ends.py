# SPDX-License-Identifier: Apache-2.0
"""`probing ask hang|died|last`: how a job ended, on simulated jobs whose truth is known and on real recordings."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from ask_helpers import MADE_ANEW, ask, edited
from conftest import kill_group
from inject_helpers import wait_until
from test_triggers import HOOKED


README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def test_hang(build, run, simulated_job):
    answer, tables = ask(build, run, "hang", simulated_job("--hang", "3:6") / "out.db")
    assert re.match(r"all_reduce number \d+ of group default_pg: rank 3 never came, 7 of 8 wait since 1[678]\.\d s", answer), answer
    assert [(r["waits_for"], r["waiting"], r["level"]) for r in tables[0]] == [("3", "0-2,4-7", 0)]
    assert [(r["rank"], r["state"]) for r in tables[1]] == [(3, "never came")] and tables[1][0]["last_call"].startswith("all_reduce number ")
    assert {r["rank"] for r in tables[2]} == {3} and "main" in [r["func"] for r in tables[2]]
    answer, _ = ask(build, run, "hang", simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50") / "out.db", code=1)
    assert "nothing hangs" in answer


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


# SQL that makes a hang of a job: rank 3 never came to a call that ranks 0 to 2 and 4 to 7 entered within 3 ms, at MOMENT; all ranks are
# killed four seconds later.
MOMENT = "(SELECT min(ts) FROM comm WHERE flags & 1)"
ALL_KILLED = "UPDATE trace_file SET end_ts = (SELECT max(ts) FROM comm WHERE flags & 1) + 4000000000 WHERE rank IS NOT NULL;"
DIES = "UPDATE trace_file SET end_ts = %s + 100000000 WHERE rank = 3;" % MOMENT
# In these ranks the call ends, or raises, 200 ms after they entered it.
FAILS = "UPDATE comm SET flags = %d, duration = 200000000 WHERE flags & 1 AND id >> 40 IN (SELECT id FROM trace_file WHERE rank IN (%s));"
AT_LAST = "UPDATE trace_file SET end_ts = end_ts - 3400000000 WHERE rank <> 3;"
TERMED = "INSERT INTO trigger_event SELECT f.last_id - 1, %s + %%d, 'term', f.pid, NULL, NULL, 'SIGTERM sent by pid ' || %%s, NULL FROM trace_file f WHERE %%s;" % MOMENT
RAISES = "INSERT INTO trigger_event SELECT f.last_id - 1, %s + %%d, 'exception', f.pid, NULL, NULL, '%%s', 'File \"x\"' FROM trace_file f WHERE rank IN (%%s);" % MOMENT
# A process that rank %d has started, which inherits its rank number.
CHILD = "CREATE TEMP TABLE x AS SELECT * FROM trace_file WHERE rank = %d; UPDATE x SET id = 99, first_id = 99 << 40, last_id = (100 << 40) - 1, ppid = pid, pid = 7; INSERT INTO trace_file SELECT * FROM x;"
OTHERS = "0, 1, 2, 4, 5, 6, 7"
# In each rank one call more, which was not waited for before the first was made.
ONE_MORE = "INSERT INTO comm SELECT f.last_id - 9, c.ts + 1000000, c.tid, c.pg, c.seq + 1, c.op, c.bytes, c.dtype, c.duration, 0, NULL, NULL, 8 FROM comm c JOIN trace_file f ON f.id = c.id >> 40 WHERE c.flags & 8;"
CAME = "INSERT INTO comm SELECT f.last_id, c.ts, c.tid, c.pg, c.seq, c.op, c.bytes, c.dtype, 90000000, 0, NULL, NULL, 1 FROM comm c, trace_file f WHERE c.flags & 1 AND f.rank = 3 LIMIT 1;"


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
     + FAILS % (0, "2, 4") + FAILS.replace("200000000", "3850000000") % (0, "0, 1, 5, 6, 7"), [(3, "ended", 1, 5)], "rank 3 had ended at TIME (no exception was recorded), 5 of 8 wait"),
    # rank 3 left before its work was done, and the call ends in all others at that moment
    (ALL_KILLED + "UPDATE trace_file SET end_ts = %s + 100000000, end_reason = 'exit' WHERE rank = 3; INSERT INTO fact SELECT last_id, 1, 'end', 'exit_code', '3' FROM trace_file WHERE rank = 3;"
     % MOMENT + FAILS % (0, OTHERS), [(3, "ended", 1, 7)], "rank 3 had ended at TIME (exit with code 3), and the call failed in 7 of 8 at TIME"),
    # the same if nobody was told to end, or if that was not recorded
    (ALL_KILLED + AT_LAST.replace("<> 3", "= 0") + FAILS.replace("200000000", "3850000000") % (0, "2, 4"), [(3, "never came", 1, 7)], "rank 3 never came, 7 of 8 wait"),
]


# Most of the time goes into planning the views that find hangs: `make test` has every third.
@pytest.mark.parametrize("script, hangs, said", [pytest.param(*end, marks=pytest.mark.slow if n % 3 else ()) for n, end in enumerate(ENDS)])
def test_hang_of_one_that_died(build, run, simulated_job, tmp_path, sql, script, hangs, said):
    signal = "UPDATE trace_file SET signal = 9 WHERE rank IS NOT NULL;"
    db = edited(simulated_job("--hang", "3:6") / "out.db", tmp_path, script + signal + MADE_ANEW)
    assert sql(db, "SELECT rank, state, cause, waiting FROM hangs") == hangs
    answer, tables = ask(build, run, "hang", db, code=int(not hangs))
    assert said.replace("SECOND: ", "") in re.sub(r"\d\d:\d\d:\d\d\.\d{3}", "TIME", answer), answer
    if said.startswith("SECOND"):
        assert answer.startswith("all_reduce number %d of group" % sql(db, "SELECT min(seq) FROM comm WHERE flags & 8")[0][0]), answer


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


@pytest.mark.parametrize("order, hangs", [("init_process_group train", 0), ("train init_process_group", 1)])
def test_an_attempt_that_was_given_up_hangs_no_more(build, run, tmp_path, order, hangs):
    """Ranks that waited in init_process_group until the launcher started them again do not hang any more."""
    script = tmp_path / "distributed_c10d.py"
    script.write_text("import sys, time\ndef init_process_group():\n    time.sleep(3)\ndef train():\n    time.sleep(3)\nglobals()[sys.argv[1]]()\n")
    attempts = "; ".join("RANK=0 WORLD_SIZE=1 %s %s %s" % (sys.executable, script, what) for what in order.split())
    run([build.tool("probing-record"), "-q", "-o", str(tmp_path / "d") + "/", "--", "sh", "-c", attempts])
    answer, _ = ask(build, run, "hang", tmp_path / "d", code=None)
    assert ("waits in init_process_group" in answer) == bool(hangs), answer


@pytest.mark.parametrize("flags, where, waiting", [(1, ", in ", 8), (8, ", and later was in ", 7)])
def test_where_a_rank_brought_another_shape(build, run, simulated_job, tmp_path, flags, where, waiting):
    """Its last stack shows where it made the call only if it is still in it; the call may also have raised there, and the rank gone on."""
    came = CAME.replace("c.bytes", "70 * c.bytes").replace("NULL, NULL, 1", "NULL, NULL, %d" % flags)
    answer, _ = ask(build, run, "hang", edited(simulated_job("--hang", "3:6") / "out.db", tmp_path, came + MADE_ANEW))
    said = re.match(r"all_reduce number \d+ of group default_pg: rank 3 brought (\d+) bytes, others (\d+)(,.* in )[\w.]+ \(.+\.py:\d+\).*: the shapes differ, %d of 8 wait" % waiting, answer)
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
# And as it came there, its process had still worked for three seconds.
WORKS_ON = "UPDATE cpu SET user_us = (ts - (SELECT at FROM moment WHERE trace = id >> 40)) / 1000 WHERE ts BETWEEN (SELECT at FROM moment WHERE trace = id >> 40) AND (SELECT at + 3000000000 FROM moment WHERE trace = id >> 40);"


@pytest.mark.parametrize("func, files, works", [("new_group", 1, 0), ("new_group", 2, 0), ("acquire", 2, 0), ("acquire", 1, 3)])
def test_since_when_it_hangs(build, run, simulated_job, tmp_path, sql, func, files, works):
    """That is said however many samples lie between, and whatever files."""
    stays = STAYS.format(func=func)
    if files == 2:
        stays = stays.replace("DELETE FROM comm", GOES_ON + "DELETE FROM comm", 1)
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


def test_died_and_last(build, run, simulated_job):
    db = simulated_job("--kill", "6:6") / "out.db"
    answer, tables = ask(build, run, "died", db)
    # Who, on which machine, when, from what, and where in the program.
    assert re.match(r"rank 6 \(process \d+\) on node\d+ at \S+ \S+: killed by signal 9 \(SIGKILL\), in .+ \(.+\.py:\d+\)", answer), answer
    assert [r["rank"] for r in tables[0]][0] == 6 and {r["kind"] for r in tables[0][1:]} == {"exception"}
    answer, tables = ask(build, run, "last", db)
    assert "the last moment recorded" in answer and len(tables[0]) == 8 and tables[0][0]["rank"] == 6


@pytest.mark.parametrize("fault", [["--kill", "6:6"], ["--kill", "6:6", "--raise"]])
def test_who_died_first_may_have_no_trace(build, run, simulated_job, tmp_path, fault):
    """The first of the others then fails because of it: that is said, and who else may have been first."""
    job = tmp_path / "job"
    shutil.copytree(str(simulated_job(*fault)), str(job), ignore=shutil.ignore_patterns("*.db"))
    trace, other = next(job.glob("*/*-r6-*.zst")), next(job.glob("*/*-r2-*.zst"))
    other.unlink()
    run([build.tool("probing-convert"), "-q", job, tmp_path / "out.db"])
    answer, _ = ask(build, run, "died", tmp_path / "out.db")
    assert answer.startswith("rank 6 ") and "may have died before" not in answer, answer  # it failed in no call of others: it is the first
    trace.unlink()
    run([build.tool("probing-convert"), "-qf", job, tmp_path / "out.db"])
    answer, _ = ask(build, run, "died", tmp_path / "out.db")
    assert re.search(r"exception RuntimeError: Connection closed by peer.*; ranks 2,6 may have died before: their traces are not here \(\w+ number \d+ of group \S+ failed\)$", answer), answer


def test_who_died_in_a_job_that_hung(build, run, simulated_job):
    """A rank that is in no call with the one that never came has not waited for it in that call."""
    job = simulated_job("--no-world", "--tp", "4", "--hang", "6:6")
    answer, _ = ask(build, run, "died", job / "out.db")
    assert re.search(r"^rank 0 .*; the job hung then: rank 6 had not come to \w+ number \d+ of group (tp1|dp2): `probing ask hang`$", answer), answer
    answer, _ = ask(build, run, "died", *sorted(job.glob("*/*-r[26]-*.zst")))
    assert re.search(r"^rank 2 .*; it had waited for rank 6 in \w+ number \d+ of group dp2: `probing ask hang`$", answer), answer


def test_where_an_exception_was_raised(build, run, tmp_path):
    program = tmp_path / "fails.py"
    program.write_text("def fails(x):\n    return 1 // x\ndef main():\n    fails(0)\n" + HOOKED + "wait_for_agent()\nmain()\n")
    run([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", sys.executable, program], check=1)
    answer, _ = ask(build, run, "died", tmp_path / "t.zst")
    assert "exception ZeroDivisionError: " in answer and answer.endswith(', File "%s", line 2, in fails' % program), answer
    program.write_text("import json\ndef main():\n    json.loads('{')\n" + HOOKED + "wait_for_agent()\nmain()\n")  # raised in the library
    run([build.tool("probing-record"), "-q", "-o", tmp_path / "u.zst", sys.executable, program], check=1)
    answer, _ = ask(build, run, "died", tmp_path / "u.zst")
    assert re.search(r'exception JSONDecodeError: .*, File ".*/json/decoder.py", line \d+, in \w+, called by main \(fails.py:3\)$', answer), answer
    # deeper than what is kept of it: the innermost frames are
    program.write_text("def last():\n    1 // 0\ndef deep(n):\n    deep(n - 1) if n else last()\n" + HOOKED + "wait_for_agent()\ndeep(150)\n")
    run([build.tool("probing-record"), "-q", "-o", tmp_path / "v.zst", sys.executable, program], check=1)
    answer, _ = ask(build, run, "died", tmp_path / "v.zst")
    assert answer.endswith(', File "%s", line 2, in last' % program), answer


WAIT = """ # until the agent has taken its signals
import os, signal, subprocess, sys, time
while not any(int(line.split()[1], 16) >> 14 & 1 for line in open("/proc/self/status") if line.startswith("SigCgt")):
    time.sleep(0.01)
"""
LAUNCHER = WAIT + """
import ctypes
def hooked(): # sys.excepthook calls the agent (agent/trigger/trigger_exception.c)
    method = ctypes.c_void_p.from_address(ctypes.c_void_p.from_address(id(sys.__excepthook__) + 16).value + 8).value
    agent = [[int(x, 16) for x in line.split()[0].split("-")] for line in open("/proc/self/maps") if line.rstrip().endswith("libprobing-agent.so")]
    return any(low <= method < high for low, high in agent)
while not hooked():
    time.sleep(0.01)
class SignalException(Exception): pass
ranks = [subprocess.Popen([sys.executable, "-c", RANK], stdout=subprocess.PIPE, env=dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE="2",
                          TORCHELASTIC_RUN_ID="x")) for r in range(2)]
def end(number, frame):
    for rank in ranks:
        rank.terminate()
        rank.wait()
    raise SignalException("Process %d got signal: %d" % (os.getpid(), number))
for rank in ranks:
    assert rank.stdout.readline() == b"ready\\n"
signal.signal(signal.SIGTERM, end)
CAUSE
"""
RANK = WAIT + """
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("cause, said", [
    ("os.kill(os.getpid(), signal.SIGTERM)", r"the launcher \(process {pid}\) on .*: exception SignalException: Process {pid} got signal: 15"),
    # an exception that it raises for another reason is reported for the time at which it comes
    ("try: end(15, None)\nexcept SignalException: raise ValueError('x')", r"rank [01] \(process \d+\) on .*: term SIGTERM sent by pid {pid}"),
])
def test_a_launcher_that_is_told_to_end(build, run, sql, tmp_path, cause, said):
    """As with torchrun: SIGTERM raises an exception in the launcher after it has ended its ranks because of it. The ranks end first, but
    the launcher is the cause."""
    program = tmp_path / "launcher.py"
    program.write_text("RANK = %r\n" % RANK + LAUNCHER.replace("CAUSE", cause))
    run([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", sys.executable, program], check=1)
    run([build.tool("probing-convert"), "-q", tmp_path / "t.zst", tmp_path / "t.db"])
    (pid,), = sql(tmp_path / "t.db", "SELECT pid FROM trace WHERE rank IS NULL")
    answer, tables = ask(build, run, "died", tmp_path / "t.db")
    assert re.match(said.format(pid=pid), answer), (answer, tables)
    assert [r["rank"] for r in tables[0]] == ([None, 0, 1] if "kill" in cause else [0, 1, None]), tables


@pytest.mark.parametrize("before, signal, told, first", [
    (0.1, 15, "rank = 3", r"rank 3 \(process \d+\) on .*: term SIGTERM sent by pid 1,"),  # at the same time as its parent, by a signal to their process group
    (0.1, "NULL", "rank = 3", r"rank 3 \(process \d+\) on .*: term SIGTERM sent by pid 1,"),  # its parent did not live long enough to record it
    (5, 15, "rank = 3", r"rank 3's data loader \(process 7\) on .*: killed by signal 15"),  # long before its parent: its own death
    (0.1, 15, "rank = 4", r"rank 3's data loader \(process 7\) on .*: killed by signal 15"),  # its parent got no signal
    (0.1, 9, "rank = 3", r"rank 3's data loader \(process 7\) on .*: killed by signal 9"),  # its parent died from something else
])
def test_a_loader_that_is_told_to_end_with_its_rank(build, run, simulated_job, tmp_path, before, signal, told, first):
    """The last record of a process lies before the SIGTERM that ended it, and so before that of its parent: the parent is named first."""
    healthy = simulated_job("--seed", 1) / "out.db"
    at = "(SELECT min(end_ts) FROM trace_file WHERE rank IS NOT NULL)"
    script = ("CREATE TEMP TABLE at AS SELECT %s AS ts;" % at + CHILD % 3 + "UPDATE trace_file SET role = 'dataloader', end_reason = 'killed', signal = %s, end_ts = "
              "(SELECT ts FROM at) - %d WHERE id = 99;" % (signal, before * 1e9)
              + "INSERT INTO trigger_event SELECT f.last_id - 1, (SELECT ts FROM at), 'term', f.pid, NULL, NULL, 'SIGTERM sent by pid 1', NULL FROM trace_file f"
              " WHERE f.id <> 99 AND f.%s;" % told)
    answer, tables = ask(build, run, "died", edited(healthy, tmp_path, script))
    assert re.match(first, answer + ","), (answer, tables)
    assert [r["kind"] for r in tables[0]] == (["term", "killed"] if "term" in first else ["killed", "term"]), tables


WHY = "killed together with its recorder, or its machine went down, or it still ran when the file was copied"


def test_died_with_its_recorder(build, run, tmp_path):
    """Its recorder died too, so nobody was left to say how it ended. While it runs, nobody has died; a copy of its trace has no end, and
    the answer says how far it goes; with its live file the trace is completed."""
    trace, copy = tmp_path / "t.zst", tmp_path / "copy.zst"
    program = "def turns():\n    while True:\n        sum(range(1000))\nprint('on', flush=True)\nturns()\n"
    recorder = subprocess.Popen([build.tool("probing-record"), "-q", "-o", trace, sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert recorder.stdout.readline() == b"on\n"
        wait_until(lambda: trace.exists() and "turns" in run([build.tool("probing"), "query", "--csv", trace, "SELECT func FROM hot_functions"], check=None).stdout, 60)
        copy.write_bytes(trace.read_bytes())
        assert "nobody died" in ask(build, run, "died", copy, code=1)[0]
    finally:
        kill_group(recorder)
    wait_until(lambda: "still runs" not in run([build.tool("probing"), "ask", "last", copy]).stdout, 60)
    copy.write_bytes(trace.read_bytes())
    run([build.tool("probing-convert"), "-q", copy, tmp_path / "copy.db"], check=None)
    for of in (copy, tmp_path / "copy.db"):
        answer, tables = ask(build, run, "died", of)
        assert re.fullmatch(r"the recording of process \d+ on \S+ stops at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}, in turns \(<string>:\d\), and has no end: " + WHY, answer), answer
        (row,), = [t for t in tables if t]
        assert row["stops"] in answer and str(row["pid"]) in answer and row["file"].endswith("copy.zst")
    run([build.tool("probing-convert"), "-q", trace, tmp_path / "t.db"])
    # The signal is known while the process is a zombie, which depends on who collects orphans on this machine.
    assert re.match(r"process \d+ on .*: killed by (signal 9 \(SIGKILL\)|a signal that left no record: .*), in turns", ask(build, run, "died", tmp_path / "t.db")[0])


def test_recordings_without_an_end(build, run, simulated_job, tmp_path, sql):
    """Of several, the first to stop is named. If a process is known to have died, they are mentioned besides. A recording that continues in
    another trace has an end."""
    db, stops = simulated_job("--seed", 1) / "out.db", "UPDATE trace_file SET end_reason = NULL, complete = 0, end_ts = end_ts - iif(rank = 2, 2000000000, 1000000000) WHERE rank IN (2, 5);"
    answer, tables = ask(build, run, "died", edited(db, tmp_path, stops))
    assert re.match(r"2 recordings have no end; that of rank 2 \(process \d+\) on node\d+ is the first to stop, at \S+ \S+, in .+ \(.+\): " + WHY, answer), answer
    assert [[r["rank"] for r in t] for t in tables if t] == [[2, 5]]
    again = stops + CHILD % 5 + "UPDATE trace_file SET (pid, boot_id, process_ts, end_reason, start_ts) = (SELECT pid, boot_id, process_ts, 'exit', end_ts FROM trace_file WHERE rank = 5 AND id < 99) WHERE id = 99;"
    answer, tables = ask(build, run, "died", edited(db, tmp_path, again))
    assert answer.startswith("the recording of rank 2 ") and [[r["rank"] for r in t] for t in tables if t] == [[2]], (answer, tables)
    killed = simulated_job("--kill", "6:6") / "out.db"
    answer, tables = ask(build, run, "died", edited(killed, tmp_path, stops.replace("IN (2, 5)", "= 2") + "DELETE FROM trigger_event WHERE id >> 40 = (SELECT id FROM trace_file WHERE rank = 2);"))
    assert re.match(r"rank 6 .*: killed by signal 9 .*; the recording of rank 2 \(process \d+\) on node\d+ has no end, and stops before that, at ", answer), answer
    assert tables[-1][0]["rank"] == 2 and tables[0][0]["rank"] == 6


def test_one_that_left(build, run, simulated_job, tmp_path, sql):
    """A rank that ends by itself while others wait for it died first: nobody could record more about it than its end."""
    db = simulated_job("--kill", "6:6") / "out.db"
    was, = sql(db, "SELECT end_reason FROM trace WHERE rank = 6")[0]
    assert was == "killed"
    answer, tables = ask(build, run, "died", edited(db, tmp_path, "UPDATE trace_file SET end_reason = '_exit', signal = NULL WHERE rank = 6"))
    assert re.match(r"rank 6 \(process \d+\) on node\d+ at .*: os\._exit\(\) while others waited for it, in .+ \(.+\.py:\d+\)$", answer), answer
    assert len(tables[0]) == 8 and not tables[1]
    healthy = simulated_job("--seed", 1) / "out.db"
    answer, _ = ask(build, run, "died", edited(healthy, tmp_path, "UPDATE trace_file SET end_reason = '_exit' WHERE rank = 6"), code=1)
    assert "nobody died" in answer, answer


def test_last_of_the_ranks(build, run, simulated_job, tmp_path, sql):
    """A launcher that runs for half a minute longer than the ranks is not what the question is about."""
    db = edited(simulated_job("--kill", "6:6") / "out.db", tmp_path, "UPDATE trace_file SET rank = NULL, end_ts = end_ts + 30000000000 WHERE rank = 7")
    at, pid = sql(db, "SELECT max(\"end\"), pid FROM trace WHERE rank IS NOT NULL")[0]
    answer, tables = ask(build, run, "last", db)
    assert "(process %d)" % pid in answer and 0.0 in [r["end"] for r in tables[0] if r["pid"] == pid], answer
    assert {r["rank"] for r in tables[1]} & set(range(7)) and all(-1 <= r["time"] <= 0.001 for r in tables[2])


def test_last_of_who_slept(build, run, tmp_path, sql):
    """A sleeping thread has one sample for up to a second, and a kill loses the one that has begun: the sample before it reaches into the
    last second."""
    program, trace, db = tmp_path / "sleeps.py", tmp_path / "t.zst", tmp_path / "t.db"
    program.write_text("import time\ndef asleep():\n    time.sleep(3)\nasleep()\n")
    run([build.tool("probing-record"), "-q", "-r", "100Hz", "-o", trace, sys.executable, program], check=0)
    run([build.tool("probing-convert"), "-q", trace, db], check=0)
    sample, at, seconds = sql(db, "SELECT sample_id, timestamp, seconds FROM samples WHERE state = 'idle' ORDER BY seconds DESC LIMIT 1")[0]
    killed = at + seconds / 2 + 1  # so that its second half lies in the last second
    db = edited(db, tmp_path, "DELETE FROM sample WHERE id > %d; UPDATE trace_file SET end_ts = end_ts + (SELECT (%.7f - \"end\") * 1e9 FROM trace)" % (sample, killed))
    answer, tables = ask(build, run, "last", db)
    threads = [(r["func"], r["lineno"], r["state"], r["seconds"]) for r in tables[1] if r["thread"] == "MainThread"]
    assert threads == [("asleep", 3, "idle", pytest.approx(seconds / 2, abs=0.001))], (answer, tables, at, seconds)


def test_the_five_questions_as_readme_shows_them(build, run, tmp_path):
    """Each question with its real output: from the two simulated jobs that README names, and the line of the scene that hangs."""
    shown = dict(re.findall(r"^    \$ probing ask (\w+) --answer .*\n    (.*)$", README.read_text(), re.M))
    assert sorted(shown) == ["died", "hang", "memory", "step", "straggler"]
    for name, options in (("slow", ("--ranks", 16, "--straggler", "5:20", "--offset", 1)), ("killed", ("--ranks", 8, "--kill", "6:12"))):
        run([build.root / "tests/fleet/probing-fleet", "--quiet", "--out", tmp_path / name] + list(options))
    for question, said in shown.items():
        if question == "hang":
            number, = [n for n, line in enumerate(README.with_name("tests").joinpath("e2e/hang_scenes.py").read_text().split("\n"), 1) if "for _ in loader:" in line]
            assert "train_on (hang_scenes.py:%d)" % number in said
        else:
            assert run([build.tool("probing"), "ask", question, "--answer", tmp_path / ("killed" if question == "died" else "slow")]).stdout == said + "\n"
