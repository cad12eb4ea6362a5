# SPDX-License-Identifier: Apache-2.0
"""The golden traces are read by a reader that knows only FORMAT.md; and that reader's search for the next block."""
import pathlib
import struct
import subprocess
import zlib

import pytest

import format_reader

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
TRACES = sorted(GOLDEN.glob("*.zst"))


def dump(data):
    return list(format_reader.dump(data))


def test_there_are_golden_traces():
    assert len(TRACES) >= 5


@pytest.mark.parametrize("trace", TRACES, ids=lambda p: p.stem)
def test_golden_reads_as_ever(trace):
    assert dump(trace.read_bytes()) == trace.with_suffix(".txt").read_text().splitlines()


@pytest.mark.parametrize("trace", TRACES, ids=lambda p: p.stem)
def test_zstd_reads_what_is_not_damaged(trace):
    rc = subprocess.run(["zstd", "-tq", trace], stderr=subprocess.DEVNULL, check=False).returncode
    assert (rc != 0) == (trace.stem == "damaged")


def test_every_prefix_is_a_trace():
    """Wherever a trace is cut, its whole blocks are read."""
    data = (GOLDEN / "killed.zst").read_bytes()
    whole = dump(data)
    blocks = [i for i, line in enumerate(whole) if line.startswith("block")] + [len(whole)]
    ends, pos = [], 0
    while format_reader.parse_hint(data, pos):
        pos += 68 + format_reader.parse_hint(data, pos)[0]
        ends.append(pos)
    assert len(ends) == len(blocks) - 1
    for cut in range(0, len(data), 97):
        lines = dump(data[:cut])
        n = blocks[sum(end <= cut for end in ends)]
        assert lines[:n] == whole[:n]
        assert all(line.startswith("damage") for line in lines[n:])


def test_garbage_between_frames():
    """Rubbish before, between and behind the blocks loses no block; a newer version is refused."""
    data = (GOLDEN / "epochs.zst").read_bytes()
    rubbish = b"\x00PRBh" * 40
    first = 68 + format_reader.parse_hint(data, 0)[0]
    spoilt = rubbish + data[:first] + rubbish + data[first:] + rubbish
    lines = dump(spoilt)
    assert [line for line in lines if not line.startswith("damage")] == dump(data)
    assert len(lines) == len(dump(data)) + 3
    with pytest.raises(format_reader.NewerVersion):
        format_reader.parse_header(b"\x89PRB\r\n\x1a\n\x02\x00" + bytes(110))


def test_hint_is_advice():
    """What a hint says about its block's length when decompressed does not matter; which block it belongs to does."""
    data = bytearray((GOLDEN / "epochs.zst").read_bytes())
    whole, second = dump(data), 68 + format_reader.parse_hint(data, 0)[0]

    def with_hint(field, value):
        struct.pack_into("<I", data, second + field, value)
        struct.pack_into("<I", data, second + 64, zlib.crc32(data[second + 8:second + 64]))
        return dump(data)
    assert with_hint(32, 5) == whole
    lines = with_hint(16, 77)
    assert len([line for line in lines if line.startswith("block")]) == len([line for line in whole if line.startswith("block")]) - 1
    assert len([line for line in lines if line.startswith("damage")]) == 1


def test_joined_behind_a_torn_one():
    """The last hint of a torn trace reaches into the next trace, of which nothing is lost."""
    one, other = (GOLDEN / "epochs.zst").read_bytes(), (GOLDEN / "basic.zst").read_bytes()
    for cut in range(80, len(one), 61):
        assert dump(one[:cut] + other)[-len(dump(other)):] == dump(other), cut


def test_joined_traces(build, run, sql, tmp_path):
    """Two joined traces are two, for this reader and for probing-convert; a copy adds nothing."""
    one, other = (GOLDEN / "epochs.zst").read_bytes(), (GOLDEN / "basic.zst").read_bytes()
    assert dump(one + other) == dump(one) + ["trace"] + dump(other)
    assert [line for line in dump(one + one) if not line.startswith("repeat")] == dump(one)
    counts = {}
    ask = "SELECT pid, records, (SELECT count(*) FROM samples s WHERE s.trace_id = t.id) FROM trace t ORDER BY id"
    for name, data in (("one", one), ("other", other), ("both", one + other), ("twice", one + one)):
        (tmp_path / (name + ".zst")).write_bytes(data)
        run([build.tool("probing-convert"), "-q", tmp_path / (name + ".zst"), tmp_path / (name + ".db")])
        counts[name] = sql(tmp_path / (name + ".db"), ask)
    assert counts["both"] == counts["one"] + counts["other"] and counts["twice"] == counts["one"]
    extension = pathlib.Path(build.tool("probing")).parent.parent / "lib/probing/probing.so"
    for number in (1, 2):
        made = "CREATE VIRTUAL TABLE temp.s USING probing_trace('%s', 'sample', %d); SELECT count(*) FROM s" % (tmp_path / "both.zst", number)
        done = run(["sqlite3", "-cmd", ".load %s" % extension, ":memory:", made])
        assert int(done.stdout) == counts["both"][number - 1][2]


def test_a_recording_counts_once(build, run, sql, simulated_job, tmp_path):
    """Of all files in which a recording lies, alone or joined, the longest counts; nothing else in a file is left out because of that."""
    one, other, third = (p.read_bytes() for p in sorted(simulated_job("--minutes", "0.1").glob("node*/*.zst"))[:3])
    for name, data in (("one", one), ("other", other), ("third", third), ("both", one + other), ("again", one + other + one),
                       ("first two", one + third), ("cut", one[:len(one) * 2 // 3] + other)):
        (tmp_path / (name + ".zst")).write_bytes(data)

    def traces(*names):
        db = tmp_path / ("-".join(names) + ".db")
        run([build.tool("probing-convert"), "-q"] + [tmp_path / (name + ".zst") for name in names] + [db])
        return sorted(sql(db, "SELECT pid, rank, records, (SELECT count(*) FROM samples s WHERE s.trace_id = t.id) FROM trace t"))

    two = traces("one", "other")
    assert len(two) == 2
    for names in (["both"], ["again"], ["both", "other"], ["other", "both"], ["again", "both"], ["cut", "one"]):
        assert traces(*names) == two, names
    assert traces("both", "first two") == traces("one", "other", "third")
