# SPDX-License-Identifier: Apache-2.0
"""What the agent records besides stacks (process, settings, metrics, modules), and what it does when it cannot write to the disk."""
import os
import re
import subprocess
import time

import conftest
import pytest
from agent_helpers import agent  # noqa: F401


@pytest.mark.pythons(count=1)
def test_settings(agent, run, python):
    run([python.path, "-c", "0"], env=agent.env(PROBING_SAMPLE_RATE="0.02", PROBING_NATIVE="0", PROBING_METRICS="0.25",
                                                PROBING_SESSION="abc"))
    config = {c["key"]: c["value"] for c in agent.rows(agent.trace, "config")}
    want = {"probing.sample_rate": "0.02", "probing.native": "0", "probing.metrics": "0.25", "probing.session": "abc"}
    assert {key: config[key] for key in want} == want and "probing.max_memory" in config  # all settings are recorded
    # The process may have ended before the sampler found Python; then a note says so.
    assert [n for n in agent.rows(agent.trace, "note") if n["level"] > 0 and n["part"] != "sampler"] == []


@pytest.mark.pythons(count=1)
@pytest.mark.parametrize("name, bad, key, used", [
    ("PROBING_SAMPLE_RATE", "fast", "probing.sample_rate", "0.1"),
    ("PROBING_SAMPLE_RATE", "0.0001", "probing.sample_rate", "0.1"),
    ("PROBING_SAMPLE_RATE", "-1", "probing.sample_rate", "0.1"),
    ("PROBING_NATIVE", "yes", "probing.native", "1"),
    ("PROBING_METRICS", "1e-9", "probing.metrics", "1"),
    ("PROBING_SESSION", "x" * 500, "probing.session", ""),
])
def test_bad_settings(agent, run, python, name, bad, key, used):
    run([python.path, "-c", "0"], env=agent.env(**{name: bad}))
    config = {c["key"]: c["value"] for c in agent.rows(agent.trace, "config")}
    notes = [n["text"] for n in agent.rows(agent.trace, "note") if n["part"] == "config"]
    assert config[key] == used
    assert len(notes) == 1 and notes[0].startswith((name + "=" + bad, name + " is too long"))


@pytest.mark.pythons(count=1)
def test_process_and_metrics(agent, spawn, python):
    script = agent.script("""
import os, resource, time
def until(name):
    while not os.path.exists(name): time.sleep(0.01)
block = bytearray(64 << 20)
for i in range(0, len(block), 4096):
    block[i] = 1
end = time.process_time() + 0.5
while time.process_time() < end:
    pass
until("write")
with open("data", "wb") as f:
    f.write(b"x" * 3000000)
print("written", os.getpid(), os.getppid(), resource.getpagesize(), flush=True)
until("end")
""")
    earliest = time.time_ns()
    started = spawn([python.path, script, "an argument"], cwd=str(agent.tmp), env=agent.env(PROBING_METRICS=0.1))
    before = agent.wait_for(agent.trace, "cpu", 3)
    (agent.tmp / "write").touch()
    pid, ppid, _ = map(int, conftest.wait_for_line(started, "written").split()[1:])
    agent.wait_for(agent.trace, "io", before + 3)
    (agent.tmp / "end").touch()
    assert started.wait(240) == 0
    latest = time.time_ns()
    process = agent.check_whole(agent.trace, "exit")
    assert (process["pid"], process["ppid"], process["uid"]) == (pid, ppid, os.geteuid())
    assert process["exe"] == os.path.realpath(python.path)
    assert re.split("[\0\ufffd]", process["cmdline"])[1:3] == [str(script), "an argument"]
    assert process["cwd"] == str(agent.tmp)
    assert process["boot_id"] == open("/proc/sys/kernel/random/boot_id").read().strip()
    assert 0 < process["eval_start"] < process["eval_end"]

    cpu, memory, io = (agent.rows(agent.trace, r) for r in ("cpu", "memory", "io"))
    assert len(cpu) >= 6 and len(memory) == len(cpu)
    assert cpu[-1]["user_us"] + cpu[-1]["system_us"] >= 500000
    for field in ("user_us", "system_us", "voluntary", "minor_faults", "agent_us"):
        values = [c[field] for c in cpu]
        assert values == sorted(values), field
    assert 0 < cpu[-1]["agent_us"] < cpu[-1]["user_us"] + cpu[-1]["system_us"]
    assert max(m["rss"] for m in memory) > 64 << 20 < max(m["peak"] for m in memory)
    assert all(m["vms"] >= m["rss"] >= m["shared"] for m in memory)
    assert io[-1]["wchar"] - io[0]["wchar"] >= 3000000
    assert {n["interface"] for n in agent.rows(agent.trace, "network")} <= set(os.listdir("/sys/class/net"))

    for clock in agent.rows(agent.trace, "clock"):
        assert 0 <= clock["bracket"] < latest - earliest
        assert earliest <= clock["realtime"] <= latest


