# SPDX-License-Identifier: Apache-2.0
"""What a conversion takes: a part of the time, some types of records, directories of any depth, many files."""
import os
import re
import shutil
import struct
import zlib

import format_reader
import pytest

from test_fleet import fleet  # noqa: F401


@pytest.fixture
def job(fleet, build, run, tmp_path):  # noqa: F811
    """job(option, ...): converts with these options and returns the database. The nodes' clocks are half a second apart."""
    out, _ = fleet("job", "--ranks", 4, "--nodes", 2, "--minutes", 0.5, "--offset", 0.5)

    def do(*options, traces=(out,), code=0):
        db = tmp_path / "part.db"
        if db.exists():
            db.unlink()
        done = run([build.tool("probing-convert")] + [str(o) for o in options] + [str(t) for t in traces] + [str(db)], check=False)
        assert done.returncode == code, done.stderr
        return db, done.stderr
    do.out = out
    return do


TABLES = ("sample", "torch_call", "torch_step", "comm", "cpu", "memory_sample", "event", "variable")


def spans(sql, db):
    """Returns {table: (ids, first and last time in seconds since the job began)}."""
    return {t: sql(db, "SELECT count(*), min(ts) / 1e9 - 1760000000, max(ts) / 1e9 - 1760000000, min(id), max(id) FROM %s" % t)[0] for t in TABLES}


def test_part_of_the_time(job, sql):
    whole, _ = job()
    all_of = spans(sql, whole)
    first = min(v[1] for v in all_of.values())
    last = max(v[2] for v in all_of.values())
    rows = {t: set(sql(whole, "SELECT id, ts FROM %s" % t)) for t in TABLES}
    inside = {"--last 5s": (last - 5.2, last + 1), "--from -5s": (last - 5.2, last + 1), "--from +10s --to +12.5s": (first + 9.9, first + 12.6),
              "--to 2025-10-09T08:53:25Z": (first - 1, 5.001), "--from 1760000020.5": (20.499, last + 1),
              "--from 2025-10-09T10:53:35+02:00 --to 1760000020": (14.999, 20.001)}
    for words, (lo, hi) in inside.items():
        db, said = job(*words.split())
        for table, (n, at, to, _, _) in spans(sql, db).items():
            slack = 0.2 if table.startswith("torch") else 0.002  # a step or a call that crosses the border is included
            assert n > 0 and lo - slack <= at and to <= hi + slack, (words, table, at, to)
            # The part has the same rows, under the same names, as the whole has in that time, and no others.
            if not table.startswith("torch"):
                part = set(sql(db, "SELECT id, ts FROM %s" % table))
                if table != "sample":  # samples are numbered in the order in which they come
                    assert {i for i, _ in part} <= {i for i, _ in rows[table]}, (words, table)
                wanted = sum(lo + 0.5 < ts / 1e9 - 1760000000 < hi - 0.5 for _, ts in rows[table])
                assert len(part) >= wanted, (words, table)
        assert sql(db, "SELECT count(*), sum(lost), min(complete) FROM trace") == [(4, 0, 1)]
        assert sql(db, "SELECT count(*) FROM lost") == [(0,)]
        assert sql(db, "SELECT min(method) FROM clock_alignment") == [("collectives",)]
    db, said = job("--from", "2031-01-01")
    assert "nothing lies in the time that was asked for: the traces go from 17" in said
    assert all(v[0] == 0 for v in spans(sql, db).values())


@pytest.mark.parametrize("words", ["--to 1990-01-01", "--to 0001-01-01", "--from 2300-01-01", "--from 9999-12-31", "--from +100000d", "--to -100000d"])
def test_a_time_long_before_or_after(job, sql, words):
    """Before the machine was started, and before or after what nanoseconds since 1970 can count."""
    db, said = job(*words.split())
    assert "nothing lies in the time that was asked for" in said
    assert all(v[0] == 0 for v in spans(sql, db).values())


