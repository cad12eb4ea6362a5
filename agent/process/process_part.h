/* SPDX-License-Identifier: Apache-2.0 */
/* process_part.h - the part (agent/core/part.h) that records what the kernel says of this process: metrics, modules. */
#ifndef PROBING_AGENT_PROCESS_PART_H
#define PROBING_AGENT_PROCESS_PART_H

#include "agent/core/part.h"

extern const struct agent_part process_part;

#endif
