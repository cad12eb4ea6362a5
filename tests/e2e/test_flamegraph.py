# SPDX-License-Identifier: Apache-2.0
"""The flame graph: its weights agree with SQL, names cannot inject anything, and zoom and search work in a browser."""
import html
import json
import os
import re
import shutil
import sqlite3
import xml.etree.ElementTree as ET

import pytest

from chromium import browser, chromium
from conftest import PYTHONS, run_command

SVG = "{http://www.w3.org/2000/svg}"

# Function and file names that try to break out of the picture. No function of work.py is named like one of those that start Python, which
# may be recorded, too (site.main): for a name of two files the picture adds the file.
NASTY_NAME = "</title><img src=x onerror=\"document.title='owned'\">&amp;]]>'\x01"
NASTY_FILE = "/x/\"><script>document.title='owned'</script>.py"

SCRIPT = """
import threading, time
def leaf_a(n): return sum(range(n))
def leaf_b(n): return sum(range(n))
def both(n):
    leaf_a(3 * n)
    leaf_b(n)
def spin(seconds, f):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        f(50000)  # much longer than asking the clock, which takes a third of f(1000) where a system call is slow
def named(name):
    code = compile("def f(n): return sum(range(n))", %r, "exec").co_consts[0]
    kw = {"co_name": name}
    if hasattr(code, "co_qualname"):
        kw["co_qualname"] = name
    return type(spin)(code.replace(**kw), {"sum": sum, "range": range})
def work():
    t = threading.Thread(target=time.sleep, args=(1.2,))
    t.start()
    spin(0.8, both)
    spin(0.4, named(%r))
    spin(0.2, named("long" * 200))
    t.join()
work()
""" % (NASTY_FILE, NASTY_NAME)


@pytest.fixture(scope="module")
def recorded(build, tmp_path_factory):
    """Returns the database, and the directory that it is in."""
    where = tmp_path_factory.mktemp("flame")
    script = where / "work.py"
    script.write_text(SCRIPT)
    run_dir = where / "run"
    run_dir.mkdir(mode=0o700)
    env = dict(os.environ, PROBING_RUN_DIR=str(run_dir))
    python = next(p for p in PYTHONS if p.version >= (3, 8)).path
    run_command([build.tool("probing-record"), "-q", "-r", "200", "-o", where / "t.zst", python, script], env=env)
    run_command([build.tool("probing-convert"), "-q", where / "t.zst", where / "out.db"], env=env)
    yield where / "out.db"
    shutil.rmtree(str(where), ignore_errors=True)


@pytest.fixture
def flame(build, recorded, tmp_path, run):
    def do(*options, check=True):
        svg = tmp_path / "flame.svg"
        run([build.tool("probing"), "flamegraph", "-o", svg, recorded] + list(options), check=check)
        return svg
    return do


def folded(build, run, db, *options):
    out = run([build.tool("probing"), "flamegraph", "--folded", db] + list(options)).stdout
    stacks = []
    for line in out.splitlines():
        stack, weight = line.rsplit(" ", 1)
        stacks.append((stack.split(";"), int(weight)))
    return stacks


def frames(svg):
    """Returns (name, file, weight, self, x, depth) for each frame."""
    out = []
    for e in ET.parse(str(svg)).iter(SVG + "svg"):
        if e.get("class", "").startswith("f "):
            out.append((e.find(SVG + "text").text, e.get("data-file", ""), int(e.get("data-w")), int(e.get("data-s")),
                        int(e.get("data-x")), int(e.get("data-d"))))
    return out


# ---- weights ----------------------------------------------------------------------------------


def test_all_samples_are_in_it(build, run, recorded, sql, flame):
    ticks = sql(recorded, "SELECT sum(count) FROM samples")[0][0]
    assert ticks > 100
    assert sum(w for _, w in folded(build, run, recorded, "--idle")) == ticks
    root = [f for f in frames(flame("--idle")) if f[5] == 0]
    assert len(root) == 1 and root[0][2] == ticks


@pytest.mark.parametrize("command, begins", [("flamegraph", "<svg"), ("report", "<!DOCTYPE"), ("export --format collapsed", "python")])
def test_a_name_that_is_standard_output(build, run, recorded, tmp_path, command, begins):
    """It was a file of the name "-" for two of the three."""
    said = run([build.tool("probing")] + command.split() + ["-o", "-", recorded], cwd=str(tmp_path)).stdout
    assert begins.lower() in said[:200].lower() and not (tmp_path / "-").exists()


