# SPDX-License-Identifier: Apache-2.0
"""probing-convert --append that fails, is killed, or meets somebody else at the database: nothing that was there is lost."""
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from test_append import digest, job  # noqa: F401
from test_console import wait_until
from test_fleet import fleet  # noqa: F401


def test_what_fails_changes_nothing(job, sql, tmp_path):  # noqa: F811
    db = tmp_path / "out.db"
    job("-q", job.nodes[0], db)
    before, rows = digest(db), sql(db, "SELECT count(*), total(ts) FROM sample")
    # The disk is full (the file may not grow) in the middle of the work.
    blocks = os.path.getsize(str(db)) // 512 + 300
    said = job("-qa", *job.nodes, db, code=3, limit="ulimit -f %d" % blocks)
    assert "out.db: " in said and said.count("\n") == 1
    assert sql(db, "SELECT count(*), total(ts) FROM sample") == rows and digest(db) == before
    # The tool is killed in the middle, after it began to write or later: whoever opens the database next sees its earlier state.
    def writing(more):
        """Waits until the tool has written so many bytes, or has ended."""
        p = subprocess.Popen([job.tool, "-qa"] + job.nodes + [str(db)], stderr=subprocess.DEVNULL)
        begun, size = tmp_path / "out.db-journal", os.path.getsize(str(db))
        while p.poll() is None and not (begun.exists() and os.path.getsize(str(db)) >= size + more):
            time.sleep(0.001)
        return p
    for more in (0, 1, 1 << 19):
        p = writing(more)
        p.send_signal(signal.SIGKILL)
        through = p.wait() == 0
        assert sql(db, "PRAGMA integrity_check") == [("ok",)]
        if through or sql(db, "SELECT count(*) FROM trace") == [(8,)]:  # it was killed between its last write and its end
            break
        assert sql(db, "SELECT count(*), total(ts) FROM sample") == rows
    # Ctrl-C.
    p = writing(0)
    p.send_signal(signal.SIGINT)
    p.wait()
    assert sql(db, "PRAGMA integrity_check") == [("ok",)]
    job("-qa", *job.nodes, db)
    assert sql(db, "SELECT count(*) FROM trace") == [(8,)] and sql(db, "PRAGMA integrity_check") == [("ok",)]


