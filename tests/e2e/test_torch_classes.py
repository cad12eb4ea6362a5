# SPDX-License-Identifier: Apache-2.0
"""What a program does with nn.Module itself, or with calls of modules in greenlets, goes on as without the recording."""
import os
import subprocess

import pytest
from test_torch import find_torch
from test_torch_exit import IS_RECORDED

# `was` may be called long after our function has left nn.Module.
CLASSES = """
import sys, time, torch
import probing
from torch import nn
""" + IS_RECORDED + """
seen = []
def of_our_own(cls, **kw): seen.append(cls.__name__)
def replace(chain):
    was = vars(nn.Module).get("__init_subclass__") if chain else None
    def both(cls, **kw):
        of_our_own(cls)
        if was is not None: was.__get__(None, cls)(**kw)
    nn.Module.__init_subclass__ = classmethod(both)
if sys.argv[1] == "before": replace(False)
probing.enable_torch_profiling()
while not is_recorded(): time.sleep(0.01)
if sys.argv[1] != "before": replace(sys.argv[1] == "around")
class First(nn.Module): pass
probing.disable_torch_profiling()
while is_recorded(): time.sleep(0.01)
class Second(nn.Module): pass
print(seen)
"""


@pytest.mark.parametrize("when", ["around"] + [pytest.param(when, marks=pytest.mark.slow) for when in ("before", "after")])
def test_a_hook_of_the_program_for_new_classes(build, record, when):
    """nn.Module.__init_subclass__, set before the recording, or meanwhile, with or without a call of the function that was there: ours."""
    path, why = find_torch("debian")
    if not path:
        pytest.skip(why)
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    assert record(CLASSES, when, python=path, options=["-q", "--torch", "off"], env=env).stdout == "['First', 'Second']\n"


GREENLETS = """
import gc, greenlet, time, torch
from torch import nn
""" + IS_RECORDED + """
class Pause(nn.Module):
    def forward(self, x):
        greenlet.getcurrent().parent.switch()
        return x
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
    def forward(self, x): return self.layer(x)
while not is_recorded(): time.sleep(0.01)
x, kept = torch.ones(4), []
def overlapping():
    models = Pause(), Pause()
    calls = [greenlet.greenlet(m) for m in models]
    for call in calls + calls: call.switch(x)
    assert all(call.dead for call in calls)
overlapping()
gc.collect()
for _ in range(20):
    kept.append([bytearray(b"A" * n) for n in range(16, 512, 8) for _ in range(20)])  # where the models were
    net = Net()
    kept.append(net)
    for _ in range(3): net(x)
"""


def test_calls_that_overlap(record, convert, sql):
    """Two greenlets of one thread are in calls of models at once, and the first ends before the second, which began within it. Once they and their
    models are gone, nothing refers to them."""
    path, why = find_torch("debian")
    if path and subprocess.run([path, "-c", "import greenlet"], stderr=subprocess.DEVNULL).returncode:
        path, why = None, "no greenlet beside that torch"
    if not path:
        pytest.skip(why)
    db = convert(record(GREENLETS, python=path).trace)
    calls = sql(db, "SELECT sum(calls) FROM torch_modules WHERE stage = 'forward' AND module GLOB 'Net*' AND module NOT GLOB '*.*'")
    assert calls == [(60,)]


TRACED = """
import time, torch
from torch import fx, nn
""" + IS_RECORDED + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x): return self.b(self.a(x))
while not is_recorded(): time.sleep(0.01)
for _ in range(3):
    net = fx.symbolic_trace(Net())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(10):
        net(torch.ones(4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_classes_whose_call_is_assigned_after_they_are_made(record, convert, sql):
    """torch.fx does so with the class of each model that it traces. Until the first call of the model begins, this cannot be seen; then it is one call
    again, not one of each of its parts."""
    path, why = find_torch("debian")
    if not path:
        pytest.skip(why)
    db = convert(record(TRACED, python=path).trace)
    forwards = [n for n, in sql(db, "SELECT forwards FROM steps WHERE source = 'optimizer' ORDER BY step")]
    assert len(forwards) == 30 and {n for i, n in enumerate(forwards) if i % 10} == {1}, forwards
