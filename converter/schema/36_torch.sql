-- SPDX-License-Identifier: Apache-2.0
-- PyTorch's modules, by name (one name may stand for several objects over time); type: the class. A module has two rows, one for its forward calls and one for
-- its backward calls, so that one column, operation, names any call. Calls that belong to no module have a row too: trace << 40 | stage. Modules follow in the
-- order of their numbers, and for backward calls in the reverse order, so that the rows of successive calls mostly lie next to each other.
CREATE TABLE torch_module(id INTEGER PRIMARY KEY, operation TEXT NOT NULL, name TEXT NOT NULL, type TEXT);
-- stage: 0 a module's forward call, 1 its backward, 2 a whole backward pass, 3 Optimizer.step, 4 waiting for the DataLoader.
CREATE TABLE torch_call(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL,
  duration INTEGER,       -- ns; NULL: its end was not seen
  thread INTEGER NOT NULL, stage INTEGER NOT NULL, module INTEGER NOT NULL, -- numbers within the trace: their rows in thread and torch_module have the ids trace << 40 | n
  call INTEGER,           -- number of the forward call in its thread; a backward has the number of its forward
  parent INTEGER,         -- the enclosing call of the same stage is that many rows before this one
  depth INTEGER NOT NULL, -- number of enclosing calls
  flags INTEGER NOT NULL, -- 1: left by an exception, 2: within a backward pass (recomputed), 4: evaluation
  step INTEGER,           -- number of the step in progress when it began; NULL: it was evaluation
  seq INTEGER NOT NULL,   -- 0, 1, ... within that step
  call_tid INTEGER        -- kernel thread id of the thread whose calls `call` counts; NULL: this thread
);
-- Steps, and the evaluation between them. The evaluation amid an accumulation is none of its step's: the step's ts is later by its duration. The times of the parts exclude each other, and are those of the thread that counts the steps.
CREATE TABLE torch_step(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL,
  duration INTEGER,        -- NULL: the recording ended before the step
  number INTEGER NOT NULL, -- for an evaluation: the number that was counted at that time
  source INTEGER NOT NULL, -- ended by: 0 an optimizer, 1 a call of the root module, 2 probing.step(); 3: evaluation
  forward INTEGER, backward INTEGER, optimizer INTEGER, data INTEGER, -- ns
  forwards INTEGER, backwards INTEGER, optimizers INTEGER, -- numbers of these; forwards: outermost calls of models (no losses)
  told INTEGER             -- the end that its event had, before the step of another optimizer extended it; NULL: it had none
);
-- GPU time of the calls and steps that were chosen (cuda=, memory= in PROBING_TORCH_PROFILING). A row belongs to the torch_call with the same four columns
-- (thread is the id of the thread's row here). A row of stage 5 belongs to a torch_step of the trace thread >> 40: the one with number = call and told = ts.
CREATE TABLE torch_cuda(
  thread INTEGER NOT NULL, call INTEGER NOT NULL, stage INTEGER NOT NULL, ts INTEGER NOT NULL,
  device INTEGER NOT NULL, duration INTEGER NOT NULL, -- ns between two events in the current stream
  PRIMARY KEY(thread, call, stage, ts)
) WITHOUT ROWID;
CREATE TABLE torch_memory( -- at its end; bytes in torch's allocator
  thread INTEGER NOT NULL, call INTEGER NOT NULL, stage INTEGER NOT NULL, ts INTEGER NOT NULL,
  device INTEGER NOT NULL, allocated INTEGER NOT NULL, max_allocated INTEGER NOT NULL, reserved INTEGER NOT NULL,
  PRIMARY KEY(thread, call, stage, ts)
) WITHOUT ROWID;
-- Where a recording goes on in another file (rotation), what the two files have of one step and of one call is joined when all rows are there (90_after_load.sql,
-- part segments). These tables have what each trace had by itself, so that its neighbours may come later or be read again.
-- The calls that had begun in an earlier file (begun) or were open at the end (open), by the ids of their rows in torch_call. inner: ns in calls inside that ended
-- in this file; duration: NULL, or how long it was at least.
CREATE TABLE torch_open(
  id INTEGER PRIMARY KEY, tid INTEGER NOT NULL, stage INTEGER NOT NULL, module INTEGER NOT NULL, call INTEGER, call_tid INTEGER NOT NULL, ts INTEGER NOT NULL,
  step INTEGER, seq INTEGER NOT NULL, flags INTEGER NOT NULL, inner INTEGER NOT NULL, duration INTEGER, begun INTEGER NOT NULL, open INTEGER NOT NULL
);
CREATE INDEX torch_open_ts ON torch_open(ts);
-- The first (last 0) and the last step or evaluation of a trace, with the columns of torch_step.
CREATE TABLE torch_edge(
  trace INTEGER NOT NULL, last INTEGER NOT NULL,
  row INTEGER NOT NULL,    -- id in torch_step
  ts INTEGER NOT NULL, since INTEGER NOT NULL, -- ts, and where what lies at that end of the trace begins, which evaluation may separate from the rest of the step
  number INTEGER NOT NULL, start INTEGER NOT NULL, -- start: number of the step in progress when the trace began
  source INTEGER NOT NULL, forward INTEGER NOT NULL, backward INTEGER NOT NULL, optimizer INTEGER NOT NULL, data INTEGER NOT NULL,
  forwards INTEGER NOT NULL, backwards INTEGER NOT NULL, optimizers INTEGER NOT NULL, seq INTEGER NOT NULL, -- seq: number of its calls that began here
  call INTEGER NOT NULL,   -- id of its call next to the middle of the trace, 0: it has none
  only INTEGER NOT NULL,   -- 1: it is both the first and the last
  shown INTEGER NOT NULL,  -- 0: it is not in the time that was asked for
  duration INTEGER, told INTEGER,
  moved INTEGER NOT NULL,  -- what was added to seq of its calls
  PRIMARY KEY(trace, last)
) WITHOUT ROWID;
-- Sums of calls by module and stage (0, 1); self_ns: without the modules inside. timed: number of calls whose end was seen. cuda: of the calls that were
-- chosen. Rows with no or a negative number of calls correct those of calls that two files have.
CREATE TABLE torch_module_total(
  trace INTEGER NOT NULL, module INTEGER NOT NULL, stage INTEGER NOT NULL, calls INTEGER NOT NULL, timed INTEGER NOT NULL,
  ns INTEGER NOT NULL, self_ns INTEGER NOT NULL, longest INTEGER NOT NULL, cuda_calls INTEGER NOT NULL, cuda_ns INTEGER NOT NULL
);
