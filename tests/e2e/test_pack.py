# SPDX-License-Identifier: Apache-2.0
"""probing pack: a packed trace gives the same rows, is smaller, and has lost nothing."""
import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import zlib

import pytest

import format_reader
from complete_helpers import convert_alone, rows, symbol_blocks, tools_alone
from record_until import record_until  # noqa: F401
from test_complete import CALLS, make_library, record_calls  # noqa: F401
from test_rotation import SCRIPT, segments, wait_until

VOLATILE = {"trace_file": ("file", "bytes", "blocks", "records"), "trace": ("file", "bytes", "blocks", "records")}


def tables(db):
    return [r[0] for r in rows(db, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]


# Ids are given in the order of time, block by block: with larger blocks two neighbours may be swapped.
NUMBERED = {"function", "frame", "stack", "part", "stack_total", "function_total", "sample"}


def same_rows(a, b):
    """Returns all tables, row for row, except for facts about the file itself; samples and their stacks are compared by content."""
    assert tables(a) == tables(b) and NUMBERED < set(tables(a))
    for table in tables(a):
        wanted = [r[1] for r in rows(a, "PRAGMA table_info(%s)" % table) if r[1] not in VOLATILE.get(table, ())]
        if table not in NUMBERED:
            columns = ", ".join('"%s"' % c for c in wanted)
            query = "SELECT %s FROM %s ORDER BY %s" % (columns, table, columns)
            assert rows(a, query) == rows(b, query), table
    for view in ("backtrace", "samples", "hot_functions"):
        wanted = [r[1] for r in rows(a, "PRAGMA table_info(%s)" % view) if r[1] not in ("sample_id", "stack_id", "function_id")]
        columns = ", ".join('"%s"' % c for c in wanted)
        found = [sorted(map(repr, rows(db, "SELECT %s FROM %s" % (columns, view)))) for db in (a, b)]
        assert found[0] == found[1], view
    sums = "SELECT trace, sum(samples), sum(count), sum(running), sum(cpu_us), sum(ns), count(DISTINCT stack) FROM stack_total GROUP BY 1 ORDER BY 1"
    assert rows(a, sums) == rows(b, sums)


@pytest.fixture
def pack(build, run):
    def do(*args, **kw):
        return run([build.tool("probing"), "pack"] + list(args), **kw)
    return do


@pytest.fixture
def recorded(record_calls, tmp_path):  # noqa: F811
    """A trace with child processes, without symbols."""
    library = make_library(tmp_path)
    script = CALLS + """
import os, time
for k in range(2):
    if not os.fork():
        time.sleep(0.2)
        lib.entry(100000000)
        os._exit(0)
os.wait(), os.wait()
"""
    return record_calls(library, script, options=["--no-symbols"]).trace


def test_the_same_rows(build, recorded, pack, convert, sql, run, tmp_path):
    before = convert(recorded)
    done = pack(recorded, "-o", tmp_path / "p.zst")
    assert "3 traces of 3 files" in done.stderr and " before, " in done.stderr and done.stdout == ""
    assert os.stat(str(tmp_path / "p.zst")).st_mode & 0o777 == 0o600
    run(["zstd", "-tq", tmp_path / "p.zst"])
    same_rows(before, convert(tmp_path / "p.zst"))
    # packed as a directory, with a file for each process
    pack(recorded, "-q", "-o", str(tmp_path / "dir") + "/")
    assert len(list((tmp_path / "dir").glob("*.zst"))) == 3
    again = convert(tmp_path / "dir")
    for view, order in (("backtrace", "timestamp, tid, depth"), ("memory_usage", "timestamp"), ("trace", "pid")):
        wanted = [r[1] for r in rows(before, "PRAGMA table_info(%s)" % view)]
        wanted = [c for c in wanted if not c.endswith("id") and c not in VOLATILE["trace"] and c != "stack"]
        query = "SELECT %s FROM %s ORDER BY %s" % (", ".join('"%s"' % c for c in wanted), view, order)
        assert sorted(map(str, rows(before, query))) == sorted(map(str, rows(again, query))), view
    # and its symbols need no library
    (tmp_path / "libwork.so").unlink()
    same_rows(before, convert(tmp_path / "p.zst"))
    # packing a packed trace changes nothing
    pack(tmp_path / "p.zst", "-q", "-o", tmp_path / "pp.zst")
    same_rows(before, convert(tmp_path / "pp.zst"))
    assert abs(os.path.getsize(str(tmp_path / "pp.zst")) - os.path.getsize(str(tmp_path / "p.zst"))) < 200


def test_segments_are_joined(build, spawn, run, pack, convert, sql, tmp_path, monkeypatch):
    monkeypatch.setenv("PROBING_SEGMENT_SIZE", "64K")
    trace, parts = in_segments(build, spawn, tmp_path)
    before = convert(trace)
    done = pack(trace, "--json", "-o", tmp_path / "p.zst")
    told = json.loads(done.stdout)
    assert told["traces"] == 1 and told["files"] == len(parts) and told["damaged"] == 0
    assert told["bytes_in"] == sum(os.path.getsize(str(p)) for p in parts)
    assert told["bytes_out"] == os.path.getsize(str(tmp_path / "p.zst")) < told["bytes_in"]
    run(["zstd", "-tq", tmp_path / "p.zst"])
    after = convert(tmp_path / "p.zst")
    assert sql(after, "SELECT count(*), min(complete), min(end_reason), sum(lost) FROM trace") == [
        (1, 1, "killed", sql(before, "SELECT sum(lost) FROM trace")[0][0])]
    for query in ("SELECT t.tid, s.cpu_us, s.count, s.flags, k.depth, f.name, r.line FROM sample s "
                  "JOIN thread t ON t.id = (s.id >> 40 << 40) + s.thread JOIN stack_frame k ON k.stack = s.stack JOIN frame r ON r.id = k.frame "
                  "JOIN function f ON f.id = r.function ORDER BY s.ts, 1, 2, 3, 4, 5",
                  "SELECT rss, vms FROM memory_sample ORDER BY ts", "SELECT user_us, threads FROM cpu ORDER BY ts",
                  "SELECT f.name, sum(count) FROM stack_total JOIN stack_frame k USING (stack) JOIN frame r ON r.id = k.frame "
        "JOIN function f ON f.id = r.function GROUP BY 1 ORDER BY 1"):
        old, new = rows(before, query), rows(after, query)
        if "k.depth" in query:  # a module that was loaded after the last list of modules: in the joined trace, the next segment's list has it
            found = {r for o, n in zip(old, new) if o != n and o[:5] == n[:5] and o[5].startswith("0x") for r in (o[5:], n[5:])}
            old, new = ([r for r in side if r[5:] not in found] for side in (old, new))
        elif "sum(count)" in query:
            names = {r[0] for r in found}
            old, new = ([r for r in side if r[0] not in names] for side in (old, new))
        assert old == new, query
    # One file replaces the segments: it has the last one's name and contains everything, and the others are gone.
    pack(trace, "-q", "--replace")
    assert list((tmp_path / "t.zst.d").glob("*")) == [] and [p.name for p in tmp_path.glob("*.zst")].count("t.zst") == 1
    assert trace.read_bytes() == (tmp_path / "p.zst").read_bytes() and os.stat(str(trace)).st_mode & 0o777 == 0o600
    # All clock anchors now apply to all samples.
    times = [rows(db, "SELECT ts FROM sample ORDER BY ts") for db in (before, after)]
    assert all(abs(a - b) < 1000000 for (a,), (b,) in zip(*times))
    # each segment had its own copy of the dictionaries; one is enough now
    lines = list(format_reader.dump((tmp_path / "p.zst").read_bytes()))
    assert not any("damage" in line or line == "trace" or "rotated" in line for line in lines)
    blocks = [int(line.split("seq=")[1].split()[0]) for line in lines if line.startswith("block ")]
    assert blocks == list(range(len(blocks)))


def in_segments(build, spawn, tmp_path):
    """Returns the trace of a process that was written in at least three files."""
    script = tmp_path / "s.py"
    script.write_text(SCRIPT.replace("SECONDS", "300"))
    trace = tmp_path / "t.zst"
    recorder = spawn([build.tool("probing-record"), "-q", "-r", "1000", "-o", trace, "python3", script], ready="up")
    wait_until(lambda: len(segments(trace)) > 1)
    recorder.send_signal(signal.SIGTERM)
    recorder.wait(240)
    return trace, [pathlib.Path(p) for p in segments(trace)] + [trace]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_a_stop_while_segments_are_joined(build, spawn, run, pack, convert, sql, tmp_path, monkeypatch):
    """Wherever the work is cut off, everything that was recorded is there; and what is there twice is not packed twice."""
    monkeypatch.setenv("PROBING_SEGMENT_SIZE", "64K")
    _, parts = in_segments(build, spawn, tmp_path)
    pack(tmp_path / "t.zst", "-q", "--no-symbols", "-o", tmp_path / "whole.zst")
    names = sorted(str(p.relative_to(tmp_path)) for p in parts)
    whole = (tmp_path / "whole.zst").read_bytes()
    samples = sql(convert(tmp_path / "whole.zst"), "SELECT count(*) FROM sample")

    def cut_off(call):
        place = tmp_path / call
        place.mkdir()
        for name in names:
            (place / name).parent.mkdir(exist_ok=True)
            shutil.copy2(tmp_path / name, place / name)
        done = run(["strace", "-f", "-o", tmp_path / (call + ".log"), "-e", "trace=fsync,rename,unlink", "-e", "inject=%s:signal=KILL:when=1" % call,
                    build.tool("probing"), "pack", "--replace", "-q", "--no-symbols", place / "t.zst"], check=False)
        assert done.returncode != 0
        return place, [line.split("(")[0].split()[-1] for line in (tmp_path / (call + ".log")).read_text().splitlines() if "(" in line]

    # The new file is on the disk before it gets its name, and has its name before an old file is removed.
    place, calls = cut_off("unlink")
    assert calls[:4] == ["fsync", "rename", "fsync", "unlink"]
    assert (place / "t.zst").read_bytes() == whole
    left = sorted(str(p.relative_to(place)) for p in place.glob("**/*.zst") if not p.name.startswith("."))
    assert set(names) >= set(left) > {"t.zst"}
    was = {name: (place / name).read_bytes() for name in left}
    said = pack("--replace", "--no-symbols", place / "t.zst", check=1).stderr
    assert said.count("can be deleted") == len(left) - 1 and all((place / n).read_bytes() == was[n] for n in left if n != "t.zst")
    assert "a part of it: taken once" in pack(place / "t.zst", "-q", "--no-symbols", "-o", place / "again.zst").stderr
    assert sql(convert(place / "again.zst"), "SELECT count(*) FROM sample") == samples

    place, _ = cut_off("fsync")
    assert all((place / name).read_bytes() == (tmp_path / name).read_bytes() for name in names)


def table_of(data):
    """Returns a trace's rows by record type, and its blocks. Strings are given as texts, not as ids."""
    found, blocks = {}, []
    for line in format_reader.dump(data):
        assert "damage" not in line, line
        if line.startswith("block "):
            blocks.append(dict(word.split("=") for word in line.split()[1:]))
        elif line.startswith("  "):
            found.setdefault(line.split()[0], []).append(line)
    return found, blocks


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True])
def test_small_blocks_become_larger_ones(build, run, pack, tmp_path, own):
    """The rows are the same, each type in its order; no block is over 1 MiB, and the index says truly where each block's rows lie. own: one
    block has a row of an unknown type, and one a row that is longer than we know: these blocks stay as they are."""
    run([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", tmp_path / "f", "--ranks", "1", "--nodes", "1", "--minutes", "6", "--hz", "200",
         "--step-ms", "500"])
    trace = next((tmp_path / "f").glob("*/*.zst"))
    if own:
        data = bytearray()
        for n, (_, header, block) in enumerate(format_reader.blocks(trace.read_bytes())):
            block = bytearray(block)
            if n == 200:
                assert header["kind"] == 2
                block += b"\x3f\x03abc" # a row of type 63
                block[28:32] = (len(block) - header["header_len"]).to_bytes(4, "little")
                block[48:56] = (header["types"] | 1 << 63).to_bytes(8, "little")
            frame = subprocess.run(["zstd", "-q", "--check", "--stream-size=%d" % len(block)], input=bytes(block), stdout=subprocess.PIPE, check=True).stdout
            hint = bytearray(b"PRBh") + block[8:10] + bytes([block[12], 0]) + block[20:24] + block[16:20] + block[24:28]
            hint += len(frame).to_bytes(4, "little") + len(block).to_bytes(4, "little") + bytes(4) + block[32:56]
            data += b"\x5d\x2a\x4d\x18\x3c\x00\x00\x00" + hint + zlib.crc32(bytes(hint)).to_bytes(4, "little") + frame
        trace.write_bytes(bytes(data))
    pack(trace, "-q", "--no-symbols", "-o", tmp_path / "p.zst")
    before, after = table_of(trace.read_bytes()), table_of((tmp_path / "p.zst").read_bytes())
    assert before[0] == after[0]
    assert len(after[1]) < len(before[1]) / 4
    for name in ("count", "lost_ring_full", "lost_missed_tick"):
        assert sum(int(b.get(name, 0)) for b in before[1]) == sum(int(b.get(name, 0)) for b in after[1])
    packed = [(h, b) for _, h, b in format_reader.blocks((tmp_path / "p.zst").read_bytes())]
    assert max(len(b) for _, b in packed) <= (1 << 20) + 120
    if own:
        assert [len(b) for h, b in packed if h["types"] >> 63] == [len(b) for _, h, b in format_reader.blocks(trace.read_bytes()) if h["types"] >> 63]
    # smaller than the whole trace compressed in one piece, which could not be read in part
    whole = subprocess.run("zstd -dcq '%s' | zstd -19q | wc -c" % trace, shell=True, stdout=subprocess.PIPE, check=True).stdout
    assert own or os.path.getsize(str(tmp_path / "p.zst")) < int(whole)


