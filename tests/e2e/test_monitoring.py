# SPDX-License-Identifier: Apache-2.0
"""Values at a function's return (sys.monitoring, Python 3.12 and later) beside other tools that use it, and with torch.compile."""
import json

import pytest
from conftest import choose_pythons
from test_torch_bars import recorder, run_text
from test_torch import find_torch, said

NEW = choose_pythons(min=(3, 12))
EACH = pytest.mark.parametrize("interpreter", NEW[-1:] + [pytest.param(p, marks=pytest.mark.slow) for p in NEW[:-1]],
                               ids=[p.name for p in NEW[-1:] + NEW[:-1]])

# A tool that counts the events that it is told, also of the code that we watch, with every tool id that PEP 669 names.
TOOLS = """
import cProfile, json, sys
import probing
m = sys.monitoring
counts = {}
def validate(n):
    acc = n / 4
    return acc
def train(n):
    loss = 1.0 / (n + 1)
    validate(n)
    probing.step()
    return loss
def told(tool, event):
    def count(*args):
        key = "%d %s" % (tool, event)
        counts[key] = counts.get(key, 0) + 1
    return count
def begin(tool):
    m.use_tool_id(tool, "tool %d" % tool)
    for event in ("PY_RETURN", "PY_START", "LINE"):
        m.register_callback(tool, getattr(m.events, event), told(tool, event))
    m.set_local_events(tool, validate.__code__, m.events.PY_RETURN | m.events.PY_START | m.events.LINE)
def end(tool):
    m.set_local_events(tool, validate.__code__, 0)
    m.free_tool_id(tool)
def steps(n):
    for i in range(n):
        train(i)
def ours():
    return [tool for tool in range(6) if m.get_tool(tool) == "probing"]

first = [int(c) for c in sys.argv[1]]
for tool in first:
    begin(tool)
steps(4)
print("ours", json.dumps(ours()), flush=True)
for tool in (0, 1, 2, 5):
    begin(tool)
steps(4)
for tool in [0, 1, 2, 5] + first:
    end(tool)
with cProfile.Profile() as profile:
    steps(4)
print("counts", json.dumps([counts, sum(e.callcount for e in profile.getstats() if e.code is validate.__code__)]), flush=True)
path = probing.trace()
probing.disable()
steps(2)
print("ours", json.dumps(ours()), flush=True)
if path:
    probing.enable(trace=path.replace("t.zst", "again.zst"))
steps(2)
print("ours", json.dumps(ours()), flush=True)
"""
EXPRS = ["--exprs", "acc@validate,loss@train"]


def values(sql, db):
    return sql(db, "SELECT name, value FROM variables WHERE at = 'return' ORDER BY name, timestamp")


@EACH
def test_beside_other_tools(build, interpreter, tmp_path, convert, sql):
    """The other tools are told the same as without us, and find their ids free."""
    env = {"PYTHONPATH": build.share / "python"}
    without = run_text(interpreter.path, tmp_path, TOOLS, "", env=env)
    done = run_text(interpreter.path, tmp_path, TOOLS, "", env=env, prefix=recorder(build, tmp_path / "t.zst", *EXPRS))
    assert said(done.stdout, "counts") == said(without.stdout, "counts") and said(done.stdout, "counts")[0][1] == 4
    assert said(done.stdout, "counts")[0][0]["1 PY_RETURN"] == 4
    assert said(done.stdout, "ours") == [[4], [], [4]]  # the recording has ended, so we do not use an id either
    assert done.stderr == without.stderr == ""
    db = convert(tmp_path / "t.zst")
    want = [("acc", n / 4) for _ in range(3) for n in range(4)]
    # Functions that run before the first step has ended are not watched yet, such as validate's first call.
    got = values(sql, db)
    assert [v for v in got if v[0] == "acc"] == want[1:], got
    assert [v for v in got if v[0] == "loss"] == [("loss", 1 / (n + 1)) for _ in range(3) for n in range(4)]
    assert values(sql, convert(tmp_path / "again.zst", out=tmp_path / "again.db"))[-1] == ("loss", 0.5)


@EACH
def test_where_no_number_is_free(build, interpreter, tmp_path, convert, sql):
    env = {"PYTHONPATH": build.share / "python"}
    without = run_text(interpreter.path, tmp_path, TOOLS, "34", env=env)
    done = run_text(interpreter.path, tmp_path, TOOLS, "34", env=env, prefix=recorder(build, tmp_path / "t.zst", *EXPRS))
    assert said(done.stdout, "counts") == said(without.stdout, "counts")
    assert said(done.stdout, "ours")[0] == []
    # No step ends within validate(), so its value could come only from its return.
    assert done.stderr.count("\n") == 1 and "acc@validate had no value" in done.stderr
    db = convert(tmp_path / "t.zst")
    assert [t for t, in sql(db, "SELECT text FROM notes WHERE part = 'variables' AND text LIKE 'values at a return%'")] == [
        "values at a return are not recorded: no number of sys.monitoring is free"]
    assert sql(db, "SELECT count(*) FROM variables WHERE at = 'step' AND name = 'loss'") == [(12,)]


COMPILED = """
import json, sys
import torch
import torch._dynamo as dynamo
from torch import nn
torch.set_num_threads(1)
graphs = []
def count(gm, inputs):
    graphs.append(len(gm.graph.nodes))
    return dynamo.lookup_backend("aot_eager")(gm, inputs)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        inner = torch.relu(self.a(x))
        return self.b(inner)
@torch.compile(backend=count)
def criterion(out):
    scaled = out * 2
    return scaled.sum()
torch.manual_seed(1)
net = Net()
model = torch.compile(net, backend=count, fullgraph=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
losses = []
def validate(x):
    with torch.no_grad():
        acc = criterion(model(x)).item()
    return acc
def train(x):
    optimizer.zero_grad()
    loss = criterion(model(x))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    return loss
for i in range(8):
    train(torch.randn(2, 4))
    losses.append(validate(torch.ones(2, 4)))
print("graphs", json.dumps(graphs), flush=True)
print("breaks", json.dumps({k: dict(v) for k, v in dynamo.utils.counters.items() if k in ("graph_break", "unimplemented", "stats", "frames")}))
print("losses", json.dumps([v.hex() for v in losses]), flush=True)
"""


@pytest.mark.slow
def test_with_torch_compile(build, tmp_path, convert, sql):
    """Watching the returns of functions, also of compiled ones (inner@forward, scaled@criterion), changes no graph."""
    python, why = find_torch("sid")
    if not python:
        pytest.skip(why)
    without = run_text(python, tmp_path, COMPILED)
    done = run_text(python, tmp_path, COMPILED, prefix=recorder(
        build, tmp_path / "t.zst", "--exprs", "loss@train,acc@validate,inner@forward,scaled@criterion"))
    for what in ("graphs", "breaks", "losses"):
        assert said(done.stdout, what) == said(without.stdout, what) != [], what
    assert len(said(done.stdout, "graphs")[0]) >= 2 and done.stderr == without.stderr
    db = convert(tmp_path / "t.zst")
    losses = [float.fromhex(v) for v in json.loads(without.stdout.split("losses ")[1])]
    got = values(sql, db)
    assert [v for v in got if v[0] == "loss"] == [("loss", pytest.approx(v)) for v in losses[::2]], got
    assert [v for v in got if v[0] == "acc"] == [("acc", pytest.approx(v)) for v in losses[1::2]], got
    assert sql(db, "SELECT count(*) FROM variables WHERE at = 'step' AND name = 'loss'") == [(8,)]
