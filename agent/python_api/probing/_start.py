# SPDX-License-Identifier: Apache-2.0
"""PROBING=1 python train.py: the .pth file imports this at the interpreter's start when PROBING or PROBE is set.

    1, on, followed   this program: the process, what it forks, its multiprocessing workers, the ranks it launches, and for
                      `followed` also the Python programs that it starts itself
    2, nested         and whatever those start, at any depth
    regex:PATTERN     any Python process whose command line matches
    0, off, empty     nothing

Nothing here prints or raises: a program that is to be recorded runs as it would have run. What was wrong is in the trace.
"""
import os

MAIN, FROM = "PROBING_MAIN_PID", "PROBING_FROM"


def command():
    try:
        with open("/proc/self/cmdline", "rb") as f:
            return [os.fsdecode(a) for a in f.read().split(b"\0")[:-1]]
    except OSError:
        return []


def is_worker(args):
    """A multiprocessing child (spawn, forkserver, its resource tracker left out)."""
    text = " ".join(args)
    return "--multiprocessing-fork" in text or (
        "multiprocessing." in text and "_main(" in text and "resource_tracker" not in text)


def is_helper(args):
    """Processes of the library's own that run none of the program."""
    return "resource_tracker" in " ".join(args)


def wanted(value, args):
    """Whether this process is to be recorded, and what goes into PROBING_FROM for its children."""
    value = value.strip()
    low = value.lower()
    rank = os.environ.get("RANK", "")
    depth, parent_rank = 0, ""
    above = os.environ.get(FROM, "")
    if above:
        number, _, parent_rank = above.partition(":")
        depth = int(number) if number.isdigit() else 0
    if low in ("", "0", "off", "no", "false"):
        return False, None
    if is_helper(args):
        return False, None
    if low.startswith("regex:"):
        import re
        return re.search(value[len("regex:"):], " ".join(args)) is not None, "1:" + rank
    # Workers and ranks belong to the program, as does what it becomes by exec: they are as deep as their parent.
    belongs = is_worker(args) or (rank != "" and rank != parent_rank) or os.environ.get(MAIN) == str(os.getpid())
    if above and not belongs:
        depth += 1
    most = {"followed": 1, "2": 1 << 30, "nested": 1 << 30}.get(low, 0)
    return depth <= most, "%d:%s" % (depth, rank)


def start():
    value = os.environ.get("PROBING") or os.environ.get("PROBE") or ""
    args = command()
    yes, mark = wanted(value, args)
    if mark is not None:
        os.environ[FROM] = mark
    if not yes or "libprobing-preload.so" in os.environ.get("LD_PRELOAD", ""):
        return
    os.environ.setdefault(MAIN, str(os.getpid()))
    trace = os.environ.get("PROBING_TRACE") or "trace.zst"
    slash = "/" if trace.endswith("/") else ""
    os.environ["PROBING_TRACE"] = os.path.abspath(trace) + slash
    import probing
    from probing import _load
    _load.load().start("")
    probing._arrived()


try:
    start()
except Exception:
    pass
