/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pymodule.h - `_probing`, the agent's side of `import probing` (agent/python_api/probing).
 *
 * The agent is its own extension module: the package asks the import machinery for libprobing-agent.so under the name _probing, which
 * is the very object that is loaded already (preload, inject), or loads it (PROBING=1, probing.enable()). When the
 * package was imported before the agent came, it is told by a call of its _arrived().
 */
#ifndef PROBING_AGENT_PYMODULE_H
#define PROBING_AGENT_PYMODULE_H

#include "agent/core/agent.h"

/* For the import machinery alone: with the GIL; a new module object or NULL and an error. */
PROBING_EXPORT void *PyInit__probing(void);

#endif
