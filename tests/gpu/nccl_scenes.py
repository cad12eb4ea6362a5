# SPDX-License-Identifier: Apache-2.0
"""One rank of an NCCL job whose ranks all use GPU 0, run by check.py: NCCL_HOSTID makes NCCL take them for different hosts.

    known   each operation of torch.distributed, with the times of the host and of the GPU around it
    train   DDP; rank 1 is 50 ms late in each step
    hang    rank 1 does not come to the sixth all_reduce
"""
import json
import os
import sys
import time

scene, rank, world, store = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
os.environ.update(NCCL_HOSTID="rank%d" % rank, NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1", NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1",
                  RANK=str(rank), WORLD_SIZE=str(world))
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

torch.cuda.set_device(0)
dist.init_process_group("nccl", init_method="file://" + store, rank=rank, world_size=world)
t = torch.ones(1 << 18, device="cuda")
for _ in range(3):  # then the communicator exists, and the recording has found the driver
    dist.all_reduce(t)
    torch.cuda.synchronize()
    time.sleep(1)
said = []


def at_host():
    torch.cuda.synchronize()
    return time.time()


def known():
    parts = list(t.chunk(world))
    outs = [torch.empty_like(t) for _ in range(world)]
    whole, part, peer = torch.empty(world * t.numel(), device="cuda"), torch.empty_like(parts[0]), (rank + 1) % world

    def exchange():
        a = [dist.P2POp(dist.isend, t, peer), dist.P2POp(dist.irecv, outs[0], (rank - 1) % world)]
        for work in dist.batch_isend_irecv(a):
            work.wait()

    def coalesced():
        with dist._coalescing_manager(async_ops=True, device=torch.device("cuda", 0)) as manager:
            for x in parts:
                dist.all_reduce(x)
        manager.wait()
    ops = [("all_reduce", lambda: dist.all_reduce(t)), ("broadcast", lambda: dist.broadcast(t, 0)), ("reduce", lambda: dist.reduce(t, 0)),
           ("all_gather", lambda: dist.all_gather(outs, t)), ("all_gather", lambda: dist.all_gather_into_tensor(whole, t)),
           ("reduce_scatter", lambda: dist.reduce_scatter_tensor(part, t)), ("reduce_scatter", lambda: dist.reduce_scatter(part, parts)),
           ("all_to_all", lambda: dist.all_to_all_single(outs[0], t)), ("all_to_all", lambda: dist.all_to_all([outs[0].chunk(world)[i] for i in range(world)], parts)),
           ("scatter", lambda: dist.scatter(part, parts if rank == 0 else None, 0)),
           ("gather", lambda: dist.gather(t, outs if rank == 0 else None, 0)), ("barrier", dist.barrier), ("send,recv", exchange),
           ("all_reduce_coalesced", coalesced), ("all_reduce", lambda: dist.all_reduce(t, async_op=True).wait())]
    for turn in range(4):
        for name, op in ops:
            late = 0.02 * (turn == 2 and rank == 1)  # late on the host
            behind = turn == 3 and rank == 0         # late on the GPU: the host goes on at once
            dist.all_reduce(t)
            begun = at_host()
            time.sleep(late)
            if behind:
                torch.cuda._sleep(40000000)  # some 20 ms
            called = time.time()
            op()
            returned = time.time()
            said.append([name, turn, begun, called, returned, at_host()])


def train():
    from torch import nn
    net = nn.parallel.DistributedDataParallel(nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).cuda())
    optimizer, x = torch.optim.SGD(net.parameters(), lr=1e-3), torch.randn(64, 512, device="cuda")
    for _ in range(40):
        if rank == 1:
            time.sleep(0.05)
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        said.append(loss.item())


def hang():
    for i in range(8):
        if rank == 1 and i == 5:
            time.sleep(1000)
        dist.all_reduce(t)
        print("called", i, flush=True)
    torch.cuda.synchronize()


{"known": known, "train": train, "hang": hang}[scene]()
print("said", json.dumps(said), flush=True)
dist.destroy_process_group()
