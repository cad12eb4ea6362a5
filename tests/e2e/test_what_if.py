# SPDX-License-Identifier: Apache-2.0
"""`probing ask what_if` on simulated jobs: what it says that a job would save is what the same job without that fault takes less (of a real job:
test_hang.py)."""
import json
import re
import sqlite3

import pytest
from ask_helpers import ask, edited, in_segments


def test_what_if(build, run, simulated_job, sql):
    """The same job without its straggler is also simulated: the answer must agree with it within 2 %."""
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


def test_what_if_somebody_always_leaves_late(build, run, simulated_job, sql):
    """In a network with outliers, one of many ranks leaves each collective late, and comes late to the next: without the straggler, too."""
    noise = "--ranks", 24, "--nodes", 3, "--tp", 2, "--jitter", 200, "--sigma", 1.2
    with_it, without = simulated_job("--straggler", "7:25", *noise), simulated_job(*noise)
    saved = {r["what"]: r["saved"] for r in ask(build, run, "what_if", with_it / "out.db")[1][0]}
    took = [sql(out / "out.db", "SELECT (max(timestamp) - min(timestamp)) / (max(step) - min(step)), count(*) FROM steps WHERE rank = 0 AND complete")[0] for out in (with_it, without)]
    assert took[0][0] - saved["without rank 7's lateness"] / took[0][1] == pytest.approx(took[1][0], rel=0.02)


@pytest.mark.parametrize("first, late, whose", [(4, 2, "4,5"), (3, 2, "3,4"), (4, 4, "4-7")])
def test_ranks_that_are_late_together(build, run, simulated_job, sql, first, late, whose):
    """Without one of them the others wait for the next. Two equal ranks, and all ranks of a slow machine, are named together; what they cost is what the same
    job without them tells."""
    def a_step(out):
        return sql(out / "out.db", "SELECT (max(timestamp) - min(timestamp)) / (max(step) - min(step)) FROM steps WHERE rank = 0 AND complete")[0][0]

    slow, even = simulated_job("--ranks", 8, "--straggler", "%d:50" % first, "--stragglers", late), simulated_job("--ranks", 8)
    node = late == 4
    answer, tables = ask(build, run, "what_if", slow / "out.db")
    what = "without the lateness of ranks " + whose + (" (all of node001)" if node else "")
    assert answer.startswith(what + " it would take "), answer
    steps = sql(slow / "out.db", "SELECT count(*) FROM steps WHERE rank = 0 AND complete")[0][0]
    assert a_step(slow) - {r["what"]: r["saved"] for r in tables[0]}[what] / steps == pytest.approx(a_step(even), rel=0.02)
    said, _ = ask(build, run, "straggler", slow / "out.db")
    assert re.match("ranks %s%s are late together: without their lateness the run would take " % (whose, ", all of node001," if node else ""), said), said
    assert "together" not in ask(build, run, "straggler", even / "out.db")[0]


@pytest.mark.parametrize("ranks, says", [(1, r"without rank 3's lateness .* % less \(without waiting for data 3[0-9.]+ %\)"), (8, r"without waiting for data it would take .*, 3[0-9.]+ % less")])
def test_what_if_the_data_were_there(build, run, simulated_job, ranks, says):
    """A loader that is slow on one rank, and one that is slow on all, where no rank is later than another."""
    slow = simulated_job("--ranks", 8, "--straggler", "%d:50" % (0 if ranks == 8 else 3), "--stragglers", ranks, "--slow-data")
    assert re.fullmatch(says, ask(build, run, "what_if", slow / "out.db")[0])
    assert ask(build, run, "loader", slow / "out.db")[0].startswith("yes: rank 3 spends" if ranks == 1 else "yes: 3")


