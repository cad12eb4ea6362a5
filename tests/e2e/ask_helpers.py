# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of `probing ask`: running it, and changing a database for it."""
import json
import sqlite3

import pytest

# SQL, after a change of the calls: what is derived from them when a database is made
MADE_ANEW = "DELETE FROM collective; INSERT INTO collective SELECT * FROM collectives_made; DELETE FROM hang; INSERT INTO hang SELECT * FROM hangs_made; INSERT INTO hang SELECT * FROM hangs_late_made;"

# SQL that makes a hang of a job: rank 3 never came to a call that ranks 0 to 2 and 4 to 7 entered within 3 ms, at MOMENT; all ranks are
# killed four seconds later.
MOMENT = "(SELECT min(ts) FROM comm WHERE flags & 1)"
ALL_KILLED = "UPDATE trace_file SET end_ts = (SELECT max(ts) FROM comm WHERE flags & 1) + 4000000000 WHERE rank IS NOT NULL;"
DIES = "UPDATE trace_file SET end_ts = %s + 100000000 WHERE rank = 3;" % MOMENT
# In these ranks the call ends, or raises, 200 ms after they entered it.
FAILS = "UPDATE comm SET flags = %d, duration = 200000000 WHERE flags & 1 AND id >> 40 IN (SELECT id FROM trace_file WHERE rank IN (%s));"
AT_LAST = "UPDATE trace_file SET end_ts = end_ts - 3400000000 WHERE rank <> 3;"
TERMED = "INSERT INTO trigger_event SELECT f.last_id - 1, %s + %%d, 'term', f.pid, NULL, NULL, 'SIGTERM sent by pid ' || %%s, NULL FROM trace_file f WHERE %%s;" % MOMENT
RAISES = "INSERT INTO trigger_event SELECT f.last_id - 1, %s + %%d, 'exception', f.pid, NULL, NULL, '%%s', 'File \"x\"' FROM trace_file f WHERE rank IN (%%s);" % MOMENT
# A process that rank %d has started, which inherits its rank number.
CHILD = "CREATE TEMP TABLE x AS SELECT * FROM trace_file WHERE rank = %d; UPDATE x SET id = 99, first_id = 99 << 40, last_id = (100 << 40) - 1, ppid = pid, pid = 7; INSERT INTO trace_file SELECT * FROM x;"
OTHERS = "0, 1, 2, 4, 5, 6, 7"
# In each rank one call more, which was not waited for before the first was made.
ONE_MORE = "INSERT INTO comm SELECT f.last_id - 9, c.ts + 1000000, c.tid, c.pg, c.seq + 1, c.op, c.bytes, c.dtype, c.duration, 0, NULL, NULL, 8 FROM comm c JOIN trace_file f ON f.id = c.id >> 40 WHERE c.flags & 8;"
CAME = "INSERT INTO comm SELECT f.last_id, c.ts, c.tid, c.pg, c.seq, c.op, c.bytes, c.dtype, 90000000, 0, NULL, NULL, 1 FROM comm c, trace_file f WHERE c.flags & 1 AND f.rank = 3 LIMIT 1;"


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


def in_segments(db):
    """Changes the database: each rank's recording went on in another trace (segment_size) at the middle of its communication."""
    with sqlite3.connect(str(db)) as c:
        c.execute("UPDATE trace_file SET program = id")
        last, = c.execute("SELECT max(id) FROM trace_file").fetchone()
        columns = ", ".join(name for _, name, *_ in c.execute("PRAGMA table_info(trace_file)") if name not in ("id", "file", "first_id", "last_id"))
        for trace, in c.execute("SELECT id FROM trace_file ORDER BY id").fetchall():
            last += 1
            c.execute("INSERT INTO trace_file(id, file, first_id, last_id, %s) SELECT ?1, file || '.2', ?1 << 40, ?1 << 40 | 0xffffffffff, %s FROM trace_file WHERE id = ?2"
                      % (columns, columns), (last, trace))
            c.execute("INSERT INTO process_group SELECT ?, pg, name, backend, rank, size, list, desc FROM process_group WHERE trace = ?", (last, trace))
            middle, = c.execute("SELECT (min(ts) + max(ts)) / 2 FROM comm WHERE id >> 40 = ?", (trace,)).fetchone()
            names = [name for _, name, *_ in c.execute("PRAGMA table_info(thread)")]
            c.execute("INSERT INTO thread SELECT %s FROM thread WHERE trace = ?2" % ", ".join({"id": "id + ((?1 - ?2) << 40)", "trace": "?1"}.get(n, n) for n in names), (last, trace))
            c.execute("UPDATE trace_file SET start_ts = ? WHERE id = ?", (middle, last))
            c.execute("UPDATE trace_file SET end_ts = ?, end_reason = 'rotated', finish_ts = NULL WHERE id = ?", (middle, trace))
            for table in ("comm", "torch_call", "torch_step", "sample", "cpu", "network"):
                c.execute("UPDATE %s SET id = id + ((?1 - ?2) << 40) WHERE id >> 40 = ?2 AND ts > ?3" % table, (last, trace, middle))
    c.close()
