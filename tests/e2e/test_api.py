# SPDX-License-Identifier: Apache-2.0
"""`import probing`: spans, events, steps, settings and variables, without an agent, with one, and with one that comes later."""
import json
import os
import shutil
import subprocess

import pytest
from conftest import PYTHONS

SOME = [p for p in PYTHONS if not p.debug and (p.path == "/usr/bin/python3" or p.version[:2] in [(3, 8), (3, 13)])]
FEW = pytest.mark.parametrize("interpreter", SOME, ids=[p.name for p in SOME])

RECORDED = """
import asyncio, sys, threading, time
import probing
assert probing.is_recording() and probing.trace().endswith(".zst")

@probing.span("function")
def function(x):
    '''Its text.'''
    with probing.span("inner"):
        time.sleep(0.02)
    return x + 1
assert function(1) == 2 and function.__doc__ == "Its text." and function.__name__ == "function"

class Thing:
    @probing.span("method")
    def method(self):
        return self
    @probing.span("static")
    @staticmethod
    def static():
        return 5
thing = Thing()
assert thing.method() is thing and thing.static() == 5

@probing.span("generator")
def generator():
    yield 1
    yield 2
with probing.span("around"):
    for _ in generator():
        with probing.span("between"):
            pass

@probing.span("coroutine")
async def task(n):
    with probing.span("task%d" % n):
        await asyncio.sleep(0.02)
        with probing.span("sub%d" % n):
            await asyncio.sleep(0.02)
async def both():
    await asyncio.gather(task(1), task(2))
loop = asyncio.new_event_loop()
with probing.span("tasks"):
    loop.run_until_complete(both())
loop.close()

try:
    with probing.span("raises"):
        raise KeyError("x")
except KeyError:
    pass

def recurse(n):
    with probing.span("again"):
        if n:
            recurse(n - 1)
recurse(2)

def in_thread():
    with probing.span("other thread"):
        pass
t = threading.Thread(target=in_thread)
with probing.span("starter"):
    t.start()
    t.join()

probing.step()
probing.step()
with probing.span("eventful"):
    probing.event("values", whole=3, real=2.5, text="h\\u00e9", none=None, flag=True, nan=float("nan"),
                  big=1 << 80, exact=(1 << 53) + 1, least=-(1 << 63), some=[1, 2], many=list(range(99)), other=object)
probing.step(41)
probing.event("bare")
with probing.span("\\udcff"):  # os.fsdecode() makes such names
    probing.event("\\udcff", **{"\\udcff": 1, "": 2})
for bad in (lambda: probing.step(-1), lambda: probing.step("x"), lambda: probing.event(), lambda: probing.event(3),
            lambda: probing.span(3)):
    try:
        bad()
    except (TypeError, ValueError):
        continue
    raise SystemExit("no error")
open_at_the_end = probing.span("never closed")
open_at_the_end.__enter__()
"""


DECORATED = """
import asyncio, types
import probing
def both(make):  # (bare, decorated)
    return make, probing.span("span")(make)

async def talks():
    got = []
    try:
        while True:
            try:
                got.append((yield len(got)))
            except KeyError as error:
                got.append(type(error).__name__)
    finally:
        said.append(got)
async def drive(make):
    g = make()
    out = [await g.__anext__(), await g.asend("a"), await g.athrow(KeyError("x")), await g.asend("b")]
    try:
        await g.athrow(ValueError("y"))
    except ValueError as error:
        out.append(str(error))
    return out
async def few():
    for i in range(3): yield i
async def count(make):
    return [i async for i in make()]
@types.coroutine
def old():
    yield
    return "awaited"
async def wait_for(make):
    return await make()

loop = asyncio.new_event_loop()
for drive_it, make in ((drive, talks), (count, few), (wait_for, old)):
    answers = []
    for one in both(make):
        said = []
        answers.append((loop.run_until_complete(drive_it(one)), said))
    assert answers[0] == answers[1], answers
loop.close()
print("the same")
"""


