/* SPDX-License-Identifier: Apache-2.0 */
/* symbols, modules, resolve: native addresses of this program get their names, addresses of another build do not, and Python frames are put in
 * the place of eval frames. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "converter/convert.h"
#include "converter/cut_short.h"
#include "converter/symbols.h"
#include "converter/vtab.h"
#include "synthetic.h"

static char dir[] = "/tmp/test_symbols.XXXXXX", self[512];
static uint64_t bias, start, end; /* of this program */
static uint8_t build_id[64];
static size_t build_id_len;

__attribute__((noinline)) int symbols_test_leaf(int x) {
    return x * 3 + 1;
}
__attribute__((noinline)) int symbols_test_glue(int x) {
    return x * 5 + 2;
}
/* stands for the eval loop, known by its range of addresses */
__attribute__((noinline)) int symbols_test_loop(int x) {
    return x * 7 + 3;
}
/* and known by its name, with a suffix as compilers add */
__attribute__((noinline)) int symbols_test_cold(int x) __asm__("_PyEval_EvalFrameDefault.cold.1");
int symbols_test_cold(int x) {
    return x * 11 + 4;
}
int symbols_test_cxx(int x) __asm__("_ZN2at6native3addERKNS_6TensorE");
int symbols_test_cxx(int x) {
    return x * 13 + 5;
}

/* one function in another, twice deep */
static inline __attribute__((always_inline)) int symbols_test_inner(volatile int *x) {
    return *x * 17 + 6;
}
static inline __attribute__((always_inline)) int symbols_test_outer(volatile int *x) {
    *x = 19;
    return symbols_test_inner(x) + 1;
}
enum { CALL_LINE = __LINE__ + 4 };
__attribute__((noinline)) int symbols_test_host(int x);
int symbols_test_host(int x) {
    volatile int y = x;
    return symbols_test_outer(&y);
}

static int see_self(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size, (void)arg;
    bias = info->dlpi_addr;
    start = UINT64_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && p->p_flags & PF_X) {
            start = bias + p->p_vaddr < start ? bias + p->p_vaddr : start;
            end = bias + p->p_vaddr + p->p_memsz > end ? bias + p->p_vaddr + p->p_memsz : end;
        }
        if (p->p_type != PT_NOTE)
            continue;
        const char *n = (const char *)(bias + p->p_vaddr), *stop = n + p->p_memsz;
        while (n + sizeof(ElfW(Nhdr)) <= stop) {
            const ElfW(Nhdr) *h = (const void *)n;
            const char *desc = n + sizeof *h + ((h->n_namesz + 3) & ~3u);
            if (h->n_type == NT_GNU_BUILD_ID && h->n_descsz <= sizeof build_id &&
                memcmp(n + sizeof *h, "GNU", 4) == 0) {
                build_id_len = h->n_descsz;
                memcpy(build_id, desc, h->n_descsz);
            }
            n = desc + ((h->n_descsz + 3) & ~3u);
        }
    }
    return 1; /* the first is the program */
}

