-- SPDX-License-Identifier: Apache-2.0
-- Memory of the process, as the kernel reports it: a row each second (setting metrics).
CREATE VIEW memory_usage AS
SELECT m.ts / 1e9 AS timestamp, m.rss / 1e6 AS memory_mb, m.rss, m.vms, m.shared, m.data, m.swap,
  m.peak, t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN memory_sample m ON m.id BETWEEN t.first_id AND t.last_id;

-- For each rate the previous row is looked up by its number, and not with a window over all rows: then a query without rates does not pay for them. Before the first
-- row of a file that continues another one (rotation) comes the last row of the latest file before it.
CREATE VIEW cpu_before AS
SELECT c.id, coalesce((SELECT p.id FROM cpu p WHERE p.id < c.id AND p.id >= c.id >> 40 << 40 ORDER BY p.id DESC LIMIT 1),
  CASE WHEN t.program IS NOT NULL THEN (SELECT p.id FROM trace_file o CROSS JOIN cpu p ON p.id = (SELECT max(x.id) FROM cpu x WHERE x.id BETWEEN o.first_id AND o.last_id)
    WHERE o.program = t.program AND p.ts < c.ts ORDER BY p.ts DESC LIMIT 1) END) AS before
FROM cpu c CROSS JOIN trace_file t ON t.id = c.id >> 40;

-- The same for the rates of io_statistics.
CREATE VIEW io_before AS
SELECT i.id, coalesce((SELECT p.id FROM io p WHERE p.id < i.id AND p.id >= i.id >> 40 << 40 ORDER BY p.id DESC LIMIT 1),
  CASE WHEN t.program IS NOT NULL THEN (SELECT p.id FROM trace_file o CROSS JOIN io p ON p.id = (SELECT max(x.id) FROM io x WHERE x.id BETWEEN o.first_id AND o.last_id)
    WHERE o.program = t.program AND p.ts < i.ts ORDER BY p.ts DESC LIMIT 1) END) AS before
FROM io i CROSS JOIN trace_file t ON t.id = i.id >> 40;

-- The same for the rates of network_statistics, for each interface.
CREATE VIEW network_before AS
SELECT n.id, coalesce((SELECT p.id FROM network p WHERE p.id < n.id AND p.id >= n.id >> 40 << 40 AND p.interface = n.interface ORDER BY p.id DESC LIMIT 1),
  CASE WHEN t.program IS NOT NULL THEN (SELECT p.id FROM trace_file o
      CROSS JOIN network p ON p.id = (SELECT max(x.id) FROM network x WHERE x.id BETWEEN o.first_id AND o.last_id AND x.interface = n.interface)
    WHERE o.program = t.program AND p.ts < n.ts ORDER BY p.ts DESC LIMIT 1) END) AS before
FROM network n CROSS JOIN trace_file t ON t.id = n.id >> 40;

-- Percent of one CPU since the previous row (NULL in the first row of a process). Counters are those of the process, since its start. agent_seconds is what
-- recording itself cost.
CREATE VIEW cpu_utilization AS
SELECT c.ts / 1e9 AS timestamp,
  (SELECT ((c.user_us - p.user_us) + (c.system_us - p.system_us)) / ((c.ts - p.ts) / 1e9) * 1e-4 FROM cpu p WHERE p.id = (SELECT b.before FROM cpu_before b WHERE b.id = c.id)) AS cpu_percent,
  (SELECT (c.user_us - p.user_us) / ((c.ts - p.ts) / 1e9) * 1e-4 FROM cpu p WHERE p.id = (SELECT b.before FROM cpu_before b WHERE b.id = c.id)) AS user_percent,
  (SELECT (c.system_us - p.system_us) / ((c.ts - p.ts) / 1e9) * 1e-4 FROM cpu p WHERE p.id = (SELECT b.before FROM cpu_before b WHERE b.id = c.id)) AS system_percent,
  c.user_us / 1e6 AS user_seconds, c.system_us / 1e6 AS system_seconds, c.threads,
  c.voluntary AS voluntary_switches, c.involuntary AS involuntary_switches,
  c.minor_faults, c.major_faults, (c.agent_us + c.handler_us) / 1e6 AS agent_seconds,
  t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN cpu c ON c.id BETWEEN t.first_id AND t.last_id;

