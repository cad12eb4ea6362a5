-- SPDX-License-Identifier: Apache-2.0
--@ after load
-- Runs when all rows are there: makes what is derived from all of them, and the indexes.

--@ not stored
-- For 66_views_stored.sql. In the database of a recording that is going on this is run at the beginning, not here: there the results would have to be made anew
-- for each question, and few questions need them.
DROP TABLE training_log;
DROP TABLE collective;
DROP TABLE straggler;
DROP TABLE hang;
CREATE VIEW training_log AS SELECT * FROM training_logs_made;
CREATE VIEW collective AS SELECT * FROM collectives_made;
CREATE VIEW straggler AS SELECT * FROM stragglers_made;
CREATE VIEW hang AS SELECT * FROM hangs_made;

--@ runs
-- Skipped when there is no job.
-- A run over several nodes has a first process on each of them; the launcher's job joins them into one run.
UPDATE trace_file AS f SET run = j.job FROM (SELECT run, min(job) AS job FROM trace_file WHERE job IS NOT NULL GROUP BY run) j WHERE f.run = j.run;

--@ jobs
-- Skipped when there is only one run.
-- Without a launcher's job: joins runs that each have only some of the ranks, and different ones, and that had a process group (or a rendezvous address) in
-- common at the same time.
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
-- Skipped when no process has a rank.
-- When a launcher starts ranks again, their collectives are counted from the beginning again. Processes with the same rank that run at the same time (data
-- loaders, programs that it starts) belong to one attempt, and so do the segments of one process. Where earlier traces of a rank are missing, it had at least as
-- many attempts before as its environment says (told), and as there were moments in which all processes of the run that began before had ended (all_new).
UPDATE trace_file SET attempt = 0 WHERE attempt;
UPDATE trace_file AS f SET attempt = a.nth + a.missing FROM (
  SELECT *, max(0, max(max(told, all_new) - nth) OVER (PARTITION BY run, rank ORDER BY began, pid)) AS missing FROM (
    SELECT *, coalesce(sum(again) OVER (PARTITION BY run, rank ORDER BY began, pid), 0) AS nth,
      iif(one_clock, coalesce(sum(new) OVER (PARTITION BY run ORDER BY created, pid), 0), 0) AS all_new FROM (
      SELECT *, began > max(ended) OVER (PARTITION BY run, rank ORDER BY began, pid ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS again,
        created > max(ended) OVER (PARTITION BY run ORDER BY created, pid ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS new,
        min(clock_group) OVER (PARTITION BY run) = max(clock_group) OVER (PARTITION BY run) AS one_clock
      FROM (SELECT run, rank, pid, boot_id, process_ts, min(start_ts) AS began, min(coalesce(process_ts, start_ts)) AS created, max(end_ts) AS ended,
          min(clock_group) AS clock_group, coalesce(max(told), 0) AS told
        FROM trace_file LEFT JOIN (SELECT id AS trace, sum(times) AS told FROM (
          SELECT t.id, max(max(0, min(CAST(e.value AS INTEGER), 1000000))) AS times FROM trace_file t CROSS JOIN fact e ON e.id BETWEEN t.first_id AND t.last_id
          WHERE t.rank IS NOT NULL AND e.kind = 'env' AND e.key IN ('TORCHELASTIC_RESTART_COUNT', 'SLURM_RESTART_COUNT') GROUP BY t.id, e.key)
          GROUP BY id) ON trace = id
        WHERE run IS NOT NULL AND rank IS NOT NULL GROUP BY 1, 2, 3, 4, 5)))) a
WHERE a.nth + a.missing > 0 AND f.run = a.run AND f.rank = a.rank AND f.pid IS a.pid AND f.boot_id IS a.boot_id AND f.process_ts IS a.process_ts;

--@ places
-- Skipped unless another database says which run a trace belongs to that is converted without the others (place_rows.h).
UPDATE trace_file AS f SET run = p.run, attempt = p.attempt FROM temp.known_place p WHERE p.recording = f.recording;

--@ segments
-- Skipped when no process has gone on in another file.
-- An operation that was in flight at the end of a file stands in it as incomplete, and in the next one as what became of it: the latter counts. The process may
-- have become another program by exec, which counts its operations anew, hence the times.
DELETE FROM comm AS c WHERE c.flags & 1 AND EXISTS (
  SELECT 1 FROM trace_file t JOIN trace_file n ON n.pid = t.pid AND n.boot_id IS t.boot_id AND n.process_ts = t.process_ts AND n.id <> t.id
  JOIN comm d ON d.id = (n.id << 40) + (c.id & 0xffffffffff)
  WHERE t.id = c.id >> 40 AND NOT d.flags & 1 AND abs(d.ts - c.ts) < 1000000 AND d.pg IS c.pg AND d.seq IS c.seq AND d.op IS c.op);

-- A span that was open at the end of a file is ended in a later one of the process, and what lies in it refers to it from there, by its number. (The process may
-- have become another program, which numbers its spans anew: of several with that number it is the last.)
CREATE TABLE later_file AS SELECT n.id AS trace, t.id AS before FROM trace_file t
JOIN trace_file n ON n.pid = t.pid AND n.boot_id IS t.boot_id AND n.process_ts = t.process_ts AND n.start_ts > t.start_ts WHERE t.end_reason = 'rotated';
CREATE INDEX later_file_trace ON later_file(trace);
INSERT OR IGNORE INTO span_end SELECT s.id, e.ts, e.flags FROM span_end e JOIN span s ON s.id = (
  SELECT o.id FROM later_file l JOIN span o ON o.id = (l.before << 40) + (e.id & 0xffffffffff)
  WHERE l.trace = e.id >> 40 AND o.ts <= e.ts ORDER BY o.ts DESC LIMIT 1)
WHERE NOT EXISTS (SELECT 1 FROM span o WHERE o.id = e.id);
UPDATE span AS c SET parent = coalesce((SELECT o.id FROM later_file l JOIN span o ON o.id = (l.before << 40) + (c.parent & 0xffffffffff)
  WHERE l.trace = c.id >> 40 AND o.ts <= c.ts ORDER BY o.ts DESC LIMIT 1), parent)
WHERE parent IS NOT NULL AND NOT EXISTS (SELECT 1 FROM span o WHERE o.id = c.parent);
UPDATE event AS c SET span = coalesce((SELECT o.id FROM later_file l JOIN span o ON o.id = (l.before << 40) + (c.span & 0xffffffffff)
  WHERE l.trace = c.id >> 40 AND o.ts <= c.ts ORDER BY o.ts DESC LIMIT 1), span)
WHERE span IS NOT NULL AND NOT EXISTS (SELECT 1 FROM span o WHERE o.id = c.span);
DROP TABLE later_file;

--@ functions
-- Skipped when the sums were made as the rows came (queue.h). For a single trace they are those of that trace, and not stored twice.
DELETE FROM function_total WHERE trace = 0;
INSERT INTO function_total SELECT 0, function, sum(self), sum(self_ns), sum(running), sum(running_ns), sum(cpu_us), sum(total),
  sum(total_ns), sum(total_running_ns), sum(leaf), sum(leaf_ns), sum(leaf_running_ns)
FROM function_total WHERE (SELECT min(trace) FROM function_total) < (SELECT max(trace) FROM function_total) GROUP BY function;

--@ modules
-- Skipped when there are no steps and no calls.
-- Makes sure that every call has a row of torch_module, also calls that belong to no module, and modules whose names were lost.
INSERT OR IGNORE INTO torch_module SELECT t.first_id + o.column1, o.column2, o.column2, NULL
FROM trace_file t, (VALUES(2, 'backward pass'), (3, 'optimizer step'), (4, 'data loading')) o
WHERE EXISTS (SELECT 1 FROM torch_step s WHERE s.id BETWEEN t.first_id AND t.last_id);
INSERT OR IGNORE INTO torch_module SELECT c.module, CASE c.stage WHEN 0 THEN '[unknown] forward' ELSE '[unknown] backward' END, '[unknown]', NULL
FROM torch_module_total c;

UPDATE torch_module_total AS u SET cuda_calls = g.n, cuda_ns = g.ns FROM (
  SELECT c.id >> 40 AS trace, (c.id >> 40 << 40) + c.module AS module, c.stage, count(*) AS n, sum(g.duration) AS ns
  FROM (SELECT 1 FROM torch_cuda LIMIT 1) CROSS JOIN torch_call c -- if it is empty, no call is looked at
  CROSS JOIN torch_cuda g ON g.thread = (c.id >> 40 << 40) + c.thread AND g.call = c.call AND g.stage = c.stage AND g.ts = c.ts
  WHERE c.stage < 2 GROUP BY 1, 2, 3) g
WHERE u.trace = g.trace AND u.module = g.module AND u.stage = g.stage;

--@ indexes
-- Skipped when rows are added to a live question's database that has the indexes already, or has few rows (tables.c).
CREATE INDEX IF NOT EXISTS event_value_event ON event_value(event);
CREATE INDEX IF NOT EXISTS thread_tid ON thread(trace, tid);
-- No index on torch_call(module): it took a tenth of the conversion's time, and the planner used it to go through the whole table. Sums by module are stored
-- anyway.
DROP INDEX IF EXISTS main.torch_call_module;
CREATE INDEX IF NOT EXISTS period_trace ON period(trace, since);
CREATE INDEX IF NOT EXISTS gpu_ts ON gpu(ts);
CREATE INDEX IF NOT EXISTS comm_ts ON comm(ts);
CREATE INDEX IF NOT EXISTS comm_trace ON comm(id >> 40, ts, duration); -- for the communication of one rank within a step: view steps
CREATE INDEX IF NOT EXISTS torch_module_total_trace ON torch_module_total(trace);

--@ stored
-- For 66_views_stored.sql. Skipped when nothing is stored.
DELETE FROM main.training_log;
DELETE FROM main.collective;
DELETE FROM main.straggler;
DELETE FROM main.hang;
INSERT INTO main.training_log SELECT * FROM training_logs_made;
INSERT INTO main.collective SELECT * FROM collectives_made;
INSERT INTO main.straggler SELECT * FROM stragglers_made;

--@ hangs
-- Skipped when nothing waits: planning this takes longer than everything else for a short trace.
INSERT INTO main.hang SELECT * FROM hangs_made;

--@ analyze
-- Skipped when the database was added to and has not grown by a quarter since, or when it is a live question's and has few rows.
PRAGMA analysis_limit = 1000;
ANALYZE main;
-- There is no table of that name: SQLite ignores the row, and whoever adds to the database later knows how large it was.
INSERT INTO main.sqlite_stat1 SELECT 'bytes', NULL, sum(bytes) FROM trace_file;
