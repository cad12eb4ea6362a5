# SPDX-License-Identifier: Apache-2.0
"""The sampler tells the truth: shares of time, stacks that are possible, lines that are executing.

Programs measure themselves and print the results; the recording must agree. Tolerances allow for statistics, never for how fast this machine
is.
"""
import collections
import json
import re

import pytest


def bound(sql, db, share, late, thread=None):
    """Returns how far a measured share may differ from the true one by chance: five standard deviations (of four, one share in 16,000 is
    outside, and each run of these tests measures dozens). One look counts for its ticks, at most 8, because a sleeping thread is looked at
    every 8 ticks at least. To this come the losses that the recording reports, and the ticks that came too late (late(), below)."""
    where = "" if thread is None else "AND h.comm = '%s'" % thread
    ticks, squares = sql(db, """SELECT sum(s.count), sum(s.count * min(s.count, 8)) FROM sample s
        JOIN thread h ON h.id = (s.id >> 40 << 40) + s.thread WHERE 1 """ + where)[0]
    return 5 * (max(share * (1 - share), 0.02) * squares) ** 0.5 / ticks + sum(lost(sql, db).values()) / ticks + late


def shares(sql, db, thread=None):
    """Returns {function: share of the ticks (of one thread) in which it is anywhere on the stack}."""
    where = "" if thread is None else "AND h.comm = '%s'" % thread
    total = sql(db, "SELECT sum(count) FROM sample s JOIN thread h ON h.id = (s.id >> 40 << 40) + s.thread WHERE 1 " + where)[0][0]
    rows = sql(db, """SELECT f.name, sum(s.count) FROM sample s JOIN thread h ON h.id = (s.id >> 40 << 40) + s.thread
        JOIN stack_frame k ON k.stack = s.stack AND k.first = 1 JOIN frame r ON r.id = k.frame
        JOIN function f ON f.id = r.function WHERE f.type = 0 %s GROUP BY f.name""" % where)
    assert total
    return {name: n / total for name, n in rows}


def stacks(sql, db, which="1"):
    """Returns [(ticks, [(function, line, first line), ...])] with the Python frames of each distinct stack, outermost first; `which`
    selects the samples."""
    frames = collections.defaultdict(list)
    for stack, name, line, first in sql(db, """SELECT k.stack, f.name, r.line, f.firstline FROM stack_frame k
            JOIN frame r ON r.id = k.frame JOIN function f ON f.id = r.function
            WHERE f.type = 0 ORDER BY k.stack, k.depth DESC"""):
        frames[stack].append((name, line, first))
    return [(n, frames[stack]) for stack, n in
            sql(db, "SELECT stack, sum(count) FROM sample WHERE %s GROUP BY stack" % which)]


def lost(sql, db):
    return dict(sql(db, "SELECT reason, sum(count) FROM lost GROUP BY reason"))


def told(sql, db, done):
    """Returns what a trace without the expected samples says about itself, for the message of a failure."""
    return "\ntrace: %s\nthreads: %s\nlost: %s\nnotes: %s\nstdout: %sstderr: %s" % (
        sql(db, "SELECT command, how, python, start, \"end\", end_reason, complete, period, records, lost FROM trace"),
        sql(db, "SELECT tid, comm, samples, running FROM thread"), lost(sql, db), sql(db, "SELECT part, level, text FROM note"),
        done.stdout, done.stderr)


def said(done):
    return json.loads(done.stdout.strip().splitlines()[-1])


# ---- shares of time -----------------------------------------------------------------------------

# late() returns the share of looks, at 1 kHz, that may show what came after (or before) one of a function's calls, for so many calls in so
# many seconds: the sampler waits for its processor, too, and the kernel says for how long.
LATE = """
def late(calls, seconds):
    import glob
    for path in glob.glob("/proc/self/task/*/comm"):
        if open(path).read() == "probing-smp\\n":
            waited = int(open(path[:-4] + "schedstat").read().split()[1]) / 1e9
            return 2 * calls / seconds * waited / seconds * 0.001
    return 0
"""

