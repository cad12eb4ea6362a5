/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols_kept.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../traces/hash.h"
#include "../traces/plain_file.h"

#define MAGIC     "PRBSYMS3"
#define MOST      (256u << 20) /* bytes; no library has that many names */
#define HAS_LINES 1
#define BUFFER    (256 << 10) /* size of the write buffer */

/* Header of the file. It is followed by the symbols, the function starts, and the names, each with a NUL, unless the last two lie (at
 * starts_at, names_at) in the ELF file. */
struct head {
    char magic[8];
    uint64_t key[2], nsyms, nstarts, names, names_at, starts_at, starts_base, flags;
};

static uint64_t mix(uint64_t h, const void *p, size_t n) {
    return hash_spread(hash_bytes(h, p, n));
}

static uint64_t mix_file(uint64_t h, const struct stat *st) {
    const uint64_t facts[] = {
        st->st_dev,
        st->st_ino,
        (uint64_t)st->st_size,
        (uint64_t)st->st_mtim.tv_sec,
        (uint64_t)st->st_mtim.tv_nsec,
        (uint64_t)st->st_ctim.tv_sec,
        (uint64_t)st->st_ctim.tv_nsec,
    };

    return mix(h, facts, sizeof facts);
}

/* Makes the key from the present state of the ELF file, and of the places where its debug file may be (symbols.c). Returns 0 or -errno. */
static int key_of(uint64_t key[2], const char *path, const uint8_t *build_id, size_t len) {
    char debug[4096];
    struct stat st;
    size_t n = 0;

    if (*path != '/' || stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return -ENOENT;
    uint64_t h = mix_file(mix(HASH_START, path, strlen(path)), &st);
    if (len)
        h = mix(h, build_id, len);
    if (len > 1 && len <= 64) {
        n = (size_t)snprintf(debug, sizeof debug, "/usr/lib/debug/.build-id/%02x/", build_id[0]);
        for (size_t i = 1; i < len; i++)
            n += (size_t)snprintf(debug + n, sizeof debug - n, "%02x", build_id[i]);
        snprintf(debug + n, sizeof debug - n, ".debug");
        h = stat(debug, &st) == 0 ? mix_file(h, &st) : mix(h, "-", 1);
    }
    /* A file named by a debuglink is in one of these folders, whose times change when a file is added or removed. */
    static const char *const before[] = {"", "", "/usr/lib/debug"}, *const after[] = {"", "/.debug",
                                                                                      ""};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        const char *base = strrchr(path, '/');
        if (snprintf(debug, sizeof debug, "%s%.*s%s", before[i], (int)(base - path), path,
                     after[i]) >= (int)sizeof debug)
            return -ENAMETOOLONG;
        h = stat(debug, &st) == 0 ? mix_file(h, &st) : mix(h, "-", 1);
    }
    key[0] = h;
    key[1] = mix(h ^ 0x9e3779b97f4a7c15u, path, strlen(path));
    return 0;
}

static int name_of(char *name, size_t size, const char *dir, const uint64_t key[2]) {
    int n = snprintf(name, size, "%s/%016llx-%016llx.sym", dir, (unsigned long long)key[0],
                     (unsigned long long)key[1]);

    return n < (int)size ? 0 : -ENAMETOOLONG;
}

/* Maps the ELF file for the names and starts that lie in it; key_of() has shown that it is still the same file. Returns 0 or -errno. */
static int take_names(struct symbols_kept *k, const char *path) {
    int fd = plain_file_open(path), err = -EINVAL;
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && k->names_at <= (uint64_t)st.st_size &&
        k->names_size <= (uint64_t)st.st_size - k->names_at &&
        k->starts_at <= (uint64_t)st.st_size &&
        k->starts.n <= ((uint64_t)st.st_size - k->starts_at) / EH_TABLE_ENTRY) {
        void *elf = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (elf != MAP_FAILED) {
            k->elf = elf;
            k->elf_size = (size_t)st.st_size;
            k->names = (const char *)elf + k->names_at;
            k->starts.entries = (const uint8_t *)elf + k->starts_at;
            err = k->names[k->names_size - 1] ? -EINVAL : 0;
        }
    }
    if (fd >= 0)
        close(fd);
    return err;
}

/* Takes the contents of a file, after checking that what it says lies within its n bytes. Returns 0 or -errno. */
static int take(struct symbols_kept *k, const uint8_t *p, size_t n, const uint64_t key[2],
                const char *path) {
    const struct head *h = (const struct head *)p;

    if (n < sizeof *h || memcmp(h->magic, MAGIC, sizeof h->magic) != 0 || h->key[0] != key[0] ||
        h->key[1] != key[1] || h->nsyms > MOST / sizeof *k->syms ||
        h->nstarts > MOST / EH_TABLE_ENTRY || (h->names > MOST && !h->names_at) || !h->names ||
        sizeof *h + h->nsyms * sizeof *k->syms +
                (h->names_at ? 0 : h->nstarts * EH_TABLE_ENTRY + h->names) !=
            n)
        return -EINVAL;
    k->syms = (const struct symbols_sym *)(p + sizeof *h);
    k->nsyms = h->nsyms;
    k->starts =
        (struct eh_table){(const uint8_t *)(k->syms + k->nsyms), h->nstarts, h->starts_base};
    k->starts_at = h->starts_at;
    k->names = (const char *)(k->starts.entries + k->starts.n * EH_TABLE_ENTRY);
    k->names_size = h->names;
    k->names_at = h->names_at;
    k->has_lines = h->flags & HAS_LINES;
    /* the others are checked when they are looked up */
    if (k->nsyms && (k->syms[0].name >= h->names || k->syms[k->nsyms - 1].name >= h->names))
        return -EINVAL;
    return k->names_at ? take_names(k, path) : p[n - 1] ? -EINVAL : 0;
}

