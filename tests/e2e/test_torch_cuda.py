# SPDX-License-Identifier: Apache-2.0
"""The GPU's side of modules and steps: CUDA times, torch's GPU memory, and how much recording them may cost.

These tests run without a GPU, with a fake driver (tests/programs/fake_cuda.c: streams that work at their own pace, events that are recorded
later, and counters of the calls) and a fake torch._C._cuda_memoryStats. They show what the agent does: that numbers arrive as the driver gave
them, and that the agent never waits for the GPU, never disturbs a capture, and makes no more calls than it may. Only tests/gpu/check.py, on a
machine with a GPU, can show what a real driver and a real torch do.

cuda_scenes.py has the programs.
"""
import os
import pathlib
import re
import shutil
import subprocess
import time

import conftest
import pytest
from test_torch import find_torch, said

SCENES = pathlib.Path(__file__).with_name("cuda_scenes.py")
ALL = "cuda=all,memory=all"
ONE = [pytest.param("debian"), pytest.param("recent", marks=pytest.mark.slow), pytest.param("sid", marks=pytest.mark.slow)]


@pytest.fixture
def libraries(build, tmp_path):
    """Returns a directory with our own libcuda.so.1 and libc10_cuda.so."""
    where = tmp_path / "cuda"
    where.mkdir()
    for made, name in (("cuda", "libcuda.so.1"), ("cuda", "libc10_cuda.so"), ("nccl", "libnccl.so.2"), ("nccl", "libtorch_cuda.so")):
        shutil.copy(str(build.root / ("tests/programs/fake_" + made)), str(where / name))
    return where


@pytest.fixture
def scene(build, libraries, tmp_path, convert):
    def run(kind, name, *args, torch=ALL, check=True):
        python, why = find_torch(kind)
        if not python:
            pytest.skip(why)
        trace = tmp_path / (name + "".join(args) + ".zst")
        done = conftest.run_command(
            [build.tool("probing-record"), "-q", "-o", trace, "--torch", torch, "--", python, "-W", "ignore", str(SCENES),
             str(libraries), name] + list(args), timeout=240, check=check,
            env=dict(os.environ, PYTHONPATH=str(build.share / "python")))
        assert "Traceback" not in done.stderr, done.stderr
        # No thread waited for the GPU, and no call was made in a wrong context or in a way that harms a capture.
        for at in said(done.stdout, "counters"):
            assert not any(at[k] for k in ("waits", "wrong_context", "captured", "unrelaxed", "in_child")), at
        return convert(trace), done.stdout
    return run


def notes(sql, db):
    return [text for text, in sql(db, "SELECT text FROM notes WHERE part = 'cuda' AND trace_id = 1")]


def numbers(text):
    """Returns the numbers in the agent's note: intervals whose times were read, and those without times because there were no events,
    because of a capture, of another context, or of the end."""
    return [int(x) for x in re.findall(r"\d+", text)]


def test_the_checks_for_a_machine_with_a_gpu(run):
    """tests/gpu/check.py, which people run by hand, says so if there is no GPU."""
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    done = run([python, str(SCENES.parents[1] / "gpu" / "check.py")], check=77)
    assert done.stdout == "" and "nothing was checked" in done.stderr, done.stderr


CALLS_AND_STEPS = ("(SELECT step, module, stage, cuda_duration, device, allocated, max_allocated, cached FROM torch_trace UNION ALL"
                   " SELECT step, NULL, 'step', cuda_duration, device, allocated, max_allocated, cached FROM steps)")


