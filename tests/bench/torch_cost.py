# SPDX-License-Identifier: Apache-2.0
"""What recording PyTorch costs: one module's call, and whole training steps, switched on and off within one process.

A block of calls or steps is timed in each mode, in an order that changes each round, and compared with the "off"
blocks of its own round; the result is the median over the rounds. "off, again" is measured in the same way, and shows the noise.

    torch_cost.py identity|transformer|conv|mlp SECONDS      under probing-record; JSON into $BENCH_OUT
    torch_cost.py transformer-small|conv-small SECONDS       the same modules and graph nodes on tiny tensors: what is added is
                                                             the same, and is seen more sharply against a short step
    torch_cost.py peer SECONDS                               without it: the `probing` package, if $BENCH_PEER says how
"""
import ctypes
import json
import os
import random
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
MAIL_CONFIG = 5
SLOT = 128  # tp_call in PyTypeObject
AGAIN = "off, again"
SETTLE = 4  # steps after a change that do not count, because the interpreter specialises its calls of the changed classes anew


# ---- the program ------------------------------------------------------------------------------------


class Switch:
    """Changes this process's own setting through its mailbox, and waits until the classes' slots show that it is in effect."""

    def __init__(self):
        import torch
        self.type = torch.nn.Module
        self.there = ctypes.c_void_p.from_address(id(self.type) + SLOT)
        self.lib = ctypes.CDLL(os.environ["BENCH_INSPECT"])
        self.now = None
        self.set("off")
        self.plain = self.there.value

    def set(self, text):
        if text == self.now:
            return
        out = ctypes.c_void_p()
        rc = self.lib.inspect_mail(os.getpid(), MAIL_CONFIG, ("torch.profiling=" + text).encode(), 5000, ctypes.byref(out))
        self.lib.inspect_free(out)
        if rc:
            raise SystemExit("torch_cost.py: the agent does not take %s: %d" % (text, rc))
        self.now = text
        end = time.monotonic() + 30
        if not hasattr(self, "plain"):
            time.sleep(1)
            return
        while (self.there.value != self.plain) == text.startswith("off"):
            time.sleep(0.001)
            if time.monotonic() > end:
                raise SystemExit("torch_cost.py: torch.profiling=%s has no effect" % text)
        time.sleep(0.02)


def both():
    """Returns wall time, and the CPU time of this thread, which is useful even if the machine is busy otherwise."""
    return time.perf_counter(), time.thread_time()


def since(began, n):
    return [(b - a) / n for a, b in zip(began, both())]


def call_loop(module, n):
    x = 1
    began = both()
    for _ in range(n):
        module(x)
    return since(began, n)


def least(runs, unit):
    return [min(r[i] for r in runs) * unit for i in range(2)]


def identity(seconds):
    import torch
    from torch.nn.modules import module as hooks
    switch, order, rounds = Switch(), random.Random(1), []
    holder = torch.nn.Sequential(torch.nn.Identity())  # a model that contains the module
    module = holder[0]
    end = time.monotonic() + seconds

    def plain(n):
        return call_loop(module, n)

    def with_hooks(n):
        handles = [hooks.register_module_forward_pre_hook(lambda m, i: None),
                   hooks.register_module_forward_hook(lambda m, i, o: None)]
        try:
            return call_loop(module, n)
        finally:
            for h in handles:
                h.remove()

    def with_profiler(n):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_modules=True):
            return call_loop(module, n // 10)

    modes = [("off", "off", plain), (AGAIN, "off", plain), ("forward", "on,backward=off", plain), ("all", "on", plain),
             ("global Python hooks", "off", with_hooks), ("torch.profiler", "off", with_profiler)]
    plain(1000)
    while time.monotonic() < end or len(rounds) < 3:
        order.shuffle(modes)
        one = {}
        for name, setting, run in modes:
            switch.set(setting)
            run(200)
            one[name] = least([run(4000) for _ in range(5)], 1e9)
        rounds.append(one)
    return rounds


def models():
    import torch
    from torch import nn
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), "demo"))

    def transformer(length=64, width=48, batch=8):
        import train
        model = train.CharTransformer(length, width)
        x = torch.randint(0, len(train.ALPHABET), (batch, length))

        def loss():
            out = model(x)
            return torch.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), x.reshape(-1))
        return model, loss

    def conv(width=16, batch=16, side=32):
        def block(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
        model = nn.Sequential(block(3, width), nn.MaxPool2d(2), block(width, 2 * width), nn.MaxPool2d(2),
                              block(2 * width, 4 * width), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))
        x, y = torch.randn(batch, 3, side, side), torch.randint(0, 10, (batch,))
        criterion = nn.CrossEntropyLoss()
        return model, lambda: criterion(model(x), y)

    def mlp():
        model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(500)])
        x = torch.randn(4, 8)
        return model, lambda: model(x).sum()

    return {"transformer": transformer, "conv": conv, "mlp": mlp,
            "transformer-small": lambda: transformer(8, 8, 1), "conv-small": lambda: conv(2, 2, 8)}


