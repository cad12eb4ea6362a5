#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training whose recording is training.zst (README.md says how that was made).

A small GPT under DistributedDataParallel with gloo: attention, layer norms, data loading in Python, gradient clipping,
checkpoints, so that stacks are as deep and as many as those of real programs. Two processes, RANK 0 and 1; the
argument is how many seconds.
"""
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.dropout(self.attention(h, h, h, need_weights=False)[0])
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, dim=64, layers=6, words=200):
        super().__init__()
        self.tokens = nn.Embedding(words, dim)
        self.positions = nn.Embedding(64, dim)
        self.layers = nn.ModuleList(Block(dim) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, words)

    def forward(self, x):
        h = self.tokens(x) + self.positions.weight[:x.shape[1]]
        for layer in self.layers:
            h = layer(h)
        return self.head(self.norm(h))


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 100000

    def __getitem__(self, i):
        row = torch.tensor([(i * 7 + j * j) % 200 for j in range(49)])
        return row[:-1], row[1:]


def train_step(model, optimizer, loss_of, x, y):
    optimizer.zero_grad()
    loss = loss_of(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


def save(model):
    with tempfile.TemporaryFile() as f:
        torch.save(model.state_dict(), f)


def main():
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=2)
    torch.set_num_threads(1)
    model = DistributedDataParallel(GPT())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    loss_of = nn.CrossEntropyLoss()
    start = time.time()
    for n, (x, y) in enumerate(torch.utils.data.DataLoader(Numbers(), batch_size=8)):
        train_step(model, optimizer, loss_of, x, y)
        if n % 50 == 49:
            save(model)
        stop = torch.tensor([float(time.time() - start > float(sys.argv[1]))])
        dist.all_reduce(stop)
        if stop.item():
            break
    dist.destroy_process_group()


main()
