--@ last: What happened in the last second?
--? SELECT EXISTS (SELECT 1 FROM trace)
--! there is no trace
CREATE TEMP TABLE final AS -- of the ranks, where there are such: a launcher stays for a while when they are gone
SELECT max("end") AS at FROM trace WHERE (rank IS NOT NULL) = (SELECT max(rank IS NOT NULL) FROM trace);
SELECT printf('the last moment recorded is %s, of %s, which %s', strftime('%Y-%m-%d %H:%M:%f', "end", 'unixepoch'),
  coalesce('rank ' || rank || ' (process ' || pid || ')', 'rank ' || rank, 'process ' || pid, 'a process that is not named'), CASE WHEN end_reason IS NOT NULL THEN 'ended "' || end_reason || '"' WHEN is_running(boot_id, pid) THEN 'still runs'
    ELSE 'has no end in its recording (copied while it ran, or its machine went down)' END) AS answer FROM trace
WHERE "end" <= (SELECT at FROM final) ORDER BY "end" DESC LIMIT 1;
--= how each process ended
SELECT rank, pid, round("end" - (SELECT at FROM final), 3) AS "end", coalesce(end_reason, iif(is_running(boot_id, pid), 'still runs', 'no end recorded')) AS reason, signal, exit_code FROM trace
WHERE id NOT IN (SELECT f.id FROM trace_file f JOIN trace_file later ON later.program = f.program AND coalesce(later.finish_ts, later.end_ts) > coalesce(f.finish_ts, f.end_ts)) ORDER BY "end" LIMIT 20; -- of a recording in several files the last
--= what the threads did, innermost Python line
SELECT rank, thread, func, file, lineno, state, round(sum(seconds), 3) AS seconds FROM (
  SELECT b.rank, b.thread, b.sample_id, b.func, b.file, b.lineno, b.state, min(b.seconds, b.timestamp + b.seconds - final.at + 1) AS seconds, min(b.depth)
  FROM final CROSS JOIN backtrace b -- a thread that sleeps has one sample for up to a second
  WHERE b.timestamp BETWEEN final.at - 3 AND final.at + 0.001 AND b.timestamp + b.seconds > final.at - 1 AND b.frame_type = 'Python' GROUP BY b.sample_id)
GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY seconds DESC LIMIT 15;
--= collectives, steps, events and triggers
SELECT round(time - (SELECT at FROM final), 3) AS time, rank, what FROM (
  SELECT timestamp AS time, rank, op || ' ' || seq || CASE complete WHEN 1 THEN '' ELSE ' (not complete)' END AS what FROM comm_metrics UNION ALL
  SELECT timestamp, rank, 'step ' || step || ' began' FROM steps WHERE step IS NOT NULL UNION ALL
  SELECT timestamp, rank, 'event ' || name FROM events UNION ALL
  SELECT timestamp, rank, 'trigger ' || kind || ' ' || coalesce(detail, '') FROM triggers)
WHERE time BETWEEN (SELECT at FROM final) - 1 AND (SELECT at FROM final) + 0.001 ORDER BY time DESC LIMIT 30;
