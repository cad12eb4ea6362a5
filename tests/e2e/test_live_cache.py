# SPDX-License-Identifier: Apache-2.0
"""The database of the last question: the next question about a live process adds what was recorded since, and gets the same answers as from a
complete conversion."""
import json
import os
import re
import signal
import sqlite3
import struct
import subprocess
import sys
import time

import pytest
from live_helpers import PROGRAM, cache, kept, stop, target  # noqa: F401
from test_console import wait_until
from test_torch import find_torch


def test_what_came_since_is_added_to_the_database_of_the_question_before(build, run, target, cache, sql):
    """The process is asked to write out its records, and they are added to the database: it is the same file, and nothing is in it twice."""
    probing = build.tool("probing")
    ask = lambda text: run([probing, target, "query", "--csv", text]).stdout.split()[1]  # noqa: E731
    count = int(ask("SELECT sum(count) AS n FROM samples WHERE (SELECT count(*) FROM loss) >= 0"))  # the view loss is about all records, so all of them become rows
    database = kept(cache)
    inode = os.stat(str(database)).st_ino
    ids = sql(database, "SELECT id, ts, stack FROM sample")
    for n in range(3):
        run([probing, target, "eval", "--timeout", "200", "import sys; sys.path.insert(0, %r); import probing; probing.event('told', n=%d)" % (str(build.share / "python"), n)])
        assert ask("SELECT group_concat(value, '') AS n FROM event_value v JOIN event e ON e.id = v.event WHERE e.name = 'told'") == "012"[:n + 1]
        assert os.stat(str(kept(cache))).st_ino == inode
    wait_until(lambda: int(ask("SELECT sum(count) AS n FROM samples")) > count)
    assert set(ids) <= set(sql(database, "SELECT id, ts, stack FROM sample"))
    assert sql(database, "SELECT count(*), count(DISTINCT id) FROM trace_file") == [(1, 1)]
    assert sql(database, "SELECT sum(samples) FROM stack_total") == sql(database, "SELECT count(*) FROM sample")
    # Without a cache the question is answered, too, and a database that is not ours is left alone.
    assert int(run([probing, target, "query", "--no-cache", "--csv", "SELECT sum(count) AS n FROM samples"]).stdout.split()[1]) > count


SEGMENTS = """
import threading, time
exec("\\n".join("def f%d(n):\\n    return f%d(n - 1) if n else time.sleep(0.001)" % (i, (i * 7 + 3) % 1000) for i in range(1000)))
def work():
    for i in range(10 ** 9):
        globals()["f%d" % (i % 1000)](10 + i % 13)
threading.Thread(target=work, name="second", daemon=True).start()
print("ready", flush=True)
time.sleep(600)
"""


def test_a_recording_that_goes_on_in_a_new_file(build, run, spawn, cache, sql, tmp_path, monkeypatch):
    """The database is the process's, not the file's: what the new file holds is added to it, and the old files are not read anew."""
    monkeypatch.setenv("PROBING_SEGMENT_SIZE", "64K")
    (tmp_path / "s.py").write_text(SEGMENTS)
    recorder = spawn([build.tool("probing-record"), "-q", "-r", "1000", "-o", tmp_path / "t.zst", sys.executable, tmp_path / "s.py"], ready="ready")
    pid = int(subprocess.check_output(["pgrep", "-P", str(recorder.pid)]).split()[0])
    segments = lambda: len(list(tmp_path.glob("t.zst.d/*.zst")))  # noqa: E731
    sums = "SELECT sum(count), count(*), count(DISTINCT stack_id) FROM samples WHERE (SELECT count(*) FROM loss) >= 0"
    ask = lambda *how: run([build.tool("probing"), pid, "query", "--csv", *how, sums]).stdout.split()[1]  # noqa: E731
    wait_until(lambda: ask() and segments())
    ask()
    inode, n = os.stat(str(kept(cache))).st_ino, segments()
    wait_until(lambda: segments() > n)
    ask()  # if it comes before the new file says whose it is, it is answered without the database, and has that written
    kept(cache)
    ask()
    assert os.stat(str(kept(cache))).st_ino == inode and sql(kept(cache), "SELECT count(*) FROM trace_file")[0][0] > n + 1
    stop(pid)
    ask()
    kept(cache)
    assert ask() == ask("--no-cache") and os.stat(str(kept(cache))).st_ino == inode
    os.kill(pid, signal.SIGKILL)


