/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.h - training telemetry of PyTorch: modules' forward and backward, steps, data loading.
 *
 *     torch_open(live);           // a recording begins
 *     torch_round(w);             // each round of the service thread; returns ns until the next one is wanted, 0: no wish
 *     torch_close(w, stays);      // before the live file goes: nobody writes any more. stays: the process is to go on, so all
 *                                 // that was put into it is taken out again
 *     torch_after_fork();
 *
 * A process that never maps libtorch_cpu.so pays a look at the loader's list four times a second, and nothing else. Once it is
 * mapped, the main thread is asked (Py_AddPendingCall: it runs between two of its instructions, with the GIL) every 20 ms
 * whether nn.Module is there, and then puts the slots in place (torch_slot.h); a helper thread does it when that one does
 * not answer for a second. The RecordFunction callbacks need no Python
 * (torch_step.h, torch_back.h). The GPU's side: torch_cuda.h. What is written, and how: torch_lane.h. When anything is not as expected, that part stays off
 * and one note says why.
 *
 * Service thread only, but torch_after_fork().
 */
#ifndef PROBING_AGENT_TORCH_H
#define PROBING_AGENT_TORCH_H

#include "writer/writer.h"

void torch_open(struct live *live);
uint64_t torch_round(struct writer *w);
/* w: NULL where nothing can be written any more. */
void torch_close(struct writer *w, int stays);
/* In a forked child; async-signal-safe. The slots stay where they are, and record when the child's recording begins. */
void torch_after_fork(void);

#endif
