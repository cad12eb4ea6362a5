# SPDX-License-Identifier: Apache-2.0
"""A process whose last ordinary thread ends without exit() ends, with the exit code that it would have had, and its trace is complete: the
agent's threads keep no process alive. And a process whose main thread has ended is recorded as long as other threads work."""
import json
import re
import resource
import subprocess
import time

import pytest
from agent_helpers import FEW, SOME, agent  # noqa: F401
from inject_helpers import until_sampled

# CPython 3.6 ends each thread by pthread_exit(), which loads and prepares libgcc_s when it is first called. A child that is forked at that
# moment inherits the library half prepared, and its own pthread_exit() aborts, crashes or hangs (without recording: 6 of 550). So it is
# prepared in advance here.
FORK_IN_THREAD = r"""
import ctypes, os, sys, threading
if sys.version_info < (3, 7):
    stop = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda *frame: 5)
    ctypes.CDLL("libgcc_s.so.1")._Unwind_Backtrace(stop, None)
def child():
    os.write(1, b"child\n")
def worker():
    pid = os.fork()
    if pid == 0:
        return child()
    os.write(1, b"%%d\n" %% os.waitpid(pid, 0)[1])
threads = [threading.Thread(target=worker) for _ in range(%d)]
for t in threads: t.start(); t.join()  # a fork beside a thread that begins or ends hangs CPython 3.8 by itself, now and then
"""

MAIN_ENDS = """
import ctypes, os, sys, threading, time
def busy(seconds):
    end = time.time() + seconds
    while time.time() < end:
        sum(range(1000))
def worker():
    busy(.2)
    print(os.getpid(), flush=True)
    %s
threading.Thread(target=worker).start()
time.sleep(.05)
%s
"""
PTHREAD_EXIT = "ctypes.CDLL(None).pthread_exit(None)"


def strict(done):
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.limit(60)
def test_fork_in_a_thread(agent, run, python):
    script = agent.script(FORK_IN_THREAD % 3)
    command = [python.path, "-W", "ignore", str(script)]
    bare = sorted(strict(run(command)).split())
    assert sorted(strict(run(command, env=agent.env())).split()) == bare == ["0"] * 3 + ["child"] * 3
    agent.check_whole(agent.trace, "exit")
    for trace in agent.traces()[1:]:
        assert agent.check_whole(trace, "exit")["how"] == "fork"
    assert agent.lives() == []


@FEW
@pytest.mark.limit(60)
def test_long_child_of_a_thread(agent, run, interpreter):
    """The child lives long enough to be recorded, has a thread of its own meanwhile, and ends as the other child does."""
    text = FORK_IN_THREAD % 1
    script = agent.script(text.replace('os.write(1, b"child', """import glob, time
    def recorded():
        while not glob.glob("%s/%%d-*.live" %% os.getpid()): time.sleep(.01)
        time.sleep(.2)
    other = threading.Thread(target=recorded)
    other.start()
    recorded()
    os.write(1, b"child""" % agent.run_dir))
    assert strict(run([interpreter.path, "-W", "ignore", str(script)], env=agent.env())).split() == ["child", "0"]
    traces = agent.traces()
    assert len(traces) == 2
    for trace in traces:
        agent.check_whole(trace, "exit")


