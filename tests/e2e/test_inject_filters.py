# SPDX-License-Identifier: Apache-2.0
"""Injection into processes under seccomp filters: a container's filter lets it in; a filter that would kill for the agent's calls is named,
and the process lives."""
import os
import pathlib
import re
import shutil
import subprocess

import conftest
import pytest
from inject_helpers import SPIN, finish, probing, refused, target, wait_until
from test_seccomp import BARRIER, LATE, READ_MEMORY

FIXTURES = (probing, target)  # tests ask for them by name
PY = "/usr/bin/python3"
FLOCK, RESTART, RENAME = 73, 219, 82
CLONE3, BPF = 435, 321

with open("/proc/self/status") as f:
    outside = os.geteuid() == 0 and re.search(r"^Seccomp:\t0$", f.read(), re.M) is not None
reads_filters = pytest.mark.skipif(not outside, reason="the kernel shows filters to root outside of all filters alone")
pytestmark = pytest.mark.pythons(count=1)

# Like Docker's: a list of allowed calls, with conditions on clone's flags, and clone3 answered as unknown. All other calls are errors, and
# calls of another architecture kill.
CONTAINER = """
import os, sys
import seccomp as S
f = S.SyscallFilter(S.ERRNO(1))
f.set_attr(S.Attr.ACT_BADARCH, S.KILL_PROCESS)
f.add_arch(S.Arch.X86)
f.add_arch(S.Arch.X32)
barred = "mount umount2 pivot_root keyctl add_key request_key bpf perf_event_open unshare setns reboot swapon swapoff init_module " \\
         "finit_module delete_module kexec_load userfaultfd clone clone3 personality socket".split()
for number in range(462):
    try:
        name = S.resolve_syscall(S.Arch(), number)
        name = name if isinstance(name, str) else name.decode()
        if name not in barred: f.add_rule(S.ALLOW, name)
    except (RuntimeError, ValueError):
        pass
f.add_rule(S.ALLOW, "clone", S.Arg(0, S.MASKED_EQ, 0x7e020000, 0))
f.add_rule(S.ERRNO(38), "clone3")
for value in (0, 8, 0x20000, 0x20008, 0xffffffff): f.add_rule(S.ALLOW, "personality", S.Arg(0, S.EQ, value))
f.add_rule(S.ALLOW, "socket", S.Arg(0, S.NE, 40))
f.load()
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def under(build, spawn, tmp_path, python):
    """under(action, calls): starts a program under tests/programs/filter."""
    script = tmp_path / "target.py"
    script.write_text(SPIN)

    def start(action, calls, source=SPIN, **kw):
        script.write_text(source)
        end = tmp_path / "end"
        process = spawn([build.root / "tests/programs/filter", action, ",".join(map(str, calls)), python.path, script], ready="up",
                        stderr=subprocess.PIPE, cwd=str(tmp_path), env=dict(os.environ, TEST_END=str(end)), **kw)
        process.test_end = end
        return process

    return start


def works(probing, process):
    """Checks everything that can be asked of a recorded process."""
    assert "is being recorded" in probing(process.pid, "inject", "-r", "100").stdout
    wait_until(lambda: not re.search(r"\b0 samples", probing(process.pid, "status").stdout))
    assert "4" == probing(process.pid, "eval", "2 + 2").stdout.strip()
    assert "(main)" in probing(process.pid, "backtrace").stdout
    assert finish(process) == (0, "right", "")


@reads_filters
def test_what_libseccomp_makes_of_a_container_s_profile(probing, spawn, tmp_path, python):
    if subprocess.run([PY, "-c", "import seccomp"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no python3-seccomp")
    (tmp_path / "container.py").write_text(CONTAINER)
    (tmp_path / "target.py").write_text(SPIN)
    end = tmp_path / "end"
    process = spawn([PY, tmp_path / "container.py", python.path, tmp_path / "target.py"], ready="up", stderr=subprocess.PIPE,
                    cwd=str(tmp_path), env=dict(os.environ, TEST_END=str(end)))
    process.test_end = end
    with open("/proc/%d/status" % process.pid) as f:
        assert "Seccomp:\t2" in f.read()
    assert ", under a seccomp filter that allows it; nothing was done" in probing(process.pid, "inject", "--dry-run").stdout
    works(probing, process)


@reads_filters
@pytest.mark.parametrize("action, number, name", [("kill", RESTART, "restart_syscall"), ("trap", RESTART, "restart_syscall"),
                                                  ("kill", FLOCK, "flock"), ("trap", RENAME, "rename"), ("kill_thread", BARRIER, "membarrier")])
def test_one_that_kills_is_named(probing, under, action, number, name):
    """Its threads wait with timeouts: the kernel continues such a wait with a system call of its own."""
    process = under(action, [number], SPIN.replace("while go():", "import select\nwhile go():\n    select.poll().poll(3)"))
    refused(probing(process.pid, "inject", check=None), "would end it for a call of the agent's (%s): --force" % name)
    refused(probing(process.pid, "inject", "--dry-run", check=None), "(%s)" % name)
    assert finish(process) == (0, "right", "")


@pytest.mark.parametrize("number, name", [(BARRIER, "membarrier"), (FLOCK, "flock"), (RENAME, "rename")])
def test_by_force_the_calls_are_tried_first(probing, under, number, name):
    process = under("kill", [number])
    done = probing(process.pid, "inject", "--force", check=None)
    assert done.returncode == 3 and "a seccomp filter would end the process for %s\n" % name in done.stderr
    assert finish(process) == (0, "right", "")


@reads_filters
def test_a_call_that_the_agent_does_not_make(probing, under):
    works(probing, under("kill", [BPF, -1]))  # -1: as the kernel is asked about a system call that is skipped


@reads_filters
def test_one_that_was_judged_is_not_tried(probing, under):
    """Trying a filter out needs a fork, which takes long in a large process. In this one fork() fails, and the injection works all the same."""
    works(probing, under("error", [CLONE3], LATE + FORKLESS + SPIN))


# a filter that answers clone without CLONE_THREAD with an error
FORKLESS = """
def forkless():
    code = b"".join(struct.pack("HBBI", *line) for line in (
        (0x20, 0, 0, 0), (0x15, 0, 3, 56), (0x20, 0, 0, 16), (0x45, 1, 0, 0x10000), (6, 0, 0, 0x50001), (6, 0, 0, 0x7fff0000)))
    code = ctypes.create_string_buffer(code)
    prog = Prog(6, ctypes.addressof(code))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.addressof(prog), 0, 0) == 0
