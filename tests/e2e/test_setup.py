# SPDX-License-Identifier: Apache-2.0
"""What make does besides building: install, uninstall, deps, help and the demo."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree

import pytest
from conftest import REPO, kill_group, lives_in_group, thread_names

TINY = "import time\nwhile time.thread_time() < 0.5:\n    sum(range(1000))\n"


@pytest.fixture
def make(build, run):
    def do(*args, **kw):
        # -o all: the build is taken as it is, whatever switches it was made with.
        return run(["make", "-C", REPO, "-o", "all", "O=%s" % build.root] + list(args), **kw)

    return do


def test_install_and_uninstall(make, run, tmp_path, sql):
    prefix, gdbinit = tmp_path / "prefix", tmp_path / "gdbinit.d"
    places = ["PREFIX=%s" % prefix, "GDBINIT_DIR=%s" % gdbinit]
    make("install", *places)
    assert run([prefix / "bin" / "probing", "--version"]).stdout.startswith("probing ")
    assert (prefix / "share/man/man1/probing.1").exists()

    # The installed tools find their own parts.
    trace, db = tmp_path / "t.zst", tmp_path / "out.db"
    run([prefix / "bin/probing-record", "-r", "100", "-o", trace, "--", "/usr/bin/python3", "-c", TINY])
    run([prefix / "bin/probing-convert", trace, db])
    assert sql(db, "SELECT count(*) FROM samples")[0][0] > 5

    # The line in GDB's init file loads the plugin, and does nothing when the plugin is gone.
    ask = ["gdb", "-nx", "-q", "-batch", "-x", gdbinit / "probing.py", "-ex", "help probing"]
    assert "probing inject" in run(ask).stdout
    shutil.move(str(prefix / "share"), str(tmp_path / "elsewhere"))
    gone = run(ask, check=None)
    assert "Traceback" not in gone.stderr and "probing inject" not in gone.stdout
    shutil.move(str(tmp_path / "elsewhere"), str(prefix / "share"))

    make("uninstall", *places)
    left = [p for top in (prefix, gdbinit) for p in top.rglob("*") if not p.is_dir()]
    assert left == []


def test_uninstall_leaves_another_prefix(make, tmp_path):
    """There is one line in GDB's init file, which belongs to the prefix that was installed last."""
    gdbinit = tmp_path / "gdbinit.d"
    for name in ("old", "new"):
        make("install", "PREFIX=%s" % (tmp_path / name), "GDBINIT_DIR=%s" % gdbinit)
    make("uninstall", "PREFIX=%s" % (tmp_path / "old"), "GDBINIT_DIR=%s" % gdbinit)
    assert "%s/share/probing" % (tmp_path / "new") in (gdbinit / "probing.py").read_text()
    make("uninstall", "PREFIX=%s" % (tmp_path / "new"), "GDBINIT_DIR=%s" % gdbinit)
    assert not (gdbinit / "probing.py").exists()


def test_install_honours_destdir(make, tmp_path):
    make("install", "PREFIX=/opt/probing", "GDBINIT_DIR=/etc/gdb/gdbinit.d", "DESTDIR=%s" % tmp_path)
    assert (tmp_path / "opt/probing/bin/probing").exists()
    line = (tmp_path / "etc/gdb/gdbinit.d/probing.py").read_text()
    assert "/opt/probing/share/probing/gdb/probing.py" in line and str(tmp_path) not in line
    assert len(line.splitlines()) == 1


def test_install_without_a_place_in_gdb_says_what_to_type(make, tmp_path):
    done = make("install", "PREFIX=%s" % tmp_path, "GDBINIT_DIR=")
    assert "-ix %s/share/probing/gdb/probing.py" % tmp_path in done.stdout


