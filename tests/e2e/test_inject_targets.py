# SPDX-License-Identifier: Apache-2.0
"""probing inject: targets in every state of the failure table (ARCHITECTURE.md): done, or refused by a named reason."""
import os
import random
import pathlib
import re
import shutil
import subprocess
import time

import conftest
import pytest
from gdb_tools import GDB, gdb_command, needs_gdb
from inject_helpers import HEAD, SPIN, finish, probing, program, refused, status, target, wait_until  # noqa: F401

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do that")


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
def test_a_late_attach_sees_the_frames_that_are_there_already(probing, python, target, record, convert, sql, tmp_path):
    process = target(python, DEEP, 2)
    trace = tmp_path / "late.zst"
    probing(process.pid, "inject", "-r", "100", "-o", trace)
    assert finish(process) == (0, "right", "")
    early = record(DEEP, "1", python=python)
    names = []
    for t in (trace, early.trace):
        db = convert(t)
        rows = sql(db, "SELECT DISTINCT func FROM hot_functions")
        names.append({r[0] for r in rows})
    want = {"outermost", "middle", "innermost", "waits"}
    assert want <= names[0] and want <= names[1]


HOLDS_GIL = HEAD + """
import ctypes
ctypes.PyDLL(None).usleep(int(float(sys.argv[1]) * 1e6))
print("right")
"""
SPINS_IN_C = HEAD + """
n = pow(7, 20000000)
print("right")
"""


@pytest.mark.pythons(count=1)
@pytest.mark.parametrize("source", [HOLDS_GIL, pytest.param(SPINS_IN_C, marks=pytest.mark.slow)], ids=["holds the GIL in C", "computes in C"])
def test_one_that_lets_nobody_run_python(probing, python, target, source):
    process = target(python, source, 4)
    assert "is being recorded" in probing(process.pid, "inject").stdout
    done = probing(process.pid, "eval", "--timeout", "0.5", "1 + 1", check=None)
    assert done.returncode in (1, 3) and "no answer" in done.stderr, (done.stdout, done.stderr)
    assert "no longer recorded" in probing(process.pid, "stop").stdout
    if source is HOLDS_GIL:
        assert finish(process) == (0, "right", "")


# In a futex: a lock, a join, the GIL. In poll, select, sleep.
BLOCKING = {
    "lock": "lock = threading.Lock(); lock.acquire(); lock.acquire(timeout=n)",
    "join": "t = threading.Thread(target=time.sleep, args=(n + 1,), daemon=True); t.start(); t.join(n)",
    "GIL": "usleep = ctypes.PyDLL(None).usleep; t = threading.Thread(target=usleep, args=(int(n * 1e6),)); t.start(); t.join()",
    "poll": "select.poll().poll(n * 1000)",
    "select": "select.select([], [], [], n)",
    "sleep": "time.sleep(n)",
}
BLOCKS = HEAD + """
import ctypes, select
n = float(sys.argv[1])
print("blocks", flush=True)
began = time.monotonic()
%s
took = time.monotonic() - began
print("right" if n * 0.999 <= took else took)
"""


@pytest.mark.pythons(count=1)
def test_one_that_is_blocked(build, target, python):
    """The agent gets in, and each waits as long as it would have."""
    waiting = []
    for source in BLOCKING.values():
        process = target(python, BLOCKS % source, 3, ready="blocks")
        tool = subprocess.Popen([build.tool("probing"), "-t", str(process.pid), "inject"], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, universal_newlines=True)
        waiting.append((process, tool))
    for (process, tool), name in zip(waiting, BLOCKING):
        assert "is being recorded" in tool.communicate(timeout=60)[0], name
        assert finish(process) == (0, "right", ""), name


