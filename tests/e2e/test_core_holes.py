# SPDX-License-Identifier: Apache-2.0
"""Cores with a hole in the memory, or with damage: what can be read is shown, and the output says what is missing."""
import json
import shutil
import struct
from pathlib import Path

import pytest
from conftest import wait_until_asleep

pytestmark = pytest.mark.skipif(shutil.which("gcore") is None, reason="no gcore")

# A program with a main thread deep in calls and a thread that waits. It prints the addresses of the objects that their stacks consist of.
PROGRAM = """
import ctypes, json, sys, threading, time
at = {"frames": [], "codes": {}}
def note(frame):
    here = id(frame)
    if sys.version_info >= (3, 11):
        here = ctypes.c_void_p.from_address(here + 24).value
    at["frames"].append(here)
    at["codes"][frame.f_code.co_name] = id(frame.f_code)
    at["file"] = id(frame.f_code.co_filename)
    at["name"] = id(getattr(frame.f_code, "co_qualname", frame.f_code.co_name))
def innermost():
    note(sys._getframe())
    ctypes.pythonapi.PyThreadState_Get.restype = ctypes.c_void_p
    at["tstate"] = ctypes.pythonapi.PyThreadState_Get()
    at["ident"] = threading.get_ident()
    if sys.version_info >= (3, 7):
        at["runtime"] = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    print(json.dumps(at), flush=True)
    time.sleep(1000)
def between(n):
    note(sys._getframe())
    level(n)
def level(n):
    note(sys._getframe())
    innermost() if n == 0 else between(0) if n == 4 else level(n - 1)
def waiter(): time.sleep(1000)
threading.Thread(target=waiter, daemon=True, name="waiting one").start()
level(8)
"""
STACK = ["innermost", "level", "between"] + ["level"] * 5 + ["<module>"]


class Core:
    """The bytes of a core, parts of which can be left out or overwritten."""

    def __init__(self, path):
        self.data = bytearray(path.read_bytes())
        self.at, = struct.unpack_from("<Q", self.data, 32)
        count, = struct.unpack_from("<H", self.data, 56)
        self.headers = [list(struct.unpack_from("<IIQQQQQQ", self.data, self.at + 56 * i)) for i in range(count)]

    def place(self, addr):
        """Returns (program header, offset in the file) of an address that the core contains."""
        for h in self.headers:
            if h[0] == 1 and h[3] <= addr < h[3] + h[5]:
                return h, h[2] + addr - h[3]
        raise AssertionError("%x is not in the core" % addr)

    def left(self, addr):
        h, at = self.place(addr)
        return h[3] + h[5] - addr

    def overwrite(self, addr, data):
        at = self.place(addr)[1]
        self.data[at:at + len(data)] = data

    def without(self, addr, size):
        h, at = self.place(addr)
        kind, flags, offset, start, phys, filed, held, align = h
        size = min(size, start + filed - addr)
        end = addr + size
        h[5] = h[6] = addr - start
        self.headers.append([kind, flags, 0, addr, 0, 0, size, align])
        self.headers.append([kind, flags, at + size, end, 0, start + filed - end, start + held - end, align])

    def write(self, path):
        struct.pack_into("<Q", self.data, 32, len(self.data))
        struct.pack_into("<H", self.data, 56, len(self.headers))
        path.write_bytes(bytes(self.data) + b"".join(struct.pack("<IIQQQQQQ", *h) for h in self.headers))
        return path


@pytest.fixture
def scene(build, run, tmp_path, spawn, python):
    """Returns (addresses, core, ask): ask(change) returns what a backtrace says of the core that change(core) makes."""
    script = tmp_path / "deep.py"
    script.write_text(PROGRAM)
    process = spawn([python.path, script])
    at = json.loads(process.stdout.readline().decode())
    wait_until_asleep(process.pid)  # both threads are in their places
    run(["gcore", "-o", tmp_path / "core", process.pid])
    whole = tmp_path / ("core.%d" % process.pid)
    tasks = Path("/proc/%d/task" % process.pid)
    at["stacks"] = {task.name: int((task / "syscall").read_text().split()[-2], 16) for task in tasks.iterdir()}
    stacks = []  # GDB's gcore writes zeros where it could not read past the guard page of a newer glibc
    with open("/proc/%d/mem" % process.pid, "rb") as memory:
        for sp in at["stacks"].values():
            memory.seek(sp)
            stacks.append((sp, memory.read(Core(whole).left(sp))))

    def ask(change, *options):
        core = Core(whole)
        for sp, bytes_there in stacks:
            core.overwrite(sp, bytes_there)
        change(core)
        path = core.write(tmp_path / "changed")
        said = json.loads(run([build.tool("probing"), "backtrace", "--core", path, "--json"] + list(options)).stdout)
        assert said["pid"] == process.pid
        return said, run([build.tool("probing"), "backtrace", "--core", path] + list(options)).stdout

    return at, ask


def names(thread):
    return [f["func"].split(".")[-1] for f in thread["frames"] if f["type"] == "Python"]


def parts(said):
    main = [t for t in said["threads"] if t["main"]]
    other = [t for t in said["threads"] if "waiter" in names(t)]
    return main[0], other[0] if other else None


def whole(thread):
    return not thread["cut"] and thread["error"] is None


