# SPDX-License-Identifier: Apache-2.0
"""PyTorch telemetry that is switched on in mid-training, off and on again, and after a kill; and torch.compile, which is not disturbed."""
import os
import re
import signal
import time

import pytest

from test_torch import NEWEST, find_torch, run_scenes, said

LOOP = """
import os, sys, time
where = sys.argv[1]
def work():
    global torch, nn
    import torch
    from torch import nn
    torch.set_num_threads(1)
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)
        def forward(self, x):
            if os.path.exists(where + ".enter") and not os.path.exists(where + ".inside"):
                open(where + ".inside", "w").close()      # the recording begins while this call is in progress
                wait(where + ".go")
            return self.lin(x)
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Inner(), nn.Linear(4, 4)
        def forward(self, x):
            return self.b(self.a(x))
    return Net()
def wait(path):
    end = time.monotonic() + 600
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.005)
if sys.argv[2] == "late":
    print("ready", flush=True)
    wait(where + ".import")
net = work()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
if sys.argv[2] == "early":
    print("ready", flush=True)
else:  # until modules' calls are seen: the first one is to be among them
    while "__init_subclass__" not in nn.Module.__dict__: time.sleep(0.005)
n = 0
while not os.path.exists(where + ".end"):
    opt.zero_grad()
    net(torch.ones(2, 4)).sum().backward()
    opt.step()
    n += 1
    time.sleep(0.002)
print("left", "__init_subclass__" in nn.Module.__dict__, n, flush=True)
"""


# With the recent torch these belong to test-all, because each imports it again.
@pytest.fixture(scope="module", params=["debian", pytest.param("recent", marks=pytest.mark.slow), NEWEST])
def python_torch(request):
    path, why = find_torch(request.param)
    if not path:
        pytest.skip(why)
    return path


def until(ask, seconds=240):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = ask()
        if found:
            return found
        time.sleep(0.05)
    pytest.fail("it never came true")


def start(spawn, tmp_path, python, when, prefix=()):
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    return spawn(list(prefix) + [python, script, tmp_path / "mark", when], ready="ready", cwd=str(tmp_path))


def end(process, tmp_path):
    (tmp_path / "mark.end").touch()
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    return out.decode().split("left ")[-1].split()


def names(sql, db):
    return dict(sql(db, "SELECT module, count(*) FROM torch_trace WHERE stage = 'forward' GROUP BY module"))


def test_injected_in_the_middle_of_a_forward_pass(spawn, build, run, convert, sql, tmp_path, python_torch):
    """What began before the recording is left out: a module is not taken for a root because its caller was not seen."""
    process = start(spawn, tmp_path, python_torch, "early")
    (tmp_path / "mark.enter").touch()
    until((tmp_path / "mark.inside").exists)
    run([build.tool("probing"), "-t", process.pid, "inject", "-o", tmp_path / "t.zst"])
    until(lambda: "torch" in notes(sql, convert(tmp_path / "t.zst", options=["-f", "-q"], check=None, out=tmp_path / "x.db")))
    (tmp_path / "mark.go").touch()
    until(lambda: names(sql, convert(tmp_path / "t.zst", options=["-f", "-q"], check=None, out=tmp_path / "x.db")))
    end(process, tmp_path)
    got = names(sql, convert(tmp_path / "t.zst"))
    assert set(got) == {"Net", "Net.a", "Net.a.lin", "Net.b"}, got
    assert len(set(got.values())) == 1 and got["Net"] > 1, got


def notes(sql, db):
    return [row[0] for row in sql(db, "SELECT part FROM notes")]


def test_torch_imported_after_the_injection(spawn, build, run, convert, sql, tmp_path, python_torch):
    process = start(spawn, tmp_path, python_torch, "late")
    run([build.tool("probing"), "-t", process.pid, "inject", "-o", tmp_path / "t.zst"])
    (tmp_path / "mark.import").touch()
    until(lambda: names(sql, convert(tmp_path / "t.zst", options=["-f", "-q"], check=None, out=tmp_path / "x.db")))
    _, n = end(process, tmp_path)
    db = convert(tmp_path / "t.zst")
    assert names(sql, db) == dict.fromkeys(["Net", "Net.a", "Net.a.lin", "Net.b"], int(n))
    assert sql(db, "SELECT count(*), min(backwards), max(optimizers) FROM steps WHERE complete") == [(int(n), 1, 1)]


