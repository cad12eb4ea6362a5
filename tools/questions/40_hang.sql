--@ hang: Why does it hang?
--? SELECT EXISTS (SELECT 1 FROM hangs) OR EXISTS (SELECT 1 FROM sample)
--! nothing hangs in torch.distributed: no collective that was recorded is left incomplete; nor did a process that was ended, or has no end, stand still (`probing stacks` shows what each thread does)
CREATE TEMP TABLE hung AS -- what view hangs says; whose recording has no end and stops is looked at, as far as this machine can: it may lag behind, or be stopped and have no more to say
SELECT h.since, h.rank, h.cause, h."group", h.seq, h.op, h.waiting, h.waited, h.run, h.does, h.level, h.waiters, h.size, h.trace_id, t.end_ts,
  CASE iif(h.state IN ('silent', 'dead', 'never came') AND t.end_reason IS NULL, is_running(t.boot_id, t.pid), 0) WHEN 2 THEN 'is stopped' WHEN 1 THEN 'never came' ELSE replace(h.state, 'silent', 'dead') END AS state
FROM hangs h LEFT JOIN trace_file t ON t.id = h.trace_id
WHERE NOT (h.state = 'silent' AND is_running(t.boot_id, t.pid) = 1 AND ( -- a call that is over in the others, and failed in none, is written down later in a process that lives
  SELECT count(*) AND NOT max(c.flags & 13) FROM comm c WHERE c.ts BETWEEN CAST(h.since * 1e9 AS INTEGER) - 2000 AND CAST((h.since + h.waited) * 1e9 AS INTEGER) + 2000 AND +c.seq = h.seq AND +c.op = h.op AND c.op NOT IN ('send', 'recv')));
CREATE TEMP TABLE waits AS -- one row for each collective or message that is not complete, in the order of causes; in_circle: it is waited for who waits in it, too (others wait for a circle, and are none)
SELECT run, "group", seq, op, state, waiters, min(since) AS since, max(waited) AS waited, max(waiting) AS waiting, max(size) AS size, min(level) AS level,
  ranges(rank) AS who, max(level IS NULL AND EXISTS (SELECT value FROM json_each('[' || waiters || ']') INTERSECT SELECT rank FROM hung WHERE level IS NULL)) AS in_circle, json_group_array(rank) AS ids, max(iif(nth = 1, rank, NULL)) AS one, max(iif(nth = 1, does, NULL)) AS does, max(iif(nth = 1, trace_id, NULL)) AS one_trace, count(rank) AS n
FROM (SELECT *, row_number() OVER (PARTITION BY run, "group", seq, op, waiters, state ORDER BY iif(state IN ('dead', 'ended'), end_ts, NULL), rank) AS nth FROM hung)
GROUP BY run, "group", seq, op, waiters, state
ORDER BY min(level) IS NULL, min(level), max(cause) DESC, in_circle DESC, state IN ('cut off', 'not recorded'), state NOT IN ('other call', 'other size'), state <> 'dead', state = 'raised', min(since);
CREATE TEMP TABLE event AS -- what processes recorded of their ends; of one that has gone on in other files (rotation), in any of these
SELECT coalesce(t.program, t.id) AS process, e.* FROM trigger_event e JOIN trace_file t ON t.id = e.id >> 40 WHERE e.kind IN ('term', 'exception');
CREATE INDEX temp.event_process ON event(process);
CREATE TEMP TABLE failed AS -- in whom the first of them is over, since when, and after how long; what ends in a process that was told to end in it waited until then (messages of one number are several, between two ranks each)
SELECT coalesce(t.rank, o.rank) AS rank, coalesce(t.program, t.id) AS process, c.ts + c.duration AS until, c.duration AS waited FROM (SELECT *, (SELECT max(l.attempt) FROM trace_file l WHERE l.run IS waits.run) AS attempt FROM waits LIMIT 1) w
CROSS JOIN comm c ON NOT c.flags & 1 AND c.seq = w.seq AND c.op = w.op AND c.op NOT IN ('send', 'recv') CROSS JOIN trace_file t ON t.id = c.id >> 40 AND t.run IS w.run
LEFT JOIN process_group g ON g.trace = t.id AND g.pg = c.pg LEFT JOIN group_rank o ON o.list = g.list AND o.idx = g.rank
WHERE coalesce(g.name, 'group ' || c.pg) = w."group" AND t.attempt = w.attempt
  AND NOT EXISTS (SELECT 1 FROM event e WHERE e.process = coalesce(t.program, t.id) AND e.kind = 'term' AND e.ts BETWEEN c.ts AND c.ts + c.duration);
CREATE TEMP TABLE raised AS -- the same, together (without who came when it had failed already), and the first exception that nobody caught in them; the time of it is told by another clock than a duration's end
SELECT count(DISTINCT rank) AS n, min(until) AS until, max(waited) AS waited, (SELECT iif(length(e.detail) > 160, substr(e.detail, 1, 157) || '...', e.detail) FROM failed f JOIN event e ON e.process = f.process
  WHERE e.kind = 'exception' AND e.ts >= f.until - 1000000 - f.waited / 5000 ORDER BY e.ts LIMIT 1) AS said
