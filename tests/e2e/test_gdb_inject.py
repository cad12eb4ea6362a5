# SPDX-License-Identifier: Apache-2.0
"""probing inject: the target goes on undisturbed, and is recorded."""
import os
import pathlib
import re
import time

import conftest
import pytest
from gdb_tools import gdb_command, needs_gdb
from inject_helpers import HEAD, finish, target, until_sampled

FIXTURES = (target,)  # tests ask for them by name

pytestmark = needs_gdb

# Each program runs until finish() is called, checks its own results all the while, and prints what it prints without an injection.
IDLE = HEAD + """
while go(): time.sleep(0.5)
print("right")
"""
SPIN = HEAD + """
n = 0
def work(k):
    s = 0
    for i in range(k): s += i * i
    return s
want = work(1000)
while go():
    assert work(1000) == want
print("right")
"""
MALLOC = HEAD + """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
bad = []
def raw():
    while go():
        held = [libc.malloc(n) for n in (24, 1000, 40000, 300000)]   # the GIL is let go in each call
        if not all(held): bad.append(1)
        for p in held: libc.free(p)
def blocks():
    k = 0
    while go():
        k += 1
        b = [bytes([k & 255]) * n for n in (600, 5000, 200000)]
        if sum(x[0] + x[-1] for x in b) != 6 * (k & 255): bad.append(2)
threads = [threading.Thread(target=f) for f in (raw, blocks, raw, blocks)]
for t in threads: t.start()
for t in threads: t.join()
print("wrong" if bad else "right")
"""
DLOPEN = HEAD + """
import _ctypes
bad = []
def loop():
    while go():
        h = _ctypes.dlopen("libnss_files.so.2", 2)
        if not h: bad.append(1)
        _ctypes.dlclose(h)
threads = [threading.Thread(target=loop) for _ in range(2)]
for t in threads: t.start()
for t in threads: t.join()
print("wrong" if bad else "right")
"""
THREADS = HEAD + """
import queue
q, total, lock = queue.Queue(), [0], threading.Lock()
def produce():
    while go():
        q.put(1)
        time.sleep(0.001)
def consume():
    while True:
        n = q.get()
        if n is None: return
        with lock: total[0] += n
        t = threading.Thread(target=lambda: None); t.start(); t.join()
made = [threading.Thread(target=produce) for _ in range(8)]
eaten = [threading.Thread(target=consume) for _ in range(8)]
for t in made + eaten: t.start()
for t in made: t.join()
for t in eaten: q.put(None)
for t in eaten: t.join()
print("right" if total[0] > 0 and q.empty() else "wrong")
"""
# CPython from 3.12 on counts the agent's threads when it warns of fork() (README: limits).
FORKS = HEAD + """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
bad = []
while go():
    pid = os.fork()
    if pid == 0: os._exit(7)
    if os.waitpid(pid, 0)[1] != 7 << 8: bad.append(1)
print("wrong" if bad else "right")
"""
SPAWNS = HEAD + """
import subprocess
bad = []
def loop():
    while go():
        if subprocess.run(["/bin/sh", "-c", "exit 5"]).returncode != 5: bad.append(1)
threads = [threading.Thread(target=loop) for _ in range(2)]
for t in threads: t.start()
for t in threads: t.join()
print("wrong" if bad else "right")
"""
TARGETS = {"spawns": SPAWNS, "idle": IDLE, "spin": SPIN, "malloc": MALLOC, "dlopen": DLOPEN, "threads": THREADS, "forks": FORKS}
LINE = re.compile(r"process (\d+) is being recorded into (\S+) \(agent \S+, loaded by dlopen at a safe point; "
                  r"the target stood still [0-9.]+ ms(?: in \d+ moments of at most [0-9.]+ ms)?\); next: probing-convert \S+ out.db")


def inject_line(text):
    found = [m for m in map(LINE.match, text.splitlines()) if m]
    assert len(found) == 1, text
    return found[0]


@pytest.fixture
def samples(convert, sql):
    """Checks that the trace has samples, and that nothing in it is damaged."""

    def check(trace):
        assert sql(convert(trace), "SELECT count(*) FROM samples")[0][0] > 0

    return check


