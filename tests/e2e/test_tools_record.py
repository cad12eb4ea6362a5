# SPDX-License-Identifier: Apache-2.0
"""probing-record: the child's exit code, signals and terminal; names of traces; the summary line."""
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from conftest import wait_for_line

PY = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable

SPIN = """
import sys, time
def work():
    return sum(range(2000))
while time.process_time() < float(sys.argv[1]):  # of a processor: on a busy machine its recording gets one, too, before it ends
    work()
"""

# Prints that it is ready, then works until a signal or a line on its standard input ends it.
STEADY = """
import os, signal, sys, time, threading
def work():
    return sum(range(2000))
def got(sig, frame):
    os.write(1, b"got " + signal.Signals(sig).name.encode() + b"\\n")  # print() is not to be entered twice
    if sig in (signal.SIGTERM, signal.SIGINT):
        sys.exit(5)
for s in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT):
    signal.signal(s, got)
if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
    signal.signal(signal.SIGHUP, got)
print("ready", os.getpid(), flush=True)
end = time.monotonic() + 600
while time.monotonic() < end:
    work()
"""


def script(tmp_path, text, name="script.py"):
    path = tmp_path / name
    path.write_text(text)
    return path


def wait_until(true, what, seconds=240):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return
        time.sleep(0.05)
    pytest.fail("waited in vain until " + what)


def listed(build, run):
    done = run([build.tool("probing"), "list", "--json"], check=None)
    return json.loads(done.stdout)


