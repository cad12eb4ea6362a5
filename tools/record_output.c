/* SPDX-License-Identifier: Apache-2.0 */
#include "record_output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../converter/output.h"
#include "../traces/hash.h"
#include "../traces/own_file.h"
#include "../writer/writer.h"
#include "cause.h"
#include "common.h"
#include "complete.h"
#include "host_pid.h"
#include "live_scan.h"
#include "trace_count.h"

#define COUNT_BUDGET                                                                               \
    (512ull << 20) /* a larger trace takes seconds to read: give its records, not its samples */
#define CLAIMS      100 /* number of names that are tried */
#define GRACE_MS    300 /* wait for workers, which may end a little after the main process */
#define BLOCK_TAKES (64u << 10) /* bytes: more than the first block of a trace takes */

__attribute__((format(printf, 2, 3))) static void no(struct record_output *o, const char *fmt,
                                                     ...) {
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(o->why, sizeof o->why, fmt, ap);
    va_end(ap);
}

/* Sets the names that follow from o->main. */
static void use(struct record_output *o) {
    snprintf(o->dir, sizeof o->dir, "%.*s.d", PATH_MAX - 8, o->main);
    memcpy(o->value, o->main, sizeof o->main);
}

int output_resolve(struct record_output *o, const char *name, const char *session) {
    size_t len = strlen(name);
    struct stat st;
    int rc;

    memset(o, 0, sizeof *o);
    snprintf(o->name, sizeof o->name, "%s", name);
    o->session = session;
    int exists = stat(name, &st) == 0;
    if (name[len - 1] == '/' || (exists && S_ISDIR(st.st_mode))) {
        if (!exists && (rc = own_dir_make(name, 0777)) < 0) {
            no(o, "cannot make the directory %s: %s", name, strerror(-rc));
            return -1;
        }
        if (!realpath(name, o->dir)) {
            no(o, "cannot use the directory %s: %s", name, strerror(errno));
            return -1;
        }
        snprintf(o->value, sizeof o->value, "%s%s", o->dir, strcmp(o->dir, "/") ? "/" : "");
        return 0;
    }
    if (exists && !S_ISREG(st.st_mode)) {
        no(o, "cannot write to %s: it is not a regular file", name);
        return -1;
    }
    /* Leaves space for "FILE.old.d" and the name of a trace in it. */
    if ((rc = tool_absolute(name, o->main, sizeof o->main - 300)) < 0) {
        no(o, "cannot write to %s: %s%s", name, strerror(-rc),
           rc == -ENOENT ? " (make its directory first)" : "");
        return -1;
    }
    use(o);
    return 0;
}

/* Returns whether a trace at `path` belongs to this output. */
static int is_ours(const struct record_output *o, const char *path) {
    size_t n = strlen(o->dir);

    if (*o->main && strcmp(path, o->main) == 0)
        return 1;
    return strncmp(path, o->dir, n) == 0 && path[n] == '/' && !strchr(path + n + 1, '/');
}

struct sweep {
    struct record_output *o;
    int alive; /* processes that record to our output */
    unsigned finished;
    char who[200]; /* pids and commands of the live processes */
};

static void add_cause(struct record_output *o, const char *trace, int pid, uint64_t start,
                      int signal) {
    char why[CAUSE_TEXT];

    if (!cause_find(trace, pid, start, signal, why))
        return;
    complete_fact(trace, "end", "cause", why);
    if (pid == o->child || !*o->cause) {
        snprintf(o->cause, sizeof o->cause, "%s", why);
        o->cause_pid = pid;
    }
}