static int setup(void **state) {
    (void)state;
    dl_iterate_phdr(see_self, NULL);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    return n > 0 && mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state) {
    char cmd[64];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static uint64_t at(int (*fn)(int)) {
    return (uint64_t)(uintptr_t)fn;
}

static void names(void **state) {
    struct symbols *s = symbols_new(0);
    struct symbols_file *f = symbols_file(s, self, build_id, build_id_len);
    struct symbol sym;
    char want[64];

    (void)state;
    assert_true(build_id_len >= 8);
    assert_ptr_equal(f, symbols_file(s, self, build_id, build_id_len));
    assert_int_equal(symbols_file_state(f), -1);
    assert_int_equal(symbols_lookup(f, at(symbols_test_leaf) - bias + 1, &sym), 0);
    assert_int_equal(symbols_file_state(f), 1);
    assert_string_equal(sym.name, "symbols_test_leaf");
    assert_false(sym.eval);
    assert_non_null(strstr(sym.source, "test_symbols.c")); /* built with -g */
    assert_true(sym.line > 20 && sym.line < 60);
    assert_int_equal(symbols_lookup(f, at(symbols_test_cold) - bias, &sym), 0);
    assert_true(sym.eval);
    assert_int_equal(symbols_lookup(f, at(symbols_test_cxx) - bias, &sym), 0);
    assert_string_equal(sym.name, "at::native::add(at::Tensor const&)");
    /* no symbol there, and no function */
    assert_int_equal(symbols_lookup(f, 1, &sym), 0);
    assert_string_equal(sym.name, "test_symbols+0x1");
    assert_null(sym.source);

    /* stripped of its names: all addresses of a function are one, and not another's */
    char bare[600], cmd[4096], first[64];
    snprintf(bare, sizeof bare, "%s/bare", dir);
    snprintf(cmd, sizeof cmd, "strip -o '%s' '%s'", bare, self);
    if (system(cmd) == 0) {
        f = symbols_file(s, bare, build_id, build_id_len);
        assert_int_equal(symbols_lookup(f, at(symbols_test_leaf) - bias, &sym), 0);
        assert_int_equal(symbols_file_state(f), 1);
        snprintf(want, sizeof want, "bare+0x%llx",
                 (unsigned long long)(at(symbols_test_leaf) - bias));
        assert_string_equal(sym.name, want);
        snprintf(first, sizeof first, "%s", sym.name);
        assert_int_equal(symbols_lookup(f, at(symbols_test_leaf) - bias + 3, &sym), 0);
        assert_string_equal(sym.name, first);
        assert_int_equal(symbols_lookup(f, at(symbols_test_glue) - bias + 3, &sym), 0);
        assert_string_not_equal(sym.name, first);
        /* Nothing was found, and the network was not asked: loading its library, with some thirty others, takes longer than looking. */
        assert_null(dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_NOLOAD));
    }

    /* stripped into another file, which it names and which lies beside it, or below */
    static const char *const where[] = {".", ".debug"};
    for (int i = 0; i < 2; i++) {
        snprintf(bare, sizeof bare, "%s/linked%d", dir, i);
        snprintf(
            cmd, sizeof cmd,
            "cd %s && mkdir -p %s && objcopy --only-keep-debug '%s' %s/of%d.dbg && strip -o '%s' "
            "'%s' && (cd %s && objcopy --add-gnu-debuglink=of%d.dbg '%s')",
            dir, where[i], self, where[i], i, bare, self, where[i], i, bare);
        if (system(cmd) != 0)
            continue;
        f = symbols_file(s, bare, build_id, build_id_len);
        assert_int_equal(symbols_lookup(f, at(symbols_test_leaf) - bias + 1, &sym), 0);
        assert_string_equal(sym.name, "symbols_test_leaf");
        assert_non_null(strstr(sym.source, "test_symbols.c"));
    }

    /* another build, another file, no file: offsets, not wrong names */
    uint8_t other[64];
    memcpy(other, build_id, sizeof other);
    other[3] ^= 1;
    const char *const paths[] = {self, "/nowhere/libfoo.so", "/dev/zero", "[vdso]", dir};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const char *base = strrchr(paths[i], '/');
        f = symbols_file(s, paths[i], other, build_id_len);
        assert_int_equal(symbols_lookup(f, at(symbols_test_leaf) - bias, &sym), 0);
        snprintf(want, sizeof want, "%s+0x%llx", base ? base + 1 : paths[i],
                 (unsigned long long)(at(symbols_test_leaf) - bias));
        assert_string_equal(sym.name, want);
        assert_int_equal(symbols_file_state(f), 0);
    }
    symbols_free(s);
}

