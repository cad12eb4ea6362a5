# SPDX-License-Identifier: Apache-2.0
"""PROBING=1 python train.py: probing python-install, the .pth file, which processes are recorded, and into which files."""
import os
import subprocess
import sys

import conftest
import pytest
from conftest import PYTHONS

SOME = [p for p in PYTHONS if not p.debug and (p.path == "/usr/bin/python3" or p.version[:2] in [(3, 8), (3, 13)])]
FEW = pytest.mark.parametrize("interpreter", [SOME[0]] + [pytest.param(p, marks=pytest.mark.slow) for p in SOME[1:]],
                              ids=[p.name for p in SOME])


class Venv:
    def __init__(self, run, path, python):
        self.path, self.run = path, run
        self.python = str(path / "bin" / "python")
        done = run([python.path, "-m", "venv", "--without-pip", path], check=None, timeout=240)
        if done.returncode:
            pytest.skip("this interpreter makes no virtual environment: " + done.stderr[-200:])

    def files(self):
        return sorted(str(p.relative_to(self.path)) for p in self.path.rglob("*robing*"))

    def install(self, *options, **kw):
        return self.run(["probing", "python-install", "--python", self.python] + list(options), **kw)


@pytest.fixture
def venv(run, tmp_path):
    return lambda python: Venv(run, tmp_path / "venv", python)


@pytest.fixture(scope="module")
def installed(build, tmp_path_factory):
    """A directory with the package installed, for tests that do not change it."""
    v = Venv(conftest.run_command, tmp_path_factory.mktemp("installed") / "venv", SOME[0])
    conftest.run_command([build.tool("probing"), "python-install", "--python", v.python])
    return v


@FEW
def test_install_and_uninstall(venv, run, interpreter, tmp_path):
    v = venv(interpreter)
    assert v.install("--dry-run").stdout.count("would write") == 2 and v.files() == []
    done = v.install()
    assert [os.path.basename(line.split(" ")[0].rstrip("/")) for line in done.stdout.splitlines()] == ["probing", "probing.pth"]
    assert "installed for " + v.python in done.stderr and "import probing" in done.stderr
    assert v.install().stdout == done.stdout  # a second installation says the same
    assert run([v.python, "-c", "import probing, sys; print('_probing' in sys.modules, probing.__version__)"],
               cwd=str(tmp_path)).stdout.startswith("False 0.")
    said = run([v.python, "-m", "probing", "help", "list"], env=dict(os.environ, PATH="/usr/bin:/bin"))  # also where the PATH does not lead to the tool
    assert said.stdout.startswith("usage: probing list")
    assert "would remove" in v.install("--uninstall", "--dry-run").stdout and len(v.files()) == 2
    assert v.install("--uninstall").stdout.count("removed") == 2 and v.files() == []
    assert "nothing to remove" in v.install("--uninstall", check=1).stderr


def test_what_is_not_ours_is_left_alone(venv, tmp_path):
    v = venv(SOME[0])
    site = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages"
    (site / "probing").mkdir()
    (site / "probing" / "__init__.py").write_text("theirs = 1\n")
    assert "another package" in v.install(check=3).stderr
    assert "nothing to remove" in v.install("--uninstall", check=1).stderr
    assert (site / "probing" / "__init__.py").read_text() == "theirs = 1\n"


@pytest.mark.parametrize("exe, says", [("/bin/true", "no working Python"), ("/nowhere/python", "no such command")])
def test_no_python(run, exe, says):
    assert says in run(["probing", "python-install", "--python", exe], check=3).stderr


def test_a_directory_that_cannot_be_made(run, tmp_path):
    (tmp_path / "python").write_text("#!/bin/sh\nprintf 'CPython\\n030b0000\\n/proc/none\\n/usr\\n\\n'\n")
    (tmp_path / "python").chmod(0o755)
    assert "cannot write /proc/none/probing: " in run(["probing", "python-install", "--python", tmp_path / "python"], check=3).stderr


PROGRAM = """
import multiprocessing, os, subprocess, sys, time
ASK = "import probing; print(probing.is_recording())"
AGAIN = "import subprocess, sys; sys.stdout.write(subprocess.check_output([sys.executable, '-c', %r]).decode())" % ASK
def ask(code):
    return subprocess.check_output([sys.executable, "-c", code]).decode().strip()
def work(name):
    import probing
    with probing.span(name):
        time.sleep(0.05)
    return probing.is_recording()
if __name__ == "__main__":
    import probing
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spawned = pool.apply(work, ("spawned",))
    print(probing.is_recording(), spawned, ask(ASK), ask(AGAIN))
"""


