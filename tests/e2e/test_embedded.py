# SPDX-License-Identifier: Apache-2.0
"""A program that embeds Python, ends it and begins it again, as servers do that read their configuration anew. Nothing that the agent kept
of one Python may be used in the next."""
import json
import os
import pathlib
import subprocess

import pytest
from conftest import PYTHONS, each_python

# Makes a new Python for each line of its input, which runs a file, and reports when that is done. Python is linked, or loaded from the
# named library.
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *python = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL); /* NULL: the program and what it is linked with */
    void (*initialize)(void) = dlsym(python, "Py_Initialize");
    int (*finalize)(void) = dlsym(python, "Py_FinalizeEx"), (*run)(FILE *, const char *) = dlsym(python, "PyRun_SimpleFile");
    for (int c, life = 0; (c = getchar()) != EOF;) {
        if (c != '\\n')
            continue;
        FILE *file = fopen(argv[1], "r");
        initialize();
        if (run(file, argv[1]))
            return 1;
        fclose(file);
        if (finalize())
            return 2;
        printf("life %d has ended\\n", ++life);
        fflush(stdout);
    }
    return 0;
}
"""

# life_1(), life_2(), ...: new code objects, which probably get the addresses that the last Python's had.
LIFE = """
import os, sys, time
import probing
counter = os.environ["COUNTER"]
n = os.path.getsize(counter) + 1
open(counter, "a").write("x")
exec('''
def life_%d():
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        for _ in range(3000):  # samples are of this function, and not of what the clock calls
            pass
def train():
    for loss in range(4):
        with probing.span("step of %d"):
            life_%d()
        probing.step()
with probing.span("life %d"):
    train()
''' % ((n,) * 4))
"""

WAITING = """
import sys
print("up", flush=True)
sys.stdin.readline()
"""

SHARED = [p for p in PYTHONS if p.shared and not p.free_threaded and p.version >= (3, 7)]
EACH = pytest.mark.parametrize("interpreter", SHARED, ids=[p.name for p in SHARED])


@pytest.fixture
def embed(run, tmp_path, build):
    def make(python, text, loaded=False):
        home = pathlib.Path(os.path.realpath(python.path)).parent.parent
        library = sorted(home.glob("lib/libpython3.%d*.so.1.0" % python.version[1]))
        if not library:
            pytest.skip("no libpython beside %s" % python.path)
        (tmp_path / "program.c").write_text(PROGRAM)
        (tmp_path / "life.py").write_text(text)
        (tmp_path / "counter").write_text("")
        linked = [] if loaded else ["-Wl,--no-as-needed", library[0], "-Wl,-rpath,%s" % library[0].parent]
        run(["cc", "-o", tmp_path / "program", tmp_path / "program.c"] + linked)
        env = dict(os.environ, PYTHONHOME=str(home), PYTHONPATH=str(build.share / "python"), COUNTER=str(tmp_path / "counter"))
        return [tmp_path / "program", tmp_path / "life.py"] + ([library[0]] if loaded else []), env
    return make


@pytest.mark.parametrize("interpreter", each_python(SHARED))
@pytest.mark.parametrize("loaded", [pytest.param(False, id="linked"), pytest.param(True, id="loaded")])
def test_each_life_is_recorded(embed, run, build, tmp_path, interpreter, loaded):
    """Also if the program loads libpython itself, as uWSGI's plugin in Debian and programs made by PyInstaller do."""
    if loaded and interpreter.version < (3, 8):
        pytest.skip("3.6 and 3.7 are not seen where they are loaded late")
    command, env = embed(interpreter, LIFE, loaded)
    done = run([build.tool("probing-record"), "-q", "-r", "1000Hz", "--exprs", "loss@train", "-o", tmp_path / "t.zst", "--"] + command,
               input="\n" * 3, env=env)
    assert done.stdout.splitlines() == ["life %d has ended" % n for n in (1, 2, 3)], done.stderr

    def rows(query):
        return json.loads(run([build.tool("probing-query"), "--json", tmp_path / "t.zst", query]).stdout)

    steps = rows("SELECT name, count(*) AS n FROM spans GROUP BY name")
    assert {r["name"]: r["n"] for r in steps} == {text % n: many for n in (1, 2, 3) for text, many in (("life %d", 1), ("step of %d", 4))}
    values = rows("SELECT value, count(*) AS n FROM variables GROUP BY value")
    assert {float(r["value"]): r["n"] for r in values} == {0: 3, 1: 3, 2: 3, 3: 3} or interpreter.version >= (3, 12)
    assert len(values) == 4 and all(r["n"] >= 3 for r in values), values  # in 3.12 the last value is also recorded at the return
    seen = rows("SELECT func, s.name, count(*) AS n FROM samples JOIN spans s ON samples.timestamp BETWEEN s.timestamp AND s.timestamp + s.duration "
                "WHERE func LIKE 'life%' AND s.name LIKE 'life%' GROUP BY 1, 2")
    assert {(r["func"], r["name"]) for r in seen} == {("life_%d" % n, "life %d" % n) for n in (1, 2, 3)}, seen


@EACH
def test_evaluations_in_each_life(embed, run, spawn, build, tmp_path, interpreter):
    command, env = embed(interpreter, WAITING)
    process = spawn([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", "--"] + command, stdin=subprocess.PIPE, env=env)
    pid = None
    for life in (1, 2, 3):
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"up\n"
        if not pid:
            with open("/proc/%d/task/%d/children" % (process.pid, process.pid)) as f:
                pid = f.read().split()[0]
        done = run([build.tool("probing"), "-t", pid, "eval", "--timeout", "200", "__import__('threading').main_thread().name"], check=None)
        assert (done.returncode, done.stdout) == (0, "'MainThread'\n"), (life, done.stderr)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"life %d has ended\n" % life
    process.stdin.close()
    assert process.wait(timeout=240) == 0
