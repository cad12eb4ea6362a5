# SPDX-License-Identifier: Apache-2.0
"""`probing export --parquet`: goes on where it was, survives a kill and a full disk, and takes databases and recordings in several files."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from engine_helpers import GOLDEN, dataset, engine, fleet, need  # noqa: F401


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
