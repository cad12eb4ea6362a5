# SPDX-License-Identifier: Apache-2.0
"""Small trainings whose calls of modules are known exactly. test_torch.py records them all in one process.

    torch_scenes.py SCENE ...        prints "losses JSON" at the end: the numbers that recording must not change

Every scene has classes of its own, so that its rows can be recognized by their names.
"""
import copy
import glob
import io
import json
import os
import pickle
import sys
import threading
import time
import warnings

import torch
import torch_graph_scenes
from torch import nn
from torch_scene_parts import LOSSES, NEW, Plain, sgd, train
from torch_graph_scenes import traced  # noqa: F401 (a scene, too)
from torch_wrapped_scenes import compiled, ddp, fsdp  # noqa: F401 (scenes, too)

def plain():
    model = Plain()
    train(model, sgd(model), 5, loss=nn.MSELoss())


class SharedHalf(nn.Module):
    def __init__(self, common):
        super().__init__()
        self.common = common

    def forward(self, x):
        return self.common(x)


class Shared(nn.Module):
    """One Linear that has two parents."""

    def __init__(self):
        super().__init__()
        common = nn.Linear(4, 4)
        self.left, self.right = SharedHalf(common), SharedHalf(common)

    def forward(self, x):
        return self.left(x) + self.right(self.right(x))


def shared():
    model = Shared()
    train(model, sgd(model), 3)


class Later(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x)
        return self.second(x) if hasattr(self, "second") else x


def later():
    model = Later()
    train(model, sgd(model), 2)
    model.second = nn.Linear(4, 4)
    train(model, sgd(model), 3)

    class LaterClass(nn.Module):  # a class that did not exist when recording began
        def forward(self, x):
            return x * 2

    model.second = nn.Sequential(LaterClass(), nn.Linear(4, 4))
    train(model, sgd(model), 2)


class Strays(nn.Module):
    """Modules that are made anew in each call."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        return nn.Tanh()(self.lin(x))


def strays():
    model = Strays()
    train(model, sgd(model), 40)


class Repeated(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(4, 4)

    def forward(self, x):
        for _ in range(4):
            x = torch.tanh(self.cell(x))
        return x


def repeated():
    model = Repeated()
    train(model, sgd(model), 3)


class Ckpt(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.reentrant = reentrant

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint
        return checkpoint(self.b, self.a(x), use_reentrant=self.reentrant)


class CkptReentrant(Ckpt):
    pass


class CkptSaved(Ckpt):
    pass


def checkpoints():
    for model in (CkptReentrant(True), CkptSaved(False)):
        train(model, sgd(model), 3)


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = FailsInner()
        self.after = nn.Linear(4, 4)

    def forward(self, x):
        return self.after(self.inner(x))


class FailsInner(nn.Module):
    def forward(self, x):
        if x.shape[0] == 3:
            raise ValueError("three")
        return x


def exceptions():
    model = Fails()
    optimizer = sgd(model)
    for i in range(4):
        try:
            model(torch.ones(3 if i == 1 else 2, 4)).sum().backward()
        except ValueError:
            pass
        else:
            optimizer.step()
    try:
        Stops()(torch.ones(1))
    except _StopRecomputationError:
        pass


class _StopRecomputationError(Exception):
    """Like torch's own exception, by which checkpoint() ends a recomputation from 2.1 on."""


class Stops(nn.Module):
    def forward(self, x):
        raise _StopRecomputationError


class Threaded(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        time.sleep(0.001)
        return self.lin(x)


def threads():
    model = Threaded()

    def work():
        for _ in range(20):
            with torch.no_grad():
                model(torch.ones(1, 4))

    workers = [threading.Thread(target=work, name="scene-%d" % i) for i in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()


def pipeline():
    LOSSES.extend(torch_graph_scenes.pipeline())


def shards():
    LOSSES.extend(torch_graph_scenes.shards())


class Gen(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        return self.lin(x)


class Disc(Gen):
    pass


def gan():
    """Two models with an optimizer each, and a forward pass for each optimizer: each iteration is two steps."""
    gen, disc = Gen(), Disc()
    opt_g, opt_d = torch.optim.Adam(gen.parameters()), torch.optim.Adam(disc.parameters())
    for _ in range(3):
        opt_d.zero_grad()
        disc(gen(torch.randn(2, 4)).detach()).sum().backward()
        opt_d.step()
        opt_g.zero_grad()
        disc(gen(torch.randn(2, 4))).sum().backward()
        opt_g.step()


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.two(self.one(x))


def pair():
    """Two optimizers that step one after the other make one step."""
    model = Pair()
    opts = torch.optim.SGD(model.one.parameters(), lr=0.1), torch.optim.Adam(model.two.parameters())
    for _ in range(4):
        for o in opts:
            o.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        for o in opts:
            o.step()


class Acc(Gen):
    pass


def accumulation():
    model = Acc()
    train(model, sgd(model), 3, micro=4)


class Scaled(Gen):
    pass


def scaler():
    """A GradScaler that skips the second of four updates."""
    model = Scaled()
    optimizer = sgd(model)
    for i in range(4):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        if i != 1:  # GradScaler.step() does not call optimizer.step() when it finds inf
            optimizer.step()


class Closure(Gen):
    pass


def lbfgs():
    """The forward and backward passes lie within Optimizer.step."""
    model = Closure()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x = torch.randn(8, 4)

    def closure():
        optimizer.zero_grad()
        loss = (model(x) ** 2).sum()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)


class Twin(Gen):
    pass


def twins():
    """Two root modules of one class that exist at the same time."""
    one, two = Twin(), Twin()
    for _ in range(3):
        one(torch.ones(1, 4))
    for _ in range(2):
        two(torch.ones(1, 4))


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.lin(x))


class HoldsScripted(nn.Module):
    def __init__(self):
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.script = torch.jit.script(Scripted())
            self.trace = torch.jit.trace(Scripted(), torch.ones(2, 4))

    def forward(self, x):
        return self.trace(self.script(x))


def scripts():
    model = HoldsScripted()
    train(model, sgd(model), 5)


class Copied(Gen):
    pass


def copies():
    """Copies of a module, and pickled and saved ones, are the same whether recorded or not."""
    model = Copied()
    model(torch.ones(1, 4))
    clones = [copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))]
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    clones.append(torch.load(buffer, **({"weights_only": False} if NEW else {})))
    same = [c(torch.ones(1, 4)).tolist() == model(torch.ones(1, 4)).tolist() for c in clones]
    assert all(same), same
    assert "probing" not in repr(pickle.dumps(model)) and set(vars(model)) == set(vars(Copied()))


