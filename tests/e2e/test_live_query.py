# SPDX-License-Identifier: Apache-2.0
"""`probing -t PID query|memory|flamegraph`, the pid as the first word, ENDPOINT: a recording that goes on is asked."""
import json
import os
import re
import sqlite3
import subprocess
import sys
import time

import pytest
from test_console import wait_until

PROGRAM = """
import time
def beat(n):
    sum(range(300000)); time.sleep(0.01)
def work():
    print("ready", flush=True)
    while True:
        beat(1)
work()
"""


@pytest.fixture
def target(build, run, spawn, tmp_path):
    (tmp_path / "beat.py").write_text(PROGRAM)
    recorder = spawn([build.tool("probing-record"), "-r", "100", "-o", tmp_path / "t.zst", sys.executable, tmp_path / "beat.py"], ready="ready")
    wait_until(lambda: any(p["samples"] > 50 for p in json.loads(run([build.tool("probing"), "list", "--json"], check=None).stdout)))
    children = subprocess.run(["pgrep", "-P", str(recorder.pid)], stdout=subprocess.PIPE, universal_newlines=True)
    return int(children.stdout.split()[0])


def test_every_form(build, run, target, sql, tmp_path):
    probing = build.tool("probing")
    query = "SELECT func, lineno, depth FROM python.backtrace WHERE frame_type = 'Python' ORDER BY depth"
    forms = [([probing, "-t", target, "query", "--json", query], None), ([probing, target, "query", "--json", query], None),
             ([probing, "query", "-t", target, "--json", query], None), ([probing, "query", "--json", target, query], None), ([probing, "query", "--json", query], str(target))]
    for command, endpoint in forms:
        env = dict(os.environ, **({"ENDPOINT": endpoint} if endpoint else {}))
        frames = json.loads(run(command, env=env).stdout)  # now, the main thread, innermost first
        assert [f["func"] for f in frames][-2:] == ["work", "<module>"], frames
        assert frames[-1]["lineno"] == 9
    # Every command that reads a database takes the number of a process for what it records.
    assert "beat (" in run([probing, "ask", "time", target]).stdout and "work" in run([probing, "stacks", target]).stdout
    assert re.search(r"work.*beat.* \d+\n", run([probing, "flamegraph", "--folded", target]).stdout)
    run([probing, target, "eval", "'still ' + 'here'"])
    assert run([probing, "eval", "6 * 7"], env=dict(os.environ, ENDPOINT=str(target))).stdout == "42\n"
    assert "work" in run([probing, target, "backtrace", "--main"]).stdout
    assert re.search(r"work.*beat.* \d+\n", run([probing, target, "flamegraph", "--folded"]).stdout)
    memory = json.loads(run([probing, "-t", target, "memory", "--json"]).stdout)
    assert memory and all(row["rss_mb"] > 3 for row in memory)


def test_what_was_recorded_until_now(build, run, target):
    query = [build.tool("probing"), target, "query", "--csv", "SELECT sum(count) AS n, max(timestamp) AS last, now() AS now FROM samples"]
    first, second = (run(query).stdout.split()[1].split(",") for _ in range(2))
    assert int(second[0]) > int(first[0]) > 0
    assert float(second[2]) > float(first[2]) and 0 <= float(second[2]) - float(second[1]) < 5


def test_refusals(build, run, target, tmp_path):
    probing = build.tool("probing")
    assert "is not being recorded" in run([probing, "-t", os.getpid(), "query", "SELECT 1"], check=3).stderr
    assert "is no process id" in run([probing, "-t", "me", "query", "SELECT 1"], check=2).stderr
    assert "no such table" in run([probing, target, "query", "SELECT * FROM no_table"], check=3).stderr
    # A file that is named is asked, whatever ENDPOINT says.
    done = run([probing, "query", "--csv", tmp_path / "t.zst", "SELECT count(*) > 0 AS a FROM backtrace"], env=dict(os.environ, ENDPOINT="1"))
    assert done.stdout.split() == ["a", "1"]


BECOMES = """
import os, sys
print("ready", flush=True)
sys.stdin.readline()
os.execvp("sleep", ["sleep", "600"])
"""


def test_a_pid_that_is_another_program_by_now(build, run, spawn, tmp_path):
    """After an exec nothing of what was recorded is said of the new program."""
    probing = build.tool("probing")
    (tmp_path / "becomes.py").write_text(BECOMES)
    process = spawn([sys.executable, tmp_path / "becomes.py"], ready="ready", stdin=subprocess.PIPE)
    run([probing, "-t", process.pid, "inject", "-o", tmp_path / "b.zst"])
    assert run([probing, process.pid, "query", "--csv", "SELECT count(*) > 0 AS a FROM process"]).stdout.split() == ["a", "1"]
    process.stdin.write(b"go\n")
    process.stdin.flush()
    while open("/proc/%d/comm" % process.pid).read() != "sleep\n":
        time.sleep(0.01)
    for words in (["query", "SELECT * FROM python.backtrace"], ["memory"], ["flamegraph", "--folded"]):
        done = run([probing, process.pid] + words, check=3)
        assert done.stdout == "" and "process %d is not being recorded (begin: " % process.pid in done.stderr and len(done.stderr.splitlines()) == 1
    dead = [row for row in json.loads(run([probing, "list", "--json"]).stdout) if row["pid"] == process.pid]
    assert [row["state"] for row in dead] == ["dead"]
    assert subprocess.run(["pgrep", "-f", str(tmp_path / "cache")], stdout=subprocess.PIPE).stdout == b""


