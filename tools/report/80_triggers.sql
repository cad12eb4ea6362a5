--@ triggers: What happened: hangs, deaths, slow steps
--? SELECT EXISTS (SELECT 1 FROM triggers) + EXISTS (SELECT 1 FROM hangs)
--! Nothing: no process hung, was killed or raised an exception that nobody caught, and no step was far slower than the others.
SELECT printf('%d events', count(*)) || coalesce((SELECT '; ' || CASE count(DISTINCT rank) WHEN 1 THEN '1 rank is' ELSE count(DISTINCT rank) || ' ranks are' END || ' waited for in vain' FROM hangs GROUP BY NULL), '') AS answer FROM triggers;
--= table: Who is waited for in vain
SELECT strftime('%H:%M:%f', since, 'unixepoch') AS since, max(0, since - (SELECT min(start) FROM trace)) AS after_s, rank, CASE cause WHEN 1 THEN 'waits for nobody: it began here' ELSE 'waits itself' END AS cause,
  "group", seq, op, waiting, round(waited, 3) AS waited_s FROM hangs;
--= table: Events
SELECT strftime('%H:%M:%f', timestamp, 'unixepoch') AS time, rank, pid, kind, detail, step, thread, stacks, substr(text, 1, 300) AS text
FROM triggers ORDER BY kind NOT IN ('fatal', 'killed', 'exception', 'term'), timestamp;
--= rows: Stacks at the events, merged
SELECT e.kind, s.thread, s.is_cause, group_concat(s.func, char(10)) AS stack, count(DISTINCT s.trace_id) AS n, min(s.rank) AS rank FROM (
  SELECT trigger_id, kind, rank, trace_id, thread, tid, is_cause, depth, replace(func, char(10), ' ') || ' (' || coalesce(replace(file, rtrim(file, replace(file, '/', '')), ''), '?') || coalesce(':' || lineno, '') || ')' AS func
  FROM trigger_stacks WHERE frame_type = 'Python' ORDER BY trigger_id, tid, depth DESC) s
JOIN (SELECT trigger_id, kind FROM triggers WHERE stacks > 0 ORDER BY kind NOT IN ('fatal', 'exception', 'term', 'hang'), timestamp LIMIT 40) e ON e.trigger_id = s.trigger_id
GROUP BY s.trigger_id, s.tid ORDER BY s.is_cause DESC;
--= rows: Stacks at the end of those that hang
SELECT 'end' AS kind, 'main thread' AS thread, 0 AS is_cause, group_concat(func, char(10)) AS stack, 1 AS n, rank FROM (
  SELECT b.rank, b.sample_id, replace(b.func, char(10), ' ') || ' (' || coalesce(replace(b.file, rtrim(b.file, replace(b.file, '/', '')), ''), '?') || coalesce(':' || b.lineno, '') || ')' AS func FROM backtrace b JOIN (
    SELECT sample_id AS last, max(timestamp) FROM samples s JOIN (SELECT id, coalesce(program, id) AS process FROM trace_file WHERE rank IS NOT NULL AND EXISTS (SELECT 1 FROM hangs) LIMIT 256) t
      ON t.id = s.trace_id WHERE s.tid = s.pid GROUP BY t.process) l ON b.sample_id = l.last
  WHERE b.frame_type = 'Python' ORDER BY b.sample_id, b.depth DESC) GROUP BY sample_id;
