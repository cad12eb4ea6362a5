-- SPDX-License-Identifier: Apache-2.0
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
  c.duration / 1e9 AS waited, g.backend, g.size AS group_size, t.id AS trace_id, t.pid, c.tid,
  t.run, t.clock_group
FROM trace_file t JOIN comm c ON c.id BETWEEN t.first_id AND t.last_id
LEFT JOIN process_group g ON g.trace = t.id AND g.pg = c.pg
LEFT JOIN group_rank o ON o.list = g.list AND o.idx = g.rank
LEFT JOIN group_rank s ON s.list = g.list AND s.idx = c.src
LEFT JOIN group_rank d ON d.list = g.list AND d.idx = c.dst;

-- A row per collective over all ranks that came to it (sends and receives, and calls that raised, left out). skew_ms: from the first to the last
-- arrival; last_rank: who the others waited for, by the clocks; shortest_rank: by the shortest duration, which no clock can
-- falsify. Where complete < arrived somebody waited in vain: missing says for whom (and view hangs, why). skew_ms and last_rank are NULL
-- where clocks cannot be compared (clock_alignment). Each run counts its own.
CREATE VIEW collectives_made AS
WITH members AS MATERIALIZED ( -- once for each group, not for each of its collectives
  SELECT f.run, g.name, max(g.list) AS list FROM process_group g JOIN trace_file f ON f.id = g.trace GROUP BY f.run, g.name
)
SELECT "group", seq, op, arrived, size, complete, first_enter, last_enter, exit,
  CASE WHEN comparable THEN (last_enter - first_enter) * 1e3 END AS skew_ms, CASE WHEN comparable THEN last_rank END AS last_rank, shortest_rank, shortest_ms, longest_ms, bytes, dtype,
  CASE WHEN arrived < size THEN
    (SELECT group_concat(rank) FROM (SELECT r.rank FROM members g JOIN group_rank r ON r.list = g.list
       WHERE g.name = m."group" AND g.run IS m.run EXCEPT SELECT value FROM json_each('[' || came || ']'))) END AS missing, run
FROM (
  SELECT run, "group", seq, op, count(DISTINCT rank) AS arrived, max(group_size) AS size, sum(complete) AS complete,
    min(enter) AS first_enter, max(enter) AS last_enter, max(exit) AS exit,
    max(CASE WHEN nth_last = 1 THEN rank END) AS last_rank,
    max(CASE WHEN nth_short = 1 AND complete THEN rank END) AS shortest_rank,
    min(latency_ms) AS shortest_ms, max(latency_ms) AS longest_ms, sum(bytes) AS bytes, max(dtype) AS dtype,
    group_concat(DISTINCT rank) AS came, min(clock_group) IS max(clock_group) AS comparable
  FROM (SELECT *, row_number() OVER (PARTITION BY run, "group", seq, op ORDER BY enter DESC) AS nth_last,
          row_number() OVER (PARTITION BY run, "group", seq, op ORDER BY complete DESC, duration) AS nth_short
        FROM comm_metrics WHERE op NOT IN ('send', 'recv') AND completion <> 'raised')
  GROUP BY run, "group", seq, op
) m;

-- Who slows the others: how often a rank came last, and for how long the first one waited then. Only of collectives whose ranks'
-- clocks can be compared (clock_alignment).
CREATE VIEW stragglers_made AS
SELECT rank, count(*) AS collectives, sum(last) AS came_last, 1.0 * sum(last) / count(*) AS share,
  sum(shortest) AS was_shortest, sum(CASE WHEN last THEN skew END) AS imposed_seconds,
  sum(first_end - enter) AS waited_seconds, run
FROM (
  SELECT run, rank, enter, row_number() OVER (w ORDER BY enter DESC) = 1 AS last,
    row_number() OVER (w ORDER BY duration) = 1 AS shortest,
    max(enter) OVER w - min(enter) OVER w AS skew, max(enter) OVER w AS first_end, count(*) OVER w AS n,
    min(clock_group) OVER w IS max(clock_group) OVER w AS comparable
  FROM comm_metrics WHERE op NOT IN ('send', 'recv') AND complete AND completion <> 'raised'
  WINDOW w AS (PARTITION BY run, "group", seq, op)
) WHERE n > 1 AND comparable GROUP BY run, rank ORDER BY imposed_seconds DESC;

-- What each process is, and where it stands in each dimension of parallelism (tp, pp, dp, ep, ...): as the program said by
-- probing.set_role() (source 'set_role', the last that it said), and as torch's process groups tell that were used (source 'group'): those of a
-- DeviceMesh by the dimension's name, those of Megatron by what it calls them. size NULL: not said; dimension NULL: a role alone.
CREATE VIEW roles AS
WITH told AS (
  SELECT t.id AS trace, max(v.id) AS event FROM trace_file t JOIN event v ON v.id BETWEEN t.first_id AND t.last_id
  WHERE v.name = 'probing.role' GROUP BY t.id
), placed AS (
  SELECT n.trace, k.key AS dimension, k.value AS place, 'set_role' AS source FROM told n JOIN event_value k ON k.event = n.event
  WHERE k.key <> 'role'
  UNION ALL SELECT n.trace, NULL, NULL, 'set_role' FROM told n
  WHERE NOT EXISTS (SELECT 1 FROM event_value k WHERE k.event = n.event AND k.key <> 'role')
  UNION ALL SELECT g.trace,
    CASE g.desc WHEN 'TENSOR_MODEL_PARALLEL_GROUP' THEN 'tp' WHEN 'PIPELINE_MODEL_PARALLEL_GROUP' THEN 'pp'
      WHEN 'DATA_PARALLEL_GROUP' THEN 'dp' WHEN 'EXPERT_MODEL_PARALLEL_GROUP' THEN 'ep' WHEN 'CONTEXT_PARALLEL_GROUP' THEN 'cp'
      ELSE substr(g.desc, 6) END,
    g.rank || '/' || g.size, 'group' FROM process_group g
  WHERE g.rank IS NOT NULL AND (g.desc LIKE 'mesh\_%' ESCAPE '\' AND g.desc <> 'mesh_default' OR g.desc LIKE '%\_PARALLEL\_GROUP' ESCAPE '\')
)
SELECT t.id AS trace_id, t.rank, coalesce((SELECT k.value FROM event v JOIN event_value k ON k.event = v.id
    WHERE v.id BETWEEN t.first_id AND t.last_id AND v.name = 'probing.role' AND k.key = 'role' ORDER BY v.id DESC LIMIT 1), t.role) AS role, p.dimension,
  CASE WHEN p.place IS NULL THEN NULL WHEN instr(p.place, '/') THEN CAST(substr(p.place, 1, instr(p.place, '/') - 1) AS INTEGER)
    ELSE CAST(p.place AS INTEGER) END AS "index",
  CASE WHEN instr(p.place, '/') THEN CAST(substr(p.place, instr(p.place, '/') + 1) AS INTEGER) END AS size,
  p.source, t.host, t.pid
FROM placed p JOIN trace_file t ON t.id = p.trace;
