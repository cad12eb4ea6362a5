--@ straggler: Who is the straggler, and what does it cost?
--? SELECT EXISTS (SELECT 1 FROM collectives WHERE arrived > 1)
--! no straggler can be told: no collective is here of which two ranks were recorded (one process alone, or none of torch.distributed with gloo, nccl or mpi; give the traces of all ranks)
-- The rule, all of it. A rank is named when all of this holds:
--   the others waited for it for more than half of all the waiting (of two ranks one is always ahead: three quarters);
--   that is `least` of the run's time or more;
--   it is no chance: its lead over the next rank is, from tenth to tenth of the collectives, more than `errors` times the error of its mean; or it is waited for
--   longest in `led` of the tenths, and all but the worst one together are `least`, too; or it is `once` of the run's time, whenever it was, with a word on that.
-- On a busy machine each rank is late for a time, and that can be half of all waiting and a good part of a short run. (144 healthy runs of two to four gloo ranks on two
-- processors: the lead was up to 2.7 times its error, once 8.6 times, of 3 % of the run; with a rank that is 50 ms late in each step 13 times and more, of 20 %.)
CREATE TEMP TABLE rule AS SELECT 0.05 AS least, 4 AS errors, 0.9 AS led, 0.25 AS once;
CREATE TEMP TABLE waits AS -- of each collective: who was waited for, by clocks and durations both (NULL: they do not agree), and for how long: the view's others_waited
SELECT run, ntile(10) OVER (PARTITION BY run ORDER BY first_enter) AS tenth, iif(last_rank = shortest_rank, last_rank, NULL) AS rank, min(skew_ms, longest_ms - shortest_ms) / 1e3 AS cost
FROM collectives WHERE complete = arrived AND arrived > 1 AND op <> 'barrier' AND skew_ms NOT NULL;
CREATE TEMP TABLE late AS -- the view's order, each run by itself
WITH of_rank AS MATERIALIZED (SELECT run, rank, sum(cost) AS cost FROM waits WHERE rank NOT NULL GROUP BY run, rank),
  one AS (SELECT s.run, s.rank, s.collectives, s.came_last, s.was_shortest, s.imposed_seconds, s.waited_seconds, coalesce(c.cost, 0) AS others_waited
    FROM stragglers s LEFT JOIN of_rank c ON c.rank = s.rank AND c.run IS s.run)
SELECT *, row_number() OVER (PARTITION BY run ORDER BY others_waited DESC, imposed_seconds DESC, rank) AS nth, sum(others_waited) OVER (PARTITION BY run) AS of_all,
  count(*) OVER (PARTITION BY run) AS ranks FROM one;
CREATE TEMP TABLE lead AS -- of each tenth of the collectives: how long the others waited for the rank that cost most in all, and by how much longer than for the next one
WITH one AS MATERIALIZED (SELECT run, tenth, rank, sum(cost) AS cost, count(*) AS n FROM waits GROUP BY run, tenth, rank)
SELECT one.run, tenth, sum(CASE late.nth WHEN 1 THEN one.cost WHEN 2 THEN -one.cost ELSE 0 END) AS seconds, sum(one.cost) FILTER (WHERE late.nth = 1) AS cost,
  coalesce(max(one.cost) FILTER (WHERE late.nth = 1) = max(one.cost) FILTER (WHERE late.nth), 0) AS is_most, sum(n) FILTER (WHERE late.nth = 1) AS times
FROM one LEFT JOIN late ON late.rank = one.rank AND late.run IS one.run GROUP BY one.run, tenth;
CREATE TEMP TABLE verdict AS -- of the rank that costs most of each run, the first one the worst; a run takes as long as its ranks do, each by its own clock
SELECT v.*, others_waited > max(0.5, 1.5 / ranks) * of_all AS is_most, others_waited >= least * run_seconds AS is_much, is_steady OR tenths > 3 AND leads >= led * tenths AND others_waited - most >= least * run_seconds OR others_waited >= once * run_seconds AS is_sure
FROM (SELECT l.*, t.seconds AS run_seconds, d.*, coalesce(d.tenths > 3 AND d.mean > r.errors * d.error, 0) AS is_steady, r.least, r.led, r.once FROM late l, rule r
  LEFT JOIN (SELECT run AS lead_run, count(*) AS tenths, sum(is_most) AS leads, coalesce(sum(times), 0) AS times, max(cost) AS most, avg(seconds) AS mean, stddev(seconds) / sqrt(count(*)) AS error
    FROM lead GROUP BY run) d ON d.lead_run IS l.run
  LEFT JOIN (SELECT run AS time_run, sum(seconds) AS seconds FROM (SELECT run, attempt, max(seconds) AS seconds FROM (
      SELECT run, attempt, (max(end_ts) - min(start_ts)) / 1e9 AS seconds FROM trace_file f
      WHERE rank NOT NULL OR EXISTS (SELECT 1 FROM comm c WHERE c.id BETWEEN f.first_id AND f.last_id) GROUP BY run, attempt, coalesce(rank, 'trace ' || id)) GROUP BY run, attempt)
    GROUP BY run) t ON t.time_run IS l.run
  WHERE l.nth = 1) v
