# SPDX-License-Identifier: Apache-2.0
"""PyTorch: step N is the N-th step of the optimizer, however the training is written, and evaluation is not a step."""
import conftest
import pytest
from test_torch import before_torch2, find_torch
from torch_steps_cases import CASES, HEAD, HOOKS, OPTIMIZER


@pytest.fixture
def steps(build, tmp_path, sql):
    def run(python, script):
        trace, db = tmp_path / "t.zst", tmp_path / "t.db"
        conftest.run_command([build.tool("probing-record"), "-q", "-r", "10", "-o", trace, "--", python, "-W", "ignore", "-c", HEAD + script])
        conftest.run_command([build.tool("probing-convert"), "-q", trace, db])
        return db
    return run


QUICK = ["a_teacher_that_is_evaluated", "evaluation_of_what_a_wrapper_holds", "no_module", "in_hooks_and_after", "step_unseen",
         "generation", "forward_in_a_thread", "without_optimizer", "several_in_a_row", "evaluation_amid_accumulation",
         "evaluation_amid_accumulation_in_training_mode", "a_part_is_called_before_its_model_is_made", "a_shape_is_asked_for_in_training_mode",
         "without_optimizer_another_model_next", "without_optimizer_a_model_called_once", "without_optimizer_then_with_one"]


