# SPDX-License-Identifier: Apache-2.0
"""Forked children that end before their recording begins, 20 ms after the fork: each is recorded or counted, and so is its time."""
import os

import pytest
from agent_helpers import FEW, agent

FIXTURES = (agent,)  # tests ask for them by name

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
    """Under probing-record, which completes the traces of children that were killed when they had just begun one."""
    counted = 0
    while not counted:  # on a busy machine all of them may live long enough to be recorded
        done = record(PROGRAM % (25, ".004 * (i % 8)", end), hz=1000, python=interpreter)
        db, recorded, counted = sums(convert(done.trace), sql)
        assert recorded + counted == 25
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
    end = time.monotonic() + 600
    while time.monotonic() < end:
        if glob.glob(%r.replace("PID", str(os.getpid()))):
            for _ in range(i * 40): pass
            os.kill(os.getpid(), 9)
time.sleep(.3)
"""


@pytest.mark.parametrize("name", ["{run}/PID-*.live", "{out}.d/*-PID.zst"])
def test_killed_as_it_begins(record, pythons, convert, sql, tmp_path, name):
    """A child is killed as soon as its live file, or its trace, exists: either it has a trace, which says who it was, or it is counted."""
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
for i in range(30):
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
    """The time that the children lived is in the samples or in the losses, even if the period is longer than what is missed."""
    lived = run([interpreter.path, str(agent.script(LIVES))], env=agent.env(PROBING_SAMPLE_RATE=rate)).stdout
    inner, outer = (float(seconds) / rate for seconds in lived.split())
    db, recorded, counted = sums(convert(*agent.traces()), sql)
    assert recorded + counted == 30
    samples = sql(db, "SELECT coalesce(sum(count), 0) FROM samples JOIN trace ON id = trace_id WHERE how = 'fork'")[0][0]
    lost = sql(db, "SELECT coalesce(sum(count), 0) FROM loss JOIN trace ON id = trace_id WHERE how = 'fork' OR reason = 'child'")[0][0]
    # They lived at least as long as they say, and at most as long as their parent saw them (on a busy machine they wait at both ends). Each
    # child's count is the next lower or the next higher number of periods, by chance, so its standard deviation is .5 at most.
    error = 4 * .5 * 30 ** .5
    assert .98 * inner - error < samples + lost < 1.02 * outer + error, (samples, lost)


# The agent's threads get this processor only in the short sleeps, as on a machine with far more work than it can do.
STARVED = """
import os, sys, time
total = 0
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for i in range(4):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        begin = time.monotonic()
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        for n in range(8):
            while time.thread_time() < .025 * (n + 1):
                pass
            time.sleep(.001)
        os.write(w, repr(time.monotonic() - begin).encode())
        sys.exit(0)
    os.close(w)
    total += float(os.read(r, 100))
    os.close(r)
    os.waitpid(pid, 0)
time.sleep(.1)
print(total)
"""


def test_who_has_used_20_ms_is_recorded(agent, run, pythons, convert, sql):
    """A child that has used 20 ms is recorded, however seldom its agent's threads got a processor meanwhile. None of its lifetime is
    missing."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except PermissionError:
        pytest.skip("needs the privilege to be scheduled by SCHED_FIFO")
    lived = float(run([pythons[-1].path, str(agent.script(STARVED))], env=agent.env(PROBING_SAMPLE_RATE=.001)).stdout)
    db, recorded, counted = sums(convert(*agent.traces()), sql)
    assert recorded + counted == 4 and recorded > 1
    samples = sql(db, "SELECT coalesce(sum(count), 0) FROM samples JOIN trace ON id = trace_id WHERE how = 'fork'")[0][0]
    lost = sql(db, "SELECT coalesce(sum(count), 0) FROM loss JOIN trace ON id = trace_id WHERE how = 'fork' OR reason = 'child'")[0][0]
    assert samples + lost > .9 * lived / .001, (samples, lost)


STOPPED = """
import os, signal, time
pid = os.fork()
if pid == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
os.waitpid(pid, os.WUNTRACED)
time.sleep(2)
os.kill(pid, 9)
os.waitpid(pid, 0)
time.sleep(1)
"""


def test_killed_before_its_agent_had_a_processor(agent, run, pythons, convert, sql):
    """The child was killed before its agent ran at all, but its parent saw it live."""
    run([pythons[-1].path, str(agent.script(STOPPED))], env=agent.env(PROBING_SAMPLE_RATE=.001))
    db, recorded, counted = sums(convert(*agent.traces()), sql)
    assert recorded + counted == 1
    assert recorded or sql(db, "SELECT gone, seconds > .5 AND seconds < 3600, ticks > 500 FROM children") == [(1, 1, 1)]


def test_the_summary_says_so(record, pythons):
    done = record(PROGRAM % (12, "0", "os._exit(0)"), python=pythons[0])
    assert "forked children ended before their recording began" in done.stderr