@pytest.mark.parametrize("kind", ONE)
def test_what_the_driver_and_the_allocator_say(kind, scene, sql):
    db, out = scene(kind, "truth")
    rows = sql(db, "SELECT module, stage, count(*), min(cuda_duration), max(cuda_duration), min(device), max(device) FROM " + CALLS_AND_STEPS +
                   " WHERE step BETWEEN 2 AND 6 AND (module GLOB 'Net*' OR stage = 'step') GROUP BY 1, 2")
    want = {("Net", "forward"): .010, ("Net.parts.0", "forward"): .003, ("Net.parts.1", "forward"): .007,
            ("Net.parts.2", "forward"): 0, ("Net", "backward"): .016, ("Net.parts.0", "backward"): .005,
            ("Net.parts.1", "backward"): .011, (None, "step"): .026}
    assert {r[:2] for r in rows} == set(want)
    for module, stage, n, least, most, first, last in rows:
        assert n == 5 and (first, last) == (0, 0)
        assert abs(least - want[module, stage]) < 1e-6 and abs(most - want[module, stage]) < 1e-6, (module, stage, least, most)
    # On another stream.
    rows = sql(db, "SELECT cuda_duration FROM torch_trace WHERE module = 'Kernel' AND stage = 'forward' ORDER BY seq")
    assert len(rows) == 3 and all(abs(d - .013) < 1e-6 for d, in rows), rows
    # Memory at the end of each call, in MB; none for a backward.
    rows = sql(db, "SELECT DISTINCT module, stage, allocated, max_allocated, cached FROM " + CALLS_AND_STEPS + " WHERE step BETWEEN 2 AND 6"
                   " AND (module GLOB 'Net*' OR stage = 'step') ORDER BY stage, module")
    assert rows == [("Net", "backward", None, None, None), ("Net.parts.0", "backward", None, None, None),
                    ("Net.parts.1", "backward", None, None, None), ("Net", "forward", 0, 130, 137),
                    ("Net.parts.0", "forward", 100, 130, 137), ("Net.parts.1", "forward", 130, 130, 137),
                    ("Net.parts.2", "forward", 0, 130, 137), (None, "step", 0, 130, 137)]
    assert sql(db, "SELECT count(*), min(gpu_reserved_mb), max(gpu_reserved_mb) FROM memory WHERE step BETWEEN 1 AND 6") == [(6, 137, 137)]
    assert sql(db, "SELECT cuda_calls, calls, round(cuda_mean, 3) FROM torch_modules WHERE module = 'Net.parts.1' ORDER BY stage") == [
        (6, 6, .011), (6, 6, .007)]
    # All events were read, and the note has the number of times that the driver was asked for.
    at = said(out, "counters")[-1]
    told, = notes(sql, db)
    assert numbers(told) == [at["elapsed"], 0, 0, 0, 0] and not at["made"] > 2 * at["records"], (told, at)
    assert sql(db, "SELECT count(cuda_duration) FROM " + CALLS_AND_STEPS) == [(at["elapsed"],)]


@pytest.mark.parametrize("kind", ONE)
def test_backward_in_the_engines_own_thread(kind, scene, sql):
    """An interval that is open when a pass ends is closed when the next pass begins, with the time at which the first pass ended."""
    db, _ = scene(kind, "engine")
    rows = sql(db, "SELECT b.module, b.cuda_duration, b.duration > 0 FROM torch_trace b WHERE b.stage = 'backward' AND b.step > 0"
                   " AND b.tid != (SELECT f.tid FROM torch_trace f WHERE f.module = 'Engined' AND f.stage = 'forward' LIMIT 1) ORDER BY b.timestamp")
    assert [r[0] for r in rows] == ["Engined", "Engined.parts.1", "Engined.parts.0"] * 4
    want = {"Engined": .013, "Engined.parts.1": .004, "Engined.parts.0": .009}
    for module, duration, ended in rows[:-3]:
        assert abs(duration - want[module]) < 1e-6 and ended, rows
    # After the last pass nothing followed: the interval ended with it, and only what ended within the pass has a GPU time.
    assert [(d is None, e) for _, d, e in rows[-3:]] == [(True, 1), (False, 1), (True, 1)]


@pytest.mark.parametrize("kind", ONE)
def test_without_a_context_nothing_is_called(kind, scene, sql):
    """A CUDA build and a driver, in a program that does not use them."""
    db, out = scene(kind, "idle")
    assert not any(said(out, "counters")[0].values()), out
    assert sql(db, "SELECT count(*) > 50, count(cuda_duration), count(allocated), count(max_allocated), count(cached), count(device)"
                   " FROM torch_trace") == [(1, 0, 0, 0, 0, 0)]
    assert sql(db, "SELECT count(*), count(gpu_reserved_mb) FROM memory WHERE step IS NOT NULL") == [(20, 0)]
    assert notes(sql, db) == []


@pytest.mark.parametrize("kind", ONE)
def test_nothing_goes_into_a_graph_that_is_captured(kind, scene, sql):
    db, _ = scene(kind, "capture")  # scene() checks the counters
    rows = dict(sql(db, "SELECT module, group_concat(cuda_duration IS NOT NULL, '') FROM (SELECT * FROM torch_trace WHERE stage = 'forward'"
                        " ORDER BY timestamp) GROUP BY 1"))
    assert rows["Captured"] == "0" * 20
    assert rows["Net"] == "11111"  # on a stream that is not being captured, by the thread that captures another one
    assert numbers(notes(sql, db)[0])[2] >= 20


