# SPDX-License-Identifier: Apache-2.0
"""One thread, several Python stacks: subinterpreters that call each other, greenlets. Python frames stand beside the native
frames that run them, in `backtrace --stop` and in a recording alike."""
import json
import os
import subprocess

import pytest
from conftest import PYTHONS

SUB = """
import sys, threading
try: import _xxsubinterpreters as sub
except ImportError: import _interpreters as sub
code = '''
import time
def sub_outer(): list(map(sub_inner, [0]))
def sub_inner(_):
    end = time.monotonic() + 1.5
    print("up", flush=True)
    while time.monotonic() < end: time.sleep(0.002) if %r == "sleep" else sorted(range(2000))
sub_outer()
''' % sys.argv[2]
def main_outer(): main_inner()
def main_inner(): (getattr(sub, "run_string", None) or sub.exec)(one, code)
one = sub.create()
if sys.argv[1] == "thread":
    t = threading.Thread(target=main_outer)
    t.start()
    t.join()
else:
    main_outer()
"""
GREENLET = """
import greenlet, sys, time
def green_outer(): list(map(green_inner, [0]))
def green_inner(_):
    end = time.monotonic() + 1.5
    print("up", flush=True)
    while time.monotonic() < end: time.sleep(0.002) if sys.argv[2] == "sleep" else sorted(range(2000))
def main_outer(): main_inner(greenlet.greenlet(green_outer))
def main_inner(g): g.switch()
main_outer()
"""
# An environment that has greenlet may be named beside the interpreters themselves.
GREEN = [path for path in [p.path for p in PYTHONS] + os.environ.get("PROBING_PYTHONS", "").split()
         if subprocess.run([path, "-c", "import greenlet"], stderr=subprocess.DEVNULL).returncode == 0]
# Innermost first; "<...>" are native frames, by a part of their function or file.
SUB_ORDER = ["<map_next>", "sub_outer", "<interpreters.>", "main_inner", "main_outer"]
GREEN_ORDER = ["<map_next>", "green_outer", "<greenlet.>"]


def in_order(frames, want):
    """Of these frames (name, file of a native one or None), those named in `want` stand in that order."""
    seen = []
    for name, file in frames:
        named = [w for w in want if (w[1:-1] in name + " " + file if file and w[0] == "<" else w == name.split(".")[-1])]
        seen += [w for w in named if w not in seen]
    assert seen == want, frames


def check(build, run, record, convert, sql, spawn, python, source, args, order, tmp_path):
    script = tmp_path / "order.py"
    script.write_text(source)
    process = spawn([getattr(python, "path", python), script] + args, ready="up")
    said = json.loads(run([build.tool("probing"), "-t", process.pid, "backtrace", "--stop", "--json"]).stdout)
    found = [t for t in said["threads"] if any((f["func"] or "").split(".")[-1] == order[1] for f in t["frames"])]
    assert len(found) == 1 and found[0]["consistent"]
    in_order([(f["func"] or "", f.get("module")) for f in found[0]["frames"]], order)
    db = convert(record(script, *args, python=python, hz=200).trace)
    rows = sql(db, "SELECT stack_id, coalesce(func, ''), CASE frame_type WHEN 'Native' THEN module END FROM backtrace "
                   "GROUP BY stack_id, depth ORDER BY stack_id, depth")
    stacks = {}
    for stack, name, file in rows:
        stacks.setdefault(stack, []).append((name, file))
    stacks = [s for s in stacks.values() if any(name.split(".")[-1] == order[1] for name, _ in s) and
              any("map_next" in name for name, _ in s)]
    assert stacks
    for frames in stacks:
        in_order(frames, order)


@pytest.mark.pythons(min=(3, 11), max=(3, 13), shared=True)
@pytest.mark.parametrize("who", ["same", "thread"])
@pytest.mark.parametrize("how", ["sleep", "spin"])
def test_subinterpreters(build, run, record, convert, sql, spawn, python, tmp_path, who, how):
    check(build, run, record, convert, sql, spawn, python, SUB, [who, how], SUB_ORDER, tmp_path)


@pytest.mark.skipif(not GREEN, reason="no interpreter at hand has greenlet")
@pytest.mark.parametrize("how", ["sleep", "spin"])
@pytest.mark.parametrize("interpreter", GREEN, ids=[p.split("/")[-3] for p in GREEN])
def test_greenlets(build, run, record, convert, sql, spawn, interpreter, tmp_path, how):
    check(build, run, record, convert, sql, spawn, interpreter, GREENLET, ["", how], GREEN_ORDER, tmp_path)
