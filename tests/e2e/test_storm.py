# SPDX-License-Identifier: Apache-2.0
"""The injection storm (storm.py) with several interpreters and workloads: nothing crashes, hangs or computes anything else, and every
refusal says why."""
import os
import random
import subprocess
import time

import pytest
from storm import BROKEN, WORKLOADS, Storm


def judge(n, reasons):
    assert {k: n.get(k, 0) for k in BROKEN} == dict.fromkeys(BROKEN, 0), (n, reasons)
    assert n["processes right"] > 0 and n.get("done", 0) > 0, (n, reasons)
    explained = ("no safe moment in", "ended", "another client has been asking", "nothing records process", "no way into process",
                 "is traced by process", "there is no process", "cannot ask process", "no permission to trace")
    for text in reasons:
        assert any(e in text for e in explained), reasons


@pytest.mark.pythons(min=(3, 8), count=1)
def test_a_short_storm(build, python):
    """Threads that use malloc heavily, and injectors that are killed in the middle."""
    n, reasons = Storm(build.root, python.path, "malloc", seed=1, kill=0.2, seconds=4).run(15)
    judge(n, reasons)


@pytest.mark.slow
@pytest.mark.limit(900)
@pytest.mark.pythons(min=(3, 8))
@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_storm(build, python, workload):
    """45 injections for each: 2,000 in all over the versions."""
    if workload == "loader" and not python.torch:
        pytest.skip("no torch in this interpreter")
    n, reasons = Storm(build.root, python.path, workload, seed=2, kill=0.1).run(45)
    print(n, reasons)
    judge(n, reasons)


@pytest.mark.slow
@pytest.mark.pythons(min=(3, 8), count=2)
def test_two_at_once(build, python, spawn, tmp_path):
    """A second injector comes while the first is at work, or after it was killed: one of them records, and both say which."""
    env = dict(os.environ, PROBING_RUN_DIR=str(tmp_path))
    target = spawn([python.path, "-c", "print('up', flush=True)\nwhile 1: sum(range(1000))"], ready="up", env=env)
    dice = random.Random(3)

    def probing(*args):
        return subprocess.Popen([str(build.root / "bin" / "probing"), "-t", str(target.pid), *args], env=env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)

    for i in range(40):
        first = probing("inject", "-o", str(tmp_path / ("a%d" % i)))
        time.sleep(dice.uniform(0.005, 0.08))
        if i % 2:
            first.kill()
        second = probing("inject", "-o", str(tmp_path / ("b%d" % i)))
        said = second.communicate(timeout=240)[0]
        first.communicate(timeout=240)
        if second.returncode == 0:
            assert " is already recorded into " in said or " is being recorded into " in said
        else:
            assert "is traced by process" in said or "no safe moment in" in said, said
        for _ in range(100):
            stop = probing("stop")
            answer = stop.communicate(timeout=240)[0]
            if stop.returncode == 0 or second.returncode != 0 and i % 2:
                break
            time.sleep(0.05)
        else:
            pytest.fail("recorded, but not to be stopped: " + answer)
    assert target.poll() is None
