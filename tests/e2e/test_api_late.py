# SPDX-License-Identifier: Apache-2.0
"""Values that arrive some steps after they were asked for, as those of tensors on a GPU do, in a program whose threads all end steps."""
import os

from test_api import FEW

# As much of torch as is asked for the number of a tensor on a GPU: a copy of it is begun, and asked for at later steps without the GIL.
COMING = """
import sys, time, threading, types, ctypes
import probing
torch = types.ModuleType("torch")
class Device(object):
    type = "cuda"
class Tensor(object):
    layout = "strided"; dtype = "torch.float32"; device = Device(); shape = ()
    def __init__(self, v): self.memory = ctypes.c_float(v)
    def numel(self): return 1
    def is_complex(self): return False
    is_quantized = False
    def detach(self): return self
    def reshape(self, n): return self
    def copy_(self, other, non_blocking): self.memory.value = other.memory.value
    def data_ptr(self): return ctypes.addressof(self.memory)
class Event(object):
    def record(self, stream): self.asked = 0
    def query(self):
        self.asked += 1
        time.sleep(0.001)
        return self.asked > 2
class Nothing(object):
    def __init__(self, *a): pass
    def __enter__(self): pass
    def __exit__(self, *a): pass
torch.Tensor = Tensor; torch.strided = "strided"; torch.no_grad = Nothing
torch.nn = types.SimpleNamespace(Parameter=type("Parameter", (Tensor,), {}))
torch.cuda = types.SimpleNamespace(is_current_stream_capturing=lambda: False, device=Nothing, Event=Event, current_stream=lambda d: None)
torch.empty = lambda shape, dtype, pin_memory: Tensor(0)
torch._C = types.SimpleNamespace(DisableTorchFunction=Nothing)
torch.distributed = None
sys.modules["torch"] = torch
def train(n):
    for i in range(100):
        loss = Tensor(n + i)
        probing.step()
ts = [threading.Thread(target=train, args=(1000 * k,)) for k in range(4)]
[t.start() for t in ts]; [t.join() for t in ts]
print("alive")
"""


@FEW
def test_values_that_come_later_in_several_threads(build, interpreter, record, convert, sql):
    """Each is recorded once. (A thread that has to wait for a value keeps no other thread from taking the next one.)"""
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    done = record(COMING, python=interpreter, env=env, options=["-q", "--exprs", "loss@train"])
    assert done.stdout == "alive\n"
    numbers = [n for n, in sql(convert(done.trace), "SELECT number FROM variables")]
    assert len(numbers) == len(set(numbers)) > 100 and set(numbers) <= {1000 * k + i for k in range(4) for i in range(100)}