def deps(run, tmp_path, check, *groups, **fakes):
    """Runs .ci/deps.sh on a system that has these commands: the real ones are not called, and nothing is installed."""
    for name, text in dict({"apt-cache": "exit 1", "apt-get": "echo called >&2; exit 1"}, **fakes).items():
        (tmp_path / name.replace("_", "-")).write_text("#!/bin/sh\n%s\n" % text)
        (tmp_path / name.replace("_", "-")).chmod(0o755)
    # Whatever interpreter is asked finds a PyTorch that is too old, and pip is not asked for another.
    (tmp_path / "torch.py").write_text("__version__ = '0.1'")
    env = dict(os.environ, PATH="%s:%s" % (tmp_path, os.environ["PATH"]), PYTHONPATH=str(tmp_path), PROBING_TORCH2=str(tmp_path / "none"), PYTHON="python3")
    return run([REPO / ".ci/deps.sh"] + list(groups or ("build", "test")), env=env, check=check)


NO_ROOT = dict(id="echo 1000", sudo="exit 1")


def test_deps_without_root_names_the_one_command(run, tmp_path):
    """A system where no package is installed, and a user who is not root and has no sudo."""
    done = deps(run, tmp_path, 3, dpkg_query="exit 1", **NO_ROOT)
    command = [line for line in done.stderr.splitlines() if "apt-get install" in line]
    assert len(command) == 1 and "python3-pytest" in command[0], done.stderr
    assert "called" not in done.stderr


@pytest.mark.parametrize("version", ["2.6.0", "1.8.1", "(none)"])
def test_deps_without_root_names_only_packages_that_exist(run, tmp_path, version):
    """PyTorch is named if the system's is recent enough; otherwise pip gets it, which needs no root."""
    offers = 'case $2 in python3-torch) echo "  Candidate: %s" ;; python3-dbg) echo "  Candidate: 3.11" ;; *) echo "  Candidate: (none)" ;; esac' % version
    recorded = version == "2.6.0"
    done = deps(run, tmp_path, 3, "build", "demo", "test-all", dpkg_query="exit 1", python3="exit 1", apt_cache=offers, **NO_ROOT)
    command, = [line.split() for line in done.stderr.splitlines() if "apt-get install" in line]
    assert ("python3-torch" in command, "python3-venv" in command) == (recorded, not recorded), done.stderr
    assert "python3-dbg" in command and "patchelf" not in command, done.stderr  # optional ones, too, as root would get them
    # All else is there: nothing that needs root.
    if not recorded:
        python3 = 'case $2 in *ensurepip*) exit 0 ;; esac; exec %s "$@"' % sys.executable
        done = deps(run, tmp_path, 0, "build", "demo", dpkg_query="echo installed", python3=python3, apt_cache=offers, **NO_ROOT)
        assert "apt-get" not in done.stderr and "PIP" in done.stdout, (done.stdout, done.stderr)


def test_deps_says_nothing_when_all_is_there(run, tmp_path):
    done = deps(run, tmp_path, 0, dpkg_query="echo installed", python3="echo /usr/bin/python3")
    assert done.stdout == "" and done.stderr == ""


def test_the_tests_programs_have_ordinary_signals(run):
    """Whoever starts the tests: nohup and background jobs ignore signals, and some CI blocks them."""
    code = ("import signal, subprocess, sys\nsys.path.insert(0, %r)\n"
            "for s in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1): signal.signal(s, signal.SIG_IGN)\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])\nimport conftest\n"
            "subprocess.run(['grep', '-E', '^Sig(Blk|Ign)', '/proc/self/status'])" % str(REPO / "tests" / "e2e"))
    masks = [int(line.split()[1], 16) for line in run([sys.executable, "-c", code]).stdout.splitlines()]
    assert len(masks) == 2 and not any(mask & ~(3 << 31) for mask in masks)  # 32 and 33 are the C library's own


IN_A_THREAD = """
import sys, threading, pytest
said = []
def tests():
    said.append(pytest.main(["-q", "-p", "conftest", "-p", "no:cacheprovider", "--basetemp=pt", "-k"] + sys.argv[2:]))
if sys.argv[1] == "another":
    thread = threading.Thread(target=tests)
    thread.start()
    thread.join()
else:
    tests()
sys.exit(said[0])
"""
LIMITED = """
import pytest, time
@pytest.mark.limit(1)
def test_it_hangs(): time.sleep(600)
def test_it_passes(): pass
"""


