# SPDX-License-Identifier: Apache-2.0
"""`probing export` in formats of Protocol Buffers: read back by their published field numbers, here by hand, and by those whose formats
they are where these can be had; the sums are SQL's.
"""
import bisect
import functools
import gzip
import pathlib
import re
import shutil
import sqlite3
import struct
import subprocess

import pytest

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
    """The job with names that are no UTF-8, play with a terminal or are very long."""
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
    want = {}
    for rank in range(4):
        steps = sql(job[1], "SELECT s.ts, s.ts + coalesce(s.duration, 1 << 60), s.number FROM trace_file t JOIN torch_step s"
                            " ON s.id BETWEEN t.first_id AND t.last_id WHERE t.rank = ? AND s.source <> 3 ORDER BY 1", rank)
        for ts, count in sql(job[1], "SELECT s.ts, s.count FROM trace_file t JOIN sample s ON s.id BETWEEN t.first_id AND t.last_id WHERE t.rank = ?", rank):
            before = [number for start, end, number in steps[max(0, bisect.bisect(steps, (ts, 1 << 62)) - 1):][:1] if start <= ts < end]
            key = (rank, before[0] if before else None)
            want[key] = want.get(key, 0) + count
    assert p.sums(lambda _, labels: (labels["rank"], labels.get("step")), 0) == want and len(want) > 100
    # Whole stacks, and where their functions are
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
    empty = Profile(export("pprof", "--to", "2001-01-01T00:00:00", job[1]))  # no samples, and still a profile
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


# ---- Perfetto: field numbers of protos/perfetto/trace/ of github.com/google/perfetto ----

def sint(value):
    """An int64 as varints have it."""
    return value - (1 << 64) if value >> 63 else value


def real(value):
    return struct.unpack("<d", value.to_bytes(8, "little"))[0]


class Perfetto:
    """A trace as Perfetto's trace processor reads it: packets by time, those of one time as they come; an end is that of the slice
    that began last on its track. slices: {track: [Slice]}, counters: {track: [(ts, value)]}, samples: [(pid, tid, ts, [frames, outermost
    first], [weights])], flows: {id: [Slice]}."""

    class Slice:
        def __init__(self, track, ts, name, category, args, parent):
            self.track, self.ts, self.name, self.category, self.args, self.parent = track, ts, name, category, args, parent
            self.duration = None

    def __init__(self, data):
        packets = [message(p) for number, p in fields(data) if number == 1]
        head = packets[0]
        assert one(head, 13) == 1 and not any(one(p, 13) & 1 for p in packets[1:])  # one incremental state
        assert {one(p, 10) for p in packets} == {1}
        snapshot, defaults = message(one(head, 6)), message(one(head, 59))
        assert one(snapshot, 2) == one(message(one(snapshot, 1)), 1) == one(defaults, 58) == 1  # all times are of the time of day
        self.counters_of_samples = [message(one(message(one(defaults, 100)), 2))] + [message(f) for f in message(one(defaults, 100))[3]]
        self.interned, self.tracks, self.processes, self.threads = {}, {}, {}, {}
        self.slices, self.counters, self.samples, self.flows, self.marks = {}, {}, [], {}, []
        timed = []
        for p in packets:
            for table, entry in fields(one(p, 12, b"")):
                m = message(entry)
                assert self.interned.setdefault(table, {}).setdefault(one(m, 1), m) is m and one(m, 1)  # each once
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
        """(rank of its process, name of the track)"""
        name, parent, _ = self.tracks[track]
        while self.tracks[parent][1]:
            parent = self.tracks[parent][1]
        return next(rank for uuid, _, rank in self.processes.values() if uuid == parent), name

    def sums(self, name):
        """{(rank, name, category): (how many, their time)} of slices on tracks of this name."""
        out = {}
        for track, slices in self.slices.items():
            rank, of = self.of(track)
            for s in slices if of.startswith(name) else ():
                n, ns = out.get((rank, s.name, s.category), (0, 0))
                out[rank, s.name, s.category] = (n + 1, ns + s.args.get("recorded_ns", s.duration or 0))
        return out


def test_perfetto_events(job, export, sql):
    p = Perfetto(export("perfetto", job[1]))
    assert sorted(rank for _, _, rank in p.processes.values()) == [0, 1, 2, 3] and len(p.processes) == 4  # though two nodes have the same pids
    assert p.sums("steps") == {(r, "step %d" % n, "step"): (1, ns or 0) for r, n, ns in sql(
        job[1], "SELECT t.rank, s.number, s.duration FROM trace_file t JOIN torch_step s ON s.id BETWEEN t.first_id AND t.last_id WHERE source <> 3")}
    calls = p.sums("modules")
    want = sql(job[1], "SELECT t.rank, m.name, CASE c.stage WHEN 0 THEN 'forward' ELSE 'backward' END, count(*), sum(c.duration)"
                       " FROM trace_file t JOIN torch_call c ON c.id BETWEEN t.first_id AND t.last_id JOIN torch_module m ON m.id = c.module"
                       " WHERE c.stage < 2 GROUP BY 1, 2, 3")
    assert {k: v for k, v in calls.items() if k[2] in ("forward", "backward")} == {(r, m, c): (n, ns or 0) for r, m, c, n, ns in want} and want
    assert p.sums("collectives") == {(r, op, "collective"): (n, ns or 0) for r, op, n, ns in sql(
        job[1], "SELECT t.rank, c.op, count(*), sum(CASE WHEN c.flags & 1 THEN 0 ELSE c.duration END) FROM trace_file t"
                " JOIN comm c ON c.id BETWEEN t.first_id AND t.last_id GROUP BY 1, 2")}
    # What was never seen to end is open, and nothing else
    assert sum(s.duration is None for slices in p.slices.values() for s in slices) == sql(
        job[1], "SELECT (SELECT count(*) FROM torch_step WHERE duration IS NULL) + (SELECT count(*) FROM torch_call WHERE duration IS NULL)"
                " + (SELECT count(*) FROM comm WHERE flags & 1)")[0][0]
    # A module's call lies in that of the module around it
    inner = [s for t, slices in p.slices.items() if p.of(t)[1] == "modules" for s in slices if s.category == "forward" and s.parent]
    assert inner and all(s.parent.ts <= s.ts for s in inner)
    # Arrows: a flow for each collective that several ranks came to, over all of them by time, and it ends at the last
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
    # Where a frame is: the file that its function is of, with its build id, or its source
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
