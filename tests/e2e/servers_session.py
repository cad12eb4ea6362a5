# SPDX-License-Identifier: Apache-2.0
"""
Runs other people's programs in three ways: bare, recorded at 1 kHz, and injected into again and again. This module starts them, gives them
work, and reads what the recordings saw; the tests are in test_servers.py and the files named like it.

A server gets requests from threads of the test (Load), which check each answer and note the process that gave it. A script works by itself
and prints which processes are to be injected into (compare_script). Programs that are not installed are skipped (tests/README.md says how to
install them).
"""
import functools
import glob
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

import pytest
from conftest import kill_group

PYTHON = os.environ.get("PROBING_SERVERS", sys.executable)  # the interpreter that has the packages
WAYS = ("recorded", "injected")
REQUESTS = 400

# What all of these programs compute: a few ms of Python. It is in a module of its own, so that it has the same name in every process.
WORK = '''
import os

def handle(n):
    total = 0
    for i in range(20000 + n % 50):
        total = (total * 31 + i * n) % 1000003
    return total

def answer(n):
    return "%d %d" % (os.getpid(), handle(n))
'''
work = {}
exec(WORK, work)

WSGI = '''
from work import answer

def app(environ, start_response):
    body = answer(int(environ["QUERY_STRING"])).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
application = app
'''

ASGI = '''
from work import answer
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

app = FastAPI()

@app.get("/", response_class=PlainTextResponse)
def root(n: int = 0):  # in a thread of the pool
    return answer(n)

@app.get("/async", response_class=PlainTextResponse)
async def root_async(n: int = 0):
    return answer(n)
'''

TASKS = '''
import os
import celery
from work import answer

app = celery.Celery("tasks", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
task = app.task(answer, name="answer")
'''


@pytest.fixture(scope="module")
def interpreter():
    return PYTHON


def needs(python, *modules):
    for module in modules:
        code = "import importlib.util, sys; sys.exit(importlib.util.find_spec(%r) is None)" % module
        if subprocess.run([python, "-c", code], stdin=subprocess.DEVNULL).returncode:
            pytest.skip("%s has no %s (see tests/README.md)" % (python, module))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def tree(pid):
    """Returns the pids of the process and its descendants."""
    found = [pid]
    for path in glob.glob("/proc/%d/task/*/children" % pid):
        try:
            with open(path) as f:
                for child in f.read().split():
                    found += tree(int(child))
        except OSError:
            pass
    return found


