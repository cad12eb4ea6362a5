/* SPDX-License-Identifier: Apache-2.0 */
/* python_part.h - the parts (agent/core/part.h) of this folder: variables and `import probing`, evaluations. */
#ifndef PROBING_AGENT_PYTHON_PART_H
#define PROBING_AGENT_PYTHON_PART_H

#include "agent/core/part.h"

extern const struct agent_part python_part, eval_part;

#endif
