/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_memory.h - the process's memory at the ends of steps, as a record each: resident and virtual size, and what torch's
 * allocator has on the GPU.
 *
 *     step_memory(&step, &gpu);      // in the thread that trains
 *     step_memory_close();           // the end, and in a forked child
 *
 * The kernel is asked by two system calls: 6 us where all is warm, 27 us (measured) right after an optimizer has gone through
 * the caches. So it is kept to 1 / STEP_MEMORY_SHARE of the time: steps of 30 ms and more have their record, shorter ones
 * now and then; a program's first steps all have it. Nothing is told that was not read at that step's end.
 *
 * The caller sees to it that no two of these run at once.
 */
#ifndef PROBING_AGENT_STEP_MEMORY_H
#define PROBING_AGENT_STEP_MEMORY_H

#include "agent/core/steps.h"
#include "agent/torch/torch_cuda.h"

#define STEP_MEMORY_SHARE 1000
#define STEP_MEMORY_FIRST 1000000u /* ns that there are at first */
#define STEP_MEMORY_SAVED 50000u   /* ns that can be saved up */

/* gpu: -1 in it where nothing is known; what is known is always recorded. Needs no GIL. */
void step_memory(const struct step *s, const struct cuda_memory *gpu);
void step_memory_close(void);

#endif
