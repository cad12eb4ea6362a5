# SPDX-License-Identifier: Apache-2.0
"""Which run, and which attempt of it, a trace belongs to follows from all traces together, also if they are read one by one, without a common
database."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

from engine_helpers import need
from test_python_reader import ask  # noqa: F401

PLACES = """
t = probing.open(*sys.argv[1:])
infos = list(t.table("traces").select("file", "run", "attempt").rows())
counts = {}
for run, in t.samples.select("run").rows():
    counts[run] = counts.get(run, 0) + 1
out = [sorted(map(list, infos)), counts, t.problems]
"""


@pytest.fixture(scope="module")
def restarted(build, tmp_path_factory):
    """Returns the traces of a job whose two ranks were started twice, the earlier ones first."""
    out = tmp_path_factory.mktemp("restarted")
    subprocess.run(["make", "-s", "-C", str(pathlib.Path(__file__).parents[2]), "O=" + str(build.root), str(build.root / "tests/fleet/probing-fleet")],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run([str(build.root / "tests/fleet/probing-fleet"), "--quiet", "--out", str(out), "--ranks", "2", "--nodes", "2", "--minutes", "0.1", "--runs", "2",
                    "--restarts"], check=True)
    traces = sorted(out.glob("node*/*.zst"), key=lambda p: int(p.stem.rsplit("-", 1)[1]))
    assert len(traces) == 4
    return traces


def in_database(sql, db):
    return sorted(map(list, sql(db, "SELECT file, run, attempt FROM trace")))


def test_without_a_launcher(build, ask, convert, sql, tmp_path):  # noqa: F811
    """Two ranks were started by hand and met at one address: they are one run, though neither names it."""
    code = "import time\nend = time.time() + 60\nwhile time.thread_time() < 0.5 and time.time() < end: sum(range(2000))\n"
    started = [subprocess.Popen([build.tool("probing-record"), "-q", "-o", str(tmp_path / ("%d.zst" % rank)), sys.executable, "-c",
                                 "import os, time\nopen('%d', 'w')\nwhile not os.path.exists('%d'): time.sleep(0.02)\n" % (rank, 1 - rank) + code], cwd=str(tmp_path),
                                env=dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")) for rank in (0, 1)]
    assert [p.wait(timeout=200) for p in started] == [0, 0]
    traces = [tmp_path / "0.zst", tmp_path / "1.zst"]
    want = in_database(sql, convert(*traces))
    infos, counts, _ = ask(PLACES, *traces)
    assert len({run for _, run, _ in want}) == 1 and infos == want and set(counts) == {want[0][1]}
    assert len({ask(PLACES, t)[0][0][1] for t in traces}) == 2  # alone, each trace is a run


def test_ranks_that_are_started_again(build, run, ask, convert, sql, restarted, tmp_path):  # noqa: F811
    whole = convert(*restarted)
    want = in_database(sql, whole)
    assert sorted(attempt for _, _, attempt in want) == [0, 0, 1, 1]
    assert ask(PLACES, *restarted)[0] == want
    # A part of a run, described by the whole.
    run([build.tool("probing-convert"), "-q", "--clocks", whole, restarted[3], tmp_path / "one.db"])
    assert in_database(sql, tmp_path / "one.db") == [w for w in want if w[0] == str(restarted[3])]
    assert sql(tmp_path / "one.db", "SELECT DISTINCT attempt FROM comm_metrics") == [(1,)]


def test_a_recording_that_is_twice_in_a_file(ask, convert, sql, restarted, tmp_path):  # noqa: F811
    """The two copies do not follow each other, which would be repeated blocks, but have another recording between them: the longest counts."""
    one, other = restarted[0].read_bytes(), restarted[1].read_bytes()
    for name, parts in (("twice", (one, other, one)), ("longer", (one[:len(one) * 2 // 3], other, one)), ("once", (one, other))):
        (tmp_path / (name + ".zst")).write_bytes(b"".join(parts))
        infos, counts, said = ask(PLACES.replace("*sys.argv[1:]", "sys.argv[1], alone=True"), tmp_path / (name + ".zst"))
        db = convert(tmp_path / (name + ".zst"), check=False)
        assert len(infos) == 2 and sum(counts.values()) == sql(db, "SELECT count(*) FROM samples")[0][0], name
        assert sum("the same recording as trace" in line for line in said) == (name != "once"), said


@pytest.mark.slow
def test_a_data_set(build, run, convert, sql, restarted, tmp_path):
    """Its views count attempts separately; if later traces change what is known of a trace that was already exported, it is exported again,
    or the tool says so."""
    python = need("pyarrow", "duckdb")

    def export(*traces):
        done = run([build.tool("probing"), "export", "--json", "-q", "--parquet", "set"] + list(traces), cwd=str(tmp_path), env=dict(os.environ, PROBING_PYTHON=python),
                   timeout=600)
        return json.loads(done.stdout), done.stderr

    def rows(query):
        return json.loads(run([python, "-c", "import duckdb, json, sys\nc = duckdb.connect()\nc.execute(open('set/views.duckdb.sql').read())\n"
                               "print(json.dumps(c.execute(sys.argv[1]).fetchall()))", query], cwd=str(tmp_path), timeout=200).stdout)
    # The later traces come first: by themselves they are the first attempt.
    assert export(*restarted[2:])[0]["traces"] == 2
    assert rows("SELECT attempt, count(*) FROM trace GROUP BY 1 ORDER BY 1") == [[0, 2]]
    result, said = export(*restarted[:2])
    assert result["traces"] == 2 and "2 traces that are there, and were not named now, are of another run, or attempt of it" in said
    result, said = export(*restarted)
    assert (result["traces"], result["unchanged"]) == (2, 2) and said.count("is of another run, or attempt of it, since others came: it is done again") == 2
    assert export(*restarted)[0]["unchanged"] == 4
    query = "SELECT attempt, count(*), max(arrived), max(complete) FROM collectives GROUP BY 1 ORDER BY 1"
    assert rows(query) == [list(r) for r in sql(convert(*restarted), query)]


SPARK = """
import json, os, sys
import probing.spark as p
def rows(table):
    reader = p.Reader({"path": ",".join(sys.argv[1:]), "table": table}, p.Probing({"path": sys.argv[1], "table": table}).schema())
    names = [f.name for f in reader.schema.fields]
    out = set()
    for part in reader.partitions():
        for b in reader.read(part):
            got = [b.column(names.index(n)).to_pylist() for n in ("run", "attempt") if n in names]
            out |= set(zip(*got))
    return sorted(map(list, out))
print(json.dumps([rows("samples"), rows("comm_metrics")]))
"""


@pytest.mark.slow
def test_in_spark(build, run, restarted, tmp_path):
    python = need("pyspark", "pyarrow")
    script = tmp_path / "parts.py"
    script.write_text(SPARK)
    joined = tmp_path / "joined.zst"
    joined.write_bytes(b"".join(t.read_bytes() for t in restarted))
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"), JAVA_HOME="/")
    for traces in (restarted, [joined]):
        samples, calls = json.loads(run([python, script] + list(traces), env=env, timeout=300).stdout)
        assert len(samples) == 1 and [attempt for _, attempt in calls] == [0, 1]
