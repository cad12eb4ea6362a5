#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes numpy_table.inc: where numpy keeps an array's data, shape and type, taken from its own headers.

usage: gen_numpy.py [-o FILE] [--check FILE] [-I PYTHON_INCLUDE] NUMPY_INCLUDE_DIR ...

A NUMPY_INCLUDE_DIR is what numpy.get_include() says: one of numpy 1 and one of numpy 2. Arrays are the same in both, by
numpy's promise to extensions; types are not. object_array.c tells them apart by what they hold.
"""

import argparse
import subprocess
import sys
import sysconfig
import tempfile

PROGRAM = r"""
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#include <Python.h>
#include <numpy/ndarraytypes.h>
#include <numpy/arrayscalars.h>
#include <stddef.h>
#include <stdio.h>
#if NPY_ABI_VERSION >= 0x02000000
#define DESCR _PyArray_DescrNumPy2
#define LEGACY _PyArray_LegacyDescr
#else
#define DESCR PyArray_Descr
#define LEGACY PyArray_Descr
#endif
#define OFF(name, type, field) printf(#name " %zu\n", offsetof(type, field))
#define VAL(name, value) printf(#name " %lld\n", (long long)(value))
int main(void) {
    DESCR *d = NULL;
    VAL(major, NPY_ABI_VERSION >> 24);
    OFF(array_data, PyArrayObject_fields, data);
    OFF(array_ndim, PyArrayObject_fields, nd);
    OFF(array_shape, PyArrayObject_fields, dimensions);
    OFF(array_strides, PyArrayObject_fields, strides);
    OFF(array_descr, PyArrayObject_fields, descr);
    OFF(scalar_value, PyDoubleScalarObject, obval);
    OFF(descr_kind, DESCR, kind);
    OFF(descr_order, DESCR, byteorder);
    OFF(descr_elsize, DESCR, elsize);
    OFF(descr_alignment, DESCR, alignment);
    VAL(descr_width, sizeof d->elsize);
    OFF(descr_subarray, LEGACY, subarray);
    OFF(subarray_base, PyArray_ArrayDescr, base);
    OFF(subarray_shape, PyArray_ArrayDescr, shape);
    OFF(descr_fields, LEGACY, fields);
    OFF(descr_names, LEGACY, names);
    OFF(descr_metadata, LEGACY, c_metadata);
    OFF(metadata_unit, PyArray_DatetimeDTypeMetaData, meta);
    OFF(scalar_unit, PyDatetimeScalarObject, obmeta);
    OFF(void_value, PyVoidScalarObject, obval);
    OFF(void_descr, PyVoidScalarObject, descr);
    return 0;
}
"""


def layout(include, python):
    with tempfile.TemporaryDirectory() as tmp:
        with open(tmp + "/n.c", "w") as f:
            f.write(PROGRAM)
        subprocess.run(["cc", "-w", "-I" + include, "-I" + python, tmp + "/n.c", "-o", tmp + "/n", "-no-pie",
                        "-Wl,--unresolved-symbols=ignore-all"], check=True)
        text = subprocess.run([tmp + "/n"], check=True, stdout=subprocess.PIPE).stdout.decode()
    return {k: int(v) for k, v in (line.split() for line in text.splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", metavar="FILE")
    parser.add_argument("--check", metavar="FILE", help="fail when a layout found is not in FILE")
    parser.add_argument("-I", metavar="DIR", default=sysconfig.get_paths()["include"])
    parser.add_argument("include", nargs="+")
    args = parser.parse_args()
    parts = []
    for fields in sorted((layout(i, args.I) for i in args.include), key=lambda f: f["major"]):
        parts.append("\n".join(["{"] + ["    .%s = %s," % pair for pair in fields.items()] + ["},"]))
    text = "\n".join(["/* SPDX-License-Identifier: Apache-2.0 */",
                      "/* Written by gen_numpy.py from numpy's headers: do not edit. x86-64. */"] + parts) + "\n"
    if args.check:
        with open(args.check) as f:
            have = f.read()
        if not all(part in have for part in parts):
            sys.exit("gen_numpy: %s does not have these layouts" % args.check)
        print("gen_numpy: %d layouts agree" % len(parts))
    elif args.o:
        with open(args.o, "w") as f:
            f.write(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
