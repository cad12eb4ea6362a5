--@ memory: Memory
--? SELECT EXISTS (SELECT 1 FROM memory_usage)
--! No memory was measured.
SELECT printf('%s had most, %.0f MB resident', coalesce('rank ' || rank || ' (process ' || pid || ')', 'rank ' || rank, 'process ' || pid, 'a process that is not named'), max(memory_mb)) AS answer FROM memory_usage;
--= lines: Resident
SELECT coalesce('rank ' || t.rank, '') || CASE WHEN t.rank IS NULL OR t.role IN ('dataloader', 'launcher') THEN ' ' || coalesce(t.role, 'process') || ' ' || m.pid ELSE '' END AS process,
  m.timestamp, m.memory_mb FROM memory_usage m JOIN trace t ON t.id = m.trace_id;
--= lines: GPU memory of torch's allocator
SELECT coalesce('rank ' || rank, 'process ' || pid, 'a process that is not named') AS rank, timestamp, gpu_mb FROM memory WHERE gpu_mb IS NOT NULL AND step IS NOT NULL;
--= table: Allocations, by the line that made them
SELECT function_name, file, lineno, sum(allocated_bytes) / 1e6 AS allocated_mb, sum(freed_bytes) / 1e6 AS freed_mb, sum(count) AS count
FROM memory_allocations GROUP BY 1, 2, 3 ORDER BY 4 DESC LIMIT 50;
