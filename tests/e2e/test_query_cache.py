# SPDX-License-Identifier: Apache-2.0
"""The second question about the same traces is answered from the database that the first one made."""
import os
import pathlib
import shutil
import sqlite3
import struct
import subprocess

import pytest

from test_fleet import fleet  # noqa: F401

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
QUESTION = "SELECT command FROM trace"
MARK = "out of the cache"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PROBING_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def ask(build, run):
    def do(*args, **kw):
        return run([build.tool("probing-query"), "--csv", *args], **kw)

    return do


@pytest.fixture
def trace(tmp_path):
    shutil.copy(str(GOLDEN / "basic.zst"), str(tmp_path / "t.zst"))
    return tmp_path / "t.zst"


def kept(cache):
    return sorted(cache.glob("*.db"))


def mark(cache):
    """Marks the database, so that an answer with the mark was not converted anew."""
    for db in kept(cache):
        with sqlite3.connect(str(db)) as c:
            c.execute("UPDATE trace_file SET command = ?", (MARK,))


def test_the_second_question_converts_nothing(ask, cache, trace):
    first = ask(trace, QUESTION).stdout
    assert MARK not in first and len(kept(cache)) == 1
    assert os.stat(str(cache)).st_mode & 0o777 == 0o700 and os.stat(str(kept(cache)[0])).st_mode & 0o777 == 0o600
    mark(cache)
    assert MARK in ask(trace, QUESTION).stdout
    assert ask("--no-cache", trace, QUESTION).stdout == first
    assert ask(trace, "SELECT count(*) FROM python.samples").stdout == ask("--no-cache", trace, "SELECT count(*) FROM python.samples").stdout


def test_a_trace_that_has_changed_is_converted_again(ask, cache, trace):
    ask(trace, QUESTION)
    mark(cache)
    shutil.copy(str(GOLDEN / "epochs.zst"), str(trace)) # the same name with other content
    assert MARK not in ask(trace, QUESTION).stdout
    assert len(kept(cache)) == 1 # and the database of the older state is gone


