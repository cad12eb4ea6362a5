/* SPDX-License-Identifier: Apache-2.0 */
#include "inject.h"

#include <dirent.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "text.h"

#define STUB         "libprobing-inject.so"
#define AGENT        "libprobing-agent.so"
#define YOUNG_S      2   /* age in s below which it may not be locked yet */
#define STALE_S      120 /* age in s from which it is stale where locks are not supported */
#define REMOVE_TRIES 100

/* Takes the file-system identity of that user until leave(). Has no effect for our own user. */
static void enter(uid_t uid, gid_t gid) {
    setfsgid(gid);
    setfsuid(uid);
}

static void leave(void) {
    setfsuid(geteuid());
    setfsgid(getegid());
}

/* Opens a path as seen by the target. */
static int open_there(const struct preflight *pre, const char *path, int flags) {
    struct open_how how = {.flags = (unsigned)flags | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};

    if (!pre->root[0])
        return open(path, flags | O_CLOEXEC);
    AUTO_CLOSE int root = open(pre->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return root < 0 ? -1 : (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

/* Opens a private directory of the target's user from which code may be loaded; makes it when it is missing. */
static int usable(const struct preflight *pre, const char *path) {
    const char *base = strrchr(path, '/');
    struct statvfs fs;
    struct stat st;
    char parent[2048];
    int fd, rc, made;

    if (path[0] != '/' || !base[1])
        return -EINVAL;
    snprintf(parent, sizeof parent, "%.*s", base == path ? 1 : (int)(base - path), path);
    AUTO_CLOSE int up = open_there(pre, parent, O_PATH | O_DIRECTORY);
    if (up < 0)
        return -errno;
    made = mkdirat(up, base + 1, 0700) == 0;
    if (!made && errno != EEXIST)
        return -errno;
    fd = openat(up, base + 1, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        rc = -errno;
    else if (st.st_uid != pre->uid || st.st_mode & 077)
        rc = -EPERM;
    else if (fstatvfs(fd, &fs) == 0 && fs.f_flag & ST_NOEXEC)
        rc = -ENOEXEC;
    else
        return fd;
    if (made)
        unlinkat(up, base + 1, AT_REMOVEDIR);
    close(fd);
    return rc;
}

/* Opens the target's run directory, by the rules of live.h with the target's environment. Returns a descriptor or -errno. */
static int choose(pid_t pid, const struct preflight *pre, int *fresh, char *buf, size_t n) {
    static const char *const base[] = {"/tmp", "/dev/shm", "/var/tmp"};
    char env[1024];
    int fd = -ENOENT;

    if (proc_environ(pid, "PROBING_RUN_DIR", env, sizeof env) == 0 && env[0]) {
        snprintf(buf, n, "%s", env);
        fd = usable(pre, buf);
    }
    if (fd < 0 && proc_environ(pid, "XDG_RUNTIME_DIR", env, sizeof env) == 0 && env[0]) {
        snprintf(buf, n, "%s/probing", env);
        fd = usable(pre, buf);
    }
    for (unsigned i = 0; fd < 0 && i < 6; i++) {
        int len = snprintf(buf, n, "%s/probing-%u", base[i / 2], pre->uid_there);
        if (i % 2) /* a name that nobody can have taken */
            snprintf(buf + len, n - (size_t)len, "-%06lx", sys_now() / 1000 & 0xffffff);
        fd = usable(pre, buf);
        *fresh = i % 2 && !pre->root[0];
    }
    return fd;
}

static int write_file(int dir, const char *name, const char *text) {
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t n = strlen(text);
    int rc = 0;

    if (fd < 0)
        return -errno;
    errno = 0;
    if (write(fd, text, n) != (ssize_t)n)
        rc = errno ? -errno : -ENOSPC;
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    return rc;
}

/* `in` is open already, as the identity in use now may not be allowed to open it. */
static int copy_file(int in, int dir, const char *name) {
    int out = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0700), rc = 0;
    struct stat st;
    off_t at = 0;

    if (out < 0)
        return -errno;
    if (fstat(in, &st) < 0)
        rc = -errno;
    while (rc == 0 && at < st.st_size) {
        ssize_t r = sendfile(out, in, &at, (size_t)(st.st_size - at));
        if (r <= 0)
            rc = r < 0 ? -errno : -EIO;
    }
    if (close(out) < 0 && rc == 0)
        rc = -errno;
    return rc;
}

/* Called with the user's identity. The stub may be writing its status meanwhile, so it tries until the directory is empty. */
static void remove_dir(int run, const char *name) {
    AUTO_CLOSE int dir = openat(run, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    for (int i = 0; dir >= 0 && i < REMOVE_TRIES; i++) {
        static const char *const files[] = {
            STUB, AGENT, "inject.conf", "inject.status", "inject.py", "inject.status.tmp"};
        for (size_t k = 0; k < sizeof files / sizeof *files; k++)
            unlinkat(dir, files[k], 0);
        if (unlinkat(run, name, AT_REMOVEDIR) == 0 || errno != ENOTEMPTY)
            break;
        sys_sleep(SYS_MS);
    }
}

/* Whether nobody needs a staging directory any more: its injector, which holds a lock on it, has ended. */
static int is_left(int dir, const char *name) {
    struct stat st;
    time_t age;
    char proc[64];

    if (fstat(dir, &st) < 0 || (age = time(NULL) - st.st_mtime) < YOUNG_S)
        return 0;
    if (flock(dir, LOCK_EX | LOCK_NB) < 0 && (errno == EWOULDBLOCK || age < STALE_S))
        return 0;
    /* Keep a script while the target lives: the interpreter complains if it cannot find one. Once run, it removes the directory (agent/core/inject.c). */
    snprintf(proc, sizeof proc, "/proc/%d", atoi(name + strlen("inject-")));
    return faccessat(dir, "inject.py", F_OK, 0) < 0 || access(proc, F_OK) < 0;
}

/* Removes what killed injections left behind. */
static void remove_left(int run) {
    int fd = openat(run, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        if (strncmp(e->d_name, "inject-", 7) != 0)
            continue;
        AUTO_CLOSE int dir =
            openat(run, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir >= 0 && is_left(dir, e->d_name))
            remove_dir(run, e->d_name);
    }
    if (d)
        closedir(d);
    else
        close(fd);
}

void inspect_sweep(const char *run) {
    AUTO_CLOSE int fd = open(run, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & 022))
        remove_left(fd);
}

/* Like mkdtemp(), in an open directory. */
static int make_dir(struct stage *s, pid_t pid) {
    for (unsigned i = 0; i < 100; i++) {
        snprintf(s->name, sizeof s->name, "inject-%d-%06x", pid,
                 (unsigned)(sys_now() / 1000 * 2654435761u) & 0xffffffu);
        if (mkdirat(s->run, s->name, 0700) == 0) {
            s->made = 1;
            s->dir = openat(s->run, s->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (s->dir < 0)
                return -errno;
            s->locked = flock(s->dir, LOCK_EX | LOCK_NB) == 0;
            return 0;
        }
        if (errno != EEXIST)
            return -errno;
    }
    return -EEXIST;
}

/* Fills the directory, as the target's user. `run` gets the run directory's path as seen by the target. */
static int fill(struct stage *s, pid_t pid, const struct preflight *pre, int stub, int agent,
                const char *agent_path, const char *conf, char *run, size_t n) {
    char path[4096], *text = NULL;
    int fd = -1, rc;

    s->run = choose(pid, pre, &s->fresh, run, n);
    if (s->run < 0)
        return s->run;
    remove_left(s->run);
    rc = make_dir(s, pid);
    if (rc < 0)
        return rc;
    snprintf(s->lib_there, sizeof s->lib_there, "%s/%s/" STUB, run, s->name);
    rc = copy_file(stub, s->dir, STUB);
    /* The target must be able to read the agent, so it gets a copy where it could not (a private prefix, a container). */
    if (!pre->root[0])
        fd = open(agent_path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "%s", agent_path);
    if (fd >= 0)
        close(fd);
    else if (rc == 0) {
        snprintf(path, sizeof path, "%s/%s/" AGENT, run, s->name);
        rc = copy_file(agent, s->dir, AGENT);
    }
    if (rc == 0 && asprintf(&text, "PROBING_AGENT=%s\n%s%s", path,
                            s->locked ? "PROBING_STAGED=1\n" : "", conf) < 0)
        rc = -ENOMEM;
    if (rc == 0) {
        rc = write_file(s->dir, "inject.conf", text);
        free(text);
    }
    return rc;
}

int stage_make(struct stage *s, pid_t pid, const struct preflight *pre, const char *lib_dir,
               const char *conf, char **why) {
    char stub_path[4096], agent_path[4096], run[2048] = "a run directory";
    int rc;

    *s = (struct stage){.uid = pre->uid, .gid = pre->gid, .run = -1, .dir = -1};
    snprintf(stub_path, sizeof stub_path, "%s/" STUB, lib_dir);
    snprintf(agent_path, sizeof agent_path, "%s/" AGENT, lib_dir);
    AUTO_CLOSE int stub = open(stub_path, O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int agent = open(agent_path, O_RDONLY | O_CLOEXEC);
    if (stub < 0 || agent < 0) {
        rc = -errno;
        return fail(why, rc, "cannot open %s: %s (is Probing installed whole?)",
                    stub < 0 ? stub_path : agent_path, strerror(-rc));
    }
    enter(s->uid, s->gid);
    rc = fill(s, pid, pre, stub, agent, agent_path, conf, run, sizeof run);
    leave();
    if (rc == 0)
        return 0;
    stage_remove(s);
    return fail(why, rc,
                "cannot stage the agent for user %u in %s: %s (PROBING_RUN_DIR in the target's "
                "environment names another place)",
                pre->uid, run, strerror(-rc));
}

int stage_file(struct stage *s, const char *name, const char *text, char *there, size_t n) {
    const char *slash = strrchr(s->lib_there, '/');

    if (snprintf(there, n, "%.*s%s", (int)(slash + 1 - s->lib_there), s->lib_there, name) >= (int)n)
        return -ENAMETOOLONG;
    enter(s->uid, s->gid);
    int rc = write_file(s->dir, name, text);
    leave();
    return rc;
}

int stage_status(struct stage *s, char *text, size_t n) {
    char *text_at;

    enter(s->uid, s->gid);
    AUTO_CLOSE int fd =
        openat(s->dir, "inject.status", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    leave();
    if (proc_read_fd(fd, text, n) == 0)
        return 0;
    text[strcspn(text, "\n")] = 0;
    /* "0 ok" or "-ERRNO text" (agent/core/inject.c) */
    long err = strtol(text, &text_at, 10);
    if (err == 0)
        return 1;
    memmove(text, text_at + strspn(text_at, " "), strlen(text_at + strspn(text_at, " ")) + 1);
    return err == -EALREADY || err == -EAGAIN ? (int)err : -EIO;
}

void stage_remove(struct stage *s) {
    enter(s->uid, s->gid);
    if (s->made) {
        remove_dir(s->run, s->name);
        close(s->dir);
    }
    if (s->run > 0) {
        char link[40], path[2048] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", s->run);
        if (s->fresh && readlink(link, path, sizeof path - 1) > 0)
            rmdir(path); /* fails if it is in use */
        close(s->run);
    }
    leave();
    *s = (struct stage){.run = -1, .dir = -1};
}
