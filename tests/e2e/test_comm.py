# SPDX-License-Identifier: Apache-2.0
"""Communication: what each rank recorded is what the program did, the ranks' records match, and late or missing ranks are found.

These tests use gloo only, because NCCL needs GPUs. The part for NCCL is tested with a fake library in test_torch_cuda.py, and with two ranks
on a GPU by tests/gpu/check.py."""
import json
import os
import re
import pathlib
import subprocess
import time

import conftest
import pytest
from test_console import wait_until
from test_torch import NEWEST, before_torch2, find_torch

SCENES = pathlib.Path(__file__).with_name("comm_scenes.py")


class Job:
    """The ranks of one gloo job, each recorded into traces/."""

    def __init__(self, build, tmp, python, scene, world, agent=True, **env):
        self.build, self.traces, self.ranks = build, tmp / "traces", []
        self.traces.mkdir(parents=True)
        for rank in range(world):
            own = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), GLOO_SOCKET_IFNAME="lo",
                       PROBING_TRACE=str(self.traces / ("rank%d.zst" % rank)), **env)
            if agent:
                own["LD_PRELOAD"] = str(build.lib / "libprobing-preload.so")
            self.ranks.append(subprocess.Popen([python, "-W", "ignore", str(SCENES), scene, str(tmp / "store")], env=own,
                                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                               universal_newlines=True, start_new_session=True))

    def wait(self):
        out = []
        try:
            for process in self.ranks:
                out.append(process.communicate(timeout=600))
            assert [p.returncode for p in self.ranks] == [0] * len(self.ranks), out
        finally:
            self.kill()
        return [o[0] for o in out]

    def kill(self):
        for process in self.ranks:
            if process.poll() is None:
                conftest.kill_group(process)


@pytest.fixture(scope="module", params=["debian", pytest.param("recent", marks=pytest.mark.slow), NEWEST])
def python_torch(request):
    path, why = find_torch(request.param)
    if not path:
        pytest.skip(why)
    return path