LOADER = """
#include <unistd.h>
__attribute__((constructor)) static void slow(void) { write(1, "in\\n", 3); sleep(%d); }
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
    library = program("slow.so", LOADER % 3, "-shared", "-fPIC")
    process = target(python, IN_LOADER, library, ready="in", stdin=subprocess.PIPE)
    refused(probing(process.pid, "inject", "--method", "native", check=None), "in the loader")
    assert b"right" in process.stdout.readline()
    assert "is being recorded" in probing(process.pid, "inject").stdout
    out, _ = process.communicate(b"\n", timeout=60)
    assert process.returncode == 0


IN_MALLOC = """
#include <stddef.h>
#include <unistd.h>
void *__libc_malloc(size_t);
void *malloc(size_t n) {
    if (n == 777777 || n == 777778)
        sleep(n == 777777 ? 3 : 60);
    return __libc_malloc(n);
}
"""
MALLOCS = """
import ctypes, sys, threading
libc = ctypes.CDLL(None)
threads = [threading.Thread(target=libc.malloc, args=(777777,)) for _ in range(int(sys.argv[1]))]
for t in threads: t.start()
print("up", flush=True)
for t in threads: t.join()
print("right", flush=True)
input()
"""


@pytest.mark.pythons(count=1)
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_threads_in_malloc(probing, python, target, program, threads):
    library = program("slowmalloc.so", IN_MALLOC, "-shared", "-fPIC")
    process = target(python, MALLOCS, threads, stdin=subprocess.PIPE, env=dict(os.environ, LD_PRELOAD=str(library)))
    refused(probing(process.pid, "inject", "--method", "native", check=None), "in malloc (malloc)")
    assert b"right" in process.stdout.readline()
    assert "is being recorded" in probing(process.pid, "inject").stdout
    process.communicate(b"\n", timeout=60)
    assert process.returncode == 0


ALWAYS_IN_MALLOC = HEAD + """
import ctypes
threading.Thread(target=ctypes.CDLL(None).malloc, args=(777778,), daemon=True).start()
print("in", flush=True)
while go(): sum(range(1000))
"""


def eval_by_the_interpreter(probing, python, target, program):
    library = program("slowmalloc.so", IN_MALLOC, "-shared", "-fPIC")
    process = target(python, ALWAYS_IN_MALLOC, ready="in", env=dict(os.environ, LD_PRELOAD=str(library)))
    assert "42" == probing(process.pid, "eval", "6 * 7").stdout.strip()
    done = probing(process.pid, "inject").stdout
    assert "loaded by " + ("a pending call" if python.version < (3, 14) else "the interpreter's remote debugging") in done


@pytest.mark.pythons(min=(3, 7), count=1)
def test_eval_where_only_the_interpreter_lets_us_in(probing, python, target, program):
    """No agent there, and no safe point for a native call: a pending call, or PEP 768."""
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
    process = target(python, MANY, 12, ready="all")
    assert len(os.listdir("/proc/%d/task" % process.pid)) == 1201
    assert probing(process.pid, "eval", "threading.active_count()").stdout == "1201\n"
    probing(process.pid, "stop")
    assert "loaded by a pending call" in probing(process.pid, "inject", "--method", "pending").stdout
    probing(process.pid, "stop")
    assert "is being recorded" in probing(process.pid, "inject").stdout
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
import atexit, ctypes, time
libc = ctypes.CDLL(None)
atexit.register(time.sleep, 2)
print("up", flush=True)
"""
EXITING = """
import ctypes
libc = ctypes.CDLL(None)
libc.on_exit(ctypes.cast(libc.sleep, ctypes.c_void_p), None)
libc.sleep.argtypes = [ctypes.c_uint]
libc.on_exit.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
print("up", flush=True)
libc.exit(3)
"""


@pytest.mark.pythons(count=1)
def test_one_that_is_finalising(probing, python, target):
    process = target(python, FINALISING)
    assert "is being recorded" in probing(process.pid, "inject").stdout
    assert finish(process) == (0, "", "")


