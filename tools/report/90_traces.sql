--@ traces: What was lost, and how far to trust it
--? SELECT count(*) FROM trace
--! There is no trace.
SELECT CASE WHEN lost + damaged + unclocked = 0 THEN printf('nothing was lost: %d traces are complete', n)
  ELSE printf('%d records are known to be lost, %d of %d traces are not complete%s', lost, damaged, n,
    CASE WHEN unclocked THEN printf(', and %d have no clock that can be compared', unclocked) ELSE '' END) END AS answer
FROM (SELECT count(*) AS n, sum(lost) AS lost, sum(NOT complete) AS damaged, sum(clock = 'none') AS unclocked FROM trace);
--= table: Lost, by reason
SELECT l.reason, sum(l.count) AS records, count(DISTINCT l.trace_id) AS traces FROM loss l GROUP BY 1 ORDER BY 2 DESC;
--= table: Traces
SELECT t.id, t.host, t.rank, t.role, t.pid, round(t.duration, 2) AS recorded_s, t.records, t.lost, CASE t.complete WHEN 1 THEN 'yes' ELSE 'no' END AS complete,
  t.end_reason, t.clock, round(1e3 * t.clock_uncertainty, 4) AS uncertainty_ms, t.command FROM trace t ORDER BY t.complete, t.lost DESC, t.rank;
--= table: What the recorder had to say
SELECT strftime('%H:%M:%f', timestamp, 'unixepoch') AS time, trace_id, level, part, text FROM notes ORDER BY level = 'info', timestamp LIMIT 50;
--= table: What recording cost, seconds of a processor
SELECT rank, pid, round(max(agent_seconds), 3) AS agent_s, round(max(user_seconds + system_seconds), 3) AS whole_s,
  round(100 * max(agent_seconds) / max(user_seconds + system_seconds), 2) AS share_percent FROM cpu_utilization GROUP BY trace_id ORDER BY 5 DESC LIMIT 20;