@pytest.mark.parametrize("value, recorded", [
    ("1", "True True False False"), ("on", "True True False False"), ("followed", "True True True False"),
    ("nested", "True True True True"), ("regex:/pro[g]ram[.]py", "True False False False"), ("regex:elsewhere", "False False False False"),
    ("regex:(", "False False False False"), ("0", "False False False False"), ("off", "False False False False")])
def test_who_is_recorded(installed, run, value, recorded, tmp_path, convert, sql):
    v = installed
    (tmp_path / "program.py").write_text(PROGRAM)
    env = dict(os.environ, **{"PROBE" if value == "on" else "PROBING": value})
    done = run([v.python, tmp_path / "program.py"], env=env, cwd=str(tmp_path))
    assert done.stdout.strip() == recorded
    if value == "regex:(":
        assert done.stderr.startswith("probing: PROBING=regex:(: ") and done.stderr.count("\n") == 1
    else:
        assert done.stderr == ""
    traces = [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.zst")]
    assert len(traces) == recorded.split().count("True") + (value in ("followed", "nested"))  # the .pth file starts only the innermost one
    assert ("trace.zst" in traces) == recorded.startswith("True")
    if value == "1":
        db = convert(tmp_path / "trace.zst")
        assert sql(db, "SELECT how, end_reason FROM trace WHERE id = 1") == [("python", "exit")]
        assert sql(db, "SELECT s.name FROM spans s JOIN trace t ON t.id = s.trace_id WHERE t.id = 2") == [("spawned",)]
        roles = dict(sql(db, "SELECT trace_id, role FROM process"))
        assert roles == {1: "main", 2: "child"}


@FEW
def test_exec_and_fork_and_directories(venv, run, interpreter, tmp_path, convert, sql):
    v = venv(interpreter)
    v.install()
    code = ("import os, sys, time, probing\n"
            "assert probing.is_recording()\n"
            "child = os.fork()\n"
            "if not child:\n"
            "    until = time.monotonic() + 600\n"
            "    while not probing.is_recording() and time.monotonic() < until: time.sleep(0.01)\n"
            "    probing.event('child'); sys.exit(0)\n"
            "os.waitpid(child, 0)\n"
            "if len(sys.argv) < 2:\n"
            "    probing.event('first')\n"
            "    os.execv(sys.executable, [sys.executable, sys.argv[0], 'again'])\n"
            "probing.event('second')\n")
    (tmp_path / "program.py").write_text(code)
    (tmp_path / "to").mkdir()
    run([v.python, tmp_path / "program.py"], env=dict(os.environ, PROBING="1", PROBING_TRACE="to/"), cwd=str(tmp_path))
    db = convert(tmp_path / "to")
    assert sorted(sql(db, "SELECT e.name, t.end_reason, t.how FROM events e JOIN trace t ON t.id = e.trace_id")) == [
        ("child", "exit", "fork"), ("child", "exit", "fork"), ("first", "exec", "python"), ("second", "exit", "python")]


LEAVE = """
import multiprocessing, os, sys, time, probing
def recorded():
    until = time.monotonic() + 600
    while not probing.is_recording() and time.monotonic() < until: time.sleep(0.01)
if __name__ == "__main__":
    p = multiprocessing.get_context("fork").Process(target=recorded)
    p.start(); p.join()
    pid = os.fork()
    if not pid:
        recorded()
        try: os._exit("not a number")
        except TypeError: os._exit(status=4)
    assert os.waitpid(pid, 0)[1] == 4 << 8
    os._exit(5)
"""


@FEW
def test_os_exit_is_no_death(venv, run, interpreter, tmp_path, convert, sql):
    """A process that ends by os._exit(), as every worker that multiprocessing forks, was not killed, even if nothing is preloaded."""
    v = venv(interpreter)
    v.install()
    (tmp_path / "leave.py").write_text(LEAVE)
    run([v.python, tmp_path / "leave.py"], check=5, env=dict(os.environ, PROBING="1"), cwd=str(tmp_path))
    db = convert(tmp_path / "trace.zst")
    # a failed call has ended the recording, and what happened after it is not known
    assert sql(db, "SELECT end_reason, exit_code FROM trace ORDER BY exit_code") == [("_exit", None), ("_exit", 0), ("_exit", 5)]
    assert sql(db, "SELECT * FROM failures") == []


def test_bad_values_are_said_and_in_the_trace(installed, run, tmp_path, convert, sql):
    """The first process of the run prints one line for each bad value, and the program goes on with the defaults."""
    v = installed
    env = dict(os.environ, PROBE="nestd", PROBING_TORCH_PROFILING="sideways_and_back", PROBE_TORCH_EXPRS="loss", PROBING_METRICS="x",
               PROBING_SAMPLE_RATE="100")
    code = "import multiprocessing\nif __name__ == '__main__':\n  p = multiprocessing.get_context('spawn').Process(); p.start(); p.join()\n  print(1)"
    (tmp_path / "x.py").write_text(code)
    done = run([v.python, "x.py"], env=env, cwd=str(tmp_path))
    assert done.stdout == "1\n"
    said = done.stderr.splitlines()
    assert len(said) == 5 and all(line.startswith("probing: ") for line in said), said
    assert said[0].startswith("probing: PROBE=nestd: it must be ") and said[0].endswith("; '1' is used")
    notes = [t for t, in sql(convert(tmp_path / "trace.zst"), "SELECT text FROM notes WHERE part = 'config' AND trace_id = 1")]
    for name in ("PROBING_TORCH_PROFILING=sideways_and_back", "PROBE_TORCH_EXPRS=loss", "PROBING_METRICS=x"):
        assert [n for n in notes if n.startswith(name) and "must be" in n], notes
        assert [n for n in said if n.startswith("probing: " + name) and "must be" in n], said
    assert [n for n in said if "PROBE_TORCH_EXPRS" in n and n.endswith("; '' is used")], said
    assert [n for n in said if n.endswith("; sideways_and_back is none of these; 'on' is used")], said  # the longest line, not cut
    assert [n for n in said if "a sample every 100 seconds; 100Hz" in n]


@pytest.mark.parametrize("trace", ["/proc/x.zst", "/nowhere/x.zst", "/dev/null/x.zst"])
def test_a_trace_that_cannot_be_made_is_said(installed, run, tmp_path, trace):
    done = run([installed.python, "-c", "import probing; print(probing.is_recording())"],
               env=dict(os.environ, PROBING="1", PROBING_TRACE=trace), cwd=str(tmp_path))
    assert done.stdout == "False\n"
    assert done.stderr.startswith("probing: this program is not recorded: %s: " % trace) and done.stderr.count("\n") == 1


def test_a_file_that_is_no_trace_stays(installed, run, tmp_path):
    """The line that says where the trace is then does not mention an earlier run, because there is none."""
    (tmp_path / "notes.txt").write_text("mine\n")
    done = run([installed.python, "-c", "import probing; print(probing.trace())"],
               env=dict(os.environ, PROBING="1", PROBING_TRACE="notes.txt"), cwd=str(tmp_path))
    assert done.stdout == "%s\n" % (tmp_path / "notes.txt-2") and (tmp_path / "notes.txt").read_text() == "mine\n"
    assert "notes.txt is being written by another run, or is no trace: this one goes to " in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("env, recorded", [
    ({"PROBING_TORCH_PROFILING": "on"}, True), ({"PROBING_TORCH_PROFILING": "0.1"}, True), ({"PROBING_TORCH_PROFILING": "off"}, False),
    ({"PROBING_TORCH_PROFILING": "on", "PROBING": "0"}, False), ({"PROBING_TORCH_PROFILING": "on", "PROBE": "0"}, False)])
def test_torch_profiling_alone_records(installed, run, tmp_path, convert, sql, env, recorded):
    code = "import probing; print(probing.is_recording(), probing.is_enabled())"
    done = run([installed.python, "-c", code], env=dict(os.environ, **env), cwd=str(tmp_path))
    assert (done.stdout, done.stderr) == ("%s %s\n" % (recorded, recorded), "")
    assert (tmp_path / "trace.zst").exists() == recorded


def test_a_lost_agent_harms_nobody(venv, run, tmp_path):
    v = venv(SOME[0])
    v.install()
    next((tmp_path / "venv").rglob("agent.path")).write_text("/nowhere/libprobing-agent.so")
    env = dict(os.environ, PROBING="1", PATH="/usr/bin:/bin")
    done = run([v.python, "-c", "import probing; print(probing.is_recording()); probing.enable()"], env=env, check=1)
    assert done.stdout == "False\n" and "ProbingError: libprobing-agent.so is not found" in done.stderr
    assert done.stderr.startswith("probing: this program is not recorded: libprobing-agent.so is not found")


@pytest.mark.parametrize("limits, says", [
    (["sh", "-c", 'ulimit -v 409600; exec "$@"', "sh"], "too little space (ulimit -v): recording would take it from the program"),
    (["tests/programs/filter", "kill", 324], "a seccomp filter would end it for a system call (membarrier): the agent's threads make it")])
def test_what_may_not_be_recorded_runs(installed, build, run, tmp_path, limits, says):
    """A program that must not be recorded runs, and is told why in the words of probing-record, from Python, too."""
    (tmp_path / "program.py").write_text("import probing\ntry:\n    probing.enable()\nexcept probing.ProbingError as e:\n    print(e)\n")
    limits = [build.root / limits[0] if "/" in limits[0] else limits[0]] + limits[1:]
    done = run(limits + [installed.python, tmp_path / "program.py"], env=dict(os.environ, PROBING="1"), cwd=str(tmp_path))
    assert done.stderr == "probing: this program is not recorded: %s\n" % says
    assert done.stdout == "recording could not be started: %s\n" % says


def test_the_pth_file_imports_nothing_when_not_asked(build, tmp_path, run):
    code = ("import sys, site, encodings.utf_8_sig  # site itself imports that one for any .pth file, from 3.13 on\n"
            "before = set(sys.modules)\nsite.addpackage(%r, 'probing.pth', set())\n"
            "print(sorted(set(sys.modules) - before))" % str(build.share / "python"))
    assert run([sys.executable, "-c", code]).stdout == "[]\n"


@pytest.mark.slow
def test_pip_install(venv, run, tmp_path):
    """Installs from a copy of the tree, because pip builds in the source directory."""
    python = next((p for p in PYTHONS if p.version[:2] == (3, 13)), SOME[-1])
    repo = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    source = tmp_path / "source"
    subprocess.run("mkdir %s && git ls-files -z -- agent traces writer converter tools gdbplugin Makefile setup.py pyproject.toml "
                   "README.md | xargs -0 cp --parents -t %s" % (source, source), shell=True, check=True, cwd=repo)
    run([python.path, "-m", "venv", tmp_path / "venv"], timeout=240)
    exe = str(tmp_path / "venv" / "bin" / "python")
    done = run([exe, "-m", "pip", "install", "-q", "."], cwd=str(source), timeout=600, check=None)
    if done.returncode and ("No matching distribution" in done.stderr or "Connection" in done.stderr):
        pytest.skip("pip cannot fetch setuptools: " + done.stderr[-200:])
    assert done.returncode == 0, done.stderr
    out = run([exe, "-c", "import probing; print(probing.is_recording(), probing.trace())"],
              env=dict(os.environ, PROBING="1"), cwd=str(tmp_path)).stdout
    assert out == "True %s\n" % (tmp_path / "trace.zst").resolve()
    # The tools work without another installation in the PATH, also through a link, and return the program's own exit code.
    bin_dir = tmp_path / "venv" / "bin"
    env = {k: v for k, v in os.environ.items() if k != "PATH"}
    env["PATH"] = "%s:/usr/bin:/bin" % bin_dir
    os.symlink(str(bin_dir / "probing-record"), str(tmp_path / "linked"))
    run([tmp_path / "linked", "-o", "t.zst", exe, "-c", "sum(range(10**6)); raise SystemExit(5)"], env=env, cwd=str(tmp_path), check=5)
    run(["probing-convert", "t.zst", "t.db"], env=env, cwd=str(tmp_path))
    assert run(["probing-query", "--csv", "t.db", "SELECT how FROM trace"], env=env, cwd=str(tmp_path)).stdout == "how\npreload\n"
    target = subprocess.Popen([exe, "-c", "import time; time.sleep(600)"], env=env)
    try:
        done = run(["gdb", "-nx", "-ix", tmp_path / "venv" / "share" / "probing" / "gdb" / "probing.py", "-p", target.pid, "-batch",
                    "-ex", "probing-eval '6 * 7'"], env=env, cwd=str(tmp_path), check=None)
        assert "42" in done.stdout, done
        assert run(["probing", "-t", target.pid, "eval", "6 * 7"], env=env, cwd=str(tmp_path)).stdout == "42\n"
    finally:
        target.kill()
        target.wait()
    assert "PROBING" in run(["man", "-l", tmp_path / "venv" / "share" / "man" / "man1" / "probing-record.1"], env=env, check=None).stdout
    run([exe, "-m", "pip", "uninstall", "-q", "-y", "probing"], env=env)
    assert not [p for p in (tmp_path / "venv").rglob("*robing*") if p.is_file() and "__pycache__" not in str(p)]
