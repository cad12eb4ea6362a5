# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own state is destroyed while a process exits: the recording has ended by then, so nothing of ours meets it half gone."""
import subprocess

import pytest

from test_torch import find_torch

TRAINING = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])  # first: its exit handler runs last
import torch, time
m = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(m.parameters(), lr=0.1)
end = time.monotonic() + 1
while time.monotonic() < end:
    m(torch.ones(2, 3)).sum().backward()
    opt.step()
"""


@pytest.mark.limit(120)
@pytest.mark.parametrize("kind", ["debian", "recent"])
def test_the_recording_ends_before_torch_is_destroyed(kind, build, tmp_path, convert, sql):
    path, why = find_torch(kind)
    if not path:
        pytest.skip(why)
    script, trace = tmp_path / "train.py", tmp_path / "trace.zst"
    script.write_text(TRAINING)
    with subprocess.Popen([str(build.tool("probing-record")), "-o", str(trace), "--", path, "-u", str(script),
                           str(build.root / "tests/programs/slow_exit")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, universal_newlines=True) as recorder:
        assert recorder.stdout.readline() == "exiting\n"  # all that was loaded after the library is destroyed
        children = subprocess.run(["pgrep", "-P", str(recorder.pid)], stdout=subprocess.PIPE, universal_newlines=True)
        pid = children.stdout.split()[0]
        ask = subprocess.run([str(build.tool("probing")), "-t", pid, "config", "torch.profiling=off"],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
        assert ask.returncode == 3 and "nothing records" in ask.stdout
        err = recorder.communicate()[1]
    assert recorder.returncode == 0 and "not found" not in err, err
    db = convert(trace)
    assert sql(db, "SELECT end_reason FROM trace") == [("exit",)]
    assert sql(db, "SELECT count(*) > 10 FROM steps") == [(1,)]
