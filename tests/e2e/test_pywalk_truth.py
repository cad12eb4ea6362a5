# SPDX-License-Identifier: Apache-2.0
"""A million stacks of programs that never stand still: none may be impossible, except those that are marked.

Tests the walker itself, with thousands of looks a second; test_backtrace_truth.py tests what the tool says of the same program.
"""
import importlib.util
import json
import pathlib
import subprocess

import pytest


def busy():
    """Returns the program of test_backtrace_truth.py and its rules, changed to compute more and to release the GIL less often."""
    path = pathlib.Path(__file__).with_name("test_backtrace_truth.py")
    spec = importlib.util.spec_from_file_location("busy_program", str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.PROGRAM = module.PROGRAM.replace("    time.sleep(0)\n", "    n = n + 0\n")
    module.NAMES, module.BODY = module.rules()
    return module


BUSY = busy()


def read(build, process, script, stacks, how):
    done = subprocess.run([str(build.root / "tests/programs/pywalk_truth"), str(process.pid), str(stacks), how],
                          stdout=subprocess.PIPE, timeout=800, check=True)
    seen = json.loads(done.stdout.decode(errors="replace"))
    count = {"read": seen["read"], "unread": seen["unread"], "marked": seen["marked"], "different": len(seen["stacks"]),
             "marked and impossible": 0, "impossible": 0}
    for stack in seen["stacks"]:
        frames = [{"func": func, "file": file, "line": line} for func, file, line in stack["frames"]]
        why = BUSY.impossible(frames, str(script))
        if why:
            count["marked and impossible" if stack["marked"] else "impossible"] += stack["n"]
            if not stack["marked"]:
                print(why, frames)
    print("%s: %s" % (how, ", ".join("%s %s" % (n, what) for what, n in count.items())))
    return count


def truth(build, spawn, tmp_path, python, stopped, running):
    script = tmp_path / "restless.py"
    script.write_text(BUSY.PROGRAM)
    process = spawn([python.path, script], ready="up")
    count = read(build, process, script, stopped, "stop")
    assert count["impossible"] == 0 and count["read"] >= stopped
    assert count["unread"] <= BUSY.few(count["read"])
    count = read(build, process, script, running, "running")
    assert count["impossible"] == 0 and count["read"] >= running
    assert process.poll() is None


@pytest.mark.pythons(debug=None)
def test_stacks(build, spawn, tmp_path, python):
    truth(build, spawn, tmp_path, python, 400, 800)


@pytest.mark.slow
@pytest.mark.pythons(debug=None)
def test_a_million_stacks(build, spawn, tmp_path, python):
    """For each version 100,000 stacks of the stopped program, and as many of the running one."""
    truth(build, spawn, tmp_path, python, 100000, 100000)
