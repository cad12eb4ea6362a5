# SPDX-License-Identifier: Apache-2.0
"""Triggers of kind exception: one that nobody caught leaves its traceback and the stacks of all threads in the trace, and `probing ask died` names its line."""
import re

import pytest
from conftest import PYTHONS, choose_pythons
from test_torch import find_torch
from test_triggers import EXCEPTION, HOOKED


@pytest.mark.parametrize("interpreter", choose_pythons(min=(3, 6)), ids=lambda p: p.name)
@pytest.mark.slow
def test_exceptions_everywhere(interpreter, record, convert, sql):
    check_exception(interpreter, record, convert, sql)


def test_exceptions(record, convert, sql):
    check_exception(PYTHONS[0], record, convert, sql)


def check_exception(interpreter, record, convert, sql):
    source = EXCEPTION + """
print(sys.excepthook is sys.__excepthook__, type(sys.excepthook).__name__)
inner(7)
"""
    done = record(source, check=1, python=interpreter)
    assert done.stdout == "True builtin_function_or_method\n"
    assert "ValueError: bad\nvalue 7\n" in done.stderr and done.stderr.count("Traceback") == 1
    db = convert(done.trace)
    (kind, detail, text, count), = sql(db, "SELECT kind, detail, text, stacks FROM triggers")
    assert (kind, detail, count) == ("exception", "ValueError: bad ... value 7", 2)
    traceback, message = text.split("\n\n")
    assert message == "bad\nvalue 7"
    lines = traceback.splitlines()
    assert [line.rsplit(" ", 1)[1] for line in lines] == ["<module>", "inner"] and str(done.script) in lines[0]
    assert ("bystander",) in sql(db, "SELECT func FROM trigger_stacks")


@pytest.mark.parametrize("text", ["", "a"])
def test_long_exception(record, convert, sql, text):
    """The text is cut between characters."""
    done = record(HOOKED + "wait_for_agent()\nraise ValueError(%r + '\\u00e9' * 300)\n" % text, check=1, python=PYTHONS[0])
    (detail,), = sql(convert(done.trace), "SELECT detail FROM triggers")
    assert detail.startswith("ValueError: %s\u00e9" % text) and set(detail[12 + len(text):]) == {"\u00e9"} and len(detail.encode()) > 250


WORKER = "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n" + \
    "".join('  File "loop.py", line %d, in fetch\n    data = fetcher.fetch(index)\n' % n for n in range(40)) + "ValueError: sample 17 is bad\n"


def test_a_message_of_many_lines(build, run, record, convert, sql):
    """What a worker raised stands in the last line, as torch's DataLoader and others put it; where it was raised is the traceback's last line."""
    done = record(HOOKED + "wait_for_agent()\ndef reraise(): raise ValueError(%r)\nreraise()\n" % WORKER, check=1, python=PYTHONS[0])
    db = convert(done.trace)
    (detail, text), = sql(db, "SELECT detail, text FROM triggers")
    assert detail == "ValueError: Caught ValueError in DataLoader worker process 0. ... ValueError: sample 17 is bad"
    assert text.split("\n\n", 1)[1].rstrip("\n") == WORKER.rstrip("\n")
    answer = run([build.tool("probing"), "ask", "died", db]).stdout.splitlines()[0]
    assert answer.split(detail + ", ")[1] == 'File "loop.py", line 39, in fetch, raised again in reraise (%s:21)' % done.script.name
    # A message that is longer than what is kept of it ends amid the worker's traceback: the innermost line is not known.
    done = record(HOOKED + "wait_for_agent()\ndef reraise(): raise ValueError(%r)\nreraise()\n" % WORKER.replace("data =", "data =" * 40), check=1, python=PYTHONS[0])
    answer = run([build.tool("probing"), "ask", "died", done.trace]).stdout.splitlines()[0]
    assert answer.endswith('File "%s", line 21, in reraise' % done.script)


@pytest.mark.parametrize("pool", ["multiprocessing.Pool(1)", "concurrent.futures.ProcessPoolExecutor(1)"])
def test_an_exception_of_a_pool_s_worker(build, run, record, pool):
    """The worker's traceback is the text of the exception's cause; the exception's own shows only where the result was asked for."""
    program = HOOKED + "import concurrent.futures, json, multiprocessing\nwait_for_agent()\n" + \
        "def read(text):\n    return json.loads(text)\ndef gather():\n    list(%s.map(read, ['{']))\ngather()\n" % pool
    done = record(program, check=1, python=PYTHONS[0])
    line = program.count("\n")
    answer = run([build.tool("probing"), "ask", "died", done.trace]).stdout.splitlines()[0]
    assert re.search(r'exception JSONDecodeError: .*, File ".*/json/decoder.py", line \d+, in \w+, called by read \(%s:%d\), raised again in gather \(%s:%d\)$'
                     % (done.script.name, line - 3, done.script.name, line - 1), answer), answer


@pytest.mark.slow
def test_an_exception_of_a_real_data_loader_s_worker(build, run, record):
    path, why = find_torch("debian")
    if not path:
        pytest.skip(why)
    program = "import time, torch.utils.data\n" + HOOKED + """wait_for_agent()
class Data:
    def __len__(self): return 4
    def __getitem__(self, i): return self.parse(i)
    def parse(self, i): raise ValueError("record %d has no label" % i)
for _ in torch.utils.data.DataLoader(Data(), num_workers=1): pass
"""
    done = record(program, check=1, python=path)
    answer = run([build.tool("probing"), "ask", "died", done.trace]).stdout.splitlines()[0]
    assert re.search(r'exception ValueError: Caught ValueError in DataLoader worker process 0. ... ValueError: record 0 has no label, File "%s", line %d, in parse, raised again in <module> \(%s:%d\)$'
                     % (done.script, program.count("\n") - 1, done.script.name, program.count("\n")), answer), answer


@pytest.mark.pythons(min=(3, 8), count=1)
def test_exception_in_a_thread_and_system_exit(python, record, convert, sql):
    done = record(EXCEPTION + """
t = threading.Thread(target=inner, args=("t",)); t.start(); t.join()
t = threading.Thread(target=sys.exit); t.start(); t.join()
sys.exit(3)
""", check=3, python=python)
    db = convert(done.trace)
    assert sql(db, "SELECT kind, detail FROM triggers") == [("exception", "ValueError: bad ... value t")]