LEARNS = """
import time, probing
def train(loss):
    probing.step()
print("ready", flush=True)
n = 0
while True:
    n += 1
    train(float(n))
    time.sleep(0.005)
"""


def test_views_that_a_conversion_stores(build, run, spawn, cache, sql, tmp_path):
    """While a recording goes on, stored views are not made anew for each question, which took longer than everything else; a question that
    reads one gets what is true then."""
    probing, stored = build.tool("probing"), ("collective", "hang", "straggler", "training_log")
    (tmp_path / "learns.py").write_text(LEARNS)
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    recorder = spawn([build.tool("probing-record"), "-q", "--exprs", "loss@train", "-o", tmp_path / "t.zst", sys.executable, tmp_path / "learns.py"], ready="ready", env=env)
    pid = int(subprocess.check_output(["pgrep", "-P", str(recorder.pid)]).split()[0])
    ask = lambda text: [int(n) for n in run([probing, pid, "query", "--csv", text]).stdout.splitlines()[1].split(",")]  # noqa: E731
    steps = []

    def further():
        log, variables, _, _, _ = ask("SELECT (SELECT count(*) FROM training_logs), (SELECT count(DISTINCT step) FROM variables WHERE step IS NOT NULL),"
                                      " (SELECT count(*) FROM collectives), (SELECT count(*) FROM stragglers), (SELECT count(*) FROM hangs)")
        assert log == variables
        steps.append(log)
        kept(cache)
        return any(0 < step < steps[-1] for step in steps)

    wait_until(further)
    assert {(name, kind) for name, kind in sql(kept(cache), "SELECT name, type FROM sqlite_master") if name in stored} == {(name, "view") for name in stored}


def test_a_question_right_after_another(build, run, target, cache):
    """It is answered from the database as it is, whoever else asks: nothing is written."""
    probing = build.tool("probing")
    query = [probing, target, "query", "--csv", "SELECT sum(count) AS n FROM samples"]
    run(query)
    database = kept(cache)
    asked = time.time() + 3600 # pretend that the answers are from later, so that they are not too old, however slow the questions are
    with open(str(database), "rb") as f:
        before = f.read()

    def is_added_to():  # a time in the future is not trusted; on a busy machine there may be nothing new yet
        os.utime(str(database), (asked, asked))
        assert run(query).returncode == 0 and kept(cache) == database
        with open(str(database), "rb") as f:
            return f.read() != before
    wait_until(is_added_to)


def test_many_questions_at_once(build, run, target, cache, sql):
    probing = build.tool("probing")
    query = [str(w) for w in (probing, target, "query", "--csv", "SELECT count(*) = count(DISTINCT (id >> 40) || thread || ts) AS a FROM sample WHERE count > 0")]
    for _ in range(2):
        all_of_them = [subprocess.Popen(query, stdout=subprocess.PIPE, universal_newlines=True) for _ in range(4)]
        assert [p.communicate()[0].split() for p in all_of_them] == [["a", "1"]] * 4
        assert [p.returncode for p in all_of_them] == [0] * 4
    assert sql(kept(cache), "PRAGMA integrity_check") == [("ok",)]


def test_what_another_recording_left_there(build, run, target, cache, sql):
    """A database that contains a trace that does not exist any more is made anew."""
    probing = build.tool("probing")
    run([probing, target, "query", "SELECT count(*) FROM trace"])
    database = kept(cache)
    with sqlite3.connect(str(database)) as c:
        c.execute("UPDATE trace_file SET recording = 'another ' || recording")
    kept(cache)
    assert run([probing, target, "query", "--csv", "SELECT count(*) AS n FROM trace"]).stdout.split() == ["n", "1"]
    assert kept(cache) == database and sql(database, "SELECT count(*) FROM trace_file WHERE recording LIKE 'another%'") == [(0,)]