def nothing_left(process):
    run_dir = os.environ["PROBING_RUN_DIR"]
    assert [f for f in os.listdir(run_dir) if f.startswith("inject-")] == []


@pytest.mark.pythons(count=1)
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_inject(build, run, python, target, samples, name, tmp_path):
    process = target(python, TARGETS[name])
    done = run(gdb_command(build, process.pid, "probing inject -r 100"))
    m = inject_line(done.stdout)
    assert int(m[1]) == process.pid
    assert m[2] == "%s/probing-%s-%d.zst" % (tmp_path, os.uname().nodename, process.pid)
    nothing_left(process)
    until_sampled(process.pid)
    assert finish(process) == (0, "right", "")
    samples(m[2])


@pytest.mark.pythons(every=True, min=(3, 8), max=(3, 13))
def test_inject_every_version(build, run, python, target, samples, tmp_path):
    process = target(python, SPIN)
    trace = tmp_path / "a b.zst"
    done = run([build.tool("probing"), "-t", process.pid, "inject", "--force", "-o", trace, "-r", "200", "--no-native"])
    assert "process %d is being recorded into %s " % (process.pid, trace) in done.stdout
    assert len(done.stdout.splitlines()) == 1 and done.stderr == ""
    until_sampled(process.pid)
    assert finish(process) == (0, "right", "")
    samples(trace)
    # the command that it proposes can be pasted into a shell, though the name has a space
    run(["sh", "-c", "PATH=%s:$PATH; %s" % (build.bin, done.stdout.strip().split("; next: ")[1])], cwd=str(tmp_path))
    assert (tmp_path / "out.db").exists()


TORCH = HEAD + """
import torch
torch.manual_seed(1)
torch.set_num_threads(2)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
print("training", flush=True)
for step in range(600):
    x = torch.randn(64, 64)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
print("%.10g" % loss.item(), flush=True)
while sys.argv[2:] and not os.path.exists(sys.argv[2]): (model(x) - x).sum().backward()
"""


@pytest.mark.pythons(torch=True, count=1)
def test_training_is_the_same_with_and_without(build, run, python, spawn, samples, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TORCH)
    plain = run([python.path, script, "0"]).stdout.split()[-1]
    enough = tmp_path / "enough"
    process = spawn([python.path, script, "0", enough], ready="training", cwd=str(tmp_path))
    m = inject_line(run(gdb_command(build, process.pid, "probing inject")).stdout)
    until_sampled(process.pid)
    enough.touch()
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0 and out.decode().split()[-1] == plain
    samples(m[2])


@pytest.mark.pythons(count=1)
def test_twice_is_once(build, run, python, target):
    process = target(python, SPIN)
    trace = inject_line(run(gdb_command(build, process.pid, "probing inject")).stdout)[2]
    for cmd in (gdb_command(build, process.pid, "probing inject -o other.zst"),
                [build.tool("probing"), "-t", process.pid, "inject"]):
        again = run(cmd).stdout.splitlines()[-1]
        assert again.startswith("process %d is already recorded into %s (" % (process.pid, trace))
    with open("/proc/%d/maps" % process.pid) as f:
        live = {line.split()[-1] for line in f if ".live" in line}
    assert len(live) == 1
    status = run([build.tool("probing"), "-t", process.pid, "status"]).stdout
    assert status.startswith("process %d: running, into %s: " % (process.pid, trace))
    assert finish(process) == (0, "right", "")


@pytest.mark.pythons(count=1)
def test_stop_and_again(build, run, python, target, samples):
    process = target(python, SPIN)
    probing = [build.tool("probing"), "-t", process.pid]
    run(probing + ["stop"], check=3)
    trace = inject_line(run(probing + ["inject", "-r", "200"]).stdout)[2]
    until_sampled(process.pid)
    assert "no longer recorded" in run(gdb_command(build, process.pid, "probing stop")).stdout
    samples(trace)
    assert "nothing records process" in run(probing + ["status"], check=3).stderr
    second = run(probing + ["inject", "-r", "200"]).stdout.split(" into ")[1].split()[0]
    assert second != trace
    until_sampled(process.pid)
    run(probing + ["stop"])
    samples(second)
    assert finish(process) == (0, "right", "")


