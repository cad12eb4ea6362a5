# SPDX-License-Identifier: Apache-2.0
"""`probing cluster` asks one question to many servers. Many servers are simulated by one program whose answers follow from their numbers
(tests/programs/many_servers.c); a few are real ones."""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time

import pytest
from test_serve import PROGRAM, TOKEN, Server, certificate
from test_console import wait_until
from test_torch import find_torch

TOKENS = {"PROBING_TOKEN": TOKEN}
COULD_NOT = "no answer from %s: Could(n't| not) connect"  # libcurl's own words, which differ from version to version


@pytest.fixture
def many(build, spawn):
    """many(n, bad) -> addresses of n simulated servers"""
    def start(n, bad=0):
        process = spawn([build.root / "tests" / "programs" / "many_servers", n, TOKEN, bad])
        ports = [process.stdout.readline().decode().strip() for _ in range(n)]
        assert process.stdout.readline() == b"up\n"
        return ["127.0.0.1:" + port for port in ports]
    return start


@pytest.fixture
def cluster(build, run, tmp_path, monkeypatch):
    monkeypatch.setenv("PROBING_CLUSTER", str(tmp_path / "attached"))

    def call(*args, check=True, env=TOKENS, **kw):
        return run([build.tool("probing"), "cluster"] + list(args), check=check, env=dict(os.environ, **env), **kw)
    return call


def test_a_thousand(cluster, many):
    """All answer with the values of their nodes, and their times are on one clock. How long it took is printed."""
    nodes = many(1000)
    assert "1000 hosts attached" in cluster("attach", ",".join(nodes)).stderr
    began = time.monotonic()
    done = json.loads(cluster("query", "--json", "--timeout", "100", "SELECT whatever").stdout)
    took = time.monotonic() - began
    print("1000 servers asked in %.2f s" % took)
    assert done["failed"] == []
    rows = done["rows"]
    assert [r["node"] for r in rows] == nodes and [r["rank"] for r in rows] == list(range(1000))
    assert all(r["square"] == r["rank"] ** 2 and r["big"] == 9007199254740993 + r["rank"] for r in rows)
    # The clocks are wrong by -3 to 3 s; the remaining difference is at most the stated uncertainty.
    clocks = json.loads(cluster("nodes", "--json", "--timeout", "100").stdout)
    for i, c in enumerate(clocks):
        assert c["host"] == "node%d" % i and c["error"] is None
        assert abs(c["clock_offset"] - (i % 7 - 3)) <= c["clock_uncertainty"] + 1e-6
    # One question that returns all rows
    sums = cluster("query", "--csv", "--timeout", "100", "--over", "SELECT count(*) AS n, sum(square) AS s, count(DISTINCT node) AS nodes FROM answers", "SELECT 1").stdout
    assert sums.split() == ["n,s,nodes", "1000,%d,1000" % sum(i * i for i in range(1000))]
    stacks = json.loads(cluster("stacks", "--json", "--timeout", "100").stdout)
    assert stacks["failed"] == [] and stacks["stacks"]["by"] == "rank" and stacks["stacks"]["ranks"] == "0-999"
    [outer] = stacks["stacks"]["children"]
    assert outer["frame"] == "f0" and sorted((c["frame"], c["count"]) for c in outer["children"]) == [("f0", 334), ("f1", 333), ("f2", 333)]


def test_times_on_one_clock(cluster, many):
    """The same moment according to seven clocks: their differences are at most the uncertainty of the connections, which `nodes` reports."""
    nodes = many(14)
    # The uncertainty of each answer is at most half the time that the whole question took.
    began = time.time()
    rows = json.loads(cluster("query", "--json", "--nodes", ",".join(nodes), "SELECT 1").stdout)["rows"]
    most = time.time() - began
    assert len(rows) == 14 and all(abs(r["timestamp"] - 1767312000) <= most for r in rows)


