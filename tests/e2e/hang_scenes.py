# SPDX-License-Identifier: Apache-2.0
"""Jobs of gloo ranks that hang, each in its own way, for test_hang.py, which finds some lines by their comments. Usage: hang_scenes.py SCENE DIR.

With RANK set, by torchrun or by launch(), the process is one rank: it makes five collectives and then runs the scene, in which rank 2 is at fault.
Without RANK, launch() starts four ranks with torchrun's variables, which meet in a file (the torchrun of torch 1.13 fails on Python 3.11)."""
import contextlib
import datetime
import fcntl
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

FAULTY = 2


def launch(world=4):
    ranks = [subprocess.Popen([sys.executable, "-W", "ignore"] + sys.argv, env=dict(
        os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(world))) for r in range(world)]
    for rank in ranks:
        rank.wait()


def all_reduce(n=10):
    dist.all_reduce(torch.ones(n))


def all_reduce_and_say(n=10):
    """Makes the call, says in a file that it is made, and waits for its end."""
    work = dist.all_reduce(torch.ones(n), async_op=True)
    say_that_i_came()
    work.wait()


def say_that_i_came():
    open("%s/came_%d" % (DIR, RANK), "w").close()


def until_they_came(*ranks):
    """torchrun ends all ranks up to two seconds after one of them has died: a rank that had not come to the call by then never comes."""
    while not all(os.path.exists("%s/came_%d" % (DIR, rank)) for rank in ranks):
        time.sleep(0.01)


def gone_elsewhere():
    time.sleep(600)  # elsewhere


def never_comes():
    if RANK == FAULTY:
        gone_elsewhere()
    all_reduce()


def stops():
    """Rank 2 is stopped by SIGSTOP, as by a debugger or from a keyboard: it is not dead."""
    if RANK == FAULTY:
        os.kill(os.getpid(), signal.SIGSTOP)
    all_reduce()


def outside():
    """Nothing remains to be done here: rank 2 went to sleep before it initialised torch.distributed (see below)."""


def other_first():
    dist.all_gather([torch.ones(10) for _ in range(WORLD)], torch.ones(10))  # first
    all_reduce()


def order():
    if RANK == FAULTY:
        other_first()
    else:
        all_reduce()
        dist.all_gather([torch.ones(10) for _ in range(WORLD)], torch.ones(10))


def shapes():
    """Rank 2 passes another shape. What gloo does then varies: it waits, raises, or aborts (and torchrun then ends all ranks)."""
    all_reduce(1000 if RANK == FAULTY else 10)
    all_reduce()


def smaller():
    """Rank 2 comes last, and passes a smaller shape: gloo aborts in it at once."""
    if RANK == FAULTY:
        until_they_came(0, 1, 3)
        time.sleep(0.5)
        dist.all_reduce(torch.ones(10))
    all_reduce_and_say(1000)


def killed():
    if RANK == FAULTY:
        until_they_came(0, 1, 3)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    all_reduce_and_say()


def leaves():
    """Rank 2 leaves by sys.exit() while the others wait for it. Its connections close some time before its recording ends."""
    if RANK == FAULTY:
        until_they_came(0, 1, 3)
        time.sleep(0.5)
        sys.exit(3)
    all_reduce_and_say()


def termed_inside():
    """Rank 2 gets a SIGTERM from a stranger, sent to it alone, while it waits in the call."""
    killed_inside(["sh", "-c", "kill $PPID"])


def termed_with_its_child():
    """The same by a signal to rank 2's process group, in which it has a child (torchrun gives each rank a group of its own)."""
    if RANK == FAULTY:
        threading.Thread(target=multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)).start).start()
    killed_inside(["sh", "-c", "trap '' TERM; kill -- -$PPID"])


