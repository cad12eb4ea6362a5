--@ what_if: How much faster would it be without its slowest rank, node or stage, or without waiting for data?
--? SELECT EXISTS (SELECT 1 FROM comm_metrics WHERE op NOT IN ('send', 'recv') AND group_size > 1 AND complete) OR (SELECT count(*) FROM (SELECT 1 FROM trace_file f WHERE EXISTS (SELECT 1 FROM comm c WHERE c.id BETWEEN f.first_id AND f.last_id AND c.op IN ('send', 'recv')) LIMIT 2)) = 2 OR EXISTS (SELECT 1 FROM steps WHERE complete AND source <> 'evaluation' AND trace_id IN (SELECT id FROM trace_file WHERE coalesce(world_size, 1) = 1))
--! no collectives and no messages are here of which several ranks were recorded (torch.distributed with gloo, nccl or mpi; give the traces of all ranks), and no steps of a process that trains alone
-- Each rank works between two points of its communication, by its own clock; a collective waits for the last to come, a receive for its
-- message. That is replayed with some of the work left out (probing's function replay(), converter/replay.h).
CREATE TEMP TABLE saving(what, seconds);
CREATE TEMP TABLE nth(n);
INSERT INTO nth VALUES(1), (2), (3);
INSERT INTO saving SELECT 'without rank ' || who || '''s lateness', replay('rank', who) FROM (SELECT replay('nth rank', n) AS who FROM nth) WHERE who IS NOT NULL;
CREATE TEMP TABLE together AS -- ranks that are late together, so that none of them alone holds up the others; and the nodes, if they are all ranks of these
WITH node AS (SELECT host, count(DISTINCT rank) AS ranks, count(DISTINCT l.value) AS late FROM trace_file t LEFT JOIN json_each(replay('late')) l ON l.value = t.rank
  WHERE t.rank NOT NULL AND t.run IS replay('run') AND t.attempt = replay('attempt') GROUP BY host)
SELECT ranges(value) || coalesce((SELECT ' (all of ' || group_concat(host, ', ') || ')' FROM node WHERE late HAVING min(late = ranks) AND count(*) <= 4 AND count(*) < (SELECT count(*) FROM node)), '') AS who
FROM json_each(replay('late')) HAVING count(*) > 0;
INSERT INTO saving SELECT 'without the lateness of ranks ' || who, replay('group') FROM together;
INSERT INTO saving SELECT 'without node ' || who || '''s lateness', replay('node', who) FROM (SELECT replay('nth node', n) AS who FROM nth WHERE n < 3) WHERE who IS NOT NULL;
INSERT INTO saving SELECT 'without stage ' || who || '''s lateness', replay('stage', who) FROM (SELECT replay('nth stage', 1) AS who) WHERE who IS NOT NULL;
INSERT INTO saving SELECT 'if all ranks took their median time', replay('median');
INSERT INTO saving SELECT 'without waiting for data', replay('data');
CREATE TEMP TABLE alone AS -- who waits for nobody takes as much less as it waits for its data
SELECT coalesce(t.program, t.id) AS process, coalesce('rank ' || s.rank, 'process ' || s.pid, 'a process that is not named') AS who, sum(s.data) AS data FROM steps s JOIN trace_file t ON t.id = s.trace_id
WHERE s.complete AND s.source <> 'evaluation' AND (s.source <> 'root' OR NOT EXISTS (SELECT 1 FROM torch_step o WHERE o.source IN (0, 2))) AND NOT replay('calls') AND coalesce(t.world_size, 1) = 1 GROUP BY 1 ORDER BY 3 DESC LIMIT 1;
INSERT INTO saving SELECT 'without waiting for data', data FROM alone;
DELETE FROM saving WHERE seconds IS NULL;
CREATE TEMP TABLE whole AS
SELECT CASE WHEN EXISTS (SELECT 1 FROM alone) THEN (SELECT (max(end_ts) - min(start_ts)) / 1e9 FROM trace_file WHERE coalesce(program, id) = (SELECT process FROM alone))
  WHEN replay('part') < 1 THEN replay('seen')
  ELSE (SELECT max("end") - min(start) FROM trace WHERE rank IS NOT NULL AND run IS replay('run') AND attempt = replay('attempt')) END AS seconds;
CREATE TEMP TABLE cause AS -- of those that save nearly as much as the best of them, the first in this order is the narrowest
SELECT s.*, max(seconds) OVER () AS most, CASE WHEN what LIKE 'without rank%' THEN 1 WHEN what LIKE 'without the lateness%' THEN 2 WHEN what LIKE 'without stage%' THEN 3 WHEN what LIKE 'without node%' THEN 4 ELSE 5 END AS nth
FROM saving s WHERE what LIKE 'without %' AND (what NOT LIKE '% data' OR EXISTS (SELECT 1 FROM alone) OR EXISTS (SELECT 1 FROM collectives WHERE arrived > 1)); -- data: of one rank of many it is not known whether the others would be earlier
SELECT printf('%s%s%s it would take %.1f s instead of %.1f s%s, %.1f %% less%s%s', coalesce((SELECT who || ': ' FROM alone), ''), s.what,
  iif(s.nth = 3, (SELECT iif(json_array_length(ranks) = 1, ' (rank ' || (ranks ->> 0) || ')', '') FROM (SELECT replay('ranks of stage', replay('nth stage', 1)) AS ranks)), ''), w.seconds - s.seconds, w.seconds,
  iif(replay('part') < 1, printf(' (of all its time the last, %.3g %%)', 100 * replay('part')), ''), 100 * s.seconds / w.seconds, iif(replay('lost') > 0.01 * replay('calls'), printf(' or more (of %d messages one end was not recorded)', replay('lost')),
    iif(replay('absent'), printf(' (as if its ranks without a trace, %d, were not late)', replay('absent')), '')),
  coalesce((SELECT printf(' (without waiting for data %.1f %%)', 100 * d.seconds / w.seconds) FROM cause d WHERE d.nth = 5 AND s.nth < 5 AND d.seconds > 0.5 * s.most), '')) AS answer
FROM cause s, whole w WHERE s.seconds >= 0.7 * s.most ORDER BY s.nth, s.seconds DESC LIMIT 1;
--= seconds that it would save, and percent of the run
SELECT what, round(s.seconds, 3) AS saved, round(100 * s.seconds / w.seconds, 1) AS percent FROM saving s, whole w WHERE NOT (replay('absent') AND s.seconds < 0.005 * w.seconds) ORDER BY s.seconds DESC;
--= what this rests on
SELECT replay('run') AS run, replay('attempt') AS attempt, replay('calls') AS calls, round(replay('seen'), 3) AS seconds_seen, round(replay('length'), 3) AS seconds_replayed, round(replay('part'), 4) AS part;
--= what it would save cannot be told: who has no trace may have been waited for
SELECT printf('without the lateness of ranks that have no trace (%d)', replay('absent')) AS what WHERE replay('absent')
UNION ALL SELECT * FROM (SELECT what FROM saving s, whole w WHERE replay('absent') AND s.seconds < 0.005 * w.seconds ORDER BY s.seconds DESC);
