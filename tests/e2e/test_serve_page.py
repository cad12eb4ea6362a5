# SPDX-License-Identifier: Apache-2.0
"""`probing serve`: the page in a browser, and the OpenAPI document of its interface."""
import http.client
import http.server
import json
import os
import re
import subprocess
import sys
import threading

import pytest
from chromium import browser, chromium
from test_console import wait_until
from test_serve import TOKEN, database, serve  # noqa: F401


class Between(http.server.BaseHTTPRequestHandler):
    """A proxy that passes requests on to the server and its answers back. It first calls `before`, which may wait until something is true."""
    protocol_version = "HTTP/1.1"

    def hand_on(self):
        where, before = self.server.where, self.server.before
        before(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        headers = {k: where if k == "Host" else "http://" + where if k == "Origin" else v for k, v in self.headers.items() if k != "Connection"}
        connection = http.client.HTTPConnection(where, timeout=240)
        connection.request(self.command, self.path, self.rfile.read(size) if size else None, headers)
        answer = connection.getresponse()
        body = answer.read()
        if self.path == "/":
            body = body.replace(b'"use strict";', self.server.script + b'"use strict";', 1)
        self.send_response(answer.status)
        for k, v in answer.getheaders():
            if k.lower() not in ("transfer-encoding", "content-length", "connection", "date"):
                self.send_header(k, v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        connection.close()

    do_GET = do_POST = hand_on

    def log_message(self, *args):
        pass


@pytest.fixture
def between():
    """between(server, before, script): returns HOST:PORT of a proxy to the server, which puts `script` before the page's own scripts."""
    started = []

    def start(server, before, script=""):
        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Between)
        proxy.daemon_threads, proxy.where, proxy.before, proxy.script = True, server.where, before, script.encode()
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        started.append(proxy)
        return "127.0.0.1:%d" % proxy.server_address[1]
    yield start
    for proxy in started:
        proxy.shutdown()
        proxy.server_close()


@browser
def test_page(serve, database, tmp_path):
    server = serve(database)
    dom, said = chromium(tmp_path, "--dump-dom", "http://%s/?token=%s" % (server.where, TOKEN))
    assert not said, said
    assert "0 recordings" in dom and re.search(r'<td class="n"[^>]*>[\d.]+</td>', dom) and " rows, " in dom
    assert "&lt;!-- probing-report --&gt;" in dom and '<iframe id="report" title="report" sandbox="allow-scripts" srcdoc=' in dom  # in a frame of its own
    assert TOKEN not in dom
    dom, said = chromium(tmp_path, "--dump-dom", "http://%s/?token=wrong" % server.where)
    assert "needs the token" in dom and "hot_functions" not in dom


LEARNS = """
import time, probing
def train():
    loss = 4.0
    while True:
        loss *= .99
        end = time.process_time() + .005
        while time.process_time() < end: pass
        probing.step()
        time.sleep(.01)
print('up', flush=True)
train()
"""


# Each reading of the clock is five seconds later than the one before, as on a machine so busy that every answer takes that long.
BUSY = "{ const now = performance.now.bind(performance); let later = 0; performance.now = () => now() + (later += 5000); }"


@browser
@pytest.mark.limit(300)
def test_page_follows(serve, between, build, spawn, tmp_path):
    """What is recorded while the page is open appears on it (samples, loss, the stack), however long answers take. Numbers that the program
    itself writes tell the test when there is more."""
    (tmp_path / "program.py").write_text(LEARNS)
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    recorder = spawn([build.tool("probing-record"), "-q", "-r", "200", "--exprs", "loss@train", "-o", tmp_path / "t.zst", sys.executable, "-u", tmp_path / "program.py"],
                     ready="up", env=env)
    pid = int(subprocess.check_output(["pgrep", "-P", str(recorder.pid)]).split()[0])
    server, seen = serve(), {"asked": 0, "followed": 0}
    ask_steps = {"sql": "SELECT count(*) AS n, max(step) AS step FROM training_logs"}

    def samples():
        return json.loads(server.ask("/api/v1/recordings")[2])[0]["samples"]

    def logged():
        return json.loads(server.ask("/api/v1/query", ask_steps)[2])[0]["step"] or 0
    wait_until(lambda: logged() > 10)
    assert 0 < float(server.ask("/api/v1/recordings")[1]["x-probing-cpu"]) < 100  # the page uses this header

    def before(path):
        seen["followed"] += path == "/api/v1/query"
        if path == "/api/v1/recordings":
            seen["asked"] += 1
            if seen["asked"] == 1:
                seen["first"] = samples(), logged()
            elif seen["asked"] == 2:  # from here on there is more than the page can have seen at first
                wait_until(lambda: samples() > seen["first"][0] + 10 and logged() > seen["first"][1] + 10)
                seen["second"] = samples(), logged()
    dom, said = chromium(tmp_path, "--dump-dom", "http://%s/?token=%s#pid=%d" % (between(server, before, BUSY), TOKEN, pid))
    assert not said, said
    assert seen["asked"] >= 2 and "1 recording," in dom
    row = re.search(r"<tr[^>]*>(<td.*?program\.py.*?)</tr>", dom).group(1)
    shown = [int(n) for n in re.findall(r'title="(\d+)"', row)]
    assert shown[0] == pid and shown[1] >= seen["second"][0]  # the later number, not the first one
    note = re.search(r'id="loss-note">step \d+ to (\d+), now ([\d.e-]+)', dom)
    assert seen["followed"] >= 2 and int(note.group(1)) > seen["first"][1]  # the page counts the processor time that its requests take, not how long they take
    assert note and float(note.group(2)) == pytest.approx(4 * .99 ** (int(note.group(1)) + 1), rel=1e-4)
    assert re.search(r'<pre id="stack">thread .*train  \S*program\.py:\d+', dom, re.S)
    assert recorder.poll() is None


def test_openapi(serve, database):
    """The document contains each path with its methods, and it is valid, if a validator is installed."""
    server = serve(database)
    document = json.loads(server.ask("/openapi.json", token=None)[2])
    seen = set()

    def documented(answer):
        while "$ref" in answer:
            answer = document["components"]["responses"][answer["$ref"].rsplit("/", 1)[1]]
        return {name.lower() for name in answer.get("headers", {})}
    for path, methods in document["paths"].items():
        real = path.replace("{pid}", "999999999").replace("{word}", "status")
        for method in ("get", "post", "put", "delete", "patch"):
            status, headers, _ = server.ask(real, "{}" if method != "get" else None, method=method.upper())
            assert (status == 405) == (method not in methods), (path, method, status)
            assert status == 405 or str(status) in methods[method]["responses"], (path, method, status)
            if status != 405:
                ours = {name for name in headers if name.startswith("x-probing")}
                assert ours <= documented(methods[method]["responses"][str(status)]), (path, method, status, ours)
                seen |= ours
    assert seen == {"x-probing-cpu", "x-probing-server", "x-probing-time"}


def test_schemathesis(serve, database, tmp_path):
    """Thousands of requests are generated from the document: each answer is one that it lists, and wrong requests are refused."""
    python = subprocess.run([os.path.join(os.path.dirname(__file__), "../../.ci/engines-venv.sh")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    st = os.path.join(os.path.dirname(python.stdout.decode().strip()), "schemathesis")
    if python.returncode or not os.access(st, os.X_OK):
        pytest.skip("no schemathesis (.ci/engines-venv.sh)")
    server = serve(database)
    done = subprocess.run([st, "run", "http://%s/openapi.json" % server.where, "-H", "Authorization: Bearer " + TOKEN, "--max-examples", "20", "--no-color",
                           "--seed", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=str(tmp_path), timeout=300)
    assert done.returncode == 0, done.stdout.decode()[-4000:]
