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
CREATE VIEW hang AS SELECT * FROM hangs_made UNION ALL SELECT * FROM hangs_late_made;

--@ no stacks
-- In the database of a live question for which no stacks are read: the same without the joins to stacks and threads, which take three fifths of the time of a
-- sum over samples.
DROP VIEW samples;
CREATE VIEW samples AS
SELECT s.ts / 1e9 AS timestamp, t.id AS trace_id, t.pid, t.rank, (SELECT h.tid FROM thread h WHERE h.id = t.first_id + s.thread) AS tid,
  (SELECT h.name FROM thread h WHERE h.id = t.first_id + s.thread) AS thread,
  NULL AS func, NULL AS file, NULL AS lineno, NULL AS frame_type,
  CASE WHEN s.flags & 1 THEN 'running' ELSE 'idle' END AS state,
  s.flags >> 1 & 1 AS gil, s.cpu_us / 1e6 AS cpu_seconds, s.count,
  s.count * CASE WHEN t.periods < 2 THEN t.period_ns ELSE (
    SELECT p.ns FROM period p WHERE p.trace = t.id AND p.since <= s.ts ORDER BY p.since DESC LIMIT 1) END / 1e9 AS seconds,
  s.stack AS stack_id, s.id AS sample_id, s.flags >> 2 & 1 AS outside
FROM trace_file t
CROSS JOIN sample s ON s.id BETWEEN t.first_id AND t.last_id;

--@ clones
-- Skipped when all traces are of one boot.
-- Machines that share a name (containers, virtual machines started from one image) may each have a first process with the same number and start time: then its
-- boot tells one run from the other. Processes on other hosts have inherited the run's name, and keep it.
UPDATE trace_file AS f SET run = f.run || '-' || substr(f.boot_id, 1, 8) FROM (
  SELECT run FROM trace_file WHERE boot_id <> '' AND substr(run, 1, length(host) + 1) = host || '-' GROUP BY run HAVING min(boot_id) < max(boot_id)) c
WHERE f.run = c.run AND f.boot_id <> '' AND substr(f.run, 1, length(f.host) + 1) = f.host || '-';

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

--@ trials
-- Skipped when all traces are of one boot and have one rendezvous address.
-- A job of the launcher (a Slurm allocation) may hold several trainings side by side, each with its own rendezvous address and its own rank 0, 1, ...: they are
-- runs of their own. When a training is started again with another address, the former processes have ended, so that they are one. A loopback address
-- is one for each machine.
CREATE TABLE trial AS SELECT id, run, first_run, rank, clock, boot_id, start_ts, end_ts,
  iif(master LIKE '127.%' OR master LIKE 'localhost:%' OR master LIKE '%::1%', host || substr(master, length(rtrim(master, '0123456789'))), master) AS place
FROM trace_file WHERE master IS NOT NULL AND run IS NOT NULL;
CREATE INDEX trial_rank ON trial(run, rank) WHERE rank IS NOT NULL;
DELETE FROM trial WHERE run NOT IN (SELECT a.run FROM trial a JOIN trial b ON b.run = a.run AND b.rank = a.rank AND b.place > a.place
  WHERE a.rank IS NOT NULL AND b.rank IS NOT NULL AND (a.boot_id = b.boot_id OR (a.clock <> 'none' AND b.clock <> 'none'))
    AND 2 * (min(a.end_ts, b.end_ts) - max(a.start_ts, b.start_ts)) > min(a.end_ts - a.start_ts, b.end_ts - b.start_ts));
UPDATE trace_file AS f SET run = f.run || '@' || t.place FROM trial t WHERE t.id = f.id;
-- The launcher has no address: it belongs to the processes that it started, if these are of one training.
UPDATE trace_file AS f SET run = f.run || '@' || t.place FROM (
  SELECT run, first_run, min(place) AS place FROM trial GROUP BY run, first_run HAVING min(place) = max(place)) t
WHERE f.master IS NULL AND f.run = t.run AND f.first_run = t.first_run;
DROP TABLE trial;

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
UPDATE trace_file AS f SET run = p.run, first_run = p.run, attempt = p.attempt FROM temp.known_place p WHERE p.recording = f.recording;

