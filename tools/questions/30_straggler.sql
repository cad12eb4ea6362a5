--@ straggler: Who is the straggler, what does it cost, and why is it late?
--? SELECT EXISTS (SELECT 1 FROM collectives WHERE arrived > 1) OR (SELECT count(*) FROM (SELECT 1 FROM trace_file f WHERE EXISTS (SELECT 1 FROM comm c WHERE c.id BETWEEN f.first_id AND f.last_id AND c.op IN ('send', 'recv')) LIMIT 2)) = 2
--! no straggler can be told: no collective and no message is here of which two ranks were recorded (one process alone, or none of torch.distributed with gloo, nccl or mpi; give the traces of all ranks)
-- The rule, all of it. Of what came before the first step (of a run without steps: the first collective) nothing counts: ranks begin when they can.
-- A rank is named when one of these holds:
-- I. It is late throughout, by however little. The collectives are cut into `units` parts, and into one each; the rank that is waited for longest in a part wins it, where no
--   collective counts for more than `cap` times what the longest of a part is for, by their median: one long wait says nothing. It wins more parts than chance would give it
--   (`errors` times the error of a count beyond one rank's share of them) and more than half, or a fifth and four times what any other wins (of very many ranks), most of them in each quarter of the run, and its lead over the next is `little` of the run's time. The collectives go on for `seconds` or more: for so long a busy machine can favour a rank.
-- II. It costs much, if not so evenly: the others waited for it for more than half of all the waiting (of two ranks one is always ahead: three quarters), `least` of the
--   run's time or more, and `brief` seconds (in a run of a second a rank may be behind throughout by chance), and it is no chance: its lead over the next rank is, from tenth to tenth of the collectives, more than `errors` times the error of its mean; or the collectives go
--   on for `seconds`, it is waited for longest in `led` of the tenths (of two ranks, where nine of ten is chance once in fifty runs, in all), and all but the worst one together are `least`, too; or
--   it is `once` of the run's time, whenever it was, with a word on that.
-- On a busy machine each rank is late for a time, and that can be half of all waiting and a good part of a short run: but of 36 healthy runs of two to eight ranks, simulated with much jitter and real
-- ones of gloo on two processors with a load of 17, none won its quarters, or more than 0.55 of the parts; a rank that is late by 1 % of a step won 0.62 of them where the network is quiet, by 3 % and more nearly all.
CREATE TEMP TABLE rule AS SELECT 0.05 AS least, 0.25 AS brief, 0.005 AS little, 40 AS units, 4 AS cap, 10 AS seconds, 4.5 AS errors, 0.9 AS led, 0.25 AS once;
CREATE TEMP TABLE began AS -- each attempt, with its first step; the first collective of one without steps begins it
WITH step AS MATERIALIZED (SELECT f.run, f.attempt, min(s.ts) / 1e9 AS at FROM trace_file f JOIN torch_step s ON s.id BETWEEN f.first_id AND f.last_id
  WHERE s.source <> 3 AND s.duration IS NOT NULL AND f.rank IS NOT NULL GROUP BY f.run, f.attempt)
SELECT f.run, f.attempt, coalesce(s.at, c.at) AS at FROM (SELECT DISTINCT run, attempt FROM trace_file) f
LEFT JOIN (SELECT run, attempt, min(first_enter) + 1e-6 AS at FROM collectives GROUP BY run, attempt) c ON c.run IS f.run AND c.attempt = f.attempt
LEFT JOIN step s ON s.run IS f.run AND s.attempt = f.attempt WHERE coalesce(s.at, c.at) NOT NULL;
CREATE TEMP TABLE took AS -- a run takes as long as its ranks do, each by its own clock
SELECT run, sum(seconds) AS seconds FROM (SELECT f.run, f.attempt, max(seconds - max(0, coalesce(b.at, 0) - began)) AS seconds FROM (
    SELECT run, attempt, min(start_ts) / 1e9 AS began, (max(end_ts) - min(start_ts)) / 1e9 AS seconds FROM trace_file f
    WHERE rank NOT NULL OR EXISTS (SELECT 1 FROM comm c WHERE c.id BETWEEN f.first_id AND f.last_id) GROUP BY run, attempt, coalesce(rank, 'trace ' || id)) f
  LEFT JOIN began b ON b.run IS f.run AND b.attempt = f.attempt GROUP BY f.run, f.attempt)
GROUP BY run;
CREATE TEMP TABLE waited AS -- of each collective: who was waited for, by clocks and durations both (NULL: they do not agree), and for how long: as in the view, what another one in flight counts already left out
SELECT run, size, rank, at, before, min(cost, max(last_enter - waited_until, 0)) AS cost FROM (
  SELECT *, coalesce(max(last_enter) OVER (PARTITION BY run, before, rank ORDER BY last_enter - cost ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS waited_until FROM (
    SELECT c.run, c.size, iif(last_rank = shortest_rank, last_rank, NULL) AS rank, first_enter AS at, first_enter < b.at AS before, last_enter, min(skew_ms, longest_ms - shortest_ms) / 1e3 AS cost
    FROM collectives c JOIN began b ON b.run IS c.run AND b.attempt = c.attempt WHERE complete = arrived AND arrived > 1 AND op <> 'barrier' AND skew_ms NOT NULL));
CREATE TEMP TABLE waits AS
SELECT run, ntile(10) OVER w AS tenth, row_number() OVER w - 1 AS nth, count(*) OVER (PARTITION BY run) AS n, size, rank, cost, at
FROM waited WHERE NOT before WINDOW w AS (PARTITION BY run ORDER BY at);
CREATE TEMP TABLE parts AS -- scale 1: into `units`; scale 2: each for itself (of very many: some thousands)
SELECT run, column1 AS scale, nth * most / n AS part, nth * most / n * 4 / most AS quarter, rank, cost, most AS parts, size FROM (
  SELECT w.*, column1, min(n, iif(column1 = 1, units, 4000)) AS most FROM waits w, rule, (VALUES(1), (2)) WHERE n >= 16 AND (column1 = 2 OR n < 100000));
CREATE TEMP TABLE capped AS -- of each part and rank: for how long, where no collective counts for more than the cap
WITH caps AS MATERIALIZED (SELECT run, scale, (SELECT cap FROM rule) * median(most) AS cap FROM (SELECT run, scale, part, max(iif(rank IS NULL, 0, cost)) AS most FROM parts GROUP BY run, scale, part) GROUP BY run, scale)
SELECT p.run, p.scale, part, quarter, rank, sum(min(cost, cap)) AS cost FROM parts p JOIN caps c ON c.run IS p.run AND c.scale = p.scale WHERE rank NOT NULL GROUP BY p.run, p.scale, part, rank;
CREATE TEMP TABLE won AS -- of each rank and quarter: how many parts it won, and for how long it was waited for
WITH winner AS MATERIALIZED (SELECT run, scale, part, rank, max(cost) FROM capped GROUP BY run, scale, part)
SELECT c.run, c.scale, c.quarter, c.rank, count(w.rank) AS wins, sum(c.cost) AS cost FROM capped c LEFT JOIN winner w ON w.run IS c.run AND w.scale = c.scale AND w.part = c.part AND w.rank = c.rank
GROUP BY c.run, c.scale, c.quarter, c.rank;
CREATE TEMP TABLE throughout AS -- who is late throughout, of each run at most one; share: of the parts, those that it won
WITH of_all AS (SELECT run, scale, rank, sum(wins) AS wins, sum(cost) AS cost, row_number() OVER (PARTITION BY run, scale ORDER BY sum(wins) DESC, sum(cost) DESC) AS nth FROM won GROUP BY run, scale, rank),
  best AS (SELECT o.*, o.cost - coalesce(max(x.cost), 0) AS lead, coalesce(max(x.wins), 0) AS next_wins FROM of_all o LEFT JOIN of_all x ON x.run IS o.run AND x.scale = o.scale AND x.nth > 1
    WHERE o.nth = 1 GROUP BY o.run, o.scale),
  dims AS (SELECT run, scale, max(parts) AS parts, 1.0 / max(size) AS chance FROM parts GROUP BY run, scale)
SELECT b.run, b.rank, max(1.0 * b.wins / d.parts) AS share FROM best b JOIN dims d ON d.run IS b.run AND d.scale = b.scale JOIN took t ON t.run IS b.run
WHERE (SELECT max(at) - min(at) FROM waits w WHERE w.run IS b.run) >= (SELECT seconds FROM rule) AND b.lead >= (SELECT little FROM rule) * t.seconds AND b.wins > d.parts * (d.chance + (SELECT errors FROM rule) * sqrt(d.chance * (1 - d.chance) / d.parts))
  AND (b.wins > 0.5 * d.parts OR b.wins >= 0.2 * d.parts AND b.wins >= 4 * b.next_wins)
  AND 4 = (SELECT count(*) FROM won q WHERE q.run IS b.run AND q.scale = b.scale AND q.rank = b.rank
    AND q.wins > coalesce((SELECT max(x.wins) FROM won x WHERE x.run IS q.run AND x.scale = q.scale AND x.quarter = q.quarter AND x.rank <> q.rank), 0))
GROUP BY b.run HAVING min(b.rank) = max(b.rank);
CREATE TEMP TABLE late AS -- who is late throughout, and the view's order; each run by itself
WITH of_rank AS MATERIALIZED (SELECT run, rank, sum(cost) AS cost FROM waits WHERE rank NOT NULL GROUP BY run, rank),
  one AS (SELECT s.run, s.rank, s.collectives, s.came_last, s.was_shortest, s.imposed_seconds, s.waited_seconds, coalesce(c.cost, 0) AS others_waited, e.share
    FROM stragglers s LEFT JOIN of_rank c ON c.rank = s.rank AND c.run IS s.run LEFT JOIN throughout e ON e.rank = s.rank AND e.run IS s.run)
SELECT *, row_number() OVER (PARTITION BY run ORDER BY share IS NULL, others_waited DESC, imposed_seconds DESC, rank) AS nth, sum(others_waited) OVER (PARTITION BY run) AS of_all,
  count(*) OVER (PARTITION BY run) AS ranks FROM one;
CREATE TEMP TABLE lead AS -- of each tenth of the collectives: how long the others waited for the rank in question, and by how much longer than for the next one
WITH one AS MATERIALIZED (SELECT run, tenth, rank, sum(cost) AS cost, count(*) AS n FROM waits GROUP BY run, tenth, rank)
SELECT one.run, tenth, sum(CASE late.nth WHEN 1 THEN one.cost WHEN 2 THEN -one.cost ELSE 0 END) AS seconds, sum(one.cost) FILTER (WHERE late.nth = 1) AS cost,
  coalesce(max(one.cost) FILTER (WHERE late.nth = 1) = max(one.cost) FILTER (WHERE late.nth), 0) AS is_most, sum(n) FILTER (WHERE late.nth = 1) AS times
FROM one LEFT JOIN late ON late.rank = one.rank AND late.run IS one.run GROUP BY one.run, tenth;
CREATE TEMP TABLE verdict AS -- of the rank in question of each run, the first one the worst
SELECT v.*, share NOT NULL OR is_most AND others_waited >= max(least * run_seconds, brief) AND is_sure AS is_named FROM (
SELECT v.*, others_waited > max(0.5, 1.5 / ranks) * of_all AS is_most, is_steady OR tenths > 3 AND lasted >= seconds AND leads >= iif(ranks > 2, led, 1) * tenths AND others_waited - most >= least * run_seconds OR others_waited >= once * run_seconds AS is_sure,
  100 * others_waited / run_seconds AS percent
FROM (SELECT l.*, t.seconds AS run_seconds, d.*, coalesce(d.tenths > 3 AND d.mean > r.errors * d.error, 0) AS is_steady, r.least, r.brief, r.little, r.led, r.once, r.seconds,
  (SELECT max(at) - min(at) FROM waits w WHERE w.run IS l.run) AS lasted FROM late l, rule r
  LEFT JOIN (SELECT run AS lead_run, count(*) AS tenths, sum(is_most) AS leads, coalesce(sum(times), 0) AS times, max(cost) AS most, avg(seconds) AS mean, stddev(seconds) / sqrt(count(*)) AS error
    FROM lead GROUP BY run) d ON d.lead_run IS l.run
  LEFT JOIN took t ON t.run IS l.run
  WHERE l.nth = 1) v) v
ORDER BY is_named DESC, others_waited DESC, imposed_seconds DESC;
CREATE TEMP TABLE piped AS -- the run that is replayed, where ranks wait for messages: with collectives, too, or (no waited_for) without
SELECT t.run, t.seconds AS run_seconds, r.least, v.rank AS waited_for, coalesce(v.is_named, 0) AS is_named FROM took t JOIN rule r LEFT JOIN verdict v ON v.rowid = 1
WHERE t.run IS replay('run') AND (v.rowid IS NULL OR v.run IS t.run) AND EXISTS (SELECT 1 FROM trace_file f WHERE f.run IS t.run AND EXISTS (
  SELECT 1 FROM (SELECT op FROM comm WHERE id BETWEEN f.first_id AND f.last_id LIMIT 2000) WHERE op IN ('send', 'recv')));
CREATE TEMP TABLE seen AS SELECT coalesce(nullif(replay('part'), 0), 1) AS part; -- of a long run the last part is replayed, and the rest is taken to be like it: what replay() saves is divided by the part
CREATE TEMP TABLE suspect AS -- who it is without whose lateness most would be saved: a rank that takes longer than its peers; or a stage (of one rank, which has no peers) that works longer than any other
SELECT 1 AS nth, replay('nth rank', 1) AS rank, NULL AS stage, NULL AS ranks, replay('rank', replay('nth rank', 1)) / part AS saved, replay('rank', replay('nth rank', 2)) / part AS next FROM piped, seen
UNION ALL SELECT 2, iif(json_array_length(ranks) = 1, ranks ->> 0, NULL), stage, (SELECT ranges(value) FROM json_each(ranks)), replay('stage', stage) / part, 0
FROM seen, (SELECT stage, replay('ranks of stage', stage) AS ranks FROM (SELECT replay('nth stage', 1) AS stage FROM piped)) WHERE stage NOT NULL;
CREATE TEMP TABLE cleared AS -- the rank that was waited for has mostly waited itself: less than half of that comes of its own lateness. (The first stage is the last to finish each step.)
SELECT 1 AS yes FROM piped p JOIN verdict v ON v.rowid = 1 AND v.is_named
WHERE max(coalesce(replay('rank', p.waited_for), 0) / (SELECT part FROM seen), coalesce((SELECT saved FROM suspect WHERE nth = 2 AND rank = p.waited_for), 0)) < 0.5 * v.others_waited;
CREATE TEMP TABLE behind AS -- who waits for messages is late for a collective by no fault of its own. Of those who save nearly as much as the best, the narrowest. Of a stage it must be twice as much: stages are never quite equal
SELECT * FROM (SELECT s.*, p.*, max(saved) OVER () AS most FROM suspect s, piped p
  WHERE saved >= s.nth * least * run_seconds AND saved >= 2 * coalesce(next, 0) AND NOT (is_named AND NOT EXISTS (SELECT 1 FROM cleared) AND (rank IS NULL OR rank = waited_for)))
WHERE saved >= 0.7 * most ORDER BY nth LIMIT 1;
CREATE TEMP TABLE unanswered AS SELECT 1 AS yes WHERE NOT EXISTS (SELECT 1 FROM verdict) AND NOT EXISTS (SELECT 1 FROM suspect WHERE saved NOT NULL) AND NOT EXISTS (SELECT 1 FROM collectives WHERE complete = arrived AND arrived > 1);
CREATE TEMP TABLE one AS -- the rank that the tables below are about, and its run
SELECT coalesce((SELECT rank FROM behind), (SELECT rank FROM verdict LIMIT 1)) AS rank, iif(EXISTS (SELECT 1 FROM verdict), (SELECT run FROM verdict LIMIT 1), (SELECT run FROM piped)) AS run;
CREATE TEMP TABLE together AS -- where several are late together, the others wait for one of them at a time, and would go on waiting without it
WITH node AS (SELECT host, count(DISTINCT t.rank) AS ranks, count(DISTINCT l.value) AS late FROM verdict v JOIN trace_file t ON t.run IS v.run LEFT JOIN json_each(replay('late')) l ON l.value = t.rank
  WHERE v.rowid = 1 AND t.rank NOT NULL AND t.attempt = replay('attempt') GROUP BY host)
SELECT s.*, (SELECT ranges(value) FROM json_each(replay('late'))) || coalesce((SELECT ', all of ' || group_concat(host, ', ') || ',' FROM node WHERE late HAVING min(late = ranks) AND count(*) <= 4 AND count(*) < (SELECT count(*) FROM node)), '') AS who
FROM (SELECT v.run_seconds, v.least, replay('group') / part AS saved, replay('rank', replay('nth rank', 1)) / part AS one FROM verdict v, seen WHERE v.rowid = 1 AND NOT (is_named AND others_waited > 0.8 * of_all) AND replay('run') IS v.run AND replay('late') NOT NULL) s
WHERE saved >= least * run_seconds AND saved >= 2 * coalesce(one, 0) AND NOT EXISTS (SELECT 1 FROM behind);
CREATE TEMP TABLE judged AS SELECT iif(part < 1, printf(', judged by its last %.2g %%', 100 * part), '') AS judged FROM seen;
CREATE TEMP TABLE said AS -- of where ranks wait for messages
SELECT CASE WHEN b.nth = 1 THEN printf('rank %d', b.rank) WHEN b.rank NOT NULL THEN printf('rank %d, stage %d of the pipeline', b.rank, b.stage) ELSE printf('stage %d of the pipeline%s', b.stage, iif(length(b.ranks) < 60, ' (ranks ' || b.ranks || ')', '')) END
  || iif((SELECT count(*) FROM verdict) > 1, ' of run ' || b.run, '') || printf(': without its lateness the run would take %.1f s less, %.0f %%%s; ranks wait for messages here', b.saved, 100 * b.saved / b.run_seconds, (SELECT judged FROM judged))
  || iif(v.of_all >= 0.5 * v.least * v.run_seconds, printf(', and are late for collectives then (in those rank %d was waited for longest, %.1f of %.1f s; `probing ask what_if`)', v.rank, v.others_waited, v.of_all), ' (`probing ask what_if`)') AS answer
FROM behind b LEFT JOIN verdict v ON v.rowid = 1
UNION ALL SELECT printf('no straggler: ranks wait for messages here%s, and without the lateness of %s the run would take at most %.1f s less, %.1f %%%s',
  coalesce((SELECT printf(', and are late for collectives then (in those rank %d was waited for longest, %.1f of %.1f s)', rank, others_waited, of_all) FROM verdict WHERE rowid = 1 AND is_named), ''),
  iif(rank NOT NULL, printf('rank %d', rank), printf('stage %d', stage)), saved, 100 * saved / run_seconds, (SELECT judged FROM judged))
FROM (SELECT * FROM suspect, piped WHERE saved NOT NULL ORDER BY saved DESC LIMIT 1)
WHERE NOT EXISTS (SELECT 1 FROM behind) AND (EXISTS (SELECT 1 FROM cleared) OR NOT EXISTS (SELECT 1 FROM verdict WHERE rowid = 1 AND (is_named OR of_all >= 0.5 * least * run_seconds)));
-- Why it is late: what its main thread does more of than those of other ranks, since the first step. That waits for nobody (it is the others who do), so of all that takes longer, the most takes it late.
CREATE TEMP TABLE subject AS -- the rank that is named, or the first of those that are late together; late: by how much in all
SELECT * FROM (SELECT o.run, iif(EXISTS (SELECT 1 FROM together), (SELECT min(value) FROM json_each(replay('late'))), o.rank) AS rank, (SELECT min(at) FROM began b WHERE b.run IS o.run) AS began,
  CASE WHEN EXISTS (SELECT 1 FROM together) THEN (SELECT saved FROM together) WHEN EXISTS (SELECT 1 FROM said) THEN (SELECT saved FROM behind WHERE rank NOT NULL)
    ELSE (SELECT others_waited FROM verdict WHERE is_named LIMIT 1) END AS late FROM one o) WHERE rank NOT NULL AND late > 0;
CREATE TEMP TABLE peer AS -- up to eight others that are not late with it, of the same stage and so on if there are such
WITH place AS MATERIALIZED (SELECT DISTINCT rank, dimension, "index" FROM roles WHERE dimension NOT GLOB 'd*' AND dimension NOT GLOB 'fsdp*')
SELECT * FROM (SELECT rank, row_number() OVER (ORDER BY same DESC, rank * 40503 & 0xffff) AS nth FROM (
  SELECT f.rank, (SELECT count(*) FROM place a JOIN place b ON b.dimension = a.dimension AND b."index" = a."index" WHERE a.rank = f.rank AND b.rank = s.rank) AS same
  FROM subject s JOIN (SELECT DISTINCT run, rank FROM trace_file WHERE rank NOT NULL) f ON f.run IS s.run AND f.rank <> s.rank
  WHERE NOT EXISTS (SELECT 1 FROM together) OR f.rank NOT IN (SELECT value FROM json_each(replay('late'))))) WHERE nth <= 8;
CREATE TEMP TABLE compared AS -- the traces of all of these; kind: of the rank itself, or of a worker of its data loader
SELECT f.id AS trace, f.rank, f.rank = s.rank AS is_it, f.pid, f.first_id, f.last_id, f.periods, f.period_ns, CAST(s.began * 1e9 AS INTEGER) AS since, iif(f.role IS 'dataloader', 'loader', 'rank') AS kind
FROM subject s JOIN trace_file f ON f.run IS s.run AND (f.rank = s.rank OR f.rank IN (SELECT rank FROM peer))
WHERE f.role IS 'dataloader' OR EXISTS (SELECT 1 FROM comm c WHERE c.id BETWEEN f.first_id AND f.last_id) OR EXISTS (SELECT 1 FROM torch_step c WHERE c.id BETWEEN f.first_id AND f.last_id);
CREATE TEMP TABLE did AS -- what their threads did: seconds by stack
SELECT c.kind, c.rank, c.is_it, h.tid = c.pid AS is_main, h.name AS thread, s.stack, s.flags & 1 AS running, s.flags & 2 AS has_gil, min(c.period_ns) / 1e9 AS period, sum(s.count * CASE WHEN c.periods < 2 THEN c.period_ns ELSE (
    SELECT q.ns FROM period q WHERE q.trace = c.trace AND q.since <= s.ts ORDER BY q.since DESC LIMIT 1) END) / 1e9 AS seconds, sum(s.cpu_us) / 1e6 AS cpu
FROM compared c CROSS JOIN sample s ON s.id BETWEEN c.first_id AND c.last_id CROSS JOIN thread h ON h.id = c.first_id + s.thread
WHERE s.ts >= c.since AND s.count > 0 AND s.stack IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;
CREATE TEMP TABLE place AS -- the frames of each stack; is_python: of the interpreter's own native code
WITH used AS MATERIALIZED (SELECT DISTINCT stack FROM did WHERE is_main)
SELECT k.stack, k.depth, k.leaf, k.first, r.type, r.function, r.name, r.file, r.line, replace(r.module, rtrim(r.module, replace(r.module, '/', '')), '') GLOB '*python[23].*' AS is_python
FROM used u CROSS JOIN stack_frame k ON k.stack = u.stack CROSS JOIN frame r ON r.id = k.frame;
CREATE INDEX temp.place_of ON place(stack);
CREATE TEMP TABLE special AS -- waiting for the GIL (as in `probing ask time`); collecting garbage
SELECT s.id AS stack, 'gil' AS name FROM (SELECT DISTINCT stack FROM did WHERE is_main AND NOT running) d CROSS JOIN stack s ON s.id = d.stack
WHERE s.type = 1 AND (s.name GLOB '*futex*' OR s.name GLOB '*cond_timedwait*' OR s.name GLOB '*lll_lock*' OR s.name GLOB 'lib*+0x*')
  AND EXISTS (SELECT 1 FROM place k JOIN place l ON l.stack = k.stack AND l.depth = k.depth + 1 AND l.type = 1 AND l.is_python WHERE k.stack = s.id AND k.depth < 4 AND k.name GLOB '*pthread_cond_timedwait*')
UNION SELECT stack, 'gc' FROM place WHERE type = 1 AND (name IN ('gc_collect_main', 'gc_collect_generations', 'gc_collect_with_callback', 'gc_collect_region', 'gc_collect_young', 'gc_collect_full', 'gc_collect_increment', 'collect', 'collect_generations', 'collect_with_callback', '_PyGC_Collect', 'PyGC_Collect') AND is_python);
CREATE TEMP TABLE part AS -- of each rank: seconds in each Python function and what it calls; functions of number -1 to -3 are no functions
SELECT d.kind, d.rank, d.is_it, p.function, sum(d.seconds) AS seconds, sum(d.seconds * d.running) AS on_cpu, min(p.depth) AS depth FROM did d CROSS JOIN place p ON p.stack = d.stack AND p.type = 0 AND p.first WHERE d.is_main GROUP BY 1, 2, 3, 4
UNION ALL SELECT d.kind, d.rank, d.is_it, iif(x.name = 'gil', -1, -2), sum(d.seconds), sum(d.seconds * d.running), 0 FROM did d JOIN special x ON x.stack = d.stack WHERE d.is_main GROUP BY 1, 2, 3, 4
UNION ALL SELECT kind, rank, is_it, -3, max(0, sum(seconds * running) - sum(cpu)), max(0, sum(seconds * running) - sum(cpu)), 0 FROM did WHERE is_main GROUP BY 1, 2, 3;
CREATE TEMP TABLE more AS -- what it does more of than the median of the others, and than any, by more than samples may err
WITH n AS MATERIALIZED (SELECT count(*) AS ranks FROM peer), it AS MATERIALIZED (SELECT * FROM part WHERE is_it),
  usual AS MATERIALIZED (SELECT i.kind, i.function, median(coalesce(p.seconds, 0)) AS seconds, max(coalesce(p.seconds, 0)) AS most, median(coalesce(p.on_cpu, 0)) AS on_cpu FROM it i CROSS JOIN peer r LEFT JOIN part p ON p.kind = i.kind AND p.function = i.function AND p.rank = r.rank GROUP BY 1, 2)
SELECT i.kind, i.function, i.depth, i.seconds, u.seconds AS usual, i.seconds - u.seconds AS more, i.on_cpu - u.on_cpu AS on_cpu
FROM it i JOIN usual u ON u.kind = i.kind AND u.function = i.function
WHERE i.seconds - u.seconds > 4 * sqrt((i.seconds + u.seconds) * (SELECT max(period) FROM did)) AND i.seconds > u.most;
CREATE TEMP TABLE cause AS -- what is special, if it is half of it; else the function with as much of it as any (nearly), and the narrowest of those
SELECT m.*, f.name, f.file FROM (
  SELECT *, 1 AS nth FROM (SELECT m.* FROM more m, subject s WHERE kind = 'rank' AND function < 0 AND more > 0.5 * min(s.late, (SELECT max(more) FROM more WHERE kind = 'rank')) ORDER BY more DESC LIMIT 1)
  UNION ALL SELECT *, 2 FROM (SELECT m.* FROM more m, subject s WHERE kind = 'rank' AND function > 0 AND more > 0.8 * (SELECT max(more) FROM more WHERE kind = 'rank' AND function > 0) AND more > 0.3 * s.late ORDER BY seconds, depth LIMIT 1)
  UNION ALL SELECT *, 3 FROM (SELECT m.* FROM more m WHERE kind = 'loader' AND function > 0 AND more > 0.8 * (SELECT max(more) FROM more WHERE kind = 'loader' AND function > 0) ORDER BY seconds, depth LIMIT 1)) m
LEFT JOIN function f ON f.id = m.function;
CREATE TEMP TABLE step_part AS -- the part of a step that takes it longer: measured, not sampled
WITH a AS MATERIALIZED (SELECT s.rank, count(*) AS n, avg(s.forward) AS forward, avg(s.backward) AS backward, avg(s.optimizer) AS optimizer, avg(s.data) AS data FROM compared c JOIN steps s ON s.trace_id = c.trace
    WHERE c.kind = 'rank' AND s.complete AND s.source <> 'evaluation' GROUP BY s.rank),
  parts AS MATERIALIZED (SELECT rank, n, column1 AS name, CASE column1 WHEN 'the forward pass' THEN forward WHEN 'the backward pass' THEN backward WHEN 'the optimizer' THEN optimizer ELSE data END AS seconds
    FROM a, (VALUES('the forward pass'), ('the backward pass'), ('the optimizer'), ('waiting for data')))
SELECT i.name, i.seconds, median(p.seconds) AS usual FROM subject s JOIN parts i ON i.rank = s.rank JOIN parts p ON p.name = i.name AND p.rank <> s.rank
GROUP BY i.name HAVING (i.seconds - median(p.seconds)) * i.n > 0.5 * s.late AND i.seconds > max(p.seconds) ORDER BY i.seconds - median(p.seconds) DESC LIMIT 1;
CREATE TEMP TABLE inside AS -- the most frequent line of each cause, and who calls it
SELECT c.nth, (SELECT k.depth FROM place k WHERE k.stack = d.stack AND k.type = 0 AND k.first AND (k.function = c.function OR c.function < 0 AND k.leaf)) AS depth, d.stack
FROM cause c JOIN (SELECT c.nth, d.stack, max(sum(d.seconds)) OVER (PARTITION BY c.nth) AS most, sum(d.seconds) AS seconds FROM cause c CROSS JOIN did d ON d.kind = c.kind AND d.is_it AND d.is_main
  AND (c.function > 0 AND EXISTS (SELECT 1 FROM place k WHERE k.stack = d.stack AND k.function = c.function AND k.type = 0) OR c.function IN (-1, -2) AND d.stack IN (SELECT stack FROM special WHERE name = iif(c.function = -1, 'gil', 'gc')))
  GROUP BY c.nth, d.stack) d ON d.nth = c.nth AND d.seconds = d.most GROUP BY c.nth;
CREATE TEMP TABLE said_line AS
SELECT nth, (SELECT text FROM stack_text e WHERE e.stack = i.stack AND e.depth = i.depth) AS line, (SELECT text FROM stack_text e WHERE e.stack = i.stack AND e.depth > i.depth AND e.is_user ORDER BY e.depth LIMIT 1) AS user,
  EXISTS (SELECT 1 FROM place k WHERE k.stack = i.stack AND k.name GLOB '_MultiProcessingDataLoaderIter.*') AS of_workers FROM inside i;
CREATE TEMP TABLE worker AS -- what the workers of its loader do, when they do not wait for something to do
SELECT (SELECT text FROM stack_text e WHERE e.stack = d.stack ORDER BY e.depth LIMIT 1) AS line, (SELECT text FROM stack_text e WHERE e.stack = d.stack AND e.is_user ORDER BY e.depth LIMIT 1) AS user
FROM (SELECT stack FROM did WHERE kind = 'loader' AND is_it AND is_main AND NOT EXISTS (SELECT 1 FROM place k WHERE k.stack = did.stack AND k.file GLOB '*/multiprocessing/queues.py') GROUP BY stack ORDER BY sum(seconds) DESC LIMIT 1) d;
CREATE TEMP TABLE holder AS SELECT d.thread, (SELECT text FROM stack_text e WHERE e.stack = d.stack ORDER BY e.depth LIMIT 1) AS line FROM did d WHERE is_it AND kind = 'rank' AND NOT is_main AND has_gil GROUP BY thread, stack ORDER BY sum(seconds) DESC LIMIT 1;
CREATE TEMP TABLE why AS
SELECT '; why' || iif(EXISTS (SELECT 1 FROM together), ' (of rank ' || rank || '): ', ': ') || coalesce((SELECT CASE c.function
    WHEN -3 THEN printf('it waited for a processor %.1f s longer than the median of the others: something else runs on its CPUs, or its cgroup may use no more CPU time', c.more)
    WHEN -2 THEN printf('it collected garbage %.1f s longer than the median of the others', c.more) || coalesce(', called by ' || l.line, '')
    WHEN -1 THEN printf('it waited for the GIL %.1f s longer than the median of the others', c.more) || coalesce((SELECT ', which thread ' || thread || ' holds, in ' || line FROM holder), '')
    ELSE iif(l.of_workers, 'it waited for the workers of its data loader', printf('it was in %s', coalesce(l.line, c.name))) || iif(l.user <> l.line, ', called by ' || l.user, '') || printf(', %.1f s longer than the median of the others', c.more)
      || CASE WHEN c.on_cpu > 0.8 * c.more THEN ', on a CPU' WHEN c.on_cpu < 0.2 * c.more THEN ', waiting or asleep' ELSE printf(', %.1f s of that on a CPU', c.on_cpu) END END
    || iif(l.of_workers, coalesce((SELECT printf('; those were in %s, %.1f s longer than the median of the other ranks'' workers', coalesce(w.line || iif(w.user <> w.line, ', called by ' || w.user, ''), m.name), m.more) FROM cause m LEFT JOIN said_line w ON w.nth = m.nth WHERE m.nth = 3),
      (SELECT '; those were in ' || line || iif(user <> line, ', called by ' || user, '') FROM worker), ''), '')
  FROM cause c LEFT JOIN said_line l ON l.nth = c.nth WHERE c.nth < 3 ORDER BY c.nth LIMIT 1)
  || coalesce((SELECT printf(' (%s: %.4f s of a step instead of %.4f s)', name, seconds, usual) FROM step_part), ''),
  (SELECT printf('%s takes it %.4f s of a step instead of %.4f s', name, seconds, usual) FROM step_part), 'nothing that its main thread does stands out in the samples') AS answer
FROM subject WHERE EXISTS (SELECT 1 FROM did WHERE is_it) AND EXISTS (SELECT 1 FROM peer);
SELECT CASE WHEN (SELECT count(*) FROM together)
  THEN (SELECT printf('ranks %s%s are late together: without their lateness the run would take %.1f s less, %.0f %%%s; without that of one of them at most %.1f s (`probing ask what_if`)',
    t.who, of_run, t.saved, 100 * t.saved / t.run_seconds, judged, coalesce(one, 0)) FROM together t, judged)
WHEN (SELECT count(*) FROM said) THEN (SELECT answer FROM said)
WHEN is_named
  THEN printf('rank %d%s: the others waited for it in %d of %d collectives, %.1f of %.1f s in all, %.*f %% of the run', rank, of_run, times, collectives, others_waited, of_all,
    percent < 10, percent)
    || CASE WHEN share NOT NULL THEN iif(is_most, '', printf('; for others too at times, but for it throughout: longest in %.0f %% of its parts', 100 * share))
      WHEN tenths < 4 THEN '; of so few that it may be chance' WHEN NOT is_steady
      THEN printf('; not throughout: longer than for any other in %d of %d tenths of them, %.0f %% of it in one', leads, tenths, 100 * most / others_waited) ELSE '' END
  ELSE printf('no straggler: rank %d%s was waited for longest, %.3f of %.3f s in all, in %d of %d collectives, %.*f %% of the run', rank, of_run, others_waited, of_all, times, collectives,
    1 + (percent < 1), percent)
    || CASE WHEN others_waited < little * run_seconds THEN printf(' (less than %.1f %%)', 100 * little) WHEN NOT is_most THEN ', and others were waited for, too' WHEN tenths < 4 THEN '; of so few that it may be chance'
      ELSE printf(', at times, as any rank is where processors are short: longer than for any other in %d of %d tenths of them', leads, tenths) END END
  || coalesce((SELECT answer FROM why), '') AS answer
FROM (SELECT *, iif((SELECT count(*) FROM verdict) > 1, ' of run ' || run, '') AS of_run FROM verdict LIMIT 1) verdict
UNION ALL SELECT answer || coalesce((SELECT answer FROM why), '') FROM said WHERE NOT EXISTS (SELECT 1 FROM verdict)
UNION ALL SELECT * FROM (SELECT CASE WHEN count(*) = 0 THEN 'no straggler can be told: no collective of several ranks is complete (`probing ask hang`)'
  ELSE 'no straggler can be told: the clocks of the ranks cannot be compared (view clock_alignment), so that who came last is not known; '
    || (SELECT printf('by the durations alone rank %d was waited for longest, %.3f of %.3f s in all', shortest_rank, sum(cost), (SELECT sum(longest_ms - shortest_ms) / 1e3 FROM collectives
      WHERE complete = arrived AND arrived > 1 AND op <> 'barrier')) FROM (SELECT shortest_rank, (longest_ms - shortest_ms) / 1e3 AS cost FROM collectives
      WHERE complete = arrived AND arrived > 1 AND op <> 'barrier') GROUP BY shortest_rank ORDER BY sum(cost) DESC LIMIT 1) END
  FROM collectives WHERE complete = arrived AND arrived > 1 AND NOT EXISTS (SELECT 1 FROM verdict)) WHERE NOT EXISTS (SELECT 1 FROM verdict) AND NOT EXISTS (SELECT 1 FROM said);
--= by rank; others_waited: for how long, where it came last and nobody was in the collective for a shorter time, neither of which a wrong clock or a late return alone can feign
SELECT rank, collectives, came_last, was_shortest, round(others_waited, 3) AS others_waited, round(imposed_seconds, 3) AS imposed_seconds, round(waited_seconds, 3) AS waited_seconds
FROM late WHERE run IS (SELECT run FROM verdict LIMIT 1) ORDER BY nth LIMIT 10;
--= what that rank does more of: seconds of a step against the median of all ranks
SELECT s.rank, round(avg(s.forward), 6) AS forward, round(avg(s.backward), 6) AS backward, round(avg(s.optimizer), 6) AS optimizer,
  round(avg(s.data), 6) AS data, round(avg(s.other), 6) AS other FROM one JOIN steps s ON s.rank = one.rank AND s.trace_id IN (SELECT id FROM trace_file WHERE run IS one.run)
WHERE s.complete AND s.source <> 'evaluation' GROUP BY s.rank
UNION ALL
SELECT 'median', round(median(forward), 6), round(median(backward), 6), round(median(optimizer), 6), round(median(data), 6), round(median(other), 6)
FROM steps WHERE complete AND source <> 'evaluation' AND trace_id IN (SELECT id FROM trace_file WHERE run IS (SELECT run FROM one)) GROUP BY NULL;
--= who was waited for before the first step, which does not count: ranks begin when they can
SELECT rank, count(*) AS collectives, round(sum(cost), 3) AS others_waited FROM waited WHERE before AND rank NOT NULL AND run IS (SELECT run FROM verdict LIMIT 1) GROUP BY 1 ORDER BY 3 DESC LIMIT 3;
--= what that rank does more of: seconds since the first step in a Python function and what it calls, against the median of up to eight other ranks; of_it_on_cpu: of what is more
SELECT CASE m.function WHEN -1 THEN 'waiting for the GIL' WHEN -2 THEN 'collecting garbage' WHEN -3 THEN 'waiting for a processor' ELSE f.name || ' (' || replace(f.file, rtrim(f.file, replace(f.file, '/', '')), '') || ':' || f.firstline || ')' END AS what, iif(m.kind = 'loader', 'loader', 'main') AS of,
  round(m.seconds, 3) AS seconds, round(m.usual, 3) AS usual, round(m.more, 3) AS more, round(m.on_cpu, 3) AS of_it_on_cpu FROM more m LEFT JOIN function f ON f.id = m.function ORDER BY m.kind DESC, m.more DESC, m.seconds, m.depth LIMIT 12;
