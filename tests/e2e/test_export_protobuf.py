# SPDX-License-Identifier: Apache-2.0
"""`probing export` in formats of Protocol Buffers, read back by the published field numbers, both by code of this test and by the programs
whose formats they are, if these can be installed. The sums must be those of SQL.
"""
import bisect
import functools
import gzip
import json
import pathlib
import re
import shutil
import sqlite3
import struct
import subprocess

import pytest

import engine_helpers
import test_export
from wire import fields, message, one, packed

job = test_export.job
REPO = pathlib.Path(__file__).resolve().parents[2]

@pytest.fixture
def export(build, run):
    """export(FORMAT, options..., paths...) -> the bytes of its standard output."""
    def call(form, *args):
        return run([build.tool("probing"), "export", "--format", form, "-q"] + [str(a) for a in args], binary=True).stdout
    return call


@pytest.fixture(scope="module")
def hostile(job, tmp_path_factory):
    """The job with names that are not UTF-8, contain terminal escapes or are very long."""
    path = tmp_path_factory.mktemp("hostile") / "hostile.db"
    shutil.copy(str(job[1]), str(path))
    names = [b"\xff\xfe\x00"[:2] + b"%d", b"\x1b]0;title\x07\x1b[31m%d", b"\xed\xa0\x80%d", b"<script>alert(%d)</script>", "\u202e%d".encode(),
             b"a\nb%d", b"n" * 5000 + b"%d"]
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
    return "\u202e" not in text and re.sub("[\n\t\ufffd\u00ad]", "", text).isprintable()


# ---- pprof: field numbers of proto/profile.proto of github.com/google/pprof ----

class Profile:
    """A profile as pprof sees it. samples: ([names of functions, innermost first], [values], {label: str or int})"""

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
        """Returns {key(stack, labels): sum of value(values)}."""
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
    want = {}
    for rank in range(4):
        steps = sql(job[1], "SELECT s.ts, s.ts + coalesce(s.duration, 1 << 60), s.number FROM trace_file t JOIN torch_step s"
                            " ON s.id BETWEEN t.first_id AND t.last_id WHERE t.rank = ? AND s.source <> 3 ORDER BY 1", rank)
        for ts, count in sql(job[1], "SELECT s.ts, s.count FROM trace_file t JOIN sample s ON s.id BETWEEN t.first_id AND t.last_id WHERE t.rank = ?", rank):
            before = [number for start, end, number in steps[max(0, bisect.bisect(steps, (ts, 1 << 62)) - 1):][:1] if start <= ts < end]
            key = (rank, before[0] if before else None)
            want[key] = want.get(key, 0) + count
    assert p.sums(lambda _, labels: (labels["rank"], labels.get("step")), 0) == want and len(want) > 100
    # Whole stacks, and the places of their functions
    stacks = {tuple(f[0] for f, _, _ in stack) for stack, _, _ in p.samples}
    want = {}
    for stack, name in sql(job[1], "SELECT s.stack, f.name FROM stack_frame s JOIN frame r ON r.id = s.frame JOIN function f ON f.id = r.function"
                                   " WHERE s.stack IN (SELECT stack FROM sample WHERE count > 0) ORDER BY s.stack, s.depth"):
        want.setdefault(stack, []).append(name)
    assert {tuple(names) for names in want.values()} == stacks - {("(stack could not be read)",)}
    of = {(name, line, p.mapping.get(m, ("",))[0]) for stack, _, _ in p.samples for (name, _, line), _, m in stack}
    assert of - {("(stack could not be read)", 0, "")} <= set(sql(job[1], "SELECT name, coalesce(firstline, 0), coalesce(module, '') FROM function"))
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
    empty = Profile(export("pprof", "--to", "2001-01-01T00:00:00", job[1]))  # no samples, but still a valid profile
    assert not empty.samples and empty.types == p.types


def test_pprof_hostile(hostile, export, sql):
    p = Profile(export("pprof", hostile))
    assert all(map(is_shown, p.strings)) and max(map(len, p.strings)) > 5000
    assert sum(v[0] for _, v, _ in p.samples) == sql(hostile, "SELECT sum(count) FROM sample")[0][0]


