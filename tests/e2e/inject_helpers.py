# SPDX-License-Identifier: Apache-2.0
"""Helpers of the injection tests: small targets, the tool, and what a test asks of a target. Tests import the fixtures by name."""
import json
import os
import re
import subprocess
import time

import pytest

# go() is true until finish() is called, and for a second more, so that what was begun until then is recorded.
HEAD = """
import os, sys, threading, time
end = None
print("up", flush=True)
def go():
    global end
    if end is None and os.path.exists(os.environ.get("TEST_END", "/")):
        end = time.monotonic() + 1
    return end is None or time.monotonic() < end
"""
SPIN = HEAD + """
while go():
    assert sum(range(1000)) == 499500
print("right")
"""

# A library whose run() waits on a stack of 2 KiB, as a goroutine does, until wake() is called. Returns how many bytes below it were changed.
COROUTINE = r"""
#include <string.h>
#include <ucontext.h>
#include <unistd.h>
static char area[1 << 20]; /* of which the coroutine's stack is a part; what lies below it is the program's */
static ucontext_t own, other;
static int ends[2];
int inside;
static void waits(void) { char c; inside = 1; read(ends[0], &c, 1); }
void wake(void) { write(ends[1], "", 1); }
int run(void) {
    int harmed = 0;
    memset(area, 7, sizeof area);
    pipe(ends);
    getcontext(&other);
    other.uc_stack.ss_sp = area + sizeof area / 2;
    other.uc_stack.ss_size = 2 << 10;
    other.uc_link = &own;
    makecontext(&other, waits, 0);
    swapcontext(&own, &other);
    for (size_t i = 0; i < sizeof area / 2; i++)
        harmed += area[i] != 7;
    return harmed;
}
"""


@pytest.fixture
def target(spawn, tmp_path):
    count = [0]

    def start(python, source, seconds=600, ready="up", **kw):
        count[0] += 1
        script, end = tmp_path / "target.py", tmp_path / ("end%d" % count[0])
        script.write_text(source)
        kw.setdefault("cwd", str(tmp_path))
        kw["env"] = dict(kw.get("env") or os.environ, TEST_END=str(end))
        process = spawn([getattr(python, "path", python), script, seconds], ready=ready, stderr=subprocess.PIPE, **kw)
        process.test_end = end
        return process

    return start


def patient(args):
    """Returns the command's arguments; an evaluation without a time limit of its own gets one that suits a busy machine, in place of ten
    seconds."""
    args = list(args)
    return ["eval", "--timeout", "200"] + args[1:] if args[:1] == ["eval"] and "--timeout" not in args else args


@pytest.fixture
def probing(build, run):
    """probing(pid, command, ...): runs the tool, with patience."""
    def call(pid, *args, **kw):
        return run([build.tool("probing"), "-t", pid] + patient(args), **kw)

    return call


def by_pending_call(probing, pid, *args):
    """Injects by a pending call, and returns what the injector said. While the target has other pending calls, or its main thread gets no
    processor for half a second, nothing is done, so this tries again."""
    while True:
        done = probing(pid, "inject", "--method", "pending", *args, check=None)
        if "nothing was done to process %d, try again" % pid not in done.stderr:
            assert done.returncode == 0 and "loaded by a pending call" in done.stdout, (done.stdout, done.stderr)
            return done.stdout
        time.sleep(0.1)


@pytest.fixture
def program(run, tmp_path):
    """program(name, source, option, ...): compiles a C program (or, with the option -shared, a library) and returns its path."""

    def make(name, source, *options, cc="cc"):
        path = tmp_path / (name + ".c")
        path.write_text(source)
        run([cc, "-w", "-o", tmp_path / name, path] + list(options))
        return tmp_path / name

    return make


def finish(process):
    """Lets the target end. Returns its exit code, its output and its error output."""
    if hasattr(process, "test_end"):
        process.test_end.touch()
    out, err = process.communicate(timeout=240)
    return process.returncode, out.decode().strip(), (err or b"").decode()


def refused(done, text):
    assert done.returncode in (1, 3), done.stdout
    assert text in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert [f for f in os.listdir(os.environ["PROBING_RUN_DIR"]) if f.startswith("inject-")] == []


def wait_until(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited for %d s" % seconds
        time.sleep(0.02)


def until_sampled(pid, many=1):
    """Waits until at least `many` samples of the process have been recorded; how long that takes depends on the machine."""
    wait_until(lambda: json.loads(subprocess.check_output(["probing", "-t", str(pid), "status", "--json"], timeout=240))["samples"] >= many)


def status(pid, field):
    with open("/proc/%d/status" % pid) as f:
        return re.search(field + r":\s*(.*)", f.read())[1]
