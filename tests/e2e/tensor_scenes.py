# SPDX-License-Identifier: Apache-2.0
"""The target of test_objects.py: numpy's arrays and torch's tensors. Prints [[address, expected text]] as JSON, and waits.

The expected texts are made of what numpy and torch themselves report: shape, dtype, device and the first values. Numbers have the fewest
digits that give the same value in their type, as numpy writes them. `others` is {version: pid} of copies of the process in which torch claims
to be another version.
"""
import ctypes
import importlib.util
import itertools
import json
import os
import pickle
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np

kept, values = [], []
SHOWN = 20


def shown(o, text):
    kept.append(o)
    values.append([hex(id(o)), text])


def number(v):
    """Returns a numpy scalar as the renderer writes it."""
    if isinstance(v, (bool, np.bool_)):
        return str(bool(v))
    if isinstance(v, np.floating):
        return repr(float(np.format_float_scientific(v, unique=True))) if np.isfinite(v) else repr(float(v))
    if isinstance(v, np.complexfloating):
        # complex() of the shortest digits, so that each of its two parts is exact
        return repr(complex(float(number(v.real)), float(number(v.imag))))
    if isinstance(v, (np.datetime64, np.timedelta64)):
        return str(v) if v.dtype.kind == "M" or np.isnat(v) else str(int(v.astype("int64")))
    if isinstance(v, np.void):
        return "(%s%s)" % (", ".join(number(v[n]) for n in v.dtype.names), "," * (len(v.dtype.names) == 1))
    if isinstance(v, np.ndarray):  # a field of a record
        return "[%s]" % ", ".join(map(number, v))
    if isinstance(v, (np.str_, np.bytes_)):
        return repr(v.item())
    return repr(v.item() if isinstance(v, np.generic) else v)


def listed(items, count):
    texts = [number(v) for v in itertools.islice(items, SHOWN)] + (["..."] if count > SHOWN else [])
    return ": " + ", ".join(texts) if texts else ""


DTYPES = {"O": "object"}


def fields(dtype):
    if dtype.subdtype:
        return "%s, %r" % (fields(dtype.base), dtype.shape)
    if dtype.names is None:
        return repr(str(dtype).lstrip("<|"))
    return "[%s]" % ", ".join("(%r, %s)" % (n, fields(dtype.fields[n][0])) for n in dtype.names)


def array(a, dtype=None):
    if dtype is None:
        dtype = fields(a.dtype) if a.dtype.names else DTYPES.get(a.dtype.kind) or (a.dtype.str[1:] if a.dtype.kind in "SU" else
                                             a.dtype.str if a.dtype.byteorder == ">" else str(a.dtype))
    shown(a, "<numpy.ndarray shape=%r dtype=%s%s>" % (a.shape, dtype, listed(iter(a.flat), a.size)))


rng = np.random.RandomState(1)
for kind in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
             "complex64", "complex128"):
    some = (rng.standard_normal(24) * 50).astype(kind) if kind[0] != "u" else np.arange(24).astype(kind)
    array(some)
    array(some.reshape(2, 3, 4))
    array(some.reshape(2, 3, 4)[:, ::2, ::-1])
    array(some.reshape(4, 6).T)
    array(some[5:5])
    array(some[:1].reshape(()))
    array(np.asfortranarray(some.reshape(4, 6)))
    array(np.broadcast_to(some[:3], (4, 3)))
    if kind not in ("bool", "int8", "uint8"):
        array(some.astype(some.dtype.newbyteorder(">")))
    scalar = some[3]
    shown(scalar, "%s(%s)" % (str(type(scalar)).split("'")[1], number(scalar)))
array(np.array([0.1, -0.0, np.inf, -np.inf, np.nan, 1e300, 5e-324]))
array(np.array([0.1, 65504, 6e-8, np.nan, 1 / 3], dtype="float16"))
array(np.array(["a", "bcd", "\u6587"]))
eight = np.dtype("f2", metadata={"a type": "of its own"})  # a float of one byte, as ml_dtypes has one: its values are not known here
size, at = (ctypes.c_int64, 40) if np.__version__ >= "2" else (ctypes.c_int32, 32)
halves = np.ones(3, dtype=eight)
size.from_address(id(halves.dtype) + at).value = 1
shown(halves, "<numpy.ndarray shape=(3,) dtype=void8>")
array(np.array([b"ab", b"", b"x\xff"]))
array(np.array(["2020-01-01", "1969-12-31"], dtype="datetime64[D]"))
array(np.array([1, -5], dtype="timedelta64[s]"))
array(np.array([None, 1, "x", [2]], dtype=object))
array(np.zeros((0, 3)))
array(np.ones((1,) * 20))
array(np.arange(10 ** 6))
for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "25s", "7D", "3M"):
    for kind in ("datetime64", "timedelta64"):
        array(np.array([0, 1, -1, 59, 60, 1439, 86399, 86400, -86401, 19782, 11016, -25567, 36524, 123456, "NaT"],
                       dtype="%s[%s]" % (kind, unit)))
