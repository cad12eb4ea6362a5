# SPDX-License-Identifier: Apache-2.0
"""The questions that `probing ask` can answer, on simulated jobs whose truth is known and on a real recording."""
import os
import re
import sqlite3
import sys

import pytest
from ask_helpers import ask, edited
from test_torch import find_torch

NAMES = ["time", "step", "loader", "straggler", "what_if", "hang", "died", "last", "memory", "diff", "gpu", "overlap"]


def test_straggler(build, run, simulated_job):
    out = simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50")
    answer, tables = ask(build, run, "straggler", out / "out.db")
    steps = run([build.tool("probing-query"), "--csv", out / "out.db", "SELECT count(*) FROM steps WHERE rank = 5 AND complete"])
    cost = float(re.fullmatch(r"rank 5: the others waited for it in \d+ of \d+ collectives, ([0-9.]+) of [0-9.]+ s in all, \d+ % of the run", answer.split("; why: ")[0]).group(1))
    assert cost == pytest.approx(0.030 * int(steps.stdout.split()[1]), rel=0.15), answer  # clocks of other machines are up to a second off
    rank, median = tables[1]
    assert rank["forward"] - median["forward"] == pytest.approx(0.030, rel=0.2) and rank["rank"] == 5


def test_steps_of_a_process_that_trains(build, run, simulated_job, tmp_path):
    """Beside it others call a model and have no optimizer, as a reinforcement learner's actors: their longest call is no step that is slow. Steps
    of less than a millisecond have their digits."""
    actors = "UPDATE torch_step SET source = 1, duration = 100 * duration WHERE id >> 40 IN (SELECT id FROM trace_file WHERE rank > 0);"
    db = edited(simulated_job("--seed", 1) / "out.db", tmp_path, actors)
    answer, tables = ask(build, run, "step", db)
    assert re.match(r"step \d+ of rank 0 took 0\.\d{3} s, ", answer), answer
    answer, tables = ask(build, run, "loader", db)
    assert [r["rank"] for r in tables[0]] == [0], tables[0]
    answer, _ = ask(build, run, "step", edited(simulated_job("--seed", 1) / "out.db", tmp_path, "UPDATE torch_step SET duration = duration / 1000, source = 1;"))
    assert re.match(r"step \d+ of rank \d took 0.000\d+ s, [0-9.]+ times the usual 9\.\de-05 s; ", answer), answer


# Rows that are derived from the calls are made anew after the calls were changed; and the view's figure, after the collectives were.
ANEW = "DELETE FROM collective; INSERT INTO collective SELECT * FROM collectives_made; DELETE FROM straggler; INSERT INTO straggler SELECT * FROM stragglers_made;"
SUMS = "UPDATE straggler SET others_waited = (SELECT coalesce(sum(min(skew_ms, longest_ms - shortest_ms)), 0) / 1e3 FROM collective c" \
       " WHERE c.last_rank = straggler.rank AND c.shortest_rank = c.last_rank AND c.op <> 'barrier');"


def straggler(build, run, sql, db):
    """Returns the answer, without why that rank is late (test_ask_why.py), and the rank that it names, which is the first one of the view."""
    said = ask(build, run, "straggler", db)[0].split("; why: ")[0]
    rank = int(re.match(r"(?:no straggler: )?rank (\d+)", said).group(1))
    assert sql(db, "SELECT rank FROM stragglers LIMIT 1") == [(rank,)], said
    return said, rank