def test_a_process_that_dies_during_the_query(build, run, target, tmp_path):
    """What it recorded is answered, or one line says why not; once it is gone, that is said."""
    probing = str(build.tool("probing"))
    numbers = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 1000000) SELECT count(*) AS n, (SELECT count(*) > 0 FROM samples) AS a FROM c"
    run([probing, target, "query", "SELECT 1"])  # the trace has samples from here on
    asked = [subprocess.Popen([probing, str(target), "query", "--csv", sql], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
             for sql in (numbers, "SELECT count(*) > 0 AS a FROM python.backtrace", numbers)]
    os.kill(target, 9)
    for process, answer in zip(asked, ("n,a 1000000,1", "a 1", "n,a 1000000,1")):
        out, err = process.communicate(timeout=60)
        assert (process.returncode, " ".join(out.split())) in ((0, answer), (3, "")) and len(err.splitlines()) <= 1, (out, err)
        assert process.returncode == 0 or err
    while os.path.exists("/proc/%d" % target):
        time.sleep(0.01)
    assert "process %d is not being recorded" % target in run([probing, target, "query", "SELECT 1"], check=3).stderr
    assert [name for name in os.listdir(os.environ["PROBING_RUN_DIR"]) if not name.endswith(".live")] == []


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("PROBING_CACHE_DIR", str(folder))
    return folder


def kept(cache):
    """The one database that is there, as if the last question had been long ago."""
    database, = cache.glob("*.db")
    os.utime(str(database), (1, 1))
    return database


def test_what_came_since_is_added_to_the_database_of_the_question_before(build, run, target, cache, sql):
    """The process is asked to write out what it has, and the database goes on: it is the same file, and has nothing twice."""
    probing = build.tool("probing")
    ask = lambda text: run([probing, target, "query", "--csv", text]).stdout.split()[1]  # noqa: E731
    count = int(ask("SELECT sum(count) AS n FROM samples"))
    database = kept(cache)
    inode = os.stat(str(database)).st_ino
    ids = sql(database, "SELECT id, ts, stack FROM sample")
    for n in range(3):
        run([probing, target, "eval", "import sys; sys.path.insert(0, %r); import probing; probing.event('told', n=%d)" % (str(build.share / "python"), n)])
        assert ask("SELECT group_concat(value, '') AS n FROM event_value v JOIN event e ON e.id = v.event WHERE e.name = 'told'") == "012"[:n + 1]
        assert os.stat(str(kept(cache))).st_ino == inode
    assert int(ask("SELECT sum(count) AS n FROM samples")) > count
    assert set(ids) <= set(sql(database, "SELECT id, ts, stack FROM sample"))
    assert sql(database, "SELECT count(*), count(DISTINCT id) FROM trace_file") == [(1, 1)]
    assert sql(database, "SELECT sum(samples) FROM stack_total") == sql(database, "SELECT count(*) FROM sample")
    # Without one it is answered all the same, and one that is none of ours is left alone.
    assert int(run([probing, target, "query", "--no-cache", "--csv", "SELECT sum(count) AS n FROM samples"]).stdout.split()[1]) > count


def test_a_question_right_after_another(build, run, target, cache):
    """Its answer is the database as it is, whoever else asks: nothing is written."""
    probing = build.tool("probing")
    query = [probing, target, "query", "--csv", "SELECT sum(count) AS n FROM samples"]
    run(query)
    database = kept(cache)
    asked = time.time() + 3600 # for the test, its answers are from later: no question is so slow that they are old
    with open(str(database), "rb") as f:
        before = f.read()
    os.utime(str(database), (asked, asked))
    assert run(query).returncode == 0 # from the future: not believed
    assert kept(cache) == database
    with open(str(database), "rb") as f:
        assert f.read() != before


def test_many_questions_at_once(build, run, target, cache, sql):
    probing = build.tool("probing")
    query = [str(w) for w in (probing, target, "query", "--csv", "SELECT count(*) = count(DISTINCT (id >> 40) || thread || ts) AS a FROM sample WHERE count > 0")]
    for _ in range(2):
        all_of_them = [subprocess.Popen(query, stdout=subprocess.PIPE, universal_newlines=True) for _ in range(4)]
        assert [p.communicate()[0].split() for p in all_of_them] == [["a", "1"]] * 4
        assert [p.returncode for p in all_of_them] == [0] * 4
    assert sql(kept(cache), "PRAGMA integrity_check") == [("ok",)]


def test_what_another_recording_left_there(build, run, target, cache, sql):
    """A database that holds a trace that is not there any more is made anew."""
    probing = build.tool("probing")
    run([probing, target, "query", "SELECT 1"])
    database = kept(cache)
    with sqlite3.connect(str(database)) as c:
        c.execute("UPDATE trace_file SET recording = 'another ' || recording")
    kept(cache)
    assert run([probing, target, "query", "--csv", "SELECT count(*) AS n FROM trace"]).stdout.split() == ["n", "1"]
    assert kept(cache) == database and sql(database, "SELECT count(*) FROM trace_file WHERE recording LIKE 'another%'") == [(0,)]
