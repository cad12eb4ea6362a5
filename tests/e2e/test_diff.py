# SPDX-License-Identifier: Apache-2.0
"""`probing diff` compares two runs, or two ranks, of simulated jobs whose truth is known, and of a real program; it hides differences
within the noise."""
import json
import math
import re
import sqlite3
import sys

import pytest
from ask_helpers import edited


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


def test_what_is_within_the_noise_is_not_said_to_be_more(build, run, simulated_job, tmp_path):
    """Steps that vary from one part of the run to the next, in one run 10 % longer than in the other: that is less than would be shown, and less than "give or take"."""
    job = simulated_job("--seed", 1) / "out.db"
    varies = "UPDATE torch_step SET duration = duration * iif(ts / 3000000000 % 2, 1.3, 1) * "
    (tmp_path / "a").mkdir()
    answer, _ = diff(build, run, edited(job, tmp_path / "a", varies + "1"), edited(job, tmp_path, varies + "1.1"))
    a, b, least = map(float, re.search(r": a step takes ([0-9.]+) s and ([0-9.]+) s, give or take ([0-9.]+) s$", answer).groups())
    assert b > 1.09 * a and b - a < least, answer


def test_what_makes_two_runs_hard_to_compare_is_said(build, run, simulated_job, tmp_path):
    """Another number of ranks, and another version of Python (or of PyTorch), were in the tables only."""
    one = simulated_job("--seed", 1) / "out.db"
    assert diff(build, run, one, simulated_job("--seed", 1, "--ranks", 4) / "out.db")[0].endswith("; 8 processes in the one, 4 in the other")
    other = edited(one, tmp_path, "UPDATE trace_file SET python = '3.99.0'")
    assert re.search(r"; python 3\.[0-9.]+ in the one, 3\.99\.0 in the other$", diff(build, run, one, other)[0])


def test_a_longer_step(build, run, simulated_job):
    answer, parts = diff(build, run, simulated_job("--seed", 1) / "out.db", simulated_job("--step-ms", 150) / "out.db")
    assert "+49." in answer or "+50." in answer, answer
    assert "most of the difference is in backward (" in answer
    assert [r["part"] for r in parts["parts of a step"]][:3] == ["a step", "backward", "forward"]
    assert more(parts["parts of a step"], "backward") == pytest.approx(0.0225, rel=0.03)
    assert [r["module"] for r in parts["modules"]][:2] == ["GPT backward", "GPT forward"]
    assert list(parts["functions"][0].values())[0].startswith("backward (")


def test_two_ranks_of_one_job(build, run, simulated_job):
    """Rank 5 computes for 30 ms longer, and the others wait for it as long: the steps of both take the same time."""
    job = simulated_job("--straggler", "5:30") / "out.db"
    answer, parts = diff(build, run, "--ranks", "3,5", job)
    assert re.match(r"a step takes as long in both, [0-9.]+ s and [0-9.]+ s, give or take [0-9.]+ s, and goes elsewhere; rank 3 spends 0.0[23][0-9]+ s more in all_reduce \(\w+.py\), rank 5 0.0[12][0-9]+ s more in [\w.]*forward \(\w+.py\)", answer), answer
    assert [r["processes"] for r in parts["the two"]] == [1, 1]
    assert more(parts["parts of a step"], "forward") == pytest.approx(0.030, rel=0.1)
    assert more(parts["collectives"], "all_reduce in default_pg") == pytest.approx(-0.030, rel=0.1)
    answer, parts = diff(build, run, "--ranks", "2,3", job)
    assert answer.startswith("nothing that stands out of the noise") and set(parts) == {"the two"}, parts


