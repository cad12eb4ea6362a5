# SPDX-License-Identifier: Apache-2.0
"""Fixtures and helpers of the end-to-end tests.

Fixtures
  build     the built tree ($PROBING_BUILD, or build/ in the repository): .root .bin .lib .share,
            .tool("probing-record")
  python    an interpreter. A test with this fixture runs once for each interpreter that is installed: always with the
            oldest, the system's own and the newest one, and with the others as a slow test (`each_python`).
            @pytest.mark.pythons(every=True) makes none of these runs slow; it is for quick tests of code that differs from
            version to version (frames, offsets, objects). pythons(first=True) makes all slow but the first, which is the
            system's if it fits; it is for tests that take seconds of processor time. The mark also limits which interpreters are used:
            pythons(min=(3, 8), max=(3, 13), shared=False, torch=True, count=1), where count is the highest number of
            them (the system's own comes first). Debug builds are used only with debug=True, or debug=None for both
            kinds. PROBING_PYTHONS="PATH ..." adds interpreters.
  pythons   all interpreters, as a list
  run       run(cmd, timeout=60, check=True, **popen): runs it to its end; .returncode .stdout .stderr.
            check=True asserts exit code 0, check=3 asserts 3, check=None asserts nothing
  spawn     spawn(cmd, ready="text"): starts it, waits for a line on its stdout that contains the
            text, and returns the Popen. It is killed with all its children when the test ends
  record    record(script, *args, hz=100, options=(), python=..., out=..., **run) records a script,
            which is a path, or source text with a newline in it; .trace, .returncode, .stdout, .stderr
  convert   convert(trace, ..., options=()) -> path of the database
  sql       sql(db, query, *params) -> list of tuples

Every test has its own PROBING_RUN_DIR and working directory, and a time limit: @pytest.mark.limit(SECONDS), or else 120 s, and 900 s for
slow tests. The limit only stops tests that hang; no test asserts how long something takes. All limits, also those of `run` and `spawn`,
are stated for a quiet machine and multiplied by PATIENCE, for busy ones. A process that a test leaves behind is killed, with a warning.
Files that programs leave in the temporary folder are removed after the last test.
Tests marked @pytest.mark.slow are run by `make test-all` and left out by `make test`.
"""
import collections
import contextlib
import faulthandler
import glob
import json
import os
import pathlib
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import warnings

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 4
os.environ["PROBING_NO_FETCH"] = "1"  # the scripts of .ci then only print what is already installed: no test installs anything

# ---- interpreters ---------------------------------------------------------------------------

Python = collections.namedtuple("Python", "path version name shared free_threaded torch debug")

PROBE = """
import json, sys, sysconfig
# Py_ENABLE_SHARED is not the answer for Debian's python3.
shared = "/libpython" in open("/proc/self/maps").read()
try:
    from importlib.util import find_spec
    torch = find_spec("torch") is not None
    if torch:  # one that was unpacked beside another system's may lack its libraries
        import ctypes, glob, os, re
        place = os.path.dirname(find_spec("torch").origin)
        ctypes.CDLL(glob.glob(os.path.join(place, "_C.*.so"))[0])
        said = re.search(r"__version__ = .(\\d+)[.](\\d+)", open(os.path.join(place, "version.py")).read())
        torch = (int(said.group(1)), int(said.group(2))) >= (1, 13)  # of older ones (Ubuntu 22.04 has 1.8) nothing is recorded
except Exception:
    torch = False
print(json.dumps([list(sys.version_info[:3]), sys.version, shared,
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), torch, hasattr(sys, "gettotalrefcount")]))
"""


