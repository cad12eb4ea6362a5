--@ machine: Processor, GPU and network
--? SELECT EXISTS (SELECT 1 FROM cpu) + EXISTS (SELECT 1 FROM gpu)
--! Nothing was measured.
SELECT CASE WHEN EXISTS (SELECT 1 FROM gpu) THEN printf('the GPUs were busy %.0f %% of the time', (SELECT avg(gpu_util) FROM gpu_metrics))
  ELSE 'no GPU was seen' END AS answer;
--= lines: GPU busy
SELECT coalesce('rank ' || rank, 'process ' || pid, 'a process that is not named') || ' GPU ' || device AS device, timestamp, gpu_util AS util_percent FROM gpu_metrics;
--= lines: GPU power
SELECT coalesce('rank ' || rank, 'process ' || pid, 'a process that is not named') || ' GPU ' || device AS device, timestamp, power_w FROM gpu_metrics WHERE power_w IS NOT NULL;
--= rates: Processor (100 % is one)
-- The files of a process (rotation) one after the other: LIMIT keeps the order of the subquery.
SELECT coalesce('rank ' || t.rank, '') || CASE WHEN t.rank IS NULL OR t.role IN ('dataloader', 'launcher') THEN ' ' || coalesce(t.role, 'process') || ' ' || t.pid ELSE '' END AS name,
  c.ts / 1e9 AS timestamp, (c.user_us + c.system_us) * 1e-4 AS cpu_percent, t.process
FROM (SELECT *, coalesce(program, id) AS process FROM trace_file ORDER BY process, coalesce(finish_ts, end_ts) LIMIT -1) t CROSS JOIN cpu c ON c.id BETWEEN t.first_id AND t.last_id;
--= rates: Network, sent
SELECT coalesce('rank ' || t.rank, 'pid ' || t.pid) || ' ' || n.interface AS interface, n.ts / 1e9 AS timestamp, n.tx_bytes AS sent_bps, t.process
FROM (SELECT *, coalesce(program, id) AS process FROM trace_file ORDER BY process, coalesce(finish_ts, end_ts) LIMIT -1) t CROSS JOIN network n ON n.id BETWEEN t.first_id AND t.last_id WHERE n.interface <> 'lo';
--= rates: Network, received
SELECT coalesce('rank ' || t.rank, 'pid ' || t.pid) || ' ' || n.interface AS interface, n.ts / 1e9 AS timestamp, n.rx_bytes AS received_bps, t.process
FROM (SELECT *, coalesce(program, id) AS process FROM trace_file ORDER BY process, coalesce(finish_ts, end_ts) LIMIT -1) t CROSS JOIN network n ON n.id BETWEEN t.first_id AND t.last_id WHERE n.interface <> 'lo';
