# SPDX-License-Identifier: Apache-2.0
"""Runs inside the target for `probing -t PID watch` (tools/cmd_watch.c): reads values each time a line runs, and stops nobody.

The tool evaluates one call after the other (agent/python/eval.py); each prints a JSON object, {"error": TEXT} when it cannot:

  begin(where, expressions, count, seconds, recorded)   finds the line and makes a pipe: {"id", "read": descriptor, "where"}
  start(id)    the tool has opened the pipe by /proc/PID/fd: from now on, lines of JSON come through it
  resume(id)   after {"pause": 1} came: the line is watched again
  end(id)      nothing is left behind: {"hits", "shown", "lost", "pauses"}; hits: while it was watched

A line through the pipe is {"t": Unix time, "tid", "function", "values": {expression: value}, "errors": {expression: text}},
{"pause": 1}, or {"end": why}. With sys.monitoring (3.12) only the code objects that hold the line are instrumented, and of these all other
lines switch themselves off after one event. Values are read for at most a twentieth of the time, DEBT seconds ahead; what runs more often
than that is left out and counted, and after SKIPS of these in a row it is not watched until the tool says resume, which it does ten times a second.
When the tool is gone, the next line through the pipe ends the watch.
"""
import _ast
import _signal
import _thread
import json
import os
import sys
import time
import types

SHARE = 20  # values are read for one part in so many of the time
DEBT = 0.05
SKIPS = 1000
LINE_MAX = 4000  # below PIPE_BUF: lines of several threads do not mix
TEXT_MAX = 300
MINE = "_probing_watch"
OPTIMIZED = 1  # CO_OPTIMIZED: a function's code, whose locals are no namespace


class Refused(Exception):
    pass


def codes_of_functions(function, seen):
    """All code objects behind a function, a class or a wrapper of these."""
    todo = [function]
    while todo:
        it = todo.pop()
        if id(it) in seen:
            continue
        seen[id(it)] = it
        if isinstance(it, types.CodeType):
            yield it
            todo.extend(c for c in it.co_consts if isinstance(c, types.CodeType))
        elif isinstance(it, types.FunctionType):
            todo.append(it.__code__)
            for cell in it.__closure__ or ():
                try:
                    content = cell.cell_contents
                except ValueError:
                    continue
                if isinstance(content, (types.FunctionType, types.MethodType)):
                    todo.append(content)
            todo.append(it.__dict__.get("__wrapped__"))
        elif isinstance(it, (staticmethod, classmethod, types.MethodType)):
            todo.append(it.__func__)
        elif isinstance(it, property):
            todo.extend((it.fget, it.fset, it.fdel))
        elif isinstance(it, type):
            todo.extend(vars(it).values())


def is_file(path, asked):
    while asked.startswith("./"):
        asked = asked[2:]
    return path == asked or path.endswith("/" + asked)


def code_objects(asked, line):
    """Those of the file, wherever they can be found without a walk over all objects; by one if none of these has the line."""
    import gc

    seen, found = {}, []
    frames = list(sys._current_frames().values())
    while frames:
        frame = frames.pop()
        if is_file(frame.f_code.co_filename, asked):
            found.extend(codes_of_functions(frame.f_code, seen))
        if frame.f_back is not None:
            frames.append(frame.f_back)
    for module in list(sys.modules.values()):
        if is_file(getattr(module, "__file__", None) or "", asked):
            for value in list(vars(module).values()):
                found.extend(c for c in codes_of_functions(value, seen) if is_file(c.co_filename, asked))
    if not any(line in lines_of(c) for c in found):  # of a cache, a registry, a partial(), ...
        for it in gc.get_objects():
            if type(it) is types.FunctionType and is_file(it.__code__.co_filename, asked):
                found.extend(codes_of_functions(it, seen))
    return found