-- Counters since the start of the process, and bytes per second since the previous row.
CREATE VIEW io_statistics AS
SELECT i.ts / 1e9 AS timestamp, i.read_bytes, i.write_bytes, i.rchar, i.wchar, i.syscr, i.syscw,
  (SELECT (i.read_bytes - p.read_bytes) / ((i.ts - p.ts) / 1e9) FROM io p WHERE p.id = (SELECT b.before FROM io_before b WHERE b.id = i.id)) AS read_rate,
  (SELECT (i.write_bytes - p.write_bytes) / ((i.ts - p.ts) / 1e9) FROM io p WHERE p.id = (SELECT b.before FROM io_before b WHERE b.id = i.id)) AS write_rate,
  (SELECT (i.rchar - p.rchar) / ((i.ts - p.ts) / 1e9) FROM io p WHERE p.id = (SELECT b.before FROM io_before b WHERE b.id = i.id)) AS rchar_rate,
  (SELECT (i.wchar - p.wchar) / ((i.ts - p.ts) / 1e9) FROM io p WHERE p.id = (SELECT b.before FROM io_before b WHERE b.id = i.id)) AS wchar_rate,
  t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN io i ON i.id BETWEEN t.first_id AND t.last_id;

-- Traffic of each network interface: a row each second (setting metrics). The kernel counts it since the interface was created, for all processes together.
CREATE VIEW network_statistics AS
SELECT n.ts / 1e9 AS timestamp, n.interface, n.rx_bytes, n.tx_bytes, n.rx_packets, n.tx_packets,
  n.rx_errors, n.tx_errors,
  (SELECT (n.rx_bytes - p.rx_bytes) / ((n.ts - p.ts) / 1e9) FROM network p WHERE p.id = (SELECT b.before FROM network_before b WHERE b.id = n.id)) AS rx_rate,
  (SELECT (n.tx_bytes - p.tx_bytes) / ((n.ts - p.ts) / 1e9) FROM network p WHERE p.id = (SELECT b.before FROM network_before b WHERE b.id = n.id)) AS tx_rate,
  t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN network n ON n.id BETWEEN t.first_id AND t.last_id;

-- RSS and VMS each second (step NULL) and at the ends of steps (not of all steps that are shorter than some 30 ms). GPU: of this process.
CREATE VIEW memory AS
SELECT m.ts / 1e9 AS timestamp, NULL AS step, m.rss / 1e6 AS rss_mb, m.vms / 1e6 AS vms_mb,
  (SELECT sum(g.process_memory) / 1e6 FROM gpu g
   WHERE g.ts BETWEEN m.ts AND m.ts + 90000000 AND g.id BETWEEN t.first_id AND t.last_id) AS gpu_mb,
  NULL AS gpu_reserved_mb, m.rss, m.vms, t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN memory_sample m ON m.id BETWEEN t.first_id AND t.last_id
UNION ALL
SELECT m.ts / 1e9, m.step, m.rss / 1e6, m.vms / 1e6, m.gpu_allocated / 1e6, m.gpu_reserved / 1e6,
  m.rss, m.vms, t.id, t.pid, t.rank
FROM trace_file t JOIN memory_step m ON m.id BETWEEN t.first_id AND t.last_id;

-- The GPUs, as NVML reports them: a row each second (setting metrics) for each GPU.
CREATE VIEW gpu_metrics AS
SELECT g.ts / 1e9 AS timestamp, t.rank, g.device, g.util AS gpu_util, g.memory_used / 1e6 AS memory_used_mb,
  g.memory_total / 1e6 AS memory_total_mb, g.power_mw / 1e3 AS power_w, g.temperature, g.sm_clock AS sm_clock_mhz,
  g.process_memory / 1e6 AS process_memory_mb, g.memory_util, g.name, g.uuid, t.id AS trace_id, t.pid
FROM trace_file t JOIN gpu g ON g.id BETWEEN t.first_id AND t.last_id;
