# SPDX-License-Identifier: Apache-2.0
# describe(value): what of a value goes into the trace. An int, float, str or None; a tuple (address, dtype) for
# a real number that lies in memory, to be read at once; or a list [host, event, address, dtype]: a copy from a GPU on its way.
# It never synchronises with a GPU, and calls no operator of torch for tensors in memory.
import sys

SIMPLE = (int, float, bool, str, bytes, type(None), complex)
INTEGERS = {"int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1}  # bytes


def cut(text, most=200):
    return text if len(text) <= most else text[:most - 3] + "..."


def shape(value):
    return "(%s)" % ", ".join(str(n) for n in tuple(value.shape)[:8])


def has_memory(torch, value):
    """Whether the elements lie where data_ptr() says. A class with operators of its own (FakeTensor, DTensor) may have none there; one without
    (fastai's TensorBase) is stored as torch.Tensor is."""
    same = getattr(type(value), "__torch_dispatch__", None) is getattr(torch.Tensor, "__torch_dispatch__", None)
    return same and value.layout is torch.strided


def number_at(address, kind):
    """An integer as it lies there, with all its digits; of other numbers where they lie."""
    size = INTEGERS.get(kind)
    if not size or not address:
        return (address, kind)
    import ctypes
    whole = int.from_bytes(ctypes.string_at(address, size), sys.byteorder, signed=kind.startswith("int"))
    return int(whole != 0) if kind == "bool" else whole  # never False, with which arrived() says that it is on its way


def tensor(torch, value):
    name = type(value).__name__
    if not has_memory(torch, value):
        return "<%s %s>" % (name, shape(value))
    device = value.device.type
    kind = str(value.dtype).replace("torch.", "")
    if value.numel() != 1 or device not in ("cpu", "cuda") or value.is_complex() or value.is_quantized:
        return "<%s %s %s %s>" % ("Tensor" if name == "Parameter" else name, kind, shape(value), value.device)
    if device == "cpu" and value.is_neg():  # in memory it has the other sign: the imaginary part of a conjugate
        import ctypes
        real = {"float32": ctypes.c_float, "float64": ctypes.c_double}.get(kind)
        return -real.from_address(value.data_ptr()).value if real else "<Tensor %s %s>" % (kind, shape(value))
    if device == "cpu":
        return number_at(value.data_ptr(), kind)
    if torch.cuda.is_current_stream_capturing():
        return "<Tensor %s, while a CUDA graph is captured>" % kind
    with torch.no_grad(), torch.cuda.device(value.device):
        host = torch.empty((1,), dtype=value.dtype, pin_memory=True)
        host.copy_(value.detach().reshape(1), non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(value.device))
    return [host, event, host.data_ptr(), kind]


def describe(value):
    if isinstance(value, SIMPLE):
        if isinstance(value, (str, bytes, complex)):
            return cut(str(value))
        return value if value is None else float(value) if isinstance(value, float) else int(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunction():
            return tensor(torch, value)
    module = type(value).__module__ or ""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        if module == "numpy" and value.shape == () and hasattr(value, "item"):
            item = value.item()
            return describe(item) if isinstance(item, SIMPLE) else cut(str(value))
        return "<%s %s %s>" % (type(value).__name__, value.dtype, shape(value))
    if type(value) in (list, tuple, set, frozenset, dict):
        parts = [y for x in value.items() for y in x] if isinstance(value, dict) else value
        if len(value) > 8 or not all(isinstance(x, SIMPLE) for x in parts):
            return "<%s of %d>" % (type(value).__name__, len(value))
        return cut(repr(value))
    if module.partition(".")[0] == "torch":
        return "<%s>" % type(value).__name__
    return cut(repr(value))


def arrived(copy):
    """A number that was copied from a GPU, as describe() says it, or False while it is on its way."""
    return number_at(copy[2], copy[3]) if copy[1].query() else False


# ---- variables ----------------------------------------------------------------------------------

def place(code, name):
    """Where a local variable lies before 3.12: twice its index, plus 1 if it is in a cell; None: there is none."""
    if name in code.co_varnames:
        index = code.co_varnames.index(name)
        if name not in code.co_cellvars or sys.version_info >= (3, 11):
            return 2 * index + (name in code.co_cellvars)
    cells = [n for n in code.co_cellvars if sys.version_info < (3, 11) or n not in code.co_varnames]
    cells += code.co_freevars
    return 2 * (len(code.co_varnames) + cells.index(name)) + 1 if name in cells else None


def stores(op, name, attribute):
    """Whether the instruction assigns the variable, or the attribute."""
    if not op.opname.startswith("STORE_ATTR" if attribute else "STORE_"):
        return False
    names = op.argval if isinstance(op.argval, tuple) else (op.argval,)
    return name in (names[:1] if op.opname.endswith("LOAD_FAST") else names)


def find_assignment(code, at, name, attribute):
    import dis
    loops, ops = {}, list(dis.get_instructions(code))
    for op in ops:
        if op.opcode in dis.hasjrel or op.opcode in dis.hasjabs:
            if isinstance(op.argval, int) and op.argval <= at < op.offset:
                loops[op.argval] = op.offset  # the last jump back to that place
    first = min((op.offset for op in ops if op.offset > at and stores(op, name, attribute)), default=-1)
    if first < 0:
        return 0
    return 1 if loops and first <= loops[max(loops)] else 2 if loops and first <= max(loops.values()) else 3


assignments = {}  # they hold the code objects: an id stays that of the same one


def assigned_after(frame, name, attribute):
    """4 times the frame's current instruction, plus whether its code assigns the variable behind that: 1 in the innermost loop around it, 2 in
    another such loop, 3 only after these, 0 no."""
    code, at = frame.f_code, frame.f_lasti
    key = (id(code), at, name, attribute)
    if key not in assignments:
        if len(assignments) >= 256:
            assignments.clear()
        assignments[key] = (find_assignment(code, at, name, attribute), code)
    return at * 4 + assignments[key][0]


def assigned_by_now(frame, name, attribute, then):
    """Whether what is assigned in the loop around the instruction `then` // 4 is assigned: the loop has come round, or is past that."""
    now = assigned_after(frame, name, attribute)
    return then & 3 == 1 and (now >> 2 < then >> 2 or (now >> 2 > then >> 2 and now & 3 in (0, 3)))


def suspends(frame):
    """Whether a frame that is being left without an exception will be continued (yield, await), before 3.12."""
    import dis
    code = frame.f_code
    return bool(code.co_flags & 0x2a0) and code.co_code[frame.f_lasti] != dis.opmap["RETURN_VALUE"]


HOLDERS = {"staticmethod": "__func__", "classmethod": "__func__", "method": "__func__", "FunctionWrapper": "__wrapped__"}  # the last: of wrapt


def own(value):
    """What an object holds itself. Nothing of the program's is called for that: a lazy module or a proxy would load what it stands for."""
    try:
        return object.__getattribute__(value, "__dict__")
    except Exception:
        return {}


def function_in(value):
    """The function in decorators of functools, and in methods."""
    for _ in range(8):
        name = HOLDERS.get(type(value).__name__)
        value = getattr(value, name) if name else own(value).get("__wrapped__", value)
    return value


def codes_in(names, func, depth=0):
    """Code objects of the functions called `func` in a namespace, its classes included."""
    for value in list(names.values()):
        value = function_in(value)
        if type(value).__name__ == "function" and hasattr(value, "__code__"):
            if func in (value.__code__.co_name, getattr(value, "__qualname__", "")):
                yield value.__code__
        elif issubclass(type(value), type) and depth < 2:
            yield from codes_in(own(value), func, depth + 1)


def find_codes(func):
    """Functions called `func` in the program's own modules, not those of the library or of packages; a class's method in all modules."""
    found, outer = [], func.partition(".")[0]
    for name, module in list(sys.modules.items()):
        names = dict(own(module))
        path = names.get("__file__") or ""
        if name != "__main__" and (not isinstance(path, str) or not path or "/lib/python" in path or "-packages/" in path):
            names = {outer: names[outer]} if issubclass(type(names.get(outer)), type) else {}
        if name.partition(".")[0] != "probing":
            found += [c for c in codes_in(names, func) if c not in found]
    return found[:16]


class Returns:
    """sys.monitoring's PY_RETURN for single code objects (3.12 and later).

    Only with a number that PEP 669 leaves to anybody: a debugger, coverage or a profiler that comes later finds its own.
    """

    def __init__(self, callback):
        self.tool = None
        self.codes = []
        m = sys.monitoring
        for tool in (4, 3):
            if m.get_tool(tool) is None:
                m.use_tool_id(tool, "probing")
                m.register_callback(tool, m.events.PY_RETURN, callback)
                self.tool = tool
                break

    def watch(self, code):
        """Whether its returns are told."""
        if self.tool is None:
            return False
        if code in self.codes:
            return True
        m = sys.monitoring
        m.set_local_events(self.tool, code, m.events.PY_RETURN)
        self.codes.append(code)
        return True

    def close(self):
        if self.tool is None:
            return
        m = sys.monitoring
        for code in self.codes:
            m.set_local_events(self.tool, code, 0)
        m.register_callback(self.tool, m.events.PY_RETURN, None)
        m.free_tool_id(self.tool)
        self.tool, self.codes = None, []


# ---- ranks --------------------------------------------------------------------------------------

def distributed():
    d = sys.modules.get("torch.distributed")
    if d is not None and d.is_available() and d.is_initialized():
        return (d.get_rank(), d.get_world_size())
    return None
