#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what comments of headers say about functions against the functions' declarations.

usage: .ci/examples.py          Prints a line for each error, and ends with exit code 1: a comment of a header calls one of the
                                header's own functions with a wrong number of arguments, or names as name() a function that has
                                the prefix of one of the header's own but is in no source
"""
import glob
import os
import re
import sys

ROOTS = ("traces", "writer", "agent", "gdbplugin", "converter", "tools")


def arguments(text, at):
    """Returns the number of arguments of the call whose '(' is at `at`; None if it does not tell (none, or with an ellipsis)."""
    depth, start, parts = 0, at + 1, []
    for i in range(at, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0 or (depth == 1 and text[i] == ","):
            parts.append(text[start:i].strip())
            start = i + 1
        if depth == 0:
            return len(parts) if parts[0] not in ("", "void") and "..." not in parts else None
    return None


def bare(text):
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', text)


def split(text):
    """Returns the comments, and the code without them."""
    comments = re.findall(r"/\*.*?\*/", text, re.S)
    return comments, re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    sources = [f for root in ROOTS for f in sorted(glob.glob(root + "/**/*.[ch]", recursive=True))]
    known = set()
    for source in sources:
        known |= set(re.findall(r"\w+", split(open(source).read())[1]))
    bad, calls = [], 0
    for header in (f for f in sources if f.endswith(".h")):
        comments, code = split(open(header).read())
        own = {}
        for m in re.finditer(r"^(?:[A-Za-z_][\w *]*?[ *])(\w+)\(", code, re.M):
            own.setdefault(m.group(1), arguments(code, m.end() - 1))
        prefixes = {name.split("_")[0] + "_" for name in own if "_" in name}
        for comment in map(bare, comments):
            for m in re.finditer(r"\b([a-z][a-z0-9_]*_[a-z0-9_]+)\(", comment):
                name, said = m.group(1), arguments(comment, m.end() - 1)
                calls += name in own and said is not None
                if name in own and said is not None and own[name] is not None and said != own[name]:
                    bad.append("%s: %s() is called with %d arguments and has %d" % (header, name, said, own[name]))
                elif name not in known and name[: name.index("_") + 1] in prefixes:
                    bad.append("%s: there is no %s()" % (header, name))
    print("\n".join(bad) or "examples in headers: %d calls, as declared" % calls)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
