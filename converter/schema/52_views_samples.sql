-- SPDX-License-Identifier: Apache-2.0
-- A row for each sample, with the innermost frame of its stack. outside: the thread got no signal, because it slept or (when running) because it blocks the
-- signal or, being new, may block it (it waited for a processor each time it was looked at). Such a stack has Python frames only, and its innermost calls, if
-- they take just a few us, may be missing.
CREATE VIEW samples AS
SELECT s.ts / 1e9 AS timestamp, t.id AS trace_id, t.pid, t.rank, h.tid, h.name AS thread,
  k.name AS func, k.file, k.line AS lineno,
  CASE k.type WHEN 0 THEN 'Python' WHEN 1 THEN 'Native' END AS frame_type,
  CASE WHEN s.flags & 1 THEN 'running' ELSE 'idle' END AS state,
  s.flags >> 1 & 1 AS gil, s.cpu_us / 1e6 AS cpu_seconds, s.count,
  s.count * CASE WHEN t.periods < 2 THEN t.period_ns ELSE (
    SELECT p.ns FROM period p WHERE p.trace = t.id AND p.since <= s.ts ORDER BY p.since DESC LIMIT 1) END / 1e9 AS seconds,
  s.stack AS stack_id, s.id AS sample_id, s.flags >> 2 & 1 AS outside
FROM trace_file t
CROSS JOIN sample s ON s.id BETWEEN t.first_id AND t.last_id
CROSS JOIN thread h ON h.id = t.first_id + s.thread
-- SQLite executes this join for sums over columns even when they do not need it, which takes half the time of a count. Measured with a subquery for each of its
-- columns instead: a count takes half the time, sums by func take the same, by three of the columns 1.3 times, SELECT * 1.4 and WHERE func 4 times as long.
LEFT JOIN stack k ON k.id = s.stack;

-- The frames of each stack (table stack); depth 0 is the innermost. first: 1 at the innermost frame of each function, 0 where the function occurs again. leaf:
-- 1 at the innermost Python frame of the stack, else 0.
CREATE VIEW stack_frame AS
SELECT k.id AS stack, e.key + 16 * p.key - (p.key > 0) * (-k.depth & 15) AS depth, abs(e.value) AS frame, e.value > 0 AS first,
  e.key + 16 * p.key - (p.key > 0) * (-k.depth & 15) IS k.leaf AS leaf
FROM stack k CROSS JOIN json_each(k.parts) p CROSS JOIN part q ON q.id = p.value CROSS JOIN json_each(q.frames) e;

-- A row for each frame of each sample; depth 0 is the innermost. Functions that the compiler inlined have rows of their own if debug information tells them;
-- the interpreter's loop and the agent's own functions are left out. A sample stands for `count` ticks, in all `seconds` of time (sum these columns up: the
-- number of rows does not tell time). In a recursion both are 0 except in the innermost row of each function, so that sums by function, and by line, count a
-- tick once. state: 'running' on a CPU, or waiting for one.
CREATE VIEW backtrace AS
SELECT s.ts / 1e9 AS timestamp, t.id AS trace_id, t.pid, h.tid, h.name AS thread,
  e.key + 16 * p.key - (p.key > 0) * (-k.depth & 15) AS depth, -- as in stack_frame
  r.name AS func, coalesce(r.file, r.module) AS file, r.line AS lineno,
  CASE r.type WHEN 0 THEN 'Python' ELSE 'Native' END AS frame_type, r.module, s.id AS sample_id,
  t.rank, s.stack AS stack_id, s.count * (e.value > 0) AS count,
  s.count * (e.value > 0) * CASE WHEN t.periods < 2 THEN t.period_ns ELSE (
    SELECT p.ns FROM period p WHERE p.trace = t.id AND p.since <= s.ts ORDER BY p.since DESC LIMIT 1) END / 1e9 AS seconds,
  CASE WHEN s.flags & 1 THEN 'running' ELSE 'idle' END AS state, s.flags >> 1 & 1 AS gil
FROM trace_file t
CROSS JOIN sample s ON s.id BETWEEN t.first_id AND t.last_id
CROSS JOIN thread h ON h.id = t.first_id + s.thread
CROSS JOIN stack k ON k.id = s.stack
CROSS JOIN json_each(k.parts) p
CROSS JOIN part q ON q.id = p.value
CROSS JOIN json_each(q.frames) e
CROSS JOIN frame r ON r.id = abs(e.value);

-- Where the time goes; functions that use the CPU come first. self = ticks with the function innermost, total = ticks with it anywhere on the stack (once,
-- however often it occurs in it). Shares are of all ticks of all traces, including ticks without a frame, which have no row here. seconds (of self) = on_cpu +
-- waiting: on_cpu is the time on a CPU or waiting for one, cpu_share its share of all such time; threads that wait in a pool are in waiting. python_self,
-- python_seconds, python_on_cpu: with the function as the innermost Python function, whether or not it has called native code (NULL for native functions).
CREATE VIEW hot_functions AS
SELECT f.name AS func, coalesce(f.file, f.module) AS file, s.self, s.total,
  s.self_ns / 1e9 AS seconds, s.total_ns / 1e9 AS total_seconds,
  1.0 * s.self / (SELECT sum(samples) FROM thread) AS share,
  1.0 * s.total / (SELECT sum(samples) FROM thread) AS total_share,
  s.running, s.cpu_us / 1e6 AS cpu_seconds,
  CASE f.type WHEN 0 THEN 'Python' ELSE 'Native' END AS frame_type, f.firstline, f.module,
  s.running_ns / 1e9 AS on_cpu, (s.self_ns - s.running_ns) / 1e9 AS waiting,
  1.0 * s.running / (SELECT nullif(sum(running), 0) FROM thread) AS cpu_share,
  CASE f.type WHEN 0 THEN s.leaf END AS python_self,
  CASE f.type WHEN 0 THEN s.leaf_ns / 1e9 END AS python_seconds,
  CASE f.type WHEN 0 THEN s.leaf_running_ns / 1e9 END AS python_on_cpu
FROM function_total s CROSS JOIN function f ON f.id = s.function
WHERE s.trace = (SELECT min(trace) FROM function_total) -- 0, or the only trace
ORDER BY s.running_ns DESC, s.self DESC, s.total DESC;
