/* SPDX-License-Identifier: Apache-2.0 */
/* Code that several folders share: traces/map.h, writer/sys.h, agent/base/memory.h and loaded.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "agent/base/known.h"
#include "agent/base/loaded.c"
#include "agent/base/memory.c"
#include "traces/map.h"
#include "writer/sys.h"

#include <pthread.h>

/* ---- map.h ---- */

static void numbers_of_keys(void **state) {
    struct map m = {0};
    (void)state;
    assert_int_equal(map_find(&m, 5), 0);
    for (uint64_t k = 1; k <= 1000; k++) /* poor keys: all lower bits are the same */
        assert_int_equal(map_put(&m, k << 40, (uint32_t)k), 0);
    assert_int_equal(m.n, 1000);
    assert_true(m.cap == 2048 && m.n <= m.cap / 4 * 3);
    for (uint64_t k = 1; k <= 1000; k++)
        assert_int_equal(map_find(&m, k << 40), k);
    assert_int_equal(map_find(&m, 1001ull << 40), 0);
    assert_int_equal(map_find(&m, 0), 0);
    assert_int_equal(map_put(&m, 7ull << 40, 70), 0); /* another number for the same key */
    assert_true(m.n == 1000 && map_find(&m, 7ull << 40) == 70);
    map_free(&m);
    assert_true(!m.n && !m.cap && !m.keys && map_find(&m, 7ull << 40) == 0);
}

static void a_map_grows_at_three_quarters(void **state) {
    struct map m = {0};
    (void)state;
    for (uint64_t k = 1; k <= 48; k++)
        assert_int_equal(map_put(&m, k, 1), 0);
    assert_int_equal(m.cap, 64);
    assert_int_equal(map_put(&m, 49, 1), 0);
    assert_int_equal(m.cap, 128);
    map_free(&m);
}

/* ---- sys.h ---- */

static void a_swap_says_what_was(void **state) {
    uint32_t word = 3;
    (void)state;
    assert_true(sys_swap(&word, 2, 9) == 3 && word == 3);
    assert_true(sys_swap(&word, 3, 9) == 3 && word == 9);
}

static void *wake_soon(void *word) {
    sys_sleep(20 * SYS_MS);
    __atomic_store_n((uint32_t *)word, 1, __ATOMIC_RELEASE);
    sys_wake(word);
    return NULL;
}

static void waits_end(void **state) {
    uint32_t word = 0;
    pthread_t thread;
    (void)state;
    assert_int_equal(sys_wait(&word, 0, sys_now() - 1), -ETIMEDOUT); /* its time has come */
    assert_int_equal(sys_wait(&word, 1, UINT64_MAX), 0);             /* it is another already */
    uint64_t until = sys_now() + 5 * SYS_MS;
    while (!sys_wait(&word, 0, until))
        ;
    assert_true(sys_now() >= until);
    assert_int_equal(pthread_create(&thread, NULL, wake_soon, &word), 0);
    while (!__atomic_load_n(&word, __ATOMIC_ACQUIRE))
        assert_int_equal(sys_wait(&word, 0, UINT64_MAX), 0);
    pthread_join(thread, NULL);
}

static void fields_of_stat(void **state) {
    char text[] = "123 (a) b) c) S 1 2 3 4";
    (void)state;
    assert_string_equal(proc_stat_field(text, 3), "S 1 2 3 4");
    assert_string_equal(proc_stat_field(text, 4), "1 2 3 4");
    assert_string_equal(proc_stat_field(text, 7), "4");
    assert_null(proc_stat_field(text, 8));
    char none[8] = "";
    assert_null(proc_stat_field(none, 3));
    char own[1024], small[4], status[] = "Name:\ta: b\nPid:\t7\n";
    assert_true(proc_read_file("/proc/self/stat", own, sizeof own) > 100);
    assert_int_equal(strtoul(own, NULL, 10), getpid());
    assert_int_equal(strtoul(proc_stat_field(own, 4), NULL, 10), getppid());
    assert_int_equal(proc_stat_number("/proc/self/stat", 4), getppid());
    assert_int_equal(proc_stat_number("/proc/self/none", 4), 0);
    assert_int_equal(proc_read_file("/proc/self/stat", small, sizeof small),
                     3); /* cut, and ended */
    assert_int_equal(strlen(small), 3);
    assert_int_equal(strtoul(proc_value(status, "Pid", ":\t "), NULL, 10), 7);
    assert_null(proc_value(status, "Pi", ":\t "));
    assert_null(proc_value(status, "id", ":\t "));
    assert_string_equal(proc_value(status, "Name", ":\t "), "a: b\nPid:\t7\n");
    assert_int_equal(proc_read_file("/proc/self/none", small, sizeof small), 0);
    assert_string_equal(small, "");
    assert_true(sys_round8(0) == 0 && sys_round8(1) == 8 && sys_round8(8) == 8 &&
                sys_round8(9) == 16);
}