# A library that is preloaded beside the agent. It makes those of the agent's threads wait that may have to wait on a busy machine.
SCENE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static volatile int forked, asked, waits, ended;
static int is(const char *wanted) {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    return strncmp(name, wanted, strlen(wanted)) == 0;
}
static int seen(void) {
    char name[32] = "";
    glob_t g = {0};
    int found = 0;
    glob("/proc/self/task/*/comm", 0, NULL, &g);
    for (size_t i = 0; i < g.gl_pathc && !found; i++) {
        FILE *f = fopen(g.gl_pathv[i], "r");
        if (f && fgets(name, sizeof name, f)) found = strcmp(name, "probing-gil\n") == 0;
        if (f) fclose(f);
    }
    globfree(&g);
    return found;
}
/* The agent takes Python for one that is not there yet, until the first fork. */
int Py_IsInitialized(void) {
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "Py_IsInitialized");
    return getenv("LATE_AGENT") && !forked && is("probing-") ? 0 : next();
}
int PyGILState_Ensure(void) {
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "PyGILState_Ensure");
    asked |= is("probing-gil");
    return next();
}
int has_asked(void) { return asked; }
/* Who waits to ask for the GIL looks again when Python has ended. */
long syscall(long number, ...) {
    long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"), a[6];
    va_list more;
    va_start(more, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(more, long);
    va_end(more);
    if (number == SYS_clock_nanosleep && getenv("LATE_WAITER") && is("probing-gil"))
        for (waits = 1; !ended; ) next(number, a[0], a[1], a[2], a[3]);
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
__attribute__((destructor)) static void end(void) {
    ended = 1;
    while (waits && seen()) usleep(1000);
}
static void child(void) { forked = 1; }
__attribute__((constructor)) static void begin(void) { pthread_atfork(NULL, NULL, child); }
static void late(void) { while (getenv("LATE_WAITER") ? !waits : !seen()) usleep(1000); usleep(20000); }
void hold(void) { pthread_atfork(NULL, NULL, late); }
"""
IN_FORK = """
import ctypes, os, sys, time
ctypes.CDLL(sys.argv[1]).hold()
for _ in range(3):
    if not os.fork():
        end = time.monotonic() + .1
        while time.monotonic() < end: sum(range(200))
        os._exit(0)
    os.wait()
print("done")
"""
# The code that it exits with at once, and what it does before in an atexit function.
ENDS = """
import atexit, ctypes, os, sys, time
scene = ctypes.CDLL(sys.argv[1])
def wait():
    while not scene.has_asked(): time.sleep(.001)
scene.hold() if sys.argv[2] == "long fork" else None
if not os.fork():
    atexit.register(wait) if sys.argv[2] == "atexit" else None
    sys.exit(5)
print(os.wait()[1])
"""


@pytest.fixture
def scene(agent, run, tmp_path):
    """scene(python, program, argument..., setting=...): runs the program with SCENE beside the agent, and returns all its output."""
    (tmp_path / "scene.c").write_text(SCENE)
    run(["cc", "-shared", "-fPIC", "-o", tmp_path / "scene.so", tmp_path / "scene.c"])

    def play(python, program, *arguments, **settings):
        env = agent.env(**settings)
        env["LD_PRELOAD"] += " %s" % (tmp_path / "scene.so")
        done = run([python.path, str(agent.script(program)), tmp_path / "scene.so", *arguments], env=env)
        return done.stdout + done.stderr
    return play


@pytest.mark.pythons(min=(3, 8), max=(3, 8), count=1)
@pytest.mark.parametrize("settings", [{}, {"LATE_AGENT": 1}], ids=["agent", "late_agent"])
def test_a_fork_that_takes_long(scene, python, settings):
    """A thread of the agent wants the GIL of a child whose os.fork() has not returned yet: Python 3.8 makes that GIL anew, and both once
    waited for ever. Also if the parent forked before its agent had found Python."""
    assert scene(python, IN_FORK, **settings) == "done\n"


@pytest.mark.pythons(min=(3, 8), max=(3, 8), count=1)
def test_an_end_after_a_fork_that_took_long(scene, python):
    """Python ends while a thread of the agent waits for os.fork() to return. (Once, the thread then asked for the GIL of a Python that was
    gone: SIGSEGV.)"""
    assert scene(python, ENDS, "long fork", LATE_WAITER=1) == "%d\n" % (5 << 8)


@pytest.mark.pythons(min=(3, 8), max=(3, 8), count=1)
def test_an_end_with_atexit_functions(scene, python):
    """While atexit functions run, Py_AddPendingCall() of Python 3.8 prints an error; in a thread that does not hold the GIL that would
    crash."""
    assert scene(python, ENDS, "atexit", LATE_AGENT=1) == "%d\n" % (5 << 8)


@FEW
def test_fork_in_an_atexit_function(agent, run, interpreter):
    script = agent.script("""
import atexit, os, time
def end():
    if os.fork():
        print(os.wait()[1])
    else:
        time.sleep(.2)
atexit.register(end)
""")
    done = run([interpreter.path, script], env=agent.env())
    assert (done.stdout, done.stderr) == ("0\n", "")
