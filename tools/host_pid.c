/* SPDX-License-Identifier: Apache-2.0 */
#include "host_pid.h"

#include <dirent.h>
#include <stdlib.h>

#include "../traces/proc.h"

int host_pid(const struct live *l) {
    DIR *d;
    struct dirent *e;
    int pid = 0;

    if (!l->pid_ns || l->pid_ns == proc_namespace(0, "pid"))
        return (int)l->pid;
    if (!(d = opendir("/proc")))
        return 0;
    while (!pid && (e = readdir(d))) {
        int one = atoi(e->d_name);
        if (one > 0 && proc_own_id(one, 0) == (int)l->pid &&
            proc_namespace(one, "pid") == l->pid_ns)
            pid = one;
    }
    closedir(d);
    return pid;
}
