# SPDX-License-Identifier: Apache-2.0
"""Backtraces of core files: the kernel's and GDB's, packed, cut, damaged, moved, with and without their files."""
import json
import os
import random
import resource
import shutil
import signal
import subprocess

import pytest
from backtrace_scene import check_scene, start_scene
from gdb_tools import GDB, needs_gdb

GCORE = shutil.which("gcore")
needs_gcore = pytest.mark.skipif(GCORE is None, reason="no gcore")


def core_pattern():
    with open("/proc/sys/kernel/core_pattern") as f:
        return f.read().strip()


needs_kernel_cores = pytest.mark.skipif(
    core_pattern().startswith("|") or "/" in core_pattern(),
    reason="the kernel's core_pattern is %r: cores do not go to the working directory" % core_pattern())


@pytest.fixture
def gcore(tmp_path, run):
    def make(process, name="core"):
        run([GCORE, "-o", tmp_path / name, process.pid])
        return tmp_path / ("%s.%d" % (name, process.pid))

    return make


@pytest.fixture
def backtrace(build, run):
    def do(core, *options, check=True, **kw):
        return run([build.tool("probing"), "backtrace", "--core", core] + list(options), check=check, **kw)

    return do


def answer(done):
    return json.loads(done.stdout)


def kernel_core(tmp_path, spawn, python, sig, **kw):
    """The scene, ended by a signal, with the core that the kernel wrote."""
    def cores():
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    process, truth = start_scene(tmp_path, spawn, python, cwd=str(tmp_path), preexec_fn=cores, **kw)
    process.send_signal(sig)
    assert process.wait(timeout=240) == -sig
    found = [p for p in tmp_path.iterdir() if p.name.startswith("core")]
    assert len(found) == 1, "no core in the working directory; core_pattern is %r" % core_pattern()
    return found[0], process.pid, truth


# ---- who wrote it -------------------------------------------------------------------------------


@needs_kernel_cores
@pytest.mark.pythons(min=(3, 11), count=2)
def test_the_kernels_core(backtrace, tmp_path, spawn, python):
    core, pid, truth = kernel_core(tmp_path, spawn, python, signal.SIGABRT)
    said = answer(backtrace(core, "--json"))
    check_scene(said, truth, python)
    assert (said["pid"], said["source"], said["signal"]) == (pid, "core", signal.SIGABRT)
    assert said["missing"] is None and said["note"] is None
    text = backtrace(core).stdout
    assert text.startswith("Core of process %d (%s" % (pid, python.path[:50])) and "ended by signal 6 (Aborted)" in text


@needs_kernel_cores
@pytest.mark.slow
@pytest.mark.pythons(min=(3, 6))
def test_the_kernels_core_on_every_python(backtrace, tmp_path, spawn, python):
    core, _, truth = kernel_core(tmp_path, spawn, python, signal.SIGQUIT)
    check_scene(answer(backtrace(core, "--json")), truth, python)


@needs_gcore
@pytest.mark.pythons(min=(3, 8), max=(3, 10), count=1)
def test_gdbs_core_packed_in_every_way(backtrace, tmp_path, spawn, python, gcore, run):
    process, truth = start_scene(tmp_path, spawn, python)
    core = gcore(process)
    whole = answer(backtrace(core, "--json"))
    check_scene(whole, truth, python)
    tried = 0
    for command, name in (["zstd", "-q"], ".zst"), (["gzip", "-1"], ".gz"), (["xz", "-0"], ".xz"), (["lz4", "-q"], ".lz4"):
        if not shutil.which(command[0]):
            continue
        packed = tmp_path / ("packed" + name)
        with open(str(core), "rb") as source, open(str(packed), "wb") as out:
            subprocess.run(command + ["-c"], stdin=source, stdout=out, check=True, timeout=240)
        assert answer(backtrace(packed, "--json")) == whole
        tried += 1
    assert tried >= 2, "neither zstd nor gzip is here"


@needs_gdb
@needs_gcore
@pytest.mark.pythons(min=(3, 12), count=1)
def test_a_core_in_gdb(build, tmp_path, spawn, run, python, gcore):
    process, truth = start_scene(tmp_path, spawn, python)
    exe = os.path.realpath("/proc/%d/exe" % process.pid)
    core = gcore(process)

    def ask(*arguments):
        done = run([GDB, "-nx", "-q", "-batch", "-ix", build.share / "gdb" / "probing.py"] + list(arguments)
                   + ["-ex", "probing-backtrace --json"])
        return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))

    said = ask(exe, core)
    assert said["source"] == "gdb"
    check_scene(said, truth, python)
    # GDB finds neither the program nor the libraries: the core is read without them.
    check_scene(ask("-iex", "set sysroot /nonexistent", "-c", core), truth, python, natives=False)