def stepper(name):
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model, loss = models()[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def steps(n):
        began = both()
        for _ in range(n):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
        return since(began, n)
    steps(3)
    return steps


def training(name, seconds):
    steps = stepper(name)
    switch, order, rounds = Switch(), random.Random(1), []
    one_step = steps(3)[0]
    few = max(1, int(0.004 / one_step))        # steps that are timed together
    n = max(3, int(0.1 / (few * one_step)))    # how many of these make a block
    modes = [("off", "off"), (AGAIN, "off"), ("forward", "on,backward=off"), ("all", "on")]
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(rounds) < 3:
        order.shuffle(modes)
        one = {}
        for mode, setting in modes:
            switch.set(setting)
            steps(SETTLE * few)
            times = [steps(few) for _ in range(n)]
            # For short steps the lower quartile, because disturbances from outside only make them longer.
            at = len(times) // (4 if name.endswith("-small") else 2)
            one[mode] = [sorted(t[clock] for t in times)[at] * 1e6 for clock in range(2)]
        rounds.append(one)
    return rounds


def peer(seconds):
    """Fixed work without switching, with and without the `probing` package in turn."""
    import torch
    steps = stepper("mlp")
    module = torch.nn.Sequential(torch.nn.Identity())
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    optimizer.step()
    best = least([call_loop(module[0], 2000) for _ in range(20)], 1)[0]
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times) < 3:
        times.append(steps(5)[0])
    return {"call": best * 1e9, "step": statistics.median(times) * 1e6}


# ---- the bench ---------------------------------------------------------------------------------------


def summary(rounds, clock=0):
    """Returns {mode: (median of what it adds to "off" in its round, median of "off", spread)}, in ns or us as the rounds are. clock 1: CPU
    time."""
    found = {}
    rounds = [{mode: both_clocks[clock] for mode, both_clocks in r.items()} for r in rounds]
    for mode in rounds[0]:
        base = [(r["off"] + r[AGAIN]) / 2 if mode not in ("off", AGAIN) else r["off"] for r in rounds]
        extra = [r[mode] - b for r, b in zip(rounds, base)]
        middle = statistics.median(extra)
        spread = statistics.median([abs(e - middle) for e in extra]) * 1.4826 / max(1, len(extra)) ** 0.5
        found[mode] = (middle, statistics.median(base), spread)
    return found


def run_one(place, run_workload, python, what, seconds, setting="on"):
    from common import STEADY
    trace = place.path("torch-%s.zst" % what)
    prefix = [place.tool("probing-record"), "-o", trace, "--"]
    return run_workload(place, prefix, python, [what, seconds], timeout=seconds + 120, program=os.path.abspath(__file__),
                        BENCH_INSPECT=os.path.join(place.build, "lib", "probing", "libprobing-inspect.so"),
                        PROBING_SAMPLE_RATE="0", PROBING_TORCH_PROFILING=setting, **STEADY)


