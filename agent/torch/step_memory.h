/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_memory.h - the process's memory at the ends of steps, as a record each: resident and virtual size, and what torch's
 * allocator has on the GPU.
 *
 *     step_memory_open();            // a recording begins; from then on at each end of a step, in the thread that trains
 *
 * /proc/self/statm is opened each time, because a descriptor that stays would be one of the program's: 2 us where all is warm, 37 us
 * (measured) right after an optimizer has gone through the caches. So it is kept to 1 / STEP_MEMORY_SHARE of the time: steps of 40 ms
 * and more have their record, shorter ones now and then; the first STEP_MEMORY_FIRST steps have it whatever it costs. Nothing is
 * recorded that was not read at that step's end.
 */
#ifndef PROBING_AGENT_STEP_MEMORY_H
#define PROBING_AGENT_STEP_MEMORY_H

#define STEP_MEMORY_SHARE 1000
#define STEP_MEMORY_FIRST 25
#define STEP_MEMORY_SAVED 50000u /* ns that can be saved up */

/* Service thread. */
void step_memory_open(void);

#endif
