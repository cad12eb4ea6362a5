# SPDX-License-Identifier: Apache-2.0
"""Compares `probing export` in every format with the conversion of the same traces in the same run: CPU seconds, bytes, memory. Part "exports"
of make bench (run.py)."""
import os
import re
import statistics
import subprocess

import arrow
from common import used


def formats(tool):
    """Returns the formats that the help names."""
    text = subprocess.run([tool, "export", "--help"], stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout
    return re.findall(r"^  ([a-z]+) +\S", text.split("\nFormats:\n", 1)[1].split("\n\n", 1)[0], re.M)


def export(tool, name, database, out):
    """Returns (CPU seconds, bytes, peak MB)."""
    table = ["--table", "samples"] if name in ("csv", "jsonl") else []
    with open(out, "wb") as f:
        code, cpu, memory, _ = used([tool, "export", "-q", "--format", name] + table + [database], stdout=f, stdin=subprocess.DEVNULL)
    if code:
        raise subprocess.CalledProcessError(code, "probing export --format " + name)
    size = os.path.getsize(out)
    os.unlink(out)
    return cpu, size, memory


def measure(build, scratch, ranks=16, minutes=5):
    """Returns (what was exported, {bytes of the traces, of the database, the conversion's CPU seconds}, [(format, seconds, times the
    conversion's, bytes, MB)]): medians of three rounds, in which each format follows the conversion."""
    tool, traces, database = (os.path.join(build, "bin", "probing"), os.path.join(scratch, "exports-%d-%d" % (ranks, minutes)),
                              os.path.join(scratch, "bench.db"))
    paths = arrow.make_fleet(build, traces, ranks, minutes)
    found, seconds = {}, []
    for _ in range(3):
        seconds.append(arrow.convert(build, scratch, paths))
        for name in formats(tool):
            found.setdefault(name, []).append((seconds[-1],) + export(tool, name, database, os.path.join(scratch, "export.out")))
    sizes = {"traces": sum(map(os.path.getsize, paths)), "database": os.path.getsize(database), "seconds": statistics.median(seconds)}
    os.unlink(database)
    return "%d ranks, %d minutes" % (ranks, minutes), sizes, [
        (name, statistics.median(g[1] for g in got), statistics.median(g[1] / g[0] for g in got), got[0][2], max(g[3] for g in got))
        for name, got in found.items()]
