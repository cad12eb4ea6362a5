# SPDX-License-Identifier: Apache-2.0
"""The target of test_pywalk.py: one thread per scene, each blocked in a stack of its own kind.

Prints one JSON object: for every scene its thread ident, kernel thread id and the stack that CPython itself reports, innermost first, as
[name, file, line]. Then the main thread spins, holding the GIL. Lines that end in `#@` are the lines
that execute, by construction (from 3.8 on; before, a call over several lines has the line of its last argument).
Runs on 3.6 and later.
"""
import asyncio
import ctypes
import functools
import gc
import json
import os
import re
import sys
import tempfile
import threading
import time

NEW = sys.version_info >= (3, 11)
SCENES = []
reports = {}
libc = ctypes.CDLL(None)


def name_of(code):
    return code.co_qualname if NEW else code.co_name


def stack_of(frame):
    stack = []
    while frame is not None:
        stack.append([name_of(frame.f_code), frame.f_code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return stack


def report(frame):
    reports[threading.current_thread().name] = (frame, stack_of(frame), libc.syscall(186))


def block(*_):
    report(sys._getframe()); time.sleep(1000)  #@


def scene(function):
    SCENES.append((function.__name__, function))
    return function


@scene
def nested():
    def one(x):
        return two(x + 1)  #@

    def two(x):
        return three(x,
                     y=1)

    def three(x, y):
        if x and y:
            for _ in range(3):
                block()  #@
    for i in range(20):
        i += 1
    one(i)  #@


nested_two_line = nested.__code__.co_firstlineno + 5  # the first line of the call in two()


@scene
def generators():
    def leaf():
        yield 1
        block()  #@
        yield 2

    def middle():
        yield from leaf()  #@

    for _ in (x for x in middle()):  #@
        pass


@scene
def generator_from_c():
    def source():
        for i in range(100):
            if i == 99:
                block()  #@
            yield i

    list(map(str, source()))  #@


@scene
def generator_throw():
    def source():
        try:
            yield 1
        except ValueError:
            block()  #@

    g = source()
    next(g)
    g.throw(ValueError())  #@


class Awaitable:
    def __await__(self):
        block()  #@
        yield


@scene
def coroutines():
    async def inner():
        await Awaitable()  #@

    async def outer():
        await inner()  #@

    outer().send(None)  #@


@scene
def asynchronous_generator():
    async def source():
        yield 1
        block()  #@

    async def outer():
        async for _ in source():  #@
            pass

    outer().send(None)  #@


@scene
def event_loop():
    async def inner():
        await asyncio.sleep(0)
        block()  #@

    async def outer():
        await asyncio.gather(inner(), asyncio.sleep(1000))

    asyncio.set_event_loop(asyncio.new_event_loop())
    asyncio.get_event_loop().run_until_complete(outer())  #@


class Base:
    def __init__(self, depth):
        self.depth = depth
        if depth == 500:
            block()  #@


class Derived(Base):
    def __init__(self, depth):
        super().__init__(depth)  #@


@scene
def initialisers():
    for i in range(501):  # often enough for the call to be specialised (3.13: with a trampoline)
        Derived(i)  #@


class Plain:
    def __init__(self, depth):
        if depth == 500:
            block()  #@


def make(depth):
    return Plain(depth)  #@


@scene
def initialiser_trampoline():
    for i in range(501):
        make(i)  #@


class Meta(type):
    def __call__(cls, *args):
        return super().__call__(*args)  #@


class Methods(metaclass=Meta):
    @classmethod
    def on_class(cls):
        return cls.on_nothing()  #@

    @staticmethod
    def on_nothing():
        return Methods().attribute  #@

    @property
    def attribute(self):
        return self.missing  #@

    def __getattr__(self, name):
        return self[name]  #@

    def __getitem__(self, key):
        with self:  #@
            pass

    def __enter__(self):
        return self + 1  #@

    def __exit__(self, *_):
        pass

    def __add__(self, other):
        return self == other  #@

    def __eq__(self, other):
        return self(other)  #@

    def __call__(self, other):
        return repr(self)  #@

    def __repr__(self):
        block()  #@


@scene
def methods():
    Methods.on_class()  #@


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)  #@
    return wrapper


@scene
def decorators():
    @decorated
    @decorated
    def bottom(x, y=0):
        block()  #@

    functools.partial(bottom, 1)(y=2)  #@


@scene
def comprehensions():
    [y for y in [1]
     for z in [
         {k: v for k, v in
          {1: {block() for _ in [1]}}.items()}]]


@scene
def called_from_c():
    def key(x):
        return functools.reduce(lambda a, b: a or min([1], key=block), [0, x, 1])  #@

    re.sub("a", lambda m: str(sorted([3, 1], key=key)), "a")  #@


@scene
def called_through_ctypes():
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
    values = (ctypes.c_int * 2)(2, 1)
    libc.qsort(values, 2, 4, kind(lambda a, b: block() or 0))  #@


@scene
def executed():
    space = {"block": block}
    exec(compile("def f():\n\n  return eval('block()')\n", "some place", "exec"), space)
    exec("class K:\n  x = f()", space)  #@


@scene
def many_lines():
    def f(*args, **kwargs):
        return args

    f(
        1,
        f(
            2,
            *f(
                3,
                key=(
                    block(  #@
                        4,
                        5,
                    )
                ),
            ),
        ),
        6,
    )


@scene
def no_inner_line():
    return (lambda: (
        block()))()


def deep(n):
    if n == 0:
        block()  #@
    return deep(n - 1)  #@


@scene
def recursion():
    deep(900)  #@


def renamed(source, filename):
    space = {"block": block}
    exec(compile(source, filename, "exec"), space)
    return space


@scene
def names_latin1():
    renamed("def \xe9t\xe9():\n  block()", "/tmp/\xfcmlaut.py")["\xe9t\xe9"]()  #@


@scene
def names_two_bytes():
    renamed("def \u51fd\u6570():\n  block()", "/tmp/\u6587/\u4ef6.py")["\u51fd\u6570"]()  #@


@scene
def names_four_bytes():
    renamed("def \U00010400x():\n  block()", "/tmp/\U0001f600.py")["\U00010400x"]()  #@


@scene
def names_surrogate():
    renamed("def f():\n  block()", os.fsdecode(b"/tmp/\xff-bytes.py"))["f"]()  #@


@scene
def names_long():
    renamed("def %s():\n  block()" % ("n" * 300), "/tmp/" + "d\xe9" * 700)["n" * 300]()  #@


@scene
def except_block():
    try:
        raise KeyError(1)
    except KeyError:
        try:
            raise ValueError(2)
        finally:
            block()  #@


class Context:
    def __enter__(self):
        return self

    def __exit__(self, kind, value, tb):
        block()  #@


@scene
def context_exit():
    with Context():  #@
        raise RuntimeError("in flight")  #@ (to 3.9; later the with statement)


class Finalised:
    def __del__(self):
        block()  #@


@scene
def finaliser():
    x = Finalised()
    x = None  #@
    return x


@scene
def collector():
    def callback(phase, info):
        if threading.current_thread().name == "collector" and phase == "start":
            gc.callbacks.clear()
            gc.disable()
            block()  #@
    gc.callbacks.append(callback)
    gc.collect()  #@


@scene
def importing():
    directory = tempfile.mkdtemp()
    with open(os.path.join(directory, "pywalk_imported.py"), "w") as f:
        f.write("import __main__\n\n\n__main__.block()\n")
    sys.path.insert(0, directory)
    import pywalk_imported  #@
    return pywalk_imported


@scene
def tracing():
    def tracer(frame, event, arg):
        if frame.f_code.co_name == "traced":
            sys.settrace(None)
            block()  #@
        return tracer

    def traced():  #@
        return 1

    sys.settrace(tracer)
    traced()  #@


@scene
def profiling():
    def profiler(frame, event, arg):
        if event == "return" and frame.f_code.co_name == "profiled":
            sys.setprofile(None)
            block()  #@

    def profiled():
        return 1  #@

    sys.setprofile(profiler)
    profiled()  #@


@scene
def weak_callback():
    import weakref
    x = Base(1)
    ref = weakref.ref(x, block)
    del x  #@
    return ref


def spin():
    while True: pass  #@


def main():
    threads = {}
    threading.stack_size(16 << 20)
    for name, function in SCENES:
        threads[name] = threading.Thread(target=function, name=name, daemon=True)
        threads[name].start()
        # The scenes start one after the other, because some of them (import, collector) affect the process as a whole.
        limit = time.time() + 20
        while name not in reports or sys._current_frames().get(threads[name].ident) is not reports[name][0]:
            time.sleep(0.001)
            if time.time() > limit or not threads[name].is_alive():
                sys.exit("scene %s did not block" % name)
    out = {"scenes": {}, "main": {"ident": threading.get_ident(), "tid": libc.syscall(186)}}
    for name, thread in threads.items():
        frame, stack, tid = reports[name]
        now = stack_of(sys._current_frames()[thread.ident])
        assert now == stack, (name, now, stack)
        out["scenes"][name] = {"ident": thread.ident, "tid": tid, "stack": stack}
    print(json.dumps(out), flush=True)
    spin()  #@


main()  #@
