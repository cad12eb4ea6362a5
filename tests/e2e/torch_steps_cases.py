# SPDX-License-Identifier: Apache-2.0
"""The programs of test_torch_steps.py: ways in which people write a training, each with the steps that it makes."""
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
    global engine
    assert threading.get_ident() != threading.main_thread().ident
    engine = threading.get_native_id()
    again(torch.ones(1))
for p in m.parameters(): p.register_post_accumulate_grad_hook(check)
"""
AT_REST = """
# The engine's thread lets go of tensors of Python's after the pass. Where Python ends meanwhile, PyTorch aborts, recorded or not.
state = ""
while state[-2:] != "SS": time.sleep(0.05); state += open("/proc/self/task/%d/stat" % engine).read().rpartition(")")[2].split()[0]
"""

CASES = {  # {name: (program, its steps in order of time)}; steps are given as (source, how many, forwards, backwards, optimizers)
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
    "evaluation_amid_accumulation": ("""
for _ in range(3):
    for i in range(10):
        m(x).sum().backward()
        if i % 4 == 3: opt.step()
    evaluate(3)
    evaluate(2)
m(x).sum().backward(); opt.step()
""", [("optimizer", 2, 8, 8, 2), ("evaluation", 5, 5, 0, 0)] + [("optimizer", 2, 10, 10, 2), ("evaluation", 5, 5, 0, 0)] * 2 + [("optimizer", 1, 3, 3, 1)]),
    "evaluation_amid_accumulation_in_training_mode": ("""
average = Model()
@torch.no_grad()
def check(n, k):
    for _ in range(n): k(x)
for look in [lambda: evaluate(3), lambda: check(4, m), lambda: check(30, average)]:  # the first before the first step
    m(x).sum().backward()
    look()
    m(x).sum().backward(); opt.step()
train()
""", [("evaluation", 3, 3, 0, 0), ("optimizer", 1, 2, 2, 1), ("evaluation", 4, 4, 0, 0), ("optimizer", 1, 2, 2, 1), ("evaluation", 30, 30, 0, 0),
      ("optimizer", 21, 22, 22, 21)]),
    "a_teacher_of_two_views_amid_accumulation": ("""
teacher = net()
for i in range(20):
    with torch.no_grad(): a, b = teacher(x), teacher(2 * x)
    ((m(x) - b) + (m(2 * x) - a)).pow(2).sum().backward()
    if i == 9: evaluate(5)
    if i % 4 == 3: opt.step()
""", [("evaluation", 2, 2, 0, 0), ("optimizer", 2, 30, 8, 2), ("evaluation", 5, 5, 0, 0), ("optimizer", 3, 48, 12, 3)]),
    "evaluation_of_another_at_first": ("""
average = Model()
evaluate(4, average)
train()
""", [("evaluation", 4, 4, 0, 0), ("optimizer", 20, 20, 20, 20)]),
    "a_part_is_called_before_its_model_is_made": ("""
class Whole(nn.Module):
    def __init__(self, body, teacher=None):
        super().__init__()
        body.eval()
        with torch.no_grad(): width = body(x).shape[1]  # as torchvision's detectors learn how many channels there are
        body.train()
        self.body, self.head, self.teacher = body, nn.Linear(width, 1), teacher
    def forward(self, x): return self.head(self.body(x))
def distill(w, opt):
    for i in range(N):
        with torch.no_grad(): t = w.teacher(x)  # its own, and in evaluation mode: of the step, the first one, too
        opt.zero_grad(); (w(x) - t).pow(2).sum().backward(); opt.step()
for k in (m, Model()):
    w = Whole(k, net().eval()); distill(w, torch.optim.SGD(w.parameters(), 0.01))
