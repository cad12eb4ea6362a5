# SPDX-License-Identifier: Apache-2.0
"""Triggers: a signal that kills, an exception, or a hang leaves the stacks of all threads in the trace, and the program ends as without
recording. (test_comm.py tests who is missing in a hung job.)"""
import os
import re
import resource
import shutil
import signal
import subprocess
import time

import pytest
from agent_helpers import agent  # noqa: F401
from conftest import PYTHONS
from record_until import record_until  # noqa: F401
from test_stack_order import SMALL_STACK
from test_torch import find_torch
from test_torch_exit import IS_RECORDED

SAMPLED = """
import json, os, subprocess
def wait_for_samples():  # from its first tick on the sampler has what a stack consists of
    def sampled():
        listed = json.loads(subprocess.run(["probing", "list", "--json"], stdout=subprocess.PIPE).stdout)
        return any(p["pid"] == os.getpid() and p["samples"] for p in listed)
    while not sampled(): time.sleep(0.01)
"""
CATCHES = SAMPLED + """
import signal, time
def wait_for_agent(samples=True):
    # Python itself sees nothing of our handlers: the kernel's list of caught signals does. SIGTERM's is the last.
    bit = 1 << (signal.SIGTERM - 1)
    while True:
        line = next(l for l in open("/proc/self/status") if l.startswith("SigCgt"))
        if int(line.split()[1], 16) & bit: break
        time.sleep(0.01)
    if samples: wait_for_samples()
"""
THREADS = """
import faulthandler, os, sys, threading, time
def sleeper(): time.sleep(100)
def spinner():
    while True: pass
def waiter(): threading.Event().wait(100)
for f in (sleeper, spinner, waiter):
    threading.Thread(target=f, name=f.__name__, daemon=True).start()
""" + CATCHES + """
def crash():
    import ctypes
    ctypes.string_at(0)
def aborts(): os.abort()
def divides(): os.kill(os.getpid(), signal.SIGFPE)
def buses():
    import mmap, tempfile
    f = tempfile.TemporaryFile(); f.truncate(4096)
    m = mmap.mmap(f.fileno(), 4096); f.truncate(0)
    m[0]
def illegal(): os.kill(os.getpid(), signal.SIGILL)
def term(): os.kill(os.getpid(), signal.SIGTERM); time.sleep(100)
def hangup(): os.kill(os.getpid(), signal.SIGHUP); time.sleep(100)
def warned(): os.kill(os.getpid(), signal.SIGUSR1); time.sleep(100)
def exceeds(): # its limit of CPU time: the kernel sends it
    import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 5))
    while True: pass
"""
CAUSES = {"crash": signal.SIGSEGV, "aborts": signal.SIGABRT, "divides": signal.SIGFPE, "buses": signal.SIGBUS,
          "illegal": signal.SIGILL, "term": signal.SIGTERM, "hangup": signal.SIGHUP, "warned": signal.SIGUSR1, "exceeds": signal.SIGXCPU}


def no_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def died(done):
    return -done.returncode if done.returncode < 0 else done.returncode - 128


def stacks(sql, db):
    """Returns {outermost function of the test program in a thread: all its functions in that thread's stack}, for the only trigger."""
    rows = sql(db, "SELECT tid, func, is_cause FROM trigger_stacks WHERE frame_type = 'Python' ORDER BY tid, depth")
    found = {}
    for tid, func, cause in rows:
        found.setdefault((tid, cause), []).append(func)
    return found


SLOW = pytest.mark.slow


@pytest.mark.parametrize("cause", ["aborts", "buses", "crash", "term", "hangup", "exceeds", pytest.param("warned", marks=SLOW), pytest.param("divides", marks=SLOW),
                                   pytest.param("illegal", marks=SLOW)])
