/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_observe.h - our one callback of at::RecordFunction, for what the program and PyTorch mark by name (torch_step.h:
 * Optimizer.step, the DataLoader's __next__), and for autograd's nodes until they are seen without it (torch_back.h).
 *
 * One and not two: the engine builds its list of callbacks anew twice a node, so each entry in it costs every node.
 *
 *   observe_start(1);     for both kinds; again with 0: marks only
 *   observe_stop();
 *
 * Service thread, once torch_lib is loaded. The callback itself runs on any thread, with or without the GIL.
 */
#ifndef PROBING_AGENT_TORCH_OBSERVE_H
#define PROBING_AGENT_TORCH_OBSERVE_H

void observe_start(int nodes);
void observe_stop(void);

#endif
