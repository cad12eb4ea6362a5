# SPDX-License-Identifier: Apache-2.0
"""probing-convert --append adds new traces to a database, converts nothing again that is there, and changes nothing when it fails."""
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from grown import cuts, states
from test_fleet import clock_errors, fleet  # noqa: F401
from test_torch import find_torch, run_scenes


@pytest.fixture
def job(fleet, build, run, tmp_path):  # noqa: F811
    out, _ = fleet("job", "--ranks", 8, "--nodes", 4, "--minutes", 0.5, "--offset", 1, "--drift", 50)
    nodes = sorted(str(out / n) for n in os.listdir(str(out)) if n.startswith("node"))

    def do(*words, code=0, limit=""):
        cmd = [build.tool("probing-convert")] + [str(w) for w in words]
        if limit:
            cmd = ["sh", "-c", limit + '; exec "$0" "$@"'] + cmd
        done = run(cmd, check=False, timeout=600)
        assert done.returncode == code, done.stderr
        return done.stderr
    do.nodes = nodes
    do.tool = build.tool("probing-convert")
    return do


SUMS = ("SELECT count(*), sum(count), sum(cpu_us) FROM sample", "SELECT count(*), sum(duration) FROM torch_call", "SELECT count(*) FROM torch_step",
        "SELECT count(*), sum(duration) FROM comm", "SELECT count(*) FROM cpu", "SELECT count(*) FROM event_value", "SELECT count(*) FROM thread",
        "SELECT count(*), count(DISTINCT id), sum(complete) FROM trace", "SELECT sum(self), sum(total) FROM function_total WHERE trace = (SELECT min(trace) FROM function_total)",
        "SELECT count(*) FROM function", "SELECT count(*) FROM frame", "SELECT count(*), count(DISTINCT recording) FROM trace_file",
        "SELECT func, self, total FROM hot_functions ORDER BY self DESC, func LIMIT 20", "SELECT rank, count(*), min(depth), max(depth) FROM backtrace GROUP BY 1",
        'SELECT "group", count(*) FROM clock_alignment GROUP BY 1', "SELECT run, count(*) FROM collectives WHERE arrived = size GROUP BY 1")


def same(sql, a, b):
    for query in SUMS:
        assert sql(a, query) == sql(b, query), query
    assert sql(a, "PRAGMA integrity_check") == [("ok",)]


