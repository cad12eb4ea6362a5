/* SPDX-License-Identifier: Apache-2.0 */
/* symbols_elf: a file's own symbol table gives the same as libdw; another build and a damaged file are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "converter/symbols.h"
#include "converter/symbols_elf.h"

/* As many symbols as a large library has. */
__asm__(
    ".text\n.altmacro\n.macro many_symbols n\nmany_\\n: nop\n.endm\n.set i, 0\n.rept 5000\nmany_symbols %i\n"
    ".set i, i + 1\n.endr\n.noaltmacro\n");

#define STEP 0x137 /* between addresses that are asked for */

static char dir[] = "/tmp/test_symbols_elf.XXXXXX";

struct library {
    const char *path;
    uint8_t id[64];
    size_t len;
    uint64_t bias, end;
};

static int see(struct dl_phdr_info *info, size_t size, void *arg) {
    struct library *l = arg;

    (void)size;
    if (info->dlpi_addr != l->bias)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        const uint8_t *p = (const uint8_t *)info->dlpi_addr + ph->p_vaddr;
        if (ph->p_type == PT_LOAD && ph->p_vaddr + ph->p_memsz > l->end)
            l->end = ph->p_vaddr + ph->p_memsz;
        for (const uint8_t *end = p + ph->p_memsz; ph->p_type == PT_NOTE && p + 12 <= end;) {
            ElfW(Nhdr) n;
            memcpy(&n, p, sizeof n);
            if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4) {
                l->len = n.n_descsz;
                memcpy(l->id, p + sizeof n + 4, l->len);
            }
            p += sizeof n + (n.n_namesz + 3) / 4 * 4 + (n.n_descsz + 3) / 4 * 4;
        }
    }
    return 1;
}

/* Returns the library that a function is in. */
static struct library library_of(const void *function) {
    struct library l = {0};
    Dl_info info;

    assert_true(dladdr(function, &info) != 0);
    l.path = info.dli_fname;
    l.bias = (uint64_t)info.dli_fbase;
    assert_true(dl_iterate_phdr(see, &l));
    assert_true(l.len > 0);
    return l;
}

/* Returns all the library's names as one text, found by libdw (only this way may ask the network) or without it. keep: the folder in which
 * symbols are cached, or NULL. */
static char *names_of(const struct library *l, int by_libdw, const char *keep) {
    struct symbols *s = symbols_new(by_libdw);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (keep)
        symbols_keep_in(s, keep);
    struct symbols_file *f = symbols_file(s, l->path, l->id, l->len);
    for (uint64_t at = 0; at < l->end + STEP; at += STEP) {
        struct symbol sym;
        assert_int_equal(symbols_lookup(f, at, &sym), 0);
        fprintf(out, "%llx %s %d\n", (unsigned long long)at, sym.name, sym.named);
    }
    fclose(out);
    symbols_free(s);
    return text;
}

static void is_what_libdw_says(void **state) {
    const void *const functions[] = {(const void *)sqlite3_open, (const void *)malloc,
                                     (const void *)ZSTD_compress,
                                     (const void *)_cmocka_run_group_tests};

    (void)state;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        struct library l = library_of(functions[i]);
        char *theirs = names_of(&l, 1, NULL), *mine = names_of(&l, 0, NULL);
        assert_string_equal(mine, theirs);
        free(theirs);
        free(mine);
    }
    struct library l = library_of((const void *)sqlite3_open);
    struct symbols *s = symbols_new(0);
    struct symbol sym;
    assert_int_equal(symbols_lookup(symbols_file(s, l.path, l.id, l.len),
                                    (uint64_t)(uintptr_t)sqlite3_open - l.bias, &sym),
                     0);
    assert_string_equal(sym.name, "sqlite3_open");
    symbols_free(s);
}

