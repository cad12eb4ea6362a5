/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_golden DIR - writes the synthetic golden traces into DIR: tests/golden/README.md.
 *
 * The traces in tests/golden are never made anew: they stand for what writers of the past have written.
 * This program says how they came about, and makes the next ones when the format grows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include "writer/encode.h"
#include "writer/writer.h"

#define START 1000000000000ull /* CLOCK_MONOTONIC when the recording began */
#define TEXT(s)                                                                                    \
    { .p = (s), .n = strlen(s) }

static int failed;

static void check(int rc, const char *what) {
    if (rc) {
        fprintf(stderr, "make_golden: %s: %s\n", what, strerror(-rc));
        failed = 1;
    }
}

static struct writer *start(const char *dir, const char *name) {
    char path[4096];
    struct writer *w = NULL;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    check(
        writer_open(&w, &(struct writer_options){.trace_path = path, .run_dir = dir, .nrings = 4}),
        path);
    if (!w)
        exit(3);
    struct writer_value process[TRACE_process_NFIELDS] = {
        {.u = START},
        {.u = START - 5000000},
        TEXT("node17"),
        TEXT("7ff1b1a0-0000-4000-8000-000000000001"),
        {.u = getpid()},
        {.u = 1},
        {.u = 1000},
        {.i = 3},
        {.i = -1},
        {.i = 8},
        TEXT("/usr/bin/python3.11"),
        {.p = "python3\0train.py\0--lr\0"
              "0.1",
         .n = 26},
        TEXT("/home/u/job"),
        {.u = 0x030b02f0},
        {.u = 0x4f0000},
        {.u = 0x4f8000},
        TEXT("0.1.0"),
        TEXT("preload")};
    if (strcmp(name, "killed.zst") != 0)
        process[TRACE_process_pid].u = 4711;
    check(writer_emit(w, TRACE_process, process), "process");
    return w;
}

static void clocks(struct writer *w, uint64_t ts) {
    struct writer_value v[TRACE_clock_NFIELDS] = {
        {.u = ts}, {.u = 1763712000000000000 + ts}, {.u = ts + 12345}, {.u = 61}};
    check(writer_emit(w, TRACE_clock, v), "clock");
}

static void frame(struct ring *r, uint64_t key, const char *name, const char *file, uint64_t line) {
    size_t used = 0;
    uint64_t *f =
        ring_reserve(r, TRACE_frame, TRACE_frame_NFIELDS, strlen(name) + strlen(file) + 16);
    f[TRACE_frame_key] = key;
    ring_put_bytes(f, TRACE_frame_NFIELDS, TRACE_frame_name, name, strlen(name), &used);
    ring_put_bytes(f, TRACE_frame_NFIELDS, TRACE_frame_file, file, strlen(file), &used);
    f[TRACE_frame_firstline] = line / 10 * 10;
    f[TRACE_frame_line] = line;
    ring_commit(f);
}

static void stack(struct ring *r, uint64_t key, uint64_t flags, const uint64_t *python, size_t n,
                  const uint64_t *native, size_t m) {
    size_t used = 0;
    uint64_t *f = ring_reserve(r, TRACE_stack, TRACE_stack_NFIELDS, 8 * (n + m));
    f[TRACE_stack_key] = key;
    f[TRACE_stack_flags] = flags;
    ring_put_bytes(f, TRACE_stack_NFIELDS, TRACE_stack_python, python, n * sizeof(uint64_t), &used);
    ring_put_bytes(f, TRACE_stack_NFIELDS, TRACE_stack_native, native, m * sizeof(uint64_t), &used);
    ring_commit(f);
}

static void sample(struct ring *r, uint64_t ts, uint64_t tid, uint64_t key, uint64_t pc,
                   uint64_t cpu, uint64_t count, uint64_t flags) {
    uint64_t *f = ring_reserve(r, TRACE_sample, TRACE_sample_NFIELDS, 0);
    const uint64_t v[] = {ts, tid, key, pc, cpu, count, flags};
    memcpy(f, v, sizeof v);
    ring_commit(f);
}

