# SPDX-License-Identifier: Apache-2.0
"""CPython's own tests of features that a recorder could disturb give the same results recorded at 1 kHz and unrecorded.

Each test module runs both ways. Tests whose results differ are run alone, three times each way, since some of them fail now and
then by themselves. An interpreter without CPython's tests (Debian has them in another package) is skipped.
"""
import json
import os
import subprocess

import pytest
from conftest import choose_pythons, kill_group

MODULES = ("test_threading", "test_signal", "test_fork1", "test_faulthandler", "test_select", "test_os", "test_posix", "test_subprocess",
           "test_asyncio", "test_multiprocessing_fork", "test_multiprocessing_spawn", "test_multiprocessing_forkserver")

WANTED = tuple(map(int, os.environ.get("PROBING_CPYTHON", "3.12").split(".")))

# Writes [id, outcome] for each test as it ends, one line each, so that a crash shows where it happened.
RUNNER = '''
import json, os, sys, tempfile, unittest

class Result(unittest.TestResult):
    def __init__(self, out):
        super().__init__()
        self.out, self.pid, self.outcome, self.why = out, os.getpid(), "ok", ""
    def startTest(self, test):
        super().startTest(test)
        self.say(test, "hung or crashed", "")
        self.outcome, self.why = "ok", ""
    def stopTest(self, test):
        super().stopTest(test)
        if os.getpid() == self.pid:
            self.say(test, self.outcome)
    def say(self, test, outcome, why=None):
        self.out.write(json.dumps([test.id(), outcome, self.why if why is None else why]) + "\\n")
        self.out.flush()
    def bad(self, test, err):
        self.outcome, self.why = "failed", self._exc_info_to_string(err, test)[-2000:]
    def addError(self, test, err):
        self.bad(test, err)
        if not hasattr(test, "_testMethodName"):  # setUpClass, setUpModule
            self.say(test, "failed")
    def addFailure(self, test, err):
        self.bad(test, err)
    def addSubTest(self, test, subtest, err):
        if err:
            self.bad(test, err)
    def addSkip(self, test, reason):
        self.outcome = "skipped"
        if not hasattr(test, "_testMethodName"):
            self.say(test, "skipped")
    def addExpectedFailure(self, test, err):
        self.outcome = "expected failure"
    def addUnexpectedSuccess(self, test):
        self.outcome = "unexpected success"

if __name__ == "__main__":
    import test.support
    test.support.use_resources = []  # as regrtest: no network, nothing that takes very long
    out = open(sys.argv[1], "w")
    with tempfile.TemporaryDirectory() as where:
        os.chdir(where)
        unittest.defaultTestLoader.loadTestsFromNames(sys.argv[2:]).run(Result(out))
        os.chdir("/")
    out.write(json.dumps(["the end", "ok", ""]) + "\\n")
'''


# 3.12.0 and 3.12.1 are installed without the three test modules of multiprocessing, which contain no more than this.
OF_MULTIPROCESSING = """
import test._test_multiprocessing
test._test_multiprocessing.install_tests_in_module_dict(globals(), %r)
"""


def with_tests():
    """Returns the installed 3.12 that has CPython's tests (or the version that PROBING_CPYTHON names, such as 3.9), else the newest other
    one."""
    fit = sorted(choose_pythons(min=(3, 8)), key=lambda p: (p.version[:2] == WANTED, p.version), reverse=True)
    for p in fit:
        if subprocess.run([p.path, "-c", "import test.test_threading, test.test_posix"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL).returncode == 0:
            return p
    return None


def results(build, tmp_path, python, module, recorded, names=()):
    runner, out = tmp_path / "runner.py", tmp_path / "results"
    runner.write_text(RUNNER)
    if not names:
        names = ["test." + module]
        if module.startswith("test_multiprocessing_"):
            (tmp_path / (module + ".py")).write_text(OF_MULTIPROCESSING % module.split("_")[-1])
            names = [module]
        seconds = 1500
    else:
        seconds = 120
    cmd = [build.tool("probing-record"), "-q", "-r", "1000", "-o", tmp_path / "t.zst", "--"] if recorded else []
    process = subprocess.Popen(list(map(str, cmd + [python.path, runner, out] + list(names))), start_new_session=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(str(tmp_path / "stderr"), "w"))
    try:
        process.wait(timeout=seconds)
        end = "exit code %d" % process.returncode
    except subprocess.TimeoutExpired:
        end = "hung"
    kill_group(process)
    found = {name: (outcome, why) for name, outcome, why in map(json.loads, out.read_text().splitlines())}
    found.setdefault("the end", (end, (tmp_path / "stderr").read_text()[-3000:]))
    return found


@pytest.mark.slow
@pytest.mark.limit(3600)
@pytest.mark.parametrize("module", MODULES)
def test_same_results_as_bare(build, tmp_path, module):
    python = with_tests()
    if not python:
        pytest.skip("no interpreter at hand has CPython's own tests")
    bare = results(build, tmp_path, python, module, False)
    assert len(bare) > 3 and bare["the end"][0] == "ok", bare["the end"]
    recorded = results(build, tmp_path, python, module, True)
    differ = sorted(name for name in set(bare) | set(recorded) if bare.get(name, "-")[0] != recorded.get(name, "-")[0])
    again = []
    for name in differ:
        alone = [] if name == "the end" or "(" in name else [name]
        outcomes = {way: [results(build, tmp_path, python, module, way, alone).get(name, ("none", "")) for _ in range(3)] for way in (False, True)}
        if {o for o, _ in outcomes[False]} != {o for o, _ in outcomes[True]}:
            again.append("%s: bare %s, recorded %s\n%s" % (name, bare.get(name, "-")[0], recorded.get(name, "-")[0], recorded.get(name, ("", ""))[1]))
    print("%s of %s: %d tests, %d of them differed at first: %s" % (module, python.name, len(bare), len(differ), differ))
    assert not again, "\n".join(again)
