# SPDX-License-Identifier: Apache-2.0
"""`probing ask died|last`: how a job ended, on simulated jobs whose truth is known and on real recordings."""
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from ask_helpers import ALL_KILLED, CHILD, FAILS, MADE_ANEW, MOMENT, OTHERS, RAISES, ask, edited
from conftest import kill_group
from inject_helpers import wait_until
from test_triggers import HOOKED


README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def test_died_and_last(build, run, simulated_job):
    db = simulated_job("--kill", "6:6") / "out.db"
    answer, tables = ask(build, run, "died", db)
    # Who, on which machine, when, from what, and where in the program.
    assert re.match(r"rank 6 \(process \d+\) on node\d+ at \S+ \S+: killed by signal 9 \(SIGKILL\), last seen in .+ \(.+\.py:\d+\)", answer), answer
    assert [r["rank"] for r in tables[0]][0] == 6 and {r["kind"] for r in tables[0][1:]} == {"exception"}
    answer, tables = ask(build, run, "last", db)
    assert "the last moment recorded" in answer and len(tables[0]) == 8 and tables[0][0]["rank"] == 6


def test_died_of_ranks_that_were_started_again(build, run, simulated_job, tmp_path):
    """Who died first may be of an attempt that the job survived: what ended the last one is said, too."""
    db = simulated_job("--runs", "3", "--restarts", "--kill", "2:4") / "out.db"
    first = r"rank 2 \(process \d+\) on \S+ at \S+ \S+: killed by signal 9 \(SIGKILL\), last seen in .*; the ranks were started again 2 times, and in the last attempt "
    answer, _ = ask(build, run, "died", db)
    assert re.match(first + "no rank died$", answer), answer
    last = "UPDATE trace_file SET end_reason = 'killed', signal = 9 WHERE rank = 5 AND attempt = (SELECT max(attempt) FROM trace_file);"
    answer, _ = ask(build, run, "died", edited(db, tmp_path, last))
    assert re.match(first + r"rank 5 \(process \d+\) was the first, at \S+: killed by signal 9 \(SIGKILL\)$", answer), answer


def test_how_a_part_of_a_rank_ends_is_its_own_affair(build, run, simulated_job, tmp_path):
    """A data loader's worker ends by os._exit() when its rank does, whose call has just failed: the others have not waited for the worker."""
    script = (ALL_KILLED + RAISES % (21e8, "RuntimeError: Timed out", OTHERS) + FAILS.replace("200000000", "2000000000") % (4, OTHERS) + CHILD % 2 + "UPDATE trace_file SET role = 'dataloader', end_reason = '_exit', end_ts = %s + 2050000000 WHERE pid = 7;" % MOMENT)
    answer, _ = ask(build, run, "died", edited(simulated_job("--hang", "3:6") / "out.db", tmp_path, script + MADE_ANEW))
    assert re.match(r"rank [0-2] \(process \d+\) on \S+ at \S+ \S+, because rank 3 never came to all_reduce number \d+ of group default_pg \(`probing ask hang`\): exception RuntimeError: Timed out", answer), answer


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


def test_who_died_in_a_job_that_hung(build, run, simulated_job, tmp_path):
    """A rank that is in no call with the one that never came has not waited for it in that call."""
    job = simulated_job("--no-world", "--tp", "4", "--hang", "6:6")
    answer, _ = ask(build, run, "died", job / "out.db")
    assert re.search(r"^rank 0 .*; the job hung then: rank 6 had not come to \w+ number \d+ of group (tp1|dp2): `probing ask hang`$", answer), answer
    answer, _ = ask(build, run, "died", *sorted(job.glob("*/*-r[26]-*.zst")))
    assert re.search(r"^rank 2 .*; it had waited for rank 6 in \w+ number \d+ of group dp2: `probing ask hang`$", answer), answer
    # NCCL's watchdog aborts its process: the call is never complete, and no exception is raised
    script = ALL_KILLED + "UPDATE trace_file SET end_ts = end_ts - 500000000 WHERE rank = 0;" + RAISES % (21e8, "x", "0") + "UPDATE trigger_event SET kind = 'fatal', detail = 'SIGABRT', text = NULL WHERE detail = 'x';"
    answer, _ = ask(build, run, "died", edited(simulated_job("--hang", "3:6") / "out.db", tmp_path, script + MADE_ANEW))
    assert re.match(r"rank 0 .*: fatal SIGABRT.*; it had waited for rank 3 in all_reduce number \d+ of group default_pg: `probing ask hang`$", answer), answer


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
        assert re.fullmatch(r"the recording of process \d+ on \S+ stops at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}, last seen in turns \(<string>:\d\), and has no end: " + WHY, answer), answer
        (row,), = [t for t in tables if t]
        assert row["stops"] in answer and str(row["pid"]) in answer and row["file"].endswith("copy.zst")
    run([build.tool("probing-convert"), "-q", trace, tmp_path / "t.db"])
    # The signal is known while the process is a zombie, which depends on who collects orphans on this machine.
    assert re.match(r"process \d+ on .*: killed by (signal 9 \(SIGKILL\)|a signal that left no record: .*), last seen in turns", ask(build, run, "died", tmp_path / "t.db")[0])


def test_recordings_without_an_end(build, run, simulated_job, tmp_path, sql):
    """Of several, the first to stop is named. If a process is known to have died, they are mentioned besides. A recording that continues in
    another trace has an end."""
    db, stops = simulated_job("--seed", 1) / "out.db", "UPDATE trace_file SET end_reason = NULL, complete = 0, end_ts = end_ts - iif(rank = 2, 2000000000, 1000000000) WHERE rank IN (2, 5);"
    answer, tables = ask(build, run, "died", edited(db, tmp_path, stops))
    assert re.match(r"2 recordings have no end; that of rank 2 \(process \d+\) on node\d+ is the first to stop, at \S+ \S+, last seen in .+ \(.+\): " + WHY, answer), answer
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
    assert re.match(r"rank 6 \(process \d+\) on node\d+ at .*: os\._exit\(\) while others waited for it, last seen in .+ \(.+\.py:\d+\)$", answer), answer
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
