--@ time: Where does the time go?
--? SELECT EXISTS (SELECT 1 FROM stack_total)
--! no samples were taken (probing-record -r HZ)
SELECT CASE WHEN python_on_cpu > 0
  THEN printf('%.1f s of threads were sampled, %.1f s of them on a CPU or waiting for one; %s of that in %s (%s), %.0f %%',
    (SELECT sum(seconds) FROM hot_functions), (SELECT sum(on_cpu) FROM hot_functions),
    iif(python_on_cpu > 0.5 * (SELECT sum(on_cpu) FROM hot_functions), 'most', 'the largest part'), func, coalesce(file, '?'),
    100 * python_on_cpu / (SELECT nullif(sum(on_cpu), 0) FROM hot_functions))
  ELSE printf('%.1f s of threads were sampled, %.1f s of them on a CPU or waiting for one, none of that in Python; most of the waiting in %s (%s)',
    (SELECT sum(seconds) FROM hot_functions), (SELECT sum(on_cpu) FROM hot_functions), func, coalesce(file, '?')) END AS answer
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
