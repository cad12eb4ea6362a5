# SPDX-License-Identifier: Apache-2.0
"""Backtraces of native code with DWARF have source lines, and a frame for each inlined function, however the process is read."""
import json
import re
import shutil
import subprocess

import pytest
from backtrace_scene import libc_keeps_frame_pointers
from conftest import wait_until_asleep
from gdb_tools import GDB, gdb_command

# The comments in this program are what the test expects of each line.
LIBRARY = """#include <unistd.h>
static inline __attribute__((always_inline)) int innermost(volatile char *c, int fd) {
    return (int)read(fd, (char *)c, 1) + 1;
}
static inline __attribute__((always_inline)) int between(volatile char *c, int fd) {
    *c = 0;
    return innermost(c, fd) * 3;
}
__attribute__((noinline)) int host(int fd);
int host(int fd) {
    volatile char c;
    return between(&c, fd) + 1;
}
int entry(int fd) { return host(fd) + 1; }
"""
TRUTH = [("innermost", 3, True), ("between", 7, True), ("host", 12, False), ("entry", 14, False)]
WAITS = "import ctypes, os, sys\nlib = ctypes.CDLL(sys.argv[1])\nfd, _ = os.pipe()\nprint('up', flush=True)\nlib.entry(fd)"


@pytest.fixture
def waiting(tmp_path, spawn, python):
    """Starts a process that waits in the library, compiled with these options."""
    def start(*options, compiler="cc", text=LIBRARY):
        source, library = tmp_path / "work.c", tmp_path / "libwork.so"
        source.write_text(text)
        # Ubuntu's compilers fortify by default; read() is then an inlined function of its own.
        subprocess.run([compiler, "-O2", "-U_FORTIFY_SOURCE", "-fno-optimize-sibling-calls", "-shared", "-fPIC", "-Wl,--build-id", *options,
                        "-o", library, source], check=True, timeout=240)
        process = spawn([python.path, "-c", WAITS, str(library)], ready="up")
        wait_until_asleep(process.pid)
        return process

    return start


@pytest.fixture
def each_way(build, run, tmp_path):
    """Returns what a backtrace says, read in each way: {way: output}."""
    def ask(process, *options):
        probing = build.tool("probing")
        said = {"stopped": run([probing, "-t", process.pid, "backtrace", "--stop", *options]).stdout}
        if not libc_keeps_frame_pointers():  # its read() needs a register that can be read only from a stopped thread
            said["live"] = run([probing, "-t", process.pid, "backtrace", *options]).stdout
        if GDB:
            said["gdb"] = run(gdb_command(build, process.pid, " ".join(["probing-backtrace", *options]))).stdout
        if shutil.which("gcore"):
            run(["gcore", "-o", tmp_path / "core", process.pid])
            said["core"] = run([probing, "backtrace", "--core", tmp_path / ("core.%d" % process.pid), *options]).stdout
            if GDB:
                said["core in gdb"] = run(gdb_command(build, None, "core-file %s" % (tmp_path / ("core.%d" % process.pid)),
                                                      " ".join(["probing-backtrace", *options]))).stdout
        return said

    return ask


def of_library(text):
    frames = [f for t in json.loads(text[text.index('{"pid"'):])["threads"] for f in t["frames"]]
    return [f for f in frames if f["type"] == "Native" and f["module"] == "libwork.so"]


@pytest.mark.pythons(count=1)
def test_inlined_functions_each_at_its_line(waiting, each_way, tmp_path):
    process = waiting("-g")
    for way, text in each_way(process, "--json").items():
        frames = of_library(text)
        assert [(f["func"], f["line"], f["inlined"]) for f in frames] == TRUTH, way
        assert {f["file"] for f in frames} == {str(tmp_path / "work.c")}, way
        # inlined functions have no symbols; they appear where the function around them does
        assert [f["symbol"] for f in frames] == [None, None, "host", "entry"], way
        assert [f["offset"] is None for f in frames] == [True, True, False, False], way
        assert frames[0]["address"] == frames[1]["address"] == frames[2]["address"] != frames[3]["address"], way
    for way, text in each_way(process).items():
        work = re.escape(str(tmp_path / "work.c"))
        for func, line, inlined in TRUTH:
            assert re.search(r"^  #\d+ +%s \(%s:%d\) \[libwork\.so%s\]$" % (func, work, line, ", inlined" if inlined else ""), text, re.M), way
        depths = [int(n) for n in re.findall(r"^  #(\d+) ", text, re.M)]
        assert depths == list(range(len(depths))), way
    for way, text in each_way(process, "--folded").items():
        assert ";entry [libwork.so];host [libwork.so];between [libwork.so];innermost [libwork.so];" in text, way
    assert process.poll() is None


# clang writes no table that maps addresses to compilation units; with -flto, the source of inlined code is in another unit; DWARF before
# version 5 encodes functions' ranges and files differently; compressed sections must be unpacked.
@pytest.mark.parametrize("compiler,options", [("clang", ["-g"]), ("clang", ["-gdwarf-4"]), ("gcc", ["-g", "-flto"]),
                                              ("gcc", ["-gdwarf-4", "-gz"])])
@pytest.mark.pythons(count=1)
def test_other_compilers(waiting, build, run, compiler, options):
    if not shutil.which(compiler):
        pytest.skip("no " + compiler)
    process = waiting(*options, compiler=compiler)
    frames = of_library(run([build.tool("probing"), "-t", process.pid, "backtrace", "--stop", "--json"]).stdout)
    assert [(f["func"], f["line"], f["inlined"]) for f in frames] == TRUTH


CXX = """#include <unistd.h>
namespace deep { namespace down {
template <typename T> __attribute__((always_inline)) inline T innermost(volatile char *c, T fd) {
    return (T)read(fd, (char *)c, 1) + 1;
}
struct Worker {
    int fd;
    __attribute__((noinline)) int host();
};
int Worker::host() {
    volatile char c = 0;
    return innermost<int>(&c, fd) * 3;
}
} }
extern "C" int entry(int fd) { deep::down::Worker w = {fd}; return w.host() + 1; }
"""


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.pythons(count=1)
def test_names_of_cxx(waiting, build, run, compiler):
    if not shutil.which(compiler):
        pytest.skip("no " + compiler)
    process = waiting("-g", "-xc++", compiler=compiler, text=CXX)
    frames = of_library(run([build.tool("probing"), "-t", process.pid, "backtrace", "--stop", "--json"]).stdout)
    assert [(f["func"], f["line"], f["inlined"]) for f in frames] == [
        ("int deep::down::innermost<int>(char volatile*, int)", 4, True), ("deep::down::Worker::host()", 12, False), ("entry", 15, False)]


@pytest.mark.pythons(count=1)
def test_without_dwarf(waiting, each_way):
    process = waiting("-g0", "-s")
    for way, text in each_way(process, "--json").items():
        frames = of_library(text)
        assert [(f["func"], f["file"], f["line"], f["inlined"]) for f in frames] == [(n, None, None, False) for n in ("host", "entry")], way
    for way, text in each_way(process).items():
        assert re.search(r"^  #\d+ +host \[libwork\.so\]\n  #\d+ +entry \[libwork\.so\]$", text, re.M), way
