/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c - the one file that names all features of the agent: agent/core/part.h says what a part is. */
#include "agent/comm/comm.h"
#include "agent/core/part.h"
#include "agent/gpu/gpu.h"
#include "agent/process/process_part.h"
#include "agent/python/python_part.h"
#include "agent/sampler/sampler.h"
#include "agent/torch/torch.h"
#include "agent/trigger/trigger.h"

const struct agent_part *const agent_parts[] = {
    &process_part, &sampler_part, &python_part, &eval_part, &trigger_part,
    &gpu_part,     &torch_part,   &comm_part,   NULL,
};
