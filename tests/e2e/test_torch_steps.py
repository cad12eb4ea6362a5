# SPDX-License-Identifier: Apache-2.0
"""PyTorch: step N is the N-th step of the optimizer, however the training is written, and evaluation is no step."""
import conftest
import pytest
from test_torch import before_torch2, find_torch

HEAD = """
import sys, time, torch
from torch import nn
torch.set_num_threads(1)
N = 20
def net():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
x = torch.ones(4, 8)
end = time.monotonic() + 600
slot = nn.Module.__dict__.get
while not slot("__init_subclass__") and time.monotonic() < end:  # until modules' calls are seen
    time.sleep(0.01)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = net()
    def forward(self, x):
        return self.inner(x)
m = Model()
@torch.no_grad()
def evaluate(n, m=m, pause=0):
    m.eval()
    for i in range(n):
        m(x); time.sleep(pause)
    m.train()
@torch.no_grad()
def by_hand():
    for p in m.parameters():
        p -= 0.01 * p.grad; p.grad = None
"""
OPTIMIZER = """
opt = torch.optim.SGD(m.parameters(), 0.01)
def train(m=m, opt=opt, n=N):
    for i in range(n):
        opt.zero_grad(); m(x).sum().backward(); opt.step()
"""
HOOKS = """
def in_hooks(params):  # an optimizer for each, which steps once the backward pass has its gradient
    for p in params:
        o, a = torch.optim.SGD([p], 0.01), p.expand_as(p).grad_fn.next_functions[0][0]
        kept.append(a); a.register_hook(lambda *_, o=o: (o.step(), o.zero_grad()) and None)
kept = []
"""
DEVICE = """
import threading
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
from torch.utils._pytree import tree_map
_setup_privateuseone_for_python_backend("ours")
class On(torch.Tensor):  # of a device that is no CPU: the engine has a thread of its own for it
    def __new__(cls, t):
        return torch.Tensor._make_wrapper_subclass(cls, t.size(), strides=t.stride(), dtype=t.dtype, device="ours:0")
    def __init__(self, t):
        self.t = t
    @classmethod
    def __torch_dispatch__(cls, f, types, args=(), kw=None):
        kw = {k: v for k, v in (kw or {}).items() if k != "device"}
        out = f(*tree_map(lambda v: getattr(v, "t", v), args), **tree_map(lambda v: getattr(v, "t", v), kw))
        return args[0] if f.__name__.split(".")[0].endswith("_") else tree_map(lambda v: cls(v) if isinstance(v, torch.Tensor) else v, out)
    __torch_function__ = torch._C._disabled_torch_function_impl
for k in m.modules():
    for name, p in list(k._parameters.items()): k._parameters[name] = nn.Parameter(On(p.data))
x = On(x)
again = nn.Sequential(nn.Linear(1, 1))
@torch.no_grad()
def check(p):
    assert threading.get_ident() != threading.main_thread().ident
    again(torch.ones(1))
for p in m.parameters(): p.register_post_accumulate_grad_hook(check)
"""

