/* SPDX-License-Identifier: Apache-2.0 */
#include "host_pid.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t namespace_of(const char *pid) {
    char path[300];
    struct stat st;

    snprintf(path, sizeof path, "/proc/%s/ns/pid", pid);
    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* The pid that the process has in its innermost namespace: the last number of NSpid. 0: not known. */
static uint32_t innermost(const char *pid) {
    char path[300], line[256];
    unsigned long n = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%s/status", pid);
    if (!(f = fopen(path, "re")))
        return 0;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "NSpid:", 6) != 0)
            continue;
        char *last = strrchr(line, '\t');
        n = last ? strtoul(last, NULL, 10) : 0;
        break;
    }
    fclose(f);
    return (uint32_t)n;
}

int host_pid(const struct live *l) {
    DIR *d;
    struct dirent *e;
    int pid = 0;

    if (!l->pid_ns || l->pid_ns == namespace_of("self"))
        return (int)l->pid;
    if (!(d = opendir("/proc")))
        return 0;
    while (!pid && (e = readdir(d))) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9' || innermost(e->d_name) != l->pid)
            continue;
        if (namespace_of(e->d_name) == l->pid_ns)
            pid = atoi(e->d_name);
    }
    closedir(d);
    return pid;
}
