# SPDX-License-Identifier: Apache-2.0
"""Many injections, recordings and questions leave in the target as much as one does: no additional thread, library or descriptor."""
import os
import subprocess

import pytest
from conftest import open_to_others, thread_names
from inject_helpers import SPIN, by_pending_call, finish, probing, program, target, wait_until

FIXTURES = (probing, program, target)  # tests ask for them by name

TIMES = 12
HOG = """
import ctypes, sys
print("up", flush=True)
ctypes.PyDLL(None).usleep(int(float(sys.argv[1]) * 1e6))  # with the GIL
print("right")
"""
HOG_TO_THE_END = """
import ctypes
print("up", flush=True)
ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)  # of its input
"""


def libraries(pid):
    """Returns the mapped copies of our libraries, by name."""
    with open("/proc/%d/maps" % pid) as f:
        names = {line.split()[5] for line in f if "libprobing" in line}
    return sorted(os.path.basename(name) for name in names)


def threads(pid):
    return sorted(thread_names(pid).values())


def each_once(pid):
    """Checks that no two threads do the same."""
    names = threads(pid)
    return len(set(names)) == len(names)


def left_by(pid):
    """Returns what is left, after threads that were about to end are gone; the target has one thread of its own."""
    wait_until(lambda: len(threads(pid)) == 1)
    return libraries(pid), threads(pid), len(os.listdir("/proc/%d/fd" % pid))


def cycle(probing, pid, trace, *more):
    probing(pid, "inject", "-o", trace, *more)
    probing(pid, "stop")
    os.unlink(str(trace))


@pytest.mark.pythons(count=3)
@pytest.mark.limit(180)
def test_recordings(probing, target, python, tmp_path):
    process = target(python, SPIN)
    cycle(probing, process.pid, tmp_path / "a.zst")
    assert left_by(process.pid)[0] == ["libprobing-agent.so", "libprobing-inject.so"]
    cycle(probing, process.pid, tmp_path / "a.zst")
    once = left_by(process.pid)
    assert once[0] == ["libprobing-agent.so"] + ["libprobing-inject.so"] * 2  # the first library stays, because fork() calls its handlers
    for _ in range(TIMES):
        cycle(probing, process.pid, tmp_path / "a.zst")
    assert left_by(process.pid) == once


@pytest.mark.pythons(min=(3, 8), max=(3, 13), count=2)
@pytest.mark.limit(180)
def test_by_the_interpreter(probing, target, python, tmp_path):
    """Python's import system loads the stub."""
    process = target(python, SPIN)
    for n in range(5):
        by_pending_call(probing, process.pid, "-o", tmp_path / "a.zst")
        probing(process.pid, "stop")
        os.unlink(str(tmp_path / "a.zst"))
        if n == 1:
            once = left_by(process.pid)
    assert left_by(process.pid) == once


@pytest.mark.pythons(count=1)  # the system's own, which any user may execute
@pytest.mark.limit(180)
def test_the_agent_brought_along(build, run, probing, target, python, tmp_path):
    """If the target cannot read the installed agent, each injection brings a copy of it, but only one is loaded."""
    if os.geteuid():
        pytest.skip("only root is allowed what the target is not")
    private = tmp_path / "private"
    run(["cp", "-r", str(build.root / "lib"), str(build.bin), str(build.share.parent), str(tmp_path)])
    private.mkdir(mode=0o700)
    for name in ("lib", "bin", "share"):
        (tmp_path / name).rename(private / name)
    open_to_others(tmp_path)
    out = tmp_path / "out"
    out.mkdir(mode=0o777)
    os.chmod(str(out), 0o777)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PROBING_", "XDG_"))}
    process = target(python, SPIN, preexec_fn=lambda: (os.setgroups([]), os.setgid(65534), os.setuid(65534)), env=env)
    for n in range(3):
        for command in (["inject", "-o", str(out / "a.zst")], ["stop"]):
            run([str(private / "bin" / "probing"), "-t", process.pid] + command, env=env)
        os.unlink(str(out / "a.zst"))
        assert libraries(process.pid) == ["libprobing-agent.so"] + ["libprobing-inject.so"] * min(n + 1, 2)


@pytest.mark.pythons(count=2)
@pytest.mark.limit(180)
def test_one_that_never_gives_up_the_gil(probing, target, python, tmp_path):
    """As the master of uWSGI: questions time out, recordings come and go. However much was asked, one thread waits."""
    process = target(python, HOG)
    ask = lambda: probing(process.pid, "eval", "--timeout", "0.2", "1 + 1", check=None).returncode
    probing(process.pid, "inject", "-o", tmp_path / "a.zst")
    wait_until(lambda: ask() != 0 and "probing-gil" in threads(process.pid))  # a question that came too late for its asker executes nothing
    for _ in range(4):
        assert ask() != 0
    wait_until(lambda: each_once(process.pid))
    assert "probing-gil" in threads(process.pid)
    probing(process.pid, "stop")
    for _ in range(3):
        probing(process.pid, "inject", "-o", tmp_path / "b.zst")
        ask()
        probing(process.pid, "stop")
        os.unlink(str(tmp_path / "b.zst"))
    wait_until(lambda: len(threads(process.pid)) <= 4)  # and two of ours that make sure that the waiting one does not keep the process alive
    assert threads(process.pid).count("probing-gil") == 1


@pytest.mark.pythons(count=2)
def test_what_was_given_up_never_runs(probing, target, python, tmp_path):
    """The client leaves before the evaluation could begin: it never runs, not even an hour later."""
    marker = tmp_path / "marker"
    process = target(python, HOG_TO_THE_END + "import time\ntime.sleep(1)\n", stdin=subprocess.PIPE)
    assert probing(process.pid, "eval", "--timeout", "0.3", "open(%r, 'w')" % str(marker), check=None).returncode != 0
    process.communicate(timeout=240)
    assert process.returncode == 0
    assert not marker.exists()


def test_the_stub_runs_nothing_as_it_goes(build):
    """gcc's destructor, holding exit()'s lock, waits for a running fork; before glibc 2.36 that fork waits for us, and its child could
    never exit (agent/core/inject.c)."""
    said = subprocess.run(["readelf", "-d", str(build.lib / "libprobing-inject.so")], stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout
    assert "(NEEDED)" in said and "FINI" not in said


EXITS = """
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int hung(const char *end) {
    while (access(end, F_OK)) {
        int status, tries = 0, child = fork();
        if (!child) exit(0);
        while (waitpid(child, &status, WNOHANG) == 0)
            if (usleep(100), ++tries > 1000000) return child;
    }
    return 0;
}
"""


@pytest.mark.parametrize("times", [20, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.pythons(first=True)
def test_forks_whose_children_exit(probing, program, target, python, tmp_path, times):
    """The children find exit()'s lock free, whatever is loaded and unloaded meanwhile."""
    source = "import ctypes, os, sys\nprint('up', flush=True)\nprint(ctypes.CDLL(%r).hung(os.environ['TEST_END'].encode()))"
    process = target(python, source % str(program("exits.so", EXITS, "-shared", "-fPIC")))
    for n in range(times):
        probing(process.pid, "inject", "-o", tmp_path / "t.zst")
        for i in range(4):
            assert probing(process.pid, "eval", "print(1)").stdout == "1\n"
        probing(process.pid, "stop")
    code, out, err = finish(process)
    assert (code, out) == (0, "0"), err
