-- SPDX-License-Identifier: Apache-2.0
-- What the program itself recorded (import probing). Spans and events of a process are numbered by the same counter.
CREATE TABLE span(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, parent INTEGER, tid INTEGER, name TEXT
);
CREATE TABLE span_end(id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, flags INTEGER); -- 1: left by an exception
CREATE TABLE event(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, span INTEGER, step INTEGER, tid INTEGER, name TEXT
);
-- value: INTEGER, REAL, TEXT or NULL, as it was given; not-a-number is the text 'nan'.
CREATE TABLE event_value(id INTEGER PRIMARY KEY, event INTEGER NOT NULL, key TEXT, value);
CREATE TABLE variable(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, step INTEGER, at INTEGER, func TEXT, name TEXT, value
);
-- The columns of training_logs_made, stored once all rows are there (66_views_stored.sql).
CREATE TABLE training_log(
  timestamp, epoch, step INTEGER, loss, accuracy, lr, data, trace_id INTEGER, pid INTEGER, rank INTEGER
);

-- What made the agent take the stacks of all threads; these are the samples with count 0 at `tick`.
CREATE TABLE trigger_event(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, kind TEXT NOT NULL, tid INTEGER, step INTEGER,
  tick INTEGER, detail TEXT, text TEXT
);
