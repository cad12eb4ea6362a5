# SPDX-License-Identifier: Apache-2.0
"""probing inject with targets in every state of the table of failures: it is done, or refused for a named reason."""
import glob
import json
import os
import random
import signal
import subprocess
import time

import conftest
import pytest
from gdb_tools import GDB, gdb_command
from inject_helpers import HEAD, SPIN, by_pending_call, finish, probing, program, refused, status, target, until_sampled, wait_until
from record_until import record_until

FIXTURES = (probing, program, record_until, target)  # tests ask for them by name


# ---- what the target is doing -----------------------------------------------------------------------

DEEP = HEAD + """
def outermost(): return middle()
def middle():
    for _ in [0]: return innermost()
def innermost():
    while go(): sum(range(1000))
def waits():
    while go(): time.sleep(0.01)
t = threading.Thread(target=waits); t.start()
outermost(); t.join()
print("right")
"""


@pytest.mark.pythons(count=1)
def test_a_late_attach_sees_the_frames_that_are_there_already(probing, python, target, record_until, convert, sql, tmp_path):
    process = target(python, DEEP)
    trace = tmp_path / "late.zst"
    want = {"outermost", "middle", "innermost", "waits"}

    def seen(db):
        return want <= {r[0] for r in sql(db, "SELECT DISTINCT func FROM hot_functions")}

    probing(process.pid, "inject", "-r", "100", "-o", trace)
    until_sampled(process.pid)
    wait_until(lambda: seen(convert(trace, out=tmp_path / "late.db", options=["-q", "-f"])))
    assert finish(process) == (0, "right", "")
    early = record_until(seen, DEEP.replace('os.environ.get("TEST_END", "/")', "sys.argv[-1]"), python=python)
    assert seen(convert(trace)) and seen(convert(early.trace))


COPIES = HEAD + """
import mmap
lines = [line.split() for line in open("/proc/self/maps") if "libc.so.6" in line or "libpython" in line]
copies = []
for path in {line[-1] for line in lines}:
    with open(path, "rb") as f:
        copies.append(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY))  # lower than what is there
while go(): time.sleep(0.01)
print("right")
"""


@pytest.mark.pythons(count=1)
def test_files_mapped_as_data_are_not_libraries(probing, python, target):
    """LLDB maps the libraries whose symbols it reads, its own libc among them, whole and at lower addresses."""
    process = target(python, COPIES)
    assert probing(process.pid, "inject").returncode == 0
    assert finish(process) == (0, "right", "")


@pytest.mark.pythons(min=(3, 8), max=(3, 8), shared=True, count=1)
def test_a_libpython_mapped_as_data_is_no_second_python(probing, python, target):
    """The version can be read there as well, in 3.8; but nothing in that copy was ever initialised."""
    process = target(python, COPIES)
    said = json.loads(probing(process.pid, "backtrace", "--json").stdout)
    assert said["note"] is None and said["threads"][0]["frames"]
    assert finish(process) == (0, "right", "")


# As setproctitle does it, in Ray's and gunicorn's workers.
TITLED = HEAD.replace('print("up"', """
import ctypes
first, end_of = map(int, open("/proc/self/stat").read().rsplit(")", 1)[1].split()[45:47])
ctypes.memmove(first, b"ray::Train worker".ljust(end_of - first, bytes(1)), end_of - first)
print("up\"""") + """
while go(): time.sleep(0.01)
print("right")
"""


@pytest.mark.pythons(count=1)
def test_one_that_gave_itself_a_title(build, probing, python, target, run, convert, sql, tmp_path):
    process = target(python, TITLED)
    trace = tmp_path / "titled.zst"
    probing(process.pid, "inject", "-o", trace)
    [command] = [p["command"] for p in json.loads(run([build.tool("probing"), "list", "--json"]).stdout) if p["pid"] == process.pid]
    assert finish(process) == (0, "right", "")
    assert (command, sql(convert(trace), "SELECT command FROM trace")) == ("ray::Train worker", [("ray::Train worker",)])


