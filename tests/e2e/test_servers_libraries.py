# SPDX-License-Identifier: Apache-2.0
"""Libraries that use threads, processes, signals, stacks or tracing in unusual ways: bare, recorded at 1 kHz, and injected into again and
again, with the same answers and the same end (servers_session.py; tests/README.md says how to install them)."""
import pytest
import servers_session
from servers_session import compare_script, needs

pytestmark = [pytest.mark.slow, pytest.mark.limit(1200)]
interpreter = servers_session.interpreter  # a fixture

# Uses what the servers of gevent and eventlet use, and their clients.
ECHO = '''def serve(sock, address):
    for line in sock.makefile("rb"):
        time.sleep(0.001)
        sock.sendall(b"%d\\n" % handle(int(line)))

def ask(address, n):
    with socket.create_connection(address) as s:
        f = s.makefile("rwb")
        out = []
        for i in range(10):
            f.write(b"%d\\n" % (n + i)); f.flush()
            out.append(int(f.readline()))
        return out
'''

# As in test_servers_scripts.py, each prints "pids ..." when it is at work, and at last its results as JSON.
SCRIPTS = {
    # Worker processes that come and go, one of which is killed: joblib reports that and goes on with others.
    "joblib": (["joblib"], '''
import json, os, signal, warnings
import joblib
from joblib.externals.loky import get_reusable_executor
from work import handle

def both(n):
    return os.getpid(), handle(n)

def die(n):
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    found = []
    with joblib.Parallel(n_jobs=2) as work:
        pids = {p for p, _ in work(joblib.delayed(both)(n) for n in range(40))}
        print("pids", *pids, os.getpid(), flush=True)
        found.append([v for _, v in work(joblib.delayed(both)(n) for n in range(800))])
    try:
        joblib.Parallel(n_jobs=2)(joblib.delayed(die)(n) for n in range(4))
    except Exception as e:
        found.append(type(e).__name__)
    for backend in ("loky", "multiprocessing", "threading"):
        found.append(joblib.Parallel(n_jobs=2, backend=backend)(joblib.delayed(handle)(n) for n in range(100)))
    get_reusable_executor().shutdown()
    print(json.dumps(found))
'''),
    "xdist": (["pytest", "xdist"], '''
import json, os, sys, threading, time
import xml.etree.ElementTree as xml
import pytest

TESTS = """
import os, time
import pytest
from work import handle

def setup_module():
    open("worker-%d" % os.getpid(), "w").close()

@pytest.mark.parametrize("n", range(600))
def test_handle(n):
    assert handle(n) >= 0
    if n % 50 == 7:
        assert not n, "on purpose"

def test_worker_crash():
    os._exit(3)
"""

def tell():
    while True:
        workers = [f.split("-")[1] for f in os.listdir(".") if f.startswith("worker-")]
        if len(workers) >= 2:
            return print("\\npids", *workers, os.getpid(), flush=True)
        time.sleep(.05)

with open("test_many.py", "w") as f:
    f.write(TESTS)
threading.Thread(target=tell).start()
code = pytest.main(["-n", "2", "-q", "--tb=line", "-p", "no:cacheprovider", "--junitxml=out.xml", "test_many.py"])
found = sorted((c.get("name"), [e.tag for e in c]) for c in xml.parse("out.xml").iter("testcase"))
print(json.dumps([int(code), found]))
'''),
    # A debugger stops the program at a breakpoint, looks at a variable and continues, a hundred times.
    "debugpy": (["debugpy"], '''
import json, os, socket, threading
import debugpy
from work import handle

port = debugpy.listen(("127.0.0.1", 0))[1]
LINE = next(n for n, line in enumerate(open(__file__), 1) if "here" + " it stops" in line)

class Client:
    def __init__(self):
        self.file = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
        self.seq, self.events = 0, []
    def send(self, command, **arguments):
        self.seq += 1
        body = json.dumps({"seq": self.seq, "type": "request", "command": command, "arguments": arguments}).encode()
        self.file.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
        self.file.flush()
        return self.seq
    def read(self):
        size = 0
        while True:
            line = self.file.readline()
            if line == b"\\r\\n":
                return json.loads(self.file.read(size))
            size = int(line.split(b":")[1])
    def answer(self, seq):
        while True:
            m = self.read()
            if m["type"] == "response" and m["request_seq"] == seq:
                return m["body"] if "body" in m else m["success"]
            self.events.append(m)
    def ask(self, command, **arguments):
        return self.answer(self.send(command, **arguments))
    def event(self, name):
        while True:
            for m in self.events:
                if m.get("event") == name:
                    self.events.remove(m)
                    return m["body"] if "body" in m else None
            self.events.append(self.read())

stops = []
def debug():
    c = Client()
    c.ask("initialize", adapterID="python", linesStartAt1=True, pathFormat="path")
    attach = c.send("attach", justMyCode=False)
    c.event("initialized")
    c.ask("setBreakpoints", source={"path": __file__}, breakpoints=[{"line": LINE}])
    c.ask("configurationDone")
    c.answer(attach)
    for i in range(100):
        at = c.event("stopped")
        frame = c.ask("stackTrace", threadId=at["threadId"])["stackFrames"][0]
        stops.append([at["reason"], frame["name"], frame["line"] - LINE, c.ask("evaluate", expression="(n, value)", frameId=frame["id"])["result"]])
        c.ask("continue", threadId=at["threadId"])
    c.ask("disconnect")

def job(n):
    value = handle(n)
    return value  # here it stops

client = threading.Thread(target=debug)
client.pydev_do_not_trace = True
client.is_pydev_daemon_thread = True
client.start()
debugpy.wait_for_client()
print("pids", os.getpid(), flush=True)
found = [job(n) for n in range(100)]
client.join()
found += [job(n) for n in range(100)]
print(json.dumps([found, stops]))
'''),
    # Its three ways to measure (sys.monitoring from 3.12 on), with threads and a process.
    "coverage": (["coverage"], '''
import json, os, sys, subprocess, threading
import coverage
from work import handle

CODE = """
import threading
from work import handle
def some(n):
    if n % 3:
        return handle(n)
    elif n == 1000:
        return "never"
    for i in range(2):
        n += handle(n)
    return n
def run():
    global total
    total = sum(some(n) for n in range(SIZE))
threads = [threading.Thread(target=run) for _ in range(2)]
for t in threads: t.start()
for t in threads: t.join()
"""
print("pids", os.getpid(), flush=True)
found = []
for core in ("sysmon", "ctrace", "pytrace"):
    with open("measured.py", "w") as f:
        f.write(CODE.replace("SIZE", "25" if core == "pytrace" else "100"))
    os.environ["COVERAGE_CORE"] = core
    for branch in (False, True):
        c = coverage.Coverage(data_file=None, branch=branch, include=["*/measured.py", "*/work.py"])
        c.start()
        sys.path.insert(0, ".")
        sys.modules.pop("measured", None)
        import measured
        c.stop()
        data = c.get_data()
        found.append([core, branch, measured.total, sorted([os.path.basename(f), sorted(data.lines(f)), sorted(data.arcs(f) or [])]
                                                           for f in data.measured_files())])
done = subprocess.run([sys.executable, "-m", "coverage", "run", "--data-file=of.child", "measured.py"])
report = subprocess.run([sys.executable, "-m", "coverage", "report", "--data-file=of.child", "--include=measured.py,work.py"], stdout=subprocess.PIPE)
print(json.dumps([found, done.returncode, report.stdout.decode()]))
'''),
    # Its stacks are greenlets, and its sleep, sockets, locks, threads and processes are those of gevent.
    "gevent": (["gevent"], '''
from gevent import monkey
monkey.patch_all()
import json, os, socket, subprocess, sys, threading, time
import gevent, gevent.pool, gevent.queue, gevent.server, gevent.threadpool
from work import handle

''' + ECHO + '''
server = gevent.server.StreamServer(("127.0.0.1", 0), serve)
server.start()

print("pids", os.getpid(), flush=True)
found = [gevent.pool.Pool(8).map(lambda n: ask(server.address, n), range(40))]
with gevent.Timeout(0.5, False):
    while True:
        time.sleep(0.01)
found.append(gevent.threadpool.ThreadPool(2).map(handle, range(200)))
threads = [threading.Thread(target=lambda n=n: found.append(handle(n))) for n in range(50)]
for t in threads: t.start()
for t in threads: t.join()
found.append(gevent.pool.Pool(4).map(lambda n: subprocess.run([sys.executable, "-c", "from work import handle; print(handle(%d))" % n],
                                                              stdout=subprocess.PIPE).stdout.decode(), range(8)))
pid = os.fork()
if not pid:
    gevent.sleep(0.1)
    os._exit(handle(5) % 100)
found.append(os.waitpid(pid, 0)[1])
print(json.dumps(found))
'''),
    "eventlet": (["eventlet"], '''
import warnings
warnings.simplefilter("ignore")
import eventlet
eventlet.monkey_patch()
import json, os, socket, subprocess, sys, threading, time
from eventlet import tpool
from work import handle

''' + ECHO + '''
listener = eventlet.listen(("127.0.0.1", 0))
eventlet.spawn(eventlet.serve, listener, serve)

print("pids", os.getpid(), flush=True)
found = [list(eventlet.GreenPool(8).imap(lambda n: ask(listener.getsockname(), n), range(40)))]
found.append([tpool.execute(handle, n) for n in range(200)])
threads = [threading.Thread(target=lambda n=n: found.append(handle(n))) for n in range(50)]
for t in threads: t.start()
for t in threads: t.join()
found.append([subprocess.run([sys.executable, "-c", "from work import handle; print(handle(%d))" % n], stdout=subprocess.PIPE).stdout.decode()
              for n in range(5)])
print(json.dumps(found))
'''),
    "twisted": (["twisted"], '''
import json, os, sys
from twisted.internet import defer, protocol, reactor, threads, utils
from twisted.web import client, resource, server
from twisted.internet.task import LoopingCall
from work import handle

class Page(resource.Resource):
    isLeaf = True
    def render_GET(self, request):
        n = int(request.args[b"n"][0])
        if n % 2:
            return b"%d" % handle(n)
        d = threads.deferToThread(handle, n)
        d.addCallback(lambda v: (request.write(b"%d" % v), request.finish()))
        return server.NOT_DONE_YET

@defer.inlineCallbacks
def main():
    port = reactor.listenTCP(0, server.Site(Page()), interface="127.0.0.1")
    url = b"http://127.0.0.1:%d/?n=%%d" % port.getHost().port
    agent, found = client.Agent(reactor, client.HTTPConnectionPool(reactor)), []
    @defer.inlineCallbacks
    def ask(n):
        answer = yield agent.request(b"GET", url % n)
        body = yield client.readBody(answer)
        return int(body)
    print("pids", os.getpid(), flush=True)
    for first in range(0, 400, 8):
        values = yield defer.gatherResults([ask(n) for n in range(first, first + 8)])
        found.append(values)
    for n in range(8):  # SIGCHLD is its own here
        out, err, code = yield utils.getProcessOutputAndValue(sys.executable, ["-c", "from work import handle; print(handle(%d)); exit(%d)" % (n, n)],
                                                              env=os.environ)
        found.append([out.decode(), code])
    print(json.dumps(found))
    reactor.stop()

reactor.callWhenRunning(main)
reactor.run()
'''),
    # Code that is compiled while the program runs: machine code without a file, and threads that numba starts.
    "numba": (["numba", "numpy"], '''
import json, os
import numba, numpy
from work import handle

numba.set_num_threads(min(2, numba.config.NUMBA_NUM_THREADS))

@numba.njit
def one(x):
    total = 0.0
    for i in range(x.size):
        total += numpy.sin(x[i]) * i
    return total

@numba.njit(parallel=True)
def many(x):
    out = numpy.zeros(x.size)
    for i in numba.prange(x.size):
        out[i] = numpy.cos(x[i]) ** 2
    return out.max()

@numba.njit(nogil=True)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

@numba.vectorize(["float64(float64)"])
def ufunc(x):
    return x * x + 1

@numba.cfunc("float64(float64)")
def callback(x):
    return x / 3

@numba.njit
def wrong(x, n):
    if n > 3:
        raise ValueError(n)
    with numba.objmode(value="int64"):
        value = handle(n)
    return value

print("pids", os.getpid(), flush=True)
found = []
for n in range(150):
    x = numpy.arange(20000.0) + n
    found.append([one(x).hex(), float(many(x)).hex(), fib(18 + n % 5), ufunc(x).sum().hex(), callback.ctypes(n).hex(), handle(n)])
for n in range(6):
    try:
        found.append(wrong(x, n))
    except ValueError as e:
        found.append(repr(e))
print(json.dumps(found))
'''),
    "sklearn": (["sklearn", "scipy"], '''
import json, os
import numpy, scipy.integrate, scipy.optimize, scipy.sparse.linalg
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from work import handle

print("pids", os.getpid(), flush=True)
x, y = make_classification(600, 20, random_state=0)
search = GridSearchCV(Pipeline([("scale", StandardScaler()), ("pca", PCA(random_state=0)), ("fit", LogisticRegression(max_iter=500))]),
                      {"pca__n_components": [2, 5, 10], "fit__C": [0.1, 1, 10]}, n_jobs=2, cv=3)
search.fit(x, y)
found = [search.best_params_, search.cv_results_["mean_test_score"].tolist()]
forest = RandomForestClassifier(80, n_jobs=2, random_state=0).fit(x, y)
found.append(forest.predict_proba(x).sum(0).tolist())
found.append(cross_val_score(HistGradientBoostingClassifier(max_iter=30, random_state=0), x, y, cv=3).tolist())
def f(v):
    handle(3)
    return scipy.optimize.rosen(v)
found.append(scipy.optimize.minimize(f, [1.3, 0.7, 0.8], method="Nelder-Mead", options={"maxiter": 150}).x.tolist())
found.append(scipy.integrate.solve_ivp(lambda t, v: [v[1], -v[0] + 0 * handle(int(t))], (0, 10), [1, 0]).y[:, -1].tolist())
found.append(scipy.integrate.quad(lambda v: numpy.exp(-v * v), -3, 3)[0])
print(json.dumps(found))
'''),
    # The interpreter's own tools: each sees the program, and nothing of the agent.
    "tracing": ([], '''
import json, os, sys, cProfile, pstats, tracemalloc, threading, trace
from work import handle
print("pids", os.getpid(), flush=True)
p = cProfile.Profile()
found = [p.runcall(handle, n) for n in range(200)]
found.append([v[0] for k, v in pstats.Stats(p).stats.items() if k[2] == "handle"])
tracemalloc.start(25)
keep = [bytes(2000) for _ in range(1000)]
found += [handle(n) for n in range(30)]
snap = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, __file__)])
found.append([s.count for s in snap.statistics("lineno") if s.size >= 2000 * 1000])
tracemalloc.stop()
events = []
def prof(frame, event, arg):
    if frame.f_code.co_name == "handle": events.append(event)
threading.setprofile(prof); sys.setprofile(prof)
t = threading.Thread(target=lambda: [handle(n) for n in range(100)]); t.start(); t.join()
found += [handle(n) for n in range(100)]
sys.setprofile(None); threading.setprofile(None)
found.append([len(events), events[:4]])
t = trace.Trace(count=1, trace=0)
t.runfunc(lambda: [handle(n) for n in range(5)])
found.append(sorted(v for (f, l), v in t.results().counts.items() if f.endswith("work.py")))
print(json.dumps(found))
'''),
    # The process contains a run-time of another language: Go's sends SIGURG to its own threads, and has small stacks.
    "go": (["tls_client"], '''
import json, os, threading, http.server, time
from work import handle
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        b = str(handle(int(self.path[1:]))).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(b))); self.end_headers(); self.wfile.write(b)
    def log_message(self, *a): pass
srv = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
threading.Thread(target=srv.serve_forever, daemon=True).start()
print("pids", os.getpid(), flush=True)
found = [handle(n) for n in range(200)]
import tls_client
def client(out):
    s = tls_client.Session(client_identifier="chrome_120")
    for n in range(200):
        r = s.get("http://127.0.0.1:%d/%d" % (srv.server_address[1], n))
        out.append([r.status_code, r.text])
outs = [[] for _ in range(3)]
ts = [threading.Thread(target=client, args=(o,)) for o in outs]
[t.start() for t in ts]; [t.join() for t in ts]
print(json.dumps([found, outs]))
'''),
    # Java's run-time handles null pointers and safe points by SIGSEGV, and calls Python from threads of its own.
    "jvm": (["jpype"], '''
import json, os, threading
import jpype
from work import handle
jpype.startJVM()
import jpype.imports
from java.util import ArrayList, Collections
from java.util.stream import IntStream
from java.lang import String, System, Thread, Integer
print("pids", os.getpid(), flush=True)
found = []
@jpype.JImplements("java.util.function.IntUnaryOperator")
class Op:
    @jpype.JOverride
    def applyAsInt(self, n): return handle(n)
for i in range(20):
    found.append(int(IntStream.range(0, 60).map(Op()).sum()))
    found.append(int(IntStream.range(0, 40).parallel().map(Op()).sum()))
    a = ArrayList()
    for n in range(200): a.add(String("x%d" % (n * 7919 % 200)))
    Collections.sort(a)
    found.append(str(a.get(17)))
    for n in range(300):
        try:
            jpype.JClass("java.lang.String").valueOf(jpype.JObject(None, "java.lang.Object")).length()
            Collections.sort(jpype.JObject(None, "java.util.List"))
        except jpype.JException as e:
            if n % 100 == 0: found.append(type(e).__name__)
    if i % 5 == 0: System.gc()
ts = [threading.Thread(target=lambda: found.append(int(IntStream.range(0, 60).map(Op()).sum()))) for _ in range(4)]
[t.start() for t in ts]; [t.join() for t in ts]
jpype.shutdownJVM()
print(json.dumps(found))
'''),
    "uvloop": (["uvloop"], '''
import asyncio, json, os, signal, sys, uvloop
from work import handle
async def serve(r, w):
    while line := await r.readline():
        await asyncio.sleep(0.001)
        w.write(b"%d\\n" % handle(int(line)))
    w.close()
async def main():
    found = []
    s = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = s.sockets[0].getsockname()[1]
    async def ask(n):
        r, w = await asyncio.open_connection("127.0.0.1", port)
        out = []
        for i in range(10):
            w.write(b"%d\\n" % (n + i)); out.append(int(await r.readline()))
        w.close()
        return out
    print("pids", os.getpid(), flush=True)
    for i in range(10): found.append(await asyncio.gather(*[ask(n) for n in range(8)]))
    got = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, got.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await got.wait()
    for i in range(6):
        p = await asyncio.create_subprocess_exec(sys.executable, "-c", "from work import handle; print(handle(5)); exit(3)", stdout=asyncio.subprocess.PIPE)
        out, _ = await p.communicate()
        found.append([out.decode(), p.returncode])
    found.append(await asyncio.gather(*[asyncio.get_running_loop().run_in_executor(None, handle, n) for n in range(100)]))
    return found
print(json.dumps(uvloop.run(main())))
'''),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_library(build, tmp_path, interpreter, name):
    modules, text = SCRIPTS[name]
    needs(interpreter, *modules)
    compare_script(build, tmp_path, interpreter, name, text)
