# SPDX-License-Identifier: Apache-2.0
"""Calls libprobing-inspect.so, which does the work (inspect.h is its interface)."""
import errno
import os

BORROW, JSON, PYTHON, FORCE = 1, 2, 4, 8
STOP, NATIVE, LOCALS, TASKS, FOLDED, COLOR, MAIN, NEED_PYTHON = (1 << n for n in range(16, 24))
DRY_RUN = 1 << 24  # inspect.h: INJECT_DRY_RUN
METHODS = ("any", "native", "pep768", "pending", "breakpoint")
MAIL_STOP, MAIL_ASK = 2, 6
STOOD = 2**64 - 1  # the process was stopped for an unknown time


class Failed(Exception):
    """An error of the library: str() is one line for people, .errno the error number."""

    def __init__(self, code, text):
        super().__init__(text)
        self.errno = code


def directory():
    """Returns PREFIX/lib/probing, found from PREFIX/share/probing/gdb/probing_gdb/library.py."""
    here = os.path.dirname(os.path.realpath(__file__))
    return os.path.normpath(os.path.join(here, "..", "..", "..", "..", "lib", "probing"))


_lib = None


def load():
    """Loads the library, once. Call it before the attach if possible, since the target would wait meanwhile."""
    global _lib
    if _lib is None:
        import ctypes  # imported here, as it takes some milliseconds, and ordinary GDB use does not need it

        path = os.path.join(directory(), "libprobing-inspect.so")
        try:
            lib = ctypes.CDLL(path)
        except OSError as e:
            raise Failed(errno.ENOENT, "cannot load %s: %s (is Probing installed whole?)" % (path, e)) from None
        out, text = ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p
        lib.inspect_backtrace.argtypes = [ctypes.c_int, ctypes.c_void_p, out]
        lib.inspect_inject.argtypes = [ctypes.c_int, text, text, ctypes.c_uint, ctypes.c_uint64, out]
        lib.inspect_status.argtypes = [ctypes.c_int, ctypes.c_uint, out]
        lib.inspect_mail.argtypes = [ctypes.c_int, ctypes.c_int, text, ctypes.c_int, out]
        lib.inspect_free.argtypes = [ctypes.c_void_p]
        lib.inspect_free.restype = None
        _lib = lib
    return _lib


def _call(function, *args):
    import ctypes

    out = ctypes.c_void_p()
    code = function(*args, ctypes.byref(out))
    text = ctypes.string_at(out).decode("utf-8", "replace") if out.value else None
    _lib.inspect_free(out)
    if code < 0:
        raise Failed(-code, text or os.strerror(-code))
    return text or ""


def backtrace(pid, flags, tid=0, given=None, core=None, sysroot=None, exe=None):
    """Returns the stacks. given: a description, by backtrace.py, of a target that only GDB can read."""
    import ctypes

    from . import inspect

    load()
    want = inspect.stacks(flags, tid, given, *(os.fsencode(x) if x else None for x in (core, sysroot, exe)))
    return _call(_lib.inspect_backtrace, pid, ctypes.byref(want))


def inject(pid, conf, flags, stood_ns):
    return _call(load().inspect_inject, pid, os.fsencode(directory()), os.fsencode(conf), flags, stood_ns)


def status(pid, flags):
    return _call(load().inspect_status, pid, flags)


def mail(pid, kind, request, timeout):
    return _call(load().inspect_mail, pid, kind, request.encode("utf-8", "surrogateescape"), int(timeout * 1000))
