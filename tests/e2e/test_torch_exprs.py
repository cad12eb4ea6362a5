# SPDX-License-Identifier: Apache-2.0
"""--exprs in trainings as people write them, and as Lightning, transformers and accelerate write them: each step has the values that the
program had for it, also those that it assigned after optimizer.step(), and in functions that have returned by then."""
import json
import os
import re

import conftest
import pytest
from test_torch import find_torch

HEAD = """
import json, time, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    def forward(self, x):
        return self.inner(x)
seen = []
model = Model()
opt = torch.optim.SGD(model.parameters(), 0.1)
scheduler = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
data = torch.utils.data.DataLoader(torch.randn(40, 8), batch_size=4)
until = time.monotonic() + 600
while "__init_subclass__" not in vars(nn.Module) and time.monotonic() < until:  # until modules' calls are seen
    time.sleep(0.01)
def number(x):
    return float(x.detach()) if isinstance(x, torch.Tensor) else x
def say(**values):
    seen.append({k: number(v) for k, v in values.items()})
"""

LOOP = """
%sfor epoch in range(2):
%s    for i, x in enumerate(data):
%s        loss = model(x).pow(2).mean()
%s        opt.zero_grad(); loss.backward(); opt.step()
%s        scheduler.step(); lr = scheduler.get_last_lr()[0]
%s        say(loss=loss, lr=lr, i=i, epoch=epoch)
%s    with torch.no_grad(): accuracy = sum(float(model(x).mean()) for x in data)
%s    seen[-1]["accuracy"] = accuracy
"""

CASES = {
    "function": ("def train():" + LOOP.replace("%s", "    ") + "train()\n", "train"),
    "module": (LOOP.replace("%s", ""), "<module>"),
    "step_in_a_function": ("""
def one(x):
    loss = model(x).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    return loss
def train():
    for epoch in range(2):
        for i, x in enumerate(data):
            loss = one(x)
            say(loss=loss, i=i, epoch=epoch)
train()
""", "train"),
    "closure": ("""
class Lit:
    def training_step(self, batch, i):
        loss = self.net(batch).pow(2).mean()
        say(loss=loss, i=i)
        return loss
class Strategy:
    def training_step(self, *args):
        return self.module.training_step(*args)
lit, strategy = Lit(), Strategy()
lit.net, strategy.module = model, lit
with torch.no_grad():
    for x in data: model(x)
for epoch in range(2):
    for i, x in enumerate(data):
        def closure():
            opt.zero_grad()
            loss_ = strategy.training_step(x, i)
            loss_.backward()
            return loss_
        opt.step(closure)
        del closure
""", "training_step"),
    "accumulated": ("""
class Lit:
    def training_step(self, batch):
        loss = model(batch).pow(2).mean()
        seen[len(micro) // 2:] = [dict(loss=number(loss))]
        micro.append(1)
        return loss
lit, micro = Lit(), []
with torch.no_grad():
    for x in data: model(x)
for epoch in range(4):
    for i, x in enumerate(data):
        closure = lambda: lit.training_step(x).backward()
        if i % 2 == 0: closure()
        else: opt.step(closure)
""", "training_step"),
    "returns_before_the_step": ("""
class Trainer:
    def compute_loss(self, x):
        return model(x).pow(2).mean()
    def training_step(self, x):
        loss = self.compute_loss(x)
        loss = loss / 2
        loss.backward()
        return loss.detach()
    def train(self):
        for epoch in range(2):
            for i, x in enumerate(data):
                opt.zero_grad()
                loss_ = self.training_step(x)
                opt.step()
                say(loss=loss_)
Trainer().train()
""", "Trainer.training_step"),
    "branches": ("""
def train():
    for epoch in range(2):
        total = 0
        for i, x in enumerate(data):
            if i % 3 == 1:
                loss = model(x).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
            elif i % 3:
                loss = model(-x).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
            else:
                loss = model(x).abs().mean(); opt.zero_grad(); loss.backward(); opt.step()
            total += i
            say(loss=loss, i=i, epoch=epoch, total=total)
train()
""", "train"),
    "coroutine": ("""
import asyncio
async def train():
    for epoch in range(2):
        for i, x in enumerate(data):
            loss = model(x).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
            await asyncio.sleep(0)
            lr = 0.5 * i
            say(loss=loss, lr=lr, i=i, epoch=epoch)
asyncio.run(train())
""", "train"),
    "attribute": ("""
class Trainer:
    i = lr = 0
    def batch(self, i, x):
        self.i = i
        if i % 2:
            self.loss = model(x).pow(2).mean(); opt.zero_grad(); self.loss.backward(); opt.step()
        else:
            self.loss = model(x).abs().mean(); opt.zero_grad(); self.loss.backward(); opt.step()
        self.lr = 0.5 * i
        say(**{"self.loss": self.loss, "self.lr": self.lr, "self.i": self.i})
    def train(self):
        for epoch in range(2):
            for i, x in enumerate(data): self.batch(i, x)
Trainer().train()
""", "train"),
}
NAMES = ("loss", "lr", "i", "epoch", "accuracy", "total", "self.loss", "self.lr", "self.i")


