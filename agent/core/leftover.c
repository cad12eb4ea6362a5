/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/leftover.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "writer/writer.h"

#define MOST 8 /* programs one process has been through without its agent starting each time */

/* The same process, not just the same number: another container may share the directory. */
static int is_ours(const char *path, const struct live *own) {
    struct live *l;
    if (live_open(&l, path, 0))
        return 0;
    int same = l->pid == own->pid && l->pid_ns == own->pid_ns &&
               l->start_ticks == own->start_ticks && !strcmp(l->boot_id, own->boot_id);
    live_close(l);
    return same;
}

int leftover_finish(const struct live *own, const char *own_path) {
    char path[4096], mark[16];
    const char *base = strrchr(own_path, '/');
    struct writer_finished done;
    int n = 0, dir_len = base ? (int)(base - own_path) : 0;
    if (!base || snprintf(path, sizeof path, "%.*s", dir_len, own_path) >= (int)sizeof path)
        return 0;
    base++;
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    snprintf(mark, sizeof mark, "%u-", own->pid);
    for (struct dirent *e; n < MOST && (e = readdir(dir));) {
        size_t len = strlen(e->d_name);
        if (strncmp(e->d_name, mark, strlen(mark)) || len < 5 ||
            strcmp(e->d_name + len - 5, ".live") || !strcmp(e->d_name, base))
            continue;
        if (snprintf(path, sizeof path, "%.*s/%s", dir_len, own_path, e->d_name) <
                (int)sizeof path &&
            is_ours(path, own) && !writer_finish(path, "exec", 0, &done))
            n++;
    }
    closedir(dir);
    return n;
}
