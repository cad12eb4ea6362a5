/* SPDX-License-Identifier: Apache-2.0 */
#include "live_scan.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../gdbplugin/stage.h"

#define NDIRS 3

static int scan_file(const char *path, int (*fn)(const struct live_seen *, void *), void *arg) {
    struct live_seen seen = {.path = path};
    struct live *l = NULL;

    seen.error = live_open(&l, path, 0);
    if (seen.error == -ENOENT) /* gone since readdir: its recording has ended */
        return 0;
    if (seen.error == 0) {
        seen.l = l;
        seen.alive = live_process_alive(l);
    }
    int rc = fn(&seen, arg);
    if (l)
        live_close(l);
    return rc;
}

static int scan_dir(const char *dir, int (*fn)(const struct live_seen *, void *), void *arg) {
    char path[PATH_MAX];
    struct dirent *e;
    int rc = 0;
    DIR *d = opendir(dir);

    if (!d)
        return 0;
    stage_sweep(dir);
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

int live_scan(int (*fn)(const struct live_seen *, void *), void *arg) {
    char dir[NDIRS][PATH_MAX] = {{0}};
    struct stat st[NDIRS];
    unsigned n = 0;
    const char *env;

    if ((env = getenv("PROBING_RUN_DIR")) && *env) {
        snprintf(dir[0], sizeof dir[0], "%s", env);
        return scan_dir(dir[0], fn, arg);
    }
    if ((env = getenv("XDG_RUNTIME_DIR")) && *env)
        snprintf(dir[0], sizeof dir[0], "%s/probing", env);
    snprintf(dir[1], sizeof dir[1], "/run/user/%u/probing", (unsigned)getuid());
    snprintf(dir[2], sizeof dir[2], "/tmp/probing-%u", (unsigned)getuid());

    for (unsigned i = 0; i < NDIRS; i++) {
        int known = 0, rc;
        if (!*dir[i] || stat(dir[i], &st[n]) < 0)
            continue;
        /* The same directory under two names must not be reported twice. */
        for (unsigned k = 0; k < n; k++)
            known |= st[k].st_dev == st[n].st_dev && st[k].st_ino == st[n].st_ino;
        if (known)
            continue;
        n++;
        if ((rc = scan_dir(dir[i], fn, arg)))
            return rc;
    }
    return 0;
}
