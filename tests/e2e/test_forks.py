# SPDX-License-Identifier: Apache-2.0
"""A fork while a thread of ours is within the dynamic loader: the child has no such thread, and loads libraries all the same."""
import os
import shutil

import pytest
from inject_helpers import finish, probing, target
from record_until import record_until

FIXTURES = (probing, record_until, target)  # tests ask for them by name

PROGRAM = """
import ctypes, os, sys, time
ours = ctypes.CDLL(os.environ["FORK_IN_LOAD"])
held, fork_then = ours.held, ours.fork_then  # looked up before the loader is busy
ours.arm()
print("up", flush=True)
if len(sys.argv) > 2:
    ctypes.CDLL(sys.argv[1])
end = os.environ.get("TEST_END", sys.argv[-1])
while not held() and not os.path.exists(end):
    time.sleep(.001)
was = held()
print(fork_then(os.environ["FRESH"].encode(), b"libc.so.6"), was)
"""


@pytest.fixture
def env(build, tmp_path):
    ours, fresh = str(build.root / "tests/programs/fork_in_load"), str(tmp_path / "fresh.so")
    shutil.copy(str(build.root / "tests/programs/fake_nvml"), fresh)
    for name in ("libnvidia-ml.so.1", "libcuda.so.1"):
        shutil.copy(fresh, str(tmp_path / name))
    return dict(os.environ, LD_PRELOAD=ours, FORK_IN_LOAD=ours, FRESH=fresh, LD_LIBRARY_PATH=str(tmp_path))


def test_while_we_look(record_until, sql, env):
    """What is loaded is read again and again, in no way that a fork could copy."""
    done = record_until(lambda db: sql(db, "SELECT count(*) > 4 FROM memory") == [(1,)], PROGRAM, options=["--metrics", "0.2"], env=env)
    assert done.stdout in ("up\n0 0\n", "up\n0 1\n")


def test_while_we_load(record_until, sql, tmp_path, env):
    """NVML, once the program has to do with GPUs."""
    done = record_until(lambda db: sql(db, "SELECT count(*) > 0 FROM gpu_metrics") == [(1,)], PROGRAM, str(tmp_path / "libcuda.so.1"),
                        options=["--metrics", "0.2"], env=env)
    assert done.stdout == "up\n0 1\n"


def test_while_we_are_loaded(pythons, target, probing, env):
    """By the thread that an injection leaves."""
    process = target(pythons[0], PROGRAM, env=env)
    probing(process.pid, "inject", check=None)
    code, out, err = finish(process)
    assert (code, out) == (0, "0 1"), err
