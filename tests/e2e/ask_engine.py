# SPDX-License-Identifier: Apache-2.0
"""Asks the questions of questions.py about a Parquet data set with one engine, and prints JSON: {question: rows or error}.

usage: ask_engine.py ENGINE FOLDER, run by the Python that has the engines."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from questions import QUESTIONS, normal  # noqa: E402


def duckdb(folder):
    import duckdb as engine
    c = engine.connect()
    with open(os.path.join(folder, "views.duckdb.sql")) as f:
        c.execute(f.read())
    return lambda sql: c.execute(sql).fetchall()


def clickhouse(folder):
    from chdb.session import Session
    s = Session()
    s.query("CREATE DATABASE IF NOT EXISTS d ENGINE = Atomic; USE d; SET use_hive_partitioning = 0; SET joined_subquery_requires_alias = 0; "
            "SET prefer_column_name_to_alias = 1; SET union_default_mode = 'ALL'")
    with open(os.path.join(folder, "views.clickhouse.sql")) as f:
        for statement in f.read().split(";\n"):
            if statement.strip():
                s.query(statement)
    return lambda sql: [list(json.loads(line).values()) for line in
                        str(s.query(sql, "JSONEachRow")).splitlines() if line]


def polars(folder):
    import polars as pl
    from probing import _views
    c = pl.SQLContext(eager=True)
    for table in _views.tables(folder):
        c.register(table, pl.scan_parquet(os.path.join(folder, table, "*", "*", "*.parquet"), hive_partitioning=False))
    for name, _, sql in _views.VIEWS:
        try:
            c.register(name, c.execute(sql.replace("{q}", '"'), eager=False))
        except Exception as error:
            sys.stderr.write("polars: view %s: %s\n" % (name, error))
    return lambda sql: c.execute(sql).rows()


def spark(folder):
    from pyspark.sql import SparkSession
    s = (SparkSession.builder.master(os.environ.get("SPARK_MASTER_FOR_TEST", "local[2]")).config("spark.ui.enabled", "false")
         .config("spark.sql.shuffle.partitions", "4").config("spark.sql.session.timeZone", "UTC").getOrCreate())
    s.sparkContext.setLogLevel("ERROR")
    with open(os.path.join(folder, "views.spark.sql")) as f:
        for statement in f.read().split(";\n"):
            if statement.strip():
                s.sql(statement)
    return lambda sql: [tuple(r) for r in s.sql(sql).collect()]


def main():
    ask = globals()[sys.argv[1]](sys.argv[2])
    out = {}
    for name, sql in QUESTIONS:
        try:
            out[name] = normal(ask(sql))
        except Exception as error:
            out[name] = "%s: %s" % (type(error).__name__, str(error)[:400])
    print(json.dumps(out))


if __name__ == "__main__":
    main()
