# SPDX-License-Identifier: Apache-2.0
"""probing -t PID eval, repl and config: what a person at a terminal does to a live process, including Ctrl-C."""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

import pytest
from conftest import started_with, thread_names, wait_until_asleep, wait_until_gone
from inject_helpers import patient, status

PROGRAM = """
import sys, threading, time
batch = list(range(64))
out = sys.stdout
ticks = 0
def inner(k):
    global ticks
    secret = "s%d" % k
    changed = [1]
    while True:
        time.sleep(0.01)
        ticks += 1
        if secret != "s7": print("written", flush=True)
def outer():
    local = {"a": 1}
    inner(7)
print("up", flush=True)
outer()
"""


@pytest.fixture
def program(tmp_path, spawn):
    def start(python, **kw):
        script = tmp_path / "program.py"
        script.write_text(PROGRAM)
        return spawn([python.path, script], ready="up", cwd=str(tmp_path), **kw)

    return start


@pytest.fixture
def probing(build, run):
    def call(process, *args, **kw):
        return run([build.tool("probing"), "-t", process.pid] + patient(args), **kw)

    return call


def unharmed(process, probing):
    """Checks that the process runs, has its own streams, and has no thread of an evaluation left."""
    assert process.poll() is None
    check = ("import sys, threading\n"
             "(sys.stdout._probing[0] if hasattr(sys.stdout, '_probing') else sys.stdout) is out, threading.active_count()")
    assert probing(process, "eval", check).stdout.startswith("(True, ")
    before = int(probing(process, "eval", "ticks").stdout)
    wait_until(lambda: int(probing(process, "eval", "ticks").stdout) > before)


def wait_until(true, seconds=240):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


# ---- eval -------------------------------------------------------------------------------------


@pytest.mark.pythons(count=1)
def test_forms_of_eval(program, probing, python, tmp_path):
    process = program(python)
    assert probing(process, "eval", "len(batch)").stdout == "64\n"
    answer = json.loads(probing(process, "eval", "--json", "print('one')\n6 * 7").stdout)
    assert answer == {"ok": True, "out": "one\n", "value": "42", "error": None}
    answer = json.loads(probing(process, "eval", "--json", "print('one')\n1/0", check=1).stdout)
    assert answer["ok"] is False and answer["out"] == "one\n" and "ZeroDivisionError" in answer["error"]
    assert "1/0" in answer["error"].splitlines()[2]  # the message shows the line of the code
    code = tmp_path / "code.py"
    code.write_text("def f(x):\n    return x + 1\nprint('from a file')\nf(1)\n")
    assert probing(process, "eval", "-f", code).stdout == "from a file\n2\n"
    assert probing(process, "eval", "-f", "-", input="'from stdin'").stdout == "'from stdin'\n"
    for bad in (["eval"], ["eval", "1", "2"], ["eval", "-f", code, "1"], ["eval", "--frame", "x", "1"], ["eval", "--timeout", "no", "1"]):
        assert probing(process, *bad, check=2).stdout == ""
    assert "cannot read" in probing(process, "eval", "-f", tmp_path / "nothing", check=3).stderr
    code.write_bytes(b"#" * 70000)
    assert "64 KiB" in probing(process, "eval", "-f", code, check=3).stderr
    assert "usage: probing -t PID eval" in probing(process, "eval", "--help").stdout


def frames(process, probing):
    assert probing(process, "eval", "--frame", "0", "secret, k, len(batch)").stdout == "('s7', 7, 64)\n"
    assert probing(process, "eval", "--frame", "1", "[local['a'] + batch[2] for _ in range(2)]").stdout == "[3, 3]\n"
    # An object of a frame may be changed, a name of the frame may not.
    assert probing(process, "eval", "--frame", "1", "local['b'] = 2; local = 5").stdout == ""
    assert probing(process, "eval", "--frame", "1", "local").stdout == "{'a': 1, 'b': 2}\n"
    assert "there is no frame 9" in probing(process, "eval", "--frame", "9", "1", check=1).stderr


@pytest.mark.pythons(count=1)
def test_frame(program, probing, python):
    frames(program(python), probing)


@pytest.mark.slow
@pytest.mark.pythons(min=(3, 8), max=(3, 13))
def test_frame_everywhere(program, probing, python):
    process = program(python)
    frames(process, probing)
    unharmed(process, probing)


