# SPDX-License-Identifier: Apache-2.0
"""probing.open() of traces on web servers and object stores: read by ranges, and no more of them than the question needs, as the server
counts."""
import email.utils
import http.server
import itertools
import json
import os
import pathlib
import re
import subprocess
import threading
import time

import pytest

from engine_helpers import engine, need  # noqa: F401


class Ranges(http.server.BaseHTTPRequestHandler):
    """Serves GET and HEAD for the files of a folder, with ranges, and counts how much of each it sends."""
    protocol_version = "HTTP/1.1"

    def date_time_string(self, timestamp=None):
        return super().date_time_string((time.time() if timestamp is None else timestamp) + self.server.ahead)

    def do_HEAD(self):
        self.do_GET(body=False)

    def do_GET(self, body=True):
        if self.server.answers and next(self.server.answers, None):
            self.send_response(self.server.answer, "so it says")
            for name, value in (self.server.headers() if self.server.headers else {}).items():
                self.send_header(name, value)
            self.server.refused += 1
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path = self.server.folder / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        data, code = path.read_bytes(), 200
        asked = re.match(r"bytes=(\d+)-(\d*)$", self.headers.get("Range", ""))
        if asked and self.server.ranges:
            start, end = int(asked.group(1)), int(asked.group(2) or len(data) - 1)
            whole, data, code = len(data), data[start:end + 1], 206
        fail = body and self.server.fail_from is not None and self.server.sent >= self.server.fail_from
        self.send_response(503 if fail else code)
        if code == 206:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (start, start + len(data) - 1, whole))
        self.send_header("Accept-Ranges", "bytes" if self.server.ranges else "none")
        self.send_header("Content-Length", "0" if fail else str(len(data)))
        self.end_headers()
        if body and not fail:
            with self.server.counting:  # counted before the client can have received everything and ask for the count
                self.server.sent += len(data)
            self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path):
    it = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
    it.folder, it.sent, it.ranges, it.fail_from = tmp_path / "served", 0, True, None
    it.answers, it.answer = None, 0  # which requests are answered with this code
    it.headers, it.refused = None, 0  # what these answers have besides; how many there were
    it.ahead = 0  # seconds by which the server's clock is ahead
    it.counting = threading.Lock()
    it.folder.mkdir()
    thread = threading.Thread(target=it.serve_forever, daemon=True)
    thread.start()
    it.url = "http://127.0.0.1:%d/" % it.server_address[1]
    yield it
    it.shutdown()
    thread.join()
    it.server_close()


def make_trace(build, run, folder):
    """Makes one rank's trace of some minutes, in blocks as `probing pack` makes them."""
    run([build.root / "tests/fleet/probing-fleet", "--quiet", "--out", folder / "f", "--ranks", "1", "--nodes", "1", "--minutes", "12", "--hz", "300",
         "--threads", "4"])
    trace, = (folder / "f").glob("node*/*.zst")
    run([build.tool("probing"), "pack", "-q", "-l", "3", "-o", folder / "packed.zst", trace])
    return folder / "packed.zst"


QUESTION = """
import json, probing
def last_seconds(t, first, last):
    end = max(r[0] for r in t.table("traces").select("last").rows())
    part = t.samples.range((end - first * 10 ** 9) / 1e9, (end - last * 10 ** 9) / 1e9).select("timestamp", "tid", "func", "count")
    return sorted(map(repr, part.rows()))
t = probing.open(%r, **%r)
part = last_seconds(t, 20, 10)
f, = t.remote or [None]
out = {"part": part, "problems": t.problems}
if f:
    out.update(fetched=f.fetched, requests=f.requests, size=f.size)
print(json.dumps(out))
"""


@pytest.mark.limit(600)
def test_a_question_of_ten_seconds_over_http(engine, build, run, server):  # noqa: F811
    trace = make_trace(build, run, server.folder)
    want = json.loads(engine(QUESTION % (str(trace), {}), "fsspec", "aiohttp"))
    assert len(want["part"]) > 1000
    got = json.loads(engine(QUESTION % (server.url + "packed.zst", {}), "fsspec", "aiohttp"))
    size = trace.stat().st_size
    assert got["part"] == want["part"] and got["problems"] == [] and got["size"] == size
    assert got["fetched"] == server.sent < 0.35 * size, (got["fetched"], server.sent, size, got["requests"])
    server.sent = 0
    whole = engine("import probing; t = probing.open(%r); print(len(list(t.samples.select('func').rows())))" % (server.url + "packed.zst"), "fsspec")
    local = engine("import probing; t = probing.open(%r); print(len(list(t.samples.select('func').rows())))" % str(trace), "fsspec")
    assert whole == local and 0.5 * size < server.sent <= 1.2 * size


