-- SPDX-License-Identifier: Apache-2.0
-- Every call of a module, forward and backward. A call between steps has `step` NULL and `phase` 'evaluation', others have 'step'. parent: name of the module whose call encloses it.
-- allocated, max_allocated, cached: MB of GPU memory in torch's allocator at the end of the call (torch.cuda.memory_allocated, max_memory_allocated, memory_reserved), cuda_duration: seconds
-- of GPU time in its current stream. Both are measured for the calls that were chosen (for every step: view steps). NULL: not chosen, or no GPU;
-- memory is NULL for every backward call too. A backward has the `call` of its forward: join by pid, call_tid and call.
CREATE VIEW torch_trace AS
SELECT c.ts / 1e9 AS timestamp, c.step, c.seq, m.name AS module,
  CASE c.stage WHEN 0 THEN 'forward' ELSE 'backward' END AS stage,
  -- subqueries run only when their column is asked for; joins made sums over all calls take twice as long
  (SELECT k.allocated / 1e6 FROM torch_memory k
   WHERE k.thread = t.first_id + c.thread AND k.call = c.call AND k.stage = c.stage AND k.ts = c.ts) AS allocated,
  (SELECT k.max_allocated / 1e6 FROM torch_memory k
   WHERE k.thread = t.first_id + c.thread AND k.call = c.call AND k.stage = c.stage AND k.ts = c.ts) AS max_allocated,
  (SELECT k.reserved / 1e6 FROM torch_memory k
   WHERE k.thread = t.first_id + c.thread AND k.call = c.call AND k.stage = c.stage AND k.ts = c.ts) AS cached,
  c.duration / 1e9 AS duration,
  (SELECT q.name FROM torch_call p CROSS JOIN torch_module q ON q.id = t.first_id + p.module WHERE p.id = c.id - c.parent) AS parent,
  c.depth, (SELECT h.name FROM thread h WHERE h.id = t.first_id + c.thread) AS thread, t.rank, m.type, c.flags >> 1 & 1 AS recomputed,
  c.flags & 1 AS failed, c.call,
  (SELECT h.tid FROM thread h WHERE h.id = t.first_id + c.thread) AS tid, t.pid, t.id AS trace_id, c.id AS row_id, c.id - c.parent AS parent_id,
  (SELECT g.duration / 1e9 FROM torch_cuda g
   WHERE g.thread = t.first_id + c.thread AND g.call = c.call AND g.stage = c.stage AND g.ts = c.ts) AS cuda_duration,
  coalesce((SELECT g.device FROM torch_cuda g
      WHERE g.thread = t.first_id + c.thread AND g.call = c.call AND g.stage = c.stage AND g.ts = c.ts),
    (SELECT k.device FROM torch_memory k
      WHERE k.thread = t.first_id + c.thread AND k.call = c.call AND k.stage = c.stage AND k.ts = c.ts)) AS device,
  coalesce(c.call_tid, (SELECT h.tid FROM thread h WHERE h.id = t.first_id + c.thread)) AS call_tid,
  CASE WHEN c.flags & 4 THEN 'evaluation' ELSE 'step' END AS phase
FROM trace_file t
JOIN torch_call c ON c.id BETWEEN t.first_id AND t.last_id
JOIN torch_module m ON m.id = t.first_id + c.module
WHERE c.stage < 2;

