-- SPDX-License-Identifier: Apache-2.0
-- Forked children that left no trace: most of them ended within the 20 ms before a recording begins (ended); for some it could not begin (failed), or they were
-- killed before that (gone). Their time is counted in view loss, as `child`.
CREATE VIEW children AS
SELECT c.ts / 1e9 AS timestamp, c.id >> 40 AS trace_id, c.ended, c.failed, c.gone, c.ticks, c.lived / 1e9 AS seconds
FROM child c;

-- The traces, and how far each can be trusted. end: the last moment that the process recorded, and duration: the time until then; for a process that was killed
-- this is its death, to the precision of one tick of the sampler (a tenth of a second by default). finished: when another process completed its trace; signal:
-- the signal that killed it, if probing-record was its parent or the process itself recorded it (a fault, abort, SIGTERM: view triggers); end_cause: that the
-- kernel killed it for lack of memory; exit_code: what exit() or _exit() was called with, or what probing-record got from its child. children_lost: number of
-- its forked children that left no trace (view children). program: the same in all files of a recording that has gone on in others (rotation). Each of these
-- is a trace; views threads, torch_modules, roles, environment, versions and machine have no row for each, but one for all, whose trace_id is `program`:
-- samples s JOIN trace t ON t.id = s.trace_id JOIN threads h ON h.trace_id = t.program AND h.tid = s.tid.
CREATE VIEW trace AS
SELECT id, file, host, boot_id, pid, ppid, rank, local_rank, world_size, command, exe, python,
  start_ts / 1e9 AS start, end_ts / 1e9 AS "end", records, lost, clock, complete,
  end_reason, (end_ts - start_ts) / 1e9 AS duration, period_ns / 1e9 AS period,
  clock_uncertainty_ns / 1e9 AS clock_uncertainty, bytes, blocks, cwd, uid, agent, how,
  process_ts / 1e9 AS process_start, role, master, finish_ts / 1e9 AS finished,
  coalesce(signal, CASE end_reason WHEN 'killed' THEN
    (SELECT CASE substr(e.detail, 1, instr(e.detail || ' ', ' ') - 1) WHEN 'SIGSEGV' THEN 11 WHEN 'SIGBUS' THEN 7 WHEN 'SIGFPE' THEN 8
       WHEN 'SIGILL' THEN 4 WHEN 'SIGABRT' THEN 6 WHEN 'SIGTERM' THEN 15 END
     FROM (SELECT t.id UNION ALL SELECT o.id FROM trace_file o WHERE t.program IS NOT NULL AND o.program = t.program) f -- in any file of the recording (rotation)
     CROSS JOIN trigger_event e ON e.id BETWEEN f.id << 40 AND f.id << 40 | 0xffffffffff WHERE e.kind IN ('fatal', 'term') AND e.ts > t.end_ts - 1000000000
     ORDER BY e.ts DESC LIMIT 1) END) AS signal,
  run, job, attempt,
  (SELECT coalesce(sum(c.ended + c.failed + c.gone), 0) FROM child c
   WHERE c.id BETWEEN first_id AND last_id) AS children_lost,
  (SELECT f.value FROM fact f WHERE f.id BETWEEN first_id AND last_id AND f.kind = 'end' AND f.key = 'cause'
   ORDER BY f.id DESC LIMIT 1) AS end_cause,
  (SELECT CAST(f.value AS INTEGER) FROM fact f WHERE f.id BETWEEN first_id AND last_id AND f.kind = 'end' AND f.key = 'exit_code'
   ORDER BY f.id DESC LIMIT 1) AS exit_code,
  coalesce(program, id) AS program
FROM trace_file t;

-- How the time of each machine (more exactly, of each boot of it) was determined. Times of machines in the same group may be compared, to within `uncertainty`
-- seconds; those of different groups are only as good as their own clocks. offset: how far its own time of day was ahead, in seconds; drift: of its clock, in
-- parts per million; residual: median distance of a match from the line. A network that is always slower in one direction looks like an offset of the clocks, and
-- `uncertainty` covers that only if method is 'messages'.
CREATE VIEW clock_alignment AS
SELECT iif(b.boot_id LIKE ' %', NULL, b.boot_id) AS boot, b.host, b.method, b.matches, b.offset_ns / 1e9 AS "offset", b.drift * 1e6 AS drift_ppm,
  b.residual_ns / 1e9 AS residual, b.uncertainty_ns / 1e9 AS uncertainty, b.from_ts / 1e9 AS "from", b.to_ts / 1e9 AS "to",
  b."group", b.reference,
  (SELECT count(*) FROM trace_file t WHERE t.boot_id = b.boot_id OR b.boot_id LIKE ' %' AND t.recording IN (b.boot_id, 'part ' || b.boot_id)) AS traces
