# SPDX-License-Identifier: Apache-2.0
"""Which files the arguments of a command stand for (converter/inputs.h), where not all of them may be read."""
import os
import pathlib
import shutil

import pytest

BASIC = pathlib.Path(__file__).resolve().parents[1] / "golden" / "basic.zst"


@pytest.fixture
def unprivileged(run):
    """unprivileged(command, ...): as `run`, without root's right to read everything."""
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("root reads everything, and there is no setpriv to give that up")
    bound = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    return lambda command, **how: run(bound + command, **how)


@pytest.fixture
def folder(tmp_path):
    """A folder of five traces: one may be read, and four lie where the user may not look."""
    place = tmp_path / "traces"
    for name in ("a.zst", "file.zst", "unreadable/b.zst", "unreadable/below/c.zst", "unsearchable/d.zst"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(BASIC, place / name)
    modes = {"file.zst": 0, "unreadable": 0o300, "unsearchable": 0o600}
    for name, mode in modes.items():
        (place / name).chmod(mode)
    yield place
    for name in modes:
        (place / name).chmod(0o700)


WHY = ["file.zst: Permission denied", "unreadable: Permission denied", "unsearchable/d.zst: Permission denied"]


@pytest.mark.parametrize("command", [["convert", "-q", "IN", "OUT.db"], ["convert", "-q", "--append", "IN", "OUT.db"], ["query", "IN", "SELECT count(*) FROM trace"],
                                     ["pack", "-q", "-o", "OUT.zst", "IN"], ["stacks", "IN"], ["flamegraph", "-o", "OUT.svg", "IN"]], ids=" ".join)
def test_what_may_not_be_read_is_named(build, unprivileged, folder, command):
    """A folder below the one that was named is no exception: what is in it is missing from the answer."""
    words = [w.replace("IN", str(folder)).replace("OUT", str(folder.parent / "out")) for w in command]
    done = unprivileged([build.tool("probing")] + words, check=1)
    lines = [line.split(": ", 1)[1] for line in done.stderr.splitlines()]
    assert sorted(lines) == ["%s/%s" % (folder, why) for why in WHY], done.stderr
    if command[0] == "query":
        assert done.stdout.split()[-1] == "1"


def test_a_folder_in_which_nothing_may_be_read(build, unprivileged, folder, tmp_path):
    done = unprivileged([build.tool("probing-convert"), folder / "unreadable", tmp_path / "out.db"], check=3)
    assert done.stderr == "probing-convert: %s/unreadable: Permission denied\n" % folder and not (tmp_path / "out.db").exists()