""", [("evaluation", 1, 1, 0, 0), ("optimizer", 20, 40, 20, 20)] * 2),
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
""" + AT_REST, [("optimizer", 20, 20, 20, 80)]),
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
    "graph_compiled_of_a_function": ("""
from functorch.compile import aot_function, nop
f = aot_function(lambda p, x: torch.func.functional_call(m, p, x).sum(), fw_compiler=nop)  # calls the model twice, for what it gives and for its graph
p = dict(m.named_parameters())
for i in range(N):
    opt.zero_grad(); f(p, x).backward(); opt.step()
""", [("optimizer", 20, 0, 20, 20)]),
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
""", [("evaluation", 2, 2, 0, 0), ("optimizer", 20, 78, 20, 20)]),  # passes before the first step may be an evaluation
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
""", [("optimizer", 21, 20, 20, 20)]),  # the last step has no pass: it asks for a batch and gets none
    "compiled_and_evaluated": ("""
c = torch.compile(m, backend="eager")
for i in range(10):
    opt.zero_grad(); c(x).sum().backward(); opt.step()
    if i % 5 == 4: evaluate(1, c)
""", [("optimizer", 5, 5, 5, 5), ("evaluation", 1, 1, 0, 0)] * 2),
    "evaluation_of_what_a_wrapper_holds": ("""
w = nn.DataParallel(m)
for i in range(10):
    opt.zero_grad(); w(x).sum().backward(); opt.step()
    if i % 5 == 4: evaluate(1)
""", [("optimizer", 5, 5, 5, 5), ("evaluation", 1, 1, 0, 0)] * 2),
    "a_part_of_the_model_is_evaluated": ("""
class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 4), nn.Linear(4, 4), nn.Linear(4, 8)
    def decode(self, z): return self.c(self.b(z))
    def forward(self, x): return self.decode(self.a(x))
m = Coder(); opt = torch.optim.SGD(m.parameters(), 0.01)
train(m, opt, 5)
for i in range(10):
    with torch.no_grad(): target = m.c(m.b(torch.ones(4, 4)))  # in a step, while it trains
    opt.zero_grad(); (m(x) - target).sum().backward(); opt.step()
    if i % 5 == 4:
        m.eval()
        with torch.no_grad(): m.decode(torch.ones(4, 4)), m.decode(torch.ones(4, 4))  # as who draws from a VAE does
        m.train()
""", [("optimizer", 10, 20, 10, 10), ("evaluation", 2, 4, 0, 0), ("optimizer", 5, 15, 5, 5), ("evaluation", 2, 4, 0, 0)]),
    "a_teacher_that_was_trained": ("""
train(); m.eval()
student = net(); opt = torch.optim.SGD(student.parameters(), 0.01)
for i in range(N):
    with torch.no_grad(): t = m(x)
    opt.zero_grad(); (student(x) - t).pow(2).sum().backward(); opt.step()
""", [("optimizer", 20, 20, 20, 20)] + [("evaluation", 1, 1, 0, 0), ("optimizer", 1, 1, 1, 1)] * 3 + [("evaluation", 1, 1, 0, 0), ("optimizer", 17, 33, 17, 17)]),
    "a_reference_behind_the_policy": ("""
reference = net().eval()  # as in DPO, in a step and in the evaluation
for i in range(10):
    opt.zero_grad(); y = m(x)
    with torch.no_grad(): r = reference(x)
    (y - r).pow(2).sum().backward(); opt.step()
    if i % 5 == 4:
        m.eval()
        with torch.no_grad(): m(x), reference(x)
        m.train()
""", [("optimizer", 5, 10, 5, 5), ("evaluation", 2, 2, 0, 0)] * 2),
    "a_shape_is_asked_for_in_training_mode": ("""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()
        with torch.no_grad(): width = self.body(x).shape[1]
        self.head = nn.Linear(width, 1)
    def forward(self, x): return self.head(self.body(x))
def probe():
    with torch.no_grad(): return m(x).shape
m = Net(); probe(); opt = torch.optim.SGD(m.parameters(), 0.01)
train(m, opt)
""", [("evaluation", 1, 2, 0, 0), ("optimizer", 20, 20, 20, 20)]),  # both before the first step, in one row
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
    "without_optimizer_another_model_next": ("""
for m in m, net(), net():
    for i in range(N):
        m(x).sum().backward(); by_hand()
        if i % 10 == 9: evaluate(3, m)
""", [("root", 10, 10, 10, 0), ("evaluation", 3, 3, 0, 0)] * 6),
    "without_optimizer_a_model_called_once": ("""
with torch.no_grad(): x = nn.Linear(8, 8)(x)
for i in range(N):
    (m(x) + m(2 * x)).sum().backward(); by_hand()
""", [("root", 20, 41, 20, 0)]),
    "without_optimizer_then_with_one": ("""
for i in range(N):
    m(x).sum().backward(); by_hand()
m = net()
""" + OPTIMIZER + "train()\n", [("evaluation", 20, 20, 20, 0), ("optimizer", 20, 20, 20, 20)]),
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
