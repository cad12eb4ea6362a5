# SPDX-License-Identifier: Apache-2.0
"""While the whole process sleeps, one look stands for several ticks: fewer wake-ups, and the same truth."""
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from conftest import PYTHONS, thread_names
from test_console import wait_until
from test_sampler import LATE, bound, lost, shares

# Works and sleeps at fixed times, as a DataLoader's worker does: a sampler that looked at fixed times after it found the process asleep
# would always find it asleep.
BURSTS = LATE + """
import json, sys, time
clock = time.perf_counter
spent = {}

def spin(until):
    while clock() < until:
        for i in range(30):
            i * i

def short(t):
    spin(clock() + t)

def long(t):
    spin(clock() + t)

def rest(until):
    time.sleep(max(0, until - clock()))

def measure(f, x):
    a = clock()
    f(x)
    spent[f.__name__] = spent.get(f.__name__, 0) + clock() - a

begin = at = clock()
rounds = 0
while at < begin + float(sys.argv[1]):
    rounds += 1
    measure(short, 0.002)
    measure(long, 0.004)
    at += 0.030
    measure(rest, at)
took = clock() - begin
print(json.dumps({k: (v / took, late(rounds, took)) for k, v in spent.items()}))
"""


def test_bursts_by_the_clock(record, convert, sql):
    done = record(BURSTS, 12, hz=1000)
    check_bursts(sql, convert(done.trace), done, lambda got: 1)


def check_bursts(sql, db, done, whole):
    truth = json.loads(done.stdout.strip().splitlines()[-1])
    got = shares(sql, db)
    for name, (share, late) in truth.items():
        assert abs(got[name] / whole(got) - share) < bound(sql, db, share, late) / whole(got), (name, truth, got, lost(sql, db))


ASLEEP = """
import glob, json, time

def wakes():
    for path in glob.glob("/proc/self/task/*/comm"):
        if open(path).read().strip() == "probing-smp":
            status = open(path.replace("comm", "status")).read()
            return int(status.split("\\nvoluntary_ctxt_switches:")[1].split()[0])

while not wakes():  # until there is a sampler, and then until it has seen us asleep
    time.sleep(0.01)
time.sleep(0.5)
first, begin = wakes(), time.perf_counter()
time.sleep(3)
print(json.dumps({"ticks": (time.perf_counter() - begin) * 1000, "wakes": wakes() - first}))
"""


def test_who_sleeps_is_looked_at_less_often(record, convert, sql):
    done = record(ASLEEP, hz=1000)
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    assert 0 < seen["wakes"] < seen["ticks"] / 3
    # No tick is missing or there twice: between the first sample and the end of the last one, each tick is in the trace or counted as lost.
    # Losses before and after that are counted, too: on a busy machine the sampler's first tick comes late.
    db = convert(done.trace)
    ticks, span = sql(db, """SELECT sum(s.count), (max(s.ts + s.count * t.period_ns) - min(s.ts)) / t.period_ns
        FROM sample s, trace_file t""")[0]
    gone = lost(sql, db)
    assert ticks <= 1.02 * span and ticks + sum(gone.values()) >= 0.98 * span, (ticks, span, gone, seen)


IN_TURN = """
import json, time
ends = []
for n in range(4):
    exec("def turn%d():\\n    time.sleep(0.13)" % n)
for i in range(80):
    globals()["turn%d" % (i % 4)]()
    ends.append(time.time())
print(json.dumps(ends))
"""


def test_no_sample_is_later_than_its_look(record, convert, sql):
    """A look lies anywhere in its tick, and a sleeping thread's sample has its time, not that of the tick's end, when the thread may be elsewhere."""
    done = record(IN_TURN, hz=10)
    ends = json.loads(done.stdout.strip().splitlines()[-1])
    seen = sql(convert(done.trace), """SELECT CAST(substr(f.name, 5) AS INTEGER), s.ts / 1e9 FROM sample s JOIN stack_frame k ON k.stack = s.stack AND k.first = 1
        JOIN frame r ON r.id = k.frame JOIN function f ON f.id = r.function WHERE f.name LIKE 'turn%'""")
    assert len(seen) > 20
    clocks = 0.005 # how far the trace's time of day may be off
    late = []
    for turn, ts in seen:  # earlier than its function it may be: the sampler may get its CPU late
        of_then = next((n for n, end in enumerate(ends) if ts - clocks < end), len(ends)) % 4
        late += [(turn, ts)] if of_then == (turn + 1) % 4 else []
    assert not late, (late, ends)


