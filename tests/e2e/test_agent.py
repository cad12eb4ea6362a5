# SPDX-License-Identifier: Apache-2.0
"""The agent under LD_PRELOAD: how programs end, what they fork and execute, and that they do not notice the agent."""
import os
import signal
import subprocess
import time

import conftest
import pytest
from agent_helpers import FEW, agent

FIXTURES = (agent,)  # tests ask for them by name

ENDS = {
    "return": ("print('out')", 0, "exit"),
    "sys.exit": ("import sys; print('out'); sys.exit(3)", 3, "exit"),
    "os._exit": ("import os; print('out', flush=True); os._exit(4)", 4, "_exit"),
    "exception": ("print('out'); 1 / 0", 1, "exit"),
    "thread": ("import threading, time; threading.Thread(target=time.sleep, args=(0.1,)).start(); print('out')", 0, "exit"),
}


@pytest.mark.parametrize("end", ENDS)
def test_end(agent, run, python, end):
    source, code, reason = ENDS[end]
    script = agent.script(source)
    bare = run([python.path, script], check=code)
    done = run([python.path, script], check=code, env=agent.env())
    assert (done.stdout, done.stderr) == (bare.stdout, bare.stderr)
    assert agent.traces() == [str(agent.trace)]
    process = agent.check_whole(agent.trace, reason)
    assert process["how"] == "preload"
    assert process["python"] >> 16 == python.version[0] << 8 | python.version[1]
    assert agent.lives() == []


@FEW
def test_fork(agent, spawn, interpreter):
    script = agent.script("""
import os, sys, time
pid = os.fork()
if pid == 0:
    while not os.path.exists("go"): time.sleep(0.01)
    sys.exit(5)
print(pid, os.waitpid(pid, 0)[1])
""")
    process = spawn([interpreter.path, script], cwd=str(agent.tmp), env=agent.env(PROBING_SAMPLE_RATE=0.01), stderr=subprocess.PIPE, universal_newlines=True)
    agent.wait_for(str(agent.trace) + ".d/*.zst", "sample", 1)
    (agent.tmp / "go").touch()
    out, err = process.communicate()
    pid, status = out.split()
    assert (int(status), err) == (5 << 8, "")
    parent, child = agent.traces()
    assert parent == str(agent.trace) and child.endswith("-%s.zst" % pid)
    agent.check_whole(parent, "exit")
    process = agent.check_whole(child, "exit")
    assert (process["how"], process["pid"]) == ("fork", int(pid))
    assert agent.rows(child, "sample") and agent.lives() == []


@FEW
def test_young_children_leave_no_files(agent, run, interpreter):
    """Forked children that end or execute another program at once leave no files; nor do a fork that calls no fork handlers, and a vfork
    whose program does not exist."""
    script = agent.script("""
import contextlib, ctypes, os, subprocess, sys, threading, time
old = []  # children that were there for so long, on a busy machine, that they may have begun a recording
@contextlib.contextmanager
def child():
    begin = time.monotonic()
    yield
    if time.monotonic() - begin >= .02: old.append(1)
def storm():
    for i in range(20):
        with child():
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
storm()
threads = [threading.Thread(target=storm) for i in range(3)]
for t in threads:
    t.start()
for t in threads:
    t.join()
for i in range(5):
    for args in (dict(args=["/bin/true"]), dict(args=["/bin/true"], preexec_fn=lambda: None), dict(args="exit 0", shell=True)):
        with child():
            subprocess.check_call(**args)
    with child(), contextlib.suppress(FileNotFoundError):
        subprocess.check_call(["./nothing"])
    sys.stdout.flush()
    with child():
        pid = ctypes.CDLL(None).syscall(57)
        if pid == 0:
            os._exit(7)
        assert os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == 7
time.sleep(0.15)
print("end", len(old))
""")
    done = run([interpreter.path, "-W", "ignore", script], env=agent.env())
    end, old = done.stdout.split()
    assert (end, done.stderr) == ("end", "")
    assert agent.traces()[0] == str(agent.trace) and len(agent.traces()) <= 1 + int(old)
    agent.check_whole(agent.trace, "exit")
    assert len(agent.lives()) <= int(old)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@FEW
