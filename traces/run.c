/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "block.h"
#include "own_file.h"
#include "proc.h"

#define PATH  4096
#define NAMES 1000
#define FIRST_BLOCKS                                                                               \
    65536 /* the process record is in one of them: in a segment it comes after copies of the dictionaries */
#define FIRST_RAW   (1u << 20)
#define HOSTS_PIDS  0xeffffffc /* inode of the first namespace of process ids, in every kernel */
#define YOUNG_S     3
#define WAIT_TRIES  100 /* times 20 ms */
#define YOUNG_TRIES 25

/* ---- who we are ---- */

/* Containers that share a host's name may start at the same moment, each with a process 1: so the name of their namespace belongs to it. */
void run_self(char *buf, size_t n) {
    char host[65] = "", space[24] = "";
    uint64_t start = 0;
    struct stat st;
    proc_began(getpid(), &start);
    gethostname(host, sizeof host - 1);
    if (stat("/proc/self/ns/pid", &st) == 0 && st.st_ino != HOSTS_PIDS)
        snprintf(space, sizeof space, "-%lu", (unsigned long)st.st_ino);
    snprintf(buf, n, "%s-%d-%" PRIu64 "%s", host, (int)getpid(), start, space);
}

void run_job(char job[RUN_ID], int (*env)(const char *name, char *buf, size_t n)) {
    static const struct {
        const char *variable, *name, *step;
    } launcher[] = {{"TORCHELASTIC_RUN_ID", "elastic", NULL},
                    {"PMIX_NAMESPACE", "mpi", NULL},
                    {"SLURM_JOB_ID", "slurm", "SLURM_STEP_ID"}};
    char id[RUN_ID / 2], step[32];
    job[0] = 0;
    for (unsigned i = 0; i < sizeof launcher / sizeof *launcher && !job[0]; i++) {
        /* torchrun calls a job "none" that nobody has given a name. */
        if (env(launcher[i].variable, id, sizeof id) != 1 || !id[0] || !strcmp(id, "none"))
            continue;
        int stepped = launcher[i].step && env(launcher[i].step, step, sizeof step) == 1;
        snprintf(job, RUN_ID, "%s:%s%s%s", launcher[i].name, id, stepped ? "." : "",
                 stepped ? step : "");
    }
}

int run_same(const struct run_id *a, const struct run_id *b) {
    return (a->run[0] && !strcmp(a->run, b->run)) || (a->job[0] && !strcmp(a->job, b->job));
}

/* ---- who wrote a trace ---- */

struct seen {
    int fd;
    int there, trace; /* something exists there; it is a trace or empty */
    int known;        /* its process record was read, which gives: */
    struct run_id id;
    char host[65];
    char recording[RUN_ID]; /* process and recording: boot id, pid, start, first record */
    ino_t ino;
    int closed; /* by its writer or a finisher: it has a seek table */
    int busy;   /* its writer has it open */
    int young; /* written just now without a lock: its writer may be about to take it, or a full disk has left it */
};

static void copy(char *to, size_t n, const struct trace_value *v) {
    size_t len = v->n < n - 1 ? v->n : n - 1;
    if (len) /* an empty text has no bytes to point at */
        memcpy(to, v->p, len);
    to[len] = 0;
}

/* Looks for the process record in one block. */
static void look_into(struct seen *s, const uint8_t *packed, const struct trace_hint *hint) {
    struct trace_rows *rows = malloc(sizeof *rows);
    struct trace_value v[TRACE_MAX_FIELDS];
    struct trace_block_header h;
    uint8_t *raw = malloc(hint->raw);
    if (rows && raw && ZSTD_decompress(raw, hint->raw, packed, hint->compressed) == hint->raw &&
        !trace_block_header_get(raw, hint->raw, &h)) {
        trace_rows_start(rows, &h, raw);
        while (trace_rows_next(rows, 1ull << TRACE_process, v) > 0) {
            char boot[64];
            if (s->known)
                continue;
            s->known = 1;
            copy(boot, sizeof boot, &v[TRACE_process_boot_id]);
            snprintf(s->recording, sizeof s->recording, "%s/%llu/%llu/%llu", boot,
                     (unsigned long long)v[TRACE_process_pid].u,
                     (unsigned long long)v[TRACE_process_start_ts].u,
                     (unsigned long long)v[TRACE_process_ts].u);
            copy(s->id.run, sizeof s->id.run, &v[TRACE_process_run]);
            copy(s->id.job, sizeof s->id.job, &v[TRACE_process_job]);
            copy(s->host, sizeof s->host, &v[TRACE_process_host]);
        }
    }
    free(rows);
    free(raw);
}

