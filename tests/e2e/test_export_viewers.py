# SPDX-License-Identifier: Apache-2.0
"""`probing export` in the viewers themselves: speedscope (npm) in Chromium, and Holistic Trace Analysis (pip, with PROBING_ENGINES_ALL=1)."""
import base64
import json
import re
import shutil
import subprocess

import pytest

import test_export
from chromium import browser, chromium
from test_export_json import helper

job, hostile, export = test_export.job, test_export.hostile, test_export.export


@browser
@pytest.mark.slow
@pytest.mark.parametrize("which", ["job", "hostile"])
def test_speedscope_shows_it(which, request, export, tmp_path):
    """speedscope opens the file without a message on the console and shows the first profile's name; the sums of its tables are those that
    we wrote."""
    db = request.getfixturevalue(which)
    text = export("speedscope", db[1] if which == "job" else db)
    scope = json.loads(text)
    page = tmp_path / "release"
    shutil.copytree(helper("speedscope.sh"), str(page))
    (page / "profile.js").write_text("speedscope.loadFileFromBase64('job.speedscope.json', '%s')" % base64.b64encode(text.encode()).decode())
    dom, said = chromium(tmp_path, "--allow-file-access-from-files", "--dump-dom", (page / "index.html").as_uri() + "#localProfilePath=%s/profile.js&view=sandwich" % page)
    assert not [line for line in said if "rror" in line], said
    assert "(1/%d)" % len(scope["profiles"]) in dom
    # The rows of its sandwich view: "12.34s (56%)" of self time, the largest first
    first, frames = scope["profiles"][0], scope["shared"]["frames"]
    own = {}
    for stack, weight in zip(first["samples"], first["weights"]):
        own[stack[-1]] = own.get(stack[-1], 0) + weight
    heaviest = max(own, key=own.get)
    percent = "%.0f%%" % (100 * own[heaviest] / first["endValue"])
    rows = re.findall(r"<tr.*?</tr>", dom, re.S)
    if which == "job":
        assert any(frames[heaviest]["name"] in row and percent in row for row in rows), (frames[heaviest], percent, rows[:3])


HTA = r"""
import json, sys, warnings
warnings.simplefilter("ignore")
from hta.trace_analysis import TraceAnalysis
traces = TraceAnalysis(trace_files={r: sys.argv[1] + "/rank%d.json" % r for r in range(4)}, include_last_profiler_step=True).t
names = traces.symbol_table.get_sym_table()
out = {}
for rank, df in traces.get_all_traces().items():
    df = df.assign(cat=[names[c] for c in df["cat"]], name=[names[n] for n in df["name"]])
    out[rank] = {"iterations": sorted(int(i) for i in df["iteration"].unique() if i >= 0),
                 "us": {c: [int((df["cat"] == c).sum()), float(df.loc[df["cat"] == c, "dur"].sum())] for c in ("forward", "backward", "collective", "optimizer")}}
print(json.dumps(out))
"""


@pytest.mark.slow
def test_hta_loads_the_ranks(job, build, run, sql, tmp_path):
    """HTA loads the ranks, with our steps as its iterations. What it sums up for a rank is what SQL says, except that it cuts times to
    whole microseconds. Its breakdown and stragglers are about GPU kernels, which are not recorded."""
    python = helper("engines-venv.sh")
    if subprocess.run([python, "-c", "import hta"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no HolisticTraceAnalysis in " + python)
    for rank in range(4):
        run([build.tool("probing"), "export", "-q", "-o", tmp_path / ("rank%d.json" % rank), "--ranks", rank, job[1]])
    found = json.loads(run([python, "-c", HTA, tmp_path], timeout=600).stdout.splitlines()[-1])
    for rank in range(4):
        got = found[str(rank)]
        assert set(got["iterations"]) <= {n for n, in sql(job[1], "SELECT step FROM steps WHERE rank = ?", rank)} and len(got["iterations"]) > 10
        for cat, query in (("forward", "torch_call WHERE stage = 0"), ("backward", "torch_call WHERE stage = 1"), ("optimizer", "torch_call WHERE stage = 3"),
                           ("collective", "comm WHERE 1")):
            # HTA leaves out what begins after the last step.
            n, ns = sql(job[1], "WITH mine AS (SELECT id AS trace FROM trace_file WHERE rank = ?), done AS ("
                                "SELECT max(s.ts + s.duration) AS at FROM torch_step s, mine WHERE s.id >> 40 = trace AND source < 3)"
                                " SELECT count(*), sum(duration) FROM mine, done, %s AND id >> 40 = trace AND ts <= at" % query, rank)[0]
            assert got["us"][cat][0] == n and abs(got["us"][cat][1] * 1000 - ns) <= 1100 * n + ns * 0.001, (rank, cat)