-- Where the time of a step went, in seconds. The parts exclude each other, and together with `other` make up the duration; communication (of all threads, from
-- comm_metrics) may overlap them. complete 0: the recording ended before the step. Step N is the optimizer's N-th, counted from 0. source 'evaluation':
-- evaluation between steps, which has no number and belongs to no step. cuda_duration, allocated and the other GPU columns: as in torch_trace, for the whole
-- step, at its end.
CREATE VIEW steps AS
SELECT CASE WHEN s.source < 3 THEN s.number END AS step, s.ts / 1e9 AS timestamp, s.duration / 1e9 AS duration, s.forward / 1e9 AS forward,
  s.backward / 1e9 AS backward, s.optimizer / 1e9 AS optimizer, s.data / 1e9 AS data,
  ((SELECT coalesce(sum(k.duration), 0) FROM comm k WHERE k.id >> 40 = +t.id -- + makes SQLite use the index: t.id has an affinity
    AND k.ts >= s.ts AND k.ts < s.ts + s.duration)
    + CASE WHEN t.program IS NULL THEN 0 ELSE ( -- a step that goes on in another file (rotation) has its row in the file in which it ended
      SELECT coalesce(sum(k.duration), 0) FROM trace_file o CROSS JOIN comm k ON k.id >> 40 = +o.id AND k.ts >= s.ts AND k.ts < s.ts + s.duration
      WHERE o.program = t.program AND o.id <> t.id AND o.end_ts >= s.ts AND o.start_ts <= s.ts + s.duration) END) / 1e9 AS communication,
  (s.duration - s.forward - s.backward - s.optimizer - s.data) / 1e9 AS other,
  s.forwards, s.backwards, s.optimizers,
  CASE s.source WHEN 0 THEN 'optimizer' WHEN 1 THEN 'root' WHEN 2 THEN 'mark' ELSE 'evaluation' END AS source,
  s.duration IS NOT NULL AS complete, t.rank, t.id AS trace_id, t.pid,
  (s.ts + s.duration) / 1e9 AS "end",
  -- looked up where it is asked, as in torch_trace
  (SELECT g.duration / 1e9 FROM torch_cuda g WHERE g.thread = t.id << 40 AND g.call = s.number AND g.stage = 5 AND g.ts = s.told) AS cuda_duration,
  (SELECT k.allocated / 1e6 FROM torch_memory k WHERE k.thread = t.id << 40 AND k.call = s.number AND k.stage = 5 AND k.ts = s.told) AS allocated,
  (SELECT k.max_allocated / 1e6 FROM torch_memory k WHERE k.thread = t.id << 40 AND k.call = s.number AND k.stage = 5 AND k.ts = s.told) AS max_allocated,
  (SELECT k.reserved / 1e6 FROM torch_memory k WHERE k.thread = t.id << 40 AND k.call = s.number AND k.stage = 5 AND k.ts = s.told) AS cached,
  coalesce((SELECT g.device FROM torch_cuda g WHERE g.thread = t.id << 40 AND g.call = s.number AND g.stage = 5 AND g.ts = s.told),
    (SELECT k.device FROM torch_memory k WHERE k.thread = t.id << 40 AND k.call = s.number AND k.stage = 5 AND k.ts = s.told)) AS device
FROM trace_file t JOIN torch_step s ON s.id BETWEEN t.first_id AND t.last_id;

-- Modules by their cost. self: the time not spent in modules inside. cuda_mean: seconds of GPU time, averaged over cuda_calls calls.
CREATE VIEW torch_modules AS
SELECT m.name AS module, CASE c.stage WHEN 0 THEN 'forward' ELSE 'backward' END AS stage, sum(c.calls) AS calls,
  CASE WHEN sum(c.timed) THEN sum(c.ns) / 1e9 END AS seconds, CASE WHEN sum(c.timed) THEN sum(c.self_ns) / 1e9 END AS self_seconds,
  1.0 * sum(c.ns) / nullif(sum(c.timed), 0) / 1e9 AS mean, max(CASE WHEN c.timed THEN c.longest END) / 1e9 AS longest, m.type, t.rank,
  coalesce(t.program, t.id) AS trace_id, t.pid, sum(c.cuda_calls) AS cuda_calls, 1.0 * sum(c.cuda_ns) / nullif(sum(c.cuda_calls), 0) / 1e9 AS cuda_mean
FROM trace_file t CROSS JOIN torch_module_total c ON c.trace = t.id CROSS JOIN torch_module m ON m.id = c.module
GROUP BY coalesce(t.program, t.id), m.name, m.type, c.stage;
