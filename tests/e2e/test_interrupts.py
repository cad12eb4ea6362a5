# SPDX-License-Identifier: Apache-2.0
"""A signal that comes between a program's check for signals and its wait still ends the wait. A library that is loaded with the program
raises it at exactly that place."""
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading

import pytest
from conftest import wait_until_gone
from test_serve import ENDLESS, TOKEN
from test_record_terminal import Terminal

# Raises the signal $RAISE once, at the place $AT (a place in SQL: where the text contains $SQL).
LIBRARY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void at(const char *place) {
    static int done;
    const char *want = getenv("AT");
    if (!done && want && strcmp(want, place) == 0) {
        done = 1;
        raise(atoi(getenv("RAISE")));
    }
}
static void wait_of(struct pollfd *fds, nfds_t n) {
    if (n && (fds[0].fd == 0 || fds[0].fd == 1))
        at(fds[0].fd ? "output" : "key");
}
int poll(struct pollfd *fds, nfds_t n, int ms) {
    wait_of(fds, n);
    return REAL(poll)(fds, n, ms);
}
int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask) {
    wait_of(fds, n);
    return REAL(ppoll)(fds, n, t, mask);
}
int fflush(FILE *f) {
    if (f == stdout && __fpending(f))
        at("output");
    return REAL(fflush)(f);
}
ssize_t read(int fd, void *buf, size_t n) {
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode))
        at("pipe");
    return REAL(read)(fd, buf, n);
}
int sigaction(int sig, const struct sigaction *act, struct sigaction *old) {
    if (sig == SIGINT && act && act->sa_handler == SIG_DFL)
        at("let go");
    int rc = REAL(sigaction)(sig, act, old);
    if (sig == SIGINT && act && act->sa_handler != SIG_DFL)
        at("caught");
    return rc;
}
int pthread_sigmask(int how, const sigset_t *set, sigset_t *old) {
    int rc = REAL(pthread_sigmask)(how, set, old);
    if (how == SIG_BLOCK && set && sigismember(set, SIGQUIT))
        at("blocked");
    return rc;
}
int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
                char *const argv[], char *const env[]) {
    if (argv[1] && strcmp(argv[1], "report") == 0)
        at("report");
    return REAL(posix_spawn)(pid, path, actions, attr, argv, env);
}
int sqlite3_prepare_v2(void *db, const char *sql, int n, void **st, const char **rest) {
    const char *some = getenv("SQL");
    if (some && sql && strstr(sql, some))
        at("sql");
    return ((int (*)(void *, const char *, int, void **, const char **))dlsym(RTLD_NEXT, "sqlite3_prepare_v2"))(db, sql, n, st, rest);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    d = tmp_path_factory.mktemp("raises")
    (d / "raises.c").write_text(LIBRARY)
    subprocess.check_call(["cc", "-w", "-O1", "-shared", "-fPIC", "-o", d / "raises.so", d / "raises.c", "-ldl"])
    return str(d / "raises.so")


@pytest.fixture
def at(library):
    """at(place): returns the environment of a program that gets the signal there."""
    def make(place, sig=signal.SIGINT, **more):
        return dict(os.environ, LD_PRELOAD=library, AT=place, RAISE=str(int(sig)), TERM="xterm", **more)

    return make


@pytest.fixture(scope="module")
def trace(build, tmp_path_factory):
    d = tmp_path_factory.mktemp("recorded")
    program = "import time\nwhile time.process_time() < 0.5: sum(range(1000))"
    subprocess.check_call([build.tool("probing-record"), "-q", "-r", "100", "-o", d / "t.zst", sys.executable, "-c", program])
    return d / "t.zst"


@pytest.fixture
def terminal(tmp_path):
    started = []

    def start(cmd, env):
        started.append(Terminal(cmd, tmp_path, env))
        return started[-1]

    yield start
    for t in started:
        t.close()


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM], ids=lambda sig: sig.name)
def test_top_ends(build, trace, at, terminal, sig):
    t = terminal([build.tool("probing"), "top", "--interval", "3600", trace], at("key", sig))
    assert t.wait() == 0 and b"q quit" in t.seen


def test_top_has_the_new_size(build, trace, at, terminal):
    """`top` notices that its window got another size while it drew; and Ctrl-L draws again."""
    wide = "stty columns 132; exec %s top --interval 3600 %s" % (build.tool("probing"), trace)
    t = terminal(["bash", "-c", wide], at("key", signal.SIGWINCH))
    t.read_until(rb"q quit(?s:.)*q quit")
    fcntl.ioctl(t.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 5, 80, 0, 0))  # the kernel sends SIGWINCH
    t.read_until(rb"q quit")
    t.type(b"\f")
    t.read_until(rb"q quit")
    t.type(b"q")
    assert t.wait() == 0


