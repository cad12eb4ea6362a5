# SPDX-License-Identifier: Apache-2.0
"""python -m probing ...: runs the tool `probing` that was installed with this package, also where the PATH does not lead to it (pip install --user)."""
import os
import site
import sys

from probing import _load


def tools():
    """Yields the paths where the tool may be: in the installation that the agent is part of, and where pip puts commands."""
    for agent in _load.places():
        yield os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(agent))), "bin", "probing")
    for prefix in (sys.prefix, site.getuserbase()):
        yield os.path.join(prefix, "bin", "probing")


def main():
    for tool in tools():
        if os.access(tool, os.X_OK):
            os.execv(tool, ["probing"] + sys.argv[1:])
    sys.exit("python -m probing: the tool `probing` is not found (looked for %s): make install, or pip install, puts it in place" % ", ".join(tools()))


main()