ORDER BY is_most AND is_much AND is_sure DESC, others_waited DESC, imposed_seconds DESC;
SELECT CASE WHEN is_most AND is_much AND is_sure
  THEN printf('rank %d%s: the others waited for it in %d of %d collectives, %.1f of %.1f s in all, %.0f %% of the run', rank, of_run, times, collectives, others_waited, of_all,
    100 * others_waited / run_seconds)
    || CASE WHEN tenths < 4 THEN '; of so few that it may be chance' WHEN NOT is_steady
      THEN printf('; not throughout: longer than for any other in %d of %d tenths of them, %.0f %% of it in one', leads, tenths, 100 * most / others_waited) ELSE '' END
  ELSE printf('no straggler: rank %d%s was waited for longest, %.3f of %.3f s in all, in %d of %d collectives, %.1f %% of the run', rank, of_run, others_waited, of_all, times, collectives,
    100 * others_waited / run_seconds)
    || CASE WHEN NOT is_much THEN printf(' (less than %.0f %%)', 100 * least) WHEN NOT is_most THEN ', and others were waited for, too' WHEN tenths < 4 THEN '; of so few that it may be chance'
      ELSE printf(', at times, as any rank is where processors are short: longer than for any other in %d of %d tenths of them', leads, tenths) END END AS answer
FROM (SELECT *, iif((SELECT count(*) FROM verdict) > 1, ' of run ' || run, '') AS of_run FROM verdict LIMIT 1)
UNION ALL SELECT * FROM (SELECT CASE WHEN count(*) = 0 THEN 'no straggler can be told: no collective of several ranks is complete (`probing ask hang`)'
  ELSE 'no straggler can be told: the clocks of the ranks cannot be compared (view clock_alignment), so that who came last is not known; '
    || (SELECT printf('by the durations alone rank %d was waited for longest, %.3f of %.3f s in all', shortest_rank, sum(cost), (SELECT sum(longest_ms - shortest_ms) / 1e3 FROM collectives
      WHERE complete = arrived AND arrived > 1 AND op <> 'barrier')) FROM (SELECT shortest_rank, (longest_ms - shortest_ms) / 1e3 AS cost FROM collectives
      WHERE complete = arrived AND arrived > 1 AND op <> 'barrier') GROUP BY shortest_rank ORDER BY sum(cost) DESC LIMIT 1) END
  FROM collectives WHERE complete = arrived AND arrived > 1 AND NOT EXISTS (SELECT 1 FROM verdict)) WHERE NOT EXISTS (SELECT 1 FROM verdict);
--= by rank; others_waited: for how long, where it came last and nobody was in the collective for a shorter time, neither of which a wrong clock or a late return alone can feign
SELECT rank, collectives, came_last, was_shortest, round(others_waited, 3) AS others_waited, round(imposed_seconds, 3) AS imposed_seconds, round(waited_seconds, 3) AS waited_seconds
FROM late WHERE run IS (SELECT run FROM verdict LIMIT 1) ORDER BY nth LIMIT 10;
--= what that rank does more of: seconds of a step against the median of all ranks
SELECT s.rank, round(avg(s.forward), 6) AS forward, round(avg(s.backward), 6) AS backward, round(avg(s.optimizer), 6) AS optimizer,
  round(avg(s.data), 6) AS data, round(avg(s.other), 6) AS other FROM verdict v JOIN steps s ON s.rank = v.rank AND s.trace_id IN (SELECT id FROM trace_file WHERE run IS v.run)
WHERE s.complete AND s.source <> 'evaluation' AND v.rowid = 1 GROUP BY s.rank
UNION ALL
SELECT 'median', round(median(forward), 6), round(median(backward), 6), round(median(optimizer), 6), round(median(data), 6), round(median(other), 6)
FROM steps WHERE complete AND source <> 'evaluation' AND trace_id IN (SELECT id FROM trace_file WHERE run IS (SELECT run FROM verdict LIMIT 1)) GROUP BY NULL;