def test_bad_servers(cluster, many):
    """Each server that does not answer as it should is named, with the reason; the answers of the others are complete. Nothing that a bad
    server says can control the terminal."""
    nodes = many(12, 7)
    args = ("--nodes", ",".join(nodes), "--timeout", "100", "--max-bytes", "1000000")
    wanted = {nodes[11]: "not what a server of probing's says", nodes[10]: "larger than", nodes[9]: "needs the token",
              nodes[8]: "the server of %s under another name" % nodes[0], nodes[7]: "partial", nodes[6]: "not what a server of probing's says", nodes[5]: "HTTP status 302"}
    done = cluster("query", "--json", *args, "SELECT 1", check=1)
    answer = json.loads(done.stdout)
    failed = {f["node"]: f["error"] for f in answer["failed"]}
    assert failed.keys() == wanted.keys() and all(text in failed[node] for node, text in wanted.items()), failed
    assert [r["rank"] for r in answer["rows"]] == [0, 1, 2, 3, 4]
    assert all(node in done.stderr for node in wanted) and "\x1b" not in done.stderr + done.stdout and not any(n in done.stderr.replace(failed[nodes[8]], "") for n in nodes[:5])
    done = cluster("stacks", "--json", *args, check=1)
    assert json.loads(done.stdout)["stacks"]["ranks"] == "0-4" and {f["node"] for f in json.loads(done.stdout)["failed"]} == set(wanted)
    done = cluster("nodes", "--json", *args, check=1)
    assert {n["node"] for n in json.loads(done.stdout) if n["error"]} == set(wanted)


def test_a_server_that_never_answers(cluster, many):
    never = many(8, 8)[0]
    done = cluster("query", "--json", "--nodes", never, "--timeout", "1", "SELECT 1", check=3)
    assert json.loads(done.stdout) == {"rows": [], "failed": [{"node": never, "error": "no answer within 1 s (--timeout)"}]}


def test_dead_and_wrong(cluster, many, tmp_path):
    """A dead host, a wrong token, no token, no list, and names that do not exist."""
    free = socket.socket()
    free.bind(("127.0.0.1", 0))
    dead = "127.0.0.1:%d" % free.getsockname()[1]
    [node] = many(1)
    done = cluster("query", "--nodes", "%s,%s" % (node, dead), "--csv", "SELECT 1", check=1)
    assert re.search(COULD_NOT % dead, done.stderr) and "no answer from %s" % node not in done.stderr and done.stdout.count(node) == 1
    assert re.search(COULD_NOT % dead, cluster("query", "--nodes", dead, "SELECT 1", check=3).stderr)
    assert "needs the token" in cluster("query", "--nodes", node, "SELECT 1", check=3, env={"PROBING_TOKEN": "another-token-here"}).stderr
    for token in ("", "with blank", "line\nX-More: 1"):
        assert "token" in cluster("query", "--nodes", node, "SELECT 1", check=3, env={"PROBING_TOKEN": token}).stderr
    assert "no host is attached" in cluster("nodes", check=2).stderr
    for bad in ("", ",", "a:b", "a:0", "a:70000", "user:secret@host:1", "-o:1", "ho\x1b[st:1", "[::1:8080"):
        assert cluster("attach", bad, check=2).stderr, bad
    assert not (tmp_path / "attached").exists()
    for args in ([], ["attach"], ["attach", "--slurm"], ["attach", "--torchrun"], ["attach", "a:1", "--slurm"], ["detach"], ["query"], ["query", "a", "b"],
                 ["nodes", "x"], ["report"], ["fetch"], ["frobnicate"], ["nodes", "--parallel", "0"], ["nodes", "--timeout", "x"]):
        assert cluster(*args, check=2).stderr.startswith("probing-cluster: ")
    assert "cannot read the hosts" in cluster("attach", "--hostfile", tmp_path / "none", check=3).stderr


