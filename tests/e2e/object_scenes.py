# SPDX-License-Identifier: Apache-2.0
"""The target of test_objects.py: objects whose text is known, and frames whose locals are known.

Prints one JSON object with `values`, [address, expected text] pairs, and `frames`, {function: {local: expected text}} for the frames of the
main thread, innermost first; then it sleeps. An expected text is what repr() gives where object.h says that the renderer gives the same; else
it is written out here. One that begins with "re:" is a regular expression. Runs on Python 3.6 and later.
"""
import array
import collections
import ctypes
import datetime
import decimal
import enum
import functools
import json
import math
import os
import re
import struct
import sys
import time
import types
import weakref

V = sys.version_info[:2]
kept = []    # keeps all objects that are looked at alive
values = []


def same(*objects):
    """For objects whose rendered text must equal their repr()."""
    for o in objects:
        kept.append(o)
        values.append([id(o), repr(o)])


def shown(o, text):
    kept.append(o)
    values.append([id(o), text])


# ---- numbers ------------------------------------------------------------------------------------
same(None, True, False, Ellipsis, NotImplemented)
same(*range(-10, 300))
same(*(s * (2 ** b + d) for b in (15, 29, 30, 31, 32, 59, 60, 61, 62, 63, 64, 89, 90, 91, 120, 1000, 3800)
       for d in (-1, 0, 1) for s in (1, -1)))
same(10 ** 18, 10 ** 27, -10 ** 36 + 1, 10 ** 100, 123456789 * 10 ** 45, 999999999, 1000000000, 1000000000000000000)
shown(2 ** 10000, "re:<int of 10001 bits: 0x[0-9a-f]+\\.\\.\\.>$")
shown(-2 ** 10000 + 1, "re:<int of 10000 bits: -0x[0-9a-f]+\\.\\.\\.>$")
same(0.0, -0.0, 1.0, 0.1, 1 / 3, 1e16, 1e15, 123456789012345680.0, 1e22, 1e23, 5e-324, 1.7976931348623157e308, 0.0001,
     0.00001, 1e-7, -1.5e-10, 9007199254740993.0, 100.0, 1234.5, math.pi, float("inf"), float("-inf"), float("nan"),
     9999999999999998.0, 0.30000000000000004, 2.5e-05)
rng = 12345
for _ in range(300):
    rng = rng * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
    same(struct.unpack("d", struct.pack("Q", rng))[0])
same(1j, 0j, 1 + 2j, -1 - 2j, complex(-0.0, 0.0), complex(0.0, -0.0), complex(1e20, 1e-20), complex("nan+infj"))

# ---- text ---------------------------------------------------------------------------------------
same("", "a", "hello world", "it's", 'say "x"', "both ' and \"", "back\\slash", "line\nand\ttab\rcr", "\x00\x01\x1f\x7f",
     "\xe9t\xe9", "\xff\x80\xa0\xad", "\u0416\u0437", "\u6587\u4ef6", "\U0001f600 smile", "mixed \xe9 \u6587 \U0001f600",
     "\ud800", "a\udcffb", "\u2028\u200b\ufeff", "x" * 200, "\u6587" * 200, "\U0001f600" * 200)
shown("y" * 201, "'" + "y" * 200 + "'... (201)")
shown("\u6587" * 1000000, "'" + "\u6587" * 200 + "'... (1000000)")
same(b"", b"abc", b"it's", b"\x00\xff\n\t\\'\"", bytes(range(200)), bytearray(b"abc\x00"), bytearray())
shown(b"z" * 1000, "b'" + "z" * 200 + "'... (1000)")
shifted = bytearray(b"0123456789")
del shifted[:3]
same(shifted)
if V < (3, 12):  # strings in the layout from before Python 3.3, the only ones that are not compact
    make = ctypes.pythonapi.PyUnicode_FromUnicode
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_wchar_p, ctypes.c_ssize_t]
    legacy = make(None, 5)  # not ready yet: any use of it would make it ready
    kept.append(legacy)
    size = ctypes.c_ssize_t()
    buf = ctypes.pythonapi.PyUnicode_AsUnicode
    buf.restype, buf.argtypes = ctypes.c_void_p, [ctypes.py_object]
    ctypes.memmove(buf(legacy), "ab\u6587\U0001f600'".encode("utf-32-le"), 20)
    values.append([id(legacy), repr("ab\u6587\U0001f600'")])
    ready = make(None, 3)
    ctypes.memmove(buf(ready), "xyz".encode("utf-32-le"), 12)
    assert len(ready) == 3
    same(ready)


