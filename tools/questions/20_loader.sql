--@ loader: Is the data loader the bottleneck?
--? SELECT EXISTS (SELECT 1 FROM steps WHERE complete AND source <> 'evaluation')
--! no steps were recorded (a PyTorch optimizer, or probing.step())
CREATE TEMP TABLE waits AS -- by process: where one waits for its data, the others wait for it
SELECT rank, pid, sum(data) / sum(duration) AS share, avg(data) AS data, avg(duration) AS duration FROM steps
WHERE complete AND source <> 'evaluation' AND step > 0 GROUP BY trace_id;
SELECT CASE WHEN share > 0.2 THEN 'yes: ' WHEN share > 0.05 THEN 'in part: ' ELSE 'no: ' END
  || CASE WHEN share > 0.05 AND share > 1.5 * (SELECT median(share) FROM waits) + 0.02
    THEN printf('%s spends %.1f %% of its steps'' time waiting for data, %.3f s of a step''s %.3f s; half of the ranks %.1f %% or less', coalesce('rank ' || rank, 'process ' || pid, 'a process that is not named'),
      100 * share, data, duration, 100 * (SELECT median(share) FROM waits))
    ELSE printf('%.1f %% of the steps'' time is spent waiting for data', 100 * share)
      || CASE WHEN share > 0.2 THEN printf(', %.3f s of a step''s %.3f s', data, duration) ELSE '' END END AS answer
FROM waits ORDER BY share DESC LIMIT 1;
--= waiting for data by rank (the first step left out: workers start then)
SELECT rank, count(*) AS steps, round(sum(data), 3) AS data_seconds, round(100 * sum(data) / sum(duration), 1) AS percent,
  round(max(data), 3) AS longest FROM steps WHERE complete AND source <> 'evaluation' AND step > 0 GROUP BY trace_id ORDER BY percent DESC LIMIT 16;
--= the loader's worker processes: percent of one CPU (near 100: they cannot do more, add workers)
SELECT t.rank, t.pid, round(avg(c.cpu_percent), 1) AS cpu_percent FROM trace t JOIN cpu_utilization c ON c.trace_id = t.id
WHERE t.role = 'dataloader' GROUP BY t.id ORDER BY 3 DESC LIMIT 16;
--= what the workers do
SELECT func, file, lineno, round(sum(seconds), 3) AS seconds FROM backtrace
WHERE depth = 0 AND trace_id IN (SELECT id FROM trace WHERE role = 'dataloader') GROUP BY 1, 2, 3 ORDER BY 4 DESC LIMIT 8;