forkless()
try: os.fork()
except OSError: pass
else: os._exit(1)
"""


def test_strict_mode(probing, target, python):
    """A process of one thread, which holds the GIL for good."""
    source = LATE + "import threading\nread, write = os.pipe()\nlibc = ctypes.PyDLL(None)\nbyte = ctypes.create_string_buffer(1)\n" \
                    "def shut_in():\n    print('up', flush=True); libc.prctl(22, 1, 0, 0, 0); libc.read(read, byte, 1)\n" \
                    "threading.Thread(target=shut_in).start()\n"
    process = target(python, source)
    wait_until(lambda: any("Seccomp:\t1" in status.read_text() for status in pathlib.Path("/proc/%d/task" % process.pid).glob("*/status")))
    refused(probing(process.pid, "inject", check=None), "(any but read, write and exit)")
    process.kill()


@reads_filters
def test_a_filter_of_one_thread(probing, target, python):
    source = LATE + "import threading\ndone = threading.Event()\ndef shut_in():\n    shut('%d'); done.set(); threading.Event().wait()\n" \
                    "threading.Thread(target=shut_in, daemon=True).start()\ndone.wait()\n" % READ_MEMORY
    process = target(python, source + SPIN)
    refused(probing(process.pid, "inject", check=None), "(process_vm_readv)")
    assert finish(process) == (0, "right", "")


@pytest.mark.parametrize("action, calls, refuses", [("error", [BARRIER, BPF], None), ("kill", [BARRIER], "(membarrier)")])
def test_from_inside_of_its_container(build, run, python, tmp_path, action, calls, refuses):
    """The injector is under the same filter, and cannot read it."""
    (tmp_path / "target.py").write_text("import time\nopen('up', 'w').close()\nwhile True: time.sleep(0.01)\n")
    (tmp_path / "inside.sh").write_text("%s target.py & until [ -e up ]; do sleep 0.01; done;"
                                        " until probing -t $! eval 1 --timeout 100 || [ $((tries += 1)) = %d ]; do sleep 0.2; done;"
                                        " probing -t $! inject; echo $?; kill $! && wait $!; echo $?" % (python.path, 1 if refuses else 20))
    done = run([build.root / "tests/programs/filter", action, ",".join(map(str, calls)), "bash", tmp_path / "inside.sh"], cwd=str(tmp_path),
               env=dict(os.environ, PATH="%s:%s" % (build.bin, os.environ["PATH"])))
    lines = done.stdout.split("\n")
    assert lines[-2] == "143" and lines[-3] == ("3" if refuses else "0"), done.stdout + done.stderr
    assert "(membarrier)" in done.stderr if refuses else "is being recorded" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_one_that_cannot_be_read(build, run, under, tmp_path):
    """From outside of its filter, by a user who may not read it."""
    tool = tmp_path / "tool"
    shutil.copytree(str(build.bin.parent / "bin"), str(tool / "bin"))
    shutil.copytree(str(build.lib), str(tool / "lib" / "probing"))

    def become():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    conftest.open_to_others(tmp_path)
    (tmp_path / "target.py").write_text(SPIN)
    if subprocess.run(["test", "-x", build.root / "tests/programs/filter"], preexec_fn=become).returncode:
        pytest.skip("another user cannot reach %s" % build.root)
    process = under("error", [BARRIER], preexec_fn=become)
    done = run([tool / "bin" / "probing", "-t", process.pid, "inject"], check=None, preexec_fn=become)
    assert done.returncode == 3 and "inject as the host's root, in its container, or with --force" in done.stderr, done.stderr
    assert finish(process) == (0, "right", "")
