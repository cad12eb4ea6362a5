# SPDX-License-Identifier: Apache-2.0
"""What the views say of a recording: ends, time, recursion, who runs and who waits."""
import signal


def dict_rows(sql, db, query):
    return {row[0]: row[1:] for row in sql(db, query)}


# ---- the end of a killed process ---------------------------------------------------------------


def test_end_is_the_last_moment_of_the_process(record, convert, sql):
    """A worker dies long before its trace is finished: its end is its death."""
    done = record("""
import os, signal, time
pid = os.fork()
if pid == 0:
    time.sleep(1)
    print(time.time(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(4)
os.waitpid(pid, 0)
os.write(1, b"%f" % time.time())
os.kill(os.getpid(), signal.SIGKILL)
""", hz=50, check=None)
    assert done.returncode == 128 + signal.SIGKILL
    worker, main = [float(x) for x in done.stdout.split()]
    db = convert(done.trace)
    rows = sql(db, 'SELECT "end", duration, finished, signal, start FROM trace WHERE end_reason = \'killed\' '
                   'ORDER BY "end"')
    assert len(rows) == 2
    for row, death in zip(rows, (worker, main)):
        assert abs(row[0] - death) < 0.9 and row[2] >= row[0] and abs(row[1] - (row[0] - row[4])) < 1e-3
    assert rows[0][2] - rows[0][0] > 2, "the worker was finished when the program ended"
    # only the main process is the recorder's child: of the other nobody told us the signal
    assert [r[3] for r in rows] == [None, signal.SIGKILL]
    events = sql(db, "SELECT kind, detail, timestamp FROM triggers ORDER BY timestamp")
    assert [(e[0], e[1]) for e in events] == [("killed", "by a signal that is not known"),
                                              ("killed", "by signal 9 (SIGKILL)")]
    assert [e[2] for e in events] == [r[0] for r in rows]
    # the last seconds before the crash are not empty (a sleeping thread's row is written once a second)
    assert sql(db, 'SELECT count(*) FROM samples s JOIN trace t ON t.id = s.trace_id '
                   'WHERE t.signal = 9 AND s.timestamp + s.seconds > t."end" - 2.5')[0][0] > 0


def test_ends_of_others_stay(record, convert, sql):
    """A clean exit, and a death that the process itself recorded: no row that says killed."""
    done = record("import time\ntime.sleep(0.3)\n")
    assert sql(convert(done.trace), "SELECT finished, signal FROM trace") == [(None, None)]
    done = record("import ctypes, time\ntime.sleep(0.3)\nctypes.string_at(0)\n", check=None)
    db = convert(done.trace)
    assert sql(db, "SELECT kind FROM triggers") == [("fatal",)]
    assert sql(db, "SELECT signal FROM trace") == [(signal.SIGSEGV,)]


# ---- backtrace is time ------------------------------------------------------------------------


def test_backtrace_counts_time(record, convert, sql):
    """A sleeping line has as many ticks as a busy one of the same length; a recursion counts once."""
    done = record("""
import time
def spin(s):
    end = time.monotonic() + s
    while time.monotonic() < end:
        sum(range(100))
def deep(n):
    if n:
        return deep(n - 1)
    spin(1)
def nap():
    time.sleep(1)
nap()
deep(40)
""", hz=100)
    db = convert(done.trace)
    sums = dict_rows(sql, db, "SELECT func, sum(count), sum(seconds), max(depth) FROM backtrace "
                              "WHERE frame_type = 'Python' GROUP BY func")
    whole = sums["<module>"]
    for name in ("nap", "deep", "spin"):
        assert 0.6 < sums[name][1] < 1.2, (name, sums)
        assert abs(sums[name][1] - sums[name][0] / 100) < 1e-6
    assert abs(whole[1] - sum(sums[n][1] for n in ("nap", "deep"))) < 0.2
    assert sums["deep"][2] >= 40
    # by line, too: the lines of a function add up to it
    lines = sql(db, "SELECT sum(seconds) FROM (SELECT lineno, sum(seconds) AS seconds FROM backtrace "
                    "WHERE func = 'deep' GROUP BY lineno)")[0][0]
    assert abs(lines - sums["deep"][1]) < 1e-6
    # the same answer from the three views
    ticks = sql(db, "SELECT sum(count), sum(seconds) FROM samples WHERE stack_id IS NOT NULL")[0]
    assert sql(db, "SELECT sum(count), sum(seconds) FROM backtrace WHERE depth = 0")[0] == ticks
    hot = dict_rows(sql, db, "SELECT func, total, total_seconds FROM hot_functions WHERE frame_type = 'Python'")
    assert {n: (v[0], round(v[1], 6)) for n, v in sums.items()} == {n: (v[0], round(v[1], 6)) for n, v in hot.items()}
    states = dict(sql(db, "SELECT func, state FROM backtrace WHERE func IN ('nap', 'spin') GROUP BY func, state "
                          "ORDER BY sum(seconds)"))
    assert states == {"nap": "idle", "spin": "running"}