def test_straggler_by_cost(build, run, simulated_job, tmp_path, sql):
    """In each step the others wait for rank 5 in the large all_reduce, and for nobody in the three small ones after it. So rank 5 is the
    straggler, though it is late in only a quarter of the collectives."""
    small = "INSERT INTO collective SELECT \"group\", seq * 1000 + n.value, op, arrived, size, complete, first_enter, last_enter, exit, 0.1, (seq + n.value) % 5, (seq + n.value) % 5," \
            " 0.1, 0.2, 8, dtype, NULL, run, attempt FROM collective, json_each('[1,2,3]') n; UPDATE straggler SET collectives = 4 * collectives;" + SUMS
    db = edited(simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50") / "out.db", tmp_path, small)
    assert straggler(build, run, sql, db)[0].startswith("rank 5: the others waited for it in ")
    db = edited(simulated_job("--seed", 1) / "out.db", tmp_path, small)
    assert straggler(build, run, sql, db)[0].startswith("no straggler: rank ")


@pytest.mark.parametrize("rank, late, answer", [
    ("3", "iif(rowid = (SELECT max(rowid) / 2 FROM collective), 9e4, 0)", r"rank 3: .*; not throughout: longer than for any other in \d of 10 tenths of them, (9\d|100) % of it in one"),
    ("3", "iif(rowid < (SELECT max(rowid) / 3 FROM collective), 1e2, 0)", r"rank 3: .*; not throughout: longer than for any other in [2-5] of 10 tenths of them, [23]\d % of it in one"),
    ("iif(rowid % 20 < 15, 3, 4)", "50", r"rank 3: .* the run"),  # late throughout the run
    ("iif(rowid % 9 < 6, 3, 4)", "iif(rowid < (SELECT max(rowid) / 2 FROM collective), 400, 9)",
     r"rank 3: the others waited for it in 11\d of 176 collectives, .* % of the run"),  # in two thirds of them, in each part of the run, though mostly early
    ("iif(rowid % 20 < 9, 3, 4 + rowid % 2)", "50", r"no straggler: rank 3 was waited for longest, .* % of the run, and others were waited for, too"),
    ("3", "0.05", r"no straggler: rank 3 was waited for longest, 0.00\d of 0.00\d s in all, in 17\d of 176 collectives, 0.0\d % of the run \(less than 0.5 %\)"),
    ("3", "iif(rowid = (SELECT max(rowid) / 2 FROM collective), 2e3, 0.1)",  # a tenth of the run, all at once
     r"no straggler: rank 3 was waited for longest, .*, at times, as any rank is where processors are short: longer than for any other in \d+ of 10 tenths of them")])
def test_a_busy_machine_makes_no_straggler(build, run, simulated_job, tmp_path, sql, rank, late, answer):
    """A rank is named if it causes more than half of all waiting, throughout the run. If processors are short, every rank is late for some
    time, so a rank that is late only for a time must cause more of the run; and the answer says so."""
    db = edited(simulated_job("--seed", 1) / "out.db", tmp_path,
                "UPDATE collective SET last_rank = {0}, shortest_rank = {0}, longest_ms = shortest_ms + {1}, skew_ms = {1} WHERE {1} IS NOT 0;".format(rank, late) + SUMS)
    said = straggler(build, run, sql, db)[0]
    assert re.fullmatch(answer, said), said


@pytest.mark.parametrize("ranks, minutes, late, answer", [
    (2, 0.1, "iif(tenth = 0, 64, 8)", "no straggler: rank 1 was waited for longest, "), (4, 0.1, "iif(tenth = 0, 64, 8)", "no straggler: rank 1 was waited for longest, "),
    (2, 0.4, "iif(tenth = 0, 64, 8)", "rank 1: the others waited for it in "),  # late throughout
    (2, 0.4, "iif(nth % 24 = 0, 300, 0)", "no straggler: rank 1 was waited for longest, "),
    (4, 0.4, "iif(nth % 24 = 0, 300, 0)", r"rank 1: .*; not throughout: longer than for any other in 9 of 10 tenths of them")])
def test_a_lead_of_chance(build, run, simulated_job, tmp_path, sql, ranks, minutes, late, answer):
    """Rank 1 is waited for longest in nine tenths of the collectives, rank 0 in the last tenth. In a run of a few seconds, or with two
    ranks and few collectives, this can happen by chance."""
    db = edited(simulated_job("--seed", 1, "--ranks", ranks, "--minutes", minutes) / "out.db", tmp_path,
                "CREATE TABLE lead AS SELECT id, nth, iif(tenth < 9, 1, 0) AS rank, {0} AS late FROM (SELECT id, nth, nth * 10 / n AS tenth FROM"
                " (SELECT rowid AS id, row_number() OVER (ORDER BY first_enter) - 1 AS nth, count(*) OVER () AS n FROM collective));"
                "UPDATE collective SET last_rank = rank, shortest_rank = rank, longest_ms = shortest_ms + late, skew_ms = late FROM lead WHERE id = collective.rowid; DROP TABLE lead;".format(late) + SUMS)
    said = straggler(build, run, sql, db)[0]
    assert re.match(answer, said), said


@pytest.mark.parametrize("wrong", [
    "UPDATE comm SET duration = duration + 20000000 WHERE id >> 40 <> (SELECT id FROM trace_file WHERE rank = 2);",  # all others see the end late
    "UPDATE comm SET ts = ts + 20000000 WHERE id >> 40 = (SELECT id FROM trace_file WHERE rank = 2);"])  # its clock is wrong by as much
def test_neither_durations_nor_clocks_alone_make_a_straggler(build, run, simulated_job, tmp_path, sql, wrong):
    db = edited(simulated_job("--seed", 1) / "out.db", tmp_path, wrong + ANEW)
    assert straggler(build, run, sql, db)[0].startswith("no straggler: rank ")


NOISY = ("--jitter", "500", "--outliers", "0.05")  # 15 s of waiting a minute, by chance alone


@pytest.mark.parametrize("late, noise", [("1", ()), ("3", ()), ("5", ()), ("3", NOISY), ("10", NOISY)])
def test_a_small_straggler_is_told_from_chance(build, run, simulated_job, late, noise):
    """The straggler costs a few percent of a step of 100 ms. It is found because it is late evenly, even if other ranks cost more by single
    long waits."""
    said = ask(build, run, "straggler", simulated_job("--ranks", 4, "--minutes", "0.6", "--straggler", "2:" + late, *noise) / "out.db")[0]
    found = re.match(r"rank 2: the others waited for it in \d+ of \d+ collectives, .* in all, ([0-9.]+) % of the run", said)
    assert found, said
    assert noise or float(late) - 0.5 < float(found.group(1)) < float(late) + 2, said


# Each all_reduce becomes two that are in flight together, like DDP's buckets, inside the backward pass.
BUCKETS = "INSERT INTO comm SELECT id + (1 << 38), ts + 1000000, tid, pg, seq + 100000, op, bytes, dtype, duration, host, src, dst, flags FROM comm WHERE op = 'all_reduce';" \
          "UPDATE torch_step SET backward = duration - forward - optimizer - data;"
# In the last step rank 5 comes to them a second later, and the others wait.
LAST_CALL = "op = 'all_reduce' AND seq %% 100000 = (SELECT max(seq) FROM comm WHERE op = 'all_reduce' AND seq < 100000) AND id >> 40 %s (SELECT id FROM trace_file WHERE rank = 5)"
SECOND_LATE = "UPDATE torch_step SET duration = duration + 1000000000, backward = backward + 1000000000 WHERE number = (SELECT max(number) FROM torch_step WHERE duration);" \
              "UPDATE comm SET duration = duration + 1000000000 WHERE %s; UPDATE comm SET ts = ts + 1000000000 WHERE %s;" % (LAST_CALL % "NOT IN", LAST_CALL % "IN")


def test_collectives_in_flight_together(build, run, simulated_job, tmp_path):
    """Time in which several collectives wait for a rank is waited once: it can be no more than the run took. And a backward pass that is slow because
    communication was in flight in it is not slow by itself."""
    def cost(db):
        return float(re.match(r"rank 5: the others waited for it in \d+ of \d+ collectives, ([0-9.]+) of ", ask(build, run, "straggler", db)[0]).group(1))
    db = simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50") / "out.db"
    assert cost(edited(db, tmp_path, BUCKETS + ANEW)) == pytest.approx(cost(db), rel=0.1)
    db = edited(db, tmp_path, BUCKETS + SECOND_LATE + ANEW)
    answer, _ = ask(build, run, "step", db, "--rank", "0")
    assert re.search(r"; the difference is in backward \(1\.\d+ s instead of 0\.\d+ s\), while communication was in flight for 1\.0\d+ s of the step"
                     r" instead of 0\.0\d+ s; rank 5 came to it 1\.0\d+ s later$", answer), answer


def test_ranks_begin_when_they_can(build, run, simulated_job, tmp_path, sql):
    """Time that the others wait before the first step is not straggling; it is reported separately."""
    first = "UPDATE collective SET last_rank = 3, shortest_rank = 3, longest_ms = shortest_ms + 9000, skew_ms = 9000 WHERE first_enter < (SELECT min(ts) / 1e9 FROM torch_step WHERE duration NOT NULL);"
    answer, tables = ask(build, run, "straggler", edited(simulated_job("--seed", 1) / "out.db", tmp_path, first + SUMS))
    assert re.match(r"no straggler: rank [^3] ", answer) or " 0." in answer, answer
    assert [r["rank"] for r in tables[2]] == [3] and tables[2][0]["others_waited"] == 9, tables


@pytest.mark.parametrize("shape", [("--seed", s, "--ranks", r) for s in (2, 3) for r in (2, 4)] + [("--seed", 1, "--tp", 2, "--pp", 2, "--jitter", 200)])
def test_a_healthy_job_has_no_straggler(build, run, simulated_job, sql, shape):
    """Even if its ranks are late by much now and then."""
    for noise in ((), NOISY):
        assert straggler(build, run, sql, simulated_job(*shape, *noise) / "out.db")[0].startswith("no straggler: rank ")


@pytest.mark.parametrize("shape", [("--pp", 2), ("--pp", 4), ("--pp", 4, "--tp", 2, "--ranks", 16)])
def test_a_straggler_in_a_pipeline(build, run, simulated_job, shape):
    """Who waits for its messages is late for the collectives that follow; it is not that rank whose fault it is."""
    answer, tables = ask(build, run, "straggler", simulated_job("--straggler", "5:40", *shape) / "out.db")
    assert re.match(r"rank 5: (without its lateness the run would take|the others waited for it in) ", answer), answer
    assert tables[1][0]["rank"] == 5 and tables[1][0]["forward"] > 3 * tables[1][1]["forward"], tables
    answer, _ = ask(build, run, "straggler", simulated_job("--seed", 2, *shape) / "out.db")
    assert answer.startswith("no straggler: "), answer


def test_a_straggler_in_a_pipeline_of_one_rank_a_stage(build, run, simulated_job):
    """A rank that has no peers is compared with the other stages, whether or not the job has collectives besides its messages. The first stage, which is
    the last to finish each step and comes last to all collectives then, is not to blame for it."""
    shape = ("--ranks", 4, "--pp", 4, "--jitter", 5, "--outliers", 0, "--offset", 1)
    even = simulated_job(*shape) / "out.db"
    for collectives in ((), ("--no-world",)):
        job = simulated_job("--straggler", "2:20", *shape, *collectives) / "out.db"
        answer, tables = ask(build, run, "straggler", job)
        assert re.match(r"rank 2, stage 2 of the pipeline: without its lateness the run would take \d\.\d s less, 1\d %; ranks wait for messages here", answer), answer
        assert [r["rank"] for t in tables for r in t if "forward" in r] == [2, "median"], tables
        assert ask(build, run, "what_if", job)[0].startswith("without stage 2's lateness (rank 2) it would take ")
    assert ask(build, run, "straggler", even)[0].startswith("no straggler: ranks wait for messages here, and are late for collectives then (in those rank 0 ")


def test_a_straggler_of_each_run(build, run, simulated_job, sql):
    """Of two runs, each has its own waiting, and the one with a straggler is named."""
    out = simulated_job("--runs", "2", "--straggler", "5:30") / "out.db"
    said = straggler(build, run, sql, out)[0]
    assert re.match(r"rank 5 of run \S+: the others waited for it in \d+ of \d+ collectives, ", said), said
    cost, of_all = (float(n) for n in re.search(r", ([0-9.]+) of ([0-9.]+) s in all", said).groups())
    assert cost > 0.9 * of_all


def test_a_straggler_of_few_collectives(build, run, simulated_job, tmp_path, sql):
    few = "DELETE FROM collective WHERE rowid NOT IN (SELECT rowid FROM collective WHERE op = 'all_reduce' AND shortest_rank = 5 LIMIT 3);"
    db = simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50") / "out.db"
    assert straggler(build, run, sql, edited(db, tmp_path, few + SUMS))[0].endswith(" % of the run; of so few that it may be chance")
    long = few + "UPDATE collective SET skew_ms = %d, longest_ms = shortest_ms + %d;" + SUMS
    said = straggler(build, run, sql, edited(db, tmp_path, long % (5000, 5000)))[0]
    assert said.startswith("rank 5: the others waited for it in 3 of ") and said.endswith("of the run; of so few that it may be chance"), said
    said = straggler(build, run, sql, edited(db, tmp_path, long % (500, 500)))[0]
    assert said.startswith("no straggler: rank 5 ") and said.endswith("of the run; of so few that it may be chance"), said


def test_a_straggler_that_cannot_be_told(build, run, simulated_job, tmp_path):
    """If clocks cannot be aligned, or if no call came to its end, a sentence says so."""
    db = simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50") / "out.db"
    apart = edited(db, tmp_path, "UPDATE trace_file SET clock_group = id;" + ANEW)
    answer, tables = ask(build, run, "straggler", apart)
    assert re.fullmatch(r"no straggler can be told: the clocks of the ranks cannot be compared \(view clock_alignment\), so that who came last is not known; "
                        r"by the durations alone rank 5 was waited for longest, [0-9.]+ of [0-9.]+ s in all", answer) and not any(tables), (answer, tables)
    never = edited(db, tmp_path, "UPDATE comm SET flags = flags | 1;" + ANEW)
    assert ask(build, run, "straggler", never, code=1)[0] == "no straggler can be told: no collective of several ranks is complete (`probing ask hang`)"


def test_loader_of_one_rank(build, run, simulated_job, tmp_path):
    """If one rank waits for its data, the others wait for it: the mean over all ranks would hide that."""
    db = simulated_job("--seed", 1) / "out.db"
    slow = "UPDATE torch_step SET data = 0.01 * duration; UPDATE torch_step SET data = 0.6 * duration WHERE id >> 40 %s (SELECT id FROM trace_file WHERE rank = 2)"
    answer, _ = ask(build, run, "loader", edited(db, tmp_path, slow % "="))
    assert re.match(r"yes: rank 2 spends 60.0 % of its steps' time waiting for data, [0-9.]+ s of a step's [0-9.]+ s; half of the ranks 1.0 % or less$", answer), answer
    answer, _ = ask(build, run, "loader", edited(db, tmp_path, slow % "IS NOT NULL OR 1 ="))
    assert re.match(r"yes: 60.0 % of the steps' time is spent waiting for data, [0-9.]+ s of a step's [0-9.]+ s$", answer), answer


LOADS = """
import time, torch, probing
class Shards(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i):
        read_shard()
        return i
def read_shard():
    time.sleep(0.2)
for _ in torch.utils.data.DataLoader(Shards(), None, num_workers=1): probing.step()
"""


def test_what_the_workers_of_a_loader_do(build, run, record, monkeypatch):
    """The line of the program is named, not the C library's function that it waits in, or what the workers' other threads wait for."""
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    monkeypatch.setenv("PYTHONPATH", str(build.share / "python"))
    answer, tables = ask(build, run, "loader", record(LOADS, python=python, options=["-r", "100"]).trace)
    assert answer.startswith("yes: "), answer
    most = tables[-1][0]
    assert re.fullmatch(r"read_shard \(\w+\.py:%d\)" % (LOADS.split("\n").index("    time.sleep(0.2)") + 1), most["line"]) and most["seconds"] > 1, tables


def test_memory(build, run, simulated_job, tmp_path):
    """All ranks load 300 MB before the first step and free it after the last; rank 3 leaks 2 MB in each second of its work."""
    db = simulated_job("--seed", 1) / "out.db"
    rows = "WITH work AS (SELECT id, rank, first_id, start_ts, end_ts FROM trace_file), second(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM second WHERE n < 59)" \
           " INSERT INTO memory_sample(id, ts, rss) SELECT w.first_id + 1000000 + n, w.start_ts + n * (w.end_ts - w.start_ts) / 60, 5000000 * n FROM work w, second;"
    load = "DELETE FROM memory_sample;"
    span = "(SELECT min(timestamp + duration) FROM steps s WHERE s.rank = f.rank AND complete)", "(SELECT max(timestamp + duration) FROM steps s WHERE s.rank = f.rank AND complete)"
    rss = "UPDATE memory_sample AS m SET rss = (SELECT CASE WHEN m.ts < 1e9 * %s THEN 3000000 * (1 + (m.id & 63)) WHEN m.ts > 1e9 * %s THEN 10000000" \
          " ELSE 300000000 + %%s END FROM trace_file f WHERE m.id BETWEEN f.first_id AND f.last_id);" % span
    leak = "iif(f.rank = 3, 2000000 * (m.ts - f.start_ts) / 1e9, 0)"
    answer, tables = ask(build, run, "memory", edited(db, tmp_path, load + rows + rss % leak))
    rate = re.match(r"rank 3 \(process \d+\) grows by ([0-9.]+) MB a minute, to \d+ MB; which code allocates it is not recorded$", answer)
    assert rate and float(rate.group(1)) == pytest.approx(120, rel=0.02), answer
    assert [r["rank"] for r in tables[0]][0] == 3 and {r["mb_per_minute"] for r in tables[0][1:]} == {0}
    for share in (1, 0.5, 0.01):  # of what leaks, that which is shared
        answer, _ = ask(build, run, "memory", edited(db, tmp_path, load + rows + rss % leak + "UPDATE memory_sample SET shared = %s * rss" % share))
        said = re.search(r" MB a minute, to \d+ MB(?:, (\d+) % of it in shared memory or mapped files)?; which code allocates it is not recorded$", answer).group(1)
        assert said is None if share == 0.01 else float(said) == pytest.approx(100 * share, rel=0.1), answer
    answer, _ = ask(build, run, "memory", edited(db, tmp_path, load + rows + rss % "0"))
    assert answer.startswith("nowhere much: the largest growth is 0.00 MB a minute"), answer
    # At of its work (0 to 1): what grows and levels off, is allocated once, or comes and goes is no leak; one that comes and goes and grows, or begins late, is.
    at = "((m.ts / 1e9 - %s) / (%s - %s))" % (span[0], span[1], span[0])
    for held, says in [("200e6 * min(1, 2 * {0})", r"nowhere steadily: rank 3 \(process \d+\) took (19\d|200) MB more by [0-9:]+, and has not grown since \(at most 500 MB\)"),
                       ("iif({0} > 0.6, 200e6, 0)", r"nowhere steadily: rank 3 \(process \d+\) took 200 MB more by .*"),
                       ("200e6 * (8 * {0} - CAST(8 * {0} AS INTEGER))", "nowhere much: .*"), ("200e6 * (1.7 * {0} + 0.3 - (1.7 * {0} + 0.3 >= 1))", r"nowhere steadily: rank 3 \(process \d+\) goes up and down \(between 30\d MB and [45]\d\d MB\)"),
                       ("200e6 * (8 * {0} - CAST(8 * {0} AS INTEGER)) + 200e6 * {0}", r"rank 3 \(process \d+\) grows by [5-9]\d\d.* MB a minute, to \d+ MB; which .*"),
                       ("max(0, 400e6 * ({0} - 0.6))", r"rank 3 \(process \d+\) grows by \d+.* MB a minute since [0-9:]+, to 4\d\d MB; which .*")]:
        answer, _ = ask(build, run, "memory", edited(db, tmp_path, load + rows + rss % ("iif(f.rank = 3, %s, 0)" % held.format(at))))
        assert re.fullmatch(says, answer), (held, answer)
    # What else grows in it: threads, and an address space that is reserved and not used
    begun = "(SELECT start_ts FROM trace_file LIMIT 1)"
    threads = "DELETE FROM cpu; INSERT INTO cpu(id, ts, threads) SELECT id, ts, %s FROM memory_sample;"
    answer, _ = ask(build, run, "memory", edited(db, tmp_path, load + rows + rss % leak + threads % ("10 + 10 * (ts - %s) / 1000000000" % begun)))
    more = re.search(r", to \d+ MB; it has (\d+) threads at its end, (\d+) more than when its work began \(view threads\); which code", answer)
    assert more and int(more.group(1)) >= int(more.group(2)) + 10 > 100, answer
    answer, _ = ask(build, run, "memory", edited(db, tmp_path, load + rows + rss % "0" + threads % "100" + "UPDATE memory_sample SET vms = 100000000 * ((ts - %s) / 1000000000);" % begun))
    space = re.fullmatch(r"nowhere much: .* MB\); its address space grows by (\d+) MB a minute, of which hardly any is in use", answer)
    assert space and float(space.group(1)) == pytest.approx(6000, rel=0.1), answer
    answer, _ = ask(build, run, "memory", edited(db, tmp_path, "UPDATE memory_sample SET id = -id WHERE id & 1048575 > 1"))
    said = re.match(r"too little to say: memory was read in 0.0 of the ([0-9.]+) s of its work, at most ", answer)
    assert said and 10 < float(said.group(1)) < 0.3 * 60, answer


def test_two_processes_of_one_rank(build, run, simulated_job, sql, tmp_path):
    """Both processes are named. A process that a rank starts (such as a loader, with the rank in its environment) is not one of them, nor
    is a rank that was started again."""
    out = simulated_job("--duplicate", "5")
    done = run([build.tool("probing"), "ask", "straggler", out / "out.db"])
    assert re.search(r"^probing-ask: 2 processes say that they are rank 5 \(\d+ on node\d+, \d+ on node\d+\): what is said of that rank is of all of them$", done.stderr, re.M), done.stderr
    many = run([build.tool("probing"), "ask", "straggler", edited(out / "out.db", tmp_path, "UPDATE trace_file SET rank = 5 WHERE rank < 5")], check=None).stderr
    assert re.search(r"^probing-ask: 7 processes say that they are rank 5 \((\d+ on node\d+, ){4}\.\.\.\): what is said", many, re.M), many  # it was cut within a name
    # What the rank did twice, the others did not: they still wait for whom they wait for.
    slow = simulated_job("--duplicate", "3", "--straggler", "5:30") / "out.db"
    assert sql(slow, "SELECT count(*), sum(complete = arrived), sum(arrived = 8) FROM collectives") == [(135, 135, 135)]
    assert re.match(r"rank 5: the others waited for it in 1\d\d of 135 collectives", ask(build, run, "straggler", slow)[0])
    forked = edited(out / "out.db", tmp_path, "UPDATE trace_file SET ppid = (SELECT pid FROM trace_file WHERE rank = 5 ORDER BY id LIMIT 1)"
                    " WHERE id = (SELECT max(id) FROM trace_file WHERE rank = 5)")
    assert "say that they are" not in run([build.tool("probing"), "ask", "straggler", forked]).stderr
    with sqlite3.connect(str(out / "out.db")) as c:
        c.execute("DELETE FROM process_group WHERE trace = (SELECT max(id) FROM trace_file WHERE rank = 5)")
    c.close()
    assert "say that they are" not in run([build.tool("probing"), "ask", "straggler", out / "out.db"]).stderr
    again = simulated_job("--runs", "3", "--restarts", "--kill", "2:4", "--straggler", "1:20")
    assert "say that they are" not in run([build.tool("probing"), "ask", "straggler", again / "out.db"]).stderr


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


STEPS = """
import time, probing
def saves():
    time.sleep(0.8)
for i in range(40):
    if i == 30: saves()
    time.sleep(0.02)
    probing.step()
"""


def test_what_a_slow_step_did(build, run, record, simulated_job, tmp_path, monkeypatch):
    """The line of the program that took the time is named; or the rank that was waited for, if that is what took it."""
    monkeypatch.setenv("PYTHONPATH", str(build.share / "python"))
    answer, _ = ask(build, run, "step", record(STEPS).trace)
    assert re.search(r"; the difference is in other \(.* s instead of .* s\); for 0\.[789] s it was in saves \(\w+\.py:%d\)$" % (STEPS.split("\n").index("    time.sleep(0.8)") + 1), answer), answer
    db = simulated_job("--seed", 1) / "out.db"
    late = """CREATE TEMP TABLE five AS SELECT first_id, last_id FROM trace_file WHERE rank = 5;
        CREATE TEMP TABLE call AS SELECT min(c.seq) AS seq FROM five f, comm c, torch_step s WHERE c.id BETWEEN f.first_id AND f.last_id AND s.id BETWEEN f.first_id AND f.last_id AND s.number = 20 AND c.ts > s.ts;
        UPDATE comm SET ts = ts + 500000000 WHERE seq = (SELECT seq FROM call) AND EXISTS (SELECT 1 FROM five f WHERE comm.id BETWEEN f.first_id AND f.last_id);
        UPDATE comm SET duration = duration + 500000000 WHERE seq = (SELECT seq FROM call) AND NOT EXISTS (SELECT 1 FROM five f WHERE comm.id BETWEEN f.first_id AND f.last_id);
        UPDATE torch_step SET duration = duration + 500000000 WHERE number = 20;""" + ANEW
    answer, _ = ask(build, run, "step", "--rank", 0, edited(db, tmp_path, late))
    assert re.match(r"step 20 of rank 0 took 0\.[56]\d+ s, .*; the difference is in communication, or waiting in it \(.*\); it waited 0\.5\d+ s for rank 5$", answer), answer
    assert "it waited" not in ask(build, run, "step", db)[0] and "it was in" not in ask(build, run, "step", db)[0]


@pytest.mark.parametrize("named", (True, False), ids=("named", "unnamed"))
def test_waits_for_the_gil(build, run, tmp_path, named):
    """Of four threads that compute, three wait for the GIL, whether or not glibc's internal functions have names, which only its debugging symbols
    give. (That one waited so long that it is said is made so: a short run of a busy machine shows some ticks of it.)"""
    program, trace, db = tmp_path / "t.py", tmp_path / "t.zst", tmp_path / "t.db"
    program.write_text("import sys, threading, time\ndef computes(end):\n    while time.time() < end: pass\nfor _ in range(int(sys.argv[1])): threading.Thread(target=computes, args=(time.time() + 1.5,)).start()\n")
    names = "UPDATE stack SET name = %s WHERE type = 1 AND file GLOB '*/libc[.-]*' AND (name GLOB '*futex*' OR name GLOB 'libc*+0x*');" % ("'__futex_wait'" if named else "'libc.so.6+0x85e50'")
    for threads in (4, 1):
        run([build.tool("probing-record"), "-q", "-r", "200Hz", "-o", trace, sys.executable, program, str(threads)], check=0)
        run([build.tool("probing-convert"), "-qf", trace, db])
        longer = "UPDATE stack_total SET ns = ns * 1000, running_ns = running_ns * 1000;" if threads == 4 else ""
        answer, tables = ask(build, run, "time", edited(db, tmp_path, names + longer))
        assert bool(re.search(r"; threads waited for the GIL for \d+\.\d s at least$", answer)) == (threads == 4), answer
        assert "computes (t.py:3)" in [r["line"] for r in tables[-1]] if threads == 4 else not tables[-1], tables[-1]


def test_a_step_that_is_not_there(build, run, simulated_job, tmp_path):
    """It is said which there are; "no steps were recorded" was not true."""
    db = simulated_job("--seed", 1) / "out.db"
    there = run([build.tool("probing-query"), "--csv", db, "SELECT min(step) || ' to ' || max(step) FROM steps WHERE complete"]).stdout.split("\n")[1]
    for options, said in ((("--step", 99999), "step 99999"), (("--step", 3, "--rank", 77), "step 3 of rank 77"), (("--rank", 77), "step of rank 77")):
        assert ask(build, run, "step", *options, db, code=1)[0] == "there is no %s: there are steps %s, of 8 rank(s)" % (said, there)
    cut = edited(db, tmp_path, "UPDATE torch_step SET duration = NULL WHERE number = 20")
    assert ask(build, run, "step", "--step", 20, cut, code=1)[0].startswith("there is no complete step 20: there are steps ")
    alone = edited(db, tmp_path, "DELETE FROM torch_step WHERE number <> 20 OR source = 3 OR id >> 40 <> 1")
    assert re.fullmatch(r"step 20 of rank \d took [0-9.]+ s; no other step of it is complete, with which that could be compared", ask(build, run, "step", alone)[0])
    assert "no number of a step" in run([build.tool("probing"), "ask", "step", "--step", "2.5", db], check=2).stderr


def test_a_process_that_is_not_known(build, run, simulated_job, tmp_path):
    """A trace whose first block is damaged does not say whose it is, nor what time it was: no empty names, and a word on the year 1970."""
    trace = tmp_path / "t.zst"
    data = bytearray(next(iter(simulated_job("--minutes", "0.1").glob("node*/*-r1-*.zst"))).read_bytes())
    data[900:960] = bytes(b ^ 0x5a for b in data[900:960])
    trace.write_bytes(bytes(data))
    done = run([build.tool("probing"), "ask", "all", "--answer", trace], check=1)
    assert "of a process that is not named" in done.stdout and not re.search(r"of +took|of , |process \)", done.stdout), done.stdout
    assert all(answer.split("\n", 1)[1].strip() for answer in ("\n" + done.stdout).split("\n== ")[1:]), "a title without an answer: " + done.stdout
    assert "1 trace has no time of day (%s): its times count from when its machine was started, and look like ones of 1970" % trace in done.stderr, done.stderr


WAITS = "UPDATE sample SET ts = (SELECT ts + 4000 FROM x WHERE trace = sample.id >> 40), count = 1, flags = %d, stack = (SELECT k.stack FROM stack_frame k JOIN frame r ON r.id = k.frame WHERE r.name GLOB" \
    " 'c10d::Work::wait*') WHERE id IN (SELECT min(s.id) FROM sample s JOIN torch_call c ON c.id >> 40 = s.id >> 40 AND c.thread = s.thread WHERE c.stage = 2 GROUP BY s.id >> 40);"


@pytest.mark.parametrize("host, tid, percent, waits", [("duration / 4", "tid", 75, ""), ("duration", "1", 100, ""), ("duration / 4", "tid", 0, WAITS % 0)]
                         + [pytest.param(*p, marks=pytest.mark.slow) for p in [("0", "tid", 100, ""), ("duration", "tid", 0, ""), ("0", "tid", 0, WAITS % 0), ("0", "tid", 100, WAITS % 1)]])
def test_who_is_inside_a_call_computes_nothing(build, run, simulated_job, tmp_path, host, tid, percent, waits):
    """Every call lies within a backward pass of the same thread, which is inside the call for a part of its time; in another thread the
    call would overlap the pass. If the thread waits for the call later, in Work.wait(), its samples show it; if no samples do, the answer
    says so."""
    script = ("CREATE TEMP TABLE x AS SELECT id >> 40 AS trace, min(ts) AS ts, max(duration) AS duration FROM torch_call WHERE stage = 2 AND duration > 0 GROUP BY 1;"
              "UPDATE comm SET flags = 0, tid = (SELECT h.tid FROM thread h JOIN torch_call b ON h.id = (b.id >> 40 << 40) + b.thread WHERE b.stage = 2 AND b.id >> 40 = comm.id >> 40"
              " LIMIT 1), ts = (SELECT ts FROM x WHERE trace = comm.id >> 40), duration = 8000; UPDATE comm SET host = %s, tid = %s; UPDATE sample SET flags = 1;" % (host, tid)) + waits
    answer, _ = ask(build, run, "overlap", edited(simulated_job("--seed", 1) / "out.db", tmp_path, script))
    assert answer.startswith("%d %% of" % percent) and ("no sample shows" in answer) == (percent > 0 and (host != "duration")), answer


def test_waits_that_are_shorter_than_the_time_between_samples(build, run, simulated_job, tmp_path):
    """A backward pass has a hundred calls, with as much time between them, and a sample is taken once in the time of twenty calls. Four of
    ten samples show a wait, so four fifths of the calls' time is waited for."""
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
    """The second of two runs (processes from 21000 on) is compared with the first of another job."""
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
    """A question about all ranks is asked about one: the answer says what is missing, answers the rest, and is never empty."""
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


def test_which_timeouts_there_are(build, run):
    """A number that is too small or too large is refused by a line that says which are not."""
    for tool in (["query"], ["ask", "time"], ["diff"], ["report"], ["-t", "1", "eval"], ["serve"]):
        for wrong in ("0.0001", "0", "-1", "1e9", "soon"):
            said = run([build.tool("probing")] + tool + ["--timeout=" + wrong, "x.db"], check=2).stderr
            assert "the timeout must be from 0.001 to 86400 seconds, not '%s'" % wrong in said, (tool, said)


def test_listed_and_refused(build, run, tmp_path):
    listed = run([build.tool("probing"), "ask"]).stdout
    assert [line.split()[0] for line in listed.splitlines()[:len(NAMES)]] == NAMES
    for name in NAMES:
        assert "SELECT" in run([build.tool("probing"), "ask", name, "--sql"]).stdout
    assert "no question 'why'" in run([build.tool("probing"), "ask", "why", "x.db"], check=2).stderr
    assert "the question comes first: probing ask hang DB|TRACE...|PID" in run([build.tool("probing"), "ask", "x.db", "hang"], check=2).stderr
    assert "cannot open" in run([build.tool("probing"), "ask", "time", tmp_path / "none.db"], check=3).stderr
    assert "is not being recorded" in run([build.tool("probing"), "ask", "time", str(os.getpid())], check=3).stderr


def test_the_sql_that_is_printed_can_be_run(build, run, simulated_job, tmp_path):
    """`probing query` gives the same answer, and so does the stock shell with the extension; a parameter is what the command line gave, or NULL."""
    db, compared = simulated_job("--hang", "3:6") / "out.db", 0
    for name in NAMES:
        args = ["--step", 12] if name == "step" else []
        done = run([build.tool("probing"), "ask", name, "--answer"] + args + [db], check=None)
        (tmp_path / "q.sql").write_text(run([build.tool("probing"), "ask", name, "--sql"] + args).stdout)
        if name == "diff" or done.returncode != 0:  # its SQL is of a database that is gathered; nothing to answer from
            continue
        rows = run([build.tool("probing-query"), "-f", tmp_path / "q.sql", db]).stdout.splitlines()
        assert rows[0] == "answer" and rows[2] == done.stdout.splitlines()[0], name
        rows = run(["sqlite3", db, ".load %s" % (build.lib / "probing"), ".read %s" % (tmp_path / "q.sql")]).stdout.splitlines()
        assert rows[0] == done.stdout.splitlines()[0], name
        compared += 1
    assert compared >= 8
    assert "step = 12" in run([build.tool("probing"), "ask", "step", "--sql", "--step", "12"]).stdout.replace("IS 12", "= 12")
