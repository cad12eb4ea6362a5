/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_replace.c - puts packed traces in the place of the files they were packed from: declared in pack_write.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../converter/keys.h"
#include "pack_write.h"

/* One input. */
struct file {
    const struct input *in;
    struct pack found;
    int stays; /* it is not packed but left as it is; 2: as a copy of what another file holds */
    uint32_t
        process; /* number of the process, if the file is one trace of it; 0: several traces, or the process is not known */
    struct file *next; /* the process's next file, which began earlier */
    struct stat st;    /* taken when the file was locked */
    int lock, folder;  /* open while it is replaced */
};

struct replacing {
    struct pack *all;
    struct file *file;
    size_t n;
    struct keys names;
    struct file **of; /* by process: list of its files, the one that began last first */
    const char *at;
};

/* Finds what is in each file, and which files belong to one process. */
static int find_contents(struct replacing *r, const struct inputs *in) {
    for (size_t i = 0; i < in->n; i++) {
        struct file *f = &r->file[i];
        struct inputs one = {.file = &in->file[i], .n = 1};
        *f = (struct file){.in = &in->file[i], .lock = -1, .folder = -1};
        f->found = (struct pack){.say = r->all->say, .tick = r->all->tick, .ctx = r->all->ctx};
        r->at = f->in->path;
        r->n++;
        int rc = pack_find(&f->found, &one);
        if (rc)
            return rc;
        f->stays = f->found.failed || f->found.damaged || f->found.copies || f->in->recording ||
                   !f->found.n;
        const struct pack_process *p = f->found.process;
        if (f->found.n == 1 && p->n == 1 && *p->key) {
            f->process = keys_put(&r->names, p->key, strlen(p->key), NULL);
            if (!f->process)
                return -ENOMEM;
            struct file **to = &r->of[f->process - 1];
            while (*to && (*to)->found.process->part->first > p->part->first)
                to = &(*to)->next;
            f->next = *to;
            *to = f;
        }
    }
    return 0;
}

/* Returns whether the part's recording has a `process` record of this time. */
static int says(const struct pack_part *of, uint64_t first) {
    for (size_t i = 0; i < of->said; i++)
        if (of->at[i] == first)
            return 1;
    return 0;
}

/* Chooses what stays as it is. If a file of a process stays, or is there twice, the process's files are not joined: each is packed alone. A segment
 * that is already in a joined file is left over from a machine that stopped before the segment was deleted: it stays. */
static void choose(struct replacing *r) {
    for (size_t p = 0; p < r->names.n; p++) {
        int join = 1;
        for (struct file *f = r->of[p]; f; f = f->next) {
            uint64_t first = f->found.process->part->first;
            for (struct file *o = r->of[p]; o && f->stays != 2; o = o->next) {
                const struct pack_part *other = o->found.process->part;
                if (o == f || !says(other, first))
                    continue;
                join = 0;
                if (first == other->first && other->said <= f->found.process->part->said)
                    continue; /* copies */
                r->all->say(r->all->ctx, f->in->path,
                            "all of it is in another input, which it was joined into: it stays as "
                            "it is, and can be deleted");
                r->all->failed++;
                f->stays = 2;
            }
            join &= !f->stays;
        }
        for (struct file *f = r->of[p], *next; f && !join; f = next) {
            next = f->next;
            f->next = NULL;
            f->process = 0;
        }
    }
    for (size_t i = 0; i < r->n; i++) {
        struct file *f = &r->file[i];
        if (f->stays != 1)
            continue;
        if (!f->found.failed)
            r->all->say(r->all->ctx, f->in->path,
                        f->in->recording ? "still being recorded: it stays as it is"
                                         : "it stays as it is (-o packs what is good of it)");
        r->all->failed++;
    }
}

static const char *name_of(const struct file *f) {
    const char *slash = strrchr(f->in->path, '/');

    return slash ? slash + 1 : f->in->path;
}

/* A path of the file in the folder that was opened, whatever the folder's own path leads to by now: its owner may put a symlink there, and we may be root. */
static const char *held(const struct file *f, char buf[PATH_MAX]) {
    if (snprintf(buf, PATH_MAX, "/proc/self/fd/%d/%s", f->folder, name_of(f)) >= PATH_MAX ||
        access(buf, F_OK) < 0) /* no /proc */
        snprintf(buf, PATH_MAX, "%s", f->in->path);
    return buf;
}

