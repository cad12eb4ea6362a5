# SPDX-License-Identifier: Apache-2.0
"""What the GDB tests share: running GDB with the plugin as its system gdbinit directory would load it."""
import shutil

import pytest

GDB = shutil.which("gdb")
needs_gdb = pytest.mark.skipif(GDB is None, reason="no gdb")


def gdb_command(build, pid, *commands, batch=True, plugin=True):
    """-ix comes before the attach, as the system gdbinit does."""
    cmd = [GDB, "-nx", "-q"] + (["-batch"] if batch else [])
    if plugin:
        cmd += ["-ix", build.share / "gdb" / "probing.py"]
    if pid:
        cmd += ["-p", pid]
    for command in commands:
        cmd += ["-ex", command]
    return cmd
