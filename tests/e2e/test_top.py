# SPDX-License-Identifier: Apache-2.0
"""`probing top`: as text of a trace, and on a terminal of a recording that goes on."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from test_console import wait_until

PROGRAM = """
import time
def often(end):
    while time.perf_counter() < end: pass
def seldom(end):
    while time.perf_counter() < end: pass
def work():
    print("up", flush=True)
    while True:
        often(time.perf_counter() + 0.03)
        seldom(time.perf_counter() + 0.003)
work()
"""


@pytest.fixture
def recorded(build, spawn, tmp_path):
    """(pid, trace) of a program that is being recorded."""
    (tmp_path / "busy.py").write_text(PROGRAM)
    recorder = spawn([build.tool("probing-record"), "-q", "-r", "100", "-o", tmp_path / "t.zst", sys.executable, tmp_path / "busy.py"], ready="up")
    pid = int(subprocess.check_output(["pgrep", "-P", str(recorder.pid)]).split()[0])
    found = build.tool("probing-query"), str(pid), "--csv", "SELECT coalesce(sum(count), 0) AS n FROM samples"
    wait_until(lambda: int(subprocess.run(found, stdout=subprocess.PIPE).stdout.split()[-1] or b"0") > 300)
    return pid, tmp_path / "t.zst"


def rows(text):
    """{name: numbers} of the table."""
    found = {}
    for line in text.splitlines():
        m = re.match(r"\s*([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\S+)", line)
        if m:
            found[m.group(4)] = tuple(float(m.group(k)) for k in (1, 2, 3))
    return found


def test_as_text(build, run, recorded, tmp_path):
    pid, trace = recorded
    live = run([build.tool("probing"), "top", pid, "-n", "2", "--interval", "0.5"]).stdout
    assert live.count("functions: last ") == 2
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: run([build.tool("probing"), "list", "--json"], check=None).stdout.strip() == "[]")
    sql = "SELECT func, python_seconds AS own, total_seconds AS total FROM hot_functions WHERE frame_type = 'Python'"
    truth = {r["func"]: r for r in json.loads(run([build.tool("probing-query"), "--json", trace, sql]).stdout)}
    shown = rows(run([build.tool("probing"), "top", trace]).stdout)
    assert list(shown)[0] == "often" and shown["often"][2] > shown["seldom"][2] > 0
    whole = json.loads(run([build.tool("probing-query"), "--json", trace, "SELECT sum(seconds) AS s FROM samples"]).stdout)[0]["s"]
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


@pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux")
def test_on_a_terminal(build, recorded, tmp_path):
    """80 columns; keys change the view; the end leaves the terminal as it was."""
    pid, _ = recorded
    socket = str(tmp_path / "tmux")

    def tmux(*args):
        return subprocess.run(["tmux", "-S", socket] + list(args), stdout=subprocess.PIPE, check=True).stdout.decode()

    def see(text):
        wait_until(lambda: text in tmux("capture-pane", "-p", "-t", "top"))
        return tmux("capture-pane", "-p", "-t", "top")
    command = "stty -a > %s/before; %s top %d --interval 0.5; echo code $?; stty -a > %s/after; sleep 1000" % (
        tmp_path, build.tool("probing"), pid, tmp_path)
    tmux("new-session", "-d", "-s", "top", "-x", "80", "-y", "24", command)
    try:
        screen = see("functions: last ")
        assert "often" in screen and all(len(line) <= 80 for line in screen.splitlines()) and "q quit" in see("q quit")
        tmux("send-keys", "-t", "top", "t")
        see("MainThread")
        tmux("send-keys", "-t", "top", "p")
        before = see("(standing still: p)")
        time.sleep(1.5)
        after = tmux("capture-pane", "-p", "-t", "top")
        assert before.splitlines()[3:] == after.splitlines()[3:]
        tmux("send-keys", "-t", "top", "f")
        see("%Own")
        tmux("send-keys", "-t", "top", "q")
        assert "%Own" not in see("code 0")
        wait_until(lambda: (tmp_path / "after").exists() and (tmp_path / "after").read_text())
        assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text()
        tmux("respawn-pane", "-k", "-t", "top", command)  # Ctrl-C, and a process that ends
        see("functions: last ")
        tmux("send-keys", "-t", "top", "C-c")
        see("code 0")
        tmux("respawn-pane", "-k", "-t", "top", command)
        see("functions: last ")
        os.kill(pid, signal.SIGKILL)
        screen = see("code 1")
        assert "has ended" in screen
    finally:
        subprocess.run(["tmux", "-S", socket, "kill-server"])
