# SPDX-License-Identifier: Apache-2.0
"""Runs Python code in the selected thread of a process that GDB has stopped: GDB calls functions of CPython's API.

This is only done where CPython itself could call Python code: the thread holds the GIL (or no thread does, and it can take it),
and it is in a C function that Python called, or sleeps in the kernel. It must not be in the interpreter's own code, the allocator,
the garbage collector or the loader. Everything is checked before anything is changed. The calls' data is put on the thread's
stack, below its red zone; afterwards its registers are restored. Meanwhile breakpoints are off and Ctrl-C is blocked, since a call
that is interrupted in the middle would leave the interpreter in an intermediate state. A trace function inside the target watches
the deadline, so the code ends with TimeoutError (code that is inside one C function ends when that function returns).
"""
import json
import os
import re
import signal

import gdb

from . import library

# Functions during which nothing may be called: they hold a lock, or have half changed something.
UNSAFE = re.compile(
    r"malloc|calloc|realloc|memalign|\bfree\b|_int_|^cfree$|arena|dealloc|Dealloc|^gc_|_gc_|GC_|collect_|subtract_refs|move_unreachable"
    r"|^_?dl_|dlopen|dlsym|dl_iterate|fork|clone|pthread_create|insertdict|dictresize|dict_|^_?PyDict_|^list_|^_?PyList_|^set_|^_?PySet_"
    r"|[Ii]ntern(?!al)|^type_|^_?PyType_|mro_|take_gil|drop_gil|create_gil|Finalize|finalize|atexit|new_threadstate|tstate_|<signal handler called>")
# At the entry of these functions the state is consistent; they may run Python code themselves.
ENTRY = re.compile(r"^(PyErr_CheckSignals(Tstate)?|PyEval_SaveThread|_?Py_MakePendingCalls|builtin_\w+|time_\w+|os_\w+|\w+_impl)$")
PYTHON = re.compile(r"^(libpython3|python3?)")
C_LIBRARY = re.compile(r"^(libc|libpthread|ld-linux|ld)[-.]")
SLEEPS = re.compile(r"^_*(GI_|libc_)*(clock_nanosleep|nanosleep|e?poll\w*|select|pselect\w*|read\w*|write\w*|recv\w*|send\w*|accept\w*|wait\w*|"
                    r"futex\w*|sem_\w*wait\w*|pthread_cond_\w*wait\w*|pause|sigtimedwait|flock|fsync|connect|epoll_wait|ioctl|syscall|ppoll|do_futex_wait\S*|lll_lock_wait|syscall_cancel\w*)")


def why_not(stacks, tid):
    """Returns None when code may run in this thread, else the reason why not."""
    threads = {t["tid"]: t for t in stacks["threads"]}
    thread = threads.get(tid)
    holder = [t for t in stacks["threads"] if t.get("gil")]
    if thread is None or not thread.get("python"):
        return "thread %d runs no Python: select one that does (info threads, thread N)" % tid
    if holder and holder[0]["tid"] != tid:
        return ("thread %d holds the interpreter (GIL), not thread %d: select it (info threads, thread N), or continue: "
                "a running process is asked through its agent" % (holder[0]["tid"], tid))
    if thread.get("gc"):
        return "thread %d is in the middle of a garbage collection: finish it first" % tid
    if thread.get("finalizing"):
        return "the interpreter is shutting down"
    frames = [f for f in thread.get("frames") or [] if not f.get("inlined")]
    if not frames:
        return "the stack of thread %d cannot be read" % tid
    first = frames[0]
    if first["type"] != "Native":
        return inside(tid)
    for f in frames:
        if f["type"] != "Native":
            break
        name = f.get("symbol") or ""
        if UNSAFE.search(name):
            return "thread %d is in %s: finish it first" % (tid, name)
    module, name = os.path.basename(first.get("module") or ""), first.get("symbol") or ""
    if PYTHON.match(module):
        return None if first.get("offset", 1) <= 8 and ENTRY.match(name.split(".")[0]) else inside(tid)
    if C_LIBRARY.match(module):
        return None if SLEEPS.match(name) else "thread %d is in %s of the C library: finish it first" % (tid, name or "a function")
    return None


def inside(tid):
    return ("thread %d stands in the interpreter's own code, where no Python may be run: stop it in a C function instead "
            "(break PyEval_SaveThread, continue: where it next lets others run), or detach: a running process is asked through its agent" % tid)


ASIDE = 1024  # bytes below the stack pointer that stay as they are: the red zone and some more
NEEDED = 32 << 10  # bytes of stack below the calls' data; the evaluator with an import takes up to 24 KB of it


def register(name):
    return int(gdb.newest_frame().read_register(name)) & (1 << 64) - 1


def free_stack(pid, sp, thread_pointer):
    """How many bytes the thread's stack has left at `sp`. GDB would write through the page that guards its end, into what lies behind it.
    None if it is not the thread's own (which has the thread pointer on top): how far a coroutine's or a goroutine's reaches, nothing says."""
    with open("/proc/%d/maps" % pid) as maps:
        for line in maps:
            low, high = (int(n, 16) for n in line.split(None, 1)[0].split("-"))
            if low <= sp < high:
                break
        else:
            return 0
    if line.endswith("[stack]\n"):  # it grows
        with open("/proc/%d/limits" % pid) as limits:
            most = re.search(r"^Max stack size +(\d+)", limits.read(), re.M)
        low = high - int(most.group(1)) if most else 0
    elif not sp < thread_pointer < high:
        return None
    return sp - low


def address(name):
    try:
        return int(gdb.parse_and_eval("(long)&%s" % name))
    except gdb.error:
        raise gdb.GdbError("GDB does not know where %s is: give it the program's symbols (file, sharedlibrary)" % name) from None


