-- SPDX-License-Identifier: Apache-2.0
-- Every collective, send and receive. enter, exit: seconds UTC; exit and what is computed from it are NULL when it was never seen to complete (waited: how long
-- it was seen). completion 'call': the end is the return of the call, and the work may have continued after it; 'raised': the call raised an exception (gloo
-- lacks some operations); 'failed': it ended with an exception after the call had returned (gloo: a peer has gone).
CREATE VIEW comm_metrics AS
-- Ranks of the group are looked up by subqueries, only for columns that are asked for and rows that need it.
SELECT c.ts / 1e9 AS timestamp, coalesce(t.rank, (SELECT o.rank FROM group_rank o WHERE o.list = g.list AND o.idx = g.rank), g.rank) AS rank,
  coalesce(g.name, 'group ' || c.pg) AS "group", c.seq, c.op, c.bytes, c.dtype, c.ts / 1e9 AS enter,
  CASE WHEN c.flags & 1 THEN NULL ELSE (c.ts + c.duration) / 1e9 END AS exit,
  CASE WHEN c.flags & 1 THEN NULL ELSE c.duration / 1e9 END AS duration,
  CASE WHEN c.flags & 1 THEN NULL ELSE c.duration / 1e6 END AS latency_ms,
  CASE WHEN c.src IS NOT NULL THEN coalesce((SELECT o.rank FROM group_rank o WHERE o.list = g.list AND o.idx = c.src), c.src)
    WHEN c.op = 'send' THEN g.rank END AS src_rank,
  CASE WHEN c.dst IS NOT NULL THEN coalesce((SELECT o.rank FROM group_rank o WHERE o.list = g.list AND o.idx = c.dst), c.dst)
    WHEN c.op = 'recv' THEN g.rank END AS dst_rank,
  c.host / 1e6 AS host_ms, NOT c.flags & 1 AS complete,
  CASE WHEN c.flags & 1 THEN 'none' WHEN c.flags & 4 THEN 'raised' WHEN c.flags & 8 THEN 'failed' WHEN c.flags & 2 THEN 'call' ELSE 'seen' END AS completion,
  c.duration / 1e9 AS waited, g.backend, g.size AS group_size, t.id AS trace_id, t.pid, c.tid,
  t.run, t.clock_group, t.attempt
FROM trace_file t JOIN comm c ON c.id BETWEEN t.first_id AND t.last_id
LEFT JOIN process_group g ON g.trace = t.id AND g.pg = c.pg;

-- A row for each collective, over all ranks that came to it (without sends and receives, and without calls that raised). skew_ms: from the first to the last
-- arrival; last_rank: the rank that the others waited for, by the clocks; shortest_rank: the rank with the shortest duration, which no clock can falsify. Where
-- complete < arrived somebody waited in vain: `missing` says for whom (and view hangs why). skew_ms and last_rank are NULL when clocks cannot be compared
-- (clock_alignment). Each run counts its own collectives, and so does each attempt of it (when a launcher starts its ranks again).
CREATE VIEW collectives_made AS
WITH members AS MATERIALIZED ( -- evaluated once for each group, not for each of its collectives
  SELECT f.run, f.attempt, g.name, max(g.list) AS list FROM process_group g JOIN trace_file f ON f.id = g.trace GROUP BY f.run, f.attempt, g.name
)
SELECT "group", seq, op, arrived, size, complete, first_enter / 1e9 AS first_enter, last_enter / 1e9 AS last_enter, exit / 1e9 AS exit,
  CASE WHEN comparable THEN (last_enter - first_enter) / 1e6 END AS skew_ms,
  CASE WHEN comparable THEN CAST(nullif(substr(last_rank, 20), '') AS INTEGER) END AS last_rank,
  CAST(nullif(substr(shortest_rank, 20), '') AS INTEGER) AS shortest_rank, shortest / 1e6 AS shortest_ms, longest / 1e6 AS longest_ms, bytes, dtype,
  CASE WHEN arrived < size THEN
    (SELECT group_concat(rank) FROM (SELECT r.rank FROM members g JOIN group_rank r ON r.list = g.list
       WHERE g.name = m."group" AND g.run IS m.run AND g.attempt = m.attempt EXCEPT SELECT value FROM json_each('[' || came || ']'))) END AS missing, run, attempt