HOLDS_GIL = HEAD + """
import ctypes
ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)  # to the end of the input
print("right")
"""
SPINS_IN_C = HEAD + """
n = pow(7, 20000000)
print("right")
"""


@pytest.mark.pythons(count=1)
@pytest.mark.parametrize("source", [HOLDS_GIL, pytest.param(SPINS_IN_C, marks=pytest.mark.slow)], ids=["holds the GIL in C", "computes in C"])
def test_one_that_lets_nobody_run_python(probing, python, target, source):
    process = target(python, source, stdin=subprocess.PIPE)
    if source is HOLDS_GIL:
        conftest.wait_until_asleep(process.pid)
    assert "is being recorded" in probing(process.pid, "inject").stdout
    done = probing(process.pid, "eval", "--timeout", "0.5", "1 + 1", check=None)
    assert done.returncode in (1, 3) and "no answer" in done.stderr, (done.stdout, done.stderr)
    assert "no longer recorded" in probing(process.pid, "stop").stdout
    if source is HOLDS_GIL:
        assert finish(process) == (0, "right", "")


@pytest.mark.pythons(count=1)
def test_one_with_little_address_space(probing, python, target):
    process = target(python, HEAD + """
import resource
resource.setrlimit(resource.RLIMIT_AS, (400 << 20,) * 2)
while go(): time.sleep(0.01)
print("right")
""")
    refused(probing(process.pid, "inject", check=None), "too little space (ulimit -v): recording would take it from the program")
    assert finish(process) == (0, "right", "")


# Waits in a futex: a lock, a join, the GIL. Waits in poll, select, sleep. Each would wait for 600 s, and is ended by a signal after the
# injection; the GIL is released when its holder has read its input to the end.
BLOCKING = {
    "lock": "lock = threading.Lock(); lock.acquire(); lock.acquire(timeout=n)",
    "join": "t = threading.Thread(target=time.sleep, args=(n + 1,), daemon=True); t.start(); t.join(n)",
    "GIL": "t = threading.Thread(target=has_it); t.start(); t.join()",
    "poll": "select.poll().poll(n * 1000)",
    "select": "select.select([], [], [], n)",
    "sleep": "time.sleep(n)",
}
BLOCKS = HEAD + """
import ctypes, select, signal
n = float(sys.argv[1])
told = []
class Told(BaseException): pass
def tell(*_):
    told.append("by a signal")
    raise Told
def has_it():
    ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)
    told.append("by the end of the input")
signal.signal(signal.SIGUSR1, tell)
print("blocks", flush=True)
try:
    %s
except Told:
    pass
print("right" if told else "early")
"""


@pytest.mark.pythons(count=1)
def test_one_that_is_blocked(build, target, python):
    """The agent gets in, and each thread goes on waiting."""
    waiting = []
    for name, source in BLOCKING.items():
        process = target(python, BLOCKS % source, ready="blocks", stdin=subprocess.PIPE)
        if name != "GIL":  # a thread that waits for the GIL wakes up again and again
            conftest.wait_until_asleep(process.pid)
        tool = subprocess.Popen([build.tool("probing"), "-t", str(process.pid), "inject"], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, universal_newlines=True)
        waiting.append((process, tool))
    for (process, tool), name in zip(waiting, BLOCKING):
        assert "is being recorded" in tool.communicate(timeout=240)[0], name
        if name != "GIL":
            process.send_signal(signal.SIGUSR1)
        assert finish(process) == (0, "right", ""), name


LOADER = """
#include <unistd.h>
__attribute__((constructor)) static void slow(void) { char c; write(1, "in\\n", 3); read(0, &c, 1); }
"""
IN_LOADER = """
import ctypes, sys
print("up", flush=True)
ctypes.CDLL(sys.argv[1])
print("right", flush=True)
input()
"""


