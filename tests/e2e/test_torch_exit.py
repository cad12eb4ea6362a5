# SPDX-License-Identifier: Apache-2.0
"""PyTorch destroys its own state while a process exits. The recording has ended by then, so the agent never uses state that is half
destroyed; and the trace has everything that was to be said about PyTorch."""
import os
import subprocess

import pytest

from test_torch import find_torch

IS_RECORDED = """
import ctypes
class Plain:
    def __call__(self): pass
def is_recorded():  # the slot tp_call of nn.Module is not that of a class any more
    slots = [ctypes.c_void_p.from_address(id(t) + 128).value for t in (torch.nn.Module, Plain)]
    return slots[0] != slots[1]
"""

TRAINING = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])  # first: its exit handler runs last
import torch
""" + IS_RECORDED + """
m = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(m.parameters(), lr=0.1)
left = 20
while left:
    left -= is_recorded()
    m(torch.ones(2, 3)).sum().backward()
    opt.step()
"""

AT_ONCE = """
import os, probing, torch
""" + IS_RECORDED + """
m, x = torch.nn.Linear(3, 3), torch.ones(2, 3)
def train(n):
    for _ in range(n): m(x).sum().backward()
train(1)
probing.enable_torch_profiling()  # here, and not while torch is imported, which takes many rounds
while not is_recorded(): pass
train(40)  # more nodes than it takes to know where they lie
os._exit(0)
"""


@pytest.mark.limit(120)
@pytest.mark.parametrize("kind", ["debian", pytest.param("recent", marks=pytest.mark.slow)])
def test_the_recording_ends_before_torch_is_destroyed(kind, build, tmp_path, convert, sql):
    path, why = find_torch(kind)
    if not path:
        pytest.skip(why)
    script, trace = tmp_path / "train.py", tmp_path / "trace.zst"
    script.write_text(TRAINING)
    with subprocess.Popen([str(build.tool("probing-record")), "-o", str(trace), "--", path, "-u", str(script),
                           str(build.root / "tests/programs/slow_exit")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, universal_newlines=True) as recorder:
        assert recorder.stdout.readline() == "exiting\n"  # everything that was loaded after the library is destroyed
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


@pytest.mark.parametrize("kind", ["debian", pytest.param("recent", marks=pytest.mark.slow)])
def test_a_program_that_ends_at_once(kind, build, record, convert, sql):
    """The program ends before the agent's next round; the trace still says that modules were recorded, and how."""
    path, why = find_torch(kind)
    if not path:
        pytest.skip(why)
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    db = convert(record(AT_ONCE, python=path, options=["-q", "--torch", "off"], env=env).trace)
    assert sql(db, "SELECT count(*) FROM notes WHERE part = 'torch' AND text GLOB 'recording: slots of*'") == [(1,)]
    assert sql(db, "SELECT count(*) FROM notes WHERE part = 'torch' AND text GLOB '* are seen where the engine calls them'") == [(1,)]


LOADED_AT_THE_END = """
import ctypes, glob, importlib.util, os, sys
torch = importlib.util.find_spec("torch").submodule_search_locations[0]  # not imported
os.environ["SLOW_EXIT_LOADS"] = (glob.glob(torch + "/lib/libtorch_cpu.so*") + glob.glob("/usr/lib/*/libtorch_cpu.so*"))[0]
ctypes.CDLL(sys.argv[1])
"""


@pytest.mark.limit(60)
@pytest.mark.parametrize("kind", ["debian", "recent"])
def test_a_library_that_is_seen_after_pythons_end(kind, build, record, convert, sql):
    """A program loads torch's library and ends at once, as those that torch.compile starts do: nothing of the library is called any more.
    (Once a warning said that modules' backward is off.)"""
    path, why = find_torch(kind)
    if not path:
        pytest.skip(why)
    done = record(LOADED_AT_THE_END, build.root / "tests/programs/slow_exit", python=path)
    assert done.stdout == "exiting\n", done.stderr
    db = convert(done.trace)
    assert sql(db, "SELECT text FROM notes WHERE part = 'torch'") == []