@pytest.mark.parametrize("func", ["leaf_a", "leaf_b", "both", "spin", "work"])
def test_weight_of_a_function(build, run, recorded, sql, func):
    total = sql(recorded, "SELECT total FROM hot_functions WHERE func = ? AND frame_type = 'Python'", func)[0][0]
    stacks = folded(build, run, recorded)
    assert sum(w for s, w in stacks if "%s (work.py)" % func in s) == total > 0


def test_order_of_calls(build, run, recorded):
    stacks = folded(build, run, recorded, "--python", "--thread", "main")
    chain = ["<module> (work.py)", "work (work.py)", "spin (work.py)", "both (work.py)", "leaf_a (work.py)"]
    assert any(s[-5:] == chain for s, _ in stacks)


def test_filters(build, run, recorded, sql, flame):
    def weight(*options):
        return sum(w for _, w in folded(build, run, recorded, *options))

    pid = sql(recorded, "SELECT pid FROM trace")[0][0]
    assert weight("--cpu") == sql(recorded, "SELECT sum(count) FROM samples WHERE state = 'running'")[0][0]
    assert weight("--thread", "main") == sql(recorded, "SELECT sum(count) FROM samples WHERE tid = pid")[0][0]
    assert weight("--thread", str(pid)) == weight("--thread", "main")
    assert weight("--pid", str(pid)) == weight()
    done = run([build.tool("probing"), "flamegraph", "--folded", "--rank", "3", recorded], check=1)
    assert "no sample to draw: none fits the options" in done.stderr and done.stdout == ""
    assert not any(f[1].endswith(".so") or "libc" in f[1] for f in frames(flame("--python")))


