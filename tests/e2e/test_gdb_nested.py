# SPDX-License-Identifier: Apache-2.0
"""probing-eval in a process that GDB holds at a breakpoint: it runs in the selected thread if that is safe, else one line says why not."""
import re

import pytest
from gdb_tools import gdb_command, needs_gdb, why_no_calls
from inject_helpers import COROUTINE, program

FIXTURES = (program,)
pytestmark = needs_gdb

PROGRAM = """
import time
batch = list(range(64))
nothing = compile("pass", "x", "exec")
def step(n):
    local = n * 2
    exec(nothing)
    time.sleep(0.01)
    return local
i = 0
while i < 10 ** 6:
    step(i)
    i += 1
"""

# GDB takes long to read debug information, which is not needed.
SETUP = ["set breakpoint pending on", "set debug-file-directory /nonexistent", "set debuginfod enabled off", "set pagination off"]
TRY = """python
def attempt(command):
    try:
        gdb.execute(command)
    except gdb.error as e:
        print("refused:", e)
end
"""


def at_a_breakpoint(build, run, python, tmp_path):
    if why_no_calls():
        pytest.skip("this GDB can call no function of a process on this processor: " + why_no_calls())
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    commands = tmp_path / "commands"
    commands.write_text(TRY + "\n".join([
        "break PyEval_SaveThread", "run %s" % script, 'python attempt("probing-eval --timeout 100 1")', "delete",
        "break %s" % ("clock_nanosleep" if python.version >= (3, 11) else "select"), "continue", "continue",
        'python attempt("probing-eval --timeout 100 len(batch)")',
        'python attempt("probing-eval --timeout 100 --frame 0 (local == 2 * n, [n - n for _ in range(2)])")',
        'python attempt("probing-eval --timeout 100 print(1); 1/0")',
        # Python 3.6 handles no events in an empty loop
        'python attempt("probing-eval --timeout 0.3 while True: %s")' % ("pass" if python.version >= (3, 7) else "abs(1)"),
        'python attempt("probing-eval --timeout 100 --json batch[2]")',
        "python print('same place:', gdb.newest_frame().name())",
        "python print('still on:', all(b.enabled for b in gdb.breakpoints()))",
        'python print("locking:", gdb.parameter("scheduler-locking"), gdb.parameter("unwindonsignal"))',
        "continue",
        'python attempt("probing-eval --timeout 100 batch[5] * 100")',
        "delete", "break PyEval_SaveThread", "continue",
        'python attempt("probing-eval --timeout 100 i * 0 + 600")',
        "delete", "break PyEval_EvalCode", "continue",
        'python attempt("probing-eval --timeout 100 1")',
        "kill"]) + "\n")
    cmd = gdb_command(build, None) + ["-x", commands, python.path]
    cmd[1:1] = [word for setting in SETUP for word in ("-iex", setting)]
    out = run(cmd, timeout=40, check=None).stdout
    assert "LookupError: Python is still starting: there is no __main__ yet" in out
    assert "\n64\n" in out
    assert "\n(True, [0, 0])\n" in out
    assert "\n1\nrefused: Traceback" in out and "ZeroDivisionError" in out
    assert "TimeoutError: the evaluation took longer than 0.3 s" in out
    assert '{"ok":true,"error":null,"value":"2","out":""}' in out
    assert "same place: " in out and ("sleep" in out.split("same place: ")[1].splitlines()[0] or "select" in out)
    assert "still on: True" in out and "locking: replay False" in out
    assert "\n500\n" in out
    assert "\n600\n" in out
    assert "refused: nothing was run: thread " in out.split("\n500\n")[1] and "interpreter's own code" in out


@pytest.mark.pythons(count=1)
def test_at_a_breakpoint(build, run, python, tmp_path):
    at_a_breakpoint(build, run, python, tmp_path)


SMALL = """
import threading, time
threading.stack_size(32 << 10)
def sleeps():
    while True: time.sleep(0.01)
threading.Thread(target=sleeps, daemon=True).start()
threading.Event().wait()
"""


@pytest.mark.pythons(count=1)
def test_a_stack_with_no_space_for_it(build, run, python, tmp_path):
    """The calls and their data would reach into what lies behind the stack. Nothing is called, so any GDB will do."""
    script, commands = tmp_path / "program.py", tmp_path / "commands"
    script.write_text(SMALL)
    sleep = "clock_nanosleep" if python.version >= (3, 11) else "select"
    commands.write_text(TRY + "\n".join(["break " + sleep, "run %s" % script, 'python attempt("probing-eval --timeout 100 1")', "kill"]) + "\n")
    cmd = gdb_command(build, None) + ["-x", commands, python.path]
    cmd[1:1] = [word for setting in SETUP for word in ("-iex", setting)]
    out = run(cmd, timeout=40, check=None).stdout
    assert re.search(r"refused: nothing was run: thread \d+ has only (\d|1\d|2\d|3[01]) KB of stack left", out), out


@pytest.mark.pythons(count=1)
def test_on_a_coroutines_stack(build, run, python, tmp_path, program):
    """Nothing says where it ends. Nothing is called, so any GDB will do."""
    script, commands = tmp_path / "program.py", tmp_path / "commands"
    script.write_text("import ctypes\nctypes.CDLL(%r).run()\n" % str(program("coroutine.so", COROUTINE, "-shared", "-fPIC")))
    commands.write_text(TRY + "\n".join(["break waits", "run %s" % script, 'python attempt("probing-eval --timeout 100 1")', "kill"]) + "\n")
    cmd = gdb_command(build, None) + ["-x", commands, python.path]
    cmd[1:1] = [word for setting in SETUP for word in ("-iex", setting)]
    out = run(cmd, timeout=40, check=None).stdout
    assert re.search(r"refused: nothing was run: thread \d+ is on another stack than its own", out), out


@pytest.mark.slow
@pytest.mark.pythons(min=(3, 6))
def test_at_a_breakpoint_everywhere(build, run, python, tmp_path):
    at_a_breakpoint(build, run, python, tmp_path)
