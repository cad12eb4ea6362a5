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
