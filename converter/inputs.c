/* SPDX-License-Identifier: Apache-2.0 */
#include "inputs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int add_file(struct inputs *in, const char *path, uint64_t dev, uint64_t ino) {
    for (size_t i = 0; i < in->n; i++)
        if (in->file[i].dev == dev && in->file[i].ino == ino)
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
    in->file[in->n++] = (struct input){.path = copy, .dev = dev, .ino = ino};
    return 0;
}

static int is_trace(const struct dirent *d) {
    size_t n = strlen(d->d_name);

    return d->d_name[0] != '.' && n > 4 && strcmp(d->d_name + n - 4, ".zst") == 0;
}

/* Every .zst of a directory. -ENODATA: there is none. */
static int add_directory(struct inputs *in, const char *dir) {
    struct dirent **names = NULL;
    char path[4096];
    struct stat st;
    int err = -ENODATA, any = 0;
    int n = scandir(dir, &names, is_trace, versionsort);

    if (n < 0)
        return -errno;
    for (int i = 0; i < n; i++) {
        size_t len = strlen(dir);
        const char *slash = len && dir[len - 1] == '/' ? "" : "/";
        int k = snprintf(path, sizeof path, "%s%s%s", dir, slash, names[i]->d_name);
        free(names[i]);
        if ((any && err) || k >= (int)sizeof path || stat(path, &st) != 0 || !S_ISREG(st.st_mode))
            continue;
        any = 1;
        err = add_file(in, path, st.st_dev, st.st_ino);
    }
    free(names);
    return err;
}

int inputs_add(struct inputs *in, const char *path, int flags) {
    struct stat st;
    char dir[4096];

    if (strcmp(path, "-") == 0)
        return add_file(in, path, 0, 0);
    if (stat(path, &st) != 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return add_directory(in, path);
    int err = add_file(in, path, st.st_dev, st.st_ino);
    if (!err && flags & INPUTS_SIBLINGS && S_ISREG(st.st_mode) &&
        snprintf(dir, sizeof dir, "%s.d", path) < (int)sizeof dir && stat(dir, &st) == 0 &&
        S_ISDIR(st.st_mode)) {
        err = add_directory(in, dir);
        if (err == -ENODATA)
            err = 0;
    }
    return err;
}

void inputs_free(struct inputs *in) {
    for (size_t i = 0; i < in->n; i++)
        free(in->file[i].path);
    free(in->file);
    memset(in, 0, sizeof *in);
}