def test_multiprocessing(agent, run, interpreter, method):
    script = agent.script("""
import glob, multiprocessing, os, sys, time
def work(n): # one that was forked and ends at once leaves no trace, and is counted alone
    while sys.argv[1] != "spawn" and not glob.glob("%s*.d/*-%d.zst" % (os.environ["PROBING_TRACE"][:-4], os.getpid())): time.sleep(0.01)
    return os.getpid(), n * n
if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        done = pool.map(work, range(4), 1)
        print(*sorted(set(pid for pid, n in done)))
        assert sorted(n for pid, n in done) == [0, 1, 4, 9]
        pool.close()
        pool.join()
""")
    # all of one run: otherwise a worker that begins late would move away the trace of one that has ended, as that of "another run"
    done = run([interpreter.path, script, method], env=agent.env(PROBING_MAIN_PID=0, PROBING_RUN="test"))
    assert done.stderr == ""
    workers = set(map(int, done.stdout.split()))
    recorded = {}
    for trace in agent.traces():
        subprocess.run(["zstd", "-tq", trace], check=True)
        recorded[agent.rows(trace, "process")[-1]["pid"]] = agent.rows(trace, "end")
    assert workers <= set(recorded)
    assert all(recorded[pid] for pid in workers)
    assert agent.lives() == []


@FEW
def test_exec(agent, run, interpreter):
    script = agent.script("""
import os, sys, time
end = time.time() + 0.2
while time.time() < end:
    pass
if len(sys.argv) < 4:
    os.execv(sys.executable, [sys.executable] + sys.argv + ["x"])
""")
    run([interpreter.path, script], env=agent.env(PROBING_SAMPLE_RATE=0.001))
    assert len(agent.traces()) == 4, list(agent.tmp.rglob("*"))
    pids = set()
    for trace, reason in zip(agent.traces(), ["exec", "exec", "exit", "exec"]):  # -2, -3, -4, none
        pids.add(agent.check_whole(trace, reason)["pid"])
    assert len(pids) == 1 and agent.lives() == []


@pytest.mark.pythons(min=(3, 12))
def test_fork_warning(agent, run, python):
    """os.fork() counts threads and warns if there are several. It must not warn because of the agent's threads, but still because of
    others."""
    fork = "import os\npid = os.fork()\nif pid == 0:\n    os._exit(0)\nos.waitpid(pid, 0)\n"
    alone = run([python.path, "-W", "always", agent.script(fork)], env=agent.env())
    assert alone.stderr == ""
    threads = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    done = run([python.path, "-W", "always", agent.script(threads + fork)], env=agent.env())
    assert "multi-threaded" in done.stderr


