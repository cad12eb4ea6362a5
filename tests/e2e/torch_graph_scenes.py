# SPDX-License-Identifier: Apache-2.0
"""Scenes of torch_scenes.py in which one thread runs the backward pass of graphs that other threads made. Each returns its losses."""
import queue
import threading

import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return x * self.weight


class Stage(nn.Module):
    """Its graph is a chain without branches, so the engine cannot run nodes of other stages in between."""

    def __init__(self):
        super().__init__()
        self.scale = Scale()
        self.act = nn.Tanh()

    def forward(self, x):
        return self.act(self.scale(x))


class StageA(Stage):
    pass


class StageB(Stage):
    pass


class StageC(Stage):
    pass


class ShardA(Stage):
    pass


class ShardB(Stage):
    pass


class ShardC(Stage):
    pass


def in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def pipeline():
    """Three threads make one graph, each of them one stage, and each numbers its nodes from 0. The last thread runs the backward pass."""
    stages = [StageA(), StageB(), StageC()]
    optimizer = torch.optim.SGD([p for s in stages for p in s.parameters()], lr=0.01)
    pipes = [queue.Queue() for _ in range(4)]
    losses = []

    def work(k):
        for x in iter(pipes[k].get, None):
            x = stages[k](x)
            if k == 2:
                x.sum().backward()
            pipes[k + 1].put(x)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for w in workers:
        w.start()
    for _ in range(6):
        pipes[0].put(torch.randn(2, 4))
        losses.append(pipes[3].get().sum().item())
        optimizer.step()
        optimizer.zero_grad()
    for k, w in enumerate(workers):
        pipes[k].put(None)
        w.join()
    return losses


def shards():
    """Two threads make a graph each and end; a third thread adds their losses. All numbers of their nodes also occur in its own modules'
    graph."""
    models = [ShardA(), ShardB(), ShardC()]
    optimizer = torch.optim.SGD([p for m in models for p in m.parameters()], lr=0.01)
    x = torch.randn(2, 4)
    told = []

    def forward(model, first, losses):
        for _ in range(first):
            x.requires_grad_() * 1  # makes a node, so the numbers go on from there
        losses.append(model(x).sum())

    def step():
        losses = []
        for _ in range(40):  # makes this thread use the node numbers up to some hundred
            out = models[2](x)
        for model, first in ((models[0], 0), (models[1], 60)):  # the engine runs nodes with higher numbers first
            in_thread(lambda: forward(model, first, losses))
        total = losses[0] + losses[1]
        total.backward()
        out.sum().backward()
        told.append(total.item())

    for _ in range(5):
        in_thread(step)
        optimizer.step()
        optimizer.zero_grad()
    return told


class Traced(Stage):
    pass


def traced():
    """Two threads run passes without values at once; the one that began first also ends first. Then it trains."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    second_began, first_ended = threading.Event(), threading.Event()

    def one_pass(hook):
        with FakeTensorMode():
            x = torch.ones(3, requires_grad=True) * 2
            x.register_hook(hook)
            x.sum().backward()

    def second_holds(grad):
        second_began.set()
        first_ended.wait()

    second = threading.Thread(target=one_pass, args=(second_holds,))

    def first_holds(grad):
        second.start()
        second_began.wait()

    one_pass(first_holds)
    first_ended.set()
    second.join()
    model = Traced()
    for _ in range(4):
        model(torch.randn(2, 4)).sum().backward()