def test_a_url_that_is_open_twice(engine):  # noqa: F811
    """What one of the two is done with the other still has."""
    golden = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/basic.zst"
    code = """
import fsspec, gc, probing
fsspec.filesystem("memory").pipe_file("/basic.zst", open(%r, "rb").read())
first, second = probing.open("memory://basic.zst"), probing.open("memory://basic.zst")
rows = len(list(second.samples.select("func").rows()))
del second
gc.collect()
print(rows, len(list(first.samples.select("func").rows())))
""" % str(golden)
    rows, again = engine(code, "fsspec").split()
    assert rows == again != "0"


def test_what_is_made_from_copies_of_urls(engine):  # noqa: F811
    """Views and pictures are made from copies of the remote files; problems are said of the URLs."""
    golden = pathlib.Path(__file__).resolve().parents[2] / "tests/golden"
    code = """
import fsspec, json, probing
store = fsspec.filesystem("memory")
for name in ("basic", "damaged"):
    store.pipe_file("/%%s.zst" %% name, open("%s/%%s.zst" %% name, "rb").read())
store.pipe_file("/text.zst", b"no trace")
both = probing.open("memory://basic.zst", "memory://damaged.zst", "memory://text.zst")
rows = list(both.sql("SELECT count(*) FROM samples").rows())
print(json.dumps([rows, both.problems, probing.open("memory://basic.zst").flamegraph("--python").svg[:5000]]))
""" % golden
    rows, problems, svg = json.loads(engine(code, "fsspec"))
    assert rows[0][0] > 0 and "<svg" in svg
    assert len(problems) == 2 and "memory:///damaged.zst: the same recording as memory:///basic.zst: counted once" in problems[0], problems
    assert "memory:///text.zst: not a trace" in problems[1], problems


def test_blocks_come_once_and_several_at_a_time(engine, build, run, server):  # noqa: F811
    """A trace as it was recorded, in small blocks, read completely: one request for each hint, and few for everything else."""
    run([build.root / "tests/fleet/probing-fleet", "--quiet", "--out", server.folder / "f", "--ranks", "1", "--nodes", "1", "--minutes", "1", "--hz", "200",
         "--threads", "16"])
    trace, = (server.folder / "f").glob("node*/*.zst")
    (server.folder / "small.zst").write_bytes(trace.read_bytes())
    code = """
import probing
t = probing.open(%r)
print(len(list(t.samples.select("func").rows())), t.remote[0].fetched / t.remote[0].size, t.remote[0].requests / t.table("traces").pandas().blocks[0])
"""
    rows, share, requests = map(float, engine(code % (server.url + "small.zst"), "fsspec", "aiohttp", "pandas").split())
    assert rows > 100000 and share < 1.2 and requests < 1.6, (share, requests)


def test_joined_traces_come_once(engine, build, run, server):  # noqa: F811
    """A file of the traces of a job, as `probing pack` joins them: each has its own table, and blocks of names that each pass reads are kept."""
    run([build.root / "tests/fleet/probing-fleet", "--quiet", "--out", server.folder / "j", "--ranks", "12", "--nodes", "1", "--minutes", "0.3"])
    run([build.tool("probing"), "pack", "-q", "-o", server.folder / "joined.zst", server.folder / "j"])
    code = """
import probing
t, local = probing.open(%r), probing.open(%r)
n = [[len(list(of.samples.rank(3).rows())), len(list(of.samples.rows())), len(list(of.cpu.rows()))] for of in (t, local)]
print(n[0] == n[1], n[0][0], t.remote[0].fetched / t.remote[0].size, t.remote[0].requests / len(list(t.table("traces").rows())))
"""
    same, rows, share, requests = engine(code % (server.url + "joined.zst", str(server.folder / "joined.zst")), "fsspec", "aiohttp").split()
    assert same == "True" and int(rows) > 10 and float(share) < 1.4 and float(requests) < 10, (rows, share, requests)