FROM ( -- ranks are prefixed with the 19 digits of their time, so that the greatest text has the latest rank; windows would take three times as long
  SELECT run, attempt, "group", seq, op, count(DISTINCT rank) AS arrived, max(size) AS size,
    count(DISTINCT rank) - count(DISTINCT CASE WHEN done IS NULL THEN rank END) AS complete, -- two processes that say they are one rank count once
    min(ts) AS first_enter, max(ts) AS last_enter, max(ts + done) AS exit,
    max(printf('%019d', ts) || coalesce(rank, '')) AS last_rank,
    min(CASE WHEN done IS NOT NULL THEN printf('%019d', done) || coalesce(rank, '') END) AS shortest_rank,
    min(done) AS shortest, max(done) AS longest, sum(bytes) AS bytes, max(dtype) AS dtype,
    group_concat(rank) AS came, min(clock_group) IS max(clock_group) AS comparable
  FROM collective_calls_made GROUP BY seq, "group", op, attempt, run -- first sorted by the column that is a number and differs most
) m;

-- One call of each rank, as input of the two views around this one. done: its duration, NULL: never seen to complete.
CREATE VIEW collective_calls_made AS
SELECT t.run, t.attempt, coalesce(g.name, 'group ' || c.pg) AS "group", c.seq, c.op,
  coalesce(t.rank, (SELECT o.rank FROM group_rank o WHERE o.list = g.list AND o.idx = g.rank), g.rank) AS rank, c.ts,
  CASE WHEN c.flags & 1 THEN NULL ELSE c.duration END AS done, c.bytes, c.dtype, g.size, t.clock_group
FROM trace_file t JOIN comm c ON c.id BETWEEN t.first_id AND t.last_id
LEFT JOIN process_group g ON g.trace = t.id AND g.pg = c.pg
WHERE c.op NOT IN ('send', 'recv') AND c.flags & 5 <> 4;