def build_id(path):
    text = subprocess.run(["readelf", "-n", path], stdout=subprocess.PIPE, universal_newlines=True).stdout
    return re.search("Build ID: ([0-9a-f]+)", text).group(1)


@pytest.mark.pythons(count=1)
def test_modules(agent, run, spawn, python):
    """Records say what is mapped at the start, what is loaded later, and what is unloaded."""
    library = agent.tmp / "libcomes.so"
    source = agent.tmp / "comes.c"
    source.write_text("int comes(void) { return 1; }\n")
    run(["cc", "-shared", "-fPIC", "-Wl,--build-id=sha1", "-o", library, source])
    script = agent.script("""
import _ctypes, os, sys, time
def until(name):
    while not os.path.exists(name): time.sleep(0.01)
until("open")
handle = _ctypes.dlopen(sys.argv[1], 2)
until("close")
_ctypes.dlclose(handle)
until("end")
""")
    started = spawn([python.path, script, library], cwd=str(agent.tmp), env=agent.env())
    agent.wait_for(agent.trace, "module", 1)
    (agent.tmp / "open").touch()
    while agent.wait_for(agent.trace, "module", 1) and str(library) not in [m["path"] for m in agent.rows(agent.trace, "module")]:
        time.sleep(0.05)
    (agent.tmp / "close").touch()
    agent.wait_for(agent.trace, "module_unload", 1)
    (agent.tmp / "end").touch()
    assert started.wait(240) == 0
    modules = {m["path"]: m for m in agent.rows(agent.trace, "module")}
    started = agent.rows(agent.trace, "process")[0]["ts"]
    exe = os.path.realpath(python.path)
    libc = [p for p in modules if re.search(r"/libc[.-]", p)]
    assert exe in modules and "[vdso]" in modules and len(libc) == 1
    for path in [exe, libc[0], str(library)]:
        m = modules[path]
        assert bytes(m["build_id"]).hex() == build_id(path)
        assert m["start"] < m["end"] and m["ts"] >= started
    assert modules[str(library)]["ts"] > modules[exe]["ts"]
    gone = [m["path"] for u in agent.rows(agent.trace, "module_unload") for m in modules.values()
            if m["id"] == u["module"]]
    assert gone == [str(library)]


@pytest.mark.pythons(count=1)
@pytest.mark.parametrize("setting", [
    {"PROBING_TRACE": "/proc/nowhere/trace.zst"},
    {"PROBING_TRACE": "/proc/"},
    {"PROBING_TRACE": "/" + "x" * 300},
])
def test_unwritable(agent, run, python, setting):
    """If no trace can be made, the program runs as ever, and no thread of the agent remains."""
    done = run([python.path, "-c", "import os, time\nwhile len(os.listdir('/proc/self/task')) > 1: time.sleep(0.01)\nprint(1)"], cwd=agent.tmp,
               env=agent.env(**setting))
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert agent.lives() == []


@pytest.mark.pythons(count=1)
def test_no_room_for_the_live_file(agent, run, python):
    done = run(["/bin/sh", "-c", 'ulimit -f 1000; exec "$0" -c "print(1)"', python.path], env=agent.env())
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert agent.lives() == []


@pytest.mark.pythons(count=1)
def test_disk_full(agent, run, python):
    """The trace's file system fills up: the program goes on, and what was written before can be read."""
    if run(["unshare", "-rm", "/bin/true"], check=None).returncode:
        pytest.skip("no mount namespace to be had")
    script = agent.script("""
import os, random, sys, time
def first_samples(path):  # once it has grown twice there are some in it, however late the disk fills
    sizes = set()
    while len(sizes) < 3:
        sizes.add(os.path.getsize(path) if os.path.exists(path) else 0)
def down(n, end):
    if n:
        return down(n - 1, end) if random.random() < 0.5 else across(n - 1, end)
    while time.time() < end:
        return
def across(n, end):
    return down(n, end) if random.random() < 0.5 else across(n, end)
first_samples(sys.argv[1])
while time.process_time() < 2.5:
    down(60, time.time() + 0.0005)
print("end")
""")
    disk = agent.tmp / "disk"
    disk.mkdir()
    shell = 'mount -t tmpfs -o size=32k none "$0" && "$1" "$2" "$0/trace.zst"; code=$?; cp "$0"/* "$3"/; exit $code'
    done = run(["unshare", "-rm", "/bin/sh", "-c", shell, disk, python.path, script, agent.tmp],
               env=agent.env(PROBING_TRACE=disk / "trace.zst", PROBING_SAMPLE_RATE=0.001))
    assert (done.stdout, done.stderr) == ("end\n", "")
    subprocess.run(["zstd", "-tq", str(agent.trace)], check=True)
    assert os.path.getsize(str(agent.trace)) <= 32768
    assert agent.rows(agent.trace, "process") and agent.rows(agent.trace, "sample")
    assert agent.lives() == []