def test_nothing_is_written_over(recorded, pack, tmp_path):
    was = recorded.read_bytes()
    other = tmp_path / "other.zst"
    other.write_bytes(b"mine")
    assert "exists" in pack(recorded, "-o", other, check=3).stderr and other.read_bytes() == b"mine"
    assert "exists" in pack(recorded, "-o", recorded, check=3).stderr
    os.symlink(str(tmp_path / "nowhere"), str(tmp_path / "link.zst"))
    assert "exists" in pack(recorded, "-o", tmp_path / "link.zst", check=3).stderr
    for wrong in (["-o", "x.zst", "--replace"], [], ["--replace", "--in-place"], ["-o", ""], ["-o", "-"], ["-l", "23", "-o", "x.zst"]):
        pack(recorded, *wrong, check=2)
    pack("-o", "x.zst", check=2)
    pack(tmp_path / "none.zst", "-o", tmp_path / "x.zst", check=3)
    assert recorded.read_bytes() == was and not (tmp_path / "x.zst").exists()
    directory = tmp_path / "d"
    directory.mkdir()
    pack(recorded, "-q", "-o", directory)
    first = {p: p.read_bytes() for p in directory.iterdir()}
    victim = sorted(first)[0]
    victim.write_bytes(b"mine")
    pack(recorded, "-q", "-o", directory)
    assert victim.read_bytes() == b"mine" and (directory / victim.name.replace(".zst", "-2.zst")).read_bytes() == first.pop(victim)
    assert len(list(directory.iterdir())) == len(first) + 2 and all(p.read_bytes() == b for p, b in first.items())


