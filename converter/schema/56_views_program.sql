-- SPDX-License-Identifier: Apache-2.0
-- Spans of probing.span(). duration: in seconds, NULL for a span that was open when the recording ended.
CREATE VIEW spans AS
SELECT s.ts / 1e9 AS timestamp, s.name, (e.ts - s.ts) / 1e9 AS duration, p.name AS parent,
  (SELECT h.name FROM thread h WHERE h.trace = t.id AND h.tid = s.tid LIMIT 1) AS thread, s.tid,
  e.flags & 1 AS failed, s.id AS span_id, s.parent AS parent_id, t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN span s ON s.id BETWEEN t.first_id AND t.last_id
LEFT JOIN span_end e ON e.id = s.id
LEFT JOIN span p ON p.id = s.parent;

-- Events of probing.event(), with all values as one JSON text (view event_values has them one by one). JSON has no infinity; parsers read 1e999 as one.
CREATE VIEW events AS
SELECT v.ts / 1e9 AS timestamp, v.name, v.step,
  (SELECT json_group_object(coalesce(k.key, ''), CASE k.value WHEN 1e999 THEN json('1e999') WHEN -1e999 THEN json('-1e999')
                                   ELSE k.value END) FROM event_value k WHERE k.event = v.id) AS data,
  s.name AS span, v.tid, v.id AS event_id, v.span AS span_id, t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN event v ON v.id BETWEEN t.first_id AND t.last_id
LEFT JOIN span s ON s.id = v.span;

-- The values of events (view events), one by one.
CREATE VIEW event_values AS
SELECT v.ts / 1e9 AS timestamp, v.name AS event, coalesce(k.key, '') AS name, k.value, v.step,
  v.id AS event_id, t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN event v ON v.id BETWEEN t.first_id AND t.last_id
JOIN event_value k ON k.event = v.id;

-- Variables chosen by PROBE_TORCH_EXPRS: a row for each value; `number` is NULL for a text.
CREATE VIEW variables AS
SELECT v.ts / 1e9 AS timestamp, v.step, v.func, v.name, v.value,
  CASE WHEN typeof(v.value) IN ('integer', 'real') THEN v.value END AS number,
  CASE v.at WHEN 0 THEN 'step' ELSE 'return' END AS at, t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN variable v ON v.id BETWEEN t.first_id AND t.last_id;

-- The values of view variables, with a row for each step: variables of the usual names as columns (of several the first that has a value), and all of them in `data` (JSON).
CREATE VIEW training_logs_made AS
SELECT max(timestamp) AS timestamp,
  coalesce(max(value) FILTER (WHERE name = 'epoch'), max(value) FILTER (WHERE name = 'ep'), max(value) FILTER (WHERE name = 'epoch_num'),
    max(value) FILTER (WHERE name = 'self.epoch'), max(value) FILTER (WHERE name = 'self.current_epoch')) AS epoch,
  step,
  coalesce(max(value) FILTER (WHERE name = 'loss'), max(value) FILTER (WHERE name = 'train_loss'), max(value) FILTER (WHERE name = 'total_loss'),
    max(value) FILTER (WHERE name = 'self.loss')) AS loss,
  coalesce(max(value) FILTER (WHERE name = 'accuracy'), max(value) FILTER (WHERE name = 'acc'), max(value) FILTER (WHERE name = 'acc1'),
    max(value) FILTER (WHERE name = 'top1'), max(value) FILTER (WHERE name = 'train_acc'), max(value) FILTER (WHERE name = 'self.acc'),
    max(value) FILTER (WHERE name = 'self.accuracy')) AS accuracy,
  coalesce(max(value) FILTER (WHERE name = 'lr'), max(value) FILTER (WHERE name = 'learning_rate'), max(value) FILTER (WHERE name = 'self.lr'),
    max(value) FILTER (WHERE name = 'self.learning_rate')) AS lr,
  json_group_object(name, CASE value WHEN 1e999 THEN json('1e999') WHEN -1e999 THEN json('-1e999') ELSE value END) AS data,
  max(trace_id) AS trace_id, pid, rank
FROM (SELECT coalesce(t.program, t.id) AS program, v.trace_id, v.pid, v.rank, v.step, v.name, v.value, max(v.timestamp) AS timestamp
      FROM variables v JOIN trace_file t ON t.id = v.trace_id WHERE v.step IS NOT NULL GROUP BY 1, v.step, v.name) -- the latest value of each
GROUP BY program, step;

-- What triggered the agent. stacks: number of threads whose stacks were taken then (view trigger_stacks). kind 'killed': the process was killed before it could
-- record anything (SIGKILL: by the kernel when out of memory, or by a scheduler); its timestamp is the last moment that was recorded, and it has no stacks.
CREATE VIEW triggers AS
SELECT e.ts / 1e9 AS timestamp, t.rank, e.kind, e.detail, e.step, e.tid,
  (SELECT name FROM thread h WHERE h.trace = t.id AND h.tid = e.tid ORDER BY h.start_ts DESC LIMIT 1) AS thread,
  (SELECT count(DISTINCT (s.id >> 40 << 40) + s.thread) FROM sample s WHERE s.ts = e.tick AND s.count = 0
   AND (s.id BETWEEN t.first_id AND t.last_id OR t.program IS NOT NULL AND s.id >> 40 IN (SELECT o.id FROM trace_file o WHERE o.program = t.program))) AS stacks,
  e.text, e.id AS trigger_id, t.id AS trace_id, t.pid
