# SPDX-License-Identifier: Apache-2.0
"""The sampler and the target's signals: sleeping threads are not woken, and the target's own signals work."""
import pathlib
import re
import signal
import subprocess
import time

import pytest

from conftest import thread_names
from record_until import record_until

FIXTURES = (record_until,)  # tests ask for them by name

BLOCKED = """
import ctypes, os, select, socket, sys, threading, time
libc = ctypes.CDLL(None)
pairs = [socket.socketpair() for i in range(4)]
lock = threading.Lock(); lock.acquire()
read, write = os.pipe()
condition = threading.Condition()
def waiting():
    with condition: condition.wait(240)
jobs = [
    lambda: time.sleep(60),
    lambda: libc.sleep(60),
    lambda: libc.usleep(60000000),
    lambda: select.select([pairs[0][0]], [], [], 60),
    lambda: lock.acquire(timeout=240),
    lambda: pairs[1][0].recv(1),
    lambda: os.read(read, 1),
    waiting,
    lambda: libc.poll(None, 0, 60000),
]
for job in jobs:
    threading.Thread(target=job, daemon=True).start()
print("blocked", flush=True)
time.sleep(60)
"""


def woken(pid):
    """Returns how often each of the program's own threads has given up a CPU; for a thread that sleeps on, this does not change."""
    counts = {}
    for tid, name in thread_names(pid).items():
        if not name.startswith("probing"):
            status = pathlib.Path("/proc/%d/task/%d/status" % (pid, tid)).read_text()
            counts[tid] = re.findall(r"ctxt_switches:\t(\d+)", status)
    return counts


@pytest.mark.pythons(count=1)
def test_sleeping_threads_are_never_woken(build, spawn, tmp_path, python):
    script = tmp_path / "blocked.py"
    script.write_text(BLOCKED)
    process = spawn([build.tool("probing-record"), "-r", 1000, "-o", tmp_path / "t.zst", "--", python.path, script], ready="blocked")
    pid = int(subprocess.run(["pgrep", "-P", str(process.pid)], stdout=subprocess.PIPE, check=True).stdout)
    assert "libprobing-agent.so" in open("/proc/%d/maps" % pid).read()
    before, after = 0, woken(pid)
    while before != after:  # the last of them may still be about to sleep; for a thread that is woken a thousand times a second this never stays the same
        before = after
        time.sleep(2)
        after = woken(pid)
    assert len(before) == 10


# ---- programs that use signals themselves ------------------------------------------------------