class Calls:
    """Calls functions of CPython's API by address. `texts` are written to the stack before the first call."""

    def __init__(self, texts):
        self.inferior = gdb.selected_inferior()
        self.frame = gdb.newest_frame()
        self.sp = int(self.frame.read_register("rsp")) & (1 << 64) - 1
        data = [t + b"\0" for t in texts]
        self.base = (self.sp - ASIDE - sum(map(len, data))) & ~0xFF
        self.at = []
        place = self.base
        for d in data:
            self.inferior.write_memory(place, d)
            self.at.append(place)
            place += len(d)

    def __enter__(self):
        gdb.execute("select-frame 0", to_string=True)
        gdb.execute("set $rsp = %d" % self.base, to_string=True)
        return self

    def __exit__(self, *exc):
        gdb.execute("select-frame 0", to_string=True)
        gdb.execute("set $rsp = %d" % self.sp, to_string=True)

    @staticmethod
    def call(function, *args):
        values = ", ".join("%dL" % (a - (1 << 64) if a >= 1 << 63 else a) for a in args)
        kinds = ", ".join(["long"] * len(args)) or "void"
        return int(gdb.parse_and_eval("((long (*)(%s)) %dL)(%s)" % (kinds, function, values))) & (1 << 64) - 1


class Quiet:
    """Keeps GDB from interfering: no breakpoints, no Ctrl-C, and all threads run."""

    SETTINGS = (("unwindonsignal", "on"), ("scheduler-locking", "off"))

    def __enter__(self):
        self.points = [b for b in gdb.breakpoints() if b.enabled]
        for b in self.points:
            b.enabled = False
        self.before = []
        for name, value in self.SETTINGS:
            old = gdb.parameter(name)
            self.before.append((name, {True: "on", False: "off"}.get(old, old)))
            gdb.execute("set %s %s" % (name, value), to_string=True)
        # A Ctrl-C of the terminal may also reach the process, if it was started from this GDB.
        row = [line.split() for line in gdb.execute("info signals SIGINT", to_string=True).splitlines() if line.startswith("SIGINT")]
        self.handled = row[0][1:4] if row else ["Yes", "Yes", "No"]
        gdb.execute("handle SIGINT nostop noprint nopass", to_string=True)
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        return self

    def __exit__(self, *exc):
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
        words = [("" if yes == "Yes" else "no") + what for yes, what in zip(self.handled, ("stop", "print", "pass"))]
        gdb.execute("handle SIGINT %s" % " ".join(sorted(words, key=lambda w: w.endswith("stop"))), to_string=True)
        for name, value in self.before:
            gdb.execute("set %s %s" % (name, value), to_string=True)
        for b in self.points:
            if b.is_valid():
                b.enabled = True


NAMES = ("PyGILState_Ensure PyGILState_Release PyEval_GetBuiltins PyDict_New PyDict_SetItemString PyDict_GetItemString "
         "PyRun_String PyBytes_AsString PyBytes_Size PyErr_Clear Py_DecRef").split()
LIMIT = 65535


def source():
    path = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "eval.py")
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise gdb.GdbError("cannot read %s: %s (is Probing installed whole?)" % (path, e.strerror)) from None


def evaluate(pid, options, code, timeout):
    """Returns the answer as JSON, in the form that the agent gives."""
    thread = gdb.selected_thread()
    if thread is None or thread.is_running():
        raise gdb.GdbError("the process is running: interrupt it first")
    tid = thread.ptid[1]
    try:
        stacks = json.loads(library.backtrace(pid, library.BORROW | library.JSON))
    except ValueError:
        raise gdb.GdbError("the stacks of process %d cannot be read" % pid) from None
    program = source() + b"\nreply = evaluate(%r, %r, %d)\n" % (
        ("%s deadline=%g" % (options, timeout)).encode(), code.encode("utf-8", "surrogateescape"), LIMIT)
    reason = why_not(stacks, tid)
    if not reason:
        free = free_stack(pid, register("rsp"), register("fs_base"))
        if free is None:
            reason = "thread %d is on another stack than its own (a coroutine's): select another one, or continue" % tid
        elif free < ASIDE + len(program) + NEEDED:
            reason = "thread %d has only %d KB of stack left: select another one, or continue" % (tid, free >> 10)
    if reason:
        raise gdb.GdbError("nothing was run: " + reason)
    where = {name: address(name) for name in NAMES}
    frame = gdb.selected_frame()
    try:
        with Quiet(), Calls([program, b"__builtins__", b"reply"]) as c:
            answer = run(c, where)
    except gdb.error as e:
        raise gdb.GdbError("the evaluation did not come to its end: %s" % e) from None
    finally:
        if frame.is_valid():
            frame.select()
    if answer is None:
        raise gdb.GdbError("the evaluation itself failed (out of memory, or deep recursion)")
    return answer


def run(c, where):
    gil = c.call(where["PyGILState_Ensure"])
    answer = None
    names = c.call(where["PyDict_New"])
    if names:
        c.call(where["PyDict_SetItemString"], names, c.at[1], c.call(where["PyEval_GetBuiltins"]))
        done = c.call(where["PyRun_String"], c.at[0], 257, names, names)
        reply = c.call(where["PyDict_GetItemString"], names, c.at[2]) if done else 0
        if reply:
            n = c.call(where["PyBytes_Size"], reply)
            answer = bytes(c.inferior.read_memory(c.call(where["PyBytes_AsString"], reply), n)).decode("utf-8", "replace")
        else:
            c.call(where["PyErr_Clear"])
        if done:
            c.call(where["Py_DecRef"], done)
        c.call(where["Py_DecRef"], names)
    c.call(where["PyGILState_Release"], gil & 0xFFFFFFFF)
    return answer
