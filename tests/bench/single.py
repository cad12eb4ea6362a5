# SPDX-License-Identifier: Apache-2.0
"""Figures that stand alone: the cost that the trace reports, memory, size of traces, inject, and the C benches."""
import json
import os
import re
import signal
import sqlite3
import subprocess
import time

from readers import measured
from common import WORKLOAD, Failed, environment, last_line, median, run_workload, say
from slowdown import forget


def convert(place, trace):
    """Converts the main process's trace alone. Returns the database's path, or raises Failed."""
    db = trace + ".db"
    done = subprocess.run([place.tool("probing-convert"), "--force", "--alone", trace, db], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=300)
    if done.returncode:
        raise Failed("probing-convert: " + last_line(done.stdout))
    return db


def ask(db, query):
    connection = sqlite3.connect(db)
    try:
        return connection.execute(query).fetchone()
    finally:
        connection.close()


def own_cost(place, trace):
    """Returns what recording cost the process according to the trace itself, in seconds and per second."""
    db = convert(place, trace)
    agent, handler, elapsed = ask(db, "SELECT max(agent_us), max(handler_us), (max(ts) - min(ts)) / 1e9 FROM cpu")
    # The counters begin with the recording, the first row comes a little later: so the whole time counts.
    seconds, lost = ask(db, "SELECT duration, lost FROM trace")
    ticks, records = ask(db, "SELECT sum(count), count(*) FROM sample")
    return {"agent": agent / 1e6 / seconds, "handler": handler / 1e6 / seconds, "seconds": seconds,
            "samples": ticks or 0, "records": records or 0, "lost": lost, "bytes": os.path.getsize(trace)}


def bytes_per_sample(place, name, python, short, long):
    """Makes two recordings of different length, and returns what the longer one has more, for each sample."""
    costs = []
    for args in (short, long):
        trace = place.path("size-%s.zst" % name)
        forget(trace)
        run_workload(place, [place.tool("probing-record"), "-q", "-r", "1000", "-o", trace, "--"], python, args)
        costs.append(own_cost(place, trace))
    a, b = costs
    more = b["bytes"] - a["bytes"]
    return {"sample": more / max(1, b["samples"] - a["samples"]), "record": more / max(1, b["records"] - a["records"]),
            "samples": b["samples"], "records": b["records"], "bytes": b["bytes"], "lost": b["lost"],
            "seconds": b["seconds"]}


def memory(place, python, torch, repeats, seconds):
    """Memory of the agent: medians of rss, pss and private bytes of the process, bare and recorded."""
    got = {"bare": [], "probing": []}
    trace = place.path("memory.zst")
    for _ in range(repeats):
        for which in ("bare", "probing"):
            forget(trace)
            prefix = [place.tool("probing-record"), "-q", "-r", "100", "-o", trace, "--"] if which == "probing" else []
            got[which].append(run_workload(place, prefix, python, ["memory", seconds] + (["torch"] if torch else [])))
    return {which: {key: median([r[key] for r in runs]) for key in ("rss", "pss", "private")} for which, runs in got.items()}


def inject(place, python, repeats):
    """gdb -p PID -ex "probing inject" on a process with torch loaded: how long the command takes, and how long the target stands still, as
    the plugin says and by the target's own heartbeat (less its longest gap without us)."""
    plugin = os.path.join(place.build, "share", "probing", "gdb", "probing.py")
    wall, told, gaps, bare, said = [], [], [], [], ""
    for number in range(repeats + 1):
        work = place.path("inject%d" % number)
        os.makedirs(work, exist_ok=True)
        env = environment(place)
        if os.path.exists(env["BENCH_OUT"]):
            os.unlink(env["BENCH_OUT"])
        target = subprocess.Popen([python, WORKLOAD, "target", "4"], env=env, cwd=work, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            target.stdout.readline()
            time.sleep(1)
            if number:  # round 0 measures the heartbeat alone
                start = time.perf_counter()
                done = subprocess.run(["gdb", "-q", "-batch", "-ix", plugin, "-p", str(target.pid), "-ex", "probing inject"],
                                      env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, universal_newlines=True, timeout=60)
                wall.append(time.perf_counter() - start)
                said = done.stdout
                found = re.search(r"([\d.]+) ms", said)
                if found:
                    told.append(float(found.group(1)) / 1e3)
            target.wait(timeout=30)
            with open(env["BENCH_OUT"]) as f:
                (gaps if number else bare).append(json.load(f)["longest_gap"])
        except (OSError, ValueError, subprocess.SubprocessError) as e:
            raise Failed("%s; gdb said: %s" % (e, " ".join(said.split())[-300:]))
        finally:
            if target.poll() is None:
                os.killpg(target.pid, signal.SIGKILL)
                target.wait()
            target.stdout.close()
    if not told:
        raise Failed("the plugin named no time; gdb said: " + " ".join(said.split())[-300:])
    return {"wall": median(wall), "told": median(told), "gap": median(gaps), "bare_gap": median(bare),
            "worst_told": max(told), "repeats": repeats}


def c_benches(place):
    """Returns [(program, name, value, unit)] from the lines that the C benches print."""
    found = []
    folder = os.path.join(place.build, "tests", "bench")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        if not name.startswith("bench_") or not os.access(path, os.X_OK) or os.path.isdir(path):
            continue
        say("bench: %s" % name)
        try:
            done = subprocess.run([path], env=environment(place), cwd=place.dir, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=240)
        except subprocess.TimeoutExpired:
            say("bench: %s hung" % name)
            continue
        if done.returncode:
            say("bench: %s: exit code %d: %s" % (name, done.returncode, last_line(done.stderr)))
        for line in done.stdout.splitlines():
            # bench_convert prints sentences.
            rate = re.match(r"convert [^:]*: ([\d.]+) M samples.* ([\d.]+) Mrow/s, [\d.]+ x a plain loop \(([\d.]+) x.*peak RSS ([\d.]+) MB", line)
            if rate:
                size = "%g M samples" % float(rate.group(1))
                found.append((name, "convert " + size, float(rate.group(2)) * 1e6, "rows/s"))
                found.append((name, "peak memory, " + size, float(rate.group(4)), "MB"))
                found.append((name, "plain loop, " + size, float(rate.group(3)), "x as long"))
                continue
            part = line.split()
            if len(part) >= 3 and re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", part[1]):
                found.append((name, part[0], float(part[1]), " ".join(part[2:])))
    return found


def memory_of_many(place, n):
    """Returns {what each of the n samples has a new one of: the conversion's peak MB}."""
    found, trace, db = {}, place.path("many.zst"), place.path("many.db")
    for kind in ("functions", "threads", "stacks", "names"):
        say("bench: %d %s" % (n, kind))
        subprocess.run([os.path.join(place.build, "tests", "bench", "bench_convert"), "--many", kind, str(n), trace], check=True)
        found[kind] = measured([place.tool("probing-convert"), "-q", "-f", trace, db])[2]
        for path in (trace, db):
            os.unlink(path)
    return found
