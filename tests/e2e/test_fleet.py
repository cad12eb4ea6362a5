# SPDX-License-Identifier: Apache-2.0
"""Traces of simulated jobs whose truth is known (tests/fleet), merged into one database."""
import json
import os
import re
import sqlite3
import sys

import pytest


@pytest.fixture
def fleet(build, run, tmp_path):
    """fleet(name, option, ...): makes a job's traces, and returns their directory and the truth about the job."""
    def do(name, *options):
        out = tmp_path / name
        run([str(build.root / "tests" / "fleet" / "probing-fleet"), "--quiet", "--out", str(out)] + [str(o) for o in options], timeout=600)
        with open(str(out / "truth.json")) as f:
            return out, json.load(f)
    return do


def test_a_fleet_is_what_it_says(fleet, build, run, sql, tmp_path):
    out, truth = fleet("job", "--ranks", 16, "--nodes", 4, "--minutes", 0.1, "--tp", 2, "--pp", 2)
    nodes = sorted(str(out / n) for n in os.listdir(str(out)) if n.startswith("node"))
    db = str(tmp_path / "out.db")
    run([build.tool("probing-convert"), "-q"] + nodes + [db])
    assert sql(db, "SELECT count(*), count(DISTINCT rank), count(DISTINCT host), min(complete), sum(lost) FROM trace") == [(16, 16, 4, 1, 0)]
    assert sql(db, "SELECT sum(samples) FROM thread")[0][0] == truth["samples"]
    # All ranks came to all collectives, and each message was sent and received.
    assert sql(db, "SELECT count(*), sum(arrived < size OR complete < size) FROM collectives")[0][1] == 0
    assert sql(db, "SELECT count(*) FROM (SELECT src_rank, dst_rank, seq FROM comm_metrics WHERE op IN ('send', 'recv')"
                   " GROUP BY 1, 2, 3 HAVING count(*) <> 2)") == [(0,)]
    assert sql(db, "SELECT count(DISTINCT n), min(n) > 30 FROM (SELECT count(*) AS n FROM steps WHERE complete GROUP BY rank)")[0] == (1, 1)
    # The stacks are as deep as those of real training.
    assert sql(db, "SELECT max(depth) FROM backtrace")[0][0] > 50
    assert sql(db, "SELECT count(*) FROM backtrace WHERE func LIKE '%forward'")[0][0] > 0


def test_two_jobs_on_the_same_machines_hang_each_for_its_own_reason(fleet, build, run, sql, tmp_path):
    """Their groups have the same names, and their calls the same numbers and times."""
    answers = {}
    dirs = [fleet("job%d" % job, "--ranks", 16, "--nodes", 2, "--minutes", 0.05, "--step-ms", 500, "--hz", 1, "--tp", 4, "--job", job, "--hang", "%d:2" % rank)[0]
            for job, rank in ((4711, 5), (4712, 10))]
    for name, of in (("one", dirs[:1]), ("two", dirs[1:]), ("both", dirs)):
        db = str(tmp_path / (name + ".db"))
        run([build.tool("probing-convert"), "-q"] + of + [db])
        answers[name] = set(sql(db, "SELECT run, rank, cause, \"group\", seq, op, state, level, waiters FROM hangs"))
    assert {(row[0], row[1]) for row in answers["both"] if row[2]} == {("slurm:4711", 5), ("slurm:4712", 10)}
    assert answers["both"] == answers["one"] | answers["two"]


@pytest.fixture
def merged(fleet, build, run, tmp_path):
    """merged(name, option, ...): returns the database of such a job, its truth, and the output of the conversion."""
    def do(name, *options):
        out, truth = fleet(name, *options)
        nodes = sorted(str(out / n) for n in os.listdir(str(out)) if n.startswith("node"))
        db = str(tmp_path / (name + ".db"))
        done = run([build.tool("probing-convert"), "-q"] + nodes + [db], check=False, timeout=1800)
        assert done.returncode in (0, 1) and os.path.exists(db), done.stderr
        return db, truth, done.stderr
    return do


