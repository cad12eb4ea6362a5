--@ gpu: When is the GPU idle, and why?
--? SELECT EXISTS (SELECT 1 FROM gpu_metrics)
--! no GPU was seen (NVML: libnvidia-ml.so.1)
SELECT printf('the GPUs were busy %.0f %% of the time; device %d of %s least, %.0f %%', (SELECT avg(gpu_util) FROM gpu_metrics), device, coalesce('rank ' || rank, 'process ' || pid, 'a process that is not named'), util) AS answer
FROM (SELECT rank, pid, device, avg(gpu_util) AS util FROM gpu_metrics GROUP BY rank, device ORDER BY util LIMIT 1);
--= by device
SELECT rank, device, name, round(avg(gpu_util), 1) AS util, round(max(memory_used_mb)) AS memory_mb, round(avg(power_w), 1) AS power_w,
  sum(gpu_util < 10) AS idle_seconds FROM gpu_metrics GROUP BY rank, device ORDER BY util LIMIT 16;
--= steps: time of the GPU's own against the whole
SELECT rank, count(*) AS steps, round(avg(duration), 6) AS duration, round(avg(cuda_duration), 6) AS cuda, round(avg(data), 6) AS data,
  round(avg(communication), 6) AS communication FROM steps WHERE cuda_duration IS NOT NULL GROUP BY trace_id ORDER BY 4 / 3 LIMIT 16;
--= what the main threads did in the seconds in which the GPU was idle
SELECT b.func, b.file, b.lineno, round(sum(b.seconds), 3) AS seconds FROM gpu_metrics g JOIN samples b ON b.trace_id = g.trace_id
  AND b.timestamp BETWEEN g.timestamp - 1 AND g.timestamp AND b.tid = b.pid WHERE g.gpu_util < 10 GROUP BY 1, 2, 3 ORDER BY 4 DESC LIMIT 10;