def test_what_a_first_question_does_not_need(build, run, target, cache, sql):
    """A first question does not spend time on what it does not need: the C library's debug information is not decompressed, and no network
    library is loaded. The names python.* exist if a question uses them."""
    probing = build.tool("probing")
    done = run([probing, target, "query", "SELECT count(*) AS n FROM samples"], env=dict(os.environ, LD_DEBUG="files"))
    assert "libsqlite3" in done.stderr and "libdebuginfod" not in done.stderr and "libcurl" not in done.stderr
    assert sql(kept(cache), "SELECT count(*) FROM frame r JOIN function f ON f.id = r.function WHERE f.module LIKE '%/libc.so%' AND r.file IS NOT NULL") == [(0,)]
    for query in ("SELECT count(*) > 0 AS a FROM python.samples", "SELECT count(*) AS a FROM information_schema.schemata WHERE schema_name LIKE 'py%'"):
        assert run([probing, target, "query", "--csv", query]).stdout.split() == ["a", "1"]


def test_a_question_about_no_stack_reads_none(build, run, target, cache, sql):
    """No native frame is named either, which takes longer than everything else in a first question; the answers are those of a complete
    conversion. A question is about stacks even if it only names a column that two views have in common, or only counts a table."""
    def ask(query):
        for old in cache.glob("*.db"):
            os.unlink(str(old))
        said = json.loads(run([build.tool("probing"), "-t", target, "query", "--json", query]).stdout)[0]
        return said, sql(kept(cache), "SELECT count(*) > 0 FROM stack") == [(1,)], sql(kept(cache), "SELECT count(*) > 0 FROM function")[0][0]

    ask("SELECT count(*) AS n FROM samples")  # makes the process write out its records
    stop(target)
    try:
        all_of = "SELECT count(*) AS n, sum(count) AS ticks, sum(seconds) AS s, sum(cpu_seconds) AS cpu, count(DISTINCT tid) AS threads, sum(state = 'idle') AS idle%s FROM %s"
        said, has_stacks, functions = ask(all_of % ("", "samples"))
        assert said["ticks"] > 50 and (has_stacks, functions) == (False, 0)
        whole, has_stacks, functions = ask(all_of % (", count(stack_id) > 0 AS stacks", "samples"))
        assert whole == dict(said, stacks=1) and (has_stacks, functions) == (True, 1)
        assert ask(all_of % ("", "python.samples"))[:2] == (said, False)
        assert ask("SELECT sum(samples) AS n FROM threads")[0] == {"n": said["ticks"]}
        for query in ("samples a JOIN samples b USING (stack_id)", "samples NATURAL JOIN (SELECT DISTINCT stack_id FROM samples)", "stack", "samples, stack LIMIT 1"):
            n, has_stacks, _ = ask("SELECT count(*) > 0 AS n FROM " + query)
            assert n == {"n": 1} and has_stacks, query
    finally:
        os.kill(target, signal.SIGCONT)


def test_sums_by_function_take_no_stack(build, run, target, cache, sql, tmp_path):
    """The question which function took how long is answered without a row for a stack or a line, as a complete conversion answers it; also
    after records were added."""
    def ask(of, query, *more):
        return json.loads(run([build.tool("probing"), "query", "--json", *more, of, query]).stdout)

    for query in ("SELECT * FROM hot_functions", "SELECT f.type, f.name, f.file, f.firstline, f.module, s.* FROM function_total s JOIN function f ON f.id = s.function"):
        for old in cache.glob("*.db"):
            old.unlink()
        for _ in range(3):
            seen = sum(row["self"] for row in ask(target, query))
            wait_until(lambda: kept(cache) and sum(row["self"] for row in ask(target, query)) > seen)
            stop(target)
            try:
                kept(cache)
                live, whole = [without_what_differs("function", rows) for rows in (ask(target, query), ask(tmp_path / "t.zst", query, "--no-cache"))]
            finally:
                os.kill(target, signal.SIGCONT)
            assert live == whole and any("'work'" in row for row in live)
        # The sums of all traces together are stored once, and not also for each trace; and no statistics are stored for the planner of
        # larger tables.
        assert sql(kept(cache), "SELECT min(trace), max(trace), (SELECT count(*) FROM sqlite_master WHERE name IN ('sqlite_stat1', 'comm_ts')) FROM function_total") == [
            (0, 0, 0) if "hot" in query else (1, 1, 0)]
        assert sql(kept(cache), "SELECT (SELECT count(*) FROM stack), (SELECT count(*) FROM part), (SELECT count(*) FROM frame), (SELECT count(*) FROM stack_total),"
                                " (SELECT count(*) FROM function_total) > 0") == [(0, 0, 0, 0, 1)]


