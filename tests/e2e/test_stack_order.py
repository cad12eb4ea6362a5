# SPDX-License-Identifier: Apache-2.0
"""One thread with several Python stacks: subinterpreters that call each other, and greenlets. Python frames must stand beside the native
frames that run them, both in `backtrace --stop` and in a recording."""
import json
import os
import subprocess

import pytest
from conftest import PYTHONS
from record_until import record_until  # noqa: F401

# sys.argv[1]: which thread enters the other interpreter; [2]: what it does there; [3]: for how many seconds each time, until the file [4]
# exists. The pauses are so long that the sampler lists the thread while it is outside.
SUB = """
import os, sys, threading, time
try: import _xxsubinterpreters as sub
except ImportError: import _interpreters as sub
code = '''
import os, time
def sub_outer(): list(map(sub_inner, [0]))
def sub_inner(_):
    end = time.monotonic() + %r
    print("up", flush=True)
    while time.monotonic() < end and not os.path.exists(%r): time.sleep(0.002) if %r == "sleep" else sorted(range(40000))
sub_outer()
''' % (float(sys.argv[3]), sys.argv[4], sys.argv[2])
def main_outer(): main_inner()
def main_inner():
    while not os.path.exists(sys.argv[4]):
        (getattr(sub, "run_string", None) or sub.exec)(one, code)
        time.sleep(0.15)
one = sub.create()
time.sleep(0.15)
if sys.argv[1] == "thread":
    t = threading.Thread(target=main_outer)
    t.start()
    t.join()
else:
    main_outer()
"""
# Precedes SUB: sets an alternate stack for signals as faulthandler does, and of the same size, with a page below it that may not be
# written.
SMALL_STACK = """
import ctypes, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.getauxval.restype = ctypes.c_ulong
libc.mmap.restype = ctypes.c_void_p
least = libc.getauxval(51) or 2048  # AT_MINSIGSTKSZ
taken = least - (8192 if "amx_tile" in open("/proc/cpuinfo").read() else 0)  # AMX's tiles are saved of those alone that asked for them
size = eval(sys.argv.pop(1))
base = libc.mmap(None, ctypes.c_size_t(16 * 4096), 3, 0x22, -1, None)
assert not libc.mprotect(ctypes.c_void_p(base), ctypes.c_size_t(4096), 0)
assert not libc.sigaltstack(struct.pack("PiP", base + 4096, 0, size), None)
"""
GREENLET = """
import greenlet, os, sys, time
def green_outer(): list(map(green_inner, [0]))
def green_inner(_):
    print("up", flush=True)
    while not os.path.exists(sys.argv[4]): time.sleep(0.002) if sys.argv[2] == "sleep" else sorted(range(40000))
def main_outer(): main_inner(greenlet.greenlet(green_outer))
def main_inner(g): g.switch()
main_outer()
"""
# sys.argv[1]: the library built from tests/programs/swapped_states.c; runs until the file [2] exists.
SWAPPED = """
import ctypes, os, sys, time
lib = ctypes.CDLL(sys.argv[1])
def leaf_0(): spend()
def leaf_1(): spend()
def spend():
    end = time.monotonic() + 0.05
    while time.monotonic() < end: sorted(range(300))
@ctypes.CFUNCTYPE(None, ctypes.c_int)
def entry(which):
    if which: lib.entered()
    leaf_1() if which else leaf_0()
lib.start(entry)
while not os.path.exists(sys.argv[2]): time.sleep(0.02)
lib.stop()
"""
# sys.argv[1]: the library built from tests/programs/nested_states.c; [2]: the interpreters that the thread enters, one from the other, a digit each;
# [3]: what it does in the last one until the file [5] exists; [4]: which thread. An interpreter was made before those with a higher number.
NESTED = """
import ctypes, os, sys, threading
lib, path, how, who, stop = sys.argv[1:]
def level(k):
    if k + 1 < len(path):
        body = "ctypes.PyDLL(%r).enter(%s, %r)" % (lib, path[k + 1], level(k + 1).encode())
    else:
        body = "print('up', flush=True)\\n    while not os.path.exists(%r): %s" % (
            stop, "time.sleep(0.002)" if how == "sleep" else "sorted(range(40000))")
    return "import ctypes, os, time\\ndef level_%d():\\n    %s\\nlevel_%d()\\n" % (k, body, k)
def main():
    for i in 1, 2, 3: ctypes.PyDLL(lib).enter(i, b"import ctypes")
    exec(level(0), globals())
    ctypes.PyDLL(lib).finish()
if who == "thread":
    t = threading.Thread(target=main)
    t.start()
    t.join()
else:
    main()
"""
# Besides the interpreters themselves, a virtual environment with greenlet may be named.
GREEN = [path for path in [p.path for p in PYTHONS] + os.environ.get("PROBING_PYTHONS", "").split()
         if subprocess.run([path, "-c", "import greenlet"], stderr=subprocess.DEVNULL).returncode == 0]
