# SPDX-License-Identifier: Apache-2.0
"""`probing diff`: two runs, and two ranks, of simulated jobs whose truth is known, and of a real program; what lies within the noise is not shown."""
import json
import sys

import pytest


def diff(build, run, *args):
    parts = json.loads(run([build.tool("probing"), "diff", "--json"] + list(args)).stdout)
    parts = {p["title"].split(",")[0].split(";")[0]: p["rows"] for p in parts if p["rows"]}
    return parts.pop("answer")[0]["answer"], parts


def more(rows, name):
    return {list(r.values())[0]: r["more"] for r in rows}[name]


def test_the_same_twice_is_no_difference(build, run, simulated_job):
    answer, parts = diff(build, run, simulated_job("--seed", 1) / "out.db", simulated_job("--seed", 2) / "out.db")
    assert answer.startswith("nothing that stands out of the noise: a step takes 0.09") and set(parts) == {"the two"}, (answer, parts)
    assert [r["processes"] for r in parts["the two"]] == [8, 8]


def test_a_longer_step(build, run, simulated_job):
    answer, parts = diff(build, run, simulated_job("--seed", 1) / "out.db", simulated_job("--step-ms", 150) / "out.db")
    assert "+49." in answer or "+50." in answer, answer
    assert "most of the difference is in backward (" in answer
    assert [r["part"] for r in parts["parts of a step"]][:3] == ["a step", "backward", "forward"]
    assert more(parts["parts of a step"], "backward") == pytest.approx(0.0225, rel=0.03)
    assert [r["module"] for r in parts["modules"]][:2] == ["GPT backward", "GPT forward"]
    assert list(parts["functions"][0].values())[0].startswith("backward (")


def test_two_ranks_of_one_job(build, run, simulated_job):
    """Rank 5 computes 30 ms longer, the others wait for it as long: the steps are as long in both."""
    job = simulated_job("--straggler", "5:30") / "out.db"
    answer, parts = diff(build, run, "--ranks", "3,5", job)
    assert answer.startswith("a step takes as long in both") and [r["processes"] for r in parts["the two"]] == [1, 1]
    assert more(parts["parts of a step"], "forward") == pytest.approx(0.030, rel=0.1)
    assert more(parts["collectives"], "all_reduce in default_pg") == pytest.approx(-0.030, rel=0.1)
    answer, parts = diff(build, run, "--ranks", "2,3", job)
    assert answer.startswith("nothing that stands out of the noise") and set(parts) == {"the two"}, parts


PROGRAM = """
import sys, time
kept = bytearray(int(sys.argv[2]) << 20)
for i in range(0, len(kept), 4096):
    kept[i] = 1
def same():
    time.sleep(0.02)
def changed():
    time.sleep(float(sys.argv[1]))
for i in range(60):
    same()
    changed()
"""


def test_of_a_real_program(build, run, tmp_path, monkeypatch):
    (tmp_path / "p.py").write_text(PROGRAM)
    for name, args, rate in (("a", ["0.005", "1"], 100), ("b", ["0.03", "200"], 101)):
        monkeypatch.setenv("OMP_NUM_THREADS", {"a": "1", "b": "2"}[name])
        run([build.tool("probing-record"), "-q", "-r", rate, "--metrics", "0.2", "-o", tmp_path / (name + ".zst"), sys.executable, tmp_path / "p.py"] + args)
    answer, parts = diff(build, run, tmp_path / "a.zst", tmp_path / "b.zst")
    assert "changed (p.py)" in answer, answer
    assert parts["functions"][0]["func"] == "changed (p.py)" and parts["functions"][0]["more"] > 0.75 * 60 * 0.025
    assert more(parts["memory"], "resident, most, MB") == pytest.approx(209, rel=0.1)
    differs = {(r["kind"], r["name"]): (r["a"], r["b"]) for r in parts["settings"]}
    assert differs["environment", "OMP_NUM_THREADS"] == ("1", "2") and not any(kind == "version" for kind, _ in differs), differs
    assert ("setting", "probing.sample_rate") in differs and len(differs) < 5, differs


def test_refusals(build, run, simulated_job, tmp_path):
    one = simulated_job("--seed", 1) / "out.db"
    tool = [build.tool("probing"), "diff"]
    for args, code, says in (([one], 2, "two recordings are needed"), ([], 2, "two recordings are needed"), (["--ranks", "1", one], 2, "two numbers, as in 0,3"),
                             (["--ranks", "1,x", one], 2, "two numbers"), (["--runs", "a", one], 2, "names of two"),
                             (["--ranks", "1,99", one], 1, "nothing of one of the two"), ([one, tmp_path / "none.db"], 3, "cannot open"),
                             ([one, one, one], 2, "two recordings")):
        done = run(tool + args, check=code)
        assert says in done.stderr and len(done.stderr.splitlines()) == 1 and done.stdout == "", (args, done.stderr)
