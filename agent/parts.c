/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c - the one file that names all features of the agent: agent/core/part.h says what a part is. */
#include "agent/core/part.h"

extern const struct agent_part process_part, sampler_part, python_part, eval_part, trigger_part,
    gpu_part, torch_part, step_memory_part, comm_part;

const struct agent_part *const agent_parts[] = {
    &process_part, &sampler_part, &python_part,      &eval_part, &trigger_part,
    &gpu_part,     &torch_part,   &step_memory_part, &comm_part, NULL,
};
