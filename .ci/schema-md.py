#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes converter/SCHEMA.md: every view and column of a database, with unit and source, and the tables under them. Makes probing/_columns.py
of it, too: the same words for the columns of a Parquet data set.

    .ci/schema-md.py          writes both (make schema-md)
    .ci/schema-md.py --check  prints what is missing, wrong or outdated, and then ends with exit code 1 (make lint)

It is made of the comments in converter/schema/*.sql, of converter/schema/columns.txt and of traces/records.def. The views are those that
SQLite makes of the schema, so columns without an explanation are found.
"""
import difflib
import glob
import json
import os
import re
import sqlite3
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SQL = sorted(glob.glob(os.path.join(ROOT, "converter/schema/*.sql")))
COLUMNS = os.path.join(ROOT, "converter/schema/columns.txt")
RECORDS = os.path.join(ROOT, "traces/records.def")
OUT = os.path.join(ROOT, "converter/SCHEMA.md")
PYTHON = os.path.join(ROOT, "agent/python_api/probing/_columns.py")
UNITS = ("% of one CPU", "of 1") # the units of more than one word

HEAD = """<!-- Made by .ci/schema-md.py (make schema-md) of schema/*.sql, schema/columns.txt and ../traces/records.def: change those. -->
# What is in a database

`probing-convert` writes one SQLite database of any number of traces; `probing query` asks traces by the same names. **Ask the views**: their names
and columns are stable. Times are seconds since the epoch (UTC), durations seconds, where nothing else is said; `MB` is 1e6 bytes. The
tables under them may change between versions; times there are integer nanoseconds, column `ts`. `PRAGMA user_version` is the version of all that.

In SQLite's own shell, and in programs that read the file, a time is compared with a number: `WHERE timestamp > unixepoch('2026-11-27 13:00')`
(before SQLite 3.38 `strftime('%s', '2026-11-27 13:00') + 0`), `datetime(timestamp, 'unixepoch')` shows it. To SQLite every text is more than any
number: **`timestamp > '2026-11-27'` is true of no row there and `<` of all, without an error.** `probing query` takes such a text for the time
that it is; with the extension (`.load PREFIX/lib/probing/probing`) it is `to_timestamp('2026-11-27')`.

*Source* is the field of the trace (`record.field` of [records.def](../traces/records.def), which says how it was measured), another view's
column, or the converter itself.
"""

PYTHON_HEAD = """# SPDX-License-Identifier: Apache-2.0
\"\"\"What the columns of the views mean, by (view, column), or by column alone. Made by .ci/schema-md.py (make schema-md).\"\"\"
MEANINGS = {"""


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def records():
    """{record: {field: doc}}"""
    found = {}
    for name, field, doc in re.findall(r'^FIELD\((\w+), (\w+), \w+, \w+, "((?:[^"\\]|\\.)*)"\)', read(RECORDS), re.M):
        found.setdefault(name, {})[field] = doc.replace('\\"', '"')
    return found


def schema():
    """Returns the views and their columns, in the order of the files; the comment above each object, and its statement; and the objects of
    each file."""
    db = sqlite3.connect(":memory:")
    comments, code, files = {}, {}, {}
    for path in SQL:
        text = read(path)
        if "--@ after load" in text:  # this file fills tables from views, which would need rows
            for stored, view in re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(?:main\.)?(\w+) AS SELECT \* FROM (\w+_made)(?: LIMIT 0)?;", text):
                db.execute("CREATE TABLE IF NOT EXISTS %s AS SELECT * FROM %s WHERE 0" % (stored, view))
            continue
        db.executescript(text)
        for comment, statement, kind, name in re.findall(
                r"((?:^--[^\n]*\n)*)(^CREATE (?:TEMP )?(VIEW|TABLE) \"?(\w+)\"?.*?;$)", re.sub(r";[ \t]+--[^\n]*$", ";", text, flags=re.M), re.M | re.S):
            lines = [line[2:].strip() for line in comment.splitlines() if "SPDX" not in line and not line.startswith("--@")]
            comments[name], code[name] = "\n".join(lines).strip(), statement
            files.setdefault(os.path.basename(path), []).append((kind, name))
    views = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'view' ORDER BY rowid")]
    columns = {}
    for view in views:
        columns[view] = [row[1] for row in db.execute('PRAGMA table_info("%s")' % view)]
    for view in list(columns):
        if view.endswith("_made"):
            comments[view[:-5]] = comments[view]
            del columns[view]
    return columns, comments, code, files


def explained():
    """{view: {column: (unit, source, meaning)}}"""
    found, view = {}, None
    for number, line in enumerate(read(COLUMNS).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("view "):
            view = found.setdefault(line.split()[1], {})
            continue
        column, rest = line.split(None, 1)
        unit = next((u for u in UNITS if rest.startswith(u + " ")), None) or rest.split()[0]
        parts = rest[len(unit):].split(None, 1)
        if view is None or not parts:
            sys.exit("converter/schema/columns.txt:%d: COLUMN UNIT SOURCE MEANING" % number)
        view[column] = (unit, parts[0], parts[1].strip() if len(parts) > 1 else "")
    return found


def python_of(told):
    """Returns the module that has the words about each column, those that several views share once."""
    times = {}
    for (_, column), meaning in told.items():
        times[column, meaning] = times.get((column, meaning), 0) + 1
    shared = {column: meaning for (column, meaning), n in sorted(times.items(), key=lambda item: item[1]) if n > 1}
    lines = ["    (%s, %s): %s," % (json.dumps(v), json.dumps(c), json.dumps(m)) for (v, c), m in sorted(told.items()) if shared.get(c) != m]
    return "\n".join([PYTHON_HEAD] + ["    %s: %s," % (json.dumps(c), json.dumps(m)) for c, m in sorted(shared.items())] + lines + ["}", ""])


def main():
    bad, fields = [], records()
    columns, comments, code, files = schema()
    words, told = explained(), {}

    def row(view, column):
        shared = words["*"].get(column)
        said = words.get(view, {}).get(column) or shared
        if not said:
            bad.append("%s.%s is not explained: add it to converter/schema/columns.txt" % (view, column))
            return "| `%s` | | | |" % column
        unit, source, meaning = said
        if source == "-":
            bad.append("%s.%s: say its source in converter/schema/columns.txt" % (view, column))
            source = "converter"
        meaning = meaning or (shared[2] if shared else "")
        for one in source.split(","):
            place, _, name = one.partition(".")
            known = one == "converter" or name in fields.get(place, {}) or name in columns.get(place, ())
            if not known:
                bad.append("%s.%s: there is no %s (a record's field, a view's column, or converter)" % (view, column, one))
        if not meaning:
            place, _, name = source.split(",")[0].partition(".")
            meaning = fields.get(place, {}).get(name, "")
            if not meaning:
                bad.append("%s.%s: say what it means" % (view, column))
        told[view, column] = meaning if unit in ("-", "0/1") else "%s (%s)" % (meaning, unit)
        shown = ", ".join("`%s`" % s if "." in s else s for s in source.split(","))
        return "| `%s` | %s | %s | %s |" % (column, "" if unit == "-" else unit, shown, meaning.replace("|", "\\|"))

    out = [HEAD, "## Views\n", " ".join("[%s](#%s)" % (v, v) for v in sorted(columns)) + "\n"]
    for view in columns:
        out.append("### %s\n" % view)
        if not comments.get(view):
            bad.append("view %s is not explained: add a comment above it" % view)
        out.append(comments.get(view, "") + "\n")
        out += ["| column | unit | source | |", "|---|---|---|---|"] + [row(view, c) for c in columns[view]] + [""]
    for view in words:
        for column in words[view]:
            if view != "*" and column not in columns.get(view, ()):
                bad.append("converter/schema/columns.txt explains %s.%s, which there is not" % (view, column))
    out.append("## Tables\n")
    for name in files:
        for kind, table in files[name]:
            if kind == "TABLE":
                out += ["### table %s\n" % table, (comments[table] + "\n" if comments[table] else ""), "```sql", code[table], "```", ""]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(out))
    for line in bad:
        print(line, file=sys.stderr)
    for path, new in ((OUT, text), (PYTHON, python_of(told))):
        if "--check" not in sys.argv[1:]:
            with open(path, "w", encoding="utf-8") as f:
                f.write(new)
        elif not os.path.exists(path) or read(path) != new:
            old = read(path).splitlines() if os.path.exists(path) else []
            print("%s is old: make schema-md" % os.path.relpath(path, ROOT), file=sys.stderr)
            print("\n".join(list(difflib.unified_diff(old, new.splitlines(), "is", "would be", lineterm="", n=0))[:20]), file=sys.stderr)
            bad.append("old")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
