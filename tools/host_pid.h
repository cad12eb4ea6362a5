/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_pid.h - finds the process id, as seen from here, of a recorded process that may run in another pid namespace (a container).
 *
 *     int pid = host_pid(live);       // 0: it cannot be seen from here
 *
 * In the namespace of the caller that is the pid in the live file; otherwise /proc is searched for the process.
 */
#ifndef PROBING_TOOLS_HOST_PID_H
#define PROBING_TOOLS_HOST_PID_H

#include "../writer/live.h"

int host_pid(const struct live *l);

#endif
