# SPDX-License-Identifier: Apache-2.0
"""Who killed a process: the kernel because of memory, or a signal, also if nobody waited for the process."""
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

EATER = """
import os, sys, time
open("/proc/self/oom_score_adj", "w").write("1000")
kept = []
while not os.path.exists(sys.argv[-1]):
    time.sleep(0.01)
while True:
    kept.append(bytearray(b"x" * (8 << 20)))
"""

# Its child starts in another cgroup if two are named (that one, and its own), so that the kernel kills nothing else.
PARENT = """
import os, sys, time
def enter(group):
    with open(group + "/cgroup.procs", "w") as f:
        f.write(str(os.getpid()))
groups = sys.argv[3:5] if len(sys.argv) > 5 else []
if groups:
    enter(groups[0])
pid = os.fork()
if pid == 0:
    exec(open(sys.argv[1]).read())
if groups:
    enter(groups[1])
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
    """Returns (a command that runs its arguments in a cgroup of 160 MB, [that cgroup, one without a limit beside it]), or (..., []) if no
    cgroup can be made."""
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
        beside = group.with_name(group.name + "-beside")
        beside.mkdir()
        yield ["sh", "-c", 'echo $$ > %s/cgroup.procs && exec "$@"' % group, "sh"], [group, beside]
        for folder in (group, beside):
            for _ in range(2000):
                try:
                    folder.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)
        return
    if subprocess.run(["systemd-run", "--scope", "-q", "-p", "MemoryMax=160M", "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0 \
            if pathlib.Path("/run/systemd/system").exists() else False:
        yield ["systemd-run", "--scope", "-q", "-p", "MemoryMax=160M", "-p", "MemorySwapMax=0"], []
        return
    pytest.skip(why)


@pytest.fixture
def run_out_of_memory(build, small_memory, run, convert, sql, tmp_path):
    """Records EATER or PARENT as `command`. Only EATER may be killed, and it is alone in its cgroup if one can be made: while its memory is
    still being freed, the kernel kills another process of the cgroup. It begins to eat once so many processes have recorded what their
    cgroup had counted."""
    limited, groups = small_memory

    def do(command, processes, check):
        start, program = limited, ["python3"]
        if groups:
            start = limited[:2] + [limited[2].replace(str(groups[0]) + "/", str(groups[1]) + "/")] + limited[3:]
            program = program if processes > 1 else limited + program
            command = command + groups if processes > 1 else command
        trace, db, go = tmp_path / "t.zst", tmp_path / "sofar.db", tmp_path / "go"
        (tmp_path / "eat.py").write_text(EATER)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            done = pool.submit(run, start + [build.tool("probing-record"), "-r", "50", "-o", trace] + program + command + [go], check=check)
            try:
                while not done.done() and (not trace.exists() or not db.exists() or sql(
                        db, "SELECT count(DISTINCT trace_id) FROM machine WHERE key = 'oom_kills'") != [(processes,)]):
                    time.sleep(0.05)
                    convert(trace, out=db, options=["-q", "-f"], check=None)
            finally:
                go.touch()
            return done.result(), convert(trace)
    return do


def test_the_program_itself(run_out_of_memory, sql, tmp_path):
    done, db = run_out_of_memory([tmp_path / "eat.py"], 1, 137)
    assert "OOM killer" in done.stderr
    reason, cause, number, complete = sql(db, "SELECT end_reason, end_cause, signal, complete FROM trace")[0]
    assert (reason, number, complete) == ("killed", 9, 1) and "OOM killer" in cause
    assert "OOM killer" in sql(db, "SELECT detail FROM triggers WHERE kind = 'killed'")[0][0]
    assert int(sql(db, "SELECT value FROM machine WHERE source = 'limit' AND key LIKE 'memory.%' AND key IN "
                       "('memory.max', 'memory.limit_in_bytes')")[0][0]) == 160 << 20


def test_a_child_of_it(run_out_of_memory, sql, tmp_path):
    """The killed process is no child of the recorder: known from the kernel's log, or from the cgroup's count."""
    (tmp_path / "parent.py").write_text(PARENT)
    done, db = run_out_of_memory([tmp_path / "parent.py", tmp_path / "eat.py", "wait"], 2, 0)
    assert "status 9" in done.stdout and "OOM killer" in done.stderr
    rows = sql(db, "SELECT how, end_reason, end_cause FROM trace ORDER BY start")
    assert rows[0][1:] == ("exit", None)
    assert rows[1][:2] == ("fork", "killed") and "OOM killer" in rows[1][2]


def test_killed_otherwise(build, run, spawn, convert, sql, tmp_path):
    """A signal from another process is not the kernel's; the death of a child that nobody waited for is known."""
    script, parent, trace = tmp_path / "sleep.py", tmp_path / "parent.py", tmp_path / "t.zst"
    script.write_text("import time\ntime.sleep(300)\n")
    parent.write_text(PARENT)
    recorder = spawn([build.tool("probing-record"), "-q", "-r", "50", "-o", trace, "python3", parent, script, "no"], ready="child",
                     stderr=subprocess.PIPE)
    deadline, so_far = time.monotonic() + 600, tmp_path / "sofar.db"
    while not so_far.exists() or sql(so_far, "SELECT count(*) FROM trace") != [(2,)]:
        assert time.monotonic() < deadline
        convert(trace, out=so_far, options=["-q", "-f"], check=None)
        time.sleep(0.05)
    pid = int(next(tmp_path.glob("t.zst.d/*.zst")).stem.rsplit("-", 1)[1])
    os.kill(pid, signal.SIGKILL)
    while open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] != "Z":
        time.sleep(0.05)
    db = convert(trace)
    assert sql(db, "SELECT end_reason, signal, end_cause FROM trace WHERE pid = ?", pid) == [("killed", 9, None)]
    recorder.terminate()
    recorder.wait(240)


