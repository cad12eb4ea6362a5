-- SPDX-License-Identifier: Apache-2.0
-- PyTorch. Modules by name (one name may stand for several objects over time); type: the class.
-- A module has two rows, one for its forward calls and one for its backward ones: operation, what these are called, is then one
-- column for any call. What is no module's has a row, too: trace << 40 | stage, and modules follow in the order of their numbers, those of
-- backward calls in the opposite one, so that calls one after the other are mostly found one after the other.
CREATE TABLE torch_module(id INTEGER PRIMARY KEY, operation TEXT NOT NULL, name TEXT NOT NULL, type TEXT);
-- stage 0 a module's forward call, 1 its backward, 2 a whole backward pass, 3 Optimizer.step, 4 waiting for the DataLoader.
CREATE TABLE torch_call(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL,
  duration INTEGER,       -- ns; NULL: not seen to end
  thread INTEGER NOT NULL, stage INTEGER NOT NULL, module INTEGER NOT NULL, -- numbers within the trace: rows trace << 40 | n of thread, torch_module
  call INTEGER,           -- number of the forward call in its thread; a backward has that of its forward
  parent INTEGER,         -- so many rows before it is the one that it lies in, of the same stage
  depth INTEGER NOT NULL, -- number of those
  flags INTEGER NOT NULL, -- 1 left by an exception, 2 within a backward pass (recomputed), 4 evaluation
  step INTEGER,           -- number of the step in progress when it began; NULL: it was evaluation
  seq INTEGER NOT NULL,   -- 0, 1, ... in that step
  call_tid INTEGER        -- kernel thread id of the thread that `call` counts in, where that is another one; NULL: this one
);
-- Steps, and the evaluation between them; the parts' times exclude each other and are those of the thread that counts the steps.
CREATE TABLE torch_step(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL,
  duration INTEGER,        -- NULL: the recording ended first
  number INTEGER NOT NULL, -- of an evaluation: as it was counted then
  source INTEGER NOT NULL, -- 0 ended by an optimizer, 1 by the root module's call, 2 by probing.step(), 3 evaluation
  forward INTEGER, backward INTEGER, optimizer INTEGER, data INTEGER, -- ns
  forwards INTEGER, backwards INTEGER, optimizers INTEGER, -- how many; forwards: outermost calls of models (no losses)
  told INTEGER             -- its end when it was told: another optimizer's step may have come to it; NULL: it had none
);
-- What the GPU had to do with it, of calls and steps that were chosen (cuda=, memory= in PROBING_TORCH_PROFILING): a row belongs to
-- the torch_call with the same four columns (its thread is the row's number here), one of stage 5 to the torch_step with number = call, told = ts of the trace thread >> 40.
CREATE TABLE torch_cuda(
  thread INTEGER NOT NULL, call INTEGER NOT NULL, stage INTEGER NOT NULL, ts INTEGER NOT NULL,
  device INTEGER NOT NULL, duration INTEGER NOT NULL, -- ns between events in the current stream
  PRIMARY KEY(thread, call, stage, ts)
) WITHOUT ROWID;
CREATE TABLE torch_memory( -- at its end; bytes, by torch's allocator
  thread INTEGER NOT NULL, call INTEGER NOT NULL, stage INTEGER NOT NULL, ts INTEGER NOT NULL,
  device INTEGER NOT NULL, allocated INTEGER NOT NULL, max_allocated INTEGER NOT NULL, reserved INTEGER NOT NULL,
  PRIMARY KEY(thread, call, stage, ts)
) WITHOUT ROWID;
-- Calls added up by module and stage (0, 1); self_ns: without the modules within. timed: those that were seen to end. cuda: of those that were chosen.
CREATE TABLE torch_module_total(
  trace INTEGER NOT NULL, module INTEGER NOT NULL, stage INTEGER NOT NULL, calls INTEGER NOT NULL, timed INTEGER NOT NULL,
  ns INTEGER NOT NULL, self_ns INTEGER NOT NULL, longest INTEGER NOT NULL, cuda_calls INTEGER NOT NULL, cuda_ns INTEGER NOT NULL
);
