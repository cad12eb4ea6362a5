# SPDX-License-Identifier: Apache-2.0
"""The sampler's thread has no CPU while the recording ends (a busy machine, seconds of reading large libraries): what it
uses is still there when it goes on."""
import ctypes
import os
import signal
import subprocess
import time

import pytest

SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000
PROGRAM = """
import time
print("up", flush=True)
while True:
    sum(range(1000))
    time.sleep(0.0001)
"""


def until(true):
    for _ in range(3000):
        if true():
            return
        time.sleep(0.01)
    pytest.fail("waited for 30 s")


def sampler_of(pid):
    for _ in range(3000):
        for tid in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/comm" % (pid, tid)) as f:
                if f.read() == "probing-smp\n":
                    return int(tid)
        time.sleep(0.01)
    raise AssertionError("no sampler in process %d" % pid)


def ptrace(request, tid):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(request, tid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")


@pytest.mark.pythons(min=(3, 11), count=1)
def test_the_recording_ends_without_it(build, python, spawn, tmp_path):
    env = dict(os.environ, PROBING_RUN_DIR=str(tmp_path))
    target = spawn([python.path, "-c", PROGRAM], ready="up", env=env)

    def probing(*args):
        return subprocess.run([str(build.root / "bin" / "probing"), "-t", str(target.pid), *args], env=env, timeout=60,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    for i in range(2):  # and the next recording is as good as the first
        done = probing("inject", "-r", "1000", "-o", str(tmp_path / ("t%d" % i)))
        assert done.returncode == 0, done.stdout
        tid = sampler_of(target.pid)
        time.sleep(0.3)  # past its beginning, where it may hold the C library's locks
        ptrace(SEIZE, tid)
        try:
            ptrace(INTERRUPT, tid)
            os.waitpid(tid, WALL)
            done = probing("stop")
            assert done.returncode == 0, done.stdout
            until(lambda: ".live" not in open("/proc/%d/maps" % target.pid).read())
        finally:
            ptrace(DETACH, tid)
        until(lambda: not os.path.exists("/proc/%d/task/%d" % (target.pid, tid)))
        assert target.poll() is None, signal.Signals(-target.returncode)
