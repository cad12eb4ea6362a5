# SPDX-License-Identifier: Apache-2.0
"""What the views say about a recording: ends, time, recursion, which threads run and which wait."""
import json
import os
import shutil
import signal
import time

import pytest

from record_until import record_until  # noqa: F401
from test_triggers import CATCHES, HOOKED


def dict_rows(sql, db, query):
    return {row[0]: row[1:] for row in sql(db, query)}


# ---- the end of a killed process ---------------------------------------------------------------


def test_end_is_the_last_moment_of_the_process(build, record, convert, sql):
    """A worker dies long before its trace is finished: its end is not before its last record, and not after its death."""
    done = record("""
import json, os, signal, subprocess, sys, time
import probing
def samples():
    listed = subprocess.run([sys.argv[1], "list", "--json"], stdout=subprocess.PIPE).stdout
    return sum(p["samples"] for p in json.loads(listed) if p["pid"] == os.getpid())
def dies():
    probing.event("last")
    os.kill(os.getpid(), signal.SIGKILL)
pid = os.fork()
if pid == 0:
    while not probing.is_recording(): time.sleep(0.01)
    dies()
os.waitpid(pid, 0)
print(time.time(), flush=True)
before = samples()
while samples() < before + 20: time.sleep(0.05)
print(time.time(), flush=True)
dies()
""", build.tool("probing"), hz=50, check=None, env=dict(os.environ, PYTHONPATH=str(build.share / "python")))
    after = time.time()
    assert done.returncode == 128 + signal.SIGKILL
    worker, main = [float(x) for x in done.stdout.split()]  # when it was dead, and just before it died
    db = convert(done.trace)
    rows = sql(db, 'SELECT "end", duration, finished, signal, start FROM trace WHERE end_reason = \'killed\' '
                   'ORDER BY "end"')
    assert len(rows) == 2
    last = [at for at, in sql(db, "SELECT timestamp FROM events WHERE name = 'last' ORDER BY timestamp")]
    for row, event, dead in zip(rows, last, (worker, after)):
        assert event - 1e-6 <= row[0] < dead + .05 and row[2] >= row[0] and abs(row[1] - (row[0] - row[4])) < 1e-3
    assert rows[0][2] > main - .05 > rows[0][0] and rows[1][0] > main - .05, "the worker was finished when the program ended"
    # only the main process is the recorder's child: nobody told us the other one's signal
    assert [r[3] for r in rows] == [None, signal.SIGKILL]
    events = sql(db, "SELECT kind, detail, timestamp FROM triggers ORDER BY timestamp")
    assert [(e[0], e[1]) for e in events] == [("killed", "by a signal that left no record: SIGKILL (kill -9, the OOM killer), SIGSEGV of a stack overflow, one that is not watched (SIGQUIT, SIGALRM, ...), or another one as it ended"),
                                              ("killed", "by signal 9 (SIGKILL)")]
    assert [e[2] for e in events] == [r[0] for r in rows]
    # the time up to the crash is not empty
    assert sql(db, 'SELECT count(*) FROM samples s JOIN trace t ON t.id = s.trace_id '
                   'WHERE t.signal = 9 AND s.timestamp + s.seconds > ?', worker)[0][0] > 0


def test_ends_of_others_stay(record, convert, sql):
    """For a clean exit, and a death that the process itself recorded, no row says killed."""
    done = record("pass\n")
    assert sql(convert(done.trace), "SELECT finished, signal FROM trace") == [(None, None)]
    done = record(CATCHES + "import ctypes\nwait_for_agent()\nctypes.string_at(0)\n", check=None)
    db = convert(done.trace)
    assert sql(db, "SELECT kind FROM triggers") == [("fatal",)]
    assert sql(db, "SELECT signal FROM trace") == [(signal.SIGSEGV,)]


# ---- backtrace is time ------------------------------------------------------------------------


