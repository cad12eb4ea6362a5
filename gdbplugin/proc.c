/* SPDX-License-Identifier: Apache-2.0 */
#include "proc.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* ---- mappings ---- */

static int parse_map(char *line, struct proc_map *m) {
    static const char gone[] = " (deleted)";
    int at = 0;
    size_t n;

    *m = (struct proc_map){0};
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*x:%*x %" SCNu64 " %n", &m->start,
               &m->end, m->perms, &m->offset, &m->inode, &at) < 5 ||
        at == 0)
        return -EBADMSG;
    n = strcspn(line + at, "\n");
    line[at + n] = 0;
    if (n >= sizeof gone && strcmp(line + at + n - (sizeof gone - 1), gone) == 0) {
        line[at + n - (sizeof gone - 1)] = 0;
        m->deleted = 1;
    }
    m->path = strdup(line + at);
    return m->path ? 0 : -ENOMEM;
}

/* Room for one more; the capacity is the next power of two. */
static struct proc_map *push(struct proc_maps *maps) {
    if ((maps->n & (maps->n - 1)) == 0) {
        struct proc_map *v = realloc(maps->v, (maps->n ? maps->n * 2 : 1) * sizeof *v);
        if (!v)
            return NULL;
        maps->v = v;
    }
    return &maps->v[maps->n];
}

static int add_line(struct proc_maps *maps, char *line) {
    struct proc_map *m = push(maps);
    int rc = m ? parse_map(line, m) : -ENOMEM;

    maps->n += rc == 0;
    return rc;
}

static int maps_of(pid_t pid, pid_t tid, struct proc_maps *out) {
    char name[64], *line = NULL;
    size_t len = 0;
    int rc = 0;
    FILE *f;

    *out = (struct proc_maps){0};
    snprintf(name, sizeof name, "/proc/%d/task/%d/maps", pid, tid);
    f = fopen(name, "re");
    if (!f)
        return -errno;
    while (rc == 0 && getline(&line, &len, f) > 0)
        rc = add_line(out, line);
    free(line);
    fclose(f);
    if (rc < 0)
        proc_maps_free(out);
    return rc;
}

int proc_maps_read(pid_t pid, struct proc_maps *out) {
    pid_t *tids = NULL;
    int rc = maps_of(pid, pid, out);
    ssize_t n = rc == 0 && out->n == 0 ? proc_tids(pid, &tids) : 0;

    /* A main thread that has ended has no memory, those that go on have it. */
    for (ssize_t i = 0; i < n && rc == 0 && out->n == 0; i++)
        if (maps_of(pid, tids[i], out) < 0)
            *out = (struct proc_maps){0};
    free(tids);
    return rc;
}

int proc_maps_parse(const char *text, struct proc_maps *out) {
    int rc = 0;

    *out = (struct proc_maps){0};
    while (rc == 0 && *text) {
        size_t n = strcspn(text, "\n");
        char *line = strndup(text, n);
        rc = line ? add_line(out, line) : -ENOMEM;
        free(line);
        text += n + (text[n] != 0);
    }
    if (rc < 0)
        proc_maps_free(out);
    return rc;
}

int proc_maps_add(struct proc_maps *maps, const struct proc_map *map) {
    struct proc_map *m = push(maps);

    if (!m)
        return -ENOMEM;
    *m = *map;
    m->path = strdup(map->path);
    if (!m->path)
        return -ENOMEM;
    maps->n++;
    return 0;
}

void proc_maps_free(struct proc_maps *maps) {
    for (size_t i = 0; i < maps->n; i++)
        free(maps->v[i].path);
    free(maps->v);
    *maps = (struct proc_maps){0};
}

const struct proc_map *proc_maps_at(const struct proc_maps *maps, uint64_t addr) {
    size_t lo = 0, hi = maps->n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (addr < maps->v[mid].start)
            hi = mid;
        else if (addr >= maps->v[mid].end)
            lo = mid + 1;
        else
            return &maps->v[mid];
    }
    return NULL;
}

const struct proc_map *proc_maps_library(const struct proc_maps *maps, const char *name) {
    size_t n = strlen(name);
    int prefix = n > 0 && name[n - 1] == '*';

    for (size_t i = 0; i < maps->n; i++) {
        const struct proc_map *m = &maps->v[i];
        const char *base = strrchr(m->path, '/');

        if (!base || m->offset != 0)
            continue;
        base++;
        if (prefix ? strncmp(base, name, n - 1) == 0 : strcmp(base, name) == 0)
            return m;
    }
    return NULL;
}

/* ---- small files ---- */

static ssize_t slurp(const char *name, char *buf, size_t n) {
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    size_t got = 0;
    ssize_t r = 0;

    if (fd < 0)
        return -errno;
    while (got < n - 1 && (r = read(fd, buf + got, n - 1 - got)) > 0)
        got += (size_t)r;
    r = r < 0 ? -errno : (ssize_t)got;
    close(fd);
    buf[got] = 0;
    return r;
}

