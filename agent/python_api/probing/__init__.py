# SPDX-License-Identifier: Apache-2.0
"""Probing: a black box for AI training. This package is what a program uses to control its recording and to add to it.

    import probing

    probing.enable()                          # start recording this process (or PROBING=1, probing-record, inject)
    probing.enable_torch_profiling()          # torch modules and steps, too
    for batch in loader:
        with probing.span("augment"):         # also a decorator; nests; each asyncio task has its own
            ...
        probing.event("checkpoint", path=path, size=size)
        probing.step()                        # only without a torch optimizer, whose steps are seen by themselves

While nothing is being recorded, span(), event() and step() do nothing, in well under a microsecond; whatever they are called with,
they raise the same errors then as in a recording. To read the trace: probing-convert trace.zst out.db, then SQL (tables spans, events, event_values, variables).
"""
import functools as _functools
import os as _os

from probing import _load, _tables
from probing._tables import ExternalTable, table  # noqa: F401

__version__ = "@VERSION@"
__all__ = ["step", "span", "event", "set_role", "config", "enable", "disable", "is_recording", "is_enabled", "trace",
           "enable_torch_profiling", "disable_torch_profiling", "query", "ExternalTable", "table", "ProbingError", "TraceError"]

_native = None


class ProbingError(RuntimeError):
    """The recording could not be started, or a setting was refused; the text says why and what is allowed."""


class TraceError(ValueError):
    """A trace or a database cannot be read, or does not have what was asked for; the text says which and why."""


# ---- with an agent in the process these functions record, without one they do nothing -----------------------
# Each looks whether it has come meanwhile: the program may have kept the function itself (from probing import step).

def step(number=None):
    """Records that a training step has ended. number: the step's number. Not needed for steps of torch's optimizers, which are seen without it."""
    if number is not None:
        if not hasattr(number, "__index__"):
            raise TypeError("probing.step(number): an int, and not %s" % type(number).__name__)
        if number < 0:
            raise ValueError("probing.step(number): number must be 0 or more")
    if _native is not None:
        _native.step(number)


def event(*name, **values):
    """event(name, key=value, ...) records that something happened, with values: event("checkpoint", path=path, size=size)."""
    name = name or (values.pop("name", None),)
    if len(name) != 1 or not isinstance(name[0], str):
        raise TypeError("probing.event(name, key=value, ...): name is a str")
    if _native is not None:
        _native.event(name[0], **values)


_role = None # the last that was told: a recording that begins later is told it, too


def set_role(role=None, **dimensions):
    """Records what this process is, and its place in each dimension of parallelism, as an index or (index, size):

        probing.set_role("trainer", tp=0, pp=(1, 4), dp=3)

    A later call replaces the earlier one. SQL: the view roles. torch's DeviceMesh is seen without this.
    """
    global _role
    values = {}
    if role is not None:
        values["role"] = str(role)
    for name, value in dimensions.items():
        index, size = value if isinstance(value, (tuple, list)) and len(value) == 2 else (value, None)
        for number in (index, size):
            if number is not None and (isinstance(number, bool) or not hasattr(number, "__index__") or number.__index__() < 0):
                raise TypeError("probing.set_role(%s=...): an index from 0 on, or (index, size)" % name)
        if index is None:
            raise TypeError("probing.set_role(%s=...): an index from 0 on, or (index, size)" % name)
        values[name] = index.__index__() if size is None else "%d/%d" % (index.__index__(), size.__index__())
    _role = values
    event("probing.role", **values)


class _Span(object):
    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        if _native is not None:
            _native.span(self.name).__enter__()
        return self

    def __exit__(self, kind, error, trace):
        if _native is not None:
            _native.span(self.name).__exit__(kind, error, trace)

    def _begin(self):
        return 0 if _native is None else _native.span(self.name)._begin()

    def _end(self, token, raised):
        if token:
            _native.span(self.name)._end(token, raised)

    def __call__(self, function):
        return _decorate(self, function)

    def __reduce__(self):
        return _same_span, (self.name,)


class _Spans(dict):
    def __missing__(self, name):
        if not isinstance(name, str):
            raise TypeError("probing.span(name): name must be a str")
        made = _Span(name)
        if len(self) < 4096:
            self[name] = made
        return made


def span(name, _find=_Spans().__getitem__):
    """Use as `with span("name"): ...` or `@span("name")`. The time inside is recorded, into the spans table."""
    return _find(name) if _native is None else _native.span(name)


def _same_span(name):
    """What a copied or pickled span becomes, in this or another process: the span of that name there."""
    return span(name)


def _decorate(mark, function):
    """Returns the function with a span around each call. For coroutines and generators the span is around their whole life."""
    code = getattr(function, "__code__", None)
    flags = code.co_flags if code is not None else 0
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(_decorate(mark, function.__func__))
    if flags & 0x200:  # an asynchronous generator
        return _around_async_generator(mark, function)
    if flags & 0x80:  # a coroutine
        return _around_coroutine(mark, function)
    if flags & 0x20:
        @_functools.wraps(function)
        def generator(*args, **kwargs):
            token, raised = mark._begin(), True
            try:
                result = yield from function(*args, **kwargs)
                raised = False
                return result
            except GeneratorExit:
                raised = False
                raise
            finally:
                mark._end(token, raised)
        if flags & 0x100:  # of types.coroutine(): it can be awaited
            import types
            return types.coroutine(generator)
        return generator

    @_functools.wraps(function)
    def wrapper(*args, **kwargs):
        with mark:
            return function(*args, **kwargs)
    return wrapper


