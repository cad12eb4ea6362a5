# SPDX-License-Identifier: Apache-2.0
"""Rows as a stream of Arrow's IPC format, from `probing query` and over HTTP, as other people's readers see them."""
import json
import subprocess

from engine_helpers import engine  # noqa: F401
from test_serve import database, serve  # noqa: F401

READERS = """
import io, json, sys
import duckdb, polars, pyarrow.ipc
raw = open(sys.argv[1], "rb").read()
batches = list(pyarrow.ipc.open_stream(raw))
for b in batches:
    b.validate(full=True)
table = pyarrow.ipc.open_stream(raw).read_all()
plain = lambda v: v.hex() if isinstance(v, bytes) else v.timestamp() if hasattr(v, "timestamp") else v
print(json.dumps({"types": [str(t) for t in table.schema.types], "batches": len(batches), "rows": [[plain(v) for v in r.values()] for r in table.to_pylist()],
    "polars": [[plain(v) for v in r] for r in polars.read_ipc_stream(io.BytesIO(raw)).iter_rows()],
    "duckdb": [[plain(v) for v in r.values()] for r in duckdb.sql("SELECT * FROM table").fetch_arrow_table().to_pylist()]}))
""".replace("FROM table", "FROM answer").replace("table = ", "answer = ").replace("table.", "answer.")
MIXED = ("SELECT 1 AS i, 2.5 AS f, 't\u00ebxt' AS t, NULL AS n, x'00ff' AS b UNION ALL SELECT NULL, 3, 7, NULL, NULL"
         " UNION ALL SELECT -9007199254740993, NULL, '', NULL, 'abc' UNION ALL SELECT 4.0, 0.1, 1.5, NULL, x'' UNION ALL SELECT 5, 5, CAST(x'61ff62' AS TEXT), NULL, NULL")
ROWS = [[1, 2.5, "t\u00ebxt", None, "00ff"], [None, 3.0, "7", None, None], [-9007199254740993, None, "", None, "616263"], [4, 0.1, "1.5", None, ""],
        [5, 5.0, "a\ufffdb", None, None]]
COUNT = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 20000) "


def stream(build, database, sql):  # noqa: F811
    return subprocess.run([str(build.tool("probing")), "query", "--format", "arrow", str(database), sql], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240)


def test_readers(build, serve, database, engine, tmp_path):  # noqa: F811
    """Readers get every type, NULL, and text that is not UTF-8, also over HTTP; more than one batch, one row, no row, and a column whose
    type nothing tells."""
    def read(raw):
        (tmp_path / "rows.arrows").write_bytes(raw)
        return json.loads(engine(["-c", READERS, tmp_path / "rows.arrows"], "pyarrow", "polars", "duckdb"))
    done = stream(build, database, MIXED.replace("SELECT 4.0,", "SELECT 4,"))
    got = read(done.stdout)
    assert got["types"] == ["int64", "double", "string", "double", "binary"] and got["batches"] == 1
    assert got["rows"] == got["polars"] == got["duckdb"] == ROWS
    server = serve(database)
    status, headers, body = server.query(MIXED.replace("SELECT 4.0,", "SELECT 4,"), format="arrow")
    assert status == 200 and body == done.stdout
    sql = COUNT + "SELECT x, x / 8.0 AS eighth, 'row ' || x AS t, iif(x % 3, x, NULL) AS some FROM c"
    got = read(server.query(sql, format="arrow")[2])
    assert got["batches"] == 3 and got["rows"] == got["duckdb"] == got["polars"] == [[x, x / 8, "row %d" % x, x if x % 3 else None] for x in range(1, 20001)]
    # Times of the views may be NULL or infinite, or whole seconds; a column's name alone does not make times of integers or text.
    sql = ("SELECT column1 AS timestamp, column2 AS start, column3 AS \"end\" FROM (VALUES (1732480496.25, 5, '13:00'), (NULL, 6, 'x'), (1732480497, 7, NULL), (9e999, 8, 'y'))")
    got = read(server.query(sql, format="arrow")[2])
    assert got["types"] == ["timestamp[ns, tz=UTC]", "int64", "string"]
    assert got["rows"] == got["polars"] == got["duckdb"] == [[1732480496.25, 5, "13:00"], [None, 6, "x"], [1732480497.0, 7, None], [None, 8, "y"]]
    assert read(stream(build, database, sql).stdout) == got
    got = read(stream(build, database, "SELECT 1 AS a, 'x' AS b WHERE 0").stdout)
    assert got["rows"] == [] and got["types"] == ["double", "double"]


def test_a_column_of_two_types(build, database):  # noqa: F811
    """The error names the column and says what decided its type; it comes before the first batch is written."""
    done = stream(build, database, COUNT + "SELECT iif(x < 15000, x, 'late') AS v FROM c")
    assert done.returncode == 3 and b"column v began with integers, then came text: CAST(... AS TEXT)" in done.stderr
    done = stream(build, database, "SELECT * FROM nowhere")
    assert done.returncode == 3 and done.stdout == b""
    done = stream(build, database, COUNT + "SELECT CAST(iif(x < 15000, x, 'late') AS TEXT) AS v FROM c")
    assert done.returncode == 0 and b"late" in done.stdout
