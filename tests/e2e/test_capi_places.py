# SPDX-License-Identifier: Apache-2.0
"""Checks the offsets of CPython's fields that the agent reads by number (agent/python/capi.h) against the headers of every installed Python:
a compiler evaluates static assertions about them."""
import os
import re
import subprocess

import pytest

from conftest import REPO, choose_pythons

HEADERS = "import sysconfig; print(sysconfig.get_paths()['include'])"

PROGRAM = """
#define Py_BUILD_CORE 1
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>
#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000
#include <internal/pycore_frame.h>
#elif PY_VERSION_HEX >= 0x03080000 && PY_VERSION_HEX < 0x03090000
#include <internal/pycore_pystate.h>
#endif
%s;
#define SAME(place, type, field) _Static_assert(place == offsetof(type, field), #type "." #field)
SAME(CAPI_OB_TYPE, PyObject, ob_type);
SAME(CAPI_TP_NAME, PyTypeObject, tp_name);
SAME(CAPI_TP_CALL, PyTypeObject, tp_call);
SAME(CAPI_WR_OBJECT, PyWeakReference, wr_object);
#if PY_VERSION_HEX < 0x030e0000 /* then a tuple's hash lies before its items, and the hooks that have them in a tuple are gone */
SAME(CAPI_OB_ITEM, PyTupleObject, ob_item);
#endif
SAME(CAPI_D_METHOD, PyMethodDescrObject, d_method);
SAME(CAPI_M_ML, PyCFunctionObject, m_ml);
#if PY_VERSION_HEX < 0x03070000
SAME(CAPI_LOCALS_3_6, PyFrameObject, f_localsplus);
#elif PY_VERSION_HEX < 0x030a0000
SAME(CAPI_LOCALS_3_7, PyFrameObject, f_localsplus);
#elif PY_VERSION_HEX < 0x030b0000
SAME(CAPI_LOCALS_3_10, PyFrameObject, f_localsplus);
#elif PY_VERSION_HEX < 0x030c0000
SAME(CAPI_F_FRAME_3_11, struct _frame, f_frame);
SAME(CAPI_LOCALS_3_11, _PyInterpreterFrame, localsplus);
#endif
#if PY_VERSION_HEX >= 0x03080000 && PY_VERSION_HEX < 0x03090000
SAME(CAPI_XID_MUTEX_3_8, _PyRuntimeState, xidregistry.mutex);
#endif
"""


def compiled(places, include):
    # the folder above: where Debian's pyconfig.h finds that of the architecture
    return subprocess.run(["gcc", "-fsyntax-only", "-I", include, "-idirafter", os.path.dirname(include), "-x", "c", "-"], input=PROGRAM % places, text=True,
                          capture_output=True)


def test_places():
    places = re.search(r"enum capi_place \{.*?\}", (REPO / "agent/python/capi.h").read_text(), re.S).group(0)
    seen = set()
    for python in choose_pythons():
        include = subprocess.run([python.path, "-c", HEADERS], capture_output=True, text=True, check=True).stdout.strip()
        if include in seen or not os.path.exists(os.path.join(include, "Python.h")):
            continue
        seen.add(include)
        done = compiled(places, include)
        assert done.returncode == 0, (python.name, done.stderr)
        # Check that the compiler does refuse a number that is off by one word.
        assert compiled(re.sub(r"CAPI_TP_CALL = 128", "CAPI_TP_CALL = 136", places), include).returncode
    if not seen:
        pytest.skip("no Python headers at hand")
