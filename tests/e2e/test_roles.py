# SPDX-License-Identifier: Apache-2.0
"""Roles of processes: set by probing.set_role(), by torch's DeviceMesh, and by groups described as Megatron does."""
import os
import subprocess
import time

import conftest
import pytest
from record_until import record_until  # noqa: F401
from test_torch import find_torch

MESH = """
import os, sys, time
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(os.environ["RANK"]), world_size=4)
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
megatron = [dist.new_group(range(4), group_desc=d + "_PARALLEL_GROUP") for d in ("MODEL", "EXPERT_TENSOR", "TENSOR_AND_DATA")]
told = torch.zeros(1)
while not told:  # all of them in the same round
    for group in [mesh.get_group(name) for name in ("dp", "tp")] + megatron:
        dist.all_reduce(torch.ones(8), group=group)
    time.sleep(0.05)
    told.fill_(os.path.exists(sys.argv[2]))
    dist.all_reduce(told)
print(mesh.get_local_rank("dp"), mesh.get_local_rank("tp"))
dist.destroy_process_group()
"""

TOLD = """
import sys, time
sys.path.insert(0, sys.argv[1])
import probing
probing.set_role("starter")
probing.set_role("trainer", tp=0, pp=(1, 4), ep=3)
for wrong in (dict(tp=-1), dict(tp="x"), dict(tp=(1, "x")), dict(tp=None), dict(tp=True)):
    try:
        probing.set_role(**wrong)
        print("taken", wrong)
    except TypeError:
        pass
time.sleep(0.3)
"""

SPAWNED = """
import sys, time
import torch
from torch.utils.data import DataLoader
def late():
    time.sleep(2)  # as a large program's imports take, before the loop begins
    return Slow()
class Slow(torch.utils.data.Dataset):
    def __reduce__(self): return late, ()
    def __len__(self): return 8
    def __getitem__(self, i):
        time.sleep(0.1)
        return i
if __name__ == "__main__":
    for how in sys.argv[1:]:
        print([int(v) for v in DataLoader(Slow(), None, num_workers=1, multiprocessing_context=how)])
"""


def test_loaders_that_are_spawned(build, record, convert, sql, monkeypatch):
    """Their loop begins seconds after the process does, and may be over soon. Once, because of the rank that they inherit, they were taken
    for one more rank."""
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    done = record(SPAWNED, "spawn", "forkserver", python=python)
    assert done.stdout == "[0, 1, 2, 3, 4, 5, 6, 7]\n" * 2
    db = convert(done.trace, str(done.trace) + ".d")
    loops = sql(db, "SELECT DISTINCT t.role, t.rank FROM trace t JOIN backtrace b ON b.trace_id = t.id WHERE b.func = '_worker_loop'")
    assert loops == [("dataloader", 0)]
    assert sql(db, "SELECT count(*) FROM trace WHERE role = 'dataloader'") == [(2,)]


def test_told(build, record, convert, sql):
    done = record(TOLD, build.share / "python")
    assert done.stdout == ""
    assert sorted(sql(convert(done.trace), 'SELECT role, dimension, "index", size, source FROM roles')) == [
        ("trainer", "ep", 3, None, "set_role"), ("trainer", "pp", 1, 4, "set_role"), ("trainer", "tp", 0, None, "set_role")]


SEGMENTS = """
import itertools, os, sys, time
sys.path.insert(0, sys.argv[1])
import probing
probing.set_role("starter", tp=1)
probing.set_role("trainer", tp=0, pp=(1, 4))
for i in itertools.count():
    for k in range(100):
        probing.event("filler %d %d" % (i, k), text="%x" % hash((i, k)))
    if os.path.exists(sys.argv[2]):
        break
    time.sleep(0.005)
"""


def test_each_segment_says_it(build, record_until, convert, sql, tmp_path, monkeypatch):  # noqa: F811
    """Each segment is a trace of its own: a role that was set once is in all of them, and the last one set is valid."""
    monkeypatch.setenv("PROBING_SEGMENT_SIZE", "64K")
    trace = record_until(lambda db: len(list(tmp_path.glob("until1.zst.d/*.zst"))) > 1, SEGMENTS, build.share / "python").trace
    parts = sorted(tmp_path.glob(trace.name + ".d/*.zst")) + [trace]
    assert len(parts) > 2
    for part in parts:
        assert sorted(sql(convert(part, options=["--alone"]), 'SELECT role, dimension, "index", size, source FROM roles')) == [
            ("trainer", "pp", 1, 4, "set_role"), ("trainer", "tp", 0, None, "set_role")], part


def test_told_before_the_recording(build, run, convert, sql, tmp_path):
    script = tmp_path / "later.py"
    script.write_text("import sys, time\nsys.path.insert(0, sys.argv[1])\nimport probing\nprobing.set_role('critic', dp=(2, 8))\n"
                      "probing.enable(sys.argv[2])\ntime.sleep(0.3)\nprobing.disable()\n")
    run(["python3", script, build.share / "python", tmp_path / "t.zst"])
    assert sql(convert(tmp_path / "t.zst"), 'SELECT role, dimension, "index", size FROM roles') == [("critic", "dp", 2, 8)]


def test_device_mesh(build, convert, sql, tmp_path):
    path, why = find_torch("recent")
    if not path:
        pytest.skip(why)
    script = tmp_path / "mesh.py"
    script.write_text(MESH)
    ranks = []
    for rank in range(4):
        own = dict(os.environ, RANK=str(rank), WORLD_SIZE="4", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1",
                   LD_PRELOAD=str(build.lib / "libprobing-preload.so"), PROBING_TRACE=str(tmp_path / ("traces/r%d.zst" % rank)))
        (tmp_path / "traces").mkdir(exist_ok=True)
        ranks.append(subprocess.Popen([path, "-W", "ignore", script, tmp_path / "store", tmp_path / "end"], env=own, stdout=subprocess.PIPE,
                                      stdin=subprocess.DEVNULL, universal_newlines=True, start_new_session=True))
    try:
        so_far = tmp_path / "sofar.db"
        while all(p.poll() is None for p in ranks) and (
                not so_far.exists() or sql(so_far, "SELECT count(*) FROM roles WHERE source = 'group'") != [(20,)]):
            time.sleep(1)
            convert(tmp_path / "traces", out=so_far, options=["-q", "-f"], check=None)
        (tmp_path / "end").touch()
        said = [p.communicate(timeout=240)[0].split() for p in ranks]
    finally:
        for p in ranks:
            if p.poll() is None:
                conftest.kill_group(p)
    found = sql(convert(tmp_path / "traces"), 'SELECT rank, dimension, "index", size, source, role FROM roles ORDER BY 1, 2')
    assert [r for r in found if r[3] == 2] == [(rank, name, int(said[rank][i]), 2, "group", "worker") for rank in range(4) for i, name in enumerate(("dp", "tp"))]
    assert [r for r in found if r[3] == 4] == [(rank, name, rank, 4, "group", "worker") for rank in range(4) for name in ("etp", "mp", "tensor_and_data")]
