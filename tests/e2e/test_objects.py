# SPDX-License-Identifier: Apache-2.0
"""Objects and locals read from raw memory, compared with what the program itself says of them.

Runs for every interpreter at hand. object_dump (tests/programs) prints what pywalk's renderer makes of each address.
"""
import functools
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from conftest import choose_pythons, kill_group

NAMED = os.environ.get("PROBING_PYTHONS", "").split()  # these may be virtual environments
SCENES = pathlib.Path(__file__).with_name("object_scenes.py")


@pytest.fixture
def dump(build):
    def dump(pid, *args, check=0):
        done = subprocess.run([str(build.root / "tests/programs/object_dump"), str(pid), *map(str, args)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240)
        assert done.returncode == check, done.stderr
        return done.stdout.decode()  # strict decoding: it must be UTF-8
    return dump


@pytest.fixture
def target(request):
    def start(path, *args):
        env = dict(os.environ, PYTHONIOENCODING="utf-8", PYTHONWARNINGS="ignore", OMP_NUM_THREADS="1")
        proc = subprocess.Popen([str(path), *map(str, args)], stdout=subprocess.PIPE, env=env, start_new_session=True)

        def stop():
            kill_group(proc)  # and the processes that it has forked
            proc.stdout.close()
        request.addfinalizer(stop)
        line = proc.stdout.readline()
        assert line, "it ended at once: %s" % proc.wait(240)
        return proc, json.loads(line.decode())
    return start


def agrees(seen, expected):
    if expected.startswith("re:"):
        return re.match(expected[3:], seen) is not None
    return seen == expected


def all_agree(dump, pid, values):
    lines = []
    for i in range(0, len(values), 1000):
        lines += dump(pid, *[a for a, _ in values[i:i + 1000]]).split("\n")[:-1]
    assert len(lines) == len(values)
    wrong = [(seen[:300], text[:300]) for seen, (_, text) in zip(lines, values) if not agrees(seen, text)]
    assert not wrong, "%d of %d wrong: %r" % (len(wrong), len(values), wrong[:10])
    return len(lines)


@pytest.mark.pythons(every=True)
def test_values_and_locals(python, dump, target):
    proc, truth = target(python.path, SCENES)
    assert all_agree(dump, proc.pid, truth["values"]) > 900

    seen = json.loads(dump(proc.pid))
    assert all(f["rc"] == len(f["locals"]) for f in seen)
    by_name = {f["name"].split(".")[-1]: {name: text for name, _, _, text in f["locals"]} for f in seen}
    kinds = {f["name"].split(".")[-1]: {name: flags for name, flags, _, _ in f["locals"]} for f in seen}

    def default(text):  # as object's own repr()
        return re.sub(r"^<(\S+) object at ", r"<\1 at ", text)
    for name, wanted in truth["frames"].items():
        for local, text in wanted.items():
            assert by_name[name].get(local, "missing") == default(text), (name, local)
        if name not in ("<module>", "Body"):
            assert set(by_name[name]) == set(wanted), name
    assert kinds["arguments"] == {"a": 1, "b": 1, "key": 1, "other": 1, "rest": 1, "more": 1, "local": 0, "i": 0}
    assert kinds["cells"]["argument"] == 3 - (python.version < (3, 11))
    assert kinds["inner"] == {"x": 1, "own": 0, "argument": 4, "later": 4, "plain": 4, "shared": 4}
    assert kinds["<module>"]["rng"] == 8 and "json" not in kinds["<module>"] and "Plain" not in kinds["<module>"]


@pytest.mark.slow
@pytest.mark.pythons(debug=True)
def test_debug_builds(python, dump, target):
    proc, truth = target(python.path, SCENES)
    assert all_agree(dump, proc.pid, truth["values"]) > 900


def test_limits(python, dump, target):
    """Whatever the limits are: the text is limited and well-formed, and ends with "..." if something was left out."""
    proc, truth = target(python.path, SCENES)
    addresses = [a for a, _ in truth["values"]][-200:]
    for size in (16, 17, 19, 30, 64, 200):
        for line in dump(proc.pid, "-n", size, *addresses).split("\n"):
            assert len(line.encode()) < size
    whole = dump(proc.pid, *addresses).split("\n")
    for reads in (1, 2, 3, 5, 10, 50):
        lines = dump(proc.pid, "-r", reads, *addresses).split("\n")
        for line, full in zip(lines, whole):
            assert line == full or line.endswith("..."), (reads, line, full)
    for line in dump(proc.pid, "-d", 1, *addresses).split("\n"):
        assert "[[1" not in line
    assert "[0, 1, 2, ... (1000)]" in dump(proc.pid, "-i", 3, *[a for a, _ in truth["values"]][:1500])


@functools.lru_cache()
def array_python(which):
    """Returns the path of a Python with numpy. "first": with torch, too, if an installed one has both; "torch 2": the one that
    torch-venv.sh prints."""
    if which == "torch 2":
        script = pathlib.Path(__file__).resolve().parents[2] / ".ci" / "torch-venv.sh"
        done = subprocess.run([str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=700)
        if done.returncode != 0:
            pytest.skip(done.stderr.decode().strip())
        return done.stdout.decode().strip()
    for p in sorted(choose_pythons(), key=lambda p: not p.torch):
        if subprocess.run([p.path, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode == 0:
            return p.path
    pytest.skip("no Python with numpy at hand")


@pytest.mark.limit(800)
@pytest.mark.parametrize("which", ["first", "torch 2"])
def test_arrays_and_tensors(which, dump, target):
    proc, truth = target(array_python(which), SCENES.with_name("tensor_scenes.py"))
    all_agree(dump, proc.pid, truth["values"])
    assert len(truth["values"]) > (240 if "torch" in truth else 140)

    # A torch whose version is unknown, or whose layout is not that of its version: the output is right or empty.
    opaque = re.compile(r"<[\w.]+ at 0x[0-9a-f]+>$")
    for said, pid in truth.get("others", {}).items():
        tensors = [(a, t) for a, t in truth["values"] if t.startswith("<torch.Tensor")]
        lines = dump(pid, *[a for a, _ in tensors]).split("\n")[:-1]
        assert len(lines) == len(tensors) > 80
        for seen, (_, text) in zip(lines, tensors):
            # nothing could confirm whether it requires a gradient
            assert opaque.match(seen) or (said == "99.7.0" and seen == text.replace(" requires_grad=True", "")), (seen, text)
        assert all(opaque.match(seen) for seen in lines) == (said != "99.7.0")


@functools.lru_cache()
def pandas_python():
    """Returns the first installed Python that has pandas (PROBING_PYTHONS names others)."""
    for path in NAMED + [p.path for p in choose_pythons()]:
        if subprocess.run([path, "-c", "import pandas"], stderr=subprocess.DEVNULL).returncode == 0:
            return path
    pytest.skip("no Python with pandas at hand")


def test_pandas(dump, target, fuzz, tmp_path):
    scene = SCENES.with_name("pandas_scenes.py")
    proc, truth = target(pandas_python(), scene)
    assert all_agree(dump, proc.pid, truth["values"]) > 20
    fuzzed(pandas_python(), dump, target, fuzz, tmp_path, 15, 4, scene)


GARBAGE = """
import ctypes, json, mmap, random, sys, time
random.seed(%d)
real = [id(o) for o in ([1, 2], {1: 2}, "text", 1.5, 2 ** 70, (1,), {1}, b"x", ValueError(1), int, len, print, json)]
space = mmap.mmap(-1, 1 << 16)
base = ctypes.addressof(ctypes.c_char.from_buffer(space))
types = [id(t) for t in (list, dict, str, int, tuple, set, bytes, float, ValueError, type, type(len), bytearray, range,
                         slice, type(json), type(lambda: 0), type(x for x in ""), type(lambda: 0).__call__.__class__)]
for i in range(0, 1 << 16, 8):
    word = random.choice([random.getrandbits(64), random.getrandbits(8), random.choice(types), random.choice(real),
                          base + random.getrandbits(13) * 8, base + random.getrandbits(16), 0, 1, -1])
    space[i:i + 8] = (word & (1 << 64) - 1).to_bytes(8, "little")
addresses = []
for i in range(8, 1 << 15, 16):       # objects that have a type, and whose contents are anything
    space[i:i + 8] = random.choice(types).to_bytes(8, "little")
    addresses.append(hex(base + i - 8))
addresses += [hex(base + random.getrandbits(16)) for _ in range(200)]
addresses += [hex(a) for a in (0, 1, 8, 4096, 2 ** 47 - 8, 2 ** 63, 2 ** 64 - 8, base + (1 << 16) - 8)]
print(json.dumps(addresses), flush=True)
time.sleep(1000)
"""


def test_garbage(python, dump, target):
    proc, addresses = target(python.path, "-c", GARBAGE % 1)
    out = ""
    for i in range(0, len(addresses), 700):
        out += dump(proc.pid, *addresses[i:i + 700])
    lines = out.split("\n")[:-1]
    assert len(lines) == len(addresses)
    assert lines[-8] == "<NULL>"
    assert all(re.match("<(unreadable|corrupt) at ", l) for l in lines[-7:])
    assert sum("corrupt" in l or "unreadable" in l for l in lines) > 100
    assert proc.poll() is None


# ---- damaged memory -----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def fuzz(tmp_path_factory):
    """Builds the fuzzer and the renderer as one program, with sanitizers, whatever the build's own flags are."""
    repo = pathlib.Path(__file__).resolve().parents[2]
    program = tmp_path_factory.mktemp("fuzz") / "fuzz_object"
    sources = [str(repo / "tests/fuzz/fuzz_object.c"), *map(str, (repo / "agent/pywalk").glob("*.c"))]
    subprocess.run(["cc", "-std=gnu11", "-O0", "-g", "-D_GNU_SOURCE", "-I", str(repo), "-fsanitize=address,undefined",
                    "-fno-sanitize-recover=all", "-o", str(program), *sources, "-lpthread", "-lm"], check=True, timeout=300)
    return program


def fuzzed(path, dump, target, fuzz, tmp_path, iterations, seed, scene=SCENES):
    proc, truth = target(path, scene)
    addresses = [a for a, _ in truth["values"]]
    dump(proc.pid, "-n", 4096, "--record", tmp_path / "objects", *addresses[-250:])
    dump(proc.pid, "-n", 4096, "--record", tmp_path / "locals")
    done = subprocess.run([str(fuzz), str(iterations), str(seed), str(tmp_path / "objects"), str(tmp_path / "locals")],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=800)
    print(done.stdout.decode())
    assert done.returncode == 0, done.stderr.decode()


def test_damaged_memory(python, dump, target, fuzz, tmp_path):
    fuzzed(python.path, dump, target, fuzz, tmp_path, 8, 1)


@pytest.mark.slow
def test_damaged_memory_long(python, dump, target, fuzz, tmp_path):
    fuzzed(python.path, dump, target, fuzz, tmp_path, 1500, 2)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["first", "torch 2"])
def test_damaged_tensors(which, dump, target, fuzz, tmp_path):
    fuzzed(array_python(which), dump, target, fuzz, tmp_path, 1500, 3, SCENES.with_name("tensor_scenes.py"))


@pytest.mark.slow
def test_sweep(python, dump, target):
    """Ten times as much garbage, and every object that the collector knows in a program with many modules."""
    for seed in range(10):
        proc, addresses = target(python.path, "-c", GARBAGE % seed)
        for i in range(0, len(addresses), 700):
            dump(proc.pid, *addresses[i:i + 700])
        proc.kill()
    proc, addresses = target(python.path, "-c", EVERYTHING)
    lines = []
    for i in range(0, len(addresses), 1000):
        lines += dump(proc.pid, "-d", 2, *addresses[i:i + 1000]).split("\n")[:-1]
    assert len(lines) == len(addresses) > 5000
    bad = [l for l in lines if "<corrupt" in l or "<unreadable" in l or "<NULL>" in l]
    assert not bad, (len(bad), bad[:10])


EVERYTHING = """
import argparse, asyncio, collections, ctypes, decimal, email.message, gc, json, logging, sqlite3, subprocess, time
import unittest.mock, xml.dom.minidom
document = xml.dom.minidom.parseString("<a b='c'><d/>text</a>")
gc.collect()
gc.disable()
kept = gc.get_objects()
print(json.dumps([hex(id(o)) for o in kept]), flush=True)
time.sleep(1000)
"""


# ---- the tables of layouts ------------------------------------------------------------------------------


def test_object_table():
    """The checked-in table is what the generator makes from the installed headers."""
    room = pathlib.Path(__file__).resolve().parents[2] / "agent" / "pywalk"
    done = subprocess.run([sys.executable, str(room / "gen_objects.py"), "--check", str(room / "object_table.inc")],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240)
    if b"no Python headers" in done.stderr:
        pytest.skip("no Python headers at hand")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("which", ["first", "torch 2"])
def test_numpy_table(which):
    """The same for numpy's table, if numpy and Python's headers are installed."""
    room = pathlib.Path(__file__).resolve().parents[2] / "agent" / "pywalk"
    code = "import numpy, sysconfig; print(numpy.get_include()); print(sysconfig.get_paths()['include'])"
    found = subprocess.run([array_python(which), "-c", code], stdout=subprocess.PIPE, check=True)
    numpy, include = found.stdout.decode().split("\n")[:2]
    if not os.path.exists(os.path.join(include, "Python.h")):
        pytest.skip("no Python headers at hand")
    done = subprocess.run([sys.executable, str(room / "gen_numpy.py"), "--check", str(room / "numpy_table.inc"), "-I", include,
                           numpy], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240)
    assert done.returncode == 0, done.stderr