def test_off_and_on_again(spawn, build, run, convert, sql, tmp_path, python_torch):
    """Off removes everything that was put in; afterwards names are recorded again."""
    prefix = [build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", "--"]
    process = start(spawn, tmp_path, python_torch, "early", prefix)
    pid = int(next(f for f in os.listdir(os.environ["PROBING_RUN_DIR"]) if f.endswith(".live")).split("-")[0])
    config = [build.tool("probing"), "-t", pid, "config"]

    def count():
        return sum(names(sql, convert(tmp_path / "t.zst", options=["-f", "-q"], check=None, out=tmp_path / "x.db")).values())

    until(count)
    run(config + ["torch.profiling=off"])
    value = until(lambda: run([build.tool("probing"), "-t", pid, "eval", "--timeout", "200",
                               "import torch; print('__init_subclass__' in torch.nn.Module.__dict__)"]).stdout.strip() == "False")
    assert value
    before = count()
    bad = run(config + ["torch.profiling=rate=7"], check=None)
    assert bad.returncode != 0 and "0.001 to 1" in bad.stderr
    run(config + ["torch.profiling=on"])
    until(lambda: count() > before)
    left, _ = end(process, tmp_path)
    got = names(sql, convert(tmp_path / "t.zst"))
    assert set(got) == {"Net", "Net.a", "Net.a.lin", "Net.b"}, got


OFTEN = """
import time, torch, probing
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(2, 2))
x = torch.ones(1, 2)
def switch(value):
    probing.config("torch.profiling", value)
    end = time.monotonic() + 600
    while ("__init_subclass__" in torch.nn.Module.__dict__) != (value == "on"):
        assert time.monotonic() < end
        time.sleep(0.001)
switch("on")
for i in range(100):
    net(x)
    switch("off")
    net(x)
    switch("on")
"""


def test_off_and_on_a_hundred_times(build, run, convert, sql, tmp_path, python_torch):
    """Each time the thread gets a slot to write into: its slot of the time before is free again."""
    (tmp_path / "often.py").write_text(OFTEN)
    run([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", "--", python_torch, tmp_path / "often.py"],
        env=dict(os.environ, PYTHONPATH=str(build.share / "python")))
    db = convert(tmp_path / "t.zst")
    assert names(sql, db) == {"Sequential": 100, "Sequential.0": 100}
    lost = dict(sql(db, "SELECT reason, sum(count) FROM lost GROUP BY reason"))
    # a busy machine causes the first two; a signal between the instructions that link a frame causes the third
    assert not set(lost) - {"missed_tick", "unanswered", "torn"}, lost


def test_stopped_leaves_nothing(spawn, build, run, convert, sql, tmp_path, python_torch):
    process = start(spawn, tmp_path, python_torch, "early")
    run([build.tool("probing"), "-t", process.pid, "inject", "-o", tmp_path / "t.zst"])
    until(lambda: names(sql, convert(tmp_path / "t.zst", options=["-f", "-q"], check=None, out=tmp_path / "x.db")))
    run([build.tool("probing"), "-t", process.pid, "stop"])
    time.sleep(0.1)
    left, _ = end(process, tmp_path)
    assert left == "False"


KILLED = """
import os, sys, time, torch
from torch import nn
class Hang(nn.Module):
    def forward(self, x):
        print("ready", flush=True)
        time.sleep(600)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.last = nn.Linear(4, 4), Hang()
    def forward(self, x):
        return self.last(self.lin(x))
while "__init_subclass__" not in vars(nn.Module): time.sleep(0.005)  # until modules' calls are seen
Net()(torch.ones(1, 4))
"""


def test_killed_in_a_module(spawn, build, run, convert, sql, tmp_path, python_torch):
    """As with a flight recorder, the trace also has what had begun and not ended."""
    (tmp_path / "k.py").write_text(KILLED)
    process = spawn([build.tool("probing-record"), "-q", "-o", tmp_path / "k.zst", "--", python_torch, tmp_path / "k.py"], ready="ready")
    pid = int(next(f for f in os.listdir(os.environ["PROBING_RUN_DIR"]) if f.endswith(".live")).split("-")[0])
    os.kill(pid, signal.SIGKILL)
    process.wait(240)
    rows = sql(convert(tmp_path / "k.zst"), "SELECT module, duration IS NULL FROM torch_trace WHERE stage = 'forward' ORDER BY seq")
    assert rows == [("Net", 1), ("Net.lin", 0), ("Net.last", 1)]


# ---- torch.compile ------------------------------------------------------------------------------------


def compile_alike(build, tmp_path, backend, kind="recent"):
    python, why = find_torch(kind)
    if not python:
        pytest.skip(why)
    env = {"SCENE_BACKEND": backend, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    with_us = run_scenes(python, ["compiled"], build, tmp_path / "c.zst", env=env, warnings="default")
    without = run_scenes(python, ["compiled"], env=env, warnings="default")
    for what in ("graphs full", "graphs breaks", "explain", "counters", "losses"):
        assert said(with_us.stdout, what) == said(without.stdout, what) != [], what
    assert said(without.stdout, "explain") == [[1, 0]]
    warnings = [[re.sub(r"^W\d+ \S+ \d+ ", "", line) for line in run.stderr.split("\n") if "probing-record: " not in line] for run in (with_us, without)]
    assert warnings[0] == warnings[1]  # no additional one (torch's begin with the time and the process)
    return tmp_path / "c.zst"


@pytest.mark.limit(300)
def test_compile_is_not_affected(build, tmp_path, convert, sql):
    db = convert(compile_alike(build, tmp_path, "eager"))
    got = names(sql, db)
    assert (got["Compiled"], got["PartCompiled"], got["PartCompiled.eager"], got["PartCompiled.fast"], got["Breaks"]) == (5, 4, 4, 4, 4), got
    assert sql(db, "SELECT count(*) FROM steps WHERE complete") == [(22,)]
    assert sql(db, "SELECT count(*), sum(backwards), sum(optimizers) FROM steps WHERE complete AND step >= 12") == [(10, 10, 0)]  # the optimizers are compiled, too


@pytest.mark.slow
@pytest.mark.parametrize("kind, backend", [("recent", "aot_eager"), ("recent", "inductor"), ("sid", "eager"), ("sid", "aot_eager")])
def test_compile_is_not_affected_by_backend(build, tmp_path, kind, backend):
    compile_alike(build, tmp_path, backend, kind)


IMPORTING = """
import os, re, sys, time
def rounds():
    for tid in os.listdir("/proc/self/task"):
        status = open("/proc/self/task/%s/status" % tid).read()
        if status.startswith("Name:\\tprobing-svc\\n"):
            return int(re.search(r"^voluntary_ctxt_switches:\\s*(\\d+)", status, re.M).group(1))
def most_rounds():  # in a second, while this thread runs Python
    most, give_up = 0, time.time() + 20
    while most < 150 and time.time() < give_up:
        before, begin = rounds(), time.time()
        while time.time() < begin + 0.5: sum(range(99))
        most = max(most, (rounds() - before) / (time.time() - begin))
    return most
class Watch:
    def find_spec(self, name, path=None, target=None):
        c10d = sys.modules.get("torch.distributed.distributed_c10d")
        if hasattr(c10d, "init_process_group") and not c10d.__spec__._initializing:
            sys.meta_path.remove(self)
            print("%.0f" % most_rounds(), sys.modules["torch"].__spec__._initializing)
sys.meta_path.insert(0, Watch())
import torch
"""


@pytest.mark.parametrize("which", ["debian", "recent"])
def test_the_first_collective_may_come_as_soon_as_torch_is_imported(build, run, tmp_path, which):
    """So once torch.distributed is there, the agent looks every 2 ms (before: 20 ms) whether torch is: a rank that waits in its first collective for ever
    would otherwise be one that nobody has seen enter it."""
    path, why = find_torch(which)
    if not path:
        pytest.skip(why)
    done = run([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", path, "-c", IMPORTING])
    rounds, importing = done.stdout.split()
    assert importing == "True" and float(rounds) >= 150, done.stdout
