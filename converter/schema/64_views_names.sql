-- SPDX-License-Identifier: Apache-2.0
-- Views with names from the documents of the original Probing that no other view has.

-- How long everything took, by name: module calls ('layer1 forward'), backward passes, optimizers, waiting for data, collectives and spans (probing.span).
-- These are nested and run in several threads: sum them up by name, but not all together.
CREATE VIEW profiling_data AS
SELECT c.ts / 1e9 AS timestamp, m.operation AS operation_name,
  c.duration / 1e6 AS duration_ms, c.step, t.rank, t.id AS trace_id, t.pid
FROM trace_file t CROSS JOIN torch_call c ON c.id BETWEEN t.first_id AND t.last_id
CROSS JOIN torch_module m ON m.id = t.first_id + c.module WHERE c.duration IS NOT NULL
UNION ALL
SELECT k.ts / 1e9, k.op, k.duration / 1e6, NULL, t.rank, t.id, t.pid
FROM trace_file t JOIN comm k ON k.id BETWEEN t.first_id AND t.last_id WHERE NOT k.flags & 1
UNION ALL
SELECT s.ts / 1e9, s.name, (e.ts - s.ts) / 1e6, NULL, t.rank, t.id, t.pid
FROM trace_file t JOIN span s ON s.id BETWEEN t.first_id AND t.last_id JOIN span_end e ON e.id = s.id;

-- Allocations by the line that made them, from a heap recording. This version cannot make one yet, so there are no rows.
CREATE VIEW memory_allocations AS
SELECT t.start_ts / 1e9 AS timestamp, NULL AS function_name, NULL AS file, NULL AS lineno, 0 AS allocated_bytes,
  0 AS freed_bytes, 0 AS count, t.rank, t.id AS trace_id, t.pid
FROM trace_file t WHERE 0;
