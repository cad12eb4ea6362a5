# SPDX-License-Identifier: Apache-2.0
"""`probing serve`: SQL and commands over HTTP, who may ask and how much; `probing -t HOST:PORT`; PROBING_PORT."""
import csv
import http.client
import io
import json
import os
import re
import select
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
from conftest import wait_until_gone
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
        """Returns (status, headers, bytes)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=240)
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
    program = "import time\nwhile time.process_time() < 1: sum(range(1000))"
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
    # what cannot be written is no success; and standard output that is closed is not the connection
    env = dict(os.environ, PROBING_TOKEN=TOKEN)
    for to in (">&-", "> /dev/full"):
        done = run(["sh", "-c", '"$@" ' + to, "sh", build.tool("probing"), "-t", server.where, "list", "--json"], check=3, env=env)
        assert done.stderr.count("\n") == 1 and "cannot write to standard output" in done.stderr
    # a large answer: streamed, complete, in order
    status, headers, body = server.query(ROWS % 300000)
    rows = json.loads(body)
    assert headers.get("transfer-encoding") == "chunked" and len(rows) == 300000 and rows[-1] == {"i": 300000, "t": "row 300000", "half": 150000.0}
    assert server.query("SELECT 1 AS one WHERE 0")[2] == b"[]\n"
    # Arrow: a schema, batches, an end
    status, headers, body = server.query(sql, format="arrow")
    assert status == 200 and headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert body.startswith(b"\xff\xff\xff\xff") and body.endswith(b"\xff\xff\xff\xff\0\0\0\0") and wanted[0]["func"].encode() in body
    status, headers, body = server.query(ROWS % 300000, format="arrow")
    assert headers.get("transfer-encoding") == "chunked" and b"row 300000" in body
    with pytest.raises(http.client.IncompleteRead):  # an error that comes too late for a status interrupts the answer
        server.query("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 9000) SELECT iif(x < 8500, x, 'late') AS v FROM c", format="arrow")
    # words of the original Probing are accepted, too
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
    # a request from another site's page, and a foreign name that leads to this address
    for host in ("evil.example", "evil.example:%d" % server.port, "127.0.0.1.evil.example"):
        assert server.ask("/api/v1/info", Host=host)[0] == 403
    for origin in ("http://evil.example", "null", "https://127.0.0.1:%d" % server.port, "http://127.0.0.1:1"):
        assert server.ask("/api/v1/info", Origin=origin)[0] == 403, origin
    assert server.ask("/api/v1/info", Origin="http://127.0.0.1:%d" % server.port)[0] == 200
    assert "access-control-allow-origin" not in server.ask("/api/v1/info", Origin="http://127.0.0.1:%d" % server.port)[1]


@pytest.mark.parametrize("text", ["", "\n", "\n" + TOKEN, " " + TOKEN, "too-short\n", "sixteen letters?" * 2])
def test_a_token_file_without_a_token(build, run, database, tmp_path, text):
    """A server with an empty token would answer everybody."""
    (tmp_path / "token").write_text(text)
    said = run([build.tool("probing"), "serve", "-l", "127.0.0.1:0", "--token-file", tmp_path / "token", database], check=2 if text else 3, timeout=60).stderr
    assert ("its first line is not 16 to 199 letters" if text else "it is empty") in said


def test_names_of_this_machine(serve, spawn, build, tmp_path):
    """On an address that others can reach, the server accepts the names of this machine, those of --host-name, and no others. On the
    loopback address alone it does not even accept the machine's name, by which nobody would call it."""
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n127.0.1.1 node7.cluster.test node7\n")
    inside = "mount --bind %s/hosts /etc/hosts && hostname node7 && exec %s serve -l $0:0 --host-name door.test,Gate.test" % (tmp_path, build.tool("probing"))
    for listen, ours in (("0.0.0.0", True), ("127.0.0.1", False)):
        process = spawn(["unshare", "--uts", "--mount", "sh", "-c", inside, listen], stderr=subprocess.PIPE, env=dict(os.environ, PROBING_TOKEN=TOKEN))
        line = process.stdout.readline().decode()
        if "token=" not in line:
            pytest.skip("no namespaces here: " + process.stderr.read().decode().strip())
        server = Server(process, line)
        for name in ("node7", "NODE7.cluster.test", "node7.cluster.test:%d" % server.port):
            assert server.ask("/api/v1/info", Host=name)[0] == (200 if ours else 403), (listen, name)
        for name in ("door.test", "gate.test:1", "localhost"):
            assert server.ask("/api/v1/info", Host=name)[0] == 200, (listen, name)
        for name in ("node7.evil.example", "door.test.evil.example", "test", "cluster.test", ",", "", "door.test,Gate.test"):
            assert server.ask("/api/v1/info", Host=name)[0] == 403, (listen, name)
        for address in ("10.1.2.3", "[fd00::1]:80"):
            assert server.ask("/api/v1/info", Host=address)[0] == (200 if ours else 403), (listen, address)


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
    assert server.ask("/api/v1/info")[0] == 200  # the server still answers


