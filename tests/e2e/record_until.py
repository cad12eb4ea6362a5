# SPDX-License-Identifier: Apache-2.0
"""
The fixture record_until, for tests that need so many samples, or a sample of a certain function. How long that takes depends on the machine.

    from record_until import record_until  # noqa: F401
    done = record_until(lambda db: sql(db, "SELECT ...")[0][0] > 20, SCRIPT, "its argument", hz=1000)

The program must run until the file sys.argv[-1] exists. The fixture calls enough(db) again and again with a database of the recording so far,
and makes that file once the answer is true. Everything else is as with the fixture `record`.
"""
import concurrent.futures
import subprocess
import time

import pytest


@pytest.fixture
def record_until(build, record, convert, tmp_path):
    count = [0]

    def do(enough, script, *args, **kw):
        count[0] += 1
        trace, db, end = (tmp_path / ("until%d%s" % (count[0], what)) for what in (".zst", ".db", ".end"))

        def is_enough():
            if trace.exists():
                convert(trace, out=db, options=["-q", "-f"], check=None)  # it may hold nothing yet
            return db.exists() and enough(db)

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            recording = pool.submit(record, script, *(args + (end,)), out=trace, timeout=600, **kw)
            try:
                while not recording.done() and not is_enough():
                    time.sleep(0.1)
            except BaseException as error:  # mostly the test's time limit: say what there was then
                said = subprocess.run([build.tool("probing-convert"), "-f", trace, db], stderr=subprocess.PIPE, timeout=240, check=False).stderr
                listed = subprocess.run([build.tool("probing"), "list"], stdout=subprocess.PIPE, timeout=240, check=False).stdout
                raise AssertionError("not enough was recorded: %r; %s; %s" % (error, said.decode(), listed.decode())) from error
            finally:
                end.touch()
        return recording.result()

    return do