# ---- moved to another machine --------------------------------------------------------------------


@pytest.fixture
def moved(tmp_path, spawn, gcore):
    """Returns a core of a Python whose own files (program and libpython) have since been moved to another root."""
    def make(python):
        here, there = tmp_path / "here", tmp_path / "there"
        here.mkdir()
        exe = os.path.realpath(python.path)
        def libpython(path, **env):
            maps = subprocess.run([path, "-c", "print(open('/proc/self/maps').read())"], stdout=subprocess.PIPE,
                                  universal_newlines=True, check=True, env=dict(os.environ, **env)).stdout
            return {line.split()[-1] for line in maps.splitlines() if "/libpython" in line}

        libs = libpython(python.path)
        for path in [exe] + sorted(libs):
            shutil.copy(path, str(here))
        home = os.path.dirname(os.path.dirname(exe))
        local = python._replace(path=str(here / os.path.basename(exe)))
        env = dict(os.environ, LD_LIBRARY_PATH=str(here), PYTHONHOME=home)
        if python.version >= (3, 14):  # it needs a newer glibc, whose guard pages keep this GDB from dumping stacks
            core, _, truth = kernel_core(tmp_path, spawn, local, signal.SIGABRT, env=env)
        else:
            process, truth = start_scene(tmp_path, spawn, local, env=env)
            core = gcore(process)
        # The file that identifies Python: libpython, if the program uses the one beside it (Debian sid's Python, made to run outside of
        # sid, has a path of its own).
        needed = [p for p in libpython(local.path, LD_LIBRARY_PATH=str(here), PYTHONHOME=home) if p.startswith(str(here))] or [exe]
        there.mkdir()
        os.rename(str(here), str(there / "files"))
        return core, truth, there, os.path.basename(exe), os.path.basename(needed[0]), here

    return make


@needs_gcore
@pytest.mark.pythons(min=(3, 8), max=(3, 13), shared=True, count=2)
def test_a_moved_core_with_shared_libpython(backtrace, python, moved):
    check_moved(backtrace, python, moved)


@needs_gcore
@needs_kernel_cores
@pytest.mark.slow
@pytest.mark.pythons(min=(3, 6))
def test_a_moved_core_of_every_python(backtrace, python, moved):
    check_moved(backtrace, python, moved)


def check_moved(backtrace, python, moved):
    core, truth, there, exe, needed, here = moved(python)
    # Without the files: Python stacks, and one line that says what is missing.
    said = answer(backtrace(core, "--json"))
    check_scene(said, truth, python, natives=False)
    assert "not at hand: " in said["missing"] and needed in said["missing"]
    # With the files: everything.
    sysroot = there / "root"
    (sysroot / str(here.parent)[1:]).mkdir(parents=True)
    shutil.copytree(str(there / "files"), str(sysroot / str(here)[1:]))
    check_scene(answer(backtrace(core, "--json", "--sysroot", sysroot)), truth, python, whole=False)
    flat = answer(backtrace(core, "--json", "--sysroot", there / "files"))
    check_scene(flat, truth, python, whole=False)
    if not python.shared:
        said = answer(backtrace(core, "--json", "--exe", there / "files" / exe))
        check_scene(said, truth, python)
        assert said["missing"] is None
    # Another file of the same name is not taken for the one that ran.
    other = there / "other"
    other.mkdir()
    for name in os.listdir(str(there / "files")):
        shutil.copy("/bin/true", str(other / name))
    said = answer(backtrace(core, "--json", "--sysroot", other))
    assert "another version than the process had" in said["missing"], said["missing"]
    check_scene(said, truth, python, natives=False)


# ---- cut, damaged, or no core at all -------------------------------------------------------------------


