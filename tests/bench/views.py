# SPDX-License-Identifier: Apache-2.0
"""What questions about a large job cost: a fleet's traces (tests/fleet: recorded stacks of a real training, of many ranks) in one database."""
import glob
import os
import re
import shutil
import sqlite3
import subprocess
import threading
import time

from common import Failed, last_line, say

LIMIT = 60 # seconds after which a question is stopped
# A row of these is made of many others (each frame of each sample), so their sums read only the columns that make one. backtrace has 50
# rows for each sample, so only a tenth of its ranks is read.
WHOLE = {"backtrace": "SELECT count(*), sum(seconds) FROM backtrace WHERE trace_id <= (SELECT (count(*) + 9) / 10 FROM trace_file)", "stack_frame": "SELECT count(*), sum(depth) FROM stack_frame"}


def make_fleet(place, ranks, minutes, hz):
    """Returns the folders of the fleet's nodes. The same program with the same options makes the same files, so those of the last bench are
    used again."""
    out, made = place.path("fleet"), place.path("fleet.made")
    program = os.path.join(place.build, "tests", "fleet", "probing-fleet")
    command = [program, "--quiet", "--out", out, "--ranks", str(ranks), "--nodes", str((ranks + 7) // 8), "--minutes", str(minutes),
               "--hz", str(hz), "--step-ms", "500", "--jobs", "2"]
    how = "%s %d" % (" ".join(command), os.stat(program).st_mtime_ns)
    try:
        with open(made) as f:
            there = f.read() == how
    except OSError:
        there = False
    if not there:
        shutil.rmtree(out, ignore_errors=True)
        if os.path.exists(made):
            os.unlink(made)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=600)
        if done.returncode:
            raise Failed("probing-fleet: " + last_line(done.stderr))
        with open(made, "w") as f:
            f.write(how)
    return sorted(glob.glob(os.path.join(out, "node*")))


def convert_ratio(place, nodes):
    """Returns {rate, times (a plain loop), size (times the trace's), memory} as bench_convert measures them on these traces."""
    done = subprocess.run([os.path.join(place.build, "tests", "bench", "bench_convert"), "--traces", "recorded stacks"] + nodes,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=900)
    found = re.search(r"\(([\d.]+) x\) in [\d.]+ s: ([\d.]+) Mrow/s, [\d.]+ x a plain loop \(([\d.]+) x .*peak RSS ([\d.]+) MB", done.stdout)
    if done.returncode or not found:
        raise Failed("bench_convert: " + last_line(done.stderr or done.stdout))
    size, rate, times, memory = map(float, found.groups())
    return {"size": size, "rate": rate * 1e6, "times": times, "memory": memory}


def asked(path, query):
    """Returns (CPU seconds, first column of the last row, number of rows); seconds is None if the question was stopped."""
    c = sqlite3.connect("file:%s?mode=ro" % path, uri=True)
    timer = threading.Timer(LIMIT, c.interrupt)
    timer.start()
    begin = time.thread_time()
    try:
        row, n = None, 0
        for row in c.execute(query): # rows are not kept: that would take Python's time, more than SQLite's if there are many
            n += 1
        return time.thread_time() - begin, row[0] if row else None, n
    except sqlite3.OperationalError as e:
        if "interrupt" not in str(e):
            raise
        return None, None, 0
    finally:
        timer.cancel()
        c.close()


def measure(path):
    """Returns [(view, seconds of the first ten rows, of ten seconds of a rank or None, of all rows, number of all rows)]."""
    c = sqlite3.connect("file:%s?mode=ro" % path, uri=True)
    names = [n for n, in c.execute("SELECT name FROM sqlite_schema WHERE type = 'view' AND name NOT LIKE '%\\_made' ESCAPE '\\' ORDER BY 1")]
    begin, = c.execute("SELECT min(start_ts) / 1e9 + 5 FROM trace_file").fetchone()
    found = []
    for view in names:
        say("bench: views: %s" % view)
        columns = [row[1] for row in c.execute("PRAGMA table_info(%s)" % view)]
        some = ["rank = 1"] * ("rank" in columns) + ["timestamp BETWEEN %f AND %f" % (begin, begin + 10)] * ("timestamp" in columns)
        first = asked(path, "SELECT * FROM %s LIMIT 10" % view)[0]
        part = asked(path, "SELECT * FROM %s WHERE %s" % (view, " AND ".join(some)))[0] if len(some) == 2 else None
        column = "timestamp" if "timestamp" in columns else columns[-1]
        whole, rows, _ = asked(path, WHOLE.get(view, 'SELECT count(*), count("%s") FROM %s' % (column, view)))
        found.append((view, first, part, whole, rows or 0))
    c.close()
    return found
