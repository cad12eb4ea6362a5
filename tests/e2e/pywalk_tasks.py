# SPDX-License-Identifier: Apache-2.0
"""The target of test_pywalk_tasks.py: asyncio tasks that wait for each other in every possible way.

Prints one JSON object: {name: {"stack": [[function, line], ...] innermost first, "awaiters": [names]}}. The stack is CPython's own account of
the suspended coroutines; the awaiters are known by construction. Then it stays in its event loop.
"""
import asyncio
import gc
import json
import time

AWAITERS = {}
TASKS = []  # keeps the tasks alive: an event loop itself holds no reference to a task that waits


async def leaf():
    await asyncio.Event().wait()


async def deep(n):
    if n:
        await deep(n - 1)
    else:
        await leaf()


def task(coroutine, name, *awaiters):
    AWAITERS[name] = sorted(awaiters)
    TASKS.append(asyncio.create_task(coroutine, name=name))
    return TASKS[-1]


async def awaits_task():
    await task(leaf(), "child", "awaits_task")


async def awaits_gather():
    await asyncio.gather(task(leaf(), "gathered 1", "awaits_gather"), task(deep(20), "gathered 2", "awaits_gather"))


async def awaits_wait():
    await asyncio.wait([task(leaf(), "waited 1", "awaits_wait"), task(leaf(), "waited 2", "awaits_wait")])


async def awaits_wait_for():
    await asyncio.wait_for(task(leaf(), "waited for", "awaits_wait_for"), 1000)


async def awaits_shield():
    await asyncio.shield(task(leaf(), "shielded", "awaits_shield"))


async def awaits_group():
    async with asyncio.TaskGroup() as group:
        for i in 1, 2:
            AWAITERS["grouped %d" % i] = ["awaits_group"]
            TASKS.append(group.create_task(leaf(), name="grouped %d" % i))


async def numbers():
    misleading = leaf()  # lies where the top of the stack would be, if the generator had a stack
    misleading.close()
    yield 1
    await leaf()
    yield 2


async def iterates():
    async for _ in numbers():
        pass


class Context:
    async def __aenter__(self):
        await leaf()

    async def __aexit__(self, *_):
        pass


async def enters():
    async with Context():
        pass


async def locked(lock):
    async with lock:
        pass


async def two_wait_for_one():
    one = task(leaf(), "shared", "first", "second")

    async def waits():
        await one
    task(waits(), "first")
    task(waits(), "second")


async def spin():
    print(json.dumps(truth), flush=True)
    while True:
        end = time.time() + 0.05
        while time.time() < end:
            pass
        await asyncio.sleep(0)


class OwnTask(asyncio.Task):
    pass


truth = {}


def coroutine_stack(coroutine):
    """Returns the stack of suspended coroutines, found by the attributes that Python shows, and through an asend() by its generator."""
    stack = []
    while coroutine is not None:
        for kind in "cr", "gi", "ag":
            frame = getattr(coroutine, kind + "_frame", None)
            if frame is not None:
                code = frame.f_code
                stack.insert(0, [code.co_qualname, frame.f_lineno])
                coroutine = getattr(coroutine, kind + "_await" if kind != "gi" else "gi_yieldfrom")
                break
        else:
            inner = [x for x in gc.get_referents(coroutine) if hasattr(x, "ag_frame")]
            coroutine = inner[0] if inner else None
    return stack


async def main():
    lock = asyncio.Lock()
    await lock.acquire()
    for name in "task", "gather", "wait", "wait_for", "shield", "group":
        task(globals()["awaits_" + name](), "awaits_" + name)
    task(iterates(), "iterates")
    task(enters(), "enters")
    task(locked(lock), "locked")
    task(deep(200), "deep")
    AWAITERS["own"] = []
    own = OwnTask(leaf(), loop=asyncio.get_running_loop(), name="own")
    AWAITERS["python"] = []
    python = asyncio.tasks._PyTask(deep(3), loop=asyncio.get_running_loop(), name="python")
    AWAITERS["caf\xe9 \u4efb\u52a1"] = []
    unicode = asyncio.create_task(leaf(), name="caf\xe9 \u4efb\u52a1")
    await two_wait_for_one()
    await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() <= {*TASKS, own, python, unicode, asyncio.current_task()}
    for one in [*TASKS, own, python, unicode]:
        if one is not asyncio.current_task():
            truth[one.get_name()] = {"stack": coroutine_stack(one.get_coro()), "awaiters": AWAITERS[one.get_name()]}
    finished = task(asyncio.sleep(0), "finished")
    await finished
    spinner = asyncio.create_task(spin(), name="spinner")
    await asyncio.Event().wait()
    return own, python, unicode, finished, spinner


asyncio.run(main())
