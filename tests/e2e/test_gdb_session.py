# SPDX-License-Identifier: Apache-2.0
"""probing-eval, and the plugin's effect on a GDB session: nothing changes that the user did not ask for."""
import os
import re

import pytest
from gdb_tools import gdb_command, needs_gdb
from inject_helpers import until_sampled

pytestmark = needs_gdb

PROGRAM = """
import threading, time
batch = list(range(64))
class Model:
    name = "n\\u00e4me"
model = Model()
def work():
    n = 0
    while True: n += 1
threading.Thread(target=work, daemon=True).start()
print("up", flush=True)
while True: time.sleep(0.05)
"""


@pytest.fixture
def program(tmp_path, spawn):
    def start(python):
        script = tmp_path / "program.py"
        script.write_text(PROGRAM)
        return spawn([python.path, script], ready="up", cwd=str(tmp_path))

    return start


@pytest.mark.pythons(min=(3, 8), max=(3, 13))
def test_eval(build, run, python, program, tmp_path):
    process = program(python)
    before = sorted(os.listdir(str(tmp_path)))

    def evaluate(code):
        return run(gdb_command(build, process.pid, "probing-eval --timeout 200 " + code)).stdout.splitlines()

    assert evaluate('"len(batch)"') == ["64"]
    assert evaluate("for i in range(2): print('line', i)") == ["line 0", "line 1"]
    probing = [build.tool("probing"), "-t", process.pid, "eval", "--timeout", "200"]
    for code, want in (("model.name", "'näme'\n"), ("import threading; threading.active_count() >= 2", "True\n"),
                       ("batch.append(65)", ""), ("'a' + 'b'", "'ab'\n")):
        assert run(probing + [code]).stdout == want
    assert run(probing + ["len(batch)"]).stdout == "65\n"
    failed = run(probing + ["print('first')\n1/0"], check=1)
    assert failed.stdout == "first\n" and failed.stderr.startswith("Traceback") and "ZeroDivisionError" in failed.stderr
    failed = run(gdb_command(build, process.pid, "probing-eval --timeout 200 nothing_of_that_name"), check=1)
    assert "NameError" in failed.stderr
    # The agent was loaded for this alone, so it records nothing.
    assert "does not record" in run([build.tool("probing"), "-t", process.pid, "status"]).stdout
    assert sorted(os.listdir(str(tmp_path))) == before
    assert process.poll() is None


@pytest.mark.pythons(count=1)
def test_quotes_of_eval(build, run, python, program):
    """Quotes around the whole argument are the shell's; quotes inside are Python's."""
    process = program(python)
    for code, want in (("'a' + 'b'", "'ab'"), ('"a" + "b"', "'ab'"), ('"model.name"', "'näme'"), ('"\\"a\\" * 2"', "'aa'"),
                       ("--timeout 100 1+1", "2")):
        out = run(gdb_command(build, process.pid, "probing-eval " + code)).stdout
        assert out.splitlines() == [want], code


@pytest.mark.pythons(count=1)
def test_record_after_eval(build, run, python, program, convert, sql):
    process = program(python)
    assert run([build.tool("probing"), "-t", process.pid, "eval", "--timeout", "200", "1+1"]).stdout == "2\n"
    line = run([build.tool("probing"), "-t", process.pid, "inject", "-r", "200"]).stdout
    trace = line.split(" into ")[1].split()[0]
    until_sampled(process.pid, 11)
    run([build.tool("probing"), "-t", process.pid, "stop"])
    assert sql(convert(trace), "SELECT sum(count) FROM samples")[0][0] > 10


@pytest.mark.pythons(count=1)
def test_eval_that_takes_too_long(build, run, python, program):
    process = program(python)
    done = run([build.tool("probing"), "-t", process.pid, "eval", "--timeout", "0.3", "import time; time.sleep(5)"], check=3)
    assert "no answer from process %d within 0.3 s" % process.pid in done.stderr
    assert run([build.tool("probing"), "-t", process.pid, "eval", "--timeout", "200", "1+1"]).stdout == "2\n"