class Text(str):
    pass


shown(Text("sub"), "Text('sub')")
shown(Text("\u6587"), "Text('\u6587')")


class Number(int):
    def __repr__(self):
        raise RuntimeError("code of the target was run")


shown(Number(7), "Number(7)")

# ---- containers ---------------------------------------------------------------------------------
same([], [1], [1, 2, 3], ["a", None, 1.5], (), (1,), (1, 2), {}, {1: 2}, {"a": 1, "b": [1, {2: (3,)}]}, set(), {1},
     frozenset(), frozenset([1]), {1, 2, 3}, {"x", "y"}, frozenset(["x", 1, None]), range(5), range(1, 10), range(1, 10, 2),
     range(2 ** 70), slice(None), slice(1, 2, "x"), list(range(20)), [[[[1]]]])
shown(list(range(1000)), "[" + ", ".join(map(str, range(20))) + ", ... (1000)]")
shown(tuple(range(21)), "(" + ", ".join(map(str, range(20))) + ", ... (21))")
shown(dict.fromkeys(range(30)), "{" + ", ".join("%d: None" % i for i in range(20)) + ", ... (30)}")
shown(set(range(100)), "{" + ", ".join(map(str, range(20))) + ", ... (100)}")
shown([[[[[1]]]]], "[[[[[...]]]]]")
shown([[[[[]]]]], "[[[[[]]]]]")
cyclic = [1]
cyclic.append(cyclic)
cyclic.append({"me": cyclic})
same(cyclic)
loop = {}
loop["self"] = loop
same(loop)
deep = []
for _ in range(100000):
    deep = [deep]
shown(deep, "[[[[[...]]]]]")
removed = {i: str(i) for i in range(20)}
for i in range(0, 20, 3):
    del removed[i]
same(removed)
mixed = {"a": 1, "b": 2}
mixed[3] = 4          # now its keys are not only str
del mixed["a"]
mixed["a"] = 5
same(mixed)
big = {"k%d" % i: i for i in range(70000)}  # large enough for wider indices
shown(big, "{" + ", ".join("'k%d': %d" % (i, i) for i in range(20)) + ", ... (70000)}")
Shared = type("Shared", (), {})
sharing = Shared()  # a dictionary that shares its keys with others of its class
for i in range(30):
    setattr(sharing, "a%d" % i, i)
shown(sharing.__dict__, "{" + ", ".join("'a%d': %d" % (i, i) for i in range(20)) + ", ... (30)}")
wide = {i: -i for i in range(300)}
for i in range(290):
    del wide[i]
same(wide)
holes = set(range(40))
for i in range(5, 40):
    holes.discard(i)
same(holes)
same(*[{"%s%d" % (c, i): c for i in range(n)} for n in (1, 5, 6, 10, 11, 20) for c in "ab"])
emptied = {1: 2}
del emptied[1]
same(emptied)
shown(collections.OrderedDict([(1, 2)]), "re:(collections.)?OrderedDict\\({1: 2}\\)")
shown(collections.defaultdict(list, {1: [2]}), "re:(collections.)?defaultdict\\({1: \\[2\\]}\\)")
same(collections.deque(), collections.deque([1, "x"]), collections.deque([1, 2, 3], 2), collections.deque([], 5))
queue = collections.deque(range(64))
for i in range(70):
    queue.append(queue.popleft())
    same(collections.deque(list(queue)[:10]))
