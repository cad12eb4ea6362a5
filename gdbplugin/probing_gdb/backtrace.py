# SPDX-License-Identifier: Apache-2.0
"""probing-backtrace. The library itself reads a process that GDB traces on this machine. A core and a remote target are
read through GDB: memory, threads, registers, list of mappings. No function is called in any of them."""
import os
import re

import gdb

from . import attach, library

# The registers in the order of struct user_regs_struct.
REGISTERS = ("r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base "
             "ds es fs gs").split()
MAPPING = re.compile(r"^\s*0x([0-9a-f]+)\s+0x([0-9a-f]+)\s+0x[0-9a-f]+\s+0x([0-9a-f]+)(?:\s+([r-][w-][x-][ps-]))?\s*(.*)$")


def mappings():
    """Returns the mappings that GDB knows, as lines of /proc/PID/maps."""
    try:
        text = gdb.execute("info proc mappings", to_string=True)
    except gdb.error as e:
        raise library.Failed(0, "GDB cannot list the mappings of this target: %s" % e) from None
    lines = []
    for line in text.splitlines():
        m = MAPPING.match(line)
        if m:
            start, end, offset, perms, path = m.groups()
            # From GDB 16 on a blank follows the path.
            lines.append((int(start, 16), "%s-%s %s %s 00:00 0 %s" % (start, end, perms or "r-xp", offset, path.rstrip(" "))))
    return "\n".join(line for _, line in sorted(lines)) + "\n"


def program():
    """Returns the path of the program as the target knows it."""
    try:
        text = gdb.execute("info proc exe", to_string=True)
    except gdb.error:
        text = ""
    m = re.search(r"^exe = '(.*)'$", text, re.M)
    if m:
        # For a core GDB prints the command line, whose first word need not be a path.
        words = m.group(1).split(" ")
        if words[0].startswith("/"):
            return os.path.realpath(words[0])
    name = gdb.current_progspace().filename
    return name[7:] if name and name.startswith("target:") else name


def registers(frame):
    values = []
    for name in REGISTERS:
        try:
            values.append(int(frame.read_register(name)) & (2**64 - 1))
        except (gdb.error, ValueError):
            values.append(2**64 - 1 if name == "orig_rax" else 0)
    return values


def threads(inspect):
    """Returns one Thread for each thread of the inferior; afterwards the user's selection is restored."""
    inferior = gdb.selected_inferior()
    before, at = gdb.selected_thread(), None
    if before is not None:
        try:
            at = gdb.selected_frame()
        except gdb.error:
            pass
    found = []
    try:
        for thread in inferior.threads():
            thread.switch()
            one = inspect.Thread(tid=thread.ptid[1] or thread.ptid[0])
            one.name = (thread.name or "").encode()[:31]
            one.regs[:] = registers(gdb.newest_frame())
            found.append(one)
    finally:
        if before is not None:
            before.switch()
            if at is not None and at.is_valid():
                at.select()
    return found


def seen_by_gdb():
    """Returns a Given that describes the selected inferior."""
    import ctypes

    from . import inspect

    inferior = gdb.selected_inferior()

    def read(addr, buf, n):
        try:
            ctypes.memmove(buf, bytes(inferior.read_memory(addr, n)), n)
            return 0
        except Exception:  # no exception may pass into C; a core and a remote target have many ways to fail
            return -1

    found = threads(inspect)
    given = inspect.Given(pid=inferior.pid, read=inspect.READ(read), maps=os.fsencode(mappings()),
                          threads=(inspect.Thread * len(found))(*found), n=len(found))
    exe = program()
    given.exe = os.fsencode(exe) if exe else None
    return given


def core_file():
    m = re.search(r"^Local core dump file:\s*`(.*)', file type", gdb.execute("info files", to_string=True), re.M)
    return m.group(1) if m else None


def of_core(flags, tid):
    """Reads a core through GDB, or by the library: without the program or its libraries the core itself still has some data."""
    try:
        return library.backtrace(0, flags | library.NEED_PYTHON, tid, seen_by_gdb())
    except library.Failed:
        path = core_file()
        if not path:
            raise
    sysroot = gdb.parameter("sysroot")
    sysroot = sysroot[7:] if sysroot and sysroot.startswith("target:") else sysroot
    return library.backtrace(0, flags, tid, core=path, sysroot=sysroot, exe=gdb.current_progspace().filename)


def use_color(when):
    if when in ("always", "never"):
        return when == "always"
    return bool(gdb.parameter("style enabled")) and os.isatty(1) and not os.environ.get("NO_COLOR")


class Backtrace(gdb.Command):
    """Stacks of all threads, the innermost frame first, Python and native frames merged.

Usage: probing-backtrace [OPTION...]

  --thread TID    only the thread with this kernel id
  --main          only the main thread
  --python        Python frames only
  --native        native frames only
  --locals        arguments and local variables, from memory: no code runs in the target
  --tasks         asyncio tasks too: who awaits whom
  --json          for programs (documented in probing-backtrace(1))
  --folded        one line for each stack, for flame graphs
  --color=WHEN    auto, always or never

A Python frame shows the line that it is executing. Threads: kernel id, name, running or idle (blocked in a system
call), who holds the GIL. Of a process, stopped anywhere; of a core; of a remote target (gdbserver)."""

    FLAGS = {"--json": "json", "--python": "python", "--native": "native", "--main": "main", "--locals": "locals",
             "--tasks": "tasks", "--folded": "folded"}

    def __init__(self, name):
        self.name = name
        super().__init__(name, gdb.COMMAND_STACK)

    def parse(self, text):
        from .commands import Options, number  # commands.py imports this module

        opt = Options(self.name, self.name + " [OPTION...]", text, self.FLAGS,
                      {"--thread": "thread", "--color": "color"})
        flags = 0
        for word, attribute in self.FLAGS.items():
            if getattr(opt, attribute):
                flags |= getattr(library, attribute.upper())
        for one, other in (("python", "native"), ("json", "folded")):
            if getattr(opt, one) and getattr(opt, other):
                raise gdb.GdbError("%s: --%s or --%s, not both" % (self.name, one, other))
        if opt.color not in (None, "auto", "always", "never"):
            raise gdb.GdbError("%s: --color is auto, always or never, not '%s'" % (self.name, opt.color))
        if use_color(opt.color):
            flags |= library.COLOR
        return flags, int(number("the thread", opt.thread, 1, 2**30)) if opt.thread else 0

    def invoke(self, text, tty):
        flags, tid = self.parse(text)
        inferior = gdb.selected_inferior()
        connection = getattr(inferior, "connection", None)
        kind = connection.type if inferior.pid and connection is not None else "native"
        if inferior.pid and any(t.is_running() for t in inferior.threads()):
            raise gdb.GdbError("the process is running: interrupt it first")
        try:
            if kind == "core":
                answer = of_core(flags, tid)
            elif kind != "native":
                answer = library.backtrace(0, flags, tid, seen_by_gdb())
            else:
                pid, attached = attach.pid_or_error()
                answer = library.backtrace(pid, flags | (library.BORROW if attached else library.STOP), tid)
        except library.Failed as e:
            raise gdb.GdbError(str(e)) from None
        gdb.write(answer)