TIMEOUTS = HEAD + """
import select, signal, socket, queue
seconds = float(sys.argv[1])
results = {}
def again_and_again(name, function):
    results[name] = []
    while go():
        began = time.monotonic()
        said = (function(), time.monotonic() - began >= seconds * 0.999)
        if said not in results[name]: results[name].append(said)
def measure(name, function):
    t = threading.Thread(target=again_and_again, args=(name, function))
    t.start()
    return t
lock = threading.Lock(); lock.acquire()
r, w = os.pipe()
a, b = socket.socketpair(); a.settimeout(seconds)
def receive():
    try: a.recv(1)
    except socket.timeout: return "timeout"
def get():
    try: queue.Queue().get(timeout=seconds)
    except queue.Empty: return "empty"
poll = select.poll(); poll.register(r, select.POLLIN)
ep = select.epoll(); ep.register(r, select.EPOLLIN)
threads = [measure("sleep", lambda: time.sleep(seconds)),
    measure("lock", lambda: lock.acquire(timeout=seconds)),
    measure("select", lambda: select.select([r], [], [], seconds)),
    measure("poll", lambda: poll.poll(seconds * 1000)),
    measure("epoll", lambda: ep.poll(seconds)),
    measure("recv", receive), measure("queue", get),
    measure("event", lambda: threading.Event().wait(seconds))]
again_and_again("main", lambda: time.sleep(seconds))
for t in threads: t.join()
print(sorted(results.items()))
"""


@pytest.mark.pythons(count=1)
def test_timeouts_are_kept(build, run, python, target):
    process = target(python, TIMEOUTS, 1)
    inject_line(run(gdb_command(build, process.pid, "probing inject")).stdout)
    code, out, err = finish(process)
    assert code == 0, err
    assert eval(out) == [("epoll", [([], True)]), ("event", [(False, True)]), ("lock", [(False, True)]), ("main", [(None, True)]),
                         ("poll", [([], True)]), ("queue", [("empty", True)]), ("recv", [("timeout", True)]),
                         ("select", [(([], [], []), True)]), ("sleep", [(None, True)])]


def test_the_carrying_thread_is_put_back_whole(build, run, spawn, tmp_path):
    """errno, flags, red zone and vector registers of a single-threaded C program are restored."""
    for _ in range(3):
        process = spawn([build.root / "tests" / "programs" / "steady"], ready="ready")
        assert "process %d is " % process.pid in run([build.tool("probing"), "-t", process.pid, "inject", "--force", "-o",
                                                      tmp_path / "t.zst"]).stdout
        process.terminate()
        assert finish(process)[:2] == (0, "steady")


@pytest.mark.pythons(count=1)
@pytest.mark.slow
def test_storm(build, run, python, target, samples):
    """Eight processes, each with four threads that call malloc; one injection into each."""
    for i in range(8):
        process = target(python, MALLOC)
        done = run([build.tool("probing"), "-t", process.pid, "inject", "-r", "1000"], check=None)
        # An injector that finds no safe point in two seconds says so, which is allowed; breaking the target is not.
        assert done.returncode == 0 or "no safe moment" in done.stderr or "ended" in done.stderr, done.stderr
        assert finish(process) == (0, "right", ""), "injection %d" % i
        nothing_left(process)


# ---- what is refused, and how it is said -----------------------------------------------------------


def refused(done, text):
    assert done.returncode in (1, 3)
    assert text in done.stderr, done.stderr
    return done


