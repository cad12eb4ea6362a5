-- SPDX-License-Identifier: Apache-2.0
-- The database that probing-convert writes: what it holds and how it is read.
--
-- Ask the VIEWS: their names and columns are stable, `timestamp` is REAL seconds since the epoch
-- (UTC) and ids are resolved to names. The TABLES under them may change between versions; times
-- there are INTEGER nanoseconds since the epoch (UTC), column `ts`.
--
-- Ids: the rows of each trace are numbered trace << 40 | n, so that traces of any number of
-- processes lie in one database. Functions, frames and stacks are shared by all of them.
-- Plain SQLite, 3.37 or later, no extension needed.

------------------------------------------------------------------------------ tables: traces

-- One row per input file. `id` counts from 1.
CREATE TABLE trace_file(
  id INTEGER PRIMARY KEY,
  file TEXT NOT NULL,        -- as given; '-' for stdin
  host TEXT, boot_id TEXT,
  pid INTEGER, ppid INTEGER, uid INTEGER,
  rank INTEGER, local_rank INTEGER, world_size INTEGER, -- NULL: not known
  exe TEXT, command TEXT, cwd TEXT, python TEXT, agent TEXT, how TEXT,
  process_ts INTEGER,        -- start of the process
  start_ts INTEGER, end_ts INTEGER, -- first and last time recorded
  end_reason TEXT,           -- why it ended; NULL: it did not, the file just stops
  complete INTEGER NOT NULL, -- 1: ended cleanly and every block is there
  bytes INTEGER NOT NULL, blocks INTEGER NOT NULL, records INTEGER NOT NULL,
  lost INTEGER NOT NULL,     -- records known to be lost, all reasons (table lost)
  clock TEXT NOT NULL,       -- 'anchors' or 'none' (then times are CLOCK_MONOTONIC)
  clock_anchors INTEGER NOT NULL,
  clock_uncertainty_ns INTEGER, -- of the offset between the clocks
  period_ns INTEGER,         -- the sampling period at the end
  first_id INTEGER NOT NULL, last_id INTEGER NOT NULL, -- range of this trace's row ids
  role TEXT, master TEXT     -- launcher, worker or dataloader; MASTER_ADDR:MASTER_PORT; NULL: not known
);

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

