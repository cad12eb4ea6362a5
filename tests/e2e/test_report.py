# SPDX-License-Identifier: Apache-2.0
"""`probing report`: what the page says, compared with SQL; recordings that have little to show, and jobs that hang. (test_report_page.py tests
how the page is used.)"""
import base64
import json
import math
import re
import shutil
import sqlite3
import subprocess
import sys
import zlib

import pytest

import report_scene
from chromium import browser, in_page
from conftest import run_command
from report_scene import USE, content, part, unpacked
from test_console import wait_until

job, report = report_scene.job, report_scene.report


def test_numbers_are_those_of_sql(report, job, sql):
    data = content(report(job))
    assert data["ranks"] == 8 and data["hosts"] == 2 and data["traces"] == sql(job, "SELECT count(*) FROM trace")[0][0]
    wrong = [(q["name"], p["title"], p["wrong"]) for k in ("questions", "sections") for q in data[k] for p in q["parts"] if "wrong" in p]
    assert not wrong

    band = part(data, "steps", "Time of a step")
    steps = sql(job, "SELECT duration, rank, step FROM steps WHERE complete AND source <> 'evaluation' ORDER BY duration DESC")
    assert band["count"] == len(steps) > 100
    # However the points are thinned out, the extremes are kept.
    assert max(band["row"]["max"]) == pytest.approx(steps[0][0], rel=1e-4)
    assert min(band["row"]["min"]) == pytest.approx(steps[-1][0], rel=1e-4)
    largest = max(band["largest"], key=lambda p: p[1])
    assert (int(largest[2]), largest[3]) == steps[0][1:] and largest[1] == pytest.approx(steps[0][0], rel=1e-4)

    grid = part(data, "ranks", "Step time")
    assert sorted(map(int, grid["keys"])) == list(range(8))
    assert grid["hi"] == pytest.approx(steps[0][0], rel=1e-4) and grid["lo"] == pytest.approx(steps[-1][0], rel=1e-4)

    # Each step has its place and length, to within a unit of the scale.
    codes = unpacked(grid["max"], len(grid["keys"]), grid["columns"])
    less = unpacked(grid["less"], len(grid["keys"]), grid["columns"])
    assert grid["columns"] >= 4096 and max(map(max, codes)) == grid["steps"] + 1 and min(c - d for row, low in zip(codes, less) for c, d in zip(row, low) if c) == 1
    each = (data["t1"] - data["t0"]) / grid["columns"]
    code = lambda v: 1 + round(grid["steps"] * math.log(v / grid["lo"]) / math.log(grid["hi"] / grid["lo"]))
    for rank, begun, duration in sql(job, "SELECT rank, timestamp, duration FROM steps WHERE complete AND source <> 'evaluation'"):
        row = grid["keys"].index(str(rank))
        at = min(grid["columns"] - 1, int((begun + duration / 2 - data["t0"]) / each))
        assert codes[row][at] - less[row][at] - 1 <= code(duration) <= codes[row][at] + 1, (rank, begun)

    # The page makes of counters what the views make of them.
    for title, column in (("Processor (100 % is one)", "cpu_percent FROM cpu_utilization"), ("Network, sent", "tx_rate FROM network_statistics WHERE interface <> 'lo'"),
                          ("Network, received", "rx_rate FROM network_statistics WHERE interface <> 'lo'")):
        rates, truth = part(data, "machine", title), [v for v, in sql(job, "SELECT " + column) if v is not None]
        assert len(rates["rows"]) == 8 and len(truth) > 100
        assert max(max(r["max"]) for r in rates["rows"]) == pytest.approx(max(truth), rel=1e-4), title
        assert min(min(r.get("min", r["max"])) for r in rates["rows"]) == pytest.approx(min(truth), rel=1e-4), title

    # Times since the epoch are as exact as SQL's: what the waterfall draws lies within its step.
    waterfall = part(data, "comm", "Waterfall")
    rows = [dict(zip(waterfall["names"], r)) for r in waterfall["rows"]]
    enters = {ts / 1e9 for ts, in sql(job, "SELECT ts FROM comm")}
    assert len(rows) > 20 and all(r["began"] - 0.002 <= r["enter"] <= r["ended"] and r["ended"] - r["began"] > 0.01 for r in rows)
    assert all(min(abs(r["enter"] - t) for t in enters) < 1e-6 for r in rows[:20]) and len({r["enter"] for r in rows}) > 20

    straggler = [q for q in data["questions"] if q["name"] == "straggler"][0]
    assert straggler["parts"][0]["rows"][0][0].startswith("rank 5")


