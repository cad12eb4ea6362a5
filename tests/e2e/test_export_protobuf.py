# SPDX-License-Identifier: Apache-2.0
"""`probing export` in formats of Protocol Buffers: read back by their published field numbers, here by hand, and by those whose formats
they are where these can be had; the sums are SQL's.
"""
import functools
import gzip
import pathlib
import re
import shutil
import sqlite3
import subprocess

import pytest

import test_export
from wire import message, one, packed

job = test_export.job
REPO = pathlib.Path(__file__).resolve().parents[2]

STEP_OF = """(SELECT p.step FROM steps p WHERE p.trace_id = s.trace_id AND p.step IS NOT NULL
    AND s.timestamp >= p.timestamp AND s.timestamp < coalesce(p.end, 1e18) ORDER BY p.timestamp DESC LIMIT 1)"""


@pytest.fixture
def export(build, run):
    """export(FORMAT, options..., paths...) -> the bytes of its standard output."""
    def call(form, *args):
        return run([build.tool("probing"), "export", "--format", form, "-q"] + [str(a) for a in args], binary=True).stdout
    return call


@pytest.fixture(scope="module")
def hostile(job, tmp_path_factory):
    """The job with names that are no UTF-8, play with a terminal or are very long."""
    path = tmp_path_factory.mktemp("hostile") / "hostile.db"
    shutil.copy(str(job[1]), str(path))
    names = [b"\xff\xfe\x00"[:2] + b"%d", b"\x1b]0;title\x07\x1b[31m%d", b"\xed\xa0\x80%d", b"<script>alert(%d)</script>", "\u202e%d".encode(),
             b"a\nb%d", b"n" * 70000 + b"%d"]
    db = sqlite3.connect(str(path))
    for table, column in (("function", "name"), ("function", "file"), ("thread", "name"), ("trace_file", "command"), ("trace_file", "host"),
                          ("torch_module", "name"), ("process_group", "name"), ("variable", "name")):
        for (key,) in db.execute("SELECT rowid FROM %s" % table if table != "process_group" else "SELECT trace FROM process_group").fetchall():
            value = names[key % len(names)] % key
            where = "trace" if table == "process_group" else "rowid"
            db.execute("UPDATE %s SET %s = CAST(? AS TEXT) WHERE %s = ?" % (table, column, where), (sqlite3.Binary(value), key))
    db.commit()
    db.close()
    return path


def is_shown(text):
    return all(c in "\n\t" or (c.isprintable() and c != "\u202e") or c == "\ufffd" for c in text)


# ---- pprof: field numbers of proto/profile.proto of github.com/google/pprof ----

class Profile:
    """A profile as pprof has it. samples: ([names of functions, the innermost first], [values], {label: str or int})"""

    def __init__(self, data):
        m = message(gzip.decompress(data))
        self.strings = [s.decode() for s in m[6]]
        assert self.strings[0] == "" and len(set(self.strings)) == len(self.strings)
        text = self.text = lambda place: self.strings[place]
        self.types = [(text(one(message(t), 1)), text(one(message(t), 2))) for t in m[1]]
        self.default = text(one(m, 14))
        self.time, self.duration = one(m, 9), one(m, 10)
        self.mapping = {one(x, 1): (text(one(x, 5)), text(one(x, 6))) for x in map(message, m.get(3, []))}
        self.function = {one(x, 1): (text(one(x, 2)), text(one(x, 4)), one(x, 5)) for x in map(message, m.get(5, []))}
        self.location = {}
        for x in map(message, m.get(4, [])):
            line = message(one(x, 4))
            assert one(x, 2) in self.mapping or one(x, 2) == 0
            self.location[one(x, 1)] = (self.function[one(line, 1)], one(line, 2), one(x, 2))
        assert len(self.location) == len(m.get(4, [])) and len(self.function) == len(m.get(5, [])) and 0 not in self.location
        self.samples = []
        for x in map(message, m.get(2, [])):
            labels = {}
            for label in map(message, x.get(3, [])):
                assert not (2 in label and 3 in label)
                labels[text(one(label, 1))] = text(one(label, 2)) if 2 in label else one(label, 3)
            values = packed(x[2])
            assert len(values) == len(self.types)
            self.samples.append(([self.location[i] for i in packed(x.get(1, []))], values, labels))

    def sums(self, key, value):
        """{key(stack, labels): sum of value(values)}"""
        out = {}
        for stack, values, labels in self.samples:
            k = key(stack, labels)
            out[k] = out.get(k, 0) + values[value]
        return out