static void dictionaries(struct ring *r) {
    frame(r, 0xf1, "Linear.forward", "/usr/lib/python3/torch/nn/linear.py", 114);
    frame(r, 0xf2, "Model.forward", "/home/u/job/train.py", 23);
    frame(r, 0xf3, "main", "/home/u/job/train.py", 61);
    frame(r, 0xf4, "<module>", "/home/u/job/train.py", 70);
    frame(r, 0xf5, "wo\xc3\xa4rt\xff", "/home/u/job/odd \"name\".py", 0);
    stack(r, 0x51, 0, (const uint64_t[]){0xf1, 0xf2, 0, 0xf3, 0xf4, 0}, 6,
          (const uint64_t[]){0x7f1200345678, 0x4f1234, 0x7f1200345900, 0x4f1234, 0x4a0010}, 5);
    stack(r, 0x52, 1, (const uint64_t[]){0xf3, 0xf4}, 2, NULL, 0);
    stack(r, 0x53, 6, (const uint64_t[]){0xf5}, 1, (const uint64_t[]){UINT64_MAX, 1}, 2);
}

static void thread_row(struct writer *w, uint64_t ts, uint64_t tid, const char *name,
                       uint64_t ident, uint64_t state) {
    struct writer_value v[TRACE_thread_NFIELDS] = {
        {.u = ts}, {.u = tid}, TEXT(name), {.u = ident}, {.u = state}};
    check(writer_emit(w, TRACE_thread, v), "thread");
}

/* One row of every record type, two flushes, samples out of order. */
static void basic(const char *dir) {
    struct writer *w = start(dir, "basic.zst");
    struct ring *r = live_ring_get(writer_live(w), 4711);
    struct writer_value config[] = {{.u = START}, TEXT("probing.sample_rate"), TEXT("0.1")};
    struct writer_value note[] = {
        {.u = START + 1}, {.u = 1}, TEXT("sampler"), TEXT("no native frames: why")};
    struct writer_value module[TRACE_module_NFIELDS] = {{.u = 0},
                                                        {.u = 0xa1},
                                                        TEXT("/usr/bin/python3.11"),
                                                        {.p = "\x01\x02\xfe\xff", .n = 4},
                                                        {.u = 0x400000},
                                                        {.u = 0x8f0000},
                                                        {.u = 0},
                                                        {.u = START}};
    struct writer_value unload[] = {{.u = START + 900000000}, {.u = 0xa1}};
    clocks(w, START);
    check(writer_emit(w, TRACE_config, config), "config");
    check(writer_emit(w, TRACE_note, note), "note");
    check(writer_emit(w, TRACE_module, module), "module");
    thread_row(w, START, 4711, "python3", 0x7f1212345740, 1);
    thread_row(w, START, 4712, "pt_data_worker", 0, 1);
    dictionaries(r);
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t ts = START + i * 100000000 + i * i % 7 * 11000;
        sample(r, ts, 4711, i % 3 ? 0x51 : 0x52, 0x7f1200345000 + i * 16, 99000 + i, 1, 3);
        if (i % 10 == 0)
            sample(r, ts - 5000000, 4712, i ? 0x53 : 0, 0, 0, 10, 4);
        if (i == 20)
            check(writer_drain(w, WRITER_FLUSH), "drain");
    }
    for (uint64_t i = 0; i < 4; i++) {
        uint64_t ts = START + i * 1000000000;
        struct writer_value cpu[] = {{.u = ts},      {.u = 900000 * i}, {.u = 50000 * i}, {.u = 9},
                                     {.u = 40 * i},  {.u = 3 * i},      {.u = 5000 + i},  {.u = 2},
                                     {.u = 700 * i}, {.u = 30 * i}};
        struct writer_value memory[] = {{.u = ts},         {.u = 500000000 + i * 4096},
                                        {.u = 4000000000}, {.u = 90000000},
                                        {.u = 800000000},  {.u = 0},
                                        {.u = 600000000}};
        struct writer_value io[] = {{.u = ts}, {.u = 1000 * i}, {.u = 10 * i}, {.u = i},
                                    {.u = i},  {.u = 4096 * i}, {.u = 0}};
        struct writer_value net[] = {{.u = ts}, TEXT("eth0"), {.u = 1500 * i}, {.u = 700 * i},
                                     {.u = i},  {.u = i},     {.u = 0},        {.u = 0}};
        check(writer_emit(w, TRACE_cpu, cpu), "cpu");
        check(writer_emit(w, TRACE_memory, memory), "memory");
        check(writer_emit(w, TRACE_io, io), "io");
        check(writer_emit(w, TRACE_network, net), "network");
    }
    check(writer_emit(w, TRACE_module_unload, unload), "module_unload");
    thread_row(w, START + 4000000000, 4712, "pt_data_worker", 0, 0);
    clocks(w, START + 4000000000);
    check(writer_close(w, "exit"), "close");
}