def lines_of(code):
    """Those that have an event: a function's first line is its def."""
    lines = {line for _, _, line in code.co_lines() if line is not None}
    if code.co_flags & OPTIMIZED and len(lines) > 1:
        lines.discard(code.co_firstlineno)
    return lines


def find(where):
    asked, _, line = where.rpartition(":")
    if not asked or not line.isdigit():
        raise Refused("where? FILE:LINE, as in train.py:42")
    line = int(line)
    codes = code_objects(asked, line)
    if not codes:
        raise Refused("no code of a file %s is loaded in the process (is it imported yet?)" % asked)
    files = sorted({c.co_filename for c in codes})
    if len(files) > 1:
        raise Refused("%s is %s: say more of the path" % (asked, " or ".join(files[:4])))
    defined = [c for c in codes if c.co_flags & OPTIMIZED and c.co_firstlineno == line and line not in lines_of(c)]
    if defined:
        first = min(lines_of(defined[0]), default=line)
        raise Refused("line %d of %s is where %s begins: the first that it runs is %d" % (line, files[0], defined[0].co_qualname, first))
    here = [c for c in codes if line in lines_of(c)]
    if not here:
        known = sorted(set().union(*(lines_of(c) for c in codes)))
        near = sorted(sorted(known, key=lambda n: abs(n - line))[:4])
        raise Refused("nothing runs at line %d of %s (lines nearby that do: %s)" % (line, files[0], ", ".join(map(str, near))))
    return here, line, files[0]


def parts_of(text):
    """(source, compiled) of each expression of a list of them."""
    if not text.strip():
        return []
    try:
        tree = compile("(%s\n,)" % text, "<watch>", "eval", _ast.PyCF_ONLY_AST).body.elts
        if len(tree) == 1 and isinstance(tree[0], _ast.Tuple) and text.strip()[:1] != "(":
            tree = tree[0].elts
        import ast

        return [(ast.unparse(e), compile(_ast.Expression(e), "<watch>", "eval")) for e in tree]
    except SyntaxError as e:
        raise Refused("not an expression: %s (%s)" % (text, e.msg))


def cut(text):
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which is no JSON
        text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "...[cut]"


def shown(value):
    """As JSON has it, or repr."""
    if value is None or type(value) in (bool, int) and abs(value) < 1 << 53:
        return value
    if type(value) is float and value - value == 0:
        return value
    if type(value) is str:
        return cut(value)
    if isinstance(value, (list, tuple, dict, set, frozenset)) and len(value) > 20:
        import reprlib

        small = reprlib.Repr()
        small.maxlist = small.maxtuple = small.maxdict = small.maxset = small.maxfrozenset = 20
        return cut(small.repr(value))
    return cut(repr(value))


def described(e):
    """The exception's text, unless that cannot be made either."""
    try:
        return "%s: %s" % (type(e).__name__, e)
    except Exception:
        return type(e).__name__


def of_signal(e):
    """Whether a signal's handler raised it, which ran in the midst of our code: it is meant for the program."""
    if isinstance(e, KeyboardInterrupt):
        return True
    handlers = [_signal.getsignal(n) for n in range(1, _signal.NSIG)]
    codes = [getattr(getattr(h, "__func__", h), "__code__", None) for h in handlers if callable(h)]
    at = e.__traceback__
    while at is not None:
        if at.tb_frame.f_code in codes:
            return True
        at = at.tb_next
    return False