@pytest.mark.pythons(count=1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed(agent, spawn, python, number):
    """The process cannot catch these signals, so its parent probing-record finishes the trace."""
    script = agent.script("""
import os, sys, time
while not os.path.exists("go"): time.sleep(0.01)
os.kill(os.getpid(), int(sys.argv[1]))
""")
    process = spawn([agent.build.tool("probing-record"), "-o", agent.trace, "--", python.path, script, int(number)], cwd=str(agent.tmp), stderr=subprocess.PIPE)
    agent.wait_for(agent.trace, "memory", 1, process)
    (agent.tmp / "go").touch()
    assert process.wait(240) == 128 + number
    assert agent.check_whole(agent.trace, "killed")["python"]
    assert agent.rows(agent.trace, "memory")
    assert agent.lives() == []


def test_not_python(agent, spawn, run):
    done = run(["/bin/sh", "-c", "echo $((1 + 2)); ls / > /dev/null; exit 6"], check=6, env=agent.env())
    assert (done.stdout, done.stderr) == ("3\n", "")
    sleeper = spawn(["/bin/sleep", "600"], env=agent.env())
    end = time.monotonic() + 600
    while "libprobing-preload" not in open("/proc/%d/maps" % sleeper.pid).read():
        assert time.monotonic() < end
    time.sleep(0.2)
    assert "libprobing-agent" not in open("/proc/%d/maps" % sleeper.pid).read()
    assert len(os.listdir("/proc/%d/task" % sleeper.pid)) == 1
    assert agent.traces() == [] and agent.lives() == []


@pytest.mark.pythons(count=1, torch=True)
def test_torch_exceptions(agent, run, python):
    """C++ exceptions in torch still find their handlers: the agent brings no unwinder that would replace libgcc's."""
    script = agent.script("""
import torch
caught = 0
for i in range(50):
    for bad in (lambda: torch.zeros(2) + torch.zeros(3), lambda: torch.zeros(2, 3) @ torch.zeros(2, 3)):
        try:
            bad()
        except RuntimeError:
            caught += 1
print(caught)
""")
    done = run([python.path, script], env=agent.env(PROBING_SAMPLE_RATE=0.002))
    assert (done.stdout, done.stderr) == ("100\n", "")
    agent.check_whole(agent.trace, "exit")
    assert agent.rows(agent.trace, "sample")


# As in a sandbox, or before Linux 5.9: close_range() is refused, so the agent's threads share the program's table of descriptors.
WITHOUT_CLOSE_RANGE = """
import ctypes, os, struct, sys
code = struct.pack("=HBBIHBBIHBBIHBBI", 0x20, 0, 0, 0, 0x15, 0, 1, 436, 0x06, 0, 0, 0x00050000 + 38, 0x06, 0, 0, 0x7fff0000)
buf = ctypes.create_string_buffer(code)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
assert libc.prctl(22, 2, ctypes.create_string_buffer(struct.pack("@HP", 4, ctypes.addressof(buf)))) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("refused", [False, True], ids=["own-table", "shared-table"])
@pytest.mark.pythons(count=1)
def test_closed_descriptors(agent, spawn, python, refused):
    """A daemon closes all descriptors that it does not know, and opens its own files under their numbers."""
    script = agent.script("""
import os, time
while not os.path.exists("close"): time.sleep(0.01)
os.closerange(3, 1024)
names = ["file%d" % i for i in range(600)]
files = [open(name, "w") for name in names]
print("closed", flush=True)
while not os.path.exists("go"): time.sleep(0.01)
for f in files:
    f.write("mine")
    f.close()
assert all(open(name).read() == "mine" for name in names)
print("end")
""")
    env, first = agent.env(PROBING_METRICS=0.1), []
    if refused:
        first = [python.path, "-c", WITHOUT_CLOSE_RANGE, "/usr/bin/env", "LD_PRELOAD=" + env.pop("LD_PRELOAD")]
    process = spawn(first + [python.path, script], cwd=str(agent.tmp), env=env, stderr=subprocess.PIPE)
    before = agent.wait_for(agent.trace, "memory", 1)  # the agent is recording
    (agent.tmp / "close").touch()
    conftest.wait_for_line(process, "closed")
    agent.wait_for(agent.trace, "memory", before + 5, process)  # and goes on recording after that
    (agent.tmp / "go").touch()
    assert process.communicate() == (b"end\n", b"")
    agent.check_whole(agent.trace, "exit")
    memory = agent.rows(agent.trace, "memory")
    assert all(m["rss"] > 1000000 for m in memory)


@pytest.mark.pythons(count=2)
def test_no_descriptor_of_ours(agent, spawn, python):
    """The agent takes no descriptor number that the program could get, appears in no list of the program's descriptors, and does not count
    towards its limit. A file that an evaluation opens is the program's."""
    script = agent.script("""
import os, resource, sys, threading, time
lowest = os.open("/dev/null", os.O_RDONLY)
os.close(lowest)
listed = set(os.listdir("/proc/self/fd")) - {str(lowest)}
while not os.path.exists("limit"):
    for _ in range(200):
        fd = os.open("/dev/null", os.O_RDONLY)
        assert fd == lowest, fd
        os.close(fd)
    now = set(os.listdir("/proc/self/fd")) - {str(lowest)}
    assert now == listed, now
    pid = os.fork()
    if not pid:
        os._exit(set(os.listdir("/proc/self/fd")) - {str(lowest)} != listed)
    assert os.waitpid(pid, 0)[1] == 0
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 5, lowest + 5))
files = [open("/dev/null") for _ in range(5)]
print("limited", flush=True) # it has all that it may have
while not os.path.exists("go"): time.sleep(0.01)
print("end")
""")
    process = spawn([python.path, script], cwd=str(agent.tmp), env=agent.env(PROBING_METRICS=0.1, PROBING_SAMPLE_RATE=0.001), stderr=subprocess.PIPE)
    before = agent.wait_for(agent.trace, "memory", 10, process)
    (agent.tmp / "limit").touch()
    conftest.wait_for_line(process, "limited")
    agent.wait_for(agent.trace, "memory", before + 5, process)
    (agent.tmp / "go").touch()
    assert process.communicate() == (b"end\n", b"")
    agent.check_whole(agent.trace, "exit")


@pytest.mark.pythons(count=1)
def test_names(agent, run, python):
    ranks = dict(RANK=3, LOCAL_RANK=1, WORLD_SIZE=8)
    for i in range(2):
        run([python.path, "-c", "0"], env=agent.env(PROBING_TRACE=str(agent.tmp / "dir") + "/", **ranks))
    run([python.path, "-c", "0"], cwd=agent.tmp, env=agent.env(PROBING_TRACE=""))
    assert agent.traces() == [str(agent.tmp / "trace.zst")]
    names = sorted(os.listdir(str(agent.tmp / "dir")))
    assert len(names) == 2 and all("-r3-" in n and n.endswith(".zst") for n in names)
    process = agent.rows(agent.tmp / "dir" / names[0], "process")[0]
    assert [process[k] for k in ("rank", "local_rank", "world_size")] == [3, 1, 8]
