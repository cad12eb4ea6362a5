# SPDX-License-Identifier: Apache-2.0
"""The queries of the original Probing's documents, word for word, on a recorded run of four ranks; and the prompt of `probing query`."""
import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest
from conftest import run_command, started_with
from test_console import Terminal, wait_until
from test_sql_words import ask
from test_torch import find_torch


STEPS, RANKS = 110, 4
TRAIN = r"""
import os, subprocess, sys, time
if "RANK" not in os.environ:  # whoever launches the ranks, as torchrun does, without importing PyTorch once more
    ranks = [subprocess.Popen([sys.executable, __file__], env=dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE="RANKS")) for r in range(RANKS)]
    sys.exit(max(p.wait() for p in ranks))
import torch, probing
import torch.distributed as dist
torch.set_num_threads(1)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)

    def forward(self, x):
        return self.second(self.first(x))

def step(net, optimizer, epoch, i):
    loss = net(torch.ones(4, 8)).pow(2).mean()
    loss.backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
    optimizer.zero_grad()
    return loss

def main(steps):
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=int(os.environ["RANK"]), world_size=RANKS)
    rank, world = dist.get_rank(), dist.get_world_size()
    while "__init_subclass__" not in vars(torch.nn.Module): time.sleep(0.01)  # until modules' calls are seen
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    for epoch in range(2):
        with probing.span("one epoch"):
            for i in range(steps // 2):
                loss = step(net, optimizer, epoch, i)
    work = dist.isend(torch.ones(3), (rank + 1) % world)
    dist.recv(torch.zeros(3), (rank - 1) % world)
    work.wait()
    dist.barrier()
    dist.destroy_process_group()

main(STEPS)
""".replace("STEPS", str(STEPS)).replace("RANKS", str(RANKS))

DOCUMENTS = {
    "names": "SELECT table_name FROM information_schema.tables",
    "settings": "SELECT name, value FROM information_schema.df_settings LIMIT 5",
    "torch_trace": "SELECT * FROM python.torch_trace WHERE step > 100",
    "backtrace": "SELECT * FROM python.backtrace",
    "frames": "SELECT func, file, lineno, depth FROM python.backtrace ORDER BY depth LIMIT 10",
    "memory of steps": "SELECT step, AVG(allocated) as avg_memory, MAX(allocated) as peak_memory FROM python.torch_trace"
                       " WHERE step >= (SELECT MAX(step) - 20 FROM python.torch_trace) GROUP BY step ORDER BY step",
    "modules": "SELECT module, stage, AVG(allocated) as avg_memory, COUNT(*) as frequency FROM python.torch_trace"
               " WHERE step >= (SELECT MAX(step) - 5 FROM python.torch_trace) GROUP BY module, stage ORDER BY avg_memory DESC LIMIT 10",
    "memory": "SELECT * FROM memory_usage WHERE timestamp > now() - interval '5 min'",
    "operations": "SELECT operation_name, avg(duration_ms), count(*) FROM profiling_data WHERE timestamp > now() - interval '5 minutes'"
                  " GROUP BY operation_name ORDER BY avg(duration_ms) DESC",
    "epochs": "SELECT epoch, avg(loss), min(loss), count(*) as steps FROM training_logs GROUP BY epoch ORDER BY epoch",
    "links": "SELECT src_rank, dst_rank, avg(latency_ms) FROM comm_metrics GROUP BY src_rank, dst_rank",
    "one link": "SELECT src_rank, dst_rank, avg(latency_ms) FROM comm_metrics",
    "gpu": "SELECT avg(gpu_util) FROM gpu_metrics WHERE timestamp > now() - 60",
    "hours": "SELECT hour(timestamp), avg(memory_mb) FROM memory_usage GROUP BY hour(timestamp)",
    "allocations": "SELECT function_name, sum(allocated_bytes) as total_alloc FROM memory_allocations"
                   " WHERE timestamp > now() - interval '1 hour' GROUP BY function_name ORDER BY total_alloc DESC",
}


