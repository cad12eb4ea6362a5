# SPDX-License-Identifier: Apache-2.0
"""Checks whether what Probing says about the GPU is true. Run by hand, on a machine with an NVIDIA GPU and a CUDA build of PyTorch.

    make && PYTHON_WITH_CUDA_TORCH tests/gpu/check.py [--build DIR] [--seconds N] [CHECK...]

  memory    torch_trace's allocated, max_allocated, cached equal torch.cuda's at the same points
  times     cuda_duration within 2 % (or 20 us) of CUDA events of the program's own, and of torch.profiler's
  graph     a CUDA graph is captured and replayed while recording, with the same result as without
  nvml      gpu_metrics agree with nvidia-smi
  nccl      two ranks on one GPU: each operation's begin and end on the GPU, ranks match, a late rank and a hang are named
  cost      a training step takes less than 1 % longer (on and off in turn, in one process)

Prints a line for each check. Exit code 0: all is well; 1: something is not; 77: nothing could be checked here (no GPU, no CUDA build of torch).
Checks that need no GPU are in tests/e2e/test_torch_cuda.py, with a fake driver.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
SKIP = 77
MARGIN, LEAST = 0.02, 20e-6
DEPTH = 6


# ---- programs, run under probing-record ------------------------------------------------------------


def model(width=2048, depth=DEPTH):
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            return x + self.second(torch.relu(self.first(x)))
    torch.manual_seed(3)
    return nn.ModuleList([Block() for _ in range(depth)]).cuda()


def wait_until_recording():
    """Waits for the recording, because the first calls may come before the agent has found the driver and a context."""
    import torch
    probe, x = torch.nn.Tanh(), torch.ones(8, device="cuda")
    end = time.monotonic() + 3
    while time.monotonic() < end:
        probe(x)
        time.sleep(0.02)
    torch.cuda.synchronize()


def memory_program():
    import torch
    blocks, said, kept = model(512), [], []
    wait_until_recording()
    x = torch.randn(64, 512, device="cuda")
    for turn in range(20):
        if turn == 10:
            torch.cuda.reset_peak_memory_stats()
        for block in blocks:
            kept.append(block(x))
            said.append((torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved()))
        if turn % 3 == 2:
            kept.clear()
    print("said", json.dumps(said))


def times_program():
    """Kernels of milliseconds. The GPU is kept behind the host, so that it never waits for it."""
    import torch
    blocks = model()
    x = torch.randn(4096, 2048, device="cuda")
    wait_until_recording()
    for block in blocks:
        block(x).sum().backward()

    def turn(events):
        for i, block in enumerate(blocks):
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            with torch.profiler.record_function("block %d" % i):
                a.record()
                block(x)
                b.record()
            events.append((a, b))
    said = {"events": [], "profiler": []}
    for _ in range(5):
        events = []
        torch.cuda._sleep(200000000)
        turn(events)
        torch.cuda.synchronize()
        said["events"].append([a.elapsed_time(b) / 1e3 for a, b in events])
        time.sleep(0.2)
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    for _ in range(5):
        with torch.profiler.profile(activities=kinds) as p:
            torch.cuda._sleep(200000000)
            turn([])
            torch.cuda.synchronize()
        rows = {r.key: r for r in p.key_averages()}
        said["profiler"].append([next(v for v in (getattr(rows["block %d" % i], k, None) for k in
                                                  ("device_time_total", "cuda_time_total")) if v is not None) / 1e6
                                 for i in range(DEPTH)])
        time.sleep(0.2)
    for block in blocks:  # so that the agent reads the events that have come
        block(x)
        time.sleep(0.1)
    print("said", json.dumps(said))


def graph_program():
    import torch
    torch.manual_seed(1)
    block = model(256, 1)[0].eval()
    wait_until_recording()
    x = torch.randn(32, 256, device="cuda")
    with torch.no_grad():
        want = block(x).clone()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                block(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = block(x)
        for _ in range(10):
            graph.replay()
            block(x)
        torch.cuda.synchronize()
    print("said", json.dumps([bool(torch.equal(out, want)), float((out - want).abs().max())]))


def nvml_program():
    import torch
    keep = torch.ones(1 << 28, device="cuda")
    torch.cuda.synchronize()
    said = []
    time.sleep(1)  # long enough for a reading that includes all of it
    for _ in range(8):
        out = subprocess.run(["nvidia-smi", "--query-gpu=uuid,name,memory.used,memory.total,temperature.gpu",
                              "--format=csv,noheader,nounits"], stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout
        said.append((time.time(), [[f.strip() for f in line.split(",")] for line in out.strip().split("\n")]))
        time.sleep(0.7)
    print("said", json.dumps(said), keep.numel() > 0)


def cost_program(seconds):
    import probing
    import torch
    blocks = model(1024, 12)
    net = torch.nn.Sequential(*blocks)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    x = torch.randn(1024, 1024, device="cuda")

    def steps(n):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(n):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / n
    steps(20)
    order, rounds, end = random.Random(1), [], time.monotonic() + float(seconds)
    modes = [("off", "off"), ("off, again", "off"), ("on", "on"), ("all", "cuda=all,memory=all")]
    while time.monotonic() < end or len(rounds) < 5:
        order.shuffle(modes)
        one = {}
        for name, setting in modes:
            probing.config("torch.profiling", setting)
            time.sleep(0.3)
            steps(5)
            one[name] = min(steps(5) for _ in range(6))
        rounds.append(one)
    print("said", json.dumps(rounds))


# ---- checks --------------------------------------------------------------------------------------


class Place:
    def __init__(self, build, seconds, tmp):
        self.build, self.seconds, self.tmp = build, seconds, tmp

    def record(self, program, *args, options=()):
        trace, db = self.tmp / (program + ".zst"), self.tmp / (program + ".db")
        env = dict(os.environ, PROBING_RUN_DIR=str(self.tmp), PYTHONPATH=str(self.build / "share/probing/python"))
        cmd = [self.build / "bin/probing-record", "-q", "-o", trace] + list(options) + [
            "--", sys.executable, "-W", "ignore", __file__, "--program", program] + list(args)
        done = subprocess.run([str(c) for c in cmd], stdout=subprocess.PIPE, universal_newlines=True, env=env, timeout=600)
        said = [line.split(" ", 1)[1] for line in done.stdout.split("\n") if line.startswith("said ")]
        if done.returncode or not said:
            raise SystemExit("check.py: the program %s failed: exit code %d\n%s" % (program, done.returncode, done.stdout))
        subprocess.run([str(self.build / "bin/probing-convert"), "-q", str(trace), str(db)], check=True, timeout=600)
        return json.JSONDecoder().raw_decode(said[-1])[0], sqlite3.connect(str(db))


ROOTS = " FROM torch_trace WHERE stage = 'forward' AND depth = 0 AND type = 'Block' AND device IS NOT NULL ORDER BY timestamp"


def notes(db):
    return "; ".join(r[0] for r in db.execute("SELECT text FROM notes WHERE part = 'cuda'"))


def check_memory(place):
    said, db = place.record("memory_program", options=["--torch", "cuda=off,memory=all"])
    rows = db.execute("SELECT allocated, max_allocated, cached" + ROOTS).fetchall()
    bad = [(a, b) for a, b in zip(rows, said) if any(abs(p * 1e6 - q) > 0.5 for p, q in zip(a, b))]
    return len(rows) == len(said) and not bad, "%d calls, %d unlike torch.cuda's%s %s" % (
        len(rows), len(bad) + abs(len(rows) - len(said)), ": %r" % (bad[0],) if bad else "", notes(db))


def check_times(place):
    said, db = place.record("times_program", options=["--torch", "cuda=all,memory=off"])
    rows = [r[0] for r in db.execute("SELECT cuda_duration FROM torch_trace WHERE stage = 'forward' AND depth = 0 AND type = 'Block'"
                                     " ORDER BY timestamp")]
    rows, text, good = rows[DEPTH:], [], True  # the first ones of each were for warming up
    for kind in ("events", "profiler"):
        want = [d for turn in said[kind] for d in turn]
        have, rows = rows[:len(want)], rows[len(want):]
        missing = sum(h is None for h in have) + len(want) - len(have)
        off = [abs(h - w) / w for h, w in zip(have, want) if h is not None and abs(h - w) > LEAST]
        good = good and not missing and not [o for o in off if o > MARGIN]
        text.append("%s: %d calls, %d without a time, at most %.2f %% apart" % (kind, len(want), missing, 100 * max(off, default=0)))
    return good, "; ".join(text) + "; " + notes(db)


def check_graph(place):
    (equal, apart), db = place.record("graph_program", options=["--torch", "cuda=all,memory=all"])
    return equal or apart < 1e-5, "replayed result %s; %s" % ("equal" if equal else "apart by %g" % apart, notes(db))


def check_nvml(place):
    said, db = place.record("nvml_program", options=["--metrics", "0.2"])
    bad, n = [], 0
    for when, gpus in said:
        for uuid, name, used, total, temperature in gpus:
            row = db.execute("SELECT name, memory_used_mb * 1e6 / 1048576, memory_total_mb * 1e6 / 1048576, temperature FROM gpu_metrics"
                             " WHERE uuid = ? ORDER BY abs(timestamp - ?) LIMIT 1", (uuid, when)).fetchone()
            n += 1
            if (not row or row[0] != name or abs(row[1] - float(used)) > 16 or abs(row[2] - float(total)) > 1
                    or abs(row[3] - float(temperature)) > 3):
                bad.append((row, (name, used, total, temperature)))
    return n > 0 and not bad, "%d readings, %d unlike nvidia-smi%s" % (n, len(bad), ": %r" % (bad[0],) if bad else "")


def check_cost(place):
    said, db = place.record("cost_program", str(place.seconds))
    more = {k: statistics.median(r[k] / r["off"] - 1 for r in said) for k in said[0] if k != "off"}
    return more["on"] - max(0, more["off, again"]) < 0.01, "step %.2f ms; %s; %d rounds; %s" % (
        1e3 * statistics.median(r["off"] for r in said), ", ".join("%s %+.2f %%" % (k, 100 * v) for k, v in more.items()), len(said), notes(db))


class Job:
    """Two ranks of nccl_scenes.py on GPU 0, each recorded into a trace of its own."""

    def __init__(self, place, scene):
        self.place, self.traces = place, place.tmp / ("nccl_" + scene)
        self.traces.mkdir()
        env = dict(os.environ, PROBING_RUN_DIR=str(place.tmp), PYTHONPATH=str(place.build / "share/probing/python"))
        self.ranks = [subprocess.Popen(
            [str(place.build / "bin/probing-record"), "-q", "-o", str(self.traces / ("rank%d.zst" % rank)), "--", sys.executable, "-W", "ignore",
             str(REPO / "tests/gpu/nccl_scenes.py"), scene, str(rank), "2", str(self.traces / "store")], env=dict(env, RANK=str(rank)),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True) for rank in range(2)]

    def said(self):
        out = [p.communicate(timeout=120)[0] for p in self.ranks]
        if any(p.returncode for p in self.ranks):
            raise SystemExit("check.py: NCCL: exit codes %r\n%s" % ([p.returncode for p in self.ranks], "\n".join(out)[-3000:]))
        return [json.loads(line.split(" ", 1)[1]) for text in out for line in text.split("\n") if line.startswith("said ")]

    def database(self):
        db = self.traces / "out.db"
        if db.exists():
            return db
        subprocess.run([str(self.place.build / "bin/probing-convert"), "-q"] + [str(p) for p in sorted(self.traces.glob("*.zst"))] + [str(db)],
                       check=True, timeout=600)
        return db

    def ask(self, question):
        return subprocess.run([str(self.place.build / "bin/probing"), "ask", question, str(self.database())], stdout=subprocess.PIPE,
                              universal_newlines=True, timeout=600).stdout.split("\n")[0]


def check_nccl(place):
    job = Job(place, "known")
    said = job.said()
    db, bad, n, off = sqlite3.connect(str(job.database())), [], 0, []
    for rank in range(2):
        for name, turn, begun, called, returned, done in said[rank]:
            rows = db.execute("SELECT op, enter, exit, complete, completion FROM comm_metrics WHERE rank = ? AND enter BETWEEN ? AND ?"
                              " ORDER BY enter", (rank, begun, done)).fetchall()
            n += 1
            good = rows and {r[0] for r in rows} == set(name.split(",")) and all(r[3] and r[4] != "call" and r[2] <= done + 2e-4 for r in rows)
            if good and name == "all_reduce" and turn >= 2:
                long, waits = rows[0][2] - rows[0][1] > 0.015, rank == (0 if turn == 2 else 1)
                good = long == waits and (turn == 2 or rank == 1 or rows[0][1] - called > 0.015)
            if good:
                off.append(done - rows[-1][2])
            else:
                bad.append((rank, name, turn, called, done, rows))
    apart = db.execute("SELECT count(*) FROM comm_metrics a JOIN comm_metrics b ON a.rank = 0 AND b.rank = 1 AND a.seq = b.seq AND a.op = b.op"
                       " WHERE a.src_rank IS NULL AND abs(a.exit - b.exit) > 0.001 AND a.op IN ('all_reduce', 'barrier')").fetchone()[0]
    job = Job(place, "train")
    losses, late = job.said(), job.ask("straggler")
    job = Job(place, "hang")
    time.sleep(15)
    for p in job.ranks:
        p.terminate()
    time.sleep(1)
    for p in job.ranks:
        p.kill()
        p.wait()
    hang = sqlite3.connect(str(job.database())).execute("SELECT rank, sum(complete), sum(1 - complete) FROM comm_metrics GROUP BY rank").fetchall()
    return not bad and not apart and len(losses) == 2 and late.startswith("rank 1:") and hang == [(0, 8, 3), (1, 8, 0)], "%d calls, %d not as the program saw them%s; ends %.0f us before the host knew (median); " \
        "%d collectives whose ranks end apart; straggler: %s; hang: (rank, complete, not) %r, %s" % (
            n, len(bad), ": %r" % (bad[:3],) if bad else "", 1e6 * statistics.median(off or [0]), apart, late, hang, job.ask("hang"))


CHECKS = [("memory", check_memory), ("times", check_times), ("graph", check_graph), ("nvml", check_nvml), ("nccl", check_nccl), ("cost", check_cost)]


def no_gpu():
    """Returns why nothing can be checked here, or None."""
    try:
        import torch
    except ImportError:
        return "this Python has no PyTorch"
    if not torch.version.cuda:
        return "this PyTorch (%s) is not a CUDA build" % torch.__version__
    if not torch.cuda.is_available():
        return "no GPU: torch.cuda.is_available() is False"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=REPO / "build")
    parser.add_argument("--seconds", type=float, default=60, help="for the cost (60)")
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(n for n, _ in CHECKS))
    args = parser.parse_args()
    unknown = set(args.checks) - {n for n, _ in CHECKS}
    if unknown:
        parser.error("no such check: " + ", ".join(sorted(unknown)))
    why = no_gpu()
    if why:
        print("check.py: skipped, nothing was checked: " + why, file=sys.stderr)
        return SKIP
    if not (args.build / "bin/probing-record").exists():
        parser.error("nothing is built in %s: run make first, or give --build" % args.build)
    tmp, failed = pathlib.Path(tempfile.mkdtemp(prefix="probing-gpu-")), 0
    for name, check in CHECKS:
        if not args.checks or name in args.checks:
            good, text = check(Place(args.build.resolve(), args.seconds, tmp))
            failed += not good
            print("%-6s %-4s %s" % (name, "ok" if good else "BAD", text), flush=True)
    if failed:
        print("traces and databases: %s" % tmp, file=sys.stderr)
    else:
        shutil.rmtree(str(tmp), ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--program"]:
        globals()[sys.argv[2]](*sys.argv[3:])
    else:
        sys.exit(main())
