# SPDX-License-Identifier: Apache-2.0
"""The package behind probing.py: library.py (ctypes), attach.py (quick attach), commands.py."""


def load():
    """Registers the commands, once, and prepares a quick attach when the command line asks for one."""
    from . import attach, commands, evaluate

    commands.register()
    evaluate.watch()
    attach.prepare()
