# SPDX-License-Identifier: Apache-2.0
"""The flame graph of two recordings: widths are those of B, colours show only what really changed, and hovering shows both shares."""
import html
import json
import re
import shutil
import sqlite3
import xml.etree.ElementTree as ET

import pytest

from chromium import browser, chromium
from conftest import REPO

SVG = "{http://www.w3.org/2000/svg}"
GREY = "#dfe2e6"
LESS, MORE = ("#5b8fd6", "#8fb5e6", "#c3d8f2"), ("#f8cdbf", "#f09a80", "#e3664f")
GROWN = "clip_grad_norm_"
OF_GROWN = ("(SELECT s.stack FROM stack_frame s JOIN frame r ON r.id = s.frame JOIN function f ON f.id = r.function"
            " WHERE f.name = '%s')" % GROWN)


@pytest.fixture(scope="module")
def two(simulated_job, tmp_path_factory):
    """(A, B): a simulated job, and the same job with one function that takes six times as long."""
    a = simulated_job("--seed", 1) / "out.db"
    b = tmp_path_factory.mktemp("two") / "b.db"
    shutil.copy(str(a), str(b))
    db = sqlite3.connect(str(b))
    db.execute("UPDATE sample SET count = 6 * count WHERE stack IN " + OF_GROWN)
    db.commit()
    db.close()
    return a, b


def frames(svg):
    """Returns {name: (colour, share of A, share of B, noise, width, title)} for the widest frame of each name."""
    out = {}
    for e in ET.parse(str(svg)).iter(SVG + "svg"):
        if e.get("class", "").startswith("f "):
            new = (e.find(SVG + "rect").get("fill"), float(e.get("data-a")), float(e.get("data-b")), float(e.get("data-noise")),
                   int(e.get("data-w")), e.find(SVG + "title").text)
            name = e.find(SVG + "text").text
            if name not in out or out[name][4] < new[4]:
                out[name] = new
    return out


@pytest.fixture
def diff(build, run, tmp_path):
    def do(*args, tool="flamegraph"):
        svg = tmp_path / "diff.svg"
        run([build.tool("probing"), tool] + (["--diff"] if tool == "flamegraph" else []) + ["-o", svg] + [str(a) for a in args])
        return svg
    return do


def test_shares_and_colours(two, diff, sql):
    """The shares are those of SQL. A function that takes more is red, one whose share shrank because of that is blue, and differences by
    chance are grey."""
    got = frames(diff(*two))
    shares = []
    for db in two:
        whole = "FROM sample s JOIN thread h ON h.id = (s.id >> 40 << 40) + s.thread JOIN trace_file t ON t.id = h.trace WHERE (s.flags & 1 OR h.tid = t.pid)"
        grown, every = sql(db, "SELECT (SELECT sum(s.count) %s AND s.stack IN %s), (SELECT sum(s.count) %s)" % (whole, OF_GROWN, whole))[0]
        shares.append(grown / every)
    colour, a, b, noise, width, title = got[GROWN]
    assert (a, b) == (pytest.approx(shares[0], abs=2e-6), pytest.approx(shares[1], abs=2e-6)) and b > 3 * a
    assert colour in MORE and b - a > noise and "points" in title and "chance" not in title
    assert got["all"][0] == GREY and got["all"][1] == got["all"][2] == 1
    assert got["backward"][0] in LESS and got["backward"][1] > got["backward"][2]
    assert width / got["all"][4] == pytest.approx(b, abs=1e-6)
    for name, (colour, a, b, noise, _, title) in got.items():
        assert (colour == GREY) == (abs(b - a) <= noise + 1e-6) == ("may be chance" in title) or abs(abs(b - a) - noise) < 2e-6, name
        assert colour == GREY or (colour in MORE) == (b > a), name


def test_the_same_is_grey(two, diff):
    got = frames(diff(two[0], two[0]))
    assert got and all(f[0] == GREY and f[1] == f[2] for f in got.values())


def test_another_run_of_the_same_is_grey(simulated_job, diff):
    got = frames(diff(simulated_job("--seed", 1) / "out.db", simulated_job("--seed", 2) / "out.db"))
    assert got and {f[0] for f in got.values()} == {GREY}


