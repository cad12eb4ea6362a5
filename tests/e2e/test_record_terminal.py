# SPDX-License-Identifier: Apache-2.0
"""probing-record on a terminal: the program has it, and signals that are typed reach the program as they would without the recorder."""
import os
import pty
import re
import select
import signal
import time

import pytest

from test_tools_record import PY, STEADY, script, state, wait_until

class Terminal:
    """A process on a terminal of its own."""

    def __init__(self, cmd, cwd, env=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(str(cwd))
                os.execvpe(cmd[0], [str(c) for c in cmd], env or os.environ)
            finally:
                os._exit(99)
        self.seen = b""

    def read_until(self, pattern, seconds=240):
        end = time.monotonic() + seconds
        while not re.search(pattern, self.seen):
            if time.monotonic() > end:
                pytest.fail("no %r on the terminal: %r" % (pattern, self.seen))
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    more = os.read(self.fd, 4096)
                except OSError:
                    more = b""
                if not more and not re.search(pattern, self.seen):
                    pytest.fail("the terminal closed before %r: %r" % (pattern, self.seen))
                self.seen += more
        at = re.search(pattern, self.seen).end()
        before, self.seen = self.seen[:at], self.seen[at:]
        return before

    def type(self, text):
        os.write(self.fd, text)

    def wait(self):
        """Waits for the process and returns its exit code; reads what it still writes, so that it does not block."""
        for _ in range(12000):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    self.seen += os.read(self.fd, 4096)
                except OSError:
                    time.sleep(0.05)
        pytest.fail("still running: %r" % self.seen)

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def terminal(tmp_path):
    open_ones = []

    def start(cmd):
        open_ones.append(Terminal(cmd, tmp_path))
        return open_ones[-1]

    yield start
    for t in open_ones:
        t.close()


def test_on_a_terminal(build, tmp_path, terminal):
    t = terminal([build.tool("probing-record"), "-o", tmp_path / "t.zst", PY, "-c",
                  "import sys; print(sys.stdin.isatty(), sys.stdout.isatty(), input('name? '))"])
    t.read_until(rb"name\? ")
    t.type(b"ada\n")
    t.read_until(rb"True True ada\r\n")
    assert t.wait() == 0
    assert b"1 process" in t.seen


def test_ctrl_c_reaches_the_child_once(build, tmp_path, terminal):
    code = """
import os, time
n = 0
end = time.monotonic() + 600
while time.monotonic() < end:
    try:
        print("ready", os.getpid(), flush=True)
        time.sleep(0.7 if n else 60)
        break
    except KeyboardInterrupt:
        n += 1
print("interrupts:", n, flush=True)
raise SystemExit(4)
"""
    t = terminal([build.tool("probing-record"), "-o", tmp_path / "t.zst", PY, script(tmp_path, code)])
    pid = int(re.search(rb"ready (\d+)", t.read_until(rb"ready \d+\r\n")).group(1))
    # If the signal came just before its sleep, CPython would handle it only after the sleep.
    wait_until(lambda: open("/proc/%d/wchan" % pid).read().endswith("nanosleep") or not time.sleep(0.2) and state(pid) == "S", "it sleeps")
    t.type(b"\x03")
    t.read_until(rb"interrupts: 1\r\n")
    assert t.wait() == 4
    assert b"1 process" in t.seen


def test_ctrl_z_and_fg_in_a_shell(build, tmp_path, terminal):
    path = script(tmp_path, STEADY)
    t = terminal(["bash", "--norc", "--noprofile", "-i"])
    t.type(b"PS1='$ '; '%s' -o t.zst %s %s; echo code=$?\n" % (build.tool("probing-record").encode(), PY.encode(),
                                                               str(path).encode()))
    pid = int(re.search(rb"ready (\d+)", t.read_until(rb"ready \d+\r\n")).group(1))
    t.type(b"\x1a")
    t.read_until(rb"Stopped")
    wait_until(lambda: state(pid) == "T", "the child is stopped too")
    t.type(b"fg\n")
    wait_until(lambda: state(pid) in "RS", "it runs again")
    os.kill(pid, signal.SIGTERM)
    t.read_until(rb"1 process")
    t.type(b"exit\n")
    t.wait()


def test_a_child_that_stops_itself_gives_the_terminal_back(build, tmp_path, terminal):
    code = "import os, signal; print('stopping', flush=True); os.kill(os.getpid(), signal.SIGTSTP); print('on', flush=True)\n"
    path = script(tmp_path, code)
    t = terminal(["bash", "--norc", "--noprofile", "-i"])
    t.type(b"'%s' -o t.zst %s %s\n" % (build.tool("probing-record").encode(), PY.encode(), str(path).encode()))
    t.read_until(rb"[\r\n]stopping")
    t.read_until(rb"Stopped")
    t.type(b"fg\n")
    t.read_until(rb"[\r\n]on\r\n")
    t.read_until(rb"1 process")
    t.type(b"exit\n")
    t.wait()
