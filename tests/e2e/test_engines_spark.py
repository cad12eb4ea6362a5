# SPDX-License-Identifier: Apache-2.0
"""Spark's data source reads traces, and gives the rows of the database that a conversion makes of them."""
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from engine_helpers import GOLDEN, HERE, engine, fleet, need  # noqa: F401


# For a JVM that lives for some seconds only, compiling better code and collecting with many threads cost more than they save.
BRIEF = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def spark(engine, build, nodes, sql, tmp_path, master, *more):
    """Runs spark_cluster.py on a copy of the traces in which one is damaged and one is no trace. Returns its output, and a database of the
    same files."""
    if not shutil.which("java"):
        pytest.skip("no java (apt-get install openjdk-17-jre-headless)")
    python = need("pyspark", "pyarrow")
    folder, database = tmp_path / "traces", tmp_path / "same.db"
    folder.mkdir()
    names = sorted(shutil.copy(str(p), str(folder)) for node in nodes for p in pathlib.Path(node).glob("*.zst"))
    data = bytearray(pathlib.Path(names[3]).read_bytes())
    for i in range(len(data) * 2 // 3, len(data) * 2 // 3 + 200):
        data[i] ^= 0x5a
    pathlib.Path(names[3]).write_bytes(data)
    (folder / "te\udcfet.zst").write_text("no trace")  # a name that is not UTF-8
    assert subprocess.call([build.tool("probing-convert"), "-q", folder, database], stderr=subprocess.DEVNULL, timeout=600) == 1
    out = json.loads(engine([HERE / "spark_cluster.py", master, folder] + list(more), PYSPARK_PYTHON=python, **BRIEF).splitlines()[-1])
    rows = {r[0]: r[1:] for r in out["samples"]}
    for rank, ticks, n in sql(database, "SELECT rank, sum(count), count(*) FROM samples GROUP BY rank"):
        assert ticks in rows[rank] and n in rows[rank], (rank, ticks, n, rows[rank])
    assert out["traces"] == len(names) + 1 and len(rows) == len(names)
    first, last = sql(database, "SELECT min(timestamp), max(timestamp) FROM samples")[0]
    times = [datetime.datetime.fromisoformat(t).replace(tzinfo=datetime.timezone.utc).timestamp() for t in out["middle"]]
    assert abs(times[0] - first) <= 2e-6 and abs(times[1] - last) <= 2e-6  # aligned as in the database
    files = {os.path.basename(p[0]) for p in out["problems"]}
    assert files == {"te\ufffdt.zst", os.path.basename(names[3])}, out["problems"]
    return out, database


PARTS = """
import json, sys
import probing.spark as p
read = lambda ranks=None, **o: [(x.files, x.start, x.end) for x in parts(p.Reader(dict(o, path=sys.argv[1]), None), ranks)]
def parts(reader, ranks):
    reader.ranks = ranks
    return reader.partitions()
def rows(parts):
    import pyarrow as pa
    found = [t.select(["trace_id", "rank", "run", "stack_id", "count"]) for files, a, b in parts for t in p.tables_of(files, "samples", a, b, ())]
    return sorted(map(str, pa.concat_tables(found).to_pylist()))
whole, alone = read(align="false"), read(align="false", splitBytes=str(p.OPEN))
print(json.dumps({"whole": [len(x[0]) for x in whole], "nodes": [len(x[0]) for x in read()], "ranks": [x[0] for x in read([1, 2])],
                  "alone": [len(x[0]) for x in alone], "same": rows(whole) == rows([([f], p._arrow.FIRST, p._arrow.LAST) for x in whole for f in x[0]])}))
"""


def test_spark_parts(engine, fleet, tmp_path):
    """Small traces share a partition, as do those of one machine if clocks are aligned; files of other ranks are not opened; the rows are
    the same."""
    (tmp_path / "parts.py").write_text(PARTS)
    folder = tmp_path / "traces"
    folder.mkdir()
    files = [shutil.copy(str(p), str(folder)) for node in fleet[0] for p in pathlib.Path(node).glob("*.zst")]
    out = json.loads(engine([tmp_path / "parts.py", folder], "pyspark", "pyarrow", JAVA_HOME="/"))
    assert out["whole"] == [len(files)] and sum(out["nodes"]) == len(files) and 1 < len(out["nodes"]) <= len(fleet[0])
    assert [re.search(r"-r(\d+)-", f).group(1) for part in out["ranks"] for f in part] == ["1", "2"]
    assert out["alone"] == [1] * len(files) and out["same"]


COPIES = """
import json, os, sys
import probing.spark as p
def rows(table, **more):
    reader = p.Reader(dict({"path": sys.argv[1], "table": table}, **more), p.Probing({"path": sys.argv[1], "table": table}).schema())
    parts = reader.partitions()
    if table == "samples":
        return [(os.path.basename(f), len(x.without)) for x in parts for f in x.files], sum(b.num_rows for x in parts for b in reader.read(x))
    return [r for x in parts for b in reader.read(x) for r in zip(*[c.to_pylist() for c in b.columns[:2]])]
infos = {"a": [dict(recording=1, bytes=5, pid=1), dict(recording=2, bytes=9, pid=1)], "b": [dict(recording=1, bytes=6, pid=1)], "c": [dict(recording=2, bytes=9, pid=1)],
         "d": [dict(recording=3, bytes=1, pid=None)], "e": [dict(recording=3, bytes=1, pid=None)]}
print(json.dumps([p.copies_of(infos), rows("samples"), rows("samples", splitBytes="1000", align="false")[1], len(rows("trace")), rows("problems")]))
"""


@pytest.mark.slow
def test_spark_counts_a_copy_once(engine, build, fleet, run, sql, tmp_path):
    """As in probing-convert, only the longest file of a recording counts, also if the others lie within a file of joined traces."""
    folder = tmp_path / "traces"
    folder.mkdir()
    files = [pathlib.Path(shutil.copy(str(p), str(folder))) for node in fleet[0] for p in sorted(pathlib.Path(node).glob("*.zst"))]
    whole = files[0].read_bytes()
    (folder / "a copy.zst").write_bytes(whole)
    (folder / "earlier.zst").write_bytes(whole[:len(whole) // 2])
    (folder / "z joined.zst").write_bytes(files[1].read_bytes() + files[2].read_bytes())
    files[2].unlink()
    said = engine(["-c", COPIES, folder], "pyspark", "pyarrow", check=None, JAVA_HOME="/")
    assert said.returncode == 0, said.stderr
    planned, (parts, n), split, traces, problems = json.loads(said.stdout)
    assert planned == {"a": {"1": "b"}, "b": {}, "c": {"2": "a"}, "d": {}, "e": {}}
    run([build.tool("probing-convert"), "-q", folder, tmp_path / "same.db"], check=None)
    assert n == split == sql(tmp_path / "same.db", "SELECT count(*) FROM samples")[0][0] == sql(fleet[1], "SELECT count(*) FROM samples")[0][0]
    assert traces == 4 and len(parts) == 4 and ["z joined.zst", 1] in parts, parts
    assert said.stderr.count("earlier.zst: the same recording as ") == 3 # once each time that a query is planned
    assert sorted({os.path.basename(f) for f, line in problems if "counted once" in line}) == ["earlier.zst", files[0].name, "z joined.zst"]


def test_spark_takes_the_files_of_a_folder_that_a_conversion_takes(engine, tmp_path):
    """Not hidden ones, and not those that earlier runs have left."""
    place = tmp_path / "in"
    taken = {"a.zst": "basic", "below/c.zst": "killed", "f.zst.d/f.zst": "complete", "od\nd/g.zst": "epochs"}
    for name in list(taken) + [".b.zst", ".hidden/d.zst", "t.zst.old.d/e.zst"]:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(GOLDEN / (taken.get(name, "basic") + ".zst")), str(place / name))
    (place / "h.zst").mkdir()
    (place / "link").symlink_to(place / "below")
    spark, conversion = json.loads(engine("""
import json, probing, probing.spark as p
t = probing.open(%r, alone=True)
print(json.dumps([p.files_of(%r), sorted(set(r[0] for r in t.table("traces").select("file").rows()))]))
""" % (str(place), str(place)), "pyspark", "pyarrow", JAVA_HOME="/"))
    assert spark == conversion == sorted(str(place / name) for name in taken)


def test_spark_says_what_is_missing(engine, tmp_path):
    done = engine("import sys; sys.modules['pyspark'] = None\nimport probing.spark", check=None)
    assert done.returncode == 1 and "pip install 'pyspark>=4' pyarrow" in done.stderr
    done = engine("import probing.spark", "pyspark", "pyarrow", check=None, PATH=str(tmp_path), JAVA_HOME="", SPARK_REMOTE="")
    assert done.returncode == 0 and "Spark needs Java" in done.stderr, done.stderr


@pytest.mark.limit(600)
def test_spark_reads_traces(engine, build, fleet, sql, tmp_path):
    out, database = spark(engine, build, fleet[0], sql, tmp_path, "local[2]")
    assert out["steps"] == sql(database, "SELECT count(*) FROM steps WHERE rank = 0")[0][0]
    assert {r[0] for r in out["cut"]} == {1, 2}
    whole = {rank: n for rank, n in sql(database, "SELECT rank, count(*) FROM samples GROUP BY rank")}
    assert all(0 < n < whole[rank] for rank, n in out["cut"])


@pytest.mark.slow
def test_spark_loses_an_executor(engine, build, fleet, sql, tmp_path):
    assert spark(engine, build, fleet[0], sql, tmp_path, "local-cluster[2,1,1024]", "kill")[0]["killed"] == 1


@pytest.mark.slow
@pytest.mark.limit(1800)
def test_spark_a_thousand_traces(engine, build, run, sql, tmp_path):
    """On a cluster of two executors, one of which is killed; one trace is damaged, and one file is no trace."""
    run([build.root / "tests/fleet/probing-fleet", "--quiet", "--out", tmp_path / "fleet", "--ranks", "1000", "--nodes", "125", "--offset", "1",
         "--minutes", "0.1", "--hz", "20"], timeout=300)
    out, _ = spark(engine, build, sorted(str(p) for p in (tmp_path / "fleet").glob("node*")), sql, tmp_path, "local-cluster[2,1,1024]", "kill")
    assert out["killed"] == 1 and len(out["samples"]) == 1000
