--@ diff: What changed between two runs? (--a RUN --b RUN; without them the first two)
--? SELECT count(DISTINCT side) > 1 FROM item WHERE name = 'processes' AND value > 0
--! there is nothing of one of the two (view runs lists the runs)
-- item and setting are what tools/embed/diff_side.sql gave of each side (printed above).
CREATE TEMP TABLE pair AS
SELECT section, name, max(CASE side WHEN 'a' THEN value END) AS a, max(CASE side WHEN 'b' THEN value END) AS b,
  sqrt(sum(noise * noise) + coalesce((SELECT sum(u.value * u.value) FROM item u WHERE u.section = 'unseen' AND item.section IN ('function', 'thread')
    AND NOT EXISTS (SELECT 1 FROM item i WHERE i.side = u.side AND i.section = item.section AND i.name = item.name)), 0)) AS noise
FROM item WHERE section NOT IN ('unseen', 'seen') GROUP BY section, name;
CREATE TEMP TABLE differs AS -- by several times what the sides themselves vary by: of a hundred functions, one differs by three times that without a cause. (What varies is known from 16 parts.)
-- No trifles of a step, nor of memory (that of one process has no spread to see), nor half a thread. Parts of a step, modules and collectives are measured by the clock: they count
-- if they differ by more than what the threads waited for a processor differs by, as that may have been in any of them. What is in ten parts of one side and nowhere in the other is new there.
SELECT *, coalesce(b, 0) - coalesce(a, 0) AS more FROM (SELECT *, CASE WHEN count(*) OVER (PARTITION BY section) < 10 THEN 3.5 WHEN count(*) OVER (PARTITION BY section) < 100 THEN 4.5 ELSE 5.5 END * noise
  + coalesce((SELECT abs(coalesce(w.b, 0) - coalesce(w.a, 0)) FROM pair w WHERE w.section = 'function' AND w.name = 'waiting for a processor' AND pair.section IN ('step', 'module', 'collective') AND pair.name <> 'a step'), 0) AS least,
    section = 'function' AND (a IS NULL OR b IS NULL) AND EXISTS (SELECT 1 FROM item i WHERE i.section = 'seen' AND i.name = pair.name AND i.value >= 10) AS is_new
  FROM pair)
WHERE section <> 'steps' AND abs(coalesce(b, 0) - coalesce(a, 0)) > iif(is_new, 0, least) AND abs(coalesce(b, 0) - coalesce(a, 0)) > 0.002 * CASE section
  WHEN 'threads' THEN 250 WHEN 'memory' THEN 10 * max(coalesce(a, 0), coalesce(b, 0)) ELSE coalesce((SELECT p.a FROM pair p WHERE p.name = 'a step' AND p.section = 'step'), (SELECT sum(p.a) FROM pair p WHERE p.section = 'function'), 0) END;
CREATE TEMP TABLE changed AS -- a rank that does more makes all others wait, together for longer than it works. is_machine: what else runs on it makes that differ, in equal runs, too
SELECT name, more, name LIKE '%(distributed_c10d.py)' AS waits, name = 'waiting for a processor' AS is_machine FROM differs WHERE section = 'function';
SELECT CASE WHEN s.a IS NULL OR s.b IS NULL THEN printf('%.1f s against %.1f s', t.a, t.b)
  WHEN NOT EXISTS (SELECT 1 FROM differs WHERE name = 'a step' AND section = 'step') AND EXISTS (SELECT 1 FROM differs WHERE section IN ('step', 'function') AND name <> 'waiting for a processor')
  THEN printf('a step takes as long in both, %.4f s and %.4f s, give or take %.4f s, and goes elsewhere', s.a, s.b, s.least)
  WHEN NOT EXISTS (SELECT 1 FROM differs WHERE name = 'a step' AND section = 'step')
  THEN printf('nothing that stands out of the noise%s: a step takes %.4f s and %.4f s, give or take %.4f s', iif(EXISTS (SELECT 1 FROM changed), ' but what the machine does', ''), s.a, s.b, s.least)
  ELSE printf('a step takes %.4f s in the one and %.4f s in the other, %+.1f %%', s.a, s.b, 100 * (s.b / s.a - 1)) END
  || coalesce((SELECT printf('; %s spends %.4f s more in %s, %s %.4f s more in %s', one, -less.more, less.name, other, most.more, most.name)
      || coalesce((SELECT printf('; and %s %.4f s more waiting for a processor', iif(more < 0, one, other), abs(more)) FROM changed WHERE is_machine), '')
    FROM (SELECT iif(a <> b, a, 'the one') AS one, iif(a <> b, b, 'the other') AS other FROM (SELECT max(iif(side = 'a', value, NULL)) AS a, max(iif(side = 'b', value, NULL)) AS b FROM setting WHERE kind = 'program' AND name = 'rank'))
    JOIN (SELECT * FROM changed WHERE NOT is_machine ORDER BY more LIMIT 1) less JOIN (SELECT * FROM changed WHERE NOT is_machine ORDER BY more DESC LIMIT 1) most ON less.more < 0 AND most.more > 0
    WHERE s.a NOT NULL AND s.b NOT NULL AND NOT EXISTS (SELECT 1 FROM differs WHERE name = 'a step' AND section = 'step')), -- of two ranks of a job, the one works while the other waits for it
  (SELECT CASE WHEN top.waits AND abs(own.more) * (SELECT max(value) FROM item WHERE name = 'processes') > 0.5 * abs(top.more)
      THEN printf('; most of the difference comes from %s, %+.4f s in the mean of all ranks, which wait for each other in %s, %+.4f s', own.name, own.more, top.name, top.more)
    ELSE printf('; most of the difference is in %s, %+.4f s', top.name, top.more)
      || iif(top.is_machine, coalesce((SELECT printf('; of the program itself, in %s, %+.4f s', name, more) FROM changed WHERE NOT is_machine ORDER BY abs(more) DESC LIMIT 1), ''), '') END
    FROM (SELECT * FROM changed ORDER BY abs(more) DESC LIMIT 1) top
    LEFT JOIN (SELECT * FROM changed WHERE NOT waits ORDER BY abs(more) DESC LIMIT 1) own ON own.more * top.more > 0), '')
  || coalesce((SELECT '; ' || group_concat(said, '; ') FROM ( -- what makes two runs hard to compare
    SELECT printf('%d processes in the one, %d in the other', a, b) AS said FROM pair WHERE section = 'steps' AND name = 'processes' AND a <> b UNION ALL
    SELECT printf('%s %s in the one, %s in the other', name, a, b) FROM (SELECT name, max(CASE side WHEN 'a' THEN value END) AS a, max(CASE side WHEN 'b' THEN value END) AS b FROM setting
      WHERE kind = 'version' AND name IN ('torch', 'python') OR kind = 'variable' GROUP BY name) WHERE a <> b)), '') AS answer