def test_attached_hosts(cluster, many, tmp_path):
    """What is stored, with which token, and who may read the file."""
    nodes, kept = many(3), tmp_path / "attached"
    cluster("attach", "http://%s/?token=%s" % (nodes[0], TOKEN))
    (tmp_path / "tokens").write_text("# of this test\n%s not-this-one-at-all\n%s %s\n127.0.0.2 other-token-of-this\n" % (nodes[0], nodes[1], TOKEN))
    cluster("attach", nodes[1], "--token-file", tmp_path / "tokens")
    assert kept.stat().st_mode & 0o777 == 0o600
    assert [r["node"] for r in json.loads(cluster("query", "--json", "SELECT 1", env={}).stdout)["rows"]] == nodes[:2]
    assert "counts once" in cluster("attach", "%s,%s" % (nodes[2], nodes[2])).stderr
    assert "no token" in cluster("query", "SELECT 1", check=1, env={}).stderr
    assert len(json.loads(cluster("query", "--json", "SELECT 1").stdout)["rows"]) == 3
    kept.rename(tmp_path / "dotfiles")
    kept.symlink_to("dotfiles")
    cluster("detach", nodes[2])
    assert kept.is_symlink() and (tmp_path / "dotfiles").read_text().count("127.0.0.1:") == 2
    assert "is not attached" in cluster("detach", nodes[2], check=1).stderr
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.chmod(0o644)
    assert "chmod 600" in cluster("nodes", check=3).stderr
    kept.chmod(0o600)
    kept.write_text("no:host\n")
    assert "line 1 is no host" in cluster("nodes", check=3).stderr
    kept.write_text("")
    assert "no host is attached" in cluster("nodes", check=2).stderr
    without = {"HOME": "", "XDG_CONFIG_HOME": "", "PROBING_CLUSTER": ""}
    assert "hosts in ?/.config/probing/cluster: No such file" in cluster("attach", nodes[0], env=without, check=3).stderr


def addresses(tmp_path):
    return [line.split()[0] for line in (tmp_path / "attached").read_text().splitlines() if line[0] != "#"]


@pytest.mark.parametrize("nodelist, wanted", [
    ("node7", "node7"), ("a,b", "a b"), ("n[1-3]", "n1 n2 n3"), ("n[08-10,12],gpu1", "n08 n09 n10 n12 gpu1"),
    ("r[1-2]n[3-4]", "r1n3 r1n4 r2n3 r2n4"), ("n[001-002]-ib", "n001-ib n002-ib"),
    ("n[1-", None), ("n[a]", None), ("n[3-1]", None), ("n[1-99999999]", None), ("n[]", None), ("n[1", None)])
def test_slurm(cluster, tmp_path, nodelist, wanted):
    cluster("attach", "--slurm", "--port", "7000", env={"SLURM_JOB_NODELIST": nodelist}, check=0 if wanted else 2)
    assert not wanted or addresses(tmp_path) == [name + ":7000" for name in wanted.split()]


def test_hostfile_and_torchrun(cluster, tmp_path):
    (tmp_path / "hosts").write_text("# of mpirun\nworker-1 slots=8\n\nworker-2:9000 slots=8\n[::1]\n")
    cluster("attach", "--hostfile", tmp_path / "hosts")
    assert addresses(tmp_path) == ["worker-1:8080", "worker-2:9000", "[::1]:8080"]
    cluster("detach", "--all")
    env = {"MASTER_ADDR": "head", "GROUP_WORLD_SIZE": "1"}
    cluster("attach", "--torchrun", env=env)
    assert addresses(tmp_path) == ["head:8080"]
    assert "--hostfile" in cluster("attach", "--torchrun", check=1, env=dict(env, GROUP_WORLD_SIZE="4")).stderr


