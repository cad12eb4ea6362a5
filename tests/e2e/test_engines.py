# SPDX-License-Identifier: Apache-2.0
"""Other people's libraries and engines read what probing.open() gives and the Parquet data set, and get the same answers as SQLite."""
import json
import os
import shutil

import pytest

from engine_helpers import GOLDEN, answers, ask, dataset, engine, fleet, need  # noqa: F401


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
