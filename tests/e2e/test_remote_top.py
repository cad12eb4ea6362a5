# SPDX-License-Identifier: Apache-2.0
"""`probing -t HOST:PORT top PID`: the screen of test_top.py, with a server in between."""
import json
import os
import shutil
import signal
import subprocess

import pytest
import test_serve
import test_top
from test_console import wait_until
from test_serve import TOKEN
from test_top import Pane, check_screen, rows

serve, remote, recorded = test_serve.serve, test_serve.remote, test_top.recorded  # fixtures
ENV = {"PROBING_TOKEN": TOKEN}


def test_as_text(serve, remote, build, run, recorded):
    server, (pid, _, _) = serve(), recorded
    text = remote(server, "top", pid, "-n", "2", "--interval", "0.2").stdout
    assert text.count("functions: last ") == 2 and list(rows(text))[0] == "often" and "busy.py" in text
    assert "MainThread" in remote(server, "top", pid, "--view", "threads").stdout
    assert "nothing of PyTorch" in remote(server, "top", pid, "--view", "ranks", "--window", "5min").stdout
    there = json.loads(remote(server, "top", pid, "--json").stdout)
    here = json.loads(run([build.tool("probing"), "-t", pid, "top", "--json"]).stdout)
    assert list(there) == list(here) and list(there["views"]) == list(here["views"])
    for view in here["views"]:
        assert there["views"][view]["columns"] == here["views"][view]["columns"]
    assert {r[3] for r in there["views"]["functions"]["rows"]} >= {r[3] for r in here["views"]["functions"]["rows"] if "often" in r[3]} != set()


def test_refused(serve, remote, recorded):
    server, (pid, _, _) = serve(), recorded
    assert "is not being recorded" in remote(server, "top", os.getpid(), check=3).stderr
    assert "which process" in remote(server, "top", check=2).stderr
    for args in (["x"], ["--view", "x"], ["--window", "x"], ["-n", "0"]):
        assert remote(server, "top", pid, *args, check=2).stdout == ""
    assert "usage: probing top" in remote(server, "top", pid, "--help").stdout
    done = remote(server, "top", pid, check=3, more={"PROBING_CONTROL_TOKEN": "wrong"})
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1
    for args in (["--view", "x"], ["/etc/passwd"], ["--interval", "1"]):  # requests that other clients make of the server
        status = server.ask("/api/v1/command", {"command": "top", "pid": pid, "args": args})
        assert status[0] == 403 or status[2].endswith(b"x 2\n"), status


def test_the_server_goes(serve, recorded, build, spawn):
    server, (pid, _, _) = serve(), recorded
    client = spawn([build.tool("probing"), "-t", server.where, "top", pid, "-n", "1000000", "--interval", "0.1"], env=dict(os.environ, **ENV), stderr=subprocess.PIPE)
    assert b"busy.py" in client.stdout.readline()
    server.process.kill()
    _, err = client.communicate(timeout=240)
    assert client.returncode == 3 and server.where in err.decode().splitlines()[-1], err


@pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux")
def test_on_a_terminal(serve, recorded, build, tmp_path):
    server, (pid, _, _) = serve(), recorded
    port = ":%04X" % server.port

    def connected():
        with open("/proc/net/tcp") as f:
            return any(line.split()[2].endswith(port) and line.split()[3] == "01" for line in f.readlines()[1:])
    with Pane(tmp_path, "%s -t %s top %d --interval 0.5" % (build.tool("probing"), server.where, pid), ENV) as pane:
        check_screen(pane)
        pane.again()
        server.process.send_signal(signal.SIGSTOP)  # it accepts the connection, and does not answer any more
        try:
            wait_until(connected)
            pane.key("C-c")
            pane.see("code 0")
        finally:
            server.process.send_signal(signal.SIGCONT)
        pane.again()
        os.kill(pid, signal.SIGKILL)
        assert "is not being recorded" in pane.see("code 1")
