# SPDX-License-Identifier: Apache-2.0
"""Reads traces of object stores and web servers (s3://, gs://, https://, ...) by ranges, through fsspec (pip install fsspec).

The C reader asks for bytes by offset (converter/source.h). A closed trace ends with a table of its frames, in a file of joined ones each. The table says where the hints are, which
tell what is in which block; all hints are fetched together. Of the blocks, only those that a question needs are fetched. If blocks are
small (a recording as it was written has one each second or so), hints that are near each other come in one piece, which may be the whole file. So
pack a trace of which only parts will be read (`probing pack` makes blocks of up to 1 MiB).
"""
import bisect
import collections
import ctypes
import email.utils
import errno
import itertools
import math
import os
import struct
import threading
import time
import weakref

from probing import TraceError, _arrow

HINT = 68
NEAR = 16 << 10  # bytes between two pieces that cost less than a request more
PIECE = 8 << 20
TAIL = 64 << 10
TABLE = 4 << 10  # bytes of the end of a trace that is not the file's last: a table of 500 blocks
AHEAD = 16 << 10
MOST_AHEAD = 1 << 20  # bytes, of who reads block after block
TRIES = 3
PAUSE = 0.3  # seconds before the second try; thrice that before the third; or as many as the server says (Retry-After, with 429 and 503)
KEEP = 32 << 20  # bytes of blocks that are kept, of all files: each pass over a trace reads the blocks of names again
LONGEST = 30  # seconds that are waited for a server; one that says more is not asked again

_files = {}  # by URL, by which C knows them: weak references to the Files of that URL, of which several may be open
_callbacks = []


def is_remote(path):
    head, mark, _ = path.partition("://")
    return bool(mark) and head.replace("+", "").replace("-", "").replace(".", "").isalnum()


def filesystem(url, options):
    """Returns (fsspec's file system, path in it)."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise TraceError("%s: fsspec is needed for that (pip install fsspec, and s3fs, gcsfs or aiohttp for the scheme)" % url) from None
    try:
        return url_to_fs(url, **options)
    except (ImportError, ValueError) as error:
        raise TraceError("%s: %s" % (url, error)) from None


def find(url, options):
    """Returns a File for each trace that a URL means: one file, the matches of a pattern, or all traces below a directory."""
    fs, path = filesystem(url, options)
    try:
        if "*" in path or "?" in path:
            names = fs.glob(path)
        elif path.endswith(".zst") or fs.isfile(path):
            names = [path]
        else:
            names = [n for n in fs.find(path) if n.endswith(".zst")]
    except Exception as error:  # each file system has its own
        raise TraceError("%s: %s" % (url, error)) from None
    if not names:
        raise FileNotFoundError(errno.ENOENT, "no trace (*.zst) there", url)
    return [File(fs, name, fs.unstrip_protocol(name)) for name in sorted(names)]


def causes(error):
    """Yields the exception and those that led to it."""
    for _ in range(10):
        if error is not None:
            yield error
            error = error.__cause__ or error.__context__


def said(error):
    """Returns what a server answered, if that is in the exception or in one that led to it: fsspec calls each answer to a question about a file's size
    but a good one "not found". Else the exception's own words."""
    for at in causes(error):
        code = getattr(at, "status", None)
        if isinstance(code, int) and code not in (404, 410):
            wait = asked_to_wait(error)
            return "the server answers %d %s" % (code, getattr(at, "message", "") or "") + (", and asks to wait for %d s" % wait if wait else "")
    return None if isinstance(error, FileNotFoundError) else str(error) or type(error).__name__


def asked_to_wait(error):
    """Returns how many seconds the server asks to wait before the next try (its header Retry-After is a number of seconds or a date); 0: it asks for
    nothing."""
    for at in causes(error):
        response = getattr(at, "response", None)
        if isinstance(response, dict):  # of botocore, which s3fs uses
            headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        else:
            headers = getattr(at, "headers", None) or getattr(response, "headers", None) or {}
        words = headers.get("Retry-After") or headers.get("retry-after")
        if words:
            try:
                return max(0, int(words))
            except ValueError:
                pass
            try:
                now = headers.get("Date") or headers.get("date")  # its clock, if it says what that shows, may be another than ours
                now = email.utils.parsedate_to_datetime(now).timestamp() if now else time.time()
                return max(0, math.ceil(email.utils.parsedate_to_datetime(words).timestamp() - now))
            except (TypeError, ValueError, OverflowError):
                return 0
    return 0