def killed_inside(how=None):
    """Rank 2 is killed by SIGKILL, or by the command `how`, while it waits in the call. Rank 0 comes to the call only when rank 2 is dead.
    Until it has come, the parent of the ranks is stopped: torchrun would end rank 0 when it sees that rank 2 is dead."""
    if RANK == FAULTY:
        with open(DIR + "/pid.part", "w") as f:
            f.write(str(os.getpid()))
        threading.Thread(target=kill_in_call, args=(how,)).start()
    elif RANK == 0:
        while not os.path.exists(DIR + "/pid"):
            time.sleep(0.05)
        with open(DIR + "/pid") as f, contextlib.suppress(OSError):
            pid = int(f.read())
            while open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] not in "ZX":
                time.sleep(0.01)
        try:
            work = dist.all_reduce(torch.ones(10), async_op=True)
        finally:
            os.kill(os.getppid(), signal.SIGCONT)
        work.wait()
        return
    all_reduce_and_say()


def kill_in_call(how):
    until_they_came(1, 2, 3)
    time.sleep(2.5)  # long enough for the call to be recorded while it is open, which happens after a second
    os.kill(os.getppid(), signal.SIGSTOP)
    os.rename(DIR + "/pid.part", DIR + "/pid")
    subprocess.run(how) if how else os.kill(os.getpid(), signal.SIGKILL)


class Data:
    def __len__(self):
        return 10

    def __getitem__(self, i):
        if i == 3 and RANK == FAULTY:
            self.read_slowly()
        return torch.ones(3)

    def read_slowly(self):
        time.sleep(600)


def train_on(loader):
    for _ in loader:
        all_reduce()


def loader():
    train_on(torch.utils.data.DataLoader(Data(), num_workers=1))


def take_twice(lock):
    with lock:
        with lock:  # again
            pass


def lock():
    if RANK == FAULTY:
        take_twice(threading.Lock())
    all_reduce()


def hold_at_fork():
    """A lock is held by a thread while rank 2 forks: its child waits for it, and rank 2 for the child."""
    lock = threading.Lock()
    if RANK == FAULTY:
        with lock:
            child = os.fork()
            if not child:
                take(lock)
        wait_for(child)
    all_reduce()


def take(lock):
    with lock:  # in the child
        pass


def wait_for(child):
    os.waitpid(child, 0)  # for the child


def two_locks():
    """Two threads of rank 2 take two locks in different order."""
    a, b = threading.Lock(), threading.Lock()
    met = threading.Barrier(2)
    if RANK == FAULTY:
        threading.Thread(target=take_both, args=(b, a, met), name="other", daemon=True).start()
        take_both(a, b, met)
    all_reduce()


def take_both(first, second, met):
    with first:
        met.wait()
        with second:  # never
            pass


def joins():
    """Rank 2 waits for the end of a thread of its own, which makes a checkpoint for ever."""
    if RANK == FAULTY:
        saver = threading.Thread(target=save_checkpoint, name="saver", daemon=True)
        saver.start()
        wait_for_thread(saver)
    all_reduce()


def save_checkpoint():
    time.sleep(600)  # saves


def wait_for_thread(thread):
    thread.join()  # never over


def read_config():
    with open(DIR + "/fifo") as f:
        return f.read()


def fifo():
    if RANK == FAULTY:
        read_config()
    all_reduce()


def lock_file(f):
    fcntl.flock(f, fcntl.LOCK_EX)  # forever


def flock():
    f, g = open(DIR + "/lock", "w"), open(DIR + "/lock", "w")
    if RANK == FAULTY:
        fcntl.flock(f, fcntl.LOCK_EX)
        lock_file(g)
    all_reduce()


def groups():
    """The groups are rows, [0, 1] and [2, 3], and columns, [0, 2] and [1, 3]. Rank 0 waits for 1 in their row, 1 for 3 in their column, and
    3 for 2 in their row."""
    pairs = {ranks: dist.new_group(list(ranks)) for ranks in ((0, 1), (2, 3), (0, 2), (1, 3))}
    for ranks, group in pairs.items():
        if RANK in ranks:
            dist.all_reduce(torch.ones(1), group=group)
    if RANK == FAULTY:
        gone_elsewhere()
    wait_in_order(pairs)


