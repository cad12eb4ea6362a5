# SPDX-License-Identifier: Apache-2.0
"""Jobs of gloo ranks of which one, rank 2, is late for a reason of its own, for test_ask_why.py, which finds some lines by their comments. Usage: late_scenes.py SCENE DIR.

Without RANK in the environment it starts three ranks (in scene `workers`; else four) with torchrun's variables, which meet in a file."""
import gc
import os
import subprocess
import sys
import threading
import time

FAULTY = 2
SCENE, DIR = sys.argv[1:]
WORLD = 3 if SCENE == "workers" else 4

if "RANK" not in os.environ:
    ranks = [subprocess.Popen([sys.executable, "-W", "ignore"] + sys.argv, env=dict(
        os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(WORLD))) for r in range(WORLD)]
    sys.exit(max(rank.wait() for rank in ranks))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.utils.data  # noqa: E402
from gloo_ready import wait_for_agent  # noqa: E402

RANK = int(os.environ["RANK"])
IS_LATE = RANK == FAULTY
LOCK = threading.Lock()


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 1000000

    def __getitem__(self, i):
        if IS_LATE and SCENE in ("loader", "workers"):
            self.fetch()
        return torch.ones(64)

    def fetch(self):
        time.sleep(0.05)  # fetch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x):
        if IS_LATE and SCENE == "matmul":
            self.attend(torch.ones(500, 500))
        return self.linear(x)

    def attend(self, x):
        for _ in range(6):
            x = x @ x * 1e-3  # attend


def collect():
    gc.collect()  # collect


def save():
    while True:
        with LOCK:
            time.sleep(0.1)
        time.sleep(0.002)


def log_metrics():
    with LOCK:  # lock
        pass


def spin():
    while True:
        sum(range(1000))  # spin


def write_log():
    with open(DIR + "/log", "wb") as f:
        f.write(b"x" * (8 << 20))
        f.flush()
        os.fsync(f.fileno())


def now_and_then(step):
    if step % 20 == 10:
        time.sleep(1)  # rare


LATE = {"garbage": collect, "lock": log_metrics, "file": write_log}


def train(seconds):
    """Until so many seconds have passed in all ranks."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = iter(torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=SCENE == "workers"))
    end, step, go_on = time.monotonic() + seconds, 0, torch.tensor([float(WORLD)])
    while go_on.item() == WORLD:
        batch = next(loader)  # next
        optimizer.zero_grad()
        model(batch).sum().backward()
        if IS_LATE and SCENE == "rare":
            now_and_then(step)
        elif SCENE == "gil":
            sum(range(300000))
        elif IS_LATE and SCENE in LATE:
            LATE[SCENE]()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(0.03)
        step += 1
        go_on = torch.tensor([float(time.monotonic() < end)])
        dist.all_reduce(go_on)


torch.set_num_threads(1)
wait_for_agent()
dist.init_process_group("gloo", rank=RANK, world_size=WORLD, init_method="file://%s/store" % DIR)
JUNK = [[i] for i in range(300000)] if IS_LATE and SCENE == "garbage" else None
for name, of_scene in (("saver", save), ("spinner", spin)):
    if IS_LATE and (SCENE, name) in (("lock", "saver"), ("gil", "spinner")):
        threading.Thread(target=of_scene, name=name, daemon=True).start()
train(7 if SCENE == "workers" else 12)
dist.barrier()
os._exit(0)  # as in hang_scenes.py
