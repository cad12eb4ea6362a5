#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One program is recorded by probing, py-spy and memray, and each file is read by the tool that wrote it, in one run: CPU time, memory, bytes, rows.

    own_files.py BUILD SCRATCH

The question is the same for all: how much belongs to which function. py-spy does not read its own files: its two formats (raw: a line for each
stack with a count; speedscope's JSON) are read as their users do, by a dozen lines of Python. memray's is read by its command `stats` and by its
FileReader. For the samplers a row is a sample, for memray an allocation, so only the time and the bytes for each row can be compared.
Each reader is a process of its own; figures are medians of three rounds, in CPU seconds. A tool that is not installed, and that pip cannot
install, is left out, with the reason.
"""
import collections
import os
import re
import statistics
import subprocess
import sys

from common import Place, find_peer, last_line, used

PROGRAM = """
import json, sys

def make(n):
    return [{"id": i, "name": "name %d" % i, "of": list(range(i % 7))} for i in range(n)]

def write(rows):
    return "".join(json.dumps(row) for row in rows)

def count(text):
    n = {}
    for c in text:
        n[c] = n.get(c, 0) + 1
    return n

for _ in range(int(sys.argv[1])):
    count(write(make(2000)))
"""
RATE = 1000
# Each prints the number of rows, and the function that has most.
RAW = """
import collections, sys
rows, by = 0, collections.Counter()
with open(sys.argv[1]) as f:
    for line in f:
        stack, n = line.rsplit(" ", 1)
        rows += int(n)
        by[stack.rsplit(";", 1)[-1]] += int(n)
print(rows, by.most_common(1)[0][0])
"""
SPEEDSCOPE = """
import collections, json, sys
with open(sys.argv[1]) as f:
    all = json.load(f)
rows, by = 0, collections.Counter()
for profile in all["profiles"]:
    rows += len(profile["samples"])
    for stack, weight in zip(profile["samples"], profile["weights"]):
        by[stack[-1] if stack else None] += weight
most = by.most_common(1)[0][0]
print(rows, "?" if most is None else all["shared"]["frames"][most]["name"])
"""
MEMRAY = """
import collections, sys
import memray
rows, by, names = 0, collections.Counter(), {}
with memray.FileReader(sys.argv[1]) as reader:
    for record in reader.get_allocation_records():
        if record.size: # else something was freed
            rows += 1
            by[record.stack_id] += record.size
            if record.stack_id not in names:
                names[record.stack_id] = record.stack_trace(max_stacks=1)
functions = collections.Counter()
for stack, size in by.items():
    functions[names[stack][0][0] if names[stack] else "?"] += size
print(rows, functions.most_common(1)[0][0])
"""


def find_memray(place):
    """Returns (the folder that memray is in, None), or (None, why not). It must be imported, so it is in a folder of its own."""
    target = place.path("peers-memray")
    for again in (False, True):
        done = subprocess.run([sys.executable, "-c", "import memray"], env=dict(os.environ, PYTHONPATH=target), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True)
        if done.returncode == 0:
            return target, None
        if not again:
            try:
                subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", target, "memray"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
            except (OSError, subprocess.TimeoutExpired) as e:
                return None, str(e)
    return None, "pip could not install it: " + last_line(done.stdout)


def record(words, path):
    """Runs a recorder. Returns the size of its file, or why there is none."""
    if os.path.exists(path):
        os.unlink(path)
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as e:
        return None, str(e)
    if not os.path.exists(path) or not os.path.getsize(path):
        return None, last_line(done.stdout) or "no file, exit code %d" % done.returncode
    return os.path.getsize(path), None


def readers(place, program, rounds, missing):
    """Returns {name: (command, environment, the file, how the number of rows is found in its output)}."""
    found = collections.OrderedDict()
    run = [sys.executable, program, str(rounds)]
    first = re.compile(r"^(\d+)\b", re.M)

    def add(recorder, words, path, reads):
        size, why = record(words, path)
        for name, command, env, rows in reads:
            if size:
                found[name] = (command, env, path, rows)
            else:
                missing[name] = "%s: %s" % (recorder, why)

    trace = place.path("own.zst")
    add("probing", [place.tool("probing-record"), "-q", "-r", str(RATE), "-o", trace, "--"] + run, trace, [
        ("probing query TRACE, first question", [place.tool("probing"), "query", "--csv", "--no-cache", trace,
         "SELECT (SELECT count(*) FROM samples) AS rows, func, python_seconds FROM hot_functions ORDER BY 3 DESC"], None, first)])
    spy, version = find_peer(place, "py-spy", ["py-spy"])
    for kind, text, name in (("raw", RAW, "py-spy's raw"), ("speedscope", SPEEDSCOPE, "py-spy's speedscope JSON")):
        path = place.path("own-pyspy." + kind)
        if not spy:
            missing[name] = "py-spy: %s" % version
            continue
        add("py-spy", [spy, "record", "-r", str(RATE), "-f", kind, "-o", path, "--"] + run, path,
            [(name, [sys.executable, "-c", text, path], None, first)])
    target, why = find_memray(place)
    path = place.path("own-memray.bin")
    names = ("memray's file, memray stats", "memray's file, its FileReader")
    if not target:
        missing.update((name, "memray: %s" % why) for name in names)
        return found
    env = dict(os.environ, PYTHONPATH=target, PYTHONDONTWRITEBYTECODE="1")
    add("memray", ["env", "PYTHONPATH=" + target, sys.executable, "-m", "memray", "run", "-q", "-f", "-o", path] + run[1:], path, [
        (names[0], [sys.executable, "-m", "memray", "stats", path], env, re.compile(r"Total allocations:\s*(\d+)")),
        (names[1], [sys.executable, "-c", MEMRAY, path], env, first)])
    return found


def measure(place, rounds=400):
    """Returns ({reader: (CPU s, peak MB, bytes, rows)}, {reader: why it is left out})."""
    program, missing, results = place.path("own_program.py"), {}, collections.OrderedDict()
    with open(program, "w") as f:
        f.write(PROGRAM)
    known = readers(place, program, rounds, missing)
    for _ in range(3):
        for name, (command, env, path, rows) in known.items():
            if name in missing:
                continue
            code, cpu, memory, done = used(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, universal_newlines=True)
            said = rows.search(done.stdout or "")
            if code or not said or not int(said.group(1)):
                missing[name] = (last_line(done.stderr or done.stdout) or "exit code %d" % code)[:200]
                results.pop(name, None)
                continue
            results.setdefault(name, []).append((cpu, memory, os.path.getsize(path), int(said.group(1))))
    return {name: tuple(statistics.median(v) for v in zip(*got)) for name, got in results.items()}, missing


def table(found, missing):
    """Returns the results as lines for people."""
    for name, (cpu, memory, size, rows) in found.items():
        yield "%-45s %7.2f s CPU  %7.1f MB of memory  %8.2f MB read  %9d rows, %6.2f us and %6.1f bytes a row" % (
            name, cpu, memory, size / 1e6, rows, cpu / rows * 1e6, size / rows)
    for name, why in missing.items():
        yield "%-45s left out: %s" % (name, why)


if __name__ == "__main__":
    here = Place(os.path.abspath(sys.argv[1]), False)
    here.dir = os.path.abspath(sys.argv[2])
    os.makedirs(here.dir, exist_ok=True)
    print("\n".join(table(*measure(here))))