def test_what_if_of_a_process_alone(build, run, simulated_job, tmp_path):
    """The process waits for nobody, only for its data."""
    db = edited(simulated_job("--straggler", "5:40") / "out.db", tmp_path, """DELETE FROM trace_file WHERE rank > 0;
        UPDATE trace_file SET rank = NULL, world_size = NULL; DELETE FROM comm;
        UPDATE torch_step SET data = duration / 4""")
    answer, tables = ask(build, run, "what_if", db)
    with sqlite3.connect(str(db)) as con:
        (pid, seconds, data), = con.execute('SELECT t.pid, t."end" - t.start, sum(s.duration) / 4 FROM trace t JOIN steps s ON s.trace_id = t.id WHERE s.complete')
    assert [(r["what"], r["saved"]) for r in tables[0]] == [("without waiting for data", pytest.approx(data, abs=0.002))]
    assert answer == "process %d: without waiting for data it would take %.1f s instead of %.1f s, %.1f %% less" % (pid, seconds - data, seconds, 100 * data / seconds)
    run([build.tool("probing"), "ask", "what_if", edited(db, tmp_path, "UPDATE trace_file SET rank = 0, world_size = 8")], check=1)


@pytest.mark.parametrize("shape", [(), ("--pp", 2)])
def test_what_if_of_a_rank_that_is_recorded_from_later_on(build, run, simulated_job, shape):
    """When it came to its first calls is not known: the others do not wait for it in a replay in which they are faster."""
    saved = [ask(build, run, "what_if", simulated_job("--ranks", 8, "--straggler", "5:30", *shape + late) / "out.db")[1][0] for late in ((), ("--late", "3:6"))]
    whole, part = [next(row["saved"] for row in rows if row["what"] == "without rank 5's lateness") for rows in saved]
    assert whole > 3 and part == pytest.approx(whole, rel=0.02)


@pytest.mark.parametrize("world", [pytest.param(("--no-world",), id="no-world", marks=pytest.mark.slow), pytest.param((), id="world")])
def test_what_if_of_messages_with_one_end(build, run, simulated_job, world):
    """One rank has no trace: it passes on what rank 5 sends too late, and is the last in the collectives of its groups for that (1, 3), or it waits for rank 5 through
    others only (0). It would have come earlier. What else held it up is not known, and the answer says so."""
    saved = {}
    for lost in ((), ("--lose", 0), ("--lose", 1), ("--lose", 3)):
        answer, tables = ask(build, run, "what_if", simulated_job("--ranks", 8, "--straggler", "5:30", "--pp", 4, *world + lost) / "out.db")
        saved[lost] = next(row["saved"] for row in tables[0] if row["what"] == "without rank 5's lateness")
        assert answer.startswith("without rank 5's lateness"), answer
        assert bool(re.search(r" % less or more \(of \d+ messages one end was not recorded\)$", answer)) == bool(lost), answer
        told = [row["what"] for row in tables[2]]
        assert told[:1] == ["without the lateness of ranks that have no trace (1)"] * bool(lost), told
        assert not lost or min(row["percent"] for row in tables[0]) >= 0.5, tables[0]  # what can be seen of less than that may be wrong
    for lost in saved:
        assert saved[lost] == pytest.approx(saved[()], rel=0.03), saved


@pytest.mark.parametrize("late", [("5:40",), ("5:30", "--stragglers", 2)], ids=["the-late-one", "one-of-two"])
def test_what_if_the_late_one_has_no_trace(build, run, simulated_job, late):
    """Without messages nothing tells when the missing rank came: the answer does not say that it knows."""
    lost = 5 if len(late) == 1 else 6  # which is late with rank 5
    answer, tables = ask(build, run, "what_if", simulated_job("--ranks", 8, "--straggler", *late + ("--lose", lost)) / "out.db")
    assert answer.endswith(" (as if its ranks without a trace, 1, were not late)"), answer
    assert tables[2][0] == {"what": "without the lateness of ranks that have no trace (1)"}, tables[2]