def test_backtrace_counts_time(record, convert, sql):
    """A line that sleeps has as many ticks as a busy line of the same length; a recursive function counts once in each tick."""
    done = record("""
import time
def spin(s):
    end = time.monotonic() + s
    while time.monotonic() < end:
        sum(range(100))
def deep(n):
    if n:
        return deep(n - 1)
    spin(1)
def nap():
    time.sleep(1)
def both():
    times.append(time.monotonic())
    nap()
    times.append(time.monotonic())
    deep(40)
    times.append(time.monotonic())
times = []
both()
print(*times, int(open("/proc/thread-self/schedstat").read().split()[1]) / 1e9)
""", hz=100)
    db = convert(done.trace)
    start, between, end, waited = map(float, done.stdout.split())
    # Lost ticks (on a busy machine) may be missing from either; there may be a tick more or less at both ends, since a tick comes at random
    # within its period, and one more where the tick of an end came late, when the next function was there. If it waited for a processor just
    # after the nap, while the sampler had none either, that may count as part of the nap.
    # There, a sample of a process that sleeps may stand for 0.2 s, of which a part lies before or after (LATE_MAX).
    lost, error = sql(db, "SELECT sum(lost) FROM trace")[0][0] / 100, .031 if waited < .1 else .231
    truth = {"nap": between - start, "deep": end - between, "spin": end - between, "both": end - start}
    sums = dict_rows(sql, db, "SELECT func, sum(count), sum(seconds), max(depth) FROM backtrace "
                              "WHERE frame_type = 'Python' GROUP BY func")
    for name in truth:
        assert truth[name] - lost - error < sums[name][1] < truth[name] + waited + error, (name, sums, truth, lost, waited)
        assert abs(sums[name][1] - sums[name][0] / 100) < 1e-6
    assert sum(sums[n][1] for n in ("nap", "deep")) <= sums["both"][1] + 1e-6 <= sums["<module>"][1] + 2e-6
    assert sums["deep"][2] >= 40
    # by line, too: the lines of a function add up to the function
    lines = sql(db, "SELECT sum(seconds) FROM (SELECT lineno, sum(seconds) AS seconds FROM backtrace "
                    "WHERE func = 'deep' GROUP BY lineno)")[0][0]
    assert abs(lines - sums["deep"][1]) < 1e-6
    # the three views give the same answer
    ticks = sql(db, "SELECT sum(count), sum(seconds) FROM samples WHERE stack_id IS NOT NULL")[0]
    assert sql(db, "SELECT sum(count), sum(seconds) FROM backtrace WHERE depth = 0")[0] == ticks
    hot = dict_rows(sql, db, "SELECT func, sum(total), sum(total_seconds) FROM hot_functions WHERE frame_type = 'Python' "
                               "GROUP BY func")  # an import has a <module>, too
    assert {n: (v[0], round(v[1], 6)) for n, v in sums.items()} == {n: (v[0], round(v[1], 6)) for n, v in hot.items()}
    states = dict(sql(db, "SELECT func, state FROM backtrace WHERE func IN ('nap', 'spin') GROUP BY func, state "
                          "ORDER BY sum(seconds)"))
    assert states == {"nap": "idle", "spin": "running"}


# ---- hot_functions ----------------------------------------------------------------------------


def test_what_runs_comes_first(record, convert, sql):
    """Six threads wait in a pool, and one works in native code: the working one is first, and its Python functions are named."""
    done = record("""
import concurrent.futures, threading, time
def work():
    numbers = list(range(100000, 0, -1))
    end = time.thread_time() + 1.5
    while time.thread_time() < end:
        sorted(numbers, key=float)
gate = threading.Event()
def idle():
    gate.wait()
pool = concurrent.futures.ThreadPoolExecutor(6)
jobs = [pool.submit(idle) for _ in range(6)]
work()
gate.set()
""")
    db = convert(done.trace)
    top = sql(db, "SELECT on_cpu, waiting, seconds, share FROM hot_functions LIMIT 100")
    assert [r[0] for r in top] == sorted((r[0] for r in top), reverse=True)
    assert top[0][0] > 0 and all(abs(r[0] + r[1] - r[2]) < 1e-6 for r in top)
    # the wait has most ticks of all, and comes after everything that ran
    most = sql(db, "SELECT share, cpu_share, waiting FROM hot_functions ORDER BY share DESC LIMIT 1")[0]
    assert most[0] > 0.5 and most[1] < 0.1 and most[2] > 4
    # a tick without a frame (for example without a processor while the interpreter ends) counts in the total and belongs to no function
    named, ticks = sql(db, "SELECT sum(count * (func IS NOT NULL)), sum(count) FROM samples WHERE state = 'running'")[0]
    assert abs(sql(db, "SELECT sum(cpu_share) FROM hot_functions")[0][0] - named / ticks) < 1e-6
    assert named > 150 - 2 - sql(db, "SELECT sum(lost) FROM trace")[0][0]  # work() took 1.5 s of a processor
    python = dict_rows(sql, db, "SELECT func, python_seconds, python_on_cpu, seconds, total_seconds FROM hot_functions "
                                "WHERE frame_type = 'Python'")
    assert python["work"][1] > 0.2 and python["work"][0] > python["work"][2]
    # each tick has one innermost Python function
    ticks = sql(db, "SELECT sum(count) FROM samples s WHERE EXISTS (SELECT 1 FROM backtrace b "
                    "WHERE b.sample_id = s.sample_id AND b.frame_type = 'Python')")[0][0]
    assert sql(db, "SELECT sum(python_self) FROM hot_functions") == [(ticks,)]
    assert sql(db, "SELECT count(*) FROM hot_functions WHERE frame_type = 'Native' AND python_self IS NOT NULL") == [(0,)]