def test_ctrl_c_while_a_server_is_waited_for(engine):  # noqa: F811
    """It is raised; the bytes that did not come are not taken for damage, and the next question is answered."""
    said = engine("""
import fsspec, probing
fsspec.filesystem("memory").pipe("/a.zst", open(%r, "rb").read())
t = probing.open("memory://a.zst")
def stop(offset, n):
    raise KeyboardInterrupt
t.remote[0].read = stop
for part in (t.samples, t.cpu, t.traces):
    try:
        print(len(list(part.rows())), t.problems)
    except KeyboardInterrupt:
        print("stopped")
del t.remote[0].read
print(len(list(t.samples.rows())), t.problems)
""" % str(pathlib.Path(__file__).parents[1] / "golden" / "basic.zst"), "fsspec")
    assert said.splitlines() == ["stopped"] * 3 + ["44 []"]


@pytest.mark.limit(300)
def test_servers_that_fail(engine, run, build, server):  # noqa: F811
    """A server without the file, one without ranges, and one that goes away: one clear line, and no trace is called damaged."""
    trace = make_trace(build, run, server.folder)
    code = """
import probing
try:
    t = probing.open(%r)
    print(len(list(t.samples.rows())), t.problems)
except (probing.TraceError, FileNotFoundError) as error:
    print(type(error).__name__, error)
"""
    assert "FileNotFoundError" in engine(code % (server.url + "other.zst"), "fsspec", "aiohttp")
    (server.folder / "text.zst").write_text("no trace at all " * 100)
    assert engine(code % (server.url + "text.zst"), "fsspec", "aiohttp").startswith("TraceError")
    server.fail_from = server.sent + trace.stat().st_size // 3
    said = engine(code % (server.url + "packed.zst"), "fsspec", "aiohttp")
    assert said.startswith("TraceError") and "cannot read" in said and "damaged" not in said
    server.fail_from, server.ranges = None, False
    said = engine(code % (server.url + "packed.zst"), "fsspec", "aiohttp")
    assert said.startswith("TraceError") and "ranges" in said, said
    bare = build.share / "python"
    said = subprocess.run(["/usr/bin/python3", "-S", "-c", code % (server.url + "x.zst")], stdout=subprocess.PIPE, universal_newlines=True,
                          env=dict(os.environ, PYTHONPATH=str(bare))).stdout
    assert said.startswith("TraceError") and "pip install fsspec" in said


ASK = ("import probing\ntry:\n    print(len(list(probing.open(%r).samples.rows())))\n"
       "except (probing.TraceError, OSError) as error:\n    print(type(error).__name__, error)\n")


@pytest.mark.parametrize("code", [403, 503] + [pytest.param(code, marks=pytest.mark.slow) for code in (401, 429, 500)])
def test_what_a_server_answers_is_said(engine, server, code):  # noqa: F811
    """fsspec calls every refusal to tell the size of a file "not found". A user who may not read it, or must come back later, is told so; and who only has to
    wait for a moment gets the rows."""
    (server.folder / "a.zst").write_bytes((pathlib.Path(__file__).parents[1] / "golden" / "basic.zst").read_bytes())
    ask = ASK % (server.url + "a.zst")
    server.answer, server.answers = code, itertools.repeat(True)
    assert re.match("TraceError http://.*a.zst: the server answers %d so it says\n$" % code, engine(ask, "fsspec", "aiohttp"))
    server.answers = itertools.chain([False, False], itertools.repeat(True))  # it told the size, by HEAD or GET
    said = engine(ask, "fsspec", "aiohttp")
    assert "the server answers %d so it says" % code in said or "44" in said, said
    server.answers = iter([True, True])  # the first try: HEAD, GET
    said = engine(ask, "fsspec", "aiohttp")
    assert said == "44\n" if code in (429, 500, 503) else "the server answers %d" % code in said, said


