/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - GPU metrics by NVML (libnvidia-ml.so.1, loaded at run time): a `gpu` record for each device at the metrics' interval.
 *
 * A part (agent/core/part.h). Once the process has to do with GPUs (libcuda, libtorch or NVML itself is loaded already) a thread
 * of our own loads NVML and asks it: its calls may take long or, with a broken GPU, for ever, and its files are to be in nobody's
 * table of descriptors, so the thread has an empty one of its own. Absent or refused: noted once. A forked child has no such
 * thread: NVML does not survive fork.
 */
#ifndef PROBING_AGENT_GPU_H
#define PROBING_AGENT_GPU_H

#include "agent/core/part.h"

extern const struct agent_part gpu_part;

#endif