class Watch:
    def __init__(self, where, expressions, count, seconds, recorded):
        self.expressions = parts_of(expressions)
        self.codes, self.line, self.file = find(where)
        self.count, self.seconds, self.pid = count or float("inf"), seconds or float("inf"), os.getpid()
        self.hits = self.values = self.lost = self.skips = self.pauses = 0
        self.debt, self.until = 0.0, None
        self.last = self.touched = time.monotonic()
        self.agent = agent() if recorded else None
        self.name = "watch %s:%d" % (os.path.basename(self.file), self.line)
        self.read, self.write = os.pipe()
        os.set_blocking(self.write, False)

    def names(self, frame):
        """Globals and locals, as they are now, in a dictionary of its own."""
        names = dict(frame.f_globals)
        local = frame.f_locals
        names.update(local)
        if sys.version_info < (3, 13) and frame.f_code.co_flags & OPTIMIZED and sys.getrefcount(local) <= 3:
            local.clear()  # the frame keeps this dictionary, and with it tensors, until it ends; the program never saw it
        return names

    def run(self, frame):
        self.hits += 1
        if os.getpid() != self.pid:
            return  # a forked child: the tool asked about its parent
        now = time.monotonic()
        if now >= self.until:
            return self.end("the time is over")
        self.debt = max(0.0, self.debt - (now - self.last) / SHARE)
        self.last = now
        if self.debt > DEBT:
            self.lost += 1
            self.skips += 1
            if self.skips >= SKIPS and self.send({"pause": 1}):
                self.pauses += 1
                self.set_events(False)
            return
        self.skips = 0
        values, errors, raw, names = {}, {}, {}, self.names(frame)
        for source, code in self.expressions:
            try:
                value = eval(code, names)
                values[source] = shown(value)
                raw[source] = value
            except BaseException as e:  # asyncio's CancelledError as well: the program's own must not seem to come from its line
                if of_signal(e):
                    raise
                errors[source] = cut(described(e))
        del names
        line = {"t": time.time(), "tid": _thread.get_native_id(), "function": frame.f_code.co_qualname, "values": values}
        if errors:
            line["errors"] = errors
        if self.send(line):
            self.values += 1
            if self.agent is not None:
                self.agent.event(self.name, **raw)
        self.debt += time.monotonic() - now
        if self.values >= self.count:
            self.end("seen %d times" % self.values)

    def send(self, line):
        """True when it is on its way. SIGPIPE is blocked meanwhile: a program may have it kill, and the tool may be gone."""
        text = json.dumps(line)
        if len(text) > LINE_MAX:
            line["values"], line["errors"] = {}, {"": "the values are longer than %d bytes" % LINE_MAX}
            text = json.dumps(line)
        before, gone, sent = _signal.pthread_sigmask(_signal.SIG_BLOCK, ()), False, True
        try:
            _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGPIPE,))
            os.write(self.write, text.encode() + b"\n")
        except BlockingIOError:
            self.lost += 1
            sent = False
        except OSError:
            _signal.sigtimedwait((_signal.SIGPIPE,), 0)
            gone, sent = True, False
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
        if gone:
            self.end(None)
        return sent

    def start(self):
        self.close("read")
        self.until = time.monotonic() + self.seconds
        claim()
        for code in self.codes:
            watched.setdefault((id(code), self.line), []).append(self)
        self.set_events(True)

    def event_of(self, code):
        """Of a function that is one line, its start: where it ran before it was watched, CPython 3.13 has no event for that line."""
        alone = code.co_firstlineno == self.line and lines_of(code) == {self.line}
        return sys.monitoring.events.PY_START if alone and code.co_flags & OPTIMIZED else sys.monitoring.events.LINE

    def set_events(self, on):
        """Off for a code object only where no other watch wants it; off and on again brings back lines that were disabled."""
        for code in self.codes:
            others = [w for (ident, _), ws in watched.items() if ident == id(code) for w in ws if w is not self]
            if on or not others:
                sys.monitoring.set_local_events(tool, code, 0)
                sys.monitoring.set_local_events(tool, code, self.event_of(code) if on else 0)

    def close(self, which):
        if getattr(self, which) >= 0:
            fd = getattr(self, which)
            setattr(self, which, -1)
            os.close(fd)

    def end(self, why):
        """From within an event as well. Twice is once. `why` goes to the tool; None: it is gone."""
        if self.write < 0:
            return
        if self.until is not None:
            for code in self.codes:
                here = watched.get((id(code), self.line), [])
                if self in here:
                    here.remove(self)
                if not here:
                    watched.pop((id(code), self.line), None)
            self.set_events(False)
        if why:
            self.send({"end": why})
        self.close("read")
        self.close("write")
        self.touched = time.monotonic()
        if why is None:
            forget(self)