FROM clock_boot b;

-- The runs. A run is a program with everything that it started (traces/run.h has the rule). Sums in other views are over all runs: when there are several, join
-- trace by trace_id and select one run.
CREATE VIEW runs AS
SELECT r.run, count(*) AS traces,
  count(DISTINCT coalesce(host, '') || '/' || coalesce(pid, '') || '/' || coalesce(boot_id, '') || '/' || coalesce(process_ts, '')) AS processes,
  count(DISTINCT rank) AS ranks, count(DISTINCT host) AS hosts, min(start_ts) / 1e9 AS started, max(end_ts) / 1e9 AS ended,
  (SELECT f.command FROM trace_file f WHERE f.run IS r.run ORDER BY f.process_ts, f.start_ts LIMIT 1) AS command,
  sum(lost) AS lost
FROM trace_file r GROUP BY r.run;

-- What was lost, by reason. unit: what `count` counts. Losses counted in records make up `lost` in view trace; those counted in samples are in the database,
-- but without their stacks.
CREATE VIEW loss AS
SELECT trace AS trace_id, reason, count,
  CASE WHEN reason = 'unresolved_stack' THEN 'samples'
    WHEN reason IN ('damaged_bytes', 'cut_off_bytes') THEN 'bytes'
    WHEN reason IN ('damaged_blocks', 'missing_blocks', 'repeated_blocks', 'newer_blocks', 'excess_blocks', 'wrong_hints', 'unknown_blocks')
    THEN 'blocks' ELSE 'records' END AS unit
FROM lost WHERE count > 0;

-- Messages of the agent.
CREATE VIEW notes AS
SELECT ts / 1e9 AS timestamp, id >> 40 AS trace_id,
  CASE level WHEN 0 THEN 'info' WHEN 1 THEN 'warning' WHEN 2 THEN 'error' ELSE level END AS level,
  part, text
FROM note;

-- What a process said of itself: a row when its recording began, and another whenever more became known (the last one is valid).
CREATE VIEW process AS
SELECT p.ts / 1e9 AS timestamp, p.id >> 40 AS trace_id, p.pid, p.ppid, p.uid, p.host, p.boot_id,
  p.rank, p.local_rank, p.world_size, p.exe, p.command, p.cwd, p.python, p.agent, p.how,
  p.start_ts / 1e9 AS start,
  -- What the process last said of itself; otherwise what other recordings tell.
  CASE
    WHEN t.role IS NOT NULL THEN t.role
    WHEN EXISTS (SELECT 1 FROM trace_file c WHERE c.ppid = t.pid AND c.host = t.host AND c.role = 'worker')
      THEN 'launcher'
    WHEN EXISTS (SELECT 1 FROM trace_file c WHERE c.pid = t.ppid AND c.host = t.host) THEN 'child'
    ELSE 'main'
  END AS role, p.master
FROM process_info p JOIN trace_file t ON t.id = p.id >> 40;

-- Settings of the recording: their values at its beginning, and each change.
CREATE VIEW config AS
SELECT ts / 1e9 AS timestamp, id >> 40 AS trace_id, key, value FROM setting;

-- Executable files and shared libraries that were mapped into the process, and where.
CREATE VIEW modules_loaded AS
SELECT m.ts / 1e9 AS timestamp, m.unload_ts / 1e9 AS unloaded, t.id AS trace_id, t.pid, m.path,
  m.build_id, m.start, m."end", m.bias, m.symbols
FROM module m JOIN trace_file t ON t.id = m.id >> 40;

-- The threads that were seen, with what their samples add up to. A thread of a recording in several files (rotation) is one row; trace_id is then
-- column program of view trace, which is how to join them.
CREATE VIEW threads AS
SELECT h.trace AS trace_id, t.pid, t.rank, h.tid, h.name, h.ident, h.start_ts / 1e9 AS start,
  h.end_ts / 1e9 AS "end", h.samples, h.running, h.cpu_us / 1e6 AS cpu_seconds, h.id AS thread_id, h.comm
