# SPDX-License-Identifier: Apache-2.0
"""The mailbox of the live file: evaluation, settings, flush, stop; and the stub that an injector loads."""
import json
import os
import shutil
import subprocess
import time

import pytest
from agent_helpers import FEW, agent
from conftest import thread_names

FIXTURES = (agent,)  # tests ask for them by name

LOOP = """
import sys, time
counter = 0
print("ready", flush=True)
while True:
    counter += 1
    time.sleep(0.005)
"""


def wait_for(what, seconds=240):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = what()
        if got:
            return got
        time.sleep(0.02)
    pytest.fail("did not come: %s" % what.__name__)


def evaluate(agent, live, source, **kw):
    status, reply = agent.mail(live, "eval", source, **kw)
    assert status == 0, reply
    return json.loads(reply)


@pytest.fixture
def start(agent, spawn):
    def do(python):
        process = spawn([python.path, agent.script(LOOP)], ready="ready", env=agent.env(), stderr=subprocess.PIPE)
        live, = wait_for(agent.lives)
        return process, live
    return do


@pytest.mark.pythons(every=True)
def test_eval(agent, start, python):
    process, live = start(python)
    first = evaluate(agent, live, "counter")
    assert first == {"ok": True, "error": None, "value": first["value"], "out": ""}
    wait_for(lambda: int(evaluate(agent, live, "counter")["value"]) > int(first["value"]))

    assert evaluate(agent, live, "x = 20\nprint('h\\u00e9')\nx + 1")["value"] == "21"
    done = evaluate(agent, live, "print('\u00e9\U0001f600 \"\\\\'); x")
    assert (done["out"], done["value"]) == ("\u00e9\U0001f600 \"\\\n", "20")
    assert evaluate(agent, live, "import sys; sys.stderr.write('e'); None") == {
        "ok": True, "error": None, "value": None, "out": "e"}

    for source, last in [("def f():\n    return 1 / 0\nf()", "ZeroDivisionError: division by zero"),
                         ("raise SystemExit(9)", "SystemExit: 9"), ("raise KeyboardInterrupt", "KeyboardInterrupt")]:
        done = evaluate(agent, live, source)
        assert not done["ok"] and done["error"].strip().endswith(last)
        assert "evaluate" not in done["error"] and done["value"] is None
    assert "SyntaxError" in evaluate(agent, live, "1 +")["error"]
    assert process.poll() is None


FORKS = """
import os, sys, threading, time
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.005)
pid = os.fork()
if pid == 0:
    for i in range(4):
        thread = threading.Thread(target=print, args=("thread", i))
        thread.start()
        thread.join()
    print("main")
    sys.stdout.flush()
    os._exit(0)
os.waitpid(pid, 0)
open(sys.argv[1] + ".done", "w").close()
while True:
    time.sleep(1)
"""


@FEW
def test_a_child_forked_meanwhile_has_its_output(agent, spawn, interpreter, tmp_path):
    """A thread of the child may get the number of the thread that evaluates in the parent."""
    out = tmp_path / "out"
    process = spawn([interpreter.path, agent.script(FORKS), tmp_path / "go"], ready=None, env=agent.env(), stdout=out.open("wb"))
    wait_for(lambda: out.read_text())
    live, = wait_for(agent.lives)
    done = evaluate(agent, live, "import os, time\nopen(%r, 'w').close()\nend = time.time() + 60\n"
                    "while not os.path.exists(%r) and time.time() < end: time.sleep(0.005)\nprint('own')" % (str(tmp_path / "go"), str(tmp_path / "go.done")))
    assert done["out"] == "own\n" and process.poll() is None
    assert out.read_text() == "ready\n" + "".join("thread %d\n" % i for i in range(4)) + "main\n"


PRINTS = """
import sys
sys.setswitchinterval(1e-6)
counter = 0
open("ready", "w").close()
while True:
    print("a", counter, "b")
    counter += 1
"""


def test_eval_beside_print(agent, spawn, python):
    """print() of the program's threads goes on with the object that was sys.stdout when it began."""
    with open(os.devnull, "w") as null:
        process = spawn([python.path, agent.script(PRINTS)], env=agent.env(), stdout=null, cwd=str(agent.tmp))
    wait_for((agent.tmp / "ready").exists)
    live, = wait_for(agent.lives)
    for i in range(150):
        assert evaluate(agent, live, str(i))["value"] == str(i)
    assert process.poll() is None


STREAMS = """
import os, sys, time
def until(name):
    while not os.path.exists(name):
        time.sleep(0.01)
sys.stdout = open("first", "w")
print("written")
open("ready", "w").close()
until("go on")
old, sys.stdout = sys.stdout, sys.__stdout__
del old
open("dropped", "w").close()
until("restore")  # what was sys.stdout while an evaluation ran, is its capture
sys.stdout = kept
print("and this")
sys.stdout.flush()
open("restored", "w").close()
time.sleep(1000)
"""


