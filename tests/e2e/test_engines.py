# SPDX-License-Identifier: Apache-2.0
"""Other people's libraries and engines read what probing.open() and `probing export` give, and get the same answers as SQLite.

They are installed by .ci/engines-venv.sh (it says how), or $PROBING_ENGINES names a Python that has them."""
import datetime
import functools
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess

import pytest

from questions import QUESTIONS, near, normal

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
GOLDEN = REPO / "tests" / "golden"


@functools.lru_cache(None)
def venv():
    done = subprocess.run([str(REPO / ".ci" / "engines-venv.sh")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    return done.stdout.strip(), done.stderr.strip()


@functools.lru_cache(None)
def has(module):
    return subprocess.run([venv()[0], "-c", "import " + module], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def need(*modules):
    if not venv()[0]:
        pytest.skip(venv()[1])
    for module in modules:
        if not has(module):
            pytest.skip("no %s in %s" % (module, venv()[0]))
    return venv()[0]


@pytest.fixture
def engine(build, tmp_path):
    """engine(code or [arguments], *modules): runs it with the engines' Python and returns its output. Skips the test if a module is
    missing."""
    def run(what, *modules, check=0, **env):
        python = need(*modules)
        command = [python, "-c", what] if isinstance(what, str) else [python] + [str(a) for a in what]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=1500, cwd=str(tmp_path),
                              env=dict(os.environ, PYTHONPATH=str(build.share / "python"), **env))
        assert check is None or done.returncode == check, done.stderr[-3000:]
        return done if check is None else done.stdout
    return run


@pytest.fixture(scope="session")
def fleet(tmp_path_factory):
    """Four ranks on two machines whose clocks are up to a second apart, with their database: (folders, database)."""
    root = pathlib.Path(os.environ.get("PROBING_BUILD", str(REPO / "build")))
    out = tmp_path_factory.mktemp("fleet")
    subprocess.run(["make", "-s", "-C", str(REPO), "O=" + str(root), str(root / "tests/fleet/probing-fleet")], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([str(root / "tests/fleet/probing-fleet"), "--out", str(out / "fleet"), "--ranks", "4", "--nodes", "2", "--offset", "1", "--minutes", "0.4",
                    "--straggler", "2:30", "--hz", "50"], check=True, stderr=subprocess.DEVNULL)
    nodes = sorted(str(p) for p in (out / "fleet").glob("node*"))
    subprocess.run([str(root / "bin" / "probing"), "convert", "-q"] + nodes + [str(out / "out.db")], check=True)
    return nodes, str(out / "out.db")


@pytest.fixture(scope="session")
def dataset(fleet, tmp_path_factory):
    root = pathlib.Path(os.environ.get("PROBING_BUILD", str(REPO / "build")))
    folder = tmp_path_factory.mktemp("parquet") / "set"
    subprocess.run([str(root / "bin" / "probing"), "export", "-q", "--parquet", str(folder)] + fleet[0], check=True,
                   env=dict(os.environ, PROBING_PYTHON=need("pyarrow")))
    return folder


@pytest.fixture(scope="session")
def answers(fleet):
    connection = sqlite3.connect(fleet[1])
    out = {name: normal(connection.execute(sql).fetchall()) for name, sql in QUESTIONS}
    connection.close()
    assert len(out) == 20 and all(out.values()), [n for n in out if not out[n]]
    return out


def ask(engine, name, modules, dataset, answers):
    got = json.loads(engine([HERE / "ask_engine.py", name, dataset], "pyarrow", *modules).splitlines()[-1])
    wrong = {n: got[n] if isinstance(got[n], str) else near(answers[n], got[n], 1e-3 if n == "collectives" else 0) for n, _ in QUESTIONS}
    assert not any(wrong.values()), {n: w for n, w in wrong.items() if w}


# Views that only a database has: those that stored tables or other views are made by; clock_alignment, which is about machines and not about traces;
# stack_frame and stack_text, whose ids are the database's own (a data set has stack_frames); and trigger_stacks (in a data set: samples
# WHERE count = 0 with their stack_frames).
DATABASE_ALONE = {"clock_alignment", "stack_frame", "stack_text", "trigger_stacks", "collective_calls_made", "collectives_made", "hangs_made", "hangs_late_made", "stragglers_made",
                  "training_logs_made", "thread_files", "last_facts", "cpu_before", "io_before", "network_before"}


def test_views_have_the_database_columns(engine, fleet, dataset, sql):
    """A data set has all of the database's columns, in their order; probing/_views.py says what it has besides, and what it lacks."""
    got = json.loads(engine("""
import duckdb, json
from probing import _views
c = duckdb.connect()
c.execute(open(%r + "/views.duckdb.sql").read())
names = [n for n, in c.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()]
views = {n: [x[0] for x in c.execute('SELECT * FROM "%%s" LIMIT 0' %% n).description] for n in names}
ordered = [r[0] for r in c.execute("SELECT rank FROM stragglers").fetchall()], [list(r) for r in c.execute("SELECT self, total FROM hot_functions LIMIT 9").fetchall()]
print(json.dumps([views, _views.LACKING, _views.MORE, ordered]))
""" % str(dataset), "duckdb"))
    views, lacking, more, ordered = got
    mine = {n: [c[1] for c in sql(fleet[1], 'PRAGMA table_info("%s")' % n)] for n, in sql(fleet[1], "SELECT name FROM sqlite_master WHERE type = 'view'")}
    assert set(mine) - set(views) == DATABASE_ALONE and set(views) - set(mine) == {"stack_frames"}
    both = set(mine) & set(views)
    differ = {n: (mine[n], views[n]) for n in both
              if [c for c in mine[n] if c not in lacking.get(n, ())] != [c for c in views[n] if c in mine[n] or c not in more]}
    assert not differ and all(set(lacking[n]) <= set(mine[n]) - set(views[n]) for n in lacking)
    assert ordered == [[r for r, in sql(fleet[1], "SELECT rank FROM stragglers")], [list(r) for r in sql(fleet[1], "SELECT self, total FROM hot_functions LIMIT 9")]]


def test_a_column_has_one_type_in_all_traces(engine, build, record, run, tmp_path):
    """Also where a trace has no values in it, or no rows: engines take the type from any one file."""
    said = "import sys\nsys.path.insert(0, %r)\nimport probing\nprobing.set_role(%%s)\n" % str(build.share / "python")
    traces = [record(said % "'critic'" + "sys.exit(3)\n", check=3).trace, record(said % "'trainer', tp=(1, 2)").trace, GOLDEN / "killed.zst", GOLDEN / "basic.zst"]
    env = dict(os.environ, PROBING_PYTHON=need("pyarrow"))
    for some in (traces[3:], traces):
        run([build.tool("probing"), "export", "-q", "--parquet", tmp_path / "set"] + some, env=env)
    types = json.loads(engine("""
import glob, json, os, pyarrow.parquet as pq
found = {}
for path in glob.glob(%r, recursive=True):
    for field in pq.read_schema(path):
        found.setdefault(os.path.relpath(path, %r).split("/")[0] + "." + field.name, set()).add(str(field.type))
print(json.dumps({n: sorted(t) for n, t in found.items()}))
""" % (str(tmp_path / "set" / "**" / "*.parquet"), str(tmp_path / "set")), "pyarrow"))
    assert not {n: t for n, t in types.items() if len(t) > 1}
    words = json.loads(engine("""
import glob, json, os, pyarrow.parquet as pq
print(json.dumps({os.path.relpath(p, %r).split("/")[0] + "." + f.name: (f.metadata or {}).get(b"description", b"").decode()
                  for p in glob.glob(%r, recursive=True) for f in pq.read_schema(p)}))
""" % (str(tmp_path / "set"), str(tmp_path / "set" / "**" / "*.parquet")), "pyarrow"))
    assert "MB" in words["memory_usage.memory_mb"] and words["steps.timestamp"] == "time at which the step began (s)" and "recording began" in words["trace.how"]
    bare = {n for n, said in words.items() if not said and n.split(".")[1] not in ("run", "rank", "host", "attempt", "stack_id", "trace_id", "firstline")}
    assert not bare
    assert types["trace.exit_code"] == types["trace.signal"] == types["roles.index"] == types["hangs.cause"] == ["int64"]
    assert types["roles.dimension"] == types["whereabouts.user"] == types["hangs.does"] == ["string"]


@pytest.mark.limit(600)
def test_twenty_questions_duckdb(engine, dataset, answers):
    ask(engine, "duckdb", ["duckdb"], dataset, answers)


@pytest.mark.limit(600)
def test_twenty_questions_polars(engine, dataset, answers):
    ask(engine, "polars", ["polars"], dataset, answers)


@pytest.mark.slow
def test_twenty_questions_clickhouse(engine, dataset, answers):
    ask(engine, "clickhouse", ["chdb"], dataset, answers)


@pytest.mark.slow
def test_twenty_questions_spark(engine, dataset, answers):
    if not shutil.which("java"):
        pytest.skip("no java (apt-get install openjdk-17-jre-headless)")
    ask(engine, "spark", ["pyspark"], dataset, answers)


LIBRARIES = """
import json, sys
import duckdb, nanoarrow, pandas, polars, probing, pyarrow
t = probing.open(*%r)
s = t.samples.select("timestamp", "rank", "func", "stack", "count").batch(100)
arrow = pyarrow.table(s)
arrow.validate(full=True)
frame = t.samples.pandas()
cut = t.samples.select("timestamp", "count").range(None, frame.timestamp.sort_values().iloc[20])
got = {
    "pyarrow": pyarrow.compute.sum(arrow["count"]).as_py(), "polars": int(polars.DataFrame(s)["count"].sum()),
    "duckdb": int(duckdb.sql("SELECT sum(count) FROM s").fetchall()[0][0]), "pandas": int(frame["count"].sum()),
    "nanoarrow": sum(r["count"] for r in nanoarrow.ArrayStream(s).read_all().to_pylist()),
    "from_arrow": int(pandas.DataFrame.from_arrow(s)["count"].sum()) if hasattr(pandas.DataFrame, "from_arrow") else None,
    "rows": sum(r[4] for r in s.rows()), "cut": len(cut.pandas()),
    "types": [str(f.type) for f in arrow.schema], "doc": arrow.schema.field("func").metadata[b"description"].decode()[:9],
    "same": arrow["func"].to_pylist() == [r[2] for r in s.rows()] and arrow["stack"].to_pylist() == [r[3] for r in s.rows()],
    "time": str(frame.timestamp.dtype), "ns": [v.value for v in arrow["timestamp"]] == [r[0] for r in s.rows()],
}
print(json.dumps(got))
"""


def test_libraries_take_tables(engine, fleet, sql):
    got = json.loads(engine("import pyarrow.compute\n" + LIBRARIES % fleet[0], "pyarrow", "pandas", "polars", "duckdb", "nanoarrow"))
    want = sql(fleet[1], "SELECT sum(count) FROM samples")[0][0]
    assert {got[k] for k in ("pyarrow", "polars", "duckdb", "pandas", "nanoarrow", "rows")} == {want}
    assert got["from_arrow"] in (None, want) and got["cut"] == 20 and got["same"] and got["ns"]
    assert got["types"][0] == "timestamp[ns, tz=UTC]" and got["types"][1] == "int64" and got["types"][2].startswith("dictionary<values=string")
    assert got["types"][3].startswith("list<item: dictionary") and got["doc"] == "innermost" and got["time"].startswith("datetime64[ns, UTC")


DATASETTE = """
import asyncio, json, sys
from datasette.app import Datasette

async def look(database, views):
    served = Datasette([], immutables=[database], settings={"suggest_facets": False, "sql_time_limit_ms": 60000})
    await served.invoke_startup()
    print((await served.client.get("/out")).status_code)
    for view in views:
        page = await served.client.get("/out/" + view) if view in ("samples", "backtrace", "hot_functions") else None
        got = await served.client.get("/out/%s.json?_shape=arrays&_size=5&_nocount=1" % view)
        print(json.dumps([view, not page or page.status_code == 200 and view in page.text, got.json().get("rows")]))

asyncio.run(look(sys.argv[1], sys.argv[2:]))
"""


def test_datasette_opens_each_view(engine, fleet, sql):
    """As README says: Datasette's own pages for three of the views, and as JSON the rows that SQLite gives."""
    views = [name for name, in sql(fleet[1], "SELECT name FROM sqlite_master WHERE type = 'view'")]
    status, *lines = engine(["-c", DATASETTE, fleet[1]] + views, "datasette").splitlines()
    want = {view: [list(row) for row in sql(fleet[1], 'SELECT * FROM "%s" LIMIT 5' % view)] for view in views}
    assert status == "200" and [json.loads(line) for line in lines] == [[view, True, want[view]] for view in views]
    assert sum(map(bool, want.values())) > 20


def test_columns_of_one_name_and_bytes_that_are_no_text(engine):
    """As a join gives them: each with its own values; and what a CAST makes of bytes is text to others."""
    out = engine("""
import json, probing, pyarrow
t = probing.open(%r)
q = t.sql("SELECT 1 AS a, 'x' AS b, 2 AS a, 1.5 AS timestamp, NULL AS a")
frame = q.pandas()
odd = pyarrow.table(t.sql("SELECT CAST(x'41ff42' AS TEXT) AS a"))
odd.validate(full=True)
print(json.dumps([list(frame.columns), [str(v) for v in frame.iloc[0]], odd["a"].to_pylist()]))
""" % str(GOLDEN / "basic.zst"), "pandas", "pyarrow")
    names, row, text = json.loads(out)
    assert names == ["a", "b", "a", "timestamp", "a"] and row[:3] == ["1", "x", "2"] and row[3].startswith("1970-01-01 00:00:01.5") and row[4] in ("nan", "<NA>", "None")
    assert text == ["A\ufffdB"]


def test_an_error_within_a_stream_is_told(engine, tmp_path):
    out = engine("""
import probing, pyarrow
(open("one.zst", "wb")).write(open(%r, "rb").read())
(open("two.zst", "wb")).write(b"nothing of a trace" * 1000)
t = probing.open("one.zst", "two.zst")
print(pyarrow.table(t.samples).num_rows, t.problems)
mixed = probing.open(%r) if False else None
import os
t = probing.open("one.zst")
s = t.samples
os.truncate("one.zst", 0)
try:
    print(pyarrow.table(s))
except probing.TraceError as error:
    print("TraceError", error)
""" % (str(GOLDEN / "basic.zst"), ""), "pyarrow")
    assert out.startswith("44 ['two.zst: ") and "TraceError one.zst: " in out


def test_streams_in_threads(engine, fleet):
    """Several streams of one file at the same time, and one that is abandoned in the middle."""
    out = engine("""
import threading, probing, pyarrow
t = probing.open(%r)
want = pyarrow.table(t.samples.select("func", "timestamp", "stack"))
bad = []
def read(i):
    for _ in range(3):
        s = t.samples.select("func", "timestamp", "stack").batch(50)
        r = pyarrow.RecordBatchReader.from_stream(s)
        if i %% 4 == 3:
            r.read_next_batch()
            continue
        got = r.read_all()
        if got.num_rows != want.num_rows or got["func"].to_pylist() != want["func"].to_pylist():
            bad.append(i)
threads = [threading.Thread(target=read, args=(i,)) for i in range(8)]
[x.start() for x in threads]
[x.join() for x in threads]
print(bad)
""" % fleet[0][0], "pyarrow")
    assert out == "[]\n"


@pytest.mark.slow
def test_export_goes_on_where_it_was(engine, build, fleet, run, tmp_path):
    """A second export reads a trace again only if it has grown, and removes what was half written; files that are no traces are named, and
    the rest is exported."""
    python = need("pyarrow", "duckdb")
    tool = build.tool("probing")
    traces = tmp_path / "in"
    traces.mkdir()
    names = [shutil.copy(str(p), str(traces)) for node in fleet[0] for p in pathlib.Path(node).glob("*.zst")]
    whole = pathlib.Path(names[0]).read_bytes()
    pathlib.Path(names[0]).write_bytes(whole[:len(whole) // 2])
    os.rename(os.fsencode(names[1]), os.fsencode(str(traces)) + b"/odd\xff\nname.zst")  # texts of Arrow and Parquet must be UTF-8
    (traces / "text.zst").write_text("no trace")

    def export(check, *more):
        done = run([tool, "export", "--json", "--parquet", "set"] + list(more) + [traces], check=check, cwd=str(tmp_path),
                   env=dict(os.environ, PROBING_PYTHON=python))
        return json.loads(done.stdout), done.stderr

    def rows():
        return json.loads(engine("""
import duckdb, json
c = duckdb.connect()
c.execute(open("set/views.duckdb.sql").read())
print(json.dumps(c.execute("SELECT count(*), count(DISTINCT sample_id * 64 + rank), count(DISTINCT trace_id) FROM samples").fetchall()[0]))"""))

    first, said = export(1)
    assert first["traces"] == 4 and first["failed"] == 1 and "text.zst" in said
    before = rows()
    assert before[0] == before[1] == first["rows"]["samples"] and before[2] >= 3
    assert (tmp_path / "set" / "hangs").is_dir() and not list((tmp_path / "set").glob("*_made"))  # rows from which the stored ones are made are not stored as well
    (traces / "text.zst").unlink()
    stale = tmp_path / "set" / "_probing" / "tmp-1-a-machine-that-is-gone"
    stale.mkdir()
    (stale / "half.parquet").write_text("PAR1")
    pathlib.Path(names[0]).write_bytes(whole)
    second, said = export(0)
    assert (second["traces"], second["unchanged"]) == (1, 3) and "did not end" in said and not stale.exists()
    after = rows()
    assert after[0] == after[1] > before[0] and after[2] == 4
    assert export(0)[0]["unchanged"] == 4
    # Traces from a copy that was interrupted, or a machine that crashed: cut in the middle, empty, and absent.
    files = sorted((tmp_path / "set" / "samples").glob("*/*/*.parquet"))
    os.truncate(str(files[0]), files[0].stat().st_size // 2)
    os.truncate(str(files[1]), 0)
    files[2].unlink()
    third, said = export(0)
    assert (third["traces"], third["unchanged"]) == (3, 1) and said.count("a part is missing: it is done again\n") == 3
    assert all(line.startswith("probing-export: ") for line in said.splitlines())
    assert rows() == after


def test_an_export_killed_while_it_puts_files_in_place(engine, tmp_path):
    """When other traces have come before it is done again, its files lie under another run: none of the first ones stays, or its rows would be
    there twice. Of an export that still runs nothing is removed."""
    code = """
import os, sys
from probing._export_set import DataSet
run, kill = sys.argv[1], sys.argv[2] == "killed"
data, other = DataSet("set", "traces"), DataSet("set", "traces")
assert other.cleared == 0 and os.path.isdir(data.temp) and data.temp != other.temp
other.close()
files = [data.file(table, run, 0, "1") for table in ("samples", "steps")]
for name in files:
    os.makedirs(os.path.dirname(os.path.join(data.temp, name)))
    with open(os.path.join(data.temp, name), "w") as f:
        f.write("PAR1")
replace = os.replace
def replace_and_end(a, b):
    replace(a, b)
    os._exit(9)
if kill:
    os.replace = replace_and_end
data.finish({"recording": 1, "file": "a.zst", "bytes": 4}, files)
data.close()
"""
    (tmp_path / "put.py").write_text(code)
    engine(["put.py", "first", "killed"], check=9)
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.glob("set/s*/*/*/*")] == ["set/samples/run=first/rank=0/1.parquet"]
    engine(["put.py", "second", "whole"])
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.glob("set/s*/*/*/*")) == [
        "set/samples/run=second/rank=0/1.parquet", "set/steps/run=second/rank=0/1.parquet"]
    assert not list(tmp_path.glob("set/_probing/tmp-*"))


@pytest.mark.slow
@pytest.mark.limit(600)
def test_export_on_a_full_disk(build, fleet, run, tmp_path):
    """Full while the clocks are aligned, or while tables are written: one line says so, and nothing half written stays. Once there is room, the next export
    has everything. A list of what is done that is cut off within a line costs that line's trace alone."""
    disk, env = tmp_path / "disk", dict(os.environ, PROBING_PYTHON=need("pyarrow"))
    command = [build.tool("probing"), "export", "--json", "-q", "--parquet", disk / "set", fleet[0][0]]
    disk.mkdir()

    def mount(size):
        return subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%dk" % size, "none", disk], stderr=subprocess.DEVNULL).returncode == 0

    def left():
        return [p.name for p in disk.rglob("*") if "tmp" in p.name]

    for room in (64, 900):
        if not mount(room):
            pytest.skip("cannot mount a small file system")
        try:
            said = run(command, check=3, env=env).stderr
            assert said.count("\n") == 1 and "space left on" in said.lower() and not left(), (room, said, left())
            subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
            done = run(command, env=env)
            assert done.stderr == "" and json.loads(done.stdout)["traces"] == 2 and not left()
            listed = disk / "set" / "_probing" / "done.jsonl"
            whole = listed.read_bytes()
            listed.write_bytes(whole[:-(len(whole.splitlines()[-1]) // 2)])
            counts = [json.loads(run(command, env=env).stdout) for _ in range(2)] if room > 64 else []
            assert [(c["traces"], c["unchanged"]) for c in counts] == [(1, 1), (0, 2)][:len(counts)]
        finally:
            subprocess.run(["umount", disk], check=True)


def test_export_of_a_database(engine, build, fleet, dataset, run, tmp_path):
    """The same rows, to the nanosecond, as from its traces; a folder holds an export of one or the other, not of both."""
    python = need("pyarrow", "duckdb")
    env = dict(os.environ, PROBING_PYTHON=python)
    done = run([build.tool("probing"), "export", "--json", "--parquet", "db", fleet[1]], cwd=str(tmp_path), env=env)
    assert json.loads(done.stdout)["traces"] == 4
    again = run([build.tool("probing"), "export", "--json", "--parquet", "db", fleet[1]], cwd=str(tmp_path), env=env)
    assert json.loads(again.stdout)["unchanged"] == 4
    rows = engine("""
import duckdb, sys
for folder in %r:
    c = duckdb.connect()
    c.execute(open(folder + "/views.duckdb.sql").read())
    print([c.execute(q).fetchall() for q in (
        "SELECT rank, ts, tid, func, lineno, state, count, seconds FROM samples ORDER BY rank, ts, tid",
        "SELECT func, file, frame_type, self, total FROM hot_functions ORDER BY ALL", "SELECT count(*), sum(depth), sum(count) FROM backtrace",
        "SELECT rank, step, epoch_us(timestamp), duration FROM steps ORDER BY ALL", "SELECT op, seq, arrived, size FROM collectives ORDER BY ALL")])
""" % ([str(dataset), "db"],)).splitlines()
    assert len(rows) == 2 and rows[0] == rows[1] and len(rows[0]) > 100000
    said = run([build.tool("probing"), "export", "--parquet", "db"] + fleet[0], check=3, cwd=str(tmp_path), env=env).stderr
    assert "made of a database" in said and said.count("\n") == 1


ROTATED = """
import glob, os, sys, time, probing
with probing.span("all"):
    while len(glob.glob(sys.argv[1] + ".d/*.zst")) < 2:
        for _ in range(20):
            probing.event("noise", text=os.urandom(1000).hex())
            time.sleep(0.001)
        probing.step()
"""
READ = """
import glob, json, pyarrow.parquet
def rows(table, *columns):
    found = [row for file in glob.glob("out/%s/*/*/*.parquet" % table) for row in pyarrow.parquet.ParquetFile(file).read(columns=list(columns)).to_pylist()]
    return sorted([[row[c] for c in columns] for row in found], key=str)
programs, threads = dict(rows("trace", "id", "program")), rows("threads", "trace_id", "tid")
print(json.dumps([rows("steps", "step", "duration", "complete"), rows("spans", "name", "duration"), rows("threads", "tid", "samples"),
                  [len(rows("samples", "tid")), len({t for t, in rows("samples", "trace_id")})],
                  sum([programs[trace], tid] in threads for trace, tid in rows("samples", "trace_id", "tid"))]))
"""


@pytest.mark.slow  # twelve conversions and exports of all views
def test_export_of_a_recording_in_several_files(engine, build, record, convert, run, sql, tmp_path, monkeypatch):
    """Steps and spans that were in progress when it went on in another file are one row, and so is each thread. It is done again as a whole when a file comes."""
    env = dict(os.environ, PROBING_PYTHON=need("pyarrow"))
    monkeypatch.setenv("PROBING_SEGMENT_SIZE", "64K")
    trace = record(ROTATED, tmp_path / "t.zst", hz=1000, out=tmp_path / "t.zst", env=dict(os.environ, PYTHONPATH=str(build.share / "python"))).trace
    db = convert(trace)
    files = sorted((tmp_path / "t.zst.d").glob("*.zst"))
    want = [sorted(map(list, sql(db, query)), key=str) for query in (
        "SELECT step, duration, complete FROM steps", "SELECT name, duration FROM spans", "SELECT tid, samples FROM threads")]
    samples = sql(db, "SELECT count(*) FROM samples")[0][0]
    want += [[samples, len(files) + 1], samples]
    assert sql(db, "SELECT count(*) FROM samples s JOIN trace t ON t.id = s.trace_id JOIN threads h ON h.trace_id = t.program AND h.tid = s.tid") == [(samples,)]
    assert len(want[0]) > 3 and len(want[1]) == 1 and want[1][0][1] > 0

    def export(*what, **counts):
        done = json.loads(run([build.tool("probing"), "export", "--json", "-q", "--parquet", "out"] + list(what), cwd=str(tmp_path), env=env).stdout)
        assert {n: done[n] for n in counts} == counts and not done["failed"] and not done["damaged"]

    def same():
        """The clocks are fitted anew for each: times, and so durations, may differ by a nanosecond."""
        got = json.loads(engine(READ, "pyarrow"))
        assert [row[:1] + row[2:] for table in got[:2] for row in table] == [row[:1] + row[2:] for table in want[:2] for row in table] and got[2:] == want[2:]
        assert [row[1] for table in got[:2] for row in table] == pytest.approx([row[1] for table in want[:2] for row in table], abs=1e-8)
    export("--alone", files[0], traces=1)
    export(trace, traces=len(files) + 1, unchanged=0)
    same()
    export(trace, traces=0, unchanged=len(files) + 1)
    shutil.rmtree(str(tmp_path / "out"))
    export(db, traces=len(files) + 1)
    same()


def test_export_says_what_is_missing(build, run, tmp_path):
    tool = build.tool("probing")
    trace = GOLDEN / "basic.zst"
    assert "--parquet DIR" in run([tool, "export", trace], check=2).stderr
    assert "name the traces" in run([tool, "export", "--parquet", "x"], check=2).stderr
    said = run([tool, "export", "--parquet", "x", trace], check=3, env=dict(os.environ, PROBING_PYTHON="/nowhere/python")).stderr
    assert "cannot run /nowhere/python" in said and "PROBING_PYTHON" in said
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "pyarrow.py").write_text("raise ImportError('none here')")
    said = run([tool, "export", "--parquet", "x", trace], check=3, env=dict(os.environ, PYTHONPATH=str(bare), PROBING_PYTHON="/usr/bin/python3")).stderr
    assert "pyarrow is needed" in said and "pip install pyarrow" in said and "\n" == said[-1] and said.count("\n") == 1
    (bare / "pyarrow.py").unlink()
    (bare / "pyarrow").mkdir()
    (bare / "pyarrow" / "__init__.py").write_text("__version__ = '14.0.2'\nclass RecordBatchReader: pass\n")
    (bare / "pyarrow" / "parquet.py").write_text("")
    said = run([tool, "export", "--parquet", "x", trace], check=3, env=dict(os.environ, PYTHONPATH=str(bare), PROBING_PYTHON="/usr/bin/python3")).stderr
    assert "pyarrow 15 or later is needed" in said and "has 14.0.2" in said and said.count("\n") == 1
    python = need("pyarrow")
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("keep")
    env = dict(os.environ, PROBING_PYTHON=python)
    assert "not empty" in run([tool, "export", "--parquet", other, trace], check=3, env=env).stderr
    assert "is a file" in run([tool, "export", "--parquet", other / "mine.txt", trace], check=3, env=env).stderr
    assert "nowhere.zst" in run([tool, "export", "--parquet", tmp_path / "y", tmp_path / "nowhere.zst"], check=3, env=env).stderr
    assert os.listdir(str(other)) == ["mine.txt"]


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
