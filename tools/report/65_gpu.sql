--@ machine: Processor, GPU and network
--? SELECT (SELECT count(*) FROM cpu_utilization) + (SELECT count(*) FROM gpu_metrics)
--! Nothing was measured.
SELECT CASE WHEN EXISTS (SELECT 1 FROM gpu_metrics) THEN printf('the GPUs were busy %.0f %% of the time', (SELECT avg(gpu_util) FROM gpu_metrics))
  ELSE 'no GPU was seen' END AS answer;
--= lines: GPU busy
SELECT 'rank ' || coalesce(rank, '-') || ' GPU ' || device AS device, timestamp, gpu_util AS util_percent FROM gpu_metrics;
--= lines: GPU power
SELECT 'rank ' || coalesce(rank, '-') || ' GPU ' || device AS device, timestamp, power_w FROM gpu_metrics WHERE power_w IS NOT NULL;
--= lines: Processor (100 % is one)
SELECT coalesce('rank ' || t.rank, '') || CASE WHEN t.rank IS NULL OR t.role IN ('dataloader', 'launcher') THEN ' ' || coalesce(t.role, 'process') || ' ' || c.pid ELSE '' END AS process,
  c.timestamp, c.cpu_percent FROM cpu_utilization c JOIN trace t ON t.id = c.trace_id WHERE c.cpu_percent IS NOT NULL;
--= lines: Network, sent
SELECT coalesce('rank ' || rank, 'pid ' || pid) || ' ' || interface AS interface, timestamp, tx_rate AS sent_bps FROM network_statistics WHERE tx_rate IS NOT NULL AND interface <> 'lo';
--= lines: Network, received
SELECT coalesce('rank ' || rank, 'pid ' || pid) || ' ' || interface AS interface, timestamp, rx_rate AS received_bps FROM network_statistics WHERE rx_rate IS NOT NULL AND interface <> 'lo';