# The sampler may have looked just before the program changed its signals: past() returns when it has looked again.
PAST = """
import glob, time
def looks():
    for path in glob.glob("/proc/self/task/*/comm"):
        with open(path) as f, open(path.replace("comm", "status")) as g:
            if f.read() == "probing-smp\\n":
                return int(g.read().split("\\nvoluntary_ctxt_switches:")[1].split()[0])
def past():
    before = looks()
    while before is not None and looks() < before + 3:
        sum(range(20000))
"""
PROGRAMS = {
    "takes our signals first": PAST + """
import os, signal, threading, time
hits = []
signal.signal(signal.SIGURG, lambda s, f: hits.append(s))
signal.signal(signal.SIGRTMAX, lambda s, f: hits.append(s))
def go(end):
    past()
    hits.clear()  # one of ours may have been on its way when the program took the signal
    sent = 0
    while time.time() < end or sent < 20:
        os.kill(os.getpid(), (signal.SIGURG, signal.SIGRTMAX)[sent % 2]); sent += 1
        sum(range(20000))
    assert sent and len(hits) == sent, (sent, len(hits))
    return "fine"
""",
    "takes our signals later": PAST + """
import os, signal, threading, time
hits = []
def go(end):
    half = time.time() + (end - time.time()) / 2
    while time.time() < half: sum(range(20000))
    for n in (signal.SIGURG, signal.SIGRTMAX, signal.SIGRTMAX - 1):
        signal.signal(n, lambda s, f: hits.append(s))
    past()
    hits.clear()
    sent = 0
    while time.time() < end or sent < 20:
        os.kill(os.getpid(), (signal.SIGURG, signal.SIGRTMAX)[sent % 2]); sent += 1
        sum(range(20000))
    assert sent and len(hits) == sent, (sent, len(hits))
    return "fine"
""",
    "timer": """
import signal, time
hits = []
def go(end):
    signal.signal(signal.SIGALRM, lambda s, f: hits.append(s))
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    while time.time() < end or len(hits) < 20:
        sum(range(1000)); time.sleep(0.001)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return "fine"
""",
    "blocks and unblocks": """
import signal, threading, time
everything = set(range(1, signal.NSIG)) - {32, 33}
def masked(end):
    while time.time() < end:
        signal.pthread_sigmask(signal.SIG_BLOCK, everything)
        sum(range(50000))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, everything)
        sum(range(500))
def always(end):
    signal.pthread_sigmask(signal.SIG_BLOCK, everything)
    while time.time() < end: sum(range(5000))
def go(end):
    ts = [threading.Thread(target=f, args=(end,)) for f in (masked, always)]
    for t in ts: t.start()
    masked(end)
    for t in ts: t.join()
    return "fine"
""",
    "takes all signals itself": """
# By sigpending, sigtimedwait, a signalfd and sigwait: in each of them a signal that nobody sent would be seen.
import ctypes, os, select, signal, struct, threading, time
libc = ctypes.CDLL(None)
everything = set(range(1, signal.NSIG)) - {32, 33}
def pending(fd):
    return signal.sigpending()
def waited(fd):
    return signal.sigtimedwait(everything, 0)
def read(fd):
    return select.select([fd], [], [], 0)[0] and struct.unpack_from("I", os.read(fd, 128))
def ask(how, end, block, seen):
    fd = libc.signalfd(-1, ctypes.byref(ctypes.c_uint64(2 ** 64 - 1)), 0o4000)
    signal.pthread_sigmask(signal.SIG_BLOCK, everything)
    mine, turns, found = [], 0, None
    while time.time() < end:
        sum(range(20000))
        before, found = found, how(fd)
        if found and found != before: mine.append((how.__name__, block, found))
        turns += block == "in turns"
        if block == "in turns":
            signal.pthread_sigmask(signal.SIG_UNBLOCK, everything)
            sum(range(20000))
            signal.pthread_sigmask(signal.SIG_BLOCK, everything)
    os.close(fd)
    # Each time that it blocks them it may do so between our look and our signal, once in a thousand times; were they not looked at, it would be
    # at every other turn.
    if len(mine) > 1 + turns / 10: seen.append((turns, mine))
def go(end):
    sum(range(3000000))  # samples before
    seen = []
    ts = [threading.Thread(target=ask, args=(how, end, block, seen))
          for how in (pending, waited, read) for block in ("always", "in turns")]
    for t in ts: t.start()
    ask(pending, end, "always", seen)
    for t in ts: t.join()
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    left = [s for s in iter(lambda: signal.sigwait(everything), signal.SIGTERM)]
    return seen + left if seen or len(left) > 1 else "fine"
""",
    "waits for all signals": """
# For so long sigtimedwait has them open in the mask that the kernel shows.
import signal, threading, time
everything = set(range(1, signal.NSIG)) - {32, 33}
def go(end):
    signal.pthread_sigmask(signal.SIG_BLOCK, everything)
    seen = []
    def wait(seconds):
        while time.time() < end:
            taken = signal.sigtimedwait(everything, seconds)
            if taken: seen.append(taken.si_signo)
    ts = [threading.Thread(target=wait, args=(seconds,)) for seconds in (0.003, 0.003, 0.003, 0.003, 0.0005, 0.0005, 0.02, 0.02)]
    for t in ts: t.start()
    while time.time() < end: sum(range(3000))
    for t in ts: t.join()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, everything)
    return seen if len(seen) > 1 else "fine"  # between our look and our signal it may block them
""",
    "waits for all signals at last": """
# Each thread has been sampled before it blocks them. Its wait over, it waits for the processor, while the mask that the kernel shows has them open.
import hashlib, os, signal, threading, time
everything = set(range(1, signal.NSIG)) - {32, 33}
def go(end):
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, list(processors)[:1])
    seen, ended = [], []
    def busy():
        while time.time() < end or len(ended) < 8: hashlib.pbkdf2_hmac("sha256", b"", b"", 3000)  # without the GIL
    def waits():
        begun = time.thread_time()
        while time.thread_time() < begun + 0.012: sum(range(1000))
        signal.pthread_sigmask(signal.SIG_BLOCK, everything)
        time.sleep(0.05)
        taken = [signal.sigtimedwait(everything, 0.0005) for i in range(10)]
        seen.extend(t.si_signo for t in taken if t)
        ended.append(1)
    others = [threading.Thread(target=busy) for i in range(2)]
    for t in others: t.start()
    while time.time() < end or len(ended) < 8:
        ts = [threading.Thread(target=waits) for i in range(4)]
        for t in ts: t.start()
        for t in ts: t.join()
    for t in others: t.join()
    os.sched_setaffinity(0, processors)
    return seen or "fine"
""",
    "system calls of C code": """
# Those that SA_RESTART does not restart, from C code that expects no EINTR; each a moment after the thread has run.
import ctypes, os, random, socket, struct, time
libc = ctypes.CDLL(None, use_errno=True)
class Time(ctypes.Structure): _fields_ = [("s", ctypes.c_long), ("part", ctypes.c_long)]
a, b = socket.socketpair()
b.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 1000))
poll = libc.epoll_create1(0)
room, mask, semaphore = ctypes.create_string_buffer(64), (ctypes.c_uint64 * 16)(1 << 63), ctypes.create_string_buffer(64)
libc.sem_init(semaphore, 0, 0)
full = socket.socket(socket.AF_UNIX)
full.bind("\\0%d" % os.getpid())
full.listen(0)
waiting = [socket.socket(socket.AF_UNIX) for i in range(2)]
waiting[0].connect("\\0%d" % os.getpid())  # there is no room for the other
waiting[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 1000))
name = b"\\1\\0\\0%d" % os.getpid()
def until():
    t = time.time() + 0.001
    return ctypes.byref(Time(int(t), int(t % 1 * 1e9)))
calls = {
    "poll": lambda: libc.poll(None, 0, 1),
    "ppoll": lambda: libc.ppoll(None, 0, ctypes.byref(Time(0, 1000000)), None),
    "select": lambda: libc.select(0, None, None, None, ctypes.byref(Time(0, 1000))),
    "usleep": lambda: libc.usleep(1000),
    "nanosleep": lambda: libc.nanosleep(ctypes.byref(Time(0, 1000000)), None),
    "epoll_wait": lambda: libc.epoll_wait(poll, room, 1, 1),
    "sigtimedwait": lambda: libc.sigtimedwait(mask, None, ctypes.byref(Time(0, 1000000))),
    "sem_timedwait": lambda: libc.sem_timedwait(semaphore, until()),
    "connect": lambda: libc.connect(waiting[1].fileno(), name, len(name)),
    "recv": lambda: libc.recv(b.fileno(), room, 8, 0),
    "read": lambda: libc.read(b.fileno(), room, 8),
}
def go(end):
    interrupted = []
    while time.time() < end + 2:
        for name, call in calls.items():
            runs = time.perf_counter() + random.random() / 2000
            while time.perf_counter() < runs: pass
            ctypes.set_errno(0)
            if call() and ctypes.get_errno() == 4: interrupted.append(name)
    return "fine" if not interrupted else interrupted
""",
    "faulthandler": """
import faulthandler, io, sys, tempfile, time
def go(end):
    with tempfile.TemporaryFile() as f:
        faulthandler.enable(f)
        faulthandler.dump_traceback_later(0.05, repeat=True, file=f)
        while time.time() < end: sum(range(5000))
        faulthandler.cancel_dump_traceback_later()
        f.seek(0)
        assert b"in go" in f.read()
    return "fine"
""",
    "sigwait": """
import os, signal, threading, time
def go(end):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    got = []
    def waiter():
        while time.time() < end + 0.2 or len(got) <= 10:
            if signal.sigtimedwait({signal.SIGUSR1}, 0.1): got.append(1)
    t = threading.Thread(target=waiter); t.start()
    while time.time() < end or t.is_alive():
        sum(range(5000)); os.kill(os.getpid(), signal.SIGUSR1); time.sleep(0.002)
    return "fine"
""",
    "interrupted by Ctrl-C": """
# Several times a second, from a thread that is being sampled: the signal must reach the main thread.
import os, signal, threading, time
def go(end):
    n = 0
    while time.time() < end or n <= 3:
        try:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            time.sleep(20)
            assert 0
        except KeyboardInterrupt:
            n += 1
    return "fine"
""",
}
MAIN = """
if __name__ == "__main__":
    import os, sys, time
    result = go(time.time() + 1.2)
    while result == "fine" and not os.path.exists(sys.argv[-1]):
        result = go(time.time() + 1.2)
    print("result:", result)
"""


