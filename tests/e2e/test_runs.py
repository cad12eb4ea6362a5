# SPDX-License-Identifier: Apache-2.0
"""One rule decides which process writes which file, however a recording is started; and runs are never mixed up."""
import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from test_console import wait_until

PY = "/usr/bin/python3"
WORK = """
import multiprocessing, os, sys, time
def go_on():
    return True
def work(seconds):  # of a processor, and until it is recorded
    import probing
    end = time.process_time() + seconds
    while time.process_time() < end or not go_on() or not probing.is_recording(): sum(range(999))
if __name__ == "__main__":
    child = multiprocessing.Process(target=work, args=(0.4,))
    child.start(); work(0.4); child.join()
"""
SEGMENTS = """
import os, sys, threading, time
exec("\\n".join("def f%d(n):\\n    return f%d(n - 1) if n else time.sleep(0.001)" % (i, (i * 7 + 3) % 1000) for i in range(1000)))
def work():
    for i in range(10 ** 9):
        globals()["f%d" % (i % 1000)](10 + i % 13)
threading.Thread(target=work, name="second", daemon=True).start()
print("up", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
"""
START = {"record": "", "PROBING=1": "", "enable": "import probing; probing.enable(sample_rate=0.01)\n"}


@pytest.fixture
def begin(build, tmp_path):
    """begin(how): starts the program, recorded in that way into trace.zst, and returns the Popen."""
    def do(how, code=WORK, **env):
        script = tmp_path / ("%s.py" % how.split("=")[0])
        script.write_text(START[how] + code)
        python = str(build.share / "python")
        env = dict(os.environ, PYTHONPATH=python, PROBING_SAMPLE_RATE="0.01", **env)
        cmd = [PY, str(script)]
        if how == "record":
            cmd = [build.tool("probing-record"), "-q"] + cmd
        elif how == "PROBING=1":  # as the .pth file does
            env["PROBING"] = "1"
            cmd = [PY, "-c", "import probing._start, runpy, sys\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')",
                   str(script)]
        return subprocess.Popen(cmd, cwd=str(tmp_path), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                universal_newlines=True)
    return do


