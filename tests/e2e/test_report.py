# SPDX-License-Identifier: Apache-2.0
"""`probing report`: the page against SQL, and in a browser; hostile names; recordings of which there is little to show."""
import base64
import json
import math
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import zlib

import pytest

from chromium import browser, in_page, screenshot
from conftest import PYTHONS, REPO, run_command
from test_console import wait_until
from test_flamegraph import NASTY_FILE, NASTY_NAME, SCRIPT


def content(page):
    """What the page is drawn from."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S).group(1))


def part(data, section, title):
    [s] = [s for s in data["sections"] if s["name"] == section]
    [p] = [p for p in s["parts"] if p["title"] == title]
    return p


@pytest.fixture(scope="module")
def job(build, tmp_path_factory):
    """A database of eight ranks of which one is slow."""
    where = tmp_path_factory.mktemp("report")
    run_command([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", where / "job", "--ranks", "8", "--nodes", "2",
                 "--minutes", "0.5", "--straggler", "5:20", "--offset", "1"])
    run_command([build.tool("probing-convert"), "-q"] + sorted(str(p) for p in (where / "job").glob("node*")) + [where / "out.db"])
    yield where / "out.db"
    shutil.rmtree(str(where), ignore_errors=True)


@pytest.fixture(scope="module")
def nasty(build, tmp_path_factory):
    """A database of a process with names that a page must not believe."""
    where = tmp_path_factory.mktemp("nasty")
    script = where / "work.py"
    script.write_text(SCRIPT)
    (where / "run").mkdir(mode=0o700)
    python = next(p for p in PYTHONS if p.version >= (3, 8)).path
    run_command([build.tool("probing-record"), "-q", "-r", "200", "-o", where / "t.zst", python, script, "--name=</script><img src=x onerror=alert(1)>"],
                env=dict(os.environ, PROBING_RUN_DIR=str(where / "run")))
    run_command([build.tool("probing-convert"), "-q", where / "t.zst", where / "out.db"])
    yield where / "out.db"
    shutil.rmtree(str(where), ignore_errors=True)


@pytest.fixture
def report(build, run, tmp_path):
    def do(*inputs, options=(), check=True):
        page = tmp_path / "report.html"
        run([build.tool("probing"), "report", "-o", page] + list(options) + list(inputs), check=check)
        return page
    return do


def unpacked(matrix, rows, columns):
    """What the heat map draws: a list of codes for each row, from [differences, base64] of report_grid.c."""
    by, flat = matrix[0], bytearray(zlib.decompress(base64.b64decode(matrix[1])))
    assert len(flat) == rows * columns
    for at in range(len(flat)):
        before = (flat[at - 1] if at % columns else 0) if by == 1 else (flat[at - columns] if at >= columns else 0) if by == 2 else 0
        flat[at] = (flat[at] + before) & 255
    return [flat[r * columns:(r + 1) * columns] for r in range(rows)]


# ---- what it says ------------------------------------------------------------------------------------


def test_numbers_are_those_of_sql(report, job, sql):
    data = content(report(job))
    assert data["ranks"] == 8 and data["hosts"] == 2 and data["traces"] == sql(job, "SELECT count(*) FROM trace")[0][0]
    wrong = [(q["name"], p["title"], p["wrong"]) for k in ("questions", "sections") for q in data[k] for p in q["parts"] if "wrong" in p]
    assert not wrong

    band = part(data, "steps", "Time of a step")
    steps = sql(job, "SELECT duration, rank, step FROM steps WHERE complete AND source <> 'evaluation' ORDER BY duration DESC")
    assert band["count"] == len(steps) > 100
    # However it is thinned, the extremes are there.
    assert max(band["row"]["max"]) == pytest.approx(steps[0][0], rel=1e-4)
    assert min(band["row"]["min"]) == pytest.approx(steps[-1][0], rel=1e-4)
    largest = max(band["largest"], key=lambda p: p[1])
    assert (int(largest[2]), largest[3]) == steps[0][1:] and largest[1] == pytest.approx(steps[0][0], rel=1e-4)

    grid = part(data, "ranks", "Step time")
    assert sorted(map(int, grid["keys"])) == list(range(8))
    assert grid["hi"] == pytest.approx(steps[0][0], rel=1e-4) and grid["lo"] == pytest.approx(steps[-1][0], rel=1e-4)

    # Each step is where it was, as long as it was, to the step of the scale.
    codes = unpacked(grid["max"], len(grid["keys"]), grid["columns"])
    less = unpacked(grid["less"], len(grid["keys"]), grid["columns"])
    assert grid["columns"] >= 4096 and max(map(max, codes)) == grid["steps"] + 1 and min(c - d for row, low in zip(codes, less) for c, d in zip(row, low) if c) == 1
    each = (data["t1"] - data["t0"]) / grid["columns"]
    code = lambda v: 1 + round(grid["steps"] * math.log(v / grid["lo"]) / math.log(grid["hi"] / grid["lo"]))
    for rank, begun, duration in sql(job, "SELECT rank, timestamp, duration FROM steps WHERE complete AND source <> 'evaluation'"):
        row = grid["keys"].index(str(rank))
        at = min(grid["columns"] - 1, int((begun + duration / 2 - data["t0"]) / each))
        assert codes[row][at] - less[row][at] - 1 <= code(duration) <= codes[row][at] + 1, (rank, begun)

    # What the page makes of counters is what the views do.
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
    """The SQL that stands beside a picture runs as it is."""
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
    """No steps, no communication, no modules: each section says what it would take. No trace at all: the page says that."""
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
    run(["sqlite3", other, "CREATE TABLE x(y)"])
    assert "no such table" in content(report(other))["wrong"]


def test_a_process_that_runs(build, report, spawn, tmp_path):
    """The page of a process that is being recorded: what it does now, and it goes on."""
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
    wait_until(lambda: sum(content(report(pid))["flame"]["all"][1::3]) > busy)  # more of it, later
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
    for _ in range(2):  # its own, again
        run(tool + ["-o", out, job])
    out.write_text("<html>mine</html>")
    assert "not replaced" in run(tool + ["-o", out, job], check=3).stderr
    assert out.read_text() == "<html>mine</html>"
    assert "one of the inputs" in run(tool + ["-o", job, job], check=3).stderr
    assert not list(tmp_path.glob("*.tmp-*"))


def test_a_section_that_takes_too_long_is_given_up(report, job):
    data = content(report(job, options=["--timeout", "0.001"]))
    assert "took too long" in json.dumps(data), "and the page is whole all the same"


# ---- in a browser ------------------------------------------------------------------------------------

USE = """
const wait = (ms) => new Promise((r) => setTimeout(r, ms));
const key = (el, k) => el.dispatchEvent(new KeyboardEvent("keydown", {key: k, bubbles: true, cancelable: true}));
const pixels = (c) => { const t = c.toDataURL(); let v = 0; for (let i = 0; i < t.length; i++) v = (v * 31 + t.charCodeAt(i)) >>> 0; return v; };
const canvas = (label) => document.querySelector('canvas[aria-label="' + label + '"]');
// Frames come as they like when nobody looks: what would be drawn in the next one is drawn now.
const seen = async (c) => { c.scrollIntoView(); await wait(50); charts.find((k) => k.canvas === c).now(); return pixels(c); };
"""


@browser
def test_it_opens_and_zooms(report, job, tmp_path):
    out, said = in_page(tmp_path, report(job), USE + """
    const steps = canvas("Time of a step"), map = canvas("ranks over time"), out = {ready: document.documentElement.dataset.ready};
    out.sections = Array.from(document.querySelectorAll("section"), (s) => s.id);
    out.whole = await seen(steps);
    out.map = await seen(map);
    steps.focus();
    key(steps, "+");
    await wait(300);
    out.zoomed = await seen(steps);
    out.map_zoomed = await seen(map);
    out.view = [view.a, view.b, span];
    out.address = location.hash;
    steps.dispatchEvent(new MouseEvent("dblclick", {bubbles: true}));
    await wait(300);
    out.back = await seen(steps);
    out.drawn = [];
    for (const c of document.querySelectorAll("canvas")) { await seen(c); const empty = document.createElement("canvas"); empty.width = c.width; empty.height = c.height; out.drawn.push([c.getAttribute("aria-label"), pixels(c) !== pixels(empty)]); }
    const sql = document.querySelector("#steps .part button.sql");
    out.hidden = sql.closest(".part").querySelector("pre").hidden;
    sql.click();
    out.sql = sql.closest(".part").querySelector("pre").hidden ? "" : sql.closest(".part").querySelector("pre").textContent;
    return out;""")
    assert not said, said
    assert out["ready"] == "yes"
    assert out["sections"][0] == "verdict" and {"steps", "parts", "ranks", "comm", "modules", "flame", "memory", "machine", "variables",
                                                "triggers", "traces"} <= set(out["sections"])
    assert out["whole"] != out["zoomed"] and out["map"] != out["map_zoomed"], "one zoom for all"
    assert out["view"][1] - out["view"][0] == pytest.approx(0.6 * out["view"][2]) and out["address"].startswith("#t=")
    assert out["back"] == out["whole"]
    assert out["drawn"] and all(d for _, d in out["drawn"]), out["drawn"]
    assert out["hidden"] and "FROM steps" in out["sql"]


@browser
def test_zooming_stretches_what_is_drawn(report, job, tmp_path):
    """The heat map is drawn anew for each scale at most, not for each frame: with a thousand ranks that is what frames wait for. And a
    cell with the most is seen at every scale."""
    out, said = in_page(tmp_path, report(job), USE + """
    const map = canvas("ranks over time"), chart = charts.find((k) => k.canvas === map), proto = CanvasRenderingContext2D.prototype, put = proto.putImageData;
    const out = {anew: 0, others: 0, bright: []};
    await seen(map);
    proto.putImageData = function (...a) { out.anew++; return put.apply(this, a); };
    const waterfall = charts.find((k) => k.canvas.getAttribute("aria-label") === "collectives of a step");
    charts.forEach((c) => { c.seen = true; });
    const copy = Object.assign(document.createElement("canvas"), {width: map.width, height: map.height}), eye = copy.getContext("2d", {willReadFrequently: true});
    const p = data.sections.find((s) => s.name === "ranks").parts.find((q) => q.title === "Step time"), most = p.levels[0];
    const at = ((most.indexOf(p.steps + 1) % p.columns) + 0.5) * span / p.columns, [r, g, b] = rampCss(255).match(/[0-9]+/g).map(Number);
    for (let i = 0; i < 40; i++) {
      waterfall.waits = false;
      view.by(i < 20 ? 0.75 : 1 / 0.75, at);
      out.others += waterfall.waits;
      await wait(20);
      chart.now();
      eye.drawImage(map, 0, 0);
      const n = eye.getImageData(0, 0, map.width, map.height).data;
      let bright = 0;
      for (let k = 0; k < n.length; k += 4) if (n[k] === r && n[k + 1] === g && n[k + 2] === b) bright++;
      out.bright.push(bright);
      if (i === 19) { out.first = out.anew; out.anew = 0; }
    }
    out.view = [view.a, view.b, span];
    return out;""")
    assert not said, said
    assert out["view"][1] - out["view"][0] == pytest.approx(out["view"][2], rel=1e-6)
    assert 0 < out["first"] <= 20 * 7 and out["anew"] == 0, "a power of two of the scales is one picture, in tiles; on the way back all are there"
    assert out["others"] == 0, "what shows no part of the time waits"
    assert min(out["bright"]) > 0, out["bright"]


@browser
def test_more_ranks_than_a_picture_has_lines(report, build, run, sql, tmp_path):
    """Of more lines than can be told apart the highest and the lowest are there, and it is said; many rows are packed, and drawn."""
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
    """A launcher is no rank; one machine's clock needs no alignment; each variable has a picture; a sentence has room for its words on a
    phone; what says that there is nothing is no headline; a wrapper's time is not counted twice."""
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
def test_escape_goes_back_to_the_whole_time(report, job, tmp_path):
    out, said = in_page(tmp_path, report(job), USE + """
    const steps = canvas("Time of a step"), out = [];
    await seen(steps);
    steps.focus();
    for (const k of ["+", "Escape"]) { key(steps, k); out.push(view.whole); }
    return out;""")
    assert not said and out == [False, True]


