# SPDX-License-Identifier: Apache-2.0
"""What the agent does in the main thread, in pending calls of CPython, never keeps the program from going on."""
import pytest
from test_torch import find_torch

# In CPython 3.11 a traced Python function that is entered within a pending call, while another one is queued, never begins.
PROGRAM = """
import ctypes, os, sys, tempfile, time
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
add, asked = ctypes.pythonapi.Py_AddPendingCall, []
add.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
nothing = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p)
names = type(c10d._world).pg_names.fget
def below(world):
    return names(world)
def pg_names(world):  # the agent asks for it: another pending call comes meanwhile, and the GIL is taken anew
    asked.append(1)
    add(nothing, None)
    time.sleep(0.01)
    return below(world)
type(c10d._world).pg_names = property(pg_names)
sys.setprofile(slice)  # a profile function that is no Python function
dist.init_process_group("gloo", store=dist.FileStore(tempfile.mktemp(), 1), rank=0, world_size=1)
asked.clear()
end = time.monotonic() + 600
while time.monotonic() < end and not asked:
    dist.all_reduce(torch.ones(4))
    time.sleep(0.01)
time.sleep(0.1)
dist.all_reduce(torch.ones(4))
print("asked" if asked else "never asked", flush=True)
os._exit(0)  # torch's own threads now and then meet an interpreter that is gone, and abort
"""


def test_one_that_comes_within_another(record, tmp_path):
    python, why = find_torch("recent")
    if python is None:
        pytest.skip(why)
    done = record(PROGRAM, python=python, timeout=150)
    assert done.stdout == "asked\n"