static int sweep_one(const struct live_seen *seen, void *arg) {
    static struct writer_finished done; /* 4 KiB of path: not for the stack */
    struct sweep *s = arg;

    if (!seen->l || !is_ours(s->o, seen->l->trace_path))
        return 0;
    if (live_seen_alive(seen)) {
        size_t n = strlen(s->who);
        snprintf(s->who + n, sizeof s->who - n, "%s%u (%.60s)", n ? ", " : "", seen->l->pid,
                 seen->l->command);
        s->alive++;
        return 0;
    }
    int signal = (int)seen->l->pid != s->o->child ? 0 : s->o->signal ? s->o->signal : CAUSE_NONE;
    int pid = host_pid(seen->l);
    uint64_t start = seen->l->start_mono;
    if (!signal)
        signal = cause_signal(pid);
    int rc = cause_finish(seen->path, signal, &done);
    if (rc == 0) {
        s->finished++;
        add_cause(s->o, done.trace_path, pid, start, signal);
    } else if (rc != -ENOENT && rc != -EBUSY && rc != -EAGAIN)
        tool_say(
            "cannot finish the trace %s of dead process %u: %s (its last records are still in %s)",
            seen->l->trace_path, seen->l->pid, strerror(-rc), seen->path);
    return 0;
}

static void sweep(struct sweep *s, struct record_output *o) {
    memset(s, 0, sizeof *s);
    s->o = o;
    live_scan(sweep_one, s);
}

static void sweep_of(const char *file, void *arg) {
    struct record_output *o = arg, *of = malloc(sizeof *of);
    struct sweep s;

    if (!of)
        return;
    *of = *o;
    snprintf(of->main, sizeof of->main, "%.*s", PATH_MAX - 1, file);
    use(of);
    sweep(&s, of);
    free(of);
}

/* Claims the name FILE until this program ends, by an abstract socket of that name: several recordings may start at the same moment, before there is
 * a file. The processes of one run share the name. Returns 0, or -1 if another run has claimed it. */
static int claim(const char *file, const struct run_id *me) {
    const char *base = strrchr(file, '/') + 1;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char self[RUN_ID], dir[PATH_MAX];
    struct stat st;
    int fd, len;

    run_self(self, sizeof self);
    snprintf(dir, sizeof dir, "%.*s", (int)(base - file), file);
    if (strcmp(self, me->run) != 0 || me->job[0] || stat(dir, &st) < 0)
        return 0;
    len = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "probing-record/%lx:%lx/%llx",
                   (unsigned long)st.st_dev, (unsigned long)st.st_ino,
                   (unsigned long long)hash_text(HASH_START, base));
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&name,
                       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)) == 0)
        return 0; /* the descriptor stays open, to keep the claim */
    len = errno == EADDRINUSE ? -1 : 0;
    close(fd);
    return len;
}

/* Calls run_take() with the first name that nobody else has claimed: FILE, FILE-2, ... */
static int take_claimed(struct record_output *o, char file[PATH_MAX], const struct run_id *me) {
    size_t all = strlen(o->main),
           stem = all - (all > 4 && !strcmp(o->main + all - 4, ".zst") ? 4 : 0);
    char name[PATH_MAX];
    int rc = -ENOSPC;

    for (unsigned k = 1; k < CLAIMS; k++) {
        snprintf(name, sizeof name, "%.*s", PATH_MAX - 1, o->main);
        if (k > 1 && snprintf(name, sizeof name, "%.*s-%u%s", (int)stem, o->main, k,
                              o->main + stem) >= PATH_MAX)
            return -ENAMETOOLONG;
        if (claim(name, me) < 0)
            continue;
        memcpy(file, name, PATH_MAX);
        rc = run_take(file, PATH_MAX, me, sweep_of, o);
        if (rc < 0 || !strcmp(file, name) || claim(file, me) == 0)
            break;
        rc = -ENOSPC;
    }
    return rc;
}

/* Takes FILE, or another name if another run is writing FILE. Returns 0, or -1 with o->why. */
static int take(struct record_output *o, const struct run_id *me) {
    char file[PATH_MAX], why[OUTPUT_WHY];
    struct stat st;
    int rc;

    /* Only a trace may be replaced: if FILE is anything else, it is kept. */
    if (lstat(o->main, &st) == 0 && output_check(o->main, OUTPUT_TRACE, NULL, why) < 0) {
        no(o, "cannot record to %s: %s (choose another file with -o)", o->name, why);
        return -1;
    }
    rc = take_claimed(o, file, me);
    if (rc < 0) {
        no(o, "cannot record to %s: %s (choose another file with -o)", o->name, strerror(-rc));
        return -1;
    }
    o->joined = rc == RUN_JOINED;
    if (strcmp(file, o->main) != 0) {
        const char *slash = strrchr(o->name, '/');
        char name[sizeof o->name];
        snprintf(name, sizeof name, "%.*s%s", slash ? (int)(slash + 1 - o->name) : 0, o->name,
                 strrchr(file, '/') + 1);
        tool_say("%s is being written by another run: this one goes to %s", o->name, name);
        memcpy(o->name, name, sizeof name);
        memcpy(o->main, file, sizeof file);
        use(o);
    }
    return 0;
}

