#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the #includes of the sources against the drawing in ARCHITECTURE.md.

usage: .ci/arrows.py            Prints a line for each error, and ends with exit code 1: an include that crosses folders where
                                no arrow is drawn; a drawn arrow without an include; folders or files that include each
                                other in a circle; a drawing that is longer than a page. X.c and X.h count as one file; a
                                header without an X.c counts as part of the files that include it

The drawing consists of lines "    FOLDER -> FOLDER FOLDER ..." below the heading "## Arrows". tools/ may include no header of
gdbplugin/ except inspect.h.
"""
import glob
import os
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
OWN = ("tools/export",)
PAGE = 70, 120  # lines and columns of an A4 page in a monospaced font
ROOTS = ("traces", "writer", "agent", "gdbplugin", "converter", "tools")


def folder(path):
    """Returns the folder that a file counts for: agent's subfolders and those in OWN count separately, all other folders as a whole."""
    parts = os.path.dirname(path).split("/")
    return "/".join(parts[:2]) if parts[0] == "agent" or "/".join(parts[:2]) in OWN else parts[0]


def drawn():
    text = open("ARCHITECTURE.md").read()
    section = re.search(r"^## Arrows\n(.*?)(?=^## |\Z)", text, re.S | re.M)
    lines = re.findall(r"^    ([\w/]+) +->(.*)$", section.group(1) if section else "", re.M)
    return {(a, b) for a, rest in lines for b in rest.split()}


def includes():
    """Yields (source, target) for each include of a file of ours, without those that the build makes."""
    for root in ROOTS:
        for source in sorted(glob.glob(root + "/**/*.[ch]", recursive=True)):
            for name in INCLUDE.findall(open(source).read()):
                beside = os.path.normpath(os.path.join(os.path.dirname(source), name))
                target = beside if os.path.exists(beside) else name
                if os.path.exists(target):
                    yield source, target


def included():
    arrows = {}
    for source, target in includes():
        a, b = folder(source), folder(target)
        if b and a != b:
            arrows.setdefault((a, b), []).append((source, target))
    return arrows


def between_files():
    """Returns the arrows between files, without their endings; headers without a .c are passed through."""
    direct = {}
    for source, target in includes():
        direct.setdefault(source, set()).add(target)

    def reached(source, seen):
        for target in direct.get(source, set()) - seen:
            seen.add(target)
            if os.path.exists(target[:-1] + "c"):
                yield target[:-2]
            else:
                yield from reached(target, seen)

    return {(s[:-2], t) for s in direct if os.path.exists(s[:-1] + "c") for t in reached(s, {s}) if t != s[:-2]}


def circle(arrows):
    """Returns what lies on a circle, or between two: what is left after everything without arrows in, or without arrows out, was removed."""
    left = set(arrows)
    while True:
        ends = {a for a, _ in left} & {b for _, b in left}
        rest = {(a, b) for a, b in left if a in ends and b in ends}
        if rest == left:
            return sorted(ends)
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
    files = between_files()
    if circle(files):
        bad.append("a circle of files: " + " ".join(circle(files)))
    with open("ARCHITECTURE.md") as drawing:
        lines = drawing.read().split("\n")
    if len(lines) > PAGE[0] or max(map(len, lines)) > PAGE[1]:
        bad.append("ARCHITECTURE.md does not fit one printed page: %d lines, the longest of %d columns" % (len(lines), max(map(len, lines))))
    print("\n".join(bad) or "arrows: %d, all drawn, no circle; %d between files, no circle" % (len(have), len(files)))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
