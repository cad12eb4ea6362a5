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
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../gdbplugin/inspect.h"
#include "../traces/proc.h"
#include "../writer/sys.h"
#include "../writer/writer.h"
#include "common.h"
#include "host_pid.h"

#define ASKED_NS   50000000
#define ASKED_MOST 4
#define BEGUN_S    1 /* seconds until an unfinished live file counts as abandoned */

/* Returns whether the process has mapped the live file. After an exec it has not: the process lives on, but not the program that was recorded.
 * Where the process's mappings cannot be read, the file counts as mapped. */
static int is_mapped(const struct live *l, const char *path) {
    /* The last processes that were found to have their live file mapped. One question to a process looks twice within milliseconds, the second time among its
     * children, and each look takes a millisecond for a large process. */
    static _Thread_local struct {
        uint64_t start, when;
        int pid;
    } seen[ASKED_MOST];
    static _Thread_local unsigned next;
    const char *name = strrchr(path, '/');
    uint64_t now = sys_now();
    int pid = host_pid(l);

    for (unsigned i = 0; i < ASKED_MOST; i++)
        if (seen[i].pid == pid && seen[i].start == l->start_mono && now - seen[i].when < ASKED_NS)
            return 1;
    if (proc_has_shared(pid, name ? name : path) == 0)
        return 0;
    seen[next].pid = pid;
    seen[next].start = l->start_mono;
    seen[next].when = now;
    next = (next + 1) % ASKED_MOST;
    return 1;
}

int live_seen_alive(const struct live_seen *seen) {
    return seen->l && live_process_alive(seen->l) && is_mapped(seen->l, seen->path);
}

int live_seen_stopped(const struct live_seen *seen) {
    int pid = host_pid(seen->l);
    char state = 0;
    pid_t *tids;

    if (pid <= 0 || proc_task(pid, 0, NULL, 0, &state) < 0 || (state != 'T' && state != 't'))
        return 0;
    ssize_t n = proc_tids(pid, &tids);
    for (ssize_t i = 0; i < n && (state == 'T' || state == 't'); i++)
        if (proc_task(pid, tids[i], NULL, 0, &state) < 0)
            state = 'T'; /* gone meanwhile */
    free(tids);
    return state == 'T' || state == 't';
}

static int scan_file(const char *path, int (*fn)(const struct live_seen *, void *), void *arg) {
    struct live_seen seen = {.path = path};
    struct live *l = NULL;

    seen.error = live_open(&l, path, 0);
    if (seen.error == -ENOENT) /* removed since readdir(): the recording has ended */
        return 0;
    if (seen.error == 0 && l->uid != geteuid()) {
        live_close(l);
        l = NULL;
        seen.error = -EPERM; /* root can open it, but its owner may write anything there */
    }
    if (seen.error == 0)
        seen.l = l;
    /* A dead process that recorded nothing (its agent came for probing eval, or it was killed at the start): nothing is lost when its live file is removed. */
    int nothing = l && !l->trace_path[0] && !live_seen_alive(&seen);
    int rc = nothing ? 0 : fn(&seen, arg);
    if (nothing)
        writer_finish(path, "killed", 0, NULL);
    if (l)
        live_close(l);
    return rc;
}

/* Removes an unfinished live file of a process that was killed while it created the file. */
static void remove_begun(const char *path) {
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        time(NULL) - st.st_mtime > BEGUN_S && flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlink(path);
    if (fd >= 0)
        close(fd);
}

static int ends_with(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);

    return n > k && strcmp(name + n - k, end) == 0;
}

/* Opens the folder, if it belongs to this user and nobody else may put files there. Returns NULL if there is none or it cannot be trusted. The
 * latter is reported only for PROBING_RUN_DIR: in places that are open to all, others may create any number of such folders. */
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
        if (snprintf(path, sizeof path, "%s/%s", dir, e->d_name) >= (int)sizeof path)
            continue;
        if (ends_with(e->d_name, ".live"))
            rc = scan_file(path, fn, arg);
        else if (ends_with(e->d_name, ".live" LIVE_BEGUN))
            remove_begun(path);
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

    if (run && access(run, F_OK) == 0 && live_place(0, run, NULL, own, sizeof own) == 0)
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