@pytest.fixture(scope="module", params=["debian", pytest.param("torchrun", marks=pytest.mark.slow)])
def recorded(build, tmp_path_factory, request):
    """A run of four ranks, of Debian's torch (four processes import it, and it takes a third of the time) or, by torchrun, of a recent one."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"] if request.param == "torchrun" else []
    python, why = find_torch("recent" if launcher else "debian")
    if not python:
        pytest.skip(why)
    work = tmp_path_factory.mktemp("words")
    (work / "train.py").write_text(TRAIN)
    env = dict(os.environ, PROBING_RUN_DIR=str(work), PYTHONPATH=str(build.share / "python"), OMP_NUM_THREADS="1", USE_LIBUV="0",
               PROBING_TORCH_EXPRS="loss@step,epoch@step")
    run_command([build.tool("probing-record"), "-o", "trace.zst", python] + launcher + ["train.py"], env=env, cwd=str(work), timeout=200)
    run_command([build.tool("probing-convert"), work / "trace.zst", work / "out.db"])
    return work


def check(name, rows, plain):
    """check(...). plain: asks the database with the views' own names."""
    if name == "names":
        names = {r["table_name"] for r in rows}
        assert {"torch_trace", "backtrace", "memory", "process", "memory_usage", "profiling_data", "training_logs", "comm_metrics",
                "gpu_metrics", "memory_allocations", "columns", "df_settings", "envs", "nodes"} <= names
    elif name == "settings":
        assert len(rows) == 5 and all(r["name"].startswith(("probing.", "torch.")) for r in rows), rows
    elif name == "torch_trace":
        seen = sorted((r["rank"], r["step"], r["stage"], r["module"].split(".")[-1]) for r in rows)
        assert seen == sorted((rank, step, stage, module) for rank in range(RANKS) for step in range(101, STEPS)
                              for stage in ("forward", "backward") for module in ("Net", "first", "second"))
        assert all(r["duration"] > 0 and r["timestamp"] > 1.7e9 for r in rows)
    elif name == "backtrace":
        assert len(rows) == plain("SELECT count(*) FROM backtrace")[0][0] > 10
        assert "main" in {r["func"] for r in rows}
    elif name == "frames":
        assert len(rows) == 10 and all(r["depth"] == 0 and r["func"] for r in rows)
    elif name == "memory of steps":
        assert [r["step"] for r in rows] == list(range(STEPS - 21, STEPS))
        assert all(r["avg_memory"] is None for r in rows)  # there is no GPU
    elif name == "modules":
        assert sorted((r["module"].split(".")[-1], r["stage"], r["frequency"]) for r in rows) == sorted(
            (module, stage, 6 * RANKS) for module in ("Net", "first", "second") for stage in ("forward", "backward"))
    elif name == "memory":
        assert len(rows) == plain("SELECT count(*) FROM memory_usage")[0][0] > RANKS and all(r["memory_mb"] > 1 for r in rows)
    elif name == "operations":
        count = {r["operation_name"]: r["count(*)"] for r in rows}
        assert count["Net forward"] == count["Net backward"] == RANKS * STEPS
        assert count["one epoch"] == RANKS * 2 and count["all_reduce"] == RANKS * STEPS * 4
        means = [r["avg(duration_ms)"] for r in rows]
        assert means == sorted(means, reverse=True) and means[-1] > 0
    elif name == "epochs":
        assert [(r["epoch"], r["steps"]) for r in rows] == [(0, RANKS * STEPS // 2), (1, RANKS * STEPS // 2)]
        assert rows[0]["avg(loss)"] > rows[0]["min(loss)"] > 0 and rows[0]["avg(loss)"] > rows[1]["avg(loss)"] > 0
    elif name == "links":
        links = {(r["src_rank"], r["dst_rank"]) for r in rows}
        assert {(r, (r + 1) % RANKS) for r in range(RANKS)} <= links, links
    elif name == "one link":
        assert len(rows) == 1 and rows[0]["avg(latency_ms)"] > 0
    elif name == "gpu":
        assert len(rows) == 1
    elif name == "hours":
        assert {r["hour(timestamp)"] for r in rows} == {time.gmtime(at).tm_hour for at, in plain("SELECT timestamp FROM memory_usage")} != set()
    else:
        assert name == "allocations" and rows == []


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_queries_of_the_documents(build, run, recorded, sql, name):
    rows, said = ask(build, run, recorded / "out.db", DOCUMENTS[name])
    check(name, rows, lambda query: sql(recorded / "out.db", query))
    assert ("allocations of the heap" in said) == (name == "allocations"), said


def test_on_traces_and_in_the_stock_shell(build, run, recorded, sql):
    """The same answers without converting the traces oneself, and from sqlite3 with the extension (where INTERVAL '5 min' is interval('5
    min'))."""
    for name in ("torch_trace", "epochs", "operations", "links", "names"):
        check(name, ask(build, run, recorded / "trace.zst", DOCUMENTS[name])[0], lambda query: sql(recorded / "out.db", query))
    # As SCHEMA.md says that a time is written there.
    for when in ("unixepoch('2020-01-31 13:00')", "strftime('%s', '2020-01-31 13:00') + 0"):
        done = run(["sqlite3", recorded / "out.db", "SELECT sum(timestamp > %s), sum(timestamp < %s), count(*) FROM memory_usage" % (when, when)])
        more, less, n = done.stdout.strip().split("|")
        assert more == n and less == "0"
    extension = build.root / "lib" / "probing" / "probing"
    for name, query in sorted(DOCUMENTS.items()):
        query = re.sub(r"(?i)interval ('[^']*')", r"interval(\1)", query)
        done = run(["sqlite3", "-json", recorded / "out.db", ".load %s" % extension, query])
        check(name, json.loads(done.stdout or "[]"), lambda query: sql(recorded / "out.db", query))


READ = """
import json, sys, probing
t = probing.open(sys.argv[1])
answers = {}
for name, query in json.load(sys.stdin).items():
    table = t.sql(query)
    columns = table.columns
    answers[name] = [dict(zip(columns, row)) for row in table.rows()]
json.dump(answers, sys.stdout)
"""


def test_in_the_python_reader(build, recorded, sql):
    """probing.open().sql() answers them word for word, too."""
    done = subprocess.run([sys.executable, "-c", READ, str(recorded / "out.db")], input=json.dumps(DOCUMENTS), stdout=subprocess.PIPE, universal_newlines=True,
                          check=True, env=dict(os.environ, PYTHONPATH=str(build.share / "python")))
    for name, rows in json.loads(done.stdout).items():
        check(name, rows, lambda query: sql(recorded / "out.db", query))


def test_nodes_processes_and_show(build, run, recorded, sql):
    db = recorded / "out.db"
    nodes, _ = ask(build, run, db, "SELECT host, ranks, first_rank, last_rank, world_size, complete FROM cluster.nodes")
    host, = sql(db, "SELECT DISTINCT host FROM trace")[0]
    assert nodes == [{"host": host, "ranks": RANKS, "first_rank": 0, "last_rank": RANKS - 1, "world_size": RANKS,
                      "complete": sql(db, "SELECT count(*) FROM trace")[0][0]}]
    roles, _ = ask(build, run, db, "SELECT DISTINCT rank, role FROM system.process WHERE rank IS NOT NULL ORDER BY 1")
    assert roles == [{"rank": r, "role": "worker"} for r in range(RANKS)]
    assert ask(build, run, db, "SELECT avg(gpu_util) FROM gpu_metrics GROUP BY device") == ([], "probing-query: no rows: no GPU was seen (NVML: libnvidia-ml.so.1)\n")
    assert ask(build, run, db, "SELECT * FROM memory_allocations") == ([], "probing-query: no rows: this version records no allocations of the heap; `probing ask memory` tells where memory grows\n")
    shown, _ = ask(build, run, db, "SHOW TABLES -- all of them\n;")
    assert {"information_schema", "main", "system", "process", "cluster"} == {r["table_schema"] for r in shown}
    columns, _ = ask(build, run, db, "/* which? */ DESCRIBE python.steps")
    assert [r["column_name"] for r in columns] == [c[1] for c in sql(db, "PRAGMA table_info(steps)")]


@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")
def test_prompt(build, recorded, tmp_path):
    env = dict(os.environ, TERM="xterm", HOME=str(tmp_path), PAGER="", PROBING_RUN_DIR=str(tmp_path))
    env.pop("TMUX", None)
    env.pop("PROBING_HISTORY", None)
    command = "%s query %s; echo code $?; sleep 100" % (build.tool("probing"), recorded / "out.db")
    terminal = Terminal("probing-words-%d" % os.getpid(), command, env)
    try:
        terminal.until("probing>")
        terminal.type("SELECT count(*) AS many FROM gpu_met", "Tab")
        terminal.until("FROM gpu_metrics")
        terminal.type(" -- of all", "Enter")
        terminal.until("...>")
        terminal.type("WHERE device > 3\\;", "Enter")
        terminal.until("(1 row)")
        terminal.type("Up", "Enter")  # both lines of the statement
        wait_until(lambda: terminal.screen().count("(1 row)") == 2)
        terminal.type("\\d stragglers", "Enter")
        terminal.until("imposed_seconds")
        terminal.type("\\d python.runs", "Enter")
        terminal.until("processes")
        terminal.type("\\d nothing", "Enter")
        terminal.until("no table or view 'nothing'")
        terminal.type(".tables", "Enter")
        terminal.until("begin with a backslash")
        terminal.type("SELECT max(imposed_s", "Tab")
        terminal.until("max(imposed_seconds")
        terminal.type("C-c")
        terminal.type("SELECT s.imposed_s", "Tab", ", s.came_l", "Tab", " FROM stragglers s WHERE s.oth", "Tab", "Enter")
        terminal.until("SELECT s.imposed_seconds, s.came_last FROM stragglers s WHERE s.others_waited")
        terminal.type("C-c")
        terminal.type("SELECT 1 FROM training_logs_", "Tab", " -- no more")  # views from which others are stored do not complete it
        terminal.until("FROM training_logs_ -- no more")
        terminal.type("C-c")
        terminal.type("SELECT no_such_thing\\;", "Enter")
        terminal.until("no such column")
        pid, = [pid for pid, command in started_with(str(recorded / "out.db")).items() if command.startswith(build.tool("probing") + " ")]

        def ticks():
            with open("/proc/%d/stat" % pid) as f:
                return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
        before = ticks()
        terminal.type("WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c) SELECT count(*) FROM c\\;", "Enter")
        wait_until(lambda: ticks() > before + 10)  # reading a line takes no tenth of a second of processor time: so the query runs
        terminal.type("C-c")
        terminal.until("interrupted")
        terminal.type("SELECT dropped", "C-c")
        terminal.until("SELECT dropped^C")
        assert "KeyboardInterrupt" not in terminal.screen()  # that is Python's prompt
        terminal.type("\\f box", "Enter", "SELECT printf('%300s', 'x') AS wide, 1\\;", "Enter")
        terminal.until("…")
        assert max(len(line) for line in terminal.screen().splitlines()) <= 100
        terminal.type("exit\\;", "Enter")
        terminal.until("code 0")
    finally:
        terminal.close()
    assert "stragglers" in (tmp_path / ".probing_sql_history").read_text()


def test_prompt_from_a_pipe(build, recorded):
    done = subprocess.run([str(build.tool("probing-query")), "--csv", str(recorded / "out.db")], input="SELECT 1 AS a\n -- b\n;",
                          stdout=subprocess.PIPE, universal_newlines=True)
    assert done.returncode == 0 and done.stdout.split() == ["a", "1"]