@pytest.mark.pythons(count=1)
def test_the_loaders_lock_is_held(probing, python, target, program):
    library = program("slow.so", LOADER, "-shared", "-fPIC")
    process = target(python, IN_LOADER, library, ready="in", stdin=subprocess.PIPE)
    refused(probing(process.pid, "inject", "--method", "native", check=None), "in the loader")
    process.stdin.write(b"x")
    process.stdin.flush()
    assert b"right" in process.stdout.readline()
    assert "is being recorded" in probing(process.pid, "inject").stdout
    out, _ = process.communicate(b"\n", timeout=240)
    assert process.returncode == 0


IN_MALLOC = """
#include <stddef.h>
#include <unistd.h>
void *__libc_malloc(size_t);
void *malloc(size_t n) {
    char c;
    if (n == 777777 || n == 777778)
        write(1, "in malloc\\n", 10);
    if (n == 777777)
        read(0, &c, 1);
    if (n == 777778)
        sleep(600);
    return __libc_malloc(n);
}
"""
MALLOCS = """
import ctypes, sys, threading
libc = ctypes.CDLL(None)
threads = [threading.Thread(target=libc.malloc, args=(777777,)) for _ in range(int(sys.argv[1]))]
for t in threads: t.start()
for t in threads: t.join()
print("right", flush=True)
input()
"""


@pytest.mark.pythons(count=1)
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_threads_in_malloc(probing, python, target, program, threads):
    library = program("slowmalloc.so", IN_MALLOC, "-shared", "-fPIC")
    process = target(python, MALLOCS, threads, ready=None, stdin=subprocess.PIPE, env=dict(os.environ, LD_PRELOAD=str(library)))
    for _ in range(threads):
        conftest.wait_for_line(process, "in malloc")
    refused(probing(process.pid, "inject", "--method", "native", check=None), "in malloc (malloc)")
    process.stdin.write(b"x" * threads)
    process.stdin.flush()
    assert b"right" in process.stdout.readline()
    assert "is being recorded" in probing(process.pid, "inject").stdout
    process.communicate(b"\n", timeout=240)
    assert process.returncode == 0


ALWAYS_IN_MALLOC = HEAD + """
import ctypes
threading.Thread(target=ctypes.CDLL(None).malloc, args=(777778,), daemon=True).start()
while go(): sum(range(1000))
"""


def eval_by_the_interpreter(probing, python, target, program):
    library = program("slowmalloc.so", IN_MALLOC, "-shared", "-fPIC")
    process = target(python, ALWAYS_IN_MALLOC, ready="in malloc", env=dict(os.environ, LD_PRELOAD=str(library)))
    assert "42" == probing(process.pid, "eval", "6 * 7").stdout.strip()
    done = probing(process.pid, "inject").stdout
    assert "loaded by " + ("a pending call" if python.version < (3, 14) else "the interpreter's remote debugging") in done


@pytest.mark.pythons(min=(3, 7), count=1)
def test_eval_where_only_the_interpreter_lets_us_in(probing, python, target, program):
    """There is no agent, and no safe point for a native call: a pending call or PEP 768 is used."""
    eval_by_the_interpreter(probing, python, target, program)


@pytest.mark.slow
@pytest.mark.pythons(min=(3, 7))
def test_eval_where_only_the_interpreter_lets_us_in_everywhere(probing, python, target, program):
    eval_by_the_interpreter(probing, python, target, program)


MANY = HEAD + """
hold = threading.Event()
threads = [threading.Thread(target=hold.wait) for _ in range(1200)]
threading.stack_size(128 << 10)
for t in threads: t.start()
print("all", flush=True)
while go(): time.sleep(0.01)
hold.set()
for t in threads: t.join()
print("right")
"""


