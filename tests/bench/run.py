#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make bench: measures what recording costs, and writes tests/bench/RESULTS.md.

    run.py --build BUILD [--quick] [--only PART]...     parts: slowdown toggle torch memory size inject backtrace exports
                                                        serving live arrow readers views c
Without --only (make bench PART="toggle c") all parts are measured. Parts that are not measured keep their last figures, with their day (results.py).
--quick (make bench QUICK=1) makes few and short runs, and writes the report to BUILD/bench/RESULTS.md only.
"""
import argparse
import json
import os
import platform
import subprocess
import sys
import time

sys.dont_write_bytecode = True

from common import HERE, REPO, STEADY, Failed, Place, run_workload, say, speed_of_machine  # noqa: E402
import arrow  # noqa: E402
import backtraces  # noqa: E402
import exports  # noqa: E402
import live  # noqa: E402
import own_files  # noqa: E402
import readers  # noqa: E402
import results  # noqa: E402
import serving  # noqa: E402
import single  # noqa: E402
import slowdown  # noqa: E402
import toggle  # noqa: E402
import torch_cost  # noqa: E402
import views  # noqa: E402

PARTS = ("c", "views", "readers", "arrow", "exports", "serving", "live", "inject", "backtrace", "memory", "size", "toggle", "torch", "slowdown")


def first_line(path, key, default="unknown"):
    try:
        with open(path) as f:
            for line in f:
                if line.startswith(key):
                    return line.split("=" if "=" in line else ":", 1)[1].strip().strip('"')
    except OSError:
        pass
    return default


def version_of(python, module):
    done = subprocess.run([python, "-W", "ignore", "-c", "import %s; print(%s.__version__)" % (module, module)],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True)
    return done.stdout.strip() or "none"


def steal():
    with open("/proc/stat") as f:
        fields = [int(x) for x in f.readline().split()[1:]]
    return fields[7], sum(fields[:8])


def signed(value, error):
    return "%+.2f ± %.2f" % (value, error)


def report_slowdown(report, title, variants, base):
    report.add("### %s" % title, "",
               "Bare: %.2f s, %.2f s of CPU; medians of %d rounds." % (base["wall"], base["cpu"], base["rounds"]))
    rows = []
    for v in variants:
        if v.failed:
            rows.append([v.name, "failed", "", v.failed.replace("|", "/")[:120]])
        else:
            rows.append([v.name, signed(v.slow("wall"), v.error("wall")), signed(v.slow("cpu"), v.error("cpu")),
                         signed(v.slow("tree"), v.error("tree"))])
    report.table(["", "wall %", "CPU of the workload %", "CPU with the profiler's own %"], rows)


def toggled(place, name, python, args, **env):
    trace = place.path("toggle-%s.zst" % name)
    slowdown.forget(trace)
    inspect = os.path.join(place.build, "lib", "probing", "libprobing-inspect.so")
    return run_workload(place, [place.tool("probing-record"), "-q", "-o", trace, "--"], python, args, timeout=args[1] + 120,
                        program=os.path.join(HERE, "toggle.py"), BENCH_INSPECT=inspect, **dict(STEADY, **env))["rounds"]


def do_toggle(report, place):
    peers = slowdown.find_peers(place)
    if not any(path for path, _ in peers.values()):
        report.missing("toggle beside peers", "none is here")
    report.add("## Slow-down, switched within one run", "",
               "One program; some times a second its recording is switched to another mode, the order changes each round. Steps of",
               "equal work: the mean of a mode's steps that ran at full speed (at most a quarter longer than its fastest twentieth) against that of",
               "the \"off\" steps, ± standard error. \"off, again\" is noise. Thread: the CPU time of the thread that works. Process: of the whole (main) process with the agent's threads,",
               "and of the peer in its blocks. Austin, which only reads, is held by SIGSTOP while it is not its turn; py-spy, which stops",
               "the process, is set on it anew for each block, in a run of its own with longer blocks. The agent is loaded throughout:",
               "whole runs are below. \"A bare tick\": a thread that wakes by the clock and sends the working thread a signal whose handler",
               "does nothing: this machine's price of any sampler that reads a running thread at its own moment.", "")
    jobs = [("loop", place.python, "loop")] + ([("training", place.torch, "train")] if place.torch else [])
    for name, python, what in jobs:
        reading, stopping = slowdown.attached(peers, what == "train")
        seconds = {"loop": 120, "train": 420}[what]
        rounds = toggled(place, name, python, [what, 20 if place.quick else seconds], BENCH_PEERS=json.dumps(reading),
                         BENCH_TICKER=os.path.join(place.build, "tests", "programs", "ticker"))
        found = toggle.summary(rounds)
        report_toggle(report, "### %s, %d rounds" % (name, len(rounds)), found)
        # At 1 kHz, what waking and a signal cost here, whoever samples, is most of the slow-down: the bar is what we add to that.
        for mode in OURS:
            rate = mode.split(",")[0]
            for than, limit in ((rate + ", a bare tick", 1.0 if rate == "1000 Hz" else None), (toggle.AGAIN, 0.5 if rate == "100 Hz" else None)):
                value, error = toggle.slower(rounds, mode, than, 0)
                words = '"%s"' % than if than == toggle.AGAIN else "a bare tick"
                report.add("%s, %s: %s %% of wall time beyond %s." % (name, mode, signed(value, error), words), "")
                if limit:
                    report.bar("%s, slow-down beyond %s, %s" % (name, words, mode), limit, value, "%", error)
        report_rivals(report, name, rounds)
        if stopping:
            rounds = toggled(place, name, python, [what, 30 if place.quick else 100], BENCH_PEERS=json.dumps(stopping))
            report_toggle(report, "### %s, beside those that stop it, %d rounds" % (name, len(rounds)), toggle.summary(rounds))
            report_rivals(report, name, rounds)


OURS = ("100 Hz", "100 Hz, Python only", "1000 Hz", "1000 Hz, Python only")


def report_toggle(report, title, found):
    report.add("", title)
    report.table(["", "wall %", "thread %", "process %"], [[mode] + [signed(*by[c]) for c in toggle.CLOCKS] for mode, by in found.items()])


def report_rivals(report, name, rounds):
    """Our promise is to cost less than every peer that does the same: compares our block in each round with the peer's."""
    modes = {mode for mode, _ in rounds[0]}
    for ours in OURS:
        rate = ours.split(",")[0]
        for rival in (["austin " + rate, "py-spy " + rate] if ours != rate else ["py-spy %s, native" % rate]):
            if rival in modes:
                for clock, words in ((0, "wall time"), (2, "CPU of process and profiler")):
                    value, error = toggle.slower(rounds, ours, rival, clock)
                    report.bar("%s, %s: slower than under %s (%s)" % (name, ours, rival, words), 0.0, value, "%", error)


