# SPDX-License-Identifier: Apache-2.0
"""The frame walker compared with known stacks: CPython's own account of them, and lines known by construction.

Runs for every installed interpreter. pywalk_dump (tests/programs) stops the target and prints what pywalk sees.
"""
import json
import os
import pathlib
import subprocess
import sys

import pytest

SCENES = pathlib.Path(__file__).with_name("pywalk_scenes.py")


@pytest.fixture
def dump(build):
    def dump(pid, *options, check=0):
        done = subprocess.run([str(build.root / "tests/programs/pywalk_dump"), str(pid), *options],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240)
        assert done.returncode == check, done.stderr
        return json.loads(done.stdout.decode()) if check == 0 else done.stderr.decode()
    return dump


def start(python, *args, **popen):
    """Starts the script, and returns the process and the first line that it prints."""
    popen.setdefault("env", dict(os.environ, PYTHONIOENCODING="utf-8"))
    proc = subprocess.Popen([python.path, *map(str, args)], stdout=subprocess.PIPE, **popen)
    line = proc.stdout.readline()
    assert line, "it ended at once: %s" % proc.wait(240)
    return proc, line


def stop(proc):
    proc.kill()
    proc.stdout.close()
    proc.wait(240)


@pytest.fixture
def target(request):
    def run(*args, **popen):
        proc, line = start(*args, **popen)
        request.addfinalizer(lambda: stop(proc))
        return proc, line
    return run


def as_pywalk_says(text, size):
    """Returns a str as pywalk writes it into a buffer of that size: lone surrogates as ?, and cut between characters."""
    data = "".join("?" if 0xD800 <= ord(c) < 0xE000 else c for c in text).encode()[:size - 1]
    return data.decode(errors="ignore")


def frames_of(thread):
    return [[f["name"], f["file"], f["line"]] for f in thread["frames"]]


@pytest.mark.pythons(every=True, debug=None)
def test_scenes(python, dump, target):
    proc, line = target(python, SCENES)
    truth = json.loads(line.decode())
    for _ in range(20000):  # until it is past its print, which releases the GIL
        seen = dump(proc.pid)
        if any(t["main"] and t["frames"][0]["name"] == "spin" for t in seen["threads"]):
            break
    assert int(seen["version"], 16) >> 8 == python.version[0] << 16 | python.version[1] << 8 | python.version[2]
    assert not seen["more"]
    threads = {t["ident"]: t for t in seen["threads"]}
    assert len(threads) == len(seen["threads"]) == len(truth["scenes"]) + 1

    source = SCENES.read_text(encoding="utf-8").split("\n")
    for name, scene in truth["scenes"].items():
        thread = threads[scene["ident"]]
        expected = [[as_pywalk_says(n, 256), as_pywalk_says(f, 1024), l] for n, f, l in scene["stack"]]
        assert frames_of(thread) == expected, name
        assert thread["tid"] == scene["tid"], name
        assert not thread["gil"] and not thread["main"] and not thread["cut"], name
        assert all(f["identity"] for f in thread["frames"])
        if python.version >= (3, 8) and name not in ("nested", "comprehensions", "event_loop", "no_inner_line"):
            for function, file, number in frames_of(thread):
                if file == str(SCENES):
                    assert "  #@" in source[number - 1], (name, function, number)

    main = threads[truth["main"]["ident"]]
    assert main["tid"] == truth["main"]["tid"] == proc.pid
    assert main["gil"] and main["main"]
    assert [f[0] for f in frames_of(main)] == ["spin", "main", "<module>"]
    assert all(source[f["line"] - 1].endswith("#@") for f in main["frames"])

    # From 3.11 on one native eval loop runs several Python frames: which of them were called from native code.
    def entries(scene):
        return [(f["name"].split(".")[-1], f["entry"]) for f in threads[truth["scenes"][scene]["ident"]]["frames"]]
    if python.version < (3, 11):
        assert all(f["entry"] for t in seen["threads"] for f in t["frames"])
    else:
        assert entries("nested")[:5] == [("block", False), ("three", False), ("two", False), ("one", False),
                                         ("nested", python.version < (3, 12))]
        assert dict(entries("called_from_c"))["key"] and dict(entries("called_from_c"))["<lambda>"]
        assert entries("recursion")[:902] == [("block", False)] + [("deep", False)] * 901
    for thread in seen["threads"]:
        assert thread["frames"][-1]["entry"]

    # Also known by construction: the exact line inside a call that is spread over several lines.
    if python.version >= (3, 8):
        lines = [l for n, f, l in truth["scenes"]["nested"]["stack"] if n.endswith("two")]
        assert [f["line"] for f in threads[truth["scenes"]["nested"]["ident"]]["frames"]
                if f["name"].endswith("two")] == lines