def test_each_result_can_be_asked_again(report, job, build, run):
    """The SQL that is shown beside a picture can be run as it is."""
    data = content(report(job))
    asked = 0
    for section in data["sections"]:
        for p in section["parts"]:
            out = run([build.tool("probing"), "query", "--format", "json", "--", job, re.sub(r"(?s)^(CREATE TEMP TABLE|INSERT INTO).*?;\n(?=SELECT)", "", p["sql"])]
                      if not p["sql"].lstrip().startswith("CREATE") else ["true"])
            asked += 1
            if p["kind"] == "table" and p["names"] and out.stdout:
                assert len(json.loads(out.stdout)) == p["count"]
    assert asked > 15


def test_weights_of_the_flame_graph(report, job, sql):
    flame = content(report(job))["flame"]
    busy, idle = sum(flame["all"][1::3]), sum(flame["all"][2::3])
    assert busy + idle == sql(job, "SELECT sum(count) FROM samples")[0][0]
    assert sum(sum(w[1::3]) + sum(w[2::3]) for w in flame["slice"]) == busy + idle
    for rank, weights in zip(flame["ranks"], flame["rank"]):
        assert sum(weights[1::3]) + sum(weights[2::3]) == sql(job, "SELECT sum(count) FROM samples WHERE rank = ?", rank)[0][0]
    labels = {name for name, _, _, _ in flame["labels"]}
    assert sql(job, "SELECT func FROM hot_functions ORDER BY total DESC LIMIT 1")[0][0] in labels


def test_what_a_trace_says_without_anything(build, report, run, tmp_path, job):
    """Without steps, communication or modules, each section says what it would need. Without any trace, the page says that."""
    empty = tmp_path / "empty.db"
    shutil.copy(str(job), str(empty))
    c = sqlite3.connect(str(empty))
    for table in ("torch_step", "torch_call", "comm", "collective", "straggler", "torch_module_total", "sample", "memory_sample", "variable"):
        c.execute("DELETE FROM " + table)
    c.commit()
    data = content(report(empty))
    nothing = {s["name"] for s in data["sections"] if s.get("nothing")}
    assert {"steps", "ranks", "comm", "modules", "memory", "variables"} <= nothing and data["flame"] is None
    for table in ("trace_file",):
        c.execute("DELETE FROM " + table)
    c.commit()
    c.close()
    data = content(report(empty))
    assert data["traces"] == 0 and "wrong" not in data
    other = tmp_path / "other.db"
    run(["sqlite3", other, "CREATE TABLE trace_file(x)"])  # as of another version
    assert "no such" in content(report(other))["wrong"]