def report_own(report, place, title, variants):
    rows = []
    for v in variants:
        if v.ours and not v.failed:
            try:
                cost = single.own_cost(place, v.trace)
            except Failed as e:
                rows.append([v.name, "failed", str(e)[:100], "", "", ""])
                continue
            rows.append([v.name, "%.3f" % (100 * cost["agent"]), "%.3f" % (100 * cost["handler"]), "%d" % cost["samples"],
                         "%d" % cost["lost"], "%.1f" % (cost["bytes"] / 1e3)])
    report.add("What the last round's traces say of it (%s): percent of one CPU." % title)
    report.table(["", "agent's threads %", "signal handler %", "samples", "lost", "trace kB"], rows)


def do_slowdown(report, place):
    peers = slowdown.find_peers(place)
    report.add("## Slow-down", "",
               "Fixed work, timed from inside. In each round all variants run once in a new order and are compared",
               "with two bare runs of that round; medians over the rounds ± standard error. \"bare, again\" is noise.",
               "CPU with the profiler's own: of all processes and threads, starting up included.",
               "Peers: " + "; ".join("%s: %s" % (name, version if path else "not here (%s)" % version)
                                     for name, (path, version) in sorted(peers.items())) + ".", "")
    speed = run_workload(place, [], place.python, ["loop", 200])["wall"] / 200
    units = max(1, int((0.4 if place.quick else 1.6) / speed))
    variants, base = slowdown.compare(place, "loop", place.python, ["loop", units], peers, 2 if place.quick else 30,
                                      150)
    report_slowdown(report, "Plain Python loop on one core", variants, base)
    report_own(report, place, "loop", variants)
    if not place.torch:
        report.missing("training", "no PyTorch at hand")
        return
    train = ["--no-sample", "--report", "1000000", "--steps"]
    some = 40
    rate = run_workload(place, [], place.torch, ["train"] + train + [str(some)])["wall"] / some
    steps = max(some, int((1 if place.quick else 3.5) / rate))
    variants, base = slowdown.compare(place, "training", place.torch, ["train"] + train + [str(steps)], peers,
                                      1 if place.quick else 10, 70, children=True)
    report_slowdown(report, "The demo's training: %d steps, two loader processes" % steps, variants, base)
    report_own(report, place, "training, the main process", variants)


