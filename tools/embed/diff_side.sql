-- What `probing diff` knows of one side, with :run and :rank (NULL: all): rows with 4 columns are (section, name, value, noise), rows with 3 are
-- (kind, name, value) of what is set. Times are seconds a step, or of the whole where there are no steps. noise: how sure
-- the value is, from how it varies over 16 parts of the side's own time.
CREATE TEMP TABLE who AS SELECT *, coalesce(program, id) AS process FROM trace_file WHERE (:run IS NULL OR run = :run) AND (:rank IS NULL OR rank = :rank)
  AND (rank IS NOT NULL OR NOT EXISTS (SELECT 1 FROM trace_file f WHERE f.rank IS NOT NULL AND (:run IS NULL OR f.run = :run)))
  AND role IS NOT 'dataloader';
CREATE TEMP TABLE done AS
SELECT s.*, s.timestamp AS begin, w.process, ntile(16) OVER (PARTITION BY w.process ORDER BY s.timestamp) - 1 AS slice
FROM steps s JOIN who w ON w.id = s.trace_id WHERE s.complete AND s.source <> 'evaluation';
-- since, until: of the process, which may have several files (rotation); began, ended: of the file
CREATE TEMP TABLE span AS
WITH whole AS MATERIALIZED (SELECT process, min(start_ts) AS since, max(end_ts) AS until FROM who GROUP BY process),
stepped AS MATERIALIZED (SELECT process, CAST(min(begin) * 1e9 AS INTEGER) AS since, CAST(max("end") * 1e9 AS INTEGER) AS until FROM done GROUP BY process)
SELECT w.id AS trace, w.process, coalesce(d.since, p.since) AS since, coalesce(d.until, p.until) AS until, w.first_id, w.last_id, w.pid, w.periods, w.period_ns,
  coalesce(lag(w.end_ts) OVER (PARTITION BY w.process ORDER BY coalesce(w.finish_ts, w.end_ts)), w.start_ts) AS began, coalesce(w.end_ts, p.until) AS ended
FROM who w JOIN whole p ON p.process = w.process LEFT JOIN stepped d ON d.process = w.process;
CREATE TEMP TABLE per AS SELECT coalesce(nullif((SELECT count(*) FROM done), 0), (SELECT count(DISTINCT process) FROM who)) AS n;
CREATE TEMP TABLE piece(section, name, slice, value);
INSERT INTO piece SELECT 'step', 'a step', slice, avg(duration) * (SELECT count(*) FROM done) / 16 FROM done GROUP BY slice;
INSERT INTO piece SELECT 'step', 'forward', slice, avg(forward) * (SELECT count(*) FROM done) / 16 FROM done GROUP BY slice;
INSERT INTO piece SELECT 'step', 'backward', slice, avg(backward) * (SELECT count(*) FROM done) / 16 FROM done GROUP BY slice;
INSERT INTO piece SELECT 'step', 'optimizer', slice, avg(optimizer) * (SELECT count(*) FROM done) / 16 FROM done GROUP BY slice;
INSERT INTO piece SELECT 'step', 'data', slice, avg(data) * (SELECT count(*) FROM done) / 16 FROM done GROUP BY slice;
INSERT INTO piece SELECT 'step', 'communication', slice, avg(communication) * (SELECT count(*) FROM done) / 16 FROM done GROUP BY slice;
INSERT INTO piece SELECT 'step', 'other', slice, avg(other) * (SELECT count(*) FROM done) / 16 FROM done GROUP BY slice;
-- Threads by their names, whose numbers are left out: Thread-1 and Thread-2 are one.
CREATE TEMP TABLE named(id INTEGER PRIMARY KEY, trace, tid, name, since, until);
INSERT INTO named SELECT h.id, p.trace, h.tid, CASE WHEN h.tid = p.pid THEN 'main thread' ELSE replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(
  coalesce(h.name, '?'), '0', '#'), '1', '#'), '2', '#'), '3', '#'), '4', '#'), '5', '#'), '6', '#'), '7', '#'), '8', '#'), '9', '#'), '##', '#'), '##', '#') END,
  coalesce(h.start_ts, p.began), coalesce(h.end_ts, p.ended) FROM span p JOIN thread h ON h.trace = p.trace;
-- Functions, as the innermost Python one: all of the main threads' time, that on a CPU of the others. Of the time in which a thread would run, what it ran is the function's;
-- the rest it waited for a processor, which is the machine's doing and has a name of its own.
CREATE TEMP TABLE spent AS
SELECT min(15, (s.ts - p.since) * 16 / max(1, p.until - p.since)) AS slice, s.stack, h.name, s.flags & 1 AS running, sum(s.count * CASE WHEN p.periods < 2 THEN p.period_ns ELSE (
    SELECT q.ns FROM period q WHERE q.trace = p.trace AND q.since <= s.ts ORDER BY q.since DESC LIMIT 1) END) / 1e9 AS seconds, sum(s.cpu_us) / 1e6 AS cpu
FROM span p CROSS JOIN sample s ON s.id BETWEEN p.first_id AND p.last_id CROSS JOIN named h ON h.id = p.first_id + s.thread
WHERE s.ts BETWEEN p.since AND p.until AND s.count > 0 AND s.stack IS NOT NULL AND (s.flags & 1 OR h.name = 'main thread') GROUP BY 1, 2, 3, 4;
CREATE TEMP TABLE leaf AS
SELECT k.stack, k.text FROM (SELECT DISTINCT stack FROM spent) s CROSS JOIN (SELECT f.stack, n.name || ' (' || coalesce(
  replace(n.file, rtrim(n.file, replace(n.file, '/', '')), ''), '?') || ')' AS text FROM stack_frame f CROSS JOIN frame r ON r.id = f.frame
  CROSS JOIN function n ON n.id = r.function WHERE f.leaf) k ON k.stack = s.stack;
