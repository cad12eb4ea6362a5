# SPDX-License-Identifier: Apache-2.0
"""`probing report`: the page against SQL, and in a browser; hostile names; recordings of which there is little to show."""
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest

from chromium import browser, in_page, screenshot
from conftest import PYTHONS, run_command
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
    recorder.wait(60)
    page = tmp_path / "none.html"
    done = subprocess.run([build.tool("probing"), "report", "-o", page, pid], stderr=subprocess.PIPE)
    assert done.returncode == 3 and done.stderr.count(b"\n") == 1 and not page.exists()


def test_errors(build, run, job, tmp_path):
    tool = [build.tool("probing"), "report"]
    assert "is needed" in run(tool, check=2).stderr
    assert "cannot open" in run(tool + ["-o", tmp_path / "x.html", "/nowhere.db"], check=3).stderr
    assert "cannot write /nonexistent/x.html" in run(tool + ["-o", "/nonexistent/x.html", job], check=3).stderr
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
def test_a_hang_comes_first(build, report, sql, tmp_path):
    """Who is waited for, where it is and since when: at the top of the page, and its section before all others."""
    run_command([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", tmp_path / "job", "--ranks", "8", "--minutes", "0.2", "--hang", "3:4"])
    db = tmp_path / "hang.db"
    run_command([build.tool("probing-convert"), "-q", tmp_path / "job", db])
    [(rank, op, does, since)] = sql(db, "SELECT rank, op, does, strftime('%H:%M:%S', since, 'unixepoch') FROM hangs WHERE cause")
    assert rank == 3
    out, said = in_page(tmp_path, report(db), """
    const sections = Array.from(document.querySelectorAll("section")), card = document.querySelector(".card");
    return {sections: sections.map((s) => s.id), card: card.id, bad: card.classList.contains("bad"), text: card.querySelector("p").textContent, top: card.getBoundingClientRect().top,
        shown: innerHeight, triggers: sections[1].textContent};""")
    assert not said, said
    assert out["sections"][:2] == ["verdict", "triggers"] and out["card"] == "q-hang" and out["bad"] and out["top"] < out["shown"]
    assert "rank 3 never came" in out["text"] and op in out["text"] and "rank 3 is in " + does in out["text"] and re.search(r"wait since [\d.]+ s", out["text"])
    assert "1 rank is waited for" in out["triggers"] and since in out["triggers"]


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
@pytest.mark.parametrize("width", [400, 1000, 2500])
def test_widths(report, job, tmp_path, width):
    page = report(job)
    out, said = in_page(tmp_path, page, "await new Promise((r) => setTimeout(r, 300)); return {page: document.documentElement.scrollWidth, window: innerWidth};", size=(width, 900))
    # Chromium's window is never narrower than 500 in some versions: what counts is that nothing sticks out.
    assert not said and out["page"] <= out["window"], out
    assert len(screenshot(tmp_path, page, size=(width, 900))) > 15000