@FEW
def test_a_decorated_function_does_what_it_did(build, interpreter, record):
    """Values and exceptions sent to an asynchronous generator reach it, and what could be awaited still can; recorded or not."""
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    assert subprocess.run([interpreter.path, "-W", "ignore", "-c", DECORATED], env=env, stdout=subprocess.PIPE, check=True).stdout == b"the same\n"
    assert record(DECORATED, python=interpreter.path, options=["-q"], env=env).stdout == "the same\n"


@pytest.mark.pythons(min=(3, 6))
@pytest.mark.slow
def test_spans_and_events_everywhere(build, python, record, convert, sql):
    check_recorded(build, python, record, convert, sql)


@FEW
def test_spans_and_events(build, interpreter, record, convert, sql):
    check_recorded(build, interpreter, record, convert, sql)


def check_recorded(build, python, record, convert, sql):
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    db = convert(record(RECORDED, python=python, env=env, options=["-q"]).trace)
    spans = {}
    for name, parent, duration, failed in sql(db, "SELECT name, parent, duration, failed FROM spans ORDER BY span_id"):
        spans.setdefault(name, []).append((parent, duration, failed))
    parents = {name: [s[0] for s in found] for name, found in spans.items()}
    tasks = "coroutine" if python.version >= (3, 7) else parents["task1"][0]  # 3.6 has no context variables
    assert parents == {
        "function": [None], "inner": ["function"], "method": [None], "static": [None], "around": [None],
        "generator": ["around"], "between": ["around"] * 2, "tasks": [None], "raises": [None],
        "coroutine": parents["coroutine"], "task1": [tasks], "task2": parents["task2"] if python.version < (3, 7) else [tasks],
        "sub1": parents["sub1"] if python.version < (3, 7) else ["task1"],
        "sub2": parents["sub2"] if python.version < (3, 7) else ["task2"],
        "again": [None, "again", "again"], "starter": [None], "other thread": [None], "eventful": [None],
        "never closed": [None], "?": [None]}
    assert python.version < (3, 7) or parents["coroutine"] == ["tasks", "tasks"]
    assert spans["inner"][0][1] >= 0.019 and spans["function"][0][1] >= spans["inner"][0][1]
    assert [n for n, found in spans.items() if any(s[2] for s in found)] == ["raises"]
    assert [n for n, found in spans.items() if any(s[1] is None for s in found)] == ["never closed"]

    events = sql(db, "SELECT name, step, span, data FROM events ORDER BY event_id")
    assert [e[:3] for e in events] == [("values", 2, "eventful"), ("bare", 42, None), ("?", 42, "?")]
    assert json.loads(events[0][3]) == {
        "whole": 3, "real": 2.5, "text": "h\u00e9", "none": None, "flag": 1, "nan": "nan", "big": pytest.approx(float(1 << 80)), "exact": (1 << 53) + 1, "least": -(1 << 63),
        "some": "[1, 2]", "many": "<list of 99>", "other": "<class 'object'>"}
    assert json.loads(events[2][3]) == {"?": 1, "": 2}
    assert sql(db, "SELECT value, typeof(value) FROM event_values WHERE name IN ('whole', '')") == [(3, "integer"), (2, "integer")]
    # steps of a program without torch; where the first one begins is not known
    assert sql(db, "SELECT step, source, duration > 0, \"end\" > 0 FROM steps") == [(0, "mark", 0, 1), (1, "mark", 1, 1), (41, "mark", 1, 1)]


ABSENT = """
import sys
import probing
from probing import span, step, event
@span("f")
def f(x, y=2): return x + y
with span("a") as a, probing.span("a") as b:
    assert a is b
step(); event("e", a=1); probing.step(3)
assert f(1, y=3) == 4 and list(map(span("g")(lambda x: x), [1])) == [1]
assert not probing.is_recording() and probing.trace() is None and probing.config() == {}
assert "_probing" not in sys.modules and "ctypes" not in sys.modules
probing.disable()
try:
    probing.config("metrics", 3)
    raise SystemExit("no error")
except probing.ProbingError as e:
    assert "probing.enable" in str(e)
print("fine")
"""


