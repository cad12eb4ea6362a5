# SPDX-License-Identifier: Apache-2.0
"""`probing record -p PID -d S -o FILE`: injects, waits, stops and writes, in one command."""
import gzip
import json
import os
import re
import signal
import subprocess

import pytest
from test_console import wait_until

PROGRAM = """
import sys, time
def inner():
    return sum(range(20000))
def work(end):
    while time.thread_time() < end:
        inner()
print("ready", flush=True)
if len(sys.argv) > 2:  # until somebody asks for it
    sys.stdin.readline()
work(time.thread_time() + float(sys.argv[1]))
print("done", flush=True)
"""


@pytest.fixture
def target(spawn, python, tmp_path):
    (tmp_path / "p.py").write_text(PROGRAM)

    def start(seconds=600, *waits, **kw):
        return spawn([python.path, tmp_path / "p.py", seconds] + list(waits), ready="ready", **kw)

    return start


@pytest.fixture
def until_enough(build, run, spawn):
    """Records a process until there are so many samples, which takes as long as the machine needs, and ends that by Ctrl-C."""
    def do(process, path, samples=30):
        recorder = spawn([build.tool("probing"), "record", "-p", process.pid, "-r", "100", "-o", path], stderr=subprocess.PIPE,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        assert b"Ctrl-C" in recorder.stderr.readline()
        wait_until(lambda: any(p["samples"] > samples for p in json.loads(run([build.tool("probing"), "list", "--json"], check=None).stdout)))
        recorder.send_signal(signal.SIGINT)
        out, err = recorder.communicate(timeout=240)
        assert recorder.returncode == 0 and out == b"" and b"recorded in" in err, err
        assert process.poll() is None

    return do


@pytest.mark.pythons(count=1)
def test_every_output(build, run, target, sql, tmp_path, until_enough):
    process = target()
    probing = build.tool("probing")
    for name in ("a.zst", "a.db", "a.svg", "a.folded", "a.html"):
        until_enough(process, tmp_path / name)
        assert run([probing, "list", "--json"], check=1).stdout == "[]\n"  # it is no longer being recorded
    assert sql(tmp_path / "a.db", "SELECT (SELECT sum(count) FROM samples) + (SELECT coalesce(sum(count), 0) FROM loss) > 20")[0][0]
    assert "inner" in [f for f, in sql(tmp_path / "a.db", "SELECT func FROM hot_functions WHERE python_self > 0")]
    assert (tmp_path / "a.svg").read_text().count("inner") > 0
    assert '["inner"' in (tmp_path / "a.html").read_text()
    assert re.search(r"work.*;inner.* \d+\n", (tmp_path / "a.folded").read_text())
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("a.")) == ["a.db", "a.folded", "a.html", "a.svg", "a.zst"]
    assert "1" == run([build.tool("probing-query"), "--csv", tmp_path / "a.zst", "SELECT count(*) > 0 AS n FROM samples"]).stdout.split()[1]
    # Existing files: a database and a picture of ours are replaced, a trace is not.
    run([probing, "record", "-q", "-p", process.pid, "-d", "0.2", "-o", tmp_path / "a.db"])
    assert "is there already" in run([probing, "record", "-p", process.pid, "-d", "0.2", "-o", tmp_path / "a.zst"], check=3).stderr


@pytest.mark.pythons(count=1)
@pytest.mark.slow
def test_outputs_of_export(build, run, target, tmp_path):
    """The formats of probing-export, chosen by the file's name: each file has its format, and no other file is left."""
    process = target()
    names = ("b.json", "b.speedscope.json", "b.firefox.json", "b.pb.gz", "b.pftrace", "b.otlp", "b.collapsed", "b.csv", "b.jsonl")
    for name in names:
        done = run([build.tool("probing"), "record", "-p", process.pid, "-d", "0.5", "-r", "100", "-o", tmp_path / name])
        assert done.stdout == "" and "recorded in" in done.stderr and process.poll() is None, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("b.")) == sorted(names)
    has = {"b.json": "traceEvents", "b.speedscope.json": "profiles", "b.firefox.json": "threads"}
    assert all(key in json.loads((tmp_path / name).read_text()) for name, key in has.items())
    assert gzip.decompress((tmp_path / "b.pb.gz").read_bytes()) and (tmp_path / "b.pftrace").stat().st_size and (tmp_path / "b.otlp").stat().st_size
    assert all(re.match(r"[^;]+;[^;]+;.* \d+$", line) for line in (tmp_path / "b.collapsed").read_text().splitlines())
    assert (tmp_path / "b.csv").read_text().startswith("timestamp,trace_id,")
    assert all("func" in json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines())
    assert "not empty" in run([build.tool("probing"), "record", "-p", process.pid, "-d", "0.2", "-o", tmp_path / "b.csv"], check=3).stderr


@pytest.mark.pythons(count=1)
def test_ended_early(build, spawn, target, sql, tmp_path, until_enough):
    """Ended by Ctrl-C, and by the end of the process: what was recorded is written."""
    until_enough(target(), tmp_path / "c.db")
    assert sql(tmp_path / "c.db", "SELECT sum(count) > 20 FROM samples")[0][0]
    short = target(2, "then", stdin=subprocess.PIPE)
    recorder = spawn([build.tool("probing"), "record", "-p", short.pid, "-d", "600", "-r", "100", "-o", tmp_path / "e.folded"],
                     stderr=subprocess.PIPE)
    said = recorder.stderr.readline()
    assert b"recording process" in said, said
    os.write(short.stdin.fileno(), b"\n")
    said = recorder.communicate(timeout=240)[1]
    assert recorder.returncode == 0 and "inner" in (tmp_path / "e.folded").read_text() and short.wait(timeout=240) == 0, said


@pytest.mark.pythons(count=1)
def test_refused(build, run, target, tmp_path):
    process = target()
    probing = build.tool("probing")
    for args, code, says in ((["-p", process.pid, "-o", tmp_path / "x.png"], 2, "its name says"), (["-p", "you"], 125, "no process id"),
                             (["-p", process.pid, "-d", "0"], 125, "seconds"), (["-p", process.pid, "python3"], 125, "either"),
                             (["-d", "3", "python3"], 125, "runs already"), (["-p", process.pid, "--metrics", "5"], 2, "config"),
                             (["-p", process.pid, "-o", tmp_path / "none" / "x.db"], 3, "cannot write")):
        done = run([probing, "record"] + args, check=code)
        assert says in done.stderr and len(done.stderr.splitlines()) == 1, (args, done.stderr)
    (tmp_path / "text.db").write_text("not ours")
    assert "cannot write" in run([probing, "record", "-p", process.pid, "-d", "0.2", "-o", tmp_path / "text.db"], check=3).stderr
    assert (tmp_path / "text.db").read_text() == "not ours"
    run([probing, "-t", process.pid, "inject", "-o", tmp_path / "other.zst"])
    assert "recorded already" in run([probing, "record", "-p", process.pid, "-d", "0.2", "-o", tmp_path / "y.db"], check=3).stderr
    assert not (tmp_path / "y.db").exists() and os.path.exists(tmp_path / "other.zst")
