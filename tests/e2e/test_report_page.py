# SPDX-License-Identifier: Apache-2.0
"""The page of `probing report` in a browser: zoom, keyboard, colours, paper, widths, hostile names. (test_report.py tests what it says.)"""
import json
import re

import pytest

import report_scene
from chromium import browser, in_page, screenshot
from conftest import REPO
from report_scene import USE, content
from test_flamegraph import NASTY_FILE, NASTY_NAME

job, nasty, report = report_scene.job, report_scene.nasty, report_scene.report


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
    """The heat map is drawn anew at most once for each scale, not for each frame of an animation, which would be slow for a thousand ranks.
    And the cell with the largest value is visible at every scale."""
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
    """With Shift and the arrow keys every picture says what is at a place, as with the mouse; and the axes have round times."""
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
    """Distances in OKLab between the first five colours, as people with protanopia, deuteranopia and tritanopia see them (Machado et al.
    2009)."""
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
    # The page restores the state that its address contains.
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
    assert out["scripts"] == 3 and out["images"] == 0 and out["outside"] == []  # the page's two scripts, and this one
    assert out["h1"].startswith("</title><script>") and "owned" not in out["title"].split("</script>")[-1]


@browser
def test_on_paper(report, job, tmp_path):
    """Printed in the colours of day, whatever the screen has, and no wider than a sheet: a picture made for a wide window would be
    squeezed."""
    page = report(job)
    text = page.read_text()
    # Pretend that it is night: the media query that browsers evaluate then is made to match always.
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
def test_where_one_is(report, job, tmp_path):
    """The bar of sections shows which one is being read, a table shows how it is sorted; columns without a value are left out."""
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


@browser
@pytest.mark.parametrize("width", [400] + [pytest.param(width, marks=pytest.mark.slow) for width in (1000, 2500)])
def test_widths(report, job, tmp_path, width):
    page = report(job)
    out, said = in_page(tmp_path, page, "await new Promise((r) => setTimeout(r, 300)); return {page: document.documentElement.scrollWidth, window: innerWidth};", size=(width, 900))
    # In some versions Chromium's window is never narrower than 500 pixels: the test checks that nothing is wider than the page.
    assert not said and out["page"] <= out["window"], out
    # A number stays in one line, however narrow its table is: 6175 broken into 617 and 5 would be another number.
    broken, _ = in_page(tmp_path, page, """const n = [...document.querySelectorAll("main td.n")];
      n.forEach((td) => { td.textContent = "617561756175"; });
      const lines = (td) => { const r = document.createRange(); r.selectNodeContents(td); return r.getClientRects().length; };
      return [n.length, n.filter((td) => lines(td) > 1).length];""", size=(width, 900))
    assert broken[0] > 10 and broken[1] == 0
    # A word is not broken either: the table scrolls instead.
    words, _ = in_page(tmp_path, page, """const n = [...document.querySelectorAll("#comm td:not(.n)")].filter((td) => td.textContent);
      const lines = (td) => { const r = document.createRange(); r.selectNodeContents(td); return r.getClientRects().length; };
      return [n.length, n.filter((td) => lines(td) > 1).length];""", size=(width, 900))
    assert words[0] > 10 and words[1] == 0
    assert len(screenshot(tmp_path, page, size=(width, 900))) > 15000
