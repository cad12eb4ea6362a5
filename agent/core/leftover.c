/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdio.h>

#include "agent/core/state.h"

#define MOST 8 /* most live files to finish: programs that one process ran before this one */

/* Returns whether the live file is of this process (an equal pid is not enough: another container may share the directory); or, if own is
 * NULL, of a dead process that wrote FILE or FILE.d/... */
static int is_wanted(const char *path, const struct live *own, const char *trace) {
    struct live *l;
    size_t n = own ? 0 : strlen(trace);
    if (live_open(&l, path, 0))
        return 0;
    int yes = own ? l->pid == own->pid && l->pid_ns == own->pid_ns &&
                        l->start_ticks == own->start_ticks && !strcmp(l->boot_id, own->boot_id)
                  : !strncmp(l->trace_path, trace, n) &&
                        (!l->trace_path[n] || !strncmp(l->trace_path + n, ".d/", 3)) &&
                        !live_process_alive(l);
    live_close(l);
    return yes;
}

/* Finishes the live files of this process (`own`), or those of `trace`. `base`: name of our own live file, which is skipped. */
static int finish_in(const char *where, const char *base, const struct live *own,
                     const char *trace) {
    char path[4096], mark[16] = "";
    int n = 0;
    DIR *dir = opendir(where);
    if (own)
        snprintf(mark, sizeof mark, "%u-", own->pid);
    for (struct dirent *e; dir && n < MOST && (e = readdir(dir));) {
        size_t len = strlen(e->d_name);
        if (strncmp(e->d_name, mark, strlen(mark)) || len < 5 ||
            strcmp(e->d_name + len - 5, ".live") || !strcmp(e->d_name, base))
            continue;
        if (snprintf(path, sizeof path, "%s/%s", where, e->d_name) < (int)sizeof path &&
            is_wanted(path, own, trace) && !writer_finish(path, own ? "exec" : "killed", 0, NULL))
            n++;
    }
    if (dir)
        closedir(dir);
    return n;
}

int leftover_finish(const struct live *own, const char *own_path) {
    char where[4096];
    const char *base = strrchr(own_path, '/');
    if (!base)
        return 0;
    snprintf(where, sizeof where, "%.*s", (int)(base - own_path), own_path);
    return finish_in(where, base + 1, own, NULL);
}

void leftover_of_trace(const char *trace, void *config) {
    const struct agent_config *c = config;
    char where[4096];
    for (unsigned i = 0; i < LIVE_PLACES; i++)
        if (!live_place(i, c->run_dir, c->xdg, where, sizeof where)) {
            finish_in(where, "", NULL, trace);
            break;
        }
}