def test_signals_that_kill(cause, record, convert, sql):
    done = record(THREADS + "wait_for_agent()\n%s()\n" % cause, check=None, preexec_fn=no_core)
    assert died(done) == CAUSES[cause], done.stderr
    db = convert(done.trace)
    assert sql(db, "SELECT end_reason FROM trace") == [("killed",)]
    kind = "term" if cause in ("term", "hangup", "warned", "exceeds") else "fatal"
    (found, detail, count), = sql(db, "SELECT kind, detail, stacks FROM triggers")
    assert found == kind and detail.startswith(CAUSES[cause].name) and count == 4
    got = stacks(sql, db)
    mine = [functions for (_, is_cause), functions in got.items() if is_cause]
    assert len(mine) == 1 and cause in mine[0] and mine[0][-1] == "<module>"
    others = [set(f) for (_, is_cause), f in got.items() if not is_cause]
    assert all(any(name in f for f in others) for name in ("sleeper", "spinner", "waiter")), got
    # the stacks of a trigger stand for no ticks: the samples still add up to the time
    assert sql(db, "SELECT max(count) FROM samples WHERE timestamp = (SELECT timestamp FROM samples WHERE count = 0)") == [(0,)]


@pytest.mark.parametrize("cause", ["aborts", "term"])
def test_a_signal_that_kills_on_a_small_stack(cause, record):
    """On an alternate stack as small as the kernel allows, no stacks are recorded. (Once they were, and overwrote what lies below it.)"""
    done = record(SMALL_STACK + THREADS + "wait_for_agent(False)\n%s()\n" % cause, "max(2048, least + 64)", check=None, preexec_fn=no_core)
    assert died(done) == CAUSES[cause], done.stderr


def test_children_that_are_killed(build, record, convert, sql):
    """Only the program was told what killed its children: their own last records say it."""
    script = THREADS + """
import subprocess
wait_for_agent()
told = []
for how in crash, aborts, term, lambda: os.kill(os.getpid(), signal.SIGKILL):
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ready, 1)
        how()
    while subprocess.run([sys.argv[1], "-t", str(child), "config"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        time.sleep(0.05)  # until its recording answers
    os.write(go, b"x")
    told.append((child, os.WTERMSIG(os.waitpid(child, 0)[1])))
print(told)
"""
    done = record(script, build.tool("probing"), preexec_fn=no_core)
    want = dict(eval(done.stdout))
    got = dict(sql(convert(done.trace), "SELECT pid, signal FROM trace WHERE end_reason = 'killed'"))
    assert sorted(want.values()) == sorted([signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM, signal.SIGKILL])
    assert got == {pid: number if number != signal.SIGKILL else None for pid, number in want.items()}


def test_a_thread_that_gets_no_cpu(record, convert, sql):
    """The thread is ready to run, but others run: its stack is read from outside, and is as complete as the others."""
    done = record(THREADS + """
import hashlib, subprocess
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
running = threading.Event()
def starved():
    running.set()
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2 ** 31 - 1)
wait_for_agent()
threading.Thread(target=starved, daemon=True).start()
running.wait()
hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
time.sleep(0.5)
subprocess.Popen(["sh", "-c", "sleep 3; kill %d" % hog.pid])
aborts()
""", check=None, preexec_fn=no_core)
    assert died(done) == signal.SIGABRT, done.stderr
    got = stacks(sql, convert(done.trace, options=["--alone"]))
    assert any("starved" in functions for functions in got.values()) and len(got) == 5, got