static void write_file(const char *name, const void *p, size_t n) {
    FILE *f = fopen(name, "w");

    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void copy(const char *from, const char *to, size_t least) {
    static char bytes[64 << 20];
    FILE *f = fopen(from, "r");
    size_t n = fread(bytes, 1, sizeof bytes, f);

    fclose(f);
    assert_true(n > least && n < sizeof bytes);
    write_file(to, bytes, n);
}

/* A file of another build, or one whose headers point anywhere, is refused, or left to libdw if that can read it. */
static void another_and_damaged(void **state) {
    struct library l = library_of((const void *)ZSTD_compress);
    char name[64];
    struct symbols_elf e;

    (void)state;
    snprintf(name, sizeof name, "%s/copy.so", dir);
    copy(l.path, name, 4096);
    assert_int_equal(symbols_elf_open(&e, name, l.id, l.len, 0), 0);
    assert_true(e.nsyms > 100 && e.starts.n > 100);
    for (size_t i = 1; i < e.nsyms; i++)
        assert_true(e.syms[i - 1].start < e.syms[i].start);
    symbols_elf_close(&e);
    l.id[0] ^= 1;
    assert_true(symbols_elf_open(&e, name, l.id, l.len, 0) < 0);
    assert_true(symbols_elf_open(&e, name, l.id, 0, 0) < 0);
    l.id[0] ^= 1;
    assert_true(symbols_elf_open(&e, "/none", l.id, l.len, 0) < 0);

    struct stat st;
    assert_int_equal(stat(name, &st), 0);
    size_t size = (size_t)st.st_size;
    for (size_t at = 0; at < 64 + 10 * 56; at++) { /* each byte of its head and segments */
        copy(l.path, name, 4096);
        FILE *f = fopen(name, "r+");
        fseek(f, (long)at, SEEK_SET);
        int c = fgetc(f);
        fseek(f, (long)at, SEEK_SET);
        fputc(c ^ 0xff, f);
        fclose(f);
        if (symbols_elf_open(&e, name, l.id, l.len, 0) == 0)
            symbols_elf_close(&e);
    }
    copy(l.path, name, 4096);
    for (size_t n = size - 1; n > 64; n = n * 3 / 4) {
        assert_int_equal(truncate(name, (off_t)n), 0);
        assert_true(symbols_elf_open(&e, name, l.id, l.len, 0) <
                    0); /* its sections lie at its end */
    }
    unlink(name);
}

static size_t count_kept(const char *folder, char *name, size_t n) {
    glob_t found = {0};

    snprintf(name, n, "%s/*.sym", folder);
    glob(name, 0, NULL, &found);
    size_t count = found.gl_pathc;
    if (count)
        snprintf(name, n, "%s", found.gl_pathv[0]);
    globfree(&found);
    return count;
}

/* Of many symbols the sorted order is cached, with the names left in the ELF file; few symbols are read each time. A cache file that is not ours, or
 * belongs to another ELF file, is not used. */
static void kept(void **state) {
    char folder[64], name[256], self[64];
    struct stat st, now;

    (void)state;
    snprintf(folder, sizeof folder, "%s/kept", dir);
    assert_int_equal(mkdir(folder, 0700), 0);
    struct library few = library_of((const void *)ZSTD_compress);
    free(names_of(&few, 0, folder));
    assert_int_equal(count_kept(folder, name, sizeof name), 0);
    /* A copy of this program, under a name for which nobody asks for source lines (traces/inlined.h). */
    struct library l = library_of((const void *)(uintptr_t)library_of);
    snprintf(self, sizeof self, "%s/libm-2.so", dir);
    copy("/proc/self/exe", self, 4096);
    l.path = self;
    char *plain = names_of(&l, 1, NULL), *first = names_of(&l, 0, folder), *next;
    assert_string_equal(first, plain);
    assert_int_equal(count_kept(folder, name, sizeof name), 1);
    assert_int_equal(stat(name, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_string_equal(next = names_of(&l, 0, folder), plain);
    free(next);
    assert_int_equal(stat(name, &now), 0);
    assert_int_equal(now.st_ino, st.st_ino); /* and it was not made again */
    /* The size of the names (the sixth word), their place in the file and the place of the starts are used only if they are possible. */
    for (size_t word = 5; word < 8; word++) {
        FILE *k = fopen(name, "r+");
        const uint64_t wrong = UINT64_MAX / 2;
        fseek(k, (long)word * 8, SEEK_SET);
        fwrite(&wrong, sizeof wrong, 1, k);
        fclose(k);
        assert_string_equal(next = names_of(&l, 0, folder), plain);
        free(next);
        assert_int_equal(count_kept(folder, name, sizeof name), 1);
    }
    assert_int_equal(chmod(name, 0666), 0); /* anybody may have written it */
    assert_string_equal(next = names_of(&l, 0, folder), plain);
    free(next);
    assert_int_equal(stat(name, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    if (geteuid() == 0) { /* another user's: made anew, ours */
        assert_int_equal(chown(name, 65534, 65534), 0);
        assert_string_equal(next = names_of(&l, 0, folder), plain);
        free(next);
        assert_int_equal(stat(name, &st), 0);
        assert_int_equal(st.st_uid, 0);
    }
    free(plain);
    free(first);
}

static int setup(void **state) {
    (void)state;
    setenv("DEBUGINFOD_URLS", "", 1); /* nobody is asked */
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state) {
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_what_libdw_says),
        cmocka_unit_test(another_and_damaged),
        cmocka_unit_test(kept),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