@pytest.mark.parametrize("words", ["--from 0001-01-01", "--to 2300-01-01", "--to 9999-12-31", "--last 100000d", "--to +100000d", "--from 1969-12-31 --to 9999-12-31T23:59:59Z"])
def test_a_time_that_has_all(job, sql, words):
    whole = spans(sql, job()[0])
    db, said = job(*words.split())
    assert "nothing lies" not in said and spans(sql, db) == whole


def test_of_the_clock_what_lies_there(fleet, build, run, sql, tmp_path):  # noqa: F811
    """Hours of many ranks have a hundred thousand clock anchors. Only those of the part are read, and its times are still those of the
    whole. One node's clock is set in the middle of it."""
    out, _ = fleet("long", "--ranks", 2, "--nodes", 2, "--minutes", 6, "--step-ms", 2000, "--hz", 2, "--ntp-step", "1:200:3")
    for traces in ([out], [out / "node001"]):  # aligned by collectives; and by its own anchors
        dbs = []
        for n, words in enumerate(([], ["--last", "20s"], ["--from", "+190s", "--to", "+210s"])):
            dbs.append(tmp_path / ("clock%d%d.db" % (len(str(traces[0])), n)))
            run([build.tool("probing-convert"), "-q", *words, *traces, dbs[-1]])
        anchors = [sql(db, "SELECT count(*) / (SELECT count(*) FROM trace) FROM clock")[0][0] for db in dbs]
        assert anchors[0] >= 30 and 1 <= anchors[1] <= 6 and 1 <= anchors[2] <= 6, anchors
        times = [dict(sql(db, "SELECT id, ts FROM event")) for db in dbs]
        # By their own anchors times agree to the nanosecond; otherwise within the difference between the nodes' clocks then and over the whole time.
        most = 0 if sql(dbs[0], "SELECT DISTINCT clock FROM trace") == [("anchors",)] else 1e8
        for part in times[1:]:
            off = [abs(ts - times[0][i]) for i, ts in part.items()]
            assert len(off) >= 15 and max(off) <= most, max(off)


def test_some_kinds(job, sql):
    whole = spans(sql, job()[0])
    tables = {"samples": {"sample"}, "torch": {"torch_call", "torch_step"}, "comm": {"comm"}, "metrics": {"cpu", "memory_sample"},
              "program": {"event"}, "variables": {"variable"}, "torch,comm": {"torch_call", "torch_step", "comm"}, "triggers": set()}
    for kinds, wanted in tables.items():
        db, _ = job("--only", kinds)
        assert {t: v[0] for t, v in spans(sql, db).items()} == {t: v[0] if t in wanted else 0 for t, v in whole.items()}, kinds
        assert sql(db, "SELECT count(*), sum(lost), min(complete) FROM trace") == [(4, 0, 1)]
    db, _ = job("--only", "samples", "--last", "3s")
    assert 0 < spans(sql, db)["sample"][0] < whole["sample"][0] and spans(sql, db)["comm"][0] == 0


@pytest.mark.parametrize("types", [0, 1 << 63])
def test_hints_that_are_wrong(job, sql, tmp_path, types):
    """A conversion of some records skips blocks by the types in their hints, but not in a trace whose hints contradict its blocks."""
    before = spans(sql, job("--only", "samples,comm", "--last", "100d")[0])
    (tmp_path / "wrong").mkdir()
    for path in job.out.glob("node*/*.zst"):
        data = bytearray(path.read_bytes())
        pos = data.find(format_reader.HINT_START)
        while pos >= 0:
            struct.pack_into("<Q", data, pos + 56, types)
            struct.pack_into("<I", data, pos + 64, zlib.crc32(data[pos + 8:pos + 64]))
            pos = data.find(format_reader.HINT_START, pos + 1)
        (tmp_path / "wrong" / path.name).write_bytes(data)
    db, said = job("--only", "samples,comm", "--last", "100d", traces=[tmp_path / "wrong"])
    assert said.count("contradicted by the block") == 4 and spans(sql, db) == before and before["sample"][0] and before["comm"][0]
    assert sql(db, "SELECT sum(complete) FROM trace") == [(4,)]


