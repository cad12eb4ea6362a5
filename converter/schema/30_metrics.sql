-- SPDX-License-Identifier: Apache-2.0
-- One row each second. The view is called memory.
CREATE TABLE memory_sample(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, rss INTEGER, vms INTEGER, shared INTEGER,
  data INTEGER, swap INTEGER, peak INTEGER
);
CREATE TABLE cpu(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, user_us INTEGER, system_us INTEGER,
  threads INTEGER, voluntary INTEGER, involuntary INTEGER, minor_faults INTEGER,
  major_faults INTEGER, agent_us INTEGER, handler_us INTEGER
);
CREATE TABLE io(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, rchar INTEGER, wchar INTEGER, syscr INTEGER,
  syscw INTEGER, read_bytes INTEGER, write_bytes INTEGER
);
CREATE TABLE network(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, interface TEXT, rx_bytes INTEGER,
  tx_bytes INTEGER, rx_packets INTEGER, tx_packets INTEGER, rx_errors INTEGER, tx_errors INTEGER
);

-- Memory at the end of each step. GPU columns: from torch's allocator; NULL without a GPU.
CREATE TABLE memory_step(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, step INTEGER, rss INTEGER, vms INTEGER,
  gpu_allocated INTEGER, gpu_reserved INTEGER
);
-- GPUs, as reported by NVML; NULL: not known.
CREATE TABLE gpu(
  id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, device INTEGER NOT NULL, uuid TEXT, name TEXT,
  util INTEGER, memory_util INTEGER, memory_used INTEGER, memory_total INTEGER,
  process_memory INTEGER, power_mw INTEGER, temperature INTEGER, sm_clock INTEGER
);
