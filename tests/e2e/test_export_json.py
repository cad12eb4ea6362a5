# SPDX-License-Identifier: Apache-2.0
"""`probing export` in formats of JSON, checked with their published schemas, with the sums of SQL, and with the programs whose formats they
are, if these can be installed (pip and npm, once: .ci/engines-venv.sh, .ci/speedscope.sh)."""
import collections
import json
import pathlib
import subprocess

import pytest

import test_export

job, hostile, export = test_export.job, test_export.hostile, test_export.export
HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]


def helper(script):
    """Returns what .ci/SCRIPT prints; if it fails, skips the test with its message."""
    done = subprocess.run([str(REPO / ".ci" / script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=1200)
    if done.returncode:
        pytest.skip(done.stderr.decode().strip())
    return done.stdout.decode().strip()


def thinned(value):
    """Returns (value, its shape), with only some elements of each shape kept of a list: jsonschema takes a millisecond for one, and
    thousands are alike."""
    if isinstance(value, dict):
        parts = {k: thinned(v) for k, v in value.items()}
        return {k: v for k, (v, _) in parts.items()}, tuple(sorted((k, shape) for k, (_, shape) in parts.items()))
    if isinstance(value, list):
        kept, seen = [], collections.Counter()
        for v, shape in map(thinned, value):
            seen[shape] += 1
            if seen[shape] <= 30:
                kept.append(v)
        return kept, ("list",) + tuple(sorted(seen, key=repr))
    if isinstance(value, (int, float)):
        return value, "%s %d" % (type(value).__name__, (value > 0) - (value < 0))
    return value, value if value is None or len(value) < 3 else "text"


def validate(schema, text, tmp_path):
    """Validates with jsonschema, and fails with the first error."""
    python = helper("engines-venv.sh")
    if subprocess.run([python, "-c", "import jsonschema"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no jsonschema in " + python)
    (tmp_path / "export.json").write_text(json.dumps(thinned(json.loads(text))[0]), encoding="utf-8")
    code = ("import json, jsonschema, sys\n"
            "schema, file = (json.load(open(p, encoding='utf-8')) for p in sys.argv[1:])\n"
            "for e in jsonschema.validators.validator_for(schema)(schema).iter_errors(file):\n"
            "    sys.exit('%s: %s' % (list(e.absolute_path), e.message[:500]))\n")
    done = subprocess.run([python, "-c", code, str(schema), str(tmp_path / "export.json")], stderr=subprocess.PIPE, timeout=240)
    assert done.returncode == 0, done.stderr.decode()


# ---- Trace Event Format ----

def exact_ns(event):
    args = event["args"]
    return args["recorded_ns"] if "recorded_ns" in args else round(event["dur"] * 1000)


def slices(trace, cat):
    return [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] == cat]


def stacks_of(trace):
    """Returns [(names outermost first, weight)]."""
    frames, out = trace["stackFrames"], []
    for s in trace["samples"]:
        names, at = [], s["sf"]
        while at is not None:
            names.append(frames[at]["name"])
            at = frames[at].get("parent")
        out.append((names[::-1], s["weight"]))
    return out


def check_chrome(trace, db, sql):
    events = trace["traceEvents"]
    for cat, query in (("forward", "SELECT count(*), sum(duration) FROM torch_call WHERE stage = 0"),
                       ("backward", "SELECT count(*), sum(duration) FROM torch_call WHERE stage = 1"),
                       ("optimizer", "SELECT count(*), sum(duration) FROM torch_call WHERE stage = 3"),
                       ("step", "SELECT count(*), sum(duration) FROM torch_step WHERE source < 3"),
                       ("collective", "SELECT count(*), sum(duration) FROM comm")):
        found = slices(trace, cat)
        assert (len(found), sum(map(exact_ns, found))) == sql(db, query)[0], cat
    assert len([e for e in events if e["ph"] == "i"]) == sql(db, "SELECT (SELECT count(*) FROM event) + (SELECT count(*) FROM trigger_event)")[0][0]
    assert len(slices(trace, "span")) == sql(db, "SELECT count(*) FROM span")[0][0]
    rss = [e["args"]["bytes"] for e in events if e["ph"] == "C" and e["name"] == "memory rss"]
    assert sorted(rss) == sorted(r for r, in sql(db, "SELECT rss FROM memory_sample"))
    assert sum(s["weight"] for s in trace["samples"]) == sql(db, "SELECT sum(count) FROM sample")[0][0]
    # On one thread, two slices are nested or disjoint.
    tracks = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            tracks[e["pid"], e["tid"]].append((round(e["ts"] * 1000), -round(e["dur"] * 1000)))
    for track in tracks.values():
        open_until = []
        for ts, minus in sorted(track):
            while open_until and open_until[-1] <= ts:
                open_until.pop()
            assert not open_until or ts - minus <= open_until[-1]
            open_until.append(ts - minus)
    # Arrows lead from one rank through others to a last one, in the order of time, and each end lies within its slice.
    flows = collections.defaultdict(list)
    for e in events:
        if e["ph"] in "stf":
            flows[e["id"]].append(e)
            assert any(s["ts"] == e["ts"] for s in events if s["ph"] == "X" and (s["pid"], s["tid"]) == (e["pid"], e["tid"])) if len(flows) < 20 else True
    for ends in flows.values():
        ends.sort(key=lambda e: (e["ts"], "stf".index(e["ph"])))
        assert [e["ph"] for e in ends] == ["s"] + ["t"] * (len(ends) - 2) + ["f"] and len({e["pid"] for e in ends}) == len(ends) > 1
    return flows


def test_chrome(job, export, sql, tmp_path):
    text = export("chrome", job[1])
    trace = json.loads(text)
    flows = check_chrome(trace, job[1], sql)
    assert {tuple(sorted(e["pid"] for e in ends)) for ends in flows.values()} == {(1, 2, 3, 4)}
    assert len(flows) == sql(job[1], "SELECT count(*) FROM collectives WHERE arrived = 4")[0][0]
    inner = collections.Counter()
    for names, weight in stacks_of(trace):
        inner[names[-1]] += weight
    assert inner == dict(sql(job[1], "SELECT func, sum(count) FROM samples GROUP BY func"))
    assert trace["baseTimeNanoseconds"] == sql(job[1], "SELECT min(start_ts) FROM trace_file")[0][0]
    first = min(slices(trace, "step"), key=lambda e: e["ts"])
    assert abs(first["ts"] * 1000 + trace["baseTimeNanoseconds"] - sql(job[1], "SELECT min(ts) FROM torch_step")[0][0]) < 1000
    names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert sorted(n.split(":")[0] for n in names.values()) == ["rank 0", "rank 1", "rank 2", "rank 3"]
    validate(HERE / "trace_event.schema.json", text, tmp_path)


def test_chrome_of_a_part(job, export, sql):
    trace = json.loads(export("chrome", "--ranks", "1", "--from", "+5s", "--to", "+9s", job[1]))
    assert trace["distributedInfo"] == {"rank": 1, "world_size": 4}
    first = sql(job[1], "SELECT min(start_ts) FROM trace_file")[0][0]
    for cat, table, where in (("step", "torch_step", "source < 3"), ("forward", "torch_call", "stage = 0"), ("collective", "comm", "1")):
        want = sql(job[1], "SELECT count(*) FROM %s c JOIN trace_file t ON c.id BETWEEN first_id AND last_id WHERE rank = 1 AND ts BETWEEN ? AND ? AND %s"
                   % (table, where), first + 5 * 10 ** 9, first + 9 * 10 ** 9)[0][0]
        assert len(slices(trace, cat)) == want > 0
    assert not [e for e in trace["traceEvents"] if e["ph"] in "stf"]  # there is no other rank
    assert json.loads(export("chrome", "--ranks", "1", "--from", "+5s", "--to", "+9s", job[0]))["traceEvents"]


def test_chrome_hostile(hostile, export, sql, tmp_path):
    text = export("chrome", hostile)
    assert test_export.safe(text)
    trace = json.loads(text)
    check_chrome(trace, hostile, sql)
    still_open = [e for e in slices(trace, "span") if "not seen to end" in e["args"]]
    assert len(still_open) == sql(hostile, "SELECT count(*) FROM span WHERE id NOT IN (SELECT id FROM span_end)")[0][0] > 0
    end = sql(hostile, "SELECT end_ts FROM trace_file WHERE id = 1")[0][0] - trace["baseTimeNanoseconds"]
    assert all(abs((e["ts"] + e["dur"]) * 1000 - end) < 2 for e in still_open)
    validate(HERE / "trace_event.schema.json", text, tmp_path)


# ---- speedscope ----

def check_speedscope(scope, db, sql):
    want = dict(sql(db, "SELECT (sample.id >> 40 << 40) + thread, sum(count * period_ns) FROM sample JOIN trace_file t ON sample.id BETWEEN first_id AND last_id GROUP BY 1"))
    assert sorted(p["endValue"] for p in scope["profiles"]) == sorted(want.values())
    for p in scope["profiles"]:
        assert len(p["samples"]) == len(p["weights"]) and sum(p["weights"]) == p["endValue"] and p["unit"] == "nanoseconds"
        assert all(0 <= i < len(scope["shared"]["frames"]) for s in p["samples"] for i in s) and all(p["samples"])


def test_speedscope(job, export, sql, tmp_path):
    text = export("speedscope", job[1])
    scope = json.loads(text)
    check_speedscope(scope, job[1], sql)
    frames, inner = scope["shared"]["frames"], collections.Counter()
    for p in scope["profiles"]:
        for stack, weight in zip(p["samples"], p["weights"]):
            inner[frames[stack[-1]]["name"]] += weight
    assert inner == dict(sql(job[1], "SELECT func, sum(CAST(round(seconds * 1e9) AS INT)) FROM samples GROUP BY func"))
    validate(helper("speedscope.sh") + "/file-format-schema.json", text, tmp_path)


def test_speedscope_hostile(hostile, export, sql, tmp_path):
    text = export("speedscope", hostile)
    assert test_export.safe(text)
    check_speedscope(json.loads(text), hostile, sql)
    validate(helper("speedscope.sh") + "/file-format-schema.json", text, tmp_path)


# ---- Firefox Profiler ----

def check_table(table, columns, **indexes):
    """Checks that all columns are as long as the table, and that its references to other tables are within those."""
    assert set(columns) <= set(table) and all(len(table[c]) == table["length"] for c in columns), table.keys()
    for column, n in indexes.items():
        assert all(v is None or 0 <= v < n for v in table[column]), column


def check_firefox(profile, db, sql):
    """Checks what the profiler's own types of version 57 (src/types/profile.ts) require, where they apply here."""
    meta, strings = profile["meta"], profile["shared"]["stringArray"]
    assert meta["preprocessedProfileVersion"] == 57 and {"interval", "startTime", "processType", "product", "stackwalk", "version", "markerSchema"} <= set(meta)
    assert len(set(strings)) == len(strings) and all(isinstance(s, str) for s in strings)
    assert any(c["color"] == "grey" for c in meta["categories"]) and all(c["subcategories"] == ["Other"] for c in meta["categories"])
    kinds, ncategories = {s["name"] for s in meta["markerSchema"]}, len(meta["categories"])
    for t in profile["threads"]:
        stacks, frames, functions = t["stackTable"], t["frameTable"], t["funcTable"]
        check_table(t["samples"], ["stack", "time", "weight", "threadCPUDelta"], stack=stacks["length"])
        assert t["samples"]["time"] == sorted(t["samples"]["time"]) and t["samples"]["weightType"] == "samples"
        check_table(stacks, ["frame", "prefix"], frame=frames["length"], prefix=stacks["length"])
        assert all(p is None or p < i for i, p in enumerate(stacks["prefix"]))
        check_table(frames, ["address", "inlineDepth", "category", "subcategory", "func", "nativeSymbol", "innerWindowID", "line", "column"],
                    func=functions["length"], category=ncategories)
        check_table(functions, ["name", "isJS", "relevantForJS", "resource", "fileName", "lineNumber", "columnNumber"],
                    name=len(strings), fileName=len(strings))
        check_table(t["markers"], ["data", "name", "startTime", "endTime", "phase", "category"], name=len(strings), category=ncategories)
        for data, start, end, phase in zip(*(t["markers"][c] for c in ("data", "startTime", "endTime", "phase"))):
            assert data["type"] in kinds and (phase, end is None) in ((0, True), (1, False)) and (end is None or end >= start)
        assert isinstance(t["pid"], str) and isinstance(t["name"], str) and isinstance(t["isMainThread"], bool)
        for empty in ("resourceTable", "nativeSymbols"):
            assert t[empty]["length"] == 0
    assert sum(sum(t["samples"]["weight"]) for t in profile["threads"]) == sql(db, "SELECT sum(count) FROM sample")[0][0]
    want = sql(db, "SELECT (SELECT count(*) FROM torch_step) + (SELECT count(*) FROM torch_call) + (SELECT count(*) FROM comm) + (SELECT count(*) FROM span)"
                   " + (SELECT count(*) FROM event) + (SELECT count(*) FROM trigger_event)")[0][0]
    assert sum(t["markers"]["length"] for t in profile["threads"]) == want
    # The sum of a counter's rows is its last value.
    pids = {t["pid"] for t in profile["threads"]}
    for c in profile["counters"]:
        check_table(c["samples"], ["time", "count"])
        assert c["pid"] in pids and profile["threads"][c["mainThreadIndex"]]["pid"] == c["pid"] and c["samples"]["time"] == sorted(c["samples"]["time"])
    assert sorted(sum(c["samples"]["count"]) for c in profile["counters"]) == sorted(
        v for v, in sql(db, "SELECT rss FROM memory_sample WHERE id IN (SELECT max(id) FROM memory_sample GROUP BY id >> 40)"))


def test_firefox(job, export, sql):
    profile = json.loads(export("firefox", job[1]))
    check_firefox(profile, job[1], sql)
    strings, inner = profile["shared"]["stringArray"], collections.Counter()
    for t in profile["threads"]:
        for stack, weight in zip(t["samples"]["stack"], t["samples"]["weight"]):
            frame = t["stackTable"]["frame"][stack]
            inner[strings[t["funcTable"]["name"][t["frameTable"]["func"][frame]]]] += weight
    assert inner == dict(sql(job[1], "SELECT func, sum(count) FROM samples GROUP BY func"))
    start = sql(job[1], "SELECT min(start_ts) FROM trace_file")[0][0]
    assert abs(profile["meta"]["startTime"] * 1e6 - start) < 1000


def test_firefox_hostile(hostile, export, sql):
    text = export("firefox", hostile)
    assert test_export.safe(text)
    check_firefox(json.loads(text), hostile, sql)
