# SPDX-License-Identifier: Apache-2.0
"""PyTorch: what recording must not change (losses of the benchmark's models; a step while recording is off), and the real GradScaler; with
both torches. tests/bench measures what recording costs."""
import os
import pathlib

import conftest
import pytest
from test_torch import NEWEST, before_torch2, find_torch, said

BENCH = pathlib.Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture(params=["debian", "recent", NEWEST])
def any_torch(request):
    path, why = find_torch(request.param)
    if not path:
        pytest.skip(why)
    return path


@pytest.fixture(params=["debian", pytest.param("recent", marks=pytest.mark.slow), NEWEST])
def python_torch(request):
    path, why = find_torch(request.param)
    if not path:
        pytest.skip(why)
    return path


def run_text(python, tmp_path, text, *args, **kw):
    script = tmp_path / "script.py"
    script.write_text(text)
    prefix = kw.pop("prefix", [])
    env = dict(os.environ, **{k: str(v) for k, v in kw.pop("env", {}).items()})
    return conftest.run_command([str(x) for x in prefix] + [python, "-W", "ignore", str(script)] + list(args), timeout=240, env=env,
                                cwd=str(tmp_path), **kw)


def recorder(build, trace, *options):
    return [build.tool("probing-record"), "-q", "-o", trace] + list(options) + ["--"]


# ---- numbers --------------------------------------------------------------------------------------------------

MODELS = """
import hashlib, json, sys, time
import torch
sys.path.insert(0, sys.argv[1])
import torch_cost
torch.set_num_threads(1)
recorded = any("libprobing-agent.so" in line for line in open("/proc/self/maps"))
while recorded and "__init_subclass__" not in vars(torch.nn.Module): time.sleep(0.01)  # until modules' calls are seen
torch.use_deterministic_algorithms(True)
for name, steps in (("transformer", 6), ("conv", 6), ("mlp", 4), ("transformer-small", 10), ("conv-small", 10)):
    torch.manual_seed(7)
    model, loss = torch_cost.models()[name]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.item().hex())
    weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() + p.grad.numpy().tobytes() for p in model.parameters()))
    print("bits", json.dumps([name, losses, weights.hexdigest(), torch.rand(1).item().hex()]), flush=True)
"""


@pytest.mark.limit(300)
@pytest.mark.parametrize("any_torch", ["debian", "recent", NEWEST], indirect=True)
@pytest.mark.slow
def test_models_of_the_bench_bit_for_bit(build, any_torch, tmp_path, convert, sql):
    """Losses, weights, gradients and the final state of the random number generator are the same."""
    without = run_text(any_torch, tmp_path, MODELS, str(BENCH))
    trace = tmp_path / "t.zst"
    done = run_text(any_torch, tmp_path, MODELS, str(BENCH), prefix=recorder(build, trace, "-r", "100"))
    assert said(done.stdout, "bits") == said(without.stdout, "bits")
    assert len(said(done.stdout, "bits")) == 5 and done.stderr == without.stderr
    db = convert(trace)
    # The compared training was recorded: 500 layers and their Sequential, 4 steps.
    rows = sql(db, "SELECT count(*) FROM torch_trace WHERE module GLOB '*.499' AND stage = 'forward'")
    assert rows == [(4,)]
    assert sql(db, "SELECT count(*) FROM steps WHERE optimizers = 1") == [(36,)]


# ---- loaded, and recording nothing ----------------------------------------------------------------------------

