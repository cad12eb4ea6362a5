--@ traces: What was lost, and how far to trust it
--? SELECT EXISTS (SELECT 1 FROM trace)
--! There is no trace.
SELECT CASE WHEN lost + damaged + unclocked = 0 THEN printf('nothing was lost: %d trace%s complete', n, iif(n = 1, ' is', 's are'))
  ELSE printf('%d record%s known to be lost, %d of %d trace%s %s not complete%s', lost, iif(lost = 1, ' is', 's are'), damaged, n, iif(n = 1, '', 's'), iif(damaged = 1, 'is', 'are'),
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
SELECT rank, pid, round(agent, 3) AS agent_s, round(whole, 3) AS whole_s, round(100 * agent / whole, 2) AS share_percent
FROM (SELECT t.rank, t.pid, max(c.agent_us + c.handler_us) / 1e6 AS agent, max(c.user_us + c.system_us) / 1e6 AS whole
      FROM trace_file t CROSS JOIN cpu c ON c.id BETWEEN t.first_id AND t.last_id GROUP BY coalesce(t.program, t.id)) ORDER BY 5 DESC LIMIT 20;