@pytest.mark.pythons(min=(3, 6))
def test_without_an_agent_nothing_happens(build, python, run, tmp_path):
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    done = run([python.path, "-c", ABSENT], env=env, cwd=str(tmp_path))
    assert done.stdout == "fine\n" and done.stderr == ""
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


CALLS = """
import copy, pickle, sys
import probing
def one(call):
    try:
        got = call()
    except Exception as error:
        return type(error).__name__
    return got._name() if "Span" in type(got).__name__ and callable(getattr(got, "_name", None)) else getattr(got, "name", got)
for call in (lambda: probing.step(number=3), lambda: probing.step(None), lambda: probing.step(), lambda: probing.step(1, 2),
             lambda: probing.step(other=1), lambda: probing.step(-1), lambda: probing.step("x"), lambda: probing.step(1, number=2),
             lambda: probing.event(name="by name", a=1), lambda: probing.event("by place", name="by name", label="by name"),
             lambda: probing.event("x", a=1, number=2), lambda: probing.event(), lambda: probing.event(3), lambda: probing.event("a", "b"),
             lambda: probing.event(a=1), lambda: probing.span(name="s"), lambda: probing.span("s"), lambda: probing.span(other="s"),
             lambda: probing.span(), lambda: probing.span(3), lambda: copy.copy(probing.span("c")), lambda: copy.deepcopy([probing.span("c")])[0],
             lambda: pickle.loads(pickle.dumps(probing.span("p"))), lambda: pickle.loads(pickle.dumps(probing.span, 2)) is probing.span,
             lambda: b"_probing" not in pickle.dumps(probing.step, 2)):
    print(one(call))
for made in (copy.copy(probing.span("the copy")), pickle.loads(pickle.dumps(probing.span("pickled")))):
    with made: pass
if probing.is_recording():
    made = type(probing.span("x"))()  # it has no name
    with made: pass
"""


@FEW
def test_calls_do_the_same_recorded_or_not(build, interpreter, run, record, convert, sql, tmp_path):
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    bare = run([interpreter.path, "-c", CALLS], env=env).stdout.split()
    assert bare[:8] == ["None"] * 3 + ["TypeError"] * 2 + ["ValueError"] + ["TypeError"] * 2
    assert bare[-7:] == ["TypeError", "TypeError", "c", "c", "p", "True", "True"]
    done = record(CALLS, python=interpreter, env=env)
    assert done.stdout.split() == bare
    db = convert(done.trace)
    assert sql(db, "SELECT name FROM spans WHERE name IN ('the copy', 'pickled') ORDER BY 1") == [("pickled",), ("the copy",)]
    assert sql(db, "SELECT name, data FROM events WHERE name LIKE 'by %' ORDER BY 1") == [
        ("by name", '{"a":1}'), ("by place", '{"name":"by name","label":"by name"}')]


ENABLE = """
import probing, os, sys
path = probing.enable(trace="out/", sample_rate=0, metrics=0.5)
assert path.startswith(os.path.realpath("out")) and probing.is_recording()
assert probing.enable() == path
with probing.span("recorded"): pass
assert probing.config("metrics") == "0.5" and probing.config("probing.sample_rate") == "0"
assert probing.config("sample_rate", 0.05) == "0.05" and probing.config()["probing.sample_rate"] == "0.05"
for key, value in (("sample_rate", "fast"), ("nothing", 1), ("torch.profiling", "sideways")):
    try:
        probing.config(key, value)
        raise SystemExit("no error")
    except probing.ProbingError as e:
        assert "must be" in str(e) or "there are" in str(e), e
probing.enable_torch_profiling("0.5")
assert probing.config("torch.profiling") == "0.5"
probing.disable_torch_profiling()
probing.disable()
assert not probing.is_recording()
with probing.span("not recorded"): pass
second = probing.enable(trace="out/")
assert second != path
probing.event("again")
"""


