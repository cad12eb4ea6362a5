--@ memory: Where does memory grow?
--? SELECT count(*) FROM memory_usage
--! no memory was recorded (PROBING_METRICS=0?)
CREATE TEMP TABLE growth AS
SELECT trace_id, rank, pid, (sum(timestamp * rss) - sum(timestamp) * sum(rss) / count(*)) / nullif(sum(timestamp * timestamp) - sum(timestamp) * sum(timestamp) / count(*), 0) AS slope,
  count(*) AS n, max(timestamp) - min(timestamp) AS seconds, max(rss) AS most FROM (
  SELECT trace_id, rank, pid, timestamp - (SELECT min(start) FROM trace) AS timestamp, rss * 1.0 AS rss FROM memory_usage)
GROUP BY trace_id HAVING n > 2;
SELECT CASE WHEN slope * seconds > 0.05 * most AND seconds > 10
  THEN printf('rank %s (process %d) grows by %.2f MB a minute, to %.0f MB', coalesce(rank, '-'), pid, slope * 60 / 1e6, most / 1e6)
  ELSE printf('nowhere much: the largest growth is %.2f MB a minute (rank %s, process %d, at most %.0f MB)', slope * 60 / 1e6, coalesce(rank, '-'), pid, most / 1e6) END AS answer
FROM growth ORDER BY slope DESC LIMIT 1;
--= by process: resident memory
SELECT g.rank, g.pid, round(g.slope * 60 / 1e6, 3) AS mb_per_minute, round(g.most / 1e6, 1) AS most_mb, round(g.seconds, 1) AS seconds,
  (SELECT round(m.rss / 1e6, 1) FROM memory_usage m WHERE m.trace_id = g.trace_id ORDER BY m.timestamp LIMIT 1) AS first_mb,
  (SELECT round(m.rss / 1e6, 1) FROM memory_usage m WHERE m.trace_id = g.trace_id ORDER BY m.timestamp DESC LIMIT 1) AS last_mb
FROM growth g ORDER BY g.slope DESC LIMIT 10;
--= GPU memory at the ends of steps (MB, torch's allocator), by tenth of the run
SELECT rank, min(step) AS from_step, round(avg(gpu_mb), 1) AS allocated, round(avg(gpu_reserved_mb), 1) AS reserved FROM (
  SELECT *, ntile(10) OVER (PARTITION BY trace_id ORDER BY step) AS part FROM memory WHERE step IS NOT NULL AND gpu_reserved_mb IS NOT NULL)
GROUP BY trace_id, part ORDER BY rank, part LIMIT 40;
