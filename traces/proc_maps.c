/* SPDX-License-Identifier: Apache-2.0 */
/* proc_maps.c - the mappings of a process (proc.h). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>

#include "proc.h"

/* Parses a number at p that must be followed by the character `after`. Returns the position behind that, or NULL. sscanf() takes ten times as long. */
static char *map_number(char *p, unsigned base, char after, uint64_t *out) {
    char *from = p;

    for (*out = 0;; p++) {
        unsigned digit = *p >= '0' && *p <= '9'   ? (unsigned)(*p - '0')
                         : *p >= 'a' && *p <= 'f' ? (unsigned)(*p - 'a') + 10
                                                  : base;
        if (digit >= base)
            break;
        *out = *out * base + digit;
    }
    return p > from && *p == after ? p + 1 : NULL;
}

int proc_maps_each(int (*fn)(void *ctx, char *line), void *ctx) {
    char buf[8192 + 1];
    size_t have = 0;
    int rc = 0, fd = open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    for (ssize_t r; !rc && (r = read(fd, buf + have, sizeof buf - 1 - have)) > 0;) {
        have += (size_t)r;
        buf[have] = 0;
        char *line = buf, *nl;
        for (; !rc && (nl = strchr(line, '\n')); line = nl + 1) {
            *nl = 0;
            rc = fn(ctx, line);
        }
        have -= (size_t)(line - buf);
        memmove(buf, line, have);
        if (have == sizeof buf - 1) /* a line longer than any path: skip it */
            have = 0;
    }
    close(fd);
    return rc;
}

int proc_map_line(char *line, struct proc_map *m) {
    static const char gone[] = " (deleted)";
    uint64_t device;
    size_t n;
    char *p;

    *m = (struct proc_map){0};
    if (!(p = map_number(line, 16, '-', &m->start)) || !(p = map_number(p, 16, ' ', &m->end)))
        return -EBADMSG;
    n = strcspn(p, " ");
    if (n == 0 || n >= sizeof m->perms || p[n] != ' ')
        return -EBADMSG;
    memcpy(m->perms, p, n);
    if (!(p = map_number(p + n + 1, 16, ' ', &m->offset)) ||
        !(p = map_number(p, 16, ':', &device)) || !(p = map_number(p, 16, ' ', &device)))
        return -EBADMSG;
    char *end = p + strspn(p, "0123456789"); /* the line of anonymous memory may end here */
    if (!map_number(p, 10, *end, &m->inode) || (*end && *end != ' '))
        return -EBADMSG;
    p = end + strspn(end, " ");
    n = strlen(p);
    if (n >= sizeof gone && strcmp(p + n - (sizeof gone - 1), gone) == 0) {
        p[n - (sizeof gone - 1)] = 0;
        m->deleted = 1;
    }
    m->path = p;
    return 0;
}

/* Parses all lines; modifies the text. */
static int take_lines(char *text, struct proc_maps *out) {
    char *next = text, *line;
    int rc = 0;

    *out = (struct proc_maps){0};
    while (rc == 0 && (line = strsep(&next, "\n")) && *line) {
        struct proc_map map;
        rc = proc_map_line(line, &map);
        if (rc == 0)
            rc = proc_maps_add(out, &map);
    }
    if (rc < 0)
        proc_maps_free(out);
    return rc;
}

int proc_maps_parse(const char *text, struct proc_maps *out) {
    char *copy = strdup(text);
    int rc = copy ? take_lines(copy, out) : -ENOMEM;

    if (!copy)
        *out = (struct proc_maps){0};
    free(copy);
    return rc;
}

/* Reads the lines of a thread's maps file; *text must be freed, and is "" when there are none. Returns 0 or -errno. */
static int text_of(pid_t pid, pid_t tid, char **text) {
    char name[64];
    char page[4096]; /* the kernel returns this much per read; stdio's default is a quarter */
    size_t len = 0;
    FILE *f;

    *text = NULL;
    snprintf(name, sizeof name, "/proc/%d/task/%d/maps", pid, tid);
    f = fopen(name, "re");
    if (!f)
        return -errno;
    setvbuf(f, page, _IOFBF, sizeof page);
    if (getdelim(text, &len, 0, f) <= 0) {
        free(*text);
        *text = strdup("");
    }
    fclose(f);
    return *text ? 0 : -ENOMEM;
}

static int text_of_process(pid_t pid, char **text) {
    pid_t *tids = NULL;
    int rc = text_of(pid, pid, text);
    ssize_t n = rc == 0 && !**text ? proc_tids(pid, &tids) : 0;

    /* A main thread that has ended has no memory; the threads that go on still have it. */
    for (ssize_t i = 0; i < n && rc == 0 && !**text; i++) {
        char *other;
        if (text_of(pid, tids[i], &other) < 0)
            continue;
        free(*text);
        *text = other;
    }
    free(tids);
    return rc;
}

int proc_maps_read(pid_t pid, struct proc_maps *out) {
    char *text;
    int rc = text_of_process(pid, &text);

    *out = (struct proc_maps){0};
    if (rc < 0)
        return rc;
    rc = take_lines(text, out);
    free(text);
    return rc;
}