@FEW
def test_enable_in_the_program(build, interpreter, run, tmp_path, convert, sql):
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    os.mkdir(str(tmp_path / "out"))
    run([interpreter.path, "-c", ENABLE], env=env, cwd=str(tmp_path))
    db = convert(tmp_path / "out")
    assert sql(db, "SELECT end_reason, how FROM trace ORDER BY start") == [("stop", "python"), ("exit", "python")]
    assert sql(db, "SELECT name FROM spans") == [("recorded",)]
    assert sql(db, "SELECT e.name, t.end_reason FROM events e JOIN trace t ON t.id = e.trace_id") == [("again", "exit")]
    assert ("probing.sample_rate", "0.05") in sql(db, "SELECT key, value FROM config")


LATER = """
import sys, time
from probing import span, step, event
import probing
@span("decorated")
def f():
    time.sleep(0.002)
outside = span("kept")
print("ready", flush=True)
until = time.monotonic() + 600
n = 0
while time.monotonic() < until and n < 20:
    with outside:
        f()
    step()
    event("seen", n=n)
    n += probing.is_recording()
sys.stdin.read()  # until the injector has seen that it is recorded
probing.disable()
"""


@FEW
def test_the_agent_comes_later(build, interpreter, run, spawn, tmp_path, convert, sql):
    if interpreter.version < (3, 8):
        pytest.skip("inject is for 3.8 and later")
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    process = spawn([interpreter.path, "-c", LATER], ready="ready", env=env, cwd=str(tmp_path), stdin=subprocess.PIPE)
    run([build.tool("probing"), "-t", process.pid, "inject", "-o", tmp_path / "later.zst"])
    process.stdin.close()
    assert process.wait(timeout=240) == 0
    db = convert(tmp_path / "later.zst")
    found = dict(sql(db, "SELECT name, count(*) FROM spans GROUP BY name"))
    assert found["decorated"] >= 19 and found["kept"] >= 19
    assert sql(db, "SELECT max(value) FROM event_values WHERE name = 'n'")[0][0] >= 18
    assert sql(db, "SELECT count(*) FROM spans WHERE name = 'decorated' AND parent IS NOT 'kept'")[0][0] <= 1


FORKED = """
import os, sys, time
import probing
with probing.span("parent"):
    child = os.fork()
    with probing.span("both %d" % (child == 0)):
        until = time.monotonic() + 600
        while child == 0 and not probing.is_recording() and time.monotonic() < until:
            time.sleep(0.01)
    if child == 0:
        with probing.span("child"):
            pass
        sys.exit(0)
    os.waitpid(child, 0)
"""


@FEW
def test_a_forked_child_has_spans_of_its_own(build, interpreter, record, convert, sql):
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    db = convert(record(FORKED, python=interpreter, env=env, options=["-q"]).trace)
    assert sql(db, "SELECT trace_id, name, parent FROM spans WHERE name = 'child' OR trace_id = 1 ORDER BY 1, span_id") == [
        (1, "parent", None), (1, "both 0", "parent"), (2, "child", None)]


VARIABLES = """
import probing
class Bad:
    def __repr__(self): raise ValueError("no text")
class Trainer:
    def fit(self):
        for epoch in range(3):
            loss = 1.0 / (epoch + 1)
            self.lr, bad, words = 0.5 ** epoch, Bad(), {"n": epoch}
            captured = epoch * 10 + (1 << 53) + 1
            def see(): return captured
            deep(5)
            self.done = after = epoch + 100
        late = "at the end"
        return late
def deep(n):
    if n:
        return deep(n - 1)
    probing.step()
def validate():
    acc1 = 0.75
    return acc1
top = "module"
Trainer().fit()
validate()
"""
EXPRS = "epoch@fit,loss@Trainer.fit,self.lr@fit,words@fit,captured@fit,bad@fit,top@<module>,late@fit,after@fit,self.done@fit,acc1@validate,nope@fit"


