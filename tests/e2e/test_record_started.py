# SPDX-License-Identifier: Apache-2.0
"""probing-record in circumstances that it has not made: how it was started, what others have left, and who else records."""
import os
import signal
import subprocess
import sys

import pytest

PY = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


def test_sigchld_is_ignored(build, run, tmp_path):
    """As by a daemon that never waits for its children: the kernel then keeps no exit code, unless one asks for it. The program gets it as it was."""
    program = "import signal, sys; sys.exit(7 if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN else 8)"
    done = run([build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", PY, "-c", program], check=None,
               preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert (done.returncode, done.stderr) == (7, "")


def test_two_long_names_that_begin_alike(build, run, spawn, tmp_path):
    """They are two names, also for two runs at once."""
    names = [tmp_path / ("a" * 200 + c + ".zst") for c in "12"]
    program = "import sys; print('up', flush=True); sys.stdin.read()"
    first = spawn([build.tool("probing-record"), "-q", "-o", names[0], PY, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "up\n"
    done = run([build.tool("probing-record"), "-q", "-o", names[1], PY, "-c", ""])
    first.communicate("", timeout=240)
    assert first.returncode == 0 and done.stderr == ""
    assert sorted(p.name for p in tmp_path.glob("*.zst")) == [n.name for n in names]


def test_what_a_killed_run_has_left_in_the_folder(build, run, spawn, tmp_path):
    """It tries whether it may create a file there; the name of that file must not be one that is there already, as in containers, where process ids repeat."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    command = ["sh", "-c", 'read x < "$1"; exec "$2" -q -o "$3" "$4" -c ""', "sh", gate, build.tool("probing-record"), tmp_path / "t.zst", PY]
    recorder = spawn(command, stderr=subprocess.PIPE, text=True)
    (tmp_path / (".probing-%d" % recorder.pid)).write_text("")  # sh has the process id that probing-record will have
    gate.write_text("go\n")
    assert recorder.communicate(timeout=240)[1] == "" and recorder.returncode == 0
    assert (tmp_path / "t.zst").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system: needs root")
def test_after_a_full_disk(build, run, tmp_path):
    """The run that found no space has left an empty file; nobody writes it."""
    place = tmp_path / "small"
    place.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place])
    try:
        (place / "fill").write_bytes(bytes(64 << 10))
        record = [build.tool("probing-record"), "-o", place / "t.zst", PY, "-c", "sum(range(10000000))"]
        for _ in range(2):
            said = run(record).stderr
            assert "%s could not be written: No space left on device" % (place / "t.zst") in said and "another run" not in said
            assert not (place / "t-2.zst").exists()
        (place / "fill").unlink()
        assert "being written" not in run(record).stderr
        assert (place / "t.zst").stat().st_size > 0
    finally:
        run(["umount", "-l", place], check=None)