# ---- the agent is not seen ----------------------------------------------------------------------


def agents(sql, db):
    """Returns what any view shows of the agent's own frames."""
    return [sql(db, "SELECT DISTINCT func FROM %s WHERE file LIKE '%%libprobing%%' OR file LIKE '%%agent/%%.c'" % view)
            for view in ("backtrace", "hot_functions", "trigger_stacks", "samples")]


def test_triggers_begin_in_the_program(record, convert, sql):
    """While the stacks are taken, the thread that caused the trigger waits in the agent's hook: its stack begins where the program was."""
    done = record(HOOKED + "def fails():\n    wait_for_agent()\n    raise ValueError(1)\nfails()\n", check=1)
    db = convert(done.trace)
    assert sql(db, "SELECT kind, stacks FROM triggers") == [("exception", 1)]
    assert agents(sql, db) == [[], [], [], []]
    funcs = [r[0] for r in sql(db, "SELECT func FROM trigger_stacks WHERE is_cause ORDER BY depth")]
    assert funcs and funcs[0] not in ("syscall", "futex_wait", "__futex_abstimed_wait_common"), funcs


@pytest.mark.pythons(torch=True, count=1)
def test_training_without_the_agent(record_until, convert, sql, python):  # noqa: F811
    """Modules, backward and the optimizer are called through functions of the agent: none of these is shown, and stacks are complete."""

    def is_whole(db):
        """Returns whether the agent's functions were on a stack, and the innermost module's code was seen inside of the program's own."""
        return (sql(db, "SELECT count(*) FROM torch_trace")[0][0] > 0 and
                sql(db, "SELECT count(*) FROM backtrace a JOIN backtrace b ON b.sample_id = a.sample_id AND b.depth > a.depth "
                        "WHERE a.func LIKE '%forward' AND a.file LIKE '%linear.py' AND b.func = '<module>'")[0][0] > 0)

    done = record_until(is_whole, """
import os, sys, torch
net = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.ReLU(), torch.nn.Linear(300, 300))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
while not os.path.exists(sys.argv[-1]):
    net(torch.randn(64, 300)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
""", hz=500, python=python)
    db = convert(done.trace)
    assert is_whole(db) and agents(sql, db) == [[], [], [], []]


# ---- names of threads ---------------------------------------------------------------------------

NAMES = """
import concurrent.futures, os, sys, _thread, threading, time
stop = threading.Event()
def waits(): stop.wait(240)
def spins():
    while not stop.is_set(): pass
class Mine(threading.Thread):
    def run(self): waits()
threads = [threading.Thread(target=waits, name="reads the queue, with a long name"), threading.Thread(target=spins, name="spins"),
           Mine(name="\\u00e4")]
for t in threads: t.start()
pool = concurrent.futures.ThreadPoolExecutor(1, "loader")
pool.submit(waits)
_thread.start_new_thread(waits, ())
time.sleep(0.5)
threads[2].name = "renamed"
print("ready", flush=True)
%s
stop.set()
"""
KNOWN = ["loader_0", "reads the queue, with a long name", "renamed", "spins"]


@pytest.mark.pythons(count=12)
def test_names_of_threads_recorded(record_until, convert, sql, python):  # noqa: F811
    """Threads have the names that threading gives them; a thread that it did not start has the kernel's name."""
    known = "SELECT count(*) FROM threads WHERE name IN ('%s')" % "', '".join(KNOWN)
    done = record_until(lambda db: sql(db, known) == [(len(KNOWN),)], NAMES % "while not os.path.exists(sys.argv[-1]): time.sleep(0.05)", python=python)
    db = convert(done.trace)
    rows = sql(db, "SELECT name, comm FROM threads ORDER BY name")
    names = [r[0] for r in rows]
    assert sorted(n for n in names if n in KNOWN) == KNOWN and "MainThread" in names and len(names) == 6
    other = [r for r in rows if r[0] not in KNOWN + ["MainThread"]]
    assert other[0][0] == other[0][1] and all(r[1] for r in rows)
    assert sql(db, "SELECT count(*) FROM backtrace WHERE thread = 'spins' AND func = 'spins'")[0][0] > 0


