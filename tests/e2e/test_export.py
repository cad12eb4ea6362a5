# SPDX-License-Identifier: Apache-2.0
"""`probing export --format F`: the sums of what other viewers are given are those of SQL.

The recording is a simulated job (tests/fleet), whose samples, steps, modules and collectives do not depend on this machine.
"""
import contextlib
import csv
import io
import json
import os
import shutil
import sqlite3
import subprocess

import pytest


@pytest.fixture(scope="module")
def job(build, tmp_path_factory):
    """(folder of traces, their database) of four ranks on two machines."""
    out = tmp_path_factory.mktemp("export")
    subprocess.run([str(build.root / "tests/fleet/probing-fleet"), "--quiet", "--out", str(out / "job"), "--nodes", "2", "--ranks", "4",
                    "--minutes", "0.3", "--hz", "20"], check=True, timeout=240)
    subprocess.run([build.tool("probing"), "convert", "-q", str(out / "job"), str(out / "job.db")], check=True, timeout=240)
    return out / "job", out / "job.db"


HOSTILE = [b'"%d\\', b"a\nb%d", b"\r%d", b"\xff\xfe%d", b"</script><script>%d", b"\x1b]0;x\x07%d", b"a;b %d", b" %d ", "\u202e\u2028%d".encode(),
           b"\xed\xa0\x80%d", b"--><!--%d", b"n" * 3000 + b"%d", b"%d,\t'", "\u009b31m%d".encode(), "\u2067%d\u200f".encode(), b"<img src=x onerror=alert(1)>%d", b"| a | `%d`", b"\x7f\x08%d",
           "\ufeff%d".encode()]


@pytest.fixture(scope="module")
def hostile(job, tmp_path_factory):
    """The job with names that try to break out of the text around them, and with rows of the kinds that it lacks."""
    path = tmp_path_factory.mktemp("hostile") / "hostile.db"
    shutil.copy(str(job[1]), str(path))
    db = sqlite3.connect(str(path))
    nth = iter(range(10 ** 9))

    def name():
        i = next(nth)
        return sqlite3.Binary(HOSTILE[i % len(HOSTILE)] % i)
    first = db.execute("SELECT first_id, start_ts, pid FROM trace_file ORDER BY id LIMIT 1").fetchone()
    for i in range(3 * len(HOSTILE)):
        key, ts = first[0] + 10 ** 9 + i, first[1] + i * 10 ** 6
        db.execute("INSERT INTO span VALUES(?, ?, NULL, ?, CAST(? AS TEXT))", (key, ts, first[2], name()))
        if i % 7:
            db.execute("INSERT INTO span_end VALUES(?, ?, ?)", (key, ts + 5 * 10 ** 6, i % 2))
        db.execute("INSERT INTO trigger_event VALUES(?, ?, 'exception', ?, -1, NULL, CAST(? AS TEXT), CAST(? AS TEXT))", (key, ts, first[2], name(), name()))
        db.execute("INSERT INTO event VALUES(?, ?, NULL, 1, ?, CAST(? AS TEXT))", (key, ts, first[2], name()))
        db.execute("INSERT INTO event_value VALUES(?, ?, CAST(? AS TEXT), CAST(? AS TEXT))", (key, key, sqlite3.Binary(b"k%d" % i), name()))
        db.execute("INSERT INTO variable VALUES(?, ?, 1, 0, 'f', CAST(? AS TEXT), ?)", (key, ts, name(), i + 0.5))
    for table, column in (("function", "name"), ("function", "file"), ("function", "module"), ("thread", "name"), ("trace_file", "command"),
                          ("trace_file", "host"), ("torch_module", "name"), ("torch_module", "type"), ("event", "name"), ("comm", "op"), ("comm", "dtype")):
        for (key,) in db.execute("SELECT rowid FROM %s WHERE %s IS NOT NULL" % (table, column)).fetchall():
            db.execute("UPDATE %s SET %s = CAST(? AS TEXT) WHERE rowid = ?" % (table, column), (name(), key))
    db.execute("UPDATE process_group SET name = CAST(? AS TEXT)", (name(),))
    db.commit()
    db.close()
    return path


def obeyed(text):
    """Characters that a terminal obeys instead of showing them: control characters, also those above 0x7f, and those that change the
    direction of writing."""
    return {c for c in text if (c < " " and c not in "\n\t") or "\x7f" <= c < "\xa0" or c in "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\ufeff"
            or "\u2066" <= c <= "\u2069"}


def safe(text, page=True):
    """Checks that the text has nothing that a terminal, or a page, would obey."""
    return not obeyed(text) and not (page and ("</script" in text or "<!--" in text))


@pytest.fixture
def export(build, run):
    """export(FORMAT, options..., paths...): returns its standard output, or with stderr=True its messages."""
    def call(form, *args, check=True, stderr=False):
        done = run([build.tool("probing"), "export", "--format", form] + [str(a) for a in args], check=check)
        return done.stderr if stderr else done.stdout
    return call


