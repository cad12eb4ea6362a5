--@ overlap: Did compute and communication overlap?
--? SELECT EXISTS (SELECT 1 FROM comm_metrics WHERE complete) AND EXISTS (SELECT 1 FROM torch_call WHERE stage NOT IN (1, 4) AND duration IS NOT NULL)
--! it cannot be told: no collectives were recorded (torch.distributed with gloo, nccl or mpi), or no passes that they could lie under (modules, backward, an optimizer of PyTorch)
-- Passes, samples and calls of a trace are merged in the function overlap() (converter/overlap.h). A sample stands for all of its time in the call that its moment
-- lies in: calls are mostly shorter than that, so what is hidden is known of many together only.
CREATE TEMP TABLE waiting AS -- stacks of a thread that only waits for a call that goes on after it has returned (Work.wait(), DDP's last buckets): no record says that, but samples show it
SELECT json_group_array(stack) AS stacks FROM (SELECT DISTINCT k.stack FROM (SELECT 1 FROM frame WHERE name GLOB 'c10d::*' LIMIT 1)
  CROSS JOIN stack_frame k CROSS JOIN frame r ON r.id = k.frame WHERE r.name GLOB 'c10d::*' OR r.name GLOB 'c10::ivalue::Future::wait*');
CREATE TEMP TABLE part AS -- of a long job the last million calls, as in what_if: a day of many ranks takes no longer than its last hours
SELECT min(1, 1e6 / n) AS part, iif(n > 1e6, CAST(until - 1e6 / n * (until - since) AS INTEGER), NULL) AS since FROM (SELECT count(*) AS n, min(ts) AS since, max(ts) AS until FROM comm);
CREATE TEMP TABLE hid AS
SELECT t.id AS process, t.rank, json_extract(o.value, '$.op') AS op, json_extract(o.value, '$.calls') AS calls, json_extract(o.value, '$.duration') AS duration,
  json_extract(o.value, '$.host') AS host, json_extract(o.value, '$.stepped') AS stepped, json_extract(o.value, '$.steps') AS steps, json_extract(o.value, '$.waits') AS waits,
  max(0, min(json_extract(o.value, '$.under') - json_extract(o.value, '$.waited'), json_extract(o.value, '$.duration'))) AS hidden
FROM (SELECT coalesce(program, id) AS id, max(rank) AS rank FROM trace_file GROUP BY 1) t, json_each(overlap(t.id, (SELECT stacks FROM waiting), (SELECT since FROM part))) o;
SELECT printf('%.0f %% of %.1f s of communication%s lay under a forward pass, a backward pass or the optimizer; the rest was waited for, or nothing was computed then%s',
  100.0 * sum(hidden) / sum(duration), sum(duration) / 1e9,
  (SELECT iif(part < 1, printf(' (of all its time the last, %.3g %%)', 100 * part), '') FROM part),
  iif(sum(iif(hidden > 0, duration - host, 0)) > 0.1 * sum(duration) AND NOT sum(waits),
    ' (no sample shows a thread that waits for a call which goes on after it has returned: such waiting, if there was any, counts as computing)', '')
  || iif(EXISTS (SELECT 1 FROM process_group WHERE backend = 'nccl'), '. NCCL''s times are the GPU''s, those of the passes the host''s, which may be ahead of it', '')) AS answer
FROM hid GROUP BY NULL HAVING sum(duration) > 0;
--= by rank, seconds
SELECT rank, round(sum(duration) / 1e9, 3) AS communication, round(sum(hidden) / 1e9, 3) AS overlapped,
  round(100.0 * sum(hidden) / sum(duration), 1) AS percent FROM hid WHERE calls GROUP BY process ORDER BY percent LIMIT 16;
--= by operation, seconds
SELECT op, sum(calls) AS calls, round(sum(duration) / 1e9, 3) AS communication, round(sum(hidden) / 1e9, 3) AS overlapped
FROM hid WHERE calls GROUP BY op ORDER BY 3 DESC;
--= share of the steps' time that communication takes, percent
SELECT rank, round(100.0 * sum(stepped) / max(steps), 1) AS percent FROM hid
GROUP BY process HAVING sum(stepped) > 0 ORDER BY 2 DESC, 1 LIMIT 16;