@pytest.mark.parametrize("kind", ONE)
def test_events_are_bounded_and_come_back(kind, scene, sql):
    db, out = scene(kind, "exhausted")
    behind, after = said(out, "behind")[0], said(out, "counters")[-1]
    assert behind["elapsed"] < 10 and behind["made"] == after["made"] == 2 * 1024
    told, = notes(sql, db)
    calls, have = sql(db, "SELECT count(*), count(cuda_duration) FROM torch_trace WHERE stage = 'forward'")[0]
    steps = sql(db, "SELECT count(cuda_duration) FROM steps")[0][0]
    assert calls > 5000 and 2000 < have + steps == numbers(told)[0] <= after["elapsed"]
    assert numbers(told)[1] >= calls - have - 10  # each of them was counted
    # Once the GPU has caught up, events are free again.
    assert sql(db, "SELECT count(cuda_duration) FROM (SELECT * FROM torch_trace WHERE stage = 'forward' ORDER BY timestamp DESC LIMIT 400)"
               )[0][0] == 400


@pytest.mark.slow
@pytest.mark.parametrize("kind", ONE)
def test_the_share_of_the_time(kind, scene, sql):
    """With a driver whose calls take 2 us each, at most 0.25 % of the time goes to GPU times, and as much to memory; and all names get
    their turn."""
    db, out = scene(kind, "budget", "2000", "2.5", torch="on")
    share, = said(out, "share")
    names = sql(db, "SELECT module, count(*), count(cuda_duration), count(allocated) FROM torch_trace WHERE stage = 'forward'"
                    " AND module GLOB 'Net*' GROUP BY module")
    assert len(names) == 43
    assert sum(n[2] for n in names) < sum(n[1] for n in names) / 10
    assert sum(1 for n in names if n[2]) > 25 and sum(1 for n in names if n[3]) > 25, names
    _, out = scene(kind, "budget", "2000", "1", torch=ALL)
    # Without the limit. tests/unit/test_limit.c tests how large the share is; here a call may have to wait for its processor.
    assert said(out, "share")[0] > 10 * share


@pytest.mark.parametrize("kind", ONE)
@pytest.mark.parametrize("code", ["4", pytest.param("700", marks=pytest.mark.slow)])
def test_a_driver_that_fails(kind, code, scene, sql):
    """When the driver is shut down (4), or after a crash of the GPU, a few more calls are made, then none, and everything else goes on."""
    db, out = scene(kind, "errors", code, "300")
    at, later = said(out, "errors")[0]
    assert 0 < at <= 4 and later == at
    assert sql(db, "SELECT count(*) FROM torch_trace WHERE stage = 'forward' AND module = 'Net'") == [(100,)]
    assert sql(db, "SELECT count(cuda_duration) BETWEEN 5 AND 60 FROM torch_trace") == [(1,)]
    assert len([n for n in notes(sql, db) if "error " + code in n]) == (code != "4")


@pytest.mark.parametrize("kind", ONE)
def test_a_driver_that_fails_at_the_end(kind, scene, sql):
    """A crash of the GPU is reported even if the program ends at once."""
    db, _ = scene(kind, "ends", "700")
    assert len([n for n in notes(sql, db) if "error 700" in n]) == 1, notes(sql, db)


@pytest.mark.parametrize("kind", ONE)
def test_statistics_that_raise(kind, scene, sql):
    """Nobody sees the error that they raise, and the program sees its own errors."""
    db, out = scene(kind, "raising")
    assert said(out, "raised") == [[30, ["the program's own"], True]]
    assert sql(db, "SELECT count(allocated), count(cuda_duration) > 60, sum(failed) FROM torch_trace") == [(0, 1, 30)]


@pytest.mark.parametrize("kind", ONE)
def test_threads_with_a_device_each(kind, scene, sql):
    db, _ = scene(kind, "threads")
    for i in range(3):
        rows = sql(db, "SELECT device, cuda_duration FROM torch_trace WHERE module = ? ORDER BY timestamp", "On%d" % i)
        assert {r[0] for r in rows} == {i} and len(rows) == 7
        assert all(abs(d - (i + 2) / 1e3) < 1e-6 for _, d in rows[:5]), rows


@pytest.mark.parametrize("kind", ONE)
def test_a_forked_child_leaves_the_driver_alone(kind, scene, sql):
    db, out = scene(kind, "forks")
    assert said(out, "child") == [{"in_child": 0, "waits": 0}]
    assert sql(db, "SELECT trace_id, count(*) > 50, count(cuda_duration) > 5 FROM torch_trace WHERE stage = 'forward' GROUP BY 1") == [
        (1, 0, 1), (2, 1, 0)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ONE)
def test_switched_off_and_on(kind, scene, sql):
    db, out = scene(kind, "switched")
    off, on, off_again = said(out, "switched")[0]
    assert off == off_again == [0, 0] and on[0] >= 2 * 40 and on[1], out
    rows = sql(db, "SELECT max(cuda_duration) FROM steps")
    assert rows[0][0] < .2  # none began before a pause