watches = {}  # id -> Watch
watched = {}  # (id of a code object, line) -> watches, which keep the code object
tool = None  # our number with sys.monitoring, while there is anything to watch


def on_line(code, line):
    return seen(code, line, sys._getframe(1))


def on_start(code, offset):
    return seen(code, code.co_firstlineno, sys._getframe(1))


def seen(code, line, frame):
    here = watched.get((id(code), line))
    if not here:
        return sys.monitoring.DISABLE
    for watch in list(here):
        try:
            watch.run(frame)
        except BaseException as e:  # no memory, no stack left: never the program's trouble
            watch.lost += 1
            if of_signal(e):
                raise


def callbacks(line, start):
    sys.monitoring.register_callback(tool, sys.monitoring.events.LINE, line)
    sys.monitoring.register_callback(tool, sys.monitoring.events.PY_START, start)


def claim():
    global tool
    if tool is not None:
        return
    for number in (4, 3, 5, 2, 1, 0):
        if sys.monitoring.get_tool(number) is None:
            sys.monitoring.use_tool_id(number, "probing watch")
            tool = number
            callbacks(on_line, on_start)
            return
    raise Refused("no number of sys.monitoring is free: other tools hold all six")


def forget(watch):
    """The last one takes everything with it."""
    global tool
    for ident in [i for i, w in watches.items() if w is watch]:
        del watches[ident]
    if not watches:
        if tool is not None:
            callbacks(None, None)
            sys.monitoring.free_tool_id(tool)
            tool = None
        sys.modules.pop(MINE, None)


def agent():
    """The agent's own module, to record what was read; None when it cannot be had."""
    try:
        if "_probing" not in sys.modules:
            import _imp
            from importlib.machinery import ExtensionFileLoader, ModuleSpec

            with open("/proc/self/maps", "rb") as maps:
                path = next(os.fsdecode(m[m.index(b"/"):].rstrip()) for m in maps if m.rstrip().endswith(b"/libprobing-agent.so"))
            sys.modules["_probing"] = _imp.create_dynamic(ModuleSpec("_probing", ExtensionFileLoader("_probing", path), origin=path))
        return sys.modules["_probing"]
    except Exception:
        return None


def begin(where, expressions, count, seconds, recorded):
    for old in list(watches.values()):  # whose tool died before it came to start(), or to end()
        if (old.until is None or old.write < 0) and time.monotonic() - old.touched > 30:
            old.end(None)
            forget(old)
    sys.modules[MINE] = module  # again, where the last one has just gone
    watch = Watch(where, expressions, count, seconds, recorded)
    ident = 1 + max(watches, default=0)
    watches[ident] = watch
    return {"id": ident, "read": watch.read, "recorded": watch.agent is not None,
            "where": "%s (%s:%d)" % (watch.codes[0].co_qualname, watch.file, watch.line)}


def start(ident):
    try:
        watches[ident].start()
    except Refused:
        watches[ident].end(None)
        raise
    return {}


def resume(ident):
    if watches[ident].write >= 0:
        watches[ident].skips = 0
        watches[ident].set_events(True)
    return {}


def end(ident):
    watch = watches[ident]
    watch.end("asked")
    forget(watch)
    return {"hits": watch.hits, "shown": watch.values, "lost": watch.lost, "pauses": watch.pauses}


def call(name, *args):
    """What the tool evaluates."""
    try:
        answer = globals()[name](*args)
    except KeyError:
        answer = {"error": "the watch has ended"}
    except Refused as e:
        answer = {"error": str(e)}
    finally:
        if not watches:
            sys.modules.pop(MINE, None)
    print(json.dumps(answer))


module = types.ModuleType(MINE)
module.call = call
