# SPDX-License-Identifier: Apache-2.0
"""Distributed runs under PROBING=1: each rank has its own trace, which says who launches, who trains and who loads data; values of tensors."""
import os

import pytest
from test_torch import find_torch

TRAIN = r"""
import os, sys, time
import torch
import torch.distributed as dist
torch.set_num_threads(1)

def train(rank, steps):
    torch.manual_seed(rank)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    half, whole, picture = torch.tensor(rank + 0.5, dtype=torch.bfloat16), torch.tensor(7), torch.zeros(3, 2)
    parameter, view = model.bias, torch.arange(10.)[3]
    for step in range(steps):
        workers = int(os.environ.get("WORKERS", 0)) if step == 0 else 0
        for x in torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=8, num_workers=workers):
            loss = (model(x) ** 2).mean()
            loss.backward()
            if workers:
                time.sleep(1)  # the worker is seen at its work
            with torch.no_grad():
                os.write(1, b"\nloss %d %d %.17g\n" % (rank, step, loss.item()))  # at once: ranks share the pipe
            optimizer.step()
            optimizer.zero_grad()
    return loss

def main(rank, world, method):
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=world)
    while "__init_subclass__" not in vars(torch.nn.Module): time.sleep(0.01)  # until modules' calls are seen
    train(rank, 3)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        import torch.multiprocessing
        torch.multiprocessing.spawn(main, (2, "file://" + sys.argv[1]), nprocs=2)
"""
EXPRS = "loss@train,half@train,whole@train,picture@train,view@train,rank@train"


def site_of(run, build, python, tmp_path):
    """Returns a directory that has the package and the .pth file, and an environment in which this Python uses it."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import site\nsite.addsitedir(%r)\n" % str(build.share / "python"))
    return dict(os.environ, PYTHONPATH="%s:%s" % (site, build.share / "python"), PROBING="1", PROBE_TORCH_EXPRS=EXPRS,
                OMP_NUM_THREADS="1", USE_LIBUV="0", PROBING_SAMPLE_RATE="0.1")


def check_values(sql, db, stdout):
    told = sorted((int(r), int(s), float(v)) for r, s, v in (line.split()[1:] for line in stdout.splitlines() if line.startswith("loss")))
    assert len(told) == 6
    seen = sql(db, "SELECT rank, step, value FROM variables WHERE name = 'loss' AND at = 'step' ORDER BY 1, 2")
    assert [(r, s) for r, s, _ in seen] == [(r, s) for r, s, _ in told]
    for (_, _, a), (_, _, b) in zip(seen, told):
        assert a == pytest.approx(b, rel=1e-12)
    others = dict(sql(db, "SELECT name, value FROM variables WHERE rank = 1 AND step = 2 AND at = 'step'"))
    assert others["half"] == 1.5 and others["whole"] == 7 and others["view"] == 3 and others["rank"] == 1
    assert others["picture"] == "<Tensor float32 (3, 2) cpu>"
    assert sql(db, "SELECT step, loss FROM training_logs WHERE rank = 1 ORDER BY step")[0][1] == pytest.approx(told[3][2])
    assert sql(db, "SELECT text FROM notes WHERE part = 'variables' AND level <> 'info'") == []


@pytest.mark.limit(240)
def test_torchrun(build, run, tmp_path, convert, sql):
    python, why = find_torch("recent")
    if not python:
        pytest.skip(why)
    (tmp_path / "train.py").write_text(TRAIN)
    env = dict(site_of(run, build, python, tmp_path), WORKERS="1")
    done = run([python, "-m", "torch.distributed.run", "--nproc-per-node", 2, "--standalone", "train.py"],
               env=env, cwd=str(tmp_path), timeout=200)
    db = convert(tmp_path / "trace.zst")
    traces = sql(db, "SELECT rank, local_rank, world_size, role, how, master IS NOT NULL FROM trace WHERE role IS NOT 'dataloader' ORDER BY rank")
    assert traces == [(None, None, None, "launcher", "python", 0), (0, 0, 2, "worker", "python", 1), (1, 1, 2, "worker", "python", 1)]
    assert [os.path.basename(f) for f, in sql(db, "SELECT file FROM trace WHERE role = 'launcher'")] == ["trace.zst"]
    assert all("-r%d-" % rank in f for rank, f in sql(db, "SELECT rank, file FROM trace WHERE role = 'worker'"))
    loaders = sql(db, "SELECT DISTINCT c.rank, p.rank, p.role FROM trace c JOIN trace p ON p.pid = c.ppid WHERE c.role = 'dataloader' ORDER BY 1")
    assert loaders == [(0, 0, "worker"), (1, 1, "worker")]
    assert sql(db, "SELECT DISTINCT role FROM process ORDER BY 1") == [("dataloader",), ("launcher",), ("worker",)]
    check_values(sql, db, done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["debian", "recent"])
def test_spawned_ranks_without_an_environment(build, run, kind, tmp_path, convert, sql):
    """torch.multiprocessing.spawn: the rank is given to init_process_group alone."""
    python, why = find_torch(kind)
    if not python:
        pytest.skip(why)
    (tmp_path / "train.py").write_text(TRAIN)
    done = run([python, "train.py", tmp_path / "store"], env=site_of(run, build, python, tmp_path), cwd=str(tmp_path), timeout=200)
    db = convert(tmp_path / "trace.zst")
    assert sql(db, "SELECT rank, world_size, role FROM trace ORDER BY rank") == [(None, None, None), (0, 2, "worker"), (1, 2, "worker")]
    assert sql(db, "SELECT DISTINCT role FROM process WHERE trace_id = 1") == [("launcher",)]
    assert sql(db, "SELECT count(*) FROM trace WHERE ppid = (SELECT pid FROM trace WHERE rank IS NULL)") == [(2,)]
    check_values(sql, db, done.stdout)