CASES = {  # what the program does, and its steps: (source, how many, forwards, backwards, optimizers) in order of time
    "no_module": ("""
w = nn.Parameter(torch.ones(8, 1)); opt = torch.optim.SGD([w], 0.01)
for i in range(N):
    opt.zero_grad(); (x @ w).sum().backward(); opt.step()
""", [("optimizer", 20, 0, 20, 20)]),
    "no_autograd": ("""
w = nn.Parameter(torch.ones(8, 1)); opt = torch.optim.SGD([w], 0.01)
for i in range(N):
    w.grad = torch.ones_like(w); opt.step()
""", [("optimizer", 20, 0, 0, 20)]),
    "no_autograd_two": ("""
w = [nn.Parameter(torch.ones(8, 1)) for _ in range(2)]; opts = [torch.optim.SGD([v], 0.01) for v in w]
for i in range(N):
    for v, o in zip(w, opts):
        v.grad = torch.ones_like(v); o.step()
""", [("optimizer", 20, 0, 0, 40)]),
    "forward_method": ("""
lin = nn.Linear(8, 1); opt = torch.optim.Adam(lin.parameters())
for i in range(N):
    opt.zero_grad(); lin.forward(x).sum().backward(); opt.step()
""", [("optimizer", 20, 0, 20, 20)]),
    "forward_in_a_thread": ("""
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(1) as pool:
    for i in range(N):
        opt.zero_grad(); pool.submit(m, x).result().sum().backward(); opt.step()
""", [("optimizer", 20, 0, 20, 20)]),
    "evaluation": ("""
evaluate(7)
for _ in range(4):
    train(n=5)
    evaluate(3)
""", [("evaluation", 7, 7, 0, 0)] + [("optimizer", 5, 5, 5, 5), ("evaluation", 3, 3, 0, 0)] * 4),
    "evaluation_of_another_at_first": ("""
average = Model()
evaluate(4, average)
train()
""", [("evaluation", 4, 4, 0, 0), ("optimizer", 20, 20, 20, 20)]),
    "evaluation_of_another_and_a_teacher": ("""
teacher, average = net(), Model()
for i in range(N):
    opt.zero_grad()
    with torch.no_grad(): t = teacher(x)
    (m(x) - t).sum().backward(); opt.step()
    if i == 9: evaluate(4, average)
""", [("optimizer", 10, 20, 10, 10), ("evaluation", 4, 4, 0, 0), ("optimizer", 10, 20, 10, 10)]),
    "gan": ("""
g, d = Model(), Model(); d.inner[0] = nn.Linear(1, 8)
og, od = [torch.optim.Adam(k.parameters()) for k in (g, d)]
for i in range(N):
    od.zero_grad(); d(g(x).detach()).sum().backward(); od.step()
    og.zero_grad(); d(g(x)).sum().backward(); og.step()
""", [("optimizer", 40, 80, 40, 40)]),
    "gan_without_gradients": ("""
g, d = Model(), Model(); d.inner[0] = nn.Linear(1, 8)
og, od = [torch.optim.Adam(k.parameters()) for k in (g, d)]
for i in range(N):
    with torch.no_grad(): fake = g(x)
    od.zero_grad(); d(fake).sum().backward(); od.step()
    og.zero_grad(); d(g(x)).sum().backward(); og.step()
""", [("optimizer", 40, 80, 40, 40)]),
    "rollouts": ("""
for i in range(N):
    with torch.no_grad():
        for k in range(5): m(x)
    opt.zero_grad(); m(x).sum().backward(); opt.step()
""", None),
    "rollouts_of_two": ("""
v = net()  # in turn with the policy; what it says of the last state goes before the gradient steps
opt = torch.optim.Adam([*m.parameters(), *v.parameters()])
for i in range(4):
    with torch.no_grad():
        for k in range(10): m(x), v(x)
        v(x)
    for k in range(5):
        opt.zero_grad(); (m(x) + v(x)).sum().backward(); opt.step()
""", [("evaluation", 10, 21, 0, 0), ("optimizer", 5, 10, 5, 5)] + [("evaluation", 21, 21, 0, 0), ("optimizer", 5, 10, 5, 5)] * 3),
    "two_teachers_and_a_target": ("""
teachers, target = (net(), net()), net()
for i in range(N):
    with torch.no_grad():
        m(x), target(x), m(x)
        t = sum(k(x) for k in teachers)
    opt.zero_grad(); (m(x) - t).sum().backward(); opt.step()
""", [("optimizer", 20, 120, 20, 20)]),
    "accumulation": ("""
for i in range(4 * N):
    m(x).sum().backward()
    if i % 4 == 3: opt.step(); opt.zero_grad()
""", [("optimizer", 20, 80, 80, 20)]),
    "several_in_a_row": ("""
parts = [net(), net()]; opts = [torch.optim.SGD(k.parameters(), 0.01) for k in parts]
for i in range(N):
    sum(k(x) for k in parts).sum().backward()
    for o in opts: o.step()
""", [("optimizer", 20, 40, 20, 40)]),
    "scaler": ("""
class Scaler:  # GradScaler on a CPU is none: it calls no step() where a gradient is not finite
    def step(self, opt, finite):
        if finite: opt.step()
for i in range(N):
    opt.zero_grad(); m(x).sum().backward(); Scaler().step(opt, i % 4 != 1)
""", [("optimizer", 15, 20, 20, 15)]),
    "lbfgs": ("""
opt = torch.optim.LBFGS(m.parameters(), max_iter=1)
def closure():
    opt.zero_grad(); loss = m(x).pow(2).sum(); loss.backward(); return loss
for i in range(N): opt.step(closure)
""", [("optimizer", 20, 20, 20, 20)]),
    "closure_and_evaluation": ("""
def closure():
    opt.zero_grad(); loss = m(x).pow(2).sum(); loss.backward(); return loss
evaluate(2)
for i in range(N): opt.step(closure)
evaluate(3)
""", [("evaluation", 2, 2, 0, 0), ("optimizer", 20, 20, 20, 20), ("evaluation", 3, 3, 0, 0)]),
    "two_models": ("""
train()
other = net()
train(other, torch.optim.Adam(other.parameters()))
""", [("optimizer", 40, 40, 40, 40)]),
    "step_unseen": ("""
step = type(opt).step.__wrapped__  # as a compiled one: without torch's mark around it
for i in range(N):
    if i > 10: evaluate(1)
    for _ in range(2): opt.zero_grad(); m(x).sum().backward(); m(x).sum().backward()
    step(opt); opt.zero_grad()
""", [("optimizer", 22, 44, 44, 0)] + [("evaluation", 1, 1, 0, 0), ("optimizer", 2, 4, 4, 0)] * 9),
    "step_compiled": ("""
step = torch.compile(opt.step, backend="eager")
for i in range(N):
    opt.zero_grad(); m(x).sum().backward(); step()
evaluate(3)
""", [("optimizer", 20, 20, 20, 0), ("evaluation", 3, 3, 0, 0)]),
    "steps_skipped_at_first": ("""
for i in range(5): opt.zero_grad(); m(x).sum().backward()
train()
""", [("optimizer", 20, 25, 25, 20)]),
    "in_hooks": (HOOKS + """
in_hooks(m.parameters())
for i in range(N):
    m(x).sum().backward()
    if i % 10 == 9: evaluate(3)
""", [("optimizer", 10, 10, 10, 40), ("evaluation", 3, 3, 0, 0)] * 2),
    "in_hooks_no_module": (HOOKS + """
w = nn.Parameter(torch.ones(8, 1)); in_hooks([w])
for i in range(N): (x @ w).sum().backward()
""", [("optimizer", 20, 0, 20, 20)]),
    "in_hooks_and_after": (HOOKS + """
in_hooks(m.inner[0].parameters()); opt = torch.optim.SGD(m.inner[2].parameters(), 0.01)
for i in range(N):
    opt.zero_grad(); m(x).sum().backward(); opt.step()
""", [("optimizer", 20, 20, 20, 60)]),
    "in_hooks_on_the_engines_thread": (DEVICE + HOOKS + """
in_hooks(m.parameters())
for i in range(N): m(x).sum().backward()
""", [("optimizer", 20, 20, 20, 80)]),
    "graph_compiled": ("""
c = torch.compile(m, backend="aot_eager")  # runs a backward pass to see its graph
f = torch.compile(lambda x: m(x).sum(), backend="aot_eager")  # and this one within no module's call
for i in range(N):
    opt.zero_grad(); c(x).sum().backward(); opt.step()
for i in range(N):
    opt.zero_grad(); f(x).backward(); opt.step()
""", [("optimizer", 40, 20, 40, 40)]),
    "graph_exported": ("""
torch.export.export(m, (x,))  # torch.fx assigns nn.Module.__call__ meanwhile, which empties all slots
for i in range(N):
    a, p, n = m(x), m(x), m(x)
    opt.zero_grad(); nn.functional.triplet_margin_loss(a, p, n).backward(); opt.step()
""", [("optimizer", 20, 60, 20, 20)]),
    "policy": ("""
evaluate(5)
for i in range(N):
    opt.zero_grad(); sum(m(x).sum() for _ in range(10)).backward(); opt.step()
""", [("evaluation", 5, 5, 0, 0), ("optimizer", 20, 200, 20, 20)]),
    "triplet": ("""
for i in range(N):
    a, p, n = m(x), m(x), m(x)
    opt.zero_grad(); nn.functional.triplet_margin_loss(a, p, n).backward(); opt.step()
evaluate(3)
""", [("optimizer", 20, 60, 20, 20), ("evaluation", 3, 3, 0, 0)]),
    "triplet_after_a_warm_up_and_inference": ("""
m(x)
with torch.inference_mode():
    for _ in range(4): m(x)
for i in range(N):
    opt.zero_grad(); nn.functional.triplet_margin_loss(m(x), m(x), m(x)).backward(); opt.step()
""", [("evaluation", 5, 5, 0, 0), ("optimizer", 20, 60, 20, 20)]),
    "targets_of_its_own": ("""
for i in range(N):
    loss = 0
    for _ in range(3):
        with torch.no_grad(): target = m(x)
        loss = loss + (m(x) - target).pow(2).sum()
    opt.zero_grad(); loss.backward(); opt.step()
""", [("optimizer", 20, 120, 20, 20)]),
    "a_teacher_before_each": ("""
teacher = net().eval()
for i in range(N):
    loss = 0
    for _ in range(3):
        with torch.no_grad(): target = teacher(x)
        loss = loss + (m(x) - target).pow(2).sum()
    opt.zero_grad(); loss.backward(); opt.step()
""", [("optimizer", 20, 120, 20, 20)]),
    "passes_and_a_closure": ("""
opt = torch.optim.LBFGS(m.parameters(), max_iter=1)
def closure():
    opt.zero_grad(); loss = m(x).pow(2).sum() + m(x).sum(); loss.backward(); return loss
for i in range(N):
    m(x); opt.step(closure)
""", [("optimizer", 20, 60, 20, 20)]),
    "policy_unseen": ("""
step = type(opt).step.__wrapped__  # as a compiled one: without torch's mark around it
evaluate(2)
for i in range(N):
    sum(m(x).sum() for _ in range(10)).backward(); step(opt); opt.zero_grad()
""", [("evaluation", 2, 2, 0, 0), ("optimizer", 20, 200, 20, 0)]),
    "bound_method": ("""
f = m.__call__  # which runs by no slot: its parts are seen
for i in range(N):
    opt.zero_grad(); f(x).sum().backward(); opt.step()
""", [("optimizer", 20, 20, 20, 20)]),
    "evaluation_by_a_bound_method": ("""
m = net(); opt = torch.optim.SGD(m.parameters(), 0.01); f = m.__call__  # its parts are outermost, and a row for each call
@torch.no_grad()
def evaluate():
    m.eval()
    for i in range(7): f(x)
    m.train()
for i in range(10):
    opt.zero_grad(); f(x).sum().backward(); opt.step()
    if i % 5 == 4: evaluate()
""", [("optimizer", 5, 10, 5, 5), ("evaluation", 7, 14, 0, 0)] * 2),
    "generation": ("""
class Text(nn.Module):  # as transformers' models: the first token by a call of the model, the others by its bound method
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 1)
    def forward(self, x): return self.head(self.body(x))
    @torch.no_grad()
    def generate(self, x):
        self(x)
        f = self.__call__
        for _ in range(6): f(x)
m = Text(); opt = torch.optim.SGD(m.parameters(), 0.01)
for i in range(N):
    m.generate(x)
    opt.zero_grad(); m(x).sum().backward(); opt.step()
""", [("evaluation", 7, 13, 0, 0), ("optimizer", 1, 1, 1, 1)] * 20),
    "evaluation_of_two_by_bound_methods": ("""
m, k = net(), net(); opt = torch.optim.SGD([*m.parameters(), *k.parameters()], 0.01); f, g = m.__call__, k.__call__
for i in range(10):
    opt.zero_grad(); (f(x) + g(x)).sum().backward(); opt.step()
    if i % 5 == 4:
        m.eval(); k.eval()
        with torch.no_grad():
            for _ in range(3): f(x), g(x)  # a row for each call
        m.train(); k.train()
""", [("optimizer", 5, 20, 5, 5), ("evaluation", 6, 12, 0, 0)] * 2),
    "a_teacher_of_two_views": ("""
teacher = net()
for i in range(N):
    with torch.no_grad(): a, b = teacher(x), teacher(2 * x)
    opt.zero_grad(); ((m(x) - b) + (m(2 * x) - a)).pow(2).sum().backward(); opt.step()
""", [("evaluation", 2, 2, 0, 0), ("optimizer", 20, 78, 20, 20)]),  # those before the first step may be an evaluation
    "a_teacher_that_is_evaluated": ("""
teacher = net().eval()
for i in range(N):
    with torch.no_grad(): t = teacher(x)
    opt.zero_grad(); (m(x) - t).pow(2).sum().backward(); opt.step()
    if i % 10 == 4:
        with torch.no_grad():
            for _ in range(12): teacher(x)
""", [("optimizer", 5, 10, 5, 5), ("evaluation", 12, 12, 0, 0), ("optimizer", 10, 20, 10, 10), ("evaluation", 12, 12, 0, 0), ("optimizer", 5, 10, 5, 5)]),
    "scripted": ("""
m = torch.jit.script(net()); opt = torch.optim.SGD(m.parameters(), 0.01)
for i in range(10):
    opt.zero_grad(); m(x).sum().backward(); opt.step()
    if i % 5 == 4: evaluate(1, m)
""", [("optimizer", 5, 5, 5, 5), ("evaluation", 1, 1, 0, 0)] * 2),
    "a_model_that_makes_the_batch": ("""
encoder = net().eval()
class Set(torch.utils.data.Dataset):
    def __len__(self): return 2 * N
    def __getitem__(self, i):
        with torch.no_grad(): return encoder(x[0]).expand(8)
for a in torch.utils.data.DataLoader(Set(), 2):
    opt.zero_grad(); m(a).sum().backward(); opt.step()
""", [("optimizer", 21, 20, 20, 20)]),  # the last one asks for a batch in vain
    "compiled_and_evaluated": ("""
c = torch.compile(m, backend="eager")
for i in range(10):
    opt.zero_grad(); c(x).sum().backward(); opt.step()
    if i % 5 == 4: evaluate(1, c)
""", [("optimizer", 5, 5, 5, 5), ("evaluation", 1, 1, 0, 0)] * 2),
    "without_optimizer_a_bound_method": ("""
class Deep(Model):
    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(8, 8) for _ in range(40))
    def forward(self, x):
        for k in self.inner: x = k(x)
        return x
f = Deep().eval().__call__
with torch.no_grad():
    for i in range(N): f(x)
""", [("root", 20, 800, 0, 0)]),
    "inference": ("evaluate(N)\n", [("root", 20, 20, 0, 0)]),
    "inference_with_gradients": ("for i in range(N): m(x)\n", [("root", 20, 20, 0, 0)]),
    "without_optimizer": ("""
for i in range(N):
    m(x).sum().backward(); by_hand()
    if i % 10 == 9: evaluate(3)
""", [("root", 10, 10, 10, 0), ("evaluation", 3, 3, 0, 0)] * 2),
    "without_optimizer_triplet": ("""
evaluate(4)
for i in range(N):
    nn.functional.triplet_margin_loss(m(x), m(x), m(x)).backward(); by_hand()
    if i % 10 == 9: evaluate(3)
""", [("evaluation", 4, 4, 0, 0)] + [("root", 10, 30, 10, 0), ("evaluation", 3, 3, 0, 0)] * 2),
    "without_optimizer_a_teacher_first": ("""
teacher = net()
for i in range(N):
    with torch.no_grad(): target = teacher(x)
    (m(x) - target).pow(2).sum().backward(); by_hand()
""", [("root", 20, 40, 20, 0)]),
    "without_optimizer_compiled": ("""
c = torch.compile(m, backend="eager")
for i in range(N):
    c(x).sum().backward(); by_hand()
""", [("root", 20, 20, 20, 0)]),
    "without_optimizer_at_first": ("""
for i in range(3):
    m(x).sum().backward(); by_hand()
train()
""", [("evaluation", 3, 3, 3, 0), ("optimizer", 20, 20, 20, 20)]),
}