@pytest.mark.parametrize("words,part", [
    ("--last 5x", "--last 5x: write a length of time"), ("--last -5s", "--last -5s"), ("--from yesterday", "--from yesterday: write a time as"),
    ("--to 2025-13-45", "--to 2025-13-45"), ("--only", "--only"), ("--only tor", "there is no kind 'tor'"), ("--only torch,,comm", "no kind ''")])
def test_wrong_words(job, words, part):
    db, said = job(*words.split(), code=2)
    assert part in said and said.count("\n") == 1 and not db.exists()


def test_directories_of_any_depth_and_names_with_anything_in_them(job, sql, tmp_path):
    deep = tmp_path / "all" / "a b" / "$(x)'\"\n" / "\udcff" / "é"
    deep.mkdir(parents=True)
    files = sorted(job.out.glob("node*/*.zst"))
    shutil.copy(str(files[0]), str(deep / "% s\\.zst"))
    shutil.copy(str(files[1]), str(tmp_path / "all" / "--json.zst"))
    old = tmp_path / "all" / "trace.zst.old.d"  # the trace of an earlier run
    old.mkdir()
    shutil.copy(str(files[2]), str(old / "x.zst"))
    (tmp_path / "all" / "loop").symlink_to(tmp_path / "all")
    (tmp_path / "all" / "twice.zst").symlink_to(deep / "% s\\.zst")
    db, said = job(traces=[tmp_path / "all"])
    assert sql(db, "SELECT count(DISTINCT rank), count(*) FROM trace") == [(2, 2)]
    (tmp_path / "none" / "deeper").mkdir(parents=True)
    db, said = job(traces=[tmp_path / "none", tmp_path / "all"], code=1)
    assert "a directory without traces" in said and sql(db, "SELECT count(*) FROM trace") == [(2,)]


def test_traces_joined_on_stdin(job, build, run, sql, tmp_path):
    """Their clocks are aligned like those of files, although a pipe can be read only once."""
    whole, _ = job()
    joined = b"".join(f.read_bytes() for f in sorted(job.out.glob("node*/*.zst")))
    (tmp_path / "joined").write_bytes(joined)
    db = tmp_path / "stdin.db"
    run(["sh", "-c", "cat \"$0\" | \"$1\" -q - \"$2\"", tmp_path / "joined", build.tool("probing-convert"), db])
    assert sql(db, "SELECT count(*), count(DISTINCT rank), min(clock) FROM trace") == [(4, 4, "collectives")]
    assert sql(db, "SELECT rank, min(start), max(end), sum(records) FROM trace GROUP BY 1") == sql(
        whole, "SELECT rank, min(start), max(end), sum(records) FROM trace GROUP BY 1")


@pytest.mark.slow
def test_a_hundred_thousand_files(job, build, sql, tmp_path):
    """Only one descriptor is open at a time; most files are the same recording, which counts once."""
    files = sorted(job.out.glob("node*/*.zst"))
    many = tmp_path / "many"
    for d in range(100):
        (many / str(d)).mkdir(parents=True)
        for i in range(1000):
            os.link(str(files[(d + i) % 4]), str(many / str(d) / ("%d.zst" % i)))
    copies = tmp_path / "many" / "copies"
    copies.mkdir()
    for i in range(2000):
        shutil.copy(str(files[i % 4]), str(copies / ("%d.zst" % i)))
    db, said = job("-q", traces=[many])
    assert sql(db, "SELECT count(*) FROM trace") == [(4,)]
    more = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+) more: the same recording as .*: counted once", said)]
    assert said.count("counted once") - len(more) + sum(more) >= 1999  # ten are named for each recording
