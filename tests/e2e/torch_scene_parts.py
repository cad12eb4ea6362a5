# SPDX-License-Identifier: Apache-2.0
"""Helpers of the scenes of torch_scenes.py: the losses that they print, how they train, and a plain model."""
import torch
from torch import nn

torch.set_num_threads(1)
LOSSES = []
NEW = tuple(int(x) for x in torch.__version__.split(".")[:2]) >= (2, 4)


def train(model, optimizer, steps, size=4, micro=1, loss=None):
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(micro):
            out = model(torch.randn(2, size))
            value = out.sum() if loss is None else loss(out, torch.zeros_like(out))
            value.backward()
        optimizer.step()
        LOSSES.append(value.item())


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.head = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