@pytest.fixture
def steps(build, tmp_path, sql):
    def run(python, script):
        trace, db = tmp_path / "t.zst", tmp_path / "t.db"
        conftest.run_command([build.tool("probing-record"), "-q", "-r", "10", "-o", trace, "--", python, "-W", "ignore", "-c", HEAD + script])
        conftest.run_command([build.tool("probing-convert"), "-q", trace, db])
        return db
    return run


QUICK = ["evaluation_of_two_by_bound_methods", "a_teacher_that_is_evaluated", "no_module", "in_hooks", "in_hooks_and_after", "no_autograd", "step_unseen", "policy", "triplet", "targets_of_its_own", "rollouts_of_two", "generation", "without_optimizer_triplet", "forward_in_a_thread", "evaluation", "several_in_a_row", "without_optimizer"]


@pytest.mark.parametrize("kind", ["debian", pytest.param("recent", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", [pytest.param(c, marks=() if c in QUICK else pytest.mark.slow) for c in CASES])
def test_steps_are_the_optimizers(case, kind, steps, sql):
    python, why = find_torch(kind)
    if not python:
        pytest.skip(why)
    if ("compiled" in case or "exported" in case or "engine" in case) and before_torch2(python):
        pytest.skip("this PyTorch has no torch.compile, and no devices that Python makes")
    script, want = CASES[case]
    if case == "without_optimizer_at_first":
        script = script.replace("train()", OPTIMIZER + "train()")
    db = steps(python, script if case.startswith("without") else OPTIMIZER + script)
    rows = sql(db, "SELECT step, source, forwards, backwards, optimizers FROM steps ORDER BY timestamp")
    got = []
    for _, source, *counts in rows:
        if not got or got[-1][0] != source:
            got.append([source, 0, 0, 0, 0])
        got[-1][1:] = [a + b for a, b in zip(got[-1][1:], [1] + counts)]
    if case == "rollouts":  # those before the first step are steps until it comes
        assert got[0][0] == "evaluation" and sum(g[1] for g in got if g[0] == "optimizer") == 20
        assert sum(g[2] for g in got if g[0] == "evaluation") >= 99
    else:
        assert [tuple(g) for g in got] == want
    numbers = [r[0] for r in rows if r[1] != "evaluation"]
    assert numbers == list(range(len(numbers)))
    assert all(r[0] is None for r in rows if r[1] == "evaluation")
    # what lies in it says the same, and the parts are within the whole
    for phase, number, n in sql(db, "SELECT phase, step, count(*) FROM torch_trace WHERE module IS NOT NULL GROUP BY 1, 2"):
        assert (number is None) == (phase == "evaluation") and n > 0
    assert sql(db, "SELECT count(*) FROM steps WHERE duration < 0 OR backward < 0 OR other < -1e-6") == [(0,)]
    if case.startswith("in_hooks"):  # the rest of a pass is not the next step's
        assert sql(db, "SELECT count(*) FROM torch_trace f JOIN torch_trace b USING (call, module) WHERE f.stage = 'forward' AND f.step != b.step") == [(0,)]
    if "engine" in case:
        assert sql(db, "SELECT recomputed, count(*) FROM torch_trace WHERE module GLOB 'Seq*' GROUP BY 1") == [(1, 160)]
    if case == "graph_compiled":
        assert sql(db, "SELECT stage, count(*) FROM torch_trace WHERE module = 'Model' GROUP BY 1") == [("backward", 20), ("forward", 20)]
    assert sql(db, "SELECT count(*) FROM memory WHERE step >= ?", len(numbers)) == [(0,)]


def test_a_long_evaluation_is_no_hang_and_no_slow_step(steps, sql):
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    db = steps(python, OPTIMIZER + "train()\nevaluate(50, pause=0.06)\ntrain()\n")
    assert sql(db, "SELECT kind, detail FROM triggers WHERE kind = 'hang'") == []
    inside = "SELECT count(*) FROM steps s JOIN steps e ON e.source = 'evaluation' AND s.source = 'optimizer' AND s.timestamp < e.timestamp AND e.%s < s.\"end\""
    assert sql(db, inside % "timestamp") == [(0,)]
    assert sql(db, "SELECT count(*), sum(duration) > 2.5 FROM steps WHERE source = 'evaluation'") == [(50, 1)]


THREADS = """
import threading
models = [Model() for _ in range(3)]
first, one_ended = threading.Event(), threading.Event()
losses = [[] for _ in models]
def one(k):
    opt = torch.optim.SGD(models[k].parameters(), 0.001)
    for i in range(200):
        opt.zero_grad(); loss = models[k](x).sum(); loss.backward()
        if not i and k: first.wait()
        opt.step(); first.set()
        losses[k].append(loss.item())
        if k and i == 120: one_ended.wait()  # which leaves them 79 steps
torch.manual_seed(0)
for k in models:
    for p in k.parameters(): nn.init.normal_(p, 0, 0.1)
threads = [threading.Thread(target=one, args=(k,)) for k in range(3)]
for t in threads: t.start()
threads[0].join(); time.sleep(0.05); one_ended.set()
for t in threads: t.join()
print([[v.hex() for v in k] for k in losses])
"""


@pytest.mark.parametrize("kind", ["debian", pytest.param("recent", marks=pytest.mark.slow)])
def test_trainings_in_three_threads_at_once(kind, build, tmp_path, sql):
    """Those of the first that steps count, also once it has ended before the others."""
    python, why = find_torch(kind)
    if not python:
        pytest.skip(why)
    trace, db = tmp_path / "t.zst", tmp_path / "t.db"
    command = [python, "-W", "ignore", "-c", HEAD.replace("end = time.monotonic() + 600", "end = time.monotonic() + 600 * (len(sys.argv) > 1)") + THREADS]
    bare = conftest.run_command(command)
    done = conftest.run_command([build.tool("probing-record"), "-q", "-r", "10", "-o", trace, "--"] + command + ["recorded"])
    assert done.stdout == bare.stdout and len(eval(done.stdout)[0]) == 200
    conftest.run_command([build.tool("probing-convert"), "-q", trace, db])
    rows = sql(db, "SELECT step, source, forwards, backwards, optimizers FROM steps WHERE complete ORDER BY timestamp")
    assert rows == [(n, "optimizer", 1, 1, 1) for n in range(200)]


@pytest.mark.parametrize("late", [0, 1])
def test_trainings_in_threads_in_turn(late, steps, sql):
    """Each step's sums are those of the thread that counted it; join() returns before the thread's destructors have run, and these may take a while."""
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    db = steps(python, """
import threading, os, ctypes
c = ctypes.CDLL(None); wait = ctypes.cast(c.sem_wait, ctypes.c_void_p)
sem = ctypes.create_string_buffer(64); c.sem_init(sem, 0, 0)
def work():
    if LATE: c.__cxa_thread_atexit_impl(wait, sem, wait)
    m = Model(); opt = torch.optim.SGD(m.parameters(), 0.01)
    evaluate(2, m)
    for i in range(N):
        opt.zero_grad(); m(x).sum().backward(); opt.step()
for _ in range(3):
    t = threading.Thread(target=work); t.start(); tid = t.native_id; t.join()
    assert not LATE or os.path.exists("/proc/self/task/%d" % tid)
    while not LATE and os.path.exists("/proc/self/task/%d" % tid): time.sleep(0.01)
for _ in range(3): c.sem_post(sem)
""".replace("LATE", str(late)))
    rows = sql(db, "SELECT step, source, forwards, backwards, optimizers FROM steps WHERE complete ORDER BY timestamp")
    assert [r for r in rows if r[0] is not None] == [(n, "optimizer", 1, 1, 1) for n in range(60)]
    assert [r[1] for r in rows] == (["evaluation"] * 2 + ["optimizer"] * 20) * 3


NESTED = """
threads = set()
for k in kept: k.register_hook(lambda *_: threads.add(threading.get_ident()) and None)
class Nested(torch.autograd.Function):  # so deep that the engine takes a thread of its own
    @staticmethod
    def forward(ctx, v, n): ctx.n = n; return v.clone()
    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            (Nested.apply(v, ctx.n - 1) if ctx.n else m(x).sum()).backward()
        return g, None
import threading
v = torch.ones(1, requires_grad=True)
for i in range(N): Nested.apply(v, 70).backward()
assert threads and threading.get_ident() not in threads
"""


@pytest.mark.parametrize("kind", ["debian", pytest.param("recent", marks=pytest.mark.slow)])
def test_hooks_in_a_deep_pass_where_backward_is_off(kind, steps, sql, monkeypatch):
    """No node of autograd's is seen there: that a thread of the engine's is at a pass says PyTorch."""
    python, why = find_torch(kind)
    if not python:
        pytest.skip(why)
    monkeypatch.setenv("PROBING_TORCH_PROFILING", "on,backward=off")
    db = steps(python, HOOKS + "in_hooks(m.parameters())" + NESTED)
    assert sql(db, "SELECT step, source FROM steps WHERE complete ORDER BY timestamp") == [(n, "optimizer") for n in range(20)]


@pytest.mark.slow
def test_hooks_on_the_engines_thread_where_backward_is_off(steps, sql, monkeypatch):
    """No node of autograd's is seen there: which thread the optimizers are on says PyTorch."""
    python, why = find_torch("recent")
    if not python:
        pytest.skip(why)
    monkeypatch.setenv("PROBING_TORCH_PROFILING", "on,backward=off")
    db = steps(python, OPTIMIZER + CASES["in_hooks_on_the_engines_thread"][0])
    assert sql(db, "SELECT step, source, forwards, backwards FROM steps WHERE complete ORDER BY timestamp") == [(n, "optimizer", 1, 1) for n in range(20)]


@pytest.mark.parametrize("evaluations", [0, 30])
def test_values_of_a_first_step_of_many_passes(evaluations, build, tmp_path, sql):
    """What was read before anything had stepped is under no number that is a later step's, or none's."""
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    script = HEAD + OPTIMIZER + """
def run():
    loss = None
    for i in range(N):
        total = sum(m(x).pow(2).sum() for _ in range(30))
        opt.zero_grad(); total.backward(); opt.step()
        loss = total; print(loss.item())
evaluate(%d)
run()
""" % evaluations
    trace, db = tmp_path / "t.zst", tmp_path / "t.db"
    done = conftest.run_command([build.tool("probing-record"), "-q", "-r", "10", "-o", trace, "--exprs", "loss@run", "--", python, "-W", "ignore", "-c",
                                 script])
    conftest.run_command([build.tool("probing-convert"), "-q", trace, db])
    losses = [float(line) for line in done.stdout.split()]
    assert len(set(losses)) == 20
    assert sql(db, "SELECT step, loss FROM training_logs ORDER BY step") == [(n, pytest.approx(loss, rel=1e-6)) for n, loss in enumerate(losses)]
    assert sql(db, "SELECT DISTINCT step FROM variables WHERE value IS NULL") == [(0,)]
    assert sql(db, "SELECT count(*), sum(forwards) FROM steps WHERE source = 'evaluation'") == [(evaluations, evaluations or None)]