array(np.array(["2024-02-29T12:34:56.123456789", "1582-10-15", "1900-03-01"], dtype="M8[ns]"))
array(np.array(["0001-01-01", "9999-12-31", "2000-02-29", "1600-03-01"], dtype="M8[us]"))
array(np.array([5, "NaT"], dtype="timedelta64"), "timedelta64")
array(np.array([-2 ** 63 + 1, 2 ** 63 - 1], dtype="M8[as]"))
array(np.array(["2024-02-29"], dtype=">M8[s]"), ">M8")
point = np.dtype([("x", "i4"), ("y", "f8")])
array(np.zeros((3,), dtype=point)[:0])
array(np.array([(1, 2.5), (-3, np.inf)], dtype=point))
array(np.array([(i, i / 4) for i in range(30)], dtype=point).reshape(5, 6)[::2])
array(np.array([("ab", b"c", "2024-01-02", True, None)], dtype=[("name", "U4"), ("raw", "S3"), ("at", "M8[D]"), ("\u6587 ok", "?"),
                                                                 ("any", "O")]))
nested = np.array([((1, 2), 3)], dtype=[("p", point), ("z", "u1")])
array(nested)
array(np.array([(1,)], dtype=[("only", "i8")]))
array(np.array([(1, 2)], dtype=[(("a title", "n"), "i2"), (("another", "m"), "i2")]))
array(np.array([(1, 2)], dtype=np.dtype([("a", "i1"), ("b", "i8")], align=True)))
array(pickle.loads(pickle.dumps(nested)))
array(np.array([(1, [1.5, 2, 3], [[1, 2], [3, 4]], 7)], dtype=[("a", "i1"), ("xyz", "f4", 3), ("m", "i8", (2, 2)), ("end", "i2")]))
array(np.array([([(1, 2.5), (3, 4)],)], dtype=[("points", point, 2)]))
array(np.array([(1, 2, 3)], dtype=[("a", "i1"), ("b", "i8"), ("c", "f2")])[["c", "a"]])
for scalar in (nested[0], np.rec.array([(1, "x")], dtype=[("a", "i4"), ("b", "U1")])[0]):
    shown(scalar, "%s(%s)" % (str(type(scalar)).split("'")[1], number(scalar)))
shown(np.dtype(point), "dtype(%s)" % fields(point))
for text in ("2024-02-29", "2024", "2024-02", "1969-12-31T23:59:59", "2024-02-29T12:34:56.123456789", "2024-01-01T05", "NaT"):
    shown(np.datetime64(text), "numpy.datetime64(%r)" % text if text != "NaT" else "numpy.datetime64(NaT)")
shown(np.timedelta64(5, "s"), "numpy.timedelta64(5,'s')")
shown(np.timedelta64(-5, "25ms"), "numpy.timedelta64(-5,'25ms')")
shown(np.timedelta64(7), "numpy.timedelta64(7)")
shown(np.float64(2.5), "numpy.float64(2.5)")
shown(np.datetime64(5, "s"), "numpy.datetime64('1970-01-01T00:00:05')")
shown(np.str_("s"), "numpy.str_('s')")

shown(np.dtype("float32"), "dtype('float32')")
shown(np.dtype("U5"), "dtype('U5')")


class Sub(np.ndarray):
    pass


sub = np.arange(3).view(Sub)
shown(sub, "<__main__.Sub shape=(3,) dtype=int64: 0, 1, 2>")
masked = np.ma.array([1, 2, 3], mask=[False, True, False])
shown(masked, "re:<numpy.ma.(core.)?MaskedArray shape=\\(3,\\) dtype=int64 "
      "mask=<numpy.ndarray shape=\\(3,\\) dtype=bool: False, True, False>: 1, 2, 3>$")

