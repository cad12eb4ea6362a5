# SPDX-License-Identifier: Apache-2.0
"""Runs pages and pictures in a real Chromium without a driver: a script is added to a copy of the page, its result is read from the DOM
that Chromium dumps, and the console from Chromium's log."""
import html
import json
import re
import shutil
import subprocess

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
browser = pytest.mark.skipif(not CHROMIUM, reason="no Chromium")

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
         "--enable-logging=stderr", "--virtual-time-budget=8000"]


def chromium(tmp_path, *args, size=(1400, 900)):
    """Returns (Chromium's output, the lines of its console)."""
    profile = tmp_path / "profile"
    done = subprocess.run([CHROMIUM] + FLAGS + ["--window-size=%d,%d" % size, "--user-data-dir=%s" % profile] + [str(a) for a in args],
                          timeout=200, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    said = [line for line in done.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line]
    return done.stdout.decode(), said


def in_page(tmp_path, page, script, size=(1400, 900), anchor=""):
    """Runs `script`, the body of an async function, at the end of the page. Returns (what it returned, the lines of the console)."""
    text = page.read_text()
    nonce = re.search(r"script-src 'nonce-([0-9a-f]{32})'", text)
    copy = tmp_path / "copy.html"
    copy.write_text(text.replace("</body>", """<script%s>
(async function () {
for (let i = 0; document.getElementById("data") && document.documentElement.dataset.ready !== "yes" && i < 300; i++) await new Promise((r) => setTimeout(r, 10));
%s })().then((o) => o, (e) => ({error: String(e && e.stack)})).then((o) => {
  const pre = document.createElement("pre");
  pre.id = "out";
  pre.textContent = JSON.stringify(o);
  document.body.appendChild(pre);
});</script></body>""" % (' nonce="%s"' % nonce.group(1) if nonce else "", script)))
    dom, said = chromium(tmp_path, "--dump-dom", copy.as_uri() + anchor, size=size)
    found = re.search(r'<pre id="out">(.*?)</pre>', dom, re.S)
    assert found, (dom[-2000:], said)
    out = json.loads(html.unescape(found.group(1)))
    assert not (isinstance(out, dict) and "error" in out), out
    return out, said


def screenshot(tmp_path, page, size=(1400, 900)):
    shot = tmp_path / ("shot-%d.png" % size[0])
    chromium(tmp_path, "--screenshot=%s" % shot, page.as_uri(), size=size)
    return shot.read_bytes()
