# SPDX-License-Identifier: Apache-2.0
"""GPU metrics. Without a GPU these tests use a fake library (tests/programs/fake_nvml.c) on the way from NVML's functions to the database, and
check what is said if there is no NVML. They do not run the real NVML."""
import os
import re
import shutil
import subprocess

import pytest
from agent_helpers import agent
from ask_helpers import ask
from record_until import record_until

FIXTURES = (agent, record_until)  # tests ask for them by name

PROGRAM = """
import ctypes, os, sys, time
before = sorted(os.listdir("/proc/self/fd"))
cuda = ctypes.CDLL(sys.argv[1])       # what a program does that uses a GPU
while not os.path.exists(sys.argv[-1]):
    time.sleep(0.05)
print(len(os.listdir("/proc/self/fd")) - len(before))
"""


@pytest.fixture
def fake(build, tmp_path):
    """Returns a directory with our fake libnvidia-ml.so.1 and libcuda.so.1."""
    lib = tmp_path / "lib"
    lib.mkdir()
    for name in ("libnvidia-ml.so.1", "libcuda.so.1"):
        shutil.copy(str(build.root / "tests/programs/fake_nvml"), str(lib / name))
    return lib


def after_note(sql):
    """Waits for the note, and then for rounds of metrics in which it could come again."""
    return lambda db: sql(db, "SELECT count(*) > 4 FROM memory WHERE timestamp > (SELECT min(timestamp) FROM notes WHERE part = 'gpu')") == [(1,)]


def test_numbers_of_a_made_up_nvml(fake, record_until, convert, sql):
    done = record_until(lambda db: sql(db, "SELECT (SELECT count(*) FROM gpu_metrics) >= 4 AND (SELECT count(gpu_mb) FROM memory)") == [(1,)],
                        PROGRAM, str(fake / "libcuda.so.1"), options=["--metrics", "0.2"], env=dict(os.environ, LD_LIBRARY_PATH=str(fake)))
    assert done.stdout == "1\n"  # as NVML itself says
    db = convert(done.trace)
    rows = sql(db, "SELECT DISTINCT device, gpu_util, memory_util, memory_used_mb, memory_total_mb, power_w, temperature,"
                   " sm_clock_mhz, process_memory_mb, name, uuid FROM gpu_metrics ORDER BY device")
    total = (80 << 30) / 1e6
    assert rows == [(i, 70 + i, 30 + i, ((10 + i) << 30) / 1e6, total, 312.5 + i / 1e3, 55 + i, 1980 + i,
                     ((3 + i) << 30) / 1e6, "Made-up GPU", "GPU-fake-%d" % i) for i in range(2)]
    assert ((7 << 30) / 1e6,) in sql(db, "SELECT DISTINCT gpu_mb FROM memory")


IDLES = """
import ctypes, sys, time
ctypes.CDLL(sys.argv[1])
def gpu_is(busy):
    with open(sys.argv[2], "w") as f: f.write(str(busy))
def wait_for_batch():
    time.sleep(1.5)
def compute():
    end = time.time() + 1.5
    while time.time() < end: pass
while "libnvidia-ml" not in open("/proc/self/maps").read(): time.sleep(0.01)
for _ in range(2):
    gpu_is(0)
    wait_for_batch()
    gpu_is(95)
    compute()
"""


def test_why_a_gpu_is_idle(fake, build, run, record):
    """While its GPU is idle, the program waits for its data; while it is not, it computes. The other GPU is never idle."""
    util = fake / "util"
    util.write_text("95")
    done = record(IDLES, str(fake / "libcuda.so.1"), str(util), options=["--metrics", "0.2", "-r", "50"], env=dict(os.environ, LD_LIBRARY_PATH=str(fake), FAKE_NVML_UTIL=str(util)))
    answer, tables = ask(build, run, "gpu", done.trace)
    line = IDLES.split("\n").index("    time.sleep(1.5)") + 1
    said = re.fullmatch(r"the GPUs were busy [0-9.]+ % of the time; device 0 of process \d+ least, [0-9.]+ %; it was idle for ([0-9.]+) s, in which the main thread was in "
                        r"wait_for_batch \(\w+\.py:" + str(line) + r"\), (\d+) %", answer)
    assert said and float(said.group(1)) > 1.5 and int(said.group(2)) > 60, answer  # a reading after a change is of the time before it, too
    assert [(r["device"], r["idle_seconds"] is not None) for r in tables[0]] == [(0, True), (1, False)]
    assert tables[-1][0]["line"].startswith("wait_for_batch (")


SHARED = """
import ctypes, os, sys, time
ctypes.CDLL(sys.argv[1])
while sys.argv[2] == "we-first" and "libnvidia-ml" not in open("/proc/self/maps").read():
    time.sleep(0.01)
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device, memory, found = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)(), set()
found.add(nvml.nvmlInit_v2())
found.add(nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)))
while not os.path.exists(sys.argv[-1]):
    found.add(nvml.nvmlDeviceGetMemoryInfo(device, memory))
    time.sleep(0.05)
print(found)
"""


