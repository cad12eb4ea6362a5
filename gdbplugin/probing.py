# SPDX-License-Identifier: Apache-2.0
"""Probing's GDB commands. GDB sources this file: by a line that `make install` puts into its
system gdbinit directory, or by hand:

    gdb -ix PREFIX/share/probing/gdb/probing.py -p PID

(-ix rather than -x: GDB reads it before it attaches, so the attach can be made a quick one.)

`help probing` lists the commands. A GDB session that uses none of them is not changed, and nothing is printed.
"""


def _load():
    import os
    import sys

    # Not __file__: when another Python script sources this one, __file__ is that other script's.
    here = os.path.dirname(os.path.realpath(sys._getframe().f_code.co_filename))
    if here not in sys.path:
        sys.path.insert(0, here)
    import probing_gdb

    probing_gdb.load()


try:
    _load()
except KeyboardInterrupt:
    # SIGINT or SIGTERM. GDB would go on and attach, and a GDB that ends while it attaches can leave the target stopped.
    with open("/proc/self/cmdline", "rb") as _f:
        if b"\0probing" in _f.read():
            import gdb

            gdb.execute("quit 1")
    raise
del _load