SHARES = LATE + """
import json, random, sys, threading, time
clock = time.perf_counter
spent, calls = {}, {}

def work(until):
    x = 0
    while clock() < until:
        for i in range(50):
            x += i * i
    return x

def thirty(t):
    work(clock() + t)

def seventy(t):
    work(clock() + t)

def napping(t):
    time.sleep(t)

def measure(f, t):
    a = clock()
    f(t)
    spent[f.__name__] = spent.get(f.__name__, 0) + clock() - a
    calls[f.__name__] = calls.get(f.__name__, 0) + 1

def main(end):
    r = random.Random(1)
    while clock() < end:
        measure(thirty, 0.003 * r.uniform(0.5, 1.5))
        measure(seventy, 0.007 * r.uniform(0.5, 1.5))
        if "nap" in sys.argv:
            measure(napping, 0.010 * r.uniform(0.5, 1.5))

begin = clock()
main(begin + float(sys.argv[1]))
took = clock() - begin
print(json.dumps({k: (v / took, late(calls[k], took)) for k, v in spent.items()}))
"""


def check_shares(sql, db, truth):
    total = sum(share for share, _ in truth.values())
    got = shares(sql, db)
    whole = sum(got.get(name, 0) for name in truth)
    for name, (share, late) in truth.items():
        share /= total
        assert abs(got.get(name, 0) / whole - share) < bound(sql, db, share, late / total), (name, truth, got, lost(sql, db))


@pytest.mark.pythons(min=(3, 11), max=(3, 13))
@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
def test_two_functions(record, convert, sql, python, native):
    done = record(SHARES, 4, hz=1000, python=python, options=[] if native else ["--no-native"])
    check_shares(sql, convert(done.trace), said(done))


IN_STEP = LATE + """
import json, sys, time
clock = time.perf_counter
def early(until):
    while clock() < until:
        pass
def later(until):
    while clock() < until:
        pass
begin = clock()
for n in range(int(float(sys.argv[1]) * 100)):
    early(begin + n * 0.01 + 0.005)
    later(begin + n * 0.01 + 0.01)
took = clock() - begin
print(json.dumps({"early": (0.5, late(n, took)), "later": (0.5, late(n, took))}))
"""


def test_in_step(record, convert, sql):
    """Each round takes exactly one period: ticks at exact intervals would all be in the same half of it."""
    done = record(IN_STEP, 6, hz=100)
    check_shares(sql, convert(done.trace), said(done))


def test_sleep_and_spin(record, convert, sql):
    done = record(SHARES, 6, "nap", hz=1000)
    db = convert(done.trace)
    check_shares(sql, db, said(done))
    states = dict(sql(db, "SELECT state, sum(count) FROM samples WHERE stack_id IN (SELECT stack FROM stack_frame k"
                          " JOIN frame r ON r.id = k.frame JOIN function f ON f.id = r.function"
                          " WHERE f.name = 'napping') GROUP BY 1"))
    assert states["idle"] > states.get("running", 0)  # running: awake again, and waiting for a CPU


@pytest.mark.slow
@pytest.mark.parametrize("how", ["spin", "nap"])
def test_shares_over_30_s(record, convert, sql, python, how):
    done = record(SHARES, 30, how, hz=1000, python=python, timeout=240)
    check_shares(sql, convert(done.trace), said(done))


THREADS = LATE + """
import json, sys, threading, time, hashlib
clock = time.perf_counter
shares = {}

def native(data):
    return hashlib.sha256(data).digest()  # releases the GIL

def sleeping(t):
    time.sleep(t)

def begins(name, part):
    with open("/proc/self/task/%d/comm" % tid(), "w") as f: f.write(name)
    busy(name, part, b"x" * 1000000)

def busy(name, part, data):  # about `part` of the time in native(), the rest in sleeping(); how much it was, is measured
    begin, slept, naps = clock(), 0.0, 0
    end = begin + float(sys.argv[1])
    while clock() < end:
        a = clock()
        while part and clock() - a < 0.02 * part:
            native(data)
        if part < 1:
            b = clock()
            sleeping(0.02 * (1 - part))
            slept += clock() - b
            naps += 1
    took = clock() - begin
    shares[name] = slept / took, late(naps, took)

def tid():
    import ctypes
    return ctypes.CDLL(None).syscall(186)

ts = [threading.Thread(target=begins, args=("part%d" % (100 * p), p)) for p in (0, 0.25, 0.5)]
for t in ts: t.start()
for t in ts: t.join()
print(json.dumps(shares))
"""


