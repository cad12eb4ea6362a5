--@ parts: Where a step's time goes
--? SELECT EXISTS (SELECT 1 FROM steps WHERE complete)
--! No steps were recorded: they come from a PyTorch optimizer, or from probing.step().
SELECT printf('of the steps'' time, %.1f %% is forward, %.1f %% backward, %.1f %% the optimizer, %.1f %% waiting for data, and %.1f %% lies between them (communication that is waited for, logging, what is not PyTorch)',
  100 * f / d, 100 * b / d, 100 * o / d, 100 * l / d, 100 * r / d) AS answer
FROM (SELECT sum(duration) AS d, sum(forward) AS f, sum(backward) AS b, sum(optimizer) AS o, sum(data) AS l, sum(other) AS r
      FROM steps WHERE complete AND source <> 'evaluation') WHERE d > 0;
--= parts: Mean step, over all ranks
SELECT timestamp, forward AS forward_s, backward AS backward_s, optimizer AS optimizer_s, data AS data_s, other AS other_s
FROM steps WHERE complete AND source <> 'evaluation';
--= table: By rank, seconds of a mean step
SELECT coalesce(s.rank, 'pid ' || s.pid) AS rank, count(*) AS steps, round(avg(s.duration), 5) AS duration_s, round(avg(s.forward), 5) AS forward_s,
  round(avg(s.backward), 5) AS backward_s, round(avg(s.optimizer), 5) AS optimizer_s, round(avg(s.data), 5) AS data_s, round(avg(s.other), 5) AS other_s
FROM steps s JOIN trace_file t ON t.id = s.trace_id WHERE s.complete AND s.source <> 'evaluation' GROUP BY coalesce(t.program, t.id) ORDER BY avg(s.duration) DESC;
--= table: Communication by rank (it may lie within the parts above)
SELECT c.rank, c.op, count(*) AS calls, round(sum(c.duration), 3) AS duration_s FROM comm_metrics c JOIN trace_file t ON t.id = c.trace_id WHERE c.complete
GROUP BY coalesce(t.program, t.id), c.op ORDER BY sum(c.duration) DESC;
--= table: Evaluation, which belongs to no step
SELECT coalesce(s.rank, 'pid ' || s.pid) AS rank, count(*) AS times, round(sum(s.duration), 3) AS duration_s FROM steps s JOIN trace_file t ON t.id = s.trace_id
WHERE s.source = 'evaluation' AND s.complete GROUP BY coalesce(t.program, t.id) ORDER BY sum(s.duration) DESC;
