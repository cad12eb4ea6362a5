# SPDX-License-Identifier: Apache-2.0
"""Stacks of a program that never stands still: none may be impossible, except those that are marked as inconsistent.

In the program each line calls at most one function. So a stack is possible if each caller's line names its callee, the innermost line
belongs to its function, and the outermost frame is a thread's first function.
"""
import ctypes
import importlib.util
import json
import re

import pytest

PROGRAM = '''
import ctypes, threading, time
memory, release = ctypes.pythonapi.PyObject_Malloc, ctypes.pythonapi.PyObject_Free
memory.restype, release.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
def leaf_a(n):
    return n + 1
def leaf_b(n):
    time.sleep(0)
    return n
def leaf_c(n):
    time.sleep(0.0002)
    return n
def leaf_d(n):
    block = memory(n)
    release(block)
def gen_a(n):
    for i in range(n):
        x = leaf_a(i)
        yield x
def gen_b(n):
    yield from gen_a(n)
class Thing:
    def __init__(self, n):
        self.n = leaf_a(n)
    def __lt__(self, other):
        return leaf_a(self.n) < other.n
def down(n):
    if n:
        up(n - 1)
    x = leaf_a(n)
    for i in gen_b(3):
        x += i
    things = []
    for i in range(3):
        thing = Thing(i)                   # __init__
        things.append(thing)
    things.sort()                          # __lt__
    return leaf_b(x)
def up(n):
    if n:
        down(n - 1)
    y = max([3, 1, 2], key=leaf_a)
    y += sum(gen_a(4))
    return y
def fast():
    while True:
        down(6)
def slow():
    while True:
        up(3)
        leaf_c(1)
        leaf_d(16)
for target in fast, slow, slow:
    threading.Thread(target=target, daemon=True).start()   # run
print("up", flush=True)
slow()
'''


def rules():
    """Returns the functions that each line names, and the lines of each function."""
    names = [set(re.findall(r"\w+", line)) for line in PROGRAM.splitlines()]
    body, current, indent = {}, "<module>", 0
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        depth = len(line) - len(line.lstrip())
        found = re.match(r"\s*def (\w+)", line)
        if depth <= indent and line.strip() and not found:
            current, indent = "<module>", 0
        if found:
            current, indent = found.group(1), depth
        body.setdefault(current, set()).add(number)
    return names, body


NAMES, BODY = rules()


def impossible(frames, path):
    """Returns why these frames, innermost first, cannot have existed at the same time; None if they can."""
    inner = None
    for f in frames:
        func = f["func"].split(".")[-1]
        if f["file"] != path:
            if "threading.py" not in f["file"]:
                return "frame in %s" % f["file"]
        elif f["line"] == 0:
            pass  # an instruction without a line, of which CPython has some
        elif func not in BODY or f["line"] not in BODY[func]:
            return "%s at line %d" % (func, f["line"])
        elif inner and inner not in NAMES[f["line"] - 1]:
            return "%s called by %s at line %d" % (inner, func, f["line"])
        inner = func
    return None if inner in ("<module>", "_bootstrap", None) else "ends in %s" % inner


def library(build):
    """Calls inspect_backtrace() itself, thousands of times."""
    spec = importlib.util.spec_from_file_location("structures", str(build.share / "gdb" / "probing_gdb" / "inspect.py"))
    structures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(structures)
    lib = ctypes.CDLL(str(build.lib / "libprobing-inspect.so"))
    lib.inspect_free.argtypes = [ctypes.c_void_p]

    def backtrace(pid, flags):
        want, out = structures.stacks(flags, 0, None, None, None, None), ctypes.c_void_p()
        rc = lib.inspect_backtrace(pid, ctypes.byref(want), ctypes.byref(out))
        text = ctypes.string_at(out).decode() if out.value else ""
        lib.inspect_free(out)
        assert rc == 0, text
        return json.loads(text)

    return backtrace


JSON, PYTHON, STOP = 2, 4, 1 << 16


def watch(build, pid, path, flags, times, unmarked=0):
    """Takes so many stacks, and more until enough are not marked: how many are marked on a busy machine depends on the machine."""
    backtrace = library(build)
    seen = {"stacks": 0, "frames": 0, "marked": 0, "unread": 0, "marked and impossible": 0, "impossible": 0}
    while times > 0 or seen["stacks"] - seen["marked"] < unmarked:
        times -= 1
        for thread in backtrace(pid, flags)["threads"]:
            why = impossible([f for f in thread["frames"] if f["type"] == "Python"], path)
            seen["stacks"] += 1
            seen["frames"] += len(thread["frames"])
            seen["unread"] += thread["error"] is not None
            seen["marked"] += not thread["consistent"]
            if why and thread["consistent"]:
                seen["impossible"] += 1
                print(why, thread)
            elif why:
                seen["marked and impossible"] += 1
    print("flags %#x: %s" % (flags, ", ".join("%s %s" % (v, k) for k, v in seen.items())))
    return seen


def few(stacks):
    """Returns how many of so many stacks may be unreadable: those of threads that were stopped at one of the instructions that link a frame.
    That is one percent at most (with 3.11 and 3.12 it is a quarter of that), and what it is more by chance: five standard deviations."""
    return stacks / 100 + 5 * (stacks / 100) ** 0.5


def check(build, spawn, tmp_path, python, times):
    script = tmp_path / "restless.py"
    script.write_text(PROGRAM)
    process = spawn([python.path, script], ready="up")
    seen = watch(build, process.pid, str(script), JSON | PYTHON, times, unmarked=times // 4)
    assert seen["impossible"] == 0 and seen["stacks"] > 3 * times
    seen = watch(build, process.pid, str(script), JSON | PYTHON | STOP, times)
    assert seen["impossible"] == seen["marked"] == 0 and seen["stacks"] > 3 * times
    assert seen["unread"] <= few(seen["stacks"])
    seen = watch(build, process.pid, str(script), JSON | STOP, times // 10)
    assert seen["frames"] > 0
    assert process.poll() is None


@pytest.mark.pythons(min=(3, 12), max=(3, 12), count=1)
def test_no_stack_is_impossible(build, spawn, tmp_path, python):
    check(build, spawn, tmp_path, python, 120)


@pytest.mark.slow
@pytest.mark.pythons()
def test_no_stack_is_impossible_on_any_python(build, spawn, tmp_path, python):
    check(build, spawn, tmp_path, python, 1500)