@needs_gcore
@needs_gdb
@pytest.mark.pythons(count=1)
def test_a_core_that_is_cut_or_damaged(backtrace, tmp_path, spawn, run, python, gcore, build):
    process, truth = start_scene(tmp_path, spawn, python)
    data = gcore(process).read_bytes()
    for keep in (len(data) // 2, len(data) // 8, 65536):
        cut = tmp_path / "cut"
        cut.write_bytes(data[:keep])
        done = backtrace(cut, check=None)
        assert done.returncode == 0 and "the core is cut off" in done.stdout or \
            done.returncode == 3 and "damaged or cut off" in done.stderr, (keep, done)
        assert done.returncode == 0 or len(done.stderr.splitlines()) == 1
    # It becomes shorter while it is read, as a core in a folder that is cleaned.
    cut.write_bytes(data)
    said = run([GDB, "-nx", "-batch", "-iex", "set debuginfod enabled off", "-ex", "break core_modules", "-ex", "run",
                "-ex", "shell truncate -s %d '%s'" % (len(data) // 8, cut), "-ex", "continue",
                "--args", build.tool("probing"), "backtrace", "--core", cut]).stdout
    assert "Breakpoint 1, " in said and "exited normally" in said and "the core is cut off" in said, said
    # Whatever the file contains: an answer or one line, never a crash or a hang.
    dice = random.Random(7)
    damaged = tmp_path / "damaged"
    damaged.write_bytes(data)
    for _ in range(25):
        places = [dice.randrange(dice.choice((200, 20000, len(data)))) for _ in range(dice.choice((1, 20, 2000)))]
        with open(str(damaged), "r+b") as f:
            for at in places:
                f.seek(at)
                f.write(bytes([dice.randrange(256)]))
        done = backtrace(damaged, check=None, timeout=240)
        assert done.returncode in (0, 3), done
        assert done.returncode == 0 or len(done.stderr.splitlines()) == 1, done.stderr
        with open(str(damaged), "r+b") as f:
            for at in places:
                f.seek(at)
                f.write(data[at:at + 1])
    (tmp_path / "half.zst").write_bytes(subprocess.run(["zstd", "-qc"], input=data, stdout=subprocess.PIPE,
                                                       check=True).stdout[:len(data) // 20])
    assert backtrace(tmp_path / "half.zst", check=None).returncode in (0, 3)


DIES = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (int(sys.argv[1]),) * 2)
def dies(): os.abort()
dies()
"""


@needs_kernel_cores
@pytest.mark.pythons(count=1)
def test_a_core_that_the_limit_cut(backtrace, tmp_path, python):
    """A core of any size (ulimit -c): what it has is shown, and one line says what is missing."""
    shown = []
    for size in (4096, 65536, 1 << 20, 2 << 20, 3 << 20, 1 << 30):
        where = tmp_path / str(size)
        where.mkdir()
        subprocess.run([python.path, "-c", DIES, str(size)], cwd=str(where), timeout=240)
        done = backtrace(next(where.iterdir()), check=None)
        shown.append("dies (<string>" in done.stdout)
        cut = "the core is cut off: parts of the memory are missing" in done.stdout
        if size == 4096:
            assert done.returncode == 3 and "damaged or cut off" in done.stderr and len(done.stderr.splitlines()) == 1
        else:
            assert done.returncode == 0 and "Thread " in done.stdout and "changing" not in done.stdout, done
            assert cut or shown[-1]
            assert shown[-1] or "that part of the core is missing" in done.stdout or "no Python found in what" in done.stdout \
                or "memory of the CPython in" in done.stdout
    assert not cut and shown[-1] and not shown[1]


def test_what_is_no_core(backtrace, build, run, tmp_path):
    text = tmp_path / "text"
    text.write_text("no core at all\n" * 100)
    os.mkfifo(str(tmp_path / "pipe"))
    for path, said in ((text, "is no core file"), (tmp_path / "absent", "cannot open the core"), ("/bin/true", "is an ELF file but no core"),
                       (tmp_path, "is no core file"), ("/dev/null", "is no core file"), (tmp_path / "pipe", "is no core file")):
        done = backtrace(path, check=3)
        assert said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    for options, said in ((["--core", text, "--stop"], "a core stands still already"), ([], "of which process?"),
                          (["-t", "1", "--core", text], "not both"), (["-t", "1", "--exe", text], "are for a core")):
        done = run([build.tool("probing"), "backtrace"] + options, check=2)
        assert said in done.stderr
    (tmp_path / "fake.zst").write_bytes(b"\x28\xb5\x2f\xfd" + b"garbage" * 50)
    assert "damaged" in backtrace(tmp_path / "fake.zst", check=3).stderr


@needs_gcore
@pytest.mark.pythons(count=1)
def test_a_core_without_python(backtrace, spawn, gcore):
    process = spawn(["sh", "-c", "echo up; exec sleep 1000"], ready="up")
    said = answer(backtrace(gcore(process), "--json"))
    assert said["python"] is None and said["note"] == "no Python in this process: native frames only"
    assert [f["func"] for f in said["threads"][0]["frames"]][-1] == "_start" or said["threads"][0]["frames"]