def test_time_and_a_client_that_leaves(serve, database):
    """A query that never ends is stopped by its timeout, or when its client is gone; then all connections are free again."""
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


def test_time_includes_what_is_read(serve, build, spawn, tmp_path):
    """For a recording that goes on: asking the process and reading its trace takes longer than a millisecond, whatever the question is."""
    spawn([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", sys.executable, "-c", PROGRAM], ready="up")
    server = serve()
    wait_until(lambda: server.query("SELECT count(*) AS n FROM trace", live=True)[0] == 200)
    status, _, body = server.query("SELECT 1 AS n", timeout=0.001, live=True)
    assert (status, json.loads(body)["error"]) == (408, "the query took longer than its timeout")
    short = serve("--timeout", "0.001")
    for name in ("stacks", "report"):
        status, _, body = short.ask("/api/v1/%s?live=1" % name)
        assert (status, json.loads(body)["error"]) == (408, name + " took longer than its timeout")
    status, _, body = server.query("SELECT count(*) AS n FROM trace", live=True)
    assert status == 200 and json.loads(body)[0]["n"] == 1


def test_arrow_of_what_is_being_recorded(serve, database, build, spawn, tmp_path):
    """Arrow's bytes have NULs among them: an answer that another program makes is passed on to its end."""
    spawn([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", sys.executable, "-c", PROGRAM], ready="up")
    sql, opened, live = "SELECT 1.5 AS a, 'text' AS b", serve(database), serve()
    wait_until(lambda: live.query(sql)[0] == 200)
    answer = opened.query(sql, format="arrow")[2]
    assert len(answer) > 100 and live.query(sql, format="arrow")[2] == answer == opened.query(sql, format="arrow", live=True)[2]


@pytest.mark.parametrize("sql, status", [
    # a value of which SQLite may make no copy, as both take more memory than the server allows
    ("SELECT mode(printf('%.*c', 400000000, 'a')) AS a", 413), ("SELECT string_agg(printf('%.*c', 400000000, 'a'), ',' ORDER BY 1) AS a", 413),
    # tables that read each other, one call of SQLite within the other
    ("WITH " + ", ".join("a%d AS (SELECT * FROM a%d)" % (i, i + 1) for i in range(20000)) + " SELECT * FROM a0", 409),
    ("WITH " + ", ".join("a%d AS (SELECT DISTINCT x FROM a%d ORDER BY x LIMIT 5)" % (i, i + 1) for i in range(900)) + ", a900 AS (SELECT 1 AS x) SELECT * FROM a0", 200),
    ("SELECT substr_index('a.b', '.', -9223372036854775808) AS a", 200)], ids=["mode", "ordered", "tables", "less tables", "substr_index"])
def test_no_query_ends_the_server(serve, database, sql, status):
    server = serve(database)
    assert server.query(sql)[0] == status
    assert server.query("SELECT 1 AS a")[0] == 200 and server.process.poll() is None


def test_more_traces_than_a_thousand(build, spawn, database, tmp_path):
    """All traces that it was started with are listed, and asked by the commands."""
    for i in range(1100):
        shutil.copy(str(database.parent / "t.zst"), str(tmp_path / ("%d.zst" % i)))
    process = spawn([build.tool("probing"), "serve", "-l", "127.0.0.1:0"] + sorted(tmp_path.glob("*.zst")), stderr=subprocess.DEVNULL,
                    env=dict(os.environ, PROBING_TOKEN=TOKEN))
    server = Server(process, process.stdout.readline().decode())
    assert len(json.loads(server.ask("/api/v1/traces")[2])) == 1100


def test_a_temporary_database_is_not_opened_by_its_name(serve, database):
    """Without a cache the traces are converted into a file whose name is removed at once, and others may make a file of that name."""
    server = serve(database.parent / "t.zst", PROBING_CACHE_DIR="")
    assert server.query("SELECT count(*) AS n FROM trace")[0] == 200
    server.process.terminate()
    assert server.process.communicate(timeout=240)[1] == b""


def hold(server, clients):
    """That many clients ask for rows and never read them. Returns them, once each connection to the database is one of theirs."""
    held, begun = [], set()
    for _ in range(clients):
        s = socket.create_connection(("127.0.0.1", server.port))
        text = json.dumps({"sql": ROWS % 1000000000})
        s.sendall(("POST /api/v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" % (TOKEN, len(text), text)).encode())
        held.append(s)
    while len(begun) < 8:  # whichever client comes first: each has a thread there
        for s in select.select([s for s in held if s not in begun], [], [], 240)[0]:
            assert s.recv(12).startswith(b"HTTP/1.1 200")
            begun.add(s)
    return held


def test_the_wait_for_a_connection_has_an_end(serve, database):
    """All connections to the database are taken for a minute: a query that may take a tenth of a second is refused before that."""
    server = serve("--timeout", "60", database)
    held = hold(server, 8)
    status, _, body = server.query("SELECT 1 AS a", timeout=0.1)
    assert (status, json.loads(body)["error"]) == (503, "as many queries run as may (8), and none has ended within 2.1 s")
    for s in held:
        s.close()
    wait_until(lambda: server.query("SELECT 1 AS a")[0] == 200)


def test_clients_that_take_no_answer(serve, database):
    """More clients than there are connections to the database ask for rows and never read them: others are answered after the timeout."""
    server = serve("--timeout", "3", database)  # two seconds more than needed, so that an answer has begun even on a busy machine
    held = hold(server, 20)
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
        wait_until(lambda: server.query("SELECT 1 AS a")[0] == 200)  # 503 while those come first that asked before
    finally:
        stop.set()
        thread.join()
        for s in held:
            s.close()


@pytest.mark.slow
def test_strangers_hold_no_connection(serve, database):
    """Clients without a token take all connections, ask for what needs none, and read a byte now and then: the others are served after a
    while."""
    server = serve(database)
    held = []
    for _ in range(100):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        s.connect(("127.0.0.1", server.port))
        s.setblocking(False)
        try:
            s.send(b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 3000)
        except BlockingIOError:
            pass
        held.append(s)
    status, tries = None, 0
    while status != 200:
        tries += 1
        assert tries < 120
        for s in held:
            try:
                s.recv(1)
            except OSError:
                pass
        try:
            status = server.query("SELECT 1 AS a")[0]
        except OSError:
            time.sleep(0.5)


def test_many_and_slow_clients(serve, database):
    """500 connections that never send a complete request: their number is limited, and they are closed after a while; then others are
    served again."""
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
    served = None
    while served != 200:  # the slow clients go on meanwhile
        for s in held:
            try:
                s.send(b"x")
            except OSError:
                s.close()
        try:
            served = server.query("SELECT 1 AS a")[0]
        except OSError:  # the highest number of connections is reached
            time.sleep(0.5)


def test_eight_clients(serve, database):
    server = serve(database)
    wanted, wrong = json.loads(server.query("SELECT func, seconds FROM hot_functions")[2]), []

    def client(n):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=240)
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
    def call(server, *args, control=False, check=True, more={}, **kw):
        env = dict(os.environ, PROBING_TOKEN=TOKEN, **more)
        if control:
            env["PROBING_CONTROL_TOKEN"] = CONTROL
        words = list(args)
        if words[0] == "eval":  # a busy machine needs more than ten seconds
            words[2:2] = ["--timeout", "200"]
        return run([build.tool("probing"), "-t", server.where] + words, env=env, check=check, **kw)

    return call


def test_remote_commands(serve, remote, target, build, run, tmp_path):
    """Whatever the command prints there is printed here: output, errors and exit code."""
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
    assert run([build.tool("probing"), "eval", pid, "--timeout", "200", "1 + 1"], env=env).stdout == "2\n"
    remote(server, "stop", pid, control=True)
    assert "nothing is being recorded" in remote(server, "list", check=1).stderr
    assert "no such" in remote(server, "frobnicate", pid, check=3).stderr
    assert target.poll() is None


def test_control_needs_its_token(serve, remote, target, build, run, tmp_path):
    server, closed, pid = serve("--allow-control"), serve(), str(target.pid)
    for command in (["eval", pid, "1"], ["inject", pid], ["stop", pid], ["config", pid, "probing.native=0"], ["watch", pid, "program.py:4"]):
        assert "control token" in remote(server, *command, check=3).stderr
        assert "--allow-control" in remote(closed, *command, control=True, check=3).stderr
        status, _, _ = closed.ask("/api/v1/command", {"command": command[0], "pid": target.pid, "args": command[2:]})
        assert status == 403
    # a cookie is not enough, because a browser sends it by itself
    status, _, _ = server.ask("/api/v1/command", {"command": "eval", "pid": target.pid, "args": ["1"]}, token=None, Cookie="probing_token=" + CONTROL)
    assert status == 401
    # no option that names a file of that machine is accepted
    out = tmp_path / "out"
    for args in (["flamegraph", pid, "-o", out], ["flamegraph", pid, "--output=%s" % out], ["flamegraph", pid, "-o%s" % out], ["backtrace", pid, "--core", "x"],
                 ["query", pid, "-f", "/etc/passwd"], ["query", pid, "--file=/etc/pass wd", "SELECT 1"], ["query", pid, "-f /etc/passwd", "SELECT 1"],
                 ["query", pid, "/etc/passwd", "SELECT 1"], ["backtrace", pid, "--stop"], ["backtrace", pid, "--color", "--stop"],
                 ["backtrace", pid, "--color", "--exe=x"], ["list", "/etc"]):
        assert "may not be used" in remote(server, *args, check=3).stderr, args
    assert not out.exists()
    for args in (["--color"], ["--color=never", "--main"], ["--color", "--json"]):
        assert remote(server, "backtrace", pid, *args).stdout, args
    for body in ({}, {"command": "list", "args": "x"}, {"command": "list", "args": [1]}, {"command": "status"}, {"command": "status", "pid": -1},
                 {"command": "status", "pid": 1.5}, {"command": "status", "pid": "1"}, {"command": "status", "pid": 1000000000}, {"command": "top", "pid": 0},
                 {"command": "list", "pid": "1"}, {"command": "rm"}):
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
    """Values are printed as they come; Ctrl-C here ends the watch there."""
    (tmp_path / "program.py").write_text(PROGRAM.replace("while True: time.sleep(.01)", "n = 0\n    while True:\n        n += 1\n        time.sleep(.01)"))
    target = spawn([python.path, tmp_path / "program.py"], ready="up")
    server = serve("--allow-control")
    env = dict(os.environ, PROBING_CONTROL_TOKEN=CONTROL)
    watch = spawn([build.tool("probing"), "-t", server.where, "watch", target.pid, "program.py:7", "n", "--json"], env=env, stderr=subprocess.PIPE)
    assert json.loads(watch.stdout.readline())["values"]["n"] > 0
    watch.send_signal(signal.SIGINT)
    assert watch.wait(240) == 0

    def gone():
        done = subprocess.run([build.tool("probing"), "-t", str(target.pid), "eval", "import sys; '_probing_watch' in sys.modules"], stdout=subprocess.PIPE)
        return done.stdout == b"False\n"
    wait_until(gone)


def test_no_proxy_is_asked(serve, remote):
    """The token is sent only to the server that was named, whatever proxy a shell has set for web pages."""
    server = serve()
    proxy = socket.socket()
    proxy.bind(("127.0.0.1", 0))
    proxy.listen(1)
    url = "http://127.0.0.1:%d" % proxy.getsockname()[1]
    for name in ("http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        assert "nothing is being recorded" in remote(server, "list", check=1, more={name: url}).stderr
    proxy.setblocking(False)
    with pytest.raises(BlockingIOError):
        proxy.accept()
    proxy.close()


def test_places(serve, build, run, spawn, database, tmp_path):
    """A socket in the file system, TLS, a port that is taken, and a server that does not exist."""
    path = tmp_path / "s"
    server = spawn([build.tool("probing"), "serve", "--socket", path, database])
    assert server.stdout.readline().decode() == "%s\n" % path and path.stat().st_mode & 0o777 == 0o600
    s = socket.socket(socket.AF_UNIX)
    s.connect(str(path))
    s.sendall(b"GET /api/v1/info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"200 OK" in s.recv(4096)
    server.kill()  # and leaves its socket file behind
    server.wait()
    server = spawn([build.tool("probing"), "serve", "--socket", path, database])
    assert server.stdout.readline()
    server.terminate()
    assert server.wait(240) == 0 and not path.exists()
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
def certificate(tmp_path):
    """Returns the files (certificate, key) of a new certificate for 127.0.0.1."""
    cert, key = tmp_path / "c.pem", tmp_path / "k.pem"
    subprocess.check_call(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                           "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], stderr=subprocess.DEVNULL)
    return cert, key


def test_tls(build, run, spawn, tmp_path):
    cert, key = certificate(tmp_path)
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
    """A server runs beside the recording for as long as that goes on; the server of another recording takes the next port."""
    free = socket.socket()
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]  # it is taken, so the server gets one of the next
    env = dict(os.environ, PROBING_PORT=str(port), PROBING_TOKEN=TOKEN)
    recorder = spawn([build.tool("probing-record"), "-o", tmp_path / "t.zst", sys.executable, "-u", "-c", PROGRAM], env=env, stderr=subprocess.PIPE)
    line = recorder.stderr.readline().decode()
    server = Server(None, line)
    assert line.startswith("probing-record: asked at http://127.0.0.1:") and port < server.port <= port + 63
    wait_until(lambda: len(json.loads(server.ask("/api/v1/recordings")[2] or "[]")) == 1)
    recorder.terminate()
    recorder.wait(240)
    wait_until_gone(os.environ["PROBING_RUN_DIR"])  # the server ends with its recording
    done = subprocess.run([build.tool("probing-record"), "-q", "-o", tmp_path / "u.zst", sys.executable, "-c", "print(1)"],
                          env=dict(env, PROBING_PORT="no.such.host.invalid:1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0 and done.stdout == b"1\n" and b"cannot listen" in done.stderr
    wait_until_gone(os.environ["PROBING_RUN_DIR"])  # the server ends with its recording