@pytest.mark.slow
@pytest.mark.pythons(min=(3, 14))
def test_system_calls_by_a_newer_libc(record, python):
    """With Debian sid's libc (in test-all), which makes all system calls that can be cancelled in one place."""
    assert record(PROGRAMS["system calls of C code"] + MAIN, "/", hz=1000, python=python).stdout == "result: fine\n"


@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.pythons(first=True)
def test_programs_with_signals(record_until, convert, sql, python, name):
    def seen(db):
        """Returns the ticks in go(), and the ticks that were read from outside while the thread ran, or missed."""
        go = sql(db, "SELECT coalesce(sum(total), 0) FROM hot_functions WHERE frame_type = 'Python' AND func = 'go'")[0][0]
        return go, sql(db, "SELECT (SELECT coalesce(sum(count), 0) FROM samples WHERE outside AND state = 'running')"
                           " + (SELECT coalesce(sum(count), 0) FROM loss WHERE reason = 'missed_tick')")[0][0]

    blocks = name == "blocks and unblocks"  # busy, and every tick is seen
    done = record_until(lambda db: seen(db)[0] > 20 and (not blocks or seen(db)[1] > 1000), PROGRAMS[name] + MAIN, hz=1000, python=python)
    assert done.stdout == "result: fine\n"
    if blocks:
        lost = dict(sql(convert(done.trace), "SELECT reason, count FROM loss"))
        # A signal is lost if it is sent in the moment in which the thread blocks it. If the sampler did not check for blocked signals,
        # nearly all would be.
        assert lost.get("unanswered", 0) < 0.3 * seen(convert(done.trace))[1], lost