def test_where_no_stacks_are_sampled(record, convert, sql):
    """The program uses every signal that the sampler could use: a dying process does not wait for the sampler in vain."""
    def taken():
        no_core()
        for number in [signal.SIGURG] + list(range(signal.SIGRTMIN, signal.SIGRTMAX + 1)):
            signal.signal(number, signal.SIG_IGN)
    done = record(THREADS + "wait_for_agent(samples=False)\ncrash()\n", check=None, preexec_fn=taken)
    assert re.search("^probing-record: process [0-9]+: no signal is free: no stacks are sampled$", done.stderr, re.M)
    db = convert(done.trace)
    assert sql(db, "SELECT kind FROM triggers") == [("fatal",)]
    notes = [text for text, in sql(db, "SELECT text FROM notes WHERE part IN ('sampler', 'triggers')")]
    assert notes == ["no signal is free: no stacks are sampled"]


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("cause", ["crash", pytest.param("aborts", marks=SLOW)])
def test_faulthandler_works_in_either_order(order, cause, record, convert, sql):
    enable = "faulthandler.enable()\n"
    script = THREADS + (enable if order == "before" else "") + "wait_for_agent()\n" + (enable if order == "after" else "") + cause + "()\n"
    done = record(script, check=None, preexec_fn=no_core)
    assert died(done) == CAUSES[cause]
    assert done.stderr.count("Fatal Python error") == 1 and "in %s" % cause in done.stderr
    db = convert(done.trace)
    assert sql(db, "SELECT kind, stacks FROM triggers") == [("fatal", 4)]


@pytest.mark.parametrize("cause", ["crash", "raises"])
def test_faulthandler_that_is_switched_off_again(cause, record, convert, sql):
    """It puts back the action that it found, ours, whose turn its own handler is no more: that one returns, and the fault came for ever."""
    done = record(THREADS + """
wait_for_agent()
import ctypes
action = (ctypes.c_void_p * 32)()
def look():
    ctypes.CDLL(None).sigaction(int(signal.SIGSEGV), None, action)
    return action[0]
ours = look()
faulthandler.enable()
theirs = look()
assert ours and theirs != ours
while look() == theirs:  # until the agent has put its own on top
    time.sleep(0.01)
faulthandler.disable()
signal.alarm(60)
%s
print("survived")
""" % {"crash": "crash()", "raises": "signal.raise_signal(signal.SIGSEGV)"}[cause], check=None, preexec_fn=no_core)
    assert died(done) == signal.SIGSEGV and "survived" not in done.stdout, (done.stdout, done.stderr)
    db = convert(done.trace)
    assert sql(db, "SELECT kind, stacks FROM triggers") == [("fatal", 4)]


@pytest.mark.parametrize("looked", [False, True])  # before and after the agent has checked whose handler replaced its own
def test_handlers_that_hand_nothing_on(looked, record, convert, sql):
    """The handlers of torch in DataLoader workers print a line, set the default action and raise the signal again: the line is printed
    once, and the process dies in the same way. If the handlers had been set for about a second, the stacks are recorded, too."""
    done = record(THREADS + """
wait_for_agent()
import ctypes
libc = ctypes.CDLL(None)
HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
@HANDLER
def foreign(signo):
    os.write(1, b"foreign\\n")
    libc.signal(signo, None)
    libc.kill(os.getpid(), signo)
libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.signal(int(signal.SIGBUS), ctypes.cast(foreign, ctypes.c_void_p))
action = (ctypes.c_void_p * 32)(ctypes.cast(foreign, ctypes.c_void_p).value)
theirs = action[0]
while %s and action[0] == theirs:
    libc.sigaction(int(signal.SIGBUS), None, action)
    time.sleep(0.01)
buses()
""" % looked, check=None, preexec_fn=no_core)
    assert died(done) == signal.SIGBUS and done.stdout == "foreign\n", done.stderr
    db = convert(done.trace)
    if looked:
        assert sql(db, "SELECT kind, stacks FROM triggers") == [("fatal", 4)]


