#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares reading traces as Arrow with converting them in the same run, and measures how the time grows from 10 to 1,000 traces. In CPU seconds,
which depend less on how busy the machine is. Part "arrow" of make bench (run.py); by hand:

    arrow.py BUILD SCRATCH [TRACE...]     TRACE: the traces to read. Without any, a fleet of 1,000 ranks and a synthetic trace of 4 M samples are made in SCRATCH
"""
import glob
import os
import resource
import statistics
import subprocess
import sys
import time

TABLE = ("timestamp", "tid", "stack_id", "cpu_seconds", "count", "state")  # what table `sample` of the database holds
COUNTS = (10, 30, 100, 300, 1000)


def read(paths, columns):
    """Reads a stream batch by batch, keeping none. Returns (rows, CPU seconds)."""
    import probing
    from probing import _arrow
    table = probing.open(*paths).samples
    table = table.select(*columns) if columns else table
    begun, rows = time.process_time(), 0
    with _arrow.Reader(**table._stream()) as reader:
        for n in reader.batches(lambda fields, arrays, length: length):
            rows += n
    return rows, time.process_time() - begun


def convert(build, scratch, paths):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([os.path.join(build, "bin", "probing"), "convert", "-q", "-f"] + paths + [os.path.join(scratch, "bench.db")], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(build, scratch, name, paths):
    """Returns [(what, rows a CPU second, how many times as fast as the conversion)]: medians of three rounds, in each of which all are
    measured in turn."""
    found = {}
    for _ in range(3):
        cpu = convert(build, scratch, paths)
        for columns, what in ((TABLE, "columns of table sample"), ((), "all columns")):
            rows, seconds = read(paths, columns)
            found.setdefault(what, []).append((rows / seconds, cpu / seconds))
    return [("%s, %s" % (name, what), statistics.median(r[0] for r in got), statistics.median(r[1] for r in got)) for what, got in found.items()]


def slope(traces, counts=COUNTS):
    """Fits a line. Returns ({traces: seconds}, seconds a trace, seconds that 10,000 traces would take, and twice the error of that)."""
    points = [(n, min(read(traces[:n], ("timestamp", "func", "count"))[1] for _ in range(3))) for n in counts if n <= len(traces)]
    n, mx, my = len(points), sum(p[0] for p in points) / len(points), sum(p[1] for p in points) / len(points)
    sxx = sum((p[0] - mx) ** 2 for p in points)
    b = sum((p[0] - mx) * (p[1] - my) for p in points) / sxx
    a = my - b * mx
    left = sum((p[1] - a - b * p[0]) ** 2 for p in points) / max(1, n - 2)
    at = 10000
    return dict(points), b, a + b * at, 2 * (left * (1 + 1.0 / n + (at - mx) ** 2 / sxx)) ** 0.5


def make_fleet(build, out, ranks, minutes):
    """Returns the paths of the fleet's traces."""
    if not os.path.isdir(out):
        subprocess.run([os.path.join(build, "tests/fleet/probing-fleet"), "--quiet", "--out", out, "--ranks", str(ranks), "--nodes", str(ranks // 8),
                        "--minutes", str(minutes), "--hz", "100"], check=True)
    return sorted(glob.glob(os.path.join(out, "node*", "*.zst")))


def measure(build, scratch, traces=(), ranks=1000, samples=4000000, minutes=5):
    """Returns {compared: see compare(), bytes: of a sample row on disk, slope: see slope(), memory: peak MB}."""
    sys.path.insert(0, os.path.join(build, "share", "probing", "python"))
    compared = []
    traces = list(traces)
    if not traces:
        synthetic = os.path.join(scratch, "synthetic-%d.zst" % samples)
        if not os.path.exists(synthetic):
            subprocess.run([os.path.join(build, "tests/bench/bench_convert"), "--make", str(samples), synthetic], check=True)
        compared += compare(build, scratch, "%.2g M synthetic samples" % (samples / 1e6), [synthetic])
        compared += compare(build, scratch, "16 ranks x %g minutes, recorded stacks" % minutes,
                            make_fleet(build, os.path.join(scratch, "arrow-%g" % minutes), 16, minutes))
        traces = make_fleet(build, os.path.join(scratch, "arrow-fleet-%d" % ranks), ranks, 0.5)
    size = sum(map(os.path.getsize, traces)) / float(read(traces, ("count",))[0])
    return {"compared": compared, "bytes": size, "slope": slope(traces), "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0}


if __name__ == "__main__":
    found = measure(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:])
    for what, rate, times in found["compared"]:
        print("%s: %.2g rows a CPU second to Arrow, %.1f times the conversion" % (what, rate, times))
    points, each, whole, error = found["slope"]
    print("%.1f bytes a sample row on disk; peak RSS %.0f MB" % (found["bytes"], found["memory"]))
    print("slope: " + ", ".join("%d: %.2f s" % p for p in sorted(points.items())))
    print("%.2f ms a trace; 10,000 such traces: %.0f s +- %.0f of one core" % (each * 1e3, whole, error))