--@ segments
-- Skipped when no process has gone on in another file.
-- The files of one program, in their order. A process that becomes another program by exec counts everything anew, so that one has files of its own.
CREATE TABLE program_file AS SELECT id AS trace, min(id) OVER (PARTITION BY boot_id, pid, process_ts, execs) AS program,
  row_number() OVER (PARTITION BY boot_id, pid, process_ts, execs ORDER BY began) AS nth
FROM (SELECT *, coalesce(sum(end_reason IS NOT 'rotated') OVER (PARTITION BY boot_id, pid, process_ts ORDER BY began ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS execs
  FROM (SELECT *, coalesce((SELECT min(p.ts) FROM process_info p WHERE p.id BETWEEN first_id AND last_id), start_ts) AS began -- a blocked thread may come with an old record
    FROM trace_file WHERE pid IS NOT NULL AND process_ts IS NOT NULL));
CREATE INDEX program_file_trace ON program_file(trace);
CREATE INDEX program_file_program ON program_file(program, nth);
CREATE TABLE later_file AS SELECT n.trace, t.trace AS before, t.nth FROM program_file t JOIN program_file n ON n.program = t.program AND n.nth > t.nth;
CREATE INDEX later_file_trace ON later_file(trace);
CREATE INDEX later_file_before ON later_file(before);
UPDATE trace_file AS t SET program = p.program FROM program_file p WHERE p.trace = t.id;
CREATE INDEX IF NOT EXISTS trace_program ON trace_file(program) WHERE program IS NOT NULL;

-- An operation that was in flight at the end of a file stands in it as incomplete, and in a later one as what became of it: the latter counts.
DELETE FROM comm AS c WHERE c.flags & 1 AND EXISTS (
  SELECT 1 FROM later_file l JOIN comm d ON d.id = (l.trace << 40) + (c.id & 0xffffffffff)
  WHERE l.before = c.id >> 40 AND d.pg IS c.pg AND d.seq IS c.seq AND d.op IS c.op);

-- Likewise a trigger of which a later file says more; the stacks are those of its time, in whichever file.
DELETE FROM trigger_event AS e WHERE EXISTS (
  SELECT 1 FROM later_file l JOIN trigger_event d ON d.id = (l.trace << 40) + (e.id & 0xffffffffff)
  WHERE l.before = e.id >> 40 AND d.kind IS e.kind AND d.ts = e.ts);

-- A span that was open at the end of a file is ended in a later one, and what lies in it refers to it from there, by its number; and so do an event's values.
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
UPDATE event_value AS v SET event = coalesce((SELECT o.id FROM later_file l JOIN event o ON o.id = (l.before << 40) + (v.event & 0xffffffffff)
  WHERE l.trace = v.id >> 40 LIMIT 1), event)
WHERE NOT EXISTS (SELECT 1 FROM event o WHERE o.id = v.event);

-- A step that was in progress at the end of a file has its row in the file in which it ended, or else in the last one.
CREATE TABLE goes_on AS SELECT f.trace, f.before FROM (
  SELECT p.trace, (SELECT b.trace FROM program_file b JOIN torch_edge l ON l.trace = b.trace AND l.last = 1
    WHERE b.program = p.program AND b.nth < p.nth ORDER BY b.nth DESC LIMIT 1) AS before
  FROM program_file p WHERE p.nth > 1) f
JOIN torch_edge e ON e.trace = f.trace AND e.last = 0 JOIN torch_edge l ON l.trace = f.before AND l.last = 1 WHERE l.number IN (e.number, e.start);
CREATE TABLE whole_step AS WITH RECURSIVE w(trace, row, ts, forward, backward, optimizer, data, forwards, backwards, optimizers, seq, moved, number, source, shown) AS (
  SELECT g.trace, e.row, e.ts - e.since + l.ts, e.forward + l.forward, e.backward + l.backward, e.optimizer + l.optimizer, e.data + l.data,
    e.forwards + l.forwards, e.backwards + l.backwards, e.optimizers + l.optimizers, e.seq + l.seq, l.seq,
    iif(e.duration IS NULL, l.number, e.number), iif(e.duration IS NULL, l.source, e.source), max(e.shown, l.shown)
  FROM goes_on g JOIN torch_edge e ON e.trace = g.trace AND e.last = 0 JOIN torch_edge l ON l.trace = g.before AND l.last = 1
  WHERE NOT (l.only AND g.before IN (SELECT trace FROM goes_on))
  UNION ALL
  SELECT g.trace, e.row, e.ts - e.since + w.ts, e.forward + w.forward, e.backward + w.backward, e.optimizer + w.optimizer, e.data + w.data,
    e.forwards + w.forwards, e.backwards + w.backwards, e.optimizers + w.optimizers, e.seq + w.seq, w.seq,
    iif(e.duration IS NULL, w.number, e.number), iif(e.duration IS NULL, w.source, e.source), max(e.shown, w.shown)
  FROM w JOIN goes_on g ON g.before = w.trace JOIN torch_edge l ON l.trace = g.before AND l.last = 1 AND l.only
  JOIN torch_edge e ON e.trace = g.trace AND e.last = 0)
SELECT * FROM w;
INSERT OR REPLACE INTO torch_step SELECT w.row, w.ts, e.ts + e.duration - w.ts, w.number, w.source, max(w.forward, 0), max(w.backward, 0), max(w.optimizer, 0),
  max(w.data, 0), w.forwards, w.backwards, w.optimizers, e.told
FROM whole_step w JOIN torch_edge e ON e.trace = w.trace AND e.last = 0 WHERE w.shown AND (e.duration IS NOT NULL OR w.seq OR w.data > 0);
DELETE FROM torch_step WHERE id IN (SELECT l.row FROM goes_on g JOIN torch_edge l ON l.trace = g.before AND l.last = 1);
-- What ends the last one is told by the last step that ended.
UPDATE torch_step AS s SET source = coalesce((SELECT o.source FROM later_file l JOIN torch_step o ON o.id BETWEEN l.before << 40 AND l.before << 40 | 0xffffffffff
  WHERE l.trace = s.id >> 40 AND o.source < 3 AND o.duration IS NOT NULL ORDER BY l.nth DESC, o.id DESC LIMIT 1), source)
WHERE duration IS NULL AND id IN (SELECT (SELECT max(o.id) FROM torch_step o WHERE o.id BETWEEN p.trace << 40 AND p.trace << 40 | 0xffffffffff)
    FROM program_file p WHERE p.nth > 1)
  AND NOT EXISTS (SELECT 1 FROM torch_step o WHERE o.id BETWEEN s.id >> 40 << 40 AND s.id - 1 AND o.source < 3);

-- The calls of such a step are numbered on, and when it turns out to be evaluation they belong to no step.
CREATE TABLE more_calls AS SELECT w.trace << 40 AS first, e.call AS last, e.ts + e.duration AS until, w.moved - e.moved AS more
FROM whole_step w JOIN torch_edge e ON e.trace = w.trace AND e.last = 0 WHERE w.moved <> e.moved;
UPDATE torch_call AS c SET seq = c.seq + m.more FROM more_calls m
WHERE c.id BETWEEN m.first AND m.last AND (m.until IS NULL OR c.ts < m.until) AND NOT EXISTS (SELECT 1 FROM torch_open o WHERE o.id = c.id AND o.begun);
UPDATE torch_open AS c SET seq = c.seq + m.more FROM more_calls m
WHERE c.id BETWEEN m.first AND m.last AND (m.until IS NULL OR c.ts < m.until) AND NOT c.begun;
UPDATE torch_edge AS e SET moved = w.moved FROM whole_step w WHERE w.trace = e.trace AND e.last = 0;
DROP TABLE more_calls;
CREATE TABLE other_step AS WITH RECURSIVE f(before, trace) AS (
  SELECT before, trace FROM goes_on
  UNION ALL SELECT f.before, g.trace FROM f JOIN torch_edge l ON l.trace = f.trace AND l.last = 1 AND l.only JOIN goes_on g ON g.before = f.trace)
SELECT l.call AS first, l.trace << 40 | 0xffffffffff AS last, l.since, iif(e.source = 3, NULL, e.number) AS step, iif(e.source = 3, 4, 0) AS flag
FROM f JOIN torch_edge l ON l.trace = f.before AND l.last = 1 JOIN torch_edge e ON e.trace = f.trace AND e.last = 0
WHERE l.call AND e.duration IS NOT NULL AND (e.source = 3 OR e.number <> l.number);
UPDATE torch_call AS c SET step = o.step, flags = c.flags | o.flag FROM other_step o WHERE c.id BETWEEN o.first AND o.last AND c.ts >= o.since;
UPDATE torch_open AS c SET step = o.step, flags = c.flags | o.flag FROM other_step o WHERE c.id BETWEEN o.first AND o.last AND c.ts >= o.since AND NOT c.begun;
DROP TABLE other_step;
DROP TABLE goes_on;
DROP TABLE whole_step;

-- So has a call that was open there: its row is the last one, with what the first one says of its beginning, and what lies in it refers to that row.
CREATE TABLE same_call AS SELECT p.id, o.id AS was, l.nth, o.inner, o.duration, o.module, o.stage, o.step, o.seq, o.flags
FROM torch_open p JOIN torch_open o ON o.ts BETWEEN p.ts - 1000 AND p.ts + 1000 AND o.open AND o.tid = p.tid AND o.stage = p.stage AND o.module = p.module
  AND o.call IS p.call AND o.call_tid = p.call_tid
JOIN later_file l ON l.trace = p.id >> 40 AND l.before = o.id >> 40 WHERE p.begun;
CREATE INDEX same_call_was ON same_call(was);
DELETE FROM same_call WHERE id IN (SELECT was FROM same_call);
CREATE INDEX same_call_id ON same_call(id, nth);
UPDATE torch_call AS c SET step = s.step, seq = s.seq, flags = c.flags & ~4 | s.flags
FROM (SELECT id, min(nth), step, seq, flags FROM same_call GROUP BY id) s WHERE c.id = s.id;
UPDATE torch_call AS c SET parent = c.id - s.id FROM same_call s WHERE c.id BETWEEN s.was + 1 AND s.was | 0xffffffffff
  AND c.parent IS NOT NULL AND c.id - c.parent IN (SELECT o.was FROM same_call o WHERE o.id = s.id);
DELETE FROM torch_call WHERE id IN (SELECT was FROM same_call);
DELETE FROM torch_module_total WHERE calls <= 0;
INSERT INTO torch_module_total SELECT was >> 40, (was >> 40 << 40) + module, stage, -1, -(duration IS NOT NULL), -coalesce(duration, 0),
  -coalesce(duration - inner, 0), 0, 0, 0 FROM same_call WHERE stage < 2;
INSERT INTO torch_module_total SELECT s.id >> 40, (s.id >> 40 << 40) + s.module, s.stage, 0, 0, 0, -sum(s.inner), 0, 0, 0
FROM same_call s JOIN torch_open p ON p.id = s.id WHERE s.stage < 2 AND (NOT p.open OR p.duration IS NOT NULL) GROUP BY s.id;
DROP TABLE same_call;
DROP TABLE later_file;
DROP TABLE program_file;

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
WHERE EXISTS (SELECT 1 FROM torch_step s WHERE s.id BETWEEN t.first_id AND t.last_id) OR EXISTS (SELECT 1 FROM torch_call c WHERE c.id BETWEEN t.first_id AND t.last_id);
INSERT OR IGNORE INTO torch_module SELECT c.module, CASE c.stage WHEN 0 THEN '[unknown] forward' ELSE '[unknown] backward' END, '[unknown]', NULL
FROM torch_module_total c;

UPDATE torch_module_total AS u SET cuda_calls = g.n, cuda_ns = g.ns FROM (
  SELECT c.id >> 40 AS trace, (c.id >> 40 << 40) + c.module AS module, c.stage, count(*) AS n, sum(g.duration) AS ns
  FROM (SELECT 1 FROM torch_cuda LIMIT 1) CROSS JOIN torch_call c -- if it is empty, no call is looked at
  CROSS JOIN torch_cuda g ON g.thread = (c.id >> 40 << 40) + c.thread AND g.call = c.call AND g.stage = c.stage AND g.ts = c.ts
  WHERE c.stage < 2 GROUP BY 1, 2, 3) g
WHERE u.trace = g.trace AND u.module = g.module AND u.stage = g.stage AND u.calls > 0;

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
INSERT INTO main.hang SELECT * FROM hangs_late_made;

--@ analyze
-- Skipped when the database was added to and has not grown by a quarter since, or when it is a live question's and has few rows.
PRAGMA analysis_limit = 1000;
ANALYZE main;
-- There is no table of that name: SQLite ignores the row, and whoever adds to the database later knows how large it was.
INSERT INTO main.sqlite_stat1 SELECT 'bytes', NULL, sum(bytes) FROM trace_file;
