# SPDX-License-Identifier: Apache-2.0
"""Reads the traces of a folder with Spark's data source and prints JSON. Usage: spark_cluster.py MASTER FOLDER [kill]

With `kill` it kills an executor while tasks run. test_engines_spark.py runs it with the Python that has the engines."""
import json
import os
import signal
import sys
import threading
import time

from pyspark.sql import SparkSession

import probing.spark


def executors():
    """Returns the pids of this program's executors: Java processes that have inherited its mark."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                line = f.read()
            with open("/proc/%s/environ" % pid, "rb") as f:
                mine = MARK in f.read()
        except OSError:
            continue
        if mine and b"CoarseGrainedExecutorBackend" in line:
            found.append(int(pid))
    return found


def kill_one(killed, done):
    """Kills an executor soon after tasks have begun to run."""
    while not done.is_set():
        time.sleep(0.2)
        pids = executors()
        if len(pids) > 1 and tracker.getActiveStageIds():
            time.sleep(1)
            os.kill(pids[0], signal.SIGKILL)
            killed.append(pids[0])
            return


master, folder = sys.argv[1:3]
os.environ["SPARK_TEST_MARK"] = "m%d" % os.getpid()
MARK = os.environ["SPARK_TEST_MARK"].encode()
spark = (SparkSession.builder.master(master).config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC")
         .config("spark.sql.shuffle.partitions", "2").config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"]).getOrCreate())
spark.sparkContext.setLogLevel("OFF")
tracker = spark.sparkContext.statusTracker()
probing.spark.register(spark)
killed, done = [], threading.Event()
if sys.argv[3:] == ["kill"]:
    threading.Thread(target=kill_one, args=(killed, done), daemon=True).start()
read = spark.read.format("probing")
begun = time.time()
samples = [list(r) for r in read.load(folder).groupBy("rank").agg({"count": "sum", "seconds": "sum", "*": "count"}).orderBy("rank").collect()]
seconds = time.time() - begun
done.set()
middle = read.load(folder).selectExpr("min(timestamp)", "max(timestamp)").collect()[0]
cut = read.load(folder).where("rank IN (1, 2)").where(
    "timestamp >= timestamp'%s' AND timestamp < timestamp'%s'" % (middle[0] + (middle[1] - middle[0]) / 2, middle[1])).groupBy("rank").count().collect()
steps = read.option("table", "steps").load(folder).where("rank = 0").count() if not killed else None
problems = [list(r) for r in spark.read.format("probing").option("table", "problems").load(folder).collect()]
print(json.dumps({"samples": samples, "cut": sorted(map(list, cut)), "steps": steps, "problems": problems, "killed": len(killed), "seconds": seconds,
                  "traces": len(probing.spark.files_of(folder)), "middle": [str(m) for m in middle]}))
spark.stop()
