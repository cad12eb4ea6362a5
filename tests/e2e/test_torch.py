# SPDX-License-Identifier: Apache-2.0
"""PyTorch: names and counts of modules, forward and backward, steps and data loading, with Debian's torch and with a recent one.

torch_scenes.py has the programs. For each torch all of them are recorded in one process, and each test queries that database.
"""
import functools
import json
import os
import subprocess
import pathlib

import pytest

import conftest

SCENES = pathlib.Path(__file__).with_name("torch_scenes.py")
COMMON = ("plain shared later strays repeated checkpoints exceptions threads pipeline shards gan pair accumulation scaler lbfgs twins "
          "scripts copies ddp timed workers").split()
REPO = pathlib.Path(__file__).resolve().parents[2]
SID = os.environ.get("PROBING_SID") or "/nonexistent"  # the folder of .ci/sid-pythons.sh


def run_script(name, *args):
    done = subprocess.run([str(REPO / ".ci" / name)] + list(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, universal_newlines=True)
    return done.stdout.strip() if done.returncode == 0 else None, done.stderr.strip()


@functools.lru_cache(None)
def find_torch(kind):
    """Returns (interpreter, None) or (None, why not). Looks only once, because importing PyTorch takes seconds."""
    if kind == "debian":
        path = "/usr/bin/python3"
        if any(p.torch and p.path == path for p in conftest.PYTHONS):
            return path, None
        path, _ = run_script("torch-python")
        return path, "no interpreter at hand has PyTorch (python3-torch)"
    if kind == "sid":
        path, why = run_script("sid-torch.sh", SID)
        return path, "no PyTorch of Debian sid: %s" % why
    path, why = run_script("torch-venv.sh")
    return path, "no recent PyTorch: %s" % why


@functools.lru_cache(None)
def before_torch2(python):
    """Returns whether this Python's PyTorch is older than 2.0, as Debian 12's is; on other systems find_torch("debian") may find any
    version (on Ubuntu 24.04: pip's)."""
    said = subprocess.run([python, "-W", "ignore", "-c", "import torch; print(torch.__version__)"], stdout=subprocess.PIPE, check=True)
    return int(said.stdout.split(b".")[0]) < 2


def has_fsdp2(python):
    """Returns whether fully_shard() works on a CPU: not before 2.0, nor with 2.6, whose CPU streams lack what it calls."""
    said = subprocess.run([python, "-W", "ignore", "-c", "import torch; print(torch.__version__.startswith('2.6.'))"], stdout=subprocess.PIPE, check=True)
    return not before_torch2(python) and said.stdout == b"False\n"


class Recorded:
    def __init__(self, db, out, baseline, python):
        self.db, self.out, self.baseline, self.python = db, out, baseline, python


CACHE = {}


def said(text, what):
    return [json.loads(line.split(" ", what.count(" ") + 1)[-1]) for line in text.split("\n") if line.startswith(what + " ")]


def run_scenes(python, scenes, build=None, trace=None, options=(), env=None, check=True, warnings="ignore"):
    cmd = [python, "-W", warnings, str(SCENES)] + list(scenes)
    if trace:
        cmd = [build.tool("probing-record"), "-o", str(trace)] + list(options) + ["--"] + cmd
    return conftest.run_command(cmd, timeout=240, check=check, env=dict(os.environ, **(env or {})))


NEWEST = pytest.param("sid", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=["debian", "recent", NEWEST])
def python_torch(request):
    path, why = find_torch(request.param)
    if not path:
        pytest.skip(why)
    return path, request.param


@pytest.fixture(params=["debian", pytest.param("recent", marks=pytest.mark.slow), NEWEST])
def torch_of_its_own(request):
    """For tests that import torch in a process of their own."""
    path, why = find_torch(request.param)
    if not path:
        pytest.skip(why)
    return path, request.param


@pytest.fixture(scope="module")
def rec(python_torch, build, tmp_path_factory):
    """All scenes with one torch: recorded once, and run once without recording."""
    python, kind = python_torch
    if kind not in CACHE:
        tmp = tmp_path_factory.mktemp("torch")
        run_dir = tmp / "run"
        run_dir.mkdir(mode=0o700)
        env = {"PROBING_RUN_DIR": str(run_dir)}
        scenes = COMMON + (["fsdp"] if has_fsdp2(python) else []) + ([] if before_torch2(python) else ["traced"])
        without = run_scenes(python, scenes, env=env)
        done = run_scenes(python, scenes, build, tmp / "trace.zst", ["-r", "100"], env=env)
        db = tmp / "out.db"
        conftest.run_command([build.tool("probing-convert"), str(tmp / "trace.zst"), str(db)])
        CACHE[kind] = Recorded(db, done.stdout, without.stdout, python)
    return CACHE[kind]


@pytest.fixture
def calls(rec, sql):
    def ask(pattern, stage="forward", recomputed=0):
        rows = sql(rec.db, "SELECT module, count(*) FROM torch_trace WHERE module GLOB ? AND stage = ? AND recomputed = ?"
                   " GROUP BY module", pattern, stage, recomputed)
        return dict(rows)
    return ask


def plain_counts(name, n, prefix=""):
    names = ["", ".layers.0", ".layers.1", ".layers.2", ".head", ".head.0", ".head.1"]
    return {prefix + name + x: n for x in names}


# ---- what recording does not change ------------------------------------------------------------


@pytest.mark.limit(300)
def test_losses_are_equal_bit_for_bit(rec):
    assert said(rec.out, "losses") == said(rec.baseline, "losses")
    assert len(said(rec.out, "losses")[0]) > 70


def test_nothing_is_lost_and_nothing_is_off(rec, sql):
    notes = sql(rec.db, "SELECT text FROM notes WHERE part = 'torch' AND trace_id = 1")
    assert len(notes) == 2 and notes[0][0].endswith("backward of modules on"), notes
    assert notes[1] == ("autograd's nodes are seen where the engine calls them",)  # the callback has confirmed this, and was removed
    assert sql(rec.db, "SELECT count(*) FROM torch_trace WHERE duration IS NULL") == [(0,)]
    lost = dict(sql(rec.db, "SELECT reason, count FROM loss"))  # samples may be lost on a busy machine
    assert not set(lost) & {"no_ring", "damaged", "unresolved", "write_error"}, lost


# ---- names and counts ---------------------------------------------------------------------------


def test_plain(rec, calls, sql):
    assert calls("Plain*") == plain_counts("Plain", 5)
    assert calls("Plain*", "backward") == plain_counts("Plain", 5)
    assert calls("MSELoss*") == {"MSELoss": 5}
    rows = sql(rec.db, "SELECT module, parent, depth, type FROM torch_trace WHERE module GLOB 'Plain*' AND stage = 'forward'"
               " AND step = (SELECT min(step) FROM torch_trace WHERE module = 'Plain') ORDER BY seq")
    assert rows == [("Plain", None, 0, "Plain"), ("Plain.layers.0", "Plain", 1, "Linear"),
                    ("Plain.layers.1", "Plain", 1, "Linear"), ("Plain.layers.2", "Plain", 1, "Linear"),
                    ("Plain.head", "Plain", 1, "Sequential"), ("Plain.head.0", "Plain.head", 2, "Linear"),
                    ("Plain.head.1", "Plain.head", 2, "ReLU")]
    rows = sql(rec.db, "SELECT module FROM torch_trace WHERE module GLOB 'Plain*' AND stage = 'backward'"
               " AND step = (SELECT min(step) FROM torch_trace WHERE module = 'Plain') ORDER BY seq")
    assert [r[0] for r in rows] == ["Plain", "Plain.head", "Plain.head.1", "Plain.head.0", "Plain.layers.2",
                                    "Plain.layers.1", "Plain.layers.0"]


def test_backward_has_its_forward(rec, sql):
    """The call's number links them: both are of the same module, and the backward begins after the forward has ended."""
    rows = sql(rec.db, "SELECT f.module = b.module, b.timestamp >= f.timestamp + f.duration - 1e-6, f.step = b.step, count(*)"
               " FROM torch_trace b LEFT JOIN torch_trace f ON f.trace_id = b.trace_id AND f.tid = b.tid AND f.call = b.call"
               " AND f.stage = 'forward' WHERE b.stage = 'backward' AND b.module NOT GLOB 'Closure*'"
               " AND b.module NOT GLOB 'Stage*' AND b.module NOT GLOB 'Shard*' GROUP BY 1, 2, 3")
    assert [r[:3] for r in rows] == [(1, 1, 1)], rows


def test_shared_between_parents(rec, calls):
    want = {"Shared": 3, "Shared.left": 3, "Shared.left.common": 3, "Shared.right": 6, "Shared.right.common": 6}
    assert calls("Shared*") == want
    assert calls("Shared*", "backward") == want


def test_created_later(rec, calls):
    got = calls("Later*")
    assert got == {"Later": 7, "Later.first": 7, "Later.second": 5, "Later.second.0": 2, "Later.second.1": 2}


def test_made_anew_in_each_call(rec, calls):
    assert calls("Strays*") == {"Strays": 40, "Strays.lin": 40, "Strays.(Tanh)": 40}


def test_called_several_times_in_a_step(rec, calls, sql):
    assert calls("Repeated*") == {"Repeated": 3, "Repeated.cell": 12}
    assert calls("Repeated*", "backward") == {"Repeated": 3, "Repeated.cell": 12}
    rows = sql(rec.db, "SELECT count(DISTINCT call) FROM torch_trace WHERE module = 'Repeated.cell' AND stage = 'backward'")
    assert rows == [(12,)]


@pytest.mark.parametrize("kind", ["CkptReentrant", "CkptSaved"])
def test_recomputed_by_checkpointing(rec, calls, kind, sql):
    inner = {kind + ".b": 3, kind + ".b.0": 3, kind + ".b.1": 3}
    assert calls(kind + "*") == dict(inner, **{kind: 3, kind + ".a": 3})
    assert calls(kind + "*", recomputed=1) == inner
    assert calls(kind + "*", "backward") == dict(inner, **{kind: 3, kind + ".a": 3})
    assert sql(rec.db, "SELECT sum(failed) FROM torch_trace WHERE module GLOB ?", kind + "*") == [(0,)]  # torch 2.x stops the recomputation by an exception


def test_left_by_an_exception(rec, calls, sql):
    assert calls("Fails*") == {"Fails": 4, "Fails.inner": 4, "Fails.after": 3}
    rows = sql(rec.db, "SELECT module, sum(failed) FROM torch_trace WHERE module GLOB 'Fails*' GROUP BY module")
    assert dict(rows) == {"Fails": 1, "Fails.inner": 1, "Fails.after": 0}
    assert sql(rec.db, "SELECT DISTINCT depth FROM torch_trace WHERE module = 'Fails'") == [(0,)]
    assert sql(rec.db, "SELECT count(*), sum(failed) FROM torch_trace WHERE module = 'Stops'") == [(1, 0)]


def test_several_threads(rec, calls, sql):
    assert calls("Threaded*") == {"Threaded": 80, "Threaded.lin": 80}
    rows = sql(rec.db, "SELECT tid, count(*), sum(parent = 'Threaded') FROM torch_trace WHERE module GLOB 'Threaded*' GROUP BY tid")
    assert sorted(r[1:] for r in rows) == [(40, 20)] * 4


def test_graphs_of_several_threads(rec, calls, sql):
    """Each thread numbers its nodes from 0, so a node is identified by its number together with its thread."""
    def stages(names, n):
        return {name + part: n for name in names for part in ("", ".scale", ".act")}
    for stage in "forward", "backward":
        assert calls("Stage*", stage) == stages(["StageA", "StageB", "StageC"], 6)
        assert calls("Shard[AB]*", stage) == stages(["ShardA", "ShardB"], 5)
    assert calls("ShardC*", "backward") == stages(["ShardC"], 5)
    rows = sql(rec.db, "SELECT count(*), sum(EXISTS (SELECT 1 FROM torch_trace f WHERE f.trace_id = b.trace_id AND f.module = b.module"
               " AND f.call = b.call AND f.stage = 'forward' AND f.tid = b.call_tid AND f.tid != b.tid AND f.timestamp + f.duration < b.timestamp + 1e-6))"
               " FROM torch_trace b WHERE b.stage = 'backward' AND (b.module GLOB 'Stage[AB]*' OR b.module GLOB 'Shard[AB]*')")
    assert rows == [(66, 66)]


def test_traced_passes_of_several_threads(rec, calls):
    """A pass that has no values is not recorded; those after it are."""
    if before_torch2(rec.python):
        pytest.skip("FakeTensorMode is no mode of this torch's dispatcher")
    for stage in "forward", "backward":
        assert calls("Traced*", stage) == {"Traced": 4, "Traced.scale": 4, "Traced.act": 4}


def test_two_roots_of_one_class(rec, calls):
    assert calls("Twin*") == {"Twin": 3, "Twin.lin": 3, "Twin#2": 2, "Twin#2.lin": 2}


def test_script_modules(rec, calls):
    assert calls("HoldsScripted*") == {"HoldsScripted": 5, "HoldsScripted.script": 5, "HoldsScripted.trace": 5}
    assert calls("HoldsScripted*", "backward") == {"HoldsScripted": 5, "HoldsScripted.script": 5, "HoldsScripted.trace": 5}


def test_copies_and_pickles(rec, calls):
    """The scene itself checks that copies are equal and have nothing of the agent's."""
    got = calls("Copied*")
    assert got["Copied"] == got["Copied.lin"] == 5 and sum(got.values()) == 18, got


def test_ddp(rec, calls):
    want = plain_counts("Ddp", 4)
    assert calls("Ddp*") == want
    assert calls("Ddp*", "backward") == plain_counts("Ddp", 3)
    assert calls("DistributedDataParallel*") == {"DistributedDataParallel": 3}


def test_fsdp2(rec, calls):
    if not has_fsdp2(rec.python):
        pytest.skip("FSDP2 does not work with this torch on a CPU")
    assert calls("Fsdp*") == plain_counts("Fsdp", 3)
    assert calls("Fsdp*", "backward") == plain_counts("Fsdp", 3)


# ---- steps ------------------------------------------------------------------------------------


def steps_of(rec, sql, module):
    """Returns how often the module was called in each step in which it was called."""
    rows = sql(rec.db, "SELECT step, count(*) FROM torch_trace WHERE module = ? AND stage = 'forward' GROUP BY step", module)
    return [n for _, n in rows]


def test_gradient_accumulation_is_one_step(rec, sql):
    assert steps_of(rec, sql, "Acc") == [4, 4, 4]
    rows = sql(rec.db, "SELECT backwards, optimizers, source FROM steps WHERE step IN"
               " (SELECT step FROM torch_trace WHERE module = 'Acc') AND trace_id = 1")
    assert rows == [(4, 1, "optimizer")] * 3


def test_a_skipped_step_goes_with_the_next(rec, sql):
    assert steps_of(rec, sql, "Scaled") == [1, 2, 1]


def test_several_optimizers(rec, sql):
    assert steps_of(rec, sql, "Pair") == [1, 1, 1, 1]
    rows = sql(rec.db, "SELECT optimizers FROM steps WHERE step IN (SELECT step FROM torch_trace WHERE module = 'Pair')"
               " AND trace_id = 1")
    assert rows == [(2,)] * 4
    assert steps_of(rec, sql, "Disc") == [1] * 6  # a GAN: each of its optimizers makes a step


def test_forward_within_the_optimizer(rec, sql):
    rows = sql(rec.db, "SELECT forward > 0, backward > 0, optimizer > 0, optimizers, forward + backward + optimizer + data"
               " <= duration FROM steps WHERE trace_id = 1 AND step IN (SELECT step FROM torch_trace WHERE module = 'Closure')")
    assert rows == [(1, 1, 1, 1, 1)] * 2, rows


def test_steps_are_without_gaps(rec, sql):
    rows = sql(rec.db, "SELECT step, timestamp, end FROM steps WHERE trace_id = 1 AND complete ORDER BY step")
    assert [r[0] for r in rows] == list(range(len(rows)))
    assert all(abs(a[2] - b[1]) < 1e-6 for a, b in zip(rows, rows[1:]))
    assert sql(rec.db, "SELECT DISTINCT stage, module IS NULL FROM torch_trace ORDER BY 1") == [("backward", 0), ("forward", 0)]


def test_durations_are_true(rec, sql):
    """Sleeps of known length are compared with the program's own clock: the difference is at most the time that its threads waited for a
    processor."""
    measured = said(rec.out, "timed")[0]
    rows = sql(rec.db, "SELECT t.duration, s.backward, s.optimizer, s.data FROM steps s JOIN torch_trace t ON t.step = s.step"
               " AND t.trace_id = s.trace_id WHERE s.trace_id = 1 AND t.module = 'Timed' AND t.stage = 'forward' ORDER BY s.step")
    assert len(rows) == len(measured) == 4
    for (forward, backward, optimizer, data), (f, b, o, *waited) in zip(rows, measured):
        assert 0.015 * 0.999 <= forward <= f * 1.001 + 20e-6, (forward, f)
        assert 0.030 * 0.999 <= backward <= b * 1.001 + 20e-6, (backward, b)
        assert 0 < optimizer <= o * 1.001 + 20e-6
        assert data >= 0.007 * 0.999
    # In the best of the four steps: a host that takes the processor from a virtual machine for a moment is in no process's waiting time.
    for n, stage in enumerate(("forward", "backward")):
        assert min(m[n] - row[n] - m[3 + n] for row, m in zip(rows, measured)) < 0.001, (stage, rows, measured)
    for module, stage, least in (("a", "forward", 0.004), ("b", "forward", 0.011), ("a", "backward", 0.008), ("b", "backward", 0.022)):
        rows = sql(rec.db, "SELECT duration FROM torch_trace WHERE module = ? AND stage = ?", "Timed." + module, stage)
        assert len(rows) == 4 and all(r[0] >= least * 0.999 for r in rows), (module, stage, rows)
        assert min(r[0] for r in rows) < least * 1.5 + 0.003 + min(sum(m[3:]) for m in measured), (module, stage, rows, measured)
    rows = sql(rec.db, "SELECT min(duration) FROM torch_trace WHERE module = 'Timed.lin' GROUP BY stage")
    assert all(r[0] < 0.004 + min(sum(m[3:]) for m in said(rec.out, "timed")[0]) for r in rows), rows


def test_workers_are_processes_of_their_own(rec, sql):
    main = sql(rec.db, "SELECT pid FROM trace WHERE id = 1")[0][0]
    rows = sql(rec.db, "SELECT ppid, count(*) FROM trace WHERE id != 1 AND how = 'fork' GROUP BY ppid")
    assert [n for _, n in rows] == [2], rows
    if rows[0][0] != main:  # Python 3.14 forks them from a server, which is a child of the program
        assert sql(rec.db, "SELECT ppid FROM trace WHERE pid = ?", rows[0][0]) == [(main,)]
    rows = sql(rec.db, "SELECT count(*) FROM steps WHERE trace_id = 1 AND data > 0 AND step IN"
               " (SELECT step FROM torch_trace WHERE module = 'Loaded')")
    assert rows == [(4,)]


# ---- processes of their own ----------------------------------------------------------------------


def one(build, torch_of_its_own, tmp_path, scenes, env=None, **kw):
    done = run_scenes(torch_of_its_own[0], scenes, build, tmp_path / "one.zst", env=env, **kw)
    conftest.run_command([build.tool("probing-convert"), "--force", str(tmp_path / "one.zst"), str(tmp_path / "one.db")])
    return tmp_path / "one.db", done


def test_inference_without_an_optimizer(torch_of_its_own, build, tmp_path, sql):
    db, _ = one(build, torch_of_its_own, tmp_path, ["inference"])
    rows = sql(db, "SELECT step, forwards, source FROM steps ORDER BY step")
    assert rows == [(i, 1, "root") for i in range(7)], rows


def test_a_training_that_steps_by_hand(torch_of_its_own, build, tmp_path, sql):
    """As long as an optimizer exists, it may still step: only after 64 calls do the root module's calls count as steps."""
    for scenes, want in (["by_hand"], [(1, 1, "root")] * 80), (["unused_optimizer", "by_hand"], [(65, 65, "root")] + [(1, 1, "root")] * 15):
        db, _ = one(build, torch_of_its_own, tmp_path, scenes)
        rows = sql(db, "SELECT forwards, backwards, source FROM steps ORDER BY step")
        assert rows == want, rows


def test_off_and_rates(torch_of_its_own, build, tmp_path, sql):
    db, done = one(build, torch_of_its_own, tmp_path, ["plain", "inference"], env={"PROBING_TORCH_PROFILING": "off"})
    assert sql(db, "SELECT count(*) FROM torch_trace") == [(0,)]
    db, _ = one(build, torch_of_its_own, tmp_path, ["repeated", "accumulation", "plain"],
                env={"PROBING_TORCH_PROFILING": "rate=0.5,backward=off"})
    rows = sql(db, "SELECT step, sum(depth = 0), sum(depth > 0) FROM torch_trace WHERE stage = 'forward' GROUP BY step")
    assert len(rows) == 11 and all(r[1] for r in rows)  # root modules and steps are always recorded
    assert sum(1 for r in rows if r[2]) == 6, rows
    assert sql(db, "SELECT count(*) FROM torch_trace WHERE stage = 'backward'") == [(0,)]
    assert sql(db, "SELECT count(*) FROM steps WHERE backward > 0") == [(11,)]


def test_a_module_event_takes_few_bytes(torch_of_its_own, build, tmp_path, sql):
    """The size of the whole trace, divided by the number of its module events, must be below 12."""
    db, _ = one(build, torch_of_its_own, tmp_path, ["wide"], env={"PROBING_SAMPLE_RATE": "0"})
    events, size = sql(db, "SELECT (SELECT count(*) FROM torch_trace WHERE module IS NOT NULL), bytes FROM trace")[0]
    assert events == 2 * 40 * 501 and size / events < 12, (events, size)


def test_layer_rate(torch_of_its_own, build, tmp_path, sql):
    """A share of the modules is recorded, always the same ones, root modules always, with the same names as without a limit."""
    db, _ = one(build, torch_of_its_own, tmp_path, ["plain", "repeated"], env={"PROBING_TORCH_PROFILING": "layer_rate=0.4"})
    rows = dict(sql(db, "SELECT module, count(*) FROM torch_trace WHERE stage = 'forward' GROUP BY module"))
    everything = dict(plain_counts("Plain", 5), **{"MSELoss": 5, "Repeated": 3, "Repeated.cell": 12})
    assert rows["Plain"] == 5 and rows["Repeated"] == 3 and 3 < len(rows) < len(everything)
    assert all(everything[name] == n for name, n in rows.items()), rows


@pytest.mark.slow
@pytest.mark.limit(600)
def test_nothing_grows(torch_of_its_own, build, tmp_path):
    done = run_scenes(torch_of_its_own[0], ["soak"], build, tmp_path / "soak.zst", env={"SCENE_SECONDS": "60"})
    early, late, rounds = said(done.stdout, "soak")[0]
    assert rounds > 20 and late - early < 4096, (early, late, rounds)


@pytest.mark.parametrize("text, said_why", [("rate=2", "rate=2"), ("fast", "fast"), ("on,rates=0.1", "rates=0.1"),
                                            ("1.5", "1.5"), ("exprs=loss", "loss"), ("backward=maybe", "backward=maybe")])
def test_bad_values_are_refused(build, tmp_path, run, text, said_why):
    done = run([build.tool("probing-record"), "-o", tmp_path / "x.zst", "--torch", text, "--", "true"], check=None)
    assert done.returncode == 125 and said_why in done.stderr and "0.001 to 1" in done.stderr, done.stderr
