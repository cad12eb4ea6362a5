/* SPDX-License-Identifier: Apache-2.0 */
/* Traces that no writer makes, but people and networks do: joined end to end, with hints that contradict their blocks, with a few bytes that
 * expand to millions of rows, with names of files that must not be opened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "converter/convert.h"
#include "converter/reader.h"
#include "converter/source.h"
#include "synthetic.h"
#include "traces/plain_file.h"
#include "traces/varint.h"
#include <sqlite3.h>

static char dir[] = "/tmp/test_joined.XXXXXX";

/* The bytes of a trace file that is being put together. */
static struct bytes {
    uint8_t *p;
    size_t n, cap;
} a, b, made;

static void add(struct bytes *to, const void *p, size_t n) {
    if (to->n + n > to->cap) {
        to->cap = 2 * (to->n + n) + 64;
        assert_non_null(to->p = realloc(to->p, to->cap));
    }
    memcpy(to->p + to->n, p, n);
    to->n += n;
}

static const char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void slurp(struct bytes *to, const char *name) {
    char buf[4096];
    ssize_t n;
    int fd = open(path_of(name), O_RDONLY);
    while ((n = read(fd, buf, sizeof buf)) > 0)
        add(to, buf, (size_t)n);
    close(fd);
}

static int setup(void **state) {
    struct synthetic s = {.samples = 300, .threads = 2, .flush = 50, .native = 3};
    (void)state;
    if (!mkdtemp(dir) || synthetic_trace(path_of("a.zst"), dir, &s) != 0)
        return -1;
    s.samples = 500;
    s.pid = 78;
    s.rank = 1;
    s.stacks = 7;
    char path[128];
    snprintf(path, sizeof path, "%s", path_of("b.zst"));
    if (synthetic_trace(path, dir, &s) != 0)
        return -1;
    slurp(&a, "a.zst");
    slurp(&b, "b.zst");
    return 0;
}

