# SPDX-License-Identifier: Apache-2.0
"""probing inject by where the target lives and what it is: containers, namespaces, filters, other builds, and targets that die meanwhile."""
import os
import pathlib
import re
import shutil
import subprocess
import time

import conftest
import pytest
from gdb_tools import gdb_command, needs_gdb
from inject_helpers import COROUTINE, HEAD, SPIN, finish, probing, program, refused, status, target, wait_until
from record_until import record_until

FIXTURES = (probing, program, record_until, target)  # tests ask for them by name

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do that")

@pytest.mark.pythons(count=1)
def test_a_user_namespace_without_ids(probing, python, target):
    """Such a process can make no file. (Once the injector waited for that, for ten seconds, after it had loaded the agent.)"""
    unshare = "import ctypes\nif ctypes.CDLL(None).unshare(0x10000000): sys.exit(0)  # CLONE_NEWUSER\n"
    script = SPIN.replace('print("up"', unshare + 'print("up"')
    process = target(python, script, ready=None)
    if not process.stdout.readline():
        pytest.skip("no user namespaces here")
    for words in ["inject"], ["eval", "1"]:
        done = probing(process.pid, *words, check=3)
        assert "write its uid_map first" in done.stderr
    with open("/proc/%d/maps" % process.pid) as f:
        assert "libprobing" not in f.read()


