# SPDX-License-Identifier: Apache-2.0
"""probing-convert: which files may be replaced, how private the result is, and places that cannot be written."""
import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import time

import pytest

from test_convert import GOLDEN, one_line, tool  # noqa: F401

def left_over(path):
    return [p.name for p in path.iterdir() if ".tmp-" in p.name]


def test_force(tool, tmp_path):
    db = tmp_path / "x.db"
    tool(GOLDEN / "basic.zst", db)
    before = db.stat().st_ino
    done = tool(GOLDEN / "killed.zst", db, check=3)
    assert "--force" in one_line(done.stderr)
    assert db.stat().st_ino == before
    tool("--force", GOLDEN / "killed.zst", db)
    assert db.stat().st_ino != before
    reader = sqlite3.connect(str(db))  # a program that has the old database open goes on reading it
    assert reader.execute("SELECT end_reason FROM trace").fetchall() == [("killed",)]
    tool("-f", "-q", GOLDEN / "basic.zst", db)
    assert reader.execute("SELECT end_reason FROM trace").fetchall() == [("killed",)]
    reader.close()
    assert left_over(tmp_path) == []


def test_what_a_killed_one_has_left(build, tool, spawn, tmp_path):
    """The next conversion to the same file removes a killed tool's temporary file once that tool is gone, and removes nothing else."""
    db = tmp_path / "a*[b].db"
    (tmp_path / (db.name + ".tmp-mynote")).write_text("an x that is mine")
    def begun():
        before = set(left_over(tmp_path))
        process = spawn([build.tool("probing-convert"), "-", db], stdin=subprocess.PIPE)
        mine = []
        while not mine:  # it must be locked: otherwise another tool may take it for one that was left behind, and its maker makes another
            time.sleep(0.01)
            with open("/proc/locks") as f:
                locked = {int(line.split()[5].rsplit(":", 1)[1]) for line in f if "FLOCK" in line and " -> " not in line}
            mine = [p.name for p in tmp_path.iterdir() if ".tmp-" in p.name and p.name not in before and p.stat().st_ino in locked]
        return process, mine[0]
    (killed, left), (_, other) = begun(), begun()
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    tool(GOLDEN / "basic.zst", tmp_path / "b.db")
    assert left in left_over(tmp_path)
    tool(GOLDEN / "basic.zst", db)
    assert set(left_over(tmp_path)) == {other, db.name + ".tmp-mynote"}