def test_processes_are_one_picture(build, run, sql, tmp_path):
    """Ranks that do the same are drawn as one, unless each is asked for."""
    job, db = tmp_path / "job", tmp_path / "out.db"
    run([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", job, "--ranks", "5", "--minutes", "0.1", "--threads", "2"])
    run([build.tool("probing-convert"), "-q", job, db])
    one, split = folded(build, run, db, "--idle"), folded(build, run, db, "--idle", "--processes")
    groups = {s[0] for s, _ in one}
    assert "main thread" in groups and 1 < len(groups) < 5 and not any("pid" in g for g in groups)
    by_process = {s[0]: sum(w for t, w in split if t[0] == s[0]) for s, _ in split}
    for rank, samples in sql(db, "SELECT rank, sum(count) FROM samples GROUP BY rank"):
        [name] = [n for n in by_process if n.startswith("rank %d: " % rank)]
        assert by_process[name] == samples
    assert len(by_process) == 5 and {s[1] for s, _ in split} == groups
    whole = {}
    for s, w in split:
        whole[tuple(s[1:])] = whole.get(tuple(s[1:]), 0) + w
    assert whole == {tuple(s): w for s, w in one}
    svg = tmp_path / "flame.svg"
    run([build.tool("probing"), "flamegraph", "-o", svg, db])
    assert "5 processes as one" in svg.read_text()


def test_a_rate_that_changed(build, run, recorded, sql, tmp_path):
    """A tick weighs as much as the time that it stands for."""
    db = tmp_path / "changed.db"
    shutil.copy(str(recorded), str(db))
    c = sqlite3.connect(str(db))
    c.execute("INSERT INTO period SELECT trace, (SELECT avg(ts) FROM sample), 4 * ns FROM period")
    c.execute("UPDATE trace_file SET periods = 2")
    c.commit()
    c.close()
    seconds, shortest = sql(db, "SELECT (SELECT sum(seconds) FROM samples), (SELECT min(ns) / 1e9 FROM period)")[0]
    plain = sum(w for _, w in folded(build, run, recorded, "--idle"))
    changed = sum(w for _, w in folded(build, run, db, "--idle"))
    assert changed == pytest.approx(seconds / shortest) and changed > 1.2 * plain


def test_what_is_idle_is_left_out(build, run, recorded, sql, flame, tmp_path):
    """Waiting threads are left out, except main threads; in helper processes, these too."""
    def weight(db, *options):
        return sum(w for _, w in folded(build, run, db, *options))

    busy = sql(recorded, "SELECT sum(count) FROM samples WHERE state = 'running' OR tid = pid")[0][0]
    everything = sql(recorded, "SELECT sum(count) FROM samples")[0][0]
    assert weight(recorded) == busy < everything == weight(recorded, "--idle")
    assert "without idle threads" in flame().read_text() and "without idle" not in flame("--idle").read_text()
    worker = tmp_path / "worker.db"
    shutil.copy(str(recorded), str(worker))
    c = sqlite3.connect(str(worker))
    c.execute("UPDATE trace_file SET role = 'dataloader'")
    c.commit()
    assert weight(worker) == sql(worker, "SELECT sum(count) FROM samples WHERE state = 'running'")[0][0]
    c.execute("UPDATE sample SET flags = flags & ~1")
    c.commit()
    c.close()
    done = run([build.tool("probing"), "flamegraph", "--folded", worker], check=1)
    assert "all threads are idle (--idle draws them)" in done.stderr


def test_lines_as_leaves(build, run, recorded, sql):
    """Above each stack's innermost Python function stands the line that it is at; the weights are those of the samples."""
    want = {}
    for func, line, count in sql(recorded, "SELECT func, lineno, sum(count) FROM (SELECT sample_id, func, file, lineno, count, min(depth) FROM backtrace "
                                 "WHERE frame_type = 'Python' GROUP BY sample_id) WHERE file LIKE '%/work.py' GROUP BY 1, 2"):
        want[(func, line)] = want.get((func, line), 0) + count
    got = {}
    for stack, weight in folded(build, run, recorded, "--idle", "--lines"):
        at = [i for i, n in enumerate(stack) if re.match(r"work\.py:\d+ ", n)]
        assert len(at) <= 1
        if at:
            key = (stack[at[0] - 1].split(" (")[0], int(re.match(r"work\.py:(\d+)", stack[at[0]]).group(1)))
            got[key] = got.get(key, 0) + weight
    assert len(want) >= 2
    for key, count in want.items():
        assert got.get(key) == count, key


def test_shared_names_have_their_files(build, run, record, convert, tmp_path, flame):
    """<module> of two files has its files added; a name that is in one file only does not. The line is the one where most of the time is
    spent."""
    (tmp_path / "other.py").write_text("import time\nwhile time.thread_time() < 0.4:\n    sum(range(1000))\n")
    trace = record("import other, time\ndef alone():\n    return sum(range(2000))\nwhile time.thread_time() < 0.8:\n    alone()\n",
                   hz=200)
    svg = tmp_path / "shared.svg"
    run([build.tool("probing"), "flamegraph", "-o", svg, convert(trace.trace)])
    rows = frames(svg)
    modules = {name for name, _, _, _, _, _ in rows if name.startswith("<module>")}
    assert {"<module> (other.py)", "<module> (script1.py)"} <= modules and "<module>" not in modules
    assert "alone" in {name for name, _, _, _, _, _ in rows}
    titles = ["".join(e.itertext()) for e in ET.parse(str(svg)).iter(SVG + "title")]
    assert any(re.match(r"alone\n.*\.py:3\n", t) for t in titles)


def test_plumbing_is_left_out_unless_asked_for(build, run, recorded):
    def in_main(*options):
        stacks = [s for s, _ in folded(build, run, recorded, "--thread", "main", *options) if "work (work.py)" in s]
        assert stacks
        return {n.split(" (")[0] for s in stacks for n in s}

    assert {"_start", "PyEval_EvalCode"} <= in_main("--all-frames")
    assert not {"_start", "PyEval_EvalCode"} & in_main()


# ---- the picture --------------------------------------------------------------------------------


def test_geometry(flame):
    rows = frames(flame())
    width = {}
    for name, _, weight, own, x, depth in rows:
        assert weight >= own >= 0
        width.setdefault(depth, []).append((x, x + weight))
    assert len(width) > 4
    for depth, spans in width.items():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:])), "frames overlap at depth %d" % depth
        if depth:  # each lies on one of the row below it
            assert all(any(p[0] <= s[0] and s[1] <= p[1] for p in width[depth - 1]) for s in spans)


def test_icicle_is_upside_down(flame):
    def y(svg):
        return [(int(e.get("data-d")), int(e.get("y"))) for e in ET.parse(str(svg)).iter(SVG + "svg")
                if e.get("class", "").startswith("f ")]

    up, down = y(flame()), y(flame("--icicle"))
    assert all((d > 0) == (pos < dict(up)[0]) for d, pos in up)
    assert all((d > 0) == (pos > dict(down)[0]) for d, pos in down)