EXITS = """
import os, signal, sys
how = sys.argv[1]
if how == "exec":
    os.execv(sys.executable, [sys.executable, sys.argv[0], "5"])
if how == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if how == "_exit":
    os._exit(6)
if how == "exit_group":  # nothing in the process sees that
    import ctypes
    ctypes.CDLL(None).syscall(231, 7)
sys.exit(int(how))
"""


@pytest.mark.parametrize("how, code, ends", [("0", 0, [("exit", 0)]), ("3", 3, [("exit", 3)]), ("_exit", 6, [("_exit", 6)]), ("exit_group", 7, [("_exit", 7)]),
                                             ("exec", 5, [("exec", None), ("exit", 5)]),
                                             ("killed", 137, [("killed", None)])])
def test_exit_codes(build, run, convert, sql, tmp_path, how, code, ends):
    """The trace contains the exit code of the command, which is that of the last program that it executed."""
    script, trace = tmp_path / "exits.py", tmp_path / "t.zst"
    script.write_text(EXITS)
    run([build.tool("probing-record"), "-q", "-o", trace, "/usr/bin/python3", script, how], check=code)
    assert sql(convert(trace), "SELECT end_reason, exit_code FROM trace ORDER BY start") == ends
    if code in (3, 5, 6, 7):
        assert "exit with code %d" % code in run([build.tool("probing"), "ask", "died", "--answer", trace]).stdout


def test_exit_codes_of_others(build, run, convert, sql, tmp_path):
    """The shell's child is not our child: it records itself what code it ends with."""
    (tmp_path / "exits.py").write_text(EXITS)
    run([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", "sh", "-c", "/usr/bin/python3 %s 4; exit 7" % (tmp_path / "exits.py")], check=7)
    assert sql(convert(tmp_path / "t.zst"), "SELECT end_reason, exit_code FROM trace") == [("exit", 4)]


@pytest.mark.parametrize("code, said", [(0, "nobody died"), (5, r"process \d+ on .*: exit with code 5")])
def test_exit_code_of_a_part(build, run, tmp_path, code, said):
    """The exit code of a recorded program's own child is the program's business."""
    program = "import subprocess, sys\nsubprocess.call([sys.executable, '-c', 'exit(2)'])\nsys.exit(%d)" % code
    run([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", "/usr/bin/python3", "-c", program], check=code)
    done = run([build.tool("probing"), "ask", "died", "--answer", tmp_path / "t.zst"], check=None)
    assert re.search(said, done.stdout + done.stderr), (done.stdout, done.stderr)


KILLED = """
import os, sys, time
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        time.sleep(1)
        os.kill(os.getpid(), 9)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""


def reads():
    """Returns the number of read system calls of this process and of the children that it has waited for."""
    return int(re.search(r"syscr: (\d+)", pathlib.Path("/proc/self/io").read_text())[1])


def test_the_kernel_s_log_is_read_once(record):
    """However many processes of a job were killed: the log may have thousands of lines, each of which takes a system call."""
    try:
        with open("/dev/kmsg", "rb", buffering=0) as f:
            os.set_blocking(f.fileno(), False)
            lines = sum(1 for _ in iter(lambda: f.read(8192), None))
    except OSError:
        pytest.skip("the kernel's log cannot be read")
    if lines < 500:
        pytest.skip("the kernel's log is short")
    counts = []
    for killed in (2, 22):
        before = reads()
        done = record(KILLED, killed)
        found = re.search(r"(\d+) traces? completed after the process had ended", done.stderr)
        counts.append((reads() - before, int(found[1]) if found else 0))
    (few, a), (many, b) = counts
    assert b > a + 4, done.stderr  # all lines, unless the machine is very busy
    assert (many - few) / (b - a) < lines