@pytest.mark.pythons(count=1)
def test_a_passive_agent_leaves_nothing(program, probing, python, tmp_path):
    process = program(python)
    before = sorted(os.listdir(str(tmp_path)))
    # The agent takes no descriptor number that the program expects to get; what an evaluation opens is the program's.
    opened = probing(process, "eval", "import os; kept = os.open(%r, os.O_RDONLY); kept" % str(tmp_path)).stdout.strip()
    assert os.readlink("/proc/%d/fd/%s" % (process.pid, opened)) == str(tmp_path)
    service, = [tid for tid, name in thread_names(process.pid).items() if name == "probing-svc"]
    assert os.readlink("/proc/%d/task/%d/fd/1" % (process.pid, service)) == "/" != os.readlink("/proc/%d/fd/1" % process.pid)
    assert len(os.listdir(str(tmp_path / "run"))) == 1
    probing(process, "stop")
    wait_until(lambda: not os.listdir(str(tmp_path / "run")))
    assert sorted(os.listdir(str(tmp_path))) == before


def started(process, probing):
    """Waits until the evaluation that sets `begun` is under way. It signals that by a file, because asking would have to wait for it."""
    wait_until(lambda: os.path.exists(process.begun))


def late(ask, begun):
    """Returns what is said of an evaluation that was under way when its time was over, and that time. (An evaluation that has not begun by
    then never does, and reports something else.)"""
    seconds = 0.2
    while True:
        seconds *= 2
        done = ask("%g" % seconds)
        if begun.exists():
            begun.unlink()
            return done, "within %g s" % seconds


def loop(process, tmp_path):
    process.begun = str(tmp_path / "begun")
    return "import time\ncount = 0\nopen(%r, 'w').close()\nwhile True:\n    time.sleep(0.001)\n    count += 1" % process.begun


@pytest.mark.pythons(count=1)
def test_ctrl_c_ends_the_evaluation(build, program, probing, spawn, python, tmp_path):
    process = program(python)
    client = spawn([build.tool("probing"), "-t", process.pid, "eval", "--timeout", "200", "print('before')\n" + loop(process, tmp_path)],
                   stderr=subprocess.PIPE)
    started(process, probing)
    client.send_signal(signal.SIGINT)
    out, err = client.communicate(timeout=240)
    assert client.returncode == 1 and out == b"before\n" and b"KeyboardInterrupt" in err
    count = probing(process, "eval", "count").stdout
    assert probing(process, "eval", "count").stdout == count
    unharmed(process, probing)


@pytest.mark.pythons(count=1)
def test_a_timeout_ends_the_evaluation(program, probing, python, tmp_path):
    process = program(python)
    code, begun = loop(process, tmp_path), tmp_path / "begun"
    done, within = late(lambda s: probing(process, "eval", "--timeout", s, "print('before')\n" + code, check=3), begun)
    assert "no answer from process %d %s: the code was interrupted" % (process.pid, within) in done.stderr
    assert done.stdout == "before\n" and "KeyboardInterrupt" in done.stderr
    done, within = late(lambda s: probing(process, "eval", "--json", "--timeout", s, "print(1)\n" + code, check=3), begun)
    answer = json.loads(done.stdout)
    assert answer["out"] == "1\n" and within in answer["late"] and not answer["ok"]

    def still():
        count = probing(process, "eval", "count").stdout
        time.sleep(0.05)
        return probing(process, "eval", "count").stdout == count

    wait_until(still)
    unharmed(process, probing)


