# SPDX-License-Identifier: Apache-2.0
"""A program whose threads stand in known places, and the checks of what a backtrace of it must show. Shared by the backtrace tests."""
import ctypes
import json
import os

# A program with blocked threads in known places and one thread that spins. When all are in their places, another thread prints, for each
# blocked one, the stack that the interpreter reports: (function, line), innermost first.
SCENE = '''
import json, os, select, sys, threading, time

threading.stack_size(1 << 18)  # so that a core is small
lock = threading.Lock()
lock.acquire()


class Deep:
    def method(self, n):
        if n:
            return self.method(n - 1)
        return (
            0,
            self.wait(
                1000
            ),
        )

    def wait(self, seconds):
        time.sleep(seconds)


def slow_key(x):
    if x == 3:
        select.select([], [], [],
                      1000)
    return x


def sorter():
    return sorted([1, 2, 3, 4], key=slow_key)


def locker():
    with lock:
        pass


def numbers():
    for i in range(3):
        lock.acquire()
        yield i


def generator():
    return sum(n for n in numbers())


def spinner():
    n = 0
    while True:
        n = n + 1


def name(frame):
    code = frame.f_code
    return getattr(code, "co_qualname", code.co_name)


def asleep(tids):
    """What each has done until now, if all of them sleep. Who waits for the GIL wakes every 5 ms to look for it."""
    done = []
    for tid in tids:
        with open("/proc/self/task/%s/status" % tid) as f:
            text = f.read()
        done.append(text.split("ctxt_switches:", 1)[1] if "State:\\tS" in text else None)
    return None if None in done else done


def tell(idents, tids):
    before, now, there = None, None, set()
    while not now or now != before or not {"slow_key", "locker", "numbers", "wait"} <= there:
        time.sleep(0.05)
        before, now = now, asleep(tids)
        there = {frame.f_code.co_name for frame in sys._current_frames().values()}
    out = {}
    for ident, frame in sys._current_frames().items():
        if ident in idents:
            stack = out[idents[ident]] = []
            while frame:
                stack.append((name(frame), frame.f_code.co_filename, frame.f_lineno))
                frame = frame.f_back
    print("scene " + json.dumps(out), flush=True)


idents = {threading.get_ident(): "main"}
for function in sorter, locker, generator:
    t = threading.Thread(target=function, daemon=True)
    t.start()
    idents[t.ident] = function.__name__
tids = os.listdir("/proc/self/task")
threading.Thread(target=spinner, daemon=True).start()
threading.Thread(target=tell, args=(idents, tids)).start()
Deep().method(5)
'''


def start_scene(tmp_path, spawn, python, **kw):
    """Starts the scene. Returns (process, {role: [[function, file, line], ...]}), with stacks innermost first."""
    script = tmp_path / "scene.py"
    script.write_text(SCENE)
    kw["env"] = dict(kw.get("env", os.environ), MALLOC_ARENA_MAX="1")  # keeps the core small
    process = spawn([python.path, script], **kw)
    line = process.stdout.readline().decode()
    assert line.startswith("scene "), line
    return process, json.loads(line[len("scene "):])


def threads_by_role(answer, truth):
    """Returns {role: thread}. A thread's role is the name of its function; the main thread's role is "main"."""
    found = {}
    for thread in answer["threads"]:
        functions = {f["func"] for f in thread["frames"] if f["type"] == "Python"}
        for role in list(truth) + ["spinner"]:
            if role in functions or (role == "main" and "<module>" in functions):
                found[role] = thread
    return found


def python_frames(thread):
    return [[f["func"], f["file"], f["line"]] for f in thread["frames"] if f["type"] == "Python"]


def as_told(frames, python):
    """Before Python 3.11 the scene can report only plain names, while the backtrace has the qualified names of methods: makes those plain,
    too."""
    return frames if python.version >= (3, 11) else [[f[0].split(".")[-1]] + f[1:] for f in frames]


def libc_keeps_frame_pointers():
    """Returns whether libc's system call wrappers set up a frame pointer, as on Ubuntu from 24.04 on. Their caller is then found by rbp
    alone, which cannot be read from a sleeping thread without stopping it, so the thread's native frames end there."""
    libc = ctypes.CDLL(None)
    start = ctypes.string_at(ctypes.cast(libc.clock_nanosleep, ctypes.c_void_p).value, 16)
    return b"\x55\x48\x89\xe5" in start


def check_scene(answer, truth, python, natives=True, whole=True):
    """Checks that all threads of the scene are there, at their true lines. natives: Python and native frames must be merged. whole: the
    native frames must reach the thread's first function."""
    assert answer["python"] == "%d.%d.%d" % python.version[:3]
    found = threads_by_role(answer, truth)
    assert set(found) == set(truth) | {"spinner"}, json.dumps(answer)[:2000]
    for role, stack in truth.items():
        thread = found[role]
        assert as_told(python_frames(thread), python) == stack, role
        assert thread["state"] == "idle" and not thread["gil"] and thread["error"] is None, thread
        assert thread["consistent"]
        assert thread["main"] == (role == "main")
        assert [f["depth"] for f in thread["frames"]] == list(range(len(thread["frames"])))
        if natives:
            check_merged(thread, whole)
    at = next(f["line"] for f in found["spinner"]["frames"] if f["func"] == "spinner")
    assert SCENE.splitlines()[at - 1].strip() in ("while True:", "n = n + 1")
    if natives:  # check that C frames stand between Python frames where sorted() called slow_key
        frames = found["sorter"]["frames"]
        inner = next(i for i, f in enumerate(frames) if f["func"] == "slow_key")
        outer = next(i for i, f in enumerate(frames) if f["func"] == "sorter")
        assert outer > inner + 1 and all(f["type"] == "Native" for f in frames[inner + 1:outer])
    return found


def check_merged(thread, whole=True):
    """Checks that Python frames have replaced each eval loop, and that the stack ends in the thread's first function."""
    natives = [f["func"] or "" for f in thread["frames"] if f["type"] == "Native"]
    assert not [f for f in natives if f.startswith("_PyEval_EvalFrameDefault")], natives
    assert thread["frames"][0]["type"] == "Native", "it is blocked in a system call"
    if whole:
        assert thread["frames"][-1]["type"] == "Native", thread["frames"][-1]
