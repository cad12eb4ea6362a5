#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The injection storm: injections and stops at random times, over programs that check their own results.

usage: storm.py --build DIR [--python PATH ...] [--workload NAME ...] [--injections N] [--seed N] [--kill SHARE]

For each interpreter and workload: processes that run for some seconds are injected and stopped again and again, each
time at random and by a random method, until N injections have been tried. With --kill, that share of the
injectors gets SIGINT, SIGTERM or SIGKILL in the middle. A process must end with "right" and exit code 0. Prints one
JSON line for each pair: how many injections were tried, done, refused (by reason), cut off; stops; and what went wrong:
crashed, hung, wrong.
"""
import argparse
import collections
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HEAD = """
import os, sys, threading, time
end = time.monotonic() + float(sys.argv[1])
print("up", flush=True)
def go(): return time.monotonic() < end
"""
WORKLOADS = {
    "pure": HEAD + """
def work(k):
    s, d, t = 0, {}, []
    for i in range(k):
        s += i * i; d[i] = str(i); t.append((i, d[i]))
    return s + sum(len(x[1]) for x in t) + len(sorted(t, key=lambda x: x[1]))
want = work(500)
bad = 0
def thread():
    global bad
    while go():
        if work(500) != want: bad += 1
threads = [threading.Thread(target=thread) for _ in range(2)]
for t in threads: t.start()
thread()
for t in threads: t.join()
print("wrong" if bad else "right")
""",
    "alloc": HEAD + """
bad = 0
while go():
    held = []
    for k in range(200):
        held.append(bytearray(100 + k * 37))
        held.append({i: str(i) for i in range(40)})
    big = [bytes(n) for n in (200, 1000, 4000, 20000, 140000, 300000)]
    if sum(map(len, held)) != sum(100 + k * 37 + 40 for k in range(200)) or sum(map(len, big)) != 465200: bad += 1
print("wrong" if bad else "right")
""",
    "malloc": HEAD + """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
bad = []
def raw():
    while go():
        held = [libc.malloc(n) for n in (24, 1000, 40000, 300000)]
        if not all(held): bad.append(1)
        for p in held: libc.free(p)
def blocks():
    k = 0
    while go():
        k += 1
        b = [bytes([k & 255]) * n for n in (600, 5000, 200000)]
        if sum(x[0] + x[-1] for x in b) != 6 * (k & 255): bad.append(2)
threads = [threading.Thread(target=f) for f in (raw, blocks, raw)]
for t in threads: t.start()
for t in threads: t.join()
print("wrong" if bad else "right")
""",
    "dlopen": HEAD + """
import _ctypes
bad = []
def loop():
    while go():
        h = _ctypes.dlopen("libnss_files.so.2", 2)
        if not h: bad.append(1)
        _ctypes.dlclose(h)
        time.sleep(0)
threads = [threading.Thread(target=loop) for _ in range(2)]
for t in threads: t.start()
while go():
    if sum(range(1000)) != 499500: bad.append(2)
for t in threads: t.join()
print("wrong" if bad else "right")
""",
    "forks": HEAD + """
bad = []
while go():
    pid = os.fork()
    if pid == 0: os._exit(7)
    if os.waitpid(pid, 0)[1] != 7 << 8: bad.append(1)
print("wrong" if bad else "right")
""",
    "threads": HEAD + """
total, lock = [0], threading.Lock()
def add():
    with lock: total[0] += 1
n = 0
while go():
    made = [threading.Thread(target=add) for _ in range(4)]
    for t in made: t.start()
    for t in made: t.join()
    n += 4
print("right" if total[0] == n else "wrong")
""",
    "sleepers": HEAD + """
import select, queue
bad = []
def check(name, want, function):
    def run():
        while go():
            began = time.monotonic(); function(want)
            if time.monotonic() - began < want * 0.98: bad.append(name)
    return threading.Thread(target=run)
lock = threading.Lock(); lock.acquire()
r, w = os.pipe()
poll = select.poll(); poll.register(r, select.POLLIN)
q = queue.Queue()
def get(t):
    try: q.get(timeout=t)
    except queue.Empty: pass
threads = [check("sleep", .05, time.sleep), check("lock", .04, lambda t: lock.acquire(timeout=t)),
    check("poll", .03, lambda t: poll.poll(t * 1000)), check("select", .03, lambda t: select.select([r], [], [], t)),
    check("queue", .05, get), check("event", .04, lambda t: threading.Event().wait(t))]
for t in threads: t.start()
for t in threads: t.join()
print("wrong %r" % sorted(set(bad)) if bad else "right")
""",
    "loader": HEAD + """
import torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
class Data(Dataset):
    def __len__(self): return 96
    def __getitem__(self, i): return torch.full((32,), float(i)) / 96
def epoch():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in DataLoader(Data(), batch_size=8, num_workers=2):
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        opt.zero_grad(); loss.backward(); opt.step()
    return loss.item()
want, bad = epoch(), 0
while go():
    if epoch() != want: bad += 1
