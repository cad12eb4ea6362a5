# SPDX-License-Identifier: Apache-2.0
"""The injection storm (storm.py) over interpreters and workloads: nothing crashes, hangs or computes something else, and
every refusal says why."""
import pytest
from storm import BROKEN, WORKLOADS, Storm


def judge(n, reasons):
    assert {k: n.get(k, 0) for k in BROKEN} == dict.fromkeys(BROKEN, 0), (n, reasons)
    assert n["processes right"] > 0 and n.get("done", 0) > 0, (n, reasons)
    explained = ("no safe moment in", "ended", "another client is asking", "nothing records process", "no way into process",
                 "is traced by process", "there is no process", "cannot ask process", "no permission to trace")
    for text in reasons:
        assert any(e in text for e in explained), reasons


@pytest.mark.pythons(min=(3, 8), count=1)
def test_a_short_storm(build, python):
    """Malloc-heavy threads, with injectors killed in the middle."""
    n, reasons = Storm(build.root, python.path, "malloc", seed=1, kill=0.2, seconds=4).run(15)
    judge(n, reasons)


@pytest.mark.slow
@pytest.mark.limit(900)
@pytest.mark.pythons(min=(3, 8))
@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_storm(build, python, workload):
    """45 each: 2,000 in all over the versions."""
    if workload == "loader" and not python.torch:
        pytest.skip("no torch in this interpreter")
    n, reasons = Storm(build.root, python.path, workload, seed=2, kill=0.1).run(45)
    print(n, reasons)
    judge(n, reasons)
