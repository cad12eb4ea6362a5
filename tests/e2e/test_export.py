# SPDX-License-Identifier: Apache-2.0
"""`probing export --format F`: what other viewers are given adds up to what SQL adds up.

The recording is a simulated job (tests/fleet), whose samples, steps, modules and collectives do not depend on this machine.
"""
import subprocess

import pytest


@pytest.fixture(scope="module")
def job(build, tmp_path_factory):
    """(folder of traces, their database) of four ranks on two machines."""
    out = tmp_path_factory.mktemp("export")
    subprocess.run([str(build.root / "tests/fleet/probing-fleet"), "--quiet", "--out", str(out / "job"), "--nodes", "2", "--ranks", "4",
                    "--minutes", "0.3", "--hz", "20"], check=True, timeout=120)
    subprocess.run([build.tool("probing"), "convert", "-q", str(out / "job"), str(out / "job.db")], check=True, timeout=120)
    return out / "job", out / "job.db"


@pytest.fixture
def export(build, run):
    """export(FORMAT, options..., paths...) -> its standard output."""
    def call(form, *args, check=True):
        return run([build.tool("probing"), "export", "--format", form] + [str(a) for a in args], check=check).stdout
    return call


def collapsed(text):
    """{stack: ticks} of collapsed lines; every line is one."""
    sums = {}
    for line in text.splitlines():
        stack, ticks = line.rsplit(" ", 1)
        sums[stack] = sums.get(stack, 0) + int(ticks)
    return sums


def test_collapsed(job, export, sql):
    sums = collapsed(export("collapsed", job[1]))
    assert sum(sums.values()) == sql(job[1], "SELECT sum(count) FROM samples")[0][0] > 0
    roots = {}
    for stack, ticks in sums.items():
        root = stack.split(";")[0]
        roots[root] = roots.get(root, 0) + ticks
    want = sql(job[1], "SELECT rank, pid, sum(count) FROM samples GROUP BY trace_id")
    assert {int(r.split(":")[0].split()[1]): n for r, n in roots.items()} == {rank: n for rank, _, n in want}
    # By the innermost function, as the view has it
    inner = {}
    for stack, ticks in sums.items():
        name = stack.split(";")[-1].rsplit(" (", 1)[0]
        inner[name] = inner.get(name, 0) + ticks
    want = dict(sql(job[1], "SELECT replace(func, ';', ':'), sum(count) FROM samples WHERE stack_id IS NOT NULL GROUP BY 1"))
    assert {k: v for k, v in inner.items() if k in want} == want
    python = collapsed(export("collapsed", "--python", job[1]))
    assert sum(python.values()) == sum(sums.values()) and not any("libc" in s for s in python)
    running = collapsed(export("collapsed", "--cpu", job[1]))
    assert sum(running.values()) == sql(job[1], "SELECT sum(count) FROM samples WHERE state = 'running'")[0][0]


@pytest.mark.parametrize("part", [["--ranks", "1,3"], ["--ranks", "0-2", "--from", "+5s", "--to", "+9s"], ["--last", "4s"]], ids=" ".join)
def test_filters(part, job, export, sql):
    """The same of a database and of its traces, and of SQL."""
    first, last = sql(job[1], "SELECT min(start), max(end) FROM trace")[0]
    ranks = {"1,3": (1, 3), "0-2": (0, 1, 2)}.get(part[1], (0, 1, 2, 3))
    lo = first + 5 if "--from" in part else last - 4 if "--last" in part else first
    hi = first + 9 if "--to" in part else last
    want = sql(job[1], "SELECT sum(count) FROM samples WHERE rank IN (%s) AND timestamp BETWEEN ? AND ?" % ",".join(map(str, ranks)), lo, hi)[0][0]
    of_database = collapsed(export("collapsed", *part, job[1]))
    assert sum(of_database.values()) == want > 0
    assert collapsed(export("collapsed", *part, job[0])) == of_database


def test_output(job, build, run, tmp_path):
    tool = [build.tool("probing"), "export"]
    out = tmp_path / "job.collapsed"
    run(tool + ["-o", out, job[1]])
    whole = out.read_bytes()
    assert whole == run(tool + ["--format", "collapsed", "-o", "-", job[1]]).stdout.encode()
    assert "-f replaces it" in run(tool + ["-o", out, job[1]], check=3).stderr
    run(tool + ["-f", "-o", out, "--ranks", "0", job[1]])
    assert 0 < out.stat().st_size < len(whole)
    assert "is one of the inputs" in run(tool + ["-f", "--format", "collapsed", "-o", job[1], job[1]], check=3).stderr
    # A full disk leaves no half of a file, and what was there stays.
    before = out.read_bytes()
    said = subprocess.run(["bash", "-c", "ulimit -f 8; exec \"$0\" \"$@\""] + [str(a) for a in tool + ["-f", "-q", "-o", out, job[1]]],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    assert said.returncode == 3 and b"cannot write" in said.stderr and said.stderr.count(b"\n") == 1
    assert out.read_bytes() == before and [p.name for p in tmp_path.glob("job.coll*")] == [out.name]
    # A reader that goes early ends it.
    said = subprocess.run(["bash", "-o", "pipefail", "-c", "\"$0\" \"$@\" | head -c 1"] + [str(a) for a in tool + ["--format", "collapsed", job[1]]],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    assert said.stdout == whole[:1]


def test_what_is_wrong(job, build, run, tmp_path):
    tool = [build.tool("probing"), "export"]
    for args, code, says in ((["--format", "nonsense", job[1]], 2, "--format nonsense: it is collapsed"), ([job[1]], 2, "say what to write"),
                             (["--format", "collapsed"], 2, "name the traces"), (["--format", "collapsed", "--ranks", "1-", job[1]], 2, "--ranks 1-"),
                             (["--format", "collapsed", "--ranks", "9", job[1]], 1, "no process fits"),
                             (["--format", "collapsed", "--from", "noon", job[1]], 2, "--from noon"),
                             (["--format", "collapsed", "--parquet", "x", job[1]], 2, "leave out --format"),
                             (["--format", "collapsed", tmp_path / "none.zst"], 3, "none.zst")):
        done = run(tool + args, check=code)
        assert says in done.stderr and done.stderr.count("\n") == 1 and not done.stdout, args
