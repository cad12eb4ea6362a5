# SPDX-License-Identifier: Apache-2.0
"""`probing -t PID watch FILE:LINE EXPRESSIONS`: shows values each time a line runs; the process goes on, and nothing is left behind in it."""
import fcntl
import glob
import json
import os
import platform
import re
import signal
import subprocess

import pytest
from inject_helpers import patient
from test_console import wait_until

PROGRAM = """import os, signal, threading, time
class Trainer:
    def __init__(self):
        self.lr = 0.5
    def step(self, i):
        loss = 10.0 + i
        many = list(range(1000))
        later = [loss + n for n in range(3)]
        time.sleep(0.01)
        return loss * self.lr

def hot(n):
    total = 0
    while True:
        total += 1
        other = total * 2
        if total > n: break

def numbers():
    n = 0
    while True:
        n += 1
        yield n

def in_a_thread():
    for k in numbers():
        time.sleep(0.005)

def forks():
    pid = os.fork()
    if pid == 0:
        Trainer().step(-1000)
        os._exit(0)
    os.waitpid(pid, 0)

signal.signal(signal.SIGPIPE, signal.SIG_DFL)
trainer, i, spin, fork = Trainer(), 0, 0, 0
threading.Thread(target=in_a_thread, daemon=True).start()
print("up", flush=True)
while True:
    trainer.step(i)
    if spin: hot(200000)
    if fork: forks()
    i += 1
"""
LINE = {text: n for n, text in enumerate((line.strip() for line in PROGRAM.splitlines()), 1)}
SLEEP, RETURN, OTHER, YIELD, LOOP = (LINE[t] for t in (
    "time.sleep(0.01)", "return loss * self.lr", "other = total * 2", "yield n", "i += 1"))
PAUSES = "import sys\nsum(w.pauses for w in sys.modules['_probing_watch'].call.__globals__['watches'].values())"
LEFT = "import sys\n[sys.monitoring.get_tool(k) for k in range(6)], '_probing_watch' in sys.modules"


@pytest.fixture
def target(tmp_path, spawn):
    def start(python):
        script = tmp_path / "train.py"
        script.write_text(PROGRAM)
        return spawn([python.path, script], ready="up")

    return start


@pytest.fixture
def probing(build, run):
    def call(process, *args, **kw):
        return run([build.tool("probing"), "-t", process.pid] + patient(args), **kw)

    return call


def pipes(process):
    found = []
    for path in glob.glob("/proc/%d/fd/*" % process.pid):
        if int(os.path.basename(path)) > 2 and os.path.lexists(path) and os.readlink(path).startswith("pipe"):
            found.append(path)
    return found


def clean(process, probing):
    assert process.poll() is None
    wait_until(lambda: probing(process, "eval", LEFT).stdout == "([None, None, None, None, None, None], False)\n")
    assert pipes(process) == []


def lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.pythons(min=(3, 12))
def test_values(target, probing, python):
    """The values come each time, in order, from before the line runs; with the frame's own names, and those of a comprehension; an error is
    shown, and affects only its own expression."""
    process = target(python)
    done = probing(process, "watch", "train.py:%d" % SLEEP, "loss, self.lr, i, [x * loss for x in (1, 2)], many, nope, exit()", "--count", "5", "--json")
    seen = lines(done)
    losses = [line["values"]["loss"] for line in seen]
    assert len(seen) == 5 and losses == [losses[0] + k for k in range(5)]
    for line in seen:
        loss, i = line["values"]["loss"], line["values"]["i"]
        assert loss == 10.0 + i and line["values"]["[x * loss for x in (1, 2)]"] == str([loss, 2 * loss])
        assert line["values"]["self.lr"] == 0.5 and line["tid"] == process.pid and line["function"] == "Trainer.step"
        assert line["values"]["many"].startswith("[0, 1, 2") and len(line["values"]["many"]) < 400
        assert line["errors"] == {"nope": "NameError: name 'nope' is not defined", "exit()": "SystemExit: None"} or \
            line["errors"]["exit()"].startswith("SystemExit")
    assert "Trainer.step (" in done.stderr and "ran 5 times" in done.stderr
    assert "ran 1 time\n" in probing(process, "watch", "train.py:%d" % SLEEP, "i", "--count", "1").stderr
    text = probing(process, "watch", "./train.py:%d" % RETURN, "later", "--count", "2").stdout
    assert re.fullmatch(r"(\d\d:\d\d:\d\d\.\d{3}  later=\"\[[\d., ]*\]\"\n|\d\d:\d\d:\d\d\.\d{3}  later=\[[\d., ]*\]\n){2}", text), text
    clean(process, probing)


