# SPDX-License-Identifier: Apache-2.0
"""The structures of inspect.h, also for a process as GDB sees it: a core or a remote target."""
import ctypes


class Thread(ctypes.Structure):
    _fields_ = [("tid", ctypes.c_int), ("name", ctypes.c_char * 32), ("regs", ctypes.c_uint64 * 27)]


READ = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)


class Given(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_int), ("read", READ), ("maps", ctypes.c_char_p), ("exe", ctypes.c_char_p),
                ("threads", ctypes.POINTER(Thread)), ("n", ctypes.c_uint64)]


class Stacks(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint), ("tid", ctypes.c_int), ("core", ctypes.c_char_p),
                ("sysroot", ctypes.c_char_p), ("exe", ctypes.c_char_p), ("given", ctypes.POINTER(Given)),
                ("stood_ns", ctypes.c_uint64)]


def stacks(flags, tid, given, core, sysroot, exe):
    return Stacks(flags=flags, tid=tid, given=ctypes.pointer(given) if given else None, core=core, sysroot=sysroot, exe=exe)