@pytest.mark.parametrize("kind", ["debian", pytest.param("recent", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", [pytest.param(c, marks=() if c in QUICK else pytest.mark.slow) for c in CASES])
def test_steps_are_the_optimizers(case, kind, steps, sql):
    python, why = find_torch(kind)
    if not python:
        pytest.skip(why)
    if ("compiled" in case or "exported" in case or "engine" in case) and before_torch2(python):
        pytest.skip("this PyTorch has no torch.compile, and no devices that Python makes")
    script, want = CASES[case]
    if case == "without_optimizer_at_first":
        script = script.replace("train()", OPTIMIZER + "train()")
    db = steps(python, script if case.startswith("without") else OPTIMIZER + script)
    rows = sql(db, "SELECT step, source, forwards, backwards, optimizers FROM steps ORDER BY coalesce(\"end\", 9e99)")
    got = []
    for _, source, *counts in rows:
        if not got or got[-1][0] != source:
            got.append([source, 0, 0, 0, 0])
        got[-1][1:] = [a + b for a, b in zip(got[-1][1:], [1] + counts)]
    if case == "rollouts":  # those before the first optimizer's step count as steps until it comes
        assert got[0][0] == "evaluation" and sum(g[1] for g in got if g[0] == "optimizer") == 20
        assert sum(g[2] for g in got if g[0] == "evaluation") >= 99
    else:
        assert [tuple(g) for g in got] == want
    numbers = [r[0] for r in rows if r[1] != "evaluation"]
    assert numbers == list(range(len(numbers)))
    assert all(r[0] is None for r in rows if r[1] == "evaluation")
    # what lies within a step agrees, and its parts add up to no more than the whole
    for phase, number, n in sql(db, "SELECT phase, step, count(*) FROM torch_trace WHERE module IS NOT NULL GROUP BY 1, 2"):
        assert (number is None) == (phase == "evaluation") and n > 0
    assert sql(db, "SELECT count(*) FROM steps WHERE duration < 0 OR backward < 0 OR other < -1e-6") == [(0,)]
    if case.startswith("in_hooks"):  # the rest of a pass does not belong to the next step
        assert sql(db, "SELECT count(*) FROM torch_trace f JOIN torch_trace b USING (call, module) WHERE f.stage = 'forward' AND f.step != b.step") == [(0,)]
    if "engine" in case:
        assert sql(db, "SELECT recomputed, count(*) FROM torch_trace WHERE module GLOB 'Seq*' GROUP BY 1") == [(1, 160)]
    if case == "graph_compiled":
        assert sql(db, "SELECT stage, count(*) FROM torch_trace WHERE module = 'Model' GROUP BY 1") == [("backward", 20), ("forward", 20)]
    assert sql(db, "SELECT count(*) FROM memory WHERE step >= ?", len(numbers)) == [(0,)]


def test_a_long_evaluation_is_no_hang_and_no_slow_step(steps, sql):
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    db = steps(python, OPTIMIZER + "train()\nevaluate(50, pause=0.06)\ntrain()\n")
    # No call took a second, which is the shortest hang, except for want of a processor.
    assert sql(db, "SELECT max(duration) FROM steps")[0][0] > 1 or sql(db, "SELECT kind, detail FROM triggers WHERE kind = 'hang'") == []
    inside = "SELECT count(*) FROM steps s JOIN steps e ON e.source = 'evaluation' AND s.source = 'optimizer' AND s.timestamp < e.timestamp AND e.%s < s.\"end\""
    assert sql(db, inside % "timestamp") == [(0,)]
    assert sql(db, "SELECT count(*), sum(duration) > 2.5 FROM steps WHERE source = 'evaluation'") == [(50, 1)]


THREADS = """
import threading
models = [Model() for _ in range(3)]
first, one_ended, there = threading.Event(), threading.Event(), threading.Semaphore(0)
losses = [[] for _ in models]
def one(k):
    opt = torch.optim.SGD(models[k].parameters(), 0.001)
    for i in range(200):
        opt.zero_grad(); loss = models[k](x).sum(); loss.backward()
        if not i and k: first.wait()
        opt.step(); first.set()
        losses[k].append(loss.item())
        if k and i == 120: there.release(); one_ended.wait()  # which leaves them 79 steps
        if not k and i == 150: there.acquire(); there.acquire()  # so that it does not end before they have trained beside it
torch.manual_seed(0)
for k in models:
    for p in k.parameters(): nn.init.normal_(p, 0, 0.1)
threads = [threading.Thread(target=one, args=(k,)) for k in range(3)]
for t in threads: t.start()
threads[0].join(); time.sleep(0.05); one_ended.set()
for t in threads: t.join()
print([[v.hex() for v in k] for k in losses])
"""


@pytest.mark.parametrize("kind", ["debian", pytest.param("recent", marks=pytest.mark.slow)])
def test_trainings_in_three_threads_at_once(kind, build, tmp_path, sql):
    """Only the steps of the thread that stepped first count, also after it has ended before the others."""
    python, why = find_torch(kind)
    if not python:
        pytest.skip(why)
    trace, db = tmp_path / "t.zst", tmp_path / "t.db"
    command = [python, "-W", "ignore", "-c", HEAD.replace("end = time.monotonic() + 600", "end = time.monotonic() + 600 * (len(sys.argv) > 1)") + THREADS]
    bare = conftest.run_command(command)
    done = conftest.run_command([build.tool("probing-record"), "-q", "-r", "10", "-o", trace, "--"] + command + ["recorded"])
    assert done.stdout == bare.stdout and len(eval(done.stdout)[0]) == 200
    conftest.run_command([build.tool("probing-convert"), "-q", trace, db])
    rows = sql(db, "SELECT step, source, forwards, backwards, optimizers FROM steps WHERE complete ORDER BY timestamp")
    assert rows == [(n, "optimizer", 1, 1, 1) for n in range(200)]


@pytest.mark.parametrize("late", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_trainings_in_threads_in_turn(late, steps, sql):
    """The sums of each step are those of the thread that counted it. join() returns before the thread's destructors have run, which may
    take a while."""
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    if late and conftest.run_command([python, "-c", "import sys; print(sys.version_info >= (3, 13))"]).stdout == "True\n":
        pytest.skip("from CPython 3.13 on join() waits for the destructors")
    db = steps(python, """
import threading, os, ctypes
c = ctypes.CDLL(None); wait = ctypes.cast(c.sem_wait, ctypes.c_void_p)
sem = ctypes.create_string_buffer(64); c.sem_init(sem, 0, 0)
def work():
    if LATE: c.__cxa_thread_atexit_impl(wait, sem, wait)
    m = Model(); opt = torch.optim.SGD(m.parameters(), 0.01)
    evaluate(2, m)
    for i in range(N):
        opt.zero_grad(); m(x).sum().backward(); opt.step()
for _ in range(3):
    t = threading.Thread(target=work); t.start(); tid = t.native_id; t.join()
    assert not LATE or os.path.exists("/proc/self/task/%d" % tid)
    while not LATE and os.path.exists("/proc/self/task/%d" % tid): time.sleep(0.01)
for _ in range(3): c.sem_post(sem)
""".replace("LATE", str(late)))
    rows = sql(db, "SELECT step, source, forwards, backwards, optimizers FROM steps WHERE complete ORDER BY timestamp")
    assert [r for r in rows if r[0] is not None] == [(n, "optimizer", 1, 1, 1) for n in range(60)]
    assert [r[1] for r in rows] == (["evaluation"] * 2 + ["optimizer"] * 20) * 3


NESTED = """
threads = set()
for k in kept: k.register_hook(lambda *_: threads.add(threading.get_ident()) and None)
class Nested(torch.autograd.Function):  # so deep that the engine takes a thread of its own
    @staticmethod
    def forward(ctx, v, n): ctx.n = n; return v.clone()
    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            (Nested.apply(v, ctx.n - 1) if ctx.n else m(x).sum()).backward()
        return g, None
import threading
v = torch.ones(1, requires_grad=True)
for i in range(N): Nested.apply(v, 70).backward()
assert threads and threading.get_ident() not in threads
"""


@pytest.mark.parametrize("kind", ["debian", pytest.param("recent", marks=pytest.mark.slow)])
def test_hooks_in_a_deep_pass_where_backward_is_off(kind, steps, sql, monkeypatch):
    """No nodes of autograd are seen there: that a thread of the engine runs a pass is learnt from PyTorch."""
    python, why = find_torch(kind)
    if not python:
        pytest.skip(why)
    monkeypatch.setenv("PROBING_TORCH_PROFILING", "on,backward=off")
    db = steps(python, HOOKS + "in_hooks(m.parameters())" + NESTED)
    assert sql(db, "SELECT step, source FROM steps WHERE complete ORDER BY timestamp") == [(n, "optimizer") for n in range(20)]


@pytest.mark.slow
def test_hooks_on_the_engines_thread_where_backward_is_off(steps, sql, monkeypatch):
    """No nodes of autograd are seen there: the thread on which the optimizers run is learnt from PyTorch."""
    python, why = find_torch("recent")
    if not python:
        pytest.skip(why)
    monkeypatch.setenv("PROBING_TORCH_PROFILING", "on,backward=off")
    db = steps(python, OPTIMIZER + CASES["in_hooks_on_the_engines_thread"][0])
    assert sql(db, "SELECT step, source, forwards, backwards FROM steps WHERE complete ORDER BY timestamp") == [(n, "optimizer", 1, 1) for n in range(20)]


@pytest.mark.parametrize("evaluations", [pytest.param(0, marks=pytest.mark.slow), 30])
def test_values_of_a_first_step_of_many_passes(evaluations, build, tmp_path, sql):
    """Values that were read before the first optimizer's step do not get the number of a later step, and do get one."""
    python, why = find_torch("debian")
    if not python:
        pytest.skip(why)
    script = HEAD + OPTIMIZER + """
def run():
    loss = None
    for i in range(N):
        total = sum(m(x).pow(2).sum() for _ in range(30))
        opt.zero_grad(); total.backward(); opt.step()
        loss = total; print(loss.item())
evaluate(%d)
run()
""" % evaluations
    trace, db = tmp_path / "t.zst", tmp_path / "t.db"
    done = conftest.run_command([build.tool("probing-record"), "-q", "-r", "10", "-o", trace, "--exprs", "loss@run", "--", python, "-W", "ignore", "-c",
                                 script])
    conftest.run_command([build.tool("probing-convert"), "-q", trace, db])
    losses = [float(line) for line in done.stdout.split()]
    assert len(set(losses)) == 20
    assert sql(db, "SELECT step, loss FROM training_logs ORDER BY step") == [(n, pytest.approx(loss, rel=1e-6)) for n, loss in enumerate(losses)]
    assert sql(db, "SELECT DISTINCT step FROM variables WHERE value IS NULL") == [(0,)]
    assert sql(db, "SELECT count(*), sum(forwards) FROM steps WHERE source = 'evaluation'") == [(evaluations, evaluations or None)]