FROM failed WHERE NOT EXISTS (SELECT 1 FROM hung h WHERE h.state = 'late' AND h.rank = failed.rank);
CREATE TEMP TABLE feeder AS -- if the rank that is named waits for its data loader, or for the end of a child process: where those workers are that make a batch, or that child
WITH files AS MATERIALIZED (SELECT t.*, coalesce(t.program, t.id) AS process FROM (SELECT one_trace AS id FROM (SELECT * FROM waits LIMIT 1) WHERE state = 'never came') w JOIN trace_file o ON o.id = w.id
    JOIN trace_file t ON t.id = o.id OR t.program = o.program OR t.ppid = o.pid AND t.host IS o.host AND t.run IS o.run AND (t.role = 'dataloader' OR t.end_reason IS NULL OR t.end_reason NOT IN ('exit', '_exit', 'exec'))),
  late AS MATERIALIZED (SELECT f.process, f.pid, f.ppid, f.role, max(s.ts), s.stack FROM files f -- of each process its main thread's last stack, in whichever of its files that is
    CROSS JOIN sample s ON s.id = (SELECT max(x.id) FROM sample x WHERE x.id BETWEEN f.first_id AND f.last_id AND x.stack IS NOT NULL
      AND x.thread IN (SELECT h.id - f.first_id FROM thread h WHERE h.trace = f.id AND h.tid = f.pid)) GROUP BY f.process)
SELECT group_concat(said, '; ') AS said FROM (
  SELECT printf('its data loader (process %d) in %s', c.pid, v.inner || iif(v.user <> v.inner, ', called by ' || v.user, '')) AS said
  FROM late p CROSS JOIN late c ON c.ppid = p.pid AND c.role = 'dataloader' CROSS JOIN files f ON f.process = c.process JOIN whereabouts v ON v.trace_id = f.id
  WHERE p.role IS NOT 'dataloader' AND EXISTS (SELECT 1 FROM stack_text e WHERE e.stack = p.stack AND e.text LIKE '% (dataloader.py:%')
    AND EXISTS (SELECT 1 FROM stack_text e WHERE e.stack = c.stack AND e.text LIKE '% (fetch.py:%')
  UNION ALL SELECT printf('it waits for the end of its child process %d, which is in %s', c.pid, v.inner || iif(v.user <> v.inner, ', called by ' || v.user, ''))
  FROM late p CROSS JOIN late c ON c.ppid = p.pid AND c.role IS NOT 'dataloader' CROSS JOIN files f ON f.process = c.process JOIN whereabouts v ON v.trace_id = f.id
  WHERE EXISTS (SELECT 1 FROM stack_frame k CROSS JOIN frame r ON r.id = k.frame WHERE k.stack = p.stack AND k.depth < 3 AND r.type = 1 AND (r.name GLOB '*wait4' OR r.name GLOB '*waitpid' OR r.name GLOB '*waitid'))
  ORDER BY 1 LIMIT 3);
CREATE TEMP TABLE locked AS -- if its main thread waits for a lock: which of its threads wait for one, too (not in the standard library, where a thread waits for work so); if it waits for the end of a thread, or for its result: where those are that run the user's code
WITH file AS MATERIALIZED (SELECT o.* FROM (SELECT one_trace AS id FROM (SELECT * FROM waits LIMIT 1) WHERE state = 'never came') w JOIN trace_file o ON o.id = w.id),
  ends AS MATERIALIZED (SELECT h.tid = f.pid AS is_main, coalesce(h.name, 'thread ' || h.tid) AS name, (SELECT e.text FROM stack_text e WHERE e.stack = s.stack ORDER BY e.depth LIMIT 1) AS inner,
      (SELECT z.file LIKE '%/lib/python_.%' AND z.file NOT LIKE '%-packages/%' FROM stack_frame y CROSS JOIN frame z ON z.id = y.frame WHERE y.stack = s.stack AND z.type = 0 ORDER BY y.depth LIMIT 1) AS is_library,
      s.stack, (SELECT e.text FROM stack_text e WHERE e.stack = s.stack AND e.is_user ORDER BY e.depth LIMIT 1) AS user
    FROM file f JOIN thread h ON h.trace = f.id AND coalesce(h.end_ts, f.end_ts) >= f.end_ts CROSS JOIN sample s ON s.id = (SELECT x.id FROM sample x WHERE x.id BETWEEN f.first_id AND f.last_id AND x.stack NOT NULL
      AND x.thread = h.id - f.first_id ORDER BY x.id DESC LIMIT 1)),
  last AS MATERIALIZED (SELECT * FROM ends s
    WHERE EXISTS (SELECT 1 FROM stack_frame k CROSS JOIN frame r ON r.id = k.frame WHERE k.stack = s.stack AND k.depth < 8 AND r.type = 1 AND (r.name GLOB '*PyThread_acquire_lock*' OR r.name GLOB '*PyMutex_Lock*')
      AND k.depth < (SELECT min(y.depth) FROM stack_frame y CROSS JOIN frame z ON z.id = y.frame WHERE y.stack = s.stack AND z.type = 0)))