def test_a_busy_machine_is_no_difference_of_a_function(build, run, simulated_job, tmp_path):
    """If threads that want to run wait for a processor half of the time, the answer says that, and does not say that a function takes
    longer."""
    a, b = simulated_job("--seed", 1) / "out.db", tmp_path / "b.db"
    b.write_bytes(a.read_bytes())
    with sqlite3.connect(str(b)) as c:
        c.execute("UPDATE sample SET count = 2 * count WHERE flags & 1")
    c.close()
    answer, parts = diff(build, run, a, b)
    assert re.search(r"in waiting for a processor, \+[0-9.]+ s$", answer), answer
    assert [list(r.values())[0] for r in parts["functions"]] == ["waiting for a processor"], parts["functions"]


def test_a_function_of_the_program_on_a_busy_machine(build, run, simulated_job, tmp_path):
    """If the threads also wait for a processor much longer, the answer still names the function that takes longer."""
    longer, b = simulated_job("--step-ms", 150) / "out.db", tmp_path / "b.db"
    b.write_bytes(longer.read_bytes())
    with sqlite3.connect(str(b)) as c:
        c.execute("UPDATE sample SET count = 3 * count WHERE flags & 1")
    c.close()
    answer, _ = diff(build, run, simulated_job("--seed", 1) / "out.db", b)
    assert re.search(r"in waiting for a processor, \+[0-9.]+ s; of the program itself, in backward \(\w+.py\), \+0.0", answer), answer


def items(build, run, *rows):
    """What is shown as a difference, of items (side, section, name, value, noise) made by hand: the answer, and the names."""
    text = run([build.tool("probing"), "ask", "diff", "--sql"]).stdout
    statements = text[text.index("CREATE TEMP TABLE pair"):text.index("-- the two")].split(";\n")
    c = sqlite3.connect(":memory:")
    c.create_function("sqrt", 1, math.sqrt)
    c.executescript("CREATE TABLE item(side, section, name, value, noise); CREATE TABLE setting(side, kind, name, value)")
    c.executemany("INSERT INTO item VALUES(?, ?, ?, ?, ?)", list(rows) + [(side, "steps", name, value, 0) for side in "ab" for name, value in (("processes", 1), ("seconds", 9))])
    for statement in statements[:3]:
        c.execute(statement)
    return c.execute(statements[3]).fetchone()[0], {name for name, in c.execute("SELECT name FROM differs")}


def of(side, section, value, noise, *names):
    return [(side, section, name, value, noise) for name in names]


def test_of_many_functions_some_differ_by_chance(build, run):
    """The more of them, the further apart are the two that differ most without a cause. A function that is seen all the time on one side and
    never on the other is a difference, however much it varies."""
    names = ["f%d (x.py)" % n for n in range(60)]
    both = of("a", "function", 0.010, 0.0010, *names) + of("b", "function", 0.010, 0.0010, *names[1:])
    chance, cause, new = ([("b", "function", name, value, 0.0010)] for name, value in ((names[0], 0.0157), (names[0], 0.018), ("new (x.py)", 0.004)))
    assert items(build, run, *both, *chance)[1] == set() and items(build, run, *both, *cause)[1] == {names[0]}
    whole = both + of("b", "function", 0.010, 0.0010, names[0])
    assert items(build, run, *whole, *new)[1] == set()
    assert items(build, run, *whole, *new, ("b", "seen", "new (x.py)", 14, 0))[1] == {"new (x.py)"}
    few = of("a", "function", 0.010, 0.0010, *names[:2]) + of("b", "function", 0.010, 0.0010, names[1])
    assert items(build, run, *few, *chance)[1] == {names[0]}


