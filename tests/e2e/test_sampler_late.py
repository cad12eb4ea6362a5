# SPDX-License-Identifier: Apache-2.0
"""A thread of the agent gets no CPU when it needs one (on a busy machine, or while large libraries are read for seconds). It may be the sampler
while the recording ends, whose memory must still exist when it goes on; or another thread that is just starting, whose id is not known yet."""
import ctypes
import json
import os
import resource
import signal
import subprocess

import pytest

import format_reader
from conftest import thread_names, wait_for_line
from inject_helpers import until_sampled, wait_until

SEIZE, INTERRUPT, DETACH, EVENT_MESSAGE, CONT, WALL = 0x4206, 0x4207, 17, 0x4201, 7, 0x40000000
TRACE_CLONE = 8
PROGRAM = """
import time
print("up", flush=True)
while True:
    sum(range(1000))
    time.sleep(0.0001)
"""


def thread_of(pid, name):
    found = []

    def is_there():
        found[:] = [tid for tid, its_name in thread_names(pid).items() if its_name == name]
        return found
    wait_until(is_there)
    return found[0]


def ptrace(request, tid, data=None):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(request, tid, None, data) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")


@pytest.mark.pythons(min=(3, 11), count=1)
def test_the_recording_ends_without_it(build, python, spawn, tmp_path):
    env = dict(os.environ, PROBING_RUN_DIR=str(tmp_path))
    target = spawn([python.path, "-c", PROGRAM], ready="up", env=env)

    def probing(*args):
        return subprocess.run([str(build.root / "bin" / "probing"), "-t", str(target.pid), *args], env=env, timeout=240,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    for i in range(2):  # the next recording is as good as the first
        done = probing("inject", "-r", "1000", "-o", str(tmp_path / ("t%d" % i)))
        assert done.returncode == 0, done.stdout
        until_sampled(target.pid, 100)  # past its beginning, where it may hold the C library's locks
        tid = thread_of(target.pid, "probing-smp")
        ptrace(SEIZE, tid)
        try:
            ptrace(INTERRUPT, tid)
            os.waitpid(tid, WALL)
            done = probing("stop")
            assert done.returncode == 0, done.stdout
            wait_until(lambda: ".live" not in open("/proc/%d/maps" % target.pid).read())
        finally:
            ptrace(DETACH, tid)
        wait_until(lambda: not os.path.exists("/proc/%d/task/%d" % (target.pid, tid)))
        assert target.poll() is None, signal.Signals(-target.returncode)


SPINNING = """
import os, sys, threading
def spin():
    while True:
        sum(range(1000))
for i in range(3):
    threading.Thread(target=spin, daemon=True).start()
print("up", os.getpid(), flush=True)
sys.stdin.read()
os._exit(0)
"""


@pytest.mark.pythons(min=(3, 11), count=1)
def test_another_begins_late(build, python, spawn, tmp_path):
    """The agent's late thread is not mistaken for one of the program's, and none of the program's threads is reported as ended."""
    (tmp_path / "spinning.py").write_text(SPINNING)
    trace = tmp_path / "trace.zst"
    recorder = spawn([build.tool("probing-record"), "-q", "-r", "1000", "-o", trace, python.path, tmp_path / "spinning.py"],
                     stdin=subprocess.PIPE)
    pid = int(wait_for_line(recorder, "up").split()[1])

    def samples():
        listed = subprocess.run([build.tool("probing"), "list", "--json"], stdout=subprocess.PIPE, check=True, timeout=240).stdout
        return next(p["samples"] for p in json.loads(listed) if p["pid"] == pid)

    wait_until(lambda: samples() > 1000)  # all four threads are known
    starter, tid = thread_of(pid, "probing-start"), ctypes.c_ulong()
    ptrace(SEIZE, starter, TRACE_CLONE)
    try:
        question = spawn([build.tool("probing"), "-t", pid, "eval", "--timeout", "200", "6 * 7"])
        os.waitpid(starter, WALL)  # it has made a thread, which stops before its first instruction
        ptrace(EVENT_MESSAGE, starter, ctypes.addressof(tid))
        os.waitpid(tid.value, WALL)
        ptrace(CONT, starter)
        before = samples()
        wait_until(lambda: samples() > before + 2000)  # threads are listed every 100 ticks, and each tick gives at most four samples
    finally:
        ptrace(INTERRUPT, starter)
        os.waitpid(starter, WALL)
        ptrace(DETACH, starter)
        ptrace(DETACH, tid.value)
    assert question.communicate(timeout=240)[0].strip() == b"42"
    recorder.communicate(timeout=240)
    threads = [line for line in format_reader.dump(trace.read_bytes()) if line.startswith("  thread ")]
    assert len(threads) >= 4 and not any(" state=0" in line for line in threads), threads


DYING = """
import ctypes, os, signal, subprocess, sys, threading, time
kill, tid = ctypes.CDLL(None)["raise"], 0
def dies():
    global tid
    tid = threading.get_native_id()
    kill(signal.SIGSEGV)
def waits():  # at a futex of ours, which unlike glibc's is not private to the process
    return tid and open("/proc/self/task/%d/syscall" % tid).read().split()[0:3:2] == ["202", "0x9"]
print("up", flush=True)
sys.stdin.readline()
threading.Thread(target=dies, daemon=True).start()
while not waits(): time.sleep(0.001)
child = os.fork()
if child:
    print("child", child, flush=True)
    time.sleep(1000)
while subprocess.run([sys.argv[1], "-t", str(os.getpid()), "config"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
    time.sleep(0.05)  # until its recording answers
os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.mark.pythons(min=(3, 8), count=1)
def test_a_child_of_a_process_that_records_its_death(build, python, spawn, tmp_path, convert, sql):
    """A process forks while one of its threads records a fatal signal, for which it waits up to two seconds. The child's own fatal signal is
    recorded, too."""
    trace, script = tmp_path / "t.zst", tmp_path / "dying.py"
    script.write_text(DYING)
    target = spawn([build.tool("probing-record"), "-q", "-o", trace, python.path, script, build.tool("probing")], ready="up",
                   stdin=subprocess.PIPE, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
    pid = next(int(line) for line in open("/proc/%d/task/%d/children" % (target.pid, target.pid)).read().split())
    fatal = 1 << (signal.SIGSEGV - 1)
    wait_until(lambda: int(next(v for v in open("/proc/%d/status" % pid) if v.startswith("SigCgt")).split()[1], 16) & fatal)
    until_sampled(pid, 10)
    tid = thread_of(pid, "probing-svc")
    ptrace(SEIZE, tid)
    try:
        ptrace(INTERRUPT, tid)
        os.waitpid(tid, WALL)
        target.stdin.write(b"\n")
        target.stdin.flush()
        child = int(wait_for_line(target, "child").split()[1])
    finally:
        ptrace(DETACH, tid)
    target.wait()
    wait_until(lambda: not os.path.exists("/proc/%d" % child))
    db = convert(trace)
    assert sql(db, "SELECT kind FROM triggers JOIN trace t ON t.id = trace_id WHERE t.pid = ?", child) == [("fatal",)]