@pytest.fixture
def fleet(build, run, tmp_path):
    run([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", tmp_path / "job", "--ranks", "8", "--nodes", "2", "--minutes", "0.1", "--hz", "5"])
    return tmp_path / "job"


def all_files(place):
    return {p.name: p.read_bytes() for p in place.iterdir()}


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("inject, code", [("renameat2:signal=TERM:when=4", 1), ("renameat2:signal=KILL:when=4", None), ("fsync:error=ENOSPC:when=9", 1)])
def test_a_pack_into_a_directory_goes_on_where_it_was_stopped(build, fleet, pack, run, tmp_path, inject, code):
    """Ctrl-C, a kill and a full disk leave whole files only; the same command does the rest, and nothing twice."""
    place, whole = tmp_path / "place", tmp_path / "whole"
    pack(fleet, "-q", "--no-symbols", "-o", str(whole) + "/")
    done = run(["strace", "-f", "-o", "/dev/null", "-e", "trace=" + inject.split(":")[0], "-e", "inject=" + inject, build.tool("probing"), "pack", "--json",
                "--no-symbols", fleet, "-o", str(place) + "/"], check=code)
    begun = {p.name: p.read_bytes() for p in place.glob("*.zst") if not p.name.startswith(".")}
    assert 0 < len(begun) < 8 and begun.items() < all_files(whole).items()
    if code:
        assert "%d of 8 are packed" % len(begun) in done.stderr, done.stderr
        told = json.loads(done.stdout)
        assert (told["traces"], told["there"], told["stopped"]) == (len(begun), 0, True) and all_files(place) == begun
    done = pack(fleet, "--no-symbols", "--json", "-o", str(place) + "/")
    told = json.loads(done.stdout)
    assert (told["traces"], told["there"], told["stopped"]) == (8 - len(begun), len(begun), False)
    assert "%d traces (and %d that were there already) of 8 files" % (8 - len(begun), len(begun)) in done.stderr
    assert all_files(place) == all_files(whole)
    # A trace that has less than the input, or whose packed file was damaged, does not count as packed.
    one, other = sorted(place.iterdir())[:2]
    source, = fleet.glob("*/%s" % one.name)
    ends = [pos for pos, header, _ in format_reader.blocks(source.read_bytes()) if header]
    (tmp_path / "begun.zst").write_bytes(source.read_bytes()[:ends[-3]])
    one.unlink()
    pack(tmp_path / "begun.zst", "-q", "--no-symbols", "-o", place, check=None)
    damaged = bytearray(other.read_bytes())
    damaged[len(damaged) // 2] ^= 0x55
    other.write_bytes(bytes(damaged))
    assert json.loads(pack(fleet, "--no-symbols", "--json", "-o", place).stdout)["there"] == 6
    for name in (one.name, other.name):
        assert (place / name.replace(".zst", "-2.zst")).read_bytes() == (whole / name).read_bytes()


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_an_input_that_is_gone_when_its_turn_comes(build, fleet, run, pack, tmp_path):
    """The others are packed; and no file appears that has less than its input had."""
    gone = sorted(fleet.glob("*/*.zst"))[5]
    pack(fleet, "-q", "--no-symbols", "-o", str(tmp_path / "whole") + "/")

    def packed(out, inject):
        return run(["strace", "-f", "-o", tmp_path / "log", "-P", gone, "-e", "trace=openat"] + inject + [build.tool("probing"), "pack", "--no-symbols", fleet, "-o", out],
                   check=None)
    assert packed(tmp_path / "all.zst", []).returncode == 0
    opens = (tmp_path / "log").read_text().count("openat(")
    assert opens > 2  # to find it, to copy it, for its symbols
    for when in range(2, opens + 1):
        for out, code in ((str(tmp_path / "place") + "/", 1), (str(tmp_path / "one.zst"), 3)):
            shutil.rmtree(str(tmp_path / "place"), ignore_errors=True)
            done = packed(out, ["-e", "inject=openat:error=ENOENT:when=%d+" % when])
            assert done.returncode == code and str(gone) in done.stderr, done.stderr
            if code == 1:
                left = all_files(tmp_path / "place")
                assert len(left) == 7 and left.items() < all_files(tmp_path / "whole").items()
    assert not (tmp_path / "one.zst").exists()


def test_segments_that_are_not_all_good(build, spawn, pack, convert, sql, tmp_path, monkeypatch):
    """A damaged segment stays as it is; the others are packed separately."""
    monkeypatch.setenv("PROBING_SEGMENT_SIZE", "64K")
    _, parts = in_segments(build, spawn, tmp_path)
    parts[0].write_bytes(parts[0].read_bytes()[:-300])
    was = {p: p.read_bytes() for p in parts}
    before = sql(convert(tmp_path / "t.zst", check=1), "SELECT count(*), count(DISTINCT trace_id) FROM samples")
    assert "stays as it is" in pack("--replace", "--no-symbols", tmp_path / "t.zst", check=1).stderr
    assert [p.read_bytes() == was[p] for p in parts] == [True] + [False] * (len(parts) - 1)
    assert sql(convert(tmp_path / "t.zst", check=1), "SELECT count(*), count(DISTINCT trace_id) FROM samples") == before


def test_replace(recorded, pack, convert, tmp_path):
    before, sizes = convert(recorded), {p: os.path.getsize(str(p)) for p in list(tmp_path.glob("*.zst.d/*.zst")) + [recorded]}
    broken = tmp_path / "broken.zst"
    broken.write_bytes(recorded.read_bytes()[:-400])
    kept = broken.read_bytes()
    assert "stays as it is" in pack("--replace", recorded, broken, check=1).stderr
    assert broken.read_bytes() == kept
    assert all(os.stat(str(p)).st_mode & 0o777 == 0o600 for p in sizes) and all(symbol_blocks(p) for p in sizes)
    same_rows(before, convert(recorded))
    assert not list(tmp_path.glob(".probing-pack*")) and not list(tmp_path.glob("*.d/.probing-pack*"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a file away")
def test_replace_keeps_who_may_read_it(recorded, pack, tmp_path):
    """A trace that was opened to others stays so, and one that root packs stays its owner's."""
    for n, mode in enumerate((0o644, 0o640, 0o400)):
        one = tmp_path / ("mode%d.zst" % n)
        one.write_bytes(recorded.read_bytes())
        os.chmod(str(one), mode)
        os.chown(str(one), 54321, 54322)
        pack("--replace", one)
        now = os.stat(str(one))
        assert (now.st_mode & 0o777, now.st_uid, now.st_gid) == (mode | 0o600, 54321, 54322)


def test_damaged(recorded, pack, convert, sql, tmp_path):
    """What is good is packed; the packed trace says what is missing, as the original does."""
    data = bytearray(recorded.read_bytes())
    offsets = [pos for pos, header, _ in format_reader.blocks(bytes(data)) if header and header["kind"] == 2]
    data[offsets[0] + 90] ^= 0x55
    bad = tmp_path / "bad.zst"
    bad.write_bytes(bytes(data))
    before = convert(bad, check=1)
    done = pack(bad, "-o", tmp_path / "p.zst", check=1)
    assert "damaged: 1 block" in done.stderr
    after = convert(tmp_path / "p.zst", check=1)
    assert sql(before, "SELECT count(*) FROM sample") == sql(after, "SELECT count(*) FROM sample")
    assert sql(after, "SELECT complete FROM trace") == [(0,)] and sql(after, "SELECT count(*) FROM lost WHERE reason = 'missing_blocks'") == [(1,)]
    for junk in (b"", b"not a trace", b"\x28\xb5\x2f\xfd" + bytes(90)):
        (tmp_path / "junk.zst").write_bytes(junk)
        assert "junk.zst" in pack(tmp_path / "junk.zst", "-o", tmp_path / "x.zst", check=3).stderr
        assert not (tmp_path / "x.zst").exists()
        both = pack(tmp_path / "junk.zst", recorded, "-o", tmp_path / "y.zst", check=1)
        assert "junk.zst" in both.stderr
        (tmp_path / "y.zst").unlink()


def test_what_was_cut_off_is_so_when_packed(build, run, pack, sql, tmp_path):
    """A rank whose trace was cut off is not one that came to no more collectives."""
    job, convert = tmp_path / "job", build.tool("probing-convert")
    run([str(build.root / "tests" / "fleet" / "probing-fleet"), "--quiet", "--out", str(job), "--ranks", "2", "--nodes", "1", "--minutes", "0.1",
         "--hz", "2", "--layers", "1", "--seed", "21", "--tear", "0"])
    pack(job, "-o", str(tmp_path / "packed") + "/", check=1)
    pack(job, "-o", tmp_path / "one.zst", check=1)
    cut, whole = (p.read_bytes() for p in sorted(job.glob("*/*.zst")))
    (tmp_path / "joined.zst").write_bytes(cut + whole)
    found = []
    for n, source in enumerate((job, tmp_path / "packed", tmp_path / "one.zst", tmp_path / "joined.zst")):
        run([convert, "-q", source, tmp_path / ("%d.db" % n)], check=False)
        found.append([sql(tmp_path / ("%d.db" % n), q) for q in ("SELECT reason, count FROM lost ORDER BY 1", "SELECT rank, cause, seq, state FROM hangs",
                                                                "SELECT rank, complete, end_reason FROM trace ORDER BY 1")])
    assert found[0] == found[1] == found[2] == found[3] and found[0][0][0][0] == "cut_off_bytes" and found[0][0][0][1] > 0


def test_what_was_cut_off_among_others(build, run, pack, sql, tmp_path):
    """The beginning of a block stays the end of its own trace, which others follow: also where packing added blocks, so that its number was used again, and
    where the trace was one of several in a file before."""
    job, convert = tmp_path / "job", build.tool("probing-convert")
    run([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", str(job), "--ranks", "3", "--nodes", "1", "--minutes", "0.1",
         "--hz", "10", "--seed", "21", "--tear", "0"])
    traces = sorted(job.glob("*/*.zst"))
    pack(job, "-o", tmp_path / "one.zst", check=1)
    (tmp_path / "joined.zst").write_bytes(b"".join(p.read_bytes() for p in traces))
    pack(tmp_path / "joined.zst", "-o", tmp_path / "two.zst", check=1)
    pack(tmp_path / "one.zst", "-o", tmp_path / "again.zst", check=1)
    found = []
    for n, source in enumerate((job, tmp_path / "one.zst", tmp_path / "two.zst", tmp_path / "again.zst")):
        run([convert, "-q", source, tmp_path / ("%d.db" % n)], check=1)
        found.append([sql(tmp_path / ("%d.db" % n), q) for q in ("SELECT reason, count FROM lost", "SELECT rank, complete FROM trace ORDER BY 1",
                                                                "SELECT count(*), sum(count) FROM samples")])
    assert found[0] == found[1] == found[2] == found[3], found
    assert found[0][:2] == [[("cut_off_bytes", found[0][0][0][1])], [(0, 0), (1, 1), (2, 1)]]


@pytest.mark.slow
def test_copies_count_once(recorded, pack, convert, sql, tmp_path):
    shutil.copy(recorded, tmp_path / "copy.zst")
    done = pack(recorded, tmp_path / "copy.zst", "-o", tmp_path / "p.zst")
    assert "the same recording" in done.stderr
    same_rows(convert(recorded), convert(tmp_path / "p.zst"))


def test_while_it_is_recorded(build, spawn, pack, convert, sql, tmp_path):
    """What has been written so far is packed into another file; packing it in place is refused."""
    script = tmp_path / "s.py"
    script.write_text(SCRIPT.replace("SECONDS", "300"))
    trace = tmp_path / "t.zst"
    recorder = spawn([build.tool("probing-record"), "-q", "-r", "100", "-o", trace, "python3", script], ready="up")

    def has_samples():
        (tmp_path / "p.zst").unlink(missing_ok=True)
        done = pack(trace, "-q", "-o", tmp_path / "p.zst", check=None)  # it may hold nothing yet
        return done.returncode == 0 and sql(convert(tmp_path / "p.zst"), "SELECT count(*) FROM sample")[0][0] > 0

    wait_until(has_samples)
    assert "recorded" in pack("--in-place", trace, check=3).stderr
    recorder.send_signal(signal.SIGTERM)
    recorder.wait(240)
    assert sql(convert(trace), "SELECT complete FROM trace") == [(1,)]


def test_module_paths_that_are_no_files(record_calls, pack, tmp_path):
    """A trace may name any path: if a FIFO lies where a library should, it is not waited for."""
    library = make_library(tmp_path)
    trace = record_calls(library, options=["--no-symbols"]).trace
    library.unlink()
    os.mkfifo(str(library))
    pack(trace, "-q", "-o", tmp_path / "p.zst", timeout=240)
    pack("--in-place", trace, "-q", timeout=240)


def test_what_a_killed_pack_has_left(build, run, pack, tmp_path):
    """The next pack there removes its unfinished file, but not a file that another pack is writing, nor another file with such a name."""
    golden = pathlib.Path(__file__).resolve().parents[1] / "golden" / "basic.zst"
    left, busy, mine = (tmp_path / (".probing-pack-" + name) for name in ("leftxx", "busyxx", "minexx"))
    left.write_bytes(golden.read_bytes()[:1000])
    busy.write_bytes(golden.read_bytes()[:1000])
    mine.write_text("my own\n")
    with open(str(busy)) as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        pack(golden, "-q", "--no-symbols", "-o", tmp_path / "p.zst")
        assert sorted(p.name for p in tmp_path.glob(".probing-pack-*")) == [busy.name, mine.name]
    pack(golden, "-q", "--no-symbols", "-o", tmp_path / "q.zst")
    assert sorted(p.name for p in tmp_path.glob(".probing-pack-*")) == [mine.name]


BASIC = pathlib.Path(__file__).resolve().parents[1] / "golden" / "basic.zst"


def pack_stopped(build, place, inject):
    """Returns the command of a pack into a.zst that strace kills, or holds up, where it locks the file that it has made."""
    place.mkdir()
    return ["strace", "-f", "-o", "/dev/null", "-e", "trace=flock", "-e", "inject=flock:" + inject, build.tool("probing"), "pack", "-q", "--no-symbols", "-o",
            place / "a.zst", BASIC]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_a_pack_that_was_killed_before_it_wrote_anything(build, run, pack, tmp_path):
    """It looks up names for most of its time, while its file is empty."""
    place = tmp_path / "place"
    assert run(pack_stopped(build, place, "signal=KILL:when=1"), check=None).returncode != 0
    left, = place.iterdir()
    assert left.name.startswith(".probing-pack-") and left.stat().st_size == 0
    (place / ".probing-pack-of-mine").write_text("")  # longer than ours
    pack(BASIC, "-q", "--no-symbols", "-o", place / "b.zst")
    assert sorted(p.name for p in place.iterdir()) == [".probing-pack-of-mine", "b.zst"]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_two_packs_begin_at_once(build, spawn, pack, tmp_path):
    """One that has made its file and not locked it yet, when another removes what was left: it makes another file."""
    place = tmp_path / "place"
    slow = spawn(pack_stopped(build, place, "delay_enter=2s:when=1"))
    wait_until(lambda: list(place.iterdir()))
    pack(BASIC, "-q", "--no-symbols", "-o", place / "b.zst")
    assert slow.wait(240) == 0
    assert (place / "a.zst").read_bytes() == (place / "b.zst").read_bytes() and sorted(p.name for p in place.iterdir()) == ["a.zst", "b.zst"]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_names_whose_writer_was_killed_are_added_again(build, run, pack, record_calls, convert, sql, tmp_path):
    """Wherever the trace ends then, its records are there, and the next one makes of it what the first would have made."""
    library = make_library(tmp_path)
    trace = record_calls(library, options=["--no-symbols"]).trace
    was, place = trace.read_bytes(), tmp_path / "t.zst"
    samples = sql(convert(trace), "SELECT count(*) FROM sample")
    pack("--in-place", "-q", trace)
    whole = trace.read_bytes()
    assert len(whole) > len(was) and whole.startswith(was)

    def again():
        states.append(place.read_bytes())
        run([build.tool("probing-convert"), "-q", "-f", place, tmp_path / "t.db"], check=None)
        assert sql(tmp_path / "t.db", "SELECT count(*) FROM sample") == samples
        pack("--in-place", "-q", place)
        assert place.read_bytes() == whole, len(states)

    states, killed = [], True
    while killed:
        place.write_bytes(was)
        killed = run(["strace", "-f", "-o", "/dev/null", "-e", "trace=pwrite64", "-e", "inject=pwrite64:signal=KILL:when=%d" % (len(states) + 1),
                      build.tool("probing"), "pack", "--in-place", "-q", place], check=None).returncode != 0
        again()
    assert states[0] == was and states[-1] == whole and sum(was < state < whole for state in states) >= 2  # cut off within the seek table
    for cut in (len(was) + 10, len(was) + 100):  # within the hint, and the block
        place.write_bytes(whole[:cut])
        again()
    place.write_bytes(was + bytes(5000))  # the machine stopped
    again()


@pytest.mark.parametrize("limit, how", [("a file size limit", "--in-place"), ("a full disk", "--replace"), ("a full disk", "-o")]
                         + [pytest.param(*p, marks=pytest.mark.slow) for p in [("a file size limit", "--replace"), ("a file size limit", "-o"), ("a full disk", "--in-place")]])
def test_no_room(build, run, record_calls, tmp_path, limit, how):
    """The trace stays as its process left it, no half file is left, and one line says so."""
    library = make_library(tmp_path)
    trace = record_calls(library, options=["--no-symbols"]).trace
    fill = -(os.path.getsize(str(trace)) + 8) % 4096
    trace.write_bytes(trace.read_bytes() + b"\x50\x2a\x4d\x18" + fill.to_bytes(4, "little") + bytes(fill)) # up to the end of its page
    size = os.path.getsize(str(trace))
    assert symbol_blocks(trace) == []
    place = tmp_path / "small"
    place.mkdir()
    if limit == "a full disk":
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%dk" % (size // 1024 + 4), "none", place], check=False,
                          stderr=subprocess.DEVNULL).returncode:
            pytest.skip("cannot mount a small file system")
    try:
        copy = place / "t.zst"
        shutil.copy(trace, copy)
        command = [build.tool("probing"), "pack", how] + ([place / "p.zst"] if how == "-o" else []) + [copy]
        if limit == "a full disk":
            subprocess.run(["sh", "-c", "cat /dev/zero > fill 2>/dev/null"], cwd=place, check=False)
        else:
            command = ["prlimit", "--fsize=%d" % (size + 100 if how == "--in-place" else 2000)] + command
        done = run(command, check=3)
        assert len(done.stderr.splitlines()) == 1 and ("t.zst" in done.stderr or "p.zst" in done.stderr)
        assert copy.read_bytes() == trace.read_bytes()
        assert sorted(p.name for p in place.iterdir()) == (["fill", "t.zst"] if limit == "a full disk" else ["t.zst"])
    finally:
        if limit == "a full disk":
            subprocess.run(["umount", place], check=False)


@pytest.mark.slow
@pytest.mark.pythons(torch=True, count=1)
def test_torch_packed_elsewhere(build, record, pack, convert, python, tmp_path):
    """A recording without symbols is packed here, and converted where only the tools are."""
    from test_complete import TRAIN
    trace = record(TRAIN, python=python, hz=200, options=["--no-symbols"]).trace
    here = convert(trace)
    pack(trace, "-q", "-o", tmp_path / "p.zst")
    alone = convert_alone(tools_alone(build, tmp_path / "root"), tmp_path / "p.zst")
    same_rows(here, alone)


def test_a_stop_leaves_nothing(build, spawn, record_calls, tmp_path):
    library = make_library(tmp_path)
    trace = record_calls(library, options=["--no-symbols"]).trace
    was = trace.read_bytes()
    many = tmp_path / "many"
    many.mkdir()
    for i in range(400):
        (many / ("%d.zst" % i)).write_bytes(was)
    packer = spawn([build.tool("probing"), "pack", many, "-l", "22", "-o", tmp_path / "p.zst"], stderr=subprocess.DEVNULL)
    wait_until(lambda: list(tmp_path.glob(".probing-pack*")) or packer.poll() is not None)
    packer.send_signal(signal.SIGTERM)
    assert packer.wait(240) in (0, 3, -signal.SIGTERM)  # -SIGTERM: the signal came when everything was written
    assert not list(tmp_path.glob(".probing-pack*"))