def number(error):
    """Returns what comes nearest to it of the errors that C knows, for the sentence about a read that failed."""
    words = said(error) or ""
    if isinstance(error, FileNotFoundError) and not words:
        return errno.ENOENT
    if isinstance(error, PermissionError) or words.startswith(("the server answers 401", "the server answers 403")):
        return errno.EACCES
    if "Timeout" in type(error).__name__:
        return errno.ETIMEDOUT
    return errno.EREMOTEIO if words.startswith("the server answers") else errno.EIO


def tried(ask):
    """Returns ask(), which is called again after a pause if it fails; not if there is no such file, or none for this user."""
    for left in reversed(range(TRIES)):
        try:
            return ask()
        except Exception as error:
            why, wait = said(error), asked_to_wait(error)
            if not left or why is None or wait > LONGEST or isinstance(error, PermissionError):
                raise
            if why.startswith("the server answers 4") and " 429 " not in why:
                raise
        time.sleep(wait or PAUSE * 3 ** (TRIES - 1 - left))


class Kept(object):
    """The blocks that were read last, of all files: {(file's number, offset): bytes}."""

    def __init__(self):
        self.lock, self.blocks, self.bytes, self.files = threading.Lock(), collections.OrderedDict(), 0, itertools.count()

    def get(self, key, n):
        with self.lock:
            data = self.blocks.get(key, b"")
            if len(data) < n:
                return None
            self.blocks.move_to_end(key)
            return data[:n]

    def put(self, key, data):
        with self.lock:
            self.bytes += len(data) - len(self.blocks.pop(key, b""))
            self.blocks[key] = data
            while self.bytes > KEEP:
                self.bytes -= len(self.blocks.popitem(last=False)[1])


_kept = Kept()


