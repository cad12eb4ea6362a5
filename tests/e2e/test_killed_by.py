# SPDX-License-Identifier: Apache-2.0
"""Who killed it: the kernel for memory, and the signal of a process that nobody has waited for."""
import os
import pathlib
import signal
import subprocess
import time

import pytest

EATER = """
import sys, time
kept = []
print("up", flush=True)
time.sleep(0.5)
while True:
    kept.append(bytearray(b"x" * (8 << 20)))
"""

PARENT = """
import os, sys, time
pid = os.fork()
if pid == 0:
    exec(open(sys.argv[1]).read())
print("child", pid, flush=True)
if sys.argv[2] == "wait":
    print("status", os.waitpid(pid, 0)[1])
else:
    time.sleep(300)
"""


def make_group(parent, files, limit):
    group = pathlib.Path(parent) / ("probing-test-%d" % os.getpid())
    group.mkdir()
    try:
        for name in files:
            if (group / name).exists():
                (group / name).write_text(str(limit))
        return group
    except OSError:
        group.rmdir()
        raise


@pytest.fixture
def small_memory():
    """A command that runs its arguments in a cgroup of 160 MB."""
    limit = 160 << 20
    why = "no memory cgroup can be made here"
    for parent, files in (("/sys/fs/cgroup/memory", ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]),
                          ("/sys/fs/cgroup", ["memory.max"])):
        try:
            if not (pathlib.Path(parent) / "cgroup.procs").exists() or \
                    (files[0] == "memory.max" and "memory" not in (pathlib.Path(parent) / "cgroup.controllers").read_text()):
                continue
            if files[0] == "memory.max":
                (pathlib.Path(parent) / "cgroup.subtree_control").write_text("+memory")
            group = make_group(parent, files, limit)
        except OSError as e:
            why = str(e)
            continue
        yield ["sh", "-c", 'echo $$ > %s/cgroup.procs && exec "$@"' % group, "sh"]
        for _ in range(100):
            try:
                group.rmdir()
                return
            except OSError:
                time.sleep(0.1)
        return
    if subprocess.run(["systemd-run", "--scope", "-q", "-p", "MemoryMax=160M", "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0 \
            if pathlib.Path("/run/systemd/system").exists() else False:
        yield ["systemd-run", "--scope", "-q", "-p", "MemoryMax=160M", "-p", "MemorySwapMax=0"]
        return
    pytest.skip(why)


def test_the_program_itself(build, small_memory, run, convert, sql, tmp_path):
    script, trace = tmp_path / "eat.py", tmp_path / "t.zst"
    script.write_text(EATER)
    done = run(small_memory + [build.tool("probing-record"), "-r", "50", "-o", trace, "python3", script], check=137)
    assert "OOM killer" in done.stderr
    db = convert(trace)
    reason, cause, number, complete = sql(db, "SELECT end_reason, end_cause, signal, complete FROM trace")[0]
    assert (reason, number, complete) == ("killed", 9, 1) and "OOM killer" in cause
    assert "OOM killer" in sql(db, "SELECT detail FROM triggers WHERE kind = 'killed'")[0][0]
    assert int(sql(db, "SELECT value FROM machine WHERE source = 'limit' AND key LIKE 'memory.%' AND key IN "
                       "('memory.max', 'memory.limit_in_bytes')")[0][0]) == 160 << 20


def test_a_child_of_it(build, small_memory, run, convert, sql, tmp_path):
    """Not our child: by the kernel's log, or by the count of the cgroup."""
    script, parent, trace = tmp_path / "eat.py", tmp_path / "parent.py", tmp_path / "t.zst"
    script.write_text(EATER)
    parent.write_text(PARENT)
    done = run(small_memory + [build.tool("probing-record"), "-r", "50", "-o", trace, "python3", parent, script, "wait"])
    assert "status 9" in done.stdout and "OOM killer" in done.stderr
    rows = sql(convert(trace), "SELECT how, end_reason, end_cause FROM trace ORDER BY start")
    assert rows[0][1:] == ("exit", None)
    assert rows[1][:2] == ("fork", "killed") and "OOM killer" in rows[1][2]


def test_killed_otherwise(build, run, spawn, convert, sql, tmp_path):
    """A signal from somebody is not the kernel's; of a child that nobody has waited for it is known."""
    script, parent, trace = tmp_path / "sleep.py", tmp_path / "parent.py", tmp_path / "t.zst"
    script.write_text("import time\ntime.sleep(300)\n")
    parent.write_text(PARENT)
    recorder = spawn([build.tool("probing-record"), "-q", "-r", "50", "-o", trace, "python3", parent, script, "no"], ready="child",
                     stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("t.zst.d/*.zst"))) < 1:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.3)
    pid = int(next(tmp_path.glob("t.zst.d/*.zst")).stem.rsplit("-", 1)[1])
    os.kill(pid, signal.SIGKILL)
    while open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] != "Z":
        time.sleep(0.05)
    db = convert(trace)
    assert sql(db, "SELECT end_reason, signal, end_cause FROM trace WHERE pid = ?", pid) == [("killed", 9, None)]
    recorder.terminate()
    recorder.wait(60)
