#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes offsets_table.inc: CPython's structure layouts, taken from each version's own headers; with --debug
debug_table.inc: where in _Py_DebugOffsets (3.13+) each offset stands, which is another place in every minor version.

usage: gen_offsets.py [--debug] [-o FILE] [--check FILE] [INCLUDE_DIR ...]

An INCLUDE_DIR is a directory that holds Python.h (.../include/python3.11). Without one, every Python found is
taken: $PYENV_ROOT/versions/* (default ~/.pyenv) and the system's /usr/include/python3.*.

For each directory a small C program of offsetof()s is compiled against those headers and run. Two patch levels of
one minor version must give the same numbers, else a range has to be split (see SPLITS). Fields that move
within a minor version and cannot be seen from the headers at hand are checked again at run time by pywalk_init and
gil_holder in threads.c. --check compares with an existing file and fails on a difference.
"""

import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

# (minor, first patch level of a new layout): none known for the fields we use, but for 3.7's tstate_current, which
# pywalk verifies when it reads it.
SPLITS = {}
MINORS = (6, 15)

PROGRAM = r"""
#define Py_BUILD_CORE 1
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#if PY_VERSION_HEX >= 0x03090000
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#elif PY_VERSION_HEX >= 0x03080000
#include <internal/pycore_pystate.h>
#elif PY_VERSION_HEX >= 0x03070000
#include <internal/pystate.h>
#endif
#if PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_frame.h>
#define FRAME _PyInterpreterFrame
#else
#define FRAME PyFrameObject
#endif
#if PY_VERSION_HEX >= 0x030c0000
#include <internal/pycore_gil.h>
#endif

#define OFF(name, type, field) printf(#name " %zu\n", offsetof(type, field))
#define VAL(name, value) printf(#name " %llu\n", (unsigned long long)(value))

/* Where the bits of `field` are in the 32-bit word that holds the string's state. */
#define STATE(name, field)                                                                         \
    do {                                                                                           \
        PyASCIIObject s;                                                                           \
        unsigned int w;                                                                            \
        memset(&s, 0, sizeof s);                                                                   \
        s.state.field = ~0;                                                                        \
        memcpy(&w, (char *)&s + STATE_AT, sizeof w);                                               \
        VAL(name, w);                                                                              \
    } while (0)
/* A bit-field has no offset: it follows the hash. */
#define STATE_AT (offsetof(PyASCIIObject, hash) + sizeof(Py_hash_t))

