--@ died: Who died first, and of what?
--? SELECT (SELECT count(*) FROM triggers WHERE kind IN ('fatal', 'killed', 'exception', 'term') OR detail LIKE '%exception%') + (SELECT count(*) FROM trace t WHERE exit_code > 0 AND NOT EXISTS (SELECT 1 FROM trace_file p WHERE p.pid = t.ppid AND p.host IS t.host AND p.run IS t.run AND p.rank IS t.rank)) + EXISTS (SELECT 1 FROM trace WHERE end_reason IS NULL AND exit_code IS NULL AND signal IS NULL AND "end" NOT NULL AND NOT is_running(boot_id, pid))
--! nobody died, as far as was recorded: no process was killed, failed by a signal, by an exception or with an exit code
CREATE TEMP TABLE died AS
SELECT timestamp, rank, pid, kind, detail, step, text, trigger_id, coalesce(( -- the last file of a recording in several (rotation) tells of the end
  SELECT o.id FROM trace_file f JOIN trace_file o ON o.program = f.program WHERE f.id = trace_id ORDER BY coalesce(o.finish_ts, o.end_ts) DESC LIMIT 1), trace_id) AS trace_id
FROM triggers WHERE kind IN ('fatal', 'killed', 'exception', 'term');
CREATE TEMP TABLE part AS -- processes that a recorded process of the same rank has started as a part of itself, as a data loader's workers: how they end is its affair
SELECT id FROM trace_file WHERE role = 'dataloader' UNION -- a join, which is given an index
SELECT f.id FROM trace_file f JOIN trace_file p ON p.pid = f.ppid AND p.host IS f.host AND p.run IS f.run AND p.rank IS f.rank;
INSERT INTO died -- ranks that ended by themselves, while another waited for them in a collective and failed
SELECT t."end", t.rank, t.pid, iif(t.end_reason = '_exit', 'os._exit()', 'exit'), coalesce('with code ' || t.exit_code || ' ', '') || 'while others waited for it', NULL, NULL, NULL, t.id
FROM trace t WHERE t.rank IS NOT NULL AND t.end_reason IN ('exit', '_exit') AND t.id NOT IN (SELECT trace_id FROM died UNION ALL SELECT id FROM part) AND (t.id IN (SELECT h.trace_id FROM hangs h WHERE h.cause AND h.state = 'ended') OR EXISTS (
  SELECT 1 FROM failures f WHERE f.run IS t.run AND f.rank <> t.rank AND f.timestamp BETWEEN t."end" - 0.001 AND t."end" + 60 AND EXISTS (
    SELECT 1 FROM comm_metrics c WHERE c.trace_id = f.trace_id AND c.completion IN ('raised', 'failed', 'none') AND c.timestamp + c.waited > t."end" - 0.001)));
INSERT INTO died -- sys.exit(3): nobody was heard of an exception
SELECT t."end", t.rank, t.pid, 'exit', 'with code ' || t.exit_code, NULL, NULL, NULL, t.id
FROM trace t WHERE t.exit_code > 0 AND t.id NOT IN (SELECT d.trace_id FROM died d WHERE d.timestamp > t."end" - 60) AND t.id NOT IN (SELECT id FROM part);
ALTER TABLE died ADD COLUMN after; -- by what it is ordered: a launcher that was told to end notices after those that it told to
UPDATE died AS d SET after = c.sent - 1e-6 FROM (
  SELECT f.host, w.detail, min(w.timestamp) AS sent, max(w.timestamp) AS last FROM died w JOIN trace_file f ON f.id = w.trace_id WHERE w.kind = 'term' GROUP BY 1, 2) c
WHERE d.kind = 'exception' AND (d.detail LIKE 'SignalException%' OR d.detail LIKE 'KeyboardInterrupt%') AND c.detail = 'SIGTERM sent by pid ' || d.pid
  AND c.host = (SELECT f.host FROM trace_file f WHERE f.id = d.trace_id) AND d.timestamp BETWEEN c.sent AND c.last + 60;
UPDATE died AS d SET after = p.told + 1e-6 FROM ( -- SIGTERM that its parent got, too (data loaders take it for themselves, and their last record lies some time before it)
  SELECT c.trace_id, min(coalesce(w.after, w.timestamp)) AS told FROM died c JOIN trace_file f ON f.id = c.trace_id
  JOIN trace_file u ON u.pid = f.ppid AND u.host IS f.host AND u.run IS f.run JOIN died w ON w.trace_id = u.id
  WHERE c.kind = 'killed' AND (f.signal = 15 OR f.signal IS NULL AND f.role = 'dataloader') GROUP BY c.trace_id -- NULL: nobody was left who could say by which
    HAVING min(w.timestamp) = min(iif(w.kind = 'term' OR w.detail LIKE 'SignalException%', w.timestamp, NULL))) p