def test_what_the_clock_measures_on_a_busy_machine(build, run):
    """Modules and parts of a step take longer if threads wait for a processor meanwhile: they are shown if they take longer than that explains."""
    def rows(side, wait, module, forward):
        return of(side, "function", wait, 0.0003, "waiting for a processor") + of(side, "module", module, 0.0005, "Net forward") + of(side, "step", forward, 0.0005, "forward") + \
            of(side, "step", 0.1 + wait, 0.006, "a step") + of(side, "function", 0.05, 0.0005, "f (x.py)")
    answer, names = items(build, run, *rows("a", 0.010, 0.030, 0.030), *rows("b", 0.020, 0.038, 0.038))
    assert names == {"waiting for a processor"} and re.match("nothing that stands out of the noise but what the machine does: .*; most of the difference is in waiting for a processor, [+]0.0100 s$", answer), answer
    assert items(build, run, *rows("a", 0.010, 0.030, 0.030), *rows("b", 0.020, 0.048, 0.030))[1] == {"waiting for a processor", "Net forward"}
    answer, names = items(build, run, *rows("a", 0.010, 0.030, 0.030), *rows("b", 0.060, 0.048, 0.060))
    assert names == {"waiting for a processor", "a step"} and answer.startswith("a step takes 0.1100 s in the one and 0.1600 s in the other"), answer


def test_a_variable_of_few_values(build, run, simulated_job, tmp_path):
    """Another learning rate takes no other time. Of a loss no two values are equal, in equal runs, too."""
    one = simulated_job("--seed", 1) / "out.db"
    a, b = (edited(one, tmp_path, """DELETE FROM variable; WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
        INSERT INTO variable(id, ts, step, func, name, value, at) SELECT f.first_id + 1000000 + 2 * i + k.key, f.start_ts + i, i, 'train', k.value, iif(k.key, %s, i * %s + 0.5), 0
        FROM trace_file f, n, json_each('["loss", "lr"]') k WHERE f.rank = 0""" % (lr, lr)).rename(tmp_path / ("%s.db" % lr)) for lr in ("0.01", "0.1"))
    answer, parts = diff(build, run, a, b)
    assert answer.endswith("; lr 0.01 in the one, 0.1 in the other"), answer
    assert [(r["name"], r["a"], r["b"]) for r in parts["settings"] if r["kind"] == "variable"] == [("lr", "0.01", "0.1")]


def test_more_threads(build, run, simulated_job, tmp_path):
    """Each process has two more threads, whose names are the same but for their numbers; the first thread is on a CPU whenever the main
    thread is."""
    a, b = simulated_job("--seed", 1) / "out.db", tmp_path / "b.db"
    b.write_bytes(a.read_bytes())
    with sqlite3.connect(str(b)) as c:
        columns = ", ".join(name for _, name, *_ in c.execute("PRAGMA table_info(sample)"))
        c.execute("""INSERT INTO thread SELECT f.first_id + n.value, h.trace, h.tid + 500 + n.value, 'prefetch-' || n.value, 1, f.start_ts, f.end_ts,
            0, 0, 0, 'x' FROM trace_file f JOIN thread h ON h.trace = f.id AND h.tid = f.pid JOIN json_each('[700, 701]') n""")
        c.execute("INSERT INTO sample(%s) SELECT %s FROM sample s JOIN trace_file f ON s.id BETWEEN f.first_id AND f.last_id JOIN thread h ON h.id = f.first_id + s.thread AND h.tid = f.pid"
                  " WHERE s.flags & 1" % (columns, ", ".join({"id": "s.id + (1 << 32)", "thread": "700"}.get(name, "s." + name) for name in columns.split(", "))))
    c.close()
    answer, parts = diff(build, run, a, b)
    assert [(r["thread"], r["a"], r["b"], r["noise"]) for r in parts["threads"]] == [("prefetch-#", None, 2, 0)]
    (thread, row), = {r["thread"]: r for r in parts["CPU of threads"]}.items()
    assert thread == "prefetch-#" and row["b"] > 3 * row["noise"] > 0, row


