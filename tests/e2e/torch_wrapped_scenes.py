# SPDX-License-Identifier: Apache-2.0
"""Scenes of torch_scenes.py in which something wraps the model: DistributedDataParallel, FSDP or torch.compile."""
import json
import os

import torch
from torch import nn
from torch_scene_parts import Plain, sgd, train


def group():
    import torch.distributed as dist
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


class Ddp(Plain):
    pass


def ddp():
    group()
    model = nn.parallel.DistributedDataParallel(Ddp())
    train(model, sgd(model), 3)
    with torch.no_grad():
        model.module(torch.ones(1, 4))


class Fsdp(Plain):
    pass


def fsdp():
    group()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (1,))
    model = Fsdp()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, sgd(model), 3)


class Compiled(Plain):
    pass


class PartCompiled(nn.Module):
    def __init__(self):
        super().__init__()
        self.eager = nn.Linear(4, 4)
        self.fast = Plain()
        self.fast.compile(backend=BACKEND)

    def forward(self, x):
        return self.fast(self.eager(x))


class Breaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = self.a(x)
        torch._dynamo.graph_break()
        return self.b(x)


def whole_step(backend):
    """The pass and the optimizer's step are compiled; two steps of two optimizers in each call."""
    a, b = Plain(), Plain()
    first, second = sgd(a), sgd(b)

    @torch.compile(backend=backend)
    def both(x):  # without a loop around them: such a function is not compiled
        a(x).pow(2).mean().backward()
        first.step()
        loss = b(a(x)).pow(2).mean()
        loss.backward()
        second.step()
        for p in list(a.parameters()) + list(b.parameters()):
            p.grad = None
        return loss

    print("losses", json.dumps([both(torch.randn(2, 4)).item().hex() for _ in range(5)]), flush=True)


BACKEND = os.environ.get("SCENE_BACKEND", "aot_eager")


def compiled():
    """Counts the compiled graphs; the test compares the count with that of an unrecorded run."""
    import torch._dynamo as dynamo
    graphs = []

    def count(gm, inputs):
        graphs.append(len(gm.graph.nodes))
        return dynamo.lookup_backend(BACKEND)(gm, inputs)

    model = torch.compile(Compiled(), backend=count, fullgraph=True)
    train(model, sgd(model), 4)
    print("graphs full", json.dumps(graphs), flush=True)
    model = PartCompiled()
    train(model, sgd(model), 4)
    del graphs[:]
    model = torch.compile(Breaks(), backend=count)
    train(model, sgd(model), 4)
    print("graphs breaks", json.dumps(graphs), flush=True)
    whole_step(count)
    said = dynamo.explain(Compiled())(torch.randn(2, 4))
    print("explain", json.dumps([said.graph_count, said.graph_break_count]), flush=True)
    print("counters", json.dumps({k: dict(v) for k, v in dynamo.utils.counters.items() if k in ("graph_break", "unimplemented")}), flush=True)
