/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.h - the staging directory of an injection: a private directory of the target's user that holds a
 * copy of libprobing-inject.so and its inject.conf, and gets inject.status from it (agent.h).
 *
 *     rc = stage_make(&s, pid, uid, gid, lib_dir, conf, 0, &why);
 *     ... dlopen(s.lib) in the target ...
 *     rc = stage_status(&s, text, sizeof text);     // 0: nothing yet, 1: well, -EIO: text says why
 *     stage_remove(&s);                             // mapped files live on
 *
 * It is made with the file-system identity of the target's user (setfsuid): root never writes where another user could
 * have laid a link. Functions return 0 or -errno; *why is a malloc()ed line.
 */
#ifndef PROBING_INSPECT_STAGE_H
#define PROBING_INSPECT_STAGE_H

#include <stddef.h>
#include <sys/types.h>

struct stage {
    uid_t uid;
    gid_t gid;
    char dir[3072];
    char lib[4096];
};

int stage_make(struct stage *s, pid_t pid, uid_t uid, gid_t gid, const char *lib_dir,
               const char *conf, char **why);
int stage_status(struct stage *s, char *text, size_t n);
void stage_remove(struct stage *s);

/* Runs with the file-system identity of that user until stage_leave(). A no-op for one's own. */
void stage_enter(uid_t uid, gid_t gid);
void stage_leave(void);

#endif