def test_a_change_that_leaves_size_time_and_end_is_seen(ask, cache, trace):
    """As by rsync --inplace --times, or by cp -p onto it, of a trace that differs in its middle."""
    data = bytearray(trace.read_bytes())
    with open(str(trace), "ab") as f: # so that the last bytes, which are looked at, do not hold the change
        f.write(b"\x50\x2a\x4d\x18" + (8192).to_bytes(4, "little") + bytes(8192)) # a frame to skip
    was = os.stat(str(trace))
    ask(trace, QUESTION)
    mark(cache)
    assert MARK in ask(trace, QUESTION).stdout
    data[len(data) // 2] ^= 1
    with open(str(trace), "r+b") as f:
        f.write(data)
    os.utime(str(trace), ns=(was.st_atime_ns, was.st_mtime_ns))
    now = os.stat(str(trace))
    assert (now.st_ino, now.st_size, now.st_mtime_ns) == (was.st_ino, was.st_size, was.st_mtime_ns)
    assert MARK not in ask(trace, QUESTION, check=False).stdout


def test_without_a_cache(ask, cache, trace, monkeypatch):
    ask("--no-cache", trace, QUESTION)
    assert not cache.exists() or not kept(cache)
    monkeypatch.setenv("PROBING_CACHE_DIR", "")
    ask(trace, QUESTION)
    monkeypatch.setenv("PROBING_CACHE_DIR", str(trace)) # not a folder
    assert ask(trace, QUESTION).stderr == ""
    monkeypatch.setenv("PROBING_CACHE_DIR", str(cache))
    assert ask("-", QUESTION, input=trace.read_bytes(), binary=True).stdout # standard input has no name to find a database by
    assert not cache.exists() or not kept(cache)


def test_what_is_damaged_is_said_each_time(ask, cache):
    done = [ask(GOLDEN / "damaged.zst", QUESTION, check=1) for _ in range(2)]
    assert done[0].stderr == done[1].stderr and "damaged" in done[0].stderr
    assert not kept(cache)


def test_a_folder_that_others_may_write_is_not_used(ask, cache, trace):
    cache.mkdir()
    cache.chmod(0o777)
    ask(trace, QUESTION)
    assert not kept(cache)


def test_what_others_put_there_is_not_read(ask, cache, trace, tmp_path):
    ask(trace, QUESTION)
    db, = kept(cache)
    mark(cache)
    away = tmp_path / "away.db"
    db.rename(away)
    db.symlink_to(away) # a link
    assert MARK not in ask(trace, QUESTION).stdout
    with sqlite3.connect(str(away)) as c: # what it points to is unchanged
        assert c.execute(QUESTION).fetchone() == (MARK,)
    mark(cache)
    kept(cache)[0].chmod(0o666) # any user may have changed it
    assert MARK not in ask(trace, QUESTION).stdout


def test_many_at_once(build, cache, trace):
    runs = [subprocess.Popen([build.tool("probing-query"), "--csv", str(trace), QUESTION], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(6)]
    answers = [p.communicate(timeout=240) for p in runs]
    assert {p.returncode for p in runs} == {0} and len(set(answers)) == 1, answers
    assert len(kept(cache)) == 1 and len(list(cache.iterdir())) == 1


def test_the_oldest_go(ask, cache, trace):
    ask(trace, QUESTION)
    for i, age in enumerate((300, 200, 100)): # 5 GB each, without using the disk
        name = cache / ("%016x-%016x.db" % (i, i))
        name.touch()
        os.truncate(str(name), 5 << 30)
        os.utime(str(name), (1e9 - age, 1e9 - age))
    foreign = cache / "mine.db"
    foreign.touch()
    shutil.copy(str(GOLDEN / "epochs.zst"), str(trace))
    ask(trace, QUESTION)
    names = {p.name[:4] + p.name[15] for p in kept(cache) if p != foreign}
    assert "00000" not in names and "00001" not in names and foreign.exists()
    assert any(n[:4] != "0000" for n in names) # the database that was just asked stays


def test_a_part_of_the_time(ask, cache, trace):
    count = "SELECT count(*), max(timestamp) - min(timestamp) FROM samples"
    some, all_of_it = [ask(*part, trace, count).stdout.splitlines()[1].split(",") for part in (["--to", "+2s"], [])]
    assert 0 < int(some[0]) < int(all_of_it[0]) and float(some[1]) <= 2.001 < float(all_of_it[1])
    assert len(kept(cache)) == 2 # neither answers for the other
    assert [ask(*part, trace, count).stdout.splitlines()[1].split(",") for part in (["--to", "+2s"], [])] == [some, all_of_it]
    assert "write a length" in ask("--last", "soon", trace, count, check=2).stderr
    assert "is a database" in ask("--last", "1s", kept(cache)[0], count, check=2).stderr


def test_what_traces_say_of_themselves(ask, cache, trace, sql):
    """Samples are not read for such a question, and the small database does not answer the next question about them."""
    for query in ("SELECT table_name FROM information_schema.tables", QUESTION, "SELECT name FROM information_schema.df_settings", "SELECT run, ranks FROM runs"):
        said = ask(trace, query)
        assert said.stdout == ask("--no-cache", trace, query + " /* python: all is read */").stdout and said.stdout.count("\n") > 1
        one, = kept(cache)
        assert sql(one, "SELECT (SELECT count(*) FROM sample), (SELECT count(*) FROM trace_file)") == [(0, 1)]
        if "tables" in query:  # the program's own tables are names, too, so its events are also read
            one.unlink()
    of_all = {query: ask("--no-cache", trace, query).stdout for query in ("SELECT func FROM python.backtrace", "SELECT lost, records FROM trace",
                                                                         "SELECT command, (SELECT count(*) FROM samples) FROM trace", "SELECT signal FROM trace")}
    for query, answer in of_all.items():
        assert ask(trace, query).stdout == answer, query
        assert len(kept(cache)) == 2
    mark(cache)
    one.unlink()
    assert MARK in ask(trace, QUESTION).stdout and len(kept(cache)) == 1  # the database of everything answers that, too


def test_a_part_of_what_is_too_large_is_kept(ask, cache, trace):
    """If someone asks about one second, it does not matter how large the whole database would be."""
    with open(str(trace), "ab") as f:  # 3 GB that contain nothing and use no disk: a frame to be skipped
        f.write(struct.pack("<II", 0x184D2A50, 3 << 30))
        f.truncate(f.tell() + (3 << 30))
    count = "SELECT count(*) FROM sample"
    assert int(ask(trace, count).stdout.split()[1]) > 0 and not kept(cache)
    first = ask("--last", "1s", trace, count).stdout
    part, = kept(cache)
    with sqlite3.connect(str(part)) as c:
        c.execute("DELETE FROM sample")
    assert int(first.split()[1]) > 0 and ask("--last", "1s", trace, count).stdout.split()[1] == "0"  # the answer comes from its records


def test_a_part_holds_what_its_question_is_about(ask, cache, fleet, sql):  # noqa: F811
    out, _ = fleet("job", "--ranks", 2, "--nodes", 1, "--minutes", 0.2)
    questions = {"SELECT count(*) FROM samples": "sample", "SELECT count(*), max(bytes) FROM comm_metrics": "comm",
                 "SELECT count(*) FROM torch_trace": "torch_call"}
    whole = {q: ask("--no-cache", "--last", "5s", out, q + " -- " + "lost, complete").stdout for q in questions}
    for n, (question, table) in enumerate(questions.items(), 1):
        assert ask("--last", "5s", out, question).stdout == whole[question] != ""
        assert len(kept(cache)) == n
        newest = max(kept(cache), key=lambda p: p.stat().st_mtime_ns)
        held = [*questions.values(), "function_total", "stack_total"]
        assert {t for t in held if sql(newest, "SELECT count(*) FROM " + t) != [(0,)]} == {table}
    sums = "SELECT count(*), sum(self), sum(total) FROM hot_functions"
    whole[sums] = ask("--last", "5s", out, sums).stdout
    newest = max(kept(cache), key=lambda p: p.stat().st_mtime_ns)
    held = "SELECT (SELECT count(*) FROM function_total) > 0, (SELECT count(*) FROM comm), (SELECT count(*) FROM sample)"
    assert sql(newest, held) == [(1, 0, 0)]  # sums need no rows of samples
    questions[sums] = "function_total"
    assert ask("--last", "5s", out, "SELECT sum(lost), min(complete) FROM trace").stdout.split()[1] == "0,1"
    for question in questions:  # the database of everything answers these, too
        assert ask("--last", "5s", out, question).stdout == whole[question] and len(kept(cache)) == len(questions) + 1
    assert ask("--last", "4s", out, "SELECT count(*) > 0 FROM python.backtrace").stdout.split()[-1] == "1"
    assert ask("--last", "3s", out, "SELECT 1").stdout.split()[-1] == "1"