int main(void) {
    VAL(version, PY_VERSION_HEX);
#if PY_VERSION_HEX >= 0x03070000
    OFF(rt_interp_head, _PyRuntimeState, interpreters.head);
#endif
#if PY_VERSION_HEX >= 0x03070000 && PY_VERSION_HEX < 0x030c0000
    OFF(rt_current, _PyRuntimeState, gilstate.tstate_current);
#elif PY_VERSION_HEX >= 0x030c0000
    OFF(interp_gil, PyInterpreterState, ceval.gil);
    OFF(gil_holder, struct _gil_runtime_state, last_holder);
    OFF(gil_locked, struct _gil_runtime_state, locked);
#endif
#if PY_VERSION_HEX >= 0x03070000 && PY_VERSION_HEX < 0x03090000
    OFF(rt_finalizing, _PyRuntimeState, finalizing);
    OFF(rt_collecting, _PyRuntimeState, gc.collecting);
#elif PY_VERSION_HEX >= 0x03090000
    OFF(rt_finalizing, _PyRuntimeState, _finalizing);
    OFF(interp_collecting, PyInterpreterState, gc.collecting);
#endif
#if PY_VERSION_HEX >= 0x030c0000
    OFF(interp_finalizing, PyInterpreterState, _finalizing);
#endif
    OFF(interp_next, PyInterpreterState, next);
#if PY_VERSION_HEX >= 0x030b0000
    OFF(interp_threads, PyInterpreterState, threads.head);
#else
    OFF(interp_threads, PyInterpreterState, tstate_head);
#endif
#if PY_VERSION_HEX >= 0x03070000
    OFF(interp_id, PyInterpreterState, id);
#endif
    OFF(ts_next, PyThreadState, next);
    OFF(ts_interp, PyThreadState, interp);
    OFF(ts_thread_id, PyThreadState, thread_id);
#if PY_VERSION_HEX >= 0x030b0000
    OFF(ts_native_id, PyThreadState, native_thread_id);
    OFF(ts_chunk, PyThreadState, datastack_chunk);
    OFF(ts_datatop, PyThreadState, datastack_top);
    OFF(chunk_previous, _PyStackChunk, previous);
    OFF(chunk_size, _PyStackChunk, size);
    OFF(chunk_data, _PyStackChunk, data);
#endif
#if PY_VERSION_HEX >= 0x030f0000
    OFF(ts_base_frame, PyThreadState, base_frame);
#endif
#if PY_VERSION_HEX >= 0x030d0000
    OFF(ts_frame, PyThreadState, current_frame);
#elif PY_VERSION_HEX >= 0x030b0000
    OFF(ts_cframe, PyThreadState, cframe);
    OFF(ts_root_cframe, PyThreadState, root_cframe);
    OFF(cframe_current, _PyCFrame, current_frame);
    OFF(cframe_previous, _PyCFrame, previous);
#else
    OFF(ts_frame, PyThreadState, frame);
#endif
#if PY_VERSION_HEX >= 0x030a0000 && PY_VERSION_HEX < 0x030b0000
    OFF(ts_cframe, PyThreadState, cframe);
    OFF(ts_root_cframe, PyThreadState, root_cframe);
    OFF(cframe_previous, CFrame, previous);
#endif
#if PY_VERSION_HEX >= 0x030b0000
    OFF(fr_back, FRAME, previous);
    OFF(fr_owner, FRAME, owner);
#if PY_VERSION_HEX >= 0x030d0000
    OFF(fr_code, FRAME, f_executable);
    OFF(fr_instr, FRAME, instr_ptr);
#else
    OFF(fr_code, FRAME, f_code);
    OFF(fr_instr, FRAME, prev_instr);
#endif
#if PY_VERSION_HEX < 0x030c0000
    OFF(fr_is_entry, FRAME, is_entry);
#endif
    OFF(fr_span, FRAME, localsplus);
#else
    OFF(fr_refcnt, FRAME, ob_base.ob_base.ob_refcnt);
    OFF(fr_back, FRAME, f_back);
    OFF(fr_code, FRAME, f_code);
    OFF(fr_lasti, FRAME, f_lasti);
    OFF(fr_gen, FRAME, f_gen);
#if PY_VERSION_HEX >= 0x030a0000
    OFF(fr_state, FRAME, f_state);
#else
    OFF(fr_state, FRAME, f_executing);
#endif
    OFF(fr_span, FRAME, f_blockstack);
#endif
    OFF(ob_type, PyObject, ob_type);
    OFF(ob_size, PyVarObject, ob_size);
    OFF(co_name, PyCodeObject, co_name);
    OFF(co_filename, PyCodeObject, co_filename);
    OFF(co_firstlineno, PyCodeObject, co_firstlineno);
#if PY_VERSION_HEX >= 0x030b0000
    OFF(co_qualname, PyCodeObject, co_qualname);
    OFF(co_firsttraceable, PyCodeObject, _co_firsttraceable);
    OFF(co_bytecode, PyCodeObject, co_code_adaptive);
    OFF(co_stacksize, PyCodeObject, co_stacksize);
    OFF(co_nlocalsplus, PyCodeObject, co_nlocalsplus);
#else
#endif
#if PY_VERSION_HEX >= 0x030a0000
    OFF(co_linetable, PyCodeObject, co_linetable);
#else
    OFF(co_linetable, PyCodeObject, co_lnotab);
#endif
    OFF(bytes_data, PyBytesObject, ob_sval);
    OFF(str_length, PyASCIIObject, length);
    VAL(str_state, STATE_AT);
    STATE(str_kind_mask, kind);
    STATE(str_compact_mask, compact);
    STATE(str_ascii_mask, ascii);
    VAL(str_ascii_data, sizeof(PyASCIIObject));
    VAL(str_compact_data, sizeof(PyCompactUnicodeObject));
    OFF(str_any, PyUnicodeObject, data);
    return 0;
}
"""

DEBUG_PROGRAM = r"""
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#include <internal/pycore_runtime.h>