def clock_errors(sql, db, where="1"):
    """Returns how far each process's word of the true time lies from what the others together say, in seconds, ascending."""
    rows = sql(db, "SELECT t.host, e.ts - 1760000000000000000 - CAST(v.value AS INTEGER), CAST(v.value AS INTEGER) FROM trace_file t"
                   " JOIN event e ON e.id BETWEEN t.first_id AND t.last_id JOIN event_value v ON v.event = e.id"
                   " WHERE +e.name = 'fleet.truth' AND (%s)" % where)  # +: else all events are compared with each process
    assert len({host for host, _, _ in rows}) > 1 and len(rows) > 100
    # What all have in common, an offset and a drift of their clocks, is no error.
    base = rows[0][1]
    x = [n / 1e9 for _, _, n in rows]
    y = [(d - base) / 1e9 for _, d, _ in rows]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - mx) * (b - my) for a, b in zip(x, y)) / sum((a - mx) ** 2 for a in x)
    assert abs(slope) < 60e-6
    return sorted(abs(b - my - slope * (a - mx)) for a, b in zip(x, y))


JOB = ("--ranks", 16, "--nodes", 8, "--minutes", 0.8, "--offset", 1, "--drift", 50, "--hz", 1, "--layers", 1)
HARM = {"drift": (), "suspended": ("--suspend", "3:20:15"), "ntp step": ("--ntp-step", "2:20:-3"), "broken clock": ("--broken-clock", "0:-10"),
        "late": ("--late", "15:25"), "lost and torn": ("--lose", 3, "--tear", 4, "--duplicate", 5), "two runs": ("--runs", 2),
        "pipeline": ("--tp", 2, "--pp", 4), "noise": ("--jitter", 100, "--outliers", 0.05)}