WHERE d.trace_id = p.trace_id AND d.timestamp BETWEEN p.told - 2 AND p.told;
UPDATE died AS d SET after = e.failed - 1e-6 FROM ( -- whoever ends closes its connections before its trace: the others' calls fail earlier than it has ended
  SELECT x.trace_id, min(o.timestamp) AS failed FROM died x JOIN trace_file t ON t.id = x.trace_id JOIN died o ON o.kind = 'exception' AND o.rank <> x.rank
  JOIN trace_file u ON u.id = o.trace_id AND u.run IS t.run WHERE x.detail LIKE '%while others waited for it'
    AND o.timestamp > (SELECT max(c.exit) FROM comm_metrics c WHERE c.trace_id = x.trace_id) GROUP BY 1) e
WHERE d.trace_id = e.trace_id AND d.timestamp > e.failed;
CREATE TEMP TABLE raised AS -- the frames of the first one's exception, outermost first. theirs: of the traceback that its message quotes, from a worker process in which it was raised first
WITH RECURSIVE line(n, value, rest) AS (
  SELECT 0, NULL, text || char(10) FROM (SELECT * FROM died ORDER BY coalesce(after, timestamp) LIMIT 1) WHERE kind = 'exception'
  UNION ALL SELECT n + 1, substr(rest, 1, instr(rest, char(10)) - 1), substr(rest, instr(rest, char(10)) + 1) FROM line WHERE rest <> ''),