static int teardown(void **state) {
    char cmd[64];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static struct convert_result result;
static char said[1024];

static void say(void *ctx, const char *file, const char *line) {
    (void)ctx, (void)file;
    snprintf(said, sizeof said, "%s", line);
}

/* Converts `made` and runs the query. */
static const char *ask(const char *query) {
    static char text[4096];
    struct convert_options opt = {.say = say};
    struct inputs in = {0};
    sqlite3_stmt *st;
    size_t n = 0;
    int fd = open(path_of("x.zst"), O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_int_equal(write(fd, made.p, made.n), made.n);
    close(fd);
    said[0] = text[0] = 0;
    assert_int_equal(inputs_add(&in, path_of("x.zst"), 0), 0);
    assert_int_equal(convert(&in, &opt, &result), 0);
    inputs_free(&in);
    if (sqlite3_prepare_v2(result.db, query, -1, &st, NULL) != SQLITE_OK)
        fail_msg("%s: %s", query, sqlite3_errmsg(result.db));
    while (sqlite3_step(st) == SQLITE_ROW)
        for (int i = 0; i < sqlite3_column_count(st); i++) {
            const char *v = (const char *)sqlite3_column_text(st, i);
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", v ? v : "-",
                                  i + 1 < sqlite3_column_count(st) ? "|" : "\n");
        }
    sqlite3_finalize(st);
    sqlite3_close(result.db);
    return text;
}

static void start(const struct bytes *with) {
    made.n = 0;
    add(&made, with->p, with->n);
}

static const char sums[] =
    "SELECT t.pid, t.rank, (SELECT count(*) FROM samples s WHERE s.trace_id = t.id),"
    " (SELECT count(DISTINCT stack_id) FROM samples s WHERE s.trace_id = t.id),"
    " (SELECT count(*) FROM samples s WHERE s.trace_id = t.id AND func IS NULL), complete,"
    " (SELECT group_concat(reason || count) FROM lost WHERE trace = t.id) FROM trace t ORDER BY id";

static void joined(void **state) {
    char alone[2][256];

    (void)state;
    start(&a);
    snprintf(alone[0], sizeof alone[0], "%s", ask(sums));
    assert_memory_equal(alone[0], "77|0|300|", 9);
    start(&b);
    snprintf(alone[1], sizeof alone[1], "%s", ask(sums));
    assert_memory_equal(alone[1], "78|1|500|", 9);

    char want[512];
    snprintf(want, sizeof want, "%s%s", alone[0], alone[1]);
    start(&a);
    add(&made, b.p, b.n);
    assert_string_equal(ask(sums), want);
    assert_int_equal(result.traces, 2);
    assert_int_equal(result.damaged, 0);
    assert_non_null(strstr(ask("SELECT group_concat(file) FROM trace"), "x.zst#2"));

    /* the first one torn anywhere in its last third: the second is whole */
    for (size_t cut = a.n * 2 / 3; cut < a.n; cut += 37) {
        start(&a);
        made.n = cut;
        add(&made, b.p, b.n);
        const char *got = ask(sums);
        assert_string_equal(strchr(got, '\n') + 1, alone[1]);
    }
    /* its copy adds nothing, and is told */
    start(&a);
    add(&made, a.p, a.n);
    const char *twice = ask(sums);
    assert_memory_equal(twice, "77|0|300|", 9);
    assert_int_equal(result.traces, 1);
    assert_non_null(strstr(said, "there twice"));
    /* a copy after a damaged one takes the damaged blocks' place */
    start(&a);
    made.p[a.n / 2] ^= 0xff;
    add(&made, a.p, a.n);
    assert_memory_equal(ask(sums), "77|0|300|", 9);
}

/* For each field of a hint, hints that contradict their blocks. */
static void wrong_hints(void **state) {
    char want[256];

    (void)state;
    start(&a);
    snprintf(want, sizeof want, "%s",
             ask("SELECT (SELECT count(*) FROM samples), (SELECT count(*) FROM memory_usage),"
                 " (SELECT count(*) FROM threads), (SELECT count(func) FROM samples)"));
    for (int field = 0; field < 7; field++) {
        start(&a);
        for (size_t at = 0; at + TRACE_HINT_SIZE < made.n; at++) {
            struct trace_hint h;
            if (trace_hint_get(made.p + at, made.n - at, &h) != 0)
                continue;
            h.types = field == 0 ? 0 : field == 1 ? 1u << TRACE_note : h.types;
            h.kind = (uint8_t)(field == 2 ? (h.kind + 1) % 3 : h.kind);
            h.epoch += field == 3 ? 7 : 0;
            h.count = field == 4 ? 0 : h.count;
            h.first_ts = field == 5 ? UINT64_MAX - 1 : h.first_ts;
            h.last_ts = field == 6 ? 1 : h.last_ts;
            trace_hint_put(made.p + at, &h);
        }
        assert_string_equal(
            ask("SELECT (SELECT count(*) FROM samples), (SELECT count(*) FROM memory_usage),"
                " (SELECT count(*) FROM threads), (SELECT count(func) FROM samples)"),
            want);
        assert_int_equal(result.damaged, 0);
        assert_non_null(strstr(said, "contradicted"));
    }
}

/* ---- few bytes, many rows ---- */

static struct bytes rows;

static void put_varint(struct bytes *to, uint64_t v) {
    uint8_t buf[VARINT_MAX];
    add(to, buf, (size_t)(varint_put(buf, v) - buf));
}

/* Appends a row of n varint fields, followed by the `extra` bytes. */
static void put_row(unsigned type, const uint64_t *v, size_t n, const struct bytes *extra) {
    struct bytes row = {0};
    for (size_t i = 0; i < n; i++)
        put_varint(&row, v[i]);
    if (extra)
        add(&row, extra->p, extra->n);
    put_varint(&rows, type);
    put_varint(&rows, row.n);
    if (row.n)
        add(&rows, row.p, row.n);
    free(row.p);
}

/* Appends what is in `rows` to the trace as block number `seq`. */
static void put_block(unsigned kind, uint32_t seq) {
    size_t n = TRACE_BLOCK_HEADER + rows.n, cap = ZSTD_compressBound(n);
    uint8_t *raw = malloc(n), *out = malloc(TRACE_HINT_SIZE + cap);
    struct trace_block_header h = {.kind = (uint8_t)kind,
                                   .encoding = TRACE_ENCODING_ROWS,
                                   .seq = seq,
                                   .body_len = (uint32_t)rows.n,
                                   .first_ts = 1000,
                                   .last_ts = 2000,
                                   .types = UINT64_MAX};
    struct trace_hint hint = {.kind = h.kind, .seq = seq, .raw = (uint32_t)n, .types = UINT64_MAX};

    assert_true(raw && out && n <= TRACE_BLOCK_MAX);
    trace_block_header_put(raw, &h);
    memcpy(raw + TRACE_BLOCK_HEADER, rows.p, rows.n);
    hint.compressed = (uint32_t)ZSTD_compress(out + TRACE_HINT_SIZE, cap, raw, n, 19);
    hint.first_ts = 1000;
    hint.last_ts = 2000;
    trace_hint_put(out, &hint);
    add(&made, out, TRACE_HINT_SIZE + hint.compressed);
    free(raw);
    free(out);
    rows.n = 0;
}

static void begin(void) {
    static const uint8_t text[] = "1 schema META text:TXT\n";
    struct bytes schema = {0};
    made.n = rows.n = 0;
    put_varint(&schema, sizeof text);
    add(&schema, text, sizeof text);
    put_row(TRACE_schema, NULL, 0, &schema);
    put_block(TRACE_KIND_META, 0);
    free(schema.p);
}

static long long number(const char *query) {
    return atoll(ask(query));
}

/* Checks that the database takes no more than a few hundred bytes for each item that the length of the trace allows. */
static void assert_small(void) {
    long long size =
        number("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size");
    assert_true(size <= 400 * (long long)(READER_ITEMS + READER_ITEMS_A_BYTE * made.n));
}

static void many_rows(void **state) {
    (void)state;
    begin();
    for (uint32_t k = 1; k <= 4; k++) {
        for (int i = 0; i < 1500000; i++)
            add(&rows, &(uint8_t[]){TRACE_sample, 0}, 2);
        put_block(TRACE_KIND_DATA, k);
    }
    assert_true(made.n < 8000); /* six million rows */
    assert_true(number("SELECT count(*) FROM samples") <=
                (long long)(READER_ITEMS + READER_ITEMS_A_BYTE * made.n));
    assert_true(result.damaged == 1 && strstr(said, "more rows"));
    assert_small();
}

/* The same in a small trace that is joined to a large one, with junk after each block, so that blocks are loaded before it is known where the
 * trace ends. */
static void many_rows_joined(void **state) {
    const uint32_t blocks = 6, each = 300000;
    struct bytes noise = {0};
    uint64_t x = 1;

    (void)state;
    begin();
    for (uint32_t k = 1; k <= blocks; k++) {
        for (uint32_t i = 0; i < each; i++)
            add(&rows, &(uint8_t[]){TRACE_sample, 0}, 2);
        put_block(TRACE_KIND_DATA, k);
        add(&made, "junk", 4);
    }
    size_t first = made.n;
    put_varint(&noise, 200000);
    for (int i = 0; i < 200000; i++)
        add(&noise, &(uint8_t){(uint8_t)((x = x * 6364136223846793005u + 1) >> 56)}, 1);
    put_row(TRACE_schema, NULL, 0, &noise);
    put_block(TRACE_KIND_META, 0);
    free(noise.p);
    assert_true(each * blocks > 3 * (READER_ITEMS + READER_ITEMS_A_BYTE * first) &&
                made.n > 50 * first);
    assert_true(number("SELECT count(*) FROM samples") <=
                (long long)(READER_ITEMS + READER_ITEMS_A_BYTE * first));
    assert_true(result.traces == 2 && result.damaged == 1);
    assert_true(number("SELECT count FROM lost WHERE reason = 'excess_blocks'") >= blocks - 2);
}

/* A stack of the greatest possible depth, used at very many places. */
static void deep_stack(void **state) {
    struct bytes list = {0};

    (void)state;
    begin();
    put_row(TRACE_frame, NULL, 0,
            &(struct bytes){(uint8_t[]){2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1}, 13, 13});
    put_varint(&list, 60000);
    put_varint(&list, 2);
    for (int i = 1; i < 60000; i++)
        put_varint(&list, 0);
    /* id, key */
    struct bytes stack = {0};
    add(&stack, "\x02", 1);
    add(&stack, "\1\0\0\0\0\0\0\0", 8);
    put_varint(&stack, 1);
    add(&stack, list.p, list.n);
    put_varint(&stack, 0);
    put_row(TRACE_stack, NULL, 0, &stack);
    put_block(TRACE_KIND_DICT, 1);
    for (int i = 0; i < 20000; i++) /* ts tid stack pc cpu count flags */
        put_row(TRACE_sample, (const uint64_t[]){0, 0, i ? 0 : 2, 2000, 0, 1, 0}, 7, NULL);
    put_block(TRACE_KIND_DATA, 2);
    assert_true(made.n < 4000);
    assert_int_equal(number("SELECT count(*) FROM samples"), 20000);
    assert_small();
    free(list.p);
    free(stack.p);
}

static void many_events(void **state) {
    struct bytes events = {0};

    (void)state;
    begin();
    put_varint(&events, 0); /* ts */
    put_varint(&events, 0); /* tid */
    put_varint(&events, 0); /* call */
    put_varint(&events, 0); /* step */
    put_varint(&events, 4000000);
    for (int i = 0; i < 1000000; i++)
        add(&events, "\0\0\1\0", 4); /* enter, exit */
    put_row(TRACE_torch_calls, NULL, 0, &events);
    put_block(TRACE_KIND_DATA, 1);
    assert_true(made.n < 8000);
    assert_small();
    free(events.p);
}

static void long_text(void **state) {
    struct bytes text = {0};
    char *as = malloc(4000000);

    (void)state;
    memset(as, 'a', 4000000);
    begin();
    put_varint(&text, 2); /* id 1 */
    put_varint(&text, 4000000);
    add(&text, as, 4000000);
    put_row(TRACE_string, NULL, 0, &text);
    put_block(TRACE_KIND_DICT, 1);
    for (int i = 0; i < 30000; i++) /* ts, id, span, step, tid, name */
        put_row(TRACE_event, (const uint64_t[]){0, 2, 0, 0, 0, 1}, 6, NULL);
    put_block(TRACE_KIND_DATA, 2);
    assert_true(made.n < 8000);
    assert_small();
    assert_true(number("SELECT coalesce(max(length(name)), 0) FROM events") <= 4096);
    free(text.p);
    free(as);
}

/* ---- names of files ---- */

static void plain_files(void **state) {
    char fifo[128], there[128], link_path[128], in_dir[160];
    int fd;

    (void)state;
    snprintf(fifo, sizeof fifo, "%s", path_of("fifo"));
    snprintf(there, sizeof there, "%s", path_of("a.zst"));
    snprintf(link_path, sizeof link_path, "%s", path_of("link"));
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(symlink("a.zst", link_path), 0);
    assert_true((fd = plain_file_open(there)) >= 0);
    close(fd);
    assert_true((fd = plain_file_open(link_path)) >= 0);
    close(fd);
    assert_int_equal(symlink(dir, path_of("self")), 0);
    snprintf(in_dir, sizeof in_dir, "%s/self/../%s/self//link", dir, strrchr(dir, '/') + 1);
    assert_true((fd = plain_file_open(in_dir)) >= 0);
    close(fd);
    unlink(link_path);
    assert_int_equal(symlink(link_path, link_path), 0);
    const char *const no[] = {fifo,
                              dir,
                              link_path,
                              "/dev/null",
                              "/dev/tty",
                              "/proc/self/exe",
                              "/proc/version",
                              "/sys/kernel",
                              "[vdso]",
                              "",
                              "relative",
                              "/",
                              "/nowhere/at/all"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_true(plain_file_open(no[i]) < 0);
    /* not even for a moment: who waits to write into the FIFO would notice */
    int writer = open(fifo, O_RDWR | O_NONBLOCK);
    assert_true(plain_file_open(fifo) < 0);
    close(writer);
}

static int stopped(void) {
    return 1;
}

/* The search for the next good block may take as long as the file is large: it can be stopped. */
static void search_stopped(void **state) {
    const size_t n = 1u << 20;
    uint8_t *p = malloc(n + a.n);
    struct reader *r;

    (void)state;
    assert_non_null(p);
    memset(p, 'x', n);
    memcpy(p + n, a.p, a.n);
    source_stopped = stopped;
    assert_int_equal(reader_open_memory(&r, p, n + a.n), -EINTR);
    assert_null(r);
    assert_int_equal(reader_open_memory(&r, a.p, a.n), 0);
    reader_close(r);
    source_stopped = NULL;
    assert_int_equal(reader_open_memory(&r, p, n + a.n), 0);
    reader_close(r);
    free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joined),         cmocka_unit_test(wrong_hints),
        cmocka_unit_test(many_rows),      cmocka_unit_test(many_rows_joined),
        cmocka_unit_test(deep_stack),     cmocka_unit_test(many_events),
        cmocka_unit_test(long_text),      cmocka_unit_test(plain_files),
        cmocka_unit_test(search_stopped),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
