# SPDX-License-Identifier: Apache-2.0
"""A fork while one of the agent's threads is within the dynamic loader, or has or wants the GIL: the child lacks that thread, and goes on all
the same."""
import os
import shutil
import subprocess
import time

import pytest
from conftest import thread_names
from inject_helpers import finish, probing, program, target, wait_until
from record_until import record_until

FIXTURES = (probing, program, record_until, target)  # tests ask for them by name

PROGRAM = """
import ctypes, os, sys, time
ours = ctypes.CDLL(os.environ["FORK_IN_LOAD"])
held, fork_then = ours.held, ours.fork_then  # looked up before the loader is busy
ours.arm()
print("up", flush=True)
if len(sys.argv) > 2:
    ctypes.CDLL(sys.argv[1])
end = os.environ.get("TEST_END", sys.argv[-1])
while not held() and not os.path.exists(end):
    time.sleep(.001)
was = held()
print(fork_then(os.environ["FRESH"].encode(), b"libc.so.6"), was)
"""


@pytest.fixture
def env(build, tmp_path):
    ours, fresh = str(build.root / "tests/programs/fork_in_load"), str(tmp_path / "fresh.so")
    shutil.copy(str(build.root / "tests/programs/fake_nvml"), fresh)
    for name in ("libnvidia-ml.so.1", "libcuda.so.1"):
        shutil.copy(fresh, str(tmp_path / name))
    return dict(os.environ, LD_PRELOAD=ours, FORK_IN_LOAD=ours, FRESH=fresh, LD_LIBRARY_PATH=str(tmp_path))


def test_while_we_look(record_until, sql, env):
    """The agent reads again and again what is loaded, without a lock that a fork could copy."""
    done = record_until(lambda db: sql(db, "SELECT count(*) > 4 FROM memory") == [(1,)], PROGRAM, options=["--metrics", "0.2"], env=env)
    assert done.stdout in ("up\n0 0\n", "up\n0 1\n")


def test_while_we_load(record_until, sql, tmp_path, env):
    """NVML is loaded once the program has to do with GPUs."""
    done = record_until(lambda db: sql(db, "SELECT count(*) > 0 FROM gpu_metrics") == [(1,)], PROGRAM, str(tmp_path / "libcuda.so.1"),
                        options=["--metrics", "0.2"], env=env)
    assert done.stdout == "up\n0 1\n"


def test_while_we_are_loaded(pythons, target, probing, env):
    """The agent is loaded by the thread that an injection makes."""
    process = target(pythons[0], PROGRAM, env=env)
    probing(process.pid, "inject", check=None)
    code, out, err = finish(process)
    assert (code, out) == (0, "0 1"), err


C_FORK = """
#include <unistd.h>
int fork_when(int fd) { char byte; write(1, "waits\\n", 6); read(fd, &byte, 1); return fork(); }
"""
# The child takes the interpreter's lock, and passes it from thread to thread. Returns its status, or "hangs".
BY_C = """
import ctypes, os, signal, sys, threading, time
ours = getattr(ctypes, sys.argv[1])(sys.argv[2])
read, write = os.pipe()
print(os.getpid(), write, flush=True)
pid = ours.fork_when(read)
if pid == 0:
    def work():
        for i in range(50):
            sum(range(2000))
    threads = [threading.Thread(target=work) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(7)
end, status = time.time() + 200, 0
while time.time() < end and not status:
    status = os.waitpid(pid, os.WNOHANG)[1]
    time.sleep(.01)
print(status >> 8 or "hangs", flush=True)
if not status:
    os.kill(pid, signal.SIGKILL)
sys.stdin.read()
"""


@pytest.fixture
def by_c(python, spawn, program, build, tmp_path):
    def start(library):
        shared, script = program("fork.so", C_FORK, "-shared", "-fPIC"), tmp_path / "by_c.py"
        script.write_text(BY_C)
        process = spawn([build.tool("probing-record"), "-o", tmp_path / "t.zst", python.path, script, library, shared],
                        stdin=subprocess.PIPE, text=True)
        numbers = [int(n) for n in process.stdout.readline().split()]
        assert process.stdout.readline() == "waits\n"  # C code has control, and if it is to, the GIL: from here on nobody else gets it
        return [process] + numbers

    return start