def test_from_the_table(two, diff, build, run, tmp_path):
    """`probing diff -o` draws the same picture, also of two ranks of one recording."""
    whole = frames(diff(*two))
    assert {n: f[:5] for n, f in frames(diff(*two, tool="diff")).items()} == {n: f[:5] for n, f in whole.items()}
    ranks = frames(diff("--ranks", "0,1", two[0], tool="diff"))
    assert 0 < ranks["all"][4] < whole["all"][4]
    text = (tmp_path / "diff.svg").read_text()
    assert "rank 1 against" in text and "less of all in B" in text and "may be chance" in text and "Width is time in B" in text
    for args, says in ((["--diff", two[0]], "two recordings"), (["--diff", "--folded", two[0], two[1]], "two recordings")):
        assert says in run([build.tool("probing"), "flamegraph"] + args, check=2).stderr
    done = run([build.tool("probing"), "flamegraph", "--diff", "--rank", "99", "-o", tmp_path / "none.svg"] + list(two), check=1)
    assert "nothing to compare" in done.stderr and not (tmp_path / "none.svg").exists()


def test_what_may_be_chance_is_not_the_brightest_by_night():
    color = re.search(r'#define NO_CHANGE "(#[0-9a-f]{6})"', (REPO / "tools" / "flame_svg.c").read_text()).group(1)
    css = (REPO / "tools" / "embed" / "flame.css").read_text()
    night = re.search(r'prefers-color-scheme: dark\) \{ \.flame rect\[fill="%s"\] \{ fill: #([0-9a-f]{6})' % color, css).group(1)
    assert max(int(night[i:i + 2], 16) for i in (0, 2, 4)) < 160


@browser
@pytest.mark.parametrize("width", [400, 500, 1400])
def test_in_a_browser(two, diff, tmp_path, width):
    """Hovering shows both shares, the legend's keys lie within the page and do not overlap, and zoom works as in any flame graph."""
    svg = re.sub(r"^<\?xml[^>]*>\s*", "", diff(*two).read_text())
    page = tmp_path / "page.html"
    page.write_text("""<!DOCTYPE html><html><head><meta charset="utf-8"></head><body style="margin:0;width:%dpx">%s<script>
const svg = document.querySelector("svg.flame"), all = Array.from(svg.querySelectorAll("svg.f"));
const find = (n) => all.find((f) => f.querySelector("title").textContent.startsWith(n + "\\n"));
const f = find("%s"), out = {boxes: []};
f.dispatchEvent(new MouseEvent("mousemove", {bubbles: true}));
out.details = svg.querySelector(".details").textContent;
for (const e of svg.querySelectorAll(".head .key, .head .key + text")) { const r = e.getBoundingClientRect(); out.boxes.push([r.top + (r.bottom - r.top) / 2, r.left, r.right]); }
out.inner = svg.clientWidth; out.search = svg.querySelector(".search").getBoundingClientRect().top;
f.querySelector("rect").dispatchEvent(new MouseEvent("click", {bubbles: true}));
out.zoomed = svg.classList.contains("zoomed");
const pre = document.createElement("pre"); pre.id = "out"; pre.textContent = JSON.stringify(out); document.body.appendChild(pre);
</script></body></html>""" % (width, svg, GROWN))
    dom, said = chromium(tmp_path, "--dump-dom", page.as_uri(), size=(width, 900))
    out = json.loads(html.unescape(re.search(r'<pre id="out">(.*?)</pre>', dom, re.S).group(1)))
    assert not said and out["zoomed"]
    assert re.match(r"clip_grad_norm_  — +A [\d.]+.%, B [\d.]+.%: \+[\d.]+ points", out["details"]), out["details"]
    # Texts of one line are at the same height, to within the pixel by which their keys differ; the next line is 18 lower.
    assert len(out["boxes"]) == 10 and all(a[2] <= b[1] if b[0] - a[0] < 9 else b[1] == 10 for a, b in zip(out["boxes"], out["boxes"][1:])), out["boxes"]
    assert out["inner"] == width and all(right <= width for _, _, right in out["boxes"]), out
    assert out["boxes"][-1][2] < width - 250 if width > 600 else out["boxes"][-1][0] < out["search"], out
