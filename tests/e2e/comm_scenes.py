# SPDX-License-Identifier: Apache-2.0
"""A rank of a small gloo job, for test_comm.py and test_triggers.py: comm_scenes.py SCENE STORE, with RANK and WORLD_SIZE set."""
import ctypes
import os
import sys
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
torch.manual_seed(0)
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def wait_for_agent(seconds=60):
    """Until the backend's virtual functions are entered through the agent: nothing that follows is missed."""
    maps = [line.split() for line in open("/proc/self/maps")]
    agent = [[int(x, 16) for x in m[0].split("-")] for m in maps if m[-1].endswith("libprobing-agent.so")]
    if not agent:
        return
    cpu = next(m[-1] for m in maps if "/libtorch_cpu.so" in m[-1])
    vtable = ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL(cpu), "_ZTVN4c10d16ProcessGroupGlooE"))
    words = (ctypes.c_uint64 * 40).from_address(vtable)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if any(low <= w < high for w in words for low, high in agent):
            return
        time.sleep(0.01)
    sys.exit("the agent was not ready in %d s" % seconds)


def known():
    """Operations whose sizes, types and ends test_comm.py knows."""
    x = torch.ones(1000)
    for _ in range(3):
        dist.all_reduce(x)
    work = dist.all_reduce(torch.ones(10, dtype=torch.float64), async_op=True)
    work.wait()
    dist.broadcast(torch.ones(10, dtype=torch.int64), src=1)
    dist.all_gather([torch.zeros(5) for _ in range(WORLD)], torch.ones(5))
    dist.reduce(x, dst=1)
    dist.scatter(torch.zeros(4), [torch.ones(4) for _ in range(WORLD)] if RANK == 0 else None, src=0)
    dist.gather(torch.ones(6), [torch.zeros(6) for _ in range(WORLD)] if RANK == WORLD - 1 else None, dst=WORLD - 1)
    dist.all_to_all_single(torch.zeros(2 * WORLD, dtype=torch.int32), torch.ones(2 * WORLD, dtype=torch.int32))
    dist.barrier()
    for n in (7, 8):
        if RANK == 0:
            dist.send(torch.ones(n), WORLD - 1)
        elif RANK == WORLD - 1:
            dist.recv(torch.ones(n), 0)
    ends = dist.new_group([0, WORLD - 1])
    if RANK in (0, WORLD - 1):
        dist.all_reduce(torch.ones(9, dtype=torch.uint8), group=ends)
        dist.broadcast(torch.ones(3), src=WORLD - 1, group=ends)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))
    for _ in range(3):
        net(torch.ones(4, 100)).sum().backward()
    print("sum", float(sum(p.double().sum() for p in net.parameters())), float(x.sum()))


def dawdle():
    time.sleep(0.03)


def slow():
    """Rank 1 comes 30 ms late to each of 20 collectives."""
    for _ in range(20):
        dist.barrier()
        if RANK == 1:
            dawdle()
        dist.all_reduce(torch.ones(1000))


def stuck():
    print("stuck", flush=True)
    time.sleep(600)


def absent():
    """After 15 equal steps the last rank never comes again."""
    net = torch.nn.Linear(10, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for i in range(16):
        if i == 15 and RANK == WORLD - 1:
            stuck()
        time.sleep(0.02)
        net(torch.ones(2, 10)).sum().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()


wait_for_agent()
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=RANK, world_size=WORLD)
{"known": known, "slow": slow, "absent": absent}[sys.argv[1]]()
dist.destroy_process_group()  # else torch's own threads now and then meet an interpreter that is gone, and abort
