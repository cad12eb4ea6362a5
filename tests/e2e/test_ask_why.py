# SPDX-License-Identifier: Apache-2.0
"""Why the straggler is late: `probing ask straggler` says what that rank does more of than the others, on simulated jobs and on real ones in which one
rank is late for a reason of its own (late_scenes.py)."""
import pathlib
import re

import pytest
from ask_helpers import ask, edited
from test_torch import find_torch

SCENES = pathlib.Path(__file__).with_name("late_scenes.py")


def why(build, run, db):
    answer, tables = ask(build, run, "straggler", db)
    assert "; why" in answer, answer
    return answer.split("; why", 1)[1], tables[-1]


def line_of(mark):
    return next(i for i, line in enumerate(SCENES.read_text().splitlines(), 1) if line.endswith("# " + mark))


def test_the_pass_that_takes_longer(build, run, simulated_job):
    said, rows = why(build, run, simulated_job("--straggler", "5:30", "--minutes", "1") / "out.db")
    assert re.match(r": it was in Block\.forward \(train\.py:\d+\), called by GPT\.forward \(train\.py:\d+\), 1\d\.\d s longer than the median of the others, on a CPU"
                    r" \(the forward pass: 0\.0[56]\d+ s of a step instead of 0\.0[23]\d+ s\)$", said), said
    row = next(r for r in rows if r["what"].startswith("Block.forward (train.py:"))
    assert 10 < row["more"] < 20 and row["of"] == "main", rows


def test_the_data_that_come_late(build, run, simulated_job):
    said, _ = why(build, run, simulated_job("--straggler", "5:30", "--slow-data", "--minutes", "1") / "out.db")
    assert said.endswith(" (waiting for data: 0.0350 s of a step instead of 0.0050 s)"), said


def test_too_short_for_the_samples(build, run, simulated_job):
    """Of a few samples it cannot be told where 2 s of a minute were spent. The parts of a step are measured, not sampled."""
    said, _ = why(build, run, simulated_job("--straggler", "5:3", "--minutes", "1") / "out.db")
    assert re.match(r": the forward pass takes it 0\.033\d s of a step instead of 0\.030\d s$", said), said


def test_ranks_that_are_late_together_are_not_compared_with_each_other(build, run, simulated_job):
    said, _ = why(build, run, simulated_job("--straggler", "4:50", "--stragglers", "2") / "out.db")
    assert re.match(r" \(of rank 4\): it was in Block\.forward \(.*, on a CPU \(the forward pass: 0\.0[78]\d+ s of a step instead of 0\.0[23]\d+ s\)$", said), said


def test_a_rank_that_waits_for_a_processor(build, run, simulated_job, tmp_path):
    """It would run as often, but has used nearly no CPU time."""
    db = edited(simulated_job("--straggler", "5:30", "--minutes", "1") / "out.db", tmp_path,
                "UPDATE sample SET cpu_us = iif(id >> 40 = (SELECT id FROM trace_file WHERE rank = 5), 1000, 100000) * count WHERE flags & 1;")
    said, rows = why(build, run, db)
    assert re.match(r": it waited for a processor \d+\.\d s longer than the median of the others: something else runs on its CPUs, or its cgroup ", said), said
    assert "waiting for a processor" in [r["what"] for r in rows], rows


def test_nothing_stands_out(build, run, simulated_job, tmp_path):
    """Another rank is said to be late, which did just what the others did: no reason is made up."""
    late = "UPDATE collective SET last_rank = 3, shortest_rank = 3, longest_ms = shortest_ms + 30, skew_ms = 30;"
    said, _ = ask(build, run, "straggler", edited(simulated_job("--seed", 1) / "out.db", tmp_path, late))
    assert re.match(r"rank 3: .* % of the run; why: nothing that its main thread does stands out in the samples$", said), said


def of_scene(build, run, tmp_path, scene):
    """Records a scene, and returns why its rank 2 is late."""
    python, why_not = find_torch("debian")
    if not python:
        pytest.skip(why_not)
    db = tmp_path / "out.db"
    run([build.tool("probing-record"), "-q", "-r", "20Hz", "-o", str(tmp_path / "traces") + "/", python, "-W", "ignore", SCENES, scene, tmp_path])
    run([build.tool("probing-convert"), "-q", tmp_path / "traces", db])
    answer, _ = ask(build, run, "straggler", db)
    assert answer.startswith("rank 2: the others waited for it in "), answer
    return answer.split("; why: ", 1)[1]


def test_workers_of_the_loader(build, run, tmp_path):
    """The rank waits for the worker processes of its data loader; what these do is said, too."""
    said = of_scene(build, run, tmp_path, "workers")
    assert re.match(r"it waited for the workers of its data loader, called by train \(late_scenes\.py:%d\), \d+\.\d s longer than the median of the others, waiting or asleep; those were in"
                    r" Data\.fetch \(late_scenes\.py:%d\), called by Data\.__getitem__ \(late_scenes\.py:\d+\), \d+\.\d s longer than the median of the other ranks' workers"
                    r" \(waiting for data: 0\.\d+ s of a step instead of 0\.\d+ s\)$" % (line_of("next"), line_of("fetch")), said), said


@pytest.mark.slow
@pytest.mark.parametrize("scene, says", [
    ("loader", r"it was in Data\.fetch \(late_scenes\.py:{fetch}\), .*, waiting or asleep \(waiting for data: "),
    ("matmul", r"it was in Model\.attend \(late_scenes\.py:{attend}\), called by Model\.forward \(.*, on a CPU \(the forward pass: "),
    ("garbage", r"it was in collect \(late_scenes\.py:{collect}\), .*, on a CPU|it collected garbage \d+\.\d s longer than the median of the others, called by collect "),
    ("lock", r"it was in log_metrics \(late_scenes\.py:{lock}\), called by train \(.*, waiting or asleep"),
    ("gil", r"it waited for the GIL \d+\.\d s longer than the median of the others, which thread spinner holds, in spin \(late_scenes\.py:{spin}\)"),
    ("file", r"it was in write_log \(late_scenes\.py:\d+\), called by train \("),
    ("rare", r"it was in now_and_then \(late_scenes\.py:{rare}\), .*, waiting or asleep")], ids=lambda x: x if x.isalpha() else "")
def test_real_reasons(build, run, tmp_path, scene, says):
    said = of_scene(build, run, tmp_path, scene)
    assert re.match(re.sub(r"\{(\w+)\}", lambda m: str(line_of(m.group(1))), says), said), said
