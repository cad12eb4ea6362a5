# SPDX-License-Identifier: Apache-2.0
"""probing.ExternalTable: rows of the program as tables of `probing query`: live, in the trace, and of several ranks."""
import json
import os
import subprocess
import sys

import pytest
from conftest import wait_for_line
from test_console import wait_until
from engine_helpers import need

LIVE = """
import sys
import probing
t = probing.ExternalTable("rate", ["images", "note"])
for i in range(5):
    t.append([i, "n%d" % i])
print("ready", flush=True)
sys.stdin.readline()
probing.ExternalTable("more", ["z"]).append([1])
t.append([5, None])
print("again", flush=True)
sys.stdin.readline()
"""

WHOLE = """
import probing
t = probing.ExternalTable("test", ["a", "b"])
assert t.names() == ["a", "b"] and probing.ExternalTable.get("test") is t
assert probing.ExternalTable.get_or_create("test", ["a", "b"]) is t
for i in range(20):
    t.append([i, i + 0.5])
    assert len(t.take(10)) == min(i + 1, 10)
t.append_ts(1700000000 * 10**6, [99, "then"])
assert t.take()[20] == (1700000000 * 10**6, [99, "then"]) and t.take(1)[0][1] == [0, 0.5]
few = probing.ExternalTable("few", ["n"], {"chunk_size": 10, "discard_threshold": 3, "discard_strategy": "BaseElementCount"})
few.append_many([[n] for n in range(9)])
assert [row for at, row in few.take()] == [[6], [7], [8]]
odd = probing.ExternalTable('odd "x\\'', ["name", "Step", "it's"])
odd.append(["n", 4, None])
odd.append(["\\u00e9", 5, object()])
probing.ExternalTable("empty", ["x", "y"])
probing.ExternalTable("spans", ["v"]).append([1])
probing.ExternalTable("sqlite_no", ["v"]).append([1])
for bad, kind in ((lambda: t.append([1, 2, 3]), ValueError), (lambda: probing.ExternalTable("z", []), TypeError),
                  (lambda: probing.ExternalTable("z", ["a", "A"]), ValueError), (lambda: probing.ExternalTable.get("z"), ValueError),
                  (lambda: probing.ExternalTable(3, ["a"]), TypeError)):
    try:
        bad()
    except kind:
        continue
    raise SystemExit("no error")
probing.ExternalTable.drop("few")
probing.ExternalTable.drop("few")
"""


CLASSES = """
import dataclasses, sys
import probing

@probing.table
@dataclasses.dataclass
class ThroughPut:
    epoch: int
    images: float

@probing.table("Other")
@dataclasses.dataclass
class X:
    a: str

ThroughPut(1, 2.5).save()
ThroughPut.append(ThroughPut(2, 3.5))
ThroughPut.append_many([ThroughPut(3, 0.0), ThroughPut(4, 1.0)])
X("x").save()
assert [row for at, row in ThroughPut.take(2)] == [[1, 2.5], [2, 3.5]]
for bad, kind in ((lambda: probing.table(int), TypeError), (lambda: probing.table(3), TypeError), (lambda: probing.table("other")(ThroughPut), ValueError)):
    try:
        bad()
    except kind:
        continue
    raise SystemExit("no error")
if "pandas" in sys.argv:
    rows = probing.query("SELECT epoch, images AS n, epoch AS n FROM python.through_put ORDER BY epoch")
    assert list(rows.columns) == ["epoch", "n", "n:2"] and rows.values.tolist() == [[1, 2.5, 1], [2, 3.5, 2], [3, 0, 3], [4, 1, 4]], rows
    assert list(probing.query('SELECT 1 AS "a,b", 2 AS c WHERE false').columns) == ["a,b", "c"]
else:
    sys.modules["pandas"] = None
    assert probing.query("SELECT sum(epoch) AS s FROM through_put") == [{"s": 10}] and probing.query("SELECT 1 WHERE 1 = 0") == []
assert len(probing.query("SELECT func FROM python.backtrace")) > 0
try:
    probing.query("SELECT x FROM nowhere")
except probing.ProbingError as e:
    assert "no such table: nowhere" in str(e), e
probing.ExternalTable.drop("through_put")
probing.disable()
try:
    probing.query("SELECT 1")
except probing.ProbingError as e:
    assert "nothing is being recorded" in str(e), e
    print("done")
"""


def ask(run, build, *args):
    done = run([build.tool("probing"), "query", "--json", *args])
    return json.loads(done.stdout)


