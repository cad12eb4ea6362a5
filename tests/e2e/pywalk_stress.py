# SPDX-License-Identifier: Apache-2.0
"""The target of test_pywalk_direct.py. Usage: pywalk_stress.py LIBRARY SECONDS

Loads pywalk into this process itself. First it reads its own thread's stack directly and compares it with CPython's account; then it runs two
chains of calls that never mix, while a timer interrupts and walks them. Prints its findings as JSON.
"""
import ctypes
import json
import sys
import time

NEW = sys.version_info >= (3, 11)
api = ctypes.pythonapi
lib = ctypes.PyDLL(sys.argv[1])


def address(name):
    return ctypes.addressof(ctypes.c_char.in_dll(api, name))


def opened():
    head = current = runtime = 0
    if sys.version_info < (3, 7):
        api.PyInterpreterState_Head.restype = ctypes.c_void_p
        head, current = api.PyInterpreterState_Head(), address("_PyThreadState_Current")
    else:
        runtime = address("_PyRuntime")
    args = (sys.hexversion, runtime, head, current, address("PyCode_Type"))
    return lib.direct_open(ctypes.c_uint32(args[0]), *map(ctypes.c_uint64, args[1:]))


def deep(n, function):
    return function() if n == 0 else deep(n - 1, function)


def compare():
    buf = ctypes.create_string_buffer(1 << 20)
    stack, frame = [], sys._getframe()
    lib.direct_stack.restype = ctypes.c_int
    n = lib.direct_stack(buf, ctypes.c_size_t(len(buf))); line = sys._getframe().f_lineno
    stack.append("%s\t%s\t%d" % (compare.__name__, frame.f_code.co_filename, line))
    while frame.f_back:
        frame = frame.f_back
        code = frame.f_code
        stack.append("%s\t%s\t%d" % (code.co_qualname if NEW else code.co_name, code.co_filename, frame.f_lineno))
    return n == len(stack) and buf.value.decode().split("\n")[:-1] == stack


def timed():
    ns = (ctypes.c_double * 3)()
    n = lib.direct_time(200, ns)
    return [n] + list(ns)


# ---- two chains that never mix ---------------------------------------------------------------------

class A:
    def __init__(self, n):
        self.n = n
        a_leaf(n)

    def __lt__(self, other):
        return a_leaf(self.n) < other.n


def a_leaf(n):
    return n + 1


def a_generator(n):
    for i in range(n):
        yield a_leaf(i)


def a_raises(n):
    try:
        raise KeyError(n)
    except KeyError:
        return a_leaf(n)


def a_chain(n):
    x = sorted([A(i) for i in range(4)])
    x = sum(a_generator(5)) + len(x)
    list(map(a_leaf, range(5)))
    for i in a_generator(3):
        x += a_raises(i)
    return max([1, 2, 3], key=lambda i: a_leaf(i)) + x


class B:
    def __getattr__(self, name):
        return b_leaf(name, 1, 2)

    def __del__(self):
        b_leaf(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return b_leaf(_)


def b_leaf(*args, **kwargs):
    return len(args)


def b_generator(n):
    while n:
        n = (yield b_leaf(n)) or n - 1


async def b_inner():
    return b_leaf()


async def b_coroutine():
    return await b_inner()


def b_chain(n):
    with B() as b:
        x = b.attribute
    g = b_generator(4)
    for _ in g:
        x += sorted(range(4), key=b_leaf)[0]
    try:
        b_coroutine().send(None)
    except StopIteration:
        pass
    g = b_generator(3)
    next(g)
    g.close()
    return eval("b_leaf(1)") + x


def run(seconds):
    end = time.process_time() + seconds  # in processor time, so that a busy machine takes as many looks
    while time.process_time() < end:
        for i in range(50):
            a_chain(i)
            b_chain(i)
            # Deep enough that chunks of the data stack (16 KB each, from 3.11 on) are allocated and freed.
            deep(100 + i, lambda: a_chain(3))
            deep(200 - i, lambda: b_chain(3))


def codes(functions):
    out = [f.__code__ for f in functions]
    for code in list(out):
        out += [c for c in code.co_consts if hasattr(c, "co_code")]
    out = [id(c) for c in out]
    assert len(out) <= 16
    return out + [0] * (16 - len(out))


def stressed(seconds):
    a = codes([A.__init__, A.__lt__, a_leaf, a_generator, a_raises, a_chain])
    b = codes([B.__getattr__, B.__del__, B.__enter__, B.__exit__, b_leaf, b_generator, b_inner, b_coroutine, b_chain])
    stats = (ctypes.c_uint64 * 10)()
    rc = lib.direct_start(ctypes.c_long(47000), (ctypes.c_uint64 * 32)(*(a + b)),
                          ctypes.c_uint64(id(sys._getframe(1).f_code)))
    assert rc == 0, rc
    try:
        run(seconds)
    finally:
        lib.direct_stop(stats)
    return dict(zip("samples good empty cut torn fault mixed base chain_a chain_b".split(), stats))


print(json.dumps({
    "open": opened(),
    "same": [compare(), deep(20, compare), deep(400, compare), list(map(lambda _: compare(), [1]))[0]],
    "time": deep(17, timed),
    "stress": stressed(float(sys.argv[2])),
}))