def test_a_process_that_runs(build, report, run, spawn, tmp_path, monkeypatch):
    """The page of a process that is still being recorded shows what it does now, and the process goes on."""
    monkeypatch.setenv("PROBING_CACHE_DIR", str(tmp_path / "cache"))
    program = tmp_path / "program.py"
    program.write_text("def turns_here(n):\n    return sum(i * i for i in range(n))\nprint('up', flush=True)\nwhile True: turns_here(20000)\n")
    recorder = spawn([build.tool("probing-record"), "-q", "-r", "200", "-o", tmp_path / "t.zst", sys.executable, "-u", program], ready="up")
    pid = subprocess.check_output(["pgrep", "-P", str(recorder.pid)]).split()[0].decode()

    def seen():
        data = content(report(pid))
        return data["flame"] and "turns_here" in {label[0] for label in data["flame"]["labels"]} and data
    wait_until(seen)
    data = seen()
    assert data["traces"] == 1 and str(program) in data["title"] and recorder.poll() is None
    busy = sum(data["flame"]["all"][1::3])
    wait_until(lambda: sum(content(report(pid))["flame"]["all"][1::3]) > busy)  # a later page has more of it
    # For a recording that goes on, SQLite takes 110 MB and seconds to plan the view hangs: if nothing waits, it is not queried.
    most = [sys.executable, "-S", "-c", "import resource, subprocess, sys\nsubprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)", build.tool("probing")]
    for asked in (["report", pid], ["ask", "hang", pid], ["ask", "died", pid]):
        assert int(run(most + asked).stdout) < 60000
    recorder.terminate()
    recorder.wait(240)
    page = tmp_path / "none.html"
    done = subprocess.run([build.tool("probing"), "report", "-o", page, pid], stderr=subprocess.PIPE)
    assert done.returncode == 3 and done.stderr.count(b"\n") == 1 and not page.exists()


def test_errors(build, run, job, tmp_path):
    tool = [build.tool("probing"), "report"]
    assert "is needed" in run(tool, check=2).stderr
    assert "cannot open" in run(tool + ["-o", tmp_path / "x.html", "/nowhere.db"], check=3).stderr
    assert "cannot write /dev/null/x.html" in run(tool + ["-o", "/dev/null/x.html", job], check=3).stderr
    out = tmp_path / "out.html"
    for _ in range(2):  # the second time it replaces its own file
        run(tool + ["-o", out, job])
    out.write_text("<html>mine</html>")
    assert "not replaced" in run(tool + ["-o", out, job], check=3).stderr
    assert out.read_text() == "<html>mine</html>"
    assert "one of the inputs" in run(tool + ["-o", job, job], check=3).stderr
    with sqlite3.connect(str(tmp_path / "other.db")) as db:
        db.execute("CREATE TABLE t(a)")
    assert "not one of probing-convert" in run(tool + ["-o", tmp_path / "x.html", tmp_path / "other.db"], check=3).stderr
    assert not list(tmp_path.glob("*.tmp-*")) and not (tmp_path / "x.html").exists()


def test_a_damaged_database(build, run, job, sql, tmp_path):
    """The page has the sections that can be read, and the command says that others could not."""
    damaged, out = tmp_path / "damaged.db", tmp_path / "out.html"
    shutil.copy(str(job), str(damaged))
    size = sql(job, "PRAGMA page_size")[0][0]
    with open(str(damaged), "r+b") as f:
        for number, in sql(job, "SELECT pageno FROM dbstat WHERE name = 'sample'"):
            f.seek((number - 1) * size)
            f.write(b"\x5a" * size)
    done = run([build.tool("probing"), "report", "-o", out, damaged], check=1)
    assert done.stderr.count("\n") == 1 and "damaged.db is damaged" in done.stderr
    data = content(out)
    assert "malformed" in json.dumps(data) and data["traces"] and any(p.get("rows") for s in data["sections"] for p in s["parts"])


def test_a_section_that_takes_too_long_is_given_up(report, job):
    data = content(report(job, options=["--timeout", "0.001"]))
    assert "took too long" in json.dumps(data), "and the page is whole all the same"


