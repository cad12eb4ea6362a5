--@ variables: Variables
--? SELECT EXISTS (SELECT 1 FROM variables WHERE number IS NOT NULL)
--! No variables were recorded: PROBE_TORCH_EXPRS=loss,lr says which to read at the end of each step.
SELECT 'at the end: ' || group_concat(name || ' ' || printf('%.4g', last), ', ') AS answer FROM (
  SELECT name, number AS last, max(timestamp) FROM variables WHERE number IS NOT NULL GROUP BY name LIMIT 6);
--= lines: Values
SELECT name || CASE WHEN rank IS NULL THEN '' ELSE ' (rank ' || rank || ')' END AS name, timestamp, number FROM variables WHERE number IS NOT NULL
AND (rank IS NULL OR rank IN (SELECT DISTINCT rank FROM variables ORDER BY 1 LIMIT 4));