shown(queue, "deque([" + ", ".join(map(str, list(queue)[:20])) + ", ... (64)])")
queue = collections.deque()
for i in range(10):
    queue.appendleft(-i)
same(queue)
queue = collections.deque(range(200))
for i in range(190):
    queue.popleft()
same(queue)
queue = collections.deque([1])
queue.append(queue)
shown(queue, "deque([1, deque([...])])")
Point = collections.namedtuple("Point", "x y")
same(Point(1, "b"))


class List(list):
    pass


class Pair(tuple):
    pass


shown(List([1, 2]), "List([1, 2])")
shown(Pair((1, 2)), "Pair((1, 2))")


# ---- instances ------------------------------------------------------------------------------------
class Plain:
    kind = "class attribute"

    def __init__(self, *args):
        for name, value in zip("abcdefghij", args):
            setattr(self, name, value)

    def method(self):
        pass

    def __repr__(self):
        raise RuntimeError("code of the target was run")


def attributes(o, text):
    shown(o, "<%s at 0x%x%s>" % (type(o).__qualname__, id(o), text and ": " + text))


attributes(Plain(), "")
attributes(Plain(1), "a=1")
attributes(Plain(1, "x", None), "a=1, b='x', c=None")
for count in range(10):
    attributes(Plain(*range(count)), ", ".join("%s=%d" % (n, i) for i, n in enumerate("abcdefghij"[:count])))
other_order = Plain()
other_order.c, other_order.a = 3, 1
attributes(other_order, "c=3, a=1")
gone = Plain(1, 2, 3)
del gone.b
attributes(gone, "a=1, c=3")
with_dict = Plain(1, 2)
with_dict.__dict__["new"] = 3  # from here on it has a dictionary of its own
attributes(with_dict, "a=1, b=2, new=3")
shown(with_dict.__dict__, "{'a': 1, 'b': 2, 'new': 3}")
looked_at = Plain(4, 5)
shown(looked_at.__dict__, "{'a': 4, 'b': 5}")
attributes(looked_at, "a=4, b=5")
replaced = Plain(1)
replaced.__dict__ = {"z": 26}
attributes(replaced, "z=26")
many = Plain()
for i in range(40):
    setattr(many, "n%d" % i, i)
attributes(many, ", ".join("n%d=%d" % (i, i) for i in range(20)) + ", ...")
me = Plain()
me.me = me
attributes(me, "me=<Plain at 0x%x: ...>" % id(me))


class Slots:
    __slots__ = ("x", "y", "unset")


slots = Slots()
slots.x, slots.y = 1, "two"
attributes(slots, "x=1, y='two'")


class MoreSlots(Slots):
    __slots__ = ("z", "__dict__")


slots = MoreSlots()
slots.x, slots.z, slots.w = 1, 3, 4
attributes(slots, "z=3, x=1, w=4")


class Mixed(Plain, Slots):
    pass


class FromList(list):  # its dictionary pointer is at the end of the object
    pass


class Weak(dict):
    pass


for kind in (Mixed,):
    o = kind(1, 2)
    o.x = 9
    attributes(o, "x=9, a=1, b=2")
o = FromList([1])
o.attribute = 1
shown(o, "FromList([1])")
o = Weak(a=1)
o.attribute = 1
shown(o, "Weak({'a': 1})")


class Bad(int):
    pass


o = Bad(2 ** 100)
o.attribute = 1
shown(o, "Bad(%d)" % 2 ** 100)


class Color(enum.Enum):
    RED = 1
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 1
    BIG = 2 ** 100
    NEGATIVE = -2 ** 70
    ZERO = 0


same(Color.RED, Color.BLUE)
for level in Level:
    shown(level, "<Level.%s: %d>" % (level.name, level.value))


class Flags(enum.IntFlag):
    A = 1
    B = 2


