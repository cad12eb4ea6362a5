# SPDX-License-Identifier: Apache-2.0
"""backtrace --locals of live and stopped processes, of cores and in GDB, as text and as JSON. test_objects.py tests what each kind of object
looks like."""
import json
import re
import subprocess

import pytest

from gdb_tools import GDB, gdb_command, needs_gdb

PROGRAM = """
import sys, time
class Thing:
    def __init__(self):
        self.size, self.tag = 3, "q\\"\\n\\u6587"
def outer(first, *rest, key=None):
    shared = {"a": [1, (2, None)]}
    def inner(number):
        total = number ** 40
        thing = Thing()
        text = "it's"
        print("ready", flush=True)
        time.sleep(1000)
        return shared
    return inner(3)
outer(1.5, b"x", key={"k"})
"""
INNER = {"number": "3", "total": str(3 ** 40), "text": '"it\'s"', "shared": "{'a': [1, (2, None)]}"}
OUTER = {"first": "1.5", "rest": "(b'x',)", "key": "{'k'}", "shared": "{'a': [1, (2, None)]}"}
TYPES = {"number": "int", "text": "str", "shared": "dict", "thing": "__main__.Thing", "first": "float", "rest": "tuple"}


@pytest.fixture
def sleeper(spawn):
    def start(python):
        process = spawn([python.path, "-c", PROGRAM], ready="ready")
        # it is asleep now, or soon; the tools must see it as it will stay
        stat = "/proc/%d/stat" % process.pid
        while open(stat).read().rpartition(")")[2].split()[0] != "S":
            pass
        return process
    return start


def check(threads):
    frames = {f["func"].split(".")[-1]: f["locals"] for t in threads for f in t["frames"] if f["type"] == "Python"}
    for name, wanted in (("inner", INNER), ("outer", OUTER)):
        seen = {v["name"]: v for v in frames[name]}
        assert {k: seen[k]["value"] for k in wanted} == wanted
        assert all(v["type"] == TYPES.get(k, v["type"]) for k, v in seen.items())
    thing = [v["value"] for v in frames["inner"] if v["name"] == "thing"]
    assert re.match(r"<Thing at 0x[0-9a-f]+: size=3, tag='q\"\\n\u6587'>$", thing[0])
    assert [v["name"] for v in frames["outer"] if v["argument"]] == ["first", "key", "rest"]
    inner = [v for v in frames["outer"] if v["name"] == "inner"]
    assert re.match(r"<function outer.<locals>.inner at 0x[0-9a-f]+>$", inner[0]["value"])
    assert frames["<module>"] == []


@pytest.mark.parametrize("options", [[], ["--stop"]], ids=["live", "stopped"])
@pytest.mark.pythons(every=True)
def test_tool(python, build, run, sleeper, options):
    process = sleeper(python)
    probing = [build.tool("probing"), "-t", process.pid, "backtrace", "--python", "--locals", *options]
    check(json.loads(run(probing + ["--json"]).stdout)["threads"])
    text = run(probing).stdout
    assert "         number = 3\n" in text and "         first = 1.5\n" in text
    assert '         text = "it\'s"\n' in text
    without = [word for word in probing if word != "--locals"]
    assert "number = " not in run(without).stdout
    assert not any("locals" in f for t in json.loads(run(without + ["--json"]).stdout)["threads"] for f in t["frames"])
    assert process.poll() is None


@needs_gdb
@pytest.mark.pythons(count=2)
def test_gdb(python, build, run, sleeper, tmp_path):
    process = sleeper(python)
    out = run(gdb_command(build, process.pid, "probing-backtrace --python --locals --json")).stdout
    check(json.loads(out[out.index("{\"pid\""):].split("\n")[0])["threads"])
    core = tmp_path / "core"
    subprocess.run([GDB, "-nx", "-batch", "-p", str(process.pid), "-ex", "gcore %s" % core], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=240)
    done = run([build.tool("probing"), "backtrace", "--core", core, "--python", "--locals", "--json"])
    check(json.loads(done.stdout)["threads"])


@pytest.mark.pythons(count=1)
def test_deep_and_wide(python, build, run, spawn):
    """Thousands of frames with large objects: the answer is limited in size and in time."""
    process = spawn([python.path, "-c", "import sys, time; sys.setrecursionlimit(20000)\n"
                     "def f(n, big, text):\n  if n == 0: print('ready', flush=True); time.sleep(1000)\n  f(n - 1, big, text)\n"
                     "f(900, list(range(10 ** 6)), 'x' * 10 ** 7)"], ready="ready")
    done = run([build.tool("probing"), "-t", process.pid, "backtrace", "--python", "--locals", "--json", "--stop"])
    frames = json.loads(done.stdout)["threads"][0]["frames"]
    assert len(frames) == 902
    assert [f["locals"][0]["value"] for f in frames[:901]] == [str(n) for n in range(901)]
    assert all(f["locals"][1]["value"].endswith("19, ... (1000000)]") for f in frames[:901])
    assert len(done.stdout) < 902 * 1500


@pytest.mark.pythons(count=1)
def test_more_variables_than_are_shown(python, build, run, spawn):
    """The answer says that something was left out only if that is so."""
    names = ["v%03d" % i for i in range(101)]
    process = spawn([python.path, "-c", "import time\ndef inner(%s):\n  print('ready', flush=True); time.sleep(1000)\n"
                     "def outer(%s):\n  inner(*range(100))\nouter(*range(101))" % (", ".join(names[:100]), ", ".join(names))], ready="ready")
    done = run([build.tool("probing"), "-t", process.pid, "backtrace", "--python", "--locals", "--json"])
    inner, outer = [[(v["name"], v["value"]) for v in f["locals"]] for f in json.loads(done.stdout)["threads"][0]["frames"][:2]]
    assert inner == [(name, str(i)) for i, name in enumerate(names[:100])]
    assert outer == inner + [("...", "...")]


CHURN = """
import threading
class Node:
    pass
def work(depth, seen):
    node = Node()
    for i in range(30):
        setattr(node, "a%d" % i, [i] * (i % 7))
        seen[i % 5, depth] = {i: node, "text": "x" * i, 2.5 * i: {node}}
        if i % 3 == 0:
            seen.clear()
            del node.a0
            node.a0 = (seen, 10 ** i)
    return work(depth - 1, dict(seen)) if depth else len(seen)
def run():
    while True:
        work(5, {})
for _ in range(2):
    threading.Thread(target=run, daemon=True).start()
print("ready", flush=True)
run()
"""


def test_changing(python, build, run, spawn):
    """Nothing stops the process, and everything changes while it is read: the answer is always well-formed."""
    process = spawn([python.path, "-c", CHURN], ready="ready")
    names, stacks = set(), 0
    for i in range(12):
        options = ["--stop"] if i % 4 == 3 else []
        done = run([build.tool("probing"), "-t", process.pid, "backtrace", "--python", "--locals", "--json", *options])
        for thread in json.loads(done.stdout)["threads"]:
            stacks += bool(thread["frames"])
            for frame in thread["frames"]:
                assert all(v["value"] for v in frame.get("locals", []))
                names |= {v["name"] for v in frame.get("locals", []) if frame["func"] == "work"}
    assert stacks and names <= {"depth", "seen", "node", "i"} and process.poll() is None
