# SPDX-License-Identifier: Apache-2.0
"""Calls libprobing-read.so (converter/arrow_read.h) by ctypes. Its streams of Arrow arrays are passed on as PyCapsules for other libraries, or read
here as plain values. Loaded by the first probing.open(), never by `import probing`. The library's functions run without the GIL."""
import ctypes
import errno
import os
import weakref
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int8, c_int32, c_int64, c_size_t, c_uint32, c_void_p

from probing import TraceError, _load

LIBRARY = "libprobing-read.so"
ALONE, GLOBAL = 1, 2
FIRST, LAST = -(1 << 63), (1 << 63) - 1


class Schema(ctypes.Structure):
    pass


Schema._fields_ = [("format", c_char_p), ("name", c_char_p), ("metadata", c_void_p), ("flags", c_int64), ("n_children", c_int64),
                   ("children", POINTER(POINTER(Schema))), ("dictionary", POINTER(Schema)),
                   ("release", ctypes.CFUNCTYPE(None, POINTER(Schema))), ("private_data", c_void_p)]


class Array(ctypes.Structure):
    pass


Array._fields_ = [("length", c_int64), ("null_count", c_int64), ("offset", c_int64), ("n_buffers", c_int64), ("n_children", c_int64),
                  ("buffers", POINTER(c_void_p)), ("children", POINTER(POINTER(Array))), ("dictionary", POINTER(Array)),
                  ("release", ctypes.CFUNCTYPE(None, POINTER(Array))), ("private_data", c_void_p)]


class Stream(ctypes.Structure):
    pass


Stream._fields_ = [("get_schema", ctypes.CFUNCTYPE(c_int, POINTER(Stream), POINTER(Schema))),
                   ("get_next", ctypes.CFUNCTYPE(c_int, POINTER(Stream), POINTER(Array))),
                   ("get_last_error", ctypes.CFUNCTYPE(c_char_p, POINTER(Stream))),
                   ("release", ctypes.CFUNCTYPE(None, POINTER(Stream))), ("private_data", c_void_p)]


class Request(ctypes.Structure):
    _fields_ = [("paths", POINTER(c_char_p)), ("npaths", c_size_t), ("table", c_char_p), ("sql", c_char_p),
                ("columns", POINTER(c_char_p)), ("ncolumns", c_size_t), ("from_", c_int64), ("until", c_int64),
                ("ranks", POINTER(c_int64)), ("nranks", c_size_t), ("clocks", c_char_p), ("flags", c_uint32), ("batch", c_uint32)]


_lib = None


def places():
    """Yields the paths where the library may be: beside the agent, wherever that is, and in the tree that make built."""
    if os.environ.get("PROBING_READ"):
        yield os.environ["PROBING_READ"]
    for agent in _load.places():
        yield os.path.join(os.path.dirname(agent), LIBRARY)
    here = os.path.dirname(os.path.abspath(__file__))
    yield os.path.join(here, "..", "..", "..", "..", "lib", "probing", LIBRARY)


def library():
    global _lib
    if _lib is None:
        path = next((p for p in places() if os.path.exists(p)), None)
        if path is None:
            raise TraceError("%s is not found (it comes with pip install, make install and probing python-install)" % LIBRARY)
        try:
            lib = ctypes.CDLL(path)
        except OSError as error:
            raise TraceError("%s cannot be loaded: %s (libraries that it needs: libsqlite3, libzstd, libdw)" % (path, error)) from None
        lib.probing_stream.argtypes = [POINTER(Request), c_void_p, POINTER(c_void_p), c_char_p, c_size_t]
        lib.probing_notes_text.argtypes = [c_void_p, c_char_p, c_size_t]
        lib.probing_notes_text.restype = c_size_t
        lib.probing_notes_free.argtypes = [c_void_p]
        lib.probing_align.argtypes = [POINTER(c_char_p), c_size_t, c_uint32, c_char_p, c_char_p, c_size_t]
        lib.probing_tables.restype = c_char_p
        lib.probing_is_database.argtypes = [c_char_p]
        lib.probing_capsule_memory.argtypes = [c_size_t]
        lib.probing_capsule_memory.restype = c_void_p
        _lib = lib
    return _lib


def tables():
    """Returns {name: description} of the tables that traces have."""
    return dict(line.split("\t") for line in library().probing_tables().decode().splitlines())


def is_database(path):
    return library().probing_is_database(os.fsencode(path)) == 1


def texts(values):
    return (c_char_p * max(1, len(values)))(*values)


raised = []  # Ctrl-C in a callback of the library, which could only ignore it


def raise_it():
    if raised:
        raise raised.pop()


def fail(error, text):
    """Raises what -errno and a sentence of the library mean: after -EINTR, what a handler of a signal has raised, which Python raises between two of
    its instructions (converter/arrow_stop.h)."""
    if -error == errno.EINTR:
        for _ in range(1000):
            pass
    if -error == errno.ENOENT:
        raise FileNotFoundError(errno.ENOENT, text)
    raise TraceError(text)


