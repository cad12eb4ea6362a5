# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of `probing ask`: running it, and changing a database for it."""
import json
import sqlite3

import pytest

# SQL, after a change of the calls: what is derived from them when a database is made
MADE_ANEW = "DELETE FROM collective; INSERT INTO collective SELECT * FROM collectives_made; DELETE FROM hang; INSERT INTO hang SELECT * FROM hangs_made;"


def ask(build, run, name, *args, code=0):
    done = run([build.tool("probing"), "ask", name, "--json"] + list(args), check=code)
    parts = {p["title"]: p["rows"] for p in json.loads(done.stdout)} if done.stdout else {}
    answer = parts.pop("answer", [{}])
    return answer[0].get("answer", done.stderr), list(parts.values())


def edited(db, tmp_path, script):
    """Returns a copy of the database in which the SQL script has run."""
    copy = tmp_path / "edited.db"
    copy.write_bytes(db.read_bytes())
    with sqlite3.connect(str(copy)) as c:
        if "Work::wait" in script and not c.execute("SELECT 1 FROM frame WHERE name GLOB 'c10d::Work::wait*' LIMIT 1").fetchone():
            pytest.skip("the libraries of the simulated jobs' stacks are not here")
        c.executescript(script)
    c.close()
    return copy