OFF = """
import ctypes, glob, json, os, sys, threading, time
import torch
from torch import nn
import torch.distributed
try:
    import probing
except ImportError:
    probing = None
torch.set_num_threads(1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
    def forward(self, x):
        return self.lin(x)

class Callable:
    def __call__(self):
        pass

class DlInfo(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("base", ctypes.c_void_p), ("symbol", ctypes.c_char_p), ("at", ctypes.c_void_p)]

def library_of(address):
    info = DlInfo()
    ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(info))
    return os.path.basename((info.name or b"").decode()).split(".")[0]

def word(address):
    return ctypes.c_void_p.from_address(address).value

def state():
    # Of every class the slot of calls (128: tp_call), of the engine's method its function (40 in the descriptor, 8 in its
    # definition), torch's own word on callbacks, and what else could run in a step.
    cpu = next(line.split()[-1] for line in open("/proc/self/maps") if "/libtorch_cpu.so" in line)
    has = getattr(ctypes.CDLL(cpu), "_ZN2at18hasGlobalCallbacksEv")
    has.restype = ctypes.c_bool
    ours = word(id(Callable) + 128)
    classes, todo = [], [nn.Module]
    while todo:
        one = todo.pop()
        classes.append(one)
        todo += type.__subclasses__(one)
    timers = [line for line in open("/proc/self/timers") if line.startswith("ID")]
    return {"slots": sum(word(id(c) + 128) != ours for c in classes), "classes": len(classes) > 100,
            "new classes": "__init_subclass__" in vars(nn.Module),
            "engine": library_of(word(word(id(vars(torch._C._ImperativeEngine)["run_backward"]) + 40) + 8)),
            "callbacks": has(), "timers": len(timers), "profile": sys.getprofile() is not None,
            "trace": sys.gettrace() is not None}

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def train(n):
    for _ in range(n):
        optimizer.zero_grad()
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        time.sleep(0.002)
def until(ask):
    end = time.monotonic() + 600
    while not ask() and time.monotonic() < end:
        train(5)
        time.sleep(0.01)
train(100)
time.sleep(0.5)
train(10)
print("state", json.dumps(state()), flush=True)
if probing is not None and probing.is_recording() and sys.argv[1] == "switch":
    probing.config("torch.profiling", "on")
    until(lambda: state()["slots"] and state()["callbacks"])
    train(5)
    print("state", json.dumps(state()), flush=True)
    probing.config("torch.profiling", "off")
    until(lambda: not state()["slots"] and not state()["callbacks"])
    print("state", json.dumps(state()), flush=True)
"""


def test_off_nothing_of_ours_is_in_a_step(build, python_torch, tmp_path, convert, sql):
    """If the agent is loaded and off, it costs nothing because nothing of it is in a step: no slot, no callback, no timer, no Python
    profiler."""
    without = said(run_text(python_torch, tmp_path, OFF, "no").stdout, "state")[0]
    assert (without["slots"], without["new classes"], without["callbacks"], without["timers"]) == (0, False, False, 0)
    env = {"PYTHONPATH": build.share / "python", "PROBING_TORCH_PROFILING": "off", "PROBING_SAMPLE_RATE": "0"}
    trace = tmp_path / "t.zst"
    done = run_text(python_torch, tmp_path, OFF, "switch", env=env, prefix=recorder(build, trace))
    before, on, after = said(done.stdout, "state")
    assert before == without
    assert on["slots"] > 100 and on["callbacks"] and on["new classes"] and on["engine"] != without["engine"], on
    assert after == without
    assert sql(convert(trace), "SELECT count(*) > 0 FROM torch_trace") == [(1,)]  # recorded between the two times


# ---- steps that a scaler skips --------------------------------------------------------------------------------

SCALER = """
import json, time, torch
from torch import nn
torch.set_num_threads(1)
while "__init_subclass__" not in vars(nn.Module): time.sleep(0.01)  # until modules' calls are seen
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 1)
    def forward(self, x):
        return self.lin(x)
model = Scaled()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
scales = []
for i in range(6):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.full((2, 4), float("inf") if i in (1, 4) else 1.0)).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    scales.append(scaler.get_scale())
print("scales", json.dumps(scales), flush=True)
"""


def test_a_real_scalers_skipped_steps(build, tmp_path, convert, sql):
    """The scaler does not call the optimizer when a gradient is infinite: what was done so far belongs to the next step."""
    python, why = find_torch("recent")  # before 2.3 a GradScaler without CUDA does nothing
    if not python:
        pytest.skip(why)
    trace = tmp_path / "t.zst"
    done = run_text(python, tmp_path, SCALER, prefix=recorder(build, trace))
    assert said(done.stdout, "scales") == [[1024, 512, 512, 512, 256, 256]]
    db = convert(trace)
    rows = sql(db, "SELECT step, forwards, backwards, optimizers, source FROM steps WHERE complete ORDER BY step")
    assert rows == [(0, 1, 1, 1, "optimizer"), (1, 2, 2, 1, "optimizer"), (2, 1, 1, 1, "optimizer"), (3, 2, 2, 1, "optimizer")]


# ---- backward passes that fail, once nodes are seen without a callback --------------------------------------------

