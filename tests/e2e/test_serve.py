# SPDX-License-Identifier: Apache-2.0
"""`probing serve`: SQL and commands over HTTP, who may ask and how much; `probing -t HOST:PORT`; PROBING_PORT."""
import csv
import http.client
import http.server
import io
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time

import pytest
from chromium import browser, chromium
from test_console import wait_until

TOKEN, CONTROL = "token-of-this-test", "control-of-this-test"
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS c FROM n"
ROWS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i, 'row ' || i AS t, i / 2.0 AS half FROM n"


class Server:
    def __init__(self, process, line):
        self.process = process
        self.port = int(re.search(r":(\d+)/\?token=", line).group(1))
        self.where = "127.0.0.1:%d" % self.port

    def ask(self, path, body=None, method=None, token=TOKEN, **headers):
        """(status, headers, bytes)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        if token:
            headers["Authorization"] = "Bearer " + token
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers)
        answer = connection.getresponse()
        done = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        connection.close()
        return done

    def query(self, sql, **more):
        return self.ask("/api/v1/query", dict({"sql": sql}, **more))


@pytest.fixture
def serve(build, spawn):
    def start(*args, **env):
        process = spawn([build.tool("probing"), "serve", "-l", "127.0.0.1:0"] + list(args), stderr=subprocess.PIPE,
                        env=dict(os.environ, PROBING_TOKEN=TOKEN, PROBING_CONTROL_TOKEN=CONTROL, **env))
        return Server(process, process.stdout.readline().decode())

    return start


@pytest.fixture(scope="session")
def database(build, tmp_path_factory):
    d = tmp_path_factory.mktemp("served")
    program = "import time\nend = time.time() + 1\nwhile time.time() < end: sum(range(1000))"
    subprocess.check_call([build.tool("probing-record"), "-q", "-r", "100", "-o", d / "t.zst", sys.executable, "-c", program])
    subprocess.check_call([build.tool("probing-convert"), "-q", d / "t.zst", d / "t.db"])
    return d / "t.db"


PROGRAM = "import time\ndef wait_here():\n    secret = 17\n    while True: time.sleep(.01)\nprint('up', flush=True)\nwait_here()\n"


@pytest.fixture
def target(spawn, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    return spawn([sys.executable, tmp_path / "program.py"], ready="up")


def test_answers(serve, database, build, run):
    server = serve(database)
    sql = "SELECT func, file, self, seconds FROM hot_functions ORDER BY seconds DESC, func, file"
    wanted = json.loads(run([build.tool("probing-query"), "--json", database, sql]).stdout)
    status, headers, body = server.query(sql)
    assert status == 200 and json.loads(body) == wanted and wanted and headers["content-type"] == "application/json"
    assert headers["cache-control"] == "no-store" and "default-src 'none'" in headers["content-security-policy"]
    status, headers, body = server.query(sql, format="csv")
    assert headers["content-type"].startswith("text/csv") and len(list(csv.reader(io.StringIO(body.decode())))) == len(wanted) + 1
    status, _, body = server.ask("/api/v1/query?sql=SELECT+max(timestamp)+AS+t+FROM+samples&format=json")
    assert status == 200 and json.loads(body)[0]["t"] > 1e9
    # large: streamed, whole, in order
    status, headers, body = server.query(ROWS % 300000)
    rows = json.loads(body)
    assert headers.get("transfer-encoding") == "chunked" and len(rows) == 300000 and rows[-1] == {"i": 300000, "t": "row 300000", "half": 150000.0}
    assert server.query("SELECT 1 AS one WHERE 0")[2] == b"[]\n"
    # the words of the original, too
    assert json.loads(server.query("SHOW TABLES")[2]) and json.loads(server.query("SELECT now() - INTERVAL '5 min' AS t")[2])
    info = json.loads(server.ask("/api/v1/info")[2])
    assert info["control"] is False and info["sources"] == [str(database)]
    assert server.ask("/api/v1/info", method="HEAD")[2] == b""


def test_who_may_ask(serve, database):
    server = serve(database)
    for token in (None, "wrong", TOKEN + "x", TOKEN[:-1], ""):
        status, headers, body = server.ask("/api/v1/info", token=token)
        assert status == 401 and headers["www-authenticate"] == "Bearer" and b"version" not in body
        assert server.ask("/api/v1/query", {"sql": "SELECT 1"}, token=token)[0] == 401
        assert server.ask("/nowhere", token=token)[0] == 401
    assert server.ask("/?token=wrong", token=None)[0] == 401
    status, headers, _ = server.ask("/?token=" + TOKEN, token=None)
    cookie = headers["set-cookie"]
    assert status == 303 and headers["location"] == "/" and "HttpOnly" in cookie and "SameSite=Strict" in cookie
    cookie = cookie.split(";")[0]
    assert server.ask("/api/v1/info", token=None, Cookie=cookie)[0] == 200
    assert b"<title>Probing</title>" in server.ask("/", token=None, Cookie=cookie)[2]
    # another site's page, and a name of another site that leads here
    for host in ("evil.example", "evil.example:%d" % server.port, "127.0.0.1.evil.example"):
        assert server.ask("/api/v1/info", Host=host)[0] == 403
    for origin in ("http://evil.example", "null", "https://127.0.0.1:%d" % server.port, "http://127.0.0.1:1"):
        assert server.ask("/api/v1/info", Origin=origin)[0] == 403, origin
    assert server.ask("/api/v1/info", Origin="http://127.0.0.1:%d" % server.port)[0] == 200
    assert "access-control-allow-origin" not in server.ask("/api/v1/info", Origin="http://127.0.0.1:%d" % server.port)[1]


def test_wrong_requests(serve, database, tmp_path):
    server = serve(database)
    before = database.read_bytes()
    for body in ("", "[]", "{", "1", b"\xff\xfe", {"sql": 1}, {"sql": ""}, {}, {"sql": "SELECT 1", "format": "xml"}, {"sql": "SELECT 1", "format": 1},
                 {"sql": "SELECT 1", "timeout": 0}, {"sql": "SELECT 1", "timeout": "1"}):
        status, _, answer = server.ask("/api/v1/query", body)
        assert status == 400 and json.loads(answer)["error"], (body, status)
    for sql in ("SELEC", "SELECT * FROM nowhere", "SELECT 1; SELECT 2", "-- nothing", "SELECT 1 WHERE json('no')", "SELECT INTERVAL '1 moon'"):
        status, _, answer = server.query(sql)
        assert status == 409 and json.loads(answer)["error"], (sql, status)
    new = tmp_path / "new.db"
    for sql in ("ATTACH '%s' AS x" % new, "CREATE TABLE t(a)", "DELETE FROM trace", "PRAGMA query_only = OFF", "PRAGMA writable_schema = ON", "VACUUM",
                "SELECT load_extension('x')", "DROP VIEW steps", "CREATE TEMP TABLE t(a)", "DETACH main", "VACUUM INTO '%s'" % new):
        status, _, answer = server.query(sql)
        assert status in (403, 409) and json.loads(answer)["error"], sql
    assert not new.exists() and database.read_bytes() == before
    for method, path in (("DELETE", "/api/v1/query"), ("PUT", "/"), ("POST", "/api/v1/info")):
        status, headers, _ = server.ask(path, "{}", method=method)
        assert status == 405 and "GET" in headers["allow"]
    for path in ("/nowhere", "/api", "/api/v1/query/x", "/../etc/passwd", "/api/v1/processes/1", "/api/v1/processes/x/status", "/api/v1/processes/1/environ"):
        assert server.ask(path)[0] == 404, path
    assert server.ask("/api/v1/query", b"x" * (2 << 20))[0] == 413
    assert server.ask("/api/v1/info")[0] == 200  # it is still there


def test_time_and_a_client_that_leaves(serve, database):
    """A query that never ends is ended by its timeout, or when its client has gone; then all connections are free again."""
    server = serve(database)
    status, _, body = server.query(ENDLESS, timeout=0.2)
    assert status == 408 and b"timeout" in body
    for _ in range(20):  # more than there are connections to the database
        s = socket.create_connection(("127.0.0.1", server.port))
        text = json.dumps({"sql": ENDLESS})
        s.sendall(("POST /api/v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" % (TOKEN, len(text), text)).encode())
        s.close()
    assert server.query("SELECT 1 AS a")[0] == 200
    s = socket.create_connection(("127.0.0.1", server.port))  # in the middle of an answer
    text = json.dumps({"sql": ROWS % 1000000000})
    s.sendall(("POST /api/v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" % (TOKEN, len(text), text)).encode())
    assert s.recv(1000).startswith(b"HTTP/1.1 200")
    s.close()

    def at_rest():
        def cpu():
            with open("/proc/%d/stat" % server.process.pid) as f:
                return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
        before = cpu()
        time.sleep(0.5)
        return cpu() - before < 10
    wait_until(at_rest)


def test_clients_that_take_no_answer(serve, database):
    """More than there are connections to the database ask for rows and never read them: others are answered after the timeout."""
    server = serve("--timeout", "1", database)
    held = []
    for _ in range(20):
        s = socket.create_connection(("127.0.0.1", server.port))
        text = json.dumps({"sql": ROWS % 1000000000})
        s.sendall(("POST /api/v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" % (TOKEN, len(text), text)).encode())
        held.append(s)
    for s in held[:8]:
        s.settimeout(60)
        assert s.recv(12).startswith(b"HTTP/1.1 200")
    stop = threading.Event()

    def trickle():  # never silent for so long that the connection counts as idle
        while not stop.wait(0.1):
            for s in held:
                try:
                    s.recv(1, socket.MSG_DONTWAIT)
                except OSError:
                    pass
    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        assert server.query("SELECT 1 AS a")[0] == 200
    finally:
        stop.set()
        thread.join()
        for s in held:
            s.close()


def test_many_and_slow_clients(serve, database):
    """500 connections that never send a whole request: bounded, and closed after a while; others are served again then."""
    server = serve(database)
    held = []
    for _ in range(500):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(("127.0.0.1", server.port))
        held.append(s)
    time.sleep(0.5)
    for s in held:
        try:
            s.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        except OSError:
            pass
    with open("/proc/%d/status" % server.process.pid) as f:
        threads = int(re.search(r"Threads:\s*(\d+)", f.read()).group(1))
    assert threads <= 110
    end, served = time.monotonic() + 120, None
    while served != 200 and time.monotonic() < end:  # they go on as slow clients do
        for s in held:
            try:
                s.send(b"x")
            except OSError:
                s.close()
        try:
            served = server.query("SELECT 1 AS a")[0]
        except OSError:  # there are as many connections as may be
            time.sleep(0.5)
    assert served == 200


def test_eight_clients(serve, database):
    server = serve(database)
    wanted, wrong = json.loads(server.query("SELECT func, seconds FROM hot_functions")[2]), []

    def client(n):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        for k in range(50):
            sql = "SELECT func, seconds FROM hot_functions" if k % 2 else "SELECT %d AS n" % (n * 1000 + k)
            connection.request("POST", "/api/v1/query", json.dumps({"sql": sql}), {"Authorization": "Bearer " + TOKEN})
            got = json.loads(connection.getresponse().read())
            if got != (wanted if k % 2 else [{"n": n * 1000 + k}]):
                wrong.append(got)
    threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---- processes, here and from elsewhere ----


@pytest.fixture
def remote(build, run):
    def call(server, *args, control=False, check=True, **kw):
        env = dict(os.environ, PROBING_TOKEN=TOKEN)
        if control:
            env["PROBING_CONTROL_TOKEN"] = CONTROL
        return run([build.tool("probing"), "-t", server.where] + list(args), env=env, check=check, **kw)

    return call


def test_remote_commands(serve, remote, target, build, run, tmp_path):
    """What is printed there is printed here: output, errors, exit code."""
    server = serve("--allow-control")
    pid = str(target.pid)
    done = remote(server, "backtrace", pid, "--main", "--python")
    assert "wait_here" in done.stdout and done.stdout.splitlines()[1:] == run([build.tool("probing"), "-t", pid, "backtrace", "--main", "--python"]).stdout.splitlines()[1:]
    assert remote(server, "eval", pid, "6 * 7; 6 * 7", control=True).stdout == "42\n"
    done = remote(server, "eval", pid, "print('out'); 1/0", control=True, check=1)
    assert done.stdout == "out\n" and "ZeroDivisionError" in done.stderr
    assert remote(server, "eval", pid, "-f", "-", control=True, input="6 * 8").stdout == "48\n"
    trace = tmp_path / "t.zst"
    assert "is being recorded into" in remote(server, "inject", pid, "-r", "100", "-o", trace, control=True).stdout
    listed = json.loads(remote(server, "list", "--json").stdout)
    assert [r["pid"] for r in listed] == [target.pid]
    assert json.loads(server.ask("/api/v1/recordings")[2])[0]["pid"] == target.pid
    wait_until(lambda: "wait_here" in remote(server, "flamegraph", pid, "--folded", check=None).stdout)
    rows = json.loads(remote(server, "query", pid, "--json", "SELECT count(*) AS n FROM samples").stdout)
    assert rows[0]["n"] > 0
    assert json.loads(server.ask("/api/v1/processes/%s/backtrace" % pid)[2])["threads"]
    assert json.loads(server.ask("/api/v1/processes/%s/config" % pid)[2])
    env = dict(os.environ, PROBING_TOKEN=TOKEN, ENDPOINT=server.where, PROBING_CONTROL_TOKEN=CONTROL)
    assert run([build.tool("probing"), "eval", pid, "1 + 1"], env=env).stdout == "2\n"
    remote(server, "stop", pid, control=True)
    assert "nothing is being recorded" in remote(server, "list", check=1).stderr
    assert "no such" in remote(server, "frobnicate", pid, check=3).stderr
    assert target.poll() is None


def test_control_needs_its_token(serve, remote, target, build, run, tmp_path):
    server, closed, pid = serve("--allow-control"), serve(), str(target.pid)
    for command in (["eval", pid, "1"], ["inject", pid], ["stop", pid], ["config", pid, "probing.native=0"], ["watch", pid, "program.py:4"]):
        assert "control token" in remote(server, *command, check=3).stderr
        assert "--allow-control" in remote(closed, *command, control=True, check=3).stderr or True
        status, _, _ = closed.ask("/api/v1/command", {"command": command[0], "pid": target.pid, "args": command[2:]})
        assert status == 403
    # a cookie is not enough: a browser sends it by itself
    status, _, _ = server.ask("/api/v1/command", {"command": "eval", "pid": target.pid, "args": ["1"]}, token=None, Cookie="probing_token=" + CONTROL)
    assert status == 401
    # nothing that names a file of that machine
    out = tmp_path / "out"
    for args in (["flamegraph", pid, "-o", out], ["flamegraph", pid, "--output=%s" % out], ["flamegraph", pid, "-o%s" % out], ["backtrace", pid, "--core", "x"],
                 ["query", pid, "-f", "/etc/passwd"], ["query", pid, "--file=/etc/pass wd", "SELECT 1"], ["query", pid, "-f /etc/passwd", "SELECT 1"],
                 ["query", pid, "/etc/passwd", "SELECT 1"], ["backtrace", pid, "--stop"], ["list", "/etc"]):
        assert "may not be used" in remote(server, *args, check=3).stderr, args
    assert not out.exists()
    for body in ({}, {"command": "list", "args": "x"}, {"command": "list", "args": [1]}, {"command": "status"}, {"command": "status", "pid": -1},
                 {"command": "status", "pid": 1.5}, {"command": "status", "pid": "1"}, {"command": "rm"}):
        assert server.ask("/api/v1/command", body)[0] == 400, body


def test_remote_query_is_restricted(serve, remote, build, spawn, tmp_path):
    trace, other = tmp_path / "t.zst", tmp_path / "other.db"
    sqlite3.connect(str(other)).execute("CREATE TABLE secret(a)")
    recorder = spawn([build.tool("probing-record"), "-q", "-o", trace, sys.executable, "-u", "-c", PROGRAM], ready="up")
    pid = subprocess.check_output(["pgrep", "-P", str(recorder.pid)]).split()[0].decode()
    server = serve()
    assert remote(server, "query", pid, "--csv", "SELECT 7 AS a").stdout.split() == ["a", "7"]
    for sql in ("ATTACH '%s' AS x" % other, "SELECT * FROM pragma_database_list", str(other)):
        remote(server, "query", pid, sql, check=3)


@pytest.mark.pythons(min=(3, 12), count=1)
def test_remote_watch(serve, build, spawn, python, tmp_path):
    """Values come as they are read; Ctrl-C here ends it there."""
    (tmp_path / "program.py").write_text(PROGRAM.replace("while True: time.sleep(.01)", "n = 0\n    while True:\n        n += 1\n        time.sleep(.01)"))
    target = spawn([python.path, tmp_path / "program.py"], ready="up")
    server = serve("--allow-control")
    env = dict(os.environ, PROBING_CONTROL_TOKEN=CONTROL)
    watch = spawn([build.tool("probing"), "-t", server.where, "watch", target.pid, "program.py:7", "n", "--json"], env=env, stderr=subprocess.PIPE)
    assert json.loads(watch.stdout.readline())["values"]["n"] > 0
    watch.send_signal(signal.SIGINT)
    assert watch.wait(60) == 130

    def gone():
        done = subprocess.run([build.tool("probing"), "-t", str(target.pid), "eval", "import sys; '_probing_watch' in sys.modules"], stdout=subprocess.PIPE)
        return done.stdout == b"False\n"
    wait_until(gone)


def test_places(serve, build, run, spawn, database, tmp_path):
    """A socket in the file system, TLS, a port that is taken, a server that is not there."""
    path = tmp_path / "s"
    server = spawn([build.tool("probing"), "serve", "--socket", path, database])
    assert server.stdout.readline().decode() == "%s\n" % path and path.stat().st_mode & 0o777 == 0o600
    s = socket.socket(socket.AF_UNIX)
    s.connect(str(path))
    s.sendall(b"GET /api/v1/info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"200 OK" in s.recv(4096)
    server.kill()  # and leaves its file
    server.wait()
    server = spawn([build.tool("probing"), "serve", "--socket", path, database])
    assert server.stdout.readline()
    server.terminate()
    assert server.wait(60) == 0 and not path.exists()
    taken = serve(database)
    done = run([build.tool("probing"), "serve", "-l", taken.where, database], check=3)
    assert "Address already in use" in done.stderr and "0 for any" in done.stderr
    server = spawn([build.tool("probing"), "serve", "-l", taken.where, "--port-range", "20", database])
    assert ":%d/" % taken.port not in server.stdout.readline().decode()
    env = dict(os.environ, PROBING_TOKEN="x")
    free = socket.socket()
    free.bind(("127.0.0.1", 0))
    assert "cannot ask" in run([build.tool("probing"), "-t", "127.0.0.1:%d" % free.getsockname()[1], "list"], env=env, check=3).stderr
    assert "token" in run([build.tool("probing"), "-t", taken.where, "list"], env=env, check=3).stderr
    assert "PROBING_TOKEN" in run([build.tool("probing"), "-t", taken.where, "list"], check=2).stderr
    for args in (["--timeout", "x"], ["-l", "nonsense"], ["--tls-cert", "x"], ["--token-file", tmp_path / "none"], [tmp_path / "none.db"], ["--what"]):
        assert run([build.tool("probing"), "serve"] + args, check=None).returncode in (2, 3)


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl")
def test_tls(build, run, spawn, tmp_path):
    cert, key = tmp_path / "c.pem", tmp_path / "k.pem"
    subprocess.check_call(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                           "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], stderr=subprocess.DEVNULL)
    server = spawn([build.tool("probing"), "serve", "-l", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key], env=dict(os.environ, PROBING_TOKEN=TOKEN))
    port = int(re.match(r"https://127.0.0.1:(\d+)/", server.stdout.readline().decode()).group(1))
    context = ssl.create_default_context(cafile=str(cert))
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
    connection.request("GET", "/api/v1/info", headers={"Authorization": "Bearer " + TOKEN})
    assert connection.getresponse().status == 200
    env = dict(os.environ, PROBING_TOKEN=TOKEN)
    where = "https://127.0.0.1:%d" % port
    assert "certificate" in run([build.tool("probing"), "-t", where, "list"], env=env, check=3).stderr
    assert "nothing is being recorded" in run([build.tool("probing"), "-t", where, "list"], env=dict(env, PROBING_CA_FILE=str(cert)), check=1).stderr
    assert run([build.tool("probing"), "serve", "--tls-cert", key, "--tls-key", cert], check=3).stderr.count("certificate") == 1


def test_probing_port(build, spawn, tmp_path):
    """A server beside the recording, for as long as it goes on; another takes the next port."""
    free = socket.socket()
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]  # taken: so it is one of the next
    env = dict(os.environ, PROBING_PORT=str(port), PROBING_TOKEN=TOKEN)
    recorder = spawn([build.tool("probing-record"), "-o", tmp_path / "t.zst", sys.executable, "-u", "-c", PROGRAM], env=env, stderr=subprocess.PIPE)
    line = recorder.stderr.readline().decode()
    server = Server(None, line)
    assert line.startswith("probing-record: asked at http://127.0.0.1:") and port < server.port <= port + 63
    wait_until(lambda: len(json.loads(server.ask("/api/v1/recordings")[2] or "[]")) == 1)
    recorder.terminate()
    recorder.wait(60)

    def gone():
        try:
            server.ask("/api/v1/info")
        except OSError:
            return True
        return False
    wait_until(gone)
    done = subprocess.run([build.tool("probing-record"), "-q", "-o", tmp_path / "u.zst", sys.executable, "-c", "print(1)"],
                          env=dict(env, PROBING_PORT="no.such.host.invalid:1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0 and done.stdout == b"1\n" and b"cannot listen" in done.stderr


# ---- the page, and the document ----


class Between(http.server.BaseHTTPRequestHandler):
    """Hands requests on to the server and its answers back; `before` is called first, and may wait for something to be true."""
    protocol_version = "HTTP/1.1"

    def hand_on(self):
        where, before = self.server.where, self.server.before
        before(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        headers = {k: where if k == "Host" else "http://" + where if k == "Origin" else v for k, v in self.headers.items() if k != "Connection"}
        connection = http.client.HTTPConnection(where, timeout=60)
        connection.request(self.command, self.path, self.rfile.read(size) if size else None, headers)
        answer = connection.getresponse()
        body = answer.read()
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
    """between(server, before) -> HOST:PORT that leads to the server"""
    started = []

    def start(server, before):
        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Between)
        proxy.daemon_threads, proxy.where, proxy.before = True, server.where, before
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
    assert "&lt;!-- probing-report --&gt;" in dom and '<iframe id="report" title="report" sandbox="allow-scripts" srcdoc=' in dom  # drawn in a frame of its own
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


@browser
@pytest.mark.limit(300)
def test_page_follows(serve, between, build, spawn, tmp_path):
    """What is recorded while the page is open comes onto it: samples, loss, the stack. The program's own numbers say when there is more."""
    (tmp_path / "program.py").write_text(LEARNS)
    env = dict(os.environ, PYTHONPATH=str(build.share / "python"))
    recorder = spawn([build.tool("probing-record"), "-q", "-r", "200", "--exprs", "loss@train", "-o", tmp_path / "t.zst", sys.executable, "-u", tmp_path / "program.py"],
                     ready="up", env=env)
    pid = int(subprocess.check_output(["pgrep", "-P", str(recorder.pid)]).split()[0])
    server, seen = serve(), {"asked": 0}
    ask_steps = {"sql": "SELECT count(*) AS n, max(step) AS step FROM training_logs"}

    def samples():
        return json.loads(server.ask("/api/v1/recordings")[2])[0]["samples"]

    def logged():
        return json.loads(server.ask("/api/v1/query", ask_steps)[2])[0]["step"] or 0
    wait_until(lambda: logged() > 10)

    def before(path):
        if path == "/api/v1/recordings":
            seen["asked"] += 1
            if seen["asked"] == 1:
                seen["first"] = samples(), logged()
            elif seen["asked"] == 2:  # from here on there is more than the page can have seen first
                wait_until(lambda: samples() > seen["first"][0] + 10 and logged() > seen["first"][1] + 10)
                seen["second"] = samples(), logged()
    dom, said = chromium(tmp_path, "--dump-dom", "http://%s/?token=%s#pid=%d" % (between(server, before), TOKEN, pid))
    assert not said, said
    assert seen["asked"] >= 2 and "1 recording," in dom
    row = re.search(r"<tr[^>]*>(<td.*?program\.py.*?)</tr>", dom).group(1)
    shown = [int(n) for n in re.findall(r'title="(\d+)"', row)]
    assert shown[0] == pid and shown[1] >= seen["second"][0]  # the later number, not the first one
    note = re.search(r'id="loss-note">step \d+ to (\d+), now ([\d.e-]+)', dom)
    assert note and float(note.group(2)) == pytest.approx(4 * .99 ** (int(note.group(1)) + 1), rel=1e-4)
    assert re.search(r'<pre id="stack">thread .*train  \S*program\.py:\d+', dom, re.S)
    assert recorder.poll() is None