def test_eval_does_not_keep_the_programs_streams(agent, spawn, python):
    """What a stream has buffered is written when the program drops it, also after evaluations (LLDB lost its scripts' output). One that the
    program has found in sys.stdout during an evaluation writes to the stream that was there."""
    process = spawn([python.path, agent.script(STREAMS)], env=agent.env(), cwd=str(agent.tmp))
    wait_for((agent.tmp / "ready").exists)
    live, = wait_for(agent.lives)
    assert evaluate(agent, live, "print('ours')")["out"] == "ours\n"
    (agent.tmp / "go on").touch()
    wait_for((agent.tmp / "dropped").exists)
    assert (agent.tmp / "first").read_text() == "written\n"
    evaluate(agent, live, "import sys; sys.stdout = open('second', 'w')")
    evaluate(agent, live, "import sys; kept = sys.stdout; sys.stdout = sys.__stdout__")
    (agent.tmp / "restore").touch()
    wait_for((agent.tmp / "restored").exists)
    assert (agent.tmp / "second").read_text() == "and this\n"
    assert process.poll() is None


CLOSED = """
import sys, time
sys.stdout = sys.stderr = None
counter = 0
open("ready", "w").close()
while True:
    print("nobody reads this")
    print("nor this", file=sys.stderr)
    counter += 1
"""


@FEW
def test_eval_where_stdout_is_none(agent, spawn, interpreter):
    """As in a daemon that was started with its descriptors closed: print() of the program's threads does nothing then, also while an
    evaluation takes its own output."""
    process = spawn([interpreter.path, agent.script(CLOSED)], env=agent.env(), cwd=str(agent.tmp))
    wait_for((agent.tmp / "ready").exists)
    live, = wait_for(agent.lives)
    done = evaluate(agent, live, "print('ours')\nfirst = counter\nimport time\nwhile counter < first + 100: time.sleep(0.001)\n'passed'")
    assert (done["value"], done["out"]) == ("'passed'", "ours\n")
    assert process.poll() is None


READER = """
import sys
print("ready", flush=True)
print(input(), input(), next(sys.stdin).strip(), sys.stdin.readline().strip(), sys.stdin.read().split(), flush=True)
"""


@pytest.mark.pythons(min=(3, 7))
def test_eval_reads_nothing_of_the_programs_input(agent, spawn, python):
    """It finds the end of the input. (Once it waited for the program's next line, also after it had been given up.) The program's threads read
    theirs, also while an evaluation runs."""
    process = spawn([python.path, agent.script(READER)], ready="ready", stdin=subprocess.PIPE, env=agent.env())
    live, = wait_for(agent.lives)
    for code in "input()", "breakpoint()", "import sys; [sys.stdin.read(), list(sys.stdin), next(sys.stdin)]":
        assert agent.mail(live, "eval", code, timeout_ms=20000)[0] == 0
    process.stdin.write(b"1\n")
    process.stdin.flush()
    slow = subprocess.Popen([str(agent.build.root / "tests/programs/mailbox"), str(live), "eval", "import time; time.sleep(0.3)", "100000"])
    process.stdin.write(b"2\n3\n")
    process.stdin.flush()
    slow.wait()
    out = process.communicate(b"4\n5\n6\n", timeout=240)[0]
    assert out.decode().split("\n")[0] == "1 2 3 4 ['5', '6']"


@FEW
def test_eval_bounds(agent, start, interpreter):
    process, live = start(interpreter)
    for source in ("'x' * 1000000", "'\\u20ac' * 1000000", "print('y' * 1000000)", "raise ValueError('z' * 1000000)"):
        status, reply = agent.mail(live, "eval", source)
        assert status == 0 and len(reply) < 65536
        done = json.loads(reply)
        assert "...[cut]" in (done["value"] or "") + done["out"] + (done["error"] or "") or len(done["out"]) > 60000

    # A late answer goes to nobody, least of all to the next client.
    assert agent.mail(live, "eval", "import time; time.sleep(1.0); 'late'", 200)[0] is None
    assert evaluate(agent, live, "'next'")["value"] == "'next'"
    # A request that waits for the interpreter does not delay requests that need no interpreter.
    fifo, held = agent.tmp / "fifo", agent.tmp / "held"
    os.mkfifo(str(fifo))
    hold = "import ctypes; ctypes.PyDLL(None).system(%r)" % (": > %s; read x < %s" % (held, fifo)).encode()  # holds the GIL until somebody writes to the FIFO
    while not held.exists():  # a request that has not begun when its client leaves is never executed
        assert agent.mail(live, "eval", hold, 500)[0] is None
    assert agent.mail(live, "eval", "1", 200)[0] is None
    assert agent.mail(live, "flush") == (0, "")
    fifo.open("w").close()
    wait_for(lambda: agent.mail(live, "eval", "'again'", 500)[0] == 0)
    assert process.poll() is None