# up to 3.10 a combination's name is made only to be printed; none at all has no name in any version
shown(Flags.A | Flags.B, "<Flags.A|B: 3>" if V >= (3, 11) else "<Flags: 3>")
shown(Flags(0), "<Flags: 0>")
if V >= (3, 7):
    import dataclasses

    @dataclasses.dataclass
    class Data:
        x: int
        y: list = dataclasses.field(default_factory=list)

    same(Data(1), Data(2, [Data(3)]))
    if V >= (3, 10):
        @dataclasses.dataclass(slots=True)
        class SlotData:
            x: int
            y: str = "d"
        same(SlotData(5))

# ---- functions and the like ---------------------------------------------------------------------


def outer():
    captured = [1]

    def inner():
        return captured
    return inner


def generate():
    yield 1


async def coroutine():
    pass

inner = outer()
same(outer, inner, lambda: 0, generate(), Plain, int, type, dict, ValueError, json.JSONDecoder, len)
co = coroutine()
same(co)
shown(inner.__closure__[0], "<cell: [1]>")
proxied = {"a": [1]}
shown(types.MappingProxyType(proxied), "mappingproxy({'a': [1]})")
shown(staticmethod(outer), "<staticmethod(%r)>" % outer)
shown(classmethod(outer), "<classmethod(%r)>" % outer)
shown([[[slice(1, 2)]]], "[[[slice(1, 2, None)]]]")
shown([[[[slice(1, 2)]]]], "[[[[slice(...)]]]]")
shown([[[[range(3)]]]], "[[[[range(...)]]]]")
same(range(5, 0, -1), range(0, 2 ** 70, 2 ** 65))
shown(Color, "<class '__main__.Color'>")
shown(json, "<module 'json'>")
shown(os, "<module 'os'>")
shown([].append, "<built-in method append>")
shown(other_order.method, "<bound method Plain.method of __main__.Plain object at 0x%x>" % id(other_order))
shown(outer.__code__, "<code object outer at 0x%x>" % id(outer.__code__))


class Error(Exception):
    pass


for e in (ValueError(), ValueError("x"), KeyError(1, 2), Error([1]), OSError(2, "No such file"), UnicodeError("u"),
          StopIteration(5), json.JSONDecodeError("m", "d", 0)):
    shown(e, repr(e) if V >= (3, 7) else repr(e).replace(",)", ")"))
shown(object(), "re:<object at 0x[0-9a-f]+>")
shown(sys.flags, "re:sys.flags\\(\\(.*\\)\\)")
half_made = Plain.__new__(Plain)
attributes(half_made, "")
if V < (3, 12):
    half_list = [None] * 3
    kept.append(half_list)
    # looks like a list that is still being made, with slots that hold nothing yet (no other code may look at it)
    items = ctypes.cast(id(half_list) + 24, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))).contents
    items[1] = None
    values.append([id(half_list), "[None, <NULL>, None]"])

# ---- the standard library's C types ---------------------------------------------------------------
UTC = datetime.timezone.utc
delta = datetime.timedelta
half = datetime.timezone(delta(hours=5, minutes=30), "half \u6587")


class Day(datetime.date):
    pass


class When(datetime.datetime):
    pass


same(datetime.date(2024, 2, 29), datetime.date.min, datetime.date.max, datetime.datetime.min, datetime.datetime.max,
     datetime.datetime(2024, 1, 2), datetime.datetime(2024, 1, 2, 3, 4, 5), datetime.datetime(2024, 1, 2, 3, 4, 0, 6),
     datetime.datetime(1999, 12, 31, 23, 59, 59, 999999, UTC), datetime.datetime(2024, 1, 2, fold=1),
     datetime.datetime(2024, 1, 2, fold=1, tzinfo=UTC), datetime.time(), datetime.time(23, 59, 59, 999999),
     datetime.time(1, 2, 3), datetime.time(1, 2, 0, 3), datetime.time(1, 2, fold=1), datetime.time(1, tzinfo=UTC), UTC)
