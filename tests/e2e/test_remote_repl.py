# SPDX-License-Identifier: Apache-2.0
"""`probing -t HOST:PORT repl PID`: the prompt of test_console.py, with a server in between."""
import os
import shutil
import signal
import subprocess
import sys

import pytest
import test_serve
from test_console import Terminal, wait_until
from test_serve import CONTROL, TOKEN, certificate

serve, remote, target = test_serve.serve, test_serve.remote, test_serve.target  # fixtures
ENV = {"PROBING_TOKEN": TOKEN, "PROBING_CONTROL_TOKEN": CONTROL}


def test_from_a_pipe(serve, remote, target):
    """Names are kept from input to input, blocks end where Python's do, an exception does not end the session, exit() does."""
    server, pid = serve("--allow-control"), str(target.pid)
    text = "x = 5\nfor i in range(2):\n    print(i, x)\n\nx + 1\n_ * 2\ndef f():\n    return x\n\nf()\nexit()\n7\n"
    done = remote(server, "repl", pid, control=True, input=text)
    assert done.stdout == "0 5\n1 5\n6\n12\n5\n" and done.stderr == ""
    assert remote(server, "eval", pid, "x", control=True).stdout == "5\n"  # the variable of __main__
    done = remote(server, "repl", pid, control=True, check=1, input="1/0\n2 +\n'on it goes'\nif 1:\n    print('at the end')")
    assert done.stdout == "'on it goes'\nat the end\n" and "ZeroDivisionError" in done.stderr and "SyntaxError" in done.stderr
    done = remote(server, "repl", pid, control=True, check=1, input="1\nraise SystemExit\n7\n")
    assert done.stdout == "1\n" and "SystemExit" in done.stderr
    assert remote(server, "repl", pid, "--frame", "0", control=True, input="secret\nmine = secret * 2\nmine\n").stdout == "17\n34\n"
    assert "NameError" in remote(server, "eval", pid, "mine", control=True, check=1).stderr
    assert "there is no frame 99" in remote(server, "repl", pid, "--frame", "99", control=True, input="1\n", check=3).stderr
    assert target.poll() is None


def test_refused(serve, remote, target):
    server, pid = serve("--allow-control"), str(target.pid)
    assert "control token" in remote(server, "repl", pid, input="1\n", check=3).stderr
    assert "no argument" in remote(server, "repl", pid, "x", control=True, input="1\n", check=2).stderr
    assert "which process" in remote(server, "repl", control=True, check=2).stderr
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    assert remote(server, "repl", gone.pid, control=True, input="1\n", check=3).stdout == ""


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_ctrl_c(serve, target, build, spawn, tmp_path, tls):
    """The input is interrupted in the process; what it printed and its traceback still arrive, and the prompt comes back."""
    env, scheme, args = dict(os.environ, **ENV), "", ["--allow-control"]
    if tls:
        cert, key = certificate(tmp_path)
        env["PROBING_CA_FILE"], scheme, args = str(cert), "https://", args + ["--tls-cert", cert, "--tls-key", key]
    server = serve(*args)
    client = spawn([build.tool("probing"), "-t", scheme + server.where, "repl", target.pid], env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    begun = tmp_path / "begun"
    client.stdin.write(b"import time\nprint('begun'); open(%r, 'w').close(); [time.sleep(.01) for i in iter(int, 1)]\n" % str(begun).encode())
    client.stdin.flush()
    wait_until(begun.exists)
    client.send_signal(signal.SIGINT)
    out, err = client.communicate(b"6 * 7\n", timeout=240)
    assert out.decode() == "begun\n42\n" and b"KeyboardInterrupt" in err and client.returncode == 1, err
    assert target.poll() is None


def test_in_a_terminal(serve, target, build, tmp_path):
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    server = serve("--allow-control")
    env = dict(os.environ, PROBING_HISTORY=str(tmp_path / "history"), TERM="xterm", HOME=str(tmp_path), **ENV)
    env.pop("TMUX", None)
    terminal = Terminal("probing-remote-%d" % os.getpid(), "%s -t %s repl %d; echo code $?; sleep 100" % (build.tool("probing"), server.where, target.pid), env)
    try:
        terminal.until(">>>")
        assert "process %d at %s" % (target.pid, server.where) in terminal.screen()
        terminal.type("wait_h")
        terminal.until(">>> wait_h")
        terminal.complete(">>> wait_here")  # comes from the target
        terminal.type(".__name__", "Enter")
        terminal.until("'wait_here'")
        terminal.type("for i in 'ab':", "Enter")
        terminal.until("...")
        terminal.type("    print(i * 3)", "Enter", "Enter")
        terminal.until("aaa\nbbb")
        begun = tmp_path / "begun"
        terminal.type("open('%s', 'w').close(); [0 for i in iter(int, 1)]" % begun, "Enter")
        wait_until(begun.exists)
        terminal.type("C-c")
        terminal.until("KeyboardInterrupt")
        terminal.type("'still ' + 'here'", "Enter")
        terminal.until("'still here'")
        terminal.type("C-d")
        terminal.until("code 0")
    finally:
        terminal.close()
    assert target.poll() is None
