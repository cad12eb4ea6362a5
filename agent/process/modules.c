/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/modules.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/known.h"
#include "agent/base/values.h"
#include "agent/pywalk/pywalk.h"

#define MAX_LINKS    20000
#define MAX_BUILD_ID 32
#define MAX_PHDRS    64
#define MAX_NOTES    4096

struct module {
    uint64_t key; /* of path, range and device: what tells two modules apart */
    uint64_t start, end, bias;
    uint64_t seen_at;    /* ns */
    uint32_t generation; /* of the last scan that saw it */
    uint32_t written;    /* epoch + 1 in which it was written, 0 = not yet */
    unsigned build_id_len;
    uint8_t build_id[MAX_BUILD_ID];
    char *path;
};

struct modules {
    struct module *list;
    size_t n, room;
    uint32_t generation;
    uint64_t links; /* hash of the loader's list at the last scan */
};

/* Consecutive lines of /proc/self/maps that belong to one file. */
struct group {
    uint64_t start, end, offset, inode;
    char dev[16];
    char path[4096];
    int exec, any;
};

static int read_self(uint64_t addr, void *buf, size_t n) {
    return pywalk_read_process((void *)(intptr_t)getpid(), addr, buf, n);
}

/* The loader's list as one number. 0 when it cannot be read. */
static uint64_t hash_links(void) {
    struct link_map m;
    uint64_t h = 1, at = (uint64_t)(uintptr_t)__atomic_load_n(&_r_debug.r_map, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; at && i < MAX_LINKS; i++) {
        if (read_self(at, &m, sizeof m))
            return 0;
        h = known_mix(h, at);
        h = known_mix(h, m.l_addr);
        h = known_mix(h, (uint64_t)(uintptr_t)m.l_ld);
        at = (uint64_t)(uintptr_t)m.l_next;
    }
    return h ? h : 1;
}

static uint64_t hash_text(uint64_t h, const char *s) {
    for (; *s; s++)
        h = known_mix(h, (uint8_t)*s);
    return h;
}

static void find_build_id(struct module *m, uint64_t addr, uint64_t size) {
    uint8_t notes[MAX_NOTES];
    if (size > sizeof notes || read_self(addr, notes, (size_t)size))
        return;
    for (uint64_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
        ElfW(Nhdr) n;
        memcpy(&n, notes + at, sizeof n);
        uint64_t name = at + sizeof n, desc = name + (((uint64_t)n.n_namesz + 3) & ~3ull);
        uint64_t next = desc + (((uint64_t)n.n_descsz + 3) & ~3ull);
        if (next > size || next <= at)
            return;
        if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && !memcmp(notes + name, "GNU", 4) &&
            n.n_descsz <= MAX_BUILD_ID) {
            memcpy(m->build_id, notes + desc, n.n_descsz);
            m->build_id_len = n.n_descsz;
            return;
        }
        at = next;
    }
}

/* What the ELF header in memory says: bias and build-id. The module may go away while we read. */
static void read_elf(struct module *m, uint64_t offset) {
    ElfW(Ehdr) eh;
    ElfW(Phdr) ph[MAX_PHDRS];
    m->bias = m->start - offset;
    if (offset || read_self(m->start, &eh, sizeof eh) || memcmp(eh.e_ident, ELFMAG, SELFMAG) ||
        eh.e_phentsize != sizeof ph[0] || !eh.e_phnum || eh.e_phnum > MAX_PHDRS ||
        read_self(m->start + eh.e_phoff, ph, eh.e_phnum * sizeof ph[0]))
        return;
    for (unsigned i = 0; i < eh.e_phnum; i++)
        if (ph[i].p_type == PT_LOAD) { /* the first one, which holds the header */
            m->bias = m->start - (ph[i].p_vaddr - ph[i].p_offset);
            break;
        }
    for (unsigned i = 0; i < eh.e_phnum && !m->build_id_len; i++)
        if (ph[i].p_type == PT_NOTE)
            find_build_id(m, m->bias + ph[i].p_vaddr, ph[i].p_filesz);
}

static int add_module(struct modules *ms, const struct group *g, uint64_t key) {
    if (ms->n == ms->room) {
        size_t room = ms->room ? ms->room * 2 : 64;
        struct module *list = realloc(ms->list, room * sizeof *list);
        if (!list)
            return -ENOMEM;
        ms->list = list;
        ms->room = room;
    }
    struct module *m = &ms->list[ms->n];
    *m = (struct module){.key = key,
                         .start = g->start,
                         .end = g->end,
                         .seen_at = values_now(),
                         .generation = ms->generation,
                         .path = strdup(g->path)};
    if (!m->path)
        return -ENOMEM;
    read_elf(m, g->offset);
    ms->n++;
    return 0;
}