print("wrong" if bad else "right")
""",
}


def methods(python):
    text = subprocess.check_output([python, "-c", "import sys; print(*sys.version_info[:2])"], universal_newlines=True)
    version = tuple(map(int, text.split()))
    return ["any", "any", "native", "pep768" if version >= (3, 14) else "pending"]


def reason(text):
    """Returns the refusal's text without its numbers and paths, so that equal refusals are counted together."""
    text = text.strip().splitlines()[-1] if text.strip() else "(nothing was said)"
    text = re.sub(r"0x[0-9a-f]+|\d+", "N", text).replace("probing: ", "")
    return re.sub(r"/\S+", "PATH", text)[:160]


class Storm:
    def __init__(self, build, python, workload, seed, kill=0.0, seconds=8.0):
        self.build, self.python, self.workload = str(build), str(python), workload
        self.random = random.Random(seed)
        self.kill, self.seconds, self.methods = kill, seconds, methods(self.python)
        self.n = collections.Counter()
        self.reasons = collections.Counter()
        self.work = tempfile.mkdtemp(prefix="storm-")
        os.mkdir(os.path.join(self.work, "run"), 0o700)
        self.env = dict(os.environ, PROBING_RUN_DIR=os.path.join(self.work, "run"))
        self.script = os.path.join(self.work, "target.py")
        with open(self.script, "w") as f:
            f.write(WORKLOADS[workload])

    def probing(self, *args):
        return [os.path.join(self.build, "bin", "probing"), "-t", str(self.target.pid)] + list(args)

    def tool(self, *args):
        p = subprocess.run(self.probing(*args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           universal_newlines=True, env=self.env, timeout=240)
        return p.returncode, p.stdout, p.stderr

    def cut_off(self, *args):
        p = subprocess.Popen(self.probing(*args), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, env=self.env)
        time.sleep(self.random.uniform(0.001, 0.04))
        p.send_signal(self.random.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGKILL]))
        p.wait(timeout=240)

    def start(self):
        self.target = subprocess.Popen([self.python, self.script, "%g" % self.seconds], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env, cwd=self.work,
                                       start_new_session=True)
        select.select([self.target.stdout], [], [], 240)

    def once(self):
        """Tries one injection, and in most cases a stop after it."""
        self.n["tried"] += 1
        args = ["inject", "-o", os.path.join(self.work, "t.zst"), "-r", self.random.choice(["10", "100", "1000"]),
                "--method", self.random.choice(self.methods)]
        if self.random.random() < self.kill:
            self.cut_off(*args)
            self.n["cut off"] += 1
        else:
            code, out, err = self.tool(*args)
            if code == 0:
                self.n["already there" if "already recorded" in out else "done"] += 1
            else:
                self.n["refused"] += 1
                self.reasons[reason(err)] += 1
        time.sleep(self.random.uniform(0, 0.05))
        if self.random.random() < 0.9:
            code, out, err = self.tool("stop")
            self.n["stopped" if code == 0 else "not stopped"] += 1
            if code:
                self.reasons["stop: " + reason(err)] += 1

    def end(self):
        try:
            out, err = self.target.communicate(timeout=self.seconds + 240)
        except subprocess.TimeoutExpired:
            self.n["hung"] += 1
            os.killpg(self.target.pid, signal.SIGKILL)
            self.target.communicate()
            return
        if self.target.returncode != 0:
            self.n["crashed"] += 1
            self.reasons["target: exit %d: %s" % (self.target.returncode, err.decode(errors="replace")[-200:])] += 1
        elif not out.decode().strip().endswith("right"):
            self.n["wrong"] += 1
            self.reasons["target: " + out.decode(errors="replace")[-200:]] += 1
        else:
            self.n["processes right"] += 1
        for name in os.listdir(self.work):
            if name.startswith("t"):
                path = os.path.join(self.work, name)
                if name != "target.py":
                    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)

    def run(self, injections):
        while self.n["tried"] < injections:
            self.start()
            until = time.monotonic() + self.seconds - 0.3
            while time.monotonic() < until and self.n["tried"] < injections and self.target.poll() is None:
                self.once()
            if self.n["tried"] >= injections and self.target.poll() is None and not self.n["hung"]:
                pass  # the target runs on to its own end, and is judged by it
            self.end()
        left = [f for f in os.listdir(os.path.join(self.work, "run")) if f.startswith("inject-")]
        self.n["staging left"] = len(left) if not self.kill else 0
        shutil.rmtree(self.work, ignore_errors=True)
        return dict(self.n), dict(self.reasons)


BROKEN = ("crashed", "hung", "wrong", "staging left")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--python", action="append")
    parser.add_argument("--workload", action="append", choices=sorted(WORKLOADS))
    parser.add_argument("--injections", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kill", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=8.0)
    args = parser.parse_args()
    broken = 0
    for python in args.python or ["/usr/bin/python3"]:
        for workload in args.workload or sorted(WORKLOADS):
            if workload == "loader" and subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
                continue
            n, reasons = Storm(args.build, python, workload, args.seed, args.kill, args.seconds).run(args.injections)
            broken += sum(n.get(k, 0) for k in BROKEN)
            print(json.dumps({"python": python, "workload": workload, "seed": args.seed, "n": n, "reasons": reasons}),
                  flush=True)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