def test_who_is_attached_in_sql(cluster, build, run, many, tmp_path):
    """cluster.nodes lists the hosts of the traces, and those that are attached."""
    db = tmp_path / "t.db"
    subprocess.check_call([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", sys.executable, "-c", "print(1)"], stdout=subprocess.DEVNULL)
    subprocess.check_call([build.tool("probing-convert"), "-q", tmp_path / "t.zst", db])
    host = sqlite3.connect(str(db)).execute("SELECT host FROM trace").fetchone()[0]
    sql = "SELECT host, traces, address FROM cluster.nodes ORDER BY traces DESC, host"
    assert json.loads(run([build.tool("probing-query"), "--json", db, sql]).stdout) == [{"host": host, "traces": 1, "address": None}]
    cluster("attach", "%s:8080,elsewhere:8080,elsewhere:8081" % host)
    assert json.loads(run([build.tool("probing-query"), "--json", db, sql]).stdout) == [
        {"host": host, "traces": 1, "address": host + ":8080"}, {"host": "elsewhere", "traces": 0, "address": "elsewhere:8080, elsewhere:8081"}]


# ---- with real servers ----


@pytest.fixture
def machine(build, spawn, tmp_path):
    """A server with recordings of its own, as on another machine: machine("a") -> Server. (.recorder)"""
    def start(name, record=True, program=None):
        run_dir = tmp_path / ("run-" + name)
        run_dir.mkdir(mode=0o700)
        env = dict(os.environ, PROBING_RUN_DIR=str(run_dir), PROBING_TOKEN=TOKEN)
        (tmp_path / name).mkdir()
        recorder = record and spawn([build.tool("probing-record"), "-q", "-r", "200", "-o", tmp_path / name / "t.zst", sys.executable, "-u", "-c",
                                     program or PROGRAM.replace("wait_here", "wait_on_" + name)], ready="up", env=env)
        process = spawn([build.tool("probing"), "serve", "-l", "127.0.0.1:0"], env=env)
        server = Server(process, process.stdout.readline().decode())
        server.recorder = recorder
        return server
    return start


def test_running_recordings(cluster, machine, build, run, tmp_path):
    """Two machines with a recording each, and a third without: the answer has the rows, stacks and traces of the two, and names the third."""
    a, b, idle = machine("a"), machine("b"), machine("idle", record=False)
    cluster("attach", ",".join(s.where for s in (a, b, idle)))
    sql = "SELECT func, sum(total) AS n FROM hot_functions WHERE func LIKE 'wait_on%' GROUP BY func"

    def rows():
        done = json.loads(cluster("query", "--json", sql, check=1).stdout)
        assert [f["node"] for f in done["failed"]] == [idle.where] and "nothing is being recorded" in done["failed"][0]["error"]
        return {(r["node"], r["func"]) for r in done["rows"]}
    wait_until(lambda: rows() == {(a.where, "wait_on_a"), (b.where, "wait_on_b")})
    done = cluster("stacks", check=1)
    assert re.search(r"├─ 1 process: \S+ \d+\n│   wait_on_|wait_on_a", done.stdout) and "wait_on_a" in done.stdout and "wait_on_b" in done.stdout
    assert done.stdout.startswith("2 processes: ") and a.where in done.stdout and idle.where not in done.stdout
    done = cluster("fetch", tmp_path / "traces", check=1)
    assert "2 traces" in done.stderr and "no answer from %s: it has no traces" % idle.where in done.stderr
    fetched = sorted(str(p.relative_to(tmp_path / "traces")) for p in (tmp_path / "traces").rglob("*") if p.is_file())
    assert fetched == sorted("%s/t.zst" % s.where.replace(":", "_") for s in (a, b))
    assert {(tmp_path / "traces" / name).stat().st_mode & 0o777 for name in fetched} == {0o600}  # as they were there
    run([build.tool("probing-convert"), "-q", tmp_path / "traces", tmp_path / "all.db"], check=None)
    db = sqlite3.connect(str(tmp_path / "all.db"))
    assert {r[0] for r in db.execute("SELECT func FROM hot_functions WHERE func LIKE 'wait_on%'")} == {"wait_on_a", "wait_on_b"}
    cluster("detach", idle.where)
    (tmp_path / "tmp").mkdir()
    cluster("report", "-o", tmp_path / "report.html", env=dict(TOKENS, TMPDIR=str(tmp_path / "tmp")))
    assert "wait_on_a" in (tmp_path / "report.html").read_text() and "wait_on_b" in (tmp_path / "report.html").read_text()
    assert not list((tmp_path / "tmp").iterdir())
    # The same command again, over its old output: nothing of the first remains
    cluster("fetch", tmp_path / "traces")
    # The same server under two names answers once
    names = "%s,localhost:%d" % (a.where, a.port)
    done = cluster("query", "--json", "--nodes", names, "SELECT 1 AS one", check=1)
    assert len(json.loads(done.stdout)["rows"]) == 1 and "under another name" in done.stderr


DEEP = """
import sys, time
sys.setrecursionlimit(2000)
def deeper(n):
    if n:
        deeper(n - 1)
    print("up", flush=True)
    while True: time.sleep(.01)
deeper(700)
"""


def test_deep_stacks(machine, cluster):
    """Stacks that are deeper than a JSON reader allows objects to nest are merged completely."""
    a = machine("a", program=DEEP)

    def frames():
        return cluster("stacks", "--nodes", a.where, check=None).stdout.count("deeper (")
    wait_until(lambda: frames() == 701)
    flat = json.loads(a.ask("/api/v1/stacks?flat=1")[2])
    assert flat["by"] == "process" and [n["parent"] for n in flat["nodes"]] == [0] + list(range(len(flat["nodes"]) - 1))
    assert sum("deeper (" in n["frame"] for n in flat["nodes"]) == 701
    merged = json.loads(cluster("stacks", "--flat", "--nodes", a.where).stdout)
    nodes = merged["stacks"]["nodes"]
    assert merged["failed"] == [] and sum("deeper (" in n["frame"] for n in nodes) == 701
    assert [n["parent"] for n in nodes] == [0] + list(range(len(nodes) - 1))


def test_nodes_with_tls(build, run, cluster, spawn, tmp_path):
    """https:// stays part of the host's name; a certificate without a known issuer is refused, and the host is named."""
    cert, key = certificate(tmp_path)
    process = spawn([build.tool("probing"), "serve", "-l", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key], env=dict(os.environ, PROBING_TOKEN=TOKEN))
    where = "https://127.0.0.1:%d" % int(re.match(r"https://127.0.0.1:(\d+)/", process.stdout.readline().decode()).group(1))
    trusted = dict(TOKENS, PROBING_CA_FILE=str(cert))
    cluster("attach", where, env=trusted)
    [node] = json.loads(cluster("nodes", "--json", env=trusted).stdout)
    assert node["error"] is None and node["node"] == where
    done = cluster("nodes", "--json", check=3)
    assert "certificate" in json.loads(done.stdout)[0]["error"]


def test_ctrl_c(cluster, many, build, spawn, tmp_path):
    """A question to a server that never answers is given up at once, and the exit status says so."""
    never = many(8, 8)[0]
    process = spawn([build.tool("probing"), "cluster", "query", "--nodes", never, "--timeout", "1000", "SELECT 1"], env=dict(os.environ, **TOKENS))

    def connected():
        inodes = set()
        for fd in os.listdir("/proc/%d/fd" % process.pid):
            with contextlib.suppress(FileNotFoundError):  # the connection was closed meanwhile
                inodes |= set(re.findall(r"^socket:\[(\d+)\]", os.readlink("/proc/%d/fd/%s" % (process.pid, fd))))
        port = ":%04X" % int(never.rsplit(":", 1)[1])
        with open("/proc/net/tcp") as f:
            return any(line.split()[2].endswith(port) and line.split()[3] == "01" and line.split()[9] in inodes for line in f.readlines()[1:])
    wait_until(connected)
    process.send_signal(signal.SIGINT)
    assert process.wait(240) in (-signal.SIGINT, 130) and process.stdout.read() == b""


def test_traces_by_rest(machine, serve_database, tmp_path):
    """The list of traces and their bytes can be fetched; nothing but traces is given out."""
    a = machine("a")
    [trace] = json.loads(a.ask("/api/v1/traces")[2])
    assert trace["name"] == "t.zst" and trace["recording"] is True
    status, headers, body = a.ask("/api/v1/traces/" + trace["id"])
    assert status == 200 and body[:4] == (tmp_path / "a" / "t.zst").read_bytes()[:4] and len(body) >= trace["bytes"] > 0
    for wrong in ("", "x", "..", "../../etc/passwd", "0-0", trace["id"] + "0", "%2e%2e", str(tmp_path / "a" / "t.zst")):
        assert a.ask("/api/v1/traces/" + wrong)[0] == 404, wrong
    assert a.ask("/api/v1/traces", token=None)[0] == 401 and a.ask("/api/v1/traces/" + trace["id"], token="x")[0] == 401
    assert json.loads(serve_database.ask("/api/v1/traces")[2]) == []
    page = a.ask("/api/v1/report")
    assert page[0] == 200 and b"<!-- probing-report -->" in page[2][:500] and page[1]["content-type"].startswith("text/html")


def test_traces_by_rest_of_a_relative_name(build, spawn, tmp_path):
    """`probing serve t.zst`: the server's folder is the one that the name belongs to."""
    subprocess.check_call([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", sys.executable, "-c", "print(1)"], stdout=subprocess.DEVNULL)
    (tmp_path / "link").symlink_to("t.zst")
    for name in ("t.zst", "link", "../%s/t.zst" % tmp_path.name):
        process = spawn([build.tool("probing"), "serve", "-l", "127.0.0.1:0", name], env=dict(os.environ, PROBING_TOKEN=TOKEN), cwd=str(tmp_path))
        server = Server(process, process.stdout.readline().decode())
        [trace] = json.loads(server.ask("/api/v1/traces")[2])
        status, _, body = server.ask("/api/v1/traces/" + trace["id"])
        assert status == 200 and body == (tmp_path / "t.zst").read_bytes(), name


@pytest.fixture
def serve_database(build, spawn, tmp_path):
    subprocess.check_call([build.tool("probing-record"), "-q", "-o", tmp_path / "d.zst", sys.executable, "-c", "print(1)"], stdout=subprocess.DEVNULL)
    subprocess.check_call([build.tool("probing-convert"), "-q", tmp_path / "d.zst", tmp_path / "d.db"])
    process = spawn([build.tool("probing"), "serve", "-l", "127.0.0.1:0", tmp_path / "d.db"], env=dict(os.environ, PROBING_TOKEN=TOKEN))
    return Server(process, process.stdout.readline().decode())


# ---- a job of several ranks, and machines of their own ----

RANK = """
import os, time
def rank_is_here():
    open(os.environ["HERE"] + "/" + os.environ["LOCAL_RANK"], "w").close()
    while True: time.sleep(.01)
rank_is_here()
"""


def four_ranks(cluster, tmp_path, lines, port):
    """Starts four recordings at the same time: each gets a port, the first of them the requested one, and each answers for all four."""
    wait_until(lambda: len(list((tmp_path / "here").iterdir())) == 4)
    found = []

    def said():
        found[:] = [int(p) for p in re.findall(r"asked at http://127.0.0.1:(\d+)/\?token", lines())]
        return len(found) == 4
    wait_until(said)
    assert len(set(found)) == 4 and all(port <= p < port + 64 for p in found), (port, found)
    sql = "SELECT count(DISTINCT rank) AS ranks, count(*) AS traces FROM trace"
    for p in found:
        [row] = json.loads(cluster("query", "--json", "--nodes", "127.0.0.1:%d" % p, sql).stdout)["rows"]
        assert (row["ranks"], row["traces"]) == (4, 4)
    # All four run on one machine, which counts once.
    done = cluster("query", "--json", "--nodes", ",".join("127.0.0.1:%d" % p for p in found), sql, check=1)
    assert len(json.loads(done.stdout)["rows"]) == 1 and done.stderr.count("under another name") == 1 and len(json.loads(done.stdout)["failed"]) == 3
    cluster("attach", "--torchrun", "--port", min(found), env={"MASTER_ADDR": "127.0.0.1", "GROUP_WORLD_SIZE": "1"})
    assert json.loads(cluster("stacks", "--json").stdout)["stacks"]["ranks"] == "0-3"


def free_port():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    return s.getsockname()[1]


@pytest.fixture
def job_env(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "rank.py").write_text(RANK)
    return dict(os.environ, PROBING_PORT=str(free_port()), PROBING_TOKEN=TOKEN, HERE=str(tmp_path / "here"))


@pytest.mark.limit(400)
def test_ports_of_four_ranks(build, spawn, cluster, tmp_path, job_env):
    """With the environment that torchrun gives its workers"""
    files = [open(str(tmp_path / ("said-%d" % r)), "w") for r in range(4)]
    for r in range(4):
        (tmp_path / ("r%d" % r)).mkdir()
        spawn([build.tool("probing-record"), "-r", "100", "-o", tmp_path / ("r%d" % r) / "t.zst", sys.executable, tmp_path / "rank.py"], stderr=files[r],
              env=dict(job_env, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE="4", LOCAL_WORLD_SIZE="4"))
    four_ranks(cluster, tmp_path, lambda: "".join((tmp_path / ("said-%d" % r)).read_text() for r in range(4)), int(job_env["PROBING_PORT"]))


@pytest.mark.slow
def test_ports_under_torchrun(build, spawn, cluster, tmp_path, job_env):
    torch2, why = find_torch("recent")
    if not torch2:
        pytest.skip(why)
    said = open(str(tmp_path / "said"), "w")
    spawn([torch2, "-m", "torch.distributed.run", "--nproc-per-node", "4", "--standalone", "--no-python", build.tool("probing-record"), "-r", "100",
           "-o", tmp_path / "t.zst", torch2, tmp_path / "rank.py"], stderr=said, env=job_env)
    four_ranks(cluster, tmp_path, lambda: (tmp_path / "said").read_text(), int(job_env["PROBING_PORT"]))


@pytest.fixture
def machines(tmp_path):
    """Makes three network namespaces on one bridge, with an address each: [(name, address)]. They are removed at the end."""
    tag = "pb%d" % (os.getpid() % 100000)
    made, names = [], [(tag + "-%d" % i, "10.199.%d.%d" % (os.getpid() % 250, i + 2)) for i in range(3)]

    def ip(*args):
        return subprocess.run(["ip"] + list(args), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, universal_newlines=True)

    def remove():
        for name in reversed(made):
            ip("netns", "del", name)
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and ip(8)")
    steps = [["netns", "add", tag], ["-n", tag, "link", "set", "lo", "up"], ["-n", tag, "link", "add", "br0", "type", "bridge"], ["-n", tag, "link", "set", "br0", "up"],
             ["-n", tag, "addr", "add", names[0][1].rsplit(".", 1)[0] + ".1/24", "dev", "br0"]]
    for i, (name, address) in enumerate(names):
        steps += [["netns", "add", name], ["-n", tag, "link", "add", "v%d" % i, "type", "veth", "peer", "name", "eth0", "netns", name],
                  ["-n", tag, "link", "set", "v%d" % i, "master", "br0", "up"], ["-n", name, "link", "set", "lo", "up"],
                  ["-n", name, "addr", "add", address + "/24", "dev", "eth0"], ["-n", name, "link", "set", "eth0", "up"]]
    for step in steps:
        done = ip(*step)
        if done.returncode:
            remove()
            pytest.skip("no network namespaces here: ip %s: %s" % (" ".join(step), done.stderr.strip()))
        if step[:2] == ["netns", "add"]:
            made.append(step[2])
    yield tag, names
    remove()


@pytest.mark.limit(400)
def test_hosts_in_namespaces(machines, build, run, spawn, cluster, tmp_path):
    """Three hosts with a network each are asked from a fourth: two have a recording, and the cable of one is cut."""
    head, hosts = machines
    env = dict(os.environ, PROBING_TOKEN=TOKEN)
    for i, (name, address) in enumerate(hosts):
        (tmp_path / name / "run").mkdir(parents=True)
        (tmp_path / name / "run").chmod(0o700)
        here = dict(env, PROBING_RUN_DIR=str(tmp_path / name / "run"), PROBING_PORT="0.0.0.0:8080", RANK=str(i), WORLD_SIZE="3")
        spawn(["ip", "netns", "exec", name, build.tool("probing-record"), "-r", "100", "-o", tmp_path / name / "t.zst", sys.executable, "-u", "-c", PROGRAM],
              ready="up", env=here)
    here = ["ip", "netns", "exec", head]

    def ask(*args, check=True):
        return run(here + [build.tool("probing"), "cluster"] + list(args), check=check, env=env)

    def ranks():  # one may have no sample yet
        stacks = json.loads(ask("stacks", "--json", check=None).stdout or "{}").get("stacks")
        return stacks and stacks["ranks"]
    ask("attach", ",".join(address for _, address in hosts))
    wait_until(lambda: ranks() == "0-2")
    rows = json.loads(ask("query", "--json", "SELECT rank FROM trace").stdout)["rows"]
    assert rows == [{"node": address + ":8080", "rank": i} for i, (_, address) in enumerate(hosts)]
    subprocess.check_call(["ip", "-n", head, "link", "set", "v2", "down"])
    cut = hosts[2][1] + ":8080"
    done = ask("query", "--json", "--nodes", cut, "--timeout", "2", "SELECT rank FROM trace", check=3)  # asked alone, because the others may be slow
    assert json.loads(done.stdout) == {"rows": [], "failed": [{"node": cut, "error": "no answer within 2 s (--timeout)"}]}
    assert len(json.loads(ask("query", "--json", "--nodes", ",".join(a for _, a in hosts[:2]), "SELECT rank FROM trace").stdout)["rows"]) == 2
