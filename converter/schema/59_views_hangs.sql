-- SPDX-License-Identifier: Apache-2.0
-- Why it hangs: a row for each rank that keeps others waiting to the end of their recordings. The first cause comes first.
--   since, waited     when the first of them began to wait; how long that was until its recording ended
--   rank, state       who, and what is wrong: 'never came'; 'dead', 'ended' (its recording ended before; at its program's end), 'not recorded' (there is no trace of it);
--                     'other call', 'other size' (it came to this call of the group with another operation, or another number of
--                     bytes); 'raised' (its call raised an exception); 'waits itself' (for others; does says in what); 'all came' (rank NULL: nobody is missing, and
--                     it is not complete), 'from anybody' (rank NULL: whoever sends)
--   cause             1: it does not wait for others itself, so that it is where the hang began
--   group, seq, op    the collective (or message) that is not complete; waiting, waiters: how many wait in it, and who
--   level             0: it waits for a cause; 1: for somebody who waits at level 0, and so on; NULL: for a circle of ranks that all wait
--   does              where that rank's main thread was at last: the innermost Python function, and who called it in the user's code
CREATE VIEW hangs_made AS
WITH waiting AS MATERIALIZED ( -- of a group's collectives the first one that a rank waits in: what it began after it waits for that
  SELECT * FROM (
    SELECT t.run, t.id AS trace, coalesce(t.rank, o.rank) AS rank, c.pg, coalesce(g.name, 'group ' || c.pg) AS "group", g.list, c.seq, c.op,
      c.bytes, c.ts, t.end_ts - c.ts AS duration, t.end_ts, c.src, c.dst,
      (SELECT min(e.ts) FROM trigger_event e WHERE e.id BETWEEN t.first_id AND t.last_id AND e.kind = 'term') AS term_ts, c.op IN ('send', 'recv') AS message,
      row_number() OVER (PARTITION BY t.id, c.pg, CASE WHEN c.op IN ('send', 'recv')
        THEN c.op || coalesce(c.src, '') || '/' || coalesce(c.dst, '') END ORDER BY c.ts, c.id) AS nth
    FROM comm c JOIN trace_file t ON t.id = c.id >> 40 LEFT JOIN process_group g ON g.trace = t.id AND g.pg = c.pg
    LEFT JOIN group_rank o ON o.list = g.list AND o.idx = g.rank
    WHERE c.flags & 1) WHERE nth = 1
), waits AS MATERIALIZED ( -- and those whose call of the same number was another operation: also where it went through, as gloo lets it for some of them
  SELECT * FROM waiting UNION ALL
  SELECT t.run, t.id, coalesce(t.rank, o.rank), c.pg, x."group", g.list, c.seq, c.op, c.bytes, c.ts, t.end_ts - c.ts, t.end_ts, c.src, c.dst, NULL, 0, 1
  FROM (SELECT DISTINCT run, "group", seq, op FROM waiting WHERE NOT message) x
  JOIN collective k ON k.run IS x.run AND k."group" = x."group" AND k.seq = x.seq AND k.op <> x.op
  CROSS JOIN comm c ON c.ts BETWEEN CAST(k.first_enter * 1e9 AS INTEGER) - 2000 AND CAST(k.last_enter * 1e9 AS INTEGER) + 2000
    AND c.seq = k.seq AND c.op = k.op AND NOT c.flags & 1
  JOIN trace_file t ON t.id = c.id >> 40 AND t.run IS x.run
  LEFT JOIN process_group g ON g.trace = t.id AND g.pg = c.pg LEFT JOIN group_rank o ON o.list = g.list AND o.idx = g.rank
  WHERE coalesce(g.name, 'group ' || c.pg) = x."group"
), killed AS MATERIALIZED ( -- runs whose ranks were all killed at one time: that a call failed in the last moment says nothing
  SELECT run FROM trace_file WHERE rank IS NOT NULL GROUP BY run HAVING min(end_reason IS 'killed') AND max(end_ts) - min(end_ts) < 5000000000
), place AS MATERIALIZED ( -- a call of a group that somebody waits in, or a message; what most of them do there is what is right
  SELECT row_number() OVER (ORDER BY min(ts)) AS id, run, "group", list, seq, message, CASE WHEN message THEN trace END AS sender,
    op, bytes, count(*) AS waiting, group_concat(rank) AS waiters, min(ts) AS since, max(duration) AS longest, src, dst,
    -- Those that are killed together are not recorded to the same moment: on a busy machine they differ by seconds. Where the call failed in others that lived on, or a launcher
    -- ended them, it was because of who ended before.
    max(min(ts), min(end_ts) - 5000000000, coalesce((SELECT max(k.exit) FROM collective k WHERE k.run IS w.run AND k."group" = w."group"
      AND k.seq = w.seq AND k.op = w.op AND NOT message AND NOT EXISTS (SELECT 1 FROM killed WHERE killed.run IS w.run)) * 1e9 + 200000000, 0)) AS dead_before, min(term_ts) AS term_ts
  FROM (SELECT *, first_value(op) OVER p AS right_op, min(CASE WHEN NOT message THEN seq END) OVER (PARTITION BY run, "group") AS first_seq
    FROM (SELECT *, count(*) OVER (PARTITION BY run, "group", seq, op, bytes) AS alike FROM waits)
    WINDOW p AS (PARTITION BY run, "group", seq, CASE WHEN message THEN trace END ORDER BY alike DESC, rank)) w
  WHERE op = right_op AND (message OR seq = first_seq)
  GROUP BY run, "group", seq, message, CASE WHEN message THEN trace || op || coalesce(src, '') || '/' || coalesce(dst, '') END
  UNION ALL -- the last call of a group, which failed in all that came to it, because somebody had died (gloo notices)
  SELECT -k.id, k.run, k."group", (SELECT g.list FROM process_group g JOIN trace_file f ON f.id = g.trace
      WHERE g.name = k."group" AND f.run IS k.run LIMIT 1), k.seq, 0, NULL, k.op, NULL, k.arrived, NULL, CAST(k.first_enter * 1e9 AS INTEGER),
    CAST((k.exit - k.first_enter) * 1e9 AS INTEGER), NULL, NULL, CAST(k.exit * 1e9 AS INTEGER) + 200000000, NULL
  FROM (SELECT *, rowid AS id, row_number() OVER (PARTITION BY run, "group" ORDER BY seq DESC) AS nth FROM collective) k
  WHERE k.nth = 1 AND k.complete = k.arrived AND k.missing IS NOT NULL AND NOT EXISTS (SELECT 1 FROM killed WHERE killed.run IS k.run)
), usual AS ( -- how many bytes most of those bring
  SELECT id, bytes FROM (SELECT p.id, w.bytes, row_number() OVER (PARTITION BY p.id ORDER BY count(*) DESC, min(w.rank)) AS nth
    FROM place p JOIN waits w ON w.run IS p.run AND w."group" = p."group" AND w.seq = p.seq AND w.op = p.op
    WHERE NOT p.message GROUP BY p.id, w.bytes) WHERE nth = 1
), came AS MATERIALIZED ( -- whoever made that call of the group, whatever it was
  SELECT DISTINCT p.id, coalesce(f.rank, o.rank) AS rank, c.op, c.bytes, c.flags & 1 AS waits
  FROM place p JOIN collective k ON k.run IS p.run AND k."group" = p."group" AND k.seq = p.seq
  CROSS JOIN comm c ON c.ts BETWEEN CAST(k.first_enter * 1e9 AS INTEGER) - 2000 AND CAST(k.last_enter * 1e9 AS INTEGER) + 2000
    AND c.seq = k.seq AND c.op = k.op
  JOIN trace_file f ON f.id = c.id >> 40 AND f.run IS p.run
  LEFT JOIN process_group g ON g.trace = f.id AND g.pg = c.pg LEFT JOIN group_rank o ON o.list = g.list AND o.idx = g.rank
  WHERE NOT p.message AND coalesce(g.name, 'group ' || c.pg) = p."group"
), member AS MATERIALIZED ( -- the process that was this rank at last (of those that are none of its children)
  SELECT run, rank, id AS trace, end_ts, end_reason,
    EXISTS (SELECT 1 FROM trigger_event e WHERE e.id BETWEEN first_id AND last_id AND e.kind = 'term') AS termed FROM (
    SELECT f.*, row_number() OVER (PARTITION BY f.run, f.rank ORDER BY
      f.role IS 'dataloader', EXISTS (SELECT 1 FROM trace_file p WHERE p.pid = f.ppid AND p.host IS f.host AND p.rank = f.rank AND p.run IS f.run),
      f.start_ts DESC) AS nth
    FROM trace_file f WHERE f.rank IS NOT NULL) WHERE nth = 1
), absent AS MATERIALIZED (
  SELECT p.id, r.rank, m.trace, CASE
      WHEN c.rank IS NOT NULL AND c.op <> p.op THEN 'other call' WHEN c.rank IS NOT NULL THEN 'other size'
      WHEN m.trace IS NULL THEN 'not recorded' WHEN m.end_ts < p.dead_before OR m.end_ts < p.term_ts AND NOT m.termed THEN iif(m.end_reason = 'exit', 'ended', 'dead')
      WHEN NOT p.message AND EXISTS (SELECT 1 FROM trace_file f JOIN process_group g ON g.trace = f.id AND g.name = p."group"
        JOIN comm x ON x.id BETWEEN f.first_id AND f.last_id AND x.pg = g.pg AND x.seq = p.seq AND x.flags & 4 WHERE f.id = m.trace) THEN 'raised'
      ELSE 'never came' END AS state, c.op AS did, c.bytes AS brought
  FROM place p JOIN group_rank r ON r.list = p.list
  LEFT JOIN usual u ON u.id = p.id
  LEFT JOIN came c ON c.id = p.id AND c.rank = r.rank
  LEFT JOIN member m ON m.run IS p.run AND m.rank = r.rank
  WHERE (p.id > 0 OR m.end_ts < p.dead_before AND m.end_reason IS NOT 'exit') AND CASE p.op WHEN 'recv' THEN r.idx = p.src WHEN 'send' THEN r.idx = p.dst
    ELSE c.rank IS NULL OR c.op <> p.op
      OR c.bytes <> u.bytes AND p.op IN ('all_reduce', 'broadcast', 'reduce', 'reduce_scatter', 'all_gather') END
), found AS MATERIALIZED (
  SELECT a.*, a.state IN ('other call', 'other size', 'dead', 'ended', 'raised') OR NOT EXISTS (
    SELECT 1 FROM waits w JOIN place p ON p.id = a.id WHERE w.run IS p.run AND w.rank = a.rank) AS cause FROM absent a
  UNION ALL SELECT p.id, NULL, NULL, CASE WHEN p.message THEN 'from anybody' ELSE 'all came' END, NULL, NULL, 1 FROM place p
    WHERE p.id > 0 AND p.id NOT IN (SELECT id FROM absent) AND p.list IS NOT NULL
), edge AS MATERIALIZED ( -- who is waited for in `id` waits in `next` itself
  SELECT DISTINCT f.id, q.id AS next FROM found f JOIN place p ON p.id = f.id
  JOIN waits w ON w.run IS p.run AND w.rank = f.rank
  JOIN place q ON q.run IS w.run AND q."group" = w."group" AND q.seq = w.seq AND q.id <> p.id AND (NOT q.message OR q.sender = w.trace)
  WHERE NOT f.cause AND f.id NOT IN (SELECT id FROM found WHERE cause)
), reached(id, level) AS (
  SELECT id, 0 FROM found WHERE cause
  UNION SELECT e.id, r.level + 1 FROM reached r JOIN edge e ON e.next = r.id WHERE r.level < 200
), level AS MATERIALIZED (SELECT id, min(level) AS level FROM reached GROUP BY id)
SELECT p.since / 1e9 AS since, f.rank, f.cause, p."group", p.seq, p.op, p.waiting, p.longest / 1e9 AS waited, p.run,
  CASE WHEN f.state = 'never came' AND NOT f.cause THEN 'waits itself' ELSE f.state END AS state,
  CASE WHEN NOT f.cause THEN coalesce((SELECT w.op || ' number ' || w.seq || ' of group ' || w."group" || ' in ' FROM waits w
      WHERE w.run IS p.run AND w.rank = f.rank ORDER BY w.ts LIMIT 1), '') ELSE '' END ||
  CASE f.state WHEN 'other call' THEN f.did || ' in ' WHEN 'other size' THEN f.brought || ' bytes, others ' || p.bytes || ', in ' ELSE '' END ||
    coalesce((SELECT w.inner || CASE WHEN w.user <> w.inner THEN ', called by ' || w.user ELSE '' END FROM whereabouts w WHERE w.trace_id = f.trace), '?') AS does,
  l.level, p.waiters, (SELECT count(*) FROM group_rank r WHERE r.list = p.list) AS size, f.trace AS trace_id
FROM found f JOIN place p ON p.id = f.id LEFT JOIN level l ON l.id = f.id
ORDER BY l.level IS NULL, l.level, f.cause DESC, f.state NOT IN ('other call', 'other size'), p.since, f.rank;

-- Where each process was at last: its main thread's last sample. inner: the innermost Python function; user: the innermost that is neither the
-- standard library's nor an installed package's (NULL: none), each with its file's name and line; seen: when.
CREATE VIEW whereabouts AS
SELECT trace_id, rank, pid, ppid, role, seen, inner, coalesce(user, inner) AS user FROM (
  SELECT t.id AS trace_id, t.rank, t.pid, t.ppid, t.role, s.ts / 1e9 AS seen,
    (SELECT e.text FROM stack_text e WHERE e.stack = s.stack ORDER BY e.depth LIMIT 1) AS inner,
    (SELECT e.text FROM stack_text e WHERE e.stack = s.stack AND e.is_user ORDER BY e.depth LIMIT 1) AS user
  FROM trace_file t CROSS JOIN sample s ON s.id = (
    SELECT x.id FROM sample x WHERE x.id BETWEEN t.first_id AND t.last_id AND x.stack IS NOT NULL
      AND x.thread IN (SELECT h.id - t.first_id FROM thread h WHERE h.trace = t.id AND h.tid = t.pid) ORDER BY x.id DESC LIMIT 1));

-- The Python frames of each stack as text, "func (file.py:12)".
CREATE VIEW stack_text AS
SELECT k.stack, k.depth, f.name || ' (' || replace(f.file, rtrim(f.file, replace(f.file, '/', '')), '') || ':' || r.line || ')' AS text,
  f.file NOT LIKE '%/site-packages/%' AND f.file NOT LIKE '%/dist-packages/%' AND f.file NOT LIKE '%/lib/python_.%' AND f.file NOT LIKE '<%' AS is_user
FROM stack_frame k CROSS JOIN frame r ON r.id = k.frame CROSS JOIN function f ON f.id = r.function WHERE f.type = 0;