@browser
def test_the_keyboard_is_told_what_the_mouse_is(report, job, tmp_path):
    """Shift and arrows: what is there, in every picture; and times on the axis are round on a clock."""
    out, said = in_page(tmp_path, report(job), USE + """
    const out = {ticks: ticks(0, 3600, 7, true), times: [3599.7, 119.6, 4000, 200000, 60].map(seconds), told: {}};
    for (const c of document.querySelectorAll("main canvas")) {
      await seen(c);
      c.focus();
      for (const k of ["ArrowRight", "ArrowDown"]) c.dispatchEvent(new KeyboardEvent("keydown", {key: k, shiftKey: true, bubbles: true, cancelable: true}));
      out.told[c.getAttribute("aria-label")] = tip.style.display + tip.textContent;
      c.blur();
    }
    out.after = tip.style.display;
    out.whole = view.whole;
    return out;""")
    assert not said, said
    assert out["told"] and all(t.startswith("block") and re.search(r"[0-9]", t) for t in out["told"].values()), out["told"]
    assert re.search(r"rank \d+, .*\nStep time: ", out["told"]["ranks over time"]) and re.search(r"rank \d: \w+ \d+", out["told"]["collectives of a step"])
    assert out["after"] == "none" and out["whole"], "left alone it says nothing, and the time that is shown is the same"
    assert out["ticks"] == [0, 600, 1200, 1800, 2400, 3000, 3600]
    assert out["times"] == ["60 min", "120 s", "66 min 40 s", "2 d 8 h", "60 s"]