def test_what_if_of_a_part(build, run, simulated_job):
    """If a job has more calls than can be replayed, the last ones are, and the answer says so; the straggler is the same."""
    db = simulated_job("--straggler", "5:20") / "out.db"
    tell = "replay('calls') AS calls, replay('part') AS part, replay('seen') AS seen, replay('length') AS length, replay('nth rank', 1) AS rank"

    def asked(*most):
        first = "".join("replay('most', %d) AS most, " % n for n in most)  # a SELECT's columns are evaluated from left to right
        return json.loads(run([build.tool("probing-query"), "--json", db, "SELECT " + first + tell]).stdout)[0]

    whole = asked()
    part = asked(whole["calls"] // 2)
    assert whole["part"] == 1 and whole["rank"] == part["rank"] == 5
    assert part["part"] == pytest.approx(0.5, abs=0.01) and part["calls"] == pytest.approx(whole["calls"] / 2, rel=0.1)
    assert part["seen"] == pytest.approx(whole["seen"] / 2, rel=0.1) and part["length"] == pytest.approx(part["seen"], rel=0.02)


@pytest.mark.parametrize("late", [("--straggler", "5:40", "--pp", 4), ("--straggler", "4:50", "--stragglers", 2)], ids=("pipeline", "together"))
def test_straggler_of_a_part(build, run, simulated_job, tmp_path, late):
    """What the straggler costs is of the whole run, also if only its last third is replayed. (Of a job of 1,000 ranks it was a third of the truth.)"""
    db = simulated_job(*late) / "out.db"
    asked = run([build.tool("probing"), "ask", "straggler", "--sql"]).stdout

    def costs(most):
        question = tmp_path / "asked.sql"
        question.write_text("SELECT replay('most', %d); %s" % (most, asked))
        said = run([build.tool("probing-query"), "-f", question, db]).stdout
        return re.search(r"without (?:its|their) lateness the run would take ([0-9.]+) s less, (\d+) %(, judged by its last \d+ %)?;", said).groups()

    calls, = json.loads(run([build.tool("probing-query"), "--json", db, "SELECT replay('calls') AS calls"]).stdout)
    whole, part = costs(calls["calls"] + 1), costs(calls["calls"] // 3)
    assert not whole[2] and part[2], (whole, part)
    assert float(part[0]) == pytest.approx(float(whole[0]), rel=0.15) and int(part[1]) == pytest.approx(int(whole[1]), abs=3), (whole, part)


def test_what_if_of_a_pipeline(build, run, simulated_job, sql):
    """A slow stage, and a slow rank of a stage: jobs that are otherwise the same tell what the answer must be, within 2 %."""
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

    # Stage 0 loads the data, so it is the next slowest: the first job is what remains when stage 2 is as fast as stage 0.
    data = sql(job("--ranks", "4") / "out.db", "SELECT avg(data) FROM steps WHERE rank = 0 AND complete")[0][0]
    slow, less = job("--ranks", "4", "--straggler", "2:20"), job("--ranks", "4", "--straggler", "2:%d" % round(data * 1000))
    found = saved(slow)
    assert a_step(slow) - found["without stage 2's lateness"] == pytest.approx(a_step(less), rel=0.02)
    assert "without rank 2's lateness" not in found  # no other rank does the same work
    slow, even = job("--straggler", "2:20"), job()
    assert a_step(slow) - saved(slow)["without rank 2's lateness"] == pytest.approx(a_step(even), rel=0.02)


def test_what_if_of_a_rank_in_segments(build, run, simulated_job, tmp_path):
    """A long recording continues in another trace (segment_size). It still counts as one rank, and its work between the two traces is not
    lost."""
    out = edited(simulated_job("--ranks", "8", "--straggler", "5:20", "--offset", "1") / "out.db", tmp_path, "")
    whole = ask(build, run, "what_if", out)
    assert "without rank 5's lateness" in {r["what"] for r in whole[1][0]}
    in_segments(out)
    assert ask(build, run, "what_if", out) == whole


def test_what_if_of_ranks_that_were_started_again(build, run, simulated_job, sql):
    """In each attempt collectives count from 0 again: the longest attempt is replayed, and the minutes between two attempts belong to
    nobody."""
    out = simulated_job("--runs", "3", "--restarts", "--kill", "2:4", "--straggler", "1:20")
    answer, tables = ask(build, run, "what_if", out / "out.db")
    seen = tables[1][0]
    attempt, calls, seconds = sql(out / "out.db", "SELECT attempt, count(*), max(exit) - min(enter) FROM comm_metrics WHERE complete GROUP BY 1 ORDER BY 2 DESC LIMIT 1")[0]
    assert (seen["attempt"], seen["calls"]) == (attempt, calls) and seen["seconds_seen"] == pytest.approx(seconds, abs=1e-3)
    assert seen["seconds_replayed"] == pytest.approx(seconds, rel=0.005)
    whole = float(re.match(r"without rank 1's lateness it would take [0-9.]+ s instead of ([0-9.]+) s", answer).group(1))
    assert seconds < whole + 0.1 and whole < 1.5 * seconds
    assert [r["what"] for r in tables[0]].count("without rank 1's lateness") == 1
