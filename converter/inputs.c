/* SPDX-License-Identifier: Apache-2.0 */
#include "inputs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../traces/hash.h"
#include "source.h"

static int add_file(struct inputs *in, const char *path, uint64_t dev, uint64_t ino, int found) {
    const uint64_t key[2] = {dev, ino};
    int is_new = 0;

    if (keys_put(&in->seen, key, sizeof key, &is_new) == 0)
        return -ENOMEM;
    if (!is_new)
        return 0;
    if (in->n == in->cap) {
        size_t cap = in->cap * 2 + 16;
        void *p = realloc(in->file, cap * sizeof *in->file);
        if (!p)
            return -ENOMEM;
        in->file = p;
        in->cap = cap;
    }
    char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    in->file[in->n++] = (struct input){.path = copy, .dev = dev, .ino = ino, .found = found};
    return 0;
}

/* Returns 1 for traces, and for directories that may contain some, except those of earlier runs (traces/run.h). */
static int is_of_interest(const struct dirent *d) {
    size_t n = strlen(d->d_name);

    if (d->d_name[0] == '.')
        return 0;
    if (n > 4 && strcmp(d->d_name + n - 4, ".zst") == 0)
        return 1;
    return (d->d_type == DT_DIR || d->d_type == DT_UNKNOWN) && !strstr(d->d_name, ".zst.old");
}

/* Adds what was found and cannot be looked into: whoever opens it then says why. */
static int add_unseen(struct inputs *in, const char *path) {
    return add_file(in, path, UINT64_MAX, hash_text(HASH_START, path), 1);
}

/* Adds every .zst file in a directory and in those below it. Returns -ENODATA when there is none. */
static int add_directory(struct inputs *in, const char *dir) {
    struct dirent **names = NULL;
    char *path = NULL;
    struct stat st;
    int err = -ENODATA, any = 0;
    int n = scandir(dir, &names, is_of_interest, versionsort);

    if (n < 0)
        return -errno;
    for (int i = 0; i < n; i++) {
        size_t len = strlen(dir);
        const char *slash = len && dir[len - 1] == '/' ? "" : "/";
        int k = any && err ? -1 : asprintf(&path, "%s%s%s", dir, slash, names[i]->d_name),
            e = -ENODATA;
        free(names[i]);
        if (k < 0)
            continue;
        int is_trace = k > 4 && strcmp(path + k - 4, ".zst") == 0;
        if (k < 4096 && lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
            e = add_directory(in, path);
            if (e && e != -ENODATA && e != -ENOMEM && e != -ENOENT)
                e = add_unseen(in, path);
        } else if (k < 4096 && is_trace && stat(path, &st) == 0) {
            e = S_ISREG(st.st_mode) ? add_file(in, path, st.st_dev, st.st_ino, 1) : e;
        } else if (is_trace && errno == EACCES) {
            e = add_unseen(in, path);
        }
        free(path);
        if (e == 0 || e == -ENOMEM) {
            any = 1;
            err = e;
        }
    }
    free(names);
    return err;
}

int inputs_add(struct inputs *in, const char *path, int flags) {
    struct stat st;
    char dir[4096];

    if (strcmp(path, "-") == 0)
        return add_file(in, path, 0, 0, 0);
    if (source_is_remote(path)) /* identified by its name */
        return add_file(in, path, UINT64_MAX, hash_text(HASH_START, path), 0);
    if (stat(path, &st) != 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return add_directory(in, path);
    int err = add_file(in, path, st.st_dev, st.st_ino, 0);
    if (!err && flags & INPUTS_SIBLINGS && S_ISREG(st.st_mode) &&
        snprintf(dir, sizeof dir, "%s.d", path) < (int)sizeof dir && stat(dir, &st) == 0 &&
        S_ISDIR(st.st_mode)) {
        err = add_directory(in, dir);
        if (err == -ENODATA)
            err = 0;
    }
    return err;
}

const char *inputs_strerror(int err) {
    return err == -ENODATA ? "no trace (*.zst) in this directory" : strerror(-err);
}

void inputs_free(struct inputs *in) {
    for (size_t i = 0; i < in->n; i++)
        free(in->file[i].path);
    free(in->file);
    keys_free(&in->seen);
    memset(in, 0, sizeof *in);
}