@root_only
@pytest.mark.pythons(count=1)
@pytest.mark.parametrize("changed_root", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_container(probing, python, spawn, run, convert, sql, tmp_path, changed_root):
    """A container with another pid and mount namespace and a /tmp of its own, or with another root, too."""
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
        env["TEST_END"] = "/nonexistent"  # it runs until the test ends
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
    wait_until(lambda: not re.search(r"\b0 samples", probing(pid, "status").stdout))
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
    """Another user gets a clear message and nothing else."""
    tool = tmp_path / "tool"
    shutil.copytree(str(build.bin.parent / "bin"), str(tool / "bin"))
    shutil.copytree(str(build.lib), str(tool / "lib" / "probing"))
    conftest.open_to_others(tmp_path)
    process = target(python, SPIN)

    def become():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    for what in (["inject"], ["stop"], ["eval", "1"], ["status"], ["config"]):
        done = run([tool / "bin" / "probing", "-t", process.pid] + what, check=3, preexec_fn=become)
        assert "no permission to trace process %d: it belongs to user 0; become that user or root" % process.pid in done.stderr


@pytest.mark.skipif(shutil.which("musl-gcc") is None, reason="no musl-gcc")
def test_a_musl_program(probing, spawn, program):
    binary = program("m", '#include <stdio.h>\n#include <unistd.h>\nint main(void) { puts("up"); fflush(stdout); sleep(600); }\n',
                     cc="musl-gcc")
    process = spawn([binary], ready="up")
    refused(probing(process.pid, "inject", check=None), "uses the musl C library; the agent needs glibc")


def test_a_python_that_is_too_old(probing, program, spawn):
    """It looks like CPython 2 from outside: the agent would have nothing to do there but to be in the way."""
    binary = program("old", '#include <stdio.h>\n#include <unistd.h>\nvoid *_PyThreadState_Current;\n'
                     'int main(void) { puts("up"); fflush(stdout); sleep(600); }\n', "-rdynamic")
    process = spawn([binary], ready="up")
    for words in ["inject"], ["inject", "--dry-run"], ["eval", "1"]:
        refused(probing(process.pid, *words, check=None), "runs a Python that is not supported (no Python frames: the version of the CPython in")
    assert len(os.listdir("/proc/%d/task" % process.pid)) == 1


@pytest.mark.pythons(min=(3, 13), max=(3, 13), shared=True, count=1)
def test_a_free_threaded_build(build, run, probing, python, target, convert, sql, tmp_path):
    """A Python that claims to be a free-threaded build. Nothing of it is read wrongly, and one line says why."""
    name = "libpython3.13.so.1.0"
    with open(str(next(pathlib.Path(os.path.realpath(python.path)).parents[1].glob("lib*/" + name))), "rb") as f:
        image = bytearray(f.read())
    at = image.index(b"xdebugpy\xf0")
    assert image[at + 11] == 3 and image[at + 16] == 0
    image[at + 16] = 1
    (tmp_path / name).write_bytes(image)
    env = dict(os.environ, LD_LIBRARY_PATH=str(tmp_path))
    process = target(python, SPIN, env=env)
    for what in (["inject"], ["eval", "1"]):
        done = probing(process.pid, *what, check=None)
        refused(done, "runs a Python that is not supported (no Python frames: the CPython 3.13.")
        assert "is a free-threaded build" in done.stderr
    assert "is a free-threaded build, and only those with a GIL are known)" in probing(process.pid, "backtrace").stdout
    assert finish(process) == (0, "right", "")
    assert "right" in run([build.tool("probing-record"), "-o", tmp_path / "t.zst", python.path, tmp_path / "target.py", "0.5"], env=env).stdout
    db = convert(tmp_path / "t.zst")
    assert sql(db, "SELECT count(*) FROM samples")[0][0] == 0
    assert "free-threaded" in str(sql(db, "SELECT * FROM note"))


# ---- ends ------------------------------------------------------------------------------------------------


@pytest.mark.pythons(count=1)
def test_targets_that_die_meanwhile(build, python, target):
    """Whenever the target dies, the injection is done or fails with a clear message, and no staged file is left."""
    for i in range(6):
        process = target(python, SPIN)
        tool = subprocess.Popen([build.tool("probing"), "-t", str(process.pid), "inject", "-o", "t%d.zst" % i],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        time.sleep(i * 0.006)
        process.kill()
        process.wait(timeout=240)
        out, err = tool.communicate(timeout=240)
        assert tool.returncode in (0, 3) and len((out + err).splitlines()) == 1, (out, err)
        assert tool.returncode == 0 or "ended" in err or "there is no process" in err, err
        assert [f for f in os.listdir(os.environ["PROBING_RUN_DIR"]) if f.startswith("inject-")] == []


def picture(pid):
    """Returns what others can see of a process."""
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
for _ in range(3): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("all", flush=True)
sys.stdin.read()
print("right")
"""


@needs_gdb
@pytest.mark.pythons(count=1)
@pytest.mark.parametrize("by", ["probing", pytest.param("gdb", marks=pytest.mark.slow)])
def test_stop_leaves_the_target_as_found(build, run, probing, python, target, convert, sql, tmp_path, by):
    process = target(python, STEADY, ready="all", stdin=subprocess.PIPE)
    conftest.wait_until_asleep(process.pid)
    before = picture(process.pid)
    traces = []
    for _ in range(2):
        line = probing(process.pid, "inject", "-r", "100", "-o", tmp_path / "t.zst").stdout
        traces.append(line.split(" into ")[1].split(" (agent")[0])
        wait_until(lambda: not re.search(r"\b0 samples", probing(process.pid, "status").stdout))
        if by == "gdb":
            assert "no longer recorded" in run(gdb_command(build, process.pid, "probing stop")).stdout
        else:
            assert "no longer recorded" in probing(process.pid, "stop").stdout
        wait_until(lambda: sorted(os.listdir("/proc/%d/task" % process.pid), key=int) == before["tasks"])
        assert picture(process.pid) == before
        assert os.listdir(os.environ["PROBING_RUN_DIR"]) == []
    assert traces[0] != traces[1]
    for trace in traces:
        assert sql(convert(trace), "SELECT count(*) FROM samples")[0][0] > 0
    assert finish(process) == (0, "right", "")


@pytest.mark.pythons(count=1)
def test_a_thread_on_a_coroutines_stack(probing, program, python, target, tmp_path):
    """Also a goroutine's: 2 KiB in the middle of a large mapping. dlopen would write over what lies below it."""
    program("coroutine.so", COROUTINE, "-shared", "-fPIC")
    process = target(python, HEAD + """
import ctypes
lib = ctypes.CDLL("./coroutine.so")
def waker():
    while not ctypes.c_int.in_dll(lib, "inside").value: time.sleep(0.01)
    print("inside", flush=True)
    while go(): time.sleep(0.02)
    lib.wake()
threading.Thread(target=waker).start()
print("harmed", lib.run())
""", ready="inside")
    assert "loaded by dlopen at a safe point" in probing(process.pid, "inject").stdout
    probing(process.pid, "stop")
    assert finish(process)[:2] == (0, "harmed 0")


@pytest.mark.pythons(count=1)
def test_no_thread_on_its_own_stack(probing, program, python, target):
    """The refusal names the reason and what to do instead, and the program goes on."""
    program("coroutine.so", COROUTINE, "-shared", "-fPIC")
    process = target(python, HEAD + """
import ctypes
ctypes.CDLL("./coroutine.so").run()
""")
    wait_until(lambda: "waits" in probing(process.pid, "backtrace").stdout)
    refused(probing(process.pid, "inject", check=None), "no thread could call: %d is on a coroutine's stack; use probing-record" % process.pid)
    assert process.poll() is None and "waits" in probing(process.pid, "backtrace").stdout
