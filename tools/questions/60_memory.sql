--@ memory: Where does memory grow?
--? SELECT EXISTS (SELECT 1 FROM memory_usage)
--! no memory was recorded (PROBING_METRICS=0?)
CREATE TEMP TABLE file(process INTEGER, id INTEGER, PRIMARY KEY(process, id)) WITHOUT ROWID; -- a recording may go on in another file (rotation)
INSERT INTO file SELECT coalesce(program, id), id FROM trace_file;
CREATE TEMP TABLE importing AS -- when the main thread was seen to import a module
SELECT coalesce(t.program, t.id) AS process, s.ts FROM (SELECT DISTINCT k.stack FROM (SELECT id FROM frame WHERE name = '_find_and_load' AND file GLOB '<frozen importlib*') r CROSS JOIN stack_frame k ON k.frame = r.id) i
CROSS JOIN sample s ON s.stack = i.stack JOIN trace_file t ON s.id BETWEEN t.first_id AND t.last_id JOIN thread h ON h.id = t.first_id + s.thread AND h.tid = t.pid;
CREATE TEMP TABLE work AS -- what a program loads before its work, and gives back after it, is no growth: between its first step's end and its last's, or else
-- its later half, less what it still imports of then (until it has imported nothing for 10 s and a twentieth of the run), and less its end
WITH whole AS MATERIALIZED (SELECT coalesce(program, id) AS process, max(rank) AS rank, max(pid) AS pid, min(start_ts) / 1e9 AS start, max(end_ts) / 1e9 AS "end" FROM trace_file GROUP BY 1)
SELECT t.process, t.rank, t.pid, coalesce(s.first, max((t.start + t."end") / 2, coalesce(i.until, 0))) AS since, coalesce(s.last, t."end" - 1 - 0.05 * (t."end" - t.start)) AS until FROM whole t
LEFT JOIN (SELECT coalesce(f.program, f.id) AS process, min(e.timestamp + e.duration) AS first, max(e.timestamp + e.duration) AS last FROM steps e JOIN trace_file f ON f.id = e.trace_id
  WHERE e.complete GROUP BY 1 HAVING count(*) > 2) s ON s.process = t.process
LEFT JOIN (SELECT i.process, min(i.ts) / 1e9 AS until FROM (SELECT process, ts, lead(ts) OVER (PARTITION BY process ORDER BY ts) AS next FROM importing) i JOIN whole r ON r.process = i.process
  WHERE next IS NULL OR next / 1e9 > ts / 1e9 + 10 + 0.05 * (r."end" - r.start) GROUP BY i.process) i ON i.process = t.process
