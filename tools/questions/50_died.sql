--@ died: Who died first, and of what?
--? SELECT count(*) FROM triggers WHERE kind IN ('fatal', 'killed', 'exception', 'term') OR detail LIKE '%exception%'
--! nobody died: every process ended by itself
SELECT printf('rank %s (process %d) at %s: %s %s', coalesce(rank, '-'), pid, strftime('%Y-%m-%d %H:%M:%f', timestamp, 'unixepoch'), kind, coalesce(detail, '')) AS answer
FROM triggers WHERE kind IN ('fatal', 'killed', 'exception', 'term') ORDER BY timestamp LIMIT 1;
--= in order
SELECT strftime('%H:%M:%f', timestamp, 'unixepoch') AS time, rank, pid, kind, detail, step, substr(text, 1, 200) AS text FROM triggers
WHERE kind IN ('fatal', 'killed', 'exception', 'term') ORDER BY timestamp LIMIT 20;
--= the first one's stack, innermost frame first
SELECT thread, depth, func, file, lineno FROM trigger_stacks WHERE is_cause AND trigger_id = (
  SELECT trigger_id FROM triggers WHERE kind IN ('fatal', 'killed', 'exception', 'term') ORDER BY timestamp LIMIT 1) ORDER BY depth LIMIT 30;
