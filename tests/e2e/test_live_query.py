# SPDX-License-Identifier: Apache-2.0
"""`probing -t PID query|memory|flamegraph`, also with the pid as the first word, or as ENDPOINT: questions about a recording that goes on."""
import ctypes
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from conftest import kill_group
from live_helpers import PROGRAM, cache, kept, states, stop, target  # noqa: F401
from test_console import wait_until


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who alone can be another user")
def test_anothers_recording_is_not_taken_for_none(build, run):
    """Root trusts no other user's live file. It is told so, and not told to start the recording, which already runs."""
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, preexec_fn=lambda: (os.setgid(65534), os.setuid(65534)))
    try:
        said = run([build.tool("probing"), "-t", other.pid, "query", "SELECT 1"], check=3).stderr
        assert "process %d is user 65534's" % other.pid in said and "is not being recorded" not in said
    finally:
        other.communicate()


def test_every_form(build, run, target, sql, tmp_path):
    probing = build.tool("probing")
    query = "SELECT func, lineno, depth FROM python.backtrace WHERE frame_type = 'Python' ORDER BY depth"
    forms = [([probing, "-t", target, "query", "--json", query], None), ([probing, target, "query", "--json", query], None),
             ([probing, "query", "-t", target, "--json", query], None), ([probing, "query", "--json", target, query], None), ([probing, "query", "--json", query], str(target))]
    for command, endpoint in forms:
        env = dict(os.environ, **({"ENDPOINT": endpoint} if endpoint else {}))
        frames = json.loads(run(command, env=env).stdout)  # the main thread's stack now, innermost first
        assert [f["func"] for f in frames][-2:] == ["work", "<module>"], frames
        assert frames[-1]["lineno"] == 9
    # Every command that reads a database also takes the pid of a process, for what it records.
    assert "beat (" in run([probing, "ask", "time", target]).stdout and "work" in run([probing, "stacks", target]).stdout
    assert "beat (" in run([probing, "-t", target, "ask", "time"]).stdout and "work" in run([probing, target, "stacks"]).stdout
    assert "Why does it hang?" in run([probing, "-t", target, "ask"]).stdout
    assert re.search(r"work.*beat.* \d+\n", run([probing, "flamegraph", "--folded", target]).stdout)
    run([probing, target, "eval", "--timeout", "200", "'still ' + 'here'"])
    assert run([probing, "eval", "--timeout", "200", "6 * 7"], env=dict(os.environ, ENDPOINT=str(target))).stdout == "42\n"
    assert run([probing, "-t", target, "e", "--timeout", "200", "6 * 7"]).stdout == "42\n" and str(target) in run([probing, "ls"]).stdout
    assert "work" in run([probing, target, "backtrace", "--main"]).stdout and "work" in run([probing, "-t", target, "bt", "--main"]).stdout
    assert re.search(r"work.*beat.* \d+\n", run([probing, target, "flamegraph", "--folded"]).stdout)
    # The pid may follow the command, as it does for those that also read files.
    assert "work" in run([probing, "backtrace", target, "--main"]).stdout and run([probing, "eval", target, "--timeout", "200", "6 * 7"]).stdout == "42\n"
    assert json.loads(run([probing, "status", target, "--json"]).stdout)["pid"] == int(str(target))
    memory = json.loads(run([probing, "-t", target, "memory", "--json"]).stdout)
    assert memory and all(row["rss_mb"] > 3 for row in memory)


def test_a_stopped_process(build, run, target, cache):
    """It cannot write out what it has, and one line says so."""
    query = [build.tool("probing"), target, "query", "--csv", "SELECT count(*) > 0 AS some FROM samples"]
    assert run(query).stderr == ""
    stop(target)
    kept(cache)
    asked = run(query)
    assert asked.stdout == "some\n1\n" and asked.stderr.count("\n") == 1 and "process %d is stopped" % target in asked.stderr, asked.stderr
    os.kill(target, signal.SIGCONT)
    wait_until(lambda: states(target) != {"T"})
    kept(cache)
    assert run(query).stderr == ""


def test_what_was_recorded_until_now(build, run, target):
    query = [build.tool("probing"), target, "query", "--csv", "SELECT sum(count) AS n, max(timestamp) AS last, now() AS now FROM samples"]
    answers = []

    def is_there():
        """Returns whether something is there that was recorded after the first question."""
        answers.append([float(value) for value in run(query).stdout.split()[1].split(",")])
        return answers[-1][1] > answers[0][2]

    wait_until(is_there)
    assert 0 < answers[0][0] < answers[-1][0] and all(last <= now for _, last, now in answers)
    assert answers == sorted(answers, key=lambda answer: answer[2])


STEPS = """import os, time, probing
for _ in range(3):
    time.sleep(0.3)
    probing.step()
print(os.getpid(), flush=True)
time.sleep(600)
"""