/* ---- memory.h ---- */

static void guarded(void **state) {
    static struct guard g;
    (void)state;
    char *two =
        mmap(NULL, 2 * MEMORY_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t at = (uint64_t)(uintptr_t)two;
    char buf[64];
    assert_ptr_not_equal(two, MAP_FAILED);
    munmap(two + MEMORY_PAGE, MEMORY_PAGE);
    memset(two, 'x', MEMORY_PAGE);
    two[MEMORY_PAGE - 1] = 'y';
    assert_int_equal(guard_read(&g, at + 1, buf, 17), 0);
    assert_memory_equal(buf, "xxxxxxxxxxxxxxxxx", 17);
    assert_int_equal(guard_read(&g, at + MEMORY_PAGE - 1, buf, 1), 0);
    assert_int_equal(buf[0], 'y');
    assert_int_equal(guard_read(&g, at + MEMORY_PAGE - 1, buf, 2),
                     -EFAULT); /* into the next page */
    assert_int_equal(guard_read(&g, at + MEMORY_PAGE, buf, 1), -EFAULT);
    assert_int_equal(guard_read(&g, ~0ull - 2, buf, 8), -EFAULT); /* over the end of all */
    assert_int_equal(guard_read(&g, 0, buf, 0), 0);
    munmap(two, MEMORY_PAGE);
    guard_forget(&g); /* else the page counts as readable still */
    assert_int_equal(guard_read(&g, at, buf, 1), -EFAULT);
}

struct lines {
    const char *want;
    int n, last, torn;
    unsigned long end; /* of the mapping before */
};

static int count_line(void *ctx, char *line) {
    struct lines *l = ctx;
    unsigned long from, to;
    char mode[5] = "";
    l->n++;
    /* whole, one at a time, in their order: also where a piece that was read ended within it */
    l->torn += sscanf(line, "%lx-%lx %4s ", &from, &to, mode) != 3 || from < l->end || to <= from ||
               !strchr("ps", mode[3]) || strpbrk(line, "\n\1");
    l->end = to;
    l->last = strstr(line, l->want) ? l->n : l->last;
    return 0;
}

static int stop_at_once(void *ctx, char *line) {
    (void)line;
    ++*(int *)ctx;
    return 7;
}

static void lines_of_maps(void **state) {
    struct lines l = {.want = "[stack]"};
    int n = 0;
    (void)state;
    for (int i = 0; i < 400; i++) /* so that they fill the buffer several times */
        assert_ptr_not_equal(
            mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
            MAP_FAILED);
    assert_int_equal(proc_maps_each(count_line, &l), 0);
    assert_int_equal(l.torn, 0);
    assert_true(l.n > 400 && l.last > 400); /* the stack is among the last ones */
    assert_int_equal(proc_maps_each(stop_at_once, &n), 7);
    assert_int_equal(n, 1);
}

static void own_memory(void **state) {
    uint64_t word = 42, got = 0;
    (void)state;
    assert_int_equal(memory_init(), 0);
    assert_int_equal(memory_read_self((uint64_t)(uintptr_t)&word, &got, sizeof got), 0);
    assert_int_equal(got, 42);
    assert_int_equal(memory_read_self(8, &got, sizeof got), -EFAULT);
}

struct counted {
    int reads;
    uint64_t last;
};

static int count_read(void *ctx, uint64_t addr, void *buf, size_t n) {
    struct counted *c = ctx;
    c->reads++;
    c->last = addr;
    return memory_read_self(addr, buf, n);
}

static int byte_of(struct pywalk_pages *p, const char *at) {
    unsigned char c;
    return pywalk_pages_read(p, (uint64_t)(uintptr_t)at, &c, 1) ? -1 : c;
}

/* Pages that were used are filled again without a read for each of them; pages that were not used, or lie behind one that is gone, are not. */
static void pages_again(void **state) {
    enum { N = 8 };
    static struct pywalk_page page[2 * N]; /* of so many each has its own place */
    struct counted c = {0};
    struct pywalk_pages p = {{count_read, &c}, 2 * N, page};
    (void)state;
    char *at =
        mmap(NULL, N * MEMORY_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    assert_int_equal(memory_init(), 0);
    memory_read_again(&p); /* nothing was read yet */
    for (int i = 0; i < N; i++) {
        at[i * (int)MEMORY_PAGE] = (char)i;
        assert_int_equal(byte_of(&p, at + i * (int)MEMORY_PAGE), i);
    }
    assert_int_equal(c.reads, N);
    for (int i = 0; i < N; i++)
        at[i * (int)MEMORY_PAGE] = (char)(i + 50);
    assert_int_equal(byte_of(&p, at), 0); /* as it was */
    memory_read_again(&p);
    for (int i = 0; i < N - 1; i++)
        assert_int_equal(byte_of(&p, at + i * (int)MEMORY_PAGE), i + 50);
    assert_int_equal(c.reads, N);
    memory_read_again(&p); /* the last one was not used */
    assert_int_equal(byte_of(&p, at + (N - 1) * MEMORY_PAGE), N - 1 + 50);
    assert_int_equal(c.reads, N + 1);
    for (int i = 0; i < N; i++)
        byte_of(&p, at + i * (int)MEMORY_PAGE);
    munmap(at + 3 * MEMORY_PAGE, MEMORY_PAGE);
    memory_read_again(&p);
    for (int i = 0; i < N; i++)
        assert_int_equal(byte_of(&p, at + i * (int)MEMORY_PAGE), i == 3 ? -1 : i + 50);
    assert_true(c.reads > N + 1); /* of page 3, and of what came behind it in the kernel's order */
    pywalk_pages_forget(&p);
    c.reads = 0;
    memory_read_again(&p); /* nothing is in use */
    assert_int_equal(byte_of(&p, at), 50);
    assert_int_equal(c.reads, 1);
    munmap(at, N * MEMORY_PAGE);
}

/* ---- loaded.h ---- */

static int find_libc(void *ctx, uint64_t at, const struct link_map *m) {
    (void)at;
    if (!strstr(m->l_name, "/libc.so"))
        return 0;
    *(struct link_map *)ctx = *m;
    return 3;
}

static int count_entry(void *ctx, uint64_t at, const struct link_map *m) {
    (void)m;
    assert_true(at);
    ++*(uint32_t *)ctx;
    return 0;
}

static void the_loaders_list(void **state) {
    uint32_t n = 0, counted = 0;
    uint64_t before = loaded_fingerprint(&n);
    struct link_map libc = {0};
    (void)state;
    assert_true(before && n > 2);
    assert_int_equal(loaded_each(count_entry, &counted), 0);
    assert_int_equal(counted, n);
    assert_int_equal(loaded_fingerprint(NULL), before);
    assert_int_equal(loaded_each(find_libc, &libc), 3);
    void *more = dlopen("libutil.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (more)
        assert_true(loaded_fingerprint(&counted) != before && counted > n);
}

static void by_names(void **state) {
    void *libc = NULL, *none = &none;
    int (*get)(void) = NULL;
    pid_t (*older)(void) = NULL;
    void *(*optional)(void) = (void *(*)(void))1;
    const struct loaded_function list[] = {
        {"getpid", NULL, &get, 0},
        {"no_such_function", "getppid", &older, 0},
        {"no_such_function", NULL, &optional, 1},
    };
    const struct loaded_function missing[] = {{"nor_this_one", "nor_that", &none, 0}, list[0]};
    (void)state;
    assert_int_equal(loaded_find("libc.so", &libc), 0);
    assert_non_null(libc);
    assert_int_equal(loaded_find("libc.so", NULL), 0);
    assert_int_equal(loaded_find("ibc.so", NULL), -ENOENT); /* the beginning of the name */
    assert_null(loaded_functions(libc, list, 3));
    assert_true(get() == getpid() && older() == getppid() && !optional);
    assert_string_equal(loaded_functions(libc, missing, 2), "nor_this_one");
    assert_null(none);
    assert_null(dlerror());
}

/* Returns whether the kernel may write there, by reading a file into it. */
static int writable(void *at) {
    int fd[2];
    char byte = 1;
    assert_int_equal(pipe(fd), 0);
    assert_int_equal(write(fd[1], &byte, 1), 1);
    int rc = read(fd[0], at, 1) == 1;
    close(fd[0]);
    close(fd[1]);
    return rc;
}

/* Also at the first address of a mapping, whose protection must not change. */
static void pointers_replaced(void **state) {
    int mode[] = {PROT_READ, PROT_READ | PROT_WRITE};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        void **page = mmap(NULL, MEMORY_PAGE, mode[i], MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(page, MAP_FAILED);
        assert_int_equal(loaded_patch(page, &mode), 0);
        assert_int_equal(loaded_patch(page + MEMORY_PAGE / sizeof *page - 1, &mode[1]), 0);
        assert_ptr_equal(page[0], &mode);
        assert_ptr_equal(page[MEMORY_PAGE / sizeof *page - 1], &mode[1]);
        assert_int_equal(writable(page + 5), i);
        munmap(page, MEMORY_PAGE);
    }
}

/* Texts up to the end of a mapping, across a page border, and no longer than the buffer. */
static void texts_of_the_loader(void **state) {
    char *two = mmap(NULL, 3 * MEMORY_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                     0),
         buf[17];
    uint64_t at = (uint64_t)(uintptr_t)two;
    (void)state;
    munmap(two + 2 * MEMORY_PAGE, MEMORY_PAGE);
    memset(two, 'x', 2 * MEMORY_PAGE);
    memset(buf, '!', sizeof buf);
    assert_int_equal(read_text(at + MEMORY_PAGE - 4, buf, 8), -ENAMETOOLONG);
    assert_memory_equal(buf, "xxxxxxxx!!!!!!!!!", sizeof buf);
    two[MEMORY_PAGE + 3] = 0;
    assert_int_equal(read_text(at + MEMORY_PAGE - 4, buf, 8), 0);
    assert_string_equal(buf, "xxxxxxx");
    memcpy(two + 2 * MEMORY_PAGE - 4, "end", 4);
    assert_int_equal(read_text(at + 2 * MEMORY_PAGE - 4, buf, sizeof buf), 0);
    assert_string_equal(buf, "end");
    assert_int_equal(read_text(at + 2 * MEMORY_PAGE, buf, sizeof buf), -EFAULT);
    assert_int_equal(read_text(0, buf, sizeof buf), -EFAULT);
    munmap(two, 2 * MEMORY_PAGE);
}

/* Finds the entry through which this program calls a function, and no other entry. */
static void imports(void **state) {
    void *self = dlopen(NULL, RTLD_LAZY), *original = dlsym(RTLD_DEFAULT, "munmap");
    void **entry = loaded_import(self, "munmap", original);
    (void)state;
    assert_non_null(entry);
    assert_ptr_equal(*entry, original);
    assert_null(loaded_import(self, "munma", original));
    assert_null(loaded_import(self, "munmap",
                              NULL)); /* another library's, and not the one that was looked for */
    dlclose(self);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_keys),
        cmocka_unit_test(a_map_grows_at_three_quarters),
        cmocka_unit_test(a_swap_says_what_was),
        cmocka_unit_test(waits_end),
        cmocka_unit_test(fields_of_stat),
        cmocka_unit_test(guarded),
        cmocka_unit_test(lines_of_maps),
        cmocka_unit_test(own_memory),
        cmocka_unit_test(pages_again),
        cmocka_unit_test(the_loaders_list),
        cmocka_unit_test(by_names),
        cmocka_unit_test(pointers_replaced),
        cmocka_unit_test(texts_of_the_loader),
        cmocka_unit_test(imports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