def test_handlers_of_the_program_and_survival(record, convert, sql):
    """Python's own handlers, set before and after ours, are called, and a program that survives goes on."""
    done = record(THREADS + """
seen = []
signal.signal(signal.SIGFPE, lambda *a: seen.append("before"))
wait_for_agent()
os.kill(os.getpid(), signal.SIGFPE)
time.sleep(0.1)
signal.signal(signal.SIGABRT, lambda *a: seen.append("after"))
signal.signal(signal.SIGTERM, lambda *a: seen.append("term"))
os.kill(os.getpid(), signal.SIGABRT)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0.1)
print(seen, signal.getsignal(signal.SIGSEGV) == signal.getsignal(signal.SIGBUS) == signal.SIG_DFL)
""")
    assert done.stdout == "['before', 'after', 'term'] True\n"
    db = convert(done.trace)
    assert sql(db, "SELECT end_reason FROM trace") == [("exit",)]
    # If the program's handler was set before ours (which is set some milliseconds after the start), the signal is recorded and passed on; a
    # handler that is set later replaces ours.
    assert [r[0][:6] for r in sql(db, "SELECT detail FROM triggers")] in (["SIGFPE"], [])


def test_term_under_a_filter_that_refuses_to_send_it_again(build, run, tmp_path):
    """Once recorded, the signal is sent again with what came with it (rt_tgsigqueueinfo, 297); a filter may refuse that call."""
    script = tmp_path / "script.py"
    script.write_text(CATCHES + "wait_for_agent()\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)\n")
    done = run([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", build.root / "tests/programs/filter", "error", "297",
                PYTHONS[0].path, script], check=None)
    assert done.returncode == 128 + signal.SIGTERM