def test_the_last_step(build, run, tmp_path):
    """After the last call of probing.step() nothing more of that kind comes, for which that step waited to be written down."""
    recorder = subprocess.Popen([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", sys.executable, "-c", STEPS], env=dict(os.environ, PYTHONPATH=str(build.share / "python")),
                                stdout=subprocess.PIPE, start_new_session=True)
    try:
        query = [build.tool("probing"), "-t", int(recorder.stdout.readline()), "query", "--csv", "SELECT count(*), max(step) FROM steps WHERE complete"]
        wait_until(lambda: run(query).stdout.split()[1] == "3,2")
    finally:
        kill_group(recorder)


def test_refusals(build, run, target, tmp_path):
    probing = build.tool("probing")
    assert "is not being recorded" in run([probing, "-t", os.getpid(), "query", "SELECT 1"], check=3).stderr
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert "process %d is not being recorded: there is none" % ended.pid in run([probing, "-t", ended.pid, "query", "SELECT 1"], check=3).stderr
    assert "is no process id" in run([probing, "-t", "me", "query", "SELECT 1"], check=2).stderr
    assert "no such table" in run([probing, target, "query", "SELECT * FROM no_table"], check=3).stderr
    # A file that is named on the command line is used, whatever ENDPOINT says.
    done = run([probing, "query", "--csv", tmp_path / "t.zst", "SELECT count(*) > 0 AS a FROM backtrace"], env=dict(os.environ, ENDPOINT="1"))
    assert done.stdout.split() == ["a", "1"]


BECOMES = """
import os, sys
print("ready", flush=True)
sys.stdin.readline()
os.execvp("sleep", ["sleep", "600"])
"""


def test_a_pid_that_is_another_program_by_now(build, run, spawn, tmp_path):
    """After an exec, answers about the new program contain nothing that was recorded of the old one."""
    probing = build.tool("probing")
    (tmp_path / "becomes.py").write_text(BECOMES)
    process = spawn([sys.executable, tmp_path / "becomes.py"], ready="ready", stdin=subprocess.PIPE)
    run([probing, "-t", process.pid, "inject", "-o", tmp_path / "b.zst"])
    assert run([probing, process.pid, "query", "--csv", "SELECT count(*) > 0 AS a FROM process"]).stdout.split() == ["a", "1"]
    process.stdin.write(b"go\n")
    process.stdin.flush()
    while open("/proc/%d/comm" % process.pid).read() != "sleep\n":
        time.sleep(0.01)
    for words in (["query", "SELECT * FROM python.backtrace"], ["memory"], ["flamegraph", "--folded"]):
        done = run([probing, process.pid] + words, check=3)
        assert done.stdout == "" and "process %d is not being recorded (begin: " % process.pid in done.stderr and len(done.stderr.splitlines()) == 1
    dead = [row for row in json.loads(run([probing, "list", "--json"]).stdout) if row["pid"] == process.pid]
    assert [row["state"] for row in dead] == ["dead"]
    assert subprocess.run(["pgrep", "-f", str(tmp_path / "cache")], stdout=subprocess.PIPE).stdout == b""


def test_a_process_that_dies_during_the_query(build, run, target, tmp_path):
    """Either the answer has what the process recorded, or one line says why not; once it is gone, a line says that."""
    probing = str(build.tool("probing"))
    numbers = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 1000000) SELECT count(*) AS n, (SELECT count(*) > 0 FROM samples) AS a FROM c"
    run([probing, target, "query", "SELECT 1"])  # from here on the trace has samples
    asked = [subprocess.Popen([probing, str(target), "query", "--csv", sql], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
             for sql in (numbers, "SELECT count(*) > 0 AS a FROM python.backtrace", numbers)]
    os.kill(target, 9)
    for process, answer in zip(asked, ("n,a 1000000,1", "a 1", "n,a 1000000,1")):
        out, err = process.communicate(timeout=240)
        assert (process.returncode, " ".join(out.split())) in ((0, answer), (3, "")) and len(err.splitlines()) <= 1, (out, err)
        assert process.returncode == 0 or err
    while os.path.exists("/proc/%d" % target):
        time.sleep(0.01)
    assert "process %d is not being recorded" % target in run([probing, target, "query", "SELECT 1"], check=3).stderr
    assert [name for name in os.listdir(os.environ["PROBING_RUN_DIR"]) if not name.endswith(".live")] == []


@pytest.mark.parametrize("options", [[], ["--restricted"]])
def test_a_prompt_outlives_its_process(build, target, tmp_path, options):
    """The prompt opens the recording anew for a later question: what was allowed is allowed then, and nothing else. When the process is gone, its
    trace is asked."""
    from test_record_terminal import Terminal
    def another_second():  # within one, the database stays
        began = int(time.time())
        while int(time.time()) <= began + 1:
            time.sleep(0.05)
    terminal = Terminal([build.tool("probing"), "query"] + options + [str(target)], tmp_path, dict(os.environ, HOME=str(tmp_path), TERM="xterm"))
    try:
        terminal.read_until(rb"probing> ")
        another_second()
        terminal.type(b"ATTACH '%s' AS other;\n" % os.fsencode(str(tmp_path / "other.db")) if options else b"CREATE TEMP TABLE t AS SELECT 6 * 7 AS x; SELECT x FROM t;\n")
        terminal.read_until(rb"not authorized" if options else rb"42\r*\n")
        terminal.read_until(rb"probing> ")
        os.kill(target, 9)
        while os.path.exists("/proc/%d" % target):
            time.sleep(0.01)
        another_second()
        terminal.type(b"SELECT count(*) > 0 AS is_there, 6 * 8 AS x FROM process;\n")
        terminal.read_until(rb"no longer recorded")
        terminal.read_until(rb" 1 +48\r*\n")
        terminal.type(b"\\q\n")
        assert terminal.wait() == 0
    finally:
        terminal.close()


def opens(path):
    """Returns a function that returns how often the file was opened since."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_NONBLOCK)
    assert fd >= 0 and libc.inotify_add_watch(fd, str(path).encode(), 0x20) >= 0  # IN_OPEN
    seen = [0]

    def count():
        try:
            seen[0] += len(os.read(fd, 65536)) // 16  # events about a file have no name, so each takes 16 bytes
        except BlockingIOError:
            pass
        return seen[0]
    return count


def test_a_trace_that_another_program_completes(build, run, spawn, tmp_path):
    """A process was killed and another program completes its trace, as probing-record does: the question waits for that, and does not read
    the trace as far as it is."""
    (tmp_path / "beat.py").write_text(PROGRAM)
    recorder = spawn([build.tool("probing-record"), "-r", "100", "-o", tmp_path / "t.zst", sys.executable, tmp_path / "beat.py"], ready="ready")
    rows = []
    while not rows or rows[0]["samples"] < 50:
        rows = [r for r in json.loads(run([build.tool("probing"), "list", "--json"], check=None).stdout) if r["trace"] == str(tmp_path / "t.zst")]
    os.kill(recorder.pid, signal.SIGSTOP)  # so that its parent does not complete it
    os.kill(rows[0]["pid"], signal.SIGKILL)
    folder = os.environ["PROBING_RUN_DIR"]
    live, = [os.path.join(folder, name) for name in os.listdir(folder) if name.startswith("%d-" % rows[0]["pid"])]
    with open(live) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        count = opens(live)
        query = subprocess.Popen([str(w) for w in (build.tool("probing"), "query", "--csv", tmp_path / "t.zst", "SELECT sum(count) AS n FROM samples")],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        while count() < 4 and query.poll() is None:  # it checks again and again whether the other program is done
            time.sleep(0.001)
        assert query.poll() is None, query.communicate()
    out, err = query.communicate(timeout=240)
    os.kill(recorder.pid, signal.SIGCONT)
    assert query.returncode == 0 and err == "" and int(out.split()[1]) >= rows[0]["samples"], (out, err, rows)


def test_a_stopped_process_is_not_asked(build, run, target, tmp_path):
    """A stopped process could not write out its records: in a stopped job each rank would be waited for in vain. Its live file shows
    whether it was asked."""
    folder = os.environ["PROBING_RUN_DIR"]
    [live] = [os.path.join(folder, name) for name in os.listdir(folder) if name.startswith("%d-" % target)]

    def content():
        with open(live, "rb") as f:
            return f.read()

    def ask():
        return int(run([build.tool("probing"), "query", "--csv", tmp_path / "t.zst", "SELECT sum(count) AS n FROM samples"]).stdout.split()[1])
    least = ask()
    stop(target)
    before = content()
    assert ask() >= least and content() == before
    os.kill(target, signal.SIGCONT)
    wait_until(lambda: "T" not in states(target))
    assert ask() > least and content() != before


def test_questions_of_what_still_runs(build, run, target, tmp_path):
    """Each answer says that the process runs, and none that it has ended; after its end none says that it runs."""
    probing = build.tool("probing")
    for name, code in (("last", 0), ("time", 0), ("died", 1), ("hang", 1)):
        done = run([probing, "ask", name, target], check=code)
        assert "process %d still runs: this is of what it has done until now" % target in done.stderr, done.stderr
    for words in (["stacks"], ["report", "-o", tmp_path / "page.html"], ["flamegraph", "--idle", "--folded"]):
        assert "process %d still runs: this is of what it has done until now" % target in run([probing] + words + [target]).stderr
    done = run([probing, "ask", "last", "--json", tmp_path / "t.zst"])
    parts = {p["title"]: p["rows"] for p in json.loads(done.stdout)}
    assert parts["answer"][0]["answer"].endswith(", which still runs") and [r["reason"] for r in parts["how each process ended"]] == ["still runs"]
    run([probing, "convert", tmp_path / "t.zst", tmp_path / "t.db"])
    assert "which still runs" in run([probing, "ask", "last", tmp_path / "t.db"]).stdout
    os.kill(target, signal.SIGKILL)
    while os.path.exists("/proc/%d" % target):
        time.sleep(0.01)
    done = run([probing, "ask", "last", tmp_path / "t.db"])
    assert "which has no end in its recording" in done.stdout and done.stderr == ""
    done = run([probing, "ask", "last", tmp_path / "t.zst"])
    assert 'which ended "killed"' in done.stdout and "still runs" not in done.stderr
    assert "still runs" not in run([probing, "stacks", tmp_path / "t.zst"]).stderr