def test_colours_of_parts_are_told_apart_by_the_colour_blind():
    """Distances in OKLab of the first five, as people with protanopia, deuteranopia and tritanopia see them (Machado et al. 2009)."""
    text = (REPO / "tools" / "report" / "10_base.js").read_text()
    colours = re.findall(r"#[0-9a-f]{6}", re.search(r"const PALETTE = (.*)", text).group(1))[:5]
    assert len(colours) == 5
    kinds = {"all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
             "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
             "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
             "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900))}

    def linear(colour):
        return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))]

    def times(matrix, v):
        return [sum(a * b for a, b in zip(row, v)) for row in matrix]

    def oklab(rgb):
        lms = times(((0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566), (0.0883024619, 0.2817188376, 0.6299787005)),
                    [min(1, max(0, v)) for v in rgb])
        return times(((0.2104542553, 0.7936177850, -0.0040720468), (1.9779984951, -2.4285922050, 0.4505937099), (0.0259040371, 0.7827717662, -0.8086757660)),
                     [v ** (1 / 3) for v in lms])
    for kind, matrix in kinds.items():
        seen = [oklab(times(matrix, linear(c))) for c in colours]
        for i, a in enumerate(seen):
            for k in range(i):
                assert sum((x - y) ** 2 for x, y in zip(a, seen[k])) ** 0.5 > 0.1, (kind, colours[i], colours[k])