@pytest.mark.pythons(min=(3, 6))
@pytest.mark.slow
def test_variables_everywhere(build, python, record, convert, sql):
    check_variables(build, python, record, convert, sql)


@FEW
def test_variables(build, interpreter, record, convert, sql):
    check_variables(build, interpreter, record, convert, sql)


def check_variables(build, python, record, convert, sql):
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    db = convert(record(VARIABLES, python=python, env=env, options=["-q", "--exprs", EXPRS]).trace)
    at = {}
    for step, func, name, value, when in sql(db, "SELECT step, func, name, value, at FROM variables"):
        at.setdefault(when, {}).setdefault(step, {})[name + "@" + func] = value
    for step in range(3):
        after = {"after@fit": step + 100, "self.done@fit": step + 100} if step < 2 else {}  # the last value is the one at the return
        assert at["step"][step] == {
            **after, "epoch@fit": step, "loss@Trainer.fit": 1 / (step + 1), "self.lr@fit": 0.5 ** step,
            "words@fit": "{'n': %d}" % step, "captured@fit": step * 10 + (1 << 53) + 1, "top@<module>": "module"}
    assert len(at["step"]) == 3
    notes = [t for t, in sql(db, "SELECT text FROM notes WHERE part = 'variables'")]
    assert notes.count("bad@fit: no text") == 1 and any(t.startswith("nope@fit had no value") for t in notes)
    assert list(at["return"]) == [2] and at["return"][2]["late@fit"] == "at the end"
    assert at["return"][2]["after@fit"] == at["return"][2]["self.done@fit"] == 102
    if python.version >= (3, 12):  # before 3.12, only functions that are on the stack at the end of a step or of a model's call
        assert at["return"][2]["acc1@validate"] == 0.75
    logs = sql(db, "SELECT epoch, step, loss, lr FROM training_logs ORDER BY step")
    assert logs == [(0, 0, 1.0, 1.0), (1, 1, 0.5, 0.5), (2, 2, 1 / 3, 0.25)]


LAZY = """
import sys, types
import probing
touched = []
class Proxy(object):
    def __getattr__(self, name):
        touched.append(name)
        raise RuntimeError(name)
class Module(types.ModuleType):
    def __getattribute__(self, name):
        touched.append(name)
        raise RuntimeError(name)
proxy, sys.modules["lazy_module"] = Proxy(), Module("lazy_module")
class Trainer:
    @staticmethod
    def validate():
        accuracy = 0.75
        return accuracy
for step in range(8):
    probing.step()
    Trainer.validate()
print(touched)
"""


@FEW
def test_a_function_is_sought_without_touching_the_program(build, interpreter, record, convert, sql):
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    done = record(LAZY, python=interpreter, env=env, options=["-q", "--exprs", "accuracy@Trainer.validate"])
    assert done.stdout == "[]\n"
    if interpreter.version >= (3, 12):
        assert {v for v, in sql(convert(done.trace), "SELECT value FROM variables")} == {0.75}


ODD_PATHS = """
import os, sys
import probing
folder = os.fsdecode(b"jos\\xe9")
os.mkdir(folder)
path = probing.enable(trace=os.path.join(folder, "t.zst"), sample_rate=0)
assert path == probing.trace() == os.path.realpath(os.path.join(folder, "t.zst")), ascii(path)
assert os.path.exists(path) and probing.config("sample_rate") == "0" and probing.config()["probing.sample_rate"] == "0"
"""


@FEW
def test_a_path_that_is_not_utf8(build, interpreter, run, tmp_path):
    agent = build.root / "lib/probing/libprobing-agent.so"
    run([interpreter.path, "-c", ODD_PATHS], env=dict(os.environ, PYTHONPATH=str(build.share / "python"), PROBING_AGENT=str(agent)), cwd=str(tmp_path))


