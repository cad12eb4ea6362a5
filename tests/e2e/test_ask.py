# SPDX-License-Identifier: Apache-2.0
"""`probing ask`: the questions that come with it, on simulated jobs whose truth is known and on a real recording."""
import json
import re
import sys

import pytest

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
    cost = float(re.fullmatch(r"rank 5: the others waited for it in \d+ of \d+ collectives, ([0-9.]+) s in all, \d+ % of the run", answer).group(1))
    assert cost == pytest.approx(0.030 * int(steps.stdout.split()[1]), rel=0.15), answer  # others' clocks are up to a second off
    rank, median = tables[1]
    assert rank["forward"] - median["forward"] == pytest.approx(0.030, rel=0.2) and rank["rank"] == 5


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


def test_hang(build, run, simulated_job):
    answer, tables = ask(build, run, "hang", simulated_job("--hang", "3:6") / "out.db")
    assert re.match(r"all_reduce number \d+ of group default_pg: rank 3 never came, 7 of 8 wait since 1[678]\.\d s", answer), answer
    assert [(r["waits_for"], r["waiting"], r["level"]) for r in tables[0]] == [("3", "0-2,4-7", 0)]
    assert [(r["rank"], r["state"]) for r in tables[1]] == [(3, "never came")] and tables[1][0]["last_call"].startswith("all_reduce number ")
    assert {r["rank"] for r in tables[2]} == {3} and "main" in [r["func"] for r in tables[2]]
    answer, _ = ask(build, run, "hang", simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50") / "out.db", code=1)
    assert "nothing hangs" in answer


def test_died_and_last(build, run, simulated_job):
    db = simulated_job("--kill", "6:6") / "out.db"
    answer, tables = ask(build, run, "died", db)
    assert re.match(r"rank 6 \(process \d+\) at .* killed by signal 9 \(SIGKILL\)", answer), answer
    assert [r["rank"] for r in tables[0]][0] == 6 and {r["kind"] for r in tables[0][1:]} == {"exception"}
    answer, tables = ask(build, run, "last", db)
    assert "the last moment recorded" in answer and len(tables[0]) == 8 and tables[0][0]["rank"] == 6


def test_step_and_loader_and_time(build, run, simulated_job):
    db = simulated_job("--straggler", "5:30", "--offset", "1", "--drift", "50") / "out.db"
    answer, tables = ask(build, run, "step", "--step", 20, "--rank", 5, db)
    assert answer.startswith("step 20 of rank 5 took 0.1") and {r["part"] for r in tables[0]} >= {"forward", "backward", "communication"}
    assert {r["rank"] for r in tables[-1]} == set(range(8))
    assert ask(build, run, "loader", db)[0].startswith("no: ")
    answer, tables = ask(build, run, "time", db)
    assert "most of that in backward (" in answer and tables[0][0]["func"] == "backward"
    assert ask(build, run, "overlap", db)[0].startswith("0 % of")
    assert "probing-record" in ask(build, run, "diff", db, code=1)[0] or "one run only" in ask(build, run, "diff", db, code=1)[0]


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
    (tmp_path / "p.py").write_text("import time\nend = time.time() + 1\ndef busy():\n    while time.time() < end:\n        sum(range(1000))\nbusy()\n")
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
    assert "cannot open" in run([build.tool("probing"), "ask", "time", tmp_path / "none.db"], check=3).stderr
    assert "is not being recorded" in run([build.tool("probing"), "ask", "time", "1"], check=3).stderr
