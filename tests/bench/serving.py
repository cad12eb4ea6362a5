#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`probing serve`: how many answers eight clients get in a second, compared with the same SQL in-process; and what an open page costs while many
processes are recorded. In CPU time of the server and its children, which depends less on how busy the machine is. Part "serving" of make bench (run.py); by hand:

    serving.py BUILD SCRATCH [PROCESSES [SECONDS]]
"""
import http.client
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time

TOKEN = "token-of-this-bench"
CLIENTS = 8
QUESTIONS = ("SELECT func, file, seconds FROM hot_functions LIMIT 20", "SELECT rank, step, duration FROM steps ORDER BY timestamp LIMIT 1000",
             "SELECT rank, count(*) AS n, max(duration) AS longest FROM steps GROUP BY rank")
# As in page.html: the queries for the pictures of steps and loss, and the share of a CPU that they may take
FOLLOW = ("SELECT 'steps' AS picture, * FROM (SELECT step, min(duration) AS low, max(duration) AS high FROM (SELECT step, duration FROM steps "
          "WHERE complete AND step IS NOT NULL ORDER BY timestamp DESC LIMIT 20000) GROUP BY step ORDER BY step DESC LIMIT 400) UNION ALL "
          "SELECT 'loss', step, NULL, high FROM (SELECT step, loss AS high FROM training_logs WHERE loss IS NOT NULL ORDER BY timestamp DESC LIMIT 400)")
SHARES, TOTAL = (.002, .006), .016


class Server:
    def __init__(self, build, env, *args):
        self.process = subprocess.Popen([os.path.join(build, "bin", "probing"), "serve", "-l", "127.0.0.1:0"] + list(args), stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, env=dict(env, PROBING_TOKEN=TOKEN))
        self.port = int(re.search(rb":(\d+)/", self.process.stdout.readline()).group(1))

    def cpu(self):
        """Returns CPU seconds, including those of children that have ended."""
        with open("/proc/%d/stat" % self.process.pid) as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:15])) / os.sysconf("SC_CLK_TCK")

    def client(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def ask(connection, path, body=None):
    connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, {"Authorization": "Bearer " + TOKEN})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status not in (200, 404, 409):
        raise RuntimeError("%s: %d %s" % (path, answer.status, text[:200]))
    return text, float(answer.getheader("X-Probing-CPU", 0))


def queries(build, database, seconds):
    """Returns {served, in_process: (queries a second, queries a CPU second)}."""
    with sqlite3.connect(database) as db:
        begun, cpu, n = time.monotonic(), time.process_time(), 0
        while time.monotonic() - begun < seconds:
            cursor = db.execute(QUESTIONS[n % len(QUESTIONS)])
            names = [c[0] for c in cursor.description]
            json.dumps([dict(zip(names, row)) for row in cursor])
            n += 1
        own = n / (time.monotonic() - begun), n / (time.process_time() - cpu)
    server = Server(build, os.environ, database)
    counts, end = [0] * CLIENTS, time.monotonic() + seconds

    def client(i):
        connection = server.client()
        while time.monotonic() < end:
            ask(connection, "/api/v1/query", {"sql": QUESTIONS[counts[i] % len(QUESTIONS)]})
            counts[i] += 1
    threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
    begun, cpu = time.monotonic(), server.cpu()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    served = sum(counts) / (time.monotonic() - begun), sum(counts) / (server.cpu() - cpu)
    server.stop()
    return {"in_process": own, "served": served}


def following(build, scratch, processes, seconds):
    """Returns percent of one CPU: (without an open page, with its list of recordings, with the whole page: list, steps and loss)."""
    run = os.path.join(scratch, "serving-run")
    shutil.rmtree(run, ignore_errors=True)
    os.makedirs(run, mode=0o700)
    env = dict(os.environ, PROBING_RUN_DIR=run)
    recorders = [subprocess.Popen([os.path.join(build, "bin", "probing-record"), "-q", "-r", "10", "-o", os.path.join(run, "%d.zst" % i), sys.executable, "-S", "-c",
                                   "import time\nwhile True: time.sleep(.1)"], env=env, start_new_session=True) for i in range(processes)]
    server = Server(build, env)
    try:
        shares = []
        while sum(r["state"] == "recording" for r in json.loads(ask(server.client(), "/api/v1/recordings")[0])) < processes:
            time.sleep(1)
        for paths in ((), (("/api/v1/recordings", None),), (("/api/v1/recordings", None), ("/api/v1/query", {"sql": FOLLOW}))):
            for path in paths:  # once, so that there is a database for the next questions
                ask(server.client(), *path)
            begun, cpu = time.monotonic(), server.cpu()
            due, used = [0, 0], [0, 0]
            while time.monotonic() - begun < seconds:
                for i, path in enumerate(paths):  # as often as the page does (page.html, pause())
                    if time.monotonic() >= due[i]:
                        cost = ask(server.client(), *path)[1]
                        pause = max(1, cost / max(SHARES[i], TOTAL - used[1 - i]))
                        used[i] = cost / pause
                        due[i] = time.monotonic() + (pause if i else min(5, pause))
                time.sleep(.1)
            shares.append(100 * (server.cpu() - cpu) / (time.monotonic() - begun))
        return shares
    finally:
        server.stop()
        for r in recorders:
            os.killpg(r.pid, signal.SIGKILL)
            r.wait()
        shutil.rmtree(run, ignore_errors=True)


def measure(build, scratch, processes=64, seconds=20, ranks=8):
    job, database = os.path.join(scratch, "serving-job"), os.path.join(scratch, "serving.db")
    shutil.rmtree(job, ignore_errors=True)
    subprocess.run([os.path.join(build, "tests", "fleet", "probing-fleet"), "--quiet", "--out", job, "--ranks", str(ranks), "--minutes", "0.5"], check=True)
    subprocess.run([os.path.join(build, "bin", "probing-convert"), "-q", "-f", job, database], check=True)
    found = queries(build, database, min(seconds, 20))
    found["following"] = following(build, scratch, processes, seconds)
    shutil.rmtree(job, ignore_errors=True)
    os.unlink(database)
    return found


def main():
    found = measure(os.path.abspath(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:5]))
    for name in ("in_process", "served"):
        print("%-10s %.0f queries a second, %.0f a CPU second" % ((name,) + found[name]))
    print("open page  %.2f %% of a CPU without, %.2f %% its list, %.2f %% with steps and loss" % tuple(found["following"]))


if __name__ == "__main__":
    main()