@pytest.mark.slow
@pytest.mark.pythons(count=1)
def test_one_that_is_exiting(probing, python, target):
    process = target(python, EXITING)  # sleep(3) is called from exit(3)
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
    assert process.wait(timeout=30) == 0


def test_a_program_without_python(build, run, probing, spawn):
    """A mistyped pid: nothing of ours comes into it, by whatever command."""
    process = spawn(["sleep", "60"])
    wait_until(lambda: os.path.basename(os.readlink("/proc/%d/exe" % process.pid)) == "sleep")
    asked = [probing(process.pid, *words, check=3) for words in (["inject"], ["inject", "--dry-run"], ["eval", "1"], ["repl"])]
    if GDB:
        asked.append(run(gdb_command(build, process.pid, "probing inject"), check=None))
    for done in asked:
        assert "there is no Python in process %d" % process.pid in done.stderr and done.stdout == ""
    assert len(os.listdir("/proc/%d/task" % process.pid)) == 1 and os.listdir(os.environ["PROBING_RUN_DIR"]) == []
    assert "is being recorded" in probing(process.pid, "inject", "--force").stdout


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
    """What was learnt of the old program is of no use in the new one: its addresses are never called."""
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
    """While a thread is in execve(), clone() answers EAGAIN to the others."""
    text = tmp_path / "no_program"
    text.write_text("neither ELF nor #!")
    text.chmod(0o755)
    (tmp_path / "target.py").write_text(FAILING_EXECS)
    process = spawn([python.path, tmp_path / "target.py", 60, text], ready="execs", cwd=str(tmp_path), stdin=subprocess.PIPE,
                    stderr=subprocess.PIPE)
    assert "is being recorded" in probing(process.pid, "inject").stdout
    assert finish(process) == (0, "right", "")


# ---- where it lives -----------------------------------------------------------------------------------


@root_only
@pytest.mark.pythons(count=1)
@pytest.mark.parametrize("changed_root", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_container(probing, python, spawn, run, convert, sql, tmp_path, changed_root):
    """Another pid and mount namespace, with a /tmp of its own; or that and another root."""
    able = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True)
    if able.returncode:
        pytest.skip("no namespaces of our own here: %s" % able.stdout.strip())
    script = tmp_path / "target.py"
    script.write_text(SPIN)
    if changed_root:
        setup = ("mount -t tmpfs none /mnt && mkdir /mnt/root && mount --rbind / /mnt/root && "
                 "mount -t tmpfs none /mnt/root/tmp && exec chroot /mnt/root")
    else:
        setup = "mount -t tmpfs none /tmp && exec"
    inner = "mkdir /tmp/inner && cd /tmp/inner && cat > target.py && exec %s target.py 60" % python.path
    with open(str(script)) as source:
        env = {k: v for k, v in os.environ.items() if k != "PROBING_RUN_DIR"}
        container = spawn(["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", "%s sh -c '%s'" % (setup, inner)],
                          ready="up", stdin=source, env=env)
    pid = int(open("/proc/%d/task/%d/children" % (container.pid, container.pid)).read().split()[0])
    assert status(pid, "NSpid").split()[-1] == "1"
    dry = probing(pid, "inject", "--dry-run").stdout
    assert "pid 1 in its own namespace" in dry and "files under /proc/%d/root" % pid in dry
    line = probing(pid, "inject", "-r", "100").stdout
    assert " into /tmp/inner/probing-" in line
    seen = re.search(r"probing-convert (\S+) out.db", line)[1]
    assert seen.startswith("/proc/%d/root/tmp/inner/" % pid)
    wait_until(lambda: not re.search(r": 0 samples", probing(pid, "status").stdout))
    assert "4" == probing(pid, "eval", "2 + 2").stdout.strip()
    probing(pid, "stop")
    shutil.copy(seen, str(tmp_path / "t.zst"))
    assert sql(convert(tmp_path / "t.zst"), "SELECT count(*) FROM samples")[0][0] > 0
    assert [f for f in os.listdir("/proc/%d/root/tmp/probing-0" % pid)] == []
    with open("/proc/%d/maps" % pid) as f:
        assert ".live" not in f.read()