# A write to a full pipe, which our signal cuts short, is finished in our handler: 32 MB take it some 10 ms of CPU.
LONG_HANDLERS = """
import os, threading, time
read, write = os.pipe()
def drain():
    while os.read(read, 1 << 20):
        pass
threading.Thread(target=drain, daemon=True).start()
def work(seconds):
    last = time.thread_time() + seconds
    while time.thread_time() < last:
        pass
def afterwards():
    work(0.12)
work(0.3)  # while a thread is new, it is often read from outside
data = bytes(32 << 20)
for i in range(8):
    assert os.write(write, data) == len(data)
    afterwards()
"""


def test_a_handler_that_takes_long_is_no_blocked_signal(record, convert, sql):
    """A thread is read from outside while it blocks the signal; one that was in our handler for long, whose mask blocks it, too, is not."""
    db = convert(record(LONG_HANDLERS, hz=1000).trace)
    own, outside = sql(db, "SELECT sum(NOT outside), sum(outside) FROM samples WHERE state = 'running'"
                                " AND stack_id IN (SELECT stack FROM stack_text WHERE text LIKE '%afterwards%')")[0]
    assert own > 9 * outside, (own, outside)


def test_signals_from_elsewhere_keep_their_effect(record, convert, sql):
    """SIGURG is ignored by default; a real-time signal ends the process."""
    done = record("import os, signal, time\ndef go():\n    while time.thread_time() < 1.5:\n"
                  "        os.kill(os.getpid(), signal.SIGURG)\n        sum(range(3000))\n"
                  "go()\nprint('alive', flush=True)\n"
                  "os.kill(os.getpid(), signal.SIGRTMAX)\ntime.sleep(5)\nprint('still')\n", hz=1000, check=None)
    assert done.returncode == 128 + signal.SIGRTMAX
    assert done.stdout == "alive\n"
    # our signals and theirs are told apart, and the sampler waits for none of ours in vain
    db = convert(done.trace)
    names = dict(sql(db, "SELECT func, total FROM hot_functions"))
    ticks, gone = sql(db, "SELECT (SELECT sum(count) FROM sample), (SELECT coalesce(sum(count), 0) FROM lost WHERE reason <> 'missed_tick')")[0]
    assert names["go"] > 0.5 * ticks and gone < 0.5 * ticks, (names, ticks, gone)