class Notes(object):
    """Lines about files that were damaged or passed over, in the order in which the stream met them."""

    def __init__(self, pointer):
        self._pointer = pointer
        weakref.finalize(self, library().probing_notes_free, pointer)

    def lines(self):
        n = 4096
        while True:
            buffer = ctypes.create_string_buffer(n)
            have = library().probing_notes_text(self._pointer, buffer, n)
            if have < n:
                return buffer.value.decode("utf-8", "replace").splitlines()
            n = have + 4096


def align(paths, flags, out):
    """Aligns the clocks of the traces' machines and writes the alignment into the database `out`; boots that are in it keep their time."""
    error = ctypes.create_string_buffer(1024)
    failed = library().probing_align(texts([os.fsencode(p) for p in paths]), len(paths), flags, os.fsencode(out), error, len(error))
    raise_it()
    if failed:
        fail(0 if -failed == errno.ENOENT else failed, error.value.decode("utf-8", "replace"))


def _text(text):
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise TraceError("%.60r holds a character that cannot be asked for" % text)
    return text.encode()


def open_stream(at, paths, table=None, sql=None, columns=None, start=FIRST, end=LAST, ranks=(), clocks=None, flags=0, batch=0):
    """Makes a stream in the zeroed struct at the address `at`. Returns its Notes."""
    names = [_text(c) for c in columns or ()]
    request = Request(texts([os.fsencode(p) for p in paths]), len(paths), _text(table) if table else None, None if sql is None else _text(sql),
                      texts(names), len(names), start, end, (c_int64 * max(1, len(ranks)))(*ranks), len(ranks),
                      os.fsencode(clocks) if clocks else None, flags, batch)
    error = ctypes.create_string_buffer(1024)
    notes = c_void_p()
    failed = library().probing_stream(byref(request), at, byref(notes), error, len(error))
    if failed:
        raise_it()
        fail(failed, error.value.decode("utf-8", "replace"))
    return Notes(notes)


def _capsule(pointer, name, destructor):
    make = ctypes.pythonapi.PyCapsule_New
    make.argtypes = [c_void_p, c_char_p, c_void_p]
    make.restype = ctypes.py_object
    return make(pointer, name, ctypes.cast(destructor, c_void_p))


def stream_capsule(**request):
    """Returns (capsule, Notes). The capsule owns the stream until a consumer takes it."""
    lib = library()
    at = lib.probing_capsule_memory(ctypes.sizeof(Stream))
    try:
        notes = open_stream(at, **request)
    except Exception:
        ctypes.CDLL(None).free(c_void_p(at))
        raise
    return _capsule(at, b"arrow_array_stream", lib.probing_capsule_stream), notes


def schema_capsule(**request):
    lib = library()
    at = lib.probing_capsule_memory(ctypes.sizeof(Schema))
    with Reader(**request) as reader:
        reader.copy_schema(at)
    return _capsule(at, b"arrow_schema", lib.probing_capsule_schema)


# ---- without another library ------------------------------------------------------------------------

FORMATS = {b"l": (c_int64, "int64"), b"c": (c_int8, "int8"), b"g": (c_double, "double"), b"i": (c_int32, "int32"),
           b"tsn:UTC": (c_int64, "timestamp[ns, UTC]"), b"u": (None, "string"), b"z": (None, "binary")}


class Field(object):
    """A column: name, type as a word, description."""

    def __init__(self, schema):
        self.name = schema.name.decode()
        self.format = schema.format
        self.dictionary = bool(schema.dictionary)
        self.item = Field(schema.children[0].contents) if schema.format == b"+l" else None
        self.description = self._description(schema.metadata)
        self.type = "list<%s>" % self.item.type if self.item else "dictionary<string>" if self.dictionary else FORMATS[self.format][1]

    @staticmethod
    def _description(at):
        if not at:
            return ""
        n = c_int32.from_address(at + 4).value
        size = c_int32.from_address(at + 8 + n).value
        return ctypes.string_at(at + 12 + n, size).decode("utf-8", "replace")


def _values(array, ctype, start, n):
    return (ctype * n).from_address(array.buffers[1] + start * ctypes.sizeof(ctype)) if n else ()


def _bytes(array, start, n, text):
    """Returns n values of a utf8 or binary array."""
    offsets = (c_int32 * (n + 1)).from_address(array.buffers[1] + start * 4)
    whole = ctypes.string_at(array.buffers[2], offsets[n]) if n and offsets[n] else b""
    cut = [whole[offsets[i]:offsets[i + 1]] for i in range(n)]
    return [c.decode("utf-8", "replace") for c in cut] if text else cut


def _dictionary(array):
    d = array.dictionary.contents
    return _bytes(d, 0, d.length, True)