def _around_coroutine(mark, function):
    @_functools.wraps(function)
    async def coroutine(*args, **kwargs):
        with mark:
            return await function(*args, **kwargs)
    return coroutine


def _around_async_generator(mark, function):
    @_functools.wraps(function)
    async def generator(*args, **kwargs):
        token, raised = mark._begin(), True
        inner = function(*args, **kwargs)
        try:
            coming = inner.__anext__()
            while True:
                try:
                    item = await coming
                except StopAsyncIteration:
                    break
                try:
                    coming = inner.asend((yield item))
                except GeneratorExit:
                    raise
                except BaseException as error:  # of athrow()
                    coming = inner.athrow(error)
            raised = False
        except GeneratorExit:
            raised = False
            raise
        finally:
            mark._end(token, raised)
            await inner.aclose()
    return generator


# ---- the agent ------------------------------------------------------------------------------------

def _arrived():
    """The agent is in this process: what it has takes the place of ours. The agent calls this when it comes later."""
    global _native, span
    if _native is None:
        module = _load.loaded()
        if module is not None:
            module.set_wrap(_decorate)
            import copyreg
            copyreg.pickle(type(module.span("probing")), lambda mark: (_same_span, (mark._name(),)))
            _native = module
            span = module.span
            span.__module__ = __name__  # a pickled one is found there by a process without the agent, too
            _tell()


def _tell():
    """A recording has begun: what was told before it."""
    if _role is not None:
        event("probing.role", **_role)
    _tables.tell()


def _agent(need=True):
    """The `_probing` module; loads the agent."""
    if _native is None:
        try:
            _load.load()
        except ImportError as error:
            if need:
                raise ProbingError(str(error)) from None
            return None
        _arrived()
    return _native


def is_recording():
    """Returns whether this process is being recorded at this moment."""
    return _native is not None and _native.recording()


is_enabled = is_recording


def trace():
    """Returns the path of the trace that is being written, or None."""
    return None if _native is None else _native.trace()


def enable(trace=None, **settings):
    """Starts recording this process, unless it is being recorded already; returns the path of the trace.

    trace: a file, or a directory (ends in /, or exists); default $PROBING_TRACE, else trace.zst.
    Settings are given by name, as in config(): enable(sample_rate=0.01, metrics=0).
    """
    native = _agent()
    if native.recording():
        for key, value in settings.items():
            config(key, value)
        return native.trace()
    lines = ["PROBING_TRACE=%s" % _os.fspath(trace)] if trace is not None else []
    lines += ["PROBING_%s=%s" % (key.upper().replace(".", "_"), _text(value)) for key, value in settings.items()]
    if any("\n" in line for line in lines):
        raise ProbingError("a setting cannot hold a line break")
    failed = native.start("\n".join(lines))
    if failed and not native.recording():
        raise ProbingError("recording could not be started: " + (
            native.config_get("barred") or "%s (is the trace's directory writable?)" % _os.strerror(-failed)))
    _tell()
    complaints = native.config_get("complaints")
    if complaints:
        import warnings
        for line in complaints.splitlines():
            warnings.warn(line, RuntimeWarning, stacklevel=2)
    return native.trace()


def disable():
    """Ends the recording and waits until the trace is complete. Nothing happens when there is none."""
    if _native is not None and _native.recording():
        _native.stop()


def _text(value):
    return str(int(value)) if isinstance(value, bool) else str(value)


def config(key=None, value=None):
    """config(key) returns a setting as text; config(key, value) changes it, from now on; config() returns all settings as a dict.

    Keys are those of `probing config`, with or without "probing." before them. A bad value raises ProbingError, whose
    text says what is allowed; any change while nothing is being recorded raises it, too.
    """
    if key is None:
        import json
        return {} if not is_recording() else {k: v["value"] for k, v in json.loads(_native.config_all()).items()}
    if value is None:
        return _native.config_get(key) if is_recording() else None
    if not is_recording():
        raise ProbingError("nothing is being recorded: probing.enable(%s=%r) first" % (key.replace(".", "_"), value))
    refused = _native.config_set(key, _text(value))
    if refused is not None:
        raise ProbingError(refused)
    return _native.config_get(key)


def enable_torch_profiling(spec="on"):
    """Records torch modules and steps: "on", a rate ("0.1"), or "key=value,..." as in PROBING_TORCH_PROFILING.

    Starts the recording if there is none. May be called before or after torch is imported.
    """
    if not is_recording():
        enable()
    return config("torch.profiling", spec)


def disable_torch_profiling():
    """Ends the recording of torch modules and steps; the rest of the recording goes on."""
    if is_recording():
        config("torch.profiling", "off")


def query(sql):
    """Runs SQL on what this process has recorded until now: probing.query("SELECT step, duration FROM steps ORDER BY step DESC LIMIT 5").

    Runs `probing query PID` and returns its rows as a pandas.DataFrame, or as a list of dicts if there is no pandas. An answer takes
    some hundredths of a second, and other threads go on meanwhile. An error raises ProbingError.
    """
    from probing import _query
    return _query.query(sql)


def open(*paths, **options):
    """Opens traces or a database for reading: probing.open("trace.zst"), a directory, several of both, or "out.db". Not in __all__, because it
    would hide the built-in open.

        t = probing.open("trace.zst")
        t.samples.select("timestamp", "func").range("2026-11-22T13:00").rank(3)       # a table: pyarrow, Polars, DuckDB, ... take it
        t.sql("SELECT * FROM hot_functions LIMIT 10").pandas()

    The library that reads is loaded by the first call. A file that cannot be read raises probing.TraceError.
    """
    from probing import _traces
    return _traces.open(*paths, **options)


_arrived()