AWAKE = """
import threading, time

def awake():
    while True:
        time.sleep(0.0005)

threading.Thread(target=awake, daemon=True).start()
"""


def test_a_thread_by_the_clock_beside_one_that_is_awake(record, convert, sql):
    """The process does not sleep, but one of its threads does, and is read less often."""
    done = record(AWAKE + BURSTS, 12, hz=1000)
    check_bursts(sql, convert(done.trace), done, lambda got: got["<module>"])


def sampler_of(pid):
    """The sampler thread's directory in /proc, as soon as the thread has its name."""
    found = []

    def find():
        found[:] = [tid for tid, name in thread_names(pid).items() if name == "probing-smp"]
        return found

    wait_until(find)
    return "/proc/%d/task/%d" % (pid, found[0])


PTRACE_CONT, PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 7, 0x4206, 0x4207, 0x40000000

SLEEPER = """
import sys, time
print("ready", flush=True)
while True:
    time.sleep(1000) if sys.argv[1] == "asleep" else sum(range(1000))
"""


@pytest.mark.parametrize("what", ["asleep", "awake"])
def test_who_is_late_while_all_sleep_comes_less_often(build, spawn, tmp_path, what):
    """A hundred sleeping processes had a tenth of a CPU between them: each sampler, late at every tick, came at the next tick again, and by
    their priority all of them together left nothing to the process that was starting more of them."""
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    recorder = spawn([build.tool("probing-record"), "-r", 1000, "-o", tmp_path / "t.zst", "--", PYTHONS[0].path, tmp_path / "sleeper.py", what],
                     ready="ready")
    pid = int(subprocess.run(["pgrep", "-P", str(recorder.pid)], stdout=subprocess.PIPE, check=True).stdout)
    sampler = sampler_of(pid)

    def number(name):
        with open(sampler + "/status") as f:
            return int(re.search(r"\n%s:\t(\d+)" % name, f.read()).group(1))

    def nice():
        return os.getpriority(os.PRIO_PROCESS, int(os.path.basename(sampler)))

    wait_until(lambda: number("voluntary_ctxt_switches") > 200)
    ptrace, tid, at_first, waits, due, rounds = ctypes.CDLL(None).ptrace, int(os.path.basename(sampler)), nice(), 0, 0, 100
    if ptrace(PTRACE_SEIZE, tid, None, None):
        pytest.skip("no ptrace here")
    for _ in range(rounds):
        assert ptrace(PTRACE_INTERRUPT, tid, None, None) == 0 and os.waitpid(tid, WALL)[0] == tid
        time.sleep(0.03)  # makes it late by 30 ticks
        before, begin = number("voluntary_ctxt_switches"), time.monotonic()
        assert ptrace(PTRACE_CONT, tid, None, None) == 0
        time.sleep(0.02)
        waits += number("voluntary_ctxt_switches") - before
        due += 3 + 1000 * max(0, time.monotonic() - begin - 0.2)  # this test itself may have no processor for longer than a late sampler stays away
    if what == "awake":
        wait_until(lambda: nice() <= at_first)
        return
    # A fifth of a second is 200 ticks. On the way back to one in 8 ms it was six or more in each round.
    assert waits < due, (waits, due)
    assert nice() == 0