/* A killed process: losses, records that were still in rings, and an `end` written by writer_finish(). */
static void killed(const char *dir) {
    char live[4096];
    int fds[2];
    if (pipe(fds) < 0)
        exit(3);
    pid_t pid = fork();
    if (pid == 0) {
        struct writer *w = start(dir, "killed.zst");
        struct ring *r = live_ring_get(writer_live(w), 4711);
        dictionaries(r);
        for (uint64_t i = 0; i < 10; i++)
            sample(r, START + i * 1000000, 4711, 0x51, 0x7f1200345000, 1000, 1, 3);
        check(writer_drain(w, WRITER_FLUSH), "drain");
        writer_live(w)->lost[TRACE_LOST_missed_tick] = 7;
        writer_live(w)->lost[TRACE_LOST_torn] = 2;
        frame(r, 0xf6, "late", "/home/u/job/train.py", 80);
        stack(r, 0x54, 1, (const uint64_t[]){0xf6, 0xf4}, 2, NULL, 0);
        for (uint64_t i = 10; i < 15; i++)
            sample(r, START + i * 1000000, 4711, 0x54, 0, 1000, 1, 1);
        sample(r, START + 15 * 1000000, 4711, 0x99, 0, 1000, 1, 1); /* a key that never came */
        if (write(fds[1], writer_live_path(w), sizeof live) < 0)
            _exit(3);
        _exit(failed);
    }
    waitpid(pid, NULL, 0);
    if (read(fds[0], live, sizeof live) != sizeof live)
        exit(3);
    check(writer_finish(live, "killed", 0, NULL), "finish");
}

/* ---- blocks made by hand: what later writers may write ---- */

static FILE *out;
static uint32_t seq;

static void put_raw(const uint8_t *raw, size_t n, struct trace_hint hint) {
    uint8_t frame_bytes[65536], head[TRACE_HINT_SIZE];
    ZSTD_CCtx *z = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(z, ZSTD_c_checksumFlag, 1);
    hint.raw = (uint32_t)n;
    hint.compressed = (uint32_t)ZSTD_compress2(z, frame_bytes, sizeof frame_bytes, raw, n);
    trace_hint_put(head, &hint);
    if (fwrite(head, sizeof head, 1, out) != 1 || fwrite(frame_bytes, hint.compressed, 1, out) != 1)
        check(-5, "write");
    ZSTD_freeCCtx(z);
}

static void put_block(struct builder *b, uint32_t epoch) {
    const uint64_t lost[TRACE_NLOST] = {0};
    struct trace_hint hint;
    size_t n = builder_finish(b, seq++, epoch, lost, &hint);
    put_raw(b->buf, n, hint);
    builder_reset(b);
}

static void row(struct builder *b, unsigned type, const struct writer_value *v) {
    check(builder_row(b, trace_record_by_id(type), v), "row");
}

static struct builder b[NKINDS];

static void put_schema(void) {
    struct writer_value schema[] = {TEXT(trace_schema_text())};
    row(&b[0], TRACE_schema, schema);
    put_block(&b[0], 0);
}

/* Three epochs; blocks of the second one come before and after the third one's first block. */
static void epochs(void) {
    const uint32_t order[] = {0, 1, 2, 1};
    put_schema();
    for (unsigned i = 0; i < 4; i++) {
        char name[32];
        uint64_t ids[] = {1, 0, 2};
        if (i < 3) {
            for (uint64_t id = 1; id <= 2; id++) {
                snprintf(name, sizeof name, "epoch%u_f%u", i, (unsigned)id);
                struct writer_value string[] = {{.u = id}, TEXT(name)};
                struct writer_value fr[] = {
                    {.u = id}, {.u = 100 * i + id}, {.u = id}, {.u = 1}, {.u = 5}, {.u = 6}};
                row(&b[1], TRACE_string, string);
                row(&b[1], TRACE_frame, fr);
            }
            struct writer_value st[] = {
                {.u = 1}, {.u = 100 * i + 9}, {.u = 0}, {.p = ids, .n = 3}, {.n = 0}};
            row(&b[1], TRACE_stack, st);
            put_block(&b[1], i);
        }
        for (uint64_t k = 0; k < 3; k++) {
            struct writer_value s[] = {{.u = START + i * 1000000000 + k * 1000},
                                       {.u = 7},
                                       {.u = 1},
                                       {.u = 0},
                                       {.u = k},
                                       {.u = 1},
                                       {.u = 0}};
            row(&b[2], TRACE_sample, s);
        }
        put_block(&b[2], order[i]);
    }
}