# ---- native code that no unwinder can follow -------------------------------------------------


def test_code_without_unwind_information(build, record_until, sql):
    """Hand-written code: no call frame information, garbage in rbp, and a small stack of its own."""
    library = build.root / "tests" / "programs" / "nocfi"
    if not library.exists():
        pytest.skip("build/tests/programs/nocfi is not built")
    def enough(db):
        names = dict(sql(db, "SELECT func, total FROM hot_functions"))
        return all(names.get(name, 0) > 50 for name in ("spin", "small", "generated"))

    done = record_until(enough, """
import ctypes, sys, time
lib = ctypes.CDLL(%r)
def spin():
    lib.spin_without_cfi(ctypes.c_long(20000000))
def small():
    lib.spin_on_small_stack(ctypes.c_long(20000000))
def generated():
    lib.spin_in_generated_code(ctypes.c_long(20000000))
import os
while not os.path.exists(sys.argv[1]):
    spin(); small(); generated()
print("fine")
""" % str(library), hz=1000)
    assert done.stdout == "fine\n"


LONG = """
import sys
for i in range(4):
    sys.stdout.write("%d" % i * 3000000)  # without a buffer, a write that ends early loses the rest: CPython does not go on
"""


def test_a_long_write_into_a_pipe_is_whole(build, tmp_path, python):
    """The sampling signal cuts no write short that waits for its reader."""
    (tmp_path / "long.py").write_text(LONG)
    done = subprocess.run([build.tool("probing-record"), "-q", "-r", "1000", "-o", str(tmp_path / "t.zst"), "--", python.path, "-u",
                           str(tmp_path / "long.py")], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=240)
    assert done.returncode == 0
    assert [done.stdout.count(b"%d" % i) for i in range(4)] == [3000000] * 4


UNQUEUED = """
import resource, threading, time
resource.setrlimit(resource.RLIMIT_SIGPENDING, (0, 0))
def busy():
    end = time.thread_time() + .4
    while time.thread_time() < end:
        sum(range(300))
other = threading.Thread(target=busy)
other.start()
busy()
other.join()
"""


def test_where_no_signal_may_be_queued(record, convert, pythons, sql):
    """The kernel then drops the value that is sent with a signal, by which the handler recognizes our signal."""
    db = convert(record(UNQUEUED, hz=500, python=pythons[-1]).trace)
    unanswered = sql(db, "SELECT coalesce(sum(count), 0) FROM loss WHERE reason = 'unanswered'")[0][0]
    native = sql(db, "SELECT coalesce(sum(count), 0) FROM samples WHERE state = 'running' AND NOT outside")[0][0]
    assert native > 40 and native > unanswered, (native, unanswered)
