# SPDX-License-Identifier: Apache-2.0
"""Stacks of a process that has torch loaded and works: how long each tool takes, and for how long it stops the process meanwhile, as seen from outside
(by polling its state in /proc)."""
import os
import re
import shutil
import signal
import subprocess
import threading
import time

from common import WORKLOAD, Failed, environment, median


class Watch(threading.Thread):
    """Measures for how long a tracer holds a process's main thread."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.path = "/proc/%d/stat" % pid
        self.held = 0.0
        self.end = False

    def run(self):
        since = None
        while not self.end:
            now = time.perf_counter()
            try:
                with open(self.path) as f:
                    held = f.read().rsplit(")", 1)[1].split()[0] in "tT"
            except OSError:
                break
            if held and since is None:
                since = now
            elif not held and since is not None:
                self.held += now - since
                since = None

    def stop(self):
        self.end = True
        self.join()
        return self.held


def once(cmd, pid, env):
    """Returns (seconds in all, seconds held as seen from outside, seconds held as the tool says, or None)."""
    watch = Watch(pid)
    watch.start()
    start = time.perf_counter()
    done = subprocess.run(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                          universal_newlines=True, errors="replace", timeout=120)
    wall = time.perf_counter() - start
    held = watch.stop()
    said = re.search(r"stopped ([\d.]+) ms", done.stderr)
    if done.returncode or "Undefined command" in done.stderr or not done.stdout:
        raise Failed(" ".join((done.stderr or "no output").split())[-120:])
    return wall, held, float(said.group(1)) / 1e3 if said else None


def variants(place, pid):
    tool = place.tool("probing")
    plugin = os.path.join(place.build, "share", "probing", "gdb", "probing.py")
    ours = [("probing backtrace", []), ("probing backtrace --python", ["--python"]),
            ("probing backtrace --stop", ["--stop"]), ("probing backtrace --stop --python", ["--stop", "--python"]),
            ("probing backtrace --stop --locals", ["--stop", "--locals"])]
    found = [(name, True, [tool, "-t", str(pid), "backtrace", "-v"] + options) for name, options in ours]
    gdb = shutil.which("gdb")
    if gdb:
        found.append(("gdb: probing-backtrace", False, [gdb, "-nx", "-q", "-batch", "-ix", plugin, "-p", str(pid), "-ex", "probing-backtrace"]))
        found.append(("gdb: thread apply all py-bt", False,
                      [gdb, "-q", "-batch", "-p", str(pid), "-ex", "thread apply all py-bt"]))
    for name, options in (("py-spy", ["dump", "-p", str(pid)]), ("py-spy --native", ["dump", "--native", "-p", str(pid)]),
                          ("pystack", ["remote", str(pid)]), ("pystack --native", ["remote", "--native", str(pid)])):
        path = find(place, name.split()[0])
        found.append((name, False, [path] + options if path else None))
    return found


def find(place, name):
    """Returns a peer that is in PATH or was installed for this bench; None if there is none."""
    path = shutil.which(name)
    home = place.path("peer-" + name)
    if not path and not os.path.exists(home):
        subprocess.run([place.python, "-m", "venv", home], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
        subprocess.run([os.path.join(home, "bin", "pip"), "install", "-q", name], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=300)
    path = path or os.path.join(home, "bin", name)
    return path if os.path.exists(path) else None


def measure(place, python, repeats):
    """Returns [(name, ours, wall, held, told)] with medians in seconds. If wall is None, the tool failed, and held says why."""
    env = environment(place)
    target = subprocess.Popen([python, WORKLOAD, "target", "600"], env=env, cwd=place.dir, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    found = []
    try:
        target.stdout.readline()
        time.sleep(1)
        for name, ours, cmd in variants(place, target.pid):
            if cmd is None:
                found.append((name, ours, None, "not here", None))
                continue
            runs = []
            try:
                end = time.monotonic() + 30
                while len(runs) < repeats and time.monotonic() < end:
                    runs.append(once(cmd, target.pid, env))
            except (Failed, OSError, subprocess.SubprocessError) as e:
                found.append((name, ours, None, str(e), None))
                continue
            told = [r[2] for r in runs if r[2] is not None]
            found.append((name, ours, median([r[0] for r in runs]), median([r[1] for r in runs]), median(told) if told else None))
    finally:
        os.killpg(target.pid, signal.SIGKILL)
        target.wait()
        target.stdout.close()
    return found