@root_only
@pytest.mark.pythons(count=1)
def test_only_the_owner_or_root(build, run, python, target, tmp_path):
    """Another user gets no further than a clear line."""
    tool = tmp_path / "tool"
    shutil.copytree(str(build.bin.parent / "bin"), str(tool / "bin"))
    shutil.copytree(str(build.lib), str(tool / "lib" / "probing"))
    conftest.open_to_others(tmp_path)
    process = target(python, SPIN)

    def become():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    for what in (["inject"], ["stop"], ["eval", "1"]):
        done = run([tool / "bin" / "probing", "-t", process.pid] + what, check=None, preexec_fn=become)
        assert done.returncode == 3
    done = run([tool / "bin" / "probing", "-t", process.pid, "inject"], check=None, preexec_fn=become)
    assert "no permission to trace process %d: it belongs to user 0; become that user or root" % process.pid in done.stderr


SECCOMP = """
import ctypes
class Prog(ctypes.Structure): _fields_ = [("n", ctypes.c_ushort), ("f", ctypes.c_void_p)]
# all is allowed, but the process dies of a call number that there is none of (as the kernel is asked about calls left out)
code = ctypes.create_string_buffer(b"\\x20\\0\\0\\0\\0\\0\\0\\0" b"\\x15\\0\\0\\1\\xff\\xff\\xff\\xff"
                                   b"\\6\\0\\0\\0\\0\\0\\0\\x80" b"\\6\\0\\0\\0\\0\\0\\xff\\x7f", 32)
prog = Prog(4, ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.addressof(prog), 0, 0) == 0
"""


@pytest.mark.pythons(count=1)
def test_a_seccomp_filter(probing, python, target):
    process = target(python, SECCOMP + SPIN, 2)
    refused(probing(process.pid, "inject", check=None), "runs under a seccomp filter")
    assert "is being recorded" in probing(process.pid, "inject", "--force").stdout
    assert finish(process) == (0, "right", "")


@pytest.mark.skipif(shutil.which("musl-gcc") is None, reason="no musl-gcc")
def test_a_musl_program(probing, spawn, program):
    binary = program("m", '#include <stdio.h>\n#include <unistd.h>\nint main(void) { puts("up"); fflush(stdout); sleep(60); }\n',
                     cc="musl-gcc")
    process = spawn([binary], ready="up")
    refused(probing(process.pid, "inject", check=None), "uses the musl C library; the agent needs glibc")


@pytest.mark.pythons(min=(3, 13), max=(3, 13), shared=True, count=1)
def test_a_free_threaded_build(build, run, probing, python, target, convert, sql, tmp_path):
    """Made of another one, that says of itself to be one. Nothing of it is read wrongly, and one line says why."""
    name = "libpython3.13.so.1.0"
    with open(str(next(pathlib.Path(os.path.realpath(python.path)).parents[1].glob("lib*/" + name))), "rb") as f:
        image = bytearray(f.read())
    at = image.index(b"xdebugpy\xf0")
    assert image[at + 11] == 3 and image[at + 16] == 0
    image[at + 16] = 1
    (tmp_path / name).write_bytes(image)
    env = dict(os.environ, LD_LIBRARY_PATH=str(tmp_path))
    process = target(python, SPIN, 3, env=env)
    refused(probing(process.pid, "inject", check=None), "runs a free-threaded build of CPython 3.13, which is not supported")
    refused(probing(process.pid, "eval", "1", check=None), "runs a free-threaded build of CPython 3.13")
    assert "is a free-threaded build, and only those with a GIL are known)" in probing(process.pid, "backtrace").stdout
    assert finish(process) == (0, "right", "")
    assert "right" in run([build.tool("probing-record"), "-o", tmp_path / "t.zst", python.path, tmp_path / "target.py", "0.5"], env=env).stdout
    db = convert(tmp_path / "t.zst")
    assert sql(db, "SELECT count(*) FROM samples")[0][0] == 0
    assert "free-threaded" in str(sql(db, "SELECT * FROM note"))


