# SPDX-License-Identifier: Apache-2.0
"""`probing top`: as text from a trace, and on a terminal from a recording that goes on."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from conftest import REPO, wait_until_gone
from test_console import wait_until

PROGRAM = """
import time
def often(end):
    while time.process_time() < end: pass
def seldom(end):
    while time.process_time() < end: pass
def work():  # of a processor's time: while it has none, both may take as long
    print("up", flush=True)
    while True:
        often(time.process_time() + 0.03)
        seldom(time.process_time() + 0.003)
work()
"""


@pytest.fixture
def recorded(build, spawn, tmp_path):
    """Returns (pid, trace, recorder) of a program that is being recorded."""
    (tmp_path / "busy.py").write_text(PROGRAM)
    recorder = spawn([build.tool("probing-record"), "-q", "-r", "100", "-o", tmp_path / "t.zst", sys.executable, tmp_path / "busy.py"], ready="up")
    pid = int(subprocess.check_output(["pgrep", "-P", str(recorder.pid)]).split()[0])
    found = build.tool("probing-query"), str(pid), "--csv", "SELECT coalesce(sum(count), 0) AS n FROM samples"
    wait_until(lambda: int((subprocess.run(found, stdout=subprocess.PIPE).stdout.split() or [b"0"])[-1]) > 300)
    return pid, tmp_path / "t.zst", recorder


def rows(text):
    """Returns the table as {name: numbers}."""
    found = {}
    for line in text.splitlines():
        m = re.match(r"\s*([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\S+)", line)
        if m:
            found[m.group(4)] = tuple(float(m.group(k)) for k in (1, 2, 3))
    return found


def test_as_text(build, run, recorded, tmp_path):
    pid, trace, recorder = recorded
    live = run([build.tool("probing"), "top", pid, "-n", "2", "--interval", "0.5"]).stdout
    assert live.count("functions: last ") == 2
    os.kill(pid, signal.SIGTERM)
    recorder.wait(240)  # then the trace is complete
    sql = "SELECT func, python_seconds AS own, total_seconds AS total FROM hot_functions WHERE frame_type = 'Python'"
    truth = {r["func"]: r for r in json.loads(run([build.tool("probing-query"), "--json", trace, sql]).stdout)}
    shown = rows(run([build.tool("probing"), "top", trace]).stdout)
    assert list(shown)[0] == "often" and shown["often"][2] > shown["seldom"][2] > 0
    sql = "SELECT max(timestamp + seconds) - min(timestamp) AS s FROM samples"  # includes ticks that were lost
    whole = json.loads(run([build.tool("probing-query"), "--json", trace, sql]).stdout)[0]["s"]
    for name in ("often", "seldom", "work"):
        assert abs(shown[name][2] - truth[name]["own"]) < 0.01
        assert abs(shown[name][1] - 100 * truth[name]["total"] / whole) < 0.2, (name, shown, truth, whole)
    assert shown["work"][1] > shown["often"][1] + shown["seldom"][1] - 0.1
    assert "MainThread" in run([build.tool("probing"), "top", "--view", "threads", trace]).stdout
    assert "nothing of PyTorch" in run([build.tool("probing"), "top", "--view", "modules", trace]).stdout
    assert "nothing of PyTorch" in run([build.tool("probing"), "top", "--view", "ranks", trace]).stdout
    assert "[" in run([build.tool("probing"), "top", "--view", "native", trace]).stdout


def test_refused(build, run):
    top = [build.tool("probing"), "top"]
    for args in ([], ["--view", "x", "1"], ["--window", "x", "1"], ["--interval", "0", "1"], ["-n", "0", "1"]):
        run(top + args, check=2)
    assert "is not being recorded" in run(top + [os.getpid()], check=3).stderr
    run(top + ["/none.zst"], check=3)


def test_damaged(build, run, tmp_path):
    """As with the other commands: what is left is shown, and the exit code says that it is not all."""
    trace = REPO / "tests" / "golden" / "damaged.zst"
    for args in ([], ["--json"], ["-n", "1"]):
        assert run([build.tool("probing"), "top", trace] + args, check=1).stdout


class Pane:
    """A terminal of 80 columns in which `top` runs, with what stty prints before and after it."""

    def __init__(self, tmp_path, top, env=None):
        self.before, self.after, self.socket = tmp_path / "before", tmp_path / "after", str(tmp_path / "tmux")
        self.command = "stty -a > %s; %s; echo code $?; stty -a > %s; sleep 1000" % (self.before, top, self.after)
        self.env = dict(os.environ, **(env or {}))
        self.env.pop("TMUX", None)

    def tmux(self, *args):
        return subprocess.run(["tmux", "-S", self.socket] + list(args), stdout=subprocess.PIPE, check=True, env=self.env).stdout.decode()

    def __enter__(self):
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", "top", "-x", "80", "-y", "24", self.command)
        return self

    def __exit__(self, *_):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"])
        wait_until_gone(self.socket)

    def again(self):
        self.tmux("respawn-pane", "-k", "-t", "top", self.command)
        return self.see("functions: last ")

    def key(self, key):
        self.tmux("send-keys", "-t", "top", key)

    def screen(self):
        return self.tmux("capture-pane", "-p", "-t", "top")

    def see(self, text):
        wait_until(lambda: text in self.screen())
        return self.screen()


def check_screen(pane):
    """The screen has 80 columns, keys change the view, and the terminal is as before when `top` ends."""
    screen = pane.see("often")
    wait_until(lambda: re.search(r"often \((\.\.\.)?/\S+\.py:\d+\)$", pane.screen(), re.M))  # only the end of a long path is shown, with the line
    assert "functions: last " in screen and all(len(line) <= 80 for line in screen.splitlines()) and "q quit" in pane.see("q quit")
    pane.key("t")
    pane.see("MainThread")
    pane.key("p")
    before = pane.see("(standing still: p)")
    while before != pane.screen():  # the screen may have been half drawn
        before = pane.screen()
    time.sleep(1.5)
    assert before.splitlines()[3:] == pane.screen().splitlines()[3:]
    pane.key("f")  # acts on what is there already
    assert "(standing still: p)" in pane.see("%Own")
    pane.key("2")  # of all functions, the outermost one has the most time, including the functions that it calls
    wait_until(lambda: not re.match(r"\s*[\d.]+\s+[\d.]+\s+[\d.]+\s+often", pane.screen().splitlines()[3]))
    pane.key("1")
    wait_until(lambda: re.match(r"\s*[\d.]+\s+[\d.]+\s+[\d.]+\s+often", pane.screen().splitlines()[3]))
    pane.key("q")
    assert "%Own" not in pane.see("code 0")
    wait_until(lambda: pane.after.exists() and pane.after.read_text())
    assert pane.before.read_text() == pane.after.read_text()
    pane.again()
    pane.key("C-c")
    pane.see("code 0")


@pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux")
def test_on_a_terminal(build, recorded, tmp_path):
    pid, _, _ = recorded
    with Pane(tmp_path, "%s top %d --interval 0.5" % (build.tool("probing"), pid)) as pane:
        check_screen(pane)
        pane.again()
        os.kill(pid, signal.SIGKILL)
        assert "has ended" in pane.see("code 1")


def test_as_json(build, run, recorded):
    """All views as objects with the numbers of the text view; for a process one after the other."""
    pid, trace, recorder = recorded
    top = [build.tool("probing"), "top"]
    lines = run(top + [pid, "--json", "-n", "2", "--interval", "0.1"]).stdout
    assert lines.count('"head": ') == 2
    os.kill(pid, signal.SIGTERM)
    recorder.wait(240)  # then the trace is complete
    said = json.loads(run(top + [trace, "--json"]).stdout)
    assert list(said["views"]) == ["functions", "native", "threads", "modules", "ranks"] and "busy.py" in said["head"] and said["seconds"] > 0
    assert said["views"]["functions"]["columns"][:3] == ["%Own", "%Total", "Seconds"] and said["views"]["modules"]["rows"] == []
    found = said["views"]["functions"]["rows"]
    lines = re.findall(r"^\s*([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(.*)$", run(top + [trace]).stdout, re.M)
    # `work` has no time of its own, and below it in the list there may be more than 30 functions of Python's start, each with one sample
    assert len(lines) == min(len(found), 30) and {"often", "seldom", "work"} <= {r[3].split()[0] for r in found}
    for *numbers, name in lines:  # there may be several with the same name: an import, too, has a <module> in __init__.py
        assert any(r[3] == name and all(abs(float(a) - b) < 0.006 for a, b in zip(numbers, r)) for r in found), (numbers, name, found)
    assert [r[2] for r in said["views"]["threads"]["rows"]] == [int(r[2]) for r in said["views"]["threads"]["rows"]]
