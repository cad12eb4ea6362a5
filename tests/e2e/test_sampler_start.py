# SPDX-License-Identifier: Apache-2.0
"""The sampler's beginning, with everything that can go wrong made to happen: a recording has samples or says why not, and ticks at which
nobody looked count as lost."""
import os
import re

import pytest

from conftest import PYTHONS

# Preloaded before the agent: it decides by $TROUBLE what the agent's threads find.
TROUBLE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int is(const char *trouble) {
    const char *t = getenv("TROUBLE");
    return t && !strcmp(t, trouble);
}

static int ours(const char *prefix) {
    char name[16] = "";
    syscall(SYS_prctl, PR_GET_NAME, name, 0, 0, 0);
    return !strncmp(name, prefix, strlen(prefix));
}

/* The sampler's thread has no CPU as soon as it has a name. */
int prctl(int op, ...) {
    va_list v;
    va_start(v, op);
    unsigned long a = va_arg(v, unsigned long), b = va_arg(v, unsigned long), c = va_arg(v, unsigned long), d = va_arg(v, unsigned long);
    va_end(v);
    long rc = syscall(SYS_prctl, op, a, b, c, d);
    if (op == PR_SET_NAME && ours("probing-smp") && (is("late") || is("never")))
        usleep(is("late") ? 500000 : 900000000);
    return rc;
}

/* CPython makes this text in one buffer at each call: who asks while another thread is at it finds it empty. */
const char *Py_GetVersion(void) {
    const char *(*next)(void) = (const char *(*)(void))dlsym(RTLD_NEXT, "Py_GetVersion");
    return is("version") && ours("probing-") ? "" : next();
}

int Py_IsInitialized(void) {
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "Py_IsInitialized");
    return is("uninitialised") && ours("probing-") ? 0 : next();
}

/* What the sampler reads of Python's structures makes no sense: for some time, or ever. It reads them by the page. What does not change
 * while Python runs is left alone for "torn": from 3.13 on the table of offsets in _PyRuntime. */
static int is_table(const struct iovec *from) {
    unsigned long table = (unsigned long)dlsym(RTLD_DEFAULT, "_PyRuntime"), at = (unsigned long)from->iov_base;
    return is("torn") && table + 1024 > at && table < at + from->iov_len;
}
ssize_t process_vm_readv(pid_t pid, const struct iovec *to, unsigned long n, const struct iovec *from, unsigned long m, unsigned long flags) {
    static atomic_int reads;
    ssize_t got = syscall(SYS_process_vm_readv, pid, to, n, from, m, flags);
    if ((is("torn") || is("damaged")) && n == 1 && to->iov_len == 4096 && ours("probing-smp") && !is_table(from) && (is("damaged") || reads++ < 20))
        memset(to->iov_base, 0x41, 4096);
    return got;
}