static int end_group(struct modules *ms, struct group *g) {
    int wanted = g->any && g->exec;
    g->any = 0;
    if (!wanted)
        return 0;
    uint64_t key = hash_text(hash_text(known_mix(g->start, g->end), g->path), g->dev);
    key = known_mix(key, g->inode);
    key += !key;
    for (size_t i = 0; i < ms->n; i++)
        if (ms->list[i].key == key) {
            ms->list[i].generation = ms->generation;
            return 0;
        }
    return add_module(ms, g, key);
}

/* "start-end perms offset dev inode    path" */
static int take_line(struct modules *ms, struct group *g, const char *line) {
    uint64_t start, end, offset, inode;
    char perms[8], dev[16];
    int path = 0, err = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %15s %" SCNu64 " %n", &start, &end,
               perms, &offset, dev, &inode, &path) != 6 ||
        !path)
        return 0;
    const char *name = line + path;
    int vdso = !strcmp(name, "[vdso]");
    if (!vdso && (name[0] != '/' || !inode))
        return 0; /* .bss, heap, stack, JIT code: no file; it may lie between a file's segments */
    if (g->any && (inode != g->inode || strcmp(dev, g->dev) || offset == 0 || start < g->end ||
                   strcmp(name, g->path)))
        err = end_group(ms, g);
    if (!g->any) {
        g->any = 1;
        g->exec = 0;
        g->start = start;
        g->offset = offset;
        g->inode = inode;
        strcpy(g->dev, dev);
        snprintf(g->path, sizeof g->path, "%s", name);
    }
    g->end = end;
    g->exec |= perms[2] == 'x';
    return err;
}

static int scan_maps(struct modules *ms) {
    struct group g = {0};
    char buf[8192 + 1];
    size_t have = 0;
    int err = 0, fd = open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ms->generation++;
    while (!err) {
        ssize_t r = read(fd, buf + have, sizeof buf - 1 - have);
        if (r <= 0)
            break;
        have += (size_t)r;
        buf[have] = 0;
        char *line = buf, *nl;
        while (!err && (nl = strchr(line, '\n'))) {
            *nl = 0;
            err = take_line(ms, &g, line);
            line = nl + 1;
        }
        have -= (size_t)(line - buf);
        memmove(buf, line, have);
        if (have == sizeof buf - 1) /* a line longer than any path: skip it */
            have = 0;
    }
    if (!err)
        err = end_group(ms, &g);
    close(fd);
    return err;
}

static int write_module(struct writer *w, struct module *m) {
    const struct writer_value v[TRACE_module_NFIELDS] = {
        [TRACE_module_key] = value_u(m->key),
        [TRACE_module_path] = value_text(m->path),
        [TRACE_module_build_id] = value_bytes(m->build_id, m->build_id_len),
        [TRACE_module_start] = value_u(m->start),
        [TRACE_module_end] = value_u(m->end),
        [TRACE_module_bias] = value_u(m->bias),
        [TRACE_module_ts] = value_u(m->seen_at),
    };
    return writer_emit(w, TRACE_module, v);
}

static int write_unload(struct writer *w, const struct module *m) {
    const struct writer_value v[TRACE_module_unload_NFIELDS] = {
        [TRACE_module_unload_ts] = value_u(values_now()),
        [TRACE_module_unload_module] = value_u(m->key),
    };
    return writer_emit(w, TRACE_module_unload, v);
}

/* Writes what is new in this epoch, drops what the last scan did not see. */
static int write_changes(struct modules *ms, struct writer *w) {
    uint32_t epoch = __atomic_load_n(&writer_live(w)->epoch, __ATOMIC_RELAXED) + 1;
    int err = 0;
    size_t kept = 0;
    for (size_t i = 0; i < ms->n; i++) {
        struct module *m = &ms->list[i];
        if (!err && m->written != epoch && !(err = write_module(w, m)))
            m->written = epoch;
        if (m->generation == ms->generation) {
            ms->list[kept++] = *m;
            continue;
        }
        if (!err)
            err = write_unload(w, m);
        free(m->path);
    }
    ms->n = kept;
    return err;
}

int modules_new(struct modules **out) {
    *out = calloc(1, sizeof **out);
    return *out ? 0 : -ENOMEM;
}

int modules_take(struct modules *ms, struct writer *w, int force) {
    uint64_t links = hash_links();
    int err = 0;
    if (force || !links || links != ms->links) {
        ms->links = links;
        err = scan_maps(ms);
        for (size_t i = 0; err && i < ms->n; i++) /* not seen, because the scan broke off */
            ms->list[i].generation = ms->generation;
    }
    int written = write_changes(ms, w);
    return err ? err : written;
}

void modules_free(struct modules *ms) {
    if (!ms)
        return;
    for (size_t i = 0; i < ms->n; i++)
        free(ms->list[i].path);
    free(ms->list);
    free(ms);
}