@functools.lru_cache(None)
def go_pprof():
    done = subprocess.run([str(REPO / ".ci" / "go-pprof.sh")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    return done.stdout.strip(), done.stderr.strip()


@pytest.mark.slow
def test_go_pprof(job, export, sql, tmp_path):
    """pprof's own table of functions is the same as ours."""
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
            if mine is None or "(" in name or "<" in name: # pprof changes names of templates and operators
                continue
            shown += 1
            assert mine[0] == pytest.approx(flat, abs=0.01) and (total is None or mine[1] == pytest.approx(cum, abs=0.01)), name
        assert shown > 100
    ran, out = top("wall", "-tagfocus=rank=3")
    assert sum(flat for flat, _ in ran.values()) == pytest.approx(
        1e3 * sql(job[1], "SELECT sum(seconds) FROM samples WHERE rank = 3 AND stack_id IS NOT NULL")[0][0], abs=1)
    assert "Build ID: " in out


# ---- Perfetto: field numbers of protos/perfetto/trace/ of github.com/google/perfetto ----

def sint(value):
    """Decodes an int64 from a varint."""
    return value - (1 << 64) if value >> 63 else value


def real(value):
    return struct.unpack("<d", value.to_bytes(8, "little"))[0]


class Perfetto:
    """A trace as Perfetto's trace processor reads it: packets in the order of time, those of the same time in the order of the file; an end
    belongs to the slice that began last on its track. slices: {track: [Slice]}, counters: {track: [(ts, value)]}, samples: [(pid, tid, ts,
    [frames, outermost first], [weights])], flows: {id: [Slice]}."""

    class Slice:
        def __init__(self, track, ts, name, category, args, parent):
            self.track, self.ts, self.name, self.category, self.args, self.parent = track, ts, name, category, args, parent
            self.duration = None

    def __init__(self, data):
        packets = [message(p) for number, p in fields(data) if number == 1]
        head = packets[0]
        assert one(head, 13) == 1 and not any(one(p, 13) & 1 for p in packets[1:])  # there is one incremental state
        assert {one(p, 10) for p in packets} == {1}
        snapshot, defaults = message(one(head, 6)), message(one(head, 59))
        assert one(snapshot, 2) == one(message(one(snapshot, 1)), 1) == one(defaults, 58) == 1  # all times are times of day
        self.counters_of_samples = [message(one(message(one(defaults, 100)), 2))] + [message(f) for f in message(one(defaults, 100))[3]]
        self.interned, self.tracks, self.processes, self.threads = {}, {}, {}, {}
        self.slices, self.counters, self.samples, self.flows, self.marks = {}, {}, [], {}, []
        timed = []
        for p in packets:
            for table, entry in fields(one(p, 12, b"")):
                m = message(entry)
                assert self.interned.setdefault(table, {}).setdefault(one(m, 1), m) is m and one(m, 1)  # each is defined once
            if 60 in p:
                self.put_track(message(one(p, 60)))
            elif 11 in p or 135 in p:
                timed.append((one(p, 8), p))
        timed.sort(key=lambda t: t[0])
        self.open = {}
        for ts, p in timed:
            if 11 in p:
                self.put_event(ts, message(one(p, 11)))
            else:
                self.put_sample(ts, message(one(p, 135)))

    def text(self, table, iid):
        return one(self.interned[table][iid], 2, b"").decode()

    def put_track(self, t):
        process, thread, counter = (message(one(t, n)) if n in t else None for n in (3, 4, 8))
        assert one(t, 1) not in self.tracks and (5 not in t or one(t, 5) in self.tracks)
        self.tracks[one(t, 1)] = (one(t, 2, b"").decode(), one(t, 5), counter is not None)
        if process:
            assert one(process, 1) not in self.processes
            self.processes[one(process, 1)] = (one(t, 1), one(process, 6).decode(), sint(one(process, 3, -1)))
        if thread:
            assert (one(thread, 1), one(thread, 2)) not in self.threads and one(thread, 1) in self.processes
            self.threads[one(thread, 1), one(thread, 2)] = (one(t, 1), one(thread, 5, b"").decode())

    def put_event(self, ts, e):
        kind, track = one(e, 9), one(e, 11)
        assert track in self.tracks
        if kind == 4:
            assert self.tracks[track][2]
            self.counters.setdefault(track, []).append((ts, real(one(e, 44))))
            return
        stack = self.open.setdefault(track, [])
        if kind == 2:
            top = stack.pop()
            top.duration = ts - top.ts
            return
        args = {}
        for a in map(message, e.get(4, [])):
            value = (sint(one(a, 4)) if 4 in a else real(one(a, 5)) if 5 in a else self.text(29, one(a, 17)) if 17 in a else one(a, 6).decode())
            args[self.text(3, one(a, 1))] = value
        name = self.text(2, one(e, 10)) if 10 in e else one(e, 23).decode()
        new = self.Slice(track, ts, name, self.text(1, one(e, 3)), args, stack[-1] if stack else None)
        if kind == 3:
            self.marks.append(new)
            return
        assert kind == 1
        stack.append(new)
        self.slices.setdefault(track, []).append(new)
        for flow in e.get(47, []) + e.get(48, []):
            self.flows.setdefault(flow, []).append((new, 48 in e))

    def put_sample(self, ts, s):
        task = self.interned[48][one(s, 2)]
        frames = [self.interned[6][i] for i in packed(self.interned[7][one(s, 6)][2])]
        weights = [one(s, 11)] + packed(s[14])
        assert len(weights) == len(self.counters_of_samples)
        self.samples.append((one(task, 2), one(task, 3), ts, frames, weights))

    def of(self, track):
        """Returns (rank of its process, name of the track)."""
        name, parent, _ = self.tracks[track]
        while self.tracks[parent][1]:
            parent = self.tracks[parent][1]
        return next(rank for uuid, _, rank in self.processes.values() if uuid == parent), name

    def sums(self, name):
        """Returns {(rank, name, category): (number of slices, sum of their times)} for tracks of this name."""
        out = {}
        for track, slices in self.slices.items():
            rank, of = self.of(track)
            for s in slices if of.startswith(name) else ():
                n, ns = out.get((rank, s.name, s.category), (0, 0))
                out[rank, s.name, s.category] = (n + 1, ns + s.args.get("recorded_ns", s.duration or 0))
        return out


def test_perfetto_events(job, export, sql):
    p = Perfetto(export("perfetto", job[1]))
    assert sorted(rank for _, _, rank in p.processes.values()) == [0, 1, 2, 3] and len(p.processes) == 4  # although two nodes have the same pids
    assert p.sums("steps") == {(r, "step %d" % n, "step"): (1, ns or 0) for r, n, ns in sql(
        job[1], "SELECT t.rank, s.number, s.duration FROM trace_file t JOIN torch_step s ON s.id BETWEEN t.first_id AND t.last_id WHERE source <> 3")}
    calls = p.sums("modules")
    want = sql(job[1], "SELECT t.rank, m.name, CASE c.stage WHEN 0 THEN 'forward' ELSE 'backward' END, count(*), sum(c.duration)"
                       " FROM trace_file t JOIN torch_call c ON c.id BETWEEN t.first_id AND t.last_id JOIN torch_module m ON m.id = t.first_id + c.module"
                       " WHERE c.stage < 2 GROUP BY 1, 2, 3")
    assert {k: v for k, v in calls.items() if k[2] in ("forward", "backward")} == {(r, m, c): (n, ns or 0) for r, m, c, n, ns in want} and want
    assert p.sums("collectives") == {(r, op, "collective"): (n, ns or 0) for r, op, n, ns in sql(
        job[1], "SELECT t.rank, c.op, count(*), sum(CASE WHEN c.flags & 1 THEN 0 ELSE c.duration END) FROM trace_file t"
                " JOIN comm c ON c.id BETWEEN t.first_id AND t.last_id GROUP BY 1, 2")}
    # Slices are open if their end was not seen, and no others are
    assert sum(s.duration is None for slices in p.slices.values() for s in slices) == sql(
        job[1], "SELECT (SELECT count(*) FROM torch_step WHERE duration IS NULL) + (SELECT count(*) FROM torch_call WHERE duration IS NULL)"
                " + (SELECT count(*) FROM comm WHERE flags & 1)")[0][0]
    # A module's call lies within that of the module around it
    inner = [s for t, slices in p.slices.items() if p.of(t)[1] == "modules" for s in slices if s.category == "forward" and s.parent]
    assert inner and all(s.parent.ts <= s.ts for s in inner)
    # Arrows: each collective that several ranks came to has a flow, which leads through all of them by time and ends at the last
    want = sql(job[1], "SELECT count(*) FROM (SELECT 1 FROM comm_metrics WHERE op NOT IN ('send', 'recv') GROUP BY run, \"group\", seq, op HAVING count(*) > 1)")[0][0]
    several = {f: ends for f, ends in p.flows.items() if ends[0][0].name not in ("send", "recv")}
    assert len(several) == want > 0
    for ends in several.values():
        assert len({p.of(s.track)[0] for s, _ in ends}) == len(ends) > 1 and len({(s.name, s.args["seq"], s.args["group"]) for s, _ in ends}) == 1
        assert [last for _, last in ends] == [False] * (len(ends) - 1) + [True]
    counters = {}
    for track, values in p.counters.items():
        assert p.of(track) not in counters
        counters[p.of(track)] = values
    for rank in range(4):
        assert [v for _, v in counters[rank, "memory rss"]] == [rss for (rss,) in sql(
            job[1], "SELECT rss FROM memory_usage WHERE rank = ? AND rss IS NOT NULL ORDER BY timestamp", rank)]
        name, func = sql(job[1], "SELECT name, func FROM variables WHERE rank = ? AND number IS NOT NULL", rank)[0]
        assert [v for _, v in counters[rank, "variable %s@%s" % (name, func)]] == [v for (v,) in sql(
            job[1], "SELECT number FROM variables WHERE rank = ? AND name = ? AND func = ? AND number IS NOT NULL ORDER BY timestamp", rank, name, func)]


def test_perfetto_samples(job, export, sql):
    p = Perfetto(export("perfetto", job[1]))
    assert [(one(c, 2), one(c, 3)) for c in p.counters_of_samples] == [(b"wall-time", 1), (b"cpu-time", 1), (b"ticks", 9)]
    pids = {pid: rank for pid, (_, _, rank) in p.processes.items()}
    got = {}
    for pid, tid, ts, frames, weights in p.samples:
        assert (pid, tid) in p.threads
        f = frames[-1]
        key = (pids[pid], p.text(5, one(f, 2)), one(f, 6) or None)
        got[key] = [a + b for a, b in zip(got.get(key, [0, 0, 0]), weights)]
    want = sql(job[1], "SELECT rank, coalesce(func, '(stack could not be read)'), lineno, sum(seconds), sum(CASE state WHEN 'running' THEN seconds ELSE 0 END),"
                       " sum(count) FROM samples WHERE count > 0 GROUP BY 1, 2, 3")
    assert got == {(r, f, line): [round(wall * 1e9), round(cpu * 1e9), n] for r, f, line, wall, cpu, n in want} and got
    # The place of a frame: its function's file with its build id, or its source
    ids = dict(sql(job[1], "SELECT path, max(build_id) FROM modules_loaded GROUP BY 1"))
    seen = set()
    for frame in p.interned[6].values():
        if 3 not in frame:
            continue
        m = p.interned[19][one(frame, 3)]
        path = p.text(17, one(m, 7))
        if one(frame, 7) == 1 and 2 in m:
            seen.add(path)
            assert one(p.interned[16][one(m, 2)], 2).hex() == ids["/" + path]
        elif one(frame, 7) == 3:
            assert p.text(18, one(frame, 5)) in ("/" + path, path)
    assert seen
    assert sorted(ts for _, _, ts, _, _ in p.samples) == [ts for (ts,) in sql(job[1], "SELECT ts FROM sample WHERE count > 0 ORDER BY ts")]


def test_perfetto_part(job, export, sql, tmp_path, run, build):
    p = Perfetto(export("perfetto", "--ranks", "2", "--from", "+5s", "--to", "+9s", job[1]))
    first = sql(job[1], "SELECT min(start) FROM trace")[0][0]
    assert [rank for _, _, rank in p.processes.values()] == [2]
    for (what, got) in (("SELECT sum(count) FROM samples", sum(w[2] for _, _, _, _, w in p.samples)),
                        ("SELECT count(*) FROM comm_metrics", sum(n for n, _ in p.sums("collectives").values())),
                        ("SELECT count(*) FROM torch_trace", sum(n for (_, _, c), (n, _) in p.sums("modules").items() if c in ("forward", "backward")))):
        assert got == sql(job[1], what + " WHERE rank = 2 AND timestamp BETWEEN ? AND ?", first + 5, first + 9)[0][0] > 0, what
    assert not p.flows
    run([build.tool("probing"), "export", "-q", "-o", "job.pftrace", job[1]])
    assert (tmp_path / "job.pftrace").read_bytes() == export("perfetto", job[1])
    Perfetto(export("perfetto", "--to", "2001-01-01T00:00:00", job[1]))


def test_perfetto_hostile(hostile, export, sql):
    p = Perfetto(export("perfetto", hostile))
    assert sum(w[2] for _, _, _, _, w in p.samples) == sql(hostile, "SELECT sum(count) FROM sample")[0][0]
    for table in (1, 2, 3, 5, 17, 18, 29):
        assert all(is_shown(p.text(table, iid)) for iid in p.interned.get(table, ()))
    assert all(is_shown(name) for name, _, _ in p.tracks.values())


# ---- OTLP: field numbers of opentelemetry/proto/profiles/v1development/profiles.proto ----

class Otlp:
    """A profile of OpenTelemetry. samples: ({attribute of the resource}, (type, unit), [names of functions, innermost first], {attribute:
    value}, value)"""

    def __init__(self, data):
        m = message(data)
        d = message(one(m, 2))
        self.strings = [s.decode() for s in d[5]]
        text = self.strings.__getitem__
        assert self.strings[0] == "" and len(set(self.strings)) == len(self.strings)
        assert all(one(d, table, None) is not None and d[table][0] == b"" for table in (1, 2, 3, 4, 6, 7))  # the first entry of each table stands for "none"
        value = lambda v: one(v, 1).decode() if 1 in v else sint(one(v, 3))
        self.attributes = [None] + [(text(one(a, 1)), value(message(one(a, 2)))) for a in map(message, d[6][1:])]
        named = lambda indices: dict(self.attributes[i] for i in packed(indices))
        self.mappings = [(text(one(x, 4)), named(x.get(5, []))) for x in map(message, d[1])]
        functions = [(text(one(x, 1)), text(one(x, 3)), one(x, 4)) for x in map(message, d[3])]
        self.locations = []
        for x in map(message, d[2]):
            line = message(one(x, 3, b""))
            self.locations.append((functions[one(line, 1)], one(line, 2), self.mappings[one(x, 1)], named(x.get(4, []))))
        stacks = [[self.locations[i] for i in packed(message(x).get(1, []))] for x in d[7]]
        self.samples, ids = [], set()
        for r in map(message, m.get(1, [])):
            resource = {one(a, 1).decode(): value(message(one(a, 2))) for a in map(message, message(one(r, 1))[1])}
            for p in map(message, message(one(r, 2))[2]):
                kind = message(one(p, 1))
                ids.add(one(p, 7))
                assert len(one(p, 7)) == 16 and one(p, 3) and one(p, 6)
                for s in map(message, p.get(2, [])):
                    (number,) = packed(s[4])
                    assert one(s, 1) > 0
                    self.samples.append((resource, (text(one(kind, 1)), text(one(kind, 2))), stacks[one(s, 1)], named(s[2]), number))
        assert len(ids) == sum(len(message(one(message(r), 2))[2]) for r in m.get(1, []))


def test_otlp(job, export, sql):
    p = Otlp(export("otlp", job[1]))
    got = {}
    for resource, kind, stack, attributes, value in p.samples:
        (func, _, _), line, (module, of_module), of = stack[0]
        assert ("process.executable.build_id.gnu" in of_module) <= bool(module) and of["profile.frame.type"] in ("native", "cpython")
        key = (resource["rank"], resource["host.name"], attributes["thread.id"], func, line or None) + kind
        got[key] = got.get(key, 0) + value
    want = {}
    for rank, host, tid, func, line, n, wall, cpu in sql(
            job[1], "SELECT s.rank, t.host, tid, coalesce(func, '(stack could not be read)'), lineno, sum(count), sum(seconds),"
                    " sum(CASE state WHEN 'running' THEN seconds ELSE 0 END) FROM samples s JOIN trace t ON t.id = s.trace_id"
                    " WHERE count > 0 GROUP BY 1, 2, 3, 4, 5"):
        for kind, value in ((("samples", "count"), n), (("wall", "nanoseconds"), round(wall * 1e9)), (("cpu", "nanoseconds"), round(cpu * 1e9))):
            if value:
                want[(rank, host, tid, func, line) + kind] = value
    assert got == want and got
    assert {a["step"] for _, _, _, a, _ in p.samples if "step" in a} <= {n for (n,) in sql(job[1], "SELECT step FROM steps")}
    ids = dict(sql(job[1], "SELECT path, max(build_id) FROM modules_loaded WHERE build_id <> '' GROUP BY 1"))
    assert {path: a.get("process.executable.build_id.gnu") for path, a in p.mappings[1:]} == {path: ids.get(path) for path, _ in p.mappings[1:]}
    part = Otlp(export("otlp", "--ranks", "1", job[1]))
    assert sum(v for _, kind, _, _, v in part.samples if kind[0] == "samples") == sql(job[1], "SELECT sum(count) FROM samples WHERE rank = 1")[0][0]
    assert not Otlp(export("otlp", "--to", "2001-01-01T00:00:00", job[1])).samples


def test_otlp_hostile(hostile, export, sql):
    p = Otlp(export("otlp", hostile))
    assert all(map(is_shown, p.strings)) and all(is_shown(str(v)) for _, v in p.attributes[1:])
    assert sum(v for _, kind, _, _, v in p.samples if kind[0] == "samples") == sql(hostile, "SELECT sum(count) FROM sample")[0][0]


# ---- and by those whose formats they are, where pip has them ----

# Prints {message.field: how often it is set}; fails at a field that the published classes do not know.
WALK = """
import collections, json, sys
from google.protobuf import unknown_fields
from MODULE import CLASS
seen = collections.Counter()

def walk(m):
    assert len(unknown_fields.UnknownFieldSet(m)) == 0, (m.DESCRIPTOR.name, [(f.field_number, f.wire_type) for f in unknown_fields.UnknownFieldSet(m)])
    for field, value in m.ListFields():
        key = m.DESCRIPTOR.name + "." + field.name
        if hasattr(value, "DESCRIPTOR"):
            seen[key] += 1
            walk(value)
        elif field.message_type:
            seen[key] += len(value)
            for v in value:
                walk(v)
        elif isinstance(value, (str, bytes, int, float)):
            seen[key] += 1
            SUMS
        else:
            seen[key] += len(value)
m = CLASS()
m.ParseFromString(open(sys.argv[1], "rb").read())
walk(m)
print(json.dumps(seen))
"""


@pytest.fixture
def published(tmp_path):
    """published(bytes, MODULE, CLASS): returns how often each field is set, as counted by the published classes."""
    def do(data, module, name):
        python = engine_helpers.need("google.protobuf", module)
        (tmp_path / "message").write_bytes(data)
        code = WALK.replace("MODULE", module).replace("CLASS", name).replace("SUMS", "seen[key + '='] += value if isinstance(value, int) else 0")
        done = subprocess.run([python, "-c", code, str(tmp_path / "message")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)
    return do


@pytest.mark.slow
def test_perfetto_published(job, hostile, export, sql, published):
    """Perfetto's own classes know all fields, and each of ours has its name there."""
    place = "perfetto.protos.perfetto.trace.perfetto_trace_pb2"
    n = published(export("perfetto", job[1]), place, "Trace")
    samples, ticks, ns = sql(job[1], "SELECT count(*), sum(count), sum(seconds) FROM samples WHERE count > 0")[0]
    assert n["TracePacket.stack_sample"] == n["StackSample.primary_weight"] == samples and n["StackSample.follower_weights"] == 2 * samples
    assert n["StackSample.primary_weight="] == round(ns * 1e9) and ticks >= samples
    assert n["ProcessDescriptor.process_name"] == n["ProcessDescriptor.pid"] == 4 and n["ThreadDescriptor.tid"] == sql(job[1], "SELECT count(*) FROM threads")[0][0]
    ends = sql(job[1], "SELECT count(*) FROM (SELECT 1 FROM comm_metrics GROUP BY run, \"group\", seq, op HAVING count(*) > 1)")[0][0]
    assert n["TrackEvent.terminating_flow_ids"] == ends and n["TrackEvent.flow_ids"] > 0
    assert n["TrackEvent.double_counter_value"] > 0 and n["Frame.line_number"] > 0 and n["Mapping.build_id"] > 0 and n["CounterDescriptor.unit"] > 0
    assert n["ClockSnapshot.primary_trace_clock="] == 1 and n["DebugAnnotation.string_value_iid"] > 0
    assert published(export("perfetto", hostile), place, "Trace")["TracePacket.stack_sample"] == samples


@pytest.mark.slow
def test_otlp_published(job, hostile, export, sql, published):
    place = "opentelemetry.proto.profiles.v1development.profiles_pb2"
    n = published(export("otlp", job[1]), place, "ProfilesData")
    assert n["ProfilesData.resource_profiles"] == n["ProfilesData.dictionary"] * 4 and n["ScopeProfiles.profiles"] == 12
    for field in ("stack_table", "location_table", "function_table", "mapping_table", "attribute_table", "string_table", "link_table"):
        assert n["ProfilesDictionary." + field] > 0
    assert n["Sample.values"] == n["Profile.samples"] == n["Sample.stack_index"] > 0 and n["Line.line"] > 0 and n["Profile.profile_id"] == 12
    assert published(export("otlp", hostile), place, "ProfilesData")["Profile.samples"] > 0


# Prints the answers of Perfetto's trace processor.
ASK = """
import json, os, sys
from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
tp = TraceProcessor(trace=sys.argv[1], config=TraceProcessorConfig(bin_path=os.environ.get("PROBING_TRACE_PROCESSOR")))
print(json.dumps([[list(row.__dict__.values()) for row in tp.query(sql)] for sql in sys.argv[2:]]))
"""


@pytest.mark.slow
def test_trace_processor(job, export, sql, tmp_path):
    """SQL in Perfetto's trace processor gives the same numbers as ours. Its Python package fetches the program from a network;
    PROBING_TRACE_PROCESSOR names a local one."""
    python = engine_helpers.need("perfetto.trace_processor")
    (tmp_path / "job.pftrace").write_bytes(export("perfetto", job[1]))
    done = subprocess.run([python, "-c", ASK, str(tmp_path / "job.pftrace"),
                           "SELECT sum(dur) AS ns, count(*) AS n FROM slice WHERE name GLOB 'step *' AND dur >= 0",
                           "SELECT count(*) AS n FROM slice WHERE category IN ('forward', 'backward')",
                           "SELECT count(*) AS n FROM stack_sample", "SELECT count(*) AS n FROM flow",
                           "SELECT count(*) AS n FROM stats WHERE severity = 'error' AND value > 0"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=300)
    if done.returncode and re.search("resolve host|urlopen|curl|Connection|Network", done.stderr):
        pytest.skip("trace_processor_shell cannot be fetched here (PROBING_TRACE_PROCESSOR names one): " + done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr[-2000:]
    steps, calls, samples, flows, errors = json.loads(done.stdout)
    assert steps == [list(sql(job[1], "SELECT sum(duration), count(*) FROM torch_step WHERE source <> 3 AND duration IS NOT NULL")[0])]
    assert calls == [[sql(job[1], "SELECT count(*) FROM torch_trace")[0][0]]]
    assert samples == [[sql(job[1], "SELECT count(*) FROM samples WHERE count > 0")[0][0]]]
    arrows = sql(job[1], "SELECT sum(n - 1) FROM (SELECT count(*) AS n FROM comm_metrics GROUP BY run, \"group\", seq, op)")[0][0]
    assert flows == [[arrows]] and errors == [[0]]
