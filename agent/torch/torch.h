/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.h - training telemetry of PyTorch: modules' forward and backward, steps, data loading.
 *
 * A part (agent/core/part.h): begins with a recording, has its rounds, and takes what it put into the program out again at the
 * end of a recording that the process survives.
 *
 * A process that never maps libtorch_cpu.so pays a look at the loader's list four times a second, and nothing else. Once it is
 * mapped, the main thread is asked (Py_AddPendingCall: it runs between two of its instructions, with the GIL) every 20 ms
 * whether nn.Module is there, and then puts the slots in place (torch_slot.h); a helper thread does it when that one does
 * not answer for a second. The RecordFunction callbacks need no Python
 * (torch_step.h, torch_back.h). The GPU's side: torch_cuda.h. What is written, and how: torch_thread.h. When anything is not as expected, that part stays off
 * and one note says why.
 */
#ifndef PROBING_AGENT_TORCH_H
#define PROBING_AGENT_TORCH_H

#include "agent/core/part.h"

extern const struct agent_part torch_part;

#endif
