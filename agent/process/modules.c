/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/process.h"

#include <stdio.h>

#include "agent/base/known.h"
#include "agent/base/loaded.h"
#include "agent/base/memory.h"
#include "agent/pywalk/image.h"

struct module {
    uint64_t key; /* hash of path, range and inode, which identify a module */
    uint64_t start, end, bias;
    uint64_t seen_at;    /* when it was first seen, ns */
    uint32_t generation; /* number of the last scan that saw it */
    uint32_t written;    /* epoch in which it was written, + 1; 0: not yet */
    size_t build_id_len;
    uint8_t build_id[PYWALK_BUILD_ID];
    char *path;
};

static struct {
    struct module *list;
    size_t n;
    uint32_t generation;
    uint64_t links; /* hash of the loader's list at the last scan */
} ms;

/* Consecutive lines of /proc/thread-self/maps that belong to one file. */
struct group {
    uint64_t start, end, offset, inode;
    char path[4096];
    int exec, any;
};

/* Reads the bias and the build-id from the ELF header in memory. The module may be unloaded meanwhile. */
static void read_elf(struct module *m, uint64_t offset) {
    struct pywalk_mem mem = {memory_read, NULL};
    struct pywalk_elf elf;
    m->bias = m->start - offset;
    if (offset || pywalk_elf_read(mem, m->start, &elf))
        return;
    for (int i = elf.e.e_phnum - 1; i >= 0; i--) /* the first PT_LOAD has the header */
        if (elf.p[i].p_type == PT_LOAD)
            m->bias = m->start - (elf.p[i].p_vaddr - elf.p[i].p_offset);
    m->build_id_len = pywalk_build_id(mem, m->start, m->build_id);
}

static int add_module(const struct group *g, uint64_t key) {
    if (array_grow(&ms.list, ms.n, sizeof *ms.list))
        return -ENOMEM;
    struct module *m = &ms.list[ms.n];
    *m = (struct module){.key = key,
                         .start = g->start,
                         .end = g->end,
                         .seen_at = sys_now(),
                         .generation = ms.generation,
                         .path = strdup(g->path)};
    if (!m->path)
        return -ENOMEM;
    read_elf(m, g->offset);
    ms.n++;
    return 0;
}

static int end_group(struct group *g) {
    int wanted = g->any && g->exec;
    g->any = 0;
    if (!wanted)
        return 0;
    uint64_t key = known_mix(known_text(known_mix(g->start, g->end), g->path), g->inode);
    key += !key;
    for (size_t i = 0; i < ms.n; i++)
        if (ms.list[i].key == key) {
            ms.list[i].generation = ms.generation;
            return 0;
        }
    return add_module(g, key);
}

static int take_line(void *ctx, char *line) {
    struct group *g = ctx;
    struct proc_map m;
    char name[sizeof g->path];
    int err = 0;
    if (proc_map_line(line, &m) || (strcmp(m.path, "[vdso]") && (m.path[0] != '/' || !m.inode)))
        return 0; /* no file: .bss, heap, stack, JIT code; may lie between a file's segments */
    snprintf(name, sizeof name, "%s%s", m.path, m.deleted ? " (deleted)" : "");
    if (g->any &&
        (m.inode != g->inode || m.offset == 0 || m.start < g->end || strcmp(name, g->path)))
        err = end_group(g);
    if (!g->any) {
        *g = (struct group){.start = m.start, .offset = m.offset, .inode = m.inode, .any = 1};
        strcpy(g->path, name);
    }
    g->end = m.end;
    g->exec |= m.perms[2] == 'x';
    return err;
}

void modules_take(struct writer *w) {
    uint64_t links = loaded_fingerprint(NULL);
    uint32_t epoch = __atomic_load_n(&writer_live(w)->epoch, __ATOMIC_RELAXED) + 1;
    size_t kept = 0;
    int err = 0, whole = 1;
    if (!links || links != ms.links) {
        struct group g = {.any = 0};
        ms.links = links;
        ms.generation++;
        whole = !proc_maps_each(take_line, &g) && !end_group(&g);
    }
    /* Write the modules that are new in this epoch, drop those that the last scan did not see. */
    for (struct module *m = ms.list; m < ms.list + ms.n; m++) {
        if (!err && m->written != epoch) {
            err = WRITER_EMIT(w, module, .key = m->key, .path = value_text(m->path),
                              .build_id = value_bytes(m->build_id, m->build_id_len),
                              .start = m->start, .end = m->end, .bias = m->bias, .ts = m->seen_at);
            m->written = err ? m->written : epoch;
        }
        if (!whole) /* the scan was cut short: a module that it did not see may exist */
            m->generation = ms.generation;
        if (m->generation == ms.generation) {
            ms.list[kept++] = *m;
            continue;
        }
        if (!err)
            err = WRITER_EMIT(w, module_unload, .ts = sys_now(), .module = m->key);
        free(m->path);
    }
    ms.n = kept;
}

const char *modules_path(size_t i) {
    return i < ms.n ? ms.list[i].path : NULL;
}

void modules_free(void) {
    for (size_t i = 0; i < ms.n; i++)
        free(ms.list[i].path);
    free(ms.list);
    modules_forget();
}

void modules_forget(void) {
    memset(&ms, 0, sizeof ms);
}
