-- SPDX-License-Identifier: Apache-2.0
-- Functions. type 0 Python (has a file), 1 native (has a module: the ELF file, if known).
CREATE TABLE function(
  id INTEGER PRIMARY KEY, type INTEGER NOT NULL, name TEXT NOT NULL, file TEXT, firstline INTEGER,
  module TEXT
);
-- A function at one line. file: the function's, of native code the line's source where debug information tells it. type, name and
-- module are the function's too, stored again: a view with a row for each frame of each sample looks up one table then, and not two.
CREATE TABLE frame(
  id INTEGER PRIMARY KEY, function INTEGER NOT NULL, line INTEGER, file TEXT,
  type INTEGER NOT NULL, name TEXT NOT NULL, module TEXT
);
-- The call stacks that samples have, each once. A stack lies in parts, each a JSON array of frames; `parts` is a JSON array of them.
-- Both go from the innermost outwards. The cuts are counted from the outermost frame, one after each 16, so that stacks that begin
-- alike share their parts; the first part, the innermost, may be shorter. View stack_frame has a row for each frame.
CREATE TABLE stack(
  id INTEGER PRIMARY KEY,
  depth INTEGER NOT NULL, -- number of frames
  frame INTEGER NOT NULL, -- the innermost
  leaf INTEGER,           -- depth of the innermost Python frame; NULL: none
  name TEXT, file TEXT, line INTEGER, type INTEGER, -- the innermost frame's (file: its module's where it has none), stored again: view samples looks up one table a sample
  parts TEXT NOT NULL
);
-- frames: numbers of table frame, negative where the function lies further inside too (a recursion).
CREATE TABLE part(id INTEGER PRIMARY KEY, frames TEXT NOT NULL);

-- The samples of each trace added up by stack; running, running_ns: of those that were on a CPU, or waited for one.
CREATE TABLE stack_total(
  trace INTEGER NOT NULL, stack INTEGER NOT NULL, -- 0: not known
  samples INTEGER NOT NULL, count INTEGER NOT NULL, running INTEGER NOT NULL,
  cpu_us INTEGER NOT NULL, ns INTEGER NOT NULL, running_ns INTEGER NOT NULL,
  PRIMARY KEY(trace, stack)
) WITHOUT ROWID;
-- And by function, of each trace; where there are several, trace 0: of all. self: with the function innermost, total: with it anywhere (once in a recursion),
-- leaf: with it as the innermost Python function. Ticks, nanoseconds (_ns), running as above; running and cpu_us: of self.
CREATE TABLE function_total(
  trace INTEGER NOT NULL, function INTEGER NOT NULL,
  self INTEGER NOT NULL, self_ns INTEGER NOT NULL, running INTEGER NOT NULL, running_ns INTEGER NOT NULL, cpu_us INTEGER NOT NULL,
  total INTEGER NOT NULL, total_ns INTEGER NOT NULL, total_running_ns INTEGER NOT NULL,
  leaf INTEGER NOT NULL, leaf_ns INTEGER NOT NULL, leaf_running_ns INTEGER NOT NULL,
  PRIMARY KEY(trace, function)
) WITHOUT ROWID;

-- What a thread did at a tick, or at `count` ticks in a row from ts on.
CREATE TABLE sample(
  id INTEGER PRIMARY KEY,
  ts INTEGER NOT NULL,
  thread INTEGER NOT NULL, -- number within the trace: its row is trace << 40 | thread
  stack INTEGER,           -- NULL: could not be read
  cpu_us INTEGER NOT NULL, -- CPU time since the thread's previous sample
  count INTEGER NOT NULL,
  flags INTEGER NOT NULL   -- 1 was on a CPU, 2 held the GIL, 4 read from outside (5: while it ran)
);
-- Those of triggers, few. An index on the time of all is not worth its price (two fifths of the conversion's time and of the file): a
-- range of `timestamp` in a view is found by walking the trace's ids, 40 ns a row, and the planner takes that way anyway.
CREATE INDEX sample_burst ON sample(ts) WHERE count = 0;
