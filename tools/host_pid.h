/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_pid.h - the process id, as seen from here, of a recorded process that may live in another pid namespace (a container).
 *
 *     int pid = host_pid(live);       // 0: it cannot be seen from here
 *
 * In the namespace of the caller that is the pid in the live file; else /proc is searched for it.
 */
#ifndef PROBING_TOOLS_HOST_PID_H
#define PROBING_TOOLS_HOST_PID_H

#include "../writer/live.h"

int host_pid(const struct live *l);

#endif
