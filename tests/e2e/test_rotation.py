# SPDX-License-Identifier: Apache-2.0
"""A trace in segments: all together, each alone, deleted when they are old, and the last one finished after a kill."""
import glob
import os
import signal
import subprocess
import time

import pytest

SCRIPT = """
import threading, time
exec("\\n".join("def f%d(n):\\n    return f%d(n - 1) if n else time.sleep(0.001)" % (i, (i * 7 + 3) % 1000) for i in range(1000)))
def work():
    for i in range(10 ** 9):
        globals()["f%d" % (i % 1000)](10 + i % 13)
threading.Thread(target=work, name="second", daemon=True).start()
print("up", flush=True)
time.sleep(SECONDS)
"""


def segments(trace):
    return sorted(glob.glob(str(trace) + ".d/*.zst"))


def wait_until(true, seconds=240):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.pythons(count=1)
def test_segments(build, spawn, run, convert, sql, python, tmp_path, monkeypatch):
    monkeypatch.setenv("PROBING_SEGMENT_SIZE", "64K")
    script = tmp_path / "s.py"
    script.write_text(SCRIPT.replace("SECONDS", "300"))
    trace = tmp_path / "t.zst"
    recorder = spawn([build.tool("probing-record"), "-r", "1000", "-o", trace, python.path, script], ready="up", stderr=subprocess.PIPE)
    wait_until(lambda: segments(trace))
    # While it runs, what is there can be converted, and the live file names the trace.
    pid = int(run([build.tool("probing"), "list", "--json"]).stdout.split('"pid":')[1].split(",")[0])
    assert sql(convert(trace), "SELECT count(*) FROM trace")[0][0] >= 2
    # Wait until the last segment has stacks of both threads, and enough samples for what is counted below.
    run([build.tool("probing"), "-t", pid, "config", "segment_size=1G"])
    now = tmp_path / "now.db"
    wait_until(lambda: sql(convert(trace, out=now, options=["-f", "-q"]), "SELECT count(*) > 1000 FROM sample") == [(1,)] and
               sql(convert(trace, out=now, options=["-f", "-q", "--alone"]), "SELECT count(*) > 0 FROM backtrace WHERE func LIKE 'f%'") == [(1,)])
    os.kill(pid, signal.SIGKILL)
    said = recorder.communicate(timeout=240)[1].decode()
    assert "1 process" in said or "processes" not in said
    files = segments(trace)
    assert not glob.glob(str(tmp_path / "*.next"))
    for file in files:
        run(["zstd", "-tq", file])
    db = convert(trace)
    rows = sql(db, "SELECT pid, end_reason, complete, lost FROM trace ORDER BY start")
    assert len(rows) == len(files) + 1 and {r[0] for r in rows} == {pid}
    assert [r[1] for r in rows] == ["rotated"] * len(files) + ["killed"] and all(r[2] for r in rows)
    total = sql(db, "SELECT count(*) FROM sample")[0][0]
    alone = 0
    for file in files + [str(trace)]:
        one = convert(file, options=["--alone"])
        samples, stacks = sql(one, "SELECT count(*), count(stack) FROM sample")[0]
        alone += samples
        # Its stacks have names, both Python's and native ones: the segment has all dictionaries.
        assert sql(one, "SELECT count(*) FROM backtrace WHERE func LIKE 'f%'")[0][0] > 0
        names = {r[0] for r in sql(one, "SELECT DISTINCT func FROM hot_functions")}
        assert any(n.startswith("f") for n in names), names
        assert sql(one, "SELECT count(*) FROM modules_loaded")[0][0] > 3
        assert sql(one, "SELECT count(*) FROM setting WHERE key = 'probing.sample_rate' AND value = '0.001'")[0][0] == 1
    assert alone == total and total > 1000
    # No sample of the second thread is missing between segments: ticks and losses add up to the time.
    named = sql(db, "SELECT count(*) FROM thread WHERE name IS NOT NULL AND name <> ''")[0][0]
    assert named >= len(files)
    assert sql(db, "SELECT name, count(*) FROM threads WHERE name IN ('MainThread', 'second') GROUP BY 1") == [("MainThread", 1), ("second", 1)]
    assert sql(db, "SELECT count(*) FROM whereabouts") == [(1,)]


@pytest.mark.pythons(count=1)
def test_old_segments_are_deleted(build, spawn, run, convert, sql, python, tmp_path, monkeypatch):
    script = tmp_path / "s.py"
    script.write_text(SCRIPT.replace("SECONDS", "300"))
    trace = tmp_path / "dir" / "t.zst"
    trace.parent.mkdir()
    # A file of another recording in the same directory is left alone.
    (tmp_path / "dir" / "t.zst.d").mkdir()
    spawn([build.tool("probing-record"), "-r", "200", "-o", trace, python.path, script], ready="up")
    foreign = tmp_path / "dir" / "t.zst.d" / "other-1.1.zst"
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("x")
    os.utime(str(foreign), (1, 1))
    pid = int(run([build.tool("probing"), "list", "--json"]).stdout.split('"pid":')[1].split(",")[0])
    probing = [build.tool("probing"), "-t", pid]
    run(probing + ["config", "retention_days=0.00003"])  # 2.6 s, and one segment each second
    wait_until(lambda: any(int(s.split(".")[-2]) >= 2 for s in segments(trace)))
    wait_until(lambda: not any(s.endswith(".1.zst") for s in segments(trace) if "other" not in s))
    assert foreign.exists()
    run(probing + ["config", "retention_days=0"])
    run(probing + ["stop"])
    foreign.unlink()
    notes = [r[0] for r in sql(convert(trace), "SELECT text FROM notes WHERE part = 'rotation'")]
    # The note itself is deleted with its segment when that is old.
    assert all("deleted " in n and "0.00003 days ago" in n for n in notes)
    changes = [r[0] for r in sql(convert(trace), "SELECT value FROM setting WHERE key = 'probing.retention_days' ORDER BY ts")]
    assert changes[-1] == "0"


@pytest.mark.pythons(count=1)
def test_settings_of_a_recording(build, run, convert, sql, python, tmp_path):
    record = [build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst"]
    run(record + [python.path, "-c", "0"],
        env=dict(os.environ, PROBING_RETENTION_DAYS="30", PROBING_MAX_MEMORY="16M", PROBING_SEGMENT_SIZE="1G"))
    settings = dict(sql(convert(tmp_path / "t.zst"), "SELECT key, value FROM setting"))
    assert settings["probing.max_memory"] == "16777216" and settings["probing.segment_size"] == "1073741824"
    assert settings["probing.retention_days"] == "30"
