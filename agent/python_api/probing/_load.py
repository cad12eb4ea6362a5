# SPDX-License-Identifier: Apache-2.0
"""Finds libprobing-agent.so and loads it as the extension module _probing. Imports only modules that the interpreter
has loaded at its start, because PROBING=1 uses this before the program's first line."""
import os
import sys

AGENT = "libprobing-agent.so"
DELETED = b" (deleted)"


def mapped():
    """Returns the path of the agent that is in this process already, or None. Its file may have been replaced since: the loader knows it by that path."""
    try:
        with open("/proc/self/maps", "rb") as maps:
            for line in maps:
                path = line[line.find(b"/"):].rstrip()
                path = path[:-len(DELETED)] if path.endswith(DELETED) else path
                if path.endswith(b"/" + AGENT.encode()):
                    return os.fsdecode(path)
    except OSError:
        pass
    return None


def places():
    """Yields the paths where the agent may be: beside this package (pip), where python-install found it, beside `probing` in the PATH."""
    here = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get("PROBING_AGENT"):
        yield os.environ["PROBING_AGENT"]
    yield os.path.join(here, "lib", AGENT)
    try:
        with open(os.path.join(here, "agent.path"), "rb") as f:
            yield os.fsdecode(f.read().strip())
    except OSError:
        pass
    for directory in os.environ.get("PATH", "").split(os.pathsep):
        tool = os.path.join(directory, "probing")
        if directory and os.access(tool, os.X_OK):
            yield os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(tool))), "lib", "probing", AGENT)


def create(path):
    import _imp
    from importlib.machinery import ExtensionFileLoader, ModuleSpec
    if "_probing" in sys.modules:
        return sys.modules["_probing"]
    spec = ModuleSpec("_probing", ExtensionFileLoader("_probing", path), origin=path)
    module = _imp.create_dynamic(spec)
    sys.modules["_probing"] = module
    return module


def loaded():
    """Returns the _probing module of an agent that is in this process already, or None. Never raises."""
    try:
        module = sys.modules.get("_probing")
        if module is None:
            path = mapped()
            module = create(path) if path else None
        return module
    except Exception:
        return None


def load():
    """Returns the _probing module, and loads the agent if it is not in this process. ImportError says where it was looked for."""
    module = loaded()
    if module is not None:
        return module
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ImportError("only CPython with its GIL can be recorded")
    tried = []
    for path in places():
        if os.path.exists(path):
            return create(path)
        tried.append(path)
    raise ImportError("%s is not found (looked for %s): probing python-install, or pip install, puts it in place"
                      % (AGENT, ", ".join(tried)))