@browser
def test_a_hang_comes_first(build, report, sql, tmp_path):
    """Who is waited for, where it is and since when: at the top of the page, and its section before all others."""
    run_command([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", tmp_path / "job", "--ranks", "8", "--minutes", "0.2", "--hang", "3:4"])
    db = tmp_path / "hang.db"
    run_command([build.tool("probing-convert"), "-q", tmp_path / "job", db])
    [(rank, op, does, since)] = sql(db, "SELECT rank, op, does, strftime('%H:%M:%S', since, 'unixepoch') FROM hangs WHERE cause")
    assert rank == 3
    page = report(db)
    out, said = in_page(tmp_path, page, """
    const sections = Array.from(document.querySelectorAll("section")), card = document.querySelector(".card");
    return {sections: sections.map((s) => s.id), card: card.id, bad: card.classList.contains("bad"), text: card.querySelector("p").textContent, top: card.getBoundingClientRect().top,
        shown: innerHeight, triggers: sections[1].textContent, tree: document.querySelector(".tree").textContent};""")
    assert not said, said
    assert out["sections"][:2] == ["verdict", "triggers"] and out["card"] == "q-hang" and out["bad"] and out["top"] < out["shown"]
    assert "rank 3 never came" in out["text"] and op in out["text"] and "rank 3 is in " + does in out["text"] and re.search(r"wait since [\d.]+ s", out["text"])
    assert "1 rank is waited for" in out["triggers"] and since in out["triggers"]
    # The stacks of those that wait are one tree, a frame a line.
    lines = [line.split(None, 1) for line in out["tree"].splitlines()]
    assert ["7", "main (train.py:86)"] in lines and any(n == "1" and name.endswith("[3]") for n, name in lines), out["tree"]
    assert "\ufffd" not in page.read_text()


@browser
def test_flame_graph_in_the_page(report, job, tmp_path, sql):
    [name] = sql(job, "SELECT func FROM hot_functions WHERE frame_type = 'Python' AND total_share BETWEEN 0.05 AND 0.9 ORDER BY total DESC LIMIT 1")[0]
    page = report(job)
    out, said = in_page(tmp_path, page, USE + """
    const flame = canvas("flame graph"), box = document.querySelector("#flame input[type=search]"), out = {};
    const note = () => box.nextSibling.textContent;
    const type = async (t) => { box.value = t; box.dispatchEvent(new Event("input", {bubbles: true})); await wait(200); };
    out.start = await seen(flame);
    await type(%s);
    out.found = note(); out.marked = await seen(flame);
    await type("/(/"); out.bad = note();
    await type("no such name"); out.none = note();
    await type("");
    flame.focus();
    key(flame, "ArrowDown"); key(flame, "ArrowDown"); key(flame, "Enter");
    await wait(200);
    out.zoomed = await seen(flame); out.address = decodeURIComponent(location.hash);
    key(flame, "Escape"); await wait(200);
    out.back = location.hash;
    const rank = document.querySelector("#flame select");
    rank.value = "5"; rank.dispatchEvent(new Event("change")); await wait(200);
    out.rank = await seen(flame);
    return out;""" % json.dumps(name))
    assert not said, said
    assert float(out["found"].split("\u2009")[0]) > 1 and out["marked"] != out["start"]
    assert out["bad"] == "not a regular expression" and out["none"] == "no match"
    assert out["zoomed"] != out["start"] and out["address"].startswith("#flame=") and out["back"] == ""
    assert out["rank"] != out["start"]
    # What is in the address is there again.
    again, said = in_page(tmp_path, page, "await new Promise((r) => setTimeout(r, 500)); return !document.querySelector('#flame button').hidden;",
                          anchor=re.sub(" ", "%20", out["address"]))
    assert again is True and not said


@browser
def test_hostile_names_stay_text(report, nasty, tmp_path):
    page = report(nasty, options=["--title", "</title><script>document.title='owned'</script>\u202egnp.exe"])
    text = page.read_text()
    assert text.count("<script") == 2 and "<img" not in text and "\u202e" not in text
    data = content(page)
    assert NASTY_NAME.replace("\x01", "\ufffd") in [name for name, _, _, _ in data["flame"]["labels"]]
    assert NASTY_FILE in [file for _, file, _, _ in data["flame"]["labels"]]
    out, said = in_page(tmp_path, page, USE + """
    for (const c of document.querySelectorAll("canvas")) await seen(c);
    document.querySelectorAll("button.sql, summary").forEach((b) => b.click());
    return {scripts: document.scripts.length, images: document.images.length, title: document.title, h1: document.querySelector("h1").textContent,
        outside: performance.getEntriesByType("resource").map((e) => e.name)};""")
    assert not said, said
    assert out["scripts"] == 3 and out["images"] == 0 and out["outside"] == []  # the page's two, and this one
    assert out["h1"].startswith("</title><script>") and "owned" not in out["title"].split("</script>")[-1]


@browser
def test_on_paper(report, job, tmp_path):
    """In the colours of day, whatever the screen's are, and no wider than a sheet: a picture of a wide window would be squeezed."""
    page = report(job)
    text = page.read_text()
    # As if it were night: what a browser asks for then is asked for always.
    page.write_text(text.replace("(prefers-color-scheme: dark)", "(min-width: 1px)"))
    out, said = in_page(tmp_path, page, USE + """
    const steps = canvas("Time of a step"), shape = () => [steps.width / steps.height, steps.getBoundingClientRect().width / steps.getBoundingClientRect().height, css("--ink"), document.body.clientWidth];
    await seen(steps);
    const before = shape(), out = {};
    dispatchEvent(new Event("beforeprint"));
    out.paper = shape();
    dispatchEvent(new Event("afterprint"));
    out.again = shape().join() === before.join();
    out.before = before;
    return out;""", size=(2500, 900))
    assert not said, said
    assert out["before"][3] > 2000 and out["before"][2] == "#e6e8ec"
    assert out["paper"][3] <= 720 and out["paper"][2] == "#1f2328" and out["again"]
    assert out["paper"][0] == pytest.approx(out["paper"][1], rel=0.02) and out["paper"][0] < 4


@browser
def test_clocks_that_were_not_aligned(build, report, run, job, tmp_path):
    """Said at the top and beside the pictures whose times they are; of clocks that were aligned nothing is said."""
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


@browser
def test_where_one_is(report, job, tmp_path):
    """The bar of sections says which one is read, a table how it is sorted; columns without a value are left out."""
    out, said = in_page(tmp_path, report(job), """
    const current = () => [...document.querySelectorAll("nav a[aria-current]")].map((a) => a.textContent), out = {first: current()};
    document.getElementById("comm").scrollIntoView();
    dispatchEvent(new Event("scroll"));
    await new Promise((r) => setTimeout(r, 300));
    out.comm = current();
    const th = document.querySelector("#comm th"), sorted = () => document.querySelector("#comm th").getAttribute("aria-sort");
    th.dispatchEvent(new KeyboardEvent("keydown", {key: " ", bubbles: true, cancelable: true}));
    out.sorted = [sorted()];
    th.click();
    out.sorted.push(sorted());
    out.heads = [...document.querySelectorAll("#comm th")].map((e) => e.textContent);
    return out;""")
    assert not said, said
    assert out["first"] == ["Verdict"] and out["comm"] == ["Collectives"] and out["sorted"] == ["ascending", "descending"]
    assert "last rank" in out["heads"] and "missing" not in out["heads"]


def test_a_process_without_a_rank_is_called_by_its_number(report, nasty):
    text = nasty and report(nasty).read_text()
    assert "rank -" not in re.sub(r'"sql":"(\\.|[^"\\])*"', "", text) and "of process " in text


def test_one_rank_is_no_ranks(build, report, tmp_path):
    run_command([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", tmp_path / "job", "--ranks", "1", "--nodes", "1", "--minutes", "0.1"])
    data = content(report(tmp_path / "job"))
    steps, ranks = [part(data, name, "")["rows"][0][0] for name in ("steps", "ranks")]
    assert " steps of 1 rank; " in steps and ranks.startswith("1 rank; ")
    modules = part(data, "modules", "Time of modules")
    assert modules["rows"] and all(r[modules["names"].index("gpu_calls")] is None for r in modules["rows"]), "without a GPU a column of zeros tells nothing"


@browser
@pytest.mark.parametrize("width", [400, 1000, 2500])
def test_widths(report, job, tmp_path, width):
    page = report(job)
    out, said = in_page(tmp_path, page, "await new Promise((r) => setTimeout(r, 300)); return {page: document.documentElement.scrollWidth, window: innerWidth};", size=(width, 900))
    # Chromium's window is never narrower than 500 in some versions: what counts is that nothing sticks out.
    assert not said and out["page"] <= out["window"], out
    # A number stays in one line, however narrow its table: 6175 as 617 above 5 is another number.
    broken, _ = in_page(tmp_path, page, """const n = [...document.querySelectorAll("main td.n")];
      n.forEach((td) => { td.textContent = "617561756175"; });
      const lines = (td) => { const r = document.createRange(); r.selectNodeContents(td); return r.getClientRects().length; };
      return [n.length, n.filter((td) => lines(td) > 1).length];""", size=(width, 900))
    assert broken[0] > 10 and broken[1] == 0
    # Nor is a word: the table is scrolled.
    words, _ = in_page(tmp_path, page, """const n = [...document.querySelectorAll("#comm td:not(.n)")].filter((td) => td.textContent);
      const lines = (td) => { const r = document.createRange(); r.selectNodeContents(td); return r.getClientRects().length; };
      return [n.length, n.filter((td) => lines(td) > 1).length];""", size=(width, 900))
    assert words[0] > 10 and words[1] == 0
    assert len(screenshot(tmp_path, page, size=(width, 900))) > 15000
