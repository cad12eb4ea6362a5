# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of live queries: a recording that goes on, and the cache of the tools that query it."""
import json
import os
import signal
import subprocess
import sys

import pytest
from test_console import wait_until

PROGRAM = """
import time
def beat(n):
    sum(range(300000)); time.sleep(0.01)
def work():
    print("ready", flush=True)
    while True:
        beat(1)
work()
"""


@pytest.fixture
def target(build, run, spawn, tmp_path):
    (tmp_path / "beat.py").write_text(PROGRAM)
    recorder = spawn([build.tool("probing-record"), "-r", "100", "-o", tmp_path / "t.zst", sys.executable, tmp_path / "beat.py"], ready="ready")
    wait_until(lambda: any(p["samples"] > 50 for p in json.loads(run([build.tool("probing"), "list", "--json"], check=None).stdout)))
    children = subprocess.run(["pgrep", "-P", str(recorder.pid)], stdout=subprocess.PIPE, universal_newlines=True)
    return int(children.stdout.split()[0])


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("PROBING_CACHE_DIR", str(folder))
    return folder


def kept(cache):
    """Returns the only database in the cache, made to look as if the last question had been long ago."""
    database, = cache.glob("*.db")
    os.utime(str(database), (1, 1))
    return database


def states(pid):
    """Returns the set of the states that the process's threads are in."""
    return {open("/proc/%d/task/%s/stat" % (pid, tid)).read().rpartition(") ")[2][0] for tid in os.listdir("/proc/%d/task" % pid)}


def stop(pid):
    """Stops the process, so that it records nothing more, not even by a thread that was in a system call."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: states(pid) == {"T"})