@pytest.mark.pythons(count=1)
def test_refusals(build, run, python, target, spawn, tmp_path):
    def probing(pid, *args):
        return run([build.tool("probing"), "-t", pid, "inject"] + list(args), check=None)

    refused(probing(2 ** 22 - 1), "there is no process")
    refused(run(gdb_command(build, None, "probing inject"), check=None), "no process: start with gdb -p PID")
    refused(run(gdb_command(build, os.getpid(), "probing inject --frobnicate"), check=None), "unknown argument '--frobnicate'")
    for rate in ("0", "1001", "10us", "nan", "1e2", "10 ms"):
        refused(run(gdb_command(build, os.getpid(), "probing inject -r '%s'" % rate), check=None), "the rate must be 0.001 to 1000 samples a second")
    refused(run(gdb_command(build, None, "probing help nosuch"), check=None), "no such command: probing nosuch")
    assert "Begin to record" in run(gdb_command(build, None, "probing help inject")).stdout

    zombie = spawn([python.path, "-c", "import os, time\nchild = os.fork()\nif child == 0: os._exit(0)\n"
                    "os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)\nprint('up', flush=True)\ntime.sleep(600)"], ready="up")
    child = int(open("/proc/%d/task/%d/children" % (zombie.pid, zombie.pid)).read().split()[0])
    refused(probing(child), "has ended (a zombie")

    stopped = target(python, IDLE, 60)
    os.kill(stopped.pid, 19)
    while "\nState:\tT" not in pathlib.Path("/proc/%d/status" % stopped.pid).read_text():
        time.sleep(0.01)
    refused(probing(stopped.pid), "is stopped: continue it first (kill -CONT %d)" % stopped.pid)
    os.kill(stopped.pid, 18)

    traced = target(python, IDLE, 60)
    tracer = spawn(gdb_command(build, traced.pid, "python print('up', flush=True)", "python import time; time.sleep(600)", plugin=False), ready="up")
    refused(probing(traced.pid), "is traced by process %d (gdb)" % tracer.pid)
    tracer.kill()  # only then can its tracee be reaped
    tracer.wait(timeout=240)

    filtered = target(python, "import ctypes, sys\nctypes.CDLL(None).prctl(38, 1, 0, 0, 0)\n" + SECCOMP + IDLE, 60)
    refused(probing(filtered.pid), "runs under a seccomp filter")

    broken = target(python, SPIN)
    refused(probing(broken.pid, "-o", tmp_path / "no" / "such" / "t.zst"), "no/such/t.zst")
    assert finish(broken) == (0, "right", "")


# A filter that kills the process for membarrier: prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ...)
SECCOMP = """
class Prog(ctypes.Structure): _fields_ = [("n", ctypes.c_ushort), ("f", ctypes.c_void_p)]
code = ctypes.create_string_buffer(b"\\x20\\0\\0\\0\\0\\0\\0\\0" b"\\x15\\0\\0\\1\\x44\\1\\0\\0"
                                   b"\\6\\0\\0\\0\\0\\0\\0\\x80" b"\\6\\0\\0\\0\\0\\0\\xff\\x7f", 32)
prog = Prog(4, ctypes.addressof(code))
assert ctypes.CDLL(None).prctl(22, 2, ctypes.byref(prog), 0, 0) == 0
"""


def test_a_static_program_is_refused(build, run, spawn, tmp_path):
    source = tmp_path / "s.c"
    source.write_text('#include <stdio.h>\n#include <unistd.h>\nint main(void) { puts("up"); fflush(stdout); sleep(600); }\n')
    run(["cc", "-static", "-o", tmp_path / "s", source])
    process = spawn([tmp_path / "s"], ready="up")
    refused(run([build.tool("probing"), "-t", process.pid, "inject"], check=None), "uses no shared C library")


@pytest.mark.pythons(count=1)
@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can inject into others' processes")
def test_another_users_process(build, run, python, target, tmp_path, samples):
    work = tmp_path / "work"
    work.mkdir()
    os.chown(str(work), 65534, 65534)
    conftest.open_to_others(tmp_path)

    def become():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    env = {k: v for k, v in os.environ.items() if k != "PROBING_RUN_DIR"}
    process = target(python, SPIN, cwd=str(work), preexec_fn=become, env=env)
    m = inject_line(run(gdb_command(build, process.pid, "probing inject -r 100")).stdout)
    assert os.stat(m[2]).st_uid == 65534 and os.path.dirname(m[2]) == str(work)
    assert [f for f in os.listdir("/tmp/probing-65534") if f.startswith("inject-%d-" % process.pid)] == []
    assert "2" == run(gdb_command(build, process.pid, "probing-eval --timeout 200 1 + 1")).stdout.splitlines()[-1]
    until_sampled(process.pid)
    assert finish(process) == (0, "right", "")
    samples(m[2])
