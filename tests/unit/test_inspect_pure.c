/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the inspect library that need no process: text and safety. */
#include "agent/pywalk/image.h"
#include "gdbplugin/inject.h"
#include "gdbplugin/text.h" /* before cmocka.h, whose fail() is a macro */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

#define U "\xef\xbf\xbd" /* in place of what is no UTF-8 */

static void json(const char *in, const char *want) {
    cJSON *object = cJSON_CreateObject(), *item;
    struct text t = {0};
    char *line;

    json_text(object, "text", in);
    json_put(&t, object);
    line = text_take(&t);
    assert_null(strpbrk(line, "\n\x01\x7f"));
    assert_null(strstr(line, "\xc2\x9b")); /* which a terminal obeys as ESC [ */
    assert_null(strstr(line, "\xe2\x80\xae"));
    object = cJSON_Parse(line);
    free(line);
    item = cJSON_GetObjectItem(object, "text");
    assert_int_equal(cJSON_IsNull(item), want == NULL);
    if (want)
        assert_string_equal(item->valuestring, want);
    cJSON_Delete(object);
}

static void test_directives(void **state) {
    struct text t = {0};
    char *s;

    (void)state;
    text_put(&t, "%d|%s|%q", -3, "a\x01", "b\x01\x7f c\n\xc2\x9b[\xe2\x80\xae\xff\xc3\xa4");
    s = text_take(&t);
    assert_string_equal(s, "-3|a\x01|b?? c??[??\xc3\xa4");
    free(s);
    text_put(&t, "no directive, and at the end %s", "one");
    text_plain(&t, "");
    s = text_take(&t);
    assert_string_equal(s, "no directive, and at the end one");
    free(s);
}

/* The array grows at powers of two, and its contents stay. */
static void test_grow(void **state) {
    uint64_t *v = NULL;

    (void)state;
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(array_grow(&v, i, sizeof *v), 0);
        v[i] = i * 3;
    }
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(v[i], i * 3);
    free(v);
}

static void test_text(void **state) {
    struct text t = {0};
    char *s;

    (void)state;
    s = text_take(&t);
    assert_string_equal(s, "");
    free(s);
    for (int i = 0; i < 5000; i++)
        text_add(&t, "%d,", i % 10);
    s = text_take(&t);
    assert_int_equal(strlen(s), 10000);
    free(s);
}

static void test_json(void **state) {
    struct text t = {0};
    cJSON *object = cJSON_CreateObject();
    char *s;

    (void)state;
    json(NULL, NULL);
    json("", "");
    json("a\"b\\c\n\x01\x7f", "a\"b\\c\n\x01\x7f");
    json("n\xc3\xa4me \xe2\x82\xac \xf0\x9f\x98\x80", "n\xc3\xa4me \xe2\x82\xac \xf0\x9f\x98\x80");
    /* a lone byte, a cut character, an overlong form, a surrogate, beyond Unicode */
    json("\xc2\x9b[31m \xe2\x80\xae", "\xc2\x9b[31m \xe2\x80\xae");
    json("\xff", U);
    json("\xe2\x82", U U);
    json("\xc0\xaf", U U);
    json("\xed\xa0\x80", U U U);
    json("\xf4\x90\x80\x80", U U U U);
    json_text(object, "a", "b\"\n\x01");
    json_known(object, "n", 7);
    json_known(object, "none", -1);
    cJSON_AddItemToObject(object, "at", json_address(UINT64_MAX));
    json_put(&t, object);
    s = text_take(&t);
    assert_string_equal(
        s, "{\"a\":\"b\\\"\\n\\u0001\",\"n\":7,\"none\":null,\"at\":\"0xffffffffffffffff\"}");
    free(s);
}

/* ---- safety ---- */

