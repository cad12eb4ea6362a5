#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same job is read by probing and by tools that read Chrome's (Kineto's) JSON, in one run: time, memory, bytes.

    readers.py BUILD SCRATCH [PYTHON]     PYTHON may have pandas, duckdb and hta (HolisticTraceAnalysis); those that it lacks are left out, with the reason

The job is a fleet's (tests/fleet). Its module calls and collectives are written a second time, as the JSON that torch's profiler writes of such
calls (one file a rank, `traceEvents` of ph X with ts and dur in us). The question is the same for all: calls and seconds of each name, of all ranks.
Each reader is a process of its own. Figures are medians of three rounds, in CPU seconds, which depend less on how busy the machine is.
"""
import collections
import glob
import gzip
import json
import os
import sqlite3
import statistics
import subprocess
import sys

from common import last_line, used

QUESTION = "SELECT module AS name, count(*) AS n, sum(duration) AS s FROM torch_trace WHERE duration IS NOT NULL GROUP BY 1"
CHILD = {
    "json": """
import collections, json, sys
n, s = collections.Counter(), collections.Counter()
for path in sys.argv[1:]:
    with open(path) as f:
        for e in json.load(f)["traceEvents"]:
            if e.get("cat") == "python_function":
                n[e["name"]] += 1
                s[e["name"]] += e["dur"]
print(sum(n.values()))
""",
    "pandas": """
import json, sys
import pandas
frames = []
for path in sys.argv[1:]:
    with open(path) as f:
        frames.append(pandas.DataFrame(json.load(f)["traceEvents"]))
all = pandas.concat(frames)
calls = all[all["cat"] == "python_function"]
print(int(calls.groupby("name")["dur"].agg(["count", "sum"])["count"].sum()))
""",
    "duckdb": """
import os, sys
import duckdb
c = duckdb.connect()
c.execute("SET threads = 1")
c.execute("SET enable_progress_bar = false") # what takes two seconds is said on stdout, else
read = ("(SELECT unnest(traceEvents) AS e FROM read_json(?, maximum_object_size = %d,"
        " columns = {traceEvents: 'STRUCT(ph VARCHAR, cat VARCHAR, name VARCHAR, ts DOUBLE, dur DOUBLE)[]'}))"
        % (max(map(os.path.getsize, sys.argv[1:])) + 1024)) # each file is one object, and as much is set aside for it
n = c.execute("SELECT count(*) FROM " + read + " WHERE e.cat = 'python_function'", [sys.argv[1:]]).fetchone()[0]
c.execute("SELECT e.name, count(*), sum(e.dur) FROM " + read + " GROUP BY 1", [sys.argv[1:]]).fetchall()
print(n)
""",
    "hta": """