MANY = """
import os, sys, threading
stop = threading.Event()
threads = [threading.Thread(target=stop.wait) for i in range(40)]
for t in threads:
    t.start()
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    for i in range(1000):
        i * i
stop.set()
for t in threads:
    t.join()
"""


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_idle_threads_are_asked_less_often(build, spawn, convert, sql, tmp_path):
    trace = tmp_path / "many.zst"
    (tmp_path / "many.py").write_text(MANY)
    recorder = spawn([build.tool("probing-record"), "-r", 1000, "-o", trace, "--", PYTHONS[0].path, tmp_path / "many.py", tmp_path / "end"],
                     ready="ready")
    pid = int(subprocess.run(["pgrep", "-P", str(recorder.pid)], stdout=subprocess.PIPE, check=True).stdout)
    sampler = sampler_of(pid)

    def number(name):
        """Of the sampler's /proc/TID/status; how often it has waited tells its ticks."""
        with open(sampler + "/status") as f:
            return int(re.search(r"\n%s:\t(\d+)" % name, f.read()).group(1))

    wait_until(lambda: number("voluntary_ctxt_switches") > 1000)  # every thread is known, and was seen asleep
    with open(tmp_path / "strace", "w") as out:
        tracer = subprocess.Popen(["strace", "-c", "-p", os.path.basename(sampler)], stdout=subprocess.DEVNULL, stderr=out)
        wait_until(lambda: number("TracerPid"))
        begin, before = time.monotonic(), number("voluntary_ctxt_switches")
        wait_until(lambda: number("voluntary_ctxt_switches") > before + 20000)  # each system call that strace counts has come twice or more
        tracer.send_signal(signal.SIGINT)
        tracer.wait(240)
        traced = 1000 * (time.monotonic() - begin)
    calls = {words[-1]: int(words[3]) for words in map(str.split, (tmp_path / "strace").read_text().splitlines())
             if len(words) >= 5 and words[3].isdigit()}
    (tmp_path / "end").touch()
    assert recorder.wait(240) == 0
    # 40 threads that sleep are each looked at once in 8 ms, which makes 5 a tick, and more if strace makes ticks late (a few at once); the
    # thread that works takes two a tick. If every thread were looked at in every tick, it would be 42.
    asked, late = calls["clock_gettime"] / calls["futex"], traced / calls["futex"]
    assert 2 < asked and (asked < 4 + 40 * 1.5 * late / 8 or late > 5), (calls, late)  # on a busy machine each thread is due at each late tick
    # Each of them is in every second of the trace, with a sample for each tick that was not lost.
    db = convert(trace)
    counts = sql(db, """SELECT h.tid, sum(s.count) * t.period_ns / 1e9, (max(s.ts + s.count * t.period_ns) - min(s.ts)) / 1e9
        FROM sample s JOIN thread h ON h.id = (s.id >> 40 << 40) + s.thread JOIN trace_file t GROUP BY 1""")
    assert len(counts) == 41
    lost = sql(db, "SELECT coalesce(sum(count), 0) * 0.001 FROM lost")[0][0]
    for tid, seconds, span in counts:
        assert 1 < span and span - lost - 0.05 <= seconds <= span + 0.05, (tid, seconds, span, lost)


HELD_UP = """
print("ready", flush=True)
while True:
    for i in range(1000):
        i * i
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="needs Linux's idle policy")
def test_who_waits_for_a_cpu_is_looked_at_less_often(build, spawn, convert, sql, tmp_path):
    """Hundreds of recorded processes that wait for two CPUs: a thousand wake-ups a second for each took longer than their work."""
    trace = tmp_path / "held.zst"
    (tmp_path / "held.py").write_text(HELD_UP)
    recorder = spawn([build.tool("probing-record"), "-r", 1000, "-o", trace, "--", PYTHONS[0].path, tmp_path / "held.py"], ready="ready")
    pid = int(subprocess.run(["pgrep", "-P", str(recorder.pid)], stdout=subprocess.PIPE, check=True).stdout)
    sampler = sampler_of(pid)

    def wakes():
        with open(sampler + "/status") as f:
            return int(re.search(r"\nvoluntary_ctxt_switches:\t(\d+)", f.read()).group(1))

    def ran():
        with open("/proc/%d/task/%d/schedstat" % (pid, pid)) as f:
            return int(f.read().split()[0]) / 1e6

    busy = []
    try:
        cpu = {min(os.sched_getaffinity(0))}
        for i in range(3):
            busy.append(subprocess.Popen(["sh", "-c", "while :; do :; done"]))
            os.sched_setaffinity(busy[-1].pid, cpu)
        os.sched_setaffinity(pid, cpu)  # the main thread's alone
        seen = []
        for i in range(16):  # each wait for a CPU begins at another point: before or after the thread has got the signal, or in its handler
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
            time.sleep(0.03)
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
            time.sleep(0.1)
            begin, before, worked = time.monotonic(), wakes(), ran()
            time.sleep(0.2)
            seen.append((wakes() - before, ran() - worked, (time.monotonic() - begin) * 1000))
    finally:
        for b in busy:
            b.kill()
            b.wait()
        os.kill(pid, signal.SIGKILL)
    recorder.wait(240)
    # Twice in each tick in which it ran, and for the others once in 8 ticks (it was once a tick and more).
    assert all(0 < woken < 2 * worked + (took - worked) / 4 for woken, worked, took in seen), seen
    # No tick is missing or there twice, as above.
    db = convert(trace)
    ticks, span = sql(db, """SELECT sum(s.count), (max(s.ts + s.count * t.period_ns) - min(s.ts)) / t.period_ns
        FROM sample s, trace_file t""")[0]
    gone = lost(sql, db)
    assert ticks <= 1.02 * span and ticks + sum(gone.values()) >= 0.98 * span, (ticks, span, gone)