CHURN = """
import threading, time
def leaf(n):
    return n
def items(n):
    for i in range(n):
        yield leaf(i)
def work(n):
    return sum(items(n)) + sorted(range(4), key=leaf)[0] + (work(n - 1) if n else 0)
def short():
    for _ in range(20):
        work(5)
print("ready", flush=True)
while True:
    threads = [threading.Thread(target=short) for _ in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
"""


def test_not_stopped(python, dump, target, build):
    """Reads while threads come and go, without stopping them or looking at their clocks (as the sampler does; GDB stops them). Nearly
    everything that changes is refused, and a stack that is returned begins where a thread begins. A generator that is just being suspended
    sometimes looks like a thread's first frame."""
    proc, _ = target(python, "-c", CHURN)
    program = str(build.root / "tests/programs/pywalk_dump")
    good = refused = wrong = 0
    for _ in range(80):
        done = subprocess.run([program, str(proc.pid), "--no-stop"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert done.returncode in (0, 3), done.stderr
        if done.returncode == 3:
            assert b"Bad message" in done.stderr or b"Bad address" in done.stderr
            refused += 1
            continue
        for thread in json.loads(done.stdout.decode(errors="replace"))["threads"]:
            if thread["rc"] < 0:
                refused += 1
            elif thread["frames"]:
                # a frame's code object may be gone by the time its name is read
                base = thread["frames"][-1].get("name", "<module>").split(".")[-1]
                wrong += base not in ("<module>", "_bootstrap")
                good += 1
    print("%d stacks, %d refused, %d wrong" % (good, refused, wrong))
    # One in five hundred was wrong where this was measured (3.11). At a rate of one in fifty, five of the at least 40 are not yet too many.
    assert good >= 40 and wrong <= 4 + good // 50 and proc.poll() is None


SUB = """
import sys, threading, time
try:
    import _interpreters as sub
except ImportError:
    import _xxsubinterpreters as sub
new = sub.create()
thread = threading.Thread(target=sub.run_string, args=(new, '''
import time
def inside():
    print("ready", flush=True); time.sleep(1000)
inside()
'''), daemon=True)
thread.start()
time.sleep(1000)
"""


@pytest.mark.pythons(every=True, min=(3, 8))
def test_subinterpreter(python, dump, target):
    proc, line = target(python, "-c", SUB)
    assert line == b"ready\n"
    for _ in range(20000):  # until both threads sleep
        seen = dump(proc.pid)
        if not any(t["gil"] for t in seen["threads"]):
            break
    inside = [t for t in seen["threads"] if t["interp"] != 0 and t["frames"]]
    assert [[f[0::2] for f in frames_of(t)[-2:]] for t in inside] == [[["inside", 4], ["<module>", 5]]]
    main = [t for t in seen["threads"] if t["main"]]
    assert len(main) == 1 and main[0]["interp"] == 0 and main[0]["tid"] == proc.pid
    assert frames_of(main[0])[-1][0] == "<module>"
    assert not any(t["gil"] for t in seen["threads"])


TWO_GILS = """
import sys, threading
try:
    import _interpreters as sub
except ImportError:
    import _xxsubinterpreters as sub
new = sub.create()
threading.Thread(target=sub.run_string, args=(new, "def inside():\\n while True: pass\\ninside()"), daemon=True).start()
print("x", flush=True)
def outside():
    while True: pass
outside()
"""


@pytest.mark.pythons(every=True, min=(3, 12))
def test_two_gils(python, dump, target):
    """Interpreters with a GIL each: both threads run, and each holds its own GIL."""
    proc, _ = target(python, "-c", TWO_GILS)
    for _ in range(2000):
        threads = {t["interp"]: t for t in dump(proc.pid)["threads"] if t["gil"] and t["rc"] > 0}
        if len(threads) == 2 and all(t["frames"][0]["name"] in ("inside", "outside") for t in threads.values()):
            break
    assert [f[0] for f in frames_of(threads[0])] == ["outside", "<module>"]
    assert [f[0] for f in frames_of([t for i, t in threads.items() if i != 0][0])][-2:] == ["inside", "<module>"]


STATES = """
import gc, os, sys, time
class Loop:
    def __init__(self): self.me = self
    def __del__(self, write=os.write, now=time.time):
        write(1, b"spins\\n")
        end = now() + 1000
        while now() < end: pass
if sys.argv[1] == "gc":
    Loop()
    gc.collect()
else:
    gc.disable()
    sys.late = Loop()
    sys.late.me = None
"""


@pytest.mark.pythons(every=True, min=(3, 7))
def test_collecting_and_finalising(python, dump, target):
    """A finaliser that spins: once in a garbage collection, and once at the very end of the program."""
    for what, flag in (("gc", 4), ("exit", 8)):
        proc, line = target(python, "-c", STATES, what)
        assert line == b"spins\n"
        for _ in range(20000):
            main = [t for t in dump(proc.pid)["threads"] if t["main"]][0]
            if main["gil"]:
                break
        stop(proc)
        assert main["flags"] & 12 == flag, (what, main["flags"])


def test_no_python(dump, target):
    proc = subprocess.Popen(["sleep", "100"])
    try:
        assert "no Python found: No such file" in dump(proc.pid, check=3)
    finally:
        proc.kill()
        proc.wait(240)
    assert "No such process" in dump(proc.pid, check=3)


STRIPPED = """
import os, time
def inner():
    print("x", flush=True); time.sleep(1000)
def outer():
    inner()
outer()
"""


def test_stripped(python, dump, target, tmp_path):
    """Without a symbol table, with only what dynamic linking needs: libpython (a copy that is found before the installed one), or the
    program."""
    if python.shared:
        code = "import sys; print([l.split()[-1] for l in open('/proc/self/maps') if '/libpython3.' in l][0])"
        library = pathlib.Path(subprocess.check_output([python.path, "-c", code]).decode().strip())
    else:
        library = pathlib.Path(os.path.realpath(python.path))
    copy = tmp_path / library.name

    def symbols(path):
        return b" .symtab" in subprocess.check_output(["readelf", "-SW", str(path)])
    if symbols(library):
        subprocess.run(["strip", "--strip-all", "-o", str(copy), str(library)], check=True, timeout=240)
        assert not symbols(copy)
    else:
        copy = library  # it was already stripped by its maker
    env = dict(os.environ)
    path = python.path
    if python.shared:
        env["LD_PRELOAD"] = str(copy)
    elif copy != library:
        path = str(copy)
        env["PYTHONHOME"] = subprocess.check_output([python.path, "-c", "import sys; print(sys.prefix)"]).decode().strip()
    proc, _ = target(python._replace(path=path), "-c", STRIPPED, env=env)
    for _ in range(20000):
        main = dump(proc.pid)["threads"][0]
        if not main["gil"]:
            break
    assert str(copy) in pathlib.Path("/proc/%d/maps" % proc.pid).read_text()
    assert [[f[0], f[2]] for f in frames_of(main)] == [["inner", 4], ["outer", 6], ["<module>", 7]]
    assert main["main"] and main["tid"] == proc.pid


MOVED = "import os, time; os.unlink(%r); print('x', flush=True); time.sleep(1000)"


@pytest.mark.pythons(shared=False, count=1)
def test_deleted_binary(python, dump, target, tmp_path):
    """A program's file that is replaced while it runs, as by an upgrade: the image in memory is used."""
    copy = tmp_path / "python3"
    copy.write_bytes(pathlib.Path(os.path.realpath(python.path)).read_bytes())
    copy.chmod(0o755)
    proc, _ = target(python._replace(path=str(copy)), "-c", MOVED % str(copy))
    seen = dump(proc.pid)
    assert [f[0] for f in frames_of(seen["threads"][0])] == ["<module>"]


@pytest.mark.skipif(os.geteuid() != 0, reason="starts a process as somebody else")
def test_not_allowed(build, target):
    """User nobody looks at a process of ours: the answer says that it may not be read."""
    proc = subprocess.Popen(["sleep", "100"])
    program = build.root / "tests/programs/pywalk_dump"
    try:
        def drop():
            os.setgid(65534)
            os.setuid(65534)
        with open(program, "rb") as f:
            done = subprocess.run(["/proc/self/fd/%d" % f.fileno(), str(proc.pid)], pass_fds=[f.fileno()],
                                  preexec_fn=drop, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240)
        assert done.returncode == 3 and b"not permitted" in done.stderr, done.stderr
    finally:
        proc.kill()
        proc.wait(240)


# ---- line tables ------------------------------------------------------------------------------------

LINES = r"""
import dis, struct, sys, types
MODULES = ["typing", "ast", "argparse", "asyncio.base_events", "tarfile", "decimal", "inspect",
           "collections", "re", "subprocess", "unittest.mock", "email.message"]
HUGE = "def f(x):\n" + "\n" * 400 + "  y = (x,\n" + "\n" * 300 + "  x(1),\n 3)\n" + "  x = [1, " + "2, " * 900 + \
       "x]\n  for x in y:\n    y = 1\n" + "\n" * 70000 + "  try:\n    x = (y\n +\n x(\ny\n))\n  finally:\n   del x\n"
out = open(sys.argv[1], "wb")


def all_codes(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from all_codes(const)


def truth(code):
    # [(offset, line)] for every code unit, inline caches too, as the interpreter itself answers
    size = len(code.co_code)
    if hasattr(code, "co_lines"):
        for start, end, line in code.co_lines():
            for offset in range(start, min(end, size), 2):
                yield offset, line or 0
    else:
        starts, line = dict(dis.findlinestarts(code)), code.co_firstlineno
        for offset in range(0, size, 2):
            line = starts.get(offset, line)
            yield offset, line


sources = []
for name in MODULES:
    __import__(name)
    path = sys.modules[name].__file__
    with open(path, encoding="utf-8") as f:
        sources.append((f.read(), path))
sources.append((HUGE, "huge"))
for source, path in sources:
    for code in all_codes(compile(source, path, "exec")):
        table = code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab
        pairs = list(truth(code))
        assert len(pairs) == len(code.co_code) // 2
        if hasattr(code, "co_positions"):
            where = [(line or 0, end or 0, -1 if None in (a, b) else a, -1 if None in (a, b) else b)
                     for line, end, a, b in code.co_positions()]
            where = [w if w[0] else (0, 0, -1, -1) for w in where]  # a module's first instruction is at line 0
            assert [w[0] for w in where] == [line for _, line in pairs]
            pairs = [(offset,) + w for (offset, _), w in zip(pairs, where)]
        else:
            pairs = [(offset, line, line, -1, -1) for offset, line in pairs]
        first = code.co_firstlineno if code.co_firstlineno > 0 else 0
        pairs.append((-1, first, first, -1, -1))
        out.write(struct.pack("<IIiI", sys.hexversion, len(table), code.co_firstlineno, len(pairs)))
        out.write(table)
        for pair in pairs:
            out.write(struct.pack("<5i", *pair))
"""


def test_line_tables(python, build, tmp_path):
    """Every instruction of a large part of the standard library has the line that the interpreter gives it, and from 3.11 on the columns."""
    cases = tmp_path / "cases"
    subprocess.run([python.path, "-c", LINES, str(cases)], check=True, timeout=240)
    done = subprocess.run([str(build.root / "tests/programs/pywalk_dump"), "--lines", str(cases)],
                          stdout=subprocess.PIPE, timeout=240)
    print(done.stdout.decode())
    assert done.returncode == 0
    codes, instructions = done.stdout.decode().split("\n")[-2].split()[0:4:3]
    assert int(codes) > 1200 and int(instructions) > 50000


# ---- the table of layouts -----------------------------------------------------------------------------

@pytest.mark.parametrize("generator, table, option", [
    ("gen_offsets.py", "offsets_table.inc", []), ("gen_offsets.py", "debug_table.inc", ["--debug"]),
    ("gen_tasks.py", "task_table.inc", [])])
def test_offsets_table(generator, table, option):
    """The checked-in tables are what the generator makes from the installed headers."""
    room = pathlib.Path(__file__).resolve().parents[2] / "agent" / "pywalk"
    done = subprocess.run([sys.executable, str(room / generator), "--check", str(room / table)] + option,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240)
    if b"no Python headers" in done.stderr:
        pytest.skip("no Python headers at hand")
    assert done.returncode == 0, done.stderr


# ---- damaged memory -----------------------------------------------------------------------------------

@pytest.fixture(scope="session")
def fuzz(tmp_path_factory):
    """Builds the fuzzer and the walker as one program, with sanitizers, whatever the build's own flags are."""
    repo = pathlib.Path(__file__).resolve().parents[2]
    program = tmp_path_factory.mktemp("fuzz") / "fuzz_pywalk"
    sources = [str(repo / "tests/fuzz/fuzz_pywalk.c"), *map(str, (repo / "agent/pywalk").glob("*.c"))]
    subprocess.run(["cc", "-std=gnu11", "-O0", "-g", "-D_GNU_SOURCE", "-I", str(repo), "-fsanitize=address,undefined",
                    "-fno-sanitize-recover=all", "-o", str(program), *sources, "-lpthread"], check=True, timeout=300)
    return program


def fuzzed(python, dump, target, fuzz, tmp_path, iterations, scenes=SCENES):
    proc, _ = target(python, scenes)
    memory = tmp_path / "memory"
    dump(proc.pid, "--record", str(memory))
    done = subprocess.run([str(fuzz), str(iterations), "1", str(memory)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=800)
    print(done.stdout.decode())
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.slow
def test_damaged_memory(python, dump, target, fuzz, tmp_path):
    fuzzed(python, dump, target, fuzz, tmp_path, 1500)


@pytest.mark.slow
@pytest.mark.pythons(min=(3, 12))
def test_damaged_tasks(python, dump, target, fuzz, tmp_path):
    fuzzed(python, dump, target, fuzz, tmp_path, 12000, SCENES.with_name("pywalk_tasks.py"))
