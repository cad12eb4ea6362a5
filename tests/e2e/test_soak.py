# SPDX-License-Identifier: Apache-2.0
"""Hours of training in short: the program makes new objects of every kind again and again, and the recording's memory must not grow.

SOAK_SECONDS says how long (default: 60). The same program runs beside it unrecorded, at the same number of rounds a second; the test
compares how much each grows after the first quarter."""
import os
import subprocess

import conftest
import pytest
from test_torch import find_torch, said

PROGRAM = """
import asyncio, gc, json, os, sys, threading, time
import torch
from torch import nn
import probing
torch.set_num_threads(1)
seconds, rate = float(sys.argv[1]), float(sys.argv[2])

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin, self.act = nn.Linear(width, width), nn.ReLU()
    def forward(self, x):
        return x + self.act(self.lin(x))

def model(depth, width=8):
    return nn.Sequential(*[Block(width) for _ in range(depth)])

def train(net, optimizers, steps):
    for _ in range(steps):
        for o in optimizers:
            o.zero_grad()
        loss = net(torch.ones(2, 8)).sum()
        loss.backward()
        for o in optimizers:
            o.step()
    return loss.item()

def fresh(i):
    class Fresh(nn.Module):                     # a class of its own, gone with the round
        def forward(self, x):
            return nn.Tanh()(x) * 2
    net = nn.Sequential(model(1 + i % 3), Fresh())
    return train(net, [torch.optim.Adam(net.parameters())], 2)

def in_thread(i):
    with probing.span("thread %d" % (i % 50)):
        with torch.no_grad():
            model(2)(torch.ones(1, 8))
    probing.event("from a thread", n=i)

async def task(i):
    with probing.span("task"):
        await asyncio.sleep(0)

async def tasks(i):
    await asyncio.gather(*[task(i) for _ in range(5)])

def fails(i):
    try:
        model(1)(torch.ones(1, 3 + i % 2))
    except RuntimeError:
        pass

def rss():
    # KiB; without the live file's pages, which come one by one as the rings' farther ends are needed: all of it is 8.6 MB.
    gc.collect()
    total, live = 0, False
    with open("/proc/self/smaps") as f:
        for line in f:
            if line[8:9] == "-" or line[12:13] == "-":
                live = ".live" in line
            elif line.startswith("Rss:") and not live:
                total += int(line.split()[1])
    return total

keep = model(4)
sgd, adam = torch.optim.SGD(keep.parameters(), lr=1e-4), torch.optim.AdamW(keep[0].parameters(), lr=1e-4)
loop = asyncio.new_event_loop()
begin, rounds, seen = time.monotonic(), 0, []
marks = [seconds * k / 20 for k in range(1, 21)]
while marks:
    loss = train(keep, [sgd, adam], 5)
    fresh(rounds)
    fails(rounds)
    loop.run_until_complete(tasks(rounds))
    thread = threading.Thread(target=in_thread, args=(rounds,), name="worker-%d" % rounds)
    thread.start()
    with probing.span("made up %d" % rounds), probing.span("name %d" % (rounds % 100)):
        probing.event("round", n=rounds, text="text %d" % rounds)
    thread.join()
    rounds += 1
    behind = begin + rounds / rate - time.monotonic()
    if behind > 0:
        time.sleep(behind)
    if time.monotonic() - begin >= marks[0]:
        marks.pop(0)
        seen.append([round(time.monotonic() - begin, 1), rounds, rss()])
print("soak", json.dumps(seen), flush=True)
"""


@pytest.mark.slow
@pytest.mark.limit(7500)
def test_memory_does_not_grow(build, tmp_path):
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    seconds = float(os.environ.get("SOAK_SECONDS") or "60")
    script = tmp_path / "soak.py"
    script.write_text(PROGRAM)
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"), MALLOC_ARENA_MAX="2")
    plain = [python, "-W", "ignore", str(script), str(seconds), "15"]
    baseline = subprocess.Popen(plain, stdout=subprocess.PIPE, env=env, universal_newlines=True)
    try:
        trace = tmp_path / "soak.zst"
        done = conftest.run_command([build.tool("probing-record"), "-q", "-o", str(trace), "-r", "100", "--exprs", "loss@<module>,loss@train",
                                     "--set", "segment_size=16M", "--"] + plain, timeout=seconds + 600, env=env)
        out, _ = baseline.communicate(timeout=seconds + 600)
    finally:
        baseline.kill()
    with_us, without = said(done.stdout, "soak")[0], said(out, "soak")[0]
    print("seconds, rounds, KiB with us:", with_us, "\nwithout:", without)
    assert with_us[-1][1] > seconds  # the program did something
    grown = [run[-1][2] - run[4][2] for run in (with_us, without)]  # growth since the first quarter
    # Dictionaries and tables grow during the first minutes. Those of names that are new in each round grow until an epoch is full (after
    # some 100,000 names, an hour or so; then it starts anew): two epochs' tables are 3 MiB. If something were left of each round, that
    # would be tens of MiB.
    assert grown[0] - grown[1] < (4096 if seconds >= 600 else 6144), (grown, with_us, without)
