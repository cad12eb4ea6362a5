# SPDX-License-Identifier: Apache-2.0
"""Runs inside the target: answers one evaluation request of the mailbox.

evaluate(options: bytes, source: bytes, limit: int) -> bytes, a JSON object of at most `limit` bytes. Options are words:

  eval                  run the source
  input session=ID      the same as one input of a console: what is not complete yet is not run
  complete session=ID   the names that the end of the source can be completed to
  end session=ID        the console is closed
  output                what the last evaluation that has not ended has printed: nobody waits for its answer any more
  deadline=SECONDS      with eval: TimeoutError after that time; for code that nobody can interrupt from another thread
  frame=N               with the first two: names are those of the main thread's N-th frame, 0 is the innermost

The answer:
  ok     true when nothing was raised
  out    what this thread wrote to sys.stdout and sys.stderr meanwhile; sys.stdin is empty for it
  value  repr of the value, when the source ends in an expression that is not None
  error  the traceback, when something was raised
  more   true: the input is not complete
  names  for complete: a list
  exit   true: SystemExit was raised in a console

The namespace is __main__'s: variables of the script are visible, and what is assigned stays. With a frame it is a dictionary
of its own, filled with the globals and locals of that frame as they are now: what is assigned does not reach the frame, what
is changed in an object does. A session keeps it. In a session `_` is the last value, where the program has no such name.

Only modules that the interpreter has built in or has loaded at its start are imported: this must work in Python 3.6 and in a
broken environment alike (codeop, linecache and traceback are tried). Nothing raised here, not even SystemExit or
KeyboardInterrupt, leaves evaluate(), with one exception: an interruption by the agent may strike anywhere in it; then
recover(limit) puts things right and makes the answer.
"""
import _ast
import _thread
import _weakref
import posix
import sys

MARK = "...[cut]"
NAME = "<probing>"
MOST_SESSIONS = 16
MOST_ENDED = 192
KEYWORDS = ("and as assert async await break class continue def del elif else except finally for from global if import in is "
            "lambda nonlocal not or pass raise return try while with yield").split()

STREAMS = "stdout", "stderr", "stdin"
running = {}  # thread -> (sys.stdout, stderr and stdin as they were, as they are, output, what threading knew of it)
ended = []  # captures of the last evaluations: up to 3.13 print() holds no reference to the sys.stdout that it writes to
sessions = {}  # console -> names
last_values = {}  # console -> what `_` is
LAST = "_probing_last_value"


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
        self._probing_pid = posix.getpid()  # in a child, forked meanwhile, a new thread may get the same number

    def write(self, text):
        target, ident, parts = self._probing
        if isinstance(target, _weakref.ref):
            target = target()
        if _thread.get_ident() != ident or posix.getpid() != self._probing_pid:
            return len(text) if target is None else target.write(text)  # print() does nothing where it is None
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
        if isinstance(target, _weakref.ref):
            target = target()
        if target is not None and (_thread.get_ident() != ident or posix.getpid() != self._probing_pid):
            target.flush()

    def __getattr__(self, name):
        return getattr(beneath(self), name)

    def end(self):
        self._probing = self._probing[0], None, None

    def let_go(self):
        """Nobody has this object in the place of the stream, which may end when the program drops it: what it has buffered is written then."""
        try:
            self._probing = _weakref.ref(beneath(self)), None, None
        except TypeError:  # None, or a class without weak references
            pass


class NoInput(Capture):
    """Stands in for sys.stdin: the thread that evaluates finds nothing to read, the others read on. Otherwise its input(), or pdb's, would take
    the program's next line, and on a terminal nobody else could read one until that came, even after the evaluation was given up."""

    def __getattr__(self, name):
        if _thread.get_ident() == self._probing[1] and posix.getpid() == self._probing_pid:
            if name.startswith("read"):
                return lambda *size: ""
            if name in ("fileno", "buffer", "detach"):
                raise AttributeError(name)
        return Capture.__getattr__(self, name)

    def __iter__(self):
        return self

    def __next__(self):
        line = self.readline()
        if not line:
            raise StopIteration
        return line


def beneath(capture):
    target = capture._probing[0]
    return target() if isinstance(target, _weakref.ref) else target


def let_go(captures):
    unknown = [Capture(None, None, None, 0)]
    for i in range(len(captures)):
        if sys.getrefcount(captures[i]) <= sys.getrefcount(unknown[0]):
            captures[i].let_go()


def below(stream):
    """What lies under the captures of evaluations that have ended."""
    while isinstance(stream, Capture) and stream._probing[1] is None:
        stream = beneath(stream)
    return stream


def run(source, names, last_value=False):
    """Executes source; returns the value of its last statement if that is an expression, else None."""
    tree = compile(source, NAME, "exec", _ast.PyCF_ONLY_AST)
    if last_value:
        rename(tree, "_", LAST)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
    if tree.body:
        exec(compile(tree, NAME, "exec"), names)
    if last is None:
        return None
    return eval(compile(_ast.Expression(last.value), NAME, "eval"), names)


