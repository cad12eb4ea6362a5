-- SPDX-License-Identifier: Apache-2.0
-- The database that probing-convert writes: what it holds and how it is read.
--
-- Ask the VIEWS: their names and columns are stable, `timestamp` is REAL seconds since the epoch
-- (UTC) and ids are resolved to names. The TABLES under them may change between versions; times
-- there are INTEGER nanoseconds since the epoch (UTC), column `ts`.
--
-- Ids: the rows of each trace are numbered trace << 40 | n, so that traces of any number of
-- processes lie in one database. Functions, frames and stacks are shared by all of them.
-- Plain SQLite, 3.37 or later, no extension needed. PRAGMA application_id is 0x50524244 ("PRBD"), PRAGMA
-- user_version the version of what is below (converter/output.h).

------------------------------------------------------------------------------ tables: traces

-- One row per trace: an input file is one, or several joined end to end (the second is named FILE#2). `id` counts from 1.
CREATE TABLE trace_file(
  id INTEGER PRIMARY KEY,
  file TEXT NOT NULL,        -- as given; '-' for stdin
  host TEXT, boot_id TEXT,
  pid INTEGER, ppid INTEGER, uid INTEGER,
  rank INTEGER, local_rank INTEGER, world_size INTEGER, -- NULL: not known
  exe TEXT, command TEXT, cwd TEXT, python TEXT, agent TEXT, how TEXT,
  process_ts INTEGER,        -- start of the process
  start_ts INTEGER, end_ts INTEGER, -- first and last time that the process itself recorded
  end_reason TEXT,           -- why it ended; NULL: it did not, the file just stops
  complete INTEGER NOT NULL, -- 1: ended cleanly and every block is there
  bytes INTEGER NOT NULL, blocks INTEGER NOT NULL, records INTEGER NOT NULL,
  lost INTEGER NOT NULL,     -- records known to be lost, all reasons (table lost)
  clock TEXT NOT NULL,       -- 'anchors' or 'none' (then times are CLOCK_MONOTONIC)
  clock_anchors INTEGER NOT NULL,
  clock_uncertainty_ns INTEGER, -- of the offset between the clocks
  period_ns INTEGER,         -- the sampling period at the end
  first_id INTEGER NOT NULL, last_id INTEGER NOT NULL, -- range of this trace's row ids
  role TEXT, master TEXT,    -- launcher, worker or dataloader; MASTER_ADDR:MASTER_PORT; NULL: not known
  finish_ts INTEGER,         -- when another process completed the trace, of one that was killed; NULL: it did so itself
  signal INTEGER,            -- what killed it, where probing-record was its parent; NULL: nothing, or not known
  periods INTEGER NOT NULL,  -- its rows in table period
  run TEXT,                  -- the run that it is of: the launcher's job over all nodes, else HOST-PID-START of the first process
  job TEXT                   -- as the launcher says it: elastic:ID, mpi:ID, slurm:JOB[.STEP]; NULL: none
);

-- Forked children that left no trace, as their parent counted them.
CREATE TABLE child(
  id INTEGER PRIMARY KEY, ts INTEGER, ended INTEGER, failed INTEGER, gone INTEGER, ticks INTEGER, lived INTEGER);

-- What is not in the database although it happened, by reason.
CREATE TABLE lost(trace INTEGER NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL);

-- Every process record: a process says it again when it knows more.
CREATE TABLE process_info(
  id INTEGER PRIMARY KEY, ts INTEGER, start_ts INTEGER, host TEXT, boot_id TEXT,
  pid INTEGER, ppid INTEGER, uid INTEGER, rank INTEGER, local_rank INTEGER, world_size INTEGER,
  exe TEXT, command TEXT, cwd TEXT, python TEXT, agent TEXT, how TEXT,
  role TEXT, master TEXT
);

CREATE TABLE setting(id INTEGER PRIMARY KEY, ts INTEGER, key TEXT, value TEXT);
CREATE TABLE note(id INTEGER PRIMARY KEY, ts INTEGER, level INTEGER, part TEXT, text TEXT);
CREATE TABLE clock(id INTEGER PRIMARY KEY, mono INTEGER, realtime INTEGER, boottime INTEGER, bracket INTEGER);

-- Sampling periods: from `since` (ns UTC) on a tick of this trace stands for `ns`.
CREATE TABLE period(trace INTEGER NOT NULL, since INTEGER NOT NULL, ns INTEGER NOT NULL);

-- Mapped files (ELF objects) and when; unload_ts NULL: never seen to go.
CREATE TABLE module(
  id INTEGER PRIMARY KEY, ts INTEGER, unload_ts INTEGER, path TEXT, build_id TEXT,
  start INTEGER, "end" INTEGER, bias INTEGER,
  symbols INTEGER -- 1: names come from the very file, 0: it was not found here, NULL: not needed
);

-- A thread from when it was seen until it was gone; a tid used again is another row. name: what Python's threading calls it,
-- of threads that it has not started the kernel's name, comm.
CREATE TABLE thread(
  id INTEGER PRIMARY KEY, trace INTEGER NOT NULL, tid INTEGER NOT NULL, name TEXT, ident INTEGER,
  start_ts INTEGER, end_ts INTEGER, -- NULL: not seen to start or to end
  samples INTEGER NOT NULL, running INTEGER NOT NULL, cpu_us INTEGER NOT NULL,
  comm TEXT
);

------------------------------------------------------------------------------ tables: stacks

-- Functions. type 0 Python (has a file), 1 native (has a module: the ELF file, if known).
CREATE TABLE function(
  id INTEGER PRIMARY KEY, type INTEGER NOT NULL, name TEXT NOT NULL, file TEXT, firstline INTEGER,
  module TEXT
);
-- A function at one line. file: source of a native line, where debug information tells it.
CREATE TABLE frame(
  id INTEGER PRIMARY KEY, function INTEGER NOT NULL, line INTEGER, file TEXT
);
-- The trie of calls: `frame` called from callsite `parent` (NULL: outermost, depth 0).
-- A stack is named by its innermost callsite.
CREATE TABLE callsite(
  id INTEGER PRIMARY KEY, parent INTEGER, depth INTEGER NOT NULL, frame INTEGER NOT NULL
);
-- The frames of each stack that a sample has, depth 0 the innermost (the trie, walked once, so
-- that no query has to). first: 1 at the innermost frame of each function, 0 where it recurs.
-- leaf: 1 at the innermost Python frame of the stack, else 0.
CREATE TABLE stack_frame(
  stack INTEGER NOT NULL, depth INTEGER NOT NULL, frame INTEGER NOT NULL, first INTEGER NOT NULL,
  leaf INTEGER NOT NULL, PRIMARY KEY(stack, depth)
) WITHOUT ROWID;
-- The samples of each trace added up by stack; running, running_ns: of those that were on a CPU, or waited for one.
CREATE TABLE stack_total(
  trace INTEGER NOT NULL, stack INTEGER, -- NULL: not known
  samples INTEGER NOT NULL, count INTEGER NOT NULL, running INTEGER NOT NULL,
  cpu_us INTEGER NOT NULL, ns INTEGER NOT NULL, running_ns INTEGER NOT NULL
);

------------------------------------------------------------------------------ tables: data

-- What a thread did at a tick, or at `count` ticks in a row from ts on.
CREATE TABLE sample(
  id INTEGER PRIMARY KEY,
  ts INTEGER NOT NULL,
  thread INTEGER NOT NULL,
  stack INTEGER,           -- callsite; NULL: could not be read
  cpu_us INTEGER NOT NULL, -- CPU time since the thread's previous sample
  count INTEGER NOT NULL,
  flags INTEGER NOT NULL   -- 1 was on a CPU, 2 held the GIL, 4 read from outside (5: while it ran)
);
-- Those of triggers, few. An index on the time of all is not worth its price (two fifths of the conversion's time and of the file): a
-- range of `timestamp` in a view is found by walking the trace's ids, 40 ns a row, and the planner takes that way anyway.
CREATE INDEX sample_burst ON sample(ts) WHERE count = 0;

-- Per second. The view is called memory.
CREATE TABLE memory_sample(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, rss INTEGER, vms INTEGER, shared INTEGER,
  data INTEGER, swap INTEGER, peak INTEGER
);
CREATE TABLE cpu(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, user_us INTEGER, system_us INTEGER,
  threads INTEGER, voluntary INTEGER, involuntary INTEGER, minor_faults INTEGER,
  major_faults INTEGER, agent_us INTEGER, handler_us INTEGER
);
CREATE TABLE io(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, rchar INTEGER, wchar INTEGER, syscr INTEGER,
  syscw INTEGER, read_bytes INTEGER, write_bytes INTEGER
);
CREATE TABLE network(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, interface TEXT, rx_bytes INTEGER,
  tx_bytes INTEGER, rx_packets INTEGER, tx_packets INTEGER, rx_errors INTEGER, tx_errors INTEGER
);

-- What the program says itself (import probing). Spans and events of a process share one count.
CREATE TABLE span(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, parent INTEGER, tid INTEGER, name TEXT
);
CREATE TABLE span_end(id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, flags INTEGER); -- 1 by an exception
CREATE TABLE event(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, span INTEGER, step INTEGER, tid INTEGER, name TEXT
);
-- value: INTEGER, REAL, TEXT or NULL, as it was; not-a-number is the text 'nan'.
CREATE TABLE event_value(id INTEGER PRIMARY KEY, event INTEGER NOT NULL, key TEXT, value);
CREATE TABLE variable(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, step INTEGER, at INTEGER, func TEXT, name TEXT, value
);

-- Memory at the ends of steps. GPU: what torch's allocator says, NULL without one.
CREATE TABLE memory_step(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, step INTEGER, rss INTEGER, vms INTEGER,
  gpu_allocated INTEGER, gpu_reserved INTEGER
);
-- GPUs by NVML; NULL: not known.
CREATE TABLE gpu(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, device INTEGER NOT NULL, uuid TEXT, name TEXT,
  util INTEGER, memory_util INTEGER, memory_used INTEGER, memory_total INTEGER,
  process_memory INTEGER, power_mw INTEGER, temperature INTEGER, sm_clock INTEGER
);

-- Process groups, their ranks (idx: rank in the group), and what was done in them.
CREATE TABLE process_group(
  trace INTEGER NOT NULL, pg INTEGER NOT NULL, name TEXT, backend TEXT, rank INTEGER, size INTEGER,
  ranks TEXT, PRIMARY KEY(trace, pg)
) WITHOUT ROWID;
CREATE TABLE group_rank(
  trace INTEGER NOT NULL, pg INTEGER NOT NULL, idx INTEGER NOT NULL, rank INTEGER NOT NULL,
  PRIMARY KEY(trace, pg, idx)
) WITHOUT ROWID;
CREATE TABLE comm(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, tid INTEGER, pg INTEGER NOT NULL, seq INTEGER, op TEXT,
  bytes INTEGER, dtype TEXT,
  duration INTEGER NOT NULL, -- ns; when it is not complete: as far as was seen
  host INTEGER NOT NULL,     -- ns inside the call
  src INTEGER, dst INTEGER,  -- ranks in the group
  flags INTEGER NOT NULL     -- 1 never seen to complete, 2 its end is the return of the call, 4 that raised an exception
);

-- What made the agent take the stacks of all threads: samples with count 0 at `tick`.
CREATE TABLE trigger_event(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, kind TEXT NOT NULL, tid INTEGER, step INTEGER,
  tick INTEGER, detail TEXT, text TEXT
);

-- PyTorch. Modules by name (one name may stand for several objects over time); type: the class.
CREATE TABLE torch_module(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT);
-- stage 0 a module's forward call, 1 its backward, 2 a whole backward pass, 3 Optimizer.step, 4 waiting for the DataLoader.
CREATE TABLE torch_call(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL,
  duration INTEGER,       -- ns; NULL: not seen to end
  thread INTEGER NOT NULL, stage INTEGER NOT NULL, module INTEGER,
  call INTEGER,           -- number of the forward call in its thread; a backward has that of its forward
  parent INTEGER,         -- row that it lies in, of the same stage
  depth INTEGER NOT NULL, -- number of those
  flags INTEGER NOT NULL, -- 1 left by an exception, 2 within a backward pass (recomputed), 4 evaluation
  step INTEGER,           -- number of the step in progress when it began; NULL: it was evaluation
  seq INTEGER NOT NULL,   -- 0, 1, ... in that step
  call_tid INTEGER        -- kernel thread id of the thread that `call` counts in, where that is another one; NULL: this one
);
-- Steps, and the evaluation between them; the parts' times exclude each other and are those of the thread that counts the steps.
CREATE TABLE torch_step(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL,
  duration INTEGER,        -- NULL: the recording ended first
  number INTEGER NOT NULL, -- of an evaluation: as it was counted then
  source INTEGER NOT NULL, -- 0 ended by an optimizer, 1 by the root module's call, 2 by probing.step(), 3 evaluation
  forward INTEGER, backward INTEGER, optimizer INTEGER, data INTEGER, -- ns
  forwards INTEGER, backwards INTEGER, optimizers INTEGER, -- how many; forwards: outermost calls of models (no losses)
  told INTEGER             -- its end when it was told: another optimizer's step may have come to it; NULL: it had none
);
-- What the GPU had to do with it, of calls and steps that were chosen (cuda=, memory= in PROBING_TORCH_PROFILING): a row belongs to
-- the torch_call with the same four columns, one of stage 5 to the torch_step with number = call, told = ts of the trace thread >> 40.
CREATE TABLE torch_cuda(
  thread INTEGER NOT NULL, call INTEGER NOT NULL, stage INTEGER NOT NULL, ts INTEGER NOT NULL,
  device INTEGER NOT NULL, duration INTEGER NOT NULL, -- ns between events in the current stream
  PRIMARY KEY(thread, call, stage, ts)
) WITHOUT ROWID;
CREATE TABLE torch_memory( -- at its end; bytes, by torch's allocator
  thread INTEGER NOT NULL, call INTEGER NOT NULL, stage INTEGER NOT NULL, ts INTEGER NOT NULL,
  device INTEGER NOT NULL, allocated INTEGER NOT NULL, max_allocated INTEGER NOT NULL, reserved INTEGER NOT NULL,
  PRIMARY KEY(thread, call, stage, ts)
) WITHOUT ROWID;

------------------------------------------------------------------------------ views

-- Forked children that left no trace: most because they ended in the 20 ms before a recording begins (ended), some because it could
-- not begin (failed) or they were killed before (gone). Their time is in view loss, as `child`.
CREATE VIEW children AS
SELECT c.ts / 1e9 AS timestamp, c.id >> 40 AS trace_id, c.ended, c.failed, c.gone, c.ticks, c.lived / 1e9 AS seconds
FROM child c;

-- The files, and how far each can be trusted. end, duration: the last moment that the process recorded, until there; of one
-- that was killed that is its death, to a tick of the sampler (a tenth of a second by default). finished: when another process
-- completed its trace; signal: what killed it, where probing-record was its parent. children_lost: its
-- forked children that left no trace (view children).
CREATE VIEW trace AS
SELECT id, file, host, boot_id, pid, ppid, rank, local_rank, world_size, command, exe, python,
  start_ts / 1e9 AS start, end_ts / 1e9 AS "end", records, lost, clock, complete,
  end_reason, (end_ts - start_ts) / 1e9 AS duration, period_ns / 1e9 AS period,
  clock_uncertainty_ns / 1e9 AS clock_uncertainty, bytes, blocks, cwd, uid, agent, how,
  process_ts / 1e9 AS process_start, role, master, finish_ts / 1e9 AS finished, signal,
  run, job,
  (SELECT coalesce(sum(c.ended + c.failed + c.gone), 0) FROM child c
   WHERE c.id BETWEEN first_id AND last_id) AS children_lost
FROM trace_file;

-- The runs, each a program with all that it started (traces/run.h has the rule). Sums of other views are over all of them: where
-- there are several, join trace by trace_id and ask for one run.
CREATE VIEW runs AS
SELECT r.run, count(*) AS traces,
  count(DISTINCT coalesce(host, '') || '/' || coalesce(pid, '') || '/' || coalesce(boot_id, '') || '/' || coalesce(process_ts, '')) AS processes,
  count(DISTINCT rank) AS ranks, count(DISTINCT host) AS hosts, min(start_ts) / 1e9 AS started, max(end_ts) / 1e9 AS ended,
  (SELECT f.command FROM trace_file f WHERE f.run IS r.run ORDER BY f.process_ts, f.start_ts LIMIT 1) AS command,
  sum(lost) AS lost
FROM trace_file r GROUP BY r.run;

-- What was lost, by reason.
CREATE VIEW loss AS
SELECT trace AS trace_id, reason, count FROM lost WHERE count > 0;

-- What the agent had to say.
CREATE VIEW notes AS
SELECT ts / 1e9 AS timestamp, id >> 40 AS trace_id,
  CASE level WHEN 0 THEN 'info' WHEN 1 THEN 'warning' WHEN 2 THEN 'error' ELSE level END AS level,
  part, text
FROM note;

CREATE VIEW process AS
SELECT p.ts / 1e9 AS timestamp, p.id >> 40 AS trace_id, p.pid, p.ppid, p.uid, p.host, p.boot_id,
  p.rank, p.local_rank, p.world_size, p.exe, p.command, p.cwd, p.python, p.agent, p.how,
  p.start_ts / 1e9 AS start,
  -- What the process said of itself at last; else what the others' parents tell.
  CASE
    WHEN t.role IS NOT NULL THEN t.role
    WHEN EXISTS (SELECT 1 FROM trace_file c WHERE c.ppid = t.pid AND c.host = t.host AND c.role = 'worker')
      THEN 'launcher'
    WHEN EXISTS (SELECT 1 FROM trace_file c WHERE c.pid = t.ppid AND c.host = t.host) THEN 'child'
    ELSE 'main'
  END AS role, p.master
FROM process_info p JOIN trace_file t ON t.id = p.id >> 40;

CREATE VIEW config AS
SELECT ts / 1e9 AS timestamp, id >> 40 AS trace_id, key, value FROM setting;

CREATE VIEW modules_loaded AS
SELECT m.ts / 1e9 AS timestamp, m.unload_ts / 1e9 AS unloaded, t.id AS trace_id, t.pid, m.path,
  m.build_id, m.start, m."end", m.bias, m.symbols
FROM module m JOIN trace_file t ON t.id = m.id >> 40;

CREATE VIEW threads AS
SELECT h.trace AS trace_id, t.pid, t.rank, h.tid, h.name, h.ident, h.start_ts / 1e9 AS start,
  h.end_ts / 1e9 AS "end", h.samples, h.running, h.cpu_us / 1e6 AS cpu_seconds, h.id AS thread_id, h.comm
FROM thread h JOIN trace_file t ON t.id = h.trace;

-- A row per sample, with the innermost frame of its stack. outside: its thread got no signal, because it slept, or (running)
-- because it blocks the signal: then there are Python frames alone, and calls of a few us may be missing innermost.
CREATE VIEW samples AS
SELECT s.ts / 1e9 AS timestamp, t.id AS trace_id, t.pid, t.rank, h.tid, h.name AS thread,
  f.name AS func, coalesce(r.file, f.file, f.module) AS file, r.line AS lineno,
  CASE f.type WHEN 0 THEN 'Python' WHEN 1 THEN 'Native' END AS frame_type,
  CASE WHEN s.flags & 1 THEN 'running' ELSE 'idle' END AS state,
  s.flags >> 1 & 1 AS gil, s.cpu_us / 1e6 AS cpu_seconds, s.count,
  s.count * CASE WHEN t.periods < 2 THEN t.period_ns ELSE (
    SELECT p.ns FROM period p WHERE p.trace = t.id AND p.since <= s.ts ORDER BY p.since DESC LIMIT 1) END / 1e9 AS seconds,
  s.stack AS stack_id, s.id AS sample_id, s.flags >> 2 & 1 AS outside
FROM trace_file t
JOIN sample s ON s.id BETWEEN t.first_id AND t.last_id
JOIN thread h ON h.id = s.thread AND h.trace = t.id
LEFT JOIN callsite c ON c.id = s.stack
LEFT JOIN frame r ON r.id = c.frame
LEFT JOIN function f ON f.id = r.function;

-- A row per frame of each sample; depth 0 is the innermost. Functions that the compiler inlined have rows of their own where
-- debug information tells them; the interpreter's loop and the agent's own functions are left out. A sample stands for `count` ticks, `seconds` in all (ask for their
-- sums: rows are no time). In a recursion both are 0 but in the innermost row of each function, so that sums by function, and by
-- line, count a tick once. state: 'running' on a CPU, or waiting for one.
CREATE VIEW backtrace AS
SELECT s.ts / 1e9 AS timestamp, t.id AS trace_id, t.pid, h.tid, h.name AS thread, k.depth,
  f.name AS func, coalesce(r.file, f.file, f.module) AS file, r.line AS lineno,
  CASE f.type WHEN 0 THEN 'Python' ELSE 'Native' END AS frame_type, f.module, s.id AS sample_id,
  t.rank, s.stack AS stack_id, s.count * k.first AS count,
  s.count * k.first * CASE WHEN t.periods < 2 THEN t.period_ns ELSE (
    SELECT p.ns FROM period p WHERE p.trace = t.id AND p.since <= s.ts ORDER BY p.since DESC LIMIT 1) END / 1e9 AS seconds,
  CASE WHEN s.flags & 1 THEN 'running' ELSE 'idle' END AS state, s.flags >> 1 & 1 AS gil
FROM trace_file t
JOIN sample s ON s.id BETWEEN t.first_id AND t.last_id
JOIN thread h ON h.id = s.thread AND h.trace = t.id
JOIN stack_frame k ON k.stack = s.stack
JOIN frame r ON r.id = k.frame
JOIN function f ON f.id = r.function;

-- Where the time goes; what runs comes first. self = ticks with the function innermost, total = ticks with it anywhere on the
-- stack (once, however often it recurs); shares are of all ticks of all traces. seconds (self) = on_cpu + waiting: on_cpu is on
-- a CPU or waiting for one, cpu_share its share of all such time; threads that wait in a pool are in waiting.
-- python_self, python_seconds, python_on_cpu: with the function as the innermost Python one, in native code or not (NULL for
-- native functions).
CREATE VIEW hot_functions AS
WITH tick AS (
  SELECT stack, sum(count) AS count, sum(running) AS running, sum(cpu_us) AS cpu_us, sum(ns) AS ns,
    sum(running_ns) AS running_ns
  FROM stack_total GROUP BY stack
), sums AS (
  SELECT r.function AS id,
    sum(CASE WHEN k.depth = 0 THEN x.count ELSE 0 END) AS self, sum(x.count) AS total,
    sum(CASE WHEN k.depth = 0 THEN x.ns ELSE 0 END) AS self_ns, sum(x.ns) AS total_ns,
    sum(CASE WHEN k.depth = 0 THEN x.running ELSE 0 END) AS running,
    sum(CASE WHEN k.depth = 0 THEN x.running_ns ELSE 0 END) AS running_ns,
    sum(CASE WHEN k.depth = 0 THEN x.cpu_us ELSE 0 END) AS cpu_us,
    sum(x.count * k.leaf) AS leaf, sum(x.ns * k.leaf) AS leaf_ns, sum(x.running_ns * k.leaf) AS leaf_running_ns
  FROM tick x JOIN stack_frame k ON k.stack = x.stack AND k.first = 1
  JOIN frame r ON r.id = k.frame GROUP BY r.function
)
SELECT f.name AS func, coalesce(f.file, f.module) AS file, s.self, s.total,
  s.self_ns / 1e9 AS seconds, s.total_ns / 1e9 AS total_seconds,
  1.0 * s.self / (SELECT sum(count) FROM tick) AS share,
  1.0 * s.total / (SELECT sum(count) FROM tick) AS total_share,
  s.running, s.cpu_us / 1e6 AS cpu_seconds,
  CASE f.type WHEN 0 THEN 'Python' ELSE 'Native' END AS frame_type, f.firstline, f.module,
  s.running_ns / 1e9 AS on_cpu, (s.self_ns - s.running_ns) / 1e9 AS waiting,
  1.0 * s.running / (SELECT nullif(sum(running), 0) FROM tick) AS cpu_share,
  CASE f.type WHEN 0 THEN s.leaf END AS python_self,
  CASE f.type WHEN 0 THEN s.leaf_ns / 1e9 END AS python_seconds,
  CASE f.type WHEN 0 THEN s.leaf_running_ns / 1e9 END AS python_on_cpu
FROM sums s JOIN function f ON f.id = s.id
ORDER BY s.running_ns DESC, s.self DESC, s.total DESC;

CREATE VIEW memory_usage AS
SELECT m.ts / 1e9 AS timestamp, m.rss / 1e6 AS memory_mb, m.rss, m.vms, m.shared, m.data, m.swap,
  m.peak, t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN memory_sample m ON m.id BETWEEN t.first_id AND t.last_id;

-- Percent of one CPU since the row before (NULL in the first row of a trace); counters are the
-- process's own, since its start. agent_seconds is what recording itself cost.
CREATE VIEW cpu_utilization AS
SELECT timestamp,
  (d_user + d_system) / elapsed * 1e-4 AS cpu_percent,
  d_user / elapsed * 1e-4 AS user_percent, d_system / elapsed * 1e-4 AS system_percent,
  user_us / 1e6 AS user_seconds, system_us / 1e6 AS system_seconds, threads,
  voluntary AS voluntary_switches, involuntary AS involuntary_switches,
  minor_faults, major_faults, (agent_us + handler_us) / 1e6 AS agent_seconds,
  trace_id, pid, rank
FROM (
  SELECT c.*, c.ts / 1e9 AS timestamp, t.id AS trace_id, t.pid, t.rank,
    nullif(c.ts - lag(c.ts) OVER w, 0) / 1e9 AS elapsed,
    c.user_us - lag(c.user_us) OVER w AS d_user,
    c.system_us - lag(c.system_us) OVER w AS d_system
  FROM trace_file t JOIN cpu c ON c.id BETWEEN t.first_id AND t.last_id
  WINDOW w AS (PARTITION BY t.id ORDER BY c.ts)
);

-- Counters since the start of the process, and bytes per second since the row before.
CREATE VIEW io_statistics AS
SELECT i.ts / 1e9 AS timestamp, i.read_bytes, i.write_bytes, i.rchar, i.wchar, i.syscr, i.syscw,
  (i.read_bytes - lag(i.read_bytes) OVER w) / (nullif(i.ts - lag(i.ts) OVER w, 0) / 1e9) AS read_rate,
  (i.write_bytes - lag(i.write_bytes) OVER w) / (nullif(i.ts - lag(i.ts) OVER w, 0) / 1e9) AS write_rate,
  (i.rchar - lag(i.rchar) OVER w) / (nullif(i.ts - lag(i.ts) OVER w, 0) / 1e9) AS rchar_rate,
  (i.wchar - lag(i.wchar) OVER w) / (nullif(i.ts - lag(i.ts) OVER w, 0) / 1e9) AS wchar_rate,
  t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN io i ON i.id BETWEEN t.first_id AND t.last_id
WINDOW w AS (PARTITION BY t.id ORDER BY i.ts);

CREATE VIEW network_statistics AS
SELECT n.ts / 1e9 AS timestamp, n.interface, n.rx_bytes, n.tx_bytes, n.rx_packets, n.tx_packets,
  n.rx_errors, n.tx_errors,
  (n.rx_bytes - lag(n.rx_bytes) OVER w) / (nullif(n.ts - lag(n.ts) OVER w, 0) / 1e9) AS rx_rate,
  (n.tx_bytes - lag(n.tx_bytes) OVER w) / (nullif(n.ts - lag(n.ts) OVER w, 0) / 1e9) AS tx_rate,
  t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN network n ON n.id BETWEEN t.first_id AND t.last_id
WINDOW w AS (PARTITION BY t.id, n.interface ORDER BY n.ts);

-- probing.span(): duration in seconds, NULL while it was open when the recording ended.
CREATE VIEW spans AS
SELECT s.ts / 1e9 AS timestamp, s.name, (e.ts - s.ts) / 1e9 AS duration, p.name AS parent,
  (SELECT h.name FROM thread h WHERE h.trace = t.id AND h.tid = s.tid LIMIT 1) AS thread, s.tid,
  e.flags & 1 AS failed, s.id AS span_id, s.parent AS parent_id, t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN span s ON s.id BETWEEN t.first_id AND t.last_id
LEFT JOIN span_end e ON e.id = s.id
LEFT JOIN span p ON p.id = s.parent;

-- probing.event(): its values as JSON, and one by one. JSON has no infinity: 1e999 is what parsers read as one.
CREATE VIEW events AS
SELECT v.ts / 1e9 AS timestamp, v.name, v.step,
  (SELECT json_group_object(k.key, CASE k.value WHEN 1e999 THEN json('1e999') WHEN -1e999 THEN json('-1e999')
                                   ELSE k.value END) FROM event_value k WHERE k.event = v.id) AS data,
  s.name AS span, v.tid, v.id AS event_id, v.span AS span_id, t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN event v ON v.id BETWEEN t.first_id AND t.last_id
LEFT JOIN span s ON s.id = v.span;

CREATE VIEW event_values AS
SELECT v.ts / 1e9 AS timestamp, v.name AS event, k.key AS name, k.value, v.step,
  v.id AS event_id, t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN event v ON v.id BETWEEN t.first_id AND t.last_id
JOIN event_value k ON k.event = v.id;

-- PROBE_TORCH_EXPRS: a row for each value; `number` is NULL where it is a text.
CREATE VIEW variables AS
SELECT v.ts / 1e9 AS timestamp, v.step, v.func, v.name, v.value,
  CASE WHEN typeof(v.value) IN ('integer', 'real') THEN v.value END AS number,
  CASE v.at WHEN 0 THEN 'step' ELSE 'return' END AS at, t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN variable v ON v.id BETWEEN t.first_id AND t.last_id;

-- The same, a row for each step: the usual names as columns, all of them in `data` (JSON).
CREATE VIEW training_logs AS
SELECT max(timestamp) AS timestamp,
  max(CASE WHEN name IN ('epoch', 'ep', 'epoch_num', 'self.epoch', 'self.current_epoch') THEN value END) AS epoch,
  step,
  max(CASE WHEN name IN ('loss', 'train_loss', 'total_loss', 'self.loss') THEN value END) AS loss,
  max(CASE WHEN name IN ('acc', 'acc1', 'accuracy', 'top1', 'train_acc') THEN value END) AS accuracy,
  max(CASE WHEN name IN ('lr', 'learning_rate') THEN value END) AS lr,
  json_group_object(name, CASE value WHEN 1e999 THEN json('1e999') WHEN -1e999 THEN json('-1e999') ELSE value END) AS data,
  trace_id, pid, rank
FROM (SELECT trace_id, pid, rank, step, name, value, max(timestamp) AS timestamp FROM variables
      WHERE step IS NOT NULL GROUP BY trace_id, step, name) -- the latest of each
GROUP BY trace_id, step;

-- RSS and VMS per second (step NULL) and at the ends of steps (of those under some 30 ms not of all); GPU: of this process.
CREATE VIEW memory AS
SELECT m.ts / 1e9 AS timestamp, NULL AS step, m.rss / 1e6 AS rss_mb, m.vms / 1e6 AS vms_mb,
  (SELECT sum(g.process_memory) / 1e6 FROM gpu g
   WHERE g.ts BETWEEN m.ts AND m.ts + 90000000 AND g.id BETWEEN t.first_id AND t.last_id) AS gpu_mb,
  NULL AS gpu_reserved_mb, m.rss, m.vms, t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN memory_sample m ON m.id BETWEEN t.first_id AND t.last_id
UNION ALL
SELECT m.ts / 1e9, m.step, m.rss / 1e6, m.vms / 1e6, m.gpu_allocated / 1e6, m.gpu_reserved / 1e6,
  m.rss, m.vms, t.id, t.pid, t.rank
FROM trace_file t JOIN memory_step m ON m.id BETWEEN t.first_id AND t.last_id;

CREATE VIEW gpu_metrics AS
SELECT g.ts / 1e9 AS timestamp, t.rank, g.device, g.util AS gpu_util, g.memory_used / 1e6 AS memory_used_mb,
  g.memory_total / 1e6 AS memory_total_mb, g.power_mw / 1e3 AS power_w, g.temperature, g.sm_clock AS sm_clock_mhz,
  g.process_memory / 1e6 AS process_memory_mb, g.memory_util, g.name, g.uuid, t.id AS trace_id, t.pid
FROM trace_file t JOIN gpu g ON g.id BETWEEN t.first_id AND t.last_id;

-- Every collective, send and receive. enter, exit: seconds UTC; exit and what follows from it NULL: never seen to complete
-- (waited: for how long it was seen). completion 'call': the end is the call's return, the work may have gone on; 'raised': the
-- call raised an exception (gloo lacks some operations).
CREATE VIEW comm_metrics AS
SELECT c.ts / 1e9 AS timestamp, coalesce(t.rank, o.rank, g.rank) AS rank,
  coalesce(g.name, 'group ' || c.pg) AS "group", c.seq, c.op, c.bytes, c.dtype, c.ts / 1e9 AS enter,
  CASE WHEN c.flags & 1 THEN NULL ELSE (c.ts + c.duration) / 1e9 END AS exit,
  CASE WHEN c.flags & 1 THEN NULL ELSE c.duration / 1e9 END AS duration,
  CASE WHEN c.flags & 1 THEN NULL ELSE c.duration / 1e6 END AS latency_ms,
  coalesce(s.rank, c.src, CASE WHEN c.op = 'send' THEN g.rank END) AS src_rank,
  coalesce(d.rank, c.dst, CASE WHEN c.op = 'recv' THEN g.rank END) AS dst_rank,
  c.host / 1e6 AS host_ms, NOT c.flags & 1 AS complete,
  CASE WHEN c.flags & 1 THEN 'none' WHEN c.flags & 4 THEN 'raised' WHEN c.flags & 2 THEN 'call' ELSE 'seen' END AS completion,
  c.duration / 1e9 AS waited, g.backend, g.size AS group_size, t.id AS trace_id, t.pid, c.tid
FROM trace_file t JOIN comm c ON c.id BETWEEN t.first_id AND t.last_id
LEFT JOIN process_group g ON g.trace = t.id AND g.pg = c.pg
LEFT JOIN group_rank o ON o.trace = t.id AND o.pg = c.pg AND o.idx = g.rank
LEFT JOIN group_rank s ON s.trace = t.id AND s.pg = c.pg AND s.idx = c.src
LEFT JOIN group_rank d ON d.trace = t.id AND d.pg = c.pg AND d.idx = c.dst;

-- A row per collective over all ranks that came to it (sends and receives, and calls that raised, left out). skew_ms: from the first to the last
-- arrival; last_rank: who the others waited for, by the clocks; shortest_rank: by the shortest duration, which no clock can
-- falsify. Where complete < arrived somebody waited in vain: missing says for whom.
CREATE VIEW collectives AS
SELECT "group", seq, op, arrived, size, complete, first_enter, last_enter, exit,
  (last_enter - first_enter) * 1e3 AS skew_ms, last_rank, shortest_rank, shortest_ms, longest_ms, bytes, dtype,
  CASE WHEN arrived < size THEN
    (SELECT group_concat(rank) FROM (SELECT DISTINCT r.rank FROM process_group g
     JOIN group_rank r ON r.trace = g.trace AND r.pg = g.pg WHERE g.name = "group" ORDER BY r.rank)
     WHERE instr(came, ',' || rank || ',') = 0) END AS missing
FROM (
  SELECT "group", seq, op, count(DISTINCT rank) AS arrived, max(group_size) AS size, sum(complete) AS complete,
    min(enter) AS first_enter, max(enter) AS last_enter, max(exit) AS exit,
    max(CASE WHEN nth_last = 1 THEN rank END) AS last_rank,
    max(CASE WHEN nth_short = 1 AND complete THEN rank END) AS shortest_rank,
    min(latency_ms) AS shortest_ms, max(latency_ms) AS longest_ms, sum(bytes) AS bytes, max(dtype) AS dtype,
    ',' || group_concat(DISTINCT rank) || ',' AS came
  FROM (SELECT *, row_number() OVER (PARTITION BY "group", seq, op ORDER BY enter DESC) AS nth_last,
          row_number() OVER (PARTITION BY "group", seq, op ORDER BY complete DESC, duration) AS nth_short
        FROM comm_metrics WHERE op NOT IN ('send', 'recv') AND completion <> 'raised')
  GROUP BY "group", seq, op
);

-- Who slows the others: how often a rank came last, and for how long the first one waited then.
CREATE VIEW stragglers AS
SELECT rank, count(*) AS collectives, sum(last) AS came_last, 1.0 * sum(last) / count(*) AS share,
  sum(shortest) AS was_shortest, sum(CASE WHEN last THEN skew END) AS imposed_seconds,
  sum(first_end - enter) AS waited_seconds
FROM (
  SELECT rank, enter, row_number() OVER (w ORDER BY enter DESC) = 1 AS last,
    row_number() OVER (w ORDER BY duration) = 1 AS shortest,
    max(enter) OVER w - min(enter) OVER w AS skew, max(enter) OVER w AS first_end, count(*) OVER w AS n
  FROM comm_metrics WHERE op NOT IN ('send', 'recv') AND complete AND completion <> 'raised'
  WINDOW w AS (PARTITION BY "group", seq, op)
) WHERE n > 1 GROUP BY rank ORDER BY imposed_seconds DESC;

-- What happened. stacks: how many threads' stacks were taken then (view trigger_stacks). kind 'killed': nobody in the process
-- could say a word (SIGKILL: the kernel, out of memory; a scheduler); its timestamp is the last moment recorded, no stacks.
CREATE VIEW triggers AS
SELECT e.ts / 1e9 AS timestamp, t.rank, e.kind, e.detail, e.step, e.tid,
  (SELECT name FROM thread h WHERE h.trace = t.id AND h.tid = e.tid ORDER BY h.start_ts DESC LIMIT 1) AS thread,
  (SELECT count(*) FROM sample s WHERE s.ts = e.tick AND s.count = 0
   AND s.id BETWEEN t.first_id AND t.last_id) AS stacks,
  e.text, e.id AS trigger_id, t.id AS trace_id, t.pid
FROM trace_file t JOIN trigger_event e ON e.id BETWEEN t.first_id AND t.last_id
UNION ALL
SELECT t.end_ts / 1e9, t.rank, 'killed',
  CASE WHEN t.signal THEN 'by signal ' || t.signal ELSE 'by a signal that is not known' END ||
    CASE t.signal WHEN 9 THEN ' (SIGKILL)' WHEN 15 THEN ' (SIGTERM)' WHEN 2 THEN ' (SIGINT)' WHEN 1 THEN ' (SIGHUP)' ELSE '' END,
  NULL, NULL, NULL, 0, NULL, NULL, t.id, t.pid
FROM trace_file t
WHERE t.end_reason = 'killed' AND NOT EXISTS (
  SELECT 1 FROM trigger_event e WHERE e.id BETWEEN t.first_id AND t.last_id
  AND (e.kind = 'fatal' OR e.kind = 'term' AND e.ts > t.end_ts - 1000000000));

-- The stacks of all threads at a trigger, a row per frame; depth 0 is the innermost.
CREATE VIEW trigger_stacks AS
SELECT e.id AS trigger_id, e.kind, t.rank, h.tid, h.name AS thread, h.tid = e.tid AS is_cause, k.depth,
  f.name AS func, coalesce(r.file, f.file, f.module) AS file, r.line AS lineno,
  CASE f.type WHEN 0 THEN 'Python' ELSE 'Native' END AS frame_type,
  CASE WHEN s.flags & 1 THEN 'running' ELSE 'idle' END AS state, s.flags >> 1 & 1 AS gil,
  s.stack AS stack_id, t.id AS trace_id, t.pid
FROM trace_file t
JOIN trigger_event e ON e.id BETWEEN t.first_id AND t.last_id
JOIN sample s ON s.ts = e.tick AND s.count = 0 AND s.id BETWEEN t.first_id AND t.last_id
JOIN thread h ON h.id = s.thread
LEFT JOIN stack_frame k ON k.stack = s.stack
LEFT JOIN frame r ON r.id = k.frame
LEFT JOIN function f ON f.id = r.function;

-- Every call of a module, forward and backward, and every step, or evaluation between steps (then `step` is NULL and `phase`
-- 'evaluation'; else 'step'). parent: the module's that it lies in. allocated, max_allocated, cached: MB
-- of GPU memory in torch's allocator at its end (torch.cuda.memory_allocated, max_memory_allocated, memory_reserved), cuda_duration: seconds
-- of the GPU's own, of its current stream; both of the calls that were chosen and of every step. NULL: not chosen, no GPU;
-- memory: of a backward, too. A backward has the `call` of its forward: join by pid, call_tid and call.
CREATE VIEW torch_trace AS
SELECT c.ts / 1e9 AS timestamp, c.step, c.seq, m.name AS module,
  CASE c.stage WHEN 0 THEN 'forward' ELSE 'backward' END AS stage,
  k.allocated / 1e6 AS allocated, k.max_allocated / 1e6 AS max_allocated, k.reserved / 1e6 AS cached,
  c.duration / 1e9 AS duration,
  q.name AS parent, c.depth, h.name AS thread, t.rank, m.type, c.flags >> 1 & 1 AS recomputed,
  c.flags & 1 AS failed, c.call, h.tid, t.pid, t.id AS trace_id, c.id AS row_id, c.parent AS parent_id,
  g.duration / 1e9 AS cuda_duration, coalesce(g.device, k.device) AS device, coalesce(c.call_tid, h.tid) AS call_tid,
  CASE WHEN c.flags & 4 THEN 'evaluation' ELSE 'step' END AS phase
FROM trace_file t
JOIN torch_call c ON c.id BETWEEN t.first_id AND t.last_id
JOIN torch_module m ON m.id = c.module
LEFT JOIN thread h ON h.id = c.thread
LEFT JOIN torch_call p ON p.id = c.parent
LEFT JOIN torch_module q ON q.id = p.module
LEFT JOIN torch_cuda g ON g.thread = c.thread AND g.call = c.call AND g.stage = c.stage AND g.ts = c.ts
LEFT JOIN torch_memory k ON k.thread = c.thread AND k.call = c.call AND k.stage = c.stage AND k.ts = c.ts
WHERE c.stage < 2
UNION ALL
SELECT s.ts / 1e9, CASE WHEN s.source < 3 THEN s.number END, NULL, NULL, CASE WHEN s.source < 3 THEN 'step' ELSE 'evaluation' END, k.allocated / 1e6, k.max_allocated / 1e6, k.reserved / 1e6,
  s.duration / 1e9, NULL, 0, NULL, t.rank, NULL, 0, 0, NULL, NULL, t.pid, t.id, NULL, NULL, g.duration / 1e9,
  coalesce(g.device, k.device), NULL, CASE WHEN s.source < 3 THEN 'step' ELSE 'evaluation' END
FROM trace_file t JOIN torch_step s ON s.id BETWEEN t.first_id AND t.last_id
LEFT JOIN torch_cuda g ON g.thread = t.id << 40 AND g.call = s.number AND g.stage = 5 AND g.ts = s.told
LEFT JOIN torch_memory k ON k.thread = t.id << 40 AND k.call = s.number AND k.stage = 5 AND k.ts = s.told;

-- Where a step's time went, in seconds. The parts exclude each other and with `other` make the duration; communication
-- (of all threads, from comm_metrics) may lie within them. complete 0: the recording ended before the step. Step N is the
-- optimizer's N-th, from 0 on. source 'evaluation': what was evaluated between steps, it has no number and belongs to none.
CREATE VIEW steps AS
SELECT CASE WHEN s.source < 3 THEN s.number END AS step, s.ts / 1e9 AS timestamp, s.duration / 1e9 AS duration, s.forward / 1e9 AS forward,
  s.backward / 1e9 AS backward, s.optimizer / 1e9 AS optimizer, s.data / 1e9 AS data,
  (SELECT coalesce(sum(k.duration), 0) FROM comm k WHERE +k.id BETWEEN t.first_id AND t.last_id
    AND k.ts >= s.ts AND k.ts < s.ts + s.duration) / 1e9 AS communication,
  (s.duration - s.forward - s.backward - s.optimizer - s.data) / 1e9 AS other,
  s.forwards, s.backwards, s.optimizers,
  CASE s.source WHEN 0 THEN 'optimizer' WHEN 1 THEN 'root' WHEN 2 THEN 'mark' ELSE 'evaluation' END AS source,
  s.duration IS NOT NULL AS complete, t.rank, t.id AS trace_id, t.pid,
  (s.ts + s.duration) / 1e9 AS "end"
FROM trace_file t JOIN torch_step s ON s.id BETWEEN t.first_id AND t.last_id;

-- Modules, by what they cost: self is the time not spent in modules within. cuda_mean: seconds of the GPU, of cuda_calls calls.
CREATE VIEW torch_modules AS
WITH inner AS (
  SELECT parent AS id, sum(duration) AS ns FROM torch_call WHERE stage < 2 AND parent IS NOT NULL GROUP BY parent
)
SELECT m.name AS module, CASE c.stage WHEN 0 THEN 'forward' ELSE 'backward' END AS stage, count(*) AS calls,
  sum(c.duration) / 1e9 AS seconds, sum(c.duration - coalesce(i.ns, 0)) / 1e9 AS self_seconds,
  avg(c.duration) / 1e9 AS mean, max(c.duration) / 1e9 AS longest, m.type, t.rank, t.id AS trace_id, t.pid,
  count(g.duration) AS cuda_calls, avg(g.duration) / 1e9 AS cuda_mean
FROM trace_file t JOIN torch_call c ON c.id BETWEEN t.first_id AND t.last_id
JOIN torch_module m ON m.id = c.module LEFT JOIN inner i ON i.id = c.id
LEFT JOIN torch_cuda g ON g.thread = c.thread AND g.call = c.call AND g.stage = c.stage AND g.ts = c.ts
WHERE c.stage < 2 GROUP BY t.id, m.name, m.type, c.stage;

------------------------------------------------------------------------------ indexes
-- Built when all rows are there. What comes after the next line is run last.
--@ after load

-- One run over several nodes has a first process on each: the launcher's job makes them one.
CREATE TABLE job_of_run AS SELECT run, min(job) AS job FROM trace_file WHERE job IS NOT NULL GROUP BY run;
UPDATE trace_file SET run = (SELECT j.job FROM job_of_run j WHERE j.run = trace_file.run)
WHERE run IN (SELECT run FROM job_of_run);
DROP TABLE job_of_run;

CREATE INDEX event_value_event ON event_value(event);
CREATE INDEX thread_tid ON thread(trace, tid);
CREATE INDEX stack_total_stack ON stack_total(stack);
CREATE INDEX torch_call_module ON torch_call(module);
CREATE INDEX period_trace ON period(trace, since);
CREATE INDEX gpu_ts ON gpu(ts);
CREATE INDEX comm_ts ON comm(ts);
CREATE INDEX frame_function ON frame(function);
PRAGMA analysis_limit = 1000;
ANALYZE main;