part(theirs, first, after) AS (
  SELECT 0, 1, coalesce((SELECT min(n) FROM line WHERE value = ''), 1e9)
  UNION ALL SELECT 1, first, (SELECT min(n) FROM line WHERE n >= first AND value <> '' AND value NOT LIKE ' %') -- NULL: its innermost lines are cut off
  FROM (SELECT l.n + 1 AS first FROM line l JOIN line b ON b.n = l.n - 1 WHERE l.value LIKE '%Traceback (most recent call last):'
    ORDER BY b.value = '"""' DESC, l.n DESC LIMIT 1)) -- of several, the one that a process pool quotes in turn (between """), or else the last
SELECT n, theirs, said, substr(rest, instr(rest, ' in ') + 4) || ' (' || replace(path, rtrim(path, replace(path, '/', '')), '') || ':' || substr(rest, 1, instr(rest, ',') - 1) || ')' AS place,
  path NOT LIKE '%/site-packages/%' AND path NOT LIKE '%/dist-packages/%' AND path NOT LIKE '%/lib/python_.%' AND path NOT LIKE '<%' AS is_user -- as in view stack_text
FROM (SELECT n, theirs, said, substr(said, 7, instr(said, '", line ') - 7) AS path, substr(said, instr(said, '", line ') + 8) AS rest
  FROM (SELECT n, theirs, ltrim(value) AS said FROM part JOIN line ON n >= first AND n < after) WHERE said LIKE 'File "%", line % in %');
CREATE TEMP TABLE place AS -- where the first one was: the innermost line of what it raised, of its stack when it failed, or of its last sample
SELECT coalesce((SELECT r.said || coalesce((SELECT iif(u.n < r.n, ', called by ' || u.place, '') FROM raised u WHERE u.theirs = r.theirs AND u.is_user ORDER BY u.n DESC LIMIT 1), '')
    || coalesce((SELECT ', raised again in ' || u.place FROM raised u WHERE u.theirs < r.theirs AND u.is_user ORDER BY u.n DESC LIMIT 1), '') FROM raised r ORDER BY r.n DESC LIMIT 1),
  'in ' || (SELECT e.text || coalesce((SELECT iif(u.depth > e.depth, ', called by ' || u.text, '') FROM stack_text u WHERE u.stack = e.stack AND u.is_user ORDER BY u.depth LIMIT 1), '')
    FROM stack_text e WHERE e.stack = (SELECT c.stack_id FROM trigger_stacks c WHERE c.trigger_id = d.trigger_id AND c.is_cause LIMIT 1) ORDER BY e.depth LIMIT 1),
  'last seen in ' || (SELECT w.inner || iif(w.user <> w.inner, ', called by ' || w.user, '') FROM whereabouts w WHERE w.trace_id = d.trace_id)) AS does
FROM (SELECT * FROM died ORDER BY coalesce(after, timestamp) LIMIT 1) d;
CREATE TEMP TABLE because AS -- an exception that only says that its call has failed: for whom it waited there
SELECT * FROM (SELECT printf(', because rank %s to %s number %d of group %s (`probing ask hang`)', h.rank || iif(h.state = 'late', ' came late', ' never came'), h.op, h.seq, h."group") AS said
FROM (SELECT * FROM died ORDER BY coalesce(after, timestamp) LIMIT 1) d CROSS JOIN hangs h ON h.cause AND h.state IN ('never came', 'late') AND h.rank <> d.rank AND h.since < d.timestamp
WHERE d.kind = 'exception' AND EXISTS (SELECT 1 FROM comm_metrics c WHERE c.trace_id = d.trace_id AND c.completion IN ('raised', 'failed') AND c."group" = h."group" AND c.seq = h.seq AND c.op = h.op) LIMIT 1)
UNION ALL SELECT printf(', because not all ranks had come to %s (`probing ask hang`)', substr(r.place, 1, instr(r.place, ' ') - 1)) FROM (
  SELECT * FROM raised WHERE NOT theirs AND (place LIKE 'init_process_group (distributed_c10d.py:%' OR place LIKE 'new_group (distributed_c10d.py:%') LIMIT 1) r
CROSS JOIN (SELECT * FROM died ORDER BY coalesce(after, timestamp) LIMIT 1) d ON d.detail LIKE '%timeout%' OR d.detail LIKE '%timed out%';
CREATE TEMP TABLE unended AS -- whose recording just stops: nobody was left to say how it ended, and it does not run here. A process that records on in another trace lived on
SELECT row_number() OVER (ORDER BY "end", id) AS nth, id, coalesce('rank ' || rank || ' (process ' || pid || ')', 'rank ' || rank, 'process ' || pid, 'a process that is not named') || ' on ' || coalesce(host, '?') AS who, rank, role, pid, host, file, "end"
FROM trace t WHERE end_reason IS NULL AND exit_code IS NULL AND signal IS NULL AND "end" NOT NULL AND id NOT IN (SELECT trace_id FROM died) AND NOT is_running(boot_id, pid)
  AND NOT EXISTS (SELECT 1 FROM trace_file l WHERE l.pid = t.pid AND l.boot_id IS t.boot_id AND l.process_ts / 1e9 IS t.process_start AND l.start_ts / 1e9 >= t."end" AND l.id <> t.id);
CREATE TEMP TABLE again AS -- where a launcher started its ranks again after that: what ended the last attempt
SELECT printf('; the ranks were started again %s, and in the last attempt %s', iif(n > 1, n || ' times', 'once'), coalesce((
  SELECT printf('rank %d (process %d) was the first, at %s: %s %s', d.rank, d.pid, strftime('%H:%M:%f', d.timestamp, 'unixepoch'), d.kind, coalesce(d.detail, ''))
  FROM died d JOIN trace_file f ON f.id = d.trace_id AND f.run IS l.run AND f.attempt = l.last WHERE d.rank NOT NULL AND d.trace_id NOT IN (SELECT id FROM part) ORDER BY coalesce(d.after, d.timestamp) LIMIT 1), 'no rank died')) AS said
FROM (SELECT t.run, max(o.attempt) AS last, max(o.attempt) - t.attempt AS n FROM (SELECT * FROM died ORDER BY coalesce(after, timestamp) LIMIT 1) d JOIN trace_file t ON t.id = d.trace_id AND t.rank NOT NULL
  JOIN trace_file o ON o.run IS t.run GROUP BY t.run, t.attempt) l WHERE n > 0;
SELECT printf('%s on %s at %s%s: %s %s%s%s%s%s', CASE WHEN rank IS NULL AND EXISTS (
    SELECT 1 FROM trace_file w JOIN trace_file l ON l.pid = w.ppid AND l.host IS w.host WHERE w.role = 'worker' AND l.id = trace_id) THEN 'the launcher (process ' || pid || ')'
  ELSE coalesce((SELECT coalesce('rank ' || l.rank || '''s data loader (process ' || l.pid || ')', 'data loader ' || l.pid || ' of process ' || l.ppid) FROM trace_file l WHERE l.id = trace_id AND l.role = 'dataloader'),
    'rank ' || rank || ' (process ' || pid || ')', 'rank ' || rank, 'process ' || pid, 'a process that is not named') END, coalesce((SELECT host FROM trace_file WHERE id = trace_id), '?'),
  strftime('%Y-%m-%d %H:%M:%f', timestamp, 'unixepoch'), coalesce((SELECT said FROM because), ''), kind, coalesce(detail, ''), coalesce((SELECT ', ' || does FROM place), ''),
  -- (SIGABRT: NCCL's watchdog ends its process so.) Who waits for the cause of a hang waits for that rank; who does not is in a job that hangs, and was perhaps kept by it through others
  coalesce((SELECT printf(iif(h.direct, '; it had waited for rank %d in %s number %d of group %s', '; the job hung then: rank %d had not come to %s number %d of group %s') || ': `probing ask hang`', h.rank, h.op, h.seq, h."group")
    FROM (SELECT *, died.rank IN (SELECT value FROM json_each('[' || waiters || ']')) AS direct FROM hangs) h
    WHERE NOT EXISTS (SELECT 1 FROM because) AND h.cause AND h.state = 'never came' AND (died.kind IN ('exception', 'killed', 'term') OR died.detail LIKE 'SIGABRT%') AND h.rank <> died.rank AND h.since < died.timestamp - iif(died.kind = 'exception', 0, 1)
    ORDER BY h.direct DESC, h.level LIMIT 1), '')
  -- whose calls failed need not be the first: the others, of whom that is not known, are named
  || coalesce((SELECT printf('; rank%s %s may have died before: %s %s (%s number %d of group %s failed)', iif(count(DISTINCT h.rank) > 1, 's', ''), ranges(h.rank), iif(count(DISTINCT h.rank) > 1, 'their', 'its'),
      iif(max(h.state) = 'not recorded', iif(count(DISTINCT h.rank) > 1, 'traces are not here', 'trace is not here'), iif(count(DISTINCT h.rank) > 1, 'traces are cut off', 'trace is cut off')), h.op, h.seq, h."group")
    FROM hangs h WHERE h.cause AND h.state IN ('not recorded', 'cut off') AND died.kind = 'exception' AND h.since < died.timestamp + 1 AND NOT EXISTS (SELECT 1 FROM hangs o WHERE o.cause AND o.rank = died.rank AND o.run IS h.run) HAVING count(*)), ''),
  coalesce((SELECT printf(iif(n > 1, '; ' || n || ' recordings have no end: the first, of %s, stops %s that, at %s', '; the recording of %s has no end, and stops %s that, at %s'), u.who,
    iif(u."end" < died.timestamp, 'before', 'after'), strftime('%H:%M:%f', u."end", 'unixepoch')) FROM unended u, (SELECT count(*) AS n FROM unended) WHERE u.nth = 1), ''),
  coalesce((SELECT said FROM again), '')) AS answer
FROM (SELECT * FROM died ORDER BY coalesce(after, timestamp) LIMIT 1) died
UNION ALL
SELECT printf(iif(n > 1, n || ' recordings have no end; that of %s is the first to stop, at %s%s', 'the recording of %s stops at %s%s, and has no end')
  || ': killed together with its recorder, or its machine went down, or it still ran when the file was copied', who, strftime('%Y-%m-%d %H:%M:%f', "end", 'unixepoch'),
  coalesce((SELECT ', last seen in ' || w.inner || iif(w.user <> w.inner, ', called by ' || w.user, '') FROM whereabouts w WHERE w.trace_id = unended.id), ''))
FROM unended, (SELECT count(*) AS n FROM unended) WHERE nth = 1 AND NOT EXISTS (SELECT 1 FROM died);
--= in order
SELECT strftime('%H:%M:%f', timestamp, 'unixepoch') AS time, rank, (SELECT f.role FROM trace_file f WHERE f.id = trace_id) AS role, pid, kind, detail, step,
  substr(text, 1, 200) AS text FROM died ORDER BY coalesce(after, timestamp) LIMIT 20;
--= the first one's stack, innermost frame first
SELECT thread, depth, func, file, lineno FROM trigger_stacks WHERE is_cause AND trigger_id = (SELECT trigger_id FROM died ORDER BY coalesce(after, timestamp) LIMIT 1) ORDER BY depth LIMIT 30;
--= recordings without an end: the last moment in each, and where its main thread was
SELECT strftime('%Y-%m-%d %H:%M:%f', "end", 'unixepoch') AS stops, rank, role, pid, host, (SELECT w.inner FROM whereabouts w WHERE w.trace_id = unended.id) AS does, file FROM unended ORDER BY nth LIMIT 20;
