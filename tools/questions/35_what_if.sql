--@ what_if: How much faster would it be without its slowest rank or node, or without waiting for data?
--? SELECT count(*) FROM comm_metrics WHERE op NOT IN ('send', 'recv') AND group_size > 1 AND complete
--! no collectives are here of which several ranks were recorded (torch.distributed with gloo, nccl or mpi; give the traces of all ranks)
-- Between two collectives of the largest group each rank works for a time of its own, by its own clock; the slowest decides when the next
-- one is over. Each of these times is replayed with what is asked left out.
CREATE TEMP TABLE own AS
SELECT c.rank, t.host, c.seq, c.op, c.trace_id AS trace, lag(c.exit) OVER w AS begin, c.enter - lag(c.exit) OVER w AS work
FROM comm_metrics c JOIN trace t ON t.id = c.trace_id
WHERE c."group" = (SELECT "group" FROM comm_metrics WHERE group_size > 1 AND complete GROUP BY 1 ORDER BY max(group_size) DESC, count(*) DESC LIMIT 1)
  AND c.op NOT IN ('send', 'recv') AND c.complete AND c.completion <> 'raised'
WINDOW w AS (PARTITION BY c.trace_id ORDER BY c.enter);
DELETE FROM own WHERE work IS NULL;
CREATE TEMP TABLE loading AS SELECT id >> 40 AS trace, ts / 1e9 AS begin, duration / 1e9 AS seconds FROM torch_call WHERE stage = 4 AND duration IS NOT NULL;
CREATE INDEX temp.loading_begin ON loading(trace, begin);
CREATE TEMP TABLE beat AS -- one row for each collective that all came to
SELECT seq, op, max(work) AS slowest, median(work) AS usual, max(CASE WHEN nth > 1 THEN work END) AS second,
  max(CASE WHEN nth = 1 THEN rank END) AS rank, count(*) AS n, max(without_data) AS without_data FROM (
  SELECT *, row_number() OVER (PARTITION BY seq, op ORDER BY work DESC) AS nth,
    work - coalesce((SELECT sum(l.seconds) FROM loading l WHERE l.trace = own.trace AND l.begin BETWEEN own.begin AND own.begin + own.work), 0) AS without_data
  FROM own) GROUP BY seq, op;
DELETE FROM beat WHERE n < (SELECT max(n) FROM beat);
CREATE TEMP TABLE host_beat AS
SELECT seq, op, max(work) - max(CASE WHEN nth > 1 THEN work END) AS saved, max(CASE WHEN nth = 1 THEN host END) AS host FROM (
  SELECT seq, op, host, max(work) AS work, row_number() OVER (PARTITION BY seq, op ORDER BY max(work) DESC) AS nth FROM own
  WHERE (seq, op) IN (SELECT seq, op FROM beat) GROUP BY seq, op, host) GROUP BY seq, op HAVING count(*) > 1;
CREATE TEMP TABLE saving(what, seconds);
INSERT INTO saving SELECT 'without rank ' || rank || '''s lateness', sum(slowest - second) FROM beat WHERE second IS NOT NULL GROUP BY rank ORDER BY 2 DESC LIMIT 3;
INSERT INTO saving SELECT 'without node ' || host || '''s lateness', sum(saved) FROM host_beat GROUP BY host ORDER BY 2 DESC LIMIT 2;
INSERT INTO saving SELECT 'if all ranks took their median time', sum(slowest - usual) FROM beat;
INSERT INTO saving SELECT 'without waiting for data', sum(slowest - without_data) FROM beat WHERE EXISTS (SELECT 1 FROM loading);
CREATE TEMP TABLE whole AS
SELECT (SELECT max("end") - min(start) FROM trace WHERE rank IS NOT NULL) AS seconds;
SELECT printf('%s it would take %.1f s instead of %.1f s, %.1f %% less', s.what, w.seconds - s.seconds, w.seconds, 100 * s.seconds / w.seconds) AS answer
FROM saving s, whole w WHERE s.what LIKE 'without rank%' ORDER BY s.seconds DESC LIMIT 1;
--= seconds that it would save, and percent of the run
SELECT what, round(s.seconds, 3) AS saved, round(100 * s.seconds / w.seconds, 1) AS percent FROM saving s, whole w ORDER BY s.seconds DESC;
--= what this rests on
SELECT count(*) AS collectives, max(n) AS ranks, round(sum(slowest), 3) AS decided_by_the_slowest, round(sum(usual), 3) AS median_rank FROM beat;
