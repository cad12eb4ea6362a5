# SPDX-License-Identifier: Apache-2.0
"""Helpers of the GDB tests: they run GDB with the plugin loaded as GDB's system gdbinit directory would load it."""
import functools
import shutil
import subprocess

import pytest

GDB = shutil.which("gdb")
needs_gdb = pytest.mark.skipif(GDB is None, reason="no gdb")


@functools.lru_cache(maxsize=None)
def why_no_calls():
    """Returns the line that GDB prints when it cannot call functions of a process, as GDB 13 on processors with AMX; else None."""
    done = subprocess.run([GDB, "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set breakpoint pending on", "-ex", "break clock_nanosleep",
                           "-ex", "run", "-ex", "call (int)getpid()", "-ex", "kill", "--args", "sleep", "5"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, universal_newlines=True, timeout=120, check=False)
    return next((line for line in done.stdout.split("\n") if "extended state" in line), None)


def gdb_command(build, pid, *commands, batch=True, plugin=True):
    """Returns the command line. -ix runs the plugin before the attach, as the system gdbinit does."""
    cmd = [GDB, "-nx", "-q"] + (["-batch"] if batch else [])
    if plugin:
        cmd += ["-ix", build.share / "gdb" / "probing.py"]
    if pid:
        cmd += ["-p", pid]
    for command in commands:
        cmd += ["-ex", command]
    return cmd
