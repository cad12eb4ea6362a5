# SPDX-License-Identifier: Apache-2.0
"""Programs that work by themselves: notebooks and clusters that a script starts, bare, recorded and injected into; and other people's test
suites, bare and recorded, in which each test must have the same outcome (servers_session.py)."""
import shutil
import subprocess
import xml.etree.ElementTree as xml

import pytest
import servers_session
from conftest import kill_group
from servers_session import compare_script, needs, summary

pytestmark = [pytest.mark.slow, pytest.mark.limit(1200)]
interpreter = servers_session.interpreter  # a fixture

# Each prints "pids ..." with its important processes when it is at work, and at last its results as JSON.
SCRIPTS = {
    "jupyter": (["jupyter_client", "ipykernel", "nbclient", "nbformat"], '''
import asyncio, json, time
import nbformat
from nbclient import NotebookClient
from jupyter_client.manager import start_new_kernel

def run(km, kc, code):
    said = []
    reply = kc.execute_interactive(code, timeout=240, output_hook=lambda m: said.append(m["content"].get("text", "")))
    return reply["content"]["status"], reply["content"].get("ename"), "".join(said)

km, kc = start_new_kernel()
first = run(km, kc, "import os; from work import handle, answer; print(os.getpid())")
print("pids", first[2].strip(), flush=True)
found = [run(km, kc, "print(handle(%d))" % n) for n in range(150)]
# Ctrl-C in the notebook
kc.execute("import time\\nfor i in range(1000): time.sleep(.1)", stop_on_error=False)  # else the next one may be aborted with it
time.sleep(1.5)
km.interrupt_kernel()
while True:
    reply = kc.get_shell_msg(timeout=240)
    if reply["content"]["status"] == "error":
        found.append(("interrupted", reply["content"]["ename"]))
        break
found.append(run(km, kc, "%time\\nprint(sum(handle(n) for n in range(100)))")[0])
found.append(run(km, kc, "import threading, asyncio\\nawait asyncio.sleep(.1)\\nprint(1/0)")[:2])
kc.stop_channels()
km.shutdown_kernel()
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("from work import handle\\nhandle(%d)" % n) for n in range(20)])
NotebookClient(book).execute()
found.append([c.outputs[0]["data"]["text/plain"] for c in book.cells])
print(json.dumps(found))
'''),
    "dask": (["distributed"], '''
import json, os, sys
from distributed import Client, LocalCluster
from work import answer, handle

if __name__ == "__main__":
    cluster = LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None)
    client = Client(cluster)
    print("pids", os.getpid(), *client.run(os.getpid).values(), flush=True)
    values = [int(a.split()[1]) for a in client.gather(client.map(answer, range(400), pure=False))]
    again = client.submit(sum, client.map(handle, range(50))).result()
    import time
    time.sleep(1)
    client.close()
    cluster.close()
    print(json.dumps([values, again]))
'''),
    "ray": (["ray"], '''
import json, os
os.environ["RAY_raylet_start_wait_time_s"] = "300"
import ray
from work import handle

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

@ray.remote
def task(n):
    return os.getpid(), handle(n)

@ray.remote
class Counter:
    def __init__(self):
        self.sum = 0
    def add(self, n):
        self.sum += handle(n)
        return self.sum

pids = {pid for pid, _ in ray.get([task.remote(n) for n in range(20)])}
print("pids", os.getpid(), *pids, flush=True)
values = [v for _, v in ray.get([task.remote(n) for n in range(1500)])]
counter = Counter.remote()
sums = ray.get([counter.add.remote(n) for n in range(50)])
mine = [handle(n) for n in range(1000)]
ray.shutdown()
print(json.dumps([values, sums, mine]))
'''),
    "pyspark": (["pyspark"], '''
import json, os
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from work import handle

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
print("pids", os.getpid(), flush=True)
values = spark.sparkContext.parallelize(range(400), 8).map(handle).collect()
frame = spark.range(200).select(udf(handle, "long")("id").alias("v"))
total = frame.agg({"v": "sum"}).collect()[0][0]
mine = [handle(n) for n in range(200)]
spark.stop()
print(json.dumps([values, total, mine]))
'''),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(build, tmp_path, interpreter, name):
    modules, text = SCRIPTS[name]
    needs(interpreter, *modules)
    if name == "pyspark" and not shutil.which("java"):
        pytest.skip("there is no java (Debian: openjdk-17-jre-headless)")
    compare_script(build, tmp_path, interpreter, name, text)



# ---- test suites ------------------------------------------------------------------------------------------------------------

SUITES = {
    "tornado": (["tornado", "pytest"], ["--pyargs", "tornado.test"]),
    "twisted": (["twisted", "pytest"], ["--continue-on-collection-errors", "--pyargs", "twisted.internet.test", "twisted.test.test_process"]),
    "numpy": (["numpy", "pytest", "hypothesis"], ["--pyargs", "numpy._core.tests.test_numeric", "numpy._core.tests.test_umath",
                                                  "numpy._core.tests.test_mem_policy", "numpy.random.tests", "numpy.linalg.tests"]),
    "pandas": (["pandas", "pytest", "hypothesis"], ["--pyargs", "pandas.tests.series.methods", "pandas.tests.io.parser.test_multi_thread"]),
    "networkx": (["networkx", "pytest"], ["--pyargs", "networkx.classes", "networkx.algorithms.shortest_paths"]),
    "sympy": (["sympy", "pytest"], ["--pyargs", "sympy.core.tests", "sympy.utilities.tests"]),
}


def outcomes(build, where, python, args, way):
    where.mkdir(exist_ok=True)
    report, out = where / "report.xml", where / "output"
    prefix = [build.tool("probing-record"), "-q", "-r", "1000", "-o", where / "t.zst", "--"] if way == "recorded" else []
    cmd = prefix + [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--junitxml", report] + args
    with open(str(out), "w") as f:
        process = subprocess.Popen([str(c) for c in cmd], cwd=str(where), stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            end = process.wait(timeout=1000)
        except subprocess.TimeoutExpired:
            end = "hung"
        kill_group(process)
    if not report.exists():
        return end, {}, out.read_text()[-3000:]
    found = {}
    for case in xml.parse(str(report)).iter("testcase"):
        kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[case.get("classname", "") + "::" + case.get("name", "")] = kinds[0] if kinds else "ok"
    return end, found, out.read_text()[-3000:]


@pytest.mark.limit(3600)
@pytest.mark.parametrize("name", SUITES)
def test_suite(build, tmp_path, interpreter, name):
    modules, args = SUITES[name]
    needs(interpreter, *modules)
    end, bare, said = outcomes(build, tmp_path / "bare", interpreter, args, "bare")
    assert len(bare) > 10, (end, said)
    recorded_end, recorded, said = outcomes(build, tmp_path / "recorded", interpreter, args, "recorded")
    differ = {n: (bare.get(n), recorded.get(n)) for n in set(bare) | set(recorded) if bare.get(n) != recorded.get(n)}
    summary(name, "recorded", "%d tests, end %s" % (len(bare), end), "%d tests, end %s" % (len(recorded), recorded_end), "%d differ" % len(differ))
    if differ:  # some tests fail now and then by themselves
        _, bare_again, _ = outcomes(build, tmp_path / "bare2", interpreter, args, "bare")
        _, again, said = outcomes(build, tmp_path / "recorded2", interpreter, args, "recorded")
        differ = {n: way for n, way in differ.items() if again.get(n) not in (bare.get(n), bare_again.get(n))}
    assert not differ, (differ, said)