TRACED = """
import sys
counter = 0
def traced():
    global counter
    counter += 1
sys.settrace(lambda *event: None)
print("ready", flush=True)
while True:
    traced()
"""


@pytest.mark.pythons(min=(3, 11), max=(3, 11))
def test_eval_leaves_no_eval_breaker_set(agent, spawn, python):
    """While it is set, Python 3.11 never gets past the call of a traced function; in other versions all calls are slower."""
    process = spawn([python.path, agent.script(TRACED)], ready="ready", env=agent.env())
    live, = wait_for(agent.lives)
    for source, timeout in (("1", 100000), ("while True: pass", 200), ("while True: pass", 200)):
        assert (agent.mail(live, "eval", source, timeout)[0] is None) == (timeout == 200)
        at = wait_for(lambda: json.loads(agent.mail(live, "eval", "counter")[1] or "{}"))["value"]
        wait_for(lambda: evaluate(agent, live, "counter")["value"] != at)
    assert process.poll() is None


PROFILED = """
import cProfile, os, sys
def leaf(n):
    return n + 1
calls = 0
profile = cProfile.Profile()
if sys.argv[1] == "profiled":
    profile.enable()
print("ready", flush=True)
while not os.path.exists("end"):
    for i in range(1000):
        leaf(i)
    calls += 1000
profile.disable()
print([e.callcount - calls for e in profile.getstats() if getattr(e.code, "co_name", "") == "leaf"],
      sorted(e.code.co_filename for e in profile.getstats() if hasattr(e.code, "co_name") and e.code.co_filename not in (__file__, os.path.exists.__code__.co_filename)))
"""
PROFILES = """
import cProfile, sys
def mine(): return 1
told, its = [], cProfile.Profile()
sys.setprofile(lambda frame, event, arg: told.append(event))
mine()
sys.setprofile(None)
its.runcall(mine)
told[:2], [e.callcount for e in its.getstats() if getattr(e.code, "co_name", "") == "mine"]
"""


@pytest.mark.parametrize("way", ["profiled", "not"])
@pytest.mark.pythons(min=(3, 11))
def test_eval_under_a_profiler(agent, spawn, python, way):
    """The program's own profiler is told of the program's calls only, however much is evaluated meanwhile (in 3.12 it is told of all
    threads). Without one, an evaluation may use a profiler."""
    process = spawn([python.path, agent.script(PROFILED), way], ready="ready", env=agent.env(), cwd=str(agent.tmp))
    live, = wait_for(agent.lives)
    for n in range(10):
        assert evaluate(agent, live, "sorted(range(2000), key=lambda n: -n)[0]")["value"] == "1999"
        assert "ZeroDivisionError" in evaluate(agent, live, "def wrong(): 1 / 0\nwrong()")["error"]
    if way == "not":
        assert evaluate(agent, live, PROFILES)["value"] == "(['call', 'return'], [1])"
    (agent.tmp / "end").write_text("")
    out, _ = process.communicate(timeout=240)
    assert out.decode() == ("[0] []\n" if way == "profiled" else "[] []\n")


@FEW
@pytest.mark.parametrize("source", ["1", "import time; time.sleep(30)", "while True: pass"])
def test_eval_at_exit(agent, spawn, interpreter, source):
    """The program ends while an evaluation waits for the interpreter, sleeps or runs: it ends as it would without."""
    script = agent.script("import ctypes, sys\nprint('ready', flush=True)\nsys.stdin.readline()\n"
                          "ctypes.PyDLL(None).usleep(300000)\nsys.exit(7)\n")
    process = spawn([interpreter.path, script], ready="ready", env=agent.env(), stdin=subprocess.PIPE)
    live, = wait_for(agent.lives)
    if source == "1":
        process.stdin.write(b"\n")
        process.stdin.flush()
    client = subprocess.Popen([str(agent.build.root / "tests/programs/mailbox"), live, "eval", source],
                              stdout=subprocess.PIPE)
    wait_for(lambda: source == "1" or "probing-eval" in thread_names(process.pid).values())
    process.stdin.close()
    assert process.wait(240) == 7
    client.communicate(timeout=240)
    agent.check_whole(agent.trace, "exit")