@pytest.mark.pythons(count=1)
def test_what_is_inside_c_code_is_left_there(build, program, probing, spawn, python, tmp_path):
    process = program(python)
    inside, go_on = tmp_path / "inside", tmp_path / "go_on"
    os.mkfifo(str(go_on))
    code = "import os\nprint('before')\nos.system(%r)\nleft = 1" % (": > %s; read x < %s" % (inside, go_on))
    done, _ = late(lambda s: probing(process, "eval", "--timeout", s, code, check=3), inside)
    assert "inside C code" in done.stderr and done.stdout == "before\n"
    go_on.open("w").close()
    client = spawn([build.tool("probing"), "-t", process.pid, "eval", "--timeout", "200", code], stderr=subprocess.PIPE)
    wait_until(inside.exists)
    for _ in range(2):  # the first Ctrl-C asks the evaluation to end, the second does not wait for that; two that come at once are one
        client.send_signal(signal.SIGINT)
        wait_until(lambda: client.poll() is not None or not int(status(client.pid, "ShdPnd"), 16) & 1 << signal.SIGINT - 1)
    out, err = client.communicate(timeout=240)
    go_on.open("w").close()
    assert client.returncode == 3 and b"it still runs in process %d" % process.pid in err
    wait_until(lambda: "probing-eval" not in thread_names(process.pid).values())
    unharmed(process, probing)


@pytest.mark.pythons(min=(3, 6), max=(3, 13))
def test_the_last_value_and_the_end_of_a_console(program, probing, python):
    process = program(python)
    done = probing(process, "repl", input="20 + 1\n_ * 2\nNone\n_\nimport sys\nexit()\n7\n")
    assert done.stdout == "21\n42\n42\n" and done.stderr == ""
    done = probing(process, "repl", input="1\nraise SystemExit\n7\n", check=1)
    assert done.stdout == "1\n" and "SystemExit" in done.stderr
    # The program's own variable is not touched, and its stdin is open.
    assert probing(process, "repl", input="1\n_ = 5\n2\n_\n").stdout == "1\n2\n5\n"
    assert probing(process, "eval", "del _\n[k for k in globals() if 'probing' in k], sys.stdin.closed").stdout == "([], False)\n"
    unharmed(process, probing)


@pytest.mark.pythons(count=1)
def test_ctrl_c_while_another_client_asks(build, program, probing, spawn, python, tmp_path):
    """All tools use the same words; the new request is not made, and the other client's code goes on."""
    process = program(python)
    first = spawn([build.tool("probing"), "-t", process.pid, "eval", "--timeout", "200", loop(process, tmp_path)], stderr=subprocess.PIPE)
    started(process, probing)
    for command in (["eval", "left = 1"], ["eval", "--session", "s", "left = 1"]):
        client = spawn([build.tool("probing"), "-t", process.pid] + command[:1] + ["--timeout", "200"] + command[1:], stderr=subprocess.PIPE)
        wait_until(lambda: int(status(client.pid, "SigCgt"), 16) & 1 << signal.SIGINT - 1)
        client.send_signal(signal.SIGINT)
        out, err = client.communicate(timeout=240)
        assert client.returncode in (1, 3) and out == b"" and b"interrupted before process %d was asked" % process.pid in err, err
    assert first.poll() is None
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=240)
    assert "NameError" in probing(process, "eval", "left", check=None).stderr
    unharmed(process, probing)