/* Locks the file against its writer and other packers. Returns 0 or -errno; -EBUSY: it is locked. */
static int lock_file(struct file *f) {
    char folder[PATH_MAX];
    int n = (int)(name_of(f) - f->in->path);

    snprintf(folder, sizeof folder, "%.*s", n ? n : 1, n ? f->in->path : ".");
    f->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    f->lock =
        openat(f->folder, name_of(f), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (f->lock < 0)
        return -errno;
    if (fstat(f->lock, &f->st) < 0 || !S_ISREG(f->st.st_mode))
        return -EINVAL;
    if (flock(f->lock, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? -EBUSY : -errno;
    return 0;
}

static int is_same(const struct file *f) {
    struct stat now;

    return fstatat(f->folder, name_of(f), &now, AT_SYMLINK_NOFOLLOW) == 0 &&
           now.st_ino == f->st.st_ino && now.st_dev == f->st.st_dev && now.st_size == f->st.st_size;
}

/* Packs the traces of f, and of the files after it in its list (which began earlier), into fd. */
static int write_all(struct replacing *r, struct file *f, int fd) {
    struct pack_process joined = *f->found.process;
    size_t n = 0;
    int rc = 0;

    if (!f->next) {
        for (size_t i = 0; !rc && i < f->found.n; i++)
            rc = pack_process(r->all, &f->found.process[i], fd);
        return rc;
    }
    for (struct file *o = f; o; o = o->next)
        n++;
    joined.part = calloc(n, sizeof *joined.part);
    joined.n = n;
    if (!joined.part)
        return -ENOMEM;
    for (struct file *o = f; o; o = o->next)
        joined.part[--n] = *o->found.process->part;
    rc = pack_process(r->all, &joined, fd);
    free(joined.part);
    return rc;
}

/* Gives the new file to the owner of the old ones, and lets those read it who could read all of these. Returns 0 or -errno. */
static int take_over(int fd, const struct file *f) {
    struct stat st;
    mode_t mode = 0666;

    for (const struct file *o = f; o; o = o->next)
        mode &= o->st.st_mode;
    if (geteuid() == 0 && fchown(fd, f->st.st_uid, f->st.st_gid) < 0)
        return -errno;
    if (geteuid() != 0 && fchown(fd, (uid_t)-1, f->st.st_gid) < 0 && errno != EPERM)
        return -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    /* with another owner or group, the same permissions would be for other people */
    if (st.st_uid == f->st.st_uid && st.st_gid == f->st.st_gid && fchmod(fd, mode | 0600) < 0)
        return -errno;
    return 0;
}

/* Replaces one file by its packed traces, or the files of a process's list by one: f is the first of the list, so began last. */
static int replace(struct replacing *r, struct file *f) {
    uint64_t out = r->all->bytes_out;
    size_t written = r->all->written;
    char temporary[PATH_MAX], path[PATH_MAX];
    int rc = 0, fd = -1;

    r->at = f->in->path;
    for (struct file *o = f; o && !rc; o = o->next)
        rc = lock_file(o);
    if (!rc && (fd = pack_file_new(held(f, path), temporary)) < 0)
        rc = fd;
    if (!rc)
        rc = write_all(r, f, fd);
    for (struct file *o = f; o && !rc; o = o->next)
        rc = is_same(o) ? 0 : -EBUSY;
    if (!rc)
        rc = take_over(fd, f);
    if (fd >= 0)
        rc = pack_file_done(fd, rc, temporary, path, 1);
    for (struct file *o = f->next; o && !rc; o = o->next) {
        r->at = o->in->path;
        rc = !is_same(o) ? -EBUSY : unlink(held(o, path)) < 0 ? -errno : 0;
    }
    for (struct file *o = f; o; o = o->next) {
        if (o->lock >= 0)
            close(o->lock);
        if (o->folder >= 0)
            close(o->folder);
        o->lock = o->folder = -1;
        r->all->bytes_in += rc ? 0 : o->found.bytes_in;
    }
    if (rc) {
        r->all->bytes_out = out;
        r->all->written = written;
    }
    return rc;
}

int pack_replace(struct pack *all, const struct inputs *in, const char **failed_at) {
    struct replacing r = {.all = all,
                          .file = calloc(in->n + 1, sizeof *r.file),
                          .of = calloc(in->n + 1, sizeof(struct file *))};
    int rc = r.file && r.of ? 0 : -ENOMEM;

    keys_init(&r.names);
    if (!rc)
        rc = find_contents(&r, in);
    if (!rc)
        choose(&r);
    for (size_t i = 0; !rc && i < r.n; i++) {
        struct file *f = &r.file[i];
        if (f->stays || (f->process && r.of[f->process - 1] != f))
            continue;
        rc = replace(&r, f);
        if (rc == -EBUSY) {
            all->say(all->ctx, r.at, "another process writes it: it stays as it is");
            all->failed++;
        }
        if (rc == -EBUSY || rc == -ESTALE) /* the second was printed and counted */
            rc = 0;
    }
    *failed_at = r.at;
    for (size_t i = 0; i < r.n; i++)
        pack_free(&r.file[i].found);
    keys_free(&r.names);
    free(r.file);
    free(r.of);
    return rc;
}
