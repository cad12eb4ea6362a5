# SPDX-License-Identifier: Apache-2.0
"""Live files that another user has planted, or that their owner changes and truncates while a tool of root's reads them."""
import json
import os
import shutil
import sys

import conftest
import pytest
from test_console import wait_until

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it is about whom root trusts")

# Maps a copy of a live file as if it were its own agent's, and keeps truncating and changing it.
OWNER = r"""
import mmap, os, random, struct, sys
source, uid, directory = sys.argv[1], int(sys.argv[2]), sys.argv[3]
image = bytearray(open(source, "rb").read())
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(uid)
ticks = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19])
struct.pack_into("<IIQ", image, 24, os.getpid(), uid, ticks)
path = "%s/%d-1.live" % (directory, os.getpid())
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
os.write(fd, image)
mapping = mmap.mmap(fd, len(image))
print("ready", flush=True)
while True:
    os.ftruncate(fd, random.choice((0, 100, 4096, 8192, 140000)))
    os.pwrite(fd, b"A" * 4096, random.randrange(0, 6000))
    os.pwrite(fd, image, 0)
"""


@pytest.fixture
def planted(record, spawn, tmp_path):
    """planted(folder): returns the pid of another user's process that changes its live file there all the time."""
    source = tmp_path / "source.live"
    started = []

    def do(folder, uid=65534):
        if not started:
            with open(tmp_path / "sleeper.py", "w") as f:
                f.write("import glob, os, shutil, time\n"
                        "while not glob.glob(os.environ['PROBING_RUN_DIR'] + '/*.live'): time.sleep(0.01)\n"
                        "time.sleep(0.3)\n"
                        "shutil.copy(glob.glob(os.environ['PROBING_RUN_DIR'] + '/*.live')[0], %r)\n" % str(source))
            record(tmp_path / "sleeper.py")
        process = spawn([sys.executable, "-c", OWNER, source, uid, folder], ready="ready")
        started.append(process)
        return process.pid
    return do


def foreign_folder(tmp_path, name="theirs"):
    conftest.open_to_others(tmp_path)
    folder = tmp_path / name
    folder.mkdir(mode=0o700)
    os.chown(str(folder), 65534, 65534)
    return folder


@root
def test_another_users_folder_is_not_looked_at(build, run, planted, tmp_path, monkeypatch):
    folder = foreign_folder(tmp_path)
    planted(folder)
    shutil.copy(os.path.join(os.path.dirname(__file__), "../golden/killed.zst"), str(tmp_path / "a.zst"))
    monkeypatch.setenv("PROBING_RUN_DIR", str(folder))
    done = run([build.tool("probing"), "list"], check=None)
    assert str(folder) not in done.stdout and "cannot read %s" % folder not in done.stderr
    assert "belongs to user 65534" in done.stderr
    done = run([build.tool("probing-convert"), "a.zst", "out.db"])
    assert "belongs to user 65534" in done.stderr


@root
def test_another_users_file_in_our_folder(build, run, planted, tmp_path):
    theirs = foreign_folder(tmp_path)
    pid = planted(theirs)
    name = "%d-1.live" % pid
    os.link(str(theirs / name), os.environ["PROBING_RUN_DIR"] + "/" + name)
    for _ in range(20):
        done = run([build.tool("probing"), "list", "--json"], check=1)
        assert done.stdout.strip() == "[]" and "cannot read" in done.stderr


@root
def test_a_folder_open_to_others_is_not_looked_at(build, run):
    os.chmod(os.environ["PROBING_RUN_DIR"], 0o777)
    assert "others may write" in run([build.tool("probing"), "list"], check=None).stderr


@root
def test_a_live_file_cut_while_it_is_asked(build, run, planted, tmp_path):
    pid = planted(foreign_folder(tmp_path))
    for _ in range(2):
        for command in (["status"], ["status", "--json"], ["config"], ["eval", "1"], ["inject"], ["stop"]):
            done = run([build.tool("probing"), "-t", pid] + command, check=None)
            assert done.returncode in (0, 1, 3), (command, done)


def test_our_own_live_file_cut_while_it_is_listed(build, run, planted, tmp_path):
    """A live file of the same user, who could gain nothing by it; but no tool may crash."""
    pid = planted(os.environ["PROBING_RUN_DIR"], os.geteuid())
    for _ in range(20):
        done = run([build.tool("probing"), "list"], check=None)
        assert done.returncode in (0, 1), done
        done = run([build.tool("probing"), "-t", pid, "status"], check=None)
        assert done.returncode in (0, 1, 3), done


@root
def test_another_users_runtime_directory(build, run, spawn, tmp_path, monkeypatch):
    """su and sudo -E keep XDG_RUNTIME_DIR. What root made in it would lie in the other's way, and root's other sessions would not find it."""
    monkeypatch.delenv("PROBING_RUN_DIR", raising=False)
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    os.chown(str(other), 54321, 54321)
    recorder = spawn([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", sys.executable, "-c", "import time\nprint('up', flush=True)\ntime.sleep(600)"],
                     ready="up", env=dict(os.environ, XDG_RUNTIME_DIR=str(other)))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    wait_until(lambda: str(tmp_path / "t.zst") in [p["trace"] for p in json.loads(run([build.tool("probing"), "list", "--json"], check=None).stdout)])
    assert list(other.iterdir()) == []
    recorder.kill()
