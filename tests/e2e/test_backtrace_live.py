# SPDX-License-Identifier: Apache-2.0
"""`probing -t PID backtrace`, by default without a stop: what it shows, of whom, and what it says when it cannot."""
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import conftest
import pytest
from conftest import wait_for_line, wait_until_asleep
from backtrace_scene import (as_told, check_merged, check_scene, libc_keeps_frame_pointers, python_frames,
                              start_scene)


@pytest.fixture
def backtrace(build, run):
    def do(pid, *options, **kw):
        return run([build.tool("probing"), "-t", pid, "backtrace"] + list(options), **kw)

    return do


@pytest.fixture
def ask(backtrace):
    return lambda pid, *options: json.loads(backtrace(pid, "--json", *options).stdout)


def until(condition, seconds=240):
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(0.01)


def state_of(pid):
    with open("/proc/%d/stat" % pid) as f:
        return f.read().rsplit(")", 1)[1].split()[0]


def python(spawn, python, code, *args, still=True, **kw):
    """Starts a program and waits until it has said "up" and, unless it loops for ever, sleeps."""
    process = spawn([python.path, "-c", code] + list(args), ready="up", **kw)
    if still and "while True" not in code:
        wait_until_asleep(process.pid)
    return process


# ---- what it shows ----------------------------------------------------------------------------------


def check_both_ways(ask, process, truth, python):
    # A thread that was just being woken is marked and shows no native frames: then look again. And the spinning thread may just have given
    # the GIL to the thread that printed, which has yet to end: then the spinning thread waits as the others do.
    while True:
        said = ask(process.pid)
        found = [t for t in said["threads"] if t["state"] == "idle" and t["python"]]
        spins = [t["consistent"] for t in said["threads"] if t["state"] == "running" and t["python"]]
        if len(found) == len(truth) and all(t["consistent"] for t in found) and spins == [False]:
            break  # a thread that is ready to run but waits for a CPU may be consistent
    assert said["source"] == "live" and said["stopped_ms"] == 0
    found = check_scene(said, truth, python, natives=not libc_keeps_frame_pointers(), whole=False)
    assert not found["spinner"]["consistent"] and found["spinner"]["state"] == "running"
    assert all(f["type"] == "Python" for f in found["spinner"]["frames"])
    said = ask(process.pid, "--stop")
    assert said["source"] == "stopped" and said["stopped_ms"] > 0
    found = check_scene(said, truth, python)
    assert found["spinner"]["consistent"]
    check_merged(found["spinner"]) if found["spinner"]["frames"][0]["type"] == "Native" else None
    assert process.poll() is None and until(lambda: state_of(process.pid) == "S")


@pytest.mark.pythons(min=(3, 8), max=(3, 13), count=3)
def test_running_and_stopped(ask, tmp_path, spawn, python):
    check_both_ways(ask, *start_scene(tmp_path, spawn, python), python)


@pytest.mark.slow
@pytest.mark.pythons()
def test_running_and_stopped_on_every_python(ask, tmp_path, spawn, python):
    check_both_ways(ask, *start_scene(tmp_path, spawn, python), python)


@pytest.mark.pythons(min=(3, 11), count=1)
def test_columns(ask, spawn, python):
    code = "import time, sys\nprint('up', flush=True)\nx = [1, 2, time.sleep(1000 +\n  0)]\n"
    process = globals()["python"](spawn, python, code)
    frame = until(lambda: [f for t in ask(process.pid, "--main")["threads"] for f in t["frames"]
                           if t["state"] == "idle" and f["type"] == "Python" and f["line"] == 3])[0]
    assert (frame["column"], frame["end_line"], frame["end_column"]) == (11, 4, 4)