# Our service thread looks which action a signal has and then replaces it: between the two calls the program sets its own.
BETWEEN = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static long (*number)(long, ...);
static int (*act)(int, const struct sigaction *, struct sigaction *);
__attribute__((constructor)) static void find(void) {
    number = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    act = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
}
static void wait_for_the_program(const char *of, long signo, const void *new) {
    static int done;
    const char *wanted = getenv("BETWEEN");
    if (done || !wanted || *wanted != *of || signo != SIGTERM || !new || number(SYS_gettid) == getpid())
        return;
    done = 1;
    close(creat("between", 0600));
    while (access("set", F_OK)) usleep(1000);
}
int sigaction(int signo, const struct sigaction *new, struct sigaction *old) {
    wait_for_the_program("installed", signo, new);
    return act(signo, new, old);
}
long syscall(long n, ...) {
    long a[6];
    va_list ap;
    va_start(ap, n);
    for (int i = 0; i < 6; i++) a[i] = va_arg(ap, long);
    va_end(ap);
    if (n == SYS_rt_sigaction) wait_for_the_program("removed", a[0], (void *)a[1]);
    return number(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}
"""


@pytest.mark.parametrize("ours", ["installed", "removed"])
def test_a_handler_that_is_set_just_as_ours_is(agent, spawn, run, ours):
    cc = shutil.which("gcc") or shutil.which("clang")
    if not cc:
        pytest.skip("no compiler here")
    run([cc, "-shared", "-fPIC", "-w", "-o", agent.tmp / "between.so", agent.script(BETWEEN, "between.c"), "-ldl"])
    env = agent.env(BETWEEN=ours)
    env["LD_PRELOAD"] += ":%s" % (agent.tmp / "between.so")
    process = spawn([PYTHONS[0].path, agent.script(CATCHES + """
import sys
if os.environ["BETWEEN"] == "removed":
    wait_for_agent(False)
    open("caught", "w").close()
while not os.path.exists("between"): time.sleep(0.001)
signal.signal(signal.SIGTERM, lambda *a: sys.exit(7))
open("set", "w").close()
while True: time.sleep(0.01)
""")], env=env, cwd=str(agent.tmp))
    while not agent.lives():
        time.sleep(0.01)
    live, = agent.lives()
    if ours == "removed":
        while not (agent.tmp / "caught").exists():
            time.sleep(0.01)
        assert agent.mail(live, "stop")[0] == 0
    while not (agent.tmp / "set").exists():
        time.sleep(0.01)
    if ours == "installed":
        assert agent.mail(live, "flush")[0] == 0  # the service thread is past it
    process.send_signal(signal.SIGTERM)
    assert process.wait(240) == 7


def test_core_is_that_of_the_fault(record, convert, tmp_path):
    """The core dump is the same as without recording: if cores are plain files here, the fault is in the same function."""
    pattern = open("/proc/sys/kernel/core_pattern").read().strip()
    if pattern.startswith("|"):
        pytest.skip("core dumps go to a program here: %s" % pattern)
    if "/" in pattern:
        pytest.skip("core dumps go elsewhere here: %s" % pattern)
    raised = lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)  # noqa: E731

    def fault(folder):
        """Returns (function, library) of the innermost frames. A stripped library has no names, but the same frames."""
        core, = [p for p in folder.iterdir() if p.name.startswith(pattern.split("%")[0])]
        said = subprocess.run(["gdb", "-batch", "-nx", "-ex", "bt 3", PYTHONS[0].path, str(core)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True, stdin=subprocess.DEVNULL).stdout
        assert "SIGSEGV" in said
        return re.findall(r"(?m)^#\d +(?:0x\w+ in )?(\S+) .*?(?:from (\S+))?$", said)

    with_us, without = tmp_path / "with", tmp_path / "without"
    with_us.mkdir()
    without.mkdir()
    record(THREADS + "wait_for_agent()\ncrash()\n", check=None, preexec_fn=raised, cwd=str(with_us))
    subprocess.run([PYTHONS[0].path, "-c", THREADS + "crash()\n"], preexec_fn=raised, cwd=str(without), stdout=subprocess.DEVNULL)
    assert len(fault(without)) >= 3 and fault(with_us) == fault(without)


HOOKED = SAMPLED + """
import ctypes, sys, threading, time
def word(at): return ctypes.c_void_p.from_address(at).value
def ours(hook):  # the C function behind it (m_ml->ml_meth) lies in our library
    at = word(word(id(hook) + 16) + 8)
    for line in open("/proc/self/maps"):
        begin, end = (int(x, 16) for x in line.split()[0].split("-"))
        if begin <= at < end: return "probing" in line
def wait_for_agent():
    while not all(map(ours, (sys.__excepthook__, threading._excepthook) if hasattr(threading, "_excepthook") else (sys.__excepthook__,))):
        time.sleep(0.01)
    wait_for_samples()
"""
EXCEPTION = HOOKED + """
def bystander(): time.sleep(100)
threading.Thread(target=bystander, daemon=True).start()
wait_for_agent()
def inner(x): raise ValueError("bad\\nvalue %s" % x)
"""


def test_off_and_lists_of_triggers(build, record, convert, sql):
    env = dict(os.environ, PROBING_TRIGGERS="off", PYTHONPATH=str(build.share / "python"))
    done = record(THREADS + "import probing\nwhile not probing.is_recording(): time.sleep(0.01)\ncrash()\n", check=None, env=env, preexec_fn=no_core)
    assert died(done) == signal.SIGSEGV
    db = convert(done.trace)
    assert sql(db, "SELECT count(*) FROM triggers WHERE kind != 'killed'") == [(0,)]
    assert sql(db, "SELECT value FROM config WHERE key = 'probing.triggers'") == [("off",)]
    env["PROBING_TRIGGERS"] = "slow_step:2.5,exception"
    db = convert(record(EXCEPTION + "1 / 0\n", check=1, env=env).trace)
    assert sql(db, "SELECT kind FROM triggers") == [("exception",)]
    refused = record(EXCEPTION, check=125, options=["--set", "triggers=hang:0.5"])
    assert "hang:0.5" in refused.stderr and "1.1 to 1000" in refused.stderr and refused.stdout == ""


STEPS = """
import time
import probing
while not probing.is_recording(): time.sleep(0.01)
longest, last = 0, time.monotonic()
def slow():  # for much longer than any before, however busy the machine is
    begin = time.monotonic()
    time.sleep(max(0.5, 25 * longest))
    print(1000 * (time.monotonic() - begin))
for i in range(40):
    time.sleep(0.02)
    if i == 30: slow()
    probing.step()
    longest, last = max(longest, time.monotonic() - last), time.monotonic()
"""


def test_slow_step(record, convert, sql, build):
    """One of 40 equal steps takes 25 times as long: its stacks are taken while it lasts."""
    env = dict(os.environ, PROBING_TRIGGERS="slow_step:20", PYTHONPATH=str(build.share / "python"))
    done = record(STEPS, check=None, env=env)
    if "No module named" in done.stderr:
        pytest.skip("the probing package is not built")
    assert done.returncode == 0, done.stderr
    db = convert(done.trace)
    rows = sql(db, "SELECT step, detail FROM triggers WHERE kind = 'slow_step' AND step = 30")
    assert len(rows) == 1 and float(re.match(r"took ([\d.]+) ms", rows[0][1]).group(1)) > float(done.stdout) - 1, (rows, done.stdout)
    assert ("slow",) in sql(db, "SELECT func FROM trigger_stacks WHERE kind = 'slow_step'")
    steps = sql(db, "SELECT step, rss FROM memory WHERE step IS NOT NULL ORDER BY step")
    assert [s for s, _ in steps[:20]] == list(range(20)) and all(rss > 1 << 20 for _, rss in steps)
    assert {s for s, _ in steps} <= set(range(40))


FIRST = """
import os, sys, time
def stuck():  # until told, or without anybody who tells it for three times as long as a hang
    print("stuck", time.time(), flush=True)
    if sys.argv[1:]:
        while not os.path.exists(sys.argv[-1]): time.sleep(0.01)
    else:
        time.sleep(3)
class Set:
    def __len__(self): return 100
    def __getitem__(self, i):
        if i == 50: stuck()
        return 1.0
if "torch" in sys.argv:
    import torch.utils.data
""" + IS_RECORDED + """
if "torch" in sys.argv:
    while not is_recorded(): time.sleep(0.01)
    for batch in torch.utils.data.DataLoader(Set(), batch_size=25): pass
else:
    stuck()
"""


@pytest.mark.parametrize("kind", ["rank", "other", "batch"])
def test_a_hang_before_the_first_step(kind, record, record_until, convert, sql):  # noqa: F811
    """A rank that has not come to any collective, and a training that has begun, count as hanging; another program that sleeps does not."""
    env = dict(os.environ)
    if kind == "rank":
        env.update(RANK="0", WORLD_SIZE="2")
    python = find_torch("debian")[0] if kind == "batch" else None
    if kind == "batch" and not python:
        pytest.skip("no torch")
    hangs = "SELECT timestamp, detail, step FROM triggers WHERE kind = 'hang'"
    for seconds in (1, 5, 25, 125):
        env["PROBING_TRIGGERS"] = "hang:%ds" % seconds
        if kind == "other":
            done = record(FIRST, env=env)
        else:
            done = record_until(lambda db: sql(db, hangs), FIRST, *(["torch"] if kind == "batch" else []), env=env, python=python)
        db = convert(done.trace)
        rows, stuck = sql(db, hangs), float(done.stdout.split("stuck ")[1])
        if not rows or rows[0][0] > stuck:
            break  # else it took a slow machine so long to reach its hang that this was reported
    assert len(rows) == (kind != "other"), (rows, stuck)
    if rows:
        took = re.match(r"no step, pass, batch or collective for ([\d.]+) ms$", rows[0][1])
        assert float(took.group(1)) >= 1000 * seconds and rows[0][2] == 0, (rows, stuck)
        inside = [func for func, in sql(db, "SELECT func FROM trigger_stacks WHERE kind = 'hang'")]
        assert "stuck" in inside, (inside, rows, stuck)


STOPPED = """
import os, signal, sys, time
import probing
while not probing.is_recording(): time.sleep(0.01)
probing.step()
probing.step()
before = time.monotonic()
def of_service_thread(parent):
    folder = "/proc/%d/task" % parent
    tid, = [t for t in os.listdir(folder) if open("%s/%s/comm" % (folder, t)).read() == "probing-svc\\n"]
    return [line for line in open("%s/%s/status" % (folder, tid)) if line.startswith(("State:\\tS", "voluntary"))]
if not os.fork():  # a debugger stops its parent for longer than a hang takes
    before_that = []
    while len(before_that) < 2 or of_service_thread(os.getppid()) != before_that:
        before_that = of_service_thread(os.getppid())
        time.sleep(0.003)
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(3.2)
    os.kill(os.getppid(), signal.SIGCONT)
    os._exit(0)
while time.monotonic() < before + 3.2: time.sleep(0.01)
"""
GOES_ON = """
os.wait()
time.sleep(0.6)  # the agent looks for hangs every 0.25 s
probing.step()
print("went on after", time.monotonic() - before)
"""


def test_a_process_that_was_stopped_does_not_hang(record, convert, sql, build):
    """The time in which a debugger (or SIGSTOP) has stopped the whole process does not count, if the service thread slept then: if it worked, that
    cannot be told from a disk that is slow."""
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"), PROBING_TRIGGERS="hang:3s")
    hangs = "SELECT count(*) FROM triggers WHERE kind = 'hang'"
    done = record(STOPPED + GOES_ON, env=env)
    # on a machine so slow that the rest takes as long as a hang, it may be one
    assert sql(convert(done.trace), hangs)[0][0] == 0 or float(done.stdout.split()[-1]) > 6


# Nothing but three stops delays a step, each of them shorter than a hang takes, all of them together longer.
STOPPED_IN_A_STEP = """
import os, signal, time
import probing
def service_thread_sleeps(parent):
    folder = "/proc/%d/task" % parent
    tid, = [t for t in os.listdir(folder) if open("%s/%s/comm" % (folder, t)).read() == "probing-svc\\n"]
    return "State:\\tS" in open("%s/%s/status" % (folder, tid)).read()
while not probing.is_recording(): time.sleep(0.01)
for i in range(20):
    time.sleep(0.02)
    probing.step()
before, child = time.monotonic(), os.fork()
if not child:
    for i in range(3):
        time.sleep(0.05)
        while not service_thread_sleeps(os.getppid()): time.sleep(0.001)
        os.kill(os.getppid(), signal.SIGSTOP)
        time.sleep(0.7)
        os.kill(os.getppid(), signal.SIGCONT)
    os._exit(0)
os.waitpid(child, 0)
probing.step()
print(time.monotonic() - before)
"""


def test_short_stops_are_no_hang(record, convert, sql, build):
    """What a step is judged by is the time in which the process could run."""
    done = record(STOPPED_IN_A_STEP, env=dict(os.environ, PYTHONPATH=str(build.share / "python")))
    found = sql(convert(done.trace), "SELECT kind, step, detail FROM triggers WHERE kind = 'hang'")
    # on a machine so busy that the step itself takes as long as a hang, it may be one
    assert not found or float(done.stdout) > 3.1, found


SHORT_STEPS = """
import time
import probing
while not probing.is_recording(): time.sleep(0.01)
for i in range(60000):
    probing.step()
"""


def test_memory_of_short_steps(record, convert, sql, build):
    """Reading the memory takes longer than such a step: the first steps have it, and later ones now and then, up to the end."""
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    db = convert(record(SHORT_STEPS, env=env).trace)
    steps = sql(db, "SELECT step, rss, timestamp FROM memory WHERE step IS NOT NULL ORDER BY step")
    assert [s for s, _, _ in steps[:3]] == [0, 1, 2]
    assert len(steps) == len({s for s, _, _ in steps}) and len(steps) < 20000
    assert all(rss > 1 << 20 for _, rss, _ in steps)
