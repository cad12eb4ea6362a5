#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes task_table.inc: what tasks.c must know of generators, weak references and threads to follow asyncio's tasks, from
each version's own headers (3.11 and later). Used as gen_offsets.py is, and does its work.
"""
import gen_offsets

PROGRAM = r"""
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#if PY_VERSION_HEX >= 0x030d0000
#include <internal/pycore_weakref.h>
#include <internal/pycore_tstate.h>
#endif
#if PY_VERSION_HEX >= 0x030e0000
#include <internal/pycore_interpframe_structs.h>
#include <internal/pycore_genobject.h>
#endif

#define OFF(name, type, field) printf(#name " %zu\n", offsetof(type, field))
#define VAL(name, value) printf(#name " %lld\n", (long long)(value))

int main(void) {
    printf("version %u\n", PY_VERSION_HEX);
#if PY_VERSION_HEX >= 0x030c0000
    OFF(modules, PyInterpreterState, imports.modules);
#else
    OFF(modules, PyInterpreterState, modules);
#endif
    OFF(weakref_object, PyWeakReference, wr_object);
    OFF(closure, PyFunctionObject, func_closure);
    OFF(gen_frame, PyGenObject, gi_iframe);
    OFF(gen_state, PyGenObject, gi_frame_state);
    VAL(state_created, FRAME_CREATED);
    VAL(state_executing, FRAME_EXECUTING);
    VAL(state_cleared, FRAME_CLEARED);
#if PY_VERSION_HEX >= 0x030d0000
    VAL(state_awaits, FRAME_SUSPENDED_YIELD_FROM);
#endif
#if PY_VERSION_HEX >= 0x030e0000
    OFF(stack_pointer, _PyInterpreterFrame, stackpointer);
    OFF(thread_tasks, _PyThreadStateImpl, asyncio_tasks_head);
#else
    OFF(stack_top, _PyInterpreterFrame, stacktop);
#endif
    return 0;
}
"""

if __name__ == "__main__":
    gen_offsets.PROGRAM = PROGRAM
    gen_offsets.__doc__ = __doc__
    gen_offsets.MINORS = (11, gen_offsets.MINORS[1])
    gen_offsets.main()