@pytest.mark.parametrize("thread", ["the first", pytest.param("another", marks=pytest.mark.slow)])
def test_limits_in_any_thread(run, tmp_path, thread):
    """A worker of xdist may run its tests in a thread other than the main one: they pass there, and one that hangs is stopped."""
    (tmp_path / "test_limited.py").write_text(LIMITED)
    env = dict(os.environ, PYTHONPATH=str(REPO / "tests" / "e2e"))
    for name, code, says in (("passes", 0, "1 passed"), ("hangs", 1, "its limit is 4 s" if thread == "the first" else "Timeout (0:00:04)!")):
        done = run([sys.executable, "-c", IN_A_THREAD, thread, name, tmp_path / "test_limited.py"], env=env, check=code)
        assert says in done.stdout + done.stderr, (done.stdout, done.stderr)


COMES_AND_GOES = """
import threading
print("up", flush=True)
while True:
    threads = [threading.Thread(target=int) for _ in range(20)]
    for t in threads: t.start()
    for t in threads: t.join()
"""


def test_threads_that_end_while_the_tests_look_at_them(spawn):
    process = spawn([sys.executable, "-c", COMES_AND_GOES], ready="up")
    most = 0
    while most < 2000:
        names = thread_names(process.pid)
        assert process.pid in names
        most += len(names)


def test_the_tests_programs_are_gone_when_a_test_ends(run):
    """Also those that the test's own program started: a process that is dying still looks like one that was left behind."""
    for _ in range(5):
        process = subprocess.Popen(["sh", "-c", "for i in $(seq 40); do sleep 1000 & done; echo up; wait"], stdout=subprocess.PIPE, start_new_session=True)
        assert process.stdout.readline() == b"up\n"
        process.stdout.close()
        kill_group(process)
        assert not lives_in_group(process.pid)


def test_a_source_distribution_can_be_built(run, tmp_path):
    """It has all that make compiles and installs."""
    pytest.importorskip("setuptools.dist")  # Debian 13 has a folder of that name without it
    tree = tmp_path / "tree"  # setuptools puts the files together beside setup.py
    run(["git", "checkout-index", "-a", "--prefix=%s/" % tree], cwd=str(REPO))
    run([sys.executable, "setup.py", "-q", "sdist", "--dist-dir", tmp_path], cwd=str(tree))
    with tarfile.open(str(next(tmp_path.glob("*.tar.gz")))) as f:
        packed = {name.partition("/")[2] for name in f.getnames()}
    needed = run(["git", "ls-files", "Makefile", "setup.py", "traces", "writer", "agent", "gdbplugin", "converter", "tools"], cwd=str(REPO)).stdout.split()
    assert len(needed) > 300 and set(needed) <= packed


def test_help_names_every_target(run):
    text = run(["make", "-C", REPO, "help"]).stdout
    for target in "all demo test test-all mutants bench lint install uninstall clean deps help".split():
        assert re.search(r"^  %s " % target, text, re.M), target


@pytest.mark.pythons(torch=True, count=1)
@pytest.mark.limit(300)
def test_demo(run, build, python, tmp_path):
    # Uses a folder of its own, laid out like the built tree, so that the user's demo is not touched.
    root = tmp_path / "tree"
    root.mkdir()
    for part in ("bin", "lib", "share"):
        os.symlink(str(build.root / part), str(root / part))
    done = run([REPO / ".ci/demo.sh", root, "6"], env=dict(os.environ, PYTHON=python.path), timeout=280)
    assert "final loss" in done.stdout
    tables = re.findall(r"^(?:-+ *)+$", done.stdout, re.M)
    assert len(tables) == 5, done.stdout
    assert "backward" in done.stdout and "ms_a_step" in done.stdout and "largest_loader" in done.stdout and "most_often_in" in done.stdout
    svg = pathlib.Path(root / "demo" / "flame.svg")
    assert xml.etree.ElementTree.parse(str(svg)).getroot().tag.endswith("svg")
    assert "CharTransformer.forward" in svg.read_text()
    assert "probing query" in done.stdout.splitlines()[-4]
