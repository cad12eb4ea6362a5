--@ last: What happened in the last second?
--? SELECT count(*) FROM trace
--! there is no trace
CREATE TEMP TABLE final AS SELECT max("end") AS at FROM trace;
SELECT printf('the last moment recorded is %s, of rank %s (process %d), which ended %s', strftime('%Y-%m-%d %H:%M:%f', "end", 'unixepoch'),
  coalesce(rank, '-'), pid, coalesce('"' || end_reason || '"', 'without a word')) AS answer FROM trace ORDER BY "end" DESC LIMIT 1;
--= how each process ended
SELECT rank, pid, round("end" - (SELECT at FROM final), 3) AS "end", coalesce(end_reason, 'no word') AS reason, signal FROM trace ORDER BY "end" LIMIT 20;
--= what the threads did, innermost Python line
SELECT rank, thread, func, file, lineno, state, round(sum(seconds), 3) AS seconds FROM (
  SELECT b.rank, b.thread, b.sample_id, b.func, b.file, b.lineno, b.state, b.seconds, min(b.depth) FROM backtrace b, final
  WHERE b.timestamp > final.at - 1 AND b.frame_type = 'Python' GROUP BY b.sample_id)
GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY seconds DESC LIMIT 15;
--= collectives, steps, events and triggers
SELECT round(time - (SELECT at FROM final), 3) AS time, rank, what FROM (
  SELECT timestamp AS time, rank, op || ' ' || seq || CASE complete WHEN 1 THEN '' ELSE ' (not complete)' END AS what FROM comm_metrics UNION ALL
  SELECT timestamp, rank, 'step ' || step || ' began' FROM steps WHERE step IS NOT NULL UNION ALL
  SELECT timestamp, rank, 'event ' || name FROM events UNION ALL
  SELECT timestamp, rank, 'trigger ' || kind || ' ' || coalesce(detail, '') FROM triggers)
WHERE time > (SELECT at FROM final) - 1 ORDER BY time DESC LIMIT 30;