def test_of_the_names_python_those_that_are_asked_for_are_made(build, run, target, cache):
    """Each view is planned when it is made, which for all of them takes seconds, more than the question itself. Those of an earlier
    question stay right."""
    made = "SELECT group_concat(name) AS a FROM pragma_table_list WHERE schema = 'python' AND name NOT LIKE 'sqlite%' /* python.backtrace */"
    names = json.loads(run([build.tool("probing"), "-t", target, "query", "--json", made]).stdout)[0]["a"].split(",")
    assert "backtrace" in names and len(names) < 4, names
    asked = json.loads(run([build.tool("probing"), "-t", target, "query", "--json",
                            "SELECT (SELECT count(*) FROM python.backtrace) > 0 AS a, (SELECT count(*) FROM python.trace) AS b"]).stdout)
    assert asked == [{"a": 1, "b": 1}], asked


def test_a_first_question_makes_rows_of_what_it_is_about(build, run, target, cache, sql):
    """Rows for the other records of a long recording would take seconds. What the trace says of itself is there completely, and what is
    recorded later is added. A question that needs all records makes rows of all, and from then on all are added."""
    def ask(query, count=1):
        said = json.loads(run([build.tool("probing"), "-t", target, "query", "--json", query]).stdout)
        assert len(list(cache.glob("*.db"))) == count
        return said[0]

    of_all = "SELECT lost >= 0 AS a, records > 50 AS b, now() > start + 0.1 AS c FROM trace"
    # A question about nothing that was recorded needs no database at all.
    assert ask("SELECT count(*) AS n FROM python.backtrace WHERE func = 'work'", 0) == {"n": 1}
    assert ask("SELECT abs(strftime('%s', 'now') - now()) < 100 AS n, (SELECT max(depth) >= 0 FROM python.backtrace) AS a", 0) == {"n": 1, "a": 1}
    assert ask("SELECT pid > 0 AS n FROM trace") == {"n": 1}
    none = kept(cache)
    assert sql(none, "SELECT (SELECT count(*) FROM sample), (SELECT count(*) FROM memory_sample), (SELECT count(*) FROM module)") == [(0, 0, 0)]
    assert ask("PRAGMA table_info(trace)")["name"] == "id"
    first = ask("SELECT count(*) AS n, max(rss) > 0 AS a FROM memory_usage", 2)
    metrics, = set(cache.glob("*.db")) - {none}
    assert first["a"] == 1 and sql(metrics, "SELECT (SELECT count(*) FROM sample), (SELECT sum(records) > 50 FROM trace_file)") == [(0, 1)]
    wait_until(lambda: ask("SELECT count(*) AS n FROM python.memory_usage", 2)["n"] > first["n"])  # the database of that question goes on, too
    samples = ask("SELECT sum(self) AS n, max(func = 'work') AS a FROM hot_functions", 3)
    assert samples["n"] > 50 and samples["a"] == 1
    wait_until(lambda: ask("SELECT sum(self) AS n FROM hot_functions", 3)["n"] > samples["n"])  # sums that are updated as records come
    assert ask("SELECT count(*) AS n FROM threads, loss", 4) and ask(of_all, 4) == {"a": 1, "b": 1, "c": 1}
    assert ask("SELECT (SELECT sum(count) FROM samples) > 50 AS a, (SELECT count(*) FROM memory_usage) > 0 AS b", 4) == {"a": 1, "b": 1}