@browser
def test_more_ranks_than_a_picture_has_lines(report, build, run, sql, tmp_path):
    """If there are more lines than can be told apart, the highest and the lowest are drawn, and the page says so; many rows are packed and
    drawn."""
    out, db = tmp_path / "many", str(tmp_path / "many.db")
    run([str(build.root / "tests" / "fleet" / "probing-fleet"), "--quiet", "--out", str(out), "--ranks", 64, "--nodes", 8, "--minutes", 0.05,
         "--tp", 2, "--pp", 4, "--hz", 1, "--layers", 1, "--no-truth-events"])
    run([build.tool("probing-convert"), "-q"] + sorted(str(p) for p in out.iterdir() if p.is_dir()) + [db])
    page = report(db)
    data = content(page)
    lines = part(data, "memory", "Resident")
    reach = {str(r): (most, least) for r, most, least in sql(db, "SELECT t.rank, max(memory_mb), min(memory_mb) FROM memory_usage m JOIN trace t ON t.id = m.trace_id GROUP BY 1")}
    assert lines["of"] == len(reach) == 64 and len(lines["keys"]) == len(lines["rows"]) == 40
    high = sorted(reach, key=lambda r: -reach[r][0])[:15]
    low = sorted(reach, key=lambda r: reach[r][1])[:15]
    got = {k: (max(r["max"]), min(r.get("min", r["max"]))) for k, r in zip(lines["keys"], lines["rows"])}
    assert sorted(v[0] for v in got.values())[-15:] == pytest.approx(sorted(reach[r][0] for r in high), rel=1e-3)
    assert sorted(v[1] for v in got.values())[:15] == pytest.approx(sorted(reach[r][1] for r in low), rel=1e-3)
    waterfall = part(data, "comm", "Waterfall")
    rows = json.loads(zlib.decompress(base64.b64decode(waterfall["packed"])))
    assert len(rows) == waterfall["count"] > 400 and len({r[waterfall["names"].index("rank")] for r in rows}) == 64
    seen, said = in_page(tmp_path, page, USE + """
    const c = canvas("collectives of a step");
    await seen(c);
    return {hits: charts.find((k) => k.canvas === c).hits.length, notes: Array.from(document.querySelectorAll("#memory .note"), (n) => n.textContent)};""")
    assert not said and seen["hits"] >= 64
    assert any("of 64: the 20 that reach highest, and the 20 that reach lowest" in n for n in seen["notes"]), seen["notes"]


