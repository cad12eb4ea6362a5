# SPDX-License-Identifier: Apache-2.0
"""For the tests with other people's libraries and engines (test_engines*.py): their Python, a fleet's traces, its database and its Parquet
data set, and SQLite's answers.

The libraries are installed by .ci/engines-venv.sh (it says how), or $PROBING_ENGINES names a Python that has them."""
import functools
import json
import os
import pathlib
import sqlite3
import subprocess

import pytest

from questions import QUESTIONS, near, normal

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
GOLDEN = REPO / "tests" / "golden"


@functools.lru_cache(None)
def venv():
    done = subprocess.run([str(REPO / ".ci" / "engines-venv.sh")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    return done.stdout.strip(), done.stderr.strip()


@functools.lru_cache(None)
def has(module):
    return subprocess.run([venv()[0], "-c", "import " + module], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def need(*modules):
    if not venv()[0]:
        pytest.skip(venv()[1])
    for module in modules:
        if not has(module):
            pytest.skip("no %s in %s" % (module, venv()[0]))
    return venv()[0]


@pytest.fixture
def engine(build, tmp_path):
    """engine(code or [arguments], *modules): runs it with the engines' Python and returns its output. Skips the test if a module is
    missing."""
    def run(what, *modules, check=0, **env):
        python = need(*modules)
        command = [python, "-c", what] if isinstance(what, str) else [python] + [str(a) for a in what]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=1500, cwd=str(tmp_path),
                              env=dict(os.environ, PYTHONPATH=str(build.share / "python"), **env))
        assert check is None or done.returncode == check, done.stderr[-3000:]
        return done if check is None else done.stdout
    return run


@pytest.fixture(scope="session")
def fleet(tmp_path_factory):
    """Four ranks on two machines whose clocks are up to a second apart, with their database: (folders, database)."""
    root = pathlib.Path(os.environ.get("PROBING_BUILD", str(REPO / "build")))
    out = tmp_path_factory.mktemp("fleet")
    subprocess.run(["make", "-s", "-C", str(REPO), "O=" + str(root), str(root / "tests/fleet/probing-fleet")], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([str(root / "tests/fleet/probing-fleet"), "--out", str(out / "fleet"), "--ranks", "4", "--nodes", "2", "--offset", "1", "--minutes", "0.4",
                    "--straggler", "2:30", "--hz", "50"], check=True, stderr=subprocess.DEVNULL)
    nodes = sorted(str(p) for p in (out / "fleet").glob("node*"))
    subprocess.run([str(root / "bin" / "probing"), "convert", "-q"] + nodes + [str(out / "out.db")], check=True)
    return nodes, str(out / "out.db")


@pytest.fixture(scope="session")
def dataset(fleet, tmp_path_factory):
    root = pathlib.Path(os.environ.get("PROBING_BUILD", str(REPO / "build")))
    folder = tmp_path_factory.mktemp("parquet") / "set"
    subprocess.run([str(root / "bin" / "probing"), "export", "-q", "--parquet", str(folder)] + fleet[0], check=True,
                   env=dict(os.environ, PROBING_PYTHON=need("pyarrow")))
    return folder


@pytest.fixture(scope="session")
def answers(fleet):
    connection = sqlite3.connect(fleet[1])
    out = {name: normal(connection.execute(sql).fetchall()) for name, sql in QUESTIONS}
    connection.close()
    assert len(out) == 20 and all(out.values()), [n for n in out if not out[n]]
    return out


def ask(engine, name, modules, dataset, answers):
    got = json.loads(engine([HERE / "ask_engine.py", name, dataset], "pyarrow", *modules).splitlines()[-1])
    wrong = {n: got[n] if isinstance(got[n], str) else near(answers[n], got[n], 1e-3 if n == "collectives" else 0) for n, _ in QUESTIONS}
    assert not any(wrong.values()), {n: w for n, w in wrong.items() if w}
