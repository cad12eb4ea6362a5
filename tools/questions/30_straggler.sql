--@ straggler: Who is the straggler, and what does it cost?
--? SELECT EXISTS (SELECT 1 FROM collectives WHERE arrived > 1)
--! no collective is here of which two ranks were recorded and can be compared (torch.distributed with gloo, nccl or mpi; give the traces of all ranks)
CREATE TEMP TABLE late AS
SELECT s.*, c.cost FROM stragglers s LEFT JOIN (
  SELECT shortest_rank, sum(longest_ms - shortest_ms) / 1e3 AS cost FROM collectives WHERE complete = arrived AND op <> 'barrier' GROUP BY shortest_rank) c ON c.shortest_rank = s.rank;
CREATE TEMP TABLE lead AS -- of each tenth of the collectives: how long the others waited for the rank that cost most in all, and by how much longer than for the next one
WITH one AS MATERIALIZED (
  SELECT tenth, rank, sum(cost) AS cost FROM (SELECT shortest_rank AS rank, (longest_ms - shortest_ms) / 1e3 AS cost, ntile(10) OVER (ORDER BY first_enter) AS tenth
    FROM collectives WHERE complete = arrived AND op <> 'barrier') GROUP BY tenth, rank
), first AS MATERIALIZED (SELECT rank, row_number() OVER (ORDER BY cost DESC, was_shortest DESC, imposed_seconds DESC) AS nth FROM late WHERE cost NOT NULL)
SELECT tenth, sum(CASE first.nth WHEN 1 THEN one.cost WHEN 2 THEN -one.cost ELSE 0 END) AS seconds, sum(one.cost) FILTER (WHERE first.nth = 1) AS cost,
  coalesce(max(one.cost) FILTER (WHERE first.nth = 1) = max(one.cost), 0) AS is_most FROM one LEFT JOIN first ON first.rank IS one.rank GROUP BY tenth;
-- By what it cost, not by how often: of a step's collectives the first waits for the straggler, the rest for nobody. Who costs more than half of all waiting is
-- named (of two ranks one is always ahead: three quarters). On a busy machine each rank is late for a time, so it is said where one is not so throughout (then its
-- lead is four times the error of its mean).
SELECT CASE WHEN coalesce(cost > max(0.5, 1.5 / (SELECT count(*) FROM late)) * (SELECT sum(cost) FROM late), was_shortest > 0.5 * collectives)
  THEN printf('rank %d: the others waited for it in %d of %d collectives, %.1f of %.1f s in all, %.0f %% of the run', rank, was_shortest, collectives, cost,
    (SELECT sum(cost) FROM late), 100 * cost / (SELECT max(duration) FROM trace))
    || (SELECT CASE WHEN count(*) < 4 THEN '; of so few that it may be chance'
        WHEN avg(seconds) <= 4 * stddev(seconds) / sqrt(count(*)) THEN printf('; not throughout: longer than for any other in %d of %d tenths of them, %.0f %% of it in one',
          sum(is_most), count(*), 100 * max(lead.cost) / late.cost) ELSE '' END FROM lead)
  ELSE printf('nobody in particular: rank %d was waited for longest, %.1f s of %.1f s, in %d of %d collectives', rank, cost,
    (SELECT sum(cost) FROM late), was_shortest, collectives) END AS answer
FROM late ORDER BY cost DESC, was_shortest DESC, imposed_seconds DESC LIMIT 1;
--= by rank; was_shortest: nobody was in the collective for a shorter time, so the others waited for it (others_waited: how long; no clock can falsify these two)
SELECT rank, collectives, came_last, was_shortest, round(cost, 3) AS others_waited, round(imposed_seconds, 3) AS imposed_seconds, round(waited_seconds, 3) AS waited_seconds
FROM late ORDER BY cost DESC, was_shortest DESC, imposed_seconds DESC LIMIT 10;
--= what that rank does more of: seconds of a step against the median of all ranks
SELECT s.rank, round(avg(s.forward), 6) AS forward, round(avg(s.backward), 6) AS backward, round(avg(s.optimizer), 6) AS optimizer,
  round(avg(s.data), 6) AS data, round(avg(s.other), 6) AS other FROM steps s
WHERE s.complete AND s.source <> 'evaluation' AND s.rank = (SELECT rank FROM late ORDER BY cost DESC, was_shortest DESC, imposed_seconds DESC LIMIT 1)
UNION ALL
SELECT 'median', round(median(forward), 6), round(median(backward), 6), round(median(optimizer), 6), round(median(data), 6), round(median(other), 6)
FROM steps WHERE complete AND source <> 'evaluation' GROUP BY NULL;