def test_a_full_disk_leaves_the_file_as_it_was(job, fleet, run, tmp_path):  # noqa: F811
    """The file's bytes are right at once, without a recovery: it may be copied, and it may lie where its next reader cannot write. No other
    file is left beside it."""
    db, disk = tmp_path / "out.db", tmp_path / "disk"
    job("-q", job.nodes[0], db)
    more, _ = fleet("more", "--ranks", 8, "--nodes", 2, "--minutes", 2, "--seed", 5)
    disk.mkdir()
    shell = 'mount -t tmpfs -o size=$4k none "$0" || exit 77; cp "$1" "$0" && "$2" -qa "$3" "$0/out.db"; echo "code $?"; ls "$0"; cmp "$1" "$0/out.db"'
    done = run(["unshare", "-rm", "/bin/sh", "-c", shell, disk, db, job.tool, more, os.path.getsize(str(db)) // 1024 + 1500], check=False, timeout=600)
    if done.returncode == 77 or "unshare failed" in done.stderr:  # in a chroot the kernel refuses user namespaces
        pytest.skip("no small file system can be mounted: " + done.stderr.strip())
    assert "no space left on the disk" in done.stderr and (done.stdout, done.returncode) == ("code 3\nout.db\n", 0), (done.stdout, done.stderr)


def test_two_at_once(job, sql, tmp_path):  # noqa: F811
    db = tmp_path / "out.db"
    job("-q", job.nodes[0], db)
    holder = sqlite3.connect(str(db), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    said = job("-qa", *job.nodes, db, code=3)
    assert "another program writes it" in said and said.count("\n") == 1
    holder.execute("ROLLBACK")
    holder.close()
    # With real processes: each either is told that the database is busy, or waits for nobody and adds its traces.
    many = [subprocess.Popen([job.tool, "-qa"] + job.nodes + [str(db)], stderr=subprocess.PIPE, universal_newlines=True) for _ in range(3)]
    for p in many:
        said = p.communicate()[1]
        assert p.returncode in (0, 3), said
        assert p.returncode == 0 or "another program writes it" in said
    assert sql(db, "SELECT count(*), count(DISTINCT recording) FROM trace_file") == [(8, 8)]


ADDS_AND_DIES = """
import os, signal, sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.executescript("PRAGMA cache_size = 10; BEGIN; UPDATE sample SET ts = ts + 1; DELETE FROM trace_file WHERE id > 1; CREATE TABLE filler AS SELECT * FROM sample, (SELECT 1 UNION SELECT 2);")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_added_when_it_was_killed_is_undone(job, build, run, sql, tmp_path):  # noqa: F811
    """Whoever reads first finds it as it was. It was "attempt to write a readonly database", until somebody added to it again."""
    db = tmp_path / "out.db"
    job("-q", job.nodes[0], db)
    before = digest(db)

    def die():
        assert subprocess.run([sys.executable, "-c", ADDS_AND_DIES, str(db)]).returncode == -9 and digest(db) != before
    read = "import probing, sys; print(list(probing.open(sys.argv[1]).sql('SELECT count(*) FROM trace').rows()))"
    for command in ([build.tool("probing"), "query", "--csv", db, "SELECT count(*) FROM trace"], [sys.executable, "-c", read, db]):
        die()
        said = run(command, env=dict(os.environ, PYTHONPATH=str(build.share / "python")))
        assert "2" in said.stdout and said.stderr == "" and digest(db) == before and os.listdir(str(tmp_path)).count("out.db-journal") == 0
    if os.getuid() == 0:  # whose journal is somebody else's is not obeyed, nor one that somebody else could exchange for his own
        for others in ((db, tmp_path / "out.db-journal"), (tmp_path,)):
            die()
            for path in others:
                os.chown(str(path), 12345, 12345)
            done = run([build.tool("probing"), "query", db, "SELECT 1"], check=3)
            assert re.search("cannot open .*out.db: adding to it did not end, and what was added must be undone first", done.stderr), done.stderr
            assert (tmp_path / "out.db-journal").exists()
            for path in others:
                os.chown(str(path), 0, 0)
            run([build.tool("probing"), "query", db, "SELECT 1"])


READS = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('SELECT 1 FROM trace_file').fetchone()"


def test_somebody_reads_it_at_the_end(job, sql, tmp_path):  # noqa: F811
    """What was added is written when a program that reads the database just then has ended; it was lost, with all the work."""
    db = tmp_path / "out.db"
    job("-q", job.nodes[0], db)
    reader = sqlite3.connect(str(db), isolation_level=None)
    reader.execute("BEGIN")
    before = reader.execute("SELECT count(*) FROM trace_file").fetchone()
    adds = subprocess.Popen([job.tool, "-qa"] + job.nodes[:2] + [str(db)], stderr=subprocess.PIPE, universal_newlines=True)

    def waits():  # from then on nobody else can begin to read
        return adds.poll() is not None or b"locked" in subprocess.run([sys.executable, "-c", READS, str(db)], stderr=subprocess.PIPE).stderr
    wait_until(waits)
    assert reader.execute("SELECT count(*) FROM trace_file").fetchone() == before
    reader.close()
    said = adds.communicate(timeout=240)[1]
    assert adds.returncode == 0 and said == "", said
    assert sql(db, "SELECT count(*) FROM trace_file") == [(before[0] + 2,)] and sql(db, "PRAGMA integrity_check") == [("ok",)]


def test_two_at_once_where_there_is_none_yet(job, sql, tmp_path):  # noqa: F811
    db = tmp_path / "out.db"
    trace = os.path.join(job.nodes[3], sorted(os.listdir(job.nodes[3]))[0])
    with open(trace, "rb") as f:
        content = f.read()
    later = subprocess.Popen([job.tool, "-qa", "-", str(db)], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + 60
        while not list(tmp_path.glob("out.db.tmp-*")) and time.monotonic() < end:
            time.sleep(0.01)
        job("-qa", job.nodes[0], db)
        said = later.communicate(content, timeout=240)[1].decode()
    finally:
        later.kill()
        later.wait()
    assert later.returncode == 3 and "made by another program" in said and "--force" not in said
    assert said.count("\n") == 1 and [p.name for p in tmp_path.glob("out.db*")] == ["out.db"]
    rows = sql(db, "SELECT count(*) FROM trace_file")
    job("-qa", trace, db)
    assert sql(db, "SELECT count(*) FROM trace_file") == [(rows[0][0] + 1,)]


@pytest.mark.parametrize("change,word", [
    ("PRAGMA user_version = 1", "out.db was made by an older version of probing (its tables are version 1, these "),
    ("PRAGMA user_version = 99", "out.db was made by a newer version of probing (its tables are version 99, these "),
    ("PRAGMA application_id = 5", "out.db")])
def test_databases_of_others(job, sql, tmp_path, change, word):  # noqa: F811
    db = tmp_path / "out.db"
    job("-q", job.nodes[0], db)
    with sqlite3.connect(str(db)) as c:
        c.execute(change)
    before = digest(db)
    said = job("-qa", *job.nodes, db, code=3)
    assert word in said and said.count("\n") == 1 and digest(db) == before


def test_wrong_words(job, tmp_path):  # noqa: F811
    job("-q", job.nodes[0], tmp_path / "out.db")
    assert "leave out one" in job("-af", job.nodes[0], tmp_path / "out.db", code=2)
    assert "--append takes whole traces" in job("-a", "--last", "5s", job.nodes[0], tmp_path / "out.db", code=2)
    (tmp_path / "text").write_text("no database\n")
    job("-a", job.nodes[0], tmp_path / "text", code=3)
    assert (tmp_path / "text").read_text() == "no database\n"
