--@ step: Why is step N slow? (--step N; without it the slowest)
--? SELECT EXISTS (SELECT 1 FROM steps WHERE complete AND source <> 'evaluation')
--! no steps were recorded (a PyTorch optimizer, or probing.step())
CREATE TEMP TABLE asked AS -- where a process trains, calls of another that has no optimizer (a reinforcement learner's actor, a server) are not asked about
SELECT s.* FROM steps s WHERE complete AND source <> 'evaluation' AND (s.source <> 'root' OR NOT EXISTS (SELECT 1 FROM torch_step o WHERE o.source IN (0, 2))) AND (:step IS NULL OR step = :step) AND (:rank IS NULL OR rank = :rank)
  AND (step > 0 OR :step IS NOT NULL) ORDER BY duration DESC LIMIT 1;
CREATE TEMP TABLE file AS -- of its process: several, where the recording went on in another file (rotation)
SELECT f.id FROM asked a JOIN trace_file t ON t.id = a.trace_id JOIN trace_file f ON f.id = t.id OR f.program = t.program;
CREATE TEMP TABLE unanswered AS SELECT 1 AS yes WHERE NOT EXISTS (SELECT 1 FROM asked);
CREATE TEMP TABLE flown AS -- for how long a call was in flight in that step, and in those next to it; of several together, once
WITH near AS MATERIALIZED (SELECT s.step = a.step AS is_it, s.timestamp * 1e9 AS since, s."end" * 1e9 AS until, s.step FROM asked a JOIN steps s ON s.trace_id IN (SELECT id FROM file) AND s.complete AND s.source = a.source ORDER BY abs(s.step - a.step) LIMIT 31)
SELECT is_it, step, sum(max(0, until - max(ts, before))) / 1e9 AS seconds FROM (
  SELECT *, coalesce(max(until) OVER (PARTITION BY step ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before FROM (
    SELECT n.is_it, n.step, c.ts, min(n.until, iif(c.flags & 1, n.until, c.ts + c.duration)) AS until FROM near n CROSS JOIN comm c ON c.ts BETWEEN n.since AND n.until AND c.id >> 40 IN (SELECT id FROM file)))
GROUP BY is_it, step;
CREATE TEMP TABLE flight AS SELECT coalesce(sum(iif(is_it, seconds, 0)), 0) AS seconds, coalesce(median(iif(is_it, NULL, seconds)), 0) AS usual FROM flown;
CREATE TEMP TABLE usual AS
SELECT median(duration) AS duration, median(forward) AS forward, median(backward) AS backward, median(optimizer) AS optimizer,
  median(data) AS data, median(other) AS other, count(*) AS steps
FROM steps WHERE complete AND source <> 'evaluation' AND trace_id IN (SELECT id FROM file) AND step <> (SELECT step FROM asked);
CREATE TEMP TABLE parts AS
SELECT 'forward' AS part, a.forward AS seconds, u.forward AS usual FROM asked a, usual u UNION ALL
SELECT 'backward', a.backward, u.backward FROM asked a, usual u UNION ALL
SELECT 'optimizer', a.optimizer, u.optimizer FROM asked a, usual u UNION ALL
SELECT 'data', a.data, u.data FROM asked a, usual u UNION ALL
SELECT 'other', a.other, u.other FROM asked a, usual u;
UPDATE parts SET part = 'communication, or waiting in it' WHERE part = 'other' AND (SELECT f.seconds - f.usual > 0.8 * (a.other - u.other) FROM asked a, usual u, flight f);
CREATE TEMP TABLE late AS -- for whom the rank waited in its collectives of that time; of several in flight together, once
SELECT rank, sum(max(0, until - max(enter, before))) AS seconds FROM (
  SELECT k.last_rank AS rank, c.enter, k.last_enter AS until, coalesce(max(k.last_enter) OVER (PARTITION BY k.last_rank ORDER BY c.enter ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
  FROM asked a JOIN comm_metrics c ON c.trace_id IN (SELECT id FROM file) AND c.timestamp BETWEEN a.timestamp AND a."end"
  JOIN collectives k ON k."group" = c."group" AND k.seq = c.seq AND k.op = c.op AND k.run IS c.run AND k.attempt = c.attempt WHERE k.last_rank <> a.rank AND k.last_enter > c.enter) GROUP BY 1;
CREATE TEMP TABLE line AS -- where the main thread was then; a sample is of a time, too
SELECT (SELECT e.text FROM stack_text e WHERE e.stack = d.stack ORDER BY e.depth LIMIT 1) AS line, (SELECT e.text FROM stack_text e WHERE e.stack = d.stack AND e.is_user ORDER BY e.depth LIMIT 1) AS user, sum(seconds) AS seconds
FROM (SELECT s.stack_id AS stack, sum(min(s.timestamp + s.seconds, a."end") - max(s.timestamp, a.timestamp)) AS seconds FROM asked a CROSS JOIN file f CROSS JOIN samples s
  WHERE s.trace_id = f.id AND s.tid = s.pid AND s.timestamp < a."end" AND s.timestamp + s.seconds > a.timestamp GROUP BY 1) d GROUP BY 1, 2;
SELECT printf('step %d of %s took ' || iif(a.duration < 0.01, '%.2g', '%.3f') || ' s, %.1f times the usual ' || iif(u.duration < 0.01, '%.2g', '%.3f') || ' s; the difference is in %s (' || iif(p.seconds < 0.01, '%.2g', '%.3f')
    || ' s instead of ' || iif(p.usual < 0.01, '%.2g', '%.3f') || ' s)',
  a.step, coalesce('rank ' || a.rank, 'process ' || a.pid, 'a process that is not named'), a.duration, a.duration / u.duration, u.duration, p.part, p.seconds, p.usual)
  -- said if that alone took more than what is usual and half of what is more
  || CASE WHEN p.part LIKE 'comm%' THEN coalesce((SELECT printf('; it waited %.3f s for rank %d', l.seconds, l.rank) FROM late l WHERE l.seconds > 0.5 * (p.seconds + p.usual) ORDER BY l.seconds DESC LIMIT 1), '')
    WHEN p.part = 'other' THEN coalesce((SELECT printf('; for %.1f s it was in %s', l.seconds, l.line || iif(l.user <> l.line, ', called by ' || l.user, '')) FROM line l WHERE l.seconds > 0.5 * (p.seconds + p.usual) ORDER BY l.seconds DESC LIMIT 1), '')
    ELSE '' END
  || CASE WHEN p.part NOT LIKE 'comm%' THEN coalesce((SELECT printf(', while communication was in flight for %.3f s of the step instead of %.3f s', f.seconds, f.usual)
      || coalesce((SELECT printf('; rank %d came to it %.3f s later', l.rank, l.seconds) FROM late l WHERE l.seconds > 0.5 * (p.seconds - p.usual) ORDER BY l.seconds DESC LIMIT 1), '')
    FROM flight f WHERE f.seconds - f.usual > 0.8 * (p.seconds - p.usual)), '') ELSE '' END AS answer
FROM asked a, usual u, (SELECT * FROM parts ORDER BY seconds - coalesce(usual, 0) DESC LIMIT 1) p WHERE u.duration > 0
UNION ALL SELECT printf('step %d of %s took %.3f s; no other step of it is complete, with which that could be compared', a.step, coalesce('rank ' || a.rank, 'process ' || a.pid, 'a process that is not named'), a.duration)
FROM asked a, usual u WHERE u.duration IS NULL
UNION ALL SELECT 'there is no ' || CASE (SELECT max(complete) FROM steps WHERE source <> 'evaluation' AND (:step IS NULL OR step = :step) AND (:rank IS NULL OR rank = :rank)) WHEN 0 THEN 'complete ' ELSE '' END
  || 'step' || coalesce(' ' || :step, '') || coalesce(' of rank ' || :rank, '') || ': ' || printf('there are steps %d to %d%s', min(step), max(step), coalesce(', of ' || nullif(count(DISTINCT rank), 0) || ' rank(s)', ''))
FROM steps WHERE complete AND source <> 'evaluation' AND NOT EXISTS (SELECT 1 FROM asked) GROUP BY NULL;
--= its parts, seconds; usual: median of the other steps of that process (communication may lie within the others: of several calls at a time counted once, usual in the steps next to it)
SELECT CASE WHEN part LIKE 'comm%' THEN 'other' ELSE part END AS part, round(seconds, 6) AS seconds, round(usual, 6) AS usual, round(seconds - usual, 6) AS more FROM parts UNION ALL
SELECT 'communication', round(seconds, 6), round(usual, 6), round(seconds - usual, 6) FROM flight;
--= what its process did then: innermost Python lines, seconds of all threads
SELECT f.func, f.file, f.lineno, round(sum(f.seconds), 3) AS seconds, f.state FROM (
  SELECT b.sample_id, b.func, b.file, b.lineno, b.seconds, b.state, min(b.depth) FROM asked a CROSS JOIN file CROSS JOIN backtrace b
  WHERE b.trace_id = file.id AND b.timestamp BETWEEN a.timestamp AND a."end" AND b.frame_type = 'Python' GROUP BY b.sample_id) f
GROUP BY 1, 2, 3, 5 ORDER BY 4 DESC LIMIT 10;
--= collectives of that time that were waited for, the longest first
SELECT c."group", c.seq, c.op, round(c.latency_ms, 3) AS ms, k.last_rank, round(k.skew_ms, 3) AS skew_ms
FROM comm_metrics c JOIN asked a ON c.trace_id IN (SELECT id FROM file) AND c.timestamp BETWEEN a.timestamp AND a."end"
LEFT JOIN collectives k ON k."group" = c."group" AND k.seq = c.seq AND k.op = c.op AND k.run IS c.run AND k.attempt = c.attempt ORDER BY c.latency_ms DESC LIMIT 5;
--= the same step of the other ranks
SELECT rank, round(duration, 6) AS duration, round(forward, 6) AS forward, round(backward, 6) AS backward, round(data, 6) AS data,
  round(other, 6) AS other FROM steps WHERE step = (SELECT step FROM asked) AND source <> 'evaluation' AND complete
ORDER BY duration - communication DESC LIMIT 8;
