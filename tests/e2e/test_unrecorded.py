# SPDX-License-Identifier: Apache-2.0
"""Recording never keeps a program from running: a program that cannot be recorded properly runs all the same, and one line says why."""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import time

import conftest
import pytest
from inject_helpers import patient

PY = "/usr/bin/python3"
CODE = "print('ran'); raise SystemExit(7)"


def said(done, text):
    """Checks that the program ran, with its own exit code, and that one line says why it was not recorded."""
    assert (done.returncode, done.stdout) == (7, "ran\n")
    lines = [line for line in done.stderr.splitlines() if text in line]
    assert len(lines) == 1, done.stderr
    assert "no process of CPython was seen" not in done.stderr


@pytest.mark.parametrize("output, text", [
    ("/proc/x.zst", "cannot write to the directory /proc"), ("/nowhere/x.zst", "make its directory first"),
    ("/dev/null", "not a regular file"), ("/proc/dir/", "cannot make the directory"), ("/proc/self/", "cannot write to the directory")])
def test_nowhere_to_write(build, run, output, text):
    said(run([build.tool("probing-record"), "-o", output, PY, "-c", CODE], check=7), text)


def test_address_sanitizer(build, run, tmp_path, monkeypatch):
    """AddressSanitizer ends a program in which another library is preloaded before it: a program that was built with it, and a Python that
    preloads it."""
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text('#include <stdio.h>\nint main(void) { puts("ran"); return 7; }\n')
    cc = shutil.which("gcc")
    if not cc or run([cc, "-fsanitize=address", "-o", program, source], check=None).returncode:
        pytest.skip("no gcc here that has the address sanitizer")
    library = run([cc, "-print-file-name=libasan.so"]).stdout.strip()
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")  # for Python's own leaks
    assert run([program], check=7).stdout == "ran\n"
    record = [build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst"]
    assert run(record + [program], check=7).stdout == "ran\n"
    monkeypatch.setenv("LD_PRELOAD", library)
    assert run([PY, "-c", CODE], check=7).stdout == "ran\n"
    assert run(record + [PY, "-c", CODE], check=7).stdout == "ran\n"
    assert (tmp_path / "t.zst").stat().st_size > 0


def test_thread_sanitizer(build, run, tmp_path, monkeypatch):
    """The thread sanitizer does not see our atomics nor that our threads have files of their own, and ends a child of several threads that
    starts one: nothing of ours is reported, and forked children are left alone."""
    cc = shutil.which("gcc")
    library = run([cc, "-print-file-name=libtsan.so"]).stdout.strip() if cc else ""
    if not os.path.isabs(library):
        pytest.skip("no gcc here that has the thread sanitizer")
    code = """import os, time
pid = os.fork()
if not pid:
    time.sleep(0.3)
    os._exit(3)
print("ran" if os.waitpid(pid, 0)[1] == 3 << 8 else "another end")
while time.process_time() < 0.3: pass
raise SystemExit(7)"""
    monkeypatch.setenv("LD_PRELOAD", library)
    if (bare := run([PY, "-W", "ignore", "-c", code], check=None)).returncode != 7:
        pytest.skip("Python does not run with it: " + bare.stderr[-300:])
    done = run([build.tool("probing-record"), "-q", "-r", "1000", "-o", tmp_path / "t.zst", PY, "-W", "ignore", "-c", code], check=None)
    assert (done.returncode, done.stdout, done.stderr) == (7, "ran\n", bare.stderr)
    assert (tmp_path / "t.zst").stat().st_size > 0


# Functions that libraries like libfaketime replace, getenv(), during which the program may change its environment, and a wait by a clock that may be
# set: this library ends the program when the agent calls one.
WRAPPERS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#define CALL(type, name, number, parameters, ...) \
    type name parameters { \
        Dl_info info; \
        if (dladdr(__builtin_return_address(0), &info) && strstr(info.dli_fname, "libprobing-agent")) \
            abort(); \
        return (type)syscall(SYS_##number, __VA_ARGS__); \
    }
CALL(int, clock_gettime, clock_gettime, (clockid_t id, struct timespec *to), id, to)
CALL(int, nanosleep, nanosleep, (const struct timespec *t, struct timespec *left), t, left)
CALL(int, open, openat, (const char *path, int flags, ...), AT_FDCWD, path, flags, 0600)
CALL(int, openat, openat, (int dir, const char *path, int flags, ...), dir, path, flags, 0600)
CALL(int, close, close, (int fd), fd)
CALL(ssize_t, read, read, (int fd, void *to, size_t n), fd, to, n)
CALL(ssize_t, write, write, (int fd, const void *from, size_t n), fd, from, n)
CALL(ssize_t, pread, pread64, (int fd, void *to, size_t n, off_t at), fd, to, n, at)
CALL(ssize_t, pwrite, pwrite64, (int fd, const void *from, size_t n, off_t at), fd, from, n, at)
CALL(int, fstat, newfstatat, (int fd, struct stat *to), fd, "", to, AT_EMPTY_PATH)
CALL(int, stat, newfstatat, (const char *path, struct stat *to), AT_FDCWD, path, to, 0)
CALL(int, lstat, newfstatat, (const char *path, struct stat *to), AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW)
#define NEXT(type, name, parameters, ...) \
    type name parameters { \
        Dl_info info; \
        if (dladdr(__builtin_return_address(0), &info) && strstr(info.dli_fname, "libprobing-agent")) \
            abort(); \
        return ((type(*) parameters)dlsym(RTLD_NEXT, #name))(__VA_ARGS__); \
    }
NEXT(char *, getenv, (const char *name), name)
NEXT(int, pthread_timedjoin_np, (pthread_t thread, void **result, const struct timespec *until), thread, result, until)
"""


@pytest.mark.parametrize("name", ["libc's calls", "libfaketime"])
def test_a_library_that_replaces_system_calls(build, run, tmp_path, monkeypatch, name):
    """Its functions are for the program: ours would call them within a signal handler, and in exit(), when it has been taken down already."""
    library = next(iter(sorted(pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
    if name == "libfaketime" and not library:
        pytest.skip("no libfaketime here")
    if name != "libfaketime":
        source, library, cc = tmp_path / "wrap.c", tmp_path / "wrap.so", shutil.which("gcc") or shutil.which("clang")
        source.write_text(WRAPPERS)
        if not cc:
            pytest.skip("no compiler here")
        run([cc, "-shared", "-fPIC", "-fno-builtin", "-o", library, source, "-ldl"])
    code = "import time\nwhile time.process_time() < 0.3: pass\n"
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("FAKETIME", "2020-01-01 00:00:00")
    assert run([PY, "-c", code + CODE], check=7).stdout == "ran\n"
    done = run([build.tool("probing-record"), "-q", "-r", "1000", "-o", tmp_path / "t.zst", PY, "-c", code + CODE], check=None)
    assert (done.returncode, done.stdout, done.stderr) == (7, "ran\n", "")
    assert (tmp_path / "t.zst").stat().st_size > 0


def test_limit_of_file_size(build, run, tmp_path):
    """Children that cannot be recorded either are counted, and not reported one by one."""
    code = "import os, sys\nfor _ in range(3):\n    if not os.fork(): __import__('time').sleep(0.3); os._exit(0)\n    os.wait()\n"
    done = run(["/bin/sh", "-c", 'ulimit -f 100; exec "$@"', "sh", build.tool("probing-record"), "-o", tmp_path / "t.zst", PY,
                "-c", code + CODE], check=7)
    said(done, "is not recorded: cannot make its trace or live file")
    assert "nothing recorded" in done.stderr


@pytest.mark.parametrize("limit, output", [
    ("true", "/proc/x.zst"), ("true", "t.zst"), ("PROBING_SAMPLE_RATE=bad; export PROBING_SAMPLE_RATE", "t.zst"), ("ulimit -n 6", "t.zst"),
    ("ulimit -f 0", "t.zst")])
@pytest.mark.parametrize("stderr", ["a pipe that nobody reads", "a full file"])
def test_nothing_can_be_said(build, run, tmp_path, stderr, limit, output):
    """Then the program just runs. (Once, the line that we printed killed us by SIGPIPE or SIGXFSZ, before the program or at its end.) It
    keeps its own signals."""
    code = "import os; os.write(1, open('/proc/self/status').read().split('SigIgn:')[1].split()[0].encode()); raise SystemExit(7)"
    if stderr == "a full file":
        limit = "ulimit -f 0; " + limit
        fd = os.open(str(tmp_path / "said"), os.O_WRONLY | os.O_CREAT)
    else:
        read, fd = os.pipe()
        os.close(read)
    start = ["/bin/sh", "-c", limit + '; exec "$@"', "sh"]
    try:
        bare = run(start + [PY, "-c", code], check=7, stderr=fd).stdout
        assert run(start + [build.tool("probing-record"), "-o", output, PY, "-c", code], check=7, stderr=fd, cwd=str(tmp_path)).stdout == bare != ""
    finally:
        os.close(fd)


def limited(build, tmp_path, mib, *command, of="v"):
    return ["/bin/sh", "-c", 'ulimit -%s %d; exec "$@"' % (of, mib << 10), "sh", build.tool("probing-record"), "-o", tmp_path / "t.zst"] + list(command)


def test_limit_of_address_space(build, run, tmp_path, convert):
    """A program that may need all the address space that is left runs unrecorded; if there is plenty, it is recorded."""
    large = "import time; b = bytearray(200 << 20); time.sleep(0.3); c = bytearray(100 << 20); "
    said(run(limited(build, tmp_path, 400, PY, "-c", large + CODE), check=7), "is not recorded: too little space (ulimit -v)")
    run(limited(build, tmp_path, 1024, PY, "-c", large + CODE), check=7)
    convert(tmp_path / "t.zst")


def test_limit_of_data(build, run, tmp_path, convert):
    said(run(limited(build, tmp_path, 32, PY, "-c", "b = bytearray(20 << 20); " + CODE, of="d"), check=7),
         "is not recorded: too little space (ulimit -d)")
    run(limited(build, tmp_path, 256, PY, "-c", "b = bytearray(20 << 20); " + CODE, of="d"), check=7)
    convert(tmp_path / "t.zst")


def test_few_of_our_threads_take_an_arena(build, run, tmp_path):
    """Arenas of malloc: each one reserves 64 MiB of the program's address space."""
    code = ("import glob\n"
            "while not any(open(f).read() == 'probing-smp\\n' for f in glob.glob('/proc/self/task/*/comm')): pass\n"
            "sum(range(5000000))\n"
            "print(sum(int(a[1], 16) - int(a[0], 16) for a in (x.split()[0].split('-') for x in open('/proc/self/maps'))) >> 20)\n")
    bare = int(run([PY, "-c", code.replace("while not", "while 0 and")]).stdout)
    assert int(run([build.tool("probing-record"), "-r", "1000", "-o", tmp_path / "t.zst", PY, "-c", code]).stdout) < bare + 110


@pytest.mark.parametrize("part", ["libprobing-agent.so", "libprobing-preload.so"])
def test_missing_parts(build, run, tmp_path, part):
    os.mkdir(tmp_path / "bin")
    shutil.copy(build.tool("probing"), str(tmp_path / "bin" / "probing-record"))
    shutil.copytree(str(build.lib), str(tmp_path / "lib" / "probing"))
    os.unlink(tmp_path / "lib" / "probing" / part)
    command = [tmp_path / "bin" / "probing-record", "-o", tmp_path / "t.zst", PY, "-c", CODE]
    said(run(command, check=7), "cannot find its part " + str(tmp_path / "lib" / "probing" / part))
    if "agent" in part:  # it exists, but is not a library
        (tmp_path / "lib" / "probing" / part).write_text("")
        said(run(command, check=7), "cannot load the agent")


@pytest.fixture
def other_user(build, tmp_path, run):
    """A user id that nobody has, whose usual place for live files belongs to somebody else. Returns a function that runs commands as that
    user."""
    if os.getuid() != 0:
        pytest.skip("only root may run a program as another user")
    uid = random.randrange(200000, 2000000)
    if run(["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "test", "-x", build.tool("probing-record")], check=None).returncode:
        pytest.skip("another user cannot reach %s" % build.root)
    places = ["%s/probing-%d" % (base, uid) for base in ("/tmp", "/dev/shm", "/var/tmp")]
    for place in places:
        os.mkdir(place)
    conftest.open_to_others(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, uid, uid)
    env = {k: v for k, v in os.environ.items() if k not in ("PROBING_RUN_DIR", "XDG_RUNTIME_DIR")}
    yield lambda *cmd: dict(cmd=["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"] + list(cmd), env=env, cwd=str(home))
    for base in ("/tmp", "/dev/shm", "/var/tmp"):
        for name in os.listdir(base):
            if name.startswith("probing-%d" % uid):
                shutil.rmtree(os.path.join(base, name), ignore_errors=True)


def test_somebody_took_the_run_directory(build, run, spawn, sql, other_user, tmp_path):
    """Another folder is used, which only we can find. Tools that list, query and complete find it, too, also when all processes were
    killed."""
    home = tmp_path / "home"
    job = other_user(build.tool("probing-record"), "-o", home / "t.zst", PY, "-c",
                     "import os, time\nprint('ready', os.getpid(), flush=True)\ntime.sleep(600)")
    process = spawn(job.pop("cmd"), ready="ready", **job)
    def ask(*cmd, **kw):
        args = other_user(*cmd)
        return run(args.pop("cmd"), **dict(args, **kw)).stdout
    until = time.monotonic() + 600
    while "recording" not in ask(build.tool("probing"), "list", check=None) and time.monotonic() < until:
        time.sleep(0.05)
    rows = ask(build.tool("probing"), "list").splitlines()
    assert len(rows) == 3 and str(home / "t.zst") in rows[2] and "recording" in rows[2]
    pid = rows[2].split()[0]
    assert "into %s/t.zst" % home in ask(build.tool("probing"), "-t", pid, "status")
    os.kill(process.pid, signal.SIGKILL)
    os.kill(int(pid), signal.SIGKILL)
    while os.path.exists("/proc/%s/exe" % pid) and time.monotonic() < until:
        time.sleep(0.02)
    ask(build.tool("probing-convert"), home / "t.zst", home / "t.db")
    assert sql(home / "t.db", "SELECT end_reason FROM trace") == [("killed",)]


@pytest.mark.parametrize("processes, text", [(1, "cannot start a process"), (2, "cannot start a thread")])
def test_no_more_processes(run, build, other_user, tmp_path, processes, text):
    job = other_user("prlimit", "--nproc=%d:%d" % (processes, processes), build.tool("probing-record"), "-o", tmp_path / "home" / "t.zst",
                     PY, "-c", CODE)
    said(run(job.pop("cmd"), check=7, **job), text)


def test_somebody_took_the_run_directory_injection(build, run, spawn, other_user, tmp_path):
    job = other_user(PY, "-c", "import time\nprint('ready', flush=True)\ntime.sleep(600)")
    process = spawn(job.pop("cmd"), ready="ready", **job)
    ask = other_user(build.tool("probing"), "-t", process.pid, *patient(["eval", "6 * 7"]))
    assert run(ask.pop("cmd"), **ask).stdout == "42\n"


@pytest.mark.parametrize("options", ["size=64k", "size=64m,nr_inodes=1", "size=64m,ro"])
def test_the_run_directory_takes_nothing(build, run, options, tmp_path, convert):
    """It is full, has no inodes left, or is read-only: the live file is made elsewhere, and is found."""
    if run(["unshare", "-m", "/bin/true"], check=None).returncode:
        pytest.skip("no mount namespace to be had")
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    shell = 'mount -t tmpfs -o mode=700,%s none "$0"; PROBING_RUN_DIR="$0" "$@"' % options
    code = "import subprocess\nsaid = ''\nwhile 't.zst' not in said: said = subprocess.run(['probing', 'list'], stdout=-1).stdout.decode()\nprint(said)"
    done = run(["unshare", "-m", "/bin/sh", "-c", shell, disk, build.tool("probing-record"), "-o", tmp_path / "t.zst", PY, "-c", code])
    assert str(tmp_path / "t.zst") in done.stdout and "1 process," in done.stderr
    convert(tmp_path / "t.zst")


def test_nowhere_for_live_files(build, run, tmp_path, monkeypatch):
    """Of the reasons for all places, the most useful is printed; 'No such file or directory', for a name that could not be made, helped
    nobody."""
    if run(["unshare", "-m", "/bin/true"], check=None).returncode:
        pytest.skip("no mount namespace to be had")
    monkeypatch.delenv("PROBING_RUN_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    shell = 'for d in /tmp /dev/shm /var/tmp; do mount --bind $d $d && mount -o remount,bind,ro $d; done; exec "$@"'
    said(run(["unshare", "-m", "/bin/sh", "-c", shell, "sh", build.tool("probing-record"), "-o", tmp_path / "t.zst", PY, "-c", CODE], check=7),
         "cannot use a run directory for live files: Read-only file system")


def test_without_proc(build, run, tmp_path, convert):
    """The parts of an installation are found by the program's own path, with or without /proc."""
    if run(["unshare", "-m", "/bin/true"], check=None).returncode:
        pytest.skip("no mount namespace to be had")
    done = run(["unshare", "-m", "/bin/sh", "-c", 'umount -l /proc && exec "$0" "$@"', build.tool("probing-record"), "-o", tmp_path / "t.zst",
                PY, "-c", "print('right')"])
    assert done.stdout == "right\n" and "1 process," in done.stderr
    convert(tmp_path / "t.zst")


def test_only_its_owner_reads_a_trace(build, run, tmp_path):
    """Command lines, paths and variables are private: FILE, FILE.d, segments and live files."""
    code = ("import glob, multiprocessing, os\n"
            "def until_there_is_one_of(pid):\n"
            "    while not glob.glob('t.zst.d/*-%d.*zst' % pid): sum(range(9999))\n"
            "p = multiprocessing.Process(target=lambda: until_there_is_one_of(os.getpid())); p.start()\n"
            "until_there_is_one_of(os.getpid())\n"
            "p.join()\n"
            "print(*[oct(os.stat(f).st_mode & 0o777) for f in glob.glob(os.environ['PROBING_RUN_DIR'] + '/*.live')])\n")
    done = run([build.tool("probing-record"), "-r", "1000", "--set", "retention_days=0.00005", "-o", "t.zst", PY, "-c", code],
               cwd=str(tmp_path), preexec_fn=lambda: os.umask(0o022))
    assert set(done.stdout.split()) == {"0o600"}
    files = [tmp_path / "t.zst"] + list((tmp_path / "t.zst.d").glob("*.zst"))
    assert len(files) > 2 and {f.stat().st_mode & 0o777 for f in files} == {0o600}


@pytest.fixture
def ask(build, run):
    """Returns what list and status say about the one process that is being recorded, as JSON."""
    def do():
        listed = run([build.tool("probing"), "list", "--json"], check=None).stdout
        rows = json.loads(listed) if listed.strip() else []
        if not rows:
            return None, None
        return rows[0], json.loads(run([build.tool("probing"), "-t", rows[0]["pid"], "status", "--json"]).stdout)
    return do


@pytest.mark.parametrize("umask", [0o277, 0o777])
def test_an_umask_that_keeps_things_from_their_owner(build, run, convert, sql, other_user, tmp_path, umask):
    """The trace, those of children, segments, live files and their folders can be used by who made them, and tools find the process."""
    home = tmp_path / "home"
    code = ("import glob, os, subprocess, time\n"
            "if not os.fork():\n"
            "    while not glob.glob('t.zst.d/*-%%d.*zst' %% os.getpid()): time.sleep(0.01)\n"
            "    os._exit(0)\n"
            "os.wait()\n"
            "print(subprocess.run([%r, '-t', str(os.getpid()), 'status'], stdout=-1).stdout.decode())\n" % build.tool("probing"))
    job = other_user(build.tool("probing-record"), "--set", "retention_days=0.00005", "-o", home / "t.zst", PY, "-c", code)
    done = run(job.pop("cmd"), preexec_fn=lambda: os.umask(umask), **job)
    assert "running" in done.stdout and "2 processes" in done.stderr and "not recorded" not in done.stderr, done.stderr
    files = [home / "t.zst"] + list((home / "t.zst.d").glob("*"))
    assert len(files) > 1 and {f.stat().st_mode & 0o777 for f in files} == {0o600}
    assert (home / "t.zst.d").stat().st_mode & 0o700 == 0o700
    ask = other_user(build.tool("probing-convert"), "-q", home / "t.zst", home / "t.db")
    run(ask.pop("cmd"), **ask)
    assert sql(home / "t.db", "SELECT count(DISTINCT pid) FROM trace") == [(2,)]  # a slow machine may take so long that they go on in other files


def test_nobody_else_may_write_beside_a_trace(build, run, tmp_path):
    """Under umask 0, too: who may write into FILE.d can put other traces in the place of ours."""
    code = "import os, time\nif not os.fork():\n    while not os.path.exists('t.zst.d'): time.sleep(0.01)"
    run([build.tool("probing-record"), "-o", "t.zst", PY, "-c", code], cwd=str(tmp_path), preexec_fn=lambda: os.umask(0))
    assert (tmp_path / "t.zst.d").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("how", ["PROBING=1", "inject"])
def test_no_trace_beside_a_device(build, run, spawn, tmp_path, how):
    """Who names a device or a pipe (root, /dev/null) finds no trace beside it."""
    place = tmp_path / "there"
    os.mkfifo(str(place))
    if how == "inject":
        process = spawn([PY, "-c", "import time\nprint('ready', flush=True)\ntime.sleep(600)"], ready="ready")
        done = run([build.tool("probing"), "-t", process.pid, "inject", "-o", place], check=3)
        assert "the agent did not start" in done.stderr
    else:
        env = dict(os.environ, PROBING="1", PROBING_TRACE=str(place), PYTHONPATH=str(build.share / "python"),
                   PROBING_AGENT=str(build.lib / "libprobing-agent.so"))
        said(run([PY, "-c", "import probing._start\n" + CODE], check=7, env=env), "%s: it is not a regular file" % place)
    assert [name for name in os.listdir(str(tmp_path)) if name.startswith("there")] == ["there"]


def test_the_trace_s_disk_is_full(build, run, tmp_path):
    """Once it was reported that no Python had been seen."""
    if run(["unshare", "-m", "/bin/true"], check=None).returncode:
        pytest.skip("no mount namespace to be had")
    (tmp_path / "disk").mkdir()
    shell = 'mount -t tmpfs -o size=64k none "$0"; head -c 65536 /dev/zero >"$0"/all; "$@"'
    done = run(["unshare", "-m", "/bin/sh", "-c", shell, tmp_path / "disk", build.tool("probing-record"), "-o", tmp_path / "disk/t.zst", PY,
                "-c", "print('ran')"])
    assert done.stdout == "ran\n"
    assert re.fullmatch(r"probing-record: .* s: nothing recorded, .*/t.zst could not be written: No space left on device\n", done.stderr), done.stderr


def until(condition):
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end, "waited for nothing"
        time.sleep(0.05)


def test_a_trace_that_cannot_be_written_any_more_is_said(build, run, spawn, ask, tmp_path):
    spawn([build.tool("probing-record"), "-o", tmp_path / "t.zst", PY, "-c",
           "import time\nprint('ready', flush=True)\ntime.sleep(600)"], ready="ready")
    until(lambda: (ask()[0] or {}).get("state") == "recording" and ask()[0]["samples"])
    assert [a["problem"] for a in ask()] == [None, None]
    run([build.tool("probing"), "-t", ask()[0]["pid"], "config", "sample_rate=0"])
    assert [a["problem"] for a in ask()] == ["sampling is off (sample_rate 0)"] * 2
    said = run([build.tool("probing"), "-t", ask()[0]["pid"], "status"]).stdout
    assert said.endswith(" lost; sampling is off (sample_rate 0)\n") and "every" not in said, said
    run([build.tool("probing"), "-t", ask()[0]["pid"], "config", "sample_rate=0.01"])
    os.unlink(tmp_path / "t.zst")
    until(lambda: ask()[0]["state"] == "failed")
    for answer in ask():
        assert "cannot be written: No such file or directory" in answer["problem"]
    assert "cannot be written" in run([build.tool("probing"), "list"]).stdout


def test_nothing_that_is_sampled_is_said(build, run, spawn, ask, tmp_path):
    process = spawn(["sleep", "600"])
    run([build.tool("probing"), "-t", process.pid, "inject", "--force", "-o", tmp_path / "t.zst"])
    until(lambda: [a and a["problem"] for a in ask()] == ["no Python thread is being sampled"] * 2)  # a second after the start