@pytest.mark.pythons(count=3)
def test_threads(record, convert, sql, python):
    threads(record, convert, sql, python, 5)


@pytest.mark.slow
@pytest.mark.pythons(count=3)
def test_threads_over_40_s(record, convert, sql, python):
    threads(record, convert, sql, python, 40)


def threads(record, convert, sql, python, seconds):
    done = record(THREADS, seconds, hz=1000, python=python)
    db = convert(done.trace)
    for name, (share, late) in said(done).items():
        got = shares(sql, db, name)
        whole = got["busy"]  # without the thread's start and end
        assert abs(got.get("sleeping", 0) / whole - share) < bound(sql, db, share, late, name), (name, share, late, got, lost(sql, db))
        if name != "part0":
            assert got["native"] / whole > 0.8 * (1 - share), (name, share, got)


# ---- stacks that cannot be ------------------------------------------------------------------------

ADVERSARY = """
import signal, sys, threading, time
N = 9
for chain in "ab":
    lines = []
    for i in range(N):
        call = "%s%d(x)" % (chain, i + 1) if i < N - 1 else "x + 1"
        lines.append("def %s%d(x):\\n    y = x\\n    y = %s\\n    return y" % (chain, i, call))
    exec(compile("\\n".join(lines), chain + ".py", "exec"))

def both(end):
    while time.time() < end:
        for i in range(100):
            a0(1)
            b0(1)

end = time.time() + float(sys.argv[1])
sys.setswitchinterval(0.0005)
if sys.argv[3:]: # for the threads, too
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
ts = [threading.Thread(target=both, args=(end,)) for i in range(int(sys.argv[2]))]
for t in ts: t.start()
both(end)
for t in ts: t.join()
"""


def check_chains(sql, db, which="1"):
    """Returns how many samples there are, and the stacks that mix the chains, leave a link out, or have a caller that is not at the line of
    its call."""
    seen, wrong = 0, []
    for n, frames in stacks(sql, db, which):
        chain = [f for f in frames if re.match(r"[ab]\d$", f[0])]
        if not chain:
            continue
        seen += n
        names = [f[0] for f in chain]
        caller = frames[frames.index(chain[0]) - 1]
        if not (names == ["%s%d" % (names[0][0], i) for i in range(len(names))]
                and caller[0] == "both" and caller[1] - caller[2] == {"a": 3, "b": 4}[names[0][0]]
                and all(line == first + 2 for name, line, first in chain[:-1])):
            wrong += [frames] * n
    return seen, wrong


# Samples of a thread that ran but was read from outside. When the sampler looked, the thread's signals were blocked, by itself or by our
# handler (in which it had lost its CPU), and then no signal is sent to it for some ticks.
READ_WHILE_IT_RAN = "(flags & 5 = 5)"


def check_chains_by_handler(sql, db):
    """Stacks that the threads recorded themselves, and stacks that were read while they slept, are never wrong; for the others see the test
    below."""
    outside, mixed = check_chains(sql, db, READ_WHILE_IT_RAN)
    assert len(mixed) <= 1 + lost(sql, db).get("missed_tick", 0) + 0.02 * outside, (outside, mixed, lost(sql, db))
    return check_chains(sql, db, "NOT " + READ_WHILE_IT_RAN)