FROM thread h JOIN trace_file t ON t.id = h.trace WHERE t.program IS NULL
UNION ALL
SELECT program, pid, rank, tid, substr(max(printf('%09d', place) || name), 10), substr(max(printf('%09d', place) || ident), 10) + 0, min(start_ts) / 1e9,
  max(end_ts) / 1e9, sum(samples), sum(running), sum(cpu_us) / 1e6, min(id), substr(max(printf('%09d', place) || comm), 10)
FROM (SELECT *, sum(is_new) OVER (PARTITION BY program, tid ORDER BY place) AS nth FROM thread_files) GROUP BY program, tid, nth;

-- For view threads: what each file of such a recording has of its threads. place: their order among those with the same tid; is_new: 1 where another thread has got the
-- tid. That is so where one file tells of both, or where the one before had ended.
CREATE VIEW thread_files AS
SELECT t.program, t.pid, t.rank, h.*, row_number() OVER w AS place, coalesce(lag(h.trace) OVER w = h.trace OR lag(h.end_ts) OVER w IS NOT NULL, 1) AS is_new
FROM (SELECT *, coalesce((SELECT min(p.ts) FROM process_info p WHERE p.id BETWEEN first_id AND last_id), start_ts) AS began FROM trace_file WHERE program IS NOT NULL) t
CROSS JOIN thread h ON h.trace = t.id WINDOW w AS (PARTITION BY t.program, h.tid ORDER BY t.began, h.id);

-- What each process last said of what it runs with and on (table fact), and since when that has held: each file of a recording in several files says it anew.
CREATE VIEW last_facts AS
SELECT coalesce(t.program, t.id) AS process, t.rank, f.kind, f.key, f.value, t.pid, t.host, max(f.ts) AS ts,
  CASE WHEN t.program IS NOT NULL THEN (SELECT min(g.ts) FROM trace_file o CROSS JOIN fact g ON g.id BETWEEN o.first_id AND o.last_id
    WHERE o.program = t.program AND g.kind = f.kind AND g.key = f.key AND g.ts > coalesce((
      SELECT max(x.ts) FROM trace_file o CROSS JOIN fact x ON x.id BETWEEN o.first_id AND o.last_id
      WHERE o.program = t.program AND x.kind = f.kind AND x.key = f.key AND x.value IS NOT f.value), 0)) END AS same_since
FROM trace_file t JOIN fact f ON f.id BETWEEN t.first_id AND t.last_id GROUP BY coalesce(t.program, t.id), f.kind, f.key;

-- Environment variables that matter (setting environment says which; none whose name suggests a secret), with their last values.
CREATE VIEW environment AS
SELECT process AS trace_id, rank, key, value, pid, host, coalesce(same_since, ts) / 1e9 AS since FROM last_facts WHERE kind = 'env';

-- Versions of python, the agent, packages whose native code was loaded (torch, numpy, nccl, ...), what torch was built with (torch.cuda), kernel, glibc,
-- nvidia_driver.
CREATE VIEW versions AS
SELECT process AS trace_id, rank, key AS name, value AS version, pid, host, coalesce(same_since, ts) / 1e9 AS since
FROM last_facts WHERE kind = 'version' OR kind = 'system' AND key IN ('kernel', 'glibc', 'nvidia_driver')
UNION ALL SELECT coalesce(program, id), rank, 'python', python, pid, host, min(start_ts) / 1e9 FROM trace_file WHERE python <> '' GROUP BY coalesce(program, id)
UNION ALL SELECT coalesce(program, id), rank, 'agent', agent, pid, host, min(start_ts) / 1e9 FROM trace_file WHERE agent <> '' GROUP BY coalesce(program, id);

-- The machine (source system: cpu_model, cpus, memory, ...) and the limits of the process's cgroup (source limit: memory.max, cpu.max, or their names in cgroup
-- v1; if the cgroup itself has no limit, that of an enclosing one).
CREATE VIEW machine AS
SELECT process AS trace_id, rank, kind AS source, key, value, pid, host, coalesce(same_since, ts) / 1e9 AS since FROM last_facts WHERE kind IN ('system', 'limit');
