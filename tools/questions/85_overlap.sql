--@ overlap: Did compute and communication overlap?
--? SELECT count(*) FROM comm_metrics WHERE complete
--! no collectives were recorded (torch.distributed with gloo, nccl or mpi)
CREATE TEMP TABLE busy AS
SELECT id >> 40 AS trace, ts, ts + duration AS until, (SELECT h.tid FROM thread h WHERE h.id = (torch_call.id >> 40 << 40) + torch_call.thread) AS tid FROM torch_call
WHERE duration IS NOT NULL AND (stage IN (2, 3) OR stage = 0 AND depth = 0 AND parent IS NULL);
CREATE INDEX temp.busy_until ON busy(trace, until, ts);
CREATE TEMP TABLE waits AS -- and where its thread only waited in them: for a call that goes on after it has returned (Work.wait(), DDP's last buckets), which no record says, but its samples show
SELECT b.trace, b.tid, CAST(s.timestamp * 1e9 AS INTEGER) AS ts, CAST(s.seconds * 1e9 AS INTEGER) AS ns
FROM (SELECT DISTINCT k.stack FROM (SELECT 1 FROM frame WHERE name GLOB 'c10d::*' LIMIT 1) CROSS JOIN stack_frame k CROSS JOIN frame r ON r.id = k.frame
  WHERE r.name GLOB 'c10d::*' OR r.name GLOB 'c10::ivalue::Future::wait*') w
CROSS JOIN samples s ON s.stack_id = w.stack AND s.state = 'idle'
CROSS JOIN busy b ON b.trace = +s.trace_id AND b.until > +CAST(s.timestamp * 1e9 AS INTEGER) AND +b.tid IS s.tid -- +: as the index has them, which knows no type
  AND b.until <= CAST(s.timestamp * 1e9 AS INTEGER) + (SELECT max(until - ts) FROM busy) AND b.ts <= CAST(s.timestamp * 1e9 AS INTEGER)
GROUP BY b.trace, b.tid, s.sample_id;
CREATE INDEX temp.waits_ts ON waits(trace, ts);
CREATE TEMP TABLE spent AS -- of each call: what lay under passes, and what of that was waited for. A sample stands for all of its time in the call that its moment lies in: calls are
-- mostly shorter than that, so what is hidden is known of many together only
SELECT c.id >> 40 AS trace, c.op, c.duration, c.host, coalesce(( -- a thread computes nothing while it is inside the call
  SELECT sum(max(0, min(b.until, c.ts + c.duration) - max(b.ts, c.ts + iif(b.tid IS c.tid, c.host, 0)))) FROM busy b
  WHERE b.trace = c.id >> 40 AND b.until > +c.ts AND b.until < c.ts + c.duration + (SELECT max(until - ts) FROM busy) AND b.ts < c.ts + c.duration), 0) AS under,
  coalesce((SELECT sum(w.ns) FROM waits w
  WHERE w.trace = c.id >> 40 AND w.ts >= +c.ts AND w.ts < c.ts + c.duration AND w.ts >= c.ts + iif(w.tid IS c.tid, c.host, 0)), 0) AS waited
FROM comm c WHERE NOT c.flags & 1;
CREATE TEMP TABLE hid AS
SELECT trace, op, count(*) AS calls, sum(duration) AS duration, sum(host) AS host, max(0, min(sum(under) - sum(waited), sum(duration))) AS hidden FROM spent GROUP BY trace, op;
SELECT printf('%.0f %% of %.1f s of communication lay under a forward pass, a backward pass or the optimizer; the rest was waited for, or nothing was computed then%s',
  100.0 * sum(hidden) / sum(duration), sum(duration) / 1e9,
  iif(sum(iif(hidden > 0, duration - host, 0)) > 0.1 * sum(duration) AND NOT EXISTS (SELECT 1 FROM waits),
    ' (no sample shows a thread that waits for a call which goes on after it has returned: such waiting, if there was any, counts as computing)', '')) AS answer
FROM hid HAVING sum(duration) > 0;
--= by rank, seconds
SELECT t.rank, round(sum(s.duration) / 1e9, 3) AS communication, round(sum(s.hidden) / 1e9, 3) AS overlapped,
  round(100.0 * sum(s.hidden) / sum(s.duration), 1) AS percent FROM hid s JOIN trace t ON t.id = s.trace GROUP BY s.trace ORDER BY percent LIMIT 16;
--= by operation, seconds
SELECT op, sum(calls) AS calls, round(sum(duration) / 1e9, 3) AS communication, round(sum(hidden) / 1e9, 3) AS overlapped
FROM hid GROUP BY op ORDER BY 3 DESC;
--= share of the steps' time that communication takes, percent
SELECT rank, round(communication / duration * 100, 1) AS percent FROM (SELECT rank, sum(communication) AS communication, sum(duration) AS duration
  FROM steps WHERE complete AND source <> 'evaluation' GROUP BY trace_id) WHERE communication > 0 ORDER BY 2 DESC LIMIT 16;
