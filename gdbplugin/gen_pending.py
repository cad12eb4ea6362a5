#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes pending_layouts.inc: the offsets of the pending calls in each CPython version, taken from its own headers.

usage: gen_pending.py [-o FILE] [INCLUDE_DIR ...]

An INCLUDE_DIR holds Python.h; without one, all Pythons found are used ($PYENV_ROOT/versions/*, /usr/include). A small C
program of offsetof()s is compiled against their headers. Patch levels of one minor version must agree.
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

PROGRAM = r"""
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#if PY_VERSION_HEX >= 0x03090000
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#include <internal/pycore_ceval.h>
#elif PY_VERSION_HEX >= 0x03080000
#include <internal/pycore_pystate.h>
#else
#include <internal/pystate.h>
#endif
#define OFF(name, type, field) printf(#name " %zu\n", offsetof(type, field))
#define VAL(name, value) printf(#name " %llu\n", (unsigned long long)(value))
#if PY_VERSION_HEX >= 0x030c0000
#define OWNER _PyRuntimeState
#define AT ceval.pending_mainthread
#elif PY_VERSION_HEX >= 0x03090000
#define OWNER PyInterpreterState
#define AT ceval.pending
#else
#define OWNER _PyRuntimeState
#define AT ceval.pending
#endif
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
int main(void) {
    OWNER *o = 0;
    VAL(version, PY_VERSION_HEX);
    VAL(in_interp, PY_VERSION_HEX >= 0x03090000 && PY_VERSION_HEX < 0x030c0000);
    OFF(calls, OWNER, AT.calls);
    VAL(slot, sizeof o->AT.calls[0]);
    VAL(slots, COUNT(o->AT.calls));
    OFF(first, OWNER, AT.first);
#if PY_VERSION_HEX >= 0x030d0000
    OFF(last, OWNER, AT.next);
    OFF(mutex, OWNER, AT.mutex);
    OFF(to_do, OWNER, AT.npending);
    OFF(ts_breaker, PyThreadState, eval_breaker);
    VAL(breaker_bit, _PY_CALLS_TO_DO_BIT);
#else
    OFF(last, OWNER, AT.last);
    OFF(lock, OWNER, AT.lock);
    OFF(to_do, OWNER, AT.calls_to_do);
    VAL(breaker_bit, 1);
#if PY_VERSION_HEX >= 0x03090000
    OFF(interp_breaker, PyInterpreterState, ceval.eval_breaker);
#else
    OFF(rt_breaker, _PyRuntimeState, ceval.eval_breaker);
#endif
#endif
    return 0;
}
"""


def found():
    root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    places = glob.glob(os.path.join(root, "versions", "3.*", "include", "python3.*"))
    places += glob.glob("/usr/include/python3.*")
    return [p for p in places if 7 <= minor(p) <= 13 and re.search(r"python3\.\d+m?$", p)]


def minor(include):
    try:
        with open(os.path.join(include, "patchlevel.h")) as f:
            return int(re.search(r"define\s+PY_MINOR_VERSION\s+(\d+)", f.read()).group(1))
    except (OSError, AttributeError):
        return -1


def layout(include):
    with tempfile.TemporaryDirectory() as tmp:
        source, program = os.path.join(tmp, "p.c"), os.path.join(tmp, "p")
        with open(source, "w") as f:
            f.write(PROGRAM)
        flags = ["-I" + include, "-I" + os.path.join(include, "internal"), "-w", "-O0", "-o", program]
        subprocess.run(["cc", *flags, source, "-Wl,--unresolved-symbols=ignore-all", "-no-pie"], check=True)
        text = subprocess.run([program], check=True, stdout=subprocess.PIPE).stdout.decode()
    return {k: int(v) for k, v in (line.split() for line in text.splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", metavar="FILE", help="write the table there (default: standard output)")
    parser.add_argument("include", nargs="*")
    args = parser.parse_args()
    by_minor = {}
    for fields in map(layout, args.include or found()):
        version = fields.pop("version")
        seen, known = by_minor.setdefault(version >> 16 & 255, (set(), fields))
        if known != fields:
            sys.exit("gen_pending: patch levels of 3.%d differ" % (version >> 16 & 255))
        seen.add("3.%d.%d" % (version >> 16 & 255, version >> 8 & 255))
    out = ["/* SPDX-License-Identifier: Apache-2.0 */",
           "/* Written by gen_pending.py from the headers of the versions named below: do not edit. */"]
    for number, (seen, fields) in sorted(by_minor.items()):
        out.append("/* headers seen: %s */" % ", ".join(sorted(seen)))
        out.append("{%d, %s}," % (number, ", ".join(".%s = %d" % f for f in fields.items())))
    text = "\n".join(out) + "\n"
    if args.o:
        with open(args.o, "w") as f:
            f.write(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