@browser
def test_a_job_of_one_machine(report, build, run, tmp_path):
    """A launcher is not a rank; one machine's clock needs no alignment; each variable has a picture; sentences have room on a phone; a
    statement that there is nothing is no headline; a wrapper's time is not counted twice."""
    out, db = tmp_path / "one", tmp_path / "one.db"
    run([str(build.root / "tests" / "fleet" / "probing-fleet"), "--quiet", "--out", str(out), "--ranks", 4, "--nodes", 1, "--minutes", 0.1,
         "--hz", 2, "--layers", 1, "--no-truth-events"])
    run([build.tool("probing-convert"), "-q", str(out / "node000"), str(db)])
    changed = sqlite3.connect(str(db))
    changed.execute("UPDATE trace_file SET rank = NULL, role = 'launcher', clock = 'anchors' WHERE id = (SELECT max(id) FROM trace_file)")
    changed.execute("UPDATE trace_file SET clock = 'anchors'")
    changed.commit()
    changed.close()
    page = report(str(db))
    data = content(page)
    [ranks] = [s for s in data["sections"] if s["name"] == "ranks"]
    assert ranks["parts"][0]["rows"][0][0].startswith("3 ranks; ")
    copy = tmp_path / "changed.html"
    text = page.read_text()
    values = {"kind": "lines", "title": "Values", "sql": "", "names": ["name", "timestamp", "number"], "of": 4, "columns": 2048,
              "keys": ["lr (rank 0)", "loss (rank 0)", "lr (rank 1)", "loss (rank 1)"], "rows": [{"c": [5, 900], "max": [v, v]} for v in (1e-3, 2.4, 1e-3, 2.5)]}
    modules = {"kind": "rows", "title": "Time of modules", "sql": "", "names": ["module", "type", "forward_s", "backward_s", "self_s", "calls", "gpu_s", "gpu_calls"], "count": 3,
               "rows": [["DDP", "DDP", 10, 30, 1, 9, None, None], ["Net", "Net", 9, 30, 2, 9, None, None], ["Net.a", "Linear", 8, 29, 37, 9, None, None]]}
    table = {"kind": "table", "title": "Events", "sql": "", "names": ["kind", "detail"] + ["c%d_ms" % i for i in range(12)], "count": 1,
             "rows": [["slow_step", "took 444.661 ms, median 128.762 ms, and more"] + [1] * 12]}
    for s in data["sections"]:
        if s["name"] in ("variables", "modules", "triggers"):
            s.pop("nothing", None)
            s["parts"] = [s["parts"][0] if s["parts"] else {"kind": "table", "title": "", "sql": "", "names": ["answer"], "rows": [["one"]], "count": 1},
                          {"variables": values, "modules": modules, "triggers": table}[s["name"]]]
    for q in data["questions"]:
        if q["name"] in ("straggler", "loader"):
            q.pop("nothing", None)
            q["parts"] = [{"kind": "table", "title": "", "sql": "", "names": ["answer"], "count": 1,
                           "rows": [["nobody in particular: rank 2"] if q["name"] == "straggler" else ["yes: rank 2 waits for data"]]}]
    copy.write_text(text.replace(re.search(r'id="data">(.*?)</script>', text, re.S).group(1), json.dumps(data).replace("<", "\\u003c")))
    seen, said = in_page(tmp_path, copy, USE + """
    const modules = canvas("modules"), waterfall = canvas("collectives of a step");
    await seen(modules);
    return {first: document.querySelector("#verdict .card").id, clocks: document.querySelector("#comm .bar").textContent,
      pictures: Array.from(document.querySelectorAll("#variables canvas"), (c) => c.getAttribute("aria-label")),
      hits: charts.find((k) => k.canvas === modules).hits.map((q) => [q[4].r.module, q[1] - q[0]]), room: modules.clientWidth,
      detail: document.querySelector("#triggers td.text").getBoundingClientRect().width};""", size=(500, 900))
    assert not said, said
    assert seen["first"] == "q-loader" and "one machine" in seen["clocks"] and "not calibrated" not in seen["clocks"]
    assert seen["pictures"] == ["lr", "loss"]
    widths = dict(seen["hits"])
    assert widths["Net"] > 0.9 * seen["room"] and 0 < widths["DDP"] < 0.05 * seen["room"], widths
    assert seen["detail"] >= 250