class File(object):
    """A remote file. fetched: number of bytes that were fetched; requests: number of requests that were made."""

    def __init__(self, fs, path, url):
        self.fs, self.path, self.url = fs, path, url
        self.fetched, self.requests = 0, 0
        self.lock, self.number = threading.Lock(), next(_kept.files)
        self.pieces = []  # [(offset, bytes)], ascending: the hints, the end
        self.ends = {}  # {where a block begins: where it ends}, by the table
        self.end, self.run = -1, 0  # of the blocks that were fetched last, and how many bytes they are in a row
        self.last = collections.deque(maxlen=16)  # likewise, what was read last for little pieces
        try:
            self.size = tried(lambda: fs.info(path)).get("size")
        except Exception as error:
            if said(error) is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", url) from None
            raise TraceError("%s: %s" % (url, said(error))) from None
        if self.size is None:
            raise TraceError("%s: the server does not say how large it is" % url)
        self.index()
        _files.setdefault(url, []).append(weakref.ref(self, lambda gone: forget(url, gone)))
        register()

    def ranges(self, wanted):
        """Returns [bytes] of the ranges [(start, end)], which are requested together."""
        got = tried(lambda: self.fs.cat_ranges([self.path] * len(wanted), [s for s, _ in wanted], [e for _, e in wanted], on_error="raise"))
        self.requests += len(wanted)
        self.fetched += sum(map(len, got))
        if any(len(g) != e - s for g, (s, e) in zip(got, wanted)):
            raise OSError(errno.EIO, "fewer bytes than were asked for: the server knows no ranges, or the file was changed")
        return got

    def index(self):
        """Fetches the end of the file and, by means of the table there, all hints. A file of joined traces has a table at the end of each of them."""
        start = max(0, self.size - TAIL)
        try:
            tail, = self.ranges([(start, self.size)]) if self.size else (b"",)
            self.pieces = [(start, tail)]
            hints, end = [], self.size
            while end > 0:
                begin, offsets = self.table(end)
                if begin is None:
                    break
                hints, end = offsets + hints, begin
            pieces = []
            for at in hints:
                if pieces and at - pieces[-1][1] <= NEAR and at + HINT - pieces[-1][0] <= PIECE:
                    pieces[-1][1] = at + HINT
                else:
                    pieces.append([at, min(at + HINT, self.size)])
            pieces = [(s, e) for s, e in pieces if s < start]
            self.pieces = sorted(zip([s for s, _ in pieces], self.ranges(pieces) if pieces else [])) + [(start, tail)]
        except Exception as error:
            raise TraceError("%s: %s" % (self.url, said(error) or "no such file")) from None

    def table(self, end):
        """Returns (where the trace begins that ends at `end`, [offsets of its hint frames]), or (None, None) if it has no table that can be trusted."""
        def bytes_from(begin):
            for at, data in self.pieces:
                if at <= begin and end <= at + len(data):
                    return data[begin - at:end - at]
            return self.ranges([(begin, end)])[0]
        tail = bytes_from(max(0, end - TABLE))
        if len(tail) < 17 or tail[-4:] != b"\xb1\xea\x92\x8f" or tail[-5]:
            return None, None
        n = struct.unpack("<I", tail[-9:-5])[0]
        length = 8 * n + 17
        if length > end:
            return None, None
        tail = tail[-length:] if length <= len(tail) else bytes_from(end - length)
        sizes = list(struct.iter_unpack("<II", tail[8:8 + 8 * n]))
        begin = at = end - length - sum(size for size, _ in sizes)
        if begin < 0:
            return None, None
        offsets = []
        for size, raw in sizes:
            if raw == 0:
                offsets.append(at)
            else:
                self.ends[at] = at + size
            at += size
        return begin, offsets

    def read(self, offset, n):
        end = min(offset + n, self.size)
        with self.lock:
            i = bisect.bisect_right(self.pieces, (offset, b"\xff")) - 1
            for at, data in self.pieces[max(0, i):i + 1] + list(self.last):
                if at <= offset and end <= at + len(data):
                    return data[offset - at:end - at]
            got = _kept.get((self.number, offset), end - offset)
            if got is not None:
                return got
            upto = self.upto(offset, end, n)
            got, = self.ranges([(offset, upto)])
            if upto > end:
                self.last.append((offset, got))
            _kept.put((self.number, offset), got)
            return got[:end - offset]

    def upto(self, offset, end, n):
        """Returns the offset up to which to read. The reader first asks for the beginning of a block: the whole block is then fetched. If the block
        follows the one fetched last, the blocks behind it are fetched, too, as many bytes as were wanted in a row until now."""
        if offset in self.ends and end <= self.ends[offset]:
            self.run = self.run if offset == self.end + HINT else 0
            upto = self.ends[offset]
            while upto - offset < min(self.run, MOST_AHEAD) and upto + HINT in self.ends:
                upto = self.ends[upto + HINT]
            self.run += upto - offset
            self.end = upto
            return upto
        # what a walk over the hints wants next lies behind: without a table a bit more is fetched
        return end if n >= 4096 else min(self.size, offset + AHEAD)


def forget(url, gone):
    left = [f for f in _files.get(url, ()) if f is not gone]
    if left:
        _files[url] = left
    else:
        _files.pop(url, None)


def opened(url):
    """Returns the File of this URL that was opened last, or None."""
    return next(filter(None, (f() for f in reversed(_files.get(os.fsdecode(url), ())))), None)


SIZE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)
READ = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t)


def _size(url):
    file = opened(url)
    return file.size if file else -errno.ENOENT


def _read(url, offset, to, n):
    try:
        data = opened(url).read(offset, n)
        ctypes.memmove(to, data, len(data))
        return len(data)
    except Exception as error:  # nothing may leave a callback
        return -number(error)
    except BaseException as error:  # Ctrl-C, while the server is waited for
        _arrow.raised.append(error)
        return -errno.EINTR


def register():
    if not _callbacks:
        _callbacks.extend((SIZE(_size), READ(_read)))
        library = _arrow.library()
        library.probing_set_remote.argtypes = [SIZE, READ]
        library.probing_set_remote.restype = None
        library.probing_set_remote(*_callbacks)