@pytest.mark.pythons(min=(3, 12), count=1)
def test_watch_ends_where_nobody_reads(build, spawn, python, tmp_path, at):
    """Standard output is full, and Ctrl-C comes just before the write that would wait."""
    (tmp_path / "p.py").write_text("import time\nprint('up', flush=True)\nwhile True:\n    time.sleep(0.01)\n")
    target = spawn([python.path, tmp_path / "p.py"], ready="up")
    r, w = os.pipe()
    os.set_blocking(w, False)
    while True:
        try:
            os.write(w, b"x" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(w, True)
    watch = spawn([build.tool("probing"), "-t", target.pid, "watch", "p.py:4"], stdout=w, stderr=subprocess.PIPE, env=at("output"))
    os.close(w)
    said = watch.communicate(timeout=240)[1]
    os.close(r)
    assert watch.returncode == 0 and b"watching" in said and b"ran 0 times" not in said, said


@pytest.mark.pythons(count=1)
def test_a_process_that_is_recorded_just_then(build, run, spawn, python, tmp_path, at):
    """Ctrl-C while the agent is loaded: the recording ends, and what was recorded is written."""
    target = spawn([python.path, "-c", "import time\nprint('up', flush=True)\nwhile True: sum(range(1000))"], ready="up")
    done = run([build.tool("probing"), "record", "-p", target.pid, "-o", tmp_path / "t.zst"], env=at("blocked"))
    assert "recorded in" in done.stderr and (tmp_path / "t.zst").exists()
    assert run([build.tool("probing"), "list", "--json"], check=1).stdout == "[]\n"


def test_a_statement_that_is_about_to_begin(build, trace, at, terminal, tmp_path):
    t = terminal([build.tool("probing-query"), trace], at("sql", SQL="UNION ALL SELECT i + 1", HOME=str(tmp_path)))
    t.read_until(rb"probing> ")
    t.type(ENDLESS.encode() + b";\n")
    t.read_until(rb"interrupted")
    t.type(b"SELECT 6 * 7 AS answer;\n")
    t.read_until(rb"42")
    t.type(b"\\q\n")
    assert t.wait() == 0


def test_a_query_whose_traces_are_just_read(build, run, trace, at):
    """At the end of the conversion, when the conversion itself no longer checks for signals."""
    assert run([build.tool("probing-query"), trace, ENDLESS], env=at("let go"), check=None).returncode == -signal.SIGINT


def test_a_conversion_behind_its_samples(build, run, trace, at, tmp_path):
    done = run([build.tool("probing-convert"), trace, tmp_path / "out.db"], env=at("sql", SQL="INTO period"), check=3)
    assert "interrupted" in done.stderr and os.listdir(str(tmp_path)) == ["run"]


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT], ids=lambda sig: sig.name)
def test_a_page_that_is_being_written(build, run, trace, at, tmp_path, sig):
    """The command ends by the signal and removes its unfinished page; an older file of that name stays."""
    report = [build.tool("probing"), "report", "-o", tmp_path / "page.html", trace]
    run(report)
    before = (tmp_path / "page.html").read_bytes()
    done = run(report, env=at("sql", sig, SQL="FROM loss l GROUP BY"), check=-sig)
    assert sorted(os.listdir(str(tmp_path))) == ["page.html", "run"] and (tmp_path / "page.html").read_bytes() == before, done.stderr


def test_a_page_for_which_there_is_no_room(build, run, convert, trace, tmp_path):
    db = convert(trace, out=tmp_path / "out.db")
    done = run(["prlimit", "--fsize=20000", build.tool("probing"), "report", "-o", tmp_path / "page.html", db], check=3)
    assert "File too large" in done.stderr and sorted(os.listdir(str(tmp_path))) == ["out.db", "run"], done.stderr


def test_a_pipe_that_always_brings_more(build, at, tmp_path):
    convert = subprocess.Popen([build.tool("probing-convert"), "-", str(tmp_path / "out.db")], stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=at("pipe"))
    ended = threading.Event()

    def feed():
        while not ended.wait(0.02):
            try:
                os.write(convert.stdin.fileno(), b"x" * 100)
            except BrokenPipeError:
                return

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        assert convert.wait(240) == 3 and b"nterrupted" in convert.stderr.read()
    finally:
        convert.kill()
        convert.wait()
        ended.set()
        feeder.join()
        convert.stdin.close()
        convert.stderr.close()
    assert os.listdir(str(tmp_path)) == ["run"]


def test_a_command_elsewhere(build, run, at):
    """A command that asks a server which never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = "127.0.0.1:%d" % server.getsockname()[1]
        run([build.tool("probing"), "-t", where, "list"], env=at("caught", PROBING_TOKEN=TOKEN), check=130)


def test_a_report_of_a_cluster(build, run, spawn, trace, at, tmp_path):
    (tmp_path / "served").mkdir()
    shutil.copy(str(trace), str(tmp_path / "served"))
    server = spawn([build.tool("probing"), "serve", "-l", "127.0.0.1:0", tmp_path / "served"], env=dict(os.environ, PROBING_TOKEN=TOKEN))
    where = server.stdout.readline().decode().split("//")[1].split("/")[0]
    (tmp_path / "tmp").mkdir()
    env = at("report", PROBING_TOKEN=TOKEN, TMPDIR=str(tmp_path / "tmp"))
    done = run([build.tool("probing"), "cluster", "--nodes", where, "report", "-o", tmp_path / "page.html"], env=env, check=130)
    assert not (tmp_path / "page.html").exists() and os.listdir(str(tmp_path / "tmp")) == [], done.stderr
    wait_until_gone(str(tmp_path / "page.html"))
