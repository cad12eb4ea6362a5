-- SPDX-License-Identifier: Apache-2.0
-- The database that probing-convert writes: what it holds and how it is read. The files of this folder are run in the
-- order of their names: tables first, then views, and when all rows are there, 90_after_load.sql.
--
-- Ask the VIEWS: their names and columns are stable, `timestamp` is REAL seconds since the epoch (UTC) and ids are resolved to
-- names. A time is compared with unixepoch('2026-11-27 13:00'): to SQLite every text is more than any number. No type of a column
-- changes that, and a column with the time as a text would cost ten times what the row does, for SELECT *, too.
-- The TABLES under them may change between versions; times there are INTEGER nanoseconds since the epoch (UTC), column `ts`.
--
-- Ids: the rows of each trace are numbered trace << 40 | n, so that traces of any number of
-- processes lie in one database. Functions, frames and stacks are shared by all of them.
-- Plain SQLite, 3.37 or later, no extension needed. PRAGMA application_id is 0x50524244 ("PRBD"), PRAGMA
-- user_version the version of what is below (converter/output.h).

-- One row per trace: an input file is one, or several joined end to end (the second is named FILE#2). `id` counts from 1.
CREATE TABLE trace_file(
  id INTEGER PRIMARY KEY,
  file TEXT NOT NULL,        -- as given; '-' for stdin
  host TEXT, boot_id TEXT,
  pid INTEGER, ppid INTEGER, uid INTEGER,
  rank INTEGER, local_rank INTEGER, world_size INTEGER, -- NULL: not known
  exe TEXT, command TEXT, cwd TEXT, python TEXT, agent TEXT, how TEXT,
  process_ts INTEGER,        -- start of the process
  start_ts INTEGER, end_ts INTEGER, -- first and last time that the process itself recorded
  end_reason TEXT,           -- why it ended; NULL: it did not, the file just stops
  complete INTEGER NOT NULL, -- 1: ended cleanly and every block is there
  bytes INTEGER NOT NULL, blocks INTEGER NOT NULL, records INTEGER NOT NULL,
  lost INTEGER NOT NULL,     -- records known to be lost, of all reasons (view loss, unit 'records')
  clock TEXT NOT NULL,       -- 'collectives', 'messages', 'anchors' or 'none' (then times are CLOCK_MONOTONIC): table clock_boot
  clock_anchors INTEGER NOT NULL,
  clock_uncertainty_ns INTEGER, -- of the offset between the clocks
  period_ns INTEGER,         -- the sampling period at the end
  first_id INTEGER NOT NULL, last_id INTEGER NOT NULL, -- range of this trace's row ids
  role TEXT, master TEXT,    -- launcher, worker or dataloader; MASTER_ADDR:MASTER_PORT; NULL: not known
  finish_ts INTEGER,         -- when another process completed the trace, of one that was killed; NULL: it did so itself
  signal INTEGER,            -- what killed it, where probing-record was its parent; NULL: nothing, or not known
  periods INTEGER NOT NULL,  -- its rows in table period
  run TEXT,                  -- the run that it is of: the launcher's job over all nodes, else HOST-PID-START of the first process
  job TEXT,                  -- as the launcher says it: elastic:ID, mpi:ID, slurm:JOB[.STEP]; NULL: none
  recording TEXT,            -- which recording it is, whatever its file is called: boot, process, when it began; 'part ' before it: not all of it
  clock_group INTEGER,       -- times of traces of one group may be compared (table clock_boot); NULL: not known
  attempt INTEGER NOT NULL   -- 0; where a launcher starts ranks again: of the run's processes with this rank that came one after the other, the how many-th
);

-- The boots of machines that the traces are of, and how the time of each was made. All traces of one boot have one clock. method:
-- 'collectives' and 'messages': laid on the reference's clock by what they had in common; 'anchors': by its own time of day alone;
-- 'none': CLOCK_MONOTONIC as it was.
CREATE TABLE clock_boot(
  id INTEGER PRIMARY KEY, boot_id TEXT, host TEXT, method TEXT NOT NULL,
  "group" INTEGER NOT NULL,     -- of boots that were laid on one reference
  reference INTEGER NOT NULL,
  matches INTEGER NOT NULL,     -- collectives or messages in common with others of its group
  offset_ns INTEGER,            -- that its time of day is ahead of the aligned time
  drift REAL,                   -- of its CLOCK_MONOTONIC against the reference's, parts of one
  residual_ns INTEGER,          -- median distance of a match from the line
  uncertainty_ns INTEGER,       -- of the line, as far as the matches tell (two standard errors); NULL: not known
  from_ts INTEGER, to_ts INTEGER -- of the matches, else of the anchors
);
-- How: between two knots time runs linearly, from CLOCK_MONOTONIC to UTC.
CREATE TABLE clock_knot(boot INTEGER NOT NULL, mono INTEGER NOT NULL, utc INTEGER NOT NULL, PRIMARY KEY(boot, mono)) WITHOUT ROWID;

-- Forked children that left no trace, as their parent counted them.
CREATE TABLE child(
  id INTEGER PRIMARY KEY, ts INTEGER, ended INTEGER, failed INTEGER, gone INTEGER, ticks INTEGER, lived INTEGER);

-- What is not in the database although it happened, by reason.
CREATE TABLE lost(trace INTEGER NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL);

-- Every process record: a process says it again when it knows more.
CREATE TABLE process_info(
  id INTEGER PRIMARY KEY, ts INTEGER, start_ts INTEGER, host TEXT, boot_id TEXT,
  pid INTEGER, ppid INTEGER, uid INTEGER, rank INTEGER, local_rank INTEGER, world_size INTEGER,
  exe TEXT, command TEXT, cwd TEXT, python TEXT, agent TEXT, how TEXT,
  role TEXT, master TEXT
);

CREATE TABLE setting(id INTEGER PRIMARY KEY, ts INTEGER, key TEXT, value TEXT);
CREATE TABLE note(id INTEGER PRIMARY KEY, ts INTEGER, level INTEGER, part TEXT, text TEXT);
-- What a process runs with and on. kind: env, version, system, limit; of one kind and key the last row holds (views environment,
-- versions, machine).
CREATE TABLE fact(id INTEGER PRIMARY KEY, ts INTEGER, kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT);
CREATE TABLE clock(id INTEGER PRIMARY KEY, mono INTEGER, realtime INTEGER, boottime INTEGER, bracket INTEGER);

-- Sampling periods: from `since` (ns UTC) on a tick of this trace stands for `ns`.
CREATE TABLE period(trace INTEGER NOT NULL, since INTEGER NOT NULL, ns INTEGER NOT NULL);

-- Mapped files (ELF objects) and when; unload_ts NULL: never seen to go.
CREATE TABLE module(
  id INTEGER PRIMARY KEY, ts INTEGER, unload_ts INTEGER, path TEXT, build_id TEXT,
  start INTEGER, "end" INTEGER, bias INTEGER,
  symbols INTEGER -- 1: names come from the very file, 0: it was not found here, NULL: not needed
);

-- A thread from when it was seen until it was gone; a tid used again is another row. name: what Python's threading calls it,
-- of threads that it has not started the kernel's name, comm.
CREATE TABLE thread(
  id INTEGER PRIMARY KEY, trace INTEGER NOT NULL, tid INTEGER NOT NULL, name TEXT, ident INTEGER,
  start_ts INTEGER, end_ts INTEGER, -- NULL: not seen to start or to end
  samples INTEGER NOT NULL, running INTEGER NOT NULL, cpu_us INTEGER NOT NULL,
  comm TEXT
);

-- Trace 0 and below: hashes of functions, frames and stacks, of a process that is asked while it is recorded (converter/kept_numbers.c).
-- How far each trace was read that has no end yet, for --append: what it has behind that alone is read then. One that cannot be gone on with
-- (a damaged one) has no row.
CREATE TABLE trace_read(
  trace INTEGER PRIMARY KEY,
  blocks INTEGER NOT NULL, digest INTEGER NOT NULL, -- so many, and where they lie
  last INTEGER NOT NULL,      -- the latest time in them, CLOCK_MONOTONIC
  eval INTEGER NOT NULL,      -- where the interpreter's loop is
  modules INTEGER NOT NULL, modules_digest INTEGER NOT NULL, modules_last INTEGER NOT NULL, -- mapped files, the last to be loaded
  names INTEGER NOT NULL,     -- of functions, that came beside them (before Python 3.11)
  addresses BLOB NOT NULL     -- of native code that have frames, as converter/resolve_saved.c writes them; without stacks strings, as converter/dict.c does.
                              -- Rows below 1: what a live question keeps for the next one (kept_numbers.c, append.h)
);
-- What of torch's calls and steps was open at the beginning of a block, as converter/torch_state.c writes it: they are gone on with from there.
CREATE TABLE torch_read(trace INTEGER PRIMARY KEY, state BLOB NOT NULL);