def test_sums_by_function_of_one_process_and_of_several(build, run, spawn, cache, tmp_path):
    """For one trace the sums are stored once; with a second trace those of all traces are added, and updated from then on."""
    (tmp_path / "beat.py").write_text("import os, subprocess, sys\n"
                                      "def second():\n    if os.path.exists('go'):\n        os.unlink('go')\n"
                                      "        subprocess.Popen([sys.executable, __file__])\n"
                                      + PROGRAM.replace("        beat(1)\n", "        beat(1)\n        second()\n"))
    spawn([build.tool("probing-record"), "-r", "100", "-o", tmp_path / "t.zst", sys.executable, tmp_path / "beat.py"], ready="ready")
    sums = ("SELECT (SELECT count(*) FROM trace) AS traces, (SELECT count(*) FROM (SELECT function, sum(self), sum(total), sum(leaf_ns) FROM function_total"
            " WHERE trace > 0 GROUP BY 1 EXCEPT SELECT function, self, total, leaf_ns FROM function_total WHERE trace = (SELECT min(trace) FROM function_total)))"
            " AS differ, (SELECT sum(self) FROM hot_functions) AS n, (SELECT sum(count) FROM samples WHERE func IS NOT NULL) AS of_samples")

    def grown(traces, than):
        found = []

        def asked():
            found[:] = json.loads(run([build.tool("probing"), "query", "--json", tmp_path / "t.zst", sums]).stdout)
            return found[0]["traces"] == traces and (found[0]["n"] or 0) > than
        wait_until(asked)
        assert found[0]["differ"] == 0 and found[0]["n"] == found[0]["of_samples"], found
        return found[0]["n"]

    n = grown(1, grown(1, 20))
    (tmp_path / "go").write_text("")
    grown(2, grown(2, grown(2, n)))


def test_what_is_kept_of_a_text_is_believed_where_it_is_whole(build, run, target, cache, sql):
    """Which records a text asks about is computed once and stored. A table that is damaged, or that others may write, is not used."""
    query = "SELECT (SELECT count(*) > 0 FROM samples) AS samples, (SELECT count(*) > 0 FROM memory_usage) AS memory"

    def asked(expected=[{"samples": 1, "memory": 1}]):
        for db in cache.glob("*.db"):
            db.unlink()  # so that this is a first question
        assert json.loads(run([build.tool("probing"), "-t", target, "query", "--json", query]).stdout) == expected
    asked()
    numbers = cache / "numbers"
    assert numbers.stat().st_mode & 0o777 == 0o600
    was = numbers.read_bytes()
    at = next(i for i in range(0, len(was), 24) if any(was[i:i + 24]))  # its slot: the text, the number and the check
    asked()
    assert numbers.read_bytes() == was
    numbers.write_bytes(was[:at + 8] + struct.pack("<Q", 1 << 40) + was[at + 16:])
    asked()
    assert numbers.read_bytes() == was  # it was corrected
    numbers.write_bytes(os.urandom(len(was)))
    asked()
    numbers.unlink()
    numbers.mkdir()
    asked()


@pytest.mark.slow
def test_views_that_a_question_cannot_be_about(build, run, target, cache, sql):
    """When SQLite opens a database it parses each view, which took longer than everything else in most answers: so only the views that a
    question asks for exist. Whatever is asked next, or lists the views, finds all of them."""
    probing = build.tool("probing")
    views = lambda db: {name for name, in sql(db, "SELECT name FROM sqlite_master WHERE type = 'view'")}  # noqa: E731
    ask = lambda text: run([probing, target, "query", "--csv", text]).stdout.split()  # noqa: E731
    assert ask("SELECT count(*) AS n FROM trace") == ["n", "1"]
    database = kept(cache)
    assert "trace" in views(database) and not views(database) & {"hangs", "stragglers", "torch_trace", "process"}
    assert ask("SELECT count(*) > 0 AS n FROM \"Process\"") == ["n", "1"]  # needs the same records, so the view is added, and the first one stays
    assert kept(cache) == database and {"trace", "process"} <= views(database)
    everything = set(run([probing, "query", "--csv", "--no-cache", database.parent.parent / "t.zst",
                          "SELECT name FROM sqlite_master WHERE type = 'view'"]).stdout.split()) - {"name"}
    for text in ("SELECT name FROM main.sqlite_master", "SHOW TABLES", "SELECT table_name FROM information_schema.tables", "PRAGMA table_list"):
        for old in cache.glob("*.db"):
            os.unlink(str(old))
        assert everything <= set(re.split("[\\s,]+", run([probing, target, "query", "--csv", text]).stdout)), text
    for text in ("system.process", "cluster.nodes", "python.memory", "python.'trace'"):
        for old in cache.glob("*.db"):
            os.unlink(str(old))
        assert ask("SELECT count(*) > 0 AS a FROM " + text) == ["a", "1"], text