def foreign(path, kind):
    """Makes a file of another kind at `path`, and returns what must not change."""
    if kind == "text":
        path.write_text("my notes\n")
    elif kind == "database":
        with sqlite3.connect(str(path)) as db:
            db.execute("CREATE TABLE mine(x)")
    elif kind == "trace":
        shutil.copy(GOLDEN / "killed.zst", path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "symlink":
        (path.parent / "target.db").write_bytes(b"")
        path.symlink_to("target.db")
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        try:
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("no device can be made here")
    return identity(path)


def identity(path):
    st = os.lstat(path)
    return st.st_ino, stat.S_IFMT(st.st_mode), path.read_bytes() if stat.S_ISREG(st.st_mode) else None


@pytest.mark.parametrize("kind", ["text", "database", "trace", "fifo", "symlink", "dangling", "directory", "device"])
def test_only_a_database_of_ours_is_replaced(tool, tmp_path, kind):
    out = tmp_path / "x.db"
    before = foreign(out, kind)
    for force in ([], ["--force"]):
        one_line(tool(*force, GOLDEN / "basic.zst", out, check=3).stderr)
        assert identity(out) == before
    assert left_over(tmp_path) == []


def test_an_input_is_never_replaced(tool, tmp_path):
    trace, db = tmp_path / "a.zst", tmp_path / "x.db"
    shutil.copy(GOLDEN / "basic.zst", trace)
    before = identity(trace)
    assert "name the database" in one_line(tool("-f", trace, trace, check=2).stderr)  # the user forgot OUT.db
    assert "name the database" in one_line(tool(trace, tmp_path / "new.zst", check=2).stderr)
    os.link(trace, db)
    tool("-f", trace, db, check=3)
    assert identity(trace) == before == identity(db)
    db.unlink()
    tool(trace, db)  # a database of ours that is also named as an input
    before = identity(db)
    (tmp_path / "sub").mkdir()
    for name in (db, tmp_path / "sub" / ".." / "x.db"):
        assert "one of the inputs" in one_line(tool("-f", trace, name, db, check=3).stderr)
    with open(db, "rb") as stdin:
        assert "one of the inputs" in one_line(tool("-f", trace, "-", db, check=3, stdin=stdin).stderr)
    assert identity(db) == before


def test_what_lies_beside_the_output_stays(tool, tmp_path):
    db = tmp_path / "x.db"
    for name in ("x.db-journal", "x.db-wal", "x.db-shm"):
        side = tmp_path / name
        side.write_text("not SQLite's")
        assert name in one_line(tool("--force", GOLDEN / "basic.zst", db, check=3).stderr)
        assert side.read_text() == "not SQLite's" and not db.exists()
        side.unlink()
    for pid in range(os.getpid(), os.getpid() + 300):  # names of temporary files as earlier versions made them
        (tmp_path / ("x.db.tmp-%d" % pid)).write_text("mine")
    tool(GOLDEN / "basic.zst", db)
    assert all((tmp_path / name).read_text() == "mine" for name in left_over(tmp_path))
    assert len(left_over(tmp_path)) == 300


def test_a_database_is_as_private_as_its_traces(tool, tmp_path):
    trace, db = tmp_path / "a.zst", tmp_path / "x.db"
    shutil.copy(GOLDEN / "basic.zst", trace)
    for mode in (0o600, 0o644):
        trace.chmod(mode)
        tool("-f", trace, db)
        assert db.stat().st_mode & 0o777 == mode & ~os.umask(os.umask(0o22))


def test_adding_a_private_trace_makes_a_database_private(tool, tmp_path):
    a, b, db = tmp_path / "a.zst", tmp_path / "b.zst", tmp_path / "x.db"
    for path, name in ((a, "basic"), (b, "killed")):
        shutil.copy(GOLDEN / (name + ".zst"), path)
        path.chmod(0o644)
    tool(a, db)
    db.chmod(0o644)
    umask = os.umask(0o77)
    try:
        tool("-a", a, db)
        assert db.stat().st_mode & 0o777 == 0o644  # the umask is for new files
        b.chmod(0o600)
        tool("-a", b, db)
    finally:
        os.umask(umask)
    assert db.stat().st_mode & 0o777 == 0o600


def test_what_comes_through_a_pipe_stays_private(build, run, tmp_path):
    """Nothing says who may read what a pipe gives; of a file at standard input its mode does."""
    trace = tmp_path / "a.zst"
    shutil.copy(GOLDEN / "basic.zst", trace)
    trace.chmod(0o644)
    umask = os.umask(0o22)
    try:
        for name, command in (("x.db", "convert -f - %s"), ("f.svg", "flamegraph -o %s -"), ("r.html", "report -o %s -"),
                              ("e.json", "export -f -o %s -")):
            for source, mode in (("cat '%s' |" % trace, 0o600), ("<'%s'" % trace, 0o644)):
                run(["sh", "-c", "%s '%s' %s" % (source, build.tool("probing"), command % name)], cwd=str(tmp_path), check=0)
                assert (tmp_path / name).stat().st_mode & 0o777 == mode, (name, source)
    finally:
        os.umask(umask)


def test_what_is_drawn_is_as_private_as_its_traces(build, run, tool, tmp_path):
    a, b, db = tmp_path / "a.zst", tmp_path / "b.zst", tmp_path / "x.db"
    for path in (a, b):
        shutil.copy(GOLDEN / "basic.zst", path)
    umask = os.umask(os.umask(0o22))
    for mode in (0o600, 0o644):
        b.chmod(mode)
        tool("-f", b, db)
        for name, command in (("f.svg", ["flamegraph"]), ("d.svg", ["flamegraph", "--diff", a]), ("r.html", ["report"]), ("e.json", ["export", "-f"])):
            for source in (b, db):
                run([build.tool("probing")] + command + ["-o", tmp_path / name, source], check=0)
                assert (tmp_path / name).stat().st_mode & 0o777 == mode & ~umask, (name, source)


def test_places_that_cannot_be_written(tool, tmp_path):
    assert "No such file" in one_line(tool(GOLDEN / "basic.zst", tmp_path / "no" / "x.db", check=3).stderr)
    assert "is a directory" in one_line(tool(GOLDEN / "basic.zst", tmp_path, check=3).stderr)


def test_file_size_limit(build, run, tmp_path):
    """A file size limit acts as a full disk where none can be mounted."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000))
    db = tmp_path / "x.db"
    run([build.tool("probing-convert"), GOLDEN / "killed.zst", db])
    old = db.read_bytes()
    done = run([build.tool("probing-convert"), "-f", GOLDEN / "basic.zst", db], check=3, preexec_fn=limit)
    assert "File too large" in one_line(done.stderr)
    assert db.read_bytes() == old and left_over(tmp_path) == []


def test_full_disk(build, run, tool, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], stderr=subprocess.DEVNULL)
    if mounted.returncode != 0:
        pytest.skip("cannot mount a small file system here")
    try:
        (disk / "x.db").touch()
        done = tool("-f", GOLDEN / "basic.zst", disk / "x.db", check=3)
        assert "no space left" in one_line(done.stderr)
        assert (disk / "x.db").read_bytes() == b"" and left_over(disk) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)
