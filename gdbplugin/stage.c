/* SPDX-License-Identifier: Apache-2.0 */
#include "stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "agentfile.h"
#include "proc.h"
#include "say.h"

#define STUB    "libprobing-inject.so"
#define AGENT   "libprobing-agent.so"
#define STALE_S 120

void stage_enter(uid_t uid, gid_t gid) {
    setfsgid(gid);
    setfsuid(uid);
}

void stage_leave(void) {
    setfsuid(geteuid());
    setfsgid(getegid());
}

/* A directory of the user's, private, from which code may be loaded. */
static int usable(const struct stage *s, const char *path) {
    struct statvfs fs;
    struct stat st;

    if (path[0] != '/')
        return -EINVAL;
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return -errno;
    if (lstat(path, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode) || st.st_uid != s->uid || st.st_mode & 077)
        return -EPERM;
    if (statvfs(path, &fs) == 0 && fs.f_flag & ST_NOEXEC)
        return -ENOEXEC;
    return 0;
}

/* The target's run directory, by the rules of live.h with the target's environment. */
static int choose(struct stage *s, pid_t pid, char *buf, size_t n) {
    char env[1024];
    int rc = -ENOENT;

    if (proc_environ(pid, "PROBING_RUN_DIR", env, sizeof env) == 0 && env[0]) {
        snprintf(buf, n, "%s", env);
        rc = usable(s, buf);
    }
    if (rc < 0 && proc_environ(pid, "XDG_RUNTIME_DIR", env, sizeof env) == 0 && env[0]) {
        snprintf(buf, n, "%s/probing", env);
        rc = usable(s, buf);
    }
    if (rc < 0) {
        snprintf(buf, n, "/tmp/probing-%u", s->uid);
        rc = usable(s, buf);
    }
    return rc;
}

static int write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t n = strlen(text);
    int rc = 0;

    if (fd < 0)
        return -errno;
    if (write(fd, text, n) != (ssize_t)n)
        rc = errno ? -errno : -ENOSPC;
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    return rc;
}

/* `in` is open already: the reader's identity may not be allowed to open it. */
static int copy_file(int in, const char *to) {
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0700), rc = 0;
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

/* With the user's identity. */
static void remove_dir(const char *dir) {
    static const char *const files[] = {STUB, AGENT, "inject.conf", "inject.status",
                                        "inject.status.tmp"};
    char path[4096];

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    rmdir(dir);
}

/* Removes what an injection left that was killed. */
static void remove_stale(const char *run) {
    char path[3072];
    struct dirent *e;
    struct stat st;
    DIR *d = opendir(run);

    while (d && (e = readdir(d))) {
        if (strncmp(e->d_name, "inject-", 7))
            continue;
        snprintf(path, sizeof path, "%s/%s", run, e->d_name);
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && time(NULL) - st.st_mtime > STALE_S)
            remove_dir(path);
    }
    if (d)
        closedir(d);
}

/* Fills the directory, as the target's user. */
static int fill(struct stage *s, pid_t pid, int stub, int agent, const char *agent_path,
                const char *conf) {
    char run[2048], path[4096], *text = NULL;
    int fd, rc = choose(s, pid, run, sizeof run);

    if (rc < 0)
        return rc;
    remove_stale(run);
    snprintf(s->dir, sizeof s->dir, "%s/inject-%d-XXXXXX", run, pid);
    if (!mkdtemp(s->dir)) {
        s->dir[0] = 0;
        return -errno;
    }
    snprintf(s->lib, sizeof s->lib, "%s/" STUB, s->dir);
    rc = copy_file(stub, s->lib);
    /* The target must be able to read the agent: a copy of it where it could not (a private prefix). */
    fd = open(agent_path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "%s", agent_path);
    if (fd >= 0)
        close(fd);
    else if (rc == 0) {
        snprintf(path, sizeof path, "%s/" AGENT, s->dir);
        rc = copy_file(agent, path);
    }
    if (rc == 0 && asprintf(&text, "PROBING_AGENT=%s\n%s", path, conf) < 0)
        rc = -ENOMEM;
    if (rc == 0) {
        snprintf(path, sizeof path, "%s/inject.conf", s->dir);
        rc = write_file(path, text);
        free(text);
    }
    return rc;
}

int stage_make(struct stage *s, pid_t pid, uid_t uid, gid_t gid, const char *lib_dir,
               const char *conf, char **why) {
    char stub_path[4096], agent_path[4096];
    int rc = 0, stub, agent;

    *s = (struct stage){.uid = uid, .gid = gid};
    snprintf(stub_path, sizeof stub_path, "%s/" STUB, lib_dir);
    snprintf(agent_path, sizeof agent_path, "%s/" AGENT, lib_dir);
    stub = open(stub_path, O_RDONLY | O_CLOEXEC);
    agent = open(agent_path, O_RDONLY | O_CLOEXEC);
    if (stub < 0 || agent < 0) {
        rc = -errno;
        *why = say("cannot open %s: %s (is Probing installed whole?)",
                   stub < 0 ? stub_path : agent_path, strerror(-rc));
    } else {
        stage_enter(uid, gid);
        rc = fill(s, pid, stub, agent, agent_path, conf);
        stage_leave();
        if (rc < 0)
            *why =
                say("cannot stage the agent for user %u in %s: %s (PROBING_RUN_DIR in the target's "
                    "environment names another place)",
                    uid, s->dir[0] ? s->dir : "a run directory", strerror(-rc));
    }
    if (stub >= 0)
        close(stub);
    if (agent >= 0)
        close(agent);
    if (rc < 0)
        stage_remove(s);
    return rc;
}

int stage_status(struct stage *s, char *text, size_t n) {
    char path[4096], *rest;
    ssize_t r = -1;
    int fd;

    snprintf(path, sizeof path, "%s/inject.status", s->dir);
    stage_enter(s->uid, s->gid);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    stage_leave();
    if (fd < 0)
        return 0;
    r = read(fd, text, n - 1);
    close(fd);
    text[r > 0 ? r : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    if (r <= 0)
        return 0;
    /* "0 ok" or "-ERRNO text" (agent/inject.c) */
    if (strtol(text, &rest, 10) == 0)
        return 1;
    memmove(text, rest + strspn(rest, " "), strlen(rest + strspn(rest, " ")) + 1);
    return -EIO;
}

void stage_remove(struct stage *s) {
    if (!s->dir[0])
        return;
    stage_enter(s->uid, s->gid);
    remove_dir(s->dir);
    stage_leave();
    s->dir[0] = 0;
}
