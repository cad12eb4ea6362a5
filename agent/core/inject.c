/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inject.c - the stub that an injector dlopens into a running process (agent.h). Its constructor only starts a
 * thread: whoever called dlopen, perhaps a thread stopped by a debugger, gets away at once, and the agent is
 * loaded by a thread that holds nothing.
 *
 * How it went is written to inject.status beside this file, as one line: "0 ok", or "-ERRNO text".
 *
 * With PROBING_STAGED in inject.conf, whoever waits for that holds a lock (flock) on the directory. When nobody does any
 * more (the injector was killed; the interpreter came to it late), nothing is started, and the directory is removed.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "agent/core/agent.h"

#define CONF_MAX 65536

/* Path of a file beside this one. 0 or -errno. */
static int beside(const char *name, char *buf, size_t n) {
    Dl_info own;
    if (!dladdr((const void *)&beside, &own) || !own.dli_fname)
        return -ENOENT;
    const char *slash = strrchr(own.dli_fname, '/');
    int dir = slash ? (int)(slash + 1 - own.dli_fname) : 0;
    return snprintf(buf, n, "%.*s%s", dir, own.dli_fname, name) < (int)n ? 0 : -ENAMETOOLONG;
}

static int read_conf(char *conf, size_t n) {
    char path[4096];
    size_t have = 0;
    int fd, err = beside("inject.conf", path, sizeof path);
    if (err)
        return err;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    while (have + 1 < n) {
        ssize_t r = read(fd, conf + have, n - 1 - have);
        if (r < 0)
            err = -errno;
        if (r <= 0)
            break;
        have += (size_t)r;
    }
    conf[have] = 0;
    close(fd);
    return err;
}

/* The value of PROBING_AGENT. `path` has n bytes. */
static const char *agent_path(const char *conf, char *path, size_t n) {
    const char *key = "PROBING_AGENT=";
    for (const char *p = conf; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        if (strncmp(p, key, strlen(key)))
            continue;
        p += strlen(key);
        size_t len = strcspn(p, "\n");
        if (!len || len >= n)
            return NULL;
        memcpy(path, p, len);
        path[len] = 0;
        return path;
    }
    return NULL;
}

/* All of it or nothing is seen under its name. */
static void report(int err, const char *text) {
    char path[4096], temporary[4096], line[1024];
    int fd;
    if (beside("inject.status", path, sizeof path) ||
        beside("inject.status.tmp", temporary, sizeof temporary))
        return;
    snprintf(line, sizeof line, "%d %s\n", err, text);
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    size_t len = strlen(line);
    int whole = write(fd, line, len) == (ssize_t)len;
    close(fd);
    if (!whole || rename(temporary, path))
        unlink(temporary);
}

/* Whether nobody waits for us; then the directory that we were loaded from is removed. */
static int left_alone(const char *conf) {
    char path[4096], *slash;
    int staged = !strncmp(conf, "PROBING_STAGED=", 15) || strstr(conf, "\nPROBING_STAGED="), fd,
        alone;
    struct dirent *e;
    DIR *d;
    if (!staged || beside("", path, sizeof path))
        return 0;
    path[strlen(path) - 1] = 0; /* the slash */
    slash = strrchr(path, '/');
    if (!slash || strncmp(slash, "/inject-", 8))
        return 0;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT; /* swept */
    alone = flock(fd, LOCK_EX | LOCK_NB) == 0;
    d = alone ? fdopendir(fd) : NULL;
    while (d && (e = readdir(d)))
        unlinkat(fd, e->d_name, 0);
    if (d) {
        rmdir(path);
        closedir(d);
    } else
        close(fd);
    return alone;
}

static void *inject_main(void *unused) {
    char conf[CONF_MAX], buf[4096]; /* no static ones: each injection brings another copy of this */
    int (*start)(const char *, const char *) = NULL;
    const char *path, *text = "inject.conf cannot be read";
    void *agent;
    int err = read_conf(conf, sizeof conf);
    (void)unused;
    if (err)
        goto out;
    if (left_alone(conf))
        return NULL;
    err = -EINVAL;
    text = "inject.conf names no PROBING_AGENT";
    path = agent_path(conf, buf, sizeof buf);
    if (!path)
        goto out;
    err = -ELIBACC;
    agent = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (agent)
        start = (int (*)(const char *, const char *))dlsym(agent, "probing_agent_start");
    if (!start) {
        const char *why = dlerror();
        text = why ? why : "the agent cannot be loaded";
        goto out;
    }
    err = start(conf, "inject");
    text = !err ? "ok" : err == -EALREADY ? "already recording" : strerror(-err);
out:
    report(err, text);
    left_alone(conf);
    return NULL;
}

__attribute__((constructor)) static void inject(void) {
    int saved = errno, err;
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, mask;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    err = pthread_attr_init(&attr);
    if (!err) {
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        err = pthread_create(&thread, &attr, inject_main, NULL);
        pthread_attr_destroy(&attr);
    }
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (err)
        report(-err, "no thread could be started");
    errno = saved;
}
