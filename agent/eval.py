# SPDX-License-Identifier: Apache-2.0
"""Runs inside the target: answers one evaluation request of the mailbox.

evaluate(source: bytes, limit: int) -> bytes, a JSON object of at most `limit` bytes:
  ok     true when nothing was raised
  out    what this thread wrote to sys.stdout and sys.stderr meanwhile
  value  repr of the value, when the source ends in an expression that is not None
  error  the traceback, when something was raised

The namespace is __main__'s: variables of the script are visible, and what is assigned stays. Only modules that the
interpreter has built in or has loaded at its start are imported: this must work in Python 3.6 and in a broken
environment alike. Nothing raised here, not even SystemExit or KeyboardInterrupt, leaves evaluate().
"""
import _ast
import _thread
import sys

MARK = "...[cut]"


def quote(text, room):
    """text as a JSON string of at most about `room` bytes, ASCII only, cut with a mark."""
    out = []
    for ch in text:
        code = ord(ch)
        if ch == '"' or ch == "\\":
            item = "\\" + ch
        elif 32 <= code < 127:
            item = ch
        elif ch == "\n":
            item = "\\n"
        elif code > 0xFFFF:
            code -= 0x10000
            item = "\\u%04x\\u%04x" % (0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF))
        else:
            item = "\\u%04x" % code
        room -= len(item)
        if room < 0:
            out.append(MARK)
            break
        out.append(item)
    return '"' + "".join(out) + '"'


class Capture:
    """Stands in for sys.stdout or sys.stderr: takes what one thread writes, passes the rest on."""

    def __init__(self, target, ident, parts, room):
        self._probing = (target, ident, parts)
        self._probing_room = room

    def write(self, text):
        target, ident, parts = self._probing
        if _thread.get_ident() != ident:
            return target.write(text)
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        if self._probing_room > 0:
            parts.append(text[: self._probing_room])
        self._probing_room -= len(text)
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        target, ident, _ = self._probing
        if target is not None and _thread.get_ident() != ident:
            target.flush()

    def __getattr__(self, name):
        return getattr(self._probing[0], name)


def run(source, names):
    """Executes source; returns the value of its last statement if that is an expression, else None."""
    tree = compile(source, "<probing-eval>", "exec", _ast.PyCF_ONLY_AST)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
    if tree.body:
        exec(compile(tree, "<probing-eval>", "exec"), names)
    if last is None:
        return None
    return eval(compile(_ast.Expression(last.value), "<probing-eval>", "eval"), names)


def describe():
    """The exception being handled, as the interpreter would print it, without our own frames."""
    kind, value, trace = sys.exc_info()
    while trace is not None and trace.tb_frame.f_code.co_filename != "<probing-eval>":
        trace = trace.tb_next
    try:
        import traceback

        return "".join(traceback.format_exception(kind, value, trace))
    except BaseException:
        return "%s: (its traceback could not be formatted)\n" % kind.__name__


def evaluate(source, limit):
    parts = []
    ok, value, error = False, None, None
    room = limit - 256
    ident = _thread.get_ident()
    saved = sys.stdout, sys.stderr
    mine = Capture(saved[0], ident, parts, room), Capture(saved[1], ident, parts, room)
    try:
        sys.stdout, sys.stderr = mine
        try:
            result = run(source.decode("utf-8"), sys.modules["__main__"].__dict__)
            if result is not None:
                value = repr(result)
            ok = True
        except BaseException:
            error = describe()
    finally:
        if sys.stdout is mine[0]:
            sys.stdout = saved[0]
        if sys.stderr is mine[1]:
            sys.stderr = saved[1]
    fields = []
    # Errors first: they are what must not be cut. Each may use what the ones before have left.
    for name, text in (("error", error), ("value", value), ("out", "".join(parts))):
        coded = "null" if text is None else quote(text, room)
        room -= len(coded)
        fields.append('"%s":%s' % (name, coded))
    return ('{"ok":%s,%s}' % ("true" if ok else "false", ",".join(fields))).encode("ascii")