@pytest.mark.parametrize("harm", sorted(HARM))
def test_one_time_for_many_machines(merged, sql, harm):
    db, truth, said = merged("job", *(JOB + HARM[harm]))
    errors = clock_errors(sql, db)
    assert errors[len(errors) * 99 // 100] < 100e-6, errors[len(errors) * 99 // 100]
    rows = sql(db, 'SELECT host, method, matches, "offset", drift_ppm, residual, uncertainty, reference, "group" FROM clock_alignment')
    assert len(rows) == 8 and {r[1] for r in rows} == {"collectives"} and {r[8] for r in rows} == {1}
    assert sum(r[7] for r in rows) == 1 and all(r[2] > 50 and 0 <= r[5] < 1e-3 and 0 <= r[6] < 1e-3 for r in rows)
    assert sql(db, "SELECT DISTINCT clock FROM trace") == [("collectives",)]
    # Each clock's offset and drift against the others are the true ones; for a clock that was set meanwhile they are in between.
    clocks = {c["node"]: c for c in truth["clocks"]}
    for host, _, _, offset, drift, _, _, _, _ in rows:
        if harm == "broken clock" and host == "node000":
            assert -10.1 < offset / (365.25 * 86400) < -9.9
            continue
        if harm == "ntp step" and host == "node002":
            continue
        other = rows[-1]
        true = (clocks[host]["offset_ns"] - clocks[other[0]]["offset_ns"]) / 1e9
        assert offset - other[3] == pytest.approx(true, abs=50e-3)  # it drifts
        if harm != "suspended":
            assert drift - other[4] == pytest.approx(clocks[host]["drift_ppm"] - clocks[other[0]]["drift_ppm"], abs=3)
    # The error is about as large as the message says.
    worst = max(r[6] for r in rows)
    assert errors[len(errors) // 2] < max(3 * worst, 20e-6)
    assert "cannot be compared" not in said


def test_clocks_while_a_job_hangs(merged, sql):
    """Nothing tells of the clocks any more: their lines go on as they were as a whole, not as a few last matches had them."""
    db, _, _ = merged("hangs", "--ranks", 8, "--nodes", 4, "--minutes", 4, "--offset", 1, "--drift", 50, "--hz", 1, "--layers", 1, "--jitter", 100,
                      "--outliers", 0.02, "--hang", "5:50")
    errors = clock_errors(sql, db)
    assert errors[len(errors) * 99 // 100] < 100e-6, errors[len(errors) * 99 // 100]


@pytest.mark.parametrize("years", [-10, 10])
def test_two_clocks_ten_years_apart(merged, sql, build, run, tmp_path, monkeypatch, years):
    """They are aligned, a message says so, and the date is that of the later clock: a clock that nobody has set lies in the past."""
    db, _, said = merged("job", "--ranks", 4, "--nodes", 2, "--minutes", 0.6, "--broken-clock", "1:%d" % years)
    errors = clock_errors(sql, db)
    assert errors[len(errors) * 99 // 100] < 100e-6
    behind = "node001" if years < 0 else "node000"
    assert "the time of day of 1 of 2 machines (%s) is wrong: 3652.5 days behind" % behind in said and "the later time was taken" in said, said
    assert sql(db, "SELECT host FROM clock_alignment WHERE \"offset\" < -3e8") == [(behind,)]
    monkeypatch.setenv("PROBING_CACHE_DIR", str(tmp_path / "cache"))
    said = run([build.tool("probing"), "ask", "died", db[:-3]], check=1).stderr  # the traces' database in the cache has a name that no user gave
    assert said.startswith("probing-ask: traces: the time of day of 1 of 2 machines (%s) is wrong: " % behind), said


TIMES = ("SELECT host, method, matches, reference, round(\"offset\", 9), drift_ppm, \"from\", \"to\" FROM clock_alignment ORDER BY 1",
         "SELECT f.recording, e.ts FROM event e JOIN trace_file f ON f.id = e.id >> 40 ORDER BY 1, 2",
         "SELECT f.recording, c.ts, c.duration FROM comm c JOIN trace_file f ON f.id = c.id >> 40 ORDER BY 1, 2, 3")


@pytest.mark.parametrize("pp", [1, 4])
def test_the_order_in_which_traces_are_named_changes_no_time(fleet, build, run, sql, tmp_path, pp):
    """Neither where all machines have the same collectives in common, nor along a pipeline of messages."""
    out, _ = fleet("job", "--ranks", 4, "--nodes", 4, "--minutes", 0.1, "--drift", 50, "--hz", 1, "--layers", 1, "--pp", pp)
    traces = sorted(str(t) for t in out.glob("*/*.zst"))
    found = []
    for i, order in enumerate((traces, traces[::-1], traces[2:] + traces[:2], traces[1:] + traces[:1])):
        db = str(tmp_path / ("%d.db" % i))
        run([build.tool("probing-convert"), "-q"] + order + [db])
        found.append([sql(db, query) for query in TIMES])
        assert found[-1] == found[0], i
    assert len(found[0][1]) > 10 and {m for _, m, *_ in found[0][0]} != {"anchors"}


def test_one_time_by_messages_alone(merged, sql):
    """Stages of a pipeline on machines of their own, with no collective between them: each message bounds the clocks' difference from one
    side."""
    db, _, _ = merged("job", "--ranks", 16, "--nodes", 4, "--pp", 4, "--no-world", "--minutes", 0.5, "--offset", 1, "--drift", 50, "--hz", 2)
    errors = clock_errors(sql, db)
    rows = sql(db, "SELECT method, uncertainty, reference, matches FROM clock_alignment")
    assert {r[0] for r in rows} == {"messages"} and all(r[2] or (0 < r[1] < 1e-3 and r[3] > 100) for r in rows)
    assert errors[-1] < max(r[1] for r in rows)


def errors_of_machines(sql, db):
    """Returns {machine: (its largest error against the reference's time, its uncertainty)} in seconds, the reference left out."""
    clocks = {host: (uncertainty, reference) for host, uncertainty, reference in sql(db, "SELECT host, uncertainty, reference FROM clock_alignment")}
    rows = sql(db, "SELECT t.host, CAST(v.value AS INTEGER), e.ts - 1760000000000000000 - CAST(v.value AS INTEGER) FROM trace_file t"
                   " JOIN event e ON e.id BETWEEN t.first_id AND t.last_id JOIN event_value v ON v.event = e.id WHERE e.name = 'fleet.truth'")
    own, = [host for host in clocks if clocks[host][1]]
    line = sorted((true, off) for host, true, off in rows if host == own)
    (x0, y0), (x1, y1) = line[0], line[-1]  # the reference's clock drifts, and what it shows is the time of all

    def error(true, off):
        return abs(off - y0 - (y1 - y0) * (true - x0) / (x1 - x0)) / 1e9

    return {h: (max(error(true, off) for host, true, off in rows if host == h), clocks[h][0]) for h in clocks if h != own}


@pytest.mark.parametrize("longer", [0, 40, 1000])
def test_messages_bound_the_error_whatever_the_network_does(merged, sql, longer):
    """Messages up the pipeline take longer than those back, by as many microseconds at each stage. No clock tells that from an offset, so the errors
    of the stages add up; the uncertainty of each covers them."""
    db, _, _ = merged("job", "--ranks", 8, "--nodes", 8, "--pp", 8, "--no-world", "--minutes", 0.3, "--offset", 1, "--drift", 50, "--wander", 0, "--hz", 1,
                      "--asymmetry", longer)
    found = errors_of_machines(sql, db)
    assert len(found) == 7 and sql(db, "SELECT DISTINCT method FROM clock_alignment") == [("messages",)]
    assert all(error <= uncertainty for error, uncertainty in found.values()), found
    assert max(error for error, _ in found.values()) > longer / 1e6 * 1.5  # of a chain of at least four, whose stages are wrong by half


def test_uncertainties_add_up_along_a_chain_of_machines(merged, sql):
    """Of machines that share collectives with their neighbours alone, that of one that is mapped by way of another includes the other's."""
    db, _, _ = merged("job", "--ranks", 8, "--nodes", 8, "--tp", 2, "--no-world", "--minutes", 0.3, "--offset", 1, "--drift", 50, "--hz", 1)
    rows = {int(host[4:]): (u, r, m) for host, u, r, m in sql(db, "SELECT host, uncertainty, reference, method FROM clock_alignment")}
    own, = [n for n in rows if rows[n][1]]
    direct = [n for n in rows if n != own and (n // 2 == own // 2 or n % 2 == own % 2)]  # its tensor parallel pair, and its data parallel group
    far = [n for n in rows if n != own and n not in direct]
    assert {r[2] for r in rows.values()} == {"collectives"} and len(direct) == 4 and len(far) == 3
    assert min(rows[n][0] for n in far) > min(rows[n][0] for n in direct) > 0
    assert sum(rows[n][0] for n in far) / 3 > 1.5 * sum(rows[n][0] for n in direct) / 4, rows


def test_traces_of_a_boot_have_one_clock(merged, sql):
    """Anchors of different processes differ by the time that it takes to read a clock; all of them make one mapping."""
    db, _, _ = merged("job", "--ranks", 8, "--nodes", 1, "--minutes", 0.5)
    assert sql(db, "SELECT method, traces FROM clock_alignment") == [("anchors", 8)]
    # Samples of two ranks at the same CLOCK_MONOTONIC have the same time: the collectives' ends are the true ones except for rounding.
    assert sql(db, "SELECT count(DISTINCT m), count(*) FROM (SELECT c.realtime - c.mono AS m FROM clock c)")[0][0] > 5
    anchors = sql(db, "SELECT mono, realtime FROM clock ORDER BY mono")
    offsets = [real - mono for mono, real in anchors]
    assert max(offsets) - min(offsets) < 1000


def test_two_trainings_of_one_launchers_job(fleet, build, run, sql, tmp_path):
    """A Slurm job that holds two trainings side by side on the same machines: two runs, whose collectives are not each other's, and the clocks are compared by
    those of both. A job that starts its ranks again, with another address, stays one run."""
    shape = ("--ranks", 8, "--nodes", 4, "--minutes", 0.3, "--hz", 1, "--layers", 1, "--offset", 1, "--seed", 3)
    alone = fleet("one", *shape)[0]
    both = [alone, fleet("two", *shape, "--port", 29501, "--step-ms", 130)[0]]
    found = []
    for inputs in ([alone], both):
        db = str(tmp_path / ("%d.db" % len(inputs)))
        assert "say that they are rank" not in run([build.tool("probing-convert"), "-q"] + inputs + [db]).stderr
        found.append((sql(db, "SELECT run, traces, ranks FROM runs ORDER BY 1"), sql(db, "SELECT min(matches) FROM clock_alignment WHERE NOT reference")[0][0],
                      sql(db, "SELECT count(*), min(arrived), max(arrived) FROM collectives WHERE size = 8")))
    assert found[0][0] == [("slurm:4711", 8, 8)]
    assert found[1][0] == [("slurm:4711@node000:29500", 8, 8), ("slurm:4711@node000:29501", 8, 8)]
    assert found[1][1] > 1.5 * found[0][1] and found[1][2][0][0] > 1.5 * found[0][2][0][0] and found[1][2][0][1:] == (8, 8)
    # the same when the second is added later
    db = str(tmp_path / "added.db")
    run([build.tool("probing-convert"), "-q", both[0], db])
    run([build.tool("probing-convert"), "-qa", both[1], db])
    assert sql(db, "SELECT run, traces, ranks FROM runs ORDER BY 1") == found[1][0]
    # Started again: the first start has ended, so that it is one run with two attempts.
    with sqlite3.connect(db) as c:
        c.execute("UPDATE trace_file SET start_ts = start_ts + 100000000000, end_ts = end_ts + 100000000000 WHERE run LIKE '%29501'")
        c.execute("UPDATE trace_file SET run = first_run")
    c.close()
    third = fleet("three", "--ranks", 1, "--nodes", 1, "--minutes", 0.05, "--hz", 1, "--job", 4712, "--seed", 9)[0]
    run([build.tool("probing-convert"), "-qa", third, db])
    assert sql(db, "SELECT run, attempt, count(*) FROM trace WHERE run LIKE '%4711%' GROUP BY 1, 2 ORDER BY 2") == [("slurm:4711", 0, 8), ("slurm:4711", 1, 8)]


def test_machines_of_one_name_whose_jobs_begin_alike(fleet, build, run, sql, tmp_path):
    """Host, process and start time of their first processes are the same: the boot tells them apart."""
    jobs = [fleet(name, "--ranks", 4, "--nodes", 2, "--minutes", 0.1, "--hz", 1, "--layers", 1, "--seed", seed, "--job", job)[0]
            for name, seed, job in (("a", 3, 4711), ("b", 4, 4911))]
    run([build.tool("probing-convert"), "-q"] + jobs + [tmp_path / "out.db"])
    assert sql(tmp_path / "out.db", "SELECT count(DISTINCT first_run) FROM trace_file") == [(2,)]  # node000, node001
    assert sql(tmp_path / "out.db", "SELECT run, traces, ranks FROM runs ORDER BY 1") == [("slurm:4711", 4, 4), ("slurm:4911", 4, 4)]
    assert sql(tmp_path / "out.db", "SELECT max(arrived) FROM collectives WHERE size = 4") == [(4,)]


def test_clocks_that_nothing_compares_say_so(fleet, build, run, sql, tmp_path):
    a, _ = fleet("a", "--ranks", 8, "--nodes", 2, "--minutes", 0.2, "--seed", 1)
    b, _ = fleet("b", "--ranks", 4, "--nodes", 1, "--minutes", 0.2, "--seed", 2)
    for trace in os.listdir(str(b / "node000")):  # another job on another machine
        os.rename(str(b / "node000" / trace), str(b / trace))
    db = str(tmp_path / "out.db")
    # Only half of the ranks are there, so that the two jobs share nothing: their groups have other ranks.
    said = run([build.tool("probing-convert"), "-q", str(a / "node000"), str(a / "node001"), str(b), db]).stderr
    assert "the clocks of 1 of 3 machines (node000) cannot be compared" in said and "clock_alignment" in said
    assert sql(db, "SELECT method, uncertainty IS NULL, count(*) FROM clock_alignment GROUP BY 1, 2 ORDER BY 1") == [
        ("anchors", 1, 1), ("collectives", 0, 2)]
    # And a question, about the database or the traces, says so once.
    for command in (("ask", "time"), ("ask", "died"), ("stacks", "--at", "-1")):
        for of in ([db], [str(a / "node000"), str(a / "node001"), str(b)]):
            said = run([build.tool("probing"), *command, *of], check=None).stderr
            assert said.count("the clocks of 1 of 3 machines (node000) cannot be compared with ") == 1, said


@pytest.mark.parametrize("nodes", [2, 3])
def test_starts_of_a_job_are_not_taken_for_each_other(fleet, build, run, sql, tmp_path, nodes):
    """Of a job that was started twice, one machine's traces of the first start and the others' of the second: their collectives are counted alike, but
    were others. Clocks that are wrong by as much, with traces of one start, are aligned."""
    convert, db = build.tool("probing-convert"), str(tmp_path / "out.db")
    out, _ = fleet("job", "--ranks", nodes, "--nodes", nodes, "--minutes", 0.3, "--drift", 50, "--hz", 1, "--runs", 2, "--restarts")
    first, second = ([str(sorted(n.glob("*.zst"))[i]) for n in sorted(out.glob("node*"))] for i in (0, 1))
    said = run([convert, "-q", first[0]] + second[1:] + [db]).stderr
    assert "the clocks of 1 of %d machines" % nodes in said
    groups = sql(db, 'SELECT count(*), max(abs("offset")) < 1 FROM clock_alignment WHERE method = \'collectives\' GROUP BY "group"')
    assert groups == ([(2, 1)] if nodes == 3 else [])
    out, _ = fleet("off", "--ranks", nodes, "--nodes", nodes, "--minutes", 0.3, "--drift", 50, "--hz", 1, "--offset", 3600, "--jitter", 1000)
    assert "the clocks of" not in run([convert, "-q", "-f"] + [str(n) for n in sorted(out.glob("node*"))] + [db]).stderr
    assert sql(db, "SELECT DISTINCT method FROM clock_alignment") == [("collectives",)]


def test_a_clock_without_a_name(fleet, build, run, sql, tmp_path):
    """A trace whose first block is lost does not say which machine it is of. Only that trace cannot be compared with the others."""
    job, _ = fleet("job", "--ranks", 3, "--nodes", 3, "--minutes", 0.2)
    path, = (job / "node000").glob("*.zst")
    data = path.read_bytes()
    path.write_bytes(data[data.index(b"\x5d\x2a\x4d\x18", 4):])  # from the second hint frame on
    db = str(tmp_path / "out.db")
    done = run([build.tool("probing-convert"), str(job), db], check=None)
    assert done.returncode == 1 and sql(db, "SELECT count(*) FROM trace WHERE host IS NULL AND records > 100") == [(1,)], done.stderr
    assert "the clocks of 1 of 3 machines (one without a name) cannot be compared with those of node00" in done.stderr, done.stderr
    said = run([build.tool("probing"), "ask", "time", db], check=None).stderr
    assert "(null)" not in said and "()" not in said, said


@pytest.mark.parametrize("shape", [pytest.param((), marks=pytest.mark.slow), ("--tp", 2, "--pp", 2)])
def test_who_is_at_fault_is_named(merged, build, run, sql, shape):
    job = ("--ranks", 32, "--nodes", 8, "--minutes", 0.3, "--offset", 1, "--hz", 1, "--layers", 1)
    db, _, _ = merged("slow", *(job + shape + ("--straggler", "13:20")))
    rows = sql(db, "SELECT rank, share FROM stragglers ORDER BY came_last DESC LIMIT 2")
    assert rows[0][0] == 13 and (shape or rows[0][1] > 0.9 > 0.2 > rows[1][1])
    db, _, _ = merged("hung", *(job + shape + ("--hang", "13:12")))
    assert {r[0] for r in sql(db, "SELECT rank FROM hangs WHERE cause")} == {13}
    assert sql(db, "SELECT missing FROM collectives WHERE missing IS NOT NULL ORDER BY length(missing) LIMIT 1")[0][0] in ("12", "13")
    db, _, _ = merged("killed", *(job + shape + ("--kill", "13:12")))
    assert sql(db, "SELECT rank, kind FROM failures WHERE nth = 1") == [(13, "killed")]
    assert sql(db, "SELECT count(*), sum(kind = 'exception') FROM failures") == [(32, 31)]
    # The answer does not only say that the others failed because of it, but also whom they waited for: the one that did not fail itself.
    assert set(sql(db, "SELECT rank, state FROM hangs WHERE cause")) == {(13, "dead")}
    answer = json.loads(run([build.tool("probing"), "ask", "hang", "--json", db]).stdout)[0]["rows"][0]["answer"]
    assert re.search(r"rank 13 died at \d\d:\d\d:\d\d\.\d{3} \(killed by signal 9 \(SIGKILL\)\), and the call failed in \d+ of \d+ at .* \(RuntimeError: Connection closed by peer\)"
                     ": rank 13 was in ", answer), answer
    # The same if the launcher has ended all others before it was missed for a second; and in a job of many groups, for one that raised an
    # exception.
    how, state, says = (("--raise",), "ended", r"had ended at .* \(exception ValueError: bad batch\)") if shape else ((), "dead", r"died at .* \(killed by signal 9 \(SIGKILL\)\)")
    db, _, _ = merged("told", *(job + shape + ("--kill", "13:12", "--launcher", "0.3") + how))
    assert set(sql(db, "SELECT rank, state FROM hangs WHERE cause")) == {(13, state)}
    answer = json.loads(run([build.tool("probing"), "ask", "hang", "--json", db]).stdout)[0]["rows"][0]["answer"]
    assert re.search(r"rank 13 %s, and the call failed in \d+ of \d+ at .* \(RuntimeError: Connection closed by peer\)" % says, answer), answer


@pytest.mark.slow
@pytest.mark.limit(1800)
def test_who_is_at_fault_is_named_among_a_thousand(merged, sql):
    job = ("--ranks", 1000, "--nodes", 125, "--minutes", 0.1, "--offset", 1, "--drift", 50, "--jobs", 2)
    db, _, _ = merged("hung", *job, "--hang", "333:4")
    assert sql(db, "SELECT DISTINCT rank, state FROM hangs WHERE cause") == [(333, "never came")]
    db, _, _ = merged("killed", *job, "--kill", "333:4")
    assert sql(db, "SELECT rank, kind FROM failures WHERE nth = 1") == [(333, "killed")]
    assert sql(db, "SELECT DISTINCT rank, state FROM hangs WHERE cause") == [(333, "dead")]


def test_attempts_of_a_job_are_counted_apart(merged, sql):
    """torchrun --max-restarts: the numbers of collectives begin anew, so two calls of one number lie minutes apart. (Job and run are the
    same.)"""
    db, _, _ = merged("job", "--ranks", 4, "--nodes", 2, "--minutes", 0.1, "--runs", 3, "--restarts", "--kill", "2:4", "--straggler", "1:20")
    assert sql(db, "SELECT count(*), sum(ranks), sum(processes) FROM runs") == [(1, 4, 12)]
    assert sql(db, "SELECT attempt, count(*), count(DISTINCT rank) FROM trace GROUP BY 1") == [(0, 4, 4), (1, 4, 4), (2, 4, 4)]
    # The slowest step, and one whose peer was killed, take seconds; between two attempts lie minutes.
    assert sql(db, "SELECT count(DISTINCT attempt), max(complete), max(skew_ms) < 60000 FROM collectives") == [(3, 4, 1)]
    last, imposed = sql(db, "SELECT rank, imposed_seconds FROM stragglers ORDER BY imposed_seconds DESC LIMIT 1")[0]
    assert last == 1 and imposed < 60
    # Failures of the first attempt are in the past.
    assert sql(db, "SELECT count(*) FROM hangs") == [(0,)]
    assert sql(db, "SELECT rank, kind FROM failures WHERE nth = 1") == [(2, "killed")]


def test_attempts_of_ranks_whose_first_trace_is_missing(fleet, build, run, sql, tmp_path):
    """A rank whose first start left no trace (or whose node's disk was lost) does not give its second start to the others' first: when it began, all processes
    of the first start had ended. The same in one conversion, when traces are added, and for who reads the traces themselves."""
    out, _ = fleet("job", "--ranks", 4, "--nodes", 2, "--minutes", 0.1, "--runs", 3, "--restarts", "--hz", 1)
    convert = build.tool("probing-convert")

    def first(rank):
        return min(out.glob("node*/*-r%d-*.zst" % rank), key=lambda path: int(path.stem.split("-")[-1]))

    first(0).unlink()
    started = []
    for name, parts in (("all", [out]), ("added", [out / "node001", out])):
        db = tmp_path / (name + ".db")
        for part in parts:
            run([convert, "-q", "--append", part, db], check=None)
        started.append(sql(db, "SELECT rank, group_concat(attempt, ' ') FROM (SELECT rank, attempt FROM trace ORDER BY rank, start) GROUP BY rank"))
        assert sql(db, "SELECT attempt, min(arrived), max(arrived), min(complete) FROM collectives GROUP BY 1") == [(0, 3, 3, 3), (1, 4, 4, 4), (2, 4, 4, 4)]
    assert started == [[(0, "1 2"), (1, "0 1 2"), (2, "0 1 2"), (3, "0 1 2")]] * 2
    code = ("import json, sys; sys.path.insert(0, sys.argv[1]); import probing; t = probing.open(*sys.argv[2:])\n"
            "print(json.dumps(sorted(r for r in t.table('traces').select('rank', 'attempt').rows())))")
    said = run([sys.executable, "-c", code, build.share / "python", out / "node000", out / "node001"]).stdout
    assert json.loads(said) == [[0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2], [3, 0], [3, 1], [3, 2]]


@pytest.mark.parametrize("told, attempt", [({"TORCHELASTIC_RESTART_COUNT": "2"}, 2), ({"SLURM_RESTART_COUNT": "1", "TORCHELASTIC_RESTART_COUNT": "2"}, 3),
                                           ({"SLURM_RESTART_COUNT": "-3", "TORCHELASTIC_RESTART_COUNT": "9" * 30}, 1000000)])
def test_the_launcher_says_which_attempt_it_is(build, record, convert, sql, run, told, attempt):
    """A third start alone is not taken for the first one."""
    done = record("import time\ntime.sleep(0.2)\n", env=dict(os.environ, RANK="0", WORLD_SIZE="2", TORCHELASTIC_RUN_ID="x", **told))
    again = record("import time\ntime.sleep(0.2)\n", env=dict(os.environ, RANK="0", WORLD_SIZE="2", TORCHELASTIC_RUN_ID="x"))
    assert sql(convert(done.trace), "SELECT attempt FROM trace") == [(attempt,)]
    assert sql(convert(again.trace, done.trace), "SELECT attempt FROM trace ORDER BY start") == [(attempt,), (attempt + 1,)]
    code = "import sys; sys.path.insert(0, sys.argv[1]); import probing; print(list(probing.open(sys.argv[2]).table('traces').select('attempt').rows()))"
    assert str(attempt) in run([sys.executable, "-c", code, build.share / "python", done.trace]).stdout


def test_runs_are_counted_apart(merged, sql):
    db, _, _ = merged("job", "--ranks", 8, "--nodes", 2, "--minutes", 0.2, "--runs", 2, "--straggler", "5:10")
    assert sql(db, "SELECT count(*), min(ranks), max(ranks), min(hosts) FROM runs") == [(2, 8, 8, 2)]
    one = sql(db, "SELECT run, count(*), max(arrived), max(size) FROM collectives GROUP BY run")
    assert len(one) == 2 and {r[2:] for r in one} == {(8, 8)}
    assert sql(db, "SELECT count(*) FROM stragglers") == [(16,)]


def test_ranks_that_are_missing_or_there_twice_are_named(fleet, build, run, tmp_path):
    out, _ = fleet("job", "--ranks", 8, "--nodes", 2, "--minutes", 0.1, "--lose", 6, "--duplicate", 3)

    def said(*words):
        return run([build.tool("probing-convert")] + [str(w) for w in words], timeout=600).stderr

    of_all = [line for line in said(out, tmp_path / "all.db").splitlines() if " of run " in line]
    assert len(of_all) == 1 and "no trace of rank 6 of 8 of run slurm:" in of_all[0]
    assert "2 processes say that they are rank 3 of run slurm:" in of_all[0]
    # If the user chose some ranks, the others are not missing; and ranks that are started again do not count twice.
    one = said("--append", out / "node000", tmp_path / "one.db")
    assert "no trace" not in one and "rank 3 of run" in one
    with sqlite3.connect(str(tmp_path / "one.db")) as c:  # as if a rank had forked another process, which then inherits its number
        c.execute("UPDATE trace_file SET ppid = (SELECT min(pid) FROM trace_file WHERE rank = 3) WHERE rank = 3 AND pid > (SELECT min(pid) FROM trace_file WHERE rank = 3)")
    c.close()
    both = said("--append", out / "node001", tmp_path / "one.db")
    assert "no trace of rank 6 of 8" in both and "rank 3 of run" not in both
    again, _ = fleet("again", "--ranks", 8, "--nodes", 2, "--minutes", 0.1, "--runs", 2, "--restarts")
    assert " of run " not in said(again, tmp_path / "again.db")


@pytest.mark.parametrize("ranks,nodes,minutes", [(100, 13, 0.25)] + [pytest.param(*p, marks=[pytest.mark.slow, pytest.mark.limit(3600)]) for p in ((1000, 125, 0.2), (10000, 1250, 0.06))])
def test_large_fleets(merged, sql, ranks, nodes, minutes):
    db, _, _ = merged("job", "--ranks", ranks, "--nodes", nodes, "--minutes", minutes, "--offset", 1, "--drift", 50, "--jobs", 2,
                      # A real straggler must stand out: of 10,000 ranks the slowest is by chance 20 ms slower than most.
                      "--straggler", "%d:%d" % (ranks // 3, 20 if ranks < 10000 else 100))
    errors = clock_errors(sql, db)
    assert errors[len(errors) * 99 // 100] < 100e-6
    assert sql(db, "SELECT count(*), min(method) FROM clock_alignment") == [(nodes, "collectives")]
    assert sql(db, "SELECT rank FROM stragglers ORDER BY came_last DESC LIMIT 1") == [(ranks // 3,)]