-- a launcher is none of the ranks
WHERE (t.rank IS NOT NULL) = (SELECT max(rank IS NOT NULL) FROM trace_file);
CREATE TEMP TABLE floor AS -- of each eighth of that time the least, and the least from then on (low): what is given back now and then is no growth
SELECT *, min(least) OVER (PARTITION BY process ORDER BY nth ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS low FROM (
  SELECT *, row_number() OVER (PARTITION BY process ORDER BY eighth) AS nth, count(*) OVER (PARTITION BY process) AS n FROM (
    -- view memory_usage's rows, process by process: joined with the view all are copied and sorted, of a day of 64 ranks millions
    SELECT w.rowid AS process, min(7, CAST(8 * (m.ts / 1e9 - w.since) / (w.until - w.since) AS INTEGER)) AS eighth, m.ts / 1e9 AS at, min(m.rss) AS least, max(m.rss) AS most, min(m.ts) AS first, max(m.ts) AS last
    FROM work w CROSS JOIN file f ON f.process = w.process CROSS JOIN trace_file t ON t.id = f.id
    JOIN memory_sample m ON m.id BETWEEN t.first_id AND t.last_id AND m.ts / 1e9 BETWEEN w.since AND w.until WHERE w.until > w.since GROUP BY 1, 2));
CREATE INDEX temp.floor_of ON floor(process, nth); -- of 10,000 processes each is looked up
CREATE TEMP TABLE change AS -- by process: how much more it holds at the end than at the beginning (more), in the later half (later), in its largest leap; from and to: between when it grew
SELECT a.process, z.low - a.low AS more, z.low - h.low AS later, z.at, z.at - a.at AS took, z.at - h.at AS later_took, (SELECT max(most) FROM floor WHERE process = a.process) AS most,
  (SELECT (max(last) - min(first)) / 1e9 FROM floor WHERE process = a.process) AS seconds, (SELECT max(most) FROM floor WHERE process = a.process AND nth < h.nth) AS most_before,
  (SELECT max(leap) FROM (SELECT low - lag(low) OVER (ORDER BY nth) AS leap FROM floor WHERE process = a.process)) AS leap,
  (SELECT max(nth) FROM floor WHERE process = a.process AND low <= a.low + 0.05 * (z.low - a.low)) AS grows_from,
  (SELECT min(nth) FROM floor WHERE process = a.process AND low >= z.low - 0.05 * (z.low - a.low)) AS grows_to, a.low AS low, z.low AS high, z.nth AS n
FROM floor a JOIN floor z ON z.process = a.process AND z.nth = z.n JOIN floor h ON h.process = a.process AND h.nth = 1 + h.n / 2 WHERE a.nth = 1;
CREATE TEMP TABLE growth AS -- how: 'steady' (in both halves, and not in one leap); 'late' (it began to in the later half, and goes on; it never held so much before); 'once' (in one leap, or until some time); 'swings': none of these; NULL: not much
SELECT w.process, w.rank, w.pid, coalesce('rank ' || w.rank || ' (process ' || w.pid || ')', 'rank ' || w.rank, 'process ' || w.pid, 'a process that is not named') AS who, coalesce(c.seconds, 0) AS seconds, max(0, w.until - w.since) AS worked, c.most, c.low AS least, c.more, c.how, f.at AS since, u.at AS until,
  CASE c.how WHEN 'steady' THEN c.more / c.took WHEN 'late' THEN (c.high - f.low) / (c.at - f.at) WHEN 'swings' THEN 0 ELSE coalesce(min(c.more / c.took, c.later / c.later_took), 0) END AS slope
FROM work w LEFT JOIN (SELECT *, CASE WHEN n < 6 OR more <= 0.05 * most THEN NULL
    WHEN leap < 0.5 * more AND grows_from < 3 AND later / later_took > 0.3 * more / took AND (more - later) / (took - later_took) > 0.3 * more / took THEN 'steady'
    WHEN leap < 0.6 * more AND grows_from > 1 AND grows_to = n AND high > most_before THEN 'late'
    WHEN grows_to < n THEN 'once' ELSE 'swings' END AS how FROM change) c ON c.process = w.rowid
LEFT JOIN floor f ON f.process = w.rowid AND f.nth = c.grows_from LEFT JOIN floor u ON u.process = w.rowid AND u.nth = c.grows_to;
CREATE TEMP TABLE first AS SELECT * FROM growth ORDER BY seconds > 10 DESC, how IN ('steady', 'late') DESC, how IS NOT NULL DESC, iif(how IS NULL, slope, more) DESC, seconds DESC LIMIT 1; -- who it is said of
CREATE TEMP TABLE beside AS -- what else grows in it while it works: threads (a: at first, z: at last), and the address space
WITH counted AS MATERIALIZED (SELECT c.ts, c.threads FROM first JOIN work w ON w.process = first.process CROSS JOIN file f ON f.process = w.process CROSS JOIN trace_file t ON t.id = f.id
    JOIN cpu c ON c.id BETWEEN t.first_id AND t.last_id AND c.ts / 1e9 BETWEEN w.since AND w.until),
  held AS MATERIALIZED (SELECT m.ts, m.vms, m.rss FROM first JOIN work w ON w.process = first.process CROSS JOIN file f ON f.process = w.process CROSS JOIN trace_file t ON t.id = f.id
    JOIN memory_sample m ON m.id BETWEEN t.first_id AND t.last_id AND m.ts / 1e9 BETWEEN w.since AND w.until)
SELECT (SELECT threads FROM counted ORDER BY ts LIMIT 1) AS a, (SELECT threads FROM counted ORDER BY ts DESC LIMIT 1) AS z, e.vms - b.vms AS space, e.rss - b.rss AS in_use, (e.ts - b.ts) / 1e9 AS took
FROM (SELECT * FROM held ORDER BY ts LIMIT 1) b, (SELECT * FROM held ORDER BY ts DESC LIMIT 1) e;
SELECT CASE WHEN seconds <= 10
  THEN iif(worked <= 10, printf('too short to say: %.1f s were recorded after the program had begun its work', worked), printf('too little to say: memory was read in %.1f of the %.1f s of its work', seconds, worked))
    || printf(', at most %.0f MB', (SELECT max(memory_mb) FROM memory_usage))
  WHEN how IN ('steady', 'late') THEN printf('%s grows by %.2f MB a minute%s, to %.0f MB', who, slope * 60 / 1e6, iif(how = 'late', ' since ' || strftime('%H:%M:%S', since, 'unixepoch'), ''), most / 1e6)
    || coalesce((SELECT printf(', %.0f %% of it in shared memory or mapped files', min(100, 100.0 * (max(m.shared) - min(m.shared)) / more)) FROM file f JOIN trace_file t ON t.id = f.id JOIN memory_sample m ON m.id BETWEEN t.first_id AND t.last_id
      WHERE f.process = first.process AND m.ts / 1e9 BETWEEN first.since AND first.until HAVING max(m.shared) - min(m.shared) > 0.2 * more), '')
  WHEN how = 'once' THEN printf('nowhere steadily: %s took %.0f MB more by %s, and has not grown since (at most %.0f MB)', who, more / 1e6, strftime('%H:%M:%S', until, 'unixepoch'), most / 1e6)
  WHEN how = 'swings' THEN printf('nowhere steadily: %s goes up and down (between %.0f MB and %.0f MB)', who, least / 1e6, most / 1e6)
  ELSE printf('nowhere much: the largest growth is %.2f MB a minute (%s, at most %.0f MB)', slope * 60 / 1e6, coalesce('rank ' || rank || ', ', '') || coalesce('process ' || pid, 'not named'), most / 1e6) END
  || coalesce((SELECT printf('; it has %d threads at its end, %d more than when its work began (view threads)', z, z - a) FROM beside WHERE z - a >= 20 AND z > 1.5 * a), '')
  || coalesce((SELECT printf('; its address space grows by %.0f MB a minute, of which hardly any is in use', space * 60 / 1e6 / took) FROM beside WHERE took > 10 AND space > 500e6 AND space > 5 * in_use), '')
  || iif(seconds > 10 AND how IN ('steady', 'late'), '; which code allocates it is not recorded', '') AS answer
FROM first;
--= by process: resident memory (growth: of what is not given back again, from the first step's end to the last's; without steps, in the later half, after the imports)
SELECT g.rank, g.pid, round(g.slope * 60 / 1e6, 3) AS mb_per_minute, round(g.most / 1e6, 1) AS most_mb, round(g.seconds, 1) AS seconds,
  (SELECT round(m.rss / 1e6, 1) FROM file f CROSS JOIN memory_usage m ON m.trace_id = f.id WHERE f.process = g.process ORDER BY m.timestamp LIMIT 1) AS first_mb,
  (SELECT round(m.rss / 1e6, 1) FROM file f CROSS JOIN memory_usage m ON m.trace_id = f.id WHERE f.process = g.process ORDER BY m.timestamp DESC LIMIT 1) AS last_mb
FROM growth g ORDER BY g.slope DESC LIMIT 10;
--= GPU memory at the ends of steps (MB, torch's allocator), by tenth of the run
SELECT rank, min(step) AS from_step, round(avg(gpu_mb), 1) AS allocated, round(avg(gpu_reserved_mb), 1) AS reserved FROM (
  SELECT m.*, f.process, ntile(10) OVER (PARTITION BY f.process ORDER BY m.step) AS part FROM memory m JOIN file f ON f.id = m.trace_id WHERE m.step IS NOT NULL AND m.gpu_reserved_mb IS NOT NULL)
GROUP BY process, part ORDER BY rank, part LIMIT 40;
