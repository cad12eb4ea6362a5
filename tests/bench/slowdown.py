# SPDX-License-Identifier: Apache-2.0
"""Slow-down of two workloads, which run bare, with us and with the peers in turn.

Each round runs every variant once, in an order of its own; a variant is compared with the bare runs
of the same round (two of them), and the figure is the median over the rounds. "bare, again" is measured like all others, and shows the noise.
"""
import os
import random
import time

from common import STEADY, Failed, find_peer, median, run_workload, say, spread

RATES = (10, 100, 1000)


class Variant:
    def __init__(self, name, prefix, ours=False, rate=0, native=False, trace=None):
        self.name = name
        self.prefix = prefix
        self.ours = ours
        self.rate = rate
        self.native = native
        self.trace = trace
        self.wall, self.cpu, self.tree = [], [], []
        self.failed = None

    def slow(self, which="wall"):
        return 100 * (median(getattr(self, which)) - 1)

    def error(self, which="wall"):
        return 100 * spread(getattr(self, which))


def our_variants(place, children):
    """10 Hz is the default rate; native frames are on by default, --no-native leaves them out."""
    found = []
    for rate in RATES:
        for native in (True, False):
            if rate == 10 and not native:
                continue
            name = "probing %d Hz%s" % (rate, "" if native else ", Python only")
            trace = place.path("%s%d%s.zst" % ("train" if children else "loop", rate, "n" if native else "p"))
            prefix = [place.tool("probing-record"), "-q", "-r", str(rate), "-o", trace]
            prefix += [] if native else ["--no-native"]
            found.append(Variant(name, prefix + ["--"], True, rate, native, trace))
    return found


def peer_variants(place, peers, children):
    found = []
    spy = peers["py-spy"][0]
    if spy:
        for rate in RATES:
            for native in (False, True):
                if native and rate == 10:
                    continue
                prefix = [spy, "record", "-r", str(rate), "-f", "raw", "-o", place.path("pyspy.out")]
                prefix += ["-n"] if native else []
                prefix += ["-s"] if children else []
                name = "py-spy %d Hz%s" % (rate, ", native" if native else "")
                found.append(Variant(name, prefix + ["--"], rate=rate, native=native))
    austin = peers["austin"][0]
    if austin:
        for rate in RATES:
            prefix = [austin, "-i", "%dus" % (1000000 // rate), "-o", place.path("austin.out")]
            found.append(Variant("austin %d Hz" % rate, prefix + (["-C"] if children else []), rate=rate))
    return found


def attached(peers, children):
    """Returns the peers' commands for a running process, as toggle.py takes them: Austin only reads the process, py-spy stops it."""
    reading, stopping = [], []
    for rate in RATES[1:]:
        if peers["austin"][0]:
            reading.append(["austin %d Hz" % rate, [peers["austin"][0], "-i", "%dus" % (1000000 // rate), "-o", "/dev/null", "-p", "PID"]
                            + (["-C"] if children else []), True])
        if peers["py-spy"][0]:
            for native in (False, True):
                stopping.append(["py-spy %d Hz%s" % (rate, ", native" if native else ""),
                                 [peers["py-spy"][0], "record", "-r", str(rate), "-f", "raw", "-o", "/dev/null", "-p", "PID"]
                                 + (["-n"] if native else []) + (["-s"] if children else []), False])
    return reading, stopping


def find_peers(place):
    return {"py-spy": find_peer(place, "py-spy", ["py-spy"]),
            "austin": find_peer(place, "austin", ["austin-dist", "austin-dist<4"])}


def compare(place, title, python, args, peers, rounds, limit, children=False):
    """Measures all variants of one workload. Returns the list of Variant with the ratios filled in, and the bare figures. `limit`: seconds
    after which no further round begins."""
    bare = Variant("bare, again", [])
    variants = [bare] + our_variants(place, children) + peer_variants(place, peers, children)
    walls, cpus = [], []
    order = random.Random(1)
    end = time.monotonic() + limit
    for number in range(rounds):
        if number and time.monotonic() > end:
            break
        say("bench: %s, round %d of %d, %d variants" % (title, number + 1, rounds, len(variants)))
        # Two bare runs to compare with, and all variants, in an order that changes.
        todo = variants + [None, None]
        order.shuffle(todo)
        done, base = [], []
        for variant in todo:
            if variant is not None and (variant.failed or rests(variant, number)):
                continue
            if variant is not None and variant.trace:
                forget(variant.trace)
            try:
                result = run_workload(place, variant.prefix if variant else [], python, args, **STEADY)
            except Failed as e:
                if variant is None:
                    raise
                variant.failed = str(e)
                say("bench: %s: %s" % (variant.name, e))
                continue
            if variant is None:
                base.append(result)
            else:
                done.append((variant, result))
        wall = sum(b["wall"] for b in base) / len(base)
        cpu = sum(b["cpu"] for b in base) / len(base)
        tree = sum(b["tree_cpu"] for b in base) / len(base)
        walls.append(wall)
        cpus.append(cpu)
        for variant, result in done:
            variant.wall.append(result["wall"] / wall)
            variant.cpu.append(result["cpu"] / cpu)
            # CPU time of all processes, including the profiler's own, beside that of the workload.
            variant.tree.append(1 + (result["tree_cpu"] - tree) / cpu)
    return variants, {"wall": median(walls), "cpu": median(cpus), "rounds": len(walls)}


def rests(variant, number):
    """Whether to leave out a peer this time: one that slows the program by more than our highest promise is known well enough after two
    rounds, and the time is better spent on more rounds of the others."""
    return not variant.ours and variant.rate and number >= 2 and number % 4 != 0 and median(variant.wall) > 1.03


def forget(trace):
    for name in (trace, trace + ".old"):
        if os.path.exists(name):
            os.unlink(name)
    for folder in (trace + ".d", trace + ".d.old"):
        if os.path.isdir(folder):
            for name in os.listdir(folder):
                os.unlink(os.path.join(folder, name))
            os.rmdir(folder)
