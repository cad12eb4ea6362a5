/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inject.c - the stub that an injector dlopens into a running process (agent.h). Its constructor only starts a
 * thread: whoever called dlopen, perhaps a thread stopped by a debugger, gets away at once, and the agent is
 * loaded by a thread that holds nothing.
 *
 * How it went is written to inject.status beside this file, as one line: "0 ok", or "-ERRNO text".
 * With PROBING_STAGED in inject.conf, whoever waits for that holds a lock (flock) on the directory. When nobody does any
 * more (the injector was killed; the interpreter came to it late), nothing is started, and the directory is removed.
 *
 * Where the injector could not judge the seccomp filters that hold (gdbplugin/filters.c; PROBING_FILTER_JUDGED), a child tries them
 * before anything else is done.
 *
 * Each injection comes with a file of its own. So that many leave no more than two do, each unloads the stub before it, which has
 * done its work, and takes an agent that is loaded already if it is of the same build. The first one stays, whose handlers of fork serve
 * the others: glibc's fork() (2.43's) calls handlers that a dlclose() by another thread is unmapping, or aborts as their list is shorter.
 * It is linked without gcc's start files, whose destructor calls __cxa_finalize(): that waits with exit()'s lock for a fork that goes on, and
 * before 2.36 the fork waits in our handler for the dlclose(); in the child then nobody gives the lock back.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>

#include "agent/base/fork_lock.h"
#include "agent/core/agent.h"
#include "traces/filter.h"
#include "writer/sys.h"

#define CONF_MAX 65536
#define STUB     "libprobing-inject.so"
#define STUBS    8
#define EXEC_MS  100

__attribute__((visibility("hidden"))) void *__dso_handle; /* theirs: pthread_atfork() reads it */
struct fork_lock fork_lock = {PTHREAD_MUTEX_INITIALIZER, 0};
/* forks: held while we load or unload, the first stub's. probing_inject_forks: (a) where it is our own, for later stubs; else NULL. */
static struct fork_lock *forks = &fork_lock;
PROBING_EXPORT struct fork_lock *probing_inject_forks;

/* Where the next stub finds that nobody will run in this one any more. */
PROBING_EXPORT struct probing_inject_done {
    pid_t tid;         /* whose thread did its work */
    uint32_t worked;   /* (a) it has */
    uint32_t imported; /* (a) the import machinery that loaded it by a path with "/./" is through */
} probing_inject_done;

/* Path of a file beside this one. 0 or -errno. */
static int beside(const char *name, char *buf, size_t n) {
    Dl_info own;
    if (!dladdr((const void *)&beside, &own) || !own.dli_fname)
        return -ENOENT;
    const char *slash = strrchr(own.dli_fname, '/');
    int dir = slash ? (int)(slash + 1 - own.dli_fname) : 0;
    return snprintf(buf, n, "%.*s%s", dir, own.dli_fname, name) < (int)n ? 0 : -ENAMETOOLONG;
}

/* The value of PROBING_AGENT. `path` has n bytes. */
static const char *agent_path(const char *conf, char *path, size_t n) {
    static const char key[] = "PROBING_AGENT=";
    const char *p = conf;
    while (p && strncmp(p, key, sizeof key - 1))
        p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL;
    size_t len = p ? strcspn(p += sizeof key - 1, "\n") : 0;
    return len && snprintf(path, n, "%.*s", (int)len, p) < (int)n ? path : NULL;
}

/* All of it or nothing is seen under its name; but for -ENOSYS, after which as few calls as can be are made. */
static void report(int err, const char *text) {
    char path[4096], temporary[4096], line[1024];
    if (beside("inject.status", path, sizeof path) ||
        beside("inject.status.tmp", temporary, sizeof temporary))
        return;
    snprintf(line, sizeof line, "%d %s\n", err, text);
    int fd = open(err == -ENOSYS ? path : temporary,
                  O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    size_t len = strlen(line);
    int whole = write(fd, line, len) == (ssize_t)len;
    close(fd);
    if (err != -ENOSYS && (!whole || rename(temporary, path)))
        unlink(temporary);
}

/* Whether nobody waits for us; then the directory that we were loaded from is removed. */
static int left_alone(const char *conf) {
    char path[4096], *slash;
    int staged = !strncmp(conf, "PROBING_STAGED=", 15) || strstr(conf, "\nPROBING_STAGED="), fd,
        alone;
    struct dirent *e;
    if (!staged || beside("", path, sizeof path))
        return 0;
    path[strlen(path) - 1] = 0; /* the slash */
    if ((slash = strrchr(path, '/')) && !strcmp(slash, "/."))
        *slash = 0;
    slash = strrchr(path, '/');
    if (!slash || strncmp(slash, "/inject-", 8))
        return 0;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT; /* swept */
    alone = flock(fd, LOCK_EX | LOCK_NB) == 0;
    DIR *d = alone ? fdopendir(fd) : NULL;
    while (d && (e = readdir(d)))
        unlinkat(fd, e->d_name, 0);
    if (d) {
        rmdir(path);
        closedir(d);
    } else
        close(fd);
    return alone;
}

/* ---- what earlier injections left ---- */

static struct stubs {
    unsigned n;
    char path[STUBS][512];
} stubs;

static int collect(struct dl_phdr_info *info, size_t size UNUSED, void *arg) {
    struct stubs *s = arg;
    if (s->n < STUBS && !strcmp(basename(info->dlpi_name), STUB) &&
        strstr(info->dlpi_name, "/inject-") && strlen(info->dlpi_name) < sizeof s->path[0])
        strcpy(s->path[s->n++], info->dlpi_name);
    return 0;
}

/* Of each stub that is there: the one whose handlers of fork serve all becomes ours; `unload`: those of which nothing is needed go. */
static void see_earlier(int unload) {
    stubs.n = 0;
    dl_iterate_phdr(collect, &stubs);
    for (unsigned i = 0; i < stubs.n; i++) {
        const char *path = stubs.path[i];
        void *stub = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
        struct probing_inject_done *d = stub ? dlsym(stub, "probing_inject_done") : NULL;
        struct fork_lock **theirs = stub ? dlsym(stub, "probing_inject_forks") : NULL, *lock;
        if (theirs && (lock = __atomic_load_n(theirs, __ATOMIC_ACQUIRE)))
            forks = lock;
        else if (unload && d && theirs && d != &probing_inject_done &&
                 __atomic_load_n(&d->worked, __ATOMIC_ACQUIRE) &&
                 syscall(SYS_tgkill, getpid(), d->tid, 0) &&
                 (!strstr(path, "/./") || __atomic_load_n(&d->imported, __ATOMIC_ACQUIRE)))
            dlclose(stub);
        if (stub)
            dlclose(stub);
    }
}

struct wanted {
    int file;
    char path[4096];
};

/* Whether the notes of a loaded object, the build's identity among them, are in the file, too. */
static int same_build(const struct dl_phdr_info *info, int file) {
    uint8_t bytes[1024];
    int notes = 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        if (ph->p_type != PT_NOTE || ph->p_filesz > sizeof bytes)
            continue;
        if (pread(file, bytes, ph->p_filesz, (off_t)ph->p_offset) != (ssize_t)ph->p_filesz ||
            memcmp((const void *)(info->dlpi_addr + ph->p_vaddr), bytes, ph->p_filesz))
            return 0;
        notes++;
    }
    return notes;
}

