# SPDX-License-Identifier: Apache-2.0
"""One rank of a small gloo job, for test_comm.py and test_triggers.py. Usage: comm_scenes.py SCENE STORE, with RANK and WORLD_SIZE set."""
import importlib
import json
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from gloo_ready import wait_for_agent

torch.set_num_threads(1)
torch.manual_seed(0)
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def delayed():
    """Returns for how many seconds in all the threads of this process have waited for a processor so far. A thread of gloo may report an
    operation as done later than it was done, by at most as much as this grew meanwhile."""
    waited = 0
    for task in os.listdir("/proc/self/task"):
        with open("/proc/self/task/%s/schedstat" % task) as f:
            waited += int(f.read().split()[1])
    return waited / 1e9


def known():
    """Operations whose sizes, types and completion times test_comm.py knows."""
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
    """Rank 1 comes 30 ms late to each of 20 collectives. Each rank prints the two moments between which it entered each collective."""
    came = []
    for _ in range(20):
        dist.barrier()
        if RANK == 1:
            dawdle()
        data = torch.ones(1000)
        before = time.monotonic()
        work = dist.all_reduce(data, async_op=True)
        came.append((before, time.monotonic()))
        work.wait()
    print("came", json.dumps(came), flush=True)


def even():
    """40 equal steps, the same in all ranks, except that rank 2 comes DELAY seconds late to each."""
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(200, 200))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(40):
        data = torch.randn(64, 200)
        if RANK == 2:
            time.sleep(float(os.environ["DELAY"]))
        optimizer.zero_grad()
        net(data).sum().backward()
        optimizer.step()


def stuck():
    print("stuck", flush=True)
    time.sleep(600)


def absent():
    """The last rank stays away for good after 15 equal steps."""
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


def rotated():
    """Rank 0 comes to an operation and records on in another file, while rank 1 comes only when there is a file "go"."""
    x = torch.ones(10)
    dist.all_reduce(x)
    exec("\n".join("def f%d(n):\n    return f%d(n - 1) if n else time.sleep(0.001)" % (i, (i * 7 + 3) % 1000) for i in range(1000)), globals())

    def work():  # many stacks, for a large file
        for i in range(10 ** 9):
            globals()["f%d" % (i % 1000)](10 + i % 13)
    threading.Thread(target=work, daemon=True).start()
    while RANK == 1 and not os.path.exists(sys.argv[2] + ".go"):
        time.sleep(0.01)
    dist.all_reduce(x)
    dist.all_reduce(x)


def anew():
    """Initialises and ends communication three times, each time with a new group; torch names the two groups "0" and "1" every time."""
    for again in range(3):
        if again:
            dist.init_process_group("gloo", init_method="file://" + sys.argv[2] + str(again), rank=RANK, world_size=WORLD)
        dist.all_reduce(torch.ones(10))
        dist.monitored_barrier()
        group = dist.new_group(list(range(WORLD)))
        for _ in range(2):
            dist.all_reduce(torch.ones(3), group=group)
        del group
        if again < 2:
            dist.destroy_process_group()


