--@ steps: Steps over time
--? SELECT EXISTS (SELECT 1 FROM steps WHERE complete AND source <> 'evaluation')
--! No steps were recorded: they come from a PyTorch optimizer, or from probing.step().
SELECT printf('%d steps of %d rank%s; half of them took less than %.4g s, the longest %.4g s (step %d of %s)', n, ranks, CASE WHEN ranks > 1 THEN 's' ELSE '' END, m, longest,
  step, coalesce('rank ' || rank, 'process ' || pid, 'a process that is not named')) AS answer
FROM (SELECT count(*) AS n, count(DISTINCT coalesce(t.program, t.id)) AS ranks, median(s.duration) AS m FROM steps s JOIN trace_file t ON t.id = s.trace_id WHERE s.complete AND s.source <> 'evaluation'),
  (SELECT duration AS longest, step, rank, pid FROM steps WHERE complete AND source <> 'evaluation' ORDER BY duration DESC LIMIT 1);
--= band: Time of a step
SELECT coalesce(rank, 'pid ' || pid) AS rank, timestamp, duration AS duration_s, step FROM steps WHERE complete AND source <> 'evaluation';
--= table: The longest steps
SELECT step, rank, round(duration, 4) AS duration_s, round(forward, 4) AS forward_s, round(backward, 4) AS backward_s,
  round(optimizer, 4) AS optimizer_s, round(data, 4) AS data_s, round(other, 4) AS other_s
FROM steps WHERE complete AND source <> 'evaluation' ORDER BY duration DESC LIMIT 20;
