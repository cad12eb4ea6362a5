#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A reader of Probing traces, written from traces/FORMAT.md alone: pure Python and the zstd command.

    python3 format_reader.py trace.zst        # one line for each block and row

It shares no code and no table with the rest of the project: even the record types come from the
trace's own schema row. That is its purpose; it is slow.
"""
import struct
import subprocess
import sys
import zlib

HINT_START = bytes.fromhex("5d2a4d183c00000050524268")
BLOCK_MAX = 4 << 20
KINDS = ("META", "DICT", "DATA")
LOST = ("ring_full", "no_ring", "missed_tick", "unanswered", "torn", "unresolved", "write_error", "damaged")
M64 = (1 << 64) - 1


class Damage(Exception):
    pass


class NewerVersion(Exception):
    pass


# ---- section 4: rows -------------------------------------------------------------------------

class Bytes:
    """A cursor over bytes. Reading beyond the end raises the error for damage."""

    def __init__(self, data, pos=0, end=None):
        self.data, self.pos, self.end = data, pos, len(data) if end is None else end

    def take(self, n):
        if n > self.end - self.pos:
            raise Damage("longer than its place")
        self.pos += n
        return self.data[self.pos - n:self.pos]

    def varint(self):
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7f) << shift
            if byte < 0x80:
                return value & M64
        raise Damage("varint of more than 10 bytes")

    def signed(self):
        value = self.varint()
        return (value >> 1) ^ -(value & 1)


def parse_schema(text):
    """Returns {id: (name, kind, [(field, type)])}, read from the schema row."""
    types = {}
    for line in text.decode().splitlines():
        number, name, kind, *fields = line.split()
        types[int(number)] = name, kind, [tuple(f.split(">")[0].split(":")) for f in fields]
    return types


def read_field(row, kind, previous, field, times, base):
    """Reads one field. Differences are relative to previous[field] and times[0], which it updates."""
    if kind in ("U", "STR"):
        return row.varint()
    if kind == "S":
        return row.signed()
    if kind in ("D", "ID", "REF"):
        previous[field] = (previous.get(field, 0) + row.signed()) & M64
        return previous[field]
    if kind == "T":
        times[0] = (times[0] + row.signed()) & M64
        return times[0]
    if kind == "TUS":
        times[0] = (times[0] // 1000 + row.signed()) * 1000 & M64
        return times[0]
    if kind == "F":
        return struct.unpack("<d", row.take(8))[0]
    if kind == "KEY":
        return struct.unpack("<Q", row.take(8))[0]
    if kind in ("TXT", "BIN"):
        return row.take(row.varint())
    if kind in ("REFS", "US"):
        n, value, values = row.varint(), 0, []
        if n > row.end - row.pos:
            raise Damage("list longer than its row")
        for _ in range(n):
            value = (value + row.signed()) & M64
            values.append(value)
        return values
    raise Damage("field type " + kind)


MISSING = {"TXT": b"", "BIN": b"", "REFS": [], "US": [], "F": 0.0}


def read_rows(block, header, types):
    """Yields (name, [(field, type, value)]) for the rows whose types are known."""
    body = Bytes(block, header["header_len"])
    previous, times = {}, {}
    while body.pos < body.end:
        number, length = body.varint(), body.varint()
        if length > body.end - body.pos:
            raise Damage("row longer than its block")
        row = Bytes(block, body.pos, body.pos + length)
        body.pos += length
        if not types and number == 1: # the schema row itself: no other type is known yet
            yield "schema", [("text", "TXT", row.take(row.varint()))]
            continue
        if number not in types:
            continue
        name, _, fields = types[number]
        state = previous.setdefault(number, {})
        time = times.setdefault(number, [header["first_ts"]])
        values = []
        for field, kind in fields:
            value = MISSING.get(kind, 0)
            if row.pos < row.end:
                value = read_field(row, kind, state, field, time, header["first_ts"])
            values.append((field, kind, value))
        yield name, values


# ---- sections 2, 3 and 7: hints, blocks, damage ------------------------------------------------------

def parse_header(block):
    if len(block) < 120 or block[:8] != b"\x89PRB\r\n\x1a\n":
        raise Damage("not a block")
    version, header_len, kind, encoding, _, epoch, seq, count, body_len, first, last, types = \
        struct.unpack_from("<HHBBHIIIIQQQ", block, 8)
    if version > 1:
        raise NewerVersion("version %d" % version)
    if header_len < 120 or header_len + body_len != len(block):
        raise Damage("block length")
    return dict(header_len=header_len, kind=kind, encoding=encoding, epoch=epoch, seq=seq, count=count,
                first_ts=first, last_ts=last, types=types, lost=struct.unpack_from("<8Q", block, 56))


def parse_hint(data, pos):
    """Returns (compressed, seq) if there is a good hint frame at pos, else None."""
    hint = data[pos:pos + 68]
    if len(hint) < 68 or hint[:12] != HINT_START:
        return None
    if zlib.crc32(hint[8:64]) != struct.unpack_from("<I", hint, 64)[0]:
        return None
    return struct.unpack_from("<I", hint, 28)[0], struct.unpack_from("<I", hint, 16)[0]


def content_size(frame):
    """Returns the decompressed size that a zstd frame's header (RFC 8878, 3.1.1.1) states."""
    if frame[:4] != b"\x28\xb5\x2f\xfd" or len(frame) < 18:
        raise Damage("no frame")
    one_segment, n = frame[4] >> 5 & 1, (frame[4] >> 5 & 1, 2, 4, 8)[frame[4] >> 6]
    at = 6 - one_segment + (0, 1, 2, 4)[frame[4] & 3]
    return int.from_bytes(frame[at:at + n], "little") + (256 if n == 2 else 0)