FAILING = """
import torch, time
from torch import nn
torch.set_num_threads(1)
while "__init_subclass__" not in vars(nn.Module): time.sleep(0.01)  # until modules' calls are seen
class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, fail):
        ctx.fail = fail
        return x * 2
    @staticmethod
    def backward(ctx, g):
        if ctx.fail:
            raise ValueError("no")
        return g * 2, None
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.fail = nn.Linear(4, 4), nn.Linear(4, 4), False
    def forward(self, x):
        return self.b(Bad.apply(self.a(x), self.fail))
net = Net()
for i in range(300):
    net.fail = i > 150 and i % 10 == 0
    y = net(torch.ones(2, 4)).sum()
    try:
        y.backward()
        if i > 150 and i % 10 == 5:
            y.backward()  # the graph's buffers are gone: an error of C++ in b's node
    except (ValueError, RuntimeError):
        pass
    time.sleep(0.002)
h = net.a(torch.ones(2, 4))
torch.autograd.grad(h.sum(), h)  # runs no node of a's
"""


def test_backward_passes_that_fail(build, python_torch, tmp_path, convert, sql):
    """A node that raises, a graph that is used twice, and a node that is asked for and not run: all counts are exact."""
    trace = tmp_path / "t.zst"
    run_text(python_torch, tmp_path, FAILING, prefix=recorder(build, trace))
    db = convert(trace)
    assert sql(db, "SELECT count(*) FROM notes WHERE text LIKE '%where the engine calls them'") == [(1,)]
    assert sql(db, "SELECT module, count(*) FROM torch_trace WHERE stage = 'backward' GROUP BY 1") == [
        ("Net", 315), ("Net.a", 286), ("Net.b", 315)]


# ---- a PyTorch that is not as expected ------------------------------------------------------------------------

UNKNOWN = """
import ctypes, json, sys, time
import torch, probing
from torch import nn
torch.set_num_threads(1)
# autograd's nodes are no longer given their numbers: the function that takes name and number returns at once.
cpu = next(line.split()[-1] for line in open("/proc/self/maps") if "/libtorch_cpu.so" in line)
before = None
for name in sys.argv[1:]:
    before = before or getattr(ctypes.CDLL(cpu), name, None)
at = ctypes.cast(before, ctypes.c_void_p).value
libc = ctypes.CDLL(None)
assert libc.mprotect(ctypes.c_void_p(at & ~4095), ctypes.c_size_t(8192), 7) == 0
ctypes.memmove(at, b"\\xf3\\x0f\\x1e\\xfa\\xc3", 5)
probing.enable(trace="t.zst")
net = nn.Sequential(nn.Linear(4, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
end = time.monotonic() + 600
while "__init_subclass__" not in vars(nn.Module) and time.monotonic() < end:
    time.sleep(0.01)
for _ in range(5):
    optimizer.zero_grad()
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""
BEFORE = ["_ZN2at14RecordFunction6beforeEPKcl",
          "_ZN2at14RecordFunction6beforeESt7variantIJSt17basic_string_viewIcSt11char_traitsIcEESt17reference_wrapperIKN3c1014FunctionSchemaEEEEl"]


def test_backward_is_off_where_calibration_fails(build, python_torch, tmp_path, convert, sql):
    """One note says why; everything else is recorded."""
    run_text(python_torch, tmp_path, UNKNOWN, *BEFORE, env={"PYTHONPATH": build.share / "python"})
    db = convert(tmp_path / "t.zst")
    notes = [text for text, in sql(db, "SELECT text FROM notes WHERE part = 'torch'")]
    assert len([t for t in notes if "found 0 times where it should be found once" in t]) == 1, notes
    assert any(t.endswith("backward of modules off") for t in notes) and len(notes) == 2, notes
    assert sql(db, "SELECT stage, module, count(*) FROM torch_trace GROUP BY 1, 2") == [
        ("forward", "Sequential", 5), ("forward", "Sequential.0", 5)]
    assert sql(db, "SELECT sum(backwards), min(backward > 0) FROM steps") == [(5, 1)]
    if before_torch2(python_torch):  # from 2.0 on the same function also handles the optimizers' names
        assert sql(db, "SELECT count(*) FROM steps WHERE complete AND optimizers = 1") == [(5,)]