def test_by_c_while_an_evaluation_waits(by_c, probing, build, spawn):
    """C code that holds the GIL forks while a thread of the agent waits for the GIL: the child would wait for ever for that thread."""
    process, pid, end = by_c("PyDLL")
    client = spawn([build.tool("probing"), "-t", pid, "eval", "--timeout", "200", "print('evaluated')"], text=True)
    wait_until(lambda: "probing-gil" in thread_names(pid).values())
    time.sleep(.2)  # by then it has asked for the GIL; if not, the fork is let through all the same
    with open("/proc/%d/fd/%d" % (pid, end), "w") as f:
        f.write("x")
    assert process.stdout.readline() == "7\n"
    assert client.communicate(timeout=240)[0] == "evaluated\n"
    assert process.communicate("", timeout=240)[0] == "" and process.returncode == 0


def test_by_c_while_an_evaluation_has_the_gil(by_c, probing):
    process, pid, end = by_c("CDLL")
    probing(pid, "eval", "import ctypes, os; os.write(%d, b'x'); ctypes.PyDLL(None).usleep(30000)" % end)
    assert process.stdout.readline() == "7\n"
    assert process.communicate("", timeout=240)[0] == "" and process.returncode == 0


C_LIBRARY = r"""
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int taken;
static void prepare(void) { pthread_mutex_lock(&lock); taken = 1; }
static void parent(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void loaded(void) { pthread_atfork(prepare, parent, parent); }
int is_taken(void) { return taken; }
int use(void) { pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock); return 1; }
int fork_once(void) {
    int status = 0, pid = fork();
    if (!pid) _exit(7);
    return pid > 0 && waitpid(pid, &status, 0) == pid ? status >> 8 : -1;
}
"""
LIBRARY = """
import ctypes, sys
print("up", flush=True)
sys.stdin.readline()
ours = ctypes.PyDLL(sys.argv[1])
print("loaded", flush=True)
while not hasattr(sys, "evaluating"): pass
print(ours.fork_once(), flush=True)
sys.stdin.read()
"""
# Holding the GIL, it waits for the library's lock, which a fork holds.
EVALUATED = "import __main__, sys, time; sys.evaluating = 1; end = time.time() + 60\n" \
            "while not __main__.ours.is_taken() and time.time() < end: pass\nprint(__main__.ours.use())"