/* Pairs of symbol and module, innermost first, ended by NULL. */
static const char *judge(const char *const *frames) {
    static char buf[128];
    struct native_name *names = calloc(32, sizeof *names);
    const char *why;
    size_t n = 0;

    for (; frames[2 * n]; n++) {
        snprintf(names[n].symbol, sizeof names[n].symbol, "%s", frames[2 * n]);
        snprintf(names[n].module, sizeof names[n].module, "%s", frames[2 * n + 1]);
    }
    why = safety_stack(names, n, buf, sizeof buf);
    free(names);
    return why;
}
#define SAFE(...)   assert_null(judge((const char *const[]){__VA_ARGS__, NULL, NULL}))
#define UNSAFE(...) assert_non_null(judge((const char *const[]){__VA_ARGS__, NULL, NULL}))
#define TAIL        "start_thread", "libc.so.6", "clone3", "libc.so.6"

/* /proc/PID/task/TID/syscall */
static void test_call(void **state) {
    struct proc_call c;
    (void)state;
    assert_int_equal(proc_call("running\n", &c), 0);
    assert_int_equal(proc_call("", &c), 0);
    assert_int_equal(proc_call("202", &c), 0);
    assert_int_equal(proc_call("-1 0x7ffc01 0x401000\n", &c), 1);
    assert_int_equal(c.number, -1);
    assert_int_equal(c.first, 0);
    assert_int_equal(c.sp, 0x7ffc01);
    assert_int_equal(c.pc, 0x401000);
    assert_int_equal(proc_call("128 0x5501 0x2 0x3 0x4 0x5 0x6 0x7ffc02 0x401002\n", &c), 1);
    assert_int_equal(c.number, 128);
    assert_int_equal(c.first, 0x5501);
    assert_int_equal(c.sp, 0x7ffc02);
    assert_int_equal(c.pc, 0x401002);
}

static void test_safety(void **state) {
    (void)state;
    SAFE("clock_nanosleep", "libc.so.6", "time_sleep", "python3.11", TAIL);
    SAFE("", "libc.so.6", "sem_wait", "libc.so.6", "take_gil", "libpython3.12.so.1.0", TAIL);
    SAFE("", "libc.so.6", "", "libc.so.6", "PyThread_acquire_lock_timed", "python3.11", "",
         "libc.so.6");
    SAFE("_PyEval_EvalFrameDefault", "python3.11", "Py_BytesMain", "python3.11",
         "__libc_start_main", "libc.so.6", "_start", "python3.11");
    /* names of the program's own that mean nothing */
    SAFE("fork", "libfoo.so", "main", "prog");
    SAFE("arena_run", "libfoo.so", "main", "prog");
    SAFE("malloc_stats_print", "libfoo.so", "main", "prog");

    UNSAFE("malloc", "libc.so.6", "PyMem_RawMalloc", "python3.11");
    UNSAFE("", "libc.so.6", "malloc", "libc.so.6", "f",
           "libfoo.so"); /* _int_malloc of a stripped libc */
    UNSAFE("_int_free", "libc.so.6", "main", "prog");
    UNSAFE("memset", "libc.so.6", "calloc", "libc.so.6", "main", "prog");
    UNSAFE("malloc", "prog", "main", "prog"); /* its own */
    UNSAFE("je_arena", "libjemalloc.so.2", "main", "prog");
    UNSAFE("do_lookup_x", "ld-linux-x86-64.so.2", "main", "prog");
    UNSAFE("", "libfoo.so", "_dl_init", "ld-linux-x86-64.so.2", "dlopen", "libc.so.6", "main",
           "prog");
    UNSAFE("", "prog", "dl_iterate_phdr", "libc.so.6", "_Unwind_Find_FDE", "libgcc_s.so.1");
    UNSAFE("_Fork", "libc.so.6", "fork", "libc.so.6", "os_fork", "python3.11");
    UNSAFE("clone3", "libc.so.6", "pthread_create", "libc.so.6", "main", "prog");
    UNSAFE("f", "libfoo.so", "__run_exit_handlers", "libc.so.6", "exit", "libc.so.6");
    /* nothing but the C library without names: a thread that begins or ends */
    UNSAFE("", "libc.so.6", "", "libc.so.6");
    UNSAFE("", "libc.so.6", TAIL);
}

