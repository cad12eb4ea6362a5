--@ loader: Is the data loader the bottleneck?
--? SELECT EXISTS (SELECT 1 FROM steps WHERE complete AND source <> 'evaluation')
--! no steps were recorded (a PyTorch optimizer, or probing.step())
CREATE TEMP TABLE waits AS -- by process: where one waits for its data, the others wait for it. Where a process trains, one without an optimizer does not count
SELECT s.rank, s.pid, sum(s.data) / sum(s.duration) AS share, avg(s.data) AS data, avg(s.duration) AS duration, count(*) AS steps, sum(s.data) AS data_seconds, max(s.data) AS longest
FROM steps s JOIN trace_file t ON t.id = s.trace_id WHERE s.complete AND s.source <> 'evaluation' AND (s.source <> 'root' OR NOT EXISTS (SELECT 1 FROM torch_step o WHERE o.source IN (0, 2))) AND s.step > 0 GROUP BY coalesce(t.program, t.id);
SELECT CASE WHEN share > 0.2 THEN 'yes: ' WHEN share > 0.05 THEN 'in part: ' ELSE 'no: ' END
  || CASE WHEN share > 0.05 AND share > 1.5 * (SELECT median(share) FROM waits) + 0.02
    THEN printf('%s spends %.1f %% of its steps'' time waiting for data, %.3f s of a step''s %.3f s; half of the ranks %.1f %% or less', coalesce('rank ' || rank, 'process ' || pid, 'a process that is not named'),
      100 * share, data, duration, 100 * (SELECT median(share) FROM waits))
    ELSE printf('%.1f %% of the steps'' time is spent waiting for data', 100 * share)
      || CASE WHEN share > 0.2 THEN printf(', %.3f s of a step''s %.3f s', data, duration) ELSE '' END END AS answer
FROM waits ORDER BY share DESC LIMIT 1;
--= waiting for data by rank (the first step left out: workers start then)
SELECT rank, steps, round(data_seconds, 3) AS data_seconds, round(100 * share, 1) AS percent, round(longest, 3) AS longest FROM waits ORDER BY percent DESC LIMIT 16;
--= the loader's worker processes: percent of one CPU (near 100: they cannot do more, add workers)
SELECT t.rank, t.pid, round(avg(c.cpu_percent), 1) AS cpu_percent FROM trace_file t JOIN cpu_utilization c ON c.trace_id = t.id
WHERE t.role = 'dataloader' GROUP BY coalesce(t.program, t.id) ORDER BY 3 DESC LIMIT 16;
--= what the workers do: innermost Python line of their main threads, and the line of the program that it is called by
SELECT line, nullif(user, line) AS called_by, round(sum(seconds), 3) AS seconds FROM (
  SELECT (SELECT e.text FROM stack_text e WHERE e.stack = s.stack ORDER BY e.depth LIMIT 1) AS line,
    (SELECT e.text FROM stack_text e WHERE e.stack = s.stack AND e.is_user ORDER BY e.depth LIMIT 1) AS user, s.seconds
  FROM (SELECT stack_id AS stack, sum(seconds) AS seconds FROM samples WHERE tid = pid AND trace_id IN (SELECT id FROM trace WHERE role = 'dataloader') GROUP BY 1) s)
GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 8;
