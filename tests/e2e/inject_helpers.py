# SPDX-License-Identifier: Apache-2.0
"""What the injection tests share: small targets, the tool, and what is asked of a target. Tests import the fixtures by name."""
import os
import re
import subprocess
import time

import pytest

HEAD = """
import os, sys, threading, time
end = time.monotonic() + float(sys.argv[1])
print("up", flush=True)
def go(): return time.monotonic() < end
"""
SPIN = HEAD + """
while go():
    assert sum(range(1000)) == 499500
print("right")
"""


@pytest.fixture
def target(spawn, tmp_path):
    def start(python, source, seconds=60, ready="up", **kw):
        script = tmp_path / "target.py"
        script.write_text(source)
        kw.setdefault("cwd", str(tmp_path))
        return spawn([python.path, script, seconds], ready=ready, stderr=subprocess.PIPE, **kw)

    return start


@pytest.fixture
def probing(build, run):
    def call(pid, *args, check=True, **kw):
        return run([build.tool("probing"), "-t", pid] + list(args), check=check, **kw)

    return call


@pytest.fixture
def program(run, tmp_path):
    """A C program (or, with shared=True, a library) from its source."""

    def make(name, source, *options, cc="cc"):
        path = tmp_path / (name + ".c")
        path.write_text(source)
        run([cc, "-w", "-o", tmp_path / name, path] + list(options))
        return tmp_path / name

    return make


def finish(process):
    out, err = process.communicate(timeout=90)
    return process.returncode, out.decode().strip(), (err or b"").decode()


def refused(done, text):
    assert done.returncode in (1, 3), done.stdout
    assert text in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert [f for f in os.listdir(os.environ["PROBING_RUN_DIR"]) if f.startswith("inject-")] == []


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited for %d s" % seconds
        time.sleep(0.02)


def status(pid, field):
    with open("/proc/%d/status" % pid) as f:
        return re.search(field + r":\s*(.*)", f.read())[1]
