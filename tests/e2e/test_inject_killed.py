# SPDX-License-Identifier: Apache-2.0
"""Injectors that are killed or interrupted: the target goes on, and what they leave does no harm and is removed."""
import os
import signal
import subprocess
import time

import pytest
from gdb_tools import gdb_command, needs_gdb
from inject_helpers import HEAD, SPIN, finish, probing, status, target, wait_until

FIXTURES = (probing, target)  # tests ask for them by name


def test_an_injector_that_is_killed_in_the_call(build, run, spawn):
    """The thread returns by itself, with all its registers restored."""
    for usec in (0, 50, 1000, 50000):
        process = spawn([build.root / "tests" / "programs" / "steady"], ready="ready")
        run([build.root / "tests" / "programs" / "die_in_call", process.pid, usec])
        process.terminate()
        assert finish(process)[:2] == (0, "steady")


READS = HEAD + """
sys.stdin.readline()
end = time.monotonic() + 0.2
while go(): sum(range(1000))
print("right", flush=True)
sys.stdin.readline()
"""


def staged():
    return [f for f in os.listdir(os.environ["PROBING_RUN_DIR"]) if f.startswith("inject-")]


def killed_while_it_waits(build, pid, method):
    """The interpreter was told to load the stub, and does so later."""
    tool = subprocess.Popen([str(build.tool("probing")), "-t", str(pid), "inject", "--method", method],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def told():
        if tool.poll() is not None:
            return True
        if status(pid, "TracerPid") != "0":  # the tool is writing there: only half of what the interpreter needs may be there
            return False
        text = b"/inject-%d-" % pid
        with open("/proc/%d/maps" % pid) as f:
            areas = [line.split()[0].split("-") for line in f if " rw-p " in line]
        with open("/proc/%d/mem" % pid, "rb") as mem:
            for start, end in areas:
                mem.seek(int(start, 16))
                if text in mem.read(int(end, 16) - int(start, 16)):
                    return True
        return False

    # The tool is stopped while the test searches the target's memory, so that it does not give up meanwhile, as it would after half a second.
    looked = False
    while not looked:
        tool.send_signal(signal.SIGSTOP)
        wait_until(lambda: tool.poll() is not None or status(tool.pid, "State")[0] == "T")
        looked = told()
        if not looked:
            tool.send_signal(signal.SIGCONT)
            time.sleep(0.002)
    tool.kill()
    tool.wait(timeout=240)


def left_by_a_killed_injector(build, run, probing, target, python, method):
    for swept in (False, True):
        process = target(python, READS, stdin=subprocess.PIPE)
        wait_until(lambda: status(process.pid, "State")[0] == "S")
        for _ in range(20):
            killed_while_it_waits(build, process.pid, method)
            if staged():
                break
        assert len(staged()) == 1
        if swept and method == "pending":  # a tool that looks at the process removes the file
            wait_until(lambda: run([build.tool("probing"), "list"], check=1) and not staged())
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert b"right" in process.stdout.readline()
        wait_until(lambda: not staged())  # the stub was loaded, and removed it
        with open("/proc/%d/maps" % process.pid) as f:
            maps = f.read()
        assert "libprobing-agent" not in maps and ("libprobing-inject" in maps) == (not swept or method == "pep768")
        assert "is being recorded" in probing(process.pid, "inject").stdout
        out, err = process.communicate(b"\n", timeout=240)
        assert (process.returncode, err) == (0, b"")


@pytest.mark.pythons(min=(3, 8), max=(3, 13), count=1)
def test_a_pending_call_whose_injector_was_killed(build, run, probing, target, python):
    left_by_a_killed_injector(build, run, probing, target, python, "pending")


@pytest.mark.slow
@pytest.mark.pythons(min=(3, 8), max=(3, 13))
def test_a_pending_call_whose_injector_was_killed_in_every_version(build, run, probing, target, python):
    left_by_a_killed_injector(build, run, probing, target, python, "pending")


@pytest.mark.pythons(min=(3, 14))
def test_a_remote_script_whose_injector_was_killed(build, run, probing, target, python):
    left_by_a_killed_injector(build, run, probing, target, python, "pep768")


@needs_gdb
@pytest.mark.pythons(count=1)
@pytest.mark.parametrize("by", ["probing", pytest.param("gdb", marks=pytest.mark.slow)])
def test_an_injector_that_is_ended_at_any_moment(build, python, target, by):
    """SIGINT, SIGTERM or SIGKILL at any moment: the target goes on, and can be recorded afterwards."""
    process = target(python, SPIN)
    for i in range(15):
        cmd = (gdb_command(build, process.pid, "probing inject") if by == "gdb"
               else [build.tool("probing"), "-t", process.pid, "inject"])
        tool = subprocess.Popen([str(c) for c in cmd], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
        time.sleep(i * (0.03 if by == "gdb" else 0.002))
        tool.send_signal([signal.SIGINT, signal.SIGTERM, signal.SIGKILL][i % 3])
        try:
            tool.wait(timeout=240)
        except subprocess.TimeoutExpired:
            tool.kill()
            tool.wait(timeout=240)
        assert process.poll() is None
        wait_until(lambda: status(process.pid, "State")[0] in "RSD")
        subprocess.run([build.tool("probing"), "-t", str(process.pid), "stop"], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=240)
    assert finish(process) == (0, "right", "")
    listed = [str(build.tool("probing")), "list"]
    wait_until(lambda: subprocess.run(listed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=240) and not staged())
