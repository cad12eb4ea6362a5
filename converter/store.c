/* SPDX-License-Identifier: Apache-2.0 */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "output.h"
#include "own_tables.h"
#include "ranks_said.h"
#include "tables.h"

#define CACHE_WAIT_MS  10000
#define COMMIT_WAIT_MS 60000
#define SMALL          (4u << 20) /* bytes of traces */
#define SMALLEST       (512u << 10)

static int fail(struct store *s, int err, const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(s->error, sizeof s->error, fmt, ap);
    va_end(ap);
    return err;
}

/* Returns 1 when the file system of the new database has (nearly) no space left. */
static int disk_full(const struct store *s) {
    struct statvfs v;

    return fstatvfs(s->fd, &v) == 0 && v.f_bavail * v.f_frsize < (256u << 10);
}

/* Returns 1 when the new database has reached the file size limit of this process. After a write that was cut short, SQLite no longer knows
 * the reason. */
static int at_size_limit(const struct store *s) {
    struct rlimit limit;
    struct stat st;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           fstat(s->fd, &st) == 0 && (rlim_t)st.st_size + 4096 >= limit.rlim_cur;
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

/* Each table and index takes at least one page: with large ones, half a megabyte for the database of a short recording. The smallest pages make the
 * rows larger (those of what is cut at their ends), by as much as they save for a trace of about half a megabyte. */
static unsigned page_size(const struct store *s) {
    uint64_t bytes = s->grows || s->inputs->n == 0 ? SMALL : 0;
    struct stat st;

    for (size_t i = 0; i < s->inputs->n && bytes < SMALL; i++)
        bytes += stat(s->inputs->file[i].path, &st) == 0 && S_ISREG(st.st_mode)
                     ? (uint64_t)st.st_size
                     : SMALL;
    return bytes < SMALLEST ? 1024 : bytes < SMALL ? 2048 : 8192;
}

/*
 * No journal and no syncing: nobody else sees this file until the rename, and an unfinished file is deleted.
 */
static int prepare(struct store *s) {
    char *sql = sqlite3_mprintf(
        "PRAGMA page_size = %u; PRAGMA journal_mode = OFF;"
        "PRAGMA synchronous = OFF; PRAGMA secure_delete = OFF; PRAGMA locking_mode = EXCLUSIVE;"
        "PRAGMA cache_size = -8192; PRAGMA threads = 2; PRAGMA application_id = %d;"
        "PRAGMA user_version = %d; BEGIN",
        page_size(s), OUTPUT_APPLICATION_ID, OUTPUT_SCHEMA_VERSION);
    int rc = sql ? sqlite3_exec(s->db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;

    sqlite3_free(sql);
    if (rc == SQLITE_OK)
        rc = s->cache        ? tables_add_live(s->db, s->asked, s->no_stacks, NULL)
             : s->not_stored ? tables_add_live(s->db, NULL, 0, NULL)
                             : tables_make(s->db);
    return store_failed(s, rc, "creating the tables");
}

/* Sorting spills into files. Beside the database there is space, while /tmp may be in memory. */
static void spill_beside(const char *out) {
    const char *slash = strrchr(out, '/');
    char dir[4096];

    if (getenv("SQLITE_TMPDIR"))
        return;
    if (slash)
        snprintf(dir, sizeof dir, "%.*s", slash == out ? 1 : (int)(slash - out), out);
    setenv("SQLITE_TMPDIR", slash ? dir : ".", 1);
}

/* Advising to replace what another converter has just made would be wrong when the user wanted to add to it. */
static int taken(struct store *s) {
    return fail(s, -EEXIST,
                s->grows
                    ? "%s was made by another program meanwhile (a second converter?): try again"
                    : "%s exists (--force replaces it)",
                s->path);
}

/* Checks that the name may be used: an existing file is replaced with --force, if it is one that may be replaced. */
static int check(struct store *s) {
    static const char *const sidecars[] = {"-journal", "-wal", "-shm"};
    char name[sizeof s->path + 16];
    int there = output_check(s->path, OUTPUT_DATABASE, s->inputs, s->error);

    if (there > 0 && !s->force)
        return taken(s);
    for (int i = 0; there >= 0 && i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", s->path, sidecars[i]);
        int rc = output_check(name, OUTPUT_SIDECAR, s->inputs, s->error);
        if (rc > 0 && !s->force)
            return fail(s, -EEXIST, "%s lies there, of another database (--force removes it)",
                        name);
        if (rc < 0)
            there = rc;
    }
    return there < 0 ? there : 0;
}

/*
 * Makes a database that disappears when this program ends, however it ends: its name is removed before the first row. The attached `python`
 * is the same file, opened while it still had its name, so that python.memory is memory.
 */
static int unname(struct store *s) {
    char *attach = sqlite3_mprintf("ATTACH %Q AS python", s->temp);
    int rc = attach ? sqlite3_exec(s->db, attach, NULL, NULL, NULL) : SQLITE_NOMEM;

    sqlite3_free(attach);
    unlink(s->temp);
    *s->temp = 0;
    return store_failed(s, rc, "opening it");
}

/* Returns 1 for a database in the making, whose first page is written late. */
static int looks_begun(int fd) {
    static const char zeros[16];
    char head[16];
    ssize_t n = pread(fd, head, sizeof head, 0);

    return n == 0 || (n == sizeof head && (memcmp(head, zeros, sizeof head) == 0 ||
                                           memcmp(head, "SQLite format 3", sizeof head) == 0));
}

/* Deletes leftovers of killed conversions to the same database, or to one without a name whose name was not removed yet: nobody holds the
 * lock on them. */
static void sweep(const struct store *s) {
    char pattern[sizeof s->path * 2 + 16], *p = pattern;
    glob_t found = {0};
    struct stat st;

    for (const char *c = s->path; *c; c++) { /* escape what has a meaning to glob() */
        if (strchr("*?[\\", *c))
            *p++ = '\\';
        *p++ = *c;
    }
    strcpy(p, ".tmp-??????");
    glob(pattern, 0, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        int fd = open(found.gl_pathv[i], O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
            looks_begun(fd) && flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlink(found.gl_pathv[i]);
        if (fd >= 0)
            close(fd);
    }
    globfree(&found);
}

/* Makes a file beside the database, locked as long as this process lives. Returns a descriptor or -errno. */
static int make_temp(struct store *s) {
    for (int i = 0; i < 10; i++) {
        struct stat st;
        snprintf(s->temp, sizeof s->temp, "%s.tmp-XXXXXX", s->path);
        int fd = mkostemp(s->temp, O_CLOEXEC);
        if (fd < 0)
            return -errno;
        /* another conversion may take it for a leftover, lock it for an instant and delete it */
        flock(fd, LOCK_EX);
        if (fstat(fd, &st) == 0 && st.st_nlink > 0)
            return fd;
        close(fd);
    }
    return -EAGAIN;
}

/* Opens the database in a new file. */
static int open_new(struct store *s, const char *out) {
    const char *tmp = getenv("TMPDIR");
    int n, err = 0;

    s->named = out != NULL;
    if (!out) { /* /tmp comes last: a database may be larger than memory */
        if (!tmp || !*tmp)
            tmp = access("/var/tmp", W_OK | X_OK) == 0 ? "/var/tmp" : "/tmp";
        n = snprintf(s->path, sizeof s->path, "%s/probing", tmp);
    } else {
        n = snprintf(s->path, sizeof s->path, "%s", out);
    }
    if (n >= (int)sizeof s->path)
        return fail(s, -ENAMETOOLONG, "the name of the database is too long");
    if (out && (err = check(s)) != 0)
        return err;
    sweep(s);
    s->fd = make_temp(s);
    if (s->fd < 0) {
        err = s->fd;
        *s->temp = 0;
        if (out)
            return fail(s, err, "cannot create %s: %s", out, strerror(-err));
        return fail(s, err, "cannot make a temporary database in %s: %s (set TMPDIR)", tmp,
                    strerror(-err));
    }
    if (out)
        fchmod(s->fd, output_mode(s->inputs));
    spill_beside(s->path);
    int rc = output_open(s->temp, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX);
    err = store_failed(s, rc, "opening it");
    if (!err && !out)
        err = unname(s);
    if (!err)
        err = prepare(s);
    if (err)
        store_abort(s);
    return err;
}

static int begin_adding(struct store *s) {
    int rc = output_open(s->path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX);

    if (rc == SQLITE_OK && s->cache) {
        sqlite3_busy_timeout(s->db, CACHE_WAIT_MS);
        /* Most pages are read just once: mapped pages are neither copied nor allocated. */
        sqlite3_exec(s->db, "PRAGMA synchronous = OFF; PRAGMA mmap_size = 268435456", NULL, NULL,
                     NULL);
    }
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(s->db, "PRAGMA cache_size = -8192; PRAGMA threads = 2; BEGIN IMMEDIATE",
                          NULL, NULL, NULL);
    if ((rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED)
        return fail(
            s, -EBUSY,
            "%s: another program writes it (a second converter?): try again when it has ended",
            s->path);
    if ((rc & 0xff) == SQLITE_READONLY || (rc & 0xff) == SQLITE_CANTOPEN ||
        (rc & 0xff) == SQLITE_PERM)
        return fail(s, -EACCES, "%s: cannot be written: %s", s->path, sqlite3_errmsg(s->db));
    if (rc != SQLITE_OK)
        return store_failed(s, rc, "opening it");
    int version = tables_number(s->db, "PRAGMA user_version");
    if (tables_number(s->db, "PRAGMA application_id") != OUTPUT_APPLICATION_ID)
        return fail(s, -EINVAL, "%s is no database of probing-convert", s->path);
    if (version != OUTPUT_SCHEMA_VERSION)
        return fail(
            s, -EPROTONOSUPPORT,
            "%s was made by %s version of probing (its tables are version %d, these %d): nothing can be added, convert its "
            "traces anew into another file",
            s->path, version > OUTPUT_SCHEMA_VERSION ? "a newer" : "an older", version,
            OUTPUT_SCHEMA_VERSION);
    return s->cache ? store_failed(s, tables_add_live(s->db, s->asked, s->no_stacks, &s->added),
                                   "adding views")
                    : 0;
}

int store_open(struct store *s, const char *out, unsigned how, const char *asked,
               const struct inputs *inputs) {
    struct stat st;

    memset(s, 0, sizeof *s);
    s->fd = -1;
    s->force = (how & STORE_FORCE) != 0;
    s->cache = (how & STORE_CACHE) != 0;
    s->no_stacks = (how & STORE_NO_STACKS) != 0;
    s->not_stored = (how & STORE_NOT_STORED) != 0;
    s->grows = (how & (STORE_ADD | STORE_CACHE)) != 0;
    s->asked = asked;
    s->inputs = inputs;
    if (!(how & STORE_ADD))
        return open_new(s, out);
    if (snprintf(s->path, sizeof s->path, "%s", out) >= (int)sizeof s->path)
        return fail(s, -ENAMETOOLONG, "the name of the database is too long");
    int there = output_check(out, OUTPUT_DATABASE, inputs, s->error);
    if (there < 0)
        return there;
    if (there == 0 || (stat(out, &st) == 0 && st.st_size == 0)) {
        s->force = there;
        return open_new(s, out);
    }
    s->named = s->adding = 1;
    s->fd = open(out, O_RDONLY | O_CLOEXEC); /* tells which disk it is on */
    spill_beside(s->path);
    int err = begin_adding(s);
    if (err)
        store_abort(s);
    else if (!s->cache && fstat(s->fd, &st) == 0 && st.st_mode & 0666 & ~output_most(inputs))
        fchmod(s->fd, st.st_mode & output_most(inputs));
    return err;
}

void store_abort(struct store *s) {
    /* Restore the file at once: when the disk was full, SQLite leaves that to the next program that reads it. */
    if (s->db && s->adding) {
        if (!sqlite3_get_autocommit(s->db))
            sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
        sqlite3_exec(s->db, "SELECT 1 FROM sqlite_master", NULL, NULL, NULL);
    }
    sqlite3_close_v2(s->db);
    s->db = NULL;
    if (*s->temp)
        unlink(s->temp);
    *s->temp = 0;
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

/* Gives the new file its name, after checking again what is there now. A journal of the old database would damage the new one. */
static int put_in_place(struct store *s) {
    static const char *const sidecars[] = {"-journal", "-wal", "-shm"};
    char name[sizeof s->path + 16];
    int err = check(s);

    if (err)
        return err;
    if (!s->force) {
        if (renameat2(AT_FDCWD, s->temp, AT_FDCWD, s->path, RENAME_NOREPLACE) == 0)
            return 0;
        if (errno == EEXIST)
            return taken(s);
        if (errno != EINVAL && errno != ENOSYS) /* EINVAL: the file system does not support this */
            return fail(s, -errno, "cannot rename to %s: %s", s->path, strerror(errno));
    }
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", s->path, sidecars[i]);
        unlink(name);
    }
    if (rename(s->temp, s->path) != 0)
        return fail(s, -errno, "cannot rename to %s: %s", s->path, strerror(errno));
    *s->temp = 0;
    return 0;
}

/* Gives up the lock, so that the attached handle can read, and forbids further writing. */
static int hand_over(struct store *s, sqlite3 **out) {
    int rc = sqlite3_exec(s->db,
                          "PRAGMA main.locking_mode = NORMAL; SELECT 1 FROM main.sqlite_master;"
                          "PRAGMA query_only = ON",
                          NULL, NULL, NULL);

    if (rc != SQLITE_OK)
        return store_failed(s, rc, "opening it");
    *out = s->db;
    s->db = NULL;
    return 0;
}

static void count_runs(struct store *s) {
    sqlite3_stmt *st;

    if (sqlite3_prepare_v2(s->db, "SELECT count(DISTINCT run) FROM trace_file", -1, &st, NULL) !=
        SQLITE_OK)
        return;
    if (sqlite3_step(st) == SQLITE_ROW)
        s->runs = (unsigned)sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
}

void store_leave(struct store *s, sqlite3 **out) {
    count_runs(s);
    if (s->cache && sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL) == SQLITE_OK)
        hand_over(s, out);
    store_abort(s);
}

int store_finish(struct store *s, sqlite3 **out) {
    int rc = tables_finish(s->db, s->adding, s->cache);

    if (rc == SQLITE_OK)
        rc = own_tables_make(s->db);
    int err = store_failed(s, rc, "building the indexes");

    count_runs(s);
    if (!err && !s->cache) /* the ranks of a live job appear one after the other */
        err = store_failed(s, ranks_said(s->db, s->ranks, sizeof s->ranks), "reading it");
    /* A program that reads the database just then is waited for. (Not before: SQLite would wait for it whenever its cache is full.) */
    if (!err && s->adding)
        sqlite3_busy_timeout(s->db, COMMIT_WAIT_MS);
    if (!err)
        err = store_failed(s, sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL), "writing");
    /* a handle does not know its file's new name: whoever asks no question now may need it */
    int keeps = !s->named || (s->cache && (s->adding || s->asked));
    if (!err && !keeps) {
        rc = sqlite3_close(s->db);
        s->db = rc == SQLITE_OK ? NULL : s->db;
        err = store_failed(s, rc, "closing it");
    }
    if (!err && s->named && !s->adding)
        err = put_in_place(s);
    if (!err && keeps)
        err = hand_over(s, out);
    store_abort(s);
    return err;
}
