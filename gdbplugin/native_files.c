/* SPDX-License-Identifier: Apache-2.0 */
#include "native_files.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core.h"
#include "image_id.h"
#include "origin.h"
#include "traces/plain_file.h"

#define MAX_IMAGE (512u << 20)

int native_files_process(struct native_files *f, pid_t pid) {
    int rc = proc_maps_read(pid, &f->own);

    f->pid = pid;
    f->maps = &f->own;
    return rc == 0 && f->own.n == 0 ? -ESRCH : rc;
}

int native_files_origin(struct native_files *f, struct origin *s) {
    f->source = s;
    f->pid = s->kind == ORIGIN_RUNNING || s->kind == ORIGIN_STOPPED ? s->reader : 0;
    f->maps = &s->maps;
    return 0;
}

void native_files_free(struct native_files *f) {
    proc_maps_free(&f->own);
    for (size_t i = 0; i < f->nimages; i++)
        free(f->images[i]);
    free(f->images);
    *f = (struct native_files){0};
}

static int get(const struct native_files *f, uint64_t addr, void *buf, size_t n) {
    return f->source ? origin_read(f->source, addr, buf, n) : proc_read(f->pid, addr, buf, n);
}

/* ---- the file as it lies in memory ---- */

static void *keep(struct native_files *f, size_t n) {
    void **v = realloc(f->images, (f->nimages + 1) * sizeof *v), *p;

    if (!v)
        return NULL;
    f->images = v;
    p = calloc(1, n);
    if (p)
        f->images[f->nimages++] = p;
    return p;
}

/* Puts the segments back to where they are in the file. Section headers are not loaded: libdw finds the dynamic symbols and
 * the call frame information by the program headers. */
static Elf *from_memory(struct native_files *f, uint64_t start) {
    Elf64_Phdr p[64];
    Elf64_Ehdr e;
    uint64_t end = 0, base = 0;
    char *image;
    int first = 1;

    if (get(f, start, &e, sizeof e) != 0 || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 ||
        e.e_phentsize != sizeof *p || e.e_phnum > 64 ||
        get(f, start + e.e_phoff, p, e.e_phnum * sizeof *p) != 0)
        return NULL;
    for (unsigned i = 0; i < e.e_phnum; i++) {
        if (p[i].p_type != PT_LOAD)
            continue;
        if (first)
            base = start - (p[i].p_vaddr - p[i].p_offset);
        first = 0;
        if (p[i].p_filesz > MAX_IMAGE || p[i].p_offset > MAX_IMAGE)
            return NULL;
        if (p[i].p_offset + p[i].p_filesz > end)
            end = p[i].p_offset + p[i].p_filesz;
    }
    if (end < sizeof e || !(image = keep(f, end)))
        return NULL;
    for (unsigned i = 0; i < e.e_phnum; i++) {
        if (p[i].p_type == PT_LOAD && p[i].p_filesz &&
            get(f, base + p[i].p_vaddr, image + p[i].p_offset, p[i].p_filesz) != 0)
            return NULL;
    }
    memset(image + offsetof(Elf64_Ehdr, e_shoff), 0, sizeof e.e_shoff);
    memset(image + offsetof(Elf64_Ehdr, e_shnum), 0, sizeof e.e_shnum);
    memset(image + offsetof(Elf64_Ehdr, e_shstrndx), 0, sizeof e.e_shstrndx);
    return elf_memory(image, end);
}

/* ---- the file itself ---- */

static int is_mapped_one(int fd, const struct proc_map *m) {
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (m->inode == 0 || st.st_ino == m->inode);
}

/* Overlay file systems show another inode in the maps than stat() does: the link in map_files settles it. */
static int open_live(const struct native_files *f, const struct proc_map *m) {
    char path[4200];
    int fd;

    snprintf(path, sizeof path, "/proc/%d/map_files/%lx-%lx", f->pid, m->start, m->end);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 || m->deleted)
        return fd;
    snprintf(path, sizeof path, "/proc/%d/root%s", f->pid, m->path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && !is_mapped_one(fd, m)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

struct memory_image {
    const struct native_files *f;
    uint64_t start;
};

static int get_memory(const void *ctx, uint64_t at, void *buf, size_t n) {
    const struct memory_image *im = ctx;

    return get(im->f, im->start + at, buf, n);
}

static int get_file(const void *ctx, uint64_t at, void *buf, size_t n) {
    return pread(*(const int *)ctx, buf, n, (off_t)at) == (ssize_t)n ? 0 : -EFAULT;
}

static int open_given(const struct native_files *f, const struct proc_map *m) {
    unsigned char want[IMAGE_ID_MAX], have[IMAGE_ID_MAX];
    struct memory_image im = {f, m->start};
    int fd = plain_file_open(m->path);
    size_t n;

    if (fd < 0)
        return -1;
    n = image_build_id(get_memory, &im, want);
    if (n == 0 || image_build_id(get_file, &fd, have) != n || memcmp(want, have, n) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int native_files_open(struct native_files *f, uint64_t start, char **name, Elf **elf) {
    const struct proc_map *m = proc_maps_at(f->maps, start);
    int fd = -1;

    if (!m)
        return -1;
    if (m->path[0] == '/') {
        if (f->source && f->source->core) {
            struct core_module *mod = core_module(f->source->core, start);
            if (mod)
                mod->wanted = 1;
            if (mod && mod->bytes)
                fd = open(mod->found, O_RDONLY | O_CLOEXEC);
        } else
            fd = f->pid ? open_live(f, m) : open_given(f, m);
    }
    if (fd < 0)
        *elf = from_memory(f, start);
    if (fd >= 0 || *elf)
        *name = strdup(m->path);
    return fd;
}