def test_what_the_planner_knows_is_counted_anew_when_there_is_more(build, run, target, cache, sql):
    """ANALYZE reads all tables, so it runs after the trace has grown by a quarter, and not for each question (which happened when a
    question's records have no metrics)."""
    ask = lambda: run([build.tool("probing"), target, "query", "--csv", "SELECT count(*) AS n FROM samples"])  # noqa: E731
    stat = lambda: sql(kept(cache), "SELECT stat FROM sqlite_stat1 WHERE tbl = 'thread'")  # noqa: E731
    ask()
    for known, again in (("1" + "0" * 12, False), ("1", True)):
        with sqlite3.connect(str(kept(cache))) as c:
            c.execute("UPDATE sqlite_stat1 SET stat = ? WHERE tbl = 'bytes'", [known])
            c.execute("UPDATE sqlite_stat1 SET stat = '123456 7 1' WHERE tbl = 'thread'")
        read, = sql(kept(cache), "SELECT bytes FROM trace_file")
        wait_until(lambda: ask() and sql(kept(cache), "SELECT bytes FROM trace_file")[0] > read)
        assert (stat() != [("123456 7 1",)]) == again


TRAINS = """
import time, torch, probing
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)).eval()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def rate(score):
    with torch.no_grad():
        for _ in range(5):
            net(torch.ones(1, 4))
            probing.event("rated")
            time.sleep(0.05)
def train(loss):
    net(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    probing.event("trained")
while "__init_subclass__" not in vars(torch.nn.Module): time.sleep(0.01)  # until modules' calls are seen
rate(1.0)
net.train()
for n in range(20):
    train(float(n))
    time.sleep(0.01)
print("done", flush=True)
time.sleep(600)
"""


def test_steps_and_their_numbers_without_torchs_calls(build, run, spawn, cache, sql, tmp_path):
    """Steps, and numbers of steps, are those of a complete conversion: evaluation before the first step has none. Calls need no rows for
    that, and what a trace says of itself is read without a block of data."""
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    (tmp_path / "trains.py").write_text(TRAINS)
    recorder = spawn([build.tool("probing-record"), "--exprs", "loss@train,score@rate", "-o", tmp_path / "t.zst", python, tmp_path / "trains.py"], ready="done",
                     env=dict(os.environ, PYTHONPATH=str(build.share / "python"), OMP_NUM_THREADS="1", PROBING_TRIGGERS="slow_step:3"))
    target = subprocess.run(["pgrep", "-P", str(recorder.pid)], stdout=subprocess.PIPE, universal_newlines=True).stdout.split()[0]
    # The step that is under way at the end becomes a slow one. From then on nothing is added to the database that is asked.
    wait_until(lambda: run([build.tool("probing"), "-t", target, "query", "--csv", "--no-cache", "SELECT kind, step FROM triggers"]).stdout.endswith("slow_step,20\n"))
    for query, calls in (("SELECT name, step FROM events ORDER BY timestamp", 0), ("SELECT step, data FROM training_logs ORDER BY step", 0),
                         ("SELECT step, source, duration, forward, backward, optimizer, data FROM steps WHERE duration IS NOT NULL ORDER BY timestamp", 0),
                         ("SELECT step, module, stage, duration FROM torch_trace WHERE module <> '[unknown]' ORDER BY timestamp, module, stage", 1),
                         ("SELECT name, value FROM information_schema.df_settings", 0), ("SELECT kind, step FROM triggers", 0)):
        before = set(cache.glob("*.db"))
        asked, whole = [run([build.tool("probing"), "-t", target, "query", "--csv"] + more + [query]).stdout for more in ([], ["--no-cache"])]
        assert asked == whole and asked.count("\n") > 1, query
        made = list(set(cache.glob("*.db")) - before)
        assert all((sql(db, "SELECT count(*) > 0 FROM torch_call") == [(calls,)]) for db in made) and (made or "training_logs" in query), query
        if "events" in query:
            assert asked.split()[1:5] == ["rated,"] * 4 and asked.split()[-1] == "trained,20", asked
        if "df_settings" in query:
            assert sql(made[0], "SELECT (SELECT count(*) FROM cpu), (SELECT count(*) FROM torch_step)") == [(0, 0)]