@pytest.fixture(scope="module")
def module_tmp(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("comm")
    run_dir = tmp / "run"
    run_dir.mkdir(mode=0o700)
    return tmp


def database(build, traces, out):
    conftest.run_command([build.tool("probing-convert"), str(traces), str(out)])
    return out


@pytest.fixture(scope="module")
def known(build, module_tmp, python_torch, tmp_path_factory):
    """Three ranks that ran the scene `known`: (database, their output)."""
    tmp = tmp_path_factory.mktemp("known")
    said = Job(build, tmp, python_torch, "known", 3, PROBING_RUN_DIR=str(module_tmp / "run")).wait()
    return database(build, tmp / "traces", tmp / "out.db"), said


EXPECTED = [  # (op, bytes, dtype, source, destination), the same on every rank
    ("all_reduce", 4000, "float32", None, None),
    ("all_reduce", 4000, "float32", None, None),
    ("all_reduce", 4000, "float32", None, None),
    ("all_reduce", 80, "float64", None, None),
    ("broadcast", 80, "int64", 1, None),
    ("all_gather", 20, "float32", None, None),
    ("reduce", 4000, "float32", None, 1),
    ("scatter", 16, "float32", 0, None),
    ("gather", 24, "float32", None, 2),
    ("all_to_all", 24, "int32", None, None),
    ("barrier", 0, None, None, None),
]


@pytest.mark.slow
@pytest.mark.limit(400)
def test_the_program_is_the_same(known, build, python_torch, tmp_path):
    bare = Job(build, tmp_path, python_torch, "known", 3, agent=False).wait()
    assert known[1] == bare and "sum" in bare[0]


@pytest.mark.limit(400)
def test_operations_are_those_of_the_program(known, sql):
    db = known[0]
    world = sql(db, "SELECT \"group\" FROM comm_metrics WHERE group_size = 3 LIMIT 1")[0][0]
    for rank in range(3):
        rows = sql(db, "SELECT op, bytes, dtype, src_rank, dst_rank FROM comm_metrics WHERE rank = ? AND \"group\" = ?"
                       " AND op NOT IN ('send', 'recv') ORDER BY enter", rank, world)
        first = rows.index(EXPECTED[0])
        assert rows[first:first + len(EXPECTED)] == EXPECTED
        # DDP's own operations: one bucket of 100 * 100 + 100 floats in each of three steps
        assert rows.count(("all_reduce", 40400, "float32", None, None)) == 3


@pytest.mark.limit(400)
def test_sequence_numbers_match_on_all_ranks(known, sql):
    db = known[0]
    rows = sql(db, "SELECT arrived, size, complete, skew_ms FROM collectives")
    assert len(rows) >= len(EXPECTED) + 4
    assert all(arrived == size == complete and skew >= 0 for arrived, size, complete, skew in rows)
    # within a rank each group numbers its operations without a gap
    for rank, group, n, low, high in sql(db, "SELECT rank, \"group\", count(DISTINCT seq), min(seq), max(seq) FROM comm_metrics"
                                             " WHERE op NOT IN ('send', 'recv') GROUP BY 1, 2"):
        assert n == high - low + 1, (rank, group)


@pytest.mark.limit(400)
def test_subgroup_and_pairs(known, sql):
    db = known[0]
    rows = sql(db, "SELECT rank, op, bytes, dtype, src_rank FROM comm_metrics WHERE group_size = 2 ORDER BY rank, enter")
    both = [("all_reduce", 9, "uint8", None), ("broadcast", 12, "float32", 2)]
    assert rows == [(0,) + b for b in both] + [(2,) + b for b in both]
    rows = sql(db, "SELECT rank, op, seq, bytes, src_rank, dst_rank FROM comm_metrics WHERE op IN ('send', 'recv')"
                   " ORDER BY rank, seq")
    assert rows == [(0, "send", 1, 28, 0, 2), (0, "send", 2, 32, 0, 2), (2, "recv", 1, 28, 0, 2), (2, "recv", 2, 32, 0, 2)]


@pytest.mark.limit(400)
def test_completion_is_seen(known, sql):
    db = known[0]
    assert sql(db, "SELECT DISTINCT completion, complete, backend FROM comm_metrics") == [("seen", 1, "gloo")]
    assert sql(db, "SELECT count(*) FROM comm_metrics WHERE duration <= 0 OR exit < enter OR duration > 120")[0][0] == 0
    # nobody leaves an all_reduce before the last rank has come (one host, so one clock)
    assert sql(db, "SELECT count(*) FROM comm_metrics c JOIN collectives k USING (\"group\", seq, op)"
                   " WHERE c.op = 'all_reduce' AND c.exit < k.last_enter - 1e-4")[0][0] == 0
    assert sql(db, "SELECT count(*) FROM notes WHERE part = 'comm' AND level <> 'info'")[0][0] == 0


def parts(sql, db, rank):
    """Returns the rank's rows, split at each all_reduce of int8."""
    cut = []
    for row in sql(db, "SELECT op, enter, exit, complete, completion, dtype FROM comm_metrics WHERE rank = ? ORDER BY enter", rank):
        if row[0] == "all_reduce" and row[5] == "int8":
            cut.append([])
        elif cut:
            cut[-1].append(row)
    return cut


def ends_well(row, over, late):
    """Checks that the operation ended at the right time. late: how long a thread of gloo may have waited for its processor between the end
    of the operation and reporting it. Its own work there takes less than a tenth of a second of processor time."""
    return row[3] == 1 and row[4] == "seen" and row[1] < row[2] < over + late + 0.1


@pytest.mark.limit(300)
@pytest.mark.parametrize("kind", [pytest.param("debian", marks=pytest.mark.slow), "recent", NEWEST])
def test_every_operation_in_every_form(kind, build, tmp_path, sql):
    """Each operation makes the rows that it should, which begin when it was called and end when the program says so; one that raises does
    not take the end of another."""
    path, why = find_torch(kind)
    if not path:
        pytest.skip(why)
    said = Job(build, tmp_path, path, "every", 2).wait()
    db = database(build, tmp_path / "traces", tmp_path / "out.db")
    for rank in range(2):
        done, late = json.loads(said[rank].split("done ")[1])
        got = parts(sql, db, rank)
        assert len(got) == len(done) + 1 and len(done) > 80
        for (name, form, n, began, back, over), rows in zip(done, got):
            what = (rank, name, form, began, over, rows)
            if form == "raised":
                assert {r[4] for r in rows} <= {"raised"}, what
                continue
            assert n is None or len(rows) == n, what
            assert n != 1 or rows[0][0] == name, what
            assert all(began - 0.001 < r[1] < back + 0.001 and ends_well(r, over, late) for r in rows), what
        assert sum(d[1] != "raised" for d in done) > 60
    assert sql(db, "SELECT count(*) FROM comm_metrics WHERE NOT complete") == [(0,)]
    # several tensors of 3, or 100,000, and 5 floats: the sizes of all count
    assert sql(db, "SELECT DISTINCT bytes FROM comm_metrics WHERE op = 'all_reduce_coalesced' ORDER BY 1") == [(32,), (400020,)]
    assert sql(db, "SELECT count(*) FROM collectives WHERE arrived < size OR complete < arrived") == [(0,)]
    # a rank that has to wait for the others does not leave before the last one has come
    assert sql(db, "SELECT count(*) FROM comm_metrics c JOIN collectives k USING (\"group\", seq, op) WHERE c.exit < k.last_enter - 0.001"
                   " AND op IN ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'barrier')") == [(0,)]


@pytest.mark.limit(300)
@pytest.mark.parametrize("kind", ["debian", "recent", NEWEST])
@pytest.mark.slow
def test_trainings_as_wholes(kind, build, tmp_path, sql):
    path, why = find_torch(kind)
    if not path:
        pytest.skip(why)
    said = Job(build, tmp_path, path, "wholes", 2).wait()
    db = database(build, tmp_path / "traces", tmp_path / "out.db")
    for rank in range(2):
        done, late = json.loads(said[rank].split("done ")[1])
        for (name, ops, began, over), rows in zip(done, parts(sql, db, rank)):
            count = {}
            for r in rows:
                count[r[0]] = count.get(r[0], 0) + 1
            assert ops is None or count == ops, (rank, name)
            assert all(began - 0.001 < r[1] < over and ends_well(r, over, late) for r in rows), (rank, name, began, over, rows)
        assert [d[0] for d in done][::6] == (["ddp", "pipeline"] if before_torch2(path) else ["ddp", "fsdp1", "fsdp2", "pipeline"])
    assert sql(db, "SELECT count(*) FROM collectives WHERE arrived < size OR complete < arrived") == [(0,)]


@pytest.mark.limit(200)
@pytest.mark.parametrize("kind", ["debian", NEWEST])
@pytest.mark.slow
def test_groups_of_the_same_name(kind, build, tmp_path, sql):
    """A new group is not taken for one that was destroyed before, even if it has the same address or the same name."""
    path, why = find_torch(kind)
    if not path:
        pytest.skip(why)
    Job(build, tmp_path, path, "anew", 2).wait()
    db = database(build, tmp_path / "traces", tmp_path / "out.db")
    groups = ["0", "0#2", "0#3", "1", "1#2", "1#3"]
    for rank in range(2):
        assert sql(db, "SELECT name, size FROM process_group WHERE rank = ? ORDER BY 1", rank) == [(g, 2) for g in groups]
        assert sql(db, "SELECT \"group\", op, count(*), count(DISTINCT seq) FROM comm_metrics WHERE rank = ? GROUP BY 1, 2 ORDER BY 1, 2", rank) == [
            row for g in groups for row in ([(g, "all_reduce", 1, 1), (g, "monitored_barrier", 1, 1)] if g[0] == "0" else [(g, "all_reduce", 2, 2)])]
    rows = sql(db, "SELECT arrived, size, complete, first_enter, last_enter, exit FROM collectives ORDER BY first_enter")
    assert len(rows) == 12 and all(row[:3] == (2, 2, 2) for row in rows), rows
    assert all(a[4] < b[3] + 1e-3 for a, b in zip(rows, rows[2:])), rows  # nobody comes to the next operation but one before all were at this one


@pytest.mark.limit(200)
def test_straggler_is_found(build, tmp_path, sql):
    """Rank 1 sleeps before each of 20 collectives: it comes last, and the other rank waits for it. On a busy machine the other one may come
    later still, so the test compares with the moments between which the ranks say that they came; in most collectives these tell which rank
    was last."""
    path, why = find_torch("debian")
    if not path:
        pytest.skip(why)
    first, second = (json.loads(out.split("came ")[1]) for out in Job(build, tmp_path, path, "slow", 2).wait())
    db = database(build, tmp_path / "traces", tmp_path / "out.db")
    rows = sql(db, "SELECT last_rank, shortest_rank, skew_ms / 1e3 FROM collectives WHERE op = 'all_reduce' ORDER BY seq")
    calls = {rank: sql(db, "SELECT enter, exit - enter FROM comm_metrics WHERE op = 'all_reduce' AND rank = ? ORDER BY seq", rank) for rank in (0, 1)}
    assert len(rows) == len(calls[0]) == len(calls[1]) == len(first) == len(second) == 20
    known = []
    for (last, shortest, skew), (e0, took0), (e1, took1), (a0, b0), (a1, b1) in zip(rows, calls[0], calls[1], first, second):
        late = skew if last else -skew  # lateness of rank 1; doubles of seconds UTC are exact to a microsecond
        assert a1 - b0 - 1e-4 < late < b1 - a0 + 1e-4 and abs(late - (e1 - e0)) < 1e-5, (rows, calls, first, second)
        assert shortest == int(took1 < took0) or abs(took1 - took0) < 1e-5, (rows, calls)
        known += [last] if a1 > b0 or a0 > b1 else []
    assert 1 in known, (first, second)
    imposed = dict(sql(db, "SELECT rank, imposed_seconds FROM stragglers"))
    made = sum(skew for last, _, skew in rows if last == 1)
    assert made <= imposed[1] + 1e-5, (imposed, rows)  # the barriers are rank 1's, too


@pytest.mark.limit(200)
@pytest.mark.slow
def test_what_fails_since_a_peer_has_gone(build, tmp_path, sql, python_torch):
    said = Job(build, tmp_path, python_torch, "deserted", 2).wait()
    assert said[0].split() == ["failed", "failed"]
    db = database(build, tmp_path / "traces", tmp_path / "out.db")
    rows = sql(db, "SELECT rank, completion, complete FROM comm_metrics WHERE op = 'all_reduce' ORDER BY rank, seq")
    assert rows[:2] == [(0, "seen", 1)] * 2 and rows[-2:] == [(1, "seen", 1)] * 2, rows
    assert rows[2:-2] == [(0, "failed", 1)] * 2 or rows[2:-2] == [(0, "failed", 1), (0, "raised", 1)], rows


@pytest.mark.limit(200)
@pytest.mark.parametrize("rounds", [800, pytest.param(2500, marks=pytest.mark.slow)])
def test_threads_that_execute_operations_at_once(build, tmp_path, sql, rounds):
    """Each of gloo's threads finds an operation for what it executes, also when another thread takes the same one or new ones begin
    meanwhile: else an operation would never be seen to complete."""
    path, why = find_torch("debian")
    if not path:
        pytest.skip(why)
    made, = map(int, Job(build, tmp_path, path, "alike", 1, ROUNDS=str(rounds)).wait())
    db = database(build, tmp_path / "traces", tmp_path / "out.db")
    (kept, whole), = sql(db, "SELECT count(*), sum(complete) FROM comm_metrics WHERE op = 'barrier'")
    (lost,), = sql(db, "SELECT coalesce(sum(count), 0) FROM loss")  # the ring may be full: a busy machine
    assert whole == kept and made <= kept + lost, (made, kept, whole, lost)


@pytest.mark.limit(200)
@pytest.mark.parametrize("world, delay", [(2, 0), (4, 0), (4, 0.05)])
@pytest.mark.slow
def test_a_straggler_is_more_than_chance(build, tmp_path, sql, world, delay):
    """A healthy job has no straggler, even with more ranks than processors. A rank that is 50 ms late in each step is one, and is the first
    row of the view (which also counts what comes before the first step)."""
    path, why = find_torch("debian")
    if not path:
        pytest.skip(why)
    Job(build, tmp_path, path, "even", world, DELAY=str(delay)).wait()
    db = database(build, tmp_path / "traces", tmp_path / "out.db")
    said = conftest.run_command([build.tool("probing"), "ask", "straggler", "--answer", str(db)]).stdout
    (first, waited), = sql(db, "SELECT rank, others_waited FROM stragglers LIMIT 1")
    assert re.match("rank 2: the others waited for it in " if delay else r"no straggler: rank \d was waited for longest, ", said), said
    assert not delay or first == 2 and waited > 40 * delay * 0.8, (said, waited)


@pytest.mark.limit(200)
def test_who_did_not_arrive(build, tmp_path, sql):
    """The last of three ranks never comes: every rank's hang trigger fires by itself. After a SIGKILL of all, the traces tell which rank
    was missing, and where all of them were."""
    path, why = find_torch("debian")
    if not path:
        pytest.skip(why)
    job = Job(build, tmp_path, path, "absent", 3)
    try:
        query = "SELECT count(DISTINCT rank) AS n FROM triggers WHERE kind = 'hang' AND step = 15 AND stacks > 0"
        end = time.monotonic() + 600
        while time.monotonic() < end:
            done = conftest.run_command([build.tool("probing-query"), "--format", "json", str(job.traces), query], check=None)
            if done.returncode == 0 and json.loads(done.stdout)[0]["n"] == 3:
                break
            time.sleep(0.3)
        else:
            pytest.fail("no hang was seen: " + done.stdout + done.stderr)
    finally:
        job.kill()
    db = database(build, job.traces, tmp_path / "out.db")
    last = sql(db, "SELECT op, arrived, size, complete, missing FROM collectives ORDER BY first_enter DESC LIMIT 1")
    assert last == [("all_reduce", 2, 3, 0, "2")]
    where = {rank: set() for rank in range(3)}
    for rank, func in sql(db, "SELECT s.rank, s.func FROM trigger_stacks s JOIN triggers USING (trigger_id) WHERE s.kind = 'hang' AND step = 15"
                              " AND frame_type = 'Python'"):
        where[rank].add(func)
    assert "stuck" in where[2] and "all_reduce" in where[0] & where[1] and "stuck" not in where[0] | where[1], where
    hangs = set(sql(db, "SELECT rank, step FROM triggers WHERE kind = 'hang'"))
    # On a busy machine an earlier hang may be reported, too, of a step that took long because it had no processor; but never of a step that
    # took less than a second.
    long = set(sql(db, "SELECT rank, step FROM steps WHERE duration > 1"))
    assert {(0, 15), (1, 15), (2, 15)} <= hangs <= {(0, 15), (1, 15), (2, 15)} | long, (hangs, long)


AGAIN = """
import ctypes, json, os, sys, threading, time, torch, torch.distributed as dist
import probing
torch.set_num_threads(1)
cpu = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if "/libtorch_cpu.so" in line))
has = getattr(cpu, "_ZN2at18hasGlobalCallbacksEv")
has.restype = ctypes.c_bool
def record(trace):
    probing.enable(trace=trace, sample_rate=0, torch_profiling="off")
    while not probing.is_recording():
        time.sleep(0.01)
record(sys.argv[2])
agent = [[int(x, 16) for x in line.split()[0].split("-")] for line in open("/proc/self/maps") if "libprobing-agent" in line]
vtable = (ctypes.c_uint64 * 40).in_dll(cpu, "_ZTVN4c10d16ProcessGroupGlooE")
end = time.monotonic() + 600
while not any(low <= w < high for w in vtable for low, high in agent) and time.monotonic() < end:
    time.sleep(0.01)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
said, x = {"before": has()}, torch.ones(100000)
def work(n):
    for _ in range(n):
        dist.all_reduce(x)
def queue(n):
    return [dist.all_reduce(x, async_op=True) for _ in range(n)]
work(5)
said["recording"] = has()
going = True
def busy():
    while going:
        for w in queue(20):
            w.wait()
thread = threading.Thread(target=busy)
thread.start()  # stop comes while operations wait to be executed
time.sleep(0.05)
last = queue(100)
probing.disable()
said["stopped"] = has()
for w in last:
    w.wait()
going = False
thread.join()
work(50)
said["later"], said["sum"] = has(), float(x.sum())
record(sys.argv[3])
work(1)
said["again"] = has()
work(30)
print("said", json.dumps(said), flush=True)
dist.destroy_process_group()
"""


def test_stop_leaves_no_callback(build, tmp_path, sql, python_torch):
    """The callback is removed with the recording, even while operations are under way, and is there again in the next one."""
    script, traces = tmp_path / "again.py", tmp_path / "t"
    traces.mkdir()
    script.write_text(AGAIN)
    env = dict(os.environ, GLOO_SOCKET_IFNAME="lo", PYTHONPATH=str(build.share / "python"))
    done = conftest.run_command([python_torch, "-W", "ignore", script, tmp_path / "store", traces / "first.zst", traces / "second.zst"],
                                env=env, timeout=240)
    said = json.loads(done.stdout.split("said ")[1])
    assert said == {"before": False, "recording": True, "stopped": False, "later": False, "sum": 100000.0, "again": True}
    db = database(build, traces / "second.zst", tmp_path / "second.db")
    rows = sql(db, "SELECT op, complete, completion, duration < 60, count(*) FROM comm_metrics GROUP BY 1, 2, 3, 4")
    assert rows == [("all_reduce", 1, "seen", 1, 31)]
    db = database(build, traces / "first.zst", tmp_path / "first.db")
    assert sql(db, "SELECT count(*) >= 5 FROM comm_metrics WHERE complete AND completion = 'seen'") == [(1,)]


@pytest.mark.slow
def test_injected_in_mid_training(build, tmp_path, spawn, sql):
    """An agent that comes late takes over gloo's own count, so its sequence numbers are those of the ranks that were recorded from the
    start; and it records a later exception."""
    path, why = find_torch("debian")
    if not path:
        pytest.skip(why)
    script, trace = tmp_path / "late.py", tmp_path / "late.zst"
    script.write_text("""
import sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
for i in range(40): dist.all_reduce(torch.ones(10))
print("ready", flush=True)
end = time.monotonic() + 600
import select
while time.monotonic() < end and not select.select([sys.stdin], [], [], 0.01)[0]: dist.all_reduce(torch.ones(10))
dist.destroy_process_group()  # else torch's own threads now and then meet an interpreter that is gone, and abort
1 / 0
""")
    process = spawn([path, "-W", "ignore", script, tmp_path / "store"], ready="ready", stdin=subprocess.PIPE, stderr=subprocess.DEVNULL,
                    env=dict(os.environ, GLOO_SOCKET_IFNAME="lo"))
    done = conftest.run_command([build.tool("probing"), "-t", process.pid, "inject", "-o", trace], check=None)
    if done.returncode and "permi" in done.stderr.lower():
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    end = time.monotonic() + 600
    while time.monotonic() < end:
        seen = conftest.run_command([build.tool("probing-query"), "--format", "json", trace, "SELECT count(*) AS n FROM comm_metrics"],
                                    check=None)
        if seen.returncode == 0 and json.loads(seen.stdout)[0]["n"] >= 20:
            break
        time.sleep(0.2)
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert process.wait(timeout=240) == 1
    db = database(build, trace, tmp_path / "out.db")
    (n, low, high, complete), = sql(db, "SELECT count(*), min(seq), max(seq), sum(complete) FROM comm_metrics WHERE op = 'all_reduce'")
    assert low > 40 and n == complete == high - low + 1 >= 20
    assert sql(db, "SELECT kind FROM triggers") == [("exception",)]


DEFAULT_DEVICE = """
import os, subprocess, sys, torch
import torch.distributed as dist
sys.path.insert(0, sys.argv[1])
from gloo_ready import wait_for_agent
torch.set_default_device("cuda")
subprocess.run([sys.argv[2], "-t", str(os.getpid()), "inject", "-o", "trace.zst"], check=True, stdout=subprocess.DEVNULL)
wait_for_agent()
dist.init_process_group("gloo", store=dist.FileStore("store", 1), rank=0, world_size=1)
dist.all_reduce(torch.ones(10, device="cpu"))
dist.destroy_process_group()
"""


@pytest.mark.limit(100)
@pytest.mark.parametrize("kind", ["recent"])
@pytest.mark.slow
def test_sizes_whatever_the_default_device_is(kind, build, sql, tmp_path):
    """Nothing of ours is made on the program's default device, which is perhaps not there, or not to be used yet."""
    path, why = find_torch(kind)
    if not path:
        pytest.skip(why)
    (tmp_path / "script.py").write_text(DEFAULT_DEVICE)
    conftest.run_command([path, "-W", "ignore", "script.py", str(SCENES.parent), str(build.tool("probing"))], cwd=str(tmp_path), timeout=300,
                         env=dict(os.environ, GLOO_SOCKET_IFNAME="lo"))
    db = database(build, tmp_path / "trace.zst", tmp_path / "out.db")
    assert sql(db, "SELECT op, bytes, dtype FROM comm_metrics") == [("all_reduce", 40, "float32")]


@pytest.mark.slow
def test_an_operation_over_two_files(build, sql, tmp_path):
    """An operation is in flight when the process goes on in a new file. It is complete, and nobody hangs: not if the files are converted together, and
    not if the second is added to a database that has the first."""
    path, why = find_torch("debian")
    if not path:
        pytest.skip(why)
    job = Job(build, tmp_path, path, "rotated", 2, PROBING_SAMPLE_RATE="1000Hz")
    config = [build.tool("probing"), "-t", job.ranks[0].pid, "config"]
    trace, now, parts = job.traces / "rank0.zst", tmp_path / "now.db", job.traces / "rank0.zst.d"

    def in_flight():
        if not trace.exists() or trace.stat().st_size < 70000:
            return False
        done = conftest.run_command([build.tool("probing-convert"), "-q", "-f", trace, now], check=None)
        return done.returncode == 0 and sql(now, "SELECT count(*) FROM comm WHERE flags & 1") == [(1,)]
    try:
        wait_until(in_flight)
        conftest.run_command(config + ["segment_size=64K"])
        wait_until(lambda: list(parts.glob("*.1.zst")))
        conftest.run_command(config + ["segment_size=1T"])
        first = sorted(parts.glob("*.zst"))
        added = database(build, first[0], tmp_path / "added.db")
        assert sql(added, "SELECT count(*) FROM comm_metrics WHERE NOT complete") == [(1,)]
        (tmp_path / "store.go").write_text("")
        job.wait()
    finally:
        job.kill()
    whole = database(build, job.traces, tmp_path / "whole.db")
    conftest.run_command([build.tool("probing-convert"), "-a", job.traces, added])
    for db in (whole, added):
        assert sql(db, "SELECT seq, count(*), sum(complete) FROM comm_metrics GROUP BY seq") == [(1, 2, 2), (2, 2, 2), (3, 2, 2)]
        assert sql(db, "SELECT seq, arrived, complete FROM collectives") == [(1, 2, 2), (2, 2, 2), (3, 2, 2)]
        assert sql(db, "SELECT * FROM hangs") == []
