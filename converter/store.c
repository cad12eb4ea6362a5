/* SPDX-License-Identifier: Apache-2.0 */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char schema[] = {
#include "converter/schema.sql.inc"
    0};

#define AFTER_LOAD "--@ after load"

static int fail(struct store *s, int err, const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(s->error, sizeof s->error, fmt, ap);
    va_end(ap);
    return err;
}

/* Whether the file system of the new database has (nearly) no room left. */
static int disk_full(const struct store *s) {
    struct statvfs v;

    return statvfs(s->temp, &v) == 0 && v.f_bavail * v.f_frsize < (256u << 10);
}

/* Whether the new database has grown as far as this process may let a file grow. SQLite, after a write
 * that was cut short, no longer knows why. */
static int at_size_limit(const struct store *s) {
    struct rlimit limit;
    struct stat st;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           stat(s->temp, &st) == 0 && (rlim_t)st.st_size + 4096 >= limit.rlim_cur;
}

int store_failed(struct store *s, int rc, const char *doing) {
    int sys = s->db ? sqlite3_system_errno(s->db) : 0;

    switch (rc & 0xff) {
    case SQLITE_OK:
        return 0;
    case SQLITE_INTERRUPT:
        return fail(s, -EINTR, "interrupted");
    case SQLITE_NOMEM:
        return fail(s, -ENOMEM, "out of memory while %s", doing);
    case SQLITE_FULL:
        return fail(s, -ENOSPC,
                    "%s: no space left on the disk while %s (free some, or write elsewhere)",
                    s->path, doing);
    case SQLITE_IOERR:
        if (sys == 0 && at_size_limit(s))
            sys = EFBIG;
        if (sys == EDQUOT || sys == EFBIG)
            return fail(s, -sys, "%s: %s while %s", s->path, strerror(sys), doing);
        if (sys == ENOSPC || disk_full(s))
            return store_failed(s, SQLITE_FULL, doing);
        break;
    }
    return fail(s, -EIO, "%s: %s while %s", s->path,
                s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc), doing);
}

/*
 * No journal and no syncing: until the rename nobody else sees this file, and a file that is not
 * finished is thrown away.
 */
static int prepare(struct store *s) {
    const char *end = strstr(schema, AFTER_LOAD);
    char *sql = sqlite3_mprintf(
        "PRAGMA page_size = 16384; PRAGMA journal_mode = OFF;"
        "PRAGMA synchronous = OFF; PRAGMA secure_delete = OFF; PRAGMA locking_mode = EXCLUSIVE;"
        "PRAGMA cache_size = -8192; PRAGMA threads = 2; BEGIN; %.*s",
        (int)(end - schema), schema);
    int rc = sql ? sqlite3_exec(s->db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;

    sqlite3_free(sql);
    return store_failed(s, rc, "creating the tables");
}

/* Sorting spills into files: beside the database there is room, /tmp may be memory. */
static void spill_beside(const char *out) {
    const char *slash = strrchr(out, '/');
    char dir[4096];

    if (getenv("SQLITE_TMPDIR"))
        return;
    if (slash)
        snprintf(dir, sizeof dir, "%.*s", slash == out ? 1 : (int)(slash - out), out);
    setenv("SQLITE_TMPDIR", slash ? dir : ".", 1);
}

int store_open(struct store *s, const char *out, int force) {
    struct stat st;

    memset(s, 0, sizeof *s);
    s->force = force;
    if (snprintf(s->path, sizeof s->path, "%s", out) >= (int)sizeof s->path)
        return fail(s, -ENAMETOOLONG, "the name of the database is too long");
    snprintf(s->temp, sizeof s->temp, "%s.tmp-%d", out, (int)getpid());
    if (stat(out, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return fail(s, -EISDIR, "%s is a directory (name the database to write)", out);
        if (!force)
            return fail(s, -EEXIST, "%s exists (--force replaces it)", out);
    }
    unlink(s->temp); /* of a dead process that had our pid */
    int fd = open(s->temp, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail(s, -errno, "cannot create %s: %s", out, strerror(errno));
    close(fd);
    spill_beside(out);
    int rc = sqlite3_open_v2(s->temp, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    int err = rc == SQLITE_OK ? prepare(s) : store_failed(s, rc, "opening it");
    if (err) {
        store_abort(s);
        return err;
    }
    return 0;
}

void store_abort(struct store *s) {
    sqlite3_close_v2(s->db);
    s->db = NULL;
    if (*s->temp)
        unlink(s->temp);
    *s->temp = 0;
}

/* Gives the new file its name. A journal of the old database would damage the new one. */
static int put_in_place(struct store *s) {
    static const char *const sidecars[] = {"-journal", "-wal", "-shm"};
    char name[4128];

    if (!s->force) {
        if (renameat2(AT_FDCWD, s->temp, AT_FDCWD, s->path, RENAME_NOREPLACE) == 0)
            return 0;
        if (errno == EEXIST)
            return fail(s, -EEXIST, "%s exists (--force replaces it)", s->path);
        if (errno != EINVAL && errno != ENOSYS) /* EINVAL: not on this file system */
            return fail(s, -errno, "cannot rename to %s: %s", s->path, strerror(errno));
        if (access(s->path, F_OK) == 0)
            return fail(s, -EEXIST, "%s exists (--force replaces it)", s->path);
    }
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", s->path, sidecars[i]);
        unlink(name);
    }
    if (rename(s->temp, s->path) != 0)
        return fail(s, -errno, "cannot rename to %s: %s", s->path, strerror(errno));
    return 0;
}

int store_finish(struct store *s) {
    int rc = sqlite3_exec(s->db, strstr(schema, AFTER_LOAD), NULL, NULL, NULL);
    int err = store_failed(s, rc, "building the indexes");

    if (!err)
        err = store_failed(s, sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL), "writing");
    if (!err) {
        rc = sqlite3_close(s->db);
        s->db = rc == SQLITE_OK ? NULL : s->db;
        err = store_failed(s, rc, "closing it");
    }
    if (!err)
        err = put_in_place(s);
    store_abort(s);
    return err;
}