#define WORD(name, path) printf(#name " %zu\n", offsetof(_Py_DebugOffsets, path) / 8)

int main(void) {
    printf("version %u\n", PY_VERSION_HEX);
    printf("words %zu\n", sizeof(_Py_DebugOffsets) / 8);
    WORD(runtime_size, runtime_state.size);
    WORD(rt_finalizing, runtime_state.finalizing);
    WORD(rt_interp_head, runtime_state.interpreters_head);
    WORD(interp_size, interpreter_state.size);
    WORD(interp_id, interpreter_state.id);
    WORD(interp_next, interpreter_state.next);
    WORD(interp_threads, interpreter_state.threads_head);
    WORD(interp_gc, interpreter_state.gc);
    WORD(interp_gil, interpreter_state.ceval_gil);
    WORD(gil, interpreter_state.gil_runtime_state);
    WORD(gil_locked, interpreter_state.gil_runtime_state_locked);
    WORD(gil_holder, interpreter_state.gil_runtime_state_holder);
    WORD(gc_size, gc.size);
    WORD(gc_collecting, gc.collecting);
    WORD(ts_size, thread_state.size);
    WORD(ts_next, thread_state.next);
    WORD(ts_interp, thread_state.interp);
    WORD(ts_frame, thread_state.current_frame);
    WORD(ts_thread_id, thread_state.thread_id);
    WORD(ts_native_id, thread_state.native_thread_id);
    WORD(ts_chunk, thread_state.datastack_chunk);
#if PY_VERSION_HEX >= 0x030f0000
    WORD(ts_base_frame, thread_state.base_frame);
#endif
    WORD(fr_size, interpreter_frame.size);
    WORD(fr_back, interpreter_frame.previous);
    WORD(fr_code, interpreter_frame.executable);
    WORD(fr_instr, interpreter_frame.instr_ptr);
    WORD(fr_span, interpreter_frame.localsplus);
    WORD(fr_owner, interpreter_frame.owner);
    WORD(co_size, code_object.size);
    WORD(co_filename, code_object.filename);
    WORD(co_name, code_object.name);
    WORD(co_qualname, code_object.qualname);
    WORD(co_linetable, code_object.linetable);
    WORD(co_firstlineno, code_object.firstlineno);
    WORD(co_bytecode, code_object.co_code_adaptive);
    WORD(ob_head, pyobject.size);
    WORD(ob_type, pyobject.ob_type);
    WORD(bytes_size, bytes_object.size);
    WORD(bytes_length, bytes_object.ob_size);
    WORD(bytes_data, bytes_object.ob_sval);
    WORD(str_size, unicode_object.size);
    WORD(str_state, unicode_object.state);
    WORD(str_length, unicode_object.length);
    WORD(str_ascii_data, unicode_object.asciiobject_size);
    return 0;
}
"""


def found():
    root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    places = glob.glob(os.path.join(root, "versions", "3.*", "include", "python3.*"))
    places += glob.glob("/usr/include/python3.*") + glob.glob("/usr/local/include/python3.*")
    return [p for p in places if known(p)]


def minor_of(include):
    try:
        with open(os.path.join(include, "patchlevel.h")) as f:
            return int(re.search(r"define\s+PY_MINOR_VERSION\s+(\d+)", f.read()).group(1))
    except (OSError, AttributeError):
        return -1


def known(include):
    """Is it a version that PROGRAM knows, and a build with a GIL (python3.13t is another one)? Debug builds have the same layouts."""
    return MINORS[0] <= minor_of(include) <= MINORS[1] and re.search(r"python3\.\d+[md]?$", include) is not None


def layout(include, program=None):
    """{field: value} of one set of headers."""
    with tempfile.TemporaryDirectory() as tmp:
        source, binary = os.path.join(tmp, "offsets.c"), os.path.join(tmp, "offsets")
        with open(source, "w") as f:
            f.write(program or PROGRAM)
        flags = ["-I" + include, "-I" + os.path.join(include, "internal"), "-idirafter", os.path.dirname(include), "-w", "-O0", "-o", binary]
        # Py_BUILD_CORE makes the headers ask for what only libpython defines: nothing of it is called here.
        subprocess.run(["cc", *flags, source, "-Wl,--unresolved-symbols=ignore-all", "-no-pie"], check=True)
        text = subprocess.run([binary], check=True, stdout=subprocess.PIPE).stdout.decode()
    return {k: int(v) for k, v in (line.split() for line in text.splitlines())}


def name_of(version):
    return "3.%d.%d" % (version >> 16 & 255, version >> 8 & 255)


def group(layouts):
    """[(low, high, seen versions, fields)]: one per minor version (or split of one)."""
    groups = {}
    for fields in layouts:
        fields = dict(fields)
        version = fields.pop("version")
        minor, patch = version >> 16 & 255, version >> 8 & 255
        cuts = [c for c in sorted(SPLITS.get(minor, ())) if c <= patch]
        start = cuts[-1] if cuts else 0
        later = [c for c in sorted(SPLITS.get(minor, ())) if c > patch]
        low = 0x03000000 | minor << 16 | start << 8 | (0xF0 if start == 0 else 0)
        high = 0x03000000 | minor << 16 | ((later[0] << 8) - 1 if later else 0xFFFF)
        seen, known = groups.setdefault((low, high), (set(), fields))
        if known != fields:
            moved = sorted(k for k in fields if known.get(k) != fields[k])
            sys.exit("gen_offsets: %s differs from %s in %s: add to SPLITS"
                     % (name_of(version), ", ".join(map(name_of, seen)), ", ".join(moved)))
        seen.add(version)
    return [(low, high, seen, f) for (low, high), (seen, f) in sorted(groups.items())]


def render(groups):
    out = ["/* SPDX-License-Identifier: Apache-2.0 */",
           "/* Written by gen_offsets.py from the headers of the versions named below: do not edit. A range",
           "   starts at the first final release (pre-releases moved things). x86-64, no Py_TRACE_REFS. */"]
    for low, high, seen, fields in groups:
        out.append("/* %s to %s; headers seen: %s */" % (
            name_of(low), name_of(high) if high & 0xFF00 != 0xFF00 else "the last of 3.%d" % (low >> 16 & 255),
            ", ".join(name_of(v) for v in sorted(seen))))
        out.append("{0x%08x, 0x%08x, {" % (low, high))
        out += ["    .%s = %s," % (k, v if v < 1 << 16 else hex(v)) for k, v in fields.items()]
        out.append("}},")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", metavar="FILE", help="write the table there (default: standard output)")
    parser.add_argument("--check", metavar="FILE", help="fail when FILE does not have the layouts found")
    parser.add_argument("--debug", action="store_true", help="the table of _Py_DebugOffsets instead")
    parser.add_argument("include", nargs="*")
    args = parser.parse_args()
    includes = args.include or found()
    if args.debug:
        includes = [i for i in includes if minor_of(i) >= 13]
    groups = group([layout(i, DEBUG_PROGRAM if args.debug else None) for i in includes])
    if not groups:
        sys.exit("gen_offsets: no Python headers found: name a directory that holds Python.h")
    if args.check:
        with open(args.check) as f:
            have = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
        for low, high, seen, fields in groups:
            one = re.sub(r"/\*.*?\*/", "", render([(low, high, seen, fields)]), flags=re.S).strip()
            if one not in have:
                sys.exit("gen_offsets: %s does not have the layout of %s" % (
                    args.check, ", ".join(map(name_of, seen))))
        print("gen_offsets: %d layouts agree" % len(groups))
        return
    text = render(groups)
    if args.o:
        with open(args.o, "w") as f:
            f.write(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