@pytest.mark.pythons(count=1)
def test_the_choice_of_threads_and_frames(ask, backtrace, tmp_path, spawn, python):
    process, truth = start_scene(tmp_path, spawn, python)
    everyone = ask(process.pid)["threads"]
    assert [t["tid"] for t in ask(process.pid, "--main")["threads"]] == [process.pid]
    other = next(t["tid"] for t in everyone if not t["main"])
    assert [t["tid"] for t in ask(process.pid, "--thread", other)["threads"]] == [other]
    said = ask(process.pid, "--main", "--python")["threads"][0]["frames"]
    assert as_told([[f["func"], f["file"], f["line"]] for f in said], python) == truth["main"]
    said = ask(process.pid, "--main", "--native", "--stop")["threads"][0]["frames"]
    assert said and all(f["type"] == "Native" for f in said)
    assert any((f["func"] or "").startswith("_PyEval_EvalFrameDefault") for f in said)
    done = backtrace(process.pid, "--thread", 1 + 2**29, check=3)
    assert "has no thread 536870913" in done.stderr
    folded = backtrace(process.pid, "--folded", "--python").stdout.splitlines()
    assert any(re.fullmatch(r"python3;<module> \(.*scene.py:\d+\);(Deep.method \(.*\);){6}Deep.wait \(.*\) 1", line)
               for line in folded), folded
    for options in (["--python", "--native"], ["--json", "--folded"], ["--color=blue"], ["--thread", "x"], ["more"]):
        done = backtrace(process.pid, *options, check=2)
        assert "see probing --help" in done.stderr or "see probing-backtrace" in done.stderr or "--help" in done.stderr


