# SPDX-License-Identifier: Apache-2.0
"""The commands. Each is a class with a doc string, which is its help text in GDB."""
import os
import re
import shlex

import gdb

from . import attach, library
from .backtrace import Backtrace
from .evaluate import Eval

USAGE = "usage: %s (see help %s)"


class Options:
    """Parses the options of a command line: `flags` as {"--json": "json"}, `values`, options with a value, as {"-o": "output"}."""

    def __init__(self, name, usage, text, flags=(), values=()):
        self.rest = []
        for key in list(dict(flags).values()) + list(dict(values).values()):
            setattr(self, key, None)
        try:
            words = shlex.split(text)
        except ValueError as e:
            raise gdb.GdbError("%s: %s" % (name, e)) from None
        flags, values = dict(flags), dict(values)
        while words:
            word = words.pop(0)
            option, eq, value = word.partition("=") if word.startswith("--") else (word, "", "")
            if word in flags:
                setattr(self, flags[word], True)
            elif option in values:
                if not eq and not words:
                    raise gdb.GdbError("%s: %s needs a value" % (name, option))
                setattr(self, values[option], value if eq else words.pop(0))
            else:
                raise gdb.GdbError("%s: unknown argument '%s'; " % (name, word) + USAGE % (usage, name))


def number(name, text, low, high):
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not low <= value <= high:
        raise gdb.GdbError("%s must be a number from %g to %g, not '%s'" % (name, low, high, text))
    return value


UNITS = {"": (1, 1), "hz": (1, 1), "khz": (1000, 1), "s": (1, -1), "ms": (1e-3, -1), "us": (1e-6, -1)}


def hertz(text):
    """The forms that probing-record has: 100 and 100Hz are a rate, 10ms is a period."""
    digits, unit = re.match("(?s)([0-9.]*)(.*)", text).groups()
    scale, power = UNITS.get(unit.lower(), (0, 1))
    try:
        rate = (float(digits) * scale) ** power
    except (ValueError, ZeroDivisionError):
        rate = 0
    if not 0.001 <= rate <= 1000.000001:
        raise gdb.GdbError("the rate must be 0.001 to 1000 samples a second (100, 100Hz, 10ms), not '%s'" % text)
    return rate


def fail(e):
    return gdb.GdbError(str(e))


class Probing(gdb.Command):
    """Record a live Python process, and look into it.

    gdb -p PID -ex "probing inject"      begin to record the process
    gdb -p PID -ex probing-backtrace     stacks of all threads, Python and native
    gdb -p PID -ex 'probing-eval "x"'    evaluate Python in it

The target is let go as soon as possible; probing inject and probing eval need it running."""

    def __init__(self):
        super().__init__("probing", gdb.COMMAND_STATUS, gdb.COMPLETE_NONE, True)

    def invoke(self, text, tty):
        word = text.split(None, 1)[0] if text.strip() else ""
        if word:
            raise gdb.GdbError("no such command: probing %s (see help probing)" % word)
        gdb.execute("help probing")


class Help(gdb.Command):
    """The same as help probing."""

    def __init__(self):
        super().__init__("probing help", gdb.COMMAND_SUPPORT)

    def invoke(self, text, tty):
        shown = gdb.execute("help probing %s" % text.strip(), to_string=True)
        if text.strip() and shown == gdb.execute("help probing", to_string=True):
            raise gdb.GdbError("no such command: probing %s (see help probing)" % text.strip())
        gdb.write(shown)


class Inject(gdb.Command):
    """Begin to record the process: probing inject [-o FILE] [-r HZ] [--no-native] [--force] [--method M] [--dry-run]

  -o FILE      the trace (default: probing-HOST-PID.zst in the target's working directory)
  -r HZ        samples a second, up to 1000 (default 10); 100Hz and 10ms are the same
  --no-native  Python frames only
  --force      although a seccomp filter may kill the process for it, or it has no Python
  --method M   by this one only: native, pep768 (3.14+), pending (up to 3.13)
  --dry-run    say what stands against it, and how it would be done

The agent is loaded at a moment when no thread is inside malloc or the loader; nothing is called at any other. A
process that records already is left as it is. Afterwards GDB is detached and the process runs on."""

    USAGE = "probing inject [-o FILE] [-r HZ] [--no-native] [--force] [--method M] [--dry-run]"

    def __init__(self):
        super().__init__("probing inject", gdb.COMMAND_RUNNING)

    def invoke(self, text, tty):
        opt = Options("probing inject", self.USAGE, text,
                      {"--no-native": "no_native", "--force": "force", "--dry-run": "dry_run"},
                      {"-o": "output", "--output": "output", "-r": "rate", "--rate": "rate", "--method": "method"})
        conf = ""
        if opt.output is not None:
            conf += "PROBING_TRACE=%s\n" % os.path.abspath(opt.output)
        if opt.rate is not None:
            conf += "PROBING_SAMPLE_RATE=%.9g\n" % (1 / hertz(opt.rate))
        if opt.no_native:
            conf += "PROBING_NATIVE=0\n"
        flags = (library.FORCE if opt.force else 0) | (library.DRY_RUN if opt.dry_run else 0)
        if opt.method is not None:
            if opt.method not in library.METHODS:
                raise gdb.GdbError("--method is one of %s, not '%s'" % (", ".join(library.METHODS), opt.method))
            flags |= library.METHODS.index(opt.method) << 25
        pid, attached = attach.pid_or_error()
        stood = attach.let_go(pid) if attached else 0
        try:
            line = library.inject(pid, conf, flags, stood)
        except library.Failed as e:
            raise fail(e) from None
        gdb.write("%s\n" % line.rstrip("\n"))
        if attached and not attach.State.batch:
            gdb.write("GDB has let go of process %d; it runs on.\n" % pid)


class Status(gdb.Command):
    """What the agent says of its recording: probing status [--json]"""

    def __init__(self):
        super().__init__("probing status", gdb.COMMAND_STATUS)

    def invoke(self, text, tty):
        opt = Options("probing status", "probing status [--json]", text, {"--json": "json"})
        pid, _ = attach.pid_or_error()
        try:
            gdb.write(library.status(pid, library.JSON if opt.json else 0))
        except library.Failed as e:
            raise fail(e) from None


class Stop(gdb.Command):
    """End the recording of the process and close its trace: probing stop"""

    def __init__(self):
        super().__init__("probing stop", gdb.COMMAND_RUNNING)

    def invoke(self, text, tty):
        Options("probing stop", "probing stop", text)
        pid, attached = attach.pid_or_error()
        if attached:
            attach.let_go(pid)
        try:
            library.mail(pid, library.MAIL_STOP, "", 10)
            gdb.write("process %d is no longer recorded; its trace is closed\n" % pid)
        except library.Failed as e:
            raise fail(e) from None
        finally:
            if attached:
                attach.take_back(pid)


_registered = []


def register():
    if not _registered:
        _registered.extend([Probing(), Help(), Inject(), Status(), Stop(), Backtrace("probing-backtrace"),
                            Backtrace("probing backtrace"), Eval("probing-eval"), Eval("probing eval")])