def test_names_stay_text(flame):
    svg = flame("--title", "a <b> & \"c\"")
    text = svg.read_text()
    assert text.count("<script") == 1 and "<img" not in text
    names = {f[0]: f[1] for f in frames(svg)}
    nasty = [n for n in names if n.startswith("</title>")]
    assert nasty == [NASTY_NAME.replace("\x01", "\ufffd")]
    assert names[nasty[0]] == NASTY_FILE
    assert "a &lt;b&gt; &amp; &quot;c&quot;" in text
    # It loads nothing from outside, so it works without a network.
    assert not re.search(r"(href|src)\s*=|url\(|@import|https?://(?!www\.w3\.org/)", re.sub(r"&[a-z#0-9]+;[^<]*", "", text))


def test_errors(build, run, recorded, tmp_path):
    tool = [build.tool("probing"), "flamegraph"]
    assert "is needed" in run(tool, check=2).stderr
    assert "cannot open /nowhere.db" in run(tool + ["/nowhere.db"], check=3).stderr
    assert "a number is needed" in run(tool + ["--pid", "x", recorded], check=2).stderr
    assert "cannot write /dev/null/x.svg" in run(tool + ["-o", "/dev/null/x.svg", recorded], check=3).stderr
    other = tmp_path / "other.db"
    run(["sqlite3", other, "CREATE TABLE x(y)"])
    assert "is it a database made by probing-convert?" in run(tool + ["--folded", other], check=3).stderr


@pytest.mark.parametrize("options", [[], ["--folded"]])
def test_only_what_it_wrote_is_replaced(build, run, recorded, tmp_path, options):
    tool = [build.tool("probing"), "flamegraph"] + options
    out, link = tmp_path / "out", tmp_path / "link"
    for _ in range(2):  # the second time it replaces its own picture
        run(tool + ["-o", out, recorded])
    out.write_text("total 48\n")
    link.symlink_to("out")
    os.mkfifo(tmp_path / "fifo")
    for name in ("out", "link", "fifo", "."):
        assert "not replaced" in run(tool + ["-o", tmp_path / name, recorded], check=3).stderr
    assert out.read_text() == "total 48\n" and link.is_symlink() and (tmp_path / "fifo").is_fifo()
    before = recorded.read_bytes()
    os.link(recorded, tmp_path / "same")
    assert "one of the inputs" in run(tool + ["-o", tmp_path / "same", recorded], check=3).stderr
    assert recorded.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "run") == ["fifo", "link", "out", "same"]


# ---- in a browser ----------------------------------------------------------------------------------

# Runs after the picture's own script, and writes its results into the page.
HARNESS = """<!DOCTYPE html><html><head><meta charset="utf-8"><title>fine</title></head><body style="margin:0">%s
<script>
const svg = document.querySelector("svg.flame");
const all = Array.from(svg.querySelectorAll("svg.f"));
const name = (f) => f.querySelector("text").textContent;
const find = (n) => all.find((f) => name(f) === n);
const seen = () => all.filter((f) => f.style.display !== "none");
const box = (f) => { const r = f.querySelector("rect").getBoundingClientRect(); return [r.left, r.width]; };
const state = () => ({shown: seen().length, names: seen().map(name), root: box(all[0]), leaf: find("leaf_a") && box(find("leaf_a")),
    details: svg.querySelector(".details").textContent, matched: svg.querySelector(".matched").textContent,
    hits: all.filter((f) => f.classList.contains("hit")).map(name), zoomed: svg.classList.contains("zoomed"), title: document.title});
const click = (el) => el.dispatchEvent(new MouseEvent("click", {bubbles: true}));
const key = (k) => window.dispatchEvent(new KeyboardEvent("keydown", {key: k, bubbles: true, cancelable: true}));
const type = (t) => { const i = svg.querySelector("input"); i.value = t; i.dispatchEvent(new Event("input", {bubbles: true})); };
const out = {};
try {
  out.start = state();
  out.total = Number(all[0].dataset.w);
  out.weight = Number(find("leaf_a").dataset.w);
  out.both = Number(find("both").dataset.w);
  find("leaf_a").dispatchEvent(new MouseEvent("mousemove", {bubbles: true}));
  out.hover = state();
  click(find("both").querySelector("rect"));
  out.zoomed = state();
  type("leaf_");
  out.searched_zoomed = state();
  click(svg.querySelector(".reset rect"));
  out.reset = state();
  type("/^leaf_[ab]$/");
  out.regex = state();
  type("/(/");
  out.bad_regex = state();
  type("no such name");
  out.nothing = state();
  key("/");
  out.focused = document.activeElement === svg.querySelector("input");
  key("Escape");
  out.escaped = state();
} catch (e) { out.error = String(e && e.stack); }
const pre = document.createElement("pre");
pre.id = "out";
pre.textContent = JSON.stringify(out);
document.body.appendChild(pre);
</script></body></html>"""


