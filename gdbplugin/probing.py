# SPDX-License-Identifier: Apache-2.0
"""Probing's GDB commands. GDB sources this file: from its system gdbinit directory, where
`make install` puts a line that does it, or by hand:

    gdb -ix PREFIX/share/probing/gdb/probing.py -p PID

(-ix rather than -x: that is read before the attach, which can then be made a quick one.)

`help probing` lists the commands. In a GDB session that uses none of them nothing is changed or said.
"""


def _load():
    import os
    import sys

    # Not __file__: when another Python script sources this one, that is the other's.
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
