-- SPDX-License-Identifier: Apache-2.0
--@ after load
-- Run when all rows are there: what follows from all of them, and the indexes.

--@ runs
-- Left out where there is one, and no job.
-- One run over several nodes has a first process on each: the launcher's job makes them one.
CREATE TABLE job_of_run AS SELECT run, min(job) AS job FROM trace_file WHERE job IS NOT NULL GROUP BY run;
UPDATE trace_file SET run = (SELECT j.job FROM job_of_run j WHERE j.run = trace_file.run)
WHERE run IN (SELECT run FROM job_of_run);
DROP TABLE job_of_run;
-- Without a launcher's job: runs of which each has some ranks only, others than the other one, that have a process group (or an address
-- where they met) in common, at the same time.
CREATE TABLE met(run, place, rank, size, began, ended);
INSERT INTO met SELECT f.run, g.name || ' ' || g.list, g.rank, g.size, min(f.start_ts), max(f.end_ts)
FROM process_group g JOIN trace_file f ON f.id = g.trace WHERE f.job IS NULL AND f.run IS NOT NULL AND g.size > 1 GROUP BY 1, 2, 3;
INSERT INTO met SELECT run, master, rank, world_size, min(start_ts), max(end_ts)
FROM trace_file WHERE job IS NULL AND run IS NOT NULL AND master IS NOT NULL AND world_size > 1 GROUP BY 1, 2, 3;
CREATE TABLE place AS SELECT run, place, size, min(began) AS began, max(ended) AS ended FROM met
GROUP BY run, place HAVING count(DISTINCT rank) < size;
CREATE INDEX IF NOT EXISTS met_place ON met(place, run, rank);
CREATE INDEX IF NOT EXISTS place_place ON place(place, began);
UPDATE trace_file SET run = (SELECT coalesce(min(r), trace_file.run) FROM (
  SELECT (SELECT o.run FROM place o WHERE o.place = m.place AND o.size = m.size AND o.began <= m.ended AND o.ended >= m.began
    AND (o.run = m.run OR NOT EXISTS (SELECT 1 FROM met x JOIN met y ON y.place = x.place AND y.rank = x.rank
      WHERE x.place = m.place AND x.run = m.run AND y.run = o.run)) ORDER BY o.began, o.run LIMIT 1) AS r
  FROM place m WHERE m.run = trace_file.run ORDER BY m.size DESC, m.place LIMIT 1))
WHERE job IS NULL AND run IN (SELECT run FROM place);
DROP TABLE met;
DROP TABLE place;

--@ sums
DELETE FROM function_total WHERE trace = 0;
INSERT INTO function_total SELECT 0, function, sum(self), sum(self_ns), sum(running), sum(running_ns), sum(cpu_us), sum(total),
  sum(total_ns), sum(total_running_ns), sum(leaf), sum(leaf_ns), sum(leaf_running_ns)
FROM function_total GROUP BY function;

UPDATE torch_module_total AS u SET cuda_calls = g.n, cuda_ns = g.ns FROM (
  SELECT c.id >> 40 AS trace, (c.id >> 40 << 40) + c.module AS module, c.stage, count(*) AS n, sum(g.duration) AS ns FROM torch_call c
  CROSS JOIN torch_cuda g ON g.thread = (c.id >> 40 << 40) + c.thread AND g.call = c.call AND g.stage = c.stage AND g.ts = c.ts
  WHERE c.stage < 2 AND EXISTS (SELECT 1 FROM torch_cuda) GROUP BY 1, 2, 3) g
WHERE u.trace = g.trace AND u.module = g.module AND u.stage = g.stage;

CREATE INDEX IF NOT EXISTS event_value_event ON event_value(event);
CREATE INDEX IF NOT EXISTS thread_tid ON thread(trace, tid);
-- None on torch_call(module): a tenth of the conversion's time, and the planner went by it through all of the table. Sums by module are stored.
DROP INDEX IF EXISTS main.torch_call_module;
CREATE INDEX IF NOT EXISTS period_trace ON period(trace, since);
CREATE INDEX IF NOT EXISTS gpu_ts ON gpu(ts);
CREATE INDEX IF NOT EXISTS comm_ts ON comm(ts);
CREATE INDEX IF NOT EXISTS torch_module_total_trace ON torch_module_total(trace);

-- For 66_views_stored.sql. (main: what is not there yet is not to be looked for in an attached database, which is this file again, locked.)
CREATE TABLE IF NOT EXISTS main.training_log AS SELECT * FROM training_logs_made LIMIT 0;
CREATE TABLE IF NOT EXISTS main.collective AS SELECT * FROM collectives_made LIMIT 0;
CREATE TABLE IF NOT EXISTS main.straggler AS SELECT * FROM stragglers_made LIMIT 0;
CREATE TABLE IF NOT EXISTS main.hang AS SELECT * FROM hangs_made LIMIT 0;
DELETE FROM main.training_log;
DELETE FROM main.collective;
DELETE FROM main.straggler;
DELETE FROM main.hang;
INSERT INTO main.training_log SELECT * FROM training_logs_made;
INSERT INTO main.collective SELECT * FROM collectives_made;
INSERT INTO main.straggler SELECT * FROM stragglers_made;
INSERT INTO main.hang SELECT * FROM hangs_made;

--@ analyze
-- Left out where the database was added to and has not grown by a quarter since.
PRAGMA analysis_limit = 1000;
ANALYZE main;
