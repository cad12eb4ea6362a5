# SPDX-License-Identifier: Apache-2.0
"""probing-convert --threads: several threads prepare the traces, and the database is the same, row by row, number by number."""
import os
import sqlite3
import subprocess

import pytest

from test_fleet import fleet  # noqa: F401


def all_rows(path):
    """Returns {table: its rows in the order of insertion}."""
    c = sqlite3.connect("file:%s?mode=ro" % path, uri=True)
    names = [n for n, in c.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_stat%'")]
    rows = {n: c.execute('SELECT * FROM "%s"' % n).fetchall() for n in names}
    c.close()
    return rows


@pytest.fixture
def inputs(fleet, tmp_path):  # noqa: F811
    """Traces of many kinds: whole, joined in one file, cut off; and files that are no traces."""
    out, _ = fleet("job", "--ranks", 8, "--nodes", 2, "--minutes", 0.3, "--hz", 100, "--vary", 3)
    traces = sorted(os.path.join(d, f) for d, _, files in os.walk(str(out)) for f in files if f.endswith(".zst"))
    joined, cut, none, empty = [str(tmp_path / n) for n in ("joined.zst", "cut.zst", "none.zst", "empty.zst")]
    blobs = [open(t, "rb").read() for t in traces]
    open(joined, "wb").write(blobs[1] + blobs[2] + blobs[3])
    open(cut, "wb").write(blobs[5][:len(blobs[5]) * 2 // 3])
    open(none, "wb").write(b"no trace at all")
    open(empty, "wb").close()
    return [traces[0], joined, none, cut, empty, traces[4], traces[6], traces[7]]


def test_the_rows_do_not_depend_on_the_number_of_threads(inputs, build, run, tmp_path):
    tool = build.tool("probing-convert")
    found = []
    for n in (1, 2, 3, 16):
        db = str(tmp_path / ("%d.db" % n))
        done = run([tool, "--threads", str(n), *inputs, db], check=False)
        assert done.returncode == 1, done.stderr  # inputs that could not be used are reported
        found.append((all_rows(db), [line for line in done.stderr.splitlines() if ".zst: " in line]))
    rows, said = found[0]
    assert len(rows["trace_file"]) == 8 and len(said) == 3 and len(rows["sample"]) > 8 * 1000
    for other, other_said in found[1:]:
        assert other_said == said
        assert [t for t in rows if rows[t] != other[t]] == []


@pytest.mark.slow
def test_the_same_when_they_are_added_and_in_part(inputs, build, run, tmp_path):
    tool = build.tool("probing-convert")
    found = []
    for n in (1, 4):
        db, part = str(tmp_path / ("a%d.db" % n)), str(tmp_path / ("p%d.db" % n))
        for some in (inputs[:2], inputs):
            run([tool, "-q", "-a", "--threads", str(n), *some, db], check=False)
        run([tool, "-q", "--last", "5s", "--only", "samples,comm", "--threads", str(n), *inputs, part], check=False)
        found.append((all_rows(db), all_rows(part)))
    assert found[0] == found[1]
    assert len(found[0][0]["trace_file"]) == 8 and len(found[0][1]["sample"]) > 1000


def test_what_comes_through_a_pipe_is_read_once_and_in_its_turn(inputs, build, tmp_path):
    """Threads open files ahead of their turn, but a pipe can be read only once."""
    tool, found = str(build.tool("probing-convert")), []
    for n, word in enumerate((inputs[5], "-")):
        db = str(tmp_path / ("%d.db" % n))
        with open(inputs[5], "rb") as trace:
            subprocess.run([tool, "-q", "--last", "6s", *inputs[:5], word, *inputs[6:], db], input=trace.read(), timeout=240,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        rows = all_rows(db)
        assert [row[1] for row in rows["trace_file"]].count(word) == 1
        rows["trace_file"] = [row[:1] + row[2:] for row in rows["trace_file"]]
        found.append(rows)
    assert len(found[0]["trace_file"]) == 8 and [t for t in found[0] if found[0][t] != found[1][t]] == []


@pytest.mark.parametrize("bad", ["0", "65", "-1", "two", ""])
def test_a_number_of_threads_that_makes_no_sense(bad, inputs, build, run, tmp_path):
    done = run([build.tool("probing-convert"), "--threads", bad, inputs[0], str(tmp_path / "o.db")], check=False)
    assert done.returncode == 2 and "--threads" in done.stderr and "1 to 64" in done.stderr