static void append(uint8_t *raw, size_t *n, const void *bytes, size_t len) {
    memcpy(raw + *n, bytes, len);
    *n += len;
}

/* A longer header, an unknown type, trailing fields, a missing field, an unknown kind and encoding, a foreign skippable frame. */
static void future(void) {
    const uint64_t lost[TRACE_NLOST] = {0, 0, 0, 0, 0, 0, 0, 5};
    uint8_t raw[4096], foreign[12] = {0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4};
    struct trace_hint hint;
    struct trace_block_header h = {
        .kind = TRACE_KIND_META, .encoding = TRACE_ENCODING_ROWS, .epoch = 0};
    size_t n = TRACE_BLOCK_HEADER + 16;
    put_schema();
    memset(raw, 0xee, n); /* 16 bytes of header that nobody knows yet */
    append(raw, &n,
           "\x3e\x03"
           "abc",
           5); /* type 62 */
    append(raw, &n,
           "\x03\x07\x04\x64\xc8\x01\x3d"
           "zz",
           9);                                          /* clock, two more bytes */
    append(raw, &n, "\x03\x02\x04\x65", 4);             /* clock of an older writer */
    append(raw, &n, "\x03\x05\x82\x80\x80\x00\x66", 7); /* a padded varint */
    append(raw, &n, "\xac\x02\x01\x09", 4);             /* type 300 */
    h.count = 5;
    h.seq = seq++;
    h.first_ts = h.last_ts = START;
    h.types = 1ull << 62 | 1ull << TRACE_clock;
    memcpy(h.lost, lost, sizeof lost);
    h.body_len = (uint32_t)(n - TRACE_BLOCK_HEADER);
    trace_block_header_put(raw, &h);
    raw[10] = TRACE_BLOCK_HEADER + 16; /* header_len */
    raw[28] = (uint8_t)(n - TRACE_BLOCK_HEADER - 16);
    hint = (struct trace_hint){
        .seq = h.seq, .count = 5, .first_ts = START, .last_ts = START, .types = h.types};
    put_raw(raw, n, hint);
    fwrite(foreign, sizeof foreign, 1, out);
    for (unsigned i = 0; i < 2; i++) { /* kind 9, then encoding 9 */
        uint8_t odd[TRACE_BLOCK_HEADER + 4] = {0};
        struct trace_block_header o = {
            .kind = i ? 2 : 9, .encoding = i ? 9 : 1, .seq = seq, .count = 1, .body_len = 4};
        trace_block_header_put(odd, &o);
        put_raw(odd, sizeof odd, (struct trace_hint){.kind = o.kind, .seq = seq++, .count = 1});
    }
    struct writer_value end[] = {{.u = START + 5}, TEXT("exit")};
    row(&b[0], TRACE_end, end);
    put_block(&b[0], 0);
}