@pytest.mark.pythons(first=True, min=(3, 6))
def test_holes(scene, python):
    at, ask = scene
    said, text = ask(lambda core: None)
    main, other = parts(said)
    assert names(main) == STACK and whole(main) and whole(other) and "missing" not in text
    inner = STACK.index("between")

    # A frame object is missing: the frames inside of it remain, merged with native frames.
    frame = at["frames"][STACK[::-1].index("between") - 1]
    said, text = ask(lambda core: core.without(frame, 64))
    main, other = parts(said)
    assert names(main) == STACK[:inner] and main["cut"] and whole(other) and names(other)[0] == "waiter"
    assert main["error"] == "only a part of its Python frames can be read: memory of theirs is not in the core"
    assert main["error"] in text and text.count("outer Python frames are missing here") == 1
    assert main["frames"][0]["type"] == "Native" and main["frames"][-1]["func"] == "_start" or not main["frames"][-1]["func"]
    said, _ = ask(lambda core: core.without(at["frames"][-1], 64))  # the innermost frame leads to the others
    main, other = parts(said)
    assert names(main) == [] and main["cut"] and main["frames"] and whole(other)
    assert main["error"] == "its Python frames cannot be read: memory of theirs is not in the core"
    said, _ = ask(lambda core: core.overwrite(frame, b"\xff" * 64))
    main, other = parts(said)
    assert names(main) == STACK[:inner] and main["cut"] and whole(other)
    assert "they are damaged" in main["error"]

    # A code object is missing: only its own frame has no name.
    want = ["?" if name == "between" else name for name in STACK]
    for change in (lambda core: core.without(at["codes"]["between"], 32), lambda core: core.overwrite(at["codes"]["between"], b"\x55" * 32)):
        said, text = ask(change, "--locals")
        main, other = parts(said)
        assert names(main) == want and not main["cut"] and whole(other)
        assert "names of some of its Python frames or files cannot be read" in main["error"] and main["error"] in text

    # A text that code objects share is missing: the rest of each frame is shown.
    for text, want in (("file", STACK), ("name", ["?"] + STACK[1:])):
        said, _ = ask(lambda core: core.without(at[text], 32))
        main, other = parts(said)
        assert names(main) == want and "frames or files cannot be read" in main["error"]
        files = [f["file"] for f in main["frames"] if f["type"] == "Python"]
        assert set(files) == {"?"} if text == "file" else "?" not in files
        assert all(f["line"] > 0 for f in main["frames"] if f["type"] == "Python")

    # A thread's stack as gcore leaves it: the output says so, and does not claim that the thread was running.
    for tid, sp in at["stacks"].items():
        said, text = ask(lambda core: core.overwrite(sp, bytes(core.left(sp))))
        blank, = [t for t in said["threads"] if t["tid"] == int(tid)]
        assert "its stack is all zeros in the core: gcore could not read it" in blank["error"] and blank["error"] in text
        assert sum(whole(t) for t in said["threads"]) == len(said["threads"]) - 1

    # The thread state of the oldest thread is missing: those of the others are read.
    said, _ = ask(lambda core: core.without(at["tstate"], 128))
    main, other = parts(said)
    assert names(main) == [] and names(other)[0] == "waiter"
    assert said["note"] == "the list of Python's threads is not whole: memory of theirs is not in the core"

    # The whole runtime is missing: the output says that it is missing, not that it is unknown, absent or not initialised.
    if python.version >= (3, 7):
        said, text = ask(lambda core: core.without(at["runtime"], 4096))
        assert said["note"] and "not in the core" in said["note"] and said["note"] in text
        assert "layout" not in said["note"] and not any(names(t) for t in said["threads"])
        assert all(t["frames"] for t in said["threads"])


@pytest.mark.pythons(min=(3, 11), count=1)
def test_a_thread_is_known_by_its_id_where_its_base_is_not(scene):
    at, ask = scene

    def change(core):
        note = next(h for h in core.headers if h[0] == 4)
        place = core.data.find(struct.pack("<Q", at["ident"]), note[2], note[2] + note[5])
        assert place > 0
        core.data[place:place + 8] = struct.pack("<Q", 0x7000)

    said, _ = ask(change)
    main, other = parts(said)
    assert names(main) == STACK and whole(main) and whole(other)


CRASH = """
import os, resource, threading, time
resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)
all_are_there = threading.Event()
def waits(): time.sleep(1000)
def crashes():
    all_are_there.wait()
    os.abort()
for f in waits, waits, crashes, waits:
    threading.Thread(target=f, daemon=True).start()
all_are_there.set()
waits()
"""


@pytest.mark.pythons(count=1)
def test_threads_by_id(build, run, tmp_path, spawn, python):
    with open("/proc/sys/kernel/core_pattern") as f:
        if f.read()[0] in "|/":
            pytest.skip("cores do not go to the working directory")
    script = tmp_path / "crash.py"
    script.write_text(CRASH)
    assert spawn([python.path, script], cwd=str(tmp_path)).wait(timeout=240) < 0
    core = next(p for p in tmp_path.iterdir() if p.name.startswith("core"))
    said = json.loads(run([build.tool("probing"), "backtrace", "--core", core, "--json"]).stdout)
    tids = [t["tid"] for t in said["threads"]]
    assert tids == sorted(tids) and len(tids) == 5 and tids[0] == said["pid"]
    struck, = [t["tid"] for t in said["threads"] if "crashes" in names(t)]
    assert said["signal_thread"] == struck
    assert "(Aborted) in thread %d\n" % struck in run([build.tool("probing"), "backtrace", "--core", core]).stdout
    only = run([build.tool("probing"), "backtrace", "--core", core, "--thread", struck, "--json"]).stdout
    assert [t["tid"] for t in json.loads(only)["threads"]] == [struck]