@FEW
@pytest.mark.limit(60)
def test_main_thread_ends(agent, run, spawn, interpreter, build, convert, sql):
    both, end = agent.tmp / "both", agent.tmp / "end"
    text = MAIN_ENDS % ("while not os.path.exists(%r): busy(.1)" % str(end), PTHREAD_EXIT)
    script = agent.script(text.replace("time.sleep(.05)", "while not os.path.exists(%r): time.sleep(.01)" % str(both)))
    program = spawn([interpreter.path, str(script)], ready="", env=agent.env(PROBING_SAMPLE_RATE=".01"))
    until_sampled(program.pid, 50)
    both.touch()
    while open("/proc/%d/stat" % program.pid).read().rsplit(")", 1)[1].split()[0] != "Z": # wait for its first thread to end, which takes until it gets a processor
        time.sleep(.01)
    status = json.loads(strict(run([build.tool("probing"), "-t", str(program.pid), "status", "--json"])))
    assert status["state"] == "running"
    assert str(program.pid) in strict(run([build.tool("probing"), "list"]))
    if interpreter == SOME[0]:  # the process may be in the middle of an exec; it is looked at a few hundred times, not every two milliseconds for ten seconds
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw
        assert "others go on: it cannot be entered" in run([build.tool("probing"), "-t", str(program.pid), "inject"], check=3).stderr
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw - before < 600
    until_sampled(program.pid, status["samples"] + 250)
    end.touch()
    assert program.wait(240) == 0
    agent.check_whole(agent.trace, "exit")
    db = convert(agent.trace)
    # Ten samples a second would show it, too: the worker is seen to the end, the dead thread is not.
    until = dict(sql(db, "SELECT tid, max(timestamp) FROM samples GROUP BY tid"))
    worker = [t for t in until if t != program.pid]
    assert len(worker) == 1 and until[worker[0]] - until[program.pid] > 1
    seen = sql(db, """SELECT sum(count) FROM samples WHERE tid = ? AND sample_id IN
                 (SELECT sample_id FROM backtrace WHERE func LIKE '%busy')""", worker[0])
    lost = sql(db, "SELECT lost FROM trace")[0][0]
    assert seen[0][0] + lost > 200
    assert sql(db, "SELECT count(*) FROM memory_usage WHERE rss = 0 OR rss IS NULL") == [(0,)]


@pytest.mark.parametrize("code", [0, 3])
def test_exit_code_of_the_bare_system_call(agent, run, code, pythons):
    """A program that ends its only thread by the system call itself: no handlers run, and it has its own exit code."""
    script = agent.script("import ctypes, atexit\natexit.register(print, 'handler')\nctypes.CDLL(None).syscall(60, %d)" % code)
    command = [pythons[0].path, str(script)]
    assert run(command, check=None).returncode == code
    assert run(command, check=None, env=agent.env()).returncode == code


KILLED_ALONE = """
import ctypes, struct
libc = ctypes.CDLL(None)
class Prog(ctypes.Structure):
    _fields_ = [("n", ctypes.c_ushort), ("f", ctypes.c_void_p)]
kill_thread = struct.pack("HBBIHBBIHBBIHBBI", 0x20, 0, 0, 0, 0x15, 0, 1, 155, 6, 0, 0, 0, 6, 0, 0, 0x7fff0000)
kill_thread = ctypes.create_string_buffer(kill_thread)
prog = Prog(4, ctypes.addressof(kill_thread))
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.addressof(prog), 0, 0) == 0
%s
for i in range(20000): sum(range(1000))
libc.syscall(155)  # pivot_root(): the agent never calls it
"""


@pytest.mark.parametrize("where, code", [("", -31), ("import signal; signal.signal(signal.SIGSYS, print)", -31),
                                         ("import os, sys\npid = os.fork()\nif pid: sys.exit(os.waitpid(pid, 0)[1] & 127)", 31)],
                         ids=["plain", "handler", "child"])
def test_thread_that_the_kernel_kills(agent, run, build, convert, sql, pythons, where, code):
    """A seccomp filter that kills the thread (SCMP_ACT_KILL) ends a process of one thread as SIGSYS does, not as exit(0): with ours, too."""
    script = agent.script("import resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n" + KILLED_ALONE % where)
    command = [pythons[0].path, str(script)]
    assert run(command, check=None).returncode == code
    assert run(command, check=None, env=agent.env()).returncode == code
    recorded = agent.tmp / "recorded.zst"
    done = run([build.tool("probing-record"), "-q", "-r", "1000", "-o", recorded] + command, check=None)
    assert done.returncode == (code if code > 0 else 128 - code)
    ends = sql(convert(recorded), "SELECT end_reason FROM trace ORDER BY start")
    assert ends[code > 0:] == [("killed",)]


