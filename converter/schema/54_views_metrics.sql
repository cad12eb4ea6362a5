-- SPDX-License-Identifier: Apache-2.0
CREATE VIEW memory_usage AS
SELECT m.ts / 1e9 AS timestamp, m.rss / 1e6 AS memory_mb, m.rss, m.vms, m.shared, m.data, m.swap,
  m.peak, t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN memory_sample m ON m.id BETWEEN t.first_id AND t.last_id;

-- Percent of one CPU since the row before (NULL in the first row of a trace); counters are the
-- process's own, since its start. agent_seconds is what recording itself cost.
CREATE VIEW cpu_utilization AS
SELECT timestamp,
  (d_user + d_system) / elapsed * 1e-4 AS cpu_percent,
  d_user / elapsed * 1e-4 AS user_percent, d_system / elapsed * 1e-4 AS system_percent,
  user_us / 1e6 AS user_seconds, system_us / 1e6 AS system_seconds, threads,
  voluntary AS voluntary_switches, involuntary AS involuntary_switches,
  minor_faults, major_faults, (agent_us + handler_us) / 1e6 AS agent_seconds,
  trace_id, pid, rank
FROM (
  SELECT c.*, c.ts / 1e9 AS timestamp, t.id AS trace_id, t.pid, t.rank,
    nullif(c.ts - lag(c.ts) OVER w, 0) / 1e9 AS elapsed,
    c.user_us - lag(c.user_us) OVER w AS d_user,
    c.system_us - lag(c.system_us) OVER w AS d_system
  FROM trace_file t JOIN cpu c ON c.id BETWEEN t.first_id AND t.last_id
  WINDOW w AS (PARTITION BY t.id ORDER BY c.ts)
);

-- Counters since the start of the process, and bytes per second since the row before.
CREATE VIEW io_statistics AS
SELECT i.ts / 1e9 AS timestamp, i.read_bytes, i.write_bytes, i.rchar, i.wchar, i.syscr, i.syscw,
  (i.read_bytes - lag(i.read_bytes) OVER w) / (nullif(i.ts - lag(i.ts) OVER w, 0) / 1e9) AS read_rate,
  (i.write_bytes - lag(i.write_bytes) OVER w) / (nullif(i.ts - lag(i.ts) OVER w, 0) / 1e9) AS write_rate,
  (i.rchar - lag(i.rchar) OVER w) / (nullif(i.ts - lag(i.ts) OVER w, 0) / 1e9) AS rchar_rate,
  (i.wchar - lag(i.wchar) OVER w) / (nullif(i.ts - lag(i.ts) OVER w, 0) / 1e9) AS wchar_rate,
  t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN io i ON i.id BETWEEN t.first_id AND t.last_id
WINDOW w AS (PARTITION BY t.id ORDER BY i.ts);

CREATE VIEW network_statistics AS
SELECT n.ts / 1e9 AS timestamp, n.interface, n.rx_bytes, n.tx_bytes, n.rx_packets, n.tx_packets,
  n.rx_errors, n.tx_errors,
  (n.rx_bytes - lag(n.rx_bytes) OVER w) / (nullif(n.ts - lag(n.ts) OVER w, 0) / 1e9) AS rx_rate,
  (n.tx_bytes - lag(n.tx_bytes) OVER w) / (nullif(n.ts - lag(n.ts) OVER w, 0) / 1e9) AS tx_rate,
  t.id AS trace_id, t.pid, t.rank
FROM trace_file t JOIN network n ON n.id BETWEEN t.first_id AND t.last_id
WINDOW w AS (PARTITION BY t.id, n.interface ORDER BY n.ts);

-- RSS and VMS per second (step NULL) and at the ends of steps (of those under some 30 ms not of all); GPU: of this process.
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

CREATE VIEW gpu_metrics AS
SELECT g.ts / 1e9 AS timestamp, t.rank, g.device, g.util AS gpu_util, g.memory_used / 1e6 AS memory_used_mb,
  g.memory_total / 1e6 AS memory_total_mb, g.power_mw / 1e3 AS power_w, g.temperature, g.sm_clock AS sm_clock_mhz,
  g.process_memory / 1e6 AS process_memory_mb, g.memory_util, g.name, g.uuid, t.id AS trace_id, t.pid
FROM trace_file t JOIN gpu g ON g.id BETWEEN t.first_id AND t.last_id;