@pytest.mark.pythons(count=1)
def test_commands_in_one_session(build, run, python, program):
    """An interactive session: what was attached before is attached afterwards, except after inject, which says so."""
    process = program(python)
    script = "\n".join(["attach %d" % process.pid, "probing-eval --timeout 200 len(batch)", "python print('attached', gdb.selected_inferior().pid)",
                        "probing-backtrace --python", "probing inject", "python print('attached', gdb.selected_inferior().pid)",
                        "probing status", "probing stop", "quit"]) + "\n"
    cmd = [c for c in gdb_command(build, None, batch=False)]
    done = run(cmd, input=script)
    out = done.stdout
    assert "64" in out and "attached %d" % process.pid in out
    assert "work (" in out
    assert "GDB has let go of process %d" % process.pid in out and "attached 0" in out
    assert "process %d: running, into " % process.pid in out
    assert "no longer recorded" in out
    assert process.poll() is None


# ---- GDB's own settings -----------------------------------------------------------------------


def settings(text):
    """Returns the answers of `show`, without what differs from run to run."""
    return [line for line in text.splitlines() if not re.search(r"history|0x[0-9a-f]+|convenience|\$_", line)]


@pytest.mark.pythons(count=1)
def test_ordinary_use_is_untouched(build, run, python, program):
    plain = run(gdb_command(build, None, "show", plugin=False))
    loaded = run(gdb_command(build, None, "show"))
    assert settings(loaded.stdout) == settings(plain.stdout) and loaded.stderr == plain.stderr
    assert len(settings(plain.stdout)) > 100
    process = program(python)
    plain = run(gdb_command(build, process.pid, "show", "info sharedlibrary", plugin=False))
    loaded = run(gdb_command(build, process.pid, "show", "info sharedlibrary"))
    assert "libc.so.6" in plain.stdout
    keep = [re.compile(p) for p in (r"^(auto-solib-add|sysroot|confirm|debuginfod|print|pagination|height|width)", r"\.so")]

    def kept(text):  # except for where the program just was
        return [line for line in text.splitlines() if any(p.search(line) for p in keep) and not re.match("0x[0-9a-f]+ in ", line)]

    assert kept(loaded.stdout) == kept(plain.stdout)


@pytest.mark.pythons(count=1)
def test_sourced_too_late_for_a_quick_attach(build, run, python, program):
    """-x is read after the attach: everything works, GDB's settings are unchanged, and a line says what the plugin cannot know."""
    process = program(python)
    plugin = build.share / "gdb" / "probing.py"
    done = run(["gdb", "-nx", "-q", "-batch", "-x", plugin, "-p", process.pid, "-ex", "probing inject",
                "-ex", "show sysroot"], check=None)
    assert "the target stood still" in done.stdout and ", and while GDB held it)" in done.stdout
    assert "nonexistent" not in done.stdout
    assert process.poll() is None


QUICK = ["sysroot", "auto-solib-add", "debuginfod enabled", "confirm", "print thread-events", "print inferior-events"]


@pytest.mark.pythons(count=1)
def test_settings_come_back_at_the_prompt(build, run, python, program):
    process = program(python)
    show = "\n".join("show " + name for name in QUICK)
    plain = run(gdb_command(build, None, batch=False, plugin=False), input=show + "\n").stdout
    done = run(gdb_command(build, process.pid, "probing-backtrace --python", batch=False),
               input=show + "\ninfo sharedlibrary\ndetach\n").stdout
    for line in re.sub(r"\(gdb\) ", "", plain).splitlines():
        if line.strip():
            assert line in done, line
    assert "libc.so.6" in done, "a user who stays wants symbols"
    assert process.poll() is None


def test_help(build, run):
    text = run(gdb_command(build, None, "help probing", "help probing inject", "help probing-eval", "probing help")).stdout
    for word in ("probing inject", "probing-backtrace", "--no-native", "--timeout", "probing status", "probing stop"):
        assert word in text
    done = run(gdb_command(build, None, "probing frobnicate"), check=1)
    assert "probing frobnicate" in done.stderr or "frobnicate" in done.stderr
    assert run([build.tool("probing"), "-t", "1", "--help"]).stdout.startswith("usage: probing -t PID inject")
    for bad in (["-t", "x", "status"], ["-t", "1"], ["-t", "1", "frobnicate"], ["-t", "1", "eval"], ["-t", "1", "inject", "-r", "9999"]):
        assert run([build.tool("probing")] + bad, check=2).stderr.count("\n") == 1