/* Tries to create a file in the directory: one that may be written to can still refuse files, as /proc and disks without free inodes do. */
static int try_to_make(struct record_output *o, const char *dir) {
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof path, "%.*s/.probing-XXXXXX", PATH_MAX - 40, dir);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        no(o, "cannot write to the directory %s: %s (choose another with -o)", dir,
           strerror(errno));
        return -1;
    }
    close(fd);
    unlink(path);
    return 0;
}

int output_prepare(struct record_output *o, const struct run_id *me) {
    char parent[PATH_MAX];
    struct sweep s;

    snprintf(parent, sizeof parent, "%s", *o->main ? o->main : o->dir);
    if (*o->main) {
        char *slash = strrchr(parent, '/');
        slash[slash == parent] = '\0';
    } else {
        sweep(&s, o);
    }
    if (try_to_make(o, parent) < 0)
        return -1;
    return *o->main ? take(o, me) : 0;
}

/* Calls fn for each trace in o->dir. */
static void each_trace(struct record_output *o,
                       void (*fn)(struct record_output *, const char *path, void *), void *arg) {
    char path[PATH_MAX];
    struct dirent *e;
    DIR *d = opendir(o->dir);

    if (!d)
        return;
    while ((e = readdir(d))) {
        size_t n = strlen(e->d_name);
        if (n > 4 && strcmp(e->d_name + n - 4, ".zst") == 0 &&
            snprintf(path, sizeof path, "%s/%s", o->dir, e->d_name) < (int)sizeof path)
            fn(o, path, arg);
    }
    closedir(d);
}

/* Returns the index of the character `before`, if it stands in front of digits that end at `end`; else 0. */
static size_t number_before(const char *path, size_t end, char before) {
    size_t i = end;

    while (i && path[i - 1] >= '0' && path[i - 1] <= '9')
        i--;
    return i && i < end && path[i - 1] == before ? i - 1 : 0;
}

/* Returns whether the file is a trace's earlier segment (agent/core/rotation.h): HOST-PID.N.zst. A name that the user gave may end in a number, too. */
static int is_segment(const struct record_output *o, const char *path) {
    size_t n = strlen(path), dot = n > 4 ? number_before(path, n - 4, '.') : 0;

    return strcmp(path, o->main) != 0 && dot && number_before(path, dot, '-');
}

struct candidate {
    char path[PATH_MAX];
    uint64_t start;
    uint32_t pid;
};

static void find_earliest(struct record_output *o, const char *path, void *arg) {
    struct candidate *best = arg;
    struct trace_count c;

    if (is_segment(o, path) || trace_count(&c, path, 1) < 0 || strcmp(c.session, o->session) != 0)
        return;
    if (!*best->path || c.process_start < best->start ||
        (c.process_start == best->start && c.pid < best->pid)) {
        snprintf(best->path, sizeof best->path, "%s", path);
        best->start = c.process_start;
        best->pid = c.pid;
    }
}

/*
 * If the command was a shell script or another launcher that is no Python, moves the trace of its first Python
 * process to FILE, where the user looks for it. Not while processes still record: their live files name the traces.
 */
static void adopt_main(struct record_output *o) {
    struct candidate best = {.path = ""};

    if (!*o->main || o->joined || o->running || access(o->main, F_OK) == 0)
        return;
    each_trace(o, find_earliest, &best);
    if (!*best.path)
        return;
    /* Another run may just have taken the name, which no process of ours writes to. */
    int rc = renameat2(AT_FDCWD, best.path, AT_FDCWD, o->main, RENAME_NOREPLACE);
    if (rc < 0 && (errno == EINVAL || errno == ENOSYS)) /* the file system cannot do that */
        rc = rename(best.path, o->main);
    if (rc == 0)
        rmdir(o->dir); /* removes the directory if that was its only file */
}