@pytest.mark.pythons(count=1)
def test_config_flush_stop(agent, start, python):
    process, live = start(python)
    size = os.path.getsize(str(agent.trace))
    assert size > 0
    for text in ("sample_rate=0.01", "probing.native=0", "metrics=0.2"):
        assert agent.mail(live, "config", text) == (0, "")
    for text in ("sample_rate=9999", "sample_rate=", "native=2", "colour=red", "nonsense"):
        status, reply = agent.mail(live, "config", text)
        assert status == -22 and reply
    time.sleep(0.3)
    assert agent.mail(live, "flush") == (0, "")
    assert os.path.getsize(str(agent.trace)) > size
    config = [(c["key"], c["value"]) for c in agent.rows(agent.trace, "config")]
    assert config[-3:] == [("probing.sample_rate", "0.01"), ("probing.native", "0"), ("probing.metrics", "0.2")]

    assert agent.mail(live, "stop") == (0, "")
    agent.check_whole(agent.trace, "stop")
    assert agent.lives() == []
    wait_for(lambda: len(os.listdir("/proc/%d/task" % process.pid)) == 1)
    assert process.poll() is None


@FEW
def test_inject_stub(agent, spawn, interpreter):
    """The stub, loaded as an injector would load it but by the program itself, starts the agent, refuses to start it twice, and starts it
    again."""
    script = agent.script("import _ctypes, sys, time\nprint('ready', flush=True)\n"
                          "for line in sys.stdin:\n    _ctypes.dlopen(line.strip(), 2)\n")
    process = spawn([interpreter.path, script], ready="ready", stdin=subprocess.PIPE)

    def inject(name, conf):
        stage = agent.tmp / name
        stage.mkdir()
        shutil.copy(str(agent.build.lib / "libprobing-inject.so"), str(stage / "stub.so"))
        if conf is not None:
            (stage / "inject.conf").write_text(conf)
        process.stdin.write(("%s\n" % (stage / "stub.so")).encode())
        process.stdin.flush()
        wait_for((stage / "inject.status").exists)
        return (stage / "inject.status").read_text()

    conf = "PROBING_TRACE=%s\nPROBING_SAMPLE_RATE=0.05\nPROBING_AGENT=%s\n"
    good = conf % (agent.trace, agent.build.lib / "libprobing-agent.so")
    assert inject("none", None).startswith("-2 ")
    assert inject("empty", "").startswith("-22 ")
    assert inject("missing", conf % (agent.trace, "/nonexistent.so")).startswith("-79 ")
    assert inject("unwritable", good.replace(str(agent.trace), "/proc/nowhere/x")).startswith("-")
    assert inject("first", good) == "0 ok\n"
    assert inject("second", good) == "-114 already recording\n"
    live, = agent.lives()
    assert evaluate(agent, live, "2 * 21")["value"] == "42"
    assert agent.mail(live, "stop") == (0, "")
    assert inject("third", good) == "0 ok\n"
    process.stdin.close()
    assert process.wait(240) == 0
    first, second = sorted(agent.traces(), key=len)
    assert agent.check_whole(first, "stop")["how"] == "inject"
    assert agent.check_whole(second, "exit")["how"] == "inject"
    assert os.path.dirname(second) == first + ".d" and agent.lives() == []
    assert ("probing.sample_rate", "0.05") in [(c["key"], c["value"]) for c in agent.rows(first, "config")]


FOREIGN = """
import sys, time
if sys.argv[1] == "threads":
    import threading
print("ready", flush=True)
sys.stdin.readline()
import threading
def late():
    time.sleep(0.3)
    print("joined", flush=True)
print(sorted(threading._active) == [threading.get_ident()], threading.current_thread() is threading.main_thread(),
      threading.main_thread().is_alive(), "logging" in sys.modules, flush=True)
threading.Thread(target=late).start()
"""


@pytest.mark.parametrize("first", ["threads", "none"])
def test_an_evaluation_leaves_no_thread_in_threading(agent, spawn, python, first):
    """Up to 3.12 threading keeps an object for each foreign thread that asks for its own object, as logging does; and the thread that first
    imports threading becomes its main thread."""
    process = spawn([python.path, "-S", agent.script(FOREIGN), first], ready="ready", env=agent.env(), stdin=subprocess.PIPE,
                    stderr=subprocess.PIPE)
    live, = wait_for(agent.lives)
    plain = evaluate(agent, live, "import sys; 'threading' in sys.modules")
    assert plain["value"] == str(first == "threads")  # the agent itself must not import it
    assert evaluate(agent, live, "import logging; logging.warning('one')")["ok"]
    assert evaluate(agent, live, "import threading; 1 / 0 if threading.current_thread() else 0")["ok"] is False
    # An evaluation that is interrupted because its client leaves.
    assert agent.mail(live, "eval", "import threading\nthreading.current_thread()\nwhile True: pass", 300)[0] is None
    wait_for(lambda: agent.mail(live, "eval", "'again'", 500)[0] == 0)
    wait_for(lambda: "probing-eval" not in thread_names(process.pid).values())
    out, err = process.communicate(b"\n", timeout=240)
    assert (process.returncode, out.decode(), err.decode()) == (0, "True True True True\njoined\n", "")