int proc_maps_add(struct proc_maps *maps, const struct proc_map *map) {
    char *path = strdup(map->path);

    if (!path || array_grow(&maps->v, maps->n, sizeof *maps->v) < 0) {
        free(path);
        return -ENOMEM;
    }
    maps->v[maps->n] = *map;
    maps->v[maps->n++].path = path;
    return 0;
}

void proc_maps_free(struct proc_maps *maps) {
    for (size_t i = 0; i < maps->n; i++)
        free(maps->v[i].path);
    free(maps->v);
    *maps = (struct proc_maps){0};
}

const struct proc_map *proc_maps_at(const struct proc_maps *maps, uint64_t addr) {
    size_t at = ARRAY_BEFORE(i, maps->n, maps->v[i].end <= addr);

    return at < maps->n && addr >= maps->v[at].start ? &maps->v[at] : NULL;
}

/* Returns whether a file is mapped with its code, as by the loader. A debugger maps whole files as data, to read their symbols. */
static int has_code(const struct proc_maps *maps, const struct proc_map *first) {
    const struct proc_map *m = first;

    do
        if (m->perms[2] == 'x')
            return 1;
    while (++m < maps->v + maps->n && m->offset != 0 && strcmp(m->path, first->path) == 0);
    return 0;
}

const struct proc_map *proc_maps_library(const struct proc_maps *maps, const char *name) {
    const struct proc_map *data = NULL;
    size_t n = strlen(name);
    int prefix = n > 0 && name[n - 1] == '*';

    for (size_t i = 0; i < maps->n; i++) {
        const struct proc_map *m = &maps->v[i];
        const char *base = strrchr(m->path, '/');

        if (!base || m->offset != 0)
            continue;
        base++;
        if (prefix ? strncmp(base, name, n - 1) != 0 : strcmp(base, name) != 0)
            continue;
        if (has_code(maps, m))
            return m;
        data = data ? data : m;
    }
    return data;
}

int proc_maps_is_copy(const struct proc_maps *maps, const struct proc_map *first) {
    const struct proc_map *library =
        has_code(maps, first) ? first : proc_maps_library(maps, strrchr(first->path, '/') + 1);

    return library != first && has_code(maps, library);
}

int proc_has_mapped(pid_t pid, const char *part) {
    struct proc_map map;
    char *text, *next, *line;
    int rc = text_of_process(pid, &text), found = 0;

    if (rc < 0)
        return rc;
    rc = *text ? 0 : -ESRCH;
    next = text;
    while (!found && rc == 0 && (line = strsep(&next, "\n")) && *line) {
        rc = proc_map_line(line, &map);
        found = rc == 0 && strstr(map.path, part);
    }
    free(text);
    return found ? found : rc;
}

/* Since Linux 6.11 the kernel can be asked for single mappings (linux/fs.h): reading all lines takes a millisecond for a process that has loaded PyTorch. */
struct map_query {
    uint64_t size, flags, addr;
    uint64_t start, end, vma_flags, page_size, offset, inode;
    uint32_t major, minor, name_size, build_id_size;
    uint64_t name, build_id;
};
#define MAP_QUERY        _IOWR('f', 17, struct map_query)
#define MAP_QUERY_SHARED 0x08 /* only shared mappings */
#define MAP_QUERY_NEXT   0x10 /* at the address or the next one */
#define MAP_QUERY_FILE   0x20
#define MADE_FIRST       (64ull << 20) /* bytes */

/* Returns an address below which few of the mappings are that a program makes when it starts; 0: not known. The kernel places the dynamic loader
 * above all that is mapped later, and walks over all mappings between the address that it is asked for and what it finds. */
static uint64_t made_first(pid_t pid) {
    uint64_t auxv[128] = {0};
    ssize_t n = proc_file(pid, pid, "auxv", (char *)auxv, sizeof auxv);

    for (size_t i = 0; n > 0 && i + 1 < sizeof auxv / sizeof *auxv && auxv[i] != AT_NULL; i += 2)
        if (auxv[i] == AT_BASE && auxv[i + 1] > MADE_FIRST)
            return auxv[i + 1] - MADE_FIRST;
    return 0;
}

int proc_has_shared(pid_t pid, const char *part) {
    char path[64], name[PATH_MAX] = "";
    struct map_query q = {.size = sizeof q,
                          .flags = MAP_QUERY_SHARED | MAP_QUERY_NEXT | MAP_QUERY_FILE};
    uint64_t from = made_first(pid), until = UINT64_MAX; /* first these, then those below them */
    int fd, rc = 0, found = 0;

    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    q.addr = from;
    while (fd >= 0 && rc == 0 && !found) {
        q.name = (uintptr_t)name;
        q.name_size = sizeof name;
        rc = ioctl(fd, MAP_QUERY, &q) < 0 ? -errno : q.start >= until ? -ENOENT : 0;
        found = rc == 0 && q.name_size > 0 && q.name_size <= sizeof name && strstr(name, part);
        q.addr = q.end;
        if (rc == -ENOENT && from) {
            q.addr = rc = 0;
            until = from;
            from = 0;
        }
    }
    if (fd >= 0)
        close(fd);
    if (found)
        return 1;
    /* The kernel lacks this ioctl, or the main thread has ended: search the lines instead. */
    return fd >= 0 && rc == -ENOENT ? 0 : proc_has_mapped(pid, part);
}