@pytest.mark.parametrize("who", ["program-first", "we-first"])
def test_the_program_uses_nvml_too(fake, record_until, convert, sql, who):
    """pynvml, PyTorch: a process has one NVML, and whoever comes second uses what the first has initialised."""
    many = "SELECT min(memory_used_mb), count(*) > 4 FROM gpu_metrics WHERE device = 0"
    done = record_until(lambda db: sql(db, many)[0][1], SHARED, str(fake / "libcuda.so.1"), who, options=["--metrics", "0.2"],
                        env=dict(os.environ, LD_LIBRARY_PATH=str(fake)))
    assert done.stdout == "{0}\n"
    assert sql(convert(done.trace), many) == [((10 << 30) / 1e6, 1)]


def test_absent_is_noted_once(fake, record_until, convert, sql):
    (fake / "libnvidia-ml.so.1").unlink()
    enough = after_note(sql)
    done = record_until(lambda db: enough(db) or sql(db, "SELECT count(*) FROM gpu_metrics")[0][0], PROGRAM, str(fake / "libcuda.so.1"),
                        options=["--metrics", "0.2"], env=dict(os.environ, LD_LIBRARY_PATH=str(fake)))
    db = convert(done.trace)
    if sql(db, "SELECT count(*) FROM gpu_metrics")[0][0]:
        pytest.skip("this machine has a GPU")
    assert len(sql(db, "SELECT 1 FROM notes WHERE part = 'gpu'")) == 1


def test_refusal_is_noted_once(fake, record_until, convert, sql):
    done = record_until(after_note(sql), PROGRAM, str(fake / "libcuda.so.1"), options=["--metrics", "0.2"],
                        env=dict(os.environ, LD_LIBRARY_PATH=str(fake), FAKE_NVML_ERROR="1"))
    assert sql(convert(done.trace), "SELECT text FROM notes WHERE part = 'gpu'") == [("no GPU metrics: NVML says error 9",)]


def test_nothing_is_loaded_without_need(fake, record_until, convert, sql):
    """NVML is not loaded into a program that has nothing to do with GPUs."""
    done = record_until(lambda db: sql(db, "SELECT count(*) > 4 FROM memory") == [(1,)], "import os, sys, time\n"
                        "while not os.path.exists(sys.argv[-1]): time.sleep(0.05)\nprint('libnvidia' in open('/proc/self/maps').read())\n",
                        options=["--metrics", "0.2"], env=dict(os.environ, LD_LIBRARY_PATH=str(fake)))
    assert done.stdout == "False\n"
    assert sql(convert(done.trace), "SELECT (SELECT count(*) FROM gpu_metrics), (SELECT count(*) FROM notes WHERE part = 'gpu')") == [(0, 0)]


@pytest.mark.limit(60)
def test_its_thread_goes_with_the_recording(fake, agent, spawn, run, build, pythons):
    """A process whose main thread has ended by pthread_exit() ends when its last thread does, also after the recording has ended."""
    script = agent.script("""
import ctypes, os, sys, threading, time
ctypes.CDLL(sys.argv[1])
def worker():
    print("ready", flush=True)
    while not os.path.exists(sys.argv[2]): time.sleep(0.01)
threading.Thread(target=worker).start()
ctypes.CDLL(None).pthread_exit(None)
""")
    program = spawn([pythons[0].path, str(script), str(fake / "libcuda.so.1"), str(agent.tmp / "stopped")], ready="ready",
                    env=agent.env(LD_LIBRARY_PATH=str(fake), PROBING_METRICS=".1"))
    agent.wait_for(agent.trace, "gpu", 1)
    run([build.tool("probing"), "-t", str(program.pid), "stop"])
    (agent.tmp / "stopped").touch()
    assert program.wait(240) == 0


FORKS = """
import ctypes, os, sys, time
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
child = os.fork()
if not child: ctypes.CDLL(sys.argv[1])
while not os.path.exists(sys.argv[3]): time.sleep(0.01)
if child: os.waitpid(child, 0)
"""


@pytest.mark.limit(60)
def test_a_child_that_uses_a_gpu(fake, agent, spawn, pythons):
    """As a server's workers, whose parent has nothing to do with GPUs. Metrics of the parent were due before the fork."""
    fork, end = agent.tmp / "fork", agent.tmp / "end"
    program = spawn([pythons[0].path, agent.script(FORKS), str(fake / "libcuda.so.1"), str(fork), str(end)],
                    env=agent.env(LD_LIBRARY_PATH=str(fake), PROBING_METRICS=".1"), stderr=subprocess.PIPE, universal_newlines=True)
    agent.wait_for(agent.trace, "memory", 2, program)
    fork.touch()
    agent.wait_for(agent.tmp / "*.zst.d" / "*.zst", "gpu", 1, program)
    end.touch()
    assert program.wait(240) == 0