static void test_carrier(void **state) {
    struct native_name names[2] = {{.symbol = "f", .module = "prog"},
                                   {.symbol = "main", .module = "prog"}};

    (void)state;
    assert_null(safety_carrier(names, 2, 1));
    assert_non_null(safety_carrier(names, 2, 0));
    strcpy(names[1].symbol, "__restore_rt");
    assert_non_null(safety_carrier(names, 2, 1));
    strcpy(names[1].symbol, "main");
    names[0].module[0] = 0; /* code that no file holds */
    assert_non_null(safety_carrier(names, 2, 1));
}

/* ---- the build-id ---- */

#define PAGE 4096

struct image {
    Elf64_Ehdr e;
    Elf64_Phdr p
        [3]; /* the header's segment, one that lies a page further in memory than in the file, the note in it */
    char space[PAGE - sizeof(Elf64_Ehdr) - 3 * sizeof(Elf64_Phdr)];
    struct {
        Elf64_Nhdr h;
        char name[4];
        uint8_t id[4];
    } note;
};

/* Reads the image: at `base` as it was loaded; at 0 as in the file. */
static int read_image(void *ctx, uint64_t addr, void *buf, size_t n) {
    const struct image *im = ctx;
    const uint64_t base = addr < im->e.e_entry ? 0 : im->e.e_entry;
    uint64_t at = addr - base;

    if (base && at >= 2 * PAGE)
        at -= PAGE;
    else if (base && at + n > PAGE)
        return -EFAULT;
    if (at > sizeof *im || n > sizeof *im - at)
        return -EFAULT;
    memcpy(buf, (const uint8_t *)im + at, n);
    return 0;
}

static void build_id_of(uint64_t base, uint64_t vaddr) {
    struct image im = {.e = {.e_machine = EM_X86_64,
                             .e_phoff = sizeof im.e,
                             .e_phnum = 3,
                             .e_phentsize = sizeof *im.p},
                       .note = {{4, 4, NT_GNU_BUILD_ID}, "GNU", {1, 2, 3, 4}}};
    struct pywalk_mem mem = {read_image, &im};
    uint8_t id[PYWALK_BUILD_ID] = {0};

    memcpy(im.e.e_ident, ELFMAG, SELFMAG);
    im.e.e_ident[EI_CLASS] = ELFCLASS64;
    im.e.e_entry = base; /* where it lies, for read_image() */
    im.p[0] = (Elf64_Phdr){.p_type = PT_LOAD, .p_vaddr = vaddr, .p_filesz = PAGE};
    im.p[1] = (Elf64_Phdr){.p_type = PT_LOAD,
                           .p_offset = PAGE,
                           .p_vaddr = vaddr + 2 * PAGE,
                           .p_filesz = sizeof im.note};
    im.p[2] = im.p[1];
    im.p[2].p_type = PT_NOTE;
    assert_int_equal(pywalk_build_id(mem, base, id), 4);
    assert_memory_equal(id, im.note.id, 4);
    memset(id, 0, sizeof id);
    assert_int_equal(pywalk_build_id(mem, 0, id), 4);
    assert_memory_equal(id, im.note.id, 4);
}

/* Layouts as in the libraries of PyTorch's wheels. */
static void test_build_id(void **state) {
    (void)state;
    build_id_of(0x7f0000000000, 0);
    build_id_of(0x400000, 0x400000); /* a program that is not moved */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),       cmocka_unit_test(test_json),
        cmocka_unit_test(test_directives), cmocka_unit_test(test_grow),
        cmocka_unit_test(test_safety),     cmocka_unit_test(test_carrier),
        cmocka_unit_test(test_call),       cmocka_unit_test(test_build_id)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