int proc_status(pid_t pid, pid_t tid, const char *field, char *buf, size_t n) {
    char name[64], all[8192];
    size_t len = strlen(field);
    ssize_t r;

    if (tid)
        snprintf(name, sizeof name, "/proc/%d/task/%d/status", pid, tid);
    else
        snprintf(name, sizeof name, "/proc/%d/status", pid);
    r = slurp(name, all, sizeof all);
    if (r < 0)
        return (int)r;
    for (char *p = all; p && *p; p = (p = strchr(p, '\n')) ? p + 1 : NULL) {
        if (strncmp(p, field, len) || p[len] != ':')
            continue;
        p += len + 1;
        p += strspn(p, " \t");
        snprintf(buf, n, "%.*s", (int)strcspn(p, "\n"), p);
        return 0;
    }
    return -ENOENT;
}

int proc_task(pid_t pid, pid_t tid, char *name, size_t n, char *state) {
    char path[64], all[1024];
    char *open_, *close_;
    ssize_t r;

    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, tid);
    r = slurp(path, all, sizeof all);
    if (r < 0)
        return (int)r;
    open_ = strchr(all, '(');
    close_ = strrchr(all, ')'); /* a thread's name can hold one */
    if (!open_ || !close_ || close_ < open_ || close_[1] != ' ')
        return -EBADMSG;
    *close_ = 0;
    if (name)
        snprintf(name, n, "%s", open_ + 1);
    if (state)
        *state = close_[2];
    return 0;
}

static int ascending(const void *a, const void *b) {
    return *(const pid_t *)a < *(const pid_t *)b ? -1 : 1;
}

ssize_t proc_tids(pid_t pid, pid_t **out) {
    char name[64];
    size_t n = 0, cap = 0;
    pid_t *v = NULL;
    struct dirent *e;
    DIR *d;

    snprintf(name, sizeof name, "/proc/%d/task", pid);
    d = opendir(name);
    if (!d)
        return -errno;
    while ((e = readdir(d))) {
        pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);
        if (tid <= 0)
            continue;
        if (n == cap) {
            size_t want = cap ? cap * 2 : 64;
            pid_t *w = realloc(v, want * sizeof *w);
            if (!w) {
                free(v);
                closedir(d);
                return -ENOMEM;
            }
            v = w;
            cap = want;
        }
        v[n++] = tid;
    }
    closedir(d);
    if (n)
        qsort(v, n, sizeof *v, ascending);
    *out = v;
    return (ssize_t)n;
}

int proc_link(pid_t pid, const char *what, char *buf, size_t n) {
    char name[64];
    ssize_t r;

    snprintf(name, sizeof name, "/proc/%d/%s", pid, what);
    r = readlink(name, buf, n - 1);
    if (r < 0)
        return -errno;
    buf[r] = 0;
    return 0;
}

int proc_environ(pid_t pid, const char *var, char *buf, size_t n) {
    size_t cap = 1 << 20, len = strlen(var);
    char name[64], *all = malloc(cap);
    int rc = -ENOENT;
    ssize_t r;

    if (!all)
        return -ENOMEM;
    snprintf(name, sizeof name, "/proc/%d/environ", pid);
    r = slurp(name, all, cap);
    if (r < 0)
        rc = (int)r;
    for (char *p = all; r > 0 && p < all + r; p += strlen(p) + 1) {
        if (strncmp(p, var, len) == 0 && p[len] == '=') {
            snprintf(buf, n, "%s", p + len + 1);
            rc = 0;
            break;
        }
    }
    free(all);
    return rc;
}

/* ---- memory ---- */

int proc_image(pid_t pid, uint64_t id[2]) {
    char name[64], stat[1024], *at;
    uint64_t auxv[128] = {0}, random[2] = {0}, h = 0xcbf29ce484222325u;
    ssize_t r;
    int rc = 0;

    snprintf(name, sizeof name, "/proc/%d/stat", pid);
    r = slurp(name, stat, sizeof stat);
    at = r > 0 ? strrchr(stat, ')') : NULL;
    for (int field = 2; at && field < 22; field++) /* the name is the second, starttime the 22nd */
        at = strchr(at + 1, ' ');
    snprintf(name, sizeof name, "/proc/%d/auxv", pid);
    r = at ? slurp(name, (char *)auxv, sizeof auxv) : -ESRCH;
    if (r <= 0)
        return r < 0 ? (int)r : -ESRCH;
    for (size_t i = 0; i + 1 < sizeof auxv / sizeof *auxv && auxv[i] != AT_NULL; i += 2) {
        if (auxv[i] == AT_RANDOM)
            rc = proc_read(pid, auxv[i + 1], random, sizeof random);
        h = (h ^ auxv[i + 1]) * 0x100000001b3u;
    }
    id[0] = strtoull(at, NULL, 10);
    id[1] = ((h ^ random[0]) * 0x100000001b3u ^ random[1]) * 0x100000001b3u;
    return rc;
}

int proc_read(pid_t pid, uint64_t addr, void *buf, size_t n) {
    struct iovec here = {buf, n}, there = {(void *)(uintptr_t)addr, n};
    ssize_t r = process_vm_readv(pid, &here, 1, &there, 1, 0);

    return r == (ssize_t)n ? 0 : -EFAULT;
}

uint64_t proc_now(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void proc_sleep_us(unsigned us) {
    struct timespec ts = {us / 1000000, (long)(us % 1000000) * 1000};

    nanosleep(&ts, NULL);
}
