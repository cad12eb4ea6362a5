# SPDX-License-Identifier: Apache-2.0
"""PROBING=1 python train.py: the .pth file imports this at the interpreter's start when PROBING or PROBE is set.

    1, on, followed   records this program: the process, the processes that it forks, its multiprocessing workers, the ranks it launches,
                      and for `followed` also the Python programs that it starts itself
    2, nested         also records the Python programs that those start, at any depth
    regex:PATTERN     records any Python process whose command line matches
    0, off, empty     records nothing

PROBING_TORCH_PROFILING=on (or a rate, ...) without PROBING and PROBE is the same as PROBING=1.

Nothing here raises: a program that is to be recorded runs as it would have run. One line on stderr says what is wrong.
"""
import errno
import os

OFF = ("", "0", "off", "no", "false")
DEPTHS = {"1": 0, "on": 0, "yes": 0, "true": 0, "followed": 1, "2": 1 << 30, "nested": 1 << 30}
MAIN, FROM, RUN = "PROBING_MAIN_PID", "PROBING_FROM", "PROBING_RUN"


def say(text):
    """Writes one line on stderr. Called at the program's start, in its first process only."""
    os.write(2, b"probing: " + text.encode("utf-8", "backslashreplace") + b"\n")


def command():
    try:
        with open("/proc/self/cmdline", "rb") as f:
            return [os.fsdecode(a) for a in f.read().split(b"\0")[:-1]]
    except OSError:
        return []


def is_worker(args):
    """Returns whether the process is a multiprocessing child (spawn or forkserver; not a resource tracker)."""
    text = " ".join(args)
    return "--multiprocessing-fork" in text or (
        "multiprocessing." in text and "_main(" in text and "resource_tracker" not in text)


def is_helper(args):
    """Returns whether the process is a helper of multiprocessing, which runs no code of the program."""
    return "resource_tracker" in " ".join(args)


def wanted(value, args):
    """Returns whether this process is to be recorded, and what goes into PROBING_FROM for its children."""
    name = "PROBING" if "PROBING" in os.environ else "PROBE"
    value = value.strip()
    low = value.lower()
    rank = os.environ.get("RANK", "")
    depth, parent_rank = 0, ""
    above = os.environ.get(FROM, "")
    if above:
        number, _, parent_rank = above.partition(":")
        depth = int(number) if number.isdigit() else 0
    if low in OFF:
        return False, None
    if is_helper(args):
        return False, None
    if low.startswith("regex:"):
        import re
        try:
            return re.search(value[len("regex:"):], " ".join(args)) is not None, "1:" + rank
        except re.error as error:
            if not above:
                say("%s=%s: %s; nothing is recorded" % (name, value, error))
            return False, "1:" + rank
    # Workers and ranks belong to the program, as does what it becomes by exec: they are as deep as their parent.
    belongs = is_worker(args) or (rank != "" and rank != parent_rank) or os.environ.get(MAIN) == str(os.getpid())
    if above and not belongs:
        depth += 1
    if low not in DEPTHS and not above:
        say("%s=%s: it must be 1, on, followed, 2, nested, regex:PATTERN, 0 or off; '1' is used" % (name, value))
    return depth <= DEPTHS.get(low, 0), "%d:%s" % (depth, rank)


def start():
    value = os.environ.get("PROBING", os.environ.get("PROBE"))
    if value is None:  # PROBING_TORCH_PROFILING alone says so, too
        value = "0" if os.environ.get("PROBING_TORCH_PROFILING", "").strip().lower() in OFF else "1"
    args = command()
    yes, mark = wanted(value, args)
    if mark is not None:
        os.environ[FROM] = mark
    if not yes or "libprobing-preload.so" in os.environ.get("LD_PRELOAD", ""):
        return
    first = RUN not in os.environ
    os.environ.setdefault(MAIN, str(os.getpid()))
    trace = os.environ.get("PROBING_TRACE") or "trace.zst"
    slash = "/" if trace.endswith("/") else ""
    os.environ["PROBING_TRACE"] = trace = os.path.abspath(trace) + slash
    import probing
    from probing import _load
    module = _load.load()
    failed = module.start("")
    probing._arrived()
    # What this process starts is of its run; FILE may have been another run's, then it is another name now.
    os.environ[RUN] = module.config_get("run")
    written = module.trace()
    if written and not slash and os.path.dirname(written) == os.path.dirname(trace):
        os.environ["PROBING_TRACE"] = written
    if first:
        for line in module.config_get("complaints").splitlines():
            say(line)
        if failed and not module.recording():
            why = "it is not a regular file" if -failed == errno.ENOTSUP else os.strerror(-failed)
            say("this program is not recorded: " + (module.config_get("barred") or "%s: %s" % (trace, why)))
        elif os.environ["PROBING_TRACE"] != trace:
            say("%s is being written by another run, or is no trace: this one goes to %s" % (trace, written))


try:
    start()
except Exception as error:
    try:
        if RUN not in os.environ:
            say("this program is not recorded: %s" % error)
    except Exception:
        pass