def collapsed(text):
    """Returns {stack: ticks} of collapsed lines, each of which is a different stack."""
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
    """The filters have the same effect on a database, on its traces, and in SQL."""
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
    shutil.copy(str(next(job[0].rglob("*.zst"))), str(tmp_path / "other.zst"))  # a slip of the hand that must not overwrite a trace
    sqlite3.connect(str(tmp_path / "other.db")).execute("CREATE TABLE t(a)")
    for other in tmp_path / "other.zst", tmp_path / "other.db":
        before = other.read_bytes()
        assert "a trace and a database never are" in run(tool + ["-f", "--format", "collapsed", "-o", other, job[1]], check=3).stderr
        assert other.read_bytes() == before != b""
    # If the disk is full, no half file is left, and the old file remains.
    before = out.read_bytes()
    said = subprocess.run(["bash", "-c", "ulimit -f 8; exec \"$0\" \"$@\""] + [str(a) for a in tool + ["-f", "-q", "-o", out, job[1]]],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240)
    assert said.returncode == 3 and b"cannot write" in said.stderr and said.stderr.count(b"\n") == 1
    assert out.read_bytes() == before and [p.name for p in tmp_path.glob("job.coll*")] == [out.name]
    # If the reader closes the pipe early, the tool ends.
    said = subprocess.run(["bash", "-o", "pipefail", "-c", "\"$0\" \"$@\" | head -c 1"] + [str(a) for a in tool + ["--format", "collapsed", job[1]]],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240)
    assert said.stdout == whole[:1]


def test_what_is_wrong(job, build, run, tmp_path):
    tool = [build.tool("probing"), "export"]
    for args, code, says in ((["--format", "nonsense", job[1]], 2, "--format nonsense: it is "), ([job[1]], 2, "say what to write"),
                             (["--format", "collapsed"], 2, "name the traces"), (["--format", "collapsed", "--ranks", "1-", job[1]], 2, "--ranks 1-"),
                             (["--format", "collapsed", "--ranks", "9", job[1]], 1, "no process fits"),
                             (["--format", "collapsed", "--from", "noon", job[1]], 2, "--from noon"),
                             (["--format", "collapsed", "--parquet", "x", job[1]], 2, "leave out --format"),
                             (["--format", "collapsed", tmp_path / "none.zst"], 3, "none.zst")):
        done = run(tool + args, check=code)
        assert says in done.stderr and done.stderr.count("\n") == 1 and not done.stdout, args


def test_collapsed_hostile(hostile, export, sql):
    text = export("collapsed", hostile)
    sums = collapsed(text)
    assert sum(sums.values()) == sql(hostile, "SELECT sum(count) FROM sample")[0][0] and safe(text, page=False)
    # each line has process;thread and one part for each frame: no name was split in two
    depths = {d for d, in sql(hostile, "SELECT DISTINCT depth FROM stack JOIN sample ON stack.id = stack")}
    assert {s.count(";") + 1 - 2 for s in sums} <= depths | {1}


def test_rows(job, export, sql):
    rows = list(csv.DictReader(io.StringIO(export("csv", job[1]), newline="")))
    lines = [json.loads(line) for line in export("jsonl", job[1]).splitlines()]
    n, ticks = sql(job[1], "SELECT count(*), sum(count) FROM samples")[0]
    assert len(rows) == len(lines) == n and sum(int(r["count"]) for r in rows) == sum(r["count"] for r in lines) == ticks
    assert [r["func"] or None for r in rows] == [r["func"] for r in lines] and rows[0].keys() == lines[0].keys()
    assert [float(r["timestamp"]) for r in rows] == [r["timestamp"] for r in lines]
    steps = [json.loads(line) for line in export("jsonl", "--table", "steps", "--ranks", "2", job[1]).splitlines()]
    assert [(s["step"], s["duration"]) for s in steps] == sql(job[1], "SELECT step, duration FROM steps WHERE rank = 2")
    assert "no processes" in export_wrong(export, "--table", "hot_functions", "--ranks", "0", job[1])
    assert "no such view" in export_wrong(export, "--table", "nowhere", job[1])
    assert len(export("jsonl", "--table", "hot_functions", job[1]).splitlines()) == sql(job[1], "SELECT count(*) FROM hot_functions")[0][0]


def export_wrong(export, *args):
    """Returns the message for a wrong usage."""
    return export("csv", *args, check=2, stderr=True)


def test_rows_hostile(hostile, build, export):
    """CSV returns the exact bytes, JSON everything that is text."""
    db = sqlite3.connect("file:%s?mode=ro" % hostile, uri=True)
    db.text_factory = bytes
    want = db.execute("SELECT func, file, thread FROM samples").fetchall()
    done = subprocess.run([build.tool("probing"), "export", "--format", "csv", str(hostile)], stdout=subprocess.PIPE, check=True, timeout=240)
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode(errors="surrogateescape"), newline="")))
    got = [tuple(r[c].encode(errors="surrogateescape") for c in ("func", "file", "thread")) for r in rows]
    assert got == [tuple(v or b"" for v in w) for w in want]
    lines = [json.loads(line) for line in export("jsonl", hostile).split("\n") if line]
    assert len(lines) == len(want)
    for line, (func, file, thread) in zip(lines, want):
        try:
            assert func is None or line["func"] == func.decode()
        except UnicodeDecodeError:
            assert "\ufffd" in line["func"]


def test_nothing_stays_of_an_export_that_was_killed(build, simulated_job, tmp_path):
    """kill -9 while it writes its file."""
    db, folder = simulated_job("--seed", 1) / "out.db", tmp_path / "out"
    folder.mkdir()

    def writes(pid):
        with contextlib.suppress(OSError):  # what is closed just now
            return any(os.readlink("/proc/%d/fd/%s" % (pid, fd)).startswith(str(folder)) for fd in os.listdir("/proc/%d/fd" % pid))
        return False

    for _ in range(100):  # one that was over before it was seen to write, or killed, is no test of this
        export = subprocess.Popen([build.tool("probing"), "export", "-q", "--format", "jsonl", "-o", folder / "rows.jsonl", db])
        while export.poll() is None and not writes(export.pid):
            pass
        export.kill()
        if export.wait() == -9:
            break
        (folder / "rows.jsonl").unlink()
    assert export.returncode == -9 and not os.listdir(str(folder)), (export.returncode, os.listdir(str(folder)))
