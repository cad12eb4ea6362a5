/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inject.c - the stub that an injector dlopens into a running process (agent.h). Its constructor only starts a thread: so the caller of dlopen(), perhaps a
 * thread that a debugger has stopped, continues at once, and the agent is loaded by a thread that holds no lock.
 *
 * The stub writes the result to inject.status in its own directory, as one line: "0 ok", or "-ERRNO text".
 * With PROBING_STAGED in inject.conf, the injector that waits for the result holds a lock (flock) on the directory. When nobody holds
 * it any more (the injector was killed, or the interpreter ran the stub late), nothing is started, and the directory is removed.
 *
 * Where the injector could not judge the process's seccomp filters (gdbplugin/filters.c; PROBING_FILTER_JUDGED), a child process tries
 * the system calls before anything else is done.
 *
 * Each injection loads a stub file of its own. So that many injections leave no more behind than two, each stub unloads the earlier ones that
 * have finished, and uses an agent of the same build that is loaded already. The first stub stays: its fork handlers serve the others, because
 * glibc's fork() (2.43's) calls handlers that a dlclose() in another thread is unmapping, or aborts when their list has become shorter.
 * The stub is linked without gcc's start files, whose destructor calls __cxa_finalize(). That waits, holding exit()'s lock, for a fork in
 * progress; before 2.36 that fork waits in our handler for the dlclose(); then nobody releases the lock in the child.
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

__attribute__((visibility("hidden"))) void *__dso_handle; /* for pthread_atfork() */
struct fork_lock fork_lock = {PTHREAD_MUTEX_INITIALIZER, 0};
/* `forks`: the first stub's lock, held while this stub loads or unloads. probing_inject_forks: (a) tells it to later stubs; NULL where it is not ours. */
static struct fork_lock *forks = &fork_lock;
PROBING_EXPORT struct fork_lock *probing_inject_forks;

/* Tells the next stub whether any thread can still run code of this one. */
PROBING_EXPORT struct probing_inject_done {
    pid_t tid;         /* thread that does this stub's work */
    uint32_t worked;   /* (a) that work is done */
    uint32_t imported; /* (a) Python's import, which uses a path with "/./", has finished */
} probing_inject_done;

/* Makes the path of a file in this stub's directory. Returns 0 or -errno. */
static int beside(const char *name, char *buf, size_t n) {
    Dl_info own;
    if (!dladdr((const void *)&beside, &own) || !own.dli_fname)
        return -ENOENT;
    const char *slash = strrchr(own.dli_fname, '/');
    int dir = slash ? (int)(slash + 1 - own.dli_fname) : 0;
    return snprintf(buf, n, "%.*s%s", dir, own.dli_fname, name) < (int)n ? 0 : -ENAMETOOLONG;
}

/* Returns the value of PROBING_AGENT, copied to `path` (n bytes), or NULL. */
static const char *agent_path(const char *conf, char *path, size_t n) {
    const char *p = proc_value(conf, "PROBING_AGENT", "=");
    size_t len = p ? strcspn(p, "\n") : 0;
    return len && snprintf(path, n, "%.*s", (int)len, p) < (int)n ? path : NULL;
}

/* Writes inject.status atomically (by rename); except for -ENOSYS, where it makes as few system calls as possible. */
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

/* Returns whether no injector waits for this stub; if so, removes the directory that the stub was loaded from. */
static int left_alone(const char *conf) {
    char path[4096], *slash;
    int fd, alone;
    struct dirent *e;
    if (!proc_value(conf, "PROBING_STAGED", "=") || beside("", path, sizeof path))
        return 0;
    path[strlen(path) - 1] = 0; /* the slash */
    if ((slash = strrchr(path, '/')) && !strcmp(slash, "/."))
        *slash = 0;
    slash = strrchr(path, '/');
    if (!slash || strncmp(slash, "/inject-", 8))
        return 0;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT; /* somebody has removed it */
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

/* Looks at each loaded stub: takes the fork lock of the stub whose handlers serve all, and with `unload` unloads the stubs that are not needed. */
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

/* Returns whether the ELF notes of a loaded object, among them its build ID, are the same in the file. */
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
    const char *(*refusal)(void), *path, *call, *text = "inject.conf cannot be read";
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
    text = !err ? "ok" : err == -EALREADY ? "already recording" : strerrordesc_np(-err);
    if (err && (refusal = dlsym(agent, "probing_agent_refusal")) && *refusal())
        text = refusal();
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

/* Python's import calls this when dlopen() has returned. Its NULL result raises an exception, which the injector's import statement ignores. */
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
    see_earlier(0); /* no unloading: we are inside dlopen() */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    err = pthread_attr_init(&attr);
    if (!err) {
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        /* While another thread is in execve(), which may still fail, the kernel creates no thread. */
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
