# SPDX-License-Identifier: Apache-2.0
"""What the parts of the bench share: where files are, how a workload is run, and statistics."""
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
WORKLOAD = os.path.join(HERE, "workload.py")


class Place:
    """The built tree, a folder to work in, and the interpreters."""

    def __init__(self, build, quick):
        self.build = os.path.abspath(build)
        self.quick = quick
        self.dir = os.path.join(self.build, "bench")
        os.makedirs(self.dir, exist_ok=True)
        self.python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
        found = subprocess.run([os.path.join(REPO, ".ci", "torch-python")], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, universal_newlines=True)
        self.torch = found.stdout.strip() or None

    def tool(self, name):
        return os.path.join(self.build, "bin", name)

    def path(self, name):
        return os.path.join(self.dir, name)


def say(text):
    print(text, file=sys.stderr, flush=True)


# Whether glibc gives memory back to the kernel and takes it again within a step depends on where the last block of the heap happens to be;
# on a virtual machine that is up to a fifth of a training step, one way or the other. For slow-downs it keeps the memory that it has.
STEADY = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TOP_PAD_": "67108864"}


def environment(place, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PROBING_")}
    env.update(PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore", BENCH_OUT=place.path("out.json"),
               PROBING_RUN_DIR=place.path("run"))
    env.update(more)
    return env


class Failed(Exception):
    """A run that gave no result; the text says why."""


def run_workload(place, prefix, python, args, timeout=300, program=WORKLOAD, **more):
    """Runs a workload behind a profiler's command line (prefix). Returns the workload's own figures, and the CPU time of all processes.
    `more` goes into the environment."""
    env = environment(place, **more)
    try:
        os.unlink(env["BENCH_OUT"])
    except OSError:
        pass
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    cmd = prefix + [python, program] + [str(a) for a in args]
    process = subprocess.Popen(cmd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True, cwd=place.dir)
    try:
        said = process.communicate(timeout=timeout)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Failed("hung for %d s: %s" % (timeout, " ".join(cmd)))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        with open(env["BENCH_OUT"]) as f:
            result = json.load(f)
    except (OSError, ValueError):
        raise Failed("exit code %s, it said: %s" % (process.returncode, " ".join(said.split())[-300:]))
    result["tree_cpu"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result


def speed_of_machine():
    """Returns how many million rows of two numbers SQLite sums up in a CPU second here, so that figures of different machines can be compared."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER, b INTEGER)")
    db.executemany("INSERT INTO t VALUES(NULL, ?, ?)", ((i * 7919 % 100003, i) for i in range(500000)))
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        db.execute("SELECT sum(a), sum(b) FROM t").fetchall()
        best = min(best, time.process_time() - start)
    db.close()
    return 0.5 / best


def median(values):
    values = sorted(values)
    n = len(values)
    if not n:
        return float("nan")
    return values[n // 2] if n % 2 else (values[n // 2 - 1] + values[n // 2]) / 2


def spread(values):
    """Returns the standard error of the median, estimated from the median absolute deviation."""
    middle = median(values)
    deviation = 1.4826 * median([abs(v - middle) for v in values])
    return 1.2533 * deviation / len(values) ** 0.5 if values else float("nan")


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


# The peak memory of a process includes that of the process that forked it: a child of a bench that holds 300 MB would never seem to take
# less. So a small interpreter starts it, and reports what it used.
USED = """import json, os, subprocess, sys
child = subprocess.Popen(sys.argv[2:])
_, status, use = os.wait4(child.pid, 0)
with open(sys.argv[1], "w") as f:
    json.dump([os.waitstatus_to_exitcode(status), use.ru_utime + use.ru_stime, use.ru_maxrss / 1024], f)
"""


def used(words, **how):
    """Runs a process, with `how` as arguments of subprocess.run(). Returns (exit code, CPU seconds, peak MB, the result of run()). Less
    than some 10 MB cannot be seen."""
    with tempfile.NamedTemporaryFile("r") as said:
        done = subprocess.run([sys.executable, "-I", "-S", "-c", USED, said.name] + words, **how)
        code, cpu, memory = json.load(said) if not done.returncode else (done.returncode, 0, 0)
    return code, cpu, memory, done


def find_peer(place, command, packages):
    """Finds a peer's program in PATH, or installs it by pip into the build folder. Returns (path, version), or (None, why)."""
    target = place.path("peers")
    candidates = [shutil.which(command), os.path.join(target, "bin", command)]
    for path in candidates:
        version = version_of(path)
        if version:
            return path, version
    why = "pip could not install it"
    for package in packages:
        shutil.rmtree(target + ".new", ignore_errors=True)
        for python in (sys.executable, "python3", place.torch or "python3"):
            try:
                done = subprocess.run([python, "-m", "pip", "install", "-q", "--target", target + ".new", package],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      universal_newlines=True, timeout=180)
            except (OSError, subprocess.TimeoutExpired) as e:
                why = str(e)
                continue
            if done.returncode == 0:
                break
            why = last_line(done.stdout)
        new = os.path.join(target + ".new", "bin", command)
        version = version_of(new)
        if version:
            os.makedirs(os.path.join(target, "bin"), exist_ok=True)
            shutil.copy2(new, os.path.join(target, "bin", command))
            shutil.rmtree(target + ".new", ignore_errors=True)
            return os.path.join(target, "bin", command), version
        if os.path.exists(new):
            why = "%s installs but does not run here" % package
    return None, why


def version_of(path):
    if not path or not os.access(path, os.X_OK):
        return None
    try:
        done = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, universal_newlines=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