def every():
    """Calls every operation of torch.distributed in every form, each after an all_reduce of int8. Prints for each: name, form, the number
    of rows that it makes in this rank, and three times: when it was called, when the call returned, and when the operation was over."""
    done, zeros, ones = [], torch.zeros, torch.ones
    mark = ones(1, dtype=torch.int8)
    try:
        fun = importlib.import_module("torch.distributed._functional_collectives")
    except ImportError:
        fun = None

    def one(name, form, call, rows=1):
        dist.all_reduce(mark)
        if RANK == 1:
            time.sleep(0.005)
        began = time.time()
        try:
            work = call()
            back = time.time()
            if form == "async":
                time.sleep(0.01)  # the operation is over long before it is waited for
            for w in work if isinstance(work, list) else [work]:
                if hasattr(w, "wait"):
                    w.wait()
            done.append([name, form, rows, began, back, time.time()])
        except (RuntimeError, AttributeError):  # this gloo or this torch lacks the operation
            done.append([name, "raised", 0, began, time.time(), time.time()])

    def both(name, call, rows=1):
        one(name, "sync", lambda: call(False), rows)
        one(name, "async", lambda: call(True), rows)

    def per_rank(what, here=True):
        return [what() for _ in range(WORLD)] if here else None

    def managed(call):
        def run(a):
            with dist._coalescing_manager(async_ops=a) as m:
                for k in (n, 5):
                    call(k)
            return m if a else None
        return run

    last = WORLD - 1
    for n in (3, 100000):
        both("broadcast", lambda a: dist.broadcast(ones(n), 0, async_op=a))
        both("all_reduce", lambda a: dist.all_reduce(ones(n), async_op=a))
        both("all_reduce", lambda a: dist.all_reduce(ones(n).to_sparse(), async_op=a))
        both("all_reduce_coalesced", lambda a: dist.all_reduce_coalesced([ones(n), ones(5)], async_op=a))
        both("reduce", lambda a: dist.reduce(ones(n), 1, async_op=a))
        both("all_gather", lambda a: dist.all_gather(per_rank(lambda: zeros(n)), ones(n), async_op=a))
        both("all_gather", lambda a: dist._all_gather_base(zeros(n * WORLD), ones(n), async_op=a))
        both("all_gather", lambda a: dist.all_gather_into_tensor(zeros(n * WORLD), ones(n), async_op=a))
        both("all_gather_coalesced", lambda a: dist.all_gather_coalesced(per_rank(lambda: [zeros(n), zeros(5)]), [ones(n), ones(5)], async_op=a))
        both("gather", lambda a: dist.gather(ones(n), per_rank(lambda: zeros(n), RANK == last), last, async_op=a))
        both("scatter", lambda a: dist.scatter(zeros(n), per_rank(lambda: ones(n), RANK == last), last, async_op=a))
        both("reduce_scatter", lambda a: dist.reduce_scatter(zeros(n), per_rank(lambda: ones(n)), async_op=a))
        both("reduce_scatter", lambda a: dist._reduce_scatter_base(zeros(n), ones(n * WORLD), async_op=a))
        both("reduce_scatter", lambda a: dist.reduce_scatter_tensor(zeros(n), ones(n * WORLD), async_op=a))
        both("all_to_all", lambda a: dist.all_to_all(per_rank(lambda: zeros(n)), per_rank(lambda: ones(n)), async_op=a))
        both("all_to_all", lambda a: dist.all_to_all_single(zeros(n * WORLD), ones(n * WORLD), async_op=a))
        if hasattr(dist, "_coalescing_manager"):
            both("all_reduce_coalesced", managed(lambda k: dist.all_reduce(ones(k))))
            both("all_gather_coalesced", managed(lambda k: dist.all_gather_into_tensor(zeros(k * WORLD), ones(k))))
            both("reduce_scatter_coalesced", managed(lambda k: dist.reduce_scatter_tensor(zeros(k), ones(k * WORLD))))
        if fun and hasattr(fun, "all_gather_tensor"):
            world = dist.group.WORLD
            one("all_reduce", "sync", lambda: fun.all_reduce(ones(n), "sum", world))
            one("all_gather", "sync", lambda: fun.all_gather_tensor(ones(n), 0, world))
            one("reduce_scatter", "sync", lambda: fun.reduce_scatter_tensor(ones(n * WORLD), "sum", 0, world))
            one("all_to_all", "sync", lambda: fun.all_to_all_single(ones(n * WORLD), None, None, world))
            one("broadcast", "sync", lambda: fun.broadcast(ones(n), 0, world))
            one("all_reduce_coalesced", "sync", lambda: fun.all_reduce_coalesced([ones(n), ones(5)], "sum", world))
            one("all_gather_coalesced", "sync", lambda: fun.all_gather_into_tensor_coalesced([ones(n), ones(5)], world))
            one("reduce_scatter_coalesced", "sync", lambda: fun.reduce_scatter_tensor_coalesced([ones(n * WORLD), ones(5 * WORLD)], "sum", [0, 0], world))
        mine, there = ("send", "recv") if RANK == 0 else ("recv", "send")
        peer = 1 - RANK
        both(mine, lambda a: None if RANK > 1 else getattr(dist, ("i" if a else "") + mine)(ones(n), peer), int(RANK < 2))
        both(mine, lambda a: None if RANK > 1 else (dist.isend if RANK == 0 else dist.irecv)(ones(n), *([1] if RANK == 0 else [])), int(RANK < 2))
        one("p2p", "async", lambda: None if RANK > 1 else dist.batch_isend_irecv([dist.P2POp(dist.isend, ones(n), peer), dist.P2POp(dist.irecv, ones(n), peer)]), 2 * (RANK < 2))
    one("broadcast", "sync", lambda: dist.broadcast_object_list([{"a": 1}], 0), 2)
    one("all_gather", "sync", lambda: dist.all_gather_object([None] * WORLD, {"a": 1}), 2)
    one("gather_object", "sync", lambda: dist.gather_object({"a": 1}, [None] * WORLD if RANK == 0 else None, 0), 2)
    one("scatter_object", "sync", lambda: dist.scatter_object_list([None], [1] * WORLD if RANK == 0 else None, 0), 3)
    one("monitored_barrier", "sync", lambda: dist.monitored_barrier())
    both("barrier", lambda a: dist.barrier(async_op=a))
    nnf = importlib.import_module("torch.distributed.nn.functional")

    def grads(call):
        def run():
            x = ones(WORLD * 4, requires_grad=True)
            call(x).sum().backward()
        return run
    one("nn.all_reduce", "sync", grads(lambda x: nnf.all_reduce(x)), 2)
    one("nn.all_gather", "sync", grads(lambda x: torch.stack(nnf.all_gather(x))), None)
    one("nn.all_to_all_single", "sync", grads(lambda x: nnf.all_to_all_single(zeros(WORLD * 4), x)), 2)
    # many operations in flight, of kinds that share a name, waited for in reverse order
    dist.all_reduce(mark)
    began = time.time()
    works = []
    for i in range(30):
        works.append(dist.all_reduce(ones(1000 + i), async_op=True))
        works.append(dist.all_gather(per_rank(lambda: zeros(i + 1)), ones(i + 1), async_op=True))
        try:
            works.append(dist._reduce_scatter_base(zeros(i + 1), ones((i + 1) * WORLD), async_op=True))
        except RuntimeError:
            pass
    back = time.time()
    for w in reversed(works):
        w.wait()
    done.append(["many", "async", len(works), began, back, time.time()])
    dist.all_reduce(mark)
    print("done " + json.dumps([done, delayed()]), flush=True)
    time.sleep(0.1)  # time for gloo's threads to release the tensors



