--@ hang: Why does it hang?
--? SELECT EXISTS (SELECT 1 FROM hangs) OR EXISTS (SELECT 1 FROM sample)
--! nothing hangs in torch.distributed: no collective that was recorded is left incomplete; nor did a process that was ended, or has no end, stand still (`probing stacks` shows what each thread does)
CREATE TEMP TABLE hung AS -- what view hangs says; whose recording has no end and stops is looked at, as far as this machine can: it may lag behind, or be stopped and have no more to say
SELECT h.since, h.rank, h.cause, h."group", h.seq, h.op, h.waiting, h.waited, h.run, h.does, h.level, h.waiters, h.size, h.trace_id, t.end_ts,
  CASE iif(h.state IN ('silent', 'dead', 'never came') AND t.end_reason IS NULL, is_running(t.boot_id, t.pid), 0) WHEN 2 THEN 'is stopped' WHEN 1 THEN 'never came' ELSE replace(h.state, 'silent', 'dead') END AS state
FROM hangs h LEFT JOIN trace_file t ON t.id = h.trace_id;
CREATE TEMP TABLE waits AS -- one row for each collective or message that is not complete, in the order of causes
SELECT run, "group", seq, op, state, waiters, min(since) AS since, max(waited) AS waited, max(waiting) AS waiting, max(size) AS size, min(level) AS level,
  ranges(rank) AS who, json_group_array(rank) AS ids, max(iif(nth = 1, rank, NULL)) AS one, max(iif(nth = 1, does, NULL)) AS does, max(iif(nth = 1, trace_id, NULL)) AS one_trace, count(rank) AS n
FROM (SELECT *, row_number() OVER (PARTITION BY run, "group", seq, op, waiters, state ORDER BY iif(state IN ('dead', 'ended'), end_ts, NULL), rank) AS nth FROM hung)
GROUP BY run, "group", seq, op, waiters, state
ORDER BY min(level) IS NULL, min(level), max(cause) DESC, state IN ('cut off', 'not recorded'), state NOT IN ('other call', 'other size'), state <> 'dead', state = 'raised', min(since);
CREATE TEMP TABLE failed AS -- in whom the first of them is over, since when, and after how long; what ends in a process that was told to end in it waited until then
SELECT coalesce(t.rank, o.rank) AS rank, t.id AS trace, c.ts + c.duration AS until, c.duration AS waited FROM (SELECT *, (SELECT max(l.attempt) FROM trace_file l WHERE l.run IS waits.run) AS attempt FROM waits LIMIT 1) w
CROSS JOIN comm c ON NOT c.flags & 1 AND c.seq = w.seq AND c.op = w.op CROSS JOIN trace_file t ON t.id = c.id >> 40 AND t.run IS w.run
LEFT JOIN process_group g ON g.trace = t.id AND g.pg = c.pg LEFT JOIN group_rank o ON o.list = g.list AND o.idx = g.rank
WHERE coalesce(g.name, 'group ' || c.pg) = w."group" AND t.attempt = w.attempt
  AND NOT EXISTS (SELECT 1 FROM trigger_event e WHERE e.id BETWEEN t.first_id AND t.last_id AND e.kind = 'term' AND e.ts BETWEEN c.ts AND c.ts + c.duration);
CREATE TEMP TABLE raised AS -- the same, together, and the first exception that nobody caught in them
SELECT count(DISTINCT rank) AS n, min(until) AS until, max(waited) AS waited, (SELECT iif(length(e.detail) > 160, substr(e.detail, 1, 157) || '...', e.detail) FROM failed f JOIN trigger_event e ON e.id >> 40 = f.trace
  WHERE e.kind = 'exception' AND e.ts >= f.until ORDER BY e.ts LIMIT 1) AS said FROM failed;