def find_peer(place):
    """Returns (python, None) for a virtual environment that has the `probing` package beside the given torch, or (None, why not)."""
    python, why = recent(), "no recent PyTorch"
    if not python:
        return None, why
    venv = place.path("peers/probing-venv")
    if not os.path.exists(venv + "/.ready"):
        done = subprocess.run([python, "-m", "venv", venv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        site = subprocess.run([python, "-c", "import torch, os; print(os.path.dirname(os.path.dirname(torch.__file__)))"],
                              stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()
        if done.returncode == 0 and site:
            lib = subprocess.run([venv + "/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                                 stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()
            with open(os.path.join(lib, "torch.pth"), "w") as f:
                f.write(site + "\n")
            done = subprocess.run([venv + "/bin/python", "-m", "pip", "install", "-q", "probing"], timeout=300,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if done.returncode == 0:
                open(venv + "/.ready", "w").close()
    if os.path.exists(venv + "/.ready"):
        return venv + "/bin/python", None
    return None, "pip does not install it here"


def recent():
    done = subprocess.run([os.path.join(REPO, ".ci", "torch-venv.sh")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          universal_newlines=True)
    return done.stdout.strip() if done.returncode == 0 else None


def do_torch(report, place):
    """The part `torch` of run.py."""
    from common import Failed, run_workload, say
    pythons = [("1.13", place.torch), ("2.13", recent())]
    report.add("## PyTorch: what recording adds", "",
               "Torch's part alone (no sampler), switched on and off within one process (whole steps: three processes); medians of paired blocks, a block by its median step (small ones: lower quartile). \"small\": the same",
               "modules and graph nodes on tiny tensors, where a microsecond shows. glibc's malloc is told to keep its memory.")
    rows, events = [], []
    for version, python in pythons:
        if not python:
            report.missing("PyTorch %s" % version, "no interpreter has it")
            continue
        small = {}
        for what, unit, seconds, runs in (("identity", "ns", 20, 1), ("transformer-small", "us", 20, 1), ("conv-small", "us", 20, 1),
                                          ("transformer", "us", 35, 3), ("conv", "us", 35, 3), ("mlp", "us", 30, 1)):
            if place.quick:
                seconds, runs = 4, 1
            say("torch %s: %s" % (version, what))
            try:  # several processes, because the addresses of a process's memory influence its speed
                rounds = [one for _ in range(runs) for one in run_one(place, run_workload, python, what, seconds)["rounds"]]
            except Failed as e:
                report.missing("torch %s %s" % (version, what), str(e))
                continue
            found, cpu = summary(rounds), summary(rounds, 1)
            for mode, (extra, base, spread) in found.items():
                if mode != "off":
                    rows.append(["%s, torch %s, %s" % (what, version, mode), "%.4g %s" % (base, unit), "%+.3g %s" % (extra, unit),
                                 "%+.2f %%" % (100 * extra / base), "%.2g" % spread, "%+.2f %%" % (100 * cpu[mode][0] / cpu[mode][1])])
            if what == "identity":
                report.bar("nn.Identity, recorded, torch %s" % version, 100, found["all"][0], "ns a call", found["all"][2])
            elif what.endswith("-small"):
                small[what[:-6]] = found
            else:
                for mode, limit in (("forward", 1), ("all", 2)) if what != "mlp" else (("forward", 10), ("all", 10)):
                    extra, base, spread = found[mode]
                    report.bar("step of %s, %s, torch %s" % (what, mode, version), limit, 100 * extra / base, "%",
                               100 * spread / base)
                    if what in small:
                        extra, _, spread = small[what][mode]
                        report.bar("the same, by what its small twin gains", limit, 100 * extra / base, "%", 100 * spread / base)
    report.table(["what", "without", "adds", "share", "error", "CPU of the thread"], rows)
    python, why = find_peer(place)
    if not python:
        report.add("The `probing` package from PyPI: not measured, %s." % why)
        return
    rows = []
    for name, env in (("without", {}), ("default", {"PROBING": "1"}), ("torch profiling on", {"PROBING": "1", "PROBING_TORCH_PROFILING": "on"}),
                      ("rate 1", {"PROBING": "1", "PROBING_TORCH_PROFILING": "random:1.0"})):
        try:
            runs = [run_workload(place, [], python, ["peer", 1 if place.quick else 5], timeout=120,
                                 program=os.path.abspath(__file__), **env) for _ in range(1 if place.quick else 3)]
        except Failed as e:
            events.append("%s: %s" % (name, e))
            continue
        rows.append([name, "%.0f ns" % min(r["call"] for r in runs), "%.0f us" % statistics.median(r["step"] for r in runs)])
    report.add("", "The `probing` package from PyPI, in processes of its own (torch 2.13):")
    report.table(["setting", "nn.Identity call", "step of mlp"], rows)
    report.add(*events)


def main():
    what, seconds = sys.argv[1], float(sys.argv[2])
    got = peer(seconds) if what == "peer" else {"rounds": identity(seconds) if what == "identity" else training(what, seconds)}
    with open(os.environ["BENCH_OUT"], "w") as f:
        json.dump(got, f)


if __name__ == "__main__":
    main()