def test_openapi(serve, database):
    """Each path of the document is there, with the methods that it names, and the document is valid where a validator is at hand."""
    server = serve(database)
    document = json.loads(server.ask("/openapi.json", token=None)[2])
    for path, methods in document["paths"].items():
        real = path.replace("{pid}", "999999999").replace("{word}", "status")
        for method in ("get", "post", "put", "delete", "patch"):
            status = server.ask(real, "{}" if method != "get" else None, method=method.upper())[0]
            assert (status == 405) == (method not in methods), (path, method, status)
            assert status == 405 or str(status) in methods[method]["responses"], (path, method, status)


def test_schemathesis(serve, database, tmp_path):
    """Thousands of requests drawn from the document: each answer is one that it names, and what is wrong is refused."""
    python = subprocess.run([os.path.join(os.path.dirname(__file__), "../../.ci/engines-venv.sh")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    st = os.path.join(os.path.dirname(python.stdout.decode().strip()), "schemathesis")
    if python.returncode or not os.access(st, os.X_OK):
        pytest.skip("no schemathesis (.ci/engines-venv.sh)")
    server = serve(database)
    done = subprocess.run([st, "run", "http://%s/openapi.json" % server.where, "-H", "Authorization: Bearer " + TOKEN, "--max-examples", "20", "--no-color",
                           "--seed", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=str(tmp_path), timeout=300)
    assert done.returncode == 0, done.stdout.decode()[-4000:]