@pytest.mark.pythons(count=1)
def test_colour_and_talk(backtrace, spawn, python, tmp_path, build):
    process = globals()["python"](spawn, python, "print('up', flush=True); import time; time.sleep(1000)")
    assert "\033[" not in backtrace(process.pid).stdout
    assert "\033[" in backtrace(process.pid, "--color").stdout and "\033[" not in backtrace(process.pid, "--color=never").stdout
    command = "%s -t %d backtrace" % (build.tool("probing"), process.pid)
    for env, coloured in ({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False):
        done = subprocess.run(["script", "-qec", command, "/dev/null"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=240,
                              env=dict({k: v for k, v in os.environ.items() if k != "NO_COLOR"}, **env)) if shutil.which("script") else None
        assert done is None or (b"\033[" in done.stdout) == coloured
    assert "was not stopped" in backtrace(process.pid, "-v").stderr
    said = backtrace(process.pid, "-v", "--stop").stderr
    assert re.fullmatch(r"probing\S*: the process was stopped \d+\.\d\d ms\n", said), said


# ---- threads of all kinds ---------------------------------------------------------------------------------


KINDS = '''
import ctypes, gc, sys, threading, time
libc = ctypes.CDLL(None)
t = ctypes.c_ulong()
libc.pthread_create(ctypes.byref(t), None, libc.pause, None)     # runs no Python, ever
libc.pthread_setname_np.argtypes = [ctypes.c_ulong, ctypes.c_char_p]
libc.pthread_setname_np(t, b"my) (worker")
def ended():
    print("up", flush=True)
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
ended()
time.sleep(1000)
'''


@pytest.mark.pythons(count=1)
def test_native_threads_and_their_names(ask, spawn, python):
    process = globals()["python"](spawn, python, KINDS)
    threads = {t["name"]: t for t in ask(process.pid, "--stop")["threads"]}
    worker = threads["my) (worker"]
    assert not worker["python"] and worker["interpreter"] is None and worker["state"] == "idle"
    assert [f["type"] for f in worker["frames"]] == ["Native"] * len(worker["frames"]) and len(worker["frames"]) >= 2
    # from glibc 2.41 on, up to three functions without a name in the file stand before it
    assert any("pause" in (f["func"] or "") for f in worker["frames"][:4]) and not worker["main"]


CXX = """
#include <unistd.h>
int waits(int n) __asm__("_ZN4demo5waitsEi");
int waits(int n) { return (int)sleep(n) + 1; }
"""


@pytest.mark.pythons(count=1)
def test_names_of_cxx(backtrace, ask, spawn, run, python, tmp_path):
    (tmp_path / "demo.c").write_text(CXX)
    run(["cc", "-w", "-shared", "-fPIC", "-o", tmp_path / "demo.so", tmp_path / "demo.c"])
    process = globals()["python"](spawn, python, "import ctypes, sys\nlib = ctypes.CDLL(sys.argv[1])\nprint('up', flush=True)\n"
                                  "lib._ZN4demo5waitsEi(1000)", tmp_path / "demo.so")
    assert until(lambda: [("demo::waits(int)", "_ZN4demo5waitsEi")] ==
                 [(f["func"], f["symbol"]) for f in ask(process.pid, "--stop")["threads"][0]["frames"] if f.get("module") == "demo.so"])
    assert re.search(r"^  #\d+ +demo::waits\(int\) \[demo.so\]$", backtrace(process.pid, "--stop").stdout, re.M)
    assert ";demo::waits(int) [demo.so];" in backtrace(process.pid, "--stop", "--folded").stdout


GC = '''
import ctypes, gc
lib = ctypes.PyDLL(None)
def collecting(phase, info):
    if phase == "start":
        print("up", flush=True)
        lib.sleep(1000)     # with the GIL
gc.callbacks.append(collecting)
gc.collect()
'''
SLEEPS = '''
import gc, sys, threading, time
class Cycle:
    def __init__(self): self.me = self
    def __del__(self, sleep=time.sleep, out=sys.stdout):
        print("up", flush=True, file=out)
        sleep(1000)         # without the GIL
gc.disable()
if len(sys.argv) > 1:
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
Cycle()
gc.collect()
'''
FINAL = '''
import sys, time
class Late:
    def __del__(self, sleep=time.sleep, out=sys.stdout):
        print("up", flush=True, file=out)
        sleep(1000)
sys.modules["late"] = Late()
'''
SUB = '''
import threading, time
try:
    import _interpreters as sub
except ImportError:
    import _xxsubinterpreters as sub
new = sub.create()
code = "import time\\nprint('up', flush=True)\\ntime.sleep(1000)"
run = getattr(sub, "exec", None) or sub.run_string
threading.Thread(target=run, args=(new, code), daemon=True).start()
time.sleep(1000)
'''


@pytest.mark.pythons(min=(3, 7), count=6)
def test_a_finaliser_that_sleeps(ask, spawn, python):
    """The finaliser releases the GIL in the middle of a collection. The collection is still under way, in its thread and in no other."""
    for more in [], ["another"]:
        process = globals()["python"](spawn, python, SLEEPS, *more)
        threads = until(lambda: [t for t in [ask(process.pid)["threads"]] if all(x["state"] == "idle" for x in t)])[0]
        if more and not any("ollect" in (f.get("symbol") or "") for f in threads[0]["frames"]):
            continue  # without symbols nobody can tell which of several threads it is
        told = [(t["main"], t["gc"]) for t in threads]
        assert told == [(True, True)] + [(False, False)] * len(more), told
        assert not any(t["gil"] for t in threads)


def check_states(ask, spawn, one):
    process = python(spawn, one, GC)
    for options in [], ["--stop"]:
        thread = until(lambda: [t for t in ask(process.pid, *options)["threads"] if t["state"] == "idle" and t["consistent"]])[0]
        assert thread["gc"] and thread["gil"] and not thread["finalizing"], thread
        assert [f["func"] for f in thread["frames"] if f["type"] == "Python"] == ["collecting", "<module>"]
    process = python(spawn, one, FINAL)
    thread = until(lambda: [t for t in ask(process.pid)["threads"] if t["state"] == "idle" and t["consistent"]])[0]
    assert thread["finalizing"] and not thread["gc"], thread
    assert [f["func"].split(".")[-1] for f in thread["frames"] if f["type"] == "Python"] == ["__del__"]
    if one.version >= (3, 8):
        process = python(spawn, one, SUB)
        for options in [], ["--stop"]:
            threads = until(lambda: [t for t in ask(process.pid, *options)["threads"] if t["interpreter"] and t["frames"]])
            assert len(threads) == 1 and python_frames(threads[0])[0][::2] == ["<module>", 3], threads


@pytest.mark.pythons(min=(3, 9), max=(3, 13), count=2)
def test_collecting_finalizing_and_subinterpreters(ask, spawn, python):
    check_states(ask, spawn, python)


@pytest.mark.slow
@pytest.mark.pythons(min=(3, 7))
def test_states_on_every_python(ask, spawn, python):
    check_states(ask, spawn, python)


@pytest.mark.pythons(count=2)
def test_hung_in_c_with_the_gil(ask, spawn, python):
    code = "import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(0.01,)).start()\n" \
           "def hang():\n    print('up', flush=True)\n    ctypes.PyDLL(None).sleep(1000)\nhang()"
    process = globals()["python"](spawn, python, code, still=False)  # the other thread asks for the GIL again and again
    for options in [], ["--stop"]:
        thread = until(lambda: [t for t in ask(process.pid, *options)["threads"] if t["main"] and t["consistent"] and t["gil"] and
                                python_frames(t)[0][::2] == ["hang", 5]])  # until it is in sleep() and stays there
        assert thread, ask(process.pid, *options)


def test_two_pythons_in_one_process(ask, spawn, pythons, build):
    shared = [p for p in pythons if p.shared and not p.free_threaded and p.version >= (3, 8)][:2]
    if len(shared) < 2:
        pytest.skip("there are no two shared libpythons")
    args = []
    for p in shared:
        home = os.path.dirname(os.path.dirname(os.path.realpath(p.path)))
        lib = sorted(pathlib.Path(home, "lib").glob("libpython3.%d*.so.1.0" % p.version[1]))
        if not lib:
            pytest.skip("no libpython beside %s" % p.path)
        code = "import _thread, sys\ndef in_%d_%d():\n    lock.acquire()\nlock = _thread.allocate_lock()\nlock.acquire()\n" \
               "sys.stdout.write('up\\n'); sys.stdout.flush()\nin_%d_%d()" % (p.version[:2] * 2)
        args += [lib[0], home, code]
    process = spawn([str(build.root / "tests" / "programs" / "two_pythons")] + args, ready="up")
    wanted = sorted("in_%d_%d" % p.version[:2] for p in shared)
    for options in [], ["--stop"]:
        said = until(lambda: [s for s in [ask(process.pid, *options)]
                              if sorted(f["func"] for t in s["threads"] for f in t["frames"] if f["func"] in wanted) == wanted])
        assert said, ask(process.pid, *options)
        for thread in said[0]["threads"]:
            if thread["python"]:
                assert len(python_frames(thread)) == 2
                check_merged(thread, whole=bool(options))


@pytest.mark.pythons(count=1)
def test_a_thousand_threads(ask, spawn, python):
    code = "import threading, time\nthreading.stack_size(1 << 16)\n" \
           "for i in range(1000): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n" \
           "print('up', flush=True)\ntime.sleep(1000)"
    process = globals()["python"](spawn, python, code)
    for options in [], ["--stop"]:
        said = until(lambda: [s for s in [ask(process.pid, *options)] if all(t["frames"] for t in s["threads"])])[0]
        assert len(said["threads"]) == 1001 and len({t["tid"] for t in said["threads"]}) == 1001
        assert all(t["python"] and t["error"] is None for t in said["threads"])


@pytest.mark.pythons(count=2)
def test_ten_thousand_frames(ask, spawn, python):
    code = "import sys, threading, time\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 29)\n" \
           "def f(n):\n    if n: return f(n - 1)\n    print('up', flush=True)\n    time.sleep(1000)\n" \
           "threading.Thread(target=f, args=(9999,)).start()"
    process = globals()["python"](spawn, python, code)
    for options in [], ["--stop"]:
        said = until(lambda: [t for t in ask(process.pid, *options)["threads"] if len(t["frames"]) > 9000])[0]
        assert [f["line"] for f in said["frames"] if f["func"] == "f"] == [7] + [5] * 9999


@pytest.mark.pythons(count=1)
def test_the_main_thread_has_ended(ask, spawn, python):
    code = "import ctypes, threading, time\ndef other():\n    while open('/proc/self/stat').read().rsplit(')', 1)[1].split()[0] != 'Z':\n" \
           "        time.sleep(0.01)\n    print('up', flush=True)\n    time.sleep(1000)\n" \
           "threading.Thread(target=other).start()\nctypes.CDLL(None).pthread_exit(None)"
    process = globals()["python"](spawn, python, code)
    for options in [], ["--stop"]:
        said = until(lambda: [s for s in [ask(process.pid, *options)] if s["threads"][-1]["state"] == "idle"])[0]
        threads = said["threads"]
        assert python_frames(threads[-1])[0][::2] == ["other", 6]
        if not options:
            assert (threads[0]["main"], threads[0]["state"], threads[0]["frames"]) == (True, "ended", [])
    assert ask(threads[-1]["tid"])["pid"] == process.pid, "any thread's id names the process"


@pytest.mark.pythons(min=(3, 10), max=(3, 11), count=2)
def test_another_pid_namespace(ask, spawn, python, tmp_path):
    if os.getuid() or subprocess.run(["unshare", "-p", "-f", "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no right to make a pid namespace")
    code = "import threading, time\ndef deep(): time.sleep(1000)\nthreading.Thread(target=deep, daemon=True).start()\n" \
           "print('up', flush=True)\ntime.sleep(1000)"
    outer = spawn(["unshare", "-p", "-f", "--kill-child", python.path, "-c", code], ready="up")
    pid = int(open("/proc/%d/task/%d/children" % (outer.pid, outer.pid)).read())
    for options in [], ["--stop"]:
        said = until(lambda: [s for s in [ask(pid, *options)] if all(t["frames"] and t["state"] == "idle" for t in s["threads"])])[0]
        assert [t["main"] for t in said["threads"]] == [True, False] and said["pid"] == pid
        assert python_frames(said["threads"][1])[0][0] == "deep" and python_frames(said["threads"][0])[0][2] == 5


LOW_IDS = """
import subprocess, sys
def low():
    with open("/proc/sys/kernel/ns_last_pid", "w") as f: f.write("50")
if len(sys.argv) == 1:
    import threading, time
    print("up", flush=True)
    while True:
        low()
        thread = threading.Thread(target=time.sleep, args=(0.0005,))
        thread.start()
        assert thread.native_id < threading.main_thread().native_id
        thread.join()
with open("/proc/sys/kernel/ns_last_pid", "w") as f: f.write("3000")
target = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE)
target.stdout.readline()
assert target.pid > 3000
for n in range(60):
    for words in ["backtrace", "--json"], ["inject", "--dry-run"]:
        subprocess.run([sys.argv[1], "-t", str(target.pid)] + words, check=True, stdout=subprocess.DEVNULL)
target.kill()
print("fine")
"""


@pytest.mark.pythons(min=(3, 8), count=1)
@pytest.mark.limit(300)
def test_threads_with_ids_below_the_main_ones(build, run, python, tmp_path):
    """Thread ids begin again from the lowest. (The process was once read by way of its first thread, and was lost when that thread just
    ended.)"""
    if os.getuid() or run(["unshare", "-p", "-f", "--mount-proc", "test", "-e", "/proc/sys/kernel/ns_last_pid"], check=None).returncode:
        pytest.skip("no right to make a pid namespace, or no choice of ids in it")
    script = tmp_path / "low.py"
    script.write_text(LOW_IDS)
    assert run(["unshare", "-p", "-f", "--kill-child", "--mount-proc", python.path, script, build.tool("probing")], timeout=240).stdout == "fine\n"


# ---- what cannot be read ------------------------------------------------------------------------------------


def refused(backtrace, pid, text, *options):
    done = backtrace(pid, *options, check=3)
    assert text in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.pythons(count=1)
def test_processes_that_cannot_be_read(backtrace, ask, spawn, python, build, tmp_path):
    for options in [], ["--stop"]:
        refused(backtrace, 2**22 - 1, "there is no process", *options)
    parent = globals()["python"](spawn, python, "import os, time\nif os.fork() == 0: os._exit(0)\nprint('up', flush=True)\ntime.sleep(1000)")
    zombie = int(open("/proc/%d/task/%d/children" % (parent.pid, parent.pid)).read().split()[0])
    assert until(lambda: state_of(zombie) == "Z")
    refused(backtrace, zombie, "is a zombie until its parent (process %d)" % parent.pid)
    if os.path.exists("/proc/2/comm") and open("/proc/2/comm").read() == "kthreadd\n":
        refused(backtrace, 2, "is a kernel thread")
    if os.getuid() == 0:
        shutil.copy(build.tool("probing"), str(tmp_path / "probing"))
        conftest.open_to_others(tmp_path)
        done = subprocess.run([str(tmp_path / "probing"), "-t", str(parent.pid), "backtrace"], stdout=subprocess.PIPE, cwd="/",
                              stderr=subprocess.PIPE, universal_newlines=True, preexec_fn=lambda: os.setuid(65534)) \
            if all(os.stat(str(p)).st_mode & 1 for p in tmp_path.parents) else None
        assert done is None or (done.returncode == 3 and "no permission" in done.stderr and len(done.stderr.splitlines()) == 1), done


def test_a_process_that_is_just_ending(backtrace, spawn):
    """The first process of a pid namespace has released its memory, and then waits until all others there are gone. One of them can be
    reaped only by this test, which traces it."""
    if os.getuid() or subprocess.run(["unshare", "-p", "-f", "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no right to make a pid namespace")

    def child_of(pid):
        return int(open("/proc/%d/task/%d/children" % (pid, pid)).read())
    outer = spawn(["unshare", "-p", "-f", "--kill-child", "sh", "-c", "sleep 1000 & echo up; wait"], ready="up")
    first = child_of(outer.pid)
    last = child_of(first)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long] + [ctypes.c_ulong] * 3
    assert libc.ptrace(0x4206, last, 0, 0) == 0, os.strerror(ctypes.get_errno())  # PTRACE_SEIZE
    try:
        os.kill(first, signal.SIGKILL)
        assert until(lambda: state_of(last) == "Z" and not open("/proc/%d/maps" % first).read())
        refused(backtrace, first, "process %d is just ending" % first)
        refused(backtrace, first, "process %d" % first, "--stop")
    finally:
        os.waitpid(last, 0)


def test_what_is_not_python(backtrace, ask, spawn):
    process = spawn(["sh", "-c", "echo up; exec sleep 1000"], ready="up")
    assert until(lambda: pathlib.Path("/proc/%d/comm" % process.pid).read_text() == "sleep\n" and state_of(process.pid) == "S")  # until the exec is over
    said = until(lambda: [s for s in [ask(process.pid)] if s["threads"][0]["consistent"]
                           and any("nanosleep" in (f["func"] or "") for f in s["threads"][0]["frames"][:3])])[0]  # and not from before the exec
    assert said["python"] is None and said["note"] == "no Python in this process: native frames only"
    text = backtrace(process.pid, "--stop").stdout
    assert "(no Python in this process: native frames only)" in text and "[sleep]\n" in text


@pytest.mark.pythons(min=(3, 11), max=(3, 11), shared=False, count=1)
def test_a_version_that_nobody_knows(backtrace, ask, spawn, python, tmp_path, run):
    exe = tmp_path / "python3.11"
    shutil.copy(os.path.realpath(python.path), str(exe))
    symbols = run(["readelf", "--dyn-syms", "-W", exe]).stdout
    value = int(re.search(r"([0-9a-f]+)\s+\d+ OBJECT .* Py_Version\n", symbols).group(1), 16)
    for segment in re.findall(r"LOAD\s+(0x\S+) (0x\S+) 0x\S+ (0x\S+)", run(["readelf", "-lW", exe]).stdout):
        offset, address, size = (int(x, 16) for x in segment)
        if address <= value < address + size:
            with open(str(exe), "r+b") as f:
                f.seek(offset + value - address)
                f.write(bytes([0xf0, 0, 99, 3, 0, 0, 0, 0]))
    process = spawn([exe, "-c", "print('up', flush=True); import time; time.sleep(1000)"], ready="up")
    said = ask(process.pid, "--stop")
    assert said["python"] is None and "the layout of CPython 3.99.0 in %s is not known" % exe in said["note"]
    assert said["threads"][0]["frames"] and all(f["type"] == "Native" for f in said["threads"][0]["frames"])


@pytest.mark.pythons(count=1)
def test_uninterruptible(backtrace, ask, spawn, python, build):
    """A thread in an uninterruptible sleep cannot be stopped, but it can be read."""
    code = "import ctypes, sys\nlib = ctypes.CDLL(sys.argv[1])\ndef stuck():\n    print('up', flush=True)\n    lib.wait_in_vfork(600)\nstuck()"
    process = globals()["python"](spawn, python, code, str(build.root / "tests" / "programs" / "dstate"))
    assert until(lambda: state_of(process.pid) == "D")
    thread = ask(process.pid, "--main")["threads"][0]
    assert python_frames(thread)[0][::2] == ["stuck", 5] and thread["consistent"]
    refused(backtrace, process.pid, "does not stop: it is in an uninterruptible system call", "--stop")
    assert state_of(process.pid) == "D"


@pytest.mark.pythons(count=1)
def test_stopped_by_a_signal(ask, spawn, python):
    process = globals()["python"](spawn, python, "print('up', flush=True)\nwhile True:\n    pass")
    process.send_signal(signal.SIGSTOP)
    assert until(lambda: state_of(process.pid) == "T")
    for options in [], ["--stop"]:
        thread = ask(process.pid, *options)["threads"][0]
        assert thread["consistent"] and python_frames(thread)[-1][0] == "<module>"
        assert thread["state"] == "stopped"
        assert until(lambda: state_of(process.pid) == "T"), "it stays stopped"


# ---- it does no harm ---------------------------------------------------------------------------------------


@pytest.mark.pythons(count=1)
def test_the_tool_is_killed_while_it_holds_the_target(spawn, python, build):
    """The tool gets INT, TERM or KILL at any time during a stop: the kernel lets the target go on."""
    code = "import threading, time\nthreading.stack_size(1 << 16)\n" \
           "for i in range(300): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n" \
           "print('up', flush=True)\nwhile True: time.sleep(0.001)"
    process = globals()["python"](spawn, python, code)
    killed = 0
    for i in range(24):
        tool = subprocess.Popen([build.tool("probing"), "-t", str(process.pid), "backtrace", "--stop"], stdout=subprocess.DEVNULL)
        try:
            tool.wait(timeout=0.002 * (i % 12))
        except subprocess.TimeoutExpired:
            tool.send_signal((signal.SIGINT, signal.SIGTERM, signal.SIGKILL)[i % 3])
        killed += tool.wait(timeout=240) < 0
        assert process.poll() is None

        def going_on():
            tasks = "/proc/%d/task" % process.pid
            return all(open("%s/%s/stat" % (tasks, t)).read().rsplit(")", 1)[1].split()[0] in "RS" for t in os.listdir(tasks))
        assert until(going_on), "a thread was left stopped"
        ticks = open("/proc/%d/status" % process.pid).read().split("voluntary_ctxt_switches:")[1].split()[0]
        assert until(lambda: open("/proc/%d/status" % process.pid).read().split("voluntary_ctxt_switches:")[1].split()[0] != ticks)
    assert killed > 0


INTERRUPTIBLE = """
import ctypes, os, signal, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
epoll, room, mask = libc.epoll_create1(0), ctypes.create_string_buffer(64), (ctypes.c_uint64 * 16)(1 << 9)
read, write = os.pipe()
libc.epoll_ctl(epoll, 1, read, (ctypes.c_uint32 * 3)(1))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
semaphore = libc.semget(0, 1, 0o600)
down, up = (ctypes.c_short * 3)(0, -1, 0), (ctypes.c_short * 3)(0, 1, 0)
calls = { # and what ends it
    "epoll_wait": (lambda: libc.epoll_wait(epoll, room, 1, -1), lambda: os.write(write, b"x")),
    "sigtimedwait": (lambda: libc.sigtimedwait(mask, None, None), lambda: os.kill(os.getpid(), signal.SIGUSR1)),
    "semop": (lambda: libc.semop(semaphore, down, 1), lambda: libc.semop(semaphore, up, 1)),
    "poll": (lambda: libc.poll(None, 0, 300), int),
    "usleep": (lambda: libc.usleep(300000), int),
}
for name, (call, end) in calls.items():
    told, said = threading.Event(), set()
    def listen():
        sys.stdin.readline()
        told.set()
        end()
    threading.Thread(target=listen).start()
    print("in", name, flush=True)
    while not told.is_set():
        said.add(call() == -1 and ctypes.get_errno())
    print(name, *said, flush=True)
libc.semctl(semaphore, 0, 0)
"""


@pytest.mark.pythons(count=1)
def test_a_stop_interrupts_no_system_call(backtrace, spawn, python):
    """Not even those that the kernel does not restart by itself, as long as they have no time-out."""
    process = spawn([python.path, "-c", INTERRUPTIBLE], stdin=subprocess.PIPE)
    for name in "epoll_wait", "sigtimedwait", "semop", "poll", "usleep":
        wait_for_line(process, "in " + name)
        wait_until_asleep(process.pid)
        for _ in range(4):
            backtrace(process.pid, "--stop")
        process.stdin.write(b"go on\n")
        process.stdin.flush()
        assert wait_for_line(process, name + " ") == name + " False"
    assert process.wait(timeout=240) == 0
