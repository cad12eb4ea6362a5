#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer on made-up text, one character at a time. Needs PyTorch and nothing else.

Two loader processes make the text in plain Python while the main process trains, as in many real
trainings. With --steps, the same arguments give exactly the same losses; with --seconds the training
stops after that time. This is what `make demo` records and what `make bench` measures.
"""
import argparse
import math
import random
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

ALPHABET = " abcdefghijklmnopqrstuvwxyz.,?!'-0123456789\n"
CODE = {c: i for i, c in enumerate(ALPHABET)}

SUBJECTS = "the agent,a reader,the writer,our model,the old clock,a small ring,that trace,the sampler".split(",")
VERBS = "reads,writes,finds,drops,counts,follows,wakes,asks".split(",")
OBJECTS = "every frame,a lost record,the stack,its own tail,two threads,the last block,no answer,the truth".split(",")
TAILS = "at night,in the loop,without a word,again and again,before it dies,on rank {n},for {n} steps,".split(",")


def make_sentence(rng):
    """Returns a sentence that follows a few simple rules, so that there is something to learn."""
    subject = rng.choice(SUBJECTS)
    verb = rng.choice(VERBS)
    thing = rng.choice(OBJECTS)
    tail = rng.choice(TAILS).format(n=rng.randrange(100))
    end = "?" if subject.startswith("our") else "!" if verb == "wakes" else "."
    return " ".join(filter(None, (subject, verb, thing, tail))) + end


def normalize(text):
    """Returns the text in lower case, with known characters only and single blanks; deliberately in the slow, plain way."""
    out = []
    blank = False
    for c in text.lower():
        if c not in CODE:
            c = " "
        if c == " " and blank:
            continue
        blank = c == " "
        out.append(c)
    return "".join(out)


def encode(text):
    return [CODE[c] for c in text]


class TextDataset(Dataset):
    """Item i is a window of `length` + 1 characters that depends on the seed and on i alone."""

    def __init__(self, length, seed, size):
        self.length = length
        self.seed = seed
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        rng = random.Random(self.seed * 1000003 + index)
        text = ""
        while len(text) <= self.length:
            text += normalize(make_sentence(rng)) + "\n"
        codes = torch.tensor(encode(text[:self.length + 1]))
        return codes[:-1], codes[1:]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        score = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weight = F.softmax(score.masked_fill(future, float("-inf")), dim=-1)
        return self.out((weight @ v).transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class CharTransformer(nn.Module):
    def __init__(self, length, width=48, heads=4, layers=2):
        super().__init__()
        self.token = nn.Embedding(len(ALPHABET), width)
        self.position = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(ALPHABET))

    def forward(self, codes):
        x = self.token(codes) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(model, batch):
    inputs, targets = batch
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def train_step(model, optimizer, batch):
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of(model, batch)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def evaluate(model, held_out):
    model.eval()
    with torch.no_grad():
        loss = sum(loss_of(model, batch).item() for batch in held_out) / len(held_out)
    model.train()
    return loss


def write_sample(model, length, start="the "):
    """Prints what the model would write, always taking the likeliest character."""
    text = start
    with torch.no_grad():
        while len(text) < length:
            codes = torch.tensor([encode(text.ljust(length))])
            text += ALPHABET[int(model(codes)[0, len(text) - 1].argmax())]
    return text.split("\n")[0]


def train(args):
    torch.manual_seed(args.seed)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(args.threads)

    model = CharTransformer(args.length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    steps = args.steps or 10 ** 6
    data = TextDataset(args.length, args.seed, steps * args.batch)
    loader = DataLoader(data, batch_size=args.batch, num_workers=args.workers)
    test = TextDataset(args.length, args.seed + 1, 2 * args.batch)
    held_out = list(DataLoader(test, batch_size=args.batch))

    parameters = sum(p.numel() for p in model.parameters())
    print("%d parameters, batch %d x %d characters, torch %s, %d threads, %d loader processes"
          % (parameters, args.batch, args.length, torch.__version__, args.threads, args.workers), flush=True)
    start = time.monotonic()
    step = loss = 0
    for batch in loader:
        loss = train_step(model, optimizer, batch)
        step += 1
        if step % args.report == 0:
            print("step %4d  loss %.4f  held out %.4f  %5.1f s"
                  % (step, loss, evaluate(model, held_out), time.monotonic() - start), flush=True)
        if args.seconds and time.monotonic() - start >= args.seconds:
            break
    seconds = time.monotonic() - start
    if args.sample:
        print("it writes: " + write_sample(model, args.length))
    # The loss is in hexadecimal, so that two runs can be compared bit for bit.
    print("final loss %.6f %s after %d steps in %.2f s" % (loss, float(loss).hex(), step, seconds), flush=True)


def main():
    parser = argparse.ArgumentParser(description="Train a small transformer on made-up text.")
    parser.add_argument("--steps", type=int, default=0, help="stop after that many steps")
    parser.add_argument("--seconds", type=float, default=0, help="stop after that time (30 if no --steps)")
    parser.add_argument("--batch", type=int, default=8, help="windows a step (8)")
    parser.add_argument("--length", type=int, default=48, help="characters a window (48)")
    parser.add_argument("--workers", type=int, default=2, help="loader processes (2)")
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch (1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=int, default=100, help="print the loss every that many steps (100)")
    parser.add_argument("--no-sample", dest="sample", action="store_false", help="write no text at the end")
    args = parser.parse_args()
    if not args.steps and not args.seconds:
        args.seconds = 30
    train(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