@pytest.mark.parametrize("native", [pytest.param(True, id="native"), pytest.param(False, id="python", marks=pytest.mark.slow)])
def test_chains_never_mix(record, convert, sql, python, native):
    if not native and python.version[:2] not in ((3, 8), (3, 11), (3, 13)):
        pytest.skip("the versions between differ in nothing that this shows")
    done = record(ADVERSARY, 3, 5, hz=1000, python=python, options=[] if native else ["--no-native"])
    db = convert(done.trace)
    seen, wrong = check_chains_by_handler(sql, db)
    gone = lost(sql, db)
    assert seen + gone.get("missed_tick", 0) > 3000 and seen > 10 and not wrong, "%s %s%s" % (seen, wrong, told(sql, db, done))
    assert gone.get("torn", 0) <= 10 + 0.01 * seen, (seen, gone)  # as often as a thread is at one of the few instructions that link a frame


@pytest.mark.pythons(first=True)
def test_chains_read_while_they_run_never_mix(record, convert, sql, python):
    """The same in threads that block all signals: their stacks are read from outside while they run, and have few frames or all."""
    db = convert(record(ADVERSARY, 3, 5, "blocked", hz=1000, python=python).trace)
    seen, wrong = check_chains(sql, db)
    gone = lost(sql, db)
    # A chain lasts as long as reading it does, and the reader may lose its CPU meanwhile; then mostly a tick is missed.
    assert len(wrong) <= gone.get("missed_tick", 0) + 0.005 * seen, (seen, wrong, gone)
    # In both() all signals are blocked, so no sample there comes from the handler; a slow machine may spend any time before it.
    ran, outside = sql(db, "SELECT sum(count), sum(outside * count) FROM samples WHERE state = 'running' AND stack_id IN (SELECT k.stack"
                           " FROM stack_frame k JOIN frame r ON r.id = k.frame JOIN function f ON f.id = r.function WHERE f.name = 'both')")[0]
    assert ran + gone.get("missed_tick", 0) > 1000 and outside == ran > 10 + gone.get("torn", 0), (ran, outside, gone)
    assert not sql(db, "SELECT count(*) FROM samples WHERE state = 'running' AND outside AND frame_type = 'Native'")[0][0]


@pytest.mark.slow
@pytest.mark.pythons(min=(3, 8))
def test_chains_never_mix_in_a_million_samples(record, convert, sql, python):
    done = record(ADVERSARY, 40, 30, hz=1000, python=python, timeout=300)
    seen, wrong = check_chains_by_handler(sql, convert(done.trace))
    assert seen > 500000 and not wrong, (seen, wrong)


# ---- programs that do strange things ------------------------------------------------------------

STRANGE = {
    "generators": """
import time
def gen(n):
    if n: yield from gen(n - 1)
    else:
        for i in range(100): yield i
def go(end):
    x = 0
    while time.time() < end:
        for i in gen(20): x += i
    return "fine"
""",
    "async": """
import asyncio, time
async def leaf(i):
    await asyncio.sleep(0)
    return i
async def middle(i):
    return await leaf(i) + sum([x async for x in agen()])
async def agen():
    for i in range(3):
        yield i
        await asyncio.sleep(0)
async def top(end):
    while time.time() < end:
        await asyncio.gather(*[middle(i) for i in range(20)])
def go(end):
    asyncio.new_event_loop().run_until_complete(top(end))
    return "fine"
""",
    "exceptions": """
import time
def deep(n):
    try:
        if n: return deep(n - 1)
        raise ValueError(n)
    except ValueError as e:
        raise KeyError(n) from e
    finally:
        n += 1
def go(end):
    x = 0
    while time.time() < end:
        try: deep(15)
        except KeyError: x += 1
    assert x
    return "fine"
""",
    "thread storm": """
import threading, time
def short(l):
    with l: pass
    sum(range(100))
def go(end):
    l = threading.Lock()
    n = 0
    while time.time() < end or n < 100:
        ts = [threading.Thread(target=short, args=(l,)) for i in range(20)]
        for t in ts: t.start()
        for t in ts: t.join()
        n += len(ts)
    return "fine"
""",
    "deep recursion": """
import time
def down(n):
    return down(n - 1) if n else sum(range(100000))
def go(end):
    while time.time() < end: down(900)
    try:
        def forever(): forever()
        forever()
    except RecursionError:
        return "fine"
""",
    "code that comes and goes": """
import time, gc
def go(end):
    n = 0
    while time.time() < end:
        space = {}
        exec(compile("def f%d(x):\\n%s    return sum(range(x))\\nf%d(50)" % (n % 97, "\\n" * (n % 13), n % 97),
                     "made%d.py" % (n % 7), "exec"), space)
        n += 1
        if n % 500 == 0: gc.collect()
    return "fine"
""",
    "callbacks from C": """
import functools, time
def key(x): return -x
def go(end):
    while time.time() < end:
        sorted(range(100), key=key)
        functools.reduce(lambda a, b: a + b, map(lambda x: x * 2, range(50)))
    return "fine"
""",
    "memory comes and goes": """
import mmap, time
def go(end):
    while time.time() < end:
        m = mmap.mmap(-1, 1 << 20); m[0] = 1; m.close()
        b = bytearray(1 << 22); del b
        d = {i: [i] * 10 for i in range(1000)}
    return "fine"
""",
    "fork": """
import os, time
def go(end):
    n = 0
    while time.time() < end and n < 30:
        pid = os.fork()
        if pid == 0:
            x = sum(range(10000))
            os._exit(7)
        assert os.waitpid(pid, 0)[1] == 7 << 8
        n += 1
    quiet = time.time() + 0.2
    while time.time() < quiet:
        sum(range(10000))
    return "fine"
""",
}
MAIN = """
if __name__ == "__main__":
    import sys, time
    print("result:", go(time.time() + float(sys.argv[1])))
"""


