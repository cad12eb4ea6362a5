# SPDX-License-Identifier: Apache-2.0
"""probing-backtrace against what CPython itself says of its stacks, on every version at hand."""
import json

import pytest
from gdb_tools import gdb_command, needs_gdb

pytestmark = needs_gdb

# Threads that stand still in known places; one that spins. Another thread then prints, for each of the blocked
# ones, what the interpreter says of it: (function, line) from the innermost.
SCENE = '''
import json, select, sys, threading, time

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


def tell(idents):
    time.sleep(0.4)
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
threading.Thread(target=spinner, daemon=True).start()
threading.Thread(target=tell, args=(idents,)).start()
Deep().method(5)
'''


@pytest.fixture
def scene(tmp_path, spawn):
    def start(python):
        script = tmp_path / "scene.py"
        script.write_text(SCENE)
        process = spawn([python.path, script])
        line = process.stdout.readline().decode()
        assert line.startswith("scene "), line
        return process, json.loads(line[len("scene "):])

    return start


def threads_by_role(answer, truth):
    """role -> the thread that runs the function of that name; the main thread's is "main"."""
    found = {}
    for thread in answer["threads"]:
        functions = {f["func"] for f in thread["frames"] if f["type"] == "Python"}
        for role in list(truth) + ["spinner"]:
            if role in functions or (role == "main" and "<module>" in functions):
                found[role] = thread
    return found


@pytest.mark.pythons(min=(3, 8), max=(3, 13))
def test_every_thread_at_its_true_line(build, run, python, scene):
    process, truth = scene(python)
    assert set(truth) == {"main", "sorter", "locker", "generator"}
    done = run(gdb_command(build, process.pid, "probing-backtrace --json"))
    answer = json.loads(done.stdout[done.stdout.index("{"):])
    assert answer["python"] == "%d.%d.%d" % python.version[:3]
    found = threads_by_role(answer, truth)
    assert set(found) == set(truth) | {"spinner"}, done.stdout
    for role, stack in truth.items():
        thread = found[role]
        python_frames = [[f["func"], f["file"], f["line"]] for f in thread["frames"] if f["type"] == "Python"]
        assert python_frames == stack, role
        assert thread["state"] == "idle" and not thread["gil"] and thread["error"] is None
        assert thread["main"] == (role == "main")
        assert [f["depth"] for f in thread["frames"]] == list(range(len(thread["frames"])))
        # merged: each eval loop has been replaced by what it ran, and all ends in the thread's first function
        natives = [f["func"] or "" for f in thread["frames"] if f["type"] == "Native"]
        assert not [f for f in natives if f.startswith("_PyEval_EvalFrameDefault")], natives
        assert thread["frames"][0]["type"] == "Native", "it is blocked in a system call"
        assert thread["frames"][-1]["type"] == "Native"
    spinner = found["spinner"]
    assert not spinner["main"]
    lines = SCENE.splitlines()
    at = next(f["line"] for f in spinner["frames"] if f["func"] == "spinner")
    assert lines[at - 1].strip() in ("while True:", "n = n + 1")
    # C between Python: sorted() called slow_key
    frames = found["sorter"]["frames"]
    inner = next(i for i, f in enumerate(frames) if f["func"] == "slow_key")
    outer = next(i for i, f in enumerate(frames) if f["func"] == "sorter")
    assert outer > inner + 1 and all(f["type"] == "Native" for f in frames[inner + 1:outer])
    assert process.poll() is None


@pytest.mark.pythons(count=1)
def test_the_text_people_read(build, run, python, scene):
    process, truth = scene(python)
    for command in ([build.tool("probing"), "-t", process.pid, "backtrace"], gdb_command(build, process.pid, "probing backtrace")):
        text = run(command).stdout
        assert 'Thread %d "' % process.pid in text and "(main), idle" in text
        func, file, line = truth["main"][0]
        assert "%s (%s:%d)" % (func, file, line) in text
        assert "_start [python" in text
    text = run(gdb_command(build, process.pid, "probing-backtrace --python")).stdout
    assert "slow_key" in text and "_start" not in text


@pytest.mark.pythons(count=1)
def test_the_gil_is_shown(build, run, python, spawn):
    process = spawn([python.path, "-c", "print('up', flush=True)\nwhile True: pass"], ready="up")
    answer = json.loads(run([build.tool("probing"), "-t", process.pid, "backtrace", "--json"]).stdout)
    assert [(t["gil"], t["state"], t["main"]) for t in answer["threads"]] == [(True, "running", True)]


@pytest.mark.pythons(count=1)
def test_deep_recursion(build, run, python, spawn):
    code = "import sys, time\nsys.setrecursionlimit(10**6)\ndef f(n):\n    if n: return f(n - 1)\n    print('up', flush=True)\n    time.sleep(1000)\nf(3000)"
    process = spawn([python.path, "-c", code], ready="up")
    text = run([build.tool("probing"), "-t", process.pid, "backtrace", "--python"]).stdout
    assert text.count(" f (<string>:4)") == 3000 and text.count(" f (<string>:6)") == 1


def test_clear_lines_when_there_is_nothing_to_see(build, run, spawn):
    done = run([build.tool("probing"), "-t", 2 ** 22 - 1, "backtrace"], check=3)
    assert "there is no process" in done.stderr and len(done.stderr.splitlines()) == 1
    other = spawn(["sh", "-c", "echo up; exec sleep 1000"], ready="up")
    done = run([build.tool("probing"), "-t", other.pid, "backtrace", "--python"])
    assert "no thread of process %d runs Python" % other.pid in done.stdout
    done = run(gdb_command(build, None, "probing-backtrace"), check=1)
    assert "no process: start with gdb -p PID" in done.stderr