@FEW
@pytest.mark.limit(60)
def test_handlers_of_libc_run(agent, run, interpreter):
    """When the last thread ends, glibc calls exit(0): handlers run, and buffers are written."""
    script = agent.script(MAIN_ENDS % ("ctypes.CDLL(None).printf(b'buffered')", PTHREAD_EXIT))
    command = [interpreter.path, str(script)]
    bare, recorded = strict(run(command)), strict(run(command, env=agent.env()))
    assert re.sub(r"\d+", "", bare) == re.sub(r"\d+", "", recorded)
    assert "buffered" in recorded


@FEW
@pytest.mark.limit(60)
def test_evaluation_that_waits_for_ever(agent, run, spawn, interpreter, build):
    """A thread ends while it holds the GIL: an evaluation never gets the GIL, and does not keep the process alive, also after the end of
    the recording."""
    script = agent.script(MAIN_ENDS % ("""while open("/proc/%d/stat" % os.getpid()).read().rsplit(")", 1)[1].split()[0] != "Z": time.sleep(.01)  # the main thread
    ctypes.PyDLL(None).system(b'echo holds; read line'); ctypes.PyDLL(None).pthread_exit(None)""", PTHREAD_EXIT))
    program = spawn([interpreter.path, str(script)], ready="holds", env=agent.env(), stdin=subprocess.PIPE)
    probing = [build.tool("probing"), "-t", str(program.pid)]
    assert run(probing + ["eval", "--timeout", "0.5", "1 + 1"], check=None).returncode != 0
    strict(run(probing + ["stop"]))
    program.stdin.close()
    assert program.wait(240) == 0


@pytest.mark.limit(60)
def test_stopped_recording(agent, run, spawn, build, pythons):
    script = agent.script(MAIN_ENDS % ("os.read(0, 1)", PTHREAD_EXIT))
    program = spawn([pythons[0].path, str(script)], ready="", env=agent.env(), stdin=subprocess.PIPE)
    strict(run([build.tool("probing"), "-t", str(program.pid), "stop"]))
    agent.check_whole(agent.trace, "stop")
    program.stdin.close()
    assert program.wait(240) == 0


@pytest.mark.limit(90)
@pytest.mark.pythons(min=(3, 8))
def test_fork_that_python_is_not_told_of(agent, run, python, convert, sql):
    """uWSGI's fork(): CPython believes that the child's main thread still has the parent's id, and that the parent's other threads exist."""
    script = agent.script("""
import ctypes, os, threading, time
def burn():
    end = time.thread_time() + 1
    while time.thread_time() < end:
        sum(range(500))
threading.Thread(target=time.sleep, args=(1.5,), daemon=True).start()
pid = ctypes.PyDLL(None).fork()
if pid == 0:
    burn()
    os._exit(0)
print(pid, os.waitpid(pid, 0)[1])
""")
    pid, status = map(int, strict(run([python.path, str(script)], env=agent.env(PROBING_SAMPLE_RATE=".01"))).split())
    assert status == 0
    child = [t for t in agent.traces() if t != str(agent.trace)]
    db = convert(*child)
    rows = sql(db, "SELECT tid, sum(count) FROM samples GROUP BY tid")
    assert [tid for tid, _ in rows] == [pid]
    lost = dict(sql(db, "SELECT reason, count FROM loss"))
    # None of its ticks counts as another thread's; the next tick of a thread that just lost its processor may be missing.
    assert rows[0][1] > 10 and lost.get("unanswered", 0) < rows[0][1] / 4, (rows, lost)
    assert sql(db, "SELECT count(*) FROM backtrace WHERE func LIKE '%burn'")[0][0] > 0