def storm(build, process, probing, n, options=()):
    """Sends SIGINT at random times, from before the first system call to after the answer."""
    rng = random.Random(7)
    codes = set()
    for i in range(n):
        if i % 4 == 0:
            probing(process, "stop", check=None)  # the next one injects again
        client = subprocess.Popen([build.tool("probing"), "-t", str(process.pid), "eval", "--timeout", "20",
                                   "import time\nfor i in range(100): time.sleep(0.001)"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(rng.random() * 0.15)
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=240)
        codes.add(client.returncode)
        assert process.poll() is None
    # Killed by the signal before it had a handler, interrupted, refused, or done before the signal came.
    assert codes <= {-signal.SIGINT, 0, 1, 3, 130}, codes
    unharmed(process, probing)


@pytest.mark.pythons(count=1)
def test_ctrl_c_at_any_moment(build, program, probing, python):
    storm(build, program(python), probing, 16)


@pytest.mark.slow
@pytest.mark.pythons(min=(3, 8), max=(3, 13))
def test_ctrl_c_storm(build, program, probing, python):
    storm(build, program(python), probing, 150)


# ---- repl -------------------------------------------------------------------------------------


@pytest.mark.pythons(count=1)
def test_repl_from_a_pipe(program, probing, python):
    process = program(python)
    text = "x = 5\nfor i in range(2):\n    print(i, x)\n\nx + 1\ndef f():\n    return batch[3]\n\nf()\nx"
    assert probing(process, "repl", input=text).stdout == "0 5\n1 5\n6\n3\n5\n"
    assert probing(process, "eval", "x").stdout == "5\n"  # the variable of __main__
    done = probing(process, "repl", input="1/0\n2 +\n'on it goes'\nif 1:\n    print('at the end')", check=1)
    assert done.stdout == "'on it goes'\nat the end\n"
    assert "ZeroDivisionError" in done.stderr and "SyntaxError" in done.stderr
    # It has a namespace of its own, which it keeps from input to input.
    done = probing(process, "repl", "--frame", "0", input="secret\nmine = secret * 2\n[mine for _ in range(2)]\n")
    assert done.stdout == "'s7'\n['s7s7', 's7s7']\n"
    assert "NameError" in probing(process, "eval", "mine", check=1).stderr
    assert "there is no frame 99" in probing(process, "repl", "--frame", "99", input="1\n", check=3).stderr
    unharmed(process, probing)


class Terminal:
    """A terminal in tmux, which the test can type into and look at."""

    def __init__(self, socket, command, env):
        self.socket = socket + "."  # so that no other session's name begins with it
        self.base = ["tmux", "-L", self.socket]
        subprocess.run(self.base + ["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "50", command], check=True, env=env)

    def type(self, *keys):
        subprocess.run(self.base + ["send-keys"] + list(keys), check=True)

    def screen(self):
        done = subprocess.run(self.base + ["capture-pane", "-p"], stdout=subprocess.PIPE, universal_newlines=True)
        return done.stdout.rstrip("\n") if done.returncode == 0 else None

    def until(self, text):
        end = time.monotonic() + 240
        while text not in (self.screen() or ""):
            assert time.monotonic() < end, "%r does not come:\n%s" % (text, self.screen())
            time.sleep(0.05)

    def complete(self, text):
        """Presses Tab, again if the process did not answer within its two seconds, until the text appears."""
        at, end = 0, time.monotonic() + 240
        while text not in (self.screen() or ""):
            assert time.monotonic() < end, "%r does not come:\n%s" % (text, self.screen())
            if time.monotonic() > at + 3:
                self.type("Tab")
                at = time.monotonic()
            time.sleep(0.05)

    def close(self):
        subprocess.run(self.base + ["kill-server"], stderr=subprocess.DEVNULL)
        wait_until_gone(self.socket)  # and the programs in it, which tmux tells through their environment in which session they are


@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")
def test_a_closed_terminal_leaves_nothing(tmp_path):
    terminal = Terminal("probing-gone-%d" % os.getpid(), "trap 'sleep 0.5; exit' HUP; echo up; while :; do sleep 0.1; done",
                        {name: value for name, value in os.environ.items() if name != "TMUX"})
    terminal.until("up")
    terminal.close()
    assert started_with(str(tmp_path / "run")) == {}


@pytest.fixture
def repl(build, program, tmp_path):
    """repl(python): returns the target, a terminal that runs the repl, and the repl's pid."""
    terminals = []

    def start(python):
        if not shutil.which("tmux"):
            pytest.skip("tmux is not installed")
        process = program(python)
        env = dict(os.environ, PROBING_HISTORY=str(tmp_path / "history"), TERM="xterm", HOME=str(tmp_path))
        env.pop("TMUX", None)
        command = "echo pid $$; (exec %s -t %d repl); echo code $?; sleep 100" % (build.tool("probing"), process.pid)
        terminals.append(Terminal("probing-test-%d" % os.getpid(), command, env))
        terminals[0].until(">>>")
        shell = re.search(r"pid (\d+)", terminals[0].screen()).group(1)
        return process, terminals[0], int(subprocess.run(["pgrep", "-P", shell], stdout=subprocess.PIPE, check=True).stdout)

    yield start
    for terminal in terminals:
        terminal.close()


@pytest.mark.pythons(count=1)
def test_repl_in_a_terminal(repl, probing, python, tmp_path):
    process, terminal, _ = repl(python)
    history = tmp_path / "history"
    terminal.type("bat")
    terminal.until(">>> bat")
    terminal.complete(">>> batch")  # comes from the target
    terminal.type("[:3]", "Enter")
    terminal.until("[0, 1, 2]")
    terminal.type("batch.co")  # has two completions: count and copy
    terminal.complete("count")
    terminal.type("u")
    terminal.complete(">>> batch.count")
    terminal.type("(5)", "Enter")
    terminal.until("batch.count(5)\n1")
    terminal.type("for i in 'ab':", "Enter")
    terminal.until("...")
    terminal.type("    print(i * 3)", "Enter", "Enter")
    terminal.until("aaa\nbbb")
    terminal.type("while True: pass", "Enter", "Enter", "C-c")
    terminal.until("KeyboardInterrupt")
    terminal.type("dropped", "C-c")
    terminal.type("'still ' + 'here'", "Enter")
    terminal.until("'still here'")
    terminal.type("Up", "Up", "Up")  # goes back in the history
    terminal.type("C-c")
    terminal.type("C-d")
    terminal.until("code 0")
    assert "batch[:3]" in history.read_text().replace("\\040", " ") and (history.stat().st_mode & 0o777) == 0o600
    unharmed(process, probing)


class standing:
    """Keeps the process stopped meanwhile, as if it got no processor on a busy machine."""

    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)
        while open("/proc/%d/stat" % self.pid).read().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)

    def __exit__(self, *error):
        os.kill(self.pid, signal.SIGCONT)


@pytest.mark.pythons(count=1)
def test_ctrl_c_in_a_slow_terminal(repl, probing, python):
    """Ctrl-C drops what was typed before it, interrupts what was begun before it, and affects nothing that comes after it, whether the
    prompt or the process is late."""
    process, terminal, pid = repl(python)
    at_prompt = lambda: wait_until_asleep(pid)
    at_prompt()
    with standing(pid):
        terminal.type("dropped", "C-c", "'kept ' + 'line'", "Enter")
    terminal.until("'kept line'")
    at_prompt()
    with standing(pid):  # before the evaluation has begun
        terminal.type("while True: pass", "Enter", "Enter", "C-c", "'second ' + 'line'", "Enter")
    terminal.until("'second line'")
    at_prompt()
    with standing(process.pid):  # the target has not taken the request
        terminal.type("while True: pass", "Enter")
        time.sleep(0.2)
        terminal.type("C-c")
        time.sleep(0.2)
    terminal.type("'third ' + 'line'", "Enter")
    terminal.until("'third line'")
    at_prompt()
    terminal.type("while True: pass", "Enter")
    terminal.until("...")
    terminal.type("Enter")
    at_prompt()
    with standing(process.pid):
        while "not waited for any more" not in terminal.screen():  # the second Ctrl-C leaves the evaluation alone
            terminal.type("C-c")
            time.sleep(0.2)
    terminal.type("'fourth ' + 'line'", "Enter")
    terminal.until("'fourth line'")
    at_prompt()
    terminal.type("import time; time.sleep(1)", "Enter")
    with standing(pid):  # what is typed ahead
        terminal.type("'fifth ' + 'line'", "Enter")
    terminal.until("'fifth line'")
    terminal.type("C-d")
    terminal.until("code 0")
    unharmed(process, probing)


# ---- config -----------------------------------------------------------------------------------


@pytest.mark.pythons(count=1)
def test_config(build, program, probing, convert, sql, python, tmp_path):
    trace = tmp_path / "t.zst"
    script = tmp_path / "p.py"
    script.write_text(PROGRAM)
    process = program(python)
    assert "nothing records process" in probing(process, "config", check=3).stderr
    probing(process, "inject", "-o", trace)
    text = probing(process, "config").stdout
    assert text.splitlines()[0].split() == ["key", "value", "allowed", "what", "it", "is"]
    all_of_it = json.loads(probing(process, "config", "--json").stdout)
    assert {"probing.sample_rate", "probing.native", "probing.metrics"} <= set(all_of_it)
    assert all(set(s) == {"value", "range", "doc"} and s["range"] for s in all_of_it.values())
    assert probing(process, "config", "sample_rate").stdout == "0.1\n"
    probing(process, "config", "probing.sample_rate=0.050", "native=off", "metrics=0")
    assert probing(process, "config", "probing.sample_rate").stdout == "0.05\n"
    for bad in ("sample_rate=0.0001", "sample_rate=4000", "native=2", "metrics=x", "colour=red", "sample_rate"):
        done = probing(process, "config", "sample_rate=0.5", bad, check=2)
        assert "must be" in done.stderr or "there is no setting" in done.stderr or "KEY=VALUE" in done.stderr
    assert "must be 0 (no samples), 0.001 to 3600 seconds" in probing(process, "config", "sample_rate=0.0001", check=2).stderr
    assert probing(process, "config", "sample_rate").stdout == "0.05\n"  # of several settings none is changed if one is wrong
    assert " 20 " in probing(process, "status").stdout or "50 ms" in probing(process, "status").stdout
    time.sleep(0.5)
    probing(process, "stop")
    db = convert(trace)
    rows = [r for r in sql(db, "SELECT key, value FROM setting ORDER BY ts, id") if r[0] in
            ("probing.sample_rate", "probing.native", "probing.metrics")]
    assert rows == [("probing.sample_rate", "0.1"), ("probing.native", "1"), ("probing.metrics", "1"),
                    ("probing.sample_rate", "0.05"), ("probing.native", "0"), ("probing.metrics", "0")]


# ---- list -------------------------------------------------------------------------------------


@pytest.mark.pythons(count=1)
def test_list(build, run, program, probing, python, tmp_path):
    """Lists which processes are being recorded and which only answer. Forged and cut files are named and do no harm."""
    process = program(python)
    listing = [build.tool("probing"), "list"]
    run(listing, check=1)
    probing(process, "eval", "1")
    row, = json.loads(run(listing + ["--json"]).stdout)
    assert row["pid"] == process.pid and row["state"] == "answering" and row["trace"] is None and row["rate_hz"] is None
    trace = tmp_path / "t.zst"
    probing(process, "inject", "-o", trace, "-r", "50")
    row, = json.loads(run(listing + ["--json"]).stdout)
    assert row["state"] == "recording" and row["trace"] == str(trace) and abs(row["rate_hz"] - 50) < 0.1 and row["uptime_s"] > 0
    assert row["lost"] >= 0 and "program.py" in row["command"]  # a busy machine loses ticks
    probing(process, "config", "sample_rate=0.2")
    assert json.loads(run(listing + ["--json"]).stdout)[0]["rate_hz"] == 5
    live, = (tmp_path / "run").glob("*.live")
    good = live.read_bytes()
    rng = random.Random(3)
    forged = tmp_path / "run" / "1-1.live"
    for i in range(60):
        bad = bytearray(good[:200000])
        if i % 3 == 0:
            bad = bad[:rng.randrange(len(bad))]
        else:
            for _ in range(rng.randrange(1, 60)):
                bad[rng.randrange(500 if i % 3 == 1 else len(bad))] = rng.randrange(256)
            bad += good[200000:] if i % 2 else b""
        forged.write_bytes(bytes(bad))
        forged.chmod(0o600)
        done = run(listing + ["--json"], check=None)
        assert done.returncode == 0
        assert [r for r in json.loads(done.stdout) if r["pid"] == process.pid and r["state"] == "recording"]
        forged.unlink()
    # A file of another user, a link, or a file that others may write is not trusted.
    forged.write_bytes(good)
    if os.getuid() == 0:
        forged.chmod(0o600)
        os.chown(str(forged), 12345, 12345)
        done = run(listing + ["--json"])
        assert len(json.loads(done.stdout)) == 1 and "cannot read" in done.stderr
    forged.unlink()
    forged.symlink_to(live)
    assert len(json.loads(run(listing + ["--json"]).stdout)) == 1
    forged.unlink()
    probing(process, "stop")
    probing(process, "eval", "1")
    process.kill()
    process.wait()
    run(listing, check=1)
    assert not list((tmp_path / "run").glob("*.live"))  # neither had records that were lost with it


SLEEPS = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.00002)\n"


@pytest.mark.slow
@pytest.mark.pythons(min=(3, 6), max=(3, 6))
def test_the_first_thread_of_a_program(probing, python, spawn, tmp_path):
    """Before Python 3.7 there is no GIL until a program starts its first thread. Making it while the main thread came back from a system
    call once ended one program in sixty."""
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    for _ in range(150):
        process = spawn([python.path, tmp_path / "sleeps.py"], ready="up")
        assert probing(process, "eval", "6 * 7").stdout == "42\n"
        assert process.poll() is None
        process.kill()
        process.wait()