SELECT group_concat(said, '; ') AS said FROM (SELECT printf('its thread %s waits for a lock, too, in %s', name, inner) AS said FROM last
  WHERE NOT is_main AND NOT is_library AND EXISTS (SELECT 1 FROM last WHERE is_main AND NOT is_library) ORDER BY name LIMIT 3)
UNION ALL SELECT 'it waits for a thread of its own: ' || group_concat(name || ' in ' || inner || iif(user <> inner, ', called by ' || user, ''), '; ') FROM (SELECT * FROM ends
  WHERE NOT is_main AND user NOT NULL AND EXISTS (SELECT 1 FROM ends m WHERE m.is_main AND EXISTS (SELECT 1 FROM stack_text e WHERE e.stack = m.stack AND (e.text LIKE '%join (threading.py:%' OR e.text LIKE '%result (_base.py:%')))
    AND NOT EXISTS (SELECT 1 FROM last l WHERE l.is_main AND NOT l.is_library) ORDER BY name LIMIT 3) HAVING count(*);
CREATE TEMP TABLE ended AS -- when the rank that is named ended (an exception's time: an interpreter that ends takes its time), and how: what it recorded in its last minute
SELECT strftime('%H:%M:%f', coalesce((SELECT min(e.ts) / 1e9 FROM event e WHERE e.process = t.process AND e.kind = 'exception' AND e.tid = t.pid), t."end"), 'unixepoch') AS at, coalesce((SELECT rtrim(g.kind || ' ' || coalesce(g.detail, '')) FROM trace_file f CROSS JOIN triggers g ON g.trace_id = f.id
    WHERE (f.id = t.id OR f.program = t.process) AND g.kind IN ('killed', 'fatal', 'exception', 'term') AND g.timestamp > t."end" - 60 ORDER BY g.timestamp LIMIT 1),
  iif(t.end_reason = '_exit', 'os._exit()', NULL), 'exit with code ' || t.exit_code, 'no exception was recorded') AS how
FROM (SELECT * FROM waits LIMIT 1) w JOIN (SELECT e.*, coalesce(f.program, f.id) AS process FROM trace e JOIN trace_file f ON f.id = e.id) t ON t.id = w.one_trace;
UPDATE ended SET how = how || '; its process was gone at ' || at, at = NULL -- its connections close, and the calls of the others fail, before its process ends
WHERE (SELECT strftime('%H:%M:%f', until / 1e9, 'unixepoch') < at AND waited > 0 FROM raised);
-- Where no call is incomplete, what each process does at its end is looked at. A process that has gone on in other files is one process.
CREATE TEMP TABLE file AS -- the files of the processes of each run's last attempt, nth 1 is a process's last one; main: the number of its main thread there
SELECT t.*, coalesce(t.program, t.id) AS process, (SELECT max(h.id) - t.first_id FROM thread h WHERE h.trace = t.id AND h.tid = t.pid) AS main,
  row_number() OVER (PARTITION BY coalesce(t.program, t.id) ORDER BY coalesce(t.finish_ts, t.end_ts) DESC, t.id DESC) AS nth
FROM (SELECT run, max(attempt) AS attempt FROM trace_file GROUP BY run) l CROSS JOIN trace_file t ON t.run IS l.run AND t.attempt = l.attempt WHERE NOT EXISTS (SELECT 1 FROM waits);
CREATE INDEX temp.file_process ON file(process);
-- Who still is, or was in its last seconds, where a process group is made, which waits for all of its ranks, and is no collective.
CREATE TEMP VIEW makes_group AS SELECT stack, substr(text, 1, instr(text, ' ') - 1) AS call FROM stack_text
WHERE text LIKE 'init_process_group (distributed_c10d.py:%' OR text LIKE 'new_group (distributed_c10d.py:%';
CREATE TEMP TABLE recent AS -- the last samples of each rank's main thread, until its end or the exception that ended it: an interpreter that ends takes its time
SELECT t.id AS trace, t.process, t.rank, t.run, t.end_ts, s.id, s.ts, s.stack FROM (
  SELECT f.id, f.process, f.rank, f.run, f.first_id, f.last_id, f.main, coalesce((SELECT min(e.ts) FROM trigger_event e WHERE e.id BETWEEN f.first_id AND f.last_id AND e.kind = 'exception' AND e.tid = f.pid), f.end_ts) AS end_ts
  FROM file f WHERE f.nth = 1 AND f.rank IS NOT NULL AND f.role IS NOT 'dataloader') t
CROSS JOIN sample s ON s.id IN (SELECT x.id FROM sample x WHERE x.id BETWEEN t.first_id AND t.last_id AND x.stack IS NOT NULL AND x.thread = t.main AND x.ts <= t.end_ts ORDER BY x.id DESC LIMIT 100);
CREATE TEMP TABLE making AS SELECT r.stack, max(m.call) AS call FROM (SELECT DISTINCT stack FROM recent) r CROSS JOIN makes_group m ON m.stack = r.stack GROUP BY r.stack;
CREATE TEMP TABLE joiner AS -- who was in such a call last, as these samples tell (id: the first of them), without another place between, and has made no other call of torch.distributed since
WITH seen AS MATERIALIZED (SELECT r.*, m.call FROM recent r LEFT JOIN making m ON m.stack = r.stack),
  last AS MATERIALIZED (SELECT trace, max(ts) AS ts, (SELECT max(c.ts) FROM file f CROSS JOIN comm c ON c.id BETWEEN f.first_id AND f.last_id WHERE f.process = seen.process) AS called
    FROM seen WHERE call NOT NULL GROUP BY trace),
  elsewhere AS MATERIALIZED (SELECT s.trace, max(s.ts) AS ts FROM seen s JOIN last l ON l.trace = s.trace WHERE s.call IS NULL AND s.ts < l.ts GROUP BY s.trace)
SELECT s.trace, s.process, s.rank, s.run, s.call, min(s.id) AS id, max(s.ts) AS until, l.called FROM seen s JOIN last l ON l.trace = s.trace LEFT JOIN elsewhere e ON e.trace = s.trace
WHERE s.call NOT NULL AND s.ts > coalesce(e.ts, 0) AND s.ts >= coalesce(l.called, 0)
GROUP BY s.trace HAVING max(s.ts) > max(s.end_ts) - 5000000000 AND max(s.ts) - min(s.ts) > 1000000000;
CREATE TEMP TABLE joined AS -- of each of their files, the last sample that was elsewhere: it is read backwards to there, however long ago that is
WITH RECURSIVE back(trace, nth, first_id, last_id, main, id, inside) AS (
  SELECT j.trace, f.nth, f.first_id, f.last_id, f.main, iif(f.nth = 1, j.id, f.last_id + 1), 1 FROM joiner j CROSS JOIN file f ON f.process = j.process
  UNION ALL SELECT b.trace, b.nth, b.first_id, b.last_id, b.main, x.id, EXISTS (SELECT 1 FROM makes_group m WHERE m.stack = x.stack)
  FROM back b CROSS JOIN sample x ON x.id = (SELECT s.id FROM sample s WHERE s.id BETWEEN b.first_id AND b.id - 1 AND s.thread = b.main AND s.stack NOT NULL
    AND s.stack NOT IN (SELECT m.stack FROM making m) ORDER BY s.id DESC LIMIT 1) WHERE b.inside)
SELECT trace, nth, first_id, last_id, main, max(iif(inside, NULL, id)) AS elsewhere FROM back GROUP BY trace, nth;
CREATE INDEX temp.joined_trace ON joined(trace);
CREATE TEMP TABLE joining AS -- since when they are in the call; is_seen: that they came to it was recorded
SELECT j.*, (SELECT min(s.ts) FROM joined d CROSS JOIN sample s ON s.id = (SELECT x.id FROM sample x WHERE x.id BETWEEN coalesce(d.elsewhere + 1, d.first_id) AND d.last_id AND x.thread = d.main
      AND x.stack NOT NULL AND x.ts >= coalesce(j.called, 0) ORDER BY x.id LIMIT 1)
    WHERE d.trace = j.trace AND d.nth <= coalesce((SELECT min(o.nth) FROM joined o WHERE o.trace = j.trace AND o.elsewhere NOT NULL), d.nth)) AS since,
  j.called NOT NULL OR EXISTS (SELECT 1 FROM joined o WHERE o.trace = j.trace AND o.elsewhere NOT NULL) AS is_seen
FROM joiner j;
CREATE TEMP TABLE gave_up AS SELECT min(until) AS until FROM joining; -- the first of them, unless all are still there
CREATE TEMP TABLE outside AS SELECT t.rank, coalesce(w.inner || iif(w.user <> w.inner, ', called by ' || w.user, ''), '?') AS does FROM file t LEFT JOIN whereabouts w ON w.trace_id = t.id
WHERE t.nth = 1 AND t.run IS (SELECT run FROM joining LIMIT 1) AND t.rank NOT NULL AND t.role IS NOT 'dataloader' AND t.id NOT IN (SELECT r.trace FROM recent r JOIN making m ON m.stack = r.stack)
  AND EXISTS (SELECT 1 FROM joining) GROUP BY t.rank ORDER BY t.rank;
-- Where no group is made either: processes that do nothing, as in a lock. That can be a hang only if somebody ended them, or they still run.
CREATE TEMP TABLE alive AS -- which those are, except a launcher of ranks; until: their end, or when they were told to end
SELECT t.id, t.process, t.run, t.rank, t.pid, t.ppid, t.host, t.role, t.first_id, t.last_id, t.main, coalesce(iif(e.ts >= t.start_ts, e.ts, NULL), t.end_ts) AS until FROM file t LEFT JOIN (
  SELECT process, min(ts) AS ts FROM event WHERE kind = 'term' OR kind = 'exception' AND detail LIKE 'KeyboardInterrupt%' GROUP BY process) e ON e.process = t.process
JOIN (SELECT run, max(rank IS NOT NULL) AS ranks FROM file GROUP BY run) l ON l.run IS t.run AND l.ranks = (t.rank IS NOT NULL)
WHERE t.nth = 1 AND (t.end_reason IS NULL OR t.end_reason NOT IN ('exit', '_exit', 'exec') OR e.ts NOT NULL) AND NOT EXISTS (SELECT 1 FROM joining);
CREATE TEMP TABLE near AS -- each process's files that reach into its last three seconds: the last one may have just begun; lately: the last 400 samples there
SELECT a.id AS trace, a.until, f.id AS file, f.nth, f.first_id, f.last_id, f.main, coalesce((SELECT x.id FROM sample x WHERE x.id BETWEEN f.first_id AND f.last_id AND x.count AND x.ts <= a.until ORDER BY x.id DESC LIMIT 1 OFFSET 399), f.first_id) AS lately
FROM alive a CROSS JOIN file f ON f.process = a.process AND (f.nth = 1 OR f.end_ts > a.until - 3000000000);
CREATE INDEX temp.near_trace ON near(trace, nth);
CREATE TEMP VIEW place AS -- where a stack is, as in view whereabouts
SELECT id AS stack, (SELECT e.text FROM stack_text e WHERE e.stack = stack.id ORDER BY e.depth LIMIT 1) AS inner,
  (SELECT e.text FROM stack_text e WHERE e.stack = stack.id AND e.is_user ORDER BY e.depth LIMIT 1) AS user FROM stack;
CREATE TEMP TABLE stood AS -- where the main thread was at last
SELECT a.*, s.id AS sample, s.stack, p.inner FROM alive a CROSS JOIN sample s ON s.id = (SELECT id FROM (
  SELECT (SELECT x.id FROM sample x WHERE x.id BETWEEN n.lately AND n.last_id AND x.thread = n.main AND x.count AND x.ts <= n.until ORDER BY x.id DESC LIMIT 1) AS id, nth FROM near n WHERE n.trace = a.id)
  WHERE id NOT NULL ORDER BY nth LIMIT 1)
JOIN thread h ON h.id = s.id - s.id % (1 << 40) + s.thread AND coalesce(h.end_ts, a.until) >= a.until CROSS JOIN place p ON p.stack = s.stack AND p.inner NOT NULL WHERE s.ts > a.until - 3000000000;
CREATE TEMP TABLE stayed AS -- of each of its files, the last sample at another line: it is read backwards to there
WITH RECURSIVE back(trace, nth, first_id, last_id, main, inner, id, stack, inside) AS (
  SELECT s.id, f.nth, f.first_id, f.last_id, f.main, s.inner, iif(s.sample BETWEEN f.first_id AND f.last_id, s.sample, f.last_id + 1), s.stack, 1 FROM stood s CROSS JOIN file f ON f.process = s.process
  UNION ALL SELECT b.trace, b.nth, b.first_id, b.last_id, b.main, b.inner, x.id, x.stack, b.inner IS (SELECT p.inner FROM place p WHERE p.stack = x.stack)
  FROM back b CROSS JOIN sample x ON x.id = (SELECT s.id FROM sample s WHERE s.id BETWEEN b.first_id AND b.id - 1 AND s.thread = b.main AND s.count AND s.stack IS NOT b.stack ORDER BY s.id DESC LIMIT 1)
  WHERE b.inside)
SELECT trace, nth, first_id, last_id, main, max(iif(inside, NULL, id)) AS elsewhere FROM back GROUP BY trace, nth;
CREATE INDEX temp.stayed_trace ON stayed(trace);
CREATE TEMP TABLE here AS -- of each process, the files since then: the last one that was elsewhere, and the later ones
SELECT d.*, coalesce(d.elsewhere + 1, d.first_id) AS moved FROM stayed d WHERE d.nth <= coalesce((SELECT min(o.nth) FROM stayed o WHERE o.trace = d.trace AND o.elsewhere NOT NULL), d.nth);
CREATE INDEX temp.here_trace ON here(trace);
CREATE TEMP TABLE standing AS -- whose main thread came to its last line more than two seconds before the end; is_seen: that it came there was recorded
SELECT * FROM (
  SELECT s.*, EXISTS (SELECT 1 FROM here d WHERE d.trace = s.id AND d.elsewhere NOT NULL) AS is_seen,
    (SELECT min(x.ts) FROM here d CROSS JOIN sample x ON x.id = (SELECT y.id FROM sample y WHERE y.id BETWEEN d.moved AND d.last_id AND y.thread = d.main AND y.count ORDER BY y.id LIMIT 1) WHERE d.trace = s.id) AS came
  FROM stood s) WHERE until - came > 2000000000;
CREATE TEMP TABLE idle AS -- in the process's last samples, the main thread stands for two seconds, wakes up less often than every two, and uses less than 1 ms of CPU a second; the process less than
-- 50 ms. Before these samples, its CPU time tells when it was last at work.
WITH seen AS MATERIALIZED (SELECT s.*, (SELECT min(x.ts) FROM near n JOIN here d ON d.trace = n.trace AND d.nth = n.nth CROSS JOIN sample x ON x.id = (SELECT y.id FROM sample y
      WHERE y.id BETWEEN max(n.lately, d.moved) AND n.last_id AND y.thread = n.main AND y.count ORDER BY y.id LIMIT 1) WHERE n.trace = s.id) AS since FROM standing s),
  used AS MATERIALIZED (SELECT s.*, coalesce(sum(x.cpu_us) FILTER (WHERE x.thread = n.main), 0) AS cpu_us, count(*) FILTER (WHERE x.thread = n.main AND x.cpu_us) AS woken, coalesce(sum(x.cpu_us), 0) AS all_us
    FROM seen s CROSS JOIN near n ON n.trace = s.id LEFT JOIN sample x ON x.id BETWEEN n.lately AND n.last_id AND x.count AND x.ts > s.since AND x.ts <= s.until WHERE s.until - s.since > 2000000000 GROUP BY s.id),
  worked AS MATERIALIZED (SELECT u.*, (SELECT coalesce(max(c.user_us + c.system_us) - min(c.user_us + c.system_us), 0) FROM near n CROSS JOIN cpu c ON c.id BETWEEN n.first_id AND n.last_id
      WHERE n.trace = u.id AND c.ts BETWEEN u.since AND u.until) AS process_us,
    (SELECT max(k.ts) FROM (SELECT c.ts, c.ts - lag(c.ts) OVER (ORDER BY c.ts) AS ns, c.user_us + c.system_us - lag(c.user_us + c.system_us) OVER (ORDER BY c.ts) AS us
      FROM file f CROSS JOIN cpu c ON c.id BETWEEN f.first_id AND f.last_id WHERE f.process = u.process AND c.ts BETWEEN u.came AND u.since) k WHERE k.us >= 50 * k.ns / 1000000) AS at
    FROM used u WHERE all_us < 50 * (until - since) / 1000000 AND woken * 2000000000 <= until - since AND cpu_us < (until - since) / 1000000)
SELECT *, max(came, coalesce(at, 0)) AS still_since, (until - max(came, coalesce(at, 0))) / 1e9 AS waited, is_seen OR at NOT NULL AS is_known FROM worked WHERE process_us < 50 * (until - since) / 1000000;
CREATE TEMP TABLE last AS -- where their threads are at the end
SELECT l.*, coalesce(l.named, 'thread ' || l.tid) AS name, p.inner, p.inner || iif(p.user <> p.inner, ', called by ' || p.user, '') AS does FROM (
  SELECT i.id AS trace, n.lately, i.until, x.thread, max(x.ts), x.id, x.stack, h.tid, h.name AS named FROM idle i CROSS JOIN near n ON n.trace = i.id
  CROSS JOIN sample x ON x.id BETWEEN n.lately AND n.last_id AND x.count AND x.ts <= i.until AND x.ts > i.until - 3000000000 JOIN thread h ON h.id = n.file << 40 | x.thread
  WHERE NOT EXISTS (SELECT 1 FROM near o JOIN thread e ON e.trace = o.file AND e.tid = h.tid WHERE o.trace = i.id AND e.end_ts < i.until) GROUP BY i.id, h.tid) l CROSS JOIN place p ON p.stack = l.stack WHERE p.inner NOT NULL;
CREATE TEMP TABLE stands AS -- and in the order in which they came there, as far as these samples tell
WITH RECURSIVE back(trace, tid, thread, lately, inner, id, stack, inside) AS (
  SELECT trace, tid, thread, lately, inner, id, stack, 1 FROM last
  UNION ALL SELECT b.trace, b.tid, b.thread, b.lately, b.inner, x.id, x.stack, b.inner IS (SELECT p.inner FROM place p WHERE p.stack = x.stack)
  FROM back b CROSS JOIN sample x ON x.id = (SELECT s.id FROM sample s WHERE s.id BETWEEN b.lately AND b.id - 1 AND s.thread = b.thread AND s.count AND s.stack IS NOT b.stack ORDER BY s.id DESC LIMIT 1)
  WHERE b.inside)
SELECT l.*, max(iif(b.inside, NULL, b.id)) AS moved FROM last l JOIN back b ON b.trace = l.trace AND b.tid = l.tid GROUP BY l.trace, l.tid;
CREATE INDEX temp.stands_trace ON stands(trace);
CREATE TEMP TABLE still AS -- and it does not wait for a process of its own that works
SELECT i.*, (SELECT group_concat(iif(n > 5, 'and ' || more || ' threads more', name || ' in ' || does), '; ') FROM (
  SELECT *, row_number() OVER (ORDER BY tid <> i.pid, moved, tid) AS n, count(*) OVER () - 5 AS more FROM stands WHERE trace = i.id ORDER BY n LIMIT 6)) AS does
FROM idle i WHERE NOT EXISTS (SELECT 1 FROM alive c WHERE c.ppid = i.pid AND c.host IS i.host AND c.run IS i.run AND c.id NOT IN (SELECT id FROM idle));
SELECT * FROM (SELECT CASE WHEN level IS NULL AND state = 'waits itself' THEN 'a circle, all wait for each other: ' ELSE '' END || CASE state
  WHEN 'other call' THEN printf('call number %d of group %s: rank%s %s called %s, where others called %s: their order differs', seq, "group",
    CASE n WHEN 1 THEN '' ELSE 's' END, who, does, op)
  WHEN 'other size' THEN printf('%s number %d of group %s: rank%s %s brought %s: the shapes differ', op, seq, "group", CASE n WHEN 1 THEN '' ELSE 's' END, who, does)
  WHEN 'all came' THEN printf('%s number %d of group %s: all %d ranks came and it does not complete (the network, or a backend that waits for a device)',
    op, seq, "group", size)
  WHEN 'from anybody' THEN printf('rank %s waits in recv for whoever sends, and nobody does', waiters)
  ELSE printf('%s number %d of group %s: rank%s %s %s', op, seq, "group", CASE n WHEN 1 THEN '' ELSE 's' END, who, CASE state
      WHEN 'ended' THEN 'had ended' || coalesce((SELECT printf('%s (%s%s)', coalesce(' at ' || at, ''), iif(n > 1, 'rank ' || one || ' first: ', ''), how) FROM ended), '')
      WHEN 'dead' THEN 'died' || coalesce((SELECT printf('%s (%s%s)', coalesce(' at ' || at, ''), iif(n > 1, 'rank ' || one || ' first: ', ''), how) FROM ended), '')
      WHEN 'not recorded' THEN CASE n WHEN 1 THEN 'has' ELSE 'have' END || ' no trace here'
      WHEN 'cut off' THEN printf('may have come or not (%s damaged, and without an end)', iif(n > 1, 'their traces are', 'its trace is'))
      WHEN 'is stopped' THEN iif(n > 1, 'are', 'is') || ' stopped, by SIGSTOP or a debugger (process ' || (SELECT pid FROM trace_file WHERE id = one_trace) || ')'
      WHEN 'raised' THEN 'raised an exception' || coalesce((SELECT ' (' || said || ')' FROM raised), '')
      WHEN 'waits itself' THEN iif(n > 1, 'wait', 'waits') || ' in another'
      WHEN 'late' THEN printf('came %.1f s too late', (SELECT f.until - f.waited - r.until FROM failed f, raised r WHERE f.process = (SELECT coalesce(program, id) FROM trace_file WHERE id = one_trace)) / 1e9)
      ELSE 'never came' END) END
  || CASE WHEN state = 'from anybody' THEN ''
    WHEN is_over THEN (SELECT printf(', and the call failed in %d of %d at %s%s%s', r.n, size, strftime('%H:%M:%f', r.until / 1e9, 'unixepoch'),
      iif(r.waited > 1e9, printf(' after %.1f s', r.waited / 1e9), ''), ' (' || said || ')') FROM raised r)
    ELSE printf(', %d of %d%s wait since %.1f s before the end (%s)', waiting, size, iif(in_circle AND waiting < 9, printf(' (rank%s %s)', iif(waiting > 1, 's', ''), waiters), ''), waited, strftime('%H:%M:%f', since, 'unixepoch')) END
  || CASE WHEN state IN ('never came', 'waits itself', 'dead', 'is stopped', 'cut off', 'late') AND does <> '?'
    THEN printf(': rank %s %s in %s', one, iif(state IN ('dead', 'cut off', 'late') OR is_over AND NOT (SELECT is_running(boot_id, pid) FROM trace_file WHERE id = one_trace), 'was', 'is'), does) || coalesce('; ' || (SELECT said FROM feeder), '') || coalesce('; ' || (SELECT group_concat(said, '; ') FROM locked), '') ELSE '' END
  || CASE WHEN waited < 1 AND state IN ('never came', 'waits itself') AND NOT is_over THEN ' (so short a time that the recording may just have been cut there)' ELSE '' END
  || coalesce((SELECT iif(count(*) = 1, '; one more collective or message waits', printf('; %d more collectives and messages of %d group%s wait', count(*), count(DISTINCT "group"),
    iif(count(DISTINCT "group") > 1, 's', ''))) || ' for that' FROM waits w WHERE w.level > 0 HAVING count(*)), '')
  || coalesce((SELECT printf('; what rank%s %s did is not known (%s)', iif(count(DISTINCT value) > 1, 's', ''), ranges(value), group_concat(DISTINCT iif(w.state = 'cut off', 'trace cut off', 'no trace here')))
    FROM waits w, json_each(w.ids) WHERE w.state IN ('cut off', 'not recorded') AND waits.state NOT IN ('cut off', 'not recorded') HAVING count(*) > 0), '') AS answer
FROM (SELECT *, (SELECT n FROM raised) > 0 AND NOT EXISTS (SELECT value FROM json_each('[' || waiters || ']') EXCEPT SELECT rank FROM failed) AS is_over FROM waits) waits -- is_over: nobody waits any more
LIMIT 1)
UNION ALL SELECT printf('no call is incomplete, but rank%s %s wait%s in %s%s since %.1f s before %s end%s (%s)%s', iif(count(*) > 1, 's', ''), ranges(rank), iif(count(*) > 1, '', 's'),
    max(call), iif(count(DISTINCT rank) = (SELECT max(world_size) FROM trace_file WHERE run IS (SELECT run FROM joining LIMIT 1)) AND min(call LIKE 'init%'), '', ', which is over when all ranks have come,'), (max(until) - min(since)) / 1e9, iif(count(*) > 1, 'their', 'its'), (SELECT iif(is_seen, '', ' at least') FROM joining ORDER BY since LIMIT 1), strftime('%H:%M:%f', min(since) / 1e9, 'unixepoch'),
    iif(count(DISTINCT rank) = (SELECT max(world_size) FROM trace_file WHERE run IS (SELECT run FROM joining LIMIT 1)) AND min(call LIKE 'init%'), ': all ranks have come to it; the store in which they meet, or the connections between them, are slow or do not work', ''))
  || coalesce((SELECT printf(': rank%s %s %s not in it', iif(count(*) > 1, 's', ''), ranges(rank), iif(count(*) > 1, 'are', 'is')) || '; rank ' || min(rank) || ' is in ' || (SELECT does FROM outside LIMIT 1) FROM outside HAVING count(*)), '')
  || coalesce((SELECT printf(': rank%s %s came to it when they had given up, %.1f s later', iif(count(*) > 1, 's', ''), ranges(j.rank), (min(j.since) - f.until) / 1e9) FROM joining j, gave_up f WHERE j.since > f.until HAVING count(*)), '')
  || coalesce((SELECT printf('; traces of %d of %d ranks are here', count(DISTINCT rank), max(world_size)) FROM trace_file WHERE run IS (SELECT run FROM joining LIMIT 1) HAVING count(DISTINCT rank) < max(world_size)), '')
FROM joining WHERE since <= (SELECT until FROM gave_up) HAVING count(*) > 0
UNION ALL SELECT 'no call of torch.distributed is incomplete, but ' || group_concat(said, '; and ') || coalesce((SELECT printf('; %d process%s more work%s', count(*), iif(count(*) > 1, 'es', ''), iif(count(*) > 1, '', 's')) FROM alive WHERE id NOT IN (SELECT id FROM still) HAVING count(*)), '') FROM (
  SELECT printf('%s %s done nothing since %.1f s before %s end%s (%s): %s', iif(rank IS NULL, iif(count(*) > 1, 'processes ', 'process '), iif(count(*) > 1, 'ranks ', 'rank ')) || ranges(coalesce(rank, pid)) || iif(role = 'dataloader', ' (data loader)', ''),
    iif(count(*) > 1, 'have', 'has'), min(waited), iif(count(*) > 1, 'their', 'its'), iif(max(is_known), '', ' at least'), strftime('%H:%M:%f', max(still_since) / 1e9, 'unixepoch'), does) AS said
  FROM still GROUP BY rank IS NULL, role IS 'dataloader', does ORDER BY role IS 'dataloader', count(*) DESC, min(still_since) LIMIT 4) HAVING count(*);
--= what is not complete, the first cause first; level: 0 waits for a cause, 1 for somebody who waits at level 0
SELECT level, "group", seq, op, iif(length(came) > 80, rtrim(substr(came, 1, 80), '0123456789-') || '...', came) AS waiting, of, -- view hangs has all of them
  iif(length(who) > 80, rtrim(substr(who, 1, 80), '0123456789-') || '...', who) AS waits_for, state, strftime('%H:%M:%f', since, 'unixepoch') AS since
FROM (SELECT *, (SELECT ranges(value) FROM json_each('[' || waiters || ']')) AS came, printf('%d of %d', waiting, size) AS of FROM waits LIMIT 20);
--= who is waited for, and what each does instead
SELECT h.rank, h.state, h.does, (SELECT printf('%s number %d of group %s, done %s', c.op, c.seq, c."group", strftime('%H:%M:%f', c.exit, 'unixepoch'))
  FROM comm_metrics c WHERE c.trace_id IN (SELECT f.id FROM trace_file t JOIN trace_file f ON f.id = t.id OR f.program = t.program WHERE t.id = h.trace_id) AND c.complete ORDER BY c.timestamp DESC LIMIT 1) AS last_call
FROM (SELECT *, row_number() OVER (PARTITION BY run, rank ORDER BY cause DESC, level, since) AS nth FROM hung WHERE rank IS NOT NULL) h
WHERE nth = 1 ORDER BY cause DESC, level IS NULL, level, state IN ('cut off', 'not recorded'), since, rank LIMIT 20;
--= where the causes are, and their child processes: main threads' last samples, innermost frame first
WITH causes AS MATERIALIZED (SELECT DISTINCT coalesce(f.program, f.id) AS process FROM (SELECT trace_id AS id FROM hangs WHERE cause UNION
    SELECT c.id FROM hangs h JOIN trace p ON p.id = h.trace_id JOIN trace c ON c.ppid = p.pid AND c.host IS p.host WHERE h.cause) n JOIN trace_file f ON f.id = n.id),
  lasts AS MATERIALIZED (SELECT process, max(s.timestamp), s.sample_id, s.trace_id FROM causes c CROSS JOIN trace_file t ON t.id = c.process OR t.program = c.process
    CROSS JOIN samples s ON s.sample_id = (SELECT max(x.sample_id) FROM samples x WHERE x.trace_id = t.id AND x.tid = x.pid) AND s.trace_id = t.id GROUP BY process)
SELECT b.rank, coalesce(t.role, '') AS role, b.depth, b.func, b.file, b.lineno FROM lasts l JOIN trace t ON t.id = l.trace_id CROSS JOIN backtrace b ON b.trace_id = l.trace_id AND b.sample_id = l.sample_id
WHERE b.frame_type = 'Python' ORDER BY b.rank, t.ppid, t.id, b.depth LIMIT 60;