def wait_in_order(pairs):
    for ranks in {0: [(0, 1)], 1: [(1, 3), (0, 1)], 3: [(2, 3), (1, 3)]}[RANK]:
        dist.all_reduce(torch.ones(1), group=pairs[ranks])


def late():
    """40 steps of about 60 ms; rank 2 takes 50 ms longer. Each rank writes to a file the seconds between its collectives, and the
    deliberate part of each. One message to the next rank, sent once, must not make the job a pipeline."""
    work, planted, last = [], [], time.time()
    for _ in range(40):
        time.sleep(0.06)
        began = time.time()
        if RANK == FAULTY:
            time.sleep(0.05)
        planted.append(time.time() - began)
        work.append(time.time() - last)
        all_reduce()
        last = time.time()
    sent = dist.isend(torch.ones(3), (RANK + 1) % WORLD)
    dist.recv(torch.zeros(3), (RANK - 1) % WORLD)
    sent.wait()
    with open("%s/late_%d" % (DIR, RANK), "w") as f:
        json.dump([work, planted], f)


def comes_too_late():
    """Rank 2 comes three seconds after the call has failed in the others, whose time was up."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=3))
    if RANK == FAULTY:
        until_they_came(0, 1, 3)
        time.sleep(6)  # before it comes
    say_that_i_came()
    dist.all_reduce(torch.ones(10), group=group)


def joins_too_late():
    """Nothing remains to be done here: rank 2 came to init_process_group when the others had given up (see below)."""


def several_fail():
    """Rank 2 dies while the others have three operations in flight, to none of which it came: all three fail."""
    if RANK == FAULTY:
        until_they_came(0, 1, 3)
        os.kill(os.getpid(), signal.SIGKILL)
    works = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(3)]
    say_that_i_came()
    for work in works:
        with contextlib.suppress(RuntimeError):
            work.wait()
    with contextlib.suppress(RuntimeError):
        all_reduce()
    os._exit(1)


def dump_when_asked():
    """Writes the dump of PyTorch's own Flight Recorder once DIR/dump exists."""
    while not os.path.exists(DIR + "/dump"):
        time.sleep(0.1)
    from torch._C._distributed_c10d import _dump_fr_trace
    with open("%s/fr_%d.part" % (DIR, RANK), "wb") as f:
        f.write(_dump_fr_trace())
    os.rename(f.name, f.name[:-5])


if "RANK" not in os.environ:
    launch()
    sys.exit()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.utils.data  # noqa: E402
from gloo_ready import wait_for_agent  # noqa: E402

RANK, WORLD, DIR = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sys.argv[2]
torch.set_num_threads(1)
wait_for_agent()
if sys.argv[1] == "outside" and RANK == FAULTY:
    gone_elsewhere()
if sys.argv[1] == "joins_too_late":
    if RANK != FAULTY:
        say_that_i_came()
    until_they_came(0, 1, 3)
    time.sleep(12 if RANK == FAULTY else 0)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4 if sys.argv[1] == "joins_too_late" else 600), rank=RANK, world_size=WORLD,
                        init_method="env://" if "MASTER_ADDR" in os.environ else "file://%s/store" % DIR)
for _ in range(5):
    all_reduce()
    time.sleep(0.02)
if "TORCH_FR_BUFFER_SIZE" in os.environ:
    threading.Thread(target=dump_when_asked, daemon=True).start()
try:
    globals()[sys.argv[1]]()
except RuntimeError as e:
    if sys.argv[1] == "comes_too_late":
        raise
    print("raised", RANK, str(e).split("\n")[0], flush=True)
    time.sleep(600)
dist.barrier()
os._exit(0)  # with torch 2.13 gloo sometimes aborts at exit ("terminate called without an active exception"), recorded or not