@pytest.mark.pythons(min=(3, 8), max=(3, 13), count=1)
def test_twelve_hundred_threads(probing, python, target):
    process = target(python, MANY, ready="all")
    assert len(os.listdir("/proc/%d/task" % process.pid)) == 1201

    assert probing(process.pid, "eval", "threading.active_count()").stdout == "1201\n"
    probing(process.pid, "stop")
    by_pending_call(probing, process.pid)
    probing(process.pid, "stop")
    assert "is being recorded" in probing(process.pid, "inject").stdout
    assert finish(process) == (0, "right", "")


@pytest.mark.pythons(min=(3, 8), max=(3, 13), count=1)
def test_a_tool_that_gets_no_processor(build, python, target):
    """The tool is stopped in the middle, for longer than a thread has to stop: when it goes on, all threads stop at once, as asked."""
    process = target(python, MANY.replace("1200", "100"), ready="all")

    def some_are_traced():
        texts = [open(path).read() for path in glob.glob("/proc/%d/task/*/status" % process.pid)]
        return 0 < sum("TracerPid:\t0\n" not in text for text in texts) < len(texts)

    found = False
    while not found:
        tool = subprocess.Popen([build.tool("probing"), "-t", str(process.pid), "backtrace", "--python", "--stop"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        while tool.poll() is None and status(process.pid, "TracerPid") == "0":
            pass
        tool.send_signal(signal.SIGSTOP)
        wait_until(lambda: tool.poll() is not None or status(tool.pid, "State")[0] == "T")
        found = some_are_traced()
        if found:
            time.sleep(1.1)  # a thread has a second to stop
        tool.send_signal(signal.SIGCONT)
        out, err = tool.communicate(timeout=240)
        assert tool.returncode == 0 and out.count("Thread ") == 101, err
    assert finish(process) == (0, "right", "")


SUBINTERPRETER = HEAD + """
try: import _xxsubinterpreters as sub
except ImportError: import _interpreters as sub
i = sub.create()
def run():
    run = getattr(sub, "run_string", None) or sub.exec
    run(i, "import time\\nend = time.monotonic() + %s\\nwhile time.monotonic() < end: sum(range(1000))" % sys.argv[1])
t = threading.Thread(target=run); t.start()
while go(): time.sleep(0.01)
t.join()
print("right")
"""


@pytest.mark.pythons(min=(3, 8), count=1)
def test_subinterpreters(probing, python, target):
    process = target(python, SUBINTERPRETER, 2)
    assert "is being recorded" in probing(process.pid, "inject").stdout
    assert finish(process)[:2] == (0, "right")


FINALISING = """
import atexit, os
atexit.register(os.read, 0, 1)  # to the end of the input
print("up", flush=True)
"""
EXITING = """
import ctypes
libc = ctypes.CDLL(None)
libc.on_exit(ctypes.cast(libc.getchar, ctypes.c_void_p), None)  # to the end of the input
libc.on_exit.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
print("up", flush=True)
libc.exit(3)
"""


@pytest.mark.pythons(count=1)
def test_one_that_is_finalising(probing, python, target):
    process = target(python, FINALISING, stdin=subprocess.PIPE)
    assert "is being recorded" in probing(process.pid, "inject").stdout
    assert finish(process) == (0, "", "")


@pytest.mark.slow
@pytest.mark.pythons(count=1)
def test_one_that_is_exiting(probing, python, target):
    process = target(python, EXITING, stdin=subprocess.PIPE)
    wait_until(lambda: status(process.pid, "State")[0] == "S")
    refused(probing(process.pid, "inject", "--method", "native", check=None), "in exit")
    assert finish(process) == (3, "", "")


VFORK = """
#include <stdio.h>
#include <unistd.h>
int main(void) {
    puts("up"); fflush(stdout);
    if (vfork() == 0) { sleep(5); _exit(0); }
    puts("right"); fflush(stdout);
}
"""


@pytest.mark.slow
def test_an_uninterruptible_one(probing, spawn, program):
    process = spawn([program("vfork", VFORK)], ready="up")
    wait_until(lambda: status(process.pid, "State")[0] == "D")
    refused(probing(process.pid, "inject", "--force", check=None), "uninterruptible system call")
    assert b"right" in process.stdout.readline()
    assert process.wait(timeout=240) == 0


def test_a_program_without_python(build, run, probing, spawn):
    """A mistyped pid: no command loads anything into that process."""
    process = spawn(["sleep", "600"])
    wait_until(lambda: os.path.basename(os.readlink("/proc/%d/exe" % process.pid)) == "sleep")
    asked = [probing(process.pid, *words, check=3) for words in (["inject"], ["inject", "--dry-run"], ["eval", "1"], ["repl"])]
    if GDB:
        asked.append(run(gdb_command(build, process.pid, "probing inject"), check=None))
    for done in asked:
        assert "there is no CPython in process %d" % process.pid in done.stderr and done.stdout == ""
    assert len(os.listdir("/proc/%d/task" % process.pid)) == 1 and os.listdir(os.environ["PROBING_RUN_DIR"]) == []
    assert "is being recorded" in probing(process.pid, "inject", "--force").stdout


@pytest.mark.pythons(count=2)
def test_the_id_of_a_thread(run, build, probing, python, target):
    """As htop shows it, and as a person then types it: its process is meant."""
    process = target(python, "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n" + SPIN)
    thread = max(map(int, os.listdir("/proc/%d/task" % process.pid)))
    assert thread != process.pid
    assert "process %d is being recorded" % process.pid in probing(thread, "inject", "-o", "t.zst").stdout
    assert probing(thread, "eval", "6 * 7").stdout == "42\n"
    assert run([build.tool("probing"), "query", "--csv", thread, "SELECT pid FROM trace"]).stdout == "pid\n%d\n" % process.pid
    assert "process %d is no longer recorded" % process.pid in probing(thread, "stop").stdout


EXECS = """
import os, sys, threading, time
left = int(sys.argv[1])
if left == 8:
    print("up", flush=True)
again = sys.executable, [sys.executable, "-S", sys.argv[0], str(left - 1)]
def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
for i in range(3):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
if left == 0: # until the injector has said how it went
    sys.stdin.read()
    print("right", flush=True)
    os._exit(0)
spin(0.04)
if left % 2:
    os.execv(*again)
else: # from another thread than the first
    threading.Thread(target=os.execv, args=again).start()
    time.sleep(60)
"""


@pytest.mark.pythons(count=1)
def test_a_process_that_begins_another_program_meanwhile(probing, python, target):
    """What was learnt about the old program does not apply to the new one: its addresses are never called."""
    said = ""
    for _ in range(15):
        process = target(python, EXECS, 8, stdin=subprocess.PIPE)
        time.sleep(random.uniform(0, 0.2))
        said = probing(process.pid, "inject").stdout
        assert "recorded into" in said
        assert finish(process) == (0, "right", "")
        if "began another program meanwhile" in said:
            return
    pytest.skip("no exec fell into one of 15 injections")


FAILING_EXECS = HEAD + """
left = True
def execs():
    while left:
        try: os.execv(sys.argv[2], sys.argv[2:])
        except OSError: pass
t = threading.Thread(target=execs); t.start()
print("execs", flush=True)
sys.stdin.read()
left = False; t.join()
print("right")
"""


@pytest.mark.pythons(count=1)
def test_threads_are_made_between_execs_that_fail(probing, python, spawn, tmp_path):
    """While a thread is in execve(), clone() gives EAGAIN to the other threads."""
    text = tmp_path / "no_program"
    text.write_text("neither ELF nor #!")
    text.chmod(0o755)
    (tmp_path / "target.py").write_text(FAILING_EXECS)
    process = spawn([python.path, tmp_path / "target.py", 60, text], ready="execs", cwd=str(tmp_path), stdin=subprocess.PIPE,
                    stderr=subprocess.PIPE)
    assert "is being recorded" in probing(process.pid, "inject").stdout
    assert finish(process) == (0, "right", "")