# ---- ends ------------------------------------------------------------------------------------------------


@pytest.mark.pythons(count=1)
def test_targets_that_die_meanwhile(build, python, target):
    """Whenever it comes: done, or a clear line, and nothing staged is left."""
    for i in range(6):
        process = target(python, SPIN)
        tool = subprocess.Popen([build.tool("probing"), "-t", str(process.pid), "inject", "-o", "t%d.zst" % i],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        time.sleep(i * 0.006)
        process.kill()
        process.wait(timeout=20)
        out, err = tool.communicate(timeout=60)
        assert tool.returncode in (0, 3) and len((out + err).splitlines()) == 1, (out, err)
        assert tool.returncode == 0 or "ended" in err or "there is no process" in err, err
        assert [f for f in os.listdir(os.environ["PROBING_RUN_DIR"]) if f.startswith("inject-")] == []


def picture(pid):
    """What others can see of a process."""
    with open("/proc/%d/maps" % pid) as f:
        files = {line.split(None, 5)[5].strip() for line in f if len(line.split(None, 5)) > 5}
    tasks = sorted(os.listdir("/proc/%d/task" % pid), key=int)
    fds = {}
    for fd in os.listdir("/proc/%d/fd" % pid):
        fds[fd] = os.readlink("/proc/%d/fd/%s" % (pid, fd))
    return {
        "tasks": tasks, "fds": fds,
        "signals": {k: [status(int(t), k) for t in tasks] for k in ("SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd")},
        "names": [open("/proc/%d/task/%s/comm" % (pid, t)).read() for t in tasks],
        "priorities": [open("/proc/%d/task/%s/stat" % (pid, t)).read().rsplit(")", 1)[1].split()[15:17] for t in tasks],
        "traced by": status(pid, "TracerPid"),
        "files": {f for f in files if "libprobing" not in f and not f.startswith("[")},
    }


STEADY = HEAD + """
threads = [threading.Thread(target=time.sleep, args=(float(sys.argv[1]),)) for _ in range(3)]
for t in threads: t.start()
print("all", flush=True)
for t in threads: t.join()
print("right")
"""


@needs_gdb
@pytest.mark.pythons(count=1)
@pytest.mark.parametrize("by", ["probing", pytest.param("gdb", marks=pytest.mark.slow)])
def test_stop_leaves_the_target_as_found(build, run, probing, python, target, convert, sql, tmp_path, by):
    process = target(python, STEADY, 5, ready="all")
    wait_until(lambda: status(process.pid, "State")[0] == "S")
    before = picture(process.pid)
    traces = []
    for _ in range(2):
        line = probing(process.pid, "inject", "-r", "100", "-o", tmp_path / "t.zst").stdout
        traces.append(line.split(" into ")[1].split(" (agent")[0])
        wait_until(lambda: not re.search(r": 0 samples", probing(process.pid, "status").stdout))
        if by == "gdb":
            assert "no longer recorded" in run(gdb_command(build, process.pid, "probing stop")).stdout
        else:
            assert "no longer recorded" in probing(process.pid, "stop").stdout
        wait_until(lambda: len(os.listdir("/proc/%d/task" % process.pid)) == len(before["tasks"]))
        assert picture(process.pid) == before
        assert os.listdir(os.environ["PROBING_RUN_DIR"]) == []
    assert traces[0] != traces[1]
    for trace in traces:
        assert sql(convert(trace), "SELECT count(*) FROM samples")[0][0] > 0
    assert finish(process) == (0, "right", "")