LONG_TRAINING = """
import os, sys, time, torch
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def train(steps):
    for n in range(steps):
        net(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        time.sleep(0.004)
while "__init_subclass__" not in vars(torch.nn.Module): time.sleep(0.01)  # until modules' calls are seen
train(300)
print("half", flush=True)
while not os.path.exists(sys.argv[1] + "/go_on"): time.sleep(0.01)
train(40)
open(sys.argv[1] + "/done", "w").close()
time.sleep(600)
"""


def test_the_last_calls_are_enough_for_a_question_about_them(build, run, spawn, cache, sql, tmp_path):
    """Of the calls of a long training only those of the last steps become rows, if no others can be in the answer, which is that of a
    complete conversion. If others might be in it, or the question does not plainly have that form, all calls become rows."""
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    (tmp_path / "long.py").write_text(LONG_TRAINING)
    recorder = spawn([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", python, tmp_path / "long.py", tmp_path], ready="half",
                     env=dict(os.environ, PYTHONPATH=str(build.share / "python"), OMP_NUM_THREADS="1"))
    pid = int(subprocess.check_output(["pgrep", "-P", str(recorder.pid)]).split()[0])
    ask = lambda query, *more: run([build.tool("probing"), "query", "--csv"] + list(more) + [pid, query]).stdout  # noqa: E731
    few = ("SELECT step, module, stage, duration FROM python.torch_trace ORDER BY step DESC, seq LIMIT 10", "select * from torch_trace order by step desc, timestamp asc limit 60;",
           "SELECT parent, step , thread FROM main.torch_trace -- calls\n ORDER BY step DESC, seq DESC LIMIT 1")
    whole = ("SELECT step, module FROM torch_trace ORDER BY step DESC, seq LIMIT 1000",  # asks for more rows than the last steps have
             "SELECT step, module, duration FROM torch_trace ORDER BY step DESC, seq LIMIT 5 OFFSET 700", "SELECT step, seq FROM torch_trace ORDER BY step, seq LIMIT 5",
             "SELECT seq AS step, module FROM torch_trace ORDER BY step DESC, module LIMIT 5", "SELECT seq step, module FROM torch_trace ORDER BY step DESC, module LIMIT 5",
             "SELECT count(*) FROM torch_trace ORDER BY step DESC LIMIT 5", "SELECT DISTINCT module FROM torch_trace ORDER BY step DESC LIMIT 9",
             "SELECT step, seq FROM torch_trace ORDER BY step DESC NULLS FIRST, seq LIMIT 5", "SELECT step, seq FROM torch_trace WHERE step < 9 ORDER BY step DESC, seq LIMIT 5",
             "SELECT step, seq FROM torch_trace ORDER BY step DESC, seq", "SELECT max(n) FROM (SELECT count(*) AS n FROM torch_trace GROUP BY step ORDER BY step DESC LIMIT 5)")
    count = lambda: int(ask("SELECT count(*) AS n FROM steps").split()[1])  # noqa: E731
    wait_until(lambda: count() > 110)
    at_first = count()
    made = lambda: max(n for database in cache.glob("*.db") for n, in sql(database, "SELECT count(*) FROM torch_call WHERE stage < 2"))  # noqa: E731
    for queries in (few, few, whole):
        for query in queries:
            for database in cache.glob("*.db"):
                os.utime(str(database), (1, 1))
            assert ask(query) == ask(query, "--no-cache"), query
            if not (tmp_path / "go_on").exists() and query == few[0]:
                assert 1 <= made() <= 64 * 6 + 60
        if queries is few:  # the recording goes on, and so does its database
            (tmp_path / "go_on").touch()
            wait_until(lambda: (tmp_path / "done").exists() and count() > at_first + 20)
    assert made() >= (at_first + 20) * 6


ALL_SORTS = """
import os, sys, threading, time
import torch, probing, torch.distributed as dist
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1] + "/store", 1), rank=0, world_size=1)
probing.set_role("trainer", tp=0, pp=(1, 4))
while "__init_subclass__" not in vars(torch.nn.Module): time.sleep(0.01)  # until modules' calls are seen
def train(n):
    with probing.span("a step"):
        net(torch.ones(4, 8)).sum().backward()
        dist.all_reduce(net[0].weight.grad)
        optimizer.step()
    probing.event("trained", n=n)
def fail():
    raise ValueError("of a thread")
threading.Thread(target=fail).start()
for n in range(40):
    train(n)
    time.sleep(0.01)
    if n == 20:
        print("half", flush=True)
        while not os.path.exists(sys.argv[1] + "/go_on"): time.sleep(0.01)
open(sys.argv[1] + "/done", "w").close()
time.sleep(600)
"""


def without_what_differs(name, rows):
    """Returns rows in sorted order and without the numbers of functions, frames and stacks, which depend on the order in which these are
    met. Also without what is stored about those numbers for the next question to a process (table trace_read, no trace)."""
    rows = [row for row in rows if name != "trace_read" or row["trace"] > 0]
    numbers = {"frame": ("id", "function", "parts"), "function": ("id",), "stack": ("id", "frame", "leaf", "parts")}
    anywhere = ("stack_id", "stack", "function", "frame", "part")
    return sorted(repr({k: v for k, v in sorted(row.items()) if k not in anywhere + numbers.get(name, ())}) for row in rows)


def in_file(db, query):
    c = sqlite3.connect(str(db))
    c.row_factory = sqlite3.Row
    rows = [{k: v.hex() if isinstance(v, bytes) else v for k, v in zip(row.keys(), row)} for row in c.execute(query)]  # as --json shows them
    c.close()
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("alone", [False, True])
def test_every_name_is_as_a_conversion_has_it(build, run, spawn, cache, sql, tmp_path, alone):
    """All tables and views of a process that is asked have the rows of its trace, converted at the same time: in the database of a first
    question that was added to, and, for each name by itself, in a database of only the records that it needs."""
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    probing = build.tool("probing")
    (tmp_path / "all.py").write_text(ALL_SORTS)
    recorder = spawn([build.tool("probing-record"), "-q", "--exprs", "n@train", "-o", tmp_path / "t.zst", python, tmp_path / "all.py", tmp_path], ready="half",
                     env=dict(os.environ, PYTHONPATH=str(build.share / "python"), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"))
    pid = int(subprocess.check_output(["pgrep", "-P", str(recorder.pid)]).split()[0])
    everything = "SELECT (SELECT count(*) FROM loss), (SELECT count(*) FROM comm), (SELECT count(*) FROM trigger_event WHERE kind = 'exception'), (SELECT count(*) FROM torch_call)"
    run([probing, pid, "query", everything])
    (tmp_path / "go_on").touch()
    wait_until((tmp_path / "done").exists)

    def again():
        kept(cache)
        return json.loads(run([probing, pid, "query", "--json", everything + ", (SELECT count(*) FROM variable)"]).stdout)[0]
    wait_until(lambda: list(again().values())[-1] == 40)
    stop(pid)
    kept(cache)
    try:
        run([build.tool("probing-convert"), "-q", tmp_path / "t.zst", tmp_path / "whole.db"])
        names = [name for name, in sql(tmp_path / "whole.db", "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY name")]
        if not alone:
            run([probing, pid, "query", everything + "".join(', (SELECT count(*) FROM "%s")' % name for name in names)])  # names all views, so that all are made
        different = []
        for name in names:
            for old in cache.glob("*.db") if alone else ():
                os.unlink(str(old))
            query = 'SELECT * FROM "%s"' % name
            asked = json.loads(run([probing, pid, "query", "--json", query]).stdout) if alone else in_file(kept(cache), query)
            mine, theirs = (without_what_differs(name, rows) for rows in (asked, in_file(tmp_path / "whole.db", query)))
            if mine != theirs:
                different.append((name, len(mine), len(theirs), [x for x in mine if x not in theirs][:1], [x for x in theirs if x not in mine][:1]))
        assert len(names) > 80 and different == []
    finally:
        os.kill(pid, signal.SIGKILL)
