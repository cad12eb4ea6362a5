/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch.c - copies the traces of all nodes to DIR/NODE/NAME.zst: first asks for each node's list, then for the files, in parallel.
 *
 * A name that a server gives is used as a file name only with the characters that traces' names have. A file gets its name when it is
 * complete. More bytes than the size in the list allows, with some space for the growth of a running recording, are an error.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cluster/cluster.h"
#include "tools/common.h"

#define TRACES_MAX 100000 /* most traces of a node */
#define GROWTH     (256u << 20)
#define OPEN_MAX   64 /* most open files, and so requests, at once */

struct file {
    struct ask ask;
    char path[64], *name,
        *part; /* path: of the request; name: of the file; part: its name until it is complete */
};

struct fetch {
    const char *dir;
    struct ask *lists;
    struct file *file;
    size_t n, cap;
    size_t bytes;
};

/* Copies a name with only letters, digits, '.', '_' and '-', but neither '.' nor '-' in front: a hidden file, or an option. */
static void plain_name(const char *text, char *buf, size_t n) {
    size_t k = 0;

    for (; *text && k + 1 < n; text++) {
        int plain = strchr("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-.",
                           *text) != NULL,
            in_front = !k && (*text == '.' || *text == '-');
        buf[k++] = plain && !in_front ? *text : '_';
    }
    buf[k] = 0;
}

static int is_taken(const struct fetch *f, const char *name) {
    for (size_t i = 0; i < f->n; i++) {
        if (strcmp(f->file[i].name, name) == 0)
            return 1;
    }
    return 0;
}

static int add_file(struct fetch *f, const struct attached_node *node, const char *id,
                    const char *name, double bytes) {
    char folder[300], file[250], *path = NULL;
    size_t n;

    if (f->n == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 64;
        struct file *more = realloc(f->file, cap * sizeof *more);
        if (!more)
            return -ENOMEM;
        f->file = more;
        f->cap = cap;
    }
    plain_name(strncmp(node->address, "https://", 8) == 0 ? node->address + 8 : node->address,
               folder, sizeof folder);
    plain_name(name, file, sizeof file - 10);
    n = strlen(file);
    if (n < 5 || strcmp(file + n - 4, ".zst") != 0)
        strcat(file, ".zst"); /* traces are found by this ending */
    for (int i = 1;; i++) {
        char number[16] = "";
        if (i > 1)
            snprintf(number, sizeof number, "%d-", i);
        free(path);
        if (asprintf(&path, "%s/%s/%s%s", f->dir, folder, number, file) < 0)
            return -ENOMEM;
        if (!is_taken(f, path))
            break;
    }
    struct file *new = &f->file[f->n];
    *new = (struct file){.name = path};
    if (asprintf(&new->part, "%s.part", path) < 0) {
        free(path);
        return -ENOMEM;
    }
    snprintf(new->path, sizeof new->path, "/api/v1/traces/%s", id);
    new->ask = (struct ask){.node = node, .max_bytes = (size_t)(bytes * 2) + GROWTH};
    f->n++;
    return 0;
}

static int add_list(void *ctx, struct ask *ask) {
    struct fetch *f = ctx;
    size_t before = f->n;
    cJSON *list = cJSON_ParseWithLength(ask->text, ask->n);
    const cJSON *j;
    int rc = cJSON_IsArray(list) ? 0 : -EBADMSG;

    cJSON_ArrayForEach(j, list) {
        const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, "id")),
                   *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, "name"));
        double bytes = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(j, "bytes"));
        if (rc < 0)
            break;
        if (!id || !name || !*id || strlen(id) > 40 || id[strspn(id, "0123456789abcdef-")] ||
            !(bytes >= 0 && bytes < 1e15) || f->n - before > TRACES_MAX)
            rc = -EBADMSG;
        else
            rc = add_file(f, ask->node, id, name, bytes);
    }
    cJSON_Delete(list);
    if (rc == 0 && f->n == before) {
        snprintf(ask->error, sizeof ask->error,
                 "it has no traces: a database is served, or nothing is recorded");
        return -ENOENT;
    }
    if (rc < 0)
        snprintf(ask->error, sizeof ask->error,
                 "its answer is not what a server of probing's says");
    for (; rc < 0 && f->n > before; f->n--) {
        free(f->file[f->n - 1].name);
        free(f->file[f->n - 1].part);
    }
    return rc;
}

/* ---- the files ---- */

static int make_folder(const char *path) {
    return mkdir(path, 0777) < 0 && errno != EEXIST ? -errno : 0;
}

