-- SPDX-License-Identifier: Apache-2.0
-- Process groups, and the communication in them. Most ranks have the same groups, so each list of ranks (JSON) is stored once, and in group_rank as one row for
-- each rank (idx: rank in the group).
CREATE TABLE process_group(
  trace INTEGER NOT NULL, pg INTEGER NOT NULL, name TEXT, backend TEXT, rank INTEGER, size INTEGER,
  list INTEGER, -- id in rank_list
  desc TEXT, -- torch's description: mesh_tp is dimension tp of a DeviceMesh; NULL: none or not known
  PRIMARY KEY(trace, pg)
) WITHOUT ROWID;
CREATE TABLE rank_list(id INTEGER PRIMARY KEY, ranks TEXT NOT NULL UNIQUE);
CREATE TABLE group_rank(
  list INTEGER NOT NULL, idx INTEGER NOT NULL, rank INTEGER NOT NULL, PRIMARY KEY(list, idx)
) WITHOUT ROWID;
CREATE TABLE comm(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, tid INTEGER, pg INTEGER NOT NULL, seq INTEGER, op TEXT,
  bytes INTEGER, dtype TEXT,
  duration INTEGER NOT NULL, -- ns; when it is not complete, as long as it was seen
  host INTEGER NOT NULL,     -- ns spent inside the call
  src INTEGER, dst INTEGER,  -- ranks in the group
  flags INTEGER NOT NULL     -- 1 never seen to complete, 2 its end is the return of the call, 4 that raised an exception, 8 it failed after that
);
-- The few operations that were never seen to complete, for view hangs.
CREATE INDEX comm_waits ON comm(ts) WHERE flags & 1;
CREATE INDEX comm_raised ON comm(ts) WHERE flags & 5 = 4;
CREATE INDEX comm_failed ON comm(ts) WHERE flags & 9 = 8;
-- What follows from all of them, stored when all rows are there (66_views_stored.sql): the columns of collectives_made, stragglers_made, hangs_made.
CREATE TABLE collective(
  "group", seq INTEGER, op TEXT, arrived, size, complete, first_enter, last_enter, exit, skew_ms, last_rank, shortest_rank,
  shortest_ms, longest_ms, bytes, dtype, missing, run TEXT, attempt INTEGER
);
CREATE TABLE straggler(
  rank, collectives, came_last, share, was_shortest, imposed_seconds, waited_seconds, run TEXT, others_waited
);
CREATE TABLE hang(
  since, rank INTEGER, cause, "group", seq INTEGER, op TEXT, waiting, waited, run TEXT, state, does, level, waiters, size, trace_id INTEGER
);
