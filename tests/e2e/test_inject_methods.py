# SPDX-License-Identifier: Apache-2.0
"""probing inject: the ways into a process (a call in a stopped thread, a pending call, remote debugging, none at all), and what each
leaves."""
import os
import re
import signal

import conftest
import pytest
from gdb_tools import gdb_command, needs_gdb
from inject_helpers import HEAD, SPIN, by_pending_call, finish, probing, refused, target, until_sampled

FIXTURES = (probing, target)  # tests ask for them by name


def check_pending(probing, python, target, convert, sql):
    process = target(python, SPIN)
    trace = by_pending_call(probing, process.pid, "-r", "100").split(" into ")[1].split(" (agent")[0]
    until_sampled(process.pid)
    assert finish(process) == (0, "right", "")
    assert sql(convert(trace), "SELECT count(*) FROM samples")[0][0] > 0


@pytest.mark.pythons(min=(3, 7), max=(3, 13), count=1)
def test_a_pending_call(probing, python, target, convert, sql):
    check_pending(probing, python, target, convert, sql)


@pytest.mark.slow
@pytest.mark.pythons(min=(3, 7), max=(3, 13))
def test_a_pending_call_in_every_version(probing, python, target, convert, sql):
    check_pending(probing, python, target, convert, sql)


# The hook is set before the target says that it is up, and after the imports, which it would see.
SLOW = """
import os, sys, threading, time
taken = []
def looks(event, args):
    if event == "exec" and not taken:
        taken.append(1)
        time.sleep(2)
sys.addaudithook(looks)
""" + HEAD + """
while go(): sum(range(1000))
print("right" if taken else "never asked")
"""


@pytest.mark.pythons(min=(3, 8), max=(3, 13), count=1)
def test_a_pending_call_that_takes_its_time(probing, python, target):
    """Once the interpreter has taken it, it will load the agent, and no tool may say meanwhile that it did not. Here an audit hook is slow;
    elsewhere the machine is busy."""
    process = target(python, SLOW)
    by_pending_call(probing, process.pid)
    assert finish(process) == (0, "right", "")


NAMES = HEAD + """
names, modules = set(dir()), set(sys.modules)
import time as t
while go(): sum(range(1000))
print(sorted(set(dir()) - names - {"names", "modules", "t"}), sorted(set(sys.modules) - modules))
"""


@pytest.mark.pythons(min=(3, 8), max=(3, 13), count=1)
def test_a_pending_call_leaves_no_name_behind(probing, python, target):
    process = target(python, NAMES)
    by_pending_call(probing, process.pid)
    assert finish(process) == (0, "[] []", "")


FORKED_BY_C = """
import ctypes, os, sys, time
pid = ctypes.PyDLL(None).fork()
if pid:
    os.waitpid(pid, 0)
else:
    print("up", os.getpid(), flush=True)
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        sum(range(1000))
"""


@pytest.mark.pythons(min=(3, 8))
def test_a_fork_that_python_was_not_told_of(probing, spawn, python, tmp_path, convert, sql):
    """A worker of uWSGI: CPython from 3.11 on believes that its thread has the parent's id."""
    script = tmp_path / "forked.py"
    script.write_text(FORKED_BY_C)
    process = spawn([python.path, script, 600])
    pid = int(conftest.wait_for_line(process, "up").split()[1])
    probing(pid, "inject", "-r", "100", "-o", tmp_path / "t.zst")
    until_sampled(pid)
    probing(pid, "stop")
    db = convert(tmp_path / "t.zst")
    assert sql(db, "SELECT DISTINCT tid FROM samples") == [(pid,)]
    assert sql(db, "SELECT count(*) FROM backtrace WHERE func LIKE '%module>' AND file LIKE '%forked.py'")[0][0] > 0


BLOCKED = HEAD + """
import signal
class Told(BaseException): pass
def tell(*_): raise Told
signal.signal(signal.SIGUSR1, tell)
lock = threading.Lock(); lock.acquire()
try:
    lock.acquire(timeout=float(sys.argv[1]))
    print("early")
except Told:
    print("right")
"""


@pytest.mark.pythons(min=(3, 8), max=(3, 13), count=1)
def test_a_pending_call_that_is_not_taken_is_taken_back(probing, python, target):
    """The memory that it was written into is restored; the blocked thread goes on waiting."""
    process = target(python, BLOCKED)
    conftest.wait_until_asleep(process.pid)

    def writable():
        with open("/proc/%d/maps" % process.pid) as f:
            areas = [re.match(r"([0-9a-f]+)-([0-9a-f]+) rw.p \S+ \S+ [1-9]\d* +(/\S+)", line) for line in f]
        with open("/proc/%d/mem" % process.pid, "rb") as mem:
            found = {}
            for m in filter(None, areas):
                mem.seek(int(m[1], 16))
                found[m[3]] = mem.read(int(m[2], 16) - int(m[1], 16))
        return found

    before = writable()
    done = probing(process.pid, "inject", "--method", "pending", check=3)
    assert "the main thread has not run Python for half a second" in done.stderr
    assert {k: v == before[k] for k, v in writable().items()} == dict.fromkeys(before, True)
    assert "loaded by dlopen" in probing(process.pid, "inject").stdout
    process.send_signal(signal.SIGUSR1)
    assert finish(process) == (0, "right", "")


@pytest.mark.pythons(min=(3, 14), count=1)
def test_remote_debugging(probing, python, target, convert, sql):
    process = target(python, SPIN)
    done = probing(process.pid, "inject", "-r", "100", "--method", "pep768")
    assert "loaded by the interpreter's remote debugging" in done.stdout
    assert finish(process) == (0, "right", "")
    off = target(python, SPIN, env=dict(os.environ, PYTHON_DISABLE_REMOTE_DEBUG="1"))
    assert "remote debugging is disabled" in probing(off.pid, "inject", "--method", "pep768", check=3).stderr
    assert "loaded by dlopen" in probing(off.pid, "inject").stdout
    assert finish(off) == (0, "right", "")


@needs_gdb
@pytest.mark.pythons(count=1)
def test_a_dry_run_touches_nothing(build, run, probing, python, target):
    process = target(python, SPIN)
    for done in (probing(process.pid, "inject", "--dry-run"),
                 run(gdb_command(build, process.pid, "probing inject --dry-run"))):
        assert "nothing was done" in done.stdout
        assert re.search(r"^  native +would be tried$", done.stdout, re.M)
        assert re.search(r"^  breakpoint +never: ", done.stdout, re.M)
    assert os.listdir(os.environ["PROBING_RUN_DIR"]) == []
    with open("/proc/%d/maps" % process.pid) as f:
        assert "probing" not in f.read()
    refused(probing(process.pid, "inject", "--method", "breakpoint", check=None), "no breakpoint is ever set")
    refused(probing(process.pid, "inject", "--method", "pep768", check=None),
            "for Python 3.14 and later only" if python.version < (3, 14) else "")
