# SPDX-License-Identifier: Apache-2.0
"""The walker inside a process, on its own thread, as the sampler's signal handler uses it."""
import json
import pathlib
import subprocess

import pytest

STRESS = pathlib.Path(__file__).with_name("pywalk_stress.py")


def stress(python, build, seconds):
    done = subprocess.run([python.path, str(STRESS), str(build.root / "tests/programs/pywalk_direct"), str(seconds)],
                          stdout=subprocess.PIPE, timeout=240 + 20 * seconds)
    assert done.returncode == 0
    seen = json.loads(done.stdout.decode())
    print(seen)
    assert seen["open"] == 0
    assert seen["same"] == [True] * 4
    stats = seen["stress"]
    good = stats["good"]
    assert stats["mixed"] == 0, "a stack that cannot be"
    assert stats["base"] == good, "a stack that does not begin in the module"
    assert stats["empty"] == stats["cut"] == 0
    assert min(stats["chain_a"], stats["chain_b"]) > 100  # how the time is divided between them depends on the interpreter
    # A stack that was read while it changed is dropped. 3.11 and 3.12 have such a moment, some instructions long, whenever C code calls
    # Python; 3.11 to 3.13 have one while a chunk of the data stack is given back to the kernel. This program does little else.
    assert stats["torn"] + stats["fault"] <= stats["samples"] / (50 if python.version >= (3, 11) else 10000)
    return stats


@pytest.mark.pythons(debug=None)
def test_direct(python, build):
    stress(python, build, 1.5)


@pytest.mark.slow
@pytest.mark.pythons(debug=None)
def test_direct_long(python, build):
    assert stress(python, build, 40)["samples"] > 100000