def stays(pid):
    """Returns whether the process is still alive after a second."""
    time.sleep(1)
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Injector:
    """A thread that injects into processes, asks each for an evaluation and its stacks, and stops its recording again, one process after
    the other, until it is told to end."""

    def __init__(self, build, where, pids):
        self.build, self.where, self.pids = build, where, pids
        self.done, self.failed, self.ending = 0, [], threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def tool(self, pid, *args):
        return subprocess.run([str(self.build.tool("probing")), "-t", str(pid)] + list(args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True)

    @staticmethod
    def answered(pid, args, text):
        if args[0] == "eval":
            return text.strip() == str(pid)
        if args[0] == "backtrace":  # without --stop a running thread may be seen without frames; a Python that is ending has none
            threads = json.loads(text)["threads"]
            frames = [f for t in threads for f in t["frames"]]
            # uWSGI waits for requests, and for the GIL, outside of Python code: then the stacks have no function of the eval loop either.
            return "--stop" not in args or any(t["finalizing"] for t in threads) or any(f["type"] == "Python" for f in frames) \
                or bool(frames) and not any((f["func"] or "").startswith(("_PyEval", "PyEval_Eval", "_PyFunction", "PyObject_Call")) for f in frames)
        return True

    def run(self):
        while not self.ending.is_set():
            for pid in self.pids():
                out = str(self.where / ("injected-%d-%d.zst" % (pid, self.done)))
                for args in (["inject", "-r", "1000", "-o", out], ["eval", "__import__('os').getpid()"], ["backtrace", "--json"],
                             ["backtrace", "--json", "--stop"], ["stop"]):
                    done = self.tool(pid, *args)
                    wrong = done.returncode or not self.answered(pid, args, done.stdout)
                    if wrong and not re.search("Python is (shutting down|not initialised)", done.stderr) and stays(pid):  # otherwise the process was just ending
                        said = re.findall('"func":"([^"]*)"', done.stdout) or (done.stderr + done.stdout).strip()[:1000]
                        self.failed.append("%s %d: %d, %s" % (" ".join(args), pid, done.returncode, said))
                        break
                    self.ending.wait(0.3 if args[0] == "inject" else 0)
                self.done += 1
                if self.ending.is_set():
                    break
            time.sleep(0.05)

    def end(self):
        self.ending.set()
        self.thread.join()


class Session:
    """A program started in one of the three ways. end() returns its exit code, seen() what the traces show."""

    def __init__(self, build, tmp_path, way, cmd, script="", **kw):
        self.build, self.way, self.where = build, way, tmp_path / way
        self.where.mkdir()
        for name, text in (("work.py", WORK), ("wsgi.py", WSGI), ("asgi.py", ASGI), ("tasks.py", TASKS), ("script.py", script)):
            (self.where / name).write_text(text)
        prefix = [build.tool("probing-record"), "-q", "-r", "1000", "-o", self.where / "t.zst", "--"] if way == "recorded" else []
        self.out = open(str(self.where / "output"), "w+")
        env = dict(os.environ, PYTHONPATH=str(self.where), PYTHONUNBUFFERED="1", PYSPARK_PYTHON=PYTHON, PYSPARK_DRIVER_PYTHON=PYTHON, **kw)
        self.process = subprocess.Popen([str(c) for c in prefix + cmd], cwd=str(self.where), env=env, start_new_session=True,
                                        stdin=subprocess.DEVNULL, stdout=self.out, stderr=subprocess.STDOUT)
        self.injector = None

    @property
    def pid(self):
        """The pid of the program itself."""
        pids = tree(self.process.pid)
        return pids[1] if self.way == "recorded" and len(pids) > 1 else pids[0]

    def output(self):
        with open(str(self.where / "output"), errors="replace") as f:
            return f.read()

    def wait_for(self, what, seconds=120):
        end = time.monotonic() + seconds
        while not what():
            assert self.process.poll() is None and time.monotonic() < end, self.output()[-3000:]
            time.sleep(0.05)

    def inject(self, pids=None):
        if self.way == "injected":
            self.injector = Injector(self.build, self.where, pids or (lambda: tree(self.pid)))

    def wants_more(self):
        """Returns whether processes have been injected into too seldom: each is to be injected into more than once."""
        i = self.injector
        return bool(i) and i.done < 3 * len(tree(self.pid)) and not i.failed and self.process.poll() is None

    def end(self, signo=None, seconds=120):
        if self.injector:
            self.injector.end()
            assert self.injector.done, "nothing was injected into"
            assert not self.injector.failed, self.injector.failed[:3]
        if signo:
            os.kill(self.pid, signo)
        try:
            code = self.process.wait(timeout=seconds)
            return 128 - code if self.way == "recorded" and code > 128 else code  # probing-record reports a signal as 128 + its number
        except subprocess.TimeoutExpired:
            return "hung: " + self.output()[-2000:]

    def close(self):
        if self.injector:
            self.injector.end()
        kill_group(self.process)
        self.out.close()

    def seen(self, function="handle"):
        """Returns {pid: samples} of the processes in which the traces show this function."""
        traces = [t for t in self.where.glob("*.zst")]
        db = str(self.where / "out.db")
        done = subprocess.run([str(self.build.tool("probing-convert")), "-f"] + [str(t) for t in traces] + [db], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True)
        assert done.returncode == 0, done.stdout
        query = "SELECT pid, sum(count) FROM backtrace WHERE func LIKE '%%%s' AND frame_type = 'Python' GROUP BY pid" % function
        done = subprocess.run([str(self.build.tool("probing-query")), "--json", db, query], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True)
        assert done.returncode == 0, done.stderr
        return {row["pid"]: row["sum(count)"] for row in json.loads(done.stdout)}


    def lost(self, served):
        """Returns the processes whose counted losses cover at least half of their CPU time (half of their lifetime, if no sample saw them).
        Adds the processes of `served` that left no trace, if their parents counted at least as many lost children."""
        def ask(query):
            done = subprocess.run([str(self.build.tool("probing-query")), "--json", str(self.where / "out.db"), query], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, universal_newlines=True)
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        found = {row["pid"] for row in ask("SELECT pid FROM trace t WHERE (SELECT sum(count) FROM loss WHERE trace_id = t.id AND unit = 'records') "
                                           "* t.period >= coalesce((SELECT sum(cpu_seconds) FROM threads WHERE trace_id = t.id), t.duration) / 2")}
        without = set(served) - {row["pid"] for row in ask("SELECT pid FROM trace")}
        counted = ask("SELECT coalesce(sum(children_lost), 0) AS n FROM trace")[0]["n"]
        return found | without if len(without) <= counted else found


class Load:
    """Sends requests to a port from several threads, at least `requests` and as long as more() is true. Counts the answers that were as
    expected by the process that gave them, and collects those that were not."""

    def __init__(self, port, path, requests=REQUESTS, more=lambda: False):
        self.port, self.path, self.requests, self.more = port, path, requests, more
        self.asked, self.lock = 0, threading.Lock()
        self.served, self.wrong = {}, []
        self.threads = [threading.Thread(target=self.run) for _ in range(4)]
        for t in self.threads:
            t.start()

    def run(self):
        while True:
            with self.lock:
                if self.asked >= self.requests and not self.more():
                    return
                n = self.asked
                self.asked += 1
            status, text = self.one(n % 400)
            word = text.split()
            with self.lock:
                if status == 200 and len(word) == 2 and int(word[1]) == expected(n % 400):
                    self.served[int(word[0])] = self.served.get(int(word[0]), 0) + 1
                else:
                    self.wrong.append((n, status, text[:200]))

    def one(self, n):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=240)
        try:
            connection.request("GET", self.path % n)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except Exception as e:
            return 0, repr(e)
        finally:
            connection.close()

    def end(self):
        for t in self.threads:
            t.join()
        return self