def do_torch(report, place):
    torch_cost.do_torch(report, place)


def do_memory(report, place):
    report.add("## Memory", "", "Recorded process less the bare one, 100 Hz with native frames, MB; medians.")
    rows = []
    for name, python, torch in (("bare Python", place.python, False), ("with torch", place.torch, True)):
        if not python:
            report.missing("agent memory, " + name, "no PyTorch at hand")
            continue
        got = single.memory(place, python, torch, 1 if place.quick else 5, 1 if place.quick else 3)
        more = {key: (got["probing"][key] - got["bare"][key]) / 1e6 for key in got["bare"]}
        rows.append([name] + ["%.1f" % more[key] for key in ("rss", "pss", "private")]
                    + ["%.1f" % (got["bare"]["rss"] / 1e6)])
        report.bar("agent memory over the bare process, %s (RSS)" % name, 16, more["rss"], "MB")
    report.table(["", "RSS", "PSS", "private", "bare RSS"], rows)


def do_size(report, place):
    report.add("## Trace size", "",
               "1 kHz with native frames, the longer of two recordings less the shorter one: steady state. A record",
               "is a sample, or several of an idle thread in a row.")
    rows = []
    speed = run_workload(place, [], place.python, ["loop", 200])["wall"] / 200
    short, long = (1, 2) if place.quick else (8, 24)
    jobs = [("loop", place.python, ["loop", int(short / speed)], ["loop", int(long / speed)])]
    if place.torch:
        train = ["train", "--no-sample", "--report", "1000000", "--seconds"]
        jobs.append(("training", place.torch, train + [str(short)], train + [str(long)]))
    for name, python, first, second in jobs:
        got = single.bytes_per_sample(place, name, python, first, second)
        rows.append([name, "%.2f" % got["sample"], "%.2f" % got["record"], "%d" % got["samples"], "%d" % got["records"],
                     "%.1f" % (got["bytes"] / 1e3), "%d" % got["lost"]])
        report.bar("trace bytes a sample, steady state, %s" % name, 8, got["sample"], "bytes")
    report.table(["", "bytes a sample", "bytes a record", "samples", "records", "trace kB", "lost"], rows)