/* Functions that the compiler inlined, innermost first, each at the line at which the one before is called. */
static void inlined(void **state) {
    struct symbols *s = symbols_new(0);
    struct symbols_file *f = symbols_file(s, self, build_id, build_id_len);
    struct symbol sym;
    int deep = 0, plain = 0;

    (void)state;
    /* Searches up to the function's end, which is further away if a sanitizer added code to it. */
    for (uint64_t i = 0; i < 1024; i++) {
        assert_int_equal(symbols_lookup(f, at(symbols_test_host) - bias + i, &sym), 0);
        if (!sym.into) {
            if (strcmp(sym.name, "symbols_test_host") != 0)
                break;
            plain++;
        } else if (sym.into->into) {
            assert_string_equal(sym.name, "symbols_test_inner");
            assert_string_equal(sym.into->name, "symbols_test_outer");
            assert_string_equal(sym.into->into->name, "symbols_test_host");
            assert_int_equal(sym.into->into->line, CALL_LINE);
            assert_true(sym.line < sym.into->line && sym.into->line < CALL_LINE);
            assert_non_null(strstr(sym.into->into->source, "test_symbols.c"));
            assert_null(sym.into->into->into);
            deep++;
        }
    }
    assert_true(deep && plain);
    symbols_free(s);
}

static void emit_module(struct writer *w, uint64_t key, const char *path, uint64_t id_bit,
                        uint64_t from, uint64_t to, uint64_t ts) {
    uint8_t id[64];
    struct writer_value v[TRACE_module_NFIELDS] = {{.u = 0}};
    memcpy(id, build_id, sizeof id);
    id[0] ^= (uint8_t)id_bit;
    v[TRACE_module_key] = synthetic_u(key);
    v[TRACE_module_path] = synthetic_s(path);
    v[TRACE_module_build_id] = (struct writer_value){.p = id, .n = build_id_len};
    v[TRACE_module_start] = synthetic_u(from);
    v[TRACE_module_end] = synthetic_u(to);
    v[TRACE_module_bias] = synthetic_u(bias);
    v[TRACE_module_ts] = synthetic_u(ts);
    assert_int_equal(writer_emit(w, TRACE_module, v), 0);
}

static void emit_frame(struct writer *w, uint64_t key, const char *name, unsigned line) {
    struct writer_value v[TRACE_frame_NFIELDS] = {{.u = 0}};
    v[TRACE_frame_key] = synthetic_u(key);
    v[TRACE_frame_name] = synthetic_s(name);
    v[TRACE_frame_file] = synthetic_s("train.py");
    v[TRACE_frame_firstline] = synthetic_u(line - 1);
    v[TRACE_frame_line] = synthetic_u(line);
    assert_int_equal(writer_emit(w, TRACE_frame, v), 0);
}

static void emit_sample(struct writer *w, uint64_t ts, uint64_t stack, uint64_t pc) {
    struct writer_value v[TRACE_sample_NFIELDS] = {{.u = 0}};
    v[TRACE_sample_ts] = synthetic_u(ts);
    v[TRACE_sample_tid] = synthetic_u(SYNTHETIC_TID);
    v[TRACE_sample_stack] = synthetic_u(stack);
    v[TRACE_sample_pc] = synthetic_u(pc);
    v[TRACE_sample_count] = synthetic_u(1);
    assert_int_equal(writer_emit(w, TRACE_sample, v), 0);
}

#ifdef __SANITIZE_ADDRESS__ /* it would complain of what libdwfl has open then, which is left on purpose */
#define CUTS 1
#else
#define CUTS 2
#endif

/* An open file's owner truncates it: names that were already found stay, and the rest has none. */
static void cut_short(void **state) {
    char command[1200], path[64];
    struct symbol before, after;

    (void)state;
    for (int debug = 0; debug < CUTS; debug++) {
        snprintf(path, sizeof path, "%s/cut%d", dir, debug);
        snprintf(command, sizeof command, debug ? "cp %s %s" : "strip -g %s -o %s", self, path);
        assert_int_equal(system(command), 0);
        struct symbols *s = symbols_new(0);
        struct symbols_file *f = symbols_file(s, path, build_id, build_id_len);
        assert_int_equal(symbols_lookup(f, at(symbols_test_leaf) - bias, &before), 0);
        assert_string_equal(before.name, "symbols_test_leaf");
        cut_short_install();
        assert_int_equal(truncate(path, 0), 0);
        assert_int_equal(symbols_lookup(f, at(symbols_test_glue) - bias, &after), 0);
        if (!debug)
            assert_memory_equal(after.name, "cut0+0x", 7);
        assert_int_equal(symbols_lookup(f, at(symbols_test_host) - bias, &after), 0);
        assert_string_equal(before.name, "symbols_test_leaf");
        signal(SIGBUS, SIG_DFL);
        symbols_free(s);
    }
}