if importlib.util.find_spec("torch"):
    import torch
    torch.set_num_threads(1)

    def tensor(t, first=True, name="torch.Tensor"):
        text = "<%s shape=%r dtype=%s" % (name, tuple(t.shape), str(t.dtype).split(".")[1])
        text += " device=%s" % t.device
        if t.requires_grad:
            text += " requires_grad=True"
        if first:
            flat = t.detach().resolve_conj().contiguous().reshape(-1)[:SHOWN]
            text += listed(iter(flat.numpy() if flat.dtype != torch.bfloat16 else flat.float().numpy()), t.numel())
        shown(t, text + ">")

    torch.manual_seed(1)
    shown(torch.float32, "torch.float32")
    shown(torch.bfloat16, "torch.bfloat16")
    shown(torch.device("cpu"), "device(type='cpu')")
    shown(torch.device("cuda:1"), "device(type='cuda', index=1)")
    shown(torch.zeros(2, 3).shape, "torch.Size((2, 3))")
    for kind in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
                 torch.float64, torch.complex64, torch.complex128):
        some = (torch.randn(24) * 50).to(kind)
        tensor(some)
        tensor(some.reshape(2, 3, 4))
        tensor(some.reshape(2, 3, 4).transpose(0, 2))
        tensor(some[::5])
        tensor(some[7])
        tensor(some[:0])
        tensor(some[:3].expand(4, 3))
        tensor(some.reshape(2, 1, 2, 1, 3, 2))  # more dimensions than fit into the tensor object itself
    tensor(torch.tensor([1.5, -2.0, 0.5, float("inf")], dtype=torch.bfloat16))
    grad = torch.ones(2, 2, requires_grad=True)
    tensor(grad)
    tensor(grad * 2)
    tensor((grad * 2).detach())
    (grad * 3).sum().backward()
    tensor(grad.grad)
    tensor(torch.nn.Parameter(torch.ones(3)), name="torch.nn.parameter.Parameter")
    tensor(torch.nn.Parameter(torch.ones(3), requires_grad=False), name="torch.nn.parameter.Parameter")
    tensor(torch.empty(5, 6, device="meta"), first=False)
    tensor(torch.eye(3).to_sparse(), first=False)
    from_numpy = torch.from_numpy(np.arange(6.0))
    tensor(from_numpy)
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0) if hasattr(freed, "untyped_storage") else freed.storage().resize_(0)
    tensor(freed, first=False)
    linear = torch.nn.Linear(3, 2)
    shown(linear, "re:<torch.nn.modules.linear.Linear at 0x[0-9a-f]+: training=True, in_features=3, out_features=2>$")
    shown([torch.zeros(2)], "[<torch.Tensor shape=(2,) dtype=float32 device=cpu: 0.0, 0.0>]")

    class Sub(torch.Tensor):
        pass

    tensor(torch.ones(2).as_subclass(Sub), name="__main__.Sub")
    # Tensors whose values are computed from the memory's contents when they are asked for.
    turned = torch.tensor([1 + 2j]).conj()
    shown(turned, "re:<torch.Tensor shape=.1,. dtype=complex64 device=cpu to be conjugated: .1\\+2j.>$")
    shown(turned.imag, "re:<torch.Tensor shape=.1,. dtype=float32 device=cpu to be negated: 2.0>$")
    ragged = torch.nested_tensor if hasattr(torch, "nested_tensor") else torch.nested.nested_tensor
    shown(ragged([torch.ones(2), torch.ones(3)]), "re:<torch.Tensor nested dtype=float32 device=cpu>$")
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    tensor(quantized, first=False)

out = {"values": values}
if "torch" in sys.modules:
    out["torch"], out["others"] = torch.__version__, {}
    alive, keep = os.pipe()
    for said in ("99.7.0", "1.13.1" if out["torch"].startswith("2.") else "2.13.0"):
        ready, done = os.pipe()
        out["others"][said] = os.fork()
        if out["others"][said] == 0:
            torch.__version__ = said
            os.close(keep)
            os.close(1)
            os.write(done, b"x")
            os.read(alive, 1)  # returns when the parent has ended
            os._exit(0)
        os.read(ready, 1)
print(json.dumps(out), flush=True)
time.sleep(1000)