def do_inject(report, place):
    report.add("## Inject", "")
    if not place.torch:
        report.missing("inject", "no PyTorch at hand")
        return
    got = single.inject(place, place.torch, 1 if place.quick else 7)
    report.add("`gdb -p PID -ex \"probing inject\"` into a process that has torch loaded and works; medians of %d." % got["repeats"],
               "The heartbeat is a thread of the target that should wake every 0.5 ms: its longest gap, the GIL and",
               "scheduling included, with and without us.")
    report.table(["", "ms"], [["stopped, by the plugin's word", "%.1f" % (1e3 * got["told"])],
                              ["the worst of them", "%.1f" % (1e3 * got["worst_told"])],
                              ["longest gap of the heartbeat", "%.1f" % (1e3 * got["gap"])],
                              ["the same without us", "%.1f" % (1e3 * got["bare_gap"])],
                              ["the whole command", "%.0f" % (1e3 * got["wall"])]])
    report.bar("inject: target stopped", 50, 1e3 * got["told"], "ms")
    report.bar("inject: the whole command", 0.3, got["wall"], "s")


def do_backtrace(report, place):
    report.add("## Backtrace", "")
    if not place.torch:
        report.missing("backtrace", "no PyTorch at hand")
        return
    found = backtraces.measure(place, place.torch, 3 if place.quick else 15)
    report.add("All threads of a process that has torch loaded and works; medians. \"Held\": its main thread was stopped by a tracer,",
               "as /proc shows from outside; \"by its own word\": what `probing -v` says of all threads.")
    rows = [[name, "%.1f" % (1e3 * wall), "%.1f" % (1e3 * held), "%.2f" % (1e3 * told) if told is not None else ""]
            if wall is not None else [name, "failed", held.replace("|", "/")[:80], ""] for name, _, wall, held, told in found]
    report.table(["", "whole command, ms", "held, ms", "by its own word, ms"], rows)
    for name, ours, wall, held, told in found:
        if ours and wall is None:
            report.missing(name, held)
        elif name == "probing backtrace":
            report.bar("backtrace without a stop: the whole command", 50, 1e3 * wall, "ms")
        elif name in ("probing backtrace --stop", "probing backtrace --stop --python"):
            report.bar("%s: target stopped" % name[8:], 10 if "--python" in name else 50, 1e3 * (told or held), "ms")


def do_c(report, place):
    found = single.c_benches(place)
    report.add("## Parts", "", "The C benches: the median of their repeats, and the best.")
    report.table(["", "", "unit"], [["%s: %s" % (program, name), "%.4g" % value, unit] for program, name, value, unit in found])
    for words, limit, least, what in ((("enqueue", "ns"), 50, False, "enqueue, a record"),
                                      (("encode", "ns"), 100, False, "encode, a record"),
                                      (("convert", "rows/s"), 2e6, True, "convert, rows a second"),
                                      (("plain loop", "x"), 2.5, True, "convert, x a plain loop of inserts")):
        values = [v for _, name, v, unit in found if words[0] in name and words[1] in unit]
        if not values:
            report.missing(what, "no bench printed it")
        for program, name, value, unit in found:
            if words[0] in name and words[1] in unit and not name.endswith("_best"):
                report.bar("%s (%s)" % (what, name), limit, value, unit, least=least)
    n = 100000 if place.quick else 1000000
    for kind, memory in single.memory_of_many(place, n).items():
        report.bar("convert: memory with %.2g %s" % (n, kind), 200, memory, "MB")


def do_live(report, place):
    if not place.torch:
        report.missing("questions to a process that is being recorded", "no torch is here")
        return
    seconds, times = (20, 1) if place.quick else (240, 7)
    found, nothing, size = live.measure(place, place.torch, seconds, times)
    report.add("## Questions to a process that is being recorded", "",
               "`probing -t PID query` of a training recorded for %d s at 100 Hz (%.1f MB); CPU time, medians of %d; first: nothing is in the cache; next: after"
               % (seconds, size / 1e6, times),
               "more than a second, with what came since; at once: less than a second later. `probing --version`: %.1f ms." % (1e3 * nothing))
    report.table(["question", "first, ms", "next, ms", "at once, ms"], [[name] + ["%.1f" % (1e3 * f) for f in figures] for name, figures in found.items()])
    for name, (first, following, _) in found.items():
        report.bar("a process is asked: %s, first answer" % name, 50, 1e3 * first, "ms of CPU")
        report.bar("a process is asked: %s, next" % name, 10, 1e3 * following, "ms of CPU")


