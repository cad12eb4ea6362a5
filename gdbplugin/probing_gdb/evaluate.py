# SPDX-License-Identifier: Apache-2.0
"""probing-eval. GDB detaches from a process that it has just attached to, and the agent in it runs the code. A process that
the user has stopped at this point (started under GDB, or continued) stays there: nested.py runs the code in its selected thread."""
import errno
import json
import os

import gdb

from . import attach, library, nested

PASSIVE = "PROBING_PASSIVE=1\n"


class State:
    stopped = set()  # processes that have been stopped under GDB
    continued = set()  # those of them that the user has continued: they are stopped where the user wants them


def stood(event):
    State.stopped.add(gdb.selected_inferior().pid)


def ran(event):
    thread = getattr(event, "inferior_thread", None)  # None: all threads
    pid = thread.inferior.pid if thread else gdb.selected_inferior().pid
    if pid in State.stopped:  # else GDB itself continues it, during an attach
        State.continued.add(pid)


def ended(event):
    forget(event.inferior.pid)


def forget(pid):
    State.stopped.discard(pid)
    State.continued.discard(pid)


def watch():
    gdb.events.stop.connect(stood)
    gdb.events.cont.connect(ran)
    gdb.events.exited.connect(ended)


def kept(pid):
    """Whether the process must stay stopped where it is."""
    inferior = gdb.selected_inferior()
    return pid in State.continued or not getattr(inferior, "was_attached", True)


class Eval(gdb.Command):
    """Run Python in the process: probing-eval [--frame N] [--timeout SECONDS] [--json] CODE | -f FILE

    probing-eval "len(batch)"
    probing-eval import gc; gc.get_count()
    probing-eval --frame 0 batch.shape

  --frame N    with the names of the main thread's N-th Python frame, 0 the innermost; what is assigned does not reach it
  --timeout S  how long the answer is waited for (10); then the code is interrupted
  --json       {"ok", "out", "value", "error"}
  -f FILE      the code

Prints what the code prints, then the value of its last expression. Names are those of __main__. A process that GDB has just
attached to runs on meanwhile: the code runs in a thread of the agent's, and an agent that does not record is brought in when
there is none. A process that was started under GDB, or has been continued, stays where it stands: the code runs in the
selected thread, if that holds the interpreter (GIL) at a point where Python code may run; its other threads run meanwhile."""

    def __init__(self, name):
        self.name = name
        super().__init__(name, gdb.COMMAND_DATA)

    def invoke(self, text, tty):
        code, frame, timeout, as_json = self.parse(text)
        pid, attached = attach.pid_or_error()
        options = "eval" + ("" if frame is None else " frame=%d" % frame)
        if attached and kept(pid):
            try:
                answer = nested.evaluate(pid, options, code, timeout)
            except library.Failed as e:
                raise gdb.GdbError(str(e)) from None
        else:
            answer = self.let_run(pid, attached, "%s\n%s" % (options, code), timeout)
        self.show(answer, as_json)

    def let_run(self, pid, attached, request, timeout):
        if attached:
            attach.let_go(pid)
            forget(pid)
        try:
            return self.ask(pid, request, timeout)
        except library.Failed as e:
            raise gdb.GdbError(str(e)) from None
        finally:
            if attached:
                attach.take_back(pid)

    def usage(self):
        return gdb.GdbError("usage: %s [--frame N] [--timeout SECONDS] [--json] CODE | -f FILE (see help %s)" % (self.name, self.name))

    def parse(self, text):
        """Parses the line: options come first, and the rest of the line is the code, unchanged."""
        frame, timeout, as_json, file = None, 10.0, False, None
        text = text.strip()
        while text.startswith(("--frame", "--timeout", "--json", "-f ")):
            word, _, text = text.partition(" ")
            text = text.lstrip()
            if word == "--json":
                as_json = True
                continue
            word, eq, value = word.partition("=")
            if not eq:
                value, _, text = text.partition(" ")
            if word == "--frame" and value.isdigit():
                frame = int(value)
            elif word == "--timeout":
                timeout = self.number(value)
            elif word == "-f" and value:
                file = value
            else:
                raise self.usage()
            text = text.lstrip()
        if file is not None:
            if text:
                raise self.usage()
            try:
                with open(os.path.expanduser(file), encoding="utf-8") as f:
                    text = f.read()
            except (OSError, ValueError) as e:
                raise gdb.GdbError("cannot read the code from %s: %s" % (file, e)) from None
        # Quotes around the whole code are the user's quoting for the shell, so drop them, unless they are not one single string.
        elif len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" and text[0] not in text[1:-1].replace("\\" + text[0], ""):
            text = text[1:-1].replace("\\" + text[0], text[0])
        if not text.strip():
            raise self.usage()
        return text, frame, timeout, as_json

    @staticmethod
    def number(text):
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0.001 <= value <= 86400:
            raise gdb.GdbError("the timeout must be a number from 0.001 to 86400, not '%s'" % text)
        return value

    @staticmethod
    def ask(pid, request, timeout):
        try:
            return library.mail(pid, library.MAIL_ASK, request, timeout)
        except library.Failed as e:
            if e.errno != errno.ENOENT:
                raise
        library.inject(pid, PASSIVE, 0, 0)
        return library.mail(pid, library.MAIL_ASK, request, timeout)

    @staticmethod
    def show(answer, as_json):
        try:
            fields = json.loads(answer)
        except ValueError:
            raise gdb.GdbError("the answer cannot be read: %.200s" % answer) from None
        if as_json:
            gdb.write(answer + "\n")
        else:
            if fields.get("out"):
                gdb.write(fields["out"])
            if fields.get("value") is not None:
                gdb.write(fields["value"] + "\n")
        if fields.get("late"):
            raise gdb.GdbError(fields["late"])
        if not fields.get("ok"):
            raise gdb.GdbError((fields.get("error") or "unknown error").rstrip("\n"))