@browser
def test_a_hang_comes_first(build, report, sql, tmp_path):
    """The rank that is waited for, where it is and since when, stand at the top of the page, and its section comes first."""
    run_command([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", tmp_path / "job", "--ranks", "8", "--minutes", "0.2", "--hang", "3:4"])
    db = tmp_path / "hang.db"
    run_command([build.tool("probing-convert"), "-q", tmp_path / "job", db])
    [(rank, op, does, since)] = sql(db, "SELECT rank, op, does, strftime('%H:%M:%S', since, 'unixepoch') FROM hangs WHERE cause")
    assert rank == 3
    page = report(db)
    out, said = in_page(tmp_path, page, """
    const sections = Array.from(document.querySelectorAll("section")), card = document.querySelector(".card");
    return {sections: sections.map((s) => s.id), card: card.id, bad: card.classList.contains("bad"), text: card.querySelector("p").textContent, top: card.getBoundingClientRect().top,
        shown: innerHeight, triggers: sections[1].textContent, tree: document.querySelector(".tree").textContent, title: card.querySelector("b").textContent,
        hung, span, view: [view.a, view.b], words: document.querySelector("#triggers td.words").getClientRects().length};""")
    assert not said, said
    # The pictures show the work and where it ended; the rest of the time is waiting.
    assert out["title"] == "Why does it hang?" and out["view"][0] == 0 and 3 < out["hung"] < out["view"][1] < out["span"] * 0.7, out
    assert out["sections"][:2] == ["verdict", "triggers"] and out["card"] == "q-hang" and out["bad"] and out["top"] < out["shown"]
    assert "rank 3 never came" in out["text"] and op in out["text"] and "rank 3 is in " + does in out["text"] and re.search(r"wait since [\d.]+ s before the end \(%s\.\d{3}\)" % since, out["text"])
    assert "1 rank is waited for" in out["triggers"] and since in out["triggers"]
    # The stacks of the waiting ranks are one tree, with a line for each frame.
    lines = [line.split(None, 1) for line in out["tree"].splitlines()]
    assert ["7", "main (train.py:86)"] in lines and any(n == "1" and name.endswith("[3]") for n, name in lines), out["tree"]
    assert "\ufffd" not in page.read_text()


@browser
def test_who_waits_for_the_dead_does_not_hang_by_itself(build, report, tmp_path):
    run_command([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", tmp_path / "job", "--ranks", "4", "--minutes", "0.1", "--kill", "2:3"])
    out, said = in_page(tmp_path, report(tmp_path / "job"), "return [...document.querySelectorAll('.card.bad b')].map((e) => e.textContent);")
    assert not said and "Who died, and who waited for it?" in out and "Why does it hang?" not in out, (out, said)


@browser
def test_clocks_that_were_not_aligned(build, report, run, job, tmp_path):
    """The page says so at the top and beside the pictures that show such times; it says nothing about clocks that were aligned."""
    other = tmp_path / "other"
    run_command([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", other, "--ranks", "2", "--nodes", "2", "--minutes", "0.1", "--seed", "7"])
    db = tmp_path / "two.db"
    run([build.tool("probing-convert"), "-q", "--alone", job.parent / "job" / "node000", other / "node001", db])
    script = """const words = (id) => [...document.querySelectorAll(id + " .wrong")].map((e) => e.textContent).join();
      return [words("header"), words("#ranks"), words("#comm")];"""
    out, said = in_page(tmp_path, report(db), script)
    assert not said and all("not aligned" in w for w in out), out
    out, said = in_page(tmp_path, report(job), script)
    assert not said and out == ["", "", ""]


def test_one_rank_is_no_ranks(build, report, tmp_path):
    run_command([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", tmp_path / "job", "--ranks", "1", "--nodes", "1", "--minutes", "0.1"])
    data = content(report(tmp_path / "job"))
    steps, ranks = [part(data, name, "")["rows"][0][0] for name in ("steps", "ranks")]
    assert " steps of 1 rank; " in steps and ranks.startswith("1 rank; ")
    assert part(data, "traces", "")["rows"] == [["nothing was lost: 1 trace is complete"]]
    modules = part(data, "modules", "Time of modules")
    assert modules["rows"] and all(r[modules["names"].index("gpu_calls")] is None for r in modules["rows"]), "without a GPU a column of zeros tells nothing"


def test_more_groups_of_threads_than_16_bits_count(report, sql, job, tmp_path):
    """Each thread has a name of its own, as those of a server that names them by request may have."""
    db = tmp_path / "many.db"
    shutil.copy(str(job), str(db))
    with sqlite3.connect(str(db)) as c:
        (first, ts), = c.execute("SELECT t.first_id, min(s.ts) FROM trace_file t JOIN sample s ON s.id BETWEEN t.first_id AND t.last_id WHERE t.id = 1")
        free = max(n for query in ("thread", "sample") for n, in c.execute("SELECT max(id) FROM %s WHERE id < ?" % query, (first + (1 << 40),))) - first + 1
        ids = range(free, free + 70000)
        c.executemany("INSERT INTO thread VALUES (?, 1, ?, ?, 0, NULL, NULL, 1, 1, 0, '')", ((first + i, 10**6 + i, "request %d of many" % i) for i in ids))
        c.executemany("INSERT INTO sample VALUES (?, ?, ?, NULL, 0, 1, 1)", ((first + i, ts, i) for i in ids))
    c.close()
    weights = content(report(db))["flame"]["all"]
    assert sum(weights[1::3]) + sum(weights[2::3]) == sql(db, "SELECT sum(count) FROM sample")[0][0] > 70000