def state(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def alive(pid):
    return state(pid) not in "ZX"


# ---- exit codes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["sys.exit(7)", "os._exit(7)"])
def test_exit_code_passes_through(build, run, tmp_path, code):
    done = run([build.tool("probing-record"), "-o", tmp_path / "t.zst", "--", PY, "-c", "import os, sys; " + code],
               check=7)
    assert "1 process" in done.stderr


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_death_by_signal_is_128_plus_n(build, run, tmp_path, sig):
    trace = tmp_path / "t.zst"
    done = run([build.tool("probing-record"), "-o", trace, PY, "-c",
                "import os, time\nwhile not os.path.exists(%r): time.sleep(0.01)\nos.kill(os.getpid(), %d)" % (str(trace), sig)], check=128 + sig)
    assert "killed by signal %d" % sig in done.stderr
    run(["zstd", "-tq", trace])


def test_commands_that_cannot_run(build, run, tmp_path):
    tool = build.tool("probing-record")
    plain = script(tmp_path, "print(1)\n", "plain.py")
    trace = tmp_path / "t.zst"
    trace.write_text("kept")

    done = run([tool, "-o", trace, "no-such-command-here"], check=127)
    assert "no-such-command-here: no such command in the PATH" in done.stderr
    done = run([tool, "-o", trace, tmp_path / "nowhere" / "x"], check=127)
    done = run([tool, "-o", trace, plain], check=126)
    assert "probing-record python3" in done.stderr
    done = run([tool, "-o", trace, tmp_path], check=126)
    # No program was started, so no file was moved away.
    assert trace.read_text() == "kept" and not (tmp_path / "t.zst.old").exists()


@pytest.mark.parametrize("args, says", [
    ([], "no command to run"),
    (["-r", "0", PY], "0.001 to 1000"),
    (["-r", "1001", PY], "0.001 to 1000"),
    (["-r", "fast", PY], "0.001 to 1000"),
    (["-r", "nan", PY], "0.001 to 1000"),
    (["--metrics", "0.01", PY], "0.1 to 3600"),
    (["--bogus", PY], "unknown option '--bogus'"),
    (["-o", "-", PY], "standard output"),
])
def test_wrong_usage_is_refused_before_the_start(build, run, args, says):
    done = run([build.tool("probing-record")] + args + (["-c", "print('ran')"] if PY in args else []), check=125)
    assert says in done.stderr and done.stderr.count("\n") == 1
    assert "ran" not in done.stdout


@pytest.mark.parametrize("name, value", [("PROBING_SAMPLE_RATE", "-1"), ("PROBING_SAMPLE_RATE", "1e-5"),
                                         ("PROBING_METRICS", "soon")])
def test_wrong_environment_is_said(build, run, convert, sql, monkeypatch, tmp_path, name, value):
    monkeypatch.setenv(name, value)
    done = run([build.tool("probing-record"), "-o", tmp_path / "t.zst", PY, "-c", "print('ran')"])
    assert "%s=%s: it must be " % (name, value) in done.stderr and done.stdout == "ran\n" and "1 process," in done.stderr


def test_a_second_trace_of_the_longest_name(build, run, tmp_path):
    """FILE.old and FILE-2 would be too long then, and that is what is said."""
    for says in ("1 process, ", "File name too long (choose another file with -o); the program runs unrecorded"):
        done = run([build.tool("probing-record"), "-o", "x" * 251 + ".zst", PY, "-c", "print('ran')"], cwd=str(tmp_path))
        assert says in done.stderr and done.stdout == "ran\n"


@pytest.mark.parametrize("how", ["probing-record", "PROBING=1"])
@pytest.mark.parametrize("name, meant", [("PROBING_SAMPLERATE", "PROBING_SAMPLE_RATE"), ("PROBING_TRIGERS", "PROBING_TRIGGERS"), ("PROBING_TACE", "PROBING_TRACE"),
                                         ("probing_metrics", "PROBING_METRICS"), ("PROBING_PORT", None)])
def test_a_variable_that_is_misspelt_is_said(build, run, tmp_path, how, name, meant):
    env = dict(os.environ, **{name: "10"})
    command = [build.tool("probing-record"), "-o", "t.zst", PY, "-c", "print('ran')"]
    if how == "PROBING=1":
        env.update(PROBING="1", PYTHONPATH=str(build.share / "python"), PROBING_AGENT=str(build.lib / "libprobing-agent.so"))
        command = [PY, "-c", "import probing._start; print('ran')"]
    done = run(command, env=env, cwd=str(tmp_path))
    assert done.stdout == "ran\n"
    assert [line for line in done.stderr.splitlines() if "may be meant" in line] == (
        ["%s: %s is no setting: %s may be meant" % (how.replace("PROBING=1", "probing"), name, meant)] if meant else [])


@pytest.mark.parametrize("rate, period", [("50", "0.02"), ("50Hz", "0.02"), ("20ms", "0.02"), ("0.5", "2"), ("0.02s", "0.02")])
def test_forms_of_the_rate(build, run, convert, sql, tmp_path, rate, period):
    done = run([build.tool("probing-record"), "-r", rate, "-o", tmp_path / "t.zst", PY, "-c", "1"])
    assert "a sample every" not in done.stderr
    assert settings(convert, sql, tmp_path / "t.zst")["probing.sample_rate"] == period


def test_a_rate_that_may_be_a_mistake(build, run, monkeypatch, tmp_path):
    """PROBING_SAMPLE_RATE=100 means 100 seconds, -r 100 means 100 Hz."""
    monkeypatch.setenv("PROBING_SAMPLE_RATE", "100")
    done = run([build.tool("probing-record"), "-o", tmp_path / "t.zst", PY, "-c", "1"])
    assert "sample_rate=100 is a sample every 100 seconds; 100Hz: 100 samples a second" in done.stderr


def test_moved_without_its_parts(build, run, tmp_path):
    """A copy of the program alone says which part is missing."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    run(["cp", build.tool("probing"), bin_dir / "probing"])
    done = run([bin_dir / "probing", "record", "true"])
    assert "lib/probing/libprobing-" in done.stderr


# ---- settings -----------------------------------------------------------------------------------


def settings(convert, sql, trace):
    return dict(sql(convert(trace), "SELECT key, value FROM config"))


def test_rate_from_option_and_environment(build, run, convert, sql, tmp_path, monkeypatch):
    tool, spin = build.tool("probing-record"), script(tmp_path, SPIN)
    periods = []
    for options, env in ([[], "0.05"], [["-r", "50"], "0.05"], [[], None]):
        if env:
            monkeypatch.setenv("PROBING_SAMPLE_RATE", env)
        else:
            monkeypatch.delenv("PROBING_SAMPLE_RATE")
        run([tool, "-q", "-o", tmp_path / "t.zst"] + options + [PY, spin, "0.3"])
        periods += sql(convert(tmp_path / "t.zst"), "SELECT round(period, 6) FROM trace")[0]
    assert periods == [0.05, 0.02, 0.1]


def test_an_existing_preload_is_kept(build, run, tmp_path):
    env = dict(os.environ, LD_PRELOAD="libm.so.6")
    done = run([build.tool("probing-record"), "-o", tmp_path / "t.zst", PY, "-c",
                "import os; print(os.environ['LD_PRELOAD'])"], env=env)
    first, second = done.stdout.strip().split(":")
    assert first.endswith("/libprobing-preload.so") and second == "libm.so.6"


# ---- signals and terminals ------------------------------------------------------------------------


def start_steady(build, spawn, tmp_path, *options, before=(), **kw):
    path = script(tmp_path, STEADY)
    process = spawn(list(before) + [build.tool("probing-record"), "-r", "100", "-o", tmp_path / "t.zst"] +
                    list(options) + [PY, path], stderr=subprocess.PIPE, **kw)
    return process, int(wait_for_line(process, "ready").split()[-1])


def test_signals_are_passed_on(build, spawn, tmp_path):
    process, pid = start_steady(build, spawn, tmp_path)
    for name in ("SIGUSR1", "SIGUSR2", "SIGHUP"):
        os.kill(process.pid, getattr(signal, name))
        wait_for_line(process, "got " + name)
    os.kill(process.pid, signal.SIGTERM)
    wait_for_line(process, "got SIGTERM")
    assert process.wait(timeout=240) == 5
    assert b"1 process" in process.stderr.read()


def test_interrupt_sent_to_the_recorder_alone(build, spawn, tmp_path):
    process, pid = start_steady(build, spawn, tmp_path)
    os.kill(process.pid, signal.SIGINT)
    wait_for_line(process, "got SIGINT")
    assert process.wait(timeout=240) == 5


@pytest.mark.parametrize("inherited", [signal.SIG_IGN, signal.SIG_DFL])
def test_an_interrupt_that_was_ignored_at_the_start(build, spawn, tmp_path, inherited):
    """A script's jobs in the background ignore SIGINT; a server that sets a handler of its own is interrupted all the same."""
    path = script(tmp_path, "import signal; print('inherited', int(signal.getsignal(signal.SIGINT) == signal.SIG_IGN), flush=True)" + STEADY)
    process = spawn(["sh", "-c", "trap %s INT; exec \"$@\"" % ("''" if inherited == signal.SIG_IGN else "-"), "sh", build.tool("probing-record"),
                     "-o", tmp_path / "t.zst", PY, path], stderr=subprocess.PIPE)
    assert wait_for_line(process, "inherited").split()[-1] == str(int(inherited == signal.SIG_IGN))
    wait_for_line(process, "ready")
    os.kill(process.pid, signal.SIGINT)
    wait_for_line(process, "got SIGINT")
    assert process.wait(timeout=240) == 5


def test_nohup(build, spawn, tmp_path):
    process, pid = start_steady(build, spawn, tmp_path, before=["nohup"])
    os.kill(process.pid, signal.SIGHUP)
    os.kill(pid, signal.SIGHUP)
    os.kill(process.pid, signal.SIGUSR1)
    wait_for_line(process, "got SIGUSR1")
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(timeout=240) == 5


def test_pipes(build, run, tmp_path):
    out = run(["sh", "-c", "echo hello | '%s' -o '%s' %s -c 'print(input().upper())' | cat" %
               (build.tool("probing-record"), tmp_path / "t.zst", PY)])
    assert out.stdout == "HELLO\n" and "1 process" in out.stderr


def test_closed_stderr_does_not_change_the_exit_code(build, run, tmp_path):
    run(["sh", "-c", "'%s' -o '%s' %s -c 'raise SystemExit(9)' 2>&-" % (build.tool("probing-record"), tmp_path / "t.zst", PY)],
        check=9)


# ---- killed --------------------------------------------------------------------------------------


def samples_of(convert, sql, trace):
    return sql(convert(trace), "SELECT coalesce(sum(count), 0) FROM samples")[0][0]


def test_sigkill_loses_no_sample(build, run, spawn, convert, sql, tmp_path):
    process, pid = start_steady(build, spawn, tmp_path)
    wait_until(lambda: listed(build, run)[0]["samples"] >= 50, "50 samples were taken")
    taken = listed(build, run)[0]["samples"]
    os.kill(pid, signal.SIGKILL)
    assert process.wait(timeout=240) == 128 + signal.SIGKILL
    said = process.stderr.read().decode()
    assert "completed after the process had ended" in said
    trace = tmp_path / "t.zst"
    run(["zstd", "-tq", trace])
    recorded = samples_of(convert, sql, trace)
    assert recorded >= taken
    assert "{:,} samples".format(recorded) in said
    assert not listed(build, run)


def test_killed_recorder_leaves_the_target_running(build, run, spawn, convert, sql, tmp_path):
    process, pid = start_steady(build, spawn, tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=240)
    before = listed(build, run)[0]["samples"]
    wait_until(lambda: listed(build, run)[0]["samples"] > before + 10, "recording goes on")
    # A second run into the same file must not touch the trace that is being written.
    other = run([build.tool("probing-record"), "-o", tmp_path / "t.zst", PY, "-c", "1"])
    assert "t.zst is being written by another run: this one goes to %s" % (tmp_path / "t-2.zst") in other.stderr
    assert "1 process," in other.stderr and "probing-convert %s" % (tmp_path / "t-2.zst") in other.stderr
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not alive(pid), "the target has ended")
    wait_until(lambda: not listed(build, run), "its trace is closed")
    assert samples_of(convert, sql, tmp_path / "t.zst") > before


