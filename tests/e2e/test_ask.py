# SPDX-License-Identifier: Apache-2.0
"""`probing ask`: the questions that come with it, on simulated jobs whose truth is known and on a real recording."""
import json
import os
import re
import sqlite3
import subprocess
import sys

import pytest
from conftest import kill_group
from inject_helpers import wait_until
from test_triggers import HOOKED

NAMES = ["time", "step", "loader", "straggler", "what_if", "hang", "died", "last", "memory", "diff", "gpu", "overlap"]


def ask(build, run, name, *args, code=0):
    done = run([build.tool("probing"), "ask", name, "--json"] + list(args), check=code)
    parts = {p["title"]: p["rows"] for p in json.loads(done.stdout)} if done.stdout else {}
    answer = parts.pop("answer", [{}])
    return answer[0].get("answer", done.stderr), list(parts.values())


def test_straggler(build, run, simulated_job):
    out = simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50")
    answer, tables = ask(build, run, "straggler", out / "out.db")
    steps = run([build.tool("probing-query"), "--csv", out / "out.db", "SELECT count(*) FROM steps WHERE rank = 5 AND complete"])
    cost = float(re.fullmatch(r"rank 5: the others waited for it in \d+ of \d+ collectives, ([0-9.]+) of [0-9.]+ s in all, \d+ % of the run", answer).group(1))
    assert cost == pytest.approx(0.030 * int(steps.stdout.split()[1]), rel=0.15), answer  # others' clocks are up to a second off
    rank, median = tables[1]
    assert rank["forward"] - median["forward"] == pytest.approx(0.030, rel=0.2) and rank["rank"] == 5


def edited(db, tmp_path, script):
    """A copy of the database with more in it."""
    copy = tmp_path / "edited.db"
    copy.write_bytes(db.read_bytes())
    with sqlite3.connect(str(copy)) as c:
        if "Work::wait" in script and not c.execute("SELECT 1 FROM frame WHERE name GLOB 'c10d::Work::wait*' LIMIT 1").fetchone():
            pytest.skip("the libraries of the simulated jobs' stacks are not here")
        c.executescript(script)
    c.close()
    return copy


# What follows from the calls, made anew after they were changed; and the view's figure, after the collectives were.
ANEW = "DELETE FROM collective; INSERT INTO collective SELECT * FROM collectives_made; DELETE FROM straggler; INSERT INTO straggler SELECT * FROM stragglers_made;"
SUMS = "UPDATE straggler SET others_waited = (SELECT coalesce(sum(min(skew_ms, longest_ms - shortest_ms)), 0) / 1e3 FROM collective c" \
       " WHERE c.last_rank = straggler.rank AND c.shortest_rank = c.last_rank AND c.op <> 'barrier');"


def straggler(build, run, sql, db):
    """The answer, and the rank that it speaks of: it is the first one of the view."""
    said = ask(build, run, "straggler", db)[0]
    rank = int(re.match(r"(?:no straggler: )?rank (\d+)", said).group(1))
    assert sql(db, "SELECT rank FROM stragglers LIMIT 1") == [(rank,)], said
    return said, rank


