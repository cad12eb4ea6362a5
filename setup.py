# SPDX-License-Identifier: Apache-2.0
"""pip install . - all that make install puts in place, into the environment that pip installs to: the package probing with the
agent that it loads, probing.pth for PROBING=1, and in bin/, lib/, share/ the tools, their parts, man pages and the GDB plugin.

Needs what make needs (make deps). PROBING_WHEEL=package: the package and the agent alone, which need libzstd's headers only.
"""
import os
import re
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join("agent", "python_api")


def version():
    with open(os.path.join(HERE, "Makefile")) as f:
        return re.search(r"^VERSION := (\S+)", f.read(), re.M).group(1)


# What is a link to bin/probing elsewhere: a wheel holds no links, and four copies would be 10 MB.
COMMAND = """#!/bin/sh
exec "$(dirname -- "$(readlink -f -- "$0")")/probing" %s "$@"
"""


def make(out, *targets):
    done = subprocess.call(["make", "-s", "-C", HERE, "O=" + out, "-j%d" % (os.cpu_count() or 1)] + list(targets))
    if done:
        raise SystemExit("Probing could not be built: what is missing installs `make deps` (PROBING_WHEEL=package pip install . "
                         "needs less, and gives the Python package without the tools)")


def installed(out):
    """(directory, [file]) for all that make install puts under PREFIX; the commands are scripts."""
    found = {"bin": [os.path.join(out, "bin", "probing")]}
    for name in sorted(os.listdir(os.path.join(out, "bin"))):
        if name != "probing":
            script = os.path.join(out, "wheel", name)
            os.makedirs(os.path.dirname(script), exist_ok=True)
            with open(script, "w") as f:
                f.write(COMMAND % name[len("probing-"):])
            os.chmod(script, 0o755)
            found["bin"].append(script)
    for top in ("lib", "share"):
        for directory, _, names in os.walk(os.path.join(out, top)):
            if names and "__pycache__" not in directory:
                found[os.path.relpath(directory, out)] = [os.path.join(directory, n) for n in sorted(names)]
    return sorted(found.items())


class Build(build_py):
    """The files that make makes, instead of those of the tree: they have the version filled in."""

    def run(self):
        out = os.path.abspath(os.path.join(self.build_lib, os.pardir, "probing-make"))
        package = os.path.join(out, "share", "probing", "python", "probing")
        sources = sorted(n for n in os.listdir(os.path.join(HERE, PACKAGE, "probing")) if n.endswith(".py"))
        lib = os.path.join(out, "lib", "probing")
        agent, read = os.path.join(lib, "libprobing-agent.so"), os.path.join(lib, "libprobing-read.so")
        pth = os.path.join(os.path.dirname(package), "probing.pth")
        if os.environ.get("PROBING_WHEEL") == "package":
            make(out, agent, pth, *[os.path.join(package, n) for n in sources])
        else:
            make(out, "all")
            self.distribution.data_files = installed(out)
        to = os.path.join(self.build_lib, "probing")
        os.makedirs(os.path.join(to, "lib"), exist_ok=True)
        for name in sources:
            shutil.copy(os.path.join(package, name), to)
        for library in (agent, read):  # PROBING_WHEEL=package has no reader
            if os.path.exists(library):
                shutil.copy(library, os.path.join(to, "lib"))
        shutil.copy(pth, self.build_lib)

    def get_outputs(self, include_bytecode=1):
        return [os.path.join(d, n) for d, _, names in os.walk(self.build_lib) for n in names]


class WithBinary(Distribution):
    """The wheel is for this platform, for any Python 3."""

    def has_ext_modules(self):
        return True


try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    try:
        from wheel.bdist_wheel import bdist_wheel
    except ImportError:
        bdist_wheel = None

commands = {"build_py": Build}
if bdist_wheel:
    class AnyPython(bdist_wheel):
        def get_tag(self):
            return ("py3", "none", bdist_wheel.get_tag(self)[2])
    commands["bdist_wheel"] = AnyPython

setup(name="probing", version=version(), description="A black box for AI training", license="Apache-2.0",
      python_requires=">=3.6", extras_require={"parquet": ["pyarrow>=15"], "remote": ["fsspec>=2023.1", "aiohttp"],
                                                "spark": ["pyspark>=4", "pyarrow>=15"]}, packages=["probing"], package_dir={"": PACKAGE}, zip_safe=False,
      cmdclass=commands, distclass=WithBinary)