static void read_blocks(struct seen *s) {
    uint8_t head[TRACE_HINT_SIZE];
    struct trace_hint hint;
    off_t at = 0;
    for (unsigned i = 0; i < FIRST_BLOCKS && !s->known; i++) {
        if (pread(s->fd, head, sizeof head, at) != sizeof head ||
            trace_hint_get(head, sizeof head, &hint))
            return;
        s->trace = 1;
        at += (off_t)sizeof head;
        uint8_t *packed = hint.compressed <= FIRST_RAW && hint.raw <= FIRST_RAW &&
                                  hint.kind == TRACE_KIND_META && hint.types >> TRACE_process & 1
                              ? malloc(hint.compressed)
                              : NULL;
        if (packed && pread(s->fd, packed, hint.compressed, at) == (ssize_t)hint.compressed)
            look_into(s, packed, &hint);
        free(packed);
        at += hint.compressed;
    }
}

/* Opens what lies at `path`, if it is a regular file, and reads who wrote it. close_seen() closes it. */
static void see(struct seen *s, const char *path, int lock) {
    uint8_t foot[4];
    struct stat st;
    struct timespec now;
    *s = (struct seen){.fd = -1};
    s->there = lstat(path, &st) == 0;
    if (!s->there || !S_ISREG(st.st_mode))
        return;
    s->fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (s->fd < 0)
        return;
    s->trace = st.st_size == 0;
    s->ino = st.st_ino;
    s->busy = lock && flock(s->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    /* A closed trace ends with the magic number of the seek table. */
    s->closed = st.st_size > 4 && pread(s->fd, foot, 4, st.st_size - 4) == 4 &&
                !memcmp(foot, "\xb1\xea\x92\x8f", 4);
    read_blocks(s);
    clock_gettime(CLOCK_REALTIME, &now);
    s->young = lock && !s->busy && !s->known && now.tv_sec - st.st_mtime < YOUNG_S;
}

static void close_seen(struct seen *s) {
    if (s->fd >= 0)
        close(s->fd);
}

/* Whether another run may take over this name. On this host the lock tells; a trace from another host must have been closed. */
static int is_over(const struct seen *s) {
    char host[65] = "";
    gethostname(host, sizeof host - 1);
    return s->trace && !s->busy && (s->closed || !s->known || !strcmp(host, s->host));
}

int run_recording_of(int fd, char buf[RUN_ID], uint64_t *size) {
    struct seen s = {.fd = fd};
    struct stat st;
    read_blocks(&s);
    if (s.known && fstat(fd, &st) == 0)
        *size = (uint64_t)st.st_size;
    memcpy(buf, s.recording, RUN_ID);
    return s.known ? 0 : -ENOENT;
}

int run_recording(const char *path, char buf[RUN_ID], uint64_t *size) {
    struct seen s;
    see(&s, path, 0);
    int rc = s.fd < 0 ? -ENOENT : run_recording_of(s.fd, buf, size);
    close_seen(&s);
    return rc;
}

/* ---- taking a name ---- */

/* Makes NAME-2.zst, NAME-3.zst, ...; for k = 1 the name itself. */
static int nth_name(const char *file, unsigned k, char *buf, size_t n) {
    size_t len = strlen(file), end = len > 4 && !strcmp(file + len - 4, ".zst") ? 4 : 0;
    char number[16] = "";
    if (k > 1)
        snprintf(number, sizeof number, "-%u", k);
    int all = snprintf(buf, n, "%.*s%s%s", (int)(len - end), file, number, file + len - end);
    const char *slash = all < (int)n ? strrchr(buf, '/') : NULL;
    if (k > 1 && strlen(slash ? slash + 1 : buf) > NAME_MAX)
        return -ENAMETOOLONG;
    return all < (int)n - 64 ? 0 : -ENAMETOOLONG; /* FILE.old.1000.d must fit, too */
}

static int is_trace_name(const struct dirent *e) {
    size_t n = strlen(e->d_name);
    return n > 4 && !strcmp(e->d_name + n - 4, ".zst");
}

/* Counts the traces in FILE.d. *over: none of them may still be written; *first: the run of the first one that names its run. */
static int see_directory(const char *dir, int *over, struct run_id *first) {
    char path[PATH + 300];
    struct dirent *e;
    struct seen s;
    int n = 0;
    DIR *d = opendir(dir);
    *over = 1;
    while (d && (e = readdir(d))) {
        if (!is_trace_name(e))
            continue;
        n++;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        see(&s, path, 1);
        *over &= is_over(&s);
        if (s.known && !first->run[0])
            *first = s.id;
        close_seen(&s);
    }
    if (d)
        closedir(d);
    return n;
}

/* Moves FILE and FILE.d away, both or neither. */
static int move_away(const char *file, const char *dir) {
    char old[PATH + 32], old_dir[PATH + 40];
    int rc = -EEXIST;
    for (unsigned k = 1; rc == -EEXIST && k < NAMES; k++) {
        int n = snprintf(old, sizeof old, "%s.old", file);
        if (k > 1)
            snprintf(old + n, sizeof old - (size_t)n, ".%u", k);
        snprintf(old_dir, sizeof old_dir, "%s.d", old);
        if (faccessat(AT_FDCWD, old, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
            faccessat(AT_FDCWD, old_dir, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            continue;
        rc = rename(file, old) < 0 && errno != ENOENT ? -errno : 0;
        if (!rc && rename(dir, old_dir) < 0 && errno != ENOENT) {
            rc = -errno;
            if (rename(old, file) < 0) /* both or none */
                return -errno;
        }
    }
    return rc;
}

static void wait_a_little(void) {
    const struct timespec step = {.tv_nsec = 20 * 1000000};
    nanosleep(&step, NULL);
}

/* Locks the folder of FILE, so that ranks that start together take turns: one that looks holds locks that resemble a writer's, and renames
 * two files. Returns -1, or an unlocked descriptor, when there is no lock to be had: the caller goes on all the same. */
static int hold_folder(const char *file) {
    const char *slash = strrchr(file, '/');
    char dir[PATH];
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash + 1 - file) : 1, slash ? file : ".");
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (unsigned i = 0; i < WAIT_TRIES && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
         i++)
        wait_a_little();
    return fd;
}

/* Tries one name. Returns RUN_FIRST, RUN_JOINED, or -EBUSY when the name belongs to another run. */
static int try_name(const char *file, const struct run_id *me) {
    struct run_id of = {"", ""};
    struct seen s;
    struct stat st;
    char dir[PATH + 8];
    int over, others, rc = -EBUSY, folder = hold_folder(file);
    snprintf(dir, sizeof dir, "%s.d", file);
    see(&s, file, 1);
    /* A writer that has just begun: its first block will tell who it is. If it comes to the lock later than that, it finds the name taken away, and asks
     * for another. */
    for (unsigned i = 0; (s.busy || s.young) && !s.known && i < (s.busy ? WAIT_TRIES : YOUNG_TRIES);
         i++) {
        close_seen(&s);
        wait_a_little();
        see(&s, file, 1);
    }
    others = see_directory(dir, &over, &of);
    if (s.known)
        of = s.id;
    if (!s.there && !others)
        rc = RUN_FIRST;
    else if (run_same(&of, me))
        rc = RUN_JOINED;
    else if ((!s.there || (is_over(&s) && lstat(file, &st) == 0 && st.st_ino == s.ino)) && over &&
             move_away(file, dir) == 0) /* only the file that we hold the lock of, nothing newer */
        rc = RUN_FIRST;
    close_seen(&s);
    if (folder >= 0) {
        flock(folder, LOCK_UN); /* unlocks it also when a process forked meanwhile has a copy */
        close(folder);
    }
    return rc;
}

/* Whether a device, pipe or socket has the name: whoever says /dev/null wants no file beside it, and no trace in a devtmpfs. */
static int is_special(const char *file) {
    struct stat st;
    return lstat(file, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode) &&
           !S_ISDIR(st.st_mode);
}

int run_take(char *file, size_t n, const struct run_id *me, void (*finish)(const char *, void *),
             void *arg) {
    char name[PATH];
    if (is_special(file))
        return -ENOTSUP;
    for (unsigned k = 1; k < NAMES; k++) {
        int rc = nth_name(file, k, name, sizeof name);
        if (!rc && finish)
            finish(name, arg);
        if (!rc)
            rc = try_name(name, me);
        if (rc == -EBUSY)
            continue;
        if (rc >= 0 && snprintf(file, n, "%s", name) >= (int)n)
            rc = -ENAMETOOLONG;
        return rc;
    }
    return -ENOSPC;
}

/* ---- the names of its processes' traces ---- */

/* The kernel allows any host name; a file name gets only harmless characters. */
static void tame(const char *host, char *out, size_t n) {
    size_t i;
    for (i = 0; host[i] && i + 1 < n; i++) {
        char c = host[i];
        int ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 (c == '.' && i) || c == '_' || c == '-';
        out[i] = ok ? c : '_';
    }
    out[i] = 0;
    if (!i)
        snprintf(out, n, "host");
}

void run_process_name(const char *host, int rank, unsigned pid, char *buf, size_t size) {
    char ranked[24] = "", name[72];
    if (rank >= 0)
        snprintf(ranked, sizeof ranked, "-r%d", rank);
    tame(host, name, sizeof name);
    snprintf(buf, size, "%s%s-%u", name, ranked, pid);
}

int run_trace_name(const char *base, int is_dir, const char *host, int rank, unsigned pid,
                   int is_main, unsigned n, char *buf, size_t size) {
    char nth[16] = "", name[128];
    int len;
    if (n < 1 || n > RUN_TRIES)
        return -ENOSPC;
    if (n > 1)
        snprintf(nth, sizeof nth, "-%u", n);
    if (is_main && !is_dir && n == 1) {
        len = snprintf(buf, size, "%s", base);
    } else {
        len = snprintf(buf, size, "%s%s", base, is_dir ? "" : ".d");
        if (len >= (int)size)
            return -ENAMETOOLONG;
        int rc = own_dir_make(buf, is_dir ? 0777 : 0755);
        if (rc)
            return rc;
        run_process_name(host, rank, pid, name, sizeof name);
        len += snprintf(buf + len, size - (size_t)len, "/%s%s.zst", name, nth);
    }
    return len < (int)size ? 0 : -ENAMETOOLONG;
}