@browser
def test_zoom_and_search_in_a_browser(flame, tmp_path):
    svg = flame("--thread", "main").read_text()
    page = tmp_path / "page.html"
    page.write_text(HARNESS % re.sub(r"^<\?xml[^>]*>\s*", "", svg))
    dom, _ = chromium(tmp_path, "--dump-dom", page.as_uri())
    found = re.search(r'<pre id="out">(.*?)</pre>', dom, re.S)
    assert found, dom[-2000:]
    out = json.loads(html.unescape(found.group(1)))
    assert "error" not in out, out["error"]

    start, zoomed = out["start"], out["zoomed"]
    assert not start["zoomed"] and start["shown"] > 5
    assert 1300 < start["root"][1] <= 1400, "fitted to the window"
    # Widths are proportional to time.
    assert start["leaf"][1] / start["root"][1] == pytest.approx(out["weight"] / out["total"], abs=0.002)
    assert "leaf_a" in out["hover"]["details"] and "% of all" in out["hover"]["details"].replace("\u2009", " ")

    assert zoomed["zoomed"] and zoomed["shown"] < start["shown"]
    assert {"all", "work", "spin", "both", "leaf_a"} <= set(zoomed["names"])
    assert not any(n.startswith("</title>") for n in zoomed["names"]), "what lies beside is hidden"
    assert zoomed["leaf"][1] / start["root"][1] == pytest.approx(out["weight"] / out["both"], abs=0.002) and out["both"] < out["total"]
    assert zoomed["root"] == start["root"], "what lies below fills the width"

    assert set(out["searched_zoomed"]["hits"]) == {"leaf_a", "leaf_b"}
    in_zoom = float(out["searched_zoomed"]["matched"].split("\u2009")[0])
    assert not out["reset"]["zoomed"] and out["reset"]["leaf"] == start["leaf"]
    in_all = float(out["reset"]["matched"].split("\u2009")[0])
    assert 0 < in_all < in_zoom <= 100
    assert out["regex"]["matched"] == out["reset"]["matched"] and set(out["regex"]["hits"]) == {"leaf_a", "leaf_b"}
    assert out["bad_regex"]["matched"] == "not a regular expression"
    assert out["nothing"]["matched"] == "no match" and out["nothing"]["hits"] == []
    assert out["focused"]
    assert out["escaped"]["matched"] == "" and out["escaped"]["leaf"] == start["leaf"]
    assert all(s["title"] == "fine" for s in out.values() if isinstance(s, dict)), "a name was executed"


WALK = """<!DOCTYPE html><html><head><meta charset="utf-8"></head><body style="margin:0">%s<script>
const svg = document.querySelector("svg.flame"), all = Array.from(svg.querySelectorAll("svg.f"));
const full = (f) => f.querySelector("title").textContent.split("\\n")[0];
const box = (s) => { const r = svg.querySelector(s).getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
const key = (k) => window.dispatchEvent(new KeyboardEvent("keydown", {key: k, bubbles: true, cancelable: true}));
const at = () => { const f = all.find((f) => f.classList.contains("focus")) || all[0]; return {i: all.indexOf(f), d: +f.dataset.d, x: +f.dataset.x, w: +f.dataset.w}; };
const out = {width: innerWidth, title: box(".title"), search: box(".search"), soft: box(".head .soft"), rule: box(".rule"), first: box("svg.f rect"),
    cut: all.filter((f) => f.querySelector("text").textContent.endsWith("\u2026")).length,
    wide: all.filter((f) => f.style.display !== "none" && !f.classList.contains("n") && f.querySelector("text").getBBox().width > f.getBoundingClientRect().width + 1).map(full)};
const up = svg.dataset.root === "bottom" ? "ArrowUp" : "ArrowDown", down = svg.dataset.root === "bottom" ? "ArrowDown" : "ArrowUp";
const walk = (keys) => keys.map((k) => { if (k) key(k); return at(); });
out.walked = walk(["", up, down, up]);
key("Enter");
all.find((f) => full(f).startsWith("both")).querySelector("rect").dispatchEvent(new MouseEvent("click", {bubbles: true}));
out.both = walk(["", up, down, down]);
const wide = document.body.style.width; key("Escape"); document.body.style.width = "300px"; window.dispatchEvent(new Event("resize")); out.details = box(".details")[2];
document.body.style.width = wide; window.dispatchEvent(new Event("resize")); all.find((f) => full(f).startsWith("both")).querySelector("rect").dispatchEvent(new MouseEvent("click", {bubbles: true}));
out.zoomed = svg.classList.contains("zoomed"); out.shown = all.filter((f) => f.style.display !== "none").length; out.of = all.length;
const pre = document.createElement("pre"); pre.id = "out"; pre.textContent = JSON.stringify(out); document.body.appendChild(pre);
</script></body></html>"""