static int open_part(struct file *file) {
    char folder[4400];
    struct stat st;

    snprintf(folder, sizeof folder, "%s", file->part);
    *strrchr(folder, '/') = 0;
    int rc = make_folder(folder);
    if (rc == 0 && lstat(file->part, &st) == 0 && S_ISREG(st.st_mode))
        unlink(file->part); /* left by an interrupted fetch */
    int fd = rc < 0 ? -1 : open(file->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (rc == 0 && (fd < 0 || !(file->ask.out = fdopen(fd, "w"))))
        rc = -errno;
    if (rc < 0)
        snprintf(file->ask.error, sizeof file->ask.error, "cannot write %.150s: %s", file->part,
                 strerror(-rc));
    return rc;
}

static int close_part(struct file *file) {
    int rc = file->ask.out && (fflush(file->ask.out) == EOF || ferror(file->ask.out)) ? -errno : 0;

    if (!file->ask.out)
        return 0;
    if (fclose(file->ask.out) != 0 && rc == 0) /* NFS may say only now that the disk is full */
        rc = -errno;
    file->ask.out = NULL;
    if (rc == 0 && file->ask.ok && rename(file->part, file->name) < 0)
        rc = -errno;
    if (rc < 0) {
        file->ask.ok = 0;
        snprintf(file->ask.error, sizeof file->ask.error, "cannot write %.150s: %s", file->name,
                 strerror(-rc));
    }
    if (!file->ask.ok)
        unlink(file->part);
    return rc;
}

static int came(void *ctx, struct ask *ask) {
    (void)ctx;
    (void)ask;
    return 0;
}

/* Gets the files, at most OPEN_MAX at a time. */
static int get_files(const struct cluster *c, struct fetch *f) {
    struct ask asks[OPEN_MAX];
    struct file *files[OPEN_MAX];
    int rc = 0;

    for (size_t i = 0; i < f->n && rc == 0 && !cluster_interrupted;) {
        size_t n = 0;
        for (; i < f->n && n < OPEN_MAX; i++) {
            struct file *file = &f->file[i];
            file->ask.path = file->path;
            if (open_part(file) == 0) {
                files[n] = file;
                asks[n++] = file->ask;
            }
        }
        rc = ask_all(c, asks, n, came, NULL);
        for (size_t k = 0; k < n; k++) {
            files[k]->ask = asks[k];
            close_part(files[k]);
            f->bytes += files[k]->ask.ok ? files[k]->ask.n : 0;
        }
    }
    return rc;
}

int cluster_fetch(struct cluster *c, const char *dir, size_t *count) {
    struct fetch f = {.dir = dir, .lists = ask_each(c, "/api/v1/traces", NULL)};
    char size[TOOL_TEXT];
    int code;

    *count = 0;
    if (!f.lists)
        return TOOL_FAILED;
    int rc = make_folder(dir);
    if (rc < 0) {
        free(f.lists);
        return tool_fail("cannot make %s: %s", dir, strerror(-rc));
    }
    rc = ask_all(c, f.lists, c->nodes.n, add_list, &f);
    ask_twice(f.lists, c->nodes.n);
    for (size_t i = 0; i < f.n;) { /* a server asked twice gives its files once */
        const struct ask *list = &f.lists[f.file[i].ask.node - c->nodes.v];
        if (list->ok) {
            i++;
            continue;
        }
        free(f.file[i].name);
        free(f.file[i].part);
        memmove(&f.file[i], &f.file[i + 1], (--f.n - i) * sizeof *f.file);
    }
    if (rc == 0)
        rc = get_files(c, &f);
    for (size_t i = 0; i < f.n; i++) { /* a node with a missing trace counts as failed */
        struct ask *list = &f.lists[f.file[i].ask.node - c->nodes.v];
        *count += f.file[i].ask.ok != 0;
        if (!f.file[i].ask.ok && list->ok) {
            list->ok = 0;
            memcpy(list->error, f.file[i].ask.error, sizeof list->error);
        }
        free(f.file[i].name);
        free(f.file[i].part);
    }
    code = rc < 0 ? tool_fail("cannot fetch: %s", strerror(-rc)) : ask_failed(f.lists, c->nodes.n);
    tool_say("%zu traces, %s, in %s", *count, tool_size(f.bytes, size), dir);
    free(f.file);
    free(f.lists);
    return code == TOOL_FAILED && *count ? TOOL_PARTIAL : code;
}