CREATE TEMP TABLE ended AS -- when the rank that is named ended (an exception's time: an interpreter that ends takes its time), and how: what it recorded in its last minute
SELECT strftime('%H:%M:%f', coalesce((SELECT min(g.timestamp) FROM triggers g WHERE g.trace_id = t.id AND g.kind = 'exception' AND g.tid = t.pid), t."end"), 'unixepoch') AS at, coalesce((SELECT rtrim(g.kind || ' ' || coalesce(g.detail, '')) FROM triggers g
    WHERE g.trace_id = t.id AND g.kind IN ('killed', 'fatal', 'exception', 'term') AND g.timestamp > t."end" - 60 ORDER BY g.timestamp LIMIT 1),
  iif(t.end_reason = '_exit', 'os._exit()', NULL), 'exit with code ' || nullif(t.exit_code, 0), 'no exception was recorded') AS how
FROM (SELECT * FROM waits LIMIT 1) w JOIN trace t ON t.id = w.one_trace;
-- Where no call is incomplete: who still is, or was in its last seconds, where a process group is made, which waits for all of its ranks, and is no collective.
CREATE TEMP TABLE recent AS -- the last samples of each rank's main thread, in the last attempt
SELECT t.id AS trace, t.rank, t.run, t.end_ts, s.ts, s.stack FROM (SELECT run, max(attempt) AS attempt FROM trace_file GROUP BY run) l
CROSS JOIN trace_file t ON t.run IS l.run AND t.attempt = l.attempt CROSS JOIN sample s ON s.id IN (SELECT x.id FROM sample x WHERE x.id BETWEEN t.first_id AND t.last_id AND x.stack IS NOT NULL
  AND x.thread IN (SELECT h.id - t.first_id FROM thread h WHERE h.trace = t.id AND h.tid = t.pid) ORDER BY x.id DESC LIMIT 100)
WHERE t.rank IS NOT NULL AND t.role IS NOT 'dataloader' AND NOT EXISTS (SELECT 1 FROM waits);
CREATE TEMP TABLE making AS SELECT r.stack, max(substr(e.text, 1, instr(e.text, ' ') - 1)) AS call FROM (SELECT DISTINCT stack FROM recent) r CROSS JOIN stack_text e ON e.stack = r.stack
WHERE e.text LIKE 'init_process_group (distributed_c10d.py:%' OR e.text LIKE 'new_group (distributed_c10d.py:%' GROUP BY r.stack;
CREATE TEMP TABLE joining AS -- who was in such a call last, without another place between, and has made no other call of torch.distributed since
WITH seen AS MATERIALIZED (SELECT r.*, m.call FROM recent r LEFT JOIN making m ON m.stack = r.stack),
  last AS MATERIALIZED (SELECT trace, max(ts) AS ts, (SELECT max(c.ts) FROM trace_file t CROSS JOIN comm c ON c.id BETWEEN t.first_id AND t.last_id WHERE t.id = trace) AS called
    FROM seen WHERE call NOT NULL GROUP BY trace),
  elsewhere AS MATERIALIZED (SELECT s.trace, max(s.ts) AS ts FROM seen s JOIN last l ON l.trace = s.trace WHERE s.call IS NULL AND s.ts < l.ts GROUP BY s.trace)
SELECT s.trace, s.rank, s.run, s.call, min(s.ts) AS since, max(s.ts) AS until FROM seen s JOIN last l ON l.trace = s.trace LEFT JOIN elsewhere e ON e.trace = s.trace
WHERE s.call NOT NULL AND s.ts > coalesce(e.ts, 0) AND s.ts >= coalesce(l.called, 0)
GROUP BY s.trace HAVING max(s.ts) > max(s.end_ts) - 5000000000 AND max(s.ts) - min(s.ts) > 1000000000;
CREATE TEMP TABLE outside AS SELECT t.rank, coalesce(w.inner || iif(w.user <> w.inner, ', called by ' || w.user, ''), '?') AS does FROM trace_file t LEFT JOIN whereabouts w ON w.trace_id = t.id
WHERE t.run IS (SELECT run FROM joining LIMIT 1) AND t.rank NOT NULL AND t.role IS NOT 'dataloader' AND t.id NOT IN (SELECT r.trace FROM recent r JOIN making m ON m.stack = r.stack) AND EXISTS (SELECT 1 FROM joining)
  AND t.attempt = (SELECT max(l.attempt) FROM trace_file l WHERE l.run IS (SELECT run FROM joining LIMIT 1)) GROUP BY t.rank ORDER BY t.rank;
-- Where no group is made either: processes that do nothing, as in a lock. That can be a hang only if somebody ended them, or they still run.
CREATE TEMP TABLE alive AS -- which those are, except a launcher of ranks; until: their end, or when they were told to end
SELECT t.id, t.run, t.rank, t.pid, t.ppid, t.host, t.role, t.first_id, t.last_id, coalesce(e.ts, t.end_ts) AS until FROM trace_file t LEFT JOIN (
  SELECT f.id, min(e.ts) AS ts FROM trace_file f JOIN trigger_event e ON e.id BETWEEN f.first_id AND f.last_id AND (e.kind = 'term' OR e.kind = 'exception' AND e.detail LIKE 'KeyboardInterrupt%') GROUP BY f.id) e ON e.id = t.id
JOIN (SELECT run, max(attempt) AS attempt, max(rank IS NOT NULL) AS ranks FROM trace_file GROUP BY run) l ON l.run IS t.run AND l.attempt = t.attempt AND l.ranks = (t.rank IS NOT NULL)
WHERE (t.end_reason IS NULL OR t.end_reason NOT IN ('exit', '_exit', 'exec') OR e.ts NOT NULL) AND NOT EXISTS (SELECT 1 FROM waits) AND NOT EXISTS (SELECT 1 FROM joining);
CREATE TEMP TABLE lately AS -- the last samples of their threads
SELECT a.id AS trace, s.id, s.thread, s.ts, s.stack, s.cpu_us, a.until FROM alive a CROSS JOIN sample s ON s.id IN (SELECT x.id FROM sample x WHERE x.id BETWEEN a.first_id AND a.last_id AND x.count AND x.ts <= a.until ORDER BY x.id DESC LIMIT 400);
CREATE TEMP TABLE place AS -- where that was, as in view whereabouts
SELECT s.stack, (SELECT e.text FROM stack_text e WHERE e.stack = s.stack ORDER BY e.depth LIMIT 1) AS inner, (SELECT e.text FROM stack_text e WHERE e.stack = s.stack AND e.is_user ORDER BY e.depth LIMIT 1) AS user
FROM (SELECT DISTINCT stack FROM lately WHERE stack NOT NULL) s;
CREATE TEMP TABLE stands AS -- since when each thread has been at its last line, its CPU time since then, and in how many samples it had some: who waits with a timeout wakes up now and then
WITH seen AS MATERIALIZED (SELECT l.*, p.inner, p.user, first_value(p.inner) OVER (PARTITION BY l.trace, l.thread ORDER BY l.id DESC) AS last FROM lately l LEFT JOIN place p ON p.stack = l.stack),
  moved AS MATERIALIZED (SELECT trace, thread, max(id) AS id FROM seen WHERE inner IS NOT last GROUP BY trace, thread)
SELECT s.trace, h.tid, coalesce(h.name, 'thread ' || h.tid) AS name, s.last || iif(max(s.user) <> s.last, ', called by ' || max(s.user), '') AS does, min(s.ts) AS since, s.until,
  coalesce(sum(s.cpu_us) FILTER (WHERE nth > 1), 0) AS cpu_us, count(*) FILTER (WHERE nth > 1 AND s.cpu_us) AS woken
FROM (SELECT s.*, row_number() OVER (PARTITION BY s.trace, s.thread ORDER BY s.id) AS nth FROM seen s LEFT JOIN moved m ON m.trace = s.trace AND m.thread = s.thread WHERE s.id > coalesce(m.id, 0)) s
JOIN thread h ON h.id = s.trace << 40 | s.thread AND coalesce(h.end_ts, s.until) >= s.until GROUP BY s.trace, s.thread HAVING max(s.ts) > s.until - 3000000000;
CREATE TEMP TABLE idle AS -- the main thread has stood for two seconds, woke up less often than every two, and used less than 1 ms of CPU a second; the process less than 50 ms
SELECT a.*, s.since, (a.until - s.since) / 1e9 AS waited FROM alive a JOIN stands s ON s.trace = a.id AND s.tid = a.pid AND s.does NOT NULL
WHERE a.until - s.since > 2000000000 AND s.woken * 2000000000 <= a.until - s.since AND s.cpu_us < (a.until - s.since) / 1000000
  AND (SELECT coalesce(sum(l.cpu_us), 0) FROM lately l WHERE l.trace = a.id AND l.ts > s.since) < 50 * (a.until - s.since) / 1000000
  AND coalesce((SELECT max(c.user_us + c.system_us) - min(c.user_us + c.system_us) FROM cpu c WHERE c.id BETWEEN a.first_id AND a.last_id AND c.ts BETWEEN s.since AND a.until), 0) < 50 * (a.until - s.since) / 1000000;
CREATE TEMP TABLE still AS -- and it does not wait for a process of its own that works
SELECT i.*, (SELECT group_concat(iif(n > 5, 'and ' || more || ' threads more', name || ' in ' || does), '; ') FROM (
  SELECT *, row_number() OVER (ORDER BY tid <> i.pid, since, tid) AS n, count(*) OVER () - 5 AS more FROM stands WHERE trace = i.id AND does NOT NULL ORDER BY n LIMIT 6)) AS does
FROM idle i WHERE NOT EXISTS (SELECT 1 FROM alive c WHERE c.ppid = i.pid AND c.host IS i.host AND c.run IS i.run AND c.id NOT IN (SELECT id FROM idle));
SELECT * FROM (SELECT CASE WHEN level IS NULL AND state = 'waits itself' THEN 'a circle, all wait for each other: ' ELSE '' END || CASE state
  WHEN 'other call' THEN printf('call number %d of group %s: rank%s %s called %s, where others called %s: their order differs', seq, "group",
    CASE n WHEN 1 THEN '' ELSE 's' END, who, does, op)
  WHEN 'other size' THEN printf('%s number %d of group %s: rank%s %s brought %s: the shapes differ', op, seq, "group", CASE n WHEN 1 THEN '' ELSE 's' END, who, does)
  WHEN 'all came' THEN printf('%s number %d of group %s: all %d ranks came and it does not complete (the network, or a backend that waits for a device)',
    op, seq, "group", size)
  WHEN 'from anybody' THEN printf('rank %s waits in recv for whoever sends, and nobody does', waiters)
  ELSE printf('%s number %d of group %s: rank%s %s %s', op, seq, "group", CASE n WHEN 1 THEN '' ELSE 's' END, who, CASE state
      WHEN 'ended' THEN 'had ended' || coalesce((SELECT printf(' at %s (%s%s)', at, iif(n > 1, 'rank ' || one || ' first: ', ''), how) FROM ended), '')
      WHEN 'dead' THEN 'died' || coalesce((SELECT printf(' at %s (%s%s)', at, iif(n > 1, 'rank ' || one || ' first: ', ''), how) FROM ended), '')
      WHEN 'not recorded' THEN CASE n WHEN 1 THEN 'has' ELSE 'have' END || ' no trace here'
      WHEN 'cut off' THEN printf('may have come or not (%s damaged, and without an end)', iif(n > 1, 'their traces are', 'its trace is'))
      WHEN 'is stopped' THEN iif(n > 1, 'are', 'is') || ' stopped, by SIGSTOP or a debugger (process ' || (SELECT pid FROM trace_file WHERE id = one_trace) || ')'
      WHEN 'raised' THEN 'raised an exception' || coalesce((SELECT ' (' || said || ')' FROM raised), '')
      WHEN 'waits itself' THEN 'waits in another'
      ELSE 'never came' END) END
  || CASE WHEN state = 'from anybody' THEN ''
    WHEN is_over THEN (SELECT printf(', and the call failed in %d of %d at %s%s%s', r.n, size, strftime('%H:%M:%f', r.until / 1e9, 'unixepoch'),
      iif(r.waited > 1e9, printf(' after %.1f s', r.waited / 1e9), ''), ' (' || said || ')') FROM raised r)
    ELSE printf(', %d of %d wait since %.1f s before the end (%s)', waiting, size, waited, strftime('%H:%M:%f', since, 'unixepoch')) END
  || CASE WHEN state IN ('never came', 'waits itself', 'dead', 'is stopped', 'cut off') AND does <> '?' THEN printf(': rank %s %s in %s', one, iif(is_over OR state IN ('dead', 'cut off'), 'was', 'is'), does) ELSE '' END
  || CASE WHEN waited < 1 AND state IN ('never came', 'waits itself') AND NOT is_over THEN ' (so short a time that the recording may just have been cut there)' ELSE '' END
  || CASE (SELECT count(*) FROM waits w WHERE w.level > 0) WHEN 0 THEN '' ELSE printf('; %d more collectives and messages of %d groups wait for that',
    (SELECT count(*) FROM waits w WHERE w.level > 0), (SELECT count(DISTINCT "group") FROM waits w WHERE w.level > 0)) END
  || coalesce((SELECT printf('; what rank%s %s did is not known (%s)', iif(count(DISTINCT value) > 1, 's', ''), ranges(value), group_concat(DISTINCT iif(w.state = 'cut off', 'trace cut off', 'no trace here')))
    FROM waits w, json_each(w.ids) WHERE w.state IN ('cut off', 'not recorded') AND waits.state NOT IN ('cut off', 'not recorded') HAVING count(*) > 0), '') AS answer
FROM (SELECT *, (SELECT n FROM raised) > 0 AND NOT EXISTS (SELECT value FROM json_each('[' || waiters || ']') EXCEPT SELECT rank FROM failed) AS is_over FROM waits) waits -- is_over: nobody waits any more
LIMIT 1)
UNION ALL SELECT printf('no call is incomplete, but rank%s %s wait%s in %s, which is over when all ranks have come, since %.1f s before %s end at least (%s)', iif(count(*) > 1, 's', ''), ranges(rank), iif(count(*) > 1, '', 's'),
    max(call), (max(until) - min(since)) / 1e9, iif(count(*) > 1, 'their', 'its'), strftime('%H:%M:%f', min(since) / 1e9, 'unixepoch'))
  || coalesce((SELECT printf(': rank%s %s %s not in it', iif(count(*) > 1, 's', ''), ranges(rank), iif(count(*) > 1, 'are', 'is')) || '; rank ' || min(rank) || ' is in ' || (SELECT does FROM outside LIMIT 1) FROM outside HAVING count(*)), '')
  || coalesce((SELECT printf('; traces of %d of %d ranks are here', count(DISTINCT rank), max(world_size)) FROM trace_file WHERE run IS (SELECT run FROM joining LIMIT 1) HAVING count(DISTINCT rank) < max(world_size)), '')
FROM joining HAVING count(*) > 0
UNION ALL SELECT 'no call of torch.distributed is incomplete, but ' || group_concat(said, '; and ') || coalesce((SELECT printf('; %d process%s more work%s', count(*), iif(count(*) > 1, 'es', ''), iif(count(*) > 1, '', 's')) FROM alive WHERE id NOT IN (SELECT id FROM still) HAVING count(*)), '') FROM (
  SELECT printf('%s %s done nothing since %.1f s before %s end (%s): %s', iif(rank IS NULL, 'process', 'rank') || iif(count(*) > 1, 'es ', ' ') || ranges(coalesce(rank, pid)) || iif(role = 'dataloader', ' (data loader)', ''),
    iif(count(*) > 1, 'have', 'has'), min(waited), iif(count(*) > 1, 'their', 'its'), strftime('%H:%M:%f', max(since) / 1e9, 'unixepoch'), does) AS said
  FROM still GROUP BY rank IS NULL, role IS 'dataloader', does ORDER BY role IS 'dataloader', count(*) DESC, min(since) LIMIT 4) HAVING count(*);
--= what is not complete, the first cause first; level: 0 waits for a cause, 1 for somebody who waits at level 0
SELECT level, "group", seq, op, (SELECT ranges(value) FROM json_each('[' || waiters || ']')) AS waiting, printf('%d of %d', waiting, size) AS of,
  who AS waits_for, state, strftime('%H:%M:%f', since, 'unixepoch') AS since FROM waits LIMIT 20;
--= who is waited for, and what each does instead
SELECT h.rank, h.state, h.does, (SELECT printf('%s number %d of group %s, done %s', c.op, c.seq, c."group", strftime('%H:%M:%f', c.exit, 'unixepoch'))
  FROM comm_metrics c WHERE c.trace_id = h.trace_id AND c.complete ORDER BY c.timestamp DESC LIMIT 1) AS last_call
FROM (SELECT *, row_number() OVER (PARTITION BY run, rank ORDER BY cause DESC, level, since) AS nth FROM hung WHERE rank IS NOT NULL) h
WHERE nth = 1 ORDER BY cause DESC, level IS NULL, level, state IN ('cut off', 'not recorded'), since, rank LIMIT 20;
--= where the causes are, and their child processes: main threads' last samples, innermost frame first
SELECT b.rank, coalesce(t.role, '') AS role, b.depth, b.func, b.file, b.lineno FROM trace t CROSS JOIN backtrace b ON b.trace_id = t.id AND b.sample_id = (
  SELECT max(s.sample_id) FROM samples s WHERE s.trace_id = t.id AND s.tid = s.pid)
WHERE b.frame_type = 'Python' AND t.id IN (SELECT trace_id FROM hangs WHERE cause UNION
  SELECT c.id FROM hangs h JOIN trace p ON p.id = h.trace_id JOIN trace c ON c.ppid = p.pid AND c.host IS p.host WHERE h.cause)
ORDER BY b.rank, t.ppid, t.id, b.depth LIMIT 60;