-- A thread from when it was seen until it was gone; a tid used again is another row.
CREATE TABLE thread(
  id INTEGER PRIMARY KEY, trace INTEGER NOT NULL, tid INTEGER NOT NULL, name TEXT, ident INTEGER,
  start_ts INTEGER, end_ts INTEGER, -- NULL: not seen to start or to end
  samples INTEGER NOT NULL, running INTEGER NOT NULL, cpu_us INTEGER NOT NULL
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
CREATE TABLE stack_frame(
  stack INTEGER NOT NULL, depth INTEGER NOT NULL, frame INTEGER NOT NULL, first INTEGER NOT NULL,
  PRIMARY KEY(stack, depth)
) WITHOUT ROWID;
-- The samples of each trace added up by stack.
CREATE TABLE stack_total(
  trace INTEGER NOT NULL, stack INTEGER, -- NULL: not known
  samples INTEGER NOT NULL, count INTEGER NOT NULL, running INTEGER NOT NULL,
  cpu_us INTEGER NOT NULL, ns INTEGER NOT NULL
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
  flags INTEGER NOT NULL   -- 1 was on a CPU, 2 held the GIL, 4 read from outside
);
-- On the views' own expression, so that WHERE timestamp BETWEEN ... finds its rows. Before the
-- load, unlike the others: the rows come in the order of their times, and adding at the end of an
-- index costs less than sorting it all later.
CREATE INDEX sample_timestamp ON sample(ts / 1e9);

CREATE TABLE memory(
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

------------------------------------------------------------------------------ views

-- The files, and how far each can be trusted.
CREATE VIEW trace AS
SELECT id, file, host, boot_id, pid, ppid, rank, local_rank, world_size, command, exe, python,
  start_ts / 1e9 AS start, end_ts / 1e9 AS "end", records, lost, clock, complete,
  end_reason, (end_ts - start_ts) / 1e9 AS duration, period_ns / 1e9 AS period,
  clock_uncertainty_ns / 1e9 AS clock_uncertainty, bytes, blocks, cwd, uid, agent, how,
  process_ts / 1e9 AS process_start, role, master
FROM trace_file;

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
  h.end_ts / 1e9 AS "end", h.samples, h.running, h.cpu_us / 1e6 AS cpu_seconds, h.id AS thread_id
FROM thread h JOIN trace_file t ON t.id = h.trace;

-- A row per sample, with the innermost frame of its stack.
CREATE VIEW samples AS
SELECT s.ts / 1e9 AS timestamp, t.id AS trace_id, t.pid, t.rank, h.tid, h.name AS thread,
  f.name AS func, coalesce(r.file, f.file, f.module) AS file, r.line AS lineno,
  CASE f.type WHEN 0 THEN 'Python' WHEN 1 THEN 'Native' END AS frame_type,
  CASE WHEN s.flags & 1 THEN 'running' ELSE 'idle' END AS state,
  s.flags >> 1 & 1 AS gil, s.cpu_us / 1e6 AS cpu_seconds, s.count,
  s.count * (SELECT p.ns FROM period p WHERE p.trace = t.id AND p.since <= s.ts
             ORDER BY p.since DESC LIMIT 1) / 1e9 AS seconds,
  s.stack AS stack_id, s.id AS sample_id
FROM trace_file t
JOIN sample s ON s.id BETWEEN t.first_id AND t.last_id
JOIN thread h ON h.id = s.thread AND h.trace = t.id
LEFT JOIN callsite c ON c.id = s.stack
LEFT JOIN frame r ON r.id = c.frame
LEFT JOIN function f ON f.id = r.function;

-- A row per frame of each sample; depth 0 is the innermost.
CREATE VIEW backtrace AS
SELECT s.ts / 1e9 AS timestamp, t.id AS trace_id, t.pid, h.tid, h.name AS thread, k.depth,
  f.name AS func, coalesce(r.file, f.file, f.module) AS file, r.line AS lineno,
  CASE f.type WHEN 0 THEN 'Python' ELSE 'Native' END AS frame_type, f.module, s.id AS sample_id,
  t.rank, s.stack AS stack_id
FROM trace_file t
JOIN sample s ON s.id BETWEEN t.first_id AND t.last_id
JOIN thread h ON h.id = s.thread AND h.trace = t.id
JOIN stack_frame k ON k.stack = s.stack
JOIN frame r ON r.id = k.frame
JOIN function f ON f.id = r.function;

-- Where the time goes: self = ticks with the function innermost, total = ticks with it anywhere on
-- the stack (once, however often it recurs); shares are of all ticks of all traces.
CREATE VIEW hot_functions AS
WITH tick AS (
  SELECT stack, sum(count) AS count, sum(running) AS running, sum(cpu_us) AS cpu_us, sum(ns) AS ns
  FROM stack_total GROUP BY stack
), sums AS (
  SELECT r.function AS id,
    sum(CASE WHEN k.depth = 0 THEN x.count ELSE 0 END) AS self, sum(x.count) AS total,
    sum(CASE WHEN k.depth = 0 THEN x.ns ELSE 0 END) AS self_ns, sum(x.ns) AS total_ns,
    sum(CASE WHEN k.depth = 0 THEN x.running ELSE 0 END) AS running,
    sum(CASE WHEN k.depth = 0 THEN x.cpu_us ELSE 0 END) AS cpu_us
  FROM tick x JOIN stack_frame k ON k.stack = x.stack AND k.first = 1
  JOIN frame r ON r.id = k.frame GROUP BY r.function
)
SELECT f.name AS func, coalesce(f.file, f.module) AS file, s.self, s.total,
  s.self_ns / 1e9 AS seconds, s.total_ns / 1e9 AS total_seconds,
  1.0 * s.self / (SELECT sum(count) FROM tick) AS share,
  1.0 * s.total / (SELECT sum(count) FROM tick) AS total_share,
  s.running, s.cpu_us / 1e6 AS cpu_seconds,
  CASE f.type WHEN 0 THEN 'Python' ELSE 'Native' END AS frame_type, f.firstline, f.module
FROM sums s JOIN function f ON f.id = s.id
ORDER BY s.self DESC, s.total DESC;

CREATE VIEW memory_usage AS
SELECT m.ts / 1e9 AS timestamp, m.rss / 1e6 AS memory_mb, m.rss, m.vms, m.shared, m.data, m.swap,
  m.peak, t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN memory m ON m.id BETWEEN t.first_id AND t.last_id;

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

-- probing.event(): its values as JSON, and one by one.
CREATE VIEW events AS
SELECT v.ts / 1e9 AS timestamp, v.name, v.step,
  (SELECT json_group_object(k.key, k.value) FROM event_value k WHERE k.event = v.id) AS data,
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
  json_group_object(name, value) AS data, trace_id, pid, rank
FROM variables GROUP BY trace_id, step;

------------------------------------------------------------------------------ indexes
-- Built when all rows are there. What comes after the next line is run last.
--@ after load

CREATE INDEX event_value_event ON event_value(event);
CREATE INDEX thread_tid ON thread(trace, tid);
CREATE INDEX stack_total_stack ON stack_total(stack);
CREATE INDEX period_trace ON period(trace, since);
CREATE INDEX frame_function ON frame(function);
PRAGMA analysis_limit = 1000;
ANALYZE;