@pytest.mark.parametrize("kind", ["debian", pytest.param("recent", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", [pytest.param(c, marks=() if c in ("function", "module", "accumulated", "coroutine") else pytest.mark.slow) for c in CASES])
def test_each_step_has_its_values(case, kind, build, tmp_path, sql):
    python, why = find_torch(kind)
    if not python:
        pytest.skip(why)
    script, func = CASES[case]
    trace, db = tmp_path / "t.zst", tmp_path / "t.db"
    names = [n for n in NAMES if re.search(r"(?<![\w.])%s\b" % n, script)]
    done = conftest.run_command(
        [build.tool("probing-record"), "-q", "-r", "10", "-o", trace, "--exprs", ",".join("%s@%s" % (n, func) for n in names), "--",
         python, "-W", "ignore", "-c", HEAD + script + "print('seen', json.dumps(seen))\n"], env=dict(os.environ))
    conftest.run_command([build.tool("probing-convert"), "-q", trace, db])
    seen = json.loads(done.stdout.split("seen ")[1])
    logs = [json.loads(row[0]) for row in sql(db, "SELECT data FROM training_logs ORDER BY step")]
    assert len(logs) == len(seen) == 20
    for n, (want, got) in enumerate(zip(seen, logs)):
        for name, value in want.items():
            assert got.get(name) == pytest.approx(value, rel=1e-6), (n, name, want, got)
    assert sql(db, "SELECT min(step), max(step) FROM training_logs") == [(0, 19)]
    if case == "accumulated":
        assert sql(db, "SELECT count(*) FROM variables") == [(40,)]


WITHOUT_TORCH = """
import asyncio, probing
async def train():
    for k in range(20):
        loss = 2 * k
        probing.step()
        await asyncio.sleep(0)
        lr = k; used = loss
def run():
    for k in range(20):
        loss = 2 * k
        probing.step()
        lr = k; used = loss
%s
"""


@pytest.mark.parametrize("func, call", [("train", "asyncio.get_event_loop_policy().new_event_loop().run_until_complete(train())"), ("run", "run()")])
def test_values_after_the_step_in_each_python(func, call, python, build, tmp_path, sql):
    trace, db = tmp_path / "t.zst", tmp_path / "t.db"
    conftest.run_command([build.tool("probing-record"), "-q", "-o", trace, "--exprs", "loss@%s,lr@%s" % (func, func), "--", python.path,
                          "-W", "ignore", "-c", WITHOUT_TORCH % call], env=dict(os.environ, PYTHONPATH=str(build.share / "python")))
    conftest.run_command([build.tool("probing-convert"), "-q", trace, db])
    assert sql(db, "SELECT step, loss, lr FROM training_logs ORDER BY step") == [(k, 2 * k, k) for k in range(20)]


# A stand-in for what values.py asks of torch where there is a GPU. While the copy of the first value is asked for, another thread ends a step.
GPU = """
import ctypes, sys, threading, time, types
import probing
class Tensor:
    layout, dtype, shape, is_quantized, device = "strided", "torch.float32", (1,), False, types.SimpleNamespace(type="cuda")
    def numel(self): return 1
    def is_complex(self): return False
    def detach(self): return self
    def reshape(self, n): return self
class Host:
    def __init__(self): self.it = ctypes.c_float(1.5)
    def copy_(self, other, non_blocking): pass
    def data_ptr(self): return ctypes.addressof(self.it)
class Event:
    asked = False
    def record(self, stream): pass
    def query(self):
        if not Event.asked:
            Event.asked = True
            in_another_thread(probing.step)
        return True
class Within:
    def __init__(self, *args): pass
    def __enter__(self): pass
    def __exit__(self, *args): pass
torch = types.ModuleType("torch")
torch.Tensor, torch.strided, torch.float32, torch.no_grad, torch.empty = Tensor, "strided", "torch.float32", Within, lambda *a, **k: Host()
torch.nn, torch._C = types.SimpleNamespace(Parameter=Tensor), types.SimpleNamespace(DisableTorchFunction=Within)
torch.cuda = types.SimpleNamespace(device=Within, Event=Event, current_stream=lambda device: None, is_current_stream_capturing=lambda: False)
sys.modules["torch"] = torch
def value(): return Tensor()
"""

# While its value is read, another thread changes the setting and ends a step, which reads the setting again.
CHANGED = """
import threading, time
import probing
class Value:
    second = 1.5
    @property
    def first(self):
        if probing.config("torch.exprs") != "k@train":
            probing.config("torch.exprs", "k@train")
            in_another_thread(probing.step)
        return self
value = Value
"""

STEPS = """
def in_another_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
def train():
    for k in range(20):
        loss = value()
        probing.step()
while not probing.is_recording(): time.sleep(0.01)
train()
"""


@pytest.mark.parametrize("source, expr, names", [(GPU, "loss", {"loss": 19}), (CHANGED, "loss.first.second", {"loss.first.second": 1, "k": 19})],
                         ids=["values of a GPU", "settings"])
def test_two_threads_at_once(source, expr, names, build, record, convert, sql):
    """The program's code runs while values are read, and other threads then: a value is recorded once, and freed once."""
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    done = record(source + STEPS, options=["-q", "--exprs", expr + "@train"], env=env)
    got = dict(sql(convert(done.trace), "SELECT name, count(*) FROM variables WHERE at = 'step' GROUP BY name"))
    assert got == names


@pytest.mark.parametrize("kind, value", [("int64", (1 << 53) + 1), ("bool", 0), ("float32", 1.5)])
def test_a_value_of_a_gpu(kind, value, build, record, convert, sql):
    source = GPU.replace("torch.float32\", (1,)", "torch.%s\", (1,)" % kind).replace("c_float(1.5)", "c_%s(%r)" % (kind.replace("float32", "float"), value))
    done = record(source + STEPS, options=["-q", "--exprs", "loss@train"], env=dict(os.environ, PYTHONPATH=str(build.share / "python")))
    assert sql(convert(done.trace), "SELECT DISTINCT value, typeof(value) FROM variables") == [(value, "real" if value == 1.5 else "integer")]


INTEGERS = """
def train():
    for k in range(10):
        most, least = torch.tensor((1 << 63) - 1 - k), torch.tensor(-(1 << 53) - 1 - k)
        byte, short, true = (torch.tensor(v, dtype=t) for v, t in ((200 + k, torch.uint8), (-300 - k, torch.int16), (k > 4, torch.bool)))
        opt.zero_grad(); model(torch.ones(8)).backward(); opt.step()
train()
"""


@pytest.mark.parametrize("kind", ["debian", pytest.param("recent", marks=pytest.mark.slow)])
def test_integers_have_all_their_digits(kind, build, tmp_path, sql):
    python, why = find_torch(kind)
    if not python:
        pytest.skip(why)
    trace, db = tmp_path / "t.zst", tmp_path / "t.db"
    conftest.run_command([build.tool("probing-record"), "-q", "-r", "10", "-o", trace, "--exprs", "most@train,least@train,byte@train,short@train,true@train", "--",
                          python, "-W", "ignore", "-c", HEAD + INTEGERS])
    conftest.run_command([build.tool("probing-convert"), "-q", trace, db])
    assert [json.loads(row[0]) for row in sql(db, "SELECT data FROM training_logs ORDER BY step")] == [
        {"most": (1 << 63) - 1 - k, "least": -(1 << 53) - 1 - k, "byte": 200 + k, "short": -300 - k, "true": int(k > 4)} for k in range(10)]


FRAMEWORK = """
import probing
class Loop:
    def fit(self):
        lr = -1
        probing.step()
class Trainer:
    def fit(self):
        for k in range(5):
            lr = 2 * k
            Loop().fit()
"""


def test_a_method_of_a_package(python, build, tmp_path, sql):
    """It is the method of that class, and no other's of that name. Before 3.11 no frame knows its function's class: the class is searched for, also in packages."""
    trace, db, package = tmp_path / "t.zst", tmp_path / "t.db", tmp_path / "site-packages" / "framework.py"
    package.parent.mkdir()
    package.write_text(FRAMEWORK)
    conftest.run_command([build.tool("probing-record"), "-q", "-o", trace, "--exprs", "lr@Trainer.fit", "--", python.path, "-c",
                          "import framework; framework.Trainer().fit()"],
                         env=dict(os.environ, PYTHONPATH="%s:%s" % (package.parent, build.share / "python")))
    conftest.run_command([build.tool("probing-convert"), "-q", trace, db])
    assert sql(db, "SELECT step, lr FROM training_logs ORDER BY step") == [(k, 2 * k) for k in range(5)]


BY_HAND = {
    "loss@train": """
def train():
    for k in range(20):
        loss = model(torch.ones(2, 8)).pow(2).mean(); loss.backward()
        say(loss=loss)
        update()
train()
""",
    "loss@train_step": """
def train_step():
    loss = model(torch.ones(2, 8)).pow(2).mean(); loss.backward()
    say(loss=loss)
    update()
for k in range(20): train_step()
""",
    "self.loss@one_batch": """
class Learner:
    def one_batch(self, x):
        self.loss = model(x).pow(2).mean()
        if model.training:
            self.loss.backward()
            say(loss=self.loss)
            update()
learner = Learner()
for k in range(20):
    model.train()
    learner.one_batch(torch.ones(2, 8))
    if k % 5 == 4:
        model.eval()
        with torch.no_grad():
            for _ in range(3): learner.one_batch(torch.zeros(2, 8))
""",
}


@pytest.mark.parametrize("expr", BY_HAND)
def test_a_training_that_steps_by_hand(expr, build, tmp_path, sql):
    """A step is known to have ended only when the next one begins, and `loss` is then still the value that the step gave it, unless its function
    has returned: then its value is the one at the return (Keras's train_step). So is the last step's, whose end is not seen. What the same function
    returns in evaluation (fastai's) is no step's."""
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    head = "".join(line for line in HEAD.splitlines(True) if not line.startswith(("opt =", "scheduler =")))
    script = head + """
def update():
    with torch.no_grad():
        for p in model.parameters(): p -= 0.1 * p.grad
    model.zero_grad()
""" + BY_HAND[expr] + "print('seen', json.dumps([row['loss'] for row in seen]))\n"
    trace, db = tmp_path / "t.zst", tmp_path / "t.db"
    done = conftest.run_command([build.tool("probing-record"), "-q", "-r", "10", "-o", trace, "--exprs", expr, "--",
                                 python, "-W", "ignore", "-c", script])
    conftest.run_command([build.tool("probing-convert"), "-q", trace, db])
    seen = json.loads(done.stdout.split("seen ")[1])
    assert len(set(seen)) > 10
    assert sql(db, "SELECT step, loss FROM training_logs ORDER BY step") == [(n, pytest.approx(loss, rel=1e-6)) for n, loss in enumerate(seen)]


ALSO_EVALUATES = """
class Learner:
    def one_batch(self, x):
        loss = self.loss = model(x).pow(2).mean()
        %s
        return loss
def train(loss):
    opt.zero_grad(); loss.backward(); say(loss=loss); opt.step()
learner = Learner()
for k in range(20):
    model.train()
    loss = learner.one_batch(torch.ones(2, 8))
    %s
    if k %% 5 == 4:
        model.eval()
        with torch.no_grad():
            for _ in range(3): learner.one_batch(torch.zeros(2, 8))
print('seen', json.dumps([row['loss'] for row in seen]))
"""


@pytest.mark.parametrize("name", ["loss", "self.loss"])
@pytest.mark.parametrize("step", ["within", "after"])
def test_a_function_that_also_evaluates(step, name, build, tmp_path, sql):
    """What it returns in evaluation is not the last step's, whether it makes the step itself or has returned before it (transformers' compute_loss)."""
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    script = HEAD + ALSO_EVALUATES % (("if model.training: train(loss)", "pass") if step == "within" else ("pass", "train(loss)"))
    trace, db = tmp_path / "t.zst", tmp_path / "t.db"
    done = conftest.run_command([build.tool("probing-record"), "-q", "-r", "10", "-o", trace, "--exprs", name + "@one_batch", "--",
                                 python, "-W", "ignore", "-c", script])
    conftest.run_command([build.tool("probing-convert"), "-q", trace, db])
    seen = json.loads(done.stdout.split("seen ")[1])
    assert len(set(seen)) > 10
    assert sql(db, "SELECT step, loss FROM training_logs ORDER BY step") == [(n, pytest.approx(loss, rel=1e-6)) for n, loss in enumerate(seen)]


OF_CLASSES = """
class Named(torch.Tensor):  # as fastai's TensorBase
    pass
class Wrapped(torch.Tensor):  # as DTensor: no element lies where its own data_ptr() says
    @staticmethod
    def __new__(cls, inner):
        self = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        self.inner = inner
        return self
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise AssertionError("an operator was called: %s" % function)
def train():
    for x in data:
        plain = model(x).pow(2).mean()
        opt.zero_grad(); plain.backward()
        named = plain.as_subclass(Named)
        row, wrapped, p = torch.ones(3).as_subclass(Named), Wrapped(torch.ones(())), torch.nn.Parameter(plain.detach())
        say(plain=plain)
        opt.step()
train()
print('seen', json.dumps(seen))
"""


@pytest.mark.parametrize("kind", ["debian", pytest.param("recent", marks=pytest.mark.slow)])
def test_a_tensor_of_a_class_of_its_own(kind, build, tmp_path, sql):
    """It is a number as torch.Tensor is, unless its class has operators of its own."""
    python, why = find_torch(kind)
    if not python:
        pytest.skip(why)
    trace, db = tmp_path / "t.zst", tmp_path / "t.db"
    exprs = ",".join(name + "@train" for name in ("named", "row", "wrapped", "p"))
    done = conftest.run_command([build.tool("probing-record"), "-q", "-r", "10", "-o", trace, "--exprs", exprs, "--", python, "-W", "ignore", "-c",
                                 HEAD + OF_CLASSES])
    conftest.run_command([build.tool("probing-convert"), "-q", trace, db])
    seen = [row["plain"] for row in json.loads(done.stdout.split("seen ")[1])]
    logs = [json.loads(row[0]) for row in sql(db, "SELECT data FROM training_logs ORDER BY step")]
    assert len(seen) == 10 and logs == [{"named": pytest.approx(v, rel=1e-6), "p": pytest.approx(v, rel=1e-6), "row": "<Named float32 (3) cpu>",
                                         "wrapped": "<Wrapped ()>"} for v in seen]


def test_a_profiler_of_the_programs_own_stays(build, tmp_path):
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    script = HEAD + """
import sys
calls = []
def mine(frame, what, arg): calls.append(what)
def train():
    for k in range(12):
        if k == 4: sys.setprofile(mine)
        if k == 8: sys.setprofile(None)
        loss = model(torch.ones(2, 8)).sum(); loss.backward(); opt.step()
        lr = 0.5 * k
        if k == 1:
            old = sys.getprofile(); sys.setprofile(mine); sys.setprofile(old)
        assert k not in (4, 5, 6, 7) or sys.getprofile() is mine, k
train()
assert len(calls) > 100 and sys.getprofile() is None
def f(): return 1
f()
print("fine")
"""
    done = conftest.run_command([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", "--exprs", "lr@train,loss@train", "--",
                                 python, "-W", "ignore", "-c", script])
    assert done.stdout == "fine\n"


@pytest.mark.parametrize("expr, steps, says", [("nope@train", 3, "--exprs: nope@train had no value"),
                                               ("nope@train,k@train,i@nowhere", 3, "--exprs: nope@train, i@nowhere had no value"), ("k@train", 3, ""),
                                               ("k@train", 0, "--exprs: nothing was recorded")])
def test_what_has_no_value_is_said(expr, steps, says, build, tmp_path):
    script = "import probing\ndef train():\n    for k in range(%d): probing.step()\ntrain()\n" % steps
    done = conftest.run_command([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", "--exprs", expr, "--", "/usr/bin/python3", "-c", script],
                                env=dict(os.environ, PYTHONPATH=str(build.share / "python")))
    assert (says in done.stderr) if says else not done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == bool(says)
