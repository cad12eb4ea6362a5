--@ straggler: Who is the straggler, and what does it cost?
--? SELECT count(*) FROM collectives WHERE arrived > 1
--! no collective is here of which two ranks were recorded and can be compared (torch.distributed with gloo, nccl or mpi; give the traces of all ranks)
CREATE TEMP TABLE late AS
SELECT s.*, c.cost FROM stragglers s LEFT JOIN (
  SELECT shortest_rank, sum(longest_ms - shortest_ms) / 1e3 AS cost FROM collectives WHERE complete = arrived AND op <> 'barrier' GROUP BY shortest_rank) c ON c.shortest_rank = s.rank;
CREATE TEMP TABLE lead AS -- of each tenth of the collectives: by how much the others waited longer for the rank that cost most in all than for the next one
WITH one AS MATERIALIZED (
  SELECT shortest_rank AS rank, (longest_ms - shortest_ms) / 1e3 AS cost, ntile(10) OVER (ORDER BY first_enter) AS tenth FROM collectives WHERE complete = arrived AND op <> 'barrier'
), first AS MATERIALIZED (SELECT rank, row_number() OVER (ORDER BY cost DESC, was_shortest DESC, imposed_seconds DESC) AS nth FROM late WHERE cost NOT NULL)
SELECT tenth, sum(CASE rank WHEN (SELECT rank FROM first WHERE nth = 1) THEN cost WHEN (SELECT rank FROM first WHERE nth = 2) THEN -cost ELSE 0 END) AS seconds FROM one GROUP BY tenth;
-- By what it cost, not by how often: of a step's collectives the first waits for the straggler, the rest for nobody. Of two ranks one is always ahead, and on
-- a busy machine each is for a time: who is a straggler costs most of it, and does so throughout (its lead is four times the error of its mean).
SELECT CASE WHEN coalesce(cost > max(0.6, 1.5 / (SELECT count(*) FROM late)) * (SELECT sum(cost) FROM late)
    AND (SELECT count(*) > 3 AND avg(seconds) > 4 * stddev(seconds) / sqrt(count(*)) FROM lead), was_shortest > 0.5 * collectives)
  THEN printf('rank %d: the others waited for it in %d of %d collectives, %.1f s in all, %.0f %% of the run', rank, was_shortest, collectives, cost,
    100 * cost / (SELECT max(duration) FROM trace))
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
FROM steps WHERE complete AND source <> 'evaluation' HAVING count(*) > 0;