def test_pprof(job, export, sql):
    p = Profile(export("pprof", job[1]))
    assert p.types == [("samples", "count"), ("cpu", "nanoseconds"), ("wall", "nanoseconds")] and p.default == "cpu"
    rows = sql(job[1], "SELECT sum(count), sum(CASE state WHEN 'running' THEN seconds ELSE 0 END), sum(seconds) FROM samples")[0]
    assert [sum(v[i] for _, v, _ in p.samples) for i in range(3)] == [rows[0], round(rows[1] * 1e9), round(rows[2] * 1e9)] and rows[0] > 0
    # By the innermost frame, by labels
    want = sql(job[1], "SELECT func, lineno, sum(count) FROM samples WHERE stack_id IS NOT NULL GROUP BY 1, 2")
    assert p.sums(lambda stack, _: (stack[0][0][0], stack[0][1] or None), 0) == {(f, line): n for f, line, n in want}
    assert p.sums(lambda _, labels: (labels["rank"], labels["pid"], labels["tid"]), 0) == {
        (r, pid, tid): n for r, pid, tid, n in sql(job[1], "SELECT rank, pid, tid, sum(count) FROM samples GROUP BY 1, 2, 3")}
    steps = p.sums(lambda _, labels: (labels["rank"], labels.get("step")), 0)
    assert steps == {(r, step): n for r, step, n in sql(job[1], "SELECT rank, %s, sum(count) FROM samples s GROUP BY 1, 2" % STEP_OF)}
    assert len(steps) > 100
    # Whole stacks, and where their functions are
    stacks = {tuple(f[0] for f, _, _ in stack) for stack, _, _ in p.samples}
    for (stack,) in sql(job[1], "SELECT DISTINCT stack FROM sample WHERE stack IS NOT NULL"):
        names = sql(job[1], "SELECT f.name FROM stack_frame s JOIN frame r ON r.id = s.frame JOIN function f ON f.id = r.function"
                            " WHERE s.stack = ? ORDER BY s.depth", stack)
        assert tuple(n for n, in names) in stacks
    of = {(f, m) for stack, _, _ in p.samples for f, _, m in stack}
    for (name, file, line), m in of:
        assert sql(job[1], "SELECT count(*) FROM function WHERE name = ? AND coalesce(firstline, 0) = ? AND coalesce(module, '') = ?",
                   name, line, p.mapping.get(m, ("",))[0])[0][0], (name, file, line, m)
    assert p.mapping[1][0] == sql(job[1], "SELECT exe FROM trace")[0][0]
    ids = dict(sql(job[1], "SELECT path, max(build_id) FROM modules_loaded GROUP BY 1"))
    assert dict(p.mapping.values()) == {path: ids.get(path) or "" for path, _ in p.mapping.values()} and any(v for _, v in p.mapping.values())
    first, last = sql(job[1], "SELECT min(start_ts), max(end_ts) FROM trace_file")[0]
    assert (p.time, p.duration) == (first, last - first)


def test_pprof_part(job, export, sql, tmp_path, run, build):
    p = Profile(export("pprof", "--ranks", "1,3", "--from", "+5s", "--to", "+9s", job[1]))
    first = sql(job[1], "SELECT min(start) FROM trace")[0][0]
    want = sql(job[1], "SELECT rank, sum(count) FROM samples WHERE rank IN (1, 3) AND timestamp BETWEEN ? AND ? GROUP BY 1", first + 5, first + 9)
    assert p.sums(lambda _, labels: labels["rank"], 0) == dict(want)
    run([build.tool("probing"), "export", "-q", "-o", "job.pb.gz", job[1]])
    assert (tmp_path / "job.pb.gz").read_bytes() == export("pprof", job[1])
    empty = Profile(export("pprof", "--to", "2001-01-01T00:00:00", job[1]))  # no samples, and still a profile
    assert not empty.samples and empty.types == p.types


def test_pprof_hostile(hostile, export, sql):
    p = Profile(export("pprof", hostile))
    assert all(map(is_shown, p.strings)) and max(map(len, p.strings)) > 70000
    assert sum(v[0] for _, v, _ in p.samples) == sql(hostile, "SELECT sum(count) FROM sample")[0][0]


@functools.lru_cache(None)
def go_pprof():
    done = subprocess.run([str(REPO / ".ci" / "go-pprof.sh")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    return done.stdout.strip(), done.stderr.strip()


@pytest.mark.slow
def test_go_pprof(job, export, sql, tmp_path):
    """Its table of functions is ours."""
    tool, why = go_pprof()
    if not tool:
        pytest.skip(why)
    (tmp_path / "job.pb.gz").write_bytes(export("pprof", job[1]))

    def top(index, *options):
        out = subprocess.check_output([tool, "-top", "-unit=ms" if index != "samples" else "-unit=count", "-nodefraction=0", "-nodecount=100000",
                                       "-sample_index=" + index] + list(options) + [str(tmp_path / "job.pb.gz")], universal_newlines=True)
        rows = re.findall(r"^\s*([\d.]+)(?:ms)?\s+[\d.]+%\s+[\d.]+%\s+([\d.]+)(?:ms)?\s+[\d.]+%\s+(.*)$", out, re.M)
        return {name: (float(flat), float(cum)) for flat, cum, name in rows}, out

    for index, own, total in (("samples", "self", "total"), ("wall", "seconds * 1e3", "total_seconds * 1e3"), ("cpu", "on_cpu * 1e3", None)):
        table, _ = top(index)
        want = sql(job[1], "SELECT func, sum(%s), sum(%s) FROM hot_functions GROUP BY 1 HAVING count(*) = 1" % (own, total or "NULL"))
        shown = 0
        for name, flat, cum in want:
            mine = table.get(re.sub(r"\(.*", "", name) if name not in table else name)
            if mine is None or "(" in name or "<" in name: # pprof writes names of templates and operators in its own way
                continue
            shown += 1
            assert mine[0] == pytest.approx(flat, abs=0.01) and (total is None or mine[1] == pytest.approx(cum, abs=0.01)), name
        assert shown > 100
    ran, out = top("wall", "-tagfocus=rank=3")
    assert sum(flat for flat, _ in ran.values()) == pytest.approx(
        1e3 * sql(job[1], "SELECT sum(seconds) FROM samples WHERE rank = 3 AND stack_id IS NOT NULL")[0][0], abs=1)
    assert "Build ID: " in out