static int compare(struct dl_phdr_info *info, size_t size UNUSED, void *arg) {
    struct wanted *w = arg;
    if (strcmp(basename(info->dlpi_name), basename(w->path)) ||
        strlen(info->dlpi_name) >= sizeof w->path || !same_build(info, w->file))
        return 0;
    strcpy(w->path, info->dlpi_name);
    return 1;
}

/* Loads the agent, or finds the one that is there. */
static void *load_agent(const char *path) {
    struct wanted w = {.file = open(path, O_RDONLY | O_CLOEXEC)};
    snprintf(w.path, sizeof w.path, "%s", path);
    pthread_mutex_lock(&forks->mutex);
    if (w.file >= 0) {
        dl_iterate_phdr(compare, &w);
        close(w.file);
    }
    void *agent = dlopen(w.path, RTLD_NOW | RTLD_LOCAL);
    pthread_mutex_unlock(&forks->mutex);
    return agent;
}

static void start(void) {
    char conf[CONF_MAX], buf[4096];
    int (*begin)(const char *, const char *) = NULL;
    const char *path, *call, *text = "inject.conf cannot be read";
    void *agent;
    int err = beside("inject.conf", buf, sizeof buf);
    if (!err && access(buf, R_OK))
        err = -errno;
    if (err)
        goto out;
    proc_read_file(buf, conf, sizeof conf);
    if (!strstr(conf, "PROBING_FILTER_JUDGED=") && (call = filter_kills(0))) {
        snprintf(buf, sizeof buf, "a seccomp filter would end the process for %s", call);
        report(-ENOSYS, buf);
        return;
    }
    if (forks == &fork_lock && !pthread_atfork(fork_lock_take, fork_lock_leave, fork_lock_renew))
        __atomic_store_n(&probing_inject_forks, &fork_lock, __ATOMIC_RELEASE);
    pthread_mutex_lock(&forks->mutex);
    see_earlier(1);
    pthread_mutex_unlock(&forks->mutex);
    if (left_alone(conf))
        return;
    err = -EINVAL;
    text = "inject.conf names no PROBING_AGENT";
    path = agent_path(conf, buf, sizeof buf);
    if (!path)
        goto out;
    err = -ELIBACC;
    agent = load_agent(path);
    if (agent)
        begin = dlsym(agent, "probing_agent_start");
    if (!begin) {
        const char *why = dlerror();
        text = why ? why : "the agent cannot be loaded";
        goto out;
    }
    err = begin(conf, "inject");
    text = !err ? "ok" : err == -EALREADY ? "already recording" : strerror(-err);
out:
    report(err, text);
    left_alone(conf);
}

static void *inject_main(void *unused UNUSED) {
    probing_inject_done.tid = (pid_t)syscall(SYS_gettid);
    start();
    __atomic_store_n(&probing_inject_done.worked, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* The import machinery calls it when it is through with dlopen; that nothing comes of it is an exception, which our importing line swallows. */
PROBING_EXPORT void *PyInit_libprobing(void);
void *PyInit_libprobing(void) {
    __atomic_store_n(&probing_inject_done.imported, 1, __ATOMIC_RELEASE);
    return NULL;
}

__attribute__((constructor)) static void inject(void) {
    int saved = errno, err;
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, mask;
    see_earlier(0); /* within dlopen() as it is */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    err = pthread_attr_init(&attr);
    if (!err) {
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        /* While another thread is in execve(), which may fail, the kernel makes none. */
        for (int i = 0;
             (err = pthread_create(&thread, &attr, inject_main, NULL)) == EAGAIN && i < EXEC_MS;
             i++)
            sys_sleep(SYS_MS);
        pthread_attr_destroy(&attr);
    }
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (err)
        report(-err, "no thread could be started");
    errno = saved;
}