class Slow(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def forward(self, x):
        return Sleep.apply(x, self.seconds)


class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(2 * ctx.seconds)
        return grad, None


class Timed(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.a, self.b = nn.Linear(4, 4), Slow(0.004), Slow(0.011)

    def forward(self, x):
        return self.b(self.a(self.lin(x)))


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        time.sleep(0.007)
        return torch.ones(4)


def delay():
    """Returns for how many seconds in all this process's threads have been ready to run and waited for a processor."""
    total = 0
    for path in glob.glob("/proc/self/task/*/schedstat"):
        with open(path) as f:
            total += int(f.read().split()[1])
    return total / 1e9


def timed():
    """Sleeps for known times in forward, backward and data loading, and prints the times that it measured itself."""
    model = Timed()
    optimizer = sgd(model)
    took = []
    for x in torch.utils.data.DataLoader(Samples(), batch_size=1):
        waited = [delay()]
        t0 = time.monotonic()
        out = model(x)
        t1 = time.monotonic()
        waited.append(delay())
        t2 = time.monotonic()
        out.sum().backward()
        t3 = time.monotonic()
        waited.append(delay())
        t4 = time.monotonic()
        optimizer.step()
        took.append((t1 - t0, t3 - t2, time.monotonic() - t4, waited[1] - waited[0], waited[2] - waited[1]))
    print("timed", json.dumps(took), flush=True)


class Loaded(Gen):
    pass


def linger(worker):
    """Waits until the process is recorded, if it is to be: a child that ends within 20 ms leaves no trace."""
    recorded = any("libprobing-agent.so" in line for line in open("/proc/self/maps"))
    while recorded and not glob.glob("%s/%d-*.live" % (os.environ["PROBING_RUN_DIR"], os.getpid())):
        time.sleep(0.01)


def workers():
    model = Loaded()
    optimizer = sgd(model)
    for x in torch.utils.data.DataLoader(Samples(), batch_size=1, num_workers=2, worker_init_fn=linger):
        model(x).sum().backward()
        optimizer.step()


def soak():
    """Does everything that makes new objects again and again. Prints the peak memory in KiB after a quarter of the time and at the end."""
    import resource
    end, quarter, early = time.monotonic() + float(os.environ["SCENE_SECONDS"]), 0, None
    while time.monotonic() < end:
        strays()
        twins()
        shared()

        class Fresh(nn.Module):
            def forward(self, x):
                return x

        Fresh()(torch.ones(1))
        LOSSES.clear()  # otherwise this list itself would grow
        quarter += 1
        if early is None and time.monotonic() > end - 0.75 * float(os.environ["SCENE_SECONDS"]):
            early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print("soak", json.dumps([early, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, quarter]), flush=True)


def wide():
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(500)])
    train(model, sgd(model), 40)


class Infer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        return self.lin(x)


def inference():
    model = Infer().eval()
    with torch.no_grad():
        for _ in range(7):
            model(torch.ones(1, 4))


class ByHand(Gen):
    pass


def by_hand():
    model = ByHand()
    for _ in range(80):
        model(torch.ones(1, 4)).sum().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.01 * p.grad
                p.grad = None


def unused_optimizer():
    torch.optim.SGD(ByHand().parameters(), 0.01)


def wait_for_agent():
    """If the process is recorded, waits until the agent sees calls of modules, so that it counts all that the scenes do."""
    recorded = any("libprobing-agent.so" in line for line in open("/proc/self/maps"))
    while recorded and os.environ.get("PROBING_TORCH_PROFILING") != "off" and "__init_subclass__" not in vars(nn.Module):
        time.sleep(0.01)


def main():
    wait_for_agent()
    for name in sys.argv[1:]:
        torch.manual_seed(1)
        globals()[name]()
    print("losses", json.dumps(LOSSES), flush=True)
    dist = torch.distributed
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()  # without it, threads of torch sometimes run when the interpreter is gone, and abort


if __name__ == "__main__":
    main()