def test_straggler_by_cost(build, run, simulated_job, tmp_path, sql):
    """Each step's large all_reduce waits for rank 5, the three small ones after it for nobody: it is the straggler, though in a quarter of them."""
    small = "INSERT INTO collective SELECT \"group\", seq * 1000 + n.value, op, arrived, size, complete, first_enter, last_enter, exit, 0.1, (seq + n.value) % 5, (seq + n.value) % 5," \
            " 0.1, 0.2, 8, dtype, NULL, run, attempt FROM collective, json_each('[1,2,3]') n; UPDATE straggler SET collectives = 4 * collectives;" + SUMS
    db = edited(simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50") / "out.db", tmp_path, small)
    assert straggler(build, run, sql, db)[0].startswith("rank 5: the others waited for it in ")
    db = edited(simulated_job("--seed", 1) / "out.db", tmp_path, small)
    assert straggler(build, run, sql, db)[0].startswith("no straggler: rank ")


@pytest.mark.parametrize("rank, late, answer", [
    ("3", "iif(rowid = (SELECT max(rowid) / 2 FROM collective), 9e4, 0)", r"rank 3: .*; not throughout: longer than for any other in \d of 10 tenths of them, (9\d|100) % of it in one"),
    ("3", "iif(rowid < (SELECT max(rowid) / 5 FROM collective), 1e3, 0)", r"rank 3: .*; not throughout: longer than for any other in [2-5] of 10 tenths of them, [56]\d % of it in one"),
    ("iif(rowid % 20 < 15, 3, 4)", "50", r"rank 3: .* the run"),  # throughout
    ("iif(rowid % 9 < 6, 3, 4)", "iif(rowid < (SELECT max(rowid) / 2 FROM collective), 400, 9)",
     r"rank 3: .*; not throughout: longer than for any other in (10|9) of 10 tenths of them, 2\d % of it in one"),  # two thirds of what there is, most of it early
    ("iif(rowid % 20 < 9, 3, 4 + rowid % 2)", "50", r"no straggler: rank 3 was waited for longest, .* % of the run, and others were waited for, too"),
    ("3", "0.05", r"no straggler: rank 3 was waited for longest, 0.00\d of 0.00\d s in all, in 175 of 176 collectives, 0.0 % of the run \(less than 5 %\)"),
    ("3", "iif(rowid = (SELECT max(rowid) / 2 FROM collective), 2e3, 0.1)",  # a tenth of the run, once
     r"no straggler: rank 3 was waited for longest, .*, at times, as any rank is where processors are short: longer than for any other in \d+ of 10 tenths of them")])
def test_a_busy_machine_makes_no_straggler(build, run, simulated_job, tmp_path, sql, rank, late, answer):
    """Who costs more than half of all waiting and throughout is named; where processors are short every rank is late for a time, so that it takes more of the run if not, and that is said."""
    db = edited(simulated_job("--seed", 1) / "out.db", tmp_path,
                "UPDATE collective SET last_rank = {0}, shortest_rank = {0}, longest_ms = shortest_ms + {1}, skew_ms = {1} WHERE {1} IS NOT 0;".format(rank, late) + SUMS)
    said = straggler(build, run, sql, db)[0]
    assert re.fullmatch(answer, said), said


@pytest.mark.parametrize("wrong", [
    "UPDATE comm SET duration = duration + 20000000 WHERE id >> 40 <> (SELECT id FROM trace_file WHERE rank = 2);",  # all others see the end late
    "UPDATE comm SET ts = ts + 20000000 WHERE id >> 40 = (SELECT id FROM trace_file WHERE rank = 2);"])  # its clock is wrong by as much
def test_neither_durations_nor_clocks_alone_make_a_straggler(build, run, simulated_job, tmp_path, sql, wrong):
    db = edited(simulated_job("--seed", 1) / "out.db", tmp_path, wrong + ANEW)
    assert straggler(build, run, sql, db)[0].startswith("no straggler: rank ")


@pytest.mark.parametrize("shape", [("--seed", s, "--ranks", r) for s in (2, 3) for r in (2, 4)])
def test_a_healthy_job_has_no_straggler(build, run, simulated_job, sql, shape):
    """Nor when its ranks are late by much now and then."""
    for noise in ((), ("--jitter", "500", "--outliers", "0.05")):
        assert straggler(build, run, sql, simulated_job(*shape, *noise) / "out.db")[0].startswith("no straggler: rank ")


def test_a_straggler_of_each_run(build, run, simulated_job, sql):
    """Of two runs each has its own waiting, and the one with a straggler is named."""
    out = simulated_job("--runs", "2", "--straggler", "5:30") / "out.db"
    said = straggler(build, run, sql, out)[0]
    assert re.match(r"rank 5 of run \S+: the others waited for it in \d+ of \d+ collectives, ", said), said
    cost, of_all = (float(n) for n in re.search(r", ([0-9.]+) of ([0-9.]+) s in all", said).groups())
    assert cost > 0.9 * of_all


def test_a_straggler_of_few_collectives(build, run, simulated_job, tmp_path, sql):
    few = "DELETE FROM collective WHERE rowid NOT IN (SELECT rowid FROM collective WHERE op = 'all_reduce' AND shortest_rank = 5 LIMIT 3);"
    db = simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50") / "out.db"
    assert straggler(build, run, sql, edited(db, tmp_path, few + SUMS))[0].endswith(" % of the run (less than 5 %)")
    long = few + "UPDATE collective SET skew_ms = %d, longest_ms = shortest_ms + %d;" + SUMS
    said = straggler(build, run, sql, edited(db, tmp_path, long % (5000, 5000)))[0]
    assert said.startswith("rank 5: the others waited for it in 3 of ") and said.endswith("of the run; of so few that it may be chance"), said
    said = straggler(build, run, sql, edited(db, tmp_path, long % (500, 500)))[0]
    assert said.startswith("no straggler: rank 5 ") and said.endswith("of the run; of so few that it may be chance"), said


def test_a_straggler_that_cannot_be_told(build, run, simulated_job, tmp_path):
    """Clocks that could not be laid on each other, and calls of which none came to its end: a sentence each."""
    db = simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50") / "out.db"
    apart = edited(db, tmp_path, "UPDATE trace_file SET clock_group = id;" + ANEW)
    answer, tables = ask(build, run, "straggler", apart)
    assert re.fullmatch(r"no straggler can be told: the clocks of the ranks cannot be compared \(view clock_alignment\), so that who came last is not known; "
                        r"by the durations alone rank 5 was waited for longest, [0-9.]+ of [0-9.]+ s in all", answer) and tables == [[], [], []][:len(tables)], (answer, tables)
    never = edited(db, tmp_path, "UPDATE comm SET flags = flags | 1;" + ANEW)
    assert ask(build, run, "straggler", never)[0] == "no straggler can be told: no collective of several ranks is complete (`probing ask hang`)"


def test_loader_of_one_rank(build, run, simulated_job, tmp_path):
    """Where one rank waits for its data the others wait for it: the mean over all would hide that."""
    db = simulated_job("--seed", 1) / "out.db"
    slow = "UPDATE torch_step SET data = 0.01 * duration; UPDATE torch_step SET data = 0.6 * duration WHERE id >> 40 %s (SELECT id FROM trace_file WHERE rank = 2)"
    answer, _ = ask(build, run, "loader", edited(db, tmp_path, slow % "="))
    assert re.match(r"yes: rank 2 spends 60.0 % of its steps' time waiting for data, [0-9.]+ s of a step's [0-9.]+ s; half of the ranks 1.0 % or less$", answer), answer
    answer, _ = ask(build, run, "loader", edited(db, tmp_path, slow % "IS NOT NULL OR 1 ="))
    assert re.match(r"yes: 60.0 % of the steps' time is spent waiting for data, [0-9.]+ s of a step's [0-9.]+ s$", answer), answer


def test_memory(build, run, simulated_job, tmp_path):
    """All ranks load 300 MB before the first step and give it back after the last; rank 3 keeps 2 MB more each second of its work."""
    db = simulated_job("--seed", 1) / "out.db"
    rows = "WITH work AS (SELECT id, rank, first_id, start_ts, end_ts FROM trace_file), second(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM second WHERE n < 59)" \
           " INSERT INTO memory_sample(id, ts, rss) SELECT w.first_id + 1000000 + n, w.start_ts + n * (w.end_ts - w.start_ts) / 60, 5000000 * n FROM work w, second;"
    load = "DELETE FROM memory_sample;"
    span = "(SELECT min(timestamp + duration) FROM steps s WHERE s.rank = f.rank AND complete)", "(SELECT max(timestamp + duration) FROM steps s WHERE s.rank = f.rank AND complete)"
    rss = "UPDATE memory_sample AS m SET rss = (SELECT CASE WHEN m.ts < 1e9 * %s THEN 3000000 * (1 + (m.id & 63)) WHEN m.ts > 1e9 * %s THEN 10000000" \
          " ELSE 300000000 + %%s END FROM trace_file f WHERE m.id BETWEEN f.first_id AND f.last_id);" % span
    leak = "iif(f.rank = 3, 2000000 * (m.ts - f.start_ts) / 1e9, 0)"
    answer, tables = ask(build, run, "memory", edited(db, tmp_path, load + rows + rss % leak))
    rate = re.match(r"rank 3 \(process \d+\) grows by ([0-9.]+) MB a minute, to \d+ MB$", answer)
    assert rate and float(rate.group(1)) == pytest.approx(120, rel=0.02), answer
    assert [r["rank"] for r in tables[0]][0] == 3 and {r["mb_per_minute"] for r in tables[0][1:]} == {0}
    answer, _ = ask(build, run, "memory", edited(db, tmp_path, load + rows + rss % "0"))
    assert answer.startswith("nowhere much: the largest growth is 0.00 MB a minute"), answer
    answer, _ = ask(build, run, "memory", edited(db, tmp_path, "UPDATE memory_sample SET id = -id WHERE id & 1048575 > 1"))
    assert answer.startswith("too short to say: "), answer


def test_what_if(build, run, simulated_job, sql):
    """The same job without its straggler is known: the answer has it within 2 %."""
    with_it, without = simulated_job("--straggler", "5:40", "--offset", "1", "--jitter", "5", "--outliers", "0"), \
        simulated_job("--offset", "1", "--jitter", "5", "--outliers", "0")
    answer, tables = ask(build, run, "what_if", with_it / "out.db")
    assert answer.startswith("without rank 5's lateness it would take"), answer
    saved = {r["what"]: r["saved"] for r in tables[0]}

    def a_step(out):
        return sql(out / "out.db", "SELECT (max(timestamp) - min(timestamp)) / (max(step) - min(step)) FROM steps WHERE rank = 0 AND complete")[0][0]

    steps = sql(with_it / "out.db", "SELECT count(*) FROM steps WHERE rank = 0 AND complete")[0][0]
    assert a_step(with_it) - saved["without rank 5's lateness"] / steps == pytest.approx(a_step(without), rel=0.02)
    assert saved["without node node001's lateness"] == pytest.approx(saved["without rank 5's lateness"], rel=0.05)
    data = sql(with_it / "out.db", "SELECT avg(data) FROM steps WHERE rank = 5 AND complete")[0][0]
    assert saved["without waiting for data"] / steps == pytest.approx(data, rel=0.1)


def test_what_if_of_a_process_alone(build, run, simulated_job, tmp_path):
    """It waits for nobody but for its data."""
    db = edited(simulated_job("--straggler", "5:40") / "out.db", tmp_path, """DELETE FROM trace_file WHERE rank > 0;
        UPDATE trace_file SET rank = NULL, world_size = NULL; DELETE FROM comm;
        UPDATE torch_step SET data = duration / 4""")
    answer, tables = ask(build, run, "what_if", db)
    with sqlite3.connect(str(db)) as con:
        (pid, seconds, data), = con.execute('SELECT t.pid, t."end" - t.start, sum(s.duration) / 4 FROM trace t JOIN steps s ON s.trace_id = t.id WHERE s.complete')
    assert [(r["what"], r["saved"]) for r in tables[0]] == [("without waiting for data", pytest.approx(data, abs=0.002))]
    assert answer == "process %d: without waiting for data it would take %.1f s instead of %.1f s, %.1f %% less" % (pid, seconds - data, seconds, 100 * data / seconds)
    run([build.tool("probing"), "ask", "what_if", edited(db, tmp_path, "UPDATE trace_file SET rank = 0, world_size = 8")], check=1)


def test_what_if_of_a_part(build, run, simulated_job):
    """Of a job with more calls than can be replayed the last ones are, and that is said; the straggler is the same."""
    db = simulated_job("--straggler", "5:20") / "out.db"
    tell = "replay('calls') AS calls, replay('part') AS part, replay('seen') AS seen, replay('length') AS length, replay('nth rank', 1) AS rank"

    def asked(*most):
        first = "".join("replay('most', %d) AS most, " % n for n in most)  # a SELECT's columns are worked out from the left
        return json.loads(run([build.tool("probing-query"), "--json", db, "SELECT " + first + tell]).stdout)[0]

    whole = asked()
    part = asked(whole["calls"] // 2)
    assert whole["part"] == 1 and whole["rank"] == part["rank"] == 5
    assert part["part"] == pytest.approx(0.5, abs=0.01) and part["calls"] == pytest.approx(whole["calls"] / 2, rel=0.1)
    assert part["seen"] == pytest.approx(whole["seen"] / 2, rel=0.1) and part["length"] == pytest.approx(part["seen"], rel=0.02)


def test_what_if_of_a_pipeline(build, run, simulated_job, sql):
    """A slow stage, and a slow rank of a stage: jobs that are otherwise the same say what the answer must be, within 2 %."""
    def a_step(out):
        return sql(out / "out.db", "SELECT (max(timestamp) - min(timestamp)) / (max(step) - min(step)) FROM steps WHERE rank = 0 AND complete")[0][0]

    def saved(out):
        tables = ask(build, run, "what_if", out / "out.db")[1]
        seen = tables[1][0]
        assert seen["seconds_replayed"] == pytest.approx(seen["seconds_seen"], rel=0.005) and seen["calls"] > 100
        steps = sql(out / "out.db", "SELECT count(*) FROM steps WHERE rank = 0 AND complete")[0][0]
        return {r["what"]: r["saved"] / steps for r in tables[0]}

    def job(*more):
        return simulated_job("--pp", "4", "--jitter", "5", "--outliers", "0", "--offset", "1", *more)

    # Stage 0 loads the data, so it is the next slowest: the first job is what is left when stage 2 is as fast as that.
    data = sql(job("--ranks", "4") / "out.db", "SELECT avg(data) FROM steps WHERE rank = 0 AND complete")[0][0]
    slow, less = job("--ranks", "4", "--straggler", "2:20"), job("--ranks", "4", "--straggler", "2:%d" % round(data * 1000))
    found = saved(slow)
    assert a_step(slow) - found["without stage 2's lateness"] == pytest.approx(a_step(less), rel=0.02)
    assert "without rank 2's lateness" not in found  # nobody does the same
    slow, even = job("--straggler", "2:20"), job()
    assert a_step(slow) - saved(slow)["without rank 2's lateness"] == pytest.approx(a_step(even), rel=0.02)


def test_two_processes_of_one_rank(build, run, simulated_job, tmp_path):
    """They are named; what a rank starts (a loader, with the rank in its environment) is not one of them, nor is a rank that was started again."""
    out = simulated_job("--duplicate", "5")
    done = run([build.tool("probing"), "ask", "straggler", out / "out.db"])
    assert re.search(r"^probing-ask: 2 processes say that they are rank 5 \(\d+ on node\d+, \d+ on node\d+\): what is said of that rank is of all of them$", done.stderr, re.M), done.stderr
    forked = edited(out / "out.db", tmp_path, "UPDATE trace_file SET ppid = (SELECT pid FROM trace_file WHERE rank = 5 ORDER BY id LIMIT 1)"
                    " WHERE id = (SELECT max(id) FROM trace_file WHERE rank = 5)")
    assert "say that they are" not in run([build.tool("probing"), "ask", "straggler", forked]).stderr
    with sqlite3.connect(str(out / "out.db")) as c:
        c.execute("DELETE FROM process_group WHERE trace = (SELECT max(id) FROM trace_file WHERE rank = 5)")
    c.close()
    assert "say that they are" not in run([build.tool("probing"), "ask", "straggler", out / "out.db"]).stderr
    again = simulated_job("--runs", "3", "--restarts", "--kill", "2:4", "--straggler", "1:20")
    assert "say that they are" not in run([build.tool("probing"), "ask", "straggler", again / "out.db"]).stderr


def test_what_if_of_a_rank_in_segments(build, run, simulated_job, tmp_path):
    """A long recording goes on in another trace (segment_size): it is one rank all the same, and its work between the two is not lost."""
    out = edited(simulated_job("--ranks", "8", "--straggler", "5:20", "--offset", "1") / "out.db", tmp_path, "")
    whole = ask(build, run, "what_if", out)
    assert "without rank 5's lateness" in {r["what"] for r in whole[1][0]}
    with sqlite3.connect(str(out)) as c:
        last, = c.execute("SELECT max(id) FROM trace_file").fetchone()
        columns = ", ".join(name for _, name, *_ in c.execute("PRAGMA table_info(trace_file)") if name not in ("id", "file", "first_id", "last_id"))
        for trace, in c.execute("SELECT id FROM trace_file ORDER BY id").fetchall():
            last += 1
            c.execute("INSERT INTO trace_file(id, file, first_id, last_id, %s) SELECT ?1, file || '.2', ?1 << 40, ?1 << 40 | 0xffffffffff, %s FROM trace_file WHERE id = ?2"
                      % (columns, columns), (last, trace))
            c.execute("INSERT INTO process_group SELECT ?, pg, name, backend, rank, size, list, desc FROM process_group WHERE trace = ?", (last, trace))
            middle, = c.execute("SELECT (min(ts) + max(ts)) / 2 FROM comm WHERE id >> 40 = ?", (trace,)).fetchone()
            for table in ("comm", "torch_call"):
                c.execute("UPDATE %s SET id = id + ((?1 - ?2) << 40) WHERE id >> 40 = ?2 AND ts > ?3" % table, (last, trace, middle))
    c.close()
    assert ask(build, run, "what_if", out) == whole


def test_what_if_of_ranks_that_were_started_again(build, run, simulated_job, sql):
    """Collectives count from 0 again in each attempt: the longest is replayed, and the minutes between two are nobody's."""
    out = simulated_job("--runs", "3", "--restarts", "--kill", "2:4", "--straggler", "1:20")
    answer, tables = ask(build, run, "what_if", out / "out.db")
    seen = tables[1][0]
    attempt, calls, seconds = sql(out / "out.db", "SELECT attempt, count(*), max(exit) - min(enter) FROM comm_metrics WHERE complete GROUP BY 1 ORDER BY 2 DESC LIMIT 1")[0]
    assert (seen["attempt"], seen["calls"]) == (attempt, calls) and seen["seconds_seen"] == pytest.approx(seconds, abs=1e-3)
    assert seen["seconds_replayed"] == pytest.approx(seconds, rel=0.005)
    whole = float(re.match(r"without rank 1's lateness it would take [0-9.]+ s instead of ([0-9.]+) s", answer).group(1))
    assert seconds < whole + 0.1 and whole < 1.5 * seconds
    assert [r["what"] for r in tables[0]].count("without rank 1's lateness") == 1


def test_hang(build, run, simulated_job):
    answer, tables = ask(build, run, "hang", simulated_job("--hang", "3:6") / "out.db")
    assert re.match(r"all_reduce number \d+ of group default_pg: rank 3 never came, 7 of 8 wait since 1[678]\.\d s", answer), answer
    assert [(r["waits_for"], r["waiting"], r["level"]) for r in tables[0]] == [("3", "0-2,4-7", 0)]
    assert [(r["rank"], r["state"]) for r in tables[1]] == [(3, "never came")] and tables[1][0]["last_call"].startswith("all_reduce number ")
    assert {r["rank"] for r in tables[2]} == {3} and "main" in [r["func"] for r in tables[2]]
    answer, _ = ask(build, run, "hang", simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50") / "out.db", code=1)
    assert "nothing hangs" in answer


# Of a job whose rank 3 never came to a call that 0 to 2 and 4 to 7 came to, all within 3 ms: MOMENT is when, all ranks are killed four seconds later.
MOMENT = "(SELECT min(ts) FROM comm WHERE flags & 1)"
ALL_KILLED = "UPDATE trace_file SET end_ts = (SELECT max(ts) FROM comm WHERE flags & 1) + 4000000000 WHERE rank IS NOT NULL;"
DIES = "UPDATE trace_file SET end_ts = %s + 100000000 WHERE rank = 3;" % MOMENT
# In these ranks the call ends, or raises, 200 ms after they came.
FAILS = "UPDATE comm SET flags = %d, duration = 200000000 WHERE flags & 1 AND id >> 40 IN (SELECT id FROM trace_file WHERE rank IN (%s));"
AT_LAST = "UPDATE trace_file SET end_ts = end_ts - 3400000000 WHERE rank <> 3;"
TERMED = "INSERT INTO trigger_event SELECT f.last_id - 1, %s + %%d, 'term', f.pid, NULL, NULL, 'SIGTERM sent by pid ' || %%s, NULL FROM trace_file f WHERE %%s;" % MOMENT
RAISES = "INSERT INTO trigger_event SELECT f.last_id - 1, %s + %%d, 'exception', f.pid, NULL, NULL, '%%s', 'File \"x\"' FROM trace_file f WHERE rank IN (%%s);" % MOMENT
# One that rank %d has started, which takes its number with it.
CHILD = "CREATE TEMP TABLE x AS SELECT * FROM trace_file WHERE rank = %d; UPDATE x SET id = 99, first_id = 99 << 40, last_id = (100 << 40) - 1, ppid = pid, pid = 7; INSERT INTO trace_file SELECT * FROM x;"
OTHERS = "0, 1, 2, 4, 5, 6, 7"
CAME = "INSERT INTO comm SELECT f.last_id, c.ts, c.tid, c.pg, c.seq, c.op, c.bytes, c.dtype, 90000000, 0, NULL, NULL, 1 FROM comm c, trace_file f WHERE c.flags & 1 AND f.rank = 3 LIMIT 1;"


@pytest.mark.parametrize("script, hangs, said", [
    # gloo's neighbours notice that it died, one does not; they live on for seconds
    (ALL_KILLED + DIES + FAILS % (0, "2, 4"), [(3, "dead", 1, 5)], "rank 3 died at TIME (killed by signal 9 (SIGKILL)), 5 of 8 wait"),
    (ALL_KILLED + DIES + FAILS % (0, "0, 1, 2, 4, 5, 6, 7"), [(3, "dead", 1, 7)], "rank 3 died"),
    # what raises for that is no cause, but comes after it; what raises while all live may be one
    (ALL_KILLED + DIES + FAILS % (4, "2, 4"), [(3, "dead", 1, 5), (2, "raised", 0, 5), (4, "raised", 0, 5)], "rank 3 died"),
    (ALL_KILLED + FAILS % (4, "2"), [(3, "never came", 1, 6), (2, "raised", 1, 6)], "rank 3 never came"),
    # all are killed, one after the other: that a call fails in the last moment of some says nothing
    (ALL_KILLED + DIES + FAILS % (0, "2, 4") + AT_LAST, [(3, "never came", 1, 5)], "rank 3 never came"),
    # killed in it, by itself; and with all others
    (ALL_KILLED + DIES + CAME + FAILS % (0, "2, 4"), [(3, "dead", 1, 5)], "rank 3 died at TIME (killed by signal 9 (SIGKILL)), 5 of 8 wait"),
    (ALL_KILLED + CAME, [(None, "all came", 1, 8)], "all 8 ranks came and it does not complete"),
    # two died, one after the other: the first is named
    (ALL_KILLED + DIES.replace("= 3", "IN (0, 3)") + "UPDATE trace_file SET end_ts = end_ts + 20000000 WHERE rank = 0; DELETE FROM comm WHERE flags & 1 AND id >> 40 ="
     " (SELECT id FROM trace_file WHERE rank = 0);" + FAILS % (0, "2, 4"), [(3, "dead", 1, 4), (0, "dead", 1, 4)], "ranks 0,3 died at TIME (rank 3 first: killed by "),
    # it raised in all others, or ended there and what they did then raised: nobody waits any more, and it is still who died; also where it died in the call
    (ALL_KILLED + DIES + RAISES % (3e8, "RuntimeError: closed", OTHERS) + FAILS % (4, OTHERS), [(3, "dead", 1, 7)],
     "rank 3 died at TIME (killed by signal 9 (SIGKILL)), and the call failed in 7 of 8 at TIME (RuntimeError: closed): rank 3 was in "),
    (ALL_KILLED + DIES + CAME + FAILS % (4, OTHERS), [(3, "dead", 1, 0)] + [(r, "raised", 0, 0) for r in (0, 1, 2, 4, 5, 6, 7)],
     "rank 3 died at TIME (killed by signal 9 (SIGKILL)), and the call failed in 7 of 8 at TIME: rank 3 was in "),
    # a timeout, of whom never came and lives on
    (ALL_KILLED + RAISES % (21e8, "RuntimeError: Timed out", OTHERS) + FAILS.replace("200000000", "2000000000") % (4, OTHERS), [(3, "never came", 1, 7)],
     "rank 3 never came, and the call failed in 7 of 8 at TIME after 2.0 s (RuntimeError: Timed out): rank 3 was in "),
    (ALL_KILLED + RAISES % (21e8, "RuntimeError: Timed out", "2") + FAILS.replace("200000000", "2000000000") % (0, OTHERS), [(3, "never came", 1, 7)],
     "rank 3 never came, and the call failed in 7 of 8 at TIME after 2.0 s (RuntimeError: Timed out): rank 3 was in "),
    # what all refuse at once is no hang
    (ALL_KILLED + FAILS % (4, OTHERS), [], "nothing hangs"),
    # an exception is what ended it, long before its interpreter is down
    (ALL_KILLED + RAISES % (1e8, "ValueError: loss is nan", "3"), [(3, "ended", 1, 7)], "rank 3 had ended at TIME (exception ValueError: loss is nan), 7 of 8 wait since"),
    (ALL_KILLED + RAISES % (1e8, "ValueError: loss is nan", "3") + RAISES % (3e8, "RuntimeError: closed", OTHERS) + FAILS % (0, OTHERS), [(3, "ended", 1, 7)],
     "rank 3 had ended at TIME (exception ValueError: loss is nan), and the call failed in 7 of 8 at TIME (RuntimeError: closed)"),
    # a stranger ends a rank with a child of its own, which is not "several", and then its launcher all others
    (ALL_KILLED + DIES + CHILD % 3 + TERMED % (9e7, "1", "f.rank = 3") + TERMED % (3e8, "f.ppid", "f.rank <> 3") + "UPDATE trace_file SET end_ts = %s + 300000001 WHERE rank <> 3;" % MOMENT,
     [(3, "dead", 1, 7)], "rank 3 died at TIME (term SIGTERM sent by pid 1), 7 of 8 wait"),
    # a rank ends a worker of its own, as data loaders' are: that is not the launcher's word to end
    (ALL_KILLED + DIES + CHILD % 0 + TERMED % (-1e9, "f.ppid", "f.pid = 7") + FAILS % (0, "2, 4") + TERMED % (3e8, "f.ppid", "f.rank IN (2, 4)")
     + "UPDATE trace_file SET end_ts = %s + 350000000 WHERE rank <> 3 AND pid <> 7;" % MOMENT, [(3, "dead", 1, 5)], "rank 3 died at TIME (killed by signal 9 (SIGKILL)), 5 of 8 wait"),
    # all are told to end, and as the first of them close their connections the call ends in two more: they waited until then, and nobody had died
    (ALL_KILLED + TERMED % (38e8, "f.ppid", "f.rank >= 0") + FAILS.replace("200000000", "3850000000") % (0, "2, 4"), [(3, "never came", 1, 7)],
     "rank 3 never came, 7 of 8 wait since 4.0 s before the end"),
    # it left, and the calls of all others end: of two at that, of the rest as they are told to end for it
    (ALL_KILLED + "UPDATE trace_file SET end_ts = %s + 300000000, end_reason = 'exit' WHERE rank = 3;" % MOMENT + TERMED % (38e8, "f.ppid", "f.rank <> 3")
     + FAILS % (0, "2, 4") + FAILS.replace("200000000", "3850000000") % (0, "0, 1, 5, 6, 7"), [(3, "ended", 1, 5)], "rank 3 had ended at TIME (no exception was recorded), 5 of 8 wait"),
    # it left, not as one that has done its work, and the calls of all others end at that
    (ALL_KILLED + "UPDATE trace_file SET end_ts = %s + 100000000, end_reason = 'exit' WHERE rank = 3; INSERT INTO fact SELECT last_id, 1, 'end', 'exit_code', '3' FROM trace_file WHERE rank = 3;"
     % MOMENT + FAILS % (0, OTHERS), [(3, "ended", 1, 7)], "rank 3 had ended at TIME (exit with code 3), and the call failed in 7 of 8 at TIME"),
    # the same where nobody was told, or that was not recorded
    (ALL_KILLED + AT_LAST.replace("<> 3", "= 0") + FAILS.replace("200000000", "3850000000") % (0, "2, 4"), [(3, "never came", 1, 7)], "rank 3 never came, 7 of 8 wait"),
])
def test_hang_of_one_that_died(build, run, simulated_job, tmp_path, sql, script, hangs, said):
    again = "DELETE FROM collective; INSERT INTO collective SELECT * FROM collectives_made; DELETE FROM hang; INSERT INTO hang SELECT * FROM hangs_made;"
    signal = "UPDATE trace_file SET signal = 9 WHERE rank IS NOT NULL;"
    db = edited(simulated_job("--hang", "3:6") / "out.db", tmp_path, script + signal + again)
    assert sql(db, "SELECT rank, state, cause, waiting FROM hangs") == hangs
    answer, tables = ask(build, run, "hang", db, code=int(not hangs))
    assert said in re.sub(r"\d\d:\d\d:\d\d\.\d{3}", "TIME", answer), answer


def test_died_and_last(build, run, simulated_job):
    db = simulated_job("--kill", "6:6") / "out.db"
    answer, tables = ask(build, run, "died", db)
    # Who, on which machine, when, of what, and where in the program.
    assert re.match(r"rank 6 \(process \d+\) on node\d+ at \S+ \S+: killed by signal 9 \(SIGKILL\), in .+ \(.+\.py:\d+\)", answer), answer
    assert [r["rank"] for r in tables[0]][0] == 6 and {r["kind"] for r in tables[0][1:]} == {"exception"}
    answer, tables = ask(build, run, "last", db)
    assert "the last moment recorded" in answer and len(tables[0]) == 8 and tables[0][0]["rank"] == 6


def test_where_an_exception_was_raised(build, run, tmp_path):
    program = tmp_path / "fails.py"
    program.write_text("def fails(x):\n    return 1 // x\ndef main():\n    fails(0)\n" + HOOKED + "wait_for_agent()\nmain()\n")
    run([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", sys.executable, program], check=1)
    answer, _ = ask(build, run, "died", tmp_path / "t.zst")
    assert "exception ZeroDivisionError: " in answer and answer.endswith(', File "%s", line 2, in fails' % program), answer


WAIT = """ # until the agent has taken its signals
import os, signal, subprocess, sys, time
while not any(int(line.split()[1], 16) >> 14 & 1 for line in open("/proc/self/status") if line.startswith("SigCgt")):
    time.sleep(0.01)
"""
LAUNCHER = WAIT + """
import ctypes
def hooked(): # sys.excepthook calls the agent (agent/trigger/trigger_exception.c)
    method = ctypes.c_void_p.from_address(ctypes.c_void_p.from_address(id(sys.__excepthook__) + 16).value + 8).value
    agent = [[int(x, 16) for x in line.split()[0].split("-")] for line in open("/proc/self/maps") if line.rstrip().endswith("libprobing-agent.so")]
    return any(low <= method < high for low, high in agent)
while not hooked():
    time.sleep(0.01)
class SignalException(Exception): pass
ranks = [subprocess.Popen([sys.executable, "-c", RANK], stdout=subprocess.PIPE, env=dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE="2",
                          TORCHELASTIC_RUN_ID="x")) for r in range(2)]
def end(number, frame):
    for rank in ranks:
        rank.terminate()
        rank.wait()
    raise SignalException("Process %d got signal: %d" % (os.getpid(), number))
for rank in ranks:
    assert rank.stdout.readline() == b"ready\\n"
signal.signal(signal.SIGTERM, end)
CAUSE
"""
RANK = WAIT + """
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("cause, said", [
    ("os.kill(os.getpid(), signal.SIGTERM)", r"the launcher \(process {pid}\) on .*: exception SignalException: Process {pid} got signal: 15"),
    # what it raises for another reason comes when it comes
    ("try: end(15, None)\nexcept SignalException: raise ValueError('x')", r"rank [01] \(process \d+\) on .*: term SIGTERM sent by pid {pid}"),
])
def test_a_launcher_that_is_told_to_end(build, run, sql, tmp_path, cause, said):
    """As torchrun does: SIGTERM is an exception of it, once it has ended its ranks for that. Their times come first, and it is the cause."""
    program = tmp_path / "launcher.py"
    program.write_text("RANK = %r\n" % RANK + LAUNCHER.replace("CAUSE", cause))
    run([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", sys.executable, program], check=1)
    run([build.tool("probing-convert"), "-q", tmp_path / "t.zst", tmp_path / "t.db"])
    (pid,), = sql(tmp_path / "t.db", "SELECT pid FROM trace WHERE rank IS NULL")
    answer, tables = ask(build, run, "died", tmp_path / "t.db")
    assert re.match(said.format(pid=pid), answer), (answer, tables)
    assert [r["rank"] for r in tables[0]] == ([None, 0, 1] if "kill" in cause else [0, 1, None]), tables


@pytest.mark.parametrize("before, signal, told, first", [
    (0.1, 15, "rank = 3", r"rank 3 \(process \d+\) on .*: term SIGTERM sent by pid 1,"),  # with its parent, by a signal to their group
    (0.1, "NULL", "rank = 3", r"rank 3 \(process \d+\) on .*: term SIGTERM sent by pid 1,"),  # its parent did not live to hear of it
    (5, 15, "rank = 3", r"rank 3 \(process 7\) on .*: killed by signal 15"),  # long before: by itself
    (0.1, 15, "rank = 4", r"rank 3 \(process 7\) on .*: killed by signal 15"),  # its parent was not told
    (0.1, 9, "rank = 3", r"rank 3 \(process 7\) on .*: killed by signal 9"),  # of something else
])
def test_a_loader_that_is_told_to_end_with_its_rank(build, run, simulated_job, tmp_path, before, signal, told, first):
    """What a process recorded last lies before the SIGTERM that ended it, and so before that of its parent: the parent comes first."""
    healthy = simulated_job("--seed", 1) / "out.db"
    at = "(SELECT min(end_ts) FROM trace_file WHERE rank IS NOT NULL)"
    script = ("CREATE TEMP TABLE at AS SELECT %s AS ts;" % at + CHILD % 3 + "UPDATE trace_file SET role = 'dataloader', end_reason = 'killed', signal = %s, end_ts = "
              "(SELECT ts FROM at) - %d WHERE id = 99;" % (signal, before * 1e9)
              + "INSERT INTO trigger_event SELECT f.last_id - 1, (SELECT ts FROM at), 'term', f.pid, NULL, NULL, 'SIGTERM sent by pid 1', NULL FROM trace_file f"
              " WHERE f.id <> 99 AND f.%s;" % told)
    answer, tables = ask(build, run, "died", edited(healthy, tmp_path, script))
    assert re.match(first, answer + ","), (answer, tables)
    assert [r["kind"] for r in tables[0]] == (["term", "killed"] if "term" in first else ["killed", "term"]), tables


WHY = "killed together with its recorder, or its machine went down, or it still ran when the file was copied"


def test_died_with_its_recorder(build, run, tmp_path):
    """Nobody was left to say how it ended. While it runs nobody has died; a copy of its trace has no end, and says how far it goes; with its live file it is completed."""
    trace, copy = tmp_path / "t.zst", tmp_path / "copy.zst"
    program = "def turns():\n    while True:\n        sum(range(1000))\nprint('on', flush=True)\nturns()\n"
    recorder = subprocess.Popen([build.tool("probing-record"), "-q", "-o", trace, sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert recorder.stdout.readline() == b"on\n"
        wait_until(lambda: trace.exists() and "turns" in run([build.tool("probing"), "query", "--csv", trace, "SELECT func FROM hot_functions"], check=None).stdout, 60)
        copy.write_bytes(trace.read_bytes())
        assert "nobody died" in ask(build, run, "died", copy, code=1)[0]
    finally:
        kill_group(recorder)
    wait_until(lambda: "still runs" not in run([build.tool("probing"), "ask", "last", copy]).stdout, 60)
    copy.write_bytes(trace.read_bytes())
    run([build.tool("probing-convert"), "-q", copy, tmp_path / "copy.db"], check=None)
    for of in (copy, tmp_path / "copy.db"):
        answer, tables = ask(build, run, "died", of)
        assert re.fullmatch(r"the recording of process \d+ on \S+ stops at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}, in turns \(<string>:\d\), and has no end: " + WHY, answer), answer
        (row,), = [t for t in tables if t]
        assert row["stops"] in answer and str(row["pid"]) in answer and row["file"].endswith("copy.zst")
    run([build.tool("probing-convert"), "-q", trace, tmp_path / "t.db"])
    assert re.match(r"process \d+ on .*: killed by signal 9 \(SIGKILL\), in turns", ask(build, run, "died", tmp_path / "t.db")[0])


def test_recordings_without_an_end(build, run, simulated_job, tmp_path, sql):
    """Of several the first to stop is named; where somebody is known to have died they are told of besides; one that goes on in another trace has an end."""
    db, stops = simulated_job("--seed", 1) / "out.db", "UPDATE trace_file SET end_reason = NULL, complete = 0, end_ts = end_ts - iif(rank = 2, 2000000000, 1000000000) WHERE rank IN (2, 5);"
    answer, tables = ask(build, run, "died", edited(db, tmp_path, stops))
    assert re.match(r"2 recordings have no end; that of rank 2 \(process \d+\) on node\d+ is the first to stop, at \S+ \S+, in .+ \(.+\): " + WHY, answer), answer
    assert [[r["rank"] for r in t] for t in tables if t] == [[2, 5]]
    again = stops + CHILD % 5 + "UPDATE trace_file SET (pid, boot_id, process_ts, end_reason, start_ts) = (SELECT pid, boot_id, process_ts, 'exit', end_ts FROM trace_file WHERE rank = 5 AND id < 99) WHERE id = 99;"
    answer, tables = ask(build, run, "died", edited(db, tmp_path, again))
    assert answer.startswith("the recording of rank 2 ") and [[r["rank"] for r in t] for t in tables if t] == [[2]], (answer, tables)
    killed = simulated_job("--kill", "6:6") / "out.db"
    answer, tables = ask(build, run, "died", edited(killed, tmp_path, stops.replace("IN (2, 5)", "= 2") + "DELETE FROM trigger_event WHERE id >> 40 = (SELECT id FROM trace_file WHERE rank = 2);"))
    assert re.match(r"rank 6 .*: killed by signal 9 .*; the recording of rank 2 \(process \d+\) on node\d+ has no end, and stops before that, at ", answer), answer
    assert tables[-1][0]["rank"] == 2 and tables[0][0]["rank"] == 6


def test_one_that_left(build, run, simulated_job, tmp_path, sql):
    """A rank that ends by itself while others wait for it died first: nobody could record more of it than its end."""
    db = simulated_job("--kill", "6:6") / "out.db"
    was, = sql(db, "SELECT end_reason FROM trace WHERE rank = 6")[0]
    assert was == "killed"
    answer, tables = ask(build, run, "died", edited(db, tmp_path, "UPDATE trace_file SET end_reason = '_exit', signal = NULL WHERE rank = 6"))
    assert re.match(r"rank 6 \(process \d+\) on node\d+ at .*: os\._exit\(\) while others waited for it, in .+ \(.+\.py:\d+\)$", answer), answer
    assert len(tables[0]) == 8 and not tables[1]
    healthy = simulated_job("--seed", 1) / "out.db"
    answer, _ = ask(build, run, "died", edited(healthy, tmp_path, "UPDATE trace_file SET end_reason = '_exit' WHERE rank = 6"), code=1)
    assert "nobody died" in answer, answer


def test_last_of_the_ranks(build, run, simulated_job, tmp_path, sql):
    """A launcher that is there for half a minute longer is not what is asked about."""
    db = edited(simulated_job("--kill", "6:6") / "out.db", tmp_path, "UPDATE trace_file SET rank = NULL, end_ts = end_ts + 30000000000 WHERE rank = 7")
    at, pid = sql(db, "SELECT max(\"end\"), pid FROM trace WHERE rank IS NOT NULL")[0]
    answer, tables = ask(build, run, "last", db)
    assert "(process %d)" % pid in answer and 0.0 in [r["end"] for r in tables[0] if r["pid"] == pid], answer
    assert {r["rank"] for r in tables[1]} & set(range(7)) and all(-1 <= r["time"] <= 0.001 for r in tables[2])


def test_last_of_who_slept(build, run, tmp_path, sql):
    """A thread that sleeps has one sample for up to a second, and a kill takes the one that has begun: the one before it reaches into the last second."""
    program, trace, db = tmp_path / "sleeps.py", tmp_path / "t.zst", tmp_path / "t.db"
    program.write_text("import time\ndef asleep():\n    time.sleep(3)\nasleep()\n")
    run([build.tool("probing-record"), "-q", "-r", "100Hz", "-o", trace, sys.executable, program], check=0)
    run([build.tool("probing-convert"), "-q", trace, db], check=0)
    sample, at, seconds = sql(db, "SELECT sample_id, timestamp, seconds FROM samples WHERE state = 'idle' ORDER BY seconds DESC LIMIT 1")[0]
    killed = at + seconds / 2 + 1  # its second half lies in the last second
    db = edited(db, tmp_path, "DELETE FROM sample WHERE id > %d; UPDATE trace_file SET end_ts = end_ts + (SELECT (%.7f - \"end\") * 1e9 FROM trace)" % (sample, killed))
    answer, tables = ask(build, run, "last", db)
    threads = [(r["func"], r["lineno"], r["state"], r["seconds"]) for r in tables[1] if r["thread"] == "MainThread"]
    assert threads == [("asleep", 3, "idle", pytest.approx(seconds / 2, abs=0.001))], (answer, tables, at, seconds)


def test_step_and_loader_and_time(build, run, simulated_job):
    db = simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50") / "out.db"
    answer, tables = ask(build, run, "step", "--step", 20, "--rank", 5, db)
    assert answer.startswith("step 20 of rank 5 took 0.1") and {r["part"] for r in tables[0]} >= {"forward", "backward", "communication"}
    assert {r["rank"] for r in tables[-1]} == set(range(8))
    assert ask(build, run, "loader", db)[0].startswith("no: ")
    answer, tables = ask(build, run, "time", db)
    said, share = re.search(r"; (.+) of that in backward \(.+\), (\d+) %$", answer).groups()
    assert tables[0][0]["func"] == "backward" and (int(share) == 50 or said == ("most" if int(share) > 50 else "the largest part")), answer
    assert ask(build, run, "overlap", db)[0].startswith("0 % of")
    assert "probing-record" in ask(build, run, "diff", db, code=1)[0] or "one run only" in ask(build, run, "diff", db, code=1)[0]


WAITS = "UPDATE sample SET ts = (SELECT ts + 4000 FROM x WHERE trace = sample.id >> 40), count = 1, flags = %d, stack = (SELECT k.stack FROM stack_frame k JOIN frame r ON r.id = k.frame WHERE r.name GLOB" \
    " 'c10d::Work::wait*') WHERE id IN (SELECT min(s.id) FROM sample s JOIN torch_call c ON c.id >> 40 = s.id >> 40 AND c.thread = s.thread WHERE c.stage = 2 GROUP BY s.id >> 40);"


@pytest.mark.parametrize("host, tid, percent, waits", [("0", "tid", 100, ""), ("duration", "tid", 0, ""), ("duration / 4", "tid", 75, ""), ("duration", "1", 100, ""),
                                                       ("0", "tid", 0, WAITS % 0), ("duration / 4", "tid", 0, WAITS % 0), ("0", "tid", 100, WAITS % 1)])
def test_who_is_inside_a_call_computes_nothing(build, run, simulated_job, tmp_path, host, tid, percent, waits):
    """Every call lies in a backward pass of the same thread, which is inside it for a part of its time. In another thread it would overlap. Where the thread waits for
    it later, in Work.wait(), its samples say so; where none do, that is said."""
    script = ("CREATE TEMP TABLE x AS SELECT id >> 40 AS trace, min(ts) AS ts, max(duration) AS duration FROM torch_call WHERE stage = 2 AND duration > 0 GROUP BY 1;"
              "UPDATE comm SET flags = 0, tid = (SELECT h.tid FROM thread h JOIN torch_call b ON h.id = (b.id >> 40 << 40) + b.thread WHERE b.stage = 2 AND b.id >> 40 = comm.id >> 40"
              " LIMIT 1), ts = (SELECT ts FROM x WHERE trace = comm.id >> 40), duration = 8000; UPDATE comm SET host = %s, tid = %s; UPDATE sample SET flags = 1;" % (host, tid)) + waits
    answer, _ = ask(build, run, "overlap", edited(simulated_job("--seed", 1) / "out.db", tmp_path, script))
    assert answer.startswith("%d %% of" % percent) and ("no sample shows" in answer) == (percent > 0 and (host != "duration")), answer


def test_waits_that_are_shorter_than_the_time_between_samples(build, run, simulated_job, tmp_path):
    """A hundred calls within a backward pass, as much time between them, and a sample in each twenty calls' time: four of ten show a wait, so four fifths are waited for."""
    script = ("CREATE TEMP TABLE x AS SELECT b.id >> 40 AS trace, b.ts, b.duration / 200 AS call, (SELECT h.tid FROM thread h WHERE h.id = (b.id >> 40 << 40) + b.thread) AS tid, b.thread,"
              " (SELECT k.stack FROM stack_frame k JOIN frame r ON r.id = k.frame WHERE r.name GLOB 'c10d::Work::wait*' LIMIT 1) AS stack, max(b.duration)"
              " FROM torch_call b WHERE b.stage = 2 GROUP BY 1; DELETE FROM comm WHERE (id & 0xffffffffff) > 100;"
              "UPDATE comm SET flags = 0, op = 'all_reduce', host = 0, (tid, ts, duration) = (SELECT tid, ts + 2 * call * ((comm.id & 0xffffffffff) - 1), call FROM x WHERE trace = comm.id >> 40);"
              "UPDATE sample SET flags = 1; UPDATE sample SET flags = 0, count = 1, (thread, stack, ts) ="
              " (SELECT thread, stack, ts + 20 * call * ((sample.id & 0xffffffffff) - 1) + call / 2 FROM x WHERE trace = sample.id >> 40) WHERE (id & 0xffffffffff) <= 4;"
              "UPDATE trace_file SET periods = 1, period_ns = 20 * (SELECT call FROM x WHERE trace = trace_file.id);")
    answer, tables = ask(build, run, "overlap", edited(simulated_job("--seed", 1) / "out.db", tmp_path, script))
    assert answer.startswith("20 % of ") and tables[1][0]["calls"] == 800, answer


def test_two_runs(build, run, simulated_job, tmp_path):
    """The second run of two (processes from 21000 on) beside the first of another job."""
    first, second = simulated_job("--runs", "2"), simulated_job("--runs", "2", "--step-ms", "150")
    run([build.tool("probing-convert")] + sorted(first.glob("node*/*-1???.zst")) + sorted(second.glob("node*/*-2????.zst"))
        + [tmp_path / "two.db"])
    answer, tables = ask(build, run, "diff", tmp_path / "two.db")
    a, b = (float(t) for t in re.search(r"takes ([0-9.]+) s in the one and ([0-9.]+) s in the other", answer).groups())
    assert b / a == pytest.approx(1.5, rel=0.1), answer
    assert [r["side"] for r in tables[0]] == ["a", "b"] and [r["part"] for r in tables[1][:3]] == ["a step", "backward", "forward"]
    answer, _ = ask(build, run, "diff", first / "out.db")  # the same job twice
    assert "nothing that stands out of the noise" in answer, answer


def test_everything_of_a_plain_program(build, run, tmp_path):
    (tmp_path / "p.py").write_text("import time\ndef busy():\n    while time.process_time() < 1:\n        sum(range(1000))\nbusy()\n")
    run([build.tool("probing-record"), "-r", 100, "-o", tmp_path / "p.zst", sys.executable, tmp_path / "p.py"])
    answer, _ = ask(build, run, "time", tmp_path / "p.zst")
    assert "most of that in busy (" in answer, answer
    done = run([build.tool("probing"), "ask", "all", "--answer", tmp_path / "p.zst"])
    assert done.stdout.count("== ") == 3 and done.stderr == ""  # time, last, memory
    for name in ("step", "loader", "straggler", "hang", "gpu", "overlap", "died", "diff"):
        done = run([build.tool("probing"), "ask", name, tmp_path / "p.zst"], check=1)
        assert done.stdout == "" and len(done.stderr.splitlines()) == 1, (name, done.stderr)


def test_one_rank_of_a_job(build, run, simulated_job):
    """A question about all ranks, asked of one: said what is missing, and the rest answered; never nothing at all."""
    hung, slow = simulated_job("--hang", "3:6"), simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50")
    one = next(iter(sorted(slow.glob("node*/*-r0-*.zst"))))
    for name, code in (("straggler", 1), ("what_if", 1), ("step", 0), ("time", 0)):
        done = run([build.tool("probing"), "ask", name, "--answer", one], check=code)
        said = done.stderr.splitlines()
        assert said[0] == "probing-ask: traces of 1 of 8 ranks are here: what the others did is not known"
        assert len(said) == 1 + (code == 1) and bool(done.stdout) == (code == 0), (name, done.stderr, done.stdout)
        assert code == 0 or "give the traces of all ranks" in said[1]
    done = run([build.tool("probing"), "ask", "hang", "--answer", next(iter(sorted(hung.glob("node*/*-r0-*.zst"))))])
    assert "ranks 1-7 have no trace here, 1 of 8 wait since" in done.stdout


def test_sql_that_never_ends(build, run, simulated_job):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    db = simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50") / "out.db"
    done = run([build.tool("probing-query"), "--timeout", "0.3", db, endless], check=3)
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1 and "0.3" in done.stderr, done.stderr


def test_listed_and_refused(build, run, tmp_path):
    listed = run([build.tool("probing"), "ask"]).stdout
    assert [line.split()[0] for line in listed.splitlines()[:len(NAMES)]] == NAMES
    for name in NAMES:
        assert "SELECT" in run([build.tool("probing"), "ask", name, "--sql"]).stdout
    assert "no question 'why'" in run([build.tool("probing"), "ask", "why", "x.db"], check=2).stderr
    assert "the question comes first: probing ask hang DB|TRACE...|PID" in run([build.tool("probing"), "ask", "x.db", "hang"], check=2).stderr
    assert "cannot open" in run([build.tool("probing"), "ask", "time", tmp_path / "none.db"], check=3).stderr
    assert "is not being recorded" in run([build.tool("probing"), "ask", "time", str(os.getpid())], check=3).stderr