@functools.lru_cache(maxsize=None)
def expected(n):
    return work["handle"](n)


def check_seen(session, served, least=40):
    """Checks that each process that gave many answers (of some ms each) is in the traces, with the function that computed them, or that its
    running time is counted as lost: on a busy machine a worker that lives for a tenth of a second may end before its sampler gets a CPU."""
    seen = session.seen()
    busy = {pid for pid, n in served.items() if n >= least}
    if session.way == "injected":  # injects into one process at a time, so only those that were at work just then are seen
        assert seen and busy and set(seen) & set(served), (seen, served)
    else:
        assert busy and busy - set(seen) <= session.lost(served), (seen, served)
    return seen


def summary(name, way, bare, this, what):
    print("\n| %s | %s | %s | %s |" % (name, way, bare, this) + (" %s |" % what if what else ""))


def run_script(build, tmp_path, python, way, text):
    session = Session(build, tmp_path, way, [python, "script.py"], text)
    try:
        session.wait_for(lambda: re.search("^pids .*\n", session.output(), re.M), 600)
        pids = list(map(int, re.search("^pids (.*)\n", session.output(), re.M).group(1).split()))
        session.inject(lambda: [p for p in pids if os.path.exists("/proc/%d" % p)])
        try:
            session.process.wait(timeout=600)
        except subprocess.TimeoutExpired:
            pass
        return session, session.output().strip().split("\n")[-1], session.end(), pids
    finally:
        session.close()


def compare_script(build, tmp_path, python, name, text):
    """Compares the script's answers and its end when it runs bare, recorded and injected into. The recordings must have seen handle()."""
    session, bare, bare_end, _ = run_script(build, tmp_path, python, "bare", text)
    assert bare_end == 0 and bare[0] in "[{", session.output()[-3000:]
    for way in WAYS:
        session, found, end, pids = run_script(build, tmp_path, python, way, text)
        seen = session.seen()
        summary(name, way, "%d bytes of answers, end %s" % (len(bare), bare_end), "%s, end %s" % ("the same" if found == bare else "OTHERS", end),
                "%d injections" % session.injector.done if session.injector else "seen in %d processes" % len(seen))
        assert (end, found) == (bare_end, bare), session.output()[-3000:]
        assert seen, "no sample of handle()"
        if way == "recorded":
            assert name == "dask" or set(pids[:1]) <= set(seen)  # dask's driver leaves the computing to its workers