@pytest.mark.parametrize("code, form", [(429, "seconds"), (503, "date")])
def test_a_server_says_when_to_come_back(engine, server, code, form):  # noqa: F811
    """It refuses everything until four seconds after the first request, and says so by Retry-After: who waits as long gets the rows. The date is one of the
    server's clock, which is another than ours."""
    (server.folder / "a.zst").write_bytes((pathlib.Path(__file__).parents[1] / "golden" / "basic.zst").read_bytes())
    first = []

    def not_yet():
        first.append(time.monotonic())
        return time.monotonic() < first[0] + 4

    def headers():
        if form == "seconds":
            return {"Retry-After": "4"}
        return {"Retry-After": email.utils.formatdate(time.time() + server.ahead + 5, usegmt=True)}  # in whole seconds, as is Date

    server.ahead = -86400
    server.headers, server.answer, server.answers = headers, code, iter(not_yet, None)
    assert engine(ASK % (server.url + "a.zst"), "fsspec", "aiohttp") == "44\n"
    # HEAD and GET, once; on a busy machine GET may come when the four seconds are over.
    assert server.refused == sum(when < first[0] + 4 for when in first[:2]) > 0, first


@pytest.mark.parametrize("words, tries, says", [("3600", 1, ", and asks to wait for 3600 s"), ("in a while", 3, ""), ("-5", 3, ""),
                                                ("9" * 40, 1, ", and asks to wait for " + "9" * 40)])
def test_a_server_that_asks_for_too_long_a_pause_is_not_asked_again(engine, server, words, tries, says):  # noqa: F811
    """The user is told what it said; words that mean no time change nothing."""
    server.headers, server.answer, server.answers = lambda: {"Retry-After": words}, 503, itertools.repeat(True)
    said = engine(ASK % (server.url + "a.zst"), "fsspec", "aiohttp")
    assert "the server answers 503 so it says" + says in said and ("asks" in said) == bool(says), said
    assert server.refused == 2 * tries


@pytest.mark.slow
def test_an_object_store(engine, build, run, tmp_path):  # noqa: F811
    """s3:// of a moto server: two machines' traces, named by a pattern and aligned; ten seconds of a large one."""
    python = need("moto", "s3fs", "boto3")
    trace = make_trace(build, run, tmp_path)
    run([build.root / "tests/fleet/probing-fleet", "--quiet", "--out", tmp_path / "two", "--ranks", "2", "--nodes", "2", "--minutes", "0.2", "--hz", "20",
         "--offset", "1"])
    moto = subprocess.Popen([python, "-u", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            universal_newlines=True)
    try:
        url = next(m.group(0) for m in (re.search(r"http://127\.0\.0\.1:\d+", line) for line in moto.stdout) if m)
        threading.Thread(target=moto.stdout.read, daemon=True).start()
        store = {"storage_options": {"key": "k", "secret": "s", "endpoint_url": url}}
        files = {str(trace): "bucket/one/packed.zst"}
        files.update((str(p), "bucket/two/" + p.name) for p in sorted((tmp_path / "two").glob("node*/*.zst")))
        engine("import fsspec\nfs = fsspec.filesystem('s3', **%r)\nfs.mkdir('bucket')\nfor a, b in %r.items():\n    fs.put(a, b)\n" % (
            store["storage_options"], files), "s3fs")
        want = json.loads(engine(QUESTION % (str(trace), {}), "s3fs"))
        got = json.loads(engine(QUESTION % ("s3://bucket/one", store), "s3fs"))
        assert got["part"] == want["part"] and got["fetched"] < 0.35 * trace.stat().st_size, (got["fetched"], trace.stat().st_size)
        both = """
import glob, json, probing
a, b = probing.open("s3://bucket/two/*.zst", **%r), probing.open(*sorted(glob.glob(%r)))
def rows(t):
    return sorted(map(repr, t.samples.select("rank", "timestamp", "func").rows()))
print(json.dumps([rows(a) == rows(b), len(rows(a)), [r[1:3] for r in a.clocks.rows()], a.sql("SELECT count(*) FROM samples").pandas().iloc[0, 0].item()]))
""" % (store, str(tmp_path / "two" / "node*" / "*.zst"))
        same, n, clocks, views = json.loads(engine(both, "s3fs", "pandas"))
        assert same and n == views > 100 and [c[1] for c in clocks] == ["collectives"] * 2
    finally:
        moto.kill()
        moto.wait()