static const char *stack_of(sqlite3 *db, int nth) {
    static char text[512];
    sqlite3_stmt *st;
    size_t n = 0;

    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT func, lineno, frame_type FROM backtrace WHERE "
                                        "sample_id = (1 << 40) + ?1 ORDER BY depth",
                                        -1, &st, NULL),
                     SQLITE_OK);
    sqlite3_bind_int(st, 1, nth);
    text[0] = 0;
    while (sqlite3_step(st) == SQLITE_ROW) {
        const char *type = (const char *)sqlite3_column_text(st, 2);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? " " : "",
                              (const char *)sqlite3_column_text(st, 0));
        if (*type == 'P')
            n += (size_t)snprintf(text + n, sizeof text - n, ":%d", sqlite3_column_int(st, 1));
    }
    sqlite3_finalize(st);
    return text;
}

/* From the writer to the view backtrace: two groups of Python frames, one eval frame known by its range and one by its name. */
static void merged(void **state) {
    char trace[64], out[64], gone[600];
    const uint64_t mono = SYNTHETIC_MONO, M = 1000000;
    struct writer *w;
    sqlite3 *db;

    (void)state;
    snprintf(trace, sizeof trace, "%s/t.zst", dir);
    snprintf(out, sizeof out, "%s/t.db", dir);
    assert_int_equal(writer_open(&w, &(struct writer_options){.trace_path = trace, .run_dir = dir}),
                     0);
    struct writer_value p[TRACE_process_NFIELDS] = {{.u = mono}};
    p[TRACE_process_eval_start] = synthetic_u(at(symbols_test_loop));
    p[TRACE_process_eval_end] = synthetic_u(at(symbols_test_loop) + 4);
    assert_int_equal(writer_emit(w, TRACE_process, p), 0);
    snprintf(gone, sizeof gone, "%s (deleted)", self); /* as the maps say of an upgraded file */
    emit_module(w, 1, gone, 0, start, end, mono);
    /* libold was at this place until libnew came; neither is to be found here */
    emit_module(w, 2, "/x/libold.so", 1, 0x10000, 0x20000, mono);
    emit_module(w, 3, "/x/libnew.so", 2, 0x10000, 0x20000, mono + 5 * M);
    emit_frame(w, 0x11, "inner", 30);
    emit_frame(w, 0x12, "entry", 20);
    emit_frame(w, 0x13, "outer", 10);

    uint64_t python[] = {0x11, 0x12, 0, 0x13, 0};
    /* return addresses: one past a byte of the function; at the very end of the eval range too */
    uint64_t native[] = {at(symbols_test_glue) + 1, at(symbols_test_cold) + 2,
                         at(symbols_test_glue) + 2, at(symbols_test_loop) + 4,
                         at(symbols_test_cxx) + 1};
    struct writer_value k[TRACE_stack_NFIELDS] = {{.u = 0}};
    k[TRACE_stack_key] = synthetic_u(0x51);
    k[TRACE_stack_python] = (struct writer_value){.p = python, .n = 5};
    k[TRACE_stack_native] = (struct writer_value){.p = native, .n = 5};
    assert_int_equal(writer_emit(w, TRACE_stack, k), 0);
    k[TRACE_stack_key] = synthetic_u(0x52); /* Python only */
    k[TRACE_stack_native] = (struct writer_value){.p = native, .n = 0};
    assert_int_equal(writer_emit(w, TRACE_stack, k), 0);
    k[TRACE_stack_key] = synthetic_u(0x53); /* native cut off behind the inner eval frame */
    k[TRACE_stack_flags] = synthetic_u(4);
    k[TRACE_stack_native] = (struct writer_value){.p = native, .n = 2};
    assert_int_equal(writer_emit(w, TRACE_stack, k), 0);
    k[TRACE_stack_key] = synthetic_u(0x54); /* native only */
    k[TRACE_stack_flags] = synthetic_u(0);
    k[TRACE_stack_python] = (struct writer_value){.p = python, .n = 0};
    assert_int_equal(writer_emit(w, TRACE_stack, k), 0);

    emit_sample(w, mono + 1 * M, 0x51, at(symbols_test_leaf));
    emit_sample(w, mono + 2 * M, 0x52, 0);
    emit_sample(w, mono + 3 * M, 0x53, at(symbols_test_leaf));
    emit_sample(w, mono + 4 * M, 0x52, 0x10010); /* libold's time */
    emit_sample(w, mono + 6 * M, 0x52, 0x10010); /* libnew's */
    emit_sample(w, mono + 7 * M, 0x52, 0x99);    /* nobody's */
    emit_sample(w, mono + 8 * M, 0, 0);          /* nothing could be read */
    emit_sample(w, mono + 9 * M, 0x54, at(symbols_test_leaf));
    assert_int_equal(writer_close(w, "exit"), 0);

    struct inputs in = {0};
    struct convert_result res;
    assert_int_equal(inputs_add(&in, trace, 0), 0);
    assert_int_equal(convert(&in, &(struct convert_options){.out = out}, &res), 0);
    inputs_free(&in);
    assert_int_equal(sqlite3_open(out, &db), SQLITE_OK);
    assert_string_equal(stack_of(db, 1),
                        "symbols_test_leaf symbols_test_glue inner:30 entry:20 symbols_test_glue "
                        "outer:10 at::native::add(at::Tensor const&)");
    assert_string_equal(stack_of(db, 2), "inner:30 entry:20 outer:10");
    assert_string_equal(stack_of(db, 3),
                        "symbols_test_leaf symbols_test_glue inner:30 entry:20 outer:10");
    char old[128], new[128];
    unsigned long long rel = 0x10010 - bias;
    snprintf(old, sizeof old, "libold.so+0x%llx inner:30 entry:20 outer:10", rel);
    snprintf(new, sizeof new, "libnew.so+0x%llx inner:30 entry:20 outer:10", rel);
    assert_string_equal(stack_of(db, 4), old);
    assert_string_equal(stack_of(db, 5), new);
    assert_string_equal(stack_of(db, 6), "0x99 inner:30 entry:20 outer:10");
    assert_string_equal(stack_of(db, 7), "");
    assert_string_equal(stack_of(db, 8),
                        "symbols_test_leaf symbols_test_glue _PyEval_EvalFrameDefault");
    sqlite3_close(db);

    /* If native frames are not asked for, it is still seen that a stack had only native frames. */
    assert_int_equal(inputs_add(&in, trace, 0), 0);
    struct convert_options part = {.out = out,
                                   .force = 1,
                                   .need = 1ull << TRACE_sample | VTAB_ROWS | VTAB_STACKS |
                                           VTAB_PYTHON};
    assert_int_equal(convert(&in, &part, &res), 0);
    inputs_free(&in);
    assert_int_equal(sqlite3_open(out, &db), SQLITE_OK);
    for (int i = 1; i <= 6; i++)
        assert_string_equal(stack_of(db, i), "inner:30 entry:20 outer:10");
    assert_string_equal(stack_of(db, 7), "");
    assert_string_equal(stack_of(db, 8), "[native]");
    sqlite3_close(db);
}