@pytest.mark.pythons(count=12)
def test_names_of_threads_live_and_in_a_core(build, run, spawn, python, tmp_path):
    target = spawn([python.path, "-c", NAMES % "time.sleep(600)"], ready="ready")
    names = set()
    while not names >= set(KNOWN):  # the name of a running thread may not be readable at that moment
        done = run([build.tool("probing"), "-t", target.pid, "backtrace", "--json"])
        names = {t["name"] for t in json.loads(done.stdout)["threads"]}
    if shutil.which("gcore") and python.version < (3, 14):  # the Pythons of Debian sid have a newer glibc, past whose guard pages gcore cannot read
        run(["gcore", "-o", tmp_path / "core", str(target.pid)])
        done = run([build.tool("probing"), "backtrace", "--json", "--core", tmp_path / ("core.%d" % target.pid)])
        assert {t["name"] for t in json.loads(done.stdout)["threads"]} >= set(KNOWN)


# ---- qualified names before 3.11 ------------------------------------------------------------------

QUALIFIED = """
import contextlib, functools, os, sys, time
def busy(seconds=0.05):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end: pass
class Base:
    def plain(self): busy()
    def closes(self):
        use = lambda: self
        busy(); return use
    @classmethod
    def of_class(cls): busy()
    @property
    def prop(self): busy()
    @functools.lru_cache(None)
    def cached(self): busy()
    def steps(self):
        for i in range(3): busy(0.05); yield i
    def __private(self): busy()
    def calls(self): self.__private()
    def __call__(self): busy()
    async def coroutine(self): busy()
class Mixin:
    def mixed(self): busy()
class Derived(Mixin, Base):
    def plain(self): super().plain()
    class Inner:
        def deep(self): busy()
def free(x): busy()
d = Derived()
while True:
    d.plain(); d.closes(); d.of_class(); d.prop; d.cached(); d.mixed(); d.Inner().deep(); d(); d.calls(); list(d.steps()); free(d)
    d.cached.cache_clear()
    try: d.coroutine().send(None)
    except StopIteration: pass
    if os.path.exists(sys.argv[1]): break
    if len(sys.argv) < 3: sys.argv.append("on"); print("round", flush=True)  # once: nobody reads on
"""
FULL = {"Base.plain", "Base.closes", "Base.of_class", "Base.prop", "Base.cached", "Base.steps", "Base.__private", "Base.calls",
        "Base.__call__", "Base.coroutine", "Mixin.mixed", "Derived.plain", "Derived.Inner.deep"}


@pytest.mark.pythons(max=(3, 11))
def test_qualified_names(record_until, convert, sql, python):  # noqa: F811
    """A method has the name of the class that defines it, whatever its object is; no other function's name changes."""
    def seen(db):
        return {r[0] for r in sql(db, "SELECT name FROM function WHERE type = 0 AND file LIKE '%.py' AND file NOT LIKE '%/lib/%'")}

    done = record_until(lambda db: FULL | {"busy", "free"} <= seen(db), QUALIFIED, python=python, hz=500)
    names = seen(convert(done.trace))
    assert not names & {name.split(".")[-1] for name in FULL} and names >= {"busy", "free"}


@pytest.mark.pythons(max=(3, 11), count=6)
def test_qualified_names_live(build, run, spawn, python):
    target = spawn([python.path, "-c", QUALIFIED, "on"], ready="round")
    seen = set()
    while len(seen & FULL) <= 8:
        done = run([build.tool("probing"), "-t", target.pid, "backtrace", "--stop", "--json"])
        frames = json.loads(done.stdout)["threads"][0]["frames"]
        seen |= {f["func"] for f in frames if f["type"] == "Python"}
    assert not {"plain", "deep", "mixed", "closes"} & seen, seen


def test_what_was_just_loaded_has_names(record, convert, sql):
    """The library that crashes may have been loaded a millisecond before: its frames have names all the same."""
    done = record(CATCHES + "wait_for_agent()\nimport ctypes\nctypes.string_at(0)\n", check=None)
    db = convert(done.trace)
    rows = sql(db, "SELECT func, module FROM trigger_stacks k JOIN function f ON f.name = k.func WHERE k.frame_type = 'Native'")
    assert any("_ctypes" in (m or "") for _, m in rows), rows
    assert sql(db, "SELECT func FROM trigger_stacks WHERE func LIKE '0x%'") == []