@pytest.mark.pythons(min=(3, 12))
def test_where_a_line_runs(target, probing, python):
    """A line in a loop that never ends, in a generator in another thread, and without expressions."""
    process = target(python)
    assert len(lines(probing(process, "watch", "train.py:%d" % LOOP, "i", "--count", "3", "--json"))) == 3
    seen = lines(probing(process, "watch", "train.py:%d" % YIELD, "n", "--count", "3", "--json"))
    assert len({line["values"]["n"] for line in seen}) == 3 and {line["tid"] for line in seen} != {process.pid}
    assert len(probing(process, "watch", "train.py:%d" % SLEEP, "--count", "2").stdout.splitlines()) == 2
    clean(process, probing)


@pytest.mark.pythons(min=(3, 12))
def test_a_line_that_runs_too_often(target, probing, python, build, spawn, tmp_path):
    """Some values are shown and the others are counted; between these the line is not even watched."""
    process, shown = target(python), tmp_path / "shown"
    probing(process, "eval", "spin = 1")
    with open(str(shown), "wb") as out:
        tool = spawn([build.tool("probing"), "-t", process.pid, "watch", "train.py:%d" % OTHER, "total", "--json"], stdout=out, stderr=subprocess.PIPE)

    def seen():  # the last line may still be on its way
        return [json.loads(line) for line in shown.read_text().splitlines(True) if line.endswith("\n")]
    wait_until(lambda: tool.poll() is not None or len(seen()) >= 4 and probing(process, "eval", PAUSES).stdout > "0\n")
    assert tool.poll() is None, tool.communicate()[1]
    tool.send_signal(signal.SIGINT)
    said = tool.communicate(timeout=240)[1].decode()
    assert tool.returncode == 0 and all(line["values"]["total"] > 0 for line in seen()), said
    assert re.search(r"ran more than [\d,]+ times; [\d,]+ are not shown", said), said
    clean(process, probing)


SHOWN = [("16.0", 16.0, "16.0"), ("16", 16, "16"), ("1e+22", 1e22, "1e+22"), ("-0.0", -0.0, "-0.0"), ("1 / 3", 1 / 3, "0.3333333333333333"), ("1e-07", 1e-7, "1e-07"),
         ("True", True, "True"), ("None", None, "None"), ("2 ** 53 - 1", 2 ** 53 - 1, "9007199254740991"), ("2 ** 53 + 1", "9007199254740993", "9007199254740993"),
         ("float('nan')", "nan", "nan"), ("-float('inf')", "-inf", "-inf"), ("''", "", ""), (r"""'a\nb, "values": {\\'""", 'a\nb, "values": {\\', 'a\\x0ab, "values": {\\'),
         (r"chr(55357)", "\\ud83d", r"\ud83d"), ("[16.0, True]", "[16.0, True]", "[16.0, True]"), ("1j", "1j", "1j")]


@pytest.mark.pythons(min=(3, 12), count=1)
def test_values_look_as_in_python(target, probing, python):
    """A whole float keeps its point; half of a surrogate pair, which is no JSON, does not cost the line."""
    process = target(python)
    watch = ["watch", "train.py:%d" % SLEEP, ", ".join(source for source, _, _ in SHOWN), "--count", "1"]
    seen, = lines(probing(process, *watch, "--json"))
    assert list(map(repr, seen["values"].values())) == [repr(value) for _, value, _ in SHOWN]
    said = probing(process, *watch).stdout
    assert [part.split("=", 1)[1] for part in said.rstrip("\n").split("  ")[1:]] == [text for _, _, text in SHOWN], said
    clean(process, probing)


@pytest.mark.pythons(min=(3, 12), count=1)
def test_two_at_once(target, probing, python, build, spawn):
    """On two lines of one function; the second watch begins after the first has switched its line off."""
    process = target(python)
    first = spawn([build.tool("probing"), "-t", process.pid, "watch", "train.py:%d" % SLEEP, "loss", "--json"], stderr=subprocess.DEVNULL)
    assert first.stdout.readline()
    assert len(lines(probing(process, "watch", "train.py:%d" % RETURN, "loss", "--count", "3", "--json"))) == 3
    assert len(lines(probing(process, "watch", "train.py:%d" % SLEEP, "loss", "--count", "3", "--json"))) == 3
    before = json.loads(first.stdout.readline())
    first.send_signal(signal.SIGINT)
    assert first.wait(240) == 0 and before["values"]
    clean(process, probing)


