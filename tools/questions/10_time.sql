--@ time: Where does the time go?
--? SELECT EXISTS (SELECT 1 FROM stack_total)
--! no samples were taken (probing-record -r HZ)
CREATE TEMP TABLE gil AS -- stacks of threads that wait for the GIL: it is the only condition on which CPython waits with a timeout (up to 3.13, free-threaded builds have none). Who wakes up just then is not seen, so it is at least that much
SELECT s.id AS stack FROM stack s WHERE s.type = 1 AND (s.name GLOB '*futex*' OR s.name GLOB '*cond_timedwait*' OR s.name GLOB '*lll_lock*' OR s.name GLOB 'lib*+0x*') AND EXISTS ( -- the last: glibc's internal functions have no names where its debugging symbols are not installed
  SELECT 1 FROM stack_frame k JOIN frame r ON r.id = k.frame WHERE k.stack = s.id AND k.depth < 4 AND r.name GLOB '*pthread_cond_timedwait*' AND EXISTS (
    SELECT 1 FROM stack_frame l JOIN frame c ON c.id = l.frame WHERE l.stack = s.id AND l.depth = k.depth + 1 AND c.type = 1 AND replace(c.module, rtrim(c.module, replace(c.module, '/', '')), '') GLOB '*python[23].*'));
CREATE TEMP TABLE waited AS SELECT sum(t.ns - t.running_ns) / 1e9 AS seconds FROM stack_total t JOIN gil ON gil.stack = t.stack;
SELECT CASE WHEN python_on_cpu > 0
  THEN printf('%.1f s of threads were sampled, %.1f s of them on a CPU or waiting for one; %s of that in %s (%s), %.0f %%',
    (SELECT sum(seconds) FROM hot_functions), (SELECT sum(on_cpu) FROM hot_functions),
    iif(python_on_cpu > 0.5 * (SELECT sum(on_cpu) FROM hot_functions), 'most', 'the largest part'), func, coalesce(file, '?'),
    100 * python_on_cpu / (SELECT nullif(sum(on_cpu), 0) FROM hot_functions))
  ELSE printf('%.1f s of threads were sampled, %.1f s of them on a CPU or waiting for one, none of that in Python; most of the waiting in %s (%s)',
    (SELECT sum(seconds) FROM hot_functions), (SELECT sum(on_cpu) FROM hot_functions), func, coalesce(file, '?')) END
  || coalesce((SELECT printf('; threads waited for the GIL for %.1f s at least', seconds) FROM waited WHERE seconds > 1 AND seconds > 0.05 * (SELECT sum(seconds) FROM hot_functions)), '') AS answer
FROM hot_functions ORDER BY python_on_cpu > 0 DESC, python_on_cpu DESC, python_seconds DESC, seconds DESC LIMIT 1;
--= Python functions, by the time on a CPU with them as the innermost Python one
SELECT func, file, round(python_on_cpu, 3) AS on_cpu, round(python_seconds - python_on_cpu, 3) AS waiting,
  round(total_seconds, 3) AS total FROM hot_functions WHERE python_seconds > 0 ORDER BY python_on_cpu DESC, python_seconds DESC LIMIT 10;
--= functions of any kind, by their own time on a CPU
SELECT func, file, round(on_cpu, 3) AS on_cpu, round(waiting, 3) AS waiting FROM hot_functions WHERE on_cpu > 0 ORDER BY on_cpu DESC LIMIT 10;
--= parts of a step, seconds (mean of the complete steps)
SELECT count(*) AS steps, round(avg(duration), 6) AS duration, round(avg(forward), 6) AS forward, round(avg(backward), 6) AS backward,
  round(avg(optimizer), 6) AS optimizer, round(avg(data), 6) AS data, round(avg(communication), 6) AS communication,
  round(avg(other), 6) AS other FROM steps WHERE complete AND source <> 'evaluation' GROUP BY NULL;
--= what waited for the GIL: seconds at least, by the line that it would have run
SELECT f.rank, f.pid, (SELECT e.text FROM stack_text e WHERE e.stack = t.stack ORDER BY e.depth LIMIT 1) AS line, round(sum(t.ns - t.running_ns) / 1e9, 3) AS seconds
FROM gil CROSS JOIN stack_total t ON t.stack = gil.stack JOIN trace_file f ON f.id = t.trace WHERE (SELECT seconds FROM waited) > 1 GROUP BY coalesce(f.program, f.id), line ORDER BY 4 DESC LIMIT 8;