@pytest.mark.pythons(count=2)
def test_a_librarys_fork_handler_has_a_lock(probing, program, build, spawn, python, tmp_path):
    """The library was loaded after the agent's first evaluation. Its handler would run before the agent's, which lends the GIL to the
    evaluated code."""
    shared, script = program("library.so", C_LIBRARY, "-shared", "-fPIC"), tmp_path / "library.py"
    script.write_text(LIBRARY)
    process = spawn([build.tool("probing-record"), "-o", tmp_path / "t.zst", python.path, script, shared], stdin=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    pid = int(subprocess.run(["pgrep", "-P", str(process.pid)], stdout=subprocess.PIPE, universal_newlines=True).stdout or process.pid)
    assert probing(pid, "eval", "print(1)").stdout == "1\n"
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "loaded\n"
    assert probing(pid, "eval", "--timeout", "100", EVALUATED).stdout == "1\n"
    assert process.stdout.readline() == "7\n"
    assert process.communicate("", timeout=240)[0] == "" and process.returncode == 0


C_SLOW = r"""
#include <pthread.h>
#include <time.h>
#include <unistd.h>
static volatile int asked, entered;
static void prepare(void) {
    asked = 1;
    for (int i = 0; asked && i < 30000 && !entered; i++) nanosleep(&(struct timespec){0, 1000000}, NULL);
}
__attribute__((constructor)) static void loaded(void) { pthread_atfork(prepare, NULL, NULL); }
int is_asked(void) { return asked; }
void enter(void) { entered = 1; usleep(50000); }
int fork_when(int unused) { return fork(); }
"""
# A thread reports when the fork has begun.
SLOWLY = BY_C.replace("ours = ", """print(os.getpid(), flush=True)
sys.stdin.readline()
sys.ours = ctypes.PyDLL(sys.argv[2])
def tell():
    while not sys.ours.is_asked(): time.sleep(.001)
    print("asked", flush=True)
threading.Thread(target=tell).start()
ours = """).replace("print(os.getpid(), write, flush=True)", "")


@pytest.mark.pythons(count=2)
@pytest.mark.parametrize("first", [True, False])  # whether that is the first evaluation
def test_a_fork_that_has_begun(first, probing, program, build, spawn, python, tmp_path):
    """The fork is in another handler, already past the agent's, when an evaluation begins and holds the GIL until after the fork."""
    shared, script = program("slow.so", C_SLOW, "-shared", "-fPIC"), tmp_path / "slow.py"
    script.write_text(SLOWLY)
    process = spawn([build.tool("probing-record"), "-o", tmp_path / "t.zst", python.path, script, "CDLL", shared], stdin=subprocess.PIPE, text=True)
    pid = process.stdout.readline().strip()
    if not first:
        assert probing(pid, "eval", "print(1)").stdout == "1\n"
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "asked\n"
    assert probing(pid, "eval", "--timeout", "100", "import sys; sys.ours.enter(); print(2)").stdout == "2\n"
    assert process.stdout.readline() == "7\n"
    assert process.communicate("", timeout=240)[0] == "" and process.returncode == 0


# The child of a fork that calls no handlers has neither the agent's threads nor its live file.
UNHANDLED = """
import ctypes, os, probing, signal, sys, time
with probing.span("before"): pass
bit = 1 << (signal.SIGTERM - 1)
while not int([l for l in open("/proc/self/status") if l.startswith("SigCgt")][0].split()[1], 16) & bit: time.sleep(.01)
for end in os._exit, os.abort, lambda: os.kill(os.getpid(), signal.SIGTERM), lambda: int("x"):
    pid = ctypes.PyDLL(None).syscall(57)  # fork
    if pid == 0:
        with probing.span("child"): pass
        os._exit(3) if end is os._exit else end()
        os._exit(0)
    print(os.waitpid(pid, 0)[1], end=" ", flush=True)
"""


@pytest.mark.pythons(count=2)
def test_a_fork_without_handlers(build, record, convert, sql, python):
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    done = record(UNHANDLED, python=python, env=env)
    assert done.stdout == "768 6 15 256 ", done.stderr
    assert sql(convert(done.trace), "SELECT name FROM spans") == [("before",)]


ALL_THE_TIME = """
import os, sys, time
print("up", flush=True)
end = time.time() + 600  # four hundred evaluations may take minutes on a busy machine
while not os.path.exists(sys.argv[1]) and time.time() < end:
    pid = os.fork()
    if not pid:
        sys.exit(0)
    late = time.time() + 200
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.time() > late:
            print("hangs", flush=True)
            os.kill(pid, 9)
        time.sleep(.0005)
print("done", flush=True)
"""


@pytest.mark.parametrize("times", [100, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.pythons(first=True)
def test_exit_of_a_child_while_an_evaluation_begins(probing, build, spawn, python, tmp_path, times):
    """The evaluation takes exit()'s lock, which nobody releases in a child if a thread of its parent held it."""
    script, end = tmp_path / "all_the_time.py", tmp_path / "end"
    script.write_text(ALL_THE_TIME)
    process = spawn([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", "--no-symbols", python.path, script, end], text=True)
    assert process.stdout.readline() == "up\n"
    pid = int(subprocess.run(["pgrep", "-P", str(process.pid)], stdout=subprocess.PIPE, universal_newlines=True).stdout or process.pid)
    for _ in range(times):
        assert probing(pid, "eval", "print(1)").stdout == "1\n"
    end.touch()
    assert process.communicate(timeout=240)[0] == "done\n" and process.returncode == 0


# CPython's lock of its list of thread states: an evaluation's thread releases it late, when it has made its own.
C_LATE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <semaphore.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
int sem_post(sem_t *s) {
    static __thread int posts;
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    if (!strcmp(name, "probing-gil") && posts++ < 2)
        nanosleep(&(struct timespec){0, 200000000}, NULL);
    return ((int (*)(sem_t *))dlsym(RTLD_NEXT, "sem_post"))(s);
}
"""


@pytest.mark.pythons(min=(3, 8), max=(3, 11), count=2)
def test_a_fork_while_a_thread_of_ours_makes_its_state(probing, program, build, spawn, python, tmp_path):
    """The child of os.fork() takes that lock before it makes it anew: nobody would ever release it there."""
    script, end, shared = tmp_path / "all_the_time.py", tmp_path / "end", program("late.so", C_LATE, "-shared", "-fPIC", "-ldl")
    script.write_text(ALL_THE_TIME)
    process = spawn([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", "--no-symbols", python.path, script, end], text=True,
                    env=dict(os.environ, LD_PRELOAD=str(shared)))
    assert process.stdout.readline() == "up\n"
    pid = int(subprocess.run(["pgrep", "-P", str(process.pid)], stdout=subprocess.PIPE, universal_newlines=True).stdout or process.pid)
    for _ in range(3):
        assert probing(pid, "eval", "print(1)").stdout == "1\n"
    end.touch()
    assert process.communicate(timeout=240)[0] == "done\n" and process.returncode == 0