for d in (delta(), delta(1), delta(-1), delta(0, 5), delta(0, 0, 7), delta(days=3, hours=2, microseconds=9), delta.min,
          delta.max, delta.resolution):
    parts = ["%s=%d" % (n, getattr(d, n)) for n in ("days", "seconds", "microseconds") if getattr(d, n)]
    shown(d, "datetime.timedelta(%s)" % (", ".join(parts) or "0"))
half_text = "datetime.timezone(datetime.timedelta(seconds=19800), 'half \u6587')"
shown(half, half_text)
shown(datetime.timezone(delta(0, -60)), "datetime.timezone(datetime.timedelta(days=-1, seconds=86340))")
shown(datetime.datetime(2024, 1, 2, tzinfo=half), "datetime.datetime(2024, 1, 2, 0, 0, tzinfo=%s)" % half_text)
shown(datetime.time(1, tzinfo=half), "datetime.time(1, 0, tzinfo=%s)" % half_text)
shown(Day(2024, 2, 29), "Day(2024, 2, 29)")
shown(When(2024, 2, 29, tzinfo=UTC), "When(2024, 2, 29, 0, 0, tzinfo=datetime.timezone.utc)")
same([[datetime.date(2024, 1, 2)]], {"when": datetime.datetime(2024, 1, 2)})
if V >= (3, 9):
    import zoneinfo
    try:
        zone = zoneinfo.ZoneInfo("Europe/Paris")
        same(zone, datetime.datetime(2024, 7, 1, tzinfo=zone))
    except zoneinfo.ZoneInfoNotFoundError:  # a machine without tzdata
        pass

Decimal = decimal.Decimal
same(*(Decimal(t) for t in (
    "0", "-0", "1", "-1.5", "0.1", "0.000001", "0.0000001", "1E+3", "1.230E+5", "-1E-7", "0E-6", "0E-7", "0E+3", "100", "1.00",
    "Infinity", "-Infinity", "NaN", "-NaN", "sNaN", "NaN123", "1E+999999", "1234567890123456789", "12345678901234567890",
    "0." + "1" * 19, "-" + "9" * 38, "1" * 39, "10000000000000000000000000000000000000001", "3." + "14" * 60, "1" * 200,
    "1E-999999", "1E-%d" % -decimal.MIN_ETINY, "9E+%d" % decimal.MAX_EMAX, "123.456E-10", "0.00000000000000000000")))
shown(Decimal("7" * 201), "Decimal('7." + "7" * 199 + "...E+200')")


class Price(Decimal):
    pass


shown(Price("1.20"), "Price('1.20')")

same(*(array.array(c, [0, 1, 100]) for c in "bBhHiIlLqQfd"))
same(*(array.array(c) for c in "bBuhHiIlLqQfd"))
same(array.array("q", [-2 ** 63, 2 ** 63 - 1]), array.array("b", [-128]), array.array("Q", [2 ** 64 - 1]),
     array.array("d", [0.1, -1e300]), array.array("u", "it's \u6587\U0001f600"))
shown(array.array("i", range(30)), "array('i', [" + ", ".join(map(str, range(20))) + ", ... (30)])")


class Row(array.array):
    pass


shown(Row("i", [1]), "Row('i', [1])")

same(functools.partial(int, "7", base=8), functools.partial(outer), functools.partial(print, 1, [2], sep="", end="x"))
own = functools.partial(print)
own.__setstate__((own, (own,), {}, {}))
shown(own, "functools.partial(functools.partial(...), functools.partial(...))")  # before 3.7 repr() recurses without end here

same(re.compile("x"), re.compile("a'b", re.I), re.compile(b"y+", re.M | re.S), re.compile("x", re.ASCII), re.compile(""),
     re.compile("\u6587", re.X | re.I), re.compile(b"l", re.L))