def rename(node, old, new):
    """Reads of the name `old` in the tree read `new`. False: it is assigned there, too."""
    if isinstance(node, _ast.Name) and node.id == old:
        if not isinstance(node.ctx, _ast.Load):
            return False
        node.id = new
    fine = getattr(node, "arg", None) != old
    for field in getattr(node, "_fields", ()):
        value = getattr(node, field, None)
        for child in value if isinstance(value, list) else [value]:
            fine = rename(child, old, new) and fine
    return fine


def run_session(source, names, session):
    """run(), with `_`: under a name of its own, so that the program's other threads do not see it."""
    known = "_" in names or "_" in sys.modules["builtins"].__dict__ or session not in last_values
    if known or not rename(compile(source, NAME, "exec", _ast.PyCF_ONLY_AST), "_", LAST):
        value = run(source, names)
    else:
        names[LAST] = last_values[session]
        try:
            value = run(source, names, True)
        finally:
            names.pop(LAST, None)
    if value is not None:
        last_values[session] = value
    return value


def run_limited(source, names, seconds):
    """run(), watched by a trace function."""
    import time

    end = time.time() + seconds
    # 3.7 to 3.11 forget what a line event raises when an opcode event follows, and trace no more.
    quiet = "line" if (3, 7) <= sys.version_info < (3, 12) else None

    def trace(frame, event, arg):
        if event != quiet and time.time() > end:
            raise TimeoutError("the evaluation took longer than %g s" % seconds)
        if quiet or sys.version_info >= (3, 12):
            frame.f_trace_opcodes = True  # a loop that jumps to itself has no other events; 3.6 does not end it
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return run(source, names)
    finally:
        sys.settrace(before)


def incomplete(source):
    """Whether a console would ask for more lines. What is wrong is complete: running it says what is wrong."""
    try:
        import codeop

        return codeop.compile_command(source, NAME, "single") is None
    except (ImportError, SyntaxError, OverflowError, ValueError):
        return False


def main_frames():
    """The main thread's frames, innermost first."""
    frames = sys._current_frames()
    threading = sys.modules.get("threading")
    main = getattr(getattr(threading, "_main_thread", None), "ident", None)
    if main not in frames:
        # Importing threading here would make this thread the main one. The oldest thread is listed last.
        main = ([ident for ident in frames if ident != _thread.get_ident()] or list(frames))[-1]
    frame, found = frames.get(main), []
    while frame is not None:
        if frame.f_globals is not globals():  # this very evaluation, run in the main thread by a debugger
            found.append(frame)
        frame = frame.f_back
    return found


def namespace(options):
    """The names to work with. A session's are made once."""
    session = options.get("session")
    if session in sessions:
        return sessions[session]
    if "frame" in options:
        frames, index = main_frames(), int(options["frame"])
        if index >= len(frames):
            raise LookupError("the main thread has %d Python frames, there is no frame %d" % (len(frames), index))
        names = dict(frames[index].f_globals)
        names.update(frames[index].f_locals)
        del frames
    else:
        if "__main__" not in sys.modules:
            raise LookupError("Python is still starting: there is no __main__ yet")
        names = sys.modules["__main__"].__dict__
    if session:
        while len(sessions) >= MOST_SESSIONS:  # of consoles that were killed
            last_values.pop(next(iter(sessions)), None)
            del sessions[next(iter(sessions))]
        sessions[session] = names
    return names


def completions(text, names):
    """What the name, or the attribute, at the end of text can become."""
    start = len(text)
    while start and (text[start - 1].isalnum() or text[start - 1] in "_."):
        start -= 1
    path, dot, begin = text[start:].rpartition(".")
    known = set()
    if dot:
        obj, builtins = None, sys.modules["builtins"].__dict__
        for i, part in enumerate(path.split(".")):
            if i:
                obj = getattr(obj, part)
            else:
                obj = names[part] if part in names else builtins[part]
        known.update(dir(obj))
    else:
        known.update(names, dir(sys.modules["builtins"]), KEYWORDS)
    return sorted(path + dot + name for name in known
                  if isinstance(name, str) and name.startswith(begin) and (begin or not name.startswith("_")))


def describe(source):
    """The exception being handled, as the interpreter would print it, without our own frames."""
    kind, value, trace = sys.exc_info()
    while trace is not None and trace.tb_frame.f_code.co_filename != NAME:
        trace = trace.tb_next
    try:
        import linecache
        import traceback

        linecache.cache[NAME] = len(source), None, source.splitlines(True), NAME
        try:
            return "".join(traceback.format_exception(kind, value, trace))
        finally:
            linecache.cache.pop(NAME, None)
    except BaseException:
        try:
            return "%s: %s (its traceback could not be formatted)\n" % (kind.__name__, value)
        except BaseException:
            return "%s: (its traceback could not be formatted)\n" % kind.__name__


