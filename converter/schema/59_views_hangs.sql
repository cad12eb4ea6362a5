-- SPDX-License-Identifier: Apache-2.0
-- Why it hangs: a row for each rank that keeps others waiting to the end of their recordings, or until their call raised. The first cause comes first.
-- When a launcher has started the ranks again, this is about the last attempt.
-- - since, waited: when the first of the waiting ranks began to wait; the longest wait, until a recording ended or the call failed
-- - rank, state: the rank that others wait for, and what is wrong with it: 'never came' (to the call); 'dead' (its recording ended before the call, or in it), 'ended' (the
--   same, at its program's end), 'not recorded' (it has no trace), 'cut off' (its trace is damaged and lacks its end, so whether it came is not known), 'silent'
--   (its recording stops before the call, or in it, without an end: the process is stopped, by SIGSTOP or a debugger, or it died and nobody has recorded that);
--   'other call', 'other size' (it came to this call of the group with another operation, or another number of
--   bytes); 'late' (it came when the call had failed in the others already, whose time was up; `does`: where it was then); 'raised' (its call raised an exception; not a cause where somebody had died before); 'waits itself' (it waits for others; `does` says in which call); 'all came' (rank NULL: nobody is
--   missing, yet the call is not complete), 'from anybody' (rank NULL: any rank could send)
-- - cause: 1: the rank does not wait for others itself, so the hang began there
-- - group, seq, op: the collective (or message) that is not complete; waiting, waiters: the number of ranks that wait in it, and which (not those of 'other call', 'other size')
-- - level: 0: they wait for a cause; 1: they wait for somebody who waits at level 0, and so on; NULL: they wait in a circle of ranks that all wait
-- - does: where that rank's main thread was at last: the innermost Python function, and who called it in the user's code
CREATE VIEW hangs_made AS
WITH latest AS MATERIALIZED (
  SELECT run, max(attempt) AS attempt FROM trace_file GROUP BY run
), party AS MATERIALIZED ( -- who is in a group, to find its calls by process: in a range of time stand the calls of all groups and of all jobs of that time
  -- Below, IN and + make it search by process and time (comm_trace). With = alone, SQLite 3.40 puts a Bloom filter before that index, which lets none of the rows through.
  SELECT t.run, t.attempt, coalesce(g.name, 'group ' || g.pg) AS "group", g.pg, g.rank AS idx, g.list, t.id AS trace, t.rank, t.end_ts, t.end_reason
  FROM process_group g JOIN trace_file t ON t.id = g.trace
  UNION ALL -- of a group that no record names: all processes that made a call of it
  SELECT t.run, t.attempt, n."group", n.pg, NULL, NULL, t.id, t.rank, t.end_ts, t.end_reason
  FROM (SELECT DISTINCT run, attempt, "group", CAST(substr("group", 7) AS INTEGER) AS pg FROM collective WHERE "group" LIKE 'group %') n
  JOIN trace_file t ON t.run IS n.run AND t.attempt = n.attempt
  WHERE n."group" = 'group ' || n.pg AND NOT EXISTS (SELECT 1 FROM process_group g WHERE g.trace = t.id AND g.pg = n.pg)
), goes_on AS MATERIALIZED ( -- where a process has gone on in other files: of each file, the last one (a bare column beside max() is of the row that has it), and how that ended
  SELECT t.id AS trace, max(coalesce(n.finish_ts, n.end_ts)), n.id AS last, n.end_ts, n.end_reason FROM trace_file t
  JOIN trace_file n ON n.program = t.program WHERE t.end_reason = 'rotated' GROUP BY t.id
), parent AS MATERIALIZED ( -- a join, because a subquery for each process would read them all each time
  SELECT DISTINCT run, rank, host, pid FROM trace_file WHERE rank IS NOT NULL
), event AS MATERIALIZED ( -- what processes recorded of their ends, in whichever of their files; trace: the last one
  -- A subquery, as goes_on would be planned again at each place where this is used
  SELECT CASE f.end_reason WHEN 'rotated' THEN (SELECT n.id FROM trace_file n WHERE n.program = f.program ORDER BY coalesce(n.finish_ts, n.end_ts) DESC LIMIT 1) ELSE f.id END AS trace,
    f.run, f.host, f.rank, f.role, f.pid, f.ppid, e.kind, e.ts, e.detail
  FROM trigger_event e CROSS JOIN trace_file f ON f.id = e.id >> 40 WHERE e.kind = 'term' OR e.kind = 'exception' AND e.tid = f.pid
), told AS MATERIALIZED ( -- when a process got SIGTERM as launchers send it: from its parent, or from a sender that sent it to several processes. SIGTERM to a single process is
  -- just how that process died; a rank together with its own children (data loaders; a signal to its process group) counts as a single process
  SELECT trace, min(ts) AS ts FROM (
    SELECT f.trace, f.ts, f.detail = 'SIGTERM sent by pid ' || f.ppid AS by_parent, min(f.pid) OVER same <> max(f.pid) OVER same AS to_several
    FROM event f LEFT JOIN parent p ON p.pid = f.ppid AND p.host IS f.host AND p.rank = f.rank AND p.run IS f.run
    WHERE f.kind = 'term' AND p.pid IS NULL AND f.role IS NOT 'dataloader' WINDOW same AS (PARTITION BY f.run, f.host, f.detail))
  WHERE by_parent OR to_several GROUP BY trace
), thrown AS MATERIALIZED ( -- when the main thread raised an exception that nobody caught (except Ctrl-C, which all ranks get): from then on the process takes no part, however long it takes to end
  SELECT trace, min(ts) AS ts FROM event WHERE rank IS NOT NULL AND kind = 'exception' AND detail NOT LIKE 'KeyboardInterrupt%' GROUP BY 1
), first_told AS MATERIALIZED (
  SELECT f.run, f.attempt, min(d.ts) AS ts FROM told d JOIN trace_file f ON f.id = d.trace WHERE f.rank IS NOT NULL GROUP BY 1, 2
), stuck AS MATERIALIZED ( -- calls that somebody waits in; also the last call of a process that was killed, if it was in that call when it was told to end
  SELECT c.id, c.pg, c.seq, c.op FROM comm c WHERE c.flags & 1 AND c.op NOT IN ('send', 'recv')
  UNION ALL
  SELECT c.id, c.pg, c.seq, c.op FROM told d CROSS JOIN trace_file t ON t.id = d.trace
  CROSS JOIN comm c ON c.id = coalesce((SELECT x.id FROM comm x WHERE x.id >> 40 = d.trace ORDER BY x.ts DESC, x.id DESC LIMIT 1),
    (SELECT x.id FROM goes_on y CROSS JOIN comm x ON x.id >> 40 = y.trace WHERE y.last = d.trace ORDER BY x.ts DESC, x.id DESC LIMIT 1))
  WHERE t.rank IS NOT NULL AND t.end_reason = 'killed' AND NOT c.flags & 5 AND c.op NOT IN ('send', 'recv') AND c.ts < d.ts AND c.ts + c.duration >= d.ts
), unfinished AS MATERIALIZED ( -- the collectives of these calls, and when the first of their processes was told to end, or had ended
  SELECT t.run, t.attempt, coalesce(g.name, 'group ' || c.pg) AS "group", c.seq, c.op, min(coalesce(min(d.ts, coalesce(y.end_ts, t.end_ts)), y.end_ts, t.end_ts)) AS ended
  FROM stuck c JOIN trace_file t ON t.id = c.id >> 40 LEFT JOIN process_group g ON g.trace = t.id AND g.pg = c.pg
  LEFT JOIN goes_on y ON y.trace = t.id LEFT JOIN told d ON d.trace = coalesce(y.last, t.id)
  GROUP BY 1, 2, 3, 4, 5
), torn AS MATERIALIZED ( -- calls of these collectives that ended only then, when the connections were torn down: not all ranks had come, so until then these calls waited too
  SELECT c.id FROM unfinished x
  CROSS JOIN collective k ON k.run IS x.run AND k.attempt = x.attempt AND k."group" = x."group" AND k.seq = x.seq AND k.op = x.op AND k.missing IS NOT NULL
  CROSS JOIN party g ON g.run IS x.run AND g.attempt = x.attempt AND g."group" = x."group"
  CROSS JOIN comm c ON c.id IN (SELECT n.id FROM comm n WHERE n.id >> 40 = +g.trace AND n.ts BETWEEN CAST(k.first_enter * 1e9 AS INTEGER) - 2000 AND CAST(k.last_enter * 1e9 AS INTEGER) + 2000)
    AND +c.pg = g.pg AND +c.seq = k.seq AND +c.op = k.op AND NOT c.flags & 5 AND c.ts + c.duration >= x.ended
), waiting AS MATERIALIZED ( -- for each rank, the first of a group's collectives that it waits in, because what it began later waits for that one
  -- The CASTs, here and below, give the rank a type, so that it is found by an index; without a type each of 10,000 ranks would be compared with all others.
  SELECT * FROM (
    SELECT t.run, t.attempt, coalesce(y.last, t.id) AS trace, CAST(coalesce(t.rank, o.rank) AS INTEGER) AS rank, c.pg, coalesce(g.name, 'group ' || c.pg) AS "group", g.list, c.seq, c.op,
      c.bytes, c.ts, coalesce(y.end_ts, t.end_ts) - c.ts AS duration, coalesce(y.end_ts, t.end_ts) AS end_ts, c.src, c.dst,
      d.ts AS term_ts, c.op IN ('send', 'recv') AS message,
      row_number() OVER (PARTITION BY coalesce(y.last, t.id), c.pg, CASE WHEN c.op IN ('send', 'recv')
        THEN c.op || coalesce(c.src, '') || '/' || coalesce(c.dst, '') END ORDER BY c.ts, c.id) AS nth
    FROM comm c JOIN trace_file t ON t.id = c.id >> 40 JOIN latest l ON l.run IS t.run AND l.attempt = t.attempt LEFT JOIN process_group g ON g.trace = t.id AND g.pg = c.pg
    LEFT JOIN group_rank o ON o.list = g.list AND o.idx = g.rank LEFT JOIN goes_on y ON y.trace = t.id LEFT JOIN told d ON d.trace = coalesce(y.last, t.id)
    WHERE c.flags & 1 OR c.id IN (SELECT id FROM torn)) WHERE nth = 1
), waits AS MATERIALIZED ( -- and calls with the same number as one of these but another operation, even if they went through, as gloo allows for some operations
  SELECT * FROM waiting UNION ALL
  SELECT g.run, g.attempt, coalesce(y.last, g.trace), CAST(coalesce(g.rank, o.rank) AS INTEGER), c.pg, x."group", g.list, c.seq, c.op, c.bytes, c.ts,
    coalesce(y.end_ts, g.end_ts) - c.ts, coalesce(y.end_ts, g.end_ts), c.src, c.dst, NULL, 0, 1
  FROM (SELECT DISTINCT run, attempt, "group", seq, op FROM waiting WHERE NOT message) x
  CROSS JOIN collective k ON k.run IS x.run AND k.attempt = x.attempt AND k."group" = x."group" AND k.seq = x.seq AND k.op <> x.op
  CROSS JOIN party g ON g.run IS x.run AND g.attempt = x.attempt AND g."group" = x."group"
  CROSS JOIN comm c ON c.id IN (SELECT n.id FROM comm n WHERE n.id >> 40 = +g.trace AND n.ts BETWEEN CAST(k.first_enter * 1e9 AS INTEGER) - 2000 AND CAST(k.last_enter * 1e9 AS INTEGER) + 2000)
    AND +c.pg = g.pg AND +c.seq = k.seq AND +c.op = k.op AND NOT c.flags & 1
  LEFT JOIN group_rank o ON o.list = g.list AND o.idx = g.idx LEFT JOIN goes_on y ON y.trace = g.trace
), raised AS MATERIALIZED ( -- calls that raised an exception
  SELECT f.run, f.attempt, coalesce(g.name, 'group ' || c.pg) AS "group", g.list, c.seq, c.op, c.bytes, c.ts, c.ts + c.duration AS until, coalesce(y.last, f.id) AS trace,
    CAST(coalesce(f.rank, o.rank) AS INTEGER) AS rank
  FROM comm c CROSS JOIN trace_file f ON f.id = c.id >> 40 JOIN latest l ON l.run IS f.run AND l.attempt = f.attempt
  LEFT JOIN process_group g ON g.trace = f.id AND g.pg = c.pg LEFT JOIN group_rank o ON o.list = g.list AND o.idx = g.rank LEFT JOIN goes_on y ON y.trace = f.id
  WHERE c.flags & 5 = 4 AND c.op NOT IN ('send', 'recv')
), lost_call AS MATERIALIZED ( -- a group's first call that failed after the last one to which all ranks came: calls that were begun with it, or after it, failed for the same reason
  SELECT k.run, k.attempt, k."group", min(k.seq) AS seq FROM (
    SELECT DISTINCT f.run, f.attempt, coalesce(g.name, 'group ' || c.pg) AS "group", c.seq FROM comm c CROSS JOIN trace_file f ON f.id = c.id >> 40
    JOIN latest l ON l.run IS f.run AND l.attempt = f.attempt LEFT JOIN process_group g ON g.trace = f.id AND g.pg = c.pg WHERE c.flags & 9 = 8 AND c.op NOT IN ('send', 'recv')) x
  JOIN collective k ON k.run IS x.run AND k.attempt = x.attempt AND k."group" = x."group" AND k.seq = x.seq AND k.complete = k.arrived AND k.missing IS NOT NULL
  LEFT JOIN (SELECT run, attempt, "group", max(seq) AS seq FROM collective WHERE arrived = size GROUP BY 1, 2, 3) w ON w.run IS k.run AND w.attempt = k.attempt AND w."group" = k."group"
  WHERE k.seq > coalesce(w.seq, -1) GROUP BY 1, 2, 3
), failed AS MATERIALIZED ( -- of a group's last calls, which raised in all ranks that came to them: the first one that some rank did not come to, or else the first one
  SELECT * FROM (
    SELECT f.*, row_number() OVER (PARTITION BY f.run, f."group" ORDER BY f.arrived >= (SELECT count(*) FROM group_rank o WHERE o.list = f.list), f.seq) AS nth FROM (
      SELECT r.run, r.attempt, r."group", max(r.list) AS list, r.seq, r.op, count(DISTINCT r.rank) AS arrived, group_concat(DISTINCT r.rank) AS came, min(r.ts) AS first_enter,
        max(r.until - r.ts) AS longest FROM raised r GROUP BY r.run, r.attempt, r."group", r.seq) f
    WHERE NOT EXISTS (SELECT 1 FROM (SELECT run, attempt, "group", max(seq) AS seq FROM collective GROUP BY 1, 2, 3) k
      WHERE k.run IS f.run AND k.attempt = f.attempt AND k."group" = f."group" AND k.seq >= f.seq)) f
  WHERE nth = 1 AND NOT EXISTS (SELECT 1 FROM lost_call o WHERE o.run IS f.run AND o.attempt = f.attempt AND o."group" = f."group")
), cut AS MATERIALIZED ( -- damaged traces without an end: they do not say what their process waited in at the end
  SELECT DISTINCT l.trace FROM lost l JOIN trace_file f ON f.id = l.trace
  WHERE l.count > 0 AND l.reason IN ('cut_off_bytes', 'damaged_bytes', 'damaged_blocks', 'missing_blocks') AND f.end_reason IS NULL
), told_of AS MATERIALIZED ( -- how many of a group's ranks have a trace that does say it
  SELECT n.run, n.name, count(DISTINCT f.rank) AS ranks FROM (
    SELECT f.run, g.name, max(g.list) AS list FROM process_group g JOIN trace_file f ON f.id = g.trace GROUP BY 1, 2) n
  JOIN group_rank r ON r.list = n.list JOIN (SELECT run, CAST(rank AS INTEGER) AS rank FROM trace_file WHERE rank IS NOT NULL AND id NOT IN (SELECT trace FROM cut) GROUP BY 1, 2) f
    ON f.run IS n.run AND f.rank = r.rank
  WHERE EXISTS (SELECT 1 FROM cut) OR EXISTS (SELECT 1 FROM trace_file t GROUP BY t.run HAVING count(DISTINCT t.rank) < max(t.world_size)) -- else all ranks have one
  GROUP BY 1, 2
), called AS MATERIALIZED ( -- calls that somebody waits in; a group's last call, if some rank never came to it, or in its place the one in lost_call; the calls in failed
  SELECT DISTINCT run, attempt, "group", seq FROM waits WHERE NOT message
  UNION SELECT k.run, k.attempt, k."group", coalesce(o.seq, k.seq) FROM (SELECT c.*, row_number() OVER (PARTITION BY c.run, "group" ORDER BY seq DESC) AS nth
    FROM collective c JOIN latest l ON l.run IS c.run AND l.attempt = c.attempt) k LEFT JOIN lost_call o ON o.run IS k.run AND o.attempt = k.attempt AND o."group" = k."group"
    WHERE nth = 1 AND complete = arrived AND missing IS NOT NULL AND (o.seq IS NOT NULL OR coalesce(arrived < (SELECT t.ranks FROM told_of t WHERE t.run IS k.run AND t.name = k."group"), 1))
  UNION SELECT run, attempt, "group", seq FROM failed
), came AS MATERIALIZED ( -- the ranks that made such a call of the group, whatever the operation. until: when the call ended or failed; NULL: it waits.
  -- threw: an exception from this call, or from what followed (torch raises in wait(), and the call is seen to end), has ended the program. (Durations are not
  -- aligned as times are: with a clock's drift of some parts in 100,000 a long wait is wrong by milliseconds.)
  SELECT DISTINCT x.run, x."group", x.seq, CAST(coalesce(g.rank, o.rank) AS INTEGER) AS rank, c.op, c.bytes, 0 AS raised,
    CASE WHEN NOT c.flags & 1 AND c.id NOT IN (SELECT id FROM torn) THEN c.ts + c.duration END AS until,
    coalesce(y.end_ts, g.end_ts) AS end_ts, iif(y.trace, y.end_reason, g.end_reason) AS end_reason, NOT c.flags & 1 AND h.ts >= c.ts + c.duration - c.duration / 5000 AS threw
  FROM called x CROSS JOIN collective k ON k.run IS x.run AND k.attempt = x.attempt AND k."group" = x."group" AND k.seq = x.seq
  CROSS JOIN party g ON g.run IS x.run AND g.attempt = x.attempt AND g."group" = x."group"
  CROSS JOIN comm c ON c.id IN (SELECT n.id FROM comm n WHERE n.id >> 40 = +g.trace AND n.ts BETWEEN CAST(k.first_enter * 1e9 AS INTEGER) - 2000 AND CAST(k.last_enter * 1e9 AS INTEGER) + 2000)
    AND +c.pg = g.pg AND +c.seq = k.seq AND +c.op = k.op AND c.flags & 5 <> 4
  LEFT JOIN group_rank o ON o.list = g.list AND o.idx = g.idx LEFT JOIN goes_on y ON y.trace = g.trace LEFT JOIN thrown h ON h.trace = coalesce(y.last, g.trace)
  UNION SELECT x.run, x."group", x.seq, r.rank, r.op, r.bytes, 1, r.until, f.end_ts, f.end_reason, 1
  FROM called x CROSS JOIN raised r ON r.run IS x.run AND r.attempt = x.attempt AND r."group" = x."group" AND r.seq = x.seq CROSS JOIN trace_file f ON f.id = r.trace
), broken AS MATERIALIZED ( -- calls that ended in some ranks although others never came, because somebody had died. A call that fails in the last second of a process that is killed
  -- says nothing (all are killed, one after the other); where all are killed, nor does a death at the same time as that of a rank that had come. failed: when the call failed last
  SELECT *, CASE WHEN all_killed THEN min(failed, first_end - 1000000000) ELSE failed END AS before FROM (
    SELECT run, "group", seq, max(CASE WHEN end_reason IS NOT 'killed' OR end_ts > until + 1000000000 THEN until END) + 200000000 AS failed,
      min(end_reason IS 'killed') AS all_killed, min(end_ts) AS first_end, max(threw) AS threw, group_concat(DISTINCT rank) AS came FROM came GROUP BY run, "group", seq)
), usual AS MATERIALIZED ( -- the number of bytes that most ranks came with, also those whose call has failed by now (from `came`, planning would take longer)
  SELECT run, "group", seq, op, bytes, max(n) FROM (SELECT x.run, x."group", x.seq, x.op, c.bytes, 1000000 * count(DISTINCT g.trace) - min(g.rank) AS n
    FROM (SELECT DISTINCT run, attempt, "group", seq, op FROM waiting WHERE NOT message) x
    CROSS JOIN collective k ON k.run IS x.run AND k.attempt = x.attempt AND k."group" = x."group" AND k.seq = x.seq AND k.op = x.op
    CROSS JOIN party g ON g.run IS x.run AND g.attempt = x.attempt AND g."group" = x."group"
    CROSS JOIN comm c ON c.id IN (SELECT n.id FROM comm n WHERE n.id >> 40 = +g.trace AND n.ts BETWEEN CAST(k.first_enter * 1e9 AS INTEGER) - 2000 AND CAST(k.last_enter * 1e9 AS INTEGER) + 2000)
      AND +c.pg = g.pg AND +c.seq = k.seq AND +c.op = k.op GROUP BY 1, 2, 3, 4, 5) GROUP BY 1, 2, 3, 4
), place AS MATERIALIZED ( -- a call of a group that somebody waits in, or a message; the operation that most ranks call there is taken for the right one
  SELECT row_number() OVER (ORDER BY min(ts)) AS id, run, attempt, "group", list, seq, message, CASE WHEN message THEN trace END AS sender,
    op, right_bytes, count(*) FILTER (WHERE fits) AS waiting, group_concat(rank) FILTER (WHERE fits) AS waiters, coalesce(min(ts) FILTER (WHERE fits), min(ts)) AS since,
    coalesce(max(duration) FILTER (WHERE fits), max(duration)) AS longest, max(ts) AS last_came, max(end_ts) AS last_end, src, dst,
    -- Processes that are killed together are not recorded to the same moment: on a busy machine their ends differ by seconds. Where the call failed in others that lived on, or that
    -- a launcher ended, it failed because of a rank that had ended before.
    max(min(ts), min(end_ts) - 5000000000, coalesce((SELECT b.before FROM broken b WHERE b.run IS w.run AND b."group" = w."group" AND b.seq = w.seq AND NOT message), 0)) AS dead_before,
    -- Where none of those that wait were told to end, the others were, whose calls had failed before that: take the first of these.
    coalesce(min(term_ts), (SELECT t.ts FROM first_told t WHERE t.run IS w.run AND t.attempt = w.attempt)) AS term_ts, 0 AS failed
  FROM (SELECT w.run, w.attempt, w.trace, w.rank, w."group", w.list, w.seq, w.op, w.ts, w.duration, w.end_ts, w.src, w.dst, w.term_ts, w.message, coalesce(u.bytes, first_value(w.bytes) OVER p) AS right_bytes,
      w.message OR u.op IS NULL OR w.bytes IS u.bytes OR w.op NOT IN ('all_reduce', 'broadcast', 'reduce', 'reduce_scatter', 'all_gather') AS fits,
      first_value(w.op) OVER p AS right_op, min(CASE WHEN NOT message THEN w.seq END) OVER (PARTITION BY w.run, w."group") AS first_seq
    FROM (SELECT *, count(*) OVER (PARTITION BY run, "group", seq, op, bytes) AS alike FROM waits) w
    LEFT JOIN usual u ON NOT w.message AND u.run IS w.run AND u."group" = w."group" AND u.seq = w.seq AND u.op = w.op
    WINDOW p AS (PARTITION BY w.run, w."group", w.seq, CASE WHEN w.message THEN w.trace END ORDER BY w.alike DESC, w.rank)) w
  WHERE op = right_op AND (message OR seq = first_seq)
  GROUP BY run, "group", seq, message, CASE WHEN message THEN trace || op || coalesce(src, '') || '/' || coalesce(dst, '') END
  UNION ALL -- the last call of a group, which failed in all ranks that came to it because somebody had died (gloo notices that)
  SELECT -row_number() OVER (ORDER BY k.run, k."group"), k.run, k.attempt, k."group", (SELECT g.list FROM process_group g JOIN trace_file f ON f.id = g.trace
      WHERE g.name = k."group" AND f.run IS k.run AND f.attempt = k.attempt LIMIT 1), k.seq, 0, NULL, k.op, NULL, k.arrived, b.came, CAST(k.first_enter * 1e9 AS INTEGER),
    CAST((k.exit - k.first_enter) * 1e9 AS INTEGER), NULL, NULL, NULL, NULL, coalesce(b.before, d.ts, b.first_end - 1000000000), NULL,
    (b.threw IS 1) * (1 + EXISTS (SELECT 1 FROM lost_call o WHERE o.run IS k.run AND o.attempt = k.attempt AND o."group" = k."group" AND o.seq = k.seq))
  FROM broken b JOIN collective k ON k.run IS b.run AND k."group" = b."group" AND k.seq = b.seq JOIN latest l ON l.run IS k.run AND l.attempt = k.attempt
  LEFT JOIN first_told d ON d.run IS k.run AND d.attempt = k.attempt -- where the launcher ended all others within that second: a rank that ended before is dead
  -- Where all were killed, one after the other, the deaths say nothing; but a rank that, for a long time, had not come by then is to blame.
  WHERE (coalesce(b.before, d.ts) IS NOT NULL OR b.all_killed AND b.threw) AND k.complete = k.arrived AND k.missing IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM waits w WHERE w.run IS k.run AND w."group" = k."group" AND NOT w.message)
  UNION ALL
  SELECT -1000000 - row_number() OVER (ORDER BY f.run, f."group"), f.run, f.attempt, f."group", f.list, f.seq, 0, NULL, f.op, NULL, f.arrived, f.came, f.first_enter, f.longest,
    NULL, NULL, NULL, NULL, coalesce((SELECT b.before FROM broken b WHERE b.run IS f.run AND b."group" = f."group" AND b.seq = f.seq), 0),
    (SELECT t.ts FROM first_told t WHERE t.run IS f.run AND t.attempt = f.attempt),
    1 + EXISTS (SELECT 1 FROM raised r JOIN thrown h ON h.trace = r.trace AND h.ts >= r.until - (r.until - r.ts) / 5000 WHERE r.run IS f.run AND r."group" = f."group" AND r.seq = f.seq)
  FROM failed f
), member AS MATERIALIZED ( -- each rank's last process (that is not a child of another one of the rank)
  -- A process that ends by itself is gone once its last call is done: it closes its connections, and the others' calls fail, before its trace ends.
  SELECT run, rank, id AS trace, coalesce(thrown, CASE WHEN end_reason IN ('exit', '_exit') THEN min(end_ts, coalesce(
      (SELECT c.ts + c.duration FROM comm c WHERE c.id BETWEEN first_id AND last_id AND NOT c.flags & 1 ORDER BY c.id DESC LIMIT 1),
      (SELECT max(c.ts + c.duration) FROM goes_on y CROSS JOIN comm c ON c.id >> 40 = y.trace AND NOT c.flags & 1 WHERE y.last = f.id))) END, end_ts) AS end_ts, iif(thrown, 'exit', end_reason) AS end_reason,
    told IS NOT NULL AND coalesce(thrown > told, 1) AS termed, thrown IS NOT NULL OR CASE WHEN end_reason = 'exit' THEN -- by sys.exit(3), too
      (SELECT f.value <> '0' FROM fact f WHERE f.id BETWEEN first_id AND last_id AND f.kind = 'end' AND f.key = 'exit_code' ORDER BY f.id DESC LIMIT 1) IS 1 END IS 1 AS threw FROM (
    SELECT f.*, d.ts AS told, h.ts AS thrown, row_number() OVER (PARTITION BY f.run, f.rank ORDER BY f.role IS 'dataloader', p.pid IS NOT NULL,
        iif(f.program IS NULL, f.start_ts, (SELECT min(o.start_ts) FROM trace_file o WHERE o.program = f.program)) DESC, coalesce(f.finish_ts, f.end_ts) DESC) AS nth
    FROM trace_file f LEFT JOIN parent p ON p.pid = f.ppid AND p.host IS f.host AND p.rank = f.rank AND p.run IS f.run
    LEFT JOIN told d ON d.trace = f.id LEFT JOIN thrown h ON h.trace = f.id WHERE f.rank IS NOT NULL) f WHERE nth = 1
), absent AS MATERIALIZED (
  SELECT p.id, p.run, r.rank, m.trace, m.end_ts, c.until, CASE
      WHEN c.rank IS NOT NULL AND c.op <> p.op THEN 'other call' WHEN c.raised THEN 'raised' WHEN c.rank IS NOT NULL THEN 'other size'
      WHEN m.trace IS NULL THEN 'not recorded' WHEN x.trace IS NOT NULL THEN 'cut off' WHEN m.end_ts < p.dead_before AND NOT (p.failed AND m.termed) OR (m.end_ts < p.term_ts OR m.threw AND m.end_ts < p.last_end) AND NOT m.termed THEN iif(m.end_reason = 'exit', 'ended', 'dead')
      ELSE 'never came' END AS state, c.op AS did, c.bytes AS brought, e.rank IS NOT NULL AS follows
  FROM place p JOIN group_rank r ON r.list = p.list
  LEFT JOIN came c ON NOT p.message AND c.run IS p.run AND c."group" = p."group" AND c.seq = p.seq AND c.rank = r.rank
  LEFT JOIN member m ON m.run IS p.run AND m.rank = r.rank LEFT JOIN cut x ON x.trace = m.trace
  LEFT JOIN (SELECT DISTINCT run, rank FROM came WHERE threw) e ON e.run IS p.run AND e.rank = r.rank
  -- Where the call failed in all ranks that came, the ranks to blame are those that had ended by then, or had not come within a second (a timeout), and did not fail elsewhere themselves.
  -- failed 2: that it failed is what ended them, so that somebody was not there; it may be one without a trace.
  WHERE (p.id > 0 OR CASE WHEN p.failed THEN e.rank IS NULL AND ((m.end_ts < p.dead_before OR m.end_ts < p.term_ts) AND NOT m.termed OR p.longest > 1000000000 OR m.trace IS NULL AND p.failed = 2)
      ELSE m.end_ts < p.dead_before AND (m.end_reason IS NOT 'exit' OR m.threw) END) AND CASE p.op WHEN 'recv' THEN r.idx = p.src WHEN 'send' THEN r.idx = p.dst
    ELSE c.rank IS NULL OR c.op <> p.op OR c.raised
      OR c.bytes <> p.right_bytes AND p.op IN ('all_reduce', 'broadcast', 'reduce', 'reduce_scatter', 'all_gather') END
), inside AS MATERIALIZED ( -- ranks that died in a call that all came to (it may have raised in others because of that), while the ranks came or just after (later it was hanging already), and others lived on
  SELECT p.id, p.run, w.rank, w.trace, w.end_ts FROM place p JOIN waits w ON w.run IS p.run AND w."group" = p."group" AND w.seq = p.seq JOIN member m ON m.trace = w.trace
  LEFT JOIN broken b ON b.run IS p.run AND b."group" = p."group" AND b.seq = p.seq
  LEFT JOIN (SELECT id, max(state <> 'raised') AS missed FROM absent GROUP BY id) a ON a.id = p.id
  WHERE p.id > 0 AND NOT p.message AND NOT w.message AND a.missed IS NOT 1 AND m.end_reason IS NOT 'exit' AND m.trace NOT IN (SELECT trace FROM cut)
    AND (w.end_ts < p.last_came + 5000000000 OR a.id IS NOT NULL) AND (w.end_ts < p.last_end - 5000000000 OR w.end_ts < b.failed OR w.end_ts < p.term_ts AND NOT m.termed)
), blamed AS MATERIALIZED ( -- absent and inside together; died: when the first rank died
  SELECT *, min(CASE WHEN state = 'dead' THEN end_ts END) OVER (PARTITION BY id) AS died FROM (
    SELECT *, 0 AS in_it FROM absent UNION ALL SELECT id, run, rank, trace, end_ts, NULL, 'dead', NULL, NULL, 0, 1 FROM inside)
), found AS MATERIALIZED ( -- a call that raises after somebody has died raises because of that
  SELECT *, max(cause) OVER (PARTITION BY id) AS has_cause, sum(in_it) OVER (PARTITION BY id) AS died_in_it,
    group_concat(CASE WHEN in_it THEN rank END) OVER (PARTITION BY id) AS who_died FROM (
    SELECT p.id, p.run, b.rank, b.trace, b.end_ts, coalesce(b.state, CASE WHEN p.message THEN 'from anybody' ELSE 'all came' END) AS state, b.did, b.brought, b.until, coalesce(b.in_it, 0) AS in_it,
      b.id IS NULL OR b.in_it OR b.state IN ('other call', 'other size', 'dead') OR b.state = 'ended' AND NOT b.follows
        OR b.state = 'raised' AND coalesce(b.died >= b.until + 200000000, 1)
        OR NOT EXISTS (SELECT 1 FROM waits w WHERE w.run IS b.run AND w.rank = b.rank) AND b.state <> 'raised' AND NOT b.follows AS cause
    FROM place p LEFT JOIN blamed b ON b.id = p.id WHERE b.id IS NOT NULL OR p.id > 0 AND p.list IS NOT NULL)
), edge AS MATERIALIZED ( -- a rank that is waited for in place `id` waits itself in place `next`
  SELECT DISTINCT f.id, q.id AS next FROM found f
  JOIN waits w ON w.run IS f.run AND w.rank = f.rank
  JOIN place q ON q.run IS w.run AND q."group" = w."group" AND q.seq = w.seq AND q.id <> f.id AND (NOT q.message OR q.sender = w.trace)
  WHERE NOT f.has_cause
), reached(id, level) AS (
  SELECT id, 0 FROM found WHERE cause
  UNION SELECT e.id, r.level + 1 FROM reached r JOIN edge e ON e.next = r.id WHERE r.level < 200
), level AS MATERIALIZED (SELECT id, min(level) AS level FROM reached GROUP BY id)
SELECT p.since / 1e9 AS since, f.rank, f.cause, p."group", p.seq, p.op, p.waiting - f.died_in_it AS waiting, p.longest / 1e9 AS waited, p.run,
  CASE WHEN f.state = 'never came' AND NOT f.cause THEN 'waits itself' WHEN f.state = 'dead' AND (SELECT t.end_reason FROM trace_file t WHERE t.id = f.trace) IS NULL THEN 'silent' ELSE f.state END AS state,
  CASE WHEN NOT f.cause THEN coalesce((SELECT w.op || ' number ' || w.seq || ' of group ' || w."group" || ' in ' FROM waits w
      WHERE w.run IS p.run AND w.rank = f.rank ORDER BY w.ts LIMIT 1), '') ELSE '' END ||
  coalesce(CASE f.state WHEN 'other call' THEN f.did WHEN 'other size' THEN f.brought || ' bytes, others ' || p.right_bytes || ',' END
    || iif(f.until / 1e9 < (SELECT w.seen FROM whereabouts w WHERE w.trace_id = f.trace), ' and later was in ', ' in '), '') || -- the call itself may be over
    coalesce((SELECT w.inner || CASE WHEN w.user <> w.inner THEN ', called by ' || w.user ELSE '' END FROM whereabouts w WHERE w.trace_id = f.trace), '?') AS does,
  l.level, CASE WHEN f.died_in_it THEN (SELECT group_concat(w.rank) FROM waits w WHERE w.run IS p.run AND w."group" = p."group" AND w.seq = p.seq
    AND NOT w.message AND w.rank NOT IN (SELECT value FROM json_each('[' || f.who_died || ']'))) ELSE p.waiters END AS waiters, (SELECT count(*) FROM group_rank r WHERE r.list = p.list) AS size, f.trace AS trace_id
FROM found f JOIN place p ON p.id = f.id LEFT JOIN level l ON l.id = f.id
ORDER BY l.level IS NULL, l.level, f.cause DESC, f.state IN ('cut off', 'not recorded'), f.state NOT IN ('other call', 'other size'), f.state <> 'dead', p.since, f.state = 'raised', CASE WHEN f.state IN ('dead', 'ended') THEN f.end_ts END, f.rank;

-- The rows of view hangs with state 'late': of a group's calls that failed in all its ranks, the first one to which some rank came when it had failed in another already,
-- after a second or more (a timeout). A group whose later calls succeed has gone on.
CREATE VIEW hangs_late_made AS
WITH latest AS MATERIALIZED (
  SELECT run, max(attempt) AS attempt FROM trace_file GROUP BY run
), call AS MATERIALIZED ( -- calls that raised an exception, or failed after they had returned
  SELECT f.run, f.attempt, coalesce(g.name, 'group ' || c.pg) AS "group", g.list, c.seq, c.op, c.ts, c.ts + c.duration AS until, f.id AS trace, CAST(coalesce(f.rank, o.rank) AS INTEGER) AS rank
  FROM (SELECT * FROM comm WHERE flags & 5 = 4 UNION ALL SELECT * FROM comm WHERE flags & 9 = 8 AND NOT flags & 4) c CROSS JOIN trace_file f ON f.id = c.id >> 40
  JOIN latest l ON l.run IS f.run AND l.attempt = f.attempt LEFT JOIN process_group g ON g.trace = f.id AND g.pg = c.pg LEFT JOIN group_rank o ON o.list = g.list AND o.idx = g.rank
  WHERE c.op NOT IN ('send', 'recv')
), failed AS MATERIALIZED ( -- late: when it had failed for longer than what clocks may differ by
  SELECT *, min(seq) OVER (PARTITION BY run, "group") AS first_seq FROM (
    SELECT run, attempt, "group", max(list) AS list, seq, op, min(ts) AS since, min(until) AS until, min(until) + 10000000 + (min(until) - min(ts)) / 5000 AS late, max(ts) AS last, count(DISTINCT rank) AS n
    FROM call GROUP BY run, attempt, "group", seq, op) f
  WHERE until - since > 1000000000 AND last > late AND n = (SELECT count(*) FROM group_rank o WHERE o.list = f.list)
), came AS MATERIALIZED (
  SELECT x.*, c.rank, c.ts > x.late AS is_late, c.until - c.ts AS waited, c.trace FROM failed x JOIN call c ON c.run IS x.run AND c."group" = x."group" AND c.seq = x.seq AND c.op = x.op
  WHERE x.seq = x.first_seq AND NOT EXISTS (SELECT 1 FROM comm d CROSS JOIN trace_file f ON f.id = d.id >> 40 AND f.run IS x.run AND f.attempt = x.attempt
    LEFT JOIN process_group g ON g.trace = f.id AND g.pg = d.pg WHERE d.ts > x.last AND d.seq > x.seq AND NOT d.flags & 13 AND d.op NOT IN ('send', 'recv') AND coalesce(g.name, 'group ' || d.pg) = x."group")
)
SELECT l.since / 1e9 AS since, l.rank, 1 AS cause, l."group", l.seq, l.op, count(DISTINCT w.rank) AS waiting, max(w.waited) / 1e9 AS waited, l.run, 'late' AS state,
  coalesce((SELECT e.text || iif(u.depth > e.depth, ', called by ' || u.text, '') FROM stack_text e LEFT JOIN stack_text u ON u.stack = e.stack AND u.is_user
    WHERE e.stack = (SELECT x.stack FROM trace_file t CROSS JOIN sample x ON x.id BETWEEN t.first_id AND t.last_id WHERE t.id = l.trace AND x.stack IS NOT NULL AND x.ts <= l.until
      AND x.thread IN (SELECT h.id - t.first_id FROM thread h WHERE h.trace = t.id AND h.tid = t.pid) ORDER BY x.id DESC LIMIT 1) ORDER BY e.depth, u.depth LIMIT 1), '?') AS does,
  0 AS level, group_concat(DISTINCT w.rank) AS waiters, l.n AS size, l.trace AS trace_id
FROM came l JOIN came w ON w.run IS l.run AND w."group" = l."group" AND NOT w.is_late WHERE l.is_late GROUP BY l.run, l."group", l.rank ORDER BY l.since, l.rank;

-- Where each process was at last: the last sample of its main thread. inner: the innermost Python function (for an interpreter that is ending, a sentence that
-- says so); user: the innermost function that belongs neither to the standard library nor to an installed package (else inner), each with the name of its file
-- and the line; seen: when.
CREATE VIEW whereabouts AS
SELECT trace_id, rank, pid, ppid, role, seen, inner, coalesce(user, inner) AS user FROM (
  SELECT t.id AS trace_id, t.rank, t.pid, t.ppid, t.role, s.ts / 1e9 AS seen,
    coalesce((SELECT e.text FROM stack_text e WHERE e.stack = s.stack ORDER BY e.depth LIMIT 1),
      (SELECT iif(max(r.name = 'Py_FinalizeEx'), 'Py_FinalizeEx (its program is over, and Python ends)', NULL) FROM stack_frame k CROSS JOIN frame r ON r.id = k.frame
        WHERE k.stack = s.stack)) AS inner,
    (SELECT e.text FROM stack_text e WHERE e.stack = s.stack AND e.is_user ORDER BY e.depth LIMIT 1) AS user
  FROM (SELECT * FROM trace_file f WHERE f.program IS NULL OR NOT EXISTS (SELECT 1 FROM trace_file o WHERE o.program = f.program AND coalesce(o.finish_ts, o.end_ts) > coalesce(f.finish_ts, f.end_ts))) t -- the last of its files
  CROSS JOIN sample s ON s.id = coalesce((
    SELECT x.id FROM sample x WHERE x.id BETWEEN t.first_id AND iif(EXISTS (SELECT 1 FROM trigger_event e WHERE e.id BETWEEN t.first_id AND t.last_id AND e.kind IN ('term', 'exception') AND e.tid = t.pid AND e.ts > t.end_ts - 10000000000), t.last_id, 0) AND x.stack IS NOT NULL
      AND x.ts < (SELECT min(e.ts) FROM trigger_event e WHERE e.id BETWEEN t.first_id AND t.last_id AND e.kind IN ('term', 'exception') AND e.tid = t.pid AND e.ts > t.end_ts - 10000000000) -- an exception or a SIGTERM, such as a user's Ctrl-C, ended it: where it was before, and not on its way out
      AND NOT EXISTS (SELECT 1 FROM stack_frame k CROSS JOIN frame r ON r.id = k.frame WHERE k.stack = x.stack AND r.type = 0 AND r.name LIKE '%excepthook%')
      AND x.thread IN (SELECT h.id - t.first_id FROM thread h WHERE h.trace = t.id AND h.tid = t.pid) ORDER BY x.id DESC LIMIT 1), (
    SELECT x.id FROM sample x WHERE x.id BETWEEN t.first_id AND t.last_id AND x.stack IS NOT NULL
      AND x.thread IN (SELECT h.id - t.first_id FROM thread h WHERE h.trace = t.id AND h.tid = t.pid) ORDER BY x.id DESC LIMIT 1),
    CASE WHEN t.program IS NOT NULL THEN (SELECT x.id FROM trace_file o CROSS JOIN sample x ON x.id = (
      SELECT y.id FROM sample y WHERE y.id BETWEEN o.first_id AND o.last_id AND y.stack IS NOT NULL
        AND y.thread IN (SELECT h.id - o.first_id FROM thread h WHERE h.trace = o.id AND h.tid = o.pid) ORDER BY y.id DESC LIMIT 1)
      WHERE o.program = t.program ORDER BY x.ts DESC LIMIT 1) END));

-- The Python frames of each stack as text, "func (file.py:12)".
CREATE VIEW stack_text AS
SELECT k.stack, k.depth, r.name || ' (' || replace(r.file, rtrim(r.file, replace(r.file, '/', '')), '') || ':' || r.line || ')' AS text,
  r.file NOT LIKE '%/site-packages/%' AND r.file NOT LIKE '%/dist-packages/%' AND r.file NOT LIKE '%/lib/python_.%' AND r.file NOT LIKE '<%' AS is_user
FROM stack_frame k CROSS JOIN frame r ON r.id = k.frame WHERE r.type = 0;
