# SPDX-License-Identifier: Apache-2.0
"""probing-backtrace compared with what CPython itself says of its stacks, for every installed version."""
import json

import pytest
from backtrace_scene import check_scene, libc_keeps_frame_pointers, start_scene
from conftest import wait_until_asleep
from gdb_tools import gdb_command, needs_gdb
from test_backtrace_truth import PROGRAM, impossible

pytestmark = needs_gdb

@pytest.fixture
def scene(tmp_path, spawn):
    return lambda python: start_scene(tmp_path, spawn, python)


@pytest.mark.pythons(min=(3, 6), max=(3, 13))
def test_every_thread_at_its_true_line(build, run, python, scene):
    process, truth = scene(python)
    assert set(truth) == {"main", "sorter", "locker", "generator"}
    done = run(gdb_command(build, process.pid, "probing-backtrace --json"))
    answer = json.loads(done.stdout[done.stdout.index("{"):])
    check_scene(answer, truth, python)
    assert process.poll() is None


@pytest.mark.pythons(count=1)
def test_the_text_people_read(build, run, python, scene):
    process, truth = scene(python)
    for command in ([build.tool("probing"), "-t", process.pid, "backtrace"], gdb_command(build, process.pid, "probing backtrace")):
        text = run(command).stdout
        assert 'Thread %d "' % process.pid in text and "(main), idle" in text
        func, file, line = truth["main"][0]
        assert "%s (%s:%d)" % (func, file, line) in text
        if "gdb" in str(command[0]) or not libc_keeps_frame_pointers():
            assert "_start [python" in text
    text = run(gdb_command(build, process.pid, "probing-backtrace --python")).stdout
    assert "slow_key" in text and "_start" not in text


@pytest.mark.pythons(count=1)
def test_the_gil_is_shown(build, run, python, spawn):
    process = spawn([python.path, "-c", "print('up', flush=True)\nwhile True: pass"], ready="up")
    found = []
    while found != [(True, "running", True)]:  # at first it may still wait to get the GIL back after its print()
        answer = json.loads(run([build.tool("probing"), "-t", process.pid, "backtrace", "--json"]).stdout)
        found = [(t["gil"], t["state"], t["main"]) for t in answer["threads"]]


@pytest.mark.pythons(count=1)
def test_deep_recursion(build, run, python, spawn):
    code = "import sys, time\nsys.setrecursionlimit(10**6)\ndef f(n):\n    if n: return f(n - 1)\n    print('up', flush=True)\n    time.sleep(1000)\nf(3000)"
    process = spawn([python.path, "-c", code], ready="up")
    wait_until_asleep(process.pid)
    text = run([build.tool("probing"), "-t", process.pid, "backtrace", "--python"]).stdout
    assert text.count(" f (<string>:4)") == 3000 and text.count(" f (<string>:6)") == 1


def test_clear_lines_when_there_is_nothing_to_see(build, run, spawn):
    done = run([build.tool("probing"), "-t", 2 ** 22 - 1, "backtrace"], check=3)
    assert "there is no process" in done.stderr and len(done.stderr.splitlines()) == 1
    other = spawn(["sh", "-c", "echo up; exec sleep 1000"], ready="up")
    done = run([build.tool("probing"), "-t", other.pid, "backtrace", "--python"])
    assert "no thread of process %d runs Python" % other.pid in done.stdout
    done = run(gdb_command(build, None, "probing-backtrace"), check=1)
    assert "no process: start with gdb -p PID" in done.stderr


@pytest.mark.pythons(min=(3, 11), max=(3, 11), count=1)
def test_stopped_anywhere(build, run, spawn, python, tmp_path):
    """Stopped in the allocator, in a system call, or at any instruction: a possible stack is shown, or a message that it cannot be read."""
    script = tmp_path / "restless.py"
    script.write_text(PROGRAM)
    process = spawn([python.path, script], ready="up")
    ask = "probing-backtrace --json --python"
    # Sourced after the attach, when GDB has read the symbols that `break` needs. The program calls PyObject_Malloc by that name, because
    # within an interpreter that was optimised as a whole nothing else may.
    commands = ["source %s" % (build.share / "gdb" / "probing.py"), "break PyObject_Malloc"]
    for _ in range(3):
        commands += ["continue", ask]
    commands += ["delete", "catch syscall", "continue", ask, "continue", ask, "delete"]
    for i in range(12):
        commands += ["stepi %d" % (17 * i + 1), ask]
    done = run(gdb_command(build, process.pid, *commands, plugin=False), timeout=240)
    answers = [json.loads(line[line.index('{"pid"'):]) for line in done.stdout.splitlines() if '{"pid"' in line]
    assert len(answers) == 17, done.stdout[-2000:] + done.stderr[-2000:]
    unread = 0
    for answer in answers:
        for thread in answer["threads"]:
            assert not impossible(thread["frames"], str(script)), thread
            unread += thread["error"] is not None
    assert unread < 10
    assert process.poll() is None
