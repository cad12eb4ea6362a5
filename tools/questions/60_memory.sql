--@ memory: Where does memory grow?
--? SELECT EXISTS (SELECT 1 FROM memory_usage)
--! no memory was recorded (PROBING_METRICS=0?)
CREATE TEMP TABLE work AS -- what a program loads before its work, and gives back after it, is no growth: between its first step's end and its last's, or else its later half
SELECT t.id AS trace_id, t.rank, t.pid, coalesce(s.first, (t.start + t."end") / 2) AS since, coalesce(s.last, t."end") AS until FROM trace t
LEFT JOIN (SELECT trace_id, min(timestamp + duration) AS first, max(timestamp + duration) AS last FROM steps WHERE complete GROUP BY trace_id
  HAVING count(*) > 2) s ON s.trace_id = t.id
-- a launcher is none of the ranks
WHERE (t.rank IS NOT NULL) = (SELECT max(rank IS NOT NULL) FROM trace);
CREATE TEMP TABLE growth AS
SELECT trace_id, rank, pid, coalesce((sum(timestamp * rss) - sum(timestamp) * sum(rss) / count(*)) / nullif(sum(timestamp * timestamp) - sum(timestamp) * sum(timestamp) / count(*), 0), 0) AS slope,
  coalesce(max(timestamp) - min(timestamp), 0) AS seconds, max(rss) AS most FROM (
  -- view memory_usage's rows, process by process: joined with the view all are copied and sorted, of a day of 64 ranks millions
  SELECT w.rowid AS process, w.trace_id, w.rank, w.pid, m.ts / 1e9 - w.since AS timestamp, m.rss * 1.0 AS rss
  FROM work w CROSS JOIN trace_file t ON t.id = w.trace_id
  LEFT JOIN memory_sample m ON m.id BETWEEN t.first_id AND t.last_id AND m.ts / 1e9 BETWEEN w.since AND w.until)
GROUP BY process;
SELECT CASE WHEN slope * seconds > 0.05 * most AND seconds > 10
  THEN printf('%s grows by %.2f MB a minute, to %.0f MB', coalesce('rank ' || rank || ' (process ' || pid || ')', 'process ' || pid), slope * 60 / 1e6, most / 1e6)
  WHEN seconds <= 10
  THEN printf('too short to say: %.1f s were recorded after the program had begun its work, at most %.0f MB', seconds, (SELECT max(memory_mb) FROM memory_usage))
  ELSE printf('nowhere much: the largest growth is %.2f MB a minute (%s, at most %.0f MB)', slope * 60 / 1e6, coalesce('rank ' || rank || ', ', '') || 'process ' || pid, most / 1e6) END AS answer
FROM growth ORDER BY seconds > 10 DESC, slope DESC, seconds DESC LIMIT 1;
--= by process: resident memory (growth: from the first step's end to the last's; without steps, in the later half)
SELECT g.rank, g.pid, round(g.slope * 60 / 1e6, 3) AS mb_per_minute, round(g.most / 1e6, 1) AS most_mb, round(g.seconds, 1) AS seconds,
  (SELECT round(m.rss / 1e6, 1) FROM memory_usage m WHERE m.trace_id = g.trace_id ORDER BY m.timestamp LIMIT 1) AS first_mb,
  (SELECT round(m.rss / 1e6, 1) FROM memory_usage m WHERE m.trace_id = g.trace_id ORDER BY m.timestamp DESC LIMIT 1) AS last_mb
FROM growth g ORDER BY g.slope DESC LIMIT 10;
--= GPU memory at the ends of steps (MB, torch's allocator), by tenth of the run
SELECT rank, min(step) AS from_step, round(avg(gpu_mb), 1) AS allocated, round(avg(gpu_reserved_mb), 1) AS reserved FROM (
  SELECT *, ntile(10) OVER (PARTITION BY trace_id ORDER BY step) AS part FROM memory WHERE step IS NOT NULL AND gpu_reserved_mb IS NOT NULL)
GROUP BY trace_id, part ORDER BY rank, part LIMIT 40;
