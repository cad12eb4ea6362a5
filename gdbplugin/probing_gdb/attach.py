# SPDX-License-Identifier: Apache-2.0
"""Makes GDB attach quickly, and detach.

GDB's usual attach reads the symbols of every library, which takes seconds while the target is stopped. Nothing
here needs them. So when GDB's own command line attaches and then runs a probing command, GDB is set, before
it attaches, to read no symbols; the settings are restored when the user stays at the prompt. In any other use
of GDB nothing is changed.
"""
import os
import time

import gdb

from . import library

# Measured with 316 mapped files: 2 s -> 8 ms. sysroot has most of the effect (no executable, so no symbols and no
# shared library list at all); the others reduce what is left when GDB does not honour it.
QUICK = (
    ("sysroot", "/nonexistent"),
    ("auto-solib-add", "off"),
    ("debuginfod enabled", "off"),
    ("confirm", "off"),
    ("print thread-events", "off"),
    ("print inferior-events", "off"),
)


class State:
    before = None  # settings to restore: [(name, value)]
    began = None  # time.monotonic_ns() at which a quick attach first stopped the target
    pid = 0  # the detached process that further commands are about
    wanted = None  # the process id in the command line
    batch = False
    asked = []  # the -ex commands of the command line
    other = False  # the command line makes GDB do other things, too


def is_ours(command):
    word = command.split(None, 1)[0] if command.split() else ""
    return word in ("probing", "probing-backtrace", "probing-eval")


def needs_no_attach(command):
    """Whether it is a command of ours that would only have to detach from the target again."""
    return is_ours(command) and "backtrace" not in command.split(None, 2)[:2] and command.split()[0] != "probing-backtrace"


def command_line(args):
    """Returns (process id or None, batch, commands) from GDB's arguments."""
    pid = None
    batch = False
    State.other = False
    commands = []
    it = iter(args[1:])
    positional = 0
    for arg in it:
        if arg == "--args" or arg == "-args":
            break
        if not arg.startswith("-") or arg == "-":
            positional += 1
            if positional == 2 and arg.isdigit():
                pid = arg
            continue
        name, eq, value = arg.lstrip("-").partition("=")
        takes = name in TAKES_VALUE
        if takes and not eq:
            value = next(it, "")
        if name in ("p", "pid"):
            pid = value
        elif name in ("x", "command", "iex", "init-eval-command", "c", "core"):
            State.other = True
        if name in ("p", "pid"):
            pass
        elif name == "batch" or name == "batch-silent":
            batch = True
        elif name in ("ex", "eval-command", "iex", "init-eval-command"):
            commands.append(value)
    return pid, batch, commands


TAKES_VALUE = frozenset(
    "p pid ex eval-command iex init-eval-command x command ix init-command s symbols e exec se c core d directory cd "
    "data-directory D tty t b l interpreter i u ui eix early-init-command eiex early-init-eval-command".split()
)


def show(name):
    value = gdb.parameter(name)
    return "unlimited" if value is None else value if isinstance(value, str) else "on" if value else "off"


def prepare():
    try:
        with open("/proc/self/cmdline", "rb") as f:
            args = [os.fsdecode(a) for a in f.read().split(b"\0")[:-1]]
    except OSError:
        return
    pid, State.batch, State.asked = command_line(args)
    if gdb.selected_inferior().pid:  # too late: sourced by -x, or by hand
        return
    if not pid or not any(is_ours(c) for c in State.asked):
        return
    try:
        library.load()
    except library.Failed:
        return  # the command will report the error
    if State.batch and not State.other and pid.isdigit() and all(needs_no_attach(c) for c in State.asked):
        run_and_quit(int(pid))
    State.wanted = pid
    State.before = []
    for name, value in QUICK:
        try:
            old = show(name)
            gdb.execute("set %s %s" % (name, value), to_string=True)
        except (gdb.error, RuntimeError):
            continue  # this GDB has no such setting
        State.before.append((name, old))
    gdb.events.new_thread.connect(held)
    gdb.events.before_prompt.connect(restore)


def run_and_quit(pid):
    """Runs the commands and quits. GDB need not attach at all: its stop would be the longer one, and a GDB that is
    killed in the middle of attaching can leave the target stopped."""
    State.pid = pid
    failed = False
    for command in State.asked:
        failed = False
        try:
            gdb.execute(command)
        except (gdb.error, KeyboardInterrupt) as e:
            failed = True
            gdb.write("%s\n" % (str(e) or "interrupted"), gdb.STDERR)
    gdb.flush(gdb.STDOUT)
    gdb.execute("quit %d" % failed)


def held(event):
    if State.began is None:
        State.began = time.monotonic_ns()
    gdb.events.new_thread.disconnect(held)


def restore():
    """Restores GDB's settings and reads the symbols, since the user stays at the prompt."""
    gdb.events.before_prompt.disconnect(restore)
    if State.before is None:
        return
    before, State.before = dict(State.before), None
    confirm = before.pop("confirm", None)
    for name, old in before.items():
        gdb.execute("set %s %s" % (name, old), to_string=True)
    pid = gdb.selected_inferior().pid
    if pid:
        try:
            gdb.execute("file /proc/%d/exe" % pid, to_string=True)
            gdb.execute("sharedlibrary", to_string=True)
        except gdb.error:
            pass  # GDB works without symbols too
    if confirm is not None:  # last: the commands above would ask for confirmation
        gdb.execute("set confirm %s" % confirm, to_string=True)


def pid_or_error():
    """Returns (pid, attached) of the process that the command is about, or raises GdbError."""
    inferior = gdb.selected_inferior()
    if inferior.pid:
        connection = getattr(inferior, "connection", None)
        if connection is not None and connection.type != "native":
            raise gdb.GdbError("this needs a live process on this machine, not a %s target" % connection.type)
        return inferior.pid, True
    if State.pid and os.path.exists("/proc/%d" % State.pid):
        return State.pid, False
    if State.wanted:
        raise gdb.GdbError("GDB could not attach to process %s: its message above says why" % State.wanted)
    raise gdb.GdbError("no process: start with gdb -p PID, or attach PID first")


def let_go(pid):
    """Detaches. Returns for how many ns GDB's quick attach has stopped the target; STOOD for another attach."""
    gdb.execute("detach", to_string=True)
    State.pid = pid
    began, State.began = State.began, None
    return time.monotonic_ns() - began if began else library.STOOD


def more_to_come():
    """Whether something other than our own commands can follow, so that GDB should be attached again."""
    return not (State.batch and all(is_ours(c) for c in State.asked))


def take_back(pid):
    if not more_to_come() or not os.path.exists("/proc/%d" % pid):
        return
    try:
        gdb.execute("attach %d" % pid, to_string=True)
        State.pid = 0
    except gdb.error as e:
        gdb.write("process %d is no longer attached: %s\n" % (pid, e))