REPLACED = """
import os, shutil, sys
agent, = {line.split()[-1] for line in open("/proc/self/maps") if line.rstrip().endswith("/libprobing-agent.so")}
shutil.copy(agent, agent + ".new")
os.unlink(agent)
os.rename(agent + ".new", agent)
import probing
assert probing.is_recording()
with probing.span("after an upgrade"): pass
"""


def test_the_agent_is_known_when_its_file_is_replaced(build, run, convert, sql, tmp_path):
    copy = tmp_path / "installed"
    for part in ("bin", "lib"):
        shutil.copytree(str(build.root / part), str(copy / part), symlinks=True)
    run([copy / "bin/probing-record", "-q", "-o", tmp_path / "t.zst", SOME[0].path, "-c", REPLACED],
        env=dict(os.environ, PYTHONPATH=str(build.share / "python")))
    assert sql(convert(tmp_path / "t.zst"), "SELECT name FROM spans") == [("after an upgrade",)]


@pytest.mark.parametrize("option, says", [
    ("--exprs=loss", "NAME@FUNCTION"), ("--torch=fast", "must be on, off"), ("--set=native=2", "must be 0 or 1"),
    ("--set=nothing=2", "there is no setting nothing"), ("--set=native", "KEY=VALUE")])
def test_a_bad_setting_is_refused_before_the_start(build, run, option, says, tmp_path):
    mark = tmp_path / "ran"
    done = run([build.tool("probing-record"), option, "touch", mark], check=125)
    assert says in done.stderr and len(done.stderr.splitlines()) == 1 and not mark.exists()
    assert "NAME@FUNCTION" in run([build.tool("probing-record"), "-o", tmp_path / "t.zst", "touch", mark],
                                  env=dict(os.environ, PROBE_TORCH_EXPRS="a@b@c")).stderr and mark.exists()


STORM = """
import os, threading, time
import probing
going, count = True, [0] * 3
def hammer(i):
    while going:
        with probing.span("hammer"):
            probing.event("blow", n=count[i])
        count[i] += 1
        time.sleep(0.0002)
threads = [threading.Thread(target=hammer, args=(i,)) for i in range(3)]
for t in threads: t.start()
for r in range(8):
    probing.enable(trace="storm/", sample_rate=0.01)
    child = os.fork() if r == 3 else -1
    if not child:
        for _ in range(200):
            with probing.span("child"): pass
        os._exit(0)
    before = sum(count)
    until = time.monotonic() + 600
    while sum(count) < before + 100 and time.monotonic() < until: time.sleep(0.01)
    probing.disable()
    if child > 0: assert os.waitpid(child, 0)[1] == 0
going = False
for t in threads: t.join()
probing.enable(trace="storm/")
for i in range(200):
    t = threading.Thread(target=probing.event, args=("short-lived",))
    t.start()
    t.join()
probing.disable()
"""


@FEW
def test_threads_record_while_recordings_come_and_go(build, interpreter, run, tmp_path, convert, sql):
    (tmp_path / "storm").mkdir()
    run([interpreter.path, "-W", "ignore", "-c", STORM], cwd=str(tmp_path), env=dict(os.environ, PYTHONPATH=str(build.share / "python")))
    db = convert(tmp_path / "storm")
    assert sql(db, "SELECT count(*) FROM trace WHERE end_reason = 'stop'") == [(9,)]
    assert sql(db, "SELECT count(*) FROM events WHERE name = 'short-lived'") == [(200,)]
    assert sql(db, "SELECT min(n) >= 80 FROM (SELECT count(*) AS n FROM events WHERE name = 'blow' GROUP BY trace_id)") == [(1,)]
    assert sql(db, "SELECT count(*) FROM spans WHERE parent IS NOT NULL") == [(0,)]
    assert sql(db, "SELECT sum(count) FROM loss WHERE reason IN ('no_ring', 'damaged', 'unresolved')") == [(None,)]
