/* SPDX-License-Identifier: Apache-2.0 */
#include "live_scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../gdbplugin/inspect.h"
#include "common.h"

static int scan_file(const char *path, int (*fn)(const struct live_seen *, void *), void *arg) {
    struct live_seen seen = {.path = path};
    struct live *l = NULL;

    seen.error = live_open(&l, path, 0);
    if (seen.error == -ENOENT) /* gone since readdir: its recording has ended */
        return 0;
    if (seen.error == 0 && l->uid != geteuid()) {
        live_close(l);
        l = NULL;
        seen.error = -EPERM; /* root may open it, but whose it is may write there what he likes */
    }
    if (seen.error == 0) {
        seen.l = l;
        seen.alive = live_process_alive(l);
    }
    int rc = fn(&seen, arg);
    if (l)
        live_close(l);
    return rc;
}

/* The folder, if it is this user's, and nobody else may put a file there. NULL: none, or not to be trusted, which is said of
 * the one that was asked for alone: others may make any number of them where everybody may. */
static DIR *open_dir(const char *dir) {
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const char *run = getenv("PROBING_RUN_DIR");
    int asked_for = run && strcmp(run, dir) == 0;
    struct stat st;
    DIR *d = NULL;

    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & 022))
        d = fdopendir(fd);
    else if (asked_for && st.st_uid != geteuid())
        tool_say("%s belongs to user %u: what is there is not looked at", dir, (unsigned)st.st_uid);
    else if (asked_for)
        tool_say("others may write into %s: what is there is not looked at (chmod 700)", dir);
    if (!d)
        close(fd);
    return d;
}

static int scan_dir(const char *dir, int (*fn)(const struct live_seen *, void *), void *arg) {
    char path[PATH_MAX];
    struct dirent *e;
    int rc = 0;
    DIR *d = open_dir(dir);

    if (!d)
        return 0;
    inspect_sweep(dir);
    while (rc == 0 && (e = readdir(d))) {
        size_t n = strlen(e->d_name);
        if (n < 6 || strcmp(e->d_name + n - 5, ".live") != 0)
            continue;
        if (snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path)
            rc = scan_file(path, fn, arg);
    }
    closedir(d);
    return rc;
}

/* The same directory under two names must not be reported twice. */
static int seen_before(const glob_t *g, size_t i) {
    struct stat st, other;

    if (stat(g->gl_pathv[i], &st) < 0)
        return 1;
    for (size_t k = 0; k < i; k++)
        if (stat(g->gl_pathv[k], &other) == 0 && st.st_dev == other.st_dev &&
            st.st_ino == other.st_ino)
            return 1;
    return 0;
}

int live_scan(int (*fn)(const struct live_seen *, void *), void *arg) {
    char own[PATH_MAX];
    const char *run = getenv("PROBING_RUN_DIR"), *xdg = getenv("XDG_RUNTIME_DIR");
    unsigned uid = (unsigned)geteuid();
    glob_t found = {0};
    int rc = 0;

    if (run && access(run, F_OK) == 0 && live_place(0, run, own, sizeof own) == 0)
        return scan_dir(run, fn, arg);
    if (run && *run)
        glob(run, GLOB_APPEND, NULL, &found);
    if (xdg && *xdg && snprintf(own, sizeof own, "%s/probing", xdg) < (int)sizeof own)
        glob(own, GLOB_APPEND, NULL, &found);
    snprintf(own, sizeof own, "{/run/user/%u/probing,{/tmp,/dev/shm,/var/tmp}/probing-%u{,-*}}",
             uid, uid);
    glob(own, GLOB_BRACE | GLOB_APPEND, NULL, &found);
    for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++) {
        if (!seen_before(&found, i))
            rc = scan_dir(found.gl_pathv[i], fn, arg);
    }
    globfree(&found);
    return rc;
}