shown({"seen": re.compile("z" * 300)}, "{'seen': re.compile('" + "z" * 200 + "'... (300))}")
same(re.match("a(b)?", "abc"), re.search("\xe9.", "xx\xe9yz"), re.search("\u6587+", "a\u6587\u6587"), re.match(b"it's", b"it's"), re.match("x*", ""),
     re.search("(?<=\U0001f600)b|c", "\U0001f600b"))
shown(re.search("y+", "x" + "y" * 300), re.match("x", "x").__repr__().split(" object")[0] + " object; span=(1, 301), match='" + "y" * 200 + "'... (300)>")
shown(re.match(b"a", bytearray(b"ab")), re.match("x", "x").__repr__().split("match=")[0][:-2] + ">")  # the match is of another kind of buffer: only its span is shown

# ---- views: of memory, of a dictionary, a weak reference -------------------------------------------
for view, text in ((memoryview(b"hello"), "shape=(5,) format='B': 104, 101, 108, 108, 111"), (memoryview(b""), "shape=(0,) format='B'"),
                   (memoryview(b"hello")[3:0:-2], "shape=(2,) format='B': 108, 101"),
                   (memoryview(array.array("d", [1.5, -2])), "shape=(2,) format='d': 1.5, -2.0"),
                   (memoryview(bytearray(range(6))).cast("B", (2, 3)), "shape=(2, 3) format='B': 0, 1, 2, 3, 4, 5"),
                   (memoryview(struct.pack("@2q", -1, 2)).cast("q"), "shape=(2,) format='q': -1, 2"),
                   (memoryview(bytes([0, 1])).cast("?"), "shape=(2,) format='?': False, True"),
                   (memoryview(b"abcd").cast("I", ()), "shape=() format='I': %d" % struct.unpack("I", b"abcd")),
                   (memoryview((ctypes.c_int16 * 2)(1, -1)), "shape=(2,) format='<h'"),
                   (memoryview((ctypes.c_char * 3)(*b"xyz")), "shape=(3,) format='<c'")):
    shown(view, "<memoryview %s>" % text)
released = memoryview(bytearray(b"gone"))
released.release()
shown(released, "<memoryview shape=(4,) format='B'>")
shown({"a": 1}.keys(), "dict_keys({'a': 1})")
shown({"a": 1}.values(), "dict_values({'a': 1})")
shown({"a": 1}.items(), "dict_items({'a': 1})")
weakly = Text("weak")
shown(weakref.ref(weakly), "<weakref to Text('weak')>")
shown(weakref.ref(Text("dead")), "<weakref to None>")

# ---- frames ------------------------------------------------------------------------------------
frames = {}


def report(frame):
    frames[frame.f_code.co_name] = {name: repr(value) for name, value in frame.f_locals.items()}


def arguments(a, b=2, *rest, key, other="o", **more):
    local = [a, b]
    deleted = 1
    del deleted
    if a > 100:
        unbound = 1
        print(unbound)
    for i in range(3):
        pass
    return cells(local, 5)


def cells(argument, plain):
    shared = {"s": argument}
    later = None

    def inner(x):
        nonlocal later
        later = x
        own = (shared, plain)
        return generator_frame(own), argument
    return inner("late")


def generator_frame(own):
    for value in (produce(n) for n in [3]):
        return value


def produce(n):
    def source(start):
        total = start * 2
        yield held(total)
    return next(source(n))


def held(total):
    class Body:
        inside = total + 1
        frame = sys._getframe()
        text = describe()
    return Body


def describe():
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name not in ("describe", "<module>", "Body"):
            report(frame)
        elif frame.f_code.co_name == "Body":
            frames["Body"] = {"inside": repr(frame.f_locals["inside"])}
        frame = frame.f_back
    frames["<module>"] = {"rng": repr(rng), "cyclic": repr(cyclic)}
    addresses = [[hex(a), t] for a, t in values]
    print(json.dumps({"values": addresses, "frames": frames}), flush=True)
    time.sleep(1000)


arguments(1, 3, 4, 5, key="k", extra={"e": 1})