# Innermost first; "<...>" are native frames, given by a part of their function or file.
SUB_ORDER = ["<map_next>", "sub_outer", "<interpreters.>", "main_inner", "main_outer"]
GREEN_ORDER = ["<map_next>", "green_outer", "<greenlet.>"]


def in_order(frames, want):
    """Returns whether those of these frames (name, and file if native) that `want` names stand in that order."""
    if not any(file for _, file in frames):  # it was read while it ran, so it has Python frames alone
        want = [w for w in want if w[0] != "<"]
    seen = []
    for name, file in frames:
        named = [w for w in want if (w[1:-1] in name + " " + file if file and w[0] == "<" else w == name.split(".")[-1])]
        seen += [w for w in named if w not in seen]
    assert seen == want, frames


def stacks_of(sql, db, name):
    """Returns all recorded stacks that have a Python function of this name."""
    rows = sql(db, "SELECT stack_id, coalesce(func, ''), CASE frame_type WHEN 'Native' THEN module END FROM backtrace "
                   "GROUP BY stack_id, depth ORDER BY stack_id, depth")
    stacks = {}
    for stack, func, file in rows:
        stacks.setdefault(stack, []).append((func, file))
    return [s for s in stacks.values() if any(func.split(".")[-1] == name and not file for func, file in s)]


def check_gil(sql, db, name):
    """A thread that runs holds the GIL, whichever of its interpreters it is in. (It gives it up for a moment where it looks for a file.)"""
    rows = sql(db, "SELECT gil, count FROM samples WHERE state = 'running' AND sample_id IN (SELECT sample_id FROM backtrace WHERE func LIKE ?)", "%" + name)
    assert rows and sum(count for gil, count in rows if gil) > 0.8 * sum(count for _, count in rows), rows


def check(build, run, record_until, convert, sql, spawn, python, source, args, order, tmp_path, spells):
    script, name, native = tmp_path / "order.py", order[1], order[0][1:-1]
    script.write_text(source)
    process = spawn([getattr(python, "path", python), script] + args + [1e6, tmp_path / "never"], ready="up")
    said = json.loads(run([build.tool("probing"), "-t", process.pid, "backtrace", "--stop", "--json"]).stdout)
    found = [t for t in said["threads"] if any((f["func"] or "").split(".")[-1] == name for f in t["frames"])]
    assert len(found) == 1 and found[0]["consistent"]
    frames = [(f["func"] or "", f.get("module")) for f in found[0]["frames"]]
    stripped = ("", os.path.basename(os.path.realpath(getattr(python, "path", python)))) in frames
    order = [w for w in order if not stripped or w != "<map_next>"]  # Debian's own Python has no names of static functions
    in_order(frames, order)
    for spell in spells:  # a stack has everything in `order`, and no stack has some of it in another order
        done = record_until(lambda db: any((file if stripped else native in func) for s in stacks_of(sql, db, name) for func, file in s),
                            script, *args, spell, python=python, hz=1000)
        db = convert(done.trace)
        stacks = stacks_of(sql, db, name)
        assert stacks
        if args[1] == "spin":
            check_gil(sql, db, name)
        for frames in stacks:  # while sub_outer is being called or returns, map() is not there
            in_order(frames, order[not stripped and not any(native in func for func, _ in frames):])


@pytest.mark.pythons(first=True, min=(3, 10), max=(3, 13), shared=True)
@pytest.mark.parametrize("how, who", [("sleep", "same"), ("spin", "thread")] + [pytest.param(*p, marks=pytest.mark.slow) for p in [("sleep", "thread"), ("spin", "same")]])
def test_subinterpreters(build, run, record_until, convert, sql, spawn, python, tmp_path, who, how):
    check(build, run, record_until, convert, sql, spawn, python, SUB, [who, how], SUB_ORDER, tmp_path, [0.03, 1e6])


@pytest.mark.pythons(first=True, min=(3, 8), max=(3, 9), shared=True)
@pytest.mark.parametrize("how", ["sleep", pytest.param("spin", marks=pytest.mark.slow)])
def test_subinterpreters_of_the_only_thread(build, run, record_until, convert, sql, spawn, python, tmp_path, how):
    """Before 3.10 nothing says which of several threads runs in a subinterpreter."""
    check(build, run, record_until, convert, sql, spawn, python, SUB, ["same", how], SUB_ORDER, tmp_path, [0.03, 1e6])