/* There are no more threads to be had, for a moment. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg) {
    static atomic_int calls;
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    return is("threads") && !attr && ours("probing-") && calls++ < 3 ? EAGAIN : next(thread, attr, run, arg);
}
"""
BUSY = """
import sys, threading, time
over = threading.Event()
threading.Thread(target=over.wait).start()
assert sys.version.startswith("3.")
def busy(seconds):
    begin = time.time()
    while time.time() < begin + seconds:
        sum(range(1000))
    print(time.time() - begin)
time.sleep(0.25) # whoever tells the sampler since when Python has been there has come to that, also where CPUs are taken
busy(1.5)
over.set()
"""


@pytest.fixture
def troubled(record, convert, sql, run, python, tmp_path):
    """troubled(WHAT): returns samples, lost ticks, notes and ticks, for a main thread that is busy for so many ticks. A second thread
    sleeps."""
    (tmp_path / "trouble.c").write_text(TROUBLE)
    run(["cc", "-w", "-O1", "-shared", "-fPIC", "-o", tmp_path / "trouble.so", tmp_path / "trouble.c", "-ldl", "-lpthread"])

    def do(what):
        done = record(BUSY, hz=1000, python=python, env=dict(os.environ, LD_PRELOAD=str(tmp_path / "trouble.so"), TROUBLE=what))
        db = convert(done.trace)
        samples, other = [sql(db, "SELECT coalesce(sum(s.count), 0) FROM sample s JOIN thread t ON t.id = (s.id >> 40 << 40) + s.thread"
                                  " JOIN trace r ON r.id = t.trace WHERE t.tid %s r.pid" % which)[0][0] for which in ("=", "<>")]
        assert (samples > 10) == (other > 10)
        lost = sql(db, "SELECT coalesce(sum(count), 0) FROM lost WHERE reason <> 'ring_full'")[0][0]
        notes = [text for text, in sql(db, "SELECT text FROM note WHERE part = 'sampler'")]
        return samples, lost, notes, 1000 * float(done.stdout)

    return do


@pytest.mark.pythons(shared=True, max=(3, 10))
def test_the_text_of_the_version_is_empty(troubled):
    """Once in many thousand starts it was empty, because two threads asked for it at the same time: then this Python was "not known", and
    nothing was recorded."""
    samples, lost, notes, ticks = troubled("version")
    assert samples > 10 and samples + lost > 0.95 * ticks and not notes, (samples, lost, notes, ticks)


@pytest.mark.pythons(max=(3, 10))
def test_no_thread_can_be_made_at_first(troubled):
    """Before 3.11 the offset of a thread's kernel id is found by means of a thread that is made for it."""
    samples, lost, notes, ticks = troubled("threads")
    assert samples > 10 and samples + lost > 0.95 * ticks and not notes, (samples, lost, notes, ticks)


@pytest.mark.pythons(count=4)
def test_what_it_reads_changes_meanwhile(troubled):
    """A thread that ends between two reads looks like a wrong layout."""
    samples, lost, notes, ticks = troubled("torn")
    assert samples > 10 and samples + lost > 0.95 * ticks and not notes, (samples, lost, notes, ticks)


@pytest.mark.pythons(count=4)
def test_it_has_no_cpu_at_first(troubled):
    samples, lost, notes, ticks = troubled("late")
    assert samples > 10 and samples + lost > 0.95 * ticks and not notes, (samples, lost, notes, ticks)


@pytest.mark.parametrize("what, said", [("never", "no CPU"), ("damaged", "could not be read|make no sense"), ("uninitialised", "not initialised")])
@pytest.mark.pythons(shared=True, count=2)
def test_a_recording_without_samples_says_why(troubled, what, said):
    samples, lost, notes, ticks = troubled(what)
    assert samples == 0 and len(notes) == 1 and re.search(said, notes[0]), (samples, lost, notes, ticks)
    # If Python was there and recognized, its ticks count as lost, unless nothing could be recorded any more.
    assert what == "uninitialised" or "make no sense" in notes[0] or lost > 0.9 * ticks, (samples, lost, notes, ticks)


BEFORE = """
import os, subprocess, sys, threading, time

def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))

def probing(*words):
    subprocess.run([sys.argv[1], "-t", str(os.getpid())] + list(words), check=True, stdout=subprocess.DEVNULL)

def other():
    burn(0.5)
    done.set()
    over.wait()

done, over = threading.Event(), threading.Event()
how = sys.argv[2]
if how == "exec":
    burn(0.5)
    os.execv(sys.executable, [sys.executable, __file__, sys.argv[1], "after"])
if how == "inject":
    threading.Thread(target=other).start()
    burn(0.5)
    done.wait()
    before = time.thread_time()
    probing("inject", "-r", "100", "-o", sys.argv[3])
    burn(0.3)
if how == "pause":
    burn(0.3)
    probing("config", "sample_rate=0")
    time.sleep(0.3)  # a pause begins and ends within a tenth of a second
    before = time.thread_time()
    burn(0.6)
    before = time.thread_time() - before
    probing("config", "sample_rate=0.01")
    time.sleep(0.3)
    burn(0.3)
if how == "after":
    before = 0
    burn(0.3)
print(time.thread_time() - before)
over.set()
"""


@pytest.mark.parametrize("how", ("inject", "exec", "pause"))
def test_cpu_time_before_the_ticks_is_in_no_sample(build, record, run, convert, sql, tmp_path, how):
    """The first sample of a thread that was hours old stood for all of these hours."""
    args = [str(build.tool("probing")), how, str(tmp_path / "in.zst")]
    if how == "inject":
        (tmp_path / "before.py").write_text(BEFORE)
        trace, stdout = tmp_path / "in.zst", run([PYTHONS[0].path, tmp_path / "before.py"] + args).stdout
    else:
        done = record(BEFORE, *args, hz=100)
        trace, stdout = done.trace, done.stdout
    db = convert(trace, *([str(trace) + ".d"] if how == "exec" else []))
    of_main, others = [sql(db, "SELECT coalesce(sum(cpu_seconds), 0) FROM threads WHERE tid %s pid" % which)[0][0] for which in ("=", "<>")]
    assert 0.2 < of_main < float(stdout) + 0.1 and others < 0.1, (of_main, others, stdout)
