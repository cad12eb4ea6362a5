# SPDX-License-Identifier: Apache-2.0
"""Reads the wire format of Protocol Buffers without a schema: values are found by their field numbers."""


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    """Yields (number, value) for each field of a message, in order. The value is an int for a varint or fixed64, and bytes for a field with
    a length."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = int.from_bytes(data[at:at + 8], "little"), at + 8
        else:
            assert kind == 2, "wire type %d" % kind
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
            assert at <= len(data), "a length that is too large"
        yield tag >> 3, value


def message(data):
    """Returns {number: [values]} of a message."""
    out = {}
    for number, value in fields(data):
        out.setdefault(number, []).append(value)
    return out


def one(m, number, default=0):
    return m.get(number, [default])[-1]


def packed(values):
    """Returns the numbers of a repeated field, whether packed or not."""
    out = []
    for value in values:
        if isinstance(value, int):
            out.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = varint(value, at)
            out.append(number)
    return out