def _plain(field, array, start, n):
    """Returns n values from `start` on as Python objects; times are ns since 1970."""
    if field.item is not None:
        offsets = (c_int32 * (n + 1)).from_address(array.buffers[1] + start * 4)
        first, last = offsets[0], offsets[n]
        items = _plain(field.item, array.children[0].contents, first, last - first)
        out = [items[offsets[i] - first:offsets[i + 1] - first] for i in range(n)]
    elif field.dictionary:
        names = _dictionary(array)
        out = [names[i] if 0 <= i < len(names) else None for i in _values(array, c_int32, start, n)]
    elif field.format in (b"u", b"z"):
        out = _bytes(array, start, n, field.format == b"u")
    else:
        out = list(_values(array, FORMATS[field.format][0], start, n))
    if array.null_count:
        valid = ctypes.string_at(array.buffers[0], (start + n + 7) // 8)
        out = [v if valid[(start + i) >> 3] >> ((start + i) & 7) & 1 else None for i, v in enumerate(out)]
    return out


def _numpy(field, array, numpy):
    """Returns the column as (numpy array, names or None). A NULL becomes NaN, NaT, code -1 or None; in a column of integers it is masked."""
    n = array.length
    if field.item is not None or field.format in (b"u", b"z"):
        out = numpy.empty(n, object)
        out[:] = _plain(field, array, 0, n)
        return out, None
    ctype = FORMATS[field.format][0]
    out = numpy.array(_values(array, ctype, 0, n), copy=True) if n else numpy.zeros(0, ctype)
    if array.null_count:
        bits = numpy.frombuffer(ctypes.string_at(array.buffers[0], (n + 7) // 8), numpy.uint8)
        null = numpy.unpackbits(bits, bitorder="little")[:n] == 0
        if field.dictionary:
            out[null] = -1
        elif field.format == b"tsn:UTC":
            out[null] = FIRST  # NaT
        elif field.format == b"g":
            out[null] = numpy.nan
        else:
            out = numpy.ma.array(out, mask=null)
    return (out.view("datetime64[ns]") if field.format == b"tsn:UTC" else out), (_dictionary(array) if field.dictionary else None)


class Reader(object):
    """Reads a stream in Python: .fields, and batches()."""

    def __init__(self, **request):
        self.stream = Stream()
        self.notes = open_stream(ctypes.addressof(self.stream), **request)
        schema = Schema()
        self._check(self.stream.get_schema(byref(self.stream), byref(schema)))
        try:
            self.fields = [Field(schema.children[i].contents) for i in range(schema.n_children)]
        finally:
            schema.release(byref(schema))

    def copy_schema(self, at):
        self._check(self.stream.get_schema(byref(self.stream), Schema.from_address(at)))

    def _check(self, error):
        raise_it()
        if error:
            text = self.stream.get_last_error(byref(self.stream))
            fail(-error if error == errno.EINTR else 0, (text or os.strerror(error).encode()).decode("utf-8", "replace"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.stream.release:
            self.stream.release(byref(self.stream))

    __del__ = close

    def batches(self, take):
        """Yields take(fields, arrays, length) for each batch; its arrays are valid only within that call."""
        while True:
            array = Array()
            self._check(self.stream.get_next(byref(self.stream), byref(array)))
            if not array.release:
                return
            try:
                yield take(self.fields, [array.children[i].contents for i in range(array.n_children)], array.length)
            finally:
                array.release(byref(array))


def rows(keep, **request):
    """Yields the rows as tuples of Python objects. keep(notes) is called with the stream's Notes."""
    with Reader(**request) as reader:
        keep(reader.notes)
        for columns in reader.batches(lambda fields, arrays, n: [_plain(f, a, 0, n) for f, a in zip(fields, arrays)]):
            for row in zip(*columns):
                yield row


def frame(keep, **request):
    """Returns a pandas DataFrame: times with UTC, names as categories."""
    import numpy
    import pandas
    with Reader(**request) as reader:
        keep(reader.notes)
        parts = list(reader.batches(lambda fields, arrays, n: [_numpy(f, a, numpy) for f, a in zip(fields, arrays)]))
        data = {}
        for i, field in enumerate(reader.fields):
            column = [p[i][0] for p in parts]
            join = numpy.ma.concatenate if any(isinstance(c, numpy.ma.MaskedArray) for c in column) else numpy.concatenate
            whole = join(column) if column else numpy.zeros(0, "float64")
            if field.dictionary:
                names = parts[-1][i][1] if parts else []
                data[i] = pandas.Categorical.from_codes(whole.astype("int32") if parts else [], names)
            elif field.format == b"tsn:UTC":
                data[i] = pandas.Series(whole.astype("datetime64[ns]")).dt.tz_localize("UTC")
            elif isinstance(whole, numpy.ma.MaskedArray):  # not as floats: an id has 63 bits
                data[i] = pandas.array(whole.data, dtype="Int64")
                data[i][numpy.ma.getmaskarray(whole)] = pandas.NA
            else:
                data[i] = whole
        out = pandas.DataFrame(data, columns=range(len(reader.fields)))
        out.columns = [f.name for f in reader.fields]  # several may have one name, as those of a join
        return out