@pytest.mark.parametrize("kind", ONE)
def test_brought_in_stopped_and_brought_in_again(kind, build, libraries, spawn, run, convert, sql, tmp_path):
    """Between two recordings no call is made; the second one uses the events of the first again."""
    python, why = find_torch(kind)
    if not python:
        pytest.skip(why)
    process = spawn([python, "-W", "ignore", SCENES, libraries, "on_and_on"], ready="ready", stdin=subprocess.PIPE)

    def ask():
        process.stdin.write(b"so\n")
        process.stdin.flush()
        return said(conftest.wait_for_line(process, "so"), "so")[0]

    def until_measured():
        end, created = time.monotonic() + 600, 0
        while True:
            at, steps = ask()
            created += at["made"]
            if at["elapsed"] > max(20, 3 * steps):  # calls of modules, too: a step and its pass are measured a little earlier
                return created
            assert time.monotonic() < end, at
            time.sleep(0.1)

    made = []
    for trace in ("first.zst", "second.zst"):
        run([build.tool("probing"), "-t", process.pid, "inject", "-o", tmp_path / trace])
        run([build.tool("probing"), "-t", process.pid, "config", "torch.profiling=" + ALL])
        made.append(until_measured())
        run([build.tool("probing"), "-t", process.pid, "stop"])
        ask()
        time.sleep(0.3)
        assert not any(ask()[0].values())
    process.stdin.close()
    assert process.wait(timeout=240) == 0
    assert made[0] > 0 and made[1] < made[0] + 64, made
    for trace in ("first.zst", "second.zst"):
        db = convert(tmp_path / trace, out=tmp_path / (trace + ".db"))
        calls, steps = sql(db, "SELECT sum(stage = 'forward' AND cuda_duration < .01), sum(stage = 'step' AND cuda_duration < 1)"
                               " FROM " + CALLS_AND_STEPS + " WHERE cuda_duration IS NOT NULL")[0]
        assert calls > 5 and steps > 1, trace
        assert sql(db, "SELECT count(*) FROM torch_trace WHERE cuda_duration > 1") == [(0,)]


@pytest.mark.parametrize("kind", ONE)
def test_when_the_gpu_is_at_nccls_operations(kind, scene, sql):
    db, out = scene(kind, "nccl")
    times, = said(out, "times")
    rows = sql(db, "SELECT seq, completion, enter, exit, duration FROM comm_metrics WHERE op = 'all_reduce' ORDER BY seq")
    by = {seq: row for seq, *row in rows}
    assert sorted(by) == list(range(101, 111)), rows  # torch had counted 100 before
    assert [by[n][0] for n in range(101, 111)] == ["seen"] * 6 + ["call"] + ["seen", "none", "none"], rows
    for n, kernels in ((101, 1), (102, 3)):
        assert by[n][3] > 0.0299 * kernels, (n, by[n])
    assert by[103][3] == pytest.approx(0.03, rel=0.01), by[103]  # what was in the stream before is not part of it
    # The host was a second ahead of the GPU in this one.
    assert by[103][1] - times["103"] > 0.9 and times["103, returned"] - times["103"] < by[103][1] - times["103"], (by[103], times)
    # Operations of a group begin when the group ends: each has the time of all of them.
    assert all(by[n][3] > 0.0899 for n in (104, 105, 106)), rows
    for n in (101, 102, 103, 108):
        assert times[str(n)] <= by[n][1] + 1e-3 and by[n][2] <= times["%d, done" % n] + 1e-3, (n, by[n], times)
    hang = sql(db, "SELECT count(*) FROM comm_metrics WHERE complete = 0")
    assert hang == [(2,)]


@pytest.mark.parametrize("kind", ONE)
@pytest.mark.parametrize("code", [pytest.param("4", marks=pytest.mark.slow), "700", pytest.param("900", marks=pytest.mark.slow), pytest.param("2", marks=pytest.mark.slow)])  # the program's end, a crash of the GPU, a capture that forbids the call, no memory
def test_a_driver_that_fails_during_nccls_operations(code, kind, scene, sql):
    db, _ = scene(kind, "nccl", code)
    rows = sql(db, "SELECT seq, completion, complete, duration < 1 FROM comm_metrics WHERE op = 'all_reduce' ORDER BY seq")
    assert rows == [(101, "seen", 1, 1), (102, "call", 1, 1), (103, "call", 1, 1)]


@pytest.mark.parametrize("kind", ONE)
def test_operations_of_a_communicator_that_is_given_up(kind, scene, sql):
    """As when a rank exits whose peers never came: NCCL's kernels end then, and so do our events."""
    db, _ = scene(kind, "nccl_abort")
    assert sql(db, "SELECT seq, completion, complete FROM comm_metrics WHERE op = 'all_reduce' ORDER BY seq") == [
        (101, "seen", 1), (102, "none", 0), (103, "none", 0), (104, "seen", 1)]