-- Who slows the others down, the costliest rank first: how often a rank came last, and for how long the others then waited for it. Only collectives whose ranks
-- have comparable clocks count (clock_alignment). imposed_seconds: by the clocks alone, barriers included. others_waited: what clocks and durations agree on,
-- so that it is neither an error of the clocks nor a late return from the call. It is the time from the first to the last arrival or the longest stay minus the
-- shortest, whichever is less, and counts only where the last rank to come also had the shortest stay. Barriers are left out, because their purpose is to wait.
-- Collectives may be in flight together (DDP's buckets): time in which several of them wait for a rank counts once in others_waited, and in each of them in the sums.
-- `probing ask straggler` tells whether it is more than chance.
CREATE VIEW stragglers_made AS
SELECT s.*, coalesce(c.cost, 0) AS others_waited
FROM (
  SELECT rank, count(*) AS collectives, sum(last) AS came_last, 1.0 * sum(last) / count(*) AS share,
    sum(shortest) AS was_shortest, sum(CASE WHEN last THEN skew END) / 1e9 AS imposed_seconds,
    sum(first_end - ts) / 1e9 AS waited_seconds, run
  FROM (
    SELECT run, rank, ts, ts = max(ts) OVER w AS last, done = min(done) OVER w AS shortest,
      max(ts) OVER w - min(ts) OVER w AS skew, max(ts) OVER w AS first_end, count(*) OVER w AS n,
      min(clock_group) OVER w IS max(clock_group) OVER w AS comparable
    FROM collective_calls_made WHERE done IS NOT NULL
    WINDOW w AS (PARTITION BY seq, "group", op, attempt, run)
  ) WHERE n > 1 AND comparable GROUP BY run, rank
) s LEFT JOIN (
  SELECT run, last_rank, sum(min(cost, max(last_enter - waited_until, 0))) AS cost FROM (
    SELECT *, coalesce(max(last_enter) OVER (PARTITION BY run, last_rank ORDER BY last_enter - cost ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS waited_until
    FROM (SELECT run, last_rank, last_enter, min(skew_ms, longest_ms - shortest_ms) / 1e3 AS cost FROM collectives
      WHERE complete = arrived AND last_rank = shortest_rank AND op <> 'barrier'))
  GROUP BY run, last_rank
) c ON c.last_rank = s.rank AND c.run IS s.run
ORDER BY others_waited DESC, imposed_seconds DESC, rank;

-- What each process is, and where it stands in each dimension of parallelism (tp, pp, dp, ep, ...): as the program said by probing.set_role() (source
-- 'set_role', its last call), and as torch's process groups that were used tell (source 'group'): the groups of a DeviceMesh by the dimension's name, those of
-- Megatron by the names that it has in their descriptions: tp, pp, dp, ep, cp, of experts etp and edp, mp for all of tp and pp, and further products of
-- dimensions in words (tensor_and_data). A dimension of a DeviceMesh that spans all ranks has no group of its own, and so no row: set_role() says it. size NULL: not
-- said; dimension NULL: a role only.
CREATE VIEW roles AS
WITH said AS ( -- the last event of each process; of a recording in several files (rotation) the one with the highest number, whichever file has it. Without a sort
  SELECT p.id AS process, CASE WHEN p.program IS NULL
    THEN (SELECT max(v.id) FROM event v WHERE v.id BETWEEN p.first_id AND p.last_id AND v.name = 'probing.role')
    ELSE (SELECT max((v.id & 0xffffffffff) << 23 | (v.id >> 40)) FROM trace_file o CROSS JOIN event v ON v.id BETWEEN o.first_id AND o.last_id
      WHERE o.program = p.program AND v.name = 'probing.role') END AS event,
    CASE WHEN p.program IS NULL
    THEN (SELECT max(v.id) FROM event v WHERE v.id BETWEEN p.first_id AND p.last_id AND v.name = 'probing.role'
      AND EXISTS (SELECT 1 FROM event_value k WHERE k.event = v.id AND k.key = 'role'))
    ELSE (SELECT max((v.id & 0xffffffffff) << 23 | (v.id >> 40)) FROM trace_file o CROSS JOIN event v ON v.id BETWEEN o.first_id AND o.last_id
      WHERE o.program = p.program AND v.name = 'probing.role' AND EXISTS (SELECT 1 FROM event_value k WHERE k.event = v.id AND k.key = 'role')) END AS named,
    p.program
  FROM trace_file p WHERE p.program IS NULL OR p.program = p.id
), told AS (
  SELECT process, iif(program IS NULL, event, (event & 0x7fffff) << 40 | (event >> 23)) AS event,
    iif(program IS NULL, named, (named & 0x7fffff) << 40 | (named >> 23)) AS named FROM said
), placed AS (
  SELECT n.process, k.key AS dimension, k.value AS place, 'set_role' AS source FROM told n JOIN event_value k ON k.event = n.event
  WHERE k.key <> 'role'
  UNION ALL SELECT n.process, NULL, NULL, 'set_role' FROM told n
  WHERE n.event IS NOT NULL AND NOT EXISTS (SELECT 1 FROM event_value k WHERE k.event = n.event AND k.key <> 'role')
  UNION ALL SELECT coalesce(t.program, t.id),
    CASE g.desc WHEN 'TENSOR_MODEL_PARALLEL_GROUP' THEN 'tp' WHEN 'PIPELINE_MODEL_PARALLEL_GROUP' THEN 'pp'
      WHEN 'DATA_PARALLEL_GROUP' THEN 'dp' WHEN 'EXPERT_MODEL_PARALLEL_GROUP' THEN 'ep' WHEN 'CONTEXT_PARALLEL_GROUP' THEN 'cp'
      WHEN 'EXPERT_TENSOR_PARALLEL_GROUP' THEN 'etp' WHEN 'EXPERT_DATA_PARALLEL_GROUP' THEN 'edp' WHEN 'MODEL_PARALLEL_GROUP' THEN 'mp'
      ELSE CASE WHEN g.desc LIKE 'mesh\_%' ESCAPE '\' THEN substr(g.desc, 6) ELSE lower(replace(g.desc, '_PARALLEL_GROUP', '')) END END,
    g.rank || '/' || g.size, 'group' FROM process_group g JOIN trace_file t ON t.id = g.trace
  WHERE g.rank IS NOT NULL AND (g.desc LIKE 'mesh\_%' ESCAPE '\' AND g.desc <> 'mesh_default' OR g.desc LIKE '%\_PARALLEL\_GROUP' ESCAPE '\')
    AND (t.program IS NULL OR NOT EXISTS (SELECT 1 FROM trace_file o CROSS JOIN process_group q ON q.trace = o.id AND q.pg = g.pg AND q.desc IS g.desc AND q.rank IS NOT NULL
      WHERE o.program = t.program AND o.id < t.id)) -- each file says it anew
)
SELECT t.id AS trace_id, t.rank, coalesce((SELECT k.value FROM told n CROSS JOIN event_value k ON k.event = n.named WHERE n.process = t.id AND k.key = 'role' LIMIT 1), t.role) AS role, p.dimension,
  CASE WHEN p.place IS NULL THEN NULL WHEN instr(p.place, '/') THEN CAST(substr(p.place, 1, instr(p.place, '/') - 1) AS INTEGER)
    ELSE CAST(p.place AS INTEGER) END AS "index",
  CASE WHEN instr(p.place, '/') THEN CAST(substr(p.place, instr(p.place, '/') + 1) AS INTEGER) END AS size,
  p.source, t.host, t.pid
FROM placed p JOIN trace_file t ON t.id = p.process;