/* What was found out after the end: behind `end` and a seek table come another schema, names of native code in an epoch of their own, and a cause. */
static void complete(void) {
    static const struct {
        uint64_t file, address, name, source, line, flags;
    } symbols[] = {{1, 0x1135, 3, 4, 17, 1},
                   {1, 0x1135, 5, 4, 30, 0},
                   {1, 0x2000, 6, 0, 0, 4},
                   {2, 0x40, 7, 0, 0, 2},
                   {1, 0x2000, 5, 4, 31, 0}};
    static const char *const texts[] = {
        "/lib/liba.so",   "/usr/bin/python3",        "inner", "a.c", "outer",
        "liba.so+0x2000", "_PyEval_EvalFrameDefault"};
    const uint8_t seek_table[8 + 9] = {0x5e, 0x2a, 0x4d, 0x18, 9};
    uint64_t pcs[] = {0x7f0000001136, 0x7f0000002001};
    struct writer_value fact[] = {{.u = START}, TEXT("env"), TEXT("NCCL_DEBUG"), TEXT("INFO")},
                        path[] = {{.u = 1}, TEXT("/lib/liba.so")},
                        module[] = {{.u = 1},
                                    {.u = 77},
                                    {.u = 1},
                                    TEXT("\x01\x02\x03\x04\x05\x06\x07\x08"),
                                    {.u = 0x7f0000000000},
                                    {.u = 0x7f0000100000},
                                    {.u = 0x7f0000000000},
                                    {.u = START}},
                        st[] = {{.u = 1}, {.u = 9}, {.u = 0}, {.n = 0}, {.p = pcs, .n = 2}},
                        s[] = {{.u = START + 1000},
                               {.u = 7},
                               {.u = 1},
                               {.u = 0x7f0000001135},
                               {.u = 0},
                               {.u = 1},
                               {.u = 1}},
                        end[] = {{.u = START + 5000},
                                 TEXT("killed"),
                                 {.u = START + 2000},
                                 {.u = 9}},
                        cause[] = {{.u = START + 6000},
                                   TEXT("end"),
                                   TEXT("cause"),
                                   TEXT("killed by the OOM killer (kernel log)")};
    put_schema();
    row(&b[0], TRACE_fact, fact);
    put_block(&b[0], 0);
    row(&b[1], TRACE_string, path);
    row(&b[1], TRACE_module, module);
    row(&b[1], TRACE_stack, st);
    put_block(&b[1], 0);
    row(&b[2], TRACE_sample, s);
    put_block(&b[2], 0);
    row(&b[0], TRACE_end, end);
    put_block(&b[0], 0);
    fwrite(seek_table, sizeof seek_table, 1, out);
    row(&b[0], TRACE_schema, (struct writer_value[]){TEXT(trace_schema_text())});
    put_block(&b[0], 1);
    for (uint64_t i = 0; i < sizeof texts / sizeof *texts; i++)
        row(&b[1], TRACE_string, (struct writer_value[]){{.u = i + 1}, TEXT(texts[i])});
    for (uint64_t i = 1; i <= 2; i++)
        row(&b[1], TRACE_native_file,
            (struct writer_value[]){
                {.u = i}, {.u = 70 + i}, {.u = i}, TEXT("\x01\x02\x03\x04\x05\x06\x07\x08")});
    put_block(&b[1], 1);
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        row(&b[2], TRACE_symbol,
            (struct writer_value[]){{.u = symbols[i].file},
                                    {.u = symbols[i].address},
                                    {.u = symbols[i].name},
                                    {.u = symbols[i].source},
                                    {.u = symbols[i].line},
                                    {.u = symbols[i].flags}});
    put_block(&b[2], 1);
    row(&b[0], TRACE_fact, cause);
    put_block(&b[0], 2);
}

/* basic.zst with a flipped byte in its third block, a spoilt hint later on, and a torn tail. */
static void damaged(const char *dir) {
    char path[4096];
    uint8_t p[65536];
    size_t n, pos = 0;
    struct trace_hint hint;
    snprintf(path, sizeof path, "%s/basic.zst", dir);
    FILE *f = fopen(path, "rb");
    n = f ? fread(p, 1, sizeof p, f) : 0;
    if (f)
        fclose(f);
    for (unsigned block = 0; trace_hint_get(p + pos, n - pos, &hint) == 0; block++) {
        if (block == 2)
            p[pos + TRACE_HINT_SIZE + hint.compressed / 2] ^= 0x40;
        if (block == 3)
            p[pos + 20] ^= 1;
        pos += TRACE_HINT_SIZE + hint.compressed;
        if (block == 4)
            break;
    }
    fwrite(p, 1, pos + 100, out); /* the next hint and some of its frame */
}

int main(int argc, char **argv) {
    static const char *const names[] = {"epochs.zst", "future.zst", "damaged.zst", "complete.zst"};
    char path[4096];
    if (argc != 2) {
        fputs("usage: make_golden DIR (absolute, new)\n", stderr);
        return 2;
    }
    for (unsigned k = 0; k < NKINDS; k++)
        builder_init(&b[k], (enum trace_kind)k);
    basic(argv[1]);
    killed(argv[1]);
    for (unsigned i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", argv[1], names[i]);
        out = fopen(path, "wb");
        if (!out)
            return 3;
        seq = 0;
        if (i == 0)
            epochs();
        else if (i == 1)
            future();
        else if (i == 2)
            damaged(argv[1]);
        else
            complete();
        fclose(out);
    }
    return failed;
}