def wholes():
    """Trains with DDP, both kinds of FSDP (if this torch has them) and a pipeline; an all_reduce of int8 comes before each step. Prints for
    each step: name, the number of operations of each kind (None: not counted), begin and end."""
    done, mark, units = [], torch.ones(1, dtype=torch.int8), 4

    def step(name, ops, call):
        dist.all_reduce(mark)
        began = time.time()
        call()
        done.append([name, ops, began, time.time()])

    def units_of(wrap):
        return torch.nn.Sequential(*[wrap(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())) for _ in range(units)])

    def train(name, ops, model):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

        def one():
            model(torch.ones(8, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        for i in range(6):
            step(name, ops if i > 1 else None, one)
    buckets = units if hasattr(dist, "_coalescing_manager") else 1  # torch 1.13 makes its first bucket a megabyte large, whatever bucket_cap_mb says
    train("ddp", {"all_reduce": buckets}, torch.nn.parallel.DistributedDataParallel(units_of(lambda m: m), bucket_cap_mb=0.01))
    sharded = {"all_gather": 2 * units, "reduce_scatter": units}
    try:
        fsdp = importlib.import_module("torch.distributed.fsdp")
    except ValueError:  # that of torch 1.13 cannot be imported with Python 3.11
        fsdp = None
    if hasattr(fsdp, "fully_shard"):
        cpu = {"device_id": torch.device("cpu")}
        train("fsdp1", sharded, fsdp.FullyShardedDataParallel(units_of(lambda m: fsdp.FullyShardedDataParallel(m, **cpu)), **cpu))
        mesh = importlib.import_module("torch.distributed.device_mesh").init_device_mesh("cpu", (WORLD,))
        train("fsdp2", sharded, fsdp.fully_shard(units_of(lambda m: fsdp.fully_shard(m, mesh=mesh)), mesh=mesh))
    stage = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(stage.parameters(), 0.1)

    def pipeline():
        for _ in range(3):
            x = torch.ones(4, 64, requires_grad=RANK > 0)
            if RANK > 0:
                dist.recv(x.data, 0)
            y = stage(x)
            gradient = torch.ones_like(y)
            if RANK == 0:
                dist.send(y.detach(), 1)
                dist.recv(gradient, 1)
            y.backward(gradient)
            if RANK > 0:
                dist.isend(x.grad, 0).wait()
        optimizer.step()
    for _ in range(6):
        step("pipeline", {"send": 3, "recv": 3}, pipeline)
    dist.all_reduce(mark)
    print("done " + json.dumps([done, delayed()]), flush=True)
    time.sleep(0.1)


def deserted():
    """Rank 1 leaves. Rank 0's third all_reduce, and a fourth asynchronous one that it then waits for, fail with an exception."""
    x = torch.ones(1000)
    for _ in range(2):
        dist.all_reduce(x)
    third = sys.argv[2] + ".third"
    if RANK == 1:  # leaves when the other one waits: what is called after that is not "failed" but "raised"
        while not os.path.exists(third):
            time.sleep(0.01)
        time.sleep(1)
        os._exit(0)
    open(third, "w").close()
    for call in (lambda: dist.all_reduce(x), lambda: dist.all_reduce(x, async_op=True).wait()):
        try:
            call()
        except RuntimeError:
            print("failed", flush=True)
    time.sleep(0.3)
    os._exit(0)  # with torch 2.13 gloo sometimes aborts at exit, recorded or not


def alike():
    """Many operations at once that nothing tells apart, executed by six threads of gloo's. Prints their number."""
    groups, made = [dist.new_group(), dist.new_group(), dist.group.WORLD], 0
    for _ in range(int(os.environ["ROUNDS"])):
        work = [dist.barrier(group=g, async_op=True) for _ in range(10) for g in groups]
        made += len(work)
        for w in work:
            w.wait()
    print(made, flush=True)


wait_for_agent()
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=RANK, world_size=WORLD)
{"known": known, "slow": slow, "even": even, "absent": absent, "every": every, "anew": anew, "deserted": deserted, "wholes": wholes,
 "alike": alike, "rotated": rotated}[sys.argv[1]]()
time.sleep(0.2)  # a thread of torch 2.6 needs the GIL to free the last tensor, and the next call waits for that thread, holding the GIL
dist.destroy_process_group()  # without it, threads of torch sometimes run when the interpreter is gone, and abort
