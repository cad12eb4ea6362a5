--@ overlap: Did compute and communication overlap?
--? SELECT count(*) FROM comm_metrics WHERE complete
--! no collectives were recorded (torch.distributed with gloo, nccl or mpi)
CREATE TEMP TABLE busy AS
SELECT id >> 40 AS trace, ts, ts + duration AS until, (SELECT h.tid FROM thread h WHERE h.id = (torch_call.id >> 40 << 40) + torch_call.thread) AS tid FROM torch_call
WHERE duration IS NOT NULL AND (stage IN (2, 3) OR stage = 0 AND depth = 0 AND parent IS NULL);
CREATE INDEX temp.busy_until ON busy(trace, until, ts);
CREATE TEMP TABLE spent AS
SELECT c.id >> 40 AS trace, c.op, c.duration, coalesce(( -- a thread computes nothing while it is inside the call
  SELECT sum(max(0, min(b.until, c.ts + c.duration) - max(b.ts, c.ts + iif(b.tid IS c.tid, c.host, 0)))) FROM busy b
  WHERE b.trace = c.id >> 40 AND b.until > +c.ts AND b.until < c.ts + c.duration + (SELECT max(until - ts) FROM busy) AND b.ts < c.ts + c.duration), 0) AS hidden
FROM comm c WHERE NOT c.flags & 1;
SELECT printf('%.0f %% of %.1f s of communication lay under a forward pass, a backward pass or the optimizer; the rest was waited for, or nothing was computed then',
  100.0 * sum(min(hidden, duration)) / sum(duration), sum(duration) / 1e9) AS answer FROM spent HAVING sum(duration) > 0;
--= by rank, seconds
SELECT t.rank, round(sum(s.duration) / 1e9, 3) AS communication, round(sum(min(s.hidden, s.duration)) / 1e9, 3) AS overlapped,
  round(100.0 * sum(min(s.hidden, s.duration)) / sum(s.duration), 1) AS percent FROM spent s JOIN trace t ON t.id = s.trace GROUP BY s.trace ORDER BY percent LIMIT 16;
--= by operation, seconds
SELECT op, count(*) AS calls, round(sum(duration) / 1e9, 3) AS communication, round(sum(min(hidden, duration)) / 1e9, 3) AS overlapped
FROM spent GROUP BY op ORDER BY 3 DESC;
--= share of the steps' time that communication takes, percent
SELECT rank, round(communication / duration * 100, 1) AS percent FROM (SELECT rank, sum(communication) AS communication, sum(duration) AS duration
  FROM steps WHERE complete AND source <> 'evaluation' GROUP BY trace_id) WHERE communication > 0 ORDER BY 2 DESC LIMIT 16;