@pytest.mark.parametrize("name", sorted(STRANGE))
@pytest.mark.pythons(min=(3, 8))
def test_strange_programs_are_not_disturbed(record, convert, sql, python, name):
    if python.version[:2] not in ((3, 8), (3, 11), (3, 12), (3, 13)) or python.version[:2] == (3, 11) and not python.shared:
        pytest.skip("in test-all")
    strange(record, convert, sql, python, name, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(STRANGE))
def test_strange_programs_for_long(record, convert, sql, python, name):
    strange(record, convert, sql, python, name, 6)


def strange(record, convert, sql, python, name, seconds):
    done = record(STRANGE[name] + MAIN, seconds, hz=1000, python=python)
    assert done.stdout == "result: fine\n"
    db = convert(done.trace, options=["--alone"])
    for n, frames in stacks(sql, db):
        names = [f[0] for f in frames]
        if "go" in names:
            assert names[names.index("go") - 1] == "<module>", names
    counts = lost(sql, db)
    assert not counts.get("unresolved") and not counts.get("damaged"), counts
    assert sql(db, "SELECT sum(count) FROM sample")[0][0] + counts.get("missed_tick", 0) > 30
    assert not sql(db, "SELECT * FROM note WHERE level > 1")


def test_deep_recursion_is_whole(record, convert, sql, python):
    """900 Python frames, none of which is left out."""
    done = record(STRANGE["deep recursion"] + MAIN, 1, hz=1000, python=python)
    deepest = max(sum(1 for f in frames if f[0] == "down") for n, frames in stacks(sql, convert(done.trace)))
    assert deepest == 901


# ---- a thread that blocks every signal --------------------------------------------------------

DEAF = """
import signal, socket, threading, time
slept, naps, waited = 0.0, 0, 0.0
def deaf(end):
    global slept, naps, waited
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    a, b = socket.socketpair()
    a.settimeout(0.2)
    while time.time() < end:
        sum(range(1000000))
        since = time.time()
        try:
            a.recv(1)
        except socket.timeout:
            slept += time.time() - since
            naps += 1
    waited = int(open("/proc/thread-self/schedstat").read().split()[1]) / 1e9  # for a CPU
def go(end):
    t = threading.Thread(target=deaf, args=(end,))
    t.start()
    t.join()
    return "%d %f %f" % (naps, slept, waited)
"""