/* Finds the only file in the folder whose name ends so. */
static void kept_file(char *name, size_t n) {
    glob_t found;

    snprintf(name, n, "%s/kept/*.sym", dir);
    assert_int_equal(glob(name, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(name, n, "%s", found.gl_pathv[0]);
    globfree(&found);
}

/* What a lookup says, as a text: its inlined functions and lines, too. */
static void all_of(char *out, size_t n, const char *keep_in) {
    const uint64_t addresses[] = {at(symbols_test_leaf), at(symbols_test_cold) + 1,
                                  at(symbols_test_cxx), at(symbols_test_host) + 4, bias + 1};
    struct symbols *s = symbols_new(0);
    struct symbols_file *f = symbols_file(s, self, build_id, build_id_len);
    size_t len = 0;

    if (keep_in)
        symbols_keep_in(s, keep_in);
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        struct symbol sym;
        assert_int_equal(symbols_lookup(f, addresses[i] - bias, &sym), 0);
        for (const struct symbol *p = &sym; p; p = p->into)
            len += (size_t)snprintf(out + len, n - len, "%s|%s|%u|%d|%d\n", p->name,
                                    p->source ? p->source : "-", p->line, p->named, p->eval);
    }
    assert_int_equal(symbols_file_state(f), 1);
    symbols_free(s);
}

/* Makes all names of a cache file lie far behind its end. Its head has eight words, of which the fourth is the number of symbols that follow; a
 * symbol has two words, and the upper half of the second says where its name is. */
static void move_names(const char *name) {
    struct stat st;
    int fd = open(name, O_RDWR);

    assert_int_equal(fstat(fd, &st), 0);
    uint64_t *p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    assert_true(p[3] > 0 && 64 + 16 * p[3] < (uint64_t)st.st_size);
    for (uint64_t i = 0; i < p[3]; i++)
        p[8 + 2 * i + 1] |= (uint64_t)1 << 63;
    munmap(p, (size_t)st.st_size);
    close(fd);
}

/* A cache file gives the same as the ELF file; one that is damaged, or belongs to another file, is not used. */
static void kept(void **state) {
    char folder[64], name[128], plain[4096], first[4096], next[4096];
    struct stat st, now;

    (void)state;
    snprintf(folder, sizeof folder, "%s/kept", dir);
    assert_int_equal(mkdir(folder, 0700), 0);
    all_of(plain, sizeof plain, NULL);
    all_of(first, sizeof first, folder);
    assert_string_equal(first, plain);
    kept_file(name, sizeof name);
    assert_int_equal(stat(name, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    all_of(next, sizeof next, folder);
    assert_string_equal(next, plain);
    assert_int_equal(stat(name, &now), 0); /* and it was not made again */
    assert_int_equal(now.st_ino, st.st_ino);

    /* A changed name shows where the answers come from. */
    int fd = open(name, O_RDWR);
    char *p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
         *found = memmem(p, (size_t)st.st_size, "symbols_test_leaf", 17);
    assert_non_null(found);
    *found = 'S';
    all_of(next, sizeof next, folder);
    assert_non_null(strstr(next, "Symbols_test_leaf"));
    p[8] ^= 1; /* the key: of another file */
    all_of(next, sizeof next, folder);
    assert_string_equal(next, plain);
    munmap(p, (size_t)st.st_size);
    close(fd);
    kept_file(name, sizeof name);
    assert_int_equal(truncate(name, st.st_size - 1), 0);
    all_of(next, sizeof next, folder);
    assert_string_equal(next, plain);
    move_names(name);
    all_of(next, sizeof next, folder);
    assert_string_equal(next, plain);
}

int main(void) {
    /* used, so that they are there */
    volatile int keep = symbols_test_leaf(1) + symbols_test_glue(1) + symbols_test_loop(1) +
                        symbols_test_cold(1) + symbols_test_cxx(1) + symbols_test_host(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),     cmocka_unit_test(inlined), cmocka_unit_test(kept),
        cmocka_unit_test(cut_short), cmocka_unit_test(merged),
    };
    (void)keep;
    return cmocka_run_group_tests(tests, setup, teardown);
}