@pytest.mark.pythons(min=(3, 12), count=1)
def test_the_tool_is_killed(target, probing, python, build, spawn):
    """The watch removes itself the next time that the line runs. The program would be killed by SIGPIPE."""
    process = target(python)
    tool = spawn([build.tool("probing"), "-t", process.pid, "watch", "train.py:%d" % SLEEP, "loss"], stderr=subprocess.DEVNULL)
    assert tool.stdout.readline()
    tool.kill()
    tool.wait()
    clean(process, probing)


@pytest.mark.pythons(min=(3, 12), count=1)
def test_ctrl_c_while_nobody_reads(target, probing, python, build, spawn):
    """The tool ends all the same, and none of the lines that arrived is incomplete."""
    process = target(python)
    tool = spawn([build.tool("probing"), "-t", process.pid, "watch", "train.py:%d" % SLEEP, "loss", "--json"], stderr=subprocess.PIPE)
    fcntl.fcntl(tool.stdout.fileno(), 1031, 8192)  # F_SETPIPE_SZ, so that the pipe is soon full

    def waits():  # ppoll() of one descriptor without a time limit
        with open("/proc/%d/syscall" % tool.pid) as f:
            call = f.read().split() + [""] * 4
            return call[0] == ("271" if platform.machine() == "x86_64" else "73") and call[2:4] == ["0x1", "0x0"]
    wait_until(waits)
    tool.send_signal(signal.SIGINT)
    assert tool.wait(240) == 0
    assert b"cannot write" not in tool.stderr.read()
    assert len([json.loads(line) for line in tool.stdout.read().splitlines()]) > 10
    clean(process, probing)


@pytest.mark.pythons(min=(3, 12), count=1)
def test_forks_and_an_end(target, probing, python, build, spawn):
    """Children that run the line are not the process that is watched; when that one ends, the watch ends."""
    process = target(python)
    probing(process, "eval", "fork = 1")
    seen = lines(probing(process, "watch", "train.py:%d" % SLEEP, "loss", "--count", "10", "--json"))
    assert len(seen) == 10 and all(line["values"]["loss"] >= 10 for line in seen)
    tool = spawn([build.tool("probing"), "-t", process.pid, "watch", "train.py:%d" % SLEEP, "loss"], stderr=subprocess.PIPE)
    assert tool.stdout.readline()
    process.kill()
    process.wait()
    out, err = tool.communicate(timeout=240)
    assert tool.returncode == 1 and b"has ended" in err


@pytest.mark.pythons(min=(3, 12), count=1)
def test_recorded(build, run, spawn, tmp_path, python, convert, sql):
    script, trace = tmp_path / "train.py", tmp_path / "t.zst"
    script.write_text(PROGRAM)
    recorder = spawn([build.tool("probing-record"), "-o", trace, python.path, script], ready="up")
    pid = int(subprocess.check_output(["pgrep", "-P", str(recorder.pid)]).split()[0])
    done = run([build.tool("probing"), pid, "watch", "train.py:%d" % SLEEP, "loss, self.lr", "--count", "3", "--json"])
    assert "recorded as well" in done.stderr
    run([build.tool("probing"), pid, "watch", "train.py:%d" % SLEEP, "loss", "--count", "1", "--no-record"])
    os.kill(pid, signal.SIGINT)
    recorder.wait(240)
    rows = [json.loads(data) for data, in sql(convert(trace, check=None), "SELECT data FROM events WHERE name = 'watch train.py:%d' ORDER BY timestamp" % SLEEP)]
    assert rows == [line["values"] for line in lines(done)]


@pytest.mark.pythons(min=(3, 12), count=1)
def test_refused(target, probing, python):
    process = target(python)
    for where, expressions, why in (
            ("train.py:1000", "x", "nothing runs at line 1000"), ("train.py:5", "x", "where Trainer.step begins: the first that it runs is 6"),
            ("tain.py:5", "x", "no code of a file tain.py"), ("train.py", "x", "FILE:LINE"),
            ("train.py:%d" % SLEEP, "loss +", "not an expression"), ("train.py:%d" % SLEEP, "x = 1", "not an expression")):
        assert why in probing(process, "watch", where, expressions, check=3).stderr, where
    for args in (["watch"], ["watch", "a:1", "x", "y"], ["watch", "--count", "0", "a:1"], ["watch", "--for", "soon", "a:1"]):
        probing(process, *args, check=2)
    done = probing(process, "watch", "train.py:%d" % LINE["if total > n: break"], "total", "--for", "0.3s")
    assert done.stdout == "" and "ran 0 times" in done.stderr
    clean(process, probing)