def test_a_rank_that_makes_the_others_wait(build, run):
    """One rank of four works for 50 ms longer and the others wait for it: its work is named first. A slow network shows in all_reduce
    itself."""
    text = run([build.tool("probing"), "ask", "diff", "--sql"]).stdout
    text = text[text.index("CREATE TEMP TABLE pair"):text.index("-- the two")]
    before = {"all_reduce (distributed_c10d.py)": 0.010, "load (train.py)": 0.020}
    own = dict(before, **{"all_reduce (distributed_c10d.py)": 0.0475, "slow_part (train.py)": 0.0125})
    network = dict(before, **{"all_reduce (distributed_c10d.py)": 0.060, "load (train.py)": 0.0205})

    def headline(a, b):
        c = sqlite3.connect(":memory:")
        c.create_function("sqrt", 1, math.sqrt)
        c.executescript("CREATE TABLE item(side, section, name, value, noise); CREATE TABLE setting(side, kind, name, value)")
        for side, functions in (("a", a), ("b", b)):
            c.executemany("INSERT INTO item VALUES(?, ?, ?, ?, 0.00001)", [(side, "function", *f) for f in functions.items()]
                          + [(side, "step", "a step", sum(functions.values())), (side, "steps", "processes", 4), (side, "steps", "seconds", 9)])
        statements = text.split(";\n")
        for statement in statements[:3]:
            c.execute(statement)
        return c.execute(statements[3]).fetchone()[0]

    assert headline(before, own).endswith("; most of the difference comes from slow_part (train.py), +0.0125 s in the mean of all ranks, which wait for each other"
                                          " in all_reduce (distributed_c10d.py), +0.0375 s")
    assert "comes from slow_part (train.py), -0.0125 s" in headline(own, before)
    assert headline(before, network).endswith("; most of the difference is in all_reduce (distributed_c10d.py), +0.0500 s")


# The memory is allocated before the recording begins and freed after it ends: on a busy machine either may take longer than everything
# else.
PROGRAM = """
import sys, time
seconds, megabytes, period, trace, package = sys.argv[1:]
sys.path.insert(0, package)
import probing
kept = bytearray(int(megabytes) << 20)
for i in range(0, len(kept), 4096):
    kept[i] = 1
probing.enable(trace, sample_rate=period)
def same(seconds):
    time.sleep(max(0, seconds))
def changed(seconds):
    time.sleep(max(0, seconds))
spent = {same: 0, changed: 0}
for i in range(1, 61):  # what a sleep takes longer on a busy machine the next ones take less
    for f, each in (same, 0.02), (changed, float(seconds)):
        began = time.perf_counter()
        f(i * each - spent[f])
        spent[f] += time.perf_counter() - began
probing.disable()
"""


def test_memory_that_differs_by_a_trifle(build, run):
    """The same program twice differs by one percent; a single process shows no spread to compare with."""
    text = run([build.tool("probing"), "ask", "diff", "--sql"]).stdout
    text = text[text.index("CREATE TEMP TABLE pair"):text.index("CREATE TEMP TABLE changed")]

    def shown(b):
        c = sqlite3.connect(":memory:")
        c.create_function("sqrt", 1, math.sqrt)
        c.executescript("CREATE TABLE item(side, section, name, value, noise)")
        c.executemany("INSERT INTO item VALUES(?, 'memory', 'resident, most, MB', ?, 0)", [("a", 12.7), ("b", b)])
        c.executescript(text)
        return [round(m, 1) for m, in c.execute("SELECT more FROM differs")]
    assert shown(12.8) == [] and shown(13.2) == [0.5]


def test_of_a_real_program(build, run, tmp_path, monkeypatch):
    (tmp_path / "p.py").write_text(PROGRAM)
    monkeypatch.setenv("PROBING_METRICS", "0.2")
    for name, args in (("a", ["0.005", "1", "10ms"]), ("b", ["0.03", "200", "9.9ms"])):
        monkeypatch.setenv("OMP_NUM_THREADS", {"a": "1", "b": "2"}[name])
        run([sys.executable, tmp_path / "p.py"] + args + [tmp_path / (name + ".zst"), build.share / "python"])
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
