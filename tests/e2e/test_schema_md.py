# SPDX-License-Identifier: Apache-2.0
"""converter/SCHEMA.md explains the database as it is made; whoever changes a view is told what is missing there."""
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def copy(tmp_path):
    for name in (".ci/schema-md.py", "converter/SCHEMA.md", "agent/python_api/probing/_columns.py", "traces/records.def"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "converter" / "schema", tmp_path / "converter" / "schema")
    return tmp_path


def generate(root, *words):
    done = subprocess.run([sys.executable, root / ".ci" / "schema-md.py"] + list(words), stderr=subprocess.PIPE, universal_newlines=True, check=False)
    return done.returncode, done.stderr


def test_it_is_of_this_tree():
    assert generate(ROOT, "--check") == (0, "")


def test_every_view_and_column_of_a_database(build, record, convert, sql):
    db = convert(record("pass\n").trace)
    text, sections = (ROOT / "converter" / "SCHEMA.md").read_text(), {}
    for part in text.split("\n### ")[1:]:
        sections[part.split("\n")[0]] = {line.split("`")[1] for line in part.splitlines() if line.startswith("| `")}
    for view, in sql(db, "SELECT name FROM sqlite_master WHERE type = 'view' AND name NOT LIKE '%\\_made' ESCAPE '\\'"):
        assert {name for name, in sql(db, "SELECT name FROM pragma_table_info('%s')" % view)} == sections[view], view
    for table, in sql(db, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"):
        assert "table " + table in sections or table + "s" in sections, table # `collective` holds the view collectives


@pytest.mark.parametrize("change,said", [
    (("converter/schema/50_views_traces.sql", "SELECT ts / 1e9 AS timestamp, id >> 40 AS trace_id, key, value FROM setting;",
      "SELECT ts / 1e9 AS timestamp, id >> 40 AS trace_id, key, value, 1 AS brand_new FROM setting;"), "config.brand_new is not explained"),
    (("converter/schema/columns.txt", "key          -      config.key\n", ""), "config.key is not explained"),
    (("converter/schema/columns.txt", "config.key\n", "config.kez\n"), "there is no config.kez"),
    (("converter/schema/columns.txt", "config.value\n", "converter\n"), "config.value: say what it means"),
    (("converter/schema/columns.txt", "view config\n", "view config\ngone - converter x\n"), "config.gone, which there is not"),
    (("converter/schema/columns.txt", "timestamp    s      config.ts\n", ""), "config.timestamp: say its source"),
    (("converter/schema/50_views_traces.sql", "-- Settings of the recording: their values at its beginning, and each change.\n", ""), "view config is not explained"),
    (("traces/records.def", "for example probing.sample_rate", "another text"), "SCHEMA.md is old")])
def test_what_is_missing_is_said(copy, change, said):
    assert generate(copy, "--check") == (0, "")
    path, was, to = change
    text = (copy / path).read_text()
    assert was in text
    (copy / path).write_text(text.replace(was, to, 1))
    code, told = generate(copy, "--check")
    assert code == 1 and said in told
    if "old" in said: # when it is generated anew, it is right
        assert generate(copy)[0] == 0 and generate(copy, "--check") == (0, "")
