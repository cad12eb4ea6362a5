#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a question to a process that is being recorded costs: the first question, the next one, and one less than a second later. In CPU time of
the command, compared with that of a command that does nothing. Part "live" of make bench (run.py); by hand:

    live.py BUILD SCRATCH PYTHON_WITH_TORCH [SECONDS [TIMES]]
"""
import glob
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

from common import REPO, Failed, Place, environment, median

QUESTIONS = (("SELECT 1", "SELECT 1"), ("stack now", "SELECT func, lineno FROM python.backtrace"),
             ("settings", "SELECT name, value FROM information_schema.df_settings"), ("memory", "SELECT max(rss) FROM memory_usage"),
             ("steps", "SELECT step, duration FROM steps ORDER BY timestamp DESC LIMIT 10"), ("samples", "SELECT count(*), sum(count) FROM samples"),
             ("functions", "SELECT func, seconds FROM hot_functions LIMIT 10"),
             ("calls", "SELECT step, module, stage, duration FROM python.torch_trace ORDER BY step DESC, seq LIMIT 10"))


def cpu_of(command, env):
    """Runs a command that must succeed, and returns its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, universal_newlines=True, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise Failed(" ".join(command[-2:]) + ": " + done.stderr.strip()[-120:])
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def one(command, env, cache, old):
    """Asks the question. old=None: for the first time, without a database; True: with the database of a question from long ago; False: with
    one of just now."""
    if old is None:
        shutil.rmtree(cache, ignore_errors=True)
    for path in glob.glob(os.path.join(cache, "*.db")) if old else ():
        os.utime(path, (1, 1))
    return cpu_of(command, env)


def measure(place, python, seconds, times):
    """Returns ({question: (first, next, at once)} in CPU seconds, the same for `probing --version`, the bytes of the trace)."""
    trace, cache, run_dir = place.path("live.zst"), place.path("live.cache"), place.path("live.run")
    for path in (cache, run_dir, trace + ".d"):
        shutil.rmtree(path, ignore_errors=True)
    os.makedirs(run_dir, mode=0o700)
    env = environment(place, PROBING_CACHE_DIR=cache, OMP_NUM_THREADS="1", PROBING_RUN_DIR=run_dir)
    probing = place.tool("probing")
    target = subprocess.Popen([place.tool("probing-record"), "-q", "-r", "100", "-o", trace, python, os.path.join(REPO, "tests", "demo", "train.py"),
                               "--seconds", "100000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    try:
        time.sleep(seconds)
        pid = subprocess.check_output(["pgrep", "-P", str(target.pid)], universal_newlines=True).split()[0]
        found, nothing = {}, []
        for name, sql in QUESTIONS:
            rounds = []
            for _ in range(times):
                nothing.append(cpu_of([probing, "--version"], env))
                rounds.append([one([probing, "-t", pid, "query", sql], env, cache, old) for old in (None, True, False)])
            found[name] = tuple(median(r[i] for r in rounds) for i in range(3))
        return found, median(nothing), os.path.getsize(trace)
    finally:
        for child in subprocess.run(["pgrep", "-P", str(target.pid)], stdout=subprocess.PIPE, universal_newlines=True).stdout.split():
            os.kill(int(child), signal.SIGTERM)
        target.wait()
        for path in (cache, run_dir):
            shutil.rmtree(path, ignore_errors=True)


def main():
    place = Place(sys.argv[1], False)
    place.dir = os.path.abspath(sys.argv[2])
    os.makedirs(place.dir, exist_ok=True)
    seconds, times = [int(a) for a in (sys.argv[4:6] + ["240", "5"][len(sys.argv) - 4:])]
    found, nothing, size = measure(place, sys.argv[3], seconds, times)
    print("trace %.1f MB, a command that does nothing %.1f ms" % (size / 1e6, 1e3 * nothing))
    for name, figures in found.items():
        print("%-10s first %6.1f  next %6.1f  at once %6.1f ms of CPU" % ((name,) + tuple(1e3 * f for f in figures)))


if __name__ == "__main__":
    main()