@pytest.mark.pythons(min=(3, 6))
def test_rows_of_a_trace(build, python, run, record, convert, sql):
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    trace = record(WHOLE, python=python, env=env, options=["-q"]).trace
    db = convert(trace)
    assert sql(db, "SELECT a, b, step FROM test WHERE a BETWEEN 1 AND 2") == [(1, 1.5, 0), (2, 2.5, 0)]
    assert sql(db, "SELECT timestamp, b, rank FROM test WHERE a = 99") == [(1700000000, "then", None)]
    assert sql(db, "SELECT sum(n), count(*) FROM few") == [(36, 9)]
    assert sql(db, "SELECT name, Step, \"it's\" FROM \"odd \"\"x'\" ORDER BY 2")[0] == ("n", 4, None)
    assert sql(db, "SELECT * FROM empty") == [] and sql(db, "SELECT name FROM pragma_table_info('empty')")[1:3] == [("x",), ("y",)]
    assert sql(db, "SELECT v FROM python_spans") == [(1,)] and sql(db, "SELECT * FROM spans") == []
    assert ask(run, build, trace, "SELECT a + b AS c FROM python.test WHERE a = 1") == [{"c": 2.5}]
    assert ask(run, build, trace, "SELECT column_name FROM information_schema.columns WHERE table_name = 'few' LIMIT 2") == [
        {"column_name": "timestamp"}, {"column_name": "n"}]


def test_without_a_recording(build, run, tmp_path):
    """Without a recording all works but the trace; a table that was declared before a recording began is in it."""
    later = "assert not probing.is_recording()\nprobing.enable('later.zst', sample_rate=0)\nt.append([7, None])\n"
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"), PATH="%s:%s" % (build.bin, os.environ["PATH"]))
    run([sys.executable, "-c", WHOLE + later], env=env, cwd=str(tmp_path))
    assert ask(run, build, tmp_path / "later.zst", "SELECT a, b FROM python.test") == [{"a": 7, "b": None}]
    assert ask(run, build, tmp_path / "later.zst", "SELECT count(*) AS n FROM python.empty") == [{"n": 0}]


def test_rows_of_a_live_process(build, run, spawn, tmp_path, monkeypatch):
    monkeypatch.setenv("PROBING_CACHE_DIR", str(tmp_path / "cache"))
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    recorder = spawn([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", sys.executable, "-c", LIVE], ready="ready", env=env,
                     stdin=subprocess.PIPE)
    pid = subprocess.run(["pgrep", "-P", str(recorder.pid)], stdout=subprocess.PIPE, universal_newlines=True).stdout.split()[0]
    assert ask(run, build, pid, "SELECT images, note FROM python.rate WHERE images > 3") == [{"images": 4, "note": "n4"}]
    recorder.stdin.write(b"\n")
    recorder.stdin.flush()
    wait_for_line(recorder, "again")
    wait_until(lambda: run([build.tool("probing"), "query", pid, "SELECT z FROM python.more"], check=None).returncode == 0)
    assert ask(run, build, pid, "SELECT z FROM python.more") == [{"z": 1}]
    assert ask(run, build, pid, "SELECT max(images) AS most, count(*) AS n FROM rate") == [{"most": 5, "n": 6}]


def test_ranks_and_a_table_that_grew(build, run, record, tmp_path):
    """Ranks whose tables have different columns, and a database that a second trace is added to."""
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"), WORLD_SIZE="2")
    made = []
    for rank, columns in ((0, ["a", "b"]), (1, ["a", "c"])):
        script = "import probing\nprobing.ExternalTable('mine', %r).append([%d, 'x'])\n" % (columns, rank)
        made.append(record(script, env=dict(env, RANK=str(rank)), options=["-q"], out=tmp_path / ("%d.zst" % rank)).trace)
    db = tmp_path / "grown.db"
    run([build.tool("probing-convert"), "--append", made[0], db])
    assert ask(run, build, db, "SELECT rank, a, b FROM mine") == [{"rank": 0, "a": 0, "b": "x"}]
    run([build.tool("probing-convert"), "--append", made[1], db])
    for where in (db, tmp_path / "both.db"):
        if not where.exists():
            run([build.tool("probing-convert"), made[0], made[1], where])
        assert ask(run, build, where, "SELECT rank, a, b, c FROM mine ORDER BY rank") == [
            {"rank": 0, "a": 0, "b": "x", "c": None}, {"rank": 1, "a": 1, "b": None, "c": "x"}]


@pytest.mark.parametrize("library", ["pandas", "none"])
def test_dataclasses_and_a_question_from_within(record, build, sql, convert, monkeypatch, library):
    """@probing.table and probing.query(), as in the original Probing: the program queries its own recording."""
    python = need("pandas") if library == "pandas" else sys.executable
    monkeypatch.setenv("PYTHONPATH", str(build.share / "python"))
    done = record(CLASSES, library, python=python)
    assert done.stdout == "done\n"
    assert sql(convert(done.trace), "SELECT epoch, images FROM through_put ORDER BY epoch") == [(1, 2.5), (2, 3.5), (3, 0.0), (4, 1.0)]