import os, sys
from hta.trace_analysis import TraceAnalysis
t = TraceAnalysis(trace_files={i: p for i, p in enumerate(sys.argv[1:])}, trace_dir=os.path.dirname(sys.argv[1]))
print(sum(len(t.t.get_trace(i)) for i in range(len(sys.argv) - 1)))
"""}


def measured(words, env=None):
    """Returns (stdout, CPU seconds, peak MB) of a process."""
    code, cpu, memory, done = used(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, universal_newlines=True)
    if code:
        raise RuntimeError(last_line(done.stderr or done.stdout) or "exit code %d" % code)
    return done.stdout, cpu, memory


def write_json(db, out):
    """Writes one file for each rank, and returns how many calls there are."""
    os.makedirs(out, exist_ok=True)
    c = sqlite3.connect(db)
    total = 0
    for trace, rank, world, pid in c.execute("SELECT id, rank, world_size, pid FROM trace ORDER BY rank").fetchall():
        events = [{"ph": "X", "cat": "python_function", "name": name, "ts": ts * 1e6, "dur": dur * 1e6, "pid": pid, "tid": tid, "args": {"Python id": n, "Python parent id": parent}}
                  for name, ts, dur, tid, n, parent in c.execute(
                      "SELECT module, timestamp, duration, tid, row_id, parent_id FROM torch_trace WHERE trace_id = ? AND duration IS NOT NULL", (trace,))]
        total += len(events)
        events += [{"ph": "X", "cat": "cpu_op", "name": "c10d::" + op, "ts": ts * 1e6, "dur": dur * 1e6, "pid": pid, "tid": tid, "args": {"seq": seq, "External id": seq}}
                   for op, ts, dur, tid, seq in c.execute("SELECT op, enter, waited, tid, seq FROM comm_metrics WHERE trace_id = ?", (trace,))]
        with open(os.path.join(out, "rank%d.json" % rank), "w") as f:
            json.dump({"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": world}, "traceEvents": events}, f)
    return total


def measure(build, scratch, python=None, ranks=16, minutes=5):
    """Returns ({reader: (CPU s, peak MB, bytes read)}, {reader: why it is left out})."""
    tool = os.path.join(build, "bin", "probing")
    fleet, db, chrome = (os.path.join(scratch, n) for n in ("readers-fleet", "readers.db", "readers-json"))
    subprocess.run([os.path.join(build, "tests/fleet/probing-fleet"), "--quiet", "--out", fleet, "--ranks", str(ranks), "--nodes", "2",
                    "--minutes", str(minutes), "--hz", "10"], check=True)
    traces = sorted(glob.glob(os.path.join(fleet, "node*", "*.zst")))
    subprocess.run([tool, "convert", "-q", "-f"] + traces + [db], check=True)
    calls = write_json(db, chrome)
    files = sorted(glob.glob(os.path.join(chrome, "*.json")))
    size = sum(map(os.path.getsize, traces))
    plain = sum(map(os.path.getsize, files))
    packed = sum(len(gzip.compress(open(f, "rb").read(), 6)) for f in files)
    readers = collections.OrderedDict()
    readers["probing query TRACE..., first question"] = ([tool, "query", "--csv", "--no-cache"] + traces + [QUESTION], size)
    readers["probing query DATABASE"] = ([tool, "query", "--csv", db, QUESTION], os.path.getsize(db))
    for name, code in CHILD.items():
        readers[name] = ([python or sys.executable, "-c", code] + files, plain)
    found, missing = {}, {}
    for _ in range(3):
        for name, (words, read) in readers.items():
            if name in missing:
                continue
            try:
                out, cpu, memory = measured(words)
            except RuntimeError as e:
                missing[name] = str(e)[:200]
                continue
            if name.startswith("probing"):
                n = sum(int(line.split(",")[-2]) for line in out.splitlines()[1:])
            else:
                n = int(out.split()[-1])
            assert n == calls or name == "hta", (name, n, calls)
            found.setdefault(name, []).append((cpu, memory, read))
    return {name: tuple(statistics.median(v) for v in zip(*got)) for name, got in found.items()}, missing, {"calls": calls, "trace": size, "json": plain, "json.gz": packed}


def table(found, missing, sizes):
    """Returns the results as lines for people."""
    base = found["probing query TRACE..., first question"]
    yield "%d calls of modules. Traces %.1f MB, as JSON %.1f MB (%.0f x), gzipped %.1f MB (%.1f x)." % (
        sizes["calls"], sizes["trace"] / 1e6, sizes["json"] / 1e6, sizes["json"] / sizes["trace"], sizes["json.gz"] / 1e6, sizes["json.gz"] / sizes["trace"])
    for name, (cpu, memory, read) in found.items():
        yield "%-45s %7.2f s CPU (%.2f x)  %7.1f MB of memory (%.1f x)  %7.1f MB read" % (name, cpu, cpu / base[0], memory, memory / base[1], read / 1e6)
    for name, why in missing.items():
        yield "%-45s left out: %s" % (name, why)


if __name__ == "__main__":
    print("\n".join(table(*measure(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), *sys.argv[3:4]))))
