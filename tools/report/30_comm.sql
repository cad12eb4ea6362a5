--@ comm: Collectives
--? SELECT EXISTS (SELECT 1 FROM comm_metrics)
--! No communication was recorded: it comes from torch.distributed with gloo, nccl or mpi.
SELECT printf('%d collectives of %d group%s; the ranks'' arrivals lie %.3g ms apart in the middle', count(*), count(DISTINCT "group"), iif(count(DISTINCT "group") = 1, '', 's'), median(skew_ms)) AS answer
FROM collectives WHERE arrived > 1;
--= rows: Waterfall
CREATE TEMP TABLE chosen AS
WITH whole AS (SELECT step, run, min(timestamp) AS began, max("end") AS ended, max(duration) AS longest, count(*) AS ranks
  FROM steps s JOIN (SELECT id, run FROM trace) t ON t.id = s.trace_id
  WHERE complete AND source <> 'evaluation' AND step > 1 GROUP BY run, step)
SELECT * FROM (SELECT *, 'longest' AS why FROM whole ORDER BY longest DESC LIMIT 3)
UNION ALL SELECT * FROM (SELECT *, 'typical' AS why FROM whole ORDER BY longest LIMIT 1 OFFSET (SELECT count(*) / 2 FROM whole));
INSERT INTO chosen SELECT 0, NULL, first_enter - 0.05, last_enter + longest_ms / 1e3, 0, arrived, 'widest' FROM collectives
WHERE skew_ms IS NOT NULL AND NOT EXISTS (SELECT 1 FROM chosen) ORDER BY skew_ms DESC LIMIT 3;
SELECT k.step, k.why, k.began, k.ended, t.rank, c.op, c.seq, c.ts / 1e9 AS enter, c.duration / 1e9 AS length_s, c.bytes,
  coalesce(g.name, '') AS "group", c.flags & 1 AS waits, t.clock_group, t.clock
FROM chosen k CROSS JOIN comm c ON c.ts BETWEEN k.began * 1e9 - 1e6 AND k.ended * 1e9 JOIN trace_file t ON t.id = c.id >> 40
LEFT JOIN process_group g ON g.trace = t.id AND g.pg = c.pg ORDER BY k.longest DESC, k.step, t.rank, c.ts;
--= table: By operation
SELECT op, count(*) AS calls, sum(bytes) / 1e6 AS sent_mb, round(sum(duration), 3) AS duration_s, round(1e3 * median(duration), 4) AS median_ms,
  round(1e3 * max(duration), 3) AS longest_ms FROM comm_metrics WHERE complete GROUP BY op ORDER BY sum(duration) DESC;
--= table: The widest apart
SELECT "group", seq, op, last_rank, round(skew_ms, 3) AS skew_ms, round(longest_ms, 3) AS longest_ms, arrived, size, missing FROM collectives
WHERE skew_ms IS NOT NULL ORDER BY skew_ms DESC LIMIT 20;
--= table: Clocks
SELECT host, method, matches, round("offset", 6) AS offset_s, round(drift_ppm, 3) AS drift_ppm, round(1e3 * uncertainty, 4) AS uncertainty_ms, "group" FROM clock_alignment;