def find_pythons():
    """Returns all CPython 3 interpreters that are installed, without duplicates, the system's own first."""
    root = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    paths = ["/usr/bin/python3"]
    paths += sorted(glob.glob("/usr/bin/python3.*"))
    paths += sorted(glob.glob("/usr/local/bin/python3.*"))
    paths += sorted(glob.glob(os.path.join(root, "versions", "3.*", "bin", "python3")))
    paths += os.environ.get("PROBING_PYTHONS", "").split()
    found, seen, files = [], set(), set()
    for path in paths:
        file = os.path.dirname(path), os.path.realpath(path)  # two names in one folder are one interpreter, while a link in a venv has packages of its own
        if not os.access(path, os.X_OK) or path.endswith("-config") or file in files:
            continue
        files.add(file)
        try:
            out = subprocess.run([path, "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                 stdin=subprocess.DEVNULL, timeout=60 * PATIENCE, check=True).stdout
            version, text, shared, free_threaded, torch, debug = json.loads(out)
        except (OSError, ValueError, subprocess.SubprocessError):
            continue
        if (text, shared, debug) in seen:
            continue
        seen.add((text, shared, debug))
        name = "%d.%d.%d%s%s-%s" % (version[0], version[1], version[2], "t" if free_threaded else "", "d" if debug else "",
                                    "shared" if shared else "static")
        found.append(Python(path, tuple(version), name, shared, free_threaded, torch, debug))
    return found


def pythons_of_all_workers():
    """Returns find_pythons(), which takes seconds, of the process that starts xdist's workers: all of them must know the same interpreters."""
    found = os.environ.get("TEST_PYTHONS") if "PYTEST_XDIST_WORKER" in os.environ else None
    if found is None:
        found = os.environ["TEST_PYTHONS"] = json.dumps(find_pythons())
    return [Python(path, tuple(version), *more) for path, version, *more in json.loads(found)]


PYTHONS = pythons_of_all_workers()


def choose_pythons(min=(3, 6), max=(3, 99), shared=None, torch=None, free_threaded=False, debug=False,
                   count=None):
    """Returns the interpreters of PYTHONS that match; min and max are compared with (major, minor)."""
    fit = [p for p in PYTHONS
           if tuple(min) <= p.version[:len(min)] and p.version[:len(max)] <= tuple(max)
           and shared in (None, p.shared) and torch in (None, p.torch)
           and free_threaded in (None, p.free_threaded) and debug in (None, p.debug)]
    return fit[:count]


def each_python(fit, every=False, first=False):
    """Returns the parameters of a test that runs with each of these interpreters. `make test` runs it with the oldest, the system's own and
    the newest of them (with all if `every`, with the first alone if `first`), `make test-all` with the others, too."""
    fast = fit[:1] if first else [p for p in fit if every or p in (PYTHONS[0], min(fit, key=lambda p: p.version), max(fit, key=lambda p: p.version))]
    return [pytest.param(p, id=p.name, marks=() if p in fast else pytest.mark.slow) for p in fit]


# ---- what a test's processes start with -------------------------------------------------------


def ordinary_signals():
    """Makes signals ordinary again. Whatever started the tests (nohup, a background job, some CI) may have had signals ignored or blocked,
    and every program that the tests start would inherit that. An ignored signal gets a handler that does nothing, so that pytest ignores it
    still, while exec resets it to the default action."""
    for sig in set(signal.valid_signals()) - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python itself ignores these two, and subprocess restores them
        if signal.getsignal(sig) == signal.SIG_IGN:
            signal.signal(sig, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


ordinary_signals()
os.umask(0o022)
if os.environ.get("PROBING_BUILD"):  # made absolute, because each test runs in a directory of its own
    os.environ["PROBING_BUILD"] = os.path.abspath(os.environ["PROBING_BUILD"])


# ---- pytest's own hooks -----------------------------------------------------------------------


def pytest_configure(config):
    config.uncaptured = os.dup(2)
    config.addinivalue_line("markers", "slow: takes long; left out by `make test`")
    config.addinivalue_line("markers", "limit(seconds): stop this test when it hangs that long")
    config.addinivalue_line("markers", "pythons(every, first, min, max, shared, torch, count): which interpreters")


def pytest_generate_tests(metafunc):
    if "python" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("pythons")
    wanted = dict(mark.kwargs) if mark else {}
    every, first = wanted.pop("every", False), wanted.pop("first", False)
    fit = choose_pythons(**wanted)
    if not fit:
        reason = "no interpreter at hand with %r" % (mark.kwargs,)
        metafunc.parametrize("python", [pytest.param(None, marks=pytest.mark.skip(reason=reason), id="none")])
    else:
        metafunc.parametrize("python", each_python(fit, every, first))


# Test files that take longest in processor time, the longest first. They are started first, so that at the end no worker is still busy with
# one of them while the others have nothing left to do.
LONGEST = ("test_engines", "test_engines_spark", "test_engines_export", "test_hang", "test_comm", "test_report_page", "test_torch_cuda", "test_torch",
           "test_torch_bars", "test_torch_live", "test_ask", "test_ask_ends", "test_ask_hang", "test_export_json", "test_torch_steps", "test_append",
           "test_documents", "test_sql_words", "test_sampler", "test_serve_page")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    place = {name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.module.__name__, len(LONGEST)))  # within a file the tests keep their order


class Hung(Exception):
    """The test exceeded its time limit."""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    mark = item.get_closest_marker("limit")
    seconds = mark.args[0] if mark else 900 if item.get_closest_marker("slow") else 120

    seconds *= PATIENCE
    if threading.current_thread() is not threading.main_thread():
        # On a busy machine, a worker of xdist (execnet before 2.1) sometimes runs all its tests in a thread other than the main one. There
        # no signal handler can be set, and none would interrupt the test. So the whole worker is ended when the time is over, and xdist
        # starts another.
        faulthandler.dump_traceback_later(seconds, exit=True, file=item.config.uncaptured)
        yield
        faulthandler.cancel_dump_traceback_later()
        return

    def hung(signum, frame):
        raise Hung("the test hung: its limit is %d s" % seconds)

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pytest_report_header(config):
    return "interpreters: " + ", ".join(p.name for p in PYTHONS)


# ---- the built tree ---------------------------------------------------------------------------


class Build:
    def __init__(self, root):
        self.root = root
        self.bin = root / "bin"
        self.lib = root / "lib" / "probing"
        self.share = root / "share" / "probing"

    def tool(self, name):
        return str(self.bin / name)


@pytest.fixture(scope="session")
def build():
    root = pathlib.Path(os.environ.get("PROBING_BUILD") or REPO / "build").resolve()
    if not (root / "bin" / "probing").exists():
        pytest.exit("nothing is built in %s: run `make` first, or set PROBING_BUILD" % root, 3)
    return Build(root)


@pytest.fixture(scope="session")
def pythons():
    return PYTHONS


# ---- processes --------------------------------------------------------------------------------


# Variables of a user's environment that change what the programs do. All PYTHON... and PROBING_... variables are removed too, except those
# in OURS.
OURS = ("PYTHON", "PROBING_ENGINES", "PROBING_ENGINES_ALL", "PROBING_BUILD", "PROBING_PYTHONS", "PROBING_SID", "PROBING_TORCH2", "PROBING_TORCH_INDEX", "PROBING_NO_FETCH")
FOREIGN = ("TEST_PYTHONS", "LD_PRELOAD", "DEBUGINFOD_URLS", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NO_COLOR", "XDG_RUNTIME_DIR")


@pytest.fixture(autouse=True, scope="session")
def clean_environment(tmp_path_factory):
    """Removes settings that come from outside, puts the tools into PATH, and gives the fixtures that tests share a working directory
    outside of the checkout."""
    for name in list(os.environ):
        if name.startswith(("PYTHON", "SLURM_", "TORCHELASTIC_", "PROBING_")) and name not in OURS or name in FOREIGN:
            del os.environ[name]
    os.environ["LC_ALL"] = "C.UTF-8"
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    bin_dir = pathlib.Path(os.environ.get("PROBING_BUILD") or REPO / "build").resolve() / "bin"
    os.environ["PATH"] = "%s:%s" % (bin_dir, os.environ["PATH"])
    home = tmp_path_factory.mktemp("shared")
    os.chdir(str(home))
    (home / "run").mkdir(mode=0o700)
    os.environ["PROBING_RUN_DIR"] = str(home / "run")
    os.environ["TMPDIR"] = os.environ["TMUX_TMPDIR"] = tempfile.mkdtemp(prefix="pt-")  # a short name, because sockets are made in it and their paths must be short
    os.environ["PROBING_CACHE_DIR"] = ""
    os.environ["PROBING_CLUSTER"] = str(home / "cluster")  # so that no host that the user has attached is asked
    yield
    shutil.rmtree(os.environ.pop("TMPDIR"), ignore_errors=True)


def started_with(mark):
    """Returns {pid: command} of the processes that have this text in their arguments or in the environment that they were started with."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as environ, open("/proc/%s/cmdline" % pid, "rb") as cmdline:
                command = cmdline.read()
                if os.fsencode(mark) in b"\0" + environ.read() + b"\0" + command and int(pid) != os.getpid():
                    found[int(pid)] = command.replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            pass  # it belongs to another user, or it has ended
    return found


def wait_until_gone(mark, timeout=60):
    """Waits until all processes with this mark have ended. Call it after telling them to end, so that they are not taken for processes left
    behind."""
    end = time.monotonic() + timeout * PATIENCE
    while started_with(mark):
        assert time.monotonic() < end, started_with(mark)
        time.sleep(0.02)


def kill_those_left(run_dir):
    """Kills processes that were started with this PROBING_RUN_DIR and still run, and returns them as texts. A server that ends by itself
    when its process does (--until) first gets some time for that, because the test may just have ended the process."""
    left = started_with("\0PROBING_RUN_DIR=%s\0" % run_dir)
    for pid in sorted(left, key=lambda pid: " --until " in left[pid]):
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            del left[pid]  # it has ended
            continue
        if " --until " in left[pid] and select.select([fd], [], [], 60 * PATIENCE)[0]:
            del left[pid]
        else:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        os.close(fd)
    return ["%d: %s" % one for one in left.items()]


@pytest.fixture(autouse=True)
def private_environment(tmp_path, monkeypatch, request):
    """Gives the test a working directory and a run directory of its own, and checks that it leaves nothing in the checkout."""
    run_dir = tmp_path / "run"
    run_dir.mkdir(mode=0o700)
    monkeypatch.setenv("PROBING_RUN_DIR", str(run_dir))
    monkeypatch.chdir(tmp_path)
    before = set(os.listdir(str(REPO)))
    yield
    left = kill_those_left(run_dir)
    if left:
        warnings.warn("left behind: %s" % "; ".join(left))
    left = {name for name in set(os.listdir(str(REPO))) - before if not name.startswith((".", "build"))}
    assert not left, "left in the checkout: %s" % sorted(left)
    # The directory of a failed test is kept, because looking into it may help.
    if not getattr(request.node, "failed", False):
        shutil.rmtree(str(tmp_path), ignore_errors=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if outcome.get_result().failed:
        item.failed = True


def open_to_others(path):
    """Lets other users reach this directory: pytest makes the directories above it accessible to its own user only."""
    for p in [path] + list(path.parents):
        if os.stat(str(p)).st_uid == os.geteuid() and not os.stat(str(p)).st_mode & 1:
            os.chmod(str(p), 0o755)


def thread_names(pid):
    """Returns {id: name} of the process's threads; threads that end meanwhile may be missing."""
    names = {}
    for path in glob.glob("/proc/%d/task/*/comm" % pid):
        with contextlib.suppress(OSError), open(path) as f:
            names[int(path.split("/")[4])] = f.read().rstrip("\n")
    return names


def lives_in_group(group):
    """Returns whether any process of this group still runs. Zombies do not count, because some wait for ever to be reaped."""
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path) as f:
            state, _, its_group = f.read().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False


def kill_group(process):
    """Kills a process that was started with start_new_session, and all other processes of its group, and waits until they have ended: a
    process that was killed but still waits for a processor would look like one that was left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.wait(timeout=60 * PATIENCE)
        return
    process.wait(timeout=60 * PATIENCE)
    end = time.monotonic() + 60 * PATIENCE
    with contextlib.suppress(ProcessLookupError):  # raised when no process of the group is left
        while time.monotonic() < end:
            os.killpg(process.pid, 0)
            if not lives_in_group(process.pid):
                break
            time.sleep(0.01)


NO_SAFE_MOMENT = re.compile(r"nothing was done to process \d+, try again$", re.M)


def run_command(cmd, timeout=60, check=True, input=None, **kw):
    """See the fixture `run` above. On a busy machine there may be no moment at which a process can be entered; our tools then do nothing and
    say "try again". If the test expects another exit code, the command is run again."""
    while True:
        done = run_once(cmd, timeout * PATIENCE, input, **kw)
        want = 0 if check is True else check
        if want is None or want is False:  # 0 == False, so False is excluded by identity
            return done
        if done.returncode == want or not isinstance(done.stderr, str) or not NO_SAFE_MOMENT.search(done.stderr):
            break
    assert done.returncode == want, "exit code %d, not %d: %s\nstdout: %s\nstderr: %s" % (
        done.returncode, want, " ".join(done.args), done.stdout, done.stderr)
    return done


def run_once(cmd, timeout, input, **kw):
    kw.setdefault("stdout", subprocess.PIPE)
    kw.setdefault("stderr", subprocess.PIPE)
    if input is None:
        kw.setdefault("stdin", subprocess.DEVNULL)
    else:
        kw["stdin"] = subprocess.PIPE
    if not kw.pop("binary", False):
        kw.setdefault("universal_newlines", True)
        kw.setdefault("errors", "replace")
    cmd = [str(c) for c in cmd]
    process = subprocess.Popen(cmd, start_new_session=True, **kw)
    try:
        out, err = process.communicate(input, timeout=timeout)
    except subprocess.TimeoutExpired:
        kill_group(process)
        out, err = process.communicate()
        pytest.fail("hung for %d s: %s\nstdout: %s\nstderr: %s" % (timeout, cmd, out, err))
    except BaseException:
        kill_group(process)
        raise
    return subprocess.CompletedProcess(cmd, process.returncode, out, err)


@pytest.fixture
def run():
    return run_command


@pytest.fixture
def spawn():
    started = []

    def start(cmd, ready=None, timeout=60, **kw):
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen([str(c) for c in cmd], start_new_session=True, **kw)
        started.append(process)
        if ready is not None:
            wait_for_line(process, ready, timeout)
        return process

    yield start
    for process in started:
        kill_group(process)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()


def wait_until_asleep(pid, timeout=60):
    """Waits until no thread of the process has run for a while. A line that a thread prints before it goes to sleep comes too early for
    that."""
    end, before, text = time.monotonic() + timeout * PATIENCE, None, ""
    while time.monotonic() < end:
        now = {}
        for path in glob.glob("/proc/%d/task/*/status" % pid):
            try:
                with open(path) as f:
                    text = f.read()
            except OSError:  # the thread has ended
                continue
            now[path] = text.split("ctxt_switches:", 1)[1] if "\nState:\tR" not in text else time.monotonic()
        if now == before:
            return
        before = now
        time.sleep(0.05)
    pytest.fail("process %d never sleeps: %s, the last one: %s" % (pid, before, text))


def wait_for_line(process, text, timeout=60):
    """Reads the stdout of `process` up to a line that contains `text`, and returns that line. Reads byte by byte, so that what follows
    stays unread."""
    fd, line, seen = process.stdout.fileno(), b"", b""
    end = time.monotonic() + timeout * PATIENCE
    while time.monotonic() < end:
        if not select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
            break
        byte = os.read(fd, 1)
        seen += byte
        if byte in (b"\n", b""):
            if text.encode() in line:
                return line.decode(errors="replace")
            line = b""
            if not byte:
                break
        else:
            line += byte
    pytest.fail("no line with %r from pid %d (exit code %r); it said: %r" % (text, process.pid, process.poll(), seen))


# ---- the main path: record, convert, ask ------------------------------------------------------


@pytest.fixture
def record(build, tmp_path):
    count = [0]

    def do(script, *args, hz=100, options=(), python=None, out=None, **kw):
        count[0] += 1
        if "\n" in str(script):
            path = tmp_path / ("script%d.py" % count[0])
            path.write_text(script)
            script = path
        trace = pathlib.Path(out) if out else tmp_path / ("trace%d.zst" % count[0])
        python = python.path if isinstance(python, Python) else python or PYTHONS[0].path
        cmd = [build.tool("probing-record"), "-o", trace, "-r", hz] + list(options)
        done = run_command(cmd + ["--", python, script] + list(args), **kw)
        done.trace = trace
        done.script = script
        return done

    return do


@pytest.fixture
def convert(build, tmp_path):
    count = [0]

    def do(*traces, out=None, options=(), **kw):
        count[0] += 1
        db = pathlib.Path(out) if out else tmp_path / ("out%d.db" % count[0])
        run_command([build.tool("probing-convert")] + list(options) + list(traces) + [db], **kw)
        return db

    return do


@pytest.fixture(scope="session")
def simulated_job(build, tmp_path_factory):
    """simulated_job(option, ...): returns a folder with the traces of two machines with eight ranks (tests/fleet) and their out.db. Jobs
    are made once for each set of options."""
    made = {}

    def make(*options):
        if options not in made:
            out = made[options] = tmp_path_factory.mktemp("fleet") / "job"
            run_command([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", out, "--nodes", 2, "--minutes", 0.3, "--ranks", 8]
                        + list(options))
            run_command([build.tool("probing-convert"), "-q"] + sorted(out.glob("node*")) + [out / "out.db"])
        return made[options]

    return make


@pytest.fixture
def sql():
    def do(db, query, *params):
        connection = sqlite3.connect(str(db))
        try:
            return connection.execute(query, params).fetchall()
        finally:
            connection.close()

    return do


if __name__ == "__main__":
    for p in PYTHONS:
        print(p)
    sys.exit(0)