def digest(path):
    with open(str(path), "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def test_what_is_added_is_as_if_it_had_been_there(job, sql, tmp_path):
    whole, db = tmp_path / "whole.db", tmp_path / "out.db"
    job("-q", *job.nodes, whole)
    job("--append", job.nodes[0], db)  # there is no database yet, so it is made
    said = job("--append", *job.nodes[:2], db)
    assert "2 traces (and 2 that were there already)" in said
    before = sql(db, "SELECT id, ts FROM sample ORDER BY id")
    job("-q", "-a", *job.nodes, db)
    same(sql, whole, db)
    # Old rows keep their times and numbers; the new ones are aligned to the clock of the old ones.
    assert set(before) <= set(sql(db, "SELECT id, ts FROM sample"))
    errors = clock_errors(sql, db)
    assert errors[len(errors) * 99 // 100] < 100e-6
    said = job("--append", *job.nodes, db)
    assert "0 traces (and 8 that were there already)" in said
    same(sql, whole, db)


def test_a_trace_that_has_grown(job, sql, tmp_path):
    """A recording that has grown replaces its earlier state, also if its file has another name."""
    db, whole = tmp_path / "out.db", tmp_path / "whole.db"
    part = tmp_path / "part"
    part.mkdir()
    traces = sorted(os.path.join(n, t) for n in job.nodes for t in os.listdir(n))
    for i, t in enumerate(traces):
        shutil.copy(t, str(part / ("%d.zst" % i)))
    with open(str(part / "3.zst"), "r+b") as f:
        f.truncate(os.path.getsize(traces[3]) * 2 // 3)
    job("-q", part, db, code=1)
    few = sql(db, "SELECT count(*) FROM sample")[0][0]
    said = job("--append", *job.nodes, db)
    assert "1 trace (and 7 that were there already)" in said
    job("-q", *job.nodes, whole)
    assert sql(db, "SELECT count(*) FROM sample")[0][0] > few
    same(sql, whole, db)
    assert "0 traces (and 8 that were there already)" in job("-a", *job.nodes, db)
    # An earlier state of a trace that is in the database removes nothing.
    with open(str(part / "3.zst"), "r+b") as f:
        f.truncate(os.path.getsize(traces[3]) // 2)
    job("-qa", part, db)
    same(sql, whole, db)


# The columns that say how the database was made, and not what is in it.
HOW = {"trace_read", "torch_read", "clock_boot", "clock_knot", "sqlite_stat1", "sqlite_stat4"}


def rows(sql, db):
    """Returns all tables, row for row, except what their traces' runs were before they were joined: --clocks takes them as joined."""
    names = [n for n, in sql(db, "SELECT name FROM sqlite_master WHERE type = 'table'") if n not in HOW]
    found = {n: sorted(sql(db, 'SELECT * FROM "%s"' % n), key=repr) for n in names}
    last, = sql(db, "SELECT max(cid) FROM pragma_table_info('trace_file') WHERE name = 'first_run'")[0]
    return dict(found, trace_file=[row[:last] + row[last + 1:] for row in found["trace_file"]])


def differences(a, b):
    return {n: (sorted(set(a[n]) - set(b[n]), key=repr)[:3], sorted(set(b[n]) - set(a[n]), key=repr)[:3]) for n in a if a[n] != b[n]}


def every_view(sql, db):
    return {n: sorted(sql(db, 'SELECT * FROM "%s"' % n), key=repr) for n, in sql(db, "SELECT name FROM sqlite_master WHERE type = 'view'")}


ALIGNMENT = 'SELECT host, method, "group", reference, matches, traces, "from", "to", "offset" FROM clock_alignment ORDER BY host'


@pytest.mark.slow
def test_views_are_as_if_it_had_been_there(job, sql, tmp_path):
    """Every view, and every column about the clocks' alignment, is the same as after one conversion of everything, if the machine that came
    first is the one that others are aligned to."""
    whole, db = tmp_path / "whole.db", tmp_path / "out.db"
    job("-q", *job.nodes[:2], whole)
    job("-q", job.nodes[0], db)
    assert sql(db, "SELECT method, matches, reference FROM clock_alignment") == [("anchors", 0, 0)]
    job("-qa", *job.nodes[:2], db)
    assert sql(db, "SELECT * FROM clock_boot") == sql(whole, "SELECT * FROM clock_boot")
    assert not differences(every_view(sql, db), every_view(sql, whole))
    # If that machine is named again alone, with new records, it is still the one that the others are aligned to.
    before = sql(db, ALIGNMENT)
    job("-qa", job.nodes[1], db)
    job("-qa", *job.nodes[:2], db)
    assert sql(db, ALIGNMENT) == before


def near(a, b):
    """Returns the rows of ALIGNMENT with times rounded to milliseconds."""
    return len(a) == len(b) and all(x[:6] == y[:6] and all((u is None) == (v is None) and abs((u or 0) - (v or 0)) < 1e-3 for u, v in zip(x[6:], y[6:]))
                                    for x, y in zip(a, b))


@pytest.mark.slow
def test_alignment_of_traces_that_grow(job, sql, tmp_path):
    """What is known about the clocks goes on with the new records: for a single machine from its first anchor on (which alone spans no
    time), for several machines by their matches."""
    part = tmp_path / "part"
    part.mkdir()
    traces = sorted(os.path.join(n, t) for n in job.nodes[:2] for t in os.listdir(n))
    for some in (traces[:1], traces):
        for n in range(5):
            for i, t in enumerate(some):
                (part / ("%d.zst" % i)).write_bytes(states(t, 5)[n] if n or len(some) > 1 else states(t, 60)[0])
            job("-qa", part, tmp_path / ("out%d.db" % len(some)))
            job("-qf", part, tmp_path / "whole.db")
            mine, theirs = sql(tmp_path / ("out%d.db" % len(some)), ALIGNMENT), sql(tmp_path / "whole.db", ALIGNMENT)
            assert near(mine, theirs), "%d: %s\n%s" % (n, mine, theirs)


@pytest.mark.parametrize("steps", [3, pytest.param(16, marks=pytest.mark.slow)])
def test_only_what_came_since_is_read(fleet, build, run, sql, tmp_path, steps):  # noqa: F811
    """Each state of a growing trace gives the same rows as its whole conversion, and what is already in the database is not read again."""
    out, _ = fleet("one", "--ranks", 2, "--nodes", 1, "--minutes", 0.3 if steps < 4 else 0.7, "--hz", 50, "--tp", 2)
    convert, db, whole, t = build.tool("probing-convert"), tmp_path / "out.db", tmp_path / "whole.db", tmp_path / "t.zst"
    source = sorted(str(p) for p in out.glob("*/*.zst"))[1]
    before = 0
    for n, state in enumerate(states(source, steps)):
        t.write_bytes(state)
        done = json.loads(run([convert, "--json", "-qa", t, db], timeout=600).stdout)
        run([convert, "-qf", "--clocks", db, t, whole], timeout=600)
        assert not differences(rows(sql, db), rows(sql, whole)), n
        records = sql(db, "SELECT records FROM trace_file")[0][0]
        assert done["records"] == records - before
        assert len(sql(db, "SELECT * FROM trace_read")) == (n < steps - 1) # the last state has an end
        before = records


# Tables with numbers of functions, frames and stacks.
NUMBERED = {"function", "frame", "stack", "part", "stack_total", "function_total", "sample"}


def left_over(sql, db, whole):
    """Returns addresses that were sampled (for example in a library that was just being loaded) before the trace said which file lies
    there. Each became a function of its own, and its row remains when the trace is read again and numbers go on from it."""
    bare = "SELECT name FROM function WHERE type = 1 AND module IS NULL"
    return set(sql(db, bare)) - set(sql(whole, bare))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["debian", "recent"])
def test_torch_in_pieces(build, run, sql, tmp_path, kind):
    """Conversion of what PyTorch did continues from within a step, with calls open in several threads."""
    python, why = find_torch(kind)
    if not python:
        pytest.skip(why)
    convert, source, db, whole, t = build.tool("probing-convert"), tmp_path / "source.zst", tmp_path / "out.db", tmp_path / "whole.db", tmp_path / "t.zst"
    run_scenes(python, "plain shared threads pipeline gan pair accumulation lbfgs checkpoints timed".split(), build, source)
    for state in states(source, 12):
        t.write_bytes(state)
        run([convert, "-qa", t, db], timeout=600)
        run([convert, "-qf", "--clocks", db, t, whole], timeout=600)
        not_here = NUMBERED if left_over(sql, db, whole) else set()
        mine, theirs = ({n: r for n, r in rows(sql, p).items() if n not in not_here} for p in (db, whole))
        assert not differences(mine, theirs)
        for query in ("SELECT * FROM steps", "SELECT * FROM training_logs", "SELECT * FROM torch_trace",
                      "SELECT timestamp, tid, depth, func, file, lineno, count, seconds, state, sample_id FROM backtrace ORDER BY sample_id, depth",
                      "SELECT func, file, firstline, self, total, seconds FROM hot_functions ORDER BY func, file, firstline, self, total"):
            assert sql(db, query) == sql(whole, query), query
    assert sql(db, "SELECT count(*) > 0 FROM torch_call") == [(1,)]


@pytest.mark.slow
def test_a_trace_that_is_gone_on_with_among_others(job, sql, tmp_path):
    """Several traces grow in a database in which they are not the first, with ids between those of others."""
    db, whole, part = tmp_path / "out.db", tmp_path / "whole.db", tmp_path / "part"
    part.mkdir()
    traces = sorted(os.path.join(n, t) for n in job.nodes[:2] for t in os.listdir(n))
    for n in range(3):
        for i, t in enumerate(traces):
            (part / ("%d.zst" % i)).write_bytes(states(t, 3)[n if i % 2 else 2])
        job("-qa", part, db)
    job("-qf", "--clocks", db, part, whole)
    mine, theirs = rows(sql, db), rows(sql, whole)
    for name in ("function", "frame", "stack", "part"): # these tables are shared, so their numbers depend on which trace came first
        assert len(mine[name]) == len(theirs[name]), name
    same(sql, whole, db)
    for x in (mine, theirs): # how well the trace's clock was known when it was read
        x["trace_file"] = [r[:27] + r[28:] for r in x["trace_file"]]
    numbered = {"function", "frame", "stack", "part", "stack_total", "function_total", "sample", "rank_list", "group_rank", "process_group"}
    assert not differences({n: r for n, r in mine.items() if n not in numbered}, theirs)
    assert sql(db, "SELECT id, ts, thread, count FROM sample ORDER BY id") == sql(whole, "SELECT id, ts, thread, count FROM sample ORDER BY id")


def test_a_full_disk_while_a_trace_is_gone_on_with(fleet, job, sql, tmp_path):  # noqa: F811
    out, _ = fleet("one", "--ranks", 1, "--nodes", 1, "--minutes", 1, "--hz", 200)
    t, db = tmp_path / "t.zst", tmp_path / "out.db"
    all_states = states(next(out.glob("*/*.zst")), 3)
    t.write_bytes(all_states[0])
    job("-q", t, db)
    before = digest(db)
    t.write_bytes(all_states[1])
    job("-qa", t, db, code=3, limit="ulimit -f %d" % (os.path.getsize(str(db)) // 512 + 100))
    assert digest(db) == before
    job("-qa", t, db)
    job("-qf", "--clocks", db, t, tmp_path / "whole.db")
    assert not differences(rows(sql, db), rows(sql, tmp_path / "whole.db"))


def test_names_that_come_at_the_end(build, run, sql, record, tmp_path, spawn):
    """A killed process: its last records, and the names of its native code, come behind what was read before. Also with segments."""
    script = tmp_path / "work.py"
    script.write_text("import sys, time, zlib\nprint('on', flush=True)\nwhile True: zlib.compress(bytes(1 << 18))\n")
    convert, db, whole = build.tool("probing-convert"), tmp_path / "out.db", tmp_path / "whole.db"
    env = dict(os.environ, PROBING_SEGMENT_SIZE="64K")
    p = spawn([build.tool("probing-record"), "-q", "-r", "200", "-o", str(tmp_path / "t.zst"), "/usr/bin/python3", str(script)],
              stdout=subprocess.PIPE, env=env)
    p.stdout.readline()
    seen = 0
    while seen < 3: # until there are rows to continue from
        run([convert, "-qa", tmp_path / "t.zst", db], timeout=600)
        n = sql(db, "SELECT coalesce(max(records), 0) FROM trace_file JOIN trace_read ON trace = id")[0][0]
        seen += n > 100
    pid = sql(db, "SELECT max(pid) FROM trace_file")[0][0]
    os.kill(pid, signal.SIGKILL)
    p.wait(240)
    run([convert, "-qa", tmp_path / "t.zst", db], timeout=600)
    run([convert, "-qf", "--clocks", db, tmp_path / "t.zst", whole], timeout=600)
    assert sql(db, "SELECT DISTINCT signal FROM trace_file WHERE end_reason = 'killed'") == [(signal.SIGKILL,)]
    assert sql(db, "SELECT count(*) FROM trace_read") == [(0,)]
    for query in ("SELECT pid, count(*), sum(count) FROM sample JOIN trace_file f ON f.id = sample.id >> 40 GROUP BY 1",
                  "SELECT func, self, total FROM hot_functions WHERE total > 0 ORDER BY 1, 2, 3", "SELECT * FROM cpu ORDER BY ts",
                  "SELECT file, records, blocks, end_reason, lost FROM trace_file ORDER BY file",
                  "SELECT name, tid, samples FROM thread ORDER BY start_ts, tid"):
        mine, theirs = sql(db, query), sql(whole, query)
        if "cpu" in query: # numbered by the order in which traces came
            mine, theirs = ([r[1:] for r in x] for x in (mine, theirs))
        assert mine == theirs, query


def test_a_recording_that_goes_on(build, job, run, sql, record, tmp_path, spawn):
    """A process that still writes: each time the database gets what the trace has so far."""
    script = tmp_path / "work.py"
    script.write_text("print('on', flush=True)\nwhile True: sum(range(999))\n")
    db = tmp_path / "out.db"
    p = spawn([build.tool("probing-record"), "-q", "-r", "100", "-o", str(tmp_path / "t.zst"), "/usr/bin/python3", str(script)],
              stdout=subprocess.PIPE)
    p.stdout.readline()
    seen = []
    while len(seen) < 3:
        job("-qa", tmp_path / "t.zst", db)
        n = sql(db, "SELECT count(*) FROM sample")[0][0]
        if n > 10 and (not seen or n > seen[-1]):
            seen.append(n)
        time.sleep(0.2)
    assert sql(db, "SELECT count(*) FROM trace") == [(1,)]
    p.send_signal(signal.SIGTERM)
    p.wait(240)
    job("-qa", tmp_path / "t.zst", db)
    assert sql(db, "SELECT count(*), max(end_reason IS NOT NULL) FROM trace") == [(1, 1)]
    assert sql(db, "SELECT count(*) FROM sample")[0][0] >= seen[-1]


def test_clocks_that_nothing_compares_yet(job, sql, tmp_path):
    """Traces of another machine alone say nothing about its clock; if the machines that are there are named with them, they do."""
    db = tmp_path / "out.db"
    job("-q", job.nodes[0], job.nodes[1], db)
    said = job("-a", job.nodes[2], db)
    assert "cannot be compared with those that were there" in said and "Name the traces" in said
    assert sql(db, "SELECT method, count(*) FROM clock_alignment GROUP BY 1 ORDER BY 1") == [("anchors", 1), ("collectives", 2)]
    early = sql(db, "SELECT e.id, e.ts FROM event e JOIN trace_file t ON e.id BETWEEN t.first_id AND t.last_id WHERE t.host <> 'node002'")
    # What is there of it is not converted again; only its times change.
    said = job("-a", *job.nodes, db)
    assert "cannot be compared" not in said and "2 traces (and 6 that were there already)" in said
    assert set(early) <= set(sql(db, "SELECT id, ts FROM event"))
    errors = clock_errors(sql, db)
    assert errors[len(errors) * 99 // 100] < 100e-6
    job("-q", *job.nodes, tmp_path / "whole.db")
    same(sql, tmp_path / "whole.db", db)
    assert sql(db, "SELECT DISTINCT clock, clock_group FROM trace_file") == [("collectives", 1)]
    assert sql(db, 'SELECT count(*), sum(method = "collectives"), count(DISTINCT "group"), sum(reference) FROM clock_alignment') == [(4, 4, 1, 1)]
    # Every time in every table has moved: none lies outside of its trace, and each machine's clock is off by as much as a conversion of
    # everything says.
    for table in ("sample", "torch_call", "comm", "cpu", "fact", "setting", "process_info", "torch_step", "span", "event"):
        assert sql(db, "SELECT count(*) FROM %s r JOIN trace_file t ON t.id = r.id >> 40 WHERE abs(r.ts - t.start_ts) > 60e9" % table) == [(0,)], table
    offsets = [dict(sql(d, 'SELECT host, "offset" FROM clock_alignment')) for d in (db, tmp_path / "whole.db")]
    gaps = [offsets[0][h] - offsets[1][h] for h in offsets[0]]
    assert max(gaps) - min(gaps) < 10e-3 # seconds; the clocks drift by 3 ms meanwhile, and the two conversions align to different machines
    # and the database says where the machines' clocks lie, for traces that come later
    assert "0 traces (and 8 that were there already)" in job("-a", *job.nodes, db)


def test_two_groups_become_one(job, sql, tmp_path):
    """Two pairs of machines are each aligned within themselves; a trace that tells how one machine's clock lies moves both of its pair."""
    db = tmp_path / "out.db"
    job("-q", *job.nodes[:2], db)
    job("-qa", *job.nodes[2:], db)
    assert len(sql(db, 'SELECT DISTINCT "group" FROM clock_alignment')) == 2
    apart = "SELECT a.ts - b.ts FROM event a, event b WHERE a.id = (SELECT min(first_id) FROM trace_file WHERE host = 'node002') + 1" \
            " AND b.id = (SELECT min(first_id) FROM trace_file WHERE host = 'node003') + 1"
    before = sql(db, apart)
    assert len(before) == 1
    # node003 is not named again.
    said = job("-a", *job.nodes[:3], db)
    assert "0 traces (and 6 that were there already)" in said
    assert len(sql(db, 'SELECT DISTINCT "group" FROM clock_alignment')) == 1 and len(sql(db, "SELECT DISTINCT clock_group FROM trace_file")) == 1
    assert abs(sql(db, apart)[0][0] - before[0][0]) < 1000000
    errors = clock_errors(sql, db)
    assert errors[len(errors) * 99 // 100] < 100e-6


def test_a_full_disk_while_times_change(job, sql, tmp_path):
    db = tmp_path / "out.db"
    job("-q", job.nodes[0], job.nodes[1], db)
    job("-q", "-a", job.nodes[2], db)
    before = digest(db)
    blocks = os.path.getsize(str(db)) // 512 + 8
    said = job("-qa", *job.nodes, db, code=3, limit="ulimit -f %d" % blocks)
    assert "out.db: " in said and said.count("\n") == 1 and digest(db) == before




@pytest.mark.slow
@pytest.mark.limit(1200)
def test_100000_files(job, sql, tmp_path):
    """Most files are of processes that have not written anything yet. Those with traces are found, and a message that is the same for all
    is printed for ten."""
    many, db = tmp_path / "many", tmp_path / "out.db"
    for d in range(100):
        (many / ("d%02d" % d)).mkdir(parents=True)
        for i in range(1000):
            os.close(os.open(str(many / ("d%02d" % d) / ("%d.zst" % i)), os.O_CREAT | os.O_WRONLY))
    for n, node in enumerate(job.nodes):
        shutil.copytree(node, str(many / ("d%02d" % (n * 30)) / "node"))
    said = job("-q", many, db)
    assert said.count("only begun to record") == 11 and "99,990 more: the file is empty" in said
    assert sql(db, "SELECT count(*) FROM trace") == [(8,)]
    assert "0 traces (and 8 that were there already)" in job("-a", many, db)
    assert sql(db, "SELECT count(*) FROM trace") == [(8,)]


def test_names_that_come_after_a_stack_leave_no_second_one(build, run, sql, tmp_path):
    """A stack gets other frames when the trace later says what its addresses are called: views then show it with these only."""
    convert, db, whole, t = build.tool("probing-convert"), tmp_path / "out.db", tmp_path / "whole.db", tmp_path / "t.zst"
    golden, seen = pathlib.Path(__file__).resolve().parents[1] / "golden" / "complete.zst", []
    text = "SELECT k.depth, r.name FROM stack_frame k JOIN frame r ON r.id = k.frame ORDER BY 1, 2"
    for state in states(golden, 7) * 2:  # the second time, each state is shorter than what is already in the database
        t.write_bytes(state)
        run([convert, "-qa", t, db], check=False)
        seen.append(sql(db, text))
    run([convert, "-q", golden, whole])
    assert seen[-1] == sql(whole, text) != seen[4]
    run([convert, "-qa", golden.with_name("basic.zst"), db])  # new numbers go on after those of what was deleted
    run([convert, "-qf", golden, golden.with_name("basic.zst"), whole])
    frames = "SELECT trace_id, func, lineno, sum(count) FROM backtrace GROUP BY 1, 2, 3"
    assert sql(db, frames) == sql(whole, frames)


def without_process(trace):
    """Returns the trace with its first block damaged, which says what process it belongs to."""
    data, at = cuts(trace)
    end = at[1] if len(at) > 1 else len(data)
    with open(str(trace), "r+b") as f:
        f.seek(at[0] + 68 + 20)
        f.write(bytes(min(64, end - at[0] - 68 - 20)))


@pytest.mark.slow
def test_traces_that_do_not_say_whose_they_are(job, sql, tmp_path):
    """The beginning of the traces is lost: each is a recording of its own, and is recognized when it comes again, alone and beside others.
    (Once they were all taken for one, and the second to be added was left out.)"""
    whole, db = tmp_path / "whole.db", tmp_path / "out.db"
    traces = sorted(os.path.join(n, t) for n in job.nodes[:2] for t in os.listdir(n))
    for trace in traces[:3]:
        without_process(trace)
    job("-q", *traces, whole, code=1)
    assert sql(whole, "SELECT count(*) FROM trace_file WHERE pid IS NULL") == [(3,)]
    job("-q", traces[0], db, code=1)
    for i in range(1, 4):
        assert ": 1 trace," in job("--append", traces[i], db, code=1 if i < 3 else 0)
        assert ": 0 traces (and 1 that were there already)" in job("--append", traces[i], db)
    same(sql, whole, db)
    assert sql(db, "SELECT count(*), count(boot), sum(traces), max(traces) FROM clock_alignment") == sql(
        whole, "SELECT count(*), count(boot), sum(traces), max(traces) FROM clock_alignment")
    # In two files it is still the same recording.
    copy = tmp_path / "copy.zst"
    shutil.copy(traces[0], str(copy))
    assert "the same recording as" in job(traces[0], copy, tmp_path / "twice.db", code=1)
    assert sql(tmp_path / "twice.db", "SELECT count(*) FROM trace") == [(1,)]


@pytest.mark.slow
def test_machines_without_a_boot_id(fleet, build, run, sql, tmp_path):  # noqa: F811
    """/proc/sys/kernel/random/boot_id cannot be read everywhere. Each such trace then counts as a boot of its own, with one row, however
    often it is named again and grows; and what aligned it is said of it alone, not of all such traces."""
    out, _ = fleet("job", "--ranks", 4, "--nodes", 4, "--minutes", 0.5, "--offset", 1, "--no-boot-ids")
    traces = sorted((out / n / t) for n in os.listdir(str(out)) if n.startswith("node") for t in os.listdir(str(out / n)))
    whole, db, tool = tmp_path / "whole.db", tmp_path / "out.db", build.tool("probing-convert")
    rows = 'SELECT host, boot, method, "group", matches, traces FROM clock_alignment ORDER BY host'
    run([tool, "-q"] + traces + [whole])
    assert [r[:4] + r[5:] for r in sql(whole, rows)] == [("node%03d" % i, None, "collectives", 1, 1) for i in range(4)]
    grown = tmp_path / "t.zst"
    for state in states(traces[0], 4):
        grown.write_bytes(state)
        run([tool, "-q", "--append", grown, db], check=None)
        assert sql(db, "SELECT host, traces FROM clock_alignment") == [("node000", 1)]
    for n in range(1, 5):
        for _ in range(2):
            run([tool, "-q", "--append"] + traces[:n] + [db])
            assert sql(db, "SELECT host, traces, method FROM clock_alignment ORDER BY host") == [
                ("node%03d" % i, 1, "collectives" if n > 1 else "anchors") for i in range(n)]
    assert sql(db, rows) == sql(whole, rows)
    assert sql(db, "SELECT clock, clock_group, count(*) FROM trace_file GROUP BY 1, 2") == [("collectives", 1, 4)]