@browser
@pytest.mark.parametrize("width", [500, 1000, 2500])
def test_widths_and_keys(flame, tmp_path, width):
    """The search field never covers the title, a name that is cut ends in an ellipsis, and the arrow keys walk over the frames."""
    svg = re.sub(r"^<\?xml[^>]*>\s*", "", flame("--title", "a long title " * 12).read_text())
    page = tmp_path / "page.html"
    page.write_text(WALK % svg)
    dom, said = chromium(tmp_path, "--dump-dom", page.as_uri(), size=(width, 900))
    out = json.loads(html.unescape(re.search(r'<pre id="out">(.*?)</pre>', dom, re.S).group(1)))
    assert not said
    apart = out["title"][2] <= out["search"][0] or out["title"][3] <= out["search"][1]
    assert apart and (out["soft"][2] <= out["search"][0] or out["soft"][3] <= out["search"][1]), out
    assert out["search"][3] <= out["rule"][1] + 1 and out["search"][2] <= out["width"]
    assert out["cut"] > 0 and out["wide"] == []
    assert out["details"] <= 300, "cut anew when the window gets narrower"
    root, first, again, last = out["walked"]  # compare places, not names: an import has one <module> above another
    assert root["d"] == 0 and first["d"] == 1 and again == root and last == first, out["walked"]
    both, leaf, back, spin = out["both"]  # both() calls two functions, and spin() calls it
    assert leaf["d"] == both["d"] + 1 and both["x"] <= leaf["x"] and leaf["x"] + leaf["w"] <= both["x"] + both["w"], out["both"]
    assert back == both and spin["d"] == both["d"] - 1 and spin["x"] <= both["x"] and both["x"] + both["w"] <= spin["x"] + spin["w"], out["both"]
    assert out["zoomed"] and out["shown"] < out["of"]


@browser
def test_zoom_is_in_the_address(flame, tmp_path):
    svg = flame("--thread", "main", "--icicle")
    names = [f[0] for f in sorted(frames(svg), key=lambda f: f[5]) if f[0] in ("work", "spin", "both")]
    assert names[:3] == ["work", "spin", "both"]
    chain = []  # the names on the way from the root to `both`
    both = [f for f in frames(svg) if f[0] == "both"][0]
    for f in sorted(frames(svg), key=lambda f: f[5]):
        if 0 < f[5] <= both[5] and f[4] <= both[4] and f[4] + f[2] >= both[4] + both[2]:
            chain.append(f[0])
    dom, _ = chromium(tmp_path, "--dump-dom", svg.as_uri() + "#zoom=" + "%3B".join(n.replace("<", "%3C").replace(">", "%3E").replace(" ", "%20") for n in chain))
    assert 'class="flame live zoomed"' in dom
    dom, _ = chromium(tmp_path, "--dump-dom", svg.as_uri() + "#zoom=nothing")
    assert 'class="flame live"' in dom


@browser
def test_opened_alone_it_is_drawn(flame, tmp_path):
    shot = tmp_path / "shot.png"
    chromium(tmp_path, "--screenshot=%s" % shot, flame("--icicle").as_uri())
    png = shot.read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    # A screenshot of an empty page of this size compresses to less than 10 KB.
    assert len(png) > 15000
    dom, _ = chromium(tmp_path, "--dump-dom", flame("--icicle").as_uri())
    assert 'class="flame live"' in dom, "its script has run"
