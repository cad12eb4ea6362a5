# SPDX-License-Identifier: Apache-2.0
"""Whether a thread is said to run or to sleep, where the sampler cannot look at it as usual."""
import os

import pytest

# A thread is asleep all the time, another one works all the time.
PROGRAM = """
import os, sys, threading, time

def asleep():
    begin = time.monotonic()
    time.sleep(3)
    print(time.monotonic() - begin - 3)  # for how long it was ready to run, or more

def busy():
    end = time.monotonic() + 2
    while time.monotonic() < end:
        sum(range(1000))

if sys.argv[1] == "setuid":
    os.setgid(65534)
    os.setuid(65534)
if sys.argv[1] == "chroot":
    os.chroot(sys.argv[2])
    os.chdir("/")
for f in (asleep, busy):
    threading.Thread(target=f).start()
"""


def ticks(sql, db, func):
    got = dict(sql(db, "SELECT state, sum(count) FROM backtrace WHERE func = '%s' GROUP BY 1" % func))
    return got.get("running", 0), got.get("idle", 0)


@pytest.mark.parametrize("how", ["setuid", "chroot"])
def test_threads_that_proc_does_not_show(record, convert, sql, tmp_path, how):
    """After setuid() the files of /proc that belong to root cannot be read, and after chroot() there may be none."""
    if os.geteuid() != 0:
        pytest.skip(how + " needs root")
    (tmp_path / "root").mkdir()
    done = record(PROGRAM, how, tmp_path / "root")
    db = convert(done.trace)
    running, idle = ticks(sql, db, "asleep")
    assert idle > 100 and running < 10 + 100 * float(done.stdout), (running, idle, done.stdout)  # it runs as it begins
    running, idle = ticks(sql, db, "busy")
    assert running > 0, (running, idle)


def test_who_waits_for_the_cpu_of_the_sampler(record, convert, sql):
    """Without native frames its stack is read from outside, as a sleeping thread's is."""
    cpu = min(os.sched_getaffinity(0))
    done = record(PROGRAM, "", options=["--no-native"], preexec_fn=lambda: os.sched_setaffinity(0, [cpu]))
    db = convert(done.trace)
    running, idle = ticks(sql, db, "asleep")
    assert idle > 100 and running < 10 + 100 * float(done.stdout), (running, idle, done.stdout)
    running, idle = ticks(sql, db, "busy")
    assert running > 20 * idle and running > 0, (running, idle)
