# SPDX-License-Identifier: Apache-2.0
"""asyncio's tasks read from raw memory: which there are, where they wait, and who awaits whom, compared with what Python itself says."""
import json
import pathlib
import subprocess

import pytest

TASKS = pathlib.Path(__file__).with_name("pywalk_tasks.py")
CREATED, WAITING, READY, RUNNING = range(4)


def dump(build, pid, *options):
    done = subprocess.run([str(build.root / "tests/programs/pywalk_dump"), str(pid), "--tasks", *options],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240)
    if done.returncode != 0:
        return done.stderr.decode()
    return json.loads(done.stdout.decode())


@pytest.mark.pythons(every=True, min=(3, 11), debug=None)
def test_tasks(build, spawn, python):
    line = []
    process = spawn([python.path, TASKS])
    while not line or line[-1] != b"\n":
        line.append(process.stdout.read(1))
    truth = json.loads(b"".join(line).decode())
    assert len(truth) >= 24
    tasks = dump(build, process.pid)
    names = {t["task"]: t["name"] for t in tasks}
    seen = {t["name"]: t for t in tasks}
    assert len(names) == len(seen) == len(tasks)
    main = [t for t in tasks if t["name"] not in truth and t["name"] != "spinner"]
    assert len(main) == 1 and main[0]["name"].startswith("Task-")
    assert sorted(seen) == sorted([*truth, "spinner", main[0]["name"]])
    for name, expected in truth.items():
        task = seen[name]
        assert [[f["name"], f["line"]] for f in task["frames"]] == expected["stack"], name
        assert sorted(names[a] for a in task["awaiters"]) == expected["awaiters"], name
        assert task["state"] == WAITING, name
    assert [f["name"] for f in main[0]["frames"]] == ["Event.wait", "main"] and main[0]["state"] == WAITING
    states = set()
    for _ in range(6000):
        spinner = {t["name"]: t for t in dump(build, process.pid)}["spinner"]
        assert spinner["frames"][-1]["name"] == "spin"
        states.add(spinner["state"])
        if RUNNING in states:
            break
    assert RUNNING in states and WAITING not in states


@pytest.mark.pythons(min=(3, 11), count=1)
def test_no_tasks(build, spawn, python):
    process = spawn([python.path, "-c", "print('x', flush=True); import time; time.sleep(1000)"], ready="x")
    assert "No such file" in dump(build, process.pid)
    process = spawn([python.path, "-c", "import asyncio, time; print('x', flush=True); time.sleep(1000)"], ready="x")
    assert dump(build, process.pid) == []


MANY = """
import asyncio
async def leaf(): await asyncio.Event().wait()
async def main():
    print("x", flush=True)
    await asyncio.gather(*[leaf() for _ in range(1000)])
asyncio.run(main())
"""


@pytest.mark.pythons(min=(3, 11))
def test_many_tasks(build, spawn, python):
    process = spawn([python.path, "-c", MANY], ready="x")
    for _ in range(2000):
        tasks = dump(build, process.pid)
        if len(tasks) == 1001 and all(t["state"] == WAITING for t in tasks):
            break
    assert len(tasks) == 1001
    roots = [t for t in tasks if not t["awaiters"]]
    assert len(roots) == 1 and all(t["awaiters"] == [roots[0]["task"]] for t in tasks if t is not roots[0])