HELD = """import functools
kept = {}
@functools.lru_cache(None)
def cached(n):
    r = n * 2
    return r
def keep(function):
    kept[function.__name__] = function
@keep
def registered(n):
    q = n + 1
    return q
part = functools.partial(lambda a, b: a + b, 1)
"""
CALLS = """import asyncio, signal, sys, threading
import held
class Late(Exception): pass
def ring(number, frame): raise Late
signal.signal(signal.SIGALRM, ring)
late = n = 0
wrong, stop = [], threading.Event()
seen = []
def trace(frame, event, arg):
    seen.append((event, frame.f_lineno - frame.f_code.co_firstlineno))
    return trace
def traced(a):
    b = a + 1
    return b
async def work(done):
    await asyncio.sleep(0)
    x = 1
    return x
async def main():
    global late, n
    done = asyncio.ensure_future(asyncio.sleep(1000))
    done.cancel()
    while True:
        n += 1
        try:
            await work(done)
            held.cached(n); held.kept["registered"](n); held.part(n)
        except Late: late += 1
        except BaseException as e: wrong.append(repr(e))
        del seen[:]
        sys.settrace(trace)
        traced(n)
        mine = sys.gettrace()
        sys.settrace(None)
        if mine is not trace or seen != [("call", 0), ("line", 1), ("line", 2), ("return", 2)]: wrong.append((mine, list(seen)))
        if n == 1000: print("up", flush=True)
        await asyncio.sleep(0.001 if n > 1000 else 0)
asyncio.run(main())
"""


@pytest.fixture
def caller(tmp_path, spawn):
    """A process whose functions have run many times before they are watched."""
    def start(python):
        (tmp_path / "held.py").write_text(HELD)
        (tmp_path / "calls.py").write_text(CALLS)
        return spawn([python.path, tmp_path / "calls.py"], ready="up")

    return start


def line_of(program, text):
    return [line.strip() for line in program.splitlines()].index(text) + 1


@pytest.mark.pythons(min=(3, 12))
def test_functions_that_other_objects_hold(caller, probing, python):
    """No name of the module leads to a function in a cache, in a dictionary or in a partial(); a function of one line has no event of its own on 3.13 once it ran."""
    process = caller(python)
    for text, name, function in (("r = n * 2", "n", "cached"), ("q = n + 1", "n", "registered"), ("part = functools.partial(lambda a, b: a + b, 1)", "b", "<lambda>")):
        seen = lines(probing(process, "watch", "held.py:%d" % line_of(HELD, text), name, "--count", "3", "--json"))
        first = seen[0]["values"][name]
        assert [line["values"][name] for line in seen] == [first, first + 1, first + 2] and {line["function"] for line in seen} == {function}, text
    clean(process, probing)


@pytest.mark.pythons(min=(3, 12))
def test_exceptions_of_expressions_stay_there(caller, probing, python, build, spawn):
    """Whatever they are: asyncio's CancelledError is none that `except Exception` catches. But what a handler of a signal raises is the program's."""
    process = caller(python)
    where = "calls.py:%d" % line_of(CALLS, "x = 1")
    seen = lines(probing(process, "watch", where, "done.result(), (_ for _ in ()).throw(GeneratorExit), 1 / 0, done.cancelled()", "--count", "3", "--json"))
    assert [sorted(e.split(":")[0] for e in line["errors"].values()) for line in seen] == [["CancelledError", "GeneratorExit", "ZeroDivisionError"]] * 3
    assert {line["values"]["done.cancelled()"] for line in seen} == {True}
    assert probing(process, "eval", "wrong, late").stdout == "([], 0)\n"
    tool = spawn([build.tool("probing"), "-t", process.pid, "watch", where, "signal.raise_signal(signal.SIGALRM)"], stderr=subprocess.PIPE)
    wait_until(lambda: tool.poll() is not None or int(probing(process, "eval", "late").stdout) > 2)
    tool.send_signal(signal.SIGINT)
    assert tool.wait(240) == 0, tool.stderr.read()
    assert probing(process, "eval", "wrong").stdout == "[]\n"
    clean(process, probing)


@pytest.mark.pythons(min=(3, 12))
def test_beside_the_tracer_of_the_program(caller, probing, python):
    process = caller(python)
    assert len(lines(probing(process, "watch", "calls.py:%d" % line_of(CALLS, "b = a + 1"), "a", "--count", "5", "--json"))) == 5
    assert probing(process, "eval", "wrong").stdout == "[]\n"
    clean(process, probing)


@pytest.mark.pythons(max=(3, 11), count=1)
def test_older_pythons(target, probing, python):
    process = target(python)
    assert "needs 3.12 or later" in probing(process, "watch", "train.py:5", "i", check=3).stderr
    assert process.poll() is None
