--@ overlap: Did compute and communication overlap?
--? SELECT count(*) FROM comm_metrics WHERE complete
--! no collectives were recorded (torch.distributed with gloo, nccl or mpi)
CREATE TEMP TABLE busy AS
SELECT id >> 40 AS trace, ts, ts + duration AS until, (SELECT h.tid FROM thread h WHERE h.id = (torch_call.id >> 40 << 40) + torch_call.thread) AS tid FROM torch_call
WHERE duration IS NOT NULL AND (stage IN (2, 3) OR stage = 0 AND depth = 0 AND parent IS NULL);
CREATE INDEX temp.busy_until ON busy(trace, until, ts);
CREATE TEMP TABLE waits AS -- and where its thread only waited in them: for a call that goes on after it has returned (Work.wait(), DDP's last buckets), which no record says, but its samples show
SELECT b.trace, b.tid, max(b.ts, CAST(s.timestamp * 1e9 AS INTEGER)) AS ts, min(b.until, CAST((s.timestamp + s.seconds) * 1e9 AS INTEGER)) AS until
FROM (SELECT DISTINCT k.stack FROM (SELECT 1 FROM frame WHERE name GLOB 'c10d::*' LIMIT 1) CROSS JOIN stack_frame k CROSS JOIN frame r ON r.id = k.frame
  WHERE r.name GLOB 'c10d::*' OR r.name GLOB 'c10::ivalue::Future::wait*') w
CROSS JOIN samples s ON s.stack_id = w.stack AND s.state = 'idle'
CROSS JOIN busy b ON b.trace = +s.trace_id AND b.until > +CAST(s.timestamp * 1e9 AS INTEGER) AND +b.tid IS s.tid -- +: as the index has them, which knows no type
  AND b.until < CAST((s.timestamp + s.seconds) * 1e9 AS INTEGER) + (SELECT max(until - ts) FROM busy) AND b.ts < CAST((s.timestamp + s.seconds) * 1e9 AS INTEGER);
CREATE INDEX temp.waits_until ON waits(trace, until, ts);
CREATE TEMP TABLE spent AS
SELECT c.id >> 40 AS trace, c.op, c.duration, c.host, coalesce(( -- a thread computes nothing while it is inside the call
  SELECT sum(max(0, min(b.until, c.ts + c.duration) - max(b.ts, c.ts + iif(b.tid IS c.tid, c.host, 0)))) FROM busy b
  WHERE b.trace = c.id >> 40 AND b.until > +c.ts AND b.until < c.ts + c.duration + (SELECT max(until - ts) FROM busy) AND b.ts < c.ts + c.duration), 0)
  - coalesce((SELECT sum(max(0, min(w.until, c.ts + c.duration) - max(w.ts, c.ts + iif(w.tid IS c.tid, c.host, 0)))) FROM waits w
  WHERE w.trace = c.id >> 40 AND w.until > +c.ts AND w.until < c.ts + c.duration + (SELECT max(until - ts) FROM waits) AND w.ts < c.ts + c.duration), 0) AS hidden
FROM comm c WHERE NOT c.flags & 1;
SELECT printf('%.0f %% of %.1f s of communication lay under a forward pass, a backward pass or the optimizer; the rest was waited for, or nothing was computed then%s',
  100.0 * sum(max(0, min(hidden, duration))) / sum(duration), sum(duration) / 1e9,
  iif(sum(iif(hidden > 0, duration - host, 0)) > 0.1 * sum(duration) AND NOT EXISTS (SELECT 1 FROM waits),
    ' (no sample shows a thread that waits for a call which goes on after it has returned: such waiting, if there was any, counts as computing)', '')) AS answer
FROM spent HAVING sum(duration) > 0;
--= by rank, seconds
SELECT t.rank, round(sum(s.duration) / 1e9, 3) AS communication, round(sum(max(0, min(s.hidden, s.duration))) / 1e9, 3) AS overlapped,
  round(100.0 * sum(max(0, min(s.hidden, s.duration))) / sum(s.duration), 1) AS percent FROM spent s JOIN trace t ON t.id = s.trace GROUP BY s.trace ORDER BY percent LIMIT 16;
--= by operation, seconds
SELECT op, count(*) AS calls, round(sum(duration) / 1e9, 3) AS communication, round(sum(max(0, min(hidden, duration))) / 1e9, 3) AS overlapped
FROM spent GROUP BY op ORDER BY 3 DESC;
--= share of the steps' time that communication takes, percent
SELECT rank, round(communication / duration * 100, 1) AS percent FROM (SELECT rank, sum(communication) AS communication, sum(duration) AS duration
  FROM steps WHERE complete AND source <> 'evaluation' GROUP BY trace_id) WHERE communication > 0 ORDER BY 2 DESC LIMIT 16;
