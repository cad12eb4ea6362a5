# SPDX-License-Identifier: Apache-2.0
"""A seccomp filter that kills for system calls of the agent: the program runs as it does without recording, whoever has set the filter
before."""
import pytest

PY = "/usr/bin/python3"
RUSAGE, READ_MEMORY, BARRIER = 98, 310, 324

# LATE: a filter that applies only to the thread that sets it.
LATE = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
class Prog(ctypes.Structure):
    _fields_ = [("n", ctypes.c_ushort), ("f", ctypes.c_void_p)]
def shut(what):
    code = struct.pack("HBBI", 0x20, 0, 0, 0)
    for number in what.split(","):
        code += struct.pack("HBBIHBBI", 0x15, 0, 1, int(number), 6, 0, 0, 0x80000000)
    code = ctypes.create_string_buffer(code + struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
    prog = Prog(len(code) // 8, ctypes.addressof(code))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.addressof(prog), 0, 0) == 0
def before(n=0):
    for i in range(1000000): n += i
def behind(n=0):
    for i in range(3000000): n += i
    return n
"""


@pytest.fixture
def record(build, run, tmp_path):
    return lambda *command, **kw: run([build.tool("probing-record"), "-r", "1000", "-o", tmp_path / "t.zst"] + list(command), **kw)


@pytest.mark.parametrize("action", ["kill", "kill_thread", "trap"])
@pytest.mark.parametrize("call, name", [(READ_MEMORY, "process_vm_readv"), (BARRIER, "membarrier"), (RUSAGE, "getrusage")])
def test_a_filter_from_the_start(build, run, record, tmp_path, action, call, name):
    """One line names the system call; also for a filter of the recorder's own, and for one that the program inherits from the process that
    starts it."""
    filtered = [build.root / "tests/programs/filter", action, call]
    program = [PY, "-c", "import os\nif os.fork(): print(os.wait()[1]); raise SystemExit(7)"]
    for done in (record(*(filtered + program), check=7),
                 run(filtered + [build.tool("probing-record"), "-o", tmp_path / "t.zst"] + program, check=7)):
        assert done.stdout == "0\n"
        lines = [line for line in done.stderr.splitlines() if "is not recorded: a seccomp filter" in line]
        assert len(lines) == 1 and "(%s)" % name in lines[0], done.stderr


def test_a_filter_that_answers(build, record, sql, convert, tmp_path):
    """A filter that returns errors, like a container's."""
    record(build.root / "tests/programs/filter", "error", "%d,%d,%d" % (READ_MEMORY, BARRIER, RUSAGE), PY, "-c", LATE + "behind()")
    assert sql(convert(tmp_path / "t.zst"), "SELECT sum(count) > 0 FROM samples") == [(1,)]


CLOSES = """
import os, sys
before()
os.closerange(3, 2000)
files = [os.open(sys.argv[1], os.O_RDONLY) for i in range(3)]
behind()
pid = os.fork()
if not pid:
    os._exit(sum(os.read(fd, 9) == b"contents" for fd in files))
print(files, os.waitpid(pid, 0)[1] >> 8)
"""


def test_the_program_closes_what_it_does_not_know(build, record, sql, convert, tmp_path):
    """Where such a filter refuses process_vm_readv(), memory is read through a file. The program gets the numbers that it expects, and its child has
    its files."""
    (tmp_path / "file").write_text("contents")
    done = record(build.root / "tests/programs/filter", "error", READ_MEMORY, PY, "-c", LATE + CLOSES, tmp_path / "file")
    assert done.stdout == "[3, 4, 5] 3\n"
    db = convert(tmp_path / "t.zst")
    assert sql(db, "SELECT count(*) FROM backtrace WHERE func = 'behind'")[0][0] > 0


def test_a_child_of_a_thread_that_shut_itself_in(record):
    """The child is not recorded, and lives. Its parent would not survive a sample, as README's limits say: so it takes no signals meanwhile."""
    code = LATE + """
import signal
before(); signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); shut('%d'); pid = os.fork()
if not pid: signal.pthread_sigmask(signal.SIG_UNBLOCK, range(1, 65)); behind(); os._exit(5)
print(os.waitpid(pid, 0)[1] >> 8)
""" % READ_MEMORY
    done = record(PY, "-c", code)
    assert done.stdout == "5\n"
