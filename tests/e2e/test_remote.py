# SPDX-License-Identifier: Apache-2.0
"""probing-backtrace through gdbserver on this machine."""
import json
import shutil

import pytest
from backtrace_scene import check_scene, start_scene
from conftest import wait_for_line
from gdb_tools import GDB, needs_gdb

GDBSERVER = shutil.which("gdbserver")
pytestmark = [needs_gdb, pytest.mark.skipif(GDBSERVER is None, reason="no gdbserver")]


@pytest.fixture
def gdbserver(spawn):
    """gdbserver(option, ..., then=[...]): returns the process, and the address at which it listens."""
    def start(*options, then=()):
        server = spawn([GDBSERVER] + list(options) + ["127.0.0.1:0"] + list(then), stderr=-2)
        return server, "127.0.0.1:" + wait_for_line(server, "Listening on").split()[-1]
    return start


def ask(build, run, *commands):
    cmd = [GDB, "-nx", "-q", "-batch", "-iex", "set sysroot /", "-ix", build.share / "gdb" / "probing.py"]
    for command in commands:
        cmd += ["-ex", command]
    done = run(cmd)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stdout + done.stderr
    return json.loads(lines[0])


def alive(process):
    with open("/proc/%d/stat" % process.pid) as f:
        return f.read().rsplit(")", 1)[1].split()[0] not in "tTZX"


@pytest.mark.pythons(min=(3, 10), max=(3, 13), count=2)
def test_attached_by_gdbserver(build, run, spawn, gdbserver, tmp_path, python):
    process, truth = start_scene(tmp_path, spawn, python)
    server, where = gdbserver("--once", then=["--attach", process.pid])
    said = ask(build, run, "target remote " + where, "probing-backtrace --json", "detach")
    assert (said["source"], said["pid"]) == ("gdb", process.pid)
    check_scene(said, truth, python)
    server.wait(timeout=240)
    assert process.poll() is None and alive(process)


@pytest.mark.pythons(min=(3, 13), max=(3, 13), count=1)
def test_extended_remote(build, run, spawn, gdbserver, tmp_path, python):
    process, truth = start_scene(tmp_path, spawn, python)
    _, where = gdbserver("--multi")
    said = ask(build, run, "target extended-remote " + where, "attach %d" % process.pid,
               "probing-backtrace --json", "detach", "monitor exit")
    check_scene(said, truth, python)
    assert process.poll() is None and alive(process)


@pytest.mark.pythons(count=1)
def test_started_by_gdbserver_stopped_at_a_breakpoint(build, run, gdbserver, python):
    """Also: the selection in GDB does not change, and neither does anything in the target."""
    code = "import os\ndef outer():\n    inner()\ndef inner():\n    os.getpid()\nouter()\n"
    _, where = gdbserver("--once", then=[python.path, "-S", "-c", code])
    said = ask(build, run, "target remote " + where, "break getpid", "continue", "up", "probing-backtrace --json",
               "frame", "kill")
    frames = said["threads"][0]["frames"]
    assert [(f["func"], f["line"]) for f in frames if f["type"] == "Python"] == [("inner", 5), ("outer", 3), ("<module>", 6)]
    assert frames[0]["func"] in ("getpid", "__getpid")
    assert said["threads"][0]["gil"]