UPDATE spent SET cpu = iif(running AND (SELECT sum(cpu) > 0 FROM spent), min(cpu, seconds), seconds);
INSERT INTO piece SELECT 'function', i.text, s.slice, sum(s.cpu) FROM spent s JOIN leaf i ON i.stack = s.stack GROUP BY 2, 3;
INSERT INTO piece SELECT 'function', 'waiting for a processor', slice, sum(seconds - cpu) FROM spent WHERE name = 'main thread' GROUP BY slice;
INSERT INTO piece SELECT 'thread', name, slice, sum(cpu) FROM spent WHERE running GROUP BY name, slice;
INSERT INTO piece SELECT 'module', m.name || CASE c.stage WHEN 0 THEN ' forward' ELSE ' backward' END,
  min(15, (c.ts - p.since) * 16 / max(1, p.until - p.since)), sum(c.duration) / 1e9
FROM span p CROSS JOIN torch_call c ON c.id BETWEEN p.first_id AND p.last_id JOIN torch_module m ON m.id = p.first_id + c.module
WHERE c.stage < 2 AND c.duration IS NOT NULL AND NOT c.flags & 4 AND c.ts BETWEEN p.since AND p.until GROUP BY 2, 3;
INSERT INTO piece SELECT 'collective', c.op || ' in ' || c."group", min(15, CAST((c.enter - p.since / 1e9) * 16e9 / max(1, p.until - p.since) AS INTEGER)), sum(c.duration)
FROM span p JOIN comm_metrics c ON c.trace_id = p.trace WHERE c.complete AND c.enter BETWEEN p.since / 1e9 AND p.until / 1e9 GROUP BY 2, 3;
SELECT section, name, sum(value) / per.n AS value, sqrt(16 * max(0, (sum(value * value) - sum(value) * sum(value) / 16) / 15)) / per.n AS noise -- differs: three times that
FROM piece, per GROUP BY section, name;
SELECT 'seen', name, count(*), 0 FROM piece WHERE section = 'function' AND value > 0 GROUP BY name; -- in how many of the 16 parts
-- What one sample of a process stands for; what is not seen on this side may be there for so long.
SELECT 'unseen', 'sample', max(period_ns) / 1e9 / per.n, 0 FROM who, per;
-- How many there were in a process: at the middle of each of the 16 parts.
SELECT 'threads', name, 1.0 * sum(n) / 16, sqrt(max(0, (sum(n * n) - 1.0 * sum(n) * sum(n) / 16) / 15)) / 4 FROM (
  SELECT h.name, i.value, 1.0 * count(DISTINCT printf('%d %d', p.process, h.tid)) / (SELECT count(DISTINCT process) FROM who) AS n FROM span p CROSS JOIN json_each('[1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31]') i
  JOIN named h ON h.trace = p.trace AND p.since + (p.until - p.since) / 32 * i.value BETWEEN h.since AND h.until GROUP BY 1, 2) GROUP BY name;
SELECT 'steps', 'steps', count(*), 0 FROM done;
SELECT 'steps', 'processes', count(DISTINCT process), 0 FROM who;
SELECT 'steps', 'seconds', (max(end_ts) - min(start_ts)) / 1e9, 0 FROM who;
SELECT 'memory', 'resident, most, MB', max(rss_mb), coalesce(percentile(CASE WHEN late THEN rss_mb END, 75) - percentile(CASE WHEN late THEN rss_mb END, 25), 0) FROM (
  SELECT m.*, m.timestamp > (p.since + p.until) / 2e9 AS late FROM span p JOIN memory m ON m.trace_id = p.trace);
SELECT 'memory', 'GPU, most allocated, MB', max(gpu_mb), coalesce(percentile(gpu_mb, 75) - percentile(gpu_mb, 25), 0) FROM memory WHERE trace_id IN (SELECT id FROM who) GROUP BY NULL HAVING max(gpu_mb) IS NOT NULL;
SELECT 'setting', key, group_concat(value) FROM (SELECT DISTINCT key, value FROM config WHERE trace_id IN (SELECT id FROM who) ORDER BY value) GROUP BY key;
SELECT 'environment', key, group_concat(value) FROM (SELECT DISTINCT key, value FROM environment WHERE trace_id IN (SELECT id FROM who) ORDER BY value) GROUP BY key;
SELECT 'version', name, group_concat(version) FROM (SELECT DISTINCT name, version FROM versions WHERE trace_id IN (SELECT id FROM who) ORDER BY version) GROUP BY name;
SELECT 'machine', key, group_concat(value) FROM (SELECT DISTINCT source || ' ' || key AS key, value FROM machine WHERE trace_id IN (SELECT id FROM who) ORDER BY value) GROUP BY key;
SELECT 'variable', name, group_concat(value) FROM ( -- lr, a batch's size, but no loss: what takes few values
  SELECT name, value, n, sum(n) OVER (PARTITION BY name) AS all_n, count(*) OVER (PARTITION BY name) AS different FROM (
    SELECT name, value, count(*) AS n FROM variables WHERE trace_id IN (SELECT id FROM who) GROUP BY 1, 2) ORDER BY name, value) WHERE different <= 3 AND all_n >= 10 * different GROUP BY name;
SELECT 'program', 'command', group_concat(command, ' and ') FROM (SELECT DISTINCT command FROM who ORDER BY command);
SELECT 'program', 'rank', 'rank ' || min(rank) FROM who HAVING count(DISTINCT process) = 1 AND min(rank) NOT NULL;