FROM (SELECT 1) LEFT JOIN (SELECT a, b, max(3.5 * noise, 0.002 * a) AS least FROM pair WHERE name = 'a step' AND section = 'step') s JOIN pair t ON t.name = 'seconds'; -- least: as in differs
--= the two
SELECT i.side, (SELECT value FROM setting WHERE side = i.side AND kind = 'program' AND name = 'command') AS command, max(CASE name WHEN 'seconds' THEN round(value, 1) END) AS seconds,
  max(CASE name WHEN 'processes' THEN CAST(value AS INTEGER) END) AS processes, max(CASE name WHEN 'steps' THEN CAST(value AS INTEGER) END) AS steps
FROM item i WHERE section = 'steps' GROUP BY i.side;
--= parts of a step, seconds; more: b - a; noise: what the two themselves vary by
SELECT name AS part, round(a, 6) AS a, round(b, 6) AS b, round(more, 6) AS more, round(noise, 6) AS noise FROM differs WHERE section = 'step' ORDER BY abs(more) DESC;
--= functions, as the innermost Python one: seconds a step (without steps: of a process)
SELECT name AS func, round(a, 6) AS a, round(b, 6) AS b, round(more, 6) AS more, round(noise, 6) AS noise FROM differs WHERE section = 'function' ORDER BY abs(more) DESC LIMIT 20;
--= modules, seconds a step
SELECT name AS module, round(a, 6) AS a, round(b, 6) AS b, round(more, 6) AS more, round(noise, 6) AS noise FROM differs WHERE section = 'module' ORDER BY abs(more) DESC LIMIT 20;
--= collectives, seconds a step
SELECT name AS collective, round(a, 6) AS a, round(b, 6) AS b, round(more, 6) AS more, round(noise, 6) AS noise FROM differs WHERE section = 'collective' ORDER BY abs(more) DESC LIMIT 20;
--= threads, by name (# for numbers): how many there were in a process
SELECT name AS thread, round(a, 2) AS a, round(b, 2) AS b, round(more, 2) AS more, round(noise, 2) AS noise FROM differs WHERE section = 'threads' ORDER BY abs(more) DESC LIMIT 20;
--= CPU of threads, by name: seconds a step (without steps: of a process)
SELECT name AS thread, round(a, 6) AS a, round(b, 6) AS b, round(more, 6) AS more, round(noise, 6) AS noise FROM differs WHERE section = 'thread' ORDER BY abs(more) DESC LIMIT 20;
--= memory
SELECT name AS memory, round(a, 1) AS a, round(b, 1) AS b, round(more, 1) AS more, round(noise, 1) AS noise FROM differs WHERE section = 'memory' ORDER BY abs(more) DESC;
--= settings, versions, environment and recorded variables (of few values) that differ
SELECT kind, name, max(CASE side WHEN 'a' THEN value END) AS a, max(CASE side WHEN 'b' THEN value END) AS b FROM setting
WHERE kind <> 'program' AND name <> 'probing.session' AND NOT (kind = 'environment' AND name IN ('RANK', 'LOCAL_RANK', 'GROUP_RANK', 'ROLE_RANK', 'MASTER_PORT', 'TORCHELASTIC_RUN_ID', 'TORCHELASTIC_ERROR_FILE'))
  AND NOT (kind = 'machine' AND name LIKE '%oom_kill%')
GROUP BY kind, name HAVING a IS NOT b ORDER BY kind, name;