def ended(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return out, err


def of(convert, sql, *traces):
    """Returns (runs, traces) that a question about these files would be about."""
    db = convert(*traces)
    return sql(db, "SELECT count(DISTINCT run), count(*) FROM trace")[0]


def test_at_one_instant(build, convert, sql, tmp_path):
    """Several launches that know nothing of each other name the same file: each gets a file of its own, complete, and no FILE.d. The trace
    of an earlier run is moved away once."""
    (tmp_path / "trace.zst").touch()
    cmd = [build.tool("probing-record"), "-q", PY, "-c", "import os; print(os.getpid())"]
    runs = [subprocess.Popen(cmd, cwd=str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True) for _ in range(6)]
    pids = sorted(int(ended(p)[0]) for p in runs)
    there = sorted(p.name for p in tmp_path.glob("trace*.zst*"))
    assert [n for n in there if n.endswith(".d")] == [], there
    traces = [p for p in tmp_path.glob("trace*.zst*") if p.stat().st_size]
    assert sorted(pid for pid, in sql(convert(*traces), "SELECT pid FROM trace WHERE end_reason IS NOT NULL")) == pids, there


@pytest.mark.parametrize("how", [pytest.param(how, marks=() if how == "record" else pytest.mark.slow) for how in START])
def test_one_after_the_other(begin, convert, sql, tmp_path, how):
    for n in range(3):
        ended(begin(how))
        assert of(convert, sql, tmp_path / "trace.zst") == (1, 2)
    assert of(convert, sql, tmp_path / "trace.zst.old") == of(convert, sql, tmp_path / "trace.zst.old.2") == (1, 2)
    assert sorted(p.name for p in tmp_path.glob("trace*")) == [
        "trace.zst", "trace.zst.d", "trace.zst.old", "trace.zst.old.2", "trace.zst.old.2.d", "trace.zst.old.d"]


@pytest.mark.parametrize("first, second", [("record", "PROBING=1"), ("PROBING=1", "enable"), ("enable", "record"),
                                           ("PROBING=1", "PROBING=1")])
def test_side_by_side(begin, convert, sql, tmp_path, first, second):
    one = begin(first, WORK.replace("return True", "return os.path.exists('go')"))
    end = time.monotonic() + 600
    while not (tmp_path / "trace.zst").exists() and time.monotonic() < end:
        time.sleep(0.02)
    two = begin(second)
    said = ended(two)[1]
    (tmp_path / "go").touch()
    ended(one)
    assert of(convert, sql, tmp_path / "trace.zst") == of(convert, sql, tmp_path / "trace-2.zst") == (1, 2)
    if second != "enable":  # which returns the path
        assert "trace-2.zst" in said and said.count("\n") == 1


def test_killed_runs_make_way_too(begin, convert, sql, tmp_path):
    """The trace that was moved also has what the killed process had not written yet."""
    process = begin("enable", "import os, signal, time\nprobing.event('last')\nos.kill(os.getpid(), signal.SIGKILL)\n")
    process.communicate(timeout=240)
    assert process.returncode == -signal.SIGKILL
    ended(begin("PROBING=1"))
    assert of(convert, sql, tmp_path / "trace.zst") == (1, 2)
    assert sql(convert(tmp_path / "trace.zst.old"), "SELECT name FROM events") == [("last",)]


@pytest.mark.parametrize("how, job", [pytest.param("record", {"TORCHELASTIC_RUN_ID": "abc"}, marks=pytest.mark.slow), ("PROBING=1", {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3"})])
def test_ranks_that_a_launcher_starts_by_themselves(begin, convert, sql, tmp_path, how, job):
    """srun probing-record ..., on several nodes that share a directory: one run, one FILE, and no process disturbs the others. So it is in
    the next job, when all of them find the files of the first."""
    there = ["trace.zst", "trace.zst.d"]
    for again in ("", "8"):
        ranks = [begin(how, RANK=str(r), WORLD_SIZE="3", **{name: value + again for name, value in job.items()}) for r in range(3)]
        for process in ranks:
            ended(process)
        assert sorted(p.name for p in tmp_path.glob("trace*")) == there
        db = convert(tmp_path / "trace.zst")
        name = "elastic:abc" + again if "TORCHELASTIC_RUN_ID" in job else "slurm:77%s.3%s" % (again, again)
        assert sql(db, "SELECT run, traces, processes, ranks FROM runs") == [(name, 6, 6, 3)]
        there += ["trace.zst.old", "trace.zst.old.d"]
    assert sql(convert(tmp_path / "trace.zst.old"), "SELECT traces FROM runs") == [(6,)]


def test_two_trainings_side_by_side_in_one_job(build, convert, sql, tmp_path):
    """A batch script that starts two launchers at once: each has ranks of its own, and their own address. The launchers' processes go with their ranks."""
    launcher = """
import os, subprocess, sys
env = lambda rank: dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
ranks = [subprocess.Popen([sys.executable, "-c", sys.argv[2]], env=env(r)) for r in range(2)]
sys.exit(max(p.wait() for p in ranks))
"""
    rank = "import os, time\nopen('up%s%s' % (os.environ['MASTER_PORT'], os.environ['RANK']), 'w')\nwhile len([n for n in os.listdir('.') if n[:2] == 'up']) < 4: time.sleep(0.01)\ntime.sleep(1)"
    jobs = [subprocess.Popen([build.tool("probing-record"), "-q", "-o", "./", PY, "-c", launcher, port, rank], cwd=str(tmp_path), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, universal_newlines=True, env=dict(os.environ, SLURM_JOB_ID="99")) for port in ("29601", "29602")]
    for job in jobs:
        ended(job)
    db = convert(tmp_path)
    assert sql(db, "SELECT count(*) FROM trace WHERE job = 'slurm:99'") == [(6,)]
    runs = sql(db, "SELECT run, traces, ranks FROM runs ORDER BY 1")
    assert [(r.split("@")[0], r.split(":")[-1], t, n) for r, t, n in runs] == [("slurm:99", "29601", 3, 2), ("slurm:99", "29602", 3, 2)], runs


def test_a_recording_that_is_given_twice_counts_once(begin, build, run, convert, sql, tmp_path):
    ended(begin("record"))
    shutil.copy(str(tmp_path / "trace.zst"), str(tmp_path / "copy.zst"))
    cut = (tmp_path / "trace.zst").read_bytes()
    (tmp_path / "earlier.zst").write_bytes(cut[:len(cut) * 2 // 3])
    want = sql(convert(tmp_path / "trace.zst"), "SELECT count(*), sum(count) FROM samples")
    for inputs in (["copy.zst", "trace.zst"], ["earlier.zst", "trace.zst", "copy.zst"], ["trace.zst", "earlier.zst"]):
        done = run([build.tool("probing-convert"), "-f"] + inputs + ["out.db"], cwd=str(tmp_path))
        assert "the same recording as" in done.stderr and "counted once" in done.stderr
        assert sql(tmp_path / "out.db", "SELECT count(*), sum(count) FROM samples") == want
    for copies, inputs in (1, "- trace.zst"), (1, "trace.zst -"), (2, "<(cat copy.zst) trace.zst -"):  # also what comes through pipes
        done = run(["bash", "-c", "cat earlier.zst | %s -f %s out.db" % (build.tool("probing-convert"), inputs)], cwd=str(tmp_path))
        assert done.stderr.count("counted once") == copies
        assert sql(tmp_path / "out.db", "SELECT count(*), sum(count) FROM samples") == want


def test_every_tool_tells_runs_apart(begin, build, run, spawn, sql, tmp_path):
    for how in ("record", "PROBING=1"):
        ended(begin(how))
    both = [tmp_path / "trace.zst", tmp_path / "trace.zst.old"]
    note = "2 runs"
    assert note in run([build.tool("probing-convert")] + both + [tmp_path / "both.db"]).stderr
    runs = sql(tmp_path / "both.db", "SELECT run, processes, started, ended > started, command FROM runs ORDER BY started")
    assert len(runs) == 2 and runs[0][0] != runs[1][0] and [r[1] for r in runs] == [2, 2] and "record.py" in runs[0][4]
    for source in ([tmp_path / "both.db"], both):
        assert note in run([build.tool("probing"), "flamegraph", "--folded"] + source).stderr
        assert note in run([build.tool("probing-query")] + source + ["SELECT count(*) FROM samples"]).stderr
    assert note not in run([build.tool("probing-query"), tmp_path / "trace.zst", "SELECT count(*) FROM samples"]).stderr
    assert note not in run([build.tool("probing-query"), tmp_path / "both.db", "SELECT run, count(*) FROM trace GROUP BY run"]).stderr


@pytest.mark.parametrize("first", ["there", "deleted"])
def test_the_job_of_a_trace_in_segments(build, run, spawn, tmp_path, first):
    """A trace that has gone on in a new file says whose it is only after copies of its dictionaries. A later process of the same job joins it all the
    same, even if the first segment is deleted by then; one of another job has it make way."""
    (tmp_path / "s.py").write_text(SEGMENTS)
    trace, record = tmp_path / "t.zst", [build.tool("probing-record"), "-q", "-r", "1000", "-o", tmp_path / "t.zst"]
    env = dict(os.environ, PROBING_SEGMENT_SIZE="64K", SLURM_JOB_ID="77")
    one = spawn(record + [sys.executable, tmp_path / "s.py", tmp_path / "end"], ready="up", env=env)
    wait_until(lambda: list(tmp_path.glob("t.zst.d/*.1.zst")))
    (tmp_path / "end").write_text("")
    one.communicate(timeout=240)
    inode = os.stat(str(trace)).st_ino
    if first == "deleted":
        for path in tmp_path.glob("t.zst.d/*"):
            path.unlink()
    before = len(list(tmp_path.glob("t.zst.d/*.zst")))
    run(record + [sys.executable, "-c", "print(1)"], env=env)
    assert os.stat(str(trace)).st_ino == inode and len(list(tmp_path.glob("t.zst.d/*.zst"))) == before + 1
    assert not list(tmp_path.glob("*.old*"))
    run(record + [sys.executable, "-c", "print(1)"], env=dict(env, SLURM_JOB_ID="78"))
    assert os.stat(str(tmp_path / "t.zst.old")).st_ino == inode


LAUNCHER = """import os, subprocess, sys
busy = "import sys, time; end = time.time() + 0.3\\nwhile time.time() < end: pass"
ranks = [subprocess.Popen([sys.executable, "-c", busy], env=dict(os.environ, RANK=str(r), WORLD_SIZE="2", TORCHELASTIC_RUN_ID="of-this-test")) for r in (0, 1)]
sys.exit(sum(r.wait() for r in ranks))
"""


def test_a_launcher_and_its_ranks_in_any_order(build, run, tmp_path):
    """They are one run, though only the ranks say what the launcher's job is."""
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    run([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", sys.executable, tmp_path / "launcher.py"])
    traces = [str(tmp_path / "t.zst")] + sorted(str(p) for p in (tmp_path / "t.zst.d").iterdir())
    assert len(traces) == 3
    for n, order in enumerate(itertools.permutations(traces)):
        db = tmp_path / ("%d.db" % n)
        for trace in order:
            run([build.tool("probing-convert"), "-q", "--append", "--alone", trace, db])
        with sqlite3.connect(str(db)) as c:
            assert c.execute("SELECT DISTINCT run FROM trace").fetchall() == [("elastic:of-this-test",)], order


@pytest.mark.pythons(count=1)
def test_run_in_a_container(build, run, python, convert, sql, tmp_path):
    """Two containers with the host's name may start at the same moment, each with a process 1: their runs are two all the same."""
    if os.getuid() or run(["unshare", "-p", "-f", "--mount-proc", "true"], check=None).returncode:
        pytest.skip("unshare -p --mount-proc is not permitted here")
    inside = "stat -L -c %i /proc/self/ns/pid; exec \"$@\""
    for name in ("a", "b"):
        trace = tmp_path / (name + ".zst")
        done = run(["unshare", "-p", "-f", "--mount-proc", "sh", "-c", inside, "sh", build.tool("probing-record"), "-q", "-o", trace,
                    python.path, "-c", "pass"])
        assert sql(convert(trace), "SELECT run FROM trace")[0][0].split("-")[-3:][::2] == ["1", done.stdout.strip()]
