# SPDX-License-Identifier: Apache-2.0
"""The workloads of the bench: runs one of them, and writes what it cost as JSON into $BENCH_OUT.

    workload.py loop UNITS            plain Python on one core, fixed work
    workload.py train ARGUMENT...     the demo's training (tests/demo/train.py), fixed steps
    workload.py memory SECONDS [torch]   a process that works a little, then tells its memory
    workload.py target SECONDS        torch and a heartbeat: the longest time it stood still

The time is measured from inside, beginning half a second after the imports, so it does not include the start of the interpreter or of a profiler.
"""
import json
import os
import resource
import sys
import threading
import time

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def mix(a, b):
    return (a * 31 + b) % 1000003


def inner(n):
    total = 0
    for i in range(n):
        total = mix(total, i)
    return total


def outer(n):
    return sum(inner(100) for _ in range(n))


def loop(units):
    for _ in range(units):
        outer(50)


def cpu_seconds():
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    return total


def memory_of_self():
    """Returns Rss, Pss and private bytes of this process."""
    wanted = {"Rss": 0, "Pss": 0, "Private_Clean": 0, "Private_Dirty": 0}
    with open("/proc/self/smaps_rollup") as f:
        for line in f:
            name = line.split(":")[0]
            if name in wanted:
                wanted[name] = int(line.split()[1]) * 1024
    return {"rss": wanted["Rss"], "pss": wanted["Pss"], "private": wanted["Private_Clean"] + wanted["Private_Dirty"]}


def heartbeat(seconds, result):
    last = time.monotonic()
    end = last + seconds
    while last < end:
        time.sleep(0.0005)
        now = time.monotonic()
        result["longest_gap"] = max(result["longest_gap"], now - last)
        last = now


def timed(work, *args):
    wall, cpu = time.perf_counter(), cpu_seconds()
    work(*args)
    return {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu}


def warm_up(seconds=0.5):
    """Waits until a profiler has attached, read its symbols and seen the first stacks."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        loop(1)


def main():
    what, rest = sys.argv[1], sys.argv[2:]
    if what == "loop":
        warm_up()
        result = timed(loop, int(rest[0]))
    elif what == "train":
        sys.path.insert(0, os.path.join(REPO, "tests", "demo"))
        sys.argv = ["train.py"] + rest
        import train
        warm_up()
        result = timed(train.main)
    elif what == "memory":
        if "torch" in rest[1:]:
            import torch
            torch.zeros(10).sum()
        end = time.monotonic() + float(rest[0])
        while time.monotonic() < end:
            loop(1)
            time.sleep(0.02)
        result = memory_of_self()
    elif what == "target":
        import torch
        result = {"longest_gap": 0.0}
        print("ready", flush=True)
        beat = threading.Thread(target=heartbeat, args=(float(rest[0]), result))
        beat.start()
        weight = torch.ones(64, 64)
        while beat.is_alive():
            weight = (weight @ weight).clamp(0, 1)
            time.sleep(0.001)
        beat.join()
    else:
        raise SystemExit("workload.py: no workload " + what)
    with open(os.environ["BENCH_OUT"], "w") as f:
        json.dump(result, f)


if __name__ == "__main__":
    main()
