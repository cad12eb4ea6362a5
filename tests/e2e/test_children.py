# SPDX-License-Identifier: Apache-2.0
"""Forked children that end before their recording begins, 20 ms after the fork: each is recorded or counted, with its time."""
import os

import pytest
from agent_helpers import FEW, agent  # noqa: F401

PROGRAM = """
import os, signal, sys, time
def live(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(200))
total = 0
for i in range(%d):
    r, w = os.pipe()
    begin = time.monotonic()
    pid = os.fork()
    if pid == 0:
        live(%s)
        os.write(w, repr(time.monotonic() - begin).encode())
        %s
    os.close(w)
    total += float(os.read(r, 100) or 0)
    os.close(r)
    os.waitpid(pid, 0)
time.sleep(.1)
print(total)
"""


def sums(db, sql):
    recorded = sql(db, "SELECT count(*) FROM trace WHERE how = 'fork'")[0][0]
    return db, recorded, sql(db, "SELECT sum(children_lost) FROM trace")[0][0]


@FEW
@pytest.mark.parametrize("column, end", [("ended", "os._exit(0)"), ("ended", "sys.exit(0)"), ("gone", "os.kill(os.getpid(), 9)")])
def test_each_is_recorded_or_counted(record, interpreter, convert, sql, column, end):
    """Under probing-record, which completes the traces of those that were killed while they began one."""
    done = record(PROGRAM % (25, ".004 * (i % 8)", end), hz=1000, python=interpreter)
    db, recorded, counted = sums(convert(done.trace), sql)
    assert recorded + counted == 25 and counted > 0
    assert sql(db, "SELECT sum(%s), sum(ended + failed + gone) FROM children" % column) == [(counted, counted)]
    ticks = sql(db, "SELECT sum(ticks) FROM children")[0][0]
    assert ticks > 0
    assert sql(db, "SELECT sum(count) FROM loss WHERE reason = 'child'") == [(ticks,)]
    loss = sql(db, "SELECT * FROM loss WHERE unit = 'records'")
    assert sql(db, "SELECT sum(lost) FROM trace")[0][0] == sum(row[2] for row in loss), loss


BEGINNING = """
import glob, os, signal, time
for i in range(%d):
    if os.fork():
        os.wait()
        continue
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if glob.glob(%r.replace("PID", str(os.getpid()))):
            for _ in range(i * 40): pass
            os.kill(os.getpid(), 9)
time.sleep(.3)
"""


@pytest.mark.parametrize("name", ["{run}/PID-*.live", "{out}.d/*-PID.zst"])
def test_killed_as_it_begins(record, pythons, convert, sql, tmp_path, name):
    """As soon as its live file, or its trace, is there: it has a trace, which says who it was, or it is counted."""
    out = tmp_path / "t.zst"
    many = 30
    done = record(BEGINNING % (many, name.format(run=os.environ["PROBING_RUN_DIR"], out=out)), hz=1000, python=pythons[0], out=out)
    db, recorded, counted = sums(convert(done.trace), sql)
    assert recorded + counted == many and sql(db, "SELECT count(*) FROM trace") == [(recorded + 1,)]
    assert sql(db, "SELECT count(*) FROM trace WHERE pid IS NULL OR end_reason IS NULL OR command IS NULL") == [(0,)]
    assert list((tmp_path / "run").iterdir()) == []


@FEW
def test_another_program_is_no_loss(agent, run, interpreter, convert, sql):
    script = agent.script(PROGRAM % (10, ".001", "os.execv('/bin/true', ['true'])"))
    run([interpreter.path, str(script)], env=agent.env())
    db, recorded, counted = sums(convert(*agent.traces()), sql)
    assert (counted, sql(db, "SELECT count(*) FROM children")) == (0, [(0,)])


LIVES = """
import os, time
inner = outer = 0
for i in range(60):
    r, w = os.pipe()
    before = time.monotonic()
    if not os.fork():
        begin = now = time.monotonic()
        while now < begin + .045:
            now = time.monotonic()
        os.write(w, repr(now - begin).encode())
        os._exit(0)
    os.close(w)
    inner += float(os.read(r, 100))
    os.close(r)
    os.wait()
    outer += time.monotonic() - before
time.sleep(.1)
print(inner, outer)
"""


@FEW
@pytest.mark.parametrize("rate", [.001, .01])
def test_their_time_is_whole(agent, run, interpreter, convert, sql, rate):
    """What they lived is in the samples or in the losses, also with a period that is longer than what is missed."""
    lived = run([interpreter.path, str(agent.script(LIVES))], env=agent.env(PROBING_SAMPLE_RATE=rate)).stdout
    inner, outer = (float(seconds) / rate for seconds in lived.split())
    db, recorded, counted = sums(convert(*agent.traces()), sql)
    assert recorded + counted == 60
    samples = sql(db, "SELECT coalesce(sum(count), 0) FROM samples JOIN trace ON id = trace_id WHERE how = 'fork'")[0][0]
    lost = sql(db, "SELECT coalesce(sum(count), 0) FROM loss JOIN trace ON id = trace_id WHERE how = 'fork' OR reason = 'child'")[0][0]
    # They lived at least as long as they say, and no longer than their parent saw them (a busy machine lets them wait on both sides).
    # 60 random beginnings: the number of ticks is right to their standard error, a third of a tick each; four of these.
    error = 4 * .3 * 60 ** .5
    assert .98 * inner - error < samples + lost < 1.02 * outer + error, (samples, lost)


def test_the_summary_says_so(record, pythons):
    done = record(PROGRAM % (12, "0", "os._exit(0)"), python=pythons[0])
    assert "forked children ended before their recording began" in done.stderr
