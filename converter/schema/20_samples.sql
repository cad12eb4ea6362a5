-- SPDX-License-Identifier: Apache-2.0
-- Functions. type 0: Python (has a file); 1: native (has a module, the ELF file, if known).
CREATE TABLE function(
  id INTEGER PRIMARY KEY, type INTEGER NOT NULL, name TEXT NOT NULL, file TEXT, firstline INTEGER,
  module TEXT
);
-- A function at one line. file: that of the function; for native code, the source file of the line if debug information tells it. type, name and module are
-- copies of the function's columns: so a view with a row for each frame of each sample looks up one table instead of two.
CREATE TABLE frame(
  id INTEGER PRIMARY KEY, function INTEGER NOT NULL, line INTEGER, file TEXT,
  type INTEGER NOT NULL, name TEXT NOT NULL, module TEXT
);
-- The distinct call stacks of samples. A stack is stored in parts, and each part is a JSON array of frames; `parts` is a JSON array of part ids. Both run from
-- the innermost frame outwards. Parts are cut after every 16 frames, counted from the outermost frame, so that stacks with the same outer frames share their
-- parts; the first part, the innermost, may be shorter. View stack_frame has a row for each frame.
CREATE TABLE stack(
  id INTEGER PRIMARY KEY,
  depth INTEGER NOT NULL, -- number of frames
  frame INTEGER NOT NULL, -- the innermost frame
  leaf INTEGER,           -- depth of the innermost Python frame; NULL: none
  name TEXT, file TEXT, line INTEGER, type INTEGER, -- those of the innermost frame (file: its module if it has no file), stored again so that view samples looks up one table for each sample
  parts TEXT NOT NULL
);
-- frames: ids of table frame, negative where the same function occurs again further inside (a recursion).
CREATE TABLE part(id INTEGER PRIMARY KEY, frames TEXT NOT NULL);

-- The samples of each trace added up by stack; running, running_ns: only those that were on a CPU, or waited for one.
CREATE TABLE stack_total(
  trace INTEGER NOT NULL, stack INTEGER NOT NULL, -- 0: the stack is not known
  samples INTEGER NOT NULL, count INTEGER NOT NULL, running INTEGER NOT NULL,
  cpu_us INTEGER NOT NULL, ns INTEGER NOT NULL, running_ns INTEGER NOT NULL,
  PRIMARY KEY(trace, stack)
) WITHOUT ROWID;
-- The same added up by function, for each trace; if there are several traces, rows with trace 0 have the sums over all of them. self: with the function
-- innermost, total: with it anywhere (once in a recursion), leaf: with it as the innermost Python function. In ticks and in nanoseconds (_ns), running as
-- above; running and cpu_us: of self.
CREATE TABLE function_total(
  trace INTEGER NOT NULL, function INTEGER NOT NULL,
  self INTEGER NOT NULL, self_ns INTEGER NOT NULL, running INTEGER NOT NULL, running_ns INTEGER NOT NULL, cpu_us INTEGER NOT NULL,
  total INTEGER NOT NULL, total_ns INTEGER NOT NULL, total_running_ns INTEGER NOT NULL,
  leaf INTEGER NOT NULL, leaf_ns INTEGER NOT NULL, leaf_running_ns INTEGER NOT NULL,
  PRIMARY KEY(trace, function)
) WITHOUT ROWID;

-- What a thread did at a tick, or at `count` successive ticks from ts on.
CREATE TABLE sample(
  id INTEGER PRIMARY KEY,
  ts INTEGER NOT NULL,
  thread INTEGER NOT NULL, -- number within the trace: the id of its row is trace << 40 | thread
  stack INTEGER,           -- NULL: it could not be read
  cpu_us INTEGER NOT NULL, -- CPU time since the thread's previous sample
  count INTEGER NOT NULL,
  flags INTEGER NOT NULL   -- 1: was on a CPU, 2: held the GIL, 4: was read from outside (5: while it ran)
);
-- Only the few samples of triggers are indexed. An index on the time of all samples is not worth its price (two fifths of the conversion's time and of the
-- file): a range of `timestamp` in a view is found by walking the ids of the trace, 40 ns a row, and the planner does that anyway.
CREATE INDEX sample_burst ON sample(ts) WHERE count = 0;