def test_what_a_launcher_wants_at_its_end_holds_for_the_program(build, run, tmp_path):
    """PR_SET_PDEATHSIG, which Ray and container runtimes set: a forked child does not inherit it."""
    launcher = """if True:
        import ctypes, os, signal, subprocess, sys
        process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, preexec_fn=lambda: ctypes.CDLL(None).prctl(1, %d))
        print(int(process.stdout.readline()), flush=True)
        os._exit(0)
    """
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(1000)"
    for sig in (signal.SIGKILL, signal.SIGTERM):
        done = run([PY, "-c", launcher % sig, build.tool("probing-record"), "-q", "-o", tmp_path / ("%d.zst" % sig), PY, "-c", program])
        wait_until(lambda: not alive(int(done.stdout)), "the program has ended, too")


def test_all_killed_then_finished_by_the_next_run(build, run, spawn, convert, sql, tmp_path):
    process, pid = start_steady(build, spawn, tmp_path)
    wait_until(lambda: listed(build, run)[0]["samples"] >= 20, "20 samples were taken")
    taken = listed(build, run)[0]["samples"]
    os.kill(process.pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: listed(build, run)[0]["state"] == "dead", "the target is dead")
    run([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", PY, "-c", "1"])
    assert not listed(build, run)
    assert samples_of(convert, sql, tmp_path / "t.zst.old") >= taken


# ---- names of traces -----------------------------------------------------------------------------

CHILDREN = """
import multiprocessing, time
def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(2000))
if __name__ == "__main__":
    children = [multiprocessing.Process(target=work, args=(0.3,)) for _ in range(2)]
    for c in children: c.start()
    for c in children: c.join()
"""


def traces(directory):
    return sorted(p.name for p in directory.glob("*.zst"))


def test_default_name_children_and_rotation(build, run, convert, sql, tmp_path):
    tool, path = build.tool("probing-record"), script(tmp_path, CHILDREN)
    done = run([tool, PY, path], cwd=str(tmp_path))
    assert "3 processes" in done.stderr and "in trace.zst and trace.zst.d; next: probing-convert trace.zst out.db" in done.stderr
    first = traces(tmp_path / "trace.zst.d")
    assert len(first) == 2
    size = sum(p.stat().st_size for p in [tmp_path / "trace.zst"] + list((tmp_path / "trace.zst.d").iterdir()))
    assert ", %.1f KiB in trace.zst" % (size / 1024) in done.stderr  # the size of all traces
    assert sql(convert(tmp_path / "trace.zst"), "SELECT count(*) FROM trace") == [(3,)]

    for _ in range(2):  # the second time there is an .old already: nothing is ever deleted
        run([tool, "-q", PY, "-c", "1"], cwd=str(tmp_path))
    assert traces(tmp_path) == ["trace.zst"] and not (tmp_path / "trace.zst.d").exists()
    assert traces(tmp_path / "trace.zst.old.d") == first and (tmp_path / "trace.zst.old").exists()
    assert (tmp_path / "trace.zst.old.2").exists() and not (tmp_path / "trace.zst.old.2.d").exists()


def test_rotation_keeps_both_parts(build, run, tmp_path):
    tool, path = build.tool("probing-record"), script(tmp_path, CHILDREN)
    run([tool, "-q", "-o", tmp_path / "t.zst", PY, path])
    main, others = (tmp_path / "t.zst").read_bytes(), traces(tmp_path / "t.zst.d")
    run([tool, "-q", "-o", tmp_path / "t.zst", PY, "-c", "1"])
    assert (tmp_path / "t.zst.old").read_bytes() == main
    assert traces(tmp_path / "t.zst.old.d") == others


def test_into_a_directory_twice(build, run, tmp_path):
    tool, path = build.tool("probing-record"), script(tmp_path, CHILDREN)
    for n in (3, 6):
        done = run([tool, "-o", "%s/runs/" % tmp_path, PY, path])
        assert "3 processes" in done.stderr
        assert len(traces(tmp_path / "runs")) == n


def test_a_fifo_among_the_traces(build, run, tmp_path):
    """Opening it would wait for ever, with the program long ended."""
    runs = tmp_path / "runs"
    runs.mkdir()
    os.mkfifo(str(runs / "a.zst"))
    done = run([build.tool("probing-record"), "-o", runs, PY, script(tmp_path, SPIN), "0.2"])
    assert "1 process," in done.stderr and len(traces(runs)) == 2


def test_a_shell_script_s_python_becomes_the_file(build, run, convert, sql, tmp_path):
    path = script(tmp_path, "#!/bin/sh\ntrue\n%s %s 0.3\nexit 6\n" % (PY, script(tmp_path, SPIN)), "train.sh")
    path.chmod(0o755)
    done = run([build.tool("probing-record"), "-o", tmp_path / "t.zst", path], check=6)
    assert "1 process," in done.stderr
    assert traces(tmp_path) == ["t.zst"] and not (tmp_path / "t.zst.d").exists()
    assert sql(convert(tmp_path / "t.zst"), "SELECT count(*) FROM trace WHERE command LIKE '%script.py 0.3'") == [(1,)]


def test_exec_of_the_main_process(build, run, convert, sql, tmp_path):
    """Two programs in one process: the run's traces have both."""
    path = script(tmp_path, "import os, sys\n%s\nos.execv(sys.executable, [sys.executable, %r, '0.4'])\n" %
                  ("end = __import__('time').monotonic() + 0.4\nwhile __import__('time').monotonic() < end: sum(range(999))",
                   str(script(tmp_path, SPIN, "second.py"))))
    done = run([build.tool("probing-record"), "-r", "100", "-o", tmp_path / "t.zst", PY, path])
    assert "2 processes" in done.stderr
    rows = sql(convert(tmp_path / "t.zst"), "SELECT command LIKE '%second.py 0.4', pid FROM trace ORDER BY 1")
    assert [r[0] for r in rows] == [0, 1] and rows[0][1] == rows[1][1]


def test_no_python_is_said(build, run, tmp_path):
    done = run([build.tool("probing-record"), "-o", tmp_path / "t.zst", "true"])
    assert "nothing recorded, no process of CPython was seen" in done.stderr
    assert "another user who cannot write" in done.stderr
    assert not traces(tmp_path)


def test_ranks(build, run, convert, sql, tmp_path):
    """As with torchrun: a Python launcher starts a process for each rank."""
    work = script(tmp_path, SPIN, "work.py")
    launcher = script(tmp_path, """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, %r, "0.4"],
                          env=dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE="2")) for r in (0, 1)]
sys.exit(max(r.wait() for r in ranks))
""" % str(work), "launch.py")
    done = run([build.tool("probing-record"), "-o", tmp_path / "t.zst", PY, launcher])
    assert "3 processes" in done.stderr
    names = traces(tmp_path / "t.zst.d")
    assert len(names) == 2 and any("-r0-" in n for n in names) and any("-r1-" in n for n in names)
    rows = sql(convert(tmp_path / "t.zst"), "SELECT rank, world_size FROM trace ORDER BY rank")
    assert rows == [(None, None), (0, 2), (1, 2)]


# ---- the summary -----------------------------------------------------------------------------------


def test_summary_line(build, run, convert, sql, tmp_path):
    trace = tmp_path / "t.zst"
    done = run([build.tool("probing-record"), "-r", "100", "-o", trace, PY, script(tmp_path, SPIN), "0.5"])
    assert done.stdout == ""
    found = re.fullmatch(r"probing-record: [\d.]+ s, 1 process, ([\d,]+) samples, ([\d,]+) lost(?: \(.*\))?, ([\d.]+ [KM]?i?B) in (\S+); "
                         r"next: probing-convert (\S+) out\.db\n", done.stderr)
    assert found, done.stderr
    assert int(found.group(1).replace(",", "")) == samples_of(convert, sql, trace) > 10
    assert found.group(4) == found.group(5) == str(trace)


def test_quiet(build, run, tmp_path):
    done = run([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", PY, "-c", "1"])
    assert done.stderr == "" and done.stdout == ""


@pytest.mark.parametrize("name", ["t.zst", "t.zst.old"])
def test_only_traces_make_way(build, run, tmp_path, name):
    (tmp_path / "t.zst").touch()
    os.utime(str(tmp_path / "t.zst"), (0, 0))  # so that it looks like the trace of a process that was killed long ago, not of one that is just starting
    (tmp_path / name).write_text("my notes\n")
    done = run([build.tool("probing-record"), "-o", tmp_path / "t.zst", PY, "-c", "print('ran')"])
    assert ("not replaced" in done.stderr) == (name == "t.zst") and done.stdout == "ran\n"
    assert (tmp_path / name).read_text() == "my notes\n"
    assert (tmp_path / "t.zst.old.2").exists() == (name == "t.zst.old")


FAMILY = """
import subprocess, sys
print("up", flush=True)
n = int(sys.argv[1])
if n:
    subprocess.run([sys.executable, "-c", sys.argv[2], str(n - 1), sys.argv[2]])
else:
    sys.stdin.read()
"""


def test_the_list_as_a_tree(build, spawn, run, tmp_path, monkeypatch):
    """As `probing list --tree` of the Probing on PyPI; started with its `launch -r`, which is our `record`."""
    monkeypatch.setenv("PROBING_RUN_DIR", str(tmp_path / "run"))
    family = spawn([build.tool("probing"), "launch", "-r", "-q", "-o", tmp_path / "t.zst", PY, "-c", FAMILY, "2", FAMILY], "up", stdin=subprocess.PIPE)
    other = spawn([build.tool("probing-record"), "-q", "-o", tmp_path / "o.zst", PY, "-c", FAMILY, "0", FAMILY], "up", stdin=subprocess.PIPE)
    end = time.monotonic() + 240
    while time.monotonic() < end:
        rows = json.loads(run([build.tool("probing"), "l", "--tree", "--json"], check=None).stdout or "[]")
        if len(rows) == 4:
            break
        time.sleep(0.1)
    first = next(r for r in rows if not r["parent"] and r["trace"].endswith("t.zst"))
    second = next(r for r in rows if r["parent"] == first["pid"])
    third = next(r for r in rows if r["parent"] == second["pid"])
    assert [r["pid"] for r in rows if not r["parent"]] == [first["pid"], next(r["pid"] for r in rows if r["trace"].endswith("o.zst"))]
    lines = run([build.tool("probing"), "list", "-t"]).stdout.splitlines()[2:]
    at = [next(i for i, line in enumerate(lines) if line.split()[0] == str(r["pid"])) for r in (first, second, third)]
    assert at == [at[0], at[0] + 1, at[0] + 2], lines
    assert [line.split("/", 1)[0].count("\\_") for line in (lines[i] for i in at)] == [0, 1, 1], lines
    for process in (family, other):
        process.stdin.close()
        assert process.wait(240) == 0