def do_views(report, place):
    ranks, minutes = (10, 1) if place.quick else (100, 10)
    nodes = views.make_fleet(place, ranks, minutes, 170)
    got = views.convert_ratio(place, nodes)
    report.bar("convert, recorded stacks", 1.5, got["times"], "x a plain loop of inserts, CPU time", least=True)
    report.bar("convert, recorded stacks: memory", 200, got["memory"], "MB")
    path = place.path("fleet.db")
    subprocess.run([place.tool("probing-convert"), "-q", "-f"] + nodes + [path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   check=False, timeout=900)
    found = views.measure(path)
    samples = [rows for view, _, _, _, rows in found if view == "samples"][0]
    report.add("## Questions", "", "%.1f million samples of %d ranks in a database of %.0f MB, %.1f times the traces; converted at %.2g rows a second." % (
        samples / 1e6, ranks, os.path.getsize(path) / 1e6, got["size"], got["rate"]),
        "By the stock SQLite of Python, CPU time; \"a rank\": one rank and ten seconds of its time; \"all\" of backtrace: of a tenth of the ranks. Given up after %d s." % views.LIMIT)

    def ms(s, unit=1e3):
        return "given up" if s is None else "%.3g" % (unit * s)

    report.table(["view", "first 10 rows, ms", "a rank, ms", "all, s", "rows", "million rows/s"],
                 [[view, ms(first), "" if part is None else ms(part), ms(whole, 1), "%d" % rows,
                   "%.1f" % (rows / whole / 1e6) if whole and rows > 1e5 else ""] for view, first, part, whole, rows in found])
    report.bar("first ten rows of the slowest view", 50, 1e3 * max(views.LIMIT if f[1] is None else f[1] for f in found), "ms")
    report.bar("a rank and ten seconds, the slowest view", 300, 1e3 * max(f[2] or 0 for f in found), "ms")
    for view, _, _, whole, rows in found:
        if view in ("samples", "backtrace") and whole:
            report.bar("all of " + view, 5e6, rows / whole, "rows/s", least=True)
    os.unlink(path)


def do_arrow(report, place):
    found = arrow.measure(place.build, place.dir, **({"ranks": 104, "samples": 1000000, "minutes": 2} if place.quick else {}))
    points, each, whole, error = found["slope"]
    report.add("## To Arrow", "", "`probing.open` against `probing convert` of the same traces, CPU time, batches looked at and let go. A trace of the "
               "fleet: %.2f ms and core; %s; by a line through these 10,000 such traces: %.0f s ± %.0f. Peak RSS %.0f MB." % (
                   each * 1e3, ", ".join("%d: %.2f s" % p for p in sorted(points.items())), whole, error, found["memory"]))
    report.table(["", "rows a CPU second", "times the conversion"], [[what, "%.2g" % rate, "%.1f" % times] for what, rate, times in found["compared"]])
    for what, _, times in found["compared"]:
        report.bar("to Arrow: " + what, 5, times, "x the conversion, CPU time", least=True)


def do_exports(report, place):
    what, sizes, found = exports.measure(place.build, place.dir, *((8, 1) if place.quick else (16, 5)))
    report.add("## Exports", "", "`probing export` of a database (%s of the fleet: traces of %.1f MB, the database of %.0f MB, converted in %.2f s "
               "of CPU), in CPU time; csv and jsonl: view samples alone." % (what, sizes["traces"] / 1e6, sizes["database"] / 1e6, sizes["seconds"]))
    report.table(["format", "s", "times the conversion's", "MB", "times the traces", "memory, MB"],
                 [[name, "%.2f" % seconds, "%.2f" % times, "%.1f" % (size / 1e6), "%.1f" % (size / sizes["traces"]), "%.0f" % memory]
                  for name, seconds, times, size, memory in found])
    slowest = max(found, key=lambda f: f[2])
    report.bar("export, the slowest format (%s)" % slowest[0], 2, slowest[2], "x the conversion's CPU time")
    report.bar("export: memory, the format that takes most", 200, max(f[4] for f in found), "MB")


def do_serving(report, place):
    found = serving.measure(place.build, place.dir, *((8, 10, 4) if place.quick else (64, 120, 16)))
    own, served, (closed, listed, whole) = found["in_process"], found["served"], found["following"]
    report.add("## Serving", "", "`probing serve` for 8 clients: %.0f queries a second, %.0f a CPU second of the server; the same SQL by Python's SQLite "
               "in one thread: %.0f and %.0f. With many processes recorded at 10 Hz: %.2f %% of a CPU without a page, %.2f %% with its list alone, "
               "%.2f %% with steps and loss." % (served + own + (closed, listed, whole)))
    report.bar("queries served to 8 clients", 0.5, served[1] / own[1], "x in-process, a CPU second", least=True)
    report.bar("a page open on %d recorded processes" % (8 if place.quick else 64), 2, whole, "% of a CPU")


def do_readers(report, place):
    got = subprocess.run([os.path.join(REPO, ".ci", "engines-venv.sh")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True,
                         check=False, timeout=1200)
    lines = readers.table(*readers.measure(place.build, place.dir, got.stdout.strip() or None, *((4, 1) if place.quick else (16, 5))))
    report.add("## The same job as Chrome's JSON", "", *["    " + line for line in lines])
    lines = own_files.table(*own_files.measure(place, 20 if place.quick else 400))
    report.add("", "## One program, each recorder's file read by its own reader", "", *["    " + line for line in lines])


def main():
    parser = argparse.ArgumentParser(description="Measure what recording costs.")
    parser.add_argument("--build", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=PARTS)
    args = parser.parse_args()
    place = Place(args.build, args.quick)
    machine = "%s, %d cores that sum up %.2g M rows/s in SQLite, Linux %s, %s, Python %s%s" % (
        first_line("/proc/cpuinfo", "model name"), os.cpu_count(), speed_of_machine(), platform.release(), first_line("/etc/os-release", "PRETTY_NAME"),
        platform.python_version(), ", torch " + version_of(place.torch, "torch") if place.torch else "")
    keep = place.path("results.json") if place.quick else os.path.join(HERE, "results.json")
    kept = results.load(keep)
    for part in args.only or PARTS:
        say("bench: %s" % part)
        report, before, start = results.Report(), steal(), time.monotonic()
        try:
            globals()["do_" + part](report, place)
        except (Failed, OSError, subprocess.SubprocessError) as e:
            say("bench: %s: %s" % (part, e))
            report.missing(part, str(e)[:200].replace("|", "/"))
        after = steal()
        report.add("", "(In %.1f minutes; %.1f %% of the CPU time was stolen by other guests meanwhile.)" % (
            (time.monotonic() - start) / 60, 100.0 * (after[0] - before[0]) / max(1, after[1] - before[1])))
        kept[part] = results.entry(report, machine)
        results.store(keep, kept)
    with open(os.path.join(HERE, "SWEEPS.md")) as f:  # this file is kept by hand, because make test-all takes hours
        text = results.page(kept, PARTS, f.read(), place.quick)
    with open(place.path("RESULTS.md") if place.quick else os.path.join(HERE, "RESULTS.md"), "w") as f:
        f.write(text)
    if not place.quick:
        results.write_readme(os.path.join(REPO, "README.md"), kept, PARTS)
    print(text)


if __name__ == "__main__":
    main()
