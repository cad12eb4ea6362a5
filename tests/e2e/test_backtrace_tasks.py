# SPDX-License-Identifier: Apache-2.0
"""`probing backtrace --tasks` shows the tree of which task awaits which."""
import json
import pathlib

import pytest

TASKS = pathlib.Path(__file__).with_name("pywalk_tasks.py")


@pytest.mark.pythons(min=(3, 11))
def test_tree(build, spawn, run, python):
    process = spawn([python.path, TASKS], ready="stack")
    probing = [build.tool("probing"), "-t", str(process.pid), "backtrace", "--python", "--stop", "--tasks"]
    lines = run(probing).stdout.split("\nAsyncio tasks:\n")[1].split("\n")
    tasks = [line.split(",")[0] for line in lines if " task \"" in line or line.startswith("  task")]

    def under(name):
        at = tasks.index('  task "%s"' % name)
        rest = tasks[at + 1:]
        return sorted(t.strip() for t in rest[:next((i for i, t in enumerate(rest) if t.startswith("  task")), len(rest))])
    assert under("awaits_gather") == ['awaits task "gathered 1"', 'awaits task "gathered 2"']
    assert under("awaits_wait") == ['awaits task "waited 1"', 'awaits task "waited 2"']
    assert under("awaits_group") == ['awaits task "grouped 1"', 'awaits task "grouped 2"']
    for one, child in (("task", "child"), ("wait_for", "waited for"), ("shield", "shielded")):
        assert under("awaits_" + one) == ['awaits task "%s"' % child]
    assert under("locked") == under("deep") == under("spinner") == []
    assert sorted(under("first") + under("second")) == ['awaits task "shared"'] * 2
    assert sum("see above" in line for line in lines) == 1

    answer = json.loads(run(probing + ["--json"]).stdout)
    by_id = {t["id"]: t for t in answer["tasks"]}
    child = [t for t in answer["tasks"] if t["name"] == "child"][0]
    assert [by_id[i]["name"] for i in child["awaited_by"]] == ["awaits_task"]
    assert [f["func"] for f in child["frames"]] == ["Event.wait", "leaf"] and child["state"] == "waiting"


CYCLE = """
import asyncio
async def waits(other): await tasks[other]
async def main():
    global tasks
    tasks = [asyncio.create_task(waits(1), name="a"), asyncio.create_task(waits(0), name="b")]
    await asyncio.sleep(0.01)
    print("ready", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.pythons(min=(3, 11), count=1)
def test_deadlock_and_none(build, spawn, run, python):
    process = spawn([python.path, "-c", CYCLE], ready="ready")
    text = run([build.tool("probing"), "-t", str(process.pid), "backtrace", "--tasks", "--stop"]).stdout
    assert text.count('task "a", waiting for a Task') == text.count('task "b", waiting for a Task') == 1
    assert text.count("see above") == 1
    process = spawn([python.path, "-c", "print('ready', flush=True); import time; time.sleep(100)"], ready="ready")
    assert "(none: asyncio is not in use)" in run([build.tool("probing"), "-t", str(process.pid), "backtrace", "--tasks"]).stdout