int symbols_kept_open(struct symbols_kept *k, const char *dir, const char *path,
                      const uint8_t *build_id, size_t len) {
    char name[4200];
    uint64_t key[2];
    struct stat st;
    int fd, err = key_of(key, path, build_id, len);

    *k = (struct symbols_kept){0};
    if (err || (err = name_of(name, sizeof name, dir, key)) != 0)
        return err;
    fd = open(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077 ||
        st.st_size <= 0 || st.st_size > MOST) {
        close(fd);
        return -EPERM;
    }
    k->size = (size_t)st.st_size;
    k->map = mmap(NULL, k->size, PROT_READ, MAP_PRIVATE, fd, 0);
    err = k->map == MAP_FAILED ? -errno : take(k, k->map, k->size, key, path);
    if (!err)
        futimens(fd, NULL); /* the least recently used files are deleted first */
    close(fd);
    if (k->map == MAP_FAILED)
        k->map = NULL;
    if (err)
        symbols_kept_close(k);
    return err;
}

void symbols_kept_end(struct symbols_sym *v, size_t n) {
    for (size_t i = 0; i < n; i++) /* functions in hand-written assembly have no size */
        if (v[i].size == 0) {
            uint64_t left = i + 1 < n ? v[i + 1].start - v[i].start : 4096;
            v[i].size = left < UINT32_MAX ? (uint32_t)left : UINT32_MAX;
        }
}

static int by_start(const void *x, const void *y) {
    const struct symbols_told *a = x, *b = y;

    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank > b->rank ? -1 : 1;
    return a->size > b->size ? -1 : a->size < b->size;
}

void symbols_kept_make(struct symbols_kept *k, struct symbols_told *v, size_t n) {
    size_t left = 0, bytes = 1;

    *k = (struct symbols_kept){.names = "", .names_size = 1};
    if (n)
        qsort(v, n, sizeof *v, by_start);
    for (size_t i = 0; i < n; i++)
        if (left == 0 || v[i].start != v[left - 1].start)
            v[left++] = v[i];
    for (size_t i = 0; i < left; i++)
        bytes += strlen(v[i].name) + 1;
    struct symbols_sym *syms = bytes < UINT32_MAX ? malloc(left * sizeof *syms + bytes) : NULL;
    if (!syms)
        return;
    char *names = (char *)(syms + left), *p = names;
    for (size_t i = 0; i < left; i++, p += strlen(p) + 1) {
        uint32_t size = v[i].size < UINT32_MAX ? (uint32_t)v[i].size : UINT32_MAX;
        syms[i] = (struct symbols_sym){v[i].start, size, (uint32_t)(p - names)};
        strcpy(p, v[i].name);
    }
    *p = '\0';
    symbols_kept_end(syms, left);
    *k = (struct symbols_kept){
        .syms = syms, .nsyms = left, .names = names, .names_size = bytes, .made = syms};
}

void symbols_kept_close(struct symbols_kept *k) {
    free(k->made);
    if (k->map)
        munmap(k->map, k->size);
    if (k->elf)
        munmap(k->elf, k->elf_size);
    *k = (struct symbols_kept){0};
}

void symbols_kept_write(const char *dir, const char *path, const uint8_t *build_id, size_t len,
                        const struct symbols_kept *k) {
    struct head h = {.magic = MAGIC,
                     .nsyms = k->nsyms,
                     .nstarts = k->starts.n,
                     .starts_at = k->starts_at,
                     .starts_base = k->starts.base,
                     .names = k->names_size,
                     .names_at = k->names_at,
                     .flags = k->has_lines ? HAS_LINES : 0};
    char name[4200], temp[4220];
    int err = key_of(h.key, path, build_id, len);
    FILE *f = NULL;

    if (err || name_of(name, sizeof name, dir, h.key) != 0)
        return;
    snprintf(temp, sizeof temp, "%s.tmp-XXXXXX", name);
    int fd = mkostemp(temp, O_CLOEXEC); /* mode 0600 */
    if (fd < 0)
        return;
    if (!(f = fdopen(fd, "w"))) {
        unlink(temp);
        close(fd);
        return;
    }
    setvbuf(f, NULL, _IOFBF, BUFFER);
    fwrite(&h, sizeof h, 1, f);
    fwrite(k->syms, sizeof *k->syms, k->nsyms, f);
    if (!k->names_at) {
        if (k->starts.n)
            fwrite(k->starts.entries, EH_TABLE_ENTRY, k->starts.n, f);
        fwrite(k->names, 1, k->names_size, f);
    }
    err = ferror(f);
    if (fclose(f) != 0 || err || rename(temp, name) != 0)
        unlink(temp);
}
