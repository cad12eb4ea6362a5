# SPDX-License-Identifier: Apache-2.0
"""`probing -t PID query|memory|flamegraph`, the pid as the first word, ENDPOINT: a recording that goes on is asked."""
import json
import os
import re
import subprocess
import sys
import time

import pytest

PROGRAM = """
import time
def beat(n):
    time.sleep(0.01)
def work():
    print("ready", flush=True)
    while True:
        beat(1)
work()
"""


@pytest.fixture
def target(build, spawn, tmp_path):
    (tmp_path / "beat.py").write_text(PROGRAM)
    recorder = spawn([build.tool("probing-record"), "-r", "100", "-o", tmp_path / "t.zst", sys.executable, tmp_path / "beat.py"], ready="ready")
    time.sleep(1)  # some samples
    children = subprocess.run(["pgrep", "-P", str(recorder.pid)], stdout=subprocess.PIPE, universal_newlines=True)
    return int(children.stdout.split()[0])


def test_every_form(build, run, target, sql, tmp_path):
    probing = build.tool("probing")
    query = "SELECT func, lineno, depth FROM python.backtrace WHERE frame_type = 'Python' ORDER BY depth"
    forms = [([probing, "-t", target, "query", "--json", query], None), ([probing, target, "query", "--json", query], None),
             ([probing, "query", "-t", target, "--json", query], None), ([probing, "query", "--json", target, query], None), ([probing, "query", "--json", query], str(target))]
    for command, endpoint in forms:
        env = dict(os.environ, **({"ENDPOINT": endpoint} if endpoint else {}))
        frames = json.loads(run(command, env=env).stdout)  # now, the main thread, innermost first
        assert [f["func"] for f in frames][-2:] == ["work", "<module>"], frames
        assert frames[-1]["lineno"] == 9
    # Every command that reads a database takes the number of a process for what it records.
    assert "beat (" in run([probing, "ask", "time", target]).stdout and "work" in run([probing, "stacks", target]).stdout
    assert re.search(r"work.*beat.* \d+\n", run([probing, "flamegraph", "--folded", target]).stdout)
    run([probing, target, "eval", "'still ' + 'here'"])
    assert run([probing, "eval", "6 * 7"], env=dict(os.environ, ENDPOINT=str(target))).stdout == "42\n"
    assert "work" in run([probing, target, "backtrace", "--main"]).stdout
    assert re.search(r"work.*beat.* \d+\n", run([probing, target, "flamegraph", "--folded"]).stdout)
    memory = json.loads(run([probing, "-t", target, "memory", "--json"]).stdout)
    assert memory and all(row["rss_mb"] > 3 for row in memory)


def test_what_was_recorded_until_now(build, run, target):
    query = [build.tool("probing"), target, "query", "--csv", "SELECT sum(count) AS n, max(timestamp) AS last, now() AS now FROM samples"]
    first, second = (run(query).stdout.split()[1].split(",") for _ in range(2))
    assert int(second[0]) > int(first[0]) > 0
    assert float(second[2]) > float(first[2]) and 0 <= float(second[2]) - float(second[1]) < 5


def test_refusals(build, run, target, tmp_path):
    probing = build.tool("probing")
    assert "is not being recorded" in run([probing, "-t", os.getpid(), "query", "SELECT 1"], check=3).stderr
    assert "is no process id" in run([probing, "-t", "me", "query", "SELECT 1"], check=2).stderr
    assert "no such table" in run([probing, target, "query", "SELECT * FROM no_table"], check=3).stderr
    # A file that is named is asked, whatever ENDPOINT says.
    done = run([probing, "query", "--csv", tmp_path / "t.zst", "SELECT count(*) > 0 AS a FROM backtrace"], env=dict(os.environ, ENDPOINT="1"))
    assert done.stdout.split() == ["a", "1"]
