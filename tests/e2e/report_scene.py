# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of `probing report`: a job, a process with malicious names, the page, and the data that it is drawn from."""
import base64
import json
import os
import re
import shutil
import zlib

import pytest

from conftest import PYTHONS, run_command
from test_flamegraph import SCRIPT

# Precedes the scripts that use the page.
USE = """
const wait = (ms) => new Promise((r) => setTimeout(r, ms));
const key = (el, k) => el.dispatchEvent(new KeyboardEvent("keydown", {key: k, bubbles: true, cancelable: true}));
const pixels = (c) => { const t = c.toDataURL(); let v = 0; for (let i = 0; i < t.length; i++) v = (v * 31 + t.charCodeAt(i)) >>> 0; return v; };
const canvas = (label) => document.querySelector('canvas[aria-label="' + label + '"]');
// Frames come as they like when nobody looks: what would be drawn in the next one is drawn now.
const seen = async (c) => { c.scrollIntoView(); await wait(50); charts.find((k) => k.canvas === c).now(); return pixels(c); };
"""


def content(page):
    """Returns the data that the page is drawn from."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S).group(1))


def part(data, section, title):
    [s] = [s for s in data["sections"] if s["name"] == section]
    [p] = [p for p in s["parts"] if p["title"] == title]
    return p


@pytest.fixture(scope="module")
def job(build, tmp_path_factory):
    """A database of eight ranks, one of which is slow."""
    where = tmp_path_factory.mktemp("report")
    run_command([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", where / "job", "--ranks", "8", "--nodes", "2",
                 "--minutes", "0.5", "--straggler", "5:20", "--offset", "1"])
    run_command([build.tool("probing-convert"), "-q"] + sorted(str(p) for p in (where / "job").glob("node*")) + [where / "out.db"])
    yield where / "out.db"
    shutil.rmtree(str(where), ignore_errors=True)


@pytest.fixture(scope="module")
def nasty(build, tmp_path_factory):
    """A database of a process whose names try to break out of the page."""
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
    """Returns the cells of the heat map, a list of codes for each row, decoded from [differences, base64] as report_grid.c writes it."""
    by, flat = matrix[0], bytearray(zlib.decompress(base64.b64decode(matrix[1])))
    assert len(flat) == rows * columns
    for at in range(len(flat)):
        before = (flat[at - 1] if at % columns else 0) if by == 1 else (flat[at - columns] if at >= columns else 0) if by == 2 else 0
        flat[at] = (flat[at] + before) & 255
    return [flat[r * columns:(r + 1) * columns] for r in range(rows)]
