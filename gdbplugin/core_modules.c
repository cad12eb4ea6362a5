/* SPDX-License-Identifier: Apache-2.0 */
/* Finds on this machine the files that were mapped in the process of a core. */
#include <sys/stat.h>

#include "agent/pywalk/image.h"
#include "core.h"
#include "text.h"
#include "traces/plain_file.h"

int core_read_module(void *module, uint64_t offset, void *buf, size_t n) {
    const struct core_module *m = module;
    size_t have;

    return plain_file_read(m->fd, offset, buf, n, &have) < 0 || have < n ? -EFAULT : 0;
}

/* ---- looking for a file ---- */

/* Without a build-id (the file has none, or the core lacks its page), the ELF header and the program headers must
 * equal those in memory, if the core has them. */
static int same_headers(struct pywalk_mem own, struct core_module *m) {
    struct pywalk_elf here, there;
    int rc = pywalk_elf_read(own, m->start, &here);

    if (rc != 0) /* accept when the core lacks the headers, or memory has no ELF file */
        return rc == -EFAULT || memcmp(here.e.e_ident, ELFMAG, SELFMAG) != 0;
    return pywalk_elf_read((struct pywalk_mem){core_read_module, m}, 0, &there) == 0 &&
           memcmp(&here.e, &there.e, sizeof here.e) == 0 &&
           memcmp(here.p, there.p, here.e.e_phnum * sizeof *here.p) == 0;
}

/* Opens the file if it is the one that was mapped in the process. Returns 1 if it is; 0: it is another; -errno. */
static int try_file(struct core *c, struct core_module *m, const char *path) {
    unsigned char want[PYWALK_BUILD_ID], have[PYWALK_BUILD_ID];
    struct pywalk_mem own = {core_read_own, c};
    struct stat st;
    size_t n, k;
    /* A path from the core is not trusted, so it is checked before it is opened; a path from the user may be anywhere. */
    m->fd = strcmp(path, m->path) == 0 ? plain_file_open(path)
            : stat(path, &st) < 0      ? -errno
            : !S_ISREG(st.st_mode)     ? -ENOENT
                                       : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (m->fd < 0)
        return -ENOENT;
    n = pywalk_build_id(own, m->start, want);
    k = n ? pywalk_build_id((struct pywalk_mem){core_read_module, m}, 0, have) : 0;
    if (n ? n == k && memcmp(want, have, n) == 0 : same_headers(own, m))
        return 1;
    close(m->fd);
    m->fd = -1;
    return 0;
}

static int is_exe(const struct core *c, const struct core_module *m) {
    return c->phdr >= m->start && c->phdr < m->end;
}

static void find_module(struct core *c, struct core_module *m) {
    const char *base = basename(m->path);
    unsigned char id[PYWALK_BUILD_ID];
    struct pywalk_mem own = {core_read_own, c};
    char path[8192];
    int rc = -ENOENT, other = 0;

    if (m->state != MODULE_UNTRIED)
        return;
    m->state = MODULE_ABSENT;
#define TRY(...)                                                                                   \
    do {                                                                                           \
        if (rc != 1 && (snprintf(path, sizeof path, __VA_ARGS__), 1)) {                            \
            rc = try_file(c, m, path);                                                             \
            other |= rc == 0;                                                                      \
        }                                                                                          \
    } while (0)
    if (c->files.exe && is_exe(c, m))
        TRY("%s", c->files.exe);
    if (c->files.sysroot) {
        TRY("%s%s", c->files.sysroot, m->path);
        TRY("%s/%s", c->files.sysroot, base);
    }
    size_t n = pywalk_build_id(own, m->start, id);
    /* If a sysroot was given, use this machine's own file at that path only when a build-id proves that it is the same. */
    if (!c->files.sysroot || n)
        TRY("%s", m->path);
    for (int in = c->files.sysroot ? 0 : 1; n > 2 && in < 2; in++) {
        char hex[2 * PYWALK_BUILD_ID + 1];
        for (size_t i = 1; i < n; i++)
            snprintf(hex + 2 * (i - 1), 3, "%02x", id[i]);
        TRY("%s/usr/lib/debug/.build-id/%02x/%s", in == 0 ? c->files.sysroot : "", id[0], hex);
    }
#undef TRY
    m->state = rc == 1 ? MODULE_HERE : other ? MODULE_OTHER : MODULE_ABSENT;
}

struct core_module *core_module(struct core *c, uint64_t addr) {
    size_t at = ARRAY_BEFORE(i, c->nmodules, c->modules[i].end <= addr);

    if (at == c->nmodules || addr < c->modules[at].start)
        return NULL;
    find_module(c, &c->modules[at]);
    return &c->modules[at];
}

/* Consecutive mappings of one file are one module; a mapping of the file's beginning starts a new module. */
int core_modules(struct core *c) {
    c->modules = calloc(c->maps.n + 1, sizeof *c->modules);
    if (!c->modules)
        return -ENOMEM;
    for (size_t i = 0; i < c->maps.n; i++) {
        const struct proc_map *m = &c->maps.v[i];
        struct core_module *last = c->nmodules ? &c->modules[c->nmodules - 1] : NULL;

        if (last && strcmp(last->path, m->path) == 0 && m->offset != 0) {
            last->end = m->end;
            continue;
        }
        last = &c->modules[c->nmodules];
        last->fd = -1;
        last->path = strdup(m->path);
        if (!last->path)
            return -ENOMEM;
        last->start = m->start;
        last->end = m->end;
        c->nmodules++;
    }
    return 0;
}

/* ---- reporting what is missing ---- */

/* Names the first few modules that are in this state and were needed. */
static void name_some(struct text *t, const struct core *c, int state, const char *what) {
    int n = 0;

    for (size_t i = 0; i < c->nmodules; i++) {
        const struct core_module *m = &c->modules[i];
        /* Of other files (neither the program nor a library) at most the names are of use. */
        if (!m->wanted || (int)m->state != state || (!is_exe(c, m) && !strstr(m->path, ".so")))
            continue;
        if (n == 0)
            text_add(t, "%s%s: ", t->f ? "; " : "", what);
        if (n++ < 4)
            text_add(t, "%s%s", n == 1 ? "" : ", ", basename(m->path));
    }
    if (n > 4)
        text_add(t, " and %d more", n - 4);
    if (n)
        text_add(t, " (--sysroot DIR, --exe FILE)");
}

char *core_missing(struct origin *s) {
    const struct core *c = s->core;
    struct text t = {0};

    if (c->cut)
        text_add(
            &t,
            "the core is cut off: parts of the memory are missing (ulimit -c unlimited, enough space on the disk)");
    name_some(&t, c, MODULE_ABSENT, "not at hand");
    name_some(&t, c, MODULE_OTHER, "another version than the process had");
    return t.f ? text_take(&t) : NULL;
}
