# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of complete traces: a place with nothing but the tools, traces without their symbols, rows without their ids."""
import os
import pathlib
import shutil
import sqlite3
import subprocess

import pytest

import format_reader

SYMBOLS = 1 << 15 | 1 << 21 # native_file, symbol


def tools_alone(build, root):
    """Makes a root directory that holds only `probing` and the libraries that it is linked with or loads on demand (tools/late.c)."""
    if os.geteuid():
        pytest.skip("chroot needs root")
    (root / "bin").mkdir(parents=True)
    (root / "tmp").mkdir()
    probing = build.tool("probing")
    shutil.copy(probing, root / "bin/probing")
    known = subprocess.run(["/sbin/ldconfig", "-p"], stdout=subprocess.PIPE, check=True, timeout=240).stdout.decode()
    late = [line.split()[-1] for line in known.splitlines() if "x86-64" in line and line.split()[0] in ("libdw.so.1", "libelf.so.1")]
    listed = subprocess.run(["ldd", probing] + late, stdout=subprocess.PIPE, check=True, timeout=240).stdout.decode() + " " + " ".join(late)
    for word in listed.split():
        if word.startswith("/") and not word.endswith(":"):
            to = root / word.lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(word), to)
    return root


def convert_alone(root, *traces):
    """Converts the traces in a root directory that holds nothing but the tools, and returns the database."""
    for trace in traces:
        target = root / "tmp" / pathlib.Path(trace).name
        if os.path.isdir(str(trace)):
            shutil.copytree(str(trace), str(target))
        else:
            shutil.copy(trace, target)
    names = ["/tmp/" + pathlib.Path(t).name for t in traces]
    db = root / "tmp/out.db"
    if db.exists():
        db.unlink()
    done = subprocess.run(["chroot", root, "/bin/probing", "convert"] + names + ["/tmp/out.db"], timeout=240,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stderr
    return db


def symbol_blocks(trace):
    """Returns the offsets of the blocks that hold symbols."""
    data = pathlib.Path(trace).read_bytes()
    return [pos for pos, header, _ in format_reader.blocks(data) if header and header["types"] & SYMBOLS]


def without_symbols(trace, to):
    """Returns a copy of the trace as it was when its own process closed it, without the symbols that were added later."""
    data = pathlib.Path(trace).read_bytes()
    to.write_bytes(data[:symbol_blocks(trace)[0]])
    return to


def rows(db, query):
    connection = sqlite3.connect(str(db))
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def same_stacks(a, b):
    tables = [r[0] for r in rows(a, "SELECT name FROM sqlite_master WHERE type = 'table' AND name IN "
                                    "('function', 'frame', 'callsite', 'stack', 'stack_frame', 'stack_node', 'stack_total', 'sample', 'module')")]
    assert len(tables) > 4
    for table in tables:
        assert rows(a, "SELECT * FROM " + table) == rows(b, "SELECT * FROM " + table), table
