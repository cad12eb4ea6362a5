#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the includes of the sources to the drawing in ARCHITECTURE.md.

usage: .ci/arrows.py            exit code 1, and a line for each, when an include crosses folders where no arrow is
                                drawn, a drawn arrow is not there any more, or folders include each other in a circle

The drawing: lines "    FOLDER -> FOLDER FOLDER ..." below the heading "## Arrows". tools/ may use gdbplugin/inspect.h alone.
"""
import glob
import os
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
OWN = ("tools/export",)
ROOTS = ("traces", "writer", "agent", "gdbplugin", "converter", "tools")


def folder(path):
    """agent's folders and those of OWN count one by one, the others as a whole."""
    parts = os.path.dirname(path).split("/")
    return "/".join(parts[:2]) if parts[0] == "agent" or "/".join(parts[:2]) in OWN else parts[0]


def drawn():
    text = open("ARCHITECTURE.md").read()
    section = re.search(r"^## Arrows\n(.*?)(?=^## |\Z)", text, re.S | re.M)
    lines = re.findall(r"^    ([\w/]+) +->(.*)$", section.group(1) if section else "", re.M)
    return {(a, b) for a, rest in lines for b in rest.split()}


def included():
    arrows = {}
    for root in ROOTS:
        for source in sorted(glob.glob(root + "/**/*.[ch]", recursive=True)):
            for name in INCLUDE.findall(open(source).read()):
                beside = os.path.normpath(os.path.join(os.path.dirname(source), name))
                target = beside if os.path.exists(beside) else name
                a, b = folder(source), folder(target)
                if b and a != b and os.path.exists(target):  # not: made by the build
                    arrows.setdefault((a, b), []).append((source, target))
    return arrows


def circle(arrows):
    """The folders that lie on a circle, or reach one only: what is left when those without outgoing arrows are taken away."""
    left = set(arrows)
    while True:
        gone = {b for _, b in left} - {a for a, _ in left}
        rest = {(a, b) for a, b in left if b not in gone}
        if rest == left:
            return sorted({a for a, _ in left})
        left = rest


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    want, have, bad = drawn(), included(), []
    for a, b in sorted(set(have) - want):
        bad += ["%s includes %s: no arrow %s -> %s in ARCHITECTURE.md" % (s, t, a, b) for s, t in have[a, b]]
    bad += ["ARCHITECTURE.md draws %s -> %s: no such include" % arrow for arrow in sorted(want - set(have))]
    bad += ["%s includes %s: tools use gdbplugin/inspect.h alone" % (s, t) for s, t in have.get(("tools", "gdbplugin"), [])
            if t != "gdbplugin/inspect.h"]
    if circle(have):
        bad.append("a circle of folders: " + " ".join(circle(have)))
    print("\n".join(bad) or "arrows: %d, all drawn, no circle" % len(have))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
