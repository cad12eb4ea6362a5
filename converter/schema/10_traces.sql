-- SPDX-License-Identifier: Apache-2.0
-- The schema of the database that probing-convert writes. The files of this folder are run in the order of their names: first tables, then
-- views and, when all rows are there, 90_after_load.sql.
--
-- Query the VIEWS: their names and columns are stable, `timestamp` is REAL seconds since the epoch (UTC), and ids are resolved to names.
-- Compare a time with unixepoch('2026-11-27 13:00'): to SQLite every text is greater than any number. No column type changes that, and a
-- column with the time as a text would cost ten times as much as the rest of the row, for SELECT * too.
-- The TABLES under them may change between versions; times there are INTEGER nanoseconds since the epoch (UTC), column `ts`.
--
-- Ids: the rows of each trace are numbered trace << 40 | n, so that the traces of any number of processes fit in one database. All traces
-- share functions, frames and stacks.
-- This is plain SQLite, 3.37 or later, without extensions. PRAGMA application_id is 0x50524244 ("PRBD"), and PRAGMA user_version is the
-- version of this schema (converter/output.h).

-- One row for each trace. An input file is one trace, or several joined end to end (the second is named FILE#2). `id` counts from 1.
CREATE TABLE trace_file(
  id INTEGER PRIMARY KEY,
  file TEXT NOT NULL,        -- as given on the command line; '-' for stdin
  host TEXT, boot_id TEXT,
  pid INTEGER, ppid INTEGER, uid INTEGER,
  rank INTEGER, local_rank INTEGER, world_size INTEGER, -- NULL: not known
  exe TEXT, command TEXT, cwd TEXT, python TEXT, agent TEXT, how TEXT,
  process_ts INTEGER,        -- start time of the process
  start_ts INTEGER, end_ts INTEGER, -- first and last time that the process itself recorded
  end_reason TEXT,           -- why it ended; NULL: it has no end, the file just stops
  complete INTEGER NOT NULL, -- 1: ended cleanly and every block is there
  bytes INTEGER NOT NULL, blocks INTEGER NOT NULL, records INTEGER NOT NULL,
  lost INTEGER NOT NULL,     -- number of records known to be lost, for all reasons (view loss, unit 'records')
  clock TEXT NOT NULL,       -- 'collectives', 'messages', 'anchors' or 'none' (times are CLOCK_MONOTONIC then), see table clock_boot
  clock_anchors INTEGER NOT NULL,
  clock_uncertainty_ns INTEGER, -- of the offset between the clocks
  period_ns INTEGER,         -- the sampling period at the end
  first_id INTEGER NOT NULL, last_id INTEGER NOT NULL, -- range of the row ids of this trace
  role TEXT, master TEXT,    -- role: launcher, worker or dataloader; master: MASTER_ADDR:MASTER_PORT; NULL: not known
  finish_ts INTEGER,         -- when another process completed the trace of a process that was killed; NULL: the process completed it itself
  signal INTEGER,            -- the signal that killed it, if probing-record was its parent; NULL: none, or not known
  periods INTEGER NOT NULL,  -- number of its rows in table period
  run TEXT,                  -- the run that it belongs to: the launcher's job over all nodes, else HOST-PID-START[-NAMESPACE] of the first process; see 90_after_load.sql, parts clones to trials
  job TEXT,                  -- as the launcher names it: elastic:ID, mpi:ID, slurm:JOB[.STEP]; NULL: none
  recording TEXT,            -- identifies the recording whatever its file is called: boot, process, start time; prefixed with 'part ' when not all of it was converted
  clock_group INTEGER,       -- times of traces in the same group may be compared (table clock_boot); NULL: not known
  attempt INTEGER NOT NULL,  -- 0; when a launcher starts ranks again, the number of this start: 0, 1, ... (90_after_load.sql, part sums)
  program INTEGER,           -- the id of one of the traces that are the files of one program (rotation), the same in all of them; NULL: the trace is alone
  first_run TEXT             -- its run before the runs of one job were joined or told apart (90_after_load.sql, parts clones to trials)
);

-- The boots of the machines that the traces were recorded on, and how the time of each was determined. All traces of one boot share one clock. method:
-- 'collectives' and 'messages': mapped onto the clock of the reference by what they had in common; 'anchors': by the machine's own time of day only; 'none':
-- CLOCK_MONOTONIC, unchanged.
CREATE TABLE clock_boot(
  id INTEGER PRIMARY KEY,
  boot_id TEXT,                 -- of a trace without a boot id, a blank and its recording
  host TEXT, method TEXT NOT NULL,
  "group" INTEGER NOT NULL,     -- of boots that were laid on one reference
  reference INTEGER NOT NULL,
  matches INTEGER NOT NULL,     -- number of collectives or messages in common with others of its group
  offset_ns INTEGER,            -- by how much its time of day is ahead of the aligned time
  drift REAL,                   -- of its CLOCK_MONOTONIC against the reference's, as a fraction
  residual_ns INTEGER,          -- median distance of a match from the line
  uncertainty_ns INTEGER,       -- of the line, as far as the matches tell (two standard errors); NULL: not known
  from_ts INTEGER, to_ts INTEGER -- first and last match, else first and last anchor
);
-- The mapping of each boot: between two knots time runs linearly, from CLOCK_MONOTONIC to UTC.
CREATE TABLE clock_knot(boot INTEGER NOT NULL, mono INTEGER NOT NULL, utc INTEGER NOT NULL, PRIMARY KEY(boot, mono)) WITHOUT ROWID;

-- Forked children that left no trace, as counted by their parent.
CREATE TABLE child(
  id INTEGER PRIMARY KEY, ts INTEGER, ended INTEGER, failed INTEGER, gone INTEGER, ticks INTEGER, lived INTEGER);

-- What happened but is not in the database, by reason.
CREATE TABLE lost(trace INTEGER NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL);

-- Every process record. A process writes another one when it knows more about itself.
CREATE TABLE process_info(
  id INTEGER PRIMARY KEY, ts INTEGER, start_ts INTEGER, host TEXT, boot_id TEXT,
  pid INTEGER, ppid INTEGER, uid INTEGER, rank INTEGER, local_rank INTEGER, world_size INTEGER,
  exe TEXT, command TEXT, cwd TEXT, python TEXT, agent TEXT, how TEXT,
  role TEXT, master TEXT
);

CREATE TABLE setting(id INTEGER PRIMARY KEY, ts INTEGER, key TEXT, value TEXT);
CREATE TABLE note(id INTEGER PRIMARY KEY, ts INTEGER, level INTEGER, part TEXT, text TEXT);
-- What a process runs with and on. kind: env, version, system, limit. Of the rows with the same kind and key the last one is valid (views environment,
-- versions, machine).
CREATE TABLE fact(id INTEGER PRIMARY KEY, ts INTEGER, kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT);
CREATE TABLE clock(id INTEGER PRIMARY KEY, mono INTEGER, realtime INTEGER, boottime INTEGER, bracket INTEGER);

-- Sampling periods: from `since` (ns UTC) on, a tick of this trace stands for `ns`.
CREATE TABLE period(trace INTEGER NOT NULL, since INTEGER NOT NULL, ns INTEGER NOT NULL);

-- Files (ELF objects) that were mapped, and when; unload_ts NULL: it was never seen to be unmapped.
CREATE TABLE module(
  id INTEGER PRIMARY KEY, ts INTEGER, unload_ts INTEGER, path TEXT, build_id TEXT,
  start INTEGER, "end" INTEGER, bias INTEGER,
  symbols INTEGER -- 1: names come from this very file, 0: it was not found here, NULL: not needed
);

-- A thread, from when it was first seen until it was gone; a tid that is used again gets another row. name: Python's threading name or, for threads that
-- threading has not started, the kernel's name, comm.
CREATE TABLE thread(
  id INTEGER PRIMARY KEY, trace INTEGER NOT NULL, tid INTEGER NOT NULL, name TEXT, ident INTEGER,
  start_ts INTEGER, end_ts INTEGER, -- NULL: its start or its end was not seen
  samples INTEGER NOT NULL, running INTEGER NOT NULL, cpu_us INTEGER NOT NULL,
  comm TEXT
);

-- Trace 0 and below: hashes of functions, frames and stacks, of a process that is queried while it is recorded (converter/kept_numbers.c). Other rows: how far
-- each trace without an end has been read, so that --append reads only what follows. A trace that cannot be continued (a damaged one) has no row.
CREATE TABLE trace_read(
  trace INTEGER PRIMARY KEY,
  blocks INTEGER NOT NULL, digest INTEGER NOT NULL, -- number of blocks read, and a digest of where they lie
  last INTEGER NOT NULL,      -- latest time in these blocks, CLOCK_MONOTONIC
  eval INTEGER NOT NULL,      -- address of the interpreter's loop
  modules INTEGER NOT NULL, modules_digest INTEGER NOT NULL, modules_last INTEGER NOT NULL, -- mapped files: their number, a digest, and when the last one was loaded
  names INTEGER NOT NULL,     -- number of function names recorded apart from their frames (before Python 3.11)
  addresses BLOB NOT NULL     -- addresses of native code that have frames, as written by converter/resolve_saved.c; in a database without stacks strings, as written by converter/dict.c.
                              -- Rows below 1: what a question to a live process stores for the next one (kept_numbers.c, append.h)
);
-- The calls and steps of torch that were in progress at the beginning of a block, as written by converter/torch_state.c, so that the conversion can be
-- continued from there.
CREATE TABLE torch_read(trace INTEGER PRIMARY KEY, state BLOB NOT NULL);