def check_nested(build, run, record_until, convert, sql, spawn, python, tmp_path, path, how, who):
    script, last, library = tmp_path / "nested.py", len(path) - 1, build.root / "tests/programs/nested_states"
    script.write_text(NESTED)
    want = [name for k in reversed(range(last + 1)) for name in ("level_%d" % k, "enter")][:-1]
    named = lambda frames: [name for name, _ in frames if name in want]  # noqa: E731
    process = spawn([python.path, script, library, path, how, who, tmp_path / "never"], ready="up")
    said = json.loads(run([build.tool("probing"), "-t", process.pid, "backtrace", "--stop", "--json"]).stdout)
    found = [t for t in said["threads"] if any((f["func"] or "") == "level_0" for f in t["frames"])]
    assert [named([(f["func"] or "", None) for f in t["frames"]]) for t in found] == [want]
    assert found[0]["interpreter"] == int(path[-1])
    leaf = "level_%d" % last
    done = record_until(lambda db: len(stacks_of(sql, db, leaf)) > (how == "spin"), script, library, path, how, who, python=python, hz=1000)
    db = convert(done.trace)
    stacks = [s for s in stacks_of(sql, db, leaf) if any(file for _, file in s)]
    assert stacks and [named(s) for s in stacks] == [want] * len(stacks)
    if how == "spin":
        check_gil(sql, db, leaf)


@pytest.mark.pythons(min=(3, 10), max=(3, 14))
@pytest.mark.parametrize("path, how, who", [("02120", "spin", "same")] + [
    pytest.param(*p, marks=pytest.mark.slow) for p in [("0321", "sleep", "thread"), ("02132", "sleep", "same"), ("0213", "spin", "thread")]])
def test_older_interpreters_inside_newer_ones(build, run, record_until, convert, sql, spawn, python, tmp_path, path, how, who):
    check_nested(build, run, record_until, convert, sql, spawn, python, tmp_path, path, how, who)


@pytest.mark.pythons(min=(3, 8), max=(3, 9))
@pytest.mark.parametrize("path, how", [("0213", "spin"), pytest.param("0321", "sleep", marks=pytest.mark.slow)])
def test_older_interpreters_inside_newer_ones_of_the_only_thread(build, run, record_until, convert, sql, spawn, python, tmp_path, path, how):
    """Each is entered once: before 3.10, an interpreter's frames are kept together."""
    check_nested(build, run, record_until, convert, sql, spawn, python, tmp_path, path, how, "same")


@pytest.mark.pythons(min=(3, 11), max=(3, 13), shared=True)
def test_a_small_alternate_stack(record_until, sql, python, tmp_path):
    """The agent's signal handler runs on it. Once, the handler needed more for a thread with two interpreters, and overwrote what lay
    before the stack."""
    script = tmp_path / "small.py"
    script.write_text(SMALL_STACK + SUB)
    record_until(lambda db: len(stacks_of(sql, db, "sub_outer")) > 3, script, "8192 + least", "same", "spin", 0.03, python=python, hz=1000)


@pytest.mark.pythons(min=(3, 8), count=2)
def test_an_alternate_stack_that_is_too_small(record_until, convert, sql, python):
    """It is as small as the kernel allows: the handler does nothing there, and the thread is read from outside."""
    seen = "SELECT coalesce(sum(s.count), 0) FROM samples s WHERE outside AND stack_id IN (SELECT stack_id FROM backtrace WHERE func = 'spin')"
    script = SMALL_STACK + "import os\ndef spin(): sum(range(3000))\nwhile not os.path.exists(sys.argv[1]): spin()\nprint('fine')\n"
    done = record_until(lambda db: sql(db, seen)[0][0] > 300, script, "max(2048, taken + 64)", python=python, hz=1000)
    assert done.stdout == "fine\n"
    db = convert(done.trace)
    assert dict(sql(db, "SELECT reason, count FROM loss")).get("unanswered", 0) < sql(db, seen)[0][0]


@pytest.mark.skipif(not GREEN, reason="no interpreter at hand has greenlet")
@pytest.mark.parametrize("how", ["sleep", "spin"])
@pytest.mark.parametrize("interpreter", GREEN, ids=[p.split("/")[-3] for p in GREEN])
def test_greenlets(build, run, record_until, convert, sql, spawn, interpreter, tmp_path, how):
    check(build, run, record_until, convert, sql, spawn, interpreter, GREENLET, ["", how], GREEN_ORDER, tmp_path, [0])


@pytest.mark.pythons(first=True, min=(3, 8), max=(3, 10), shared=True)
def test_a_state_that_is_another_threads_by_now(build, record_until, convert, sql, python, tmp_path):
    """A thread comes back with another state of the same interpreter: whatever lies at its last state's address is not its own."""
    script = tmp_path / "swapped.py"
    script.write_text(SWAPPED)
    leaves = ("SELECT stack_id, count(DISTINCT func) FROM backtrace WHERE func GLOB '*leaf_[01]' AND (frame_type IS NULL OR frame_type <> 'Native') "
              "GROUP BY stack_id")
    enough = lambda db: sql(db, "SELECT count(*) FROM backtrace WHERE func GLOB '*leaf_0'")[0][0] > 2000  # noqa: E731
    done = record_until(enough, script, build.root / "tests/programs/swapped_states", python=python, hz=1000)
    stacks = sql(convert(done.trace), leaves)
    assert stacks and not [s for s in stacks if s[1] != 1]