def answer(limit, ok, error, value, out, more=""):
    fields, room = [], limit - 256 - len(more)
    # Errors first: they are what must not be cut. Each may use what the ones before have left.
    for name, text in (("error", error), ("value", value), ("out", out)):
        coded = "null" if text is None else quote(text, room)
        room -= len(coded)
        fields.append('"%s":%s' % (name, coded))
    return ('{"ok":%s,%s%s}' % ("true" if ok else "false", more, ",".join(fields))).encode("ascii")


def name_list(names, limit):
    coded, room = [], limit - 512
    for name in names:
        item = quote(name, room)
        room -= len(item) + 1
        if room < 0:
            break
        coded.append(item)
    return '"names":[%s],' % ",".join(coded)


def threads_known():
    """What threading knows of this thread: None when it is not imported. Importing it is left to the program."""
    threading = sys.modules.get("threading")
    active = getattr(threading, "_active", None)
    return None if active is None else active.get(threading.get_ident())


def forget_thread(before):
    """Takes out of threading what the evaluated code made it keep of this thread, which ends soon: up to 3.12 the object
    that current_thread() (also logging's) makes for a thread it does not know, and the role of main thread when it was
    imported here first."""
    threading = sys.modules.get("threading")
    known = threads_known()
    try:
        if known is None or known is before:
            return
        if known is threading.main_thread():
            oldest = list(sys._current_frames())[-1]  # listed last
            if oldest == known.ident:  # a debugger runs us in the main thread
                return
            del threading._active[known.ident]
            known._ident = oldest
            if hasattr(known, "_native_id"):
                known._native_id = posix.getpid()
            if hasattr(known, "_tstate_lock"):  # the one it has is released when this thread ends
                known._tstate_lock = _thread.allocate_lock()
                known._tstate_lock.acquire()
            threading._active[known._ident] = known
        elif isinstance(known, threading._DummyThread):
            del threading._active[threading.get_ident()]
    except Exception:  # a threading of the program's own
        pass


def under_way(ident, limit):
    """Takes this thread's output; returns where it goes. leave() ends that."""
    parts, saved = [], [getattr(sys, name, None) for name in STREAMS]  # none yet: it is starting
    mine = [(NoInput if name == "stdin" else Capture)(was, ident, parts, limit) for name, was in zip(STREAMS, saved)]
    if saved[2] is None:
        del mine[2]
    running[ident] = saved, mine, parts, threads_known()
    for name, capture in zip(STREAMS, mine):
        setattr(sys, name, capture)
    return parts


def leave(ident):
    """Gives the output back, once. Returns what there was, or None when it was given back already."""
    entry = running.get(ident)
    if entry is None:
        return None
    saved, mine, parts, before = entry
    forget_thread(before)
    for name, was, capture in zip(STREAMS, saved, mine):
        if getattr(sys, name, None) is capture:
            setattr(sys, name, below(was))
        # From now on it passes everything on: the thread's number will be another's, and it may be in use still.
        capture.end()
    capture = None  # let_go() counts the references
    let_go(mine)
    let_go(ended)
    ended.extend(mine)
    del ended[:-MOST_ENDED]
    running.pop(ident, None)
    return "".join(parts)


def seen(function, *args):
    """A profiler of the program's is told what all threads do, from 3.12 on, and mixes them up (cProfile). So it is not told of this one
    (gil.c). Where there is none, what was asked for is traced: it may be a profiler itself."""
    tools = getattr(sys, "monitoring", None)
    if tools is None or any(map(tools.get_events, range(6))):
        return function(*args)
    return sys.call_tracing(function, args)


def evaluate(options, source, limit):
    ok, value, error, more, words = False, None, None, "", [""]
    ident = _thread.get_ident()
    parts = under_way(ident, limit)
    try:
        source = source.decode("utf-8")
        words = options.decode().split()
        options = dict(word.partition("=")[::2] for word in words[1:])
        if words[0] == "end":
            sessions.pop(options.get("session"), None)
            last_values.pop(options.get("session"), None)
        elif words[0] == "output":
            unheard = [running[thread][2] for thread in running if thread != ident][-1:]
            parts.extend("".join(printed) for printed in unheard)
            for printed in unheard:
                del printed[:]
        elif words[0] == "complete":
            more = name_list(completions(source, namespace(options)), limit)
        elif words[0] == "input" and incomplete(source):
            more = '"more":true,'
        else:
            names = namespace(options)
            if "deadline" in options:
                result = run_limited(source, names, float(options["deadline"]))
            elif words[0] == "input":
                result = seen(run_session, source, names, options["session"])
            else:
                result = seen(run, source, names)
            if result is not None:
                value = repr(result)
        ok = words[0] != "output"
    except BaseException as e:
        error = describe(source)
        if isinstance(e, SystemExit) and words[0] == "input":
            more = '"exit":true,'
    leave(ident)
    return answer(limit, ok, error, value, "".join(parts), more)


def swallow():
    """Until an interruption that was sent strikes."""
    while True:
        pass


def recover(limit):
    """evaluate() was broken off."""
    return answer(limit, False, "KeyboardInterrupt\n", None, leave(_thread.get_ident()))