def decompress(frame):
    raw = content_size(frame)
    if raw > BLOCK_MAX:
        raise Damage("block too long")
    done = subprocess.run(["zstd", "-dcq"], input=frame, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=False)
    if done.returncode or len(done.stdout) != raw:
        raise Damage("frame does not decompress")
    return done.stdout


def begins(data, pos):
    """Returns whether a frame begins at pos, or the file ends there."""
    magic = int.from_bytes(data[pos:pos + 4], "little")
    return pos == len(data) or magic == 0xFD2FB528 or 0x184D2A50 <= magic <= 0x184D2A5F


def find_hint(data, pos):
    """Returns the position of the first good hint at or behind pos, or the end of the file."""
    pos = data.find(HINT_START, pos)
    while pos >= 0 and not parse_hint(data, pos):
        pos = data.find(HINT_START, pos + 1)
    return pos if pos >= 0 else len(data)


def blocks(data):
    """Yields (offset, header, block) for each good block, and (offset, None, reason) for each damage."""
    pos = 0
    while pos < len(data):
        hint = parse_hint(data, pos)
        if hint:
            frame, next_pos = data[pos + 68:pos + 68 + hint[0]], pos + 68 + hint[0]
            try:
                block = decompress(frame)
                header = parse_header(block)
                if header["seq"] != hint[1]:
                    raise Damage("not the block that its hint says")
                yield pos, dict(header, frame=frame), block
            except Damage as e:
                yield pos, None, str(e)
                if not begins(data, next_pos):
                    next_pos = find_hint(data, pos + 69)
            pos = next_pos
            continue
        magic, size = struct.unpack_from("<II", data + bytes(8), pos)
        if 0x184D2A50 <= magic <= 0x184D2A5F and magic != 0x184D2A5D and pos + 8 + size <= len(data):
            pos += 8 + size # skip the seek table, or another skippable frame that we need not understand
            continue
        yield pos, None, "no frame"
        pos = find_hint(data, pos + 1)


# ---- as text -----------------------------------------------------------------------------------

def quote(text):
    return '"' + "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else "\\x%02x" % c for c in text) + '"'


def show(kind, value, strings):
    if kind in ("TXT", "BIN"):
        return quote(value)
    if kind == "STR" and value:
        return "%d:%s" % (value, quote(strings[value]) if value in strings else "?")
    if kind in ("REFS", "US"):
        return "[" + ",".join("%d" % v for v in value) + "]"
    return "%.17g" % value if kind == "F" else "%d" % value


def dump(data):
    """Yields the trace as lines of text, with a line "trace" between two traces that were joined (section 1.1)."""
    types, strings, frames = {}, {}, {}
    for pos, header, block in blocks(data):
        if header is None:
            yield "damage at byte %d: %s" % (pos, block)
            continue
        seq = header["seq"]
        if frames.get(seq) == header["frame"]:
            yield "repeat of block %d" % seq
            continue
        if seq in frames or (seq == 0 and frames):
            types, strings, frames = {}, {}, {}
            yield "trace"
        frames[seq] = header["frame"]
        kind = header["kind"]
        line = "block seq=%(seq)d epoch=%(epoch)d count=%(count)d first_ts=%(first_ts)d last_ts=%(last_ts)d" % header
        line += " kind=%s" % (KINDS[kind] if kind < 3 else kind)
        line += "".join(" lost_%s=%d" % (LOST[i], n) for i, n in enumerate(header["lost"]) if n)
        if kind > 2 or header["encoding"] != 1:
            yield line + " skipped"
            continue
        yield line
        known = strings.setdefault(header["epoch"], {})
        try:
            for name, values in read_rows(block, header, types):
                if name == "schema":
                    types.update(parse_schema(values[0][2]))
                elif name == "string":
                    known[values[0][2]] = values[1][2]
                yield "  " + name + "".join(" %s=%s" % (f, show(k, v, known)) for f, k, v in values)
        except Damage as e:
            yield "damage in block %d: %s" % (header["seq"], e)


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as trace:
        for text in dump(trace.read()):
            print(text)
