# SPDX-License-Identifier: Apache-2.0
"""A trace in segments: all together, each alone, deleted when they are old, and the last one finished after a kill."""
import collections
import glob
import json
import os
import re
import signal
import sqlite3
import subprocess
import time

import pytest

from ask_helpers import CHILD, MADE_ANEW, ask, edited, in_segments
from report_scene import content, part
from test_torch import find_torch

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


TRAINING = """
import glob, os, sys, time
sys.path.insert(0, sys.argv[2])
import probing, torch
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 10 ** 6
    def __getitem__(self, i):
        time.sleep(0.002)
        return torch.zeros(8)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, batch in enumerate(torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=1)):
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    for _ in range(20):
        probing.event("noise", text=os.urandom(1000).hex())
    time.sleep(0.002 * (step % 5) + 0.01 * len(glob.glob(sys.argv[1] + ".d/*.[0-9].zst")))
    if step > 40 and len(glob.glob(sys.argv[1] + ".d/*.[0-9].zst")) > 2:
        break
"""


def test_a_process_in_several_files_is_one_process(build, record, run, convert, tmp_path, monkeypatch):
    """What is asked of its files and of the one that `probing pack` makes of them has the same answer."""
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    monkeypatch.setenv("PROBING_SEGMENT_SIZE", "64K")
    trace = record(TRAINING, tmp_path / "t.zst", build.share / "python", python=python, out=tmp_path / "t.zst").trace
    assert len(glob.glob(str(trace) + ".d/*.[0-9].zst")) > 2
    run([build.tool("probing"), "pack", "-q", trace, "-o", tmp_path / "packed"])
    several, one = convert(trace), convert(tmp_path / "packed")

    def same(question, table):
        """The answer, and by process the rows of a table. Times may differ by what the clock anchors of one file and of all do."""
        (told, several_rows), (whole, rows) = (ask(build, run, question, db) for db in (several, one))
        assert re.sub(r"\d+", "", told) == re.sub(r"\d+", "", whole), question
        numbers = [[float(n) for n in re.findall(r"\d+(?:\.\d+)?", text)] for text in (told, whole)]
        assert numbers[0] == pytest.approx(numbers[1], abs=0.11), question
        assert len(several_rows[table]) == len(rows[table]) > 0, question
    same("step", 0)
    same("loader", 0)
    same("loader", 1)
    same("what_if", 0)
    same("last", 0)
    same("memory", 0)
    stacks = [run([build.tool("probing"), "stacks", db]).stdout for db in (several, one)]
    assert stacks[0] == stacks[1]
    # At one of these times another sample may be the nearest, as the clocks of the two differ by that little.
    stacks = [[run([build.tool("probing"), "stacks", "--at", at, db]).stdout for db in (several, one)] for at in ("+1s", "+2s", "+2.5s")]
    assert any(a == b for a, b in stacks), stacks
    ranks = [json.loads(run([build.tool("probing"), "top", "--json", db]).stdout)["views"]["ranks"]["rows"] for db in (several, one)]
    assert len(ranks[0]) == len(ranks[1]) == 1
    assert run([build.tool("probing"), "diff", several, one]).stdout.startswith("nothing that stands out of the noise")

    def exported(*options):
        """The two as a viewer gets them: Python's frames, as those of native code may have more names in a packed trace."""
        texts = (run([build.tool("probing"), "export", "-q", "--python", *options, db]).stdout for db in (several, one))
        return texts if options[1] == "collapsed" else [json.loads(text) for text in texts]

    lines = []
    for text in exported("--format", "collapsed"):
        lines.append(collections.Counter())
        for line in text.splitlines():
            lines[-1][line.rpartition(" ")[0]] += int(line.rpartition(" ")[2])
    assert lines[0] == lines[1]
    profiles = [[(p["name"], len(p["samples"])) for p in scope["profiles"]] for scope in exported("--format", "speedscope")]
    assert sorted(profiles[0]) == sorted(profiles[1])
    files = exported("--format", "firefox")
    threads = [[(t["processName"], t["name"], t["isMainThread"], sum(t["samples"]["weight"]), t["markers"]["length"]) for t in f["threads"]] for f in files]
    assert sorted(threads[0]) == sorted(threads[1])
    assert [len(c["samples"]["count"]) for c in files[0]["counters"]] == [len(c["samples"]["count"]) for c in files[1]["counters"]]
    for options in ([], ["--processes"]):  # the picture says of how many
        said = [re.search(r">([^<>]*) \u00b7 [^<>]* recorded", run([build.tool("probing"), "flamegraph", *options, db]).stdout) for db in (several, one)]
        assert said[0].group(1) == said[1].group(1)
    events = []  # how many of each kind each track has
    for trace in exported("--format", "chrome"):
        names = {(e["pid"], e.get("tid") if e["name"] == "thread_name" else None): e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M" and "name" in e["args"]}
        events.append(collections.Counter((names[e["pid"], None], names.get((e["pid"], e.get("tid"))), e["ph"]) for e in trace["traceEvents"] if e["ph"] != "M"))
    assert events[0] == events[1]


RAISES = """
import atexit, glob, os, sys, time
sys.path.insert(0, sys.argv[2])
import probing
def files():
    return len(glob.glob(sys.argv[1] + ".d/*.zst"))
def noise(more=1, began=files()):
    while files() < began + more:
        probing.event("noise", text=os.urandom(1000).hex())
        time.sleep(0.001)
noise()
atexit.register(noise, 1, files())
raise ValueError("the end")
"""


def test_what_ended_a_program_is_in_an_earlier_file(build, record, run, convert, sql, tmp_path, monkeypatch):
    """The exception and the exit code that follows from it are one end."""
    monkeypatch.setenv("PROBING_SEGMENT_SIZE", "64K")
    db = convert(record(RAISES, tmp_path / "t.zst", build.share / "python", out=tmp_path / "t.zst", check=1).trace)
    assert sql(db, "SELECT count(*) FROM trace WHERE exit_code = 1 AND id NOT IN (SELECT trace_id FROM triggers)") == [(1,)]
    told, rows = ask(build, run, "died", db)
    assert "ValueError: the end" in told and [[r["kind"] for r in table] for table in rows if table and "kind" in table[0]] == [["exception"]]


@pytest.mark.parametrize("fault, question", [("--hang", "hang"), ("--kill", "died")])
def test_the_last_file_may_have_the_oldest_record(build, run, simulated_job, tmp_path, fault, question):
    """A thread that slept, or was blocked, comes late with its record, so that the first time in a file is not when the file began. A sleeping thread has one sample for up
    to a second: of files shorter than that, an earlier one was often taken for the last."""
    db = edited(simulated_job(fault, "3:6") / "out.db", tmp_path, "")
    in_segments(db)

    def answers():
        with sqlite3.connect(str(db)) as c:
            c.executescript(MADE_ANEW)
            said = [c.execute("SELECT trace_id, does FROM hangs ORDER BY rank").fetchall(), c.execute("SELECT * FROM whereabouts ORDER BY trace_id").fetchall()]
        c.close()
        return said + [ask(build, run, q, db) for q in (question, "last")] + [run([build.tool("probing"), "stacks", "--json", db]).stdout]

    before = answers()
    assert len(before[1]) == 8 and all(trace > 8 for trace, *_ in before[1])
    with sqlite3.connect(str(db)) as c:
        c.execute("UPDATE trace_file AS t SET start_ts = (SELECT min(o.start_ts) - 1 FROM trace_file o WHERE o.program = t.program) WHERE file LIKE '%.2'")
    c.close()
    for one, two in zip(before, answers()):
        assert one == two


def test_a_report_has_the_rates_from_file_to_file(build, run, simulated_job, tmp_path):
    """The first row of a file has one before it, in an earlier file. Of this process the earlier file has the higher number, as when --append came upon it later."""
    def rates(db):
        run([build.tool("probing"), "report", "-o", tmp_path / "p.html", db])
        return [part(content(tmp_path / "p.html"), "machine", title) for title in ("Processor (100 % is one)", "Network, sent", "Network, received")]

    db = edited(simulated_job() / "out.db", tmp_path, "DELETE FROM cpu WHERE id NOT IN (SELECT min(id) FROM cpu GROUP BY id >> 40 UNION SELECT max(id) FROM cpu GROUP BY id >> 40);"
                "DELETE FROM network WHERE id NOT IN (SELECT min(id) FROM network GROUP BY id >> 40, interface UNION SELECT max(id) FROM network GROUP BY id >> 40, interface)")
    whole = rates(db)
    assert len(whole[0]["rows"]) == 8 and all(row["max"] for row in whole[0]["rows"])
    in_segments(db)
    assert rates(db) == whole
    swap = "UPDATE %s SET id = id %% (1 << 40) + ((CASE WHEN id >> 40 > 8 THEN (id >> 40) - 8 ELSE (id >> 40) + 8 END + 100) << 40); UPDATE %s SET id = id - (100 << 40);"
    with sqlite3.connect(str(db)) as c:
        c.executescript("".join(swap % (table, table) for table in ("cpu", "network")) +
                        "CREATE TEMP TABLE other AS SELECT * FROM trace_file; UPDATE trace_file AS t SET (start_ts, end_ts) = (SELECT o.start_ts, o.end_ts FROM other o WHERE o.program = t.program AND o.id <> t.id)")
    c.close()
    assert rates(db) == whole


# Rank 3 waits for its data loader, a process that reads, and for both another file (rotation) has begun in which there is no sample of them.
FEEDS = CHILD % 3 + """UPDATE trace_file SET role = 'dataloader' WHERE id = 99;
INSERT INTO thread SELECT (99 << 40) + (id & 0xffffffffff), 99, 7, name, ident, start_ts, end_ts, samples, running, cpu_us, comm FROM thread WHERE trace = 4;
INSERT INTO function VALUES (900000, 0, 'read', '/x/data.py', 1, NULL), (900001, 0, 'fetch', '/x/fetch.py', 1, NULL), (900002, 0, 'next', '/x/dataloader.py', 1, NULL);
INSERT INTO frame VALUES (900000, 900000, 8, '/x/data.py', 0, 'read', NULL), (900001, 900001, 5, '/x/fetch.py', 0, 'fetch', NULL), (900002, 900002, 7, '/x/dataloader.py', 0, 'next', NULL);
INSERT INTO part VALUES (900000, '[900000,900001]'), (900001, '[900002]');
INSERT INTO stack VALUES (900000, 2, 900000, 0, 'read', '/x/data.py', 8, 0, '[900000]'), (900001, 1, 900002, 0, 'next', '/x/dataloader.py', 7, 0, '[900001]');
INSERT INTO sample SELECT id + (95 << 40), ts, thread, 900000, cpu_us, count, flags FROM sample WHERE id >> 40 = 4; UPDATE sample SET stack = 900001 WHERE id >> 40 = 4;"""
ANOTHER_FILE = """CREATE TEMP TABLE y AS SELECT * FROM trace_file WHERE id IN (4, 99); UPDATE y SET id = id + 200, first_id = id + 200 << 40, last_id = (id + 201 << 40) - 1, start_ts = end_ts - 1;
INSERT INTO trace_file SELECT * FROM y; UPDATE trace_file SET program = iif(id > 200, id - 200, id) WHERE id % 200 IN (4, 99); UPDATE trace_file SET end_ts = end_ts - 1, finish_ts = NULL, end_reason = 'rotated' WHERE id IN (4, 99);
INSERT INTO thread SELECT id + (200 << 40), trace + 200, tid, name, ident, start_ts, end_ts, 0, 0, 0, comm FROM thread WHERE trace IN (4, 99);"""


@pytest.mark.parametrize("files", [1, 2])
def test_a_data_loader_stood_where_an_earlier_file_says(build, run, simulated_job, tmp_path, files):
    db = edited(simulated_job("--hang", "3:6") / "out.db", tmp_path, FEEDS + ANOTHER_FILE * (files > 1) + MADE_ANEW)
    answer, _ = ask(build, run, "hang", db)
    assert re.search(r" rank 3 is in next \(dataloader.py:7\); its data loader \(process 7\) in read \(data.py:8\)$", answer), answer