/* Returns whether the file system has no space for even one block of a trace. */
static int is_full(const char *path) {
    struct statvfs fs;

    return statvfs(path, &fs) == 0 && fs.f_bavail * fs.f_frsize < BLOCK_TAKES;
}

static void add_up(struct record_output *o, const char *path, void *arg) {
    int in_dir = *(int *)arg;
    struct trace_count c;

    int rc = trace_count(&c, path, COUNT_BUDGET);
    o->full |= rc == -EBADMSG && is_full(path);
    if (rc < 0) {
        /* A process that was killed before its first block left an empty file: no error. */
        if (rc != -EBADMSG)
            tool_say("cannot read %s: %s", path, strerror(-rc));
        return;
    }
    if (strcmp(c.session, o->session) != 0) /* of another run that writes into the same directory */
        return;
    o->processes += !is_segment(o, path);
    o->in_dir += in_dir;
    o->damaged += c.damaged;
    o->samples += c.samples;
    o->records += c.records;
    o->bytes += c.bytes;
    o->variables += c.variables;
    if (!o->variable_note[0])
        memcpy(o->variable_note, c.variable_note, sizeof o->variable_note);
    if (c.unsampled[0] && !o->unsampled++)
        snprintf(o->unsampled_text, sizeof o->unsampled_text, "process %u: %s", c.pid, c.unsampled);
    for (unsigned i = 0; i <= TRACE_NLOST; i++)
        o->lost[i] += c.lost[i];
    o->children += c.children;
    if (c.headers_only)
        o->exact = 0;
}

/* Finds our child's last trace: after an exec it has another one. */
static void find_child(struct record_output *o, const char *path, void *arg) {
    struct candidate *last = arg;
    struct trace_count c;

    if (!is_segment(o, path) && trace_count(&c, path, COUNT_BUDGET) == 0 &&
        (int)c.pid == o->child && strcmp(c.session, o->session) == 0 &&
        (!*last->path || c.first_ts > last->start)) {
        snprintf(last->path, sizeof last->path, "%s", path);
        last->start = c.first_ts;
    }
}

/* Adds our child's exit code to its trace. A command that is no Python has no trace, and only that command knows what its children returned. */
static void add_exit_code(struct record_output *o) {
    struct candidate last = {.path = ""};
    char code[16];

    if (o->signal)
        return;
    if (*o->main)
        find_child(o, o->main, &last);
    each_trace(o, find_child, &last);
    snprintf(code, sizeof code, "%d", o->status);
    if (*last.path)
        complete_fact(last.path, "end", "exit_code", code);
}

/* Adds symbols to a trace, if it belongs to this run and has ended. */
static void add_symbols(struct record_output *o, const char *path, void *arg) {
    struct trace_count c;

    if (trace_count(&c, path, 1) == 0 && strcmp(c.session, o->session) == 0)
        complete_ended(arg, path);
}

static void complete_all(struct record_output *o) {
    struct complete c;

    complete_begin(&c);
    if (*o->main)
        add_symbols(o, o->main, &c);
    each_trace(o, add_symbols, &c);
    complete_end(&c);
}

void output_collect(struct record_output *o) {
    struct sweep s;
    int in_dir;

    for (int waited = 0;; waited += 20) {
        sweep(&s, o);
        o->recovered += s.finished;
        if (!s.alive || waited >= GRACE_MS)
            break;
        sys_sleep(20 * SYS_MS);
    }
    o->running = (unsigned)s.alive;
    snprintf(o->running_text, sizeof o->running_text, "%s", s.who);
    adopt_main(o);
    add_exit_code(o);
    if (o->symbols)
        complete_all(o);

    o->exact = 1;
    if (*o->main && access(o->main, F_OK) == 0) {
        o->has_main = 1;
        add_up(o, o->main, &(int){0});
    }
    in_dir = 1;
    each_trace(o, add_up, &in_dir);
}