FROM trace_file t JOIN trigger_event e ON e.id BETWEEN t.first_id AND t.last_id
UNION ALL
SELECT t.end_ts / 1e9, t.rank, 'killed',
  CASE t.signal WHEN 9 THEN 'by signal 9 (SIGKILL)' WHEN 15 THEN 'by signal 15 (SIGTERM)' WHEN 2 THEN 'by signal 2 (SIGINT)' WHEN 1 THEN 'by signal 1 (SIGHUP)' ELSE coalesce('by signal ' || t.signal,
      iif(t.cause LIKE '%(kernel log)', 'by signal 9 (SIGKILL)', 'by a signal that left no record: SIGKILL (kill -9, the OOM killer), SIGSEGV of a stack overflow, one that is not watched (SIGQUIT, SIGALRM, ...), or another one as it ended')) END
    || coalesce(', ' || t.cause, ''),
  NULL, NULL, NULL, 0, NULL, NULL, t.id, t.pid
FROM (SELECT t.id, t.pid, t.rank, t.end_ts, t.end_reason, t.signal, t.first_id, t.last_id, t.program, (SELECT f.value FROM fact f WHERE f.id BETWEEN t.first_id AND t.last_id AND f.kind = 'end' AND f.key = 'cause' ORDER BY f.id DESC LIMIT 1) AS cause FROM trace_file t) t
WHERE t.end_reason = 'killed' AND NOT EXISTS (
  SELECT 1 FROM trigger_event e WHERE e.id BETWEEN t.first_id AND t.last_id
  AND (e.kind = 'fatal' OR e.kind = 'term' AND e.ts > t.end_ts - 1000000000))
  AND (t.program IS NULL OR NOT EXISTS ( -- nor in another file of the recording (rotation)
    SELECT 1 FROM trace_file o CROSS JOIN trigger_event e ON e.id BETWEEN o.first_id AND o.last_id
    WHERE o.program = t.program AND (e.kind = 'fatal' OR e.kind = 'term' AND e.ts > t.end_ts - 1000000000)));

-- What ended processes, in the order of time over all machines; nth 1: the first failure in its run. Times of different machines are only as comparable as
-- clock_alignment says. A rank that hangs ends nothing; see view hangs.
CREATE VIEW failures AS
SELECT row_number() OVER (PARTITION BY t.run ORDER BY g.timestamp, g.rank) AS nth, g.timestamp, g.rank, t.host, g.kind, g.detail,
  t.run, g.trace_id, g.pid
FROM triggers g JOIN trace_file t ON t.id = g.trace_id WHERE g.kind IN ('killed', 'fatal', 'exception', 'term');

-- The stacks of all threads at a trigger, a row for each frame; depth 0 is the innermost.
CREATE VIEW trigger_stacks AS
SELECT e.id AS trigger_id, e.kind, t.rank, h.tid, h.name AS thread, h.tid = e.tid AS is_cause,
  n.key + 16 * p.key - (p.key > 0) * (-k.depth & 15) AS depth,
  r.name AS func, coalesce(r.file, r.module) AS file, r.line AS lineno,
  CASE r.type WHEN 0 THEN 'Python' WHEN 1 THEN 'Native' END AS frame_type,
  CASE WHEN s.flags & 1 THEN 'running' ELSE 'idle' END AS state, s.flags >> 1 & 1 AS gil,
  s.stack AS stack_id, t.id AS trace_id, t.pid
FROM trace_file t
CROSS JOIN trigger_event e ON e.id BETWEEN t.first_id AND t.last_id
CROSS JOIN sample s ON s.ts = e.tick AND s.count = 0
  AND (s.id BETWEEN t.first_id AND t.last_id OR t.program IS NOT NULL AND s.id >> 40 IN (SELECT o.id FROM trace_file o WHERE o.program = t.program)) -- of a recording in several files, another one may have them
  -- one of each thread: a thread that loses its CPU within the handler is read from outside, and may complete its own sample later
  AND NOT EXISTS (SELECT 1 FROM sample o WHERE o.ts = s.ts AND o.count = 0 AND o.thread = s.thread AND o.id >> 40 = s.id >> 40 AND +o.id < s.id)
CROSS JOIN thread h ON h.id = (s.id >> 40 << 40) + s.thread
LEFT JOIN stack k ON k.id = s.stack
LEFT JOIN json_each(k.parts) p
LEFT JOIN part q ON q.id = p.value
LEFT JOIN json_each(q.frames) n
LEFT JOIN frame r ON r.id = abs(n.value);
