# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's threads record while the thread that writes the trace gets no processor."""
import contextlib
import ctypes
import glob
import os
import subprocess

import pytest
from conftest import wait_for_line

# The smallest modules that there are fill a ring fastest.
BURST = """
import sys, torch
m = torch.nn.Sequential(*[torch.nn.Identity() for _ in range(1000)])
x = torch.zeros(1)
m(x)
print("up", flush=True)
sys.stdin.readline()
for _ in range(%d):
    m(x)
print("done", flush=True)
sys.stdin.readline()
"""
# A server with a thread for each request.
REQUESTS = """
import sys, threading, torch
m, x = torch.nn.Identity(), torch.zeros(1)
m(x)
print("up", flush=True)
sys.stdin.readline()
for _ in range(%d):
    t = threading.Thread(target=m, args=(x,))
    t.start()
    t.join()
print("done", flush=True)
sys.stdin.readline()
"""
SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000


@contextlib.contextmanager
def held(tid):
    """Keeps one thread stopped."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(SEIZE, tid, None, None):
        pytest.skip("ptrace: " + os.strerror(ctypes.get_errno()))
    assert libc.ptrace(INTERRUPT, tid, None, None) == 0
    os.waitpid(tid, WALL)
    try:
        yield
    finally:  # otherwise the process could not even be killed
        assert libc.ptrace(DETACH, tid, None, None) == 0


def service_of(leader):
    """Returns the thread that writes the recording of this process or of its child."""
    for comm in glob.glob("/proc/[0-9]*/task/*/comm"):
        pid, tid = int(comm.split("/")[2]), int(comm.split("/")[4])
        with contextlib.suppress(OSError), open(comm) as f:
            if f.read() == "probing-svc\n" and os.getpgid(pid) == leader:
                return tid
    pytest.fail("no thread probing-svc")


def burst(build, spawn, python, tmp_path, passes, *options, source=BURST):
    """Lets the program run so many passes of 1,001 module calls each (or requests), while its records are not written."""
    script, trace = tmp_path / "burst.py", tmp_path / "burst.zst"
    script.write_text(source % passes)
    process = spawn([build.tool("probing-record"), "-o", trace, *options, "--", python.path, script],
                    stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    wait_for_line(process, "up")
    with held(service_of(process.pid)):
        process.stdin.write(b"go\n")
        process.stdin.flush()
        wait_for_line(process, "done")
    process.stdin.write(b"go\n")
    process.stdin.flush()
    assert process.wait(timeout=240) == 0
    return trace


def calls_and_losses(sql, db):
    lost = dict(sql(db, "SELECT reason, sum(count) FROM loss GROUP BY reason"))
    return sql(db, "SELECT count(*) FROM torch_call")[0][0], lost.get("ring_full", 0)


@pytest.mark.pythons(torch=True, count=1)
def test_a_burst_while_nobody_writes(build, spawn, python, tmp_path, convert, sql):
    if tuple(map(int, os.uname().release.split(".")[:2])) < (5, 14):
        pytest.skip("the large rings need Linux 5.14")
    trace = burst(build, spawn, python, tmp_path, 60)
    assert calls_and_losses(sql, convert(trace)) == (61 * 1001, 0)


@pytest.mark.pythons(torch=True, count=1)
def test_a_thread_for_each_request(build, spawn, python, tmp_path, convert, sql):
    """A thread gets the ring of one that has ended, though it is not empty yet: there are 64 rings."""
    db = convert(burst(build, spawn, python, tmp_path, 400, "-r", "10Hz", source=REQUESTS))
    assert sql(db, "SELECT count(*), count(DISTINCT tid) > 1 FROM torch_trace") == [(401, 1)]
    assert sql(db, "SELECT reason, count FROM loss WHERE reason = 'no_ring'") == []
