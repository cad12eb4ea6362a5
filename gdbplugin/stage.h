/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.h - the staging directory of an injection: a private directory of the target's user, where the target sees
 * it, that holds a copy of libprobing-inject.so and its inject.conf, and gets inject.status from it (agent.h).
 *
 *     rc = stage_make(&s, pid, &pre, lib_dir, conf, &why);
 *     ... dlopen(s.lib_there) in the target ...
 *     rc = stage_status(&s, text, sizeof text);     // 0: nothing yet, 1: well; -EIO, -EALREADY: text says why
 *     stage_remove(&s);                             // mapped files live on
 *
 * All is made with the file-system identity of the target's user
 * (setfsuid), and under the target's own root (openat2, RESOLVE_IN_ROOT): root never writes where another user, or
 * a container, could have laid a link. Functions return 0 or -errno; *why is a malloc()ed line.
 */
#ifndef PROBING_INSPECT_STAGE_H
#define PROBING_INSPECT_STAGE_H

#include <stddef.h>
#include <sys/types.h>

#include "preflight.h"

struct stage {
    uid_t uid;
    gid_t gid;
    int made, locked, fresh; /* fresh: the run directory was made for this */
    int run, dir;            /* open directories: the run directory, and ours in it */
    char name[64];           /* ours, in the run directory */
    char lib_there[4096];    /* paths as the target has them */
};

int stage_make(struct stage *s, pid_t pid, const struct preflight *pre, const char *lib_dir,
               const char *conf, char **why);
/* A file beside the stub, for the target to read: its path there in *there (n bytes). */
int stage_file(struct stage *s, const char *name, const char *text, char *there, size_t n);
int stage_status(struct stage *s, char *text, size_t n);
/* May be called twice, and for a zeroed struct stage. */
void stage_remove(struct stage *s);

/* Runs with the file-system identity of that user until stage_leave(). A no-op for one's own. */
void stage_enter(uid_t uid, gid_t gid);
void stage_leave(void);

#endif
