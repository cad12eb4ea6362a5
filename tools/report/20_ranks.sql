--@ ranks: Ranks over time
--? SELECT EXISTS (SELECT 1 FROM steps WHERE complete AND source <> 'evaluation')
--! No steps were recorded: they come from a PyTorch optimizer, or from probing.step().
SELECT printf('%d %s%s; each cell of the picture is the extreme of its time', coalesce(nullif(ranks, 0), processes), iif(ranks, 'rank', 'process'),
  iif(coalesce(nullif(ranks, 0), processes) = 1, '', iif(ranks, 's', 'es'))) AS answer
FROM (SELECT count(DISTINCT rank) AS ranks, count(DISTINCT coalesce(program, id)) AS processes FROM trace_file);
--= grid: Step time
SELECT coalesce(rank, 'pid ' || pid) AS rank, timestamp, duration AS length_s, duration AS duration_s FROM steps
WHERE complete AND source <> 'evaluation' ORDER BY trace_id;
--= share: Waiting in communication
SELECT rank, enter, duration AS length_s FROM comm_metrics WHERE complete;
--= grid: Came last to a collective, by
SELECT last_rank AS rank, last_enter, 0 AS length_s, skew_ms FROM collectives WHERE last_rank IS NOT NULL AND arrived > 1 ORDER BY last_rank;
