--@ gpu: When is the GPU idle, and why?
--? SELECT EXISTS (SELECT 1 FROM gpu_metrics)
--! no GPU was seen (NVML: libnvidia-ml.so.1)
CREATE TEMP TABLE used AS -- the GPUs that a process uses: those in which it has memory; where NVML does not say that, all that it sees
SELECT trace_id, device, rank, pid, avg(gpu_util) AS util FROM gpu_metrics g
WHERE process_memory_mb > 0 OR NOT EXISTS (SELECT 1 FROM gpu_metrics o WHERE o.trace_id = g.trace_id AND o.process_memory_mb > 0) GROUP BY 1, 2;
CREATE TEMP TABLE reading AS -- each is of the time since the one before it
SELECT trace_id, lag(timestamp) OVER (PARTITION BY trace_id, device ORDER BY timestamp) AS since, timestamp AS until, device, gpu_util AS util
FROM gpu_metrics JOIN used USING(trace_id, device);
DELETE FROM reading WHERE since IS NULL OR until - since > 3 * (SELECT median(until - since) FROM reading); -- none in between: it was stopped
CREATE TEMP TABLE idle AS SELECT * FROM reading WHERE util < 10;
CREATE INDEX temp.idle_until ON idle(trace_id, until);
CREATE TEMP TABLE does AS -- what the main threads did then; a sample is of a time, too
SELECT i.trace_id, i.device, s.stack_id AS stack, sum(min(s.timestamp + s.seconds, i.until) - max(s.timestamp, i.since)) AS seconds
FROM samples s CROSS JOIN idle i ON i.trace_id = s.trace_id AND i.until > s.timestamp AND i.until < s.timestamp + s.seconds + (SELECT max(until - since) FROM idle) AND i.since < s.timestamp + s.seconds
WHERE s.tid = s.pid AND s.trace_id IN (SELECT trace_id FROM idle) GROUP BY 1, 2, 3;
CREATE TEMP TABLE line AS
SELECT trace_id, device, line, nullif(user, line) AS called_by, sum(seconds) AS seconds FROM (
  SELECT *, (SELECT e.text FROM stack_text e WHERE e.stack = does.stack ORDER BY e.depth LIMIT 1) AS line,
    (SELECT e.text FROM stack_text e WHERE e.stack = does.stack AND e.is_user ORDER BY e.depth LIMIT 1) AS user FROM does) GROUP BY 1, 2, 3, 4;
SELECT printf('the GPUs were busy %.0f %% of the time; device %d of %s least, %.0f %%', (SELECT avg(util) FROM used), device, coalesce('rank ' || rank, 'process ' || pid, 'a process that is not named'), util)
  || coalesce((SELECT printf('; it was idle for %.1f s, in which the main thread was in %s, %.0f %%', (SELECT sum(until - since) FROM idle i WHERE i.trace_id = u.trace_id AND i.device = u.device),
      l.line || coalesce(', called by ' || l.called_by, ''), 100 * l.seconds / (SELECT sum(a.seconds) FROM line a WHERE a.trace_id = u.trace_id AND a.device = u.device))
    FROM line l WHERE l.trace_id = u.trace_id AND l.device = u.device ORDER BY l.seconds DESC LIMIT 1), '') AS answer
FROM (SELECT * FROM used ORDER BY util LIMIT 1) u;
--= by device
SELECT g.rank, device, name, round(avg(g.gpu_util), 1) AS util, round(max(memory_used_mb)) AS memory_mb, round(avg(power_w), 1) AS power_w,
  (SELECT round(sum(i.until - i.since), 1) FROM idle i WHERE i.trace_id = g.trace_id AND i.device = g.device) AS idle_seconds FROM gpu_metrics g JOIN used USING(trace_id, device) GROUP BY g.trace_id, device ORDER BY util LIMIT 16;
--= steps: time of the GPU's own against the whole
SELECT s.rank, count(*) AS steps, round(avg(s.duration), 6) AS duration, round(avg(s.cuda_duration), 6) AS cuda, round(avg(s.data), 6) AS data,
  round(avg(s.communication), 6) AS communication FROM steps s JOIN trace_file t ON t.id = s.trace_id WHERE s.cuda_duration IS NOT NULL GROUP BY coalesce(t.program, t.id) ORDER BY 4 / 3 LIMIT 16;
--= what the main threads did while their GPU was idle: innermost Python line, and the line of the program that it is called by
SELECT line, called_by, round(sum(seconds), 3) AS seconds FROM line GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 10;