@pytest.mark.pythons(min=(3, 8))
def test_a_thread_that_blocks_all_signals_is_seen_asleep(record, convert, sql, python):
    """Like multiprocessing's resource sharer in each DataLoader worker. At work it is seen, too: from outside, so without native frames."""
    done = record(DEAF + MAIN, 2, hz=1000, python=python)
    naps, slept, waited = done.stdout.split("result: ")[1].split()
    db = convert(done.trace)
    # The kernel wakes it after 0.2 s, and it notes the time when it has a CPU. Its ticks asleep lie between these two, except for ticks at
    # which it was not looked at, and for those at the end of a nap: one look at a sleeping process stands for up to 8 ms (backoff.h), and where
    # the sampler had no CPU in time, for eight times its delay (plan() in sampler.c). Waiting for a CPU just before a nap may count as part of the nap.
    asleep = sql(db, "SELECT sum(count) FROM backtrace WHERE state = 'idle' AND func = 'deaf'")[0][0]
    missed, ends = sum(lost(sql, db).get(why, 0) for why in ("missed_tick", "unanswered")), 50 * int(naps)
    assert 200 * int(naps) - missed - ends < asleep < 1000 * (float(slept) + float(waited)) + ends, (asleep, naps, slept, waited, lost(sql, db))
    busy = sql(db, "SELECT frame_type, min(outside), sum(count) FROM samples WHERE state = 'running' AND func = 'deaf' GROUP BY 1")
    assert [row[:2] for row in busy] == [("Python", 1)] and busy[0][2] > 0, (busy, lost(sql, db))


# ---- every interpreter: the parts agree -------------------------------------------------------

MERGED = """
import sys, time
def inner(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(20000))
def middle(x):
    inner(x)
def outer(seconds):
    list(map(middle, [seconds]))
    time.sleep(0.5)
outer(float(sys.argv[1]))
"""


ONE_PROCESSOR = """
import os
for tid in os.listdir("/proc/self/task"):
    os.sched_setaffinity(int(tid), {min(os.sched_getaffinity(0))})
"""


def test_a_thread_that_shares_its_processor_with_the_sampler(record, convert, sql):
    """At each tick it waits for the processor that the sampler uses: it gets a signal all the same, so it has native frames."""
    db = convert(record(ONE_PROCESSOR + MERGED, 1, hz=1000).trace)
    counts = dict(sql(db, "SELECT outside, sum(count) FROM samples WHERE state = 'running' GROUP BY 1"))
    assert counts.get(0, 0) > 4 * counts.get(1, 0), (counts, lost(sql, db))


def test_python_and_native_frames_interleave(record, convert, sql, python):
    done = record(MERGED, 1, hz=1000, python=python)
    db = convert(done.trace)
    good = spinning = outside = asleep = 0
    for stack, n, flags in sql(db, "SELECT stack, sum(count), flags FROM sample GROUP BY stack, flags"):
        frames = sql(db, """SELECT f.name, f.type FROM stack_frame k JOIN frame r ON r.id = k.frame
            JOIN function f ON f.id = r.function WHERE k.stack = ? ORDER BY k.depth DESC""", stack)
        names = [f[0] for f in frames]
        if "inner" in names and flags & 4:
            outside += n  # it did not run in time to answer: Python frames alone, and marked
        elif "inner" in names:
            spinning += n
            # main's C frames, outer, map's C frames, middle and inner, in this order
            order = [names.index(x) for x in ("outer", "middle", "inner")]
            between = frames[order[0] + 1:order[1]]
            if order == sorted(order) and frames[0][1] == 1 and any(t == 1 for _, t in between):
                good += n
        elif "outer" in names and flags & 4:
            # it sleeps in C code: nothing woke it, and its native frames are there all the same
            if frames[-1][1] == 1 and re.search("sleep|select", " ".join(names[names.index("outer"):])):
                asleep += n
    missed = lost(sql, db).get("missed_tick", 0)
    assert spinning + outside + missed > 300 and good >= 0.95 * spinning > 0, (good, spinning, outside, missed)
    assert asleep + missed > 300 and asleep > 0, (asleep, missed)
    lines = {line for n, fs in stacks(sql, db) for name, line, first in fs if name == "outer"}
    assert lines == {10, 11}
